//! Draws the archives: the list, the text under the cursor beside it or alone, and two texts.

mod nothing;
mod retention;
mod timeline;

use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr;

use crate::archive::EntryKind;
use crate::archive::index::CandidateOrder;
use crate::base::quantity::{format_count, format_size};
use crate::base::untrusted;
use crate::console::age::format_age;
use crate::console::command::Command;
use crate::console::frame::{draw_compared_texts, draw_fleet_name};
use crate::console::model::Model;
use crate::console::model::visible_text::{text_height, text_pane};
use crate::console::screens::archives::state::retention::{is_disk_full, used_disk_percent};
use crate::console::screens::archives::state::{ArchiveRow, ArchivesPage, NO_ENTRY_REASON};
use crate::console::theme::Role;
use crate::console::widgets::canvas::{
    Canvas, fit_start_of_sentence, shorten_untrusted, truncate_untrusted,
};
use crate::console::widgets::list_pane::MIN_PREVIEW_COLUMNS;
use crate::console::widgets::list_pane::{Columns, Fit, draw_unloaded};
use crate::engine::{FoundLine, SearchResult};

/// Lines of details below the list.
const DETAIL_LINES: u16 = 1;

const MIN_AGENT_WIDTH: u16 = 10;
const MAX_AGENT_WIDTH: u16 = 24;
const MIN_HITS_WIDTH: u16 = 5;

/// Returns the columns of the list: as wide as names and numbers of hits of the visible rows need.
fn columns(model: &Model) -> Columns {
    let screen = &model.archives;
    let visible = screen
        .list
        .visible(screen.row_count(), archives_list_height(model));
    let rows: Vec<ArchiveRow<'_>> = visible.filter_map(|at| screen.row(at)).collect();
    let names = rows.iter().map(|row| untrusted::visible_line(row.agent()));
    let width = names.map(|name| name.width() as u16 + 1).max().unwrap_or(0);
    let hits = rows.iter().map(|row| hit_count(row).len() as u16 + 1).max();
    Columns::from_x(2)
        .left("WHEN", 17)
        .left("AGENT", width.clamp(MIN_AGENT_WIDTH, MAX_AGENT_WIDTH))
        .fitted(Fit::Middle)
        .left("KIND", 9)
        .right("SIZE", 6)
        .right("HITS", hits.unwrap_or(0).max(MIN_HITS_WIDTH))
        .gap(1)
}

