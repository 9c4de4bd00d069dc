//! Carries commands out on the model.

use std::time::Duration;

use super::{Effect, PLAN_LIFETIME, handoff, question};
use crate::console::chooser;
use crate::console::command::{self, Command};
use crate::console::keymap::{Key, KeyCode};
use crate::console::model::{
    AgentTab, Chooser, InputLine, LogRow, MessageLevel, Model, Overlay, PendingKeys, PlanRequest,
    ResetStage, RunSummary, RunView, Screen, SortOrder, equivalent_command,
};
use crate::console::screens::agent::update as agent;
use crate::console::screens::hosts::update as hosts;
use crate::console::screens::reset::update::{abandon_plan, replace_expired_plan, request_plan};
use crate::engine::{State, UndoMode, UndoTarget};

/// How many runs of this session are remembered with their command.
const MAX_REMEMBERED_COMMANDS: usize = 1000;

/// How long the strip waits for a key to be let go.
const STRIP_DELAY: Duration = Duration::from_millis(80);

pub(in crate::console) fn start_run(model: &mut Model) -> Vec<Effect> {
    if let Some(why) = model.read_only_reason() {
        model.report(MessageLevel::Warn, why);
        return Vec::new();
    }
    let ResetStage::Plan(view) = &model.reset.stage else {
        return Vec::new();
    };
    if view.made_at + PLAN_LIFETIME <= model.now.elapsed {
        return match model.is_plan_pending {
            true => Vec::new(),
            false => replace_expired_plan(model),
        };
    }
    // Which run it will be is not known yet.
    let command = (String::new(), equivalent_command::for_plan(model, view));
    let (plan, verb) = (view.plan.clone(), view.verb());
    // What was marked for this run is not what the next key means.
    for name in plan.agents() {
        model.marks.remove(name);
    }
    model.log.run_commands.push_front(command);
    model.log.run_commands.truncate(MAX_REMEMBERED_COMMANDS);
    model.reset.stage = ResetStage::Run(Box::new(RunView {
        plan: plan.clone(),
        verb,
        started_at: model.now.elapsed,
        agent_steps: Default::default(),
        outcomes: Default::default(),
        is_cancelled: false,
    }));
    model.reset.cursor = 0;
    model.is_plan_pending = false;
    model.is_dirty = true;
    vec![Effect::ApplyPlan(Box::new(plan))]
}

pub(in crate::console) fn report_hit_count(model: &mut Model) {
    let (query, hits) = match model.screen {
        Screen::Log => (model.log.query.clone(), find_log_hits(model).len()),
        _ => {
            let pane = model.agent.current_pane();
            (pane.query.clone(), pane.hits.len())
        }
    };
    if model.screen == Screen::Log {
        go_to_log_hit(model, true, true);
    }
    if !query.is_empty() {
        let text = match hits {
            0 => "no hit".to_string(),
            1 => "1 hit".to_string(),
            hits => {
                let keys = [Command::NextHit, Command::PreviousHit].map(|it| model.key_hint(it));
                format!("{hits} hits; {} go on", keys.join(" and "))
            }
        };
        // In the log it would be one more row to find.
        model.show_hint(&text);
    }
}

pub(in crate::console) fn find_log_hits(model: &Model) -> Vec<usize> {
    let query = model.log.query.to_lowercase();
    let rows = model.log.rows();
    let matches = |row: &LogRow<'_>| row.text().to_lowercase().contains(&query);
    (0..rows.len())
        .filter(|index| !query.is_empty() && matches(&rows[*index]))
        .collect()
}

pub(in crate::console) fn go_to_log_hit(
    model: &mut Model,
    is_forward: bool,
    includes_cursor: bool,
) {
    let hits = find_log_hits(model);
    let at = model.log.cursor;
    let next = match is_forward {
        true => hits
            .iter()
            .find(|hit| **hit > at || (includes_cursor && **hit == at))
            .or(hits.first()),
        false => hits.iter().rev().find(|hit| **hit < at).or(hits.last()),
    };
    if let Some(hit) = next {
        model.log.cursor = *hit;
        model.is_dirty = true;
    }
}

