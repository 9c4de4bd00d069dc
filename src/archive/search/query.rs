//! The query language of the archive.
//!
//! Terms are joined by AND; `-` before a term excludes what it matches.
//!
//! | term | matches |
//! |---|---|
//! | `loop` | the word, in any case, with or without diacritics |
//! | `auth_module`, `PR#42` | its words in a row |
//! | `"token loop"` | these words in a row |
//! | `rotat*` | words that begin so |
//! | `/tok(en)?s/` | a regular expression within a line; case counts once it has a capital letter |
//! | `agent:scout,code-*` | agents, with `*` for any characters |
//! | `kind:scratch,full` | kinds of entries |
//! | `since:7d`, `until:2026-03` | the time of the entry: an age, a date, a month, a year, or a time |
//! | `is:pinned`, `is:left` | pinned entries; those of agents that left the config |
//! | `in:live`, `in:memory`, `in:archive` | memories, files of memories of several files, or entries; all by default |
//! | `layout:drover` | files of memories with this layout |

mod relaxed;

use std::fmt;
use std::ops::Range;

use chrono::{DateTime, FixedOffset, NaiveDateTime};
use regex::bytes::{Regex, RegexBuilder};

use super::similar::{SimilarWord, Vocabulary};
use super::words::{for_each_word, is_unspaced};
use crate::archive::EntryKind;
use crate::base::moment::{MOMENT_HINT, parse_moment};
pub use relaxed::{QueryChange, RelaxedQuery, describe_query, relax_query};

/// Maximum number of similar words of one word.
const MAX_SIMILAR_WORDS: usize = 8;

/// Maximum size of a compiled regular expression in bytes.
const MAX_REGEX_BYTES: usize = 1 << 20;

/// A parsed query.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// What the text has to match.
    pub terms: Vec<TextTerm>,
    /// What the entry has to be.
    pub filter: EntryFilter,
}

/// A condition on a text.
#[derive(Clone, Debug)]
pub struct TextTerm {
    /// Whether texts that match are left out.
    pub is_excluded: bool,
    /// What matches.
    pub pattern: Pattern,
}

/// What a term matches.
#[derive(Clone, Debug)]
pub enum Pattern {
    /// Words in a row.
    Phrase(Phrase),
    /// A regular expression within a line.
    Regex(Regex),
    /// A word, or one that is similar.
    Similar(Vec<SimilarWord>),
}

/// Folded words in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phrase {
    /// The words, at least one.
    pub words: Vec<String>,
    /// Whether the last one is the beginning of a word.
    pub is_prefix: bool,
}

/// Conditions on an entry beside its text. An empty list allows everything.
#[derive(Clone, Debug, Default)]
pub struct EntryFilter {
    agents: Vec<NameTerm>,
    kinds: Vec<EntryKind>,
    excluded_kinds: Vec<EntryKind>,
    /// First moment that counts, as local time.
    pub since: Option<NaiveDateTime>,
    /// First moment that does not count any more.
    pub until: Option<NaiveDateTime>,
    /// Whether entries have to be pinned, or must not be.
    pub is_pinned: Option<bool>,
    /// Whether the agent has to have left the config, or must not have.
    pub has_left: Option<bool>,
    layouts: Vec<NameTerm>,
    sources: Vec<Source>,
}

/// A list of patterns of names.
#[derive(Clone, Debug)]
struct NameTerm {
    is_excluded: bool,
    patterns: Vec<String>,
}

/// Where a text comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// An entry of the archive.
    Archive,
    /// The memory of an agent that is one file.
    Live,
    /// A file of a memory of several files.
    Memory,
}

/// Properties of an entry that a filter looks at.
#[derive(Clone, Copy, Debug)]
pub struct EntryFacts<'a> {
    /// The agent's name.
    pub agent: &'a str,
    /// The kind of the entry.
    pub kind: EntryKind,
    /// Its time, as local time.
    pub stamp: NaiveDateTime,
    /// Whether it is pinned.
    pub is_pinned: bool,
    /// Whether its agent is not in the config.
    pub has_left: bool,
}

