//! The list of baselines, their versions, and restores.

use std::fs;
use std::os::unix::fs::symlink;

use memory_shepherd::base::digest::Digest;
use memory_shepherd::base::error::ErrorKind;
use memory_shepherd::engine::{BaselineState, Operation, SealScope, SizeBand, State};

use crate::engine::make_fifo;
use crate::fixture::Site;
use crate::world::{BASELINE, World, restore_baseline};

const CHANGED: &str = "# Rules\n\n- be thorough\n\n---\n";

fn seal_all(world: &World) {
    let engine = world.engine();
    let mut plan = engine.seals().plan_seal(&SealScope::All, false).unwrap();
    // Some of the baselines are too small.
    plan.accept_lint_errors();
    engine.seals().apply_seal(&plan, None).unwrap();
}

fn states(world: &World) -> Vec<(String, BaselineState)> {
    let list = world.engine().baseline_catalog().list_baselines();
    let baselines = list.baselines.into_iter();
    baselines.map(|it| (it.name, it.state)).collect()
}

fn state(world: &World) -> BaselineState {
    states(world)[0].1
}

#[test]
fn unsealed_save_is_an_integrity_error_everywhere() {
    let world = World::new(&["scout"]);
    seal_all(&world);
    let before = Some(Digest::of(BASELINE.as_bytes()));
    let engine = world.engine();
    engine
        .baseline_files()
        .save_baseline("scout.md", CHANGED.as_bytes(), before)
        .unwrap();
    assert_eq!(state(&world), BaselineState::Saved);
    let kind = Some(ErrorKind::Integrity);
    assert_eq!(
        engine.baseline_catalog().list_baselines().worst_kind(),
        kind
    );
    let seen = world.observe("scout");
    assert_eq!(seen.state, State::Tampered);
    assert_eq!(seen.blocker.map(|it| it.kind), kind);
    assert_eq!(world.reset().report.worst_kind(), kind);
}

#[test]
fn every_state_of_a_baseline_is_listed() {
    let world = World::new(&["scout"]);
    assert_eq!(state(&world), BaselineState::Unsealed);
    seal_all(&world);
    assert_eq!(state(&world), BaselineState::Ok);
    world.set_baseline("scout", CHANGED);
    assert_eq!(state(&world), BaselineState::Changed);
    world.set_baseline("scout", BASELINE);
    let before = Some(Digest::of(BASELINE.as_bytes()));
    let engine = world.engine();
    engine
        .baseline_files()
        .save_baseline("scout.md", CHANGED.as_bytes(), before)
        .unwrap();
    assert_eq!(state(&world), BaselineState::Saved);
    fs::remove_file(world.baseline_path("scout")).unwrap();
    assert_eq!(state(&world), BaselineState::Missing);
    world.set_baseline("scout", "small");
    seal_all(&world);
    assert_eq!(state(&world), BaselineState::TooSmall);
    world.set_baseline("scout", BASELINE);
    seal_all(&world);
    world.reset().assert_ok();
    let list = world.engine().baseline_catalog().list_baselines();
    let push = list.baselines[0].last_push.as_ref().unwrap();
    assert_eq!(push.sha256, Digest::of(BASELINE.as_bytes()));
    world.set_baseline("scout", CHANGED);
    seal_all(&world);
    let list = world.engine().baseline_catalog().list_baselines();
    let scout = &list.baselines[0];
    assert_eq!(
        (scout.state, &scout.behind[..]),
        (BaselineState::Behind, &["scout".to_string()][..])
    );
    let world = world.with_general("seal_signers = signers");
    fs::write(world.root.join("signers"), "").unwrap();
    assert_eq!(
        state(&world),
        BaselineState::Behind.min(BaselineState::Unsigned)
    );
}

#[test]
fn findings_follow_text_seal_and_decisions() {
    let world = World::new(&["scout"]).with_general("[lint]\nallow = allow.toml");
    world.set_baseline("scout", format!("{BASELINE}\n## Late\n\n- One.\n"));
    let path = world.root.join("allow.toml");
    fs::write(&path, "").unwrap();
    let engine = world.engine();
    let errors = || {
        let list = engine.baseline_catalog().list_baselines();
        list.baselines[0].findings.unwrap().errors
    };
    assert_eq!([errors(), errors()], [1, 1], "the second one is known");
    let allowance = "[[allow]]\nrule = 'MS403'\ntext = '## Late'\nreason = 'test'\n";
    fs::write(&path, allowance).unwrap();
    assert_eq!(errors(), 0, "another decision counts at once");
    fs::write(&path, "").unwrap();
    assert_eq!(errors(), 1);
    world.set_baseline("scout", BASELINE);
    assert_eq!(errors(), 0, "another text counts at once");
}

#[test]
fn size_bands_have_their_limits() {
    for (bytes, band) in [
        (5_119, SizeBand::Thin),
        (5_120, SizeBand::Short),
        (12_288, SizeBand::Good),
        (20_480, SizeBand::Good),
        (25_600, SizeBand::Long),
        (25_601, SizeBand::Bloated),
    ] {
        assert_eq!(SizeBand::of(bytes), band, "{bytes}");
    }
}

