//! A disk that fills up in the middle of a record.

use super::super::fixture::{PROGRAM_PATH, Site};
use crate::skip::skip_missing_tool;

/// Limits the size of files in bytes: a longer write is cut short, as on a full disk.
fn run_with_file_limit(site: &Site, bytes: usize) -> super::super::fixture::CommandOutput {
    let mut command = assert_cmd::Command::new("prlimit");
    command
        .arg(format!("--fsize={bytes}"))
        .args([PROGRAM_PATH, "reset", "monitor-bot"])
        .current_dir(&site.dir);
    site.run_command(&mut command)
}

#[test]
fn full_disk_leaves_ledger_that_next_run_continues() {
    let site = Site::new();
    let ledger = "archives/.shepherd/ledger.jsonl";
    let note = |text: &str| {
        site.append(
            "agents/monitor-bot/MEMORY.md",
            format!("- a note, {text}\n"),
        );
    };
    for number in 0..8 {
        note(&number.to_string());
        let _ = site.run(["reset", "--all"]).assert_code(0);
    }
    let before = site.read(ledger);
    note("and one more");
    // Enough for the entry, the memory and a part of the record.
    let ran = run_with_file_limit(&site, before.len() + 100);
    if ran.exit_code == 127 || ran.stderr.contains("unrecognized option") {
        return skip_missing_tool("prlimit");
    }
    let ran = ran
        .assert_code(3)
        .assert_stderr_has("not recorded: cannot append to");
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    assert_eq!(site.read(ledger), before, "a part of the record remains");
    // The next run settles and records the interrupted work.
    let _ = site.run(["reset", "--all"]).assert_code(0);
    let _ = site.run(["verify"]).assert_code(0);
    let after = site.read(ledger);
    assert!(after.starts_with(&before) && after.len() > before.len());
    assert!(after.contains("finished since"), "{after}");
    // Complete reads of the ledger find no fault.
    let _ = site.run(["undo", "monitor-bot"]).assert_code(0);
    assert!(
        site.read("agents/monitor-bot/MEMORY.md")
            .ends_with("and one more\n")
    );
}
