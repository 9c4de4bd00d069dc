//! The overview of retention and `archive prune`: both agree, with each other and with runs, about
//! what expires and why the rest stays.

use super::super::world::{BASELINE, InterposingTransport, TransportCall, apply_plan};
use super::retention::{DAY, confirm_date, set_entry_age, world_with_expired_entry};
use super::*;
use memory_shepherd::base::error::Error;
use memory_shepherd::engine::{
    AgentRetention, KeepReason, Operation, PruneReport, RetentionOverview,
};
use memory_shepherd::transport::{FailureCause, TransportError};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;

pub(super) fn overview(world: &World) -> RetentionOverview {
    world.engine().retention().retention_overview(&[]).unwrap()
}

pub(super) fn prune(world: &World) -> PruneReport {
    world.engine().retention().prune_archive(&[]).unwrap()
}

/// Returns the entries that an overview shows as expiring.
pub(super) fn expiring(overview: &RetentionOverview) -> BTreeSet<PathBuf> {
    overview.expiring().map(|it| it.path.clone()).collect()
}

#[track_caller]
fn group<'o>(overview: &'o RetentionOverview, agent: &str) -> &'o AgentRetention {
    let mut agents = overview.agents.iter();
    let found = agents.find(|it| it.agent.as_deref() == Some(agent));
    found.unwrap_or_else(|| panic!("{:#?}", overview.agents))
}

/// Returns the numbers of kept entries by reason.
fn kept(agent: &AgentRetention) -> Vec<(KeepReason, usize)> {
    let kept = agent.kept.iter();
    kept.map(|it| (it.reason, it.entries)).collect()
}

/// Creates an entry of the original tool that is this many days old, in name and file.
pub(super) fn create_old_entry(world: &World, directory: &str, days: u32) -> PathBuf {
    use memory_shepherd::base::clock::Clock;
    let time = world.clock.now() - chrono::Duration::days(days.into());
    let entry = Path::new(directory).join(format!("{}.md", time.format("%Y-%m-%d_%H%M")));
    let path = world.archive_directory().join(&entry);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    if path.exists() {
        return entry;
    }
    fs::write(&path, "- of the original\n").unwrap();
    set_entry_age(world, &entry, days);
    entry
}

/// Returns all paths in the archive, except for logs, locks and the ledger.
pub(super) fn archive_files(world: &World) -> BTreeSet<PathBuf> {
    let mut files = BTreeSet::new();
    let mut open = vec![world.archive_directory()];
    while let Some(directory) = open.pop() {
        for item in fs::read_dir(directory).unwrap() {
            let path = item.unwrap().path();
            let below = path.strip_prefix(world.archive_directory()).unwrap();
            let is_noise = [".shepherd/locks", ".shepherd/ledger", "reset.log"]
                .iter()
                .any(|noise| below.to_str().unwrap().starts_with(noise));
            if path.is_dir() {
                open.push(path.clone());
            } else if !is_noise {
                files.insert(below.to_path_buf());
            }
        }
    }
    files
}

