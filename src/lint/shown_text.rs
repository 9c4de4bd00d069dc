//! A text as people see it: without the characters that do not show, which may divide a word.

use std::borrow::Cow;
use std::ops::Range;

use icu_properties::CodePointSetData;
use icu_properties::props::DefaultIgnorableCodePoint;

/// The character ESC, which begins a control sequence.
const ESCAPE: u8 = 27;

/// The character BEL, which ends a control string.
const BELL: u8 = 7;

/// The characters CAN and SUB, which cancel a control sequence.
const CANCEL: u8 = 24;
const SUBSTITUTE: u8 = 26;

/// A text without characters that do not show.
pub(super) struct ShownText<'t> {
    pub bytes: Cow<'t, [u8]>,
    /// Where bytes were left out: the offset of the next byte here, and in the text.
    gaps: Vec<(usize, usize)>,
}

impl<'t> ShownText<'t> {
    /// Leaves out control characters, control sequences and characters that Unicode ignores.
    ///
    /// NUL is one of them, so that UTF-16 is read as well where its characters are ASCII.
    pub fn new(text: &'t [u8]) -> ShownText<'t> {
        let is_shown = |byte: &u8| matches!(byte, b' '..=b'~' | b'\n' | b'\r' | b'\t');
        let mut bytes = Vec::new();
        let mut gaps: Vec<(usize, usize)> = Vec::new();
        let mut at = text.iter().take_while(|byte| is_shown(byte)).count();
        if at < text.len() {
            bytes.reserve(text.len());
            bytes.extend_from_slice(&text[..at]);
        }
        while at < text.len() {
            let hidden = hidden_length(&text[at..]);
            if hidden > 0 {
                at += hidden;
                let next = (bytes.len(), at);
                match gaps.last_mut() {
                    Some(last) if last.0 == next.0 => *last = next,
                    _ => gaps.push(next),
                }
            } else {
                bytes.push(text[at]);
                at += 1;
            }
        }
        let bytes = if gaps.is_empty() {
            Cow::Borrowed(text)
        } else {
            Cow::Owned(bytes)
        };
        ShownText { bytes, gaps }
    }

    /// Returns whether bytes were left out.
    pub fn has_gaps(&self) -> bool {
        !self.gaps.is_empty()
    }

    /// Returns the range of the text that holds a range of the shown bytes.
    pub fn original_range(&self, range: &Range<usize>) -> Range<usize> {
        let original = |place: usize| {
            let gap = self.gaps.partition_point(|(shown, _)| *shown <= place);
            match gap.checked_sub(1).map(|it| self.gaps[it]) {
                Some((shown, text)) => text + (place - shown),
                None => place,
            }
        };
        let end = range
            .end
            .checked_sub(1)
            .map_or(0, |last| original(last) + 1);
        original(range.start)..end
    }

    /// Returns the range of the shown bytes among those of a range of the text; an empty one where
    /// none of them shows.
    pub fn shown_range(&self, range: &Range<usize>) -> Range<usize> {
        let shown = |place: usize| {
            let next = self.gaps.partition_point(|(_, text)| *text <= place);
            let shown = match next.checked_sub(1).map(|it| self.gaps[it]) {
                Some((shown, text)) => shown + (place - text),
                None => place,
            };
            // A place within a gap is that of the byte behind it.
            self.gaps.get(next).map_or(shown, |gap| shown.min(gap.0))
        };
        shown(range.start)..shown(range.end)
    }
}

/// Returns the length of the hidden character or control sequence at the beginning; 0 if there is
/// none.
fn hidden_length(text: &[u8]) -> usize {
    match text {
        [b'\t' | b'\n' | b'\r' | b' '..=b'~', ..] => 0,
        [ESCAPE, sequence @ ..] => 1 + escaped_length(sequence),
        [0..=0x7F, ..] => 1,
        // U+0080 to U+009F stand for ESC and a character from @ to _.
        [0xC2, control @ 0x80..=0x9F, rest @ ..] => 2 + sequence_length(control - 0x40, rest),
        _ => {
            let chunk = text[..text.len().min(4)].utf8_chunks().next();
            let first = chunk.and_then(|it| it.valid().chars().next());
            let ignorable = CodePointSetData::new::<DefaultIgnorableCodePoint>();
            let is_hidden = |c: &char| c.is_control() || ignorable.contains(*c);
            first.filter(is_hidden).map_or(0, char::len_utf8)
        }
    }
}

/// Returns the length of the rest of a control sequence behind ESC; 0 where there is none. Of two
/// characters, only ESC is hidden, because many terminals show the other one.
fn escaped_length(text: &[u8]) -> usize {
    match text {
        [b' '..=b'/', ..] => intermediate_length(text),
        [kind @ (b'[' | b']' | b'P' | b'X' | b'^' | b'_'), rest @ ..] => {
            1 + sequence_length(*kind, rest)
        }
        _ => 0,
    }
}

/// Returns the length of a control sequence of this kind behind its beginning. It ends as terminals
/// end it, however long it is, and at the end of the line. What cancels it is not part of it, so
/// that each byte belongs to one sequence at most.
fn sequence_length(kind: u8, text: &[u8]) -> usize {
    match kind {
        b'[' => parameter_length(text),
        b']' | b'P' | b'X' | b'^' | b'_' => string_length(text),
        _ => 0,
    }
}

/// Returns the length of intermediate bytes and a final one; 0 where another byte follows.
fn intermediate_length(text: &[u8]) -> usize {
    let end = text.iter().position(|byte| !matches!(byte, b' '..=b'/'));
    let end = end.filter(|end| matches!(text[*end], b'0'..=b'~'));
    end.map_or(0, |end| end + 1)
}

/// Returns the length of parameters and a final byte. Other control characters within them are
/// executed, and do not end them.
fn parameter_length(text: &[u8]) -> usize {
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'@'..=b'~' | &CANCEL | &SUBSTITUTE => return at + 1,
            b'\n' | b'\r' | &ESCAPE | 0x80.. => return at,
            _ => {}
        }
    }
    text.len()
}

