//! Filter language of the fleet: matches one agent against a filter and reports terms that can never
//! match. Terms are joined by AND; `!word` excludes, `~word` matches fuzzily, `is:drifted` and
//! `is:marked` match a state, also one that a worse one hides, `host:box` hosts that begin so, and
//! `host:=ops@box:2222` one of several hosts of that name. Also scores fuzzy matches for the palette.

use std::cell::RefCell;

use nucleo_matcher::pattern::{CaseMatching, Normalization, Pattern};
use nucleo_matcher::{Config, Matcher, Utf32Str};

use crate::config::closest_match;
use crate::console::preferences::setting_error::SettingError;
use crate::engine::State;

/// Properties of an agent that a filter matches.
#[derive(Default)]
pub struct FilterSubject<'a> {
    /// The agent's name.
    pub name: &'a str,
    /// Its host.
    pub host: &'a str,
    /// Its host with user and port.
    pub login: &'a str,
    /// Display name of its state.
    pub state: &'a str,
    /// Conditions that hold although a worse one is its state.
    pub hidden_conditions: &'a [State],
    /// Why it is in that state.
    pub reason: &'a str,
    /// What the scan found in its memory.
    pub findings: &'a str,
    /// Whether it is marked.
    pub is_marked: bool,
}

/// A filter, to be matched with many agents.
#[derive(Clone, Debug)]
pub struct Filter {
    /// The terms in lower case, and whether a match of each excludes an agent.
    terms: Vec<(String, bool)>,
}

impl Filter {
    /// Splits a filter into its terms.
    pub fn new(text: &str) -> Filter {
        let words = text.split_whitespace();
        let terms = words.map(|word| match word.strip_prefix('!') {
            Some(term) => (term.to_lowercase(), true),
            None => (word.to_lowercase(), false),
        });
        // A lone `!` is one that is being typed.
        let terms = terms.filter(|(term, _)| !term.is_empty());
        Filter {
            terms: terms.collect(),
        }
    }

    /// Returns whether an agent matches all terms; every agent matches an empty filter.
    pub fn matches(&self, subject: &FilterSubject<'_>) -> bool {
        let mut terms = self.terms.iter();
        terms.all(|(term, is_excluding)| matches_term(term, subject) != *is_excluding)
    }

    /// Returns whether a text in lower case matches all terms; a fuzzy one is compared with `name` alone.
    pub fn matches_text(&self, text: &str, name: &str) -> bool {
        self.terms.iter().all(|(term, is_excluding)| {
            let is_match = match term.strip_prefix('~') {
                Some(loose) => fuzzy_score(loose, name).is_some(),
                None => text.contains(term.as_str()),
            };
            is_match != *is_excluding
        })
    }
}

fn matches_term(term: &str, subject: &FilterSubject<'_>) -> bool {
    if let Some(state) = term.strip_prefix("is:") {
        return match state {
            "marked" => subject.is_marked,
            state => {
                let hidden = subject.hidden_conditions.iter().map(|it| it.as_str());
                let mut states = std::iter::once(subject.state).chain(hidden);
                states.any(|it| it.to_lowercase().starts_with(state))
            }
        };
    }
    if let Some(login) = term.strip_prefix("host:=") {
        return subject.login.to_lowercase() == login;
    }
    if let Some(host) = term.strip_prefix("host:") {
        return !host.is_empty() && subject.host.to_lowercase().starts_with(host);
    }
    if let Some(loose) = term.strip_prefix('~') {
        return fuzzy_score(loose, subject.name).is_some();
    }
    [
        subject.name,
        subject.host,
        subject.state,
        subject.reason,
        subject.findings,
    ]
    .iter()
    .any(|text| text.to_lowercase().contains(term))
}

