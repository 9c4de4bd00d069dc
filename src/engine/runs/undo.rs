//! Content that an undo puts back: the exact bytes from before a run, rebuilt from entries,
//! baseline versions and the ledger, and checked against the recorded digest.

mod records;

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use super::content::{ContentPart, ContentParts, Replacement};
use super::plan::PlannedFile;
use crate::archive::{EntryKind, WrittenEntry, strip_scratch_header};
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind, Result};
use crate::boundary::{KeptBytes, MemoryAccumulator, PushContent};
use crate::config::Agent;
use crate::engine::context::Context;
use crate::store::address::RecordedAddress;
use crate::store::record::{FileChange, FileState, RunEvent};
use crate::transport::{
    Attributes, MemoryDirectory, MemoryObject, ObjectId, SpecialFile, SwapMethod,
};
pub(in crate::engine) use records::{AgentRecords, UndoRecords, UndoneReset};

/// Reason to skip the undo of a run that is undone already.
pub(in crate::engine) fn already_undone_reason(records: &AgentRecords, undone_by: &str) -> String {
    let hint = if records.is_redoable(undone_by) {
        "; `undo --redo` takes that back"
    } else {
        ""
    };
    format!("already undone by run {undone_by}{hint}")
}

/// State of a memory before a run, ready to install.
pub(in crate::engine) struct InstallSource {
    /// What the undo puts in place.
    pub replacement: Replacement,
    /// Its state, for the ledger.
    pub state: FileState,
    /// Its owner, mode and extended attributes.
    pub attributes: Option<Attributes>,
    /// The version that its boundary was found with.
    pub baseline: Option<Digest>,
}

impl InstallSource {
    /// Creates a source without attributes, whose boundary was found with no version.
    pub fn new(replacement: Replacement, state: FileState) -> InstallSource {
        InstallSource {
            replacement,
            state,
            attributes: None,
            baseline: None,
        }
    }

    /// Whether the memory is what the undo puts in place, where that has no content of its own: no
    /// object, or a symlink.
    pub fn is_in_place(&self, memory: Option<&FileState>) -> bool {
        match self.replacement {
            Replacement::Absent | Replacement::Symlink(_) => memory == Some(&self.state),
            Replacement::File(_) | Replacement::KeptObject { .. } => false,
        }
    }

    /// Digest of the content; zeros where there is none.
    pub fn digest(&self) -> Digest {
        self.state.digest().unwrap_or(Digest::ZERO)
    }

    /// Replaces the baseline to install by what a push makes of it. Returns the offset in the
    /// memory of scratch that is still to be appended from the entry, whatever its size.
    pub fn apply_push(&mut self, context: &Context, push: PushContent) -> Result<Option<u64>> {
        let mut parts = ContentParts(vec![ContentPart::Bytes(Arc::new(push.head))]);
        let offset = match push.scratch {
            KeptBytes::From(offset) => Some(offset),
            KeptBytes::Chosen(bytes) => {
                parts.0.push(ContentPart::Bytes(Arc::new(bytes)));
                None
            }
        };
        (self.state, _) = parts.measure(context)?;
        self.replacement = Replacement::File(parts);
        Ok(offset)
    }
}

/// Checks that a run was about the agent's current memory.
fn check_address(agent: &Agent, event: &RunEvent) -> Result<()> {
    let address = RecordedAddress::from_event(event);
    if !address.is_compatible_with(agent) {
        let message = format!(
            "it changed {address}, and the memory of {} is now at {}",
            agent.name,
            RecordedAddress::from_agent(agent)
        );
        return Err(Error::new(ErrorKind::Conflict, message)
            .with_hint(
                "an undo restores a memory only at its old path: change the config back, or copy the \
                 entry by hand",
            )
            .with_hint(
                "where several configurations share an archive, give each its own archive_dir, \
                 or their agents different names",
            ));
    }
    Ok(())
}

/// Returns the reason if retention has deleted an entry.
fn retired_entry_reason(
    context: &Context,
    records: &AgentRecords,
    entry: &WrittenEntry,
) -> Option<String> {
    let (time, run) = records.retired_by(context, &entry.path)?;
    Some(format!(
        "its entry {} was deleted by retention on {} (run {run})",
        entry.path.display(),
        time.format("%Y-%m-%d"),
    ))
}

