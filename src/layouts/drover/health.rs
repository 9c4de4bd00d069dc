//! The checks of a memory of entries.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use chrono::{DateTime, FixedOffset};

use super::entry::{Entry, LoadFault, Scope, trim, units, yaml_fault_line};
use super::ids::{stable_id, time_of_id};
use super::operations::{DAY_MS, MAX_SUMMARY_UNITS, MAX_TAGS, YEAR_2000_MS, max_body_units};
use super::prompt::IndexLimits;
use super::ranking::RankingMode;
use super::store::{EntryFile, Store};
use crate::layouts::{HealthFinding, HealthSeverity, find_secrets};

/// Age of a run's entries in days at which they are worth a look: agents never remove them.
const OLD_RUN_DAYS: i64 = 30;

/// Maximum number of bytes of an instruction file that are compared with its entry.
const MAX_INSTRUCTION_BYTES: u64 = 65_536;

/// What a check is: its name, how bad its findings are, why they matter, and what to do.
struct Check {
    name: &'static str,
    severity: HealthSeverity,
    why: &'static str,
    remedy: &'static str,
}

const fn check(
    name: &'static str,
    severity: HealthSeverity,
    why: &'static str,
    remedy: &'static str,
) -> Check {
    Check {
        name,
        severity,
        why,
        remedy,
    }
}

use HealthSeverity::{Error as Bad, Info, Warning};

const UNLOADABLE: Check = check(
    "unloadable",
    Bad,
    "agents do not see this file, and are not told",
    "`repair` it, or edit it",
);
const ID_MISMATCH: Check = check(
    "id-mismatch",
    Warning,
    "the id in the file counts; forget leaves the file behind, and the entry returns",
    "`repair` it, which gives the file its name",
);
const SCOPE_MISMATCH: Check = check(
    "scope-mismatch",
    Warning,
    "the scope in the file counts, not the directory; forget leaves the file behind",
    "`repair` it, or move the entry to its scope",
);
const AGENT_MISMATCH: Check = check(
    "agent-mismatch",
    Warning,
    "the agent of the directory does not see the entry",
    "`repair` it, or `move` it with to-agent, if it is this agent's",
);
const RUN_MISMATCH: Check = check(
    "run-mismatch",
    Warning,
    "the run of the directory does not see the entry",
    "`repair` it, or move the entry to its run",
);
const DUPLICATE_ID: Check = check(
    "duplicate-id",
    Bad,
    "which file counts depends on the order of reading; forgetting one brings the other back",
    "`forget` one of the two by the path of its file",
);
const TIME_ORDER: Check = check(
    "time-order",
    Warning,
    "the entry was replaced before it was created",
    "put the entry again",
);
const TIME_FUTURE: Check = check(
    "time-future",
    Warning,
    "the entry stays at the top of the index until that time",
    "put the entry again",
);
const TIME_OLD: Check = check(
    "time-old",
    Warning,
    "a date was read as its year, so that the entry is the last of all",
    "write the time in milliseconds since 1970",
);
const ULID_TIME: Check = check(
    "ulid-time",
    Info,
    "the id and the entry name times that are more than a day apart",
    "look where the entry comes from",
);
const SUMMARY_LONG: Check = check(
    "summary-long",
    Warning,
    "an agent cannot write it again as it is",
    "shorten it to 200 characters",
);
const SUMMARY_MULTILINE: Check = check(
    "summary-multiline",
    Warning,
    "its second line leaves its bullet in the prompt of the agent",
    "make it one line",
);
const SUMMARY_BLANK: Check = check(
    "summary-blank",
    Warning,
    "agents see a bullet that says nothing",
    "write a summary, or forget the entry",
);
const BODY_LONG: Check = check(
    "body-long",
    Warning,
    "an agent cannot write it again as it is",
    "shorten it",
);
const BODY_BLANK: Check = check(
    "body-blank",
    Warning,
    "recall returns nothing but the summary",
    "write a body, or forget the entry",
);
const BODY_SHAPE: Check = check(
    "body-shape",
    Info,
    "agents are asked to say why, and how to apply it",
    "add lines with **Why:** and **How to apply:**",
);
const TAGS_MANY: Check = check(
    "tags-many",
    Warning,
    "an agent cannot write it again as it is",
    "remove tags until there are 12",
);
const TAGS_CASE: Check = check(
    "tags-case",
    Info,
    "two tags differ in nothing but the case of letters",
    "use one of them",
);
const TAGS_UNBOOSTABLE: Check = check(
    "tags-unboostable",
    Info,
    "no word of a query equals this tag, so that it never ranks the entry higher",
    "use tags of one word of letters and digits",
);
const NEAR_DUPLICATE: Check = check(
    "near-duplicate",
    Info,
    "an agent is given nearly the same line twice",
    "put them together, and forget one",
);
const RESTATES_GLOBAL: Check = check(
    "restates-global",
    Info,
    "a global entry says nearly the same",
    "forget the entry of the agent",
);
const INSTRUCTIONS_STALE: Check = check(
    "instructions-stale",
    Warning,
    "the entry says what no instruction file says",
    "forget the entry; the next run writes those of the files that exist",
);
const BAD_DIRECTORY: Check = check(
    "bad-directory",
    Warning,
    "agents do not read a directory with this name",
    "rename it to letters, digits, - and _",
);
const BAD_NAME: Check = check(
    "bad-name",
    Warning,
    "agents read only regular files that are named after an id",
    "put its text as an entry, or move it away",
);
const RUN_OLD: Check = check(
    "run-old",
    Info,
    "no agent reads the entries of a run that has ended, and none removes them",
    "`prune` old runs, which archives their entries",
);
const INDEX_OVERFLOW: Check = check(
    "index-overflow",
    Info,
    "agents are given the newest only",
    "forget or put together what is not needed",
);
const LINE_ENDS: Check = check(
    "line-ends",
    Warning,
    "the next write of the entry changes all its lines",
    "put the entry again",
);
const UTF8: Check = check(
    "utf8",
    Warning,
    "the next write of the entry replaces what is not UTF-8",
    "write the text in UTF-8",
);
const CONTROL: Check = check(
    "control",
    Warning,
    "control characters reach the prompt and terminals",
    "put the entry again without them",
);
const SECRET: Check = check(
    "secret",
    Bad,
    "readers of the memory, of its archive and of prompts have it",
    "revoke it, and put the entry again without it",
);

