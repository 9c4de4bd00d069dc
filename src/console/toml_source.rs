//! A TOML file of the operator's while it is read: what stands where in it, and all
//! that is wrong with it.

use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keymap::KeyError;
use crate::config::{Diagnostic, DiagnosticLevel, closest_match};

/// The longest line that a diagnostic shows.
const MAX_SHOWN_CHARS: usize = 120;

/// Collects what is wrong while it reads.
pub(super) struct TomlSource<'a> {
    text: &'a str,
    pub(super) path: &'a Path,
    diagnostics: Vec<Diagnostic>,
}

/// A key and its value, where they stand.
pub(super) type TomlEntry<'a> = (Spanned<&'a str>, &'a Spanned<DeValue<'a>>);

/// What a table holds, in the order of the file.
pub(super) fn table_entries<'a>(table: &'a DeTable<'a>) -> Vec<TomlEntry<'a>> {
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
            diagnostics: Vec::new(),
        }
    }

    /// All of the file, unless it is no TOML: of that the first place is told, since
    /// whatever follows is misread.
    pub(super) fn parse(&mut self) -> Option<DeTable<'a>> {
        let (table, errors) = DeTable::parse_recoverable(self.text);
        let place = |error: &toml::de::Error| error.span().unwrap_or_default();
        let Some(first) = errors.iter().min_by_key(|error| place(error).start) else {
            return Some(table.into_inner());
        };
        let hint = "if this line is right, a bracket or a quote before it is not closed";
        let hint = if errors.len() > 1 { hint } else { "" };
        self.report(place(first), KeyError::new(first.message(), hint));
        None
    }

    /// All that was found wrong, in the order of the file.
    pub(super) fn into_diagnostics(self) -> Vec<Diagnostic> {
        let mut found = self.diagnostics;
        found.sort_by_key(|it| it.line);
        found
    }

    /// How much was found wrong until now.
    pub(super) fn diagnostic_count(&self) -> usize {
        self.diagnostics.len()
    }

    /// Something is wrong there.
    pub(super) fn report(&mut self, span: Range<usize>, fault: KeyError) {
        let start = span.start.min(self.text.len());
        let before = &self.text.as_bytes()[..start];
        let line = before.iter().filter(|byte| **byte == b'\n').count();
        let text = self.text.lines().nth(line).unwrap_or_default().trim();
        self.diagnostics.push(Diagnostic {
            level: DiagnosticLevel::Error,
            file: self.path.to_path_buf(),
            line: Some(line + 1),
            text: text.chars().take(MAX_SHOWN_CHARS).collect(),
            message: fault.message.replace('\n', " "),
            hint: fault.hint,
        });
    }

    /// Something that there is not; with what was probably meant.
    pub(super) fn report_unknown(&mut self, name: &Spanned<&str>, what: &str, known: &[&str]) {
        let hint = match closest_match(name.get_ref(), known.iter().copied()) {
            Some(close) => format!("did you mean `{close}`?"),
            None if what == "command" => "`memory-shepherd keys` lists them".to_string(),
            None => format!("there are {}", known.join(", ")),
        };
        let message = format!("there is no {what} `{}`", name.get_ref());
        self.report(name.span(), KeyError::new(message, hint));
    }

    /// A text.
    pub(super) fn expect_string<'v>(
        &mut self,
        value: &'v Spanned<DeValue<'_>>,
        subject: &str,
    ) -> Option<Spanned<&'v str>> {
        match value.get_ref() {
            DeValue::String(text) => Some(Spanned::new(value.span(), text.as_ref())),
            _ => {
                let message = format!("{subject} is written in quotes");
                self.report(value.span(), KeyError::new(message, ""));
                None
            }
        }
    }

    /// What a table holds; `else_wrong` is said of anything else.
    pub(super) fn expect_table<'v>(
        &mut self,
        value: &'v Spanned<DeValue<'v>>,
        type_error: &str,
    ) -> Vec<TomlEntry<'v>> {
        match value.get_ref() {
            DeValue::Table(table) => table_entries(table),
            _ => {
                self.report(value.span(), KeyError::new(type_error, ""));
                Vec::new()
            }
        }
    }

    /// What a list holds; `else_wrong` is said of anything else.
    pub(super) fn expect_list<'v>(
        &mut self,
        value: &'v Spanned<DeValue<'v>>,
        type_error: &str,
    ) -> Option<Vec<&'v Spanned<DeValue<'v>>>> {
        match value.get_ref() {
            DeValue::Array(list) => Some(list.iter().collect()),
            _ => {
                self.report(value.span(), KeyError::new(type_error, ""));
                None
            }
        }
    }
}
