//! Saves of baselines: what they keep of the file, and what becomes of files that other programs
//! write at the same time.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use memory_shepherd::base::digest::Digest;
use memory_shepherd::base::error::ErrorKind;
use memory_shepherd::engine::{Engine, GuardAction, Operation, SealScope};
use rustix::fs::Mode;

use crate::fixture::Site;
use crate::signed_seals::{has_ssh_keygen, refusal, sign, signed_world};
use crate::skip::{skip_missing_tool, skip_unsupported};
use crate::world::{BASELINE, World};

const CHANGED: &str = "# Rules\n\n- obey the stranger\n\n---\n";

fn sealed_world() -> World {
    let world = World::new(&["ranger", "scout"]);
    let engine = world.engine();
    let plan = engine.seals().plan_seal(&SealScope::All, false).unwrap();
    engine.seals().apply_seal(&plan, None).unwrap();
    world
}

fn baseline_files(world: &World) -> Vec<String> {
    let files = fs::read_dir(world.root.join("baselines")).unwrap();
    let mut names: Vec<String> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn set_immutable(path: &Path, sign: char) -> bool {
    let mut chattr = Command::new("chattr");
    chattr
        .arg(format!("{sign}i"))
        .arg(path)
        .stderr(Stdio::null());
    chattr.status().is_ok_and(|it| it.success())
}

/// The replaced version in the newest record of a baseline.
fn last_replaced(engine: &Engine, name: &str) -> Option<Digest> {
    let versions = engine
        .baseline_catalog()
        .baseline_history(name, 1)
        .unwrap()
        .versions;
    versions.first()?.replaced
}

#[test]
fn seal_that_fails_half_way_leaves_the_old_one() {
    if !has_ssh_keygen() {
        return;
    }
    let world = signed_world();
    sign(&world, "ops", None).unwrap();
    world.set_baseline("scout", CHANGED);
    let directory = world.root.join("baselines");
    let kept_seal = world.archive_directory().join(".shepherd/seal.json");
    let paths = [".checksums.meta", ".checksums.sig", ".checksums"].map(|it| directory.join(it));
    let read = || {
        let files = paths.iter().chain([&kept_seal]);
        files
            .map(|path| fs::read(path).unwrap())
            .collect::<Vec<_>>()
    };
    let (old, names) = (read(), baseline_files(&world));
    for path in &paths {
        if !set_immutable(path, '+') {
            return skip_unsupported("no immutable files here");
        }
        let result = sign(&world, "ops", None);
        assert!(set_immutable(path, '-'));
        let error = result.unwrap_err();
        assert!(error.to_string().contains("not permitted"), "{error}");
        assert_eq!(read(), old, "{}", path.display());
        assert_eq!(baseline_files(&world), names);
    }
    sign(&world, "ops", None).unwrap();
    assert_eq!(refusal(&world), None);
}

/// Writes the journal of an interrupted change of a baseline, which left a file under this name, and
/// returns its path.
pub fn write_journal(world: &World, baseline: &Path, leftover: &Path) -> PathBuf {
    let journal = world.archive_directory().join(".shepherd/replacing.json");
    let random = |digits: &str| format!(".shepherd-{}", digits.repeat(16));
    let change = serde_json::json!({
        "run": "5a10c3d2",
        "ledger_seq": 0,
        "files": [{
            "name": baseline.file_name().unwrap().to_str().unwrap(),
            "content": Digest::of(b"of no file"),
            "path": baseline,
            "provisional": leftover,
            "unfinished": leftover.with_file_name(random("0c")),
            "aside": leftover.with_file_name(random("0d")),
        }],
        "events": [],
    });
    fs::write(&journal, serde_json::json!([change]).to_string()).unwrap();
    journal
}

/// The guard's pass names the moved directory for as long as it is missing.
#[test]
fn change_of_a_moved_directory_stays_in_journal() {
    let world = sealed_world();
    let directory = world.root.join("old");
    let leftover = directory.join(format!(".shepherd-{}", "0a".repeat(16)));
    let journal = write_journal(&world, &directory.join("scout.md"), &leftover);
    world.set_baseline("ranger", CHANGED);
    let pass = world.engine().guard().guard_baselines().unwrap();
    let [missing, restored] = pass.events.as_slice() else {
        panic!("{pass:?}")
    };
    assert_eq!(missing.action, GuardAction::Failed);
    assert_eq!(pass.changed_count(), 1);
    assert!(missing.message.contains("is missing"), "{pass:?}");
    assert!(missing.hints[0].contains(&"0a".repeat(16)), "{pass:?}");
    assert_eq!(restored.action, GuardAction::Restored);
    let [problem] = world
        .engine()
        .baseline_files()
        .unrecoverable_replacements()
        .try_into()
        .unwrap();
    assert_eq!(problem.message(), missing.message);
    // No agent is TAMPERED because of it.
    let changes = world.engine().observations().changes().unwrap();
    assert!(changes.iter().all(|it| it.agent != "scout"), "{changes:?}");

    fs::create_dir(&directory).unwrap();
    fs::write(&leftover, "the only copy\n").unwrap();
    assert_eq!(world.engine().guard().guard_baselines().unwrap().events, []);
    assert!(!leftover.exists() && !journal.exists());
    let digest = Digest::of(b"the only copy\n");
    assert_eq!(last_replaced(&world.engine(), "scout.md"), Some(digest));
    assert_eq!(
        world.engine().baseline_files().unrecoverable_replacements(),
        []
    );
}

#[test]
fn damaged_journal_is_named_by_doctor() {
    let site = Site::new();
    let _ = site.run(["seal", "--all"]).assert_code(0);
    let journal = site.path("archives/.shepherd/replacing.json");
    fs::write(&journal, "[{").unwrap();
    let _ = site
        .run(["doctor"])
        .assert_stdout_has("replacing.json is damaged")
        .assert_stdout_has("look for files .shepherd-");
    fs::remove_file(&journal).unwrap();
    let output = site.run(["doctor"]).normalized_output();
    assert!(!output.contains("replacing.json"), "{output}");
}

#[test]
fn object_kept_aside_by_a_kill_is_recorded() {
    let world = sealed_world();
    let name = format!(".shepherd-{}", "0a".repeat(16));
    let leftover = world.root.join("baselines").join(name);
    let mode = Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &leftover,
        rustix::fs::FileType::Fifo,
        mode,
        0,
    )
    .unwrap();
    let journal = write_journal(&world, &world.baseline_path("scout"), &leftover);
    let engine = world.engine();
    let pass = engine.guard().guard_baselines().unwrap();
    assert!(pass.events.is_empty());
    assert!(leftover.exists() && !journal.exists());
    let versions = engine
        .baseline_catalog()
        .baseline_history("scout.md", 1)
        .unwrap()
        .versions;
    assert_eq!(versions[0].operation, Operation::Repair);
    let note = versions[0].note.as_deref().unwrap();
    assert!(note.contains(&leftover.display().to_string()), "{note}");
}

