//! Archives screen: searches while typing, texts that follow the cursor, comparisons and pins.

mod retention;
mod timeline;

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use memory_shepherd::archive::index::CandidateOrder;
use memory_shepherd::archive::search::{QueryChange, RelaxedQuery};
use memory_shepherd::base::error::{Error, ErrorKind};
use memory_shepherd::console::handoff::HandoffRequest;
use memory_shepherd::console::message::{Effect, Msg};
use memory_shepherd::console::screen::Screen;
use memory_shepherd::console::screens::archives::state::{
    ArchivesPage, EntryComparisonRequest, FIRST_ROWS,
};
use memory_shepherd::console::screens::reset::state::PlanRequest;
use memory_shepherd::console::text::TextLine;
use memory_shepherd::engine::{
    EntryComparison, FleetEvent, FoundMemory, FoundText, Outcome, RecordedEntries,
    SearchRelaxation, State, TextSource, UndoMode, UndoTarget,
};
use memory_shepherd::lint::ScanSummary;

use crate::archive_samples::{entry_text, found_rows};
use crate::console_fixture::{TestConsole, fleet_of};
use crate::engine_samples::{minutes_before, observation_of};

fn console() -> TestConsole {
    fleet_of(&[("scout", State::Scratch), ("triage", State::Scratch)])
}

/// Goes to the archives, types a query, and answers it with these entries.
fn console_with_found(query: &str, rows: &[(&str, usize)]) -> TestConsole {
    let mut console = console();
    console.press("4 /");
    console.type_line(query);
    console.press("Enter");
    answer(&mut console, query, rows);
    console
}

fn answer(console: &mut TestConsole, query: &str, rows: &[(&str, usize)]) -> Vec<Effect> {
    let number = console.model.archives.searches.last_id;
    let found = Ok(Box::new(found_rows(query, rows)));
    console.send(Msg::ArchiveSearched(number, found))
}

/// Answers the request for the text under the cursor with this one.
fn read_text(console: &mut TestConsole, text: &str, word: &str) {
    let request = console.model.archives.text.request.clone().unwrap();
    let text = Ok(entry_text(text, word));
    console.send(Msg::EntryTextRead(request, text));
}

fn searches(effects: &[Effect]) -> Vec<&str> {
    let queries = effects.iter().filter_map(|effect| match effect {
        Effect::SearchArchive(request) => Some(request.query.as_str()),
        _ => None,
    });
    queries.collect()
}

/// A relaxation of `tokne loop kind:full` that drops this term.
fn relaxation(term: &str, query: &str, entries: usize) -> SearchRelaxation {
    SearchRelaxation {
        relaxed: RelaxedQuery {
            change: QueryChange::DroppedText,
            term: term.to_string(),
            query: query.to_string(),
        },
        entries,
        memories: 0,
        has_more: false,
    }
}

fn path(at: usize) -> PathBuf {
    found_rows("", &[("scout", 0), ("scout", 0), ("scout", 0)])
        .result
        .entries[at]
        .entry
        .path
        .clone()
}

#[test]
fn every_typed_character_searches_and_keeps_the_rows() {
    let mut console = console();
    assert_eq!(searches(&console.press("4")), [""]);
    answer(&mut console, "", &[("scout", 0)]);
    console.press("/");
    assert_eq!(searches(&console.press("t")), ["t"]);
    assert_eq!(searches(&console.press("o")), ["to"]);
    assert_eq!(console.model.archives.row_count(), 1);
    // An answer to an earlier query comes too late.
    let number = console.model.archives.searches.last_id - 1;
    let late = Ok(Box::new(found_rows("t", &[("scout", 1), ("triage", 1)])));
    console.send(Msg::ArchiveSearched(number, late));
    assert_eq!(console.model.archives.row_count(), 1);
    answer(&mut console, "to", &[("triage", 3)]);
    assert_eq!(
        console.model.archives.current_row().unwrap().agent(),
        "triage"
    );
    assert_eq!(searches(&console.press("Esc")), [""]);
}