/// A term that means nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryError {
    /// Its place in the query, in bytes.
    pub range: Range<usize>,
    /// What is wrong with it.
    pub message: String,
    /// What would be right.
    pub hint: Option<String>,
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Query {
    /// Parses a query. Ages in it count back from `now`.
    ///
    /// # Errors
    /// The first term that means nothing.
    pub fn parse(text: &str, now: DateTime<FixedOffset>) -> Result<Query, QueryError> {
        let mut query = Query::default();
        for term in read_terms(text) {
            match term.filter() {
                Some((name, value)) => query.filter.add(&term, name, value, now)?,
                None => query.terms.extend(term.to_text_term()?),
            }
        }
        Ok(query)
    }

    /// Returns the query with its last word as the beginning of a word: an operator who is typing
    /// has not finished it.
    #[must_use]
    pub fn while_typing(mut self, text: &str) -> Query {
        let is_open = text.chars().next_back().is_some_and(char::is_alphanumeric);
        if let (true, Some(Pattern::Phrase(phrase))) =
            (is_open, self.terms.last_mut().map(|term| &mut term.pattern))
        {
            phrase.is_prefix = true;
        }
        self
    }

    /// Whether the query looks at texts, and not only at entries.
    pub fn has_text(&self) -> bool {
        !self.terms.is_empty()
    }

    /// The phrases that a text must have.
    pub fn required_phrases(&self) -> impl Iterator<Item = &Phrase> {
        self.phrases(false)
    }

    /// The phrases that a text must not have.
    pub fn excluded_phrases(&self) -> impl Iterator<Item = &Phrase> {
        self.phrases(true)
    }

    fn phrases(&self, is_excluded: bool) -> impl Iterator<Item = &Phrase> {
        let terms = self.terms.iter();
        terms
            .filter(move |term| term.is_excluded == is_excluded)
            .filter_map(|term| match &term.pattern {
                Pattern::Phrase(phrase) => Some(phrase),
                Pattern::Regex(_) | Pattern::Similar(_) => None,
            })
    }

    /// Returns the query with similar words beside each of its required single words; none where no
    /// word has any.
    #[must_use]
    pub fn with_similar_words(&self, vocabulary: &Vocabulary) -> Option<Query> {
        let mut query = self.clone();
        let mut is_wider = false;
        for term in query.terms.iter_mut().filter(|term| !term.is_excluded) {
            let Pattern::Phrase(phrase) = &term.pattern else {
                continue;
            };
            let [word] = phrase.words.as_slice() else {
                continue;
            };
            let similar = vocabulary.similar_words(word, MAX_SIMILAR_WORDS);
            if !similar.is_empty() {
                let itself = SimilarWord {
                    word: word.clone(),
                    similarity: 1.0,
                };
                term.pattern = Pattern::Similar(std::iter::once(itself).chain(similar).collect());
                is_wider = true;
            }
        }
        is_wider.then_some(query)
    }

    /// The words of required terms, each with those that are similar.
    pub fn similar_words(&self) -> impl Iterator<Item = &[SimilarWord]> {
        self.terms.iter().filter_map(|term| match &term.pattern {
            Pattern::Similar(words) => Some(words.as_slice()),
            _ => None,
        })
    }
}

fn parse_phrase(text: &str, has_star: bool) -> Option<Phrase> {
    let mut words = Vec::new();
    let mut last_start = 0;
    for_each_word(text.as_bytes(), |word, range| {
        words.push(word.to_string());
        last_start = range.start;
    });
    let mut is_prefix = has_star;
    // The last word of an unspaced run is its last character, which the text may continue.
    let ends_unspaced = text[last_start.min(text.len())..]
        .chars()
        .next()
        .is_some_and(is_unspaced);
    if ends_unspaced {
        let is_pair_before = words.len() > 1
            && words
                .get(words.len() - 2)
                .and_then(|word| word.chars().nth(1))
                .is_some_and(|second| words.last().is_some_and(|it| it.starts_with(second)));
        if is_pair_before {
            words.pop();
        } else {
            is_prefix = true;
        }
    }
    (!words.is_empty()).then_some(Phrase { words, is_prefix })
}

/// Returns the pattern of a term without words; none for ASCII signs.
fn literal_pattern(text: &str) -> Option<Pattern> {
    let literal = (!text.is_ascii()).then(|| regex::escape(text.trim()))?;
    Regex::new(&literal).ok().map(Pattern::Regex)
}

fn compile_regex(term: &RawTerm<'_>) -> Result<Regex, QueryError> {
    let has_capital = term.body.chars().any(char::is_uppercase);
    let regex = RegexBuilder::new(term.body)
        .case_insensitive(!has_capital)
        .multi_line(true)
        .crlf(true)
        .size_limit(MAX_REGEX_BYTES)
        .build();
    regex.map_err(|error| QueryError {
        range: term.range.clone(),
        message: format!("/{}/ is not a regular expression", term.body),
        hint: error
            .to_string()
            .lines()
            .next_back()
            .map(|line| line.trim_start_matches("error: ").to_string()),
    })
}

const FILTER_NAMES: [&str; 7] = ["agent", "kind", "since", "until", "is", "in", "layout"];

