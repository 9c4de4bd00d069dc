//! What the search of a large archive costs, beside the `sqlite3` shell and ripgrep on the same files,
//! and what its retention overview costs, beside that of a tenth of it.
//!
//! `cargo bench --bench archive`; `ENTRIES=N` for another size than 100,000. It needs `sqlite3` and
//! `rg` on the path.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![expect(clippy::expect_used, reason = "a benchmark may end at any error")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use memory_shepherd::archive::Archive;
use memory_shepherd::archive::index::{ArchiveIndex, CandidateOrder, DocumentSource};
use memory_shepherd::archive::search::{Query, for_each_word};

#[path = "../tests/support/entry_generator.rs"]
mod entry_generator;

use entry_generator::{Random, word, write_entries};

const AGENTS: usize = 100;
const ENTRY_BYTES: usize = 2000;
const QUERIES: usize = 200;

fn main() {
    let count = std::env::var("ENTRIES").ok();
    let count = count.and_then(|it| it.parse().ok()).unwrap_or(100_000);
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().canonicalize().expect("a path");
    write_entries(&root, AGENTS, count, ENTRY_BYTES);
    let bytes = entry_bytes(&root);
    println!("{count} entries, {:.0} MB", bytes as f64 / 1e6);
    let archive = Archive::new(&root, 0o600, None);
    let directories: Vec<PathBuf> = (0..AGENTS)
        .map(|agent| PathBuf::from(format!("agent-{agent:03}")))
        .collect();

    let began = Instant::now();
    let mut words = 0_usize;
    for path in entry_paths(&root) {
        let text = fs::read(path).expect("an entry");
        for_each_word(&text, |word, _| words += word.len());
    }
    println!(
        "reading and splitting: {:.1} s ({:.0} MB of words)",
        began.elapsed().as_secs_f64(),
        words as f64 / 1e6
    );
    let shell = sqlite_shell(&root, directory.path());
    let began = Instant::now();
    let mut index = ArchiveIndex::create(&archive).expect("an index");
    let update = |index: &mut ArchiveIndex, minutes| {
        let paths = directories.iter().map(PathBuf::as_path);
        let now = chrono::Local::now().fixed_offset() + chrono::Duration::minutes(minutes);
        index.update(&archive, paths, now, &mut |_| true)
    };
    let report = update(&mut index, 60).expect("an update");
    assert_eq!(report.indexed, count as u64);
    let ours = began.elapsed().as_secs_f64();
    println!(
        "full index: {ours:.1} s; the rows by the sqlite3 shell: {shell:.1} s; ratio {:.2} (at most 1.3)",
        ours / shell
    );
    let size = fs::metadata(archive.program_path("index.sqlite"))
        .expect("the index")
        .len();
    println!(
        "index: {:.2} of the text (at most 1); resident at most {} MB (100)",
        size as f64 / bytes as f64,
        peak_resident_mb()
    );
    // A sweep looks at every entry; between two of them an update looks at directories.
    for (what, minutes) in [("directories", 61), ("every entry", 120)] {
        let began = Instant::now();
        update(&mut index, minutes).expect("an update");
        println!(
            "unchanged, {what}: {:.1} ms",
            began.elapsed().as_secs_f64() * 1e3
        );
    }
    measure_queries(&index, &root);
    measure_overview(&root, count);
}