#[test]
fn prune_deletes_exactly_what_overview_shows() {
    let (world, entry, run) = world_with_expired_entry();
    world.reset();
    let extra: Vec<PathBuf> = [31, 45, 60, 400]
        .map(|days| create_old_entry(&world, "scout", days))
        .to_vec();
    let pinned = extra[2].clone();
    world
        .engine()
        .entries()
        .set_pinned(std::slice::from_ref(&pinned), true)
        .unwrap();
    for foreign in ["scout/notes.md", "scout/2020-01-01_0900.txt", "notes.md"] {
        fs::write(world.archive_directory().join(foreign), "x").unwrap();
        set_entry_age(&world, Path::new(foreign), 400);
    }
    let engine = world.engine();
    let shown = engine.retention().retention_overview(&[]).unwrap();
    let before = archive_files(&world);
    let report = engine.retention().prune_archive(&[]).unwrap();
    assert_eq!(report.worst_kind(), None, "{:?}", report.errors);
    let gone: BTreeSet<PathBuf> = before.difference(&archive_files(&world)).cloned().collect();
    // The one of 31 days is younger than 30 days before the confirmed date.
    let expected = [&extra[1], &extra[3]].map(Clone::clone).into();
    assert_eq!(expiring(&shown), expected);
    assert_eq!(gone, expected);
    assert_eq!(
        report
            .deleted_entries
            .iter()
            .cloned()
            .collect::<BTreeSet<_>>(),
        expected
    );
    assert_eq!(
        report.deleted_bytes(),
        2 * "- of the original\n".len() as u64
    );
    assert!(!world.archive_directory().join(&entry).exists(), "{run}");
    // Recorded before, like a deletion by a run.
    let last = world.read_records().pop().unwrap().event;
    assert_eq!(last.operation, Operation::Retire);
    assert_eq!(Some(&last.run), report.run.as_ref());
    assert_eq!(last.retired_entries.len(), 2);
    assert_eq!(findings(&world), []);
    let log = fs::read_to_string(world.archive_directory().join("reset.log")).unwrap();
    assert!(
        log.contains("Deleted 2 entries older than 30 days"),
        "{log}"
    );
    // A second time there is nothing to do, and nothing is recorded.
    let count = world.read_records().len();
    let again = prune(&world);
    assert_eq!((again.run, again.deleted_entries), (None, Vec::new()));
    assert_eq!(world.read_records().len(), count);
}

#[test]
fn overview_counts_every_reason_once() {
    let world = World::new(&["ranger", "scout"]);
    for note in ["- one\n", "- two\n"] {
        world.write_scratch("scout", note);
        world.reset().result_of("scout");
        world.clock.advance(DAY);
    }
    world.clock.advance(DAY * 40);
    let [first, second] = world.entry_names("scout").try_into().unwrap();
    set_entry_age(&world, &Path::new("scout").join(&first), 42);
    set_entry_age(&world, &Path::new("scout").join(&second), 41);
    confirm_date(&world);
    let young = create_old_entry(&world, "scout", 2);
    let touched = create_old_entry(&world, "scout", 50);
    set_entry_age(&world, &touched, 3);
    let pinned = create_old_entry(&world, "scout", 70);
    let expired = create_old_entry(&world, "scout", 80);
    let unowned = create_old_entry(&world, "elsewhere", 90);
    create_old_entry(&world, "elsewhere", 80);
    world
        .engine()
        .entries()
        .set_pinned(std::slice::from_ref(&pinned), true)
        .unwrap();
    let shown = overview(&world);
    let scout = group(&shown, "scout");
    assert_eq!(
        kept(scout),
        [
            (KeepReason::Younger, 1),
            (KeepReason::YoungerFile, 1),
            (KeepReason::Pinned, 1),
            // The last one that the ledger names.
            (KeepReason::Newest, 1),
        ]
    );
    let first = Path::new("scout").join(first);
    assert_eq!(expiring(&shown), [expired, first].into());
    assert_eq!(scout.entries, 6);
    assert_eq!(
        scout.expiring_bytes,
        scout.expiring.iter().map(|it| it.size).sum::<u64>()
    );
    let total = scout.expiring.len() + scout.kept.iter().map(|it| it.entries).sum::<usize>();
    assert_eq!(total, scout.entries);
    let name = young.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with(&scout.newest.unwrap().format("%Y-%m-%d_%H%M").to_string()));
    assert_eq!(group(&shown, "ranger").entries, 0);
    let unknown = shown.agents.iter().find(|it| it.agent.is_none()).unwrap();
    assert_eq!(unknown.directory, unowned.parent().unwrap());
    assert_eq!(
        kept(unknown),
        [(KeepReason::Newest, 1), (KeepReason::UnknownOwner, 1)]
    );
    let next = scout.next_expiry.unwrap();
    let days = (next - shown.time).num_days();
    assert_eq!(days, 27, "{next}");
}

