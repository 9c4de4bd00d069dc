//! Plans over baselines in the engine: restore, new, replace; bound to the bytes they saw.

use std::fs;

use memory_shepherd::base::digest::Digest;
use memory_shepherd::base::error::ErrorKind;
use memory_shepherd::engine::{BaselineFile, SealScope, TextReplacement};

use crate::world::{BASELINE, World, restore_baseline};

fn replacement(pattern: &str, replacement: &str, is_regex: bool) -> TextReplacement {
    TextReplacement {
        pattern: pattern.to_string(),
        replacement: replacement.to_string(),
        is_regex,
    }
}

fn seal_all(world: &World) {
    let engine = world.engine();
    let plan = engine.seals().plan_seal(&SealScope::All, false).unwrap();
    engine.seals().apply_seal(&plan, None).unwrap();
}

#[test]
fn text_is_replaced_in_several_baselines() {
    let world = World::new(&["scout", "ranger"]);
    world.set_baseline("ranger", "# Other\n\n---\n");
    let engine = world.engine();
    let names = ["scout.md".to_string(), "ranger.md".to_string()];
    let plan = engine
        .baseline_edits()
        .plan_replacement(&names, &replacement("be kind", "be $1 kind", false))
        .unwrap();
    assert_eq!(plan.unchanged, ["ranger.md"]);
    assert_eq!(plan.files.len(), 1);
    let file = &plan.files[0];
    assert_eq!(
        (file.replaced, &file.agents[..]),
        (1, &["scout".to_string()][..])
    );
    engine
        .baseline_edits()
        .apply_planned_baseline(&plan, file)
        .unwrap();
    let text = fs::read_to_string(world.baseline_path("scout")).unwrap();
    assert_eq!(text, BASELINE.replace("be kind", "be $1 kind"));
    // The version from before is the one to go back to.
    let restored = restore_baseline(&engine, "scout.md", "previous").unwrap();
    assert!(restored.is_some());
    let text = fs::read_to_string(world.baseline_path("scout")).unwrap();
    assert_eq!(text, BASELINE);
}

#[test]
fn regex_matches_by_line_and_expands_groups() {
    let world = World::new(&["scout"]);
    world.set_baseline("scout", "- one\n- two\n\u{fffd}\n---\n");
    let plan = world
        .engine()
        .baseline_edits()
        .plan_replacement(
            &["scout.md".to_string()],
            &replacement("^- (.*)$", "* $1!", true),
        )
        .unwrap();
    assert_eq!(
        *plan.files[0].after,
        "* one!\n* two!\n\u{fffd}\n---\n".as_bytes()
    );
    assert_eq!(plan.files[0].replaced, 2);
}

#[test]
fn replacement_beyond_16_mib_is_refused() {
    let world = World::new(&["scout"]);
    world.set_baseline("scout", "a".repeat(1 << 20));
    let plan = |text: &str, is_regex| {
        let names = ["scout.md".to_string()];
        let engine = world.engine();
        engine
            .baseline_edits()
            .plan_replacement(&names, &replacement("a", text, is_regex))
    };
    // The text after all replacements would not fit into memory.
    let huge = "b".repeat(1 << 20);
    for (text, is_regex) in [(huge.as_str(), false), (&huge, true)] {
        let error = plan(text, is_regex).unwrap_err();
        assert_eq!(error.message(), "scout.md would have more than 16 MiB");
    }
    assert_eq!(plan("bb", false).unwrap().files[0].after.len(), 2 << 20);
}

#[test]
fn unusable_patterns_are_refused() {
    let world = World::new(&["scout"]);
    for (pattern, is_regex) in [
        ("(", true),
        ("", false),
        ("x*", true),
        ("a{9999}{9999}", true),
    ] {
        let error = world
            .engine()
            .baseline_edits()
            .plan_replacement(
                &["scout.md".to_string()],
                &replacement(pattern, "", is_regex),
            )
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::User, "{pattern}: {error}");
        assert!(!error.message().contains('\n'), "{error}");
    }
}

