//! Search in the files of memories of several files, beside entries and memories of one file.

use std::fs;
use std::time::Duration;

use memory_shepherd::archive::index::CandidateOrder;
use memory_shepherd::archive::search::Query;
use memory_shepherd::engine::{Engine, SearchRequest, SearchResult, TextSource};

use super::edited_files::read_tree;
use super::layouts::world_with_layout_agent;
use super::world::World;

fn search(engine: &Engine, query: &str) -> SearchResult {
    let request = SearchRequest {
        query: Query::parse(query, engine.clock().now()).unwrap(),
        order: CandidateOrder::Relevance,
        limit: 100,
        max_lines: 10,
        reads_remote: false,
    };
    engine.search().search_archive(&request, &|| true).unwrap()
}

/// Returns the paths of the files that a search finds.
fn found_files(engine: &Engine, query: &str) -> Vec<String> {
    let files = search(engine, query).files.into_iter();
    files.map(|file| file.path.display().to_string()).collect()
}

fn write_note(world: &World, name: &str, text: &str) {
    let path = world.agent_directory("keeper").join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A world with notes in both collections, and a run behind it.
fn world_with_notes() -> World {
    let world = world_with_layout_agent();
    write_note(&world, "kept/oolong.md", "oolong is half green tea\n");
    write_note(&world, "harbour.md", "the harbour opens at noon\n");
    settle(&world);
    world.reset();
    world
}

/// Sets the clock to a day after all changes on the disk, so that the index takes files that changed.
fn settle(world: &World) {
    let now = world.engine().clock().now();
    let real = chrono::Local::now().fixed_offset();
    let ahead = (real - now + chrono::Duration::days(1)).to_std();
    world.clock.advance(ahead.unwrap_or_default());
}

#[test]
fn files_are_found_with_and_without_the_index() {
    let world = world_with_notes();
    let tree = read_tree(&world.agent_directory("keeper"));
    for has_index in [false, true, true] {
        let engine = world.engine();
        if has_index {
            engine.search().update_index(&mut |_| true).unwrap();
        }
        let mut tea = found_files(&engine, "tea");
        tea.sort();
        assert_eq!(tea, ["kept/oolong.md", "tea.md"], "{has_index}");
        assert_eq!(
            found_files(&engine, "\"half green\" -harbour"),
            ["kept/oolong.md"]
        );
        assert_eq!(found_files(&engine, "/open.*noon/"), ["harbour.md"]);
        let found = search(&engine, "noon");
        assert!(found.entries.is_empty() && found.memories.is_empty());
        let file = &found.files[0];
        assert_eq!(
            (file.agent.as_str(), file.layout.as_str()),
            ("keeper", "notes")
        );
        assert_eq!(
            (file.collection.as_str(), file.title.as_str()),
            ("new", "the harbour opens at noon")
        );
        assert_eq!(file.text.lines[0].hits[0], 21..25);
    }
    assert_eq!(
        read_tree(&world.agent_directory("keeper")),
        tree,
        "a search changes nothing"
    );
}

#[test]
fn indexed_files_follow_the_disk() {
    let world = world_with_notes();
    let engine = world.engine();
    engine.search().update_index(&mut |_| true).unwrap();
    assert_eq!(found_files(&engine, "noon"), ["harbour.md"]);
    write_note(&world, "harbour.md", "the harbour opens at dawn\n");
    write_note(&world, "quay.md", "the quay opens at dawn\n");
    assert!(found_files(&engine, "noon").is_empty());
    assert_eq!(found_files(&engine, "dawn").len(), 2);
    fs::remove_file(world.agent_directory("keeper").join("quay.md")).unwrap();
    assert_eq!(found_files(&engine, "dawn"), ["harbour.md"]);
    // Words of files are found when they are misspelt, and entries are counted without them.
    assert_eq!(found_files(&engine, "harbuor"), ["harbour.md"]);
    let size = search(&engine, "dawn").archive_size;
    let entries = engine
        .search()
        .rebuild_index(&mut |_| true)
        .unwrap()
        .indexed;
    assert_eq!(size.unwrap().0, entries);
    assert_eq!(found_files(&engine, "dawn"), ["harbour.md"]);
}

#[test]
fn conditions_choose_files_by_source_layout_and_time() {
    let world = world_with_notes();
    let engine = world.engine();
    let cases: [(&str, usize, bool); 9] = [
        ("in:memory", 3, false),
        ("layout:notes tea", 2, false),
        ("layout:no*", 3, false),
        ("layout:drover tea", 0, false),
        ("in:archive tea", 0, false),
        ("in:live tea", 0, false),
        ("tea agent:scout", 0, false),
        ("tea kind:scratch", 0, false),
        ("note", 0, true),
    ];
    for (query, count, has_others) in cases {
        let found = search(&engine, query);
        assert_eq!(found.files.len(), count, "{query}");
        let others = found.entries.len() + found.memories.len();
        assert_eq!(others > 0, has_others, "{query}: {:?}", found.notes);
    }
    let old = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(86_400 * 365);
    let path = world.agent_directory("keeper").join("tea.md");
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(old).unwrap();
    assert_eq!(found_files(&engine, "tea until:1980"), ["tea.md"]);
    assert_eq!(found_files(&engine, "tea since:2000"), ["kept/oolong.md"]);
}

#[test]
fn text_of_a_found_file_is_read_as_it_is_now() {
    let world = world_with_notes();
    let engine = world.engine();
    let source = TextSource::MemoryFile {
        agent: "keeper".to_string(),
        collection: "new".to_string(),
        item: "tea.md".to_string(),
        path: "tea.md".into(),
    };
    let text = engine.search().read_source(&source, 5).unwrap();
    assert_eq!(
        (text.bytes.as_slice(), text.omitted_bytes),
        (&b"green"[..], 5)
    );
    fs::remove_file(world.agent_directory("keeper").join("tea.md")).unwrap();
    let error = engine.search().read_source(&source, 5).unwrap_err();
    assert!(error.message().contains("no file tea.md"), "{error}");
}

#[test]
fn memory_that_cannot_be_read_is_named() {
    let world = world_with_notes();
    fs::remove_dir_all(world.agent_directory("keeper")).unwrap();
    let found = search(&world.engine(), "tea");
    assert!(found.files.is_empty());
    let note = found
        .notes
        .iter()
        .find(|note| note.contains("keeper: memory_dir does not exist"));
    assert!(note.is_some(), "{:?}", found.notes);
}
