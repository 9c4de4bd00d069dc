//! Draws the Memory tab: the collections, the items of one, and, where there is room, the content of the
//! item under the cursor.

use std::os::unix::ffi::OsStrExt;

use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr;

use super::agent_list_height;
use crate::base::quantity::{format_count, format_size};
use crate::base::untrusted;
use crate::console::age::format_age;
use crate::console::model::Model;
use crate::console::model::visible_text::text_pane;
use crate::console::screens::agent::state::memory::{ItemList, OpenedMemory};
use crate::console::theme::Role;
use crate::console::widgets::canvas::{
    Canvas, fit_start_of_sentence, shorten_untrusted, truncate, truncate_untrusted,
};
use crate::console::widgets::list_pane::{
    Columns, MIN_PREVIEW_COLUMNS, NO_HIGHLIGHT, draw_unloaded,
};
use crate::layouts::MemoryItem;

/// Rows beside the lists: header, status and headings; a rule, the details, the message, the hints.
pub const FRAME_ROWS: usize = 9;

/// The row of the status; the headings and the lists are below it.
const STATUS_ROW: u16 = 3;

/// Cells of a filter that are shown at most.
const MAX_FILTER_CELLS: usize = 20;

/// Cells that sizes and ages take.
const SIZE_CELLS: u16 = 7;
const AGE_CELLS: u16 = 9;

/// Where the lists begin and end.
struct ListLayout {
    /// First column of the items.
    items: u16,
    /// Column behind the items.
    end: u16,
    /// First column of the content, if it is shown beside the lists.
    content: Option<u16>,
}

impl ListLayout {
    fn new(width: u16) -> ListLayout {
        if width < MIN_PREVIEW_COLUMNS {
            return ListLayout {
                items: (width / 4).max(16),
                end: width,
                content: None,
            };
        }
        let items = 24;
        let end = items + (width - items) * 11 / 20;
        ListLayout {
            items,
            end,
            content: Some(end + 2),
        }
    }
}

pub fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    let bottom = canvas.area.height - 4;
    canvas.draw_rule(bottom);
    let memory = &model.agent.memory;
    let Some(opened) = draw_unloaded(canvas, STATUS_ROW, memory.opened.as_ref()) else {
        return;
    };
    let layout = ListLayout::new(canvas.width());
    draw_status(model, canvas, opened);
    draw_collections(model, canvas, &layout);
    canvas.draw_divider(layout.items - 1, STATUS_ROW + 1..bottom);
    draw_items(model, canvas, &layout);
    if let Some(x) = layout.content {
        canvas.draw_divider(x - 2, STATUS_ROW + 1..bottom);
        draw_content(model, canvas, x);
    }
    draw_details(model, canvas, bottom + 1);
}

/// Draws which memory is shown, how much of it is read, and when that was.
fn draw_status(model: &Model, canvas: &mut Canvas<'_>, opened: &OpenedMemory) {
    let items = &model.agent.memory.items;
    let y = STATUS_ROW;
    let mut x = canvas.put_text(1, y, opened.layout, Role::Text) + 2;
    let (count, role) = describe_count(items);
    x = canvas.put_start(x, y, &count, role) + 2;
    let Some(read_at) = items.read_at else {
        return;
    };
    let age = format_age(model.now.local_time, read_at);
    x = canvas.put_text(x, y, &format!("read {age} ago"), Role::Dim) + 2;
    let row = model.find_row(&model.agent.agent);
    let Some(location) = row.and_then(|row| row.layout_location("".as_ref())) else {
        return;
    };
    let location = untrusted::visible_line(location.as_bytes());
    if location.width() <= canvas.room(x + 1) {
        canvas.put_right(canvas.width() - 1, y, &location, Role::Dim);
    }
}

/// Says how many items are read and shown, and whether there are more.
fn describe_count(items: &ItemList) -> (String, Role) {
    let count = format_count(items.loaded.len() as u64, "item");
    let all = if items.is_complete && items.failure.is_none() {
        count
    } else {
        format!("{count} read")
    };
    let mut text = if items.filter.is_empty() {
        all
    } else {
        // The whole text is made visible where it is drawn.
        let filter = truncate(&items.filter, MAX_FILTER_CELLS);
        format!("filter: {filter}  {} of {all}", items.shown.len())
    };
    if let Some(why) = &items.failure {
        return (format!("{text}; cannot read the rest: {why}"), Role::Bad);
    }
    if !items.order.describe().is_empty() {
        text.push_str(", ");
        text.push_str(items.order.describe());
    }
    if items.is_outdated || items.is_reading() {
        text.push_str(", reading …");
    } else if !items.is_complete {
        text.push_str(", more follow");
    }
    (text, Role::Text)
}

