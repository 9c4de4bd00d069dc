//! What a result says of an event that could not be appended to the ledger.

use crate::base::error::{Error, ErrorKind};

/// Adds to a result that its event is not recorded, and why. `what` has no reason.
pub(super) fn append_unrecorded_note(
    what: &str,
    error: &Error,
    note: &mut Option<String>,
    kind: &mut Option<ErrorKind>,
    hints: &mut Vec<String>,
) {
    *note = Some(match note.take() {
        // The ledger refused the agent's history, and now its record.
        Some(before) if before.contains(error.message()) => format!("{before}; {what}"),
        Some(before) => format!("{before}; {what}: {error}"),
        None => format!("{what}: {error}"),
    });
    let known = kind.unwrap_or(ErrorKind::Partial);
    *kind = Some(known.more_serious(error.kind()));
    for hint in error.hints() {
        if !hints.contains(hint) {
            hints.push(hint.clone());
        }
    }
}