/// Carries out a command that a key stands for, or says why not.
pub fn perform_command(model: &mut Model, command: Command, key: Key) -> Vec<Effect> {
    if let Err(why) = command::check_enabled(command, model) {
        model.show_hint(&format!(
            "{}: {why}",
            model.preferences.keymap.spec_of(command).id
        ));
        return Vec::new();
    }
    model.is_dirty = true;
    let page = match model.screen {
        Screen::Fleet => model.fleet_height(),
        Screen::Hosts => model.hosts_list_height(),
        Screen::Log => model.log_height(),
        Screen::Agent if model.agent.is_list() => model.history_height(),
        _ => model.text_height(),
    } as isize;
    match command {
        Command::Down => return move_cursor(model, 1),
        Command::Up => return move_cursor(model, -1),
        Command::HalfDown => return move_cursor(model, page / 2),
        Command::HalfUp => return move_cursor(model, -page / 2),
        Command::PageDown => return move_cursor(model, page),
        Command::PageUp => return move_cursor(model, -page),
        Command::Top => return move_cursor(model, isize::MIN / 2),
        Command::Bottom => return move_cursor(model, isize::MAX / 2),
        Command::GoBack => return go_back(model, key),
        Command::GoToPreviousScreen => {
            let previous = model.previous_screen.unwrap_or(Screen::Fleet);
            go_to_screen(model, previous);
            if previous == Screen::Hosts {
                return hosts::request_settings(model);
            }
        }
        Command::GoHosts => return hosts::open_hosts_screen(model),
        Command::RetryHost => return hosts::retry_host(model),
        Command::GoFleet => go_to_screen(model, Screen::Fleet),
        Command::GoReset => {
            let is_loop =
                model.screen == Screen::Agent && model.return_point.from_agent == Screen::Reset;
            if !is_loop {
                model.return_point.from_reset = return_screen(model.screen);
            }
            go_to_screen(model, Screen::Reset);
        }
        Command::GoLog => {
            go_to_screen(model, Screen::Log);
            return vec![Effect::LoadLog];
        }
        Command::GoAgent if model.screen == Screen::Agent => {}
        Command::GoAgent => {
            let name = model.subject_agent().map(str::to_string);
            let name = name.or_else(|| model.cursor_agent.clone());
            return name.map_or_else(Vec::new, |name| open_agent_at_finding(model, name));
        }
        Command::OpenSelected => return open_selected(model),
        Command::OpenDiff => {
            let name = model.subject_agent().map(str::to_string);
            return name.map_or_else(Vec::new, |name| open_agent_tab(model, name, AgentTab::Diff));
        }
        Command::NextAgent => return open_neighbour_agent(model, 1),
        Command::PreviousAgent => return open_neighbour_agent(model, -1),
        Command::NextTab | Command::PreviousTab => {
            let by = match command {
                Command::NextTab => 1,
                _ => AgentTab::ALL.len() - 1,
            };
            model.agent.tab = model.agent.tab.cycle(by);
            return agent::request_history(model);
        }
        Command::ToggleWrap => model.agent.is_wrapping = !model.agent.is_wrapping,
        Command::ToggleSideBySide | Command::MoreContext | Command::LessContext => {
            agent::change_arrangement(model, command);
        }
        Command::ToggleIgnoreWhitespace => model.agent.toggle_ignore_whitespace(),
        Command::ToggleFullScreen => {
            model.agent.is_full_screen = !model.agent.is_full_screen;
            model.agent.arrange_panes(model.size.0);
        }
        Command::ToggleWhitespaceMarks => {
            model.agent.is_whitespace_marked = !model.agent.is_whitespace_marked
        }
        Command::Search => {
            let old = match model.screen {
                Screen::Log => std::mem::take(&mut model.log.query),
                _ => {
                    let pane = model.agent.current_pane_mut();
                    let old = pane.query.clone();
                    pane.search("");
                    old
                }
            };
            model.input_line = Some(InputLine::Search(old));
        }
        Command::NextHit => go_to_next_hit(model, true),
        Command::PreviousHit => go_to_next_hit(model, false),
        Command::NextHunk => go_to_hunk(model, true),
        Command::PreviousHunk => go_to_hunk(model, false),
        Command::Filter => {
            model.input_line = Some(InputLine::Filter(model.filter.clone()));
            set_filter(model, String::new());
        }
        Command::ToggleMark => return toggle_mark(model),
        Command::MarkRange => mark_range(model),
        Command::MarkAll => model.marks.extend(model.visible_agents.iter().cloned()),
        Command::ClearMarks => model.marks.clear(),
        Command::ChooseSortOrder => {
            chooser::open_chooser(model, Overlay::Palette(Chooser::with_query("sort ")));
        }
        Command::ReverseSortOrder => {
            model.is_reversed = !model.is_reversed;
            model.refresh_visible_agents();
        }
        Command::ReadAgent => {
            let name = match model.screen {
                Screen::Agent => Some(model.agent.agent.clone()),
                _ => model.cursor_agent.clone(),
            };
            model.report(MessageLevel::Info, "reading again");
            let texts = (model.screen == Screen::Agent)
                .then(|| Effect::PrepareTexts(model.agent.agent.clone()));
            let names: Vec<String> = name.into_iter().collect();
            let read = [
                Effect::AllowQuestions(names.clone()),
                Effect::ReadAgents(names),
            ];
            let past = agent::request_history(model);
            return read.into_iter().chain(texts).chain(past).collect();
        }
        Command::ReadAllAgents => {
            model.report(MessageLevel::Info, "reading all agents again");
            let names: Vec<String> = model.rows.iter().map(|row| row.name.clone()).collect();
            let ask = Effect::AllowQuestions(names.clone());
            return vec![ask, Effect::ReadAgents(names), Effect::LoadLog];
        }
        Command::PlanReset | Command::RetryFailed => {
            let request = PlanRequest::Reset(model.target_agents(command));
            return request_plan(model, request, false);
        }
        Command::PlanUndo => {
            return plan_undo(model);
        }
        Command::PlanRedo => {
            return plan_redo(model);
        }
        Command::ConfirmPlan => return start_run(model),
        Command::UndoAppend => return plan_undo_with_mode(model, UndoMode::Append),
        Command::UndoOverwrite => return plan_undo_with_mode(model, UndoMode::Overwrite),
        Command::KeepHiddenAgents => match &mut model.reset.stage {
            ResetStage::Plan(view) if !view.hidden_agents.is_empty() => view.hidden_agents.clear(),
            _ => return go_back(model, key),
        },
        Command::DropHiddenAgents => return drop_hidden_agents(model),
        Command::CopyName
        | Command::CopyPath
        | Command::CopyDigest
        | Command::CopyLine
        | Command::CopyAll
        | Command::CopyCommand
        | Command::CopyPlan => return handoff::copy_to_clipboard(model, command),
        Command::CopyPatch => return handoff::request_patch(model),
        Command::EditBaseline => return handoff::request_edit(model),
        Command::OpenPager => return handoff::open_pager(model),
        Command::AnswerQuestion => question::open_oldest_question(model),
        Command::ToggleReadOnly => toggle_read_only(model),
        Command::Extra => return vec![Effect::RunExtraCommand],
        Command::Help => chooser::open_chooser(model, Overlay::Help(Chooser::for_browsing())),
        Command::Palette => {
            chooser::open_chooser(model, Overlay::Palette(Chooser::with_query("")));
        }
        Command::Redraw => return vec![Effect::Redraw],
        Command::Suspend => return vec![Effect::Suspend],
        Command::Quit => match &mut model.reset.stage {
            ResetStage::Run(view) if !view.is_cancelled => {
                view.is_cancelled = true;
                let done = "the agent in hand is finished, the rest is not started";
                let text = format!("{done}; {} again quits", model.key_hint(Command::Quit));
                model.report(MessageLevel::Warn, text);
                return vec![Effect::CancelRun];
            }
            ResetStage::Planning(_) if model.screen == Screen::Reset => {
                let key = model.key_hint(Command::Quit);
                model.show_hint(&format!("the plan was given up; {key} again quits"));
                leave_reset_screen(model);
            }
            _ => return vec![Effect::CancelRun, Effect::Quit],
        },
    }
    Vec::new()
}

