//! Where everything goes out that the command line says: two printers, text
//! and JSON, behind one interface.
//!
//! A verb hands over one [`Document`]; it knows nothing of formats, colours or
//! terminals. What is printed for people may quote paths, notes and memories,
//! which agents choose, so nothing leaves here that did not pass
//! [`crate::untrusted`]; the one exception is exact bytes into a pipe. The
//! colours are the sixteen of every terminal, and never the only carrier of a
//! meaning.

use std::io::{self, BufWriter, Write};

use serde::Serialize;
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use crate::config::{Diagnostic, DiagnosticLevel};
use crate::error::{self, Error, Kind};
use crate::untrusted::{self, View};

/// The schema that every JSON document names.
pub const SCHEMA: &str = "memory-shepherd/1";

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set or TERM is dumb.
    #[default]
    Auto,
    /// Always, into pipes and files too.
    Always,
    /// Never.
    Never,
}

/// What a piece of text is, for its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputRole {
    /// Ordinary text.
    Plain,
    /// Less important than the rest.
    Dim,
    /// A heading.
    Head,
    /// All is well.
    Good,
    /// Worth a look.
    Warn,
    /// Wrong.
    Bad,
    /// A line that was added.
    Added,
    /// A line that was removed.
    Removed,
    /// What this program says about itself: hints, hunk headers.
    Ours,
    /// A mark in the place of a character that must not be printed.
    Mark,
}

impl OutputRole {
    /// The parameters of the escape sequence.
    fn code(self) -> &'static str {
        match self {
            OutputRole::Plain => "",
            OutputRole::Dim => "2",
            OutputRole::Head => "1",
            OutputRole::Good | OutputRole::Added => "32",
            OutputRole::Warn => "33",
            OutputRole::Bad => "1;31",
            OutputRole::Removed => "31",
            OutputRole::Ours => "36",
            OutputRole::Mark => "7",
        }
    }
}

/// What a verb answers.
pub trait Document: Serialize {
    /// The same for people.
    ///
    /// # Errors
    /// Of the writer.
    fn text(&self, page: &mut Printer<'_>) -> io::Result<()>;
}

/// Why a verb could not answer.
#[derive(Debug)]
pub struct ErrorDocument {
    /// What decides the exit code.
    pub error: Error,
    /// What is wrong with the config, if that is the reason.
    pub diagnostics: Vec<Diagnostic>,
}

impl From<Error> for ErrorDocument {
    fn from(error: Error) -> ErrorDocument {
        ErrorDocument {
            error,
            diagnostics: Vec::new(),
        }
    }
}

/// A JSON document as it goes out.
#[derive(Serialize)]
struct Envelope<'a, T: Serialize> {
    schema: &'static str,
    #[serde(flatten)]
    document: &'a T,
}

/// How much of an answer is held before it goes out.
const BUFFER: usize = 64 * 1024;

/// An error as a JSON document.
#[derive(Serialize)]
struct WriteFailure<'a> {
    error: TroubleBody<'a>,
}

#[derive(Serialize)]
struct TroubleBody<'a> {
    kind: Kind,
    message: &'a str,
    hints: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    diagnostics: Option<&'a [Diagnostic]>,
}

/// One place where text or bytes go out.
struct Stream {
    to: Box<dyn Write + Send>,
    terminal: bool,
    color: bool,
    /// The reader has gone. That is its right and no error of ours.
    closed: bool,
}

impl Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.closed {
            return Ok(());
        }
        let written = self.to.write_all(bytes).and_then(|()| self.to.flush());
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(())
            }
            written => written,
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Stream::write(self, bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// JSON on its way out, of which a terminal gets printable ASCII alone.
struct JsonLines<'s> {
    to: &'s mut Stream,
    /// A line that is not whole yet, on a terminal.
    line: Vec<u8>,
}

