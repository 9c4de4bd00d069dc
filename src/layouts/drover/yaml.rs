//! The YAML of entries: reads a mapping as the core schema of YAML 1.2 resolves it, and writes strings
//! the way that the npm package `yaml` 2 does, whose output the files of agents have.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use regex::Regex;
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, Tag};

/// The control characters that are written in a way of their own.
const ESCAPE: u32 = 27;
const DELETE: char = '\x7f';

/// Maximum depth of values in values: more is refused, as no entry needs it.
const MAX_DEPTH: usize = 64;

/// Width in UTF-16 code units at which strings are folded.
const LINE_WIDTH: usize = 80;

/// Width that a folded line has at least, however deep it is indented.
const MIN_CONTENT_WIDTH: usize = 20;

/// A value of a mapping.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Bool,
    Number(f64),
    Text(String),
    List(Vec<Value>),
    Mapping,
}

impl Value {
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    pub key: String,
    pub value: Value,
    /// What the text has of it, with comments behind it where it takes whole lines.
    pub source: String,
}

/// A text is not one mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappingFault {
    /// The line of the first fault, from 1; none where the text as a whole is at fault.
    pub line: Option<u64>,
}

impl MappingFault {
    const OF_TEXT: MappingFault = MappingFault { line: None };

    fn at(marker: Marker) -> MappingFault {
        MappingFault {
            line: Some(marker.line() as u64),
        }
    }
}

/// Reads a text that is one mapping, with keys that occur once.
///
/// # Errors
/// The first fault.
pub fn parse_mapping(text: &str) -> Result<Vec<Pair>, MappingFault> {
    let mut builder = Builder::default();
    let mut documents = 0;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| MappingFault::at(*error.marker()))?;
        if matches!(event, Event::DocumentStart(_)) {
            documents += 1;
        }
        builder.take(event, span)?;
    }
    if documents > 1 {
        return Err(MappingFault::OF_TEXT);
    }
    let read = builder.pairs.ok_or(MappingFault::OF_TEXT)?;
    let chars: Vec<char> = text.chars().collect();
    // Keys that begin lines of their own own them up to the next key.
    let mut ends = read.iter().skip(1).map(|pair| pair.start);
    let has_whole_lines = read.iter().all(|pair| {
        let before = chars[..pair.start.min(chars.len())].last();
        before.is_none_or(|before| *before == '\n')
    });
    let pairs = read.iter().map(|pair| {
        let end = match ends.next() {
            Some(next) if has_whole_lines => next,
            None if has_whole_lines => chars.len(),
            _ => pair.end,
        };
        let source = chars.get(pair.start..end).unwrap_or_default();
        Pair {
            key: pair.key.clone(),
            value: pair.value.clone(),
            source: source.iter().collect::<String>().trim_end().to_string(),
        }
    });
    Ok(pairs.collect())
}

/// A key with its value and the characters of the text that it takes.
struct ReadPair {
    key: String,
    value: Value,
    start: usize,
    end: usize,
}

/// A collection that is being read.
struct Node {
    kind: NodeKind,
    anchor: usize,
    start: Marker,
}

enum NodeKind {
    List(Vec<Value>),
    Mapping {
        keys: HashSet<String>,
        /// The key whose value is next, and where it begins.
        key: Option<(String, usize)>,
        pairs: Vec<ReadPair>,
    },
}

impl NodeKind {
    fn list() -> NodeKind {
        NodeKind::List(Vec::new())
    }

    fn mapping() -> NodeKind {
        NodeKind::Mapping {
            keys: HashSet::new(),
            key: None,
            pairs: Vec::new(),
        }
    }
}

