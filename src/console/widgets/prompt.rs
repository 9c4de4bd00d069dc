//! The prompt in the last row: what a text is typed for, and the text so far.

use std::path::PathBuf;

use crate::console::keys::key::{Key, KeyCode};
use crate::console::screens::agent::state::memory::OperationDraft;
use crate::console::screens::baseline_plan::state::BaselinePrompt;

/// What a text is typed for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PromptPurpose {
    /// The filter of the fleet, which follows each key.
    Filter,
    /// The filter of the baselines, which follows each key.
    BaselineFilter,
    /// The filter of the items of a memory, which follows each key.
    ItemFilter,
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
}

impl Prompt {
    /// Creates a prompt without text; keys restore none, either.
    pub fn new(purpose: PromptPurpose) -> Prompt {
        Prompt {
            purpose,
            text: String::new(),
            old: None,
        }
    }

    /// Returns what is in front of the text.
    pub fn label(&self) -> String {
        let label = match &self.purpose {
            PromptPurpose::Filter | PromptPurpose::BaselineFilter | PromptPurpose::ItemFilter => {
                "filter: "
            }
            PromptPurpose::Search => "search: ",
            PromptPurpose::Baseline(prompt) => return prompt.label(),
            PromptPurpose::OperationArgument(draft) => return draft.label(),
            PromptPurpose::SavePath => "save marked lines to new file: ",
            PromptPurpose::ExportPath(_) => "export to new file: ",
            PromptPurpose::EditorCommand => ":",
            PromptPurpose::OverwriteWord => "Type overwrite and Enter: ",
            PromptPurpose::DiscardWord => "Type discard and Enter: ",
        };
        label.to_string()
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
                match &mut self.purpose {
                    PromptPurpose::Baseline(prompt) => prompt.keep_prefilled(),
                    PromptPurpose::OperationArgument(draft) => draft.is_prefilled = false,
                    _ => {}
                }
                self.text.pop();
            }
            (KeyCode::Char('u'), _) if key.has_ctrl => self.text.clear(),
            (_, Some(c)) => self.insert(c.encode_utf8(&mut [0; 4])),
            _ => return false,
        }
        true
    }

    /// Inserts text.
    pub fn insert(&mut self, text: &str) {
        match &mut self.purpose {
            PromptPurpose::Baseline(prompt) => prompt.insert(&mut self.text, text),
            PromptPurpose::OperationArgument(draft) => draft.insert(&mut self.text, text),
            _ => self.text.push_str(text),
        }
    }
}
