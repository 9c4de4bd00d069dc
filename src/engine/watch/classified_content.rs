//! The state of a classified memory with its reason, the kind of its entry, and its drift.

use std::fmt::Display;
use std::time::Duration;

use crate::archive::EntryKind;
use crate::base::clock::Clock;
use crate::base::diff;
use crate::base::diff::drift::{self, DriftCounts, LineChange};
use crate::base::untrusted;
use crate::boundary::{
    Baseline, Boundary, BoundaryRule, Classification, MemoryAccumulator, describe_line_ends,
    with_line_ends_of,
};
use crate::lint::ScanSummary;
use crate::store::observation::MemoryContent;
use crate::store::scan_basis::ScanBasis;
use crate::store::state::State;
use crate::transport::Stamp;

/// Time limit of the search for edited lines.
const EDITS_DIFF_TIMEOUT: Duration = Duration::from_millis(50);

/// Reason of [`State::Missing`].
pub(in crate::engine) const NO_MEMORY_REASON: &str = "no memory file";

/// Reason of [`State::NoSep`].
const NO_BOUNDARY_REASON: &str = "no separator: the whole file would be archived";

/// Returns the state of a memory, apart from its size.
pub(in crate::engine) fn state_of(classification: &Classification) -> State {
    match classification.boundary.map(|found| found.rule) {
        None => State::NoSep,
        Some(BoundaryRule::Aligned(_)) => State::Drifted,
        Some(BoundaryRule::Behind(_)) => State::Behind,
        Some(BoundaryRule::Intact) if classification.is_clean => State::Clean,
        Some(BoundaryRule::Intact) => State::Scratch,
    }
}

/// Returns the kind of the entry that a reset writes of a memory; none where it writes none.
pub(in crate::engine) fn entry_kind_of(classification: &Classification) -> Option<EntryKind> {
    classification.archived_offset.map(|offset| match offset {
        0 => EntryKind::FullBackup,
        _ => EntryKind::Scratch,
    })
}

/// Says how many lines above the boundary the agent changed, without another diff; none without
/// drift.
pub(in crate::engine) fn describe_drift(classification: &Classification) -> Option<String> {
    let boundary = classification.boundary.filter(Boundary::is_drifted)?;
    Some(describe_edit_counts(
        boundary.added_lines,
        boundary.removed_lines,
    ))
}

/// Counts the lines above the boundary that the agent changed, by kind; none without drift. `prefix`
/// is the beginning of the memory.
pub(in crate::engine) fn count_drift(
    classification: &Classification,
    prefix: &[u8],
    clock: &dyn Clock,
) -> Option<DriftCounts> {
    let boundary = classification.boundary.filter(Boundary::is_drifted)?;
    let (new, _) = boundary.split(prefix);
    let old = with_line_ends_of(classification.version.as_ref()?.operator_part(), new);
    let deadline = clock.instant() + EDITS_DIFF_TIMEOUT;
    let diff = diff::compare_lines(&old, new, Some(deadline));
    (!diff.is_too_large).then(|| DriftCounts::of(&drift::classify_changes(&diff)))
}

/// A memory's content, and the state that follows from it.
#[derive(Clone)]
pub(in crate::engine) struct ClassifiedContent {
    pub content: MemoryContent,
    pub state: State,
    pub reason: String,
}

impl ClassifiedContent {
    /// Describes a memory that was read; `stamp` is the file's, `current` the baseline that
    /// `classification` was made with, and `findings` those of the scan.
    pub fn new(
        reading: &mut MemoryAccumulator,
        stamp: &Stamp,
        classification: &Classification,
        current: &Baseline,
        (findings, scan_basis): (ScanSummary, ScanBasis),
        clock: &dyn Clock,
    ) -> ClassifiedContent {
        let content = MemoryContent {
            size: reading.size(),
            lines: reading.line_count(),
            sha256: reading.digest(),
            modified_ns: stamp.modified,
            boundary: classification.boundary,
            scratch_lines: classification.scratch_lines,
            scratch_bytes: classification.scratch_bytes,
            entry_kind: entry_kind_of(classification),
            hidden: untrusted::count_hidden(reading.prefix()),
            findings,
            scan_basis,
        };
        let state = state_of(classification);
        let reason = describe_state(reading.prefix(), state, classification, current, clock);
        ClassifiedContent {
            content,
            state,
            reason,
        }
    }
}

