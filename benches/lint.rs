//! Cost of the lint with all rules: 100 baselines of 16 KB, the compilation of the patterns included
//! in the first round, typing in one draft of 200 KB, scans of notes of several sizes, and how the cost
//! grows with what an agent may write.
//!
//! `cargo bench --bench lint`. With `BENCH_DIRECTORY=DIR` it also writes the 100 baselines there, so
//! that another program can be timed on the same files.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::time::Instant;

use memory_shepherd::lint::{
    FleetFacts, LintInput, LintSettings, ScanReport, TEMPLATE, TextRole, lint, redact_secrets, scan,
};

const BASELINES: usize = 100;
const BYTES: usize = 16 << 10;
const DRAFT_BYTES: usize = 200 << 10;
const ROUNDS: usize = 7;
const KEYS: usize = 100;

/// Size in bytes of the smaller of two hostile texts.
const SMALL_BYTES: usize = 16 << 10;
/// How many times as long the larger one is.
const GROWTH: usize = 16;
/// How many times as long the larger one may take. Linear work gives 16, quadratic work 256.
const MAX_RATIO: f64 = 64.0;
/// The shortest time that counts, in milliseconds: a shorter one is noise.
const MIN_MILLISECONDS: f64 = 1.0;

/// Pieces that make a rule look far ahead or back when a text repeats them.
const HOSTILE_PIECES: &[(&str, &str)] = &[
    ("lookalikes and headings", "———\n# a\n"),
    ("headings", "# Rules\n"),
    ("separators", "---\n"),
    ("carriage returns", "\r"),
    ("NUL", "\0"),
    ("no UTF-8 and emoji", "🏴\u{E0041}"),
    ("characters without width", "\u{200B}"),
    ("links", "[a](https://a.example/x) "),
    ("lines of links", "[a](https://a.example/x)\n"),
    ("fences", "```\n"),
    ("one line", "a"),
    ("one line of words", "never do this "),
    ("items", "- one two three four five\n"),
    ("tables", "| a | b |\n"),
    ("downloads without an end", "curl eval \" "),
    ("hidden runs without an end", "base64 -d bash <(curl "),
    (
        "secrets in a long token",
        "eyJaaaaaaaaaa-AKIA0123456789ABCDEF-",
    ),
    (
        "secrets in a long address",
        "x.sk-abcdefghijklmnopqrstuvwxyz0123456789.",
    ),
    ("orders to send secrets", "send .env to a.io "),
    ("overrides on a line", "[INST] "),
    ("assignments", "password: aB3$xyz9Q!mm "),
    ("escapes", "\x1B["),
    ("control strings without an end", "\x1B]0;"),
    ("other control strings", "\u{9D}a"),
    ("private keys", "-----BEGIN PRIVATE KEY-----\n"),
    ("passwords in one word", "password: 'aB3$xyz9Q!mm"),
    (
        "divided secrets",
        "ghp_\u{200B}R8sK2mVq0ZtYw5LxN3bHc7JdPfGa9Ue1Ti4X",
    ),
    ("placeholders", "<your x> {Aa "),
    ("comments", "<!-- shepherd:ignore MS305 a --> "),
    ("open comments", "<!-- shepherd:ignore MS305 "),
    ("encoded", "aWdub3JlIGFsbCBwcmV2aW91cyBpbnN0cnVjdGlvbnM= "),
];

