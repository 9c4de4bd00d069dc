//! Reads a memory and writes its entry, both in one pass, and finds what is to be
//! installed instead. The entry gets its name in a second step, after its content
//! was synced.

use std::path::Path;
use std::sync::{Arc, PoisonError};

use chrono::{DateTime, FixedOffset};

use super::Run;
use super::steps::EarlyEnd;
use crate::archive::{self, EntryKind, Written};
use crate::baseline::Draft;
use crate::config::Agent;
use crate::engine::judge::{Classification, MemoryReader, classify, lines, window_size};
use crate::engine::ledger::{Event, FileState};
use crate::engine::memory::Baseline;
use crate::engine::plan::{Bound, Memory, Step, UndoMode};
use crate::engine::undo::{
    self, AgentRecords, ContentPart, ContentParts, Replacement, UndoRecords, UndoSource,
};
use crate::engine::{AgentHistory, Engine};
use crate::error::{Error, Kind, Result};
use crate::transport::{Attributes, Cause, File, Folder, MemoryObject, SpecialFile, Unsynced};
use crate::untrusted;

/// From how many bytes on a displaced memory is compared with its entry before it
/// is hashed, which takes much longer.
const LARGE: u64 = 4 << 20;

impl<'a> Run<'a> {
    /// Reads the memory and writes its entry, both in one pass. `None` when the
    /// memory is what it should be already. One that somebody has a lease on is
    /// tried again later, or, when patience is over, displaced unread: what it
    /// holds is archived when the displaced file is settled.
    pub(super) fn take(
        &self,
        agent: &'a Agent,
        step: &Step,
        folder: &dyn Folder,
        event: &mut Event,
        patient: bool,
    ) -> Result<Option<Captured>, EarlyEnd> {
        let engine = self.engine;
        let history = engine.history(&agent.name)?;
        let loaded = self.shared().shelf.load(agent);
        // An undo puts back what was there; a damaged baseline is no reason to
        // refuse it, and then the memory is measured against the last one.
        let (current, earlier) = match (loaded, &step.undo) {
            (Ok(current), _) => {
                let earlier = engine.earlier(agent, &history, Some(&current));
                (current, earlier)
            }
            (Err(refusal), None) => return Err(refusal.error().clone().into()),
            (Err(_), Some(_)) => {
                let earlier = engine.earlier(agent, &history, None);
                let none = || Arc::new(Baseline::new(Vec::new(), &agent.separator));
                (earlier.first().cloned().unwrap_or_else(none), earlier)
            }
        };
        let now = engine.clock().now();
        let subdir = Path::new(&agent.archive_subdir);
        let mut reading = MemoryReader::default();
        let mut intake = Intake {
            engine,
            subdir,
            header: archive::scratch_header(&agent.name, now),
            judge: &|reading: &MemoryReader| classify(reading, &current, &earlier),
            window: window_size(&current),
            draft: None,
        };
        let mut object = folder.look()?;
        let mut attributes = None;
        if matches!(object, MemoryObject::File(_)) {
            match folder.read(&mut |bytes| intake.take(&mut reading, bytes)) {
                Ok(file) => object = MemoryObject::File(file),
                Err(error) if error.cause != Cause::Leased => return Err(error.into()),
                Err(error) if patient => return Err(EarlyEnd::Leased(error.into())),
                // Who owns it is told without opening it.
                Err(_) => {
                    attributes = Some(folder.unread()?.attributes);
                    object = MemoryObject::Odd(SpecialFile::Leased);
                }
            }
        }
        if object == MemoryObject::Odd(SpecialFile::Directory)
            && let Some(error) = engine.directory_refusal(agent, &history)
        {
            return Err(error.into());
        }
        let mut inode = 0;
        match &object {
            MemoryObject::Absent => event.before = Some(FileState::Absent),
            MemoryObject::Odd(odd) => {
                event.before = Some(FileState::Odd(odd.clone()));
                event.attributes.clone_from(&attributes);
            }
            MemoryObject::File(file) => {
                inode = file.stamp.inode;
                attributes = Some(file.attributes.clone());
                event.note = unkept(file);
                event.before = Some(FileState::File {
                    sha256: reading.digest(),
                    size: reading.size,
                    lines: reading.count_lines(),
                });
                event.attributes.clone_from(&attributes);
            }
        }
        let judgement = classify(&reading, &current, &earlier);
        let memory = match &object {
            MemoryObject::Absent => Memory::Absent,
            MemoryObject::Odd(_) => Memory::Odd,
            MemoryObject::File(_) => Memory::File(judgement.boundary, &reading.head),
        };
        let source = self.source(agent, step, &current)?;
        let content = source.digest();
        // Nothing to do also where an interrupted run was just finished, which
        // the plan could not see.
        if step.undo.is_none()
            && event.before.as_ref().and_then(FileState::digest) == Some(content)
            && (!self.bound || step.bound.content == content)
        {
            return Ok(None);
        }
        if self.bound && Bound::new(agent, content, &memory) != step.bound {
            return Err(Error::new(
                Kind::Conflict,
                format!("{} is no longer what the plan saw", agent.name),
            )
            .hint("look at a new plan; nothing was changed")
            .into());
        }
        let written_since = self.written_since(agent, step, event)?;
        if let Some(undo) = &step.undo
            && undo.mode == UndoMode::Refuse
            && written_since
        {
            return Err(Error::new(
                Kind::Conflict,
                format!("{} has written since run {}", agent.name, undo.run),
            )
            .hint("--append keeps its new notes below the restored file, --overwrite archives them")
            .into());
        }
        event.after = Some(source.standing.clone());
        let mut versions = Vec::new();
        if step.undo.is_some() {
            event.baseline = source.version;
        } else {
            versions.push(self.version(&current, &history)?);
            event.baseline = Some(current.digest());
        }
        let mut taken = Captured {
            source,
            attributes,
            inode,
            scratch_lines: judgement.scratch_lines,
            entry: Entry::None,
            versions,
            append: None,
            archived: None,
            at: now,
        };
        if object == MemoryObject::Absent {
            let nothing = matches!(taken.source.replacement, Replacement::Nothing);
            return Ok((!nothing).then_some(taken));
        }
        event.boundary = judgement.boundary;
        if let MemoryObject::File(_) = object {
            event.scratch_lines = Some(judgement.scratch_lines);
        }
        if let Some(version) = &judgement.version {
            if version.digest() != current.digest() || step.undo.is_some() {
                taken.versions.push(self.version(version, &history)?);
            }
            event.split = judgement.exact.then(|| version.digest());
        }
        taken.entry = match &object {
            MemoryObject::Odd(odd) => {
                Entry::Draft(Box::new(self.describe(agent, odd, now)?), EntryKind::Odd)
            }
            _ => match self.archived_before(agent, event)? {
                Some(written) => Entry::Before(written),
                None => intake.finish(&reading, &judgement)?,
            },
        };
        if reading.size > LARGE {
            taken.archived = archived_from(&taken.entry, &reading, &judgement);
        }
        let append = step
            .undo
            .as_ref()
            .is_some_and(|undo| undo.mode == UndoMode::Append);
        if append && written_since {
            taken.append = notes_in(&taken.entry, &reading, &judgement);
        }
        Ok(Some(taken))
    }

