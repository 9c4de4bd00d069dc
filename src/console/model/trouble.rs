//! New trouble: agents whose state became worse in this session, and that the operator has not looked
//! at since. Every screen shows the worst of them.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, FixedOffset};

use super::{AgentView, Model};
use crate::console::age::format_time;
use crate::console::command::{Command, KeyContext};
use crate::console::screen::Screen;
use crate::engine::{Observation, State};

/// How long the bell stays silent for an agent that it rang for.
const BELL_PAUSE: Duration = Duration::from_secs(10 * 60);

/// New trouble of the fleet.
#[derive(Clone, Debug, Default)]
pub struct TroubleWatch {
    /// By agent: trouble of an agent that is repeated stays one item.
    items: BTreeMap<String, Trouble>,
    /// The agent of the item that is shown: the worst, and the newest of several.
    shown: Option<String>,
    /// The agent that the trouble key opened last.
    pub visited: Option<String>,
    /// Where it was pressed.
    pub origin: Option<TroubleOrigin>,
    /// When the bell last rang for an agent.
    last_bells: BTreeMap<String, Duration>,
}

/// Trouble of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Trouble {
    state: State,
    /// The state before.
    before: State,
    time: DateTime<FixedOffset>,
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
        self.choose_shown();
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
        self.choose_shown();
    }

    /// Forgets an agent: it is well again, or the operator has looked at it. Returns whether there was
    /// trouble of it.
    pub fn remove(&mut self, agent: &str) -> bool {
        let is_known = self.items.remove(agent).is_some();
        if is_known {
            self.choose_shown();
        }
        is_known
    }

    /// Forgets the agents for which `is_kept` does not hold.
    pub fn retain(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.items.retain(|agent, _| is_kept(agent));
        self.last_bells.retain(|agent, _| is_kept(agent));
        self.choose_shown();
    }

    fn choose_shown(&mut self) {
        let items = self.items.iter();
        let worst = items.min_by_key(|(_, it)| (it.state, std::cmp::Reverse(it.time)));
        self.shown = worst.map(|(agent, _)| agent.clone());
    }

    /// Returns the agent whose trouble is shown.
    pub fn shown(&self) -> Option<&str> {
        self.shown.as_deref()
    }
}

/// How many agents with new trouble a list does not show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HiddenTrouble {
    /// Above its first row.
    pub above: usize,
    /// Below its last row.
    pub below: usize,
}

impl Model {
    /// Notes what an observation says that its agent's row did not say yet. Returns whether the bell is
    /// due.
    pub fn track_trouble(&mut self, seen: &Observation) -> bool {
        if seen.state > State::Missing {
            // A run in progress says nothing of what is wrong.
            if seen.state != State::Busy {
                self.trouble.remove(&seen.agent);
            }
            return false;
        }
        let row = self.find_row(&seen.agent);
        let before = row.map_or(State::Loading, |row| row.read_state());
        if !self.is_new_trouble(seen) {
            self.trouble.improve(&seen.agent, seen.state);
            return false;
        }
        let trouble = Trouble {
            state: seen.state,
            before,
            time: self.now.local_time,
        };
        let (agent, now) = (&seen.agent, self.now.elapsed);
        let is_bell_due = self.trouble.add(agent, trouble, now);
        // The log has one message about a host, for all of its agents.
        let is_of_host = matches!(seen.state, State::HostKey | State::Unreach | State::Error)
            && self.hosts.status_of_agent(agent).is_some();
        if !is_of_host {
            let text = format!("{agent} {}", seen.state);
            self.log.add_repeated(&text, self.now.local_time);
        }
        is_bell_due && self.preferences.has_bell
    }

    /// Whether the agent became worse since the row was read, and not by a run of this console.
    fn is_new_trouble(&self, seen: &Observation) -> bool {
        let row = self.find_row(&seen.agent);
        let Some((row, old)) = row.and_then(|row| Some((row, row.observation.as_deref()?))) else {
            return false;
        };
        let readable = row.last_readable_observation();
        let is_known = readable.is_some_and(|it| it.state == seen.state);
        let last_run = seen.last_run.as_ref();
        let is_own_act = last_run.is_some_and(|last| {
            let is_run_new = old.last_run.as_ref().is_none_or(|old| old.run != last.run);
            is_run_new && self.log.find_own_run(&last.run).is_some()
        });
        let is_worse = seen.state < old.state;
        is_worse && !is_known && !is_own_act
    }

    /// Returns the line about new trouble in its forms, the longest first, and the state that it is
    /// about.
    pub fn trouble_forms(&self) -> Option<(Vec<String>, State)> {
        let agent = self.trouble.shown()?;
        let trouble = self.trouble.items.get(agent)?;
        let state = trouble.state;
        let count = self.trouble.items.len();
        let more = match count - 1 {
            0 => String::new(),
            more => format!(", {more} more"),
        };
        let time = format_time(self.now.local_time, trouble.time);
        let key = self.key_hint(Command::GoToTrouble);
        let whole = format!("! {time} {agent} {state}{more}");
        // There the key is a letter.
        let types_text =
            self.input_line.is_some() || self.key_context() == KeyContext::EditorTyping;
        let with_key = (!types_text).then(|| format!("{whole}  {key} goes there"));
        let shorter = [
            whole,
            format!("! {agent} {state}"),
            format!("! {count} new"),
        ];
        Some((with_key.into_iter().chain(shorter).collect(), state))
    }

    /// Returns how many agents with new trouble are above and below the visible rows of the fleet.
    pub fn hidden_trouble(&self) -> HiddenTrouble {
        let height = self.fleet_height();
        let mut hidden = HiddenTrouble::default();
        let agents = self.trouble.items.keys();
        for index in agents.filter_map(|agent| self.visible_index(agent)) {
            if index < self.fleet.top {
                hidden.above += 1;
            } else if index >= self.fleet.top + height {
                hidden.below += 1;
            }
        }
        hidden
    }

    /// Whether the agent screen shows the agent that the trouble key opened.
    pub fn is_at_visited_trouble(&self) -> bool {
        let is_agent_screen = self.screen == Screen::Agent;
        is_agent_screen
            && self.trouble.origin.is_some()
            && self.trouble.visited.as_deref() == Some(&self.agent.agent)
    }

    /// Returns why the trouble key has nowhere to go, if so.
    pub fn trouble_refusal(&self) -> Option<String> {
        let has_target = self.trouble.shown.is_some() || self.trouble.visited.is_some();
        (!has_target).then(|| "no agent became worse since it was looked at".to_string())
    }
}
