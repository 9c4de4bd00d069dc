//! The index of contents: what earlier commands found in the memories of this machine, so that a
//! command over a large fleet reads only the memories that have changed since.
//!
//! `<archive_dir>/.shepherd/content.index` can be deleted at any time. Its first line is the digest
//! of the rest, the second is an [`IndexHeader`], and each further line is an agent's name as JSON, a
//! tab, and its [`IndexedContent`]. It serves what is shown: plans and runs read memories themselves.
//!
//! A content counts only if the memory still has the stamp that it had before it was read, and that
//! stamp was old enough by then that no later change could have left it as it was. A user counts only
//! on a file of their own that no other user can write, because others may be able to read other
//! memories. In any doubt a memory is read again.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use chrono::{DateTime, FixedOffset};
use memchr::memchr_iter;
use rustix::fs::FileType;
use serde::{Deserialize, Serialize};

use super::Engine;
use super::classify::ClassifiedContent;
use super::content_cache::{ContentKey, is_settled};
use super::lock;
use crate::archive::Archive;
use crate::config::Agent;
use crate::digest::Digest;
use crate::durable;
use crate::sys;
use crate::transport::Stamp;

/// The index file in the program's directory, and its name while it is written.
const INDEX_FILE_NAME: &str = "content.index";
const INDEX_STAGING_NAME: &str = "content.index.new";

/// The format number. It also counts changes of how memories are classified and scanned: an index
/// of another format is ignored.
const INDEX_FORMAT: u32 = 1;

/// Fewer agents than this are read as fast as the index.
const MIN_INDEXED_AGENTS: usize = 64;

/// The index is written once one in this many agents has a content that it lacks: its size grows
/// with the agents.
const AGENTS_PER_UNINDEXED_CONTENT: usize = 32;

/// Size limit of the index in bytes.
const MAX_INDEX_BYTES: u64 = 256 << 20;

/// A memory that is a file with one name: device and stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProbedFile {
    device: u64,
    pub stamp: Stamp,
}

/// The files of memories at a moment, by agent.
#[derive(Default)]
pub(super) struct ProbedFiles<'a> {
    files: HashMap<&'a str, ProbedFile>,
    /// Before the first of them was probed.
    began: DateTime<FixedOffset>,
    index: SharedIndex,
}

/// The index, from its first use on.
pub(super) type SharedIndex = Arc<OnceLock<ContentIndex>>;

impl ProbedFiles<'_> {
    pub fn get(&self, agent: &str) -> Option<ProbedFile> {
        self.files.get(agent).copied()
    }
}

/// The second line of the file.
#[derive(PartialEq, Serialize, Deserialize)]
struct IndexHeader {
    #[serde(rename = "form")]
    format: u32,
    /// Version of the program, whose rules the scan used.
    program: String,
}

impl IndexHeader {
    fn current() -> IndexHeader {
        IndexHeader {
            format: INDEX_FORMAT,
            program: env!("CARGO_PKG_VERSION").to_string(),
        }
    }
}

/// A content, and what it depends on.
#[derive(Serialize, Deserialize)]
struct IndexedContent {
    device: u64,
    key: ContentKey,
    /// Digest of the settings that it depends on.
    settings: Digest,
    classified: ClassifiedContent,
}

/// The index as a command found it.
#[derive(Default)]
pub(super) struct ContentIndex {
    text: Vec<u8>,
    /// The ranges of the agents' contents.
    contents: HashMap<String, Range<usize>>,
    /// Digest of the settings that all contents depend on.
    settings: Option<Digest>,
}