    /// Gives the entry its name, and the versions that go with it theirs. Their
    /// folders have to be synced afterwards.
    pub(super) fn name(
        &self,
        agent: &Agent,
        taken: &mut Captured,
        event: &mut Event,
    ) -> Result<Vec<Unsynced>, Error> {
        let engine = self.engine;
        let mut unsynced = Vec::new();
        for version in taken.versions.drain(..) {
            let mut stood = version.was_pushed;
            if let Some(draft) = version.draft {
                stood = false;
                engine.versions.name(draft)?;
            } else if !version.checked
                && let Some(draft) = engine.versions.draft(&version.baseline)?
            {
                // The agent that was to write it has failed.
                stood = false;
                draft.content().sync()?;
                engine.versions.name(draft)?;
            }
            // Everybody's who needs it, whoever made it.
            if !stood {
                unsynced.extend(engine.versions.unsynced(version.baseline.digest())?);
            }
        }
        event.entry = match std::mem::replace(&mut taken.entry, Entry::None) {
            Entry::None => None,
            Entry::Before(written) => {
                unsynced.extend(engine.archive().unsynced(&written.path)?);
                Some(written)
            }
            Entry::Draft(mut draft, kind) => {
                let written = draft.name(kind, taken.at)?;
                unsynced.push(draft.folder());
                Some(written)
            }
        };
        let Some(written) = &event.entry else {
            return Ok(unsynced);
        };
        self.said_archived(agent, written, taken.scratch_lines);
        if let (Some(skip), Replacement::File(parts)) =
            (taken.append, &mut taken.source.replacement)
        {
            let (_, whole_lines) = parts.measure(engine)?;
            if !whole_lines {
                parts.0.push(ContentPart::Bytes(Arc::new(b"\n".to_vec())));
            }
            parts.0.push(ContentPart::Entry(written.path.clone(), skip));
            (taken.source.standing, _) = parts.measure(engine)?;
            event.after = Some(taken.source.standing.clone());
        }
        Ok(unsynced)
    }

