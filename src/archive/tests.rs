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
            .expired_entries("scout".as_ref(), limit, keep_newest)
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
        .expired_entries("unknown".as_ref(), limit, true)
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
    archive.delete_entry(two).unwrap();
    assert!(path(two).is_symlink() && path(one).exists());
    archive.delete_entry(three).unwrap();
    archive.delete_entry(three).unwrap();
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