impl ContentIndex {
    /// Reads the index of an archive; None if there is no valid one.
    fn read(archive: &Archive) -> Option<ContentIndex> {
        let path = archive.program_path(INDEX_FILE_NAME);
        let file = durable::open_own_file(&path, OpenOptions::new().read(true)).ok()?;
        let meta = file.metadata().ok()?;
        let is_own = meta.uid() == rustix::process::geteuid().as_raw();
        if !is_own || meta.mode() & 0o022 != 0 || meta.len() > MAX_INDEX_BYTES {
            return None;
        }
        let mut text = Vec::with_capacity(meta.len() as usize + 1);
        file.take(MAX_INDEX_BYTES).read_to_end(&mut text).ok()?;
        let mut ends = memchr_iter(b'\n', &text);
        let first = ends.next()?;
        let digest: Digest = str::from_utf8(&text[..first]).ok()?.parse().ok()?;
        if Digest::of(&text[first + 1..]) != digest {
            return None;
        }
        let second = ends.next()?;
        let header: IndexHeader = serde_json::from_slice(&text[first + 1..second]).ok()?;
        if header != IndexHeader::current() {
            return None;
        }
        let mut contents = HashMap::new();
        let mut start = second + 1;
        for end in ends {
            let tab = start + memchr::memchr(b'\t', &text[start..end])?;
            let name = serde_json::from_slice(&text[start..tab]).ok()?;
            contents.insert(name, tab + 1..end);
            start = end + 1;
        }
        Some(ContentIndex {
            text,
            contents,
            settings: None,
        })
    }

    fn find(&self, agent: &str) -> Option<IndexedContent> {
        let range = self.contents.get(agent)?.clone();
        serde_json::from_slice(&self.text[range]).ok()
    }
}

/// Reads what identifies the content of a memory without opening it; None unless it is a file with
/// one name.
fn probe_file(memory: &Path) -> Option<ProbedFile> {
    let stat = durable::stat_no_symlinks(memory).ok()?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    // Whether a file with more names may be read depends on its owner and on its directory.
    (is_file && stat.st_nlink == 1).then(|| ProbedFile {
        device: stat.st_dev,
        stamp: Stamp::from_stat(&stat),
    })
}

