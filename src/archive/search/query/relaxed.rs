//! Queries that ask for a little less than another one, and a query in words.

use chrono::{DateTime, FixedOffset};

use super::{RawTerm, TermKind, for_each_word, is_unspaced, parse_moment, read_terms};

/// How a query was relaxed, the smallest change first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueryChange {
    /// Words in a row are searched as words at any place.
    SplitPhrase,
    /// A condition on the entry was dropped.
    DroppedFilter,
    /// What must not match was dropped.
    DroppedExclusion,
    /// A word, a phrase or a regular expression was dropped.
    DroppedText,
}

/// A query with a weaker condition in place of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelaxedQuery {
    /// What was changed.
    pub change: QueryChange,
    /// The term that was changed, as it is written.
    pub term: String,
    /// The query.
    pub query: String,
}

/// Returns the queries that differ from one in a single condition: without it, or with the words of
/// a phrase in place of the phrase. None of them is empty, and no two are the same.
pub fn relax_query(text: &str) -> Vec<RelaxedQuery> {
    let terms = read_conditions(text);
    let with = |at: usize, replacement: Option<&str>| -> String {
        let terms = terms.iter().enumerate();
        let parts = terms.filter_map(|(index, term)| {
            if index == at {
                replacement
            } else {
                Some(&text[term.range.clone()])
            }
        });
        parts.collect::<Vec<&str>>().join(" ")
    };
    let mut relaxed = Vec::new();
    for (at, term) in terms.iter().enumerate() {
        let mut add = |change: QueryChange, query: String| {
            let is_known = relaxed.iter().any(|it: &RelaxedQuery| it.query == query);
            if !query.is_empty() && !is_known {
                relaxed.push(RelaxedQuery {
                    change,
                    term: text[term.range.clone()].to_string(),
                    query,
                });
            }
        };
        if let Some(words) = split_phrase(term) {
            add(QueryChange::SplitPhrase, with(at, Some(&words)));
        }
        let change = if term.filter().is_some() {
            QueryChange::DroppedFilter
        } else if term.is_excluded {
            QueryChange::DroppedExclusion
        } else {
            QueryChange::DroppedText
        };
        add(change, with(at, None));
    }
    relaxed
}

/// Returns the terms of a query in words, such as `phrase "token loop"` or `since 2026-03-07 09:10`.
/// Ages count back from `now`.
pub fn describe_query(text: &str, now: DateTime<FixedOffset>) -> Vec<String> {
    read_conditions(text)
        .iter()
        .map(|term| {
            let words = describe_term(term, now);
            if term.is_excluded {
                format!("not {words}")
            } else {
                words
            }
        })
        .collect()
}

/// Returns the terms that are a condition: signs that only divide words are left out.
fn read_conditions(text: &str) -> Vec<RawTerm<'_>> {
    let is_condition =
        |term: &RawTerm<'_>| term.filter().is_some() || !matches!(term.to_text_term(), Ok(None));
    read_terms(text).filter(is_condition).collect()
}

/// Returns the words of a required phrase, separated by blanks; none for a single word, and for
/// scripts without blanks, whose words are parts of words.
fn split_phrase(term: &RawTerm<'_>) -> Option<String> {
    let is_phrase = term.kind != TermKind::Regex && term.filter().is_none();
    if !is_phrase || term.is_excluded || term.body.chars().any(is_unspaced) {
        return None;
    }
    let (body, has_star) = term.split_star();
    let mut words = Vec::new();
    for_each_word(body.as_bytes(), |_, range| words.push(&body[range]));
    let star = if has_star { "*" } else { "" };
    (words.len() > 1).then(|| format!("{}{star}", words.join(" ")))
}

fn describe_term(term: &RawTerm<'_>, now: DateTime<FixedOffset>) -> String {
    if let Some((name, value)) = term.filter() {
        return describe_filter(name, value, now);
    }
    if term.kind == TermKind::Regex {
        return format!("regular expression /{}/", term.body);
    }
    let (body, has_star) = term.split_star();
    let mut count = 0;
    for_each_word(body.as_bytes(), |_, _| count += 1);
    match (count, has_star) {
        (0, _) => format!("text {}", term.body),
        (1, false) => format!("word {body}"),
        (1, true) => format!("words that begin with {body}"),
        (_, false) => format!("phrase \"{body}\""),
        (_, true) => format!("phrase that begins with \"{body}\""),
    }
}

fn describe_filter(name: &str, value: &str, now: DateTime<FixedOffset>) -> String {
    let values: Vec<&str> = value.split(',').filter(|it| !it.is_empty()).collect();
    match name {
        "since" | "until" => match parse_moment(value, now) {
            Some(moment) if name == "since" => {
                format!("since {}", moment.start.format("%Y-%m-%d %H:%M"))
            }
            Some(moment) => format!("before {}", moment.end.format("%Y-%m-%d %H:%M")),
            None => format!("{name} {value}"),
        },
        "is" => {
            let words = values.iter().map(|value| match *value {
                "left" => "of an agent that left",
                value => value,
            });
            words.collect::<Vec<_>>().join(" and ")
        }
        "in" => match values.as_slice() {
            ["live"] => "in memories".to_string(),
            ["memory"] => "in memories of several files".to_string(),
            ["archive"] => "in entries".to_string(),
            _ => "in entries and memories".to_string(),
        },
        name => format!("{name} {}", values.join(" or ")),
    }
}
