//! Checks of the segments that a scan does not read, because their records are in the active file or
//! in other segments.

use std::path::Path;

use super::active_lines::{ActiveDifference, ActiveLines};
use super::files::LedgerFiles;
use super::segment::{Segment, SegmentLines};
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind, Result};
use crate::store::ledger::LedgerCheck;
use crate::store::record_line::parse_record_header;

/// Checks the segments in the directory of a ledger.
///
/// # Errors
/// The system's error.
pub fn check_segments(files: &LedgerFiles) -> Result<LedgerCheck> {
    let mut report = LedgerCheck::default();
    let first = files.first_seq()?;
    let listed = files.list_segments()?;
    for name in listed.foreign_names {
        let path = files.path().with_file_name(name);
        let message = format!("{} is not a segment of the ledger", path.display());
        let error = Error::new(ErrorKind::Integrity, message);
        report.errors.push(error.with_hint("move it away"));
    }
    let is_repeated = |it: &Segment| first.is_some_and(|first| it.first >= first);
    let (repeated, earlier): (Vec<_>, Vec<_>) = listed.segments.into_iter().partition(is_repeated);
    for segment in earlier {
        if first.is_some_and(|first| segment.last >= first) || !files.segments()?.contains(&segment)
        {
            let error = segment.damage_error("has records that other files of the ledger have");
            report.errors.push(error);
        } else {
            report.segments += 1;
        }
    }
    compare_with_active(files, &repeated, &mut report)?;
    Ok(report)
}

/// Checks the segments whose records the active file has as well, or should have.
///
/// # Errors
/// The first segment that differs from the active file; the system's error.
pub fn check_repeated_segments(files: &LedgerFiles) -> Result<()> {
    let Some(first) = files.first_seq()? else {
        return Ok(());
    };
    let mut repeated = files.list_segments()?.segments;
    repeated.retain(|segment| segment.first >= first);
    let mut report = LedgerCheck::default();
    compare_with_active(files, &repeated, &mut report)?;
    let mut errors = report.errors.into_iter().chain(report.rollback_error);
    errors.next().map_or(Ok(()), Err)
}

/// Compares segments with the same records in the active file. A segment that is undamaged and
/// differs shows that the active file is not the one that the segments were written from.
fn compare_with_active(
    files: &LedgerFiles,
    segments: &[Segment],
    report: &mut LedgerCheck,
) -> Result<()> {
    let (Some(active), Some(first)) = (files.active(), files.first_seq()?) else {
        return Ok(());
    };
    let mut difference: Option<(ActiveDifference, &Segment)> = None;
    let mut last_seq = 0;
    let mut lines = ActiveLines::new(active, files.path(), first);
    for segment in segments {
        if lines.next_seq() > segment.first {
            lines = ActiveLines::new(active, files.path(), first);
        }
        if let Err(error) = check_chain(segment) {
            let error = match lines.skip_to(segment.last) {
                Ok(true) if error.kind() == ErrorKind::Integrity => leftover_error(&error),
                _ => error,
            };
            report.errors.push(error);
            continue;
        }
        match lines.find_difference(segment) {
            Ok(None) => report.repeated += 1,
            Ok(Some(found)) => {
                last_seq = last_seq.max(segment.last);
                difference.get_or_insert((found, segment));
            }
            Err(error) => {
                // A broken line of the active file, which every further segment would meet again.
                report.errors.push(error);
                break;
            }
        }
    }
    if let Some((found, segment)) = difference {
        let error = match found {
            ActiveDifference::Other(seq) if seq == first => {
                other_active_error(files.path(), first, last_seq)
            }
            _ => older_active_error(files.path(), found, segment, last_seq),
        };
        report.rollback_error = Some(error);
    }
    Ok(())
}

/// Returns the error of a damaged segment whose records the active file has: no backup has it.
fn leftover_error(error: &Error) -> Error {
    Error::new(error.kind(), error.message()).with_hint(
        "move it away: ledger.jsonl has its records, and the next run that moves them writes it again",
    )
}

/// Checks that the lines of a segment continue each other.
///
/// # Errors
/// A segment that is damaged.
fn check_chain(segment: &Segment) -> Result<()> {
    let mut lines = SegmentLines::open(segment)?;
    let mut line = Vec::new();
    let mut previous: Option<Digest> = None;
    while lines.read_line(&mut line) {
        let number = lines.line_number();
        let is_next = parse_record_header(&line).is_ok_and(|header| {
            header.seq.checked_sub(segment.first) == Some(number - 1)
                && previous.is_none_or(|it| it == header.previous_digest)
        });
        if !is_next {
            let why = format!("is broken at line {number}: it does not continue the line before");
            return Err(segment.damage_error(&why));
        }
        previous = Some(Digest::of(&line));
    }
    Ok(())
}

/// Returns the error for an active file that has no record of its segments, which are undamaged.
fn other_active_error(path: &Path, first: u64, last_seq: u64) -> Error {
    let ledger = path.display();
    let message = format!(
        "the ledger {ledger} is not the one of its segments, which have records up to {last_seq}: its \
         first record, {first}, is another one"
    );
    Error::new(ErrorKind::Integrity, message).with_hint(format!(
        "if a new ledger was started, move ledger.jsonl, reset.log and reset.log.old away, and the next run \
         continues behind record {last_seq}; to go on with the new one, move the segments away"
    ))
}

/// Returns the error for an active file that segments contradict, which are undamaged.
fn older_active_error(
    path: &Path,
    difference: ActiveDifference,
    segment: &Segment,
    last_seq: u64,
) -> Error {
    let ledger = path.display();
    let message = match difference {
        ActiveDifference::Missing(seq) => format!(
            "the ledger {ledger} is older than its segments: it ends before record {seq}, and they \
             have records up to {last_seq}"
        ),
        ActiveDifference::Other(seq) => format!(
            "the ledger {ledger} has another record {seq} than its segment {}, and both are intact: \
             most likely ledger.jsonl was replaced by an older one, and runs have gone on with it",
            segment.file_name()
        ),
    };
    Error::new(ErrorKind::Integrity, message).with_hint(format!(
        "keep a copy of ledger.jsonl: only that has what runs have recorded since it was replaced; \
         restore the newest ledger.jsonl from a backup, or, without one, move it, reset.log and \
         reset.log.old away: the next run continues behind record {last_seq}"
    ))
}
