//! The lines of `memory-shepherd.conf`: sections and pairs with their line numbers, and a
//! diagnostic for every line that is neither.
//!
//! rust-ini is the grammar. It keeps no line numbers and stops at the first fault, so it gets one
//! line at a time: the number is then known, and every bad line is reported. Input that it accepts
//! but an operator did not mean (`:` as a delimiter, a pair after a section header, a carriage
//! return as the end of a line) is refused here.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

use ini::{Ini, ParseOption};
use serde::Serialize;

use crate::base::threads::map_on_processors;
use crate::base::untrusted::serialize_path;

/// Severity of a [`Diagnostic`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DiagnosticLevel {
    /// No command runs with this config.
    Error,
    /// The config is used, but probably does not say what was meant.
    Warning,
}

/// A fault in a config: location, message, hints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// Severity.
    pub level: DiagnosticLevel,
    /// The config file.
    #[serde(serialize_with = "serialize_path")]
    pub file: PathBuf,
    /// The line, counted from 1; `None` for a fault of the whole file.
    pub line: Option<usize>,
    /// The offending line, trimmed, and cut if very long.
    pub text: String,
    /// A sentence without its full stop.
    pub message: String,
    /// What the operator can do.
    pub hints: Vec<String>,
}

impl Diagnostic {
    /// Formats location, level and message.
    fn headline(&self) -> String {
        let level = match self.level {
            DiagnosticLevel::Error => "error",
            DiagnosticLevel::Warning => "warning",
        };
        let line = self.line.map_or(String::new(), |line| format!(":{line}"));
        let file = self.file.display();
        format!("{file}{line}: {level}: {}", self.message)
    }

    /// Formats location, level, message and hints.
    pub(super) fn to_single_line(&self) -> String {
        let hints = self.hints.iter();
        hints.fold(self.headline(), |line, hint| format!("{line}; {hint}"))
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.headline())?;
        if !self.text.is_empty() {
            write!(f, "\n    {}", self.text)?;
        }
        let mut hints = self.hints.iter();
        hints.try_for_each(|hint| write!(f, "\n    hint: {hint}"))
    }
}

/// Number and text of a line, for diagnostics about it.
#[derive(Clone, Debug)]
pub(super) struct SourceLine<'t> {
    pub(super) number: usize,
    pub(super) text: Cow<'t, str>,
}

/// A line with a meaning.
#[derive(Debug)]
pub(super) struct IniItem<'t> {
    pub(super) source: SourceLine<'t>,
    pub(super) kind: IniItemKind<'t>,
}

/// Kind of a line.
#[derive(Debug)]
pub(super) enum IniItemKind<'t> {
    /// `[name]`. A malformed header counts too (`is_malformed`), with the name that it seems to
    /// have: otherwise its keys would be attributed to the section before.
    Section {
        name: Cow<'t, str>,
        is_malformed: bool,
    },
    /// `key = value`.
    Pair {
        key: Cow<'t, str>,
        value: Cow<'t, str>,
    },
    /// A line that has a diagnostic. Its apparent key is kept, so that the key is not also reported
    /// as missing.
    Malformed { key: Cow<'t, str> },
}

/// Collects diagnostics of one file.
#[derive(Debug)]
pub(super) struct Diagnostics {
    pub(super) file: PathBuf,
    diagnostics: Vec<Diagnostic>,
    error_count: usize,
    warning_count: usize,
}

/// Maximum number of diagnostics kept per level. For a wrong file, the first ones suffice.
const MAX_DIAGNOSTICS_PER_LEVEL: usize = 1000;

impl Diagnostics {
    pub(super) fn new(file: &Path) -> Diagnostics {
        Diagnostics {
            file: file.to_path_buf(),
            diagnostics: Vec::new(),
            error_count: 0,
            warning_count: 0,
        }
    }

    pub(super) fn has_errors(&self) -> bool {
        self.error_count > 0
    }

    /// Returns the diagnostics in the order of the file.
    pub(super) fn into_sorted(mut self) -> Vec<Diagnostic> {
        self.diagnostics.sort_by_key(|diagnostic| diagnostic.line);
        for (level, count, name) in [
            (DiagnosticLevel::Error, self.error_count, "errors"),
            (DiagnosticLevel::Warning, self.warning_count, "warnings"),
        ] {
            if count > MAX_DIAGNOSTICS_PER_LEVEL {
                let message = format!(
                    "{} more {name} are not shown",
                    count - MAX_DIAGNOSTICS_PER_LEVEL
                );
                self.push(level, None, message, None);
            }
        }
        self.diagnostics
    }

