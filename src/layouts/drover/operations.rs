//! The operations on entries: put, forget, move, and the reset of an agent's entries to a recorded
//! set. Each becomes the edits of files that it consists of.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::entry::{Entry, Kind, Place, Scope, format_entry, parse_entry, units};
use super::ids::{is_entry_id, is_segment, new_id};
use super::prompt::{InstructionChain, InstructionSettings};
use super::store::{EntryFile, Store, UnreadFile, list_place, list_places, read_listed};
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind};
use crate::layouts::{
    FileEdit, FileReadFault, MemoryFiles, OperationRequest, PlanFailure, PlannedOperation, Refusal,
};

/// Maximum length of a summary in UTF-16 code units.
pub const MAX_SUMMARY_UNITS: usize = 200;

/// Milliseconds of a day.
pub const DAY_MS: i64 = 86_400_000;

/// The year 2000: an earlier time was read from a date, of which only the year counts.
pub const YEAR_2000_MS: i64 = 946_684_800_000;

/// Maximum number of tags.
pub const MAX_TAGS: usize = 12;

/// Returns the maximum length of the body of an entry in UTF-16 code units.
pub fn max_body_units(kind: &str) -> usize {
    if kind == Kind::Reference.as_str() {
        65_536
    } else {
        4_000
    }
}

/// An entry as it is to be.
#[derive(Clone, Debug)]
pub struct PutRequest {
    pub scope: Scope,
    pub kind: String,
    pub summary: String,
    pub body: String,
    /// The agent that the entry is of, and that asks for it; none is the operator.
    pub agent_id: Option<String>,
    pub run_id: Option<String>,
    pub tags: Vec<String>,
    /// The entry to replace; none makes one.
    pub id: Option<String>,
    /// The directory whose instruction files tell which entries are theirs.
    pub directory: Option<PathBuf>,
}

/// Why an operation is not done, with the words that agents know.
pub fn refuse(reason: &'static str, message: String) -> PlanFailure {
    PlanFailure::Refused(Refusal { reason, message })
}

/// Plans to create or replace an entry.
///
/// # Errors
/// The request is refused, or the entries cannot be read.
pub fn plan_put(
    files: &MemoryFiles,
    request: &PutRequest,
    operation: &OperationRequest,
) -> Result<PlannedOperation, PlanFailure> {
    let store = Store::load_whole(files)?;
    let kind = check_request(request)?;
    let existing = request.id.as_deref().and_then(|id| store.find(id));
    if let Some((_, entry)) = existing {
        check_may_change_all(
            &store,
            &entry.id,
            request.agent_id.as_deref(),
            "replace",
            request.directory.as_deref(),
        )?;
    }
    let now_ms = operation.now.timestamp_millis();
    let id = request.id.clone();
    let id = id.unwrap_or_else(|| unused_id(&store, operation));
    let entry = Entry {
        id,
        scope: request.scope,
        kind,
        summary: request.summary.clone(),
        body: request.body.clone(),
        agent_id: request.agent_id.clone(),
        run_id: request.run_id.clone(),
        tags: request.tags.clone(),
        created_ms: existing.map_or(now_ms, |(_, it)| it.created_ms),
        updated_ms: existing.map(|_| now_ms),
        unknown_lines: existing.map_or_else(String::new, |(_, it)| it.unknown_lines.clone()),
    };
    if let Some((file, entry)) = existing.filter(|(_, it)| !it.unknown_lines.is_empty()) {
        check_is_utf8(&file.path, &file.bytes, entry)?;
    }
    let outcome = if existing.is_some() {
        "updated"
    } else {
        "created"
    };
    plan_write(files, &store, &entry, operation, outcome)
}

