//! Leftovers of a crash at the end of a ledger, and damage that only manual edits
//! cause.

use super::*;
use memory_shepherd::engine::{Operation, UndoMode};

fn log(world: &World) -> PathBuf {
    world.archive_directory().join("reset.log")
}

/// A world with three runs, whose log mentions the second one last: the third began to
/// append its records and did not finish.
fn world_with_interrupted_run() -> (World, Vec<String>) {
    let world = world_with_three_runs();
    let text = fs::read_to_string(log(&world)).unwrap();
    let last = text.rfind("ended: ").unwrap();
    let line = text[..last].rfind('\n').unwrap();
    fs::write(log(&world), &text[..=line]).unwrap();
    let ledger = fs::read_to_string(ledger_path(&world)).unwrap();
    (world, ledger.lines().map(str::to_string).collect())
}

/// Possible leftovers of an append of two records.
fn torn_tails(lines: &[String]) -> Vec<Vec<u8>> {
    let [.., one, two] = lines else { panic!() };
    let whole = format!("{one}\n{two}\n").into_bytes();
    let with = |range: std::ops::Range<usize>, byte: u8| {
        let mut bytes = whole.clone();
        bytes[range].fill(byte);
        bytes
    };
    let (first, length) = (one.len(), whole.len());
    vec![
        // The first page is lost, the second one is present.
        with(0..first / 2, 0),
        with(0..first, 0),
        with(0..first + 1, 0),
        with(5..length - 1, 0),
        with(0..first / 2, b'x'),
        with(first / 2..first + 20, b'\n'),
        vec![b'\n'; 700],
        b"\n".to_vec(),
        [vec![0; 4095], b"\n".to_vec()].concat(),
        [&whole[..first / 2], b"\n"].concat(),
    ]
}

#[test]
fn torn_append_ending_in_line_feed_is_cut() {
    let (world, lines) = world_with_interrupted_run();
    let kept = lines[..4].join("\n") + "\n";
    for (number, tail) in torn_tails(&lines).into_iter().enumerate() {
        fs::write(ledger_path(&world), [kept.as_bytes(), &tail].concat()).unwrap();
        let found = verify(&world.engine(), None);
        assert_eq!(found.findings, [], "tail {number}");
        assert_eq!(
            (found.ledger.seq, found.ledger.torn_bytes),
            (4, tail.len() as u64)
        );
        assert_eq!(world.read_records().len(), 4, "tail {number}");
        assert!(world.observe("scout").ledger_error.is_none());
        world.write_scratch("scout", format!("- after tail {number}\n"));
        assert_eq!(world.reset().report.worst_kind(), None, "tail {number}");
        let records = world.read_records();
        assert_eq!(records.len(), 7, "tail {number}");
        assert_eq!(records[4].event.operation, Operation::Repair);
        let note = records[4].event.note.clone().unwrap();
        assert_eq!(
            note,
            format!(
                "cut {} bytes of unfinished records, kept as ledger.torn",
                tail.len()
            )
        );
        let torn = world.archive_directory().join(".shepherd/ledger.torn");
        assert_eq!(fs::read(torn).unwrap(), tail);
        assert_eq!(findings(&world), []);
        world.undo("scout", UndoMode::Refuse).assert_ok();
        fs::remove_file(log(&world)).unwrap();
    }
}

#[test]
fn changed_record_is_not_a_torn_append() {
    let (world, lines) = world_with_interrupted_run();
    let broken = |lines: &[String], what: &str| {
        fs::write(ledger_path(&world), lines.join("\n") + "\n").unwrap();
        let found = findings(&world);
        assert!(
            found.iter().any(|it| it.0 == FindingSubject::Ledger),
            "{what}: {found:?}"
        );
        assert!(world.observe("scout").ledger_error.is_some(), "{what}");
        world.write_scratch("scout", "- note\n");
        let ran = world.reset();
        assert_eq!(
            ran.report.worst_kind(),
            Some(ErrorKind::Integrity),
            "{what}"
        );
        assert!(world.read_memory("scout").ends_with(b"- note\n"), "{what}");
    };
    // Not a record, before records of another run.
    let mut all = lines.clone();
    all[3] = "nonsense".to_string();
    broken(&all, "nonsense before another run");
    // A record that does not continue the one before.
    let mut all = lines.clone();
    all.remove(4);
    broken(&all, "removed");
    let mut all = lines.clone();
    all[4] = all[4].replacen("tester", "hacker", 1);
    broken(&all, "changed");
}