/// Asks for the plan of an undo, and names the run where it is not of what is marked.
fn plan_undo(model: &mut Model) -> Vec<Effect> {
    let target = model.undo_target();
    if let (UndoTarget::Run(run), Screen::Fleet) = (&target, model.screen) {
        let time = time_suffix(model, model.last_undoable_run());
        let what = "no marked agent has a reset to undo";
        model.report(
            MessageLevel::Info,
            format!("{what}; this is the last run, {run}{time}"),
        );
    }
    request_plan(model, PlanRequest::Undo(target, UndoMode::Refuse), false)
}

/// Asks for the plan that takes an undo back, and names the run where it is not of what
/// is marked or under the cursor.
fn plan_redo(model: &mut Model) -> Vec<Effect> {
    let target = UndoTarget::Redo(model.target_agents(Command::PlanRedo));
    if let Some((run, _)) = model.last_redoable_run() {
        let (id, time) = (&run.run_id, time_suffix(model, Some(run)));
        let text = format!("there is no undo to take back here; this is the last one, {id}{time}");
        model.report(MessageLevel::Info, text);
    }
    request_plan(model, PlanRequest::Undo(target, UndoMode::Refuse), false)
}

/// ` of 09:00`, for a run of today.
fn time_suffix(model: &Model, run: Option<&RunSummary>) -> String {
    let time = run.map(|run| run.ended_at);
    let time = time.filter(|time| time.date_naive() == model.now.local_time.date_naive());
    time.map_or_else(String::new, |time| time.format(" of %H:%M").to_string())
}