#[test]
fn changed_file_is_not_overwritten_by_a_plan() {
    let world = World::new(&["scout"]);
    seal_all(&world);
    world.set_baseline("scout", "# Changed\n\n---\n");
    let engine = world.engine();
    let names = ["scout.md".to_string()];
    let plans = [
        engine
            .baseline_edits()
            .plan_restore(&["scout.md".to_string()], "sealed")
            .unwrap(),
        engine
            .baseline_edits()
            .plan_replacement(&names, &replacement("Changed", "Replaced", false))
            .unwrap(),
    ];
    world.set_baseline("scout", "# Changed again\n\n---\n");
    for plan in &plans {
        let error = engine
            .baseline_edits()
            .apply_planned_baseline(plan, &plan.files[0])
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    }
    let text = fs::read_to_string(world.baseline_path("scout")).unwrap();
    assert_eq!(text, "# Changed again\n\n---\n");
}

#[test]
fn new_baseline_has_a_name_that_commands_take() {
    let world = World::new(&["scout"]);
    let engine = world.engine();
    for name in [
        "-x.md",
        "x\ny.md",
        "x\u{1b}[31m.md",
        "x\u{202e}.md",
        "scout",
        "../x.md",
    ] {
        let error = engine
            .baseline_edits()
            .plan_new_baseline(name, "template")
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::User, "{name:?}");
    }
    for name in ["scout two.md", "späher.md", "x-.md"] {
        engine
            .baseline_edits()
            .plan_new_baseline(name, "template")
            .unwrap();
    }
}

#[test]
fn baseline_named_twice_is_planned_once() {
    let world = World::new(&["scout"]);
    let name = "scout.md".to_string();
    let replacement = replacement("be kind", "be good", false);
    let plan = world
        .engine()
        .baseline_edits()
        .plan_replacement(&[name.clone(), name], &replacement)
        .unwrap();
    assert_eq!(plan.files.len(), 1);
}

#[test]
fn reference_to_unknown_group_is_refused() {
    let world = World::new(&["scout"]);
    let plan = |text: &str| {
        let replacement = replacement("be (?<how>kind)", text, true);
        world
            .engine()
            .baseline_edits()
            .plan_replacement(&["scout.md".to_string()], &replacement)
    };
    for known in ["${1}ly", "$how!", "[$0]", "$$1x", "5 $"] {
        assert_eq!(plan(known).unwrap().files.len(), 1, "{known}");
    }
    for unknown in ["$1ly", "$2", "${why}", "$$$1ly"] {
        let error = plan(unknown).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::User, "{unknown}");
        assert!(error.message().contains("is not a group"), "{error}");
    }
}

#[test]
fn missing_or_replaced_file_is_restored() {
    let world = World::new(&["scout"]);
    seal_all(&world);
    let path = world.baseline_path("scout");
    let restore = || {
        let engine = world.engine();
        let plan = engine
            .baseline_edits()
            .plan_restore(&["scout.md".to_string()], "sealed")
            .unwrap();
        engine
            .baseline_edits()
            .apply_planned_baseline(&plan, &plan.files[0])
            .unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), BASELINE);
        plan
    };
    fs::remove_file(&path).unwrap();
    assert_eq!(restore().files[0].before, BaselineFile::Absent);
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
    assert!(matches!(
        restore().files[0].before,
        BaselineFile::Unreadable(_)
    ));
    let plan = world
        .engine()
        .baseline_edits()
        .plan_restore(&["scout.md".to_string()], "sealed")
        .unwrap();
    assert_eq!((plan.files.len(), plan.unchanged.len()), (0, 1));
}

