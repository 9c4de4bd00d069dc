//! Whether what is kept is still what was written: the ledger's chain, the
//! entries that it names, baseline versions, and the seal of the baselines.
//! Changes nothing. Files are read in pieces; what is held is a line of the
//! ledger and a name for every entry.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::Engine;
use super::ledger::{LedgerPosition, Record, Scan, ScannedLine};
use super::log;
use crate::archive::{self, Written};
use crate::baseline::{self, BaselineCache, Refusal};
use crate::config::RequireSeal;
use crate::digest::Digest;
use crate::durable;
use crate::error::{Error, Kind, PathContext, Result};

/// More findings than these are only counted.
const MAX_FINDINGS: usize = 1000;

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingSubject {
    /// A line of the ledger.
    Ledger,
    /// The head of the ledger that somebody noted.
    Anchor,
    /// The head of the ledger in `reset.log`.
    Log,
    /// An entry.
    Entry,
    /// A baseline version that was pushed.
    Version,
    /// A baseline in use, or the seal.
    Baseline,
}

/// Something that is not as it was written, or could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it is about.
    pub about: FindingSubject,
    /// What it means for the exit code.
    pub kind: Kind,
    /// A sentence.
    pub what: String,
}

/// What was found of the ledger itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Chain {
    /// The file.
    pub path: PathBuf,
    /// Number of its last record.
    pub seq: u64,
    /// Digest of its last line.
    pub sha256: Digest,
    /// Bytes at its end that are no whole line: a record that is being written,
    /// or was when a run was killed. The next run cuts them off.
    pub torn: u64,
}

/// How much was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerifiedCounts {
    /// Lines of the ledger.
    pub lines: u64,
    /// Entries that were read and compared with the ledger.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Entries that retention has deleted since.
    pub retired: u64,
    /// Entries that no record names: of the original tool, or of a run that
    /// ended before it could record them.
    pub unrecorded: u64,
    /// Baseline versions.
    pub versions: u64,
    /// Baselines in use that match the seal.
    pub sealed: u64,
    /// Baselines in use that no seal covers.
    pub unsealed: u64,
}

/// What a verification came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verification {
    /// The ledger.
    pub ledger: Chain,
    /// Whether the noted head holds, if one was given.
    pub anchor: Option<bool>,
    /// Whether the heads that `reset.log` tells of hold, if there are any.
    pub logged: Option<bool>,
    /// How much was looked at.
    pub tally: VerifiedCounts,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// How many findings there are beside these.
    pub more: u64,
    /// What is no failure and worth knowing.
    pub notes: Vec<String>,
}

impl Verification {
    /// The most serious finding.
    pub fn kind(&self) -> Option<Kind> {
        let kinds = self.findings.iter().map(|finding| finding.kind);
        kinds.reduce(Kind::worst)
    }

    fn find(&mut self, about: FindingSubject, kind: Kind, what: impl Into<String>) {
        // The first of a kind is kept in any case: it decides the exit code.
        if self.findings.len() >= MAX_FINDINGS && self.findings.iter().any(|it| it.kind == kind) {
            self.more += 1;
            return;
        }
        self.findings.push(Finding {
            about,
            kind,
            what: what.into(),
        });
    }

    fn broken(&mut self, about: FindingSubject, what: impl Into<String>) {
        self.find(about, Kind::Integrity, what);
    }
}

/// How far a verification is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyProgress {
    /// So many lines of the ledger were read.
    Ledger(u64),
    /// So many of all entries were read.
    Entries(u64, u64),
}

/// What the ledger says of the archive.
#[derive(Default)]
struct ArchiveClaims {
    /// Entries that should be there, each with the line that names it.
    entries: BTreeMap<PathBuf, (Digest, u64, u64)>,
    /// Versions that an undo may need.
    versions: BTreeSet<Digest>,
}

