//! Draws the fleet: a row for each agent, a header of counts, and details of the current agent.

use unicode_width::UnicodeWidthStr;

use super::visible_agents::{
    fleet_height, hidden_marked_agents, strip_height, visible_rows, worse_out_of_sight,
};
use crate::base::quantity::{format_count, format_size};
use crate::base::untrusted;
use crate::baseline::MISSING_BASELINE_REASON;
use crate::console::age::{format_modification_age, format_time};
use crate::console::agent_row::{AgentRow, known_scratch_lines};
use crate::console::command::Command;
use crate::console::filter;
use crate::console::frame::{blocked_step, draw_fleet_name, draw_in_rule, more_agents};
use crate::console::model::host_problems::{count_unreachable, host_problem};
use crate::console::model::{Model, RunSign};
use crate::console::screens::baselines::view::missing_baseline_keys;
use crate::console::screens::fleet::columns::{self, CellWidths, ColumnSpan, FleetColumn};
use crate::console::screens::fleet::reasons::{self, ReasonCell, WholeReason};
use crate::console::screens::fleet::sort_order::SortOrder;
use crate::console::screens::hosts::state::HostProblem;
use crate::console::theme::{Role, role_of_state};
use crate::console::widgets::canvas::{
    Canvas, fit_end_of_sentence, fit_start_of_sentence, limit_usage, shorten_paths,
    shorten_untrusted, split_at_blank, truncate, truncate_untrusted,
};
use crate::engine::{Observation, Outcome, State};

const PROGRAM_LABEL: &str = "memory-shepherd  ";

/// Cells that a quoted filter takes at most.
const MAX_FILTER_CELLS: usize = 24;

/// Lines of a message that is shown in place of the agents.
const MAX_PARAGRAPH_LINES: usize = 4;

pub fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    draw_header(model, canvas);
    canvas.draw_rule(2);
    let worse = worse_out_of_sight(model);
    draw_out_of_sight(canvas, 2, worse.above, "above");
    let mut y = 3;
    let errors = [&model.errors.config, &model.errors.preferences];
    for error in errors.into_iter().flatten() {
        canvas.put_start(0, y, &error.replace('\n', " "), Role::Bad);
        y += 1;
    }
    let spans = columns::lay_out_columns(
        &model.preferences.columns,
        canvas.width(),
        cell_widths(model),
    );
    for span in &spans {
        draw_cell(canvas, y, span, span.column.layout().heading, Role::Heading);
    }
    y += 1;
    let height = fleet_height(model);
    if model.rows.is_empty() {
        let text = format!(
            "No agents in {}. See the example there, or run: memory-shepherd demo",
            model.config.config_path
        );
        canvas.put_wrapped(1, y + 1, &text, Role::Text, MAX_PARAGRAPH_LINES);
    } else if model.fleet.order.is_empty() {
        let bad = model
            .rows
            .iter()
            .filter(|row| !row.state().is_healthy())
            .count();
        let need_attention = match bad {
            1 => "1 agent that needs attention is".to_string(),
            _ => format!("{bad} agents that need attention are"),
        };
        let text = format!(
            "0 of {} match \"{}\" (Esc clears) - {} hidden",
            model.rows.len(),
            truncate_untrusted(&model.fleet.filter, MAX_FILTER_CELLS),
            need_attention
        );
        let below = canvas.put_wrapped(1, y + 1, &text, Role::Warn, MAX_PARAGRAPH_LINES);
        if let Some(fault) = filter::find_filter_errors(&model.fleet.filter).first() {
            let hint = fault.hint.as_deref().unwrap_or_default();
            let text = format!("{}; {hint}", fault.message);
            canvas.put_wrapped(1, below, &text, Role::Warn, MAX_PARAGRAPH_LINES);
        }
    }
    let shown: Vec<&AgentRow> = visible_rows(model, model.fleet.list.top)
        .take(height)
        .collect();
    let problems = shown.iter().map(|row| host_problem(model, &row.name));
    let problems: Vec<Option<HostProblem>> = problems.collect();
    let reason_span = spans.iter().find(|it| it.column == FleetColumn::Reason);
    let reasons = reason_span.map(|span| reason_cells(&shown, &problems, usize::from(span.width)));
    let reasons = reasons.unwrap_or_default();
    for (index, (row, problem)) in shown.iter().zip(&problems).enumerate() {
        let cells = RowCells {
            spans: &spans,
            problem,
            reason: reasons.get(index),
        };
        draw_row(model, canvas, y + index as u16, row, &cells);
    }
    let bottom = y + height as u16;
    canvas.draw_rule(bottom);
    draw_out_of_sight(canvas, bottom, worse.below, "below");
    draw_strip(model, canvas, bottom + 1);
}

