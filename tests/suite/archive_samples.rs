//! Results of searches and texts of entries, for tests of the archives screen.

use memory_shepherd::archive::{ArchiveEntry, DiskSpace, EntryKind};
use memory_shepherd::base::digest::Digest;
use memory_shepherd::console::screens::archives::state::FoundRows;
use memory_shepherd::console::text::{self, PreparedText};
use memory_shepherd::engine::{
    AgentRetention, AgentTimeline, EntryPresence, ExpiringEntry, FoundEntry, FoundLine, FoundText,
    HistoryEntry, KeepReason, KeptEntries, LedgerRecord, Outcome, RetentionOverview, SearchResult,
    ShorterRetention, TimelineEntry, TimelineRow, UnchangedRuns, VersionRetention,
};

use crate::engine_samples::{minutes_before, run_summary, test_time};

/// What a search found: entries of these agents with their numbers of hits, an hour apart.
pub fn found_rows(query: &str, rows: &[(&str, usize)]) -> FoundRows {
    let entries = rows.iter().enumerate().map(|(at, (agent, hits))| {
        let made = minutes_before(60 * at as i64);
        let time = made.naive_local();
        let line = FoundLine {
            number: 12,
            bytes: b"- found a token loop in the auth module".to_vec(),
            hits: std::iter::once(10..15).collect(),
        };
        let name = time.format("%Y-%m-%d_%H%M.md");
        FoundEntry {
            entry: ArchiveEntry {
                path: format!("{agent}/{name}").into(),
                kind: [EntryKind::Scratch, EntryKind::FullBackup, EntryKind::Late][at % 3],
                stamp: time,
                number: 0,
                size: 1_200 * (at as u64 + 1),
                modified: test_time().timestamp(),
            },
            agent: agent.to_string(),
            has_left: *agent == "walrus",
            time: made,
            is_pinned: false,
            score: 1.0,
            text: (*hits > 0).then(|| FoundText {
                hit_count: *hits,
                lines: vec![line],
                has_more: false,
                similarity: 1.0,
            }),
        }
    });
    FoundRows {
        query: query.to_string(),
        result: SearchResult {
            entries: entries.collect(),
            candidates: rows.len(),
            compared: rows.len(),
            archive_size: Some((8_112, 61 << 20)),
            ..SearchResult::default()
        },
    }
}

/// A text as the archives show it, with a word of it found in each line that has it.
pub fn entry_text(text: &str, word: &str) -> PreparedText {
    let mut prepared = text::prepare_entry(text.as_bytes(), 0);
    for line in &mut prepared.lines {
        let text = String::from_utf8_lossy(&line.bytes).into_owned();
        let found = text.match_indices(word);
        line.changed_ranges = found.map(|(at, word)| at..at + word.len()).collect();
    }
    prepared
}

/// A timeline of an agent with an undone reset, a failed one, unchanged runs, and entries with and
/// without a record, one of them deleted.
pub fn agent_timeline(agent: &str) -> AgentTimeline {
    let hours = |hours: i64| minutes_before(60 * hours);
    let run = |id: &str, age: i64, outcome: Outcome, note: Option<&str>| {
        let mut event = run_summary(id, 60 * age, &[(agent, outcome)])
            .events
            .remove(0);
        event.note = note.map(str::to_string);
        event.scratch_lines = (outcome == Outcome::Ok).then_some(58);
        TimelineRow::Run(Box::new(HistoryEntry {
            record: LedgerRecord {
                seq: 1000 - age as u64,
                previous_digest: Digest::of(b""),
                time: hours(age),
                boot: None,
                event,
            },
            undone_by: (id == "5a10c3d2").then(|| "77ab0011".to_string()),
            is_redo: false,
        }))
    };
    let entry = |age: i64, kind: EntryKind, run: Option<&str>, presence: EntryPresence| {
        let stamp = hours(age).naive_local();
        TimelineRow::Entry(TimelineEntry {
            path: format!("{agent}/{}.md", stamp.format("%Y-%m-%d_%H%M")).into(),
            kind,
            stamp,
            size: (presence == EntryPresence::Present).then_some(1_200),
            run: run.map(str::to_string),
            is_pinned: age == 9,
            presence,
        })
    };
    let failure = "cannot write /srv/agents/MEMORY.md: no space left on device";
    AgentTimeline {
        agent: agent.to_string(),
        has_left: agent == "walrus",
        rows: vec![
            run("77ab0011", 1, Outcome::Failed, Some(failure)),
            run("5a10c3d2", 3, Outcome::Ok, None),
            entry(
                3,
                EntryKind::Scratch,
                Some("5a10c3d2"),
                EntryPresence::Present,
            ),
            TimelineRow::Unchanged(UnchangedRuns {
                count: 12,
                first: hours(40),
                last: hours(6),
            }),
            entry(9, EntryKind::FullBackup, None, EntryPresence::Present),
            run("1f00d5ee", 900, Outcome::Ok, None),
            entry(
                900,
                EntryKind::Scratch,
                Some("1f00d5ee"),
                EntryPresence::Retired(hours(20)),
            ),
            entry(1000, EntryKind::Late, None, EntryPresence::Missing),
        ],
        has_more: false,
        notes: Vec::new(),
    }
}