    fn version(&self, version: &Arc<Baseline>, history: &AgentHistory) -> Result<Version, Error> {
        let checked = self.shared().drafted.insert(version.digest());
        let draft = checked.then(|| self.engine.versions.draft(version));
        Ok(Version {
            baseline: Arc::clone(version),
            draft: draft.transpose()?.flatten(),
            checked,
            was_pushed: history.pushed.contains(&version.digest()),
        })
    }

    /// What is to be installed: the baseline, or what an undo puts back.
    fn source(
        &self,
        agent: &Agent,
        step: &Step,
        current: &Arc<Baseline>,
    ) -> Result<UndoSource, Error> {
        let Some(undo) = &step.undo else {
            let bytes = current.bytes();
            return Ok(UndoSource {
                replacement: Replacement::File(ContentParts(vec![ContentPart::Baseline(
                    Arc::clone(current),
                )])),
                standing: FileState::File {
                    sha256: current.digest(),
                    size: bytes.len() as u64,
                    lines: lines(bytes),
                },
                attributes: None,
                version: Some(current.digest()),
            });
        };
        let records = self.undo_records(agent, &undo.run)?;
        undo::source(self.engine, agent, &records)
    }

    /// The records that the undo of an agent goes by, as they are now.
    fn undo_records(&self, agent: &Agent, run: &str) -> Result<AgentRecords, Error> {
        let mut undone = self.undone.lock().unwrap_or_else(PoisonError::into_inner);
        let records = match undone.as_mut() {
            Some(records) => {
                records.catch_up(self.engine)?;
                records
            }
            None => {
                let steps = self.plan.steps.iter();
                let undos = steps.filter_map(|step| Some((&step.agent, step.undo.as_ref()?)));
                let runs = undos.map(|(agent, undo)| (agent.as_str(), undo.run.as_str()));
                undone.insert(UndoRecords::of_runs(self.engine, &runs.collect())?)
            }
        };
        records.of(&agent.name).cloned().ok_or_else(|| {
            let message = format!("the ledger has no run {run} of {}", agent.name);
            Error::new(Kind::Conflict, message)
        })
    }

    /// The entry of a run that failed after it had archived the very same memory:
    /// what fails every three hours must not fill the archive.
    fn archived_before(&self, agent: &Agent, event: &Event) -> Result<Option<Written>, Error> {
        let tried = self.engine.history(&agent.name)?.tried;
        let same = tried.filter(|past| past.before == event.before && past.split == event.split);
        let entry = same.map(|past| past.entry);
        Ok(entry.filter(|entry| {
            let found = self.engine.archive().digest(&entry.path);
            found.is_ok_and(|digest| digest == entry.digest)
        }))
    }

    /// Whether the agent wrote after the last run that changed its memory, for an undo.
    fn written_since(&self, agent: &Agent, step: &Step, event: &Event) -> Result<bool, Error> {
        match &step.undo {
            Some(undo) => {
                let records = self.undo_records(agent, &undo.run)?;
                Ok(records.written_since(agent, event.before.as_ref()))
            }
            None => Ok(false),
        }
    }