/// Collects findings.
struct Findings(Vec<HealthFinding>);

impl Findings {
    fn add(&mut self, check: &Check, path: &Path, id: Option<&str>, measured: Option<String>) {
        self.add_at_line(check, path, None, id, measured);
    }

    fn add_at_line(
        &mut self,
        check: &Check,
        path: &Path,
        line: Option<u64>,
        id: Option<&str>,
        measured: Option<String>,
    ) {
        self.0.push(HealthFinding {
            check: check.name,
            severity: check.severity,
            path: Some(path.to_path_buf()),
            line,
            id: id.map(str::to_string),
            measured,
            reported: None,
            why: check.why,
            remedy: check.remedy,
        });
    }
}

/// Checks all entries. `root`: the directory of the memory, if it is on this machine.
pub fn check_store(
    store: &Store,
    root: Option<&Path>,
    now: DateTime<FixedOffset>,
) -> Vec<HealthFinding> {
    let mut findings = Findings(Vec::new());
    let now_ms = now.timestamp_millis();
    for path in &store.odd_directories {
        findings.add(&BAD_DIRECTORY, path, None, None);
    }
    for odd in &store.odd_names {
        findings.add(&BAD_NAME, &odd.path, None, odd.object.clone());
    }
    for (path, error) in &store.unread {
        let why = error.message().to_string();
        findings.add(&UNLOADABLE, path, None, Some(why));
    }
    let mut seen_ids = BTreeSet::new();
    for file in &store.files {
        check_bytes(file, &mut findings);
        match &file.entry {
            Err(fault) => {
                let reason = Some(fault.as_str().to_string());
                let (path, id) = (&file.path, Some(file.name_id.as_str()));
                let line = match fault {
                    LoadFault::Yaml => yaml_fault_line(&file.bytes),
                    _ => None,
                };
                findings.add_at_line(&UNLOADABLE, path, line, id, reason);
            }
            Ok(entry) => {
                if !seen_ids.insert(&entry.id) {
                    findings.add(&DUPLICATE_ID, &file.path, Some(&entry.id), None);
                }
                check_place(file, entry, &mut findings);
                check_times(file, entry, now_ms, &mut findings);
                check_texts(file, entry, &mut findings);
                if entry.has_instructions_tag() && is_stale(entry, root) {
                    findings.add(&INSTRUCTIONS_STALE, &file.path, Some(&entry.id), None);
                }
            }
        }
    }
    check_tag_cases(store, &mut findings);
    check_similar_summaries(store, &mut findings);
    check_runs(store, now_ms, &mut findings);
    check_index(store, &mut findings);
    findings.0
}

