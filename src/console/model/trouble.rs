//! New trouble: agents whose state became worse in this session, and that the operator has not looked
//! at since. Every screen shows the worst of them.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, FixedOffset};
use unicode_width::UnicodeWidthStr;

use super::{AgentView, Model};
use crate::base::quantity::format_count;
use crate::base::untrusted;
use crate::console::age::format_time;
use crate::console::agent_row::AgentRow;
use crate::console::command::{Command, KeyContext};
use crate::console::screen::Screen;
use crate::console::screens::log::state::OwnRun;
use crate::console::widgets::canvas::{shorten_untrusted, truncate};
use crate::engine::{Observation, State};

/// How long the bell stays silent for an agent that it rang for.
const BELL_PAUSE: Duration = Duration::from_secs(10 * 60);

/// The label of the trouble key, if there is room for it.
const KEY_ACT: &str = " goes there";

/// Blank cells before the key.
const KEY_GAP: usize = 2;

/// Cells that a shortened name of an agent keeps.
const MIN_NAME_CELLS: usize = 8;

/// New trouble of the fleet.
#[derive(Clone, Debug, Default)]
pub struct TroubleWatch {
    /// By agent: trouble of an agent that is repeated stays one item.
    items: BTreeMap<String, Trouble>,
    /// The agent of the worst item, of the newest of several.
    worst: Option<String>,
    /// The agent that the trouble key opened, until the operator leaves it by another key.
    pub visit: Option<TroubleVisit>,
    /// When the bell last rang for an agent.
    last_bells: BTreeMap<String, Duration>,
    /// When this console last changed the baseline of an agent without sealing it.
    unsealed_changes: BTreeMap<String, DateTime<FixedOffset>>,
}

/// Trouble of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Trouble {
    state: State,
    /// The state before.
    before: State,
    time: DateTime<FixedOffset>,
}

/// An agent that the trouble key opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TroubleVisit {
    /// The agent.
    pub agent: String,
    /// Where the key leads back to.
    pub origin: TroubleOrigin,
}

/// What the screen showed when the trouble key was pressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TroubleOrigin {
    /// The screen.
    pub screen: Screen,
    /// The agent on the agent screen, if it was that one.
    pub agent: Option<AgentView>,
    /// The agent under the cursor of the fleet.
    pub cursor_agent: Option<String>,
}

impl TroubleWatch {
    /// Notes trouble of an agent. Returns whether the bell is due.
    fn add(&mut self, agent: &str, mut trouble: Trouble, now: Duration) -> bool {
        let earlier = self.items.get(agent).copied();
        trouble.before = earlier.map_or(trouble.before, |earlier| earlier.before);
        self.items.insert(agent.to_string(), trouble);
        let is_new = earlier.is_none();
        self.choose_worst();
        let last = self.last_bells.get(agent);
        let is_due = is_new && last.is_none_or(|last| now >= *last + BELL_PAUSE);
        if is_due {
            self.last_bells.insert(agent.to_string(), now);
        }
        is_due
    }

    /// Notes that an agent is in another state than the trouble says. Ends the trouble if the agent is as
    /// well as it was before.
    fn improve(&mut self, agent: &str, state: State) {
        match self.items.get_mut(agent) {
            Some(item) if state < item.before => item.state = state,
            Some(_) => drop(self.items.remove(agent)),
            None => return,
        }
        self.choose_worst();
    }

    /// Forgets an agent: it is well again, or the operator has looked at it. Returns whether there was
    /// trouble of it.
    pub fn remove(&mut self, agent: &str) -> bool {
        let is_known = self.items.remove(agent).is_some();
        if is_known {
            self.choose_worst();
        }
        is_known
    }

    /// Notes that this console changes the baseline of these agents and does not seal it: they become
    /// TAMPERED by that.
    pub fn expect_unsealed<'a>(
        &mut self,
        agents: impl IntoIterator<Item = &'a String>,
        now: DateTime<FixedOffset>,
    ) {
        let changes = agents.into_iter().map(|agent| (agent.clone(), now));
        self.unsealed_changes.extend(changes);
    }

    /// Forgets the agents for which `is_kept` does not hold.
    pub fn retain(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.unsealed_changes.retain(|agent, _| is_kept(agent));
        self.items.retain(|agent, _| is_kept(agent));
        self.last_bells.retain(|agent, _| is_kept(agent));
        self.choose_worst();
    }

    fn choose_worst(&mut self) {
        self.worst = self.worst_but(None).map(str::to_string);
    }

    /// Returns the agent with the worst trouble, without this one.
    fn worst_but(&self, other: Option<&str>) -> Option<&str> {
        let items = self.items.iter();
        let items = items.filter(|(agent, _)| Some(agent.as_str()) != other);
        let worst = items.min_by_key(|(_, it)| (it.state, std::cmp::Reverse(it.time)));
        worst.map(|(agent, _)| agent.as_str())
    }
}

