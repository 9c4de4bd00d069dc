//! Tests of the archive: names of entries, listing, retention and deletion.

use super::*;

fn parse_time(text: &str) -> DateTime<FixedOffset> {
    DateTime::parse_from_rfc3339(text).unwrap()
}

#[test]
fn entry_names_match_original_and_round_trip() {
    let time = parse_time("2026-03-14T09:00:59+01:00");
    for (kind, number, name) in [
        (EntryKind::Scratch, 0, "2026-03-14_0900.md"),
        (EntryKind::Scratch, 2, "2026-03-14_0900-2.md"),
        (EntryKind::FullBackup, 0, "2026-03-14_0900-full-backup.md"),
        (EntryKind::FullBackup, 1, "2026-03-14_0900-full-backup-1.md"),
        (EntryKind::Late, 0, "2026-03-14_0900-late.md"),
        (EntryKind::Special, 3, "2026-03-14_0900-odd-3.md"),
        (EntryKind::Appended, 0, "2026-03-14_0900-appended.md"),
        (EntryKind::Redacted, 1, "2026-03-14_0900-redacted-1.md"),
    ] {
        assert_eq!(format_entry_name(time, kind, number), name);
        let expected = (time.naive_local().with_second(0), kind, number);
        let (stamp, kind, number) = parse_entry_name(name).unwrap();
        assert_eq!((Some(stamp), kind, number), expected);
    }
    for name in [
        "notes.md",
        "2026-03-14_0900.txt",
        "2026-03-14_0900-0.md",
        "2026-03-14_0900-05.md",
        "2026-03-14_0900-+5.md",
        "2026-03-14_0900-.md",
        "2026-03-14_0900-other.md",
        "2026-13-14_0900.md",
        "2026-03-14_0900 .md",
        "+026-03-14_0900.md",
        "é026-03-14_0900.md",
    ] {
        assert_eq!(parse_entry_name(name), None, "{name}");
    }
}

use chrono::Timelike;

#[test]
fn scratch_of_entry_is_verbatim() {
    let time = parse_time("2026-03-14T09:00:00+01:00");
    let scratch = "\n\n## Scratch Notes\n\n- a\n";
    let entry = format!("{}{scratch}", format_scratch_header("scout", time));
    assert!(entry.starts_with("# scout scratch notes — archived 2026-03-14_0900\n\n"));
    assert_eq!(
        strip_scratch_header(entry.as_bytes()),
        Some(scratch.as_bytes())
    );
    assert_eq!(strip_scratch_header(b"no header\n\nx"), None);
}

#[test]
fn free_entry_name_is_found_in_few_lookups() {
    for count in [1, 2, 3, 7, 8, 5_000, 1_000_000, u32::MAX] {
        let lookups = std::cell::Cell::new(0);
        let is_taken = |number| {
            lookups.set(lookups.get() + 1);
            Ok(number < count)
        };
        assert_eq!(
            entry_draft::next_free_number(0, is_taken).unwrap(),
            Some(count)
        );
        let lookups = lookups.get();
        assert!(lookups <= 64, "{lookups} lookups for {count}");
    }
    assert_eq!(
        entry_draft::next_free_number(0, |_| Ok(true)).unwrap(),
        None
    );
}

#[test]
fn entries_of_one_minute_are_numbered_past_gaps() {
    let time = parse_time("2026-03-14T09:00:00+00:00");
    let names: Vec<String> = (0..300)
        .map(|number| format_entry_name(time, EntryKind::Late, number))
        .collect();
    let listed: Vec<(&str, &str)> = names
        .iter()
        .map(|name| (name.as_str(), "2026-03-14T09:00:00Z"))
        .collect();
    let (_directory, archive) = archive_with_entries(&listed);
    let scout = Path::new("scout");
    for expected in ["2026-03-14_0900-late-300.md", "2026-03-14_0900-late-301.md"] {
        let draft = archive.start_entry(scout).unwrap();
        let written = draft.finish(EntryKind::Late, time).unwrap();
        assert_eq!(written.path, scout.join(expected));
    }
    // A gap does not cause a lookup of every name, and no entry is replaced.
    let gap = archive.root().join("scout").join(&names[150]);
    std::fs::remove_file(gap).unwrap();
    let draft = archive.start_entry(scout).unwrap();
    draft.finish(EntryKind::Late, time).unwrap();
    assert_eq!(archive.list_entries(scout).unwrap().len(), 302);
    // Each kind has its own numbers.
    let draft = archive.start_entry(scout).unwrap();
    let written = draft.finish(EntryKind::Scratch, time).unwrap();
    assert_eq!(written.path, scout.join("2026-03-14_0900.md"));
}

/// A directory of empty entries, each with its change time, and its archive.
fn archive_with_entries(names: &[(&str, &str)]) -> (tempfile::TempDir, Archive) {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    std::fs::create_dir(root.join("scout")).unwrap();
    for (name, modified) in names {
        let file = File::create(root.join("scout").join(name)).unwrap();
        file.set_modified(parse_time(modified).into()).unwrap();
    }
    (directory, Archive::new(&root, 0o600, None))
}

