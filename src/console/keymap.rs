//! Keys: how they are written, and what a sequence of them means where. The
//! table of commands has the defaults, an operator's own lie over them.

use std::fmt;

use unicode_width::UnicodeWidthChar;

use super::command::{self, Command, Context, TABLE};
use crate::config::closest;

/// A key as the console sees it, whatever the terminal library calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Which key.
    pub code: Code,
    /// Held with Control.
    pub ctrl: bool,
}

/// A key without its modifiers. Shift is part of the character.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// A character.
    Char(char),
    /// The named keys.
    Enter,
    /// Escape.
    Esc,
    /// Tab.
    Tab,
    /// Shift and Tab.
    BackTab,
    /// Backspace.
    Backspace,
    /// Arrow up.
    Up,
    /// Arrow down.
    Down,
    /// Arrow left.
    Left,
    /// Arrow right.
    Right,
    /// Page up.
    PageUp,
    /// Page down.
    PageDown,
    /// Home.
    Home,
    /// End.
    End,
    /// A function key.
    F(u8),
}

const NAMED: &[(&str, Code)] = &[
    ("Enter", Code::Enter),
    ("Esc", Code::Esc),
    ("Tab", Code::Tab),
    ("S-Tab", Code::BackTab),
    ("Backspace", Code::Backspace),
    ("Up", Code::Up),
    ("Down", Code::Down),
    ("Left", Code::Left),
    ("Right", Code::Right),
    ("PgUp", Code::PageUp),
    ("PgDn", Code::PageDown),
    ("Home", Code::Home),
    ("End", Code::End),
    ("Space", Code::Char(' ')),
];

/// Keys that are taken before they come here, and by what.
const RESERVED_KEYS: &[(&str, &str)] = &[
    ("^s", "terminals stop their output with it"),
    ("^q", "terminals go on with it"),
    ("^h", "terminals send it for Backspace"),
    ("^i", "terminals send it for Tab"),
    ("^j", "terminals send it for Enter"),
    ("^m", "terminals send it for Enter"),
    ("^a", "screen and tmux take it"),
    ("^g", "zellij takes it"),
    ("^p", "zellij takes it"),
    ("^t", "zellij takes it"),
    ("^n", "zellij takes it"),
    ("^o", "zellij takes it"),
    ("F10", "terminals open their menu with it"),
    ("F11", "terminals fill the screen with it"),
];

/// The prefix of tmux: good enough as one of several keys.
const TMUX_PREFIX: Key = Key {
    code: Code::Char('b'),
    ctrl: true,
};

/// The key that confirms a plan.
pub const CONFIRM_KEY: char = 'y';

/// The most keys of a sequence.
const MAX_SEQUENCE_KEYS: usize = 3;

/// What is wrong with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyError {
    /// A sentence without its full stop.
    pub message: String,
    /// What the operator can do.
    pub hint: Option<String>,
}

impl KeyError {
    /// A fault with a hint; an empty one is none.
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> KeyError {
        KeyError {
            message: message.into(),
            hint: Some(hint.into()).filter(|hint| !hint.is_empty()),
        }
    }
}

impl Key {
    /// A key without modifiers.
    pub fn plain(code: Code) -> Key {
        Key { code, ctrl: false }
    }