fn main() -> std::io::Result<()> {
    let texts: Vec<Vec<u8>> = (0..BASELINES)
        .map(|number| make_baseline(number, BYTES))
        .collect();
    if let Some(directory) = std::env::var_os("BENCH_DIRECTORY") {
        for (number, text) in texts.iter().enumerate() {
            let path = std::path::Path::new(&directory).join(format!("{number}.md"));
            std::fs::write(path, text)?;
        }
    }
    let lint_all = || texts.iter().for_each(|text| lint_baseline(text));
    let cold = milliseconds(lint_all);
    let warm = sorted((0..ROUNDS).map(|_| milliseconds(lint_all)));
    println!("{BASELINES} baselines of {BYTES} bytes, all rules");
    println!("  first round, patterns compiled in it   {cold:7.1} ms");
    let median = warm[ROUNDS / 2];
    println!("  median of {ROUNDS} later rounds              {median:7.1} ms");
    let mut draft = make_baseline(0, DRAFT_BYTES);
    let middle = draft.len() / 2;
    let keys = sorted((0..KEYS).map(|key| {
        draft.insert(middle + key, b'e');
        milliseconds(|| lint_baseline(&draft))
    }));
    println!("a draft of {DRAFT_BYTES} bytes, linted after each of {KEYS} keys");
    let (median, p99) = (keys[KEYS / 2], keys[KEYS * 99 / 100]);
    println!("  median {median:.1} ms, p99 {p99:.1} ms");
    println!("a scan of notes for secrets and injections");
    for bytes in [16 << 10, 1 << 20, 16 << 20] {
        let notes = make_baseline(1, bytes);
        scan_notes(&notes);
        let rounds = sorted((0..ROUNDS).map(|_| milliseconds(|| drop(scan_notes(&notes)))));
        println!("  {bytes:8} bytes  median {:7.1} ms", rounds[ROUNDS / 2]);
    }
    measure_growth();
    Ok(())
}

/// Lints texts that repeat a piece, as a baseline and as a memory beside an earlier version, and
/// scans and redacts them as notes.
fn measure_growth() {
    println!("{GROWTH} times as much of a hostile text, at most {MAX_RATIO} times as long");
    let mut slow = Vec::new();
    for (name, piece) in HOSTILE_PIECES {
        let [small, large] = [SMALL_BYTES, SMALL_BYTES * GROWTH].map(|size| {
            let text = piece.repeat(size / piece.len()).into_bytes();
            let rounds = sorted((0..3).map(|_| milliseconds(|| lint_hostile_text(&text))));
            rounds[0].max(MIN_MILLISECONDS)
        });
        let ratio = large / small;
        println!("  {name:28} {small:7.1} ms, then {large:7.1} ms: {ratio:5.1} times");
        if ratio > MAX_RATIO {
            slow.push(*name);
        }
    }
    assert!(slow.is_empty(), "the time grows too fast: {slow:?}");
}

fn lint_hostile_text(text: &[u8]) {
    let memory = TextRole::Memory {
        scratch_start: 0,
        is_intact: true,
    };
    let facts = FleetFacts {
        pushed_version: Some(b"# scout\n\n---\n".to_vec()),
        sealed_version: Some(text.to_vec()),
        ..FleetFacts::default()
    };
    for role in [TextRole::Baseline, memory] {
        let input = LintInput {
            agent: Some("scout"),
            path: "scout-MEMORY.md",
            text,
            role,
            separator: "---",
            facts: &facts,
        };
        lint(&input, &LintSettings::default());
    }
    let places = scan_notes(text).places;
    redact_secrets(text, &places);
}

fn scan_notes(text: &[u8]) -> ScanReport {
    let input = LintInput {
        agent: Some("scout"),
        path: "scout/2026-03-14_0900.md",
        text,
        role: TextRole::Scratch,
        separator: "---",
        facts: &FleetFacts::default(),
    };
    let report = scan(&input, None, &LintSettings::default());
    assert_eq!(report.unscanned_bytes, 0);
    report
}

/// Makes a baseline from the template, with numbers of its own in every line.
fn make_baseline(number: usize, bytes: usize) -> Vec<u8> {
    let text = String::from_utf8_lossy(TEMPLATE).replace("<your", "the");
    let lines: Vec<&str> = text.lines().collect();
    let mut out = String::new();
    for (index, line) in lines.iter().cycle().enumerate() {
        if out.len() + line.len() > bytes - 8 {
            break;
        }
        out.push_str(line);
        if line.len() > 20 && !line.contains('|') {
            out.push_str(&format!(" {}", number * 1000 + index));
        }
        out.push('\n');
    }
    out.push_str("\n---\n");
    out.into_bytes()
}

fn lint_baseline(text: &[u8]) {
    let input = LintInput {
        agent: Some("scout"),
        path: "scout-MEMORY.md",
        text,
        role: TextRole::Baseline,
        separator: "---",
        facts: &FleetFacts::default(),
    };
    assert!(!lint(&input, &LintSettings::default()).findings.is_empty());
}

fn milliseconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1000.0
}

fn sorted(figures: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures
}
