//! Preferences parsed from a text, and the errors reported.

use std::fs;

use super::*;
use crate::console::command::KeyContext;
use crate::console::keys::keymap::KeyMeaning;

fn parse_text(text: &str) -> (Preferences, Vec<Diagnostic>) {
    parse(
        text,
        Path::new("/home/op/.config/memory-shepherd/console.toml"),
    )
}

/// Line and sentence of everything that is wrong.
fn error_lines(text: &str) -> Vec<String> {
    let (_, found) = parse_text(text);
    let line = |it: &Diagnostic| {
        let hint = it.hints.join("; ");
        format!("{}: {} ({hint})", it.line.unwrap_or(0), it.message)
    };
    found.iter().map(line).collect()
}

#[track_caller]
fn assert_errors(text: &str, words: &[&str]) {
    let found = error_lines(text);
    assert_eq!(found.len(), words.len(), "{found:#?}");
    for (found, word) in found.iter().zip(words) {
        assert!(found.contains(word), "{word:?} is not in {found:?}");
    }
}

#[test]
fn empty_file_gives_defaults() {
    assert_eq!(parse_text(""), (Preferences::default(), vec![]));
    assert_eq!(
        parse_text("[keys]\n[filters]\n# no\n"),
        (Preferences::default(), vec![])
    );
}

#[test]
fn pager_pause_is_off_until_it_is_switched_on() {
    assert!(!Preferences::default().has_pager_pause);
    assert!(parse_text("pager-pause = true\n").0.has_pager_pause);
    assert_errors("pager-pause = 1\n", &["1: pager-pause is true or false"]);
}

#[test]
fn bell_is_off_until_it_is_switched_on() {
    assert!(!Preferences::default().has_bell);
    assert!(parse_text("bell = true\n").0.has_bell);
    assert!(!parse_text("bell = false\n").0.has_bell);
    assert_errors("bell = 1\n", &["1: bell is true or false"]);
    assert_errors("bel = true\n", &["did you mean `bell`?"]);
}

#[test]
fn every_setting_is_parsed() {
    let (preferences, found) = parse_text(
        "theme = \"mono\"\n\
         columns = [\"agent\", \"state\", \"trend\", \"why\"]\n\
         [keys]\n\
         reset = [\"F5\", \"Space r\"]\n\
         mark = \"m\"\n\
         log = []\n\
         [filters]\n\
         night = \"is:drifted !test\"\n\
         a = \"host:local\"\n",
    );
    assert_eq!(found, []);
    assert_eq!(preferences.theme.as_deref(), Some("mono"));
    let words: Vec<&str> = preferences
        .columns
        .iter()
        .map(|it| it.layout().id)
        .collect();
    assert_eq!(words, ["agent", "state", "trend", "why"]);
    assert_eq!(
        preferences.named_filters[0].0, "night",
        "in the order of the file"
    );
    let keymap = &preferences.keymap;
    assert_eq!(keymap.sequence_texts(Command::PlanReset), ["F5", "Space r"]);
    assert_eq!(keymap.sequence_texts(Command::ToggleMark), ["m"]);
    assert_eq!(keymap.sequence_texts(Command::GoLog), [""; 0]);
    let keys = key::parse_sequence("Space r").unwrap();
    let meaning = keymap.resolve(KeyContext::Fleet, &keys);
    assert_eq!(meaning, KeyMeaning::Command(Command::PlanReset));
}

#[test]
fn all_errors_are_reported_with_lines() {
    assert_errors(
        "theem = \"mono\"\n\
         theme = \"monoo\"\n\
         columns = [\"state\", \"agnet\"]\n\
         [keys]\n\
         rset = \"F5\"\n\
         undo = \"Spce\"\n\
         sort = 7\n\
         log = \"^s\"\n\
         \n\
         mark = \"d\"\n\
         quit = []\n\
         confirm = \"Enter\"\n\
         [filters]\n\
         night = 1\n",
        &[
            "1: unknown setting `theem` (did you mean `theme`?",
            "2: unknown theme `monoo` (did you mean `mono`?",
            "3: unknown column `agnet` (did you mean `agent`?",
            "5: unknown command `rset` (did you mean `reset`?",
            "6: `Spce` is not a key (did you mean `Space`?",
            "7: a key must be a string in quotes",
            "8: `^s` never reaches the console",
            "10: mark: `d` is already bound to diff",
            "11: quit needs at least one key",
            "12: confirm is always `y`",
            "14: a filter must be a string in quotes",
        ],
    );
}