/// The line about new trouble, in parts that are left out where there is no room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TroubleLine {
    /// The state that it is about.
    pub state: State,
    time: String,
    /// The agent; none is the one on the screen.
    agent: Option<String>,
    /// How many other agents have new trouble.
    others: usize,
    /// The key that opens the agent; none while keys type text.
    key: Option<String>,
}

/// A line about new trouble, fitted into its room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FittedTrouble {
    /// When, which agent, and its state.
    pub text: String,
    /// The key, if there is one.
    pub key: String,
    /// What the key does.
    pub act: &'static str,
}

impl FittedTrouble {
    /// Returns the cells that it takes.
    pub fn width(&self) -> usize {
        let gap = if self.key.is_empty() { 0 } else { KEY_GAP };
        self.text.width() + gap + self.key.width() + self.act.width()
    }
}

impl TroubleLine {
    /// Fits the line into `room` cells beside a message of `message` cells. The words go first, then the
    /// agent's name is shortened, then the message has to yield.
    pub fn fit(&self, room: usize, message: usize) -> FittedTrouble {
        let state = self.state;
        let Some(agent) = &self.agent else {
            let text = format!("! {} became {state}", self.time);
            return self.without_key(truncate(&text, room));
        };
        let beside = room.saturating_sub(message);
        let name = untrusted::visible_line(agent);
        let [more, more_short] = match self.others {
            0 => [String::new(), String::new()],
            others => [format!(", {others} more"), format!(" +{others}")],
        };
        let whole = format!("! {} {name} {state}{more}", self.time);
        let whole = self.with_key(whole, KEY_ACT);
        if whole.width() <= beside {
            return whole;
        }
        let time = format!("{} ", self.time);
        let forms = [
            (time.as_str(), more_short.as_str()),
            (time.as_str(), ""),
            ("", ""),
        ];
        let forms = forms.map(|(time, more)| {
            let fit_name = |cells: usize| {
                let name = shorten_untrusted(agent, cells);
                self.with_key(format!("! {time}{name} {state}{more}"), "")
            };
            let others = fit_name(usize::MAX).width() - name.width();
            let cells = beside.saturating_sub(others).max(MIN_NAME_CELLS);
            fit_name(cells)
        });
        let mut forms = forms.into_iter();
        let fitting = forms.find(|form| form.width() <= room);
        fitting.unwrap_or_else(|| self.without_key(truncate(&format!("! {name} {state}"), room)))
    }

    fn with_key(&self, text: String, act: &'static str) -> FittedTrouble {
        match &self.key {
            Some(key) => FittedTrouble {
                text,
                key: key.clone(),
                act,
            },
            None => self.without_key(text),
        }
    }

    fn without_key(&self, text: String) -> FittedTrouble {
        FittedTrouble {
            text,
            key: String::new(),
            act: "",
        }
    }
}

/// Notes what an observation says that its agent's row did not say yet. Returns whether the bell is
/// due.
pub fn track_trouble(model: &mut Model, seen: &Observation) -> bool {
    if seen.state > State::Ill {
        // A run in progress says nothing of what is wrong.
        if seen.state != State::Busy {
            model.trouble.remove(&seen.agent);
        }
        return false;
    }
    let row = model.find_row(&seen.agent);
    let before = row.and_then(AgentRow::session_observation);
    let before = before.map_or(State::Loading, |before| before.state);
    if !is_new_trouble(model, seen) {
        model.trouble.improve(&seen.agent, seen.state);
        return false;
    }
    let trouble = Trouble {
        state: seen.state,
        before,
        time: model.now.local_time,
    };
    let (agent, now) = (&seen.agent, model.now.elapsed);
    let is_bell_due = model.trouble.add(agent, trouble, now);
    // The log has one message about a host, for all of its agents.
    let is_of_host = matches!(seen.state, State::HostKey | State::Unreach | State::Error)
        && model.hosts.status_of_agent(agent).is_some();
    if !is_of_host {
        let text = format!("{agent} {}", seen.state);
        model.log.add_repeated(&text, model.now.local_time);
    }
    is_bell_due && model.preferences.has_bell
}

