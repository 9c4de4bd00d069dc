//! The fuzz targets on their seeds and on some hundred edits of each, the same ones
//! every time: fast, and enough to keep the targets working.
//!
//! `FUZZ_SEEDS=1 cargo test fuzz` writes the seeds to `fuzz/corpus`.

pub mod targets;

use std::fs;
use std::panic;
use std::path::{Path, PathBuf};

use crate::odd_baselines::samples::ODD_BASELINES;
use targets::{PART_SEPARATOR, TARGETS, Target};

/// The number of edits of seeds per target.
const EDITS_PER_TARGET: usize = 400;

/// Byte strings that edits insert.
const INSERTED_WORDS: &[&str] = &[
    "---\n",
    "\n---\n",
    "```\n",
    "| a |\n|---|\n",
    "- ",
    "> ",
    "<!--",
    "    ",
    "\n",
    "\r\n",
    "[general]\n",
    "[a]\n",
    "memory_file = ",
    "baseline = ",
    " #",
    "=",
    "~/",
    "./",
    "../",
    "./ ",
    " /",
    "0600",
    "2026-03-14_0900",
    "-late",
    "-1",
    ".md",
    "\u{1E}",
    "\u{1E}=",
    "\u{1E}<",
    "\u{1E}~",
    "\u{A0}",
    "\u{202E}",
    "\u{200D}",
    "\u{FE0F}",
    "\u{301}",
    "\u{1160}",
    "👩",
    "\x1B[31m",
    "‹",
    "\\",
    "\0",
];

