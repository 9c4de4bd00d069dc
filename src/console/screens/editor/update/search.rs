//! The search in the text of the editor.

use super::keep_cursor_visible;
use crate::console::command::Command;
use crate::console::model::Model;

/// Starts a search. Returns the previous query.
pub fn begin_search(model: &mut Model) -> String {
    let editor = model.editor.as_mut();
    editor.map_or_else(String::new, |editor| std::mem::take(&mut editor.query))
}

/// Edits the query of the search.
pub fn edit_search(model: &mut Model, edit: impl FnOnce(&mut String)) {
    if let Some(editor) = &mut model.editor {
        edit(&mut editor.query);
        let query = editor.query.clone();
        editor.buffer.set_query(&query);
    }
}

/// Goes to the first hit from the cursor on. Returns the number of hits.
pub fn finish_search(model: &mut Model) -> usize {
    let Some(editor) = &mut model.editor else {
        return 0;
    };
    editor.hit_count = editor.buffer.count_hits();
    editor.buffer.go_to_hit(true, true);
    keep_cursor_visible(model);
    model.editor.as_ref().map_or(0, |editor| editor.hit_count)
}

/// Goes to the next or previous hit; without a search, shows the key that searches.
pub fn go_to_next_hit(model: &mut Model, is_forward: bool) {
    let Some(editor) = &mut model.editor else {
        return;
    };
    if editor.query.is_empty() {
        let key = model.key_hint(Command::Search);
        model.show_hint(&format!("{key} searches"));
        return;
    }
    if !editor.buffer.go_to_hit(is_forward, false) {
        model.show_hint("no hit");
    }
    keep_cursor_visible(model);
}