pub fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    match model.archives.page {
        ArchivesPage::List => draw_list(model, canvas),
        ArchivesPage::Text => draw_text(model, canvas),
        ArchivesPage::Comparison => draw_comparison(model, canvas),
        ArchivesPage::Timeline => timeline::draw(model, canvas),
        ArchivesPage::Retention | ArchivesPage::RetentionAgent => {
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
    let columns = columns(model);
    let has_preview = canvas.width() >= MIN_PREVIEW_COLUMNS;
    let found = draw_unloaded(canvas, 4, model.archives.found.as_ref());
    if found.is_some() && model.archives.row_count() == 0 {
        nothing::draw(model, canvas);
    } else if found.is_some() {
        columns.draw_headings(canvas, 3);
        let list = &model.archives.list;
        let extent = (model.archives.row_count(), archives_list_height(model));
        list.draw(canvas, 4, extent, |canvas, y, index| {
            if let Some(row) = model.archives.row(index) {
                draw_row(model, canvas, y, &columns, &row);
            }
            columns.x(0)..columns.x(2) - 1
        });
    }
    if has_preview && model.archives.row_count() > 0 {
        canvas.draw_divider(columns.end(), 3..bottom);
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
    let room = canvas.room(x).saturating_sub(note.width() + 2);
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
    let note = fit_start_of_sentence(&note, canvas.room(x));
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
    if screen.is_outdated() {
        return outdated_note(model).to_string();
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

/// Says why the rows are those of another query.
fn outdated_note(model: &Model) -> &'static str {
    if model.archives.query_error.is_some() {
        "not searched; earlier rows"
    } else {
        "searching …; earlier rows"
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
        let text = join_notes(&notes, canvas.room(0)).unwrap_or(usage);
        canvas.put_start(0, 1, &text, Role::Dim);
        return;
    }
    let x = canvas.put_text(0, 1, "query: ", Role::Dim);
    let room = canvas.room(x) / 2;
    let query = shorten_untrusted(&screen.query, room);
    let x = canvas.put_text(x, 1, &query, Role::Heading) + 2;
    let room = canvas.room(x);
    let note = match &screen.query_error {
        Some(error) => {
            let hint = error.hint.iter().map(|hint| format!(": {hint}"));
            Some((format!("{error}{}", hint.collect::<String>()), Role::Warn))
        }
        None => join_notes(&notes, room).map(|text| (text, Role::Dim)),
    };
    if let Some((text, role)) = note {
        canvas.put_start(x, 1, &text, role);
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

fn draw_row(
    model: &Model,
    canvas: &mut Canvas<'_>,
    y: u16,
    columns: &Columns,
    row: &ArchiveRow<'_>,
) {
    let hits = hit_count(row);
    let (when, kind, size) = match row {
        ArchiveRow::Memory(found) => {
            let age = format_age(model.now.local_time, found.read_at);
            (
                format!("now (read {age})"),
                ("memory", Role::Good),
                String::new(),
            )
        }
        ArchiveRow::File(found) => (
            found.modified.format("%Y-%m-%d %H:%M").to_string(),
            (found.layout.as_str(), Role::Good),
            format_size(found.size),
        ),
        ArchiveRow::Entry(found) => (
            found.time.format("%Y-%m-%d %H:%M").to_string(),
            kind_label(found.entry.kind),
            format_size(found.entry.size),
        ),
    };
    let cells = [
        (&*when, Role::Text),
        (row.agent(), Role::Text),
        kind,
        (&*size, Role::Text),
        (&*hits, Role::Text),
    ];
    columns.draw_row(canvas, y, cells);
    if let ArchiveRow::Entry(found) = row {
        if model.archives.is_marked(&found.entry.path) {
            canvas.put_text(1, y, "*", Role::Mark);
        }
        let mut x = columns.x(2) + kind.0.len() as u16;
        if found.is_pinned {
            x = canvas.put_text(x, y, "*", Role::Tag);
        }
        if model.archives.findings.contains_key(&found.entry.path) {
            canvas.put_text(x, y, "!", Role::Warn);
        }
    }
}

/// Returns the number of hits of a row; empty where the query looks at no texts.
fn hit_count(row: &ArchiveRow<'_>) -> String {
    row.hits()
        .map_or_else(String::new, |text| text.hit_count.to_string())
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
    let room = canvas.room(x);
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
        ArchiveRow::File(found) => found.title.clone(),
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
        ArchiveRow::Memory(_) | ArchiveRow::File(_) => None,
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
    text_pane(model).draw(canvas, area);
}

/// Draws the line of the first hit where the text is not beside the list, or what to press.
fn draw_details(model: &Model, canvas: &mut Canvas<'_>, y: u16, has_preview: bool) {
    let Some(row) = model.archives.current_row() else {
        let text = match model.archives.current_relaxation() {
            Some(current) => format!("query: {}", current.relaxed.query),
            None => NO_ENTRY_REASON.to_string(),
        };
        canvas.put_truncated(1, y, &text, Role::Dim);
        return;
    };
    let first = row.hits().and_then(|text| text.lines.first());
    match first {
        Some(line) if !has_preview => draw_found_line(canvas, y, line),
        _ => {
            let source = match row {
                ArchiveRow::Memory(found) => found.address.clone(),
                ArchiveRow::File(found) => found.address.clone(),
                ArchiveRow::Entry(found) => found.entry.path.display().to_string(),
            };
            let text = match (has_preview, position(model)) {
                (true, Some(position)) => position,
                _ => source,
            };
            canvas.put_truncated(1, y, &text, Role::Dim);
        }
    }
}

/// Says which hit of how many is shown.
fn position(model: &Model) -> Option<String> {
    let pane = &model.archives.text.pane;
    let shown = model.archives.is_text_current() && !pane.hits.is_empty();
    let key = model.key_hint(Command::OpenPager);
    let has_more = model.archives.has_unloaded_hits();
    if !shown {
        let text = format!("its hits are behind what is loaded; {key} opens the whole text");
        return has_more.then_some(text);
    }
    let lines = pane.hits.len();
    let more = if has_more {
        format!(" loaded; {key} shows further hits")
    } else {
        String::new()
    };
    let [next, previous] = [Command::NextHit, Command::PreviousHit].map(|it| model.key_hint(it));
    Some(format!(
        "line {} of {lines} with hits{more}; {next} next, {previous} previous, also in other texts",
        pane.current_hit + 1
    ))
}

fn draw_found_line(canvas: &mut Canvas<'_>, y: u16, line: &FoundLine) {
    let mut x = canvas.put_text(1, y, &format!("{} ", line.number), Role::Number);
    let mut end = 0;
    let mut put = |canvas: &mut Canvas<'_>, bytes: &[u8], role: Role| {
        let text = truncate_untrusted(&String::from_utf8_lossy(bytes), canvas.room(x));
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
        (
            screen.timeline.list.cursor + 1,
            screen.timeline.rows().len(),
        )
    } else {
        (screen.list.cursor + 1, screen.row_count())
    };
    if let Some(agent) = screen.subject_agent() {
        let text = format!("{agent}  [{at} of {rows}]");
        canvas.put_start(0, 1, &text, Role::Text);
    }
    if let Some(position) = position(model) {
        let text = fit_start_of_sentence(&position, canvas.room(0) / 2);
        canvas.put_right(canvas.width(), 1, &text, Role::Dim);
    }
    canvas.draw_rule(2);
    let height = archive_text_height(model) as u16;
    let area = Rect::new(0, 3, canvas.width(), height);
    draw_pane(model, canvas, area);
    canvas.draw_rule(canvas.area.height - 4);
}

fn draw_comparison(model: &Model, canvas: &mut Canvas<'_>) {
    let view = &model.archives.comparison;
    let (added, removed) = view.shown.changed_lines;
    let entry = view
        .request
        .as_ref()
        .map(|it| it.entry.display().to_string());
    let title = shorten_untrusted(&entry.unwrap_or_default(), canvas.room(0) / 2);
    canvas.put_text(0, 0, &title, Role::Title);
    if view.shown.is_loaded {
        let hunk = view.shown.pane.describe_hunk(text_height(model));
        let hunk = hunk.unwrap_or_else(|| "hunk 0/0".to_string());
        let note = format!("+{added} -{removed}  {hunk}");
        canvas.put_right(canvas.width(), 0, &note, Role::Text);
    }
    let [old, new] = &view.shown.titles;
    canvas.put_start(0, 1, &format!("{old} -> {new}"), Role::Heading);
    canvas.draw_rule(2);
    draw_compared_texts(model, canvas, 3, &view.shown.titles);
    let bottom = canvas.area.height - 4;
    canvas.draw_rule(bottom);
    let key = model.key_hint(Command::NextVersion);
    let text =
        format!("{key} compares with the memory, the baseline of that run, or the marked entry");
    canvas.put_text(1, bottom + 1, &text, Role::Dim);
}

/// Returns the rows of the list.
pub fn archives_list_height(model: &Model) -> usize {
    // Two lines of header, a rule, the headings; a rule, details, the message, the hints.
    let footer = if model.archives.has_prune_plan() {
        retention::PLAN_FOOTER_LINES
    } else {
        3 + DETAIL_LINES
    };
    model.rows_beside(4 + usize::from(footer))
}

/// Returns the rows of the text under the cursor.
pub fn archive_text_height(model: &Model) -> usize {
    match model.archives.page {
        page if !page.has_text() => archives_list_height(model),
        _ => model.rows_beside(7),
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
