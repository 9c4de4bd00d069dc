//! Tests of entries as files: their names, modes, listing, release and deletion.

use chrono::DateTime;

use super::*;
use crate::archive::{EntryKind, agent_directory_of, format_entry_name, is_quarantined};
use crate::base::clock::SystemClock;
use crate::config::{Config, GeneralSettings};
use crate::store::file::ledger::FileLedger;
use crate::store::trigger::Trigger;

fn parse_time(text: &str) -> DateTime<FixedOffset> {
    DateTime::parse_from_rfc3339(text).unwrap()
}

/// The entries of an archive in a new directory, with entries of this mode.
fn entries_of_mode(entry_mode: u32) -> (tempfile::TempDir, FileEntries) {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    let config = Config::new(
        GeneralSettings::new(root.join("baselines"), root.clone()),
        Vec::new(),
    );
    let archive = Archive::new(&root, entry_mode, None);
    let (clock, user) = (Arc::new(SystemClock), "ops".to_string());
    let controller = Controller::new(config.unwrap(), clock, archive, user, Trigger::Cli);
    let controller = Arc::new(controller);
    let ledger: Arc<dyn Ledger> = Arc::new(FileLedger::new(&controller));
    (directory, FileEntries::new(&controller, &ledger))
}

#[test]
fn free_entry_name_is_found_in_few_lookups() {
    for count in [1, 2, 3, 7, 8, 5_000, 1_000_000, u32::MAX] {
        let lookups = std::cell::Cell::new(0);
        let is_taken = |number| {
            lookups.set(lookups.get() + 1);
            Ok(number < count)
        };
        assert_eq!(names::next_free_number(0, is_taken).unwrap(), Some(count));
        let lookups = lookups.get();
        assert!(lookups <= 64, "{lookups} lookups for {count}");
    }
    assert_eq!(names::next_free_number(0, |_| Ok(true)).unwrap(), None);
}

#[test]
fn entries_of_one_minute_are_numbered_past_gaps() {
    let time = parse_time("2026-03-14T09:00:00+00:00").naive_local();
    let names: Vec<String> = (0..300)
        .map(|number| format_entry_name(time, EntryKind::Late, number))
        .collect();
    let listed: Vec<(&str, &str)> = names
        .iter()
        .map(|name| (name.as_str(), "2026-03-14T09:00:00Z"))
        .collect();
    let (_directory, entries) = directory_with_entries(&listed);
    let scout = Path::new("scout");
    for expected in ["2026-03-14_0900-late-300.md", "2026-03-14_0900-late-301.md"] {
        let draft = entries.start(scout).unwrap();
        let written = draft.finish(EntryKind::Late, time).unwrap();
        assert_eq!(written.path, scout.join(expected));
    }
    // A gap does not cause a lookup of every name, and no entry is replaced.
    let gap = entries.location(scout).join(&names[150]);
    std::fs::remove_file(gap).unwrap();
    let draft = entries.start(scout).unwrap();
    draft.finish(EntryKind::Late, time).unwrap();
    assert_eq!(entries.list(scout).unwrap().len(), 302);
    // Each kind has its own numbers.
    let draft = entries.start(scout).unwrap();
    let written = draft.finish(EntryKind::Scratch, time).unwrap();
    assert_eq!(written.path, scout.join("2026-03-14_0900.md"));
}

/// A directory of empty entries, each with its change time.
fn directory_with_entries(names: &[(&str, &str)]) -> (tempfile::TempDir, FileEntries) {
    let (directory, entries) = entries_of_mode(0o600);
    let scout = entries.location(Path::new("scout"));
    std::fs::create_dir(&scout).unwrap();
    for (name, modified) in names {
        let file = File::create(scout.join(name)).unwrap();
        file.set_modified(parse_time(modified).into()).unwrap();
    }
    (directory, entries)
}

#[test]
fn expired_is_old_by_name_and_time_except_newest() {
    let old = "2026-01-01T00:00:00Z";
    let (_directory, entries) = directory_with_entries(&[
        ("2026-01-01_0900.md", old),
        ("2026-01-03_0900.md", "2026-03-10T00:00:00Z"),
        ("2026-01-04_0900-full-backup.md", old),
        ("2026-01-05_0900.txt", old),
        ("2026-02-10_0900.md", old),
    ]);
    let limit = parse_time("2026-02-12T09:00:00Z");
    let expired = |keep_newest| -> Vec<PathBuf> {
        let expired = entries
            .list_expired("scout".as_ref(), limit, Zone::UTC, keep_newest)
            .unwrap();
        expired.into_iter().map(|entry| entry.path).collect()
    };
    let mut gone = ["2026-01-01_0900.md", "2026-01-04_0900-full-backup.md"]
        .map(|name| Path::new("scout").join(name))
        .to_vec();
    assert_eq!(expired(true), gone);
    gone.push("scout/2026-02-10_0900.md".into());
    assert_eq!(expired(false), gone);
    let none = entries
        .list_expired("unknown".as_ref(), limit, Zone::UTC, true)
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
    let (_directory, entries) =
        directory_with_entries(&names.map(|name| (name, "2026-01-01T00:00:00Z")));
    let listed = entries.list("scout".as_ref()).unwrap();
    let [one, two, three] = listed.as_slice() else {
        panic!("{listed:?}")
    };
    let path = |entry: &ArchiveEntry| entries.location(&entry.path);
    std::fs::write(path(one), "another").unwrap();
    assert_eq!(entries.delete(one).unwrap_err().kind(), ErrorKind::Conflict);
    std::fs::remove_file(path(two)).unwrap();
    std::os::unix::fs::symlink(path(one), path(two)).unwrap();
    assert!(!entries.delete(two).unwrap());
    assert!(path(two).is_symlink() && path(one).exists());
    assert!(entries.delete(three).unwrap());
    assert!(!entries.delete(three).unwrap());
    assert!(!path(three).exists());
    // A directory replaced by a symlink is not followed.
    let scout = entries.archive().root().join("scout");
    std::fs::rename(&scout, entries.archive().root().join("away")).unwrap();
    std::os::unix::fs::symlink("away", &scout).unwrap();
    assert!(entries.delete(one).is_err());
    assert!(
        entries
            .archive()
            .root()
            .join("away/2026-01-01_0900.md")
            .exists()
    );
}

