//! Plan over baselines: what a seal, a restore, a new baseline or a search and replace would write,
//! and what confirms it.

use std::sync::Arc;

use crate::console::text::{Pane, PreparedText};
use crate::console::widgets::list_pane::{KeyedRow, ListPane};
use crate::console::widgets::plan_pane::{PlanPane, PlanStage, ShownPlan};
use crate::engine::{BaselinePlan, FileOwner, SealPlan, TextReplacement};

/// Lines below the difference: a rule, a note, the command line, the confirmation, the message, the
/// hints. A problem of the seal has one line more.
pub const FOOTER_LINES: u16 = 6;

/// Lines around the list of files: the title, a rule, the headings; a rule.
pub const LIST_FRAME_LINES: u16 = 4;

/// Reason why nothing else can be done to baselines while a plan is applied.
pub const BEING_WRITTEN_REASON: &str = "baselines are being written";

/// Screen of a plan over baselines.
#[derive(Clone, Debug, Default)]
pub struct BaselinePlanScreen {
    /// The plan, which stays on the screen while it is applied.
    pub plan: PlanPane<BaselinePlanRequest, PreparedBaselinePlan, Box<BaselinePlanView>>,
    /// Position in the files.
    pub list: ListPane<String>,
    /// The difference of the row under the cursor.
    pub pane: Pane,
    /// Whether the operator has quit while the plan was applied; a second time leaves the console.
    pub has_quit: bool,
    /// File of the key that signed last, as it was typed.
    pub signing_key: String,
}

/// Request for a plan over baselines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BaselinePlanRequest {
    /// Seal these files, and sign the seal with a key.
    Seal {
        /// The files; all of them are accepted if `is_all`.
        names: Vec<String>,
        /// Whether every line of the seal is accepted.
        is_all: bool,
        /// File of the key, as it was typed.
        key: Option<String>,
    },
    /// Put a version back.
    Restore {
        /// The baselines.
        names: Vec<String>,
        /// The version, in the engine's words.
        version: String,
    },
    /// Create a baseline.
    Create {
        /// Its name.
        name: String,
        /// `template`, or another baseline.
        source: String,
    },
    /// Replace text.
    Replace {
        /// The baselines.
        names: Vec<String>,
        /// The search and replace.
        replacement: TextReplacement,
    },
}

impl BaselinePlanRequest {
    /// Returns its verb, which is typed before the number.
    pub fn verb(&self) -> &'static str {
        match self {
            BaselinePlanRequest::Seal { .. } => "seal",
            BaselinePlanRequest::Restore { .. } => "restore",
            BaselinePlanRequest::Create { .. } => "create",
            BaselinePlanRequest::Replace { .. } => "replace",
        }
    }
}

/// The plan of the engine.
#[derive(Clone, Debug, PartialEq)]
pub enum BaselineChangePlan {
    /// A seal, and the file of the key that signs it, as it was typed.
    Seal(Box<SealPlan>, Option<String>),
    /// Files.
    Files {
        /// Their changes.
        plan: BaselinePlan,
        /// Whether they are sealed, too, as a save of the editor seals a file that was sealed.
        is_resealed: bool,
    },
}

/// Reply to the request for a plan: the plan, and its rows for the screen.
#[derive(Clone, Debug)]
pub struct PreparedBaselinePlan {
    /// What it changes.
    pub change: Arc<BaselineChangePlan>,
    /// One row for each file that it changes.
    pub rows: Vec<BaselinePlanRow>,
    /// Why the seal on the disk counts for nothing, if so.
    pub problem: Option<String>,
    /// Facts that concern the whole plan, as sentences.
    pub notes: Vec<String>,
    /// Why the engine would refuse it, if it would.
    pub refusal: Option<String>,
    /// Whether it is a seal that is refused without a signature, and no key signs it.
    pub needs_key: bool,
}

/// A file of a plan.
#[derive(Clone, Debug)]
pub struct BaselinePlanRow {
    /// Name of the baseline.
    pub name: String,
    /// What happens to it, in a word or two.
    pub label: String,
    /// First digits of the digest before and after.
    pub digests: [String; 2],
    /// Numbers of added and removed lines.
    pub changed_lines: (usize, usize),
    /// Whether the plan accepts a change that this program did not make.
    pub is_foreign: bool,
    /// Whether it removes lines that another program wrote, and does not put back the sealed version.
    pub replaces_foreign: bool,
    /// Whether resets refuse it afterwards, until it is sealed.
    pub is_refused: bool,
    /// Errors of the lint that the plan accepts.
    pub lint_errors: Vec<String>,
    /// Owner, mode and times of the file.
    pub owner: Option<FileOwner>,
    /// Agents whose baseline it is.
    pub agents: Vec<String>,
    /// The difference.
    pub text: PreparedText,
}