#[test]
fn expired_is_old_by_name_and_time_except_newest() {
    let old = "2026-01-01T00:00:00Z";
    let (_directory, archive) = archive_with_entries(&[
        ("2026-01-01_0900.md", old),
        ("2026-01-03_0900.md", "2026-03-10T00:00:00Z"),
        ("2026-01-04_0900-full-backup.md", old),
        ("2026-01-05_0900.txt", old),
        ("2026-02-10_0900.md", old),
    ]);
    let limit = parse_time("2026-02-12T09:00:00Z");
    let expired = |keep_newest| -> Vec<PathBuf> {
        let entries = archive
            .expired_entries("scout".as_ref(), limit, Zone::UTC, keep_newest)
            .unwrap();
        entries.into_iter().map(|entry| entry.path).collect()
    };
    let mut gone = ["2026-01-01_0900.md", "2026-01-04_0900-full-backup.md"]
        .map(|name| Path::new("scout").join(name))
        .to_vec();
    assert_eq!(expired(true), gone);
    gone.push("scout/2026-02-10_0900.md".into());
    assert_eq!(expired(false), gone);
    let none = archive
        .expired_entries("unknown".as_ref(), limit, Zone::UTC, true)
        .unwrap();
    assert_eq!(none, []);
}

#[test]
fn delete_removes_only_the_listed_entry() {
    let names = [
        "2026-01-01_0900.md",
        "2026-01-02_0900.md",
        "2026-01-03_0900.md",
    ];
    let (_directory, archive) =
        archive_with_entries(&names.map(|name| (name, "2026-01-01T00:00:00Z")));
    let listed = archive.list_entries("scout".as_ref()).unwrap();
    let [one, two, three] = listed.as_slice() else {
        panic!("{listed:?}")
    };
    let path = |entry: &ArchiveEntry| archive.root().join(&entry.path);
    std::fs::write(path(one), "another").unwrap();
    assert_eq!(
        archive.delete_entry(one).unwrap_err().kind(),
        ErrorKind::Conflict
    );
    std::fs::remove_file(path(two)).unwrap();
    std::os::unix::fs::symlink(path(one), path(two)).unwrap();
    assert!(!archive.delete_entry(two).unwrap());
    assert!(path(two).is_symlink() && path(one).exists());
    assert!(archive.delete_entry(three).unwrap());
    assert!(!archive.delete_entry(three).unwrap());
    assert!(!path(three).exists());
    // A directory replaced by a symlink is not followed.
    let scout = archive.root().join("scout");
    std::fs::rename(&scout, archive.root().join("away")).unwrap();
    std::os::unix::fs::symlink("away", &scout).unwrap();
    assert!(archive.delete_entry(one).is_err());
    assert!(archive.root().join("away/2026-01-01_0900.md").exists());
}

#[test]
fn find_entry_rejects_paths_not_of_entries() {
    let (_directory, archive) =
        archive_with_entries(&[("2026-01-01_0900.md", "2026-01-01T00:00:00Z")]);
    for (path, is_entry) in [
        ("scout/2026-01-01_0900.md", true),
        ("scout/2026-01-02_0900.md", false),
        ("scout/notes.md", false),
        ("other/2026-01-01_0900.md", false),
        ("scout/../scout/2026-01-01_0900.md", false),
        ("./scout/2026-01-01_0900.md", false),
        ("/scout/2026-01-01_0900.md", false),
        (".shepherd/2026-01-01_0900.md", false),
        ("", false),
    ] {
        assert_eq!(
            archive.find_entry(path.as_ref()).unwrap().is_some(),
            is_entry,
            "{path}"
        );
    }
}

#[test]
fn directory_below_a_claimed_one_is_unclaimed() {
    let (_directory, archive) = archive_with_entries(&[]);
    let deep = (0..40).map(|_| "d").collect::<Vec<_>>().join("/");
    for path in ["team/a/b", "team/claimed/c", ".shepherd/tx", deep.as_str()] {
        std::fs::create_dir_all(archive.root().join(path)).unwrap();
    }
    std::os::unix::fs::symlink("team", archive.root().join("link")).unwrap();
    let claimed = ["scout", "team", "team/claimed"].map(Path::new);
    let found = archive
        .unclaimed_directories(&|it| claimed.contains(&it))
        .unwrap();
    let shallow: Vec<&Path> = found
        .iter()
        .map(PathBuf::as_path)
        .filter(|it| !it.starts_with("d"))
        .collect();
    assert_eq!(
        shallow,
        ["team/a", "team/a/b", "team/claimed/c"].map(Path::new)
    );
    let depth = found.iter().map(|it| it.components().count()).max();
    assert_eq!(depth, Some(MAX_SEARCH_DEPTH));
}

/// An archive with one entry in quarantine.
fn archive_with_quarantined_entry() -> (tempfile::TempDir, Archive, WrittenEntry) {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    let archive = Archive::new(&root, 0o644, None);
    let at = parse_time("2026-03-14T09:00:00+01:00");
    let mut draft = archive.start_entry(Path::new("scout/quarantine")).unwrap();
    draft.write(b"- note\n").unwrap();
    let written = draft.finish(EntryKind::Scratch, at).unwrap();
    (directory, archive, written)
}

