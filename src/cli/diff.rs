//! `diff`: compares a baseline with a memory, an archive entry with a memory, or two versions of a
//! baseline.
//!
//! A terminal shows every invisible character as a mark; a pipe gets the exact bytes, as `diff -u`
//! prints them.

pub(super) mod three_way;

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use chrono::{DateTime, FixedOffset};
use serde::Serialize;

use super::output::{
    Document, OutputRole, Printer, TextPiece, format_count, heading, notice, plain, warn,
};
use super::{CommandContext, CommandResult};
use crate::archive::{self, EntryKind};
use crate::base::diff::{self, Diff, DiffLine, LineOp};
use crate::base::digest::{Digest, to_hex};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::invocation::as_operand;
use crate::base::untrusted::RevealOptions;
use crate::boundary::{describe_line_ends, with_line_ends_of};
use crate::config::Agent;
use crate::engine::{AgentDetail, Blocker, Engine, MAX_WINDOW_BYTES, MemoryContent};

/// Number of equal lines shown around a change.
const CONTEXT_LINES: usize = 3;

/// Bytes of a line in JSON beside its text.
const JSON_LINE_BYTES: usize = 100;

/// Size limit of the differences of several files together, in JSON, in bytes.
pub(super) const MAX_ALL_HUNK_BYTES: usize = 32 << 20;

/// Time limit for the smallest difference; after it, the rest is compared coarsely.
const DIFF_TIMEOUT: Duration = Duration::from_secs(2);

/// Arguments of `diff`.
#[derive(Debug, clap::Args)]
pub struct DiffArgs {
    /// Agent to compare
    agent: String,
    /// Prints only the numbers of added and removed lines
    #[arg(long)]
    stat: bool,
    /// Exits with 1 if there are differences
    #[arg(long)]
    exit_code: bool,
    /// Compares this archive entry with the memory
    #[arg(long, value_name = "ENTRY")]
    against_archive: Option<String>,
    /// Compares the last known version of the baseline (sealed, pushed or saved) with its file
    ///
    /// Also shows the owner of the file, when it changed, and which agents use it.
    #[arg(long, conflicts_with = "against_archive")]
    baseline: bool,
    /// Compares the rules as pushed last, in the baseline and in the memory, by section
    ///
    /// Counts the lines that the operator and the agent added (+), removed (-), edited (~) and moved
    /// (>) since the last push, and names the lines with never, must or do not that are gone.
    #[arg(long, conflicts_with_all = ["against_archive", "baseline", "stat"])]
    three_way: bool,
}

/// One of the two texts that are compared.
#[derive(Serialize)]
struct DiffSide {
    name: String,
    sha256: Digest,
    size: usize,
    #[serde(skip)]
    bytes: Vec<u8>,
}

impl DiffSide {
    fn new(name: impl Display, bytes: Vec<u8>) -> DiffSide {
        DiffSide {
            name: name.to_string(),
            sha256: Digest::of(&bytes),
            size: bytes.len(),
            bytes,
        }
    }
}

/// The answer of `diff`.
#[derive(Serialize)]
struct DiffDocument {
    agent: String,
    old: DiffSide,
    new: DiffSide,
    added: usize,
    removed: usize,
    /// Lines added and removed above the boundary; `None` without a boundary.
    above: Option<AboveBoundary>,
    /// The earlier version of the baseline that the memory holds, if it is behind: then its rules
    /// are compared with those of the baseline.
    behind: Option<Digest>,
    /// `None` if it is unknown which lines are scratch.
    scratch_lines: Option<u64>,
    scratch_bytes: Option<u64>,
    /// Bytes of the memory that were not compared.
    not_compared: u64,
    /// Facts about the baseline file, for `--baseline`.
    #[serde(skip_serializing_if = "Option::is_none")]
    baseline: Option<BaselineFacts>,
    #[serde(flatten)]
    difference: Difference,
}

/// A difference, of which JSON has the changed parts.
#[derive(Serialize)]
pub(super) struct Difference {
    /// Empty where the difference is too large; none where only the numbers of lines are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    hunks: Option<Vec<DiffHunk>>,
    /// Whether the difference is too large to show line by line.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    too_large: bool,
    #[serde(skip)]
    pub(super) diff: Diff,
}

