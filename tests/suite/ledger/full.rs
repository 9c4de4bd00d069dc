//! A disk that is full in the middle of a record.

use super::super::fixture::{PROGRAM, Site};

/// Files may have so many bytes and no more: a write is cut short there, as
/// on a disk that is full.
fn run_within(site: &Site, bytes: usize) -> super::super::fixture::Ran {
    let mut command = assert_cmd::Command::new("prlimit");
    command
        .arg(format!("--fsize={bytes}"))
        .args([PROGRAM, "reset", "monitor-bot"])
        .current_dir(&site.dir);
    site.ran(&mut command)
}

#[test]
fn leaves_a_ledger_that_the_next_run_continues() {
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
        let _ = site.run(["reset", "--all"]).code(0);
    }
    let before = site.read(ledger);
    note("and one more");
    // Enough for the entry, the memory and a part of the record.
    let ran = run_within(&site, before.len() + 100);
    if ran.code == 127 || ran.err.contains("unrecognized option") {
        return println!("skipped: no prlimit");
    }
    let ran = ran.code(3).warns("not recorded: cannot append to");
    assert!(!ran.err.contains("panicked"), "{}", ran.err);
    assert_eq!(site.read(ledger), before, "nothing of it stays");
    // What was done is settled and recorded by the next run.
    let _ = site.run(["reset", "--all"]).code(0);
    let _ = site.run(["verify"]).code(0);
    let after = site.read(ledger);
    assert!(after.starts_with(&before) && after.len() > before.len());
    assert!(after.contains("finished since"), "{after}");
    // Other reads of the whole find nothing wrong.
    let _ = site.run(["undo", "monitor-bot"]).code(0);
    assert!(
        site.read("agents/monitor-bot/MEMORY.md")
            .ends_with("and one more\n")
    );
}
