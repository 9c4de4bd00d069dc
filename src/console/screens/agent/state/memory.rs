//! A memory with a layout: its collections, the loaded items of one, the content of an item, what its
//! checks find, and an operation whose arguments are being typed.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use chrono::{DateTime, FixedOffset};
use unicode_width::UnicodeWidthStr;

use crate::base::untrusted;
use crate::console::filter::Filter;
use crate::console::text::Pane;
use crate::console::widgets::list_pane::{KeyedRow, KeyedRows, ListPane};
use crate::layouts::{
    ArgumentForm, ArgumentSpec, Collection, HealthFinding, HealthSeverity, MemoryItem,
    OperationSpec,
};

/// Number of items by which a list grows.
pub const ITEM_STEP: usize = 200;

/// Request for the items of a collection, from the beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemsRequest {
    /// Number of the request. One with a known number asks for more items.
    pub number: u64,
    /// The agent.
    pub agent: String,
    /// Id of the collection; the first one stands for one that is not given or not there.
    pub collection: Option<String>,
    /// Number of items that are loaded.
    pub loaded: usize,
    /// Number of items to load at least, with those that are.
    pub wanted: usize,
}

/// A memory that was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedMemory {
    /// Name of its layout.
    pub layout: &'static str,
    /// Its collections.
    pub collections: Vec<Collection>,
    /// Id of the collection whose items follow; none without collections.
    pub collection: Option<String>,
    /// The operations of its layout.
    pub operations: &'static [OperationSpec],
}

/// Items of a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemPage {
    /// The items, behind those of the pages before.
    pub items: Vec<MemoryItem>,
    /// Whether the collection has no more.
    pub is_last: bool,
}

/// Request for the content of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemContentRequest {
    /// Number of the request for the items.
    pub number: u64,
    /// The agent.
    pub agent: String,
    /// Id of its collection; none if it is not known.
    pub collection: Option<String>,
    /// Id of the item.
    pub item: String,
}

/// The Memory tab.
#[derive(Clone, Debug, Default)]
pub struct MemoryPane {
    /// What was opened, or why it cannot be; none until it is read.
    pub opened: Option<Result<OpenedMemory, String>>,
    /// Number of the current request for items.
    pub number: u64,
    /// Id of the collection whose items are shown.
    pub collection: Option<String>,
    /// Position in the collections.
    pub collection_list: ListPane,
    /// Whether keys are for the collections, and not for the items.
    pub has_collection_focus: bool,
    /// The items of the collection.
    pub items: ItemList,
    /// The content of an item.
    pub content: ItemContentPane,
    /// The last operation whose arguments were entered, until it has a plan.
    pub unplanned: Option<OperationDraft>,
}

/// The order of items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ItemOrder {
    /// As the layout lists them.
    #[default]
    Listed,
    /// The one changed last first.
    Newest,
    /// By size, the largest first.
    Largest,
    /// By title.
    Title,
}

impl ItemOrder {
    /// Returns the order after this one, with the first behind the last.
    pub fn next(self) -> ItemOrder {
        match self {
            ItemOrder::Listed => ItemOrder::Newest,
            ItemOrder::Newest => ItemOrder::Largest,
            ItemOrder::Largest => ItemOrder::Title,
            ItemOrder::Title => ItemOrder::Listed,
        }
    }

    /// Describes it; empty for that of the layout.
    pub fn describe(self) -> &'static str {
        match self {
            ItemOrder::Listed => "",
            ItemOrder::Newest => "newest first",
            ItemOrder::Largest => "largest first",
            ItemOrder::Title => "by title",
        }
    }

    fn compare(self, one: &MemoryItem, other: &MemoryItem) -> Ordering {
        match self {
            ItemOrder::Listed => Ordering::Equal,
            ItemOrder::Newest => other.modified.cmp(&one.modified),
            ItemOrder::Largest => other.bytes.cmp(&one.bytes),
            ItemOrder::Title => one.title.cmp(&other.title),
        }
    }
}

