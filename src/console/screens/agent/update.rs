//! What the agent screen does: opens an agent, shows its texts and its history, and searches them.

pub mod memory;

use std::collections::{HashMap, HashSet};

use crate::base::quantity::format_count;
use crate::console::age::{format_age, format_modification_age};
use crate::console::agent_row::AgentRow;
use crate::console::command::{Command, require};
use crate::console::keys::key::{Key, KeyCode};
use crate::console::message::{AgentTexts, Effect};
use crate::console::model::copied_text::clipboard_text;
use crate::console::model::host_problems::host_problem;
use crate::console::model::read_only::check_writable;
use crate::console::model::targets::{selected_entry, subject_agent};
use crate::console::model::visible_text::{check_text, scroll_text, text_height};
use crate::console::model::{AgentView, Model, NEVER_RESET_REASON};
use crate::console::screen::Screen;
use crate::console::screens::agent::state::{AgentTab, CONTEXT_LINE_CHOICES};
use crate::console::screens::agent::view::agent_list_height;
use crate::console::screens::baselines;
use crate::console::screens::fleet::visible_agents::{
    keep_fleet_cursor_visible, shows_agent, visible_agent, visible_index,
};
use crate::console::text::{self, PreparedText, TextLine, Tones};
use crate::console::widgets::list_pane::step_index;
use crate::console::widgets::prompt::{Prompt, PromptPurpose};
use crate::engine::{HistoryEntry, State};
use crate::layouts::MemoryItem;

/// Shows texts, unless they are outdated or of another agent.
pub fn handle_texts(model: &mut Model, texts: AgentTexts) {
    let row = model.find_row(&texts.agent);
    if row.is_some_and(|row| row.has_moved(texts.address.as_ref())) {
        return;
    }
    let agent = &mut model.agent;
    if agent.agent != texts.agent || texts.generation < agent.generation {
        return;
    }
    let first = agent.generation == 0;
    agent.generation = texts.generation;
    agent.diff.show(texts.diff);
    agent.scratch.replace_lines(texts.scratch.lines);
    let marked = agent.marked_lines.get_mut(&agent.agent);
    let lost_lines = marked.map_or(0, |marked| marked.follow(&agent.scratch.lines));
    agent.baseline.show(texts.baseline);
    let facts;
    (agent.fact_labels, facts) = texts.facts.into_iter().unzip();
    agent.facts.replace_lines(facts);
    agent.facts.lines_added_above = 0;
    agent.diff_titles = texts.diff_titles;
    agent.baseline_titles = texts.baseline_titles;
    agent.findings = texts.findings;
    agent.cached_observation = texts.cached_observation;
    if first {
        let text = &model.agent.scratch.lines;
        let line = text.iter().position(is_note).unwrap_or(0);
        model.agent.scratch.cursor_line = line;
        let height = text_height(model);
        model.agent.diff.scroll_to_first_hunk(height);
    }
    if lost_lines > 0 {
        let lines = format_count(lost_lines as u64, "marked line");
        let text = format!("{}: {lines} changed, so no longer marked", texts.agent);
        model.report_warning(text);
    }
    model.is_dirty = true;
}

/// Whether a line of the scratch has text and is not a heading.
fn is_note(line: &TextLine) -> bool {
    let text = line.bytes.trim_ascii();
    line.new_number.is_some() && !text.is_empty() && !text.starts_with(b"#")
}

/// Colours the lines of the texts of this generation; an older one has other lines.
pub fn handle_tones(model: &mut Model, name: &str, generation: u64, tones: &HashMap<usize, Tones>) {
    let agent = &mut model.agent;
    if agent.agent != name || agent.generation != generation {
        return;
    }
    agent.diff.apply_tones(tones);
    agent.scratch.apply_tones(tones);
    model.is_dirty |= model.screen == Screen::Agent;
}

/// Requests the content of the tab on the screen, if it is not among the prepared texts.
pub fn request_tab(model: &mut Model) -> Vec<Effect> {
    let agent = model.agent.agent.clone();
    match (model.screen, model.agent.tab) {
        (Screen::Agent, AgentTab::History) => vec![Effect::LoadHistory(agent)],
        (Screen::Agent, AgentTab::Rules) => vec![Effect::CompareRules(agent)],
        (Screen::Agent, AgentTab::Memory) => memory::load(model),
        (Screen::Agent, AgentTab::Health) => memory::check_health(model),
        _ => Vec::new(),
    }
}

