//! Draws the archives: the list, the text under the cursor beside it or alone, and two texts.

mod nothing;
mod retention;
mod timeline;

use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr;

use crate::archive::EntryKind;
use crate::archive::index::CandidateOrder;
use crate::console::age::format_age;
use crate::console::canvas::pane::{draw_number, draw_spans};
use crate::console::canvas::{
    Canvas, fit_end_of_sentence, fit_start_of_sentence, shorten_untrusted, truncate_untrusted,
};
use crate::console::command::Command;
use crate::console::frame::draw_fleet_name;
use crate::console::model::Model;
use crate::console::screens::agent::view::text;
use crate::console::screens::archives::state::retention::{is_disk_full, used_disk_percent};
use crate::console::screens::archives::state::{
    ArchiveRow, ArchivesPage, MIN_PREVIEW_COLUMNS, NO_ENTRY_REASON,
};
use crate::console::text::{Pane, PaneItem, PaneStyle};
use crate::console::theme::Role;
use crate::engine::{FoundLine, SearchResult};
use crate::quantity::{format_count, format_size};
use crate::untrusted;

/// Lines of details below the list.
const DETAIL_LINES: u16 = 1;

/// Cells before the text of a line: its number, and a blank.
pub const GUTTER_CELLS: u16 = 7;

/// Columns of the list, behind the cursor and the mark.
struct ListColumns {
    when: u16,
    agent: u16,
    kind: u16,
    size: u16,
    hits: u16,
}

const WHEN_X: u16 = 2;
const WHEN_WIDTH: u16 = 17;
const KIND_WIDTH: u16 = 9;
const SIZE_WIDTH: u16 = 7;
const HITS_WIDTH: u16 = 5;
const MIN_AGENT_WIDTH: u16 = 10;
const MAX_AGENT_WIDTH: u16 = 24;

impl ListColumns {
    fn new(model: &Model) -> ListColumns {
        let rows = (0..model.archives.row_count()).filter_map(|at| model.archives.row(at));
        let longest = rows
            .take(model.archives.top + model.archives_list_height())
            .skip(model.archives.top)
            .map(|row| untrusted::visible_line(row.agent()).width() as u16 + 1)
            .max();
        let agent = WHEN_X + WHEN_WIDTH;
        let width = longest.unwrap_or(0).clamp(MIN_AGENT_WIDTH, MAX_AGENT_WIDTH);
        let kind = agent + width;
        ListColumns {
            when: WHEN_X,
            agent,
            kind,
            size: kind + KIND_WIDTH,
            hits: kind + KIND_WIDTH + SIZE_WIDTH,
        }
    }

    /// Returns the column behind the list.
    fn end(&self) -> u16 {
        self.hits + HITS_WIDTH
    }
}

pub fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    match model.archives.page {
        ArchivesPage::List => draw_list(model, canvas),
        ArchivesPage::Text => draw_text(model, canvas),
        ArchivesPage::Comparison => draw_comparison(model, canvas),
        ArchivesPage::Timeline => timeline::draw(model, canvas),
        ArchivesPage::Retention | ArchivesPage::RetentionAgent | ArchivesPage::PrunePlan => {
            retention::draw(model, canvas);
        }
    }
}

