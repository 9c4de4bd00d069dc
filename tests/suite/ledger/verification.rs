//! Findings of `verify`.

use super::*;

#[test]
fn sound_archive_has_no_findings() {
    let world = World::new(&["scout"]);
    let found = verify(&world.engine(), None);
    assert_eq!((found.worst_kind(), found.counts.lines), (None, 0));
    let world = world_with_three_runs();
    world.write_seal();
    let found = verify(&world.engine(), None);
    assert_eq!(found.findings, []);
    assert_eq!(found.notes, Vec::<String>::new());
    assert_eq!((found.counts.lines, found.counts.entries), (6, 6));
    assert_eq!(
        (found.counts.versions, found.counts.sealed_baselines),
        (1, 2)
    );
    assert_eq!(found.ledger.seq, 6);
}

#[test]
fn changed_removed_or_moved_line_is_found() {
    let world = world_with_three_runs();
    let path = ledger_path(&world);
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let check = |lines: &[&str], at: usize, what: &str| {
        fs::write(&path, lines.join("\n") + "\n").unwrap();
        let found = findings(&world);
        let mut about = found.iter().filter(|it| it.0 == FindingSubject::Ledger);
        let first = about.next().unwrap_or_else(|| panic!("{what}: {found:?}"));
        assert_eq!(first.1, ErrorKind::Integrity);
        let begin = match (at, what) {
            // A ledger may begin with segments.
            (1, "removed" | "moved") => "record 1 is missing: ".to_string(),
            _ => format!("line {at}: "),
        };
        assert!(first.2.starts_with(&begin), "{what}: {first:?}");
    };
    for at in 0..lines.len() - 1 {
        let changed = lines[at].replacen("tester", "hacker", 1);
        let mut all = lines.clone();
        all[at] = &changed;
        check(&all, at + 2, "changed");
        let mut all = lines.clone();
        all.remove(at);
        check(&all, at + 1, "removed");
        let mut all = lines.clone();
        all.swap(at, at + 1);
        check(&all, at + 1, "moved");
        let mut all = lines.clone();
        all[at] = "nonsense";
        check(&all, at + 1, "nonsense");
    }
    // The remaining checks still run.
    let mut all = lines.clone();
    all[1] = "nonsense";
    all[4] = "nonsense";
    fs::write(&path, all.join("\n") + "\n").unwrap();
    let found = findings(&world);
    let about = |about| found.iter().filter(|it| it.0 == about).count();
    assert_eq!(
        (about(FindingSubject::Ledger), found.len()),
        (2, 2),
        "{found:?}"
    );
}

#[test]
fn anchor_reveals_truncated_or_replaced_ledger() {
    let world = world_with_three_runs();
    let engine = world.engine();
    super::super::world::records(&engine).unwrap();
    let head = engine.ledger().head().unwrap();
    let text = fs::read(ledger_path(&world)).unwrap();
    assert_eq!(verify(&engine, Some(head)).is_anchor_valid, Some(true));
    // An older head remains valid after further runs.
    world.write_scratch("scout", "- more\n");
    world.reset();
    let found = verify(&world.engine(), Some(head));
    assert_eq!(
        (found.is_anchor_valid, found.worst_kind()),
        (Some(true), None)
    );
    let bad = |anchor, words: &str| {
        let found = verify(&world.engine(), Some(anchor));
        assert_eq!(
            (found.is_anchor_valid, found.worst_kind()),
            (Some(false), Some(ErrorKind::Integrity))
        );
        let said: Vec<_> = found
            .findings
            .iter()
            .map(|it| it.message.as_str())
            .collect();
        assert!(said.iter().any(|it| it.contains(words)), "{said:?}");
    };
    bad((head.0, Digest::ZERO), "does not have the noted digest");
    bad((head.0 - 1, head.1), "does not have the noted digest");
    // Cut off at the end.
    let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    fs::write(ledger_path(&world), lines[..4].concat()).unwrap();
    assert!(
        !findings(&world)
            .iter()
            .any(|it| it.0 == FindingSubject::Ledger)
    );
    bad(head, "ends with record 4, but record 6 was noted");
    // Rewritten as a whole.
    let other = world_with_three_runs();
    fs::copy(ledger_path(&other), ledger_path(&world)).unwrap();
    bad(head, "does not have the noted digest");
    fs::remove_file(ledger_path(&world)).unwrap();
    bad(head, "ends with record 0");
}

#[test]
fn torn_last_line_is_a_note() {
    let world = world_with_three_runs();
    let mut text = fs::read(ledger_path(&world)).unwrap();
    text.extend_from_slice(b"{\"seq\":7,\"pre");
    fs::write(ledger_path(&world), text).unwrap();
    let found = verify(&world.engine(), None);
    assert_eq!((found.worst_kind(), found.ledger.torn_bytes), (None, 13));
    assert!(
        found.notes[0].contains("unfinished record"),
        "{:?}",
        found.notes
    );
}

