//! Joins the bytes of a key or a paste that a slow line delivers one by one. A terminal sends an
//! arrow key as Esc, `[` and a letter; the terminal library takes an Esc without more bytes for the
//! key Esc, and the rest for keys of their own.
//!
//! Only what follows an Esc is affected. Esc itself is answered at once until the line has split a
//! key for the first time; from then on it is answered [`MAX_BYTE_GAP`] later. `[` and `O` wait that
//! long where they follow an Esc within [`MAX_BYTE_GAP`], and so does what may continue them. No
//! other key waits, but those right behind a paste: an end mark within the pasted text must not make
//! keys of its rest.

use std::time::Duration;

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// How long the next byte of a key may take.
pub(super) const MAX_BYTE_GAP: Duration = Duration::from_millis(50);

/// How long the next byte of a paste may take. Until the paste ends, its text must not act as keys;
/// but its end mark may be lost, since the terminal library drops one that arrives whole.
const MAX_PASTE_GAP: Duration = Duration::from_millis(100);

/// The longest sequence of a key, without its Esc.
const MAX_SEQUENCE_CHARS: usize = 12;

/// What a terminal sends before a paste, without its Esc, and after it.
const PASTE_START: &str = "[200~";
const PASTE_END: &str = "\u{1b}[201~";

/// Joins split keys and pastes; forwards all other events as they are.
#[derive(Default)]
pub(super) struct SplitKeyJoiner {
    pending: Pending,
    /// Whether the line has split a key before.
    has_split_key: bool,
}

/// What has begun and is not complete.
#[derive(Default)]
enum Pending {
    #[default]
    Nothing,
    /// An Esc, and the characters after it. `held` are the events that are not forwarded yet.
    Sequence {
        held: Vec<Event>,
        text: String,
    },
    Paste(String),
    /// The keys that follow a paste without a gap.
    AfterPaste(Vec<KeyEvent>),
}

impl SplitKeyJoiner {
    /// Returns how long to wait for the next event; `None` if nothing has begun.
    pub(super) fn max_wait(&self) -> Option<Duration> {
        match self.pending {
            Pending::Nothing => None,
            Pending::Sequence { .. } | Pending::AfterPaste(_) => Some(MAX_BYTE_GAP),
            Pending::Paste(_) => Some(MAX_PASTE_GAP),
        }
    }

    /// Accepts the next event, or `None` if none has come within the wait. Returns the events to
    /// forward.
    pub(super) fn accept(&mut self, event: Option<Event>) -> Vec<Event> {
        let pending = std::mem::take(&mut self.pending);
        match (pending, event) {
            (Pending::Nothing, None) => Vec::new(),
            (Pending::Nothing, Some(event)) => self.begin(Vec::new(), event),
            (Pending::Sequence { held, .. }, None) => held,
            (Pending::Sequence { held, text }, Some(event)) => {
                self.continue_sequence(held, text, event)
            }
            (Pending::Paste(text), None) => vec![Event::Paste(text)],
            (Pending::Paste(text), Some(event)) => self.continue_paste(text, event),
            (Pending::AfterPaste(keys), None) => rest_of_paste(keys),
            (Pending::AfterPaste(keys), Some(event)) => self.continue_after_paste(keys, event),
        }
    }

    /// Forwards `events`, then `event` unless it is an Esc that has to wait.
    fn begin(&mut self, mut events: Vec<Event>, event: Event) -> Vec<Event> {
        let mut held = Vec::new();
        if matches!(event, Event::Paste(_)) {
            self.pending = Pending::AfterPaste(Vec::new());
        }
        let is_escape = is_escape(&event);
        if is_escape && self.has_split_key {
            held.push(event);
        } else {
            events.push(event);
        }
        if is_escape {
            let text = String::new();
            self.pending = Pending::Sequence { held, text };
        }
        events
    }