fn project_root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the files of a directory whose names end in `end`.
fn files_with_suffix(directory: &str, end: &str) -> Vec<Vec<u8>> {
    let items = fs::read_dir(project_root().join(directory)).unwrap();
    let mut paths: Vec<PathBuf> = items.map(|item| item.unwrap().path()).collect();
    paths.retain(|path| path.to_string_lossy().ends_with(end));
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

fn seeds_of(target: &str) -> Vec<Vec<u8>> {
    match target {
        "config" => config_seeds(),
        "boundary" => boundary_seeds(),
        "entry" => entry_seeds(),
        "ledger" => ledger_seeds(),
        "seal" => seal_seeds(),
        "lint" => lint_seeds(),
        "reset" => reset_seeds(),
        "sftp" => sftp_seeds(),
        _ => text_seeds(),
    }
}

/// Joins the parts of an input.
fn input_of(parts: &[&[u8]]) -> Vec<u8> {
    parts.join(&PART_SEPARATOR)
}

fn config_seeds() -> Vec<Vec<u8>> {
    let directories = ["tests/configs/valid", "tests/configs/invalid", "config"];
    directories
        .iter()
        .flat_map(|it| files_with_suffix(it, ".conf"))
        .collect()
}

fn boundary_seeds() -> Vec<Vec<u8>> {
    let baselines = files_with_suffix("baselines", ".md");
    let notes: &[u8] = b"\n## Scratch Notes\n\n- a\n---\n- b\n";
    let built = ["=", "<", "~\x03", "~\x0e"].map(str::as_bytes);
    let mut seeds = Vec::new();
    for pair in baselines.windows(2).take(4) {
        for memory in built.map(|mark| [mark, notes].concat()) {
            seeds.push(input_of(&[b"---", &pair[0], &memory, &pair[1]]));
        }
    }
    for odd in ODD_BASELINES {
        let memory = [b"=", notes].concat();
        seeds.push(input_of(&[b"---", odd.text.as_bytes(), &memory]));
    }
    let small: &[u8] = b"# A\n\n- b\n\n```\n---\n```\n\n---\n";
    let other: &[u8] = b"# A\n\ntitle\n---\n\n***\n";
    seeds.push(input_of(&[b"---", small, b"=x\n---\ny", other]));
    seeds.push(input_of(&[b"---", small, b"<x\n---\ny", other]));
    seeds.push(input_of(&[b"***", other, b"~\x02---\n***\nx", small]));
    seeds
}

/// Each file of the corpus as a baseline, as notes, and as a memory.
fn lint_seeds() -> Vec<Vec<u8>> {
    let texts = files_with_suffix("tests/lint_corpus", ".txt");
    let roles = [0_u8, 1, 120, 121];
    let with_role = |role: u8, text: &[u8]| [&[role], &text[..text.len().min(3000)]].concat();
    let seeds = texts
        .iter()
        .flat_map(|text| roles.map(|role| with_role(role, text)));
    seeds.collect()
}

fn entry_seeds() -> Vec<Vec<u8>> {
    [
        "2026-03-14_0900.md",
        "2026-03-14_0900-2.md",
        "2026-03-14_0900-full-backup-1.md",
        "2026-03-14_0900-late.md",
        "0001-01-01_0000-odd.md",
        "2026-03-14_0900-01.md",
    ]
    .iter()
    .map(|name| {
        input_of(&[
            name.as_bytes(),
            b"\x01\x02\x03\x01\x02\x07",
            b"# a\n\n\n- b\n",
        ])
    })
    .collect()
}

fn ledger_seeds() -> Vec<Vec<u8>> {
    let whole = targets::valid_ledger();
    vec![
        [b"!", &whole[..]].concat(),
        [b"!", &whole[..whole.len() / 2]].concat(),
        b"\0\x10\0 ".to_vec(),
        b"\x02\x40\x01\n\x05\x02\0\x03".to_vec(),
        b"\x04\0\x05x".to_vec(),
        b"\x06\x03\0x\x07\x02\0x".to_vec(),
        targets::valid_segment(),
    ]
}

fn seal_seeds() -> Vec<Vec<u8>> {
    let zeros = "0".repeat(64);
    let file = format!("!{zeros}  a.md\n{zeros} *./b.md\n\\{zeros}  c\\n.md\n");
    let twice = format!("!{zeros}  a.md\n{}  ./a.md\n", "1".repeat(64));
    vec![
        file.into_bytes(),
        twice.into_bytes(),
        input_of(&[b"a.md", b"c\n\\.md", b"./d e.md"]),
    ]
}

fn reset_seeds() -> Vec<Vec<u8>> {
    let first: &[u8] = b"# A\n\n- b\n\n---\n";
    let second: &[u8] = b"# A\n\n- b\n- c\n\n---\n\n## Scratch Notes\n";
    let record = br##"{"event":{"run":"0123456789abcdef","act":"reset","trigger":"cli","user":"o","agent":"scout","host":"local","outcome":"ok","before":"absent"},"files":[{"path":"/agents/scout/MEMORY.md","staged":".shepherd-0123456789abcdef","inode":2,"known":[]}]}
{"swapped":{"file":0,"method":"exchange","displaced":[]}}"##;
    let odd = ODD_BASELINES
        .iter()
        .map(|it| input_of(&[it.text.as_bytes(), b"=", b"=- n\n"]));
    let built = [
        input_of(&[first, b"=", b"=- n\n"]),
        input_of(&[first, second, b"<- n\n\n---\n- m"]),
        input_of(&[first, second, b"=\n- n\n\n---\n- m\n"]),
        input_of(&[first, second, b"# A\n\n- x\n\n---  \n- n\n"]),
        input_of(&[b"# no separator\n", b"=", b"# no\n"]),
        input_of(&[first, second, b"<- n\n", record]),
    ];
    odd.chain(built).collect()
}

fn sftp_seeds() -> Vec<Vec<u8>> {
    let packets: [&[u8]; 8] = [
        b"\0\0\0\x1e\x02\0\0\0\x03\0\0\0\x10lsetstat@openssh\0\0\0\x011",
        b"\0\0\0\x1a\x65\0\0\0\x01\0\0\0\x04\0\0\0\x07Failure\0\0\0\x02en",
        b"\0\0\0\x0d\x66\0\0\0\x02\0\0\0\x04\0\0\0\x80",
        b"\0\0\0\x0c\x67\0\0\0\x03\0\0\0\x03# A",
        b"\0\0\0\x1e\x68\0\0\0\x04\0\0\0\x01\0\0\0\x01a\0\0\0\x04-rwx\0\0\0\x04\0\0\x81\xa4",
        b"\0\0\0\x19\x69\0\0\0\x05\x80\0\0\x05\0\0\0\0\0\0\0\x07\0\0\x81\xa4\0\0\0\0",
        b"\0\0\0\x25\xc9\0\0\0\x06\0\0\0\0\0\x04\0\0\0\0\0\0\0\x03\xfc\0\0\0\0\0\0\x03\xfc\0\0\0\0\0\0\0\x03\xfb",
        b"\0\0\0\x09\x65\0\0\0\x07\0\0\0\x0b",
    ];
    let alone = packets.iter().map(|packet| packet[4..].to_vec());
    let mut seeds: Vec<Vec<u8>> = alone.collect();
    seeds.push(packets.concat());
    seeds.push([packets[1], b"\xff\xff\xff\xff\x65"].concat());
    seeds
}

fn text_seeds() -> Vec<Vec<u8>> {
    [
        "\u{FC}plain text \u{1F680}",
        "\u{FC}a\tb\x1B[31m\u{202E}\u{9B}\r",
        "\u{FC}👩🏽\u{200D}🚀 1\u{FE0F}\u{20E3} 🇪🇺",
        "\u{FC}e\u{301}\u{301}\u{301}\u{301}\u{301}",
        "\u{FC}\u{1112}\u{1161}\u{11AB}\u{E0041}\u{A0}\u{2800}",
    ]
    .iter()
    .map(|text| [b"\xFC", &text.as_bytes()[2..]].concat())
    .chain([b"\x16abc \xFF\xED\xA0 \t\r".to_vec()])
    .collect()
}

/// Pseudo-random numbers, the same in every run.
pub struct SeededNumbers(pub u64);

impl SeededNumbers {
    /// Returns a number below the limit.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit.max(1)
    }
}

