//! Verification: checks the ledger's chain, the entries that it names, baseline versions, and the
//! seal of the baselines. Changes nothing.
//!
//! It reads files in pieces, and holds one line of the ledger and one name per entry in memory.

mod baselines;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use crate::archive::{self, WrittenEntry, agent_directory_of, is_quarantined};
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::quantity::format_count;
use crate::baseline::signatures::SignedSeal;
use crate::engine::records::Verifier;
use crate::store::entries::EntryObject;
use crate::store::ledger::{Ledger, LedgerLine};
use crate::store::record::{LedgerPosition, LedgerRecord, Operation, RunEvent};
use crate::store::run_log;

/// Maximum number of findings that are kept; further ones are only counted.
const MAX_FINDINGS: usize = 1000;

/// Subject of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingSubject {
    /// A line of the ledger.
    Ledger,
    /// The head of the ledger that the caller noted.
    Anchor,
    /// The head of the ledger in `reset.log`.
    Log,
    /// An entry.
    Entry,
    /// A baseline version that was pushed.
    Version,
    /// A baseline in use, or another sealed file.
    Baseline,
    /// The seal: its files, signature, serial and expiry.
    Seal,
}

/// What to do before any repair.
const EVIDENCE_REMEDY: &str = "copy the archive as evidence before you repair anything; compare it \
                               with a backup to see what changed";

impl FindingSubject {
    /// Returns what an operator can do about any finding of this subject.
    fn remedies(self) -> &'static [&'static str] {
        const LEDGER: &str = "restore the ledger from a backup, or move .shepherd/ledger.jsonl, its \
                              segments (ledger-*.jsonl.gz), reset.log and reset.log.old away: the \
                              next run creates new ones";
        match self {
            FindingSubject::Ledger | FindingSubject::Anchor | FindingSubject::Log => {
                &[EVIDENCE_REMEDY, LEDGER]
            }
            FindingSubject::Entry | FindingSubject::Version => &[EVIDENCE_REMEDY],
            FindingSubject::Baseline | FindingSubject::Seal => &[],
        }
    }
}

/// A difference from what was written, or something that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its subject.
    #[serde(rename = "about")]
    pub subject: FindingSubject,
    /// Name of the baseline that it is about, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
    /// Its kind, which decides the exit code.
    pub kind: ErrorKind,
    /// One sentence for people.
    #[serde(rename = "what")]
    pub message: String,
    /// What can be done about it.
    pub hints: Vec<String>,
}

/// Where the ledger is, and its head.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LedgerSummary {
    /// The active file.
    pub path: PathBuf,
    /// Number of its last record.
    pub seq: u64,
    /// Digest of its last line.
    pub sha256: Digest,
    /// Number of compressed segments before that file.
    pub segments: u64,
    /// Bytes at its end that are not a complete line: a record that a run is writing, or was
    /// writing when it was killed. The next run truncates them.
    #[serde(rename = "torn")]
    pub torn_bytes: u64,
}

/// Numbers of verified items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerifiedCounts {
    /// Lines of the ledger.
    pub lines: u64,
    /// Entries that were read and compared with the ledger.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Entries that retention has deleted since.
    #[serde(rename = "retired")]
    pub retired_entries: u64,
    /// Entries that no record names: entries of the original tool, or of a run that ended before it
    /// could record them.
    #[serde(rename = "unrecorded")]
    pub unrecorded_entries: u64,
    /// Baseline versions.
    pub versions: u64,
    /// Baselines and other files that match the seal.
    #[serde(rename = "sealed")]
    pub sealed_baselines: u64,
    /// Baselines in use that no seal covers.
    #[serde(rename = "unsealed")]
    pub unsealed_baselines: u64,
}

/// Result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verification {
    /// The ledger.
    pub ledger: LedgerSummary,
    /// Whether the noted head is in the ledger, if the caller gave one.
    #[serde(rename = "anchor")]
    pub is_anchor_valid: Option<bool>,
    /// Whether the heads in `reset.log` are in the ledger; `None` if it has none to compare.
    #[serde(rename = "logged")]
    pub is_log_valid: Option<bool>,
    /// What was verified.
    #[serde(rename = "tally")]
    pub counts: VerifiedCounts,
    /// Who signed the seal, if its signature was checked and is good.
    pub signed: Option<SignedSeal>,
    /// Failures.
    pub findings: Vec<Finding>,
    /// Number of findings that `findings` leaves out.
    #[serde(rename = "more")]
    pub omitted_findings: u64,
    /// Remarks that are not failures.
    pub notes: Vec<String>,
}

