//! Findings: one a rule and file, with all places, a fingerprint, and edits where a fix is safe.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};

use super::LintInput;
use super::document::{Document, Zone};
use super::rule::{Rule, RuleId, Severity};
use crate::base::digest::Digest;
use crate::base::quantity::format_count;
use crate::base::untrusted::visible_line;

/// Name of the record in JSON.
pub const FINDING_SCHEMA: &str = "shepherd.lint/1";

/// Maximum number of places of one finding; the message has the number of all.
const MAX_PLACES: usize = 100;

/// A position in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Position {
    /// The line, from 1.
    pub line: usize,
    /// The character in the line, from 1; a byte that is not UTF-8 counts as one.
    pub col: usize,
    /// The UTF-16 unit in the line, from 1.
    pub utf16_col: usize,
    /// Offset in the file, from 0.
    pub byte: usize,
}

impl Position {
    /// The beginning of a file.
    const START: Position = Position {
        line: 1,
        col: 1,
        utf16_col: 1,
        byte: 0,
    };
}

/// A range in a file; its end is exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TextRange {
    /// Where it begins.
    pub start: Position,
    /// Where it ends.
    pub end: Position,
}

/// A further place of a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// Where it is.
    pub range: TextRange,
    /// What it is.
    pub label: String,
}

/// A replacement of a range of bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Edit {
    /// The replaced bytes; empty for an insertion.
    pub range: TextRange,
    /// The new text.
    pub text: String,
}

/// Whether a fix may change what the text means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FixKind {
    /// It does not: `lint --fix` applies it.
    Safe,
    /// It may: only an editor offers it.
    Unsafe,
}

/// A correction of a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fix {
    /// Whether it may be applied unseen.
    pub kind: FixKind,
    /// The replacements, in the order of the file, without overlaps.
    pub edits: Vec<Edit>,
}

/// A finding of a rule in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The rule.
    pub rule: RuleId,
    /// How serious it is here.
    pub severity: Severity,
    /// The side of the boundary.
    pub zone: Zone,
    /// The agent, where the file belongs to one.
    pub agent: Option<String>,
    /// The file: a name that others may have chosen.
    pub path: String,
    /// The first place, or of an attack on a baseline the first one on a new line; the start of the
    /// file for a finding about the whole.
    pub range: TextRange,
    /// The fault in one sentence; safe to print.
    pub message: String,
    /// The further places.
    pub related: Vec<Place>,
    /// A correction, if there is one.
    pub fix: Option<Fix>,
    /// Identifies the finding while other lines move.
    pub fingerprint: String,
    /// Whether the text of the places must not be shown.
    pub is_redacted: bool,
}

impl Finding {
    /// Returns the rule's row of the table.
    pub fn rule_row(&self) -> &'static Rule {
        self.rule.rule()
    }

    /// Returns, for example, "MS403 text-after-separator: 31 % of this baseline …".
    pub fn summary(&self) -> String {
        let rule = self.rule_row();
        format!("{} {}: {}", rule.id, rule.name, self.message)
    }

    /// Returns all places, the first one first.
    pub fn ranges(&self) -> impl Iterator<Item = TextRange> {
        let related = self.related.iter().map(|place| place.range);
        std::iter::once(self.range).chain(related)
    }
}