    fn continue_sequence(
        &mut self,
        mut held: Vec<Event>,
        mut text: String,
        event: Event,
    ) -> Vec<Event> {
        let Some(character) = plain_char(&event) else {
            return self.begin(held, event);
        };
        text.push(character);
        held.push(event);
        match sequence_end(&text) {
            SequenceEnd::NoKey => held,
            SequenceEnd::Open => {
                self.pending = Pending::Sequence { held, text };
                Vec::new()
            }
            SequenceEnd::Complete => {
                self.has_split_key = true;
                if text == PASTE_START {
                    self.pending = Pending::Paste(String::new());
                }
                // A key that the console does not know does nothing.
                decode_key(&text).map(Event::Key).into_iter().collect()
            }
        }
    }

    fn continue_paste(&mut self, mut text: String, event: Event) -> Vec<Event> {
        let mut others = Vec::new();
        match event {
            Event::Paste(part) => text.push_str(&part),
            Event::Key(key) => text.extend(pasted_char(key)),
            event => others.push(event),
        }
        if let Some(content) = text.strip_suffix(PASTE_END) {
            self.pending = Pending::AfterPaste(Vec::new());
            return vec![Event::Paste(content.to_string())];
        }
        self.pending = Pending::Paste(text);
        others
    }

    fn continue_after_paste(&mut self, mut keys: Vec<KeyEvent>, event: Event) -> Vec<Event> {
        let mut forwarded = Vec::new();
        match event {
            Event::Key(key) => keys.push(key),
            Event::Paste(_) => {
                forwarded = rest_of_paste(std::mem::take(&mut keys));
                forwarded.push(event);
            }
            event => forwarded.push(event),
        }
        self.pending = Pending::AfterPaste(keys);
        forwarded
    }
}

/// Makes pasted text of the keys behind a paste. A single one is the operator's.
fn rest_of_paste(keys: Vec<KeyEvent>) -> Vec<Event> {
    match keys.as_slice() {
        [] => Vec::new(),
        [key] => vec![Event::Key(*key)],
        keys => vec![Event::Paste(
            keys.iter().copied().filter_map(pasted_char).collect(),
        )],
    }
}

/// Returns the character that a paste has sent as a key.
fn pasted_char(key: KeyEvent) -> Option<char> {
    match key.code {
        KeyCode::Char(_) if key.modifiers.contains(KeyModifiers::CONTROL) => None,
        KeyCode::Char(character) => Some(character),
        KeyCode::Enter => Some('\n'),
        KeyCode::Tab => Some('\t'),
        KeyCode::Esc => Some('\u{1b}'),
        _ => None,
    }
}

fn is_escape(event: &Event) -> bool {
    matches!(event, Event::Key(key) if key.code == KeyCode::Esc
        && key.kind != KeyEventKind::Release && key.modifiers.is_empty())
}

fn plain_char(event: &Event) -> Option<char> {
    match event {
        Event::Key(key) if (key.modifiers - KeyModifiers::SHIFT).is_empty() => key.code.as_char(),
        _ => None,
    }
}

enum SequenceEnd {
    Open,
    Complete,
    NoKey,
}

/// Judges the characters after an Esc.
fn sequence_end(sequence: &str) -> SequenceEnd {
    let mut rest = sequence.chars();
    let (Some(first), last) = (rest.next(), rest.next_back()) else {
        return SequenceEnd::Open;
    };
    match (first, last) {
        ('[' | 'O', None) => SequenceEnd::Open,
        ('[', Some('0'..='9' | ';')) if sequence.len() < MAX_SEQUENCE_CHARS => SequenceEnd::Open,
        ('[', Some('A'..='Z' | '~')) => SequenceEnd::Complete,
        ('O', Some('A'..='Z')) => SequenceEnd::Complete,
        _ => SequenceEnd::NoKey,
    }
}

