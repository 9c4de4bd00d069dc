//! Reader for the operator's TOML files (preferences, themes): keeps the source position of
//! every value and collects all diagnostics instead of stopping at the first. Does not know
//! any setting.

use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::setting_error::SettingError;
use crate::config::{Diagnostic, DiagnosticLevel, closest_match};

/// Maximum length of the source line in a diagnostic, in characters.
const MAX_SHOWN_CHARS: usize = 120;

/// Source text with the diagnostics found so far.
pub(in crate::console) struct TomlSource<'a> {
    text: &'a str,
    pub(in crate::console) path: &'a Path,
    diagnostics: Vec<Diagnostic>,
}

/// A key and its value, with their source positions.
pub(in crate::console) type TomlEntry<'a> = (Spanned<&'a str>, &'a Spanned<DeValue<'a>>);

/// Returns the entries of a table in file order.
pub(in crate::console) fn table_entries<'a>(table: &'a DeTable<'a>) -> Vec<TomlEntry<'a>> {
    let all = table.iter().map(|(key, value)| {
        let name: &str = key.get_ref();
        (Spanned::new(key.span(), name), value)
    });
    let mut all: Vec<TomlEntry<'a>> = all.collect();
    all.sort_by_key(|(key, _)| key.span().start);
    all
}

impl<'a> TomlSource<'a> {
    /// Creates a reader of the text of the file at `path`.
    pub(in crate::console) fn new(text: &'a str, path: &'a Path) -> TomlSource<'a> {
        TomlSource {
            text,
            path,
            diagnostics: Vec::new(),
        }
    }

    /// Parses the file. Reports only the first syntax error and returns `None` then: what
    /// follows it is misread.
    pub(in crate::console) fn parse(&mut self) -> Option<DeTable<'a>> {
        let (table, errors) = DeTable::parse_recoverable(self.text);
        let place = |error: &toml::de::Error| error.span().unwrap_or_default();
        let Some(first) = errors.iter().min_by_key(|error| place(error).start) else {
            return Some(table.into_inner());
        };
        let hint = "if this line is right, a bracket or a quote before it is not closed";
        let hint = if errors.len() > 1 { hint } else { "" };
        self.report(place(first), SettingError::new(first.message(), hint));
        None
    }

    /// Returns all diagnostics in file order.
    pub(in crate::console) fn into_diagnostics(self) -> Vec<Diagnostic> {
        let mut found = self.diagnostics;
        found.sort_by_key(|it| it.line);
        found
    }

    /// Returns the number of diagnostics so far.
    pub(in crate::console) fn diagnostic_count(&self) -> usize {
        self.diagnostics.len()
    }

    /// Adds a diagnostic about the line where `span` begins.
    pub(in crate::console) fn report(&mut self, span: Range<usize>, fault: SettingError) {
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
            hints: fault.hint.into_iter().collect(),
        });
    }

    /// Reports an unknown name, with the closest match or all known names as a hint.
    pub(in crate::console) fn report_unknown(
        &mut self,
        name: &Spanned<&str>,
        what: &str,
        known: &[&str],
    ) {
        let hint = match closest_match(name.get_ref(), known.iter().copied()) {
            Some(close) => format!("did you mean `{close}`?"),
            None if what == "command" => "`memory-shepherd keys` lists them".to_string(),
            None => format!("valid: {}", known.join(", ")),
        };
        let message = format!("unknown {what} `{}`", name.get_ref());
        self.report(name.span(), SettingError::new(message, hint));
    }

    /// Returns a string value; reports any other type.
    pub(in crate::console) fn expect_string<'v>(
        &mut self,
        value: &'v Spanned<DeValue<'_>>,
        subject: &str,
    ) -> Option<Spanned<&'v str>> {
        match value.get_ref() {
            DeValue::String(text) => Some(Spanned::new(value.span(), text.as_ref())),
            _ => {
                let message = format!("{subject} must be a string in quotes");
                self.report(value.span(), SettingError::new(message, ""));
                None
            }
        }
    }

    /// Returns a truth value; reports any other type.
    pub(in crate::console) fn expect_bool(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        subject: &str,
    ) -> Option<bool> {
        match value.get_ref() {
            DeValue::Boolean(is_on) => Some(*is_on),
            _ => {
                let message = format!("{subject} is true or false");
                self.report(value.span(), SettingError::new(message, ""));
                None
            }
        }
    }

    /// Returns the entries of a table; reports `type_error` for any other type.
    pub(in crate::console) fn expect_table<'v>(
        &mut self,
        value: &'v Spanned<DeValue<'v>>,
        type_error: &str,
    ) -> Vec<TomlEntry<'v>> {
        match value.get_ref() {
            DeValue::Table(table) => table_entries(table),
            _ => {
                self.report(value.span(), SettingError::new(type_error, ""));
                Vec::new()
            }
        }
    }

    /// Returns the items of a list; reports `type_error` for any other type.
    pub(in crate::console) fn expect_list<'v>(
        &mut self,
        value: &'v Spanned<DeValue<'v>>,
        type_error: &str,
    ) -> Option<Vec<&'v Spanned<DeValue<'v>>>> {
        match value.get_ref() {
            DeValue::Array(list) => Some(list.iter().collect()),
            _ => {
                self.report(value.span(), SettingError::new(type_error, ""));
                None
            }
        }
    }
}
