//! What a run asks of the kernel does not grow with what stands there already.

use std::fs;

use super::scene::{Had, Scene, said};
use super::trace::{can_trace, record};

/// Entries that an archive has of one minute already.
const TAKEN: usize = 1_000;

#[test]
fn an_entry_finds_its_name_among_thousands_of_the_same_minute() {
    if !can_trace() {
        return;
    }
    let scene = Scene::new(&[("scout", Had::scratch("- a note\n"))]);
    let folder = scene.fleet.archive.join("scout");
    fs::create_dir_all(&folder).unwrap();
    // The run may begin in this minute and name its entry in the next.
    let now = chrono::Utc::now();
    for minute in 0..2 {
        let stamp = now + chrono::TimeDelta::minutes(minute);
        let stamp = stamp.format("%Y-%m-%d_%H%M");
        fs::write(folder.join(format!("{stamp}.md")), "").unwrap();
        for number in 1..TAKEN {
            fs::write(folder.join(format!("{stamp}-{number}.md")), "").unwrap();
        }
    }
    let (output, calls) = record(&scene.fleet, &scene.log, &["reset", "--all"]);
    assert!(output.status.success(), "{}", said(&output));
    let number = format!("-{TAKEN}.md");
    let entries = scene.fleet.entries("scout");
    assert!(entries.keys().any(|name| name.ends_with(&number)));
    let tried = calls.iter().filter(|call| call.text.contains(".md\""));
    let tried = tried.filter(|call| ["linkat", "newfstatat"].contains(&call.name.as_str()));
    let tried = tried.count();
    assert!((1..=40).contains(&tried), "{tried} names were tried");
}
