//! Draws a plan, its run and the result.

mod details;
pub mod title;

use unicode_width::UnicodeWidthStr;

use crate::archive::EntryKind;
use crate::base::quantity::{format_count, format_exact_size, format_size};
use crate::base::untrusted;
use crate::console::age::format_time;
use crate::console::agent_row::AgentRow;
use crate::console::command::Command;
use crate::console::confirmation_line::{PlanWords, draw_confirmation, draw_keys_ignored};
use crate::console::frame::{draw_equivalent_command, draw_fleet_name, draw_short_fleet_name};
use crate::console::model::{Model, equivalent_command};
use crate::console::screens::reset::plan_footer::{PLAN_FOOTER_LINES, list_height, plan_footer};
use crate::console::screens::reset::state::{
    PlanView, ResultLine, ResultView, RunView, STOP_CONSEQUENCE, summarize_failures,
};
use crate::console::theme::{Role, role_of_outcome, role_of_state};
use crate::console::widgets::canvas::{Canvas, shorten_untrusted, wrap_text};
use crate::console::widgets::list_pane::{Columns, Fit, ListPane, NO_HIGHLIGHT};
use crate::console::widgets::plan_pane::{Confirmation, PlanStage};
use crate::engine::{
    FileState, KeptScratch, Operation, Outcome, Plan, PlanStep, PlannedFile, RunStage as Step,
    SkippedAgent, StepAction, UndoneRun,
};
use title::{draw_plan_title, draw_request_title};

/// Lines below a run: a rule, a line, the message, the hints.
const RUN_FOOTER_LINES: u16 = 4;

/// Lines below a result: those of a run, and one about the agent under the cursor.
const RESULT_FOOTER_LINES: u16 = 5;

/// Cells below which a command line is not worth showing.
const MIN_COMMAND_LINE_CELLS: usize = 32;

pub fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    if let Some(result) = model.reset.result() {
        return draw_result(model, result, canvas);
    }
    match &model.reset.plan.stage {
        PlanStage::Empty => {
            let x = canvas.put_text(0, 0, "RESET", Role::Title) + 2;
            draw_fleet_name(model, canvas, x, 0);
            canvas.draw_rule(1);
            let key = model.key_hint(Command::PlanReset);
            let text = format!("No plan. Mark agents in the fleet and press {key}.");
            canvas.put_text(1, 3, &text, Role::Text);
        }
        PlanStage::Planning(request) => {
            draw_request_title(model, canvas, (request, None), ["", ""]);
            canvas.draw_rule(1);
            canvas.put_text(1, 3, "reading the agents …", Role::Dim);
            draw_keys_ignored(model, canvas, canvas.area.height - PLAN_FOOTER_LINES + 3);
        }
        PlanStage::Plan(view) => draw_plan(model, view, canvas),
        PlanStage::Applying(view) => draw_run(model, view, canvas),
    }
}

/// The row of the headings of a plan's list.
const HEADINGS_ROW: u16 = 2;

