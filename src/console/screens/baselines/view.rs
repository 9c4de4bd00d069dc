//! Draws the list of baselines, with the facts about the one under the cursor.

mod comparison;
mod versions;

use unicode_width::UnicodeWidthStr;

use crate::console::age::{format_age, format_time};
use crate::console::canvas::{
    Canvas, fit_end_of_sentence, fit_start_of_sentence, format_count, format_size,
    shorten_untrusted, truncate_untrusted, wrap_text,
};
use crate::console::command::Command;
use crate::console::frame::draw_fleet_name;
use crate::console::model::Model;
use crate::console::screens::baselines::state::{BaselinesPage, NO_BASELINE_REASON};
use crate::console::theme::Role;
use crate::engine::{
    BaselineList, BaselineState, BaselineSummary, FileOwner, FindingCounts, SizeBand,
};
use crate::untrusted;

/// Lines of facts below the list and below a comparison.
pub(super) const FACT_LINES: u16 = 2;

/// Column of the state, behind cursor and mark.
const STATE_X: u16 = 3;

/// Widths of the columns that depend on the names and on the screen.
struct ListColumns {
    state: u16,
    name: u16,
    findings: u16,
    is_wide: bool,
}

/// Widths of the other columns.
const SIZE_WIDTH: u16 = 7;
const BAND_WIDTH: u16 = 12;
const AGE_WIDTH: u16 = 8;
const FINDINGS_WIDTH: u16 = 11;

impl ListColumns {
    fn new(model: &Model, width: u16) -> ListColumns {
        let is_wide = width >= 110;
        let state: u16 = if is_wide { 24 } else { 11 };
        let names = model.baselines.summaries().iter();
        let longest = names.map(|it| untrusted::visible_line(&it.name).width());
        let longest = longest.max().unwrap_or(0).max("BASELINE".len()) as u16 + 1;
        let findings = if is_wide { FINDINGS_WIDTH } else { 0 };
        let others = STATE_X + state + SIZE_WIDTH + BAND_WIDTH + findings + 2 * AGE_WIDTH;
        let room = width.saturating_sub(others + if is_wide { 20 } else { 6 });
        ListColumns {
            state,
            name: longest.clamp(9, room.max(9)),
            findings,
            is_wide,
        }
    }
}

pub fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    match model.baselines.page {
        BaselinesPage::List => draw_list(model, canvas),
        BaselinesPage::Versions => versions::draw(model, canvas),
        BaselinesPage::Comparison => comparison::draw(model, canvas),
    }
}

fn draw_list(model: &Model, canvas: &mut Canvas<'_>) {
    let x = canvas.put_text(0, 0, "BASELINES", Role::Title) + 2;
    let x = draw_fleet_name(model, canvas, x, 0);
    canvas.draw_rule(2);
    let bottom = canvas.area.height - 3 - FACT_LINES;
    canvas.draw_rule(bottom);
    let list = match &model.baselines.list {
        None => {
            canvas.put_text(1, 4, "reading …", Role::Dim);
            return;
        }
        Some(Err(why)) => {
            let room = usize::from(canvas.width()) - 2;
            let lines = wrap_text(&untrusted::visible_line(why), room, 4);
            for (line, y) in lines.iter().zip(4..) {
                canvas.put_text(1, y, line, Role::Bad);
            }
            return;
        }
        Some(Ok(list)) => list,
    };
    draw_counts(list, canvas, x);
    draw_seal_line(model, list, canvas);
    let columns = ListColumns::new(model, canvas.width());
    draw_headings(canvas, &columns);
    if list.baselines.is_empty() {
        let directory = list.directory.display().to_string();
        let x = canvas.put_text(1, 4, "No baselines in ", Role::Text);
        canvas.put_untrusted(x, 4, directory.as_bytes(), Role::Text);
    }
    let cursor = model.baselines.cursor_index();
    let height = model.baselines_list_height();
    let rows = list.baselines.iter().enumerate();
    for (index, summary) in rows.skip(model.baselines.top).take(height) {
        let y = 4 + (index - model.baselines.top) as u16;
        draw_row(model, canvas, y, summary, &columns, index == cursor);
    }
    match list.baselines.get(cursor) {
        Some(summary) => draw_facts(model, canvas, bottom + 1, summary),
        None => {
            canvas.put_text(1, bottom + 1, NO_BASELINE_REASON, Role::Dim);
        }
    }
}