fn draw_collections(model: &Model, canvas: &mut Canvas<'_>, layout: &ListLayout) {
    let memory = &model.agent.memory;
    let width = layout.items - 3;
    canvas.put_text(2, STATUS_ROW + 1, "COLLECTION", Role::Heading);
    let collections = memory.collections();
    if collections.is_empty() {
        canvas.put_text(2, STATUS_ROW + 2, "none", Role::Dim);
    }
    let extent = (collections.len(), agent_list_height(model));
    let list = &memory.collection_list;
    list.draw(canvas, STATUS_ROW + 2, extent, |canvas, y, index| {
        let title = truncate_untrusted(&collections[index].name, usize::from(width));
        canvas.put_text(2, y, &title, Role::Text);
        if memory.has_collection_focus {
            2..2 + width
        } else {
            NO_HIGHLIGHT
        }
    });
}

fn draw_items(model: &Model, canvas: &mut Canvas<'_>, layout: &ListLayout) {
    let memory = &model.agent.memory;
    let items = &memory.items;
    let (x, y) = (layout.items, STATUS_ROW + 1);
    let title_cells = (layout.end - x).saturating_sub(SIZE_CELLS + AGE_CELLS + 3);
    let columns = Columns::from_x(x + 2)
        .left("ITEM", title_cells)
        .right("SIZE", SIZE_CELLS)
        .right("CHANGED", AGE_CELLS);
    columns.draw_headings(canvas, y);
    if items.shown.is_empty() {
        let note = match (items.is_complete, items.loaded.is_empty()) {
            _ if items.failure.is_some() => "",
            (_, false) => "No loaded item matches the filter; Esc clears it.",
            (true, true) => "No items.",
            (false, true) => "reading …",
        };
        let room = usize::from(layout.end - x - 2);
        let text = fit_start_of_sentence(note, room);
        canvas.put_text(x + 2, y + 1, &text, Role::Dim);
        return;
    }
    let extent = (items.shown.len(), agent_list_height(model));
    let list = &items.list;
    list.draw_at(canvas, (x, y + 1), extent, |canvas, y, index| {
        if let Some(item) = items.shown_item(index) {
            draw_item(model, canvas, y, &columns, item);
        }
        if memory.has_collection_focus {
            NO_HIGHLIGHT
        } else {
            columns.x(0)..columns.x(1) - 1
        }
    });
}

fn draw_item(model: &Model, canvas: &mut Canvas<'_>, y: u16, columns: &Columns, item: &MemoryItem) {
    let age = item
        .modified
        .map(|then| format_age(model.now.local_time, then));
    let title = match item.title.trim() {
        "" => item.id.as_str(),
        title => title,
    };
    let role = match item.failure {
        Some(_) => Role::Bad,
        None if item.visible_to == "none" => Role::Warn,
        None => Role::Text,
    };
    let cells = [
        (title, role),
        (&*format_size(item.bytes), Role::Text),
        (&*age.unwrap_or_default(), Role::Dim),
    ];
    columns.draw_row(canvas, y, cells);
}

/// Draws the content of the item under the cursor beside the lists.
fn draw_content(model: &Model, canvas: &mut Canvas<'_>, x: u16) {
    let content = &model.agent.memory.content;
    let y = STATUS_ROW + 1;
    let Some(item) = content.item().filter(|_| model.agent.has_current_content()) else {
        return;
    };
    let title = shorten_untrusted(item, canvas.room(x));
    canvas.put_text(x, y, &title, Role::Heading);
    if content.pane.lines.is_empty() {
        canvas.put_text(x, y + 1, "reading …", Role::Dim);
        return;
    }
    let height = agent_list_height(model) as u16;
    let area = Rect::new(x, y + 1, canvas.width() - x, height);
    text_pane(model).draw(canvas, area);
}

/// Draws the file of the item under the cursor or on the screen, its size, its age and who may see it.
/// Of an open item that is not in the list any more, only its id is known.
pub fn draw_details(model: &Model, canvas: &mut Canvas<'_>, y: u16) {
    let memory = &model.agent.memory;
    let Some(item) = memory.subject_item() else {
        let id = shorten_untrusted(memory.subject_id().unwrap_or_default(), canvas.room(2));
        canvas.put_text(1, y, &id, Role::Text);
        return;
    };
    let path = item.path.display().to_string();
    let mut parts = Vec::new();
    parts.extend((!path.contains(&item.id)).then(|| item.id.clone()));
    parts.push(path);
    parts.extend(
        item.failure
            .as_ref()
            .map(|why| format!("cannot read it: {why}")),
    );
    let is_restricted = item.visible_to != "all";
    parts.extend(is_restricted.then(|| format!("visible to {}", item.visible_to)));
    parts.extend((!item.labels.is_empty()).then(|| item.labels.join(" ")));
    parts.push(format_count(item.bytes, "byte"));
    let changed = item.modified.map(|time| time.format("%Y-%m-%d %H:%M"));
    parts.extend(changed.map(|time| format!("changed {time}")));
    canvas.put_start(1, y, &parts.join(" · "), Role::Text);
}
