//! What a message does to the model, and what should be done about it outside.
//! No input or output, no clock, no terminal library.

use std::time::Duration;

use super::chooser;
use super::command::{self, Category, Command, Context};
use super::keymap::{self, Code, Key, Meaning};
use super::model::{
    Chooser, Fleet, Form, Item, Level, LogRow, Model, Moment, Overlay, PlanView, Prompt, Request,
    ResultView, Row, RunSummary, RunView, Screen, Sort, Stage, Tab, age, form, modified,
};
use super::text::{Pane, Prepared};
use crate::config::Config;
use crate::engine::{
    Observation, Outcome, Plan, Progress, Protection, Report, UndoMode, UndoTarget,
};
use crate::error::Error;

/// How long input is ignored when a plan appears.
pub const DEAF: Duration = Duration::from_millis(400);

/// After this a plan is void and made anew.
pub const VALID: Duration = Duration::from_secs(60);

/// How long the strip waits for a key to be let go.
const STRIP: Duration = Duration::from_millis(80);

/// How long `!` unlocks.
const UNLOCKED: Duration = Duration::from_secs(30 * 60);

/// More printable keys than this in one read were not typed by a hand.
const BURST: usize = 8;

/// Something that happened.
#[derive(Debug)]
pub enum Msg {
    /// Keys, as many as came in one go.
    Keys(Vec<Key>),
    /// Text that was pasted.
    Paste(String),
    /// The terminal has this many columns and rows.
    Resize(u16, u16),
    /// The time that [`next_wake`] asked for has come.
    Tick,
    /// Agents as they look now.
    Observed(Vec<Observation>),
    /// Agents as they looked when the console was used last.
    Remembered(Vec<Observation>),
    /// Texts that were asked for.
    Texts(Box<Texts>),
    /// A plan that was asked for, by the number of the request.
    Planned(u64, Result<Box<Plan>, Error>),
    /// A run goes on.
    Progress(Progress),
    /// A run ended.
    Ended(Box<Report>),
    /// The runs of the ledger, the youngest first.
    Log(Result<Vec<RunSummary>, String>),
    /// Something to be said.
    Note(Level, String),
    /// The config file was changed; it is read elsewhere.
    ConfigChanged,
    /// The changed config is right; it is put in force elsewhere.
    ConfigRead(Box<Config>),
    /// The config was changed and is wrong; the old one stays.
    ConfigBroken(String),
    /// The config was changed: the fleet, its agents, and whether it is
    /// read-only.
    ConfigLoaded(Fleet, Vec<String>, bool),
    /// Quit at once: the terminal or the system says so.
    Quit,
}

/// The texts of an agent, prepared for panes.
#[derive(Debug)]
pub struct Texts {
    /// Whose.
    pub agent: String,
    /// Generation of the observation they belong to.
    pub generation: u64,
    /// Baseline against memory.
    pub diff: Prepared,
    /// What is below the boundary.
    pub scratch: Prepared,
    /// What is remarkable about the file.
    pub findings: String,
}

/// Something to be done outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Read these agents again.
    Read(Vec<String>),
    /// Prepare the texts of an agent.
    Texts(String),
    /// Make a plan; the second says whether protected agents are unlocked.
    Plan(u64, Request, bool),
    /// Carry a plan out.
    Apply(Box<Plan>),
    /// Finish the agent in hand, do not start the rest.
    Cancel,
    /// Read the ledger.
    LoadLog,
    /// Draw everything again.
    Redraw,
    /// Hand the terminal back to the shell.
    Suspend,
    /// Leave.
    Quit,
}