#[test]
fn hits_behind_the_loaded_text_are_named() {
    let read_part = |console: &mut TestConsole, part: &str| {
        let request = console.model.archives.text.request.clone().unwrap();
        let mut text = entry_text(part, "token");
        let mut note = TextLine::note("9 more bytes not shown");
        note.is_truncated = true;
        text.lines.push(note);
        console.send(Msg::EntryTextRead(request, Ok(text)));
    };
    let mut console = console_with_found("token", &[("scout", 2), ("triage", 1)]);
    read_part(&mut console, "nothing\n");
    let text = console.screen_text();
    let hint = "its hits are behind what is loaded; o opens the whole text";
    assert!(text.contains(hint), "{text}");
    let mut console = console_with_found("token", &[("scout", 2), ("triage", 1)]);
    read_part(&mut console, "a token\n");
    let text = console.screen_text();
    let hint = "line 1 of 1 with hits loaded; o shows further hits";
    assert!(text.contains(hint), "{text}");
    console.press("n");
    let said = console.message_text();
    assert!(said.starts_with("left further hits of scout"), "{said}");
    // All hits of the next text are loaded.
    read_part(&mut console, "a token\n");
    assert!(!console.screen_text().contains("further hits;"));
}

#[test]
fn many_hits_stay_apart_from_the_size() {
    let mut console = console();
    console.press("4 / t Enter");
    let number = console.model.archives.searches.last_id;
    let mut found = found_rows("t", &[("scout", 50_952), ("triage", 800_000)]);
    found.result.entries[0].entry.size = 4 << 20;
    found.result.entries[1].entry.size = 36_400_000;
    console.send(Msg::ArchiveSearched(number, Ok(Box::new(found))));
    let screen = console.screen_text();
    assert!(screen.contains("4.0M  50952"), "{screen}");
    assert!(screen.contains("34.7M 800000"), "{screen}");
}

#[test]
fn memory_of_a_query_without_words_has_no_hits() {
    let mut console = console();
    console.press("4 /");
    console.type_line("in:live");
    console.press("Enter");
    let number = console.model.archives.searches.last_id;
    let mut found = found_rows("in:live", &[]);
    found.result.memories.push(FoundMemory {
        agent: "scout".to_string(),
        address: "/srv/scout/MEMORY.md".to_string(),
        read_at: minutes_before(4),
        text: FoundText {
            hit_count: 0,
            lines: Vec::new(),
            has_more: false,
            similarity: 1.0,
        },
    });
    console.send(Msg::ArchiveSearched(number, Ok(Box::new(found))));
    let row = console.model.archives.current_row().unwrap();
    assert!(row.hits().is_none());
}

#[test]
fn half_a_term_is_explained_and_changes_no_row() {
    let mut console = console_with_found("token", &[("scout", 1)]);
    console.press("/");
    console.type_line(" since");
    assert_eq!(searches(&console.press(":")), Vec::<&str>::new());
    assert_eq!(console.model.archives.row_count(), 1);
    assert!(console.screen_text().contains("since: has no value"));
    assert_eq!(searches(&console.press("7")), Vec::<&str>::new());
    assert_eq!(searches(&console.press("d")), ["token since:7d"]);
}

#[test]
fn rows_of_an_earlier_query_are_named_as_such() {
    for size in [(120, 36), (80, 24)] {
        let mut console = console_with_found("token", &[("scout", 1)]);
        console.send(Msg::Resized(size.0, size.1));
        console.press("/ ^u");
        console.type_line("kind:nosuch");
        console.press("Enter");
        let text = console.screen_text();
        assert!(text.contains("not searched; earlier rows"), "{text}");
        assert!(!text.contains("1 hit"), "{text}");
        console.press("Esc");
        let text = console.screen_text();
        assert!(text.contains("searching …; earlier rows"), "{text}");
        answer(&mut console, "", &[("scout", 0)]);
        assert!(!console.screen_text().contains("earlier rows"));
    }
    let mut console = console_with_found("token", &[]);
    console.press("Esc");
    let text = console.screen_text();
    assert!(!text.contains("Nothing matches"), "{text}");
}

