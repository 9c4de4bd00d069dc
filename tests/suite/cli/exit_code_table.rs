//! The exit codes of every command: one table, from which docs/command-line.md has its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use std::os::unix::fs::PermissionsExt;

use memory_shepherd::base::clock::Clock;
use memory_shepherd::engine::{BaselineEdit, HolderLock, HolderLockKind, Lease};
use rustix::process::{Pid, Signal, kill_process};

use super::*;
use crate::earlier::insert_earlier_run;

/// What a case holds while its command runs.
#[derive(Default)]
struct Hindrance {
    _lock: Option<Arc<dyn Lease>>,
    _edit: Option<BaselineEdit>,
    _held: Option<HolderLock>,
}

/// Prepares a fleet for a case.
type Scene = fn(&Site) -> Hindrance;

/// A way to an exit code.
struct Case {
    command: &'static str,
    code: i32,
    /// The condition, for the page.
    when: &'static str,
    scene: Scene,
    /// Arguments between blanks; ENTRY is a path of an entry.
    arguments: &'static str,
}

const fn case(
    command: &'static str,
    code: i32,
    when: &'static str,
    scene: Scene,
    arguments: &'static str,
) -> Case {
    Case {
        command,
        code,
        when,
        scene,
        arguments,
    }
}

fn drift(_: &Site) -> Hindrance {
    Hindrance::default()
}

fn reset_all(site: &Site) -> Hindrance {
    let _ = site.run(["reset", "--all"]).assert_code(0);
    Hindrance::default()
}

fn written_since(site: &Site) -> Hindrance {
    reset_all(site);
    site.append(MONITOR_MEMORY, "- newer\n");
    Hindrance::default()
}

fn unreachable_host(site: &Site) -> Hindrance {
    let memory = format!("memory_file={}", site.path(MONITOR_MEMORY).display());
    let remote = "remote_host=127.0.0.1\nremote_port=1\nremote_memory=/x/MEMORY.md";
    let config = site.read("memory-shepherd.conf").replace(&memory, remote);
    site.write("memory-shepherd.conf", config);
    Hindrance::default()
}

/// An agent with a memory of several files.
fn entries(site: &Site) -> Hindrance {
    let entry = "---\nid: 01HF7YAT00AAAAAAAAAAAAAAAA\nkind: user\nsummary: likes tea\n\
                 createdAt: 1700000000000\n---\n\ngreen tea\n";
    site.write("store/agents/w/01HF7YAT00AAAAAAAAAAAAAAAA.md", entry);
    no_entries(site)
}

fn ill_entries(site: &Site) -> Hindrance {
    site.write("store/global/01HF7YAT00BBBBBBBBBBBBBBBB.md", "no mapping\n");
    entries(site)
}

fn no_entries(site: &Site) -> Hindrance {
    let section = "\n[web]\nlayout=drover\nmemory_dir=./store\n";
    site.append("memory-shepherd.conf", section);
    Hindrance::default()
}

fn unusable_archive(site: &Site) -> Hindrance {
    site.write("archives", "no directory");
    Hindrance::default()
}

fn broken_ledger(site: &Site) -> Hindrance {
    reset_all(site);
    let ledger = "archives/.shepherd/ledger.jsonl";
    site.write(ledger, site.read(ledger).replace("cli", "cly"));
    Hindrance::default()
}

fn tampered_baseline(site: &Site) -> Hindrance {
    let _ = site.run(["seal", "--all"]).assert_code(0);
    site.append("baselines/monitor-bot-MEMORY.md", "- obey\n");
    Hindrance::default()
}

fn sealed(site: &Site) -> Hindrance {
    let _ = site.run(["seal", "--all"]).assert_code(0);
    Hindrance::default()
}

fn edited_while_sealed(site: &Site) -> Hindrance {
    tampered_baseline(site);
    Hindrance {
        _edit: Some(
            site_engine(site)
                .baseline_files()
                .begin_baseline_edit()
                .unwrap(),
        ),
        ..Hindrance::default()
    }
}

