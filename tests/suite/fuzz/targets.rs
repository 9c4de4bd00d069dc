//! What must hold for any bytes that the program reads but did not choose.
//!
//! Each function takes one input and panics where a promise is broken. `fuzz/`
//! feeds them from libFuzzer, `tests/suite/fuzz.rs` from seeds and a few edits
//! of them. Inputs of several parts are separated by [`SPLIT`].

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use chrono::{DateTime, FixedOffset, TimeZone};
use memory_shepherd::archive::{self, EntryKind};
use memory_shepherd::baseline::seal::{self, Seal};
use memory_shepherd::clock::System;
use memory_shepherd::config::{self, Agent, Config, Env, General, Level, Place, Problems};
use memory_shepherd::digest::Digest;
use memory_shepherd::engine::memory::{self, Baseline, Rule};
use memory_shepherd::engine::{
    About, Engine, Finding, Outcome, Plan, Record, Report, Setup, Trigger, UndoMode, UndoTarget,
};
use memory_shepherd::error::Kind;
use memory_shepherd::transport::Only;
use memory_shepherd::transport::fake::Fake;
use memory_shepherd::transport::sftp::wire::{
    self, Extensions, Frames, LONGEST_FRAME, Limits, Reply, Statvfs, Wants,
};
use memory_shepherd::untrusted::{self, Context, View};
use tempfile::TempDir;
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// Stands between the parts of an input: the record separator of ASCII.
pub const SPLIT: u8 = 0x1E;

/// A target.
pub type Target = fn(&[u8]);

/// All of them, by name.
pub const TARGETS: &[(&str, Target)] = &[
    ("config", config),
    ("boundary", boundary),
    ("entry", entry),
    ("ledger", ledger),
    ("seal", seal),
    ("untrusted", untrusted),
    ("reset", reset),
    ("sftp", sftp),
];

/// The part of that number; empty where there is none.
fn part(bytes: &[u8], number: usize) -> &[u8] {
    let mut parts = bytes.split(|byte| *byte == SPLIT);
    parts.nth(number).unwrap_or_default()
}

/// A folder in memory where there is such a thing.
fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made = match memory.is_dir() {
        true => TempDir::new_in(memory),
        false => TempDir::new(),
    };
    made.unwrap()
}

const CONFIG: &str = "/etc/fleet/memory-shepherd.conf";

fn parse(text: &[u8]) -> Result<Config, Problems> {
    let env = Env {
        cwd: PathBuf::from("/"),
        home: Some(PathBuf::from("/home/operator")),
        xdg_config_home: None,
        xdg_state_home: None,
        config_variable: None,
        uid: 1000,
    };
    config::parse(text, Path::new(CONFIG), &env)
}

/// The config reader: any bytes are taken whole, or everything wrong has its
/// place; what is taken keeps its rules, and says the same when it is printed.
pub fn config(bytes: &[u8]) {
    let lines = bytes.split(|byte| *byte == b'\n').count();
    let diagnostics = match parse(bytes) {
        Ok(config) => {
            for agent in &config.agents {
                agent_is_sound(agent);
            }
            let names = config.agents.iter().map(|agent| (&agent.name, agent));
            let names: HashMap<_, _> = names.collect();
            assert_eq!(names.len(), config.agents.len(), "two agents of one name");
            let general = &config.general;
            assert!(general.baseline_dir.is_absolute() && general.archive_dir.is_absolute());
            assert_eq!(general.archive_mode & !0o177, 0o600, "archive_mode");
            assert!(general.archive_retention_days > 0);
            let warnings = config.warnings.iter();
            assert!(warnings.clone().all(|it| it.level == Level::Warning));
            let shown = printed(&config);
            let again = parse(shown.as_bytes())
                .unwrap_or_else(|problems| panic!("{shown}\nis refused: {problems}"));
            assert_eq!(meaning(&again), meaning(&config), "{shown}");
            config.warnings
        }
        Err(Problems(list)) => {
            assert!(list.iter().any(|it| it.level == Level::Error));
            list
        }
    };
    // Behind them only how many more there are.
    let placed = diagnostics.iter().filter(|it| it.line.is_some());
    assert!(placed.is_sorted_by_key(|it| it.line));
    for it in &diagnostics {
        assert!(
            it.line.is_none_or(|line| (1..=lines).contains(&line)),
            "{it}"
        );
        assert_eq!(it.file, Path::new(CONFIG));
        assert!(it.text.chars().count() <= 201, "{it}");
    }
    serde_json::to_string(&diagnostics).unwrap();
}