#[test]
fn find_entry_rejects_paths_not_of_entries() {
    let (_directory, entries) =
        directory_with_entries(&[("2026-01-01_0900.md", "2026-01-01T00:00:00Z")]);
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
            entries.find(path.as_ref()).unwrap().is_some(),
            is_entry,
            "{path}"
        );
    }
}

#[test]
fn directory_below_a_claimed_one_is_unclaimed() {
    let (_directory, entries) = directory_with_entries(&[]);
    let deep = (0..40).map(|_| "d").collect::<Vec<_>>().join("/");
    for path in ["team/a/b", "team/claimed/c", ".shepherd/tx", deep.as_str()] {
        std::fs::create_dir_all(entries.archive().root().join(path)).unwrap();
    }
    std::os::unix::fs::symlink("team", entries.archive().root().join("link")).unwrap();
    let claimed = ["scout", "team", "team/claimed"].map(Path::new);
    let found = entries
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
    assert_eq!(depth, Some(directories::MAX_SEARCH_DEPTH));
}

/// One entry in quarantine.
fn quarantined_entry() -> (tempfile::TempDir, FileEntries, WrittenEntry) {
    let (directory, entries) = entries_of_mode(0o644);
    let at = parse_time("2026-03-14T09:00:00+01:00").naive_local();
    let mut draft = entries.start(Path::new("scout/quarantine")).unwrap();
    draft.write(b"- note\n").unwrap();
    let written = draft.finish(EntryKind::Scratch, at).unwrap();
    (directory, entries, written)
}

fn mode_of(entries: &FileEntries, path: impl AsRef<Path>) -> u32 {
    let stat = durable::stat_no_symlinks(&entries.location(path.as_ref())).unwrap();
    stat.st_mode & 0o7777
}

#[test]
fn quarantine_stays_private_in_any_mode() {
    let (_directory, entries, written) = quarantined_entry();
    assert_eq!(
        written.path,
        Path::new("scout/quarantine/2026-03-14_0900.md")
    );
    assert!(is_quarantined(&written.path));
    assert_eq!(mode_of(&entries, &written.path), 0o600);
    let quarantine = Path::new("scout/quarantine");
    fs::chmod(
        entries.archive().root().join(quarantine),
        Mode::from_raw_mode(0o755),
    )
    .unwrap();
    entries
        .archive()
        .open_or_create_directory(quarantine)
        .unwrap();
    assert_eq!(mode_of(&entries, quarantine), 0o700);
    let listed = entries.list(Path::new("scout")).unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].path, written.path);
    assert_eq!(agent_directory_of(&written.path), Path::new("scout"));
}

#[test]
fn pin_of_released_entry_concerns_its_new_name() {
    let (_directory, entries, written) = quarantined_entry();
    let own = entries.archive().program_path("");
    std::fs::create_dir_all(&own).unwrap();
    let released = entries.release(&written).unwrap();
    entries.end_release(&written.path, &released.path).unwrap();
    let line = format!("{}\n", written.path.display());
    std::fs::write(entries.archive().program_path("pins"), line).unwrap();
    let faults = entries.pins().unwrap().find_faults();
    assert_eq!(faults.len(), 1);
    assert!(faults[0].may_concern(&released.path), "{faults:?}");
    assert!(!faults[0].may_concern(Path::new("ranger/2026-03-14_0900.md")));
}

#[test]
fn repeated_release_gives_the_same_name() {
    let (_directory, entries, written) = quarantined_entry();
    let other = entries.location("scout/2026-03-14_0900.md".as_ref());
    std::fs::write(&other, "- of another run\n").unwrap();
    let released = entries.release(&written).unwrap();
    assert_eq!(released.path, Path::new("scout/2026-03-14_0900-1.md"));
    assert_eq!(entries.release(&written).unwrap(), released);
    assert_eq!(mode_of(&entries, &released.path), 0o644);
    entries.end_release(&written.path, &released.path).unwrap();
    assert!(entries.find(&written.path).unwrap().is_none());
    assert_eq!(entries.digest(&released.path).unwrap(), written.digest);
    // Once more, as after a crash.
    entries.end_release(&written.path, &released.path).unwrap();
    assert!(entries.find(&released.path).unwrap().is_some());
}

#[test]
fn redacted_copy_has_the_usual_mode() {
    let (_directory, entries, written) = quarantined_entry();
    let copy = entries.write_redacted_copy(&written.path, b"- n\n");
    assert_eq!(mode_of(&entries, copy.unwrap().path), 0o644);
}