fn draw_list(model: &Model, canvas: &mut Canvas<'_>) {
    draw_header(model, canvas);
    draw_query(model, canvas);
    canvas.draw_rule(2);
    let bottom = canvas.area.height - 3 - DETAIL_LINES;
    canvas.draw_rule(bottom);
    let columns = ListColumns::new(model);
    let has_preview = canvas.width() >= MIN_PREVIEW_COLUMNS;
    match &model.archives.found {
        None => {
            canvas.put_text(1, 4, "reading …", Role::Dim);
        }
        Some(Err(why)) => {
            let room = usize::from(canvas.width()) - 2;
            canvas.put_text(1, 4, &fit_end_of_sentence(why, room), Role::Bad);
        }
        Some(Ok(_)) if model.archives.row_count() == 0 => nothing::draw(model, canvas),
        Some(Ok(_)) => {
            draw_headings(canvas, &columns);
            let height = model.archives_list_height();
            for line in 0..height {
                let index = model.archives.top + line;
                let Some(row) = model.archives.row(index) else {
                    break;
                };
                draw_row(model, canvas, 4 + line as u16, &columns, index, &row);
            }
        }
    }
    if has_preview && model.archives.row_count() > 0 {
        for y in 3..bottom {
            canvas.put_text(columns.end(), y, "│", Role::Rule);
        }
        let x = columns.end() + 2;
        draw_title(model, canvas, x, 3);
        let area = Rect::new(
            x,
            4,
            canvas.width().saturating_sub(x),
            bottom.saturating_sub(4),
        );
        draw_pane(model, canvas, area);
    }
    draw_details(model, canvas, bottom + 1, has_preview);
}

/// Draws the size of the archive, and how many rows were found.
fn draw_header(model: &Model, canvas: &mut Canvas<'_>) {
    let x = canvas.put_text(0, 0, "ARCHIVES", Role::Title) + 2;
    let x = draw_fleet_name(model, canvas, x, 0);
    let size = model.archives.result().and_then(|it| it.archive_size);
    let size = size.map(|(count, bytes)| {
        let entries = format_count(count, "entry");
        (format!("{entries}  {}", format_size(bytes)), Role::Text)
    });
    let note = found_note(model);
    let room = usize::from(canvas.width().saturating_sub(x)).saturating_sub(note.width() + 2);
    let size_width = size.as_ref().map_or(0, |(text, _)| text.width() + 2);
    // What expires is worth more than the size.
    let parts = match retention_note(model, room.saturating_sub(size_width)) {
        Some(retention) => [size, Some(retention)],
        None => match retention_note(model, room) {
            Some(retention) => [Some(retention), None],
            None => [size, None],
        },
    };
    let mut x = x;
    for (text, role) in parts.into_iter().flatten() {
        x = canvas.put_text(x, 0, &text, role) + 2;
    }
    let room = usize::from(canvas.width().saturating_sub(x));
    let note = fit_start_of_sentence(&note, room);
    canvas.put_right(canvas.width(), 0, &note, Role::Dim);
}

/// Says how many entries expire, in at most `room` cells, if that is known.
fn retention_note(model: &Model, room: usize) -> Option<(String, Role)> {
    let overview = model.archives.retention.shown()?;
    let count = match overview.expiring().count() {
        0 => "none expire".to_string(),
        1 => "1 expires".to_string(),
        count => format!("{count} expire"),
    };
    let days = overview.days;
    let full_disk = used_disk_percent(overview).filter(|_| is_disk_full(overview));
    let (notes, role) = match full_disk {
        Some(percent) => {
            let disk = format!("disk {percent}% full");
            let notes = [format!("{disk}, retention {days}d: {count}"), disk];
            (notes, Role::Bad)
        }
        None => ([format!("retention {days}d: {count}"), count], Role::Text),
    };
    let mut fitting = notes.into_iter().filter(|note| note.width() <= room);
    fitting.next().map(|note| (note, role))
}

/// Says how many rows were found, and what goes on.
fn found_note(model: &Model) -> String {
    let screen = &model.archives;
    if let Some(progress) = screen.progress {
        let bytes = format_size(progress.bytes);
        return format!("indexing: {} entries, {bytes}", progress.entries);
    }
    let Some(result) = screen.result() else {
        return String::new();
    };
    let rows = screen.row_count();
    let plus = if result.has_more() { "+" } else { "" };
    let order = match screen.order {
        CandidateOrder::Relevance if screen.query.is_empty() => "newest first",
        CandidateOrder::Relevance => "best first",
        CandidateOrder::Newest => "newest first",
        CandidateOrder::Oldest => "oldest first",
        CandidateOrder::Largest => "largest first",
    };
    match result.hit_count() {
        0 => format!("{rows}{plus} shown, {order}"),
        1 => format!("1 hit, {order}"),
        hits => format!("{hits}{plus} hits in {rows}{plus}, {order}"),
    }
}

