//! The agents of the fleet, found by name, with the numbers that screens show of all of them. Each
//! change keeps these up to date, so that neither a key nor a frame walks the fleet.

use std::collections::{BTreeMap, HashMap};
use std::ops::Deref;
use std::path::PathBuf;

use chrono::{DateTime, FixedOffset};
use unicode_width::UnicodeWidthStr;

use crate::console::agent_row::AgentRow;
use crate::engine::{LastRun, Observation, Operation, Outcome, State};

/// How often each value occurs.
#[derive(Clone, Debug)]
struct Tally<T>(BTreeMap<T, usize>);

/// Numbers of agents of one host, or of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostRows {
    /// All agents.
    pub agents: usize,
    /// Those whose observation says that the host is lost.
    pub lost: usize,
}

/// The agents in the order of the config.
#[derive(Clone, Debug, Default)]
pub struct AgentRows {
    rows: Vec<AgentRow>,
    /// Index of each agent.
    places: HashMap<String, usize>,
    numbers: RowNumbers,
}

/// What the rows add up to.
#[derive(Clone, Debug, Default)]
struct RowNumbers {
    states: Tally<State>,
    /// Number of agents without a current observation.
    unread: usize,
    /// Times of the saved observations.
    saved_times: Tally<DateTime<FixedOffset>>,
    /// Widths of the names, with the marks of protected agents.
    name_widths: Tally<usize>,
    host_widths: Tally<usize>,
    /// How the last runs ended.
    run_signs: Tally<RunSign>,
    /// Number of agents that were seen on a host.
    remote: usize,
    /// By the login of the host; none is this machine.
    hosts: BTreeMap<Option<String>, HostRows>,
}

impl<T> Default for Tally<T> {
    fn default() -> Tally<T> {
        Tally(BTreeMap::new())
    }
}

impl<T: Ord> Tally<T> {
    fn add(&mut self, value: T) {
        *self.0.entry(value).or_default() += 1;
    }

    fn remove(&mut self, value: &T) {
        if let Some(count) = self.0.get_mut(value) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(value);
            }
        }
    }

    fn max(&self) -> Option<&T> {
        self.0.last_key_value().map(|(value, _)| value)
    }
}

impl Deref for AgentRows {
    type Target = [AgentRow];

    fn deref(&self) -> &[AgentRow] {
        &self.rows
    }
}

impl FromIterator<AgentRow> for AgentRows {
    fn from_iter<I: IntoIterator<Item = AgentRow>>(rows: I) -> AgentRows {
        let rows = rows.into_iter();
        let mut all = AgentRows {
            rows: Vec::with_capacity(rows.size_hint().0),
            ..AgentRows::default()
        };
        for row in rows {
            all.places.insert(row.name.clone(), all.rows.len());
            all.numbers.count_in(&row);
            all.rows.push(row);
        }
        all
    }
}

impl AgentRows {
    /// Returns the index of an agent.
    pub fn place(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }

    /// Returns the row of an agent.
    pub fn find(&self, name: &str) -> Option<&AgentRow> {
        self.rows.get(self.place(name)?)
    }

    /// Changes the row at an index; it keeps its name.
    pub fn change(&mut self, place: usize, change: impl FnOnce(&mut AgentRow)) {
        let Some(row) = self.rows.get_mut(place) else {
            return;
        };
        self.numbers.count_out(row);
        change(row);
        self.numbers.count_in(row);
    }

    /// Notes that an agent's memory was found as its current observation says, which changes no
    /// number.
    pub fn confirm(&mut self, place: usize, at: DateTime<FixedOffset>) {
        let row = self.rows.get_mut(place);
        if let Some(seen) = row.and_then(|row| row.observation.as_mut()) {
            seen.read_at = at;
        }
    }

    /// Returns the rows, to be arranged in another way.
    pub fn into_rows(self) -> Vec<AgentRow> {
        self.rows
    }

    /// Returns the number of agents in a state.
    pub fn count(&self, state: State) -> usize {
        self.numbers
            .states
            .0
            .get(&state)
            .copied()
            .unwrap_or_default()
    }

    /// Returns the number of agents that have not been read.
    pub fn unread(&self) -> usize {
        self.numbers.unread
    }

    /// Returns the time of the newest saved observation.
    pub fn saved_time(&self) -> Option<DateTime<FixedOffset>> {
        self.numbers.saved_times.max().copied()
    }

    /// Returns the largest width of a name with the mark of its protection.
    pub fn name_width(&self) -> Option<usize> {
        self.numbers.name_widths.max().copied()
    }

    /// Returns the largest width of a host's name, as agents were seen on it.
    pub fn host_width(&self) -> Option<usize> {
        self.numbers.host_widths.max().copied()
    }

    /// Returns how the last runs ended, each sign once.
    pub fn run_signs(&self) -> impl Iterator<Item = RunSign> {
        self.numbers.run_signs.0.keys().copied()
    }