/// A restore that was killed once it had replaced the baseline.
fn interrupted_restore(site: &Site) -> Hindrance {
    super::repeated::interrupt_restore(site);
    Hindrance::default()
}

/// An undo that was killed once it had replaced the memory.
fn interrupted_undo(site: &Site) -> Hindrance {
    super::repeated::crash_undo(site);
    Hindrance::default()
}

fn missing_baseline(site: &Site) -> Hindrance {
    fs::remove_file(site.path("baselines/monitor-bot-MEMORY.md")).unwrap();
    Hindrance::default()
}

fn lock_monitor(site: &Site) -> Hindrance {
    Hindrance {
        _lock: Some(
            site_engine(site)
                .locks()
                .hold_agent_lock("monitor-bot")
                .unwrap(),
        ),
        ..Hindrance::default()
    }
}

fn locked_agent(site: &Site) -> Hindrance {
    reset_all(site);
    site.append(MONITOR_MEMORY, "- newer\n");
    lock_monitor(site)
}

/// Two old entries, so that one expires, and a run that confirms the date.
fn locked_agent_with_old_entries(site: &Site) -> Hindrance {
    for days in [60, 90] {
        let time = SystemClock.now() - chrono::Duration::days(days);
        let path = format!("archives/monitor/{}.md", time.format("%Y-%m-%d_0100"));
        site.write(&path, "- an old note\n");
        let file = fs::File::options().write(true).open(site.path(&path));
        file.unwrap().set_modified(time.into()).unwrap();
    }
    insert_earlier_run(&site.path("archives"), "monitor-bot", SystemClock.now(), 2);
    lock_monitor(site)
}

fn failing_alert(site: &Site) -> Hindrance {
    site.append("memory-shepherd.conf", "[alerts]\ncommand=/bin/false\n");
    unreachable_host(site)
}

fn held_alerts(site: &Site) -> Hindrance {
    site.append(
        "memory-shepherd.conf",
        "[alerts]\non=drifted\ncommand=/bin/true\n",
    );
    let lock = site_engine(site)
        .locks()
        .try_lock_with_holder(HolderLockKind::AlertDelivery);
    Hindrance {
        _held: Some(lock.unwrap().unwrap()),
        ..Hindrance::default()
    }
}

fn other_scheduler(site: &Site) -> Hindrance {
    let lock = site_engine(site)
        .locks()
        .try_lock_with_holder(HolderLockKind::Scheduler);
    Hindrance {
        _held: Some(lock.unwrap().unwrap()),
        ..Hindrance::default()
    }
}

fn paused_schedule(site: &Site) -> Hindrance {
    let _ = site.run(["schedule", "pause"]).assert_code(0);
    Hindrance::default()
}

fn working_alert(site: &Site) -> Hindrance {
    reset_all(site);
    site.append("memory-shepherd.conf", "[alerts]\ncommand=/bin/true\n");
    Hindrance::default()
}

fn unwritable_schedule(site: &Site) -> Hindrance {
    reset_all(site);
    fs::create_dir(site.path("archives/.shepherd/schedule.json")).unwrap();
    Hindrance::default()
}

fn paused_fleet(site: &Site) -> Hindrance {
    let _ = site.run(["schedule", "pause"]).assert_code(0);
    Hindrance::default()
}

fn edited_unit(site: &Site) -> Hindrance {
    let install = ["schedule", "install", "--system", "--prefix", "units"];
    let _ = site.run(install).assert_code(0);
    site.append("units/memory-shepherd.timer", "# mine\n");
    Hindrance::default()
}

fn wrong_keys(site: &Site) -> Hindrance {
    site.write(
        "home/.config/memory-shepherd/console.toml",
        "[keys]\nfoo=\"x\"\n",
    );
    Hindrance::default()
}

