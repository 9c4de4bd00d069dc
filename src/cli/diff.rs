//! `diff`: a baseline against a memory, or an entry against a memory.
//!
//! For eyes, every invisible character is shown as a mark. Into a pipe go the
//! exact bytes, as `diff -u` prints them.

use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use chrono::{DateTime, FixedOffset};
use serde::Serialize;

use super::output::{Document, OutputRole, Printer, count};
use super::{CommandContext, CommandResult};
use crate::archive::{self, EntryKind};
use crate::baseline::BaselineCache;
use crate::config::Agent;
use crate::diff::{self, Diff, DiffLine, Op};
use crate::digest::Digest;
use crate::engine::{Block, Detail, Engine, MAX_WINDOW_BYTES};
use crate::error::{Error, Kind, Result};
use crate::untrusted::View;

/// Equal lines around a change.
const CONTEXT: usize = 3;

/// How long the search for the smallest difference may take.
const TIME: Duration = Duration::from_secs(2);

/// What may be said behind `diff`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// This one
    agent: String,
    /// Only counts lines
    #[arg(long)]
    stat: bool,
    /// Exits with 1 when there are differences
    #[arg(long)]
    exit_code: bool,
    /// Compares this entry of the agent with what its memory holds now
    #[arg(long, value_name = "ENTRY")]
    against_archive: Option<String>,
    /// Compares the last version of its baseline that was sealed or pushed with the file
    ///
    /// Says whose the file is, when it changed, and which agents have it.
    #[arg(long, conflicts_with = "against_archive")]
    baseline: bool,
}

/// One of the two texts.
struct DiffSide {
    name: String,
    bytes: Vec<u8>,
}

/// What `diff` answers.
#[derive(Serialize)]
struct DiffDocument {
    agent: String,
    old: Text,
    new: Text,
    added: usize,
    removed: usize,
    /// Lines added and removed above the boundary; none without one.
    above: Option<Above>,
    scratch_lines: u64,
    scratch_bytes: u64,
    /// Bytes of the memory that were not compared.
    not_compared: u64,
    /// What there is to know of a baseline file.
    #[serde(skip_serializing_if = "Option::is_none")]
    baseline: Option<BaselineFile>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hunks: Option<Vec<DiffHunk>>,
    #[serde(skip)]
    diff: Diff,
}

#[derive(Serialize)]
struct Text {
    name: String,
    sha256: Digest,
    size: usize,
}

#[derive(Serialize)]
struct BaselineFile {
    /// Why resets refuse it, if they do.
    refused: Option<String>,
    /// Whether it is compared with the version that was sealed; else with the one that
    /// was pushed last.
    sealed: bool,
    uid: Option<u32>,
    gid: Option<u32>,
    mode: Option<String>,
    written: Option<DateTime<FixedOffset>>,
    changed: Option<DateTime<FixedOffset>>,
    agents: Vec<String>,
}

#[derive(Serialize)]
struct Above {
    added: usize,
    removed: usize,
}

#[derive(Serialize)]
struct DiffHunk {
    lines: Vec<HunkLine>,
}

#[derive(Serialize)]
struct HunkLine {
    op: &'static str,
    old: Option<usize>,
    new: Option<usize>,
    text: String,
    /// The exact bytes, where they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    hex: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    no_newline: bool,
}

impl From<&DiffLine> for HunkLine {
    fn from(line: &DiffLine) -> HunkLine {
        let valid = std::str::from_utf8(&line.text).is_ok();
        let hex = || line.text.iter().map(|byte| format!("{byte:02x}")).collect();
        HunkLine {
            op: match line.op {
                Op::Equal => "equal",
                Op::Delete => "delete",
                Op::Insert => "insert",
            },
            old: line.old,
            new: line.new,
            text: String::from_utf8_lossy(&line.text).into_owned(),
            hex: (!valid).then(hex),
            no_newline: line.no_newline,
        }
    }
}

impl Document for DiffDocument {
    fn text(&self, page: &mut Printer<'_>) -> io::Result<()> {
        if self.hunks.is_none() {
            return self.stat(page);
        }
        if page.wants_bytes() {
            let (old, new) = (&self.old.name, &self.new.name);
            return page.bytes(&self.diff.unified(old, new, CONTEXT));
        }
        if self.diff.is_empty() {
            return Ok(());
        }
        page.line(&[
            (OutputRole::Head, "--- "),
            (OutputRole::Head, &self.old.name),
        ])?;
        page.line(&[
            (OutputRole::Head, "+++ "),
            (OutputRole::Head, &self.new.name),
        ])?;
        for hunk in self.diff.hunks(CONTEXT) {
            let lines = self.diff.lines.get(hunk.lines).unwrap_or_default();
            page.line(&[(OutputRole::Ours, &extent(lines))])?;
            for line in lines {
                let (role, sign) = match line.op {
                    Op::Equal => (OutputRole::Plain, " "),
                    Op::Delete => (OutputRole::Removed, "-"),
                    Op::Insert => (OutputRole::Added, "+"),
                };
                page.foreign(role, sign, &line.text, View::DIFF)?;
                if line.no_newline {
                    page.line(&[(OutputRole::Ours, "\\ No newline at end of file")])?;
                }
            }
        }
        Ok(())
    }
}

