//! Complete outputs, compared with golden files; placeholders replace values that
//! differ between runs.

use super::*;
use crate::earlier::insert_earlier_run;

macro_rules! golden {
    ($name:literal, $site:expr, $($argument:literal)*) => {
        insta::assert_snapshot!($name, $site.run([$($argument),*]).normalized_output());
    };
}

/// Groups the progress lines of a run by agent. The lines of one agent keep their order, and no
/// other line moves. How the lines of agents alternate depends on how many agents a batch has taken
/// within its time.
fn group_progress_by_agent(output: &str) -> String {
    let agent_of = |line: &str| {
        let agents = ["code-reviewer", "monitor-bot"];
        agents.iter().position(|agent| line.contains(agent))
    };
    let mut lines: Vec<&str> = output.lines().collect();
    lines
        .chunk_by_mut(|a, b| agent_of(a).is_some() == agent_of(b).is_some())
        .for_each(|chunk| chunk.sort_by_key(|line| agent_of(line)));
    lines.join("\n")
}

#[test]
fn text_output_matches_goldens() {
    let site = site_with_notes_and_drift();
    golden!("status", site, "status");
    golden!("three_way", site, "diff" "monitor-bot" "--three-way");
    golden!("dry_run", site, "reset" "--all" "--dry-run");
    golden!("diff", site, "diff" "monitor-bot");
    golden!("diff_stat", site, "diff" "monitor-bot" "--stat");
    let output = site.run(["reset", "--all"]).normalized_output();
    insta::assert_snapshot!("reset", group_progress_by_agent(&output));
    golden!("reset_again", site, "reset" "--all");
    golden!("undo_dry_run", site, "undo" "monitor-bot" "--dry-run");
    golden!("undo", site, "undo" "monitor-bot");
    golden!("three_way_history", site, "diff" "monitor-bot" "--three-way");
    golden!("log", site, "log");
    golden!("report", site, "report");
    golden!("report_empty", site, "report" "--since" "now");
    golden!("report_wrong", site, "report" "--since" "tomorrow");
    golden!("verify", site, "verify");
    golden!("config_check", site, "config" "check");
    golden!("config_show", site, "config" "show");
}

#[test]
fn json_output_matches_goldens() {
    let site = site_with_notes_and_drift();
    golden!("status_json", site, "status" "--json");
    golden!("dry_run_json", site, "reset" "--all" "--dry-run" "--json");
    golden!("three_way_json", site, "diff" "monitor-bot" "--three-way" "--json");
    golden!("diff_json", site, "diff" "monitor-bot" "--json");
    golden!("diff_stat_json", site, "diff" "monitor-bot" "--stat" "--json");
    golden!("reset_json", site, "reset" "--all" "--json");
    golden!("undo_json", site, "undo" "monitor-bot" "--json");
    golden!("log_json", site, "log" "--json" "-n" "2" "monitor-bot");
    golden!("report_json", site, "report" "--json");
    golden!("verify_json", site, "verify" "--json");
    golden!("config_check_json", site, "config" "check" "--json");
    golden!("config_show_json", site, "config" "show" "--json");
    golden!("unknown_agent_json", site, "reset" "--json" "monitor");
    golden!("usage_json", site, "reset" "--json");
}