fn check_bytes(file: &EntryFile, findings: &mut Findings) {
    let (path, id) = (file.path.as_path(), Some(file.name_id.as_str()));
    let bytes = file.bytes.as_slice();
    let line_of = |at: usize| bytes[..at].iter().filter(|it| **it == b'\n').count() as u64 + 1;
    if let Some(at) = memchr::memmem::find(bytes, b"\r\n") {
        findings.add_at_line(&LINE_ENDS, path, Some(line_of(at)), id, None);
    }
    if let Err(error) = std::str::from_utf8(bytes) {
        let line = line_of(error.valid_up_to());
        findings.add_at_line(&UTF8, path, Some(line), id, None);
    }
    let text = String::from_utf8_lossy(bytes);
    if let Some((at, char)) = text.char_indices().find(|(_, it)| is_control(it)) {
        let line = text[..at].matches('\n').count() as u64 + 1;
        findings.add_at_line(&CONTROL, path, Some(line), id, Some(code_point(char)));
    }
    for range in find_secrets(bytes) {
        findings.add_at_line(&SECRET, path, Some(line_of(range.start)), id, None);
    }
}

fn is_control(char: &char) -> bool {
    char.is_control() && !matches!(char, '\n' | '\r' | '\t')
}

fn code_point(char: char) -> String {
    format!("U+{:04X}", u32::from(char))
}

fn check_place(file: &EntryFile, entry: &Entry, findings: &mut Findings) {
    let (path, id, place) = (&file.path, Some(entry.id.as_str()), &file.place);
    if entry.id != file.name_id {
        findings.add(&ID_MISMATCH, path, id, Some(entry.id.clone()));
    }
    if entry.scope != place.scope {
        findings.add(
            &SCOPE_MISMATCH,
            path,
            id,
            Some(entry.scope.as_str().to_string()),
        );
    }
    let owners = [
        (Scope::Agent, &entry.agent_id, &AGENT_MISMATCH),
        (Scope::Run, &entry.run_id, &RUN_MISMATCH),
    ];
    for (scope, owner, check) in owners {
        let differs = owner.as_ref().is_some_and(|it| *it != place.segment);
        if place.scope == scope && differs {
            findings.add(check, path, id, owner.clone());
        }
    }
}

fn check_times(file: &EntryFile, entry: &Entry, now_ms: i64, findings: &mut Findings) {
    let (path, id) = (&file.path, Some(entry.id.as_str()));
    let created = entry.created_ms;
    let times = [Some(created), entry.updated_ms].into_iter().flatten();
    if let Some(future) = times.clone().find(|time| *time > now_ms) {
        findings.add(&TIME_FUTURE, path, id, Some(future.to_string()));
    }
    if let Some(old) = times.clone().find(|time| *time < YEAR_2000_MS) {
        findings.add(&TIME_OLD, path, id, Some(old.to_string()));
    }
    if let Some(updated) = entry.updated_ms.filter(|updated| *updated < created) {
        findings.add(&TIME_ORDER, path, id, Some(updated.to_string()));
    }
    let id_time = i64::try_from(time_of_id(&entry.id)).unwrap_or(i64::MAX);
    let is_apart = created.saturating_sub(id_time).saturating_abs() > DAY_MS;
    if is_apart && !entry.has_instructions_tag() {
        findings.add(&ULID_TIME, path, id, Some(id_time.to_string()));
    }
}

