//! Repair of files: makes an entry of a file that agents do not see, with what can be read of it, and puts
//! one that says otherwise than its directory or its name where it belongs.

use std::path::Path;

use serde_json::json;

use super::entry::{
    Entry, Kind, LoadFault, Pairs, format_mapping, parse_entry, split_fences, trim, units,
};
use super::operations::{MAX_SUMMARY_UNITS, check_may_change, path_of, refuse, removal};
use super::store::{EntryFile, Store};
use super::yaml::{Pair, Value, parse_mapping, write_text};
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
    let file = find_file(&store, request.file)?;
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
    let path = path_of(&entry).ok_or_else(|| {
        let message = format!("{} does not say whose it is", file.path.display());
        refuse("invalid_scope", message)
    })?;
    let mut edits = Vec::new();
    if path != file.path {
        check_is_free(files, &path, &entry)?;
        edits.push(removal(file));
    }
    edits.push(FileEdit {
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
fn find_file<'s>(store: &'s Store, wanted: &str) -> Result<&'s EntryFile, PlanFailure> {
    let is_named = |file: &&EntryFile| file.path == Path::new(wanted) || file.name_id == wanted;
    let named: Vec<&EntryFile> = store.files.iter().filter(is_named).collect();
    match named[..] {
        [] => Err(refuse(
            "not_found",
            format!("no file '{wanted}' to repair."),
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

/// Makes an entry of a file that agents do not see, and its new bytes.
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
    if let Ok(entry) = parse_entry(text.as_bytes(), &file.place) {
        return Ok((entry, text.as_bytes().to_vec()));
    }
    let (mapping, rest) = match split_fences(text) {
        Some((mapping, rest)) => (mapping, rest.to_string()),
        None => ("", format!("\n\n{text}")),
    };
    let pairs = read_pairs(mapping).map_err(|line| {
        let message = format!(
            "{shown}: cannot make out `{}`; edit it by hand",
            line.trim()
        );
        refuse("io", message)
    })?;
    let pairs = Pairs(&pairs);
    let id = pairs.id().unwrap_or_else(|| file.name_id.clone());
    let missing = |what: &str| {
        let message = format!("{shown} has no {what} ({}): give one", fault.as_str());
        refuse("io", message)
    };
    let kind = request
        .kind
        .or(pairs.kind())
        .ok_or_else(|| missing("kind"))?;
    let given = request.summary.map(str::to_string);
    let summary = given.or_else(|| pairs.text_of("summary"));
    let summary = summary.ok_or_else(|| missing("summary"))?;
    if units(&summary) > MAX_SUMMARY_UNITS {
        let message = format!("summary must be 1-{MAX_SUMMARY_UNITS} chars; give a shorter one");
        return Err(refuse("io", message));
    }
    let entry = pairs.to_entry(&file.place, id, kind, summary, trim(&rest).to_string());
    let bytes = format!("---\n{}---{rest}", format_mapping(&entry)).into_bytes();
    match parse_entry(&bytes, &file.place) {
        Ok(entry) => Ok((entry, bytes)),
        Err(fault) => {
            let message = format!("{shown} cannot be repaired ({})", fault.as_str());
            Err(refuse("io", message))
        }
    }
}

/// Reads the pairs of a mapping, also where it is no YAML as a whole: then each line that begins with a key
/// begins a pair, of several with one key the last counts, and values that cannot be read are strings.
///
/// # Errors
/// A line that belongs to no key.
fn read_pairs(mapping: &str) -> Result<Vec<Pair>, String> {
    if let Ok(pairs) = parse_mapping(mapping) {
        return Ok(pairs);
    }
    let mut sources: Vec<(String, String)> = Vec::new();
    for line in mapping.lines() {
        if let Some(key) = key_of(line) {
            sources.retain(|(known, _)| known != key);
            sources.push((key.to_string(), line.to_string()));
        } else if let Some((_, source)) = sources.last_mut() {
            source.push('\n');
            source.push_str(line);
        } else if !trim(line).is_empty() {
            return Err(line.to_string());
        }
    }
    let pairs = sources.into_iter().map(|(key, source)| {
        let parsed = parse_mapping(&source).ok().and_then(|mut it| it.pop());
        parsed.unwrap_or_else(|| string_pair(key, &source))
    });
    Ok(pairs.collect())
}

/// Returns the key that a line of a mapping begins with.
fn key_of(line: &str) -> Option<&str> {
    let (key, rest) = line.split_once(':')?;
    let is_key_character = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '-');
    let is_key = !key.is_empty() && key.chars().all(is_key_character) && !key.starts_with('-');
    (is_key && (rest.is_empty() || rest.starts_with([' ', '\t']))).then_some(key)
}

/// Takes what follows a key for a string.
fn string_pair(key: String, source: &str) -> Pair {
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
    let text = unquoted.unwrap_or(&text).to_string();
    let written = write_text(&text, 2, Some(key.len() + 2));
    Pair {
        source: format!("{key}: {written}"),
        value: Value::Text(text),
        key,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_of_broken_yaml_are_made_out() {
        let cases: [(&str, &[(&str, &str)]); 4] = [
            (
                "summary: plover: silent\nkind: user",
                &[("summary", "plover: silent"), ("kind", "user")],
            ),
            ("kind: user\nkind: project", &[("kind", "project")]),
            ("summary: \"it is\n  late", &[("summary", "it is late")]),
            (
                "summary: @mara said\nx-note: [1",
                &[("summary", "@mara said"), ("x-note", "[1")],
            ),
        ];
        for (mapping, expected) in cases {
            let pairs = read_pairs(mapping).unwrap();
            let found = pairs
                .iter()
                .map(|it| (it.key.as_str(), it.value.as_text().unwrap()));
            assert_eq!(found.collect::<Vec<_>>(), expected, "{mapping}");
        }
        assert!(read_pairs("- a: [\nkind: user").is_err());
    }
}