fn draw_plan(model: &Model, view: &PlanView, canvas: &mut Canvas<'_>) {
    draw_plan_title(model, view, canvas);
    canvas.draw_rule(1);
    let plan = &view.plan;
    let columns = columns(model, plan, canvas.width());
    columns.draw_headings(canvas, HEADINGS_ROW);
    let total = plan.steps.len() + plan.skipped.len();
    let footer = plan_footer(model, view);
    // The first line of the footer always has a row of its own.
    let height = list_height(model.size.1) - footer.len().saturating_sub(1);
    let height = height - details::draw(model, view, canvas, height);
    draw_hidden_rows(plan, height, canvas);
    let list = &model.reset.list;
    list.draw(canvas, 3, (total, height), |canvas, y, index| {
        match plan.steps.get(index) {
            Some(step) => draw_plan_row(canvas, y, index + 1, step, &columns),
            None => {
                let skipped = &plan.skipped[index - plan.steps.len()];
                draw_skipped_row(model, canvas, y, skipped, &columns);
            }
        }
        NO_HIGHLIGHT
    });
    let y = canvas.area.height - PLAN_FOOTER_LINES;
    canvas.draw_rule(y - (footer.len() as u16).saturating_sub(1));
    for ((text, role), y) in footer.iter().rev().zip((0..=y + 1).rev()) {
        canvas.put_text(1, y, text, *role);
    }
    if !plan.steps.is_empty() {
        if let Some(command) = equivalent_command::for_plan(model, view) {
            draw_equivalent_command(model, canvas, (1, y + 2), &command, Command::CopyPlan);
        } else if view.prompt.confirmation != Confirmation::NewerNotes {
            let text = "no equivalent command line: only the console unlocks protected agents";
            canvas.put_text(1, y + 2, text, Role::Dim);
        }
    }
    let words = PlanWords {
        verb: view.verb(),
        act: "run",
        nothing: "Nothing to run",
        forbidden: "runs are disabled",
    };
    draw_confirmation(model, canvas, y + 3, &view.prompt, &words);
}

/// Says behind the headings how many rows of a plan its list shows, and how many agents of the plan are
/// skipped, where it does not show all.
fn draw_hidden_rows(plan: &Plan, height: usize, canvas: &mut Canvas<'_>) {
    let skipped = plan.skipped.len();
    let total = plan.steps.len() + skipped;
    if total <= height {
        return;
    }
    let tail = match skipped {
        0 => String::new(),
        _ => format!(", {skipped} skipped"),
    };
    let (from, cells) = canvas.widest_blank(HEADINGS_ROW);
    let room = cells * u16::from(from + cells == canvas.width());
    let forms = [
        format!("{height} of {total} rows{tail}"),
        format!("{height}/{total}{tail}"),
        format!("{height}/{total}"),
    ];
    if let Some(text) = forms.iter().find(|text| text.len() < usize::from(room)) {
        canvas.put_right(canvas.width(), HEADINGS_ROW, text, Role::Warn);
    }
}

fn draw_skipped_row(
    model: &Model,
    canvas: &mut Canvas<'_>,
    y: u16,
    skipped: &SkippedAgent,
    columns: &Columns,
) {
    let cells = [
        ("", Role::Dim),
        (&*skipped.agent, Role::Dim),
        (skipped.state.as_str(), role_of_state(skipped.state)),
        (host_of(model, &skipped.agent), Role::Dim),
    ];
    columns.draw_row(canvas, y, cells);
    let x = canvas.put_text(columns.x(ARCHIVE_COLUMN), y, "skipped: ", Role::Dim);
    canvas.put_end(x, y, &skipped.reason, Role::Text);
}

/// Indices of columns of a plan.
const ARCHIVE_COLUMN: usize = 4;
const RESTORE_COLUMN: usize = 5;

/// Returns the host of an agent; empty until it is known.
fn host_of<'m>(model: &'m Model, agent: &str) -> &'m str {
    let row = model.find_row(agent);
    let seen = row.and_then(AgentRow::latest_observation);
    seen.map_or("", |seen| &seen.host)
}

