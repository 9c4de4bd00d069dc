//! The words that rules look for. They are data: lists of one entry a line, in which `#` begins a
//! comment. A fleet can replace any of them, for its language or its own terms.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, LazyLock, OnceLock};

use regex::bytes::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};

/// What the entries of a list are, and how they become one pattern.
#[derive(Clone, Copy, Debug)]
enum ListShape {
    /// Plain words.
    Words,
    /// Regular expressions in which the case of letters counts, each a pattern of its own: a search
    /// for any of them would read a long text again for each match.
    Shapes,
    /// Regular expressions in any case of letters, between these two parts of one pattern.
    Phrases(&'static str, &'static str),
}

use ListShape::{Phrases, Shapes, Words as PlainWords};

/// Declares the lists with their file names and shapes.
macro_rules! word_lists {
    ($($(#[$doc:meta])* $list:ident = $name:literal as $shape:expr;)*) => {
        /// A list of words.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum WordList {
            $($(#[$doc])* $list,)*
        }

        impl WordList {
            const ALL: &'static [WordList] = &[$(WordList::$list,)*];

            /// Name of the list, and of its file without `.txt`.
            const fn name(self) -> &'static str {
                match self {
                    $(WordList::$list => $name,)*
                }
            }

            /// The list that the program ships.
            const fn built_in(self) -> &'static str {
                match self {
                    $(WordList::$list => include_str!(concat!("words/", $name, ".txt")),)*
                }
            }

            const fn shape(self) -> ListShape {
                match self {
                    $(WordList::$list => $shape,)*
                }
            }
        }
    };
}

#[rustfmt::skip]
word_lists! {
    /// What a standing order tells to do (MS702).
    Actions = "actions" as Phrases(r"\b(?:", r")\b");
    /// Claims to speak for the operator (MS705).
    Authority = "authority" as Phrases("", "");
    /// Headings about what an agent decides itself (MS204).
    AutonomyHeadings = "autonomy-headings" as Phrases(r"\b(?:", r")\b");
    /// Names of the place of the separator (MS207).
    BoundaryWords = "boundary-words" as Phrases(r"\b(?:", r")\b");
    /// Headings about what an agent can do (MS204).
    CapabilityHeadings = "capability-headings" as Phrases(r"\b(?:", r")\b");
    /// Frequent words of other languages, which English does not have.
    ForeignWords = "foreign-words" as PlainWords;
    /// Frequent words, which tell the language of a text.
    FunctionWords = "function-words" as PlainWords;
    /// Headings that say what an agent is (MS201).
    IdentityHeadings = "identity-headings" as Phrases(r"\b(?:", r")\b");
    /// Beginnings of a sentence that introduces an agent (MS201, MS804). Group 1 is the word
        /// behind, or the beginning of it.
    IdentitySentences = "identity-sentences" as Phrases(r"\b(?:", r#")[ \t]+(?:\*\*|an? |the |my )?(\w+|["*<])"#);
    /// Headings of the main section of rules (MS203, MS301).
    MainRulesHeadings = "main-rules-headings" as Phrases(r"^\W*(?:", r")\b");
    /// Headings about memory (MS204).
    MemoryHeadings = "memory-headings" as Phrases(r"\b(?:", r")\b");
    /// Words in values that are not secrets (MS601, MS602).
    NotSecrets = "not-secrets" as PlainWords;
    /// Phrases and markup that override instructions, in any text (MS701).
    OverrideAnyLanguage = "override-any-language" as Phrases("", "");
    /// Phrases that override instructions, in the language of the lists (MS701).
    OverrideEnglish = "override-english" as Phrases("", "");
    /// Headings about where things are (MS204).
    PointerHeadings = "pointer-headings" as Phrases(r"\b(?:", r")\b");
    /// Headings of prohibitions (MS703, MS704).
    ProhibitionHeadings = "prohibition-headings" as Phrases(r"^\W*(?:", r")\W*$");
    /// Words that forbid a command behind them (MS703, MS704).
    Prohibitions = "prohibitions" as Phrases("", "");
    /// Words that forbid a command before them (MS703, MS704).
    ProhibitionsBehind = "prohibitions-behind" as Phrases("", "");
    /// What a reset does (MS207).
    ResetWords = "reset-words" as Phrases(r"\b(?:", r")\b");
    /// Headings of sections with rules (MS202).
    RulesHeadings = "rules-headings" as Phrases(r"\b(?:", r")\b");
    /// Shapes of secrets (MS601).
    SecretShapes = "secret-shapes" as Shapes;
    /// What holds secrets (MS703).
    SecretSources = "secret-sources" as Phrases("", "");
    /// Words before an assigned secret (MS602). Group 1 is the value.
    SecretWords = "secret-words" as Phrases("(?:", r#")[*_`"')\]]{0,4}\s*(?:[:=|]|：|\bis\b|\bist\b)[ \t]*[*_`"'(\[]{0,4}[ \t]*((?u:[^\s`"'|*()<>,;，。]){8,})"#);
    /// Invitations to change the baseline (MS314).
    SelfEdits = "self-edits" as Phrases(r"\b(?:", ")");
    /// Commands and verbs that send something (MS703).
    SendingVerbs = "sending-verbs" as Phrases(r"\b(?:", r")(?:s|es|ed|ing)?\b");
    /// Paste sites and tunnels (MS704), beside bare addresses.
    ShadyHosts = "shady-hosts" as Phrases(r"//\d{1,3}(?:\.\d{1,3}){3}|\b(?:", r")\b");
    /// Headings of a status (MS406).
    StatusHeadings = "status-headings" as Phrases(r"^\W*(?:", r")\b");
    /// Headings about people (MS204).
    TeamHeadings = "team-headings" as Phrases(r"\b(?:", r")\b");
    /// Words behind a source of secrets that make it a topic (MS703).
    Topics = "topics" as Phrases("^[ _-](?:", r")\b");
    /// When a standing order applies (MS702).
    Triggers = "triggers" as Phrases(r"\b(?:", r")\b");
    /// Phrases without a test (MS301).
    VaguePhrases = "vague-phrases" as Phrases(r"\b(?:", r")\b");
    /// Notes that declare a rule void (MS715).
    Waivers = "waivers" as Phrases("", "");
}

/// Length of the longest frequent word that is looked up, in bytes.
const MAX_FREQUENT_WORD_BYTES: usize = 24;

/// Returns the entries of a list with their line numbers, from 1.
fn numbered_entries(list: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = list.lines().map(str::trim).enumerate();
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(index, line)| (index + 1, line))
}

/// Compiles a pattern: bytes, ASCII classes and ends of lines, unless it says otherwise.
pub(super) fn pattern(text: &str) -> Regex {
    let built = build_pattern(text, false);
    // The patterns are constants, and a test compiles each of them.
    built.unwrap_or_else(|error| unreachable!("{error}"))
}

fn build_pattern(text: &str, is_unicode: bool) -> Result<Regex, regex::Error> {
    RegexBuilder::new(text)
        .unicode(is_unicode)
        .multi_line(true)
        .build()
}

/// Compiles a pattern in which the case of letters does not matter.
pub(super) fn pattern_in_any_case(text: &str) -> Regex {
    pattern(&format!("(?i:{text})"))
}

/// Declares patterns that are compiled at their first use.
macro_rules! patterns {
    ($($(#[$doc:meta])* $name:ident = $build:expr;)*) => {
        $($(#[$doc])* pub(in crate::lint) static $name: std::sync::LazyLock<regex::bytes::Regex> =
            std::sync::LazyLock::new(|| $build);)*

        #[cfg(test)]
        mod pattern_tests {
            #[test]
            fn every_pattern_of_the_file_compiles() {
                $(std::sync::LazyLock::force(&super::$name);)*
            }
        }
    };
}
pub(super) use patterns;

/// All word lists: those that the program ships, or those of the fleet in their place.
pub struct Words {
    /// The lists of the fleet.
    replaced: BTreeMap<WordList, String>,
    /// The pattern of each list, compiled at its first use.
    patterns: Vec<OnceLock<Regex>>,
    secret_shapes: OnceLock<SecretShapes>,
    frequent_words: OnceLock<HashMap<String, WordLanguage>>,
}

/// The shapes of secrets. Most texts have none, so one pass over all shapes comes first, and a pattern
/// is compiled when a text has a match of it.
struct SecretShapes {
    any: RegexSet,
    entries: Vec<(String, OnceLock<Regex>)>,
    is_unicode: bool,
}

impl SecretShapes {
    /// Creates the shapes of a list. A test compiles those of the program, and `with_lists` checks all
    /// others.
    fn new(list: &str) -> Result<SecretShapes, regex::Error> {
        let entries: Vec<&str> = numbered_entries(list).map(|(_, entry)| entry).collect();
        let is_unicode = !list.is_ascii();
        let mut builder = RegexSetBuilder::new(&entries);
        Ok(SecretShapes {
            any: builder.unicode(is_unicode).multi_line(true).build()?,
            entries: entries
                .into_iter()
                .map(|entry| (entry.to_string(), OnceLock::new()))
                .collect(),
            is_unicode,
        })
    }

    /// Returns the patterns that a text has a match of.
    fn of_text(&self, text: &[u8]) -> impl Iterator<Item = &Regex> {
        let found = self.any.matches(text).into_iter();
        found.filter_map(|index| {
            let (entry, pattern) = self.entries.get(index)?;
            let build = || build_pattern(entry, self.is_unicode);
            Some(pattern.get_or_init(|| build().unwrap_or_else(|error| unreachable!("{error}"))))
        })
    }
}

/// The language that a frequent word tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WordLanguage {
    /// That of the lists.
    English,
    /// Another one.
    Foreign,
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.replaced.keys().map(|list| list.name());
        f.debug_set().entries(names).finish()
    }
}

impl Words {
    /// Returns the lists that the program ships. They are compiled once.
    pub fn built_in() -> Arc<Words> {
        static BUILT_IN: LazyLock<Arc<Words>> =
            LazyLock::new(|| Arc::new(Words::new(BTreeMap::new())));
        Arc::clone(&BUILT_IN)
    }

    fn new(replaced: BTreeMap<WordList, String>) -> Words {
        Words {
            replaced,
            patterns: WordList::ALL.iter().map(|_| OnceLock::new()).collect(),
            secret_shapes: OnceLock::new(),
            frequent_words: OnceLock::new(),
        }
    }

    /// Names and texts of all lists that the program ships.
    pub fn shipped_lists() -> impl Iterator<Item = (&'static str, &'static str)> {
        WordList::ALL
            .iter()
            .map(|list| (list.name(), list.built_in()))
    }

    /// Replaces lists by their names.
    ///
    /// # Errors
    /// A name that no list has, or a line that cannot be used; as a sentence.
    pub fn with_lists(lists: &BTreeMap<String, String>) -> Result<Words, String> {
        let mut replaced = BTreeMap::new();
        for (name, text) in lists {
            let mut known = WordList::ALL.iter();
            let Some(list) = known.find(|it| it.name() == name) else {
                return Err(format!("there is no word list `{name}`"));
            };
            check_entries(*list, text).map_err(|why| format!("{name}.txt, {why}"))?;
            replaced.insert(*list, text.clone());
        }
        let words = Words::new(replaced);
        for list in words.replaced.keys() {
            let built = match list.shape() {
                Shapes => SecretShapes::new(words.text(*list)).map(|it| {
                    let _ = words.secret_shapes.set(it);
                }),
                PlainWords | Phrases(..) => words.build(*list).map(|it| {
                    let _ = words.patterns[*list as usize].set(it);
                }),
            };
            built.map_err(|why| {
                let name = list.name();
                format!("{name}.txt is too long for a pattern: {why}")
            })?;
        }
        Ok(words)
    }

    fn text(&self, list: WordList) -> &str {
        let replaced = self.replaced.get(&list);
        replaced.map_or_else(|| list.built_in(), String::as_str)
    }

    /// Returns the pattern of a list.
    pub(super) fn pattern(&self, list: WordList) -> &Regex {
        self.patterns[list as usize].get_or_init(|| {
            // A test compiles the lists of the program, and `with_lists` all others.
            let built = self.build(list);
            built.unwrap_or_else(|error| unreachable!("{error}"))
        })
    }

    /// Returns the patterns of secrets that a text has a match of.
    pub(super) fn secret_shapes_in(&self, text: &[u8]) -> impl Iterator<Item = &Regex> {
        let shapes = self.secret_shapes.get_or_init(|| {
            let list = self.text(WordList::SecretShapes);
            SecretShapes::new(list).unwrap_or_else(|error| unreachable!("{error}"))
        });
        shapes.of_text(text)
    }

    /// Builds the pattern of a list.
    fn build(&self, list: WordList) -> Result<Regex, regex::Error> {
        let text = self.text(list);
        let entries: Vec<&str> = numbered_entries(text).map(|(_, entry)| entry).collect();
        // A list without entries matches nothing.
        let any = if entries.is_empty() {
            "[a&&b]".to_string()
        } else {
            entries.join("|")
        };
        // The lists of the program say themselves where they need Unicode, which costs time.
        let is_unicode = self.replaced.contains_key(&list) && !text.is_ascii();
        match list.shape() {
            PlainWords | Shapes => build_pattern(&any, is_unicode),
            Phrases(before, after) => {
                build_pattern(&format!("(?i:{before}{any}{after})"), is_unicode)
            }
        }
    }

    /// Returns the language that a word tells, in any case of its letters; none where it tells none.
    pub(super) fn language_of_word(&self, word: &str) -> Option<WordLanguage> {
        if word.len() > MAX_FREQUENT_WORD_BYTES {
            return None;
        }
        let known = self.frequent_words.get_or_init(|| {
            let foreign = (WordList::ForeignWords, WordLanguage::Foreign);
            let english = (WordList::FunctionWords, WordLanguage::English);
            let is_replaced = |list| self.replaced.contains_key(&list);
            // The lists of a fleet may be in a language that is foreign to the shipped ones.
            let has_foreign =
                is_replaced(WordList::ForeignWords) || !is_replaced(WordList::FunctionWords);
            let lists = has_foreign.then_some(foreign).into_iter().chain([english]);
            let entries = lists.flat_map(|(list, language)| {
                let lines = numbered_entries(self.text(list)).map(|(_, line)| line);
                let words = lines.flat_map(str::split_whitespace);
                words.map(move |word| (word.to_lowercase(), language))
            });
            entries.collect()
        });
        if !word.is_ascii() {
            return known.get(&word.to_lowercase()).copied();
        }
        let mut lower = [0; MAX_FREQUENT_WORD_BYTES];
        let lower = &mut lower[..word.len()];
        lower.copy_from_slice(word.as_bytes());
        lower.make_ascii_lowercase();
        known.get(str::from_utf8(lower).ok()?).copied()
    }

    /// Returns whether a value contains a word that marks it as not secret.
    pub(super) fn is_marked_as_no_secret(&self, value: &str) -> bool {
        let lower = value.to_lowercase();
        let mut entries = numbered_entries(self.text(WordList::NotSecrets));
        entries.any(|(_, word)| lower.contains(&word.to_lowercase()))
    }
}

/// Checks that each entry of a list is a pattern that needs at least one character.
fn check_entries(list: WordList, text: &str) -> Result<(), String> {
    if matches!(list.shape(), PlainWords) {
        return Ok(());
    }
    for (line, entry) in numbered_entries(text) {
        let built = build_pattern(entry, !text.is_ascii());
        let built = built.map_err(|error| {
            let why = error.to_string();
            let why = why.lines().last().unwrap_or_default();
            format!("line {line}: {why}")
        })?;
        if built.is_match(b"") {
            return Err(format!("line {line}: the entry matches any text"));
        }
        if built.captures_len() > 1 {
            return Err(format!("line {line}: write (?:…) in place of (…)"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_list_of_the_program_compiles() {
        let words = Words::built_in();
        for list in WordList::ALL {
            let _ = words.pattern(*list);
            check_entries(*list, list.built_in()).unwrap();
            assert!(
                numbered_entries(list.built_in()).count() > 0,
                "{}",
                list.name()
            );
        }
    }

    #[test]
    fn frequent_words_tell_their_language_in_any_case() {
        let words = Words::built_in();
        for word in ["the", "BEFORE", "You"] {
            assert_eq!(words.language_of_word(word), Some(WordLanguage::English));
        }
        for word in ["und", "VOOR", "Für"] {
            assert_eq!(words.language_of_word(word), Some(WordLanguage::Foreign));
        }
        assert_eq!(words.language_of_word(""), None);
        assert_eq!(words.language_of_word("baseline"), None);
        let lists = [("function-words".to_string(), "für über".to_string())].into();
        let words = Words::with_lists(&lists).unwrap();
        assert_eq!(words.language_of_word("Über"), Some(WordLanguage::English));
        for word in ["the", "und"] {
            assert_eq!(words.language_of_word(word), None, "{word}");
        }
    }

    #[test]
    fn no_word_tells_two_languages() {
        let words = |list: WordList| {
            let lines = numbered_entries(list.built_in()).map(|(_, line)| line);
            lines.flat_map(str::split_whitespace)
        };
        for word in words(WordList::ForeignWords) {
            assert!(
                !words(WordList::FunctionWords).any(|it| it == word),
                "{word}"
            );
        }
    }

    #[test]
    fn replaced_list_takes_the_place_of_the_shipped_one() {
        let lists = [(
            "vague-phrases".to_string(),
            "# none\nnach Gefühl\n".to_string(),
        )]
        .into();
        let words = Words::with_lists(&lists).unwrap();
        let phrases = words.pattern(WordList::VaguePhrases);
        assert!(phrases.is_match("Handle nach gefühl.".as_bytes()));
        assert!(!phrases.is_match(b"be careful"));
        let lists = [("vague-phrases".to_string(), String::new())].into();
        let words = Words::with_lists(&lists).unwrap();
        assert!(
            !words
                .pattern(WordList::VaguePhrases)
                .is_match(b"be careful")
        );
    }

    #[test]
    fn unusable_list_names_its_line() {
        let error_of = |name: &str, text: &str| {
            let lists = [(name.to_string(), text.to_string())].into();
            Words::with_lists(&lists).unwrap_err()
        };
        assert!(error_of("vague", "x").contains("no word list `vague`"));
        assert!(error_of("waivers", "fine\n(open").contains("waivers.txt, line 2"));
        assert!(error_of("waivers", "x*").contains("matches any text"));
        assert!(error_of("triggers", "(always)").contains("(?:"));
        let shapes = "[a-z]{4000}\n".repeat(200);
        let why = "secret-shapes.txt is too long for a pattern";
        assert!(error_of("secret-shapes", &shapes).contains(why));
    }
}
