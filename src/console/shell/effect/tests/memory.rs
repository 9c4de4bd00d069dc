//! Memories with a layout: a large collection is read as far as it is wanted and closed with its config,
//! a content does not wait for it; checks, and comparisons of the files that an operation changes.

use std::sync::atomic::AtomicUsize;

use chrono::{DateTime, FixedOffset};

use super::super::memory::MAX_ITEMS_WAIT;
use super::*;
use crate::base::digest::Digest;
use crate::console::screens::agent::state::memory::{ItemContentRequest, ItemsRequest};
use crate::console::screens::reset::state::FileChangesRequest;
use crate::engine::{FileState, PlannedFile};
use crate::layouts::{
    Collection, FileEdit, HealthFinding, HealthSeverity, ItemContent, ItemPages, Layout, Layouts,
    MemoryFiles, MemoryItem, OperationRequest, OperationSpec, PlanFailure, PlannedOperation,
    SearchAnswer, SearchableFile,
};

const PAGE_ITEMS: usize = 50;

/// A layout with a collection of a hundred thousand items, and the number of its pages that were read.
struct NumbersLayout(&'static AtomicUsize);

/// Pages that the only test of [`COUNTED_LAYOUTS`] has read.
static READ_PAGES: AtomicUsize = AtomicUsize::new(0);

static COUNTED_LAYOUTS: [&dyn Layout; 1] = [&NumbersLayout(&READ_PAGES)];

static OTHER_READ_PAGES: AtomicUsize = AtomicUsize::new(0);

static LAYOUTS: [&dyn Layout; 1] = [&NumbersLayout(&OTHER_READ_PAGES)];

impl Layout for NumbersLayout {
    fn name(&self) -> &'static str {
        "numbers"
    }

    fn detect(&self, _files: &MemoryFiles) -> Result<Option<String>> {
        Ok(None)
    }

    fn collections(&self, _files: &MemoryFiles) -> Result<Vec<Collection>> {
        let [id, name] = ["all", "All numbers"].map(str::to_string);
        Ok(vec![Collection { id, name }])
    }

    fn items<'f>(&self, _files: &'f MemoryFiles, _collection: &str) -> Result<ItemPages<'f>> {
        let item = |number: usize| MemoryItem {
            id: number.to_string(),
            title: number.to_string(),
            path: "numbers".into(),
            bytes: 1,
            modified: None,
            visible_to: "all".to_string(),
            labels: Vec::new(),
            failure: None,
        };
        let read_pages = self.0;
        Ok(Box::new((0..100_000 / PAGE_ITEMS).map(move |page| {
            read_pages.fetch_add(1, Ordering::Relaxed);
            let first = page * PAGE_ITEMS;
            Ok((first..first + PAGE_ITEMS).map(item).collect())
        })))
    }

    fn read(
        &self,
        _files: &MemoryFiles,
        _collection: Option<&str>,
        item: &str,
    ) -> Result<ItemContent> {
        Ok(ItemContent {
            path: "numbers".into(),
            bytes: format!("number {item}\n").into_bytes(),
            given: None,
        })
    }

    fn texts(&self, _files: &MemoryFiles) -> Result<Vec<SearchableFile>> {
        Ok(Vec::new())
    }

    fn title(&self, _file: &SearchableFile, _bytes: &[u8]) -> String {
        String::new()
    }

    fn search(&self, _files: &MemoryFiles, _query: &str) -> Result<SearchAnswer> {
        Err(Error::new(ErrorKind::User, "numbers are not searched"))
    }

    fn health(
        &self,
        _files: &MemoryFiles,
        _now: DateTime<FixedOffset>,
    ) -> Result<Vec<HealthFinding>> {
        let finding = |severity| HealthFinding {
            check: "parity",
            severity,
            path: None,
            line: None,
            id: None,
            measured: None,
            reported: None,
            why: "half of the numbers are odd",
            remedy: "add one to each",
        };
        let severities = [HealthSeverity::Info, HealthSeverity::Error];
        Ok(severities.map(finding).to_vec())
    }

    fn operations(&self) -> &'static [OperationSpec] {
        &[
            OperationSpec {
                name: "count",
                title: "count on",
                arguments: &[],
            },
            OperationSpec {
                name: "forget",
                title: "forget a number",
                arguments: &[],
            },
        ]
    }

    fn plan(
        &self,
        _files: &MemoryFiles,
        _record: Option<&MemoryFiles>,
        request: &OperationRequest,
    ) -> Result<PlannedOperation, PlanFailure> {
        if request.operation != "count" {
            return Err(Error::new(ErrorKind::Conflict, "the numbers have changed").into());
        }
        Ok(PlannedOperation {
            outcome: "counted",
            message: "counted on".to_string(),
            facts: serde_json::json!({}),
            edits: vec![edit_of("one.txt", "1\n", "1\n2\n")],
            basis: None,
        })
    }
}

