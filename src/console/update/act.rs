//! Carries commands out on the model.

use std::time::Duration;

use super::plan::{ask_for_plan, give_up_plan, plan_anew};
use super::{Effect, PLAN_LIFETIME, agent, hand, host, question};
use crate::console::chooser;
use crate::console::command::{self, Command};
use crate::console::keymap::{Code, Key};
use crate::console::model::{
    Chooser, LogRow, MessageLevel, Model, Overlay, PendingKeys, PlanRequest, Prompt, ResetStage,
    RunSummary, RunView, Screen, Sort, Tab, twin,
};
use crate::engine::{State, UndoMode, UndoTarget};

/// How many runs of this session are remembered with their command.
const MAX_REMEMBERED_COMMANDS: usize = 1000;

/// How long the strip waits for a key to be let go.
const STRIP_DELAY: Duration = Duration::from_millis(80);

pub(super) fn run_plan(model: &mut Model) -> Vec<Effect> {
    if let Some(why) = model.why_read_only() {
        model.say(MessageLevel::Warn, why);
        return Vec::new();
    }
    let ResetStage::Plan(view) = &model.reset.stage else {
        return Vec::new();
    };
    if view.shown + PLAN_LIFETIME <= model.now.since {
        return match model.waiting {
            true => Vec::new(),
            false => plan_anew(model),
        };
    }
    // Which run it will be is not known yet.
    let command = (String::new(), twin::of_plan(model, view));
    let (plan, verb) = (view.plan.clone(), view.verb());
    // What was marked for this run is not what the next key means.
    for name in plan.agents() {
        model.marks.remove(name);
    }
    model.log.commands.push_front(command);
    model.log.commands.truncate(MAX_REMEMBERED_COMMANDS);
    model.reset.stage = ResetStage::Run(Box::new(RunView {
        plan: plan.clone(),
        verb,
        began: model.now.since,
        stages: Default::default(),
        outcomes: Default::default(),
        cancelled: false,
    }));
    model.reset.cursor = 0;
    model.waiting = false;
    model.dirty = true;
    vec![Effect::Apply(Box::new(plan))]
}

pub(super) fn report_hits(model: &mut Model) {
    let (query, hits) = match model.screen {
        Screen::Log => (model.log.query.clone(), log_hits(model).len()),
        _ => {
            let pane = model.agent.pane();
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
                let keys = [Command::NextHit, Command::PreviousHit].map(|it| model.key(it));
                format!("{hits} hits; {} go on", keys.join(" and "))
            }
        };
        // In the log it would be one more row to find.
        model.hint(&text);
    }
}

pub(super) fn log_hits(model: &Model) -> Vec<usize> {
    let query = model.log.query.to_lowercase();
    let rows = model.log.rows();
    let matches = |row: &LogRow<'_>| row.text().to_lowercase().contains(&query);
    (0..rows.len())
        .filter(|index| !query.is_empty() && matches(&rows[*index]))
        .collect()
}

pub(super) fn go_to_log_hit(model: &mut Model, forward: bool, here: bool) {
    let hits = log_hits(model);
    let at = model.log.cursor;
    let next = match forward {
        true => hits
            .iter()
            .find(|hit| **hit > at || (here && **hit == at))
            .or(hits.first()),
        false => hits.iter().rev().find(|hit| **hit < at).or(hits.last()),
    };
    if let Some(hit) = next {
        model.log.cursor = *hit;
        model.dirty = true;
    }
}

fn host_away(model: &mut Model) -> Vec<Effect> {
    let away = model.host_away != Some(true);
    model.host_away = Some(away);
    let text = match away {
        true => {
            let key = model.key(Command::HostAway);
            format!("the demo's host has gone away; {key} brings it back")
        }
        false => "the demo's host is back".to_string(),
    };
    model.say(MessageLevel::Info, text);
    let names = model.rows.iter().map(|row| row.name.clone()).collect();
    vec![Effect::HostAway(away), Effect::Read(names)]
}