/// The loaded items of a collection.
#[derive(Clone, Debug, Default)]
pub struct ItemList {
    /// Those that are loaded, in the order of the layout.
    pub loaded: Vec<MemoryItem>,
    /// What the filter looks at: their titles, ids and labels, in lower case.
    filtered_texts: Vec<String>,
    /// The items that the filter shows, as indices.
    pub shown: Vec<usize>,
    /// The filter of titles, ids and labels.
    pub filter: String,
    /// The order of the shown items.
    pub order: ItemOrder,
    /// Position among the shown items, by their ids.
    pub list: ListPane<String>,
    /// Number of items that were requested.
    pub wanted: usize,
    /// Whether the collection has no more items.
    pub is_complete: bool,
    /// Why the rest cannot be read.
    pub failure: Option<String>,
    /// When the first of them were read; none until then.
    pub read_at: Option<DateTime<FixedOffset>>,
    /// Whether the loaded items are those of an earlier request, which `reread` replaces.
    pub is_outdated: bool,
    /// The items that were read again, until they are as many as the loaded ones.
    pub reread: Vec<MemoryItem>,
}

/// The content of an item.
#[derive(Clone, Debug, Default)]
pub struct ItemContentPane {
    /// What was requested last.
    pub request: Option<ItemContentRequest>,
    /// Its text; empty until it is loaded.
    pub pane: Pane,
    /// Whether it takes the place of the lists.
    pub is_open: bool,
    /// Whether it was opened from the finding of a check, to which it leads back.
    pub is_of_finding: bool,
}

/// The Health tab.
#[derive(Clone, Debug, Default)]
pub struct HealthPane {
    /// The findings, the worst first, or why there are none; none until the checks have ended.
    pub findings: Option<Result<Vec<HealthFinding>, String>>,
    /// Number of the current request.
    pub number: u64,
    /// Cells of the longest texts of the findings.
    pub cells: FindingCells,
    /// When the checks ended.
    pub checked_at: Option<DateTime<FixedOffset>>,
    /// Position in the findings.
    pub list: ListPane<HealthFinding>,
}

/// Cells that the longest texts of some findings take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FindingCells {
    /// Those of the checks.
    pub check: u16,
    /// Those of what was measured.
    pub measured: u16,
    /// Those of what the memory says of itself.
    pub reported: u16,
}

/// An operation whose arguments are typed one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationDraft {
    /// The agent.
    pub agent: String,
    /// The operation.
    pub spec: OperationSpec,
    /// The arguments before the one that is typed.
    pub given: BTreeMap<String, Vec<String>>,
    /// Index of the argument that is typed.
    pub index: usize,
    /// The arguments that were entered for the operation before, without a plan.
    pub earlier: BTreeMap<String, Vec<String>>,
}

impl MemoryPane {
    /// Returns the memory, if it could be opened.
    pub fn opened(&self) -> Option<&OpenedMemory> {
        self.opened.as_ref()?.as_ref().ok()
    }

    /// Returns the collections.
    pub fn collections(&self) -> &[Collection] {
        self.opened().map_or(&[], |opened| &opened.collections)
    }

    /// Returns the index of the collection whose items are shown.
    pub fn collection_index(&self) -> usize {
        let is_current = |it: &Collection| Some(&it.id) == self.collection.as_ref();
        self.collections().iter().position(is_current).unwrap_or(0)
    }

    /// Returns the id of the item that keys and details are about: the open one, else the one under the
    /// cursor.
    pub fn subject_id(&self) -> Option<&str> {
        if self.content.is_open {
            self.content.item()
        } else {
            self.items.current_item().map(|item| item.id.as_str())
        }
    }

    /// Returns the item that keys and details are about; none if the open one is not among the loaded
    /// ones any more.
    pub fn subject_item(&self) -> Option<&MemoryItem> {
        let current = self.items.current_item();
        if !self.content.is_open {
            return current;
        }
        let id = self.content.item()?;
        let mut items = current.into_iter().chain(&self.items.loaded);
        items.find(|item| item.id == id)
    }

    /// Returns an operation of the layout.
    pub fn find_operation(&self, name: &str) -> Option<OperationSpec> {
        let mut specs = self.opened()?.operations.iter();
        specs.find(|spec| spec.name == name).copied()
    }
}