/// Rebuilds the state of a memory before a run.
///
/// # Errors
/// An entry is missing or does not match the ledger; the undo then restores nothing.
pub(in crate::engine) fn rebuild_source(
    context: &Context,
    agent: &Agent,
    records: &AgentRecords,
) -> Result<InstallSource> {
    let event = &records.record.event;
    let cannot_undo =
        |error: Error| error.with_context(format!("run {} cannot be undone", event.run));
    check_address(agent, event).map_err(cannot_undo)?;
    // What the run displaced counts, which need not be what it captured before.
    if records.has_kept_object()
        && let Some(kept) = find_kept_object(context, agent, records)?
    {
        return Ok(kept);
    }
    let late_writes = late_writes(records);
    match &event.change.before {
        Some(FileState::Special(special)) if late_writes.is_empty() => {
            let error = || displaced_object_error(context, agent, records, special);
            removed_link(records).ok_or_else(error)
        }
        _ => rebuild_file(context, agent, records, &late_writes).map_err(cannot_undo),
    }
}

/// Returns the symlink that a run removed, if it removed one. The link itself has nothing but its
/// target, so a new one is the same.
fn removed_link(records: &AgentRecords) -> Option<InstallSource> {
    let event = &records.record.event;
    let target = event.removed_link_target()?;
    let mut recorded = records.event_and_repairs(event);
    let is_other = records.has_kept_object() || recorded.any(RunEvent::describes_other_object);
    let state = FileState::Special(SpecialFile::Symlink(target.to_vec()));
    (!is_other).then(|| InstallSource::new(Replacement::Symlink(target.to_vec()), state))
}

/// Returns the entries of files as a run displaced them, with their records: a write by a process
/// that kept such a file open is in the record of the run that settled it.
fn late_writes(records: &AgentRecords) -> Vec<(&RunEvent, &WrittenEntry)> {
    records
        .event_and_repairs(&records.record.event)
        .flat_map(|of| of.late_writes().map(move |written| (of, written)))
        .collect()
}

/// Rebuilds a memory that was absent or a file when it was displaced, from its entries.
fn rebuild_file(
    context: &Context,
    agent: &Agent,
    records: &AgentRecords,
    late_writes: &[(&RunEvent, &WrittenEntry)],
) -> Result<InstallSource> {
    let event = &records.record.event;
    let refuse = |reason: String| Err(Error::new(ErrorKind::Conflict, reason));
    let late: Vec<&WrittenEntry> = late_writes.iter().map(|(_, written)| *written).collect();
    let late = order_late_entries(&late);
    let before = match (&event.change.before, late.last()) {
        (Some(FileState::File { sha256, .. }), _) => *sha256,
        // A file was displaced that was not there, or could not be read, when the memory was
        // captured.
        (Some(_), Some(last)) => last.whole_content().0,
        (Some(_), None) => {
            return Ok(InstallSource::new(Replacement::Absent, FileState::Absent));
        }
        (None, _) => return refuse("the ledger does not record the state before it".to_string()),
    };
    // A late write belongs to the file that was displaced.
    let is_whole = late.first().is_some_and(|first| first.base.is_none());
    let entries = event.change.entry.iter().filter(|_| !is_whole);
    for entry in entries.chain(late.iter().copied()) {
        if let Some(reason) = retired_entry_reason(context, records, entry) {
            return refuse(reason);
        }
    }
    let candidates = if is_whole {
        vec![ContentParts(Vec::new())]
    } else {
        rebuild_candidates(context, agent, event)?
    };
    let expected = late.last().map_or(before, |last| last.whole_content().0);
    for mut parts in candidates {
        let late_parts = late.iter().map(|it| ContentPart::Entry(it.path.clone(), 0));
        parts.0.extend(late_parts);
        let (state, _) = parts.measure(context)?;
        if state.digest() == Some(expected) {
            // Its owner and mode are in the record that names it.
            let named_by = late_writes.last().map_or(event, |(of, _)| of);
            return Ok(InstallSource {
                replacement: Replacement::File(parts),
                state,
                attributes: context.ledger().event_attributes(named_by)?,
                baseline: boundary_version(event),
            });
        }
    }
    let message = "what was archived does not match the ledger";
    Err(Error::new(ErrorKind::Integrity, message).with_hint(format!(
        "`{}` names the entry; something changed it",
        context.command_line("log")
    )))
}