impl<'s> JsonLines<'s> {
    fn new(to: &'s mut Stream) -> JsonLines<'s> {
        let line = Vec::new();
        JsonLines { to, line }
    }
}

impl Write for JsonLines<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.to.terminal {
            self.to.write(bytes)?;
            return Ok(bytes.len());
        }
        self.line.extend_from_slice(bytes);
        let whole = self.line.iter().rposition(|byte| *byte == b'\n');
        if let Some(end) = whole {
            let lines: Vec<u8> = self.line.drain(..=end).collect();
            let text = untrusted::ascii_json(&String::from_utf8_lossy(&lines));
            self.to.write(text.as_bytes())?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How to print, from flags and environment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// One JSON document instead of text.
    pub json: bool,
    /// Neither progress nor warnings.
    pub quiet: bool,
    /// When to use colours.
    pub color: Color,
    /// NO_COLOR is set, or the terminal is dumb.
    pub plain: bool,
    /// Standard output is a terminal.
    pub stdout_terminal: bool,
    /// Standard error is a terminal.
    pub stderr_terminal: bool,
    /// How many columns the terminal of standard output has.
    pub columns: Option<usize>,
}

/// Standard output and standard error, and how to print to them.
pub struct Output {
    settings: Settings,
    out: Stream,
    err: Stream,
}

impl Output {
    /// The two streams of this process.
    pub fn new(settings: Settings) -> Output {
        let stream = |to: Box<dyn Write + Send>, terminal: bool| Stream {
            to,
            terminal,
            color: match settings.color {
                Color::Always => true,
                Color::Never => false,
                Color::Auto => terminal && !settings.plain,
            },
            closed: false,
        };
        Output {
            out: stream(Box::new(io::stdout()), settings.stdout_terminal),
            err: stream(Box::new(io::stderr()), settings.stderr_terminal),
            settings,
        }
    }

    /// Whether the answer is JSON.
    pub fn is_json(&self) -> bool {
        self.settings.json
    }

    /// Whether colours are unwanted on the screen.
    pub fn no_color(&self) -> bool {
        match self.settings.color {
            Color::Always => false,
            Color::Never => true,
            Color::Auto => self.settings.plain,
        }
    }

    /// Prints a verb's answer.
    ///
    /// # Errors
    /// When it cannot be written; a reader that has gone is no error.
    pub fn document<D: Document>(&mut self, document: &D) -> error::Result<()> {
        if self.settings.json {
            return self.json(document);
        }
        let (exact, color) = (!self.out.terminal && !self.out.color, self.out.color);
        let width = self.settings.columns.filter(|_| self.out.terminal);
        let mut to = BufWriter::with_capacity(BUFFER, &mut self.out);
        let mut page = Printer {
            to: &mut to,
            exact,
            color,
            width,
        };
        let printed = document.text(&mut page).and_then(|()| to.flush());
        printed.map_err(|error| unwritten(&error))
    }

    fn json<T: Serialize>(&mut self, document: &T) -> error::Result<()> {
        let envelope = Envelope {
            schema: SCHEMA,
            document,
        };
        let mut to = BufWriter::with_capacity(BUFFER, JsonLines::new(&mut self.out));
        serde_json::to_writer_pretty(&mut to, &envelope).map_err(|error| {
            match error.io_error_kind() {
                Some(kind) => unwritten(&kind.into()),
                None => Error::new(Kind::Internal, format!("cannot write as JSON: {error}")),
            }
        })?;
        let ended = to.write_all(b"\n").and_then(|()| to.flush());
        ended.map_err(|error| unwritten(&error))
    }

    /// A line of a run as it goes on; not with `--json`, not with `-q`. It went
    /// through [`untrusted::line`] in the engine, so its marks are kept.
    pub fn progress(&mut self, line: &str) {
        if self.settings.json || self.settings.quiet {
            return;
        }
        let line = format!("{}\n", revealed(line.as_bytes()));
        // A run is not stopped by a screen that is full or gone.
        let _ = self.out.write(line.as_bytes());
    }

