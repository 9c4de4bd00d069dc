//! Baselines screen: the list of baselines, the versions of one, and two versions side by side.

use std::collections::BTreeSet;

use chrono::{DateTime, FixedOffset};

use crate::base::digest::Digest;
use crate::console::filter::{Filter, FilterSubject};
use crate::console::screen::Screen;
use crate::console::text::Comparison;
use crate::console::widgets::list_pane::{KeyedRow, ListPane};
use crate::engine::{BaselineList, BaselineSummary, BaselineVersion};

/// Reason why a key is about no baseline.
pub const NO_BASELINE_REASON: &str = "no baseline under the cursor";

/// Baselines screen.
#[derive(Clone, Debug, Default)]
pub struct BaselinesScreen {
    /// The baselines, or why they cannot be listed; `None` until they are loaded.
    pub list: Option<Result<Box<BaselineList>, String>>,
    /// Position in the list. The cursor is on the worst baseline until a key is pressed on the list.
    pub list_pane: ListPane<String>,
    /// Filter of the list, in the language of the fleet's.
    pub filter: String,
    /// Marked baselines, by name.
    pub marks: BTreeSet<String>,
    /// What the screen shows.
    pub page: BaselinesPage,
    /// The versions of one baseline.
    pub versions: VersionsView,
    /// The two versions that are compared.
    pub comparison: ComparisonView,
}

/// What the baselines screen shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BaselinesPage {
    /// All baselines.
    #[default]
    List,
    /// The versions of one.
    Versions,
    /// Two versions of one.
    Comparison,
}

/// Versions of a baseline.
#[derive(Clone, Debug, Default)]
pub struct VersionsView {
    /// The baseline.
    pub name: String,
    /// Its versions, newest first, or why they cannot be read; `None` until they are loaded.
    pub records: Option<Result<Vec<BaselineVersion>, String>>,
    /// Position in the versions.
    pub list: ListPane<VersionId>,
}

impl VersionsView {
    /// Returns the versions, newest first; none until they are loaded.
    pub fn records(&self) -> &[BaselineVersion] {
        match &self.records {
            Some(Ok(records)) => records,
            _ => &[],
        }
    }

    /// Returns the version under the cursor.
    pub fn current(&self) -> Option<&BaselineVersion> {
        self.records().get(self.list.cursor_in(self.records()))
    }
}

/// Identity of a row of the versions, which stays when records are added above it. The time of a push
/// does not count: it is that of the last agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionId {
    run: String,
    sha256: Option<Digest>,
    /// Of a row that is not a push.
    time: Option<DateTime<FixedOffset>>,
}

impl KeyedRow<VersionId> for BaselineVersion {
    fn key(&self) -> VersionId {
        VersionId {
            run: self.run.clone(),
            sha256: self.sha256,
            time: self.agents.is_empty().then_some(self.time),
        }
    }
}

impl KeyedRow<String> for BaselineSummary {
    fn key(&self) -> String {
        self.name.clone()
    }
}

/// Two versions of a baseline.
#[derive(Clone, Debug, Default)]
pub struct ComparisonView {
    /// The two compared versions.
    pub request: ComparisonRequest,
    /// The two texts.
    pub shown: Comparison,
    /// Screen to go back to.
    pub opened_from: Screen,
    /// Page to go back to, on the baselines screen.
    pub opened_from_page: BaselinesPage,
}

/// Two versions of a baseline to compare.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComparisonRequest {
    /// The baseline.
    pub name: String,
    /// The old and the new side.
    pub sides: [ComparedVersion; 2],
    /// The old side if the baseline does not have that version; none for one that a key has chosen.
    pub fallback: Option<ComparedVersion>,
}

impl ComparisonRequest {
    /// Creates the comparison of a file that shows at first what matters most.
    pub fn first_of(summary: &BaselineSummary) -> ComparisonRequest {
        let old = first_compared_version(summary);
        // The file is the version that was pushed last.
        let is_previous = old == ComparedVersion::Previous;
        ComparisonRequest {
            fallback: is_previous.then_some(ComparedVersion::Pushed),
            ..ComparisonRequest::with_file(summary.name.clone(), old)
        }
    }

    /// Creates the comparison of a version with the file.
    pub fn with_file(name: String, old: ComparedVersion) -> ComparisonRequest {
        ComparisonRequest {
            name,
            sides: [old, ComparedVersion::Disk],
            fallback: None,
        }
    }
}

/// A text to compare a baseline with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ComparedVersion {
    /// The file.
    #[default]
    Disk,
    /// The sealed version.
    Sealed,
    /// The version that was pushed last.
    Pushed,
    /// The newest known version that differs from the file.
    Previous,
    /// The template that this program ships.
    Template,
    /// A version of its history.
    Stored(Digest),
    /// The file of another baseline.
    Other(String),
}

impl ComparedVersion {
    /// The versions that every baseline may have, in the order in which a key goes through them.
    pub const COMMON: [ComparedVersion; 5] = [
        ComparedVersion::Sealed,
        ComparedVersion::Pushed,
        ComparedVersion::Previous,
        ComparedVersion::Template,
        ComparedVersion::Disk,
    ];

