//! Preferences: the operator's file `console.toml` with keys, theme, columns and named
//! filters, which override the defaults. Reports all errors at once, each with its line; an
//! invalid setting leaves its default in force. Does not watch the file.

pub mod setting_error;
pub(in crate::console) mod toml_source;

use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::command::{self, COMMAND_TABLE, Command};
use super::filter;
use super::theme::{self, ColourDepth, Themes};
use crate::base::{durable, error};
use crate::config::{ConfigEnvironment, Diagnostic, DiagnosticLevel};
use crate::console::keys::key::{self, Key, format_sequence};
use crate::console::keys::keymap::{self, KeyConflict, Keymap};
use crate::console::preferences::setting_error::SettingError;
use crate::console::preferences::toml_source::{TomlEntry, TomlSource, table_entries};
use crate::console::screens::fleet::columns::{self, COLUMN_LAYOUTS, FleetColumn};

/// Name of the preferences file.
pub const PREFERENCES_FILE_NAME: &str = "console.toml";

/// Maximum size of the preferences file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Settings of the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preferences {
    /// The keys of all commands.
    pub keymap: Keymap,
    /// The theme; `None` leaves the choice to the config.
    pub theme: Option<String>,
    /// The columns of the fleet.
    pub columns: Vec<FleetColumn>,
    /// Filters by name, in the order of the file.
    pub named_filters: Vec<(String, String)>,
    /// Whether new trouble rings the bell of the terminal.
    pub has_bell: bool,
    /// Whether the output of every pager stays until a key is pressed, however long it took to read.
    pub has_pager_pause: bool,
}

impl Default for Preferences {
    fn default() -> Preferences {
        Preferences {
            keymap: Keymap::default(),
            theme: None,
            columns: columns::default_columns(),
            named_filters: Vec::new(),
            has_bell: false,
            has_pager_pause: false,
        }
    }
}

/// Preferences read from a file, and the errors in it.
pub type LoadedPreferences = (Preferences, Vec<Diagnostic>);

/// Returns the path of the file; `None` without a config directory.
pub fn default_path(env: &ConfigEnvironment) -> Option<PathBuf> {
    Some(env.config_directory()?.join(PREFERENCES_FILE_NAME))
}

/// Loads the file, with its errors; a missing file yields the defaults.
pub fn load(path: &Path) -> LoadedPreferences {
    match read_text(path) {
        Ok(text) => parse(&text.unwrap_or_default(), path),
        Err((line, message)) => {
            let diagnostic = Diagnostic {
                level: DiagnosticLevel::Error,
                file: path.to_path_buf(),
                line,
                text: String::new(),
                message,
                hints: Vec::new(),
            };
            (Preferences::default(), vec![diagnostic])
        }
    }
}

/// Reads the text of the file, if it exists. The error has a message, and a line if known.
fn read_text(path: &Path) -> Result<Option<String>, (Option<usize>, String)> {
    let bytes = match durable::read_regular_file(path, MAX_FILE_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if durable::is_absent(&error) => return Ok(None),
        Err(error) => {
            let cause = error::describe_io_error(&error);
            return Err((None, format!("cannot read the preferences: {cause}")));
        }
    };
    String::from_utf8(bytes).map(Some).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        (Some(line), "not UTF-8 text".to_string())
    })
}

/// Parses preferences, with their errors. Invalid TOML yields the defaults.
pub fn parse(text: &str, path: &Path) -> LoadedPreferences {
    let mut reader = PreferencesReader {
        source: TomlSource::new(text, path),
    };
    let mut preferences = Preferences::default();
    if let Some(table) = reader.source.parse() {
        reader.read_preferences(&table, &mut preferences);
    }
    (preferences, reader.source.into_diagnostics())
}

/// Summarizes errors in one line: the first one, the number of all, and the command that lists
/// them.
pub fn summarize_problems(problems: &[Diagnostic], full_report_command: &str) -> Option<String> {
    let first = problems.first()?;
    let summary = match problems.len() {
        1 => format_problem(first),
        count => {
            let line = first
                .line
                .map_or(String::new(), |line| format!("line {line}: "));
            let (file, problem) = (file_name(first), describe_problem(first));
            format!("{file}: {count} mistakes; {line}{problem}")
        }
    };
    Some(format!("{summary} (`{full_report_command}` lists all)"))
}