fn agent_is_sound(agent: &Agent) {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    assert!(agent.name.chars().all(allowed) && !agent.name.is_empty());
    assert!(agent.name != "all" && agent.name != "general");
    for inside in [&agent.baseline, &agent.archive_subdir] {
        let mut parts = Path::new(inside).components();
        assert!(
            parts.all(|part| matches!(part, Component::Normal(_))),
            "{inside}"
        );
        assert!(!inside.is_empty() && !inside.contains('\0'));
    }
    assert!(!agent.archive_subdir.starts_with(archive::OWN));
    assert!(!agent.separator.is_empty() && !agent.separator.contains(['\n', '\r']));
    assert!(agent.max_memory_size > 0);
    let memory = match &agent.place {
        Place::Local { memory } => {
            assert!(memory.is_absolute());
            memory
        }
        Place::Remote { host, memory, .. } => {
            for word in [Some(&host.name), host.user.as_ref()].into_iter().flatten() {
                assert!(!word.is_empty() && !word.starts_with('-'), "{word}");
                assert!(!word.contains(char::is_whitespace), "{word}");
            }
            memory
        }
    };
    assert!(memory.file_name().is_some(), "{}", memory.display());
}

/// What `config show` prints, as a config.
fn printed(config: &Config) -> String {
    let mut text = String::new();
    let mut section = "";
    for entry in config.entries() {
        if entry.section != section {
            section = &entry.section;
            text.push_str(&format!("[{section}]\n"));
        }
        text.push_str(&format!("{}={}\n", entry.key, entry.value));
    }
    text
}

/// A config without where its lines stand.
fn meaning(config: &Config) -> (General, Vec<Agent>) {
    let mut agents = config.agents.clone();
    for agent in &mut agents {
        agent.line = 0;
    }
    (config.general.clone(), agents)
}