/// Says in a rule how many agents beyond it are worse off than the one under the cursor: "3 worse
/// above".
fn draw_out_of_sight(canvas: &mut Canvas<'_>, y: u16, agents: usize, side: &str) {
    if agents > 0 {
        draw_in_rule(canvas, y, &[(format!("{agents} worse {side}"), Role::Bad)]);
    }
}

fn draw_header(model: &Model, canvas: &mut Canvas<'_>) {
    draw_fleet_line(model, canvas);
    let is_wide = canvas.width() >= 110;
    let parts = [
        last_run_part(model, canvas.room(0) / 2),
        marks_part(model),
        filter_part(model, is_wide),
        sort_part(model, is_wide),
    ];
    let mut x = 0;
    for (text, role) in parts.into_iter().flatten() {
        x = canvas.put_text(x, 1, &text, role) + 3;
    }
}

/// Draws the first line: the fleet's name, the counts by state and how fresh they are. As the
/// screen shrinks, the program's name goes first, then the total; then the healthy states share one
/// number.
fn draw_fleet_line(model: &Model, canvas: &mut Canvas<'_>) {
    let freshness = freshness_text(model);
    let name = format!("{} ", model.config.name).width()
        + model.config.tag.as_ref().map_or(0, |tag| tag.width() + 3)
        + "RW unlocked  ".len();
    let room = canvas.room(0).saturating_sub(name + freshness.width() + 1);
    let total = format!("{}: ", format_count(model.rows.len() as u64, "agent"));
    let mut counts = header_counts(model);
    let length: usize = counts.iter().map(|count| count.text.width() + 1).sum();
    let spare = room.saturating_sub(length);
    if length > room {
        counts = folded_header_counts(model);
    }
    let mut x = 0;
    if spare > total.len() + PROGRAM_LABEL.len() {
        x = canvas.put_text(x, 0, PROGRAM_LABEL, Role::Dim);
    }
    x = draw_fleet_name(model, canvas, x, 0);
    if spare > total.len() {
        x = canvas.put_text(x, 0, &total, Role::Text);
    }
    canvas.put_right(canvas.width(), 0, &freshness, Role::Dim);
    let end = canvas.width().saturating_sub(freshness.width() as u16 + 2);
    let mut left: usize = counts.iter().map(|count| count.agents).sum();
    for HeaderCount { agents, text, role } in &counts {
        let room = usize::from(end.saturating_sub(x));
        // The agents of the states that do not fit are counted.
        let reserve = match left - agents {
            0 => 0,
            others => 1 + more_agents(others).width(),
        };
        if room < text.width() + reserve {
            canvas.put_text(x, 0, &more_agents(left), Role::Text);
            break;
        }
        x = canvas.put_text(x, 0, text, *role) + 1;
        left -= agents;
    }
}

/// Returns whether the figures are live, stale, saved or still being read.
fn freshness_text(model: &Model) -> String {
    match (model.rows.unread(), model.rows.saved_time()) {
        (0, _) => match count_unreachable(model) {
            0 => "live".to_string(),
            count => format!("live, {count} stale"),
        },
        (_, Some(time)) => format!("as of {}", format_time(model.now.local_time, time)),
        (count, None) => format!("reading {count}"),
    }
}