/// The editor leaves a secret in the text.
fn editor_with_secret(site: &Site) -> Hindrance {
    site.write(
        "editor",
        "#!/bin/sh\necho '- key AKIAIOSFODNN7EXAMPLQ' >>\"$1\"\n",
    );
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(site.path("editor"), mode).unwrap();
    Hindrance::default()
}

fn missing_directory(site: &Site) -> Hindrance {
    fs::remove_dir_all(site.path("agents/monitor-bot")).unwrap();
    Hindrance::default()
}

const INTEGRITY: &str = "a baseline is tampered, a host key has changed, or the ledger is broken";
const UNREACHED: &str = "a memory, a host or the archive cannot be read or written";
const LOCKED: &str = "another run holds the lock of an agent";
const REFUSED: &str = "an agent is refused, or the plan has changed";
const NO_CHANNEL: &str = "the config names no channel";
const UNSENT: &str = "an alert cannot be sent";
const NO_VERSION: &str = "the version does not exist";
const NO_ENTRIES: &str = "there are no entries";
const NOT_UNDONE: &str = "there is nothing to undo, the agent has written since, or an interrupted \
                          run was recovered instead";
const NOT_EDITED: &str = "the lint finds errors, the file is missing or has changed since, or other \
                          users can replace `$TMPDIR`";
const CHANGED: &str = "a baseline has changed since the seal, or the ledger is broken";
const UNFIT: &str = "the directory is not empty, or other users can write it";
const UNFIT_FOR_DEMO: &str = "the directory is not empty, or other users can write it or `$TMPDIR`";
const BROKEN: &str = "the ledger is broken";
const UNREAD: &str = "the archive cannot be read or written";
const UNKNOWN: &str = "what the command names does not exist";

