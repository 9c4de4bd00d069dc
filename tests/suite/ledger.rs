//! The account: what `verify` finds, what retention writes down, and how the
//! ledger is read when it is long.

use std::fs;
use std::path::{Path, PathBuf};

use memory_shepherd::digest::Digest;
use memory_shepherd::engine::{About, Engine, Verification};
use memory_shepherd::error::Kind;

use super::world::World;

fn ledger(world: &World) -> PathBuf {
    world.archive().join(".shepherd/ledger.jsonl")
}

/// A world with three runs of two agents, each with an entry.
fn lived() -> World {
    let world = World::new(&["ranger", "scout"]);
    for note in ["- one\n", "- two\n", "- three\n"] {
        world.write_scratch("ranger", note);
        world.write_scratch("scout", note);
        assert_eq!(world.reset().report.kind(), None);
    }
    world
}

fn verify(engine: &Engine, anchor: Option<(u64, Digest)>) -> Verification {
    engine.verify(anchor, &mut |_| {}).unwrap()
}

/// What is found, in words.
fn findings(world: &World) -> Vec<(About, Kind, String)> {
    let found = verify(&world.engine(), None);
    let findings = found.findings.into_iter();
    findings.map(|it| (it.about, it.kind, it.what)).collect()
}

#[track_caller]
fn finds(world: &World, about: About, words: &str) {
    let found = findings(world);
    let [(what, Kind::Integrity, text)] = found.as_slice() else {
        panic!("{found:?}")
    };
    assert_eq!((*what, text.contains(words)), (about, true), "{text}");
}

mod verifying {
    use super::*;

    #[test]
    fn a_whole_archive_is_found_whole() {
        let world = World::new(&["scout"]);
        let found = verify(&world.engine(), None);
        assert_eq!((found.kind(), found.tally.lines), (None, 0));
        let world = lived();
        world.seal();
        let found = verify(&world.engine(), None);
        assert_eq!(found.findings, []);
        assert_eq!(found.notes, Vec::<String>::new());
        assert_eq!((found.tally.lines, found.tally.entries), (6, 6));
        assert_eq!((found.tally.versions, found.tally.sealed), (1, 2));
        assert_eq!(found.ledger.seq, 6);
    }

    #[test]
    fn every_line_that_was_changed_removed_or_moved_is_found() {
        let world = lived();
        let path = ledger(&world);
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let check = |lines: &[&str], at: usize, what: &str| {
            fs::write(&path, lines.join("\n") + "\n").unwrap();
            let found = findings(&world);
            let mut about = found.iter().filter(|it| it.0 == About::Ledger);
            let first = about.next().unwrap_or_else(|| panic!("{what}: {found:?}"));
            assert_eq!(first.1, Kind::Integrity);
            assert!(
                first.2.starts_with(&format!("line {at}: ")),
                "{what}: {first:?}"
            );
        };
        for at in 0..lines.len() - 1 {
            let changed = lines[at].replacen("tester", "hacker", 1);
            let mut all = lines.clone();
            all[at] = &changed;
            check(&all, at + 2, "changed");
            let mut all = lines.clone();
            all.remove(at);
            check(&all, at + 1, "removed");
            let mut all = lines.clone();
            all.swap(at, at + 1);
            check(&all, at + 1, "moved");
            let mut all = lines.clone();
            all[at] = "nonsense";
            check(&all, at + 1, "nonsense");
        }
        // The rest is looked at all the same.
        let mut all = lines.clone();
        all[1] = "nonsense";
        all[4] = "nonsense";
        fs::write(&path, all.join("\n") + "\n").unwrap();
        let found = findings(&world);
        let about = |about| found.iter().filter(|it| it.0 == about).count();
        assert_eq!((about(About::Ledger), found.len()), (2, 2), "{found:?}");
    }

