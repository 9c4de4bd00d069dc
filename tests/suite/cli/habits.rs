//! What operators do out of habit: undo the last thing, seal a first fleet, name a linked directory, write
//! `~/` in a command.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;
use crate::fixture::CommandOutput;
use crate::skip::skip_unsupported;

/// Returns the words of the command that a hint offers behind `label`.
#[track_caller]
fn offered_words(ran: &CommandOutput, label: &str) -> Vec<String> {
    let offer = format!("{label}: memory-shepherd ");
    let (_, command) = ran.stderr.split_once(&offer).unwrap();
    let command = command.lines().next().unwrap();
    shell_words::split(command).unwrap()
}

/// Runs the command that a hint offers behind `label`.
#[track_caller]
fn run_offered(site: &Site, ran: &CommandOutput, label: &str) -> CommandOutput {
    site.run_command(site.command().args(offered_words(ran, label)))
}

#[test]
fn bare_undo_names_the_last_run_and_its_command() {
    let site = site_with_notes_and_drift();
    let ran = site.run(["undo"]).assert_code(2);
    let _ = ran.assert_stderr_has("is left to undo");
    let before = [REVIEWER_MEMORY, MONITOR_MEMORY].map(|memory| site.read(memory));
    let _ = site.run(["reset", "--all"]).assert_code(0);
    let after = site.read(MONITOR_MEMORY);
    let ran = site.run(["undo"]).assert_code(2);
    assert_eq!(site.read(MONITOR_MEMORY), after);
    assert!(
        ran.stderr
            .contains("a reset of code-reviewer, monitor-bot on "),
        "{}",
        ran.stderr
    );
    let _ = run_offered(&site, &ran, "to undo it").assert_code(0);
    assert_eq!(
        [REVIEWER_MEMORY, MONITOR_MEMORY].map(|memory| site.read(memory)),
        before
    );
}

#[test]
fn undo_last_goes_back_run_by_run() {
    let site = site_with_notes_and_drift();
    let first = site.read(MONITOR_MEMORY);
    let _ = site.run(["reset", "monitor-bot"]).assert_code(0);
    let _ = site.run(["reset", "code-reviewer"]).assert_code(0);
    let reviewer = site.read(REVIEWER_MEMORY);
    let plan = site.run(["undo", "--last", "--dry-run"]).assert_code(0);
    let plan = plan.assert_stdout_has("1 agent would be restored");
    assert!(plan.stdout.contains("code-reviewer") && !plan.stdout.contains("monitor-bot"));
    assert_eq!(site.read(REVIEWER_MEMORY), reviewer);
    let _ = site.run(["undo", "--last"]).assert_code(0);
    assert_ne!(site.read(REVIEWER_MEMORY), reviewer);
    // An undone run does not count, and neither does the undo.
    let _ = site.run(["undo", "--last"]).assert_code(0);
    assert_eq!(site.read(MONITOR_MEMORY), first);
    let _ = site.run(["undo", "--last"]).assert_code(6);
    // The undo of an undo brings its run back.
    let _ = site.run(["undo", "--redo", "monitor-bot"]).assert_code(0);
    let _ = site.run(["undo", "--last"]).assert_code(0);
    assert_eq!(site.read(MONITOR_MEMORY), first);
}

#[test]
fn undo_last_is_about_runs_of_this_user() {
    let site = site_with_notes_and_drift();
    let _ = site.run(["reset", "monitor-bot"]).assert_code(0);
    let engine = site_engine(&site);
    assert_ne!(engine.context().user(), "");
    let seen = engine.history().last_run_of_user().unwrap();
    // The engine of the tests has a user of its own.
    assert_eq!(seen, None);
}

#[test]
fn undo_last_excludes_agents_and_runs() {
    let site = Site::new();
    for arguments in [
        &["undo", "--last", "monitor-bot"][..],
        &["undo", "--last", "--run", "361320c4"],
        &["undo", "--last", "--redo"],
        &["undo", "--redo"],
    ] {
        let _ = site
            .run_command(site.command().args(arguments))
            .assert_code(2);
    }
}