/// Draws the number of baselines in each state, worst first.
fn draw_counts(list: &BaselineList, canvas: &mut Canvas<'_>, mut x: u16) {
    if canvas.width() >= 100 {
        let all = format!("{}:", format_count(list.baselines.len() as u64, "baseline"));
        x = canvas.put_text(x, 0, &all, Role::Text) + 1;
    }
    let mut rest = list.baselines.as_slice();
    while let Some(first) = rest.first() {
        let same = rest.iter().take_while(|it| it.state == first.state).count();
        let text = format!("{same} {}", short_state(first.state));
        // The list below is in the same order.
        if usize::from(canvas.width().saturating_sub(x)) < text.width() {
            break;
        }
        x = canvas.put_text(x, 0, &text, state_role(first.state)) + 1;
        rest = &rest[same..];
    }
}

/// Draws the directory, who signed the seal or its fault, and the number of marks.
fn draw_seal_line(model: &Model, list: &BaselineList, canvas: &mut Canvas<'_>) {
    let list_error = list.seal_error.as_ref().or(list.ledger_error.as_ref());
    let (text, role) = match (list_error, &list.signature) {
        (Some(error), _) | (None, Some(Err(error))) => (error.message().to_string(), Role::Bad),
        (None, Some(Ok(signed))) => {
            let time = format_time(model.now.local_time, signed.meta.time);
            let signer = &signed.signer.principal;
            let serial = signed.meta.serial;
            (
                format!("seal signed by {signer} {time}, serial {serial}"),
                Role::Text,
            )
        }
        (None, None) => (list.directory.display().to_string(), Role::Dim),
    };
    let marks = match model.baselines.marks.len() {
        0 => String::new(),
        count => format!("marked {count}"),
    };
    let room = usize::from(canvas.width()).saturating_sub(marks.width() + 2);
    canvas.put_text(0, 1, &fit_end_of_sentence(&text, room), role);
    canvas.put_right(canvas.width(), 1, &marks, Role::Mark);
}

fn draw_headings(canvas: &mut Canvas<'_>, columns: &ListColumns) {
    canvas.put_text(STATE_X, 3, "STATE", Role::Heading);
    let mut x = STATE_X + columns.state;
    canvas.put_text(x, 3, "BASELINE", Role::Heading);
    x += columns.name + SIZE_WIDTH;
    canvas.put_right(x, 3, "SIZE", Role::Heading);
    canvas.put_text(x + 2, 3, "BAND", Role::Heading);
    x += BAND_WIDTH;
    if columns.is_wide {
        canvas.put_text(x + 1, 3, "FINDINGS", Role::Heading);
    }
    x += columns.findings + AGE_WIDTH;
    canvas.put_right(x, 3, "CHANGED", Role::Heading);
    x += AGE_WIDTH;
    canvas.put_right(x, 3, "PUSHED", Role::Heading);
    let title = if columns.is_wide { "AGENTS" } else { "FOR" };
    canvas.put_text(x + 2, 3, title, Role::Heading);
}

