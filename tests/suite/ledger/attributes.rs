//! Attributes of memories in the ledger.

use std::sync::Arc;

use super::super::world::{BASELINE, apply_plan};
use super::*;
use crate::fake_transport::FakeTransport;
use memory_shepherd::engine::{UndoMode, UndoTarget};
use memory_shepherd::transport::Attributes;

fn attributes(value: u8) -> Attributes {
    Attributes {
        uid: 1000,
        gid: 8,
        mode: 0o600,
        xattrs: vec![(b"user.large".to_vec(), vec![value; 40_000])],
    }
}

#[test]
fn long_attributes_are_recorded_once_and_restored() {
    let world = World::new(&["scout"]);
    let fake = FakeTransport::new(world.clock.clone());
    let memory = world.memory_path("scout");
    fake.make_directory(world.agent_directory("scout"), 1000, 100, 0o755);
    let engine = world.engine_with_transport(Arc::new(fake.clone()));
    let mut runs = Vec::new();
    for (number, value) in [1, 1, 1, 2, 2, 1].into_iter().enumerate() {
        fake.write_file(&memory, format!("{BASELINE}- {number}\n").as_bytes());
        fake.set_attributes(&memory, attributes(value));
        let ran = world.reset_with_engine(&engine);
        ran.assert_ok();
        runs.push((ran.report.run.clone(), value));
    }
    let records = world.read_records();
    let whole = records
        .iter()
        .filter(|it| it.event.change.attributes.is_some());
    assert_eq!(whole.count(), 3, "1, 2, and 1 again");
    assert!(records[1].event.change.attributes_position.is_some());
    let length = fs::metadata(ledger_path(&world)).unwrap().len();
    assert!(length < 4 * 80_000, "{length} bytes");
    // The attributes survive where only the ledger remains.
    fs::remove_file(world.archive_directory().join(".shepherd/ledger.index")).ok();
    for (run, value) in runs {
        fake.replace_file(&memory, BASELINE.as_bytes());
        let engine = world.engine_with_transport(Arc::new(fake.clone()));
        let target = UndoTarget::Run(run);
        let plan = engine
            .planner()
            .plan_undo(&target, UndoMode::Overwrite, false);
        apply_plan(&engine, &plan.unwrap()).assert_ok();
        assert_eq!(fake.attributes(&memory).unwrap(), attributes(value));
    }
    assert_eq!(findings(&world), []);
}

#[test]
fn changed_attributes_record_refuses_undo() {
    let world = World::new(&["scout"]);
    let fake = FakeTransport::new(world.clock.clone());
    let memory = world.memory_path("scout");
    fake.make_directory(world.agent_directory("scout"), 1000, 100, 0o755);
    for _ in 0..2 {
        fake.write_file(&memory, format!("{BASELINE}- note\n").as_bytes());
        fake.set_attributes(&memory, attributes(1));
        let engine = world.engine_with_transport(Arc::new(fake.clone()));
        world.reset_with_engine(&engine).assert_ok();
    }
    // The index covers the change, so no other read reaches the first record.
    super::long_ledger::append_records(&world, 300);
    let engine = world.engine_with_transport(Arc::new(fake.clone()));
    world.reset_with_engine(&engine);
    let text = fs::read_to_string(ledger_path(&world)).unwrap();
    fs::write(
        ledger_path(&world),
        text.replacen("\"uid\":1000", "\"uid\":1001", 1),
    )
    .unwrap();
    let engine = world.engine_with_transport(Arc::new(fake));
    let target = UndoTarget::Agents(vec!["scout".to_string()]);
    let plan = engine
        .planner()
        .plan_undo(&target, UndoMode::Overwrite, false)
        .unwrap();
    assert_eq!(plan.skipped[0].kind, Some(ErrorKind::Integrity));
    assert!(
        plan.skipped[0].reason.contains("it has been changed"),
        "{:?}",
        plan.skipped
    );
}
