//! Fleet screen: which agents it shows, in which order, and where the cursor is.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use super::order::FleetOrder;
use super::sort_order::SortOrder;
use crate::base::invocation::Invocation;
use crate::console::widgets::list_pane::ListPane;

/// Properties of the fleet that the console takes from its config.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetConfig {
    /// `fleet_name`.
    pub name: String,
    /// `fleet_tag`.
    pub tag: Option<String>,
    /// Path of the config, for messages.
    pub config_path: String,
    /// Invocation for equivalent command lines.
    pub invocation: Invocation,
    /// Days until retention removes entries.
    pub retention_days: u32,
}

/// Fleet screen.
#[derive(Clone, Debug, Default)]
pub struct FleetScreen {
    /// The agents that the filter shows, in display order.
    pub order: FleetOrder,
    /// Whether agents have changed since they were put in order.
    pub is_order_outdated: bool,
    /// The agent under the cursor.
    pub cursor_agent: Option<String>,
    /// Agent under the cursor until a key moves it, if it is shown; otherwise the first one.
    pub initial_agent: Option<String>,
    /// Whether the cursor keeps its agent, because the operator pressed a key or had time to
    /// see it; until then it follows the worst agent.
    pub is_cursor_pinned: bool,
    /// When the cursor is pinned without a key.
    pub cursor_pin_due: Option<Duration>,
    /// Agent whose details are in the strip; lags behind the cursor while a key is held.
    pub strip_agent: Option<String>,
    /// When the strip follows the cursor.
    pub strip_due: Option<Duration>,
    /// When a key last moved the cursor.
    pub last_cursor_move: Option<Duration>,
    /// Position in the list; its cursor follows the agent.
    pub list: ListPane,
    /// Marked agents, by name.
    pub marks: BTreeSet<String>,
    /// Agent marked last: start of a range.
    pub mark_anchor: Option<String>,
    /// Filter.
    pub filter: String,
    /// Whether the filter is the one restored from the previous session.
    pub is_filter_restored: bool,
    /// Sort order.
    pub sort_order: SortOrder,
    /// Whether the sort order is reversed.
    pub is_reversed: bool,
    /// View state that was saved last.
    pub saved_view_state: ViewState,
    /// Sizes of agents before their last runs, in bytes, oldest first; empty unless the
    /// column is visible.
    pub trends: HashMap<String, Vec<u64>>,
}

impl FleetScreen {
    /// Moves the cursor to an agent, which the strip shows at once.
    pub fn set_cursor(&mut self, agent: Option<String>) {
        self.strip_agent.clone_from(&agent);
        self.cursor_agent = agent;
    }

    /// Returns whether the filter asks which agents are marked.
    fn filters_marks(&self) -> bool {
        self.filter.to_lowercase().contains("is:marked")
    }

    /// Notes that marks have changed: agents go and come when the next one changes, so that rows do
    /// not move under the operator's keys.
    pub fn note_changed_marks(&mut self) {
        self.is_order_outdated |= self.filters_marks();
    }

    /// Returns the view to save.
    pub fn view_state(&self) -> ViewState {
        // Marks are not saved, so a filter by marks would match no agent in the next session.
        let is_filter_saved = !self.filters_marks();
        ViewState {
            sort_order: self.sort_order,
            is_reversed: self.is_reversed,
            filter: if is_filter_saved {
                self.filter.clone()
            } else {
                String::new()
            },
        }
    }
}

/// Numbers of agents that the list does not show because it is too short for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutOfSight {
    /// Above its first row.
    pub above: usize,
    /// Below its last row.
    pub below: usize,
}

/// View of the fleet that is saved between sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViewState {
    /// Sort order of the fleet.
    pub sort_order: SortOrder,
    /// Whether the sort order is reversed.
    pub is_reversed: bool,
    /// Filter.
    pub filter: String,
}