    #[test]
    fn a_noted_head_shows_what_a_chain_cannot() {
        let world = lived();
        let engine = world.engine();
        engine.records().unwrap();
        let head = engine.ledger_head();
        let text = fs::read(ledger(&world)).unwrap();
        assert_eq!(verify(&engine, Some(head)).anchor, Some(true));
        // An older head still holds after further runs.
        world.write_scratch("scout", "- more\n");
        world.reset();
        let found = verify(&world.engine(), Some(head));
        assert_eq!((found.anchor, found.kind()), (Some(true), None));
        let bad = |anchor, words: &str| {
            let found = verify(&world.engine(), Some(anchor));
            assert_eq!(
                (found.anchor, found.kind()),
                (Some(false), Some(Kind::Integrity))
            );
            let said: Vec<_> = found.findings.iter().map(|it| it.what.as_str()).collect();
            assert!(said.iter().any(|it| it.contains(words)), "{said:?}");
        };
        bad((head.0, Digest::ZERO), "does not have the noted digest");
        bad((head.0 - 1, head.1), "does not have the noted digest");
        // Cut off at the end.
        let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
        fs::write(ledger(&world), lines[..4].concat()).unwrap();
        assert!(!findings(&world).iter().any(|it| it.0 == About::Ledger));
        bad(head, "ends with record 4, but record 6 was noted");
        // Written anew as a whole.
        let other = lived();
        fs::copy(ledger(&other), ledger(&world)).unwrap();
        bad(head, "does not have the noted digest");
        fs::remove_file(ledger(&world)).unwrap();
        bad(head, "ends with record 0");
    }

    #[test]
    fn a_torn_last_line_is_no_failure() {
        let world = lived();
        let mut text = fs::read(ledger(&world)).unwrap();
        text.extend_from_slice(b"{\"seq\":7,\"pre");
        fs::write(ledger(&world), text).unwrap();
        let found = verify(&world.engine(), None);
        assert_eq!((found.kind(), found.ledger.torn), (None, 13));
        assert!(
            found.notes[0].contains("unfinished record"),
            "{:?}",
            found.notes
        );
    }

    #[test]
    fn an_entry_that_was_changed_or_taken_away_is_found() {
        let world = lived();
        let entry = world
            .archive()
            .join("scout")
            .join(&world.entries("scout")[1]);
        let bytes = fs::read(&entry).unwrap();
        let text = String::from_utf8(bytes.clone()).unwrap();
        fs::write(&entry, text.replacen("- ", "+ ", 1)).unwrap();
        finds(
            &world,
            About::Entry,
            "its digest is another (record in line ",
        );
        fs::write(&entry, &bytes[1..]).unwrap();
        finds(&world, About::Entry, "bytes, ");
        fs::remove_file(&entry).unwrap();
        finds(
            &world,
            About::Entry,
            "is missing, and retention did not delete it",
        );
        std::os::unix::fs::symlink("/etc/passwd", &entry).unwrap();
        finds(&world, About::Entry, "is no file any more");
        fs::remove_file(&entry).unwrap();
        fs::write(&entry, &bytes).unwrap();
        assert_eq!(findings(&world), []);
    }

    #[test]
    fn an_entry_outside_the_archive_is_never_read() {
        let world = World::new(&["scout"]);
        world.write_scratch("scout", "- note\n");
        world.reset().ok();
        let text = fs::read_to_string(ledger(&world)).unwrap();
        let name = format!("scout/{}", world.entries("scout")[0]);
        for path in [
            "../agents/scout/MEMORY.md",
            "/etc/passwd",
            ".shepherd/ledger.jsonl",
            "",
        ] {
            assert!(text.contains(&name));
            fs::write(ledger(&world), text.replacen(&name, path, 1)).unwrap();
            finds(&world, About::Entry, "no path of an entry");
        }
    }

