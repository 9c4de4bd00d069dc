//! Lays out a line of the editor in rows: made visible, wrapped at blanks, and each glyph with the
//! bytes that it shows, so that cursor, selection and marks find their cells. Nothing is dropped: a
//! character that would be invisible is a glyph of its own.

use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use crate::base::untrusted::{self, RevealOptions};

/// Longest text that is taken as one grapheme cluster, so that a line of nothing but combining
/// marks takes no longer than others.
const MAX_GRAPHEME_BYTES: usize = 64;

/// Columns from which the panel is beside the text.
pub const MIN_PANEL_COLUMNS: u16 = 110;

/// Cells left of the text: a mark, and the line number.
pub const GUTTER_CELLS: usize = 7;

/// Cells of the panel and its border.
pub const PANEL_CELLS: usize = 42;

/// Returns the cells of a row of the text on a screen of this width; one more is free for the cursor.
pub fn text_width(columns: u16) -> usize {
    let panel = match columns {
        MIN_PANEL_COLUMNS.. => PANEL_CELLS,
        _ => 0,
    };
    usize::from(columns)
        .saturating_sub(GUTTER_CELLS + panel + 1)
        .max(1)
}

/// A line as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineLayout {
    text: String,
    /// What is shown, in order.
    pub glyphs: Vec<Glyph>,
    /// The glyphs of each row; at least one row.
    pub rows: Vec<Range<usize>>,
}

/// Characters that are shown together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glyph {
    text: Range<usize>,
    /// The bytes of the line that it shows.
    pub source: Range<usize>,
    /// Its cells.
    pub width: usize,
    /// Whether it stands for a character that would be invisible.
    pub is_mark: bool,
}

impl LineLayout {
    /// Lays out a line in rows of `width` cells. A blank at the end of a full row hangs behind it.
    pub fn new(line: &str, width: usize) -> LineLayout {
        let options = RevealOptions {
            max_cells: usize::MAX,
            ..RevealOptions::PROSE
        };
        let mut layout = LineLayout::default();
        for piece in untrusted::reveal_pieces(line.as_bytes(), options) {
            layout.push(&piece);
        }
        layout.wrap(width.max(1));
        layout
    }

    fn push(&mut self, piece: &untrusted::VisiblePiece) {
        let begin = self.text.len();
        self.text.push_str(&piece.text);
        let is_plain_run = piece.text.is_ascii() && piece.text.len() == piece.source.len();
        if is_plain_run && !piece.is_mark {
            self.glyphs.extend((0..piece.text.len()).map(|at| Glyph {
                text: begin + at..begin + at + 1,
                source: piece.source.start + at..piece.source.start + at + 1,
                width: 1,
                is_mark: false,
            }));
            return;
        }
        let width = piece.text.width();
        match self.glyphs.last_mut() {
            // Two regional indicators are a flag, for example.
            Some(base)
                if !base.is_mark
                    && !piece.is_mark
                    && is_grapheme(&self.text[base.text.start..]) =>
            {
                base.text.end = self.text.len();
                base.source.end = piece.source.end;
                base.width = self.text[base.text.start..].width().max(1);
            }
            // A combining mark shares the cell of its base.
            Some(base) if width == 0 => {
                base.text.end = self.text.len();
                base.source.end = piece.source.end;
            }
            _ => self.glyphs.push(Glyph {
                text: begin..self.text.len(),
                source: piece.source.clone(),
                width,
                is_mark: piece.is_mark,
            }),
        }
    }

    fn wrap(&mut self, width: usize) {
        let mut begin = 0;
        let mut used = 0;
        // The glyph behind the last blank of the row.
        let mut word = 0;
        for (index, glyph) in self.glyphs.iter().enumerate() {
            let is_blank = self.text.get(glyph.text.clone()) == Some(" ");
            if used + glyph.width > width && !is_blank && index > begin {
                let end = if word > begin { word } else { index };
                self.rows.push(begin..end);
                begin = end;
                used = self.glyphs[begin..index].iter().map(|it| it.width).sum();
            }
            used += glyph.width;
            if is_blank {
                word = index + 1;
            }
        }
        self.rows.push(begin..self.glyphs.len());
    }