/// A fleet of eight agents whose baselines nobody has sealed.
fn unsealed_fleet() -> Site {
    let site = Site::new();
    let mut config = site.read("memory-shepherd.conf");
    for number in 1..=6 {
        let baseline = Site::read_baseline("monitor-bot");
        site.write(&format!("baselines/b{number}.md"), &baseline);
        site.write(&format!("agents/b{number}/MEMORY.md"), &baseline);
        config.push_str(&format!(
            "\n[b{number}]\nmemory_file=./agents/b{number}/MEMORY.md\nbaseline=b{number}.md\n"
        ));
    }
    site.write("memory-shepherd.conf", config);
    site
}

/// Stands before the command that accepts the changes which were shown.
const ACCEPT_LABEL: &str = "to accept them";

#[test]
fn first_seal_offers_one_command_for_all() {
    let site = unsealed_fleet();
    let ran = site.run(["seal"]).assert_code(6);
    let ran = ran.assert_stdout_has("8 new, 0 unchanged; not sealed");
    let words = offered_words(&ran, ACCEPT_LABEL);
    assert_eq!(words[..3], ["seal", "--all", "--plan"]);
    // Its own line, its difference, and no list besides.
    assert!(!ran.stderr.contains("b6.md"), "{}", ran.stderr);
    assert!(ran.stderr.contains("and 3 more"), "{}", ran.stderr);
    let sealed = run_offered(&site, &ran, ACCEPT_LABEL).assert_code(0);
    let summary = sealed.stdout.lines().rev().nth(1).unwrap();
    assert!(summary.ends_with("and 3 more"), "{summary}");
    let _ = site.run(["verify"]).assert_code(0);
}

#[test]
fn seal_command_for_all_accepts_nothing_else() {
    let site = unsealed_fleet();
    let ran = site.run(["seal"]).assert_code(6);
    site.append("baselines/b3.md", "\n");
    let _ = run_offered(&site, &ran, ACCEPT_LABEL).assert_code(6);
    // A dry run with changes of this program and others offers what holds before they are sealed.
    site.write("new.md", Site::read_baseline("monitor-bot"));
    let ran = site.run(["seal", "--dry-run"]);
    let _ = run_offered(&site, &ran, ACCEPT_LABEL).assert_code(0);
}

/// The command that forces a seal names what it forces, and seals what the refused one was to seal.
#[test]
fn forced_seal_names_its_lint_errors() {
    let faulty = "b3.md (1 error)";
    for (arguments, label, begins) in [
        (
            &["seal"][..],
            "to accept them, with the lint errors of b3.md (1 error)",
            &["seal", "--force", "--all", "--plan"][..],
        ),
        (
            &["seal", "--all"],
            "to seal all of it with these errors",
            &["seal", "--force", "--all", "--plan"],
        ),
        (
            &["seal", "b1.md", "b3.md"],
            "to seal all of it with these errors",
            &["seal", "--force", "b1.md", "b3.md", "--plan"],
        ),
    ] {
        let site = unsealed_fleet();
        site.append("baselines/b3.md", "\n## Late rules\n\n- One.\n");
        let ran = site.run_command(site.command().args(arguments));
        let ran = ran.assert_code(6).assert_stderr_has(faulty);
        assert!(!site.path("baselines/.checksums").exists());
        let words = offered_words(&ran, label);
        assert_eq!(words[..begins.len()], *begins);
        let sealed = run_offered(&site, &ran, label).assert_code(0);
        assert!(sealed.stdout.contains("sealed"), "{}", sealed.stdout);
        let seal = site.read("baselines/.checksums");
        let expected = if begins.contains(&"--all") { 8 } else { 2 };
        assert_eq!(seal.lines().count(), expected, "{seal}");
    }
}

