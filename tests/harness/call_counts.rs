//! The number of system calls of a run does not grow with the number of existing entries.

use std::fs;

use super::scene::{InitialMemory, Scene, output_text};
use super::strace::{can_trace, record_calls};

/// Existing entries of one minute in the archive.
const TAKEN_NAMES: usize = 1_000;

#[test]
fn entry_name_is_found_among_thousands_in_few_calls() {
    if !can_trace() {
        return;
    }
    let scene = Scene::new(&[("scout", InitialMemory::scratch("- a note\n"))]);
    let directory = scene.fleet.archive.join("scout");
    fs::create_dir_all(&directory).unwrap();
    // The run may begin in this minute and name its entry in the next.
    let now = chrono::Utc::now();
    for minute in 0..2 {
        let time = now + chrono::TimeDelta::minutes(minute);
        let stamp = time.format("%Y-%m-%d_%H%M");
        fs::write(directory.join(format!("{stamp}.md")), "").unwrap();
        for number in 1..TAKEN_NAMES {
            fs::write(directory.join(format!("{stamp}-{number}.md")), "").unwrap();
        }
    }
    let (output, calls) = record_calls(&scene.fleet, &scene.trace_log, &["reset", "--all"]);
    assert!(output.status.success(), "{}", output_text(&output));
    let number = format!("-{TAKEN_NAMES}.md");
    let entries = scene.fleet.entries("scout");
    assert!(entries.keys().any(|name| name.ends_with(&number)));
    let tried = calls
        .iter()
        .filter(|call| call.text.contains(".md\""))
        .filter(|call| ["linkat", "newfstatat"].contains(&call.name.as_str()))
        .count();
    assert!((1..=40).contains(&tried), "{tried} names were tried");
}
