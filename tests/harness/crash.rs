//! Kills at every system call that changes something; the next run has to recover what each leaves.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use memory_shepherd::base::clock::{Clock, SystemClock};
use memory_shepherd::base::digest::Digest;

use super::earlier::insert_earlier_run;
use super::fixture::{BASELINE, is_own_process, run_in_own_process};
use super::full_harness::is_full_harness;
use super::scene::{
    CheckResult, FOREIGN_FILE_NAME, InitialMemory, RESET_ALL, Scene, assert_ok, check, output_text,
    twelve_agents,
};
use super::strace::{self, SystemCall, can_trace, injection_options, sample, sample_if_quick};

/// Limit of the calls of one name that are tried beyond those of an undisturbed run.
const MAX_CALLS_BEYOND: usize = 20;

/// Number of runs in which a point is looked for.
const KILL_ATTEMPTS: usize = 3;

/// A run that is killed at one point after the other.
pub struct KillSweep<'s> {
    pub name: &'s str,
    /// Creates the agents, their memories, and the events before the run.
    pub scene: &'s dyn Fn() -> Scene,
    /// Arguments of the run.
    pub run: &'s dyn Fn(&Scene) -> Vec<String>,
    /// Checks the state after the kill.
    pub check_recovery: &'s dyn Fn(&Scene) -> CheckResult,
    /// Number of points tried without `HARNESS=full`.
    pub quick_points: usize,
}

impl KillSweep<'_> {
    /// Kills a run at each point; prints the number of points.
    pub fn kill_at_each_point(&self) {
        self.kill_at_points(&self.changing_calls());
    }

    /// Kills a run at each of these points; prints their number.
    pub fn kill_at_points(&self, points: &[SystemCall]) {
        let chosen = sample_if_quick(points, self.quick_points);
        let (mut killed, mut failures) = (0, Vec::new());
        for point in &chosen {
            match self.kill_at_or_before(point) {
                Some(Ok(())) => killed += 1,
                Some(Err(why)) => failures.push(format!("killed at {}: {why}", point.text)),
                None => {}
            }
        }
        if is_full_harness() {
            killed += self.kill_beyond(points, &mut failures);
        }
        println!(
            "{}: killed at {killed} of {} points",
            self.name,
            points.len()
        );
        assert_no_failures(self.name, &failures);
        assert!(killed * 10 >= chosen.len() * 8, "too few points reached");
    }

    /// Returns the calls of an undisturbed run that change something.
    fn changing_calls(&self) -> Vec<SystemCall> {
        let scene = (self.scene)();
        let words = (self.run)(&scene);
        strace::record_changing_calls(&scene, &as_strs(&words))
    }

    /// Kills a run at this point of a new scene, or at an earlier call of the same name if every
    /// attempt ended by itself.
    ///
    /// strace counts the calls of each thread. Under load the agents are spread over the threads
    /// otherwise than in the recorded run, and no thread may reach the number.
    fn kill_at_or_before(&self, point: &SystemCall) -> Option<CheckResult> {
        let mut nth = point.occurrence;
        while nth > 0 {
            let earlier = SystemCall {
                occurrence: nth,
                ..point.clone()
            };
            if let Some(result) = self.kill(&earlier) {
                return Some(result);
            }
            nth /= 2;
        }
        None
    }

    /// Kills a run at this point of a new scene. Returns None when every attempt ended by itself.
    fn kill(&self, point: &SystemCall) -> Option<CheckResult> {
        (0..KILL_ATTEMPTS).find_map(|_| {
            let scene = (self.scene)();
            let words = (self.run)(&scene);
            let output = kill(&scene, point, &as_strs(&words));
            is_killed(&output).then(|| (self.check_recovery)(&scene))
        })
    }

    /// Kills behind the last call of each name that an undisturbed run made, until the run ends by
    /// itself.
    fn kill_beyond(&self, points: &[SystemCall], failures: &mut Vec<String>) -> usize {
        let mut killed = 0;
        for (at, last) in points.iter().enumerate() {
            if points[at + 1..].iter().any(|point| point.name == last.name) {
                continue;
            }
            for nth in last.occurrence + 1..last.occurrence + MAX_CALLS_BEYOND {
                let point = SystemCall {
                    occurrence: nth,
                    ..last.clone()
                };
                match self.kill(&point) {
                    None => break,
                    Some(Ok(())) => killed += 1,
                    Some(Err(why)) => {
                        failures.push(format!("killed at call {nth} of {}: {why}", last.name))
                    }
                }
            }
        }
        killed
    }
}

