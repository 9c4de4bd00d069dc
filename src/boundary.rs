//! The boundary: where in a memory the baseline part ends. Pure and byte-wise.
//!
//! The rules, in this order:
//!
//! 1. An *eligible separator line* equals the separator literally, trailing
//!    whitespace aside, and has text above it. It is not inside a code fence or
//!    an HTML comment, a front matter delimiter, a setext heading underline or a
//!    row of a table. Other lines are never a boundary.
//! 2. The *operator part* of a baseline ends with its last eligible separator
//!    line; where there is none, it is the whole baseline. What follows in the
//!    baseline is its *tail*.
//! 3. A memory that starts with the operator part of the current baseline is
//!    *intact*. Without a separator line, what follows the baseline is scratch
//!    all the same.
//! 4. One that starts with the operator part of an earlier version that a run
//!    pushed to this agent, or found in its memory, is intact against that one,
//!    and *behind*. If several versions fit, the one with the longest operator
//!    part counts: rules that the operator removed from the end are no notes of
//!    the agent's. Other stored versions do not count: they may be another
//!    agent's, or a damaged baseline that was replaced.
//! 5. Else its lines are *aligned* with the baseline that was pushed last: of
//!    all separator lines, the one above which the fewest lines differ.
//!    Everything above it that differs is drift.
//! 6. Else there is no boundary.
//!
//! Lines are compared without their line ends: LF and CR LF are the same.
//!
//! A wrong boundary from 5 or 6 cannot lose anything, because a reset then archives the whole file.
//!
//! The module also owns what follows from the boundary: the comparison of a memory with its baseline
//! ([`classify`]), the scratch that a push keeps ([`select_scratch`]), and the place of lines that are
//! added to the rules ([`InsertionPoint`]). Other modules only name separator lines to people.

mod classification;
mod insertion;
mod kept_scratch;
mod line_ends;
mod lines;
mod push_content;
mod reading;

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::base::digest::Digest;
pub use classification::{Classification, classify};
pub use insertion::{InsertionPoint, displaced_separator};
pub use kept_scratch::{ChosenLines, KeptScratch, LineRange, ScratchRequest, ScratchSelection};
pub use line_ends::{describe_line_ends, with_line_ends_of};
use line_ends::{matching_prefix_length, split_line_end, whole_lines_length};
use lines::has_one_separator;
pub use lines::{
    ExcludedLine, LineKind, ScannedLine, SeparatorExclusion, SeparatorLine, SeparatorLines,
    is_separator, scan_lines, unclosed_fence_line,
};
pub use push_content::{
    DividedMemory, KeptBytes, PushContent, select_chosen_lines, select_scratch,
};
pub use reading::{MAX_WINDOW_BYTES, MemoryAccumulator, memory_window};

/// Maximum number of line comparisons in rule 5. It keeps the search linear in the memory:
/// separators past it are not considered.
const MAX_ALIGN_COMPARISONS: usize = 64 << 20;

/// A version of a baseline, cut at its last separator line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Baseline {
    bytes: Vec<u8>,
    digest: Digest,
    separator: Vec<u8>,
    separator_line: Option<SeparatorLine>,
    excluded_line: Option<ExcludedLine>,
}

impl Baseline {
    /// Cuts `bytes` at the last separator line (rule 2).
    pub fn new(bytes: Vec<u8>, separator: &str) -> Baseline {
        let lines = SeparatorLines::find(&bytes, separator.as_bytes());
        let separator_line = lines.boundary();
        let excluded_line = lines.excluded.last().copied();
        Baseline {
            digest: Digest::of(&bytes),
            separator: separator.as_bytes().to_vec(),
            separator_line,
            excluded_line: excluded_line
                .filter(|excluded| separator_line.is_none_or(|it| it.line < excluded.line)),
            bytes,
        }
    }

    /// Content of the whole file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Digest of the whole file.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The separator line that ends the operator part, if there is one.
    pub fn separator_line(&self) -> Option<SeparatorLine> {
        self.separator_line
    }

    /// The last line that equals the separator but is none, where no separator follows it.
    pub fn excluded_line(&self) -> Option<ExcludedLine> {
        self.excluded_line
    }

