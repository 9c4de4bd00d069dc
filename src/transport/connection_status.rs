//! The state of the connection to a host, as known without I/O.

use std::time::{Duration, Instant};

use chrono::{DateTime, FixedOffset};

use super::{FailureCause, TransportError};

/// Reachability of a host, as of the last connection attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reachability {
    /// The host shows another key than the known one.
    HostKeyMismatch,
    /// The host replies and denies access, or the local setup prevents the attempt.
    Refused,
    /// The host does not reply.
    Unreachable,
    /// No attempt so far.
    #[default]
    Unknown,
    /// There is a session.
    Connected,
}

impl Reachability {
    /// Returns the reachability after a failed attempt with this cause.
    pub fn from_cause(cause: FailureCause) -> Reachability {
        match cause {
            FailureCause::HostKeyMismatch => Reachability::HostKeyMismatch,
            FailureCause::Unreachable => Reachability::Unreachable,
            _ => Reachability::Refused,
        }
    }

    /// Returns whether the last attempt failed.
    pub fn is_failure(self) -> bool {
        matches!(
            self,
            Reachability::HostKeyMismatch | Reachability::Refused | Reachability::Unreachable
        )
    }
}

/// The state of the connection to a host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConnectionStatus {
    /// Result of the last attempt.
    pub reachability: Reachability,
    /// An attempt is running.
    pub is_connecting: bool,
    /// Short name of the secret or decision that the host requires from the operator.
    pub pending_prompt: Option<&'static str>,
    /// The prompt went unanswered: no further attempt before the operator unblocks the host.
    pub is_blocked: bool,
    /// Start of the current reachability.
    pub since: Option<DateTime<FixedOffset>>,
    /// Time of the next attempt, unless an earlier one is requested.
    pub next_attempt: Option<DateTime<FixedOffset>>,
    /// The same time on the monotonic clock.
    pub next_attempt_instant: Option<Instant>,
    /// Number of failed attempts in a row.
    pub failures: u32,
    /// Duration of the last round trip.
    pub latency: Option<Duration>,
    /// The reason why there is no session, if the last attempt or session failed.
    pub error: Option<TransportError>,
    /// Features of the server beyond the base protocol; empty before the first connection.
    pub server_features: Vec<ServerFeature>,
    /// Limits that the server announced, by name.
    pub server_limits: Vec<(&'static str, u64)>,
}

impl ConnectionStatus {
    /// Returns how many files the server lets this connection have open, if it says so.
    pub fn max_open_files(&self) -> Option<u64> {
        let mut limits = self.server_limits.iter();
        limits
            .find(|(name, _)| *name == HANDLE_LIMIT)
            .map(|it| it.1)
    }

    /// Returns in a few words why there is no session; the words may be the host's.
    pub fn short_reason(&self) -> Option<String> {
        if let Some(noun) = self.pending_prompt {
            return Some(format!("wants {noun}"));
        }
        let error = self.error.as_ref()?;
        if error.cause == FailureCause::HostKeyMismatch {
            return Some("host key changed".to_string());
        }
        let text = error.to_string();
        // The last clause of ssh's message has the reason.
        let last = text.rsplit(": ").next().unwrap_or(&text);
        Some(last.trim_end_matches('.').to_string())
    }
}

/// Name of the limit of open files in [`ConnectionStatus::server_limits`].
pub const HANDLE_LIMIT: &str = "handles";

/// An optional feature of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerFeature {
    /// Name of the feature.
    pub name: &'static str,
    /// Whether this server has it.
    pub is_available: bool,
    /// The degradation without it.
    pub degradation: &'static str,
    /// Whether replacing a memory relies on it, so that its absence needs the operator's consent.
    pub needs_consent: bool,
}

impl ServerFeature {
    /// Returns the effect of its absence.
    pub fn describe_missing(&self) -> String {
        let consent = if self.needs_consent {
            "; nothing is reset there unless accept_degraded allows it"
        } else {
            ""
        };
        format!("{}: {}{consent}", self.name, self.degradation)
    }
}

/// One setting of the connection; the value is arbitrary text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionSetting {
    /// Name of the setting.
    pub name: String,
    /// Effective value.
    pub value: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::{Error, ErrorKind};

    #[test]
    fn reason_is_the_last_clause_of_the_error() {
        for (cause, message, expected) in [
            (
                FailureCause::Unreachable,
                "box cannot be reached: ssh: connect to host box port 22: Connection refused",
                "Connection refused",
            ),
            (
                FailureCause::Unreachable,
                "box did not answer: no reply for 15 s",
                "no reply for 15 s",
            ),
            (
                FailureCause::Refused,
                "box: access denied: me@box: Permission denied (publickey).",
                "Permission denied (publickey)",
            ),
            (
                FailureCause::HostKeyMismatch,
                "box: host key changed or revoked; nothing was read or sent",
                "host key changed",
            ),
        ] {
            let error = TransportError::new(cause, Error::new(ErrorKind::Host, message));
            let contact = ConnectionStatus {
                error: Some(error),
                ..ConnectionStatus::default()
            };
            assert_eq!(contact.short_reason().as_deref(), Some(expected));
        }
        assert_eq!(ConnectionStatus::default().short_reason(), None);
    }
}