/// An overview of retention: two agents with expired entries, one of which left the config, one
/// that failed, entries of unknown owner, and something of every fact.
pub fn retention_overview() -> RetentionOverview {
    let days = |days: i64| minutes_before(24 * 60 * days);
    let group = |agent: Option<&str>, directory: &str, expiring: usize| {
        let expiring: Vec<ExpiringEntry> = (0..expiring)
            .map(|number| ExpiringEntry {
                path: format!("{directory}/2026-01-{:02}_0900.md", number + 1).into(),
                kind: [EntryKind::Scratch, EntryKind::FullBackup][number % 2],
                size: 1_200,
                dated: days(70 - number as i64),
            })
            .collect();
        AgentRetention {
            agent: agent.map(str::to_string),
            configured: agent.is_some_and(|it| it != "walrus"),
            directory: directory.into(),
            entries: 298,
            bytes: 1 << 20,
            disk_bytes: 2 << 20,
            oldest: Some(days(80).naive_local()),
            newest: Some(days(1).naive_local()),
            expiring_bytes: 1_200 * expiring.len() as u64,
            expiring_disk_bytes: 4_096 * expiring.len() as u64,
            kept: [
                (KeepReason::Younger, 284),
                (KeepReason::Pinned, 2),
                (KeepReason::Newest, 1),
            ]
            .map(|(reason, entries)| KeptEntries {
                reason,
                entries,
                bytes: 100,
            })
            .to_vec(),
            next_expiry: Some(days(-3)),
            failure: None,
            expiring,
        }
    };
    let mut failed = group(Some("code-reviewer"), "code-reviewer", 0);
    failed.failure = Some("its last run, 5a10c3d2 of 2026-03-14 06:10, failed".to_string());
    failed.kept[0].reason = KeepReason::RunFailed;
    let mut empty = group(Some("docs-writer"), "docs-writer", 0);
    (empty.entries, empty.kept) = (0, Vec::new());
    RetentionOverview {
        archive: "/var/lib/memory-shepherd".into(),
        days: 30,
        time: test_time(),
        confirmed: Some(days(2)),
        unconfirmed: None,
        agents: vec![
            group(Some("triage"), "triage", 11),
            failed,
            group(Some("walrus"), "walrus", 2),
            group(None, "strays", 0),
            empty,
        ],
        shorter: [(21, 30), (7, 200)]
            .map(|(days, entries)| ShorterRetention {
                days,
                entries,
                bytes: 1_000,
                disk_bytes: 120 << 10,
            })
            .to_vec(),
        versions: Some(VersionRetention {
            stored: 12,
            disk_bytes: 160 << 10,
            expiring: vec![Digest::of(b"an old baseline")],
            expiring_disk_bytes: 16 << 10,
            blocked: None,
        }),
        disk: Some(DiskSpace {
            free_bytes: 28 << 30,
            total_bytes: 40 << 30,
        }),
        unclear_pins: Vec::new(),
        unreadable: Vec::new(),
    }
}
