//! Comparisons of two texts, and the options by which texts are shown.

use super::{Pane, PreparedText};

/// Options for the texts of all screens, which keys change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextOptions {
    /// Whether long lines wrap.
    pub is_wrapping: bool,
    /// Whether ordinary whitespace is marked.
    pub is_whitespace_marked: bool,
    /// Whether comparisons are unified also where two sides fit.
    pub is_unified: bool,
    /// Unchanged lines shown around a change; `None` for all.
    pub context_lines: Option<usize>,
    /// Whether changes of whitespace only are hidden.
    pub is_whitespace_ignored: bool,
}

/// Two texts that were compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComparedTexts {
    /// The difference.
    pub text: PreparedText,
    /// What the two texts are.
    pub titles: [String; 2],
    /// Numbers of added and removed lines.
    pub changed_lines: (usize, usize),
}

/// A comparison of two texts in a pane.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// The difference.
    pub pane: Pane,
    /// What the two texts are.
    pub titles: [String; 2],
    /// Numbers of added and removed lines.
    pub changed_lines: (usize, usize),
    /// Whether the texts were read.
    pub is_loaded: bool,
}

impl Comparison {
    /// Creates a comparison whose texts are not read yet.
    pub fn awaited(titles: [String; 2]) -> Comparison {
        Comparison {
            titles,
            ..Comparison::default()
        }
    }

    /// Shows the compared texts. The first ones scroll to their first hunk, in a pane of `height`.
    pub fn show(&mut self, texts: ComparedTexts, height: usize) {
        self.pane.show(texts.text);
        self.titles = texts.titles;
        self.changed_lines = texts.changed_lines;
        if !std::mem::replace(&mut self.is_loaded, true) {
            self.pane.scroll_to_first_hunk(height);
        }
    }
}