/// Makes an id that no entry has: the same for the same request, so that a plan holds.
fn unused_id(store: &Store, operation: &OperationRequest) -> String {
    let time = operation.now.timestamp_millis().max(0).unsigned_abs();
    let mut seed = format!("{operation:?}");
    loop {
        let digest = Digest::of(seed.as_bytes()).to_bytes();
        let random = std::array::from_fn(|place| digest[place]);
        let id = new_id(time, random);
        if store.files.iter().all(|file| file.name_id != id) && store.find(&id).is_none() {
            return id;
        }
        seed.push('+');
    }
}

/// Checks what an entry is to be, in the order in which agents are told.
fn check_request(request: &PutRequest) -> Result<Kind, PlanFailure> {
    if let Some(id) = request.id.as_deref().filter(|id| !is_entry_id(id)) {
        let message = format!("id must be a 26-char ULID (got '{id}')");
        return Err(refuse("invalid_id", message));
    }
    let scope = request.scope;
    if scope != Scope::Global {
        check_segment("agentId", request.agent_id.as_deref(), scope)?;
    }
    if scope == Scope::Run {
        check_segment("runId", request.run_id.as_deref(), scope)?;
    }
    let length = units(&request.summary);
    if !(1..=MAX_SUMMARY_UNITS).contains(&length) {
        let message = format!("summary must be 1-{MAX_SUMMARY_UNITS} chars (got {length})");
        return Err(refuse("io", message));
    }
    let (length, max) = (units(&request.body), max_body_units(&request.kind));
    if !(1..=max).contains(&length) {
        return Err(refuse(
            "io",
            format!("body must be 1-{max} chars (got {length})"),
        ));
    }
    let kind: Kind = request
        .kind
        .parse()
        .map_err(|message| refuse("io", message))?;
    let is_blank = |text: &str| super::entry::trim(text).is_empty();
    let fault = if is_blank(&request.summary) {
        "summary must not be blank".to_string()
    } else if is_blank(&request.body) {
        "body must not be blank".to_string()
    } else if request.summary.contains(['\n', '\r']) {
        "summary must be one line".to_string()
    } else if request.tags.iter().any(String::is_empty) {
        "a tag must not be empty".to_string()
    } else if request.tags.len() > MAX_TAGS {
        format!("at most {MAX_TAGS} tags (got {})", request.tags.len())
    } else {
        return Ok(kind);
    };
    Err(refuse("io", fault))
}

/// Checks the id of an agent or a run that a scope needs.
fn check_segment(name: &str, value: Option<&str>, scope: Scope) -> Result<(), PlanFailure> {
    let Some(value) = value else {
        let message = format!("scope '{}' requires {name}", scope.as_str());
        return Err(refuse("invalid_scope", message));
    };
    if !is_segment(value) {
        let message = format!("{name} must match /^[a-zA-Z0-9_-]{{1,64}}$/ (got '{value}')");
        return Err(refuse("path_escape", message));
    }
    Ok(())
}

/// Checks that an agent, or the operator, may change an entry.
pub fn check_may_change(
    entry: &Entry,
    agent_id: Option<&str>,
    verb: &str,
    directory: Option<&Path>,
) -> Result<(), PlanFailure> {
    let id = &entry.id;
    if entry.has_instructions_tag() && is_instruction_file(id, directory) {
        let message = format!(
            "cannot {verb} '{id}' — it's a loaded project-instruction file. Edit the file on disk instead."
        );
        return Err(refuse("read_only", message));
    }
    let is_foreign = agent_id.is_some_and(|agent| entry.agent_id.as_deref() != Some(agent));
    if entry.scope != Scope::Global && is_foreign {
        let message = format!("cannot {verb} '{id}' — owned by a different agent.");
        return Err(refuse("not_owned", message));
    }
    Ok(())
}

/// Checks that an agent, or the operator, may change all files with an id.
fn check_may_change_all(
    store: &Store,
    id: &str,
    agent_id: Option<&str>,
    verb: &str,
    directory: Option<&Path>,
) -> Result<(), PlanFailure> {
    let entries = store
        .files_of(id)
        .filter_map(|file| file.entry.as_ref().ok());
    for entry in entries {
        check_may_change(entry, agent_id, verb, directory)?;
    }
    Ok(())
}

