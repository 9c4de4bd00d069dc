//! The search in the text of the editor.

use super::jump_in_text;
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
        editor.hit_count = editor.buffer.count_hits();
    }
}

/// Goes to the first hit from the cursor on. Returns the number of hits.
pub fn finish_search(model: &mut Model) -> usize {
    jump_in_text(model, |text| {
        text.go_to_hit(true, true);
    });
    model.editor.as_ref().map_or(0, |editor| editor.hit_count)
}

/// Goes to the next or previous hit; without a search, shows the key that searches.
pub fn go_to_next_hit(model: &mut Model, is_forward: bool) {
    let Some(editor) = &model.editor else {
        return;
    };
    if editor.query.is_empty() {
        let key = model.key_hint(Command::Search);
        model.show_hint(&format!("{key} searches"));
        return;
    }
    let mut is_found = false;
    jump_in_text(model, |text| is_found = text.go_to_hit(is_forward, false));
    if !is_found {
        model.show_hint("no hit");
    }
}