    /// Whether there is a terminal to say on how far a verb is.
    pub fn shows_steps(&self) -> bool {
        self.err.terminal && !self.settings.quiet && !self.settings.plain
    }

    /// How far a verb is, on a line of standard error that the next one writes
    /// over. Empty text removes the line.
    pub fn step(&mut self, text: &str) {
        if self.shows_steps() {
            let line = format!("\r{}\x1b[K", untrusted::line(text));
            let _ = self.err.write(line.as_bytes());
        }
    }

    /// Something worth knowing beside the answer; not with `-q`.
    pub fn note(&mut self, text: &str) {
        if !self.settings.quiet {
            self.aside(OutputRole::Ours, "note", text);
        }
    }

    /// Something that is probably not as it was meant; not with `-q`.
    pub fn warning(&mut self, text: &str) {
        if !self.settings.quiet {
            self.aside(OutputRole::Warn, "warning", text);
        }
    }

    /// What went wrong for one agent while the verb went on.
    pub fn trouble(&mut self, text: &str) {
        self.aside(OutputRole::Bad, "error", text);
    }

    /// What can be done about it.
    pub fn hint(&mut self, text: &str) {
        self.aside(OutputRole::Ours, "hint", text);
    }

    /// What can be done about several things, each hint once.
    pub fn hints<'h>(&mut self, hints: impl IntoIterator<Item = &'h String>) {
        let mut told: Vec<&String> = Vec::new();
        for hint in hints {
            if !told.contains(&hint) {
                told.push(hint);
                self.hint(hint);
            }
        }
    }

    /// A line on standard error: "label: text".
    fn aside(&mut self, role: OutputRole, label: &str, text: &str) {
        let color = self.err.color;
        let line = format!(
            "{}: {}\n",
            painted(role, label, color),
            untrusted::line(text)
        );
        // There is nowhere left to say that standard error is gone.
        let _ = self.err.write(line.as_bytes());
    }

    /// What is wrong with the config, on standard error.
    pub fn diagnostics(&mut self, list: &[Diagnostic]) {
        let quiet = self.settings.quiet;
        let shown = |it: &&Diagnostic| !quiet || it.level == DiagnosticLevel::Error;
        for diagnostic in list.iter().filter(shown) {
            let mut bytes = Vec::new();
            let mut page = Printer {
                to: &mut bytes,
                exact: false,
                color: self.err.color,
                width: None,
            };
            // Writing to memory cannot fail.
            let _ = page.diagnostic(diagnostic);
            let _ = self.err.write(&bytes);
        }
    }

    /// Why the verb could not answer: on standard error, and with `--json` as
    /// the document, too.
    pub fn failure(&mut self, failure: &ErrorDocument) {
        let error = &failure.error;
        self.diagnostics(&failure.diagnostics);
        for detail in error.details() {
            let line = format!("{}\n", untrusted::line(detail));
            let _ = self.err.write(line.as_bytes());
        }
        self.trouble(error.message());
        for hint in error.hints() {
            self.hint(hint);
        }
        if self.settings.json {
            let document = WriteFailure {
                error: TroubleBody {
                    kind: error.kind(),
                    message: error.message(),
                    hints: error.hints(),
                    diagnostics: Some(&*failure.diagnostics).filter(|list| !list.is_empty()),
                },
            };
            // The error is on standard error already.
            let _ = self.json(&document);
        }
    }

    /// Text that came from clap: its help, its usage errors.
    pub fn usage(&mut self, text: &str, error: bool) -> error::Result<()> {
        let text = untrusted::text(text);
        let stream = if error { &mut self.err } else { &mut self.out };
        stream
            .write(text.as_bytes())
            .map_err(|error| unwritten(&error))
    }
}

fn unwritten(error: &io::Error) -> Error {
    let message = format!("cannot write the answer: {}", error::cause(error));
    Error::new(Kind::Host, message)
}

