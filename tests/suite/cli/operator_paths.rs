//! What is written at paths that the operator gives: through no symlink of another user, with modes
//! that the umask cannot widen, and without leftovers of killed runs.

use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use super::*;
use crate::skip::{skip_missing_tool, skip_unsupported};

/// A user who is neither root nor the one who runs the tests.
const OTHER_USER: u32 = 4711;

/// A fleet with an archive.
fn site_with_entries() -> Site {
    let site = site_with_notes_and_drift();
    let _ = site.run(["reset", "--all"]).assert_code(0);
    site
}

/// A symlink of another user to the empty directory `target`; none where this user is not root.
fn plant_symlink(site: &Site) -> Option<PathBuf> {
    let link = site.path("theirs");
    fs::create_dir(site.path("target")).unwrap();
    symlink("target", &link).unwrap();
    if lchown(&link, Some(OTHER_USER), None).is_err() {
        skip_unsupported("only root can give symlinks away");
        return None;
    }
    Some(link)
}

#[test]
fn link_of_another_user_is_not_followed() {
    let site = site_with_entries();
    let Some(link) = plant_symlink(&site) else {
        return;
    };
    let commands = [
        ("archive export --to theirs/out", 6),
        ("status --metrics theirs/fleet.prom", 6),
        ("status --debug-log theirs/debug.log", 3),
        ("init --config theirs/new/fleet.conf", 6),
        ("schedule install --prefix theirs/units", 6),
        ("schedule install --prefix theirs", 6),
        #[cfg(feature = "demo")]
        ("demo --dir theirs/demo", 6),
    ];
    let run = |command: &str| {
        let words = command.split(' ');
        site.run_command(site.command().args(words))
    };
    for (command, code) in commands {
        let refused = run(command).assert_code(code);
        assert!(
            refused.stderr.contains("4711"),
            "{command}: {}",
            refused.stderr
        );
        let written = fs::read_dir(site.path("target")).unwrap().count();
        assert_eq!(written, 0, "{command}");
    }
    // One's own is followed, but not to an archive, which `init` begins beside the config.
    lchown(&link, Some(0), None).unwrap();
    for (command, _) in commands {
        let is_init = command.starts_with("init");
        let _ = run(command).assert_code(if is_init { 3 } else { 0 });
    }
    assert!(!site.path("target/new").exists());
    for name in ["out", "fleet.prom", "debug.log", "units"] {
        assert!(site.path("target").join(name).exists(), "{name}");
    }
}

#[test]
fn own_link_where_others_write_is_not_followed() {
    let site = site_with_entries();
    for name in ["target", "shared"] {
        fs::create_dir(site.path(name)).unwrap();
    }
    symlink("../target", site.path("shared/link")).unwrap();
    let set_mode = |mode| {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(site.path("shared"), mode).unwrap();
    };
    let export = |code| {
        let ran = site.run(["archive", "export", "--to", "shared/link/out"]);
        ran.assert_code(code).stderr
    };
    // Another user may have moved it there.
    for mode in [0o777, 0o1777, 0o770] {
        set_mode(mode);
        let said = "other users can write its directory, and replace it";
        assert!(export(6).contains(said));
    }
    set_mode(0o755);
    export(0);
}

#[test]
fn log_file_of_another_user_gets_no_lines() {
    let site = Site::new();
    let log = site.path("debug.log");
    fs::write(&log, "").unwrap();
    let status = |code| {
        let _ = site
            .run(["status", "--debug-log", "debug.log"])
            .assert_code(code);
        fs::metadata(&log).unwrap().len()
    };
    fs::hard_link(&log, site.path("elsewhere")).unwrap();
    assert_eq!(status(3), 0);
    fs::remove_file(site.path("elsewhere")).unwrap();
    if lchown(&log, Some(OTHER_USER), None).is_ok() {
        assert_eq!(status(3), 0);
        lchown(&log, Some(0), None).unwrap();
    }
    assert!(status(0) > 0);
}

#[test]
fn metrics_go_to_a_directory_of_others() {
    let site = Site::new();
    let directory = site.path("collector");
    fs::create_dir(&directory).unwrap();
    fs::write(site.path("kept"), "kept").unwrap();
    if lchown(&directory, Some(OTHER_USER), None).is_err() {
        return skip_unsupported("only root can give directories away");
    }
    let write = |code| {
        let metrics = ["status", "--metrics", "collector/fleet.prom"];
        let _ = site.run(metrics).assert_code(code);
    };
    write(0);
    write(0);
    let file = directory.join("fleet.prom");
    assert_eq!(fs::metadata(&file).unwrap().uid(), 0);
    fs::remove_file(&file).unwrap();
    symlink("../kept", &file).unwrap();
    write(2);
    assert_eq!(site.read("kept"), "kept");
}