impl Serialize for Finding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rule = self.rule_row();
        let mut record = serializer.serialize_struct("Finding", 18)?;
        record.serialize_field("schema", FINDING_SCHEMA)?;
        record.serialize_field("rule", rule.id)?;
        record.serialize_field("name", rule.name)?;
        record.serialize_field("severity", &self.severity)?;
        record.serialize_field("zone", &self.zone)?;
        record.serialize_field("agent", &self.agent)?;
        record.serialize_field("path", &self.path)?;
        record.serialize_field("range", &self.range)?;
        record.serialize_field("message", &self.message)?;
        record.serialize_field("why", rule.why)?;
        record.serialize_field("help", rule.help)?;
        record.serialize_field("related", &self.related)?;
        match &self.fix {
            Some(fix) => record.serialize_field("fix", fix)?,
            None => record.skip_field("fix")?,
        }
        record.serialize_field("fingerprint", &self.fingerprint)?;
        let evidence = if self.is_redacted {
            "redacted"
        } else {
            "shown"
        };
        record.serialize_field("evidence", evidence)?;
        record.serialize_field("confidence", &rule.confidence)?;
        record.serialize_field("tags", rule.tags())?;
        let url = format!("memory-shepherd lint explain {}", rule.id);
        record.serialize_field("url", &url)?;
        record.end()
    }
}

/// Places of a finding that a rule has found, with a label each.
#[derive(Default)]
pub(super) struct Places {
    pub list: Vec<(Range<usize>, Label)>,
    /// Number of places that [`Places::add_character`] has left out.
    omitted: usize,
}

/// Label of a place.
pub(super) type Label = Cow<'static, str>;

impl Places {
    pub fn add(&mut self, range: Range<usize>, label: impl Into<Label>) {
        self.list.push((range, label.into()));
    }

    /// Adds a place of a rule that may have as many as the text has bytes. Behind the number that is
    /// listed, one on each line is enough: it tells which lines a finding is about.
    pub fn add_character(
        &mut self,
        document: &Document<'_>,
        range: Range<usize>,
        label: impl FnOnce() -> Label,
    ) {
        let last = self.list.last().filter(|_| self.list.len() >= MAX_PLACES);
        let is_on_listed_line = last.is_some_and(|(last, _)| {
            let line = &document.lines[document.line_at(last.start)];
            range.start < line.end
        });
        if is_on_listed_line {
            self.omitted += 1;
        } else {
            self.list.push((range, label()));
        }
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the number of all places.
    pub fn len(&self) -> usize {
        self.list.len() + self.omitted
    }

    /// Returns the number of all places, with a noun: "2 lines".
    pub fn count(&self, noun: &str) -> String {
        format_count(self.len() as u64, noun)
    }

    /// Whether the list has all places.
    pub fn is_complete(&self) -> bool {
        self.omitted == 0
    }

    /// Adds the places of another rule's list.
    pub fn append(&mut self, mut other: Places) {
        self.list.append(&mut other.list);
        self.omitted += other.omitted;
    }

    /// Returns the place that a message quotes: the first one on a new line, or else the first.
    pub fn foremost(&self, document: &Document<'_>) -> Option<&Range<usize>> {
        let mut ranges = self.list.iter().map(|(range, _)| range);
        ranges
            .clone()
            .find(|range| document.is_on_new_line(range))
            .or_else(|| ranges.next())
    }
}

/// A replacement of a range of bytes, as a rule proposes it.
type DraftEdit = (Range<usize>, String);

/// A finding as a rule reports it.
pub(super) struct Draft {
    pub rule: RuleId,
    pub severity: Severity,
    pub message: String,
    pub places: Places,
    pub fix: Option<(FixKind, Vec<DraftEdit>)>,
    pub is_fleet: bool,
    /// What tells the finding from others of its rule, where the lines of its places do not.
    identity: Option<Vec<u8>>,
}

impl Draft {
    /// A finding with the rule's usual severity, about the whole file.
    pub fn new(rule: RuleId, message: impl Into<String>) -> Draft {
        Draft {
            rule,
            severity: rule.rule().severity,
            message: message.into(),
            places: Places::default(),
            fix: None,
            is_fleet: false,
            identity: None,
        }
    }

    /// A finding whose message quotes its foremost place; none without places.
    pub fn quoting(
        rule: RuleId,
        what: &str,
        places: Places,
        document: &Document<'_>,
    ) -> Option<Draft> {
        let message = format!("{what}: {}", document.quote(places.foremost(document)?));
        Some(Draft::new(rule, message).at(places))
    }

