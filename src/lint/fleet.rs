//! Rules about facts from outside the text (113, 405, 8xx). The facts come in as plain data.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Instant;

use super::document::Document;
use super::finding::Draft;
use super::rule::{RuleId, Severity};
use super::secret_ranges::{find_secrets, quotable};
use super::structure::introduced_name;
use super::words::{pattern_in_any_case, patterns};
use super::{Context, Drafts};
use crate::base::diff::{self, LineOp};
use crate::base::digest::Digest;
use crate::base::quantity::format_count;
use crate::boundary::{LineKind, scan_lines};

/// Facts about a file from outside of it. The default has none.
#[derive(Clone, Debug, Default)]
pub struct FleetFacts {
    /// The version of a baseline that a good seal covers; it may equal the text. Only its comments
    /// suppress findings.
    pub sealed_version: Option<Vec<u8>>,
    /// The last pushed version of a baseline without a good seal; it may equal the text.
    pub pushed_version: Option<Vec<u8>>,
    /// Why the seal refuses the baseline, as a sentence.
    pub seal_fault: Option<String>,
    /// How a memory differs from what was pushed; none where its baseline part is intact.
    pub drift: Option<DriftFacts>,
    /// Size of a memory in bytes, where the text is only its beginning.
    pub memory_size: Option<u64>,
    /// Names of the other agents of the fleet.
    pub other_agents: Vec<String>,
    /// Agents whose users can write the baseline, with what they can write.
    pub writers: Vec<String>,
    /// Agents with the same memory file or archive directory, as sentences.
    pub sharing: Vec<String>,
}

impl FleetFacts {
    /// Returns the version of a baseline that tells what is new in it: the sealed or the last pushed
    /// one.
    pub(super) fn earlier_version(&self) -> Option<&[u8]> {
        let sealed = self.sealed_version.as_deref();
        sealed.or(self.pushed_version.as_deref())
    }
}

/// How a memory differs above the boundary from what was pushed, in lines.
#[derive(Clone, Debug, Default)]
pub struct DriftFacts {
    /// The number of the line that was taken for the separator; 0 where there is none.
    pub(super) separator_line: usize,
    /// Whether the baseline has a separator and the memory none.
    pub(super) is_separator_missing: bool,
    added: usize,
    removed: usize,
    edited: usize,
    moved: usize,
    /// Lines of the pushed version that are gone or edited.
    removed_lines: Vec<Vec<u8>>,
    /// All lines that differ, with a mark each, as in a diff.
    changes: Vec<u8>,
    /// Offset of the first line of the memory that differs.
    first_difference: usize,
}

impl DriftFacts {
    /// The memory lacks the separator that the baseline has.
    pub fn without_separator() -> DriftFacts {
        DriftFacts {
            is_separator_missing: true,
            ..DriftFacts::default()
        }
    }

    /// Adds the number of the line that was taken for the separator.
    #[must_use]
    pub fn with_separator_line(self, separator_line: usize) -> DriftFacts {
        DriftFacts {
            separator_line,
            ..self
        }
    }

    /// Compares the pushed version with the part of a memory above its boundary. After `deadline`
    /// the comparison is coarser.
    pub fn compare(pushed: &[u8], above: &[u8], deadline: Option<Instant>) -> DriftFacts {
        let compared = diff::compare_lines(pushed, above, deadline);
        if compared.is_too_large {
            let changes = [Digest::of(pushed), Digest::of(above)].map(|it| it.to_string());
            return DriftFacts {
                added: compared.added,
                removed: compared.removed,
                changes: changes.concat().into_bytes(),
                ..DriftFacts::default()
            };
        }
        let lines_of = |op: LineOp| {
            let lines = compared.lines.iter().filter(move |line| line.op == op);
            lines.map(|line| line.text.clone()).collect::<Vec<_>>()
        };
        let mut removed_lines = lines_of(LineOp::Delete);
        let mut added: HashMap<Vec<u8>, usize> = HashMap::new();
        let mut added_count = 0;
        for line in lines_of(LineOp::Insert) {
            added_count += 1;
            *added.entry(line).or_insert(0) += 1;
        }
        // A line that is gone in one place and new in another was moved.
        let mut moved = 0;
        removed_lines.retain(|line| {
            let others = added.get_mut(line).filter(|others| **others > 0);
            let is_moved = others.is_some() && !line.trim_ascii().is_empty();
            if let Some(others) = others.filter(|_| is_moved) {
                *others -= 1;
                moved += 1;
            }
            !is_moved
        });
        added_count -= moved;
        let is_edited = |line: &&diff::DiffLine| line.op == LineOp::Delete && line.is_paired;
        let edited = compared.lines.iter().filter(is_edited).count();
        let edited = edited.min(removed_lines.len()).min(added_count);
        let mut changes = Vec::new();
        for line in &compared.lines {
            let mark = match line.op {
                LineOp::Equal => continue,
                LineOp::Delete => b'-',
                LineOp::Insert => b'+',
            };
            changes.push(mark);
            changes.extend_from_slice(&line.text);
            changes.push(b'\n');
        }
        DriftFacts {
            separator_line: 0,
            is_separator_missing: false,
            added: added_count - edited,
            removed: removed_lines.len() - edited,
            edited,
            moved,
            removed_lines,
            changes,
            first_difference: first_difference(&compared.lines, above),
        }
    }
}

/// Returns the offset of the first line of a memory that is new, or that stands where a line is gone.
fn first_difference(compared: &[diff::DiffLine], above: &[u8]) -> usize {
    let equal = compared.iter().take_while(|line| line.op == LineOp::Equal);
    let first = scan_lines(above).nth(equal.count());
    first.map_or(above.len(), |line| line.start)
}