#[test]
fn shorter_retention_counts_match_effect() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    world.reset().assert_ok();
    world.clock.advance(DAY);
    confirm_date(&world);
    for days in [2, 4, 6, 9, 12, 16, 20, 25, 31, 60] {
        create_old_entry(&world, "scout", days);
    }
    let shown = overview(&world);
    let now = expiring(&shown).len();
    let days: Vec<u32> = shown.shorter.iter().map(|it| it.days).collect();
    assert_eq!(days, [21, 14, 7, 3, 1]);
    let mut world = world;
    for shorter in shown.shorter {
        world = world.with_general(&format!("archive_retention_days = {}", shorter.days));
        let expired = expiring(&overview(&world));
        assert_eq!(
            expired.len(),
            now + shorter.entries,
            "{} days",
            shorter.days
        );
    }
}

#[test]
fn entry_of_unconfirmed_date_stays_until_a_run() {
    let world = World::new(&["scout"]);
    create_old_entry(&world, "scout", 100);
    create_old_entry(&world, "scout", 90);
    let shown = overview(&world);
    assert_eq!((shown.confirmed, shown.expiring().count()), (None, 0));
    let why = shown.unconfirmed.as_deref().unwrap();
    assert!(why.starts_with("no earlier run is known"), "{why}");
    assert_eq!(
        kept(group(&shown, "scout")),
        [(KeepReason::Newest, 1), (KeepReason::Unconfirmed, 1)]
    );
    assert_eq!(prune(&world).deleted_entries, Vec::<PathBuf>::new());
    world.reset();
    assert_eq!(prune(&world).deleted_entries, Vec::<PathBuf>::new());
    world.clock.advance(DAY);
    assert_eq!(prune(&world).deleted_entries.len(), 1);
}

#[test]
fn prune_keeps_entries_of_failed_and_tampered_agents() {
    let world = World::new(&["failed", "ok", "tampered"]);
    for agent in ["failed", "ok", "tampered"] {
        create_old_entry(&world, agent, 60);
        create_old_entry(&world, agent, 50);
    }
    confirm_date(&world);
    world.write_seal();
    world.set_baseline("tampered", "# Other rules\n\n---\n");
    let transport = InterposingTransport::new(world.disk(), |moment| match moment {
        TransportCall::Before("swap") => Err(TransportError::new(
            FailureCause::Refused,
            Error::new(ErrorKind::Host, "operation not permitted"),
        )),
        _ => Ok(()),
    });
    world.write_scratch("failed", "- note\n");
    let engine = world.engine_with_transport(transport);
    let plan = engine
        .planner()
        .plan_reset(&["failed".to_string()], false)
        .unwrap();
    let ran = apply_plan(&engine, &plan);
    assert!(ran.result_of("failed").outcome.is_failure());
    let shown = overview(&world);
    let why = |agent| group(&shown, agent).failure.clone().unwrap_or_default();
    assert!(why("failed").contains("its last run"), "{}", why("failed"));
    assert!(
        why("tampered").contains("resets refuse it"),
        "{}",
        why("tampered")
    );
    assert_eq!(why("ok"), "");
    for agent in ["failed", "tampered"] {
        let kept = kept(group(&shown, agent));
        assert!(
            kept.iter().any(|it| it.0 == KeepReason::RunFailed),
            "{kept:?}"
        );
    }
    let deleted = prune(&world).deleted_entries;
    assert_eq!(deleted.len(), 1);
    assert!(deleted[0].starts_with("ok"));
}

#[test]
fn young_entries_of_tampered_agent_say_why_they_stay() {
    let world = World::new(&["ok", "tampered"]);
    for agent in ["ok", "tampered"] {
        create_old_entry(&world, agent, 5);
    }
    world.write_seal();
    world.set_baseline("tampered", "# Other rules\n\n---\n");
    let shown = overview(&world);
    let reasons = |agent| group(&shown, agent).describe_kept(30).join(", ");
    let why = reasons("tampered");
    assert!(why.starts_with("all, because resets refuse it: "), "{why}");
    assert!(why.contains("1 younger than 30 days"), "{why}");
    assert!(!reasons("ok").contains("all, because"), "{}", reasons("ok"));
}

