//! A fleet that is watched: what changes is reported.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, unbounded};
use memory_shepherd::clock::System;
use memory_shepherd::engine::{Fleet, FleetEvent, Observation, State};

use super::world::World;

const LIMIT: Duration = Duration::from_secs(20);

/// The next observation of an agent in this state.
fn wait_for(events: &Receiver<FleetEvent>, agent: &str, state: State) -> Observation {
    loop {
        let event = events.recv_timeout(LIMIT).expect("it is reported in time");
        let FleetEvent::Observed(seen) = event else {
            continue;
        };
        let found = seen
            .into_iter()
            .find(|seen| seen.agent == agent && seen.state == state);
        if let Some(found) = found {
            return found;
        }
    }
}

#[test]
fn every_agent_is_read_once_and_then_when_it_changes() {
    let world = World::new(&["a", "b"]);
    world.write_scratch("a", "");
    world.write_scratch("b", "- note\n");
    let engine = Arc::new(world.engine_of(Arc::new(System), world.local()));
    let (sender, events) = unbounded();
    let fleet = Fleet::start(Arc::clone(&engine), sender);
    assert!(fleet.wait_idle(LIMIT));
    let mut seen: Vec<Observation> = events
        .try_iter()
        .flat_map(|event| match event {
            FleetEvent::Observed(seen) => seen,
            other => panic!("{other:?}"),
        })
        .collect();
    seen.sort_by(|a, b| a.agent.cmp(&b.agent));
    let states: Vec<State> = seen.iter().map(|seen| seen.state).collect();
    assert_eq!(states, [State::Clean, State::Scratch]);
    // The agent writes.
    world.write_scratch("a", "- note\n");
    let changed = wait_for(&events, "a", State::Scratch);
    assert!(changed.generation > seen[0].generation);
    // A reset is seen, too.
    world.reset_by(&engine);
    wait_for(&events, "b", State::Clean);
    // And an operator's edit of the baseline.
    world.set_baseline("b", "# Other rules\n\n---\n");
    wait_for(&events, "b", State::Scratch);
    drop(fleet);
    // The watch ends: nobody sends any more.
    while events.recv_timeout(LIMIT).is_ok() {}
    let end = events.try_recv().unwrap_err();
    assert_eq!(end, crossbeam_channel::TryRecvError::Disconnected);
}
