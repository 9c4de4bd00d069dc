//! Draws why the list is empty: the query in words, and the nearest queries that find something.

use super::outdated_note;
use crate::archive::search::describe_query;
use crate::console::command::Command;
use crate::console::model::Model;
use crate::console::theme::Role;
use crate::console::widgets::canvas::{Canvas, truncate_untrusted};

/// Lines that the query in words has at most.
const MAX_QUERY_LINES: usize = 3;

/// Columns of the counts, from the right.
const COUNT_WIDTH: u16 = 24;

pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    let screen = &model.archives;
    if screen.is_outdated() {
        canvas.put_text(1, 4, outdated_note(model), Role::Dim);
        return;
    }
    let query = match &screen.found {
        Some(Ok(found)) => found.query.as_str(),
        _ => "",
    };
    if query.trim().is_empty() {
        let text = "No archives yet; the first reset creates one.";
        canvas.put_text(1, 4, text, Role::Text);
        return;
    }
    let terms = describe_query(query, model.now.local_time).join(" · ");
    let text = format!("Nothing matches: {terms}");
    let mut y = canvas.put_wrapped(1, 4, &text, Role::Text, MAX_QUERY_LINES) + 1;
    let rows = match &screen.relaxations {
        None => {
            canvas.put_text(1, y, "looking for the nearest queries …", Role::Dim);
            return;
        }
        Some(Err(why)) => {
            let text = format!("the nearest queries are not known: {why}");
            canvas.put_end(1, y, &text, Role::Bad);
            return;
        }
        Some(Ok(rows)) => rows,
    };
    if rows.is_empty() {
        let text = "No query with one term less finds anything. Esc shows all entries.";
        canvas.put_start(1, y, text, Role::Dim);
        return;
    }
    let key = model.key_hint(Command::OpenSelected);
    let text = format!("These queries find something; {key} searches the one under the cursor:");
    canvas.put_start(1, y, &text, Role::Heading);
    let end = canvas.width().min(100);
    let bottom = canvas.area.height - 4;
    for (index, row) in rows.iter().enumerate() {
        y += 1;
        if y >= bottom {
            break;
        }
        let room = usize::from(end.saturating_sub(COUNT_WIDTH + 3));
        let text = truncate_untrusted(&row.describe(), room);
        let x = canvas.put_text(2, y, &text, Role::Text);
        canvas.put_right(end, y, &row.describe_count(), Role::Text);
        if index == screen.relaxation_cursor {
            canvas.put_text(0, y, ">", Role::Text);
            canvas.highlight_cursor(2..x, y);
        }
    }
}
