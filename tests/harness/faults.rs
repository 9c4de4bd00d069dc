//! System call errors: every call fails with every error that the kernel can return for it, once
//! and permanently; and real disks are full or read-only.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::process::Output;

use serde_json::Value;
use tempfile::TempDir;

use super::crash::assert_no_failures;
use super::fixture::BASELINE;
use super::full_harness::is_full_harness;
use super::mounts::{Mount, may_mount};
use super::processes::test_directory;
use super::scene::{
    CheckResult, InitialMemory, Scene, assert_ok, check, output_text, twelve_agents,
};
use super::strace::{self, SystemCall, can_trace, injection_options, sample};

const RESET: &[&str] = &["reset", "--all", "--json"];

/// Error codes with their texts in messages.
const ERROR_MESSAGES: &[(&str, &str)] = &[
    ("EAGAIN", ""),
    ("EDQUOT", "quota exceeded"),
    ("EINTR", "interrupted"),
    ("EIO", "input/output error"),
    ("EMFILE", "too many open files"),
    ("ENOLCK", "no locks available"),
    ("ENOSPC", "no space left on device"),
    ("EROFS", "read-only file system"),
];

/// Returns the errors that a call can return.
pub fn possible_errors(call: &SystemCall) -> &'static [&'static str] {
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

/// Returns the calls that the program itself makes: those from reading its config on, without those
/// by which the system starts it.
pub fn calls_of_program(calls: &[SystemCall]) -> &[SystemCall] {
    let first = calls
        .iter()
        .position(|call| call.name != "execve" && call.text.contains("memory-shepherd.conf"));
    &calls[first.unwrap()..]
}

/// Returns whether a call writes the program's output.
pub fn is_output(call: &SystemCall) -> bool {
    call.text.starts_with("write(1,") || call.text.starts_with("write(2,")
}

/// Checks a run with an injected fault. A run that fails has to name `cause`, if there is one.
fn check_failed_run(scene: &Scene, output: &Output, cause: Option<&str>) -> CheckResult {
    scene.check_invariants()?;
    let said = output_text(output);
    let code = output.status.code();
    check(matches!(code, Some(0..=6)), || {
        format!("ended with {code:?}: {said}")
    })?;
    for word in ["panicked", "Os {", "Error {", "Some(", "backtrace"] {
        check(!said.contains(word), || format!("a debug dump: {said}"))?;
    }
    let document = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    check_claims(scene, &document).map_err(|why| format!("{why}: {said}"))?;
    if code == Some(0) {
        return check_all_reset(scene);
    }
    let Some(cause) = cause else {
        return Ok(());
    };
    let root = scene.fleet.root.display().to_string();
    // The standard output has none.
    let is_of_output = said.contains("cannot write the answer");
    check(is_of_output || said.contains(&root), || {
        format!("no path in the message: {said}")
    })?;
    let named = said.to_lowercase().contains(cause);
    check(named, || format!("cause not named ({cause}): {said}"))
}

/// Checks that every agent reported as reset is reset.
fn check_claims(scene: &Scene, document: &Value) -> CheckResult {
    for result in document["results"].as_array().into_iter().flatten() {
        let agent = result["agent"].as_str().unwrap();
        let outcome = result["outcome"].as_str().unwrap();
        let stands = scene.read_memory(agent).unwrap_or_default();
        let reset = stands == BASELINE.as_bytes();
        let claimed = ["ok", "unchanged"].contains(&outcome);
        check(reset || !claimed, || {
            format!("{agent} is reported as {outcome}")
        })?;
    }
    Ok(())
}

fn check_all_reset(scene: &Scene) -> CheckResult {
    for agent in scene.fleet.agents() {
        let stands = scene.read_memory(agent).unwrap_or_default();
        let reset = stands == BASELINE.as_bytes();
        check(reset, || format!("exit code 0, but {agent} is not reset"))?;
    }
    Ok(())
}

/// Returns the calls of an undisturbed run.
fn undisturbed_calls(cast: &[(&str, InitialMemory)]) -> Vec<SystemCall> {
    let scene = Scene::new(cast);
    let (output, calls) = strace::record_calls(&scene.fleet, &scene.trace_log, RESET);
    assert_ok(&output);
    calls_of_program(&calls).to_vec()
}

/// Injects one error at one call.
fn fail_once(cast: &[(&str, InitialMemory)], call: &SystemCall, error: &str) -> CheckResult {
    let scene = Scene::new(cast);
    let options = injection_options(
        &call.name,
        &format!("error={error}"),
        call.occurrence,
        false,
    );
    let output = strace::run_traced(&scene.fleet, &scene.trace_log, &options, RESET);
    let cause = ERROR_MESSAGES
        .iter()
        .find(|(name, _)| *name == error)
        .unwrap()
        .1;
    // A held lock is not a disk error, and is reported with its holder.
    let named = !is_output(call) && error != "EAGAIN";
    check_failed_run(&scene, &output, named.then_some(cause))?;
    let syncs = call.name.contains("sync") && error != "EINTR";
    let silent = output.status.code() == Some(0) && !output_text(&output).contains(cause);
    if syncs && silent {
        let (nth, name) = (call.occurrence, &call.name);
        println!("note: {error} at call {nth} of {name} was not reported");
    }
    scene.check_all()
}

fn fail_each_call(name: &str, cast: &[(&str, InitialMemory)], most: usize) -> Vec<String> {
    let calls = undisturbed_calls(cast);
    let pairs: Vec<(SystemCall, &str)> = calls
        .iter()
        .flat_map(|call| {
            possible_errors(call)
                .iter()
                .map(|error| (call.clone(), *error))
        })
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
fn error_at_any_call_of_reset_loses_nothing() {
    if !can_trace() {
        return;
    }
    let most = |quick| if is_full_harness() { usize::MAX } else { quick };
    let one = [("scout", InitialMemory::scratch("- note\n"))];
    let mut failures = fail_each_call("errors in a reset", &one, most(70));
    for (what, had) in [
        ("a new file", InitialMemory::Missing),
        ("a FIFO", InitialMemory::Fifo),
    ] {
        let name = format!("errors in a reset of {what}");
        failures.append(&mut fail_each_call(&name, &[("scout", had)], most(20)));
    }
    assert_no_failures("errors in a reset", &failures);
}

#[test]
fn error_at_any_call_of_fleet_reset_stops_no_other() {
    if !can_trace() {
        return;
    }
    let most = if is_full_harness() { 400 } else { 14 };
    let name = "errors in a reset of twelve agents";
    assert_no_failures(name, &fail_each_call(name, &twelve_agents(), most));
}

/// Calls that fail once the disk is full or read-only.
const FAILING_CALLS: &[(&str, &[&str])] = &[
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

/// Fails every call of a kind from this call on.
fn fail_from(
    cast: &[(&str, InitialMemory)],
    calls: &[SystemCall],
    at: usize,
    worn: usize,
) -> CheckResult {
    let (error, names) = FAILING_CALLS[worn];
    let mut passed: BTreeMap<&str, usize> = BTreeMap::new();
    for call in &calls[..at] {
        passed.insert(&call.name, call.occurrence);
    }
    let seen = |name: &&&str| calls.iter().any(|call| call.name == **name);
    let names: Vec<&str> = names.iter().filter(seen).copied().collect();
    let mut options = vec![format!("--trace={}", names.join(","))];
    for name in &names {
        let nth = passed.get(name).map_or(1, |nth| nth + 1);
        options.push(format!("--inject={name}:error={error}:when={nth}+"));
    }
    let scene = Scene::new(cast);
    let output = strace::run_traced(&scene.fleet, &scene.trace_log, &options, RESET);
    // The program cannot print either.
    check_failed_run(&scene, &output, None)?;
    scene.check_all()
}

#[test]
fn errors_from_any_call_on_lose_nothing() {
    if !can_trace() {
        return;
    }
    for (name, cast, quick, most) in [
        (
            "one agent",
            vec![("scout", InitialMemory::scratch("- note\n"))],
            10,
            200,
        ),
        ("twelve agents", twelve_agents(), 3, 60),
    ] {
        let calls = undisturbed_calls(&cast);
        let changing: Vec<usize> = (0..calls.len()).filter(|at| calls[*at].changes()).collect();
        let chosen = sample(&changing, if is_full_harness() { most } else { quick });
        let mut failures = Vec::new();
        for (worn, (error, _)) in FAILING_CALLS.iter().enumerate() {
            for at in &chosen {
                if let Err(why) = fail_from(&cast, &calls, *at, worn) {
                    failures.push(format!("{error} from {} on: {why}", calls[*at].text));
                }
            }
        }
        println!(
            "permanent errors, {name}: {} points",
            chosen.len() * FAILING_CALLS.len()
        );
        assert_no_failures(name, &failures);
    }
}

/// Returns an agent with more notes than one page holds.
fn agent_with_long_notes() -> Vec<(&'static str, InitialMemory)> {
    let notes: String = (0..2_000)
        .map(|i| format!("- note {i} of many\n"))
        .collect();
    vec![
        ("scout", InitialMemory::scratch(&notes)),
        ("other", InitialMemory::scratch("- other\n")),
    ]
}

/// A fleet with a small disk at one of its directories.
struct SmallDiskFleet {
    scene: Scene,
    mount: Mount,
    _directory: TempDir,
}

impl SmallDiskFleet {
    fn new(place: &str, options: &str) -> SmallDiskFleet {
        let (directory, root) = test_directory(false);
        let fleet = root.join("fleet");
        let options = format!("mode=755,{options}");
        let words = ["-t", "tmpfs", "-o", &options, "none"];
        let mount = Mount::new(&words, &fleet.join(place)).unwrap();
        let archive = fleet.join("archives");
        SmallDiskFleet {
            scene: Scene::new_at(
                &fleet,
                &archive,
                &root.join("log"),
                &agent_with_long_notes(),
            ),
            mount,
            _directory: directory,
        }
    }
}

/// Runs on disks of growing sizes until everything fits.
fn run_on_growing_disks(name: &str, place: &str, sizes: impl Iterator<Item = String>) {
    let (mut small, mut large, mut failures) = (0, 0, Vec::new());
    for options in sizes {
        let bench = SmallDiskFleet::new(place, &options);
        let output = bench.scene.fleet.run(RESET);
        match output.status.code() {
            Some(0) => large += 1,
            _ => small += 1,
        }
        let judge = || {
            check_failed_run(&bench.scene, &output, Some("no space left on device"))?;
            bench.mount.remount("size=16M,nr_inodes=10000");
            bench.scene.check_all()
        };
        if let Err(why) = judge() {
            failures.push(format!("{options}: {why}"));
        }
        if large == 3 {
            break;
        }
    }
    println!("{name}: {small} sizes too small, {large} large enough");
    assert_no_failures(name, &failures);
    assert!(
        small > 0 && large > 0,
        "{name}: {small} too small, {large} large enough"
    );
}

/// Returns sizes in KiB: a page apart in the full harness, otherwise several pages.
fn size_options(from: usize) -> impl Iterator<Item = String> {
    let step = if is_full_harness() { 4 } else { 12 };
    (from..from + 400)
        .step_by(step)
        .map(|size| format!("size={size}k"))
}

fn inode_options(from: usize) -> impl Iterator<Item = String> {
    let step = if is_full_harness() { 1 } else { 3 };
    let most = |count| format!("size=4M,nr_inodes={count}");
    (from..from + 100).step_by(step).map(most)
}

#[test]
fn full_disk_is_reported_and_loses_nothing() {
    if !may_mount("faults::full_disk_is_reported_and_loses_nothing") {
        return;
    }
    run_on_growing_disks("the archive's disk is full", "archives", size_options(4));
    run_on_growing_disks(
        "the archive's disk is out of inodes",
        "archives",
        inode_options(2),
    );
    // The memories themselves fill the first of these disks.
    run_on_growing_disks("the memories' disk is full", "agents", size_options(44));
    run_on_growing_disks(
        "the memories' disk is out of inodes",
        "agents",
        inode_options(5),
    );
    run_on_growing_disks("the disk of both is full", "", size_options(56));
    run_on_growing_disks("the disk of both is out of inodes", "", inode_options(11));
}

#[test]
fn disk_with_space_for_one_agent_resets_all() {
    if !may_mount("faults::disk_with_space_for_one_agent_resets_all") {
        return;
    }
    let bench = SmallDiskFleet::new("agents", "size=300k");
    let filler = bench.scene.fleet.root.join("agents/filler");
    let mut file = fs::File::create(&filler).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
    // One page is enough for the new file of one agent.
    let length = file.metadata().unwrap().len();
    file.set_len(length - 4096).unwrap();
    bench.scene.run_ok(RESET);
    fs::remove_file(&filler).unwrap();
    bench.scene.check_all().unwrap();
}

#[test]
fn read_only_disk_is_reported_and_loses_nothing() {
    if !may_mount("faults::read_only_disk_is_reported_and_loses_nothing") {
        return;
    }
    let mut failures = Vec::new();
    for place in ["agents", "archives", "agents/scout", ""] {
        for reset in [false, true] {
            if let Err(why) = check_read_only_mount(place, reset) {
                failures.push(format!("{place:?}, reset before: {reset}: {why}"));
            }
        }
    }
    assert_no_failures("read-only disks", &failures);
}

/// Mounts one directory of a fleet read-only and checks a run.
fn check_read_only_mount(place: &str, reset: bool) -> CheckResult {
    let bench = SmallDiskFleet::new("", "size=16M");
    let scene = &bench.scene;
    if reset {
        scene.run_ok(RESET);
        for agent in scene.fleet.agents() {
            scene.run_ok(&["undo", agent]);
        }
    }
    let at = scene.fleet.root.join(place);
    fs::create_dir_all(&at).unwrap();
    let bound = Mount::new(&["--bind", at.to_str().unwrap()], &at).unwrap();
    bound.remount("bind,ro");
    let output = scene.fleet.run(RESET);
    check_failed_run(scene, &output, Some("read-only file system"))?;
    let code = output.status.code();
    check(code != Some(0), || {
        format!("exit code 0: {}", output_text(&output))
    })?;
    // A failure of one agent does not affect the other.
    let other = scene.read_memory("other").unwrap_or_default();
    let done = other == BASELINE.as_bytes();
    check(done == (place == "agents/scout"), || {
        format!("other: {}", output_text(&output))
    })?;
    bound.remount("bind,rw");
    scene.check_all()
}