impl Verification {
    /// Returns the kind of the most serious finding.
    pub fn worst_kind(&self) -> Option<ErrorKind> {
        let kinds = self.findings.iter().map(|finding| finding.kind);
        kinds.reduce(ErrorKind::more_serious)
    }

    /// Says how many baselines match the seal, do not match it, and have none.
    pub fn describe_baselines(&self) -> String {
        let findings = self.findings.iter();
        let is_baseline = |it: &&Finding| it.subject == FindingSubject::Baseline;
        let failures = findings.filter(is_baseline).count();
        let mut parts = Vec::new();
        match self.counts.sealed_baselines {
            0 => {}
            1 => parts.push("1 matches the seal".to_string()),
            count => parts.push(format!("{count} match the seal")),
        }
        let object = if parts.is_empty() {
            " match the seal"
        } else {
            ""
        };
        match failures {
            0 => {}
            1 => parts.push(format!("1 does not{object}")),
            count => parts.push(format!("{count} do not{object}")),
        }
        match self.counts.unsealed_baselines {
            0 => {}
            1 => parts.push("1 has no seal: NOT checked".to_string()),
            count => parts.push(format!("{count} have no seal: NOT checked")),
        }
        if parts.is_empty() {
            return "none to check".to_string();
        }
        parts.join(", ")
    }

    /// Describes the comparison with the heads in `reset.log`, or why there was none. They are the only
    /// heads on this machine that show a ledger whose end was cut off.
    pub fn describe_log(&self) -> &'static str {
        match self.is_log_valid {
            Some(_) => "the heads in reset.log are in the ledger",
            None if self.ledger.seq == 0 => "no heads logged yet",
            None => "reset.log has no head of the ledger (moved away or truncated?): NOT checked",
        }
    }

    /// Says how many baselines in use have no seal; `None` if all have one.
    pub fn describe_unsealed(&self) -> Option<String> {
        match self.counts.unsealed_baselines {
            0 => None,
            1 => Some("1 baseline has no seal: NOT checked".to_string()),
            count => Some(format!("{count} baselines have no seal: NOT checked")),
        }
    }

    fn add_finding(&mut self, about: FindingSubject, kind: ErrorKind, what: impl Into<String>) {
        // The first finding of a kind is always kept: it decides the exit code.
        if self.findings.len() >= MAX_FINDINGS && self.findings.iter().any(|it| it.kind == kind) {
            self.omitted_findings += 1;
            return;
        }
        self.findings.push(Finding {
            subject: about,
            baseline: None,
            kind,
            message: what.into(),
            hints: about.remedies().iter().map(ToString::to_string).collect(),
        });
    }

    /// Adds a finding with the hints of its error.
    fn add_error(&mut self, about: FindingSubject, error: &Error) {
        let before = self.findings.len();
        self.add_finding(about, error.kind(), error.message());
        if let Some(finding) = self.findings.get_mut(before) {
            finding.hints = error.hints().to_vec();
        }
    }

    /// Adds a finding about a baseline.
    fn add_baseline_error(&mut self, name: &str, error: &Error) {
        let before = self.findings.len();
        self.add_error(FindingSubject::Baseline, error);
        if let Some(finding) = self.findings.get_mut(before) {
            finding.baseline = Some(name.to_string());
        }
    }

    fn add_integrity_finding(&mut self, about: FindingSubject, what: impl Into<String>) {
        self.add_finding(about, ErrorKind::Integrity, what);
    }
}

/// Progress of a verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyProgress {
    /// Number of lines of the ledger read.
    Ledger(u64),
    /// Number of entries read, and of all entries.
    Entries(u64, u64),
    /// Number of baseline versions read.
    Versions(u64),
}