/// Changes the model. Sets `dirty` when something that is drawn changed.
pub fn update(model: &mut Model, now: Moment, msg: Msg) -> Vec<Effect> {
    model.now = now;
    match msg {
        Msg::Keys(keys) => keys_came(model, keys),
        Msg::Paste(text) => paste(model, &text),
        Msg::Resize(columns, rows) => {
            model.size = (columns, rows);
            model.keep_cursor_visible();
            model.dirty = true;
            Vec::new()
        }
        Msg::Tick => tick(model),
        Msg::Observed(observations) => observed(model, observations),
        Msg::Remembered(observations) => {
            for seen in observations {
                if let Some(row) = model.rows.iter_mut().find(|row| row.name == seen.agent) {
                    row.remembered = Some(seen);
                }
            }
            model.arrange();
            model.dirty = true;
            Vec::new()
        }
        Msg::Texts(texts) => {
            texts_came(model, *texts);
            Vec::new()
        }
        Msg::Planned(request, plan) => planned(model, request, plan),
        Msg::Progress(progress) => {
            progressed(model, progress);
            Vec::new()
        }
        Msg::Ended(report) => ended(model, &report),
        Msg::Log(Ok(runs)) => {
            model.dirty |= model.log.runs != runs || model.ledger_error.is_some();
            model.log.change(|log| log.runs = runs);
            model.ledger_error = None;
            Vec::new()
        }
        Msg::Log(Err(why)) => {
            model.say(Level::Error, why.clone());
            model.ledger_error = Some(why);
            Vec::new()
        }
        Msg::Note(level, text) => {
            model.say(level, text);
            Vec::new()
        }
        Msg::ConfigChanged | Msg::ConfigRead(_) => Vec::new(),
        Msg::ConfigBroken(why) => {
            model.say(
                Level::Error,
                "the configuration was changed and is wrong; the old one stays in force",
            );
            model.config_error = Some(why);
            Vec::new()
        }
        Msg::ConfigLoaded(fleet, names, read_only) => {
            config_loaded(model, fleet, &names, read_only);
            vec![Effect::LoadLog]
        }
        Msg::Quit => vec![Effect::Cancel, Effect::Quit],
    }
}

/// When [`Msg::Tick`] should come next, if nothing else happens.
pub fn next_wake(model: &Model) -> Duration {
    let now = model.now.since;
    let mut wake = now + Duration::from_secs(20);
    let mut at = |time: Option<Duration>| wake = time.map_or(wake, |time| wake.min(time));
    at(model.strip_due);
    at(model.read_only.unlocked_until);
    match &model.reset.stage {
        Stage::Plan(view) if model.screen == Screen::Reset && !model.waiting => {
            at(Some(view.shown + VALID));
        }
        Stage::Run(_) => at(Some(now + Duration::from_millis(500))),
        _ => {}
    }
    wake.max(now)
}

fn tick(model: &mut Model) -> Vec<Effect> {
    let now = model.now.since;
    if model.strip_due.is_some_and(|due| due <= now) {
        model.strip_due = None;
        model.dirty |= model.strip != model.cursor;
        model.strip.clone_from(&model.cursor);
    }
    if model
        .read_only
        .unlocked_until
        .is_some_and(|until| until <= now)
    {
        model.read_only.unlocked_until = None;
        model.read_only.on |= model.read_only.by_config;
        model.say(Level::Info, "protected agents are read-only again");
    }
    let ages = ages(model);
    if ages != model.ages {
        model.ages = ages;
        model.dirty = true;
    }
    match &model.reset.stage {
        Stage::Plan(_) if model.screen == Screen::Reset && !model.waiting => plan_anew(model),
        Stage::Run(_) => {
            model.dirty |= model.screen == Screen::Reset;
            Vec::new()
        }
        _ => Vec::new(),
    }
}

/// Asks for the plan on the screen again when it is void by its age.
fn plan_anew(model: &mut Model) -> Vec<Effect> {
    let Stage::Plan(view) = &mut model.reset.stage else {
        return Vec::new();
    };
    if model.now.since < view.shown + VALID {
        return Vec::new();
    }
    view.typed.clear();
    let request = view.request.clone();
    model.say(
        Level::Info,
        "the plan was a minute old: here comes a new one",
    );
    ask_for_plan(model, request, true)
}

/// The ages that are on the screen.
fn ages(model: &Model) -> Vec<String> {
    let of = |row: &Row| {
        let content = row.best()?.content.as_ref()?;
        Some(age(
            model.now.wall,
            modified(content.modified, model.now.wall),
        ))
    };
    match model.screen {
        Screen::Fleet => {
            let visible = model.order.iter().skip(model.top).take(model.list_height());
            visible
                .filter_map(|name| model.row(name))
                .filter_map(of)
                .collect()
        }
        Screen::Agent => model
            .row(&model.agent.name)
            .and_then(of)
            .into_iter()
            .collect(),
        _ => Vec::new(),
    }
}

