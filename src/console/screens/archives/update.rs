//! What the archives screen does: searches while the operator types, follows the cursor with a text,
//! and compares entries.

pub mod retention;
pub mod timeline;

use std::path::{Path, PathBuf};

use super::view::archive_text_height;
use crate::archive::index::CandidateOrder;
use crate::archive::search::Query;
use crate::console::command::{Command, require};
use crate::console::message::Effect;
use crate::console::model::Model;
use crate::console::model::plans::{check_no_run, request_plan};
use crate::console::model::read_only::check_writable;
use crate::console::model::targets::subject_baseline;
use crate::console::model::visible_text::{scroll_text, text_height};
use crate::console::screen::Screen;
use crate::console::screens::archives::state::{
    ArchiveRow, ArchiveSearchRequest, ArchivesPage, EntryComparisonRequest, EntryComparisonView,
    EntryText, EntryTextRequest, FoundRows, NO_ENTRY_REASON, RowLimit,
};
use crate::console::screens::reset::state::PlanRequest;
use crate::console::text::{ComparedTexts, PreparedText, TextLine};
use crate::console::widgets::list_pane::{ListPane, MIN_PREVIEW_COLUMNS, step_index};
use crate::console::widgets::prompt::{Prompt, PromptPurpose};
use crate::engine::{
    EntryComparison, IndexProgress, Observation, RecordedEntries, SearchRelaxation, SearchResult,
    TimelineRow, UndoMode, UndoTarget,
};

/// Goes to the archives, and searches again: entries may have come since.
pub fn open(model: &mut Model) -> Vec<Effect> {
    model.archives.page = ArchivesPage::List;
    model.archives.timeline.is_open = false;
    model.archives.retention.plan.abandon();
    retention::note_opened(model);
    model.go_to_screen(Screen::Archives);
    model.archives.is_search_due = true;
    Vec::new()
}

/// Searches again where the archives are on the screen: a run may have written entries, or another
/// config names another archive.
pub fn reload(model: &mut Model) {
    model.archives.is_search_due = true;
    model.archives.retention.is_due = true;
    model.archives.timeline.is_due = true;
}

/// Returns the search that is due, and the text under the cursor if it is not read yet.
pub fn request_due(model: &mut Model) -> Vec<Effect> {
    if model.screen != Screen::Archives {
        return Vec::new();
    }
    let mut effects = Vec::new();
    if std::mem::take(&mut model.archives.is_search_due) {
        effects.extend(request_search(model));
    }
    effects.extend(timeline::request_due(model));
    effects.extend(request_text(model));
    effects.extend(retention::request_due(model));
    effects
}

/// Searches again where the last search lacks a memory on a host that has been read now.
pub fn handle_read_memory(model: &mut Model, seen: &Observation) {
    let was_lacking = |result: &SearchResult| result.never_read.contains(&seen.agent);
    model.archives.is_search_due |=
        seen.content.is_some() && model.archives.result().is_some_and(was_lacking);
}

fn request_search(model: &mut Model) -> Option<Effect> {
    let screen = &mut model.archives;
    screen.query_error = Query::parse(&screen.query, model.now.local_time).err();
    model.is_dirty = true;
    // An incomplete term is not a mistake yet: the rows that were found before stay.
    if screen.query_error.is_some() {
        return None;
    }
    Some(Effect::SearchArchive(ArchiveSearchRequest {
        number: screen.searches.begin(),
        query: screen.query.clone(),
        order: screen.order,
        limit: screen.limit.0,
    }))
}

/// Requests the text of the row under the cursor, where it is shown.
fn request_text(model: &mut Model) -> Option<Effect> {
    let is_shown = match model.archives.page {
        // A narrow timeline shows the first line of the text.
        ArchivesPage::Text | ArchivesPage::Timeline => true,
        ArchivesPage::List => model.size.0 >= MIN_PREVIEW_COLUMNS,
        _ => false,
    };
    let source = model.archives.subject_source().filter(|_| is_shown)?;
    let is_in_timeline = model.archives.timeline.is_open;
    let request = EntryTextRequest {
        source,
        query: match &model.archives.found {
            Some(Ok(found)) if !is_in_timeline => found.query.clone(),
            _ => String::new(),
        },
    };
    let text = &mut model.archives.text;
    if text.request.as_ref() == Some(&request) {
        return None;
    }
    if text.request.as_ref().map(|it| &it.source) != Some(&request.source) {
        *text = EntryText::default();
    }
    text.goes_to_hit = true;
    text.request = Some(request.clone());
    Some(Effect::ReadEntryText(request))
}