/// Builds the value of a document of its events.
#[derive(Default)]
struct Builder {
    open: Vec<Node>,
    anchors: HashMap<usize, Value>,
    /// The mapping that the document is, once it is read.
    pairs: Option<Vec<ReadPair>>,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), MappingFault> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let value = resolve_scalar(text.into_owned(), style, tag.as_deref());
                let value = value.ok_or(MappingFault::at(span.start))?;
                self.add(value, anchor, span)
            }
            Event::Alias(anchor) => {
                let value = self.anchors.get(&anchor).cloned();
                self.add(value.unwrap_or(Value::Mapping), 0, span)
            }
            Event::SequenceStart(anchor, _) => self.open(NodeKind::list(), anchor, span),
            Event::MappingStart(anchor, _) => self.open(NodeKind::mapping(), anchor, span),
            Event::SequenceEnd | Event::MappingEnd => self.close(span),
            _ => Ok(()),
        }
    }

    fn open(&mut self, kind: NodeKind, anchor: usize, span: Span) -> Result<(), MappingFault> {
        if self.open.len() == MAX_DEPTH {
            return Err(MappingFault::at(span.start));
        }
        self.open.push(Node {
            kind,
            anchor,
            start: span.start,
        });
        Ok(())
    }

    fn close(&mut self, span: Span) -> Result<(), MappingFault> {
        let Some(node) = self.open.pop() else {
            return Ok(());
        };
        let value = match node.kind {
            NodeKind::List(values) => Value::List(values),
            NodeKind::Mapping { pairs, .. } => {
                if self.open.is_empty() {
                    self.pairs = Some(pairs);
                    return Ok(());
                }
                Value::Mapping
            }
        };
        self.add(value, node.anchor, Span::new(node.start, span.end))
    }

    fn add(&mut self, value: Value, anchor: usize, span: Span) -> Result<(), MappingFault> {
        if anchor != 0 {
            // A copy for each alias must not multiply what a list holds.
            let is_flat = match &value {
                Value::List(values) => values.iter().all(|it| !matches!(it, Value::List(_))),
                _ => true,
            };
            let kept = if is_flat {
                value.clone()
            } else {
                Value::Mapping
            };
            self.anchors.insert(anchor, kept);
        }
        match self.open.last_mut().map(|node| &mut node.kind) {
            None => {}
            Some(NodeKind::List(values)) => values.push(value),
            Some(NodeKind::Mapping { keys, key, pairs }) => match key.take() {
                None => {
                    let name = key_text(&value);
                    if !keys.insert(name.clone()) {
                        return Err(MappingFault::at(span.start));
                    }
                    *key = Some((name, span.start.index()));
                }
                Some((key, start)) => pairs.push(ReadPair {
                    key,
                    value,
                    start,
                    end: span.end.index(),
                }),
            },
        }
        Ok(())
    }
}

/// Returns the text that a value is as a key.
fn key_text(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}

/// Plain scalars that the core schema takes for something else than a string.
static NULL: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^(?:~|[Nn]ull|NULL)?$").ok());
static BOOL: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^(?:[Tt]rue|TRUE|[Ff]alse|FALSE)$").ok());
static NUMBER: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let integer = r"0o[0-7]+|[-+]?[0-9]+|0x[0-9a-fA-F]+";
    let float = r"[-+]?\.(?:inf|Inf|INF)|\.nan|\.NaN|\.NAN";
    let decimal = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?";
    Regex::new(&format!("^(?:{integer}|{float}|{decimal})$")).ok()
});

fn matches(pattern: &LazyLock<Option<Regex>>, text: &str) -> bool {
    pattern.as_ref().is_some_and(|it| it.is_match(text))
}

/// Returns the value of a scalar; none if it is not what its tag says.
fn resolve_scalar(text: String, style: ScalarStyle, tag: Option<&Tag>) -> Option<Value> {
    let is_plain = matches!(style, ScalarStyle::Plain);
    let suffix = tag.filter(|tag| tag.is_yaml_core_schema());
    Some(match (suffix.map(|tag| tag.suffix.as_str()), tag) {
        (None, None) if is_plain => resolve_plain(text),
        (None, _) | (Some("str"), _) => Value::Text(text),
        (Some(_), _) => match resolve_plain(text) {
            Value::Text(_) => return None,
            value => value,
        },
    })
}

fn resolve_plain(text: String) -> Value {
    if matches(&NULL, &text) {
        Value::Null
    } else if matches(&BOOL, &text) {
        Value::Bool
    } else if matches(&NUMBER, &text) {
        Value::Number(parse_number(&text))
    } else {
        Value::Text(text)
    }
}

fn parse_number(text: &str) -> f64 {
    let radix = |digits: &str, radix| {
        digits.chars().fold(0.0, |number, digit| {
            number * f64::from(radix) + f64::from(digit.to_digit(radix).unwrap_or(0))
        })
    };
    if let Some(digits) = text.strip_prefix("0o") {
        return radix(digits, 8);
    }
    if let Some(digits) = text.strip_prefix("0x") {
        return radix(digits, 16);
    }
    let lower = text.to_ascii_lowercase();
    match lower.as_str() {
        ".nan" => f64::NAN,
        "-.inf" => f64::NEG_INFINITY,
        ".inf" | "+.inf" => f64::INFINITY,
        _ => lower.parse().unwrap_or(f64::NAN),
    }
}

/// Writes a string as a value. `start`: the column at which it begins, if it is the value of a key;
/// `indent`: the columns before each further line.
pub fn write_text(text: &str, indent: usize, start: Option<usize>) -> String {
    let needs_escapes = text
        .chars()
        .any(|it| matches!(it, '\0'..='\x08' | '\n'..='\x1f' | '\x7f'..='\u{9f}'));
    if needs_escapes {
        return fold(&escape(text), indent, start, true);
    }
    let is_string = matches!(resolve_plain(text.to_string()), Value::Text(_));
    if is_string && can_be_plain(text) {
        return fold(text, indent, start, false);
    }
    if text.contains('"') && !text.contains('\'') {
        return fold(&format!("'{text}'"), indent, start, false);
    }
    fold(&escape(text), indent, start, true)
}