#[test]
fn history_has_sealed_pushed_and_saved_versions() {
    let mut world = World::new(&["scout"]);
    world.add_agent("ranger", "baseline = scout.md");
    seal_all(&world);
    world.reset().assert_ok();
    let engine = world.engine();
    let (old, new) = (
        Digest::of(BASELINE.as_bytes()),
        Digest::of(CHANGED.as_bytes()),
    );
    engine
        .baseline_files()
        .save_baseline("scout.md", CHANGED.as_bytes(), Some(old))
        .unwrap();
    let history = engine
        .baseline_catalog()
        .baseline_history("scout.md", 10)
        .unwrap()
        .versions;
    let acts: Vec<_> = history
        .iter()
        .map(|it| (it.operation, it.sha256, it.replaced))
        .collect();
    assert_eq!(
        acts,
        [
            (Operation::Save, Some(new), Some(old)),
            (Operation::Reset, Some(old), None),
            (Operation::Seal, Some(old), None),
        ]
    );
    let mut agents = history[1].agents.clone();
    agents.sort();
    assert_eq!(agents, ["ranger", "scout"]);
    assert!(history.iter().all(|it| it.stored));
}

#[test]
fn restore_keeps_replaced_bytes_as_a_version() {
    let world = World::new(&["scout"]);
    seal_all(&world);
    world.set_baseline("scout", CHANGED);
    let engine = world.engine();
    let saved = restore_baseline(&engine, "scout.md", "sealed")
        .unwrap()
        .unwrap();
    let damaged = Digest::of(CHANGED.as_bytes());
    assert_eq!(saved.before, Some(damaged));
    assert_eq!(
        fs::read(world.baseline_path("scout")).unwrap(),
        BASELINE.as_bytes()
    );
    assert_eq!(
        restore_baseline(&engine, "scout.md", "sealed").unwrap(),
        None
    );
    // What was replaced has a name in the history.
    let digits = damaged.short_hex(12);
    let (_, bytes) = engine
        .baseline_catalog()
        .find_baseline_version("scout.md", &digits)
        .unwrap();
    assert_eq!(bytes.as_slice(), CHANGED.as_bytes());
    restore_baseline(&engine, "scout.md", &digits)
        .unwrap()
        .unwrap();
    assert_eq!(
        fs::read(world.baseline_path("scout")).unwrap(),
        CHANGED.as_bytes()
    );
}

#[test]
fn unknown_version_is_a_user_error() {
    let world = World::new(&["scout"]);
    seal_all(&world);
    let engine = world.engine();
    for version in ["pushed", "0123456789", "12", "newest"] {
        let error = engine
            .baseline_catalog()
            .find_baseline_version("scout.md", version)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::User, "{version}");
    }
}

#[test]
fn object_that_is_no_baseline_file_is_named() {
    let site = Site::new();
    let path = site.path("baselines/code-reviewer-MEMORY.md");
    fs::remove_file(&path).unwrap();
    let _ = site
        .run(["baseline", "list"])
        .assert_code(6)
        .assert_stdout_has("missing");
    let check = |object: &str| {
        let list = site.run(["baseline", "list"]).assert_code(6);
        let list = list
            .assert_stdout_has("unreadable")
            .assert_stderr_has(&format!("code-reviewer-MEMORY.md is {object}"));
        assert!(!list.stdout.contains("missing"), "{object}");
    };
    fs::create_dir(&path).unwrap();
    check("a directory");
    fs::remove_dir(&path).unwrap();
    symlink("/dev/null", &path).unwrap();
    check("a symlink");
    fs::remove_file(&path).unwrap();
    make_fifo(&path);
    check("a FIFO");
}

#[test]
fn commands_list_show_and_restore_baselines() {
    let site = Site::new();
    let _ = site.run(["seal", "--all"]).assert_code(0);
    let name = "code-reviewer-MEMORY.md";
    let shown = site
        .run(["baseline", "show", "code-reviewer"])
        .assert_code(0);
    assert_eq!(shown.stdout, Site::read_baseline("code-reviewer"));
    site.append(&format!("baselines/{name}"), "\u{1b}[31m\n");
    let list = site
        .run(["baseline", "list", "--json"])
        .assert_code(4)
        .json();
    assert_eq!(list["baselines"][0]["state"], "changed");
    assert_eq!(list["baselines"][1]["state"], "ok");
    let ran = site.run(["baseline", "list"]).assert_code(4);
    let _ = ran.assert_stderr_has(&format!("baseline restore {name}"));
    let _ = site.run(["baseline", "restore", name]).assert_code(0);
    let history = site
        .run(["baseline", "history", name, "--json"])
        .assert_code(0)
        .json();
    let acts: Vec<_> = history["versions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["act"])
        .collect();
    assert_eq!(acts, ["seal", "restore"]);
    let damaged = history["versions"][1]["before"].as_str().unwrap();
    let shown = site.run(["baseline", "show", name, "--version", damaged, "--json"]);
    assert_eq!(shown.json()["sha256"], damaged);
    let _ = site.run(["baseline", "show", "none.md"]).assert_code(6);
}
