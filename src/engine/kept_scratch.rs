//! What a push keeps of the scratch: the selection, as operators and records write it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Result;

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
