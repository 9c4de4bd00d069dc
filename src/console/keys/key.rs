//! Keys and key sequences: parses and formats them. Does not know what they do.

use std::fmt;

use unicode_width::UnicodeWidthChar;

use crate::config::closest_match;
use crate::console::preferences::setting_error::SettingError;

/// A key press, independent of the terminal library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Which key.
    pub code: KeyCode,
    /// Whether Control is held.
    pub has_ctrl: bool,
}

/// A key without its modifiers. Shift is part of the character.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyCode {
    /// A character.
    Char(char),
    /// Enter.
    Enter,
    /// Escape.
    Esc,
    /// Tab.
    Tab,
    /// Shift-Tab.
    BackTab,
    /// Backspace.
    Backspace,
    /// Delete.
    Delete,
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
    ("Del", KeyCode::Delete),
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

/// Maximum number of keys in a sequence.
const MAX_SEQUENCE_KEYS: usize = 3;

impl Key {
    /// Creates a key without modifiers.
    pub fn from_code(code: KeyCode) -> Key {
        Key {
            code,
            has_ctrl: false,
        }
    }

    /// Returns the character that the key types, if any.
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

/// Formats a sequence as the operator writes it: `gg`, `Space r`.
pub fn format_sequence(keys: &[Key]) -> String {
    let names: Vec<String> = keys.iter().map(Key::to_string).collect();
    let is_plain = keys
        .iter()
        .all(|key| !matches!(key.printable_char(), None | Some(' ')));
    names.join(if is_plain && keys.len() <= 2 { "" } else { " " })
}

/// Parses a sequence: `X`, `^c`, `PgDn`, `S-Tab`, `F5`. Blanks separate the keys of a
/// sequence; two plain characters may omit them: `Space r`, `gg`.
///
/// # Errors
/// The word that is not a key, with the closest match as a hint.
pub fn parse_sequence(text: &str) -> Result<Vec<Key>, SettingError> {
    let mut keys = Vec::new();
    for word in text.split_whitespace() {
        keys.extend(parse_word(word)?);
    }
    match keys.len() {
        0 => Err(SettingError::new(
            "empty key",
            "write Space for the space bar",
        )),
        1..=MAX_SEQUENCE_KEYS => Ok(keys),
        _ => Err(SettingError::new(
            format!("`{text}` has more than {MAX_SEQUENCE_KEYS} keys"),
            "",
        )),
    }
}

fn parse_word(word: &str) -> Result<Vec<Key>, SettingError> {
    if let Some((_, code)) = NAMED_KEYS.iter().find(|(name, _)| *name == word) {
        return Ok(vec![Key::from_code(*code)]);
    }
    let function = word.strip_prefix('F').and_then(|rest| rest.parse().ok());
    if let Some(number @ 1..=12) = function {
        return Ok(vec![Key::from_code(KeyCode::F(number))]);
    }
    let unknown = |hint: String| Err(SettingError::new(format!("`{word}` is not a key"), hint));
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
        ['^', _] => unknown("Control needs a letter: `^r`".to_string()),
        [one] if is_visible(*one) => Ok(vec![Key::from_code(KeyCode::Char(*one))]),
        [one, two] if is_visible(*one) && is_visible(*two) => Ok(vec![
            Key::from_code(KeyCode::Char(*one)),
            Key::from_code(KeyCode::Char(*two)),
        ]),
        _ => unknown(suggest_key(word)),
    }
}

/// Whether a character occupies cells, so that it can be displayed as a key.
fn is_visible(c: char) -> bool {
    c.width().is_some_and(|cells| cells > 0)
}

/// Returns a hint for a word that is not a key.
fn suggest_key(word: &str) -> String {
    let lower = word.to_lowercase();
    let starts_with_any = |words: &[&str]| words.iter().any(|it| lower.starts_with(it));
    if starts_with_any(&["ctrl", "c-", "control"]) {
        let letter = word.chars().next_back().unwrap_or('r');
        return format!("write Control as `^{}`", letter.to_lowercase());
    }
    if starts_with_any(&["alt", "a-", "m-", "meta"]) {
        return "Alt arrives as Esc and the key, so it cannot be bound".to_string();
    }
    if starts_with_any(&["f1", "f2"]) {
        return "valid function keys are F1 to F12".to_string();
    }
    let known = match lower.as_str() {
        "return" => Some("Enter"),
        "escape" => Some("Esc"),
        "pageup" => Some("PgUp"),
        "pagedown" => Some("PgDn"),
        "delete" => Some("Del"),
        "backtab" | "shift-tab" | "shift+tab" => Some("S-Tab"),
        _ => closest_match(word, NAMED_KEYS.iter().map(|(name, _)| *name)),
    };
    match known {
        Some(name) => format!("did you mean `{name}`?"),
        None => "a key is a character, `^r`, F1 to F12 or one of Enter, Esc, Tab, S-Tab, \
                 Backspace, Del, Space, Up, Down, Left, Right, PgUp, PgDn, Home, End"
            .to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            "Control ignores case"
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
            let message = fault.hint.unwrap_or_default();
            assert!(message.contains(hint), "{text:?}: {message}");
        }
        assert!(parse_sequence("a b c d").is_err());
    }
}
