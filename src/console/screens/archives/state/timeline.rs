//! The timeline of one agent, as the archives screen shows it.

use std::path::PathBuf;

use chrono::{DateTime, FixedOffset};

use crate::console::requests::NumberedRequests;
use crate::console::widgets::list_pane::{KeyedRow, ListPane};
use crate::engine::{AgentTimeline, EntryPresence, TimelineEntry, TimelineRow, TimelineSubject};

/// Maximum number of rows of a timeline.
pub const MAX_TIMELINE_ROWS: usize = 1000;

/// The timeline on the screen.
#[derive(Clone, Debug, Default)]
pub struct TimelineView {
    /// Whether the page, or a text opened from it, is on the screen.
    pub is_open: bool,
    /// Requests for a timeline.
    pub requests: NumberedRequests,
    /// Whose timeline was requested last; `None` before the first request.
    pub subject: Option<TimelineSubject>,
    /// Whether it has to be requested again.
    pub is_due: bool,
    /// What was found, or why nothing was; `None` while it is awaited.
    pub loaded: Option<Result<AgentTimeline, String>>,
    /// Position in the rows.
    pub list: ListPane<TimelineRowKey>,
    /// Whether it was opened from a text, which is the page to go back to.
    pub is_opened_from_text: bool,
}

impl TimelineView {
    /// Returns the timeline, if it was read.
    pub fn timeline(&self) -> Option<&AgentTimeline> {
        self.loaded.as_ref()?.as_ref().ok()
    }

    /// Returns the rows that were read.
    pub fn rows(&self) -> &[TimelineRow] {
        self.timeline().map_or(&[], |it| &it.rows)
    }

    /// Returns the row under the cursor.
    pub fn current_row(&self) -> Option<&TimelineRow> {
        self.rows().get(self.list.cursor_in(self.rows()))
    }

    /// Returns the entry that the row under the cursor is about.
    ///
    /// # Errors
    /// Why it has none that can be read.
    pub fn current_entry(&self) -> Result<&TimelineEntry, String> {
        let timeline = self.timeline().ok_or("no row yet")?;
        let entry = timeline.entry_of_row(self.list.cursor_in(self.rows()));
        let entry = entry.ok_or("no entry: this row archived nothing")?;
        match entry.presence {
            EntryPresence::Present | EntryPresence::Unknown => Ok(entry),
            EntryPresence::Retired(time) => Err(format!(
                "retention deleted this entry on {}",
                time.format("%Y-%m-%d")
            )),
            EntryPresence::Missing => Err("this entry is gone, and not by retention".to_string()),
        }
    }
}

/// What identifies a row while the timeline changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimelineRowKey {
    /// A run, by the number of its record.
    Run(u64),
    /// Unchanged runs, by the time of the first one.
    Unchanged(DateTime<FixedOffset>),
    /// An entry, by its path.
    Entry(PathBuf),
}

impl KeyedRow<TimelineRowKey> for TimelineRow {
    fn key(&self) -> TimelineRowKey {
        match self {
            TimelineRow::Run(past) => TimelineRowKey::Run(past.record.seq),
            TimelineRow::Unchanged(runs) => TimelineRowKey::Unchanged(runs.first),
            TimelineRow::Entry(entry) => TimelineRowKey::Entry(entry.path.clone()),
        }
    }
}
