//! Memories with a layout: a large collection is read as far as it is wanted, and a content and an
//! operation do not wait for it.

use std::sync::atomic::AtomicUsize;

use chrono::{DateTime, FixedOffset};

use super::*;
use crate::console::screens::agent::state::memory::{ItemContentRequest, ItemsRequest};
use crate::layouts::{
    Collection, FileEdit, HealthFinding, ItemContent, ItemPages, Layout, Layouts, MemoryFiles,
    MemoryItem, OperationRequest, OperationSpec,
};

const PAGE_ITEMS: usize = 50;

/// Pages of [`NumbersLayout`] that were read.
static READ_PAGES: AtomicUsize = AtomicUsize::new(0);

/// A layout with a collection of a hundred thousand items.
struct NumbersLayout;

impl Layout for NumbersLayout {
    fn name(&self) -> &'static str {
        "numbers"
    }

    fn detect(&self, _files: &MemoryFiles) -> Result<Option<String>> {
        Ok(None)
    }

    fn collections(&self, _files: &MemoryFiles) -> Result<Vec<Collection>> {
        let [id, title] = ["all", "All numbers"].map(str::to_string);
        Ok(vec![Collection { id, title }])
    }

    fn items<'f>(&self, _files: &'f MemoryFiles, _collection: &str) -> Result<ItemPages<'f>> {
        let item = |number: usize| MemoryItem {
            id: number.to_string(),
            title: number.to_string(),
            path: "numbers".into(),
            size: 1,
            modified: None,
            visible_to: None,
        };
        Ok(Box::new((0..100_000 / PAGE_ITEMS).map(move |page| {
            READ_PAGES.fetch_add(1, Ordering::Relaxed);
            let first = page * PAGE_ITEMS;
            Ok((first..first + PAGE_ITEMS).map(item).collect())
        })))
    }

    fn read(&self, _files: &MemoryFiles, item: &str) -> Result<ItemContent> {
        Ok(ItemContent {
            bytes: format!("number {item}\n").into_bytes(),
            given: None,
        })
    }

    fn health(
        &self,
        _files: &MemoryFiles,
        _now: DateTime<FixedOffset>,
    ) -> Result<Vec<HealthFinding>> {
        Ok(Vec::new())
    }

    fn operations(&self) -> &'static [OperationSpec] {
        &[]
    }

    fn plan(&self, _files: &MemoryFiles, _request: &OperationRequest) -> Result<Vec<FileEdit>> {
        Ok(Vec::new())
    }
}

/// Returns an engine with an agent of this layout.
fn engine_with_layout(root: &Path) -> Engine {
    let path = root.join("fleet.conf");
    let text = "[general]\n[counter]\nlayout = numbers\nmemory_dir = /agent\n";
    std::fs::write(&path, text).unwrap();
    let env = ConfigEnvironment {
        layout_names: vec!["numbers"],
        ..test_env(root)
    };
    let (_release, released) = bounded::<()>(0);
    Engine::new(EngineSetup {
        config: config::load(&path, &env).unwrap(),
        clock: Arc::new(SystemClock),
        transports: Arc::new(LocalAndSilentHosts(
            fake_with_agent(),
            fake_with_agent(),
            released,
        )),
        user: "tester".to_string(),
        trigger: Trigger::Console,
        archive_group: None,
        layouts: Layouts(&[&NumbersLayout]),
    })
}

/// Waits until that many items of a request have come. Returns the number of the last one.
fn wait_for_items(inbox: &Receiver<Msg>, number: u64, count: usize) -> String {
    let mut items = Vec::new();
    while items.len() < count {
        match inbox.recv_timeout(WAIT_TIMEOUT).unwrap() {
            Msg::ItemsRead(of, page) if of == number => items.extend(page.unwrap().items),
            _ => {}
        }
    }
    assert_eq!(items.len(), count);
    items.pop().unwrap().id
}

#[test]
fn large_collection_is_read_as_far_as_it_is_wanted() {
    let root = tempfile::tempdir().unwrap();
    let engine = engine_with_layout(root.path());
    let factory = Arc::new(|_| unreachable!("the config does not change"));
    let (mut runner, inbox) = start_runner(root.path(), engine, factory);
    let request = |number, loaded, wanted| ItemsRequest {
        number,
        agent: "counter".to_string(),
        collection: None,
        loaded,
        wanted,
    };
    runner.execute(Effect::ReadItems(request(1, 0, 200)));
    assert_eq!(wait_for_items(&inbox, 1, 200), "199");
    // The open collection delays no content.
    runner.execute(Effect::ReadItemContent(ItemContentRequest {
        number: 1,
        agent: "counter".to_string(),
        item: "7".to_string(),
    }));
    let text =
        std::iter::from_fn(|| inbox.recv_timeout(WAIT_TIMEOUT).ok()).find_map(|msg| match msg {
            Msg::ItemContentRead(_, text) => Some(text.unwrap()),
            _ => None,
        });
    assert_eq!(text.unwrap().lines[0].bytes, b"number 7");
    assert_eq!(READ_PAGES.load(Ordering::Relaxed), 4, "no page too many");
    runner.execute(Effect::ReadItems(request(1, 200, 400)));
    assert_eq!(wait_for_items(&inbox, 1, 200), "399");
    assert_eq!(READ_PAGES.load(Ordering::Relaxed), 8, "none was read again");
    // Another request ends the job that waits. One for more of what is not open any more skips what
    // is loaded.
    runner.execute(Effect::ReadItems(request(2, 0, 50)));
    wait_for_items(&inbox, 2, 50);
    runner.execute(Effect::ReadItems(request(1, 400, 450)));
    assert_eq!(wait_for_items(&inbox, 1, 50), "449");
    assert!(runner.shut_down(inbox, None, |_, _| unreachable!("there is no run")));
}