/// Returns the tabs of the agent on the screen.
pub fn offered_tabs(model: &Model) -> Vec<AgentTab> {
    AgentTab::offered_for(model.find_row(&model.agent.agent))
}

/// Goes to the first tab of an agent, if it does not have the open one.
fn choose_offered_tab(model: &mut Model, name: &str) {
    let offered = AgentTab::offered_for(model.find_row(name));
    let first = offered.first().copied();
    model.agent.tab = first
        .filter(|_| !offered.contains(&model.agent.tab))
        .unwrap_or(model.agent.tab);
}

/// Leaves a tab that the agent on the screen does not have any more.
pub fn keep_tab_offered(model: &mut Model) {
    let (name, tab) = (model.agent.agent.clone(), model.agent.tab);
    choose_offered_tab(model, &name);
    model.agent.is_text_due |= model.agent.tab != tab;
}

/// Shows the changes of the rules of an agent, if it is the one on the screen.
pub fn handle_rules(model: &mut Model, name: &str, rules: PreparedText) {
    if model.agent.agent == name {
        model.agent.rules.replace_lines(rules.lines);
        model.is_dirty = true;
    }
}

/// Shows the history of an agent, if it is the one on the screen.
pub fn handle_history(model: &mut Model, name: &str, past: Result<Vec<HistoryEntry>, String>) {
    if model.agent.agent == name {
        model.agent.history.records = Some(past);
        model.is_dirty = true;
    }
}

/// Shows what a run changed, if its record is still open.
pub fn handle_run_diff(
    model: &mut Model,
    name: &str,
    seq: u64,
    text: Result<PreparedText, String>,
) {
    let agent = &mut model.agent;
    if agent.agent != name || agent.history.open_seq != Some(seq) {
        return;
    }
    let prepared = text.unwrap_or_else(PreparedText::note);
    agent.history.diff.show(prepared);
    let height = text_height(model);
    model.agent.history.diff.scroll_to_first_hunk(height);
    model.is_dirty = true;
}

/// Opens the item under the cursor, what the run under it changed, or the evidence about the baseline.
pub fn open_selected(model: &mut Model) -> Vec<Effect> {
    match model.agent.tab {
        AgentTab::Memory => memory::open_selected(model),
        AgentTab::Health => memory::open_finding(model),
        AgentTab::History => open_run_diff(model),
        _ => open_baseline(model),
    }
}

fn open_run_diff(model: &mut Model) -> Vec<Effect> {
    let directory = model.rows.layout_directory(&model.agent.agent);
    let agent = &mut model.agent;
    let Some(past) = agent.history.current_record() else {
        return Vec::new();
    };
    let seq = past.record.seq;
    let files = &past.record.event.files;
    let files = text::prepare_recorded_changes(&directory, files, &[], None);
    agent.history.list.key = Some(seq);
    agent.history.open_seq = Some(seq);
    agent.history.diff.clear();
    if !files.lines.is_empty() {
        // The record says what happened to several files, until their contents are read.
        agent.history.diff.show(files);
    }
    vec![Effect::PrepareRunDiff(agent.agent.clone(), seq)]
}

fn move_history_cursor(model: &mut Model, by: isize) {
    let history = &mut model.agent.history;
    history.list = history.list.stepped(by, history.loaded_records());
}

/// Toggles side-by-side and unified diffs.
pub fn toggle_side_by_side(model: &mut Model) {
    model.text_options.is_unified ^= true;
}

/// Shows more or fewer unchanged lines around changes.
pub fn change_context(model: &mut Model, by: isize) {
    let shown = &mut model.text_options.context_lines;
    let choice = CONTEXT_LINE_CHOICES.iter().position(|it| it == shown);
    let last = CONTEXT_LINE_CHOICES.len() - 1;
    let choice = choice.unwrap_or(last);
    let next = choice.saturating_add_signed(by).min(last);
    *shown = CONTEXT_LINE_CHOICES[next];
    if next == choice {
        model.show_hint(match next {
            0 => "already showing changes only",
            _ => "already showing all unchanged lines",
        });
    }
}

/// Opens an agent at its most important finding: the baseline if it differs from the sealed one,
/// else the tab used last.
pub fn open_at_finding(model: &mut Model, name: String) -> Vec<Effect> {
    match (is_tampered(model, &name), model.agent.tab) {
        (true, _) => open_tab(model, name, AgentTab::Baseline),
        (false, AgentTab::Baseline) => open_tab(model, name, AgentTab::Diff),
        (false, _) => open(model, name),
    }
}