    /// The bytes up to and including the last separator line; the whole file where there is none.
    pub fn operator_part(&self) -> &[u8] {
        &self.bytes[..self.separator_line.map_or(self.bytes.len(), |cut| cut.end)]
    }

    /// The bytes behind the operator part.
    pub fn tail(&self) -> &[u8] {
        &self.bytes[self.operator_part().len()..]
    }

    /// The bytes above the separator line.
    fn above_separator(&self) -> &[u8] {
        &self.bytes[..self
            .separator_line
            .map_or(self.bytes.len(), |cut| cut.start)]
    }

    /// Offset of the boundary in a memory that starts with the operator part.
    ///
    /// The separator line itself is compared without trailing whitespace (rule 1), so an editor
    /// that changes the file's last line end causes no drift. Without a separator line, the last
    /// line of the baseline must be a whole line of the memory: text that continues it is drift.
    fn intact_boundary_in(&self, memory: &[u8]) -> Option<usize> {
        let Some(cut) = self.separator_line else {
            // An empty baseline is the beginning of any memory, and has no line.
            let has_line = !self.bytes.is_empty() || memory.is_empty();
            return whole_lines_length(memory, &self.bytes).filter(|_| has_line);
        };
        let start = matching_prefix_length(memory, &self.bytes[..cut.start])?;
        let end = line_end(memory, start);
        is_separator(&memory[start..end], &self.separator).then_some(end)
    }

    /// Returns the length of the tail at the beginning of `below`, which follows a boundary, with the
    /// end of its last line; `None` if the agent has changed it.
    pub fn unchanged_tail_length(&self, below: &[u8]) -> Option<usize> {
        whole_lines_length(below, self.tail())
    }

    /// Returns whether a memory is this version, line ends aside.
    pub fn equals_apart_from_line_ends(&self, memory: &[u8]) -> bool {
        matching_prefix_length(memory, &self.bytes) == Some(memory.len())
    }
}

/// How a boundary was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "rule", content = "version")]
pub enum BoundaryRule {
    /// The memory starts with the current baseline's operator part.
    Intact,
    /// The memory starts with the operator part of the earlier version with this digest.
    Behind(Digest),
    /// The memory was aligned with the version of this digest.
    Aligned(Digest),
}

impl BoundaryRule {
    /// The version that the rule names; none for the current baseline.
    pub fn version(self) -> Option<Digest> {
        match self {
            BoundaryRule::Intact => None,
            BoundaryRule::Behind(version) | BoundaryRule::Aligned(version) => Some(version),
        }
    }

    /// The earlier version with which a memory is intact; none if it is not behind.
    pub fn behind_version(self) -> Option<Digest> {
        match self {
            BoundaryRule::Behind(version) => Some(version),
            BoundaryRule::Intact | BoundaryRule::Aligned(_) => None,
        }
    }
}

/// Where the baseline part of a memory ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boundary {
    /// Offset of the first byte of scratch.
    pub offset: usize,
    /// The separator's line number, from 1; 0 when the baseline has no separator.
    pub line: usize,
    /// The separator is line `separator_number` of `separator_count` separator lines.
    #[serde(rename = "nth")]
    pub separator_number: usize,
    /// See `separator_number`.
    #[serde(rename = "of")]
    pub separator_count: usize,
    /// Which rule found it.
    pub rule: BoundaryRule,
    /// Lines above the boundary that the agent added.
    #[serde(rename = "added")]
    pub added_lines: usize,
    /// Lines above the boundary that the agent removed.
    #[serde(rename = "removed")]
    pub removed_lines: usize,
}

impl Boundary {
    /// Returns whether the agent changed anything above the boundary.
    pub fn is_drifted(&self) -> bool {
        matches!(self.rule, BoundaryRule::Aligned(_))
    }

    /// Names the separator line, such as "separator L31 (1 of 2)"; none if the baseline has none.
    pub fn describe_separator(&self) -> Option<String> {
        let (number, count) = (self.separator_number, self.separator_count);
        (self.line > 0).then(|| format!("separator L{} ({number} of {count})", self.line))
    }