/// Whether a string of one line needs no quotes, apart from what it resolves to.
fn can_be_plain(text: &str) -> bool {
    let starts_with_indicator = text.starts_with(|first| "\t ,[]{}#&*!|>'\"%@`".contains(first));
    let is_entry = matches!(text, "-" | "?")
        || ["- ", "-\t", "? ", "?\t"]
            .iter()
            .any(|it| text.starts_with(it));
    let has_indicator = [": ", ":\t", " #", "\t#"]
        .iter()
        .any(|it| text.contains(it));
    !(starts_with_indicator || is_entry || has_indicator || text.ends_with(['\t', ' ', ':']))
}

/// Writes a string between double quotes.
fn escape(text: &str) -> String {
    let mut escaped = String::from('"');
    for char in text.chars() {
        match char {
            '"' => escaped.push_str("\\\""),
            '\\' => escaped.push_str("\\\\"),
            '\x08' => escaped.push_str("\\b"),
            '\t' => escaped.push_str("\\t"),
            '\n' => escaped.push_str("\\n"),
            '\x0c' => escaped.push_str("\\f"),
            '\r' => escaped.push_str("\\r"),
            '\0' => escaped.push_str("\\0"),
            '\x07' => escaped.push_str("\\a"),
            '\x0b' => escaped.push_str("\\v"),
            _ if u32::from(char) == ESCAPE => escaped.push_str("\\e"),
            _ if char.is_ascii_control() && char != DELETE => {
                escaped.push_str(&format!("\\x{:02x}", u32::from(char)));
            }
            _ => escaped.push(char),
        }
    }
    escaped.push('"');
    escaped
}

/// Breaks a string at spaces between words into lines of at most 80 columns, as far as it has such
/// spaces. Between double quotes (`has_escapes`), a line without one is broken anywhere.
fn fold(text: &str, indent: usize, start: Option<usize>, has_escapes: bool) -> String {
    const SPACE: u16 = b' ' as u16;
    const TAB: u16 = b'\t' as u16;
    const BACKSLASH: u16 = b'\\' as u16;
    let is_blank = |unit: u16| matches!(unit, SPACE | TAB);
    let units: Vec<u16> = text.encode_utf16().collect();
    let step = (LINE_WIDTH - indent).max(MIN_CONTENT_WIDTH) + 1;
    if units.len() <= step {
        return text.to_string();
    }
    // Where the text is broken: in place of a space, or behind a character with an escaped line end.
    let mut folds: Vec<(usize, bool)> = Vec::new();
    let mut end = LINE_WIDTH - start.unwrap_or(indent);
    let mut split = None;
    let mut escape = 0..0;
    let mut previous = SPACE;
    let mut at = 0;
    while let Some(&(mut unit)) = units.get(at) {
        if has_escapes && unit == BACKSLASH {
            let digits = if units.get(at + 1) == Some(&u16::from(b'x')) {
                2
            } else {
                0
            };
            escape = at..at + 1 + digits;
            at = escape.end;
        }
        if unit == SPACE
            && !is_blank(previous)
            && units.get(at + 1).is_some_and(|it| !is_blank(*it))
        {
            split = Some(at);
        }
        if at >= end {
            if let Some(space) = split.take() {
                folds.push((space, false));
                end = space + step;
            } else if has_escapes {
                while is_blank(previous) && at < units.len() {
                    previous = unit;
                    at += 1;
                    unit = units.get(at).copied().unwrap_or_default();
                }
                let mut last = if at > escape.end + 1 {
                    at - 2
                } else {
                    escape.start - 1
                };
                if (0xd800..0xdc00).contains(&units[last]) {
                    last -= 1;
                }
                if folds.contains(&(last, true)) {
                    return text.to_string();
                }
                folds.push((last, true));
                end = last + step;
            }
        }
        previous = unit;
        at += 1;
    }
    let mut folded = String::new();
    let mut from = 0;
    for (place, is_escaped) in folds {
        let to = place + usize::from(is_escaped);
        folded.push_str(&String::from_utf16_lossy(&units[from..to]));
        if is_escaped {
            folded.push('\\');
        }
        folded.push('\n');
        folded.push_str(&" ".repeat(indent));
        from = place + 1;
    }
    folded + &String::from_utf16_lossy(&units[from..])
}

#[cfg(test)]
mod tests;