#[test]
fn memory_read_after_the_search_is_searched() {
    let mut console = console();
    console.press("4 / t Enter");
    let mut found = found_rows("t", &[("scout", 1)]);
    found.result.never_read = vec!["triage".to_string()];
    let number = console.model.archives.searches.last_id;
    console.send(Msg::ArchiveSearched(number, Ok(Box::new(found))));
    let mut seen = observation_of("scout", State::Drifted);
    assert_eq!(searches(&console.observe(vec![seen.clone()])), [""; 0]);
    seen.agent = "triage".to_string();
    assert_eq!(searches(&console.observe(vec![seen])), ["t"]);
}

#[test]
fn refreshed_result_keeps_the_row_under_the_cursor() {
    let mut console = console_with_found("token", &[("scout", 2), ("scout", 1)]);
    console.press("j");
    let current = console.model.archives.current_row().unwrap().source();
    assert_eq!(current, TextSource::Entry(path(1)));
    // A reset wrote another entry: it comes first.
    let rows = [("scout", 2), ("scout", 1), ("scout", 9)];
    let mut found = found_rows("token", &rows);
    found.result.entries.rotate_right(1);
    let number = console.model.archives.searches.last_id;
    console.send(Msg::ArchiveSearched(number, Ok(Box::new(found))));
    assert_eq!(console.model.archives.list.cursor, 2);
    assert_eq!(
        console.model.archives.current_row().unwrap().source(),
        current
    );
}

#[test]
fn next_hit_goes_on_in_the_next_text() {
    let mut console = console_with_found("token", &[("scout", 2), ("triage", 1)]);
    read_text(&mut console, "a token\nother\nthe token\n", "token");
    let hit = |console: &TestConsole| {
        let pane = &console.model.archives.text.pane;
        (
            console.model.archives.list.cursor,
            pane.lines[pane.hits[pane.current_hit]].new_number,
        )
    };
    assert_eq!(hit(&console), (0, Some(1)));
    console.press("n");
    assert_eq!(hit(&console), (0, Some(3)));
    let effects = console.press("n");
    assert!(
        matches!(effects.as_slice(), [Effect::ReadEntryText(_)]),
        "{effects:?}"
    );
    read_text(&mut console, "no\ntoken\n", "token");
    assert_eq!(hit(&console), (1, Some(2)));
    // Behind the last hit the cursor stays, and says so.
    console.press("n");
    assert_eq!(hit(&console), (1, Some(2)));
    assert!(console.message_text().contains("no further hit"));
    // Backwards, a text is entered at its last hit.
    console.press("N");
    read_text(&mut console, "a token\nother\nthe token\n", "token");
    assert_eq!(hit(&console), (0, Some(3)));
}

#[test]
fn text_of_another_row_is_not_shown() {
    let mut console = console_with_found("token", &[("scout", 1), ("triage", 1)]);
    let first = console.model.archives.text.request.clone().unwrap();
    console.press("j");
    console.send(Msg::EntryTextRead(
        first,
        Ok(entry_text("a token\n", "token")),
    ));
    assert!(!console.model.archives.text.is_loaded);
    assert!(console.screen_text().contains("reading"));
}

#[test]
fn marked_entry_is_compared_before_the_memory() {
    let mut console = console_with_found("token", &[("scout", 1), ("scout", 1)]);
    let compare = |entry: usize, other: EntryComparison| {
        let entry = path(entry);
        vec![Effect::CompareEntry(EntryComparisonRequest {
            entry,
            other,
        })]
    };
    assert_eq!(console.press("d"), compare(0, EntryComparison::Memory));
    assert_eq!(console.press("Tab"), compare(0, EntryComparison::Baseline));
    assert_eq!(console.press("Tab"), compare(0, EntryComparison::Memory));
    console.press("q");
    assert_eq!(console.model.archives.page, ArchivesPage::List);
    console.press("Space j");
    assert_eq!(
        console.press("d"),
        compare(1, EntryComparison::Entry(path(0)))
    );
    console.press("q Enter");
    assert_eq!(
        console.press("d"),
        compare(1, EntryComparison::Entry(path(0)))
    );
    console.press("q");
    assert_eq!(console.model.archives.page, ArchivesPage::Text);
}