    pub fn severity(self, severity: Severity) -> Draft {
        Draft { severity, ..self }
    }

    pub fn at(self, places: Places) -> Draft {
        Draft { places, ..self }
    }

    pub fn at_range(mut self, range: Range<usize>, label: impl Into<Label>) -> Draft {
        self.places.add(range, label);
        self
    }

    pub fn safe_fix(self, edits: Vec<DraftEdit>) -> Draft {
        let fix = Some((FixKind::Safe, edits));
        Draft { fix, ..self }
    }

    /// Offers text to insert, which only an editor does.
    pub fn offer_text(self, at: usize, text: impl Into<String>) -> Draft {
        let fix = Some((FixKind::Unsafe, vec![(at..at, text.into())]));
        Draft { fix, ..self }
    }

    /// A finding about the config, the seal or metadata, not about a place of the text. It is
    /// another one where it says something else.
    pub fn about_fleet(self) -> Draft {
        let identity = self.message.clone().into_bytes();
        let draft = self.identified_by(identity);
        Draft {
            is_fleet: true,
            ..draft
        }
    }

    /// Sets what tells the finding from others of its rule. It contains no secret.
    pub fn identified_by(self, identity: Vec<u8>) -> Draft {
        let identity = Some(identity);
        Draft { identity, ..self }
    }

    /// Whether the text of its places must not be shown.
    fn is_redacted(&self) -> bool {
        matches!(self.rule, RuleId::Secret | RuleId::AssignedSecret)
    }
}

/// Turns drafts into findings of one file.
pub(super) struct FindingBuilder<'d, 't> {
    pub document: &'d Document<'t>,
    pub agent: Option<&'d str>,
    pub path: &'d str,
    /// The position that was computed last: the next one is often behind it on the same line.
    last_position: Cell<Position>,
    /// Number of findings so far by rule and normalized line, for their fingerprints.
    seen: HashMap<(RuleId, Vec<u8>), usize>,
}

impl<'d, 't> FindingBuilder<'d, 't> {
    pub fn new(document: &'d Document<'t>, input: &'d LintInput<'_>) -> Self {
        FindingBuilder {
            document,
            agent: input.agent,
            path: input.path,
            last_position: Cell::new(Position::START),
            seen: HashMap::new(),
        }
    }

    /// Sorts places: those of attacks on lines that the earlier version of the baseline does not
    /// have go first, because a new line is the one to look at. Returns the number of these.
    fn sort_places(&self, rule: RuleId, places: &mut [(Range<usize>, Label)]) -> usize {
        places.sort_by_key(|(range, _)| range.start);
        if !rule.is_attack() {
            return 0;
        }
        let is_old = |(range, _): &(Range<usize>, Label)| !self.document.is_on_new_line(range);
        places.sort_by_cached_key(is_old);
        places.iter().filter(|place| !is_old(place)).count()
    }

    pub fn build(&self, draft: Draft, fingerprint: String) -> Finding {
        let is_redacted = draft.is_redacted();
        let count = draft.places.len();
        let is_complete = draft.places.is_complete();
        let mut places = draft.places.list;
        let new_count = self.sort_places(draft.rule, &mut places);
        let zone = if draft.is_fleet {
            Zone::Fleet
        } else {
            places
                .iter()
                .map(|(range, _)| self.document.zone_of(range))
                .reduce(|one, other| if one == other { one } else { Zone::Whole })
                .unwrap_or(if self.document.is_baseline() {
                    Zone::Baseline
                } else {
                    Zone::Whole
                })
        };
        let mut message = visible_line(&draft.message);
        if count > MAX_PLACES {
            message.push_str(&format!(
                " (the first {MAX_PLACES} of {count} places are listed)"
            ));
        }
        if new_count > 0 && count > 1 {
            message.push_str(&if is_complete {
                format!(" ({new_count} of {count} places on new lines, listed first)")
            } else {
                " (places on new lines are listed first)".to_string()
            });
        }
        let mut ranges = places.into_iter().take(MAX_PLACES);
        let range = ranges.next().map_or(0..0, |(range, _)| range);
        Finding {
            rule: draft.rule,
            severity: draft.severity,
            zone,
            agent: self.agent.map(visible_line),
            path: self.path.to_string(),
            range: self.text_range(&range),
            message,
            related: ranges
                .map(|(range, label)| Place {
                    range: self.text_range(&range),
                    label: visible_line(label.as_bytes()),
                })
                .collect(),
            fix: draft.fix.map(|(kind, edits)| Fix {
                kind,
                edits: edits
                    .into_iter()
                    .map(|(range, text)| Edit {
                        range: self.text_range(&range),
                        text,
                    })
                    .collect(),
            }),
            fingerprint,
            is_redacted,
        }
    }

