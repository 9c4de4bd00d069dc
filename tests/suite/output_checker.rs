//! A checker of all output to a terminal: it knows the allowed sequences and reports
//! every other one. It also holds the payloads that try to pass it.

use proptest::prelude::*;

/// The destination of output, which decides on the allowed sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// The console's terminal.
    Screen,
    /// A terminal on which a command prints: colors, attributes, and an erased progress
    /// line.
    Colours,
    /// A pipe or a file: text.
    Plain,
}

/// Returns the disallowed parts of a byte stream: sequences that are not on the list,
/// and characters that a terminal must never receive.
pub fn unexpected_output(stream: StreamKind, bytes: &[u8]) -> Vec<String> {
    let mut found = SequenceChecker {
        stream,
        known: 0,
        found: Vec::new(),
    };
    // In one piece: a write may end inside a sequence.
    vte::Parser::new().advance(&mut found, bytes);
    // The parser skips strings that it does not support and sequences that never end.
    // Every allowed sequence begins with an escape, and nothing else does.
    let escapes = bytes.iter().filter(|byte| **byte == 0x1b).count();
    if escapes != found.known {
        found.found.push(format!(
            "{escapes} escapes, {} of known sequences",
            found.known
        ));
    }
    if std::str::from_utf8(bytes).is_err() {
        found.found.push("no UTF-8".to_string());
    }
    found.found.dedup();
    found.found
}

struct SequenceChecker {
    stream: StreamKind,
    known: usize,
    found: Vec<String>,
}

impl vte::Perform for SequenceChecker {
    fn print(&mut self, c: char) {
        if !is_harmless(c) {
            self.found.push(format!("U+{:04X}", u32::from(c)));
        }
    }

    fn execute(&mut self, byte: u8) {
        // The terminal turns a line feed into return and line feed.
        let known = match self.stream {
            StreamKind::Screen => false,
            StreamKind::Colours => matches!(byte, b'\r' | b'\n'),
            StreamKind::Plain => byte == b'\n',
        };
        if !known {
            self.found.push(format!("control {byte:02x}"));
        }
    }

    fn hook(&mut self, params: &vte::Params, _: &[u8], _: bool, action: char) {
        self.found.push(format!("DCS {params:?} {action}"));
    }

    fn osc_dispatch(&mut self, params: &[&[u8]], _: bool) {
        self.found.push(format!("OSC {params:?}"));
    }

    fn csi_dispatch(&mut self, params: &vte::Params, marks: &[u8], ignored: bool, action: char) {
        let numbers: Vec<u16> = params.iter().flatten().copied().collect();
        let listed = match (self.stream, action, marks) {
            (StreamKind::Screen | StreamKind::Colours, 'm', b"") => is_style(&numbers),
            (StreamKind::Screen | StreamKind::Colours, 'K', b"") => true,
            (StreamKind::Screen, 'H' | 'J' | 'L' | 'M' | 'r', b"") => true,
            (StreamKind::Screen, 'h' | 'l', b"?") => numbers
                .iter()
                .all(|number| matches!(number, 25 | 1049 | 2004 | 2026)),
            _ => false,
        };
        match listed && !ignored {
            true => self.known += 1,
            false => self
                .found
                .push(format!("CSI {marks:?} {numbers:?} {action}")),
        }
    }

    fn esc_dispatch(&mut self, marks: &[u8], _: bool, byte: u8) {
        self.found.push(format!("ESC {marks:?} {byte:02x}"));
    }
}

/// Colors and the five attributes in use. No text blinks or is concealed.
fn is_style(codes: &[u16]) -> bool {
    match codes {
        [] => true,
        [38 | 48, 5, _, rest @ ..] | [38 | 48, 2, _, _, _, rest @ ..] => is_style(rest),
        [
            0..=4 | 7 | 22..=24 | 27 | 30..=37 | 39..=47 | 49 | 90..=97 | 100..=107,
            rest @ ..,
        ] => is_style(rest),
        _ => false,
    }
}

/// Returns whether a character is visible and does not affect its neighbors.
fn is_harmless(c: char) -> bool {
    !c.is_control()
        && !matches!(u32::from(c),
            0xAD | 0x34F | 0x61C | 0x115F..=0x1160 | 0x17B4..=0x17B5 | 0x180B..=0x180F
            | 0x200B..=0x200F | 0x2028..=0x202E | 0x2060..=0x206F | 0x2800 | 0x3164
            | 0xE000..=0xF8FF | 0xFE00..=0xFE0F | 0xFEFF | 0xFFA0 | 0xFFF0..=0xFFFB
            | 0x1BCA0..=0x1BCA3 | 0x1D173..=0x1D17A | 0xE0000..=0x10FFFF)
}

