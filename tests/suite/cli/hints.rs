//! Error messages and their hints: the path, the cause, and a remedy that works.

use std::os::unix::fs::symlink;

use super::*;
use crate::drover_entries::{EntryScope, entry_text, write_entry};

/// Every command that opens the archive names the configured path and the path to write
/// instead.
#[test]
fn link_above_archive_names_real_path() {
    let site = site_with_notes_and_drift();
    fs::create_dir_all(site.path("dotfiles/shepherd")).unwrap();
    symlink("../dotfiles", site.path("home/.config")).unwrap();
    let config = site.read("memory-shepherd.conf");
    for (directory, real) in [
        // The archive's parent directory exists,
        ("home/.config", "dotfiles/archives"),
        ("home/.config/shepherd", "dotfiles/shepherd/archives"),
        // and does not exist.
        ("home/.config/a/b", "dotfiles/a/b/archives"),
    ] {
        let path = format!("{}/{directory}/archives", site.dir.display());
        let real = format!("{}/{real}", site.dir.display());
        site.write(
            "memory-shepherd.conf",
            config.replace("archive_dir=./archives", &format!("archive_dir={path}")),
        );
        let ran = site.run(["reset", "--all"]).assert_code(3);
        assert!(!ran.stdout.contains("sweeping"), "{}", ran.stdout);
        assert!(!ran.stderr.contains("levels"), "{}", ran.stderr);
        let _ = ran
            .assert_stderr_has(&format!("{path} goes through a symlink"))
            .assert_stderr_has(&format!(
                "hint: write the real path in the configuration: {real}\n"
            ));
        let _ = site
            .run(["archive", "list", "code-reviewer"])
            .assert_code(3)
            .assert_stderr_has(&format!("{real}/code-reviewer\n"));
        let _ = site
            .run(["doctor"])
            .assert_code(1)
            .assert_stdout_has("is reached through a symlink")
            .assert_stdout_has(&format!("the config: {real}\n"));
        // The hinted command works.
        site.write(
            "memory-shepherd.conf",
            config.replace("archive_dir=./archives", &format!("archive_dir={real}")),
        );
        let _ = site.run(["reset", "--all"]).assert_code(0);
        fs::remove_dir_all(&real).unwrap();
        site.append(REVIEWER_MEMORY, "- a note\n");
    }
}

#[test]
fn config_through_link_names_real_archive() {
    let site = site_with_notes_and_drift();
    let elsewhere = Site::new();
    symlink(&site.dir, elsewhere.path("link")).unwrap();
    let _ = elsewhere
        .run(["--config", "link/memory-shepherd.conf", "reset", "--all"])
        .assert_stderr_has("link/archives goes through a symlink")
        .assert_stderr_has(&format!("configuration: {}/archives\n", site.dir.display()));
}

#[test]
fn missing_config_explains_how_to_get_one() {
    let site = Site::new();
    fs::remove_file(site.path("memory-shepherd.conf")).unwrap();
    let ran = site.run(["reset", "--all"]).assert_code(2);
    let user = "home/.config/memory-shepherd/memory-shepherd.conf";
    let _ = ran
        .assert_stderr_has(&format!("init` writes {};", site.path(user).display()))
        .assert_stderr_has("memory-shepherd demo");
    // The hinted command works.
    let _ = site.run(["init"]).assert_code(0);
    assert!(site.path(user).is_file());
    // The template has to be filled in first.
    let check = site.run(["config", "check"]).assert_code(2);
    let _ = check.assert_stdout_has("is still the template");
    site.write(
        "home/.config/memory-shepherd/baselines/my-agent-MEMORY.md",
        Site::read_baseline("monitor-bot"),
    );
    let _ = site
        .run(["config", "check"])
        .assert_code(0)
        .assert_stdout_has("1 agent");
}

#[test]
fn fleet_without_baselines_is_not_asked_for_any() {
    let site = Site::new();
    fs::remove_file(site.path("memory-shepherd.conf")).unwrap();
    let id = "01HF7YAT00AAAAAAAAAAAAAAAA";
    let lines = EntryScope::Global.mapping_lines("user", "likes tea");
    write_entry(&site.path("store"), "global", id, entry_text(id, &lines));
    let ran = site.run(["init", "store"]).assert_code(0);
    let _ = ran.assert_stderr_has("`memory-shepherd memory store health`");
    // The hinted command works.
    let _ = site.run(["memory", "store", "health"]).assert_code(0);
    let doctor = site.run(["doctor"]);
    assert!(!doctor.stdout.contains("FAIL"), "{}", doctor.stdout);
    let _ = doctor
        .assert_stdout_has("does not exist; no agent needs it")
        .assert_stdout_has("no baseline that a seal could protect");
}

