//! Keys of the dialog about a timer: run it now, skip its next run, pause or resume it. A run is an
//! ordinary plan of a reset; the others are confirmed here.

use crate::console::command::Command;
use crate::console::keys::key::{Key, KeyCode};
use crate::console::keys::key_guard::KeyGuard;
use crate::console::keys::keymap::CONFIRM_KEY;
use crate::console::message::Effect;
use crate::console::model::Model;
use crate::console::model::plans::request_plan;
use crate::console::model::read_only::read_only_reason;
use crate::console::overlay::Overlay;
use crate::console::screens::log::state::schedule::TimerDialog;
use crate::console::screens::log::update::schedule::timer_run_refusal;
use crate::console::screens::reset::state::PlanRequest;
use crate::console::widgets::plan_pane::{Confirmation, PlanPrompt, ShownPlan};
use crate::unattended::schedule::ScheduleChange;

/// Handles a key of the dialog.
pub(super) fn handle_timer_key(
    model: &mut Model,
    mut dialog: Box<TimerDialog>,
    key: Key,
) -> Vec<Effect> {
    let now = model.now.elapsed;
    if key.code == KeyCode::Esc {
        return Vec::new();
    }
    if dialog.plan.is_some() && dialog.guard.intercepts_key(now) {
        model.overlay = Some(Overlay::Timer(dialog));
        return Vec::new();
    }
    let typed = key.printable_char();
    if let Some(plan) = dialog.plan.take_if(|_| typed == Some(CONFIRM_KEY)) {
        return confirm(model, plan);
    }
    let change = match typed {
        _ if dialog.plan.is_some() => {
            let text = format!("{CONFIRM_KEY} confirms, Esc leaves; nothing was changed");
            model.show_hint(&text);
            None
        }
        Some('r') => return plan_run(model, dialog),
        Some('s') => {
            let change = dialog.row.skip_change();
            if change.is_none() {
                model.show_hint(dialog.row.no_skip_reason());
            }
            change
        }
        Some('p') => Some(dialog.row.pause_change()),
        Some('q') => return Vec::new(),
        _ => None,
    };
    if let Some(plan) = change {
        dialog.guard = KeyGuard::new(now);
        let prompt = PlanPrompt::new(Confirmation::SingleKey, now);
        dialog.plan = Some(ShownPlan {
            request: (),
            plan,
            prompt,
        });
    }
    model.overlay = Some(Overlay::Timer(dialog));
    Vec::new()
}

/// Requests the plan of a reset of the timer's agents.
fn plan_run(model: &mut Model, dialog: Box<TimerDialog>) -> Vec<Effect> {
    if let Some(why) = timer_run_refusal(model, &dialog.row) {
        model.show_hint(&why);
        model.overlay = Some(Overlay::Timer(dialog));
        return Vec::new();
    }
    request_plan(model, PlanRequest::Reset(dialog.row.group.agents), false)
}

/// Requests the change that was confirmed.
fn confirm(model: &mut Model, shown: ShownPlan<(), ScheduleChange>) -> Vec<Effect> {
    if let Some(why) = read_only_reason(model) {
        model.report_warning(why);
        return Vec::new();
    }
    if shown.prompt.is_expired(model.now.elapsed) {
        let key = model.key_hint(Command::ControlTimer);
        let text = format!("the plan was older than a minute; {key} makes it again");
        model.report_info(text);
        return Vec::new();
    }
    model.log.schedule.is_changing = true;
    vec![Effect::ChangeSchedule(shown.plan)]
}
