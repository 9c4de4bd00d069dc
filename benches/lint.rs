//! Cost of the lint with all rules: 100 baselines of 16 KB, the compilation of the patterns included
//! in the first round, and typing in one draft of 200 KB.
//!
//! `cargo bench --bench lint`. With `BENCH_DIRECTORY=DIR` it also writes the 100 baselines there, so
//! that another program can be timed on the same files.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::time::Instant;

use memory_shepherd::lint::{FleetFacts, LintInput, LintSettings, TEMPLATE, TextRole, lint};

const BASELINES: usize = 100;
const BYTES: usize = 16 << 10;
const DRAFT_BYTES: usize = 200 << 10;
const ROUNDS: usize = 7;
const KEYS: usize = 100;

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
    Ok(())
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