/// Names of kinds in queries.
const KIND_NAMES: [(&str, EntryKind); 6] = [
    ("scratch", EntryKind::Scratch),
    ("full", EntryKind::FullBackup),
    ("late", EntryKind::Late),
    ("appended", EntryKind::Appended),
    ("special", EntryKind::Special),
    ("redacted", EntryKind::Redacted),
];

impl EntryFilter {
    /// Whether an entry fulfils all conditions.
    pub fn allows(&self, entry: &EntryFacts<'_>) -> bool {
        self.allows_agent(entry.agent)
            && self.allows_kind(entry.kind)
            && self.allows_time(entry.stamp)
            && self.is_pinned.is_none_or(|it| it == entry.is_pinned)
            && self.has_left.is_none_or(|it| it == entry.has_left)
    }

    /// Whether a memory of an agent can be a result.
    pub fn allows_memory(&self, agent: &str) -> bool {
        self.includes(Source::Live)
            && self.allows_agent(agent)
            && self.kinds.is_empty()
            && self.is_pinned != Some(true)
            && self.has_left != Some(true)
            && self.until.is_none()
    }

    /// Whether the files of an agent's memory with a layout can be a result.
    pub fn allows_layout(&self, agent: &str, layout: &str) -> bool {
        self.includes(Source::Memory)
            && self.allows_agent(agent)
            && allows_name(&self.layouts, layout)
            && self.kinds.is_empty()
            && self.is_pinned != Some(true)
            && self.has_left != Some(true)
    }

    /// Whether entries of a kind are allowed.
    pub fn allows_kind(&self, kind: EntryKind) -> bool {
        (self.kinds.is_empty() || self.kinds.contains(&kind))
            && !self.excluded_kinds.contains(&kind)
    }

    /// Whether entries of an agent are allowed.
    pub fn allows_agent(&self, agent: &str) -> bool {
        allows_name(&self.agents, agent)
    }

    /// Returns the patterns of agents that the query asks for, in lower case.
    pub fn agent_patterns(&self) -> impl Iterator<Item = &str> {
        let asked = self.agents.iter().filter(|term| !term.is_excluded);
        asked.flat_map(|term| term.patterns.iter().map(String::as_str))
    }

    /// Whether texts of a time are allowed.
    pub fn allows_time(&self, stamp: NaiveDateTime) -> bool {
        self.since.is_none_or(|since| stamp >= since)
            && self.until.is_none_or(|until| stamp < until)
    }

    /// Whether the query names this source.
    pub fn names_source(&self, source: Source) -> bool {
        self.sources.contains(&source) || source == Source::Memory && !self.layouts.is_empty()
    }

    /// Whether texts of this source are searched.
    pub fn includes(&self, source: Source) -> bool {
        let has_layouts = source == Source::Memory || self.layouts.is_empty();
        has_layouts && (self.sources.is_empty() || self.sources.contains(&source))
    }

    fn add(
        &mut self,
        term: &RawTerm<'_>,
        name: &str,
        value: &str,
        now: DateTime<FixedOffset>,
    ) -> Result<(), QueryError> {
        let is_excluded = term.is_excluded;
        let error = |message: String, hint: &str| QueryError {
            range: term.range.clone(),
            message,
            hint: Some(hint.to_string()),
        };
        let values = value.split(',').filter(|it| !it.is_empty());
        if values.clone().next().is_none() {
            let examples = "such as agent:scout, kind:scratch, since:7d, is:pinned, in:live";
            return Err(error(format!("{name}: has no value"), examples));
        }
        if is_excluded && matches!(name, "since" | "until" | "in") {
            let message = format!("{name}: cannot be excluded");
            return Err(error(message, "leave out the - before it"));
        }
        match name {
            "agent" | "layout" => {
                let terms = match name {
                    "agent" => &mut self.agents,
                    _ => &mut self.layouts,
                };
                terms.push(NameTerm {
                    is_excluded,
                    patterns: values.map(str::to_lowercase).collect(),
                });
            }
            "since" | "until" => {
                let moment = parse_moment(value, now)
                    .ok_or_else(|| error(format!("{name}:{value} is not a time"), MOMENT_HINT))?;
                match name {
                    "since" => self.since = Some(moment.start),
                    _ => self.until = Some(moment.end),
                }
            }
            "kind" => {
                for value in values {
                    let kind = KIND_NAMES.iter().find(|(name, _)| *name == value);
                    let (_, kind) = kind.ok_or_else(|| {
                        let hint = "scratch, full, late, appended, special or redacted";
                        error(format!("kind:{value} is not a kind of entry"), hint)
                    })?;
                    if is_excluded {
                        self.excluded_kinds.push(*kind);
                    } else {
                        self.kinds.push(*kind);
                    }
                }
            }
            "is" => {
                for value in values {
                    match value {
                        "pinned" => self.is_pinned = Some(!is_excluded),
                        "left" => self.has_left = Some(!is_excluded),
                        _ => {
                            let message = format!("is:{value} is not known");
                            return Err(error(message, "is:pinned or is:left"));
                        }
                    }
                }
            }
            _ => {
                for value in values {
                    self.sources.push(match value {
                        "live" => Source::Live,
                        "memory" => Source::Memory,
                        "archive" => Source::Archive,
                        _ => {
                            let message = format!("in:{value} is not known");
                            return Err(error(message, "in:live, in:memory or in:archive"));
                        }
                    });
                }
            }
        }
        Ok(())
    }
}

