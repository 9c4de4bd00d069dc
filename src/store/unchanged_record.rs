//! The record of a run's unchanged agents: one names all of them. Readers that want the record of
//! one agent get a view of it, as if the agent had a record of its own.
//!
//! A run with a single unchanged agent writes a record of that agent, as all versions do. The
//! record of several has no agent: versions that do not know the list take it for a record about
//! the archive, and show an earlier run as the agents' last one.

use std::collections::HashMap;
use std::mem;

use super::record::{LedgerRecord, RunEvent};
use super::unchanged_agents::{UnchangedAgents, UnchangedDetails};

/// Maximum size in bytes of the list in one record, as JSON. It is far below that of a record, so
/// that a record of a large fleet does not fill a segment of the ledger by itself.
const MAX_LIST_BYTES: usize = 256 * 1024;

/// Bytes that a name takes in the list beside itself: quotes, a comma, an escaped character.
const NAME_OVERHEAD_BYTES: usize = 8;

impl RunEvent {
    /// Returns the agents that it is about: one, or all that a run found unchanged. None for an act
    /// on the archive or on baselines.
    pub fn agents(&self) -> impl Iterator<Item = &str> {
        let own = (self.unchanged.is_none() && !self.agent.is_empty()).then_some(&*self.agent);
        let listed = self.unchanged.iter().flat_map(|it| it.agents.values());
        own.into_iter().chain(listed.flatten().map(String::as_str))
    }

    /// Returns the event as a record of one of its agents would have it; `None` if it is not about
    /// that agent.
    pub fn view_of_agent(&self, agent: &str) -> Option<RunEvent> {
        let Some(unchanged) = &self.unchanged else {
            return (self.agent == agent).then(|| self.clone());
        };
        let mut hosts = unchanged.agents.iter();
        let (host, _) = hosts.find(|(_, names)| names.iter().any(|name| name == agent))?;
        Some(self.view(unchanged, host, agent))
    }

    /// Returns the events of its agents as records of their own would have them; one about no agent
    /// as it is.
    pub fn into_views(mut self) -> Vec<RunEvent> {
        let Some(unchanged) = self.unchanged.take() else {
            return vec![self];
        };
        let mut views = Vec::new();
        for (host, names) in &unchanged.agents {
            views.extend(names.iter().map(|name| self.view(&unchanged, host, name)));
        }
        views
    }

    fn view(&self, unchanged: &UnchangedAgents, host: &str, agent: &str) -> RunEvent {
        let details = unchanged.details.get(agent).cloned().unwrap_or_default();
        RunEvent {
            host: host.to_string(),
            login: details.login,
            memory: details.memory,
            outcome: self.outcome,
            note: Some(details.note.unwrap_or_else(|| unchanged.note.clone())),
            baseline: details.baseline,
            duration_ms: self.duration_ms,
            ..RunEvent::new(&self.run, self.operation, self.trigger, &self.user, agent)
        }
    }
}

impl LedgerRecord {
    /// Returns the record as a record of one of its agents would be; `None` if it is not about that
    /// agent.
    pub fn view_of_agent(&self, agent: &str) -> Option<LedgerRecord> {
        Some(self.with_event(self.event.view_of_agent(agent)?))
    }

    /// Returns the records that its agents would have each for itself; one about no agent as it is.
    pub fn views(&self) -> impl Iterator<Item = LedgerRecord> {
        let views = self.event.clone().into_views().into_iter();
        views.map(|event| self.with_event(event))
    }

    fn with_event(&self, event: RunEvent) -> LedgerRecord {
        LedgerRecord {
            seq: self.seq,
            previous_digest: self.previous_digest,
            time: self.time,
            boot: self.boot.clone(),
            event,
        }
    }
}

/// Merges the events of agents that a run found unchanged into as few as the size of a record
/// allows. `has_known_address` tells whether the last record of an agent has the address of its
/// memory.
pub(crate) fn merge_unchanged(
    events: Vec<RunEvent>,
    has_known_address: impl Fn(&RunEvent) -> bool,
) -> Vec<RunEvent> {
    if events.len() < 2 {
        return events;
    }
    let note = most_frequent_note(&events);
    let mut merged = Vec::new();
    let mut open: Option<RunEvent> = None;
    let mut list = UnchangedAgents::default();
    let mut length = 0;
    for event in events {
        let is_known = has_known_address(&event);
        let details = UnchangedDetails {
            note: event.note.clone().filter(|it| *it != note),
            login: event.login.clone().filter(|_| !is_known),
            memory: event.memory.clone().filter(|_| !is_known),
            baseline: event.baseline,
        };
        let has_details = details != UnchangedDetails::default();
        let own_length = NAME_OVERHEAD_BYTES
            + event.agent.len()
            + if has_details {
                details.estimated_bytes()
            } else {
                0
            };
        if length + own_length > MAX_LIST_BYTES {
            merged.extend(open.take().map(|it| with_list(it, mem::take(&mut list))));
            length = 0;
        }
        length += own_length;
        list.note.clone_from(&note);
        if has_details {
            list.details.insert(event.agent.clone(), details);
        }
        let names = list.agents.entry(event.host.clone()).or_default();
        names.push(event.agent.clone());
        open.get_or_insert(event);
    }
    merged.extend(open.map(|it| with_list(it, list)));
    merged
}

