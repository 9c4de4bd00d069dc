//! Draws the title of a plan: what it plans, of which fleet, and what it would archive.

use unicode_width::UnicodeWidthStr;

use super::count_archived_files;
use crate::archive::EntryKind;
use crate::base::quantity::{format_count, format_exact_size};
use crate::console::frame::{draw_short_fleet_name, least_fleet_name_width};
use crate::console::model::undo_offers::planned_undo_offer;
use crate::console::model::{Model, UndoOffer};
use crate::console::screens::reset::state::{PlanRequest, PlanView};
use crate::console::theme::Role;
use crate::console::widgets::canvas::{Canvas, shorten_untrusted};
use crate::engine::{Plan, UndoTarget};

/// What a plan says of itself.
pub const PLAN_STATUS: &str = "nothing changed yet";

/// Cells of a name below which the act that a plan takes back is not described.
const MIN_ACT_NAME_CELLS: usize = 4;

/// The title of a plan. The label, the fleet's tag and rights, the count and the status are shown on
/// every screen; the names yield: first that of the fleet, then those of the act.
pub struct PlanTitle<'a> {
    /// What it plans: `UNDO PLAN`.
    pub label: &'a str,
    /// The words between the label and the act that the plan takes back.
    pub joint: &'a str,
    /// The number of agents or files.
    pub count: &'a str,
    /// Whether anything has changed.
    pub status: &'a str,
}

impl PlanTitle<'_> {
    /// Draws the title; `run` is the run that the plan takes back where no act of this console is.
    /// Returns the columns between count and status.
    pub fn draw(&self, model: &Model, canvas: &mut Canvas<'_>, run: Option<&str>) -> (u16, u16) {
        let width = canvas.room(0);
        let tail = self.count.width() + self.status.width() + 1;
        let others = self.label.width() + 2 + least_fleet_name_width(model) + tail;
        let act = self.describe_act(model, run, width.saturating_sub(others));
        let title = format!("{}{act}", self.label);
        let x = canvas.put_text(0, 0, &title, Role::Title) + 2;
        let room = width.saturating_sub(usize::from(x) + tail);
        let x = draw_short_fleet_name(model, canvas, (x, 0), room as u16);
        let x = canvas.put_text(x, 0, self.count, Role::Text);
        canvas.put_right(canvas.width(), 0, self.status, Role::Good);
        let end = width.saturating_sub(self.status.width() + 1);
        (x + 2, end as u16)
    }

    /// Describes in `room` cells the act that the plan undoes: without its age, if there is no room for it.
    fn describe_act(&self, model: &Model, run: Option<&str>, room: usize) -> String {
        let offer = planned_undo_offer(model);
        let left = room.saturating_sub(self.joint.width());
        let describe = |offer: &UndoOffer| {
            let act = offer.describe(model.now.local_time, left);
            format!("{}{act}", self.joint)
        };
        let without_age = |offer: &UndoOffer| UndoOffer {
            time: None,
            ..offer.clone()
        };
        let forms = match offer {
            Some(offer) => vec![describe(offer), describe(&without_age(offer))],
            None => run
                .map(|run| format!(" of run {run}"))
                .into_iter()
                .collect(),
        };
        let fitting = forms.into_iter().find(|form| form.width() <= room);
        let short = || offer.and_then(|offer| self.describe_shortly(offer, room));
        fitting.or_else(short).unwrap_or_default()
    }

    /// Describes an act in exactly `room` cells; none if no part of its names would be left.
    fn describe_shortly(&self, offer: &UndoOffer, room: usize) -> Option<String> {
        let (first, others) = offer.names.split_first()?;
        let more = match others.len() {
            0 => String::new(),
            count => format!(" +{count}"),
        };
        let act = format!("{}{} ", self.joint, offer.verb);
        let left = room.checked_sub(act.width() + more.width())?;
        let name = shorten_untrusted(first, left);
        (left >= MIN_ACT_NAME_CELLS).then(|| format!("{act}{name}{more}"))
    }
}

/// Draws the title of a plan of a request, with the number of its agents and its status. Returns the
/// columns between the two.
pub fn draw_request_title(
    model: &Model,
    canvas: &mut Canvas<'_>,
    (request, plan): (&PlanRequest, Option<&Plan>),
    [count, status]: [&str; 2],
) -> (u16, u16) {
    let title = PlanTitle {
        label: &format!("{} PLAN", request.verb().to_uppercase()),
        joint: " of ",
        count,
        status,
    };
    title.draw(model, canvas, undone_run(request, plan))
}

/// Returns the run that all of a plan undoes.
fn undone_run<'a>(request: &'a PlanRequest, plan: Option<&'a Plan>) -> Option<&'a str> {
    if let PlanRequest::Undo(UndoTarget::Run(run) | UndoTarget::RunAgents(run, _), _) = request {
        return Some(run);
    }
    let steps = plan.into_iter().flat_map(|plan| &plan.steps);
    let mut undone = steps.filter_map(|step| step.undone_run.as_ref());
    let first = &undone.next()?.run;
    undone.all(|undo| undo.run == *first).then_some(first)
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
    // An edit archives each of its files.
    let files = of_kind(EntryKind::FullBackup).map(|step| count_archived_files(step).max(1));
    let counts = [
        (files.sum::<usize>() as u64, "whole file"),
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
    let agents = format_count(plan.steps.len() as u64, "agent");
    let subject = (&view.request, Some(plan));
    let (x, end) = draw_request_title(model, canvas, subject, [&agents, PLAN_STATUS]);
    let (archive, bytes) = describe_archive(plan);
    let size = format_exact_size(bytes);
    let in_parentheses = if bytes > 0 {
        format!(" ({size})")
    } else {
        String::new()
    };
    // Each row says what it archives, so the total may be shortened.
    let texts = [
        format!("  would archive {archive}{in_parentheses}"),
        format!(", archive {archive}"),
        format!(", archive {size}"),
    ];
    let is_wide = canvas.width() >= 110;
    let shorter = if is_wide { &texts[..] } else { &texts[1..] };
    let x = x.saturating_sub(2);
    let room = usize::from(end.saturating_sub(x));
    if let Some(text) = shorter.iter().find(|text| text.width() <= room) {
        canvas.put_text(x, 0, text, Role::Text);
    }
}