impl Engine {
    /// Checks everything that was kept against what was written down of it.
    /// `anchor` is a head of the ledger that was noted before, outside of it.
    ///
    /// # Errors
    /// A ledger or an archive that cannot be read at all. What is wrong with
    /// them is a finding and no error.
    pub fn verify(
        &self,
        anchor: Option<(u64, Digest)>,
        progress: &mut dyn FnMut(VerifyProgress),
    ) -> Result<Verification> {
        let mut found = Verification {
            ledger: Chain {
                path: self.ledger_path(),
                seq: 0,
                sha256: Digest::ZERO,
                torn: 0,
            },
            anchor: anchor.map(|_| false),
            logged: None,
            tally: VerifiedCounts::default(),
            findings: Vec::new(),
            more: 0,
            notes: Vec::new(),
        };
        let mut named = ArchiveClaims::default();
        // Before the ledger is read: a run may end meanwhile.
        let logged: BTreeSet<(u64, Digest)> =
            log::heads(self.archive().root()).into_iter().collect();
        found.logged = (!logged.is_empty()).then_some(true);
        let mut missing: BTreeSet<(u64, Digest)> =
            anchor.into_iter().chain(logged.clone()).collect();
        let end = read_ledger(&mut found, &mut named, &mut missing, progress)?;
        if let Some(head) = anchor {
            let holds = !missing.contains(&head);
            found.anchor = Some(holds);
            if !holds {
                found.broken(
                    FindingSubject::Anchor,
                    lacks(end, head, "was noted", "noted"),
                );
            }
        }
        if let Some(head) = missing.intersection(&logged).next() {
            found.logged = Some(false);
            // A broken chain has lost heads of its own.
            if found
                .findings
                .iter()
                .all(|it| it.about != FindingSubject::Ledger)
            {
                let what = lacks(end, *head, "is in reset.log", "logged");
                found.broken(FindingSubject::Log, what);
            }
        }
        self.check_entries(&mut found, &mut named, end, progress)?;
        self.check_versions(&mut found, &named)?;
        self.check_baselines(&mut found);
        found.notes();
        Ok(found)
    }

    /// The last head of the ledger that `reset.log` has, if it has any.
    pub fn last_logged_head(&self) -> Option<(u64, Digest)> {
        log::heads(self.archive().root()).into_iter().max()
    }

    fn check_entries(
        &self,
        found: &mut Verification,
        named: &mut ArchiveClaims,
        end: LedgerPosition,
        progress: &mut dyn FnMut(VerifyProgress),
    ) -> Result<()> {
        let of = named.entries.len() as u64;
        let mut missing = Vec::new();
        for (number, (path, (digest, size, line))) in named.entries.iter().enumerate() {
            progress(VerifyProgress::Entries(number as u64, of));
            match self.check_entry(path, *digest, *size) {
                Ok(true) => {
                    found.tally.entries += 1;
                    found.tally.bytes += size;
                }
                Ok(false) => missing.push((path.clone(), *line)),
                Err(error) => {
                    let what = format!("{} (record in line {line})", error.message());
                    found.find(FindingSubject::Entry, error.kind(), what);
                }
            }
        }
        // Retention may have been at work meanwhile; it records first.
        let lately = match missing.is_empty() {
            true => HashSet::new(),
            false => retired(&found.ledger.path, end, |_| true)?,
        };
        for (path, line) in missing {
            if lately.contains(&path) {
                found.tally.retired += 1;
                continue;
            }
            let path = path.display();
            found.broken(
                FindingSubject::Entry,
                format!(
                    "the entry {path} is missing, and retention did not delete it \
                     (record in line {line})"
                ),
            );
        }
        self.count_unrecorded(found, named)
    }

