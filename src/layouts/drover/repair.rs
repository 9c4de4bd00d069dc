//! Repair of files: makes an entry of a file that agents do not see, with what can be read of it, and puts
//! one that says otherwise than its directory or its name where it belongs.

use std::path::Path;

use serde_json::json;

use super::entry::{
    Entry, Kind, LoadFault, Pairs, Place, Scope, parse_entry, split_fences, trim, units,
};
use super::ids::time_of_id;
use super::operations::{MAX_SUMMARY_UNITS, check_may_change, path_of, refuse, removal};
use super::store::{EntryFile, Store};
use super::yaml::{Pair, parse_mapping, write_text};
use crate::layouts::{FileEdit, FileReadFault, MemoryFiles, PlanFailure, PlannedOperation};

/// What a repair is about.
pub struct RepairRequest<'r> {
    /// The file: its path below the directory of the memory, or the id in its name.
    pub file: &'r str,
    /// The kind, where the file has none.
    pub kind: Option<Kind>,
    /// The summary, where the file has none.
    pub summary: Option<&'r str>,
}

/// Plans a repair. The body stays as it is.
///
/// # Errors
/// Something is missing that no one but the operator can say, or the entries cannot be read.
pub fn plan_repair(
    files: &MemoryFiles,
    request: &RepairRequest<'_>,
) -> Result<PlannedOperation, PlanFailure> {
    let store = Store::load_whole(files)?;
    let file = find_file(&store, files.root(), request.file)?;
    let (entry, bytes, reason) = match &file.entry {
        Ok(entry) => {
            check_may_change(entry, None, "repair", None)?;
            (entry.clone(), file.bytes.clone(), "misplaced")
        }
        Err(fault) => {
            let (entry, bytes) = rewrite(file, *fault, request)?;
            (entry, bytes, fault.as_str())
        }
    };
    let is_owned = entry.scope != Scope::Run || entry.agent_id.is_some();
    let path = path_of(&entry).filter(|_| is_owned).ok_or_else(|| {
        let message = format!("{} does not say whose it is", file.path.display());
        refuse("invalid_scope", message)
    })?;
    check_is_only(&store, file, &entry)?;
    let bytes = if path == file.path {
        bytes
    } else {
        say_owner(&bytes, &path, &entry)?
    };
    let mut edits = Vec::new();
    if path != file.path {
        check_is_free(files, &path, &entry)?;
        edits.push(removal(file));
    }
    edits.push(FileEdit {
        moved_from: (path != file.path).then(|| file.path.clone()),
        before: (path == file.path).then(|| file.bytes.clone()),
        after: Some(bytes),
        path: path.clone(),
    });
    edits.retain(|edit| edit.before != edit.after);
    let (shown, id) = (file.path.display(), &entry.id);
    let (outcome, message) = if edits.is_empty() {
        ("unchanged", format!("nothing to repair in {shown}."))
    } else {
        (
            "repaired",
            format!("repaired {shown} ({reason}): memory '{id}'."),
        )
    };
    Ok(PlannedOperation {
        outcome,
        message,
        facts: json!({
            "id": id,
            "path": path.display().to_string(),
            "reason": (!edits.is_empty()).then_some(reason),
        }),
        edits,
        basis: None,
    })
}

/// Finds the file that a repair is about.
fn find_file<'s>(
    store: &'s Store,
    root: &Path,
    wanted: &str,
) -> Result<&'s EntryFile, PlanFailure> {
    let path = Path::new(wanted);
    let path = path.strip_prefix(root).unwrap_or(path);
    let is_named = |file: &&EntryFile| file.path == path || file.name_id == wanted;
    let named: Vec<&EntryFile> = store.files.iter().filter(is_named).collect();
    match named[..] {
        [] => Err(refuse(
            "not_found",
            format!("no file '{wanted}' with the name of an entry to repair."),
        )),
        [file] => Ok(file),
        _ => {
            let paths = named.iter().map(|file| file.path.display().to_string());
            let paths: Vec<String> = paths.collect();
            let message = format!("several files have this name: {}", paths.join(", "));
            Err(refuse("io", message))
        }
    }
}

/// Checks that no other file has the id: agents would see one of the two.
fn check_is_only(store: &Store, file: &EntryFile, entry: &Entry) -> Result<(), PlanFailure> {
    let mut others = store.files_of(&entry.id).filter(|it| it.path != file.path);
    let Some(other) = others.next() else {
        return Ok(());
    };
    let message = format!("{} has the id '{}', too", other.path.display(), entry.id);
    Err(refuse("io", message))
}

