//! Entries of the archive: their kinds, names and header lines. Reads and writes no files.

use std::path::{Path, PathBuf};

use chrono::{DateTime, FixedOffset, NaiveDateTime};
use serde::{Deserialize, Serialize};

use crate::base::digest::Digest;
use crate::lint::ScanSummary;

/// Content of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EntryKind {
    /// A header line, an empty line, and the scratch verbatim.
    Scratch,
    /// The exact bytes of the whole memory.
    FullBackup,
    /// The whole displaced file, which a late writer has changed.
    Late,
    /// The part that a late writer added to the displaced file; other entries hold the beginning:
    /// see [`WrittenEntry::base`].
    Appended,
    /// A description of an object that was not a readable file.
    #[serde(rename = "odd")]
    Special,
    /// A copy of an entry in quarantine, without its secrets. No undo reads it.
    Redacted,
}

impl EntryKind {
    /// All kinds.
    pub const ALL: [EntryKind; 6] = [
        EntryKind::Scratch,
        EntryKind::FullBackup,
        EntryKind::Late,
        EntryKind::Appended,
        EntryKind::Special,
        EntryKind::Redacted,
    ];

    fn name_suffix(self) -> &'static str {
        match self {
            EntryKind::Scratch => "",
            EntryKind::FullBackup => "-full-backup",
            EntryKind::Late => "-late",
            EntryKind::Appended => "-appended",
            EntryKind::Special => "-odd",
            EntryKind::Redacted => "-redacted",
        }
    }
}

/// An entry as its name and inode describe it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ArchiveEntry {
    /// Path below `archive_dir`.
    pub path: PathBuf,
    /// Its content, by its name.
    pub kind: EntryKind,
    /// The local time in its name.
    pub stamp: NaiveDateTime,
    /// The number that distinguishes entries of one minute; 0 for the first.
    pub number: u32,
    /// Size in bytes.
    pub size: u64,
    /// Last modification, in seconds since 1970.
    pub modified: i64,
}

impl ArchiveEntry {
    /// The order of entries: by their time, then by the number within a minute.
    pub fn sort_key(&self) -> (NaiveDateTime, u32, &Path) {
        (self.stamp, self.number, &self.path)
    }
}

/// An entry that was just written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenEntry {
    /// Path below `archive_dir`.
    pub path: PathBuf,
    /// Its content.
    pub kind: EntryKind,
    /// Digest of the whole entry.
    pub digest: Digest,
    /// Its size in bytes.
    pub size: u64,
    /// The content before it in the file; only for [`EntryKind::Appended`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<BaseContent>,
    /// What the scan found in it; none without findings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub findings: Option<ScanSummary>,
}

/// The content that an appended entry continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaseContent {
    /// Digest of the beginning, which other entries hold.
    pub sha256: Digest,
    /// Its size in bytes.
    pub size: u64,
    /// Digest of beginning and entry together.
    #[serde(rename = "whole")]
    pub whole_digest: Digest,
}

impl WrittenEntry {
    /// Marks the entry as the continuation of a content.
    #[must_use]
    pub fn with_base(self, base: BaseContent) -> WrittenEntry {
        WrittenEntry {
            base: Some(base),
            ..self
        }
    }

    /// Returns digest and size of the content that the entry holds or completes.
    pub fn whole_content(&self) -> (Digest, u64) {
        match self.base {
            Some(base) => (base.whole_digest, base.size + self.size),
            None => (self.digest, self.size),
        }
    }
}

/// The form of the time in names and headers: local time, to the minute.
const STAMP_FORMAT: &str = "%Y-%m-%d_%H%M";

/// Formats the time in names and headers.
pub fn format_stamp(local: NaiveDateTime) -> String {
    local.format(STAMP_FORMAT).to_string()
}

/// Formats the first two lines of a scratch entry, as the original tool does.
pub fn format_scratch_header(agent: &str, at: DateTime<FixedOffset>) -> String {
    format!(
        "# {agent} scratch notes — archived {}\n\n",
        format_stamp(at.naive_local())
    )
}

/// Returns the scratch of a scratch entry: the bytes behind the two header lines.
pub fn strip_scratch_header(entry: &[u8]) -> Option<&[u8]> {
    let end = entry.windows(2).position(|pair| pair == b"\n\n")?;
    entry.starts_with(b"# ").then(|| &entry[end + 2..])
}

/// Returns whether a text begins with the header of a scratch entry of an agent.
pub fn has_scratch_header(text: &[u8], agent: &str) -> bool {
    let rest = text
        .strip_prefix(b"# ")
        .and_then(|rest| rest.strip_prefix(agent.as_bytes()));
    rest.is_some_and(|rest| rest.starts_with(b" scratch notes"))
}

/// Formats the name of an entry of a local time.
pub fn format_entry_name(local: NaiveDateTime, kind: EntryKind, number: u32) -> String {
    let number = match number {
        0 => String::new(),
        n => format!("-{n}"),
    };
    format!("{}{}{number}.md", format_stamp(local), kind.name_suffix())
}

/// Length of the time in the name of an entry.
const STAMP_LENGTH: usize = "2026-03-14_0900".len();

/// The parsed name of an entry.
pub(crate) struct EntryName {
    pub text: String,
    pub stamp: NaiveDateTime,
    pub kind: EntryKind,
    pub number: u32,
}

impl EntryName {
    pub fn parse(text: &str) -> Option<EntryName> {
        let (stamp, kind, number) = parse_entry_name(text)?;
        Some(EntryName {
            text: text.to_string(),
            stamp,
            kind,
            number,
        })
    }
}

/// Parses `YYYY-MM-DD_HHMM[-KIND][-N].md`, the name of an entry; none for other names.
pub fn parse_entry_name(name: &str) -> Option<(NaiveDateTime, EntryKind, u32)> {
    let stem = name.strip_suffix(".md")?;
    let (stamp, rest) = (stem.get(..STAMP_LENGTH)?, stem.get(STAMP_LENGTH..)?);
    let has_stamp_shape = stamp
        .bytes()
        .zip(*b"0000-00-00_0000")
        .all(|(byte, form)| match form {
            b'0' => byte.is_ascii_digit(),
            _ => byte == form,
        });
    if !has_stamp_shape {
        return None;
    }
    let stamp = NaiveDateTime::parse_from_str(stamp, STAMP_FORMAT).ok()?;
    EntryKind::ALL.iter().rev().find_map(|kind| {
        let number = match rest.strip_prefix(kind.name_suffix())? {
            "" => 0,
            number => {
                let digits = number.strip_prefix('-')?;
                let ours = digits.bytes().all(|byte| byte.is_ascii_digit());
                // Numbers begin with 1 and have no leading zeros.
                if !ours || digits.starts_with('0') {
                    return None;
                }
                digits.parse().ok()?
            }
        };
        Some((stamp, *kind, number))
    })
}
