//! Draws the list of baselines, with the facts about the one under the cursor, and comparisons of two
//! versions.

mod versions;

use unicode_width::UnicodeWidthStr;

use crate::base::quantity::{format_count, format_size};
use crate::base::untrusted;
use crate::console::age::{format_age, format_time};
use crate::console::command::Command;
use crate::console::frame::{
    draw_compared_texts, draw_counts_in_row, draw_fleet_name, fleet_name_width,
};
use crate::console::model::Model;
use crate::console::model::visible_text::{is_side_by_side, text_height};
use crate::console::screen::Screen;
use crate::console::screens::baselines::state::{
    BaselinesPage, ComparedVersion, NO_BASELINE_REASON,
};
use crate::console::theme::Role;
use crate::console::widgets::canvas::{
    Canvas, fit_end_of_sentence, fit_start_of_sentence, search_note, shorten_untrusted,
    truncate_untrusted,
};
use crate::console::widgets::list_pane::{Columns, Fit, draw_unloaded};
use crate::engine::{
    BaselineList, BaselineState, BaselineSummary, FileOwner, FindingCounts, SizeBand,
};

/// Lines of facts below the list and below a comparison.
pub(super) const FACT_LINES: u16 = 2;

/// Cells that a filter takes at most.
const MAX_FILTER_CELLS: usize = 20;

/// Column of the state, behind cursor and mark.
const STATE_X: u16 = 3;

/// Columns from which states and agents are in words.
const MIN_WIDE_COLUMNS: u16 = 110;

/// Widths of the other columns.
const SIZE_WIDTH: u16 = 7;
const BAND_WIDTH: u16 = 12;
const WIDE_BAND_WIDTH: u16 = 21;
const NARROW_FINDINGS_WIDTH: u16 = 9;
const AGE_WIDTH: u16 = 8;
const FINDINGS_WIDTH: u16 = 11;

/// Returns the columns of a list of this width.
fn columns(model: &Model, width: u16) -> Columns {
    let is_wide = width >= MIN_WIDE_COLUMNS;
    let state: u16 = if is_wide { 24 } else { 11 };
    let names = model.baselines.summaries().iter();
    let longest = names.map(|it| untrusted::visible_line(&it.name).width());
    let longest = longest.max().unwrap_or(0).max("BASELINE".len()) as u16 + 1;
    let (band, findings, pushed) = match width {
        ..72 => (0, 0, 0),
        72..90 => (BAND_WIDTH, NARROW_FINDINGS_WIDTH, 0),
        90..110 => (BAND_WIDTH, NARROW_FINDINGS_WIDTH, AGE_WIDTH),
        _ => (BAND_WIDTH, FINDINGS_WIDTH, AGE_WIDTH),
    };
    // The state fits in full, and the agents keep some room.
    let others = STATE_X + state + SIZE_WIDTH + band + findings + AGE_WIDTH + pushed;
    let room = width.saturating_sub(others + if is_wide { 20 } else { 6 });
    // What the names leave of it lets the band say more.
    let left = room
        .saturating_sub(longest)
        .min(WIDE_BAND_WIDTH - BAND_WIDTH);
    let band = if is_wide { band + left } else { band };
    let gap = if band > 0 { 2 } else { 0 };
    Columns::from_x(STATE_X)
        .left("STATE", state)
        .left("BASELINE", longest.clamp(9, room.max(9)))
        .fitted(Fit::Middle)
        .right("SIZE", SIZE_WIDTH)
        .gap(gap)
        .left("BAND", band.saturating_sub(1))
        .left("FINDINGS", findings.saturating_sub(1))
        .right("CHANGED", AGE_WIDTH)
        .right("PUSHED", pushed)
        .gap(2)
        .rest(if is_wide { "AGENTS" } else { "FOR" }, width)
}

pub fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    match model.baselines.page {
        BaselinesPage::List => draw_list(model, canvas),
        BaselinesPage::Versions => versions::draw(model, canvas),
        BaselinesPage::Comparison => draw_comparison(model, canvas),
    }
}