fn draw_row(
    model: &Model,
    canvas: &mut Canvas<'_>,
    y: u16,
    summary: &BaselineSummary,
    columns: &ListColumns,
    is_at_cursor: bool,
) {
    if is_at_cursor {
        canvas.put_text(0, y, ">", Role::Text);
    }
    if model.baselines.marks.contains(&summary.name) {
        canvas.put_text(1, y, "*", Role::Mark);
    }
    let state = if columns.is_wide {
        long_state(summary)
    } else {
        short_state(summary.state).to_string()
    };
    canvas.put_text(STATE_X, y, &state, state_role(summary.state));
    let mut x = STATE_X + columns.state;
    let name = shorten_untrusted(&summary.name, usize::from(columns.name) - 1);
    canvas.put_text(x, y, &name, Role::Text);
    if is_at_cursor {
        canvas.highlight_cursor(x, y, name.width() as u16);
    }
    x += columns.name + SIZE_WIDTH;
    let size = summary.size.map_or("-".to_string(), format_size);
    canvas.put_right(x, y, &size, Role::Text);
    let (band, role) = size_band(summary);
    canvas.put_text(x + 2, y, &band, role);
    x += BAND_WIDTH;
    if columns.is_wide {
        let (findings, role) = short_findings(summary);
        canvas.put_text(x + 1, y, &findings, role);
    }
    x += columns.findings + AGE_WIDTH;
    let age = |time: Option<_>| {
        time.map_or("-".to_string(), |time| {
            format_age(model.now.local_time, time)
        })
    };
    canvas.put_right(x, y, &age(summary.changed), Role::Text);
    x += AGE_WIDTH;
    let pushed = summary.last_push.as_ref().map(|push| push.time);
    canvas.put_right(x, y, &age(pushed), Role::Text);
    let room = usize::from(canvas.width().saturating_sub(x + 2));
    let agents = match summary.agents.as_slice() {
        [] => "none".to_string(),
        [one] if columns.is_wide => one.clone(),
        many if columns.is_wide => format!("{}: {}", many.len(), many.join(" ")),
        many => many.len().to_string(),
    };
    let agents = truncate_untrusted(&agents, room);
    canvas.put_text(x + 2, y, &agents, Role::Dim);
}

/// Returns the word for the size of a baseline; the fleet's own limit comes first.
fn size_band(summary: &BaselineSummary) -> (String, Role) {
    match summary.band {
        _ if summary.over_limit => ("over limit".to_string(), Role::Bad),
        None => ("-".to_string(), Role::Dim),
        Some(SizeBand::Good) => (SizeBand::Good.to_string(), Role::Good),
        Some(band @ (SizeBand::Thin | SizeBand::Bloated)) => (band.to_string(), Role::Warn),
        Some(band) => (band.to_string(), Role::Text),
    }
}

/// Returns the numbers of errors and warnings of the lint: `E1 W2`.
fn short_findings(summary: &BaselineSummary) -> (String, Role) {
    match summary.findings {
        None => ("-".to_string(), Role::Dim),
        Some(FindingCounts {
            errors: 0,
            warnings: 0,
        }) => ("none".to_string(), Role::Dim),
        Some(FindingCounts {
            errors: 0,
            warnings,
        }) => (format!("W{warnings}"), Role::Warn),
        Some(FindingCounts {
            errors,
            warnings: 0,
        }) => (format!("E{errors}"), Role::Bad),
        Some(FindingCounts { errors, warnings }) => (format!("E{errors} W{warnings}"), Role::Bad),
    }
}

/// Returns the findings of the lint in words, with what separates them from the rest of a line; empty
/// without any.
fn findings_words(summary: &BaselineSummary) -> String {
    let FindingCounts { errors, warnings } = summary.findings.unwrap_or_default();
    let counts = [(errors, "error"), (warnings, "warning")];
    let counted = counts.iter().filter(|(count, _)| *count > 0);
    let texts: Vec<String> = counted
        .map(|(count, noun)| format_count(*count as u64, noun))
        .collect();
    if texts.is_empty() {
        String::new()
    } else {
        format!("lint: {} · ", texts.join(", "))
    }
}

/// Returns the role of a baseline's state.
pub fn state_role(state: BaselineState) -> Role {
    match state {
        BaselineState::Changed => Role::Tampered,
        BaselineState::Missing | BaselineState::TooSmall => Role::Trouble,
        BaselineState::Unsealed | BaselineState::Unsigned | BaselineState::Behind => Role::Warn,
        BaselineState::Ok => Role::Good,
    }
}

/// Returns a state in at most ten cells.
pub fn short_state(state: BaselineState) -> &'static str {
    match state {
        BaselineState::Changed => "CHANGED",
        state => state.as_str(),
    }
}

/// Returns a state with the number of agents that it is about.
fn long_state(summary: &BaselineSummary) -> String {
    match summary.state {
        BaselineState::Behind => {
            let agents = format_count(summary.behind.len() as u64, "agent");
            format!("behind on {agents}")
        }
        BaselineState::Changed => "CHANGED since the seal".to_string(),
        state => state.as_str().to_string(),
    }
}

