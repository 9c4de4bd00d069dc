//! The debug log: what the program does and how long it takes, for an engineer who looks
//! for a hang or a slow host. Off unless `main` or the command line names a file.
//!
//! Events name agents, hosts, steps and durations, never the bytes of a memory, a secret
//! or an answer. Whatever a host or an agent wrote becomes visible text on the way out.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Mutex;

use chrono::DateTime;
use rustix::fs::Mode;
use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::base::durable::OperatorDirectory;
use crate::base::error::{Error, ErrorKind, Result, describe_io_error};
use crate::base::untrusted;

/// How much of a file is looked at, in bytes: more than a time and a level have.
const MAX_BEGINNING_BYTES: u64 = 128;

/// Writes the events of this process to a file from now on, behind what it holds.
///
/// A new file can be read by its owner alone; a symlink is not followed, nor one of another user on
/// the way. Nothing is appended to a file that does not begin as a debug log.
///
/// # Errors
/// The file cannot be opened or is another one ([`ErrorKind::User`]), or a debug log is open already.
pub fn start(path: &Path) -> Result<()> {
    let (directory, name) =
        OperatorDirectory::open_parent(path).map_err(|error| open_error(path, error.message()))?;
    let file = directory
        .open_for_append(name, Mode::RUSR | Mode::WUSR)
        .map_err(|error| open_error(path, &describe_io_error(&error)))?;
    check_appendable(&file)
        .map_err(|error| open_error(path, &describe_io_error(&error)))?
        .ok_or_else(|| {
            open_error(path, "it is not a debug log; nothing was written")
                .with_kind(ErrorKind::User)
        })?;
    tracing_subscriber::fmt()
        .with_writer(Mutex::new(LineWriter(file)))
        // The library would print failed writes to standard error: over the console, and it panics
        // where that fails as well.
        .log_internal_errors(false)
        .with_ansi(false)
        .with_max_level(LevelFilter::DEBUG)
        .with_span_events(FmtSpan::NEW | FmtSpan::CLOSE)
        .with_thread_names(true)
        .try_init()
        .map_err(|error| open_error(path, &error.to_string()))
}

/// Checks that a file is new, empty or begins as a debug log does; `None` if not. A device or FIFO
/// holds nothing.
fn check_appendable(file: &File) -> io::Result<Option<()>> {
    let meta = file.metadata()?;
    if !meta.is_file() || meta.len() == 0 {
        return Ok(Some(()));
    }
    // The very file that is open, whatever has its name now.
    let reopened = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let mut beginning = Vec::new();
    reopened
        .take(MAX_BEGINNING_BYTES)
        .read_to_end(&mut beginning)?;
    Ok(is_log_beginning(&beginning).then_some(()))
}

/// Returns whether a text begins with a time and a level, as each event does.
fn is_log_beginning(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    let mut words = text.split_ascii_whitespace();
    let is_time = |word: &str| DateTime::parse_from_rfc3339(word).is_ok();
    words.next().is_some_and(is_time) && words.next().is_some_and(|it| it.parse::<Level>().is_ok())
}

fn open_error(path: &Path, reason: &str) -> Error {
    let message = format!("cannot write the debug log {}: {reason}", path.display());
    Error::new(ErrorKind::Host, message)
        .with_hint("name another file, or leave out --debug-log and MEMORY_SHEPHERD_DEBUG_LOG")
}

/// Turns each event into one line of visible text.
struct LineWriter(File);

impl Write for LineWriter {
    /// The subscriber writes an event, which ends with a line feed, in one call.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = event.strip_suffix(b"\n").unwrap_or(event);
        let mut line = untrusted::visible_line(text);
        line.push('\n');
        self.0.write_all(line.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn event_is_one_line_of_visible_text() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("log");
        let mut writer = LineWriter(File::create(&path).unwrap());
        let escape = char::from(27);
        let event = format!("host=a{escape}[2Jb\nforged line\u{202e}\n");
        writer.write_all(event.as_bytes()).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 1, "{text:?}");
        assert!(
            !text.contains(escape) && !text.contains('\u{202e}'),
            "{text:?}"
        );
    }
}