fn draw_list(model: &Model, canvas: &mut Canvas<'_>) {
    let x = canvas.put_text(0, 0, "BASELINES", Role::Title) + 2;
    let x = draw_fleet_name(model, canvas, x, 0);
    canvas.draw_rule(2);
    let bottom = canvas.area.height - 3 - FACT_LINES;
    canvas.draw_rule(bottom);
    let Some(list) = draw_unloaded(canvas, 4, model.baselines.list.as_ref()) else {
        return;
    };
    draw_counts(list, canvas, x);
    draw_seal_line(model, list, canvas);
    let columns = columns(model, canvas.width());
    columns.draw_headings(canvas, 3);
    if list.baselines.is_empty() {
        let directory = list.directory.display().to_string();
        let text = if model.read_only.is_forced {
            "No baselines in ".to_string()
        } else {
            let key = model.key_hint(Command::NewBaseline);
            format!("{key} creates the first baseline in ")
        };
        let x = canvas.put_text(1, 4, &text, Role::Text);
        canvas.put_untrusted(x, 4, directory.as_bytes(), Role::Text);
    }
    let height = baselines_list_height(model);
    let visible = model.baselines.visible_summaries();
    if visible.is_empty() && !list.baselines.is_empty() {
        let text = "No baseline matches the filter. Esc shows all.";
        canvas.put_text(1, 4, text, Role::Text);
    }
    let list_pane = &model.baselines.list_pane;
    list_pane.draw(canvas, 4, (visible.len(), height), |canvas, y, index| {
        draw_row(model, canvas, y, visible[index], &columns);
        let name = shorten_untrusted(&visible[index].name, columns.room(1));
        columns.x(1)..columns.x(1) + name.width() as u16
    });
    match model.baselines.current_summary() {
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
    let counts = list
        .baselines
        .iter()
        .map(|it| (short_state(it.state), state_role(it.state)));
    draw_counts_in_row(canvas, x, counts);
}

/// Returns why the seal or its records cannot be used, if so.
pub fn seal_problem(list: &BaselineList) -> Option<String> {
    let error = list.seal_error.as_ref().or(list.ledger_error.as_ref());
    let signature = list.signature.as_ref().and_then(|it| it.as_ref().err());
    Some(error.or(signature)?.message().to_string())
}

/// Draws the directory, who signed the seal or its fault, and the number of marks.
fn draw_seal_line(model: &Model, list: &BaselineList, canvas: &mut Canvas<'_>) {
    let (text, role) = match (seal_problem(list), &list.signature) {
        (Some(why), _) => (why, Role::Bad),
        (None, Some(Ok(signed))) => {
            let time = format_time(model.now.local_time, signed.meta.time);
            let signer = &signed.signer.principal;
            let serial = signed.meta.serial;
            (
                format!("seal signed by {signer} {time}, serial {serial}"),
                Role::Text,
            )
        }
        (None, _) => (list.directory.display().to_string(), Role::Dim),
    };
    let marks = describe_filter_and_marks(model);
    let text = fit_end_of_sentence(&text, canvas.room(0).saturating_sub(marks.width() + 2));
    canvas.put_text(0, 1, &text, role);
    canvas.put_right(canvas.width(), 1, &marks, Role::Mark);
}

/// Says what the filter shows, and how many baselines are marked.
fn describe_filter_and_marks(model: &Model) -> String {
    let screen = &model.baselines;
    let visible = screen.visible_summaries();
    let mut parts = Vec::new();
    if !screen.filter.is_empty() {
        let filter = truncate_untrusted(&screen.filter, MAX_FILTER_CELLS);
        let (shown, all) = (visible.len(), screen.summaries().len());
        let verb = if shown == 1 { "matches" } else { "match" };
        parts.push(format!("filter: {filter}  {shown} of {all} {verb}"));
    }
    let marked = screen.marks.len();
    let is_marked = |it: &&&BaselineSummary| screen.marks.contains(&it.name);
    let hidden = marked.saturating_sub(visible.iter().filter(is_marked).count());
    match (marked, hidden) {
        (0, _) => {}
        (marked, 0) => parts.push(format!("marked {marked}")),
        (marked, hidden) => parts.push(format!("marked {marked} ({hidden} hidden by filter)")),
    }
    parts.join("  ")
}

/// Whether the ledger cannot be read, so that pushes may be unknown.
fn has_unread_ledger(model: &Model) -> bool {
    loaded_list(model).is_some_and(|list| list.ledger_error.is_some())
}

fn loaded_list(model: &Model) -> Option<&BaselineList> {
    model.baselines.list.as_ref()?.as_deref().ok()
}

fn draw_row(
    model: &Model,
    canvas: &mut Canvas<'_>,
    y: u16,
    summary: &BaselineSummary,
    columns: &Columns,
) {
    let is_wide = canvas.width() >= MIN_WIDE_COLUMNS;
    if model.baselines.marks.contains(&summary.name) {
        canvas.put_text(1, y, "*", Role::Mark);
    }
    let state = if is_wide {
        long_state(summary)
    } else {
        short_state(summary.state).to_string()
    };
    let size = summary.size.map_or("-".to_string(), format_size);
    let (band, band_role) = size_band(summary, columns.room(3));
    let (findings, findings_role) = short_findings(summary);
    let now = model.now.local_time;
    let changed = summary.changed;
    let changed = changed.map_or("-".to_string(), |time| format_age(now, time));
    let pushed = match &summary.last_push {
        Some(push) => format_age(now, push.time),
        None if has_unread_ledger(model) => "?".to_string(),
        None => "-".to_string(),
    };
    let agents = match summary.agents.as_slice() {
        [] => "none".to_string(),
        [one] if is_wide => one.clone(),
        many if is_wide => format!("{}: {}", many.len(), many.join(" ")),
        many => many.len().to_string(),
    };
    let cells = [
        (&*state, state_role(summary.state)),
        (&*summary.name, Role::Text),
        (&*size, Role::Text),
        (&*band, band_role),
        (&*findings, findings_role),
        (&*changed, Role::Text),
        (&*pushed, Role::Text),
        (&*agents, Role::Dim),
    ];
    columns.draw_row(canvas, y, cells);
}

/// Returns the words for the size of a baseline in `room` cells; the fleet's own limit matters more
/// than the band.
fn size_band(summary: &BaselineSummary, room: usize) -> (String, Role) {
    if summary.over_limit {
        let both = summary
            .band
            .map(|band| [format!("{band}, over limit"), format!("{band}, over")]);
        let fitting = both.into_iter().flatten().find(|text| text.width() <= room);
        return (
            fitting.unwrap_or_else(|| "over limit".to_string()),
            Role::Bad,
        );
    }
    match summary.band {
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

/// Returns the limit that the file exceeds and the findings of the lint in words, with what separates
/// them from the rest of a line; empty without any.
fn findings_words(summary: &BaselineSummary) -> String {
    let FindingCounts { errors, warnings } = summary.findings.unwrap_or_default();
    let counts = [(errors, "error"), (warnings, "warning")];
    let counted = counts.iter().filter(|(count, _)| *count > 0);
    let texts: Vec<String> = counted
        .map(|(count, noun)| format_count(*count as u64, noun))
        .collect();
    let limit = summary.limit.filter(|_| summary.over_limit);
    let limit = limit.map(|limit| format!("OVER the limit {} · ", format_size(limit)));
    let limit = limit.unwrap_or_default();
    if texts.is_empty() {
        limit
    } else {
        format!("{limit}lint: {} · ", texts.join(", "))
    }
}

/// Returns the role of a baseline's state.
pub fn state_role(state: BaselineState) -> Role {
    match state {
        BaselineState::Changed => Role::Tampered,
        BaselineState::Missing | BaselineState::TooSmall => Role::Trouble,
        BaselineState::Saved
        | BaselineState::Unsealed
        | BaselineState::Unsigned
        | BaselineState::Behind => Role::Warn,
        BaselineState::Ok => Role::Good,
    }
}

/// Returns a state in at most ten cells.
pub fn short_state(state: BaselineState) -> &'static str {
    match state {
        BaselineState::Changed => "CHANGED",
        BaselineState::Saved => "saved",
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

/// Names the keys of this screen that write a missing baseline.
pub fn missing_baseline_keys(model: &Model) -> String {
    let [new, versions] =
        [Command::NewBaseline, Command::OpenVersions].map(|it| model.key_hint(it));
    format!("{new} creates it, {versions} lists its versions")
}

/// Draws what an operator should know about a baseline: the evidence, and what follows.
pub(super) fn draw_facts(
    model: &Model,
    canvas: &mut Canvas<'_>,
    y: u16,
    summary: &BaselineSummary,
) {
    for ((text, role), y) in fact_lines(model, summary).into_iter().zip(y..) {
        canvas.put_start(1, y, &text, role);
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
    let used = format!("{}{used}{}", findings_words(summary), limit_words(summary));
    // Keys that do nothing are not named.
    let writing_keys = |keys: String| {
        if model.read_only.is_forced {
            String::new()
        } else {
            keys
        }
    };
    // The verification has no keys for a new baseline or a push.
    let baselines_keys = |keys: String| match model.screen {
        Screen::Baselines => writing_keys(keys),
        _ => String::new(),
    };
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
            let keys = writing_keys(format!("{restore} restores it, {seal} seals this one · "));
            let text = format!("{keys}{}{reach}", findings_words(summary));
            [plain(owner), (text, Role::Tampered)]
        }
        BaselineState::Saved => {
            let seal = seal_hint(model);
            let why = format!("saved with this program: resets refuse it until it is sealed{seal}");
            [(why, Role::Warn), plain(used)]
        }
        BaselineState::Missing => {
            let why = summary.problem.clone();
            let why = why.unwrap_or_else(|| "the file does not exist".to_string());
            let keys = baselines_keys(format!("{} · ", missing_baseline_keys(model)));
            [(why, Role::Trouble), plain(format!("{keys}{used}"))]
        }
        BaselineState::TooSmall => {
            let why = "under min_baseline_size: resets refuse it".to_string();
            [(why, Role::Trouble), plain(format!("{used}; {owner}"))]
        }
        BaselineState::Unsealed => {
            let why = describe_unsealed(model);
            [(why, Role::Warn), plain(format!("{used}; {owner}"))]
        }
        BaselineState::Unsigned => {
            let keys = [Command::PlanSeal, Command::NameSigningKey].map(|it| model.key_hint(it));
            let [seal, sign] = keys;
            let keys = writing_keys(format!(": {seal}, then {sign} signs it"));
            let why = format!("the seal has no good signature{keys}");
            [(why, Role::Warn), plain(format!("{used}; {owner}"))]
        }
        BaselineState::Behind => {
            let behind = summary.behind.join(", ");
            let key = model.key_hint(Command::PlanPush);
            let keys = baselines_keys(format!("{key} pushes this version and keeps the notes · "));
            let why = format!("{keys}behind: {behind}");
            [
                (why, Role::Warn),
                plain(format!("{}{owner}", findings_words(summary))),
            ]
        }
        BaselineState::Ok => {
            let installed = describe_last_installation(model, summary);
            [plain(format!("{used}{installed}")), plain(owner)]
        }
    }
}

/// Returns the last reset or push that installed it, to be read after other facts; nothing without one.
fn describe_last_installation(model: &Model, summary: &BaselineSummary) -> String {
    summary.last_push.as_ref().map_or_else(String::new, |push| {
        let time = format_time(model.now.local_time, push.time);
        format!("; last installed {time}, run {}", push.run)
    })
}

/// Says what it means that the seal does not list a baseline.
fn describe_unsealed(model: &Model) -> String {
    let list = loaded_list(model).filter(|list| list.is_unsealed_refused);
    let Some(list) = list else {
        return "not in the seal: its integrity is not checked".to_string();
    };
    match seal_problem(list) {
        Some(why) => format!("resets refuse it: {why}"),
        None => {
            let seal = seal_hint(model);
            format!("not in the seal: resets are refused until it is sealed{seal}")
        }
    }
}

/// Returns `: S seals it`; nothing where nothing can be sealed.
fn seal_hint(model: &Model) -> String {
    if model.read_only.is_forced {
        return String::new();
    }
    format!(": {} seals it", model.key_hint(Command::PlanSeal))
}

/// Returns the size limit of the agents that use a baseline, with what separates it from the words
/// before; empty where the file exceeds it.
fn limit_words(summary: &BaselineSummary) -> String {
    let limit = summary.limit.filter(|_| !summary.over_limit);
    limit.map_or_else(String::new, |limit| {
        format!(" · limit {}", format_size(limit))
    })
}

/// Says who owns a file and when it changed: `changed 02:11 · uid 1004, gid 1004, mode 0664`.
pub fn describe_owner(model: &Model, owner: FileOwner) -> String {
    let now = model.now.local_time;
    let time = |time: chrono::DateTime<chrono::FixedOffset>| {
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

/// Returns the number of rows of the lists of baselines and versions that fit.
pub fn baselines_list_height(model: &Model) -> usize {
    // Two lines of header, a rule, the column heads; a rule, the facts, the message, the hints.
    let fixed = 7 + usize::from(FACT_LINES);
    model.rows_beside(fixed)
}

fn draw_comparison(model: &Model, canvas: &mut Canvas<'_>) {
    let view = &model.baselines.comparison;
    let name = &view.request.name;
    let summary = model.baselines.find(name);
    let shown_name = shorten_untrusted(name, usize::from(canvas.width() / 2));
    let mut x = canvas.put_text(0, 0, &shown_name, Role::Title) + 2;
    if let Some(summary) = summary {
        let state = long_state(summary);
        x = canvas.put_text(x, 0, &state, state_role(summary.state)) + 2;
    }
    draw_position(model, canvas, x);
    draw_sides(model, canvas);
    canvas.draw_rule(2);
    draw_compared_texts(model, canvas, 3, &view.shown.titles);
    let bottom = canvas.area.height - 3 - FACT_LINES;
    canvas.draw_rule(bottom);
    if let Some(summary) = summary {
        draw_facts(model, canvas, bottom + 1, summary);
    }
}

/// Draws the current hunk and the numbers of changed lines.
fn draw_position(model: &Model, canvas: &mut Canvas<'_>, x: u16) {
    let view = &model.baselines.comparison.shown;
    let pane = &view.pane;
    if !view.is_loaded {
        return;
    }
    let (added, removed) = view.changed_lines;
    let mut parts = vec![format!("+{added} -{removed}")];
    parts.extend(pane.describe_hunk(text_height(model)));
    let hit = (!pane.hits.is_empty()).then_some(pane.current_hit + 1);
    let room = canvas.room(x);
    let search = search_note(&pane.query, hit, pane.hits.len(), room / 2);
    if !search.is_empty() {
        parts.insert(0, search);
    }
    while parts.join("  ").width() > room && parts.pop().is_some() {}
    canvas.put_right(canvas.width(), 0, &parts.join("  "), Role::Text);
}

/// Draws which versions are compared, and the fleet.
fn draw_sides(model: &Model, canvas: &mut Canvas<'_>) {
    let [old, new] = &model.baselines.comparison.request.sides;
    let title = |side: usize, version: &ComparedVersion| {
        let titles = &model.baselines.comparison.shown.titles;
        if is_side_by_side(model) {
            version.label()
        } else {
            titles[side].clone()
        }
    };
    let text = format!("{} -> {}", title(0, old), title(1, new));
    let text = fit_start_of_sentence(
        &text,
        canvas.room(0).saturating_sub(fleet_name_width(model) + 2),
    );
    let x = canvas.put_text(0, 1, &text, Role::Heading) + 2;
    draw_fleet_name(model, canvas, x, 1);
}
