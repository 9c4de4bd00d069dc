//! Overlays and input lines: what is open over a screen.

use std::time::Duration;

use super::command::Command;
use super::screens::agent::state::AgentTab;
use super::screens::baselines::state::ComparedVersion;
use super::screens::fleet::sort_order::SortOrder;
use super::screens::log::state::schedule::TimerDialog;
use crate::base::secret::Secret;
use crate::console::keys::key::Key;
use crate::console::keys::key_guard::KeyGuard;
use crate::transport::sftp::askpass::Question;

/// Overlay on top of a screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Overlay {
    /// Keys of the current screen.
    Help(Chooser),
    /// Commands, sort orders, themes, filters and agents.
    Palette(Chooser),
    /// Confirmation before read-only is switched off.
    UnlockReadOnly,
    /// Question of a host.
    AnswerQuestion(QuestionDialog),
    /// What to do with a timer.
    Timer(Box<TimerDialog>),
}

impl Overlay {
    /// Creates help, with the cursor on its first row.
    pub fn help() -> Overlay {
        Overlay::Help(Chooser::for_browsing())
    }

    /// Creates the palette with a query.
    pub fn palette(query: &str) -> Overlay {
        Overlay::Palette(Chooser::with_query(query))
    }
}

/// What queries of the palette for operations on a memory begin with.
pub const OPERATION_KIND: &str = "operation ";

/// Dialog that answers a question of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuestionDialog {
    /// The question.
    pub question: Question,
    /// Ignores keys typed before the operator can have read the question.
    pub guard: KeyGuard,
    /// Answer typed so far.
    pub answer: Secret,
    /// Whether the host no longer waits for the answer. The dialog stays open: the rest of
    /// a passphrase must not run as commands.
    pub is_withdrawn: bool,
}

/// Searchable list with a cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chooser {
    /// Query typed so far.
    pub query: String,
    /// Whether keys edit the query.
    pub is_typing: bool,
    /// Row under the cursor; `None` while the query matches several items and no key has
    /// chosen one.
    pub cursor_row: Option<usize>,
    /// Item that the cursor selected. Keys act on it, even if the rows have moved since.
    pub selected: Option<ChooserItem>,
}

impl Chooser {
    /// Creates a list for browsing, with the cursor on the first item.
    pub fn for_browsing() -> Chooser {
        Chooser {
            query: String::new(),
            is_typing: false,
            cursor_row: Some(0),
            selected: None,
        }
    }

    /// Creates a list for searching, with an initial query.
    pub fn with_query(query: &str) -> Chooser {
        Chooser {
            query: query.to_string(),
            is_typing: true,
            cursor_row: None,
            selected: None,
        }
    }
}

/// An item of a chooser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChooserItem {
    /// Run a command.
    Command(Command),
    /// Sort the fleet.
    Sort(SortOrder),
    /// Switch to a theme.
    Theme(String),
    /// Apply a named filter: its name, and the filter.
    Filter(String, String),
    /// Open an agent.
    Agent(String),
    /// Show a tab of an agent.
    Tab(AgentTab, String),
    /// Plan this operation on the memory of the agent on the screen.
    Operation(&'static str),
    /// Compare this version on a side of the comparison: 0 is old, 1 is new.
    ComparisonSide(usize, ComparedVersion),
}

/// Keys of an incomplete sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PendingKeys {
    /// The keys so far.
    pub keys: Vec<Key>,
    /// When the list of continuations appears.
    pub hint_due: Duration,
    /// Whether the list of continuations is visible.
    pub is_hint_shown: bool,
}
