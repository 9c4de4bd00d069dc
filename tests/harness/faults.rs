//! Every call answers with every error that the kernel can give for it, once
//! and from there on; and real disks are full or cannot be written to.

use std::collections::BTreeMap;
use std::fs;
use std::process::Output;

use serde_json::Value;
use tempfile::TempDir;

use super::crash::report;
use super::fixture::{BASELINE, full};
use super::mounts::{Mount, may_mount};
use super::scene::{Checked, Had, Scene, check, crowd, is_ok, said};
use super::tools::ground;
use super::trace::{self, Call, can_trace, inject, sample};

const RESET: &[&str] = &["reset", "--all", "--json"];

/// Errors, and how they are called in messages.
const CAUSES: &[(&str, &str)] = &[
    ("EAGAIN", ""),
    ("EDQUOT", "quota exceeded"),
    ("EINTR", "interrupted"),
    ("EIO", "input/output error"),
    ("EMFILE", "too many open files"),
    ("ENOLCK", "no locks available"),
    ("ENOSPC", "no space left on device"),
    ("EROFS", "read-only file system"),
];

/// The errors that a call can give.
fn errors(call: &Call) -> &'static [&'static str] {
    match call.name.as_str() {
        "write" | "pwrite64" | "writev" | "copy_file_range" | "sendfile" => {
            &["ENOSPC", "EIO", "EDQUOT", "EINTR"]
        }
        "open" | "openat" | "openat2" if call.changes() => {
            &["ENOSPC", "EIO", "EDQUOT", "EROFS", "EMFILE", "EINTR"]
        }
        "open" | "openat" | "openat2" => &["EIO", "EMFILE", "EINTR"],
        "mkdir" | "mkdirat" | "link" | "linkat" | "rename" | "renameat" | "renameat2" => {
            &["ENOSPC", "EIO", "EDQUOT", "EROFS"]
        }
        "unlink" | "unlinkat" | "fchmod" | "fchown" | "utimensat" | "rmdir" => &["EIO", "EROFS"],
        "fsync" | "fdatasync" | "syncfs" | "sync_file_range" => {
            &["EIO", "ENOSPC", "EDQUOT", "EINTR"]
        }
        "ftruncate" => &["EIO", "ENOSPC", "EINTR"],
        "fsetxattr" | "fremovexattr" => &["EIO", "ENOSPC", "EDQUOT"],
        "fcntl" if call.changes() => &["EAGAIN", "ENOLCK"],
        "read" | "readv" | "pread64" => &["EIO", "EINTR"],
        "fstat" | "newfstatat" | "statx" | "getdents64" | "flistxattr" | "fgetxattr"
        | "readlinkat" => &["EIO"],
        _ => &[],
    }
}

/// The calls that the program itself makes: those from its config on, and not
/// those by which the system starts it.
fn own(calls: &[Call]) -> &[Call] {
    let first = calls
        .iter()
        .position(|call| call.name != "execve" && call.text.contains("memory-shepherd.conf"));
    &calls[first.unwrap()..]
}

/// Whether it is about what the program prints.
fn prints(call: &Call) -> bool {
    call.text.starts_with("write(1,") || call.text.starts_with("write(2,")
}

/// What holds of a run that met trouble. With a cause, a run that fails has to
/// name it.
fn is_honest(scene: &Scene, output: &Output, cause: Option<&str>) -> Checked {
    scene.at_every_instant()?;
    let said = said(output);
    let code = output.status.code();
    check(matches!(code, Some(0..=6)), || {
        format!("ended with {code:?}: {said}")
    })?;
    for word in ["panicked", "Os {", "Error {", "Some(", "backtrace"] {
        check(!said.contains(word), || format!("a debug dump: {said}"))?;
    }
    let document = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    claims_are_true(scene, &document).map_err(|why| format!("{why}: {said}"))?;
    if code == Some(0) {
        return all_are_reset(scene);
    }
    let Some(cause) = cause else {
        return Ok(());
    };
    let root = scene.fleet.root.display().to_string();
    check(said.contains('/') && said.contains(&root), || {
        format!("no path: {said}")
    })?;
    let named = said.to_lowercase().contains(cause);
    check(named, || format!("{cause} is not named: {said}"))
}

/// Nothing is called reset that is not.
fn claims_are_true(scene: &Scene, document: &Value) -> Checked {
    for result in document["results"].as_array().into_iter().flatten() {
        let agent = result["agent"].as_str().unwrap();
        let outcome = result["outcome"].as_str().unwrap();
        let stands = scene.stands(agent).unwrap_or_default();
        let reset = stands == BASELINE.as_bytes();
        let claimed = ["ok", "unchanged"].contains(&outcome);
        check(reset || !claimed, || format!("{agent} is called {outcome}"))?;
    }
    Ok(())
}

fn all_are_reset(scene: &Scene) -> Checked {
    for agent in scene.fleet.agents() {
        let stands = scene.stands(agent).unwrap_or_default();
        let reset = stands == BASELINE.as_bytes();
        check(reset, || format!("exit code 0, but {agent} is not reset"))?;
    }
    Ok(())
}