    /// Whether an entry is there; one that is there must be what was written.
    fn check_entry(&self, path: &Path, digest: Digest, size: u64) -> Result<bool> {
        let broken = |why: &str| {
            let message = format!("the entry {} {why}", path.display());
            Err(Error::new(Kind::Integrity, message))
        };
        if !archive::stays_below(path) {
            return broken("is named by the ledger, and no path of an entry");
        }
        let whole = self.archive().root().join(path);
        match std::fs::symlink_metadata(&whole) {
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                return Ok(false);
            }
            Err(error) => return Err(Error::io("look at the entry", &whole, &error)),
            Ok(meta) if !meta.is_file() => return broken("is no file any more"),
            Ok(meta) if meta.len() != size => {
                return broken(&format!(
                    "was changed: {} bytes, {size} were written",
                    meta.len()
                ));
            }
            Ok(_) => {}
        }
        match self.archive().digest(path)? == digest {
            true => Ok(true),
            false => broken("was changed: its digest is another"),
        }
    }

    /// Counts entries on the disk that no record names.
    fn count_unrecorded(&self, found: &mut Verification, named: &ArchiveClaims) -> Result<()> {
        let agents = self.config().agents.iter();
        let mut folders: BTreeSet<&Path> = agents.map(|it| it.archive_subdir.as_ref()).collect();
        folders.extend(named.entries.keys().filter_map(|path| path.parent()));
        let mut unknown = HashSet::new();
        for folder in folders
            .into_iter()
            .filter(|folder| archive::stays_below(folder))
        {
            let listed = self.archive().list(folder)?;
            let paths = listed.into_iter().map(|entry| entry.path);
            unknown.extend(paths.filter(|path| !named.entries.contains_key(path)));
        }
        if !unknown.is_empty() {
            // What retention was about to delete when a run was killed.
            let begin = LedgerPosition::default();
            for path in retired(&found.ledger.path, begin, |path| unknown.contains(path))? {
                unknown.remove(&path);
            }
        }
        found.tally.unrecorded = unknown.len() as u64;
        Ok(())
    }

    fn check_versions(&self, found: &mut Verification, named: &ArchiveClaims) -> Result<()> {
        let folder = self.archive().own("baselines");
        let items = match std::fs::read_dir(&folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            items => Some(items.path("list", &folder)?),
        };
        let mut missing = named.versions.clone();
        for item in items.into_iter().flatten() {
            let path = item.path("list", &folder)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let Some(digest) = name
                .strip_suffix(".md")
                .and_then(|stem| stem.parse::<Digest>().ok())
            else {
                continue;
            };
            missing.remove(&digest);
            let file = durable::open_own(&path, OpenOptions::new().read(true))
                .path("read the baseline version", &path);
            match file.and_then(|file| archive::digest_of(file, &path)) {
                Ok(is) if is == digest => found.tally.versions += 1,
                Ok(_) => found.broken(
                    FindingSubject::Version,
                    format!("the baseline version {} was changed", path.display()),
                ),
                Err(error) => found.find(FindingSubject::Version, error.kind(), error.message()),
            }
        }
        for digest in missing {
            let what = format!("the baseline version {digest}, which was pushed, is missing");
            found.broken(FindingSubject::Version, what);
        }
        Ok(())
    }

    fn check_baselines(&self, found: &mut Verification) {
        let general = &self.config().general;
        let sealed = match general.require_seal {
            RequireSeal::Never => Ok(false),
            _ => baseline::seal::Seal::read(&general.baseline_dir).map(|seal| seal.is_some()),
        };
        let mut shelf = BaselineCache::new(self.config());
        let mut looked = HashSet::new();
        for agent in &self.config().agents {
            if !looked.insert(&agent.baseline) {
                continue;
            }
            match (shelf.load(agent), &sealed) {
                (Ok(_), Ok(true)) => found.tally.sealed += 1,
                (Ok(_), _) => found.tally.unsealed += 1,
                (Err(Refusal::Tampered(error)), _) => {
                    found.find(FindingSubject::Baseline, error.kind(), error.message());
                }
                (Err(Refusal::Unusable(error)), _) => found.notes.push(error.message().to_string()),
            }
        }
    }
}