impl DiffDocument {
    /// The difference of two texts.
    fn new(args: &Args, engine: &Engine, old: &DiffSide, new: &DiffSide) -> DiffDocument {
        let deadline = engine.clock().instant() + TIME;
        let diff = diff::lines(&old.bytes, &new.bytes, Some(deadline));
        let hunks = diff.hunks(CONTEXT).into_iter().map(|hunk| DiffHunk {
            lines: diff.lines[hunk.lines].iter().map(HunkLine::from).collect(),
        });
        DiffDocument {
            agent: args.agent.clone(),
            hunks: (!args.stat).then(|| hunks.collect()),
            old: old.text(),
            new: new.text(),
            added: diff.added,
            removed: diff.removed,
            above: None,
            scratch_lines: 0,
            scratch_bytes: 0,
            not_compared: 0,
            baseline: None,
            diff,
        }
    }

    fn stat(&self, page: &mut Printer<'_>) -> io::Result<()> {
        let counts = |added: usize, removed: usize| {
            let (added, removed) = (format!("+{added}"), format!("-{removed}"));
            [
                (OutputRole::Added, added),
                (OutputRole::Plain, " ".to_string()),
                (OutputRole::Removed, removed),
            ]
        };
        let all = counts(self.added, self.removed);
        let above = self.above.as_ref();
        let above = above.map(|above| counts(above.added, above.removed));
        let lines = count(self.scratch_lines as usize, "line");
        let scratch = format!("{lines}, {} bytes", self.scratch_bytes);
        let mut pieces = vec![
            (OutputRole::Head, self.agent.as_str()),
            (OutputRole::Plain, ": "),
        ];
        pieces.extend(all.iter().map(|(role, text)| (*role, text.as_str())));
        if let Some(above) = &above {
            pieces.push((OutputRole::Plain, "; above the boundary "));
            pieces.extend(above.iter().map(|(role, text)| (*role, text.as_str())));
            pieces.push((OutputRole::Plain, "; scratch "));
            pieces.push((OutputRole::Plain, &scratch));
        }
        page.line(&pieces)
    }
}

/// "@@ -1,3 +1,4 @@"
fn extent(lines: &[DiffLine]) -> String {
    let part = |number: fn(&DiffLine) -> Option<usize>| {
        let mut numbers = lines.iter().filter_map(number);
        let first = numbers.next().unwrap_or(0);
        format!("{first},{}", numbers.count() + usize::from(first > 0))
    };
    format!(
        "@@ -{} +{} @@",
        part(|line| line.old),
        part(|line| line.new)
    )
}