    /// The entry that describes something that is not read.
    pub(super) fn describe(
        &self,
        agent: &Agent,
        odd: &SpecialFile,
        now: DateTime<FixedOffset>,
    ) -> Result<archive::Draft, Error> {
        let mut draft = self
            .engine
            .archive()
            .begin(Path::new(&agent.archive_subdir))?;
        let after = match odd {
            SpecialFile::Leased => {
                " What it holds follows in an entry of its own when the lease is over."
            }
            _ => "",
        };
        draft.write(
            format!(
                "# {} — {}\n\nIn place of the memory stood {}. It was displaced and not read.{after}\n",
                agent.name,
                archive::stamp(now),
                untrusted::line(odd.to_string())
            )
            .as_bytes(),
        )?;
        Ok(draft)
    }

    fn said_archived(&self, agent: &Agent, written: &Written, lines: u64) {
        let what = match written.kind {
            EntryKind::Scratch => {
                let plural = if lines == 1 { "" } else { "s" };
                format!("Archived {lines} scratch line{plural} of {}", agent.name)
            }
            EntryKind::Odd => format!("Described what stood in place of {}'s memory", agent.name),
            _ => format!("Archived the whole memory of {}", agent.name),
        };
        self.say(&format!("{what} as {}", written.path.display()));
    }
}

/// What was read and archived before a swap, and what is to be installed.
pub(super) struct Captured {
    pub(super) source: UndoSource,
    pub(super) attributes: Option<Attributes>,
    pub(super) inode: u64,
    pub(super) scratch_lines: u64,
    entry: Entry,
    versions: Vec<Version>,
    /// Where in the entry the notes begin that an undo appends.
    append: Option<u64>,
    /// Of a large memory: what stood above the part that is in the entry, and where
    /// in the entry that begins.
    archived: Option<(Vec<u8>, u64)>,
    at: DateTime<FixedOffset>,
}

/// A version that is to be kept.
struct Version {
    baseline: Arc<Baseline>,
    /// Its file, if it falls to this agent, of all that share it, to make it.
    draft: Option<Draft>,
    /// Whether this agent's turn has compared the copy on the disk: the first of those
    /// that share the version does.
    checked: bool,
    /// It was pushed to this agent before, so it came to the disk then.
    was_pushed: bool,
}

/// The entry of a memory, until it has its name.
enum Entry {
    /// There is nothing of the agent's.
    None,
    /// An earlier run has archived the very same.
    Before(Written),
    Draft(Box<archive::Draft>, EntryKind),
}

impl Captured {
    /// Whether the memory's notes are put behind the bytes of an undo.
    pub(super) fn appends(&self) -> bool {
        self.append.is_some()
    }

    /// The memory that was read, put together from its entry.
    pub(super) fn as_archived(&mut self, entry: Option<&Written>) -> Option<ContentParts> {
        let (above, skip) = self.archived.take()?;
        let entry = ContentPart::Entry(entry?.path.clone(), skip);
        Some(ContentParts(vec![
            ContentPart::Bytes(Arc::new(above)),
            entry,
        ]))
    }

    /// What has to be on the disk before anything gets its name.
    pub(super) fn contents(&self) -> impl Iterator<Item = Unsynced> {
        let entry = match &self.entry {
            Entry::Draft(draft, _) => Some(draft.content()),
            _ => None,
        };
        let drafts = self.versions.iter();
        let versions = drafts.filter_map(|version| version.draft.as_ref());
        entry.into_iter().chain(versions.map(Draft::content))
    }
}

/// What of a file's attributes no reset keeps, for people.
fn unkept(file: &File) -> Option<String> {
    let dropped = (file.dropped > 0).then(|| {
        format!(
            "{} or more extended attributes of the memory are not kept: together they exceed \
             64 KiB",
            file.dropped
        )
    });
    let rights = (file.attributes.given() != file.attributes).then(|| {
        format!(
            "set-user, set-group and sticky bits and file capabilities of the memory (mode \
             {:04o}) are not kept",
            file.attributes.mode
        )
    });
    let notes: Vec<String> = dropped.into_iter().chain(rights).collect();
    (!notes.is_empty()).then(|| notes.join("; "))
}

