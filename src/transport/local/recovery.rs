//! Finishes or reverts what an interrupted run left in the directory.

use std::sync::Arc;

use rustix::fs::Dir;

use super::LocalDirectory;
use super::aside_names::{is_aside_name, is_copy_name, unfinished_name};
use super::errors::{RefusalContext, refused_error};
use super::open_directory::{OpenDirectory, OpenOutcome};
use super::open_file::{FileIdentity, read_content};
use crate::base::digest::{Digest, Hasher};
use crate::base::durable;
use crate::transport::{
    InstalledMemory, InterruptedRun, MemoryDirectory, MemoryObject, RecoveredRun, SpecialFile,
    SwapMethod, SwapProgress, TransportError,
};

/// The recovery of an interrupted run.
pub(super) struct Recovery<'r> {
    pub(super) memory: &'r LocalDirectory,
    pub(super) run: &'r InterruptedRun,
}

impl Recovery<'_> {
    pub(super) fn recover(&self) -> Result<Option<RecoveredRun>, TransportError> {
        let (run, directory) = (self.run, &self.memory.directory);
        let inode = directory.inode()?;
        // An unguessable name identifies the directory better than a number does.
        if run.directory_id.is_some_and(|id| id != inode)
            && directory.displaced_names(&run.name)?.is_empty()
        {
            return Ok(None);
        }
        let method = match run.progress {
            SwapProgress::NotBegun | SwapProgress::Done => None,
            SwapProgress::Unknown => self.finish_swap()?,
            SwapProgress::Decided => match self.finish_swap()? {
                None => self.begin_swap()?,
                method => method,
            },
        };
        directory.remove_name(&unfinished_name(&run.name))?;
        let mut displaced = directory.displaced_names(&run.name)?;
        run.retain_displaced(&mut displaced, &run.name);
        Ok(Some(RecoveredRun { method, displaced }))
    }

    /// Determines how an interrupted run replaced the memory, and finishes what it began; `None` if
    /// it did not replace it.
    fn finish_swap(&self) -> Result<Option<SwapMethod>, TransportError> {
        let run = self.run;
        let object = self.memory.stat_memory()?;
        let staged = match &run.installed {
            InstalledMemory::Special(special) => {
                return self.finish_with_special(special, &object);
            }
            InstalledMemory::File { content, .. } => self.find_staged(*content)?,
            InstalledMemory::Absent => None,
        };
        if let Some(staged) = staged {
            return self.finish_with_staged(staged, &object);
        }
        if let MemoryObject::File(file) = &object
            && run.memory_inode != 0
            && file.stamp.inode == run.memory_inode
        {
            return Ok(None);
        }
        let names = self.memory.directory.displaced_names(&run.name)?;
        Ok(match names.first() {
            Some(_) if run.installed == InstalledMemory::Absent => Some(SwapMethod::Remove),
            Some(name) if *name != run.name => Some(SwapMethod::TakeAway),
            Some(_) => Some(SwapMethod::Exchange),
            // A created memory displaces nothing. If there was a memory before, the new file was
            // never built, whatever the agent has saved since.
            None if run.creates_memory && run.is_installed(self.memory)? => {
                Some(SwapMethod::Create)
            }
            None => None,
        })
    }

    /// Swaps a memory that the run had decided to replace, if what it staged is still there.
    fn begin_swap(&self) -> Result<Option<SwapMethod>, TransportError> {
        let (run, memory) = (self.run, self.memory);
        Ok(match run.installed {
            InstalledMemory::File { content, .. } => match self.find_staged(content)? {
                Some(staged) => Some(memory.swap(&run.name, staged)?.method),
                None => None,
            },
            InstalledMemory::Absent if memory.stat_memory()? != MemoryObject::Absent => {
                Some(memory.move_memory_aside(&run.name)?.method)
            }
            InstalledMemory::Absent | InstalledMemory::Special(_) => None,
        })
    }

    /// Does the same where the run was about to install an object that is not a file.
    fn finish_with_special(
        &self,
        special: &SpecialFile,
        object: &MemoryObject,
    ) -> Result<Option<SwapMethod>, TransportError> {
        let (run, memory) = (self.run, self.memory);
        let directory = &memory.directory;
        let names = directory.displaced_names(&run.name)?;
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
        let Some(link) = directory.open_symlink(&run.name, target)? else {
            return Ok(None);
        };
        let path = directory.path_of(&run.name);
        let link = memory.identify_open_file(Arc::new(link), &path)?;
        // Interrupted between moving the old object aside and moving the link in.
        if *object == MemoryObject::Absent && has_asides {
            durable::sync_all(memory.take_unsynced()).map_err(refused_error)?;
            return Ok(Some(memory.swap(&run.name, link)?.method));
        }
        // The link of the run itself. Its target is in the journal.
        directory.remove_name(&run.name)?;
        Ok(None)
    }

    /// Does the same where the staged file still has its name.
    fn finish_with_staged(
        &self,
        staged: FileIdentity,
        object: &MemoryObject,
    ) -> Result<Option<SwapMethod>, TransportError> {
        let (run, memory) = (self.run, self.memory);
        // No memory: interrupted between moving the old file aside and linking the new one.
        if *object == MemoryObject::Absent {
            durable::sync_all(memory.take_unsynced()).map_err(refused_error)?;
            return Ok(Some(memory.swap(&run.name, staged)?.method));
        }
        let names = memory.directory.displaced_names(&run.name)?;
        if names.iter().any(|name| is_copy_name(&run.name, name)) {
            return Ok(Some(memory.overwrite_memory(&run.name, staged)?.method));
        }
        // The new file has two names for a moment when it is linked as the memory.
        if !run.is_installed(self.memory)? {
            return Ok(None);
        }
        Ok(if names.iter().any(|name| *name != run.name) {
            Some(SwapMethod::TakeAway)
        } else {
            run.creates_memory.then_some(SwapMethod::Create)
        })
    }

    /// Returns the identity of the staged file, if it has its name and exactly this content.
    fn find_staged(&self, content: Digest) -> Result<Option<FileIdentity>, TransportError> {
        let (name, directory) = (&self.run.name, &self.memory.directory);
        // The content of a leased file is unknown; the caller detects the lease elsewhere.
        let OpenOutcome::File(file) = directory.open_any(name.as_ref())? else {
            return Ok(None);
        };
        let path = directory.path_of(name);
        let mut hasher = Hasher::default();
        read_content(&file, &path, &mut |bytes| {
            hasher.update(bytes);
            Ok(())
        })?;
        let found = (hasher.finish() == content).then(|| Arc::new(file));
        found
            .map(|file| self.memory.identify_open_file(file, &path))
            .transpose()
    }
}

impl OpenDirectory {
    /// Returns which of the names that a swap of `staged` may have displaced something to exist, the
    /// staged file's name first.
    pub(super) fn displaced_names(&self, staged: &str) -> Result<Vec<String>, TransportError> {
        let list = || -> rustix::io::Result<Vec<String>> {
            let mut names = Vec::new();
            for entry in Dir::read_from(&self.fd)? {
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
        let mut names = list().or_refused("list", &self.path)?;
        if self.exists(staged)? {
            names.insert(0, staged.to_string());
        }
        Ok(names)
    }
}