    /// Returns the bytes of the line that the glyph at a byte shows; none behind the last glyph.
    pub fn glyph_range(&self, byte: usize) -> Option<Range<usize>> {
        let index = self
            .glyphs
            .partition_point(|glyph| glyph.source.end <= byte);
        self.glyphs.get(index).map(|glyph| glyph.source.clone())
    }

    /// Returns what a glyph shows.
    pub fn glyph_text(&self, glyph: &Glyph) -> &str {
        self.text.get(glyph.text.clone()).unwrap_or_default()
    }

    /// Returns the row and the column of the glyph that shows a byte of the line; behind the last
    /// glyph for the line's end.
    pub fn place_of(&self, byte: usize) -> (usize, usize) {
        let index = self
            .glyphs
            .partition_point(|glyph| glyph.source.end <= byte);
        let row = self.rows.partition_point(|row| row.end <= index);
        let row = row.min(self.rows.len() - 1);
        let before = self.glyphs.get(self.rows[row].start..index);
        let column = before.unwrap_or_default().iter().map(|it| it.width).sum();
        (row, column)
    }

    /// Returns the byte of the line whose glyph is at a row and a column; that of the row's last glyph
    /// for a column behind it, and the line's end in the last row.
    pub fn byte_at(&self, row: usize, column: usize) -> usize {
        let row = row.min(self.rows.len() - 1);
        let glyphs = self.glyphs.get(self.rows[row].clone()).unwrap_or_default();
        let mut end = 0;
        for glyph in glyphs {
            end += glyph.width;
            if column < end {
                return glyph.source.start;
            }
        }
        match glyphs.last() {
            Some(last) if row + 1 == self.rows.len() => last.source.end,
            Some(last) => last.source.start,
            None => 0,
        }
    }
}

/// Whether a text is one grapheme cluster.
fn is_grapheme(text: &str) -> bool {
    text.len() <= MAX_GRAPHEME_BYTES && text.graphemes(true).nth(1).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(line: &str, width: usize) -> Vec<String> {
        let layout = LineLayout::new(line, width);
        let text = |row: &Range<usize>| {
            let glyphs = layout.glyphs[row.clone()].iter();
            glyphs.map(|glyph| layout.glyph_text(glyph)).collect()
        };
        layout.rows.iter().map(text).collect()
    }

    #[test]
    fn line_wraps_at_blanks_and_in_long_words() {
        assert_eq!(rows("one two three", 8), ["one two ", "three"]);
        assert_eq!(rows("one two three", 7), ["one two ", "three"]);
        assert_eq!(rows("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(rows("", 3), [""]);
        assert_eq!(rows("日本語", 4), ["日本", "語"]);
    }

    #[test]
    fn hidden_characters_are_glyphs_of_their_own() {
        let line = "a\u{1b}[31m\u{202e}b\u{200b}\u{e0041}e\u{301}\t.";
        let layout = LineLayout::new(line, 200);
        let marks: Vec<&str> = layout
            .glyphs
            .iter()
            .filter(|glyph| glyph.is_mark)
            .map(|glyph| layout.glyph_text(glyph))
            .collect();
        assert_eq!(marks, ["␛", "‹U+202E›", "‹U+200B›", "‹U+E0041›"]);
        assert_eq!(layout.place_of(line.find('b').unwrap()), (0, 14));
    }

    proptest::proptest! {
        /// For any line, the glyphs show each byte once, in order, and rows cover all glyphs.
        #[test]
        fn glyphs_cover_the_line(line in "\\PC{0,40}|[a \\t\\r\u{1b}\u{200b}\u{202e}\u{301}\u{e0041}日👍]{0,60}", width in 1usize..30) {
            let layout = LineLayout::new(&line, width);
            let mut at = 0;
            for glyph in &layout.glyphs {
                proptest::prop_assert_eq!(glyph.source.start, at);
                proptest::prop_assert!(glyph.source.end > at && glyph.width > 0);
                at = glyph.source.end;
            }
            proptest::prop_assert_eq!(at, line.len());
            let mut next = 0;
            for row in &layout.rows {
                proptest::prop_assert_eq!(row.start, next);
                next = row.end;
            }
            proptest::prop_assert_eq!(next, layout.glyphs.len());
            for (byte, _) in line.char_indices() {
                let (row, column) = layout.place_of(byte);
                proptest::prop_assert!(row < layout.rows.len() && column <= line.len() * 12);
            }
        }
    }
}
