//! The early end of a turn, before the memory was replaced for good.

use crate::base::error::Error;
use crate::transport::{FailureCause, TransportError};

/// Why a turn ended early.
pub(super) enum EarlyEnd {
    /// The agent replaced its file during the turn; the turn can be retried.
    Replaced(Error),
    /// Another process has a lease on the memory; nothing was changed.
    Leased(Error),
    /// The memory is half written; the next run recovers it.
    HalfWritten(Error),
    /// The connection to the host was lost, so the effect of the last request is unknown.
    HostLost(Error),
    /// Any other error.
    Failed(Error),
}

impl From<Error> for EarlyEnd {
    fn from(error: Error) -> EarlyEnd {
        EarlyEnd::Failed(error)
    }
}

impl From<TransportError> for EarlyEnd {
    fn from(error: TransportError) -> EarlyEnd {
        match error.cause {
            FailureCause::Replaced => EarlyEnd::Replaced(error.into()),
            FailureCause::HalfWritten => EarlyEnd::HalfWritten(error.into()),
            FailureCause::Unreachable => EarlyEnd::HostLost(error.into()),
            _ => EarlyEnd::Failed(error.into()),
        }
    }
}