/// Whether an entry that says so is an instruction file: each is, unless a directory tells which files
/// there are.
fn is_instruction_file(id: &str, directory: Option<&Path>) -> bool {
    directory.is_none_or(|directory| {
        let chain = InstructionChain::read(directory, &InstructionSettings::default());
        chain.files.iter().any(|file| file.stable_id == id)
    })
}

/// Checks that the parts of a file that are written again are text, so that none changes.
fn check_is_utf8(path: &Path, bytes: &[u8], entry: &Entry) -> Result<(), PlanFailure> {
    if std::str::from_utf8(bytes).is_ok() {
        return Ok(());
    }
    let message = format!(
        "{} is not valid UTF-8, so that '{}' cannot be written again",
        path.display(),
        entry.id
    );
    Err(refuse("io", message))
}

/// Plans to write an entry to its file, and to remove all others with its id.
fn plan_write(
    files: &MemoryFiles,
    store: &Store,
    entry: &Entry,
    operation: &OperationRequest,
    outcome: &'static str,
) -> Result<PlannedOperation, PlanFailure> {
    let path = path_of(entry).ok_or_else(|| {
        let message = format!("'{}' does not say whose it is", entry.id);
        refuse("invalid_scope", message)
    })?;
    let at_path = store.files.iter().find(|file| file.path == path);
    // The bytes that the entry is made from: those of a later read may be another program's.
    let before = match at_path {
        Some(file) => Some(file.bytes.clone()),
        None => match files.read(&path)? {
            Err(FileReadFault::Absent) => None,
            Err(fault) => return Err(refuse("io", fault.to_error(&path).message().to_string())),
            Ok(_) => {
                let message = format!("{} was created since the entries were read", path.display());
                return Err(Error::new(ErrorKind::Conflict, message).into());
            }
        },
    };
    let why = match at_path.map(|file| &file.entry) {
        Some(Ok(other)) if other.id != entry.id => Some(format!("holds the memory '{}'", other.id)),
        // The put would destroy content that no agent has read.
        Some(Err(fault)) => Some(format!(
            "exists, and agents do not see it ({}); repair or remove it",
            fault.as_str()
        )),
        _ => None,
    };
    if let Some(why) = why {
        return Err(refuse("io", format!("{} {why}", path.display())));
    }
    let after = format_entry(entry).into_bytes();
    check_is_seen(&after, &path, entry)?;
    let seen = store.find(&entry.id).map(|(file, _)| file.path.clone());
    let mut edits = vec![FileEdit {
        path: path.clone(),
        before,
        after: Some(after),
        moved_from: seen.filter(|seen| *seen != path),
    }];
    let others = store.files_of(&entry.id).filter(|file| file.path != path);
    edits.extend(others.map(removal));
    let (scope, kind) = (entry.scope.as_str(), entry.kind.as_str());
    Ok(PlannedOperation {
        outcome,
        message: format!("saved {scope}/{kind} memory '{}'.", entry.id),
        facts: json!({
            "id": entry.id,
            "scope": scope,
            "kind": kind,
            "path": path.display().to_string(),
            "created_ms": entry.created_ms,
            "updated_ms": entry.updated_ms,
        }),
        edits,
        basis: Some(operation.basis()),
    })
}