/// Draws what an operator should know about a baseline: the evidence, and what follows.
pub(super) fn draw_facts(
    model: &Model,
    canvas: &mut Canvas<'_>,
    y: u16,
    summary: &BaselineSummary,
) {
    let room = usize::from(canvas.width()) - 2;
    let lines = fact_lines(model, summary);
    for ((text, role), y) in lines.iter().zip(y..) {
        canvas.put_text(1, y, &fit_start_of_sentence(text, room), *role);
    }
}

/// Returns what an operator should know about a baseline, and the role of each line.
pub fn fact_lines(model: &Model, summary: &BaselineSummary) -> [(String, Role); 2] {
    let agents = summary.agents.join(", ");
    let used = if agents.is_empty() {
        "no agent uses it".to_string()
    } else {
        format!("used by {agents}")
    };
    let owner = summary.owner.map(|owner| describe_owner(model, owner));
    let owner = owner.unwrap_or_else(|| "no file".to_string());
    let used = format!("{}{used}", findings_words(summary));
    let plain = |text: String| (text, Role::Text);
    match summary.state {
        BaselineState::Changed => {
            let reach = if agents.is_empty() {
                "no agent uses it".to_string()
            } else {
                format!("resets BLOCKED: {agents}")
            };
            let [restore, seal] =
                [Command::PlanRestore, Command::PlanSeal].map(|it| model.key_hint(it));
            let keys = format!("{restore} restores it, {seal} seals this one");
            let text = format!("{keys} · {}{reach}", findings_words(summary));
            [plain(owner), (text, Role::Tampered)]
        }
        BaselineState::Missing => {
            let why = summary.problem.clone();
            let why = why.unwrap_or_else(|| "the file does not exist".to_string());
            [(why, Role::Trouble), plain(used)]
        }
        BaselineState::TooSmall => {
            let why = "under min_baseline_size: resets refuse it".to_string();
            [(why, Role::Trouble), plain(format!("{used}; {owner}"))]
        }
        BaselineState::Unsealed => {
            let why = "not in the seal: its integrity is not checked".to_string();
            [(why, Role::Warn), plain(format!("{used}; {owner}"))]
        }
        BaselineState::Unsigned => {
            let why = "the seal has no good signature".to_string();
            [(why, Role::Warn), plain(format!("{used}; {owner}"))]
        }
        BaselineState::Behind => {
            let behind = summary.behind.join(", ");
            let why = format!("older version on {behind}: the next reset pushes this one");
            [
                (why, Role::Warn),
                plain(format!("{}{owner}", findings_words(summary))),
            ]
        }
        BaselineState::Ok => {
            let push = summary.last_push.as_ref().map(|push| {
                let time = format_time(model.now.local_time, push.time);
                format!("; last push {time}, run {}", push.run)
            });
            [
                plain(format!("{used}{}", push.unwrap_or_default())),
                plain(owner),
            ]
        }
    }
}

/// Says who owns a file and when it changed: `changed 02:11 · uid 1004, gid 1004, mode 0664`.
pub fn describe_owner(model: &Model, owner: FileOwner) -> String {
    let now = model.now.local_time;
    let time = |time: chrono::DateTime<chrono::FixedOffset>| {
        let time = time.with_timezone(now.offset());
        if time.date_naive() == now.date_naive() {
            time.format("%H:%M:%S").to_string()
        } else {
            time.format("%m-%d %H:%M").to_string()
        }
    };
    let (uid, gid, mode) = (owner.uid, owner.gid, owner.mode);
    let changed = time(owner.changed_at);
    let mut text = format!("changed {changed} · owner uid {uid}, gid {gid}, mode {mode:04o}");
    // A program that sets back mtime cannot set back ctime.
    if (owner.changed_at - owner.modified_at).num_seconds().abs() > 1 {
        text.push_str(&format!(" · mtime {}", time(owner.modified_at)));
    }
    text
}

impl Model {
    /// Returns the number of rows of the lists of baselines and versions that fit.
    pub fn baselines_list_height(&self) -> usize {
        // Two lines of header, a rule, the column heads; a rule, the facts, the message, the hints.
        let fixed = 7 + usize::from(FACT_LINES);
        usize::from(self.size.1).saturating_sub(fixed).max(1)
    }
}
