//! Writes to entries of the layout `drover` without a config that are killed at every call, or that a
//! call fails: each file is the old one or the new one, and the next write finishes all of them or none.
//! Writes beside those of other programs: what these wrote is kept and named.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::crash::{KillSweep, assert_no_failures};
use super::drover_entries::{EntryScope, NOW, entry_with_body, put_with_id_command, write_entry};
use super::edited_files::{Tree, read_tree};
use super::faults::possible_errors;
use super::fixture::BASELINE;
use super::full_harness::is_full_harness;
use super::processes::{SeededRandom, processor_lock};
use super::scene::{CheckResult, InitialMemory, Scene, assert_ok, check, output_text};
use super::strace::{self, SystemCall, can_trace, injection_options, record_changing_calls};

const ID: &str = "01HF7YAT00AAAAAAAAAAAAAAAA";
const NEXT_ID: &str = "01HF7YAT00BBBBBBBBBBBBBBBB";

/// Returns writes of one file, of none that stays, and of two files.
fn writes() -> [(&'static str, Vec<&'static str>); 3] {
    let put = put_with_id_command(ID, EntryScope::Agent("w"), "new", "new");
    [
        ("drover-put", put),
        ("drover-forget", vec!["forget", ID]),
        ("drover-move", vec!["move", ID, "--scope", "global"]),
    ]
}

fn root(scene: &Scene) -> PathBuf {
    scene.fleet.root.join("store")
}

fn entry_scene() -> Scene {
    let scene = Scene::new(&[("scout", InitialMemory::file(BASELINE))]);
    let text = entry_with_body(ID, "kind: user\nsummary: old\ncreatedAt: 5\n", "old");
    write_entry(&root(&scene), "agents/w", ID, text);
    fs::create_dir(root(&scene).join("global")).unwrap();
    scene
}

/// Returns the arguments of a write on the entries of a scene, at an instant that does not change.
fn arguments(scene: &Scene, write: &[&str]) -> Vec<String> {
    let root = root(scene).display().to_string();
    let mut words = vec!["drover".to_string()];
    words.extend(write.iter().map(|word| word.to_string()));
    words.extend(["--dir".to_string(), root]);
    words.extend(["--now", NOW].map(str::to_string));
    words
}