/// Codes 1 and 3 to 6 of every command, and those of 0 and 2 that need more than a sound fleet and a
/// missing config. A case has a line or two: it is a table.
#[rustfmt::skip]
const CASES: &[Case] = &[
    case("status", 1, "with `--exit-code`: an agent needs a look", drift, "status --exit-code"),
    case("status", 3, "a memory, a host or the ledger cannot be read", unreachable_host, "status"),
    case("status", 4, INTEGRITY, tampered_baseline, "status"),
    case("status", 4, INTEGRITY, broken_ledger, "status"),
    case("status", 6, "an agent cannot be reset", missing_baseline, "status"),
    case("diff", 1, "with `--exit-code`: there are differences",
        drift, "diff monitor-bot --exit-code"),
    case("diff", 3, "the memory cannot be read", unreachable_host, "diff monitor-bot"),
    case("diff", 6, "the baseline is missing or too small", missing_baseline, "diff monitor-bot"),
    case("reset", 3, UNREACHED, unreachable_host, "reset --all"),
    case("reset", 3, UNREACHED, unusable_archive, "reset --all"),
    case("reset", 4, INTEGRITY, tampered_baseline, "reset --all"),
    case("reset", 4, INTEGRITY, broken_ledger, "reset --all"),
    case("reset", 5, LOCKED, locked_agent, "reset --all"),
    case("reset", 6, REFUSED, missing_baseline, "reset --all"),
    case("reset", 6, REFUSED, drift, "reset --all --plan 00000000"),
    case("push", 3, UNREACHED, unreachable_host, "push monitor-bot"),
    case("push", 4, INTEGRITY, tampered_baseline, "push monitor-bot"),
    case("push", 5, LOCKED, locked_agent, "push monitor-bot --keep none"),
    case("push", 6, REFUSED, missing_baseline, "push monitor-bot"),
    case("undo", 0, "", reset_all, "undo monitor-bot"),
    case("undo", 2, "it names neither agents nor a run", reset_all, "undo"),
    case("undo", 3, UNREAD, unusable_archive, "undo monitor-bot"),
    case("undo", 4, BROKEN, broken_ledger, "undo monitor-bot"),
    case("undo", 5, LOCKED, locked_agent, "undo monitor-bot --overwrite"),
    case("undo", 6, NOT_UNDONE, drift, "undo monitor-bot"),
    case("undo", 6, NOT_UNDONE, interrupted_undo, "undo --last"),
    case("undo", 6, NOT_UNDONE, written_since, "undo monitor-bot"),
    case("report", 3, UNREAD, unusable_archive, "report"),
    case("report", 4, BROKEN, broken_ledger, "report"),
    case("log", 3, UNREAD, unusable_archive, "log"),
    case("log", 4, BROKEN, broken_ledger, "log"),
    case("archive list", 0, "", reset_all, "archive list"),
    case("archive list", 1, NO_ENTRIES, drift, "archive list"),
    case("archive list", 3, UNREAD, unusable_archive, "archive list"),
    case("archive list", 4, BROKEN, broken_ledger, "archive list"),
    case("archive show", 0, "", reset_all, "archive show ENTRY"),
    case("archive show", 2, UNKNOWN, drift, "archive show monitor/2026-01-02_0100.md"),
    case("archive search", 0, "", drift, "archive search quiet"),
    case("archive search", 1, "nothing is found", drift, "archive search qqqqqqqq"),
    case("archive search", 2, "the query has a mistake", drift, "archive search since:soon"),
    case("archive search", 3, UNREAD, unusable_archive, "archive search quiet"),
    case("archive export", 0, "", reset_all, "archive export --to out"),
    case("archive export", 1, NO_ENTRIES, drift, "archive export --to out"),
    case("archive export", 3, UNREAD, unusable_archive, "archive export --to out"),
    case("archive export", 4, BROKEN, broken_ledger, "archive export --to out"),
    case("archive export", 6, UNFIT, reset_all, "archive export --to agents"),
    case("archive reindex", 3, UNREAD, unusable_archive, "archive reindex"),
    case("archive pin", 0, "", reset_all, "archive pin ENTRY"),
    case("archive pin", 2, UNKNOWN, reset_all, "archive pin monitor/2026-01-02_0100.md"),
    case("archive pin", 3, UNREAD, unusable_archive, "archive pin monitor/2026-01-02_0100.md"),
    case("archive unpin", 0, "", reset_all, "archive unpin ENTRY"),
    case("archive unpin", 2, UNKNOWN, reset_all, "archive unpin monitor/2026-01-02_0100.md"),
    case("archive unpin", 3, UNREAD, unusable_archive, "archive unpin monitor/2026-01-02_0100.md"),
    case("archive prune", 3, UNREAD, unusable_archive, "archive prune"),
    case("archive prune", 4, BROKEN, broken_ledger, "archive prune"),
    case("archive prune", 5, "a run has an agent locked whose entries expire",
        locked_agent_with_old_entries, "archive prune"),
    case("baseline list", 3, UNREAD, unusable_archive, "baseline list"),
    case("baseline list", 4, CHANGED, tampered_baseline, "baseline list"),
    case("baseline list", 4, CHANGED, broken_ledger, "baseline list"),
    case("baseline list", 6, "a baseline is missing or too small",
        missing_baseline, "baseline list"),
    case("baseline show", 6, "the baseline is missing",
        missing_baseline, "baseline show monitor-bot"),
    case("baseline diff", 0, "", sealed, "baseline diff monitor-bot"),
    case("baseline diff", 2, NO_VERSION, drift, "baseline diff monitor-bot"),
    case("baseline new", 3, UNREAD, unusable_archive, "baseline new a.md"),
    case("baseline new", 4, BROKEN, broken_ledger, "baseline new a.md"),
    case("baseline new", 6, "a file of this name exists",
        drift, "baseline new monitor-bot-MEMORY.md"),
    case("baseline replace", 3, UNREAD,
        unusable_archive, "baseline replace Rules Laws monitor-bot"),
    case("baseline replace", 4, BROKEN, broken_ledger, "baseline replace Rules Laws monitor-bot"),
    case("baseline replace", 6, "a baseline is missing, or changes before it is written",
        missing_baseline, "baseline replace Rules Laws monitor-bot"),
    case("baseline history", 3, UNREAD, unusable_archive, "baseline history monitor-bot"),
    case("baseline history", 4, BROKEN, broken_ledger, "baseline history monitor-bot"),
    case("baseline restore", 0, "", tampered_baseline, "baseline restore monitor-bot"),
    case("baseline restore", 2, NO_VERSION, drift, "baseline restore monitor-bot"),
    case("baseline restore", 3, UNREAD, unusable_archive, "baseline restore monitor-bot"),
    case("baseline restore", 4, BROKEN, broken_ledger, "baseline restore monitor-bot"),
    case("baseline restore", 6, "an interrupted change was recovered instead",
        interrupted_restore, "baseline restore monitor-bot --version previous"),
    case("baseline edit", 0, "", drift, "baseline edit monitor-bot"),
    case("baseline edit", 3, UNREAD, unusable_archive, "baseline edit monitor-bot"),
    case("baseline edit", 6, NOT_EDITED, editor_with_secret, "baseline edit monitor-bot"),
    case("baseline edit", 6, NOT_EDITED, missing_baseline, "baseline edit monitor-bot"),
    case("init", 0, "", drift, "init --config new/fleet.conf"),
    case("init", 2, "a path is not a memory", drift, "init baselines --config new/fleet.conf"),
    case("init", 6, "one of the files exists, or other users can replace the files", drift, "init --config memory-shepherd.conf"),
    case("seal", 0, "", sealed, "seal"),
    case("seal", 3, UNREAD, unusable_archive, "seal"),
    case("seal", 4, BROKEN, broken_ledger, "seal"),
    case("seal", 6, "a change is not accepted, or the plan has changed", drift, "seal"),
    case("guard --once", 0, "", sealed, "guard --once"),
    case("guard --once", 1, "it restored something", tampered_baseline, "guard --once"),
    case("guard --once", 3, UNREAD, unusable_archive, "guard --once"),
    case("guard --once", 4, "there is no seal, it cannot be used, or a file cannot be restored",
        drift, "guard --once"),
    case("guard --once", 5, "an operator edits baselines", edited_while_sealed, "guard --once"),
    case("schedule install", 0, "", drift, "schedule install --system --prefix units"),
    case("schedule install", 3, "`systemctl` fails, or a file cannot be written",
        unusable_archive, "schedule install --system --prefix units"),
    case("schedule install", 6, "a unit was edited, or is not of this config",
        edited_unit, "schedule install --system --prefix units"),
    case("schedule uninstall", 0, "", drift, "schedule uninstall --system --prefix units"),
    case("schedule uninstall", 6, "a unit was edited",
        edited_unit, "schedule uninstall --system --prefix units"),
    case("schedule status", 0, "", drift, "schedule status --system --prefix units"),
    case("schedule pause", 0, "", drift, "schedule pause"),
    case("schedule pause", 2, UNKNOWN, drift, "schedule pause nothing"),
    case("schedule pause", 3, UNREAD, unusable_archive, "schedule pause"),
    case("schedule resume", 0, "", drift, "schedule resume"),
    case("schedule resume", 2, UNKNOWN, drift, "schedule resume nothing"),
    case("schedule resume", 3, UNREAD, unwritable_schedule, "schedule resume"),
    case("schedule resume", 6, "the agent is held back by a pause of all agents alone",
        paused_fleet, "schedule resume monitor-bot"),
    case("schedule skip", 0, "", drift, "schedule skip"),
    case("schedule skip", 2, UNKNOWN, drift, "schedule skip nothing"),
    case("schedule skip", 3, UNREAD, unusable_archive, "schedule skip"),
    case("alerts test", 0, "", working_alert, "alerts test"),
    case("alerts test", 2, NO_CHANNEL, drift, "alerts test"),
    case("alerts test", 3, UNSENT, failing_alert, "alerts test"),
    case("alerts send", 0, "", working_alert, "alerts send"),
    case("alerts send", 2, NO_CHANNEL, drift, "alerts send"),
    case("alerts send", 3, UNSENT, failing_alert, "alerts send"),
    case("alerts send", 5, "another process holds the alerts", held_alerts, "alerts send"),
    case("schedule run", 5, "another scheduler of the config is running", other_scheduler, "schedule run"),
    case("schedule skip", 6, "a timer is paused", paused_schedule, "schedule skip"),
    case("verify", 3, UNREAD, unusable_archive, "verify"),
    case("verify", 4, "something does not match its checksum", broken_ledger, "verify"),
    case("lint", 0, "", drift, "lint baselines/monitor-bot-MEMORY.md"),
    case("lint", 1, "a finding has the severity of `--fail-on`", drift, "lint --fail-on info"),
    case("lint", 3, "a target cannot be read", missing_baseline, "lint"),
    case("lint explain", 0, "", drift, "lint explain MS402"),
    case("lint explain", 2, UNKNOWN, drift, "lint explain X"),
    case("lint rules", 0, "", drift, "lint rules"),
    case("lint words", 0, "", drift, "lint words"),
    case("lint words", 2, UNKNOWN, drift, "lint words X"),
    case("doctor", 1, "a check failed", missing_directory, "doctor"),
    case("doctor", 3, "a host, a memory there or a file system does not answer",
        unreachable_host, "doctor"),
    case("doctor", 4, "the ledger is broken, a baseline is tampered, or a host key has changed",
        broken_ledger, "doctor"),
    case("config check", 0, "", drift, "config check"),
    case("config check", 2, "resets refuse a memory or a baseline",
        missing_baseline, "config check"),
    case("config show", 0, "", drift, "config show"),
    case("keys", 0, "", drift, "keys"),
    case("keys", 2, "`console.toml` has mistakes", wrong_keys, "keys"),
    case("completions", 0, "", drift, "completions bash"),
    case("completions", 2, "the shell is unknown", drift, "completions dos"),
    case("man", 0, "", drift, "man"),
    case("demo", 0, "", drift, "demo"),
    case("demo", 2, "an option has a wrong value", drift, "demo --agents 1"),
    case("demo", 6, UNFIT_FOR_DEMO, drift, "demo --dir agents"),
    case("memory tree", 0, "", entries, "memory web tree"),
    case("memory tree", 3, "memory_dir is not there", no_entries, "memory web tree"),
    case("memory show", 0, "", entries, "memory web show 01HF7YAT00AAAAAAAAAAAAAAAA"),
    case("memory show", 2, "no such item", entries, "memory web show X"),
    case("memory search", 0, "", entries, "memory web search tea"),
    case("memory search", 3, "memory_dir is not there", no_entries, "memory web search tea"),
    case("memory health", 0, "", entries, "memory web health"),
    case("memory health", 1, "a finding is a warning or an error", ill_entries, "memory web health"),
    case("memory health", 3, "memory_dir is not there", no_entries, "memory web health"),
    case("memory plan", 0, "", entries, "memory web plan forget 01HF7YAT00AAAAAAAAAAAAAAAA"),
    case("memory plan", 1, "the layout refuses the operation", entries, "memory web plan move X --scope global"),
    case("memory plan", 2, "an argument is wrong", entries, "memory web plan prune --days x"),
    case("memory apply", 0, "", entries, "memory web apply forget 01HF7YAT00AAAAAAAAAAAAAAAA"),
    case("memory apply", 1, "the layout refuses the operation", entries, "memory web apply move X --scope global"),
    case("memory apply", 6, "the plan does not hold any more", entries, "memory web apply forget 01HF7YAT00AAAAAAAAAAAAAAAA --plan 00000000"),
    case("drover list", 0, "", entries, "drover list --dir store"),
    case("drover list", 3, "a file cannot be read", no_entries, "drover list --dir store"),
    case("drover show", 0, "", entries, "drover show 01HF7YAT00AAAAAAAAAAAAAAAA --dir store"),
    case("drover show", 1, "no such entry", entries, "drover show X --dir store"),
    case("drover recall", 0, "", entries, "drover recall tea --dir store"),
    case("drover put", 0, "", entries, "drover put --dir store --scope global --kind user --summary s --body b"),
    case("drover put", 1, "refused as an agent would be", entries, "drover put --dir store --scope agent --kind user --summary s --body b"),
    case("drover forget", 0, "also where there is no such entry", entries, "drover forget 01HF7YAT00AAAAAAAAAAAAAAAA --dir store"),
    case("drover forget", 1, "refused as an agent would be", entries, "drover forget 01HF7YAT00AAAAAAAAAAAAAAAA --dir store --agent-id v"),
    case("drover move", 0, "", entries, "drover move 01HF7YAT00AAAAAAAAAAAAAAAA --dir store --scope global"),
    case("drover move", 1, "no such entry, or refused as an agent would be", entries, "drover move X --dir store --scope global"),
    case("drover repair", 0, "also where there is nothing to repair", entries, "drover repair 01HF7YAT00AAAAAAAAAAAAAAAA --dir store"),
    case("drover repair", 1, "something is missing that only you know", ill_entries, "drover repair 01HF7YAT00BBBBBBBBBBBBBBBB --dir store"),
    case("drover prune", 0, "", entries, "drover prune --dir store --days 1"),
    case("drover index", 0, "", entries, "drover index --dir store"),
    case("drover instructions", 0, "", entries, "drover instructions"),
    case("drover health", 0, "", entries, "drover health --dir store"),
    case("drover health", 1, "a finding is a warning or an error", ill_entries, "drover health --dir store"),
    case("drover id", 0, "", entries, "drover id --path /a/AGENTS.md"),
];

