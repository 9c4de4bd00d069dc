//! Seals, saves and restores of baselines that are killed at every call: manifest and baseline are
//! wholly the old or wholly the new one, and no bytes are lost.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use sha2::{Digest, Sha256};

use super::crash::{KillSweep, assert_no_failures};
use super::faults;
use super::fixture::{BASELINE, directory_files, has_tool};
use super::kernel::WriteLease;
use super::scene::{CheckResult, InitialMemory, Scene, check, output_text};
use super::skip::skip_unsupported;
use super::strace::{self, SystemCall, can_trace, injection_options, sample_if_quick};

/// The baseline after a change.
const CHANGED: &str = "# Rules\n\n- be exact\n\n---\n";

/// Returns a fleet of two agents whose baselines are sealed, and of which one has changed since.
fn changed_scene() -> Scene {
    let cast = ["ranger", "scout"].map(|name| (name, InitialMemory::file(BASELINE)));
    let scene = Scene::new(&cast);
    seal_and_change(&scene);
    scene
}

/// Seals the baselines of a fleet and changes one of them.
pub fn seal_and_change(scene: &Scene) {
    scene.run_ok(&["seal", "--all"]);
    fs::write(scene.fleet.root.join("baselines/scout.md"), CHANGED).unwrap();
}

/// Like [`changed_scene`], signed with a key whose signatures the config requires.
fn changed_signed_scene() -> Scene {
    let cast = ["ranger", "scout"].map(|name| (name, InitialMemory::file(BASELINE)));
    let scene = Scene::new(&cast);
    let root = &scene.fleet.root;
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"])
        .arg(root.join("key"))
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let key = fs::read_to_string(root.join("key.pub")).unwrap();
    fs::write(root.join("signers"), format!("ops {key}")).unwrap();
    let config = fs::read_to_string(scene.fleet.config_path()).unwrap();
    let signed = "[general]\nrequire_seal = signed\nseal_signers = signers\n";
    let signed_config = config.replacen("[general]\n", signed, 1);
    fs::write(scene.fleet.config_path(), signed_config).unwrap();
    scene.run_ok(&["seal", "--all", "--sign", "key"]);
    fs::write(root.join("baselines/scout.md"), CHANGED).unwrap();
    scene
}

fn read(scene: &Scene, name: &str) -> String {
    fs::read_to_string(scene.fleet.root.join("baselines").join(name)).unwrap_or_default()
}