#[test]
fn pin_is_shown_when_it_is_written() {
    let mut console = console_with_found("token", &[("scout", 1)]);
    assert_eq!(console.press("P"), [Effect::SetPinned(path(0), true)]);
    assert!(!console.model.archives.current_entry().unwrap().is_pinned);
    console.send(Msg::EntryPinned(path(0), true, Ok(())));
    assert!(console.model.archives.current_entry().unwrap().is_pinned);
    assert_eq!(console.press("P P"), [Effect::SetPinned(path(0), false)]);
    let refused = Err("pins is locked by another process".to_string());
    console.send(Msg::EntryPinned(path(0), false, refused));
    assert!(console.model.archives.current_entry().unwrap().is_pinned);
    assert!(console.message_text().contains("locked"));
}

#[test]
fn pin_key_unpins_only_when_pressed_twice() {
    let mut console = console_with_found("token", &[("scout", 1), ("scout", 1)]);
    console.send(Msg::EntryPinned(path(0), true, Ok(())));
    // On other screens the key plans a push.
    for keys in ["P j", "k P", "j"] {
        let effects = console.press(keys);
        let is_changed = effects.iter().any(|it| matches!(it, Effect::SetPinned(..)));
        assert!(!is_changed, "{keys}: {effects:?}");
    }
    console.press("k P");
    assert!(console.message_text().contains("P again unpins it"));
    assert_eq!(console.press("P"), [Effect::SetPinned(path(0), false)]);
}

#[test]
fn plan_of_an_entry_leads_back_to_it() {
    let mut console = console_with_found("token", &[("scout", 1), ("scout", 1)]);
    console.press("j Enter");
    read_text(&mut console, "a token\n", "token");
    assert_eq!(console.press("X"), [Effect::FindEntryRun(path(1))]);
    let found = Ok(("scout".to_string(), "5a10c3d2".to_string()));
    console.send(Msg::EntryRunFound(path(1), found));
    assert_eq!(console.model.screen, Screen::Reset);
    console.press("Esc");
    assert_eq!(console.model.screen, Screen::Archives);
    assert_eq!(console.model.archives.page, ArchivesPage::Text);
    // The next key is about the entry again.
    assert_eq!(console.press("P"), [Effect::SetPinned(path(1), true)]);
}

#[test]
fn pin_is_refused_while_read_only() {
    let mut console = console_with_found("token", &[("scout", 1)]);
    console.model.read_only.is_on = true;
    assert_eq!(console.press("P"), []);
    assert!(console.message_text().contains("read-only"));
}

#[test]
fn adopted_config_searches_again() {
    let mut console = console_with_found("token", &[("scout", 1)]);
    let config = console.model.config.clone();
    let agents = crate::engine_samples::configured_agents(&["scout"]);
    let effects = console.send(Msg::ConfigAdopted(config, agents, false));
    assert_eq!(searches(&effects), ["token"]);
}

#[test]
fn order_and_further_rows_are_searched() {
    let mut console = console();
    console.press("4");
    let rows: Vec<(&str, usize)> = (0..FIRST_ROWS).map(|_| ("scout", 0)).collect();
    let mut found = found_rows("", &rows);
    found.result.candidates = FIRST_ROWS * 3;
    let number = console.model.archives.searches.last_id;
    console.send(Msg::ArchiveSearched(number, Ok(Box::new(found))));
    console.send(Msg::ArchiveSearchEnded(number));
    let request = |effects: Vec<Effect>| {
        effects.into_iter().find_map(|effect| match effect {
            Effect::SearchArchive(request) => Some((request.order, request.limit)),
            _ => None,
        })
    };
    let last = request(console.press("G"));
    assert_eq!(last, Some((CandidateOrder::Relevance, FIRST_ROWS * 2)));
    let sorted = request(console.press("s"));
    assert_eq!(sorted, Some((CandidateOrder::Newest, FIRST_ROWS * 2)));
}

