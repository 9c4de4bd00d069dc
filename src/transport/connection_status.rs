//! How the way to a host stands: what is known of it without asking.

use std::time::{Duration, Instant};

use chrono::{DateTime, FixedOffset};

use super::{FailureCause, TransportError};

/// Whether a host can be reached, as the last try found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reachability {
    /// It shows another key than the one that is known.
    HostKeyMismatch,
    /// It answers, and does not let us in; or our own setup does not let us try.
    Refused,
    /// It does not answer.
    Unreachable,
    /// Nobody knows yet.
    #[default]
    Unknown,
    /// There is a session.
    Connected,
}

impl Reachability {
    /// What a failure to connect means.
    pub fn from_cause(cause: FailureCause) -> Reachability {
        match cause {
            FailureCause::HostKeyMismatch => Reachability::HostKeyMismatch,
            FailureCause::Unreachable => Reachability::Unreachable,
            _ => Reachability::Refused,
        }
    }

    /// Whether the last try failed.
    pub fn is_failure(self) -> bool {
        matches!(
            self,
            Reachability::HostKeyMismatch | Reachability::Refused | Reachability::Unreachable
        )
    }
}

/// What is known of the way to a host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConnectionStatus {
    /// As the last try found.
    pub reachability: Reachability,
    /// Somebody is connecting right now.
    pub is_connecting: bool,
    /// What it wants from the operator before it lets anybody in.
    pub pending_prompt: Option<&'static str>,
    /// It asked in vain: nobody connects before the operator wants it.
    pub is_blocked: bool,
    /// Since when it has been so.
    pub since: Option<DateTime<FixedOffset>>,
    /// When it is tried again, unless somebody asks for it earlier.
    pub next_attempt: Option<DateTime<FixedOffset>>,
    /// The same by the clock that only moves forward.
    pub next_attempt_instant: Option<Instant>,
    /// Tries in a row that failed.
    pub failures: u32,
    /// How long the last reply took.
    pub latency: Option<Duration>,
    /// Why there is no session, if there is none for a reason.
    pub error: Option<TransportError>,
    /// What the server can do beside what every server can; empty before it was
    /// reached.
    pub server_features: Vec<ServerFeature>,
    /// Limits that the server tells of, by their names.
    pub server_limits: Vec<(&'static str, u64)>,
}

impl ConnectionStatus {
    /// Why there is no session, in a few words; they may be the host's.
    pub fn short_reason(&self) -> Option<String> {
        if let Some(noun) = self.pending_prompt {
            return Some(format!("wants {noun}"));
        }
        let error = self.error.as_ref()?;
        if error.cause == FailureCause::HostKeyMismatch {
            return Some("another host key".to_string());
        }
        let text = error.to_string();
        // What ssh says last says why.
        let last = text.rsplit(": ").next().unwrap_or(&text);
        Some(last.trim_end_matches('.').to_string())
    }
}

/// Something that not every server can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerFeature {
    /// What it is called.
    pub name: &'static str,
    /// Whether this one can.
    pub is_available: bool,
    /// The degradation without it.
    pub degradation: &'static str,
    /// Replacing a memory relies on it, so that needs the operator's consent.
    pub needs_consent: bool,
}

impl ServerFeature {
    /// What it means that this one cannot.
    pub fn describe_missing(&self) -> String {
        let consent = match self.needs_consent {
            true => "; nothing is reset there unless accept_degraded allows it",
            false => "",
        };
        format!("{}: {}{consent}", self.name, self.degradation)
    }
}

/// One setting of the way to a host; the value may be anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionSetting {
    /// Its name.
    pub name: String,
    /// What it comes to.
    pub value: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, ErrorKind};

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
                "box did not answer: no answer for 15 s",
                "no answer for 15 s",
            ),
            (
                FailureCause::Refused,
                "box does not let us in: me@box: Permission denied (publickey).",
                "Permission denied (publickey)",
            ),
            (
                FailureCause::HostKeyMismatch,
                "box shows another host key than the one that is known",
                "another host key",
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