    #[test]
    fn entries_that_no_record_names_are_counted_and_no_failure() {
        let world = lived();
        let folder = world.archive().join("scout");
        fs::write(folder.join("2025-12-31_2300.md"), "of the original").unwrap();
        fs::write(folder.join("notes.md"), "no entry").unwrap();
        let found = verify(&world.engine(), None);
        assert_eq!((found.kind(), found.tally.unrecorded), (None, 1));
        assert!(found.notes[0].contains("no record names 1 of the entries"));
    }

    #[test]
    fn versions_and_baselines_are_checked() {
        let world = lived();
        let versions = world.archive().join(".shepherd/baselines");
        let name = super::super::world::names(&versions).remove(0);
        let version = versions.join(name);
        let bytes = fs::read(&version).unwrap();
        fs::write(&version, b"other").unwrap();
        finds(&world, About::Version, "was changed");
        fs::remove_file(&version).unwrap();
        finds(&world, About::Version, "is missing");
        fs::write(&version, &bytes).unwrap();
        world.seal();
        world.set_baseline("scout", "# Other rules\n\n---\n");
        finds(&world, About::Baseline, "differs from the seal");
        fs::write(world.root.join("baselines/.checksums"), "nonsense\n").unwrap();
        assert_eq!(findings(&world).len(), 2);
        // Too small to be pushed is no tampering.
        fs::remove_file(world.root.join("baselines/.checksums")).unwrap();
        world.set_baseline("scout", "x");
        let found = verify(&world.engine(), None);
        assert_eq!(found.kind(), None);
        assert!(
            found.notes[0].contains("min_baseline_size"),
            "{:?}",
            found.notes
        );
    }

    #[test]
    fn a_verification_changes_nothing() {
        let world = lived();
        let before = tree(&world.root);
        verify(&world.engine(), None);
        assert_eq!(tree(&world.root), before);
    }

    fn tree(path: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
        let mut all = Vec::new();
        let mut folders = vec![path.to_path_buf()];
        while let Some(folder) = folders.pop() {
            for item in fs::read_dir(folder).unwrap() {
                let path = item.unwrap().path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => all.push((path.clone(), fs::read(path).ok())),
                }
            }
        }
        all.sort();
        all
    }
}