    /// The character it types, if it types one.
    pub fn typed(self) -> Option<char> {
        match self.code {
            Code::Char(c) if !self.ctrl => Some(c),
            _ => None,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ctrl {
            f.write_str("^")?;
        }
        match (NAMED.iter().find(|(_, code)| *code == self.code), self.code) {
            (Some((name, _)), _) => f.write_str(name),
            (None, Code::Char(c)) => write!(f, "{c}"),
            (None, Code::F(number)) => write!(f, "F{number}"),
            (None, _) => Ok(()),
        }
    }
}

/// A sequence as people read and write it: `gg`, `Space r`.
pub fn written(keys: &[Key]) -> String {
    let names: Vec<String> = keys.iter().map(Key::to_string).collect();
    let characters = keys
        .iter()
        .all(|key| !matches!(key.typed(), None | Some(' ')));
    names.join(if characters && keys.len() <= 2 {
        ""
    } else {
        " "
    })
}

/// Reads a sequence: `X`, `^c`, `PgDn`, `S-Tab`, `F5`; keys one after the other
/// have blanks between them, which two plain characters need not: `Space r`, `gg`.
///
/// # Errors
/// What is no key, and what was probably meant.
pub fn parse(text: &str) -> Result<Vec<Key>, KeyError> {
    let mut keys = Vec::new();
    for word in text.split_whitespace() {
        keys.extend(word_keys(word)?);
    }
    match keys.len() {
        0 => Err(KeyError::new(
            "a key is empty",
            "the space bar is written Space",
        )),
        1..=MAX_SEQUENCE_KEYS => Ok(keys),
        _ => Err(KeyError::new(
            format!("`{text}` is more than {MAX_SEQUENCE_KEYS} keys one after the other"),
            "",
        )),
    }
}

fn word_keys(word: &str) -> Result<Vec<Key>, KeyError> {
    if let Some((_, code)) = NAMED.iter().find(|(name, _)| *name == word) {
        return Ok(vec![Key::plain(*code)]);
    }
    let function = word.strip_prefix('F').and_then(|rest| rest.parse().ok());
    if let Some(number @ 1..=12) = function {
        return Ok(vec![Key::plain(Code::F(number))]);
    }
    let unknown = |hint: String| Err(KeyError::new(format!("`{word}` is no key"), hint));
    let same = |(name, _): &&(&str, Code)| name.eq_ignore_ascii_case(word);
    if let Some((name, _)) = NAMED.iter().find(same) {
        return unknown(format!("did you mean `{name}`?"));
    }
    let chars: Vec<char> = word.chars().collect();
    match chars.as_slice() {
        ['^', letter] if letter.is_ascii_alphabetic() => Ok(vec![Key {
            code: Code::Char(letter.to_ascii_lowercase()),
            ctrl: true,
        }]),
        ['^', _] => unknown("Control goes with a letter: `^r`".to_string()),
        [one] if visible(*one) => Ok(vec![Key::plain(Code::Char(*one))]),
        [one, two] if visible(*one) && visible(*two) => Ok(vec![
            Key::plain(Code::Char(*one)),
            Key::plain(Code::Char(*two)),
        ]),
        _ => unknown(meant(word)),
    }
}

/// Whether a character takes room, so that it can be shown as a key.
fn visible(c: char) -> bool {
    c.width().is_some_and(|cells| cells > 0)
}

/// What was probably meant by a word that is no key.
fn meant(word: &str) -> String {
    let lower = word.to_lowercase();
    let begins = |words: &[&str]| words.iter().any(|it| lower.starts_with(it));
    if begins(&["ctrl", "c-", "control"]) {
        let letter = word.chars().next_back().unwrap_or('r');
        return format!("Control is written `^{}`", letter.to_lowercase());
    }
    if begins(&["alt", "a-", "m-", "meta"]) {
        return "Alt comes as Esc and the key, so nothing can be bound to it".to_string();
    }
    if begins(&["f1", "f2"]) {
        return "there are F1 to F12".to_string();
    }
    let known = match lower.as_str() {
        "return" => Some("Enter"),
        "escape" => Some("Esc"),
        "pageup" => Some("PgUp"),
        "pagedown" => Some("PgDn"),
        "backtab" | "shift-tab" | "shift+tab" => Some("S-Tab"),
        _ => closest(word, NAMED.iter().map(|(name, _)| *name)),
    };
    match known {
        Some(name) => format!("did you mean `{name}`?"),
        None => "a key is a character, `^r`, F1 to F12 or one of Enter, Esc, Tab, S-Tab, \
                 Backspace, Space, Up, Down, Left, Right, PgUp, PgDn, Home, End"
            .to_string(),
    }
}

/// Why a command cannot have these keys and no others, each of which it can have.
///
/// # Errors
/// The reason.
pub fn allowed(command: Command, sequences: &[Vec<Key>]) -> Result<(), KeyError> {
    let id = command::spec(command).id;
    match sequences {
        [] if command == Command::Confirm => fixed(id),
        [] if matches!(command, Command::Quit | Command::Help) => {
            Err(KeyError::new(format!("{id} keeps at least one key"), ""))
        }
        [one] if one.contains(&TMUX_PREFIX) => prefix_of_tmux(),
        _ => Ok(()),
    }
}

fn fixed(id: &str) -> Result<(), KeyError> {
    Err(KeyError::new(
        format!("{id} is always `{CONFIRM_KEY}`"),
        "what confirms cannot be changed, so that no slip of a key ever does",
    ))
}

fn prefix_of_tmux() -> Result<(), KeyError> {
    Err(KeyError::new(
        format!("`{TMUX_PREFIX}` is the prefix of tmux"),
        "it can be one of several keys of a command, not the only one",
    ))
}

/// Why this cannot be a key of a command, whatever else is.
///
/// # Errors
/// The reason.
pub fn can_be(command: Command, sequence: &[Key]) -> Result<(), KeyError> {
    let id = command::spec(command).id;
    let no = |message: String, hint: &str| Err(KeyError::new(message, hint));
    if command == Command::Confirm && sequence != [Key::plain(Code::Char(CONFIRM_KEY))] {
        return fixed(id);
    }
    for key in sequence {
        let name = key.to_string();
        if let Some((_, by)) = RESERVED_KEYS.iter().find(|(taken, _)| *taken == name) {
            return no(format!("`{name}` never comes here: {by}"), "");
        }
        if *key == TMUX_PREFIX && sequence.len() > 1 {
            return prefix_of_tmux();
        }
        if key.code == Code::Esc && (command != Command::Back || sequence.len() > 1) {
            return no(
                "`Esc` always leads back".to_string(),
                "it cannot mean anything else",
            );
        }
    }
    let quiet = matches!(sequence.last(), Some(key)
            if key.code == Code::Enter || key.typed() == Some(' '));
    if quiet
        && command::spec(command).contexts.contains(&Context::Plan)
        && command::spec(command).category == command::Category::Act
    {
        return no(
            format!("Enter and Space do nothing at a plan, so `{id}` cannot be one of them"),
            "",
        );
    }
    let confirms = sequence.last().and_then(|key| key.typed()) == Some(CONFIRM_KEY);
    if confirms && command::opens_a_plan(command) {
        return no(
            format!("`{CONFIRM_KEY}` confirms a plan, so it cannot be what opens one, too"),
            "the key that confirms is never the one that was held a moment ago",
        );
    }
    Ok(())
}

/// What a sequence of keys means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyMeaning {
    /// This command.
    Command(Command),
    /// The beginning of at least one longer sequence.
    Prefix,
    /// Nothing.
    Nothing,
}