/// The boundary. Parts: separator, baseline, memory, earlier versions. A memory
/// that begins with `=` is the baseline's operator part and what follows, with
/// `<` the first earlier version's, with `~` the baseline less the line of that
/// number; else it is taken as it stands.
pub fn boundary(bytes: &[u8]) {
    let separator = String::from_utf8_lossy(part(bytes, 0));
    let separator = separator.trim_matches(|c: char| c.is_ascii_whitespace() || c.is_control());
    let separator = if separator.is_empty() {
        "---"
    } else {
        separator
    };
    let current = Baseline::new(part(bytes, 1).to_vec(), separator);
    let earlier = bytes.split(|byte| *byte == SPLIT).skip(3).take(3);
    let earlier: Vec<Arc<Baseline>> = earlier
        .map(|version| Arc::new(Baseline::new(version.to_vec(), separator)))
        .collect();
    let first = earlier.first().map_or(&current, Arc::as_ref);
    let (memory, built_on) = match part(bytes, 2) {
        [b'=', rest @ ..] => ([current.operator_part(), rest].concat(), Some(&current)),
        [b'<', rest @ ..] => ([first.operator_part(), rest].concat(), Some(first)),
        [b'~', number, rest @ ..] => {
            let lines = current.bytes().split_inclusive(|byte| *byte == b'\n');
            let kept = lines
                .enumerate()
                .filter(|(at, _)| at % 16 != usize::from(*number) % 16);
            let kept: Vec<&[u8]> = kept.map(|(_, line)| line).collect();
            ([&kept.concat(), rest].concat(), None)
        }
        bytes => (bytes.to_vec(), None),
    };
    baseline_is_cut(&current, separator);
    separators_are(&memory, separator.as_bytes());
    let found = memory::find(&memory, &current, &earlier);
    if let Some(version) = built_on {
        let part = version.operator_part();
        // A last line without its line feed goes on in what follows.
        let exact = version.cut().is_some() && (part.ends_with(b"\n") || memory == part);
        let found = found.filter(|_| exact);
        assert!(!exact || found.is_some_and(|found| !found.drifted()));
        if let Some(found) = found.filter(|_| version.digest() == current.digest()) {
            assert_eq!((found.rule, found.offset), (Rule::Intact, part.len()));
        }
    }
    let Some(found) = found else {
        assert!(first.cut().is_some(), "all of it is above the boundary");
        return;
    };
    let (above, below) = memory.split_at(found.offset);
    assert_eq!([above, below].concat(), memory);
    assert!(above.is_empty() || above.ends_with(b"\n") || below.is_empty());
    let mut versions = std::iter::once(&current).chain(earlier.iter().map(Arc::as_ref));
    let version = match found.rule {
        Rule::Intact => &current,
        Rule::Behind(digest) | Rule::Aligned(digest) => versions
            .find(|version| version.digest() == digest)
            .expect("a version that was given"),
    };
    let lines = memory::separator_lines(&memory, separator.as_bytes());
    match version.cut() {
        None => assert_eq!((found.offset, found.line, found.of), (memory.len(), 0, 0)),
        Some(_) => {
            let line = lines.iter().find(|line| line.line == found.line).unwrap();
            assert_eq!(line.end, found.offset);
            assert!((1..=found.of).contains(&found.nth) && found.of <= lines.len());
        }
    }
    if found.drifted() {
        assert_eq!(
            version.digest(),
            first.digest(),
            "the one that was pushed last"
        );
        return;
    }
    assert_eq!((found.added, found.removed), (0, 0));
    if let Some(cut) = version.cut() {
        // The operator part, but for white space behind the separator.
        let (text, line) = above.split_at(cut.start);
        assert_eq!(text, &version.bytes()[..cut.start]);
        assert_eq!(line.trim_ascii_end(), separator.as_bytes());
        // And where it is does not depend on how much follows, for a beginning
        // that is several times as long as the baselines; unless all of that is
        // white space behind the separator, and then nothing counts as exact.
        let versions = std::iter::once(&current).chain(earlier.iter().map(Arc::as_ref));
        let longest = versions.map(|version| version.bytes().len()).max();
        let window = longest.unwrap_or_default() * 4 + 1;
        let longer = [&memory, &b"\n- more"[..].repeat(window)[..window]].concat();
        let place = |memory: &[u8]| {
            let found = memory::find(memory, &current, &earlier).unwrap();
            (found.offset, found.line, found.rule)
        };
        if found.offset < window {
            assert_eq!(place(&longer[..window]), place(&longer));
        }
    }
}

fn baseline_is_cut(baseline: &Baseline, separator: &str) {
    let whole = [baseline.operator_part(), baseline.tail()].concat();
    assert_eq!(whole, baseline.bytes());
    assert_eq!(baseline.digest(), Digest::of(&whole));
    let lines = memory::separator_lines(baseline.bytes(), separator.as_bytes());
    let eligible = lines.iter().rfind(|line| line.eligible);
    assert_eq!(baseline.cut(), eligible.or(lines.last()).copied());
}

/// The separator lines against a plain reading; and they are the same as long as
/// the text above them is.
fn separators_are(text: &[u8], separator: &[u8]) {
    let found = memory::separator_lines(text, separator);
    let mut plain = Vec::new();
    let mut start = 0;
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let end = (start + line.len() + 1).min(text.len());
        if start < text.len() && line.trim_ascii_end() == separator {
            plain.push((start, end, number + 1));
        }
        start = end;
    }
    let places = found.iter().map(|line| (line.start, line.end, line.line));
    assert_eq!(places.collect::<Vec<_>>(), plain);
    let front_matter = text.starts_with(b"---") || text.starts_with(b"\xEF\xBB\xBF---");
    if let Some(middle) = found.get(found.len() / 2).filter(|_| !front_matter) {
        let before = memory::separator_lines(&text[..middle.end], separator);
        assert_eq!(before, found[..before.len()]);
    }
}

