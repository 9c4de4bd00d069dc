//! Reads in spite of unchanged stamps. A program that maps a file, or sets its times, changes it
//! without giving it another stamp, and no agent may hide for good what it wrote.

use std::time::{Duration, Instant};

use crate::config::Agent;

/// Interval in which each memory is read once whatever its stamp.
const REREAD_INTERVAL: Duration = Duration::from_secs(1800);

/// The agents in turn, spread over the interval.
pub(super) struct Rereads {
    /// Index of the next agent.
    next: usize,
    /// When the agents before it were due.
    since: Instant,
}

impl Rereads {
    pub(super) fn new(now: Instant) -> Rereads {
        Rereads {
            next: 0,
            since: now,
        }
    }

    /// Returns the agents that are due since the last call.
    pub(super) fn take_due(&mut self, agents: &[Agent], now: Instant) -> Vec<String> {
        let Ok(count) = u32::try_from(agents.len()) else {
            return Vec::new();
        };
        let elapsed = now.saturating_duration_since(self.since);
        let each = REREAD_INTERVAL / count.max(1);
        let due = elapsed.as_nanos() / each.as_nanos().max(1);
        let due = u32::try_from(due).map_or(count, |due| due.min(count));
        // After a long pause, each agent is due once.
        self.since = if due == count {
            now
        } else {
            self.since + each * due
        };
        let indexes = (0..due as usize).map(|number| (self.next + number) % agents.len());
        let names = indexes.map(|index| agents[index].name.clone()).collect();
        self.next = (self.next + due as usize) % agents.len().max(1);
        names
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{self, ConfigEnvironment};

    fn agents(names: &[&str]) -> Vec<Agent> {
        let sections = names.iter().map(|name| {
            format!("[{name}]\nmemory_file = /{name}/MEMORY.md\nbaseline = {name}.md\n")
        });
        let text = sections.collect::<String>();
        let env = ConfigEnvironment::bare("/");
        config::parse(text.as_bytes(), Path::new("/conf"), &env)
            .unwrap()
            .agents
    }

    #[test]
    fn each_agent_is_due_once_in_the_interval() {
        let agents = agents(&["a", "b", "c"]);
        let begin = Instant::now();
        let mut rereads = Rereads::new(begin);
        let mut due =
            |minutes: u64| rereads.take_due(&agents, begin + Duration::from_secs(60 * minutes));
        assert_eq!(due(9), [""; 0]);
        assert_eq!(due(11), ["a"]);
        assert_eq!(due(19), [""; 0]);
        assert_eq!(due(31), ["b", "c"]);
        assert_eq!(due(41), ["a"]);
        // After a long pause.
        assert_eq!(due(500), ["b", "c", "a"]);
        assert_eq!(due(501), [""; 0]);
        assert_eq!(Rereads::new(begin).take_due(&[], begin), [""; 0]);
    }
}