/// Returns the last run and its failures, or why the ledger cannot be read.
fn last_run_part(model: &Model, error_room: usize) -> Option<(String, Role)> {
    if let Some(error) = &model.errors.ledger {
        return Some((fit_end_of_sentence(error, error_room), Role::Bad));
    }
    let last = model.log.runs.iter().find(|run| run.has_agents())?;
    let failures = last.failures();
    let what = match last.verb() {
        "reset" => "run",
        verb => verb,
    };
    let mut text = format!(
        "last {what} {}: {} ok",
        format_time(model.now.local_time, last.ended_at),
        last.count_outcome(Outcome::Ok)
    );
    let role = if failures.is_empty() {
        Role::Dim
    } else {
        Role::Bad
    };
    match last.count_outcome(Outcome::Unchanged) {
        0 => {}
        unchanged => text.push_str(&format!(", {unchanged} unchanged")),
    }
    for (outcome, agents) in failures {
        let more = match agents.len() {
            0 | 1 => String::new(),
            count => format!(" +{}", count - 1),
        };
        let name = shorten_untrusted(agents.first().unwrap_or(&""), 20);
        let (count, word) = (agents.len(), outcome.count_label());
        text.push_str(&format!(", {count} {word} {name}{more}"));
    }
    Some((text, role))
}

fn marks_part(model: &Model) -> Option<(String, Role)> {
    let marked = model.fleet.marks.len();
    let text = match hidden_marked_agents(model).count() {
        0 => format!("marked {marked}"),
        hidden => format!("marked {marked} ({hidden} hidden by filter)"),
    };
    (marked > 0).then_some((text, Role::Mark))
}

fn filter_part(model: &Model, is_wide: bool) -> Option<(String, Role)> {
    let filter = model.fleet.filter.as_str();
    let shown = if filter.is_empty() { "none" } else { filter };
    // A restored filter is pointed out, because it hides agents without having been typed in this
    // session.
    let (notice, role) = if model.fleet.is_filter_restored {
        (" (restored; Esc clears)", Role::Warn)
    } else {
        ("", Role::Dim)
    };
    let text = truncate_untrusted(shown, MAX_FILTER_CELLS);
    (is_wide || !filter.is_empty()).then(|| (format!("filter: {text}{notice}"), role))
}

fn sort_part(model: &Model, is_wide: bool) -> Option<(String, Role)> {
    let order = model.fleet.sort_order;
    let reversed = if model.fleet.is_reversed {
        ", reversed"
    } else {
        ""
    };
    let text = format!("sort: {}{reversed}", order.label());
    let is_usual = order == SortOrder::default() && !model.fleet.is_reversed;
    (is_wide || !is_usual).then_some((text, Role::Dim))
}

/// The number of agents in a state, or in a group of states, as the header shows it.
struct HeaderCount {
    agents: usize,
    text: String,
    role: Role,
}

impl HeaderCount {
    fn of_state((state, agents): (State, usize)) -> HeaderCount {
        HeaderCount {
            agents,
            text: format!("{agents} {state}"),
            role: role_of_state(state),
        }
    }
}

/// Returns the header's counts by state, the worst first.
fn header_counts(model: &Model) -> Vec<HeaderCount> {
    let counts = model.rows.state_counts().into_iter();
    counts.map(HeaderCount::of_state).collect()
}

/// Returns the header's counts, with one number for SCRATCH and CLEAN.
fn folded_header_counts(model: &Model) -> Vec<HeaderCount> {
    let fine = |state: State| matches!(state, State::Scratch | State::Clean);
    let (ok, bad): (Vec<_>, Vec<_>) = model
        .rows
        .state_counts()
        .into_iter()
        .partition(|(state, _)| fine(*state));
    let agents: usize = ok.into_iter().map(|(_, number)| number).sum();
    let ok = HeaderCount {
        agents,
        text: format!("{agents} ok"),
        role: Role::Text,
    };
    bad.into_iter()
        .map(HeaderCount::of_state)
        .chain([ok])
        .collect()
}

