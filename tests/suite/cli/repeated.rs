//! Commands that an operator repeats after a kill.

use std::sync::atomic::AtomicBool;

use memory_shepherd::base::digest::Digest;
use memory_shepherd::engine::{UndoMode, UndoTarget};

use super::*;
use crate::crashes::crash_on_call;
use crate::world::TransportCall;

/// Crashes an undo of monitor-bot behind the swap. Returns the run that it undid.
pub(super) fn crash_undo(site: &Site) -> String {
    let _ = site.run(["reset", "monitor-bot"]).assert_code(0);
    let transport = crash_on_call(
        LocalTransport::new(Arc::new(SystemClock)),
        TransportCall::After("swap"),
    );
    let engine = engine_with(
        config::load(
            &site.path("memory-shepherd.conf"),
            &bare_environment(&site.dir),
        )
        .unwrap(),
        Arc::new(SystemClock),
        Arc::new(SingleTransport(transport)),
        None,
    );
    let target = UndoTarget::Agents(vec!["monitor-bot".to_string()]);
    let plan = engine
        .planner()
        .plan_undo(&target, UndoMode::Refuse, false)
        .unwrap();
    let run = plan.steps[0].undone_run.as_ref().unwrap().run.clone();
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        engine
            .runs()
            .apply_plan(&plan, false, &AtomicBool::new(false), &mut |_| {})
    }));
    assert!(ended.is_err());
    run
}

/// Leaves what a restore of monitor-bot's baseline leaves that is killed behind the exchange, before the
/// ledger has it.
pub(super) fn interrupt_restore(site: &Site) {
    let name = "baselines/monitor-bot-MEMORY.md";
    let before = site.read(name);
    let _ = site.run(["seal", "--all"]).assert_code(0);
    let replace = ["baseline", "replace", "Rules", "Laws", "monitor-bot"];
    let _ = site.run(replace).assert_code(0);
    let replaced = site.read(name);
    let random = |digit: &str| format!("baselines/.shepherd-{}", digit.repeat(32));
    let [provisional, unfinished, aside] = ["a", "b", "c"].map(random);
    let ledger = site.read("archives/.shepherd/ledger.jsonl");
    let last: serde_json::Value = serde_json::from_str(ledger.lines().last().unwrap()).unwrap();
    let mut event = last.clone();
    let content = Digest::of(before.as_bytes()).to_string();
    (event["before"], event["after"]) = (last["after"].clone(), last["before"].clone());
    (event["run"], event["act"]) = ("5a10c3d2".into(), "restore".into());
    event["baseline"] = content.as_str().into();
    let journal = serde_json::json!([{
        "run": "5a10c3d2",
        "ledger_seq": last["seq"],
        "files": [{
            "name": "monitor-bot-MEMORY.md",
            "content": content,
            "path": site.path(name),
            "provisional": site.path(&provisional),
            "unfinished": site.path(&unfinished),
            "aside": site.path(&aside),
        }],
        "events": [event],
    }]);
    site.write("archives/.shepherd/replacing.json", journal.to_string());
    site.write(&provisional, replaced);
    site.write(name, before);
}

#[test]
fn undo_after_killed_undo_stops_once() {
    for arguments in [&["undo", "--last"][..], &["undo", "monitor-bot"]] {
        let site = site_with_notes_and_drift();
        let undone = crash_undo(&site);
        let memory = site.read(MONITOR_MEMORY);
        let run = |more: &[&str]| {
            let words = [arguments, more].concat();
            site.run_command(site.command().args(words))
        };
        let said = format!("the undo of run {undone} on monitor-bot, was interrupted");
        let dry = run(&["--dry-run"]).assert_stderr_has(&said);
        assert!(dry.stderr.contains("another one then"), "{}", dry.stderr);
        let _ = site.run(["undo"]).assert_code(2).assert_stderr_has(&said);
        let stopped = run(&[]).assert_code(6).assert_stderr_has(&said);
        assert!(
            stopped.stderr.contains("nothing else was undone"),
            "{}",
            stopped.stderr
        );
        assert_eq!(site.read(MONITOR_MEMORY), memory);
        // The undo is in the ledger, so there is no other run to undo.
        let again = run(&[]).assert_code(6);
        assert!(!again.stderr.contains("interrupted"), "{}", again.stderr);
        assert_eq!(site.read(MONITOR_MEMORY), memory);
    }
}

