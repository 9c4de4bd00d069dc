//! The errors of calls about a memory's directory.

use std::path::Path;

use crate::error::{Error, Kind};
use crate::transport::{Cause, TransportError};

pub(super) fn refused(error: Error) -> TransportError {
    TransportError::new(Cause::Refused, error)
}

pub(super) fn exists(path: &Path) -> TransportError {
    let message = format!("{} already exists", path.display());
    refused(Error::new(Kind::Internal, message))
}

pub(super) fn leased(path: &Path) -> TransportError {
    let message = format!("cannot read {}: somebody has a lease on it", path.display());
    let error = Error::new(Kind::Host, message).hint("lslocks names who has it");
    TransportError::new(Cause::Leased, error)
}

pub(super) fn moved(path: &Path) -> TransportError {
    let message = format!("{} was replaced by somebody else meanwhile", path.display());
    TransportError::new(
        Cause::Moved,
        Error::new(Kind::Conflict, message).hint("nothing was lost; run it again"),
    )
}
