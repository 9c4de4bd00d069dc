//! What every store does, tested on the one in files and on the one in memory.

mod entries;
mod memory;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use chrono::{DateTime, FixedOffset};

use crate::archive::PROGRAM_DIRECTORY_NAME;
use crate::base::clock::{Clock, SystemClock};
use crate::base::digest::Digest;
use crate::base::durable;
use crate::base::error::ErrorKind;
use crate::config::{Agent, Config, GeneralSettings};
use crate::store::controller::Controller;
use crate::store::entries::Entries;
use crate::store::file::ledger::FileLedger;
use crate::store::holds::{Hold, Holds};
use crate::store::journal::{JournalRecord, Journals, Transaction, TransactionFile};
use crate::store::lease::{Leases, LockHolder};
use crate::store::ledger::Ledger;
use crate::store::observations::{Observations, SeenState, StateNote, StateObserver};
use crate::store::record::{LedgerPosition, LedgerRecord, Operation, RunEvent};
use crate::store::state::State;
use crate::store::trigger::Trigger;
use crate::store::versions::Versions;
use crate::store::{Store, locate_archive};
use memory::{MemoryLedger, MemoryStore};

/// A clock that stands still, except for waits.
struct WaitingClock {
    began: Instant,
    waited: Mutex<Duration>,
}

impl Clock for WaitingClock {
    fn now(&self) -> DateTime<FixedOffset> {
        DateTime::parse_from_rfc3339("2026-03-14T09:00:30+01:00").unwrap()
    }

    fn instant(&self) -> Instant {
        self.began + *self.waited.lock().unwrap()
    }

    fn sleep(&self, duration: Duration) {
        *self.waited.lock().unwrap() += duration;
    }
}

type Damage = dyn Fn(&str, &str);

/// A store under test.
struct Site {
    holder: LockHolder,
    holds: Arc<dyn Holds>,
    /// The entries, as two processes have them.
    entries: [Arc<dyn Entries>; 2],
    journals: Arc<dyn Journals>,
    leases: Arc<dyn Leases>,
    ledger: Arc<dyn Ledger>,
    /// The ledger as another process has it.
    other_ledger: Arc<dyn Ledger>,
    observations: Arc<dyn Observations>,
    versions: Arc<dyn Versions>,
    /// Takes the agent away from its holder.
    take_over: Box<dyn Fn()>,
    /// Replaces a text in the records, by one of the same length.
    damage: Box<Damage>,
}

/// Calls a test with each store.
fn for_each_store(test: impl Fn(&Site)) {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    let mut general = GeneralSettings::new(root.join("baselines"), root.join("archives"));
    general.min_baseline_size = 0;
    let agent = Agent::new(&general, "scout", root.join("MEMORY.md"), "scout.md");
    let config = Config::new(general, vec![agent]).unwrap();
    let clock = Arc::new(WaitingClock {
        began: SystemClock.instant(),
        waited: Mutex::default(),
    });
    let user = "ops".to_string();
    let archive = locate_archive(&config, None);
    let controller = Controller::new(config, clock.clone(), archive, user, Trigger::Cli);
    let controller = Arc::new(controller);
    // A run has begun the archive.
    let own = controller
        .archive()
        .open_or_create_directory(PROGRAM_DIRECTORY_NAME.as_ref());
    drop(own.unwrap());
    let store = Store::new(&controller);
    let holder = store.locks.new_lock_holder("5a10c3d2");
    let ledger_path = store.ledger.location();
    let lock = controller
        .archive()
        .program_path("locks")
        .join("scout.lock");
    test(&Site {
        holder: holder.clone(),
        holds: store.holds,
        entries: [store.entries, Store::new(&controller).entries],
        journals: store.journals,
        leases: store.leases,
        ledger: store.ledger,
        other_ledger: Arc::new(FileLedger::new(&controller)),
        observations: store.observations,
        versions: store.versions,
        take_over: Box::new(move || std::fs::remove_file(&lock).unwrap()),
        damage: Box::new(move |from, to| {
            let text = std::fs::read_to_string(&ledger_path).unwrap();
            std::fs::write(&ledger_path, text.replace(from, to)).unwrap();
        }),
    });
    let store = Arc::new(MemoryStore::new(&controller, holder.clone()));
    let (taken, damaged) = (Arc::clone(&store), Arc::clone(&store));
    test(&Site {
        holder,
        holds: store.clone(),
        entries: [store.clone(), store.clone()],
        journals: store.clone(),
        leases: store.clone(),
        ledger: Arc::new(MemoryLedger::new(&store)),
        other_ledger: Arc::new(MemoryLedger::new(&store)),
        observations: store.clone(),
        versions: store,
        take_over: Box::new(move || taken.take_over("scout")),
        damage: Box::new(move |from, to| damaged.replace_in_records(from, to)),
    });
}