fn check_texts(file: &EntryFile, entry: &Entry, findings: &mut Findings) {
    let (path, id) = (&file.path, Some(entry.id.as_str()));
    let has_raw = String::from_utf8_lossy(&file.bytes).contains(|it| is_control(&it));
    let mut written = entry.tags.iter().chain([&entry.summary]);
    let escaped = written.find_map(|text| text.chars().find(is_control));
    if let Some(char) = escaped.filter(|_| !has_raw) {
        findings.add(&CONTROL, path, id, Some(code_point(char)));
    }
    let length = units(&entry.summary);
    if length > MAX_SUMMARY_UNITS {
        findings.add(&SUMMARY_LONG, path, id, Some(length.to_string()));
    }
    if trim(&entry.summary).is_empty() {
        findings.add(&SUMMARY_BLANK, path, id, None);
    } else if entry.summary.contains(['\n', '\r']) {
        findings.add(&SUMMARY_MULTILINE, path, id, None);
    }
    let length = units(&entry.body);
    if length > max_body_units(entry.kind.as_str()) {
        findings.add(&BODY_LONG, path, id, Some(length.to_string()));
    }
    let has_shape = ["**Why:**", "**How to apply:**"]
        .iter()
        .all(|label| entry.body.contains(label));
    if entry.body.is_empty() {
        findings.add(&BODY_BLANK, path, id, None);
    } else if !has_shape && !entry.has_instructions_tag() {
        findings.add(&BODY_SHAPE, path, id, None);
    }
    if entry.tags.len() > MAX_TAGS {
        findings.add(&TAGS_MANY, path, id, Some(entry.tags.len().to_string()));
    }
    for tag in &entry.tags {
        if !RankingMode::Bm25.is_word(tag) {
            findings.add(&TAGS_UNBOOSTABLE, path, id, Some(tag.clone()));
        }
    }
}

/// Reports tags that differ from an earlier one in case only.
fn check_tag_cases(store: &Store, findings: &mut Findings) {
    let mut first: HashMap<String, &str> = HashMap::new();
    for (file, entry) in store.entries() {
        for tag in &entry.tags {
            let earlier = *first.entry(tag.to_lowercase()).or_insert(tag);
            if earlier != tag {
                findings.add(&TAGS_CASE, &file.path, Some(&entry.id), Some(tag.clone()));
            }
        }
    }
}

/// Whether the entry of an instruction file says what no file says. Where its file would be is known
/// only by its label, so that the directories around the memory are looked through.
fn is_stale(entry: &Entry, root: Option<&Path>) -> bool {
    // The files of another machine are out of sight.
    let Some(root) = root else { return false };
    let Some((label, filename)) = entry
        .summary
        .strip_prefix("Project instructions — ")
        .and_then(|it| it.strip_suffix(')'))
        .and_then(|it| it.rsplit_once(" ("))
    else {
        return true;
    };
    let label = if label == "(repo root)" { "" } else { label };
    let candidates = root.ancestors().map(|it| it.join(label).join(filename));
    let is_source = |path: &PathBuf| stable_id(&path.to_string_lossy()) == entry.id;
    let Some(path) = candidates.into_iter().find(is_source) else {
        return true;
    };
    let size = std::fs::metadata(&path).map(|it| (it.is_file(), it.len()));
    let is_readable = size.is_ok_and(|(is_file, size)| is_file && size <= MAX_INSTRUCTION_BYTES);
    let text = is_readable.then(|| std::fs::read(&path).ok()).flatten();
    text.is_none_or(|text| trim(&String::from_utf8_lossy(&text)) != entry.body)
}

