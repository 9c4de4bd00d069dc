//! The output of the command line: the only printer, for text and for JSON.
//!
//! A verb hands over one [`Document`] and knows nothing of formats, colours or terminals. Text may
//! quote paths, notes and memories, which agents choose, so everything printed here passes
//! [`crate::untrusted`]; the one exception is exact bytes into a pipe. The colours are the 16 of
//! every terminal, and no meaning rests on colour alone.

use std::io::{self, BufWriter, Write};

use serde::Serialize;
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use crate::config::{Diagnostic, DiagnosticLevel};
use crate::error::{self, Error, ErrorKind};
use crate::untrusted::{self, RevealOptions};

/// Schema name in every JSON document.
pub const SCHEMA: &str = "memory-shepherd/1";

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set or TERM is dumb.
    #[default]
    Auto,
    /// Always, into pipes and files too.
    Always,
    /// Never.
    Never,
}

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

/// The answer of a verb: serialized for JSON, written as text for people.
pub trait Document: Serialize {
    /// Writes the answer as text.
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()>;
}

/// Failure of a verb.
#[derive(Debug)]
pub struct CommandError {
    /// The error; its kind decides the exit code.
    pub error: Error,
    /// Mistakes in the config, if they caused the failure.
    pub diagnostics: Vec<Diagnostic>,
}

impl From<Error> for CommandError {
    fn from(error: Error) -> CommandError {
        CommandError {
            error,
            diagnostics: Vec::new(),
        }
    }
}

/// A JSON document with its schema name.
#[derive(Serialize)]
struct JsonEnvelope<'a, T: Serialize> {
    schema: &'static str,
    #[serde(flatten)]
    document: &'a T,
}

/// Size of the output buffer, in bytes.
const OUTPUT_BUFFER_BYTES: usize = 64 * 1024;

/// An error as a JSON document.
#[derive(Serialize)]
struct ErrorDocument<'a> {
    error: ErrorBody<'a>,
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    kind: ErrorKind,
    message: &'a str,
    hints: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    diagnostics: Option<&'a [Diagnostic]>,
}

/// Standard output or standard error.
struct OutputStream {
    writer: Box<dyn Write + Send>,
    is_terminal: bool,
    has_color: bool,
    /// The reader has closed the pipe, which is not an error.
    is_closed: bool,
}

impl OutputStream {
    fn write_and_flush(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.is_closed {
            return Ok(());
        }
        let written = self
            .writer
            .write_all(bytes)
            .and_then(|()| self.writer.flush());
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.is_closed = true;
                Ok(())
            }
            written => written,
        }
    }
}

impl Write for OutputStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        OutputStream::write_and_flush(self, bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writer for JSON. A terminal gets whole lines of printable ASCII; a pipe gets the bytes
/// unchanged.
struct JsonLineWriter<'s> {
    stream: &'s mut OutputStream,
    /// Start of a line whose end is not written yet; used on a terminal only.
    partial_line: Vec<u8>,
}