#[test]
fn escape_leaves_text_query_and_screen_in_turn() {
    let mut console = console_with_found("token", &[("scout", 1)]);
    console.press("Enter");
    assert_eq!(console.model.archives.page, ArchivesPage::Text);
    console.press("Esc");
    assert_eq!(console.model.archives.page, ArchivesPage::List);
    assert_eq!(searches(&console.press("Esc")), [""]);
    assert_eq!(console.model.screen, Screen::Archives);
    console.press("Esc");
    assert_eq!(console.model.screen, Screen::Fleet);
    // The query of the next visit is another one; that of this one was cleared.
    assert_eq!(console.model.archives.query, "");
}

#[test]
fn end_of_a_run_searches_again_where_it_is_shown() {
    let mut console = console_with_found("token", &[("scout", 1)]);
    let report = crate::engine_samples::run_report(&[]);
    assert_eq!(
        searches(&console.send(Msg::RunEnded(Box::new(report.clone())))),
        ["token"]
    );
    console.press("1");
    let effects = console.send(Msg::RunEnded(Box::new(report)));
    assert_eq!(searches(&effects), Vec::<&str>::new());
}

#[test]
fn run_of_another_process_searches_and_lists_again() {
    let mut console = console_with_found("token", &[("scout", 1)]);
    let run = |id| crate::engine_samples::run_summary(id, 5, &[("scout", Outcome::Ok)]);
    console.send(Msg::LogLoaded(Ok(vec![run("00000001")])));
    assert_eq!(
        console.send(Msg::Fleet(FleetEvent::LedgerChanged)),
        [Effect::LoadLog]
    );
    let runs = vec![run("00000002"), run("00000001")];
    let effects = console.send(Msg::LogLoaded(Ok(runs.clone())));
    assert_eq!(searches(&effects), ["token"]);
    let effects = console.send(Msg::LogLoaded(Ok(runs.clone())));
    assert_eq!(searches(&effects), Vec::<&str>::new(), "nothing is new");
    console.press("3");
    let runs = [vec![run("00000003")], runs].concat();
    let effects = console.send(Msg::LogLoaded(Ok(runs)));
    assert!(effects.contains(&Effect::LoadBaselines), "{effects:?}");
}

#[test]
fn restore_of_an_entry_is_the_undo_of_its_run() {
    let mut console = console_with_found("token", &[("scout", 1), ("walrus", 1)]);
    assert_eq!(console.press("X"), [Effect::FindEntryRun(path(0))]);
    let found = Ok(("scout".to_string(), "7f3c0a11".to_string()));
    let effects = console.send(Msg::EntryRunFound(path(0), found));
    let target = UndoTarget::RunAgents("7f3c0a11".to_string(), vec!["scout".to_string()]);
    let expected = PlanRequest::Undo(target, UndoMode::Refuse);
    let is_plan = |effect: &Effect| matches!(effect, Effect::MakePlan(_, it, _) if *it == expected);
    assert!(effects.iter().any(is_plan), "{effects:?}");
    // An entry without a record has no run to undo.
    let mut console = console_with_found("token", &[("scout", 1)]);
    console.press("X");
    let refused = Err("no record of the ledger names scout/1.md".to_string());
    assert_eq!(console.send(Msg::EntryRunFound(path(0), refused)), []);
    assert!(console.message_text().contains("o shows the entry"));
}

#[test]
fn lines_of_a_text_are_promoted_to_the_baseline() {
    let mut console = console_with_found("token", &[("scout", 1), ("walrus", 1)]);
    console.press("Enter");
    read_text(&mut console, "one\na token\nthree\n", "token");
    let promoted = |console: &TestConsole| {
        let request = console.model.handoff_request.clone();
        match request {
            Some(HandoffRequest::OpenBaseline { name, promoted }) => {
                let lines = promoted.map(|it| it.lines).unwrap_or_default();
                Some((name, lines))
            }
            _ => None,
        }
    };
    // Without marks, the line of the hit, where the cursor is.
    console.press("p");
    let (name, lines) = promoted(&console).unwrap();
    assert_eq!(
        (name.as_str(), lines),
        ("scout-MEMORY.md", vec![b"a token".to_vec()])
    );
    console.model.handoff_request = None;
    console.press("Space k k Space p");
    let (_, lines) = promoted(&console).unwrap();
    assert_eq!(lines, [b"one".to_vec(), b"a token".to_vec()]);
    console.model.handoff_request = None;
    // Marks are those of one text; an agent that left has no baseline.
    console.press("q j Enter");
    read_text(&mut console, "a token\n", "token");
    console.press("p");
    assert_eq!(promoted(&console), None);
    assert!(console.message_text().contains("left the config"));
}

