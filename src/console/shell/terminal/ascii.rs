//! Converts screens to ASCII, for a locale without UTF-8.

use ratatui::buffer::{Buffer, Cell};

/// ASCII substitutes for the program's own signs, wherever they occur. In an agent's text the marks
/// of revealed characters stay recognisable by their style, however they are spelt.
const ASCII_SUBSTITUTES: &[(char, char)] = &[
    ('─', '-'),
    ('│', '|'),
    ('═', '='),
    ('▲', '^'),
    ('✓', '+'),
    ('·', '.'),
    ('…', '~'),
    ('⋯', '~'),
    ('→', '>'),
    ('‹', '<'),
    ('›', '>'),
    ('◌', 'o'),
    ('•', '*'),
    ('░', '.'),
    ('▁', '.'),
    ('▂', ':'),
    ('▃', '-'),
    ('▄', '='),
    ('▅', '+'),
    ('▆', '*'),
    ('▇', '#'),
    ('█', '@'),
];

/// Replaces the signs of a screen by ASCII, in as many cells as before: the program's own by
/// similar ones, others by question marks.
pub(super) fn substitute_ascii(screen: &mut Buffer, width: impl Fn(&Cell) -> u16) {
    let area = screen.area;
    for y in area.rows().map(|row| row.y) {
        for x in area.left()..area.right() {
            let cell = &screen[(x, y)];
            if cell.symbol().is_ascii() {
                continue;
            }
            let sign = ascii_substitute(cell.symbol());
            let (style, end) = (cell.style(), (x + width(cell)).min(area.right()));
            for covered in x..end {
                screen[(covered, y)].set_char(sign).set_style(style);
            }
        }
    }
}

fn ascii_substitute(symbol: &str) -> char {
    let mut chars = symbol.chars();
    match (chars.next(), chars.next()) {
        // The Unicode picture of a control character, which reads as in `^[`.
        (Some('\u{2400}'..='\u{2421}'), None) => '^',
        (Some(own), None) => {
            let found = ASCII_SUBSTITUTES.iter().find(|(sign, _)| *sign == own);
            found.map_or('?', |(_, ascii)| *ascii)
        }
        _ => '?',
    }
}