/// Where a verification reports its progress, and learns that it is cancelled.
pub(in crate::engine) struct ProgressReport<'p> {
    cancel: &'p AtomicBool,
    report: &'p mut dyn FnMut(VerifyProgress),
}

impl ProgressReport<'_> {
    /// Reports a step.
    ///
    /// # Errors
    /// [`ErrorKind::Interrupted`] if the verification is cancelled.
    fn step(&mut self, step: VerifyProgress) -> Result<()> {
        (self.report)(step);
        if self.cancel.load(Ordering::Relaxed) {
            let message = "the verification was stopped; nothing is known about the rest";
            return Err(Error::new(ErrorKind::Interrupted, message));
        }
        Ok(())
    }
}

/// What the ledger claims about the archive.
#[derive(Default)]
struct ArchiveClaims {
    /// First and last numbers of records that cannot be read.
    unread_records: Vec<(u64, u64)>,
    /// Whether lines break the chain, or the active file is not the one of its segments: it lacks
    /// logged heads then.
    is_chain_broken: bool,
    /// Expected entries: digest, size, and the record that names the entry.
    entries: BTreeMap<PathBuf, (Digest, u64, u64)>,
    /// Versions that an undo may need.
    versions: BTreeSet<Digest>,
}

impl ArchiveClaims {
    /// Returns whether the record with this number cannot be read.
    fn is_unread(&self, seq: u64) -> bool {
        let mut ranges = self.unread_records.iter();
        ranges.any(|(first, last)| (*first..=*last).contains(&seq))
    }

    /// Returns whether a record behind this one, which cannot be read, may say that retention deleted
    /// something.
    fn may_be_retired_unread(&self, seq: u64) -> bool {
        self.unread_records.iter().any(|(_, last)| *last > seq)
    }
}

impl Verifier {
    /// Checks the archive, the baselines and their seal against the ledger, and the ledger itself.
    /// `anchor` is a head of the ledger that the operator noted elsewhere. Setting `cancel` stops it.
    ///
    /// # Errors
    /// A ledger or an archive that cannot be read at all; damage to them is a finding, not an
    /// error. [`ErrorKind::Interrupted`] if it was cancelled.
    pub fn verify(
        &self,
        anchor: Option<(u64, Digest)>,
        cancel: &AtomicBool,
        report: &mut dyn FnMut(VerifyProgress),
    ) -> Result<Verification> {
        self.context.archive().check_expected()?;
        let progress = &mut ProgressReport { cancel, report };
        let mut verification = Verification {
            ledger: LedgerSummary {
                path: self.context.ledger().location(),
                ..LedgerSummary::default()
            },
            is_anchor_valid: anchor.map(|_| false),
            ..Verification::default()
        };
        let mut claims = ArchiveClaims::default();
        // Read the log before the ledger: a run may end in between.
        let logged: BTreeSet<(u64, Digest)> =
            match run_log::read_logged_heads(self.context.archive().root()) {
                Ok(heads) => heads.into_iter().collect(),
                Err(error) => {
                    verification.add_finding(FindingSubject::Log, error.kind(), error.message());
                    BTreeSet::new()
                }
            };
        verification.is_log_valid = (!logged.is_empty()).then_some(true);
        let mut missing: BTreeSet<(u64, Digest)> =
            anchor.into_iter().chain(logged.clone()).collect();
        let end = read_ledger(
            self.context.ledger(),
            &mut verification,
            &mut claims,
            &mut missing,
            progress,
        )?;
        if let Some(head) = anchor {
            let holds = !missing.contains(&head);
            verification.is_anchor_valid = Some(holds);
            if !holds && claims.is_unread(head.0) {
                let message = format!("record {}, which was noted, cannot be read", head.0);
                let error = Error::new(ErrorKind::Integrity, message);
                let hint = "restore the segments of the ledger that cannot be read";
                verification.add_error(FindingSubject::Anchor, &error.with_hint(hint));
            } else if !holds {
                verification.add_integrity_finding(
                    FindingSubject::Anchor,
                    missing_head_message(end, head, "was noted", "noted"),
                );
            }
        }
        missing.retain(|(seq, _)| !claims.is_unread(*seq));
        if let Some(head) = missing.intersection(&logged).next() {
            verification.is_log_valid = Some(false);
            // A broken chain lacks heads anyway.
            if !claims.is_chain_broken {
                let what = missing_head_message(end, *head, "is in reset.log", "logged");
                verification.add_integrity_finding(FindingSubject::Log, what);
            }
        }
        self.check_entries(&mut verification, &mut claims, end, progress)?;
        self.check_versions(&mut verification, &claims, end, progress)?;
        self.check_baselines(&mut verification);
        verification.add_notes(&claims);
        Ok(verification)
    }

