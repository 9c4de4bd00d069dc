//! Draws the title of a plan: what it plans, of which fleet, and what it would archive.

use unicode_width::UnicodeWidthStr;

use crate::archive::EntryKind;
use crate::console::canvas::{Canvas, truncate};
use crate::console::frame::{draw_fleet_name, fleet_name_width};
use crate::console::model::Model;
use crate::console::screens::reset::state::{PlanRequest, PlanView};
use crate::console::theme::Role;
use crate::engine::{Plan, UndoTarget};
use crate::quantity::{format_count, format_size};

/// What a plan says of itself.
pub const PLAN_STATUS: &str = "nothing changed yet";

/// Returns the title of a plan. One of an undo names the act that it takes back, or the run, where all
/// of `plan` undoes one.
pub fn request_title(model: &Model, request: &PlanRequest, plan: Option<&Plan>) -> String {
    let title = format!("{} PLAN", request.verb().to_uppercase());
    if let Some(act) = describe_planned_undo(model, title.width() + " of ".len()) {
        return format!("{title} of {act}");
    }
    let mut steps = plan.into_iter().flat_map(|plan| &plan.steps);
    let mut undone = steps.by_ref().filter_map(|step| step.undone_run.as_ref());
    let run = match request {
        PlanRequest::Undo(UndoTarget::Run(run) | UndoTarget::RunAgents(run, _), _) => Some(run),
        _ => {
            let first = undone.next().map(|undo| &undo.run);
            first.filter(|run| undone.all(|undo| undo.run == **run))
        }
    };
    match run {
        Some(run) => format!("{title} of run {run}"),
        None => title,
    }
}

/// Says what a plan would archive: `2 whole files, 58 lines (41.2K)`.
fn describe_archive(plan: &Plan) -> (String, u64) {
    let of_kind = |kind: EntryKind| {
        let steps = plan.steps.iter();
        steps.filter(move |step| step.entry_kind == Some(kind))
    };
    let lines: u64 = of_kind(EntryKind::Scratch)
        .map(|step| step.scratch_lines)
        .sum();
    let counts = [
        (of_kind(EntryKind::FullBackup).count() as u64, "whole file"),
        (lines, "line"),
        (of_kind(EntryKind::Special).count() as u64, "description"),
    ];
    let counted = counts.iter().filter(|(count, _)| *count > 0);
    let counted: Vec<String> = counted
        .map(|(count, noun)| format_count(*count, noun))
        .collect();
    let bytes = plan.steps.iter().map(|step| step.archive_bytes).sum();
    match counted.as_slice() {
        [] => ("nothing".to_string(), 0),
        _ => (counted.join(", "), bytes),
    }
}

/// Draws the title of a plan and its totals.
pub fn draw_plan_title(model: &Model, view: &PlanView, canvas: &mut Canvas<'_>) {
    let plan = &view.plan;
    let wide = canvas.width() >= 110;
    let x = canvas.put_text(
        0,
        0,
        &request_title(model, &view.request, Some(plan)),
        Role::Title,
    ) + 2;
    let x = draw_fleet_name(model, canvas, x, 0);
    let agents = format_count(plan.steps.len() as u64, "agent");
    let (archive, bytes) = describe_archive(plan);
    let size = match bytes {
        ..1024 => format!("{bytes} B"),
        _ => format_size(bytes),
    };
    let in_parentheses = if bytes > 0 {
        format!(" ({size})")
    } else {
        String::new()
    };
    let status = PLAN_STATUS;
    let room = usize::from(canvas.width().saturating_sub(x)).saturating_sub(status.len() + 1);
    // Each row says what it archives, so the total may be shortened.
    let texts = [
        format!("{agents}  would archive {archive}{in_parentheses}"),
        format!("{agents}, archive {archive}"),
        format!("{agents}, archive {size}"),
    ];
    let shorter = if wide { &texts[..] } else { &texts[1..] };
    let text = shorter.iter().find(|text| text.width() <= room);
    canvas.put_text(x, 0, &truncate(text.unwrap_or(&agents), room), Role::Text);
    // What is planned, and where, comes first.
    if usize::from(canvas.width().saturating_sub(x)) >= status.len() {
        canvas.put_right(canvas.width(), 0, status, Role::Good);
    }
}

/// Describes the act that the plan on the screen takes back, for a title with this many cells before
/// it; the fleet's name and the status follow.
pub fn describe_planned_undo(model: &Model, before: usize) -> Option<String> {
    let offer = model.planned_undo_offer()?;
    let others = before + 2 + fleet_name_width(model) + PLAN_STATUS.len() + 1;
    let room = usize::from(model.size.0).saturating_sub(others);
    Some(offer.describe(model.now.local_time, room))
}