/// The undisturbed run's calls.
fn calls(cast: &[(&str, Had)]) -> Vec<Call> {
    let scene = Scene::new(cast);
    let (output, calls) = trace::record(&scene.fleet, &scene.log, RESET);
    is_ok(&output);
    own(&calls).to_vec()
}

/// One error at one call.
fn fail_once(cast: &[(&str, Had)], call: &Call, error: &str) -> Checked {
    let scene = Scene::new(cast);
    let options = inject(&call.name, &format!("error={error}"), call.nth, false);
    let output = trace::run(&scene.fleet, &scene.log, &options, RESET);
    let cause = CAUSES.iter().find(|(name, _)| *name == error).unwrap().1;
    // A lock that somebody else has is no error of the disk, and named otherwise.
    let named = !prints(call) && error != "EAGAIN";
    is_honest(&scene, &output, named.then_some(cause))?;
    let syncs = call.name.contains("sync") && error != "EINTR";
    let silent = output.status.code() == Some(0) && !said(&output).contains(cause);
    if syncs && silent {
        let (nth, name) = (call.nth, &call.name);
        println!("note: {error} at {nth}. {name} was not worth an error");
    }
    scene.account()
}

fn sweep(name: &str, cast: &[(&str, Had)], most: usize) -> Vec<String> {
    let calls = calls(cast);
    let pairs: Vec<(Call, &str)> = calls
        .iter()
        .flat_map(|call| errors(call).iter().map(|error| (call.clone(), *error)))
        .collect();
    let chosen = sample(&pairs, most);
    let mut failures = Vec::new();
    for (call, error) in &chosen {
        if let Err(why) = fail_once(cast, call, error) {
            failures.push(format!("{error} at {}: {why}", call.text));
        }
    }
    println!("{name}: {} of {} errors", chosen.len(), pairs.len());
    failures
}

#[test]
fn an_error_at_any_call_of_a_reset_loses_nothing_and_is_told() {
    if !can_trace() {
        return;
    }
    let most = |quick| if full() { usize::MAX } else { quick };
    let one = [("scout", Had::scratch("- note\n"))];
    let mut failures = sweep("errors in a reset", &one, most(70));
    for (what, had) in [("a new file", Had::Nothing), ("a FIFO", Had::Fifo)] {
        let name = format!("errors in a reset of {what}");
        failures.append(&mut sweep(&name, &[("scout", had)], most(20)));
    }
    report("errors in a reset", &failures);
}

#[test]
fn an_error_at_any_call_of_a_run_over_many_agents_stops_no_other() {
    if !can_trace() {
        return;
    }
    let most = if full() { 400 } else { 14 };
    let name = "errors in a reset of twelve agents";
    report(name, &sweep(name, &crowd(), most));
}

/// What fails once the disk is full, or cannot be written to any more.
const WORN: &[(&str, &[&str])] = &[
    (
        "ENOSPC",
        &["write", "linkat", "mkdirat", "fsync", "fdatasync", "syncfs"],
    ),
    (
        "EIO",
        &[
            "write",
            "linkat",
            "mkdirat",
            "fsync",
            "fdatasync",
            "syncfs",
            "unlinkat",
            "unlink",
            "renameat",
            "renameat2",
            "rename",
            "fchmod",
            "ftruncate",
        ],
    ),
    (
        "EROFS",
        &[
            "write",
            "linkat",
            "mkdirat",
            "unlinkat",
            "unlink",
            "renameat",
            "renameat2",
            "rename",
            "fchmod",
            "ftruncate",
        ],
    ),
];

/// From this call on, everything of a kind fails.
fn fail_from(cast: &[(&str, Had)], calls: &[Call], at: usize, worn: usize) -> Checked {
    let (error, names) = WORN[worn];
    let mut passed: BTreeMap<&str, usize> = BTreeMap::new();
    for call in &calls[..at] {
        passed.insert(&call.name, call.nth);
    }
    let seen = |name: &&&str| calls.iter().any(|call| call.name == **name);
    let names: Vec<&str> = names.iter().filter(seen).copied().collect();
    let mut options = vec![format!("--trace={}", names.join(","))];
    for name in &names {
        let nth = passed.get(name).map_or(1, |nth| nth + 1);
        options.push(format!("--inject={name}:error={error}:when={nth}+"));
    }
    let scene = Scene::new(cast);
    let output = trace::run(&scene.fleet, &scene.log, &options, RESET);
    // It cannot print anything either.
    is_honest(&scene, &output, None)?;
    scene.account()
}

#[test]
fn errors_from_any_call_on_lose_nothing() {
    if !can_trace() {
        return;
    }
    for (name, cast, quick, most) in [
        (
            "one agent",
            vec![("scout", Had::scratch("- note\n"))],
            10,
            200,
        ),
        ("twelve agents", crowd(), 3, 60),
    ] {
        let calls = calls(&cast);
        let changing: Vec<usize> = (0..calls.len()).filter(|at| calls[*at].changes()).collect();
        let chosen = sample(&changing, if full() { most } else { quick });
        let mut failures = Vec::new();
        for (worn, (error, _)) in WORN.iter().enumerate() {
            for at in &chosen {
                if let Err(why) = fail_from(&cast, &calls, *at, worn) {
                    failures.push(format!("{error} from {} on: {why}", calls[*at].text));
                }
            }
        }
        println!(
            "errors from a call on, {name}: {} points",
            chosen.len() * WORN.len()
        );
        report(name, &failures);
    }
}

