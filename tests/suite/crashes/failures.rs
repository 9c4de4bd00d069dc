//! Failures other than crashes: of an operation, of the disk, of a host, of the archive.

use super::*;

/// Failures, other than crashes, at each operation: the memory is wholly old or wholly
/// new, and the result says which.
#[test]
fn failed_operation_is_reported_and_loses_nothing() {
    for name in ["look", "read", "stage", "swap", "settle"] {
        let world = World::new(&["scout"]);
        world.write_scratch("scout", "- note\n");
        let mut failed = false;
        let transport = InterposingTransport::new(world.disk(), move |moment| {
            if moment == TransportCall::Before(name) && !std::mem::replace(&mut failed, true) {
                let error = Error::new(ErrorKind::Host, "no space left on device");
                return Err(TransportError::new(FailureCause::Refused, error));
            }
            Ok(())
        });
        let ran = world.reset_with_engine(&world.engine_with_transport(transport));
        assert_eq!(ran.report.worst_kind(), Some(ErrorKind::Host), "{name}");
        assert!(
            ran.note().contains("no space left on device"),
            "{name}: {}",
            ran.note()
        );
        let done = ran.report.results[0].outcome == Outcome::Ok;
        assert_eq!(done, name == "settle");
        assert_eq!(
            done,
            world.read_memory("scout") == BASELINE.as_bytes(),
            "{name}"
        );
        world.reset();
        assert!(world.preserves("scout", b"- note\n"));
        assert_eq!(changing_operations(&world), [Operation::Reset], "{name}");
        assert_no_leftovers(&world);
    }
}

/// Fails each stage for which the space of another agent's displaced file is not free yet.
fn disk_with_space_for_one(world: &World) -> Arc<InterposingTransport> {
    let mut is_occupied = false;
    InterposingTransport::new(world.disk(), move |moment| {
        match moment {
            TransportCall::Before("stage") if is_occupied => {
                let error = Error::new(ErrorKind::Host, "no space left on device");
                let error = error.with_full_disk(true);
                return Err(TransportError::new(FailureCause::Refused, error));
            }
            TransportCall::After("stage") => is_occupied = true,
            TransportCall::After("settle") => is_occupied = false,
            _ => {}
        }
        Ok(())
    })
}

#[test]
fn full_disk_beside_other_agents_is_tried_again() {
    let agents = ["scout", "ranger", "writer"];
    let world = World::new(&agents);
    for agent in agents {
        world.write_scratch(agent, format!("- note of {agent}\n"));
    }
    let transport = disk_with_space_for_one(&world);
    let ran = world.reset_with_engine(&world.engine_with_transport(transport));
    assert_eq!(ran.report.worst_kind(), None, "{:?}", ran.lines);
    assert_eq!(ran.report.count(Outcome::Ok), 3);
    let is_retry = |line: &&String| line.contains("it is tried again alone");
    assert_eq!(
        ran.lines.iter().filter(is_retry).count(),
        2,
        "{:?}",
        ran.lines
    );
    for agent in agents {
        assert_eq!(world.read_memory(agent), BASELINE.as_bytes());
        // The second attempt has not archived it again.
        assert_eq!(world.entry_names(agent).len(), 1);
        assert!(world.preserves(agent, format!("- note of {agent}\n").as_bytes()));
        assert!(world.leftovers(agent).is_empty());
    }
    assert_eq!(changing_operations(&world), [Operation::Reset; 3]);
    assert_no_leftovers(&world);
}

/// Fails the first call at `moment`, after `act`.
fn fail_once_at(
    world: &World,
    moment: TransportCall,
    cause: FailureCause,
    mut act: impl FnMut() + Send + 'static,
) -> Engine {
    let mut has_failed = false;
    world.engine_with_transport(InterposingTransport::new(world.disk(), move |call| {
        if call == moment && !std::mem::replace(&mut has_failed, true) {
            act();
            let error = Error::new(ErrorKind::Host, "the step failed");
            return Err(TransportError::new(cause, error));
        }
        Ok(())
    }))
}