    pub(super) fn add(
        &mut self,
        level: DiagnosticLevel,
        source: Option<&SourceLine<'_>>,
        message: impl Into<String>,
        hint: Option<String>,
    ) {
        let count = match level {
            DiagnosticLevel::Error => &mut self.error_count,
            DiagnosticLevel::Warning => &mut self.warning_count,
        };
        *count += 1;
        if *count <= MAX_DIAGNOSTICS_PER_LEVEL {
            self.push(level, source, message.into(), hint);
        }
    }

    /// Adds the diagnostics of later lines.
    pub(super) fn append(&mut self, later: Diagnostics) {
        let dropped = |count: usize| count.saturating_sub(MAX_DIAGNOSTICS_PER_LEVEL);
        let (errors, warnings) = (dropped(later.error_count), dropped(later.warning_count));
        for diagnostic in later.diagnostics {
            let count = match diagnostic.level {
                DiagnosticLevel::Error => &mut self.error_count,
                DiagnosticLevel::Warning => &mut self.warning_count,
            };
            *count += 1;
            if *count <= MAX_DIAGNOSTICS_PER_LEVEL {
                self.diagnostics.push(diagnostic);
            }
        }
        self.error_count += errors;
        self.warning_count += warnings;
    }

    fn push(
        &mut self,
        level: DiagnosticLevel,
        source: Option<&SourceLine<'_>>,
        message: String,
        hint: Option<String>,
    ) {
        self.diagnostics.push(Diagnostic {
            level,
            file: self.file.clone(),
            line: source.map(|source| source.number),
            text: source.map_or_else(String::new, |source| source.text.to_string()),
            message,
            hints: hint.into_iter().collect(),
        });
    }

    pub(super) fn add_error(
        &mut self,
        source: &SourceLine<'_>,
        message: impl Into<String>,
        hint: Option<String>,
    ) {
        self.add(DiagnosticLevel::Error, Some(source), message, hint);
    }

    pub(super) fn add_warning(
        &mut self,
        source: &SourceLine<'_>,
        message: impl Into<String>,
        hint: Option<String>,
    ) {
        self.add(DiagnosticLevel::Warning, Some(source), message, hint);
    }
}

/// Number of lines that one processor parses at a time.
const LINES_PER_PART: usize = 64;

/// Maximum length of the text of a line in a diagnostic, in characters.
const MAX_EXCERPT_CHARS: usize = 200;

/// Reads the lines of a config.
pub(super) fn parse_items<'t>(bytes: &'t [u8], diagnostics: &mut Diagnostics) -> Vec<IniItem<'t>> {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        let hint = "save it as UTF-8".to_string();
        diagnostics.add(
            DiagnosticLevel::Error,
            None,
            "the file is UTF-16, not UTF-8",
            Some(hint),
        );
        return Vec::new();
    }
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    let lines = bytes.split(|byte| *byte == b'\n').enumerate();
    let lines: Vec<(usize, &[u8])> = lines.collect();
    let file = diagnostics.file.clone();
    let parts = map_on_processors(lines.chunks(LINES_PER_PART).collect(), || {
        |lines: &[(usize, &'t [u8])]| {
            let mut diagnostics = Diagnostics::new(&file);
            let lines = lines.iter();
            let items: Vec<IniItem<'t>> = lines
                .filter_map(|(at, line)| parse_item(line.trim_ascii(), at + 1, &mut diagnostics))
                .collect();
            (items, diagnostics)
        }
    });
    let mut items = Vec::with_capacity(lines.len());
    for (part, found) in parts {
        items.extend(part);
        diagnostics.append(found);
    }
    items
}

/// Reads one line, trimmed of ASCII whitespace (and so of the CR of CRLF).
fn parse_item<'t>(
    line: &'t [u8],
    number: usize,
    diagnostics: &mut Diagnostics,
) -> Option<IniItem<'t>> {
    let source = SourceLine {
        number,
        text: excerpt(String::from_utf8_lossy(line)),
    };
    // The original tool accepts a comment in another encoding, so this is a warning.
    let (content, comment) = split_comment(line);
    if str::from_utf8(comment).is_err() {
        let hint = "save the file as UTF-8".to_string();
        diagnostics.add_warning(&source, "the comment is not UTF-8", Some(hint));
    }
    if content.is_empty() {
        return None;
    }
    if is_likely_value(comment) {
        let comment_text = excerpt(String::from_utf8_lossy(comment));
        diagnostics.add_warning(
            &source,
            format!("`{comment_text}` is read as a comment, because whitespace precedes its `#`"),
            Some("put a space after the `#` of a comment; a value cannot contain ` #`".to_string()),
        );
    }
    let kind = match str::from_utf8(content) {
        Ok(text) => parse_content(text, &source, diagnostics),
        Err(_) => {
            let hint = "save the file as UTF-8".to_string();
            diagnostics.add_error(&source, "the line is not UTF-8", Some(hint));
            malformed_item(String::from_utf8_lossy(content))
        }
    };
    Some(IniItem { source, kind })
}

