//! Finishes or reverts what an interrupted run left beside a memory on a host.

use super::chunked_read::ReadContent;
use super::client::{
    TYPE_DIRECTORY, file_type, lstat_request, path_bytes, reply_attrs, status_code,
};
use super::directory::{SftpDirectory, StagedContent, TakenOverRun};
use super::run_directory::LINK_TEST_NAME;
use super::wire::{Request, status};
use crate::base::digest::Digest;
use crate::transport::{
    InstalledMemory, InterruptedRun, MemoryDirectory, MemoryObject, RecoveredRun, SwapMethod,
    SwapProgress, TransportError,
};

impl SftpDirectory {
    pub(super) fn recover_run(&self, run: &InterruptedRun) -> Result<RecoveredRun, TransportError> {
        self.take_over_run_directory(&run.name, &run.takeover_names)?;
        let new_name = Self::new_file_name(&run.name);
        let method = match run.progress {
            SwapProgress::NotBegun | SwapProgress::Done => None,
            SwapProgress::Unknown => self.finish_swap(run, &new_name)?,
            SwapProgress::Decided => match self.finish_swap(run, &new_name)? {
                None => self.begin_swap(run, &new_name)?,
                method => method,
            },
        };
        if let InstalledMemory::File { .. } = run.installed {
            // A second link to the new file, or a partial copy of it: never a file of the agent.
            self.remove_name(&new_name)?;
        }
        self.remove_run_directory(&run.name)?;
        let mut displaced = self.list_run_names(&run.name)?;
        run.retain_displaced(&mut displaced, &new_name);
        Ok(RecoveredRun { method, displaced })
    }

    /// Determines how an interrupted run replaced the memory, finishes what it began, or restores
    /// the memory's name; `None` if the memory was not replaced. Without inodes the names decide: a
    /// swap moves the old memory aside first.
    fn finish_swap(
        &self,
        run: &InterruptedRun,
        new_name: &str,
    ) -> Result<Option<SwapMethod>, TransportError> {
        let object = self.stat_memory()?;
        let content = match &run.installed {
            InstalledMemory::Special(special) => {
                let is_installed = object == MemoryObject::Special(special.clone());
                return Ok(is_installed.then_some(SwapMethod::Exchange));
            }
            InstalledMemory::File { content, .. } => Some(*content),
            InstalledMemory::Absent => None,
        };
        if object == MemoryObject::Absent {
            return self.finish_without_memory(run, new_name, content);
        }
        let names = self.list_run_names(&run.name)?;
        let has_asides = names.iter().any(|name| name != new_name);
        Ok(match content {
            _ if has_asides => Some(SwapMethod::TakeAway),
            None => (!names.is_empty()).then_some(SwapMethod::Remove),
            Some(_) if run.creates_memory && run.is_installed(self)? => Some(SwapMethod::Create),
            Some(_) => None,
        })
    }

    /// Swaps a memory that the run had decided to replace, if what it staged is still there.
    fn begin_swap(
        &self,
        run: &InterruptedRun,
        new_name: &str,
    ) -> Result<Option<SwapMethod>, TransportError> {
        Ok(match run.installed {
            InstalledMemory::File { content, .. } => match self.read_staged(new_name)? {
                Some(staged) if staged.content == content => {
                    Some(self.exchange_names(&run.name, staged)?.method)
                }
                _ => None,
            },
            InstalledMemory::Absent if self.stat_memory()? != MemoryObject::Absent => {
                // The run may have created it, and moved nothing.
                self.remove_run_directory(&run.name)?;
                self.create_run_directory(&run.name)?;
                Some(self.move_memory_into_run_directory(&run.name)?.method)
            }
            InstalledMemory::Absent | InstalledMemory::Special(_) => None,
        })
    }