/// All payloads: the lines of `hostile.txt`, every control character, and overlong
/// text.
pub fn all_payloads() -> Vec<Vec<u8>> {
    // Every C0, DEL and C1, raw and as UTF-8.
    let controls = (0..0x20).chain(0x7F..0xA0).filter(|byte| *byte != b'\n');
    let raw: Vec<u8> = controls.flat_map(|byte| [b'a', byte, b'b']).collect();
    let written: String = ('\u{80}'..'\u{a0}').flat_map(|c| ['a', c, 'b']).collect();
    let mut payloads = vec![raw, written.into_bytes()];
    payloads.extend(listed_payloads());
    for long in ["\u{202e}", "日", "\x1b[31m", "\u{301}"] {
        payloads.push(long.repeat(5_000).into_bytes());
    }
    payloads
}

/// The payloads of the file.
fn listed_payloads() -> impl Iterator<Item = Vec<u8>> {
    let lines = include_str!("hostile.txt").lines();
    let payload = |line: &&str| !line.is_empty() && !line.starts_with('#');
    lines.filter(payload).map(unescape)
}

fn unescape(line: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('\\') {
        bytes.extend(before.as_bytes());
        let hex = |from: &str| u32::from_str_radix(from, 16).unwrap();
        let length = match after.as_bytes()[0] {
            b'x' => {
                bytes.push(hex(&after[1..3]) as u8);
                3
            }
            b'u' => {
                let end = after.find('}').unwrap();
                let c = char::from_u32(hex(&after[2..end])).unwrap();
                bytes.extend(c.to_string().as_bytes());
                end + 1
            }
            short => {
                bytes.push(match short {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'\\' => b'\\',
                    other => panic!("\\{} in {line:?}", char::from(other)),
                });
                1
            }
        };
        rest = &after[length..];
    }
    bytes.extend(rest.as_bytes());
    bytes
}

/// Generated payloads: pieces of the listed ones, in any order and cut anywhere, with
/// arbitrary bytes between.
pub fn arbitrary_payload() -> impl Strategy<Value = Vec<u8>> {
    let listed: Vec<Vec<u8>> = listed_payloads().collect();
    let piece = prop_oneof![
        4 => (proptest::sample::select(listed), any::<proptest::sample::Index>(), 1..12_usize)
            .prop_map(|(from, at, count)| {
                let at = at.index(from.len());
                from[at..(at + count).min(from.len())].to_vec()
            }),
        2 => proptest::collection::vec(any::<u8>(), 1..6),
        // The emulator drops the replacement character.
        2 => any::<char>().prop_map(|c| c.to_string().replace('\u{fffd}', "").into_bytes()),
        1 => (0..0xa0_u32).prop_map(|c| char::from_u32(c).unwrap().to_string().into_bytes()),
        1 => Just(b"\x1b".to_vec()),
        1 => Just(b"- a note ".to_vec()),
    ];
    proptest::collection::vec(piece, 1..40).prop_map(|pieces| pieces.concat())
}

/// Returns the beginning of a payload in readable form.
pub fn excerpt(payload: &[u8]) -> String {
    let text = String::from_utf8_lossy(payload);
    let begin: String = text.chars().take(20).collect();
    format!("{begin:?}")
}

#[test]
fn unlisted_bytes_are_detected() {
    // Only sequences that the console writes as well, or harmless oddities.
    let ours = [
        "\x1b[2J",
        "\x1b[1;1H",
        "\x1b[?1049l",
        "\x1b[?2026h",
        "\x1b[31m",
    ];
    let odd = [
        "zalgo", "wide", "hangul", "日", "\u{301}", "\u{488}", " d diff", "reset", "═",
    ];
    let of_the_console = |payload: &[u8]| {
        let text = String::from_utf8_lossy(payload).into_owned();
        ours.iter().any(|begin| text.starts_with(begin))
    };
    for payload in all_payloads() {
        let text = String::from_utf8_lossy(&payload).into_owned();
        let harmless = odd.iter().any(|begin| text.starts_with(begin));
        let found = unexpected_output(StreamKind::Screen, &payload);
        assert_eq!(
            found.is_empty(),
            harmless || of_the_console(&payload),
            "{text:.60?}: {found:?}"
        );
        let found = unexpected_output(StreamKind::Plain, &payload);
        assert_eq!(found.is_empty(), harmless, "{text:.60?}: {found:?}");
    }
    let screen = |bytes| unexpected_output(StreamKind::Screen, bytes);
    assert_eq!(screen(b"\x1b[?1000h")[0], "CSI [63] [1000] h");
    assert_eq!(screen(b"\r\n"), ["control 0d", "control 0a"]);
    for bytes in ["\x1b_a", "\x1b[", "\x1b", "\x1b]0;a", "\x1b[3\x1b[m"] {
        assert!(!screen(bytes.as_bytes()).is_empty(), "{bytes:?}");
        let found = unexpected_output(StreamKind::Colours, bytes.as_bytes());
        assert!(!found.is_empty(), "{bytes:?}");
    }
    assert!(unexpected_output(StreamKind::Colours, b"\x1b[1;31mred\x1b[m\r\n").is_empty());
    assert!(!unexpected_output(StreamKind::Colours, b"\x1b[H").is_empty());
    assert!(!unexpected_output(StreamKind::Plain, b"\x1b[m").is_empty());
    assert!(!unexpected_output(StreamKind::Plain, b"a\r\n").is_empty());
}
