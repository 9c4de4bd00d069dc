//! What entries do in every store.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use chrono::{DateTime, FixedOffset};

use super::{Site, for_each_store};
use crate::archive::{ArchiveEntry, EntryKind, WrittenEntry};
use crate::base::digest::Digest;
use crate::base::error::ErrorKind;
use crate::base::moment::Zone;
use crate::store::entries::{Entries, EntryObject};
use crate::store::ledger::Ledger;
use crate::store::record::{LedgerPosition, Operation, RunEvent};
use crate::store::trigger::Trigger;

/// Returns what the ledger records of the archive, oldest first.
fn read_archive_records(ledger: &dyn Ledger) -> Vec<RunEvent> {
    let mut scan = ledger.scan(LedgerPosition::default()).unwrap().unwrap();
    let mut events = Vec::new();
    while let Some(record) = scan.next_record().unwrap() {
        events.extend(record.event.agent.is_empty().then_some(record.event));
    }
    events
}

fn parse_time(text: &str) -> DateTime<FixedOffset> {
    DateTime::parse_from_rfc3339(text).unwrap()
}

impl Site {
    fn entries(&self) -> &dyn Entries {
        self.entries[0].as_ref()
    }

    /// The entries, as another process has them.
    fn other_entries(&self) -> &dyn Entries {
        self.entries[1].as_ref()
    }

    /// Writes an entry at this minute past 9 o'clock.
    fn put(&self, directory: &str, kind: EntryKind, minute: u32, text: &str) -> WrittenEntry {
        let at = parse_time(&format!("2026-03-14T09:{minute:02}:59+01:00"));
        let mut draft = self.entries().start(Path::new(directory)).unwrap();
        draft.write(text.as_bytes()).unwrap();
        assert_eq!(draft.size(), text.len() as u64);
        draft.finish(kind, at.naive_local()).unwrap()
    }

    fn find(&self, written: &WrittenEntry) -> ArchiveEntry {
        self.other_entries().find(&written.path).unwrap().unwrap()
    }

    /// Deletes an entry with a record of that. Returns the deleted entries, and why others stay.
    fn retire(&self, entry: &ArchiveEntry) -> (Vec<PathBuf>, Vec<ErrorKind>) {
        let mut record = RunEvent::for_archive("5a10c3d2", Operation::Retire, Trigger::Cli, "ops");
        record.retired_entries = vec![entry.path.clone()];
        let deletable = self.entries().lock_for_deletion().unwrap();
        let retired = deletable
            .retire(record, std::slice::from_ref(entry))
            .unwrap();
        let errors = retired.errors.iter().map(|error| error.kind());
        (retired.deleted, errors.collect())
    }
}

fn listed(entries: &dyn Entries, directory: &str) -> Vec<String> {
    let listed = entries.list(Path::new(directory)).unwrap().into_iter();
    listed.map(|it| it.path.display().to_string()).collect()
}

#[test]
fn entry_is_read_by_its_name_in_another_process() {
    for_each_store(|site| {
        let text = "# scout scratch notes\n\n- a\n\0\r\n";
        let written = site.put("scout", EntryKind::Scratch, 0, text);
        assert_eq!(written.path, Path::new("scout/2026-03-14_0900.md"));
        let (digest, size) = (Digest::of(text.as_bytes()), text.len() as u64);
        assert_eq!((written.digest, written.size), (digest, size));
        let other = site.other_entries();
        let found = site.find(&written);
        assert_eq!(
            (found.size, found.kind, found.number),
            (size, EntryKind::Scratch, 0)
        );
        let mut reader = other.open(&written.path).unwrap();
        assert_eq!(reader.size().unwrap(), size);
        reader.seek(SeekFrom::Start(2)).unwrap();
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, text[2..]);
        assert_eq!(other.digest(&written.path).unwrap(), digest);
        assert_eq!(
            other.probe(&written.path).unwrap(),
            EntryObject::Entry(size)
        );
        assert_eq!(other.read_entry(&written, 5).unwrap(), b"# sco");
        let whole = other.location(&written.path);
        assert_eq!(other.resolve_typed(&whole).unwrap(), written.path);
        assert_eq!(other.find_typed(&whole).unwrap(), found);
    });
}

#[test]
fn draft_without_a_name_is_no_entry() {
    for_each_store(|site| {
        let mut draft = site.entries().start(Path::new("scout")).unwrap();
        draft.write(b"- a\n").unwrap();
        draft.start_writeback();
        assert!(listed(site.other_entries(), "scout").is_empty());
        drop(draft);
        assert!(listed(site.other_entries(), "scout").is_empty());
    });
}

