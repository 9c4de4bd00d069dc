//! Errors of a transport: a cause for the engine and a message for people.

use std::fmt;

use crate::base::error::{Error, ErrorKind};

/// The cause of a transport failure, as far as the engine acts on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureCause {
    /// The directory of the memory does not exist.
    NoDirectory,
    /// The operation was refused: permission, a read-only file system, a full disk or an I/O error.
    Refused,
    /// The agent replaced the object during the operation; try again.
    Replaced,
    /// Another process's lease keeps the file from being opened. A well-behaved holder releases it
    /// at once.
    Leased,
    /// The memory is a mount point, which no rename can replace.
    MountPoint,
    /// A memory that is written in place is half written or perhaps not on the disk, or another
    /// process's write to it may have been overwritten. The next run uses the copy and the new file
    /// beside it; retrying now would meet the same failure.
    HalfWritten,
    /// The host, or the file system, did not reply.
    Unreachable,
    /// The host shows another key than the known one, or a revoked key; nothing was read or sent.
    HostKeyMismatch,
    /// The caller's own sink failed.
    CallerFailed,
}

/// A transport error: a cause for the engine and a message for people.
#[derive(Clone, Debug, PartialEq)]
pub struct TransportError {
    /// The cause on which the engine acts.
    pub cause: FailureCause,
    error: Error,
}

impl TransportError {
    /// Creates an error with its cause.
    pub fn new(cause: FailureCause, error: Error) -> TransportError {
        TransportError { cause, error }
    }

    /// Returns the same error with a further hint.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> TransportError {
        TransportError {
            error: self.error.with_hint(hint),
            ..self
        }
    }

    /// Sets whether the cause is, or may be, that a disk or a quota is full.
    #[must_use]
    pub fn with_full_disk(self, may_be_full_disk: bool) -> TransportError {
        TransportError {
            error: self.error.with_full_disk(may_be_full_disk),
            ..self
        }
    }

    /// Returns whether the message is the same.
    pub fn has_same_message(&self, error: &Error) -> bool {
        self.error.message() == error.message()
    }

    /// Returns what the operator can do, in the order in which the hints were added.
    pub fn hints(&self) -> &[String] {
        self.error.hints()
    }

    /// Returns the kind, which decides the exit code.
    pub fn kind(&self) -> ErrorKind {
        match self.cause {
            FailureCause::CallerFailed => self.error.kind(),
            FailureCause::Replaced | FailureCause::MountPoint => ErrorKind::Conflict,
            FailureCause::HostKeyMismatch => ErrorKind::Integrity,
            _ => ErrorKind::Host,
        }
    }
}

impl From<Error> for TransportError {
    fn from(error: Error) -> TransportError {
        TransportError::new(FailureCause::CallerFailed, error)
    }
}

impl From<TransportError> for Error {
    fn from(error: TransportError) -> Error {
        let kind = error.kind();
        let is_lost = match error.cause {
            FailureCause::Unreachable | FailureCause::HostKeyMismatch => true,
            FailureCause::CallerFailed => error.error.is_host_lost(),
            _ => false,
        };
        error.error.with_kind(kind).with_lost_host(is_lost)
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}