/// Shows what a search found, unless a later one was requested.
pub fn handle_result(model: &mut Model, number: u64, result: Result<FoundRows, String>) {
    if number != model.archives.searches.last_id {
        return;
    }
    if let Err(why) = &result {
        model.report_error(why.clone());
    }
    let screen = &mut model.archives;
    let is_same_query = match (&screen.found, &result) {
        (Some(Ok(old)), Ok(new)) => old.query == new.query,
        _ => false,
    };
    screen.found = Some(result);
    screen.relaxations = None;
    screen.relaxation_cursor = 0;
    // A changed query begins at its best row.
    if !is_same_query {
        screen.list = ListPane::default();
    }
    model.is_dirty |= model.screen == Screen::Archives;
}

/// Notes that a search has ended: the index is up to date.
pub fn handle_search_ended(model: &mut Model, number: u64) {
    if model.archives.searches.accept(number) {
        model.archives.progress = None;
        model.is_dirty |= model.screen == Screen::Archives;
    }
}

/// Adds the records of the ledger to the rows: the times of their entries, and the findings in them.
pub fn handle_records(model: &mut Model, number: u64, recorded: Result<RecordedEntries, String>) {
    if number == model.archives.searches.last_id {
        let (recorded, unread) = match recorded {
            Ok(RecordedEntries {
                times,
                findings,
                unread,
            }) => ((times, findings), unread.map(|error| error.to_string())),
            Err(why) => (Default::default(), Some(why)),
        };
        let (times, findings) = recorded;
        let unknown = unread.map(|why| format!("findings of some entries are not known: {why}"));
        let screen = &mut model.archives;
        let is_changed = screen.findings != findings || screen.unknown_findings != unknown;
        (screen.findings, screen.unknown_findings) = (findings, unknown);
        let is_changed = screen.date_entries(&times) || is_changed;
        model.is_dirty |= is_changed && model.screen == Screen::Archives;
    }
}

/// Shows which queries find something where the one that was searched finds nothing.
pub fn handle_relaxations(
    model: &mut Model,
    number: u64,
    found: Result<Vec<SearchRelaxation>, String>,
) {
    if number == model.archives.searches.last_id {
        model.archives.relaxations = Some(found);
        model.archives.relaxation_cursor = 0;
        model.is_dirty |= model.screen == Screen::Archives;
    }
}

/// Searches the relaxed query under the cursor.
fn take_relaxation(model: &mut Model) {
    let screen = &mut model.archives;
    if let Some(current) = screen.current_relaxation() {
        screen.query = current.relaxed.query.clone();
        screen.limit = RowLimit::default();
        screen.is_search_due = true;
    }
}

/// Shows how far the index is.
pub fn handle_progress(model: &mut Model, progress: IndexProgress) {
    model.archives.progress = Some(progress);
    model.is_dirty |= model.screen == Screen::Archives;
}

/// Shows a text, if it is still wanted.
pub fn handle_text(
    model: &mut Model,
    request: &EntryTextRequest,
    text: Result<PreparedText, String>,
) {
    if model.archives.text.request.as_ref() != Some(request) {
        return;
    }
    let lines = match text {
        Ok(text) => text.lines,
        Err(why) => vec![TextLine::note(why)],
    };
    let height = archive_text_height(model);
    let screen = &mut model.archives;
    screen.text.pane.replace_lines(lines);
    screen.text.is_loaded = true;
    if std::mem::take(&mut screen.text.goes_to_hit) {
        let pane = &mut screen.text.pane;
        let is_last = std::mem::take(&mut screen.is_entered_from_below);
        pane.current_hit = if is_last {
            pane.hits.len().saturating_sub(1)
        } else {
            0
        };
        pane.scroll_to_current_hit(height);
        pane.move_cursor_to_hit();
    }
    model.is_dirty |= model.screen == Screen::Archives;
}

/// Checks that a row with a text is under the cursor.
pub fn check_row(model: &Model) -> Result<(), String> {
    let screen = &model.archives;
    if screen.timeline.is_open {
        return screen.chosen_entry().map(drop);
    }
    require(screen.current_row().is_some(), NO_ENTRY_REASON)
}

/// Checks that a row that opens is under the cursor: a text, or another query.
pub fn check_selected(model: &Model) -> Result<(), String> {
    let screen = &model.archives;
    if !screen.timeline.is_open && screen.current_relaxation().is_some() {
        return Ok(());
    }
    check_row(model)
}