fn draw_query(model: &Model, canvas: &mut Canvas<'_>) {
    let screen = &model.archives;
    let notes = screen.result().into_iter().flat_map(|it| &it.notes);
    let notes: Vec<&str> = screen
        .unknown_findings
        .iter()
        .chain(notes)
        .map(String::as_str)
        .collect();
    if screen.query.is_empty() {
        let key = model.key_hint(Command::Search);
        let usage = format!(
            "{key} searches all that agents wrote: words \"a phrase\" -not begin* /regex/ agent: kind: since: is: in:"
        );
        let room = usize::from(canvas.width());
        let text = join_notes(&notes, room).unwrap_or(usage);
        canvas.put_text(0, 1, &fit_start_of_sentence(&text, room), Role::Dim);
        return;
    }
    let x = canvas.put_text(0, 1, "query: ", Role::Dim);
    let room = usize::from(canvas.width().saturating_sub(x)) / 2;
    let query = shorten_untrusted(&screen.query, room);
    let x = canvas.put_text(x, 1, &query, Role::Heading) + 2;
    let room = usize::from(canvas.width().saturating_sub(x));
    let note = match &screen.query_error {
        Some(error) => {
            let hint = error.hint.iter().map(|hint| format!(": {hint}"));
            Some((format!("{error}{}", hint.collect::<String>()), Role::Warn))
        }
        None => join_notes(&notes, room).map(|text| (text, Role::Dim)),
    };
    if let Some((text, role)) = note {
        canvas.put_text(x, 1, &fit_start_of_sentence(&text, room), role);
    }
}

/// Joins the notes that fit into `room` cells, at least the first, with the number of the others;
/// none without notes.
fn join_notes(notes: &[&str], room: usize) -> Option<String> {
    let joined = |count: usize| {
        let text = notes[..count].join("; ");
        match notes.len() - count {
            0 => text,
            others => format!("(+{others}) {text}"),
        }
    };
    let fits = |text: &String| untrusted::visible_line(text).width() <= room;
    let mut texts = (1..=notes.len()).rev().map(joined);
    let fitting = texts.find(fits);
    fitting.or_else(|| (!notes.is_empty()).then(|| joined(1)))
}

fn draw_headings(canvas: &mut Canvas<'_>, columns: &ListColumns) {
    for (x, title) in [
        (columns.when, "WHEN"),
        (columns.agent, "AGENT"),
        (columns.kind, "KIND"),
    ] {
        canvas.put_text(x, 3, title, Role::Heading);
    }
    canvas.put_right(columns.size + SIZE_WIDTH - 1, 3, "SIZE", Role::Heading);
    canvas.put_right(columns.end() - 1, 3, "HITS", Role::Heading);
}

