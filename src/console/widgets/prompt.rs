//! The prompt in the last row: what a text is typed for, and the text so far.

use std::path::PathBuf;

use crate::console::keys::key::{Key, KeyCode};
use crate::console::screen::Screen;
use crate::console::screens::agent::state::memory::OperationDraft;
use crate::console::screens::baseline_plan::state::BaselinePrompt;

/// What a text is typed for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PromptPurpose {
    /// The filter of this screen, which follows each key.
    Filter(Screen),
    /// The search of the screen, which follows each key.
    Search,
    /// A plan over baselines.
    Baseline(BaselinePrompt),
    /// An argument of an operation on a memory.
    OperationArgument(OperationDraft),
    /// A new file for the marked lines.
    SavePath,
    /// A new file for this entry.
    ExportPath(PathBuf),
    /// A command of the editor.
    EditorCommand,
    /// The word that saves the text of the editor over a changed file.
    OverwriteWord,
    /// The word that removes an unsaved text.
    DiscardWord,
}

/// A text that is being typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// What it is for.
    pub purpose: PromptPurpose,
    /// The text so far.
    pub text: String,
    /// The text that Esc and Up restore, if there is one.
    pub old: Option<String>,
    /// Whether typing replaces the text, which the operator has not typed.
    pub is_prefilled: bool,
}

impl Prompt {
    /// Creates a prompt without text; keys restore none, either.
    pub fn new(purpose: PromptPurpose) -> Prompt {
        Prompt {
            purpose,
            text: String::new(),
            old: None,
            is_prefilled: false,
        }
    }

    /// Creates a prompt with a text to change.
    pub fn with_text(purpose: PromptPurpose, text: String) -> Prompt {
        Prompt {
            text,
            ..Prompt::new(purpose)
        }
    }

    /// Creates a prompt with a text that typing replaces, if there is one.
    pub fn prefilled(purpose: PromptPurpose, text: String) -> Prompt {
        Prompt {
            is_prefilled: !text.is_empty(),
            ..Prompt::with_text(purpose, text)
        }
    }

    /// Creates a prompt without text; keys restore the old text.
    pub fn replacing(purpose: PromptPurpose, old: String) -> Prompt {
        Prompt {
            old: Some(old),
            ..Prompt::new(purpose)
        }
    }

    /// Returns what is in front of the text.
    pub fn label(&self) -> String {
        let label = match &self.purpose {
            PromptPurpose::Filter(_) => "filter",
            PromptPurpose::Search => "search",
            PromptPurpose::Baseline(prompt) => &prompt.label(),
            PromptPurpose::OperationArgument(draft) => &draft.label(),
            PromptPurpose::SavePath => "save marked lines to new file",
            PromptPurpose::ExportPath(_) => "export to new file",
            PromptPurpose::EditorCommand => return ":".to_string(),
            PromptPurpose::OverwriteWord => "Type overwrite and Enter",
            PromptPurpose::DiscardWord => "Type discard and Enter",
        };
        if self.is_prefilled {
            format!("{label} (typing replaces it): ")
        } else {
            format!("{label}: ")
        }
    }

    /// Returns the keys that it takes.
    pub fn note(&self) -> String {
        let apply = "Enter apply, Esc cancel";
        match &self.purpose {
            PromptPurpose::EditorCommand => {
                "w wq q w! q! or a line; Tab all commands, Esc cancel".to_string()
            }
            PromptPurpose::OverwriteWord | PromptPurpose::DiscardWord => "Esc cancel".to_string(),
            PromptPurpose::Baseline(prompt) => match prompt.tab_hint() {
                Some(tab) => format!("{apply}, Tab {tab}"),
                None => apply.to_string(),
            },
            _ => apply.to_string(),
        }
    }

    /// Edits the text with a key. Returns whether the key does that.
    pub fn edit(&mut self, key: Key) -> bool {
        match (key.code, key.printable_char()) {
            (KeyCode::Backspace, _) => {
                self.is_prefilled = false;
                self.text.pop();
            }
            (KeyCode::Char('u'), _) if key.has_ctrl => {
                self.is_prefilled = false;
                self.text.clear();
            }
            (_, Some(c)) => self.insert(c.encode_utf8(&mut [0; 4])),
            _ => return false,
        }
        true
    }

    /// Adds typed or pasted text.
    pub fn insert(&mut self, text: &str) {
        if std::mem::take(&mut self.is_prefilled) {
            self.text.clear();
        }
        self.text.push_str(text);
    }
}