#[cfg(feature = "demo")]
#[test]
fn demo_in_a_directory_of_others_is_refused() {
    let site = Site::new();
    let directory = site.path("workspace");
    fs::create_dir(&directory).unwrap();
    let demo = || site.run(["demo", "--dir", "workspace/demo"]);
    if lchown(&directory, Some(OTHER_USER), None).is_ok() {
        let _ = demo().assert_code(6).assert_stderr_has("uid 4711");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        lchown(&directory, Some(0), None).unwrap();
    }
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
    let _ = demo()
        .assert_code(6)
        .assert_stderr_has("every user can write");
    let _ = site.run(["demo", "--dir", "workspace"]).assert_code(6);
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
}

#[test]
fn config_in_a_workspace_of_others_runs_nothing() {
    let site = site_with_notes_and_drift();
    fs::create_dir_all(site.path("home/.config/memory-shepherd")).unwrap();
    let own = "home/.config/memory-shepherd/memory-shepherd.conf";
    site.write(own, "[general]\n");
    let before = site.read(MONITOR_MEMORY);
    let config = site.path("memory-shepherd.conf");
    fs::set_permissions(&config, fs::Permissions::from_mode(0o666)).unwrap();
    for command in [
        "reset --all",
        "status",
        "doctor",
        "config check",
        "alerts test",
        "schedule install --prefix units",
        "monitor-bot",
    ] {
        let refused = site.run_command(site.command().args(command.split(' ')));
        assert_eq!(refused.exit_code, 2, "{command}: {}", refused.stderr);
        let said = refused.stdout + &refused.stderr;
        let flag = format!("--config {}", config.display());
        assert!(said.contains("every user can write"), "{command}: {said}");
        assert!(said.contains(&flag), "{command}: {said}");
    }
    assert_eq!(site.read(MONITOR_MEMORY), before);
    assert!(!site.path("units").exists());
    let named = ["reset", "--all", "--config", "memory-shepherd.conf"];
    let _ = site.run(named).assert_code(0);
}

#[test]
fn lint_beside_an_untrusted_config_says_so() {
    let site = Site::new();
    site.write("draft.md", Site::read_baseline("monitor-bot"));
    site.append("memory-shepherd.conf", "\n[lint]\nmax_lines=1\n");
    let config = site.path("memory-shepherd.conf");
    fs::set_permissions(&config, fs::Permissions::from_mode(0o666)).unwrap();
    let flag = format!("--config {}", config.display());
    let linted = site.run(["lint", "draft.md"]).assert_code(0);
    for said in ["every user can write", &flag, "uses its default settings"] {
        assert!(linted.stderr.contains(said), "{said}: {}", linted.stderr);
    }
    let _ = site.run(["lint", "monitor-bot"]).assert_code(2);
    // Without a config there is nothing to say; a missing one that is named is an error.
    fs::remove_file(&config).unwrap();
    let linted = site.run(["lint", "draft.md"]).assert_code(0);
    assert_eq!(linted.stderr, "");
    let mut command = site.command();
    command.env("MEMORY_SHEPHERD_CONF", "gone.conf");
    let _ = site
        .run_command(command.args(["lint", "draft.md"]))
        .assert_code(2)
        .assert_stderr_has("does not exist");
}

/// Runs a shell script in the directory, with the program as `$0`.
fn run_script(site: &Site, script: &str) -> ExitStatus {
    let mut command = Command::new("sh");
    command.args(["-c", script, PROGRAM_PATH]).env_clear();
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command.env("HOME", site.path("home"));
    command.env("XDG_RUNTIME_DIR", site.path("home"));
    command.env("TMPDIR", site.path("home"));
    command.env("EDITOR", "true");
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.current_dir(&site.dir).status().unwrap()
}

/// Returns every path below a directory, without the symlinks.
fn paths_below(directory: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut open = vec![directory.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                open.push(entry.path());
            }
            if !kind.is_symlink() {
                found.insert(entry.path());
            }
        }
    }
    found
}

#[test]
fn open_umask_opens_no_created_file() {
    let commands = [
        "reset --all --metrics fleet.prom",
        "undo monitor-bot",
        "baseline new fresh.md",
        "baseline edit monitor-bot-MEMORY.md",
        "seal --all",
        "guard --once",
        "push monitor-bot",
        "archive search note",
        "archive reindex",
        "archive export --to out",
        "archive prune",
        "lint --fix draft.md",
        "status --debug-log debug.log --metrics other.prom",
        "doctor",
        "schedule pause",
        "schedule install --prefix units",
        "schedule install --packaged /usr/bin/memory-shepherd --prefix packaged",
        "init --config made/new/fleet.conf",
        "verify",
        "report",
        #[cfg(feature = "demo")]
        "demo --dir demo",
        "schedule uninstall --prefix units",
    ];
    for (umask, forbidden) in [("000", 0o022), ("077", 0o077)] {
        let site = site_with_notes_and_drift();
        site.write("draft.md", "# Draft  \n\nA rule.\n");
        let before = paths_below(&site.dir);
        let mut created = 0;
        for command in commands {
            let status = run_script(&site, &format!("umask {umask}; exec \"$0\" {command}"));
            // A usage error or a missing file would write nothing.
            assert!(
                matches!(status.code(), Some(0 | 1 | 4 | 6)),
                "{command}: {status}"
            );
            for path in paths_below(&site.dir).difference(&before) {
                created += 1;
                let meta = fs::symlink_metadata(path).unwrap();
                let mode = meta.mode() & 0o7777;
                assert_eq!(
                    mode & forbidden,
                    0,
                    "{command} with umask {umask}: {} has mode {mode:o}",
                    path.display()
                );
            }
        }
        assert!(created > 100, "{created}");
    }
}