fn run(scene: &Scene, write: &[&str]) -> Output {
    let words = arguments(scene, write);
    scene
        .fleet
        .run(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Returns the files of entries, and the names of what runs left.
fn entries(scene: &Scene) -> (Tree, Vec<PathBuf>) {
    let tree = read_tree(&root(scene));
    let is_left = |path: &PathBuf| {
        let mut parts = path
            .components()
            .map(|part| part.as_os_str().to_string_lossy());
        parts.any(|part| part.starts_with(".shepherd-"))
    };
    let left = tree.keys().filter(|path| is_left(path)).cloned().collect();
    let entries = tree.into_iter().filter(|(path, _)| !is_left(path));
    (entries.collect(), left)
}

/// Checks the files that an interrupted write left, and those after the next write.
fn check_after_write(scene: &Scene, write: &[&str]) -> CheckResult {
    let before = entries(&entry_scene()).0;
    let undisturbed = entry_scene();
    assert_ok(&run(&undisturbed, write));
    let after = entries(&undisturbed).0;
    for (path, bytes) in entries(scene).0 {
        let is_old_or_new = before.get(&path) == Some(&bytes) || after.get(&path) == Some(&bytes);
        check(is_old_or_new, || {
            format!("{} is neither old nor new", path.display())
        })?;
    }
    let next = put_with_id_command(NEXT_ID, EntryScope::Global, "next", "next");
    let output = run(scene, &next);
    check(output.status.success(), || {
        format!("the next write: {}", output_text(&output))
    })?;
    let (mut found, left) = entries(scene);
    let written = found.remove(&PathBuf::from(format!("global/{NEXT_ID}.md")));
    check(written.is_some(), || {
        "the next write wrote nothing".to_string()
    })?;
    check(found == before || found == after, || {
        format!("neither all nor nothing: {found:#?}")
    })?;
    // A directory without a journal may be that of a run that begins.
    check(!left.iter().any(is_journal), || {
        format!("a journal is left: {left:?}")
    })?;
    let is_kept = left
        .iter()
        .any(|path| path.to_string_lossy().contains("-kept"));
    check(!is_kept, || format!("no other program wrote: {left:?}"))
}

#[test]
fn kill_at_any_call_leaves_all_or_nothing() {
    if !can_trace() {
        return;
    }
    for (name, write) in writes() {
        KillSweep {
            name,
            scene: &entry_scene,
            run: &|scene| arguments(scene, &write),
            check_recovery: &|scene| check_after_write(scene, &write),
            quick_points: 24,
        }
        .kill_at_each_point();
    }
}

#[test]
fn undisturbed_direct_write_passes_the_checks() {
    for (_, write) in writes() {
        let scene = entry_scene();
        assert_ok(&run(&scene, &write));
        check_after_write(&scene, &write).unwrap();
        assert!(entries(&scene).1.is_empty(), "{:?}", entries(&scene).1);
    }
}

fn is_journal(path: impl AsRef<Path>) -> bool {
    let extension = path.as_ref().extension();
    extension.is_some_and(|it| it == "json")
}

/// Lets a call of a write fail, once or from then on, and checks what is left, also after the next write.
/// Returns whether the write was left half done.
fn fail_at(
    write: &[&str],
    call: &SystemCall,
    error: &str,
    is_lasting: bool,
) -> Result<bool, String> {
    let scene = entry_scene();
    let before = entries(&scene).0;
    let what = format!("error={error}");
    let options = injection_options(&call.name, &what, call.occurrence, is_lasting);
    let words = arguments(&scene, write);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let output = strace::run_traced(&scene.fleet, &scene.trace_log, &options, &words);
    let undisturbed = entry_scene();
    assert_ok(&run(&undisturbed, write));
    let after = entries(&undisturbed).0;
    let (found, left) = entries(&scene);
    let is_whole = found == before || found == after;
    check(!output.status.success() || found == after, || {
        format!("reported as done: {found:#?}")
    })?;
    check(is_whole || left.iter().any(is_journal), || {
        format!("half done without a journal: {left:?}")
    })?;
    check_after_write(&scene, write)?;
    Ok(!is_whole)
}

/// Whether a call gives or takes the name of a file.
fn changes_names(call: &SystemCall) -> bool {
    let mut names = ["rename", "link", "unlink"].into_iter();
    names.any(|name| call.name.starts_with(name))
}

#[test]
fn write_that_fails_half_way_is_recovered_by_the_next() {
    if !can_trace() {
        return;
    }
    let (mut failures, mut all_half_done) = (Vec::new(), 0);
    for (name, write) in writes() {
        let scene = entry_scene();
        let words = arguments(&scene, &write);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let calls = record_changing_calls(&scene, &words);
        let mut half_done = 0;
        let is_tried = |call: &&SystemCall| is_full_harness() || changes_names(call);
        for call in calls.iter().filter(is_tried) {
            let Some(error) = possible_errors(call).first() else {
                continue;
            };
            for is_lasting in [false, true] {
                match fail_at(&write, call, error, is_lasting) {
                    Ok(is_half) => half_done += usize::from(is_half),
                    Err(why) => failures.push(format!("{name}, {call:?}, {error}: {why}")),
                }
            }
        }
        println!("{name}: {} calls, {half_done} times half done", calls.len());
        all_half_done += half_done;
    }
    assert_no_failures("drover-faults", &failures);
    assert!(all_half_done > 0, "no write stopped half way");
}

#[test]
fn memory_that_was_moved_waits_for_its_recovery() {
    if !can_trace() {
        return;
    }
    let scene = entry_scene();
    let before = entries(&scene).0;
    let words = arguments(&scene, &["move", ID, "--scope", "global"]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    // Half of the move is done.
    let options = injection_options("renameat2", "signal=KILL", 1, true);
    strace::run_traced(&scene.fleet, &scene.trace_log, &options, &words);
    let names_in = |directory: PathBuf| {
        let items = fs::read_dir(directory).unwrap();
        let names = items.map(|item| item.unwrap().file_name());
        names.collect::<BTreeSet<_>>()
    };
    let left = names_in(root(&scene).join("global"));
    assert!(entries(&scene).1.iter().any(is_journal), "{left:?}");
    let moved = scene.fleet.root.join("moved");
    fs::rename(root(&scene), &moved).unwrap();
    let next = put_with_id_command(NEXT_ID, EntryScope::Global, "next", "next");
    let directory = moved.display().to_string();
    let elsewhere = [&["drover", "--dir", &directory], &next[..]].concat();
    let output = scene.fleet.run(&elsewhere);
    let said = output_text(&output);
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(said.contains(&root(&scene).display().to_string()), "{said}");
    assert_eq!(names_in(moved.join("global")), left, "nothing is written");
    // Nor if another directory has the old path: its files would be recovered.
    fs::create_dir_all(root(&scene).join("global")).unwrap();
    let output = scene.fleet.run(&elsewhere);
    assert_eq!(output.status.code(), Some(6), "{}", output_text(&output));
    assert_eq!(read_tree(&root(&scene)).len(), 1, "it has global alone");
    fs::remove_dir_all(root(&scene)).unwrap();
    fs::rename(&moved, root(&scene)).unwrap();
    assert_ok(&run(&scene, &next));
    let (mut found, _) = entries(&scene);
    found.remove(&PathBuf::from(format!("global/{NEXT_ID}.md")));
    assert_eq!(found.len(), before.len(), "moved, or not: {found:?}");
}

/// Writers of ours that write the entry at once.
const WRITERS: usize = 2;

/// Returns the number of writes of each.
fn write_count() -> usize {
    if is_full_harness() { 5_000 } else { 25 }
}

/// The entry of another program's nth write. Entries that replace it have its time of creation.
fn foreign_entry(number: usize) -> String {
    let summary = format!("other {number}");
    let lines = EntryScope::Global.mapping_lines("user", &summary);
    entry_with_body(ID, &format!("{lines}createdAt: {number}\n"), &summary)
}

/// Returns the time of creation of an entry.
fn created(entry: &[u8]) -> String {
    let text = str::from_utf8(entry).unwrap();
    let mut lines = text.lines();
    let time = lines.find_map(|line| line.strip_prefix("createdAt: "));
    time.unwrap_or_else(|| panic!("not whole: {text}"))
        .to_string()
}

/// Another program, which writes a temporary file and gives it the name of the entry. Returns the times of
/// creation of the entries that it displaced: it exchanges the files, to know them.
fn write_as_others(path: &Path, is_over: &AtomicBool, written: &AtomicUsize) -> BTreeSet<String> {
    let temporary = path.with_file_name("entry.tmp");
    let mut random = SeededRandom::new(1);
    let mut displaced = BTreeSet::new();
    while !is_over.load(Ordering::Relaxed) {
        let number = written.fetch_add(1, Ordering::Relaxed) + 1;
        fs::write(&temporary, foreign_entry(number)).unwrap();
        renameat_with(CWD, &temporary, CWD, path, RenameFlags::EXCHANGE).unwrap();
        displaced.insert(created(&fs::read(&temporary).unwrap()));
        fs::remove_file(&temporary).unwrap();
        thread::sleep(Duration::from_micros(random.below(40_000)));
    }
    displaced
}

/// Puts an entry again and again, and returns the answers.
fn put_again_and_again(scene: &Scene, writer: usize) -> Vec<Output> {
    let put = |number| {
        let body = format!("ours {writer} {number}");
        let put = put_with_id_command(ID, EntryScope::Global, &body, &body);
        run(scene, &[&put[..], &["--json"]].concat())
    };
    (0..write_count()).map(put).collect()
}

/// Returns the times of creation of the entries that were kept for their writers, by the directory that has
/// them.
fn kept_times(root: &Path) -> BTreeMap<String, Vec<String>> {
    let mut kept: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, bytes) in read_tree(root) {
        let first = path.components().next().unwrap().as_os_str();
        let directory = first.to_string_lossy().into_owned();
        let is_entry = path.parent().is_some_and(|it| it.ends_with("memory"));
        if let Some(bytes) = bytes.filter(|_| is_entry && directory.ends_with("-kept")) {
            kept.entry(directory).or_default().push(created(&bytes));
        }
    }
    kept
}

#[test]
fn what_racing_writers_displace_is_kept_and_named() {
    let _alone = processor_lock();
    let scene = entry_scene();
    fs::remove_dir_all(root(&scene).join("agents")).unwrap();
    let path = write_entry(&root(&scene), "global", ID, foreign_entry(0));
    let (is_over, written) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (displaced, answers) = thread::scope(|scope| {
        let other = scope.spawn(|| write_as_others(&path, &is_over, &written));
        let scene = &scene;
        let ours: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || put_again_and_again(scene, writer)))
            .collect();
        let answers: Vec<_> = ours.into_iter().flat_map(|it| it.join().unwrap()).collect();
        is_over.store(true, Ordering::Relaxed);
        (other.join().unwrap(), answers)
    });
    let kept = kept_times(&root(&scene));
    let mut found: BTreeSet<String> = kept.values().flatten().cloned().collect();
    found.extend(displaced);
    found.insert(created(&fs::read(&path).unwrap()));
    let mut named = BTreeSet::new();
    let mut codes: BTreeMap<Option<i32>, usize> = BTreeMap::new();
    for output in &answers {
        *codes.entry(output.status.code()).or_default() += 1;
        let said = output_text(output);
        assert!(
            matches!(output.status.code(), Some(0 | 1 | 3 | 6)),
            "{said}"
        );
        let directories = kept.keys().filter(|it| said.contains(it.as_str()));
        named.extend(directories);
    }
    let written = written.into_inner();
    println!(
        "{written} foreign writes; exit codes of ours {codes:?}; {} kept",
        kept.len()
    );
    assert!(codes.contains_key(&Some(0)), "{codes:?}");
    assert!(kept.keys().eq(named), "{:?}", kept.keys());
    // An entry of ours has the time of the one that it replaced: the last of them is found.
    let times = (0..=written).map(|number| number.to_string());
    let lost: Vec<String> = times.filter(|time| !found.contains(time)).collect();
    assert!(lost.is_empty(), "lost foreign writes: {lost:?}");
    // A directory without a journal goes when it is old.
    assert_ok(&run(&scene, &["forget", ID]));
    let (_, left) = entries(&scene);
    assert!(!left.iter().any(is_journal), "{left:?}");
}