/// The keys of every command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keymap {
    /// In the order of the table.
    bindings: Vec<Binding>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Binding {
    command: Command,
    contexts: &'static [Context],
    keys: Vec<Vec<Key>>,
    defaults: Vec<Vec<Key>>,
}

/// Two commands that want the same keys in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyConflict {
    /// The command whose keys were changed; it has its defaults again.
    pub command: Command,
    /// What it should have had.
    pub keys: Vec<Key>,
    /// The other one.
    pub other: Command,
    /// What that one has: the same, or the beginning or the continuation of it.
    pub has: Vec<Key>,
}

impl Default for Keymap {
    fn default() -> Keymap {
        let binding = |spec: &command::Spec| {
            // The test below proves that all of them can be read.
            let keys = spec.keys.iter().filter_map(|text| parse(text).ok());
            let defaults: Vec<Vec<Key>> = keys.collect();
            Binding {
                command: spec.command,
                contexts: spec.contexts,
                keys: defaults.clone(),
                defaults,
            }
        };
        Keymap {
            bindings: TABLE.iter().map(binding).collect(),
        }
    }
}

impl Keymap {
    /// The defaults with other keys for some commands, in the order in which they
    /// were written. Those that clash keep their defaults and are told.
    pub fn patched(mut patches: Vec<(Command, Vec<Vec<Key>>)>) -> (Keymap, Vec<KeyConflict>) {
        let mut clashes = Vec::new();
        loop {
            let mut keymap = Keymap::default();
            for (command, keys) in &patches {
                keymap.set(*command, keys.clone());
            }
            let patched = |command| patches.iter().any(|(it, _)| *it == command);
            let found: Vec<KeyConflict> = patches
                .iter()
                .rev()
                .filter_map(|(command, _)| keymap.clash(*command, &patched))
                .collect();
            // Who clashes with what nobody changed cannot stay in any case.
            let sure = found.iter().find(|clash| !patched(clash.other));
            let Some(clash) = sure.or(found.first()).cloned() else {
                return (keymap, clashes);
            };
            patches.retain(|(command, _)| *command != clash.command);
            clashes.push(clash);
        }
    }

