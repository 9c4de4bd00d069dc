//! Push: which lines of the scratch a run keeps below the baseline that it installs, and what the
//! memory is afterwards. Pure; the steps of the run are those of a reset.
//!
//! - Kept lines keep every byte. They come from the memory that the run has archived, not
//!   from the plan.
//! - The baseline's own tail below the separator, such as a heading, is not scratch while the agent
//!   has not changed it: the new baseline's tail takes its place. A changed tail is scratch; if all
//!   scratch is kept, it stays in place of the new one.
//! - Where no separator tells the scratch from the rules, nothing can be kept.

use super::kept_scratch::{ChosenLines, KeptScratch, LineRange, ScratchSelection};
use super::{Baseline, Boundary, Classification, MemoryAccumulator};
use crate::base::diff::count_lines;
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind, Result};

/// A memory with its boundary, as far as a push depends on it.
pub struct DividedMemory<'a> {
    /// The beginning of the memory.
    pub prefix: &'a [u8],
    /// Its size in bytes.
    pub size: u64,
    /// Its lines.
    pub lines: u64,
    /// Its boundary, if it has one.
    pub boundary: Option<Boundary>,
    /// The version that the boundary was found with.
    pub version: Option<&'a Baseline>,
}

impl<'a> DividedMemory<'a> {
    /// Divides a memory that was read to its end.
    pub fn new(reading: &'a MemoryAccumulator, classification: &'a Classification) -> Self {
        DividedMemory {
            prefix: reading.prefix(),
            size: reading.size(),
            lines: reading.line_count(),
            boundary: classification.boundary,
            version: classification.version.as_deref(),
        }
    }
}

/// The content that a push installs.
#[derive(Debug)]
pub struct PushContent {
    /// The part of the baseline; ends with a line feed if scratch follows.
    pub head: Vec<u8>,
    /// The scratch below it.
    pub scratch: KeptBytes,
    /// What is kept, for plans and records.
    pub summary: KeptScratch,
    /// Digest of the scratch up to the last line that was chosen; zeros unless lines were.
    bound_digest: Digest,
}

/// The bytes that a push keeps.
#[derive(Debug)]
pub enum KeptBytes {
    /// All bytes of the memory from this offset on.
    From(u64),
    /// These.
    Chosen(Vec<u8>),
}

impl PushContent {
    /// Size of the content in bytes.
    pub fn size(&self) -> u64 {
        self.head.len() as u64 + self.summary.bytes
    }

    /// Returns the kept scratch, as far as the beginning of the memory that was read holds it.
    pub fn kept_bytes<'m>(&'m self, memory: Option<&DividedMemory<'m>>) -> &'m [u8] {
        match &self.scratch {
            KeptBytes::From(offset) => {
                let prefix = memory.map_or(&[][..], |memory| memory.prefix);
                usize::try_from(*offset).map_or(&[], |offset| prefix.get(offset..).unwrap_or(&[]))
            }
            KeptBytes::Chosen(bytes) => bytes,
        }
    }

    /// Returns whether the memory is this content already.
    pub fn equals(&self, memory: &DividedMemory<'_>) -> bool {
        let head = self.head.as_slice();
        match &self.scratch {
            KeptBytes::From(offset) => {
                *offset == head.len() as u64 && memory.prefix.starts_with(head)
            }
            KeptBytes::Chosen(bytes) => {
                memory.size == memory.prefix.len() as u64
                    && memory.prefix.strip_prefix(head) == Some(bytes.as_slice())
            }
        }
    }

    /// What a plan is bound to: scratch that the agent adds later voids no plan, except where it
    /// changes the lines that were chosen or those above them.
    pub fn binding(&self) -> String {
        match &self.summary.selection {
            ScratchSelection::Lines(_) => {
                format!("{} {}", self.summary.selection, self.bound_digest)
            }
            selection => selection.to_string(),
        }
    }
}