/// Rebuilds the files of an edit as they were before it; the caller sets [`PlannedFile::before`].
///
/// # Errors
/// An entry is missing or does not match the ledger.
pub(in crate::engine) fn rebuild_files(
    context: &Context,
    agent: &Agent,
    records: &AgentRecords,
) -> Result<Vec<PlannedFile>> {
    let event = &records.record.event;
    let cannot_undo =
        |error: Error| error.with_context(format!("run {} cannot be undone", event.run));
    check_address(agent, event).map_err(cannot_undo)?;
    let files = (0..event.files.len()).map(|file| rebuild_planned(context, records, file));
    files.collect::<Result<_>>().map_err(cannot_undo)
}

/// Rebuilds one file of an edit.
fn rebuild_planned(context: &Context, records: &AgentRecords, file: usize) -> Result<PlannedFile> {
    let change = &records.record.event.files[file];
    let refuse = |reason: String| Err(Error::new(ErrorKind::Conflict, reason));
    let Some(path) = &change.path else {
        return refuse("its record names no file".to_string());
    };
    let recorded = records.event_and_repairs(&records.record.event);
    let recorded: Vec<&FileChange> = recorded.filter_map(|it| it.files.get(file)).collect();
    if change.before.is_none() {
        return refuse("the ledger does not record the state before it".to_string());
    }
    let late: Vec<&WrittenEntry> = recorded.iter().flat_map(|it| it.late_writes()).collect();
    let late = order_late_entries(&late);
    // What the run displaced counts, which need not be what it captured before.
    let is_whole = late.first().is_some_and(|first| first.base.is_none());
    let first = change.entry.iter().filter(|_| !is_whole);
    let entries: Vec<&WrittenEntry> = first.chain(late.iter().copied()).collect();
    if let Some(reason) = entries
        .iter()
        .find_map(|entry| retired_entry_reason(context, records, entry))
    {
        return refuse(reason);
    }
    if let Some(name) = recorded.iter().find_map(|it| it.kept_names.first()) {
        return refuse(format!(
            "the run displaced an object that is not a file; it is kept as {name} beside {}",
            path.display()
        ));
    }
    let expected = late
        .last()
        .map(|last| last.whole_content().0)
        .or_else(|| change.before.as_ref().and_then(FileState::digest));
    let (content, after) = match expected {
        None => (None, FileState::Absent),
        Some(digest) => {
            let parts = entries
                .iter()
                .map(|it| ContentPart::Entry(it.path.clone(), 0));
            let parts = ContentParts(parts.collect());
            let (state, _) = parts.measure(context)?;
            if state.digest() != Some(digest) {
                let message = format!("the entries of {} do not match the ledger", path.display());
                return Err(Error::new(ErrorKind::Integrity, message));
            }
            (Some(parts), state)
        }
    };
    let attributes = recorded.iter().rev().find_map(|it| it.attributes.clone());
    Ok(PlannedFile {
        path: path.clone(),
        before: FileState::Absent,
        after,
        content,
        attributes,
        moved_from: None,
    })
}

/// Returns the version with which the boundary of the memory was found.
pub(in crate::engine) fn boundary_version(event: &RunEvent) -> Option<Digest> {
    let named = event.boundary?.rule.version();
    named.or(event.split_version).or(event.baseline)
}

/// Returns the memory as it was read, from its entry and the version that it was split by; where it
/// held nothing of the agent's, there may be two candidates.
fn rebuild_candidates(
    context: &Context,
    agent: &Agent,
    event: &RunEvent,
) -> Result<Vec<ContentParts>> {
    let version = || match event.split_version {
        Some(split) => context.baseline_versions().read_version(split).map(Some),
        None => Ok(None),
    };
    let refuse = |why| Err(Error::new(ErrorKind::Conflict, why));
    let Some(entry) = &event.change.entry else {
        return match version()? {
            // The version is the whole content.
            Some(bytes) => Ok(vec![
                ContentParts(vec![ContentPart::Bytes(operator_part_of(
                    &bytes, event, agent,
                ))]),
                ContentParts(vec![ContentPart::Bytes(bytes)]),
            ]),
            None => refuse("its record names no archive entry and no baseline version"),
        };
    };
    if entry.kind == EntryKind::FullBackup {
        return Ok(vec![ContentParts(vec![ContentPart::Entry(
            entry.path.clone(),
            0,
        )])]);
    }
    match version()? {
        Some(bytes) => Ok(vec![ContentParts(vec![
            ContentPart::Bytes(operator_part_of(&bytes, event, agent)),
            ContentPart::Entry(entry.path.clone(), scratch_header_length(context, entry)?),
        ])]),
        None => refuse("the ledger does not say which baseline it was split by"),
    }
}

