//! `memory-shepherd.conf` as lines: sections and pairs with their line numbers,
//! and one diagnostic for every line that is neither.
//!
//! rust-ini is the grammar. It keeps no line numbers and stops at the first
//! fault, so it is handed one line at a time: the number is then known, and
//! every bad line is reported. What it would take and an operator did not mean
//! (`:` as a delimiter, a pair behind a section header, a carriage return as
//! the end of a line) is refused here.

use std::fmt;
use std::path::{Path, PathBuf};

use ini::{Ini, ParseOption};
use serde::{Serialize, Serializer};

/// How bad a [`Diagnostic`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DiagnosticLevel {
    /// Nothing runs with this config.
    Error,
    /// The config is used, but probably does not say what was meant.
    Warning,
}

/// What is wrong in a config, where, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// Whether the config can be used at all.
    pub level: DiagnosticLevel,
    /// The config file.
    #[serde(serialize_with = "lossy")]
    pub file: PathBuf,
    /// The line, counted from 1; none when the file as a whole is meant.
    pub line: Option<usize>,
    /// The offending line, trimmed, and cut when it is very long.
    pub text: String,
    /// A sentence without its full stop.
    pub message: String,
    /// What the operator can do.
    pub hint: Option<String>,
}

/// A folder whose name is not UTF-8 must not make the JSON output fail.
fn lossy<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

impl Diagnostic {
    /// Where, and what.
    fn head(&self) -> String {
        let level = match self.level {
            DiagnosticLevel::Error => "error",
            DiagnosticLevel::Warning => "warning",
        };
        let line = self.line.map_or(String::new(), |line| format!(":{line}"));
        let file = self.file.display();
        format!("{file}{line}: {level}: {}", self.message)
    }

    /// Where, what, and what to do about it.
    pub(super) fn in_a_line(&self) -> String {
        let hint = self.hint.as_ref();
        self.head() + &hint.map_or(String::new(), |hint| format!("; {hint}"))
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.head())?;
        if !self.text.is_empty() {
            write!(f, "\n    {}", self.text)?;
        }
        match &self.hint {
            Some(hint) => write!(f, "\n    hint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Where a line stands and how it reads, for the diagnostics about it.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    pub(super) line: usize,
    pub(super) text: String,
}

/// One line that means something.
#[derive(Debug)]
pub(super) struct IniItem {
    pub(super) spot: Spot,
    pub(super) kind: IniItemKind,
}

/// What a line is.
#[derive(Debug)]
pub(super) enum IniItemKind {
    /// `[name]`. A header that could not be read is one too (`broken`), with
    /// the name it seems to have: otherwise the keys below it would be blamed
    /// on the section before.
    Section { name: String, broken: bool },
    /// `key = value`.
    Pair { key: String, value: String },
    /// A line with a diagnostic. The key that it seems to set is kept, so that
    /// it is not reported as missing as well.
    Lost { key: String },
}

/// Collects diagnostics of one file.
#[derive(Debug)]
pub(super) struct Diagnostics {
    file: PathBuf,
    list: Vec<Diagnostic>,
    errors: usize,
    warnings: usize,
}

/// The most diagnostics of a level that are kept. Somebody who names the wrong
/// file wants to see the start of what is wrong with it, not a million lines.
const KEPT: usize = 1000;

impl Diagnostics {
    pub(super) fn new(file: &Path) -> Diagnostics {
        Diagnostics {
            file: file.to_path_buf(),
            list: Vec::new(),
            errors: 0,
            warnings: 0,
        }
    }

    pub(super) fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// The diagnostics in the order of the file.
    pub(super) fn finish(mut self) -> Vec<Diagnostic> {
        self.list.sort_by_key(|diagnostic| diagnostic.line);
        for (level, count, name) in [
            (DiagnosticLevel::Error, self.errors, "errors"),
            (DiagnosticLevel::Warning, self.warnings, "warnings"),
        ] {
            if count > KEPT {
                let message = format!("{} more {name} are not shown", count - KEPT);
                self.push(level, None, message, None);
            }
        }
        self.list
    }

    pub(super) fn add(
        &mut self,
        level: DiagnosticLevel,
        spot: Option<&Spot>,
        message: impl Into<String>,
        hint: Option<String>,
    ) {
        let count = match level {
            DiagnosticLevel::Error => &mut self.errors,
            DiagnosticLevel::Warning => &mut self.warnings,
        };
        *count += 1;
        if *count <= KEPT {
            self.push(level, spot, message.into(), hint);
        }
    }

    fn push(
        &mut self,
        level: DiagnosticLevel,
        spot: Option<&Spot>,
        message: String,
        hint: Option<String>,
    ) {
        self.list.push(Diagnostic {
            level,
            file: self.file.clone(),
            line: spot.map(|spot| spot.line),
            text: spot.map_or_else(String::new, |spot| spot.text.clone()),
            message,
            hint,
        });
    }

    pub(super) fn error(&mut self, spot: &Spot, message: impl Into<String>, hint: Option<String>) {
        self.add(DiagnosticLevel::Error, Some(spot), message, hint);
    }

    pub(super) fn warn(&mut self, spot: &Spot, message: impl Into<String>, hint: Option<String>) {
        self.add(DiagnosticLevel::Warning, Some(spot), message, hint);
    }
}

/// The longest text of a line that a diagnostic repeats, in characters.
const TEXT_MAX: usize = 200;

/// Reads the lines of a config.
pub(super) fn read(bytes: &[u8], report: &mut Diagnostics) -> Vec<IniItem> {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        let hint = "save it as UTF-8".to_string();
        report.add(
            DiagnosticLevel::Error,
            None,
            "the file is UTF-16, not UTF-8",
            Some(hint),
        );
        return Vec::new();
    }
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    let lines = bytes.split(|byte| *byte == b'\n').enumerate();
    lines
        .filter_map(|(index, line)| read_line(line.trim_ascii(), index + 1, report))
        .collect()
}

/// Reads one line, trimmed of ASCII white space (and so of the CR of CRLF).
fn read_line(line: &[u8], number: usize, report: &mut Diagnostics) -> Option<IniItem> {
    let spot = Spot {
        line: number,
        text: excerpt(&String::from_utf8_lossy(line)),
    };
    // A comment in another encoding did no harm to the original.
    let (kept, comment) = cut_comment(line);
    if str::from_utf8(comment).is_err() {
        let hint = "save the file as UTF-8".to_string();
        report.warn(&spot, "the comment is not UTF-8", Some(hint));
    }
    if kept.is_empty() {
        return None;
    }
    if looks_like_data(comment) {
        let cut = excerpt(&String::from_utf8_lossy(comment));
        report.warn(
            &spot,
            format!("`{cut}` counts as a comment, because white space stands before its `#`"),
            Some("put a space behind the `#` of a comment; a value cannot hold ` #`".to_string()),
        );
    }
    let kind = match str::from_utf8(kept) {
        Ok(text) => parse_line(text, &spot, report),
        Err(_) => {
            let hint = "save the file as UTF-8".to_string();
            report.error(&spot, "the line is not UTF-8", Some(hint));
            lost(&String::from_utf8_lossy(kept))
        }
    };
    Some(IniItem { spot, kind })
}

/// Parses one line without its comment: the only place that calls rust-ini.
fn parse_line(text: &str, spot: &Spot, report: &mut Diagnostics) -> IniItemKind {
    if text.contains('\r') {
        let hint = "end every line with a line feed".to_string();
        report.error(spot, "a carriage return stands inside the line", Some(hint));
        return lost(text);
    }
    let header = text.starts_with('[');
    let delimiter = text.find(['=', ':']).map(|at| text.split_at(at));
    if let (false, Some((key, rest))) = (header, delimiter)
        && rest.starts_with(':')
    {
        let hint = format!("write `{} = {}`", key.trim(), rest[1..].trim());
        report.error(spot, "`:` does not set a key, use key = value", Some(hint));
        return lost(text);
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
                    name: name.to_string(),
                    broken: false,
                };
            }
            (None, Some((key, value))) => {
                return IniItemKind::Pair {
                    key: key.to_string(),
                    value: value.to_string(),
                };
            }
            // `[a] b=c` is both, and white space that is not ASCII is neither.
            _ => {}
        }
    }
    let (message, hint) = if header && !text.contains(']') {
        ("the section header has no closing `]`", "write [name]")
    } else if header {
        (
            "something stands behind the section header",
            "put it on a line of its own",
        )
    } else if text.starts_with('=') {
        ("there is no key before the `=`", "write key = value")
    } else {
        (
            "the line is neither a [section] nor a key = value",
            "a comment starts with `#`; a value cannot go on in the next line",
        )
    };
    report.error(spot, message, Some(hint.to_string()));
    lost(text)
}

