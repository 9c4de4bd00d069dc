//! Finishes or reverts what an interrupted run left in the directory.

use std::ffi::OsStr;
use std::sync::Arc;

use rustix::fs;

use super::aside_names::{is_aside_name, unfinished_name};
use super::errors::refused_error;
use super::in_place::is_copy_name;
use super::{FileIdentity, LocalDirectory, OpenOutcome};
use crate::base::digest::{Digest, Hasher};
use crate::base::durable;
use crate::base::error::PathContext;
use crate::transport::{
    InstalledMemory, InterruptedRun, MemoryDirectory, MemoryObject, RecoveredRun, SpecialFile,
    SwapMethod, SwapProgress, TransportError,
};

impl LocalDirectory {
    pub(super) fn recover_run(
        &self,
        run: &InterruptedRun,
    ) -> Result<Option<RecoveredRun>, TransportError> {
        let inode = self.inode()?;
        // An unguessable name identifies the directory better than a number does.
        if run.directory_id.is_some_and(|id| id != inode)
            && self.displaced_names(&run.name)?.is_empty()
        {
            return Ok(None);
        }
        let method = match run.progress {
            SwapProgress::NotBegun | SwapProgress::Done => None,
            SwapProgress::Unknown => self.finish_swap(run)?,
            SwapProgress::Decided => match self.finish_swap(run)? {
                None => self.begin_swap(run)?,
                method => method,
            },
        };
        self.remove_name(&unfinished_name(&run.name))?;
        let mut displaced = self.displaced_names(&run.name)?;
        run.retain_displaced(&mut displaced, &run.name);
        Ok(Some(RecoveredRun { method, displaced }))
    }

    /// Determines how an interrupted run replaced the memory, and finishes what it began; `None` if
    /// it did not replace it.
    fn finish_swap(&self, run: &InterruptedRun) -> Result<Option<SwapMethod>, TransportError> {
        let object = self.stat_memory()?;
        let staged = match &run.installed {
            InstalledMemory::Special(special) => {
                return self.finish_with_special(run, special, &object);
            }
            InstalledMemory::File { content, .. } => self.find_content(&run.name, *content)?,
            InstalledMemory::Absent => None,
        };
        if let Some(staged) = staged {
            return self.finish_with_staged(run, staged, &object);
        }
        if let MemoryObject::File(file) = &object
            && run.memory_inode != 0
            && file.stamp.inode == run.memory_inode
        {
            return Ok(None);
        }
        let names = self.displaced_names(&run.name)?;
        Ok(match names.first() {
            Some(_) if run.installed == InstalledMemory::Absent => Some(SwapMethod::Remove),
            Some(name) if *name != run.name => Some(SwapMethod::TakeAway),
            Some(_) => Some(SwapMethod::Exchange),
            // A created memory displaces nothing. If there was a memory before, the new file was
            // never built, whatever the agent has saved since.
            None if run.creates_memory && run.is_installed(self)? => Some(SwapMethod::Create),
            None => None,
        })
    }

    /// Swaps a memory that the run had decided to replace, if what it staged is still there.
    fn begin_swap(&self, run: &InterruptedRun) -> Result<Option<SwapMethod>, TransportError> {
        Ok(match run.installed {
            InstalledMemory::File { content, .. } => {
                match self.find_content(&run.name, content)? {
                    Some(staged) => Some(self.swap(&run.name, staged)?.method),
                    None => None,
                }
            }
            InstalledMemory::Absent if self.stat_memory()? != MemoryObject::Absent => {
                Some(self.move_memory_aside(&run.name)?.method)
            }
            InstalledMemory::Absent | InstalledMemory::Special(_) => None,
        })
    }

    /// Does the same where the run was about to install an object that is not a file.
    fn finish_with_special(
        &self,
        run: &InterruptedRun,
        special: &SpecialFile,
        object: &MemoryObject,
    ) -> Result<Option<SwapMethod>, TransportError> {
        let names = self.displaced_names(&run.name)?;
        let has_asides = names.iter().any(|name| *name != run.name);
        if *object == MemoryObject::Special(special.clone()) {
            return Ok(Some(match names.is_empty() {
                true if run.creates_memory => SwapMethod::Create,
                _ if has_asides => SwapMethod::TakeAway,
                _ => SwapMethod::Exchange,
            }));
        }
        let SpecialFile::Symlink(target) = special else {
            return Ok(None);
        };
        let Some(link) = self.find_symlink(&run.name, target)? else {
            return Ok(None);
        };
        // Interrupted between moving the old object aside and moving the link in.
        if *object == MemoryObject::Absent && has_asides {
            durable::sync_all(self.take_unsynced()).map_err(refused_error)?;
            return Ok(Some(self.swap(&run.name, link)?.method));
        }
        // The link of the run itself. Its target is in the journal.
        self.remove_name(&run.name)?;
        Ok(None)
    }

    /// Does the same where the staged file still has its name.
    fn finish_with_staged(
        &self,
        run: &InterruptedRun,
        staged: FileIdentity,
        object: &MemoryObject,
    ) -> Result<Option<SwapMethod>, TransportError> {
        // No memory: interrupted between moving the old file aside and linking the new one.
        if *object == MemoryObject::Absent {
            durable::sync_all(self.take_unsynced()).map_err(refused_error)?;
            return Ok(Some(self.swap(&run.name, staged)?.method));
        }
        let names = self.displaced_names(&run.name)?;
        if names.iter().any(|name| is_copy_name(&run.name, name)) {
            return Ok(Some(self.overwrite_memory(&run.name, staged)?.method));
        }
        // The new file has two names for a moment when it is linked as the memory.
        if !run.is_installed(self)? {
            return Ok(None);
        }
        Ok(if names.iter().any(|name| *name != run.name) {
            Some(SwapMethod::TakeAway)
        } else {
            run.creates_memory.then_some(SwapMethod::Create)
        })
    }

    /// Returns which of the names that a swap of `staged` may have displaced something to exist, the
    /// staged file's name first.
    pub(super) fn displaced_names(&self, staged: &str) -> Result<Vec<String>, TransportError> {
        let list = || -> rustix::io::Result<Vec<String>> {
            let mut names = Vec::new();
            for entry in fs::Dir::read_from(&*self.directory_fd)? {
                // Our own names are ASCII.
                if let Ok(name) = str::from_utf8(entry?.file_name().to_bytes())
                    && (is_aside_name(staged, name) || is_copy_name(staged, name))
                {
                    names.push(name.to_string());
                }
            }
            names.sort();
            Ok(names)
        };
        let mut names = list()
            .with_path("list", &self.directory_path)
            .map_err(refused_error)?;
        if self.exists(staged)? {
            names.insert(0, staged.to_string());
        }
        Ok(names)
    }

    /// Returns the identity of the regular file at `name`, if it has exactly this content.
    fn find_content(
        &self,
        name: &str,
        content: Digest,
    ) -> Result<Option<FileIdentity>, TransportError> {
        let opened = self.open_any(OsStr::new(name))?;
        // The content of a leased file is unknown; the caller detects the lease elsewhere.
        let OpenOutcome::File(file) = opened else {
            return Ok(None);
        };
        let mut hasher = Hasher::default();
        self.read_content(&file, &self.path_of(name), &mut |bytes| {
            hasher.update(bytes);
            Ok(())
        })?;
        if hasher.finish() == content {
            self.identify_open_file(Arc::new(file), &self.path_of(name))
                .map(Some)
        } else {
            Ok(None)
        }
    }
}
