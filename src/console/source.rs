//! A TOML file of the operator's while it is read: what stands where in it, and all
//! that is wrong with it.

use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keymap::KeyError;
use crate::config::{Diagnostic, DiagnosticLevel, closest};

/// The longest line that a diagnostic shows.
const MAX_SHOWN_CHARS: usize = 120;

/// Collects what is wrong while it reads.
pub(super) struct TomlSource<'a> {
    text: &'a str,
    pub(super) path: &'a Path,
    found: Vec<Diagnostic>,
}

/// A key and its value, where they stand.
pub(super) type TomlEntry<'a> = (Spanned<&'a str>, &'a Spanned<DeValue<'a>>);

/// What a table holds, in the order of the file.
pub(super) fn entries<'a>(table: &'a DeTable<'a>) -> Vec<TomlEntry<'a>> {
    let all = table.iter().map(|(key, value)| {
        let name: &str = key.get_ref();
        (Spanned::new(key.span(), name), value)
    });
    let mut all: Vec<TomlEntry<'a>> = all.collect();
    all.sort_by_key(|(key, _)| key.span().start);
    all
}

impl<'a> TomlSource<'a> {
    /// A text of a file, nothing of which was read yet.
    pub(super) fn new(text: &'a str, path: &'a Path) -> TomlSource<'a> {
        TomlSource {
            text,
            path,
            found: Vec::new(),
        }
    }

    /// All of the file, unless it is no TOML: of that the first place is told, since
    /// whatever follows is misread.
    pub(super) fn all(&mut self) -> Option<DeTable<'a>> {
        let (table, errors) = DeTable::parse_recoverable(self.text);
        let place = |error: &toml::de::Error| error.span().unwrap_or_default();
        let Some(first) = errors.iter().min_by_key(|error| place(error).start) else {
            return Some(table.into_inner());
        };
        let hint = "if this line is right, a bracket or a quote before it is not closed";
        let hint = if errors.len() > 1 { hint } else { "" };
        self.wrong(place(first), KeyError::new(first.message(), hint));
        None
    }

    /// All that was found wrong, in the order of the file.
    pub(super) fn found(self) -> Vec<Diagnostic> {
        let mut found = self.found;
        found.sort_by_key(|it| it.line);
        found
    }

    /// How much was found wrong until now.
    pub(super) fn count(&self) -> usize {
        self.found.len()
    }

    /// Something is wrong there.
    pub(super) fn wrong(&mut self, span: Range<usize>, fault: KeyError) {
        let start = span.start.min(self.text.len());
        let before = &self.text.as_bytes()[..start];
        let line = before.iter().filter(|byte| **byte == b'\n').count();
        let text = self.text.lines().nth(line).unwrap_or_default().trim();
        self.found.push(Diagnostic {
            level: DiagnosticLevel::Error,
            file: self.path.to_path_buf(),
            line: Some(line + 1),
            text: text.chars().take(MAX_SHOWN_CHARS).collect(),
            message: fault.message.replace('\n', " "),
            hint: fault.hint,
        });
    }

    /// Something that there is not; with what was probably meant.
    pub(super) fn unknown(&mut self, name: &Spanned<&str>, what: &str, known: &[&str]) {
        let hint = match closest(name.get_ref(), known.iter().copied()) {
            Some(close) => format!("did you mean `{close}`?"),
            None if what == "command" => "`memory-shepherd keys` lists them".to_string(),
            None => format!("there are {}", known.join(", ")),
        };
        let message = format!("there is no {what} `{}`", name.get_ref());
        self.wrong(name.span(), KeyError::new(message, hint));
    }

    /// A text.
    pub(super) fn string<'v>(
        &mut self,
        value: &'v Spanned<DeValue<'_>>,
        what: &str,
    ) -> Option<Spanned<&'v str>> {
        match value.get_ref() {
            DeValue::String(text) => Some(Spanned::new(value.span(), text.as_ref())),
            _ => {
                let message = format!("{what} is written in quotes");
                self.wrong(value.span(), KeyError::new(message, ""));
                None
            }
        }
    }

    /// What a table holds; `else_wrong` is said of anything else.
    pub(super) fn table<'v>(
        &mut self,
        value: &'v Spanned<DeValue<'v>>,
        else_wrong: &str,
    ) -> Vec<TomlEntry<'v>> {
        match value.get_ref() {
            DeValue::Table(table) => entries(table),
            _ => {
                self.wrong(value.span(), KeyError::new(else_wrong, ""));
                Vec::new()
            }
        }
    }

    /// What a list holds; `else_wrong` is said of anything else.
    pub(super) fn list<'v>(
        &mut self,
        value: &'v Spanned<DeValue<'v>>,
        else_wrong: &str,
    ) -> Option<Vec<&'v Spanned<DeValue<'v>>>> {
        match value.get_ref() {
            DeValue::Array(list) => Some(list.iter().collect()),
            _ => {
                self.wrong(value.span(), KeyError::new(else_wrong, ""));
                None
            }
        }
    }
}