/// Checks that agents read an entry as it was requested: lines kept from the old file may not fit it.
fn check_is_seen(bytes: &[u8], path: &Path, entry: &Entry) -> Result<(), PlanFailure> {
    let place = Place {
        scope: entry.scope,
        segment: String::new(),
    };
    let read = parse_entry(bytes, &place);
    let is_meant = read.as_ref().is_ok_and(|read| {
        let facts = |it: &Entry| (it.id.clone(), it.scope, it.kind, it.summary.clone());
        let owners = |it: &Entry| (it.agent_id.clone(), it.run_id.clone(), it.tags.clone());
        facts(read) == facts(entry) && owners(read) == owners(entry)
    });
    if is_meant {
        return Ok(());
    }
    let why = read.err().map_or("changed", |fault| fault.as_str());
    let message = format!(
        "agents would not see {} as it is meant ({why})",
        path.display()
    );
    Err(refuse("io", message))
}

/// Returns the file that an entry belongs in; none if it does not say whose it is.
pub fn path_of(entry: &Entry) -> Option<PathBuf> {
    let segment = match entry.scope {
        Scope::Global => String::new(),
        Scope::Agent => entry.agent_id.clone()?,
        Scope::Run => entry.run_id.clone()?,
    };
    let place = Place {
        scope: entry.scope,
        segment,
    };
    Some(place.directory().join(format!("{}.md", entry.id)))
}

/// The edit that removes a file.
pub fn removal(file: &EntryFile) -> FileEdit {
    FileEdit {
        path: file.path.clone(),
        before: Some(file.bytes.clone()),
        after: None,
        moved_from: None,
    }
}

/// Plans to remove an entry, wherever its files lie.
///
/// # Errors
/// The request is refused, or the entries cannot be read.
pub fn plan_forget(
    files: &MemoryFiles,
    id: &str,
    agent_id: Option<&str>,
    directory: Option<&Path>,
) -> Result<PlannedOperation, PlanFailure> {
    if id.contains('/') {
        return plan_forget_file(files, Path::new(id), agent_id, directory);
    }
    let store = Store::load_whole(files)?;
    let Some((_, entry)) = store.find(id) else {
        return Ok(PlannedOperation {
            outcome: "unknown",
            message: format!("no memory '{id}' to forget."),
            facts: json!({ "id": id, "removed": false }),
            edits: Vec::new(),
            basis: None,
        });
    };
    check_may_change_all(&store, &entry.id, agent_id, "forget", directory)?;
    Ok(PlannedOperation {
        outcome: "removed",
        message: format!("forgot memory '{id}'."),
        facts: json!({ "id": id, "removed": true }),
        edits: store.files_of(id).map(removal).collect(),
        basis: None,
    })
}

/// Plans to remove one file with the name of an entry: one of two with the same id, or one that agents do
/// not see.
fn plan_forget_file(
    files: &MemoryFiles,
    path: &Path,
    agent_id: Option<&str>,
    directory: Option<&Path>,
) -> Result<PlannedOperation, PlanFailure> {
    let path = path.strip_prefix(files.root()).unwrap_or(path);
    let shown = path.display().to_string();
    let place = path.parent().and_then(Place::of_directory);
    let stem = path
        .file_name()
        .and_then(|it| it.to_str()?.strip_suffix(".md"));
    let (Some(place), Some(id)) = (place, stem.filter(|it| is_entry_id(it))) else {
        let message = format!("{shown} is not the path of an entry");
        return Err(refuse("not_found", message));
    };
    let bytes = match files.read(path)? {
        Ok(bytes) => bytes,
        Err(fault) => return Err(refuse("io", fault.to_error(path).message().to_string())),
    };
    match (parse_entry(&bytes, &place), agent_id) {
        (Ok(entry), _) => check_may_change(&entry, agent_id, "forget", directory)?,
        (Err(_), None) => {}
        (Err(_), Some(_)) => {
            let message = format!("cannot forget '{shown}' — it does not say whose it is.");
            return Err(refuse("not_owned", message));
        }
    }
    Ok(PlannedOperation {
        outcome: "removed",
        message: format!("removed the file {shown}."),
        facts: json!({ "id": id, "path": shown, "removed": true }),
        edits: vec![FileEdit {
            path: path.to_path_buf(),
            before: Some(bytes),
            after: None,
            moved_from: None,
        }],
        basis: None,
    })
}