#[test]
fn every_invalid_list_item_is_reported() {
    assert_errors(
        "[keys]\n\
         sort = [\"^m\", \"^s\", \"zz zz zz zz\"]\n\
         undo = [\"^b\", \"Spce\"]\n\
         [filters]\n\
         n = \"is:drifed host:\"\n",
        &[
            "2: `^m` never reaches the console",
            "2: `^s` never reaches the console",
            "2: `zz zz zz zz` has more than 3 keys",
            "3: `Spce` is not a key (did you mean `Space`?",
            "5: `is:drifed` names no state (did you mean `is:drifted`?",
            "5: `host:` names no host",
        ],
    );
    let (preferences, _) = parse_text("[filters]\nbad = \"host:\"\ngood = \"host:box\"\n");
    let kept: Vec<&str> = preferences
        .named_filters
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(kept, ["good"]);
}

#[test]
fn toml_syntax_error_is_reported_once() {
    let text = "theme = \"mono\"\n[keys]\nsort = [\"o\", \"F5\"\nundo = \"u\"\nmark = \"m\"\n";
    let found = error_lines(text);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(
        found[0].starts_with("4: ") && found[0].contains("not closed"),
        "{found:?}"
    );
}

#[test]
fn invalid_setting_alone_keeps_its_default() {
    let (preferences, found) = parse_text(
        "theme = \"nope\"\ncolumns = [\"agent\"]\n[keys]\nmark = \"d\"\nsort = \"o\"\nundo = [\"U\", \"Spce\"]\n",
    );
    assert_eq!(found.len(), 4);
    assert_eq!(preferences.theme, None);
    assert_eq!(preferences.columns, columns::default_columns());
    assert_eq!(
        preferences.keymap.sequence_texts(Command::ToggleMark),
        ["Space"]
    );
    assert_eq!(
        preferences.keymap.sequence_texts(Command::PlanUndo),
        ["z", "u"]
    );
    assert_eq!(
        preferences.keymap.sequence_texts(Command::ChooseSortOrder),
        ["o"]
    );
}

#[test]
fn invalid_columns_are_rejected() {
    assert_errors("columns = \"agent\"", &["is a list"]);
    assert_errors("columns = [\"agent\"]", &["state is required"]);
    assert_errors("columns = [\"state\"]", &["agent is required"]);
    assert_errors("columns = []", &["state is required"]);
    assert_errors(
        "columns = [\"state\", \"why\", \"agent\"]",
        &["why must be last"],
    );
    assert_errors(
        "columns = [\"state\", \"agent\", \"agent\"]",
        &["duplicate column"],
    );
}

#[test]
fn invalid_toml_gives_defaults_and_error_lines() {
    let (preferences, found) = parse_text("theme = \"mono\"\n[keys\nreset = X\nreset = \"F5\"\n");
    assert_eq!(preferences, Preferences::default());
    assert!(found.iter().any(|it| it.line == Some(2)), "{found:?}");
    let twice = error_lines("[keys]\nmark = \"m\"\nmark = \"n\"\n");
    assert!(twice[0].starts_with("3:"), "{twice:?}");
    assert_errors("keys = 1\nfilters = 2", &["[keys]", "[filters]"]);
}

#[test]
fn hidden_and_unreachable_sequences_are_reported() {
    assert_errors("[keys]\nreset = \"g\"", &["`g` would hide `gg` of top"]);
    assert_errors(
        "[keys]\nreset = \"Space r\"",
        &["`Space r` is unreachable, because `Space` is bound to mark"],
    );
}

#[test]
fn summary_shows_first_error_and_count() {
    let (_, found) = parse_text("[keys]\nrset = \"F5\"\nundo = \"Spce\"");
    assert_eq!(
        summarize_problems(&found, "memory-shepherd keys").unwrap(),
        "console.toml: 2 mistakes; line 2: unknown command `rset`; did you mean `reset`? \
         (`memory-shepherd keys` lists all)"
    );
    assert_eq!(summarize_problems(&[], "keys"), None);
}

#[test]
fn missing_or_irregular_file_gives_defaults() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(PREFERENCES_FILE_NAME);
    for absent in [path.as_path(), "/dev/null/preferences.toml".as_ref()] {
        assert_eq!(load(absent), (Preferences::default(), vec![]));
    }
    fs::create_dir(&path).unwrap();
    assert!(load(&path).1[0].message.contains("not a regular file"));
    fs::remove_dir(&path).unwrap();
    fs::write(&path, b"# one\n\xff\n").unwrap();
    let found = load(&path).1;
    assert_eq!((found[0].line, found.len()), (Some(2), 1));
    fs::write(&path, "theme = \"mono\"").unwrap();
    assert_eq!(load(&path).0.theme.as_deref(), Some("mono"));
}