/// Returns the late entries that hold a displaced file as it was settled, first to last. The memory
/// as it was read precedes the first one, unless that one is whole.
fn order_late_entries<'a>(lates: &[&'a WrittenEntry]) -> Vec<&'a WrittenEntry> {
    let entries = || lates.iter().copied();
    let mut found = Vec::new();
    let mut next = entries().next_back();
    while let Some(written) = next
        && found.len() < lates.len()
    {
        found.push(written);
        let base = written.base.map(|base| (base.sha256, base.size));
        next = entries().find(|it| Some(it.whole_content()) == base);
    }
    found.reverse();
    found
}

/// Returns the current state of a file beside an agent's memory.
fn read_sibling_state(context: &Context, agent: &Agent, name: &str) -> Result<FileState> {
    let directory =
        context.open_directory_at(agent, &agent.observed_path().with_file_name(name))?;
    read_file_state(directory.as_ref())
}

/// Returns the current state of the file that a directory was opened for.
pub(in crate::engine) fn read_file_state(directory: &dyn MemoryDirectory) -> Result<FileState> {
    Ok(match directory.stat_memory()? {
        MemoryObject::Absent => FileState::Absent,
        MemoryObject::Special(special) => FileState::Special(special),
        MemoryObject::File(_) => {
            let mut reading = MemoryAccumulator::default();
            directory.read_memory(&mut |bytes| {
                reading.push(bytes);
                Ok(())
            })?;
            FileState::from_reading(&mut reading)
        }
    })
}

/// Finds the object that a run displaced unread and kept; `None` if it is not there any more, or on
/// a host, where it cannot be put back.
fn find_kept_object(
    context: &Context,
    agent: &Agent,
    records: &AgentRecords,
) -> Result<Option<InstallSource>> {
    if agent.host().is_some() {
        return Ok(None);
    }
    let directory = context.open_directory(agent)?;
    let before = records.record.event.change.before.as_ref();
    for (name, id) in records.kept_objects() {
        let state = read_sibling_state(context, agent, name)?;
        if is_kept_object(directory.as_ref(), name, id, &state, before)? {
            let name = name.to_string();
            let replacement = Replacement::KeptObject { name, id };
            return Ok(Some(InstallSource::new(replacement, state)));
        }
    }
    Ok(None)
}

