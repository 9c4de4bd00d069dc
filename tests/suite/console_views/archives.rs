//! Views of the archives: the list with a text beside it, a text, a comparison, and what is said when
//! there is nothing to show.

use std::path::Path;

use memory_shepherd::archive::search::{QueryChange, RelaxedQuery};
use memory_shepherd::base::error::{Error, ErrorKind};
use memory_shepherd::console::keys::key_guard::KEY_GUARD_TIME;
use memory_shepherd::console::message::Msg;
use memory_shepherd::console::text;
use memory_shepherd::engine::{
    FoundMemory, FoundText, IndexProgress, RetentionOverview, SearchRelaxation, TimelineRow,
};

use super::{TestConsole, assert_view};
use crate::archive_samples::{agent_timeline, entry_text, found_rows, retention_overview};
use crate::engine_samples::minutes_before;

const TEXT: &str = "# triage scratch notes \u{2014} archived 2026-03-14_0910

- PR #42 approved, waiting on CI
- found a token loop in the auth module: the refresh of a token asks for another token, which the session of the night before still holds
- \u{1b}[31mneed follow-up\u{202e} on the token store
";

const ROWS: [(&str, usize); 6] = [
    ("triage", 4),
    ("triage", 2),
    ("code-reviewer", 1),
    ("walrus", 1),
    ("an-agent-with-a-very-long-name", 1),
    ("docs-writer", 12),
];

fn search(console: &mut TestConsole, query: &str, rows: &[(&str, usize)]) {
    console.press("4 /");
    console.type_line(query);
    console.press("Enter");
    let mut found = found_rows(query, rows);
    if let Some(pinned) = found.result.entries.get_mut(1) {
        pinned.is_pinned = true;
    }
    let memory = FoundMemory {
        agent: "researcher".to_string(),
        address: "ops@box:/srv/researcher/MEMORY.md".to_string(),
        read_at: minutes_before(4),
        text: FoundText {
            hit_count: 1,
            lines: Vec::new(),
            has_more: false,
            similarity: 1.0,
        },
    };
    if !rows.is_empty() {
        found.result.memories.push(memory);
    }
    let number = console.model.archives.searches.last_id;
    console.send(Msg::ArchiveSearched(number, Ok(Box::new(found))));
    console.send(Msg::ArchiveSearchEnded(number));
}

fn read_text(console: &mut TestConsole) {
    if let Some(request) = console.model.archives.text.request.clone() {
        console.send(Msg::EntryTextRead(request, Ok(entry_text(TEXT, "token"))));
    }
}

#[test]
fn found_entries_match_snapshot() {
    assert_view("archives", |console| {
        search(console, "token agent:triage,code-* since:7d", &ROWS);
        console.press("j");
        read_text(console);
    });
    assert_view("archives_left", |console| {
        search(console, "token", &ROWS);
        console.press("j Space j j j");
        read_text(console);
    });
    assert_view("archives_typing", |console| {
        search(console, "token", &ROWS);
        read_text(console);
        console.press("/");
        console.type_line(" kind:");
    });
}

/// Memories come before entries.
#[test]
fn memory_row_offers_no_command_about_an_entry() {
    let mut console = super::fleet_of_every_state();
    search(&mut console, "token", &ROWS);
    let hints = |console: &TestConsole| {
        let text = super::rendered_text(console, "terminal");
        text.lines().last().unwrap().to_string()
    };
    let of_entry = ["d diff", "X restore plan", "P pin"];
    for keys in ["gg", "Enter"] {
        console.press(keys);
        read_text(&mut console);
        let memory = hints(&console);
        assert!(of_entry.iter().all(|it| !memory.contains(it)), "{memory}");
        assert!(memory.contains("t timeline"), "{memory}");
    }
    console.press("Esc j");
    let entry = hints(&console);
    assert!(of_entry.iter().all(|it| entry.contains(it)), "{entry}");
}

#[test]
fn archives_without_rows_match_snapshot() {
    assert_view("archives_waiting", |console| {
        console.press("4");
        let progress = IndexProgress {
            entries: 40_200,
            bytes: 80 << 20,
        };
        console.send(Msg::IndexProgressed(progress));
    });
    assert_view("archives_empty", |console| {
        console.press("4");
        let number = console.model.archives.searches.last_id;
        let mut found = found_rows("", &[]);
        found.result.archive_size = Some((0, 0));
        console.send(Msg::ArchiveSearched(number, Ok(Box::new(found))));
    });
    assert_view("archives_nothing", |console| {
        search(console, "tokne loop", &[])
    });
    assert_view("archives_relaxed", |console| {
        let query = "tokne \u{1b}[31mloop kind:full since:7d \"auth module\"";
        search(console, query, &[]);
        let relaxation = |change, term: &str, entries, memories| SearchRelaxation {
            relaxed: RelaxedQuery {
                change,
                term: term.to_string(),
                query: "x".to_string(),
            },
            entries,
            memories,
            has_more: entries == 100,
        };
        let found = vec![
            relaxation(QueryChange::SplitPhrase, "\"auth module\"", 3, 0),
            relaxation(QueryChange::DroppedFilter, "since:7d", 1, 1),
            relaxation(QueryChange::DroppedText, "\u{1b}[31mloop", 100, 2),
        ];
        let number = console.model.archives.searches.last_id;
        console.send(Msg::ArchiveRelaxed(number, Ok(found)));
        console.press("j");
    });
    assert_view("archives_failed", |console| {
        console.press("4");
        let number = console.model.archives.searches.last_id;
        let why = "cannot list /var/lib/memory-shepherd: permission denied".to_string();
        console.send(Msg::ArchiveSearched(number, Err(why)));
    });
}

#[test]
fn archived_text_matches_snapshot() {
    assert_view("archives_text", |console| {
        search(console, "token", &ROWS);
        console.press("j Enter");
        read_text(console);
        console.press("n");
    });
}

#[test]
fn entry_diff_matches_snapshot() {
    assert_view("archives_diff", |console| {
        search(console, "token", &ROWS);
        console.press("j d");
        let request = console.model.archives.comparison.request.clone().unwrap();
        let new = TEXT.replace("need", "no");
        let compared = text::ComparedTexts {
            text: text::prepare_comparison([TEXT.as_bytes(), new.as_bytes()], None),
            titles: [
                request.entry.display().to_string(),
                "scratch of triage now".to_string(),
            ],
            changed_lines: (1, 1),
        };
        console.send(Msg::EntryCompared(request, Ok(Box::new(compared))));
    });
}

fn open_timeline(console: &mut TestConsole, agent: &str) {
    search(console, "token", &[(agent, 2)]);
    // The memory comes before the entry.
    console.press("j t");
    let number = console.model.archives.timeline.requests.last_id;
    let timeline = Ok(Box::new(agent_timeline(agent)));
    console.send(Msg::TimelineLoaded(number, timeline));
}

#[test]
fn timeline_matches_snapshot() {
    assert_view("archives_timeline", |console| {
        open_timeline(console, "triage");
        console.press("j j");
        read_text(console);
    });
    assert_view("archives_timeline_failed_run", |console| {
        open_timeline(console, "walrus");
    });
    assert_view("archives_timeline_deleted", |console| {
        open_timeline(console, "walrus");
        console.press("G k");
    });
    assert_view("archives_timeline_cut", |console| {
        open_timeline(console, "triage");
        let mut timeline = agent_timeline("triage");
        timeline.has_more = true;
        for row in &mut timeline.rows {
            if let TimelineRow::Entry(entry) = row {
                let name = entry.path.file_name().unwrap();
                entry.path = Path::new("triage/quarantine").join(name);
            }
        }
        let number = console.model.archives.timeline.requests.begin();
        console.send(Msg::TimelineLoaded(number, Ok(Box::new(timeline))));
    });
}

fn load_retention(console: &mut TestConsole, overview: RetentionOverview) {
    let number = console.model.archives.retention.plan.requests.last_id;
    let overview = Ok(Box::new(overview));
    console.send(Msg::RetentionLoaded(number, overview));
}

#[test]
fn retention_matches_snapshot() {
    assert_view("archives_retention_header", |console| {
        search(console, "", &ROWS);
        load_retention(console, retention_overview());
    });
    assert_view("archives_retention", |console| {
        console.press("4 r");
        load_retention(console, retention_overview());
        console.press("j");
    });
    assert_view("archives_retention_warnings", |console| {
        console.press("4 r");
        let mut overview = retention_overview();
        overview.confirmed = None;
        overview.unconfirmed = Some("no earlier run is known".to_string());
        overview.disk.as_mut().unwrap().free_bytes = 2 << 30;
        overview.unclear_pins = vec!["line 3 of pins names no entry: \u{1b}[31mx.md".to_string()];
        let why = "cannot list /var/lib/memory-shepherd/strays: permission denied";
        overview.unreadable = vec![Error::new(ErrorKind::Host, why)];
        for agent in &mut overview.agents {
            agent.expiring.clear();
        }
        overview.versions = None;
        load_retention(console, overview);
        console.press("gg");
    });
    assert_view("archives_retention_agent", |console| {
        console.press("4 r");
        load_retention(console, retention_overview());
        console.press("Enter G");
    });
    assert_view("archives_prune_plan", |console| {
        console.press("4 r");
        load_retention(console, retention_overview());
        console.press("X");
        console.advance(KEY_GUARD_TIME);
        console.type_line("prune 1");
    });
}
