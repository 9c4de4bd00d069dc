//! Tests of queries on texts.

use chrono::{DateTime, FixedOffset, NaiveDate};
use proptest::prelude::*;

use super::*;
use crate::archive::EntryKind;

/// A Saturday noon.
fn now() -> DateTime<FixedOffset> {
    DateTime::parse_from_rfc3339("2026-03-14T12:00:00+01:00").unwrap()
}

fn parse(query: &str) -> Query {
    Query::parse(query, now()).unwrap()
}

/// The hits of a query in a text, as texts; none where the text does not match.
fn hits(query: &str, text: &str) -> Option<Vec<String>> {
    let found = parse(query).find_hits(text.as_bytes())?;
    assert_eq!(found.count, found.places.len());
    let places = found.places.into_iter();
    Some(places.map(|place| text[place].to_string()).collect())
}

#[test]
fn all_terms_have_to_match() {
    let text = "The token loop of auth_module came back after PR #42.";
    assert_eq!(hits("loop token", text).unwrap(), ["token", "loop"]);
    assert_eq!(hits("TOKEN missing", text), None);
    assert_eq!(hits("auth_module", text).unwrap(), ["auth_module"]);
    assert_eq!(hits("module auth", text).unwrap(), ["auth", "module"]);
    assert_eq!(hits("\"module auth\"", text), None);
    assert_eq!(hits("\"loop of auth\"", text).unwrap(), ["loop of auth"]);
    assert_eq!(hits("PR#42", text).unwrap(), ["PR #42"]);
    assert_eq!(hits("pr -42", text), None);
    assert_eq!(hits("-43", text).unwrap(), [""; 0]);
}

#[test]
fn star_matches_beginnings_of_words() {
    let text = "rotation rotates; crotate";
    assert_eq!(hits("rotat*", text).unwrap(), ["rotation", "rotates"]);
    assert_eq!(hits("rotat", text), None);
    assert_eq!(
        hits("\"rotation rot\"*", text).unwrap(),
        ["rotation rotates"]
    );
}

#[test]
fn typed_word_matches_its_beginning() {
    let typed = |text: &str| parse(text).while_typing(text);
    assert!(typed("tok").find_hits(b"a token").is_some());
    assert!(typed("tok ").find_hits(b"a token").is_none());
}

#[test]
fn diacritics_and_unspaced_scripts_match() {
    assert_eq!(hits("grosse", "GROSSE und größe").unwrap(), ["GROSSE"]);
    assert_eq!(hits("uber", "Über").unwrap(), ["Über"]);
    let text = "昨日、認証モジュールを直した";
    assert_eq!(hits("モジュール", text).unwrap(), ["モジュール"]);
    assert_eq!(hits("認証", text).unwrap(), ["認証"]);
    assert_eq!(hits("証", text).unwrap(), ["証"]);
    assert_eq!(hits("認証を", text), None);
}

#[test]
fn regex_matches_within_lines() {
    let text = "loop 1\r\nLoop 22\nend";
    assert_eq!(hits("/loop \\d+$/", text).unwrap(), ["loop 1", "Loop 22"]);
    assert_eq!(hits("/Loop/", text).unwrap(), ["Loop"]);
    assert_eq!(hits("/1\\s+Loop/", text), None);
    assert_eq!(hits("-/end/", text), None);
    // Paths are words.
    assert_eq!(hits("/etc/hosts", "see /etc/hosts").unwrap(), ["etc/hosts"]);
}

#[test]
fn empty_match_of_regex_is_a_hit_of_its_line() {
    let lines = |query: &str| {
        let text = b"one\n\ntwo xx\r\n";
        let found = parse(query).find_hits(text)?;
        let lines = found.lines(text).into_iter().map(|line| line.number);
        Some((found.count, lines.collect::<Vec<u64>>()))
    };
    for query in ["/^/", "/$/", "/x*/"] {
        assert_eq!(lines(query), Some((3, vec![1, 2, 3])), "{query}");
        assert_eq!(lines(&format!("-{query}")), None, "{query}");
    }
    assert_eq!(lines("/^$/"), Some((1, vec![2])));
    assert!(hits("-/^$/", "one\ntwo\n").is_some());
    assert_eq!(hits("/^$/", "one\ntwo\n"), None);
}

#[test]
fn hits_are_given_by_line() {
    let text = b"one\ntwo token\r\n\ntoken token\ntoken";
    let found = parse("token").find_hits(text).unwrap();
    let lines = found.lines(text);
    let numbers: Vec<_> = lines
        .iter()
        .map(|line| (line.number, line.hits.len()))
        .collect();
    assert_eq!(numbers, [(2, 1), (4, 2), (5, 1)]);
    assert_eq!(&text[lines[0].range.clone()], b"two token");
    let across = parse("\"two token token\"").find_hits(text).unwrap();
    let lines = across.lines(text);
    assert_eq!((lines[0].number, lines[0].hits[0].clone()), (2, 4..13));
}

#[test]
fn filters_judge_entries() {
    let entry = |agent: &'static str, kind, day| EntryFacts {
        agent,
        kind,
        stamp: NaiveDate::from_ymd_opt(2026, 3, day)
            .unwrap()
            .and_hms_opt(9, 0, 0)
            .unwrap(),
        is_pinned: false,
        has_left: agent == "old",
    };
    let scout = entry("scout", EntryKind::Scratch, 10);
    let coder = entry("code-two", EntryKind::FullBackup, 13);
    let old = entry("old", EntryKind::Late, 1);
    let allowed = |query: &str| [scout, coder, old].map(|it| parse(query).filter.allows(&it));
    assert_eq!(allowed("agent:scout,code-*"), [true, true, false]);
    assert_eq!(allowed("-agent:scout"), [false, true, true]);
    assert_eq!(allowed("kind:scratch,full"), [true, true, false]);
    assert_eq!(allowed("-kind:late"), [true, true, false]);
    assert_eq!(allowed("since:2d"), [false, true, false]);
    assert_eq!(
        allowed("since:2026-03-10 until:2026-03-10"),
        [true, false, false]
    );
    assert_eq!(allowed("until:2026-03"), [true, true, true]);
    assert_eq!(allowed("is:left"), [false, false, true]);
    assert_eq!(allowed("-is:left -is:pinned"), [true, true, false]);
    assert!(!parse("in:live").filter.includes(Source::Archive));
    assert!(parse("in:live").filter.allows_memory("scout"));
    assert!(!parse("kind:scratch").filter.allows_memory("scout"));
}