    /// Returns the last head of the ledger in `reset.log`, if there is one.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn last_logged_head(&self) -> Result<Option<(u64, Digest)>> {
        self.context.archive().check_expected()?;
        let heads = run_log::read_logged_heads(self.context.archive().root())?;
        Ok(heads.into_iter().max())
    }

    fn check_entries(
        &self,
        verification: &mut Verification,
        claims: &mut ArchiveClaims,
        end: LedgerPosition,
        progress: &mut ProgressReport<'_>,
    ) -> Result<()> {
        let of = claims.entries.len() as u64;
        let mut missing = Vec::new();
        let mut hidden: BTreeMap<&Path, u64> = BTreeMap::new();
        for (number, (path, (digest, size, seq))) in claims.entries.iter().enumerate() {
            progress.step(VerifyProgress::Entries(number as u64, of))?;
            if is_quarantined(path) {
                let directory = agent_directory_of(path);
                if self.context.entries().has_hidden_quarantine(directory) {
                    *hidden.entry(directory).or_default() += 1;
                    continue;
                }
            }
            match self.check_entry(path, *digest, *size) {
                Ok(true) => {
                    verification.counts.entries += 1;
                    verification.counts.bytes += size;
                }
                Ok(false) => missing.push((path.clone(), *seq)),
                Err(error) => {
                    let what = format!("{} (record {seq})", error.message());
                    verification.add_finding(FindingSubject::Entry, error.kind(), what);
                }
            }
        }
        verification.add_hidden_notes(&hidden);
        // Retention may run at the same time; its record precedes the deletion.
        let lately = if missing.is_empty() {
            HashSet::new()
        } else {
            names_retired_since(self.context.ledger(), end)?.0
        };
        let mut unknown = 0;
        for (path, seq) in missing {
            if lately.contains(&path) {
                verification.counts.retired_entries += 1;
                continue;
            }
            if claims.may_be_retired_unread(seq) {
                unknown += 1;
                continue;
            }
            let path = path.display();
            verification.add_integrity_finding(
                FindingSubject::Entry,
                format!(
                    "the entry {path} is missing, and retention did not delete it \
                     (record {seq})"
                ),
            );
        }
        verification.add_unknown_retired_note(unknown, ("entry", "entries"));
        self.count_unrecorded(verification, claims)
    }

    /// Returns whether an entry exists; checks the content of one that does.
    fn check_entry(&self, path: &Path, digest: Digest, size: u64) -> Result<bool> {
        let broken = |why: &str| {
            let message = format!("the entry {} {why}", path.display());
            Err(Error::new(ErrorKind::Integrity, message))
        };
        if !archive::is_below_archive(path) {
            return broken("is named by the ledger but is not a path of an entry");
        }
        match self.context.entries().probe(path)? {
            EntryObject::Absent => return Ok(false),
            EntryObject::Other => return broken("is no longer a file"),
            EntryObject::Entry(found) if found != size => {
                return broken(&format!(
                    "was changed: it has {found} bytes instead of {size}"
                ));
            }
            EntryObject::Entry(_) => {}
        }
        if self.context.entries().digest(path)? != digest {
            return broken("was changed: its digest differs");
        }
        Ok(true)
    }

    /// Counts entries on the disk that no record names.
    fn count_unrecorded(
        &self,
        verification: &mut Verification,
        claims: &ArchiveClaims,
    ) -> Result<()> {
        let agents = self.context.config().agents.iter();
        let mut directories: BTreeSet<&Path> =
            agents.map(|it| it.archive_subdir.as_ref()).collect();
        directories.extend(claims.entries.keys().map(|path| agent_directory_of(path)));
        let mut unknown = HashSet::new();
        for directory in directories
            .into_iter()
            .filter(|directory| archive::is_below_archive(directory))
        {
            let listed = self.context.entries().list(directory)?;
            let paths = listed.into_iter().map(|entry| entry.path);
            unknown.extend(paths.filter(|path| !claims.entries.contains_key(path)));
        }
        if !unknown.is_empty() {
            // Entries that retention was about to delete when a run was killed.
            let begin = LedgerPosition::default();
            for_each_event_behind(self.context.ledger(), begin, |event| {
                for path in &event.retired_entries {
                    unknown.remove(path);
                }
            })?;
        }
        verification.counts.unrecorded_entries = unknown.len() as u64;
        Ok(())
    }
}

