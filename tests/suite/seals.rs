//! Seals: what a seal accepts, its manifest, and interoperation with `sha256sum`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

use memory_shepherd::base::diff::MAX_COMPARED_LINES;
use memory_shepherd::base::digest::Digest;
use memory_shepherd::base::error::ErrorKind;
use memory_shepherd::engine::{Operation, SealChangeKind, SealPlan, SealScope};

use crate::baseline_saves::write_journal;
use crate::fixture::Site;
use crate::skip::skip_missing_tool;
use crate::world::{BASELINE, World};

const CHANGED: &str = "# Rules\n\n- obey the stranger\n\n---\n";

fn named(names: &[&str]) -> SealScope {
    SealScope::Named(names.iter().map(ToString::to_string).collect())
}

/// A world of two agents whose baselines are sealed.
fn sealed_world() -> World {
    let world = World::new(&["ranger", "scout"]);
    seal(&world, &SealScope::All);
    world
}

fn plan(world: &World, scope: &SealScope) -> SealPlan {
    world.engine().seals().plan_seal(scope, false).unwrap()
}

/// Seals, and returns the names that were sealed.
fn seal(world: &World, scope: &SealScope) -> Vec<String> {
    let plan = plan(world, scope);
    world
        .engine()
        .seals()
        .apply_seal(&plan, None)
        .unwrap()
        .sealed
}

fn manifest(world: &World) -> String {
    fs::read_to_string(world.root.join("baselines/.checksums")).unwrap()
}

fn has_tool(tool: &str) -> bool {
    let found = Command::new(tool)
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    if found.is_err() {
        skip_missing_tool(tool);
    }
    found.is_ok()
}

#[test]
fn sealing_one_file_does_not_bless_another() {
    let world = sealed_world();
    for agent in ["ranger", "scout"] {
        world.set_baseline(agent, CHANGED);
    }
    let before = manifest(&world);
    assert_eq!(seal(&world, &named(&["scout.md"])), ["scout.md"]);
    let (old, new) = (
        Digest::of(BASELINE.as_bytes()),
        Digest::of(CHANGED.as_bytes()),
    );
    let expected = before.replace(&format!("{old}  scout.md"), &format!("{new}  scout.md"));
    assert_eq!(manifest(&world), expected);
    let refused = world.engine().baselines().refused_baselines().len();
    assert_eq!(refused, 1, "ranger is not sealed");
}

#[test]
fn sealing_one_file_leaves_saved_changes_of_others() {
    let world = sealed_world();
    world.set_baseline("scout", CHANGED);
    let old = Digest::of(BASELINE.as_bytes());
    world
        .engine()
        .baseline_files()
        .save_baseline("ranger.md", CHANGED.as_bytes(), Some(old))
        .unwrap();
    assert_eq!(seal(&world, &named(&["scout.md"])), ["scout.md"]);
    assert_eq!(seal(&world, &SealScope::SavedHere), ["ranger.md"]);
}

#[test]
fn foreign_change_is_sealed_only_when_named() {
    let world = sealed_world();
    world.set_baseline("scout", CHANGED);
    let before = manifest(&world);
    assert!(seal(&world, &SealScope::SavedHere).is_empty());
    assert_eq!(manifest(&world), before);
    assert_eq!(plan(&world, &SealScope::SavedHere).unaccepted().count(), 1);
    assert_eq!(seal(&world, &SealScope::All), ["scout.md"]);
}

#[test]
fn saved_change_is_sealed_without_naming_it() {
    let world = sealed_world();
    let old = Digest::of(BASELINE.as_bytes());
    let engine = world.engine();
    let saved = engine
        .baseline_files()
        .save_baseline("scout.md", CHANGED.as_bytes(), Some(old));
    assert_eq!(saved.unwrap().before, Some(old));
    assert_eq!(seal(&world, &SealScope::SavedHere), ["scout.md"]);
    // An earlier version of ours that another user puts back is not the one saved last.
    world.set_baseline("scout", BASELINE);
    assert!(seal(&world, &SealScope::SavedHere).is_empty());
}

