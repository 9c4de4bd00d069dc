//! Entries in memory: a table of names, each of which has the digest of its content.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::{self, Cursor};
use std::path::{Path, PathBuf};

use chrono::{DateTime, FixedOffset, NaiveDateTime};

use super::MemoryStore;
use crate::archive::{
    ArchiveEntry, EntryKind, QUARANTINE_DIRECTORY_NAME, WrittenEntry, agent_directory_of,
    format_entry_name, is_quarantined, parse_entry_name,
};
use crate::base::digest::Digest;
use crate::base::durable::UnsyncedObject;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::moment::Zone;
use crate::store::controller::Controller;
use crate::store::entries::{
    Entries, EntryDeletion, EntryDraft, EntryObject, EntryReader, PinFault, Pins, RetiredEntries,
    not_an_entry_error,
};
use crate::store::record::{Operation, RunEvent};

/// The entries and their pins.
#[derive(Default)]
pub(super) struct StoredEntries {
    names: BTreeMap<PathBuf, Digest>,
    contents: HashMap<Digest, Vec<u8>>,
    pins: HashSet<PathBuf>,
}

impl StoredEntries {
    fn find(&self, path: &Path) -> Option<ArchiveEntry> {
        let content = &self.contents[self.names.get(path)?];
        let (stamp, kind, number) = parse_entry_name(path.file_name()?.to_str()?)?;
        Some(ArchiveEntry {
            path: path.to_path_buf(),
            kind,
            stamp,
            number,
            size: content.len() as u64,
            modified: 0,
        })
    }

    /// Gives a content a free name, or returns the one that it has already.
    fn assign_name(
        &mut self,
        directory: &Path,
        digest: Digest,
        has_name: impl Fn(&Path) -> bool,
        name: impl Fn(u32) -> String,
    ) -> PathBuf {
        let mut paths = (0..).map(|number| directory.join(name(number)));
        let is_free = |path: &PathBuf| !self.names.contains_key(path) || has_name(path);
        let path = paths.find(is_free).unwrap();
        self.names.insert(path.clone(), digest);
        path
    }
}

struct MemoryDraft {
    store: MemoryStore,
    directory: PathBuf,
    bytes: Vec<u8>,
}

impl EntryDraft for MemoryDraft {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes.extend(bytes);
        Ok(())
    }

    fn start_writeback(&self) {}

    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn unsynced_content(&self) -> Option<UnsyncedObject> {
        None
    }

    fn assign_name(
        self: Box<Self>,
        kind: EntryKind,
        local: NaiveDateTime,
    ) -> Result<(WrittenEntry, Option<UnsyncedObject>)> {
        let (digest, size) = (Digest::of(&self.bytes), self.size());
        let entries = &mut self.store.content().entries;
        let name = |number| format_entry_name(local, kind, number);
        let path = entries.assign_name(&self.directory, digest, |_| false, name);
        entries.contents.insert(digest, self.bytes);
        let written = WrittenEntry {
            path,
            kind,
            digest,
            size,
            base: None,
            findings: None,
        };
        Ok((written, None))
    }
}

impl EntryReader for Cursor<Vec<u8>> {
    fn size(&self) -> io::Result<u64> {
        Ok(self.get_ref().len() as u64)
    }
}

struct MemoryPins {
    store: MemoryStore,
    entries: HashSet<PathBuf>,
}

impl Pins for MemoryPins {
    fn entries(&self) -> &HashSet<PathBuf> {
        &self.entries
    }

    fn find_faults(&self) -> Vec<PinFault> {
        let content = self.store.content();
        let pins = self.entries.iter();
        let lost = pins.filter(|it| !content.entries.names.contains_key(*it));
        let fault = |entry: &PathBuf| PinFault {
            pins_path: "pins".into(),
            line: 1,
            text: entry.display().to_string(),
            directory: Some(agent_directory_of(entry).to_path_buf()),
            error: None,
        };
        lost.map(fault).collect()
    }
}

impl Entries for MemoryStore {
    fn controller(&self) -> &Controller {
        &self.controller
    }

    fn start(&self, directory: &Path) -> Result<Box<dyn EntryDraft>> {
        Ok(Box::new(MemoryDraft {
            store: self.clone(),
            directory: directory.to_path_buf(),
            bytes: Vec::new(),
        }))
    }

    fn open_unsynced(&self, _entry: &Path) -> Result<Vec<UnsyncedObject>> {
        Ok(Vec::new())
    }

    fn open(&self, entry: &Path) -> Result<Box<dyn EntryReader>> {
        let entries = &self.content().entries;
        let content = entries.names.get(entry).map(|it| &entries.contents[it]);
        let Some(content) = content else {
            let message = format!("there is no entry {}", entry.display());
            return Err(Error::new(ErrorKind::Host, message));
        };
        Ok(Box::new(Cursor::new(content.clone())))
    }

    fn find(&self, entry: &Path) -> Result<Option<ArchiveEntry>> {
        Ok(self.content().entries.find(entry))
    }

    fn probe(&self, entry: &Path) -> Result<EntryObject> {
        let found = self.find(entry)?;
        Ok(found.map_or(EntryObject::Absent, |it| EntryObject::Entry(it.size)))
    }

