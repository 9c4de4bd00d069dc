//! Pinned entries, which retention never deletes.

use super::super::world::{BASELINE, InterposingTransport, TransportCall};
use super::retention::{DAY, confirm_date, set_entry_age, world_with_expired_entry};
use super::*;
use memory_shepherd::archive::search::EntryFilter;
use memory_shepherd::engine::Operation;

fn pins_path(world: &World) -> PathBuf {
    world.archive_directory().join(".shepherd/pins")
}

/// Forms in which a user may type an entry.
fn entry_path_spellings(world: &World, entry: &Path) -> Vec<PathBuf> {
    let name = entry.file_name().unwrap().to_str().unwrap();
    let archive = world.archive_directory();
    let link = world.root.join("link");
    let _ = std::os::unix::fs::symlink(&archive, &link);
    let directory_link = world.root.join("scout-link");
    let _ = std::os::unix::fs::symlink(archive.join("scout"), &directory_link);
    let entry_link = world.root.join("entry-link");
    let _ = std::os::unix::fs::symlink(archive.join(entry), &entry_link);
    vec![
        entry.to_path_buf(),
        format!("scout//{name}").into(),
        format!("./scout/./{name}").into(),
        format!("scout/{name}/").into(),
        format!("scout/../scout/{name}").into(),
        format!("{}//scout//{name}", archive.display()).into(),
        format!("{}/../archives/scout/{name}", archive.display()).into(),
        link.join(entry),
        directory_link.join(name),
        entry_link,
    ]
}

/// Returns the entries that the next reset of the whole fleet would delete.
fn expiring_entries(world: &World) -> Vec<PathBuf> {
    let plan = world
        .engine()
        .planner()
        .plan_reset(&["scout".to_string()], false);
    plan.unwrap().retention.unwrap().entries
}

#[test]
fn pin_accepts_every_spelling_of_a_path() {
    let (world, entry, _) = world_with_expired_entry();
    let engine = world.engine();
    let one = [entry.clone()];
    assert_eq!(expiring_entries(&world), one);
    for typed in entry_path_spellings(&world, &entry) {
        let typed = [typed];
        assert_eq!(
            engine.entries().set_pinned(&typed, true).unwrap(),
            one,
            "{typed:?}"
        );
        assert_eq!(
            engine.entries().set_pinned(&typed, true).unwrap(),
            Vec::<PathBuf>::new()
        );
        let listed = world
            .engine()
            .retention()
            .entry_statuses(&[], &EntryFilter::default())
            .unwrap()
            .entries;
        assert!(
            listed
                .iter()
                .any(|it| it.is_pinned && it.entry.path == entry)
        );
        assert_eq!(expiring_entries(&world), Vec::<PathBuf>::new(), "{typed:?}");
        assert_eq!(
            engine.entries().set_pinned(&typed, false).unwrap(),
            one,
            "{typed:?}"
        );
        assert_eq!(fs::read(pins_path(&world)).unwrap(), b"", "{typed:?}");
    }
}

#[test]
fn pin_line_of_earlier_version_holds() {
    let (world, entry, _) = world_with_expired_entry();
    let name = entry.file_name().unwrap().to_str().unwrap();
    let archive = world.archive_directory();
    for line in [
        format!("scout//{name}"),
        format!("scout/./{name}"),
        format!("scout/{name}/"),
        format!("{}/scout//{name}", archive.display()),
        // Lines in the forms that editors and people leave.
        format!("./scout/{name}"),
        format!("scout/{name}\r"),
        format!("  scout/{name} \t"),
        format!("scout/../scout/{name}"),
    ] {
        fs::write(pins_path(&world), format!("# a note\n{line}\n")).unwrap();
        assert_eq!(expiring_entries(&world), Vec::<PathBuf>::new(), "{line}");
        let one = [entry.clone()];
        assert_eq!(
            world.engine().entries().set_pinned(&one, true).unwrap(),
            Vec::<PathBuf>::new()
        );
        assert_eq!(
            world.engine().entries().set_pinned(&one, false).unwrap(),
            one,
            "{line}"
        );
        assert_eq!(fs::read(pins_path(&world)).unwrap(), b"# a note\n");
    }
}