/// Parses one line without its comment: the only place that calls rust-ini.
fn parse_content<'t>(
    text: &'t str,
    source: &SourceLine<'_>,
    diagnostics: &mut Diagnostics,
) -> IniItemKind<'t> {
    if text.contains('\r') {
        let hint = "end every line with a line feed".to_string();
        diagnostics.add_error(source, "carriage return inside the line", Some(hint));
        return malformed_item(text.into());
    }
    let is_header = text.starts_with('[');
    let delimiter = text.find(['=', ':']).map(|at| text.split_at(at));
    if let (false, Some((key, rest))) = (is_header, delimiter)
        && rest.starts_with(':')
    {
        let hint = format!("write `{} = {}`", key.trim(), rest[1..].trim());
        diagnostics.add_error(
            source,
            "`:` does not set a key; use key = value",
            Some(hint),
        );
        return malformed_item(text.into());
    }
    let options = ParseOption {
        enabled_quote: false,
        enabled_escape: false,
        ..ParseOption::default()
    };
    if let Ok(parsed) = Ini::load_from_str_opt(text, options) {
        let mut sections = parsed.iter().filter_map(|(name, _)| name);
        let mut pairs = parsed.iter().flat_map(|(_, pairs)| pairs.iter());
        match (sections.next(), pairs.next()) {
            (Some(name), None) => {
                return IniItemKind::Section {
                    name: part_of(text, name),
                    is_malformed: false,
                };
            }
            (None, Some((key, value))) => {
                return IniItemKind::Pair {
                    key: part_of(text, key),
                    value: part_of(text, value),
                };
            }
            // `[a] b=c` is both; a line of whitespace that is not ASCII is neither.
            _ => {}
        }
    }
    let (message, hint) = if is_header && !text.contains(']') {
        ("section header without a closing `]`", "write [name]")
    } else if is_header {
        (
            "unexpected text after the section header",
            "put it on a line of its own",
        )
    } else if text.starts_with('=') {
        ("no key before the `=`", "write key = value")
    } else {
        (
            "the line is neither [section] nor key = value",
            "start a comment with `#`; a value cannot continue on the next line",
        )
    };
    diagnostics.add_error(source, message, Some(hint.to_string()));
    malformed_item(text.into())
}

/// Returns the name, key or value that is a part of a line, without a copy where it is at its place.
fn part_of<'t>(line: &'t str, part: &str) -> Cow<'t, str> {
    let places = [0, 1, line.len().saturating_sub(part.len())];
    let mut parts = places
        .into_iter()
        .filter_map(|at| line.get(at..at + part.len()));
    match parts.find(|it| *it == part) {
        Some(part) => Cow::Borrowed(part),
        None => Cow::Owned(part.to_string()),
    }
}

/// Guesses the kind of a malformed line.
fn malformed_item(text: Cow<'_, str>) -> IniItemKind<'_> {
    match text.strip_prefix('[') {
        Some(rest) => IniItemKind::Section {
            name: rest
                .split([']', '=', '\r'])
                .next()
                .unwrap_or(rest)
                .trim()
                .to_string()
                .into(),
            is_malformed: true,
        },
        None => {
            let is_key_end = |c: char| matches!(c, '=' | ':') || c.is_whitespace();
            IniItemKind::Malformed {
                key: text
                    .split(is_key_end)
                    .next()
                    .unwrap_or_default()
                    .to_string()
                    .into(),
            }
        }
    }
}

/// Splits a trimmed line before its comment. A `#` starts a comment at the start of the line, after
/// whitespace, and directly after a section header; the original tool cut at every `#`. A `;`
/// starts a comment only at the start of the line.
fn split_comment(line: &[u8]) -> (&[u8], &[u8]) {
    if line.first().is_some_and(|byte| matches!(byte, b'#' | b';')) {
        return line.split_at(0);
    }
    let can_precede_comment =
        |byte: u8| matches!(byte, b' ' | b'\t') || (byte == b']' && line[0] == b'[');
    let at = line
        .windows(2)
        .position(|pair| can_precede_comment(pair[0]) && pair[1] == b'#')
        .map_or(line.len(), |at| at + 1);
    let (content, comment) = line.split_at(at);
    (content.trim_ascii_end(), comment)
}

/// Whether a comment after a value may be part of the value: `#2/MEMORY.md` may, `# the second one`
/// may not.
fn is_likely_value(comment: &[u8]) -> bool {
    comment
        .get(1)
        .is_some_and(|byte| !byte.is_ascii_whitespace())
}

/// Returns the start of a text that may be long.
pub(super) fn excerpt(text: Cow<'_, str>) -> Cow<'_, str> {
    let is_long = text.len() > MAX_EXCERPT_CHARS;
    let end = is_long.then(|| text.char_indices().nth(MAX_EXCERPT_CHARS));
    match end.flatten() {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => text,
    }
}