/// Whether a name fulfils all terms.
fn allows_name(terms: &[NameTerm], name: &str) -> bool {
    terms.iter().all(|term| {
        let mut patterns = term.patterns.iter();
        patterns.any(|it| matches_name(it, name)) != term.is_excluded
    })
}

/// Whether a name matches a pattern in lower case, in which `*` stands for any characters.
pub fn matches_name(pattern: &str, name: &str) -> bool {
    let name = name.to_lowercase();
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// A term as it is written.
struct RawTerm<'t> {
    range: Range<usize>,
    is_excluded: bool,
    kind: TermKind,
    body: &'t str,
    /// Whether a star follows the closing quotation mark.
    has_star: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TermKind {
    Word,
    Quoted,
    Regex,
}

impl<'t> RawTerm<'t> {
    /// Returns name and value, if it is a condition on the entry.
    fn filter(&self) -> Option<(&'t str, &'t str)> {
        let pair = self.body.split_once(':');
        pair.filter(|(name, _)| self.kind == TermKind::Word && FILTER_NAMES.contains(name))
    }

    /// Returns its text without a star at the end, and whether it has one.
    fn split_star(&self) -> (&'t str, bool) {
        let body = self.body.strip_suffix('*');
        match body.filter(|_| self.kind == TermKind::Word) {
            Some(body) => (body, true),
            None => (self.body, self.has_star),
        }
    }

    /// Returns the condition on a text; none for ASCII signs such as a dash, which only divide
    /// words.
    fn to_text_term(&self) -> Result<Option<TextTerm>, QueryError> {
        let pattern = if self.kind == TermKind::Regex {
            Some(Pattern::Regex(compile_regex(self)?))
        } else {
            let (text, has_star) = self.split_star();
            let phrase = parse_phrase(text, has_star).map(Pattern::Phrase);
            // Signs of other scripts and emoji have no words.
            phrase.or_else(|| literal_pattern(self.body))
        };
        Ok(pattern.map(|pattern| TextTerm {
            is_excluded: self.is_excluded,
            pattern,
        }))
    }
}

/// Returns the terms of a query.
fn read_terms(text: &str) -> impl Iterator<Item = RawTerm<'_>> {
    let mut end = 0;
    std::iter::from_fn(move || {
        let term = read_term(text, end)?;
        end = term.range.end;
        Some(term)
    })
}

/// Returns the first term at or behind a place; none at the end.
fn read_term(text: &str, at: usize) -> Option<RawTerm<'_>> {
    let rest = text[at..].trim_start();
    let begin = text.len() - rest.len();
    let is_excluded = rest.len() > 1 && rest.starts_with('-');
    let start = begin + usize::from(is_excluded);
    let rest = text.get(start..).filter(|rest| !rest.is_empty())?;
    let (kind, body, length) = if let Some(quoted) = rest.strip_prefix('"') {
        // Without a closing mark the phrase goes to the end: it is still being typed.
        let end = quoted.find('"');
        let body = &quoted[..end.unwrap_or(quoted.len())];
        let length = body.len() + 1 + usize::from(end.is_some());
        (TermKind::Quoted, body, length)
    } else if let Some(body) = regex_body(rest) {
        (TermKind::Regex, body, body.len() + 2)
    } else {
        let length = rest.find(char::is_whitespace).unwrap_or(rest.len());
        (TermKind::Word, &rest[..length], length)
    };
    let has_star = kind == TermKind::Quoted && rest[length..].starts_with('*');
    Some(RawTerm {
        range: begin..start + length + usize::from(has_star),
        is_excluded,
        kind,
        body,
        has_star,
    })
}

/// Returns the expression between slashes that a text begins with. The second slash ends a term, so
/// a path such as `/etc/hosts` is none.
fn regex_body(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('/')?;
    let mut is_escaped = false;
    for (at, c) in inner.char_indices() {
        let ends_term = || {
            let after = inner[at + 1..].chars().next();
            after.is_none_or(char::is_whitespace)
        };
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '/' if at > 0 && ends_term() => return Some(&inner[..at]),
            _ => {}
        }
    }
    None
}