#[test]
fn prune_of_named_agent_leaves_others() {
    let mut world = World::new(&["scout"]);
    world.add_agent("ranger", "archive_subdir = team");
    world.set_baseline("ranger", BASELINE);
    for directory in ["scout", "team"] {
        create_old_entry(&world, directory, 60);
        create_old_entry(&world, directory, 50);
    }
    confirm_date(&world);
    let engine = world.engine();
    let ranger = ["ranger".to_string()];
    let shown = engine.retention().retention_overview(&ranger).unwrap();
    assert_eq!(shown.agents.len(), 1);
    assert_eq!(shown.versions, None);
    let report = engine.retention().prune_archive(&ranger).unwrap();
    assert_eq!(report.deleted_entries.len(), 1);
    assert!(report.deleted_entries[0].starts_with("team"));
    let error = engine
        .retention()
        .prune_archive(&["ragner".to_string()])
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::User);
    assert!(error.hints()[0].contains("ranger"), "{error}");
}

#[test]
fn locked_agent_keeps_its_entries() {
    let world = World::new(&["ranger", "scout"]);
    for agent in ["ranger", "scout"] {
        create_old_entry(&world, agent, 60);
        create_old_entry(&world, agent, 50);
    }
    confirm_date(&world);
    let other = world.engine();
    let _held = other.locks().hold_agent_lock("scout").unwrap();
    let report = prune(&world);
    assert_eq!(report.worst_kind(), Some(ErrorKind::Busy));
    assert_eq!(report.errors.len(), 1);
    assert!(
        report.errors[0]
            .message()
            .contains("scout: its entries stay")
    );
    assert_eq!(report.deleted_entries.len(), 1);
    assert!(report.deleted_entries[0].starts_with("ranger"));
}

#[test]
fn unreadable_directory_is_named_and_stops_no_other() {
    let world = World::new(&["ranger", "scout"]);
    create_old_entry(&world, "ranger", 60);
    create_old_entry(&world, "ranger", 50);
    fs::write(world.archive_directory().join("scout"), "in the way").unwrap();
    confirm_date(&world);
    let shown = overview(&world);
    assert_eq!(shown.worst_kind(), Some(ErrorKind::Host));
    assert!(shown.unreadable[0].message().contains("scout"));
    let report = prune(&world);
    assert_eq!(report.worst_kind(), Some(ErrorKind::Host));
    assert_eq!(report.deleted_entries.len(), 1);
}

#[test]
fn unreadable_ledger_deletes_nothing() {
    let (world, entry, _) = world_with_expired_entry();
    world.write_scratch("scout", "- newer\n");
    let text = fs::read_to_string(ledger_path(&world)).unwrap();
    fs::write(ledger_path(&world), text.replacen("tester", "hacker", 1)).unwrap();
    let engine = world.engine();
    let error = engine.retention().retention_overview(&[]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Integrity);
    let error = engine.retention().prune_archive(&[]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Integrity);
    // A run says so, too.
    let ran = world.reset();
    let told = |error: &Error| error.message().starts_with("retention: the ledger");
    assert!(
        ran.report.errors.iter().any(told),
        "{:?}",
        ran.report.errors
    );
    assert!(
        ran.lines
            .iter()
            .any(|line| line.contains("retention: the ledger"))
    );
    assert!(world.archive_directory().join(entry).exists());
}

#[test]
fn entry_of_unclear_pin_stays_in_overview() {
    let world = World::new(&["scout"]);
    let old = create_old_entry(&world, "scout", 60);
    create_old_entry(&world, "scout", 50);
    confirm_date(&world);
    fs::write(
        world.archive_directory().join(".shepherd/pins"),
        "scout/2020-01-01_0001.md\n",
    )
    .unwrap();
    let shown = overview(&world);
    assert_eq!(shown.unclear_pins.len(), 1);
    assert_eq!(
        kept(group(&shown, "scout")),
        [(KeepReason::Newest, 1), (KeepReason::UnclearPin, 1)]
    );
    assert_eq!(prune(&world).deleted_entries, Vec::<PathBuf>::new());
    assert!(world.archive_directory().join(old).exists());
}