/// Returns the length of a control string, such as a title of a window, with its end.
fn string_length(text: &[u8]) -> usize {
    for (at, byte) in text.iter().enumerate() {
        match (byte, text.get(at + 1)) {
            (&BELL | &CANCEL | &SUBSTITUTE, _) => return at + 1,
            (&ESCAPE, Some(b'\\')) | (0xC2, Some(0x9C)) => return at + 2,
            (b'\n' | b'\r' | &ESCAPE, _) | (0xC2, Some(0x80..=0x9F)) => return at,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_left_out_and_places_kept() {
        let text = "a\u{200B}\u{AD}b\x1B[31mc\0dé\u{E0041}e".as_bytes();
        let shown = ShownText::new(text);
        assert_eq!(*shown.bytes, *"abcdée".as_bytes());
        let original = |range| &text[shown.original_range(&range)];
        assert_eq!(original(0..1), b"a");
        assert_eq!(original(1..2), b"b");
        assert_eq!(original(0..2), "a\u{200B}\u{AD}b".as_bytes());
        assert_eq!(original(2..4), b"c\0d");
        assert_eq!(original(6..7), b"e");
        assert_eq!(original(0..7), text);
        let shown_range = |range| shown.shown_range(&range);
        assert_eq!(shown_range(0..text.len()), 0..7);
        assert_eq!(shown_range(0..3), 0..1, "an end within a gap");
        assert_eq!(shown_range(1..6), 1..1, "a gap alone");
        assert_eq!(shown_range(2..12), 1..2);
    }

    #[test]
    fn text_without_hidden_characters_is_not_copied() {
        for text in ["# Rules\r\n\tüé \u{4E2D}\n", "plain", ""] {
            let shown = ShownText::new(text.as_bytes());
            assert!(matches!(shown.bytes, Cow::Borrowed(_)) && !shown.has_gaps());
            assert_eq!(shown.shown_range(&(0..text.len())), 0..text.len());
        }
    }

    #[test]
    fn sequences_end_as_terminals_end_them() {
        let shown = |text: &[u8]| ShownText::new(text).bytes.into_owned();
        assert_eq!(shown(b"\x1B[\xFF\xC3a\x1B"), b"\xFF\xC3a");
        assert_eq!(shown(b"\x1B]0;title\nand text"), b"\nand text");
        assert_eq!(shown(b"\x1B[31\nm"), b"\nm");
        assert_eq!(shown(b"\x1BP\x1B]2;a\x07b"), b"b", "cancelled by another");
        assert_eq!(shown(b"\x1B(\xFF"), b"(\xFF");
    }

    #[test]
    fn control_sequences_of_each_kind_are_hidden() {
        for sequence in [
            "\x1B[0;31m",
            "\u{9B}31m",
            "\x1B(B",
            "\x1B c",
            "\x1B]0;title\x07",
            "\x1B]8;;http://a.example\x1B\\",
            "\u{9D}0;title\u{9C}",
            "\x1BPq\x1B\\",
            "\x1BXa\x1B\\",
            "\x1B^a\x1B\\",
            "\x1B_a\x1B\\",
            "\x1B",
            "\x1B[0;1;38;2;255;255;255;48;2;255;255;255m",
            "\x1B]0;x\x18",
            "\x1B[31\x18",
            "\x1B]0;\x1B[31m\x07",
            "\x1B[3\x1B[31m",
            "\x1B[3\x071m",
            &format!("\x1B]8;;https://a.example/{}\x1B\\", "p".repeat(70_000)),
            &format!("\x1B[{}m", "1;".repeat(2000)),
        ] {
            let text = format!("a{sequence}\nb");
            let shown = ShownText::new(text.as_bytes());
            assert_eq!(*shown.bytes, *b"a\nb", "{sequence:?}");
        }
    }
}
