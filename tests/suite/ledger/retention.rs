//! What retention deletes, what it keeps, and what it writes down first.

use super::*;
use memory_shepherd::clock::Clock;
use memory_shepherd::engine::{Act, Outcome, Progress, UndoMode, UndoTarget};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Ages an entry by its inode, too, and answers where it is.
fn age(world: &World, entry: &Path, days: u32) -> PathBuf {
    let path = world.archive().join(entry);
    let now: std::time::SystemTime = world.clock.now().into();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(now - DAY * days).unwrap();
    path
}

/// A world whose first entry is old enough to go with the next run.
pub(super) fn aged() -> (World, PathBuf, String) {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- old\n");
    let ran = world.reset();
    let entry = ran.ok().entries[0].path.clone();
    let run = ran.report.run.clone();
    world.clock.advance(DAY * 40);
    age(&world, &entry, 40);
    world.write_scratch("scout", "- new\n");
    (world, entry, run)
}

#[test]
fn what_is_deleted_is_recorded_and_verifies() {
    let (world, entry, run) = aged();
    let ran = world.reset();
    assert_eq!(ran.report.retired, std::slice::from_ref(&entry));
    let records = world.records();
    let last = &records[records.len() - 1];
    assert_eq!(last.what.act, Act::Retire);
    assert_eq!(last.what.retired, std::slice::from_ref(&entry));
    assert_eq!(last.what.run, ran.report.run);
    assert_eq!(ran.report.head.unwrap().0, last.seq);
    let found = verify(&world.engine(), None);
    assert_eq!((found.kind(), found.tally.retired), (None, 1));
    // It is no run of the agent.
    assert_eq!(world.observe("scout").last.unwrap().act, Act::Reset);
    // The same by hand is a loss.
    let path = world
        .archive()
        .join("scout")
        .join(world.entries("scout").pop().unwrap());
    let bytes = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    finds(&world, About::Entry, "is missing");
    fs::write(&path, bytes).unwrap();
    // The old run cannot be undone, and says why.
    let plan = world
        .engine()
        .plan_undo(&UndoTarget::Run(run.clone()), UndoMode::Refuse, false);
    let skipped = &plan.unwrap().skipped[0];
    assert_eq!(skipped.kind, Some(Kind::Conflict));
    assert_eq!(
        skipped.why,
        format!(
            "run {run} cannot be undone: its entry {} was deleted by retention on 2026-04-23 \
             (run {})",
            entry.display(),
            ran.report.run
        )
    );
    // The later one can.
    world.undo("scout", UndoMode::Refuse).ok();
    assert!(world.read("scout").ends_with(b"- new\n"));
}

#[test]
fn what_was_recorded_and_not_deleted_is_no_lie() {
    let (world, entry, run) = aged();
    let path = world.archive().join(&entry);
    let bytes = fs::read(&path).unwrap();
    world.reset().ok();
    // As if the run had been killed before it deleted.
    fs::write(&path, &bytes).unwrap();
    age(&world, &entry, 40);
    let found = verify(&world.engine(), None);
    assert_eq!((found.kind(), found.tally.unrecorded), (None, 0));
    let target = UndoTarget::Run(run);
    let plan = world
        .engine()
        .plan_undo(&target, UndoMode::Refuse, false)
        .unwrap();
    assert_eq!(plan.skipped, [], "an entry that is there can be put back");
    // The next run deletes it, and says so again.
    world.write_scratch("scout", "- newer\n");
    assert_eq!(world.reset().report.retired, [entry]);
    let found = verify(&world.engine(), None);
    assert_eq!((found.kind(), found.tally.retired), (None, 1));
}