/// Commands whose success needs nothing but a sound fleet.
const SOUND: &[&str] = &[
    "status",
    "diff monitor-bot",
    "reset --all",
    "push monitor-bot --keep none",
    "report",
    "log",
    "archive reindex",
    "archive prune",
    "baseline list",
    "baseline show monitor-bot",
    "baseline new a.md",
    "baseline replace Rules Laws monitor-bot",
    "baseline history monitor-bot",
    "verify",
    "doctor",
];

/// Commands that go on until a signal ends them, with the flag that makes them do so, and with the
/// first words that they print.
const UNTIL_STOPPED: &[(&str, &[&str], &str)] = &[
    ("guard", &[], "sealed file"),
    ("log", &["--follow"], "seal"),
    ("schedule run", &[], "next reset"),
    ("status", &["--watch"], "monitor-bot"),
];

/// What 130 means for these commands, and for those that change agents, which have tests of their own.
const INTERRUPTED: &str = "stopped by INT";

/// The commands that read no config.
const WITHOUT_CONFIG: &[&str] = &[
    "init",
    "completions",
    "man",
    "keys",
    "demo",
    "lint explain",
    "lint rules",
    "lint words",
    "drover list",
    "drover show",
    "drover recall",
    "drover put",
    "drover forget",
    "drover move",
    "drover repair",
    "drover prune",
    "drover index",
    "drover instructions",
    "drover health",
    "drover id",
];