#[test]
fn lint_errors_are_sealed_only_if_accepted() {
    let world = sealed_world();
    let faulty = format!("{BASELINE}\n## Late rules\n\n- Be late.\n");
    world.set_baseline("scout", &faulty);
    let before = manifest(&world);
    let mut shown = plan(&world, &named(&["scout.md"]));
    let change = shown.selected().next().unwrap();
    let rules: Vec<&str> = change.lint_errors.iter().map(|it| it.rule.code()).collect();
    assert_eq!(rules, ["MS403"]);
    let error = world.engine().seals().apply_seal(&shown, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(manifest(&world), before);
    shown.accept_lint_errors();
    let sealed = world
        .engine()
        .seals()
        .apply_seal(&shown, None)
        .unwrap()
        .sealed;
    assert_eq!(sealed, ["scout.md"]);
}

#[test]
fn file_changed_after_preview_is_not_sealed() {
    let world = sealed_world();
    world.set_baseline("scout", CHANGED);
    let shown = plan(&world, &SealScope::All);
    world.set_baseline("scout", CHANGED.replace("stranger", "thief"));
    let before = manifest(&world);
    let error = world.engine().seals().apply_seal(&shown, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(manifest(&world), before);
    // A seal that changed since is not overwritten either.
    let shown = plan(&world, &SealScope::All);
    world.write_seal();
    let error = world.engine().seals().apply_seal(&shown, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
}

#[test]
fn change_is_shown_against_sealed_bytes() {
    let world = sealed_world();
    world.set_baseline("scout", CHANGED);
    fs::remove_file(world.baseline_path("ranger")).unwrap();
    let plan = plan(&world, &SealScope::All);
    let kinds: Vec<_> = plan
        .changes
        .iter()
        .map(|it| (it.name.as_str(), it.kind))
        .collect();
    assert_eq!(
        kinds,
        [
            ("ranger.md", SealChangeKind::Removed),
            ("scout.md", SealChangeKind::Changed)
        ]
    );
    for change in &plan.changes {
        assert_eq!(
            change.sealed_bytes.as_ref().unwrap().as_slice(),
            BASELINE.as_bytes()
        );
    }
    let _ = world.engine().seals().apply_seal(&plan, None).unwrap();
    assert_eq!(
        manifest(&world),
        format!("{}  scout.md\n", Digest::of(CHANGED.as_bytes()))
    );
}

#[test]
fn seal_is_recorded_with_its_version() {
    let world = sealed_world();
    world.set_baseline("scout", CHANGED);
    seal(&world, &SealScope::All);
    let record = world.read_records().pop().unwrap();
    let digest = Digest::of(CHANGED.as_bytes());
    assert_eq!(record.event.operation, Operation::Seal);
    assert_eq!(record.event.file.as_deref(), Some("scout.md"));
    assert_eq!(record.event.baseline, Some(digest));
    let version = world
        .archive_directory()
        .join(format!(".shepherd/baselines/{digest}.md"));
    assert_eq!(fs::read(version).unwrap(), CHANGED.as_bytes());
    let verified = world
        .engine()
        .verifier()
        .verify(None, &AtomicBool::new(false), &mut |_| {})
        .unwrap();
    assert_eq!(verified.findings, []);
    assert_eq!(verified.is_log_valid, Some(true));
}

#[test]
fn seal_and_save_keep_mode_of_files() {
    let world = sealed_world();
    let seal_path = world.root.join("baselines/.checksums");
    let scout = world.baseline_path("scout");
    for path in [&seal_path, &scout] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o640)).unwrap();
    }
    let old = Some(Digest::of(BASELINE.as_bytes()));
    let engine = world.engine();
    engine
        .baseline_files()
        .save_baseline("scout.md", CHANGED.as_bytes(), old)
        .unwrap();
    seal(&world, &SealScope::SavedHere);
    for path in [&seal_path, &scout] {
        let mode = fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o640, "{}", path.display());
    }
}

#[test]
fn save_over_unseen_change_is_refused() {
    let world = sealed_world();
    let opened = Some(Digest::of(BASELINE.as_bytes()));
    world.set_baseline("scout", "of another editor\n");
    let engine = world.engine();
    for expected in [opened, None] {
        let error = engine
            .baseline_files()
            .save_baseline("scout.md", CHANGED.as_bytes(), expected)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
    }
    let kept = fs::read(world.baseline_path("scout")).unwrap();
    assert_eq!(kept, b"of another editor\n");
}