#[test]
fn what_cannot_be_recorded_is_not_deleted() {
    let (world, entry, _) = aged();
    let engine = world.engine();
    let plan = engine.plan_reset(&["scout".to_string()], false).unwrap();
    assert_eq!(
        plan.retention.as_ref().unwrap().entries,
        std::slice::from_ref(&entry)
    );
    let file = ledger(&world);
    let mut lines = Vec::new();
    let report = engine.apply(&plan, true, &AtomicBool::new(false), &mut |progress| {
        match progress {
            // Its reset is recorded; from now on the ledger can be read, and
            // nothing is written to what stands there.
            Progress::Done(_) => {
                let away = file.with_extension("away");
                fs::rename(&file, &away).unwrap();
                std::os::unix::fs::symlink(&away, &file).unwrap();
            }
            Progress::Line(line) => lines.push(line),
            Progress::Stage(..) => {}
        }
    });
    assert_eq!(report.retired, Vec::<PathBuf>::new());
    assert_eq!(report.kind(), Some(Kind::Host), "{lines:?}");
    assert!(world.archive().join(entry).exists());
}

#[test]
fn only_what_the_plan_showed_is_deleted() {
    let (world, entry, _) = aged();
    let engine = world.engine();
    let plan = engine.plan_reset(&["scout".to_string()], false).unwrap();
    // Two more have come since: one old, one that stands at the other's name.
    let later = Path::new("scout/2026-01-01_0900.md");
    fs::write(world.archive().join(later), "x").unwrap();
    age(&world, later, 60);
    let ran = super::super::world::apply(&engine, &plan);
    assert_eq!(ran.report.retired, [entry]);
    assert!(world.archive().join(later).exists());
    // The next one shows it, and deletes it though nothing was reset.
    assert_eq!(world.reset().ended(Outcome::Unchanged).kind, None);
    assert!(!world.archive().join(later).exists());
}

#[test]
fn a_plan_shows_what_goes_when_a_newer_entry_has_come() {
    let (world, entry, _) = aged();
    // Still the newest, and so it stays.
    assert_eq!(world.engine().retention().unwrap(), []);
    let engine = world.engine();
    let shown = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        engine.plan_reset(&names, false).unwrap().retention
    };
    assert_eq!(shown(&["scout"]).unwrap().entries, [entry]);
    world.write_scratch("scout", "");
    assert_eq!(shown(&["scout"]).unwrap().entries, Vec::<PathBuf>::new());
}

#[test]
fn a_plan_of_some_agents_deletes_nothing() {
    let (mut world, entry, _) = aged();
    world.add("ranger", "");
    world.set_baseline("ranger", super::super::world::BASELINE);
    let engine = world.engine();
    let plan = engine.plan_reset(&["scout".to_string()], false).unwrap();
    assert_eq!(plan.retention, None);
    super::super::world::apply(&engine, &plan).ok();
    assert!(world.archive().join(entry).exists());
}

#[test]
fn the_newest_of_each_agent_stays_also_in_a_shared_folder() {
    let mut world = World::new(&["scout"]);
    world.add("ranger", "archive_subdir = scout");
    world.set_baseline("ranger", super::super::world::BASELINE);
    world.write_scratch("ranger", "- old\n");
    let ran = world.reset();
    let of_ranger = ran.of("ranger").entries[0].path.clone();
    world.clock.advance(DAY * 40);
    age(&world, &of_ranger, 40);
    world.write_scratch("scout", "- new\n");
    assert_eq!(world.reset().report.retired, Vec::<PathBuf>::new());
    assert!(world.archive().join(of_ranger).exists());
}

#[test]
fn nothing_is_deleted_while_pins_cannot_be_read() {
    let (world, entry, _) = aged();
    fs::create_dir(world.archive().join(".shepherd/pins")).unwrap();
    let ran = world.reset();
    assert_eq!(ran.report.kind(), Some(Kind::Host));
    assert!(world.archive().join(entry).exists());
    let [trouble] = ran.report.trouble.as_slice() else {
        panic!("{:?}", ran.report.trouble)
    };
    assert!(
        trouble.message().contains("cannot read the pins"),
        "{trouble}"
    );
}