impl Verification {
    /// Adds notes about entries in quarantines that this process may not list.
    fn add_hidden_notes(&mut self, hidden: &BTreeMap<&Path, u64>) {
        for (directory, count) in hidden {
            let entries = format_count(*count, "entry");
            self.notes.push(format!(
                "{entries} in the quarantine of {} NOT checked: only the owner of the archive can \
                 read them",
                directory.display()
            ));
        }
    }

    /// Adds a note about items that are missing, and that retention may have deleted.
    fn add_unknown_retired_note(&mut self, count: u64, (singular, plural): (&str, &str)) {
        let (items, verb, object) = match count {
            0 => return,
            1 => (singular, "is", "it"),
            _ => (plural, "are", "them"),
        };
        self.notes.push(format!(
            "{count} {items} that the ledger names {verb} missing; records that cannot be read may \
             say that retention deleted {object}"
        ));
    }

    fn add_notes(&mut self, claims: &ArchiveClaims) {
        let mut notes = Vec::new();
        if self.ledger.torn_bytes > 0 {
            notes.push(format!(
                "the ledger ends with {} bytes of an unfinished record: a run is at work, or was \
                 killed; the next run truncates them",
                self.ledger.torn_bytes
            ));
        }
        if self.counts.unrecorded_entries > 0 {
            let entries = match self.counts.unrecorded_entries {
                1 => "1 entry is".to_string(),
                count => format!("{count} entries are"),
            };
            notes.push(if claims.unread_records.is_empty() {
                format!(
                    "{entries} not in the ledger (written by the original script or an interrupted \
                     run)"
                )
            } else {
                format!("{entries} not in the records that can be read")
            });
        }
        notes.append(&mut self.notes);
        self.notes = notes;
    }

    /// Adds what a record claims about the archive.
    fn add_record(&mut self, record: &LedgerRecord, claims: &mut ArchiveClaims) {
        let event = &record.event;
        for WrittenEntry {
            path, digest, size, ..
        } in event.entries()
        {
            let other = claims
                .entries
                .insert(path.clone(), (*digest, *size, record.seq));
            if let Some((before, _, first)) = other.filter(|(before, ..)| before != digest) {
                let path = path.display();
                self.add_integrity_finding(
                    FindingSubject::Entry,
                    format!(
                        "the entry {path} was recorded twice: record {first} has the digest \
                         {before}, record {} another one",
                        record.seq
                    ),
                );
            }
        }
        for path in &event.retired_entries {
            self.counts.retired_entries += u64::from(claims.entries.remove(path).is_some());
        }
        for version in &event.retired_versions {
            claims.versions.remove(version);
        }
        let is_kept = matches!(
            event.operation,
            Operation::Seal | Operation::Save | Operation::Restore | Operation::Guard
        );
        if event.has_changed_memory() || is_kept {
            claims
                .versions
                .extend(event.baseline.iter().chain(&event.split_version));
        }
    }
}

/// Message for a head that is not in a ledger, which ends at `end`.
fn missing_head_message(
    end: LedgerPosition,
    head: (u64, Digest),
    known: &str,
    word: &str,
) -> String {
    let (seq, digest) = head;
    if seq > end.seq {
        format!(
            "the ledger ends with record {}, but record {seq} {known}: it was truncated or \
             replaced",
            end.seq
        )
    } else {
        format!("record {seq} does not have the {word} digest {digest}: the ledger was rewritten")
    }
}

