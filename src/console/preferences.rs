//! The operator's own file, `console.toml`: keys, theme, columns, named filters.
//! It lies over the defaults; what is wrong in it is told with its line, all at
//! once, and leaves the default of that one thing in force.

use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::columns::{self, Column, SHAPES};
use super::command::{self, Command, TABLE};
use super::keymap::{self, Clash, Fault, Key, Keymap, written};
use super::theme::{self, Depth, Themes};
use crate::config::{Diagnostic, Env, Level, closest};
use crate::{durable, error};

/// The file's name.
pub const NAME: &str = "console.toml";

/// The longest file that is read.
const FILE_MAX: u64 = 1 << 20;

/// The longest line that a diagnostic shows.
const TEXT_MAX: usize = 120;

/// What an operator prefers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preferences {
    /// The keys of all commands.
    pub keymap: Keymap,
    /// The theme; none leaves it to the fleet's config.
    pub theme: Option<String>,
    /// The columns of the fleet.
    pub columns: Vec<Column>,
    /// Filters by name, in the order of the file.
    pub filters: Vec<(String, String)>,
}

impl Default for Preferences {
    fn default() -> Preferences {
        Preferences {
            keymap: Keymap::default(),
            theme: None,
            columns: columns::usual(),
            filters: Vec::new(),
        }
    }
}

/// What a file says, and what is wrong with it.
pub type Loaded = (Preferences, Vec<Diagnostic>);

/// Where the file is.
pub fn place(env: &Env) -> Option<PathBuf> {
    Some(env.config_folder()?.join(NAME))
}

/// Reads the file; without one the defaults hold. With what is wrong in it.
pub fn load(path: &Path) -> Loaded {
    match read(path) {
        Ok(text) => parse(&text.unwrap_or_default(), path),
        Err((line, message)) => {
            let diagnostic = Diagnostic {
                level: Level::Error,
                file: path.to_path_buf(),
                line,
                text: String::new(),
                message,
                hint: None,
            };
            (Preferences::default(), vec![diagnostic])
        }
    }
}

/// The text of the file, if there is one; else why not, and on which line.
fn read(path: &Path) -> Result<Option<String>, (Option<usize>, String)> {
    let bytes = match durable::read_regular(path, FILE_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let cause = error::cause(&error);
            return Err((None, format!("cannot read the preferences: {cause}")));
        }
    };
    String::from_utf8(bytes).map(Some).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        (Some(line), "this is no UTF-8 text".to_string())
    })
}

/// The preferences in a text, and what is wrong in it. A text that is no TOML says
/// nothing at all.
pub fn parse(text: &str, path: &Path) -> Loaded {
    let mut reader = Reader {
        text,
        path,
        found: Vec::new(),
    };
    let mut preferences = Preferences::default();
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        reader.all(table.get_ref(), &mut preferences);
    }
    for error in errors {
        let span = error.span().unwrap_or_default();
        reader.wrong(span, Fault::new(error.message(), ""));
    }
    let mut found = reader.found;
    found.sort_by_key(|it| it.line);
    (preferences, found)
}

/// What is wrong, in a line: the first of it, how much more there is, and the command
/// that tells all.
pub fn summary(problems: &[Diagnostic], all: &str) -> Option<String> {
    let more = match problems.len() {
        0 | 1 => String::new(),
        many => format!(" and {} more", many - 1),
    };
    let first = line(problems.first()?, &more);
    Some(format!("{first} (`memory-shepherd {all}` tells all)"))
}

/// One thing that is wrong, in a line: `console.toml:3: what; what to do`. `more`
/// comes behind its place.
pub fn line(problem: &Diagnostic, more: &str) -> String {
    let file = problem
        .file
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    let line = problem
        .line
        .map_or(String::new(), |line| format!(":{line}"));
    let hint = problem
        .hint
        .as_ref()
        .map_or(String::new(), |it| format!("; {it}"));
    format!("{file}{line}{more}: {}{hint}", problem.message)
}

/// Collects what is wrong while it reads.
struct Reader<'a> {
    text: &'a str,
    path: &'a Path,
    found: Vec<Diagnostic>,
}

/// A key and its value, where they stand.
type Entry<'a> = (Spanned<&'a str>, &'a Spanned<DeValue<'a>>);

