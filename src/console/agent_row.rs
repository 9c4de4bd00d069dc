//! One agent of the fleet, with what was observed of it.

use std::ffi::OsString;
use std::path::Path;

use crate::config::{Agent, AgentLayout};
use crate::engine::{MemoryAddress, Observation, Protection, State};

/// One agent of the fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentRow {
    /// Its name.
    pub name: String,
    /// Location of its memory.
    pub address: MemoryAddress,
    /// Its host, as ssh takes the name; `None` for this machine.
    pub host_name: Option<String>,
    /// File name of its baseline; none for an agent that is never reset.
    pub baseline: Option<String>,
    /// Its memory with a layout; none without one.
    pub layout: Option<AgentLayout>,
    /// Current observation; `None` until it is read.
    pub observation: Option<Box<Observation>>,
    /// Observation by the previous config of this session, until the agent is read by the current one.
    pub observation_before_reload: Option<Box<Observation>>,
    /// Last observation with a readable memory, unless the current one has one.
    pub last_readable: Option<Box<Observation>>,
    /// Observation saved by the previous session, until the memory is read.
    pub saved_observation: Option<Box<Observation>>,
}

impl AgentRow {
    /// Creates the row of an agent that is not read yet.
    pub fn unread(agent: &Agent) -> AgentRow {
        AgentRow {
            name: agent.name.clone(),
            address: MemoryAddress::of_agent(agent),
            host_name: agent.host().map(|host| host.name.clone()),
            baseline: agent.baseline().map(str::to_string),
            layout: agent.layout.clone(),
            observation: None,
            observation_before_reload: None,
            last_readable: None,
            saved_observation: None,
        }
    }

    /// Returns the location of its memory, in the syntax of `scp`.
    pub fn memory_location(&self) -> String {
        match &self.host_name {
            Some(host) => format!("{host}:{}", self.address.memory),
            None => self.address.memory.clone(),
        }
    }

    /// Returns the location of a file of its memory with a layout, in the syntax of `scp`; of the directory
    /// for an empty path.
    pub fn layout_location(&self, path: &Path) -> Option<OsString> {
        let directory = &self.layout.as_ref()?.directory;
        let host = self.host_name.as_ref().map(|host| format!("{host}:"));
        let mut location = OsString::from(host.unwrap_or_default());
        if path.as_os_str().is_empty() {
            // Without a slash at the end.
            location.push(directory);
        } else {
            location.push(directory.join(path));
        }
        Some(location)
    }

    /// Whether it only has a memory with a layout, which no baseline replaces.
    pub fn is_never_reset(&self) -> bool {
        self.baseline.is_none() && self.layout.is_some()
    }

    /// Returns the observation for the next session: the latest one with a readable memory, if there
    /// is one.
    pub fn observation_to_save(&self) -> Option<&Observation> {
        let readable = self.last_readable_observation();
        readable.or(self.observation.as_deref())
    }

    /// Stores a new observation.
    pub fn observe(&mut self, seen: Observation) {
        let is_readable = seen.is_content_known();
        self.observation_before_reload = None;
        let before = self.observation.replace(Box::new(seen));
        if is_readable {
            self.last_readable = None;
            self.saved_observation = None;
        } else if let Some(before) = before.filter(|before| before.is_content_known()) {
            self.last_readable = Some(before);
        }
    }

    /// Stores the observation saved by the previous session, unless the memory was read since.
    pub fn remember(&mut self, saved: Box<Observation>) {
        let current = self.observation.as_ref();
        if !current.is_some_and(|current| current.is_content_known()) {
            self.saved_observation = Some(saved);
        }
    }

    /// Whether an observation is of an address that the config has changed since.
    pub fn has_moved(&self, address: Option<&MemoryAddress>) -> bool {
        address.is_some_and(|address| *address != self.address)
    }

    /// Returns its state: until it is read, the one that was saved, and LOADING without one.
    pub fn state(&self) -> State {
        self.latest_observation()
            .map_or(State::Loading, |seen| seen.state)
    }

    /// Returns its state as it was read in this session; LOADING until then.
    pub fn read_state(&self) -> State {
        self.observation
            .as_ref()
            .map_or(State::Loading, |seen| seen.state)
    }

    /// Returns its last observation of this session.
    pub fn session_observation(&self) -> Option<&Observation> {
        let current = self.observation.as_deref();
        current.or(self.observation_before_reload.as_deref())
    }

    /// Returns how the agent is protected, as far as it was read.
    pub fn protection(&self) -> Protection {
        self.latest_observation()
            .map_or(Protection::None, |seen| seen.protection)
    }

    /// Returns the mark behind the name of a protected agent, with a blank before it.
    pub fn protection_mark(&self) -> String {
        match self.protection().glyph() {
            "" => String::new(),
            glyph => format!(" {glyph}"),
        }
    }

    /// Returns whether the current observation says that its host is lost.
    pub fn is_host_lost(&self) -> bool {
        matches!(self.read_state(), State::Unreach | State::HostKey)
    }

    /// Returns the current observation, else the saved one.
    pub fn latest_observation(&self) -> Option<&Observation> {
        let current = self.observation.as_deref();
        current.or(self.saved_observation.as_deref())
    }

    /// Returns the latest observation whose content is known.
    pub fn last_readable_observation(&self) -> Option<&Observation> {
        let current = self
            .observation
            .as_deref()
            .filter(|seen| seen.is_content_known());
        let remembered = self
            .saved_observation
            .as_deref()
            .filter(|seen| seen.is_content_known());
        current.or(self.last_readable.as_deref()).or(remembered)
    }
}

/// Returns the number of scratch lines, if the memory was read and its boundary is known:
/// without a readable baseline it may be unknown.
pub fn known_scratch_lines(observation: &Observation) -> Option<u64> {
    let content = observation.content.as_ref()?;
    observation
        .is_scratch_known()
        .then_some(content.scratch_lines)
}
