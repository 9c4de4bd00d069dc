//! Text of the command line: pieces with roles, tables and config diagnostics. All text that
//! agents choose is made visible here.

use std::borrow::Cow;
use std::io::{self, Write};
use std::iter::repeat_n;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use super::reveal_to_string;
use crate::base::quantity;
use crate::base::untrusted::{self, RevealOptions};
use crate::config::{Diagnostic, DiagnosticLevel};

/// Role of a piece of text; decides its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputRole {
    /// Ordinary text.
    Plain,
    /// Less important than the rest.
    Dim,
    /// A heading.
    Heading,
    /// A good state or result.
    Good,
    /// A warning.
    Warn,
    /// An error.
    Bad,
    /// A line that was added.
    Added,
    /// A line that was removed.
    Removed,
    /// Text of this program about the content: hints, hunk headers.
    Notice,
    /// A mark that replaces a character that must not be printed.
    Mark,
}

impl OutputRole {
    /// Returns the parameters of the SGR escape sequence.
    fn sgr_parameters(self) -> &'static str {
        match self {
            OutputRole::Plain => "",
            OutputRole::Dim => "2",
            OutputRole::Heading => "1",
            OutputRole::Good | OutputRole::Added => "32",
            OutputRole::Warn => "33",
            OutputRole::Bad => "1;31",
            OutputRole::Removed => "31",
            OutputRole::Notice => "36",
            OutputRole::Mark => "7",
        }
    }
}

/// A piece of a line: its role and its text.
pub type TextPiece<'t> = (OutputRole, &'t str);

/// Creates a piece of ordinary text.
pub fn plain(text: &str) -> TextPiece<'_> {
    (OutputRole::Plain, text)
}

/// Creates a piece that is less important than the rest.
pub fn dim(text: &str) -> TextPiece<'_> {
    (OutputRole::Dim, text)
}

/// Creates a piece of a heading, or the name of what a line is about.
pub fn heading(text: &str) -> TextPiece<'_> {
    (OutputRole::Heading, text)
}

/// Creates a piece about a good state or result.
pub fn good(text: &str) -> TextPiece<'_> {
    (OutputRole::Good, text)
}

/// Creates a piece of a warning.
pub fn warn(text: &str) -> TextPiece<'_> {
    (OutputRole::Warn, text)
}

/// Creates a piece of an error.
pub fn bad(text: &str) -> TextPiece<'_> {
    (OutputRole::Bad, text)
}

/// Creates a piece by this program about the content.
pub fn notice(text: &str) -> TextPiece<'_> {
    (OutputRole::Notice, text)
}

/// Wraps `text` in escape codes if `color` is set. The text must be safe already.
pub(super) fn paint(role: OutputRole, text: &str, color: bool) -> String {
    match role.sgr_parameters() {
        code if color && !code.is_empty() && !text.is_empty() => {
            ["\x1b[", code, "m", text, "\x1b[0m"].concat()
        }
        _ => text.to_string(),
    }
}

/// Formats a count with its noun: "no lines", "1 line", "12 lines".
pub fn format_count(number: usize, noun: &str) -> String {
    let counted = quantity::format_count(number as u64, noun);
    match number {
        0 => counted.replacen('0', "no", 1),
        _ => counted,
    }
}

/// A cell of a table.
pub struct TableCell {
    role: OutputRole,
    /// The text with marks, which decides the widths.
    text: String,
    /// The bytes for a pipe, where they differ from the text.
    exact: Option<Vec<u8>>,
    is_right_aligned: bool,
}

/// Creates a left-aligned cell; on a terminal, its text is made visible.
pub fn text_cell(role: OutputRole, text: impl AsRef<str>) -> TableCell {
    bytes_cell(role, text.as_ref().as_bytes())
}

/// Creates a left-aligned cell of a path, of which a pipe gets the exact bytes.
pub fn path_cell(role: OutputRole, path: &Path) -> TableCell {
    bytes_cell(role, path.as_os_str().as_bytes())
}

