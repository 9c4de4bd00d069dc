//! The program is killed at every call that changes something, and the next run
//! has to put right what that left.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use memory_shepherd::clock::{Clock, SystemClock};

use super::earlier::earlier_run;
use super::fixture::{BASELINE, apart, full, is_apart};
use super::scene::{Checked, Had, KEPT, RESET, Scene, check, crowd, is_ok, said};
use super::trace::{self, Call, can_trace, inject, sample};

/// More calls of one name than an undisturbed run made are tried, up to so many.
const MORE: usize = 20;

/// A run that is killed at one point after the other.
struct Sweep<'s> {
    name: &'s str,
    /// Agents and their memories, and what happens before the run.
    scene: &'s dyn Fn() -> Scene,
    /// The words of the run.
    run: &'s dyn Fn(&Scene) -> Vec<String>,
    /// The checks after the kill.
    account: &'s dyn Fn(&Scene) -> Checked,
    /// How many points are tried where not all are.
    quick: usize,
}

impl Sweep<'_> {
    /// Kills at each point; prints how many there were.
    fn go(&self) {
        let points = self.points();
        let chosen = match full() {
            true => points.clone(),
            false => sample(&points, self.quick),
        };
        let (mut killed, mut failures) = (0, Vec::new());
        for point in &chosen {
            match self.kill(point) {
                Some(Ok(())) => killed += 1,
                Some(Err(why)) => failures.push(format!("killed at {}: {why}", point.text)),
                None => {}
            }
        }
        if full() {
            killed += self.beyond(&points, &mut failures);
        }
        println!(
            "{}: killed at {killed} of {} points",
            self.name,
            points.len()
        );
        report(self.name, &failures);
        assert!(
            killed * 10 >= chosen.len() * 8,
            "most points have to be reached"
        );
    }

    /// The calls of an undisturbed run that change something.
    fn points(&self) -> Vec<Call> {
        let scene = (self.scene)();
        let words = (self.run)(&scene);
        trace::changing(&scene, &words_of(&words))
    }

    /// Kills a run in a new scene there; None when it ended by itself.
    fn kill(&self, point: &Call) -> Option<Checked> {
        let scene = (self.scene)();
        let words = (self.run)(&scene);
        let output = kill(&scene, point, &words_of(&words));
        is_killed(&output).then(|| (self.account)(&scene))
    }

    /// Behind the last call of each name that an undisturbed run made, until the
    /// run ends by itself.
    fn beyond(&self, points: &[Call], failures: &mut Vec<String>) -> usize {
        let mut killed = 0;
        for (at, last) in points.iter().enumerate() {
            if points[at + 1..].iter().any(|point| point.name == last.name) {
                continue;
            }
            for nth in last.nth + 1..last.nth + MORE {
                let point = Call {
                    nth,
                    ..last.clone()
                };
                match self.kill(&point) {
                    None => break,
                    Some(Ok(())) => killed += 1,
                    Some(Err(why)) => {
                        failures.push(format!("killed at {nth}. {}: {why}", last.name))
                    }
                }
            }
        }
        killed
    }
}

/// Runs the program until it is killed there.
pub fn kill(scene: &Scene, point: &Call, words: &[&str]) -> Output {
    let options = inject(&point.name, "signal=KILL", point.nth, false);
    trace::run(&scene.fleet, &scene.log, &options, words)
}

pub fn is_killed(output: &Output) -> bool {
    output.status.code() == Some(137) || output.status.signal() == Some(9)
}

