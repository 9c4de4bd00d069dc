//! The file of the last known states, `states.known`, and what this process knows of it.
//!
//! A line is an agent's name, a tab and its state as JSON: null once it is not known any more. A line
//! without a name says how much of the log is covered; the first one also says how many bytes behind
//! it are in the order of names. Other lines are appended behind these, and the last line of an agent
//! counts. The lines of an agent are found by bisection and in the appended ones, so a run of a few
//! agents costs nothing that grows with the number of others.
//!
//! A line that cannot be read counts as absent, and so does the last one without a line feed.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use memchr::{memchr, memchr_iter, memmem, memrchr};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::base::clock::{Clock, MAX_CLOCK_LEAD};
use crate::base::durable;
use crate::config::is_agent_name;
use crate::store::observations::KnownState;

/// Maximum size of the file: that of a hundred thousand agents. A larger one counts as absent.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Size of the appended lines from which the file is written as a whole: hundreds of changes.
const MAX_APPENDED_BYTES: u64 = 64 << 10;

/// Size of the sorted lines that are searched without further bisection.
const MAX_SCANNED_BYTES: u64 = 32 << 10;

/// Number of bytes in which bisection looks for the beginning of a line and the name in it. Names
/// have at most 200 bytes, and lines 100 more.
const PROBE_BYTES: usize = 1 << 10;

/// Number of agents up to which each is looked up for itself. With one more, the whole file is parsed.
const MAX_LOOKUPS: usize = 16;

/// What a line without a name says.
#[derive(Serialize, Deserialize)]
struct FileLine {
    /// Number of bytes of the log that are taken into account.
    #[serde(rename = "log")]
    log_bytes: u64,
    /// Number of bytes behind this line that are in the order of names. Only in the first line.
    #[serde(rename = "sorted", default, skip_serializing_if = "Option::is_none")]
    sorted_bytes: Option<u64>,
}

/// Exposes changes of the file: device, inode, size, and change time in seconds and nanoseconds.
type FileStamp = (u64, u64, u64, i64, i64);

fn stamp_of(meta: &Metadata) -> FileStamp {
    (
        meta.dev(),
        meta.ino(),
        meta.len(),
        meta.ctime(),
        meta.ctime_nsec(),
    )
}

/// The file as it was when it was opened.
struct KnownStatesFile {
    file: File,
    stamp: FileStamp,
    /// Where the sorted lines are.
    sorted: Range<u64>,
    /// The complete lines behind them, and a line feed before the first.
    appended: Vec<u8>,
    /// Size of all that is behind the sorted lines.
    appended_bytes: u64,
    /// Whether the file ends within a line: a process was killed, or is writing.
    is_torn: bool,
    log_bytes: u64,
}

impl KnownStatesFile {
    fn open(path: &Path) -> io::Result<KnownStatesFile> {
        let file = durable::open_own_file(path, OpenOptions::new().read(true))?;
        let stamp = stamp_of(&file.metadata()?);
        let (_, _, size, _, _) = stamp;
        if size > MAX_FILE_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let first = read_lines(&file, 0..size.min(PROBE_BYTES as u64))?;
        // Without the first line, or the bytes that it promises, the order of lines is not known.
        let (sorted, sorted_log_bytes) = parse_first_line(&first)
            .filter(|(sorted, _)| sorted.end <= size)
            .unwrap_or_default();
        let mut appended = read_lines(&file, sorted.end..size)?;
        let length = memrchr(b'\n', &appended).map_or(0, |last| last + 1);
        let is_torn = length < appended.len();
        appended.truncate(length);
        let log_bytes =
            find_last(&appended, "").map_or(sorted_log_bytes, |it: FileLine| it.log_bytes);
        Ok(KnownStatesFile {
            file,
            stamp,
            appended_bytes: size - sorted.end,
            sorted,
            appended,
            is_torn,
            log_bytes,
        })
    }

    /// Returns the state of an agent.
    fn look_up(&self, agent: &str) -> io::Result<Option<KnownState>> {
        if let Some(known) = find_last(&self.appended, agent) {
            return Ok(known);
        }
        let lines = read_lines(&self.file, self.bisect(agent)?)?;
        Ok(find_last::<Option<KnownState>>(&lines, agent).flatten())
    }