impl<'s> JsonLineWriter<'s> {
    fn new(stream: &'s mut OutputStream) -> JsonLineWriter<'s> {
        JsonLineWriter {
            stream,
            partial_line: Vec::new(),
        }
    }
}

impl Write for JsonLineWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.stream.is_terminal {
            self.stream.write_and_flush(bytes)?;
            return Ok(bytes.len());
        }
        self.partial_line.extend_from_slice(bytes);
        let last_line_feed = self.partial_line.iter().rposition(|byte| *byte == b'\n');
        if let Some(end) = last_line_feed {
            let lines: Vec<u8> = self.partial_line.drain(..=end).collect();
            let text = untrusted::escape_json_to_ascii(&String::from_utf8_lossy(&lines));
            self.stream.write_and_flush(text.as_bytes())?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Output settings, from flags and environment.
#[derive(Clone, Copy, Debug, Default)]
pub struct OutputSettings {
    /// Print one JSON document instead of text.
    pub is_json: bool,
    /// Omit progress, notes and warnings.
    pub is_quiet: bool,
    /// When to use colours.
    pub color_choice: ColorChoice,
    /// NO_COLOR is set, or the terminal is dumb.
    pub is_color_unwanted: bool,
    /// Standard output is a terminal.
    pub is_stdout_terminal: bool,
    /// Standard error is a terminal.
    pub is_stderr_terminal: bool,
    /// Width of the terminal of standard output in columns, if known.
    pub terminal_columns: Option<usize>,
}

/// Standard output and standard error, with the settings for both.
pub struct Output {
    settings: OutputSettings,
    stdout: OutputStream,
    stderr: OutputStream,
}

impl Output {
    /// Opens the standard streams of this process.
    pub fn new(settings: OutputSettings) -> Output {
        let stream = |to: Box<dyn Write + Send>, terminal: bool| OutputStream {
            writer: to,
            is_terminal: terminal,
            has_color: match settings.color_choice {
                ColorChoice::Always => true,
                ColorChoice::Never => false,
                ColorChoice::Auto => terminal && !settings.is_color_unwanted,
            },
            is_closed: false,
        };
        Output {
            stdout: stream(Box::new(io::stdout()), settings.is_stdout_terminal),
            stderr: stream(Box::new(io::stderr()), settings.is_stderr_terminal),
            settings,
        }
    }

    /// Whether the answer is printed as JSON.
    pub fn is_json(&self) -> bool {
        self.settings.is_json
    }

    /// Whether the console must not use colours.
    pub fn is_color_disabled(&self) -> bool {
        match self.settings.color_choice {
            ColorChoice::Always => false,
            ColorChoice::Never => true,
            ColorChoice::Auto => self.settings.is_color_unwanted,
        }
    }

    /// Prints the answer of a verb.
    ///
    /// # Errors
    /// The answer cannot be written. A reader that has closed the pipe is not an error.
    pub fn print_document<D: Document>(&mut self, document: &D) -> error::Result<()> {
        if self.settings.is_json {
            return self.print_json(document);
        }
        let (exact, color) = (
            !self.stdout.is_terminal && !self.stdout.has_color,
            self.stdout.has_color,
        );
        let width = self
            .settings
            .terminal_columns
            .filter(|_| self.stdout.is_terminal);
        let mut writer = BufWriter::with_capacity(OUTPUT_BUFFER_BYTES, &mut self.stdout);
        let mut printer = Printer {
            writer: &mut writer,
            is_exact: exact,
            has_color: color,
            max_width: width,
        };
        let printed = document
            .write_text(&mut printer)
            .and_then(|()| writer.flush());
        printed.map_err(|error| output_error(&error))
    }

    fn print_json<T: Serialize>(&mut self, document: &T) -> error::Result<()> {
        let envelope = JsonEnvelope {
            schema: SCHEMA,
            document,
        };
        let mut writer =
            BufWriter::with_capacity(OUTPUT_BUFFER_BYTES, JsonLineWriter::new(&mut self.stdout));
        serde_json::to_writer_pretty(&mut writer, &envelope).map_err(|error| {
            match error.io_error_kind() {
                Some(kind) => output_error(&kind.into()),
                None => Error::new(
                    ErrorKind::Internal,
                    format!("cannot write as JSON: {error}"),
                ),
            }
        })?;
        let ended = writer.write_all(b"\n").and_then(|()| writer.flush());
        ended.map_err(|error| output_error(&error))
    }

    /// Prints a progress line of a run; nothing with `--json` or `-q`. The engine has passed the
    /// line through [`untrusted::visible_line`], so its marks are kept.
    pub fn print_progress(&mut self, line: &str) {
        if self.settings.is_json || self.settings.is_quiet {
            return;
        }
        let line = format!("{}\n", reveal_to_string(line.as_bytes()));
        // A full or closed screen does not stop a run.
        let _ = self.stdout.write_and_flush(line.as_bytes());
    }

    /// Whether standard error is a terminal that can show a status line.
    pub fn has_status_line(&self) -> bool {
        self.stderr.is_terminal && !self.settings.is_quiet && !self.settings.is_color_unwanted
    }

    /// Replaces the status line on standard error. Empty text removes the line.
    pub fn update_status_line(&mut self, text: &str) {
        if self.has_status_line() {
            let line = format!("\r{}\x1b[K", untrusted::visible_line(text));
            let _ = self.stderr.write_and_flush(line.as_bytes());
        }
    }

    /// Prints a note to standard error; nothing with `-q`.
    pub fn print_note(&mut self, text: &str) {
        if !self.settings.is_quiet {
            self.print_labelled(OutputRole::Notice, "note", text);
        }
    }

    /// Prints a warning to standard error; nothing with `-q`.
    pub fn print_warning(&mut self, text: &str) {
        if !self.settings.is_quiet {
            self.print_labelled(OutputRole::Warn, "warning", text);
        }
    }

    /// Prints an error about one agent while the verb goes on.
    pub fn print_error(&mut self, text: &str) {
        self.print_labelled(OutputRole::Bad, "error", text);
    }

    /// Prints a hint.
    pub fn print_hint(&mut self, text: &str) {
        self.print_labelled(OutputRole::Notice, "hint", text);
    }

    /// Prints several hints, each text once.
    pub fn print_hints<'h>(&mut self, hints: impl IntoIterator<Item = &'h String>) {
        let mut printed: Vec<&String> = Vec::new();
        for hint in hints {
            if !printed.contains(&hint) {
                printed.push(hint);
                self.print_hint(hint);
            }
        }
    }

    /// Prints "label: text" as a line on standard error.
    fn print_labelled(&mut self, role: OutputRole, label: &str, text: &str) {
        let color = self.stderr.has_color;
        let line = format!(
            "{}: {}\n",
            paint(role, label, color),
            untrusted::visible_line(text)
        );
        // An error of standard error cannot be reported anywhere.
        let _ = self.stderr.write_and_flush(line.as_bytes());
    }

    /// Prints config diagnostics to standard error.
    pub fn print_diagnostics(&mut self, list: &[Diagnostic]) {
        let quiet = self.settings.is_quiet;
        let is_shown = |it: &&Diagnostic| !quiet || it.level == DiagnosticLevel::Error;
        for diagnostic in list.iter().filter(is_shown) {
            let mut bytes = Vec::new();
            let mut page = Printer {
                writer: &mut bytes,
                is_exact: false,
                has_color: self.stderr.has_color,
                max_width: None,
            };
            // Writing to memory cannot fail.
            let _ = page.write_diagnostic(diagnostic);
            let _ = self.stderr.write_and_flush(&bytes);
        }
    }

    /// Prints the failure of a verb to standard error, and with `--json` also as the document.
    pub fn print_command_error(&mut self, failure: &CommandError) {
        let error = &failure.error;
        self.print_diagnostics(&failure.diagnostics);
        for detail in error.details() {
            let line = format!("{}\n", untrusted::visible_line(detail));
            let _ = self.stderr.write_and_flush(line.as_bytes());
        }
        self.print_error(error.message());
        for hint in error.hints() {
            self.print_hint(hint);
        }
        if self.settings.is_json {
            let document = ErrorDocument {
                error: ErrorBody {
                    kind: error.kind(),
                    message: error.message(),
                    hints: error.hints(),
                    diagnostics: Some(&*failure.diagnostics).filter(|list| !list.is_empty()),
                },
            };
            // The error is already on standard error.
            let _ = self.print_json(&document);
        }
    }

    /// Prints text of clap: its help, its usage errors.
    pub fn print_usage(&mut self, text: &str, is_error: bool) -> error::Result<()> {
        let text = untrusted::visible_text(text);
        let stream = if is_error {
            &mut self.stderr
        } else {
            &mut self.stdout
        };
        stream
            .write_and_flush(text.as_bytes())
            .map_err(|error| output_error(&error))
    }
}

fn output_error(error: &io::Error) -> Error {
    let message = format!(
        "cannot write the answer: {}",
        error::describe_io_error(error)
    );
    Error::new(ErrorKind::Host, message)
}

/// Reveals one line and keeps its marks; see [`untrusted::reveal_line`].
fn reveal_to_string(line: &[u8]) -> String {
    let tokens = untrusted::reveal_line(line, RevealOptions::PROSE);
    tokens.into_iter().map(|token| token.text).collect()
}

/// Wraps `text` in escape codes if `color` is set. The text must be safe already.
fn paint(role: OutputRole, text: &str, color: bool) -> String {
    match role.sgr_parameters() {
        "" => text.to_string(),
        _ if !color || text.is_empty() => text.to_string(),
        code => format!("\x1b[{code}m{text}\x1b[0m"),
    }
}

/// Formats a count with its noun: "no lines", "1 line", "12 lines".
pub fn format_count(number: usize, noun: &str) -> String {
    match number {
        0 => format!("no {noun}s"),
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}

/// A cell of a table.
pub struct TableCell {
    role: OutputRole,
    text: String,
    is_right_aligned: bool,
}

/// Creates a left-aligned cell; its text is made visible.
pub fn text_cell(role: OutputRole, text: impl AsRef<str>) -> TableCell {
    TableCell {
        role,
        text: untrusted::visible_line(text.as_ref()),
        is_right_aligned: false,
    }
}

/// Creates a right-aligned cell, for numbers.
pub fn number_cell(role: OutputRole, text: impl AsRef<str>) -> TableCell {
    TableCell {
        is_right_aligned: true,
        ..text_cell(role, text)
    }
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
        if width > 0 {
            text.push('…');
        }
        TableCell { text, ..self }
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
    writer: &'a mut dyn Write,
    is_exact: bool,
    has_color: bool,
    /// Maximum width of a line, on a terminal.
    max_width: Option<usize>,
}

impl Printer<'_> {
    /// Whether the output is a pipe or file without colours, which gets exact bytes.
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

    /// Writes a line of pieces, whose text is made visible.
    pub fn write_line(&mut self, pieces: &[(OutputRole, &str)]) -> io::Result<()> {
        for (role, text) in pieces {
            let text = paint(*role, &untrusted::visible_line(text), self.has_color);
            self.writer.write_all(text.as_bytes())?;
        }
        self.writer.write_all(b"\n")
    }

    /// Writes a line of plain text.
    pub fn write_plain_line(&mut self, text: impl AsRef<str>) -> io::Result<()> {
        self.write_line(&[(OutputRole::Plain, text.as_ref())])
    }

    /// Writes a line of a diff: a sign of ours, and the bytes of the agent with marks set off.
    pub fn write_untrusted_line(
        &mut self,
        role: OutputRole,
        sign: &str,
        bytes: &[u8],
        view: RevealOptions,
    ) -> io::Result<()> {
        let mut text = paint(role, sign, self.has_color);
        for token in untrusted::reveal_line(bytes, view) {
            let role = if token.is_mark {
                OutputRole::Mark
            } else {
                role
            };
            text.push_str(&paint(role, &token.text, self.has_color));
        }
        text.push('\n');
        self.writer.write_all(text.as_bytes())
    }

    /// Writes a table. Each column is as wide as its widest cell; lines have no trailing blanks.
    pub fn write_table(&mut self, rows: &[Vec<TableCell>]) -> io::Result<()> {
        let widths = ColumnWidths::from_rows(rows);
        rows.iter().try_for_each(|row| self.write_row(row, &widths))
    }

    /// Writes one row of a table whose column widths are known.
    pub fn write_row(&mut self, row: &[TableCell], widths: &ColumnWidths) -> io::Result<()> {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths.0) {
            let text = paint(cell.role, &cell.text, self.has_color);
            let room = " ".repeat(width.saturating_sub(cell.text.width()));
            let gap = " ".repeat(COLUMN_GAP);
            line.push_str(&if cell.is_right_aligned {
                format!("{room}{text}{gap}")
            } else {
                format!("{text}{room}{gap}")
            });
        }
        line.truncate(line.trim_end_matches(' ').len());
        line.push('\n');
        self.writer.write_all(line.as_bytes())
    }

