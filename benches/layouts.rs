//! What memories with the layout `drover` cost, as ratios of operations in the same run: recall over
//! 10,000 entries against reading the same files; opening 100, 10,000 and 100,000 entries (the
//! collections and the first page of items) against listing the directory; and a key on the Memory tab
//! with 100,000 loaded items against one with 100.
//!
//! `cargo bench --bench layouts`. Each figure is the median of several rounds, in which the compared
//! operations take turns.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints its figures and may end at any error"
)]

#[path = "../tests/support/bench_fleet.rs"]
#[allow(dead_code, reason = "shared with other benchmarks")]
mod bench_fleet;
#[path = "../tests/suite/console_fixture.rs"]
#[allow(dead_code, reason = "shared with tests")]
mod console_fixture;
#[path = "../tests/suite/engine_samples.rs"]
#[allow(dead_code, reason = "shared with tests")]
mod engine_samples;
#[path = "../tests/support/entry_generator.rs"]
#[allow(dead_code, reason = "shared with other benchmarks")]
mod entry_generator;

use std::fs;
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use memory_shepherd::base::clock::SystemClock;
use memory_shepherd::console::message::Msg;
use memory_shepherd::console::screens::agent::state::memory::ItemPage;
use memory_shepherd::layouts::drover::{DroverLayout, Entry, RankingMode, Store, rank};
use memory_shepherd::layouts::{Layout, MemoryFiles};
use memory_shepherd::transport::local::LocalTransport;
use tempfile::TempDir;

use self::bench_fleet::{median, millis, ratio};
use self::console_fixture::{TestConsole, fleet_with_layouts, memory_item};
use self::entry_generator::{Random, word};

const ROUNDS: usize = 7;

/// Numbers of entries.
const FEW: usize = 100;
const MANY: usize = 10_000;
const VERY_MANY: usize = 100_000;

/// Number of words of a body.
const BODY_WORDS: usize = 80;

/// Number of items that are delivered to the console at once.
const PAGE_ITEMS: usize = 200;

fn main() {
    recall();
    opening();
    keys();
}

/// A directory of entries.
struct Entries {
    directory: TempDir,
    count: usize,
}

impl Entries {
    fn write(count: usize) -> Entries {
        let directory = tempfile::Builder::new()
            .prefix("layouts-bench")
            .tempdir_in(env!("CARGO_TARGET_TMPDIR"))
            .expect("a directory");
        let entries = Entries { directory, count };
        fs::create_dir(entries.global()).expect("a directory");
        let mut random = Random::new(count as u64);
        for number in 0..count {
            let id = format!("01HF7YAT00AAAAAAAAAA{number:06}");
            let mut words = |count| -> String {
                let words = (0..count).map(|_| word(random.zipf_rank()));
                words.collect::<Vec<_>>().join(" ")
            };
            let (summary, body) = (words(6), words(BODY_WORDS));
            let text = format!(
                "---\nid: {id}\nscope: global\nkind: project\nsummary: \"{summary}\"\ncreatedAt: 1700000000000\ntags:\n  - style\n---\n\n{body}\n"
            );
            fs::write(entries.global().join(format!("{id}.md")), text).expect("an entry");
        }
        entries
    }

    fn global(&self) -> PathBuf {
        self.directory.path().join("global")
    }

    fn files(&self) -> MemoryFiles {
        let transport = LocalTransport::new(Arc::new(SystemClock));
        let root = self.directory.path().canonicalize().expect("a path");
        MemoryFiles::new(Arc::new(transport), &root)
    }

    /// Lists names and metadata, and nothing else.
    fn list_bare(&self) -> usize {
        let items = fs::read_dir(self.global()).expect("a directory").flatten();
        items
            .map(|item| item.metadata().expect("metadata").len() as usize)
            .sum()
    }

    /// Reads all files, and nothing else.
    fn read_bare(&self) -> usize {
        let items = fs::read_dir(self.global()).expect("a directory").flatten();
        items
            .map(|item| fs::read(item.path()).expect("a file").len())
            .sum()
    }

    /// Returns the number of items that the first page has.
    fn open(&self) -> usize {
        let files = self.files();
        let collections = DroverLayout.collections(&files).expect("the collections");
        let mut pages = DroverLayout
            .items(&files, &collections[0].id)
            .expect("the collection");
        pages.next().expect("a page").expect("its items").len()
    }
}

