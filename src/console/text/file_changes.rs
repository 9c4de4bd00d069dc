//! Prepares the files that a plan changes or a run changed: what happens to each, and its difference
//! where its content is known.

use std::collections::HashMap;
use std::path::Path;
use std::time::Instant;

use super::prepare::compare_texts;
use super::{LineKind, PreparedText, TextLine};
use crate::base::digest::Digest;
use crate::base::quantity::{format_count, format_exact_size};
use crate::console::screens::reset::state::FileChangesRequest;
use crate::engine::{FileChange, FileState};
use crate::layouts::FileEdit;

/// Prepares the files of a request; their paths are relative to the directory of the memory. `edits` are
/// the contents from which the plan was made, as far as they are known.
pub fn prepare_file_changes(
    request: &FileChangesRequest,
    edits: &[FileEdit],
    deadline: Option<Instant>,
) -> PreparedText {
    let mut text = PreparedText::default();
    let root = request.directory.as_path();
    let created = request.new_directories.iter().map(|directory| {
        let path = path_below(root, directory).display();
        TextLine::note(format!("create directory {path}"))
    });
    text.lines.extend(created);
    let edits: HashMap<&Path, &FileEdit> = edits.iter().map(|it| (&*it.path, it)).collect();
    for file in &request.files {
        let path = path_below(root, &file.path);
        let states = [&file.before, &file.after];
        push_file(&mut text, path, states, edits.get(path).copied(), deadline);
    }
    let removed = request.removed_directories.iter().map(|directory| {
        let path = path_below(root, directory).display();
        TextLine::note(format!("remove directory {path}, if it is empty"))
    });
    push_lines(&mut text, removed.collect::<Vec<_>>().into());
    text
}

/// Whether the contents of an edit have these states.
fn has_states(edit: &FileEdit, [before, after]: [&FileState; 2]) -> bool {
    let digest = |bytes: &Option<Vec<u8>>| bytes.as_deref().map(Digest::of);
    digest(&edit.before) == before.digest() && digest(&edit.after) == after.digest()
}

/// Appends what happens to a file, and its lines where the contents are known.
fn push_file(
    text: &mut PreparedText,
    path: &Path,
    states: [&FileState; 2],
    edit: Option<&FileEdit>,
    deadline: Option<Instant>,
) {
    let Some(edit) = edit.filter(|edit| has_states(edit, states)) else {
        let note = TextLine::note(describe_change(path, states, None));
        return push_lines(text, vec![note].into());
    };
    let side = |bytes: &Option<Vec<u8>>| bytes.clone().unwrap_or_default();
    let (old, new) = (side(&edit.before), side(&edit.after));
    let diff = compare_texts(Vec::new(), [&old, &new], [0, 0], deadline);
    let count = |kind: LineKind| diff.lines.iter().filter(|line| line.kind == kind).count();
    let counts = (count(LineKind::Added), count(LineKind::Removed));
    let title = TextLine::separator(describe_change(path, states, Some(counts)));
    push_lines(text, vec![title].into());
    push_lines(text, diff);
}

/// Appends a text under both whitespace rules.
fn push_lines(text: &mut PreparedText, more: PreparedText) {
    if text.ignoring_whitespace.is_some() || more.ignoring_whitespace.is_some() {
        let lines = more.ignoring_whitespace.as_ref().unwrap_or(&more.lines);
        let all = text
            .ignoring_whitespace
            .get_or_insert_with(|| text.lines.clone());
        all.extend(lines.iter().cloned());
    }
    text.lines.extend(more.lines);
}

/// Prepares what a run of the ledger did to several files, and the entry that holds each as it was
/// before. Paths below `root` are relative to it. `edits` are the contents that are known.
pub fn prepare_recorded_changes(
    root: &Path,
    changes: &[FileChange],
    edits: &[FileEdit],
    deadline: Option<Instant>,
) -> PreparedText {
    let mut text = PreparedText::default();
    let edits: HashMap<&Path, &FileEdit> = edits.iter().map(|it| (&*it.path, it)).collect();
    for change in changes {
        let states = [&change.before, &change.after]
            .map(|state| state.as_ref().unwrap_or(&FileState::Absent));
        let path = path_below(root, change.path.as_deref().unwrap_or("".as_ref()));
        push_file(&mut text, path, states, edits.get(path).copied(), deadline);
        let entry = change.entry.as_ref();
        let archived =
            entry.map(|it| TextLine::note(format!("  archived as {}", it.path.display())));
        push_lines(&mut text, archived.into_iter().collect::<Vec<_>>().into());
    }
    text
}

/// Returns a path relative to a directory, if it is below that.
fn path_below<'p>(root: &Path, path: &'p Path) -> &'p Path {
    match path.strip_prefix(root) {
        Ok(below) if !below.as_os_str().is_empty() => below,
        _ => path,
    }
}

/// Says what happens to a file, with the numbers of added and removed lines where they are known.
fn describe_change(
    path: &Path,
    states: [&FileState; 2],
    changed_lines: Option<(usize, usize)>,
) -> String {
    let path = path.display();
    match states {
        [FileState::Absent, after] => format!("create {path}, {}", describe_size(after)),
        [before, FileState::Absent] => format!("remove {path}, {}", describe_size(before)),
        [before, after] => match changed_lines {
            Some((added, removed)) => format!("change {path}, +{added} -{removed}"),
            None => format!(
                "change {path}, {} -> {}",
                describe_size(before),
                describe_size(after)
            ),
        },
    }
}

fn describe_size(state: &FileState) -> String {
    match state {
        FileState::File { size, lines, .. } => {
            let lines = format_count(*lines, "line");
            format!("{lines}, {}", format_exact_size(*size))
        }
        FileState::Absent => "no file".to_string(),
        FileState::Special(special) => special.to_string(),
    }
}