/// Returns why an undo cannot put back what a run displaced after it had captured `special`.
fn displaced_object_error(
    context: &Context,
    agent: &Agent,
    records: &AgentRecords,
    special: &SpecialFile,
) -> Error {
    let event = &records.record.event;
    // Only an object other than the captured one has a description of its own.
    let description = records
        .event_and_repairs(event)
        .flat_map(|of| &of.change.late_entries)
        .rfind(|written| written.kind == EntryKind::Special);
    let displaced = match description {
        None if event.change.method == Some(SwapMethod::Create) => {
            format!("it found {special}, which")
        }
        None => format!("it replaced {special}, which"),
        Some(written) => format!(
            "it found {special} and replaced another object, described in {}, which",
            written.path.display()
        ),
    };
    let is_replaced = description.is_some();
    let (fate, hint) = if records.has_kept_object() {
        kept_object_fate(context, agent, records, special)
    } else if !is_replaced && event.change.method == Some(SwapMethod::Create) {
        ("was gone when the memory was created".to_string(), None)
    } else if !is_replaced && *special == SpecialFile::Leased {
        let fate = "is not archived yet: another process still holds a lease on it";
        (fate.to_string(), None)
    } else if !is_replaced && *special == SpecialFile::Directory {
        // Its run was killed before it recorded the name.
        let fate = "was kept beside the memory under a name that begins with .shepherd-";
        let log = context.command_line("log");
        let hint = format!("the notes of that run in `{log}` name it; move it back by hand");
        (fate.to_string(), Some(hint))
    } else {
        let fate = "was described and not kept".to_string();
        let hint = match special {
            SpecialFile::Symlink(_) if agent.host().is_some() && !is_replaced => {
                Some(remote_link_hint(agent))
            }
            _ => None,
        };
        (fate, hint)
    };
    let message = format!("run {} cannot be undone: {displaced} {fate}", event.run);
    let error = Error::new(ErrorKind::Conflict, message);
    match hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

/// Returns how to put a symlink back on a host.
fn remote_link_hint(agent: &Agent) -> String {
    format!(
        "servers do not agree on the order of target and name in the SFTP request for a symlink: \
         create {} by hand with ln -s",
        RecordedAddress::from_agent(agent)
    )
}

/// Returns what became of the object that a run kept and that cannot be put back, and a hint.
fn kept_object_fate(
    context: &Context,
    agent: &Agent,
    records: &AgentRecords,
    special: &SpecialFile,
) -> (String, Option<String>) {
    let directory_path = agent.observed_path().parent().unwrap_or(Path::new("/"));
    let objects = records.kept_objects();
    let paths = objects.iter().map(|(name, _)| directory_path.join(name));
    let newest = paths.clone().next().unwrap_or_default();
    if let Some(host) = agent.host() {
        let hint = format!("move it back by hand, on {}", host.name);
        return (format!("is kept as {}", newest.display()), Some(hint));
    }
    let mut found = objects.iter().zip(paths).map(|((name, _), path)| {
        let state = read_sibling_state(context, agent, name);
        (path, state)
    });
    let Some((path, state)) = found.find(|(_, state)| !matches!(state, Ok(FileState::Absent)))
    else {
        let newest = newest.display();
        return (format!("was kept as {newest} and is no longer there"), None);
    };
    let other = match state {
        Ok(FileState::Special(other)) if other == *special => {
            format!("another object of that kind, {other}, stands now")
        }
        Ok(FileState::Special(other)) => format!("{other} stands now"),
        Ok(FileState::File { size, .. }) => format!("a file of {size} bytes stands now"),
        Ok(FileState::Absent) => "nothing stands now".to_string(),
        Err(error) => format!("it cannot be read: {error}"),
    };
    let hint = "look for it beside the memory, and move it back by hand";
    (
        format!("was kept as {}, where {other}", path.display()),
        Some(hint.to_string()),
    )
}

/// Returns whether the object at a name is the one that was kept there. An identity with a creation
/// time proves it; another one may belong to a later object, which then has to be of the kind that
/// was captured.
fn is_kept_object(
    directory: &dyn MemoryDirectory,
    name: &str,
    id: Option<ObjectId>,
    state: &FileState,
    before: Option<&FileState>,
) -> Result<bool> {
    let is_same_kind = match (state, before) {
        (FileState::Special(_), before) => before == Some(state),
        // Its other names are gone since then, so it can be read.
        (FileState::File { .. }, Some(FileState::Special(special))) => {
            matches!(special, SpecialFile::ForeignHardLink(_))
        }
        _ => false,
    };
    Ok(match id {
        None => is_same_kind,
        Some(id) => {
            (is_same_kind || id.created.is_some()) && directory.object_id(name)? == Some(id)
        }
    })
}

/// Returns the part of a version that was above the scratch. The separator may have been another
/// one then, so the recorded boundary decides.
fn operator_part_of(version: &[u8], event: &RunEvent, agent: &Agent) -> Arc<Vec<u8>> {
    let recorded = event.boundary.and_then(|it| version.get(..it.offset));
    Arc::new(match recorded {
        Some(above) => above.to_vec(),
        None => agent
            .cut_baseline(version.to_vec())
            .operator_part()
            .to_vec(),
    })
}

/// Length of the two header lines of a scratch entry.
fn scratch_header_length(context: &Context, entry: &WrittenEntry) -> Result<u64> {
    let mut head = Vec::new();
    let file = context.entries().open(&entry.path)?;
    let path = context.entries().location(&entry.path);
    file.take(4096)
        .read_to_end(&mut head)
        .map_err(|error| Error::from_io("read", &path, &error))?;
    match strip_scratch_header(&head) {
        Some(scratch) => Ok((head.len() - scratch.len()) as u64),
        None => Err(Error::new(
            ErrorKind::Integrity,
            format!("{} has no header line: it was changed", path.display()),
        )),
    }
}