fn draw_row(
    model: &Model,
    canvas: &mut Canvas<'_>,
    y: u16,
    columns: &ListColumns,
    index: usize,
    row: &ArchiveRow<'_>,
) {
    let is_at_cursor = index == model.archives.cursor;
    if is_at_cursor {
        canvas.put_text(0, y, ">", Role::Text);
    }
    let agent_room = usize::from(columns.kind - columns.agent - 1);
    let agent = shorten_untrusted(row.agent(), agent_room);
    canvas.put_text(columns.agent, y, &agent, Role::Text);
    match row {
        ArchiveRow::Memory(found) => {
            let age = format_age(model.now.local_time, found.read_at);
            canvas.put_text(columns.when, y, &format!("now (read {age})"), Role::Text);
            canvas.put_text(columns.kind, y, "memory", Role::Good);
        }
        ArchiveRow::Entry(found) => {
            if model.archives.is_marked(&found.entry.path) {
                canvas.put_text(1, y, "*", Role::Mark);
            }
            let when = found.time.format("%Y-%m-%d %H:%M").to_string();
            canvas.put_text(columns.when, y, &when, Role::Text);
            let (kind, role) = kind_label(found.entry.kind);
            let x = canvas.put_text(columns.kind, y, kind, role);
            let x = if found.is_pinned {
                canvas.put_text(x, y, "*", Role::Tag)
            } else {
                x
            };
            if model.archives.findings.contains_key(&found.entry.path) {
                canvas.put_text(x, y, "!", Role::Warn);
            }
            let size = format_size(found.entry.size);
            canvas.put_right(columns.size + SIZE_WIDTH - 1, y, &size, Role::Text);
        }
    }
    if let Some(text) = row.hits() {
        let hits = text.hit_count.to_string();
        canvas.put_right(columns.end() - 1, y, &hits, Role::Text);
    }
    if is_at_cursor {
        canvas.highlight_cursor(columns.when, y, columns.kind - columns.when - 1);
    }
}

fn kind_label(kind: EntryKind) -> (&'static str, Role) {
    match kind {
        EntryKind::Scratch => ("scratch", Role::Text),
        EntryKind::FullBackup => ("FULL", Role::Warn),
        EntryKind::Late => ("late", Role::Text),
        EntryKind::Appended => ("appended", Role::Text),
        EntryKind::Special => ("special", Role::Warn),
        EntryKind::Redacted => ("redacted", Role::Text),
    }
}

/// Draws what the text of the row under the cursor is.
fn draw_title(model: &Model, canvas: &mut Canvas<'_>, x: u16, y: u16) {
    let room = usize::from(canvas.width().saturating_sub(x));
    if model.archives.timeline.is_open {
        if let Ok(chosen) = model.archives.chosen_entry() {
            let pinned = if chosen.is_pinned { "  pinned" } else { "" };
            let text = format!("{}{pinned}", chosen.path.display());
            canvas.put_text(x, y, &shorten_untrusted(&text, room), Role::Heading);
        }
        return;
    }
    let Some(row) = model.archives.current_row() else {
        return;
    };
    let text = match row {
        ArchiveRow::Memory(found) => found.address.clone(),
        ArchiveRow::Entry(found) => {
            let left = if found.has_left {
                "  left the config"
            } else {
                ""
            };
            let pinned = if found.is_pinned { "  pinned" } else { "" };
            format!("{}{pinned}{left}", found.entry.path.display())
        }
    };
    let findings = match row {
        ArchiveRow::Memory(_) => None,
        ArchiveRow::Entry(found) => model.archives.describe_findings(&found.entry.path),
    };
    let findings = findings.unwrap_or_default();
    let room = room.saturating_sub(findings.width() + 2);
    let x = canvas.put_text(x, y, &shorten_untrusted(&text, room), Role::Heading) + 2;
    canvas.put_text(x, y, &findings, Role::Warn);
}

/// Draws the text of the row under the cursor.
fn draw_pane(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    let text = &model.archives.text;
    if !text.is_loaded || !model.archives.is_text_current() {
        canvas.put_text(area.x, area.y, "reading …", Role::Dim);
        return;
    }
    draw_pane_rows(model, canvas, area, &text.pane);
}

