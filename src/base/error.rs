//! The error type of the crate: a kind that decides the exit code, a message with path and cause,
//! and hints that say what to do.
//!
//! Messages may quote foreign text (paths, lines of a config, replies of a server) and are plain
//! data here; the console cells and the standard error of the command line pass every message
//! through [`crate::base::untrusted`].

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The kind of an error. It alone decides the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// Some agents failed while others went on.
    Partial,
    /// The command line is wrong: an unknown agent, a bad flag.
    User,
    /// The configuration is wrong.
    Config,
    /// A host or file cannot be reached or read.
    Host,
    /// Integrity: a tampered baseline, a changed host key, a broken seal or ledger.
    Integrity,
    /// Another run holds the lock.
    Busy,
    /// The plan has changed, or an operation was refused for safety.
    Conflict,
    /// A signal of the user or the system stopped the run.
    Interrupted,
    /// A bug of this program.
    Internal,
}

/// Exit codes, most serious first: where several apply, the first is used. Scripts and timers rely
/// on the order and the numbers.
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
    /// Returns the exit code of a process whose most serious error has this kind.
    pub fn exit_code(self) -> u8 {
        EXIT_CODES_BY_SEVERITY
            .iter()
            .find(|(kind, _)| *kind == self)
            .map_or(1, |(_, code)| *code)
    }

    /// Returns the more serious of two kinds.
    pub fn more_serious(self, other: ErrorKind) -> ErrorKind {
        let rank = |kind: ErrorKind| EXIT_CODES_BY_SEVERITY.iter().position(|(k, _)| *k == kind);
        if rank(other) < rank(self) {
            other
        } else {
            self
        }
    }
}

/// An error with its kind, message, details and hints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    details: Vec<String>,
    hints: Vec<String>,
    may_be_full_disk: bool,
    is_host_lost: bool,
    /// Boxed, because they are rare and large.
    rare: Option<Box<RareFacts>>,
}

/// What few errors have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct RareFacts {
    full_disk: Option<FullDisk>,
    reason: Option<&'static str>,
}

/// A disk of this machine that is full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FullDisk {
    /// The file that could not be written.
    pub path: PathBuf,
    /// Whether the quota of a user or a group is used up, rather than the disk.
    pub is_quota: bool,
}

