//! Errors of calls on a memory's directory.

use std::path::Path;

use rustix::process::geteuid;

use crate::base::error::{Error, ErrorKind, PathContext};
use crate::transport::{FailureCause, TransportError};

/// Errors of system calls as refusals.
pub(super) trait RefusalContext<T> {
    /// Converts an error to the refusal "cannot VERB PATH: cause".
    fn or_refused(self, verb: &str, path: &Path) -> Result<T, TransportError>;
}

impl<T, R: PathContext<T>> RefusalContext<T> for R {
    fn or_refused(self, verb: &str, path: &Path) -> Result<T, TransportError> {
        self.with_path(verb, path).map_err(refused_error)
    }
}

pub(super) fn refused_error(error: Error) -> TransportError {
    TransportError::new(FailureCause::Refused, error)
}

pub(super) fn exists_error(path: &Path) -> TransportError {
    let message = format!("{} already exists", path.display());
    refused_error(Error::new(ErrorKind::Internal, message))
}

pub(super) fn leased_error(path: &Path) -> TransportError {
    let message = format!(
        "cannot read {}: another process holds a lease on it",
        path.display()
    );
    let error = Error::new(ErrorKind::Host, message).with_hint("find that process with lslocks");
    TransportError::new(FailureCause::Leased, error)
}

pub(super) fn replaced_error(path: &Path) -> TransportError {
    let message = format!("{} was replaced by another process", path.display());
    TransportError::new(
        FailureCause::Replaced,
        Error::new(ErrorKind::Conflict, message)
            .with_hint("nothing was lost; run the command again"),
    )
}

/// The error for a memory whose directory this process may not write.
pub(super) fn unwritable_directory_error(memory: &Path) -> Error {
    let message = format!(
        "cannot replace {}: user id {} may not write its directory",
        memory.display(),
        geteuid().as_raw()
    );
    Error::new(ErrorKind::Host, message).with_hint("run as root, or as the user of the directory")
}

/// The error for a memory, present or new, whose owner or group, as [`describe_refused_owner`] returns it, this process may
/// not give to a new file.
pub(super) fn ownership_error(memory: &Path, owner: &str) -> Error {
    let message = format!(
        "cannot write {} as a file of {owner}, which this process may not give to a new file",
        memory.display()
    );
    Error::new(ErrorKind::Host, message)
        .with_hint("run as root, or as the user of the file and a member of its group")
}