fn keys_came(model: &mut Model, keys: Vec<Key>) -> Vec<Effect> {
    // What was said was there to be read; the log keeps it.
    model.dirty |= model.message.take().is_some();
    let printable = keys.iter().filter(|key| key.typed().is_some()).count();
    let burst = printable > BURST && model.prompt.is_none();
    let mut effects = Vec::new();
    let mut dropped = false;
    for key in keys {
        if burst && key.typed().is_some() {
            // A held key over a slow line comes like this, too: let it move.
            let moves = model.overlay.is_none() && !is_typing(model) && {
                let meaning = keymap::meaning(model.context(), &[key]);
                matches!(meaning, Meaning::Command(command)
                    if command::spec(command).category == Category::Move
                        && !matches!(command, Command::Back | Command::Last))
            };
            if !moves {
                dropped = true;
                continue;
            }
        }
        let covered = is_covered(model);
        effects.extend(key_came(model, key));
        if covered && !is_covered(model) {
            // What changed meanwhile takes its place now.
            model.arrange();
        }
    }
    if dropped {
        model.say(
            Level::Warn,
            "many keys at once look like pasted text and were ignored",
        );
    }
    effects
}

fn paste(model: &mut Model, text: &str) -> Vec<Effect> {
    let query = match (&model.overlay, &model.prompt) {
        (None, Some(_)) => text.lines().next().unwrap_or_default(),
        _ => {
            model.say(
                Level::Warn,
                "pasted text is never taken as keys; it was ignored",
            );
            return Vec::new();
        }
    };
    let clean: String = query.chars().filter(|c| !c.is_control()).collect();
    edit_prompt(model, |line| line.push_str(&clean))
}

/// Whether something is over the screen, so that rows must not move below it.
fn is_covered(model: &Model) -> bool {
    model.overlay.is_some() || model.prompt.is_some()
}

/// Whether printable keys go into the confirmation of a plan.
fn is_typing(model: &Model) -> bool {
    match &model.reset.stage {
        Stage::Plan(view) if model.screen == Screen::Reset => {
            matches!(view.form, Form::Typed(_)) && view.hidden.is_empty()
        }
        _ => false,
    }
}

fn key_came(model: &mut Model, key: Key) -> Vec<Effect> {
    let quits = keymap::meaning(Context::Any, &[key]) == Meaning::Command(Command::Quit);
    if quits {
        return perform(model, Command::Quit, key);
    }
    if model.overlay.is_some() {
        return overlay_key(model, key);
    }
    if model.prompt.is_some() {
        return prompt_key(model, key);
    }
    if let Stage::Plan(view) = &model.reset.stage
        && model.screen == Screen::Reset
        && model.now.since < view.shown + DEAF
    {
        return Vec::new();
    }
    if is_typing(model)
        && let Some(effects) = confirm_key(model, key)
    {
        return effects;
    }
    model.pending.push(key);
    match keymap::meaning(model.context(), &model.pending) {
        Meaning::Prefix => Vec::new(),
        Meaning::Command(command) => {
            model.pending.clear();
            perform(model, command, key)
        }
        Meaning::Nothing => {
            let alone = model.pending.len() == 1;
            model.pending.clear();
            if alone {
                Vec::new()
            } else {
                key_came(model, key)
            }
        }
    }
}

/// A key while a plan is confirmed by typing; `None` when it is not for that.
fn confirm_key(model: &mut Model, key: Key) -> Option<Vec<Effect>> {
    let Stage::Plan(view) = &mut model.reset.stage else {
        return None;
    };
    let Form::Typed(word) = &view.form else {
        return None;
    };
    match (key.code, key.typed()) {
        // Until typing has begun, other keys mean what they always do.
        (_, Some(c)) if view.typed.is_empty() && !word.starts_with(c) => return None,
        (_, Some(c)) => {
            view.typed.push(c);
            model.dirty = true;
        }
        (Code::Backspace, _) => {
            view.typed.pop();
            model.dirty = true;
        }
        (Code::Enter, _) if view.typed.trim() == word => return Some(run_plan(model)),
        (Code::Enter, _) => {
            let text = format!("type {word} in full, then Enter");
            model.say(Level::Info, text);
        }
        _ => return None,
    }
    Some(Vec::new())
}