/// One line whose marks are kept; see [`untrusted::reveal`].
fn revealed(line: &[u8]) -> String {
    let tokens = untrusted::reveal(line, View::PROSE);
    tokens.into_iter().map(|token| token.text).collect()
}

/// The text, between escape codes if `color` is set. It must be safe already.
fn painted(role: OutputRole, text: &str, color: bool) -> String {
    match role.code() {
        "" => text.to_string(),
        _ if !color || text.is_empty() => text.to_string(),
        code => format!("\x1b[{code}m{text}\x1b[0m"),
    }
}

/// "no lines", "1 line", "12 lines"
pub fn count(number: usize, what: &str) -> String {
    match number {
        0 => format!("no {what}s"),
        1 => format!("1 {what}"),
        _ => format!("{number} {what}s"),
    }
}

/// A cell of a table.
pub struct Cell {
    role: OutputRole,
    text: String,
    right: bool,
}

/// A cell with text at its left side. Whatever is in it is made visible.
pub fn cell(role: OutputRole, text: impl AsRef<str>) -> Cell {
    Cell {
        role,
        text: untrusted::line(text.as_ref()),
        right: false,
    }
}

/// The same with the text at its right side, for figures.
pub fn figure(role: OutputRole, text: impl AsRef<str>) -> Cell {
    Cell {
        right: true,
        ..cell(role, text)
    }
}

impl Cell {
    /// Cuts a text that has more columns than these, and marks that.
    fn cut(self, room: usize) -> Cell {
        if self.text.width() <= room {
            return self;
        }
        let mut text = String::new();
        let mut left = room.saturating_sub(1);
        for piece in self.text.graphemes(true) {
            let Some(rest) = left.checked_sub(piece.width()) else {
                break;
            };
            left = rest;
            text.push_str(piece);
        }
        if room > 0 {
            text.push('…');
        }
        Cell { text, ..self }
    }
}

/// Between two columns of a table.
const GAP: usize = 2;

/// The least room of a last column, before others are left out for it.
const LAST_ROOM: usize = 24;

/// How wide the columns of a table are.
#[derive(Debug, Default)]
pub struct Widths(Vec<usize>);

impl Widths {
    fn of(rows: &[Vec<Cell>]) -> Widths {
        let mut widths = Widths::default();
        rows.iter().for_each(|row| widths.take(row));
        widths
    }

    /// Makes room for a row.
    pub fn take(&mut self, row: &[Cell]) {
        self.0.resize(self.0.len().max(row.len()), 0);
        for (width, cell) in self.0.iter_mut().zip(row) {
            *width = cell.text.width().max(*width);
        }
    }

    /// Whether there was no row.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Which columns fit a width, and how much room the last one has.
fn fit(widths: &[usize], expendable: &[usize], width: usize) -> (Vec<usize>, usize) {
    let mut kept: Vec<usize> = (0..widths.len()).collect();
    let Some((last, wanted)) = widths.iter().copied().enumerate().next_back() else {
        return (kept, 0);
    };
    let room = |kept: &[usize]| {
        let others = kept.iter().filter(|column| **column != last);
        let taken: usize = others.map(|column| widths[*column] + GAP).sum();
        width.saturating_sub(taken)
    };
    for column in expendable {
        if room(&kept) >= wanted.min(LAST_ROOM) {
            break;
        }
        kept.retain(|it| it != column);
    }
    let room = room(&kept);
    (kept, room)
}

/// Text for people on its way out.
pub struct Printer<'a> {
    to: &'a mut dyn Write,
    exact: bool,
    color: bool,
    /// How wide a line may be, on a terminal.
    width: Option<usize>,
}