fn mutate(bytes: &mut Vec<u8>, other: &[u8], numbers: &mut SeededNumbers) {
    let at = numbers.below(bytes.len() + 1);
    let end = (at + numbers.below(24)).min(bytes.len());
    match numbers.below(6) {
        0 if at < bytes.len() => bytes[at] = numbers.below(256) as u8,
        1 => bytes.insert(at, numbers.below(256) as u8),
        2 => drop(bytes.drain(at..end)),
        3 => {
            let from = numbers.below(other.len());
            let to = (from + numbers.below(60)).min(other.len());
            bytes.splice(at..at, other[from..to].iter().copied());
        }
        4 => bytes
            .splice(
                at..end,
                INSERTED_WORDS[numbers.below(INSERTED_WORDS.len())].bytes(),
            )
            .for_each(drop),
        _ => drop(bytes.splice(
            at..at,
            INSERTED_WORDS[numbers.below(INSERTED_WORDS.len())].bytes(),
        )),
    }
}

fn run_target(name: &str, target: Target, input: &[u8]) {
    let result = panic::catch_unwind(|| target(input));
    assert!(result.is_ok(), "{name}: {}", input.escape_ascii());
}

#[test]
fn fuzz_targets_hold_on_seeds_and_mutations() {
    let mut numbers = SeededNumbers(0x5EED);
    for (name, target) in TARGETS {
        let seeds = seeds_of(name);
        for seed in &seeds {
            run_target(name, *target, seed);
        }
        for _ in 0..EDITS_PER_TARGET {
            let mut input = seeds[numbers.below(seeds.len())].clone();
            let other = &seeds[numbers.below(seeds.len())];
            for _ in 0..=numbers.below(8) {
                mutate(&mut input, other, &mut numbers);
            }
            run_target(name, *target, &input);
        }
    }
}

#[test]
fn fuzz_targets_have_binary_and_seeds() {
    let manifest = fs::read_to_string(project_root().join("fuzz/Cargo.toml")).unwrap();
    for (name, _) in TARGETS {
        assert!(
            manifest.contains(&format!("\nname = \"{name}\"\n")),
            "{name}"
        );
        if std::env::var_os("FUZZ_SEEDS").is_some() {
            let directory = project_root().join("fuzz/corpus").join(name);
            fs::create_dir_all(&directory).unwrap();
            for (number, seed) in seeds_of(name).iter().enumerate() {
                fs::write(directory.join(format!("seed-{number}")), seed).unwrap();
            }
        }
    }
    assert!(Path::new(&project_root().join("fuzz/Cargo.lock")).is_file());
}
