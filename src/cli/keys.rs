//! `keys`: the effective keys of the console.

use std::io;

use serde::Serialize;

use super::output::{
    Document, OutputRole, Printer, TableCell, format_count, heading_cells, notice, text_cell, warn,
};
use super::{CommandContext, CommandResult};
use crate::base::error::ErrorKind;
use crate::config::Diagnostic;
use crate::console::command::{self, COMMAND_TABLE, CommandCategory};
use crate::console::preferences;

/// The answer of `keys`.
#[derive(Serialize)]
struct KeysDocument {
    /// Path of the user's preferences file, whether or not it exists.
    file: Option<String>,
    keys: Vec<KeyRow>,
    diagnostics: Vec<Diagnostic>,
}

/// One command with its keys.
#[derive(Serialize)]
struct KeyRow {
    id: &'static str,
    #[serde(serialize_with = "serialize_category")]
    category: CommandCategory,
    contexts: Vec<&'static str>,
    keys: Vec<String>,
    #[serde(skip)]
    keys_label: String,
    default_keys: &'static [&'static str],
    changed: bool,
    title: &'static str,
    /// The title, and where one of the keys means another command.
    #[serde(skip)]
    description: String,
}

fn serialize_category<S: serde::Serializer>(
    category: &CommandCategory,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(category.id())
}

impl Document for KeysDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        let titles = ["KEYS", "CONTEXT", "COMMAND", "ACTION"];
        let mut rows = vec![heading_cells(&titles, &[])];
        rows.extend(self.keys.iter().map(key_row_cells));
        printer.write_table(&rows)?;
        let changed = self.keys.iter().filter(|row| row.changed).count();
        let Some(file) = self.file.as_ref().filter(|_| changed > 0) else {
            return Ok(());
        };
        printer.write_plain_line("")?;
        let commands = format_count(changed, "command");
        printer.write_plain_line(format!("* {commands} changed by {file}"))
    }
}

fn key_row_cells(row: &KeyRow) -> Vec<TableCell> {
    let keys = match row.keys_label.as_str() {
        "" => "(none)".to_string(),
        keys => keys.to_string(),
    };
    let (role, mark) = if row.changed { warn(" *") } else { notice("") };
    let mut title = row.description.clone();
    if row.changed {
        title.push_str(&format!(" (default: {})", row.default_keys.join(" ")));
    }
    vec![
        text_cell(role, keys + mark),
        text_cell(OutputRole::Dim, row.contexts.join(" ")),
        text_cell(OutputRole::Plain, row.id),
        text_cell(OutputRole::Plain, title),
    ]
}

pub(super) fn run(context: &mut CommandContext<'_>) -> CommandResult {
    let path = preferences::default_path(&context.environment.env);
    let (preferences, diagnostics) = match &path {
        Some(path) => preferences::load(path),
        None => Default::default(),
    };
    let keymap = &preferences.keymap;
    let mut keys: Vec<KeyRow> = COMMAND_TABLE
        .iter()
        .map(|spec| KeyRow {
            id: spec.id,
            category: spec.category,
            contexts: command::context_labels(spec),
            keys: keymap.sequence_texts(spec.command),
            keys_label: keymap.joined_sequences(spec.command),
            default_keys: spec.keys,
            changed: keymap.is_overridden(spec.command),
            title: spec.title,
            description: keymap.title_with_exceptions(spec.command),
        })
        .collect();
    keys.sort_by_key(|row| row.category);
    context.output.print_diagnostics(&diagnostics);
    let has_diagnostics = !diagnostics.is_empty();
    context.print_document(&KeysDocument {
        file: path.map(|path| path.display().to_string()),
        keys,
        diagnostics,
    })?;
    Ok(has_diagnostics.then_some(ErrorKind::Config))
}