/// Formats an error in one line: `console.toml:3: message; hint`.
pub fn format_problem(problem: &Diagnostic) -> String {
    let line = problem
        .line
        .map_or(String::new(), |line| format!(":{line}"));
    format!(
        "{}{line}: {}",
        file_name(problem),
        describe_problem(problem)
    )
}

fn file_name(problem: &Diagnostic) -> String {
    let name = problem.file.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn describe_problem(problem: &Diagnostic) -> String {
    let hints = problem.hints.iter();
    hints.fold(problem.message.clone(), |text, hint| {
        format!("{text}; {hint}")
    })
}

/// Reads settings and collects their errors.
struct PreferencesReader<'a> {
    source: TomlSource<'a>,
}

impl PreferencesReader<'_> {
    fn read_preferences(&mut self, table: &DeTable<'_>, preferences: &mut Preferences) {
        for (name, value) in table_entries(table) {
            match *name.get_ref() {
                "theme" => {
                    if let Some(theme) = self.read_theme(value) {
                        preferences.theme = Some(theme);
                    }
                }
                "columns" => {
                    if let Some(columns) = self.read_columns(value) {
                        preferences.columns = columns;
                    }
                }
                "bell" => {
                    let is_on = self.source.expect_bool(value, "bell");
                    preferences.has_bell = is_on.unwrap_or(preferences.has_bell);
                }
                "pager-pause" => {
                    let is_on = self.source.expect_bool(value, "pager-pause");
                    preferences.has_pager_pause = is_on.unwrap_or(preferences.has_pager_pause);
                }
                "keys" => {
                    let entries = self.source.expect_table(value, "keys is a section: [keys]");
                    preferences.keymap = self.read_keymap(entries);
                }
                "filters" => {
                    let entries = self
                        .source
                        .expect_table(value, "filters is a section: [filters]");
                    for (name, value) in entries {
                        let filter = self.read_filter(value);
                        let named = filter.map(|it| (name.into_inner().to_string(), it));
                        preferences.named_filters.extend(named);
                    }
                }
                _ => self.source.report_unknown(
                    &name,
                    "setting",
                    &["theme", "columns", "bell", "pager-pause", "keys", "filters"],
                ),
            }
        }
    }

    fn read_theme(&mut self, value: &Spanned<DeValue<'_>>) -> Option<String> {
        let name = self.source.expect_string(value, "a theme")?;
        // The operator's themes are in a directory beside this file.
        let directory = self
            .source
            .path
            .parent()
            .map(|directory| directory.join(theme::THEMES_DIRECTORY));
        let themes = Themes::new(directory, ColourDepth::default());
        let names = themes.names();
        if !names.iter().any(|known| known == name.get_ref()) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            self.source.report_unknown(&name, "theme", &names);
            return None;
        }
        if let Err(error) = themes.load(name.get_ref()) {
            for told in themes.error_lines(&error) {
                let message = format!("the theme {}: {told}", name.get_ref());
                self.source
                    .report(name.span(), SettingError::new(message, ""));
            }
            return None;
        }
        Some(name.into_inner().to_string())
    }

    /// Reads a filter; reports terms that can never match.
    fn read_filter(&mut self, value: &Spanned<DeValue<'_>>) -> Option<String> {
        let text = self.source.expect_string(value, "a filter")?;
        let line: String = text.get_ref().chars().filter(|c| !c.is_control()).collect();
        let faults = filter::find_filter_errors(&line);
        let sound = faults.is_empty();
        for fault in faults {
            self.source.report(text.span(), fault);
        }
        sound.then_some(line)
    }

    fn read_columns<'v>(&mut self, value: &'v Spanned<DeValue<'v>>) -> Option<Vec<FleetColumn>> {
        let how = "columns is a list: columns = [\"state\", \"agent\", \"why\"]";
        let list = self.source.expect_list(value, how)?;
        let before = self.source.diagnostic_count();
        let mut columns = Vec::new();
        for item in list {
            let Some(name) = self.source.expect_string(item, "a column") else {
                continue;
            };
            match COLUMN_LAYOUTS
                .iter()
                .find(|shape| shape.id == *name.get_ref())
            {
                Some(shape) if columns.contains(&shape.column) => {
                    let message = format!("duplicate column {}", shape.id);
                    self.source
                        .report(name.span(), SettingError::new(message, ""));
                }
                Some(shape) => columns.push(shape.column),
                None => {
                    let words: Vec<&str> = COLUMN_LAYOUTS.iter().map(|shape| shape.id).collect();
                    self.source.report_unknown(&name, "column", &words);
                }
            }
        }
        for needed in [FleetColumn::State, FleetColumn::Agent] {
            if self.source.diagnostic_count() == before && !columns.contains(&needed) {
                let message = format!("the column {} is required", needed.layout().id);
                let hint = "it identifies the agent that an action is about";
                self.source
                    .report(value.span(), SettingError::new(message, hint));
            }
        }
        let why = columns
            .iter()
            .position(|column| *column == FleetColumn::Reason);
        if why.is_some_and(|place| place + 1 < columns.len()) {
            let hint = "it takes all remaining width";
            self.source.report(
                value.span(),
                SettingError::new("the column why must be last", hint),
            );
        }
        (self.source.diagnostic_count() == before).then_some(columns)
    }

    fn read_keymap(&mut self, entries: Vec<TomlEntry<'_>>) -> Keymap {
        let ids: Vec<&str> = COMMAND_TABLE.iter().map(|spec| spec.id).collect();
        let mut patches = Vec::new();
        let mut spans: Vec<(Command, Range<usize>)> = Vec::new();
        for (name, value) in entries {
            let Some(spec) = COMMAND_TABLE.iter().find(|spec| spec.id == *name.get_ref()) else {
                self.source.report_unknown(&name, "command", &ids);
                continue;
            };
            let Some(keys) = self.read_sequences(spec.command, value) else {
                continue;
            };
            match keymap::check_sequences(spec.command, &keys) {
                Ok(()) => {
                    spans.push((spec.command, name.span()));
                    patches.push((spec.command, keys));
                }
                Err(fault) => self.source.report(name.span(), fault),
            }
        }
        let (keymap, clashes) = Keymap::with_overrides(patches);
        for clash in clashes {
            let mut spans = spans
                .iter()
                .filter(|(command, _)| *command == clash.command);
            let span = spans.next().map(|(_, span)| span.clone());
            self.source
                .report(span.unwrap_or_default(), conflict_error(&clash));
        }
        keymap
    }

    /// Reads a key or a list of keys; `None` if one of them is invalid.
    fn read_sequences(
        &mut self,
        command: Command,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<Vec<Vec<Key>>> {
        let one;
        let list: &DeArray<'_> = match value.get_ref() {
            DeValue::Array(list) => list,
            _ => {
                let mut list = DeArray::new();
                list.push(value.clone());
                one = list;
                &one
            }
        };
        let before = self.source.diagnostic_count();
        let mut keys: Vec<Vec<Key>> = Vec::new();
        for item in list.iter() {
            let Some(text) = self.source.expect_string(item, "a key") else {
                continue;
            };
            match key::parse_sequence(text.get_ref()) {
                Ok(sequence) if keys.contains(&sequence) => {}
                Ok(sequence) => {
                    if let Err(fault) = keymap::check_sequence(command, &sequence) {
                        self.source.report(text.span(), fault);
                    }
                    keys.push(sequence);
                }
                Err(fault) => self.source.report(text.span(), fault),
            }
        }
        (self.source.diagnostic_count() == before).then_some(keys)
    }
}

fn conflict_error(clash: &KeyConflict) -> SettingError {
    let (keys, has) = (
        format_sequence(&clash.keys),
        format_sequence(&clash.other_keys),
    );
    let (id, other) = (
        command::spec_of(clash.command).id,
        command::spec_of(clash.other_command).id,
    );
    let message = match clash.keys.len().cmp(&clash.other_keys.len()) {
        std::cmp::Ordering::Equal => format!("{id}: `{keys}` is already bound to {other}"),
        std::cmp::Ordering::Less => format!("{id}: `{keys}` would hide `{has}` of {other}"),
        std::cmp::Ordering::Greater => {
            format!("{id}: `{keys}` is unreachable, because `{has}` is bound to {other}")
        }
    };
    SettingError::new(
        message,
        format!("choose another key, or rebind {other}; {id} keeps its defaults"),
    )
}

#[cfg(test)]
mod tests;