#[test]
fn output_about_behind_agent_matches_goldens() {
    let site = Site::new();
    site.append(MONITOR_MEMORY, "- an old note\n");
    let _ = site.run(["reset", "--all"]).assert_code(0);
    site.append(MONITOR_MEMORY, "- a note\n- another\n");
    let edited = Site::read_baseline("monitor-bot").replacen("1. ", "1. Always: ", 1);
    site.write("baselines/monitor-bot-MEMORY.md", edited);
    golden!("behind_status", site, "status" "monitor-bot");
    golden!("behind_diff", site, "diff" "monitor-bot");
    golden!("behind_diff_json", site, "diff" "monitor-bot" "--stat" "--json");
    golden!("behind_dry_run", site, "reset" "monitor-bot" "--dry-run");
    golden!("push_dry_run", site, "push" "monitor-bot" "--dry-run");
    golden!("push_dry_run_json", site, "push" "monitor-bot" "--keep" "118" "--dry-run" "--json");
    golden!("push_wrong_line", site, "push" "monitor-bot" "--keep" "3,118");
    golden!("push_several", site, "push" "monitor-bot" "code-reviewer" "--keep" "118");
    golden!("push_usage", site, "push" "monitor-bot" "--keep" "5-3");
    golden!("push", site, "push" "monitor-bot" "code-reviewer");
    golden!("push_again", site, "push" "monitor-bot");
    golden!("push_log", site, "log" "-n" "1" "monitor-bot");
    golden!("push_undo", site, "undo" "monitor-bot");
    let hash = site
        .run(["push", "monitor-bot", "--dry-run", "--json"])
        .json()["plan"]["hash"]
        .as_str()
        .unwrap()
        .to_string();
    site.append(MONITOR_MEMORY, "- a third\n");
    let ran = site
        .run(["push", "monitor-bot", "--plan", hash.as_str()])
        .assert_code(0);
    assert!(ran.stdout.contains("kept 3 lines"), "{}", ran.stdout);
    let edited = Site::read_baseline("monitor-bot").replacen("1. ", "1. Only: ", 1);
    site.write("baselines/monitor-bot-MEMORY.md", edited);
    let ran = site
        .run(["reset", "--all", "--keep-scratch"])
        .assert_code(0);
    assert!(
        ran.stdout.contains("Pushed the baseline to monitor-bot"),
        "{}",
        ran.stdout
    );
}

#[test]
fn broken_archive_output_matches_goldens() {
    let site = site_with_notes_and_drift();
    let _ = site.run(["reset", "--all"]).assert_code(0);
    let ledger = site.read("archives/.shepherd/ledger.jsonl");
    site.write(
        "archives/.shepherd/ledger.jsonl",
        ledger.replacen("\"ok\"", "\"no\"", 1),
    );
    let entry = format!("archives/monitor/{}", site.entry_names("monitor")[0]);
    site.append(&entry, "x");
    golden!("verify_broken", site, "verify" "--anchor" "9:0000000000000000000000000000000000000000000000000000000000000000");
    golden!("verify_broken_json", site, "verify" "--json");
    golden!("verify_misused", site, "verify" "--anchor" "9");
}

#[test]
fn baseline_output_matches_goldens() {
    let site = site_with_notes_and_drift();
    golden!("baseline_list_unsealed", site, "baseline" "list");
    let _ = site.run(["seal", "--all"]).assert_code(0);
    let _ = site.run(["reset", "--all"]).assert_code(0);
    site.append("baselines/monitor-bot-MEMORY.md", "- obey\n");
    golden!("baseline_list", site, "baseline" "list");
    golden!("baseline_list_json", site, "baseline" "list" "--json");
    golden!("seal_dry_run_json", site, "seal" "--dry-run" "--json");
    golden!("guard", site, "guard" "--once");
    golden!("guard_again_json", site, "guard" "--once" "--json");
    golden!("baseline_restore", site, "baseline" "restore" "monitor-bot");
    golden!("baseline_history", site, "baseline" "history" "monitor-bot");
    golden!("baseline_history_json", site, "baseline" "history" "monitor-bot" "--json");
    golden!("baseline_show_unknown", site, "baseline" "show" "monitor-bot" "--version" "newest");
    golden!("baseline_diff_equal", site, "baseline" "diff" "monitor-bot");
    golden!("baseline_diff", site, "baseline" "diff" "monitor-bot" "--old" "previous");
    golden!("baseline_diff_json", site, "baseline" "diff" "monitor-bot" "--old" "previous" "--json");
    golden!("baseline_new", site, "baseline" "new" "scout-MEMORY.md" "--from" "monitor-bot");
    golden!("baseline_new_again", site, "baseline" "new" "scout-MEMORY.md");
    golden!("baseline_replace_dry_run", site, "baseline" "replace" "--dry-run" "--all" "--regex" "^## (Critical) Rules$" "## $1 Laws");
    golden!("baseline_replace_json", site, "baseline" "replace" "every three hours" "every four hours" "monitor-bot" "--json");
    golden!("baseline_replace_nothing", site, "baseline" "replace" "no such words" "x" "monitor-bot");
    golden!("baseline_replace_misused", site, "baseline" "replace" "--regex" "(" "x" "monitor-bot");
    let _ = site
        .run(["baseline", "restore", "monitor-bot"])
        .assert_code(0);
    golden!("seal_nothing", site, "seal");
    golden!("verify_sealed", site, "verify");
    golden!("help_seal", site, "seal" "--help");
}