impl From<Diff> for Difference {
    fn from(diff: Diff) -> Difference {
        Difference {
            hunks: Some(diff_hunks_within(&diff, usize::MAX).hunks),
            too_large: diff.is_too_large,
            diff,
        }
    }
}

#[derive(Serialize)]
struct BaselineFacts {
    /// Why resets refuse it, if they do.
    refused: Option<String>,
    /// Whether the reference is the sealed version; otherwise it is the version pushed last.
    sealed: bool,
    uid: Option<u32>,
    gid: Option<u32>,
    mode: Option<String>,
    written: Option<DateTime<FixedOffset>>,
    changed: Option<DateTime<FixedOffset>>,
    agents: Vec<String>,
}

#[derive(Serialize)]
struct AboveBoundary {
    added: usize,
    removed: usize,
}

/// A changed part of a text, with its context.
#[derive(Serialize)]
pub(super) struct DiffHunk {
    lines: Vec<HunkLine>,
}

#[derive(Serialize)]
struct HunkLine {
    op: &'static str,
    old: Option<usize>,
    new: Option<usize>,
    text: String,
    /// The bytes in hexadecimal, if they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    hex: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    no_newline: bool,
}

impl From<&DiffLine> for HunkLine {
    fn from(line: &DiffLine) -> HunkLine {
        let is_text = str::from_utf8(&line.text).is_ok();
        HunkLine {
            op: match line.op {
                LineOp::Equal => "equal",
                LineOp::Delete => "delete",
                LineOp::Insert => "insert",
            },
            old: line.old_number,
            new: line.new_number,
            text: String::from_utf8_lossy(&line.text).into_owned(),
            hex: (!is_text).then(|| to_hex(&line.text)),
            no_newline: line.is_newline_missing,
        }
    }
}

impl Document for DiffDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        if self.difference.hunks.is_none() {
            return self.write_counts(printer);
        }
        let (diff, old, new) = (&self.difference.diff, &self.old.name, &self.new.name);
        if printer.wants_exact_bytes() {
            return printer.write_bytes(&diff.to_unified(old, new, CONTEXT_LINES));
        }
        write_visible_diff(printer, diff, old, new)
    }
}

/// Writes a difference as `diff -u` does, with a mark for every invisible character.
pub(super) fn write_visible_diff(
    printer: &mut Printer<'_>,
    diff: &Diff,
    old_name: &str,
    new_name: &str,
) -> io::Result<()> {
    if diff.is_empty() {
        return Ok(());
    }
    printer.write_line(&[heading("--- "), heading(old_name)])?;
    printer.write_line(&[heading("+++ "), heading(new_name)])?;
    write_hunks(printer, diff, CONTEXT_LINES)
}

/// Writes the changed parts of a difference, with a mark for every invisible character.
pub(super) fn write_hunks(
    printer: &mut Printer<'_>,
    diff: &Diff,
    context_lines: usize,
) -> io::Result<()> {
    if let Some(why) = diff.describe_too_large() {
        return printer.write_line(&[warn(&why)]);
    }
    for hunk in diff.hunks(context_lines) {
        let lines = diff.lines.get(hunk.line_range).unwrap_or_default();
        printer.write_line(&[notice(&hunk_header(lines))])?;
        for line in lines {
            let (role, sign) = match line.op {
                LineOp::Equal => plain(" "),
                LineOp::Delete => (OutputRole::Removed, "-"),
                LineOp::Insert => (OutputRole::Added, "+"),
            };
            // A line end of two characters is part of a change, and would be dropped.
            let mut text = Cow::from(&line.text[..]);
            if line.op != LineOp::Equal && text.ends_with(b"\r") {
                text.to_mut().push(b'\r');
            }
            printer.write_untrusted_line(role, sign, &text, RevealOptions::DIFF)?;
            if line.is_newline_missing {
                printer.write_line(&[notice("\\ No newline at end of file")])?;
            }
        }
    }
    Ok(())
}

/// Compares two texts within [`DIFF_TIMEOUT`].
pub(super) fn compare_texts(engine: &Engine, old: &[u8], new: &[u8]) -> Diff {
    let deadline = engine.clock().instant() + DIFF_TIMEOUT;
    diff::compare_lines(old, new, Some(deadline))
}

