//! What a push keeps of the scratch: the selection, as operators and records write it.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::base::error::Result;

/// Maximum number of ranges of lines in a selection. A record of the ledger has to hold them.
const MAX_LINE_RANGES: usize = 1000;

/// The scratch that a push keeps. As text: `all`, `none`, or line numbers such as `3-5,9`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ScratchSelection {
    /// Nothing, as a reset.
    Nothing,
    /// Every byte of it.
    All,
    /// The lines with these numbers in the memory: ascending ranges that do not touch.
    Lines(Vec<LineRange>),
}

/// Consecutive lines of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LineRange {
    /// Number of the first line, from 1.
    pub first: usize,
    /// Number of the last line.
    pub last: usize,
}

impl ScratchSelection {
    /// Selects lines by their numbers in the memory, in any order.
    ///
    /// # Errors
    /// No line, a range without lines, or too many ranges.
    pub fn from_ranges(mut ranges: Vec<LineRange>) -> Result<ScratchSelection, String> {
        ranges.sort_unstable();
        let mut merged: Vec<LineRange> = Vec::new();
        for range in ranges {
            if range.first == 0 || range.last < range.first {
                return Err(format!(
                    "{range} is not a range of lines; lines count from 1"
                ));
            }
            match merged.last_mut() {
                Some(before) if range.first <= before.last.saturating_add(1) => {
                    before.last = before.last.max(range.last);
                }
                _ => merged.push(range),
            }
        }
        match merged.len() {
            0 => Err("no line numbers".to_string()),
            1..=MAX_LINE_RANGES => Ok(ScratchSelection::Lines(merged)),
            count => Err(format!(
                "{count} ranges of lines; {MAX_LINE_RANGES} at most"
            )),
        }
    }
}

/// What an operator asks a push to keep of the scratch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScratchRequest {
    /// This part of the memory as it is when the push is planned.
    Selection(ScratchSelection),
    /// Lines that were chosen in the memory as it was then.
    Chosen(ChosenLines),
}

impl From<ScratchSelection> for ScratchRequest {
    fn from(selection: ScratchSelection) -> ScratchRequest {
        ScratchRequest::Selection(selection)
    }
}

/// Lines of a memory as the operator who chose them saw them: their numbers, and their bytes without
/// line feeds. They are found again by their bytes, so that a memory that changes never swaps one for
/// another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChosenLines(pub BTreeMap<usize, Vec<u8>>);

impl ChosenLines {
    /// Finds the lines in a changed text, whose lines have ascending numbers. Returns for each line
    /// where it is now, in their order; none for a line that is gone.
    pub fn find_in(&self, text: &[(usize, &[u8])]) -> Vec<Option<usize>> {
        let mut by_bytes: HashMap<&[u8], Vec<usize>> = HashMap::new();
        for (number, bytes) in text {
            by_bytes.entry(bytes).or_default().push(*number);
        }
        let (mut shift, mut end) = (0_isize, 0);
        let find = |(number, bytes): (&usize, &Vec<u8>)| {
            // Lines keep their order, and those that were neighbours probably still are.
            let expected = number.saturating_add_signed(shift).max(end + 1);
            let same = by_bytes.get(bytes.as_slice())?;
            let at = same.partition_point(|it| *it < expected);
            let before = at.checked_sub(1).map(|at| same[at]);
            let candidates = [before.filter(|it| *it > end), same.get(at).copied()];
            let nearest = candidates.into_iter().flatten();
            let found = nearest.min_by_key(|it| it.abs_diff(expected))?;
            shift = found as isize - *number as isize;
            end = found;
            Some(found)
        };
        self.0.iter().map(find).collect()
    }
}

impl FromStr for ScratchSelection {
    type Err = String;

    fn from_str(text: &str) -> Result<ScratchSelection, String> {
        match text {
            "none" => return Ok(ScratchSelection::Nothing),
            "all" => return Ok(ScratchSelection::All),
            _ => {}
        }
        let number = |text: &str| text.trim().parse::<usize>().ok();
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            Some(LineRange { first, last })
        };
        let ranges: Option<Vec<LineRange>> = text.split(',').map(range).collect();
        let expected = || "expected all, none, or line numbers such as 3-5,9".to_string();
        ScratchSelection::from_ranges(ranges.ok_or_else(expected)?)
    }
}

impl TryFrom<String> for ScratchSelection {
    type Error = String;

    fn try_from(text: String) -> Result<ScratchSelection, String> {
        text.parse()
    }
}

impl From<ScratchSelection> for String {
    fn from(selection: ScratchSelection) -> String {
        selection.to_string()
    }
}

impl fmt::Display for ScratchSelection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScratchSelection::Nothing => f.write_str("none"),
            ScratchSelection::All => f.write_str("all"),
            ScratchSelection::Lines(ranges) => {
                let ranges: Vec<String> = ranges.iter().map(LineRange::to_string).collect();
                f.write_str(&ranges.join(","))
            }
        }
    }
}

impl fmt::Display for LineRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

/// What a push keeps, or kept, of the scratch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptScratch {
    /// What was asked for.
    #[serde(rename = "keep")]
    pub selection: ScratchSelection,
    /// Lines that are kept.
    pub lines: u64,
    /// Bytes of these lines.
    pub bytes: u64,
}

impl KeptScratch {
    /// Says what is kept, for people.
    pub fn describe(&self) -> String {
        let bytes = self.bytes;
        match (bytes, self.lines) {
            (0, _) => "keeps no scratch".to_string(),
            (_, 1) => format!("keeps 1 line of scratch, {bytes} bytes"),
            (_, lines) => format!("keeps {lines} lines of scratch, {bytes} bytes"),
        }
    }
}