    fn set(&mut self, command: Command, mut keys: Vec<Vec<Key>>) {
        // What lies over a screen is left by it, and so is every screen.
        let escape = vec![Key::plain(Code::Esc)];
        if command == Command::Back && !keys.contains(&escape) {
            keys.push(escape);
        }
        let binding = self.bindings.iter_mut().find(|it| it.command == command);
        if let Some(binding) = binding {
            binding.keys = keys;
        }
    }

    fn binding(&self, command: Command) -> Option<&Binding> {
        self.bindings.iter().find(|it| it.command == command)
    }

    /// With whom a command clashes; one that nobody changed before others.
    fn clash(&self, command: Command, patched: &impl Fn(Command) -> bool) -> Option<KeyConflict> {
        let own = self.binding(command)?;
        let mut found = None;
        for other in self.bindings.iter().filter(|it| it.command != command) {
            let Some((keys, has)) = own.clash(other) else {
                continue;
            };
            let clash = KeyConflict {
                command,
                keys: keys.clone(),
                other: other.command,
                has: has.clone(),
            };
            match patched(other.command) {
                false => return Some(clash),
                true => found = found.or(Some(clash)),
            }
        }
        found
    }

    /// All key sequences of a command, the one to show first.
    pub fn keys(&self, command: Command) -> &[Vec<Key>] {
        self.binding(command).map_or(&[], |binding| &binding.keys)
    }

    /// The same as the operator writes them.
    pub fn texts(&self, command: Command) -> Vec<String> {
        self.keys(command)
            .iter()
            .map(|keys| written(keys))
            .collect()
    }

    /// The same in one text; two blanks where one would be taken for part of a
    /// sequence.
    pub fn listed(&self, command: Command) -> String {
        let texts = self.texts(command);
        let blanks = texts.iter().any(|text| text.contains(' '));
        texts.join(if blanks { "  " } else { " " })
    }

    /// What to press for a command, in a sentence. One without a key is in the
    /// palette.
    pub fn key(&self, command: Command) -> String {
        let first = |command| self.keys(command).first().map(|keys| written(keys));
        let id = command::spec(command).id;
        first(command).unwrap_or_else(|| match first(Command::Palette) {
            Some(palette) => format!("{palette}{id}"),
            None => format!("the command {id}"),
        })
    }

