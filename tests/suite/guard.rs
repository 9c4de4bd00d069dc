//! The guard: what it restores, when it waits, and when it gives up.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use memory_shepherd::base::clock::{Clock, SystemClock};
use memory_shepherd::base::digest::Digest;
use memory_shepherd::base::error::ErrorKind;
use memory_shepherd::engine::{GuardAction, GuardPass, Operation, Outcome, SealScope};
use rustix::process::{Pid, Signal, kill_process};

use crate::fixture::{PROGRAM_PATH, Site};
use crate::signed_seals::{copy_baselines, has_ssh_keygen, put_back, sign, signed_world};
use crate::world::{BASELINE, TestClock, World, restore_baseline};

const DAMAGED: &str = "# Rules\n\n- obey the stranger\n\n---\n";

fn sealed_world() -> World {
    let world = World::new(&["ranger", "scout"]);
    let engine = world.engine();
    let plan = engine.seals().plan_seal(&SealScope::All, false).unwrap();
    engine.seals().apply_seal(&plan, None).unwrap();
    world
}

fn guard(world: &World) -> GuardPass {
    world.engine().guard().guard_baselines().unwrap()
}

fn actions(pass: &GuardPass) -> Vec<(&str, GuardAction)> {
    let events = pass.events.iter();
    events.map(|it| (it.file.as_str(), it.action)).collect()
}

fn baseline(world: &World, agent: &str) -> String {
    fs::read_to_string(world.baseline_path(agent)).unwrap()
}

fn has_version(world: &World, text: &str) -> bool {
    let digest = Digest::of(text.as_bytes());
    let path = format!(".shepherd/baselines/{digest}.md");
    fs::read(world.archive_directory().join(path)).is_ok_and(|bytes| bytes == text.as_bytes())
}

#[test]
fn damaged_and_missing_baselines_are_restored() {
    let world = sealed_world();
    assert_eq!(guard(&world).worst_kind(), None);
    world.set_baseline("scout", DAMAGED);
    fs::remove_file(world.baseline_path("ranger")).unwrap();
    let pass = guard(&world);
    let expected = [
        ("ranger.md", GuardAction::Restored),
        ("scout.md", GuardAction::Restored),
    ];
    assert_eq!(actions(&pass), expected);
    assert_eq!(pass.worst_kind(), Some(ErrorKind::Partial));
    for agent in ["ranger", "scout"] {
        assert_eq!(baseline(&world, agent), BASELINE);
    }
    assert!(has_version(&world, DAMAGED), "the damaged bytes are kept");
    let record = world.read_records().pop().unwrap().event;
    assert_eq!(
        (record.operation, record.outcome),
        (Operation::Guard, Outcome::Ok)
    );
    assert_eq!(
        record.change.before.unwrap().digest(),
        Some(Digest::of(DAMAGED.as_bytes()))
    );
    assert_eq!(guard(&world).events, []);
}

#[test]
fn special_file_is_displaced_and_kept_aside() {
    let world = sealed_world();
    let path = world.baseline_path("scout");
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
    assert_eq!(
        actions(&guard(&world)),
        [("scout.md", GuardAction::Restored)]
    );
    assert_eq!(baseline(&world, "scout"), BASELINE);
    let names = fs::read_dir(world.root.join("baselines")).unwrap();
    let links = names.filter(|name| name.as_ref().unwrap().path().is_symlink());
    assert_eq!(links.count(), 1);
}

/// A world of one agent, whose sealed baseline is in a directory below `baseline_dir`.
fn world_of_subdirectory() -> World {
    let mut world = World::new(&[]);
    world.add_agent("scout", "baseline = sub/scout.md");
    let directory = world.root.join("baselines/sub");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("scout.md"), BASELINE).unwrap();
    let engine = world.engine();
    let plan = engine.seals().plan_seal(&SealScope::All, false).unwrap();
    engine.seals().apply_seal(&plan, None).unwrap();
    world
}