fn words_of(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

/// Fails with one of each kind of these, if there are any.
pub fn report(name: &str, failures: &[String]) {
    let mut kinds: BTreeMap<String, (usize, &String)> = BTreeMap::new();
    for failure in failures {
        // What was injected and where comes first, then why that is wrong.
        let why = failure
            .split_once(" = ")
            .map_or(failure.as_str(), |it| it.1);
        let kind = why.split_once(": ").map_or(why, |it| it.1);
        let kind = kind.chars().take(60).collect();
        kinds.entry(kind).or_insert((0, failure)).0 += 1;
    }
    let some = kinds.values().take(8);
    let some = some.map(|(count, first)| format!("{count} times: {first}"));
    let some = some.collect::<Vec<_>>().join("\n\n");
    assert!(
        failures.is_empty(),
        "{name}: {} failures\n{some}",
        failures.len()
    );
}

fn memories() -> Vec<(&'static str, Had)> {
    let drift = format!("{BASELINE}- note\n").replace("kind", "cruel");
    vec![
        ("scratch", Had::scratch("- note\n")),
        ("drift", Had::file(&drift)),
        ("no boundary", Had::file("nothing of the baseline\n")),
        ("an empty file", Had::file("")),
        ("no file", Had::Nothing),
        ("a FIFO", Had::Fifo),
        ("a link", Had::Link),
    ]
}

#[test]
fn a_kill_at_any_call_of_a_reset_loses_nothing() {
    if !can_trace() {
        return;
    }
    for (what, had) in memories() {
        Sweep {
            name: &format!("reset of {what}"),
            scene: &|| Scene::new(&[("scout", had.clone())]),
            run: &|_| owned(RESET),
            account: &Scene::account,
            quick: 12,
        }
        .go();
    }
}

#[test]
fn a_kill_at_any_call_of_a_run_over_many_agents_loses_nothing() {
    if !can_trace() {
        return;
    }
    Sweep {
        name: "reset of twelve agents",
        scene: &|| Scene::new(&crowd()),
        run: &|_| owned(RESET),
        account: &Scene::account,
        quick: 24,
    }
    .go();
}

fn reset_first(had: &Had) -> Scene {
    let scene = Scene::new(&[("scout", had.clone())]);
    scene.does(RESET);
    scene
}

#[test]
fn a_kill_at_any_call_of_an_undo_loses_nothing() {
    if !can_trace() {
        return;
    }
    for (what, had) in memories().into_iter().take(5) {
        Sweep {
            name: &format!("undo of a reset of {what}"),
            scene: &|| reset_first(&had),
            run: &|_| owned(&["undo", "scout"]),
            account: &Scene::account,
            quick: 8,
        }
        .go();
    }
}

#[test]
fn a_kill_at_any_call_of_an_undo_is_put_right_by_another_undo() {
    if !can_trace() {
        return;
    }
    for (what, had) in [memories().swap_remove(0), memories().swap_remove(4)] {
        Sweep {
            name: &format!("undo of a reset of {what}, and again"),
            scene: &|| reset_first(&had),
            run: &|_| owned(&["undo", "scout"]),
            account: &|scene| undone_again(scene, &had),
            quick: 6,
        }
        .go();
    }
}

/// A killed undo is tried again: either the first one was finished, and there
/// may be nothing to undo any more, or the second one does it.
fn undone_again(scene: &Scene, had: &Had) -> Checked {
    scene.at_every_instant()?;
    let output = scene.fleet.run(&["undo", "scout"]);
    let code = output.status.code();
    let said = said(&output);
    check(matches!(code, Some(0 | 6)), || format!("{code:?}: {said}"))?;
    let stands = scene.stands("scout");
    let restored = match had {
        Had::File(bytes) => stands.as_ref() == Some(bytes),
        _ => stands.is_none(),
    };
    check(restored, || format!("another undo left {stands:?}: {said}"))?;
    scene.is_tidy()?;
    scene.account()
}

#[test]
fn a_kill_at_any_call_of_an_undone_undo_loses_nothing() {
    if !can_trace() {
        return;
    }
    let had = Had::scratch("- note\n");
    Sweep {
        name: "undo of an undo",
        scene: &|| {
            let scene = reset_first(&had);
            scene.does(&["undo", "scout"]);
            scene
        },
        run: &|scene| {
            let records = scene.records();
            let undo = records.last().unwrap()["run"].as_str().unwrap().to_string();
            vec!["undo".to_string(), "--run".to_string(), undo]
        },
        account: &Scene::account,
        quick: 8,
    }
    .go();
}

/// A fleet with entries that are years old.
fn with_old_entries() -> Scene {
    let scene = Scene::new(&[("scout", Had::scratch("- note\n"))]);
    let folder = scene.fleet.archive.join("scout");
    for path in [&scene.fleet.archive, &folder] {
        fs::create_dir(path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
    }
    let names = (1..=5).map(|day| format!("2020-01-0{day}_0900.md"));
    for name in names.chain([KEPT.to_string()]) {
        let mut file = File::create(folder.join(name)).unwrap();
        file.write_all(b"years ago\n").unwrap();
        let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_577_869_200);
        file.set_modified(then).unwrap();
    }
    earlier_run(&scene.fleet.archive, "scout", SystemClock.now(), 2);
    scene
}

#[test]
fn a_kill_at_any_call_of_retention_deletes_nothing_else() {
    if !can_trace() {
        return;
    }
    Sweep {
        name: "reset with retention",
        scene: &with_old_entries,
        run: &|_| owned(RESET),
        account: &|scene| {
            scene.account()?;
            let entries = scene.fleet.entries("scout");
            let old = entries.keys().filter(|name| name.starts_with("2020-"));
            let old: Vec<_> = old.collect();
            check(old.is_empty(), || format!("never deleted: {old:?}"))?;
            check(entries.contains_key(KEPT), || {
                "no entry, but deleted".to_string()
            })
        },
        quick: 10,
    }
    .go();
}

/// Kills runs, and then the runs that put things right; gives the number of
/// pairs.
fn kill_twice(cast: &[(&str, Had)], first: usize, second: usize) -> usize {
    let calls = trace::changing(&Scene::new(cast), RESET);
    let (mut pairs, mut failures) = (0, Vec::new());
    for (turn, one) in sample(&calls, first).iter().enumerate() {
        let scene = Scene::new(cast);
        kill(&scene, one, RESET);
        let calls = trace::changing(&scene, RESET);
        // Others each time, so that together they are nearly all of them.
        let skipped = calls.into_iter().skip(turn % 7).collect::<Vec<_>>();
        for two in sample(&skipped, second) {
            let scene = Scene::new(cast);
            kill(&scene, one, RESET);
            if !is_killed(&kill(&scene, &two, RESET)) {
                continue;
            }
            pairs += 1;
            if let Err(why) = scene.account() {
                failures.push(format!("killed at {} and at {}: {why}", one.text, two.text));
            }
        }
    }
    report("killed twice", &failures);
    pairs
}

#[test]
fn a_kill_of_the_run_that_puts_things_right_loses_nothing() {
    if !can_trace() {
        return;
    }
    let (first, second) = if full() { (80, 12) } else { (10, 2) };
    let pairs = kill_twice(&[("scout", Had::scratch("- note\n"))], first, second);
    println!("killed in the recovery of one agent: {pairs} pairs");
    assert!(pairs >= first);
    let (first, second) = if full() { (40, 5) } else { (4, 2) };
    let pairs = kill_twice(&crowd(), first, second);
    println!("killed in the recovery of twelve agents: {pairs} pairs");
    assert!(pairs >= first);
}

/// An agent that opened its memory long before the run, and writes to it when it
/// stands there no more, or when the run is over.
struct LateWriter {
    over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

const LATE: &[u8] = b"- late\n";

impl LateWriter {
    /// With `holds`, it keeps the file open until the run is over.
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
            file.write_all(LATE).unwrap();
            while holds && waits() {
                std::thread::yield_now();
            }
        });
        LateWriter { over, thread }
    }

    fn end(self) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