/// Describes why a memory has its state, and how its line ends differ from those of its version.
fn describe_state(
    prefix: &[u8],
    state: State,
    classification: &Classification,
    current: &Baseline,
    clock: &dyn Clock,
) -> String {
    let found = classification.boundary.as_ref();
    let Some((found, version)) = found.zip(classification.version.as_ref()) else {
        return match state {
            State::NoSep => NO_BOUNDARY_REASON.to_string(),
            _ => String::new(),
        };
    };
    let (above, _) = found.split(prefix);
    let line_ends = describe_line_ends(above, version.operator_part());
    let reason = match state {
        State::Drifted => describe_edits(version.operator_part(), above, clock),
        State::Behind => describe_lag(version, current, clock),
        State::Scratch if classification.scratch_bytes == 0 && line_ends.is_none() => {
            "no scratch, but not the baseline's exact bytes".to_string()
        }
        _ => String::new(),
    };
    match line_ends {
        Some(line_ends) if reason.is_empty() => line_ends,
        Some(line_ends) => format!("{reason}; {line_ends}"),
        None => reason,
    }
}

/// Says that a memory is larger than its agent allows; none if it is not.
pub(in crate::engine) fn describe_oversize(size: u64, limit: u64) -> Option<String> {
    (size > limit).then(|| format!("over the limit of {limit} bytes"))
}

fn describe_edit_counts(added: impl Display, removed: impl Display) -> String {
    format!("rules edited: +{added} -{removed} lines")
}

/// Says how far a version is behind the current baseline: "behind by +3 -1 lines".
fn describe_lag(version: &Baseline, current: &Baseline, clock: &dyn Clock) -> String {
    let deadline = clock.instant() + EDITS_DIFF_TIMEOUT;
    let old = with_line_ends_of(version.bytes(), current.bytes());
    let (added, removed) = diff::count_changes(&old, current.bytes(), Some(deadline));
    format!("behind by +{added} -{removed} lines")
}

/// Counts the protected lines that are gone, names the edited lines, and counts the invisible
/// characters: "1 protected line gone, rules edited: L31 L58".
fn describe_edits(old: &[u8], new: &[u8], clock: &dyn Clock) -> String {
    let deadline = clock.instant() + EDITS_DIFF_TIMEOUT;
    let diff = diff::compare_lines(&with_line_ends_of(old, new), new, Some(deadline));
    if diff.is_too_large {
        return describe_edit_counts(diff.added, diff.removed);
    }
    let mut numbers: Vec<usize> = diff
        .hunks(0)
        .iter()
        .filter_map(|hunk| {
            diff.lines[hunk.changed_range.clone()]
                .iter()
                .find_map(|l| l.new_number.or(l.old_number))
        })
        .collect();
    let more = numbers.len() > 4;
    numbers.truncate(4);
    let numbers: Vec<String> = numbers.iter().map(|line| format!("L{line}")).collect();
    let changes = drift::classify_changes(&diff).into_iter();
    // Lost protection comes first: a narrow column cuts the end of a reason.
    let mut why = match changes.filter(LineChange::is_protection_gone).count() {
        0 => String::new(),
        1 => "1 protected line gone, ".to_string(),
        count => format!("{count} protected lines gone, "),
    };
    why.push_str(&format!(
        "rules edited: {}{}",
        numbers.join(" "),
        if more { " …" } else { "" }
    ));
    let hidden = untrusted::count_hidden(new);
    match hidden.invisible + hidden.controls {
        0 => {}
        1 => why.push_str(", 1 invisible character"),
        count => why.push_str(&format!(", {count} invisible characters")),
    }
    why
}