    /// Returns the part of the sorted lines that has the line of an agent, if there is one.
    fn bisect(&self, agent: &str) -> io::Result<Range<u64>> {
        let mut lines = self.sorted.clone();
        let mut probe = [0; PROBE_BYTES];
        while lines.end - lines.start > MAX_SCANNED_BYTES {
            let middle = lines.start.midpoint(lines.end);
            self.file.read_exact_at(&mut probe, middle)?;
            // A damaged line does not say on which side the agent is.
            let Some((offset, name)) = find_name(&probe) else {
                break;
            };
            let line = middle + offset as u64;
            if name <= agent {
                lines.start = line;
            } else {
                lines.end = line;
            }
        }
        Ok(lines)
    }

    /// Returns the states of all agents.
    fn read_all(&self) -> io::Result<HashMap<String, Option<KnownState>>> {
        let sorted = read_lines(&self.file, self.sorted.clone())?;
        let mut all = HashMap::new();
        for text in [&sorted, &self.appended] {
            let mut start = 0;
            for end in memchr_iter(b'\n', text) {
                let line = &text[std::mem::replace(&mut start, end + 1)..end];
                all.extend(parse_line(line).map(|(name, known)| (name.to_string(), known)));
            }
        }
        Ok(all)
    }
}

/// Reads a part of the file. The result begins with a line feed, so that each line is between two.
fn read_lines(file: &File, part: Range<u64>) -> io::Result<Vec<u8>> {
    let length = part.end - part.start;
    let mut text = vec![0; 1 + length as usize];
    text[0] = b'\n';
    file.read_exact_at(&mut text[1..], part.start)?;
    Ok(text)
}

/// Returns where the sorted lines are, and the number of bytes of the log that they cover.
fn parse_first_line(text: &[u8]) -> Option<(Range<u64>, u64)> {
    let line = text.strip_prefix(b"\n\t")?;
    let line = &line[..memchr(b'\n', line)?];
    let file_line: FileLine = serde_json::from_slice(line).ok()?;
    // The tab and the line feed.
    let start = line.len() as u64 + 2;
    let end = start.checked_add(file_line.sorted_bytes?)?;
    Some((start..end, file_line.log_bytes))
}

/// Returns the name in the first line that begins in a part of the file, and where it begins; none if
/// it is not an agent's.
fn find_name(part: &[u8]) -> Option<(usize, &str)> {
    let start = memchr(b'\n', part)? + 1;
    let line = &part[start..];
    let name = str::from_utf8(&line[..memchr(b'\t', line)?]).ok()?;
    is_agent_name(name).then_some((start, name))
}

/// Returns what the last line of a name says that can be read, of lines between two line feeds.
fn find_last<T: DeserializeOwned>(text: &[u8], name: &str) -> Option<T> {
    let key = format!("\n{name}\t");
    let found: Vec<usize> = memmem::find_iter(text, &key).collect();
    found.into_iter().rev().find_map(|at| {
        let line = &text[at + key.len()..];
        serde_json::from_slice(&line[..memchr(b'\n', line)?]).ok()
    })
}

/// Returns an agent's name and state.
fn parse_line(line: &[u8]) -> Option<(&str, Option<KnownState>)> {
    let (name, known) = line.split_at(memchr(b'\t', line)?);
    let name = str::from_utf8(name).ok()?;
    Some((name, serde_json::from_slice(&known[1..]).ok()?))
}

/// Appends a line to a text.
fn push_line(text: &mut Vec<u8>, name: &str, value: &impl Serialize) -> serde_json::Result<()> {
    text.extend_from_slice(name.as_bytes());
    text.push(b'\t');
    serde_json::to_writer(&mut *text, value)?;
    text.push(b'\n');
    Ok(())
}

/// States of agents that changed; none for an agent whose state is not known any more.
pub type ChangedStates = BTreeMap<String, Option<KnownState>>;

/// What this process knows of the file.
#[derive(Default)]
pub struct KnownStates {
    /// That of the file; none without one.
    stamp: Option<FileStamp>,
    /// None if it cannot be read.
    file: Option<KnownStatesFile>,
    /// The agents that were looked up.
    agents: HashMap<String, Option<KnownState>>,
    /// Whether these are all of the file.
    has_all: bool,
}