#[test]
fn taken_name_gets_a_number() {
    for_each_store(|site| {
        let first = site.put("scout", EntryKind::Late, 0, "first");
        let draft = site.other_entries().start(Path::new("scout")).unwrap();
        let local = site.find(&first).stamp;
        let second = draft.finish(EntryKind::Late, local).unwrap();
        let third = site.put("scout", EntryKind::Late, 0, "third");
        let paths = [&first, &second, &third].map(|it| it.path.display().to_string());
        assert_eq!(
            paths,
            ["", "-1", "-2"].map(|number| format!("scout/2026-03-14_0900-late{number}.md"))
        );
        assert_eq!(
            site.entries().digest(&first.path).unwrap(),
            Digest::of(b"first")
        );
        // Each kind has its own numbers, and so has each directory.
        for (directory, kind) in [("scout", EntryKind::Scratch), ("ranger", EntryKind::Late)] {
            let written = site.put(directory, kind, 0, "another");
            assert_eq!(site.find(&written).number, 0);
        }
    });
}

#[test]
fn list_is_oldest_first_with_the_quarantine() {
    for_each_store(|site| {
        assert!(listed(site.entries(), "scout").is_empty());
        site.put("scout", EntryKind::FullBackup, 2, "");
        site.put("scout", EntryKind::Scratch, 1, "");
        site.put("scout/quarantine", EntryKind::Scratch, 0, "");
        site.put("scout", EntryKind::Scratch, 2, "");
        site.put("scout", EntryKind::Scratch, 1, "again");
        site.put("left/deep", EntryKind::Scratch, 1, "");
        assert_eq!(
            listed(site.other_entries(), "scout"),
            [
                "scout/quarantine/2026-03-14_0900.md",
                "scout/2026-03-14_0901.md",
                "scout/2026-03-14_0901-1.md",
                "scout/2026-03-14_0902.md",
                "scout/2026-03-14_0902-full-backup.md",
            ]
        );
        let scout = Path::new("scout");
        assert_eq!(site.entries().count_quarantined(scout), 1);
        assert!(!site.entries().has_hidden_quarantine(scout));
        let directories = site.entries().entry_directories().unwrap();
        let directories = directories
            .iter()
            .map(|it| (it.path.display().to_string(), it.has_left()));
        assert_eq!(
            directories.collect::<Vec<_>>(),
            [("left", true), ("left/deep", true), ("scout", false)]
                .map(|(path, has_left)| (path.to_string(), has_left))
        );
    });
}

#[test]
fn newest_entry_of_a_directory_does_not_expire() {
    for_each_store(|site| {
        site.put("scout", EntryKind::Scratch, 0, "");
        site.put("scout", EntryKind::Late, 1, "");
        let expired = |limit: &str, keep_newest| {
            let limit = parse_time(limit);
            let scout = Path::new("scout");
            let listed = site
                .entries()
                .list_expired(scout, limit, Zone::UTC, keep_newest);
            listed
                .unwrap()
                .into_iter()
                .map(|it| it.path)
                .collect::<Vec<_>>()
        };
        let far = "2999-01-01T00:00:00Z";
        let all =
            ["2026-03-14_0900.md", "2026-03-14_0901-late.md"].map(|it| Path::new("scout").join(it));
        assert_eq!(expired(far, false), all);
        assert_eq!(expired(far, true), all[..1]);
        assert!(expired("2026-03-14T09:00:00Z", false).is_empty());
    });
}

#[test]
fn absent_entry_is_an_error_that_names_it() {
    for_each_store(|site| {
        let absent = Path::new("scout/2026-03-14_0900.md");
        let entries = site.entries();
        for path in [
            absent,
            Path::new("scout/notes.md"),
            Path::new("../notes.md"),
        ] {
            assert_eq!(entries.find(path).unwrap(), None);
            assert_eq!(entries.probe(path).unwrap(), EntryObject::Absent);
            let error = entries.open(path).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Host);
            assert!(error.message().contains(path.to_str().unwrap()), "{error}");
            assert!(entries.digest(path).is_err());
        }
        for error in [
            entries.find_typed(absent).unwrap_err(),
            entries
                .set_pinned(&[absent.to_path_buf()], true)
                .unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::User);
            assert!(
                error.message().contains("scout/2026-03-14_0900.md"),
                "{error}"
            );
        }
    });
}