/// The changed parts of a difference for JSON, as far as they fit.
#[derive(Default)]
pub(super) struct BoundedHunks {
    pub hunks: Vec<DiffHunk>,
    /// Their bytes in JSON, about.
    pub bytes: usize,
    /// Number of lines that do not fit: all changed ones where the difference is too large.
    pub omitted_lines: usize,
}

/// Returns the changed parts of a difference for JSON, of at most `max_bytes` bytes.
pub(super) fn diff_hunks_within(diff: &Diff, max_bytes: usize) -> BoundedHunks {
    let mut part = BoundedHunks::default();
    if diff.is_too_large {
        part.omitted_lines = diff.added + diff.removed;
    }
    let mut is_full = false;
    for hunk in diff.hunks(CONTEXT_LINES) {
        let mut lines = Vec::new();
        for line in diff.lines.get(hunk.line_range).unwrap_or_default() {
            // A line has a length of its own in JSON.
            let bytes = line.text.len() + JSON_LINE_BYTES;
            is_full |= bytes > max_bytes - part.bytes;
            if is_full {
                part.omitted_lines += 1;
            } else {
                part.bytes += bytes;
                lines.push(HunkLine::from(line));
            }
        }
        if !lines.is_empty() {
            part.hunks.push(DiffHunk { lines });
        }
    }
    part
}

impl DiffDocument {
    /// Describes a difference of two texts.
    fn new(args: &DiffArgs, old: DiffSide, new: DiffSide, diff: Diff) -> DiffDocument {
        let mut difference = Difference::from(diff);
        if args.stat {
            difference.hunks = None;
        }
        DiffDocument {
            agent: args.agent.clone(),
            old,
            new,
            added: difference.diff.added,
            removed: difference.diff.removed,
            above: None,
            behind: None,
            scratch_lines: Some(0),
            scratch_bytes: Some(0),
            not_compared: 0,
            baseline: None,
            difference,
        }
    }

    fn write_counts(&self, page: &mut Printer<'_>) -> io::Result<()> {
        let texts = |added: usize, removed: usize| [format!("+{added}"), format!("-{removed}")];
        let all = texts(self.added, self.removed);
        let above = self.above.as_ref();
        let above = above.map(|above| texts(above.added, above.removed));
        let scratch = match (self.scratch_lines, self.scratch_bytes) {
            (Some(lines), Some(bytes)) => format!(
                "{}, {}",
                format_count(lines as usize, "line"),
                format_count(bytes as usize, "byte")
            ),
            _ => "unknown".to_string(),
        };
        let mut pieces = vec![heading(&self.agent), plain(": ")];
        pieces.extend(count_pieces(&all));
        if let Some(above) = &above {
            pieces.push(plain("; above the separator "));
            pieces.extend(count_pieces(above));
            pieces.extend([plain("; scratch "), plain(&scratch)]);
        }
        page.write_line(&pieces)
    }
}

/// Returns the pieces of a number of added lines and one of removed lines.
fn count_pieces([added, removed]: &[String; 2]) -> [TextPiece<'_>; 3] {
    [
        (OutputRole::Added, added),
        plain(" "),
        (OutputRole::Removed, removed),
    ]
}

/// Formats a hunk header: "@@ -1,3 +1,4 @@".
fn hunk_header(lines: &[DiffLine]) -> String {
    let part = |number: fn(&DiffLine) -> Option<usize>| {
        let mut numbers = lines.iter().filter_map(number);
        let first = numbers.next().unwrap_or(0);
        format!("{first},{}", numbers.count() + usize::from(first > 0))
    };
    format!(
        "@@ -{} +{} @@",
        part(|line| line.old_number),
        part(|line| line.new_number)
    )
}