/// Every command that a message names exists.
#[test]
fn commands_named_in_messages_exist() {
    fn collect_sources(directory: &std::path::Path, all: &mut String) {
        for item in fs::read_dir(directory).unwrap() {
            let path = item.unwrap().path();
            match path.is_dir() {
                true => collect_sources(&path, all),
                false => all.push_str(&fs::read_to_string(path).unwrap()),
            }
        }
    }
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = String::new();
    collect_sources(&root.join("src"), &mut all);
    let help = Site::new().run(["--help"]).assert_code(0).stdout;
    let is_verb = |word: &str| help.contains(&format!("\n  {word} "));
    assert!(is_verb("reset") && !is_verb("initialise"));
    let mut named = 0;
    for rest in all.split("`memory-shepherd ").skip(1) {
        let end = rest.find(|c: char| !c.is_ascii_lowercase());
        let word = &rest[..end.unwrap_or(rest.len())];
        // The word is neither an option nor a placeholder.
        if !word.is_empty() {
            assert!(word == "all" || is_verb(word), "memory-shepherd {word}");
            named += 1;
        }
    }
    assert!(named > 5, "no sources found");
}

#[test]
fn reset_with_no_agents_fails() {
    let site = Site::new();
    let config = site.read("memory-shepherd.conf");
    let general = &config[..config.find("[code-reviewer]").unwrap()];
    site.write("memory-shepherd.conf", general);
    let check = site.run(["config", "check"]).assert_code(0);
    let _ = check
        .assert_stdout_has("the config has no agents")
        .assert_stdout_has("1 warning");
    for arguments in [
        &["reset", "--all"][..],
        &["all"],
        &["reset", "--all", "--dry-run"],
        &["reset", "--all", "--json"],
    ] {
        let ran = site
            .run_command(site.command().args(arguments))
            .assert_code(2);
        let _ = ran.assert_stderr_has("memory-shepherd.conf has no agents; nothing to reset");
    }
    assert!(!site.path("archives").exists());
    let _ = site
        .run(["status"])
        .assert_code(0)
        .assert_stdout_has("no agents");
    let _ = site
        .run(["doctor"])
        .assert_code(0)
        .assert_stdout_has("the config has no agents");
}

#[test]
fn missing_subcommand_lists_subcommands() {
    let site = Site::new();
    let verbs_of_archive = "list, show, search, export, reindex, pin, unpin, prune";
    for (command, verbs) in [("archive", verbs_of_archive), ("config", "check, show")] {
        for arguments in [["--json", command], [command, "--json"]] {
            let error = site.run(arguments).assert_code(2).json()["error"].take();
            let message = format!("`memory-shepherd {command}` requires a subcommand: {verbs}");
            assert_eq!(error["message"], message);
            assert_eq!(error["kind"], "user");
        }
        // Without `--json` the program prints the help.
        let _ = site
            .run([command])
            .assert_code(2)
            .assert_stderr_has("Usage: memory-shepherd")
            .assert_stderr_has("Exit codes:");
    }
}

#[test]
fn mistyped_command_suggests_the_closest_one() {
    let site = Site::new();
    for (typed, meant) in [
        ("alert test", "alerts test"),
        ("alert tset failed-reset", "alerts test"),
        ("alert", "alerts"),
        ("alerts tst", "alerts test"),
        ("schedul run", "schedule run"),
        ("schedule rnu", "schedule run"),
        ("archives list --limit 3", "archive list"),
        ("archive serch word", "archive search"),
        ("baselines lint", "baseline list"),
        ("configs check", "config check"),
        ("--color never config chekc", "config check"),
        ("rest code-reviewer", "reset"),
        ("lit", "lint"),
    ] {
        for is_json in [false, true] {
            let mut command = site.command();
            command.args(typed.split(' '));
            if is_json {
                command.arg("--json");
            }
            let ran = site.run_command(&mut command).assert_code(2);
            let mut suggestions: Vec<String> = if is_json {
                let hints = ran.json()["error"]["hints"].take();
                let hints = hints.as_array().unwrap().iter();
                hints
                    .map(|hint| hint.as_str().unwrap().to_string())
                    .collect()
            } else {
                ran.stderr.lines().map(str::to_string).collect()
            };
            suggestions.retain(|line| {
                line.contains("similar subcommand exists") || line.contains("did you mean")
            });
            let [suggestion] = &suggestions[..] else {
                panic!("{typed}: {}{}", ran.stdout, ran.stderr);
            };
            let is_meant = suggestion.ends_with(&format!("'{meant}'"))
                || suggestion.ends_with(&format!("the command {meant}?"));
            assert!(is_meant, "{typed}: {suggestion}");
        }
    }
    // Words that resemble no command suggest none.
    for typed in ["bob", "bob status", "carol"] {
        let ran = site.run_command(site.command().args(typed.split(' ')));
        let ran = ran.assert_code(2);
        assert!(!ran.stderr.contains("did you mean"), "{}", ran.stderr);
    }
}