impl Engine {
    /// Probes the memories of agents of this machine; none of a small fleet. Waits at most `timeout` for
    /// a file system that may hang; its memories are then not among the result.
    pub(super) fn probe_indexed_files<'a>(
        &self,
        agents: &[&'a Agent],
        index: &SharedIndex,
        timeout: Duration,
    ) -> ProbedFiles<'a> {
        let local = agents.iter().filter(|it| it.location.host().is_none());
        let local: Vec<&&Agent> = local.collect();
        if local.len() < MIN_INDEXED_AGENTS {
            return ProbedFiles::default();
        }
        let began = self.clock().now();
        let paths = local.iter().map(|it| it.location.memory().to_path_buf());
        let found = self
            .file_systems()
            .inspect_paths(paths.collect(), timeout, || probe_file);
        let named = local.into_iter().zip(found);
        let files = named.filter_map(|(agent, file)| Some((agent.name.as_str(), file?)));
        ProbedFiles {
            files: files.collect(),
            began,
            index: Arc::clone(index),
        }
    }

    fn content_index<'p>(&self, probed: &'p ProbedFiles<'_>) -> &'p ContentIndex {
        probed.index.get_or_init(|| ContentIndex {
            settings: Some(self.digest_common_settings()),
            ..ContentIndex::read(&self.archive).unwrap_or_default()
        })
    }

    /// Returns the content of a probed memory as this process or an earlier one found it, if nothing
    /// that it depends on has changed.
    pub(super) fn find_indexed_content(
        &self,
        agent: &Agent,
        probed: &ProbedFiles<'_>,
        file: ProbedFile,
        key: ContentKey,
    ) -> Option<ClassifiedContent> {
        if let Some(content) = self.content_cache.get(&agent.name, &key) {
            return Some(content);
        }
        let index = self.content_index(probed);
        let found = index.find(&agent.name)?;
        let is_same = found.device == file.device
            && found.key == key
            && found.settings == digest_settings(index.settings, agent);
        if !is_same {
            return None;
        }
        let content = found.classified.clone();
        self.content_cache
            .store_indexed(&agent.name, key, found.classified, self.clock());
        Some(content)
    }

    /// Writes the index if many of the probed memories have a content that it lacks. A failed write
    /// is ignored; it only costs time later.
    pub(super) fn write_content_index(&self, probed: &ProbedFiles<'_>) {
        let agents = self.config().agents.iter();
        let new: HashMap<&str, IndexedContent> = agents
            .filter_map(|agent| Some((agent.name.as_str(), self.new_content(agent, probed)?)))
            .collect();
        if new.is_empty() || new.len() * AGENTS_PER_UNINDEXED_CONTENT < probed.files.len() {
            return;
        }
        let index = self.content_index(probed);
        let text = self.index_text(index, &new);
        match text.and_then(|text| replace_index(&self.archive, &text)) {
            Ok(()) => self.content_cache.set_indexed(new.into_keys()),
            Err(error) => tracing::debug!(%error, "the index of contents is not written"),
        }
    }

    /// Returns the content of a memory that this process has read, and that the index may have.
    fn new_content(&self, agent: &Agent, probed: &ProbedFiles<'_>) -> Option<IndexedContent> {
        let file = probed.get(&agent.name)?;
        let (key, classified) = self.content_cache.unindexed_content(&agent.name)?;
        let counts = key.stamp == file.stamp && is_settled(&file.stamp, probed.began);
        let common = self.content_index(probed).settings;
        counts.then(|| IndexedContent {
            device: file.device,
            key,
            settings: digest_settings(common, agent),
            classified,
        })
    }

    /// Returns the text of an index with new contents, and with those of other agents as they were.
    fn index_text(
        &self,
        index: &ContentIndex,
        new: &HashMap<&str, IndexedContent>,
    ) -> io::Result<Vec<u8>> {
        let mut body = Vec::with_capacity(index.text.len());
        serde_json::to_writer(&mut body, &IndexHeader::current())?;
        body.push(b'\n');
        for agent in &self.config().agents {
            let new = new.get(agent.name.as_str());
            let known = index.contents.get(&agent.name).filter(|_| new.is_none());
            if new.is_none() && known.is_none() {
                continue;
            }
            serde_json::to_writer(&mut body, &agent.name)?;
            body.push(b'\t');
            if let Some(new) = new {
                serde_json::to_writer(&mut body, new)?;
            }
            body.extend_from_slice(known.map_or(&[], |range| &index.text[range.clone()]));
            body.push(b'\n');
        }
        let mut text = format!("{}\n", Digest::of(&body)).into_bytes();
        text.append(&mut body);
        Ok(text)
    }

    /// Returns the digest of the settings that the contents of all memories depend on.
    fn digest_common_settings(&self) -> Digest {
        let decisions = self.scan_decisions();
        // An allowance ends with a day.
        let today = (!decisions.allowances.is_empty()).then(|| self.clock().now().date_naive());
        let settings = format!("{:?} {:?} {today:?}", self.config().lint, decisions.source);
        Digest::of(settings.as_bytes())
    }
}

/// Returns the digest of the settings that the content of an agent's memory depends on.
fn digest_settings(common: Option<Digest>, agent: &Agent) -> Digest {
    let (memory, separator) = (agent.location.memory(), &agent.separator);
    let (limit, is_shared) = (agent.max_memory_size, agent.is_shared);
    let settings = format!("{common:?} {memory:?} {separator:?} {limit} {is_shared}");
    Digest::of(settings.as_bytes())
}

/// Replaces the index. Of several processes at once, one writes it. It is not synced: a file that a
/// power cut has damaged does not match its digest.
fn replace_index(archive: &Archive, text: &[u8]) -> io::Result<()> {
    let path = archive.program_path(INDEX_STAGING_NAME);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    options.mode(archive.file_mode().as_raw_mode());
    let mut file = durable::open_own_file(&path, &mut options)?;
    if !sys::try_lock(file.as_fd())? || !lock::is_still_at(&file, &path) {
        return Ok(());
    }
    let written = file
        .set_len(0)
        .and_then(|()| {
            archive
                .repair_program_file(&file, &path)
                .map_err(io::Error::other)
        })
        .and_then(|()| file.write_all(text))
        .and_then(|()| std::fs::rename(&path, archive.program_path(INDEX_FILE_NAME)));
    if written.is_err() {
        // It would waste space on a disk that may be full.
        let _ = std::fs::remove_file(&path);
    }
    written
}