/// Goes to the agent that a key is about, or the one under the cursor of the fleet.
pub fn go_to_agent(model: &mut Model) -> Vec<Effect> {
    let subject = subject_agent(model).or(model.fleet.cursor_agent.as_deref());
    let name = subject.map(str::to_string);
    name.map_or_else(Vec::new, |name| open_at_finding(model, name))
}

/// Opens the agent that a key is about from a list.
pub fn open_subject(model: &mut Model) -> Vec<Effect> {
    let name = subject_agent(model).map(str::to_string);
    name.map_or_else(Vec::new, |name| open_from_list(model, name))
}

/// Opens the difference of the agent that a key is about.
pub fn open_diff(model: &mut Model) -> Vec<Effect> {
    let name = subject_agent(model).map(str::to_string);
    name.map_or_else(Vec::new, |name| open_tab(model, name, AgentTab::Diff))
}

/// Opens an agent that became worse at what is wrong: its baseline or its difference.
pub fn open_at_trouble(model: &mut Model, name: String) -> Vec<Effect> {
    let tab = if is_tampered(model, &name) {
        AgentTab::Baseline
    } else {
        AgentTab::Diff
    };
    open_tab(model, name, tab)
}

/// Opens an agent of a list; the evidence if its baseline differs from the sealed one.
fn open_from_list(model: &mut Model, name: String) -> Vec<Effect> {
    let row = model.find_row(&name);
    match row
        .filter(|row| row.state() == State::Tampered)
        .and_then(|row| row.baseline.clone())
    {
        Some(baseline) => baselines::update::open_evidence(model, baseline),
        None => open_at_finding(model, name),
    }
}

fn is_tampered(model: &Model, name: &str) -> bool {
    model.find_row(name).map(AgentRow::state) == Some(State::Tampered)
}

fn open_baseline(model: &mut Model) -> Vec<Effect> {
    let row = model.find_row(&model.agent.agent);
    let baseline = row.and_then(|row| row.baseline.clone());
    baseline.map_or_else(Vec::new, |baseline| {
        baselines::update::open_evidence(model, baseline)
    })
}

/// Opens a tab of an agent.
pub fn open_tab(model: &mut Model, name: String, tab: AgentTab) -> Vec<Effect> {
    model.agent.tab = tab;
    if model.screen == Screen::Agent && model.agent.agent == name {
        choose_offered_tab(model, &name);
        request_tab(model)
    } else {
        open(model, name)
    }
}

fn open(model: &mut Model, name: String) -> Vec<Effect> {
    model.return_point.from_agent = match model.screen {
        Screen::Agent => model.return_point.from_agent,
        Screen::Hosts => Screen::Fleet,
        screen => screen,
    };
    model.go_to_screen(Screen::Agent);
    if shows_agent(model, &name) {
        model.fleet.set_cursor(Some(name.clone()));
        model.fleet.is_cursor_pinned = true;
        keep_fleet_cursor_visible(model);
    }
    if model.agent.agent != name {
        model.agent = model.agent.for_agent(name.clone());
    }
    choose_offered_tab(model, &name);
    model.agent.is_text_due = false;
    let texts = Effect::PrepareTexts(name);
    std::iter::once(texts).chain(request_tab(model)).collect()
}

/// Makes an agent the one on the agent screen again, if it is still in the config; its texts are read
/// when the screen shows it.
pub fn show_again(model: &mut Model, view: AgentView) {
    if model.find_row(&view.agent).is_none() {
        return;
    }
    model.return_point.from_agent = view.from_agent;
    model.agent.tab = view.tab;
    if model.agent.agent != view.agent {
        model.agent = model.agent.for_agent(view.agent.clone());
        model.agent.is_text_due = true;
    }
    choose_offered_tab(model, &view.agent);
}

/// Returns the texts that a change of the agent makes due, now if the agent screen is shown, else when
/// it is shown again.
pub fn follow_agent(model: &mut Model) -> Vec<Effect> {
    if model.screen != Screen::Agent {
        model.agent.is_text_due = true;
        return Vec::new();
    }
    let texts = Effect::PrepareTexts(model.agent.agent.clone());
    // The log follows the run, and the history the log. A memory with a layout is read again by a key
    // and after a run of the agent: its lists must not change below the cursor.
    let rules = (model.agent.tab == AgentTab::Rules).then(|| request_tab(model));
    std::iter::once(texts)
        .chain(rules.into_iter().flatten())
        .collect()
}