/// Where one is led back to from a plan that was asked for here, or a result that was
/// opened here.
pub(in crate::console) fn return_screen(screen: Screen) -> Screen {
    match screen {
        Screen::Agent | Screen::Log => screen,
        _ => Screen::Fleet,
    }
}

/// Back from a plan, which ends by that, or from a run or a result.
fn leave_reset_screen(model: &mut Model) {
    // No way leads to and fro for ever.
    model.return_point.from_agent = Screen::Fleet;
    match model.reset.stage {
        ResetStage::Plan(_) | ResetStage::Planning(_) => abandon_plan(model),
        _ => go_to_screen(model, model.return_point.from_reset),
    }
}

pub(in crate::console) fn go_to_screen(model: &mut Model, screen: Screen) {
    if model.screen != screen {
        model.previous_screen = Some(model.screen);
        model.screen = screen;
    }
    model.pending_keys = PendingKeys::default();
}

/// One level back: search, filter, screen; the first of its keys quits at the
/// fleet.
pub(in crate::console) fn go_back(model: &mut Model, key: Key) -> Vec<Effect> {
    let escape = key.code == KeyCode::Esc;
    let first = model.preferences.keymap.is_exit_key(key);
    match model.screen {
        Screen::Fleet if escape => {
            if model.filter.is_empty() {
                let key = model.preferences.keymap.exit_key_text();
                model.show_hint(&format!("{key} quits"));
            } else {
                set_filter(model, String::new());
            }
        }
        // Whoever presses it once too often loses no agent of the run.
        Screen::Fleet if first && model.is_run_active() => {
            let (reset_key, quit_key) = (
                model.key_hint(Command::GoReset),
                model.key_hint(Command::Quit),
            );
            model.show_hint(&format!(
                "a run is in progress; {reset_key} shows it, {quit_key} stops it after the agent in hand"
            ));
        }
        Screen::Fleet if first => return perform_command(model, Command::Quit, key),
        Screen::Fleet => {}
        Screen::Agent if escape && !model.agent.current_pane().query.is_empty() => {
            model.agent.current_pane_mut().search("");
        }
        Screen::Agent if model.agent.is_full_screen && !model.agent.is_list() => {
            model.agent.is_full_screen = false;
            model.agent.arrange_panes(model.size.0);
        }
        Screen::Agent if model.agent.tab == AgentTab::History && !model.agent.is_list() => {
            model.agent.history.open_seq = None;
        }
        Screen::Log if escape && !model.log.query.is_empty() => model.log.query.clear(),
        Screen::Agent
            if model.return_point.from_agent == Screen::Reset
                && !matches!(model.reset.stage, ResetStage::Empty) =>
        {
            if model.return_point.from_reset == Screen::Agent {
                model.return_point.from_reset = Screen::Fleet;
            }
            go_to_screen(model, Screen::Reset);
        }
        Screen::Agent if model.return_point.from_agent == Screen::Log => {
            go_to_screen(model, Screen::Log)
        }
        Screen::Reset => leave_reset_screen(model),
        _ => go_to_screen(model, Screen::Fleet),
    }
    Vec::new()
}