    /// What leaves the fleet, as a key to show.
    pub fn leaving(&self) -> String {
        match self.keys(Command::Back).first() {
            Some(keys) if keys.as_slice() != [Key::plain(Code::Esc)] => written(keys),
            _ => self.key(Command::Quit),
        }
    }

    /// Whether that is the key.
    pub fn leaves(&self, key: Key) -> bool {
        let first = self.keys(Command::Back).first();
        first.is_some_and(|keys| keys.last() == Some(&key))
    }

    /// Whether the operator changed a command's keys.
    pub fn is_changed(&self, command: Command) -> bool {
        self.binding(command)
            .is_some_and(|binding| binding.keys != binding.defaults)
    }

    /// What `keys` mean in `context`. A command of the context itself hides one
    /// that holds everywhere.
    pub fn meaning(&self, context: Context, keys: &[Key]) -> KeyMeaning {
        let mut prefix = false;
        for (command, sequence) in self.sequences(context) {
            if sequence == keys {
                return KeyMeaning::Command(command);
            }
            prefix |= sequence.starts_with(keys);
        }
        match prefix {
            true => KeyMeaning::Prefix,
            false => KeyMeaning::Nothing,
        }
    }

    /// What can follow `keys` in `context`: the rest of the sequence, and what it
    /// means.
    pub fn following(&self, context: Context, keys: &[Key]) -> Vec<(String, Command)> {
        let mut found: Vec<(String, Command)> = Vec::new();
        for (command, sequence) in self.sequences(context) {
            if let Some(rest) = sequence.strip_prefix(keys).filter(|rest| !rest.is_empty()) {
                let rest = written(rest);
                if !found.iter().any(|(other, _)| *other == rest) {
                    found.push((rest, command));
                }
            }
        }
        found
    }

    fn sequences(&self, context: Context) -> impl Iterator<Item = (Command, &[Key])> {
        [context, Context::Any].into_iter().flat_map(move |wanted| {
            let holds = self
                .bindings
                .iter()
                .filter(move |it| it.contexts.contains(&wanted));
            holds.flat_map(|it| it.keys.iter().map(|keys| (it.command, keys.as_slice())))
        })
    }
}