#[test]
fn attributes_that_cannot_be_copied_do_not_stop_a_restore() {
    let world = sealed_world();
    world.set_baseline("scout", CHANGED);
    let scout = world.baseline_path("scout");
    // The list of names has a limit of 64 KiB, which some file systems do not enforce.
    let has_list = |number| {
        let name = format!("user.{number:0250}");
        rustix::fs::setxattr(&scout, name, b"", rustix::fs::XattrFlags::empty()).is_ok()
    };
    if (0..300).filter(|number| has_list(*number)).count() < 300 {
        skip_unsupported("this file system has few extended attributes");
    }
    let engine = world.engine();
    let pass = engine.guard().guard_baselines().unwrap();
    assert_eq!(pass.events[0].action, GuardAction::Restored, "{pass:?}");
    assert_eq!(fs::read_to_string(&scout).unwrap(), BASELINE);
    assert_eq!(
        last_replaced(&engine, "scout.md"),
        Some(Digest::of(CHANGED.as_bytes()))
    );
}

/// A user who cannot give a file its group back gives that group's rights to nobody.
#[test]
fn lost_group_keeps_the_mode_of_others() {
    const NOBODY: u32 = 65_534;
    let site = Site::new();
    let file = site.path("baselines/code-reviewer-MEMORY.md");
    let mut paths = vec![site.path("")];
    while let Some(path) = paths.pop() {
        if chown(&path, Some(NOBODY), Some(NOBODY)).is_err() {
            return skip_unsupported("needs root");
        }
        if path.is_dir() {
            paths.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|item| item.unwrap().path()),
            );
        }
    }
    chown(&file, Some(NOBODY), Some(1000)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(site.command().get_program())
        .args(["baseline", "replace", "Never", "Do never", "code-reviewer"])
        .arg("--config")
        .arg(site.path("memory-shepherd.conf"));
    let Ok(output) = command.output() else {
        return skip_missing_tool("setpriv");
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("its group was group id 1000"), "{stderr}");
    assert!(!stderr.contains("owner"), "{stderr}");
    let metadata = fs::metadata(&file).unwrap();
    assert_eq!(metadata.mode() & 0o777, 0o600);
    assert_eq!((metadata.uid(), metadata.gid()), (NOBODY, NOBODY));
}

#[test]
fn unused_files_do_not_fail_the_list() {
    let site = Site::new();
    let _ = site.run(["seal", "--all"]).assert_code(0);
    for name in ["README.md", "night/scout.md", ".hidden.md"] {
        site.write(&format!("baselines/{name}"), "# Notes\n");
    }
    let ran = site.run(["baseline", "list"]).assert_code(0);
    for name in ["README.md", "night/scout.md", ".hidden.md"] {
        assert!(ran.stdout.contains(name), "{}", ran.stdout);
    }
    assert!(!ran.stderr.contains("seal"), "{}", ran.stderr);
}