/// Carries out a command that a key stands for, or says why not.
pub fn perform(model: &mut Model, command: Command, key: Key) -> Vec<Effect> {
    if let Err(why) = command::enabled(command, model) {
        model.hint(&format!("{}: {why}", command::spec(command).id));
        return Vec::new();
    }
    model.dirty = true;
    let page = match model.screen {
        Screen::Fleet => model.list_height(),
        Screen::Hosts => model.hosts_height(),
        Screen::Log => model.log_height(),
        Screen::Agent if model.agent.is_list() => model.history_height(),
        _ => model.text_height(),
    } as isize;
    match command {
        Command::Down => return move_by(model, 1),
        Command::Up => return move_by(model, -1),
        Command::HalfDown => return move_by(model, page / 2),
        Command::HalfUp => return move_by(model, -page / 2),
        Command::PageDown => return move_by(model, page),
        Command::PageUp => return move_by(model, -page),
        Command::Top => return move_by(model, isize::MIN / 2),
        Command::Bottom => return move_by(model, isize::MAX / 2),
        Command::Back => return back(model, key),
        Command::Last => {
            let previous = model.previous.unwrap_or(Screen::Fleet);
            go(model, previous);
            if previous == Screen::Hosts {
                return host::settings(model);
            }
        }
        Command::GoHosts => return host::open(model),
        Command::TryNow => return host::try_now(model),
        Command::GoFleet => go(model, Screen::Fleet),
        Command::GoReset => {
            let leads_here = model.screen == Screen::Agent && model.back.agent == Screen::Reset;
            if !leads_here {
                model.back.reset = left_for_a_plan(model.screen);
            }
            go(model, Screen::Reset);
        }
        Command::GoLog => {
            go(model, Screen::Log);
            return vec![Effect::LoadLog];
        }
        Command::GoAgent if model.screen == Screen::Agent => {}
        Command::GoAgent => {
            let name = model.subject().map(str::to_string);
            let name = name.or_else(|| model.cursor.clone());
            return name.map_or_else(Vec::new, |name| enter_agent(model, name));
        }
        Command::Open => return open(model),
        Command::OpenDiff => {
            let name = model.subject().map(str::to_string);
            return name.map_or_else(Vec::new, |name| open_tab(model, name, Tab::Diff));
        }
        Command::NextAgent => return neighbour(model, 1),
        Command::PreviousAgent => return neighbour(model, -1),
        Command::NextTab | Command::PreviousTab => {
            let by = match command {
                Command::NextTab => 1,
                _ => Tab::ALL.len() - 1,
            };
            model.agent.tab = model.agent.tab.step(by);
            return agent::history(model);
        }
        Command::Wrap => model.agent.wrap = !model.agent.wrap,
        Command::Sides | Command::MoreContext | Command::LessContext => {
            agent::arrange(model, command);
        }
        Command::Blanks => model.agent.switch_blanks(),
        Command::Full => {
            model.agent.full = !model.agent.full;
            model.agent.arrange(model.size.0);
        }
        Command::Reveal => model.agent.reveal = !model.agent.reveal,
        Command::Search => {
            let old = match model.screen {
                Screen::Log => std::mem::take(&mut model.log.query),
                _ => {
                    let pane = model.agent.pane_mut();
                    let old = pane.query.clone();
                    pane.search("");
                    old
                }
            };
            model.prompt = Some(Prompt::Search(old));
        }
        Command::NextHit => next_hit(model, true),
        Command::PreviousHit => next_hit(model, false),
        Command::NextHunk => hunk(model, true),
        Command::PreviousHunk => hunk(model, false),
        Command::Filter => {
            model.prompt = Some(Prompt::Filter(model.filter.clone()));
            filter_by(model, String::new());
        }
        Command::Mark => return mark(model),
        Command::MarkRange => mark_range(model),
        Command::MarkAll => model.marks.extend(model.order.iter().cloned()),
        Command::ClearMarks => model.marks.clear(),
        Command::Sort => {
            chooser::show(model, Overlay::Palette(Chooser::searching("sort ")));
        }
        Command::Reverse => {
            model.reverse = !model.reverse;
            model.arrange();
        }
        Command::Read => {
            let name = match model.screen {
                Screen::Agent => Some(model.agent.name.clone()),
                _ => model.cursor.clone(),
            };
            model.say(MessageLevel::Info, "reading again");
            let texts =
                (model.screen == Screen::Agent).then(|| Effect::Texts(model.agent.name.clone()));
            let names: Vec<String> = name.into_iter().collect();
            let read = [Effect::LetAsk(names.clone()), Effect::Read(names)];
            let past = agent::history(model);
            return read.into_iter().chain(texts).chain(past).collect();
        }
        Command::ReadAll => {
            model.say(MessageLevel::Info, "reading all agents again");
            let names: Vec<String> = model.rows.iter().map(|row| row.name.clone()).collect();
            let ask = Effect::LetAsk(names.clone());
            return vec![ask, Effect::Read(names), Effect::LoadLog];
        }
        Command::PlanReset | Command::Retry => {
            let request = PlanRequest::Reset(model.targets(command));
            return ask_for_plan(model, request, false);
        }
        Command::PlanUndo => {
            return plan_undo(model);
        }
        Command::PlanRedo => {
            return plan_redo(model);
        }
        Command::Confirm => return run_plan(model),
        Command::Append => return undo_with(model, UndoMode::Append),
        Command::Overwrite => return undo_with(model, UndoMode::Overwrite),
        Command::KeepHidden => match &mut model.reset.stage {
            ResetStage::Plan(view) if !view.hidden.is_empty() => view.hidden.clear(),
            _ => return back(model, key),
        },
        Command::DropHidden => return drop_hidden(model),
        Command::CopyName
        | Command::CopyPath
        | Command::CopyDigest
        | Command::CopyLine
        | Command::CopyAll
        | Command::CopyCommand
        | Command::CopyPlan => return hand::copy(model, command),
        Command::CopyDiff => return hand::copy_diff(model),
        Command::EditBaseline => return hand::edit(model),
        Command::Page => return hand::page(model),
        Command::Answer => question::open(model),
        Command::ReadOnly => read_only(model),
        Command::HostAway => return host_away(model),
        Command::Help => chooser::show(model, Overlay::Help(Chooser::browsing())),
        Command::Palette => {
            chooser::show(model, Overlay::Palette(Chooser::searching("")));
        }
        Command::Redraw => return vec![Effect::Redraw],
        Command::Suspend => return vec![Effect::Suspend],
        Command::Quit => match &mut model.reset.stage {
            ResetStage::Run(view) if !view.cancelled => {
                view.cancelled = true;
                let done = "the agent in hand is finished, the rest is not started";
                let text = format!("{done}; {} again quits", model.key(Command::Quit));
                model.say(MessageLevel::Warn, text);
                return vec![Effect::Cancel];
            }
            ResetStage::Planning(_) if model.screen == Screen::Reset => {
                let key = model.key(Command::Quit);
                model.hint(&format!("the plan was given up; {key} again quits"));
                leave_reset(model);
            }
            _ => return vec![Effect::Cancel, Effect::Quit],
        },
    }
    Vec::new()
}