/// Reads the whole ledger, and says where it ends. Heads that it has are taken out of
/// `missing`.
fn read_ledger(
    ledger: &dyn Ledger,
    verification: &mut Verification,
    claims: &mut ArchiveClaims,
    missing: &mut BTreeSet<(u64, Digest)>,
    progress: &mut ProgressReport<'_>,
) -> Result<LedgerPosition> {
    missing.remove(&(0, Digest::ZERO));
    let mut end = LedgerPosition::default();
    if let Some(mut scan) = ledger.scan(end)? {
        loop {
            let line = match scan.next_line() {
                Ok(Some(line)) => line,
                Ok(None) => {
                    verification.ledger.torn_bytes = scan.trailing_bytes()?;
                    break;
                }
                Err(error) => {
                    let first = scan.position().seq.saturating_add(1);
                    let can_continue = scan.skip_unreadable();
                    if !can_continue && error.kind() != ErrorKind::Integrity {
                        return Err(error);
                    }
                    if can_continue {
                        verification.add_error(FindingSubject::Ledger, &error);
                        let last = scan.position().seq;
                        claims.unread_records.push((first.min(last), last));
                        continue;
                    }
                    verification.add_integrity_finding(FindingSubject::Ledger, error.message());
                    claims.is_chain_broken = true;
                    break;
                }
            };
            let LedgerLine {
                number,
                record,
                problem,
            } = line;
            verification.counts.lines += 1;
            missing.remove(&scan.position().head());
            if let Some(problem) = problem {
                claims.is_chain_broken = true;
                let what = problem.description;
                if let Some(hint) = problem.restore_hint {
                    let error = Error::new(ErrorKind::Integrity, what);
                    let error = error.with_hint(EVIDENCE_REMEDY).with_hint(hint);
                    verification.add_error(FindingSubject::Ledger, &error);
                } else {
                    verification.add_integrity_finding(FindingSubject::Ledger, what);
                }
            }
            if let Some(record) = record {
                verification.add_record(&record, claims);
            }
            progress.step(VerifyProgress::Ledger(number))?;
        }
        end = scan.position();
        claims.is_chain_broken |= check_storage(ledger, verification)?;
    }
    (verification.ledger.seq, verification.ledger.sha256) = end.head();
    Ok(end)
}

/// Checks what a scan of the ledger does not show. Returns whether it lacks logged records.
fn check_storage(ledger: &dyn Ledger, verification: &mut Verification) -> Result<bool> {
    let report = ledger.check()?;
    verification.ledger.segments = report.segments;
    if report.repeated > 0 {
        let segments = match report.repeated {
            1 => "1 segment of the ledger repeats".to_string(),
            count => format!("{count} segments of the ledger repeat"),
        };
        verification.notes.push(format!(
            "{segments} records of ledger.jsonl: a run moves them, or was interrupted; a later run \
             completes that"
        ));
    }
    for error in report.all_errors() {
        verification.add_error(FindingSubject::Ledger, error);
    }
    Ok(report.rollback_error.is_some())
}

/// Returns the entries and the baseline versions that retention recorded as deleted behind a
/// position of the ledger.
fn names_retired_since(
    ledger: &dyn Ledger,
    from: LedgerPosition,
) -> Result<(HashSet<PathBuf>, HashSet<Digest>)> {
    let (mut entries, mut versions) = (HashSet::new(), HashSet::new());
    for_each_event_behind(ledger, from, |event| {
        entries.extend(event.retired_entries.iter().cloned());
        versions.extend(event.retired_versions.iter().copied());
    })?;
    Ok((entries, versions))
}

/// Calls `visit` with each event behind a position of the ledger, as far as that can be read.
fn for_each_event_behind(
    ledger: &dyn Ledger,
    from: LedgerPosition,
    mut visit: impl FnMut(&RunEvent),
) -> Result<()> {
    let Some(mut scan) = ledger.scan(from)? else {
        return Ok(());
    };
    loop {
        match scan.next_line() {
            Ok(Some(line)) => line.record.iter().for_each(|record| visit(&record.event)),
            Err(_) if scan.skip_unreadable() => {}
            Ok(None) | Err(_) => return Ok(()),
        }
    }
}