impl KeyedRows<String> for ItemList {
    fn count(&self) -> usize {
        self.shown.len()
    }

    fn key(&self, index: usize) -> Option<String> {
        self.shown_item(index).map(|item| item.id.clone())
    }

    fn has_key(&self, index: usize, key: &String) -> bool {
        self.shown_item(index).is_some_and(|item| item.id == *key)
    }
}

impl KeyedRow<HealthFinding> for HealthFinding {
    fn key(&self) -> HealthFinding {
        self.clone()
    }
}

impl ItemList {
    /// Returns the shown item at an index.
    pub fn shown_item(&self, index: usize) -> Option<&MemoryItem> {
        self.loaded.get(*self.shown.get(index)?)
    }

    /// Returns the index of the item under the cursor among the shown ones.
    pub fn cursor_index(&self) -> usize {
        self.list.cursor_in(self)
    }

    /// Returns the item under the cursor.
    pub fn current_item(&self) -> Option<&MemoryItem> {
        self.shown_item(self.cursor_index())
    }

    /// Moves the cursor by rows.
    pub fn move_cursor(&mut self, by: isize) {
        self.list = self.list.stepped(by, self);
    }

    /// Sets the filter.
    pub fn set_filter(&mut self, filter: String) {
        self.filter = filter;
        self.shown.clear();
        self.show_from(0);
    }

    /// Sets the order. The cursor stays on its item.
    pub fn set_order(&mut self, order: ItemOrder) {
        self.list = self.list.pinned(&*self);
        self.order = order;
        self.shown.clear();
        self.show_from(0);
    }

    /// Adds a page behind the loaded items. Those of an earlier request stay until the collection has
    /// ended, or as many items are read again, so that the rows do not move in between.
    pub fn add_page(&mut self, page: ItemPage, now: DateTime<FixedOffset>) {
        self.is_complete = page.is_last;
        if !self.is_outdated {
            return self.append(page.items, now);
        }
        self.reread.extend(page.items);
        if page.is_last || self.reread.len() >= self.loaded.len() {
            self.finish_reread(now);
        }
    }

    /// Replaces the items of an earlier request by those that were read again.
    pub fn finish_reread(&mut self, now: DateTime<FixedOffset>) {
        if self.is_outdated {
            let items = std::mem::take(&mut self.reread);
            self.clear();
            self.append(items, now);
        }
    }

    fn append(&mut self, items: Vec<MemoryItem>, now: DateTime<FixedOffset>) {
        let start = self.loaded.len();
        if start == 0 {
            self.read_at = Some(now);
        }
        let texts = items.iter().map(|item| {
            let labels = item.labels.join(" ");
            format!("{} {} {labels}", item.title, item.id).to_lowercase()
        });
        self.filtered_texts.extend(texts);
        self.loaded.extend(items);
        self.show_from(start);
    }

    /// Removes the items, but not the filter and the cursor.
    pub fn clear(&mut self) {
        self.loaded.clear();
        self.filtered_texts.clear();
        self.shown.clear();
        self.reread.clear();
        self.is_outdated = false;
    }

    /// Whether more items were requested than are loaded.
    pub fn is_reading(&self) -> bool {
        !self.is_complete && self.failure.is_none() && self.wanted > self.loaded.len()
    }

    /// Adds the loaded items from an index on to the shown ones, if the filter shows them.
    fn show_from(&mut self, start: usize) {
        let filter = Filter::new(&self.filter);
        let is_shown = |index: &usize| {
            let name = &self.loaded[*index].title;
            filter.matches_text(&self.filtered_texts[*index], name)
        };
        let shown = (start..self.loaded.len()).filter(is_shown);
        self.shown.extend(shown);
        if self.order != ItemOrder::Listed {
            let (loaded, order) = (&self.loaded, self.order);
            // What was sorted before is one run, so that this takes one pass.
            self.shown
                .sort_by(|one, other| order.compare(&loaded[*one], &loaded[*other]));
        }
    }
}

impl ItemContentPane {
    /// Returns the id of the item.
    pub fn item(&self) -> Option<&str> {
        self.request.as_ref().map(|request| request.item.as_str())
    }
}