/// Reports runs whose entries are old.
fn check_runs(store: &Store, now_ms: i64, findings: &mut Findings) {
    let mut newest: HashMap<PathBuf, i64> = HashMap::new();
    for file in store.files.iter().filter(|it| it.place.scope == Scope::Run) {
        let time = match &file.entry {
            Ok(entry) => entry.recency(),
            Err(_) => file.modified / 1_000_000,
        };
        let newest = newest.entry(file.place.directory()).or_insert(time);
        *newest = time.max(*newest);
    }
    let mut old: Vec<(PathBuf, i64)> = newest
        .into_iter()
        .map(|(path, time)| (path, (now_ms - time) / DAY_MS))
        .filter(|(_, days)| *days > OLD_RUN_DAYS)
        .collect();
    old.sort();
    for (path, days) in old {
        findings.add(&RUN_OLD, &path, None, Some(format!("{days} days")));
    }
}

/// Reports more global entries than the index of a prompt has.
fn check_index(store: &Store, findings: &mut Findings) {
    let is_global = |(_, entry): &(&EntryFile, &Entry)| entry.scope == Scope::Global;
    let count = store.entries().filter(is_global).count();
    if count > IndexLimits::DEFAULT.max_entries {
        let path = Path::new(Scope::Global.directory());
        findings.add(&INDEX_OVERFLOW, path, None, Some(count.to_string()));
    }
}

/// Share of common words from which two summaries are nearly the same.
const SIMILARITY: f64 = 0.8;

/// Reports entries whose summary is nearly that of an earlier entry which the same agent sees.
fn check_similar_summaries(store: &Store, findings: &mut Findings) {
    let entries: Vec<(&EntryFile, &Entry)> = store
        .entries()
        .filter(|(_, entry)| entry.scope != Scope::Run && !entry.has_instructions_tag())
        .collect();
    let word_sets: Vec<BTreeSet<String>> = entries
        .iter()
        .map(|(_, entry)| {
            RankingMode::Better
                .words(&entry.summary)
                .into_iter()
                .collect()
        })
        .collect();
    let mut frequencies: HashMap<&str, usize> = HashMap::new();
    for word in word_sets.iter().flatten() {
        *frequencies.entry(word).or_default() += 1;
    }
    // Two sets that share enough words share one of the rarest of each: only these are looked up.
    let mut with_rare_word: HashMap<&str, Vec<usize>> = HashMap::new();
    for (number, words) in word_sets.iter().enumerate() {
        let mut rarest: Vec<&str> = words.iter().map(String::as_str).collect();
        rarest.sort_by_key(|word| (frequencies[word], *word));
        let needed = (SIMILARITY * words.len() as f64).ceil() as usize;
        rarest.truncate((words.len() + 1).saturating_sub(needed));
        let candidates: BTreeSet<usize> = rarest
            .iter()
            .flat_map(|word| with_rare_word.get(word).into_iter().flatten())
            .copied()
            .collect();
        let (file, entry) = entries[number];
        let similar = candidates.into_iter().find(|other| {
            are_seen_by_one_agent(entries[*other].1, entry)
                && are_similar(&word_sets[*other], words)
        });
        if let Some(other) = similar {
            let (_, earlier) = entries[other];
            let is_restated = earlier.scope == Scope::Global && entry.scope == Scope::Agent;
            let check = if is_restated {
                &RESTATES_GLOBAL
            } else {
                &NEAR_DUPLICATE
            };
            findings.add(check, &file.path, Some(&entry.id), Some(earlier.id.clone()));
        }
        for word in rarest {
            with_rare_word.entry(word).or_default().push(number);
        }
    }
}

fn are_seen_by_one_agent(one: &Entry, other: &Entry) -> bool {
    let is_global = |it: &Entry| it.scope == Scope::Global;
    is_global(one) || is_global(other) || one.agent_id == other.agent_id
}

fn are_similar(one: &BTreeSet<String>, other: &BTreeSet<String>) -> bool {
    let common = one.intersection(other).count() as f64;
    let all = one.union(other).count() as f64;
    all > 0.0 && common / all >= SIMILARITY
}
