//! `keys`: the keys of the console as they are in force.

use std::io;

use serde::Serialize;

use super::output::{Cell, Document, OutputRole, Printer, cell, count};
use super::{CommandContext, CommandResult};
use crate::config::Diagnostic;
use crate::console::command::{self, Category, TABLE};
use crate::console::preferences;
use crate::error::Kind;

/// What `keys` answers.
#[derive(Serialize)]
struct Keys {
    /// The operator's own file, whether it is there or not.
    file: Option<String>,
    keys: Vec<KeyRow>,
    diagnostics: Vec<Diagnostic>,
}

/// One command.
#[derive(Serialize)]
struct KeyRow {
    id: &'static str,
    #[serde(serialize_with = "word")]
    category: Category,
    contexts: Vec<&'static str>,
    keys: Vec<String>,
    #[serde(skip)]
    listed: String,
    default_keys: &'static [&'static str],
    changed: bool,
    title: &'static str,
}

fn word<S: serde::Serializer>(category: &Category, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&category.title().to_lowercase())
}

impl Document for Keys {
    fn text(&self, page: &mut Printer<'_>) -> io::Result<()> {
        let head = ["KEYS", "WHERE", "COMMAND", "WHAT IT DOES"];
        let head = head.map(|word| cell(OutputRole::Head, word));
        let mut rows: Vec<Vec<Cell>> = vec![head.into_iter().collect()];
        rows.extend(self.keys.iter().map(cells));
        page.table(&rows)?;
        let changed = self.keys.iter().filter(|row| row.changed).count();
        let Some(file) = self.file.as_ref().filter(|_| changed > 0) else {
            return Ok(());
        };
        page.plain("")?;
        page.plain(format!("* {} changed by {file}", count(changed, "command")))
    }
}

fn cells(row: &KeyRow) -> Vec<Cell> {
    let keys = match row.listed.as_str() {
        "" => "(none)".to_string(),
        keys => keys.to_string(),
    };
    let (role, mark) = match row.changed {
        true => (OutputRole::Warn, " *"),
        false => (OutputRole::Ours, ""),
    };
    let mut title = row.title.to_string();
    if row.changed {
        title.push_str(&format!(" (by default {})", row.default_keys.join(" ")));
    }
    vec![
        cell(role, keys + mark),
        cell(OutputRole::Dim, row.contexts.join(" ")),
        cell(OutputRole::Plain, row.id),
        cell(OutputRole::Plain, title),
    ]
}

impl CommandContext<'_> {
    pub(super) fn keys(&mut self) -> CommandResult {
        let path = preferences::path(&self.world.env);
        let (preferences, diagnostics) = match &path {
            Some(path) => preferences::load(path),
            None => Default::default(),
        };
        let keymap = &preferences.keymap;
        let mut keys: Vec<KeyRow> = TABLE
            .iter()
            .map(|spec| KeyRow {
                id: spec.id,
                category: spec.category,
                contexts: command::places(spec),
                keys: keymap.texts(spec.command),
                listed: keymap.listed(spec.command),
                default_keys: spec.keys,
                changed: keymap.is_changed(spec.command),
                title: spec.title,
            })
            .collect();
        keys.sort_by_key(|row| row.category);
        self.out.diagnostics(&diagnostics);
        let wrong = !diagnostics.is_empty();
        self.out.document(&Keys {
            file: path.map(|path| path.display().to_string()),
            keys,
            diagnostics,
        })?;
        Ok(wrong.then_some(Kind::Config))
    }
}