/// Returns name, mode, size and times of everything in the archive.
fn archive_metadata(world: &World) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![world.archive_directory()];
    while let Some(directory) = open.pop() {
        for item in fs::read_dir(directory).unwrap() {
            let path = item.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let times = (meta.mtime(), meta.mtime_nsec(), meta.ctime_nsec());
            found.insert(format!(
                "{path:?} {:o} {} {times:?}",
                meta.mode(),
                meta.len()
            ));
            if meta.is_dir() {
                open.push(path);
            }
        }
    }
    found
}

#[test]
fn overview_changes_nothing_in_the_archive() {
    let (world, _, _) = world_with_expired_entry();
    world.reset();
    create_old_entry(&world, "scout", 60);
    let before = archive_metadata(&world);
    assert_eq!(overview(&world).expiring().count(), 1);
    assert_eq!(archive_metadata(&world), before);
}

#[test]
fn left_agent_below_a_claimed_directory_expires() {
    let mut world = World::new(&["scout"]);
    world.add_agent("lead", "archive_subdir = team");
    world.add_agent("ranger", "archive_subdir = team/deep/ranger");
    for agent in ["lead", "ranger"] {
        world.set_baseline(agent, BASELINE);
    }
    world.write_scratch("ranger", "- old\n");
    let old = world.reset().result_of("ranger").entries[0].path.clone();
    assert!(old.starts_with("team/deep/ranger"));
    world.clock.advance(DAY);
    world.write_scratch("ranger", "- newer\n");
    world.reset();
    let world = world.without_agent("ranger");
    let shown = overview(&world);
    let ranger = group(&shown, "ranger");
    assert!(!ranger.configured);
    assert_eq!(kept(ranger), [(KeepReason::Younger, 2)]);
    world.clock.advance(DAY * 40);
    for name in
        super::super::world::sorted_names(&world.archive_directory().join("team/deep/ranger"))
    {
        set_entry_age(&world, &Path::new("team/deep/ranger").join(name), 40);
    }
    confirm_date(&world);
    assert_eq!(expiring(&overview(&world)), [old.clone()].into());
    // A run of one other agent deletes it.
    let engine = world.engine();
    let plan = engine
        .planner()
        .plan_reset(&["scout".to_string()], false)
        .unwrap();
    assert_eq!(apply_plan(&engine, &plan).report.retired_entries, [old]);
}

#[test]
fn runs_search_directories_of_left_agents_daily() {
    let mut world = World::new(&["scout"]);
    world.add_agent("ranger", "");
    world.set_baseline("ranger", BASELINE);
    for note in ["- old\n", "- newer\n", "- newest\n"] {
        world.write_scratch("ranger", note);
        world.reset();
        world.clock.advance(DAY);
    }
    let entries = world.entry_names("ranger");
    let entries: Vec<PathBuf> = entries
        .iter()
        .map(|name| Path::new("ranger").join(name))
        .collect();
    let world = world.without_agent("ranger");
    world.clock.advance(DAY * 40);
    for (entry, age) in entries.iter().zip([40, 0, 0]) {
        set_entry_age(&world, entry, age);
    }
    confirm_date(&world);
    let mut retired = world.reset().report.retired_entries;
    // The next entry is old enough right after that.
    set_entry_age(&world, &entries[1], 40);
    retired.extend(world.reset().report.retired_entries);
    assert_eq!(retired, entries[..1]);
    world.clock.advance(DAY);
    assert_eq!(world.reset().report.retired_entries, entries[1..2]);
}

#[test]
fn left_agent_expires_though_the_run_failed() {
    let mut world = World::new(&["scout"]);
    world.add_agent("ranger", "");
    world.set_baseline("ranger", BASELINE);
    for note in ["- old\n", "- newer\n"] {
        world.write_scratch("ranger", note);
        world.reset();
        world.clock.advance(DAY);
    }
    let names = world.entry_names("ranger");
    let world = world.without_agent("ranger");
    world.clock.advance(DAY * 40);
    for name in &names {
        set_entry_age(&world, &Path::new("ranger").join(name), 40);
    }
    confirm_date(&world);
    fs::remove_file(world.baseline_path("scout")).unwrap();
    let ran = world.reset();
    assert!(ran.result_of("scout").outcome.is_failure());
    assert_eq!(
        ran.report.retired_entries,
        [Path::new("ranger").join(&names[0])]
    );
}

