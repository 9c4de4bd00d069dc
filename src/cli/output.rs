//! The output of the command line: the only printer, for text and for JSON.
//!
//! A verb hands over one [`Document`] and knows nothing of formats, colours or terminals. Text may
//! quote paths, notes and memories, which agents choose, so everything that a terminal gets passes
//! [`crate::base::untrusted`], and so does standard error. A pipe of standard output gets exact bytes, so
//! that programs can read names; there only a line feed in a name is a mark. The colours are the 16 of
//! every terminal, and no meaning rests on colour alone.

mod file_content;
mod printer;

use std::io::{self, BufWriter, Write};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use crate::base::error::{self, Error, ErrorKind};
use crate::base::untrusted::{self, RevealOptions};
use crate::config::{Diagnostic, DiagnosticLevel};
pub use file_content::FileContent;
use printer::paint;
pub use printer::{
    ColumnWidths, OutputRole, Printer, TableCell, TextPiece, bad, dim, format_count, good, heading,
    heading_cells, notice, number_cell, path_cell, plain, text_cell, warn,
};

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
    error: ErrorItem<'a>,
}

/// What tells an error from others in a JSON document.
#[derive(Serialize)]
#[serde(untagged)]
enum ErrorReason {
    Word(&'static str),
    Kind(ErrorKind),
}

/// An error in a JSON document.
#[derive(Serialize)]
pub struct ErrorItem<'a> {
    kind: ErrorKind,
    /// The word of a layout for a refusal; else the kind.
    reason: ErrorReason,
    message: &'a str,
    hints: &'a [String],
    #[serde(skip_serializing_if = "<[Diagnostic]>::is_empty")]
    diagnostics: &'a [Diagnostic],
}

impl<'a> ErrorItem<'a> {
    /// Creates the item of an error and of the mistakes in the config that caused it.
    pub fn new(error: &'a Error, diagnostics: &'a [Diagnostic]) -> ErrorItem<'a> {
        ErrorItem {
            kind: error.kind(),
            reason: error
                .reason()
                .map_or(ErrorReason::Kind(error.kind()), ErrorReason::Word),
            message: error.message(),
            hints: error.hints(),
            diagnostics,
        }
    }

    /// Creates the items of errors that no mistake in the config caused.
    pub fn list(errors: &'a [Error]) -> Vec<ErrorItem<'a>> {
        let errors = errors.iter();
        errors.map(|error| ErrorItem::new(error, &[])).collect()
    }
}

/// How long a stream that skips what is not read waits for its reader, before it skips.
const READER_TIMEOUT: Duration = Duration::from_secs(1);

/// What such a stream writes at once: a pipe that takes anything takes PIPE_BUF bytes of pipe(7)
/// without waiting.
const PIECE_BYTES: usize = 4096;

/// What follows the gap.
const GAP_NOTE: &str = "(output that was not read is left out here)\n";

/// Standard output or standard error.
struct OutputStream {
    writer: Box<dyn Write + Send>,
    descriptor: BorrowedFd<'static>,
    /// Whether text that no reader takes is skipped, instead of waiting for one.
    skips_unread: bool,
    /// Whether the last text was skipped.
    is_stalled: bool,
    is_terminal: bool,
    has_color: bool,
    /// The reader has gone, which is not an error.
    is_closed: bool,
}

impl OutputStream {
    fn write_and_flush(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.is_closed {
            return Ok(());
        }
        let written = if self.skips_unread {
            self.write_readable(bytes)
        } else {
            self.write_now(bytes)
        };
        match written {
            Err(error) if self.is_closing_error(&error) => {
                self.is_closed = true;
                Ok(())
            }
            written => written,
        }
    }

    fn write_now(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer.write_all(bytes)?;
        self.writer.flush()
    }

    /// Writes as much as the reader takes.
    fn write_readable(&mut self, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(PIECE_BYTES) {
            let timeout = if self.is_stalled {
                Duration::ZERO
            } else {
                READER_TIMEOUT
            };
            if !is_ready(self.descriptor, timeout) {
                self.is_stalled = true;
                return Ok(());
            }
            if std::mem::take(&mut self.is_stalled) {
                self.write_now(GAP_NOTE.as_bytes())?;
                if !is_ready(self.descriptor, Duration::ZERO) {
                    self.is_stalled = true;
                    return Ok(());
                }
            }
            self.write_now(piece)?;
        }
        Ok(())
    }

    /// Whether the stream has no reader left: a closed pipe, or a terminal that hung up.
    fn is_closing_error(&self, error: &io::Error) -> bool {
        error.kind() == io::ErrorKind::BrokenPipe
            || self.is_terminal && error.raw_os_error() == Some(libc::EIO)
    }
}

/// Returns whether a stream takes bytes without waiting, after at most `timeout`.
fn is_ready(stream: BorrowedFd<'_>, timeout: Duration) -> bool {
    let mut events = [PollFd::new(&stream, PollFlags::OUT)];
    let timeout = Timespec::try_from(timeout).unwrap_or_default();
    !matches!(poll(&mut events, Some(&timeout)), Ok(0))
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
    /// The first failure to write a line of progress.
    progress_error: Option<Error>,
}

/// Writes to standard output itself. The standard library takes a descriptor that cannot be written
/// for one that is closed, and drops the text.
struct StandardOutput;