/// Returns the names in a directory that only a replacement uses.
fn leftovers(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let names = entries.map(|it| it.unwrap().file_name().into_string().unwrap());
    names.filter(|it| it.starts_with(".shepherd-")).collect()
}

/// Kills a command at a system call that leaves something in `directory`. Returns false without the
/// tool that does so.
fn kill_with_leftover(site: &Site, call: &str, command: &str, directory: &Path) -> bool {
    let traced = "strace -f -qq -o strace.log -e";
    if !run_script(site, &format!("{traced} trace=none true")).success() {
        skip_missing_tool("strace");
        return false;
    }
    for nth in 1..=40 {
        let inject = format!("--inject={call}:signal=KILL:when={nth}");
        let script = format!("exec {traced} trace={call} {inject} \"$0\" {command}");
        run_script(site, &script);
        if !leftovers(directory).is_empty() {
            return true;
        }
    }
    panic!("no call of {call} leaves anything behind");
}

#[test]
fn leftover_of_killed_metrics_is_removed() {
    let site = Site::new();
    let directory = site.path("collector");
    fs::create_dir(&directory).unwrap();
    let command = "status --metrics collector/fleet.prom";
    for call in ["renameat2", "unlinkat"] {
        assert!(run_script(&site, &format!("\"$0\" {command}")).success());
        if !kill_with_leftover(&site, call, command, &directory) {
            return;
        }
        // What another program has left there stays, whatever its name.
        let foreign = directory.join(".shepherd-0123456789abcdef0123456789abcdef");
        fs::write(&foreign, "foreign").unwrap();
        assert!(run_script(&site, &format!("\"$0\" {command}")).success());
        let left = leftovers(&directory);
        assert_eq!(
            left,
            [foreign.file_name().unwrap().to_str().unwrap()],
            "{call}"
        );
        fs::remove_file(&foreign).unwrap();
    }
}

#[test]
fn leftover_of_killed_installation_is_removed() {
    let site = Site::new();
    let directory = site.path("units");
    let install = "schedule install --prefix units";
    let config = site.read("memory-shepherd.conf");
    for (call, hours) in [("renameat2", 4), ("unlinkat", 6)] {
        assert!(run_script(&site, &format!("\"$0\" {install}")).success());
        let every = format!("{config}every={hours}h\n");
        site.write("memory-shepherd.conf", every);
        if !kill_with_leftover(&site, call, install, &directory) {
            return;
        }
        assert!(run_script(&site, &format!("\"$0\" {install}")).success());
        assert_eq!(leftovers(&directory), [""; 0], "{call}");
    }
}

/// What stands in it becomes the text of the agents.
#[test]
fn init_refuses_a_directory_that_all_can_write() {
    let site = Site::new();
    let directory = site.path("new");
    fs::create_dir(&directory).unwrap();
    let set_mode =
        |mode| fs::set_permissions(&directory, fs::Permissions::from_mode(mode)).unwrap();
    set_mode(0o777);
    for config in ["new/fleet.conf", "new/below/fleet.conf"] {
        let _ = site
            .run(["init", "--config", config])
            .assert_code(6)
            .assert_stderr_has("new is writable by every user");
    }
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
    // As /tmp is: there, only owners can rename and remove.
    set_mode(0o1777);
    let _ = site
        .run(["init", "--config", "new/fleet.conf"])
        .assert_code(0);
}

#[test]
fn init_refuses_a_baseline_directory_of_others() {
    let site = Site::new();
    let directory = site.path("new/baselines");
    fs::create_dir_all(&directory).unwrap();
    let set_mode =
        |mode| fs::set_permissions(&directory, fs::Permissions::from_mode(mode)).unwrap();
    let init = || site.run(["init", "--config", "new/fleet.conf"]);
    for mode in [0o777, 0o1777] {
        set_mode(mode);
        let _ = init()
            .assert_code(6)
            .assert_stderr_has("new/baselines is writable by every user");
        assert!(!site.path("new/fleet.conf").exists());
        assert!(!site.path("new/archives").exists());
    }
    set_mode(0o755);
    if lchown(&directory, Some(OTHER_USER), None).is_ok() {
        let _ = init()
            .assert_code(6)
            .assert_stderr_has("new/baselines belongs to another user");
        lchown(&directory, Some(0), None).unwrap();
    } else {
        skip_unsupported("only root can give directories away");
    }
    let _ = init().assert_code(0);
}
