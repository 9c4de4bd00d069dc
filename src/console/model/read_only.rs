//! Whether the operator allows changes, and the keys that allow them.

use std::time::Duration;

use super::Model;
use crate::console::command::{Command, require};
use crate::console::keys::keymap::CONFIRM_KEY;
use crate::console::overlay::Overlay;

/// Why the console started with `--read-only` refuses changes.
const FORCED_REASON: &str = "started with --read-only";

/// Whether changes are allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadOnlyState {
    /// `--read-only` is set; it cannot be switched off.
    pub is_forced: bool,
    /// Switched on by the operator or by `protect = readonly` of the fleet.
    pub is_on: bool,
    /// Whether `protect = readonly` of the fleet switches it on again.
    pub is_set_by_config: bool,
    /// When the unlock of agents protected as read-only expires.
    pub unlocked_until: Option<Duration>,
}

/// Whether agents protected as read-only are unlocked.
pub fn is_unlocked(model: &Model) -> bool {
    model
        .read_only
        .unlocked_until
        .is_some_and(|until| model.now.elapsed < until)
}

/// Returns the reason why changes are refused, if they are.
pub fn read_only_reason(model: &Model) -> Option<String> {
    match model.read_only {
        ReadOnlyState {
            is_forced: true, ..
        } => Some(FORCED_REASON.to_string()),
        ReadOnlyState { is_on: true, .. } => {
            let key = model.key_hint(Command::ToggleReadOnly);
            Some(format!("read-only; {key} switches it off"))
        }
        _ => None,
    }
}

/// Switches read-only on, or asks whether to switch it off.
pub fn toggle_read_only(model: &mut Model) {
    if model.read_only.is_on {
        model.overlay = Some(Overlay::UnlockReadOnly);
    } else {
        model.read_only.is_on = true;
        model.read_only.unlocked_until = None;
        let key = model.key_hint(Command::ToggleReadOnly);
        let what = "again turns it off and unlocks protected agents";
        model.report_info(format!("read-only; {key} {what}"));
    }
}

/// Checks that changes are not refused.
pub fn check_writable(model: &Model) -> Result<(), String> {
    read_only_reason(model).map_or(Ok(()), Err)
}

/// Checks that the console was not started read-only.
pub fn check_started_writable(model: &Model) -> Result<(), String> {
    require(!model.read_only.is_forced, FORCED_REASON)
}

/// Names the keys that unlock an agent protected as read-only, and for how long.
pub fn unlock_hint(model: &Model) -> String {
    if model.read_only.is_forced {
        return "quit and start without --read-only".to_string();
    }
    let key = model.key_hint(Command::ToggleReadOnly);
    // Where read-only is off, the first key switches it on.
    let keys = if model.read_only.is_on {
        format!("{key} {CONFIRM_KEY}")
    } else {
        format!("{key} {key} {CONFIRM_KEY}")
    };
    format!("{keys} unlocks it for 30 minutes")
}
