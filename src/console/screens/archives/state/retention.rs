//! What retention deletes now and why the rest stays, as the archives screen shows it, and the plan
//! to delete it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::base::quantity::{format_count, format_size};
use crate::console::widgets::list_pane::{KeyedRow, ListPane};
use crate::console::widgets::plan_pane::{Confirmation, PlanPane, PlanPrompt, ShownPlan};
use crate::engine::{AgentRetention, ExpiringEntry, RetentionOverview};

/// Age from which on an overview is made again when the archives are opened.
pub const MAX_OVERVIEW_AGE: Duration = Duration::from_secs(5 * 60);

/// Percentage of used disk space above which a warning is shown.
const FULL_DISK_PERCENT: u64 = 90;

/// Reason why nothing else is pruned.
pub const BEING_PRUNED_REASON: &str = "the archive is being pruned";

/// The page about retention.
#[derive(Clone, Debug, Default)]
pub struct RetentionView {
    /// Whether an overview has to be requested once no search goes on.
    pub is_due: bool,
    /// The overview, or why there is none; `None` before the first one.
    pub overview: Option<Result<Arc<RetentionOverview>, String>>,
    /// When the overview was made.
    pub loaded_at: Duration,
    /// Position in the rows of the overview.
    pub list: ListPane<RetentionKey>,
    /// The agent whose entries are shown.
    pub opened: Option<GroupKey>,
    /// Position in the rows of that agent.
    pub detail: ListPane<RetentionKey>,
    /// The plan to delete what the overview shows. Its requests are those for the overview.
    pub plan: PlanPane<(), Arc<RetentionOverview>, ()>,
}

/// What identifies the entries of an agent in one directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupKey {
    /// The agent, if it is known.
    pub agent: Option<String>,
    /// The directory below `archive_dir`.
    pub directory: PathBuf,
}

/// What is deleted once it is confirmed: what the overview shows, and nothing else.
pub type PrunePlan = ShownPlan<(), Arc<RetentionOverview>>;

/// Plans to delete what an overview shows; none if nothing expires.
pub fn plan_prune(overview: Arc<RetentionOverview>, now: Duration) -> Option<PrunePlan> {
    let count = overview.expiring().count() + overview.expiring_versions().len();
    let words = Confirmation::TypedText(format!("prune {count}"));
    (count > 0).then(|| PrunePlan {
        request: (),
        plan: overview,
        prompt: PlanPrompt::new(words, now),
    })
}

/// Whether two overviews show the same as expiring.
pub fn expires_same(old: &Arc<RetentionOverview>, new: &Arc<RetentionOverview>) -> bool {
    old.expiring().eq(new.expiring()) && old.expiring_versions() == new.expiring_versions()
}

/// A row of the page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RetentionRow<'a> {
    /// The entries of an agent in one directory.
    Group(&'a AgentRetention),
    /// An entry that expires.
    Entry(&'a ExpiringEntry),
}

/// A row, or a fact between rows.
#[derive(Clone, Debug, PartialEq)]
pub enum RetentionLine<'a> {
    /// A row.
    Row(RetentionRow<'a>),
    /// A fact that asks for something to be done.
    Warning(String),
    /// Another fact.
    Fact(String),
}

/// Identity of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetentionKey {
    /// Those of an agent in one directory.
    Group(GroupKey),
    /// Path of an entry.
    Entry(PathBuf),
    /// Text of a fact.
    Text(String),
}

impl KeyedRow<RetentionKey> for RetentionLine<'_> {
    fn key(&self) -> RetentionKey {
        match self {
            RetentionLine::Row(RetentionRow::Group(group)) => {
                RetentionKey::Group(GroupKey::of(group))
            }
            RetentionLine::Row(RetentionRow::Entry(entry)) => {
                RetentionKey::Entry(entry.path.clone())
            }
            RetentionLine::Warning(text) | RetentionLine::Fact(text) => {
                RetentionKey::Text(text.clone())
            }
        }
    }
}

impl GroupKey {
    /// Returns the key of a group.
    pub fn of(group: &AgentRetention) -> GroupKey {
        GroupKey {
            agent: group.agent.clone(),
            directory: group.directory.clone(),
        }
    }
}

impl RetentionView {
    /// Returns the overview that the page shows: that of the plan, if there is one.
    pub fn shown(&self) -> Option<&Arc<RetentionOverview>> {
        if let Some(shown) = self.plan.shown() {
            return Some(&shown.plan);
        }
        self.overview.as_ref()?.as_ref().ok()
    }