#[test]
fn pin_is_recorded_once_and_seen_by_others() {
    for_each_store(|site| {
        let written = site.put("scout", EntryKind::Scratch, 0, "- a\n");
        let names = vec![written.path.clone()];
        let set = |is_pinned| site.entries().set_pinned(&names, is_pinned).unwrap();
        assert_eq!(set(true), names);
        assert!(set(true).is_empty(), "it is pinned");
        let pins = site.other_entries().pins().unwrap();
        assert_eq!(pins.entries().iter().collect::<Vec<_>>(), [&written.path]);
        assert_eq!(pins.find_faults(), []);
        // All of them, or none.
        let absent = PathBuf::from("scout/2026-03-14_0905.md");
        let other = site.put("scout", EntryKind::Scratch, 1, "- b\n").path;
        assert!(site.entries().set_pinned(&[other, absent], true).is_err());
        assert_eq!(set(false), names);
        assert!(site.other_entries().pins().unwrap().entries().is_empty());
        let records = read_archive_records(&*site.ledger);
        let records: Vec<_> = records
            .iter()
            .map(|it| (it.operation, &it.pinned_entries))
            .collect();
        assert_eq!(
            records,
            [(Operation::Pin, &names), (Operation::Unpin, &names)]
        );
    });
}

#[test]
fn pin_of_a_deleted_entry_is_a_fault() {
    for_each_store(|site| {
        let written = site.put("scout", EntryKind::Scratch, 0, "- a\n");
        let names = [written.path.clone()];
        site.entries().set_pinned(&names, true).unwrap();
        site.retire(&site.find(&written));
        let faults = site.entries().pins().unwrap().find_faults();
        assert_eq!(faults.len(), 1);
        assert!(
            faults[0].to_string().contains("scout/2026-03-14_0900.md"),
            "{faults:?}"
        );
        assert!(faults[0].may_concern(Path::new("scout/2026-03-14_0905.md")));
        assert!(!faults[0].may_concern(Path::new("ranger/2026-03-14_0900.md")));
        // A deleted entry can still be unpinned.
        assert_eq!(site.entries().set_pinned(&names, false).unwrap(), names);
        assert_eq!(site.entries().pins().unwrap().find_faults(), []);
    });
}

#[test]
fn retired_entry_is_recorded_and_gone() {
    for_each_store(|site| {
        let written = site.put("scout", EntryKind::Scratch, 0, "- a\n");
        let kept = site.put("scout", EntryKind::Scratch, 1, "- b\n");
        let found = site.find(&written);
        let replaced = ArchiveEntry {
            size: 7,
            ..site.find(&kept)
        };
        let conflict = (Vec::new(), vec![ErrorKind::Conflict]);
        assert_eq!(
            site.retire(&replaced),
            conflict,
            "it was replaced since it was listed"
        );
        assert_eq!(
            site.retire(&found),
            (vec![written.path.clone()], Vec::new())
        );
        assert_eq!(site.retire(&found), Default::default(), "it is gone");
        let other = site.other_entries();
        assert_eq!(other.find(&written.path).unwrap(), None);
        assert_eq!(listed(other, "scout"), ["scout/2026-03-14_0901.md"]);
        let records = read_archive_records(&*site.ledger).into_iter();
        let names: Vec<PathBuf> = records.flat_map(|it| it.retired_entries).collect();
        assert_eq!(
            names,
            [&kept.path, &written.path, &written.path].map(PathBuf::clone)
        );
    });
}

#[test]
fn released_entry_has_two_names_until_release_ends() {
    for_each_store(|site| {
        let entries = site.entries();
        site.put("scout", EntryKind::Scratch, 0, "- of another run\n");
        let written = site.put("scout/quarantine", EntryKind::Scratch, 0, "- a\n");
        let released = entries.release(&written).unwrap();
        assert_eq!(released.path, Path::new("scout/2026-03-14_0900-1.md"));
        // As after a crash.
        assert_eq!(entries.release(&written).unwrap(), released);
        assert_eq!(listed(entries, "scout").len(), 3);
        for _ in 0..2 {
            entries.end_release(&written.path, &released.path).unwrap();
            assert_eq!(entries.find(&written.path).unwrap(), None);
            assert_eq!(entries.digest(&released.path).unwrap(), written.digest);
        }
    });
}

#[test]
fn release_ends_only_for_the_same_entry() {
    for_each_store(|site| {
        let other = site.put("scout", EntryKind::Scratch, 0, "- of another run\n");
        let written = site.put("scout/quarantine", EntryKind::Scratch, 0, "- a\n");
        site.entries()
            .end_release(&written.path, &other.path)
            .unwrap();
        site.find(&written);
        assert!(
            site.entries()
                .end_release(&other.path, &other.path)
                .is_err()
        );
    });
}

#[test]
fn redacted_copy_has_the_time_of_its_entry() {
    for_each_store(|site| {
        let written = site.put("scout/quarantine", EntryKind::Scratch, 0, "- secret\n");
        let copy = site
            .entries()
            .write_redacted_copy(&written.path, b"- n\n")
            .unwrap();
        assert_eq!(copy.path, Path::new("scout/2026-03-14_0900-redacted.md"));
        assert_eq!((copy.kind, site.find(&copy).size), (EntryKind::Redacted, 4));
    });
}