/// Returns the widths that the layout of the columns depends on.
fn cell_widths(model: &Model) -> CellWidths {
    let cells = |width: Option<usize>| width.unwrap_or(0).min(usize::from(u16::MAX / 4)) as u16;
    let rows = &model.rows;
    let statuses = model.hosts.statuses();
    let labels = statuses.map(|status| model.hosts.label(&status.host).width());
    let longest_label = labels.max();
    let run_signs = rows.run_signs().map(|sign| sign.as_str().width());
    CellWidths {
        agent: cells(rows.name_width()),
        host: cells(rows.host_width().max(longest_label)),
        // Stale figures are in parentheses.
        last_run: cells(run_signs.max().map(|width| "(09:00 )".len() + width)),
        has_remote_agents: rows.has_remote_agents() || longest_label.is_some(),
    }
}

/// Returns an agent's host, with user and port if another host has the same name.
fn host_label(model: &Model, observation: &Observation) -> String {
    match model.hosts.status_of_agent(&observation.agent) {
        Some(status) => model.hosts.label(&status.host),
        None => observation.host.clone(),
    }
}

fn draw_cell(canvas: &mut Canvas<'_>, y: u16, span: &ColumnSpan, text: &str, role: Role) {
    if span.column.layout().is_right_aligned {
        canvas.put_right(span.x + span.width, y, text, role);
    } else {
        let text = shorten_untrusted(text, usize::from(span.width));
        canvas.put_text(span.x, y, &text, role);
    }
}

/// What a row needs that all rows share, and what was computed for all of them.
struct RowCells<'a> {
    spans: &'a [ColumnSpan],
    problem: &'a Option<HostProblem>,
    reason: Option<&'a ReasonCell>,
}

fn draw_row(model: &Model, canvas: &mut Canvas<'_>, y: u16, row: &AgentRow, cells: &RowCells<'_>) {
    let is_at_cursor = model.fleet.cursor_agent.as_ref() == Some(&row.name);
    if model.fleet.marks.contains(&row.name) {
        canvas.put_text(1, y, "*", Role::Mark);
    }
    if is_at_cursor {
        canvas.put_text(0, y, ">", Role::Text);
    }
    // Until it is read, the state of the last session is marked as that of a loading agent.
    let read_state = row.read_state();
    let state_role = role_of_state(read_state);
    canvas.put_text(2, y, read_state.glyph().trim_end(), state_role);
    for span in cells.spans {
        match (span.column, row.latest_observation()) {
            (FleetColumn::State, _) => draw_cell(canvas, y, span, row.state().as_str(), state_role),
            (FleetColumn::Agent, _) => {
                let mark = row.protection_mark();
                let room = usize::from(span.width).saturating_sub(mark.width());
                let name = shorten_untrusted(&row.name, room);
                let x = canvas.put_text(span.x, y, &name, Role::Text);
                canvas.put_text(x, y, &mark, Role::Tag);
                if is_at_cursor {
                    canvas.highlight_cursor(span.x..span.x + span.width, y);
                }
            }
            (FleetColumn::Trend, _) => {
                let trend = model.fleet.trends.get(&row.name);
                draw_cell(
                    canvas,
                    y,
                    span,
                    &trend_bars(trend.map_or(&[], Vec::as_slice)),
                    Role::Text,
                );
            }
            (_, None) => {}
            (FleetColumn::Reason, Some(_)) => {
                if let Some(cell) = cells.reason {
                    draw_reason(canvas, y, span, row, cell);
                }
            }
            (column, Some(observation)) => {
                // An unreachable agent shows its last readable observation.
                let is_never_stale = matches!(column, FleetColumn::Host | FleetColumn::LastRun);
                let last_readable = row
                    .last_readable_observation()
                    .filter(|_| cells.problem.is_some() && !is_never_stale);
                let text = match (last_readable, column) {
                    (Some(last_readable), column) => column_text(model, last_readable, column),
                    (None, column) => column_text(model, observation, column),
                };
                let is_stale = row.observation.is_none() || last_readable.is_some();
                // The config names the host, and nothing is read of it.
                let text = if is_stale && text != "-" && column != FleetColumn::Host {
                    format!("({text})")
                } else {
                    text
                };
                let role = match (column, &observation.last_run) {
                    (FleetColumn::LastRun, Some(last)) if last.outcome.is_failure() => Role::Bad,
                    _ if is_stale => Role::Dim,
                    _ => Role::Text,
                };
                draw_cell(canvas, y, span, &text, role);
            }
        }
    }
}