#[test]
fn document_is_replaced_as_a_whole_under_its_lock() {
    for_each_store(|site| {
        for hold in [
            Hold::Schedule,
            Hold::Alerts,
            Hold::AcceptedSeal,
            Hold::SealSerials,
            Hold::Health,
            Hold::BaselineChanges,
        ] {
            assert_eq!(site.holds.read(hold).unwrap(), None);
            let mut lock = site.holds.lock(hold).unwrap();
            assert_eq!(lock.read().unwrap(), None);
            let refused = site.holds.lock(hold).err().unwrap();
            assert_eq!(refused.kind(), ErrorKind::Busy);
            assert!(refused.to_string().contains("of ops since "), "{refused}");
            lock.replace(Some(b"longer than the next")).unwrap();
            lock.replace(Some(b"short")).unwrap();
            assert_eq!(lock.read().unwrap().unwrap(), b"short");
            let holder = site.holds.holder(hold).unwrap().unwrap();
            assert_eq!(holder.user, site.holder.user);
            drop(lock);
            assert_eq!(site.holds.holder(hold), None);
            assert_eq!(site.holds.read(hold).unwrap().unwrap(), b"short");
            site.holds.lock(hold).unwrap().replace(None).unwrap();
            assert_eq!(site.holds.read(hold).unwrap(), None);
        }
    });
}

impl Site {
    fn transaction(&self, name: &str) -> Transaction {
        let event = RunEvent::new("5a10c3d2", Operation::Reset, Trigger::Cli, "ops", "scout");
        Transaction {
            event,
            files: vec![TransactionFile {
                path: "/MEMORY.md".into(),
                directory_id: None,
                staged_name: name.to_string(),
                inode: 0,
                known_digests: vec![Digest::of(b"before")],
            }],
            connection_target: None,
            removed_directories: Vec::new(),
            ledger_seq: 7,
        }
    }
}

#[test]
fn journal_is_there_until_it_is_removed() {
    for_each_store(|site| {
        assert!(site.journals.list().unwrap().is_empty());
        let name = durable::new_random_name().unwrap();
        let transaction = site.transaction(&name);
        let (journal, unsynced) = site.journals.create("scout", &transaction).unwrap();
        durable::sync_all(unsynced).unwrap();
        let taken_over = JournalRecord::TakenOver {
            file: 0,
            name: durable::new_random_name().unwrap(),
        };
        journal.append_durably(&JournalRecord::Decided).unwrap();
        let path = journal.path().to_path_buf();
        drop(journal);
        let journal = site.journals.open(&path).unwrap();
        journal.append_durably(&taken_over).unwrap();
        let listed = site.journals.list().unwrap();
        assert_eq!(listed, [("scout".to_string(), path.clone())]);
        let (read, records) = site.journals.read(&path).unwrap().unwrap();
        assert_eq!((read.ledger_seq, &read.files[0].staged_name), (7, &name));
        assert!(matches!(
            records.as_slice(),
            [JournalRecord::Decided, JournalRecord::TakenOver { .. }]
        ));
        assert!(site.journals.has_journal("scout") && !site.journals.has_journal("ranger"));
        assert_eq!(site.journals.random_names().unwrap().len(), 2);
        assert!(
            site.journals
                .digests()
                .unwrap()
                .contains(&Digest::of(b"before"))
        );
        site.journals.remove(&path).unwrap();
        assert!(site.journals.list().unwrap().is_empty());
        assert_eq!(site.journals.text(&path).unwrap(), None);
    });
}

#[test]
fn agent_is_granted_to_one_run_at_a_time() {
    for_each_store(|site| {
        assert!(!site.leases.is_held("scout"));
        let lease = site.leases.acquire("scout", &site.holder).unwrap();
        let stamp = site.leases.survey().stamp("scout");
        let held = site.leases.survey().find_held("scout").unwrap();
        assert_eq!(held.holder.as_ref(), Some(&site.holder));
        let refused = site.leases.acquire("scout", &site.holder).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Busy);
        assert!(
            refused.message().contains("by run 5a10c3d2 of ops"),
            "{refused}"
        );
        assert!(site.leases.acquire("ranger", &site.holder).is_ok());
        lease.check().unwrap();
        let token = lease.token();
        site.append("scout", &["note"]);
        drop(lease);
        assert!(!site.leases.is_held("scout"));
        assert_ne!(site.leases.survey().stamp("scout"), stamp);
        let next = site.leases.acquire("scout", &site.holder).unwrap();
        assert!(next.token() > token);
    });
}