/// Entries. Parts: a name; minute, kind and number of another; a scratch.
pub fn entry(bytes: &[u8]) {
    let read = std::str::from_utf8(part(bytes, 0)).ok();
    if let Some(name) = read
        && let Some((stamp, kind, number)) = archive::parse_name(name)
    {
        assert!(!name.contains(['/', '\0']) && !name.starts_with('.'));
        let at = stamp.and_utc().fixed_offset();
        assert_eq!(archive::entry_name(at, kind, number), name);
    }
    let (numbers, scratch) = (part(bytes, 1), part(bytes, 2));
    let number = |from: usize| {
        let mut four = [0; 4];
        for (to, byte) in four.iter_mut().zip(numbers.iter().skip(from)) {
            *to = *byte;
        }
        u32::from_le_bytes(four)
    };
    let at = minute(number(0));
    let kind = EntryKind::ALL[number(4) as usize % EntryKind::ALL.len()];
    let name = archive::entry_name(at, kind, number(5));
    let again = archive::parse_name(&name).expect("a name of ours");
    assert_eq!(again, (at.naive_local(), kind, number(5)), "{name}");
    let entry = [archive::scratch_header("scout_2-b", at).as_bytes(), scratch].concat();
    assert_eq!(archive::scratch_of(&entry), Some(scratch));
    if let Some(found) = archive::scratch_of(scratch) {
        assert!(scratch.ends_with(found));
        assert!(scratch[..scratch.len() - found.len()].ends_with(b"\n\n"));
    }
}

/// A whole minute of the years from 1970 to 9999.
fn minute(number: u32) -> DateTime<FixedOffset> {
    let zone = FixedOffset::east_opt(3600).unwrap();
    let minutes = i64::from(number) % (8029 * 365 * 24 * 60);
    zone.timestamp_opt(minutes * 60, 0).unwrap()
}

/// The ledger. The first byte decides: `!` and the rest is the file; else each
/// four bytes are an edit of a valid ledger.
pub fn ledger(bytes: &[u8]) {
    let whole = valid_ledger();
    let file = match bytes {
        [b'!', file @ ..] => file.to_vec(),
        edits => edits.chunks_exact(4).take(8).fold(whole.clone(), edited),
    };
    let site = folder();
    let own = site.path().join(archive::OWN);
    fs::create_dir(&own).unwrap();
    let path = own.join("ledger.jsonl");
    fs::write(&path, &file).unwrap();
    let lines = complete_lines(&file);
    let read = engine(site.path()).records();
    // A verification reads on where a run stops, and comes to the same.
    let verified = engine(site.path()).verify(None, &mut |_| {}).unwrap();
    let broken = |finding: &Finding| finding.about == About::Ledger;
    assert_eq!(
        verified.findings.iter().any(broken),
        read.is_err(),
        "{verified:?}"
    );
    assert_eq!(verified.tally.lines, lines.len() as u64);
    match &read {
        Ok(records) => {
            assert_eq!(records.len(), lines.len());
            follows_its_chain(records, &lines);
        }
        // Where nothing is wrong with the whole lines, a torn one is no fault.
        Err(error) => {
            assert_eq!(error.kind(), Kind::Integrity, "{error}");
            assert!(lines != complete_lines(&whole)[..lines.len().min(LINES)]);
        }
    }
    // Read while it grows, it is the same ledger.
    let cut = usize::from(bytes.last().copied().unwrap_or_default()) * file.len() / 255;
    fs::write(&path, &file[..cut]).unwrap();
    let engine = engine(site.path());
    let begun = engine.records().map(|records| records.len());
    let mut appending = fs::File::options().append(true).open(&path).unwrap();
    appending.write_all(&file[cut..]).unwrap();
    let grown = engine.records();
    if begun.is_ok() {
        assert_eq!(grown.is_ok(), read.is_ok());
    }
    if let (Ok(grown), Ok(read)) = (grown, read) {
        assert_eq!(**grown, **read);
    }
}

fn engine(archive: &Path) -> Engine {
    let text = format!("[general]\narchive_dir={}\n", archive.display());
    engine_of(&text, Fake::new(Arc::new(System)))
}

fn engine_of(config: &str, transport: Fake) -> Engine {
    Engine::new(Setup {
        config: parse(config.as_bytes()).unwrap(),
        clock: Arc::new(System),
        transports: Arc::new(Only(Arc::new(transport))),
        user: "operator".to_string(),
        trigger: Trigger::Cli,
        archive_group: None,
    })
}