/// Returns the key of a complete sequence, if it is one of the console's.
fn decode_key(sequence: &str) -> Option<KeyEvent> {
    let end = sequence.chars().next_back()?;
    let parameters = sequence.get(1..sequence.len() - 1)?;
    let (number, modifier) = parameters.split_once(';').unwrap_or((parameters, "1"));
    let modifier: u8 = modifier.parse().ok()?;
    let code = match (end, number) {
        ('A', _) => KeyCode::Up,
        ('B', _) => KeyCode::Down,
        ('C', _) => KeyCode::Right,
        ('D', _) => KeyCode::Left,
        ('H', _) | ('~', "1" | "7") => KeyCode::Home,
        ('F', _) | ('~', "4" | "8") => KeyCode::End,
        ('~', "2") => KeyCode::Insert,
        ('~', "3") => KeyCode::Delete,
        ('~', "5") => KeyCode::PageUp,
        ('~', "6") => KeyCode::PageDown,
        ('Z', _) => return Some(KeyEvent::new(KeyCode::BackTab, KeyModifiers::SHIFT)),
        ('P'..='S', _) => KeyCode::F(end as u8 - b'P' + 1),
        ('~', number) => KeyCode::F(match number.parse::<u8>().ok()? {
            number @ 11..=15 => number - 10,
            number @ 17..=21 => number - 11,
            number @ 23..=24 => number - 12,
            _ => return None,
        }),
        _ => return None,
    };
    // One more than a bit for each of Shift, Alt and Ctrl.
    let bits = modifier.saturating_sub(1);
    let mut modifiers = KeyModifiers::empty();
    modifiers.set(KeyModifiers::SHIFT, bits & 1 != 0);
    modifiers.set(KeyModifiers::ALT, bits & 2 != 0);
    modifiers.set(KeyModifiers::CONTROL, bits & 4 != 0);
    Some(KeyEvent::new(code, modifiers))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(code: KeyCode) -> Event {
        Event::Key(KeyEvent::new(code, KeyModifiers::empty()))
    }

    /// What the terminal library makes of single bytes.
    fn single_bytes(text: &str) -> Vec<Event> {
        text.chars()
            .map(|c| match c {
                '\u{1b}' => key(KeyCode::Esc),
                '\r' => key(KeyCode::Enter),
                c if c.is_uppercase() => {
                    Event::Key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::SHIFT))
                }
                c => key(KeyCode::Char(c)),
            })
            .collect()
    }

    /// Accepts the keys of `text`, then a pause; returns what is forwarded.
    fn forwarded(joiner: &mut SplitKeyJoiner, text: &str) -> Vec<Event> {
        let mut events = Vec::new();
        for event in single_bytes(text) {
            events.extend(joiner.accept(Some(event)));
        }
        while joiner.max_wait().is_some() {
            events.extend(joiner.accept(None));
        }
        events
    }

    /// A joiner of a line that has split a key.
    fn joiner_of_slow_line() -> SplitKeyJoiner {
        SplitKeyJoiner {
            has_split_key: true,
            ..SplitKeyJoiner::default()
        }
    }

    #[test]
    fn key_that_arrives_byte_by_byte_is_one_key() {
        let joined = |text: &str| forwarded(&mut joiner_of_slow_line(), text);
        assert_eq!(joined("\u{1b}[A"), [key(KeyCode::Up)]);
        assert_eq!(joined("\u{1b}OB"), [key(KeyCode::Down)]);
        assert_eq!(joined("\u{1b}[5~"), [key(KeyCode::PageUp)]);
        assert_eq!(joined("\u{1b}[15~"), [key(KeyCode::F(5))]);
        assert_eq!(joined("\u{1b}OP"), [key(KeyCode::F(1))]);
        let ctrl_up = KeyEvent::new(KeyCode::Up, KeyModifiers::CONTROL);
        assert_eq!(joined("\u{1b}[1;5A"), [Event::Key(ctrl_up)]);
        assert_eq!(
            joined("\u{1b}\u{1b}[A"),
            [key(KeyCode::Esc), key(KeyCode::Up)]
        );
        assert_eq!(joined("\u{1b}[99~"), []);
    }

    #[test]
    fn esc_waits_only_on_a_line_that_split_a_key() {
        let mut joiner = SplitKeyJoiner::default();
        let escape = || Some(key(KeyCode::Esc));
        assert_eq!(joiner.accept(escape()), [key(KeyCode::Esc)]);
        assert_eq!(joiner.accept(Some(key(KeyCode::Char('[')))), []);
        assert_eq!(forwarded(&mut joiner, "A"), [key(KeyCode::Up)]);
        assert_eq!(joiner.accept(escape()), []);
        assert_eq!(joiner.max_wait(), Some(MAX_BYTE_GAP));
        assert_eq!(joiner.accept(None), [key(KeyCode::Esc)]);
    }

    #[test]
    fn esc_and_other_keys_stay_keys_of_their_own() {
        for text in ["\u{1b}", "\u{1b}x", "\u{1b}[", "\u{1b}[x", "\u{1b}\u{1b}"] {
            for mut joiner in [SplitKeyJoiner::default(), joiner_of_slow_line()] {
                assert_eq!(forwarded(&mut joiner, text), single_bytes(text), "{text:?}");
            }
        }
        let mut joiner = joiner_of_slow_line();
        assert_eq!(joiner.accept(Some(key(KeyCode::Up))), [key(KeyCode::Up)]);
        assert_eq!(joiner.max_wait(), None);
    }

    #[test]
    fn paste_that_arrives_byte_by_byte_is_no_keys() {
        let pasted = || Event::Paste("X\n\u{1b}y".to_string());
        let mut joiner = joiner_of_slow_line();
        let text = "\u{1b}[200~X\r\u{1b}y";
        // The library drops an end mark that arrives whole.
        assert_eq!(forwarded(&mut joiner, text), [pasted()]);
        let key_after_paste = key(KeyCode::Char('j'));
        assert_eq!(
            forwarded(&mut joiner, &format!("{text}{PASTE_END}j")),
            [pasted(), key_after_paste]
        );
    }

    #[test]
    fn end_mark_within_a_paste_makes_no_keys() {
        let mut joiner = SplitKeyJoiner::default();
        let pasted = || Event::Paste("harmless".to_string());
        assert_eq!(joiner.accept(Some(pasted())), [pasted()]);
        let rest = Event::Paste("\u{1b}:q!\n".to_string());
        assert_eq!(forwarded(&mut joiner, "\u{1b}:q!\r"), [rest]);
        // After a gap, keys are keys; so is a single one without it.
        assert_eq!(forwarded(&mut joiner, "jj"), single_bytes("jj"));
        joiner.accept(Some(pasted()));
        assert_eq!(forwarded(&mut joiner, "j"), single_bytes("j"));
        // A second paste, and a resize, do not wait.
        joiner.accept(Some(pasted()));
        assert_eq!(joiner.accept(Some(pasted())), [pasted()]);
        let resize = Event::Resize(80, 24);
        assert_eq!(joiner.accept(Some(resize.clone())), [resize]);
        assert_eq!(joiner.accept(None), []);
        assert_eq!(joiner.max_wait(), None);
    }

    #[test]
    fn resize_is_forwarded_at_once() {
        let mut joiner = joiner_of_slow_line();
        let resize = || Event::Resize(80, 24);
        assert_eq!(joiner.accept(Some(key(KeyCode::Esc))), []);
        assert_eq!(joiner.accept(Some(resize())), [key(KeyCode::Esc), resize()]);
        for event in single_bytes("\u{1b}[200~X") {
            joiner.accept(Some(event));
        }
        assert_eq!(joiner.accept(Some(resize())), [resize()]);
        assert_eq!(joiner.accept(None), [Event::Paste("X".to_string())]);
    }
}