/// Checks that the text has been read.
pub fn check_text(model: &Model) -> Result<(), String> {
    require(model.archives.is_text_current(), "no text yet")
}

/// Checks that the chosen lines of the text can be inserted into a baseline.
pub fn check_promotion(model: &Model) -> Result<(), String> {
    let is_file = matches!(model.archives.current_row(), Some(ArchiveRow::File(_)));
    require(
        !is_file,
        "a file of a memory of several files has no baseline",
    )?;
    require(
        subject_baseline(model).is_some(),
        "the agent left the config, and no baseline is its own",
    )?;
    require(
        !model.archives.chosen_lines().is_empty(),
        "no line under the cursor",
    )?;
    check_writable(model)
}

/// Checks that the memory from before the run of the entry can be put back.
pub fn check_restore(model: &Model) -> Result<(), String> {
    model.archives.chosen_entry()?;
    check_no_run(model)
}

/// Checks that the entry can be pinned or unpinned.
pub fn check_pin(model: &Model) -> Result<(), String> {
    model.archives.chosen_entry()?;
    check_writable(model)
}

/// Checks that the query has words, which are hits.
pub fn check_hits(model: &Model) -> Result<(), String> {
    let screen = &model.archives;
    let row = screen.current_row().filter(|_| !screen.timeline.is_open);
    let is_searched = screen.page.has_text() && !screen.pane().query.is_empty();
    let has_hits = is_searched || row.is_some_and(|row| row.hits().is_some());
    require(has_hits, "no hits: the query has no words")
}

/// Opens the text under the cursor on the whole screen.
pub fn open_selected(model: &mut Model) -> Result<(), String> {
    match model.archives.page {
        ArchivesPage::List if model.archives.current_row().is_some() => {
            model.archives.page = ArchivesPage::Text;
            model.is_dirty = true;
        }
        ArchivesPage::Timeline => return timeline::open_selected(model),
        ArchivesPage::List => take_relaxation(model),
        ArchivesPage::Retention => retention::open_selected(model),
        _ => {}
    }
    Ok(())
}

/// Goes back: from a text to the list, and from the list to the query without terms, then to the fleet.
pub fn go_back(model: &mut Model, is_escape: bool) {
    let screen = &mut model.archives;
    match screen.page {
        ArchivesPage::Comparison => screen.page = screen.comparison.opened_from,
        ArchivesPage::Text if is_escape && !screen.text.pane.query.is_empty() => {
            screen.text.pane.search("");
        }
        ArchivesPage::Text if screen.timeline.is_open => screen.page = ArchivesPage::Timeline,
        ArchivesPage::Text => screen.page = ArchivesPage::List,
        ArchivesPage::Timeline => timeline::close(model),
        ArchivesPage::Retention | ArchivesPage::RetentionAgent => {
            retention::go_back(model);
        }
        ArchivesPage::List if is_escape && !screen.query.is_empty() => {
            screen.query.clear();
            screen.limit = RowLimit::default();
            screen.is_search_due = true;
        }
        ArchivesPage::List => model.go_to_screen(Screen::Fleet),
    }
}

/// Moves the cursor by rows, or scrolls the text.
pub fn move_cursor(model: &mut Model, by: isize) {
    match model.archives.page {
        ArchivesPage::List => {}
        ArchivesPage::Timeline => return timeline::move_cursor(model, by),
        ArchivesPage::Text | ArchivesPage::Comparison => return scroll_text(model, by),
        ArchivesPage::Retention | ArchivesPage::RetentionAgent => {
            return retention::move_cursor(model, by);
        }
    }
    let screen = &mut model.archives;
    let count = screen.row_count();
    let offered = screen.offered_relaxations().len();
    if offered > 0 {
        screen.relaxation_cursor = step_index(screen.relaxation_cursor, by, offered);
        return;
    }
    screen.list = screen.list.stepped_from_top(by, screen);
    screen.is_entered_from_below = false;
    let has_more = screen.result().is_some_and(SearchResult::has_more);
    if screen.list.cursor + 1 == count && has_more && !screen.searches.is_pending {
        screen.limit.0 = screen.limit.0.saturating_mul(2);
        screen.is_search_due = true;
    }
}

/// Sets the query of the list, which is then searched.
pub fn set_query(model: &mut Model, query: String) {
    let screen = &mut model.archives;
    if screen.query != query {
        screen.query = query;
        screen.limit = RowLimit::default();
        screen.is_search_due = true;
    }
}