/// Returns what the column of the reason says of each row.
fn reason_cells(
    rows: &[&AgentRow],
    problems: &[Option<HostProblem>],
    room: usize,
) -> Vec<ReasonCell> {
    let whole = rows.iter().map(|row| {
        row.latest_observation()
            .map(|observation| WholeReason {
                reason: observation.reason.clone(),
                findings: findings_text(observation),
            })
            .unwrap_or_default()
    });
    let mut whole: Vec<WholeReason> = whole.collect();
    for (whole, problem) in whole.iter_mut().zip(problems) {
        // The reason has precedence over the time of the next attempt.
        if let Some(HostProblem {
            reason,
            next_attempt: Some(next),
        }) = problem
        {
            let both = format!("{reason}; {}", next.short_text());
            let is_whole = untrusted::visible_line(&both).width() <= room;
            whole.reason = if is_whole { both } else { reason.clone() };
        }
    }
    reasons::fit_reasons(&whole, room)
}

fn draw_reason(
    canvas: &mut Canvas<'_>,
    y: u16,
    span: &ColumnSpan,
    row: &AgentRow,
    cell: &ReasonCell,
) {
    let (reason_role, findings_role) = match row.observation {
        Some(_) => (Role::Text, Role::Warn),
        None => (Role::Dim, Role::Dim),
    };
    let x = canvas.put_text(span.x, y, &cell.reason, reason_role);
    canvas.put_text(x, y, &cell.findings, findings_role);
}

/// Returns what the scan found in what the agent wrote: "2 secrets, 41 MB not scanned".
fn findings_text(observation: &Observation) -> String {
    let content = observation.content.as_ref();
    content.map_or_else(String::new, |content| content.findings.describe())
}

fn column_text(model: &Model, observation: &Observation, column: FleetColumn) -> String {
    let now = model.now.local_time;
    let content = observation.content.as_ref();
    let text = match column {
        FleetColumn::Host => Some(host_label(model, observation)),
        FleetColumn::Size => content.map(|content| format_size(content.size)),
        FleetColumn::Limit => {
            content.map(|content| limit_usage(content.size, observation.max_size))
        }
        FleetColumn::Scratch => known_scratch_lines(observation).map(|lines| lines.to_string()),
        FleetColumn::DriftLines => {
            content
                .and_then(|content| content.boundary.as_ref())
                .map(|boundary| {
                    if boundary.is_drifted() {
                        format!("+{} -{}", boundary.added_lines, boundary.removed_lines)
                    } else {
                        "0".to_string()
                    }
                })
        }
        FleetColumn::Changed => {
            content.map(|content| format_modification_age(now, content.modified_ns))
        }
        FleetColumn::LastRun => {
            let last = observation.last_run.as_ref();
            let last = last.map(|last| {
                format!(
                    "{} {}",
                    format_time(model.now.local_time, last.time),
                    RunSign::new(last).as_str()
                )
            });
            let is_unknown = observation.ledger_error.is_some();
            last.or_else(|| is_unknown.then(|| "?".to_string()))
        }
        FleetColumn::State | FleetColumn::Agent | FleetColumn::Trend | FleetColumn::Reason => None,
    };
    text.unwrap_or_else(|| "-".to_string())
}

/// Returns sizes as bars of eight heights, the largest the highest.
fn trend_bars(sizes: &[u64]) -> String {
    let largest = sizes.iter().copied().max().unwrap_or(0).max(1);
    let bar = |size: &u64| {
        let bars = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        bars[(u128::from(*size) * 7 / u128::from(largest)) as usize]
    };
    match sizes {
        [] => "-".to_string(),
        sizes => sizes.iter().map(bar).collect(),
    }
}