#[test]
fn discover_writes_the_real_path_of_a_workspace() {
    let site = Site::new();
    let real = site.path("disk/workspace");
    fs::create_dir_all(&real).unwrap();
    fs::write(real.join("MEMORY.md"), "# Rules\n").unwrap();
    fs::create_dir_all(site.path("home/.openclaw")).unwrap();
    symlink(&real, site.path("home/.openclaw/workspace")).unwrap();
    // Another name of the same one.
    symlink(&real, site.path("home/clawd")).unwrap();
    let arguments = ["init", "--discover", "--config", "new/fleet.conf"];
    let _ = site.run(arguments).assert_code(0);
    let config = site.read("new/fleet.conf");
    let line = format!("memory_file={}\n", real.join("MEMORY.md").display());
    assert_eq!(config.matches("memory_file=").count(), 1, "{config}");
    assert!(config.contains(&line), "{config}");
    let baseline = Site::read_baseline("monitor-bot");
    site.write("new/baselines/workspace-MEMORY.md", baseline);
    let check = ["config", "check", "--config", "new/fleet.conf"];
    let _ = site.run(check).assert_code(0);
}

#[test]
fn memory_with_a_layout_is_discovered() {
    let site = Site::new();
    fs::create_dir_all(site.path("home")).unwrap();
    fs::create_dir_all(site.path(".memory/agents/web")).unwrap();
    // An empty directory shows nothing.
    fs::create_dir_all(site.path("memory/global")).unwrap();
    let id = "01HF7YAT00AAAAAAAAAAAAAAAA";
    let entry = format!("---\nid: {id}\nkind: user\nsummary: s\ncreatedAt: 1\n---\n\nbody\n");
    site.write(&format!(".memory/agents/web/{id}.md"), entry);
    let arguments = ["init", "--discover", "--config", "new/fleet.conf"];
    let _ = site.run(arguments).assert_code(0);
    let config = site.read("new/fleet.conf");
    let root = site.path(".memory").canonicalize().unwrap();
    let lines = format!("layout=drover\nmemory_dir={}\n", root.display());
    assert!(config.contains(&lines), "{config}");
    assert!(!config.contains("memory_file"), "{config}");
    let check = ["config", "check", "--config", "new/fleet.conf"];
    let _ = site.run(check).assert_code(0);
    let ran = site.run(["init", "memory", "--config", "other/fleet.conf"]);
    let _ = ran
        .assert_code(2)
        .assert_stderr_has("or with the layout drover");
}

#[test]
fn linked_memory_is_not_written_into_a_config() {
    let site = Site::new();
    fs::create_dir_all(site.path("home/clawd")).unwrap();
    site.write("home/clawd/AGENTS.md", "# Rules\n");
    symlink("AGENTS.md", site.path("home/clawd/MEMORY.md")).unwrap();
    let ran = site.run(["init", "--discover", "--config", "new/fleet.conf"]);
    let _ = ran
        .assert_code(2)
        .assert_stderr_has("nothing was written")
        .assert_stderr_has("MEMORY.md is a symlink to AGENTS.md");
    assert!(!site.path("new").exists());
    let ran = site.run(["init", "home/clawd", "--config", "new/fleet.conf"]);
    let _ = ran
        .assert_code(2)
        .assert_stderr_has("MEMORY.md is a symlink to AGENTS.md");
    assert!(!site.path("new").exists());
}