/// What of a memory is not in its entry, and where in the entry the rest begins.
fn archived_from(
    entry: &Entry,
    reading: &MemoryReader,
    judgement: &Classification,
) -> Option<(Vec<u8>, u64)> {
    let (kind, size) = match entry {
        Entry::None => return None,
        Entry::Before(written) => (written.kind, written.size),
        Entry::Draft(draft, kind) => (*kind, draft.size()),
    };
    let offset = match kind {
        EntryKind::Scratch => judgement.boundary?.offset,
        EntryKind::FullBackup => 0,
        _ => return None,
    };
    let above = reading.head.get(..offset)?.to_vec();
    Some((above, size.checked_sub(reading.size - offset as u64)?))
}

/// Where in an entry the agent's own notes begin.
fn notes_in(entry: &Entry, reading: &MemoryReader, judgement: &Classification) -> Option<u64> {
    let boundary = judgement.boundary.map_or(0, |boundary| boundary.offset);
    let scratch = reading.head.get(boundary..).unwrap_or_default();
    let tail = match &judgement.version {
        Some(version) if scratch.starts_with(version.tail()) => version.tail().len() as u64,
        _ => 0,
    };
    let (kind, size) = match entry {
        Entry::None => return None,
        Entry::Before(written) => (written.kind, written.size),
        Entry::Draft(draft, kind) => (*kind, draft.size()),
    };
    Some(match kind {
        // Behind the header: everything below the boundary.
        EntryKind::Scratch => size - (reading.size - boundary as u64) + tail,
        _ => boundary as u64 + tail,
    })
}

/// The memory on its way into an entry: its beginning is kept until the
/// boundary can be found, the rest goes straight through.
struct Intake<'i> {
    engine: &'i Engine,
    subdir: &'i Path,
    header: String,
    judge: &'i dyn Fn(&MemoryReader) -> Classification,
    window: usize,
    draft: Option<(archive::Draft, EntryKind)>,
}

impl Intake<'_> {
    fn take(&mut self, reading: &mut MemoryReader, bytes: &[u8]) -> Result<(), Error> {
        let before = reading.head.len();
        reading.take(bytes, self.window);
        if reading.size <= self.window as u64 {
            return Ok(());
        }
        let kept = reading.head.len() - before;
        if self.draft.is_none() {
            self.draft = self.start(reading, &(self.judge)(reading))?;
        }
        match &mut self.draft {
            Some((draft, _)) => draft.write(&bytes[kept..]),
            None => Ok(()),
        }
    }

    /// Starts the entry with what was kept; none when there is nothing of the
    /// agent's in it.
    fn start(
        &self,
        reading: &MemoryReader,
        judgement: &Classification,
    ) -> Result<Option<(archive::Draft, EntryKind)>, Error> {
        let whole = reading.size <= self.window as u64;
        if whole && judgement.exact && judgement.scratch_bytes == 0 {
            return Ok(None);
        }
        let mut draft = self.engine.archive().begin(self.subdir)?;
        let kind = match judgement.boundary.filter(|_| judgement.exact) {
            Some(boundary) => {
                draft.write(self.header.as_bytes())?;
                draft.write(reading.head.get(boundary.offset..).unwrap_or_default())?;
                EntryKind::Scratch
            }
            None => {
                draft.write(&reading.head)?;
                EntryKind::FullBackup
            }
        };
        Ok(Some((draft, kind)))
    }

    fn finish(
        mut self,
        reading: &MemoryReader,
        judgement: &Classification,
    ) -> Result<Entry, Error> {
        if self.draft.is_none() {
            self.draft = self.start(reading, judgement)?;
        }
        Ok(match self.draft {
            Some((draft, kind)) => {
                draft.begin_writing();
                Entry::Draft(Box::new(draft), kind)
            }
            None => Entry::None,
        })
    }
}