fn bytes_cell(role: OutputRole, bytes: &[u8]) -> TableCell {
    let text = untrusted::visible_line(bytes);
    let exact = (text.as_bytes() != bytes).then(|| exact_line(bytes).into_owned());
    TableCell {
        role,
        text,
        exact,
        is_right_aligned: false,
    }
}

/// Returns the bytes of a piece of a line for a pipe: as they are, but a line feed is a mark. A name
/// must not begin a line of its own.
fn exact_line(bytes: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'\n', bytes).is_none() {
        return Cow::Borrowed(bytes);
    }
    let mark = untrusted::visible_line("\n");
    Cow::Owned(
        bytes
            .split(|byte| *byte == b'\n')
            .collect::<Vec<_>>()
            .join(mark.as_bytes()),
    )
}

/// Creates a right-aligned cell, for numbers.
pub fn number_cell(role: OutputRole, text: impl AsRef<str>) -> TableCell {
    TableCell {
        is_right_aligned: true,
        ..text_cell(role, text)
    }
}

/// Creates the headings of a table, those of numbers right-aligned.
pub fn heading_cells(titles: &[&str], number_titles: &[&str]) -> Vec<TableCell> {
    let cell = |title: &&str| TableCell {
        is_right_aligned: number_titles.contains(title),
        ..text_cell(OutputRole::Heading, title)
    };
    titles.iter().map(cell).collect()
}

impl TableCell {
    /// Cuts the text to `width` columns, with `…` as its last one if anything is cut.
    fn truncate(self, width: usize) -> TableCell {
        if self.text.width() <= width {
            return self;
        }
        let mut text = String::new();
        let mut width_left = width.saturating_sub(1);
        for piece in self.text.graphemes(true) {
            let Some(rest) = width_left.checked_sub(piece.width()) else {
                break;
            };
            width_left = rest;
            text.push_str(piece);
        }
        if let Some(kept) = text
            .trim_end_matches([',', ';', ':', ' '])
            .strip_suffix('…')
        {
            text.truncate(kept.len());
        }
        if width > 0 {
            text.push('…');
        }
        // Only lines of a terminal are cut.
        TableCell {
            text,
            exact: None,
            ..self
        }
    }
}

/// Blank columns between two columns of a table.
const COLUMN_GAP: usize = 2;

/// Minimum width of the last column; expendable columns are dropped until it has this much.
const MIN_LAST_COLUMN_WIDTH: usize = 24;

/// Column widths of a table.
#[derive(Debug, Default)]
pub struct ColumnWidths(Vec<usize>);

impl ColumnWidths {
    fn from_rows(rows: &[Vec<TableCell>]) -> ColumnWidths {
        let mut widths = ColumnWidths::default();
        rows.iter().for_each(|row| widths.fit_row(row));
        widths
    }

    /// Widens the columns to fit `row`.
    pub fn fit_row(&mut self, row: &[TableCell]) {
        self.0.resize(self.0.len().max(row.len()), 0);
        for (width, cell) in self.0.iter_mut().zip(row) {
            *width = cell.text.width().max(*width);
        }
    }

    /// Whether no row was fitted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Returns the columns that fit into `width`, and the width of the last one.
fn fit_columns(widths: &[usize], expendable: &[usize], width: usize) -> (Vec<usize>, usize) {
    let mut kept_columns: Vec<usize> = (0..widths.len()).collect();
    let Some((last, last_width)) = widths.iter().copied().enumerate().next_back() else {
        return (kept_columns, 0);
    };
    let room = |kept: &[usize]| {
        let others = kept.iter().filter(|column| **column != last);
        let others_width: usize = others.map(|column| widths[*column] + COLUMN_GAP).sum();
        width.saturating_sub(others_width)
    };
    for column in expendable {
        if room(&kept_columns) >= last_width.min(MIN_LAST_COLUMN_WIDTH) {
            break;
        }
        kept_columns.retain(|it| it != column);
    }
    let room = room(&kept_columns);
    (kept_columns, room)
}

/// Writer of text with colours and tables.
pub struct Printer<'a> {
    pub(super) writer: &'a mut dyn Write,
    pub(super) is_exact: bool,
    pub(super) has_color: bool,
    /// Maximum width of a line, on a terminal.
    pub(super) max_width: Option<usize>,
}

