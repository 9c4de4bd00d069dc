//! What an undo puts back: the exact bytes from before a run, rebuilt from the
//! entry, the baseline versions and the ledger, and checked against the digest
//! that was recorded.

mod records;

use std::io::{Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Engine;
use super::address::RecordedAddress;
use super::judge::MemoryReader;
use super::ledger::{Event, FileState};
use super::memory::{Baseline, Rule};
use crate::archive::{EntryKind, Written, scratch_of};
use crate::config::Agent;
use crate::digest::Digest;
use crate::error::{Error, Kind, PathContext, Result};
use crate::transport::{Attributes, Folder, MemoryObject, ObjectId, Sink, SpecialFile};
pub(super) use records::{AgentRecords, UndoRecords};

/// A piece of the content to be installed.
#[derive(Clone)]
pub(super) enum ContentPart {
    Bytes(Arc<Vec<u8>>),
    Baseline(Arc<Baseline>),
    /// An entry below `archive_dir`, without its first bytes.
    Entry(PathBuf, u64),
}

/// Content to be installed, in pieces, so that a big one is never in memory.
#[derive(Clone)]
pub(super) struct ContentParts(pub Vec<ContentPart>);

impl ContentParts {
    /// Feeds all bytes to `sink`.
    pub fn feed(&self, engine: &Engine, sink: Sink<'_>) -> Result<()> {
        for part in &self.0 {
            match part {
                ContentPart::Bytes(bytes) => sink(bytes)?,
                ContentPart::Baseline(baseline) => sink(baseline.bytes())?,
                ContentPart::Entry(path, skip) => {
                    let mut file = engine.archive().open(path)?;
                    let failed =
                        |error| Error::io("read", &engine.archive().root().join(path), &error);
                    let mut skip = *skip;
                    let mut buffer = vec![0; 128 * 1024];
                    loop {
                        let count = file.read(&mut buffer).map_err(failed)?;
                        if count == 0 {
                            break;
                        }
                        let pass = skip.min(count as u64);
                        skip -= pass;
                        sink(&buffer[pass as usize..count])?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The same bytes, to be read.
    pub fn reader(&self, engine: &Engine) -> Result<Box<dyn Read>> {
        let mut all: Box<dyn Read> = Box::new(std::io::empty());
        for part in &self.0 {
            let next: Box<dyn Read> = match part {
                ContentPart::Bytes(bytes) => Box::new(Cursor::new(bytes.to_vec())),
                ContentPart::Baseline(baseline) => Box::new(Cursor::new(baseline.bytes().to_vec())),
                ContentPart::Entry(path, skip) => {
                    let mut file = engine.archive().open(path)?;
                    file.seek(SeekFrom::Start(*skip))
                        .path("read", &engine.archive().root().join(path))?;
                    Box::new(file)
                }
            };
            all = Box::new(all.chain(next));
        }
        Ok(all)
    }

    /// What these bytes are as a file, and whether they end with a whole line.
    pub fn measure(&self, engine: &Engine) -> Result<(FileState, bool)> {
        let mut reading = MemoryReader::default();
        let mut last = b'\n';
        self.feed(engine, &mut |bytes| {
            last = bytes.last().copied().unwrap_or(last);
            reading.take(bytes, 0);
            Ok(())
        })?;
        let standing = FileState::File {
            sha256: reading.digest(),
            size: reading.size,
            lines: reading.count_lines(),
        };
        Ok((standing, last == b'\n'))
    }
}

/// What takes the memory's place.
pub(super) enum Replacement {
    /// Nothing: the memory is removed.
    Nothing,
    /// A new file.
    File(ContentParts),
    /// What an earlier run displaced and kept beside the memory.
    Kept {
        /// The name that it is kept under.
        name: String,
        /// Which object it is; none in records of earlier versions.
        id: Option<ObjectId>,
    },
}

/// What stood there before a run.
pub(super) struct UndoSource {
    /// What is put there.
    pub replacement: Replacement,
    /// The same for the ledger.
    pub standing: FileState,
    /// Its owner, mode and extended attributes.
    pub attributes: Option<Attributes>,
    /// The version that its boundary goes with.
    pub version: Option<Digest>,
}

impl UndoSource {
    /// Digest of the content; zeros when there is none.
    pub fn digest(&self) -> Digest {
        self.standing.digest().unwrap_or(Digest::ZERO)
    }
}

/// That a run was about the memory that an agent has now.
fn is_about(agent: &Agent, event: &Event) -> Result<()> {
    let address = RecordedAddress::of_event(event);
    if !address.fits(agent) {
        let message = format!(
            "run {} cannot be undone: it was about {address}, and the memory of {} is at {} now",
            event.run,
            agent.name,
            RecordedAddress::of_agent(agent)
        );
        return Err(Error::new(Kind::Conflict, message)
            .hint(
                "a memory is only put back where it was: change the config back, or copy the \
                 entry by hand",
            )
            .hint(
                "where several configurations share an archive, give each its own archive_dir, \
                 or their agents different names",
            ));
    }
    Ok(())
}

/// That retention has deleted an entry, if it has.
fn retired(engine: &Engine, records: &AgentRecords, entry: &Written) -> Option<String> {
    let (time, run) = records.retired(engine, &entry.path)?;
    Some(format!(
        "its entry {} was deleted by retention on {} (run {run})",
        entry.path.display(),
        time.format("%Y-%m-%d"),
    ))
}

/// Rebuilds what stood there before a run.
///
/// # Errors
/// When an entry is gone or is not what the ledger says of it: then nothing is
/// put back.
pub(super) fn source(engine: &Engine, agent: &Agent, records: &AgentRecords) -> Result<UndoSource> {
    let event = &records.record.what;
    let refuse = |why: String| {
        Err(Error::new(
            Kind::Conflict,
            format!("run {} cannot be undone: {why}", event.run),
        ))
    };
    is_about(agent, event)?;
    let because = |error: Error| error.context(format!("run {} cannot be undone", event.run));
    // What a writer that kept the displaced file open added is in the record of
    // the run that settled it.
    let lates: Vec<(&Event, &Written)> = records
        .with_repairs(event)
        .flat_map(|of| of.late.iter().map(move |written| (of, written)))
        .filter(|(_, written)| matches!(written.kind, EntryKind::Late | EntryKind::Appended))
        .collect();
    let late = late_entries(&lates);
    // Its owner and mode are in the record that names it.
    let attributes = lates.last().map_or(event, |(of, _)| of);
    let attributes = engine.attributes_of(attributes).map_err(because)?;
    let before = match &event.before {
        Some(FileState::Absent) => {
            return Ok(UndoSource {
                replacement: Replacement::Nothing,
                standing: FileState::Absent,
                attributes: None,
                version: None,
            });
        }
        Some(FileState::File { sha256, .. }) => *sha256,
        // It was displaced unread, and archived when the lease was over.
        Some(FileState::Odd(SpecialFile::Leased)) => match late.last() {
            Some(last) => last.whole().0,
            None => return refuse("somebody has had a lease on it ever since".to_string()),
        },
        Some(FileState::Odd(odd)) => return kept(engine, agent, records, odd),
        None => return refuse("the ledger does not say what stood there before".to_string()),
    };
    let version = match event.boundary.map(|boundary| boundary.rule) {
        Some(Rule::Behind(version) | Rule::Aligned(version)) => Some(version),
        Some(Rule::Intact) => event.split.or(event.baseline),
        None => None,
    };
    // What a late writer added belongs to the file that was displaced.
    let is_whole = late.first().is_some_and(|first| first.base.is_none());
    let entries = event.entry.iter().filter(|_| !is_whole);
    for entry in entries.chain(late.iter().copied()) {
        if let Some(why) = retired(engine, records, entry) {
            return refuse(why);
        }
    }
    let mut tried = match is_whole {
        true => vec![ContentParts(Vec::new())],
        false => as_read(engine, agent, event).map_err(because)?,
    };
    let behind = late.iter().map(|it| ContentPart::Entry(it.path.clone(), 0));
    let behind: Vec<ContentPart> = behind.collect();
    let expected = late.last().map_or(before, |last| last.whole().0);
    for parts in &mut tried {
        parts.0.extend(behind.iter().cloned());
    }
    for parts in tried {
        let (standing, _) = parts.measure(engine).map_err(because)?;
        if standing.digest() == Some(expected) {
            return Ok(UndoSource {
                replacement: Replacement::File(parts),
                standing,
                attributes,
                version,
            });
        }
    }
    Err(Error::new(
        Kind::Integrity,
        format!(
            "run {} cannot be undone: what was archived does not match the ledger",
            event.run
        ),
    )
    .hint(format!(
        "`{}` names the entry; something changed it",
        engine.command_line("log")
    )))
}

/// The memory as it was read, from its entry and the version that it was split by;
/// where nothing of the agent's was in it, it may be one of two.
fn as_read(engine: &Engine, agent: &Agent, event: &Event) -> Result<Vec<ContentParts>> {
    let version = || match event.split {
        Some(split) => engine.versions.get(split).map(Some),
        None => Ok(None),
    };
    let refuse = |why| Err(Error::new(Kind::Conflict, why));
    let Some(entry) = &event.entry else {
        return match version()? {
            // The version says it all.
            Some(bytes) => Ok(vec![
                ContentParts(vec![ContentPart::Bytes(above(&bytes, event, agent))]),
                ContentParts(vec![ContentPart::Bytes(bytes)]),
            ]),
            None => refuse("it archived nothing"),
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
            ContentPart::Bytes(above(&bytes, event, agent)),
            ContentPart::Entry(entry.path.clone(), header_length(engine, entry)?),
        ])]),
        None => refuse("the ledger does not say which baseline it was split by"),
    }
}

/// The late entries that hold a displaced file as it was settled, first to last. Before
/// the first one stands the memory as it was read, unless that is whole.
fn late_entries<'a>(lates: &[(&'a Event, &'a Written)]) -> Vec<&'a Written> {
    let entries = || lates.iter().map(|(_, written)| *written);
    let mut found = Vec::new();
    let mut next = entries().next_back();
    while let Some(written) = next
        && found.len() < lates.len()
    {
        found.push(written);
        let base = written.base.map(|base| (base.sha256, base.size));
        next = entries().find(|it| Some(it.whole()) == base);
    }
    found.reverse();
    found
}

/// What stands beside an agent's memory under this name now.
fn standing_of(engine: &Engine, agent: &Agent, name: &str) -> Result<FileState> {
    let folder = engine.open_at(agent, &agent.place.memory().with_file_name(name))?;
    Ok(match folder.look()? {
        MemoryObject::Absent => FileState::Absent,
        MemoryObject::Odd(odd) => FileState::Odd(odd),
        MemoryObject::File(_) => {
            let mut reading = MemoryReader::default();
            folder.read(&mut |bytes| {
                reading.take(bytes, 0);
                Ok(())
            })?;
            FileState::File {
                sha256: reading.digest(),
                size: reading.size,
                lines: reading.count_lines(),
            }
        }
    })
}

/// Finds what stood there before a run and was displaced unread.
fn kept(
    engine: &Engine,
    agent: &Agent,
    records: &AgentRecords,
    odd: &SpecialFile,
) -> Result<UndoSource> {
    let event = &records.record.what;
    let refuse = |why: &str, hint: &str| {
        let message = format!(
            "run {} cannot be undone: before it stood {odd}, which {why}",
            event.run
        );
        let error = Error::new(Kind::Conflict, message);
        Err(if hint.is_empty() {
            error
        } else {
            error.hint(hint)
        })
    };
    let directory = agent.place.memory().parent().unwrap_or(Path::new("/"));
    let objects = records.kept_objects();
    let Some((newest, _)) = objects.first() else {
        return match odd {
            // Earlier versions did not record its name.
            SpecialFile::Directory => refuse(
                "was kept beside the memory under a name that begins with .shepherd-",
                &format!(
                    "the notes of that run in `{}` name it; move it back by hand",
                    engine.command_line("log")
                ),
            ),
            _ => refuse("was described and not kept", ""),
        };
    };
    let path = directory.join(newest);
    let path = path.display();
    if let Some(host) = agent.place.host() {
        let hint = format!("move it back by hand, on {}", host.name);
        return refuse(&format!("is kept as {path}"), &hint);
    }
    let folder = engine.open(agent)?;
    let mut others = Vec::new();
    for (name, id) in objects {
        let standing = standing_of(engine, agent, name)?;
        if standing == FileState::Absent {
            continue;
        }
        if is_kept(folder.as_ref(), name, id, &standing, odd)? {
            return Ok(UndoSource {
                replacement: Replacement::Kept {
                    name: name.to_string(),
                    id,
                },
                standing,
                attributes: None,
                version: None,
            });
        }
        others.push((name, standing));
    }
    let Some((name, standing)) = others.first() else {
        return refuse(&format!("was kept as {path} and is no longer there"), "");
    };
    let path = directory.join(name);
    let other = match standing {
        FileState::Odd(other) if other == odd => format!("another object of that kind, {other},"),
        FileState::Odd(other) => other.to_string(),
        FileState::File { size, .. } => format!("a file of {size} bytes"),
        FileState::Absent => "nothing".to_string(),
    };
    refuse(
        &format!("was kept as {}, where {other} stands now", path.display()),
        "look for it beside the memory, and move it back by hand",
    )
}

/// Whether the object at a name is the one that was kept there.
fn is_kept(
    folder: &dyn Folder,
    name: &str,
    id: Option<ObjectId>,
    standing: &FileState,
    odd: &SpecialFile,
) -> Result<bool> {
    let is_same_kind = match (standing, odd) {
        (FileState::Odd(found), odd) => found == odd,
        // Its other names have gone since, so it can be read.
        (FileState::File { .. }, odd) => matches!(odd, SpecialFile::ForeignLink(_)),
        (FileState::Absent, _) => false,
    };
    Ok(is_same_kind && (id.is_none() || folder.object_id(name)? == id))
}

/// The part of a version that stood above the scratch. The separator may have
/// been another one then, so what was recorded counts.
fn above(version: &[u8], event: &Event, agent: &Agent) -> Arc<Vec<u8>> {
    let recorded = event.boundary.and_then(|it| version.get(..it.offset));
    Arc::new(match recorded {
        Some(above) => above.to_vec(),
        None => Baseline::new(version.to_vec(), &agent.separator)
            .operator_part()
            .to_vec(),
    })
}

/// Length of the two header lines of a scratch entry.
fn header_length(engine: &Engine, entry: &Written) -> Result<u64> {
    let mut head = Vec::new();
    let file = engine.archive().open(&entry.path)?;
    let path = engine.archive().root().join(&entry.path);
    file.take(4096)
        .read_to_end(&mut head)
        .map_err(|error| Error::io("read", &path, &error))?;
    match scratch_of(&head) {
        Some(scratch) => Ok((head.len() - scratch.len()) as u64),
        None => Err(Error::new(
            Kind::Integrity,
            format!("{} has no header line: it was changed", path.display()),
        )),
    }
}