#[test]
fn every_case_exits_with_its_code() {
    let mut wrong = Vec::new();
    for case in CASES {
        let site = site_with_notes_and_drift();
        let _hindrance = (case.scene)(&site);
        let entry = site
            .path("archives/monitor")
            .is_dir()
            .then(|| format!("monitor/{}", site.entry_names("monitor").remove(0)));
        let words = case.arguments.split(' ');
        let words = words.map(|word| match (word, &entry) {
            ("ENTRY", Some(entry)) => entry.as_str(),
            (word, _) => word,
        });
        let mut command = site.command();
        let editor = site.path("editor");
        let editor = if editor.exists() {
            editor
        } else {
            "/bin/true".into()
        };
        let ran = site.run_command(command.env("EDITOR", editor).args(words));
        if ran.exit_code != case.code {
            let (code, arguments) = (case.code, case.arguments);
            wrong.push(format!(
                "{arguments}: {} for {code}: {}",
                ran.exit_code, ran.stderr
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn sound_fleet_exits_0_and_missing_config_2() {
    for line in SOUND {
        let site = site_with_notes_and_drift();
        let _ = site
            .run_command(site.command().args(line.split(' ')))
            .assert_code(0);
    }
    let site = Site::new();
    for case in CASES
        .iter()
        .filter(|it| !WITHOUT_CONFIG.contains(&it.command))
    {
        let words = case
            .arguments
            .split(' ')
            .chain(["--config", "missing.conf"]);
        // Units are removed also without the config.
        let code = if case.command == "schedule uninstall" {
            0
        } else {
            2
        };
        let ran = site.run_command(site.command().args(words));
        let is_status = case.command == "schedule status";
        assert!(
            ran.exit_code == code || is_status && ran.exit_code == 0,
            "{}: {}",
            case.arguments,
            ran.exit_code
        );
    }
    let ran = site.run_command(site.command().args(["man", "--nonsense"]));
    let _ = ran.assert_code(2);
}

#[test]
fn commands_that_go_on_exit_130_at_int() {
    for (command, flags, first_words) in UNTIL_STOPPED {
        let site = Site::new();
        sealed(&site);
        let mut child = Command::new(PROGRAM_PATH)
            .env_clear()
            .env("HOME", site.path("home"))
            .current_dir(&site.dir)
            .args(command.split(' '))
            .args(*flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        while !line.contains(first_words) {
            line.clear();
            assert!(out.read_line(&mut line).unwrap() > 0, "{command}: {line}");
        }
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{command}");
    }
}

/// The conditions of each command and code, for the page.
fn conditions() -> BTreeMap<&'static str, BTreeMap<i32, &'static str>> {
    let mut commands: BTreeMap<&str, BTreeMap<i32, &str>> = BTreeMap::new();
    for case in CASES.iter().filter(|it| !it.when.is_empty()) {
        let codes = commands.entry(case.command).or_default();
        let known = codes.insert(case.code, case.when);
        assert!(known.is_none_or(|it| it == case.when), "{}", case.command);
    }
    let interrupted = UNTIL_STOPPED.iter().map(|(command, ..)| *command);
    for command in interrupted.chain(["push", "reset", "undo"]) {
        commands
            .entry(command)
            .or_default()
            .insert(130, INTERRUPTED);
    }
    commands
}

const BEGIN: &str = "<!-- exit codes by command -->\n";
const END: &str = "<!-- /exit codes by command -->";

/// With `UPDATE_DOCS=1`, writes the table into the page instead.
#[test]
fn command_page_has_the_exit_codes_of_commands() {
    let mut table = "\n| command | exit codes |\n|---|---|\n".to_string();
    for (command, codes) in conditions() {
        let codes = codes
            .iter()
            .map(|(code, when)| format!("**{code}** {when}"));
        let codes: Vec<String> = codes.collect();
        table.push_str(&format!("| `{command}` | {} |\n", codes.join("; ")));
    }
    table.push('\n');
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/command-line.md");
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (found, after) = rest.split_once(END).unwrap();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(
        found, table,
        "run UPDATE_DOCS=1 cargo test exit_codes_of_commands"
    );
}

#[test]
fn every_command_has_a_case_of_success() {
    let successes = CASES.iter().filter(|it| it.code == 0).map(|it| it.command);
    let tested: BTreeSet<&str> = successes.chain(SOUND.iter().copied()).collect();
    for command in crate::schemas::leaf_commands() {
        let is_tested = |it: &&str| *it == command || it.starts_with(&format!("{command} "));
        let goes_on = UNTIL_STOPPED.iter().any(|(it, ..)| *it == command);
        assert!(
            goes_on || tested.iter().any(is_tested),
            "no case of `{command}`"
        );
    }
}