impl fmt::Display for DriftFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.added, "added"),
            (self.removed, "removed"),
            (self.edited, "edited"),
            (self.moved, "moved"),
        ];
        let parts = parts.into_iter().filter(|(number, _)| *number > 0);
        let parts: Vec<String> = parts
            .map(|(number, what)| format!("{number} {what}"))
            .collect();
        match parts.as_slice() {
            [] => f.write_str("only in its last line end"),
            parts => write!(f, "lines {}", parts.join(", ")),
        }
    }
}

patterns! {
    PROTECTIVE_WORD = pattern_in_any_case(r"\b(?:never|must|do not|don't)\b");
}

/// Number of lost headings that are named.
const MAX_NAMED_HEADINGS: usize = 10;
/// Number of lines that are quoted in the message about drift.
const MAX_QUOTED_LINES: usize = 3;

pub(super) fn check(context: &Context<'_>, drafts: &mut Drafts) {
    if context.document.is_baseline() {
        check_size_jump(context, drafts);
        check_name(context, drafts);
    }
    check_drift(context, drafts);
    let facts = context.facts();
    if let Some(fault) = &facts.seal_fault {
        drafts.push(Draft::new(RuleId::Seal, fault).about_fleet());
    }
    for writer in &facts.writers {
        drafts.push(Draft::new(RuleId::BaselineWritableByAgent, writer).about_fleet());
    }
    for sharing in &facts.sharing {
        drafts.push(Draft::new(RuleId::DuplicateMemory, sharing).about_fleet());
    }
}

fn check_size_jump(context: &Context<'_>, drafts: &mut Drafts) {
    let Some(earlier) = context.facts().earlier_version() else {
        return;
    };
    let (old, new) = (earlier.len(), context.document.text.len());
    if new * 10 < old * 7 {
        let lost = lost_headings(earlier, context.document);
        let mut message = format!("the baseline shrank from {old} to {new} bytes");
        if !lost.is_empty() {
            let named = lost.iter().take(MAX_NAMED_HEADINGS);
            let named: Vec<String> = named
                .map(|it| quotable(it.as_bytes(), context.document.words))
                .collect();
            message.push_str(&format!("; lost headings: {}", named.join(", ")));
            if lost.len() > named.len() {
                message.push_str(", …");
            }
        }
        drafts.push(Draft::new(RuleId::SizeJump, message).about_fleet());
    } else if new > old * 2 {
        let message = format!("the baseline grew from {old} to {new} bytes");
        let draft = Draft::new(RuleId::SizeJump, message).severity(Severity::Info);
        drafts.push(draft.about_fleet());
    }
}

/// Returns the headings of an earlier version that a text does not have.
fn lost_headings(earlier: &[u8], document: &Document<'_>) -> Vec<String> {
    let heading_text = |line: &[u8]| {
        let line = line.trim_ascii_start();
        let marks = line.iter().take_while(|byte| **byte == b'#').count();
        String::from_utf8_lossy(line[marks..].trim_ascii()).into_owned()
    };
    let now = document.headings.iter();
    let now: HashSet<String> = now
        .map(|it| document.lossy(&it.text).into_owned())
        .collect();
    scan_lines(earlier)
        .filter(|line| line.kind == LineKind::Heading)
        .map(|line| heading_text(&earlier[line.start..line.end]))
        .filter(|heading| !now.contains(heading))
        .collect()
}

fn check_name(context: &Context<'_>, drafts: &mut Drafts) {
    let Some((range, name)) = introduced_name(context.document) else {
        return;
    };
    let own = context.input.agent.unwrap_or_default();
    let others = &context.facts().other_agents;
    if name != own.to_lowercase() && others.iter().any(|it| it.to_lowercase() == name) {
        let message = format!("the baseline introduces itself as {name}, which is another agent");
        drafts.push(Draft::new(RuleId::NameMismatch, message).at_range(range, "another agent"));
    }
}

/// Reports what changed above the boundary, as facts.
fn check_drift(context: &Context<'_>, drafts: &mut Drafts) {
    let drift = context.facts().drift.as_ref();
    let Some(drift) = drift.filter(|drift| !drift.is_separator_missing) else {
        return;
    };
    let document = context.document;
    let mut message = format!("the memory differs above the boundary: {drift}");
    let gone = drift.removed_lines.iter();
    let gone: Vec<&Vec<u8>> = gone.filter(|it| PROTECTIVE_WORD.is_match(it)).collect();
    if !gone.is_empty() {
        let quoted = gone.iter().take(MAX_QUOTED_LINES);
        let quoted: Vec<String> = quoted
            .map(|it| quotable(it.trim_ascii(), document.words))
            .collect();
        message.push_str(&format!(
            "; {} with never/must/do not {} gone: {}",
            format_count(gone.len() as u64, "protected line"),
            if gone.len() == 1 { "is" } else { "are" },
            quoted.join(", ")
        ));
        if gone.len() > quoted.len() {
            message.push_str(", …");
        }
    }
    let line = document.line_at(drift.first_difference.min(document.text.len()));
    let range = if document.lines.is_empty() {
        0..0
    } else {
        document.line_range(line)
    };
    // Another change is another finding, wherever it is: an accepted one hides no later one.
    let secrets = find_secrets(&drift.changes, document.words);
    let changes = secrets.mask(&drift.changes, &(0..drift.changes.len()));
    drafts.push(
        Draft::new(RuleId::Drift, message)
            .at_range(range, "the first difference")
            .identified_by(changes),
    );
}