/// Asks for the plan of an undo, and names the run where it is not of what is marked.
fn plan_undo(model: &mut Model) -> Vec<Effect> {
    let target = model.undo_target();
    if let (UndoTarget::Run(run), Screen::Fleet) = (&target, model.screen) {
        let time = of_time(model, model.last_undoable());
        let what = "no marked agent has a reset to undo";
        model.say(
            MessageLevel::Info,
            format!("{what}; this is the last run, {run}{time}"),
        );
    }
    ask_for_plan(model, PlanRequest::Undo(target, UndoMode::Refuse), false)
}

/// Asks for the plan that takes an undo back, and names the run where it is not of what
/// is marked or under the cursor.
fn plan_redo(model: &mut Model) -> Vec<Effect> {
    let target = UndoTarget::Redo(model.targets(Command::PlanRedo));
    if let Some((run, _)) = model.last_redoable() {
        let (id, time) = (&run.run, of_time(model, Some(run)));
        let text = format!("there is no undo to take back here; this is the last one, {id}{time}");
        model.say(MessageLevel::Info, text);
    }
    ask_for_plan(model, PlanRequest::Undo(target, UndoMode::Refuse), false)
}

/// ` of 09:00`, for a run of today.
fn of_time(model: &Model, run: Option<&RunSummary>) -> String {
    let time = run.map(|run| run.time);
    let time = time.filter(|time| time.date_naive() == model.now.wall.date_naive());
    time.map_or_else(String::new, |time| time.format(" of %H:%M").to_string())
}

/// Where one is led back to from a plan that was asked for here, or a result that was
/// opened here.
pub(super) fn left_for_a_plan(screen: Screen) -> Screen {
    match screen {
        Screen::Agent | Screen::Log => screen,
        _ => Screen::Fleet,
    }
}

/// Back from a plan, which ends by that, or from a run or a result.
fn leave_reset(model: &mut Model) {
    // No way leads to and fro for ever.
    model.back.agent = Screen::Fleet;
    match model.reset.stage {
        ResetStage::Plan(_) | ResetStage::Planning(_) => give_up_plan(model),
        _ => go(model, model.back.reset),
    }
}

pub(super) fn go(model: &mut Model, screen: Screen) {
    if model.screen != screen {
        model.previous = Some(model.screen);
        model.screen = screen;
    }
    model.pending = PendingKeys::default();
}