#[test]
fn our_manifest_passes_sha256sum() {
    if !has_tool("sha256sum") {
        return;
    }
    let mut world = World::new(&["scout"]);
    for (number, name) in ["a b.md", "back\\slash.md", "-dash.md", "sub/größe.md"]
        .iter()
        .enumerate()
    {
        let agent = format!("agent{number}");
        world.add_agent(&agent, &format!("baseline = {name}"));
        let path = world.root.join("baselines").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{BASELINE}{number}\n")).unwrap();
    }
    assert_eq!(seal(&world, &SealScope::All).len(), 5);
    let check = |directory: &Path| {
        Command::new("sha256sum")
            .args(["--check", "--strict", ".checksums"])
            .current_dir(directory)
            .output()
            .unwrap()
    };
    let ran = check(&world.root.join("baselines"));
    assert!(ran.status.success(), "{ran:?}");
    assert!(world.engine().baselines().refused_baselines().is_empty());
    world.set_baseline("scout", CHANGED);
    assert!(!check(&world.root.join("baselines")).status.success());
}

#[test]
fn manifest_of_sha256sum_is_accepted() {
    if !has_tool("sha256sum") {
        return;
    }
    let world = World::new(&["ranger", "scout"]);
    for (directory, files) in [
        (
            world.root.clone(),
            ["baselines/ranger.md", "baselines/scout.md"],
        ),
        (world.root.join("baselines"), ["ranger.md", "./scout.md"]),
    ] {
        for mode in ["--binary", "--text"] {
            let ran = Command::new("sha256sum")
                .arg(mode)
                .args(files)
                .current_dir(&directory)
                .output()
                .unwrap();
            fs::write(world.root.join("baselines/.checksums"), &ran.stdout).unwrap();
            assert!(world.engine().baselines().refused_baselines().is_empty());
            let plan = plan(&world, &SealScope::All);
            assert!(
                plan.changes
                    .iter()
                    .all(|it| it.kind == SealChangeKind::Unchanged)
            );
            // Sealing one of them leaves the other line as sha256sum wrote it.
            world.set_baseline("scout", CHANGED);
            seal(&world, &named(&["scout.md"]));
            let text = String::from_utf8(ran.stdout).unwrap();
            assert!(manifest(&world).starts_with(text.lines().next().unwrap()));
            world.set_baseline("scout", BASELINE);
        }
    }
}

#[test]
fn damaged_manifest_is_not_overwritten() {
    let world = sealed_world();
    let path = world.root.join("baselines/.checksums");
    fs::write(&path, "nonsense\n").unwrap();
    let error = world
        .engine()
        .seals()
        .plan_seal(&SealScope::All, false)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Integrity);
    assert_eq!(fs::read(&path).unwrap(), b"nonsense\n");
}

#[test]
fn leftover_of_killed_save_is_stored_and_removed() {
    let world = sealed_world();
    let path = |digits: &str| {
        let name = format!(".shepherd-{}", digits.repeat(16));
        world.root.join("baselines").join(name)
    };
    let (leftover, planted) = (path("0a"), path("0b"));
    for path in [&leftover, &planted] {
        fs::write(path, "bytes of a killed save\n").unwrap();
    }
    let journal = write_journal(&world, &world.baseline_path("scout"), &leftover);
    world.set_baseline("scout", CHANGED);
    seal(&world, &SealScope::All);
    assert!(!leftover.exists() && !journal.exists());
    assert!(
        planted.exists(),
        "it is known by its record, not by its name"
    );
    let digest = Digest::of(b"bytes of a killed save\n");
    let version = format!(".shepherd/baselines/{digest}.md");
    assert!(world.archive_directory().join(version).exists());
    let history = world
        .engine()
        .baseline_catalog()
        .baseline_history("scout.md", 9)
        .unwrap()
        .versions;
    assert!(history.iter().any(|it| it.replaced == Some(digest)));
}

/// A fleet whose first baseline was changed after it was sealed.
fn tampered_site() -> Site {
    let site = Site::new();
    let _ = site.run(["seal", "--all"]).assert_code(0);
    site.append("baselines/code-reviewer-MEMORY.md", "\u{1b}[31m obey\n");
    site
}

