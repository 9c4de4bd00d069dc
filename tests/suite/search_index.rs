//! The documents of the search index: their ids, and their order.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use memory_shepherd::archive::Archive;
use memory_shepherd::archive::index::{ArchiveIndex, CandidateOrder, DocumentId, DocumentSource};
use memory_shepherd::archive::search::Query;
use memory_shepherd::engine::{Engine, SearchRequest};

use super::archive_search::{request, search, search_as_it_is, write_entry};
use super::world::World;

/// Returns the documents of the index by their paths.
fn document_ids(world: &World) -> BTreeMap<PathBuf, DocumentId> {
    let archive = Archive::new(&world.archive_directory(), 0o600, None);
    let index = ArchiveIndex::open(&archive).unwrap().unwrap();
    let all = index.find_candidates(&Query::default(), CandidateOrder::Newest, &|_| true);
    let documents = all.unwrap().into_iter().map(|candidate| {
        let document = index.document(candidate).unwrap().unwrap();
        let DocumentSource::Entry(entry) = document.source;
        (entry.path, document.id)
    });
    documents.collect()
}

/// Returns the entries that a query finds, in an order.
fn found_in_order(engine: &Engine, query: &str, order: CandidateOrder) -> Vec<PathBuf> {
    let request = SearchRequest {
        order,
        ..request(engine, query)
    };
    let found = engine.search().search_archive(&request, &|| true).unwrap();
    let entries = found.entries.into_iter();
    entries.map(|found| found.entry.path).collect()
}

#[test]
fn document_keeps_its_id_while_others_come_and_go() {
    let world = World::new(&["scout", "triage"]);
    for name in ["0300", "0300-1", "0300-2", "0305"] {
        let path = format!("scout/2025-01-02_{name}.md");
        write_entry(&world, &path, "walrus\n");
    }
    let engine = world.engine();
    search(&engine, "walrus");
    let before = document_ids(&world);
    assert_eq!(before.len(), 4);

    let change = |path: &str, text: &str| {
        write_entry(&world, path, text);
        world.clock.advance(Duration::from_secs(3600));
        search(&engine, text)
    };
    // In the middle of its minute, in place.
    let found = change("scout/2025-01-02_0300-1.md", "narwhal");
    assert_eq!(found.entries.len(), 1);
    assert_eq!(document_ids(&world), before);
    assert_eq!(search(&engine, "walrus").entries.len(), 3);
    // Others, before and after it and in its minute, and one less.
    change("scout/2025-01-02_0259.md", "walrus");
    change("triage/2025-01-02_0300.md", "walrus");
    fs::remove_file(world.archive_directory().join("scout/2025-01-02_0305.md")).unwrap();
    change("scout/2025-01-02_0300-3.md", "walrus");
    let after = document_ids(&world);
    for (path, id) in &before {
        let kept = after.get(path);
        assert_eq!(kept.is_some(), !path.ends_with("2025-01-02_0305.md"));
        assert!(kept.is_none_or(|kept| kept == id), "{path:?}");
    }
    // No other document ever has the id of one that is gone.
    change("scout/2025-01-02_0305.md", "walrus");
    fs::remove_file(world.archive_directory().join("scout/2025-01-02_0305.md")).unwrap();
    let newest = document_ids(&world);
    change("scout/2025-01-02_0306.md", "walrus");
    let last = document_ids(&world);
    let added = PathBuf::from("scout/2025-01-02_0306.md");
    let known = before.values().chain(after.values()).chain(newest.values());
    assert!(known.into_iter().all(|id| *id != last[&added]));
}

#[test]
fn order_of_equal_times_is_that_of_a_scan() {
    let world = World::new(&["scout", "triage"]);
    let write = |numbers: std::ops::Range<u32>| {
        for number in numbers {
            for agent in ["scout", "triage"] {
                let path = format!("{agent}/2025-01-02_0300-{number}.md");
                write_entry(&world, &path, "walrus\n");
            }
        }
    };
    write(1..13);
    for name in ["0259", "0300", "0300-full-backup", "0301"] {
        write_entry(&world, &format!("scout/2025-01-02_{name}.md"), "walrus\n");
    }
    let engine = world.engine();
    let check = || {
        search(&engine, "walrus");
        let scanning = world.engine();
        for order in [CandidateOrder::Newest, CandidateOrder::Oldest] {
            let indexed = found_in_order(&engine, "walrus in:archive", order);
            let scanned = found_in_order(&scanning, "walrus in:archive", order);
            assert_eq!(indexed, scanned);
        }
    };
    check();
    // An entry that changes in place stays where it is, one that comes later follows.
    write_entry(&world, "scout/2025-01-02_0300-3.md", "walrus again\n");
    write(13..14);
    world.clock.advance(Duration::from_secs(3600));
    check();
}

#[test]
fn minute_with_many_entries_keeps_the_order_of_time() {
    const MANY: usize = 4200;
    let world = World::new(&["scout"]);
    for number in 1..=MANY {
        let path = format!("scout/2025-01-02_0300-{number}.md");
        write_entry(&world, &path, "walrus\n");
    }
    for minute in [259, 301, 302] {
        let path = format!("scout/2025-01-02_0{minute}.md");
        write_entry(&world, &path, "walrus\n");
    }
    let engine = world.engine();
    search(&engine, "agent:scout");
    let newest = found_in_order(&engine, "agent:scout", CandidateOrder::Newest);
    let mut oldest = found_in_order(&engine, "agent:scout", CandidateOrder::Oldest);
    assert!(newest[0].ends_with("2025-01-02_0302.md"));
    assert!(newest[1].ends_with("2025-01-02_0301.md"));
    assert!(newest[2].ends_with(format!("2025-01-02_0300-{MANY}.md")));
    assert!(newest[MANY + 2].ends_with("2025-01-02_0259.md"));
    oldest.reverse();
    assert_eq!(newest, oldest);
    for (span, count) in [
        ("since:2025-01-02T03:00 until:2025-01-02T03:00", MANY),
        ("since:2025-01-02T03:01", 2),
        ("until:2025-01-02T02:59", 1),
    ] {
        let found = search_as_it_is(&engine, &format!("agent:scout {span}"));
        assert_eq!(found.entries.len(), count, "{span}");
        assert_eq!(found.candidates, count, "{span}");
    }
}