/// Returns the columns of a plan in a list of this width.
fn columns(model: &Model, plan: &Plan, width: u16) -> Columns {
    let names = plan.steps.iter().map(|step| step.agent.width());
    let names = names.chain(plan.skipped.iter().map(|skipped| skipped.agent.width()));
    let name = (names.max().unwrap_or(0) as u16 + 2).clamp(12, width / 4);
    let skipped = plan.skipped.iter();
    let skipped_hosts = skipped.map(|skipped| host_of(model, &skipped.agent).width());
    let hosts = plan.steps.iter().map(|step| step.host.width());
    let hosts = hosts.chain(skipped_hosts);
    let host = (hosts.max().unwrap_or(0) as u16 + 2).clamp(7, width / 8);
    let is_wide = width >= 110;
    let restore = match plan.operation {
        Operation::Undo => "PUT BACK",
        Operation::Push => "INSTALL",
        Operation::Edit => "CHANGE",
        _ => "RESTORE",
    };
    let columns = Columns::from_x(0)
        .right("", 4)
        .gap(1)
        .left("AGENT", name)
        .fitted(Fit::Middle)
        .left("STATE", 10)
        .left("HOST", if is_wide { host } else { 0 })
        .fitted(Fit::Middle)
        .left("ARCHIVE", 24);
    if is_wide {
        columns.left(restore, 27).rest("CHECKS", width - 1)
    } else {
        columns.rest(restore, width - 1)
    }
}

fn draw_plan_row(
    canvas: &mut Canvas<'_>,
    y: u16,
    number: usize,
    step: &PlanStep,
    columns: &Columns,
) {
    let kept = step.kept_scratch.as_ref().map(KeptScratch::describe);
    // Another column has it.
    let mut checks = step.checks().filter(|check| Some(*check) != kept.as_ref());
    let cells = [
        (&*number.to_string(), Role::Dim),
        (&*step.agent, Role::Text),
        (step.state.as_str(), role_of_state(step.state)),
        (&*step.host, Role::Text),
        (&*archive_text(step), Role::Text),
        (
            &*restore_text(step, columns.room(RESTORE_COLUMN)),
            Role::Text,
        ),
        (checks.next().map_or("", String::as_str), Role::Text),
    ];
    columns.draw_row(canvas, y, cells);
}

/// Returns what a step archives.
fn archive_text(step: &PlanStep) -> String {
    match (step.action, step.entry_kind) {
        (StepAction::Edit, None) => "nothing (new files)".to_string(),
        (StepAction::Edit, Some(_)) => format!(
            "{}, {}",
            format_count(count_archived_files(step) as u64, "file"),
            format_exact_size(step.archive_bytes)
        ),
        (StepAction::Create, _) => "nothing (no file)".to_string(),
        (_, None) => "nothing of its own".to_string(),
        (_, Some(EntryKind::Special)) => "a description".to_string(),
        (_, Some(EntryKind::FullBackup)) if step.added_lines + step.removed_lines > 0 => {
            format!(
                "all, {} above +{} -{}",
                format_size(step.archive_bytes),
                step.added_lines,
                step.removed_lines
            )
        }
        (_, Some(EntryKind::FullBackup)) => {
            format!("all, {}", format_size(step.archive_bytes))
        }
        _ => format_count(step.scratch_lines, "line"),
    }
}

/// Returns what a step puts in the memory's place; the short form if the other is longer than `room`.
fn restore_text(step: &PlanStep, room: usize) -> String {
    let content = step.binding.content_digest.short_hex(4);
    let size = format_size(step.new_size);
    // Where the sentence does not fit, the run comes first and stays whole.
    let fitting = |whole: String, short: String| {
        let fits = whole.width() <= room;
        if fits { whole } else { short }
    };
    match (step.action, &step.undone_run) {
        (StepAction::Edit, _) => summarize_files(&step.files),
        (StepAction::Remove, Some(UndoneRun { run, .. })) => {
            fitting(format!("remove, new in {run}"), format!("{run}: remove"))
        }
        (StepAction::PutBack, Some(UndoneRun { run, .. })) => {
            fitting(format!("what {run} displaced"), format!("{run}: kept"))
        }
        (StepAction::Remove, None) => "remove the file".to_string(),
        (StepAction::PutBack, None) => "put back what was kept".to_string(),
        (StepAction::Create, None) => format!("create, {size} sha {content}"),
        (_, Some(UndoneRun { run, .. })) => fitting(
            format!("{size} from before {run}"),
            format!("{run}: {size}"),
        ),
        _ => match &step.kept_scratch {
            Some(kept) if kept.lines > 0 => {
                let lines = format_count(kept.lines, "line");
                fitting(format!("{size}, keeps {lines}"), format!("keeps {lines}"))
            }
            _ => format!("{size} sha {content} ok"),
        },
    }
}