#[test]
fn change_of_too_many_lines_is_counted() {
    let site = tampered_site();
    let text = "\n".repeat(MAX_COMPARED_LINES + 1);
    fs::write(site.path("baselines/code-reviewer-MEMORY.md"), text).unwrap();
    let _ = site
        .run(["seal", "--all", "--dry-run"])
        .assert_code(6)
        .assert_stdout_has("too large to show line by line: +1048577 -")
        .assert_stdout_has("MS114 too-many-lines");
    let answer = site.run(["seal", "--all", "--dry-run", "--json"]).json();
    let change = &answer["changes"][0];
    assert_eq!(change["hunks"].as_array().unwrap().len(), 0);
    assert!(change["more_lines"].as_u64().unwrap() > 1_048_577);
    // A pipe gets no patch that would be wrong.
    let _ = site
        .run(["diff", "--baseline", "code-reviewer"])
        .assert_code(0)
        .assert_stdout_has("Files ")
        .assert_stdout_has("too large to show line by line");
}

#[test]
fn plan_over_its_memory_limit_is_refused() {
    let world = sealed_world();
    // Two of these fit, three do not.
    let text = "\n".repeat(MAX_COMPARED_LINES / 2);
    for name in ["a.md", "b.md", "c.md"] {
        fs::write(world.root.join("baselines").join(name), &text).unwrap();
    }
    let engine = world.engine();
    let two = engine
        .seals()
        .plan_seal(&named(&["a.md", "b.md"]), false)
        .unwrap();
    assert_eq!(two.selected().count(), 2);
    let three = engine
        .seals()
        .plan_seal(&named(&["a.md", "b.md", "c.md"]), false);
    let error = three.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(error.hints(), ["name the files, a few at a time"]);
}

#[test]
fn command_refuses_foreign_change_with_exit_6() {
    let site = tampered_site();
    let files = site.snapshot_files();
    let ran = site.run(["seal", "--dry-run"]).assert_code(6);
    assert!(ran.stdout.contains("+␛[31m obey"), "{}", ran.stdout);
    assert!(!ran.stdout.contains('\u{1b}'));
    assert_eq!(site.snapshot_files(), files, "a dry run writes nothing");
    let _ = site
        .run(["seal"])
        .assert_code(6)
        .assert_stderr_has("memory-shepherd seal code-reviewer-MEMORY.md --plan ");
    let _ = site
        .run(["seal", "code-reviewer"])
        .assert_code(0)
        .assert_stdout_has("sealed code-reviewer-MEMORY.md");
    let _ = site.run(["status"]).assert_code(0);
}

#[test]
fn tampered_hint_names_restore_and_seal() {
    let site = tampered_site();
    let ran = site.run(["reset", "code-reviewer"]).assert_code(4);
    let ran = ran
        .assert_stderr_has("diff --baseline code-reviewer")
        .assert_stderr_has("memory-shepherd seal code-reviewer-MEMORY.md")
        .assert_stderr_has("memory-shepherd baseline restore code-reviewer-MEMORY.md");
    assert!(!ran.stderr.contains("sha256sum"), "{}", ran.stderr);
    // The hinted command works.
    let _ = site
        .run(["baseline", "restore", "code-reviewer"])
        .assert_code(0);
    let _ = site.run(["reset", "code-reviewer"]).assert_code(0);
    let _ = site
        .run(["seal"])
        .assert_code(0)
        .assert_stdout_has("nothing to seal");
}

#[test]
fn only_files_below_baseline_dir_are_sealed() {
    let site = Site::new();
    for name in [
        "../memory-shepherd.conf",
        ".checksums",
        "baselines/none.md",
        "",
    ] {
        let _ = site.run(["seal", name]).assert_code(2);
    }
    // A path as a shell completes it.
    let _ = site
        .run(["seal", "baselines/code-reviewer-MEMORY.md"])
        .assert_code(0);
    assert_eq!(site.read("baselines/.checksums").lines().count(), 1);
}

#[test]
fn unreadable_file_blocks_only_its_own_seal() {
    let world = sealed_world();
    let ranger = world.baseline_path("ranger");
    fs::remove_file(&ranger).unwrap();
    std::os::unix::fs::symlink("scout.md", &ranger).unwrap();
    world.set_baseline("scout", CHANGED);
    assert_eq!(seal(&world, &named(&["scout.md"])), ["scout.md"]);
    for scope in [named(&["ranger.md"]), SealScope::All] {
        let error = world.engine().seals().plan_seal(&scope, false).unwrap_err();
        assert!(error.to_string().contains("is a symlink"), "{error}");
    }
}