/// Result of the fallible functions of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Creates an error. `message` names the path and the cause, and has no full stop.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error {
            kind,
            message: message.into(),
            details: Vec::new(),
            hints: Vec::new(),
            may_be_full_disk: false,
            is_host_lost: false,
            rare: None,
        }
    }

    /// Creates an error from an operating-system error: "cannot VERB PATH: cause".
    pub fn from_io(verb: &str, path: &Path, error: &io::Error) -> Error {
        let is_quota = error.kind() == io::ErrorKind::QuotaExceeded;
        let is_full = is_quota || error.kind() == io::ErrorKind::StorageFull;
        let message = format!(
            "cannot {verb} {}: {}",
            path.display(),
            describe_io_error(error)
        );
        Error {
            rare: is_full.then(|| {
                let path = path.to_path_buf();
                Box::new(RareFacts {
                    full_disk: Some(FullDisk { path, is_quota }),
                    ..RareFacts::default()
                })
            }),
            ..Error::new(ErrorKind::Host, message).with_full_disk(is_full)
        }
    }

    /// Creates the error for a thread that the system refuses.
    pub fn from_thread_start(error: &io::Error) -> Error {
        Error::new(
            ErrorKind::Host,
            format!(
                "cannot start a thread: {}; close other programs of this user or raise \
                 `ulimit -u`, then try again",
                describe_io_error(error)
            ),
        )
    }

    /// Adds a hint: what the operator can do.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Error {
        self.hints.push(hint.into());
        self
    }

    /// Adds a detail: one of several faults, on a line of its own.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Error {
        self.details.push(detail.into());
        self
    }

    /// Replaces the kind, for a caller that knows better what the failure means.
    #[must_use]
    pub fn with_kind(mut self, kind: ErrorKind) -> Error {
        self.kind = kind;
        self
    }

    /// Sets whether the cause is, or may be, that a disk or a quota is full.
    #[must_use]
    pub fn with_full_disk(mut self, may_be_full_disk: bool) -> Error {
        self.may_be_full_disk = may_be_full_disk;
        if let Some(rare) = self.rare.as_mut().filter(|_| !may_be_full_disk) {
            rare.full_disk = None;
        }
        self
    }

    /// Sets whether the cause is that a host, or a file system, did not answer or has another key.
    #[must_use]
    pub fn with_lost_host(mut self, is_host_lost: bool) -> Error {
        self.is_host_lost = is_host_lost;
        self
    }

    /// Prepends "context: " to the message.
    #[must_use]
    pub fn with_context(mut self, context: impl fmt::Display) -> Error {
        self.message = format!("{context}: {}", self.message);
        self
    }

    /// Sets the word that tells it from other errors of its kind.
    #[must_use]
    pub fn with_reason(mut self, reason: &'static str) -> Error {
        self.rare.get_or_insert_default().reason = Some(reason);
        self
    }

    /// Returns the word that tells it from other errors of its kind, if it has one.
    pub fn reason(&self) -> Option<&'static str> {
        self.rare.as_ref()?.reason
    }

    /// Returns the kind.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns whether the cause is, or may be, that a disk or a quota is full.
    pub fn may_be_full_disk(&self) -> bool {
        self.may_be_full_disk
    }

    /// Returns the full disk, if that is the cause and it is one of this machine.
    pub fn full_disk(&self) -> Option<&FullDisk> {
        self.rare.as_ref()?.full_disk.as_ref()
    }

    /// Returns whether the cause is that a host, or a file system, did not answer or has another key.
    pub fn is_host_lost(&self) -> bool {
        self.is_host_lost
    }

    /// Returns the message without hints.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the details: the faults one by one, where the message only counts them.
    pub fn details(&self) -> &[String] {
        &self.details
    }

    /// Returns the hints, in the order in which they were added.
    pub fn hints(&self) -> &[String] {
        &self.hints
    }

    /// Formats the error with its hints in one line.
    pub fn to_line(&self) -> String {
        let mut text = self.to_string().replace('\n', " ");
        for hint in self.hints() {
            text.push_str(&format!("; {hint}"));
        }
        text
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// Describes an operating-system error as a lower-case phrase, without the `(os error N)` that the
/// standard library appends. One that this program made from a kind alone has the phrase of the
/// system, too: that of the standard library is about an "entity".
pub fn describe_io_error(error: &io::Error) -> String {
    let is_kind_alone = error.raw_os_error().is_none() && error.get_ref().is_none();
    let number = match error.kind() {
        io::ErrorKind::AlreadyExists => Some(libc::EEXIST),
        io::ErrorKind::NotFound => Some(libc::ENOENT),
        io::ErrorKind::PermissionDenied => Some(libc::EACCES),
        io::ErrorKind::WouldBlock => Some(libc::EAGAIN),
        io::ErrorKind::FileTooLarge => Some(libc::EFBIG),
        io::ErrorKind::InvalidInput => Some(libc::EINVAL),
        io::ErrorKind::WriteZero => Some(libc::EIO),
        _ => None,
    };
    let text = match number.filter(|_| is_kind_alone) {
        Some(number) => io::Error::from_raw_os_error(number).to_string(),
        None => error.to_string(),
    };
    let text = match text.find(" (os error") {
        Some(end) => &text[..end],
        None => &text,
    };
    let mut chars = text.chars();
    match chars.next() {
        // "No such file" starts in lower case after a colon; "I/O error" keeps its capitals.
        Some(first) if chars.as_str().starts_with(|c: char| c.is_lowercase()) => {
            first.to_lowercase().chain(chars).collect()
        }
        _ => text.to_string(),
    }
}

/// Adds a verb and a path to an [`io::Result`].
pub trait PathContext<T> {
    /// Converts an error to "cannot VERB PATH: cause".
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
    fn io_error_of_a_kind_alone_reads_like_the_systems() {
        for (kind, phrase) in [
            (io::ErrorKind::AlreadyExists, "file exists"),
            (io::ErrorKind::NotFound, "no such file or directory"),
            (
                io::ErrorKind::WouldBlock,
                "resource temporarily unavailable",
            ),
            (io::ErrorKind::FileTooLarge, "file too large"),
        ] {
            assert_eq!(describe_io_error(&kind.into()), phrase);
        }
        let own = io::Error::new(io::ErrorKind::AlreadyExists, "a lock is there");
        assert_eq!(describe_io_error(&own), "a lock is there");
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
