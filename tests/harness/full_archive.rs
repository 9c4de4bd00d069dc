//! A full disk of the archive: a reset that it prevents, and `archive prune`, free it.

use std::fs::{self, File};
use std::io::Write;
use std::process::Output;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use tempfile::TempDir;

use super::fake_time::FakeTime;
use super::fixture::Fleet;
use super::mounts::{Mount, may_mount};
use super::processes::test_directory;
use super::scene::output_text;

/// Number of expired entries: their record is longer than the page that the ledger ends in.
const EXPIRED_ENTRIES: usize = 150;

/// A fleet of one agent whose archive is a small disk with expired entries and no space left.
struct FullArchive {
    fleet: Fleet,
    _mount: Mount,
    _directory: TempDir,
}

impl FullArchive {
    fn new(fake_time: FakeTime) -> FullArchive {
        let (directory, root) = test_directory(false);
        let root = root.join("fleet");
        let archive = root.join("archives");
        let words = ["-t", "tmpfs", "-o", "mode=755,size=2M", "none"];
        let mount = Mount::new(&words, &archive).unwrap();
        let full = FullArchive {
            fleet: Fleet::new(&root, &archive, &["scout"]),
            _mount: mount,
            _directory: directory,
        };
        full.fleet.append_note("scout", "- a note of old\n");
        // The second run confirms the date. A long pause would date the entries later.
        for time in ["-4d", "-2d"] {
            let mut command = full.fleet.command(&[], &["reset", "--all"]);
            fake_time.apply(&mut command, time);
            let output = command.output().unwrap();
            assert!(output.status.success(), "{}", output_text(&output));
        }
        full.add_expired_entries();
        full.fill_disk();
        full
    }

    /// Adds entries of the original tool.
    fn add_expired_entries(&self) {
        let age = Duration::from_secs(60 * 24 * 60 * 60);
        for number in 0..EXPIRED_ENTRIES {
            let (hour, minute) = (number / 60, number % 60);
            let name = format!("scout/2020-01-01_{hour:02}{minute:02}.md");
            let mut file = File::create(self.fleet.archive.join(name)).unwrap();
            file.write_all(b"- of the original\n").unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
        }
    }

    fn fill_disk(&self) {
        let mut filler = File::create(self.fleet.archive.join("filler")).unwrap();
        while filler.write_all(&[1; 4096]).is_ok() {}
    }

    fn reserve_length(&self) -> u64 {
        let reserve = self.fleet.archive.join(".shepherd/ledger.reserve");
        fs::metadata(reserve).map_or(0, |meta| meta.len())
    }

    /// The number of entries that have expired.
    fn count_expired(&self) -> usize {
        let names = self.fleet.entries("scout").into_keys();
        names.filter(|name| name.starts_with("2020-")).count()
    }

    #[track_caller]
    fn run(&self, arguments: &[&str], code: i32) -> Output {
        let output = self.fleet.run(arguments);
        assert_eq!(output.status.code(), Some(code), "{}", output_text(&output));
        output
    }
}

#[test]
fn reset_on_full_archive_makes_space_for_the_next() {
    if !may_mount("full_archive::reset_on_full_archive_makes_space_for_the_next") {
        return;
    }
    let Some(fake_time) = FakeTime::find() else {
        return;
    };
    let full = FullArchive::new(fake_time);
    full.fleet
        .append_note("scout", &"- a new note\n".repeat(2000));
    let memory = fs::read(full.fleet.memory_path("scout")).unwrap();
    let output = full.run(&["reset", "--all", "--json"], 3);
    assert_eq!(fs::read(full.fleet.memory_path("scout")).unwrap(), memory);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["results"][0]["outcome"], "failed");
    let retired = document["retired"].as_array().unwrap();
    assert_eq!(retired.len(), EXPIRED_ENTRIES, "{}", output_text(&output));
    assert_eq!(full.count_expired(), 0);
    full.run(&["reset", "--all"], 0);
    let entries = full.fleet.entries("scout").into_values();
    let notes = "- a new note\n".repeat(2000).into_bytes();
    assert!(entries.into_iter().any(|entry| entry.ends_with(&notes)));
    full.run(&["verify"], 0);
}

#[test]
fn prune_on_full_archive_uses_the_reserve() {
    if !may_mount("full_archive::prune_on_full_archive_uses_the_reserve") {
        return;
    }
    let Some(fake_time) = FakeTime::find() else {
        return;
    };
    let full = FullArchive::new(fake_time);
    let reserved = full.reserve_length();
    assert!(reserved > 0);
    full.run(&["archive", "prune"], 0);
    assert_eq!(full.count_expired(), 0);
    assert_eq!(full.reserve_length(), reserved, "it is made again");
    full.run(&["verify"], 0);
    // Without it, the message says what to do.
    fs::remove_file(full.fleet.archive.join(".shepherd/ledger.reserve")).unwrap();
    full.add_expired_entries();
    full.fill_disk();
    let output = full.run(&["archive", "prune"], 3);
    let message = output_text(&output);
    assert!(message.contains("no space left on device"), "{message}");
    assert!(
        message.contains("hint: a deletion is recorded"),
        "{message}"
    );
    assert_eq!(full.count_expired(), EXPIRED_ENTRIES);
}