#[test]
fn nearest_query_is_taken_with_enter() {
    let query = "tokne loop kind:full";
    let mut console = console_with_found(query, &[]);
    assert_eq!(console.press("Enter"), []);
    let number = console.model.archives.searches.last_id;
    console.send(Msg::ArchiveSearchEnded(number));
    let found = vec![
        relaxation("kind:full", "tokne loop", 3),
        relaxation("tokne", "loop kind:full", 40),
    ];
    // An answer to an earlier search comes too late.
    console.send(Msg::ArchiveRelaxed(number - 1, Ok(found.clone())));
    assert_eq!(console.model.archives.relaxations, None);
    console.send(Msg::ArchiveRelaxed(number, Ok(found)));
    let text = console.screen_text();
    assert!(
        text.contains("word tokne \u{b7} word loop \u{b7} kind full"),
        "{text}"
    );
    assert!(
        text.contains("without `tokne`") && text.contains("40 entries"),
        "{text}"
    );
    assert_eq!(searches(&console.press("j j j Enter")), ["loop kind:full"]);
    // Until something is found, the old answer stays; then it is gone.
    answer(&mut console, "loop kind:full", &[("scout", 1)]);
    assert_eq!(console.model.archives.relaxations, None);
    console.press("Enter");
    assert_eq!(console.model.archives.page, ArchivesPage::Text);
}

#[test]
fn typing_goes_on_while_queries_are_relaxed() {
    let mut console = console_with_found("tokne", &[]);
    let text = console.screen_text();
    assert!(text.contains("looking for the nearest queries"), "{text}");
    console.press("/");
    assert_eq!(searches(&console.press("x")), ["toknex"]);
    let number = console.model.archives.searches.last_id - 1;
    let late = vec![relaxation("x", "y", 1)];
    console.send(Msg::ArchiveRelaxed(number, Ok(late)));
    assert_eq!(console.model.archives.relaxations, None);
}

#[test]
fn failed_relaxation_says_why() {
    let mut console = console_with_found("tokne", &[]);
    let number = console.model.archives.searches.last_id;
    let why = "cannot list /srv/archive: permission denied".to_string();
    console.send(Msg::ArchiveRelaxed(number, Err(why)));
    let text = console.screen_text();
    assert!(text.contains("not known: cannot list"), "{text}");
}

#[test]
fn entries_are_shown_and_sorted_by_their_records() {
    let rows = [("scout", 2), ("triage", 2), ("scribe", 2)];
    let mut console = console_with_found("token", &rows);
    let number = console.model.archives.searches.last_id;
    let agents = |console: &TestConsole| -> Vec<String> {
        let found = console.model.archives.result().unwrap();
        found.entries.iter().map(|it| it.agent.clone()).collect()
    };
    console.press("j");
    let entries = console.model.archives.result().unwrap().entries.clone();
    // The name of the oldest has the time of a clock that was an hour behind.
    let oldest = &entries[2];
    let time = entries[0].time + Duration::from_secs(7 * 60);
    let recorded = RecordedEntries {
        times: HashMap::from([(oldest.entry.path.clone(), time)]),
        ..RecordedEntries::default()
    };
    console.send(Msg::EntryRecordsRead(number, Ok(recorded)));
    assert_eq!(agents(&console), ["scribe", "scout", "triage"]);
    let shown = time.format("%Y-%m-%d %H:%M").to_string();
    let text = console.screen_text();
    assert!(text.contains(&shown), "{shown}: {text}");
    // The cursor stays at its row.
    let current = console.model.archives.current_row().unwrap();
    assert_eq!(current.agent(), "triage");
}