fn run_plan(model: &mut Model) -> Vec<Effect> {
    if let Some(why) = model.why_read_only() {
        model.say(Level::Warn, why);
        return Vec::new();
    }
    let Stage::Plan(view) = &model.reset.stage else {
        return Vec::new();
    };
    if view.shown + VALID <= model.now.since {
        return match model.waiting {
            true => Vec::new(),
            false => plan_anew(model),
        };
    }
    let plan = view.plan.clone();
    model.reset.stage = Stage::Run(Box::new(RunView {
        plan: plan.clone(),
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

fn overlay_key(model: &mut Model, key: Key) -> Vec<Effect> {
    model.dirty = true;
    let Some(mut overlay) = model.overlay.take() else {
        return Vec::new();
    };
    let count = chooser::choices(model, &overlay).len();
    let (help, chooser) = match &mut overlay {
        Overlay::Unlock => {
            if key.typed() == Some('y') {
                model.read_only.on = false;
                model.read_only.unlocked_until = Some(model.now.since + UNLOCKED);
                model.say(Level::Warn, "unlocked for 30 minutes");
            }
            return Vec::new();
        }
        Overlay::Help(chooser) => (true, chooser),
        Overlay::Palette(chooser) => (false, chooser),
    };
    let edit = chooser.typing;
    match (key.code, key.typed()) {
        (Code::Esc, _) if help && edit => {
            chooser.typing = false;
            chooser.query.clear();
        }
        (Code::Esc, _) => return Vec::new(),
        (Code::Enter, _) => return choose(model, overlay),
        (Code::Down, _) => chooser.cursor += 1,
        (Code::Up, _) => chooser.cursor = chooser.cursor.saturating_sub(1),
        (Code::PageDown, _) => chooser.cursor += 10,
        (Code::PageUp, _) => chooser.cursor = chooser.cursor.saturating_sub(10),
        (Code::Backspace, _) if edit => {
            // An empty palette is closed by one more Backspace.
            if chooser.query.pop().is_none() && !help {
                return Vec::new();
            }
            chooser.cursor = 0;
        }
        (_, Some(c)) if edit => {
            chooser.query.push(c);
            chooser.cursor = 0;
        }
        (_, Some('j')) => chooser.cursor += 1,
        (_, Some('k')) => chooser.cursor = chooser.cursor.saturating_sub(1),
        (_, Some('/')) => chooser.typing = true,
        (_, Some('q' | '?')) => return Vec::new(),
        _ => {}
    }
    chooser.cursor = chooser.cursor.min(count.saturating_sub(1));
    model.overlay = Some(overlay);
    Vec::new()
}

/// Runs what is under the cursor of a chooser.
fn choose(model: &mut Model, overlay: Overlay) -> Vec<Effect> {
    let choices = chooser::choices(model, &overlay);
    let cursor = match &overlay {
        Overlay::Help(chooser) | Overlay::Palette(chooser) => chooser.cursor,
        Overlay::Unlock => 0,
    };
    let Some(choice) = choices.into_iter().nth(cursor) else {
        return Vec::new();
    };
    match choice.item {
        Item::Command(command) => perform(model, command, Key::plain(Code::Enter)),
        Item::Sort(sort) => {
            sort_by(model, sort);
            Vec::new()
        }
        Item::Agent(name) => open_agent(model, name),
    }
}

fn prompt_key(model: &mut Model, key: Key) -> Vec<Effect> {
    match (key.code, key.typed()) {
        (Code::Esc, _) => {
            let old = match &model.prompt {
                Some(Prompt::Filter(old) | Prompt::Search(old)) => old.clone(),
                None => String::new(),
            };
            let effects = edit_prompt(model, |line| line.clone_from(&old));
            model.prompt = None;
            model.dirty = true;
            effects
        }
        (Code::Enter, _) => {
            let searched = matches!(model.prompt, Some(Prompt::Search(_)));
            model.prompt = None;
            model.dirty = true;
            model.arrange();
            if searched {
                report_hits(model);
            }
            Vec::new()
        }
        (Code::Backspace, _) => edit_prompt(model, |line| {
            line.pop();
        }),
        (_, Some(c)) => edit_prompt(model, |line| line.push(c)),
        (Code::Char('u'), _) if key.ctrl => edit_prompt(model, String::clear),
        _ => Vec::new(),
    }
}

/// Changes the line that is being typed, and shows at once what it means.
fn edit_prompt(model: &mut Model, edit: impl FnOnce(&mut String)) -> Vec<Effect> {
    model.dirty = true;
    match &model.prompt {
        Some(Prompt::Filter(_)) => {
            edit(&mut model.filter);
            model.arrange();
        }
        Some(Prompt::Search(_)) if model.screen == Screen::Log => edit(&mut model.log.query),
        Some(Prompt::Search(_)) => {
            let height = model.text_height();
            let pane = model.agent.pane_mut();
            let mut query = pane.query.clone();
            edit(&mut query);
            pane.search(&query);
            pane.first_hit(height);
        }
        None => {}
    }
    Vec::new()
}

fn report_hits(model: &mut Model) {
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
            hits => format!("{hits} hits; n and N go on"),
        };
        model.say(Level::Info, text);
    }
}

fn log_hits(model: &Model) -> Vec<usize> {
    let query = model.log.query.to_lowercase();
    let rows = model.log.rows();
    let matches = |row: &LogRow<'_>| row.text().to_lowercase().contains(&query);
    (0..rows.len())
        .filter(|index| !query.is_empty() && matches(&rows[*index]))
        .collect()
}

fn go_to_log_hit(model: &mut Model, forward: bool, here: bool) {
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

/// Carries out a command that a key stands for, or says why not.
pub fn perform(model: &mut Model, command: Command, key: Key) -> Vec<Effect> {
    if let Err(why) = command::enabled(command, model) {
        model.say(Level::Info, format!("{}: {why}", command::spec(command).id));
        return Vec::new();
    }
    model.dirty = true;
    let page = match model.screen {
        Screen::Fleet => model.list_height(),
        _ => model.text_height(),
    } as isize;
    match command {
        Command::Down => move_by(model, 1),
        Command::Up => move_by(model, -1),
        Command::HalfDown => move_by(model, page / 2),
        Command::HalfUp => move_by(model, -page / 2),
        Command::PageDown => move_by(model, page),
        Command::PageUp => move_by(model, -page),
        Command::Top => move_by(model, isize::MIN / 2),
        Command::Bottom => move_by(model, isize::MAX / 2),
        Command::Back => return back(model, key),
        Command::Last => {
            let previous = model.previous.unwrap_or(Screen::Fleet);
            go(model, previous);
        }
        Command::GoFleet => go(model, Screen::Fleet),
        Command::GoReset => go(model, Screen::Reset),
        Command::GoLog => {
            go(model, Screen::Log);
            return vec![Effect::LoadLog];
        }
        Command::GoAgent | Command::OpenDiff | Command::Open => return open(model),
        Command::NextAgent => return neighbour(model, 1),
        Command::PreviousAgent => return neighbour(model, -1),
        Command::NextTab | Command::PreviousTab => {
            model.agent.tab = match model.agent.tab {
                Tab::Diff => Tab::Scratch,
                Tab::Scratch => Tab::Diff,
            };
        }
        Command::Wrap => {
            model.agent.wrap = !model.agent.wrap;
            model.agent.pane_mut().top.1 = 0;
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
        }
        Command::Mark => mark(model),
        Command::MarkRange => mark_range(model),
        Command::MarkAll => model.marks.extend(model.order.iter().cloned()),
        Command::ClearMarks => model.marks.clear(),
        Command::Sort => {
            model.overlay = Some(Overlay::Palette(Chooser {
                query: "sort ".to_string(),
                typing: true,
                cursor: 0,
            }));
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
            model.say(Level::Info, "reading again");
            let texts =
                (model.screen == Screen::Agent).then(|| Effect::Texts(model.agent.name.clone()));
            return name
                .map(|name| Effect::Read(vec![name]))
                .into_iter()
                .chain(texts)
                .collect();
        }
        Command::ReadAll => {
            model.say(Level::Info, "reading all agents again");
            let names = model.rows.iter().map(|row| row.name.clone()).collect();
            return vec![Effect::Read(names), Effect::LoadLog];
        }
        Command::PlanReset | Command::Retry => {
            let request = Request::Reset(model.targets(command));
            return ask_for_plan(model, request, false);
        }
        Command::PlanUndo => {
            let target = match (model.screen, &model.reset.stage) {
                (Screen::Reset, Stage::Result(result)) => UndoTarget::Run(result.run.clone()),
                _ => UndoTarget::Agents(model.targets(command)),
            };
            return ask_for_plan(model, Request::Undo(target, UndoMode::Refuse), false);
        }
        Command::PlanRedo => {
            let target = UndoTarget::Redo(model.targets(command));
            return ask_for_plan(model, Request::Undo(target, UndoMode::Refuse), false);
        }
        Command::Confirm => return run_plan(model),
        Command::Append => return undo_with(model, UndoMode::Append),
        Command::Overwrite => return undo_with(model, UndoMode::Overwrite),
        Command::KeepHidden => match &mut model.reset.stage {
            Stage::Plan(view) if !view.hidden.is_empty() => view.hidden.clear(),
            _ => return back(model, key),
        },
        Command::DropHidden => return drop_hidden(model),
        Command::ReadOnly => read_only(model),
        Command::Help => model.overlay = Some(Overlay::Help(Chooser::default())),
        Command::Palette => {
            model.overlay = Some(Overlay::Palette(Chooser {
                typing: true,
                ..Chooser::default()
            }));
        }
        Command::Redraw => return vec![Effect::Redraw],
        Command::Suspend => return vec![Effect::Suspend],
        Command::Quit => match &mut model.reset.stage {
            Stage::Run(view) if !view.cancelled => {
                view.cancelled = true;
                model.say(
                    Level::Warn,
                    "the agent in hand is finished, the rest is not started; ^c again quits",
                );
                return vec![Effect::Cancel];
            }
            _ => return vec![Effect::Cancel, Effect::Quit],
        },
    }
    Vec::new()
}

fn go(model: &mut Model, screen: Screen) {
    if model.screen != screen {
        model.previous = Some(model.screen);
        model.screen = screen;
    }
    model.pending.clear();
}

/// One level back: search, filter, screen; `q` at the fleet quits.
fn back(model: &mut Model, key: Key) -> Vec<Effect> {
    let escape = key.code == Code::Esc;
    match model.screen {
        Screen::Fleet if escape => {
            if model.filter.is_empty() {
                model.say(Level::Info, "q quits");
            } else {
                model.filter.clear();
                model.arrange();
            }
        }
        Screen::Fleet if key.typed() == Some('q') => return vec![Effect::Cancel, Effect::Quit],
        Screen::Fleet => {}
        Screen::Agent if escape && !model.agent.pane().query.is_empty() => {
            model.agent.pane_mut().search("");
        }
        Screen::Log if escape && !model.log.query.is_empty() => model.log.query.clear(),
        Screen::Reset => {
            if !model.is_running() {
                model.reset.stage = Stage::Empty;
                model.waiting = false;
            }
            let screen = match model.previous {
                Some(Screen::Agent) => Screen::Agent,
                _ => Screen::Fleet,
            };
            go(model, screen);
        }
        _ => go(model, Screen::Fleet),
    }
    Vec::new()
}

fn move_by(model: &mut Model, by: isize) {
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
                .is_some_and(|last| model.now.since < last + STRIP);
            model.last_move = Some(model.now.since);
            if held {
                model.strip_due = Some(model.now.since + STRIP);
            } else {
                model.strip.clone_from(&model.cursor);
                model.strip_due = None;
            }
        }
        Screen::Agent => {
            let (width, height, look) = (model.text_width(), model.text_height(), model.look());
            let pane = model.agent.pane_mut();
            if by > isize::MAX / 4 {
                pane.to_end(width, height, look);
            } else {
                pane.scroll(by, width, height, look);
            }
        }
        Screen::Reset => {
            let count = match &model.reset.stage {
                Stage::Plan(view) => view.plan.steps.len() + view.plan.skipped.len(),
                Stage::Run(view) => view.plan.steps.len(),
                Stage::Result(view) => view.lines.len(),
                _ => 0,
            };
            model.reset.cursor = step(model.reset.cursor, count);
        }
        Screen::Log => {
            let count = model.log.rows().len();
            model.log.cursor = step(model.log.cursor, count);
        }
    }
}

/// Opens what is under the cursor.
fn open(model: &mut Model) -> Vec<Effect> {
    let name = match (model.screen, &model.reset.stage) {
        (Screen::Reset, Stage::Result(view)) => view
            .lines
            .get(model.reset.cursor)
            .map(|line| line.agent.clone()),
        (Screen::Log, _) => {
            let result = match model.log.rows().get(model.log.cursor) {
                Some(LogRow::Run(run)) if !model.is_running() => Some(run.result()),
                _ => None,
            };
            if let Some(result) = result {
                model.reset.stage = Stage::Result(Box::new(result));
                model.reset.cursor = 0;
                go(model, Screen::Reset);
            }
            return Vec::new();
        }
        _ => model.cursor.clone(),
    };
    name.map_or_else(Vec::new, |name| open_agent(model, name))
}

fn open_agent(model: &mut Model, name: String) -> Vec<Effect> {
    go(model, Screen::Agent);
    if model.order.contains(&name) {
        model.cursor = Some(name.clone());
        model.cursor_moved = true;
        model.strip.clone_from(&model.cursor);
        model.keep_cursor_visible();
    }
    if model.agent.name != name {
        model.agent.diff = Pane::default();
        model.agent.scratch = Pane::default();
        model.agent.findings.clear();
        model.agent.generation = 0;
        model.agent.name.clone_from(&name);
    }
    vec![Effect::Texts(name)]
}

fn neighbour(model: &mut Model, by: isize) -> Vec<Effect> {
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
            model.say(Level::Info, "there is no further agent");
            Vec::new()
        }
    }
}

