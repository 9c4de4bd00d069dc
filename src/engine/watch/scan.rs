//! Scans what agents wrote for secrets and injections: memories when they are observed, and entries
//! before they are recorded. A scan never fails: what it cannot read, it reports as not scanned.

use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::archive::{EntryDraft, EntryKind, QUARANTINE_DIRECTORY_NAME, WrittenEntry};
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::boundary::{Boundary, Classification, MemoryAccumulator};
use crate::config::Agent;
use crate::engine::baselines::lint::{LintDecisions, end_of_last_separator};
use crate::engine::watch::Scanner;
use crate::lint::{
    FleetFacts, LintInput, ScanReport, ScanSummary, TextRole, mask_secrets, redact_secrets, scan,
};
use crate::store::record::RunEvent;
use crate::store::scan_basis::ScanBasis;
use crate::transport::SpecialFile;

/// Maximum number of bytes of an entry that are scanned. It bounds the time, to about a second, and
/// the memory, to about sixty megabytes, also for a text that was made to cost the most.
const MAX_SCANNED_BYTES: usize = 4 << 20;

/// Maximum number of bytes of a memory that are scanned: it is observed at each change.
const MAX_OBSERVED_BYTES: usize = 256 << 10;

/// Maximum number of line feeds that are not scanned: without notes, that is all that follows the
/// separator of most baselines.
const MAX_LINE_FEEDS_UNSCANNED: usize = 16;

/// How long the decisions of `[lint]` are used before they are read again.
const MAX_DECISION_AGE: Duration = Duration::from_secs(60);

/// The decisions of `[lint]`, and when they were read.
#[derive(Default)]
pub(in crate::engine) struct DecisionCache(Mutex<Option<(Instant, Arc<ScanDecisions>)>>);

/// The decisions of `[lint]` that scans use.
pub(in crate::engine) struct ScanDecisions {
    decisions: LintDecisions,
    pub basis: ScanBasis,
}

/// An entry that was scanned.
pub(in crate::engine) struct ScannedEntry {
    /// What was found.
    pub summary: ScanSummary,
    /// Its text without secrets; none where nothing was found, where a part of it was not scanned, or
    /// where there are too many.
    pub redacted: Option<Vec<u8>>,
    /// Why nothing of it was scanned, if so.
    pub failure: Option<Error>,
}

/// A text to scan.
struct ScanInput<'t> {
    text: &'t [u8],
    role: TextRole,
    /// What the operator put into it.
    operator_text: Option<&'t [u8]>,
}

impl Scanner {
    /// Returns the decisions of `[lint]`; the defaults if they cannot be read, which the verb `lint`
    /// reports.
    pub(in crate::engine) fn scan_decisions(&self) -> Arc<ScanDecisions> {
        let now = self.context.clock().instant();
        let cache = &self.scan_decisions.0;
        let lock = || cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((read_at, decisions)) = &*lock()
            && now.duration_since(*read_at) < MAX_DECISION_AGE
        {
            return Arc::clone(decisions);
        }
        // The files are read without the lock: a disk may hang.
        let decisions = self.lint.load_lint_decisions().unwrap_or_default();
        let decisions = Arc::new(ScanDecisions {
            basis: self.scan_basis(&decisions),
            decisions,
        });
        *lock() = Some((now, Arc::clone(&decisions)));
        decisions
    }