    /// Returns whether the config puts an agent on another host, or one was seen there.
    pub fn has_remote_agents(&self) -> bool {
        self.numbers.remote > 0 || self.numbers.hosts.keys().any(Option::is_some)
    }

    /// Returns the numbers of agents of each host, by its login; none is this machine.
    pub fn hosts(&self) -> impl Iterator<Item = (Option<&str>, HostRows)> {
        let hosts = self.numbers.hosts.iter();
        hosts.map(|(login, rows)| (login.as_deref(), *rows))
    }

    /// Returns the number of agents per state, worst first, without empty states.
    pub fn state_counts(&self) -> Vec<(State, usize)> {
        State::ALL
            .into_iter()
            .map(|state| (state, self.count(state)))
            .filter(|(_, n)| *n > 0)
            .collect()
    }

    /// Returns the directory of the memory with a layout of an agent; an empty path if it has none.
    pub fn layout_directory(&self, agent: &str) -> PathBuf {
        let layout = self.find(agent).and_then(|row| row.layout.as_ref());
        layout.map_or_else(PathBuf::new, |layout| layout.directory.clone())
    }
}

impl RowNumbers {
    fn count_in(&mut self, row: &AgentRow) {
        self.states.add(row.state());
        self.unread += usize::from(row.observation.is_none());
        self.name_widths.add(name_width(row));
        if let Some(saved) = &row.saved_observation {
            self.saved_times.add(saved.read_at);
        }
        if let Some(seen) = row.latest_observation() {
            self.host_widths.add(seen.host.width());
            self.remote += usize::from(is_remote(seen));
            if let Some(last) = &seen.last_run {
                self.run_signs.add(RunSign::new(last));
            }
        }
        let host = self.hosts.entry(row.address.login.clone()).or_default();
        host.agents += 1;
        host.lost += usize::from(row.is_host_lost());
    }

    fn count_out(&mut self, row: &AgentRow) {
        self.states.remove(&row.state());
        self.unread -= usize::from(row.observation.is_none());
        self.name_widths.remove(&name_width(row));
        if let Some(saved) = &row.saved_observation {
            self.saved_times.remove(&saved.read_at);
        }
        if let Some(seen) = row.latest_observation() {
            self.host_widths.remove(&seen.host.width());
            self.remote -= usize::from(is_remote(seen));
            if let Some(last) = &seen.last_run {
                self.run_signs.remove(&RunSign::new(last));
            }
        }
        if let Some(host) = self.hosts.get_mut(&row.address.login) {
            host.agents -= 1;
            host.lost -= usize::from(row.is_host_lost());
            if host.agents == 0 {
                self.hosts.remove(&row.address.login);
            }
        }
    }
}

/// How a last run ended, in at most four cells, so that its column leaves room to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunSign {
    /// Done.
    Ok,
    /// The memory was unchanged.
    Unchanged,
    /// A run was undone.
    Undone,
    /// An undo was undone.
    Redone,
    /// It failed.
    Failed,
    /// It was refused.
    Refused,
    /// It was stopped before.
    NotStarted,
}

impl RunSign {
    /// Returns the sign of a last run.
    pub fn new(last: &LastRun) -> RunSign {
        match (last.outcome, last.operation) {
            (Outcome::Ok, Operation::Undo) if last.is_redo => RunSign::Redone,
            (Outcome::Ok, Operation::Undo) => RunSign::Undone,
            (Outcome::Ok, _) => RunSign::Ok,
            (Outcome::Unchanged, _) => RunSign::Unchanged,
            (Outcome::Failed, _) => RunSign::Failed,
            (Outcome::Refused, _) => RunSign::Refused,
            (Outcome::NotStarted, _) => RunSign::NotStarted,
        }
    }

    /// Returns it as the column shows it.
    pub fn as_str(self) -> &'static str {
        match self {
            RunSign::Ok => "ok",
            RunSign::Unchanged => "=",
            RunSign::Undone => "undo",
            RunSign::Redone => "redo",
            RunSign::Failed => "FAIL",
            RunSign::Refused => "REF",
            RunSign::NotStarted => "STOP",
        }
    }

    /// Returns its meaning in one line.
    pub fn description(self) -> &'static str {
        match self {
            RunSign::Ok => "done, and read back",
            RunSign::Unchanged => "unchanged: the memory was equal to its baseline",
            RunSign::Undone => "undone: the memory is as before the run",
            RunSign::Redone => "redone: the undo was taken back",
            RunSign::Failed => "FAILED: tried, and failed",
            RunSign::Refused => "REFUSED: not tried, for a reason that the log has",
            RunSign::NotStarted => "not started: the run was stopped before its turn",
        }
    }
}

fn name_width(row: &AgentRow) -> usize {
    row.name.width() + row.protection_mark().width()
}

fn is_remote(seen: &Observation) -> bool {
    seen.host != "local"
}
