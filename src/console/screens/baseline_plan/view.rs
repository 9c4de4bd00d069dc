//! Draws a plan over baselines: its files, the difference of the one under the cursor, and what
//! confirms it.

use unicode_width::UnicodeWidthStr;

use crate::base::quantity::format_count;
use crate::base::untrusted;
use crate::console::command::Command;
use crate::console::confirmation_line::{PlanWords, draw_confirmation, draw_keys_ignored};
use crate::console::frame::{draw_compared_texts, draw_equivalent_command};
use crate::console::model::{Model, equivalent_command};
use crate::console::screens::baseline_plan::state::{
    BaselinePlanRequest, BaselinePlanRow, BaselinePlanView, FOOTER_LINES, LIST_FRAME_LINES,
};
use crate::console::screens::reset::view::title::{PLAN_STATUS, PlanTitle};
use crate::console::theme::Role;
use crate::console::widgets::canvas::{Canvas, shorten_untrusted, truncate_untrusted};
use crate::console::widgets::list_pane::{Columns, Fit};
use crate::console::widgets::plan_pane::{Confirmation, PlanStage};

/// Cells that the subject of a plan needs: it is left out where there are fewer.
const MIN_SUBJECT_CELLS: usize = 8;

/// Width of the column that says what happens to a file: `changed, 12 errors`.
const LABEL_WIDTH: u16 = 18;

pub fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    match &model.baseline_plan.plan.stage {
        PlanStage::Empty => {
            canvas.put_text(0, 0, "BASELINE PLAN", Role::Title);
            canvas.draw_rule(1);
            canvas.put_text(1, 3, "No plan.", Role::Text);
        }
        PlanStage::Planning(request) => {
            draw_title(model, canvas, request, ["", ""]);
            canvas.draw_rule(1);
            canvas.put_text(1, 3, "reading the baselines …", Role::Dim);
            draw_keys_ignored(model, canvas, canvas.area.height - FOOTER_LINES + 3);
        }
        PlanStage::Plan(view) => draw_plan(model, view, canvas, false),
        PlanStage::Applying(view) => draw_plan(model, view, canvas, true),
    }
}

/// Draws the title of a plan, with the number of its files and its status. Returns the columns between
/// the two.
fn draw_title(
    model: &Model,
    canvas: &mut Canvas<'_>,
    request: &BaselinePlanRequest,
    [count, status]: [&str; 2],
) -> (u16, u16) {
    let title = PlanTitle {
        label: &format!("{} PLAN", request.verb().to_uppercase()),
        joint: ", undo of ",
        count,
        status,
    };
    title.draw(model, canvas, None)
}

fn draw_plan(model: &Model, view: &BaselinePlanView, canvas: &mut Canvas<'_>, is_applying: bool) {
    let rows = &view.plan.rows;
    let status = if is_applying {
        "writing …"
    } else {
        PLAN_STATUS
    };
    let count = format_count(rows.len() as u64, "baseline");
    let (x, end) = draw_title(model, canvas, &view.request, [&count, status]);
    let x = draw_lint_errors(rows, canvas, x, end);
    draw_plan_subject(view, canvas, x, end);
    canvas.draw_rule(1);
    draw_rows(model, rows, canvas);
    let list_height = model.baseline_plan.list_rows(model.size.1) as u16;
    let y = LIST_FRAME_LINES - 1 + list_height;
    canvas.draw_rule(y);
    let row = model.baseline_plan.current_row();
    let [old, new] = row.map(|row| row.digests.clone()).unwrap_or_default();
    let titles = [format!("now  {old}"), format!("afterwards  {new}")];
    draw_compared_texts(model, canvas, y + 1, &titles);
    draw_footer(model, view, canvas, is_applying);
}

/// Draws the number of lint errors that the plan accepts in all of its files, before the column
/// `end`. Returns the column behind it.
fn draw_lint_errors(rows: &[BaselinePlanRow], canvas: &mut Canvas<'_>, x: u16, end: u16) -> u16 {
    match rows.iter().map(|row| row.lint_errors.len() as u64).sum() {
        0 => x,
        _ if x >= end => x,
        count => {
            let text = format_count(count, "lint error");
            let text = truncate_untrusted(&text, usize::from(end.saturating_sub(x)));
            canvas.put_text(x, 0, &text, Role::Bad) + 2
        }
    }
}