/// Goes to the next hit: within the text, and from its last one to the next text.
pub fn go_to_next_hit(model: &mut Model, is_forward: bool) {
    let height = archive_text_height(model);
    let screen = &mut model.archives;
    let is_current = screen.is_text_current();
    let pane = &mut screen.text.pane;
    let is_at_end = if is_forward {
        pane.current_hit + 1 >= pane.hits.len()
    } else {
        pane.current_hit == 0
    };
    if is_current && !is_at_end {
        pane.go_to_next_hit(is_forward, height);
        return pane.move_cursor_to_hit();
    }
    let by = if is_forward { 1 } else { -1 };
    let next = screen.list.stepped_from_top(by, screen);
    if next.cursor == screen.list.cursor || screen.timeline.is_open {
        let side = if is_forward { "further" } else { "earlier" };
        return model.show_hint(&format!("no {side} hit"));
    }
    let skips_hits = is_forward && screen.has_unloaded_hits();
    let agent = screen.subject_agent().unwrap_or_default().to_string();
    screen.list = next;
    screen.is_entered_from_below = !is_forward;
    if skips_hits {
        model.show_hint(&format!(
            "left further hits of {agent}, behind what is loaded"
        ));
    }
}

/// Searches in the next order.
pub fn change_order(model: &mut Model) {
    let screen = &mut model.archives;
    screen.order = match screen.order {
        CandidateOrder::Relevance => CandidateOrder::Newest,
        CandidateOrder::Newest => CandidateOrder::Oldest,
        CandidateOrder::Oldest => CandidateOrder::Largest,
        CandidateOrder::Largest => CandidateOrder::Relevance,
    };
    screen.is_search_due = true;
}

/// Marks the entry under the cursor, to compare others with it, or lines of a text.
pub fn change_marks(model: &mut Model, command: Command) {
    if !model.archives.page.has_text() {
        return toggle_mark(model);
    }
    let text = &mut model.archives.text;
    let lines = &text.pane.lines;
    match (command, lines.get(text.pane.cursor_line)) {
        (Command::ClearMarks, _) => text.marked_lines.clear(),
        (Command::MarkAll, _) => text.marked_lines.extend(lines),
        (Command::MarkRange, Some(line)) => text.marked_lines.extend_to(line, lines),
        (_, Some(line)) => {
            text.marked_lines.toggle(line);
            scroll_text(model, 1);
        }
        (_, None) => {}
    }
}

fn toggle_mark(model: &mut Model) {
    let Some(path) = current_path(model) else {
        return model.show_hint(NO_ENTRY_REASON);
    };
    let screen = &mut model.archives;
    screen.marked = Some(path).filter(|path| !screen.is_marked(path));
    let key = model.key_hint(Command::CompareEntry);
    if model.archives.marked.is_some() {
        model.show_hint(&format!("marked; {key} on another entry compares the two"));
    }
}

fn current_path(model: &Model) -> Option<PathBuf> {
    let entry = model.archives.chosen_entry();
    entry.ok().map(|chosen| chosen.path.to_path_buf())
}

/// Compares the entry under the cursor: with the marked one, else with the memory of its agent.
pub fn compare(model: &mut Model) -> Result<Vec<Effect>, String> {
    let entry = model.archives.chosen_entry()?.path.to_path_buf();
    let other = model.archives.comparisons(&entry).into_iter().next();
    let other = other.unwrap_or(EntryComparison::Memory);
    let opened_from = model.archives.page;
    let request = EntryComparisonRequest { entry, other };
    Ok(request_comparison(model, request, opened_from))
}

/// Compares with the next of the other texts.
pub fn cycle_comparison(model: &mut Model, by: isize) -> Vec<Effect> {
    let view = &model.archives.comparison;
    let Some(request) = view.request.clone() else {
        return Vec::new();
    };
    let all = model.archives.comparisons(&request.entry);
    let at = all.iter().position(|it| *it == request.other).unwrap_or(0);
    let next = (at as isize + by).rem_euclid(all.len() as isize) as usize;
    let request = EntryComparisonRequest {
        other: all[next].clone(),
        ..request
    };
    let opened_from = view.opened_from;
    request_comparison(model, request, opened_from)
}

fn request_comparison(
    model: &mut Model,
    request: EntryComparisonRequest,
    opened_from: ArchivesPage,
) -> Vec<Effect> {
    model.archives.comparison = EntryComparisonView {
        request: Some(request.clone()),
        opened_from,
        ..EntryComparisonView::default()
    };
    model.archives.page = ArchivesPage::Comparison;
    vec![Effect::CompareEntry(request)]
}