#[test]
fn wrong_terms_are_named_with_their_place() {
    let error = |query: &str| Query::parse(query, now()).unwrap_err();
    let since = error("token since:yore");
    assert_eq!(since.range, 6..16);
    assert_eq!(since.message, "since:yore is not a time");
    for query in ["kind:x", "is:x", "in:x", "agent:", "-since:7d", "/a(/"] {
        assert!(error(query).hint.is_some(), "{query}");
    }
    // A word before a colon that is not a filter is text.
    assert!(hits("http://example.org", "http://example.org").is_some());
}

proptest! {
    #[test]
    fn any_query_on_any_text_stays_in_bounds(query in "\\PC{0,40}", text in any::<Vec<u8>>()) {
        if let Ok(query) = Query::parse(&query, now())
            && let Some(found) = query.find_hits(&text)
        {
            prop_assert!(found.places.iter().all(|it| it.start <= it.end && it.end <= text.len()));
            for line in found.lines(&text) {
                prop_assert!(line.range.end <= text.len() && line.number >= 1);
            }
        }
    }

    #[test]
    fn words_of_a_text_are_found_in_it(text in "[a-zäé日本 _#/-]{1,60}") {
        let mut words = Vec::new();
        for_each_word(text.as_bytes(), |_, range| words.push(text[range].to_string()));
        for word in words {
            prop_assert!(parse(&word).find_hits(text.as_bytes()).is_some(), "{}", word);
        }
    }
}

/// Returns each relaxed query with the term that it changes.
fn relaxed(query: &str) -> Vec<(QueryChange, String, String)> {
    let relaxed = relax_query(query).into_iter();
    relaxed.map(|it| (it.change, it.term, it.query)).collect()
}

#[test]
fn one_term_of_a_query_is_relaxed_at_a_time() {
    use QueryChange::{DroppedExclusion, DroppedFilter, DroppedText, SplitPhrase};
    let query = r#"  "token loop"* -deploy  since:7d is:pinned,left /a b/ auth_module"#;
    let all = [
        r#""token loop"*"#,
        "-deploy",
        "since:7d",
        "is:pinned,left",
        "/a b/",
        "auth_module",
    ];
    let without = |at: usize, other: Option<&str>| {
        let mut parts = all.to_vec();
        parts.splice(at..=at, other);
        parts.join(" ")
    };
    let expected = [
        (SplitPhrase, 0, without(0, Some("token loop*"))),
        (DroppedText, 0, without(0, None)),
        (DroppedExclusion, 1, without(1, None)),
        (DroppedFilter, 2, without(2, None)),
        (DroppedFilter, 3, without(3, None)),
        (DroppedText, 4, without(4, None)),
        (SplitPhrase, 5, without(5, Some("auth module"))),
        (DroppedText, 5, without(5, None)),
    ];
    let expected = expected.map(|(change, at, query)| (change, all[at].to_string(), query));
    assert_eq!(relaxed(query), expected);
    // Nothing is left of a single term, and half a term is no query.
    assert_eq!(relaxed("token"), []);
    assert_eq!(relaxed("kind:full"), []);
    assert_eq!(relaxed(""), []);
    // Signs only divide words: nothing is left without the word, and nothing changes without them.
    assert_eq!(relaxed("foo &"), []);
    assert_eq!(relaxed("- foo"), []);
    // Two terms that are the same are dropped once.
    let one = (DroppedText, "foo".to_string(), "foo".to_string());
    assert_eq!(relaxed("foo foo"), [one]);
    // Words of scripts without blanks are parts of words.
    assert_eq!(relaxed("\"\u{8a8d}\u{8a3c}\u{51e6}\u{7406}\""), []);
}

#[test]
fn query_is_described_as_it_is_understood() {
    let query = r#"loop rotat* 🦀 & auth_module -"token loop" /a+/ agent:triage,code-* -kind:full
                   since:7d until:2026-03 is:pinned -is:left in:live"#;
    assert_eq!(
        describe_query(query, now()),
        [
            "word loop",
            "words that begin with rotat",
            "text \u{1f980}",
            "phrase \"auth_module\"",
            "not phrase \"token loop\"",
            "regular expression /a+/",
            "agent triage or code-*",
            "not kind full",
            "since 2026-03-07 12:00",
            "before 2026-04-01 00:00",
            "pinned",
            "not of an agent that left",
            "in memories",
        ]
    );
}

proptest! {
    #[test]
    fn relaxed_queries_are_weaker(query in r#"([a-c"/:* -]|kind:full|is:left){0,12}"#) {
        let Ok(parsed) = Query::parse(&query, now()) else {
            return Ok(());
        };
        for text in ["a b c", "c b a", "a", "ab bc"] {
            if parsed.find_hits(text.as_bytes()).is_some() {
                for relaxed in relax_query(&query) {
                    let relaxed = Query::parse(&relaxed.query, now()).unwrap();
                    prop_assert!(relaxed.find_hits(text.as_bytes()).is_some());
                }
            }
        }
    }
}