pub(in crate::console) fn move_cursor(model: &mut Model, by: isize) -> Vec<Effect> {
    let step = |at: usize, count: usize| at.saturating_add_signed(by).min(count.saturating_sub(1));
    match model.screen {
        Screen::Fleet => {
            let index = model.fleet_cursor_index().unwrap_or(0);
            let index = step(index, model.visible_agents.len());
            model.cursor_agent = model.visible_agents.get(index).cloned();
            model.is_cursor_pinned = true;
            model.keep_fleet_cursor_visible();
            // The strip is two lines: under a held key it would cost more than
            // the cursor itself.
            let is_key_held = model
                .last_cursor_move
                .is_some_and(|last| model.now.elapsed < last + STRIP_DELAY);
            model.last_cursor_move = Some(model.now.elapsed);
            if is_key_held {
                model.strip_due = Some(model.now.elapsed + STRIP_DELAY);
            } else {
                model.strip_agent.clone_from(&model.cursor_agent);
                model.strip_due = None;
            }
        }
        Screen::Agent if model.agent.is_list() => agent::move_history_cursor(model, by),
        Screen::Agent => {
            let (width, height, look) =
                (model.text_width(), model.text_height(), model.pane_style());
            let pane = model.agent.current_pane_mut();
            if by < isize::MIN / 4 {
                pane.scroll_to_start();
            } else if by > isize::MAX / 4 {
                pane.scroll_to_end(width, height, look);
            } else {
                pane.scroll(by, width, height, look);
            }
        }
        Screen::Reset => {
            let count = match &model.reset.stage {
                ResetStage::Plan(view) => view.plan.steps.len() + view.plan.skipped.len(),
                ResetStage::Run(view) => view.plan.steps.len(),
                ResetStage::Result(view) => view.lines.len(),
                _ => 0,
            };
            model.reset.cursor = step(model.reset.cursor, count);
        }
        Screen::Log => {
            let count = model.log.rows().len();
            model.log.cursor = step(model.log.cursor, count);
        }
        Screen::Hosts => {
            let count = model.hosts.sorted_statuses().len();
            hosts::select_host(model, step(model.hosts.cursor_index(), count));
            return hosts::request_settings(model);
        }
    }
    Vec::new()
}

/// Opens what is under the cursor.
pub(in crate::console) fn open_selected(model: &mut Model) -> Vec<Effect> {
    let name = match model.screen {
        Screen::Reset => model.reset.current_agent().map(str::to_string),
        Screen::Log => {
            let result = match model.log.rows().get(model.log.cursor) {
                Some(LogRow::Run(run)) if !model.is_running() => Some(run.to_result_view()),
                _ => None,
            };
            if let Some(result) = result {
                model.reset.stage = ResetStage::Result(Box::new(result));
                model.reset.cursor = 0;
                model.return_point.from_reset = Screen::Log;
                go_to_screen(model, Screen::Reset);
            }
            return Vec::new();
        }
        Screen::Hosts => return hosts::show_host_agents(model),
        Screen::Agent => return agent::open_run_diff(model),
        Screen::Fleet => model.cursor_agent.clone(),
    };
    name.map_or_else(Vec::new, |name| open_agent_at_finding(model, name))
}

/// Opens an agent on what matters of it: what changed in a baseline that is not the
/// sealed one, else the tab that was used last.
pub(in crate::console) fn open_agent_at_finding(model: &mut Model, name: String) -> Vec<Effect> {
    let is_tampered = model.find_row(&name).map(|row| row.state()) == Some(State::Tampered);
    match (is_tampered, model.agent.tab) {
        (true, _) => open_agent_tab(model, name, AgentTab::Baseline),
        (false, AgentTab::Baseline) => open_agent_tab(model, name, AgentTab::Diff),
        (false, _) => open_agent_screen(model, name),
    }
}

/// Opens a tab of an agent.
pub(in crate::console) fn open_agent_tab(
    model: &mut Model,
    name: String,
    tab: AgentTab,
) -> Vec<Effect> {
    model.agent.tab = tab;
    match model.screen == Screen::Agent && model.agent.agent == name {
        true => agent::request_history(model),
        false => open_agent_screen(model, name),
    }
}

pub(in crate::console) fn open_agent_screen(model: &mut Model, name: String) -> Vec<Effect> {
    model.return_point.from_agent = match model.screen {
        Screen::Agent => model.return_point.from_agent,
        Screen::Hosts => Screen::Fleet,
        screen => screen,
    };
    go_to_screen(model, Screen::Agent);
    if model.visible_agents.contains(&name) {
        model.cursor_agent = Some(name.clone());
        model.is_cursor_pinned = true;
        model.strip_agent.clone_from(&model.cursor_agent);
        model.keep_fleet_cursor_visible();
    }
    if model.agent.agent != name {
        model.agent = model.agent.for_agent(name.clone());
        model.agent.arrange_panes(model.size.0);
    }
    let texts = Effect::PrepareTexts(name);
    std::iter::once(texts)
        .chain(agent::request_history(model))
        .collect()
}

pub(in crate::console) fn open_neighbour_agent(model: &mut Model, by: isize) -> Vec<Effect> {
    let here = model
        .visible_agents
        .iter()
        .position(|name| *name == model.agent.agent)
        .unwrap_or(0);
    let next = here
        .saturating_add_signed(by)
        .min(model.visible_agents.len().saturating_sub(1));
    match model.visible_agents.get(next).cloned() {
        Some(name) if name != model.agent.agent => open_agent_screen(model, name),
        _ => {
            model.show_hint("there is no further agent");
            Vec::new()
        }
    }
}