#[test]
fn findings_of_entries_are_marked_and_counted() {
    let mut console = console_with_found("token", &[("scout", 2), ("triage", 1)]);
    let summary = ScanSummary {
        secrets: 2,
        injections: 1,
        ..ScanSummary::default()
    };
    let findings = HashMap::from([(path(0), summary)]);
    let number = console.model.archives.searches.last_id;
    // Those of an earlier search come too late.
    let findings = RecordedEntries {
        findings,
        ..RecordedEntries::default()
    };
    console.send(Msg::EntryRecordsRead(number - 1, Ok(findings.clone())));
    assert!(!console.screen_text().contains("scratch!"));
    console.send(Msg::EntryRecordsRead(number, Ok(findings.clone())));
    let text = console.screen_text();
    assert!(
        text.contains("scratch!") && !text.contains("FULL!"),
        "{text}"
    );
    assert!(text.contains("2 secrets, 1 injection"), "{text}");
    console.press("j");
    assert!(!console.screen_text().contains("2 secrets"));
    // What the ledger does not tell is no absence of findings.
    let unread = Some(Error::new(ErrorKind::Integrity, "segment 1 is broken"));
    let partly = RecordedEntries { unread, ..findings };
    for found in [Ok(partly), Err("segment 1 is broken".to_string())] {
        console.send(Msg::EntryRecordsRead(number, found));
        let text = console.screen_text();
        assert!(text.contains("not known: segment 1 is broken"), "{text}");
    }
}

#[test]
fn all_notes_of_a_search_are_told() {
    let mut console = console();
    console.press("4");
    let mut found = found_rows("", &[("scout", 0)]);
    found.result.notes = vec![
        "1 entry in quarantine was not searched".to_string(),
        "1 memory on a host was not read yet".to_string(),
    ];
    let number = console.model.archives.searches.last_id;
    console.send(Msg::ArchiveSearched(number, Ok(Box::new(found.clone()))));
    let text = console.screen_text();
    assert!(text.contains("not searched; 1 memory"), "{text}");
    // Without room for all, the number of the others comes first.
    console.send(Msg::Resized(80, 24));
    found.result.notes[1] = format!("a\u{202e} {}", "b".repeat(80));
    console.send(Msg::ArchiveSearched(number, Ok(Box::new(found))));
    let text = console.screen_text();
    assert!(text.contains("(+1) 1 entry in quarantine"), "{text}");
}

#[test]
fn export_asks_for_a_path_and_keeps_to_its_entry() {
    let mut console = console_with_found("token", &[("scout", 1), ("triage", 1)]);
    console.press("W");
    let text = console.screen_text();
    assert!(
        text.contains("export to new file: scout-2026-03-14_0910.md"),
        "{text}"
    );
    // A search that ends later moves the rows, not the entry of the line.
    let entry = path(0);
    answer(&mut console, "token", &[("triage", 1)]);
    let effects = console.press("Enter");
    let name = PathBuf::from("scout-2026-03-14_0910.md");
    assert_eq!(effects, [Effect::ExportEntry(entry.clone(), name)]);
    // The default is edited like any line; without a file, nothing is exported.
    let mut console = console_with_found("token", &[("scout", 1)]);
    console.press("Enter W ^u");
    console.type_line("~/a b.md");
    assert_eq!(
        console.press("Enter"),
        [Effect::ExportEntry(entry, "~/a b.md".into())]
    );
    console.press("W ^u");
    assert_eq!(console.press("Enter"), []);
    assert!(console.message_text().contains("no file was named"));
    console.press("W Esc");
    assert_eq!(console.model.input_line, None);
}

#[test]
fn export_is_allowed_while_read_only() {
    let mut console = console_with_found("token", &[("scout", 1)]);
    assert!(console.screen_text().contains("P pin"));
    console.model.read_only.is_forced = true;
    assert!(!console.screen_text().contains("P pin"));
    console.press("W");
    let effects = console.press("Enter");
    assert!(
        matches!(effects.as_slice(), [Effect::ExportEntry(..)]),
        "{effects:?}"
    );
}
