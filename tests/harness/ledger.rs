//! A ledger of many records: its readers hold few of them in memory.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use memory_shepherd::base::digest::Digest;
use memory_shepherd::engine::LedgerRecord;

use super::fixture::{BASELINE, Fleet, segment_names};
use super::full_harness::is_full_harness;
use super::processes::{RunningProgram, test_directory, wait_for};
use super::scene::assert_ok;

/// Appends copies of the ledger's records, as later runs would.
fn append_records(ledger: &Path, count: u64) {
    let text = fs::read_to_string(ledger).unwrap();
    let records: Vec<LedgerRecord> = text
        .lines()
        .map(|line| LedgerRecord::parse(line.as_bytes()).unwrap())
        .collect();
    let mut prev = Digest::of(text.lines().last().unwrap().as_bytes());
    let mut file = BufWriter::new(File::options().append(true).open(ledger).unwrap());
    for number in 0..count {
        let mut record = records[number as usize % records.len()].clone();
        record.seq = records.len() as u64 + 1 + number;
        record.previous_digest = prev;
        record.event.run = format!("{:08x}", number / records.len() as u64);
        let line = serde_json::to_string(&record).unwrap();
        prev = Digest::of(line.as_bytes());
        writeln!(file, "{line}").unwrap();
    }
    file.flush().unwrap();
}

/// Returns the address space that the program needs to start, in KiB.
fn least_address_space() -> u32 {
    let starts = |limit: u32| {
        let mut command = Command::new("/bin/sh");
        let script = format!("ulimit -c 0; ulimit -v {limit} && exec \"$0\" --version");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_memory-shepherd")]);
        let output = command.stdin(Stdio::null()).output().unwrap();
        output.status.success()
    };
    let (mut too_little, mut enough) = (10_000_u32, 1_000_000);
    assert!(starts(enough));
    while enough - too_little > 50 {
        let limit = too_little.midpoint(enough);
        if starts(limit) {
            enough = limit;
        } else {
            too_little = limit;
        }
    }
    enough
}

#[test]
fn long_ledger_is_read_in_bounded_memory() {
    let (_temporary, root) = test_directory(false);
    let agents = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let fleet = Fleet::new(&root, &root.join("archives"), &agents);
    for agent in agents {
        drop(fleet.append_note(agent, BASELINE));
        drop(fleet.append_note(agent, "- first\n"));
    }
    assert_ok(&fleet.run(&["reset", "--all"]));
    let count = if is_full_harness() { 1_000_000 } else { 12_000 };
    append_records(&fleet.archive.join(".shepherd/ledger.jsonl"), count);
    // Beside the code of the program, which a debug build has much of: less than the ledger's bytes,
    // let alone its parsed records.
    let kilobytes = least_address_space() + 5_200;
    let limit = format!("ulimit -v {kilobytes} && exec \"$@\"");
    let run = |arguments: &[&str]| {
        let command = fleet.command(&["/bin/sh", "-c", &limit, "sh"], arguments);
        let ended = RunningProgram::start(command).end_within(Duration::from_secs(600));
        assert_eq!(
            ended.code,
            Some(0),
            "{arguments:?}: {:.300} {}",
            ended.out,
            ended.err
        );
        ended.out
    };
    // Without an index, with one, and with most records in segments.
    for pass in 0..3 {
        assert_eq!(run(&["log", "-n", "3"]).lines().count(), 4);
        run(&["undo", "c", "--overwrite", "--dry-run"]);
        if pass != 1 {
            run(&["undo", "--run", "00000001", "--overwrite", "--dry-run"]);
            run(&["log", "b", "--json"]);
            run(&["doctor"]);
        }
        drop(fleet.append_note("d", "- second\n"));
        run(&["reset", "d"]);
    }
    assert!(!segment_names(&fleet.archive.join(".shepherd")).is_empty());
    // The next run settles what a killed run left.
    let writer = fleet.append_note("e", "- third\n");
    let mut killed = RunningProgram::start_on(&fleet, &["reset", "e"]);
    wait_for("a displaced file", || !fleet.leftovers("e").is_empty());
    killed.kill();
    killed.wait();
    drop(writer);
    run(&["reset", "e"]);
    assert_eq!(fleet.pending_journals(), [""; 0]);
    println!("{count} records read in 5,200 KiB beside the code");
}