/// Whether the agent became worse since the row was read, and not by an act of this console.
fn is_new_trouble(model: &Model, seen: &Observation) -> bool {
    let row = model.find_row(&seen.agent);
    let Some((row, old)) = row.and_then(|row| Some((row, row.session_observation()?))) else {
        return false;
    };
    let readable = row.last_readable_observation();
    let is_known = readable.is_some_and(|it| it.state == seen.state);
    // A memory that is gone is no milder state than one with changed rules.
    let was_there = !old.is_absent && (old.state != State::Error || old.content.is_some());
    let is_gone = seen.state == State::Missing && old.state != State::Missing && was_there;
    let is_worse = is_gone || seen.state < old.state;
    is_worse && !is_known && !is_own_act(model, old, seen)
}

/// Whether this console may have made the difference between two observations of an agent: a run, or a
/// change of its baseline between the two reads.
fn is_own_act(model: &Model, old: &Observation, seen: &Observation) -> bool {
    let changed = model.trouble.unsealed_changes.get(&seen.agent);
    if seen.state == State::Tampered && changed.is_some_and(|at| old.read_at <= *at) {
        return true;
    }
    if let Some(view) = model.reset.plan.applying() {
        return view.plan.steps.iter().any(|it| it.agent == seen.agent);
    }
    // An observation may have read the memory before the end of the run, and the record after it, or
    // the other way round.
    let is_of_last_run = |run: &OwnRun| {
        let is_during_run = run.ended_at.is_some_and(|end| seen.read_at <= end);
        is_during_run && run.agents.contains(&seen.agent)
    };
    if model.log.own_runs.front().is_some_and(is_of_last_run) {
        return true;
    }
    seen.last_run.as_ref().is_some_and(|last| {
        let is_run_new = old.last_run.as_ref().is_none_or(|old| old.run != last.run);
        let may_be_during_run = is_run_new || old.state == State::Busy;
        may_be_during_run && model.log.find_own_run(&last.run).is_some()
    })
}

/// Returns the agent whose new trouble is announced: the worst, except that of the agent on the
/// screen.
pub fn announced_trouble(model: &Model) -> Option<&str> {
    let here = agent_on_screen(model);
    let worst = model.trouble.worst.as_deref()?;
    if Some(worst) == here {
        model.trouble.worst_but(here)
    } else {
        Some(worst)
    }
}

/// Returns the agent on the agent screen, if it is the current screen.
pub fn agent_on_screen(model: &Model) -> Option<&str> {
    (model.screen == Screen::Agent).then_some(model.agent.agent.as_str())
}

/// Returns the line about new trouble.
pub fn trouble_line(model: &Model) -> Option<TroubleLine> {
    let items = &model.trouble.items;
    let here = agent_on_screen(model).filter(|it| items.contains_key(*it));
    let announced = announced_trouble(model);
    let trouble = items.get(announced.or(here)?)?;
    let is_text_typed =
        model.input_line.is_some() || model.key_context() == KeyContext::EditorTyping;
    Some(TroubleLine {
        state: trouble.state,
        time: format_time(model.now.local_time, trouble.time),
        agent: announced.map(str::to_string),
        others: items.len() - 1 - usize::from(announced.is_some() && here.is_some()),
        key: (!is_text_typed).then(|| model.key_hint(Command::GoToTrouble)),
    })
}

/// Whether the agent screen shows the agent that the trouble key opened.
pub fn is_at_visited_trouble(model: &Model) -> bool {
    let visit = model.trouble.visit.as_ref();
    visit.is_some_and(|visit| agent_on_screen(model) == Some(&visit.agent))
}

/// Checks that the trouble key has somewhere to go.
pub fn check_trouble(model: &Model) -> Result<(), String> {
    if announced_trouble(model).is_some() || is_at_visited_trouble(model) {
        return Ok(());
    }
    let bad = State::ALL.into_iter().filter(|it| it.needs_attention());
    let bad: usize = bad.map(|state| model.rows.count(state)).sum();
    Err(if bad > 0 && model.screen != Screen::Fleet {
        let agents = format_count(bad as u64, "agent");
        let key = model.key_hint(Command::GoFleet);
        format!("no new trouble; {key} lists {agents} in need of attention")
    } else {
        "no new trouble: no agent has become worse since you last looked".to_string()
    })
}