/// A pin whose record failed, or that an editor wrote.
#[test]
fn pin_without_a_record_is_recorded_when_repeated() {
    let (world, entry, _) = world_with_expired_entry();
    fs::write(pins_path(&world), format!("{}\n", entry.display())).unwrap();
    let before = world.read_records().len();
    for _ in 0..2 {
        let changed = world
            .engine()
            .entries()
            .set_pinned(std::slice::from_ref(&entry), true);
        assert_eq!(changed.unwrap(), Vec::<PathBuf>::new());
        assert_eq!(world.read_records().len(), before + 1);
    }
}

#[test]
fn pins_are_recorded_in_the_ledger() {
    let (world, entry, _) = world_with_expired_entry();
    let engine = world.engine();
    let typed = [PathBuf::from(format!("./{}/", entry.display()))];
    let before = world.read_records().len();
    engine.entries().set_pinned(&typed, true).unwrap();
    // Without a change there is no record.
    engine.entries().set_pinned(&typed, true).unwrap();
    engine.entries().set_pinned(&typed, false).unwrap();
    let records = world.read_records();
    let told: Vec<(Operation, &[PathBuf])> = records[before..]
        .iter()
        .map(|record| {
            (
                record.event.operation,
                record.event.pinned_entries.as_slice(),
            )
        })
        .collect();
    let one = [entry];
    assert_eq!(
        told,
        [(Operation::Pin, &one[..]), (Operation::Unpin, &one[..])]
    );
    assert_eq!(records[before].event.user, "tester");
    assert_eq!(findings(&world), []);
    // A pin does not count as a run of the agent.
    assert_eq!(
        world.observe("scout").last_run.unwrap().operation,
        Operation::Reset
    );
}

#[test]
fn pinned_entry_stays_until_unpinned() {
    let (world, entry, _) = world_with_expired_entry();
    fs::write(
        pins_path(&world),
        "# kept for the auditors\ngone/2020-01-01_0000.md",
    )
    .unwrap();
    let engine = world.engine();
    let one = [entry.clone()];
    assert_eq!(engine.entries().set_pinned(&one, true).unwrap(), one);
    assert_eq!(
        engine.entries().set_pinned(&one, true).unwrap(),
        Vec::<PathBuf>::new()
    );
    let text = fs::read_to_string(pins_path(&world)).unwrap();
    let kept = "# kept for the auditors\ngone/2020-01-01_0000.md\n";
    assert_eq!(text, format!("{kept}{}\n", entry.display()));
    assert_eq!(world.reset().report.retired_entries, Vec::<PathBuf>::new());
    let listed = world
        .engine()
        .retention()
        .entry_statuses(&[], &EntryFilter::default())
        .unwrap()
        .entries;
    let of = |path: &Path| listed.iter().find(|it| it.entry.path == path).unwrap();
    assert_eq!(
        (
            of(&entry).is_pinned,
            of(&entry).is_recorded,
            of(&entry).is_needed
        ),
        (true, Some(true), Some(false))
    );
    assert!(listed[1].is_needed == Some(true) && !listed[1].is_pinned);
    // By its full path, too.
    let whole = world.archive_directory().join(&entry);
    assert_eq!(engine.entries().set_pinned(&[whole], false).unwrap(), one);
    assert_eq!(fs::read_to_string(pins_path(&world)).unwrap(), kept);
    // A deleted entry can be unpinned, but not pinned.
    let gone = [PathBuf::from("gone/2020-01-01_0000.md")];
    assert_eq!(engine.entries().set_pinned(&gone, false).unwrap(), gone);
    assert_eq!(world.reset().report.retired_entries, one);
    for path in [
        "gone/2020-01-01_0000.md",
        "../agents/scout/MEMORY.md",
        "scout",
        "/etc/passwd",
    ] {
        let error = engine
            .entries()
            .set_pinned(&[path.into()], true)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::User, "{error}");
    }
    // All of the entries or none.
    let newest = PathBuf::from("scout").join(world.entry_names("scout").pop().unwrap());
    engine
        .entries()
        .set_pinned(&[newest, "nothing".into()], true)
        .unwrap_err();
    assert_eq!(
        fs::read_to_string(pins_path(&world)).unwrap(),
        "# kept for the auditors\n"
    );
}