/// Determines the content that a push installs; `memory` is `None` if the file is missing.
///
/// # Errors
/// The scratch cannot be told from the rules, or a chosen line is not scratch.
pub fn select_scratch(
    selection: &ScratchSelection,
    memory: Option<&DividedMemory<'_>>,
    baseline: &Baseline,
) -> Result<PushContent> {
    let nothing = || PushContent {
        head: baseline.bytes().to_vec(),
        scratch: KeptBytes::Chosen(Vec::new()),
        summary: KeptScratch {
            selection: selection.clone(),
            lines: 0,
            bytes: 0,
        },
        bound_digest: Digest::ZERO,
    };
    match (selection, memory) {
        (ScratchSelection::Nothing, _) | (ScratchSelection::All, None) => Ok(nothing()),
        (ScratchSelection::Lines(_), None) => {
            let message = "there is no memory file, so no lines of it can be kept";
            Err(Error::new(ErrorKind::Conflict, message))
        }
        (ScratchSelection::All, Some(memory)) if memory.size == 0 => Ok(nothing()),
        (ScratchSelection::All, Some(memory)) => {
            let divided = ScratchPlace::find(memory)?;
            let kept = &memory.prefix[divided.offset..];
            let bytes = memory.size - divided.offset as u64;
            if bytes == 0 {
                return Ok(nothing());
            }
            let has_tail = divided.is_tail_replaced && !divided.brings_tail(kept, baseline);
            let above = count_lines(&memory.prefix[..divided.offset]) as u64;
            Ok(PushContent {
                head: head_above_scratch(baseline, has_tail),
                scratch: KeptBytes::From(divided.offset as u64),
                summary: KeptScratch {
                    lines: memory.lines.saturating_sub(above),
                    bytes,
                    selection: selection.clone(),
                },
                bound_digest: Digest::ZERO,
            })
        }
        (ScratchSelection::Lines(ranges), Some(memory)) => {
            let divided = ScratchPlace::find(memory)?;
            let (kept, end) = chosen_lines(ranges, memory, &divided)?;
            let bound_digest = Digest::of(&memory.prefix[divided.boundary..end]);
            if kept.is_empty() {
                return Ok(PushContent {
                    bound_digest,
                    ..nothing()
                });
            }
            let has_tail = !divided.brings_tail(&kept, baseline);
            Ok(PushContent {
                head: head_above_scratch(baseline, has_tail),
                summary: KeptScratch {
                    lines: count_lines(&kept) as u64,
                    bytes: kept.len() as u64,
                    selection: selection.clone(),
                },
                scratch: KeptBytes::Chosen(kept),
                bound_digest,
            })
        }
    }
}

/// Selects lines that were chosen in an earlier state of the memory.
///
/// # Errors
/// One of them is gone, or they are too many ranges now.
pub fn select_chosen_lines(
    chosen: &ChosenLines,
    memory: Option<&DividedMemory<'_>>,
) -> Result<ScratchSelection> {
    let place = memory.map(ScratchPlace::find).transpose()?;
    let (prefix, boundary) = match (memory, &place) {
        (Some(memory), Some(place)) => (memory.prefix, place.boundary),
        _ => (&[][..], 0),
    };
    let first = count_lines(&prefix[..boundary]) + 1;
    let lines = prefix[boundary..].split_inclusive(|byte| *byte == b'\n');
    let lines = lines.map(|line| line.strip_suffix(b"\n").unwrap_or(line));
    let numbered: Vec<(usize, &[u8])> = (first..).zip(lines).collect();
    let found = chosen.find_in(&numbered);
    let lost = found.iter().filter(|it| it.is_none()).count();
    if lost > 0 {
        let message = format!(
            "marked lines that are no longer in the scratch: {lost} of {}",
            found.len()
        );
        return Err(Error::new(ErrorKind::Conflict, message)
            .with_hint("look at the scratch again, and mark what is to be kept"));
    }
    let ranges = found.into_iter().flatten();
    let ranges = ranges.map(|line| LineRange {
        first: line,
        last: line,
    });
    ScratchSelection::from_ranges(ranges.collect())
        .map_err(|why| Error::new(ErrorKind::Conflict, why))
}

/// Where the scratch of a memory begins.
struct ScratchPlace<'a> {
    /// The tail of the version that the agent has.
    tail: &'a [u8],
    /// Offset behind the separator line.
    boundary: usize,
    /// Offset of the scratch, behind an unchanged tail of the baseline.
    offset: usize,
    /// Whether the agent has left the tail of its baseline as it was, or that had none.
    is_tail_replaced: bool,
}