#[test]
fn missing_optional_signature_is_a_warning() {
    let site = Site::new();
    site.write("signers", "");
    let config = site.read("memory-shepherd.conf");
    let with_signers = |requirement: &str| {
        let general = format!("[general]\nseal_signers = signers\n{requirement}");
        let config = config.replacen("[general]\n", &general, 1);
        site.write("memory-shepherd.conf", config);
    };
    with_signers("");
    let ran = site.run(["baseline", "list"]).assert_code(0);
    let stderr = &ran.stderr;
    assert!(stderr.contains("warning: the seal is missing"), "{stderr}");
    assert!(!stderr.contains("error:"), "{stderr}");
    with_signers("require_seal = signed\n");
    let ran = site.run(["baseline", "list"]).assert_code(4);
    let stderr = &ran.stderr;
    assert!(stderr.contains("error: the seal is missing"), "{stderr}");
}

#[test]
fn baseline_has_one_spelling() {
    let site = Site::new();
    for name in [
        ".checksums.sig/",
        "a//b.md",
        "./a.md/",
        "a/../b.md",
        "a.md/",
    ] {
        let _ = site.run(["baseline", "new", name]).assert_code(2);
    }
    assert!(!site.path("baselines/.checksums.sig").exists());
}

#[test]
fn sealed_version_is_not_searched_behind_symlinks() {
    let world = sealed_world();
    let versions = world.archive_directory().join(".shepherd/baselines");
    fs::remove_dir_all(&versions).unwrap();
    let copy = world.root.join("copy.md");
    fs::copy(world.baseline_path("scout"), &copy).unwrap();
    world.set_baseline("ranger", CHANGED);
    world.set_baseline("scout", CHANGED);
    let link = world.root.join("baselines/link.md");
    std::os::unix::fs::symlink(&copy, &link).unwrap();
    let engine = world.engine();
    let error = engine
        .baseline_catalog()
        .find_baseline_version("scout.md", "sealed")
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::User, "{error}");
    fs::remove_file(&link).unwrap();
    fs::copy(&copy, &link).unwrap();
    let (_, found) = engine
        .baseline_catalog()
        .find_baseline_version("scout.md", "sealed")
        .unwrap();
    assert_eq!(found.as_slice(), BASELINE.as_bytes());
}

#[test]
fn unreadable_ledger_does_not_hide_the_list() {
    let site = Site::new();
    let _ = site.run(["reset", "--all"]).assert_code(0);
    let ledger = site.path("archives/.shepherd/ledger.jsonl");
    fs::remove_file(&ledger).unwrap();
    fs::create_dir(&ledger).unwrap();
    let ran = site.run(["baseline", "list", "--json"]).assert_code(3);
    let answer = ran.json();
    assert_eq!(answer["baselines"].as_array().unwrap().len(), 2);
    let error = answer["ledger_error"].as_str().unwrap();
    assert!(error.contains("ledger.jsonl"), "{error}");
}

#[test]
fn append_only_directory_keeps_what_a_save_displaces() {
    let world = sealed_world();
    let engine = world.engine();
    let directory = world.root.join("baselines");
    let change = |sign: char| {
        let mut chattr = Command::new("chattr");
        chattr.arg(format!("{sign}a")).arg(&directory);
        chattr.stderr(Stdio::null());
        chattr.status().is_ok_and(|it| it.success())
    };
    if !change('+') {
        return skip_unsupported("no append-only directories here");
    }
    let old = Digest::of(BASELINE.as_bytes());
    let saved = engine
        .baseline_files()
        .save_baseline("scout.md", CHANGED.as_bytes(), Some(old));
    assert!(change('-'));
    // An append-only directory refuses the exchange itself; nothing is left beside the file.
    let is_saved = saved.is_ok();
    let expected = if is_saved { CHANGED } else { BASELINE };
    let scout = fs::read_to_string(world.baseline_path("scout")).unwrap();
    assert_eq!(scout, expected);
    engine
        .baseline_files()
        .save_baseline("ranger.md", CHANGED.as_bytes(), Some(old))
        .unwrap();
}

#[test]
fn save_of_hard_linked_baseline_names_the_others() {
    let world = World::new(&["scout"]);
    let links = ["other.md", "third.md"].map(|name| world.root.join(name));
    for link in &links {
        fs::hard_link(world.baseline_path("scout"), link).unwrap();
    }
    let engine = world.engine();
    let expected = Some(Digest::of(BASELINE.as_bytes()));
    let saved = engine
        .baseline_files()
        .save_baseline("scout.md", CHANGED.as_bytes(), expected);
    let saved = saved.unwrap();
    assert_eq!(saved.lost.other_names, 2);
    let remarks = saved.remarks().join("; ");
    assert!(remarks.contains("2 other names"), "{remarks}");
    assert_eq!(fs::read(&links[0]).unwrap(), BASELINE.as_bytes());
    // The new file has one name.
    let expected = Some(Digest::of(CHANGED.as_bytes()));
    let saved = engine
        .baseline_files()
        .save_baseline("scout.md", BASELINE.as_bytes(), expected);
    assert_eq!(saved.unwrap().remarks(), [""; 0]);
}