/// Draws details of the agent under the cursor, and the next step.
fn draw_strip(model: &Model, canvas: &mut Canvas<'_>, y: u16) {
    let name = model.fleet.strip_agent.as_deref();
    let Some(row) = name.and_then(|name| model.find_row(name)) else {
        return;
    };
    let Some(observation) = row.latest_observation() else {
        let text = format!("{}: not read yet", row.name);
        canvas.put_untrusted(1, y, text.as_bytes(), Role::Dim);
        return;
    };
    let is_tall = strip_height(model) > 1;
    let is_tampered = observation.state == State::Tampered;
    let room = canvas.room(2);
    let hint = strip_hint(model, observation);
    // The name is in the list, too.
    let name = shorten_untrusted(&row.name, room / 3);
    let text = strip_text(model, row, observation, is_tall);
    let mut text = format!("{name}{}", untrusted::visible_line(text));
    // The hint is worth more than the middle of a path.
    if is_tall && !hint.is_empty() {
        text = shorten_paths(&text, room);
    }
    // Without a line of its own, the hint follows the reason.
    if !hint.is_empty() && (!is_tall || text.width() > room) {
        text.push_str(&format!("; {hint}"));
    }
    // For a TAMPERED agent the key to press matters more than the digests.
    let (first, rest) = if is_tall && !is_tampered {
        split_at_blank(&text, room)
    } else {
        (text.as_str(), "")
    };
    let first = if first.width() > room && is_tampered {
        fit_start_of_sentence(first, room)
    } else if first.width() > room {
        let (name, reason) = text.split_at(text.find(": ").map_or(0, |at| at + 2));
        let reason = fit_end_of_sentence(reason, room.saturating_sub(name.width()));
        format!("{name}{reason}")
    } else {
        first.to_string()
    };
    canvas.put_text(1, y, &truncate(&first, room), Role::Text);
    canvas.put_text(1, y, &name, role_of_state(row.state()));
    if !is_tall {
        return;
    }
    let (second, role) = if !rest.is_empty() {
        (fit_end_of_sentence(rest, room), Role::Text)
    } else if !hint.is_empty() {
        (truncate(&hint, room), Role::Text)
    } else {
        let next_step = next_step_hint(model, row, observation);
        (truncate(&next_step, room), Role::Dim)
    };
    canvas.put_text(1, y + 1, &second, role);
}

/// Returns the problem of an agent and the reason of its state, for the text behind its name.
fn strip_text(model: &Model, row: &AgentRow, observation: &Observation, is_tall: bool) -> String {
    let mut text = String::new();
    if observation.blocker.is_some() {
        text.push_str(" BLOCKED");
    }
    // Where the next step has no line of its own, it comes before the details.
    if !is_tall
        && observation.state == State::Tampered
        && let Some(step) = blocked_step(model, &row.name)
    {
        text.push_str(&format!("; {step}"));
    }
    let problem = host_problem(model, &row.name);
    if let Some(problem) = &problem {
        // The host's problem comes first.
        text.push_str(&format!(": {problem}"));
    }
    // A host that asks is past the failure that the observation tells.
    if !observation.reason.is_empty() && !is_asking(model, row) {
        // The host's problem is not repeated.
        let is_shown = |reason: &str| {
            let problem = problem.as_ref();
            problem.is_some_and(|it| reason.contains(&it.reason))
        };
        let reasons = observation.reason.split("; ");
        let reasons: Vec<&str> = reasons.filter(|reason| !is_shown(reason)).collect();
        let gap = if problem.is_some() { " - " } else { ": " };
        if !reasons.is_empty() && (problem.is_none() || is_tall) {
            text.push_str(&format!("{gap}{}", reasons.join("; ")));
        }
    } else if let Some(lines) = known_scratch_lines(observation) {
        text.push_str(&format!(": {}", format_count(lines, "scratch line")));
    }
    if let Some(blocker) = &observation.blocker
        && !observation.reason.contains(&blocker.reason)
    {
        text.push_str(&format!("; {}", blocker.reason));
    }
    let findings = findings_text(observation);
    if !findings.is_empty() {
        text.push_str(&format!("; {findings}"));
    }
    if let Some(hold) = model.log.schedule.hold_of_agent(&row.name) {
        text.push_str(&format!("; scheduled resets: {hold}"));
    }
    text
}