/// More notes than fit into a page.
fn long_notes() -> Vec<(&'static str, Had)> {
    let notes: String = (0..2_000)
        .map(|i| format!("- note {i} of many\n"))
        .collect();
    vec![
        ("scout", Had::scratch(&notes)),
        ("other", Had::scratch("- other\n")),
    ]
}

/// A fleet with a small disk at one of its folders.
struct Small {
    scene: Scene,
    mount: Mount,
    _folder: TempDir,
}

impl Small {
    fn new(place: &str, options: &str) -> Small {
        let (folder, root) = ground(false);
        let fleet = root.join("fleet");
        let options = format!("mode=755,{options}");
        let words = ["-t", "tmpfs", "-o", &options, "none"];
        let mount = Mount::new(&words, &fleet.join(place)).unwrap();
        let archive = fleet.join("archives");
        Small {
            scene: Scene::at(&fleet, &archive, &root.join("log"), &long_notes()),
            mount,
            _folder: folder,
        }
    }
}

/// Runs on disks of growing sizes until everything fits.
fn grow(name: &str, place: &str, sizes: impl Iterator<Item = String>) {
    let (mut small, mut large, mut failures) = (0, 0, Vec::new());
    for options in sizes {
        let bench = Small::new(place, &options);
        let output = bench.scene.fleet.run(RESET);
        match output.status.code() {
            Some(0) => large += 1,
            _ => small += 1,
        }
        let judge = || {
            is_honest(&bench.scene, &output, Some("no space left on device"))?;
            bench.mount.again("size=16M,nr_inodes=10000");
            bench.scene.account()
        };
        if let Err(why) = judge() {
            failures.push(format!("{options}: {why}"));
        }
        if large == 3 {
            break;
        }
    }
    println!("{name}: {small} sizes too small, {large} large enough");
    report(name, &failures);
    assert!(
        small > 0 && large > 0,
        "{name}: {small} too small, {large} large enough"
    );
}

/// These sizes in KiB, a page or, where not everything is tried, some pages
/// apart.
fn sizes(from: usize) -> impl Iterator<Item = String> {
    let step = if full() { 4 } else { 12 };
    (from..from + 400)
        .step_by(step)
        .map(|size| format!("size={size}k"))
}

fn files(from: usize) -> impl Iterator<Item = String> {
    let step = if full() { 1 } else { 3 };
    let most = |count| format!("size=4M,nr_inodes={count}");
    (from..from + 100).step_by(step).map(most)
}

#[test]
fn a_full_disk_loses_nothing_and_is_told() {
    if !may_mount("faults::a_full_disk_loses_nothing_and_is_told") {
        return;
    }
    grow("the archive's disk is full", "archives", sizes(4));
    grow("the archive's disk has no inode left", "archives", files(2));
    // The memories themselves fill the first of these.
    grow("the memories' disk is full", "agents", sizes(44));
    grow("the memories' disk has no inode left", "agents", files(5));
    grow("the disk of both is full", "", sizes(56));
    grow("the disk of both has no inode left", "", files(11));
}

#[test]
fn a_disk_that_cannot_be_written_to_loses_nothing_and_is_told() {
    if !may_mount("faults::a_disk_that_cannot_be_written_to_loses_nothing_and_is_told") {
        return;
    }
    let mut failures = Vec::new();
    for place in ["agents", "archives", "agents/scout", ""] {
        for reset in [false, true] {
            if let Err(why) = read_only(place, reset) {
                failures.push(format!("{place:?}, reset before: {reset}: {why}"));
            }
        }
    }
    report("read-only disks", &failures);
}

/// One folder of a fleet is mounted so that nobody can write below it.
fn read_only(place: &str, reset: bool) -> Checked {
    let bench = Small::new("", "size=16M");
    let scene = &bench.scene;
    if reset {
        scene.does(RESET);
        for agent in scene.fleet.agents() {
            scene.does(&["undo", agent]);
        }
    }
    let at = scene.fleet.root.join(place);
    fs::create_dir_all(&at).unwrap();
    let bound = Mount::new(&["--bind", at.to_str().unwrap()], &at).unwrap();
    bound.again("bind,ro");
    let output = scene.fleet.run(RESET);
    is_honest(scene, &output, Some("read-only file system"))?;
    let code = output.status.code();
    check(code != Some(0), || {
        format!("exit code 0: {}", said(&output))
    })?;
    // One agent's trouble is not the other's.
    let other = scene.stands("other").unwrap_or_default();
    let done = other == BASELINE.as_bytes();
    check(done == (place == "agents/scout"), || {
        format!("other: {}", said(&output))
    })?;
    bound.again("bind,rw");
    scene.account()
}