#[test]
fn restore_says_what_it_removes_and_whether_resets_refuse_it() {
    let world = World::new(&["scout"]);
    let names = ["scout.md".to_string()];
    let flags = |version: &str| {
        let plan = world
            .engine()
            .baseline_edits()
            .plan_restore(&names, version)
            .unwrap();
        let file = &plan.files[0];
        (file.replaces_foreign, file.is_refused)
    };
    let digest = |text: &str| Digest::of(text.as_bytes());
    let first = digest(BASELINE).short_hex(16);
    let second = BASELINE.replace("kind", "kinder");
    let saved = |old: &str, new: &str| {
        let engine = world.engine();
        let saved =
            engine
                .baseline_files()
                .save_baseline("scout.md", new.as_bytes(), Some(digest(old)));
        saved.unwrap();
    };
    saved(BASELINE, &second);
    // Without a seal, nothing is refused.
    assert_eq!(flags(&first), (false, false));
    seal_all(&world);
    assert_eq!(flags(&first), (false, true));
    fs::write(world.baseline_path("scout"), format!("{second}- theirs\n")).unwrap();
    assert_eq!(flags(&first), (true, true));
    assert_eq!(flags("sealed"), (false, false));
}

#[test]
fn new_baseline_begins_with_template_or_another_one() {
    let world = World::new(&["scout"]);
    let engine = world.engine();
    for (name, source) in [("fresh.md", "template"), ("copy.md", "scout.md")] {
        let plan = engine
            .baseline_edits()
            .plan_new_baseline(name, source)
            .unwrap();
        let saved = engine
            .baseline_edits()
            .apply_planned_baseline(&plan, &plan.files[0])
            .unwrap();
        assert_eq!(saved.before, None);
        let listed = engine.baseline_catalog().list_baselines().baselines;
        assert!(listed.iter().any(|it| it.name == name), "{listed:?}");
    }
    let copy = fs::read_to_string(world.baseline_path("copy")).unwrap();
    assert_eq!(copy, BASELINE);
    let fresh = fs::read_to_string(world.baseline_path("fresh")).unwrap();
    assert!(fresh.contains("this is a template"));
    for (name, kind) in [
        ("scout.md", ErrorKind::Conflict),
        ("../out.md", ErrorKind::User),
        (".checksums", ErrorKind::User),
        ("", ErrorKind::User),
    ] {
        let error = engine
            .baseline_edits()
            .plan_new_baseline(name, "template")
            .unwrap_err();
        assert_eq!(error.kind(), kind, "{name}: {error}");
    }
    let plan = engine
        .baseline_edits()
        .plan_new_baseline("late.md", "template")
        .unwrap();
    fs::write(world.baseline_path("late"), "mine").unwrap();
    let error = engine
        .baseline_edits()
        .apply_planned_baseline(&plan, &plan.files[0])
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
}

#[test]
fn every_word_names_its_version() {
    let world = World::new(&["scout"]);
    seal_all(&world);
    world.reset().assert_ok();
    world.set_baseline("scout", "# Changed\n\n---\n");
    let engine = world.engine();
    let text = |word: &str| {
        let (_, bytes) = engine
            .baseline_catalog()
            .find_baseline_version("scout.md", word)
            .unwrap();
        String::from_utf8(bytes.to_vec()).unwrap()
    };
    assert_eq!(text("disk"), "# Changed\n\n---\n");
    for word in ["sealed", "pushed", "previous", "file:copy.md"] {
        fs::write(world.baseline_path("copy"), BASELINE).unwrap();
        assert_eq!(text(word), BASELINE, "{word}");
    }
    assert!(text("template").contains("this is a template"));
    for word in ["newest", "file:../scout.md", "file:"] {
        let error = engine
            .baseline_catalog()
            .find_baseline_version("scout.md", word)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::User, "{word}");
    }
}

#[test]
fn cancelled_verification_is_an_error() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let world = World::new(&["scout"]);
    world.reset().assert_ok();
    let cancel = AtomicBool::new(false);
    let mut steps = 0;
    let error = world
        .engine()
        .verifier()
        .verify(None, &cancel, &mut |_| {
            steps += 1;
            cancel.store(true, Ordering::Relaxed);
        })
        .unwrap_err();
    assert_eq!((error.kind(), steps), (ErrorKind::Interrupted, 1));
}