#[test]
fn lease_that_was_taken_over_allows_nothing() {
    for_each_store(|site| {
        let lease = site.leases.acquire("scout", &site.holder).unwrap();
        lease.check().unwrap();
        (site.take_over)();
        assert_eq!(lease.check().unwrap_err().kind(), ErrorKind::Busy);
    });
}

#[test]
fn state_change_is_recorded_by_the_first_note_of_it() {
    for_each_store(|site| {
        let note = |state, seconds: i64| StateNote::Seen {
            seen: SeenState {
                agent: "scout".to_string(),
                state,
                reason: String::new(),
                time: site.holder.since - chrono::Duration::seconds(100 - seconds),
            },
            observer: StateObserver::Cli,
        };
        assert_eq!(site.observations.known_states(&["scout"]), [None]);
        for (state, seconds) in [(State::Clean, 0), (State::Drifted, 1), (State::Drifted, 2)] {
            site.observations.note(&[note(state, seconds)]);
        }
        // An older observation changes nothing.
        assert!(!site.observations.has_news(&[note(State::Clean, 0)]));
        let since = site.observations.state_since("scout", State::Drifted);
        assert_eq!(
            since,
            Some(site.holder.since - chrono::Duration::seconds(99))
        );
        let changes = site.observations.changes().unwrap();
        let changes: Vec<_> = changes.iter().map(|it| (it.from, it.to)).collect();
        assert_eq!(changes, [(Some(State::Clean), State::Drifted)]);
        site.observations
            .note(&[StateNote::Forgotten("scout".to_string())]);
        assert_eq!(
            site.observations.known_states(&["scout", "ranger"]),
            [None, None]
        );
        assert_eq!(site.observations.changes().unwrap().len(), 1);
    });
}

#[test]
fn version_stored_since_it_was_listed_is_not_deleted() {
    for_each_store(|site| {
        let (kept, gone) = (b"# Kept\n", b"# Gone\n");
        let digest = site.versions.store(kept).unwrap();
        let other = site.versions.store(gone).unwrap();
        assert_eq!(site.versions.store(kept).unwrap(), digest);
        assert_eq!(**site.versions.read_version(digest).unwrap(), *kept);
        assert_eq!(site.versions.digest_version(digest).unwrap(), Some(digest));
        let mut digests = site.versions.digests().unwrap();
        digests.sort();
        let mut expected = vec![digest, other];
        expected.sort();
        assert_eq!(digests, expected);
        let listed = site.versions.list().unwrap();
        let deletable = site.versions.lock_for_deletion().unwrap();
        let version = listed.iter().find(|it| it.digest == other).unwrap();
        assert!(deletable.delete(version).unwrap());
        assert!(deletable.delete(version).unwrap(), "it is gone");
        drop(deletable);
        assert_eq!(site.versions.digest_version(other).unwrap(), None);
        assert!(site.versions.read_version(other).is_err());
        // A process that stores it again relies on it: an earlier listing deletes nothing.
        site.versions.store(gone).unwrap();
        let deletable = site.versions.lock_for_deletion().unwrap();
        assert!(!deletable.delete(version).unwrap());
        assert_eq!(site.versions.last_check(), None);
        site.versions.note_check();
        assert_eq!(
            site.versions.last_check(),
            Some(site.holder.since.timestamp())
        );
    });
}

impl Site {
    /// Appends a reset of an agent with each of these notes, as one run does.
    fn append(&self, agent: &str, notes: &[&str]) {
        let events = notes.iter().map(|note| RunEvent {
            note: Some(note.to_string()),
            ..RunEvent::new("5a10c3d2", Operation::Reset, Trigger::Cli, "ops", agent)
        });
        self.ledger.append(events.collect()).unwrap();
    }

    /// Returns the records behind a position, each with the position at which it ends.
    fn records_behind(&self, from: LedgerPosition) -> Vec<(LedgerPosition, LedgerRecord)> {
        let mut scan = self.ledger.scan(from).unwrap().unwrap();
        let mut records = Vec::new();
        while let Some(record) = scan.next_record().unwrap() {
            records.push((scan.position(), record));
        }
        assert_eq!(scan.trailing_bytes().unwrap(), 0);
        records
    }
}