impl Printer<'_> {
    /// Whether exact bytes are wanted, because nobody looks at them here: into
    /// a pipe or a file, without colours.
    pub fn wants_bytes(&self) -> bool {
        self.exact
    }

    /// Exact bytes, where [`Printer::wants_bytes`].
    ///
    /// # Errors
    /// Of the writer.
    pub fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.exact {
            return self.to.write_all(bytes);
        }
        self.to.write_all(untrusted::text(bytes).as_bytes())
    }

    /// A line of pieces. Whatever is in them is made visible.
    ///
    /// # Errors
    /// Of the writer.
    pub fn line(&mut self, pieces: &[(OutputRole, &str)]) -> io::Result<()> {
        for (role, text) in pieces {
            let text = painted(*role, &untrusted::line(text), self.color);
            self.to.write_all(text.as_bytes())?;
        }
        self.to.write_all(b"\n")
    }

    /// A line of ordinary text.
    ///
    /// # Errors
    /// Of the writer.
    pub fn plain(&mut self, text: impl AsRef<str>) -> io::Result<()> {
        self.line(&[(OutputRole::Plain, text.as_ref())])
    }

    /// A line of a diff: a sign of ours, and the agent's bytes with marks that
    /// stand out.
    ///
    /// # Errors
    /// Of the writer.
    pub fn foreign(
        &mut self,
        role: OutputRole,
        sign: &str,
        bytes: &[u8],
        view: View,
    ) -> io::Result<()> {
        let mut text = painted(role, sign, self.color);
        for token in untrusted::reveal(bytes, view) {
            let role = if token.mark { OutputRole::Mark } else { role };
            text.push_str(&painted(role, &token.text, self.color));
        }
        text.push('\n');
        self.to.write_all(text.as_bytes())
    }

    /// Rows of cells, as wide as the widest cell of a column, without blanks at
    /// the ends of lines.
    ///
    /// # Errors
    /// Of the writer.
    pub fn table(&mut self, rows: &[Vec<Cell>]) -> io::Result<()> {
        let widths = Widths::of(rows);
        rows.iter().try_for_each(|row| self.row(row, &widths))
    }

    /// One row of a table whose columns are known to be wide enough.
    ///
    /// # Errors
    /// Of the writer.
    pub fn row(&mut self, row: &[Cell], widths: &Widths) -> io::Result<()> {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths.0) {
            let text = painted(cell.role, &cell.text, self.color);
            let room = " ".repeat(width.saturating_sub(cell.text.width()));
            let gap = " ".repeat(GAP);
            line.push_str(&match cell.right {
                true => format!("{room}{text}{gap}"),
                false => format!("{text}{room}{gap}"),
            });
        }
        line.truncate(line.trim_end_matches(' ').len());
        line.push('\n');
        self.to.write_all(line.as_bytes())
    }

    /// The same within the width of the terminal: columns are left out, the first of
    /// `expendable` first, until the last column has enough room, in which its texts
    /// are cut. Everything else is whole.
    ///
    /// # Errors
    /// Of the writer.
    pub fn table_within(&mut self, rows: Vec<Vec<Cell>>, expendable: &[usize]) -> io::Result<()> {
        let Some(width) = self.width else {
            return self.table(&rows);
        };
        let (kept, room) = fit(&Widths::of(&rows).0, expendable, width);
        let row = |row: Vec<Cell>| {
            let last = row.len().saturating_sub(1);
            let cells = row.into_iter().enumerate();
            let cells = cells.filter(|(column, _)| kept.contains(column));
            let cut = |(column, cell): (usize, Cell)| match column == last {
                true => cell.cut(room),
                false => cell,
            };
            cells.map(cut).collect()
        };
        let rows: Vec<Vec<Cell>> = rows.into_iter().map(row).collect();
        self.table(&rows)
    }

    /// A diagnostic of the config: where, what, the line, what to do.
    ///
    /// # Errors
    /// Of the writer.
    pub fn diagnostic(&mut self, it: &Diagnostic) -> io::Result<()> {
        let mut place = it.file.display().to_string();
        if let Some(line) = it.line {
            place.push_str(&format!(":{line}"));
        }
        let (role, level) = match it.level {
            DiagnosticLevel::Error => (OutputRole::Bad, "error"),
            DiagnosticLevel::Warning => (OutputRole::Warn, "warning"),
        };
        self.line(&[
            (OutputRole::Head, &place),
            (OutputRole::Plain, ": "),
            (role, level),
            (OutputRole::Plain, ": "),
            (OutputRole::Plain, &it.message),
        ])?;
        if !it.text.is_empty() {
            self.line(&[(OutputRole::Plain, "    "), (OutputRole::Dim, &it.text)])?;
        }
        match &it.hint {
            Some(hint) => self.line(&[(OutputRole::Ours, "    hint: "), (OutputRole::Plain, hint)]),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(color: bool, write: impl Fn(&mut Printer<'_>)) -> String {
        let mut bytes = Vec::new();
        write(&mut Printer {
            to: &mut bytes,
            exact: false,
            color,
            width: None,
        });
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn columns_fit_any_width_but_for_what_stays_whole() {
        // A state, a name, five figures, and a reason.
        let widths = [8, 14, 5, 5, 7, 8, 16, 60];
        let expendable = [3, 6, 2, 5, 4];
        let mut before = 0;
        for width in 0..200 {
            let (kept, room) = fit(&widths, &expendable, width);
            assert_eq!(kept[..2], [0, 1], "{width}");
            assert_eq!(kept.last(), Some(&7), "{width}");
            let others = kept.iter().filter(|column| **column != 7);
            let whole: usize = others.map(|column| widths[*column] + GAP).sum();
            assert!(whole + room <= width || kept.len() == 3, "{width}");
            // More room never shows less.
            assert!(kept.len() >= before, "{width}");
            before = kept.len();
        }
        assert_eq!(before, widths.len());
        assert_eq!(fit(&[], &[], 80), (Vec::new(), 0));
        // Nothing is left out for a reason that is short.
        assert_eq!(fit(&[8, 14, 5, 0], &[2], 31).0, [0, 1, 2, 3]);
    }

    #[test]
    fn cut_text_is_marked_and_never_too_wide() {
        let cut = |text: &str, room| cell(OutputRole::Plain, text).cut(room).text;
        assert_eq!(cut("baseline", 8), "baseline");
        assert_eq!(cut("baseline", 7), "baseli…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("baseline", 1), "…");
        assert_eq!(cut("baseline", 0), "");
    }

    #[test]
    fn tables_align_by_cells_and_not_by_bytes() {
        let text = page(false, |page| {
            let rows = [
                vec![
                    cell(OutputRole::Head, "a"),
                    figure(OutputRole::Head, "n"),
                    cell(OutputRole::Head, "z"),
                ],
                vec![
                    cell(OutputRole::Plain, "日本"),
                    figure(OutputRole::Plain, "1"),
                    cell(OutputRole::Plain, "x"),
                ],
                vec![
                    cell(OutputRole::Plain, "é"),
                    figure(OutputRole::Plain, "100"),
                    cell(OutputRole::Plain, ""),
                ],
                vec![
                    cell(OutputRole::Plain, ""),
                    figure(OutputRole::Plain, ""),
                    cell(OutputRole::Plain, "y"),
                ],
            ];
            page.table(&rows).unwrap();
        });
        assert_eq!(
            text,
            "a       n  z\n日本    1  x\né     100\n           y\n"
        );
    }

    #[test]
    fn hostile_text_is_made_visible_whatever_the_colour() {
        for color in [false, true] {
            let text = page(color, |page| {
                page.plain("\x1b]0;owned\x07").unwrap();
                page.table(&[vec![cell(OutputRole::Plain, "\u{202E}x")]])
                    .unwrap();
                page.foreign(OutputRole::Added, "+", b"\x1b[2J", View::DIFF)
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