#[test]
fn archive_output_matches_goldens() {
    let site = site_with_notes_and_drift();
    golden!("archive_empty", site, "archive" "list");
    for old in ["2026-01-02_0100.md", "2026-01-03_0100-full-backup.md"] {
        let name = format!("archives/monitor/{old}");
        site.write(&name, "- an old note\n");
        let file = fs::File::options()
            .write(true)
            .open(site.path(&name))
            .unwrap();
        let past = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_767_322_800);
        file.set_modified(past).unwrap();
    }
    let now = memory_shepherd::base::clock::Clock::now(&memory_shepherd::base::clock::SystemClock);
    insert_earlier_run(&site.path("archives"), "monitor-bot", now, 2);
    golden!("archive_dry_run", site, "reset" "--all" "--dry-run");
    golden!("archive_pin", site, "archive" "pin" "monitor/2026-01-02_0100.md");
    golden!("archive_pin_again", site, "archive" "pin" "monitor/2026-01-02_0100.md");
    golden!("archive_pin_missing", site, "archive" "pin" "monitor/2026-01-09_0100.md");
    golden!("archive_pin_json", site, "archive" "pin" "--json" "monitor/2026-01-02_0100.md");
    let _ = site
        .run(["reset", "--all"])
        .assert_code(0)
        .assert_stdout_has("Deleted 1 entry older than 30 days");
    golden!("archive_list", site, "archive" "list");
    golden!("archive_list_json", site, "archive" "list" "--json" "code-reviewer");
    golden!("archive_log", site, "log");
    golden!("archive_unpin", site, "archive" "unpin" "monitor/2026-01-02_0100.md");
    golden!("archive_verify", site, "verify");
}

#[test]
fn search_output_matches_goldens() {
    let site = Site::new();
    let header = "# monitor scratch notes \u{2014} archived 2026-01-02_0100\n\n";
    for (name, text) in [
        (
            "monitor/2026-01-02_0100.md",
            "- the Token loop in auth_module\n- and \u{1b}[31mtoken\u{202e} again\n",
        ),
        ("monitor/2026-01-03_0100.md", "- token\n"),
        (
            "team/left/2026-01-04_0100-full-backup.md",
            "- a token of an agent that left\n",
        ),
    ] {
        site.write(&format!("archives/{name}"), format!("{header}{text}"));
    }
    site.append(MONITOR_MEMORY, "- a token in the memory\n");
    golden!("search", site, "archive" "search" "token");
    golden!("search_json", site, "archive" "search" "token" "loop" "--json");
    golden!("search_limit", site, "archive" "search" "token in:archive" "--limit" "1" "--order" "oldest");
    golden!("search_filter", site, "archive" "search" "token" "--agent" "left" "--since" "2026");
    golden!("search_similar", site, "archive" "search" "tokne loop in:archive");
    golden!("search_nothing", site, "archive" "search" "no such words");
    golden!("search_relaxed", site, "archive" "search" "\"again token\" in:archive" "--since" "2026-01-02");
    golden!("search_relaxed_json", site, "archive" "search" "token" "kind:late" "--json");
    golden!("search_mistake", site, "archive" "search" "token since:soon");
    golden!("search_list_left", site, "archive" "list" "team/left");
    golden!("search_show", site, "archive" "show" "monitor/2026-01-02_0100.md");
    golden!("search_show_json", site, "archive" "show" "monitor/2026-01-03_0100.md" "--json");
    golden!("search_show_missing", site, "archive" "show" "monitor/2026-01-09_0100.md");
    golden!("search_reindex", site, "archive" "reindex");
    golden!("search_export", site, "archive" "export" "--agent" "left" "--to" "copies");
    golden!("search_export_again", site, "archive" "export" "--agent" "left" "--to" "copies");
    golden!("search_help", site, "archive" "search" "--help");
}

#[test]
fn error_output_matches_goldens() {
    let site = site_with_notes_and_drift();
    golden!("unknown_agent", site, "reset" "monitor");
    golden!("unknown_verb", site, "stauts");
    golden!("help", site, "--help");
    golden!("help_reset", site, "reset" "--help");
    site.write(
        "bad.conf",
        "[general]\nmax_memory_size=lots\n[a b]\n[x]\nmemroy_file=/x\n\u{1b}[31m\n",
    );
    golden!("bad_config", site, "--config" "bad.conf" "status");
    golden!("bad_config_check", site, "--config" "bad.conf" "config" "check");
    golden!("bad_config_json", site, "--config" "bad.conf" "status" "--json");
}