fn complete_lines(file: &[u8]) -> Vec<&[u8]> {
    let lines = file.split_inclusive(|byte| *byte == b'\n');
    lines.filter_map(|line| line.strip_suffix(b"\n")).collect()
}

/// Nobody changed a line and left the one behind it as it was.
fn follows_its_chain(records: &[Record], lines: &[&[u8]]) {
    let mut head = Digest::ZERO;
    for (number, (record, line)) in records.iter().zip(lines).enumerate() {
        assert_eq!((record.seq, record.prev), (number as u64 + 1, head));
        head = Digest::of(line);
    }
    // Digests are not guessed: what is chained to was written by us, so only
    // the last line may be another.
    let valid = valid_ledger();
    let valid = complete_lines(&valid);
    if let Some((_, chained)) = lines.split_last() {
        assert_eq!(Some(chained), valid.get(..chained.len()));
    }
}

const LINES: usize = 6;

/// A ledger of [`LINES`] records.
pub fn valid_ledger() -> Vec<u8> {
    static TEXT: OnceLock<Vec<u8>> = OnceLock::new();
    let make = || {
        let (mut text, mut head) = (Vec::new(), Digest::ZERO);
        for seq in 1..=LINES {
            let record = serde_json::json!({
                "seq": seq, "prev": head, "time": minute(29_000_000 + seq as u32),
                "run": format!("20260314T0900{seq:02}"), "act": "reset", "trigger": "cli",
                "user": "operator", "agent": "scout", "host": "local", "outcome": "ok",
                "baseline": Digest::of(b"baseline"), "duration_ms": seq,
                "before": {"file": {"sha256": Digest::of(&[seq as u8]), "size": 1, "lines": 0}},
                "after": {"file": {"sha256": Digest::of(b"baseline"), "size": 8, "lines": 0}},
            });
            let record: Record = serde_json::from_value(record).unwrap();
            let line = serde_json::to_vec(&record).unwrap();
            head = Digest::of(&line);
            text.extend([&line[..], b"\n"].concat());
        }
        text
    };
    TEXT.get_or_init(make).clone()
}

fn edited(mut text: Vec<u8>, edit: &[u8]) -> Vec<u8> {
    let at = usize::from(u16::from_le_bytes([edit[1], edit[2]])) % (text.len() + 1);
    let mut lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    let line = at % lines.len().max(1);
    match edit[0] % 8 {
        0 | 1 if at < text.len() => text[at] = edit[3],
        2 => text.insert(at, edit[3]),
        3 if at < text.len() => {
            text.remove(at);
        }
        4 => text.truncate(at),
        5 if line < lines.len() => {
            lines.insert(usize::from(edit[3]) % lines.len(), lines[line]);
            text = lines.concat();
        }
        6 if line < lines.len() => {
            lines.swap(line, 0);
            text = lines.concat();
        }
        7 if line < lines.len() => {
            lines.remove(line);
            text = lines.concat();
        }
        _ => {}
    }
    text
}

/// The seal. The first byte decides: `!` and the rest is the file; else the
/// parts are names that are sealed as `sha256sum` does it.
pub fn seal(bytes: &[u8]) {
    let site = folder();
    let read = |text: &[u8]| {
        fs::write(site.path().join(seal::FILE), text).unwrap();
        Seal::read(&site.path().canonicalize().unwrap())
    };
    let [b'!', file @ ..] = bytes else {
        let names = bytes.split(|byte| *byte == SPLIT);
        let names: Vec<&str> = names
            .filter_map(|name| std::str::from_utf8(name).ok())
            .filter(|name| !name.is_empty() && !name.contains('\0'))
            .collect();
        let text: String = names.iter().map(|name| sealed(name)).collect();
        let seal = read(text.as_bytes()).unwrap().unwrap();
        for name in names {
            let bare = name.strip_prefix("./").unwrap_or(name);
            assert_eq!(seal.expected(bare), Some(Digest::of(b"")), "{name:?}");
        }
        return;
    };
    match read(file) {
        Err(error) => assert_eq!(error.kind(), Kind::Integrity),
        Ok(None) => panic!("a seal that is there is none"),
        // Each line seals something, or is empty.
        Ok(Some(seal)) => {
            let text = std::str::from_utf8(file).expect("a seal is text");
            for line in text
                .lines()
                .filter(|line| !line.is_empty() && !line.starts_with('\\'))
            {
                let (digest, name) = line.split_at(64);
                let name = name.strip_prefix("  ").or(name.strip_prefix(" *")).unwrap();
                let bare = name.strip_prefix("./").unwrap_or(name);
                let folder = site.path().file_name().unwrap().display().to_string() + "/";
                let bare = bare.strip_prefix(&folder).unwrap_or(bare);
                assert_eq!(seal.expected(bare), digest.parse().ok(), "{line}");
            }
        }
    }
}