#[test]
fn damage_to_logged_record_is_not_a_torn_append() {
    let world = world_with_three_runs();
    let whole = fs::read(ledger_path(&world)).unwrap();
    let lines = String::from_utf8(whole.clone()).unwrap();
    let last = lines.lines().last().unwrap().len();
    let start = whole.len() - last - 1;
    let mut zeros = whole.clone();
    zeros[start..start + last].fill(0);
    for (what, bytes) in [
        ("zeros", zeros),
        ("cut", whole[..whole.len() - 9].to_vec()),
        ("without its line feed", whole[..whole.len() - 1].to_vec()),
    ] {
        fs::write(ledger_path(&world), bytes).unwrap();
        let found = findings(&world);
        assert!(
            found.iter().any(|it| it.0 == FindingSubject::Ledger),
            "{what}: {found:?}"
        );
        world.write_scratch("scout", "- note\n");
        assert_eq!(
            world.reset().report.worst_kind(),
            Some(ErrorKind::Integrity),
            "{what}"
        );
    }
    // Moved away as evidence together with the log, the ledger does not block a new
    // one, torn or not.
    fs::remove_file(log(&world)).unwrap();
    fs::write(ledger_path(&world), b"{\"seq\":1,\"pre\0\n").unwrap();
    assert_eq!(world.reset().report.worst_kind(), None);
    assert_eq!(findings(&world), []);
}

#[test]
fn verify_compares_logged_heads() {
    let world = world_with_three_runs();
    assert_eq!(verify(&world.engine(), None).is_log_valid, Some(true));
    let text = fs::read_to_string(ledger_path(&world)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    // Whole records are cut off: the chain is intact.
    fs::write(ledger_path(&world), lines[..4].join("\n") + "\n").unwrap();
    assert_single_finding(
        &world,
        FindingSubject::Log,
        "ends with record 4, but record 6 is in reset.log",
    );
    // The last record is another one.
    let changed = lines[5].replacen("tester", "hacker", 1);
    let all = [&lines[..5], &[changed.as_str()]].concat();
    fs::write(ledger_path(&world), all.join("\n") + "\n").unwrap();
    assert_single_finding(
        &world,
        FindingSubject::Log,
        "does not have the logged digest",
    );
    // Text that agents place in a run's messages does not count as a head.
    fs::write(ledger_path(&world), &text).unwrap();
    let forged = format!("ran ended: 1 ok; ledger head 9:{}", Digest::ZERO);
    std::os::unix::fs::symlink(forged, world.agent_directory("scout").join("link")).unwrap();
    fs::rename(
        world.agent_directory("scout").join("link"),
        world.memory_path("scout"),
    )
    .unwrap();
    assert_eq!(world.reset().report.worst_kind(), None);
    assert_eq!(verify(&world.engine(), None).is_log_valid, Some(true));
    // After a rotation the old log reveals it; without any log the check is silent.
    let old = world.archive_directory().join("reset.log.old");
    fs::rename(log(&world), &old).unwrap();
    assert_eq!(verify(&world.engine(), None).is_log_valid, Some(true));
    fs::remove_file(old).unwrap();
    assert_eq!(verify(&world.engine(), None).is_log_valid, None);
}

#[test]
fn later_runs_do_not_hide_truncated_ledger() {
    let world = world_with_three_runs();
    let text = fs::read_to_string(ledger_path(&world)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    fs::write(ledger_path(&world), lines[..4].join("\n") + "\n").unwrap();
    for note in ["- more\n", "- still more\n"] {
        world.write_scratch("scout", note);
        assert_eq!(world.reset().report.worst_kind(), None);
    }
    assert_single_finding(
        &world,
        FindingSubject::Log,
        "does not have the logged digest",
    );
}
