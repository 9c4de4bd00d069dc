//! Directories that overlap: refused as errors of the config, and harmless where the
//! check could not see them.

use std::fs::{self, File, FileTimes};
use std::io::Write;
use std::time::{Duration, SystemTime};

use super::world::{World, apply};

/// An age at which a sweep takes a file without a name for the rest of a killed run.
const STALE: Duration = Duration::from_secs(25 * 60 * 60);

fn append(file: &mut File, text: &str) {
    file.write_all(text.as_bytes()).unwrap();
}

/// The archive's directory of the agent is the one that its memory is in.
#[test]
fn sweep_spares_what_a_record_names() {
    let world = World::new(&["scout"]).general("archive_dir = agents");
    let engine = world.engine_with_config(world.unchecked_config());
    let reset = |note: &str| {
        world.write_scratch("scout", note);
        let plan = engine.plan_reset(&["scout".to_string()], false).unwrap();
        apply(&engine, &plan)
    };
    world.write_scratch("scout", "");
    let memory = world.memory("scout");
    let mut writer = File::options().append(true).open(&memory).unwrap();
    reset("- early\n").ok();
    let names = |world: &World| {
        let mut names = world.litter("scout");
        names.retain(|name| name.starts_with(".shepherd-"));
        names
    };
    let displaced = names(&world);
    assert_eq!(displaced.len(), 1, "a writer has it open");
    append(&mut writer, "- late\n");
    let long_ago = FileTimes::new().set_modified(SystemTime::UNIX_EPOCH);
    writer.set_times(long_ago).unwrap();
    world.clock.advance(STALE);
    reset("- second\n");
    assert_eq!(names(&world), displaced, "a writer has it open still");
    drop(writer);
    reset("- third\n");
    assert_eq!(names(&world), [""; 0]);
    let entries = fs::read_dir(world.folder("scout")).unwrap();
    let late = entries.filter(|entry| {
        let path = entry.as_ref().unwrap().path();
        fs::read_to_string(path).is_ok_and(|text| text.ends_with("- early\n- late\n"))
    });
    assert_eq!(late.count(), 1);
}