/// Returns the texts and the tab that are due on the agent screen.
pub fn request_due(model: &mut Model) -> Vec<Effect> {
    let mut effects = Vec::new();
    if model.screen == Screen::Agent && std::mem::take(&mut model.agent.is_text_due) {
        effects.push(Effect::PrepareTexts(model.agent.agent.clone()));
        effects.extend(request_tab(model));
    }
    effects.extend(memory::request_due(model));
    effects
}

/// Reads the agent under the cursor or on the screen again, with its texts and its history.
pub fn read_again(model: &mut Model) -> Vec<Effect> {
    model.report_info("reading again");
    let agent = match model.screen {
        Screen::Agent => Some(model.agent.agent.clone()),
        _ => model.fleet.cursor_agent.clone(),
    };
    let names: Vec<String> = agent.into_iter().collect();
    let mut effects = vec![
        Effect::AllowQuestions(names.clone()),
        Effect::ReadAgents(names),
    ];
    if model.screen == Screen::Agent {
        effects.push(Effect::PrepareTexts(model.agent.agent.clone()));
    }
    effects.extend(request_tab(model));
    effects
}

/// Opens the next or a previous agent of the fleet.
pub fn open_neighbour(model: &mut Model, by: isize) -> Result<Vec<Effect>, String> {
    let index = visible_index(model, &model.agent.agent);
    let next = step_index(index.unwrap_or(0), by, model.fleet.order.len());
    let name = visible_agent(model, next).filter(|name| *name != model.agent.agent);
    let name = name.ok_or("no further agent")?.to_string();
    Ok(open(model, name))
}

/// Goes to another tab, around the ends.
pub fn cycle_tab(model: &mut Model, by: isize) -> Vec<Effect> {
    model.agent.tab = model.agent.tab.cycle(&offered_tabs(model), by);
    request_tab(model)
}

/// Shows the text alone, or with its borders again.
pub fn toggle_full_screen(model: &mut Model) {
    model.agent.is_full_screen = !model.agent.is_full_screen;
    if model.agent.has_line_cursor() {
        model.agent.scratch.move_cursor_to_top();
    }
}

/// Moves the cursor of a list, or scrolls the text.
pub fn move_cursor(model: &mut Model, by: isize) -> Vec<Effect> {
    match model.agent.tab {
        _ if !model.agent.is_list() => scroll_text(model, by),
        AgentTab::Memory => return memory::move_cursor(model, by),
        AgentTab::Health => memory::move_finding_cursor(model, by),
        _ => move_history_cursor(model, by),
    }
    Vec::new()
}

/// Marks lines of the scratch, or clears their marks. Says what it cannot mark, because the screen
/// does not have it.
pub fn change_marks(model: &mut Model, command: Command) {
    let agent = &mut model.agent;
    let text = &agent.scratch.lines;
    let marked = agent.marked_lines.entry(agent.agent.clone()).or_default();
    let line = text.get(agent.scratch.cursor_line);
    let is_cut = match command {
        Command::ClearMarks => false,
        Command::MarkAll => text.iter().any(|line| line.is_truncated),
        _ => line.is_some_and(|line| line.is_truncated),
    };
    match (command, line) {
        (Command::ClearMarks, _) => marked.clear(),
        (Command::MarkAll, _) => marked.extend(text),
        (Command::MarkRange, Some(line)) => marked.extend_to(line, text),
        (_, Some(line)) => {
            marked.toggle(line);
            move_cursor(model, 1);
        }
        (_, None) => {}
    }
    let agent = &mut model.agent;
    let marked = agent.marked_lines.entry(agent.agent.clone()).or_default();
    if marked.is_blank() {
        marked.clear();
        model.show_hint("blank lines are marked only together with others");
    }
    if is_cut {
        let text =
            "text that is not shown cannot be marked; a push that keeps all scratch keeps it";
        model.report_warning(text);
    }
}

/// Asks for the file to which the marked lines are saved.
pub fn prompt_save_path(model: &mut Model) {
    model.input_line = Some(Prompt::new(PromptPurpose::SavePath));
}