#[test]
fn discovery_leaves_out_what_cannot_be_an_agent() {
    let site = Site::new();
    let memory_in = |name: &str| {
        let directory = site.path("home/.openclaw").join(name);
        fs::create_dir_all(&directory).unwrap();
        directory.join("MEMORY.md")
    };
    let names = [
        "workspace-tab\tx",
        "workspace-x #y",
        "workspace-z",
        "workspace-\u{1b}[31m",
    ];
    for name in names {
        fs::write(memory_in(name), "# Rules\n").unwrap();
    }
    symlink("AGENTS.md", memory_in("workspace-link")).unwrap();
    fs::write(memory_in("workspace-link").with_file_name("AGENTS.md"), "x").unwrap();
    let ran = site.run(["init", "--discover", "--config", "new/fleet.conf"]);
    let ran = ran.assert_code(0);
    let notes: Vec<&str> = ran
        .stderr
        .lines()
        .filter(|it| it.contains("left out"))
        .collect();
    assert_eq!(notes.len(), 3, "{}", ran.stderr);
    assert!(
        ran.stderr
            .contains("workspace-␛[31m/MEMORY.md: a config cannot name it")
    );
    assert!(
        ran.stderr
            .contains("workspace-x #y/MEMORY.md: a config cannot name it")
    );
    assert!(
        ran.stderr
            .contains("workspace-link/MEMORY.md is a symlink to AGENTS.md")
    );
    let config = site.read("new/fleet.conf");
    assert_eq!(config.matches("memory_file=").count(), 2, "{config}");
    assert!(config.contains("workspace-tab\tx/MEMORY.md\n"), "{config}");
    // A path that the operator names is never left out, and the message names that one.
    let paths = ["workspace-tab\tx", "workspace-x #y"].map(|it| format!("home/.openclaw/{it}"));
    let ran = site.run(["init", &paths[0], &paths[1], "--config", "other/fleet.conf"]);
    let _ = ran
        .assert_code(2)
        .assert_stderr_has("workspace-x #y/MEMORY.md in a config; nothing was written");
    let path = "home/.openclaw/workspace-\u{1b}[31m";
    let _ = site
        .run(["init", path, "--config", "other/fleet.conf"])
        .assert_code(2)
        .assert_stderr_has("␛[31m/MEMORY.md in a config; nothing was written");
    assert!(!site.path("other").exists());
}

#[test]
fn home_in_an_alert_command_is_expanded() {
    let site = Site::new();
    let script = "#!/bin/sh\ncat >\"$1\"\n";
    site.write("home/notify.sh", script);
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(site.path("home/notify.sh"), mode).unwrap();
    site.append(
        "memory-shepherd.conf",
        "\n[alerts]\ncommand=~/notify.sh ~/event\n",
    );
    let _ = site.run(["alerts", "test"]).assert_code(0);
    assert!(site.read("home/event").contains("memory-shepherd"));
    let shown = site.run(["config", "show"]).assert_code(0).stdout;
    let path = site.path("home/notify.sh").display().to_string();
    assert!(shown.contains(&path), "{shown}");
}

/// `doctor` and `lint` judge the unchanged template alike.
#[test]
fn doctor_and_lint_agree_about_the_template() {
    let site = Site::new();
    let template = fs::read("baselines/example-agent-MEMORY.md").unwrap();
    site.write("baselines/monitor-bot-MEMORY.md", &template);
    let _ = site
        .run(["lint", "monitor-bot"])
        .assert_stdout_has("error[MS305");
    let doctor = site.run(["doctor"]);
    assert!(
        !doctor.stdout.contains("finds no error"),
        "{}",
        doctor.stdout
    );
    assert_eq!(
        doctor.stdout.matches("template").count(),
        1,
        "{}",
        doctor.stdout
    );
}

/// A file that no reset can replace is refused by the plan.
#[test]
fn plan_on_a_read_only_file_system_is_refused() {
    let site = site_with_notes_and_drift();
    for (directory, message) in [
        ("agents", "it is on a read-only file system"),
        ("archives", "is on a read-only file system"),
    ] {
        fs::create_dir_all(site.path(directory)).unwrap();
        let arguments = ["reset", "--all", "--dry-run"];
        let Some(ran) = run_on_read_only_disk(&site, directory, &arguments) else {
            return skip_unsupported("only root can mount");
        };
        let ran = ran.assert_code(3);
        assert!(ran.stdout.contains(message), "{}", ran.stdout);
        assert!(ran.stdout.contains("nothing to reset"), "{}", ran.stdout);
    }
}