fn draw_pane_rows(model: &Model, canvas: &mut Canvas<'_>, area: Rect, pane: &Pane) {
    let width = usize::from(area.width.saturating_sub(GUTTER_CELLS)).max(1);
    let style = model.archive_pane_style();
    let marked = &model.archives.text.marked_lines;
    let (mut index, mut skipped) = pane.top;
    let mut y = area.y;
    let current = pane.hits.get(pane.current_hit);
    while y < area.bottom() && index < pane.items.len() {
        let rows = pane.rows(index, width, style);
        for (number, row) in rows.iter().enumerate().skip(skipped) {
            if y >= area.bottom() {
                break;
            }
            if let PaneItem::FullWidth(at) = pane.items[index] {
                let line = &pane.lines[at];
                let x = area.x + GUTTER_CELLS;
                if number == 0 {
                    draw_number(canvas, area.x, y, 4, line.new_number);
                    let is_at_cursor = if model.has_line_cursor() {
                        at == pane.cursor_line
                    } else {
                        current == Some(&index)
                    };
                    if line
                        .new_number
                        .is_some_and(|number| marked.contains(number))
                    {
                        canvas.put_text(area.x + 5, y, "*", Role::Mark);
                    }
                    if is_at_cursor {
                        canvas.put_text(area.x + 4, y, ">", Role::Text);
                    }
                }
                let hit = (!pane.query.is_empty()).then_some(pane.query.as_str());
                draw_spans(canvas, x, y, Some(line), &row.spans, hit);
            }
            y += 1;
        }
        skipped = 0;
        index += 1;
    }
}

/// Draws the line of the first hit where the text is not beside the list, or what to press.
fn draw_details(model: &Model, canvas: &mut Canvas<'_>, y: u16, has_preview: bool) {
    let room = usize::from(canvas.width()) - 2;
    let Some(row) = model.archives.current_row() else {
        let text = match model.archives.current_relaxation() {
            Some(current) => format!("query: {}", current.relaxed.query),
            None => NO_ENTRY_REASON.to_string(),
        };
        canvas.put_text(1, y, &truncate_untrusted(&text, room), Role::Dim);
        return;
    };
    let first = row.hits().and_then(|text| text.lines.first());
    match first {
        Some(line) if !has_preview => draw_found_line(canvas, y, line),
        _ => {
            let source = match row {
                ArchiveRow::Memory(found) => found.address.clone(),
                ArchiveRow::Entry(found) => found.entry.path.display().to_string(),
            };
            let text = match (has_preview, position(model)) {
                (true, Some(position)) => position,
                _ => source,
            };
            canvas.put_text(1, y, &truncate_untrusted(&text, room), Role::Dim);
        }
    }
}

/// Says which hit of how many is shown.
fn position(model: &Model) -> Option<String> {
    let pane = &model.archives.text.pane;
    let shown = model.archives.is_text_current() && !pane.hits.is_empty();
    shown.then(|| {
        let lines = pane.hits.len();
        let [next, previous] =
            [Command::NextHit, Command::PreviousHit].map(|it| model.key_hint(it));
        format!(
            "line {} of {lines} with hits; {next} next, {previous} previous, also in other texts",
            pane.current_hit + 1
        )
    })
}

fn draw_found_line(canvas: &mut Canvas<'_>, y: u16, line: &FoundLine) {
    let mut x = canvas.put_text(1, y, &format!("{} ", line.number), Role::Number);
    let mut end = 0;
    let mut put = |canvas: &mut Canvas<'_>, bytes: &[u8], role: Role| {
        let room = usize::from(canvas.width().saturating_sub(x));
        let text = truncate_untrusted(&String::from_utf8_lossy(bytes), room);
        x = canvas.put_text(x, y, &text, role);
    };
    for hit in &line.hits {
        let start = hit.start.clamp(end, line.bytes.len());
        put(canvas, &line.bytes[end..start], Role::Text);
        end = hit.end.clamp(start, line.bytes.len());
        put(canvas, &line.bytes[start..end], Role::Hit);
    }
    put(canvas, &line.bytes[end..], Role::Text);
}