/// Adds to the mapping what only the directory said of an entry that gets into another one.
fn say_owner(bytes: &[u8], path: &Path, entry: &Entry) -> Result<Vec<u8>, PlanFailure> {
    let place = Place {
        scope: entry.scope,
        segment: String::new(),
    };
    let says = |bytes: &[u8]| {
        let read = parse_entry(bytes, &place).ok();
        read.is_some_and(|read| {
            let facts = |it: &Entry| (it.scope, it.agent_id.clone(), it.run_id.clone());
            facts(&read) == facts(entry)
        })
    };
    if says(bytes) {
        return Ok(bytes.to_vec());
    }
    let text = String::from_utf8_lossy(bytes);
    let parts = split_fences(&text).filter(|_| std::str::from_utf8(bytes).is_ok());
    let told = parts.and_then(|(mapping, rest)| {
        let mut lines = MappingLines::split(mapping).ok()?;
        lines.set("scope", entry.scope.as_str().to_string());
        for (key, value) in [("agentId", &entry.agent_id), ("runId", &entry.run_id)] {
            if let Some(value) = value {
                lines.set(key, write_text(value, 2, Some(key.len() + 2)));
            }
        }
        Some(format!("---\n{}---{rest}", lines.to_text()).into_bytes())
    });
    told.filter(|bytes| says(bytes)).ok_or_else(|| {
        let message = format!("{} would not say whose it is", path.display());
        refuse("io", message)
    })
}

/// Checks that no file is where a repaired one belongs.
fn check_is_free(files: &MemoryFiles, path: &Path, entry: &Entry) -> Result<(), PlanFailure> {
    if files.read(path)? == Err(FileReadFault::Absent) {
        return Ok(());
    }
    let message = format!(
        "{} exists, so that two files would hold '{}'; forget it first, or remove one of them",
        path.display(),
        entry.id
    );
    Err(refuse("io", message))
}

/// Makes an entry of a file that agents do not see, and its new bytes: only lines of the mapping change that
/// keep agents from seeing it.
fn rewrite(
    file: &EntryFile,
    fault: LoadFault,
    request: &RepairRequest<'_>,
) -> Result<(Entry, Vec<u8>), PlanFailure> {
    let shown = file.path.display();
    let text = std::str::from_utf8(&file.bytes).map_err(|_| {
        let message = format!("{shown} is not valid UTF-8; put its text as an entry");
        refuse("io", message)
    })?;
    let text = text.trim_start_matches('\u{feff}');
    let (mapping, rest) = match split_fences(text) {
        Some((mapping, rest)) => (mapping, rest.to_string()),
        None => ("", format!("\n\n{text}")),
    };
    let mut lines = MappingLines::split(mapping).map_err(|line| {
        let line = trim(&line);
        refuse(
            "io",
            format!("{shown}: cannot make out `{line}`; edit it by hand"),
        )
    })?;
    let pairs = lines.parse();
    let pairs = Pairs(&pairs);
    let missing = |what: &str| {
        let message = format!(
            "{shown} has no {what} ({}); give one, or edit it",
            fault.as_str()
        );
        refuse("io", message)
    };
    let kind = request.kind.or(pairs.kind());
    let kind = kind.ok_or_else(|| missing("kind"))?;
    let own_summary = pairs.text_of("summary");
    let summary = request.summary.map(str::to_string).or(own_summary);
    let summary = summary.ok_or_else(|| missing("summary"))?;
    if units(&summary) > MAX_SUMMARY_UNITS {
        let message = format!("summary must be 1-{MAX_SUMMARY_UNITS} chars; give a shorter one");
        return Err(refuse("io", message));
    }
    if pairs.id().is_none() {
        lines.set("id", write_text(&file.name_id, 2, Some("id: ".len())));
    }
    if !pairs.has_readable_scope() {
        // Another one could show the entry to those who must not see it.
        let scope = pairs
            .text_of("scope")
            .and_then(|it| it.to_lowercase().parse().ok());
        let scope: Scope = scope.ok_or_else(|| missing("scope that can be read"))?;
        lines.set("scope", scope.as_str().to_string());
    }
    if pairs.kind() != Some(kind) {
        lines.set("kind", kind.as_str().to_string());
    }
    if pairs.string("summary") != Some(&summary) {
        lines.set("summary", write_text(&summary, 2, Some("summary: ".len())));
    }
    if pairs.created_ms().is_none() {
        let id = pairs.id().unwrap_or_else(|| file.name_id.clone());
        lines.set("createdAt", time_of_id(&id).to_string());
    }
    let bytes = format!("---\n{}---{rest}", lines.to_text()).into_bytes();
    match parse_entry(&bytes, &file.place) {
        Ok(entry) => Ok((entry, bytes)),
        Err(fault) => {
            let message = format!("{shown} cannot be repaired ({})", fault.as_str());
            Err(refuse("io", message))
        }
    }
}

