//! Display of untrusted text.

use memory_shepherd::base::untrusted::{self, RevealOptions, RevealPurpose};
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// Fuzzes untrusted text. The first byte is the view: bit 0 a diff, bit 1 marks white
/// space, the rest the number of cells.
pub fn untrusted(bytes: &[u8]) {
    let (first, text) = bytes.split_first().unwrap_or((&0, b""));
    let prose = first & 1 == 0;
    let view = RevealOptions {
        purpose: if prose {
            RevealPurpose::Prose
        } else {
            RevealPurpose::Diff
        },
        marks_whitespace: first & 2 != 0,
        max_cells: if first >> 2 == 63 {
            4096
        } else {
            usize::from(first >> 2)
        },
    };
    let mut tokens = untrusted::reveal_line(text, view);
    assert!(
        tokens
            .windows(2)
            .all(|pair| pair[0].is_mark != pair[1].is_mark)
    );
    for token in &tokens {
        assert_harmless(&token.text, prose && !token.is_mark);
    }
    let counted = |last: &untrusted::VisibleToken| last.is_mark && last.text.contains('…');
    if let Some(last) = tokens.last_mut().filter(|last| counted(last)) {
        last.text.truncate(last.text.rfind('…').unwrap_or_default());
    }
    let cells = tokens.iter().flat_map(|token| token.text.graphemes(true));
    assert!(cells.map(UnicodeWidthStr::width).sum::<usize>() <= view.max_cells);

    let line = untrusted::visible_line(text);
    assert_harmless(&line, true);
    let lines = untrusted::visible_text(text);
    let feeds = |text: &[u8]| text.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(feeds(lines.as_bytes()), feeds(text));
    for line in lines.split('\n') {
        assert_harmless(line, true);
    }

    let hidden = untrusted::count_hidden(text);
    let chunks = text.utf8_chunks().map(|chunk| chunk.invalid().len() as u64);
    assert_eq!(hidden.invalid, chunks.sum::<u64>());
    assert!(hidden.escapes <= hidden.controls);
    untrusted::has_mixed_scripts(text);

    let string = String::from_utf8_lossy(text);
    let json = serde_json::to_string(&string).unwrap();
    let ascii = untrusted::escape_json_to_ascii(&json);
    assert!(
        ascii.bytes().all(|byte| matches!(byte, b' '..=b'~')),
        "{ascii}"
    );
    assert_eq!(serde_json::from_str::<String>(&ascii).unwrap(), string);
}

/// Asserts that no character of a shown text controls a terminal, reverses text, or is
/// invisible. `prose` may contain the characters that join emoji.
fn assert_harmless(text: &str, prose: bool) {
    let odd = |c: char| match c {
        '\u{200D}' | '\u{FE0F}' => !prose,
        '\0'..='\x1F' | '\x7F'..='\u{9F}' | '\u{AD}' | '\u{34F}' | '\u{61C}' => true,
        '\u{115F}'..='\u{1160}' | '\u{17B4}'..='\u{17B5}' | '\u{180B}'..='\u{180F}' => {
            // A vowel of Hangul that joins the consonant before it.
            c != '\u{1160}'
        }
        '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' => true,
        '\u{2800}' | '\u{3164}' | '\u{FFA0}' | '\u{FEFF}' => true,
        '\u{E000}'..='\u{F8FF}' | '\u{FE00}'..='\u{FE0E}' | '\u{FFF0}'..='\u{FFFB}' => true,
        '\u{E0000}'..='\u{10FFFF}' => true,
        c => c != ' ' && c.is_whitespace(),
    };
    assert!(!text.contains(odd), "{text:?}");
}