pub(super) fn run(context: &mut CommandContext<'_>, args: &DiffArgs) -> CommandResult {
    let engine = context.open_engine()?;
    let agent = engine.agent(&args.agent)?;
    agent.required_reset()?;
    if args.baseline {
        return diff_baseline_versions(context, args, &engine, agent);
    }
    if args.three_way {
        return three_way::run(context, &engine, agent, args.exit_code);
    }
    let detail = engine.observer().read_detail(agent);
    let is_absent = detail.observation.is_absent;
    if let Some(why) = detail.error.as_ref().filter(|_| !is_absent) {
        let message = format!("cannot read the memory of {}: {why}", agent.name);
        let block = detail.observation.blocker.as_ref();
        let kind = Blocker::kind_of_unread(block);
        return Err(match block {
            Some(block) => block.to_error(message).with_kind(kind).into(),
            None => Error::new(kind, message).into(),
        });
    }
    if let Some(error) = &detail.observation.ledger_error {
        context.print_warning(format!(
            "cannot look up earlier versions of the baseline: {error}"
        ));
    }
    if detail.omitted_bytes > 0 {
        context.print_warning(format!(
            "comparing only the first {MAX_WINDOW_BYTES} bytes of {}; {} more are not compared",
            agent.name, detail.omitted_bytes
        ));
    }
    let (old, new) = match &args.against_archive {
        Some(entry_name) => entry_and_memory_sides(&engine, agent, &detail, entry_name)?,
        None => match behind_sides(&engine, agent, &detail) {
            Some(sides) => sides,
            None => baseline_and_memory_sides(context, &engine, agent, &detail)?,
        },
    };
    if is_absent {
        context.print_warning(format!("{} has no memory file", agent.name));
    }
    let content = detail.observation.content.as_ref();
    // The boundary was found with the baseline, and says nothing about an entry.
    let above = content
        .filter(|_| args.against_archive.is_none())
        .and_then(|content| content.boundary);
    let count_scratch = |count: fn(&MemoryContent) -> u64| match content {
        Some(content) => detail
            .observation
            .is_scratch_known()
            .then(|| count(content)),
        None => Some(0),
    };
    let behind = above
        .filter(|_| args.against_archive.is_none())
        .and_then(|above| above.rule.behind_version());
    let diff = match &args.against_archive {
        Some(_) => compare_texts(&engine, &old.bytes, &new.bytes),
        None => compare_rules_and_memory(context, &engine, &detail, &old, &new),
    };
    let answer = DiffDocument {
        behind,
        above: above.map(|above| AboveBoundary {
            added: above.added_lines,
            removed: above.removed_lines,
        }),
        scratch_lines: count_scratch(|content| content.scratch_lines),
        scratch_bytes: count_scratch(|content| content.scratch_bytes),
        not_compared: detail.omitted_bytes,
        ..DiffDocument::new(args, old, new, diff)
    };
    print_diff(context, args, &answer)
}

/// Compares a baseline with a memory, line ends aside: they alone are no drift.
fn compare_rules_and_memory(
    context: &mut CommandContext<'_>,
    engine: &Engine,
    detail: &AgentDetail,
    old: &DiffSide,
    new: &DiffSide,
) -> Diff {
    let rules = match &detail.next_operator_part {
        Some(next) => next,
        None => detail.split_at_boundary().0,
    };
    let line_ends = describe_line_ends(rules, &old.bytes);
    if let Some(line_ends) = line_ends.filter(|_| detail.next_operator_part.is_none()) {
        context.print_note(format!("{line_ends}: line ends are not compared"));
    }
    compare_texts(engine, &with_line_ends_of(&old.bytes, rules), &new.bytes)
}

fn print_diff(
    context: &mut CommandContext<'_>,
    args: &DiffArgs,
    document: &DiffDocument,
) -> CommandResult {
    context.print_document(document)?;
    let differs = !document.difference.diff.is_empty() || document.not_compared > 0;
    Ok((args.exit_code && differs).then_some(ErrorKind::Partial))
}

/// Compares the baseline file with its last known version.
fn diff_baseline_versions(
    context: &mut CommandContext<'_>,
    args: &DiffArgs,
    engine: &Engine,
    agent: &Agent,
) -> CommandResult {
    let change = engine.baselines().compare_baseline(agent)?;
    let file = change.current.clone()?;
    for note in change.notes() {
        context.print_note(&note);
    }
    let Some(known) = &change.reference else {
        // Without a readable ledger the pushed version is unknown, which is another error.
        engine.ledger().head()?;
        if let Some(error) = change.unread_version.clone() {
            return Err(error.into());
        }
        let path = change.path.display();
        let message = format!("no kept version to compare {path} with");
        return Err(Error::new(ErrorKind::Host, message)
            .with_hint(
                "the first reset keeps the first version; compare the file with your own copy",
            )
            .into());
    };
    let old = DiffSide::new(known.path.display(), known.bytes.to_vec());
    let new = DiffSide::new(change.path.display(), file);
    let diff = compare_texts(engine, &old.bytes, &new.bytes);
    let owner = change.owner;
    let answer = DiffDocument {
        baseline: Some(BaselineFacts {
            sealed: known.is_sealed,
            uid: owner.map(|owner| owner.uid),
            gid: owner.map(|owner| owner.gid),
            mode: owner.map(|owner| format!("{:04o}", owner.mode)),
            written: owner.map(|owner| owner.modified_at),
            changed: owner.map(|owner| owner.changed_at),
            refused: change.refusal,
            agents: change.agents,
        }),
        ..DiffDocument::new(args, old, new, diff)
    };
    print_diff(context, args, &answer)
}