mod retention {
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
    fn aged() -> (World, PathBuf, String) {
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
        assert_eq!(ran.report.head.0, last.seq);
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
    fn what_is_pinned_stays_until_it_is_unpinned() {
        let (world, entry, _) = aged();
        let pins = world.archive().join(".shepherd/pins");
        fs::write(&pins, "# kept for the auditors\ngone/2020-01-01_0000.md").unwrap();
        let engine = world.engine();
        let one = [entry.clone()];
        assert_eq!(engine.pin(&one, true).unwrap(), one);
        assert_eq!(engine.pin(&one, true).unwrap(), Vec::<PathBuf>::new());
        let text = fs::read_to_string(&pins).unwrap();
        let kept = "# kept for the auditors\ngone/2020-01-01_0000.md\n";
        assert_eq!(text, format!("{kept}{}\n", entry.display()));
        assert_eq!(world.reset().report.retired, Vec::<PathBuf>::new());
        let listed = world.engine().entries(&[]).unwrap();
        let of = |path: &Path| listed.iter().find(|it| it.entry.path == path).unwrap();
        assert_eq!(
            (of(&entry).pinned, of(&entry).recorded, of(&entry).needed),
            (true, true, false)
        );
        assert!(listed[1].needed && !listed[1].pinned);
        // By its whole path, too.
        let whole = world.archive().join(&entry);
        assert_eq!(engine.pin(&[whole], false).unwrap(), one);
        assert_eq!(fs::read_to_string(&pins).unwrap(), kept);
        assert_eq!(world.reset().report.retired, one);
        // What is gone can be unpinned, and not pinned.
        let gone = [PathBuf::from("gone/2020-01-01_0000.md")];
        assert_eq!(engine.pin(&gone, false).unwrap(), gone);
        for path in [
            "gone/2020-01-01_0000.md",
            "../agents/scout/MEMORY.md",
            "scout",
            "/etc/passwd",
        ] {
            let error = engine.pin(&[path.into()], true).unwrap_err();
            assert_eq!(error.kind(), Kind::User, "{error}");
        }
        // All or none.
        let newest = PathBuf::from("scout").join(world.entries("scout").pop().unwrap());
        engine.pin(&[newest, "nothing".into()], true).unwrap_err();
        assert_eq!(
            fs::read_to_string(&pins).unwrap(),
            "# kept for the auditors\n"
        );
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
}

/// A disk that is full in the middle of a record.
mod full {
    use super::super::fixture::{PROGRAM, Site};

    /// Files may have so many bytes and no more: a write is cut short there, as
    /// on a disk that is full.
    fn run_within(site: &Site, bytes: usize) -> super::super::fixture::Ran {
        let mut command = assert_cmd::Command::new("prlimit");
        command
            .arg(format!("--fsize={bytes}"))
            // Without the signal the write answers with an error.
            .args([
                "env",
                "--ignore-signal=XFSZ",
                PROGRAM,
                "reset",
                "monitor-bot",
            ])
            .current_dir(&site.dir);
        site.ran(&mut command)
    }

    #[test]
    fn leaves_a_ledger_that_the_next_run_continues() {
        let site = Site::new();
        let ledger = "archives/.shepherd/ledger.jsonl";
        let note = |text: &str| {
            site.append(
                "agents/monitor-bot/MEMORY.md",
                format!("- a note, {text}\n"),
            );
        };
        for number in 0..8 {
            note(&number.to_string());
            let _ = site.run(["reset", "--all"]).code(0);
        }
        let before = site.read(ledger);
        note("and one more");
        // Enough for the entry, the memory and a part of the record.
        let ran = run_within(&site, before.len() + 100);
        if ran.code == 127 || ran.err.contains("unrecognized option") {
            return println!("skipped: no prlimit, or no env that ignores signals");
        }
        let ran = ran.code(3).warns("not recorded: cannot append to");
        assert!(!ran.err.contains("panicked"), "{}", ran.err);
        assert_eq!(site.read(ledger), before, "nothing of it stays");
        // What was done is settled and recorded by the next run.
        let _ = site.run(["reset", "--all"]).code(0);
        let _ = site.run(["verify"]).code(0);
        let after = site.read(ledger);
        assert!(after.starts_with(&before) && after.len() > before.len());
        assert!(after.contains("finished since"), "{after}");
        // Other reads of the whole find nothing wrong.
        let _ = site.run(["undo", "monitor-bot"]).code(0);
        assert!(
            site.read("agents/monitor-bot/MEMORY.md")
                .ends_with("and one more\n")
        );
    }
}

/// A ledger that is too long to be read by everybody.
mod long {
    use super::super::world::{Interposer, Moment};
    use super::*;
    use memory_shepherd::clock::Clock;
    use memory_shepherd::engine::{Event, Outcome, Record, State, UndoMode};
    use memory_shepherd::error::Error;
    use memory_shepherd::transport::{Cause, TransportError};

    /// Appends so many records of another agent, as its runs would.
    fn grow(world: &World, count: u64) {
        let records = world.records();
        let (mut seq, mut prev) = (records.len() as u64, Digest::ZERO);
        let mut text = fs::read_to_string(ledger(world)).unwrap_or_default();
        if let Some(last) = text.lines().last() {
            prev = Digest::of(last.as_bytes());
        }
        let event = r#"{"run":"0f0f0f0f","act":"reset","trigger":"timer","user":"timer","agent":"other","host":"local","outcome":"unchanged"}"#;
        let what: Event = serde_json::from_str(event).unwrap();
        for _ in 0..count {
            seq += 1;
            let time = world.clock.now();
            let what = what.clone();
            let line = serde_json::to_string(&Record {
                seq,
                prev,
                time,
                what,
            })
            .unwrap();
            prev = Digest::of(line.as_bytes());
            text.push_str(&line);
            text.push('\n');
        }
        fs::create_dir_all(world.archive().join(".shepherd")).unwrap();
        fs::write(ledger(world), text).unwrap();
    }

    fn index(world: &World) -> PathBuf {
        world.archive().join(".shepherd/ledger.index")
    }

    /// A world whose agent is behind its baseline, with a long ledger and its
    /// index.
    fn indexed() -> World {
        let world = World::new(&["scout"]);
        world.write_scratch("scout", "- one\n");
        world.reset().ok();
        world.write_scratch("scout", "- two\n");
        world.set_baseline("scout", "# Other rules\n\n---\n");
        grow(&world, 300);
        assert!(!index(&world).exists());
        // Any append writes it, also of an agent that has no history yet.
        let mut other = world;
        other.add("ranger", "");
        other.set_baseline("ranger", super::super::world::BASELINE);
        other.write("ranger", super::super::world::BASELINE);
        let engine = other.engine();
        let plan = engine.plan_reset(&["ranger".to_string()], false).unwrap();
        super::super::world::apply(&engine, &plan).ended(Outcome::Unchanged);
        assert!(index(&other).exists());
        other
    }

    /// What is told of the agent: all of it comes from the ledger.
    fn told(world: &World) -> (State, String, Option<String>) {
        let seen = world.observe("scout");
        assert_eq!(seen.ledger_error, None);
        (seen.state, seen.why, seen.last.map(|last| last.run))
    }

    #[test]
    fn the_index_says_the_same_as_the_ledger() {
        let world = indexed();
        let with = told(&world);
        assert_eq!(with.0, State::Scratch);
        assert!(with.1.starts_with("behind: "), "{}", with.1);
        assert!(with.2.is_some());
        fs::remove_file(index(&world)).unwrap();
        assert_eq!(told(&world), with);
        // It comes back by itself, and knows what was not asked for.
        world.write("ranger", "no boundary");
        let ran = world.reset();
        assert_eq!(ran.report.kind(), None);
        assert!(index(&world).exists());
        let last = told(&world).2;
        assert_eq!(last, Some(ran.report.run));
        world.undo("scout", UndoMode::Refuse).ok();
        assert_eq!(told(&world).1, with.1);
    }

    #[test]
    fn what_the_index_covers_is_not_read_for_a_look_or_a_reset() {
        let world = indexed();
        let with = told(&world);
        let text = fs::read_to_string(ledger(&world)).unwrap();
        let changed = text.replacen("tester", "hacker", 1);
        fs::write(ledger(&world), &changed).unwrap();
        assert_eq!(told(&world), with);
        let ran = world.reset();
        assert_eq!(ran.of("scout").outcome, Outcome::Ok);
        // Whoever reads all of it finds the break.
        let error = world.engine().records().unwrap_err();
        assert_eq!(error.kind(), Kind::Integrity);
        finds(&world, About::Ledger, "line 2: ");
        // Without the index everybody does.
        fs::remove_file(index(&world)).unwrap();
        assert!(world.observe("scout").ledger_error.is_some());
    }

    #[test]
    fn a_break_behind_the_index_stops_runs() {
        let world = indexed();
        world.write_scratch("scout", "- three\n");
        for _ in 0..2 {
            world.reset();
        }
        let text = fs::read_to_string(ledger(&world)).unwrap();
        let at = text.rfind("\"unchanged\"").unwrap();
        assert!(text[at..].contains('\n'));
        let lines: Vec<&str> = text.lines().collect();
        let lost = [&lines[..lines.len() - 2], &lines[lines.len() - 1..]].concat();
        fs::write(ledger(&world), lost.join("\n") + "\n").unwrap();
        let error = world.observe("scout").ledger_error.unwrap();
        assert!(error.contains("is broken at line"), "{error}");
        world.write_scratch("scout", "- four\n");
        let ran = world.reset();
        assert_eq!(ran.of("scout").kind, Some(Kind::Integrity));
        assert!(world.read("scout").ends_with(b"- four\n"));
    }

    #[test]
    fn an_index_that_is_torn_or_of_another_ledger_is_none() {
        let world = indexed();
        let with = told(&world);
        let whole = fs::read(index(&world)).unwrap();
        let broken = |bytes: &[u8], what: &str| {
            fs::write(index(&world), bytes).unwrap();
            assert_eq!(told(&world), with, "{what}");
        };
        for cut in (0..whole.len()).step_by(7) {
            broken(&whole[..cut], &format!("cut at {cut}"));
            let mut bytes = whole.clone();
            bytes[cut] ^= 1;
            broken(&bytes, &format!("changed at {cut}"));
            bytes[cut..].fill(0);
            broken(&bytes, &format!("zeros from {cut}"));
        }
        broken(b"\n\n\n", "empty lines");
        // Of another ledger of the same length, or of one that was cut back.
        let other = indexed();
        fs::write(index(&other), &whole).unwrap();
        let theirs = told(&other).2;
        assert_ne!(theirs, with.2);
        assert_eq!(theirs, Some(other.records()[0].what.run.clone()));
        let text = fs::read_to_string(ledger(&world)).unwrap();
        fs::write(index(&world), &whole).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        fs::write(ledger(&world), lines[..1].join("\n") + "\n").unwrap();
        assert_eq!(told(&world), with);
        fs::write(
            ledger(&world),
            text.replace("tester", "TESTER").lines().next().unwrap(),
        )
        .unwrap();
        assert_eq!(told(&world).2, None, "an unfinished line is no run");
        fs::remove_file(ledger(&world)).unwrap();
        assert_eq!(told(&world).2, None);
    }

    #[test]
    fn an_index_that_cannot_be_written_stops_nothing() {
        let world = World::new(&["scout"]);
        grow(&world, 300);
        fs::create_dir_all(world.archive().join(".shepherd/ledger.index/x")).unwrap();
        world.write_scratch("scout", "- note\n");
        world.reset().ok();
        world.undo("scout", UndoMode::Refuse).ok();
        assert!(!world.archive().join(".shepherd/ledger.index.new").exists());
    }

    #[test]
    fn an_entry_of_a_failed_run_is_used_again_also_when_only_the_index_knows_it() {
        let world = World::new(&["scout"]);
        world.write_scratch("scout", "- note\n");
        let fails = || {
            let transport = Interposer::new(world.local(), |moment| match moment {
                Moment::Before("swap") => Err(TransportError::new(
                    Cause::Refused,
                    Error::new(Kind::Host, "operation not permitted"),
                )),
                _ => Ok(()),
            });
            world
                .reset_by(&world.engine_on(transport))
                .ended(Outcome::Failed)
                .clone()
        };
        fails();
        grow(&world, 300);
        fails();
        assert!(index(&world).exists());
        fails();
        assert_eq!(world.entries("scout").len(), 1);
        world.reset().ok();
        assert_eq!(world.entries("scout").len(), 1);
    }

    #[test]
    fn retention_reads_the_ledger_only_for_what_is_old() {
        let world = indexed();
        let broken = fs::read_to_string(ledger(&world))
            .unwrap()
            .replacen("tester", "hacker", 1);
        fs::write(ledger(&world), broken).unwrap();
        assert_eq!(world.engine().retention().unwrap(), []);
        let folder = world.archive().join("scout");
        let old = folder.join("2026-01-01_0900.md");
        fs::write(&old, "x").unwrap();
        let past = std::time::SystemTime::from(world.clock.now())
            - std::time::Duration::from_secs(60 * 86400);
        fs::File::options()
            .write(true)
            .open(&old)
            .unwrap()
            .set_modified(past)
            .unwrap();
        let error = world.engine().retention().unwrap_err();
        assert_eq!(
            error.kind(),
            Kind::Integrity,
            "what an undo needs is not guessed"
        );
    }
}