/// `#` begins a comment in the file, and white space at the end of a line counts for nothing.
#[test]
fn pin_of_a_path_like_a_comment_is_kept() {
    for directory in ["#team", "#", "#a/#b", "-team"] {
        let mut world = World::new(&["scout"]);
        world.add_agent("scout", &format!("archive_subdir={directory}\n"));
        world.write_scratch("scout", "- old\n");
        let entry = world.reset().assert_ok().entries[0].path.clone();
        assert!(entry.starts_with(directory), "{entry:?}");
        world.clock.advance(DAY * 40);
        set_entry_age(&world, &entry, 40);
        confirm_date(&world);
        let one = [entry.clone()];
        let engine = world.engine();
        assert_eq!(engine.entries().set_pinned(&one, true).unwrap(), one);
        assert!(engine.entries().set_pinned(&one, true).unwrap().is_empty());
        assert_eq!(engine.entries().pins().unwrap().find_faults(), []);
        world.write_scratch("scout", "- new\n");
        let retired = world.reset().report.retired_entries;
        assert_eq!(retired, Vec::<PathBuf>::new(), "{directory}");
        assert_eq!(engine.entries().set_pinned(&one, false).unwrap(), one);
        assert_eq!(world.reset().report.retired_entries, one);
    }
}

#[test]
fn pin_that_no_line_can_name_is_refused() {
    let (world, _, _) = world_with_expired_entry();
    let entry = PathBuf::from("two\nlines/2020-01-01_0000.md");
    let path = world.archive_directory().join(&entry);
    fs::create_dir(path.parent().unwrap()).unwrap();
    fs::write(&path, "- old\n").unwrap();
    let error = world
        .engine()
        .entries()
        .set_pinned(&[entry], true)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(!pins_path(&world).exists());
}

/// Retention does not delete an entry that an unclear line may mean.
#[test]
fn pin_line_without_an_entry_keeps_its_directory() {
    let (world, entry, _) = world_with_expired_entry();
    let one = [entry.clone()];
    for line in [
        "scout/2020-01-01_0001.md",
        "scuot/2020-01-01_0000.md",
        "MEMORY.md",
        "../x",
    ] {
        fs::write(pins_path(&world), format!("# a note\n\n{line}\n")).unwrap();
        let plan = world
            .engine()
            .planner()
            .plan_reset(&["scout".to_string()], false);
        let retention = plan.unwrap().retention.unwrap();
        assert_eq!(retention.entries, Vec::<PathBuf>::new(), "{line}");
        let notes = retention.notes.join("; ");
        assert!(notes.contains("keeps 1 entry older than"), "{notes}");
        let told = format!(
            "line 3 of {} names no entry: {line}",
            pins_path(&world).display()
        );
        assert!(notes.contains(&told), "{notes}");
        let faults = world.engine().entries().pins().unwrap().find_faults();
        assert_eq!(faults.len(), 1, "{line}");
    }
    // An entry of another directory.
    fs::create_dir(world.archive_directory().join("other")).unwrap();
    fs::write(pins_path(&world), "other/2020-01-01_0000.md\n").unwrap();
    assert_eq!(expiring_entries(&world), one);
}

/// An appended entry depends on another entry, which holds its beginning.
#[test]
fn pin_of_an_appended_entry_keeps_its_beginning() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- old\n");
    let memory = world.memory_path("scout");
    let transport = InterposingTransport::new(world.disk(), move |moment| {
        if moment == TransportCall::Before("swap") {
            fs::write(&memory, format!("{BASELINE}- old\n- late\n")).unwrap();
        }
        Ok(())
    });
    let ran = world.reset_with_engine(&world.engine_with_transport(transport));
    let entries: Vec<PathBuf> = ran
        .assert_ok()
        .entries
        .iter()
        .map(|it| it.path.clone())
        .collect();
    let [begin, end] = entries.as_slice() else {
        panic!("{entries:?}");
    };
    assert!(end.to_str().unwrap().ends_with("-appended.md"));
    world.clock.advance(DAY * 40);
    for entry in &entries {
        set_entry_age(&world, entry, 40);
    }
    confirm_date(&world);
    world.write_scratch("scout", "- new\n");
    assert_eq!(expiring_entries(&world).len(), 2);
    let engine = world.engine();
    engine
        .entries()
        .set_pinned(std::slice::from_ref(begin), true)
        .unwrap();
    assert_eq!(expiring_entries(&world), std::slice::from_ref(end));
    engine
        .entries()
        .set_pinned(std::slice::from_ref(begin), false)
        .unwrap();
    engine
        .entries()
        .set_pinned(std::slice::from_ref(end), true)
        .unwrap();
    assert_eq!(expiring_entries(&world), Vec::<PathBuf>::new());
}
