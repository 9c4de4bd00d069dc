//! Tests of the archive: names of entries, and its directories.

use chrono::{DateTime, FixedOffset, Timelike};

use super::*;

fn parse_time(text: &str) -> DateTime<FixedOffset> {
    DateTime::parse_from_rfc3339(text).unwrap()
}

#[test]
fn entry_names_match_original_and_round_trip() {
    let time = parse_time("2026-03-14T09:00:59+01:00").naive_local();
    for (kind, number, name) in [
        (EntryKind::Scratch, 0, "2026-03-14_0900.md"),
        (EntryKind::Scratch, 2, "2026-03-14_0900-2.md"),
        (EntryKind::FullBackup, 0, "2026-03-14_0900-full-backup.md"),
        (EntryKind::FullBackup, 1, "2026-03-14_0900-full-backup-1.md"),
        (EntryKind::Late, 0, "2026-03-14_0900-late.md"),
        (EntryKind::Special, 3, "2026-03-14_0900-odd-3.md"),
        (EntryKind::Appended, 0, "2026-03-14_0900-appended.md"),
        (EntryKind::Redacted, 1, "2026-03-14_0900-redacted-1.md"),
    ] {
        assert_eq!(format_entry_name(time, kind, number), name);
        let expected = (time.with_second(0), kind, number);
        let (stamp, kind, number) = parse_entry_name(name).unwrap();
        assert_eq!((Some(stamp), kind, number), expected);
    }
    for name in [
        "notes.md",
        "2026-03-14_0900.txt",
        "2026-03-14_0900-0.md",
        "2026-03-14_0900-05.md",
        "2026-03-14_0900-+5.md",
        "2026-03-14_0900-.md",
        "2026-03-14_0900-other.md",
        "2026-13-14_0900.md",
        "2026-03-14_0900 .md",
        "+026-03-14_0900.md",
        "é026-03-14_0900.md",
    ] {
        assert_eq!(parse_entry_name(name), None, "{name}");
    }
}

#[test]
fn scratch_of_entry_is_verbatim() {
    let time = parse_time("2026-03-14T09:00:00+01:00");
    let scratch = "\n\n## Scratch Notes\n\n- a\n";
    let entry = format!("{}{scratch}", format_scratch_header("scout", time));
    assert!(entry.starts_with("# scout scratch notes — archived 2026-03-14_0900\n\n"));
    assert_eq!(
        strip_scratch_header(entry.as_bytes()),
        Some(scratch.as_bytes())
    );
    assert_eq!(strip_scratch_header(b"no header\n\nx"), None);
}

#[test]
fn symlink_as_own_directory_has_a_hint_that_helps() {
    let directory = tempfile::tempdir().unwrap();
    let archive = Archive::new(&directory.path().canonicalize().unwrap(), 0o644, None);
    archive
        .open_or_create_directory(Path::new("scout"))
        .unwrap();
    let out = archive.root().join("out");
    std::fs::create_dir(&out).unwrap();
    for name in ["scout/quarantine", ".shepherd"] {
        let path = archive.root().join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::os::unix::fs::symlink(&out, &path).unwrap();
        let error = archive.open_or_create_directory(Path::new(name));
        let error = error.unwrap_err();
        assert!(error.message().contains("is a symlink"), "{error}");
        let hint = error.hints().join("; ");
        assert!(hint.starts_with("remove the symlink"), "{hint}");
        std::fs::remove_file(&path).unwrap();
        archive.open_or_create_directory(Path::new(name)).unwrap();
    }
}

#[test]
fn directory_right_below_the_archive_is_no_quarantine() {
    for (path, expected) in [
        ("quarantine/2026-03-14_0900.md", false),
        ("quarantine/quarantine/2026-03-14_0900.md", true),
        ("team/scout/quarantine/2026-03-14_0900.md", true),
        ("scout/quarantined/2026-03-14_0900.md", false),
        ("2026-03-14_0900.md", false),
    ] {
        assert_eq!(is_quarantined(Path::new(path)), expected, "{path}");
    }
}