/// A line of `sha256sum` for an empty file.
fn sealed(name: &str) -> String {
    let escaped = name
        .replace('\\', "\\\\")
        .replace('\n', "\\n")
        .replace('\r', "\\r");
    let mark = if escaped == name { "" } else { "\\" };
    format!("{mark}{}  {escaped}\n", Digest::of(b""))
}

/// Foreign text. The first byte is the view: bit 0 a diff, bit 1 marks white
/// space, the rest the cells.
pub fn untrusted(bytes: &[u8]) {
    let (first, text) = bytes.split_first().unwrap_or((&0, b""));
    let prose = first & 1 == 0;
    let view = View {
        context: if prose { Context::Prose } else { Context::Diff },
        whitespace: first & 2 != 0,
        max_cells: if first >> 2 == 63 {
            4096
        } else {
            usize::from(first >> 2)
        },
    };
    let mut tokens = untrusted::reveal(text, view);
    assert!(tokens.windows(2).all(|pair| pair[0].mark != pair[1].mark));
    for token in &tokens {
        shows(&token.text, prose && !token.mark);
    }
    let counted = |last: &untrusted::Token| last.mark && last.text.contains('…');
    if let Some(last) = tokens.last_mut().filter(|last| counted(last)) {
        last.text.truncate(last.text.rfind('…').unwrap_or_default());
    }
    let cells = tokens.iter().flat_map(|token| token.text.graphemes(true));
    assert!(cells.map(UnicodeWidthStr::width).sum::<usize>() <= view.max_cells);

    let line = untrusted::line(text);
    shows(&line, true);
    let lines = untrusted::text(text);
    let feeds = |text: &[u8]| text.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(feeds(lines.as_bytes()), feeds(text));
    for line in lines.split('\n') {
        shows(line, true);
    }

    let hidden = untrusted::hidden(text);
    let chunks = text.utf8_chunks().map(|chunk| chunk.invalid().len() as u64);
    assert_eq!(hidden.invalid, chunks.sum::<u64>());
    assert!(hidden.escapes <= hidden.controls);
    untrusted::mixed_scripts(text);

    let string = String::from_utf8_lossy(text);
    let json = serde_json::to_string(&string).unwrap();
    let ascii = untrusted::ascii_json(&json);
    assert!(
        ascii.bytes().all(|byte| matches!(byte, b' '..=b'~')),
        "{ascii}"
    );
    assert_eq!(serde_json::from_str::<String>(&ascii).unwrap(), string);
}

/// Nothing in a shown text acts on a terminal, turns it around, or is not seen.
/// What joins emoji may be in `prose`.
fn shows(text: &str, prose: bool) {
    let odd = |c: char| match c {
        '\u{200D}' | '\u{FE0F}' => !prose,
        '\0'..='\x1F' | '\x7F'..='\u{9F}' | '\u{AD}' | '\u{34F}' | '\u{61C}' => true,
        '\u{115F}'..='\u{1160}' | '\u{17B4}'..='\u{17B5}' | '\u{180B}'..='\u{180F}' => {
            // A vowel of Hangul that its consonant carries.
            c != '\u{1160}'
        }
        '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' => true,
        '\u{2800}' | '\u{3164}' | '\u{FFA0}' | '\u{FEFF}' => true,
        '\u{E000}'..='\u{F8FF}' | '\u{FE00}'..='\u{FE0E}' | '\u{FFF0}'..='\u{FFFB}' => true,
        '\u{E0000}'..='\u{10FFFF}' => true,
        c => c != ' ' && c.is_whitespace(),
    };
    assert!(!text.contains(odd), "{text:?}");
}