/// One level back: search, filter, screen; the first of its keys quits at the
/// fleet.
pub(super) fn back(model: &mut Model, key: Key) -> Vec<Effect> {
    let escape = key.code == Code::Esc;
    let first = model.preferences.keymap.leaves(key);
    match model.screen {
        Screen::Fleet if escape => {
            if model.filter.is_empty() {
                let key = model.preferences.keymap.leaving();
                model.hint(&format!("{key} quits"));
            } else {
                filter_by(model, String::new());
            }
        }
        // Whoever presses it once too often loses no agent of the run.
        Screen::Fleet if first && model.is_going_on() => {
            let (shows, ends) = (model.key(Command::GoReset), model.key(Command::Quit));
            model.hint(&format!(
                "a run is in progress; {shows} shows it, {ends} stops it after the agent in hand"
            ));
        }
        Screen::Fleet if first => return perform(model, Command::Quit, key),
        Screen::Fleet => {}
        Screen::Agent if escape && !model.agent.pane().query.is_empty() => {
            model.agent.pane_mut().search("");
        }
        Screen::Agent if model.agent.full && !model.agent.is_list() => {
            model.agent.full = false;
            model.agent.arrange(model.size.0);
        }
        Screen::Agent if model.agent.tab == Tab::History && !model.agent.is_list() => {
            model.agent.history.opened = None;
        }
        Screen::Log if escape && !model.log.query.is_empty() => model.log.query.clear(),
        Screen::Agent
            if model.back.agent == Screen::Reset
                && !matches!(model.reset.stage, ResetStage::Empty) =>
        {
            if model.back.reset == Screen::Agent {
                model.back.reset = Screen::Fleet;
            }
            go(model, Screen::Reset);
        }
        Screen::Agent if model.back.agent == Screen::Log => go(model, Screen::Log),
        Screen::Reset => leave_reset(model),
        _ => go(model, Screen::Fleet),
    }
    Vec::new()
}

