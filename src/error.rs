//! What can go wrong, in one type: a kind that decides the exit code, a
//! sentence with the path and the cause, and hints that say what to do.
//!
//! Messages may quote foreign text (paths, lines of a config, what a server
//! said). They are plain data here; the sinks (console cells, the CLI's
//! standard error) pass every message through [`crate::untrusted`].

use std::fmt;
use std::io;
use std::path::Path;

/// The kind of an error. It alone decides the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// Some agents failed while others went on.
    Partial,
    /// The invocation is wrong: an unknown agent, a bad flag.
    User,
    /// The configuration is wrong.
    Config,
    /// A host or file could not be reached or read.
    Host,
    /// A tampered baseline, a broken seal or ledger.
    Integrity,
    /// Another run holds the lock.
    Busy,
    /// A plan no longer holds, or an act was refused for safety.
    Conflict,
    /// The user or the system asked us to stop.
    Interrupted,
    /// A fault of this program.
    Internal,
}

/// Exit codes, the most serious first: where several apply, the first wins.
/// The order and the numbers are a contract with scripts and timers.
const EXIT_CODES_BY_SEVERITY: &[(ErrorKind, u8)] = &[
    (ErrorKind::Interrupted, 130),
    (ErrorKind::Integrity, 4),
    (ErrorKind::User, 2),
    (ErrorKind::Config, 2),
    (ErrorKind::Conflict, 6),
    (ErrorKind::Busy, 5),
    (ErrorKind::Host, 3),
    (ErrorKind::Partial, 1),
    (ErrorKind::Internal, 1),
];

impl ErrorKind {
    /// The exit code of the process when this is the most serious thing that
    /// happened.
    pub fn exit_code(self) -> u8 {
        EXIT_CODES_BY_SEVERITY
            .iter()
            .find(|(kind, _)| *kind == self)
            .map_or(1, |(_, code)| *code)
    }

    /// The more serious of two kinds.
    pub fn more_serious(self, other: ErrorKind) -> ErrorKind {
        let rank = |kind: ErrorKind| EXIT_CODES_BY_SEVERITY.iter().position(|(k, _)| *k == kind);
        if rank(other) < rank(self) {
            other
        } else {
            self
        }
    }
}

/// An error with its kind, its sentence, the cause below it, and hints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    details: Vec<String>,
    hints: Vec<String>,
}

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of `kind` that reads `message`: a sentence without its full
    /// stop, naming the path and the cause.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error {
            kind,
            message: message.into(),
            details: Vec::new(),
            hints: Vec::new(),
        }
    }

    /// An operating-system error about `path`: "cannot VERB PATH: cause".
    pub fn from_io(verb: &str, path: &Path, error: &io::Error) -> Error {
        Error::new(
            ErrorKind::Host,
            format!(
                "cannot {verb} {}: {}",
                path.display(),
                describe_io_error(error)
            ),
        )
    }

    /// Adds what the operator can do about it.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Error {
        self.hints.push(hint.into());
        self
    }

    /// Adds one of several things that are wrong, in a line of its own.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Error {
        self.details.push(detail.into());
        self
    }

    /// The same error under another kind, for a caller who knows better what
    /// the failure means.
    #[must_use]
    pub fn with_kind(mut self, kind: ErrorKind) -> Error {
        self.kind = kind;
        self
    }

    /// Puts "context: " before the message.
    #[must_use]
    pub fn with_context(mut self, context: impl fmt::Display) -> Error {
        self.message = format!("{context}: {}", self.message);
        self
    }

    /// What kind of error this is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The sentence, without hints.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What is wrong, thing by thing, where the message only counts them.
    pub fn details(&self) -> &[String] {
        &self.details
    }

    /// What the operator can do, in the order in which it was added.
    pub fn hints(&self) -> &[String] {
        &self.hints
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// An operating-system error as a lower-case phrase without the `(os error N)`
/// that the standard library appends.
pub fn describe_io_error(error: &io::Error) -> String {
    let text = error.to_string();
    let text = match text.find(" (os error") {
        Some(end) => &text[..end],
        None => &text,
    };
    let mut chars = text.chars();
    match chars.next() {
        // "No such file" reads on after a colon; "I/O error" keeps its capitals.
        Some(first) if chars.as_str().starts_with(|c: char| c.is_lowercase()) => {
            first.to_lowercase().chain(chars).collect()
        }
        _ => text.to_string(),
    }
}

/// Adds the path and the verb to an [`io::Result`].
pub trait PathContext<T> {
    /// Turns an error into "cannot VERB PATH: cause".
    fn with_path(self, verb: &str, path: &Path) -> Result<T>;
}

impl<T> PathContext<T> for io::Result<T> {
    fn with_path(self, verb: &str, path: &Path) -> Result<T> {
        self.map_err(|error| Error::from_io(verb, path, &error))
    }
}

impl<T> PathContext<T> for rustix::io::Result<T> {
    fn with_path(self, verb: &str, path: &Path) -> Result<T> {
        self.map_err(|errno| Error::from_io(verb, path, &errno.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_match_documentation() {
        let code = |kind: ErrorKind| kind.exit_code();
        assert_eq!(
            [
                code(ErrorKind::Partial),
                code(ErrorKind::User),
                code(ErrorKind::Config),
                code(ErrorKind::Host),
                code(ErrorKind::Integrity),
                code(ErrorKind::Busy),
                code(ErrorKind::Conflict),
                code(ErrorKind::Interrupted),
            ],
            [1, 2, 2, 3, 4, 5, 6, 130]
        );
    }

    #[test]
    fn worst_kind_follows_documented_order() {
        // 4, 2, 6, 5, 3, 1
        let order = [
            ErrorKind::Integrity,
            ErrorKind::Config,
            ErrorKind::Conflict,
            ErrorKind::Busy,
            ErrorKind::Host,
            ErrorKind::Partial,
        ];
        for pair in order.windows(2) {
            assert_eq!(pair[0].more_serious(pair[1]), pair[0]);
            assert_eq!(pair[1].more_serious(pair[0]), pair[0]);
        }
    }

    #[test]
    fn io_error_message_names_operation_path_and_cause() {
        let error = io::Error::from_raw_os_error(libc::ENOENT);
        let error = Error::from_io("read", Path::new("/a/b"), &error);
        assert_eq!(
            error.to_string(),
            "cannot read /a/b: no such file or directory"
        );
    }
}
