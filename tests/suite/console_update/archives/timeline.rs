//! The timeline of an agent on the archives screen.

use super::*;
use crate::archive_samples::agent_timeline;
use memory_shepherd::engine::{TimelineRow, TimelineSubject};

/// Opens the timeline of the agent under the cursor, which was read.
fn open(console: &mut TestConsole, agent: &str) {
    console.press("t");
    answer_timeline(console, agent);
}

fn answer_timeline(console: &mut TestConsole, agent: &str) -> Vec<Effect> {
    let number = last_number(console);
    let timeline = Ok(Box::new(agent_timeline(agent)));
    console.send(Msg::TimelineLoaded(number, timeline))
}

/// Number of the last request.
fn last_number(console: &TestConsole) -> u64 {
    console.model.archives.timeline.requests.last_id
}

fn timelines(effects: &[Effect]) -> Vec<TimelineSubject> {
    let requests = effects.iter().filter_map(|effect| match effect {
        Effect::LoadTimeline(_, subject) => Some(subject.clone()),
        _ => None,
    });
    requests.collect()
}

/// Path of the entry in a row of the timeline.
fn timeline_path(console: &TestConsole, row: usize) -> PathBuf {
    match &console.model.archives.timeline.rows()[row] {
        TimelineRow::Entry(entry) => entry.path.clone(),
        row => panic!("{row:?}"),
    }
}

#[test]
fn timeline_is_of_the_row_under_the_cursor() {
    let mut console = console_with_found("token", &[("scout", 1), ("walrus", 1)]);
    console.press("j");
    let Some(TextSource::Entry(entry)) = console.model.archives.subject_source() else {
        panic!("no entry under the cursor")
    };
    let effects = console.press("t");
    assert_eq!(timelines(&effects), [TimelineSubject::Entry(entry)]);
    assert_eq!(console.model.archives.page, ArchivesPage::Timeline);
    assert!(console.screen_text().contains("reading"));
    answer_timeline(&mut console, "walrus");
    let text = console.screen_text();
    assert!(
        text.contains("walrus") && text.contains("left the config"),
        "{text}"
    );
    // Back at the same row, from the text as well.
    console.press("Esc");
    assert_eq!(
        (
            console.model.archives.page,
            console.model.archives.list.cursor
        ),
        (ArchivesPage::List, 1)
    );
    console.press("Enter t h");
    assert_eq!(console.model.archives.page, ArchivesPage::Text);
}

#[test]
fn late_timeline_of_another_agent_is_dropped() {
    let mut console = console_with_found("token", &[("scout", 1), ("triage", 1)]);
    console.press("t");
    let first = last_number(&console);
    console.press("q j t");
    let late = Ok(Box::new(agent_timeline("scout")));
    console.send(Msg::TimelineLoaded(first, late));
    assert!(console.model.archives.timeline.loaded.is_none());
    answer_timeline(&mut console, "triage");
    let timeline = console.model.archives.timeline.timeline().unwrap();
    assert_eq!(timeline.agent, "triage");
}

#[test]
fn text_of_a_timeline_entry_opens_and_leads_back() {
    let mut console = console_with_found("token", &[("scout", 2)]);
    open(&mut console, "scout");
    // A run is about its entry.
    let effects = console.press("j");
    let entry = timeline_path(&console, 2);
    let is_text = |effect: &Effect| {
        matches!(effect, Effect::ReadEntryText(request)
            if request.source == TextSource::Entry(entry.clone()) && request.query.is_empty())
    };
    assert!(effects.iter().any(is_text), "{effects:?}");
    console.press("j Enter");
    assert_eq!(console.model.archives.page, ArchivesPage::Text);
    read_text(&mut console, "one\ntwo\n", "token");
    assert!(console.screen_text().contains("[3 of 8]"));
    // The list of the search does not move.
    console.press("n");
    assert_eq!(console.model.archives.list.cursor, 0);
    assert_eq!(
        console.press("d"),
        [Effect::CompareEntry(EntryComparisonRequest {
            entry: entry.clone(),
            other: EntryComparison::Memory,
        })]
    );
    console.press("q");
    assert_eq!(console.model.archives.page, ArchivesPage::Text);
    console.press("q");
    assert_eq!(console.model.archives.page, ArchivesPage::Timeline);
    assert_eq!(console.model.archives.timeline.list.cursor, 2);
    assert_eq!(console.press("P"), [Effect::SetPinned(entry.clone(), true)]);
    console.send(Msg::EntryPinned(entry.clone(), true, Ok(())));
    assert_eq!(
        console.press("P P"),
        [Effect::SetPinned(entry.clone(), false)]
    );
    assert_eq!(console.press("X"), [Effect::FindEntryRun(entry)]);
}

#[test]
fn rows_without_a_readable_entry_say_why() {
    let mut console = console_with_found("token", &[("scout", 1)]);
    open(&mut console, "scout");
    for (movement, key, reason) in [
        ("j k", "Enter", "archived nothing"),
        ("G", "Enter", "not by retention"),
        ("k", "d", "retention deleted this entry"),
        ("k", "P", "retention deleted this entry"),
        ("k k", "X", "archived nothing"),
    ] {
        console.press(movement);
        let keys = format!("{movement} {key}");
        assert_eq!(console.press(key), [], "{keys}");
        assert!(
            console.message_text().contains(reason),
            "{keys}: {}",
            console.message_text()
        );
        assert_eq!(console.model.archives.page, ArchivesPage::Timeline);
    }
}

#[test]
fn timeline_follows_runs_and_keeps_its_row() {
    let mut console = console_with_found("token", &[("scout", 1)]);
    open(&mut console, "scout");
    console.press("j j j j");
    let report = crate::engine_samples::run_report(&[]);
    let effects = console.send(Msg::RunEnded(Box::new(report)));
    assert_eq!(timelines(&effects), [TimelineSubject::Entry(path(0))]);
    let current = timeline_path(&console, 4);
    let mut timeline = agent_timeline("scout");
    timeline.rows.remove(0);
    let number = last_number(&console);
    console.send(Msg::TimelineLoaded(number, Ok(Box::new(timeline))));
    assert_eq!(console.model.archives.timeline.list.cursor, 3);
    assert_eq!(timeline_path(&console, 3), current);
}

#[test]
fn timeline_is_read_again_after_a_run_elsewhere() {
    let mut console = console_with_found("token", &[("scout", 1)]);
    open(&mut console, "scout");
    console.press("1");
    let report = crate::engine_samples::run_report(&[]);
    let effects = console.send(Msg::RunEnded(Box::new(report)));
    assert_eq!(timelines(&effects), []);
    let effects = console.press("-");
    assert_eq!(console.model.screen, Screen::Archives);
    assert_eq!(timelines(&effects), [TimelineSubject::Entry(path(0))]);
}