fn baseline_and_memory_sides(
    context: &mut CommandContext<'_>,
    engine: &Engine,
    agent: &Agent,
    detail: &AgentDetail,
) -> Result<(DiffSide, DiffSide)> {
    let path = engine.config().required_baseline_path(agent)?;
    let old = match engine.baselines().baseline_cache().load(agent) {
        Ok(baseline) => DiffSide::new(path.display(), baseline.bytes().to_vec()),
        // A refused baseline still needs a comparison: fall back to the version that the
        // memory is measured against.
        Err(refusal) => match &detail.operator_part {
            Some(part) => {
                context.print_warning(format!(
                    "{}; comparing with the last known version",
                    refusal.error()
                ));
                context.print_hints(refusal.error().hints());
                let name = format!("{} (last known version)", path.display());
                DiffSide::new(name, part.clone())
            }
            None => return Err(refusal.error().clone()),
        },
    };
    Ok((old, memory_side(agent, detail.memory_prefix.clone())))
}

fn memory_side(agent: &Agent, bytes: Vec<u8>) -> DiffSide {
    DiffSide::new(agent.observed_path().display(), bytes)
}

/// Returns the rules of a memory that is behind and those of the baseline; `None` where the memory
/// is not behind. The scratch is in neither.
fn behind_sides(
    engine: &Engine,
    agent: &Agent,
    detail: &AgentDetail,
) -> Option<(DiffSide, DiffSide)> {
    let next = detail.next_operator_part.as_ref()?;
    let (old, _) = detail.compared_parts()?;
    let new = DiffSide::new(
        engine.config().baseline_path(agent)?.display(),
        next.clone(),
    );
    Some((memory_side(agent, old.into_owned()), new))
}

/// Compares a scratch entry with the scratch, any other entry with the whole memory.
fn entry_and_memory_sides(
    engine: &Engine,
    agent: &Agent,
    detail: &AgentDetail,
    entry_name: &str,
) -> Result<(DiffSide, DiffSide)> {
    let archive = engine.entries();
    let entries = archive.list(Path::new(&agent.archive_subdir))?;
    let is_wanted_entry = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        [path, &as_operand(path)].contains(&Path::new(entry_name))
            || name == entry_name
            || name.strip_suffix(".md") == Some(entry_name)
    };
    let Some(entry) = entries.iter().find(|entry| is_wanted_entry(&entry.path)) else {
        let message = format!("{} has no entry {entry_name}", agent.name);
        let error = Error::new(ErrorKind::User, message);
        return Err(match entries.last() {
            Some(last) => error.with_hint(format!(
                "its newest entry is {}",
                as_operand(&last.path).display()
            )),
            None => error.with_hint("the agent has no entries yet"),
        });
    };
    let path = archive.location(&entry.path);
    let mut bytes = Vec::new();
    let read = archive
        .open(&entry.path)?
        .take(MAX_WINDOW_BYTES as u64)
        .read_to_end(&mut bytes);
    read.map_err(|error| Error::from_io("read", &path, &error))?;
    let mut memory_bytes = detail.memory_prefix.clone();
    if entry.kind == EntryKind::Scratch
        && let Some(scratch) = archive::strip_scratch_header(&bytes)
    {
        bytes = scratch.to_vec();
        memory_bytes = detail.split_at_boundary().1.to_vec();
    }
    Ok((
        DiffSide::new(path.display(), bytes),
        memory_side(agent, memory_bytes),
    ))
}