#[test]
fn changed_or_missing_entry_is_found() {
    let world = world_with_three_runs();
    let entry = world
        .archive_directory()
        .join("scout")
        .join(&world.entry_names("scout")[1]);
    let bytes = fs::read(&entry).unwrap();
    let text = String::from_utf8(bytes.clone()).unwrap();
    fs::write(&entry, text.replacen("- ", "+ ", 1)).unwrap();
    assert_single_finding(&world, FindingSubject::Entry, "its digest differs (record ");
    fs::write(&entry, &bytes[1..]).unwrap();
    assert_single_finding(&world, FindingSubject::Entry, " bytes instead of ");
    fs::remove_file(&entry).unwrap();
    assert_single_finding(
        &world,
        FindingSubject::Entry,
        "is missing, and retention did not delete it",
    );
    std::os::unix::fs::symlink("/etc/passwd", &entry).unwrap();
    assert_single_finding(&world, FindingSubject::Entry, "is no longer a file");
    fs::remove_file(&entry).unwrap();
    fs::write(&entry, &bytes).unwrap();
    assert_eq!(findings(&world), []);
}

#[test]
fn entry_outside_archive_is_never_read() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    world.reset().assert_ok();
    fs::remove_file(world.archive_directory().join("reset.log")).unwrap();
    let text = fs::read_to_string(ledger_path(&world)).unwrap();
    let name = format!("scout/{}", world.entry_names("scout")[0]);
    for path in [
        "../agents/scout/MEMORY.md",
        "/etc/passwd",
        ".shepherd/ledger.jsonl",
        "",
    ] {
        assert!(text.contains(&name));
        fs::write(ledger_path(&world), text.replacen(&name, path, 1)).unwrap();
        assert_single_finding(&world, FindingSubject::Entry, "is not a path of an entry");
    }
}

#[test]
fn log_without_heads_is_named_as_not_checked() {
    let world = World::new(&["scout"]);
    let checked = |expected: Option<bool>, text: &str| {
        let found = verify(&world.engine(), None);
        assert_eq!(found.findings, []);
        assert_eq!(found.is_log_valid, expected);
        assert!(
            found.describe_log().contains(text),
            "{}",
            found.describe_log()
        );
    };
    checked(None, "no heads logged yet");
    world.write_scratch("scout", "- note\n");
    world.reset().assert_ok();
    checked(Some(true), "are in the ledger");
    let log = world.archive_directory().join("reset.log");
    fs::write(&log, "").unwrap();
    checked(None, "NOT checked");
    fs::remove_file(log).unwrap();
    checked(None, "NOT checked");
}

#[test]
fn unusable_log_fails_run_and_verification() {
    let world = World::new(&["scout"]);
    let log = world.archive_directory().join("reset.log");
    fs::create_dir_all(&log).unwrap();
    world.write_scratch("scout", "- note\n");
    let ran = world.reset();
    assert_eq!(ran.report.count(Outcome::Ok), 1);
    assert_eq!(ran.report.worst_kind(), Some(ErrorKind::Host));
    let [error] = &ran.report.errors[..] else {
        panic!("{:?}", ran.report.errors);
    };
    assert!(error.to_string().contains("reset.log"), "{error}");
    let recorded = world.read_records().pop().unwrap().event;
    assert_eq!(recorded.note.as_deref(), Some(error.message()));
    let found = verify(&world.engine(), None).findings;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        (found[0].subject, found[0].kind),
        (FindingSubject::Log, ErrorKind::Host)
    );
    assert!(world.engine().verifier().last_logged_head().is_err());
}

#[test]
fn unrecorded_entries_are_counted_as_note() {
    let world = world_with_three_runs();
    let directory = world.archive_directory().join("scout");
    fs::write(directory.join("2025-12-31_2300.md"), "of the original").unwrap();
    fs::write(directory.join("notes.md"), "no entry").unwrap();
    let found = verify(&world.engine(), None);
    assert_eq!(
        (found.worst_kind(), found.counts.unrecorded_entries),
        (None, 1)
    );
    assert_eq!(
        found.notes[0],
        "1 entry is not in the ledger (written by the original script or an interrupted run)"
    );
}

#[test]
fn changed_versions_and_baselines_are_found() {
    let world = world_with_three_runs();
    let versions = world.archive_directory().join(".shepherd/baselines");
    let name = super::super::world::sorted_names(&versions).remove(0);
    let version = versions.join(name);
    let bytes = fs::read(&version).unwrap();
    fs::write(&version, b"other").unwrap();
    assert_single_finding(&world, FindingSubject::Version, "was changed");
    fs::remove_file(&version).unwrap();
    assert_single_finding(&world, FindingSubject::Version, "is missing");
    fs::write(&version, &bytes).unwrap();
    world.write_seal();
    world.set_baseline("scout", "# Other rules\n\n---\n");
    assert_single_finding(&world, FindingSubject::Baseline, "does not match its seal");
    fs::write(world.root.join("baselines/.checksums"), "nonsense\n").unwrap();
    assert_single_finding(&world, FindingSubject::Seal, "invalid line 1");
    // A baseline too small to be pushed does not count as tampering.
    fs::remove_file(world.root.join("baselines/.checksums")).unwrap();
    world.set_baseline("scout", "x");
    let found = verify(&world.engine(), None);
    assert_eq!(found.worst_kind(), None);
    assert!(
        found.notes[0].contains("min_baseline_size"),
        "{:?}",
        found.notes
    );
}

#[test]
fn verify_changes_nothing() {
    let world = world_with_three_runs();
    let before = snapshot_files(&world.root);
    verify(&world.engine(), None);
    assert_eq!(snapshot_files(&world.root), before);
}

fn snapshot_files(path: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let mut all = Vec::new();
    let mut directories = vec![path.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for item in fs::read_dir(directory).unwrap() {
            let path = item.unwrap().path();
            match path.is_dir() {
                true => directories.push(path),
                false => all.push((path.clone(), fs::read(path).ok())),
            }
        }
    }
    all.sort();
    all
}