fn digest(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the manifest of both baselines.
fn manifest(scout: &str) -> String {
    format!(
        "{}  ranger.md\n{}  scout.md\n",
        digest(BASELINE),
        digest(scout)
    )
}

/// Checks that the bytes are a baseline, a stored version, or a leftover that the next run stores.
fn check_kept(scene: &Scene, text: &str) -> CheckResult {
    let fleet = &scene.fleet;
    let directories = [
        fleet.root.join("baselines"),
        fleet.archive.join(".shepherd/baselines"),
    ];
    let files = directories.map(|directory| directory_files(&directory));
    let kept = files
        .iter()
        .any(|it| it.values().any(|bytes| bytes == text.as_bytes()));
    check(kept, || format!("lost {text:?}"))
}

/// Checks that a command ends with one of these codes.
fn check_run(scene: &Scene, words: &[&str], codes: &[i32]) -> CheckResult {
    let output = scene.fleet.run(words);
    let is_expected = output
        .status
        .code()
        .is_some_and(|code| codes.contains(&code));
    check(is_expected, || {
        format!("{words:?}: {}", output_text(&output))
    })
}

/// Checks that exactly one record of the ledger says that this operation on a baseline replaced these
/// bytes, and no record of another operation says so; and that they are a version.
pub fn check_recorded_once(
    scene: &Scene,
    operation: &str,
    baseline: &str,
    replaced: &str,
) -> CheckResult {
    let replaced = digest(replaced);
    let records = ledger_records(scene);
    let of_file = records.iter().filter(|it| it["file"] == baseline);
    // A repair names what could not be removed.
    let of_file = of_file.filter(|it| it["act"] != "repair" || operation == "repair");
    let naming = of_file.filter(|it| it["before"]["file"]["sha256"] == *replaced);
    let operations: Vec<_> = naming.map(|it| it["act"].to_string()).collect();
    check(operations == [format!("{operation:?}")], || {
        format!("{baseline}: its replacement is in records {operations:?}")
    })?;
    let version = format!(".shepherd/baselines/{replaced}.md");
    let is_stored = scene.fleet.archive.join(version).exists();
    check(is_stored, || format!("{baseline}: no version {replaced}"))
}

fn ledger_records(scene: &Scene) -> Vec<serde_json::Value> {
    let path = scene.fleet.archive.join(".shepherd/ledger.jsonl");
    let ledger = fs::read_to_string(path).unwrap_or_default();
    let lines = ledger.lines();
    lines
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// Checks that nothing is left beside the baselines, and that everything verifies.
fn check_settled(scene: &Scene) -> CheckResult {
    check_run(scene, &["guard", "--once"], &[0])?;
    let names: Vec<_> = directory_files(&scene.fleet.root.join("baselines"))
        .into_keys()
        .collect();
    // What could not be removed is left where a record says so.
    let records = scene.fleet.ledger_text();
    let is_recorded = |name: &str| memchr::memmem::find(&records, name.as_bytes()).is_some();
    let mut leftovers = names.iter().filter(|name| name.starts_with(".shepherd-"));
    let leftover = leftovers.find(|name| !is_recorded(name));
    check(leftover.is_none(), || format!("left {names:?}"))?;
    check_run(scene, &["verify"], &[0])
}

fn to_strings(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

/// Returns the changing calls of an undisturbed run, whatever its exit code.
fn changing_calls(scene: &Scene, words: &[&str]) -> Vec<SystemCall> {
    let (_, mut calls) = strace::record_calls(&scene.fleet, &scene.trace_log, words);
    calls.retain(SystemCall::changes);
    assert!(calls.len() > 10, "{calls:?}");
    calls
}

/// A check of the files after a run that was cut short.
type RecoveryCheck = fn(&Scene) -> CheckResult;

const SEAL_ALL: &[&str] = &["seal", "--all"];

const GUARD: &[&str] = &["guard", "--once"];

const RESTORE: &[&str] = &["baseline", "restore", "scout.md"];

/// Checks the files right after a seal that was cut short, and seals again.
pub fn check_after_seal(scene: &Scene) -> CheckResult {
    let found = read(scene, ".checksums");
    check(
        found == manifest(BASELINE) || found == manifest(CHANGED),
        || format!("the manifest is {found:?}"),
    )?;
    check(read(scene, "scout.md") == CHANGED, || {
        "scout.md changed".to_string()
    })?;
    check_run(scene, SEAL_ALL, &[0])?;
    check(read(scene, ".checksums") == manifest(CHANGED), || {
        "not sealed".to_string()
    })?;
    check_settled(scene)?;
    let records = ledger_records(scene);
    let seals = records.iter().filter(|it| {
        it["act"] == "seal" && it["file"] == "scout.md" && it["baseline"] == *digest(CHANGED)
    });
    let count = seals.count();
    check(count == 1, || format!("{count} records of the seal"))
}

/// Checks the files right after a restore that was cut short, and guards again.
pub fn check_after_guard(scene: &Scene) -> CheckResult {
    let found = read(scene, "scout.md");
    check(found == BASELINE || found == CHANGED, || {
        format!("the baseline is {found:?}")
    })?;
    check_kept(scene, CHANGED)?;
    check_run(scene, GUARD, &[0, 1])?;
    check(read(scene, "scout.md") == BASELINE, || {
        "not restored".to_string()
    })?;
    check_kept(scene, CHANGED)?;
    check(read(scene, ".checksums") == manifest(BASELINE), || {
        "the manifest changed".to_string()
    })?;
    check_settled(scene)?;
    check_recorded_once(scene, "guard", "scout.md", CHANGED)
}

/// Checks the files right after a restore by an operator that was cut short, and restores again.
fn check_after_restore(scene: &Scene) -> CheckResult {
    check_run(scene, RESTORE, &[0])?;
    check(read(scene, "scout.md") == BASELINE, || {
        "not restored".to_string()
    })?;
    check_settled(scene)?;
    check_recorded_once(scene, "restore", "scout.md", CHANGED)
}

#[test]
fn kill_at_any_call_of_seal_leaves_whole_manifest() {
    if !can_trace() {
        return;
    }
    KillSweep {
        name: "seal",
        scene: &changed_scene,
        run: &|_| to_strings(SEAL_ALL),
        check_recovery: &check_after_seal,
        quick_points: 20,
    }
    .kill_at_points(&changing_calls(&changed_scene(), SEAL_ALL));
}

#[test]
fn kill_at_any_call_of_signed_seal_is_recovered() {
    if !can_trace() || !has_tool("ssh-keygen") {
        return;
    }
    let words = ["seal", "--all", "--sign", "key"];
    let check_recovery = |scene: &Scene| {
        // Each of the three files is whole; together they are a good seal after one more run.
        let found = read(scene, ".checksums");
        let lines: String = found
            .lines()
            .filter(|line| !line.ends_with(".checksums.meta"))
            .map(|line| format!("{line}\n"))
            .collect();
        check(
            lines == manifest(BASELINE) || lines == manifest(CHANGED),
            || format!("the manifest is {found:?}"),
        )?;
        check_run(scene, &words, &[0])?;
        check_settled(scene)
    };
    KillSweep {
        name: "signed seal",
        scene: &changed_signed_scene,
        run: &|_| to_strings(&words),
        check_recovery: &check_recovery,
        quick_points: 16,
    }
    .kill_at_points(&changing_calls(&changed_signed_scene(), &words));
}

#[test]
fn kill_at_any_call_of_guard_leaves_whole_baseline() {
    if !can_trace() {
        return;
    }
    KillSweep {
        name: "guard",
        scene: &changed_scene,
        run: &|_| to_strings(GUARD),
        check_recovery: &check_after_guard,
        quick_points: 20,
    }
    .kill_at_points(&changing_calls(&changed_scene(), GUARD));
}

#[test]
fn kill_at_any_call_of_restore_is_recorded_once() {
    if !can_trace() {
        return;
    }
    KillSweep {
        name: "baseline restore",
        scene: &changed_scene,
        run: &|_| to_strings(RESTORE),
        check_recovery: &check_after_restore,
        quick_points: 16,
    }
    .kill_at_points(&changing_calls(&changed_scene(), RESTORE));
}

/// The record comes before the displaced file is removed, and that before the journal forgets the
/// change: each of these is a call at which the guard is killed, whatever the sample of the others.
#[test]
fn guard_killed_around_its_record_is_recorded_once() {
    if !can_trace() {
        return;
    }
    let calls = changing_calls(&changed_scene(), GUARD);
    let is_chosen = |call: &SystemCall| {
        let names = [
            ".ledger.lock",
            "ledger.jsonl",
            ".shepherd-",
            "replacing.json",
        ];
        call.name.starts_with("unlink") || names.iter().any(|name| call.text.contains(name))
    };
    let points: Vec<SystemCall> = calls.into_iter().filter(is_chosen).collect();
    KillSweep {
        name: "guard around its record",
        scene: &changed_scene,
        run: &|_| to_strings(GUARD),
        check_recovery: &check_after_guard,
        quick_points: points.len(),
    }
    .kill_at_points(&points);
}

#[test]
fn error_at_any_call_of_seal_leaves_whole_files() {
    if !can_trace() {
        return;
    }
    let mut failures = Vec::new();
    let cases: [(&[&str], RecoveryCheck); 2] =
        [(SEAL_ALL, check_after_seal), (GUARD, check_after_guard)];
    for (words, check_recovery) in cases {
        let scene = changed_scene();
        let (_, calls) = strace::record_calls(&scene.fleet, &scene.trace_log, words);
        let pairs: Vec<(SystemCall, &str)> = faults::calls_of_program(&calls)
            .iter()
            .flat_map(|call| {
                let errors = faults::possible_errors(call).iter();
                errors.map(|error| (call.clone(), *error))
            })
            .collect();
        let chosen = sample_if_quick(&pairs, 30);
        for (call, error) in &chosen {
            let scene = changed_scene();
            if let Err(why) =
                fail_once(&scene, words, call, error).and_then(|()| check_recovery(&scene))
            {
                failures.push(format!("{error} at {}: {why}", call.text));
            }
        }
        println!("errors in {words:?}: {} of {}", chosen.len(), pairs.len());
    }
    assert_no_failures("errors in seal and guard", &failures);
}

/// Runs the program with an error at one call; it ends with an exit code and without a debug dump.
fn fail_once(scene: &Scene, words: &[&str], call: &SystemCall, error: &str) -> CheckResult {
    let what = format!("error={error}");
    let options = injection_options(&call.name, &what, call.occurrence, false);
    let output = strace::run_traced(&scene.fleet, &scene.trace_log, &options, words);
    let said = output_text(&output);
    let code = output.status.code();
    check(matches!(code, Some(0..=6)), || {
        format!("ended with {code:?}: {said}")
    })?;
    for word in ["panicked", "Os {", "Error {", "Some("] {
        check(!said.contains(word), || format!("a debug dump: {said}"))?;
    }
    Ok(())
}

/// The first killed restore may leave its own seal behind as well: here the guard finds no manifest.
#[test]
fn kill_of_seal_restore_leaves_whole_seal() {
    if !can_trace() {
        return;
    }
    let words = GUARD;
    let scene = || {
        let scene = changed_scene();
        fs::remove_file(scene.fleet.root.join("baselines/.checksums")).unwrap();
        scene
    };
    let check_recovery = |scene: &Scene| {
        let found = read(scene, ".checksums");
        check(found.is_empty() || found == manifest(BASELINE), || {
            format!("the manifest is {found:?}")
        })?;
        check_kept(scene, CHANGED)?;
        check_run(scene, words, &[0, 1])?;
        check(read(scene, "scout.md") == BASELINE, || {
            "not restored".to_string()
        })?;
        check_settled(scene)
    };
    KillSweep {
        name: "guard without a manifest",
        scene: &scene,
        run: &|_| to_strings(words),
        check_recovery: &check_recovery,
        quick_points: 16,
    }
    .kill_at_points(&changing_calls(&scene(), words));
}

/// An agent keeps a changed baseline from being read: with a lease, or as a directory without
/// permissions. The guard restores it, and what stood there stays beside it.
#[test]
fn unreadable_baseline_is_restored_and_kept_aside() {
    let scene = changed_scene();
    let path = scene.fleet.root.join("baselines/scout.md");
    let aside = || {
        let names = directory_files(&scene.fleet.root.join("baselines"));
        names
            .into_iter()
            .find(|(name, _)| name.starts_with(".shepherd-"))
    };
    match WriteLease::take(fs::File::open(&path).unwrap()) {
        Ok(lease) => {
            scene.fleet.run(&["status"]);
            check_run(&scene, GUARD, &[1]).unwrap();
            assert_eq!(read(&scene, "scout.md"), BASELINE);
            check_run(&scene, GUARD, &[0]).unwrap();
            drop(lease);
            let (name, bytes) = aside().expect("the changed file is gone");
            assert_eq!(bytes, CHANGED.as_bytes());
            fs::remove_file(scene.fleet.root.join("baselines").join(name)).unwrap();
        }
        Err(error) => skip_unsupported(format_args!("no leases: {error}")),
    }
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    check_run(&scene, GUARD, &[1]).unwrap();
    assert_eq!(read(&scene, "scout.md"), BASELINE);
    check_run(&scene, GUARD, &[0]).unwrap();
    check_run(&scene, SEAL_ALL, &[0]).unwrap();
}

/// A file system that cannot exchange two names: the call fails every time.
#[test]
fn seal_and_guard_work_without_exchange() {
    if !can_trace() {
        return;
    }
    let scene = changed_scene();
    let options = ["-e", "inject=renameat2:error=EINVAL"].map(str::to_string);
    for (words, text) in [(GUARD, BASELINE), (SEAL_ALL, BASELINE)] {
        let output = strace::run_traced(&scene.fleet, &scene.trace_log, &options, words);
        assert!(
            matches!(output.status.code(), Some(0 | 1)),
            "{}",
            output_text(&output)
        );
        assert_eq!(read(&scene, "scout.md"), text);
        assert_eq!(read(&scene, ".checksums"), manifest(text));
        check_kept(&scene, CHANGED).unwrap();
    }
    check_settled(&scene).unwrap();
}