    /// Splits a memory, or its beginning, into what is above the boundary and what is below.
    pub fn split<'t>(&self, memory: &'t [u8]) -> (&'t [u8], &'t [u8]) {
        memory.split_at(self.offset.min(memory.len()))
    }
}

/// Finds the boundary in `memory` (rules 3 to 6).
///
/// `earlier` are the other versions that were pushed to this agent, newest first. `memory` may be
/// the beginning of a longer file if it holds several times the length of the baseline.
pub fn find_boundary(
    memory: &[u8],
    current: &Baseline,
    earlier: &[Arc<Baseline>],
) -> Option<Boundary> {
    let intact = std::iter::once(current)
        .chain(earlier.iter().map(Arc::as_ref))
        .filter_map(|version| Some((version, version.intact_boundary_in(memory)?)))
        .reduce(|best, other| {
            // A memory that is a version is that one, whatever its tail.
            let rank = |(version, offset): &(&Baseline, usize)| {
                (*offset, version.equals_apart_from_line_ends(memory))
            };
            if rank(&other) > rank(&best) {
                other
            } else {
                best
            }
        });
    if let Some((version, offset)) = intact {
        let rule = if version.digest == current.digest {
            BoundaryRule::Intact
        } else {
            BoundaryRule::Behind(version.digest)
        };
        let line = version.separator_line.map_or(0, |cut| cut.line);
        return Some(Boundary {
            offset,
            rule,
            ..boundary_at_line(memory, &version.separator, line)
        });
    }
    let version = earlier.first().map_or(current, Arc::as_ref);
    if version.separator_line.is_none() {
        // The baseline has no separator, so the whole memory is above the boundary.
        let (added, removed) = count_changed_lines(version.above_separator(), memory);
        return Some(Boundary {
            offset: memory.len(),
            rule: BoundaryRule::Aligned(version.digest),
            added_lines: added,
            removed_lines: removed,
            ..boundary_at_line(memory, &version.separator, 0)
        });
    }
    let candidates = SeparatorLines::find(memory, &version.separator).eligible;
    let chosen = align_separator(version.above_separator(), memory, &candidates)?;
    let (added, removed) = count_changed_lines(version.above_separator(), &memory[..chosen.start]);
    Some(Boundary {
        offset: chosen.end,
        rule: BoundaryRule::Aligned(version.digest),
        added_lines: added,
        removed_lines: removed,
        ..boundary_at_line(memory, &version.separator, chosen.line)
    })
}

/// The boundary below a separator line; the caller fills in how it was found.
fn boundary_at_line(memory: &[u8], separator: &[u8], line: usize) -> Boundary {
    let (separator_number, separator_count) = match line {
        // The baseline has no separator, so those of the agent mean nothing.
        0 => (0, 0),
        // Most memories have no other one: what kind of line it is does not matter.
        _ if has_one_separator(memory, separator) => (1, 1),
        _ => count_separators(memory, separator, line),
    };
    Boundary {
        offset: 0,
        line,
        separator_number,
        separator_count,
        rule: BoundaryRule::Intact,
        added_lines: 0,
        removed_lines: 0,
    }
}

/// Counts the separator lines up to this one, and all of them.
fn count_separators(memory: &[u8], separator: &[u8], line: usize) -> (usize, usize) {
    let lines = SeparatorLines::find(memory, separator).eligible;
    let above = lines.partition_point(|it| it.line < line);
    // Text that an agent added below can exclude the line; it stays the boundary.
    let is_counted = lines.get(above).is_some_and(|it| it.line == line);
    (above + 1, lines.len() + usize::from(!is_counted))
}