/// Returns an error for each term that can never match.
pub fn find_filter_errors(filter: &str) -> Vec<SettingError> {
    filter
        .split_whitespace()
        .map(|word| word.strip_prefix('!').unwrap_or(word))
        .filter_map(|term| find_term_error(&term.to_lowercase()))
        .collect()
}

fn find_term_error(term: &str) -> Option<SettingError> {
    if matches!(term, "host:" | "host:=") {
        let hint = "`host:local` matches agents on this machine";
        return Some(SettingError::new(format!("`{term}` names no host"), hint));
    }
    let asked = term.strip_prefix("is:")?;
    let states = State::ALL.map(|state| state.as_str().to_lowercase());
    if asked == "marked" || !asked.is_empty() && states.iter().any(|it| it.starts_with(asked)) {
        return None;
    }
    let known = || states.iter().map(String::as_str).chain(["marked"]);
    let hint = match closest_match(asked, known()) {
        Some(close) => format!("did you mean `is:{close}`?"),
        None => format!("valid: {}", known().collect::<Vec<_>>().join(", ")),
    };
    Some(SettingError::new(format!("`{term}` names no state"), hint))
}

/// Returns the fuzzy score of `letters` in a text; higher is better, `None` if they do not match.
pub fn fuzzy_score(letters: &str, text: &str) -> Option<u32> {
    thread_local! {
        // Its working memory is large: allocating it per call would cost more than the score.
        static MATCHER: RefCell<Matcher> = RefCell::new(Matcher::new(Config::DEFAULT));
    }
    let pattern = Pattern::parse(letters, CaseMatching::Ignore, Normalization::Smart);
    let mut buffer = Vec::new();
    let text = Utf32Str::new(text, &mut buffer);
    MATCHER.with_borrow_mut(|matcher| pattern.score(text, matcher))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_filter_terms_are_reported() {
        let messages = |filter: &str| {
            let faults = find_filter_errors(filter).into_iter();
            let messages =
                faults.map(|it| format!("{}; {}", it.message, it.hint.unwrap_or_default()));
            messages.collect::<Vec<String>>()
        };
        for sound in [
            "",
            "!",
            "is:dr",
            "!is:MARKED",
            "host:box",
            "host:=a@b:22",
            "~is:",
        ] {
            assert_eq!(messages(sound), [""; 0], "{sound}");
        }
        assert_eq!(
            messages("bot !is:Drifed host:"),
            [
                "`is:drifed` names no state; did you mean `is:drifted`?",
                "`host:` names no host; `host:local` matches agents on this machine",
            ]
        );
        assert!(messages("is:xyzzy")[0].contains("valid: tampered, "));
        assert!(messages("is:")[0].contains("names no state"));
        assert!(messages("host:=")[0].contains("names no host"));
    }

    #[test]
    fn filter_terms_combine_negate_and_match_states() {
        let subject = FilterSubject {
            name: "code-reviewer",
            host: "box",
            login: "ops@box:2222",
            state: "DRIFTED",
            hidden_conditions: &[State::Behind],
            reason: "rules edited: L31",
            findings: "1 secret, 5 injections",
            is_marked: true,
        };
        for (filter, expected) in [
            ("", true),
            ("code", true),
            ("CODE rev", true),
            ("code bot", false),
            ("!bot", true),
            ("!code", false),
            ("!", true),
            ("~cdrv", true),
            ("~xyz", false),
            ("is:drifted", true),
            ("is:dr", true),
            ("is:behind", true),
            ("is:oversize", false),
            ("!is:clean", true),
            ("is:clean", false),
            ("is:marked box", true),
            ("l31", true),
            ("secret", true),
            ("!injection", false),
            ("host:box", true),
            ("host:bo", true),
            ("host:ox", false),
            ("host:", false),
            ("!host:local", true),
            ("host:=ops@BOX:2222", true),
            ("host:=box", false),
        ] {
            assert_eq!(
                Filter::new(filter).matches(&subject),
                expected,
                "{filter:?}"
            );
        }
    }
}