/// What a table holds, in the order of the file.
fn entries<'a>(table: &'a DeTable<'a>) -> Vec<Entry<'a>> {
    let all = table.iter().map(|(key, value)| {
        let name: &str = key.get_ref();
        (Spanned::new(key.span(), name), value)
    });
    let mut all: Vec<Entry<'a>> = all.collect();
    all.sort_by_key(|(key, _)| key.span().start);
    all
}

impl Reader<'_> {
    fn wrong(&mut self, span: Range<usize>, fault: Fault) {
        let start = span.start.min(self.text.len());
        let before = &self.text.as_bytes()[..start];
        let line = before.iter().filter(|byte| **byte == b'\n').count();
        let text = self.text.lines().nth(line).unwrap_or_default().trim();
        self.found.push(Diagnostic {
            level: Level::Error,
            file: self.path.to_path_buf(),
            line: Some(line + 1),
            text: text.chars().take(TEXT_MAX).collect(),
            message: fault.message.replace('\n', " "),
            hint: fault.hint,
        });
    }

    /// Something that there is not; with what was probably meant.
    fn unknown(&mut self, name: &Spanned<&str>, what: &str, known: &[&str]) {
        let known = known.iter().copied();
        let hint = match closest(name.get_ref(), known.clone()) {
            Some(close) => format!("did you mean `{close}`?"),
            None if known.len() > SHAPES.len() => "`memory-shepherd keys` lists them".to_string(),
            None => format!("there are {}", known.collect::<Vec<_>>().join(", ")),
        };
        let message = format!("there is no {what} `{}`", name.get_ref());
        self.wrong(name.span(), Fault::new(message, hint));
    }

    fn string<'v>(
        &mut self,
        value: &'v Spanned<DeValue<'_>>,
        what: &str,
    ) -> Option<Spanned<&'v str>> {
        match value.get_ref() {
            DeValue::String(text) => Some(Spanned::new(value.span(), text.as_ref())),
            _ => {
                let message = format!("{what} is written in quotes");
                self.wrong(value.span(), Fault::new(message, ""));
                None
            }
        }
    }

    fn table<'v>(&mut self, value: &'v Spanned<DeValue<'v>>, name: &str) -> Vec<Entry<'v>> {
        match value.get_ref() {
            DeValue::Table(table) => entries(table),
            _ => {
                let message = format!("{name} is a section: [{name}]");
                self.wrong(value.span(), Fault::new(message, ""));
                Vec::new()
            }
        }
    }

    fn all(&mut self, table: &DeTable<'_>, preferences: &mut Preferences) {
        for (name, value) in entries(table) {
            match *name.get_ref() {
                "theme" => {
                    if let Some(theme) = self.theme(value) {
                        preferences.theme = Some(theme);
                    }
                }
                "columns" => {
                    if let Some(columns) = self.columns(value) {
                        preferences.columns = columns;
                    }
                }
                "keys" => {
                    let entries = self.table(value, "keys");
                    preferences.keymap = self.keymap(entries);
                }
                "filters" => {
                    for (name, value) in self.table(value, "filters") {
                        let filter = self.string(value, "a filter");
                        let line = |text: &str| text.chars().filter(|c| !c.is_control()).collect();
                        let filter = filter.map(|it| line(it.get_ref()));
                        let named = filter.map(|it| (name.into_inner().to_string(), it));
                        preferences.filters.extend(named);
                    }
                }
                _ => self.unknown(&name, "setting", &["theme", "columns", "keys", "filters"]),
            }
        }
    }

    fn theme(&mut self, value: &Spanned<DeValue<'_>>) -> Option<String> {
        let name = self.string(value, "a theme")?;
        // The operator's own themes are beside this file.
        let folder = self.path.parent().map(|folder| folder.join(theme::FOLDER));
        let themes = Themes::new(folder, Depth::default());
        let names = themes.names();
        if !names.iter().any(|known| known == name.get_ref()) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            self.unknown(&name, "theme", &names);
            return None;
        }
        if let Err(error) = themes.load(name.get_ref()) {
            let message = format!("the theme {}: {}", name.get_ref(), themes.brief(&error));
            self.wrong(name.span(), Fault::new(message, ""));
            return None;
        }
        Some(name.into_inner().to_string())
    }

    fn columns(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Vec<Column>> {
        let DeValue::Array(list) = value.get_ref() else {
            let message = "columns is a list: columns = [\"state\", \"agent\", \"why\"]";
            self.wrong(value.span(), Fault::new(message, ""));
            return None;
        };
        let before = self.found.len();
        let mut columns = Vec::new();
        for item in list.iter() {
            let Some(name) = self.string(item, "a column") else {
                continue;
            };
            match SHAPES.iter().find(|shape| shape.word == *name.get_ref()) {
                Some(shape) if columns.contains(&shape.column) => {
                    let message = format!("the column {} stands twice", shape.word);
                    self.wrong(name.span(), Fault::new(message, ""));
                }
                Some(shape) => columns.push(shape.column),
                None => {
                    let words: Vec<&str> = SHAPES.iter().map(|shape| shape.word).collect();
                    self.unknown(&name, "column", &words);
                }
            }
        }
        for needed in [Column::State, Column::Agent] {
            if self.found.len() == before && !columns.contains(&needed) {
                let message = format!("the column {} cannot be left out", needed.shape().word);
                let hint = "without it nobody can tell what an act would be about";
                self.wrong(value.span(), Fault::new(message, hint));
            }
        }
        let why = columns.iter().position(|column| *column == Column::Why);
        if why.is_some_and(|place| place + 1 < columns.len()) {
            let hint = "it takes all the room that is left";
            self.wrong(value.span(), Fault::new("the column why stands last", hint));
        }
        (self.found.len() == before).then_some(columns)
    }

    fn keymap(&mut self, entries: Vec<Entry<'_>>) -> Keymap {
        let ids: Vec<&str> = TABLE.iter().map(|spec| spec.id).collect();
        let mut patches = Vec::new();
        let mut spans: Vec<(Command, Range<usize>)> = Vec::new();
        for (name, value) in entries {
            let Some(spec) = TABLE.iter().find(|spec| spec.id == *name.get_ref()) else {
                self.unknown(&name, "command", &ids);
                continue;
            };
            let Some(keys) = self.keys(value) else {
                continue;
            };
            match keymap::allowed(spec.command, &keys) {
                Ok(()) => {
                    spans.push((spec.command, name.span()));
                    patches.push((spec.command, keys));
                }
                Err(fault) => self.wrong(name.span(), fault),
            }
        }
        let (keymap, clashes) = Keymap::patched(patches);
        for clash in clashes {
            let mut spans = spans
                .iter()
                .filter(|(command, _)| *command == clash.command);
            let span = spans.next().map(|(_, span)| span.clone());
            self.wrong(span.unwrap_or_default(), told(&clash));
        }
        keymap
    }

    /// A key, or a list of them; none if one of them is wrong.
    fn keys(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Vec<Vec<Key>>> {
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
        let before = self.found.len();
        let mut keys: Vec<Vec<Key>> = Vec::new();
        for item in list.iter() {
            let Some(text) = self.string(item, "a key") else {
                continue;
            };
            match keymap::parse(text.get_ref()) {
                Ok(sequence) if keys.contains(&sequence) => {}
                Ok(sequence) => keys.push(sequence),
                Err(fault) => self.wrong(text.span(), fault),
            }
        }
        (self.found.len() == before).then_some(keys)
    }
}

fn told(clash: &Clash) -> Fault {
    let (keys, has) = (written(&clash.keys), written(&clash.has));
    let (id, other) = (
        command::spec(clash.command).id,
        command::spec(clash.other).id,
    );
    let message = match clash.keys.len().cmp(&clash.has.len()) {
        std::cmp::Ordering::Equal => format!("{id}: `{keys}` is the key of {other} already"),
        std::cmp::Ordering::Less => format!("{id}: `{keys}` would hide `{has}` of {other}"),
        std::cmp::Ordering::Greater => {
            format!("{id}: `{keys}` is never reached, because `{has}` is {other}")
        }
    };
    Fault::new(
        message,
        format!("choose another, or give {other} other keys; {id} keeps its own"),
    )
}

#[cfg(test)]
mod tests;