/// Remembers which marked lines of the agent on the screen are promoted: a save of the baseline unmarks
/// them.
pub fn remember_promoted_lines(model: &mut Model) {
    let agent = &mut model.agent;
    let marked = agent.marked_lines_of(&agent.agent).cloned();
    if let Some(marked) = marked {
        agent.promoted_lines.insert(agent.agent.clone(), marked);
    }
}

/// Unmarks the promoted lines that a saved baseline has: the next push must not keep them, too. Lines
/// that were not inserted, or were taken back before the save, stay marked.
pub fn unmark_saved_lines(model: &mut Model, baseline: &str, text: &[u8]) {
    let is_user = |agent: &String| {
        let row = model.find_row(agent);
        row.is_some_and(|row| row.baseline.as_deref() == Some(baseline))
    };
    let users: Vec<String> = model
        .agent
        .promoted_lines
        .keys()
        .filter(|it| is_user(it))
        .cloned()
        .collect();
    let saved: HashSet<&[u8]> = text
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii)
        .collect();
    let mut notes = Vec::new();
    for agent in users {
        let Some(promoted) = model.agent.promoted_lines.remove(&agent) else {
            continue;
        };
        let texts = promoted.iter().map(|line| line.bytes.trim_ascii());
        if !texts
            .filter(|it| !it.is_empty())
            .any(|it| saved.contains(it))
        {
            continue;
        }
        let marked = model.agent.marked_lines.get_mut(&agent);
        let count = marked.map_or(0, |marked| marked.remove_lines(&promoted));
        if count > 0 {
            let lines = format_count(count as u64, "promoted line");
            notes.push(format!("{agent}: {lines} saved, so no longer marked"));
        }
    }
    for note in notes {
        // What the save says matters more.
        let message = model.last_message.take();
        model.report_info(note);
        model.last_message = message;
    }
}

/// Goes back one level: Esc clears the search; then full screen, the open record or item and the screen
/// are left.
pub fn go_back(model: &mut Model, key: Key) {
    let is_escape = key.code == KeyCode::Esc;
    let is_leaving = is_escape || model.preferences.keymap.is_exit_key(key);
    if is_escape && !model.agent.is_list() && !model.agent.current_pane().query.is_empty() {
        model.agent.current_pane_mut().search("");
    } else if model.agent.is_full_screen && !model.agent.is_list() {
        toggle_full_screen(model);
    } else if model.agent.tab == AgentTab::Memory && memory::go_back(model, is_escape, is_leaving) {
        // The tab has levels of its own.
    } else if model.agent.history.open_seq.is_some() && model.agent.tab == AgentTab::History {
        model.agent.history.open_seq = None;
    } else {
        leave(model);
    }
}

fn leave(model: &mut Model) {
    let to = model.reopenable_screen(model.return_point.from_agent);
    model.go_to_screen(to);
}

/// Returns the ages on the screen.
pub fn visible_ages(model: &Model) -> Vec<String> {
    let row = model.find_row(&model.agent.agent);
    let header = row.and_then(|row| row_ages(model, row));
    let read_at = match model.agent.tab {
        AgentTab::Memory => model.agent.memory.items.read_at,
        AgentTab::Health => model.agent.health.checked_at,
        _ => None,
    };
    let changed = visible_items(model).filter_map(|item| item.modified);
    let times = read_at.into_iter().chain(changed);
    let ages = times.map(|then| format_age(model.now.local_time, then));
    header.into_iter().chain(ages).collect()
}

/// Returns the items of a memory with a layout that are on the screen.
fn visible_items(model: &Model) -> impl Iterator<Item = &MemoryItem> {
    let items = &model.agent.memory.items;
    let count = if model.agent.is_item_list() {
        items.shown.len()
    } else {
        0
    };
    let rows = items.list.visible(count, agent_list_height(model));
    rows.filter_map(|row| items.shown_item(row))
}

/// Returns the ages that a row of the fleet or the header of an agent shows.
pub fn row_ages(model: &Model, row: &AgentRow) -> Option<String> {
    let now = model.now.local_time;
    let known = row.last_readable_observation()?;
    let changed = known
        .content
        .as_ref()
        .map(|content| format_modification_age(now, content.modified_ns))
        .unwrap_or_default();
    // The age of the read and the problem appear only for an unreachable agent.
    Some(match host_problem(model, &row.name) {
        Some(why) => format!("{changed} {} {why}", format_age(now, known.read_at)),
        None => changed,
    })
}