#[test]
fn each_record_has_the_digest_of_the_one_before() {
    for_each_store(|site| {
        assert_eq!(site.ledger.head().unwrap(), (0, Digest::ZERO));
        assert_eq!(site.ledger.durable_head(), None);
        assert_eq!(site.ledger.archive_id().unwrap(), None);
        assert!(site.ledger.record_times().unwrap().latest.is_none());
        site.ledger.check_writable().unwrap();
        site.append("scout", &["one", "two"]);
        site.append("ranger", &["three"]);
        site.append("ranger", &[]);
        let records = site.records_behind(LedgerPosition::default());
        let mut before = (0, Digest::ZERO);
        for ((at, record), note) in records.iter().zip(["one", "two", "three"]) {
            assert_eq!(
                (record.seq, record.previous_digest),
                (before.0 + 1, before.1)
            );
            assert_eq!(record.event.note.as_deref(), Some(note));
            before = at.head();
        }
        assert_eq!(before.0, 3);
        assert_eq!(site.ledger.head().unwrap(), before);
        assert_eq!(site.ledger.durable_head(), Some(before));
        let first = records[0].0.line_digest;
        assert_eq!(site.ledger.archive_id().unwrap(), Some(first));
        let latest = site.ledger.record_times().unwrap().latest;
        assert_eq!(latest, Some((1, records[0].1.time)));
    });
}

#[test]
fn scan_goes_on_at_a_position() {
    for_each_store(|site| {
        site.append("scout", &["one", "two"]);
        let (end, last) = site.records_behind(LedgerPosition::default()).remove(1);
        assert!(site.records_behind(end).is_empty());
        site.append("scout", &["three"]);
        let records = site.records_behind(end);
        assert_eq!((records.len(), records[0].1.seq), (1, 3));
        assert_eq!(site.ledger.read_record(end).unwrap(), last);
        let foreign = LedgerPosition {
            line_digest: Digest::of(b"other"),
            ..end
        };
        let mut scan = site.ledger.scan(foreign).unwrap().unwrap();
        assert_eq!(scan.next_record().unwrap_err().kind(), ErrorKind::Integrity);
        assert!(!scan.skip_unreadable());
        assert!(site.ledger.read_record(foreign).is_err());
    });
}

#[test]
fn backward_scan_returns_wanted_records() {
    for_each_store(|site| {
        for (agent, note) in [("scout", "one"), ("ranger", "two"), ("scout", "three")] {
            site.append(agent, &[note]);
        }
        for (after, expected) in [(0, &[3, 1][..]), (1, &[3]), (3, &[])] {
            let mut back = site.ledger.scan_back_to(after).unwrap();
            assert_eq!(back.end().head(), site.ledger.known_head());
            let mut seqs = Vec::new();
            while let Some((at, record)) =
                back.next_matching(&mut |it| it.agent == "scout").unwrap()
            {
                assert_eq!(site.ledger.read_record(at).unwrap(), record);
                seqs.push(record.seq);
            }
            assert_eq!(seqs, expected);
        }
    });
}

#[test]
fn records_of_another_process_are_seen() {
    for_each_store(|site| {
        site.append("scout", &["one"]);
        let other = &site.other_ledger;
        assert_eq!(other.take_recorded_agents().unwrap(), None);
        assert_eq!(other.history("ranger").unwrap().last_run, None);
        let end = other.scan_backwards().unwrap().end();
        let undo = RunEvent {
            undone_run: Some("5a10c3d2".to_string()),
            ..RunEvent::new("7b00aaaa", Operation::Undo, Trigger::Cli, "ops", "ranger")
        };
        site.ledger.append(vec![undo]).unwrap();
        assert!(other.undone_runs(end).unwrap().contains("5a10c3d2"));
        assert_eq!(other.head().unwrap(), site.ledger.known_head());
        let last = other.known_history("ranger").unwrap().last_run.unwrap();
        assert_eq!(
            (last.run.as_str(), last.operation),
            ("7b00aaaa", Operation::Undo)
        );
        let agents = other.take_recorded_agents().unwrap().unwrap();
        assert_eq!(agents.into_iter().collect::<Vec<_>>(), ["ranger"]);
        assert_eq!(other.take_recorded_agents().unwrap().unwrap().len(), 0);
    });
}

#[test]
fn changed_record_is_found_by_every_scan() {
    for_each_store(|site| {
        site.append("scout", &["one", "two", "three"]);
        let records = site.records_behind(LedgerPosition::default());
        (site.damage)("two", "ten");
        let mut scan = site
            .ledger
            .scan(LedgerPosition::default())
            .unwrap()
            .unwrap();
        let mut problems = Vec::new();
        while let Some(line) = scan.next_line().unwrap() {
            problems.extend(
                line.problem
                    .map(|problem| (line.number, problem.error.kind())),
            );
        }
        assert_eq!(problems, [(3, ErrorKind::Integrity)]);
        let mut back = site.ledger.scan_backwards().unwrap();
        let newest = back.next_matching(&mut |_| true).unwrap().unwrap();
        assert_eq!(newest.1.seq, 3);
        let error = back.next_matching(&mut |_| true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Integrity);
        assert!(site.ledger.read_record(records[1].0).is_err());
        assert_eq!(site.ledger.check().unwrap().all_errors().next(), None);
    });
}
