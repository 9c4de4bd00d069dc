//! What a crash leaves at the end of a ledger, and what only somebody's hand does.

use super::*;
use memory_shepherd::engine::{Operation, UndoMode};

fn log(world: &World) -> PathBuf {
    world.archive().join("reset.log")
}

/// A world with three runs, whose log tells of the second one last: the third came to
/// append its records, and not to its end.
fn interrupted() -> (World, Vec<String>) {
    let world = lived();
    let text = fs::read_to_string(log(&world)).unwrap();
    let last = text.rfind("ended: ").unwrap();
    let line = text[..last].rfind('\n').unwrap();
    fs::write(log(&world), &text[..=line]).unwrap();
    let ledger = fs::read_to_string(ledger(&world)).unwrap();
    (world, ledger.lines().map(str::to_string).collect())
}

/// What a crash may leave of an append of two records.
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
        // The first page is lost, the second one is there.
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
fn torn_append_that_ends_with_a_line_feed_is_cut_off() {
    let (world, lines) = interrupted();
    let kept = lines[..4].join("\n") + "\n";
    for (number, tail) in torn_tails(&lines).into_iter().enumerate() {
        fs::write(ledger(&world), [kept.as_bytes(), &tail].concat()).unwrap();
        let found = verify(&world.engine(), None);
        assert_eq!(found.findings, [], "tail {number}");
        assert_eq!(
            (found.ledger.seq, found.ledger.torn_bytes),
            (4, tail.len() as u64)
        );
        assert_eq!(world.records().len(), 4, "tail {number}");
        assert!(world.observe("scout").ledger_error.is_none());
        world.write_scratch("scout", format!("- after tail {number}\n"));
        assert_eq!(world.reset().report.worst_kind(), None, "tail {number}");
        let records = world.records();
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
        let torn = world.archive().join(".shepherd/ledger.torn");
        assert_eq!(fs::read(torn).unwrap(), tail);
        assert_eq!(findings(&world), []);
        world.undo("scout", UndoMode::Refuse).ok();
        fs::remove_file(log(&world)).unwrap();
    }
}

#[test]
fn record_that_somebody_changed_is_no_torn_append() {
    let (world, lines) = interrupted();
    let broken = |lines: &[String], what: &str| {
        fs::write(ledger(&world), lines.join("\n") + "\n").unwrap();
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
        assert!(world.read("scout").ends_with(b"- note\n"), "{what}");
    };
    // No record, before records of another run.
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
fn damage_to_what_the_log_tells_of_is_no_torn_append() {
    let world = lived();
    let whole = fs::read(ledger(&world)).unwrap();
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
        fs::write(ledger(&world), bytes).unwrap();
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
    // Moved away as evidence with the log, it is not in the way of a new one, torn or not.
    fs::remove_file(log(&world)).unwrap();
    fs::write(ledger(&world), b"{\"seq\":1,\"pre\0\n").unwrap();
    assert_eq!(world.reset().report.worst_kind(), None);
    assert_eq!(findings(&world), []);
}

#[test]
fn verify_looks_for_the_heads_in_the_log() {
    let world = lived();
    assert_eq!(verify(&world.engine(), None).is_log_valid, Some(true));
    let text = fs::read_to_string(ledger(&world)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    // Whole records are cut off: the chain is whole.
    fs::write(ledger(&world), lines[..4].join("\n") + "\n").unwrap();
    finds(
        &world,
        FindingSubject::Log,
        "ends with record 4, but record 6 is in reset.log",
    );
    // The last record is another one.
    let changed = lines[5].replacen("tester", "hacker", 1);
    let all = [&lines[..5], &[changed.as_str()]].concat();
    fs::write(ledger(&world), all.join("\n") + "\n").unwrap();
    finds(
        &world,
        FindingSubject::Log,
        "does not have the logged digest",
    );
    // What agents may have a run say is no head.
    fs::write(ledger(&world), &text).unwrap();
    let forged = format!("ran ended: 1 ok; ledger head 9:{}", Digest::ZERO);
    std::os::unix::fs::symlink(forged, world.folder("scout").join("link")).unwrap();
    fs::rename(world.folder("scout").join("link"), world.memory("scout")).unwrap();
    assert_eq!(world.reset().report.worst_kind(), None);
    assert_eq!(verify(&world.engine(), None).is_log_valid, Some(true));
    // Rotated, the old log tells it; without any, nothing is told.
    let old = world.archive().join("reset.log.old");
    fs::rename(log(&world), &old).unwrap();
    assert_eq!(verify(&world.engine(), None).is_log_valid, Some(true));
    fs::remove_file(old).unwrap();
    assert_eq!(verify(&world.engine(), None).is_log_valid, None);
}

#[test]
fn runs_after_a_cut_ledger_do_not_hide_it() {
    let world = lived();
    let text = fs::read_to_string(ledger(&world)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    fs::write(ledger(&world), lines[..4].join("\n") + "\n").unwrap();
    for note in ["- more\n", "- still more\n"] {
        world.write_scratch("scout", note);
        assert_eq!(world.reset().report.worst_kind(), None);
    }
    finds(
        &world,
        FindingSubject::Log,
        "does not have the logged digest",
    );
}