fn mode_of(archive: &Archive, path: impl AsRef<Path>) -> u32 {
    let stat = durable::stat_no_symlinks(&archive.root().join(path)).unwrap();
    stat.st_mode & 0o7777
}

#[test]
fn quarantine_stays_private_in_any_mode() {
    let (_directory, archive, written) = archive_with_quarantined_entry();
    assert_eq!(
        written.path,
        Path::new("scout/quarantine/2026-03-14_0900.md")
    );
    assert!(is_quarantined(&written.path));
    assert_eq!(mode_of(&archive, &written.path), 0o600);
    let quarantine = Path::new("scout/quarantine");
    fs::chmod(archive.root().join(quarantine), Mode::from_raw_mode(0o755)).unwrap();
    archive.open_or_create_directory(quarantine).unwrap();
    assert_eq!(mode_of(&archive, quarantine), 0o700);
    let listed = archive.list_entries(Path::new("scout")).unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].path, written.path);
    assert_eq!(agent_directory_of(&written.path), Path::new("scout"));
}

#[test]
fn pin_of_released_entry_concerns_its_new_name() {
    let (_directory, archive, written) = archive_with_quarantined_entry();
    let own = archive.program_path("");
    std::fs::create_dir_all(&own).unwrap();
    let released = archive.release_entry(&written).unwrap();
    archive.end_release(&written.path, &released.path).unwrap();
    let line = format!("{}\n", written.path.display());
    std::fs::write(archive.program_path("pins"), line).unwrap();
    let faults = Pins::read(&archive).unwrap().find_faults();
    assert_eq!(faults.len(), 1);
    assert!(faults[0].may_concern(&released.path), "{faults:?}");
    assert!(!faults[0].may_concern(Path::new("ranger/2026-03-14_0900.md")));
}

#[test]
fn symlink_as_own_directory_has_a_hint_that_helps() {
    let (_directory, archive, _) = archive_with_quarantined_entry();
    let out = archive.root().join("out");
    std::fs::create_dir(&out).unwrap();
    for name in ["scout/quarantine", ".shepherd"] {
        let path = archive.root().join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::os::unix::fs::symlink(&out, &path).unwrap();
        let error = archive.open_or_create_directory(Path::new(name));
        let error = error.unwrap_err();
        assert!(error.message().contains("is a symlink"), "{error}");
        let hint = error.hints().join("; ");
        assert!(hint.starts_with("remove the symlink"), "{hint}");
        std::fs::remove_file(&path).unwrap();
        archive.open_or_create_directory(Path::new(name)).unwrap();
    }
}

#[test]
fn directory_right_below_the_archive_is_no_quarantine() {
    for (path, expected) in [
        ("quarantine/2026-03-14_0900.md", false),
        ("quarantine/quarantine/2026-03-14_0900.md", true),
        ("team/scout/quarantine/2026-03-14_0900.md", true),
        ("scout/quarantined/2026-03-14_0900.md", false),
        ("2026-03-14_0900.md", false),
    ] {
        assert_eq!(is_quarantined(Path::new(path)), expected, "{path}");
    }
}

#[test]
fn repeated_release_gives_the_same_name() {
    let (_directory, archive, written) = archive_with_quarantined_entry();
    let other = archive.root().join("scout/2026-03-14_0900.md");
    std::fs::write(&other, "- of another run\n").unwrap();
    let released = archive.release_entry(&written).unwrap();
    assert_eq!(released.path, Path::new("scout/2026-03-14_0900-1.md"));
    assert_eq!(archive.release_entry(&written).unwrap(), released);
    assert_eq!(mode_of(&archive, &released.path), 0o644);
    archive.end_release(&written.path, &released.path).unwrap();
    assert!(archive.find_entry(&written.path).unwrap().is_none());
    assert_eq!(
        archive.digest_entry(&released.path).unwrap(),
        written.digest
    );
    // Once more, as after a crash.
    archive.end_release(&written.path, &released.path).unwrap();
    assert!(archive.find_entry(&released.path).unwrap().is_some());
}

#[test]
fn release_ends_only_for_the_same_file() {
    let (_directory, archive, written) = archive_with_quarantined_entry();
    let other = archive.root().join("scout/2026-03-14_0900.md");
    std::fs::write(&other, "- of another run\n").unwrap();
    let path = Path::new("scout/2026-03-14_0900.md");
    archive.end_release(&written.path, path).unwrap();
    assert!(archive.find_entry(&written.path).unwrap().is_some());
    assert!(archive.end_release(path, path).is_err());
}

#[test]
fn redacted_copy_has_the_time_of_its_entry() {
    let (_directory, archive, written) = archive_with_quarantined_entry();
    let copy = archive
        .write_redacted_copy(&written.path, b"- n\n")
        .unwrap();
    assert_eq!(copy.path, Path::new("scout/2026-03-14_0900-redacted.md"));
    assert_eq!(copy.kind, EntryKind::Redacted);
    assert_eq!(mode_of(&archive, &copy.path), 0o644);
}