impl Printer<'_> {
    /// Whether the output is a pipe or file without colours, which gets exact bytes. A terminal gets
    /// marks.
    pub fn wants_exact_bytes(&self) -> bool {
        self.is_exact
    }

    /// Writes exact bytes; call only if [`Printer::wants_exact_bytes`].
    pub fn write_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.is_exact {
            return self.writer.write_all(bytes);
        }
        self.writer
            .write_all(untrusted::visible_text(bytes).as_bytes())
    }

    /// Writes a piece of a line: exact into a pipe, else made visible.
    fn write_piece(&mut self, role: OutputRole, bytes: &[u8]) -> io::Result<()> {
        if self.is_exact {
            return self.writer.write_all(&exact_line(bytes));
        }
        let text = paint(role, &untrusted::visible_line(bytes), self.has_color);
        self.writer.write_all(text.as_bytes())
    }

    /// Writes a line of pieces, whose text is made visible on a terminal.
    pub fn write_line(&mut self, pieces: &[TextPiece<'_>]) -> io::Result<()> {
        for (role, text) in pieces {
            self.write_piece(*role, text.as_bytes())?;
        }
        self.writer.write_all(b"\n")
    }

    /// Writes a line of text that ends with a path, of which a pipe gets the exact bytes.
    pub fn write_path_line(&mut self, text: &str, path: &Path) -> io::Result<()> {
        self.write_piece(OutputRole::Plain, text.as_bytes())?;
        self.write_piece(OutputRole::Plain, path.as_os_str().as_bytes())?;
        self.writer.write_all(b"\n")
    }

    /// Writes a line of pieces that were made visible already: their marks are kept, also in a pipe.
    pub fn write_revealed_line(&mut self, pieces: &[TextPiece<'_>]) -> io::Result<()> {
        self.write_line_at_path("", "", pieces)
    }

    /// Writes a line that begins with a path, of which a pipe gets the exact text; the pieces behind it
    /// were made visible already.
    pub fn write_line_at_path(
        &mut self,
        before: &str,
        path: &str,
        pieces: &[TextPiece<'_>],
    ) -> io::Result<()> {
        let role = pieces.first().map_or(OutputRole::Plain, |it| it.0);
        self.write_piece(role, before.as_bytes())?;
        self.write_piece(role, path.as_bytes())?;
        for (role, text) in pieces {
            let text = paint(*role, &reveal_to_string(text.as_bytes()), self.has_color);
            self.writer.write_all(text.as_bytes())?;
        }
        self.writer.write_all(b"\n")
    }

    /// Writes a line of plain text.
    pub fn write_plain_line(&mut self, text: impl AsRef<str>) -> io::Result<()> {
        self.write_line(&[(OutputRole::Plain, text.as_ref())])
    }

    /// Writes a line of a diff: a sign of ours, and the bytes of the agent with marks set off, also in a
    /// pipe: it is shown to be judged.
    pub fn write_untrusted_line(
        &mut self,
        role: OutputRole,
        sign: &str,
        bytes: &[u8],
        view: RevealOptions,
    ) -> io::Result<()> {
        let mut text = paint(role, sign, self.has_color);
        text.push_str(&self.reveal(role, bytes, view));
        text.push('\n');
        self.writer.write_all(text.as_bytes())
    }

    /// Returns the bytes of an agent as text, with marks set off.
    fn reveal(&self, role: OutputRole, bytes: &[u8], view: RevealOptions) -> String {
        let tokens = untrusted::reveal_line(bytes, view).into_iter();
        let painted = tokens.map(|token| {
            let role = if token.is_mark {
                OutputRole::Mark
            } else {
                role
            };
            paint(role, &token.text, self.has_color)
        });
        painted.collect()
    }

    /// Writes a line of an agent behind a label, with some ranges of its bytes highlighted. As in a diff,
    /// it has marks also in a pipe: it is shown to be judged.
    pub fn write_highlighted_line(
        &mut self,
        label: &[TextPiece<'_>],
        bytes: &[u8],
        highlighted: &[Range<usize>],
    ) -> io::Result<()> {
        for (role, text) in label {
            self.write_piece(*role, text.as_bytes())?;
        }
        let mut line = String::new();
        let mut push = |role: OutputRole, part: &[u8]| {
            line.push_str(&self.reveal(role, part, RevealOptions::PROSE));
        };
        let mut end = 0;
        for range in highlighted {
            let start = range.start.clamp(end, bytes.len());
            push(OutputRole::Plain, &bytes[end..start]);
            end = range.end.clamp(start, bytes.len());
            push(OutputRole::Bad, &bytes[start..end]);
        }
        push(OutputRole::Plain, &bytes[end..]);
        line.push('\n');
        self.writer.write_all(line.as_bytes())
    }

    /// Writes a table. Each column is as wide as its widest cell; lines have no trailing blanks.
    pub fn write_table(&mut self, rows: &[Vec<TableCell>]) -> io::Result<()> {
        let widths = ColumnWidths::from_rows(rows);
        rows.iter().try_for_each(|row| self.write_row(row, &widths))
    }

    /// Writes one row of a table whose column widths are known.
    pub fn write_row(&mut self, row: &[TableCell], widths: &ColumnWidths) -> io::Result<()> {
        let mut line: Vec<u8> = Vec::new();
        // Blanks up to here are of a name.
        let mut exact_end = 0;
        for (cell, width) in row.iter().zip(&widths.0) {
            let room = width.saturating_sub(cell.text.width());
            let (before, after) = if cell.is_right_aligned {
                (room, 0)
            } else {
                (0, room)
            };
            line.extend(repeat_n(b' ', before));
            match &cell.exact {
                Some(exact) if self.is_exact => {
                    line.extend(exact);
                    exact_end = line.len();
                }
                _ => line.extend(paint(cell.role, &cell.text, self.has_color).bytes()),
            }
            line.extend(repeat_n(b' ', after + COLUMN_GAP));
        }
        while line.len() > exact_end && line.last() == Some(&b' ') {
            line.pop();
        }
        line.push(b'\n');
        self.writer.write_all(&line)
    }

    /// Writes a table within the width of the terminal: drops columns, the first of `expendable`
    /// first, until the last column has enough room, and cuts the texts of the last column. All
    /// other cells are whole.
    pub fn write_table_within_width(
        &mut self,
        rows: Vec<Vec<TableCell>>,
        expendable: &[usize],
    ) -> io::Result<()> {
        let widths = ColumnWidths::from_rows(&rows);
        let mut rows = rows.into_iter();
        rows.try_for_each(|row| self.write_row_within_width(row, &widths, expendable))
    }

    /// Writes one row of such a table, whose column widths are known.
    pub fn write_row_within_width(
        &mut self,
        row: Vec<TableCell>,
        widths: &ColumnWidths,
        expendable: &[usize],
    ) -> io::Result<()> {
        let Some(width) = self.max_width else {
            return self.write_row(&row, widths);
        };
        let (kept_columns, room) = fit_columns(&widths.0, expendable, width);
        let last = widths.0.len().saturating_sub(1);
        let mut kept_widths: Vec<usize> = kept_columns.iter().map(|it| widths.0[*it]).collect();
        if let Some(width) = kept_widths.last_mut() {
            *width = room.min(*width);
        }
        let cells = row.into_iter().enumerate();
        let cells = cells.filter(|(column, _)| kept_columns.contains(column));
        let cells = cells.map(|(column, cell)| match column {
            column if column == last => cell.truncate(room),
            _ => cell,
        });
        self.write_row(&cells.collect::<Vec<_>>(), &ColumnWidths(kept_widths))
    }

    /// Writes a config diagnostic: location, message, line, hint.
    pub fn write_diagnostic(&mut self, it: &Diagnostic) -> io::Result<()> {
        let line = it.line.map_or(String::new(), |line| format!(":{line}"));
        let (role, level) = match it.level {
            DiagnosticLevel::Error => (OutputRole::Bad, "error"),
            DiagnosticLevel::Warning => (OutputRole::Warn, "warning"),
        };
        // The operator judges quotes from the file, so they have marks also in a pipe.
        let [message, text] = [&it.message, &it.text].map(untrusted::visible_line);
        self.write_line_at_path(
            "",
            &it.file.display().to_string(),
            &[
                (OutputRole::Heading, &line),
                (OutputRole::Plain, ": "),
                (role, level),
                (OutputRole::Plain, ": "),
                (OutputRole::Plain, &message),
            ],
        )?;
        if !text.is_empty() {
            self.write_revealed_line(&[(OutputRole::Plain, "    "), (OutputRole::Dim, &text)])?;
        }
        it.hints.iter().try_for_each(|hint| {
            self.write_revealed_line(&[
                (OutputRole::Notice, "    hint: "),
                (OutputRole::Plain, &untrusted::visible_line(hint)),
            ])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed_text(color: bool, write: impl Fn(&mut Printer<'_>)) -> String {
        printed_within(None, color, write)
    }

    fn printed_within(
        max_width: Option<usize>,
        color: bool,
        write: impl Fn(&mut Printer<'_>),
    ) -> String {
        let mut bytes = Vec::new();
        write(&mut Printer {
            writer: &mut bytes,
            is_exact: false,
            has_color: color,
            max_width,
        });
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn rows_of_known_widths_fit_the_terminal() {
        let rows = || {
            let rows = [
                ["scout", "an/entry.md", "rules edited: lines 3, 8 and 12"],
                ["triage", "b.md", "-"],
            ];
            rows.map(|cells| Vec::from(cells.map(|it| text_cell(OutputRole::Plain, it))))
        };
        let mut widths = ColumnWidths::default();
        rows().iter().for_each(|it| widths.fit_row(it));
        let printed = |max_width| {
            printed_within(max_width, false, |page| {
                for cells in rows() {
                    page.write_row_within_width(cells, &widths, &[1]).unwrap();
                }
            })
        };
        let lines = |text: &str| text.lines().map(str::to_string).collect::<Vec<_>>();
        let narrow = lines(&printed(Some(32)));
        assert_eq!(narrow, ["scout   rules edited: lines 3, …", "triage  -"]);
        let whole = lines(&printed(None));
        assert!(whole[0].ends_with("  an/entry.md  rules edited: lines 3, 8 and 12"));
        assert_eq!(lines(&printed(Some(60))), whole);
    }

    #[test]
    fn columns_fit_any_width_and_keep_required_ones() {
        // A state, a name, five numbers, and a reason.
        let widths = [8, 14, 5, 5, 7, 8, 16, 60];
        let expendable = [3, 6, 2, 5, 4];
        let mut before = 0;
        for width in 0..200 {
            let (kept, room) = fit_columns(&widths, &expendable, width);
            assert_eq!(kept[..2], [0, 1], "{width}");
            assert_eq!(kept.last(), Some(&7), "{width}");
            let others = kept.iter().filter(|column| **column != 7);
            let whole: usize = others.map(|column| widths[*column] + COLUMN_GAP).sum();
            assert!(whole + room <= width || kept.len() == 3, "{width}");
            // More width never shows less.
            assert!(kept.len() >= before, "{width}");
            before = kept.len();
        }
        assert_eq!(before, widths.len());
        assert_eq!(fit_columns(&[], &[], 80), (Vec::new(), 0));
        // A short reason drops no column.
        assert_eq!(fit_columns(&[8, 14, 5, 0], &[2], 31).0, [0, 1, 2, 3]);
    }

    #[test]
    fn cut_text_is_marked_and_fits() {
        let cut = |text: &str, room| text_cell(OutputRole::Plain, text).truncate(room).text;
        assert_eq!(cut("baseline", 8), "baseline");
        assert_eq!(cut("baseline", 7), "baseli…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("3f2a…, 9b1c…", 6), "3f2a…");
        assert_eq!(cut("sealed 77ab…; over", 14), "sealed 77ab…");
        assert_eq!(cut("baseline", 1), "…");
        assert_eq!(cut("baseline", 0), "");
    }

    #[test]
    fn pipe_gets_exact_names_on_lines_of_their_own() {
        let name = "\u{202e}a \u{9b}b\n  ";
        let bytes = [b"x\xff", name.as_bytes()].concat();
        let path = Path::new(std::ffi::OsStr::from_bytes(&bytes));
        let print = |is_exact| {
            let mut bytes = Vec::new();
            let mut printer = Printer {
                writer: &mut bytes,
                is_exact,
                has_color: false,
                max_width: None,
            };
            let cells = vec![
                text_cell(OutputRole::Plain, "1"),
                path_cell(OutputRole::Plain, path),
            ];
            printer.write_table(&[cells]).unwrap();
            printer.write_path_line("pinned ", path).unwrap();
            printer
                .write_line_at_path("at ", name, &[(OutputRole::Plain, ": ‹U+202E›")])
                .unwrap();
            printer
                .write_highlighted_line(&[(OutputRole::Dim, name)], b"note", &[0..1, 2..3])
                .unwrap();
            printer
                .write_untrusted_line(
                    OutputRole::Plain,
                    "+",
                    name.as_bytes(),
                    RevealOptions::PROSE,
                )
                .unwrap();
            bytes
        };
        // A line feed is a mark everywhere: what follows it must not look like another name.
        let line = "\u{202e}a \u{9b}b␊  ".as_bytes();
        let marked = untrusted::reveal_line(name.as_bytes(), RevealOptions::PROSE);
        let marked: String = marked.into_iter().map(|it| it.text).collect();
        assert!(!marked.contains('\u{202e}'));
        let exact = [
            b"1  x\xff",
            line,
            b"\npinned x\xff",
            line,
            b"\nat ",
            line,
            ": ‹U+202E›\n".as_bytes(),
            line,
            b"note\n+",
            marked.as_bytes(),
            b"\n",
        ];
        assert_eq!(print(true), exact.concat());
        let shown = String::from_utf8(print(false)).unwrap();
        assert_eq!(shown.lines().count(), 5);
        assert!(!shown.contains(['\u{202e}', '\u{9b}']), "{shown:?}");
    }

    #[test]
    fn tables_align_by_display_width() {
        let text = printed_text(false, |page| {
            let rows = [
                vec![
                    text_cell(OutputRole::Heading, "a"),
                    number_cell(OutputRole::Heading, "n"),
                    text_cell(OutputRole::Heading, "z"),
                ],
                vec![
                    text_cell(OutputRole::Plain, "日本"),
                    number_cell(OutputRole::Plain, "1"),
                    text_cell(OutputRole::Plain, "x"),
                ],
                vec![
                    text_cell(OutputRole::Plain, "é"),
                    number_cell(OutputRole::Plain, "100"),
                    text_cell(OutputRole::Plain, ""),
                ],
                vec![
                    text_cell(OutputRole::Plain, ""),
                    number_cell(OutputRole::Plain, ""),
                    text_cell(OutputRole::Plain, "y"),
                ],
            ];
            page.write_table(&rows).unwrap();
        });
        assert_eq!(
            text,
            "a       n  z\n日本    1  x\né     100\n           y\n"
        );
    }

    #[test]
    fn hostile_text_is_escaped_with_and_without_color() {
        for color in [false, true] {
            let text = printed_text(color, |page| {
                page.write_plain_line("\x1b]0;owned\x07").unwrap();
                page.write_table(&[vec![text_cell(OutputRole::Plain, "\u{202E}x")]])
                    .unwrap();
                page.write_untrusted_line(OutputRole::Added, "+", b"\x1b[2J", RevealOptions::DIFF)
                    .unwrap();
            });
            assert!(
                !text.contains("\x1b]") && !text.contains("\x1b[2J"),
                "{text:?}"
            );
            assert!(!text.contains('\u{202E}'), "{text:?}");
        }
    }
}