/// Kills a run at each point while an agent writes late; gives how many kills.
fn sweep_with_late_writer(cast: &[(&str, Had)], writer: &str, holds: bool, most: usize) -> usize {
    // Those of a run with nobody who writes: those of one that waits for a writer
    // are never the same.
    let points = trace::changing(&Scene::new(cast), RESET);
    let (mut killed, mut failures) = (0, Vec::new());
    for point in sample(&points, most) {
        let mut scene = Scene::new(cast);
        let late = LateWriter::start(&scene.fleet.memory(writer), holds);
        let output = kill(&scene, &point, RESET);
        late.end();
        scene.wrote(writer, LATE);
        killed += usize::from(is_killed(&output));
        // Also where the run ended by itself because the writer made it another.
        if let Err(why) = scene.account() {
            failures.push(format!("killed at {}: {why}", point.text));
        }
    }
    report("with a late writer", &failures);
    killed
}

#[test]
fn a_kill_while_an_agent_writes_to_its_old_file_loses_nothing() {
    if !can_trace() {
        return;
    }
    // Children that other tests start would have the agent's descriptor, too,
    // until they become another program.
    if !is_apart() {
        let name = "crash::a_kill_while_an_agent_writes_to_its_old_file_loses_nothing";
        return apart(name, &[]);
    }
    let one = [("scout", Had::scratch("- note\n"))];
    let most = |most: usize| if full() { most * 10 } else { most };
    let killed = sweep_with_late_writer(&one, "scout", false, most(20));
    println!("killed while an agent writes late: {killed} points");
    let killed = sweep_with_late_writer(&one, "scout", true, most(5));
    println!("killed while an agent holds its old file open: {killed} points");
    let killed = sweep_with_late_writer(&crowd(), "kim", false, most(6));
    println!("killed while one of twelve agents writes late: {killed} points");
    assert!(killed > 0);
}