/// Returns the event of several agents, from that of the first one.
fn with_list(first: RunEvent, list: UnchangedAgents) -> RunEvent {
    RunEvent {
        agent: String::new(),
        host: String::new(),
        login: None,
        memory: None,
        // Versions that do not know the list would take a note for the run's problem.
        note: None,
        baseline: None,
        unchanged: Some(Box::new(list)),
        ..first
    }
}

fn most_frequent_note(events: &[RunEvent]) -> String {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for note in events.iter().filter_map(|event| event.note.as_deref()) {
        *counts.entry(note).or_default() += 1;
    }
    let most = counts
        .into_iter()
        .max_by_key(|(note, count)| (*count, *note));
    most.map_or(String::new(), |(note, _)| note.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::digest::Digest;
    use crate::store::record::{Operation, Outcome};
    use crate::store::trigger::Trigger;

    fn unchanged_event(agent: &str, note: &str) -> RunEvent {
        RunEvent {
            outcome: Outcome::Unchanged,
            note: Some(note.to_string()),
            memory: Some(format!("/srv/{agent}/MEMORY.md").into()),
            ..RunEvent::new("5a10c3d2", Operation::Reset, Trigger::Timer, "ops", agent)
        }
    }

    #[test]
    fn merged_events_have_the_same_views() {
        let mut events = vec![
            unchanged_event("ada", "equal"),
            unchanged_event("ben", "other"),
            unchanged_event("cyd", "equal"),
        ];
        events[1].host = "box".to_string();
        events[1].login = Some("ops@box".to_string());
        events[2].baseline = Some(Digest::of(b"x"));
        let merged = merge_unchanged(events.clone(), |_| false);
        let [one] = merged.as_slice() else {
            panic!("{merged:?}")
        };
        assert!(one.agent.is_empty() && one.note.is_none());
        for event in &events {
            assert_eq!(one.view_of_agent(&event.agent).as_ref(), Some(event));
        }
        assert_eq!(one.view_of_agent("dan"), None);
        let mut names: Vec<&str> = one.agents().collect();
        names.sort_unstable();
        assert_eq!(names, ["ada", "ben", "cyd"]);
        let views = one.clone().into_views();
        assert_eq!(views.len(), 3);
        assert!(views.iter().all(|view| events.contains(view)));
        let json = serde_json::to_string(one).unwrap();
        assert_eq!(serde_json::from_str::<RunEvent>(&json).unwrap(), *one);
    }

    #[test]
    fn known_facts_are_not_repeated() {
        let events = ["ada", "ben"].map(|agent| unchanged_event(agent, "equal"));
        let merged = merge_unchanged(events.to_vec(), |event| event.agent == "ada");
        let list = merged[0].unchanged.as_ref().unwrap();
        assert_eq!(list.details.keys().collect::<Vec<_>>(), ["ben"]);
        assert_eq!(merged[0].view_of_agent("ada").unwrap().memory, None);
    }

    #[test]
    fn single_event_stays_as_it_is() {
        let event = unchanged_event("ada", "equal");
        let merged = merge_unchanged(vec![event.clone()], |_| false);
        assert_eq!(merged, [event]);
        assert_eq!(merged[0].agents().collect::<Vec<_>>(), ["ada"]);
    }

    #[test]
    fn long_list_is_split_into_several_records() {
        let names = (0..10_000).map(|number| format!("{number:040}"));
        let events: Vec<RunEvent> = names.map(|it| unchanged_event(&it, "equal")).collect();
        for (is_known, records) in [(true, 2), (false, 7)] {
            let merged = merge_unchanged(events.clone(), |_| is_known);
            assert_eq!(merged.len(), records);
            for record in &merged {
                let length = serde_json::to_vec(record).unwrap().len();
                assert!(length < MAX_LIST_BYTES + 1000, "{length}");
            }
            let named = merged.iter().flat_map(RunEvent::agents);
            let expected = events.iter().map(|event| event.agent.as_str());
            assert!(named.eq(expected));
        }
    }
}