/// What a line that cannot be read seems to be.
fn lost(text: &str) -> IniItemKind {
    match text.strip_prefix('[') {
        Some(rest) => IniItemKind::Section {
            name: rest
                .split([']', '=', '\r'])
                .next()
                .unwrap_or(rest)
                .trim()
                .to_string(),
            broken: true,
        },
        None => {
            let end = |c: char| matches!(c, '=' | ':') || c.is_whitespace();
            IniItemKind::Lost {
                key: text.split(end).next().unwrap_or(text).to_string(),
            }
        }
    }
}

/// Splits a trimmed line before its comment. A `#` starts one at the start of
/// the line, after white space, and right behind a section header; the original
/// cut at every `#`. A `;` starts one only at the start of the line.
fn cut_comment(line: &[u8]) -> (&[u8], &[u8]) {
    if line.first().is_some_and(|byte| matches!(byte, b'#' | b';')) {
        return line.split_at(0);
    }
    let before = |byte: u8| matches!(byte, b' ' | b'\t') || (byte == b']' && line[0] == b'[');
    let at = line
        .windows(2)
        .position(|pair| before(pair[0]) && pair[1] == b'#')
        .map_or(line.len(), |at| at + 1);
    let (kept, comment) = line.split_at(at);
    (kept.trim_ascii_end(), comment)
}

/// Whether a comment behind a value may be a part of the value: `#2/MEMORY.md`
/// does, `# the second one` does not.
fn looks_like_data(comment: &[u8]) -> bool {
    comment
        .get(1)
        .is_some_and(|byte| !byte.is_ascii_whitespace())
}

/// The start of a text that may be long.
pub(super) fn excerpt(text: &str) -> String {
    match text.char_indices().nth(TEXT_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_string(),
    }
}