#[test]
fn entry_in_archive_root_is_shown_and_stays() {
    let world = World::new(&["scout"]);
    let old = create_old_entry(&world, "", 60);
    create_old_entry(&world, "", 50);
    confirm_date(&world);
    let shown = overview(&world);
    let root = shown.agents.iter().find(|it| it.agent.is_none()).unwrap();
    assert_eq!(root.directory, Path::new(""));
    assert_eq!(
        kept(root),
        [(KeepReason::Newest, 1), (KeepReason::UnknownOwner, 1)]
    );
    world.reset();
    assert!(world.archive_directory().join(old).exists());
}

#[test]
fn run_names_an_agent_that_failed_after_the_plan() {
    let (world, entry, _) = world_with_expired_entry();
    let transport = InterposingTransport::new(world.disk(), |moment| match moment {
        TransportCall::Before("swap") => Err(TransportError::new(
            FailureCause::Refused,
            Error::new(ErrorKind::Host, "operation not permitted"),
        )),
        _ => Ok(()),
    });
    let engine = world.engine_with_transport(transport);
    let plan = engine
        .planner()
        .plan_reset(&["scout".to_string()], false)
        .unwrap();
    let planned = plan.retention.as_ref().unwrap();
    assert_eq!(
        (&planned.entries, planned.notes.len()),
        (&vec![entry.clone()], 0)
    );
    let ran = apply_plan(&engine, &plan);
    assert!(ran.result_of("scout").outcome.is_failure());
    let note = "retention keeps 1 entry older than 30 days of scout, whose run failed";
    assert_eq!(ran.report.notes, [note]);
    assert!(ran.lines.iter().any(|line| line.ends_with(note)));
    assert!(world.archive_directory().join(entry).exists());
}

#[test]
fn interrupted_run_says_that_retention_was_skipped() {
    let (world, entry, _) = world_with_expired_entry();
    let engine = world.engine();
    let plan = engine
        .planner()
        .plan_reset(&["scout".to_string()], false)
        .unwrap();
    let cancel = AtomicBool::new(true);
    let report = engine.runs().apply_plan(&plan, true, &cancel, &mut |_| {});
    assert_eq!(
        report.notes,
        ["retention was skipped: the run was interrupted"]
    );
    assert!(world.archive_directory().join(entry).exists());
}

/// What an overview has shown bounds a prune: what expires later stays, and so does what was pinned
/// or replaced since.
#[test]
fn prune_deletes_nothing_that_was_not_shown() {
    let (world, _, _) = world_with_expired_entry();
    world.reset();
    let entries: Vec<PathBuf> = [40, 50, 60, 70]
        .map(|days| create_old_entry(&world, "scout", days))
        .to_vec();
    let shown = overview(&world);
    assert_eq!(expiring(&shown), entries.iter().cloned().collect());
    let later = create_old_entry(&world, "scout", 80);
    let [kept, pinned, replaced, gone] = &entries[..] else {
        panic!("{entries:?}")
    };
    let engine = world.engine();
    engine
        .entries()
        .set_pinned(std::slice::from_ref(pinned), true)
        .unwrap();
    fs::write(world.archive_directory().join(replaced), "another text\n").unwrap();
    set_entry_age(&world, replaced, 60);
    fs::remove_file(world.archive_directory().join(gone)).unwrap();
    assert!(expiring(&overview(&world)).contains(&later));
    let report = engine.retention().prune_shown(&shown).unwrap();
    assert_eq!(report.worst_kind(), None, "{:?}", report.errors);
    assert_eq!(report.deleted_entries, std::slice::from_ref(kept));
    assert_eq!(report.deleted_bytes(), "- of the original\n".len() as u64);
    let files = archive_files(&world);
    for stays in [pinned, replaced, &later] {
        assert!(files.contains(stays), "{}", stays.display());
    }
    // What was shown and is gone leaves nothing to delete, and no record.
    let count = world.read_records().len();
    let again = engine.retention().prune_shown(&shown).unwrap();
    assert_eq!((again.run, again.deleted_entries), (None, Vec::new()));
    assert_eq!(world.read_records().len(), count);
}
