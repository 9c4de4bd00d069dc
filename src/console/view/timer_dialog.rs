//! Draws the dialog about a timer: the choices, or the plan that waits for its confirmation.

use ratatui::layout::Rect;

use crate::console::canvas::{Canvas, fit_end_of_sentence, fit_start_of_sentence};
use crate::console::frame::KEYS_IGNORED_NOTICE;
use crate::console::keymap::CONFIRM_KEY;
use crate::console::model::Model;
use crate::console::screens::log::state::schedule::{TimerDialog, TimerSource};
use crate::console::screens::log::view::schedule::format_moment;
use crate::console::theme::Role;
use crate::schedule::{ScheduleAction, ScheduleChange, UnitScope};

/// A line: its pieces with their roles, the first one a key or empty.
struct DialogLine {
    key: String,
    text: String,
    role: Role,
}

impl DialogLine {
    fn text(text: String, role: Role) -> DialogLine {
        DialogLine {
            key: String::new(),
            text,
            role,
        }
    }

    /// A choice; dim, with the reason, if it is not possible now.
    fn choice(key: char, text: String, refusal: Option<String>) -> DialogLine {
        match refusal {
            None => DialogLine {
                key: key.to_string(),
                text,
                role: Role::Text,
            },
            Some(why) => DialogLine {
                key: key.to_string(),
                text: format!("{text} ({why})"),
                role: Role::Disabled,
            },
        }
    }
}

pub(super) fn draw(model: &Model, dialog: &TimerDialog, canvas: &mut Canvas<'_>) {
    let mut lines = match &dialog.change {
        None => choice_lines(model, dialog),
        Some(change) => plan_lines(model, dialog, change),
    };
    if model.key_guard_notice_until().is_some() {
        lines.pop();
        lines.push(DialogLine::text(
            KEYS_IGNORED_NOTICE.to_string(),
            Role::Warn,
        ));
    } else if let Some(message) = &model.last_message {
        // The dialog covers the row of messages.
        lines.push(DialogLine::text(message.text.clone(), Role::Warn));
    }
    let height = lines.len() as u16 + 1;
    let y = canvas.area.height.saturating_sub(height);
    canvas.clear(Rect::new(0, y, canvas.area.width, height));
    canvas.draw_rule(y);
    for (line, y) in lines.iter().zip(y + 1..) {
        let x = canvas.put_text(1, y, &line.key, key_role(line));
        let x = if line.key.is_empty() { x } else { x + 1 };
        let room = usize::from(canvas.width().saturating_sub(x + 1));
        let text = if line.key.is_empty() {
            fit_end_of_sentence(&line.text, room)
        } else {
            fit_start_of_sentence(&line.text, room)
        };
        canvas.put_text(x, y, &text, line.role);
    }
}

fn key_role(line: &DialogLine) -> Role {
    if line.role == Role::Disabled {
        Role::Disabled
    } else {
        Role::Key
    }
}

fn choice_lines(model: &Model, dialog: &TimerDialog) -> Vec<DialogLine> {
    let row = &dialog.row;
    let source = match row.source {
        TimerSource::Manager(UnitScope::System) => ", a timer of the system",
        TimerSource::Manager(UnitScope::User) => ", a timer of the user",
        TimerSource::Unmanaged => ", by `schedule run` or cron",
    };
    let agents = match row.group.agents.as_slice() {
        [one] => format!("resets {one}"),
        many => format!("resets {} agents", many.len()),
    };
    let skip = match (row.skip_change(), row.group.next, row.group.after_next) {
        (Some(_), Some(next), Some(after)) => format!(
            "skip the run due {}; the one due {} runs",
            format_moment(model, next),
            format_moment(model, after)
        ),
        _ => "skip the next run".to_string(),
    };
    let no_skip = row
        .skip_change()
        .is_none()
        .then(|| row.no_skip_reason().to_string());
    let pause = match row.pause_change().action {
        ScheduleAction::Resume => {
            let pause = row.pause().map(|it| it.describe());
            let skip = row.group.skip.as_ref().map(|it| it.describe());
            let holds: Vec<String> = pause.into_iter().chain(skip).collect();
            format!("resume: {}", holds.join("; "))
        }
        _ => "pause: no scheduled reset until it is resumed".to_string(),
    };
    vec![
        DialogLine::text(format!("{}{source}: {agents}", row.name), Role::Title),
        DialogLine::choice(
            'r',
            "run now: opens the plan of a reset of its agents".to_string(),
            model.timer_run_refusal(row),
        ),
        DialogLine::choice('s', skip, no_skip),
        DialogLine::choice('p', pause, None),
        DialogLine::text("Esc closes".to_string(), Role::Dim),
    ]
}

fn plan_lines(model: &Model, dialog: &TimerDialog, change: &ScheduleChange) -> Vec<DialogLine> {
    let verb = TimerDialog::verb(change);
    let line = format!("schedule {verb} {}", dialog.row.argument());
    let line = model.config.invocation.command_line(&line);
    let effect = match change.action {
        ScheduleAction::Resume => "The next run that is due resets again.",
        ScheduleAction::Pause => {
            "Timers go on, and their runs reset nothing; alerts name the pause."
        }
        ScheduleAction::Skip(_) => "Runs that belong to this due time reset nothing.",
    };
    vec![
        DialogLine::text(change.describe(), Role::Title),
        DialogLine::text(
            format!(
                "writes {}, and a line of reset.log; runs no systemctl",
                dialog.file
            ),
            Role::Text,
        ),
        DialogLine::text(effect.to_string(), Role::Text),
        DialogLine::text(format!("same as:  {line}"), Role::Dim),
        DialogLine {
            key: CONFIRM_KEY.to_string(),
            text: "confirms, Esc leaves".to_string(),
            role: Role::Text,
        },
    ]
}