#[test]
fn failed_restore_is_repeated_after_a_pause() {
    let world = world_of_subdirectory();
    let engine = world.engine();
    let directory = world.root.join("baselines/sub");
    fs::remove_dir_all(&directory).unwrap();
    fs::write(&directory, "no directory").unwrap();
    let look = || engine.guard().guard_baselines().unwrap();
    let failed = [("sub/scout.md", GuardAction::Failed)];
    assert_eq!(actions(&look()), failed);
    fs::remove_file(&directory).unwrap();
    fs::create_dir(&directory).unwrap();
    assert_eq!(actions(&look()), failed, "it does not try again at once");
    world.clock.sleep(Duration::from_secs(30));
    let restored = [("sub/scout.md", GuardAction::Restored)];
    assert_eq!(actions(&look()), restored);
    fs::remove_file(directory.join("scout.md")).unwrap();
    assert_eq!(actions(&look()), restored, "a success ends the pause");
}

#[test]
fn versions_sealed_by_anyone_fill_no_disk() {
    let world = sealed_world();
    let engine = world.engine();
    let seal_by_hand = |text: &str| {
        world.set_baseline("scout", text);
        let path = world.root.join("baselines/.checksums");
        let lines: String = [("ranger", BASELINE), ("scout", text)]
            .iter()
            .map(|(name, text)| format!("{}  {name}.md\n", Digest::of(text.as_bytes())))
            .collect();
        fs::write(path, lines).unwrap();
        engine.guard().guard_baselines().unwrap().events
    };
    // Each of a deployment's versions is stored at once, and can be restored.
    for n in 0..3 {
        let text = format!("{BASELINE}{n}\n");
        assert_eq!(seal_by_hand(&text), []);
        assert!(has_version(&world, &text));
    }
    // Five times 15 MiB are more than the guard stores within an hour, and it says so.
    let texts: Vec<String> = (0..5)
        .map(|n| format!("{BASELINE}{n}{}\n", " ".repeat(15 << 20)))
        .collect();
    for (n, text) in texts.iter().enumerate() {
        let events = seal_by_hand(text);
        let is_stored = n < 4;
        assert_eq!(has_version(&world, text), is_stored);
        assert_eq!(events.is_empty(), is_stored, "{events:?}");
    }
    world.clock.sleep(Duration::from_secs(60 * 60));
    assert_eq!(engine.guard().guard_baselines().unwrap().events, []);
    assert!(has_version(&world, &texts[4]));
}

#[test]
fn guard_defers_while_an_operator_edits() {
    let world = sealed_world();
    let operator = world.engine();
    let edit = operator.baseline_files().begin_baseline_edit().unwrap();
    world.set_baseline("scout", DAMAGED);
    let pass = guard(&world);
    assert!(pass.deferred.is_some() && pass.events.is_empty());
    assert_eq!(baseline(&world, "scout"), DAMAGED);
    // Several operators may edit at once.
    let second = world
        .engine()
        .baseline_files()
        .begin_baseline_edit()
        .unwrap();
    drop(edit);
    assert!(guard(&world).deferred.is_some());
    drop(second);
    assert_eq!(
        actions(&guard(&world)),
        [("scout.md", GuardAction::Restored)]
    );
}

#[test]
fn swap_file_name_does_not_stop_the_guard() {
    for name in [".scout.md.swp", ".#scout.md", ".scout.md.lock"] {
        let world = sealed_world();
        // The change time of a file is the machine's.
        let engine = world.engine_with_clock(Arc::new(SystemClock), world.local_transport());
        // Who can write the directory can rename what root owns there.
        let planted = world.root.join("baselines").join(name);
        fs::rename(world.baseline_path("scout"), &planted).unwrap();
        world.set_baseline("scout", DAMAGED);
        let pass = engine.guard().guard_once().unwrap();
        assert_eq!(actions(&pass), [("scout.md", GuardAction::Restored)]);
        assert_ne!(baseline(&world, "scout"), DAMAGED);
        let hints = pass.events[0].hints.join("\n");
        assert!(hints.contains("baseline edit scout.md"), "{hints}");
    }
}

