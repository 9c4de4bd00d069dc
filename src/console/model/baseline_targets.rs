//! What a command over baselines is about: the baseline under the cursor, the marked ones, the version
//! to restore.

use super::Model;
use super::targets::{check_subject_is_reset, no_subject_reason, subject_agent};
use crate::console::command::require;
use crate::console::screen::Screen;
use crate::console::screens::baselines::state::NO_BASELINE_REASON;

/// Returns the name of the baseline that a key is about: that of the agent, where the screen shows
/// agents.
pub fn subject_baseline(model: &Model) -> Option<&str> {
    match model.screen {
        Screen::Baselines => return model.baselines.subject(),
        Screen::Verify => return model.verify.subject(&model.baselines),
        Screen::Editor => return model.editor.as_ref().map(|it| it.opened.name.as_str()),
        _ => {}
    }
    let row = model.find_row(subject_agent(model)?);
    row?.baseline.as_deref()
}

/// Checks that a key is about a baseline.
pub fn check_subject_baseline(model: &Model) -> Result<(), String> {
    check_subject_is_reset(model)?;
    let reason = match model.screen {
        Screen::Baselines => NO_BASELINE_REASON.to_string(),
        _ => no_subject_reason(model),
    };
    require(subject_baseline(model).is_some(), reason)
}

/// Returns the version that the restore key would put back, in the engine's words.
///
/// # Errors
/// The version under the cursor cannot be put back.
pub fn restorable_version(model: &Model) -> Result<String, String> {
    match model.screen {
        Screen::Baselines => Ok(model.baselines.restorable_version()?.argument()),
        _ => Ok("sealed".to_string()),
    }
}

/// Returns the baselines that a plan is for.
pub fn target_baselines(model: &Model) -> Vec<String> {
    if model.screen == Screen::Baselines {
        return model.baselines.targets();
    }
    let subject = subject_baseline(model);
    subject.map(str::to_string).into_iter().collect()
}