#[test]
fn redo_reverts_undo_of_one_agent() {
    let site = site_with_notes_and_drift();
    let before = (site.read(REVIEWER_MEMORY), site.read(MONITOR_MEMORY));
    let _ = site.run(["reset", "--all"]);
    let clean = (site.read(REVIEWER_MEMORY), site.read(MONITOR_MEMORY));
    let _ = site
        .run(["undo", "code-reviewer", "monitor-bot"])
        .assert_code(0);
    assert_eq!(
        (site.read(REVIEWER_MEMORY), site.read(MONITOR_MEMORY)),
        before
    );
    let _ = site
        .run(["undo", "--redo", "code-reviewer", "--plan", "00000000"])
        .assert_code(6)
        .assert_stderr_has("is out of date");
    let _ = site.run(["undo", "--redo", "code-reviewer"]).assert_code(0);
    assert_eq!(
        (site.read(REVIEWER_MEMORY), site.read(MONITOR_MEMORY)),
        (clean.0, before.1)
    );
}

#[test]
fn undo_without_its_entry_names_the_remedy() {
    let site = site_with_notes_and_drift();
    let before = site.read(REVIEWER_MEMORY);
    let _ = site.run(["reset", "code-reviewer"]).assert_code(0);
    let entry = &site.entry_names("code-reviewer")[0];
    let entry = site.path("archives/code-reviewer").join(entry);
    let directory = entry.parent().unwrap();
    let backup = fs::read(&entry).unwrap();
    let refused = || {
        for arguments in [
            &["undo", "code-reviewer"][..],
            &["undo", "code-reviewer", "--dry-run"],
        ] {
            let ran = site
                .run_command(site.command().args(arguments))
                .assert_code(3);
            let said = ran.stdout + &ran.stderr;
            let why = format!("{}: no such file", entry.display());
            assert!(said.contains(&why), "{said}");
            assert!(said.contains("restore the entry from a backup"), "{said}");
        }
    };
    fs::remove_file(&entry).unwrap();
    refused();
    fs::remove_dir(directory).unwrap();
    refused();
    // The hinted command works.
    fs::create_dir(directory).unwrap();
    fs::write(&entry, backup).unwrap();
    let _ = site.run(["undo", "code-reviewer"]).assert_code(0);
    assert_eq!(site.read(REVIEWER_MEMORY), before);
}

#[test]
fn run_level_trouble_is_in_json_and_ledger() {
    let site = site_with_notes_and_drift();
    site.write("archives/.shepherd/tx/ghost.x.json", "{}");
    let ran = site.run(["reset", "--all", "--json"]).assert_code(1);
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let [trouble] = report["trouble"].as_array().unwrap().as_slice() else {
        panic!("{report}");
    };
    assert_eq!(trouble["kind"], "partial");
    let message = trouble["message"].as_str().unwrap();
    assert!(message.contains("tx/ghost.x.json"), "{message}");
    assert!(
        trouble["hints"][0]
            .as_str()
            .unwrap()
            .contains("under its old name")
    );
    let log = site.run(["log", "--json"]).assert_code(0);
    let log: serde_json::Value = serde_json::from_str(&log.stdout).unwrap();
    let last = log["records"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["run"], &last["outcome"]),
        (&report["run"], &"failed".into())
    );
    assert_eq!(
        (&last["agent"], &last["note"]),
        (&"".into(), &message.into())
    );
}