/// Says what happens to files: `1 created, 2 changed, 1 removed`.
fn summarize_files(files: &[PlannedFile]) -> String {
    let count =
        |is_counted: fn(&PlannedFile) -> bool| files.iter().filter(|it| is_counted(it)).count();
    let is_created = |file: &PlannedFile| file.before == FileState::Absent;
    let is_removed = |file: &PlannedFile| file.after == FileState::Absent;
    let (created, removed) = (count(is_created), count(is_removed));
    let counts = [
        (created, "created"),
        (files.len().saturating_sub(created + removed), "changed"),
        (removed, "removed"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    counts.join(", ")
}

/// Returns the number of files that a step archives whole.
pub fn count_archived_files(step: &PlanStep) -> usize {
    let files = step.files.iter();
    files
        .filter(|file| file.before != FileState::Absent)
        .count()
}

fn draw_run(model: &Model, view: &RunView, canvas: &mut Canvas<'_>) {
    let verb = view.verb.to_uppercase();
    // Skipped agents have outcomes as well, but do not count as work.
    let planned = view.plan.steps.iter();
    let ended: Vec<Outcome> = planned
        .filter_map(|step| view.outcomes.get(&step.agent))
        .map(|(outcome, _)| *outcome)
        .collect();
    let done = ended.len();
    let bad = ended.iter().filter(|outcome| outcome.is_failure()).count();
    let total = view.plan.steps.len().max(1);
    let seconds = (model.now.elapsed.saturating_sub(view.started_at)).as_secs();
    let x = canvas.put_text(0, 0, &format!("{verb} running  "), Role::Title);
    let text = format!(
        "{done}/{total}  {} ok  {}  {seconds}s",
        done - bad,
        summarize_failures(ended.iter().copied())
    );
    let room = canvas.width().saturating_sub(x + text.width() as u16);
    let x = draw_short_fleet_name(model, canvas, (x, 0), room);
    // The bar yields to the figures.
    let room = canvas.room(x);
    let bar = room.saturating_sub(text.width() + 2).min(20);
    let full = (done * bar / total).min(bar);
    let x = canvas.put_text(x, 0, &"█".repeat(full), Role::Good);
    let x = canvas.put_text(x, 0, &"░".repeat(bar - full), Role::Dim) + 2;
    let role = if bad > 0 { Role::Bad } else { Role::Text };
    canvas.put_text(x, 0, &text, role);
    canvas.draw_rule(1);
    let height = usize::from(canvas.area.height - RUN_FOOTER_LINES - 2);
    // The current agent stays visible.
    let active = view
        .plan
        .steps
        .iter()
        .position(|step| !view.outcomes.contains_key(&step.agent));
    let cursor = active.unwrap_or(0).max(model.reset.cursor_index());
    let list = ListPane::<()>::at(cursor);
    for (index, y) in list.visible(view.plan.steps.len(), height).zip(2..) {
        let step = &view.plan.steps[index];
        let stage = view.agent_steps.get(&step.agent);
        let outcome = view.outcomes.get(&step.agent);
        if stage.is_some() && outcome.is_none() {
            canvas.put_text(1, y, ">", Role::Busy);
        }
        canvas.put_text(4, y, &shorten_untrusted(&step.agent, 20), Role::Text);
        let mut x = 26;
        match outcome {
            Some((outcome, note)) => {
                x = canvas.put_text(x, y, outcome.as_str(), role_of_outcome(*outcome)) + 2;
                canvas.put_end(x, y, note.as_deref().unwrap_or(""), Role::Text);
            }
            None => draw_steps(canvas, x, y, stage.copied()),
        }
    }
    let y = canvas.area.height - RUN_FOOTER_LINES;
    canvas.draw_rule(y);
    let key = model.key_hint(Command::Quit);
    let text = if view.is_cancelled {
        format!("Stopping: {STOP_CONSEQUENCE}; {key} again quits.")
    } else {
        format!("{key} to stop: {STOP_CONSEQUENCE}.")
    };
    canvas.put_text(1, y + 1, &text, Role::Text);
}

fn draw_steps(canvas: &mut Canvas<'_>, mut x: u16, y: u16, stage: Option<Step>) {
    for step in Step::ALL {
        let (sign, role) = match stage {
            Some(now) if step < now => ("✓", Role::Good),
            Some(now) if step == now => ("…", Role::Busy),
            _ => ("·", Role::Dim),
        };
        x = canvas.put_text(x, y, &format!("{} {sign}  ", step.as_str()), role);
    }
}

fn draw_result(model: &Model, view: &ResultView, canvas: &mut Canvas<'_>) {
    draw_result_title(model, view, canvas);
    canvas.draw_rule(1);
    let details = detail_lines(model, view, canvas);
    let footer_height = RESULT_FOOTER_LINES + (details.len() as u16).saturating_sub(1);
    let height = usize::from((canvas.area.height - 2).saturating_sub(footer_height)).max(1);
    let list = &model.reset.list;
    list.draw(canvas, 2, (view.lines.len(), height), |canvas, y, index| {
        draw_result_row(canvas, y, &view.lines[index]);
        NO_HIGHLIGHT
    });
    let y = canvas.area.height - footer_height;
    canvas.draw_rule(y);
    draw_next_step(model, view, canvas, y + 1);
    for (line, y) in details.iter().zip(y + 2..) {
        canvas.put_text(1, y, line, Role::Text);
    }
}

fn count_outcome(view: &ResultView, outcome: Outcome) -> usize {
    let lines = view.lines.iter();
    lines.filter(|line| line.outcome == outcome).count()
}

/// Draws which run this is, and how it ended.
fn draw_result_title(model: &Model, view: &ResultView, canvas: &mut Canvas<'_>) {
    let title = format!("{} {}", view.verb.to_uppercase(), view.run_id);
    let time = format_time(model.now.local_time, view.ended_at);
    let seconds = view.duration_ms as f64 / 1000.0;
    let time = format!("of {time} in {seconds:.1}s   ");
    let ok = format!("{} ok   ", count_outcome(view, Outcome::Ok));
    let role = if view.has_failed() {
        Role::Bad
    } else {
        Role::Dim
    };
    let mut failures = view.failure_summary();
    if view.has_failed() {
        failures = failures.replace("failed", "FAILED");
    }
    let unchanged = match count_outcome(view, Outcome::Unchanged) {
        0 => String::new(),
        count => format!("   {count} unchanged"),
    };
    let counts = ok.len() + failures.len() + unchanged.len();
    let x = canvas.put_untrusted(0, 0, title.as_bytes(), Role::Title) + 2;
    let room = canvas.width().saturating_sub(x + counts as u16);
    let x = draw_short_fleet_name(model, canvas, (x, 0), room);
    // The counts come before the time.
    let x = if time.len() + counts <= canvas.room(x) {
        canvas.put_text(x, 0, &time, Role::Text)
    } else {
        x
    };
    let x = canvas.put_text(x, 0, &ok, Role::Good);
    let x = canvas.put_text(x, 0, &failures, role);
    canvas.put_text(x, 0, &unchanged, Role::Dim);
}

fn draw_result_row(canvas: &mut Canvas<'_>, y: u16, line: &ResultLine) {
    if line.outcome.is_failure() {
        canvas.put_text(2, y, "!", Role::Bad);
    }
    canvas.put_text(4, y, &shorten_untrusted(&line.agent, 20), Role::Text);
    let x = canvas.put_text(26, y, line.outcome.as_str(), role_of_outcome(line.outcome));
    let x = (x + 2).max(37);
    let entry = line.entry.as_ref();
    let mut text = entry.map_or_else(String::new, |it| it.path.display().to_string());
    if let Some(note) = &line.note {
        let gap = if text.is_empty() { "" } else { "   " };
        text.push_str(&format!("{gap}{note}"));
    }
    canvas.put_end(x, y, &text, Role::Text);
}

/// Says whether the run of a result can be undone, and which runs undid it.
fn describe_undo(model: &Model, view: &ResultView) -> String {
    let is_irreversible = view.lines.iter().any(|line| line.is_irreversible);
    let undone = model.log.find_run(&view.run_id);
    let undone_by = undone.map_or(Vec::new(), |run| model.log.undoing_runs(run));
    let can_undo = !model.log.undoable_agents(view).is_empty();
    let mut text = match (can_undo, undone_by.is_empty()) {
        (true, _) => {
            let key = model.key_hint(Command::PlanUndo);
            let days = format_count(u64::from(model.config.retention_days), "day");
            format!("{key} undoes this run (possible for {days})")
        }
        (false, true) if is_irreversible => {
            return "cannot be undone: it removed what it displaced".to_string();
        }
        (false, true) => return "nothing to undo".to_string(),
        (false, false) => return format!("undone by run {}", undone_by.join(" ")),
    };
    if let Some(run) = undone.filter(|_| !undone_by.is_empty()) {
        let agents = format_count(run.undone_agents.len() as u64, "agent");
        text.push_str(&format!(
            "; undone for {agents} by run {}",
            undone_by.join(" ")
        ));
    }
    text
}

/// Draws whether the run can be undone, what retention deleted, and the equivalent command line.
fn draw_next_step(model: &Model, view: &ResultView, canvas: &mut Canvas<'_>, y: u16) {
    let mut text = describe_undo(model, view);
    if view.retired_entries > 0 {
        let entries = format_count(view.retired_entries as u64, "old entry");
        text.push_str(&format!("; retention deleted {entries}"));
    }
    let x = canvas.put_untrusted(1, y, text.as_bytes(), Role::Text) + 3;
    if canvas.room(x + 10) >= MIN_COMMAND_LINE_CELLS
        && let Some(command) = equivalent_command::for_result(model, view)
    {
        draw_equivalent_command(model, canvas, (x, y), &command, Command::CopyCommand);
    }
}

/// Returns the errors that concern no single agent, then the note and the hints of the agent under
/// the cursor, in lines.
fn detail_lines(model: &Model, view: &ResultView, canvas: &Canvas<'_>) -> Vec<String> {
    let errors = view.errors.iter().map(|error| format!("error: {error}"));
    let current = model.reset.current_line().into_iter();
    let notes = current.flat_map(|line| {
        let hints = line.hints.iter().map(|hint| format!("hint: {hint}"));
        line.note.iter().cloned().chain(hints)
    });
    let texts = errors.chain(notes);
    let room = canvas.room(2);
    let max_lines = usize::from(canvas.area.height / 3);
    let lines = texts.flat_map(|text| wrap_text(&untrusted::visible_line(&text), room, max_lines));
    lines.take(max_lines).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapped_plan_note_keeps_all_text() {
        let text = "box-".repeat(30) + "漢字 lacks fsync: a power cut";
        for room in [1, 2, 7, 58, 78, 200] {
            let lines = wrap_text(&untrusted::visible_line(&text), room, usize::MAX);
            let whole: String = lines.concat().split(' ').collect();
            assert_eq!(whole, text.replace(' ', ""), "{room}");
            assert!(
                lines.iter().all(|it| it.width() <= room.max(2)),
                "{lines:?}"
            );
        }
        assert!(wrap_text("", 58, usize::MAX).is_empty());
    }
}