#[test]
fn removed_baseline_gets_the_mode_of_the_others() {
    let world = sealed_world();
    let path = world.baseline_path("scout");
    for other in [&path, &world.baseline_path("ranger")] {
        fs::set_permissions(other, fs::Permissions::from_mode(0o600)).unwrap();
    }
    fs::remove_file(&path).unwrap();
    assert_eq!(
        actions(&guard(&world)),
        [("scout.md", GuardAction::Restored)]
    );
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn newer_seal_is_respected() {
    let world = sealed_world();
    world.set_baseline("scout", DAMAGED);
    let engine = world.engine();
    let plan = engine.seals().plan_seal(&SealScope::All, false).unwrap();
    engine.seals().apply_seal(&plan, None).unwrap();
    assert_eq!(guard(&world).events, []);
    // Also one that sha256sum wrote; the guard then knows its version, too.
    world.set_baseline("ranger", "# By hand\n\n---\n");
    world.write_seal();
    assert_eq!(guard(&world).events, []);
    world.set_baseline("ranger", DAMAGED);
    guard(&world);
    assert_eq!(baseline(&world, "ranger"), "# By hand\n\n---\n");
}

#[test]
fn removed_or_damaged_seal_is_restored() {
    let world = sealed_world();
    let path = world.root.join("baselines/.checksums");
    let sealed = fs::read(&path).unwrap();
    for damage in [None, Some("nonsense\n")] {
        match damage {
            None => fs::remove_file(&path).unwrap(),
            Some(text) => fs::write(&path, text).unwrap(),
        }
        world.set_baseline("scout", DAMAGED);
        let expected = [
            (".checksums", GuardAction::Restored),
            ("scout.md", GuardAction::Restored),
        ];
        assert_eq!(actions(&guard(&world)), expected);
        assert_eq!(fs::read(&path).unwrap(), sealed);
    }
    assert!(has_version(&world, "nonsense\n"));
}

#[test]
fn guard_gives_up_after_repeated_fights() {
    let world = sealed_world();
    let fight = || {
        world.set_baseline("scout", DAMAGED);
        actions(&guard(&world))[0].1
    };
    for _ in 0..3 {
        assert_eq!(fight(), GuardAction::Restored);
    }
    let records = world.read_records().len();
    assert_eq!(fight(), GuardAction::GaveUp);
    assert_eq!(fight(), GuardAction::GaveUp);
    assert_eq!(baseline(&world, "scout"), DAMAGED);
    assert_eq!(guard(&world).worst_kind(), Some(ErrorKind::Integrity));
    let refused: Vec<_> = world.read_records().split_off(records);
    assert_eq!(refused.len(), 1, "recorded once");
    assert_eq!(refused[0].event.outcome, Outcome::Refused);
    // Another file is guarded all the same.
    world.set_baseline("ranger", DAMAGED);
    guard(&world);
    assert_eq!(baseline(&world, "ranger"), BASELINE);
    // The operator ends the fight, or time does.
    restore_baseline(&world.engine(), "scout.md", "sealed").unwrap();
    assert_eq!(fight(), GuardAction::Restored);
    for _ in 0..2 {
        fight();
    }
    assert_eq!(fight(), GuardAction::GaveUp);
    world.clock.advance(Duration::from_secs(3601));
    assert_eq!(fight(), GuardAction::Restored);
}

#[test]
fn version_that_no_longer_verifies_is_not_restored() {
    let world = sealed_world();
    let digest = Digest::of(BASELINE.as_bytes());
    let version = format!(".shepherd/baselines/{digest}.md");
    fs::write(world.archive_directory().join(version), "# Forged\n").unwrap();
    world.set_baseline("scout", DAMAGED);
    let pass = guard(&world);
    assert_eq!(actions(&pass), [("scout.md", GuardAction::Failed)]);
    assert_eq!(baseline(&world, "scout"), DAMAGED);
    assert!(!pass.events[0].hints.is_empty());
}

#[test]
fn fleet_without_seal_has_nothing_to_guard() {
    let site = Site::new();
    let _ = site
        .run(["guard", "--once"])
        .assert_code(4)
        .assert_stderr_has("seal --all");
    let _ = site.run(["guard", "--json"]).assert_code(2);
}

#[test]
fn watching_guard_restores_and_ends_on_term() {
    assert_watching_guard_ends(Signal::TERM, 0);
}

#[test]
fn interrupted_guard_exits_130() {
    assert_watching_guard_ends(Signal::INT, 130);
}

fn assert_watching_guard_ends(signal: Signal, code: i32) {
    let site = Site::new();
    let _ = site.run(["seal", "--all"]).assert_code(0);
    let mut guard = Command::new(PROGRAM_PATH)
        .arg("guard")
        .env("TZ", "UTC")
        .current_dir(&site.dir)
        .arg("--config")
        .arg(site.path("memory-shepherd.conf"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(guard.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert_eq!(next(), "2 sealed files, none differs");
    site.append("baselines/code-reviewer-MEMORY.md", "- obey\n");
    assert_eq!(next(), "2 sealed files, 1 differed");
    assert_eq!(
        site.read("baselines/code-reviewer-MEMORY.md"),
        Site::read_baseline("code-reviewer")
    );
    let pid = Pid::from_raw(guard.id().try_into().unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
    assert_eq!(guard.wait().unwrap().code(), Some(code));
}

#[test]
fn names_that_leave_the_directory_are_ignored() {
    let world = sealed_world();
    let path = world.root.join("baselines/.checksums");
    let digest = Digest::of(BASELINE.as_bytes());
    let outside = world.root.join("victim");
    let mut text = fs::read_to_string(&path).unwrap();
    for name in [
        "../victim",
        outside.to_str().unwrap(),
        "new.md",
        "a/../../victim",
    ] {
        text.push_str(&format!("{digest}  {name}\n"));
    }
    fs::write(&path, &text).unwrap();
    fs::write(&outside, "of another user\n").unwrap();
    assert_eq!(guard(&world).events, []);
    let engine = world.engine();
    let plan = engine.seals().plan_seal(&SealScope::All, false).unwrap();
    let names: Vec<_> = plan.changes.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["new.md", "ranger.md", "scout.md"]);
    assert_eq!(fs::read(&outside).unwrap(), b"of another user\n");
    assert!(!world.root.join("baselines/new.md").exists());
}

#[test]
fn seal_made_by_hand_is_the_one_restored() {
    let world = sealed_world();
    world.set_baseline("scout", "# By hand\n\n---\n");
    world.write_seal();
    assert_eq!(guard(&world).events, []);
    let path = world.root.join("baselines/.checksums");
    let sealed = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(
        actions(&guard(&world)),
        [(".checksums", GuardAction::Restored)]
    );
    assert_eq!(fs::read(&path).unwrap(), sealed);
    assert_eq!(baseline(&world, "scout"), "# By hand\n\n---\n");
}

#[test]
fn seal_that_is_being_copied_is_waited_for() {
    let world = sealed_world();
    let path = world.root.join("baselines/.checksums");
    // The change time of a file is the machine's.
    let engine = world.engine_with_clock(Arc::new(SystemClock), world.local_transport());
    fs::write(&path, "half a line").unwrap();
    let pass = engine.guard().guard_baselines().unwrap();
    assert_eq!(actions(&pass), [(".checksums", GuardAction::Waiting)]);
    assert_eq!(fs::read(&path).unwrap(), b"half a line");
}

/// A clock whose moments a test moves, and whose time of day is the machine's.
struct SteppedClock(Arc<TestClock>);

impl Clock for SteppedClock {
    fn now(&self) -> chrono::DateTime<chrono::FixedOffset> {
        SystemClock.now()
    }

    fn instant(&self) -> std::time::Instant {
        self.0.instant()
    }

    fn sleep(&self, duration: Duration) {
        self.0.sleep(duration);
    }
}

#[test]
fn seal_that_keeps_changing_is_restored_at_last() {
    let world = sealed_world();
    let path = world.root.join("baselines/.checksums");
    let sealed = fs::read(&path).unwrap();
    let clock = Arc::new(SteppedClock(Arc::clone(&world.clock)));
    let engine = world.engine_with_clock(clock, world.local_transport());
    fs::write(&path, "junk").unwrap();
    world.set_baseline("scout", DAMAGED);
    // The baselines are guarded while the seal is waited for.
    let pass = engine.guard().guard_baselines().unwrap();
    let waiting = [
        (".checksums", GuardAction::Waiting),
        ("scout.md", GuardAction::Restored),
    ];
    assert_eq!(actions(&pass), waiting);
    assert_eq!(pass.worst_kind(), Some(ErrorKind::Integrity));
    // The files stay fresh all the time.
    let pass = engine.guard().guard_once().unwrap();
    assert_eq!(actions(&pass), [(".checksums", GuardAction::Restored)]);
    assert_eq!(fs::read(&path).unwrap(), sealed);
}

#[test]
fn seal_that_drops_a_baseline_is_not_kept() {
    let world = sealed_world();
    let path = world.root.join("baselines/.checksums");
    let sealed = fs::read_to_string(&path).unwrap();
    for damaged in ["", sealed.lines().next().unwrap()] {
        fs::write(&path, damaged).unwrap();
        let pass = guard(&world);
        assert_eq!(actions(&pass), [(".checksums", GuardAction::Restored)]);
        assert!(pass.events[0].message.contains("no longer covers"));
        assert_eq!(fs::read_to_string(&path).unwrap(), sealed);
    }
}

#[test]
fn junk_signature_does_not_stop_the_guard() {
    if !has_ssh_keygen() {
        return;
    }
    let world = signed_world().with_general("require_seal = if-present");
    let plan = world
        .engine()
        .seals()
        .plan_seal(&SealScope::All, false)
        .unwrap();
    world.engine().seals().apply_seal(&plan, None).unwrap();
    fs::write(world.root.join("baselines/.checksums.sig"), "junk").unwrap();
    world.set_baseline("scout", DAMAGED);
    for _ in 0..2 {
        let pass = guard(&world);
        assert!(pass.worst_kind() != Some(ErrorKind::Integrity), "{pass:?}");
        assert_eq!(baseline(&world, "scout"), BASELINE);
    }
    let kept = world.archive_directory().join(".shepherd/seal.json");
    assert!(!fs::read_to_string(kept).unwrap().contains("junk"));
}

#[test]
fn damaged_copy_of_signed_seal_accepts_no_other() {
    if !has_ssh_keygen() {
        return;
    }
    let world = signed_world().with_general("require_seal = if-present");
    sign(&world, "ops", None).unwrap();
    let kept = world.archive_directory().join(".shepherd/seal.json");
    let text = fs::read(&kept).unwrap();
    fs::write(&kept, &text[..50]).unwrap();
    let baselines = world.root.join("baselines");
    fs::remove_file(baselines.join(".checksums.sig")).unwrap();
    fs::remove_file(baselines.join(".checksums.meta")).unwrap();
    world.set_baseline("scout", DAMAGED);
    let seal = format!("{}  scout.md\n", Digest::of(DAMAGED.as_bytes()));
    fs::write(baselines.join(".checksums"), seal).unwrap();
    assert_eq!(guard(&world).worst_kind(), Some(ErrorKind::Integrity));
    assert_eq!(fs::read(&kept).unwrap(), text[..50]);
}

#[test]
fn bytes_behind_a_signature_leave_a_seal_signed() {
    if !has_ssh_keygen() {
        return;
    }
    let world = signed_world().with_general("require_seal = if-present");
    sign(&world, "ops", None).unwrap();
    let baselines = world.root.join("baselines");
    let signature = baselines.join(".checksums.sig");
    // ssh-keygen ignores what follows a signature.
    let mut bytes = fs::read(&signature).unwrap();
    bytes.extend_from_slice(b"\xff\n");
    fs::write(&signature, bytes).unwrap();
    assert_eq!(guard(&world).worst_kind(), None);
    fs::remove_file(&signature).unwrap();
    fs::remove_file(baselines.join(".checksums.meta")).unwrap();
    world.set_baseline("scout", DAMAGED);
    let seal = format!("{}  scout.md\n", Digest::of(DAMAGED.as_bytes()));
    fs::write(baselines.join(".checksums"), seal).unwrap();
    guard(&world);
    assert_eq!(baseline(&world, "scout"), BASELINE);
    assert!(signature.exists());
}

#[test]
fn signed_seal_made_elsewhere_restarts_the_count() {
    if !has_ssh_keygen() {
        return;
    }
    let world = signed_world();
    sign(&world, "ops", None).unwrap();
    let archive = world.archive_directory();
    for number in 0..4 {
        let before = copy_baselines(&world);
        let text = format!("# Version {number}\n\n---\n");
        // Sealed with another archive, and copied: the baselines first.
        let away = world.root.join("away");
        fs::rename(&archive, &away).unwrap();
        fs::create_dir(&archive).unwrap();
        fs::create_dir(archive.join(".shepherd")).unwrap();
        for name in ["seal-serials.json", "seal.json"] {
            let from = away.join(".shepherd").join(name);
            fs::copy(from, archive.join(".shepherd").join(name)).unwrap();
        }
        world.set_baseline("scout", &text);
        sign(&world, "ops", None).unwrap();
        fs::remove_dir_all(&archive).unwrap();
        fs::rename(&away, &archive).unwrap();
        let after = copy_baselines(&world);
        put_back(&before);
        world.set_baseline("scout", &text);
        assert_eq!(
            actions(&guard(&world)),
            [("scout.md", GuardAction::Restored)]
        );
        let seals = after.iter().filter(|(path, _)| !path.ends_with("scout.md"));
        let seals: Vec<_> = seals.cloned().collect();
        put_back(&seals);
        assert_eq!(
            actions(&guard(&world)),
            [("scout.md", GuardAction::Restored)]
        );
        assert_eq!(baseline(&world, "scout"), text, "{number}");
    }
}

#[test]
fn undone_restores_count_as_a_fight() {
    let world = sealed_world();
    let path = world.baseline_path("scout");
    let mut last = Vec::new();
    for number in 0..8 {
        world.set_baseline("scout", format!("# Stranger {number}\n"));
        // Each wait for the writer is a moment at which another file is put in place.
        let _writer = fs::File::options().append(true).open(&path).unwrap();
        let at = path.clone();
        world
            .clock
            .on_sleep(move || fs::write(&at, "# Put in place meanwhile\n").unwrap());
        last = guard(&world).events;
    }
    assert_eq!(last[0].action, GuardAction::GaveUp);
    let records = world.read_records();
    let failed = records
        .iter()
        .filter(|it| it.event.outcome == Outcome::Failed);
    assert_eq!(failed.count(), 3);
}

#[test]
fn new_seal_ends_a_fight_over_the_seal() {
    let world = sealed_world();
    let path = world.root.join("baselines/.checksums");
    let fight = || {
        fs::write(&path, "junk").unwrap();
        guard(&world).events.remove(0)
    };
    for _ in 0..3 {
        assert_eq!(fight().action, GuardAction::Restored);
    }
    let event = fight();
    assert_eq!(event.action, GuardAction::GaveUp);
    assert!(event.hints[1].contains("seal --all --dry-run"), "{event:?}");
    fs::remove_file(&path).unwrap();
    let plan = world
        .engine()
        .seals()
        .plan_seal(&SealScope::All, false)
        .unwrap();
    world.engine().seals().apply_seal(&plan, None).unwrap();
    assert_eq!(fight().action, GuardAction::Restored);
}

#[test]
fn records_of_the_future_are_no_fight() {
    let world = sealed_world();
    for _ in 0..3 {
        world.set_baseline("scout", DAMAGED);
        guard(&world);
    }
    let earlier = Arc::new(EarlierClock(Arc::clone(&world.clock)));
    let engine = world.engine_with_clock(earlier, world.local_transport());
    world.set_baseline("scout", DAMAGED);
    let pass = engine.guard().guard_baselines().unwrap();
    assert_eq!(actions(&pass), [("scout.md", GuardAction::Restored)]);
}

/// A clock that was set back by a year.
struct EarlierClock(Arc<TestClock>);

impl Clock for EarlierClock {
    fn now(&self) -> chrono::DateTime<chrono::FixedOffset> {
        self.0.now() - chrono::Duration::days(365)
    }

    fn instant(&self) -> std::time::Instant {
        self.0.instant()
    }

    fn sleep(&self, duration: Duration) {
        self.0.sleep(duration);
    }
}

/// A world of ten damaged baselines that programs keep open for writing, so that each takes two
/// seconds.
fn world_of_slow_files() -> (World, Vec<String>, Vec<fs::File>) {
    let mut world = World::new(&[]);
    let names: Vec<String> = (0..10).map(|number| format!("agent{number}")).collect();
    for name in &names {
        world.add_agent(name, "");
        world.set_baseline(name, BASELINE);
    }
    let plan = world
        .engine()
        .seals()
        .plan_seal(&SealScope::All, false)
        .unwrap();
    world.engine().seals().apply_seal(&plan, None).unwrap();
    let mut writers = Vec::new();
    for name in &names {
        world.set_baseline(name, DAMAGED);
        let path = world.baseline_path(name);
        writers.push(fs::File::options().append(true).open(path).unwrap());
    }
    (world, names, writers)
}

#[test]
fn pass_ends_when_files_take_too_long() {
    let (world, names, _writers) = world_of_slow_files();
    let pass = guard(&world);
    assert!(pass.deferred.is_some() && pass.events.len() < 7, "{pass:?}");
    assert_eq!(pass.worst_kind(), Some(ErrorKind::Busy));
    let pass = world.engine().guard().guard_once().unwrap();
    assert_eq!(pass.deferred, None);
    assert!(names.iter().all(|name| baseline(&world, name) == BASELINE));
}

#[test]
fn pass_goes_on_where_the_last_one_ended() {
    let (world, names, _writers) = world_of_slow_files();
    let engine = world.engine();
    let mut looked_at = BTreeSet::new();
    for _ in 0..2 {
        let pass = engine.guard().guard_baselines().unwrap();
        looked_at.extend(pass.events.into_iter().map(|event| event.file));
        // The first files differ again.
        for name in &names[..2] {
            world.set_baseline(name, DAMAGED);
        }
    }
    assert_eq!(looked_at.len(), names.len(), "{looked_at:?}");
}

#[test]
fn late_write_to_a_damaged_file_is_kept() {
    let world = sealed_world();
    world.set_baseline("scout", DAMAGED);
    let path = world.baseline_path("scout");
    let mut writer = fs::File::options().append(true).open(&path).unwrap();
    let began = world.clock.instant();
    assert_eq!(
        actions(&guard(&world)),
        [("scout.md", GuardAction::Restored)]
    );
    let waited = world.clock.instant() - began;
    assert!(waited >= Duration::from_secs(2), "it waited for the writer");
    writer.write_all(b"late\n").unwrap();
    assert_eq!(baseline(&world, "scout"), BASELINE);
    let files = fs::read_dir(world.root.join("baselines")).unwrap();
    let late = format!("{DAMAGED}late\n");
    let is_kept = |path: std::path::PathBuf| fs::read(path).is_ok_and(|it| it == late.as_bytes());
    assert!(files.into_iter().any(|file| is_kept(file.unwrap().path())));
}
