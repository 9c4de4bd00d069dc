//! Texts that leave the console for the clipboard and the pager, and pending requests for other
//! programs.

use crate::archive::WrittenEntry;
use crate::base::untrusted;
use crate::console::screens::editor::promotion::PromotedLines;
use crate::engine::TextSource;

/// Text for the clipboard. It may be pasted into a shell, so it has no invisible characters and no
/// control characters except line ends and tabs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClipboardText {
    /// Description for messages, as in "the name code-reviewer".
    pub description: String,
    /// The text.
    pub text: String,
    /// Whether invisible characters were replaced by marks, so that it differs from the original.
    pub is_escaped: bool,
    /// Whether the original is longer than the part that was read for the screen.
    pub is_truncated: bool,
}

impl ClipboardText {
    /// Creates a text from untrusted bytes. Plain text stays unchanged.
    pub fn new(what: impl Into<String>, bytes: &[u8]) -> ClipboardText {
        let (text, revealed) = untrusted::escape_hidden(bytes);
        ClipboardText {
            description: what.into(),
            text,
            is_escaped: revealed,
            is_truncated: false,
        }
    }
}

/// Outcome of a copy to the clipboard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyOutcome {
    /// This program has it.
    CopiedBy(&'static str),
    /// It was sent to the terminal, which does not acknowledge it.
    SentToTerminal,
    /// No clipboard program took it; the reason may be empty.
    Failed(String),
    /// It is longer than terminals accept: their limit in bytes.
    TooLong(usize),
}

/// Text for the pager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PagerText {
    /// Name of the text and of its file; contains only names of agents and fixed words.
    pub name: String,
    /// The text, without invisible characters.
    pub text: String,
}

impl PagerText {
    /// Creates a text from untrusted bytes.
    pub fn new(name: impl Into<String>, bytes: &[u8]) -> PagerText {
        PagerText {
            name: name.into(),
            text: untrusted::escape_hidden(bytes).0,
        }
    }
}

/// Pending request for the editor or the pager. It takes the terminal, so any key cancels it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandoffRequest {
    /// The baseline of an agent, to be edited by another program.
    EditBaseline(String),
    /// A baseline, to be edited here.
    OpenBaseline {
        /// Its name.
        name: String,
        /// Lines to insert.
        promoted: Option<PromotedLines>,
    },
    /// An entry of an agent, to be read.
    ReadEntry(String, WrittenEntry),
    /// The text of an entry or a memory, to be read.
    ReadSource(TextSource),
}