const SCOUT: &str = "/agents/scout/MEMORY.md";

/// A whole reset and its undo, on memories in this process and an archive on the
/// disk. Parts: the baseline that is pushed first; the one that the operator
/// makes of it (`=`: the same); the memory, as in [`boundary`], `<` being built
/// on the first; a transaction record, if not empty.
pub fn reset(bytes: &[u8]) {
    let site = folder();
    let baseline = |bytes: &[u8]| {
        fs::create_dir_all(site.path().join("baselines")).unwrap();
        fs::write(site.path().join("baselines/scout.md"), bytes).unwrap();
    };
    let first = Baseline::new(part(bytes, 0).to_vec(), "---");
    let second = match part(bytes, 1) {
        b"=" => first.clone(),
        bytes => Baseline::new(bytes.to_vec(), "---"),
    };
    let notes = part(bytes, 2);
    let memory = match notes {
        [b'=', rest @ ..] => [second.operator_part(), rest].concat(),
        [b'<', rest @ ..] => [first.operator_part(), rest].concat(),
        bytes => bytes.to_vec(),
    };
    let root = site.path().display();
    let config = format!(
        "[general]\narchive_dir={root}/archives\nbaseline_dir={root}/baselines\n\
         min_baseline_size=0\n[scout]\nmemory_file={SCOUT}\nbaseline=scout.md\n"
    );
    let fake = Fake::new(Arc::new(System));
    fake.make_folder("/agents/scout", 1000, 1000, 0o755);
    let engine = engine_of(&config, fake.clone());
    let plan = || engine.plan_reset(&["scout".to_string()], false).unwrap();

    baseline(first.bytes());
    ended_well(&apply(&engine, &plan()));
    assert_eq!(fake.bytes(SCOUT).unwrap(), first.bytes());

    fake.write(SCOUT, &memory);
    baseline(second.bytes());
    let record = part(bytes, 3);
    if !record.is_empty() {
        let folder = site.path().join("archives/.shepherd/tx");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("scout.0123456789abcdef.json"), record).unwrap();
    }
    let report = apply(&engine, &plan());
    let held = fake.bytes(SCOUT);
    let written = report.results.iter().flat_map(|result| &result.entries);
    let entries: Vec<(EntryKind, Vec<u8>)> = written
        .map(|entry| {
            let bytes = fs::read(site.path().join("archives").join(&entry.path)).unwrap();
            assert_eq!(
                (Digest::of(&bytes), bytes.len() as u64),
                (entry.digest, entry.size)
            );
            (entry.kind, bytes)
        })
        .collect();
    // Nothing of the memory is lost, whatever happened.
    let kept = [&first, &second].map(Baseline::operator_part);
    let whole = |(kind, bytes): &(EntryKind, Vec<u8>)| match kind {
        EntryKind::Scratch => {
            let scratch = archive::scratch_of(bytes).unwrap();
            kept.iter().any(|kept| [kept, scratch].concat() == memory)
        }
        _ => *bytes == memory,
    };
    let nothing_new = kept.contains(&&memory[..]);
    let lossless = held.as_ref() == Some(&memory) || nothing_new || entries.iter().any(whole);
    assert!(lossless, "{report:?}");
    engine.detail(engine.agent("scout").unwrap());
    if !record.is_empty() {
        return;
    }
    ended_well(&report);
    assert_eq!(held.unwrap(), second.bytes());
    if memory == second.bytes() {
        assert_eq!(report.results[0].outcome, Outcome::Unchanged);
        return;
    }
    let target = UndoTarget::Agents(vec!["scout".to_string()]);
    let undo = engine.plan_undo(&target, UndoMode::Refuse, false).unwrap();
    ended_well(&apply(&engine, &undo));
    assert_eq!(fake.bytes(SCOUT).unwrap(), memory);
    assert_eq!(fake.names("/agents/scout"), ["MEMORY.md"]);
    assert_eq!(engine.records().unwrap().len(), 3);
}

fn apply(engine: &Engine, plan: &Plan) -> Report {
    engine.apply(plan, true, &AtomicBool::new(false), &mut |_| {})
}