/// Applies rule 5: finds the separator line above which `memory` differs least from `above`.
///
/// Blank lines do not count: they match anywhere. A separator needs at least one line of the
/// baseline above it.
fn align_separator(
    above: &[u8],
    memory: &[u8],
    candidates: &[SeparatorLine],
) -> Option<SeparatorLine> {
    let baseline: Vec<&[u8]> = split_lines(above).filter(|line| !is_blank(line)).collect();
    let mut common = CommonSubsequence::new(&baseline);
    let mut rest = memory;
    let mut best: Option<(usize, SeparatorLine)> = None;
    let (mut at, mut seen) = (0, 0);
    for candidate in candidates {
        let (above, below) = rest.split_at(candidate.start - at);
        for line in split_lines(above).filter(|line| !is_blank(line)) {
            common.push(line);
            seen += 1;
        }
        (rest, at) = (below, candidate.start);
        let length = common.length();
        let cost = baseline.len() + seen - 2 * length;
        if (length > 0 || baseline.is_empty()) && best.is_none_or(|(least, _)| cost < least) {
            best = Some((cost, *candidate));
        }
        if common.is_exhausted() {
            break;
        }
    }
    best.map(|(_, line)| line)
}

/// Counts the lines that were added and removed between two texts.
fn count_changed_lines(old: &[u8], new: &[u8]) -> (usize, usize) {
    let (old, new): (Vec<_>, Vec<_>) = (split_lines(old).collect(), split_lines(new).collect());
    let pairs = old.iter().rev().zip(new.iter().rev());
    let equal_at_end = pairs.take_while(|(old, new)| old == new).count();
    let (old, new) = (
        &old[..old.len() - equal_at_end],
        &new[..new.len() - equal_at_end],
    );
    let mut common = CommonSubsequence::new(old);
    for line in new {
        common.push(line);
    }
    (new.len() - common.length(), old.len() - common.length())
}

/// Length of the longest common subsequence of a fixed text and a growing one, updated with every
/// line: the usual table, of which only one row is kept. Lines that the fixed text does not have
/// cost nothing, and nor do those with which both texts begin.
struct CommonSubsequence<'a> {
    ids: HashMap<&'a [u8], u32>,
    fixed_lines: Vec<u32>,
    /// Number of lines with which both texts begin; the table covers those behind.
    prefix_length: usize,
    /// Whether all lines so far are in the prefix.
    is_prefix: bool,
    row: Vec<u32>,
    comparisons_left: usize,
}

impl<'a> CommonSubsequence<'a> {
    fn new(fixed: &[&'a [u8]]) -> CommonSubsequence<'a> {
        let mut ids = HashMap::new();
        let fixed: Vec<u32> = fixed
            .iter()
            .map(|line| {
                let next = ids.len() as u32;
                *ids.entry(*line).or_insert(next)
            })
            .collect();
        CommonSubsequence {
            ids,
            row: vec![0; fixed.len() + 1],
            fixed_lines: fixed,
            prefix_length: 0,
            is_prefix: true,
            comparisons_left: MAX_ALIGN_COMPARISONS,
        }
    }

    fn push(&mut self, line: &[u8]) {
        let id = self.ids.get(line);
        self.is_prefix &= id.is_some() && self.fixed_lines.get(self.prefix_length) == id;
        if self.is_prefix {
            self.prefix_length += 1;
            return;
        }
        let Some(&id) = id.filter(|_| !self.is_exhausted()) else {
            return;
        };
        let remaining = self.fixed_lines.len() - self.prefix_length;
        self.comparisons_left = self.comparisons_left.saturating_sub(remaining);
        let mut diagonal = 0;
        for (i, &fixed) in self.fixed_lines.iter().enumerate().skip(self.prefix_length) {
            let above = self.row[i + 1];
            self.row[i + 1] = if fixed == id {
                diagonal + 1
            } else {
                above.max(self.row[i])
            };
            diagonal = above;
        }
    }

    fn length(&self) -> usize {
        self.prefix_length + self.row[self.fixed_lines.len()] as usize
    }

    fn is_exhausted(&self) -> bool {
        self.comparisons_left == 0
    }
}

/// Splits a text into lines, without their line ends.
fn split_lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|byte| *byte == b'\n')
        .map(|line| split_line_end(line).0)
}

fn is_blank(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace)
}

/// Returns the offset behind the line that starts at `start`.
fn line_end(text: &[u8], start: usize) -> usize {
    text[start..]
        .iter()
        .position(|byte| *byte == b'\n')
        .map_or(text.len(), |length| start + length + 1)
}

#[cfg(test)]
mod tests;