impl FindingCells {
    /// Measures the texts of findings.
    fn of(findings: &[HealthFinding]) -> FindingCells {
        let longest = |text: fn(&HealthFinding) -> Option<&str>| {
            let texts = findings.iter().filter_map(text);
            let cells = texts.map(|text| untrusted::visible_line(text).width());
            cells.max().unwrap_or(0).try_into().unwrap_or(u16::MAX)
        };
        FindingCells {
            check: longest(|finding| Some(finding.check)),
            measured: longest(|finding| finding.measured.as_deref()),
            reported: longest(|finding| finding.reported.as_deref()),
        }
    }
}

impl HealthPane {
    /// Shows what the checks found.
    pub fn show(
        &mut self,
        findings: Result<Vec<HealthFinding>, String>,
        now: DateTime<FixedOffset>,
    ) {
        self.findings = Some(findings);
        self.checked_at = Some(now);
        self.cells = FindingCells::of(self.findings());
    }

    /// Returns the findings, the worst first.
    pub fn findings(&self) -> &[HealthFinding] {
        match &self.findings {
            Some(Ok(findings)) => findings,
            _ => &[],
        }
    }

    /// Returns the finding under the cursor.
    pub fn current_finding(&self) -> Option<&HealthFinding> {
        self.findings().get(self.list.cursor_in(self.findings()))
    }

    /// Returns the number of findings of a severity.
    pub fn count(&self, severity: HealthSeverity) -> usize {
        let findings = self.findings().iter();
        findings.filter(|it| it.severity == severity).count()
    }
}

/// Returns the place of a finding: `notes/tea.md:3`.
pub fn describe_place(finding: &HealthFinding) -> String {
    let line = finding.line.map(|line| format!(":{line}"));
    match (&finding.path, &finding.id) {
        (Some(path), _) => format!("{}{}", path.display(), line.unwrap_or_default()),
        (None, Some(id)) => id.clone(),
        (None, None) => String::new(),
    }
}

/// Returns a finding as a line of text, for the clipboard.
pub fn describe_finding(finding: &HealthFinding) -> String {
    let mut parts = vec![
        finding.severity.as_str().to_string(),
        finding.check.to_string(),
        describe_place(finding),
    ];
    let labelled = [
        ("measured", &finding.measured),
        ("reported", &finding.reported),
    ];
    for (label, value) in labelled {
        parts.extend(value.iter().map(|value| format!("{label} {value}")));
    }
    parts.push(finding.why.to_string());
    parts.push(finding.remedy.to_string());
    parts.retain(|part| !part.is_empty());
    parts.join("  ")
}

impl OperationDraft {
    /// Creates a draft without arguments. The item that the operation is about is the one under the
    /// cursor, until another one is typed.
    pub fn new(agent: String, spec: OperationSpec) -> OperationDraft {
        OperationDraft {
            agent,
            spec,
            given: BTreeMap::new(),
            index: 0,
            earlier: BTreeMap::new(),
        }
    }

    /// Returns the argument that is typed.
    pub fn argument(&self) -> Option<&'static ArgumentSpec> {
        self.spec.arguments.get(self.index)
    }

    /// Whether the argument that is typed is the item that the operation is about.
    pub fn is_of_item(&self) -> bool {
        let argument = self.argument();
        argument.is_some_and(ArgumentSpec::is_positional)
    }

    /// Returns the text that was entered for this argument before.
    pub fn earlier_text(&self) -> Option<String> {
        let values = self.earlier.get(self.argument()?.name)?;
        Some(values.join(", "))
    }

    /// Returns the label of the typed text.
    pub fn label(&self) -> String {
        let (operation, argument) = (self.spec.name, self.argument());
        let name = argument.map_or("", |it| it.name);
        let note = argument.map_or(String::new(), |argument| match argument.form {
            ArgumentForm::Repeated => " (optional, separated by commas)".to_string(),
            _ if !argument.is_required => format!(" (optional; {})", argument.title),
            _ => format!(" ({})", argument.title),
        });
        format!("{operation}: {name}{note}")
    }
}