fn ended_well(report: &Report) {
    assert_eq!(report.kind(), None, "{report:?}");
    let good = |outcome| matches!(outcome, Outcome::Ok | Outcome::Unchanged);
    assert!(report.results.iter().all(|result| good(result.outcome)));
    assert_eq!(report.results.len(), 1);
}

/// What a server says over SFTP: it is cut into the same frames however it
/// arrives, a frame is a reply or it is not, and no reply is larger than its
/// frame or other than what was asked for.
pub fn sftp(bytes: &[u8]) {
    let whole = frames(bytes, bytes.len());
    for size in [1, 3, 7] {
        assert_eq!(frames(bytes, size), whole, "in pieces of {size}");
    }
    let (frames, _) = whole;
    let lengths = frames.iter().map(|frame| 4 + frame.len());
    assert!(lengths.sum::<usize>() <= bytes.len());
    // What follows is also tried on bytes that nobody put into a packet.
    for frame in frames.iter().map(Vec::as_slice).chain([bytes]) {
        if Extensions::decode(frame).is_ok() {
            assert_eq!(&frame[..5], b"\x02\0\0\0\x03");
        }
        let Ok((id, reply)) = wire::decode(frame) else {
            continue;
        };
        assert_eq!(frame[1..5], id.to_be_bytes());
        let Ok(reply) = reply else {
            continue;
        };
        assert!(size(&reply) <= frame.len(), "{reply:?}");
        answers_what_was_asked(&reply);
    }
}

/// The frames of a stream that comes in pieces, and whether its end is none.
fn frames(bytes: &[u8], piece: usize) -> (Vec<Vec<u8>>, bool) {
    let (mut frames, mut found) = (Frames::default(), Vec::new());
    for mut piece in bytes.chunks(piece.max(1)) {
        loop {
            match frames.next(&mut piece) {
                Ok(Some(frame)) => {
                    assert!((1..=LONGEST_FRAME).contains(&frame.len()));
                    found.push(frame);
                }
                Ok(None) => break,
                Err(_) => return (found, true),
            }
        }
        assert!(piece.is_empty());
    }
    (found, false)
}

/// How many bytes of the frame a reply holds, at least.
fn size(reply: &Reply) -> usize {
    5 + match reply {
        Reply::Status { message, .. } if message.is_empty() => 4,
        Reply::Status { message, .. } => 8 + message.len(),
        Reply::Handle(bytes) => {
            assert!(bytes.len() <= 256);
            4 + bytes.len()
        }
        Reply::Data(bytes) => 4 + bytes.len(),
        Reply::Names(names) => {
            let each = names.iter().map(|name| 12 + name.name.len());
            4 + each.sum::<usize>()
        }
        Reply::Attrs(_) => 4,
        Reply::Extended(bytes) => bytes.len(),
    }
}

fn answers_what_was_asked(reply: &Reply) {
    let wanted = [
        Wants::Status,
        Wants::Handle,
        Wants::Data(4),
        Wants::Names,
        Wants::Path,
        Wants::Attrs,
        Wants::Statvfs,
        Wants::Limits,
    ];
    for wants in wanted {
        let Ok(taken) = wants.check(reply.clone()) else {
            continue;
        };
        assert_eq!(taken, *reply);
        match (wants, reply) {
            (Wants::Data(most), Reply::Data(bytes)) => {
                assert!((1..=most as usize).contains(&bytes.len()));
            }
            (Wants::Path, Reply::Names(names)) => assert_eq!(names.len(), 1),
            (Wants::Statvfs, Reply::Extended(body)) => {
                Statvfs::decode(body).unwrap();
            }
            (Wants::Limits, Reply::Extended(body)) => {
                Limits::decode(body).unwrap();
            }
            (Wants::Status, Reply::Status { .. })
            | (Wants::Handle, Reply::Handle(_))
            | (Wants::Names, Reply::Names(_))
            | (Wants::Attrs, Reply::Attrs(_)) => {}
            (_, Reply::Status { code, .. }) => assert_ne!(*code, 0),
            _ => panic!("{reply:?} is no answer to {wants:?}"),
        }
    }
}