fn edit_of(path: &str, before: &str, after: &str) -> FileEdit {
    FileEdit {
        path: path.into(),
        before: Some(before.as_bytes().to_vec()),
        after: Some(after.as_bytes().to_vec()),
        moved_from: None,
    }
}

/// Returns an edit as a plan has it, below the directory of the memory.
fn planned_file(edit: &FileEdit) -> PlannedFile {
    let state = |bytes: &Option<Vec<u8>>| {
        let bytes = bytes.as_ref().unwrap();
        FileState::File {
            sha256: Digest::of(bytes),
            size: bytes.len() as u64,
            lines: bytes.iter().filter(|byte| **byte == b'\n').count() as u64,
        }
    };
    let file = serde_json::json!({
        "path": Path::new("/agent/numbers").join(&edit.path),
        "before": state(&edit.before),
        "after": state(&edit.after),
    });
    serde_json::from_value(file).unwrap()
}

/// The section of an agent with this layout.
fn config_text(directory: &str) -> String {
    format!("[general]\n[counter]\nlayout = numbers\nmemory_dir = {directory}\n")
}

fn load_config(root: &Path) -> Config {
    config::load(&config_path(root), &test_env(root)).unwrap()
}

/// Returns an engine with these layouts.
fn engine_with_layouts(config: Config, layouts: &'static [&'static dyn Layout]) -> Engine {
    let (_release, released) = bounded::<()>(0);
    Engine::new(EngineSetup {
        config,
        clock: Arc::new(SystemClock),
        transports: Arc::new(LocalAndSilentHosts(
            fake_with_agent(),
            fake_with_agent(),
            released,
        )),
        user: "tester".to_string(),
        trigger: Trigger::Console,
        archive_group: None,
        layouts: Layouts(layouts),
    })
}

/// A runner for one agent with a layout, whose config may change.
struct LayoutRunner {
    root: tempfile::TempDir,
    runner: EffectRunner,
    inbox: Receiver<Msg>,
}

impl LayoutRunner {
    fn new(layouts: &'static [&'static dyn Layout]) -> LayoutRunner {
        let root = tempfile::tempdir().unwrap();
        write_config(root.path(), &config_text("/agent/numbers"));
        let make_engine = move |config| Ok(engine_with_layouts(config, layouts));
        let engine = engine_with_layouts(load_config(root.path()), layouts);
        let (runner, inbox) = start_runner(root.path(), engine, Arc::new(make_engine));
        LayoutRunner {
            root,
            runner,
            inbox,
        }
    }

    /// Returns what the first message is about of which `find` knows it.
    fn wait_for<T>(&self, mut find: impl FnMut(Msg) -> Option<T>) -> T {
        loop {
            let msg = self.inbox.recv_timeout(WAIT_TIMEOUT).unwrap();
            if let Some(found) = find(msg) {
                return found;
            }
        }
    }

    fn request_items(&mut self, (number, loaded, wanted): (u64, usize, usize)) {
        self.request_items_of(None, (number, loaded, wanted));
    }

    fn request_items_of(
        &mut self,
        collection: Option<&str>,
        (number, loaded, wanted): (u64, usize, usize),
    ) {
        self.runner.execute(Effect::ReadItems(ItemsRequest {
            number,
            agent: "counter".to_string(),
            collection: collection.map(str::to_string),
            loaded,
            wanted,
        }));
    }

    /// Waits until that many items of a request have come. Returns the ids of the first and the last one.
    fn wait_for_items(&self, number: u64, count: usize) -> [String; 2] {
        let mut ids = Vec::new();
        while ids.len() < count {
            let items = self.wait_for(|msg| match msg {
                Msg::ItemsRead(of, page) if of == number => Some(page.unwrap().items),
                _ => None,
            });
            ids.extend(items.into_iter().map(|item| item.id));
        }
        assert_eq!(ids.len(), count);
        [ids.remove(0), ids.pop().unwrap()]
    }

    fn check_memory(&mut self, number: u64, agent: &str) -> Result<Vec<HealthFinding>, String> {
        let agent = agent.to_string();
        self.runner.execute(Effect::CheckMemory(number, agent));
        self.wait_for(|msg| match msg {
            Msg::MemoryChecked(of, findings) if of == number => Some(findings),
            _ => None,
        })
    }

    /// Returns the lines of the comparison of these files with what an operation makes of them.
    fn compare_files(&mut self, operation: &str, files: &[FileEdit]) -> Vec<String> {
        let request = FileChangesRequest {
            agent: "counter".to_string(),
            directory: "/agent/numbers".into(),
            operation: Some(OperationRequest {
                operation: operation.to_string(),
                arguments: Default::default(),
                now: Default::default(),
            }),
            files: files.iter().map(planned_file).collect(),
            new_directories: Vec::new(),
            removed_directories: Vec::new(),
        };
        self.runner
            .execute(Effect::CompareFileChanges(request.clone()));
        let text = self.wait_for(|msg| match msg {
            Msg::FileChangesCompared(of, text) if of == request => Some(text),
            _ => None,
        });
        let lines = text.lines.into_iter();
        let lines = lines.map(|line| String::from_utf8(line.bytes).unwrap());
        lines.collect()
    }

    fn shut_down(self) {
        let is_ended = self
            .runner
            .shut_down(self.inbox, None, |_, _| unreachable!("there is no run"));
        assert!(is_ended);
    }
}