    /// Returns the lines of all places, in lower case and with single spaces, so that a finding
    /// with a further place is another one. Secrets are masked: a fingerprint would let a weak one
    /// be guessed.
    fn normalized_lines(&self, places: &[(Range<usize>, Label)]) -> Vec<u8> {
        let document = self.document;
        if document.lines.is_empty() {
            return Vec::new();
        }
        let lines: BTreeSet<usize> = places
            .iter()
            .map(|(range, _)| document.line_at(range.start))
            .collect();
        let mut normalized: Vec<Vec<u8>> = lines
            .into_iter()
            .map(|line| normalize_line(&document.masked(&document.line_range(line))))
            .collect();
        // The order of the file does not matter, so that lines can move.
        normalized.sort_unstable();
        normalized.join(&b'\n')
    }

    /// Returns what identifies a finding while other lines move.
    pub fn fingerprint(&mut self, draft: &Draft) -> String {
        let rule = draft.rule;
        let identity = draft.identity.clone();
        let line = identity.unwrap_or_else(|| self.normalized_lines(&draft.places.list));
        let mut text = format!("{}|{}|", rule.code(), self.agent.unwrap_or_default()).into_bytes();
        text.extend_from_slice(&line);
        let nth = self.seen.entry((rule, line)).or_insert(0);
        text.extend_from_slice(format!("|{nth}").as_bytes());
        *nth += 1;
        Digest::of(&text).to_string()
    }

    fn text_range(&self, range: &Range<usize>) -> TextRange {
        TextRange {
            start: self.position(range.start),
            end: self.position(range.end),
        }
    }

    fn position(&self, byte: usize) -> Position {
        let document = self.document;
        let line = document.line_at(byte);
        let start = document.lines.get(line).map_or(0, |line| line.start);
        // An offset behind a final line feed is on a line of its own.
        let ends_line = byte > start && document.text.get(byte - 1) == Some(&b'\n');
        let (line, start) = if ends_line {
            (line + 1, byte)
        } else {
            (line, start)
        };
        let last = self.last_position.get();
        let is_behind = last.line == line + 1 && (start..=byte).contains(&last.byte);
        let mut position = if is_behind {
            last
        } else {
            Position {
                line: line + 1,
                byte: start,
                ..Position::START
            }
        };
        for chunk in document.text[position.byte..byte].utf8_chunks() {
            for c in chunk.valid().chars() {
                position.col += 1;
                position.utf16_col += c.len_utf16();
            }
            // A byte that is not UTF-8 counts as a character, and so does half of one.
            position.col += chunk.invalid().len();
            position.utf16_col += chunk.invalid().len();
        }
        position.byte = byte;
        self.last_position.set(position);
        position
    }
}

fn normalize_line(text: &[u8]) -> Vec<u8> {
    let words = text
        .split(u8::is_ascii_whitespace)
        .filter(|it| !it.is_empty());
    let words: Vec<Vec<u8>> = words.map(<[u8]>::to_ascii_lowercase).collect();
    words.join(&b' ')
}