#[test]
fn turn_finished_by_own_recovery_is_ok() {
    for cause in [FailureCause::Refused, FailureCause::Unreachable] {
        let world = World::new(&["scout"]);
        world.write_scratch("scout", "- first note\n");
        world.reset().assert_ok();
        world.write_scratch("scout", "- second note\n");
        let second = world.read_memory("scout");
        world.reset().assert_ok();
        let engine = fail_once_at(&world, TransportCall::After("swap"), cause, || {});
        let ran = undo_scout(&world, &engine);
        ran.assert_ok();
        assert!(ran.note().contains("the step failed"), "{}", ran.note());
        assert!(ran.note().contains("finished since"), "{}", ran.note());
        assert!(ran.report.errors.is_empty(), "{:?}", ran.report.errors);
        assert_eq!(world.read_memory("scout"), second);
        assert_no_leftovers(&world);
        let records = world.read_records();
        let recorded = |record: &&LedgerRecord| record.event.run == ran.report.run;
        assert_eq!(records.iter().filter(recorded).count(), 1, "{records:?}");
        world.redo("scout").assert_ok();
        assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
    }
}

#[test]
fn finished_turn_with_other_memory_is_partial() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let memory = world.memory_path("scout");
    let moment = TransportCall::After("swap");
    let engine = fail_once_at(&world, moment, FailureCause::Unreachable, move || {
        fs::write(&memory, "re-seeded").unwrap();
    });
    let ran = world.reset_with_engine(&engine);
    let result = ran.assert_outcome(Outcome::Ok);
    assert_eq!(result.kind, Some(ErrorKind::Partial));
    assert!(ran.note().contains("has changed the memory since"));
    assert_eq!(world.read_memory("scout"), b"re-seeded");
    assert_eq!(changing_operations(&world), [Operation::Reset]);
    assert!(world.preserves("scout", b"- note\n"));
}

#[test]
fn unrecovered_turn_says_memory_may_be_absent() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let mut is_lost = false;
    let transport = InterposingTransport::new(world.disk(), move |call| {
        is_lost |= call == TransportCall::Before("swap");
        if is_lost {
            let error = Error::new(ErrorKind::Host, "the connection was lost");
            return Err(TransportError::new(FailureCause::Unreachable, error));
        }
        Ok(())
    });
    let ran = world.reset_with_engine(&world.engine_with_transport(transport));
    let hints = &ran.assert_outcome(Outcome::Failed).hints;
    let expected = "the memory may be absent until the next run, which recovers it";
    assert_eq!(*hints, [expected]);
    world.reset().assert_ok();
    assert_no_leftovers(&world);
}

/// Resets two agents; at this moment another directory takes the place of the archive, or none.
fn reset_with_moved_archive(at: TransportCall, is_replaced: bool) {
    let world = World::new(&["a", "b"]);
    world.reset().assert_outcome(Outcome::Ok);
    for agent in ["a", "b"] {
        world.write_scratch(agent, "- note\n");
    }
    let archive = world.archive_directory();
    let moved = archive.with_file_name("moved");
    let (from, to) = (archive.clone(), moved.clone());
    let transport = InterposingTransport::new(world.disk(), move |moment| {
        if moment == at && !to.exists() {
            fs::rename(&from, &to).unwrap();
            if is_replaced {
                fs::create_dir(&from).unwrap();
            }
        }
        Ok(())
    });
    let ran = world.reset_with_engine(&world.engine_with_transport(transport));
    assert_eq!(ran.report.count(Outcome::Ok), 0, "{at:?}");
    assert_eq!(ran.report.worst_kind(), Some(ErrorKind::Host), "{at:?}");
    assert_eq!(archive.exists(), is_replaced, "{at:?}");
    if is_replaced {
        assert_eq!(sorted_names(&archive), [""; 0], "{at:?}");
        fs::remove_dir(&archive).unwrap();
    }
    fs::rename(&moved, &archive).unwrap();
    world.reset();
    for agent in ["a", "b"] {
        assert_eq!(world.read_memory(agent), BASELINE.as_bytes(), "{at:?}");
        assert!(world.preserves(agent, b"- note\n"), "{at:?}");
        assert_eq!(world.leftovers(agent), [""; 0], "{at:?}");
        assert_eq!(world.pending_journals(), [""; 0], "{at:?}");
        let target = UndoTarget::Agents(vec![agent.to_string()]);
        world
            .undo_target(&target, UndoMode::Refuse)
            .assert_outcome(Outcome::Ok);
        assert!(world.read_memory(agent).ends_with(b"- note\n"), "{at:?}");
    }
}

#[test]
fn archive_moved_during_a_run_fails_the_run() {
    let moments = [
        TransportCall::After("stage"),
        TransportCall::Before("link"),
        TransportCall::After("swap"),
        TransportCall::After("settle"),
    ];
    for moment in moments {
        reset_with_moved_archive(moment, false);
        reset_with_moved_archive(moment, true);
    }
}