#[test]
fn undo_of_a_run_after_killed_undo_changes_nothing() {
    let site = site_with_notes_and_drift();
    let undone = crash_undo(&site);
    let (memory, entries) = (site.read(MONITOR_MEMORY), site.entry_names("monitor"));
    let ran = site.run(["undo", "--run", &undone]).assert_code(0);
    let _ = ran.assert_stdout_has("already undone by run");
    assert_eq!(site.read(MONITOR_MEMORY), memory);
    assert_eq!(site.entry_names("monitor"), entries);
}

#[test]
fn push_of_lines_after_killed_run_stops_once() {
    let site = site_with_notes_and_drift();
    crash_undo(&site);
    let lines = site.read(MONITOR_MEMORY).lines().count().to_string();
    let push = ["push", "monitor-bot", "--keep", &lines];
    let stopped = site.run(push).assert_code(6);
    let _ = stopped.assert_stderr_has("the line numbers may mean other lines");
    let again = site.run(push);
    assert!(!again.stderr.contains("interrupted"), "{}", again.stderr);
}

#[test]
fn restore_of_previous_after_a_kill_stops_once() {
    let site = Site::new();
    let name = "baselines/monitor-bot-MEMORY.md";
    let original = site.read(name);
    interrupt_restore(&site);
    let restore = [
        "baseline",
        "restore",
        "monitor-bot",
        "--version",
        "previous",
    ];
    let stopped = site.run(restore).assert_code(6);
    let stopped = stopped.assert_stderr_has("an interrupted change had replaced");
    assert_eq!(site.read(name), original);
    // What the killed command displaced is a version, and no longer beside the baselines.
    assert!(!site.path("archives/.shepherd/replacing.json").exists());
    let left = fs::read_dir(site.path("baselines")).unwrap();
    let left = left.map(|it| it.unwrap().file_name().into_string().unwrap());
    assert_eq!(left.filter(|it| it.starts_with(".shepherd")).count(), 0);
    let (_, offered) = stopped
        .stderr
        .split_once("to restore that version: memory-shepherd ")
        .unwrap();
    let words = shell_words::split(offered.lines().next().unwrap()).unwrap();
    let _ = site.run_command(site.command().args(words)).assert_code(0);
    assert!(site.read(name).contains("Laws"));
    // Nothing is interrupted any more.
    let _ = site.run(restore).assert_code(0);
    assert_eq!(site.read(name), original);
}

#[test]
fn init_after_killed_init_writes_the_config() {
    let site = Site::new();
    site.write("agents/new/MEMORY.md", "# Rules\n");
    let init = ["init", "agents/new", "--config", "new/fleet.conf"];
    let _ = site.run(init).assert_code(0);
    let config = site.read("new/fleet.conf");
    let baseline = "new/baselines/new-MEMORY.md";
    // The config is written last.
    fs::remove_file(site.path("new/fleet.conf")).unwrap();
    let ran = site.run(init).assert_code(0);
    let _ = ran
        .assert_stdout_has("wrote 1 file for 1 agent")
        .assert_stderr_has("new-MEMORY.md has this text already, and stays");
    assert_eq!(site.read("new/fleet.conf"), config);
    let _ = site.run(init).assert_code(6);
    fs::remove_file(site.path("new/fleet.conf")).unwrap();
    site.append(baseline, "- a rule of the operator\n");
    let edited = site.read(baseline);
    let refused = site.run(init).assert_code(6);
    let _ = refused.assert_stderr_has("new-MEMORY.md exists; nothing was written");
    assert_eq!(site.read(baseline), edited);
    assert!(!site.path("new/fleet.conf").exists());
}

/// A journal that is none says of which agent it is by its name.
#[test]
fn damaged_journal_of_another_agent_stops_no_undo() {
    let site = site_with_notes_and_drift();
    let noted = site.read("agents/code-reviewer/MEMORY.md");
    let _ = site.run(["reset", "code-reviewer"]).assert_code(0);
    let ledger = site.read("archives/.shepherd/ledger.jsonl");
    let record: serde_json::Value = serde_json::from_str(ledger.lines().last().unwrap()).unwrap();
    let run = record["run"].as_str().unwrap();
    let journal = "archives/.shepherd/tx/monitor-bot.5a10c3d2.json";
    site.write(journal, "no journal\n{}\n");
    let _ = site
        .run(["undo", "--last"])
        .assert_code(4)
        .assert_stderr_has("nothing was undone, an interrupted run comes first: monitor-bot: ")
        .assert_stderr_has("`undo --run RUN` undoes another one");
    let _ = site.run(["undo", "--run", run]).assert_code(0);
    assert_eq!(site.read("agents/code-reviewer/MEMORY.md"), noted);
    let _ = site
        .run(["undo", "code-reviewer", "monitor-bot"])
        .assert_code(4);
}