pub(in crate::console) fn go_to_hunk(model: &mut Model, is_forward: bool) {
    let height = model.text_height();
    model
        .agent
        .current_pane_mut()
        .go_to_hunk(is_forward, height);
}

pub(in crate::console) fn go_to_next_hit(model: &mut Model, is_forward: bool) {
    let height = model.text_height();
    match model.screen {
        Screen::Log if model.log.query.is_empty() => {
            let key = model.key_hint(Command::Search);
            model.show_hint(&format!("{key} searches"));
        }
        Screen::Log => go_to_log_hit(model, is_forward, false),
        _ if model.agent.current_pane().query.is_empty() => go_to_hunk(model, is_forward),
        _ => model
            .agent
            .current_pane_mut()
            .go_to_next_hit(is_forward, height),
    }
}

pub(in crate::console) fn toggle_mark(model: &mut Model) -> Vec<Effect> {
    let Some(name) = model.cursor_agent.clone() else {
        return Vec::new();
    };
    if !model.marks.remove(&name) {
        model.marks.insert(name.clone());
        model.mark_anchor = Some(name);
    }
    move_cursor(model, 1)
}

pub(in crate::console) fn mark_range(model: &mut Model) {
    let place = |name: &Option<String>| {
        let name = name.as_ref()?;
        model.visible_agents.iter().position(|other| other == name)
    };
    let Some(cursor) = place(&model.cursor_agent) else {
        return;
    };
    let anchor = place(&model.mark_anchor).unwrap_or(cursor);
    let range = anchor.min(cursor)..=anchor.max(cursor);
    let names: Vec<String> = model.visible_agents[range].to_vec();
    model.marks.extend(names);
    model.mark_anchor.clone_from(&model.cursor_agent);
}

/// Shows the agents that a filter lets through.
pub(in crate::console) fn set_filter(model: &mut Model, filter: String) {
    model.filter = filter;
    model.is_filter_restored = false;
    model.refresh_visible_agents();
    model.is_dirty = true;
}

pub(in crate::console) fn set_sort_order(model: &mut Model, sort: SortOrder) {
    model.sort_order = sort;
    model.refresh_visible_agents();
    model.report(MessageLevel::Info, format!("sorted by {}", sort.label()));
}

pub(in crate::console) fn toggle_read_only(model: &mut Model) {
    if model.read_only.is_on {
        model.overlay = Some(Overlay::UnlockReadOnly);
    } else {
        model.read_only.is_on = true;
        model.read_only.unlocked_until = None;
        let key = model.key_hint(Command::ToggleReadOnly);
        let what = "again switches it off, for protected agents, too";
        model.report(MessageLevel::Info, format!("read-only; {key} {what}"));
    }
}

pub(in crate::console) fn plan_undo_with_mode(model: &mut Model, mode: UndoMode) -> Vec<Effect> {
    let request = match &model.reset.stage {
        ResetStage::Plan(view) => view.request.clone(),
        _ => return Vec::new(),
    };
    match request {
        PlanRequest::Undo(target, _) => request_plan(model, PlanRequest::Undo(target, mode), false),
        PlanRequest::Reset(_) => Vec::new(),
    }
}

pub(in crate::console) fn drop_hidden_agents(model: &mut Model) -> Vec<Effect> {
    let ResetStage::Plan(view) = &model.reset.stage else {
        return Vec::new();
    };
    let keep = |names: &[String]| -> Vec<String> {
        names
            .iter()
            .filter(|name| !view.hidden_agents.contains(name))
            .cloned()
            .collect()
    };
    let request = match &view.request {
        PlanRequest::Reset(names) => PlanRequest::Reset(keep(names)),
        PlanRequest::Undo(UndoTarget::Agents(names), mode) => {
            PlanRequest::Undo(UndoTarget::Agents(keep(names)), *mode)
        }
        PlanRequest::Undo(UndoTarget::Redo(names), mode) => {
            PlanRequest::Undo(UndoTarget::Redo(keep(names)), *mode)
        }
        PlanRequest::Undo(UndoTarget::Run(_), _) => view.request.clone(),
    };
    for name in view.hidden_agents.clone() {
        model.marks.remove(&name);
    }
    request_plan(model, request, false)
}