/// A plan on the screen.
pub type BaselinePlanView = ShownPlan<BaselinePlanRequest, PreparedBaselinePlan>;

/// Text that is typed before a plan can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BaselinePrompt {
    /// Name of a new baseline, and the text that it begins with.
    NewName {
        /// `template`, or the name of another baseline.
        source: String,
        /// The other of the two, which a key exchanges with it.
        other_source: Option<String>,
    },
    /// Text to find.
    Pattern {
        /// The baselines to change, as they were when the line was opened.
        names: Vec<String>,
        /// Whether it is a regular expression.
        is_regex: bool,
    },
    /// Text to put in its place.
    Replacement {
        /// The baselines to change.
        names: Vec<String>,
        /// Text to find.
        pattern: String,
        /// Whether it is a regular expression.
        is_regex: bool,
    },
    /// File of the key that signs.
    SigningKey,
}

impl BaselinePrompt {
    /// Returns the label of the typed text.
    pub fn label(&self) -> String {
        let kind = |is_regex: bool| if is_regex { "regex" } else { "text" };
        match self {
            BaselinePrompt::NewName { source, .. } => {
                format!("file name of the new baseline, with the text of {source}")
            }
            BaselinePrompt::Pattern { is_regex, .. } => format!("replace {}", kind(*is_regex)),
            BaselinePrompt::Replacement {
                pattern, is_regex, ..
            } => {
                format!("replace {} `{pattern}` with", kind(*is_regex))
            }
            BaselinePrompt::SigningKey => "sign with key file".to_string(),
        }
    }

    /// Exchanges the form of the text that is typed: what Tab does.
    pub fn exchange_form(&mut self) {
        match self {
            BaselinePrompt::NewName {
                source,
                other_source: Some(other),
            } => std::mem::swap(source, other),
            BaselinePrompt::Pattern { is_regex, .. } => *is_regex = !*is_regex,
            _ => {}
        }
    }

    /// Returns what Tab does, if anything.
    pub fn tab_hint(&self) -> Option<&'static str> {
        match self {
            BaselinePrompt::NewName { other_source, .. } => other_source.as_ref().map(|_| "source"),
            BaselinePrompt::Pattern {
                is_regex: false, ..
            } => Some("regex"),
            BaselinePrompt::Pattern { is_regex: true, .. } => Some("plain text"),
            BaselinePrompt::Replacement { .. } | BaselinePrompt::SigningKey => None,
        }
    }
}

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppliedBaselinePlan {
    /// What was done, for people.
    pub summary: String,
    /// The runs that changed files, one for each file.
    pub runs: Vec<String>,
    /// Files that were not written, each with the reason.
    pub failures: Vec<String>,
    /// Name of a baseline that was created.
    pub created: Option<String>,
    /// Agents to read again.
    pub agents: Vec<String>,
}

impl KeyedRow<String> for BaselinePlanRow {
    fn key(&self) -> String {
        self.name.clone()
    }
}

impl BaselinePlanScreen {
    /// Returns the plan on the screen, also while it is being applied.
    pub fn view(&self) -> Option<&BaselinePlanView> {
        match &self.plan.stage {
            PlanStage::Plan(view) | PlanStage::Applying(view) => Some(view),
            PlanStage::Empty | PlanStage::Planning(_) => None,
        }
    }

    /// Returns the number of files that fit above the difference, on a terminal of this many rows.
    pub fn list_rows(&self, terminal_rows: u16) -> usize {
        let most = if terminal_rows >= 30 { 8 } else { 3 };
        self.rows().len().clamp(1, most)
    }

    /// Returns the rows of the screen that are not the difference.
    pub fn frame_rows(&self, terminal_rows: u16) -> usize {
        self.list_rows(terminal_rows) + usize::from(LIST_FRAME_LINES + self.footer_rows())
    }

    /// Returns the rows below the difference.
    pub fn footer_rows(&self) -> u16 {
        let view = self.view();
        let has_problem = view.is_some_and(|view| view.plan.problem.is_some());
        FOOTER_LINES + u16::from(has_problem)
    }

    /// Returns the files of the plan.
    pub fn rows(&self) -> &[BaselinePlanRow] {
        self.view().map_or(&[], |view| &view.plan.rows)
    }

    /// Returns the row under the cursor.
    pub fn current_row(&self) -> Option<&BaselinePlanRow> {
        self.rows().get(self.list.cursor_in(self.rows()))
    }
}
