//! Tests of the watch loop's own parts; `tests/suite/fleet.rs` tests a whole watch.

use std::cell::Cell;

use notify::event::Flag;

use super::*;
use crate::base::clock::SystemClock;
use crate::config::{Config, GeneralSettings};
use crate::engine::{Engine, EngineSetup, Trigger};
use crate::transport::SingleTransport;
use crate::transport::local::LocalTransport;

#[test]
fn changes_that_the_kernel_dropped_are_reported() {
    let (messages, inbox) = unbounded();
    let dropped = notify::Event::new(EventKind::Other).set_flag(Flag::Rescan);
    forward_changes(dropped, &messages, &ChangeBacklog::default());
    let received: Vec<FleetMessage> = inbox.try_iter().collect();
    assert!(matches!(received[..], [FleetMessage::ChangesLost]));
}

#[test]
fn lost_changes_report_more_than_agents() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().canonicalize().unwrap();
    let general = GeneralSettings::new(root.join("baselines"), root.join("archives"));
    let agent = Agent::new(&general, "scout", root.join("MEMORY.md"), "scout.md");
    let clock = Arc::new(SystemClock);
    let local = Arc::new(LocalTransport::new(clock.clone()));
    let engine = Engine::new(EngineSetup {
        config: Config::new(general, vec![agent]).unwrap(),
        transports: Arc::new(SingleTransport(local)),
        clock,
        user: "tester".to_string(),
        trigger: Trigger::Cli,
        archive_group: None,
        layouts: Default::default(),
    });
    let (events, reported) = unbounded();
    let fleet = FleetWatcher::start(Arc::clone(engine.watch()), events).unwrap();
    assert!(fleet.wait_idle(Duration::from_secs(60)));
    assert!(reported.try_iter().count() > 0);
    fleet.messages.send(FleetMessage::ChangesLost).unwrap();
    let mut missing = vec!["ledger", "pauses", "states"];
    while !missing.is_empty() {
        let event = reported.recv_timeout(Duration::from_secs(60)).unwrap();
        let name = match event {
            FleetEvent::LedgerChanged => "ledger",
            FleetEvent::PausesChanged => "pauses",
            FleetEvent::StatesRecorded => "states",
            _ => continue,
        };
        missing.retain(|it| *it != name);
    }
}

#[test]
fn refused_worker_leaves_the_started_ones() {
    let (events, reported) = unbounded();
    let spare_threads = Cell::new(0);
    let start = || match spare_threads.get() {
        0 => Err(io::ErrorKind::WouldBlock.into()),
        count => {
            spare_threads.set(count - 1);
            Ok(())
        }
    };
    assert_eq!(start_workers(8, &events, start), 0);
    assert!(
        matches!(reported.try_recv(), Ok(FleetEvent::Notice(text)) if text.contains("cannot start a thread: "))
    );
    for spare in [2, 8] {
        spare_threads.set(spare);
        assert_eq!(start_workers(8, &events, start), spare);
        assert!(reported.is_empty());
    }
}