/// Measures queries as operators type them, and the same words by ripgrep.
fn measure_queries(index: &ArchiveIndex, root: &Path) {
    let mut random = Random::new(7);
    let now = chrono::Local::now().fixed_offset();
    let mut delays = Vec::new();
    for number in 0..QUERIES {
        // Not the words that stand in every text: operators know better.
        let mut rare = || word(200 + random.zipf_rank());
        let text = match number % 5 {
            0 => rare(),
            1 => format!("{} {}", rare(), rare()),
            2 => format!("{}*", &rare()[..4]),
            3 => format!("{} -{}", rare(), rare()),
            _ => format!("{} since:2026-01-02", rare()),
        };
        let query = Query::parse(&text, now).expect("a query");
        let began = Instant::now();
        let order = CandidateOrder::Relevance;
        let found = index.find_candidates(&query, order, &|_| true);
        for candidate in found.expect("a search").into_iter().take(50) {
            let document = index.document(candidate).expect("the index");
            let DocumentSource::Entry(entry) = document.expect("an entry").source;
            let text = fs::read(root.join(&entry.path)).expect("an entry");
            assert!(query.find_hits(&text).is_some(), "{:?}", entry.path);
        }
        delays.push(began.elapsed().as_secs_f64() * 1e3);
    }
    delays.sort_by(f64::total_cmp);
    let at = |share: usize| delays[delays.len() * share / 100];
    println!(
        "query, with excerpts of 50 entries: p50 {:.1} ms, p95 {:.1} ms (at most 30), worst {:.1} ms",
        at(50),
        at(95),
        delays[delays.len() - 1]
    );
    let mut scans: Vec<f64> = (0..5)
        .map(|number| {
            let began = Instant::now();
            let pattern = word(500 + number * 97);
            let status = Command::new("rg")
                .args(["-i", "-c", "-w", "--no-ignore", &pattern])
                .arg(root)
                .stdout(Stdio::null())
                .status();
            status.expect("rg");
            began.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    scans.sort_by(f64::total_cmp);
    println!(
        "ripgrep: median {:.0} ms; times the median query: {:.0} (at least 50)",
        scans[2],
        scans[2] / at(50)
    );
}

/// Measures `archive prune --dry-run` on the archive and on a smaller one.
fn measure_overview(root: &Path, count: usize) {
    let directory = tempfile::tempdir().expect("a directory");
    let smaller = directory.path().canonicalize().expect("a path");
    write_entries(&smaller, AGENTS, count / 10, ENTRY_BYTES);
    let [all, tenth] = [root, &smaller].map(overview_seconds);
    println!(
        "retention overview: {all:.2} s; of a tenth of the entries: {tenth:.2} s; ratio {:.1} (at most 15)",
        all / tenth
    );
}

fn overview_seconds(archive: &Path) -> f64 {
    let site = tempfile::tempdir().expect("a directory");
    let config = site.path().join("memory-shepherd.conf");
    for name in ["baselines", "scout"] {
        fs::create_dir(site.path().join(name)).expect("a directory");
    }
    let text = format!(
        "[general]\nbaseline_dir = {0}/baselines\narchive_dir = {1}\n[scout]\nmemory_file = {0}/scout/MEMORY.md\nbaseline = scout.md\n",
        site.path().display(),
        archive.display()
    );
    fs::write(&config, text).expect("a config");
    let began = Instant::now();
    let output = Command::new(env!("CARGO_BIN_EXE_memory-shepherd"))
        .args(["archive", "prune", "--dry-run", "--json", "--config"])
        .arg(&config)
        .output()
        .expect("the program");
    assert!(output.status.success(), "{output:?}");
    began.elapsed().as_secs_f64()
}

/// Inserts the same texts into FTS5 by the shell, and returns the seconds that takes.
fn sqlite_shell(root: &Path, directory: &Path) -> f64 {
    let rows = directory.join("rows.csv");
    let mut file = std::io::BufWriter::new(fs::File::create(&rows).expect("a file"));
    for path in entry_paths(root) {
        let text = fs::read_to_string(path).expect("an entry");
        writeln!(file, "\"{}\"", text.replace('"', "\"\"")).expect("a row");
    }
    drop(file);
    let database = directory.join("shell.sqlite");
    let script = format!(
        "CREATE VIRTUAL TABLE words USING fts5(text);\n.mode csv\n.import {} words\n",
        rows.display()
    );
    let began = Instant::now();
    let mut shell = Command::new("sqlite3")
        .arg(&database)
        .stdin(Stdio::piped())
        .spawn()
        .expect("sqlite3");
    shell
        .stdin
        .take()
        .expect("a pipe")
        .write_all(script.as_bytes())
        .expect("the script");
    assert!(shell.wait().expect("sqlite3").success());
    let seconds = began.elapsed().as_secs_f64();
    fs::remove_file(rows).expect("the rows");
    fs::remove_file(database).expect("the database");
    seconds
}

fn entry_paths(root: &Path) -> Vec<PathBuf> {
    let directories = fs::read_dir(root).expect("a directory").flatten();
    let agents = directories.filter(|it| it.file_name().to_string_lossy().starts_with("agent-"));
    let files = agents.flat_map(|it| fs::read_dir(it.path()).expect("a directory").flatten());
    files.map(|file| file.path()).collect()
}

fn entry_bytes(root: &Path) -> u64 {
    let sizes = entry_paths(root).into_iter();
    sizes
        .map(|path| fs::metadata(path).expect("an entry").len())
        .sum()
}

/// The largest resident size of this process, in megabytes.
fn peak_resident_mb() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024
}
