//! Export of an entry to a file that the operator names.

use std::path::{Path, PathBuf};

use crate::console::message::Effect;
use crate::console::model::Model;
use crate::console::overlay::InputLine;

/// Asks for the path of the new file: at first the path of the entry with dashes, in the directory
/// where the console was started. A run gives the entries of all agents the same name.
pub fn prompt_path(model: &mut Model) {
    match model.archives.chosen_entry() {
        Ok(chosen) => {
            let entry = chosen.path.to_path_buf();
            let path = entry.to_string_lossy().replace('/', "-");
            model.input_line = Some(InputLine::ExportPath { entry, path });
        }
        Err(why) => model.show_hint(&why),
    }
}

/// Exports the entry for which the line was opened; the cursor may be on another one now.
pub fn finish(model: &mut Model, entry: PathBuf, path: &str) -> Vec<Effect> {
    let path = path.trim();
    if path.is_empty() {
        model.show_hint("not exported: no file was named");
        return Vec::new();
    }
    vec![Effect::ExportEntry(entry, Path::new(path).to_path_buf())]
}
