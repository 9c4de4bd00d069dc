//! What a file says, and what is wrong with it.

use std::fs;

use super::*;
use crate::console::command::KeyContext;
use crate::console::keymap::KeyMeaning;

fn read(text: &str) -> (Preferences, Vec<Diagnostic>) {
    parse(
        text,
        Path::new("/home/op/.config/memory-shepherd/console.toml"),
    )
}

/// Line and sentence of everything that is wrong.
fn wrong(text: &str) -> Vec<String> {
    let (_, found) = read(text);
    let line = |it: &Diagnostic| {
        let hint = it.hint.as_deref().unwrap_or("");
        format!("{}: {} ({hint})", it.line.unwrap_or(0), it.message)
    };
    found.iter().map(line).collect()
}

#[track_caller]
fn is_wrong(text: &str, words: &[&str]) {
    let found = wrong(text);
    assert_eq!(found.len(), words.len(), "{found:#?}");
    for (found, word) in found.iter().zip(words) {
        assert!(found.contains(word), "{word:?} is not in {found:?}");
    }
}

#[test]
fn an_empty_file_says_nothing() {
    assert_eq!(read(""), (Preferences::default(), vec![]));
    assert_eq!(
        read("[keys]\n[filters]\n# no\n"),
        (Preferences::default(), vec![])
    );
}

#[test]
fn everything_can_be_said() {
    let (preferences, found) = read(
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
    let keys = keymap::parse_sequence("Space r").unwrap();
    let meaning = keymap.resolve(KeyContext::Fleet, &keys);
    assert_eq!(meaning, KeyMeaning::Command(Command::PlanReset));
}

#[test]
fn all_faults_are_told_at_once_with_their_lines() {
    is_wrong(
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
            "1: there is no setting `theem` (did you mean `theme`?",
            "2: there is no theme `monoo` (did you mean `mono`?",
            "3: there is no column `agnet` (did you mean `agent`?",
            "5: there is no command `rset` (did you mean `reset`?",
            "6: `Spce` is no key (did you mean `Space`?",
            "7: a key is written in quotes",
            "8: `^s` never comes here",
            "10: mark: `d` is the key of diff already",
            "11: quit keeps at least one key",
            "12: confirm is always `y`",
            "14: a filter is written in quotes",
        ],
    );
}

#[test]
fn of_several_keys_and_words_each_that_is_wrong_is_told() {
    is_wrong(
        "[keys]\n\
         sort = [\"^m\", \"^s\", \"zz zz zz zz\"]\n\
         undo = [\"^b\", \"Spce\"]\n\
         [filters]\n\
         n = \"is:drifed host:\"\n",
        &[
            "2: `^m` never comes here",
            "2: `^s` never comes here",
            "2: `zz zz zz zz` is more than 3 keys",
            "3: `Spce` is no key (did you mean `Space`?",
            "5: `is:drifed` names no state (did you mean `is:drifted`?",
            "5: `host:` names no host",
        ],
    );
    let (preferences, _) = read("[filters]\nbad = \"host:\"\ngood = \"host:box\"\n");
    let kept: Vec<&str> = preferences
        .named_filters
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(kept, ["good"]);
}

#[test]
fn of_what_is_no_toml_the_first_place_is_told() {
    let text = "theme = \"mono\"\n[keys]\nsort = [\"o\", \"F5\"\nundo = \"u\"\nmark = \"m\"\n";
    let found = wrong(text);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(
        found[0].starts_with("4: ") && found[0].contains("not closed"),
        "{found:?}"
    );
}

#[test]
fn what_is_wrong_keeps_its_default_and_nothing_else_does() {
    let (preferences, found) = read(
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
fn columns_that_make_no_sense_are_refused() {
    is_wrong("columns = \"agent\"", &["is a list"]);
    is_wrong("columns = [\"agent\"]", &["state cannot be left out"]);
    is_wrong("columns = [\"state\"]", &["agent cannot be left out"]);
    is_wrong("columns = []", &["state cannot be left out"]);
    is_wrong(
        "columns = [\"state\", \"why\", \"agent\"]",
        &["why stands last"],
    );
    is_wrong(
        "columns = [\"state\", \"agent\", \"agent\"]",
        &["stands twice"],
    );
}

#[test]
fn what_is_no_toml_is_told_with_its_lines_and_says_nothing() {
    let (preferences, found) = read("theme = \"mono\"\n[keys\nreset = X\nreset = \"F5\"\n");
    assert_eq!(preferences, Preferences::default());
    assert!(found.iter().any(|it| it.line == Some(2)), "{found:?}");
    let twice = wrong("[keys]\nmark = \"m\"\nmark = \"n\"\n");
    assert!(twice[0].starts_with("3:"), "{twice:?}");
    is_wrong("keys = 1\nfilters = 2", &["[keys]", "[filters]"]);
}

#[test]
fn prefixes_are_told_apart() {
    is_wrong("[keys]\nreset = \"g\"", &["`g` would hide `gg` of top"]);
    is_wrong(
        "[keys]\nreset = \"Space r\"",
        &["`Space r` is never reached, because `Space` is mark"],
    );
}

#[test]
fn a_line_says_the_first_and_how_many_more() {
    let (_, found) = read("[keys]\nrset = \"F5\"\nundo = \"Spce\"");
    assert_eq!(
        summarize_problems(&found, "memory-shepherd keys").unwrap(),
        "console.toml:2 and 1 more: there is no command `rset`; did you mean `reset`? \
         (`memory-shepherd keys` tells all)"
    );
    assert_eq!(summarize_problems(&[], "keys"), None);
}

#[test]
fn files_that_are_not_there_or_no_files_harm_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(PREFERENCES_FILE_NAME);
    assert_eq!(load(&path), (Preferences::default(), vec![]));
    fs::create_dir(&path).unwrap();
    assert!(load(&path).1[0].message.contains("not a regular file"));
    fs::remove_dir(&path).unwrap();
    fs::write(&path, b"# one\n\xff\n").unwrap();
    let found = load(&path).1;
    assert_eq!((found[0].line, found.len()), (Some(2), 1));
    fs::write(&path, "theme = \"mono\"").unwrap();
    assert_eq!(load(&path).0.theme.as_deref(), Some("mono"));
}