/// Whether the host of an agent waits for an answer of the operator.
fn is_asking(model: &Model, row: &AgentRow) -> bool {
    let status = model.hosts.status_of_agent(&row.name);
    status.is_some_and(|it| it.connection.pending_prompt.is_some())
}

/// Returns the hints of a blocker; for a missing baseline, the keys that create it. For a TAMPERED agent
/// there are none: the next step names the key that shows the details.
fn strip_hint(model: &Model, observation: &Observation) -> String {
    if observation.reason.contains(MISSING_BASELINE_REASON) && observation.state != State::Tampered
    {
        let baselines = model.key_hint(Command::GoBaselines);
        return format!("{baselines} opens it: {}", missing_baseline_keys(model));
    }
    let blocker = observation.blocker.iter();
    let hints = blocker
        .filter(|_| observation.state != State::Tampered)
        .flat_map(|blocker| &blocker.hints);
    let hints: Vec<String> = hints.map(untrusted::visible_line).collect();
    hints.join("; ")
}

/// Returns which keys to press next, by the agent's state.
fn next_step_hint(model: &Model, row: &AgentRow, observation: &Observation) -> String {
    let key = |command| model.key_hint(command);
    let (diff, plan) = (key(Command::OpenDiff), key(Command::PlanReset));
    if row.observation.is_none() {
        let time = format_time(model.now.local_time, observation.read_at);
        return format!("Last seen {time}; it is not read yet.");
    }
    match observation.state {
        State::Tampered => {
            let open = key(Command::OpenSelected);
            format!("{open} shows what differs from the last version that was sealed or pushed.")
        }
        State::Drifted => {
            format!("{diff} shows the lines that the agent changed, {plan} plans a reset.")
        }
        State::NoSep => {
            format!("{diff} shows the file, {plan} plans a reset that archives all of it.")
        }
        State::HostKey | State::Unreach if is_asking(model, row) => {
            let answer = key(Command::AnswerQuestion);
            format!("The host waits for your answer; {answer} shows its question.")
        }
        State::HostKey => {
            "Nothing was read or sent. Find out why the key changed before you trust it."
                .to_string()
        }
        State::Unreach => {
            let known = match row.last_readable_observation() {
                Some(_) => "these figures are from the last read",
                None => "no earlier figures",
            };
            let read = key(Command::ReadAgent);
            format!("The host cannot be reached; {known}. {read} tries again now.")
        }
        // A hint about the cause, if there is one, is shown instead of this.
        State::Error if observation.blocker.is_some() => {
            let read = key(Command::ReadAgent);
            format!("Resets are refused until this is fixed; {read} reads the agent again.")
        }
        State::Error => {
            format!("{plan} plans a reset and shows what happens to the existing file.")
        }
        State::Missing if row.baseline.is_none() => {
            "Create the directory, or correct memory_dir in the config.".to_string()
        }
        State::Missing => format!("{plan} plans to create it from the baseline."),
        State::Oversize if !observation.hidden_conditions().contains(&State::Behind) => {
            format!("{plan} plans a reset that archives its notes, {diff} shows the diff.")
        }
        State::Oversize | State::Behind => {
            let push = key(Command::PlanPush);
            let kept = match model.agent.marked_lines_of(&row.name) {
                Some(marked) => format_count(marked.len() as u64, "marked line"),
                None => "its notes".to_string(),
            };
            format!("{push} plans a push that keeps {kept}, {diff} shows old and new rules.")
        }
        State::Busy => "Locked by a run; wait until it has ended.".to_string(),
        State::Scratch => {
            let tab = key(Command::NextTab);
            format!("{diff} shows the diff, {diff} then {tab} the notes; {plan} plans a reset.")
        }
        State::Ill => {
            let open = key(Command::OpenSelected);
            format!("{open} and the tab Health show each finding, and what to do.")
        }
        State::Layout => {
            let open = key(Command::OpenSelected);
            format!(
                "A memory of several files, never reset; {open} shows its items and its health."
            )
        }
        State::Clean | State::Loading => "Nothing to do.".to_string(),
    }
}