    /// Writes a table within the width of the terminal: drops columns, the first of `expendable`
    /// first, until the last column has enough room, and cuts the texts of the last column. All
    /// other cells are whole.
    pub fn write_table_within_width(
        &mut self,
        rows: Vec<Vec<TableCell>>,
        expendable: &[usize],
    ) -> io::Result<()> {
        let Some(width) = self.max_width else {
            return self.write_table(&rows);
        };
        let (kept_columns, room) =
            fit_columns(&ColumnWidths::from_rows(&rows).0, expendable, width);
        let row = |row: Vec<TableCell>| {
            let last = row.len().saturating_sub(1);
            let truncate_last = |(column, cell): (usize, TableCell)| {
                if column == last {
                    cell.truncate(room)
                } else {
                    cell
                }
            };
            row.into_iter()
                .enumerate()
                .filter(|(column, _)| kept_columns.contains(column))
                .map(truncate_last)
                .collect()
        };
        let rows: Vec<Vec<TableCell>> = rows.into_iter().map(row).collect();
        self.write_table(&rows)
    }

    /// Writes a config diagnostic: location, message, line, hint.
    pub fn write_diagnostic(&mut self, it: &Diagnostic) -> io::Result<()> {
        let mut location = it.file.display().to_string();
        if let Some(line) = it.line {
            location.push_str(&format!(":{line}"));
        }
        let (role, level) = match it.level {
            DiagnosticLevel::Error => (OutputRole::Bad, "error"),
            DiagnosticLevel::Warning => (OutputRole::Warn, "warning"),
        };
        self.write_line(&[
            (OutputRole::Heading, &location),
            (OutputRole::Plain, ": "),
            (role, level),
            (OutputRole::Plain, ": "),
            (OutputRole::Plain, &it.message),
        ])?;
        if !it.text.is_empty() {
            self.write_line(&[(OutputRole::Plain, "    "), (OutputRole::Dim, &it.text)])?;
        }
        match &it.hint {
            Some(hint) => self.write_line(&[
                (OutputRole::Notice, "    hint: "),
                (OutputRole::Plain, hint),
            ]),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed_text(color: bool, write: impl Fn(&mut Printer<'_>)) -> String {
        let mut bytes = Vec::new();
        write(&mut Printer {
            writer: &mut bytes,
            is_exact: false,
            has_color: color,
            max_width: None,
        });
        String::from_utf8(bytes).unwrap()
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
        assert_eq!(cut("baseline", 1), "…");
        assert_eq!(cut("baseline", 0), "");
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