/// Checks that the cursor is on a line of the scratch.
pub fn check_line_cursor(model: &Model) -> Result<(), String> {
    let agent = &model.agent;
    let name = &agent.agent;
    require(
        !model.find_row(name).is_some_and(AgentRow::is_never_reset),
        format!("no scratch: {name} is {NEVER_RESET_REASON}"),
    )?;
    if agent.tab != AgentTab::Scratch {
        let keys = scratch_tab_keys(model);
        return Err(format!(
            "lines are marked in the scratch tab; {keys} goes there"
        ));
    }
    let key = model.key_hint(Command::ToggleFullScreen);
    require(
        agent.has_line_cursor(),
        format!("lines are not marked in full screen; {key} leaves it"),
    )?;
    let line = agent.scratch.lines.get(agent.scratch.cursor_line);
    require(
        line.is_some_and(|line| line.new_number.is_some()),
        "the cursor is not on a line of the scratch",
    )
}

/// Returns the key that leads to the scratch tab, and how often it is pressed: `S-Tab twice`.
fn scratch_tab_keys(model: &Model) -> String {
    let tab = model.agent.tab;
    let offered = offered_tabs(model);
    let count = offered.len();
    let is_scratch = |by: &usize| tab.cycle(&offered, *by as isize) == AgentTab::Scratch;
    let steps = (0..count).find(is_scratch);
    let forward = steps.unwrap_or(0);
    let (key, presses) = if forward <= count - forward {
        (Command::NextTab, forward)
    } else {
        (Command::PreviousTab, count - forward)
    };
    let key = model.key_hint(key);
    match presses {
        ..=1 => key,
        2 => format!("{key} twice"),
        presses => format!("{key} {presses} times"),
    }
}

/// Checks that lines of the agent on the screen are marked.
pub fn check_marked_lines(model: &Model) -> Result<(), String> {
    let marked = model.agent.marked_lines_of(&model.agent.agent);
    let key = model.key_hint(Command::ToggleMark);
    require(
        marked.is_some(),
        format!("no marked lines; {key} in the scratch tab marks one"),
    )
}

/// Checks that lines can be inserted into the baseline.
pub fn check_promotion(model: &Model) -> Result<(), String> {
    check_line_cursor(model)?;
    check_writable(model)
}

/// Checks that the tab shows a text of a file.
pub fn check_file_text(model: &Model) -> Result<(), String> {
    require(
        model.agent.tab != AgentTab::Facts,
        "facts are not file text; there is no whitespace to mark",
    )?;
    check_text(model)
}

/// Checks that the tab has a text to search, or items to filter.
pub fn check_search(model: &Model) -> Result<(), String> {
    if model.agent.is_item_list() {
        return Ok(());
    }
    check_text(model)
}

/// Checks that the tab has a record of the history under the cursor, or is about a baseline.
pub fn check_selected(model: &Model) -> Result<(), String> {
    match model.agent.tab {
        AgentTab::Baseline => return Ok(()),
        AgentTab::Memory if model.agent.is_list() => {
            let memory = &model.agent.memory;
            let has_row = memory.has_collection_focus || memory.items.current_item().is_some();
            return require(has_row, "no item under the cursor");
        }
        AgentTab::Memory => return Err("the item is open".to_string()),
        AgentTab::Health => {
            let finding = model.agent.health.current_finding();
            let has_file = finding.is_some_and(|finding| finding.path.is_some());
            return require(has_file, "no finding with a file under the cursor");
        }
        _ => {}
    }
    require(
        model.agent.is_list(),
        "only records of the history open here",
    )?;
    let record = model.agent.history.current_record();
    require(record.is_some(), "no record yet")
}

/// Checks that the tab has a text, or an entry under the cursor.
pub fn check_pager(model: &Model) -> Result<(), String> {
    if model.agent.tab == AgentTab::History && model.agent.is_list() {
        return selected_entry(model).map(drop);
    }
    require(model.agent.has_full_text(), "no text yet")
}

/// Checks that the tab shows a text with something to copy.
pub fn check_clipboard(model: &Model, command: Command) -> Result<(), String> {
    if !model.agent.tab.is_about_layout() {
        check_text(model)?;
    }
    if command == Command::CopyAll {
        return require(model.agent.has_full_text(), "nothing to copy");
    }
    clipboard_text(model, command).map(drop)
}