impl Verification {
    fn notes(&mut self) {
        let mut notes = Vec::new();
        if self.ledger.torn > 0 {
            notes.push(format!(
                "the ledger ends with {} bytes of an unfinished record: a run is at work, or was \
                 killed; the next one cuts them off",
                self.ledger.torn
            ));
        }
        if self.tally.unrecorded > 0 {
            notes.push(format!(
                "no record names {} of the entries: they are of the original tool, or of a run that \
                 failed",
                self.tally.unrecorded
            ));
        }
        notes.append(&mut self.notes);
        self.notes = notes;
    }

    /// Takes what a record says of the archive.
    fn take(&mut self, record: &Record, line: u64, named: &mut ArchiveClaims) {
        let event = &record.what;
        for Written {
            path, digest, size, ..
        } in event.written()
        {
            let other = named.entries.insert(path.clone(), (*digest, *size, line));
            if let Some((before, _, first)) = other.filter(|(before, ..)| before != digest) {
                let path = path.display();
                self.broken(
                    FindingSubject::Entry,
                    format!(
                        "the entry {path} is not the one of line {first} any more, which had the \
                         digest {before}: line {line} names another one"
                    ),
                );
            }
        }
        for path in &event.retired {
            self.tally.retired += u64::from(named.entries.remove(path).is_some());
        }
        if event.changed() {
            named
                .versions
                .extend(event.baseline.iter().chain(&event.split));
        }
    }
}

/// That a head is not in a ledger, which ends at `end`.
fn lacks(end: LedgerPosition, head: (u64, Digest), known: &str, word: &str) -> String {
    let (seq, digest) = head;
    match seq > end.seq {
        true => format!(
            "the ledger ends with record {}, but record {seq} {known}: it was cut off, or \
             another ledger stands there",
            end.seq
        ),
        false => format!(
            "record {seq} does not have the {word} digest {digest}: the ledger was written anew"
        ),
    }
}

/// Reads the whole ledger, and says where it ends. Heads that it has are taken out of
/// `missing`.
fn read_ledger(
    found: &mut Verification,
    named: &mut ArchiveClaims,
    missing: &mut BTreeSet<(u64, Digest)>,
    progress: &mut dyn FnMut(VerifyProgress),
) -> Result<LedgerPosition> {
    missing.remove(&(0, Digest::ZERO));
    let mut end = LedgerPosition::default();
    if let Some(mut scan) = Scan::open(&found.ledger.path)? {
        loop {
            let line = match scan.line() {
                Ok(Some(line)) => line,
                Ok(None) => {
                    found.ledger.torn = scan.torn()?;
                    break;
                }
                Err(error) if error.kind() == Kind::Integrity => {
                    found.broken(FindingSubject::Ledger, error.message());
                    break;
                }
                Err(error) => return Err(error),
            };
            let ScannedLine {
                number,
                record,
                wrong,
            } = line;
            found.tally.lines = number;
            let place = scan.place();
            missing.remove(&(place.seq, place.head));
            if let Some(why) = wrong {
                found.broken(FindingSubject::Ledger, format!("line {number}: {why}"));
            }
            if let Some(record) = record {
                found.take(&record, number, named);
            }
            progress(VerifyProgress::Ledger(number));
        }
        end = scan.place();
    }
    found.ledger.seq = end.seq;
    found.ledger.sha256 = end.head;
    Ok(end)
}

/// Which of some entries retention was said to delete, from a place of the ledger
/// on.
fn retired(
    ledger: &Path,
    from: LedgerPosition,
    of: impl Fn(&Path) -> bool,
) -> Result<HashSet<PathBuf>> {
    let mut retired = HashSet::new();
    let file = match durable::open_own(ledger, OpenOptions::new().read(true)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(retired),
        file => file.path("read the ledger", ledger)?,
    };
    let mut scan = Scan::new(file, ledger, from)?;
    while let Ok(Some(line)) = scan.line() {
        let paths = line
            .record
            .into_iter()
            .flat_map(|record| record.what.retired);
        retired.extend(paths.filter(|path| of(path)));
    }
    Ok(retired)
}