impl Binding {
    /// Sequences of two commands that cannot both be reached. What the defaults
    /// have in common is meant so.
    fn clash<'a>(&'a self, other: &'a Binding) -> Option<(&'a Vec<Key>, &'a Vec<Key>)> {
        let everywhere = |it: &Binding| it.contexts.contains(&Context::Any);
        let common = |context| other.contexts.contains(context);
        let meet = everywhere(self) || everywhere(other) || self.contexts.iter().any(common);
        // At a plan it answers a question while one is asked, and leads back else.
        let answers = |one: &Binding, two: &Binding| {
            (one.command, two.command) == (Command::KeepHidden, Command::Back)
        };
        if !meet {
            return None;
        }
        let pairs = self
            .keys
            .iter()
            .flat_map(|own| other.keys.iter().map(move |keys| (own, keys)));
        pairs
            .filter(|(own, keys)| own.starts_with(keys) || keys.starts_with(own))
            .filter(|(own, keys)| !(self.defaults.contains(own) && other.defaults.contains(keys)))
            .find(|(own, keys)| own != keys || !(answers(self, other) || answers(other, self)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(context: Context, text: &str) -> KeyMeaning {
        Keymap::default().meaning(context, &parse(text).unwrap())
    }

    fn patch(command: Command, keys: &[&str]) -> (Command, Vec<Vec<Key>>) {
        let keys = keys.iter().map(|text| parse(text).unwrap());
        (command, keys.collect())
    }

    /// The commands that keep their defaults because of a clash, and with whom.
    fn clashes(patches: &[(Command, &[&str])]) -> Vec<(Command, Command)> {
        let patches = patches.iter().map(|(command, keys)| patch(*command, keys));
        let (_, clashes) = Keymap::patched(patches.collect());
        clashes.iter().map(|it| (it.command, it.other)).collect()
    }

    #[test]
    fn every_key_of_the_table_can_be_read_and_written_and_is_allowed() {
        for spec in TABLE {
            let mut all = Vec::new();
            for text in spec.keys {
                let keys = parse(text).unwrap_or_else(|it| panic!("{it:?} of {}", spec.id));
                assert_eq!(written(&keys), *text, "{}", spec.id);
                assert_eq!(can_be(spec.command, &keys), Ok(()), "{}", spec.id);
                all.push(keys);
            }
            assert_eq!(allowed(spec.command, &all), Ok(()), "{}", spec.id);
        }
    }

    #[test]
    fn a_context_hides_what_holds_everywhere() {
        assert_eq!(of(Context::Fleet, "g"), KeyMeaning::Prefix);
        assert_eq!(of(Context::Fleet, "gg"), KeyMeaning::Command(Command::Top));
        assert_eq!(
            of(Context::Fleet, "X"),
            KeyMeaning::Command(Command::PlanReset)
        );
        assert_eq!(of(Context::Fleet, "^c"), KeyMeaning::Command(Command::Quit));
        assert_eq!(
            of(Context::Plan, "y"),
            KeyMeaning::Command(Command::Confirm)
        );
        assert_eq!(of(Context::Fleet, "y"), KeyMeaning::Prefix);
        assert_eq!(
            of(Context::Fleet, "yn"),
            KeyMeaning::Command(Command::CopyName)
        );
        assert_eq!(of(Context::Plan, "Enter"), KeyMeaning::Nothing);
        assert_eq!(of(Context::Plan, "Space"), KeyMeaning::Nothing);
    }

    #[test]
    fn sequences_are_written_with_blanks_where_names_are_among_them() {
        for (text, keys) in [
            ("gg", 2),
            ("Space r", 2),
            ("g Home", 2),
            ("^x ^r", 2),
            ("a b c", 3),
            ("F5", 1),
            ("ä", 1),
            ("^", 1),
        ] {
            let parsed = parse(text).unwrap();
            assert_eq!((parsed.len(), written(&parsed).as_str()), (keys, text));
        }
        assert_eq!(parse("g g"), parse("gg"));
        assert_eq!(parse("^R"), parse("^r"), "Control knows no capitals");
    }

    #[test]
    fn what_is_no_key_says_what_was_meant() {
        for (text, hint) in [
            ("Spce", "`Space`"),
            ("enter", "`Enter`"),
            ("up", "`Up`"),
            ("PageUp", "`PgUp`"),
            ("Ctrl-R", "`^r`"),
            ("C-x", "`^x`"),
            ("Alt-x", "Alt"),
            ("F13", "F1 to F12"),
            ("^1", "letter"),
            ("zzzzzz", "a key is"),
            ("\u{202e}", "a key is"),
            ("\u{1b}", "a key is"),
            ("", "Space"),
        ] {
            let fault = parse(text).unwrap_err();
            let told = fault.hint.unwrap_or_default();
            assert!(told.contains(hint), "{text:?}: {told}");
        }
        assert!(parse("a b c d").is_err());
    }

    #[test]
    fn keys_that_cannot_be_are_refused() {
        for (command, text) in [
            (Command::PlanReset, "^s"),
            (Command::PlanReset, "x ^a"),
            (Command::PlanReset, "F11"),
            (Command::PageUp, "^b"),
            (Command::GoLog, "Esc"),
            (Command::Back, "g Esc"),
            (Command::PlanReset, "y"),
            (Command::PlanUndo, "gy"),
            (Command::Append, "y"),
            (Command::Append, "Enter"),
            (Command::Overwrite, "Space"),
            (Command::KeepHidden, "Enter"),
            (Command::Confirm, "Enter"),
            (Command::Confirm, "Y"),
        ] {
            let keys = parse(text).unwrap();
            let wrong = can_be(command, &keys).and(allowed(command, &[keys]));
            assert!(wrong.is_err(), "{text} of {command:?}");
        }
        assert!(allowed(Command::Confirm, &[]).is_err());
        assert!(allowed(Command::Quit, &[]).is_err());
        assert!(allowed(Command::Help, &[]).is_err());
        assert_eq!(allowed(Command::PlanReset, &[]), Ok(()));
        let both = [parse("PgUp").unwrap(), parse("^b").unwrap()];
        assert_eq!(allowed(Command::PageUp, &both), Ok(()));
    }

    #[test]
    fn a_list_replaces_the_keys_of_a_command_and_none_takes_them_away() {
        let (keymap, clashes) = Keymap::patched(vec![
            patch(Command::PlanReset, &["F5", "Q"]),
            patch(Command::GoLog, &[]),
            patch(Command::Back, &["b"]),
        ]);
        assert_eq!(clashes, []);
        let meaning = |text: &str| keymap.meaning(Context::Fleet, &parse(text).unwrap());
        assert_eq!(meaning("Q"), KeyMeaning::Command(Command::PlanReset));
        assert_eq!(meaning("X"), KeyMeaning::Nothing);
        assert_eq!(meaning("7"), KeyMeaning::Nothing);
        assert_eq!(meaning("Esc"), KeyMeaning::Command(Command::Back));
        assert_eq!(keymap.key(Command::PlanReset), "F5");
        assert_eq!(keymap.key(Command::GoLog), ":log");
        assert_eq!(keymap.leaving(), "b");
        assert!(keymap.is_changed(Command::GoLog) && !keymap.is_changed(Command::Sort));
    }

    #[test]
    fn clashes_are_found_where_two_commands_hold_at_once() {
        use Command::*;
        assert_eq!(clashes(&[(PlanReset, &["d"])]), [(PlanReset, OpenDiff)]);
        assert_eq!(
            clashes(&[(PlanReset, &["g"])]),
            [(PlanReset, Top)],
            "g hides gg"
        );
        assert_eq!(
            clashes(&[(PlanReset, &["jj"])]),
            [(PlanReset, Down)],
            "j hides jj"
        );
        assert_eq!(
            clashes(&[(PlanReset, &["7"])]),
            [(PlanReset, GoLog)],
            "everywhere"
        );
        assert_eq!(clashes(&[(Wrap, &["v"])]), [], "another screen");
        assert_eq!(
            clashes(&[(PlanReset, &["d"]), (OpenDiff, &["X"])]),
            [],
            "exchanged"
        );
        assert_eq!(clashes(&[(PlanReset, &["Space r"]), (Mark, &["m"])]), []);
        assert_eq!(clashes(&[(KeepHidden, &["q"])]), [], "it leads back else");
        // The later of two that were changed gives way, unless the other has to.
        assert_eq!(clashes(&[(Mark, &["m"]), (Sort, &["m"])]), [(Sort, Mark)]);
        assert_eq!(
            clashes(&[(PlanReset, &["d"]), (Sort, &["d"])]),
            [(Sort, OpenDiff), (PlanReset, OpenDiff)]
        );
        // What goes back to its default may be in another's way then.
        assert_eq!(
            clashes(&[(PlanReset, &["d"]), (OpenDiff, &["j"]), (Sort, &["X"])]),
            [(OpenDiff, Down), (PlanReset, OpenDiff), (Sort, PlanReset)]
        );
    }

    #[test]
    fn what_follows_a_prefix_is_told() {
        let (keymap, _) = Keymap::patched(vec![patch(Command::GoLog, &["g Home", "gl"])]);
        let following = keymap.following(Context::Fleet, &parse("g").unwrap());
        assert_eq!(
            following,
            [
                ("g".to_string(), Command::Top),
                ("Home".to_string(), Command::GoLog),
                ("l".to_string(), Command::GoLog),
            ]
        );
    }
}