fn hunk(model: &mut Model, forward: bool) {
    let height = model.text_height();
    model.agent.pane_mut().hunk(forward, height);
}

fn next_hit(model: &mut Model, forward: bool) {
    let height = model.text_height();
    match model.screen {
        Screen::Log if model.log.query.is_empty() => model.say(Level::Info, "/ searches"),
        Screen::Log => go_to_log_hit(model, forward, false),
        _ if model.agent.pane().query.is_empty() => hunk(model, forward),
        _ => model.agent.pane_mut().next_hit(forward, height),
    }
}

fn mark(model: &mut Model) {
    let Some(name) = model.cursor.clone() else {
        return;
    };
    if !model.marks.remove(&name) {
        model.marks.insert(name.clone());
        model.anchor = Some(name);
    }
    move_by(model, 1);
}

fn mark_range(model: &mut Model) {
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

fn sort_by(model: &mut Model, sort: Sort) {
    model.sort = sort;
    model.arrange();
    model.say(Level::Info, format!("sorted by {}", sort.word()));
}

fn read_only(model: &mut Model) {
    let protected = model
        .rows
        .iter()
        .filter_map(Row::best)
        .any(|seen| seen.protect == Protection::ReadOnly);
    if model.read_only.on || (protected && !model.unlocked()) {
        model.overlay = Some(Overlay::Unlock);
    } else {
        model.read_only.on = true;
        model.read_only.unlocked_until = None;
        model.say(Level::Info, "read-only; ! switches it off");
    }
}

fn ask_for_plan(model: &mut Model, request: Request, again: bool) -> Vec<Effect> {
    model.request += 1;
    model.waiting = true;
    model.dirty = true;
    if !again {
        model.reset.stage = Stage::Planning(request.clone());
        model.reset.cursor = 0;
        go(model, Screen::Reset);
    }
    vec![Effect::Plan(model.request, request, model.unlocked())]
}

fn undo_with(model: &mut Model, mode: UndoMode) -> Vec<Effect> {
    let request = match &model.reset.stage {
        Stage::Plan(view) => view.request.clone(),
        _ => return Vec::new(),
    };
    match request {
        Request::Undo(target, _) => ask_for_plan(model, Request::Undo(target, mode), false),
        Request::Reset(_) => Vec::new(),
    }
}

fn drop_hidden(model: &mut Model) -> Vec<Effect> {
    let Stage::Plan(view) = &model.reset.stage else {
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
        Request::Reset(names) => Request::Reset(keep(names)),
        Request::Undo(UndoTarget::Agents(names), mode) => {
            Request::Undo(UndoTarget::Agents(keep(names)), *mode)
        }
        Request::Undo(UndoTarget::Redo(names), mode) => {
            Request::Undo(UndoTarget::Redo(keep(names)), *mode)
        }
        Request::Undo(UndoTarget::Run(_), _) => view.request.clone(),
    };
    for name in view.hidden.clone() {
        model.marks.remove(&name);
    }
    ask_for_plan(model, request, false)
}

fn planned(model: &mut Model, request: u64, plan: Result<Box<Plan>, Error>) -> Vec<Effect> {
    if request != model.request || !model.waiting {
        return Vec::new();
    }
    model.waiting = false;
    model.dirty = true;
    let asked = match &model.reset.stage {
        Stage::Planning(request) => request.clone(),
        Stage::Plan(view) => view.request.clone(),
        _ => return Vec::new(),
    };
    let plan = match plan {
        Ok(plan) => *plan,
        Err(error) => {
            model.reset.stage = Stage::Empty;
            model.say(Level::Error, error.to_string());
            go(model, Screen::Fleet);
            return Vec::new();
        }
    };
    if let Stage::Plan(view) = &mut model.reset.stage
        && view.plan.hash == plan.hash
        && view.plan.steps.len() == plan.steps.len()
        && model.now.since < view.shown + VALID
    {
        // Only the figures changed: what was typed stays.
        view.plan = plan;
        return Vec::new();
    }
    if matches!(&model.reset.stage, Stage::Plan(view) if view.plan.hash != plan.hash) {
        model.say(
            Level::Warn,
            "something the plan depends on has changed: here is a new one",
        );
    }
    let mut hidden = model.hidden_marks();
    hidden.retain(|name| asked.names().contains(name));
    let form = form(&plan, model);
    model.reset.stage = Stage::Plan(Box::new(PlanView {
        request: asked,
        plan,
        shown: model.now.since,
        form,
        typed: String::new(),
        hidden,
    }));
    Vec::new()
}

fn progressed(model: &mut Model, progress: Progress) {
    let Stage::Run(view) = &mut model.reset.stage else {
        return;
    };
    match progress {
        Progress::Stage(agent, stage) => {
            view.stages.insert(agent, stage);
        }
        Progress::Done(result) => {
            view.outcomes
                .insert(result.agent, (result.outcome, result.note));
        }
        Progress::Line(_) => return,
    }
    model.dirty = true;
}

fn ended(model: &mut Model, report: &Report) -> Vec<Effect> {
    let result = ResultView::of_report(report, model.now.wall);
    for line in result
        .lines
        .iter()
        .filter(|line| line.outcome == Outcome::Ok)
    {
        model.marks.remove(&line.agent);
    }
    let failed = result.failed();
    let done = format!(
        "run {}: {} ok, {} failed",
        result.run,
        result.changed().len(),
        failed.len()
    );
    model.say(
        if failed.is_empty() {
            Level::Info
        } else {
            Level::Error
        },
        done,
    );
    let names = result.lines.iter().map(|line| line.agent.clone()).collect();
    model.reset.stage = Stage::Result(Box::new(result));
    model.reset.cursor = 0;
    vec![Effect::Read(names), Effect::LoadLog]
}

fn observed(model: &mut Model, observations: Vec<Observation>) -> Vec<Effect> {
    let mut effects = Vec::new();
    let mut replan = false;
    for seen in observations {
        let Some(row) = model.rows.iter_mut().find(|row| row.name == seen.agent) else {
            continue;
        };
        if row
            .seen
            .as_ref()
            .is_some_and(|old| old.generation > seen.generation)
        {
            continue;
        }
        let same = row.seen.as_ref().is_some_and(|old| {
            let old = Observation {
                read: seen.read,
                generation: seen.generation,
                ..old.clone()
            };
            old == seen
        });
        model.dirty |= !same;
        if !same {
            if model.screen == Screen::Agent && model.agent.name == seen.agent {
                effects.push(Effect::Texts(seen.agent.clone()));
            }
            if let Stage::Plan(view) = &model.reset.stage {
                replan |= view.plan.steps.iter().any(|step| step.agent == seen.agent);
            }
        }
        if let Some(why) = &seen.ledger_error {
            model.ledger_error = Some(why.clone());
        }
        row.seen = Some(seen);
    }
    if !is_covered(model) {
        model.arrange();
    }
    if let Stage::Plan(view) = &model.reset.stage
        && replan
        && !model.waiting
    {
        let request = view.request.clone();
        effects.extend(ask_for_plan(model, request, true));
    }
    effects
}

fn texts_came(model: &mut Model, texts: Texts) {
    let agent = &mut model.agent;
    if agent.name != texts.agent || texts.generation < agent.generation {
        return;
    }
    let first = agent.generation == 0;
    agent.generation = texts.generation;
    agent.diff.replace(texts.diff.0, texts.diff.1);
    agent.scratch.replace(texts.scratch.0, texts.scratch.1);
    agent.findings = texts.findings;
    let height = model.text_height();
    if first && let Some(hunk) = model.agent.diff.hunks.first().copied() {
        model.agent.diff.go_to(hunk, height);
    }
    model.dirty = true;
}

fn config_loaded(model: &mut Model, fleet: Fleet, names: &[String], read_only: bool) {
    let mut old = std::mem::take(&mut model.rows);
    model.rows = names
        .iter()
        .map(|name| {
            let place = old.iter().position(|row| row.name == *name);
            let known = place.map(|place| old.swap_remove(place));
            Row {
                name: name.clone(),
                seen: None,
                remembered: known.and_then(|row| row.seen.or(row.remembered)),
            }
        })
        .collect();
    model.marks.retain(|name| names.contains(name));
    model.fleet = fleet;
    model.read_only.by_config = read_only;
    model.read_only.on |= read_only && !model.unlocked();
    model.config_error = None;
    if let Stage::Plan(_) | Stage::Planning(_) = model.reset.stage {
        model.reset.stage = Stage::Empty;
        model.waiting = false;
        if model.screen == Screen::Reset {
            go(model, Screen::Fleet);
        }
    }
    model.arrange();
    model.say(Level::Info, "the configuration was changed and is in force");
}
