//! Keys: how they are written, and what a sequence of them means where. The
//! table of commands has the defaults, an operator's own lie over them.

use std::fmt;

use unicode_width::UnicodeWidthChar;

use super::command::{self, COMMAND_TABLE, Command, KeyContext};
use crate::config::closest_match;

/// A key as the console sees it, whatever the terminal library calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Which key.
    pub code: KeyCode,
    /// Held with Control.
    pub has_ctrl: bool,
}

/// A key without its modifiers. Shift is part of the character.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyCode {
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

const NAMED_KEYS: &[(&str, KeyCode)] = &[
    ("Enter", KeyCode::Enter),
    ("Esc", KeyCode::Esc),
    ("Tab", KeyCode::Tab),
    ("S-Tab", KeyCode::BackTab),
    ("Backspace", KeyCode::Backspace),
    ("Up", KeyCode::Up),
    ("Down", KeyCode::Down),
    ("Left", KeyCode::Left),
    ("Right", KeyCode::Right),
    ("PgUp", KeyCode::PageUp),
    ("PgDn", KeyCode::PageDown),
    ("Home", KeyCode::Home),
    ("End", KeyCode::End),
    ("Space", KeyCode::Char(' ')),
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
    code: KeyCode::Char('b'),
    has_ctrl: true,
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
    pub fn from_code(code: KeyCode) -> Key {
        Key {
            code,
            has_ctrl: false,
        }
    }

    /// The character it types, if it types one.
    pub fn printable_char(self) -> Option<char> {
        match self.code {
            KeyCode::Char(c) if !self.has_ctrl => Some(c),
            _ => None,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.has_ctrl {
            f.write_str("^")?;
        }
        match (
            NAMED_KEYS.iter().find(|(_, code)| *code == self.code),
            self.code,
        ) {
            (Some((name, _)), _) => f.write_str(name),
            (None, KeyCode::Char(c)) => write!(f, "{c}"),
            (None, KeyCode::F(number)) => write!(f, "F{number}"),
            (None, _) => Ok(()),
        }
    }
}

/// A sequence as people read and write it: `gg`, `Space r`.
pub fn format_sequence(keys: &[Key]) -> String {
    let names: Vec<String> = keys.iter().map(Key::to_string).collect();
    let characters = keys
        .iter()
        .all(|key| !matches!(key.printable_char(), None | Some(' ')));
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
pub fn parse_sequence(text: &str) -> Result<Vec<Key>, KeyError> {
    let mut keys = Vec::new();
    for word in text.split_whitespace() {
        keys.extend(parse_word(word)?);
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

fn parse_word(word: &str) -> Result<Vec<Key>, KeyError> {
    if let Some((_, code)) = NAMED_KEYS.iter().find(|(name, _)| *name == word) {
        return Ok(vec![Key::from_code(*code)]);
    }
    let function = word.strip_prefix('F').and_then(|rest| rest.parse().ok());
    if let Some(number @ 1..=12) = function {
        return Ok(vec![Key::from_code(KeyCode::F(number))]);
    }
    let unknown = |hint: String| Err(KeyError::new(format!("`{word}` is no key"), hint));
    let is_same_name = |(name, _): &&(&str, KeyCode)| name.eq_ignore_ascii_case(word);
    if let Some((name, _)) = NAMED_KEYS.iter().find(is_same_name) {
        return unknown(format!("did you mean `{name}`?"));
    }
    let chars: Vec<char> = word.chars().collect();
    match chars.as_slice() {
        ['^', letter] if letter.is_ascii_alphabetic() => Ok(vec![Key {
            code: KeyCode::Char(letter.to_ascii_lowercase()),
            has_ctrl: true,
        }]),
        ['^', _] => unknown("Control goes with a letter: `^r`".to_string()),
        [one] if is_visible(*one) => Ok(vec![Key::from_code(KeyCode::Char(*one))]),
        [one, two] if is_visible(*one) && is_visible(*two) => Ok(vec![
            Key::from_code(KeyCode::Char(*one)),
            Key::from_code(KeyCode::Char(*two)),
        ]),
        _ => unknown(suggest_key(word)),
    }
}

/// Whether a character takes room, so that it can be shown as a key.
fn is_visible(c: char) -> bool {
    c.width().is_some_and(|cells| cells > 0)
}

/// What was probably meant by a word that is no key.
fn suggest_key(word: &str) -> String {
    let lower = word.to_lowercase();
    let starts_with_any = |words: &[&str]| words.iter().any(|it| lower.starts_with(it));
    if starts_with_any(&["ctrl", "c-", "control"]) {
        let letter = word.chars().next_back().unwrap_or('r');
        return format!("Control is written `^{}`", letter.to_lowercase());
    }
    if starts_with_any(&["alt", "a-", "m-", "meta"]) {
        return "Alt comes as Esc and the key, so nothing can be bound to it".to_string();
    }
    if starts_with_any(&["f1", "f2"]) {
        return "there are F1 to F12".to_string();
    }
    let known = match lower.as_str() {
        "return" => Some("Enter"),
        "escape" => Some("Esc"),
        "pageup" => Some("PgUp"),
        "pagedown" => Some("PgDn"),
        "backtab" | "shift-tab" | "shift+tab" => Some("S-Tab"),
        _ => closest_match(word, NAMED_KEYS.iter().map(|(name, _)| *name)),
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
pub fn check_sequences(command: Command, sequences: &[Vec<Key>]) -> Result<(), KeyError> {
    let id = command::spec_of(command).id;
    match sequences {
        [] if command == Command::ConfirmPlan => refuse_fixed_key(id),
        [] if matches!(command, Command::Quit | Command::Help) => {
            Err(KeyError::new(format!("{id} keeps at least one key"), ""))
        }
        [one] if one.contains(&TMUX_PREFIX) => refuse_tmux_prefix(),
        _ => Ok(()),
    }
}

fn refuse_fixed_key(id: &str) -> Result<(), KeyError> {
    Err(KeyError::new(
        format!("{id} is always `{CONFIRM_KEY}`"),
        "what confirms cannot be changed, so that no slip of a key ever does",
    ))
}

fn refuse_tmux_prefix() -> Result<(), KeyError> {
    Err(KeyError::new(
        format!("`{TMUX_PREFIX}` is the prefix of tmux"),
        "it can be one of several keys of a command, not the only one",
    ))
}

/// Why this cannot be a key of a command, whatever else is.
///
/// # Errors
/// The reason.
pub fn check_sequence(command: Command, sequence: &[Key]) -> Result<(), KeyError> {
    let id = command::spec_of(command).id;
    let refuse = |message: String, hint: &str| Err(KeyError::new(message, hint));
    if command == Command::ConfirmPlan && sequence != [Key::from_code(KeyCode::Char(CONFIRM_KEY))] {
        return refuse_fixed_key(id);
    }
    for key in sequence {
        let name = key.to_string();
        if let Some((_, by)) = RESERVED_KEYS.iter().find(|(taken, _)| *taken == name) {
            return refuse(format!("`{name}` never comes here: {by}"), "");
        }
        if *key == TMUX_PREFIX && sequence.len() > 1 {
            return refuse_tmux_prefix();
        }
        if key.code == KeyCode::Esc && (command != Command::GoBack || sequence.len() > 1) {
            return refuse(
                "`Esc` always leads back".to_string(),
                "it cannot mean anything else",
            );
        }
    }
    let is_enter_or_space = matches!(sequence.last(), Some(key)
            if key.code == KeyCode::Enter || key.printable_char() == Some(' '));
    if is_enter_or_space
        && command::spec_of(command)
            .contexts
            .contains(&KeyContext::Plan)
        && command::spec_of(command).category == command::CommandCategory::Actions
    {
        return refuse(
            format!("Enter and Space do nothing at a plan, so `{id}` cannot be one of them"),
            "",
        );
    }
    let is_confirm_key = sequence.last().and_then(|key| key.printable_char()) == Some(CONFIRM_KEY);
    if is_confirm_key && command::requests_plan(command) {
        return refuse(
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
    Unbound,
}

/// The keys of every command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keymap {
    /// In the order of the table.
    bindings: Vec<KeyBinding>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct KeyBinding {
    command: Command,
    contexts: &'static [KeyContext],
    sequences: Vec<Vec<Key>>,
    default_sequences: Vec<Vec<Key>>,
}

/// Two commands that want the same keys in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyConflict {
    /// The command whose keys were changed; it has its defaults again.
    pub command: Command,
    /// What it should have had.
    pub keys: Vec<Key>,
    /// The other one.
    pub other_command: Command,
    /// What that one has: the same, or the beginning or the continuation of it.
    pub other_keys: Vec<Key>,
}

impl Default for Keymap {
    fn default() -> Keymap {
        let binding = |spec: &command::CommandSpec| {
            // The test below proves that all of them can be read.
            let keys = spec
                .keys
                .iter()
                .filter_map(|text| parse_sequence(text).ok());
            let defaults: Vec<Vec<Key>> = keys.collect();
            KeyBinding {
                command: spec.command,
                contexts: spec.contexts,
                sequences: defaults.clone(),
                default_sequences: defaults,
            }
        };
        Keymap {
            bindings: COMMAND_TABLE.iter().map(binding).collect(),
        }
    }
}

impl Keymap {
    /// The defaults with other keys for some commands, in the order in which they
    /// were written. Those that clash keep their defaults and are told.
    pub fn with_overrides(
        mut overrides: Vec<(Command, Vec<Vec<Key>>)>,
    ) -> (Keymap, Vec<KeyConflict>) {
        let mut clashes = Vec::new();
        loop {
            let mut keymap = Keymap::default();
            for (command, keys) in &overrides {
                keymap.set_sequences(*command, keys.clone());
            }
            let is_overridden = |command| overrides.iter().any(|(it, _)| *it == command);
            let found: Vec<KeyConflict> = overrides
                .iter()
                .rev()
                .filter_map(|(command, _)| keymap.find_conflict(*command, &is_overridden))
                .collect();
            // Who clashes with what nobody changed cannot stay in any case.
            let unavoidable = found
                .iter()
                .find(|clash| !is_overridden(clash.other_command));
            let Some(clash) = unavoidable.or(found.first()).cloned() else {
                return (keymap, clashes);
            };
            overrides.retain(|(command, _)| *command != clash.command);
            clashes.push(clash);
        }
    }

    fn set_sequences(&mut self, command: Command, mut keys: Vec<Vec<Key>>) {
        // What lies over a screen is left by it, and so is every screen.
        let escape = vec![Key::from_code(KeyCode::Esc)];
        if command == Command::GoBack && !keys.contains(&escape) {
            keys.push(escape);
        }
        let binding = self.bindings.iter_mut().find(|it| it.command == command);
        if let Some(binding) = binding {
            binding.sequences = keys;
        }
    }

    fn find_binding(&self, command: Command) -> Option<&KeyBinding> {
        self.bindings.iter().find(|it| it.command == command)
    }

    /// With whom a command clashes; one that nobody changed before others.
    fn find_conflict(
        &self,
        command: Command,
        is_overridden: &impl Fn(Command) -> bool,
    ) -> Option<KeyConflict> {
        let own_binding = self.find_binding(command)?;
        let mut found = None;
        for other in self.bindings.iter().filter(|it| it.command != command) {
            let Some((keys, has)) = own_binding.find_overlap(other) else {
                continue;
            };
            let clash = KeyConflict {
                command,
                keys: keys.clone(),
                other_command: other.command,
                other_keys: has.clone(),
            };
            match is_overridden(other.command) {
                false => return Some(clash),
                true => found = found.or(Some(clash)),
            }
        }
        found
    }

    /// All key sequences of a command, the one to show first.
    pub fn sequences(&self, command: Command) -> &[Vec<Key>] {
        self.find_binding(command)
            .map_or(&[], |binding| &binding.sequences)
    }

    /// The same as the operator writes them.
    pub fn sequence_texts(&self, command: Command) -> Vec<String> {
        self.sequences(command)
            .iter()
            .map(|keys| format_sequence(keys))
            .collect()
    }

    /// The same in one text; two blanks where one would be taken for part of a
    /// sequence.
    pub fn joined_sequences(&self, command: Command) -> String {
        let texts = self.sequence_texts(command);
        let blanks = texts.iter().any(|text| text.contains(' '));
        texts.join(if blanks { "  " } else { " " })
    }

    /// What to press for a command, in a sentence. One without a key is in the
    /// palette.
    pub fn key_hint(&self, command: Command) -> String {
        let first = |command| {
            self.sequences(command)
                .first()
                .map(|keys| format_sequence(keys))
        };
        let id = command::spec_of(command).id;
        first(command).unwrap_or_else(|| match first(Command::Palette) {
            Some(palette) => format!("{palette}{id}"),
            None => format!("the command {id}"),
        })
    }

    /// What leaves the fleet, as a key to show.
    pub fn exit_key_text(&self) -> String {
        match self.sequences(Command::GoBack).first() {
            Some(keys) if keys.as_slice() != [Key::from_code(KeyCode::Esc)] => {
                format_sequence(keys)
            }
            _ => self.key_hint(Command::Quit),
        }
    }

    /// Whether that is the key.
    pub fn is_exit_key(&self, key: Key) -> bool {
        let first = self.sequences(Command::GoBack).first();
        first.is_some_and(|keys| keys.last() == Some(&key))
    }

    /// Whether the operator changed a command's keys.
    pub fn is_overridden(&self, command: Command) -> bool {
        self.find_binding(command)
            .is_some_and(|binding| binding.sequences != binding.default_sequences)
    }

    /// What `keys` mean in `context`. A command of the context itself hides one
    /// that holds everywhere.
    pub fn resolve(&self, context: KeyContext, keys: &[Key]) -> KeyMeaning {
        let mut is_prefix = false;
        for (command, sequence) in self.sequences_in_context(context) {
            if sequence == keys {
                return KeyMeaning::Command(command);
            }
            is_prefix |= sequence.starts_with(keys);
        }
        match is_prefix {
            true => KeyMeaning::Prefix,
            false => KeyMeaning::Unbound,
        }
    }

    /// What can follow `keys` in `context`: the rest of the sequence, and what it
    /// means.
    pub fn continuations(&self, context: KeyContext, keys: &[Key]) -> Vec<(String, Command)> {
        let mut found: Vec<(String, Command)> = Vec::new();
        for (command, sequence) in self.sequences_in_context(context) {
            if let Some(rest) = sequence.strip_prefix(keys).filter(|rest| !rest.is_empty()) {
                let rest = format_sequence(rest);
                if !found.iter().any(|(other, _)| *other == rest) {
                    found.push((rest, command));
                }
            }
        }
        found
    }

    fn sequences_in_context(&self, context: KeyContext) -> impl Iterator<Item = (Command, &[Key])> {
        [context, KeyContext::Any]
            .into_iter()
            .flat_map(move |wanted| {
                let holds = self
                    .bindings
                    .iter()
                    .filter(move |it| it.contexts.contains(&wanted));
                holds.flat_map(|it| {
                    it.sequences
                        .iter()
                        .map(|keys| (it.command, keys.as_slice()))
                })
            })
    }
}

impl KeyBinding {
    /// Sequences of two commands that cannot both be reached. What the defaults
    /// have in common is meant so.
    fn find_overlap<'a>(&'a self, other: &'a KeyBinding) -> Option<(&'a Vec<Key>, &'a Vec<Key>)> {
        let everywhere = |it: &KeyBinding| it.contexts.contains(&KeyContext::Any);
        let common = |context| other.contexts.contains(context);
        let meet = everywhere(self) || everywhere(other) || self.contexts.iter().any(common);
        // At a plan it answers a question while one is asked, and leads back else.
        let answers = |one: &KeyBinding, two: &KeyBinding| {
            (one.command, two.command) == (Command::KeepHiddenAgents, Command::GoBack)
        };
        if !meet {
            return None;
        }
        let pairs = self
            .sequences
            .iter()
            .flat_map(|own| other.sequences.iter().map(move |keys| (own, keys)));
        pairs
            .filter(|(own, keys)| own.starts_with(keys) || keys.starts_with(own))
            .filter(|(own, keys)| {
                !(self.default_sequences.contains(own) && other.default_sequences.contains(keys))
            })
            .find(|(own, keys)| own != keys || !(answers(self, other) || answers(other, self)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(context: KeyContext, text: &str) -> KeyMeaning {
        Keymap::default().resolve(context, &parse_sequence(text).unwrap())
    }

    fn patch(command: Command, keys: &[&str]) -> (Command, Vec<Vec<Key>>) {
        let keys = keys.iter().map(|text| parse_sequence(text).unwrap());
        (command, keys.collect())
    }

    /// The commands that keep their defaults because of a clash, and with whom.
    fn conflicts_of(patches: &[(Command, &[&str])]) -> Vec<(Command, Command)> {
        let patches = patches.iter().map(|(command, keys)| patch(*command, keys));
        let (_, clashes) = Keymap::with_overrides(patches.collect());
        clashes
            .iter()
            .map(|it| (it.command, it.other_command))
            .collect()
    }

    #[test]
    fn default_keys_round_trip_and_are_allowed() {
        for spec in COMMAND_TABLE {
            let mut all = Vec::new();
            for text in spec.keys {
                let keys =
                    parse_sequence(text).unwrap_or_else(|it| panic!("{it:?} of {}", spec.id));
                assert_eq!(format_sequence(&keys), *text, "{}", spec.id);
                assert_eq!(check_sequence(spec.command, &keys), Ok(()), "{}", spec.id);
                all.push(keys);
            }
            assert_eq!(check_sequences(spec.command, &all), Ok(()), "{}", spec.id);
        }
    }

    #[test]
    fn context_binding_shadows_global_binding() {
        assert_eq!(of(KeyContext::Fleet, "g"), KeyMeaning::Prefix);
        assert_eq!(
            of(KeyContext::Fleet, "gg"),
            KeyMeaning::Command(Command::Top)
        );
        assert_eq!(
            of(KeyContext::Fleet, "X"),
            KeyMeaning::Command(Command::PlanReset)
        );
        assert_eq!(
            of(KeyContext::Fleet, "^c"),
            KeyMeaning::Command(Command::Quit)
        );
        assert_eq!(
            of(KeyContext::Plan, "y"),
            KeyMeaning::Command(Command::ConfirmPlan)
        );
        assert_eq!(of(KeyContext::Fleet, "y"), KeyMeaning::Prefix);
        assert_eq!(
            of(KeyContext::Fleet, "yn"),
            KeyMeaning::Command(Command::CopyName)
        );
        assert_eq!(of(KeyContext::Plan, "Enter"), KeyMeaning::Unbound);
        assert_eq!(of(KeyContext::Plan, "Space"), KeyMeaning::Unbound);
    }

    #[test]
    fn sequences_with_key_names_are_written_with_blanks() {
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
            let parsed = parse_sequence(text).unwrap();
            assert_eq!(
                (parsed.len(), format_sequence(&parsed).as_str()),
                (keys, text)
            );
        }
        assert_eq!(parse_sequence("g g"), parse_sequence("gg"));
        assert_eq!(
            parse_sequence("^R"),
            parse_sequence("^r"),
            "Control knows no capitals"
        );
    }

    #[test]
    fn invalid_key_suggests_a_correction() {
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
            let fault = parse_sequence(text).unwrap_err();
            let told = fault.hint.unwrap_or_default();
            assert!(told.contains(hint), "{text:?}: {told}");
        }
        assert!(parse_sequence("a b c d").is_err());
    }

    #[test]
    fn impossible_keys_are_rejected() {
        for (command, text) in [
            (Command::PlanReset, "^s"),
            (Command::PlanReset, "x ^a"),
            (Command::PlanReset, "F11"),
            (Command::PageUp, "^b"),
            (Command::GoLog, "Esc"),
            (Command::GoBack, "g Esc"),
            (Command::PlanReset, "y"),
            (Command::PlanUndo, "gy"),
            (Command::UndoAppend, "y"),
            (Command::UndoAppend, "Enter"),
            (Command::UndoOverwrite, "Space"),
            (Command::KeepHiddenAgents, "Enter"),
            (Command::ConfirmPlan, "Enter"),
            (Command::ConfirmPlan, "Y"),
        ] {
            let keys = parse_sequence(text).unwrap();
            let wrong = check_sequence(command, &keys).and(check_sequences(command, &[keys]));
            assert!(wrong.is_err(), "{text} of {command:?}");
        }
        assert!(check_sequences(Command::ConfirmPlan, &[]).is_err());
        assert!(check_sequences(Command::Quit, &[]).is_err());
        assert!(check_sequences(Command::Help, &[]).is_err());
        assert_eq!(check_sequences(Command::PlanReset, &[]), Ok(()));
        let both = [
            parse_sequence("PgUp").unwrap(),
            parse_sequence("^b").unwrap(),
        ];
        assert_eq!(check_sequences(Command::PageUp, &both), Ok(()));
    }

    #[test]
    fn key_list_replaces_defaults_and_empty_unbinds() {
        let (keymap, clashes) = Keymap::with_overrides(vec![
            patch(Command::PlanReset, &["F5", "Q"]),
            patch(Command::GoLog, &[]),
            patch(Command::GoBack, &["b"]),
        ]);
        assert_eq!(clashes, []);
        let meaning =
            |text: &str| keymap.resolve(KeyContext::Fleet, &parse_sequence(text).unwrap());
        assert_eq!(meaning("Q"), KeyMeaning::Command(Command::PlanReset));
        assert_eq!(meaning("X"), KeyMeaning::Unbound);
        assert_eq!(meaning("7"), KeyMeaning::Unbound);
        assert_eq!(meaning("Esc"), KeyMeaning::Command(Command::GoBack));
        assert_eq!(keymap.key_hint(Command::PlanReset), "F5");
        assert_eq!(keymap.key_hint(Command::GoLog), ":log");
        assert_eq!(keymap.exit_key_text(), "b");
        assert!(
            keymap.is_overridden(Command::GoLog) && !keymap.is_overridden(Command::ChooseSortOrder)
        );
    }

    #[test]
    fn conflicts_are_found_in_shared_contexts() {
        use Command::*;
        assert_eq!(
            conflicts_of(&[(PlanReset, &["d"])]),
            [(PlanReset, OpenDiff)]
        );
        assert_eq!(
            conflicts_of(&[(PlanReset, &["g"])]),
            [(PlanReset, Top)],
            "g hides gg"
        );
        assert_eq!(
            conflicts_of(&[(PlanReset, &["jj"])]),
            [(PlanReset, Down)],
            "j hides jj"
        );
        assert_eq!(
            conflicts_of(&[(PlanReset, &["7"])]),
            [(PlanReset, GoLog)],
            "everywhere"
        );
        assert_eq!(conflicts_of(&[(ToggleWrap, &["v"])]), [], "another screen");
        assert_eq!(
            conflicts_of(&[(PlanReset, &["d"]), (OpenDiff, &["X"])]),
            [],
            "exchanged"
        );
        assert_eq!(
            conflicts_of(&[(PlanReset, &["Space r"]), (ToggleMark, &["m"])]),
            []
        );
        assert_eq!(
            conflicts_of(&[(KeepHiddenAgents, &["q"])]),
            [],
            "it leads back else"
        );
        // The later of two that were changed gives way, unless the other has to.
        assert_eq!(
            conflicts_of(&[(ToggleMark, &["m"]), (ChooseSortOrder, &["m"])]),
            [(ChooseSortOrder, ToggleMark)]
        );
        assert_eq!(
            conflicts_of(&[(PlanReset, &["d"]), (ChooseSortOrder, &["d"])]),
            [(ChooseSortOrder, OpenDiff), (PlanReset, OpenDiff)]
        );
        // What goes back to its default may be in another's way then.
        assert_eq!(
            conflicts_of(&[
                (PlanReset, &["d"]),
                (OpenDiff, &["j"]),
                (ChooseSortOrder, &["X"])
            ]),
            [
                (OpenDiff, Down),
                (PlanReset, OpenDiff),
                (ChooseSortOrder, PlanReset)
            ]
        );
    }

    #[test]
    fn keys_following_a_prefix_are_listed() {
        let (keymap, _) = Keymap::with_overrides(vec![patch(Command::GoLog, &["g Home", "gl"])]);
        let following = keymap.continuations(KeyContext::Fleet, &parse_sequence("g").unwrap());
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