impl<'a> ScratchPlace<'a> {
    fn find(memory: &DividedMemory<'a>) -> Result<ScratchPlace<'a>> {
        let boundary = memory
            .boundary
            .filter(|boundary| boundary.line > 0 || !boundary.is_drifted());
        let Some(boundary) = boundary else {
            let message =
                "no separator tells the scratch from the rules, so none of it can be kept";
            return Err(Error::new(ErrorKind::Conflict, message).with_hint(
                "keep none of it: the whole file is archived, and notes can be copied back from its entry",
            ));
        };
        let (above, below) = boundary.split(memory.prefix);
        let tail = memory.version.map_or(&b""[..], Baseline::tail);
        let length = match memory.version {
            Some(version) => version.unchanged_tail_length(below),
            None => Some(0),
        };
        Ok(ScratchPlace {
            tail,
            boundary: above.len(),
            offset: above.len() + length.unwrap_or(0),
            is_tail_replaced: length.is_some(),
        })
    }

    /// Returns whether an agent has written the tail of the new baseline itself, as the beginning of
    /// what is kept: then it is not doubled. If the tail is not new, that is a copy of the agent's.
    fn brings_tail(&self, kept: &[u8], baseline: &Baseline) -> bool {
        let tail = baseline.tail();
        self.tail != tail && kept.starts_with(tail)
    }
}

/// Returns the part of a baseline above kept scratch.
fn head_above_scratch(baseline: &Baseline, has_tail: bool) -> Vec<u8> {
    let part = if has_tail {
        baseline.bytes()
    } else {
        baseline.operator_part()
    };
    let mut head = part.to_vec();
    if !head.ends_with(b"\n") {
        head.push(b'\n');
    }
    head
}

/// Returns the bytes of the chosen lines, and the offset behind the last of them. Lines of an
/// unchanged tail are left out: the baseline brings its own.
fn chosen_lines(
    ranges: &[LineRange],
    memory: &DividedMemory<'_>,
    place: &ScratchPlace<'_>,
) -> Result<(Vec<u8>, usize)> {
    let refuse = |message: String| {
        let hint = "lines are counted in the memory file, as `cat -n` does";
        Err(Error::new(ErrorKind::Conflict, message).with_hint(hint))
    };
    let above = count_lines(&memory.prefix[..place.boundary]);
    let is_whole = memory.size == memory.prefix.len() as u64;
    for line in ranges.iter().flat_map(|range| [range.first, range.last]) {
        if line <= above {
            return refuse(format!(
                "line {line} is above the scratch, which begins at line {}",
                above + 1
            ));
        }
        if line as u64 > memory.lines {
            let lines = memory.lines;
            return refuse(format!(
                "line {line} does not exist: the memory has {lines} lines"
            ));
        }
    }
    // Offsets of the lines below the boundary, and of their end.
    let mut offsets = vec![place.boundary];
    for line in memory.prefix[place.boundary..].split_inclusive(|byte| *byte == b'\n') {
        offsets.push(offsets.last().copied().unwrap_or_default() + line.len());
    }
    let mut kept = Vec::new();
    let mut end = place.boundary;
    for range in ranges {
        let bounds = [range.first - above - 1, range.last - above].map(|at| offsets.get(at));
        let bytes = match bounds {
            [Some(start), Some(end)] => *start..*end,
            _ => 0..0,
        };
        // The last line of the prefix may be the beginning of a longer one.
        let is_known = is_whole || memory.prefix[bytes.clone()].ends_with(b"\n");
        if bytes.is_empty() || !is_known {
            let message = format!(
                "lines {range} are not within the first {} bytes, where lines can be chosen",
                memory.prefix.len()
            );
            return Err(Error::new(ErrorKind::Conflict, message)
                .with_hint("keep all of the scratch, or none"));
        }
        end = bytes.end;
        kept.extend_from_slice(&memory.prefix[bytes.start.max(place.offset).min(end)..end]);
    }
    Ok((kept, end))
}

#[cfg(test)]
mod tests;