fn time_of<T>(operation: impl FnOnce() -> T) -> Duration {
    let began = Instant::now();
    black_box(operation());
    began.elapsed()
}

/// Measures operations in turns, and returns the median of each.
fn medians<const N: usize>(mut operations: [&mut dyn FnMut(); N]) -> [Duration; N] {
    let mut times: [Vec<Duration>; N] = std::array::from_fn(|_| Vec::new());
    for _ in 0..ROUNDS {
        for (operation, times) in operations.iter_mut().zip(&mut times) {
            times.push(time_of(operation));
        }
    }
    times.map(median)
}

fn recall() {
    let entries = Entries::write(MANY);
    let files = entries.files();
    let query = format!("{} {} style", word(300), word(900));
    let store = Store::load(&files).expect("the entries");
    let known: Vec<&Entry> = store.entries().map(|(_, entry)| entry).collect();
    assert_eq!(known.len(), entries.count);
    let [read, whole, ranked, better] = medians([
        &mut || {
            black_box(entries.read_bare());
        },
        &mut || {
            let store = Store::load(&files).expect("the entries");
            let seen: Vec<&Entry> = store.entries().map(|(_, entry)| entry).collect();
            assert!(!rank(&seen, &query, RankingMode::Bm25).is_empty());
        },
        &mut || {
            black_box(rank(&known, &query, RankingMode::Bm25));
        },
        &mut || {
            black_box(rank(&known, &query, RankingMode::Better));
        },
    ]);
    println!("recall over {MANY} entries");
    println!(
        "  reading and ranking {:.0} ms; reading alone {:.0} ms; ratio {:.1}",
        millis(whole),
        millis(read),
        ratio(whole, read)
    );
    println!(
        "  ranking {:.1} ms, ratio to reading alone {:.2}; better {:.1} ms, ratio {:.2}",
        millis(ranked),
        ratio(ranked, read),
        millis(better),
        ratio(better, read)
    );
}

fn opening() {
    println!("opening: the collections and the first page");
    let sizes = [FEW, MANY, VERY_MANY];
    let mut first = None;
    for size in sizes {
        let entries = Entries::write(size);
        let [listed, opened] = medians([
            &mut || {
                black_box(entries.list_bare());
            },
            &mut || {
                black_box(entries.open());
            },
        ]);
        let few = *first.get_or_insert(opened);
        println!(
            "  {size:>7} entries: {:.1} ms; ratio to {FEW} entries {:.1}, to listing the directory {:.1}",
            millis(opened),
            ratio(opened, few),
            ratio(opened, listed)
        );
    }
}

/// Returns a console that shows a memory with these many items.
fn console_with_items(count: usize) -> TestConsole {
    let mut console = fleet_with_layouts();
    console.select_agent("keeper");
    let number = console.open_memory().number;
    let ids: Vec<String> = (0..count).map(|number| format!("n{number}.md")).collect();
    for page in ids.chunks(PAGE_ITEMS) {
        let items = page.iter().map(|id| memory_item(id)).collect();
        let page = ItemPage {
            items,
            is_last: false,
        };
        console.send(Msg::ItemsRead(number, Ok(page)));
    }
    console.deliver_items(number, &[], true);
    assert_eq!(console.model.agent.memory.items.loaded.len(), count);
    console
}

/// Measures keys with their frames.
fn keys() {
    println!("keys on the Memory tab, with {FEW} and {VERY_MANY} loaded items");
    let mut consoles = [FEW, VERY_MANY].map(console_with_items);
    for (what, keys) in [
        ("cursor", "j j j j k k k k"),
        ("last and first item", "G gg G gg"),
        ("filter, a letter", "/ 9 Esc"),
    ] {
        let [few, many] = consoles.each_mut();
        let press = |console: &mut TestConsole| {
            for key in keys.split(' ') {
                console.press(key);
                black_box(console.screen_text());
            }
        };
        let mut rounds = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            rounds[0].push(time_of(|| press(few)));
            rounds[1].push(time_of(|| press(many)));
        }
        let count = keys.split(' ').count() as u32;
        let [few, many] = rounds.map(|times| median(times) / count);
        println!(
            "  {what} ({keys}), a key with its frame: {:.2} ms and {:.2} ms; ratio {:.1}",
            millis(few),
            millis(many),
            ratio(many, few)
        );
    }
}
