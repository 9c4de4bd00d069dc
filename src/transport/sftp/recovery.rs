//! Finishes or reverts what an interrupted run left beside a memory on a host.

use super::chunked_read::FileContent;
use super::directory::SftpDirectory;
use super::run_directory::new_file_name;
use crate::base::digest::Digest;
use crate::transport::{
    InstalledMemory, InterruptedRun, MemoryDirectory, MemoryObject, RecoveredRun, SwapMethod,
    SwapProgress, TransportError,
};

impl SftpDirectory {
    pub(super) fn recover_run(&self, run: &InterruptedRun) -> Result<RecoveredRun, TransportError> {
        if !run.takeover_names.is_empty() {
            // The other run may have changed the memory since it was found.
            self.opening_object.take();
        }
        self.run.take_over(&run.name, &run.takeover_names)?;
        let new_name = new_file_name(&run.name);
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
            self.run.remove_name(&new_name)?;
        }
        self.run.remove(&run.name)?;
        let mut displaced = self.run.list_names(&run.name)?;
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
        let names = self.run.list_names(&run.name)?;
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
                Some(staged) if staged.digest == content => {
                    Some(self.exchange_names(&run.name, staged)?.method)
                }
                _ => None,
            },
            InstalledMemory::Absent if self.stat_memory()? != MemoryObject::Absent => {
                // The run may have created it, and moved nothing.
                self.run.remove(&run.name)?;
                self.run.create(&run.name)?;
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
            && staged.digest == content
        {
            return Ok(Some(self.exchange_names(&run.name, staged)?.method));
        }
        let names = self.run.list_names(&run.name)?;
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

    /// Reads the file that the run staged, if there is one.
    fn read_staged(&self, name: &str) -> Result<Option<FileContent>, TransportError> {
        let path = self.run.path_of(name);
        let Some((handle, found)) = self.client.open_regular(&path)? else {
            return Ok(None);
        };
        let size = found.size.unwrap_or(0);
        let read = self
            .reader
            .read_to_end(&handle, &path, size, &mut |_| Ok(()));
        self.client.close_handle(handle);
        Ok(Some(read?.0))
    }
}