impl CommandContext<'_> {
    pub(super) fn diff(&mut self, args: &Args) -> CommandResult {
        let engine = self.open()?;
        let agent = engine.agent(&args.agent)?;
        if args.baseline {
            return self.baseline_diff(args, &engine, agent);
        }
        let detail = engine.detail(agent);
        let absent = detail.observation.content.is_none() && detail.observation.was_read();
        if let Some(why) = detail.error.as_ref().filter(|_| !absent) {
            let message = format!("{} could not be read: {why}", agent.name);
            let block = detail.observation.block.as_ref();
            let kind = Block::unread(block);
            return Err(match block {
                Some(block) => block.error(message).with_kind(kind).into(),
                None => Error::new(kind, message).into(),
            });
        }
        if let Some(error) = &detail.observation.ledger_error {
            self.out.warning(&format!(
                "earlier versions of the baseline are not known: {error}"
            ));
        }
        if detail.more > 0 {
            self.out.warning(&format!(
                "only the first {MAX_WINDOW_BYTES} bytes of {} are compared, {} more are not",
                agent.name, detail.more
            ));
        }
        let (old, new) = match &args.against_archive {
            Some(wanted) => entry_against_memory(&engine, agent, &detail, wanted)?,
            None => self.baseline_against_memory(&engine, agent, &detail)?,
        };
        if absent {
            self.out
                .warning(&format!("{} has no memory file", agent.name));
        }
        let content = detail.observation.content.as_ref();
        let above = content.and_then(|content| content.boundary);
        let answer = DiffDocument {
            above: above.map(|above| Above {
                added: above.added,
                removed: above.removed,
            }),
            scratch_lines: content.map_or(0, |content| content.scratch_lines),
            scratch_bytes: content.map_or(0, |content| content.scratch_bytes),
            not_compared: detail.more,
            ..DiffDocument::new(args, &engine, &old, &new)
        };
        self.answer(args, &answer)
    }

    fn answer(&mut self, args: &Args, answer: &DiffDocument) -> CommandResult {
        self.out.document(answer)?;
        let differs = !answer.diff.is_empty() || answer.not_compared > 0;
        Ok((args.exit_code && differs).then_some(Kind::Partial))
    }

    /// The baseline file against the last version of it that is known.
    fn baseline_diff(&mut self, args: &Args, engine: &Engine, agent: &Agent) -> CommandResult {
        let change = engine.baseline_change(agent);
        let file = change.file.clone()?;
        for note in change.notes() {
            self.out.note(&note);
        }
        let Some(known) = &change.known else {
            // Which version was pushed, the ledger says.
            engine.ledger_head()?;
            let path = change.path.display();
            let message = format!("there is nothing to compare {path} with: no version is kept");
            return Err(Error::new(Kind::Host, message)
                .hint("versions are kept from the first reset on; compare it with your own copy")
                .into());
        };
        let old = DiffSide {
            name: known.path.display().to_string(),
            bytes: known.bytes.to_vec(),
        };
        let new = DiffSide {
            name: change.path.display().to_string(),
            bytes: file,
        };
        let owner = change.owner;
        let answer = DiffDocument {
            baseline: Some(BaselineFile {
                sealed: known.is_sealed,
                uid: owner.map(|owner| owner.uid),
                gid: owner.map(|owner| owner.gid),
                mode: owner.map(|owner| format!("{:04o}", owner.mode)),
                written: owner.map(|owner| owner.written),
                changed: owner.map(|owner| owner.changed),
                refused: change.refused,
                agents: change.agents,
            }),
            ..DiffDocument::new(args, engine, &old, &new)
        };
        self.answer(args, &answer)
    }

    fn baseline_against_memory(
        &mut self,
        engine: &Engine,
        agent: &Agent,
        detail: &Detail,
    ) -> Result<(DiffSide, DiffSide)> {
        let general = &engine.config().general;
        let path = general.baseline_dir.join(&agent.baseline);
        let old = match BaselineCache::new(engine.config()).load(agent) {
            Ok(baseline) => DiffSide {
                name: path.display().to_string(),
                bytes: baseline.bytes().to_vec(),
            },
            // What to make of a memory is the question now more than ever.
            Err(refusal) => match &detail.operator_part {
                Some(part) => {
                    self.out.warning(&format!(
                        "{}; compared with what was pushed last",
                        refusal.error()
                    ));
                    self.out.hints(refusal.error().hints());
                    DiffSide {
                        name: format!("{} (as pushed last)", path.display()),
                        bytes: part.clone(),
                    }
                }
                None => return Err(refusal.error().clone()),
            },
        };
        Ok((old, memory(agent, detail.memory.clone())))
    }
}

impl DiffSide {
    fn text(&self) -> Text {
        Text {
            name: self.name.clone(),
            sha256: Digest::of(&self.bytes),
            size: self.bytes.len(),
        }
    }
}

fn memory(agent: &Agent, bytes: Vec<u8>) -> DiffSide {
    DiffSide {
        name: agent.place.memory().display().to_string(),
        bytes,
    }
}

/// A scratch entry against the scratch, any other against the whole memory.
fn entry_against_memory(
    engine: &Engine,
    agent: &Agent,
    detail: &Detail,
    wanted: &str,
) -> Result<(DiffSide, DiffSide)> {
    let archive = engine.archive();
    let entries = archive.list(Path::new(&agent.archive_subdir))?;
    let is_it = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        path == Path::new(wanted) || name == wanted || name.strip_suffix(".md") == Some(wanted)
    };
    let Some(entry) = entries.iter().find(|entry| is_it(&entry.path)) else {
        let message = format!("{} has no entry called {wanted}", agent.name);
        let error = Error::new(Kind::User, message);
        return Err(match entries.last() {
            Some(last) => error.hint(format!("its latest entry is {}", last.path.display())),
            None => error.hint("it has no entries at all"),
        });
    };
    let path = archive.root().join(&entry.path);
    let mut bytes = Vec::new();
    let read = archive
        .open(&entry.path)?
        .take(MAX_WINDOW_BYTES as u64)
        .read_to_end(&mut bytes);
    read.map_err(|error| Error::io("read", &path, &error))?;
    let mut now = detail.memory.clone();
    if entry.kind == EntryKind::Scratch
        && let Some(scratch) = archive::scratch_of(&bytes)
    {
        bytes = scratch.to_vec();
        now = detail.parts().1.to_vec();
    }
    let name = path.display().to_string();
    Ok((DiffSide { name, bytes }, memory(agent, now)))
}