#[test]
fn large_collection_is_read_as_far_as_it_is_wanted() {
    let mut fleet = LayoutRunner::new(&COUNTED_LAYOUTS);
    fleet.request_items((1, 0, 200));
    assert_eq!(fleet.wait_for_items(1, 200), ["0", "199"]);
    // The open collection delays no content.
    fleet
        .runner
        .execute(Effect::ReadItemContent(ItemContentRequest {
            number: 1,
            agent: "counter".to_string(),
            collection: Some("all".to_string()),
            item: "7".to_string(),
        }));
    let text = fleet.wait_for(|msg| match msg {
        Msg::ItemContentRead(_, text) => Some(text.unwrap()),
        _ => None,
    });
    assert_eq!(text.lines[0].bytes, b"number 7");
    assert_eq!(READ_PAGES.load(Ordering::Relaxed), 4, "no page too many");
    fleet.request_items((1, 200, 400));
    assert_eq!(fleet.wait_for_items(1, 200), ["200", "399"]);
    assert_eq!(READ_PAGES.load(Ordering::Relaxed), 8, "none was read again");
    // Another request ends the job that waits.
    fleet.request_items((2, 0, 50));
    fleet.wait_for_items(2, 50);
    fleet.shut_down();
}

#[test]
fn closed_collection_is_continued_behind_loaded_items() {
    let mut fleet = LayoutRunner::new(&LAYOUTS);
    fleet.request_items_of(Some("all"), (1, 400, 450));
    assert_eq!(fleet.wait_for_items(1, 50), ["400", "449"]);
    // Another collection takes the place of one that is not there any more.
    fleet.request_items_of(Some("gone"), (2, 400, 450));
    assert_eq!(fleet.wait_for_items(2, 450), ["0", "449"]);
    fleet.shut_down();
}

#[test]
fn changed_config_closes_the_open_collection() {
    let mut fleet = LayoutRunner::new(&LAYOUTS);
    fleet.request_items_of(Some("all"), (1, 0, 200));
    fleet.wait_for_items(1, 200);
    write_config(fleet.root.path(), &config_text("/agent/others"));
    assert!(
        fleet
            .runner
            .intercept(Msg::Fleet(FleetEvent::ConfigChanged))
            .is_none()
    );
    let reloaded = fleet.wait_for(|msg| matches!(msg, Msg::ConfigReloaded(_)).then_some(msg));
    assert!(fleet.runner.intercept(reloaded).is_none());
    let start = Instant::now();
    let adopted = fleet.runner.adopt_config();
    assert!(matches!(adopted, Some(Msg::ConfigAdopted(..))));
    fleet.wait_for(|msg| matches!(msg, Msg::ItemsPaused(1)).then_some(()));
    assert!(start.elapsed() < MAX_ITEMS_WAIT, "the job waited in vain");
    fleet.request_items_of(Some("all"), (1, 200, 250));
    assert_eq!(fleet.wait_for_items(1, 50), ["200", "249"]);
    fleet.shut_down();
}

#[test]
fn check_memory_returns_the_worst_finding_first() {
    let mut fleet = LayoutRunner::new(&LAYOUTS);
    let findings = fleet.check_memory(1, "counter").unwrap();
    let severities: Vec<_> = findings.iter().map(|it| it.severity).collect();
    assert_eq!(severities, [HealthSeverity::Error, HealthSeverity::Info]);
    let why = fleet.check_memory(2, "nobody").unwrap_err();
    assert!(why.contains("nobody"), "{why}");
    fleet.shut_down();
}

#[test]
fn planned_files_are_compared_with_their_edits() {
    let mut fleet = LayoutRunner::new(&LAYOUTS);
    let edit = edit_of("one.txt", "1\n", "1\n2\n");
    let lines = fleet.compare_files("count", &[edit]);
    assert_eq!(lines, ["change one.txt, +1 -0", "1", "2"]);
    // The file has changed since the plan was made.
    let old = edit_of("one.txt", "0\n", "0\n2\n");
    let lines = fleet.compare_files("count", &[old]);
    assert_eq!(lines, ["change one.txt, 1 line, 2 B -> 2 lines, 4 B"]);
    let lines = fleet.compare_files("forget", &[]);
    assert_eq!(lines, ["the numbers have changed"]);
    fleet.shut_down();
}