/// Draws what the plan restores, replaces or creates.
fn draw_plan_subject(view: &BaselinePlanView, canvas: &mut Canvas<'_>, x: u16, end: u16) {
    let text = match &view.request {
        BaselinePlanRequest::Seal { key: Some(key), .. } => format!("signed with {key}"),
        BaselinePlanRequest::Seal { key: None, .. } => String::new(),
        BaselinePlanRequest::Restore { version, .. } => format!("version {version}"),
        BaselinePlanRequest::Create { source, .. } => format!("from {source}"),
        BaselinePlanRequest::Replace { replacement, .. } => {
            format!("`{}` -> `{}`", replacement.pattern, replacement.replacement)
        }
    };
    let room = usize::from(end.saturating_sub(x));
    if room >= MIN_SUBJECT_CELLS {
        canvas.put_text(x, 0, &truncate_untrusted(&text, room), Role::Text);
    }
}

fn draw_rows(model: &Model, rows: &[BaselinePlanRow], canvas: &mut Canvas<'_>) {
    let longest = rows
        .iter()
        .map(|row| untrusted::visible_line(&row.name).width());
    let longest = longest.max().unwrap_or(0).max("BASELINE".len()) as u16 + 2;
    let name_width = longest.min(canvas.width() / 3);
    let columns = Columns::from_x(2)
        .left("BASELINE", name_width)
        .fitted(Fit::Middle)
        .left("CHANGE", LABEL_WIDTH + 1)
        .left("LINES", 11)
        .rest("USED BY", canvas.width());
    columns.draw_headings(canvas, 2);
    let height = model.baseline_plan.list_rows(model.size.1);
    let count = rows.len();
    let list = &model.baseline_plan.list;
    if count > height {
        let visible = list.visible(count, height);
        let visible = format!("rows {}-{} of {count}", visible.start + 1, visible.end);
        canvas.put_right(canvas.width(), 2, &visible, Role::Dim);
    }
    list.draw(canvas, 3, (count, height), |canvas, y, index| {
        let row = &rows[index];
        let (added, removed) = row.changed_lines;
        let label_role = if row.is_foreign {
            Role::Tampered
        } else {
            Role::Text
        };
        let agents = match row.agents.as_slice() {
            [] => "no agent".to_string(),
            agents => agents.join(", "),
        };
        let cells = [
            (&*row.name, Role::Text),
            (&*row.label, label_role),
            (&*format!("+{added} -{removed}"), Role::Text),
            (&*agents, Role::Dim),
        ];
        columns.draw_row(canvas, y, cells);
        let name = shorten_untrusted(&row.name, columns.room(0));
        columns.x(0)..columns.x(0) + name.width() as u16
    });
}

fn draw_footer(model: &Model, view: &BaselinePlanView, canvas: &mut Canvas<'_>, is_applying: bool) {
    let mut y = canvas.area.height - model.baseline_plan.footer_rows();
    canvas.draw_rule(y);
    if let Some(problem) = &view.plan.problem {
        y += 1;
        canvas.put_end(1, y, problem, Role::Bad);
    }
    if let Some(why) = &view.prompt.refusal {
        canvas.put_wrapped(1, y + 1, &format!("Not possible: {why}"), Role::Warn, 3);
        return;
    }
    let (note, role) = plan_note(model, view);
    canvas.put_start(1, y + 1, &note, role);
    if view.prompt.confirmation != Confirmation::NothingToRun {
        let command = equivalent_command::for_baseline_plan(model, view);
        draw_equivalent_command(model, canvas, (1, y + 2), &command, Command::CopyPlan);
    }
    if !is_applying {
        let words = PlanWords {
            verb: if view.plan.rows.is_empty() {
                "sign"
            } else {
                view.request.verb()
            },
            act: view.request.verb(),
            nothing: "Nothing to write",
            forbidden: "nothing is written",
        };
        draw_confirmation(model, canvas, y + 3, &view.prompt, &words);
    }
}

/// Returns what is unusual about the file under the cursor, which the text begins with in full, or
/// else the most important fact about the plan.
fn plan_note(model: &Model, view: &BaselinePlanView) -> (String, Role) {
    let row = model.baseline_plan.current_row();
    let row = row.filter(|row| row.is_foreign || !row.lint_errors.is_empty());
    let Some(row) = row else {
        let note = view.plan.notes.first().cloned();
        return (note.unwrap_or_default(), Role::Text);
    };
    let mut facts = Vec::new();
    if !row.lint_errors.is_empty() {
        facts.push(format_count(row.lint_errors.len() as u64, "lint error"));
    }
    if row.is_foreign {
        facts.push("not all saved by this program".to_string());
    }
    let role = if row.is_foreign {
        Role::Tampered
    } else {
        Role::Bad
    };
    let text = format!("{}; see the top of the text", facts.join(", "));
    (text, role)
}
