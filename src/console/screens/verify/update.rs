//! What the verify screen does: starts and stops a verification, shows it, and leads from a finding
//! to the baseline that it is about.

use crate::base::error::{Error, ErrorKind};
use crate::console::age::format_age;
use crate::console::command::{Command, require};
use crate::console::message::Effect;
use crate::console::model::Model;
use crate::console::model::plans::check_baseline_planning;
use crate::console::screen::Screen;
use crate::console::screens::baselines;
use crate::console::screens::log::state::MessageLevel;
use crate::console::screens::verify::state::{VerifyResult, VerifyStage};
use crate::console::update::plan;
use crate::engine::{BaselineState, Verification, VerifyProgress};

/// Goes to the screen; verifies if that was not done yet.
pub fn open(model: &mut Model) -> Vec<Effect> {
    model.go_to_screen(Screen::Verify);
    match model.verify.stage {
        VerifyStage::Never => start(model),
        _ => vec![Effect::LoadBaselines],
    }
}

/// Goes to the screen and verifies, unless a verification runs.
pub fn start(model: &mut Model) -> Vec<Effect> {
    model.go_to_screen(Screen::Verify);
    if model.verify.is_running() {
        let key = model.key_hint(Command::Quit);
        model.show_hint(&format!("a verification runs; {key} stops it"));
        return Vec::new();
    }
    model.verify.stage = VerifyStage::Running {
        started_at: model.now.elapsed,
        progress: None,
        is_cancelled: false,
    };
    model.verify.list = Default::default();
    model.is_dirty = true;
    vec![Effect::Verify, Effect::LoadBaselines]
}

/// Stops the verification, if one runs, or quits.
pub fn cancel_or_quit(model: &mut Model) -> Vec<Effect> {
    if !model.verify.can_cancel() {
        return plan::quit(model);
    }
    if let VerifyStage::Running { is_cancelled, .. } = &mut model.verify.stage {
        *is_cancelled = true;
        let key = model.key_hint(Command::Quit);
        model.show_hint(&format!("stopping the verification; {key} again quits"));
        return vec![Effect::CancelVerify];
    }
    Vec::new()
}

/// Shows the progress.
pub fn handle_progress(model: &mut Model, step: VerifyProgress) {
    if let VerifyStage::Running { progress, .. } = &mut model.verify.stage {
        *progress = Some(step);
        model.is_dirty |= model.screen == Screen::Verify;
    }
}

/// Shows the result, and says so on other screens.
pub fn handle_result(model: &mut Model, outcome: Result<Box<Verification>, Error>) -> Vec<Effect> {
    let VerifyStage::Running { started_at, .. } = model.verify.stage else {
        return Vec::new();
    };
    model.is_dirty = true;
    match &outcome {
        Err(error) if error.kind() == ErrorKind::Interrupted => {
            model.report_warning(error.message());
        }
        Err(error) => model.report_error(error.to_line()),
        Ok(_) => {}
    }
    let failures = match &outcome {
        Ok(found) => found.findings.len() as u64 + found.omitted_findings,
        Err(_) => 0,
    };
    if failures > 0 && model.screen != Screen::Verify {
        let key = model.key_hint(Command::GoVerify);
        let text = match failures {
            1 => format!("verification: 1 failure; {key} shows it"),
            count => format!("verification: {count} failures; {key} shows them"),
        };
        model.report_error(text);
    } else if failures == 0
        && let Ok(found) = &outcome
    {
        let (level, text) = match found.describe_unsealed() {
            Some(unsealed) => (
                MessageLevel::Warn,
                format!("verification: nothing wrong, but {unsealed}"),
            ),
            None => (
                MessageLevel::Info,
                "verification: nothing wrong".to_string(),
            ),
        };
        model.report(level, text);
    }
    let result = VerifyResult {
        outcome: outcome.map(|found| *found).map_err(|error| error.to_line()),
        ended_at: model.now.local_time,
        duration: model.now.elapsed.saturating_sub(started_at),
        listed: None,
        is_outdated: false,
    };
    model.verify.stage = VerifyStage::Done(Box::new(result));
    vec![Effect::LoadBaselines]
}

/// Checks that the row under the cursor is about a baseline.
pub fn check_subject(model: &Model) -> Result<(), String> {
    let subject = model.verify.subject(&model.baselines);
    require(subject.is_some(), "the row is about no baseline")
}

/// Checks that a change of the baseline of the row under the cursor can be planned.
pub fn check_change(model: &Model) -> Result<(), String> {
    check_baseline_planning(model)?;
    check_subject(model)
}

/// Whether a restore or a seal of the baseline of the row under the cursor would write anything.
pub fn would_write(model: &Model, command: Command) -> bool {
    let subject = model.verify.subject(&model.baselines);
    let summary = subject.and_then(|name| model.baselines.find(name));
    summary.is_some_and(|it| {
        let is_changed = it.sealed != it.sha256;
        match command {
            Command::PlanRestore => is_changed && it.sealed.is_some(),
            _ => is_changed || it.state == BaselineState::Unsigned,
        }
    })
}

/// Checks that there is a report.
pub fn check_report(model: &Model) -> Result<(), String> {
    require(
        model.verify.report(&model.baselines).is_some(),
        "no verification yet",
    )
}

/// Opens the evidence about the baseline of the row under the cursor.
pub fn open_selected(model: &mut Model) -> Vec<Effect> {
    match model.verify.subject(&model.baselines).map(str::to_string) {
        Some(name) => baselines::update::open_evidence(model, name),
        None => Vec::new(),
    }
}

/// Moves the cursor by rows.
pub fn move_cursor(model: &mut Model, by: isize) {
    let rows = model.verify.rows(&model.baselines);
    model.verify.list = model.verify.list.stepped(by, &rows[..]);
}

/// Returns the ages on the screen.
pub fn visible_ages(model: &Model) -> Vec<String> {
    match &model.verify.stage {
        VerifyStage::Done(result) => vec![format_age(model.now.local_time, result.ended_at)],
        _ => Vec::new(),
    }
}
