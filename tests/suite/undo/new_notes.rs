//! Notes that the agent has written since the run: an undo asks, appends or archives them.

use super::*;

#[test]
fn undo_refuses_appends_or_archives_new_notes() {
    let world = World::new(&["scout"]);
    let old = format!("{BASELINE}- old, no newline");
    let start = || {
        world.write_memory("scout", &old);
        world.reset().assert_ok();
        world.write_scratch("scout", "- new\n");
    };
    start();
    let ran = world.undo("scout", UndoMode::Refuse);
    assert_eq!(
        ran.assert_outcome(Outcome::Refused).kind,
        Some(ErrorKind::Conflict)
    );
    assert!(
        ran.note().starts_with("the agent has written since run "),
        "{}",
        ran.note()
    );
    assert!(world.read_memory("scout").ends_with(b"- new\n"));
    world.undo("scout", UndoMode::Append).assert_ok();
    assert_eq!(
        String::from_utf8(world.read_memory("scout")).unwrap(),
        format!("{old}\n- new\n")
    );
    start();
    let ran = world.undo("scout", UndoMode::Overwrite);
    assert_eq!(world.read_memory("scout"), old.as_bytes());
    assert!(
        world
            .read_entry(&ran.assert_ok().entries[0])
            .ends_with(b"\n\n- new\n")
    );
    // That undo can be undone, too.
    world.redo("scout").assert_ok();
    assert_eq!(
        world.read_memory("scout"),
        format!("{BASELINE}- new\n").as_bytes()
    );
}

#[test]
fn notes_that_redo_put_back_are_new_notes() {
    for mode in [UndoMode::Append, UndoMode::Overwrite] {
        let world = World::new(&["scout"]);
        world.write_scratch("scout", "- old\n");
        let run = UndoTarget::Run(world.reset().report.run);
        let last = UndoTarget::Agents(vec!["scout".to_string()]);
        world.write_scratch("scout", "- new\n");
        assert_asks(&world, &run);
        world.undo_target(&run, mode).assert_ok();
        world.redo("scout").assert_ok();
        assert!(world.read_memory("scout").ends_with(b"---\n- new\n"));
        assert_asks(&world, &run);
        assert_asks(&world, &last);
        world.undo_target(&run, UndoMode::Append).assert_ok();
        let both = b"---\n- old\n- new\n";
        assert!(world.read_memory("scout").ends_with(both));
    }
}

#[test]
fn notes_of_undone_later_reset_are_new_notes() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- one\n");
    let first = UndoTarget::Run(world.reset().report.run);
    world.write_scratch("scout", "- two\n");
    let second = UndoTarget::Run(world.reset().report.run);
    world.undo_target(&second, UndoMode::Refuse).assert_ok();
    assert_asks(&world, &first);
    // The redo archives the notes again.
    world.redo("scout").assert_ok();
    world.undo_target(&first, UndoMode::Refuse).assert_ok();
    assert!(world.read_memory("scout").ends_with(b"---\n- one\n"));
    // These are older than the second run.
    world.undo_target(&second, UndoMode::Refuse).assert_ok();
    assert!(world.read_memory("scout").ends_with(b"---\n- two\n"));
}

#[test]
fn late_write_to_undone_later_reset_is_new_notes() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- one\n");
    let first = UndoTarget::Run(world.reset().report.run);
    world.set_baseline("scout", BASELINE.replace("kind", "kinder"));
    let memory = world.memory_path("scout");
    let transport = InterposingTransport::new(world.disk(), move |moment| {
        if moment == TransportCall::Before("swap") {
            fs::write(&memory, format!("{BASELINE}- late\n")).unwrap();
        }
        Ok(())
    });
    world
        .reset_with_engine(&world.engine_with_transport(transport))
        .assert_ok();
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert!(world.read_memory("scout").ends_with(b"---\n- late\n"));
    assert_asks(&world, &first);
}

#[test]
fn overwritten_notes_are_no_new_notes() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- older\n");
    let before = UndoTarget::Run(world.reset().report.run);
    world.write_scratch("scout", "- old\n");
    let run = UndoTarget::Run(world.reset().report.run);
    world.write_scratch("scout", "- new\n");
    world.undo_target(&run, UndoMode::Overwrite).assert_ok();
    assert!(world.read_memory("scout").ends_with(b"---\n- old\n"));
    let earlier = world.engine().plan_undo(&before, UndoMode::Refuse, false);
    let step = earlier.unwrap().steps.remove(0);
    // The memory holds nothing but the notes from before the run, which are new to the earlier one.
    assert!(step.undone_run.unwrap().has_written_since);
}

#[test]
fn append_keeps_notes_of_undone_later_resets() {
    let world = World::new(&["scout"]);
    for note in ["- one\n", "- two\n", "- three\n"] {
        world.write_scratch("scout", note);
        world.reset().assert_ok();
    }
    world.undo("scout", UndoMode::Refuse).assert_ok();
    for restored in ["- two\n- three\n", "- one\n- two\n- three\n"] {
        world
            .undo("scout", UndoMode::Refuse)
            .assert_outcome(Outcome::Refused);
        world.undo("scout", UndoMode::Append).assert_ok();
        let expected = format!("{BASELINE}{restored}");
        assert_eq!(world.read_memory("scout"), expected.as_bytes());
    }
}

#[test]
fn append_without_new_notes_is_plain_undo() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- old\n");
    world.reset().assert_ok();
    world.undo("scout", UndoMode::Append).assert_ok();
    assert!(world.read_memory("scout").ends_with(b"---\n- old\n"));
    let target = UndoTarget::Redo(vec!["scout".to_string()]);
    world.undo_target(&target, UndoMode::Append).assert_ok();
    assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
}

#[test]
fn file_in_place_of_removed_one_is_new_notes() {
    let world = World::new(&["scout"]);
    world.reset().assert_ok();
    world.undo("scout", UndoMode::Refuse).assert_ok();
    // After the removal the agent puts an object there that has no digest.
    symlink("/etc/passwd", world.memory_path("scout")).unwrap();
    let ran = world.redo("scout");
    assert_eq!(
        ran.assert_outcome(Outcome::Refused).kind,
        Some(ErrorKind::Conflict)
    );
    assert!(world.memory_path("scout").is_symlink());
}