/// A version that was pushed and has gone since is made anew, and its name is no
/// more on the disk than that of any new one.
#[test]
fn a_version_that_has_gone_is_made_and_synced_again() {
    if !can_trace() {
        return;
    }
    let scene = Scene::new(&[("scout", Had::scratch("- note\n"))]);
    scene.does(RESET);
    let versions = scene.fleet.archive.join(".shepherd/baselines");
    fs::remove_dir_all(&versions).unwrap();
    fs::create_dir(&versions).unwrap();
    fs::write(scene.fleet.memory("scout"), format!("{BASELINE}- again\n")).unwrap();
    let options = ["-y", "-e", "trace=fsync,renameat2"].map(ToString::to_string);
    let output = trace::run(&scene.fleet, &scene.log, &options, RESET);
    is_ok(&output);
    let log = fs::read_to_string(&scene.log).unwrap();
    let before = &log[..log.find("renameat2(").unwrap()];
    assert!(
        before.contains(&format!("{}>", versions.display())),
        "{log}"
    );
}

/// What a killed run named and did not come to sync is found by the next one,
/// which relies on it: it has to be on the disk before the memory goes.
#[test]
fn an_entry_of_a_killed_run_is_synced_before_it_is_relied_on() {
    if !can_trace() {
        return;
    }
    let cast = [("scout", Had::scratch("- note\n"))];
    // The record comes behind the entry, and tells the next run of it.
    let names_a_record = |call: &Call| call.name == "linkat" && call.text.contains(".json");
    let (_, calls) = {
        let scene = Scene::new(&cast);
        trace::record(&scene.fleet, &scene.log, RESET)
    };
    let named = calls.iter().position(names_a_record).unwrap();
    let sync = calls[named..].iter().find(|call| call.name == "fsync");
    let scene = Scene::new(&cast);
    assert!(is_killed(&kill(&scene, sync.unwrap(), RESET)));
    let options = ["-y", "-e", "trace=fsync,renameat2"].map(ToString::to_string);
    let output = trace::run(&scene.fleet, &scene.log, &options, RESET);
    is_ok(&output);
    let entries = scene.fleet.entries("scout");
    assert_eq!(
        entries.len(),
        1,
        "{entries:?}: {}\n{:#?}",
        said(&output),
        scene.records()
    );
    let log = fs::read_to_string(&scene.log).unwrap();
    let exchange = log.find("renameat2(").unwrap();
    let synced = |what: &str| {
        let at = log.find(what);
        assert!(at.is_some_and(|at| at < exchange), "{what} in\n{log}");
    };
    let folder = scene.fleet.archive.join("scout");
    synced(&format!("{}/20", folder.display()));
    synced(&format!("{}>", folder.display()));
    let versions = scene.fleet.archive.join(".shepherd/baselines");
    synced(&format!("{}/", versions.display()));
    synced(&format!("{}>", versions.display()));
}