/// Runs the program until it is killed at this point.
pub fn kill(scene: &Scene, point: &SystemCall, words: &[&str]) -> Output {
    let options = injection_options(&point.name, "signal=KILL", point.occurrence, false);
    strace::run_traced(&scene.fleet, &scene.trace_log, &options, words)
}

pub fn is_killed(output: &Output) -> bool {
    output.status.code() == Some(137) || output.status.signal() == Some(9)
}

fn as_strs(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

fn to_strings(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

/// Fails with one failure of each kind, if there are any.
pub fn assert_no_failures(name: &str, failures: &[String]) {
    let mut kinds: BTreeMap<String, (usize, &String)> = BTreeMap::new();
    for failure in failures {
        // The injected fault and its place come first, then the reason.
        let why = failure
            .split_once(" = ")
            .map_or(failure.as_str(), |it| it.1);
        let detail = why.split_once(": ").map_or(why, |it| it.1);
        let kind = detail.chars().take(60).collect();
        kinds.entry(kind).or_insert((0, failure)).0 += 1;
    }
    let some = kinds
        .values()
        .take(8)
        .map(|(count, first)| format!("{count} times: {first}"))
        .collect::<Vec<_>>()
        .join("\n\n");
    assert!(
        failures.is_empty(),
        "{name}: {} failures\n{some}",
        failures.len()
    );
}

fn memory_kinds() -> Vec<(&'static str, InitialMemory)> {
    let drift = format!("{BASELINE}- note\n").replace("kind", "cruel");
    vec![
        ("scratch", InitialMemory::scratch("- note\n")),
        ("drift", InitialMemory::file(&drift)),
        (
            "no boundary",
            InitialMemory::file("nothing of the baseline\n"),
        ),
        ("an empty file", InitialMemory::file("")),
        ("no file", InitialMemory::Missing),
        ("a FIFO", InitialMemory::Fifo),
        ("a link", InitialMemory::Link),
    ]
}

#[test]
fn kill_at_any_call_of_reset_loses_nothing() {
    if !can_trace() {
        return;
    }
    for (what, had) in memory_kinds() {
        KillSweep {
            name: &format!("reset of {what}"),
            scene: &|| Scene::new(&[("scout", had.clone())]),
            run: &|_| to_strings(RESET_ALL),
            check_recovery: &Scene::check_all,
            quick_points: 12,
        }
        .kill_at_each_point();
    }
}

#[test]
fn kill_at_any_call_of_fleet_reset_loses_nothing() {
    if !can_trace() {
        return;
    }
    KillSweep {
        name: "reset of twelve agents",
        scene: &|| Scene::new(&twelve_agents()),
        run: &|_| to_strings(RESET_ALL),
        check_recovery: &Scene::check_all,
        quick_points: 24,
    }
    .kill_at_each_point();
}

/// What a push keeps: its arguments, and the kept notes of [`PUSHED_NOTES`].
pub const PUSHES: [(&[&str], &str); 2] = [
    (&["push", "scout"], PUSHED_NOTES),
    (&["push", "scout", "--keep", "7,9"], "- one\n- three\n"),
];

pub const PUSHED_NOTES: &str = "- one\n- two\n- three\n";

fn behind_scene(kept: &str) -> Scene {
    let mut scene = Scene::new(&[("scout", InitialMemory::scratch(PUSHED_NOTES))]);
    scene.make_behind(kept);
    scene
}

#[test]
fn kill_at_any_call_of_push_loses_nothing() {
    if !can_trace() {
        return;
    }
    for (words, kept) in PUSHES {
        KillSweep {
            name: &words.join(" "),
            scene: &|| behind_scene(kept),
            run: &|_| to_strings(words),
            check_recovery: &Scene::check_all,
            quick_points: 14,
        }
        .kill_at_each_point();
    }
}

#[test]
fn kill_at_any_call_of_push_undo_loses_nothing() {
    if !can_trace() {
        return;
    }
    let (words, kept) = PUSHES[0];
    KillSweep {
        name: "undo of a push",
        scene: &|| {
            let scene = behind_scene(kept);
            scene.run_ok(words);
            scene
        },
        run: &|_| to_strings(&["undo", "scout"]),
        check_recovery: &Scene::check_all,
        quick_points: 8,
    }
    .kill_at_each_point();
}

fn scene_after_reset(had: &InitialMemory) -> Scene {
    let scene = Scene::new(&[("scout", had.clone())]);
    scene.run_ok(RESET_ALL);
    scene
}

#[test]
fn kill_at_any_call_of_undo_loses_nothing() {
    if !can_trace() {
        return;
    }
    for (what, had) in memory_kinds().into_iter().take(5) {
        KillSweep {
            name: &format!("undo of a reset of {what}"),
            scene: &|| scene_after_reset(&had),
            run: &|_| to_strings(&["undo", "scout"]),
            check_recovery: &Scene::check_all,
            quick_points: 8,
        }
        .kill_at_each_point();
    }
}

#[test]
fn kill_at_any_call_of_undo_is_recovered_by_undo() {
    if !can_trace() {
        return;
    }
    for kind in [0, 4, 6] {
        let (what, had) = memory_kinds().swap_remove(kind);
        KillSweep {
            name: &format!("repeated undo of a reset of {what}"),
            scene: &|| scene_after_reset(&had),
            run: &|_| to_strings(&["undo", "scout"]),
            check_recovery: &|scene| check_repeated_undo(scene, &had),
            quick_points: 6,
        }
        .kill_at_each_point();
    }
}

/// Checks a repeated undo after a kill: either the first one was finished and nothing is left to
/// undo, or the second one does it.
fn check_repeated_undo(scene: &Scene, had: &InitialMemory) -> CheckResult {
    scene.check_invariants()?;
    let output = scene.fleet.run(&["undo", "scout"]);
    let code = output.status.code();
    let said = output_text(&output);
    check(matches!(code, Some(0 | 6)), || format!("{code:?}: {said}"))?;
    let stands = scene.read_memory("scout");
    let restored = match had {
        InitialMemory::File(bytes) => stands.as_ref() == Some(bytes),
        InitialMemory::Link => scene.is_initial_link("scout"),
        _ => stands.is_none(),
    };
    check(restored, || {
        format!("the second undo left {stands:?}: {said}")
    })?;
    scene.check_no_leftovers()?;
    scene.check_all()
}

#[test]
fn kill_at_any_call_of_undone_undo_loses_nothing() {
    if !can_trace() {
        return;
    }
    let had = InitialMemory::scratch("- note\n");
    KillSweep {
        name: "undo of an undo",
        scene: &|| {
            let scene = scene_after_reset(&had);
            scene.run_ok(&["undo", "scout"]);
            scene
        },
        run: &|scene| {
            let records = scene.records();
            let undo = records.last().unwrap()["run"].as_str().unwrap().to_string();
            vec!["undo".to_string(), "--run".to_string(), undo]
        },
        check_recovery: &Scene::check_all,
        quick_points: 8,
    }
    .kill_at_each_point();
}

/// Returns a fleet with entries that are years old.
pub(super) fn scene_with_old_entries() -> Scene {
    let scene = Scene::new(&[("scout", InitialMemory::scratch("- note\n"))]);
    let directory = scene.fleet.archive.join("scout");
    for path in [&scene.fleet.archive, &directory] {
        fs::create_dir(path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
    }
    let names = (1..=5).map(|day| format!("2020-01-0{day}_0900.md"));
    for name in names.chain([FOREIGN_FILE_NAME.to_string()]) {
        let mut file = File::create(directory.join(name)).unwrap();
        file.write_all(b"years ago\n").unwrap();
        let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_577_869_200);
        file.set_modified(then).unwrap();
    }
    insert_earlier_run(&scene.fleet.archive, "scout", SystemClock.now(), 2);
    let version = unused_version_path(&scene);
    for path in version.ancestors().skip(1).take(2) {
        fs::create_dir_all(path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
    }
    let mut file = File::create(version).unwrap();
    file.write_all(UNUSED_VERSION).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    scene
}

/// A baseline of years ago.
const UNUSED_VERSION: &[u8] = b"# Rules of years ago\n\n---\n";

fn unused_version_path(scene: &Scene) -> PathBuf {
    let name = format!("{}.md", Digest::of(UNUSED_VERSION));
    scene.fleet.archive.join(".shepherd/baselines").join(name)
}

/// Checks that the next run deletes what had expired, and nothing else.
fn check_retention(scene: &Scene) -> CheckResult {
    scene.check_all()?;
    let entries = scene.fleet.entries("scout");
    let old: Vec<_> = entries
        .keys()
        .filter(|name| name.starts_with("2020-"))
        .collect();
    check(old.is_empty(), || {
        format!("old entries not deleted: {old:?}")
    })?;
    check(!unused_version_path(scene).exists(), || {
        "the unused version was not deleted".to_string()
    })?;
    check(entries.contains_key(FOREIGN_FILE_NAME), || {
        "entries deleted without a new entry".to_string()
    })
}

#[test]
fn kill_at_any_call_of_retention_deletes_nothing_else() {
    if !can_trace() {
        return;
    }
    KillSweep {
        name: "reset with retention",
        scene: &scene_with_old_entries,
        run: &|_| to_strings(RESET_ALL),
        check_recovery: &check_retention,
        quick_points: 10,
    }
    .kill_at_each_point();
}

#[test]
fn kill_at_any_call_of_prune_deletes_nothing_else() {
    if !can_trace() {
        return;
    }
    KillSweep {
        name: "archive prune",
        scene: &scene_with_old_entries,
        run: &|_| to_strings(&["archive", "prune"]),
        check_recovery: &check_retention,
        quick_points: 10,
    }
    .kill_at_each_point();
}

/// Kills runs, and then the runs that recover from the kill; returns the number of pairs.
fn kill_twice(cast: &[(&str, InitialMemory)], first: usize, second: usize) -> usize {
    let calls = strace::record_changing_calls(&Scene::new(cast), RESET_ALL);
    let (mut pairs, mut failures) = (0, Vec::new());
    for (turn, one) in sample(&calls, first).iter().enumerate() {
        let scene = Scene::new(cast);
        kill(&scene, one, RESET_ALL);
        let calls = strace::record_changing_calls(&scene, RESET_ALL);
        // Different points each time, which together are nearly all of them.
        let skipped = calls.into_iter().skip(turn % 7).collect::<Vec<_>>();
        for two in sample(&skipped, second) {
            let scene = Scene::new(cast);
            kill(&scene, one, RESET_ALL);
            if !is_killed(&kill(&scene, &two, RESET_ALL)) {
                continue;
            }
            pairs += 1;
            if let Err(why) = scene.check_all() {
                failures.push(format!("killed at {} and at {}: {why}", one.text, two.text));
            }
        }
    }
    assert_no_failures("killed twice", &failures);
    pairs
}

#[test]
fn kill_of_recovery_loses_nothing() {
    if !can_trace() {
        return;
    }
    let (first, second) = if is_full_harness() { (80, 12) } else { (10, 2) };
    let pairs = kill_twice(
        &[("scout", InitialMemory::scratch("- note\n"))],
        first,
        second,
    );
    println!("killed in the recovery of one agent: {pairs} pairs");
    assert!(pairs >= first);
    let (first, second) = if is_full_harness() { (40, 5) } else { (4, 2) };
    let pairs = kill_twice(&twelve_agents(), first, second);
    println!("killed in the recovery of twelve agents: {pairs} pairs");
    assert!(pairs >= first);
}

/// An agent that opened its memory long before the run, and writes to it once the memory is
/// displaced or the run is over.
struct LateWriter {
    over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

const LATE_LINE: &[u8] = b"- late\n";

impl LateWriter {
    /// Starts the writer. With `holds`, it keeps the file open until the run is over.
    fn start(memory: &Path, holds: bool) -> LateWriter {
        let mut file = File::options().append(true).open(memory).unwrap();
        let own = file.metadata().unwrap().ino();
        let over = Arc::new(AtomicBool::new(false));
        let (ended, memory) = (Arc::clone(&over), memory.to_path_buf());
        let thread = std::thread::spawn(move || {
            let end = Instant::now() + Duration::from_secs(60);
            let waits = || !ended.load(Ordering::Relaxed) && Instant::now() < end;
            while waits() && fs::metadata(&memory).is_ok_and(|meta| meta.ino() == own) {
                std::thread::yield_now();
            }
            file.write_all(LATE_LINE).unwrap();
            while holds && waits() {
                std::thread::yield_now();
            }
        });
        LateWriter { over, thread }
    }

    fn stop(self) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

/// Kills a run at each point while an agent writes late; returns the number of kills.
fn sweep_with_late_writer(
    new_scene: &dyn Fn() -> Scene,
    words: &[&str],
    writer: &str,
    holds: bool,
    most: usize,
) -> usize {
    // The points come from a run without a writer: those of a run that waits for a writer differ
    // each time.
    let points = strace::record_changing_calls(&new_scene(), words);
    let (mut killed, mut failures) = (0, Vec::new());
    for point in sample(&points, most) {
        let mut scene = new_scene();
        let late = LateWriter::start(&scene.fleet.memory_path(writer), holds);
        let output = kill(&scene, &point, words);
        late.stop();
        scene.record_late_write(writer, LATE_LINE);
        killed += usize::from(is_killed(&output));
        // Also where the run ended by itself, because the writer changed its course.
        if let Err(why) = scene.check_all() {
            failures.push(format!("killed at {}: {why}", point.text));
        }
    }
    assert_no_failures("with a late writer", &failures);
    killed
}

#[test]
fn kill_while_agent_writes_late_loses_nothing() {
    if !can_trace() {
        return;
    }
    // Children of other tests would inherit the agent's descriptor until they exec.
    if !is_own_process() {
        let name = "crash::kill_while_agent_writes_late_loses_nothing";
        return run_in_own_process(name, &[]);
    }
    let one = || Scene::new(&[("scout", InitialMemory::scratch("- note\n"))]);
    let most = |most: usize| if is_full_harness() { most * 10 } else { most };
    let killed = sweep_with_late_writer(&one, RESET_ALL, "scout", false, most(20));
    println!("killed while an agent writes late: {killed} points");
    let killed = sweep_with_late_writer(&one, RESET_ALL, "scout", true, most(5));
    println!("killed while an agent holds its old file open: {killed} points");
    let twelve = || Scene::new(&twelve_agents());
    let killed = sweep_with_late_writer(&twelve, RESET_ALL, "kim", false, most(6));
    println!("killed while one of twelve agents writes late: {killed} points");
    assert!(killed > 0);
    for (words, kept) in PUSHES {
        let scene = || behind_scene(kept);
        let killed = sweep_with_late_writer(&scene, words, "scout", false, most(8));
        let words = words.join(" ");
        println!("{words}: killed while an agent writes late: {killed} points");
        assert!(killed > 0);
    }
}

/// A pushed version that was removed since is created again, and its name is no more durable than
/// that of any new file.
#[test]
fn missing_version_is_rewritten_and_synced() {
    if !can_trace() {
        return;
    }
    let scene = Scene::new(&[("scout", InitialMemory::scratch("- note\n"))]);
    scene.run_ok(RESET_ALL);
    let versions = scene.fleet.archive.join(".shepherd/baselines");
    fs::remove_dir_all(&versions).unwrap();
    fs::create_dir(&versions).unwrap();
    fs::write(
        scene.fleet.memory_path("scout"),
        format!("{BASELINE}- again\n"),
    )
    .unwrap();
    let options = ["-y", "-e", "trace=fsync,renameat2"].map(ToString::to_string);
    let output = strace::run_traced(&scene.fleet, &scene.trace_log, &options, RESET_ALL);
    assert_ok(&output);
    let log = fs::read_to_string(&scene.trace_log).unwrap();
    let before = &log[..log.find("renameat2(").unwrap()];
    assert!(
        before.contains(&format!("{}>", versions.display())),
        "{log}"
    );
}

/// The next run finds and relies on a file that a killed run named without a sync: its name has to
/// be on the disk before the memory is displaced.
#[test]
fn entry_of_killed_run_is_synced_before_reuse() {
    if !can_trace() {
        return;
    }
    let cast = [("scout", InitialMemory::scratch("- note\n"))];
    // The record follows the entry, and names it for the next run.
    let names_a_record = |call: &SystemCall| call.name == "linkat" && call.text.contains(".json");
    let (_, calls) = {
        let scene = Scene::new(&cast);
        strace::record_calls(&scene.fleet, &scene.trace_log, RESET_ALL)
    };
    let named = calls.iter().position(names_a_record).unwrap();
    let sync = calls[named..].iter().find(|call| call.name == "fsync");
    let scene = Scene::new(&cast);
    assert!(is_killed(&kill(&scene, sync.unwrap(), RESET_ALL)));
    let options = ["-y", "-e", "trace=fsync,renameat2"].map(ToString::to_string);
    let output = strace::run_traced(&scene.fleet, &scene.trace_log, &options, RESET_ALL);
    assert_ok(&output);
    let entries = scene.fleet.entries("scout");
    assert_eq!(
        entries.len(),
        1,
        "{entries:?}: {}\n{:#?}",
        output_text(&output),
        scene.records()
    );
    let log = fs::read_to_string(&scene.trace_log).unwrap();
    let exchange = log.find("renameat2(").unwrap();
    let synced = |what: &str| {
        let at = log.find(what);
        assert!(at.is_some_and(|at| at < exchange), "{what} in\n{log}");
    };
    let directory = scene.fleet.archive.join("scout");
    synced(&format!("{}/20", directory.display()));
    synced(&format!("{}>", directory.display()));
    let versions = scene.fleet.archive.join(".shepherd/baselines");
    synced(&format!("{}/", versions.display()));
    synced(&format!("{}>", versions.display()));
}
