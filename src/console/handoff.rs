//! Texts that leave the console for the clipboard and the pager, and baselines that leave it for
//! the editor and come back.

use super::key_guard::KeyGuard;
use crate::archive::WrittenEntry;
use crate::baseline::InspectedBaseline;
use crate::untrusted::{self, HiddenCounts};

/// A text for the clipboard. It is pasted into shells: nothing in it is invisible,
/// and no control character passes but what ends a line, and tabs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClipboardText {
    /// What it is, as in "the name code-reviewer".
    pub description: String,
    /// The text.
    pub text: String,
    /// Whether something in it was made visible, so that it is not byte for byte
    /// what stands there.
    pub is_escaped: bool,
    /// Whether it goes on, and the rest was not read for the screen.
    pub is_truncated: bool,
}

impl ClipboardText {
    /// A text that somebody may have written who is not to be trusted. Plain text
    /// stays as it is.
    pub fn new(what: impl Into<String>, bytes: &[u8]) -> ClipboardText {
        let (text, revealed) = escape_invisible(bytes);
        ClipboardText {
            description: what.into(),
            text,
            is_escaped: revealed,
            is_truncated: false,
        }
    }
}

/// A text without anything invisible, and whether that is another text.
fn escape_invisible(bytes: &[u8]) -> (String, bool) {
    match std::str::from_utf8(bytes) {
        Ok(text) if untrusted::count_hidden(bytes) == HiddenCounts::default() => {
            (text.to_string(), false)
        }
        _ => (untrusted::visible_text_uncut(bytes), true),
    }
}

/// What became of a text for the clipboard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyOutcome {
    /// This program has it.
    CopiedBy(&'static str),
    /// It was sent to the terminal, which says nothing back.
    SentToTerminal,
    /// No program of this machine took it: why, if there is one.
    Failed(String),
    /// It is longer than terminals take, which is so many bytes.
    TooLong(usize),
}

/// A text for the pager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PagerText {
    /// Names it, and its file: agents' names and our own words only.
    pub name: String,
    /// The text, with nothing invisible in it.
    pub text: String,
}

impl PagerText {
    /// A text that somebody may have written who is not to be trusted.
    pub fn new(name: impl Into<String>, bytes: &[u8]) -> PagerText {
        PagerText {
            name: name.into(),
            text: escape_invisible(bytes).0,
        }
    }
}

/// A baseline that is to be edited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaselineEdit {
    /// The agent it was opened for.
    pub agent: String,
    /// All agents that have it.
    pub sharing_agents: Vec<String>,
    /// Those of them that are protected as read-only.
    pub protected_agents: Vec<String>,
    /// What it is before.
    pub original: InspectedBaseline,
}

/// The question before a sealed baseline is edited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealQuestion {
    /// What is to be edited.
    pub edit: BaselineEdit,
    /// Ignores what was typed before it can have been read.
    pub guard: KeyGuard,
}

/// What was asked for and comes later. It takes the terminal, so it comes to nothing
/// once something else is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandoffRequest {
    /// The baseline of an agent, to be edited.
    EditBaseline(String),
    /// An entry of an agent, to be read.
    ReadEntry(String, WrittenEntry),
}