    /// Makes sure that the next scan reads the files of `[lint]`.
    pub(in crate::engine) fn forget_scan_decisions(&self) {
        let cache = &self.scan_decisions.0;
        *cache.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn scan_basis(&self, decisions: &LintDecisions) -> ScanBasis {
        let today = self.context.clock().now().date_naive();
        let config = self.context.config().text_digest();
        let source = decisions.source.unwrap_or(Digest::ZERO);
        let allowances = decisions.allowances.iter();
        let expired = allowances.filter(|it| !it.is_valid_on(today)).count();
        let program = env!("MEMORY_SHEPHERD_VERSION");
        let parts = format!("{program} {config} {source} {expired}");
        ScanBasis::of(&parts)
    }

    /// Describes an object in place of a memory for messages and the log of states, which others may
    /// read: secrets in the target of a symlink are masked.
    pub(in crate::engine) fn describe_special(
        &self,
        agent: &Agent,
        special: &SpecialFile,
    ) -> String {
        let is_local = agent.host().is_none();
        self.mask_secrets_in(&special.describe_in_place_of_memory(is_local))
    }

    /// Returns a message with the secrets masked that an agent may have put into it.
    pub(in crate::engine) fn mask_secrets_in(&self, message: &str) -> String {
        let words = self.scan_decisions().decisions.words();
        String::from_utf8_lossy(&mask_secrets(message.as_bytes(), &words)).into_owned()
    }

    /// Scans a text.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`]: a rule panicked. Its message is left out, because it may quote the
    /// text.
    fn scan_text(
        &self,
        agent: &Agent,
        input: &ScanInput<'_>,
        decisions: &ScanDecisions,
    ) -> Result<ScanReport> {
        let settings = self.lint.lint_settings(Some(agent), &decisions.decisions);
        let lint_input = LintInput {
            agent: Some(&agent.name),
            path: &agent.observed_path().to_string_lossy(),
            text: input.text,
            role: input.role,
            separator: agent.separator(),
            facts: &FleetFacts::default(),
        };
        // A fault of a rule must not stop a reset, whose memory is replaced already.
        let scan = || scan(&lint_input, input.operator_text, &settings);
        catch_unwind(AssertUnwindSafe(scan))
            .map_err(|_| Error::new(ErrorKind::Internal, "a rule of the scan panicked"))
    }

    /// Scans what the agent wrote into a memory: its scratch, or all of a memory that drifted.
    pub(in crate::engine) fn scan_memory(
        &self,
        agent: &Agent,
        reading: &MemoryAccumulator,
        classification: &Classification,
        decisions: &ScanDecisions,
    ) -> ScanSummary {
        let prefix = reading.prefix();
        let boundary = classification.boundary;
        // Rules with other line ends are the operator's, too.
        let intact = boundary.filter(|boundary| !boundary.is_drifted());
        let start = intact.map_or(0, |boundary| boundary.offset.min(prefix.len()));
        let end = prefix.len().min(start + MAX_OBSERVED_BYTES);
        let text = &prefix[start..end];
        let operator_text = classification.version.as_ref().map(|it| it.bytes());
        let input = if intact.is_some() {
            ScanInput {
                text,
                role: TextRole::Scratch,
                operator_text: None,
            }
        } else {
            ScanInput {
                text,
                role: drifted_role(text, boundary, agent),
                operator_text,
            }
        };
        let rest = reading.size().saturating_sub(end as u64);
        if text.len() <= MAX_LINE_FEEDS_UNSCANNED && text.iter().all(|byte| *byte == b'\n') {
            return ScanSummary {
                unscanned_bytes: rest,
                ..ScanSummary::default()
            };
        }
        match self.scan_text(agent, &input, decisions) {
            Ok(report) => {
                let mut summary = ScanSummary::from(&report);
                summary.unscanned_bytes += rest;
                summary
            }
            Err(error) => {
                let path = agent.observed_path().display();
                tracing::warn!(agent = agent.name, "cannot scan {path}: {error}");
                ScanSummary::of_unscanned(text.len() as u64 + rest)
            }
        }
    }

    /// Starts an entry of an agent: in its quarantine where entries with findings are kept there.
    ///
    /// # Errors
    /// The system's error; nothing was archived.
    pub(in crate::engine) fn start_entry(&self, agent: &Agent) -> Result<EntryDraft> {
        let subdir = Path::new(&agent.archive_subdir);
        if agent.archive_findings.has_quarantine() {
            let quarantine = subdir.join(QUARANTINE_DIRECTORY_NAME);
            self.context.archive().start_entry(&quarantine)
        } else {
            self.context.archive().start_entry(subdir)
        }
    }

    /// Scans an entry of an event, as it is on the disk.
    pub(in crate::engine) fn scan_entry(
        &self,
        agent: &Agent,
        event: &RunEvent,
        entry: &WrittenEntry,
    ) -> ScannedEntry {
        self.try_scan_entry(agent, event, entry)
            .unwrap_or_else(|error| ScannedEntry {
                summary: ScanSummary::of_unscanned(entry.size),
                redacted: None,
                failure: Some(error),
            })
    }

    fn try_scan_entry(
        &self,
        agent: &Agent,
        event: &RunEvent,
        entry: &WrittenEntry,
    ) -> Result<ScannedEntry> {
        let text = self.read_for_scan(entry)?;
        let is_memory = matches!(entry.kind, EntryKind::FullBackup | EntryKind::Late);
        let version = event.split_version.or(event.baseline);
        let operator_text = version
            .filter(|_| is_memory)
            .and_then(|version| self.context.baseline_versions().read_version(version).ok());
        let role = if is_memory {
            let boundary = event
                .boundary
                .filter(|_| entry.kind == EntryKind::FullBackup);
            drifted_role(&text, boundary, agent)
        } else {
            TextRole::Scratch
        };
        let input = ScanInput {
            text: &text,
            role,
            operator_text: operator_text.as_ref().map(|text| text.as_slice()),
        };
        let report = self.scan_text(agent, &input, &self.scan_decisions())?;
        let mut summary = ScanSummary::from(&report);
        summary.unscanned_bytes += entry.size.saturating_sub(text.len() as u64);
        let is_whole = summary.unscanned_bytes == 0;
        Ok(ScannedEntry {
            redacted: if is_whole && !summary.is_clean() {
                redact_secrets(&text, &report.places)
            } else {
                None
            },
            summary,
            failure: None,
        })
    }

    /// Reads the beginning of an entry.
    fn read_for_scan(&self, entry: &WrittenEntry) -> Result<Vec<u8>> {
        let file = self.context.archive().open_entry(&entry.path)?;
        let mut text = Vec::with_capacity(entry.size.min(MAX_SCANNED_BYTES as u64) as usize);
        file.take(MAX_SCANNED_BYTES as u64)
            .read_to_end(&mut text)
            .with_path("read", &self.context.archive().root().join(&entry.path))?;
        Ok(text)
    }
}

/// Returns the role of a memory whose part above the boundary may be the agent's.
fn drifted_role(text: &[u8], boundary: Option<Boundary>, agent: &Agent) -> TextRole {
    TextRole::Memory {
        scratch_start: match boundary {
            Some(boundary) => boundary.offset.min(text.len()),
            None => end_of_last_separator(text, agent.separator()),
        },
        is_intact: false,
    }
}