/// Shows two texts, if they are still wanted.
pub fn handle_comparison(
    model: &mut Model,
    request: &EntryComparisonRequest,
    texts: Result<Box<ComparedTexts>, String>,
) {
    if model.archives.comparison.request.as_ref() != Some(request) {
        return;
    }
    let texts = texts.map(|texts| *texts).unwrap_or_else(|why| {
        let key = model.key_hint(Command::NextVersion);
        ComparedTexts {
            text: PreparedText::note(format!("{why}; {key} compares with another text")),
            ..ComparedTexts::default()
        }
    });
    let height = text_height(model);
    model.archives.comparison.shown.show(texts, height);
    model.is_dirty = true;
}

/// Finds the run that wrote the entry under the cursor, to plan its undo.
pub fn find_run(model: &mut Model) -> Option<Effect> {
    current_path(model).map(Effect::FindEntryRun)
}

/// Plans to put back the memory from before the run that wrote an entry, if that is still the one
/// under the cursor.
pub fn handle_run_found(
    model: &mut Model,
    entry: &Path,
    found: Result<(String, String), String>,
) -> Vec<Effect> {
    let is_here = model.screen == Screen::Archives && current_path(model).as_deref() == Some(entry);
    match found {
        Ok((agent, run)) if is_here => {
            let target = UndoTarget::RunAgents(run, vec![agent]);
            let request = PlanRequest::Undo(target, UndoMode::Refuse);
            request_plan(model, request, false)
        }
        Ok(_) => Vec::new(),
        Err(why) => {
            let key = model.key_hint(Command::OpenPager);
            let text = format!("{why}, so no run can be undone; {key} shows the entry");
            model.report_warning(text);
            Vec::new()
        }
    }
}

/// Pins the entry under the cursor. A pinned one is unpinned by the second of two presses: the key
/// plans a push on other screens, and must not take the pin away for that.
pub fn toggle_pin(model: &mut Model) -> Result<Vec<Effect>, String> {
    let chosen = model.archives.chosen_entry()?;
    let (path, is_pinned) = (chosen.path.to_path_buf(), chosen.is_pinned);
    if is_pinned && model.archives.unpin_request.as_ref() != Some(&path) {
        let key = model.key_hint(Command::TogglePin);
        let text = format!("{} is pinned: {key} again unpins it", path.display());
        model.show_hint(&text);
        model.archives.unpin_request = Some(path);
        return Ok(Vec::new());
    }
    Ok(vec![Effect::SetPinned(path, !is_pinned)])
}

/// Shows that a pin was changed, or why not.
pub fn handle_pinned(
    model: &mut Model,
    entry: &Path,
    is_pinned: bool,
    outcome: Result<(), String>,
) {
    if let Err(why) = outcome {
        return model.report_error(why);
    }
    let path = entry.display();
    let text = if is_pinned {
        format!("pinned {path}: retention never deletes it")
    } else {
        format!("unpinned {path}")
    };
    model.report_info(text);
    model.archives.retention.is_due = true;
    if let Some(Ok(found)) = &mut model.archives.found {
        let entries = found.result.entries.iter_mut();
        for found in entries.filter(|it| it.entry.path == entry) {
            found.is_pinned = is_pinned;
        }
    }
    if let Some(Ok(timeline)) = &mut model.archives.timeline.loaded {
        for row in &mut timeline.rows {
            if let TimelineRow::Entry(found) = row
                && found.path == entry
            {
                found.is_pinned = is_pinned;
            }
        }
    }
    model.is_dirty = true;
}

/// Asks for the path of the new file: at first the path of the entry with dashes, in the directory
/// where the console was started. A run gives the entries of all agents the same name.
pub fn prompt_export_path(model: &mut Model) -> Result<(), String> {
    let entry = model.archives.chosen_entry()?.path.to_path_buf();
    let path = entry.to_string_lossy().replace('/', "-");
    model.input_line = Some(Prompt::with_text(PromptPurpose::ExportPath(entry), path));
    Ok(())
}

/// Exports the entry for which the line was opened; the cursor may be on another one now.
pub fn export_entry(model: &mut Model, entry: PathBuf, path: &str) -> Vec<Effect> {
    let path = path.trim();
    if path.is_empty() {
        model.show_hint("not exported: no file was named");
        return Vec::new();
    }
    vec![Effect::ExportEntry(entry, Path::new(path).to_path_buf())]
}
