//! Keys: how they are written, and what a sequence of them means where. Built
//! from the command table and nothing else.

use std::fmt;

use super::command::{Command, Context, TABLE};

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

/// Reads a sequence as the table writes it: `X`, `^c`, `gg`, `PgDn`, `S-Tab`.
pub fn parse(text: &str) -> Option<Vec<Key>> {
    if let Some((_, code)) = NAMED.iter().find(|(name, _)| *name == text) {
        return Some(vec![Key::plain(*code)]);
    }
    if let Some(number) = text
        .strip_prefix('F')
        .and_then(|number| number.parse().ok())
    {
        return Some(vec![Key::plain(Code::F(number))]);
    }
    let mut keys = Vec::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        keys.push(match c {
            '^' => Key {
                code: Code::Char(chars.next()?),
                ctrl: true,
            },
            c => Key::plain(Code::Char(c)),
        });
    }
    (!keys.is_empty()).then_some(keys)
}

/// What a sequence of keys means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// This command.
    Command(Command),
    /// The beginning of at least one longer sequence.
    Prefix,
    /// Nothing.
    Nothing,
}

/// What `keys` mean in `context`. A command of the context itself hides one
/// that holds everywhere.
pub fn meaning(context: Context, keys: &[Key]) -> Meaning {
    let mut prefix = false;
    for wanted in [context, Context::Any] {
        for spec in TABLE.iter().filter(|spec| spec.contexts.contains(&wanted)) {
            for sequence in spec.keys.iter().filter_map(|text| parse(text)) {
                if sequence == keys {
                    return Meaning::Command(spec.command);
                }
                prefix |= sequence.starts_with(keys);
            }
        }
    }
    match prefix {
        true => Meaning::Prefix,
        false => Meaning::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(context: Context, text: &str) -> Meaning {
        meaning(context, &parse(text).unwrap())
    }

    #[test]
    fn every_key_of_the_table_can_be_read_and_written() {
        for spec in TABLE {
            for text in spec.keys {
                let keys = parse(text).unwrap_or_else(|| panic!("{text} of {}", spec.id));
                let again: String = keys.iter().map(Key::to_string).collect();
                assert_eq!(again, *text, "{}", spec.id);
            }
        }
    }

    #[test]
    fn a_context_hides_what_holds_everywhere() {
        assert_eq!(of(Context::Fleet, "g"), Meaning::Prefix);
        assert_eq!(of(Context::Fleet, "gg"), Meaning::Command(Command::Top));
        assert_eq!(
            of(Context::Fleet, "X"),
            Meaning::Command(Command::PlanReset)
        );
        assert_eq!(of(Context::Fleet, "^c"), Meaning::Command(Command::Quit));
        assert_eq!(of(Context::Plan, "y"), Meaning::Command(Command::Confirm));
        assert_eq!(of(Context::Fleet, "y"), Meaning::Prefix);
        assert_eq!(
            of(Context::Fleet, "yn"),
            Meaning::Command(Command::CopyName)
        );
        assert_eq!(of(Context::Plan, "Enter"), Meaning::Nothing);
        assert_eq!(of(Context::Plan, "Space"), Meaning::Nothing);
    }
}