    fn list_with_usage(&self, directory: &Path) -> Result<Vec<(ArchiveEntry, u64)>> {
        let entries = &self.content().entries;
        let paths = entries.names.keys();
        let here = paths.filter(|it| agent_directory_of(it) == directory);
        let mut found: Vec<_> = here.filter_map(|it| entries.find(it)).collect();
        found.sort_by_key(|it| (it.stamp, it.number, it.kind));
        let found = found.into_iter();
        Ok(found.map(|it| (it.clone(), it.size)).collect())
    }

    fn list_expired(
        &self,
        directory: &Path,
        limit: DateTime<FixedOffset>,
        zone: Zone,
        keep_newest: bool,
    ) -> Result<Vec<ArchiveEntry>> {
        let mut listed = self.list(directory)?;
        listed.pop_if(|_| keep_newest);
        listed.retain(|it| zone.resolve(it.stamp) < limit && it.modified < limit.timestamp());
        Ok(listed)
    }

    fn unclaimed_directories(
        &self,
        is_claimed: &dyn Fn(&Path) -> bool,
    ) -> Result<BTreeSet<PathBuf>> {
        let content = self.content();
        let paths = content.entries.names.keys();
        let above = paths.flat_map(|it| agent_directory_of(it).ancestors());
        let unclaimed = above.filter(|it| !it.as_os_str().is_empty() && !is_claimed(it));
        Ok(unclaimed.map(Path::to_path_buf).collect())
    }

    fn count_quarantined(&self, directory: &Path) -> usize {
        let quarantine = directory.join(QUARANTINE_DIRECTORY_NAME);
        let content = self.content();
        let paths = content.entries.names.keys();
        paths.filter(|it| it.starts_with(&quarantine)).count()
    }

    fn has_hidden_quarantine(&self, _directory: &Path) -> bool {
        false
    }

    fn release(&self, written: &WrittenEntry) -> Result<WrittenEntry> {
        let entries = &mut self.content().entries;
        let entry = entries.find(&written.path);
        let entry = entry.ok_or_else(|| not_an_entry_error(&written.path))?;
        let same: HashSet<PathBuf> = {
            let names = entries.names.iter();
            let same = names.filter(|(_, digest)| **digest == written.digest);
            same.map(|(path, _)| path.clone()).collect()
        };
        let directory = agent_directory_of(&written.path);
        let name = |number| format_entry_name(entry.stamp, entry.kind, number);
        let has_name = |path: &Path| same.contains(path);
        Ok(WrittenEntry {
            path: entries.assign_name(directory, written.digest, has_name, name),
            ..written.clone()
        })
    }

    fn end_release(&self, quarantined: &Path, released: &Path) -> Result<()> {
        if !is_quarantined(quarantined) {
            return Err(not_an_entry_error(quarantined));
        }
        let names = &mut self.content().entries.names;
        if names.get(quarantined) == names.get(released) {
            names.remove(quarantined);
        }
        Ok(())
    }

    fn pins(&self) -> Result<Box<dyn Pins>> {
        Ok(Box::new(MemoryPins {
            store: self.clone(),
            entries: self.content().entries.pins.clone(),
        }))
    }

    fn set_pinned(&self, typed: &[PathBuf], is_pinned: bool) -> Result<Vec<PathBuf>> {
        let changed = {
            let entries = &mut self.content().entries;
            let is_known = |it: &PathBuf| {
                entries.names.contains_key(it) || !is_pinned && entries.pins.contains(it)
            };
            if let Some(unknown) = typed.iter().find(|it| !is_known(it)) {
                return Err(self.controller.unknown_entry_error(unknown));
            }
            let mut changed = typed.to_vec();
            changed.retain(|it| entries.pins.contains(it) != is_pinned);
            for entry in &changed {
                if is_pinned {
                    entries.pins.insert(entry.clone());
                } else {
                    entries.pins.remove(entry);
                }
            }
            changed
        };
        if !changed.is_empty() {
            let operation = if is_pinned {
                Operation::Pin
            } else {
                Operation::Unpin
            };
            let (trigger, user) = (self.controller.trigger(), self.controller.user());
            let mut event = RunEvent::for_archive("5a10c3d2", operation, trigger, user);
            event.pinned_entries = changed.clone();
            self.append(event)?;
        }
        Ok(changed)
    }

    fn lock_for_deletion(&self) -> Result<Box<dyn EntryDeletion + '_>> {
        Ok(Box::new(self.clone()))
    }

    fn resolve_typed(&self, typed: &Path) -> Option<PathBuf> {
        let below = typed.strip_prefix("/").unwrap_or(typed);
        Some(below.to_path_buf())
    }

    fn location(&self, path: &Path) -> PathBuf {
        Path::new("/").join(path)
    }
}

impl EntryDeletion for MemoryStore {
    fn retire(&self, record: RunEvent, entries: &[ArchiveEntry]) -> Result<RetiredEntries> {
        self.append(record)?;
        let stored = &mut self.content().entries;
        let mut retired = RetiredEntries::default();
        for entry in entries {
            match stored.find(&entry.path) {
                None => {}
                Some(now) if now == *entry => {
                    stored.names.remove(&entry.path);
                    retired.deleted.push(entry.path.clone());
                }
                Some(_) => {
                    let message = format!("{} was replaced", entry.path.display());
                    retired
                        .errors
                        .push(Error::new(ErrorKind::Conflict, message));
                }
            }
        }
        Ok(retired)
    }
}