impl Write for StandardOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(rustix::stdio::stdout(), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output {
    /// Opens the standard streams of this process.
    pub fn new(settings: OutputSettings) -> Output {
        let stream = |to: Box<dyn Write + Send>, descriptor, terminal: bool| OutputStream {
            writer: to,
            descriptor,
            skips_unread: false,
            is_stalled: false,
            is_terminal: terminal,
            has_color: match settings.color_choice {
                ColorChoice::Always => true,
                ColorChoice::Never => false,
                ColorChoice::Auto => terminal && !settings.is_color_unwanted,
            },
            is_closed: false,
        };
        Output {
            stdout: stream(
                Box::new(StandardOutput),
                rustix::stdio::stdout(),
                settings.is_stdout_terminal,
            ),
            stderr: stream(
                Box::new(io::stderr()),
                rustix::stdio::stderr(),
                settings.is_stderr_terminal,
            ),
            settings,
            progress_error: None,
        }
    }

    /// Skips text that no reader takes from now on: for commands that run on a schedule, or until they
    /// are stopped, whose work matters more than a pipe without a reader.
    pub fn skip_unread(&mut self) {
        self.stdout.skips_unread = true;
        self.stderr.skips_unread = true;
    }

    /// Whether standard output is a pipe or file without colours, which gets exact bytes. A terminal
    /// gets marks.
    pub fn wants_exact_bytes(&self) -> bool {
        !self.stdout.is_terminal && !self.stdout.has_color
    }

    /// Whether the answer is printed as JSON.
    pub fn is_json(&self) -> bool {
        self.settings.is_json
    }

    /// Returns the flags with which another process of this program prints as this one does.
    pub fn inherited_flags(&self) -> Vec<&'static str> {
        let quiet = self.settings.is_quiet.then_some("--quiet");
        let color = match self.settings.color_choice {
            ColorChoice::Auto => None,
            ColorChoice::Always => Some("--color=always"),
            ColorChoice::Never => Some("--color=never"),
        };
        quiet.into_iter().chain(color).collect()
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
        self.print_text(|printer| document.write_text(printer))
    }

    /// Prints text for people, whatever `--json` says.
    ///
    /// # Errors
    /// As [`Output::print_document`].
    pub fn print_text(
        &mut self,
        write: impl FnOnce(&mut Printer<'_>) -> io::Result<()>,
    ) -> error::Result<()> {
        let width = self
            .settings
            .terminal_columns
            .filter(|_| self.stdout.is_terminal);
        let (is_exact, has_color) = (self.wants_exact_bytes(), self.stdout.has_color);
        let mut writer = BufWriter::with_capacity(OUTPUT_BUFFER_BYTES, &mut self.stdout);
        let mut printer = Printer {
            writer: &mut writer,
            is_exact,
            has_color,
            max_width: width,
        };
        let printed = write(&mut printer).and_then(|()| writer.flush());
        printed.map_err(|error| output_error(&error))
    }

    /// Prints an answer as JSON, whatever `--json` says.
    ///
    /// # Errors
    /// The answer cannot be written.
    pub fn print_json<T: Serialize>(&mut self, document: &T) -> error::Result<()> {
        self.print_foreign_json(&JsonEnvelope {
            schema: SCHEMA,
            document,
        })
    }

    /// Prints a JSON document of another schema than ours.
    ///
    /// # Errors
    /// The document cannot be written.
    pub fn print_foreign_json<T: Serialize>(&mut self, document: &T) -> error::Result<()> {
        let mut writer =
            BufWriter::with_capacity(OUTPUT_BUFFER_BYTES, JsonLineWriter::new(&mut self.stdout));
        serde_json::to_writer_pretty(&mut writer, document).map_err(|error| {
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
        // A full disk or a closed screen does not stop a run.
        if let Err(error) = self.stdout.write_and_flush(line.as_bytes()) {
            self.progress_error
                .get_or_insert_with(|| output_error(&error));
        }
    }

    /// Returns the first failure to write a line of progress, once.
    pub fn take_progress_error(&mut self) -> Option<Error> {
        self.progress_error.take()
    }

    /// Whether a line on standard output would not wait for a reader.
    pub fn is_writable(&self) -> bool {
        is_ready(self.stdout.descriptor, Duration::ZERO)
    }

    /// Whether the reader of standard output has closed it, also where nothing was written since.
    pub fn is_closed(&self) -> bool {
        let mut events = [PollFd::new(&self.stdout.descriptor, PollFlags::empty())];
        let has_ended = poll(&mut events, Some(&Timespec::default())).is_ok()
            && events[0]
                .revents()
                .intersects(PollFlags::ERR | PollFlags::HUP);
        self.stdout.is_closed || has_ended
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

    /// Prints a line to standard error in the words of another program.
    pub fn print_foreign_error(&mut self, text: &str) {
        let line = format!("{}\n", untrusted::visible_line(text));
        let _ = self.stderr.write_and_flush(line.as_bytes());
    }

    /// Prints an error, and its hints, while the verb goes on.
    pub fn print_failure(&mut self, error: &Error) {
        self.print_error(error.message());
        self.print_hints(error.hints());
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
                error: ErrorItem::new(error, &failure.diagnostics),
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