impl KnownStates {
    /// Opens the file if it has changed.
    pub fn refresh(&mut self, path: &Path) {
        let stamp = std::fs::symlink_metadata(path).ok();
        let stamp = stamp.as_ref().map(stamp_of);
        if stamp.is_some() && self.stamp == stamp {
            return;
        }
        let file = KnownStatesFile::open(path).ok();
        *self = KnownStates {
            stamp: file.as_ref().map(|file| file.stamp).or(stamp),
            file,
            ..KnownStates::default()
        };
    }

    /// Number of bytes of the log that the file covers.
    pub fn log_bytes(&self) -> u64 {
        self.file.as_ref().map_or(0, |file| file.log_bytes)
    }

    /// Returns the last known state of an agent. One that is known since a time in the future, which
    /// a clock ahead has written, gets a time that has passed: no observation would be newer until
    /// then.
    pub fn get(&mut self, agent: &str, clock: &dyn Clock) -> Option<KnownState> {
        if let Some(known) = self.agents.get(agent) {
            return *known;
        }
        let file = self.file.as_ref().filter(|_| !self.has_all)?;
        if self.agents.len() >= MAX_LOOKUPS {
            self.load_all(clock);
            return self.agents.get(agent).copied().flatten();
        }
        let mut known = file.look_up(agent).ok().flatten();
        correct_times(known.as_mut(), clock);
        self.agents.insert(agent.to_string(), known);
        known
    }

    fn load_all(&mut self, clock: &dyn Clock) {
        if let Some(file) = self.file.as_ref().filter(|_| !self.has_all) {
            self.agents = file.read_all().unwrap_or_default();
            let times = self.agents.values_mut().map(Option::as_mut);
            correct_times(times.flatten(), clock);
            self.has_all = true;
        }
    }

    /// Returns the lines to append for changed states and a log of this size; none if the file is to
    /// be written as a whole.
    ///
    /// # Errors
    /// None that a state can cause.
    pub fn lines_to_append(
        &self,
        changed: &ChangedStates,
        log_bytes: u64,
    ) -> serde_json::Result<Option<Vec<u8>>> {
        let Some(file) = &self.file else {
            return Ok(None);
        };
        let mut text = Vec::new();
        if file.is_torn {
            text.push(b'\n');
        }
        for (agent, known) in changed {
            push_line(&mut text, agent, known)?;
        }
        // The last line, because a write that ends too early must not cover the log.
        if log_bytes != file.log_bytes {
            let line = FileLine {
                log_bytes,
                sorted_bytes: None,
            };
            push_line(&mut text, "", &line)?;
        }
        let appended_bytes = file.appended_bytes + text.len() as u64;
        Ok((appended_bytes <= MAX_APPENDED_BYTES).then_some(text))
    }

    /// Returns the content of a new file with the changed states and all others.
    ///
    /// # Errors
    /// None that a state can cause.
    pub fn sorted_text(
        &mut self,
        changed: &ChangedStates,
        log_bytes: u64,
        clock: &dyn Clock,
    ) -> serde_json::Result<Vec<u8>> {
        self.load_all(clock);
        let changed = changed.iter().map(|(agent, known)| (agent, *known));
        let all = self.agents.iter().map(|(agent, known)| (agent, *known));
        let sorted: BTreeMap<&String, Option<KnownState>> = all.chain(changed).collect();
        let mut lines = Vec::new();
        for (agent, known) in sorted {
            if known.is_some() {
                push_line(&mut lines, agent, &known)?;
            }
        }
        let first = FileLine {
            log_bytes,
            sorted_bytes: Some(lines.len() as u64),
        };
        let mut text = Vec::new();
        push_line(&mut text, "", &first)?;
        text.append(&mut lines);
        Ok(text)
    }
}

/// Moves times in the future to the past.
fn correct_times<'s>(states: impl IntoIterator<Item = &'s mut KnownState>, clock: &dyn Clock) {
    let (now, zone) = (clock.now(), clock.zone());
    for known in states {
        known.since = zone.at(known.since);
        if known.since > now + MAX_CLOCK_LEAD {
            // Observations of the last moments count as newer.
            known.since = now - MAX_CLOCK_LEAD;
        }
    }
}