    /// Returns the lines of the overview: what asks for something to be done, the agents with
    /// entries, then the other facts.
    pub fn list_lines(&self) -> Vec<RetentionLine<'_>> {
        let Some(overview) = self.shown() else {
            return Vec::new();
        };
        let mut lines: Vec<RetentionLine<'_>> = warnings(overview)
            .into_iter()
            .map(RetentionLine::Warning)
            .collect();
        let (with_entries, without): (Vec<_>, Vec<_>) =
            overview.agents.iter().partition(|it| it.entries > 0);
        let groups = with_entries.into_iter().map(RetentionRow::Group);
        lines.extend(groups.map(RetentionLine::Row));
        lines.extend(
            facts(overview, without.len())
                .into_iter()
                .map(RetentionLine::Fact),
        );
        lines
    }

    /// Returns the lines of the opened agent: why its entries stay, then those that expire.
    pub fn detail_lines(&self) -> Vec<RetentionLine<'_>> {
        let (Some(overview), Some(group)) = (self.shown(), self.opened_group()) else {
            return Vec::new();
        };
        let mut kept = group.describe_kept(overview.days);
        // When the next one expires is no reason.
        let count = kept.len() - usize::from(group.next_expiry.is_some());
        for reason in kept.iter_mut().take(count) {
            *reason = format!("stay: {reason}");
        }
        let kept = kept.into_iter().map(RetentionLine::Fact);
        let entries = group.expiring.iter().map(RetentionRow::Entry);
        kept.chain(entries.map(RetentionLine::Row)).collect()
    }

    /// Returns the opened agent, if it still has entries.
    pub fn opened_group(&self) -> Option<&AgentRetention> {
        let key = self.opened.as_ref()?;
        let mut groups = self.shown()?.agents.iter();
        groups.find(|it| GroupKey::of(it) == *key)
    }

    /// Returns the agent under the cursor.
    pub fn current_group(&self) -> Option<&AgentRetention> {
        let lines = self.list_lines();
        match lines.get(self.list.cursor_in(&lines[..]))? {
            RetentionLine::Row(RetentionRow::Group(group)) => Some(group),
            _ => None,
        }
    }
}

/// Whether anything expires now.
pub fn has_expired(overview: &RetentionOverview) -> bool {
    overview.expiring().next().is_some() || !overview.expiring_versions().is_empty()
}

/// Returns how full the archive's disk is in percent, if it says so.
pub fn used_disk_percent(overview: &RetentionOverview) -> Option<u64> {
    let disk = overview.disk.filter(|it| it.total_bytes > 0)?;
    let used = disk.total_bytes.saturating_sub(disk.free_bytes);
    Some((u128::from(used) * 100 / u128::from(disk.total_bytes)) as u64)
}

/// Whether the archive's disk is so full that a warning is due.
pub fn is_disk_full(overview: &RetentionOverview) -> bool {
    used_disk_percent(overview).is_some_and(|it| it > FULL_DISK_PERCENT)
}

fn warnings(overview: &RetentionOverview) -> Vec<String> {
    let mut found = Vec::new();
    if let (true, Some(disk)) = (is_disk_full(overview), overview.disk) {
        let [free, total] = [disk.free_bytes, disk.total_bytes].map(format_size);
        let archive = overview.archive.display();
        found.push(format!(
            "disk almost full: {free} of {total} free on the disk of {archive}"
        ));
    }
    let unreadable = overview.unreadable.iter();
    found.extend(unreadable.map(|error| {
        format!(
            "entries of an unreadable directory stay: {}",
            error.message()
        )
    }));
    found.extend(overview.unclear_pins.iter().cloned());
    found.extend(overview.unconfirmed.clone());
    found
}

fn facts(overview: &RetentionOverview, agents_without_entries: usize) -> Vec<String> {
    let mut found = Vec::new();
    if agents_without_entries > 0 {
        let agents = format_count(agents_without_entries as u64, "agent");
        let verb = if agents_without_entries == 1 {
            "has"
        } else {
            "have"
        };
        found.push(format!("{agents} of the config {verb} no entries"));
    }
    let shorter = overview.shorter.iter().filter(|it| it.entries > 0);
    let shorter: Vec<String> = shorter
        .map(|it| {
            let days = format_count(u64::from(it.days), "day");
            let entries = format_count(it.entries as u64, "entry");
            let size = format_size(it.disk_bytes);
            format!("a retention of {days} would delete {entries} more, {size} on disk")
        })
        .collect();
    if shorter.is_empty() {
        found.push("a shorter retention time would free nothing now".to_string());
    }
    found.extend(shorter);
    if let Some(versions) = overview.versions.as_ref().filter(|it| it.stored > 0) {
        let stored = format_count(versions.stored as u64, "baseline version");
        let size = format_size(versions.disk_bytes);
        let unused = match versions.expiring.len() {
            0 => String::new(),
            count => {
                let size = format_size(versions.expiring_disk_bytes);
                format!("; no undo needs {count} of them, {size}")
            }
        };
        found.push(format!("{stored}, {size} on disk{unused}"));
        let blocked = versions.blocked.iter();
        found.extend(blocked.map(|why| format!("unused versions stay: {why}")));
    }
    found
}