/// Plans to give an entry another scope.
///
/// # Errors
/// The request is refused, or the entries cannot be read.
pub fn plan_move(
    files: &MemoryFiles,
    id: &str,
    to: &PutRequest,
    to_agent: Option<&str>,
    operation: &OperationRequest,
) -> Result<PlannedOperation, PlanFailure> {
    let store = Store::load_whole(files)?;
    let Some((file, entry)) = store.find(id) else {
        return Err(refuse("not_found", format!("no memory '{id}' to move.")));
    };
    let kept = |given: &Option<String>, own: &Option<String>, is_needed: bool| {
        given.clone().or_else(|| own.clone().filter(|_| is_needed))
    };
    let given_agent = to_agent.map(str::to_string).or_else(|| to.agent_id.clone());
    let request = PutRequest {
        scope: to.scope,
        kind: entry.kind.as_str().to_string(),
        summary: entry.summary.clone(),
        body: entry.body.clone(),
        agent_id: kept(&given_agent, &entry.agent_id, to.scope != Scope::Global),
        run_id: kept(&to.run_id, &entry.run_id, to.scope == Scope::Run),
        tags: entry.tags.clone(),
        id: Some(id.to_string()),
        directory: to.directory.clone(),
    };
    check_request(&request)?;
    check_may_change_all(
        &store,
        &entry.id,
        to.agent_id.as_deref(),
        "move",
        to.directory.as_deref(),
    )?;
    check_is_utf8(&file.path, &file.bytes, entry)?;
    let moved = Entry {
        scope: request.scope,
        agent_id: request.agent_id,
        run_id: request.run_id,
        updated_ms: Some(operation.now.timestamp_millis()),
        ..entry.clone()
    };
    plan_write(files, &store, &moved, operation, "moved")
}

/// Returns why the files of a directory cannot all be read, if so.
fn first_error(unlisted: Vec<(PathBuf, Error)>, unread: Vec<UnreadFile>) -> Option<Error> {
    let unlisted = unlisted.into_iter().map(|(_, error)| error);
    unlisted.chain(unread.into_iter().map(|it| it.error)).next()
}

/// Plans to bring the entries of a scope back to a recorded set: a directory of their files. Entries
/// of instruction files are left alone.
///
/// # Errors
/// The record holds files that agents would not see there, or files cannot be read.
pub fn plan_reset(
    files: &MemoryFiles,
    record: &MemoryFiles,
    place: &Place,
) -> Result<PlannedOperation, PlanFailure> {
    let recorded = read_record(record, place)?;
    let listed = list_place(files, place)?;
    let (present, unread) = read_listed(files, place, listed.files);
    if let Some(error) = first_error(listed.unread, unread) {
        return Err(error.into());
    }
    let names: BTreeSet<&str> = recorded.iter().map(|it| it.name_id.as_str()).collect();
    let mut edits = Vec::new();
    for file in &recorded {
        let path = place.directory().join(format!("{}.md", file.name_id));
        let before = present.iter().find(|it| it.path == path);
        if before.is_some_and(is_instructions) {
            continue;
        }
        edits.push(FileEdit {
            path,
            before: before.map(|it| it.bytes.clone()),
            after: Some(file.bytes.clone()),
            moved_from: None,
        });
    }
    let extra = present
        .iter()
        .filter(|it| !names.contains(it.name_id.as_str()));
    edits.extend(extra.filter(|it| !is_instructions(it)).map(removal));
    edits.retain(|edit| edit.before != edit.after);
    let count = edits.len();
    Ok(PlannedOperation {
        outcome: "reset",
        message: format!(
            "reset {} to {} recorded entries.",
            place.directory().display(),
            recorded.len()
        ),
        facts: json!({
            "scope": place.scope.as_str(),
            "recorded": recorded.len(),
            "changed": count,
        }),
        edits,
        basis: None,
    })
}