pub(super) fn move_by(model: &mut Model, by: isize) -> Vec<Effect> {
    let step = |at: usize, count: usize| at.saturating_add_signed(by).min(count.saturating_sub(1));
    match model.screen {
        Screen::Fleet => {
            let index = model.cursor_index().unwrap_or(0);
            let index = step(index, model.order.len());
            model.cursor = model.order.get(index).cloned();
            model.cursor_moved = true;
            model.keep_cursor_visible();
            // The strip is two lines: under a held key it would cost more than
            // the cursor itself.
            let held = model
                .last_move
                .is_some_and(|last| model.now.since < last + STRIP_DELAY);
            model.last_move = Some(model.now.since);
            if held {
                model.strip_due = Some(model.now.since + STRIP_DELAY);
            } else {
                model.strip.clone_from(&model.cursor);
                model.strip_due = None;
            }
        }
        Screen::Agent if model.agent.is_list() => agent::move_by(model, by),
        Screen::Agent => {
            let (width, height, look) = (model.text_width(), model.text_height(), model.look());
            let pane = model.agent.pane_mut();
            if by < isize::MIN / 4 {
                pane.to_start();
            } else if by > isize::MAX / 4 {
                pane.to_end(width, height, look);
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
            let count = model.hosts.order().len();
            host::choose(model, step(model.hosts.cursor_index(), count));
            return host::settings(model);
        }
    }
    Vec::new()
}

/// Opens what is under the cursor.
pub(super) fn open(model: &mut Model) -> Vec<Effect> {
    let name = match model.screen {
        Screen::Reset => model.reset.subject().map(str::to_string),
        Screen::Log => {
            let result = match model.log.rows().get(model.log.cursor) {
                Some(LogRow::Run(run)) if !model.is_running() => Some(run.result()),
                _ => None,
            };
            if let Some(result) = result {
                model.reset.stage = ResetStage::Result(Box::new(result));
                model.reset.cursor = 0;
                model.back.reset = Screen::Log;
                go(model, Screen::Reset);
            }
            return Vec::new();
        }
        Screen::Hosts => return host::agents(model),
        Screen::Agent => return agent::open(model),
        Screen::Fleet => model.cursor.clone(),
    };
    name.map_or_else(Vec::new, |name| enter_agent(model, name))
}

/// Opens an agent on what matters of it: what changed in a baseline that is not the
/// sealed one, else the tab that was used last.
pub(super) fn enter_agent(model: &mut Model, name: String) -> Vec<Effect> {
    let is_tampered = model.row(&name).map(|row| row.state()) == Some(State::Tampered);
    match (is_tampered, model.agent.tab) {
        (true, _) => open_tab(model, name, Tab::Baseline),
        (false, Tab::Baseline) => open_tab(model, name, Tab::Diff),
        (false, _) => open_agent(model, name),
    }
}

/// Opens a tab of an agent.
pub(super) fn open_tab(model: &mut Model, name: String, tab: Tab) -> Vec<Effect> {
    model.agent.tab = tab;
    match model.screen == Screen::Agent && model.agent.name == name {
        true => agent::history(model),
        false => open_agent(model, name),
    }
}

pub(super) fn open_agent(model: &mut Model, name: String) -> Vec<Effect> {
    model.back.agent = match model.screen {
        Screen::Agent => model.back.agent,
        Screen::Hosts => Screen::Fleet,
        screen => screen,
    };
    go(model, Screen::Agent);
    if model.order.contains(&name) {
        model.cursor = Some(name.clone());
        model.cursor_moved = true;
        model.strip.clone_from(&model.cursor);
        model.keep_cursor_visible();
    }
    if model.agent.name != name {
        model.agent = model.agent.of(name.clone());
        model.agent.arrange(model.size.0);
    }
    let texts = Effect::Texts(name);
    std::iter::once(texts)
        .chain(agent::history(model))
        .collect()
}

pub(super) fn neighbour(model: &mut Model, by: isize) -> Vec<Effect> {
    let here = model
        .order
        .iter()
        .position(|name| *name == model.agent.name)
        .unwrap_or(0);
    let next = here
        .saturating_add_signed(by)
        .min(model.order.len().saturating_sub(1));
    match model.order.get(next).cloned() {
        Some(name) if name != model.agent.name => open_agent(model, name),
        _ => {
            model.hint("there is no further agent");
            Vec::new()
        }
    }
}

pub(super) fn hunk(model: &mut Model, forward: bool) {
    let height = model.text_height();
    model.agent.pane_mut().hunk(forward, height);
}

pub(super) fn next_hit(model: &mut Model, forward: bool) {
    let height = model.text_height();
    match model.screen {
        Screen::Log if model.log.query.is_empty() => {
            let key = model.key(Command::Search);
            model.hint(&format!("{key} searches"));
        }
        Screen::Log => go_to_log_hit(model, forward, false),
        _ if model.agent.pane().query.is_empty() => hunk(model, forward),
        _ => model.agent.pane_mut().next_hit(forward, height),
    }
}

pub(super) fn mark(model: &mut Model) -> Vec<Effect> {
    let Some(name) = model.cursor.clone() else {
        return Vec::new();
    };
    if !model.marks.remove(&name) {
        model.marks.insert(name.clone());
        model.anchor = Some(name);
    }
    move_by(model, 1)
}

pub(super) fn mark_range(model: &mut Model) {
    let place = |name: &Option<String>| {
        let name = name.as_ref()?;
        model.order.iter().position(|other| other == name)
    };
    let Some(cursor) = place(&model.cursor) else {
        return;
    };
    let anchor = place(&model.anchor).unwrap_or(cursor);
    let range = anchor.min(cursor)..=anchor.max(cursor);
    let names: Vec<String> = model.order[range].to_vec();
    model.marks.extend(names);
    model.anchor.clone_from(&model.cursor);
}

/// Shows the agents that a filter lets through.
pub(super) fn filter_by(model: &mut Model, filter: String) {
    model.filter = filter;
    model.filter_kept = false;
    model.arrange();
    model.dirty = true;
}

pub(super) fn sort_by(model: &mut Model, sort: Sort) {
    model.sort = sort;
    model.arrange();
    model.say(MessageLevel::Info, format!("sorted by {}", sort.word()));
}

pub(super) fn read_only(model: &mut Model) {
    if model.read_only.on {
        model.overlay = Some(Overlay::Unlock);
    } else {
        model.read_only.on = true;
        model.read_only.unlocked_until = None;
        let key = model.key(Command::ReadOnly);
        let what = "again switches it off, for protected agents, too";
        model.say(MessageLevel::Info, format!("read-only; {key} {what}"));
    }
}

pub(super) fn undo_with(model: &mut Model, mode: UndoMode) -> Vec<Effect> {
    let request = match &model.reset.stage {
        ResetStage::Plan(view) => view.request.clone(),
        _ => return Vec::new(),
    };
    match request {
        PlanRequest::Undo(target, _) => ask_for_plan(model, PlanRequest::Undo(target, mode), false),
        PlanRequest::Reset(_) => Vec::new(),
    }
}

pub(super) fn drop_hidden(model: &mut Model) -> Vec<Effect> {
    let ResetStage::Plan(view) = &model.reset.stage else {
        return Vec::new();
    };
    let keep = |names: &[String]| -> Vec<String> {
        names
            .iter()
            .filter(|name| !view.hidden.contains(name))
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
    for name in view.hidden.clone() {
        model.marks.remove(&name);
    }
    ask_for_plan(model, request, false)
}