    /// Returns the word for people.
    pub fn label(&self) -> String {
        match self {
            ComparedVersion::Disk => "on disk".to_string(),
            ComparedVersion::Sealed => "sealed".to_string(),
            ComparedVersion::Pushed => "last pushed".to_string(),
            ComparedVersion::Previous => "previous version".to_string(),
            ComparedVersion::Template => "template".to_string(),
            ComparedVersion::Stored(digest) => format!("version {}", digest.short_hex(8)),
            ComparedVersion::Other(name) => name.clone(),
        }
    }

    /// Returns the word for the engine and the command line.
    pub fn argument(&self) -> String {
        match self {
            ComparedVersion::Disk => "disk".to_string(),
            ComparedVersion::Sealed => "sealed".to_string(),
            ComparedVersion::Pushed => "pushed".to_string(),
            ComparedVersion::Previous => "previous".to_string(),
            ComparedVersion::Template => "template".to_string(),
            ComparedVersion::Stored(digest) => digest.short_hex(12),
            ComparedVersion::Other(name) => format!("file:{name}"),
        }
    }

    /// Whether it is a version of the baseline that can be put back.
    pub fn is_restorable(&self) -> bool {
        !matches!(
            self,
            ComparedVersion::Disk | ComparedVersion::Template | ComparedVersion::Other(_)
        )
    }
}

impl BaselinesScreen {
    /// Returns the baselines, worst first; none until they are loaded.
    pub fn summaries(&self) -> &[BaselineSummary] {
        match &self.list {
            Some(Ok(list)) => &list.baselines,
            _ => &[],
        }
    }

    /// Returns the baselines that the filter shows, worst first.
    pub fn visible_summaries(&self) -> Vec<&BaselineSummary> {
        let all = self.summaries().iter();
        all.filter(|it| self.is_visible(it)).collect()
    }

    /// Whether the filter shows a baseline.
    pub fn is_visible(&self, summary: &BaselineSummary) -> bool {
        if self.filter.is_empty() {
            return true;
        }
        // Words also match the agents.
        let agents = summary.agents.join(" ");
        let subject = FilterSubject {
            name: &summary.name,
            state: summary.state.as_str(),
            reason: &agents,
            is_marked: self.marks.contains(&summary.name),
            ..FilterSubject::default()
        };
        Filter::new(&self.filter).matches(&subject)
    }

    /// Returns a baseline.
    pub fn find(&self, name: &str) -> Option<&BaselineSummary> {
        self.summaries().iter().find(|it| it.name == name)
    }

    /// Returns the baseline under the cursor of the list.
    pub fn current_summary(&self) -> Option<&BaselineSummary> {
        let visible = self.visible_summaries();
        visible.get(self.list_pane.cursor_in(&visible[..])).copied()
    }

    /// Returns the baseline that a key is about.
    pub fn subject(&self) -> Option<&str> {
        match self.page {
            BaselinesPage::List => self.current_summary().map(|it| it.name.as_str()),
            BaselinesPage::Versions => Some(&self.versions.name),
            BaselinesPage::Comparison => Some(&self.comparison.request.name),
        }
    }

    /// Returns the baselines that a command acts on: on the list the marked ones that the filter
    /// shows, else the one that a key is about.
    pub fn targets(&self) -> Vec<String> {
        let is_list = self.page == BaselinesPage::List;
        let all = self.visible_summaries().into_iter().map(|it| &it.name);
        let marked: Vec<String> = all
            .filter(|name| is_list && self.marks.contains(*name))
            .cloned()
            .collect();
        if marked.is_empty() {
            self.subject().map(str::to_string).into_iter().collect()
        } else {
            marked
        }
    }

    /// Returns the version under the cursor of the history.
    pub fn current_version(&self) -> Option<&BaselineVersion> {
        self.versions.current()
    }

    /// Returns the version that a key would put back, or why there is none.
    pub fn restorable_version(&self) -> Result<ComparedVersion, String> {
        match self.page {
            BaselinesPage::List => {
                let names = self.targets();
                if names.is_empty() {
                    return Err(NO_BASELINE_REASON.to_string());
                }
                let is_sealed = |name: &str| self.find(name).is_some_and(|it| it.sealed.is_some());
                match names.iter().find(|name| !is_sealed(name)) {
                    None => Ok(ComparedVersion::Sealed),
                    Some(name) => Err(format!("{name} is not sealed; choose one of its versions")),
                }
            }
            BaselinesPage::Versions => {
                let version = self
                    .current_version()
                    .ok_or("no version under the cursor")?;
                let digest = version.sha256.ok_or("the record names no version")?;
                Ok(ComparedVersion::Stored(digest))
            }
            BaselinesPage::Comparison => {
                let [old, _] = &self.comparison.request.sides;
                if old.is_restorable() {
                    Ok(old.clone())
                } else {
                    Err(format!("{} is not a version to put back", old.label()))
                }
            }
        }
    }
}

/// Returns the version that a baseline is compared with at first.
fn first_compared_version(summary: &BaselineSummary) -> ComparedVersion {
    let pushed = summary.last_push.as_ref().map(|push| push.sha256);
    match pushed {
        _ if summary.sealed.is_some() && summary.sealed != summary.sha256 => {
            ComparedVersion::Sealed
        }
        None => ComparedVersion::Template,
        _ if pushed != summary.sha256 => ComparedVersion::Pushed,
        Some(_) => ComparedVersion::Previous,
    }
}