/// Plans to remove the entries of runs whose last entry was written so many days ago.
///
/// # Errors
/// The entries cannot be read.
pub fn plan_prune(
    files: &MemoryFiles,
    days: u32,
    operation: &OperationRequest,
) -> Result<PlannedOperation, PlanFailure> {
    let limit_ms = operation.now.timestamp_millis() - i64::from(days) * DAY_MS;
    let mut runs = Vec::new();
    let mut edits = Vec::new();
    let (places, _) = list_places(files)?;
    for place in places.iter().filter(|place| place.scope == Scope::Run) {
        let listed = list_place(files, place)?;
        let (present, unread) = read_listed(files, place, listed.files);
        if let Some(error) = first_error(listed.unread, unread) {
            return Err(error.into());
        }
        // Of a date in place of a time, only the year was read.
        let time_of = |file: &EntryFile| {
            let time = file.entry.as_ref().ok().map(Entry::recency);
            let readable = time.filter(|time| *time >= YEAR_2000_MS);
            readable.unwrap_or(file.modified / 1_000_000)
        };
        let is_old = present.iter().all(|file| time_of(file) <= limit_ms);
        // What the mapping says counts, not the directory; what agents do not see is left to `repair`.
        let is_of_run = |file: &&EntryFile| {
            let entry = file.entry.as_ref();
            entry.is_ok_and(|entry| {
                entry.scope == Scope::Run && entry.run_id.as_deref() == Some(&place.segment)
            })
        };
        let of_run: Vec<&EntryFile> = present.iter().filter(is_of_run).collect();
        if is_old && !of_run.is_empty() {
            runs.push(place.segment.clone());
            edits.extend(of_run.into_iter().map(removal));
        }
    }
    let (outcome, message) = if runs.is_empty() {
        ("unchanged", format!("no run is older than {days} days."))
    } else {
        let message = format!("removed {} entries of {} runs.", edits.len(), runs.len());
        ("pruned", message)
    };
    Ok(PlannedOperation {
        outcome,
        message,
        facts: json!({ "runs": runs, "removed": edits.len() }),
        edits,
        basis: None,
    })
}

/// Whether a file is the entry of an instruction file, which every run of an agent writes again.
fn is_instructions(file: &EntryFile) -> bool {
    file.entry.as_ref().is_ok_and(Entry::has_instructions_tag)
}

/// Reads a recorded set of entries.
fn read_record(record: &MemoryFiles, place: &Place) -> Result<Vec<EntryFile>, PlanFailure> {
    let pages = record.list(Path::new(""))?.ok_or_else(|| {
        let message = format!("the record {} does not exist", record.root().display());
        Error::new(ErrorKind::User, message)
    })?;
    let mut recorded = Vec::new();
    for page in pages {
        for entry in page? {
            let path = PathBuf::from(&entry.name);
            let stem = entry.name.to_str().and_then(|it| it.strip_suffix(".md"));
            let Some(stem) = stem.filter(|it| is_entry_id(it)) else {
                continue;
            };
            let bytes = record.read(&path)?.map_err(|fault| fault.to_error(&path))?;
            recorded.push(EntryFile {
                entry: parse_entry(&bytes, place),
                name_id: stem.to_string(),
                place: place.clone(),
                modified: 0,
                path,
                bytes,
            });
        }
    }
    recorded.sort_by(|one, other| one.name_id.cmp(&other.name_id));
    for file in &recorded {
        let fits = file.entry.as_ref().is_ok_and(|entry| {
            entry.id == file.name_id
                && entry.scope == place.scope
                && path_of(entry).is_some_and(|it| it.parent() == Some(&place.directory()))
        });
        if !fits {
            let message = format!(
                "{} is not an entry of {}",
                record.root().join(&file.path).display(),
                place.directory().display()
            );
            return Err(refuse("io", message));
        }
    }
    Ok(recorded)
}