/// The lines of a mapping, each key with those that belong to it. The lines before the first key have none.
struct MappingLines(Vec<(String, String)>);

impl MappingLines {
    /// Splits a mapping, also one that is not YAML: each line that begins with a key begins a pair, and what
    /// cannot be read becomes a string.
    ///
    /// # Errors
    /// A line that belongs to no key, or gives one of another line another value.
    fn split(mapping: &str) -> Result<MappingLines, String> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for line in mapping.split_inclusive('\n') {
            let key = key_of(line);
            let is_known = |(known, _): &(String, String)| Some(known.as_str()) == key;
            if let Some((_, source)) = pairs.iter().find(|pair| is_known(pair)) {
                if trim(source) != trim(line) {
                    return Err(line.to_string());
                }
                continue;
            }
            let continues = line.starts_with([' ', '\t', '-', ']', '}']) || is_comment(line);
            match (key, pairs.last_mut()) {
                (None, Some((_, source))) if continues => source.push_str(line),
                (None, None) if is_comment(line) => {
                    pairs.push((String::new(), line.to_string()));
                }
                (None, _) => return Err(line.to_string()),
                (Some(key), _) => pairs.push((key.to_string(), line.to_string())),
            }
        }
        if let Some((_, source)) = pairs.last_mut()
            && !source.ends_with('\n')
        {
            source.push('\n');
        }
        for (key, source) in &mut pairs {
            if !key.is_empty() && parse_mapping(source).is_err() {
                *source = string_line(key, source);
            }
        }
        Ok(MappingLines(pairs))
    }

    fn parse(&self) -> Vec<Pair> {
        // Each of them can be read.
        parse_mapping(&self.to_text()).unwrap_or_default()
    }

    /// Replaces the value of a key, or adds it. Comments below it stay.
    fn set(&mut self, key: &str, value: String) {
        let mut line = format!("{key}: {value}\n");
        match self.0.iter_mut().find(|(known, _)| known == key) {
            Some((_, source)) => {
                let comments = source.split_inclusive('\n').filter(|it| is_comment(it));
                line.extend(comments);
                *source = line;
            }
            None => self.0.push((key.to_string(), line)),
        }
    }

    fn to_text(&self) -> String {
        self.0.iter().map(|(_, source)| source.as_str()).collect()
    }
}

/// Returns the key that a line of a mapping begins with.
fn key_of(line: &str) -> Option<&str> {
    let (key, rest) = line.split_once(':')?;
    let is_key_character = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '-');
    let is_key = !key.is_empty() && key.chars().all(is_key_character) && !key.starts_with('-');
    let ends_key = rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']);
    (is_key && ends_key).then_some(key)
}

fn is_comment(line: &str) -> bool {
    let line = trim(line);
    line.is_empty() || line.starts_with('#')
}

/// Writes what follows a key as a string.
fn string_line(key: &str, source: &str) -> String {
    let value = source.split_once(':').map_or("", |(_, value)| value);
    let lines: Vec<&str> = value
        .lines()
        .map(trim)
        .filter(|it| !it.is_empty())
        .collect();
    let text = lines.join(" ");
    let unquoted = ['"', '\''].into_iter().find_map(|quote| {
        let text = text.strip_prefix(quote)?;
        Some(text.strip_suffix(quote).unwrap_or(text))
    });
    let written = write_text(unquoted.unwrap_or(&text), 2, Some(key.len() + 2));
    format!("{key}: {written}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_broken_yaml_are_made_out() {
        let cases = [
            (
                "summary: plover: silent\nkind: user",
                "summary: \"plover: silent\"\nkind: user\n",
            ),
            ("kind: user\nkind: user\n", "kind: user\n"),
            ("summary: \"it is\n  late\n", "summary: it is late\n"),
            (
                "# why\nsummary: @mara\nx: [1\n",
                "# why\nsummary: \"@mara\"\nx: \"[1\"\n",
            ),
            (
                "tags: [a, 5]\n\nx:\n  y: 1  # kept\n",
                "tags: [a, 5]\n\nx:\n  y: 1  # kept\n",
            ),
        ];
        for (mapping, expected) in cases {
            let lines = MappingLines::split(mapping).unwrap();
            assert_eq!(lines.to_text(), expected, "{mapping}");
            assert!(!lines.parse().is_empty(), "{mapping}");
        }
        for mapping in [
            "- a: [\nkind: user",
            "x: 1\nx: 2",
            "kind: user\nfoo bar: 1: 2",
        ] {
            assert!(MappingLines::split(mapping).is_err(), "{mapping}");
        }
    }
}