fn draw_text(model: &Model, canvas: &mut Canvas<'_>) {
    draw_title(model, canvas, 0, 0);
    let screen = &model.archives;
    let (at, rows) = if screen.timeline.is_open {
        (screen.timeline.cursor + 1, screen.timeline.rows().len())
    } else {
        (screen.cursor + 1, screen.row_count())
    };
    if let Some(agent) = screen.subject_agent() {
        let text = format!("{agent}  [{at} of {rows}]");
        let room = usize::from(canvas.width());
        canvas.put_text(0, 1, &fit_start_of_sentence(&text, room), Role::Text);
    }
    if let Some(position) = position(model) {
        let room = usize::from(canvas.width()) / 2;
        let text = fit_start_of_sentence(&position, room);
        canvas.put_right(canvas.width(), 1, &text, Role::Dim);
    }
    canvas.draw_rule(2);
    let height = model.archive_text_height() as u16;
    let area = Rect::new(0, 3, canvas.width(), height);
    draw_pane(model, canvas, area);
    canvas.draw_rule(canvas.area.height - 4);
}

fn draw_comparison(model: &Model, canvas: &mut Canvas<'_>) {
    let view = &model.archives.comparison;
    let (added, removed) = view.changed_lines;
    let entry = view
        .request
        .as_ref()
        .map(|it| it.entry.display().to_string());
    let room = usize::from(canvas.width()) / 2;
    let title = shorten_untrusted(&entry.unwrap_or_default(), room);
    canvas.put_text(0, 0, &title, Role::Title);
    if view.is_loaded {
        let pane = &view.pane;
        let hunk = pane
            .current_hunk(model.text_height())
            .map_or(0, |at| at + 1);
        let hunks = pane.hunks.len();
        let note = format!("+{added} -{removed}  hunk {hunk}/{hunks}");
        canvas.put_right(canvas.width(), 0, &note, Role::Text);
    }
    let [old, new] = &view.titles;
    let text = fit_start_of_sentence(&format!("{old} -> {new}"), usize::from(canvas.width()));
    canvas.put_text(0, 1, &text, Role::Heading);
    canvas.draw_rule(2);
    if model.is_side_by_side() {
        text::draw_side_titles(model, canvas, 3, &view.titles);
        text::draw(model, canvas, 4);
    } else {
        text::draw(model, canvas, 3);
    }
    let bottom = canvas.area.height - 4;
    canvas.draw_rule(bottom);
    let key = model.key_hint(Command::NextVersion);
    let text =
        format!("{key} compares with the memory, the baseline of that run, or the marked entry");
    canvas.put_text(1, bottom + 1, &text, Role::Dim);
}

impl Model {
    /// Returns the rows of the list.
    pub fn archives_list_height(&self) -> usize {
        // Two lines of header, a rule, the headings; a rule, details, the message, the hints.
        let footer = match self.archives.page {
            ArchivesPage::PrunePlan => retention::PLAN_FOOTER_LINES,
            _ => 3 + DETAIL_LINES,
        };
        let fixed = 4 + usize::from(footer);
        usize::from(self.size.1).saturating_sub(fixed).max(1)
    }

    /// Returns the rows of the text under the cursor.
    pub fn archive_text_height(&self) -> usize {
        match self.archives.page {
            page if !page.has_text() => self.archives_list_height(),
            _ => usize::from(self.size.1).saturating_sub(7).max(1),
        }
    }

    /// Returns how the text of an entry is laid out.
    pub fn archive_pane_style(&self) -> PaneStyle {
        PaneStyle {
            is_wrapping: self.agent.is_wrapping,
            is_whitespace_marked: self.agent.is_whitespace_marked,
            is_prose: true,
            has_word_marks: self.has_word_marks,
            half_width: 0,
        }
    }
}

/// Returns the ages on the screen.
pub fn visible_ages(model: &Model) -> Vec<String> {
    let shown = model.archives.result();
    let shown = shown.filter(|_| model.archives.page == ArchivesPage::List);
    let memories = shown.into_iter().flat_map(memories_of);
    let ages = memories.map(|read_at| format_age(model.now.local_time, read_at));
    ages.collect()
}

fn memories_of(
    result: &SearchResult,
) -> impl Iterator<Item = chrono::DateTime<chrono::FixedOffset>> + '_ {
    result.memories.iter().map(|found| found.read_at)
}