    /// Does the same where there is no memory; `content` is that of the new file.
    fn finish_without_memory(
        &self,
        run: &InterruptedRun,
        new_name: &str,
        content: Option<Digest>,
    ) -> Result<Option<SwapMethod>, TransportError> {
        if let Some(content) = content
            && let Some(staged) = self.read_staged(new_name)?
            && staged.content == content
        {
            return Ok(Some(self.exchange_names(&run.name, staged)?.method));
        }
        let names = self.list_run_names(&run.name)?;
        if content.is_none() {
            return Ok((!names.is_empty()).then_some(SwapMethod::Remove));
        }
        let asides: Vec<&String> = names.iter().filter(|name| *name != new_name).collect();
        Ok(match asides.as_slice() {
            // There is no new file to install either, so the old memory is restored.
            [aside] => {
                self.move_back_into_place(aside)?;
                None
            }
            [_, ..] if asides.len() == names.len() => Some(SwapMethod::TakeAway),
            [] if names.is_empty() && run.creates_memory && run.is_installed(self)? => {
                Some(SwapMethod::Create)
            }
            // No swap on a host exchanges files, so the new file is a partial copy.
            _ => None,
        })
    }

    /// Renames the directory of another run, so that pending requests that name the old path fail.
    fn take_over_run_directory(
        &self,
        staged: &str,
        names: &[String],
    ) -> Result<(), TransportError> {
        let Some((now, before)) = names.split_last() else {
            return Ok(());
        };
        let to = self.directory_path.join(now);
        // Newest first: if an older name exists beside it, a slow host or an agent created that
        // directory later, and it does not belong to the run.
        let before = before.iter().rev().map(String::as_str);
        for name in before.chain([staged]) {
            let from = self.directory_path.join(name);
            let mut batch = vec![
                self.rename_request(&from, &to),
                lstat_request(&from),
                lstat_request(&to),
            ];
            // Left by a run that was interrupted during the link test.
            batch.push(Request::Remove {
                path: path_bytes(&to.join(LINK_TEST_NAME)),
            });
            batch.extend(self.directory_sync_requests());
            let answers = self.client.request_batch(batch)?;
            // The other run may have changed the memory since it was found.
            self.opening_object.take();
            let exists_at = |place: usize| answers.get(place).and_then(reply_attrs).is_some();
            let is_directory =
                answers.get(2).and_then(reply_attrs).and_then(file_type) == Some(TYPE_DIRECTORY);
            match answers.first().and_then(status_code) {
                Some(status::OK) if is_directory => break,
                // An object that is not a directory does not belong to the run, and a link would
                // lead elsewhere: it gets its name back.
                Some(status::OK) if exists_at(2) => {
                    let undo_requests = [self.rename_request(&to, &from), lstat_request(&to)];
                    let answers = self.client.request_batch(undo_requests.to_vec())?;
                    if answers.get(1).and_then(status_code) != Some(status::NO_SUCH_FILE) {
                        let why = "it is not a directory";
                        return Err(self.client.refused_error("take over", &to, why));
                    }
                }
                Some(status::NO_SUCH_FILE) if !exists_at(1) => {}
                Some(status::OK | status::NO_SUCH_FILE) => {
                    return Err(self.client.reply_error("take over", &from, None));
                }
                _ => return Err(self.client.reply_error("take over", &from, answers.first())),
            }
        }
        self.taken_over_run.replace(Some(TakenOverRun {
            staged_name: staged.to_string(),
            current_name: now.clone(),
        }));
        Ok(())
    }

    /// Reads the file that the run staged, if there is one.
    fn read_staged(&self, name: &str) -> Result<Option<StagedContent>, TransportError> {
        let path = self.path_of(name);
        let Some((handle, found)) = self.open_regular(&path)? else {
            return Ok(None);
        };
        let read = self.digest_open_file(&handle, &path, found.size.unwrap_or(0));
        self.close_handle(handle);
        let ReadContent { content, size, .. } = read?;
        Ok(Some(StagedContent { content, size }))
    }
}
