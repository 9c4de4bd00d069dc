//! The channels on which an event goes out: a program, an address, the journal. Each attempt is bounded in
//! time and in what it reads, so that a channel that hangs, fails or floods does no harm.

mod journal;
mod post;
mod program;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::event::AlertEvent;
use super::outbox::AlertChannel;
use super::{AlertEnvironment, UntrustedCommand};
use crate::base::clock::Clock;
use crate::config::{AlertSettings, JournalTarget};
use post::Post;
use program::ProgramRun;

/// Time limit of one attempt on one channel.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);

/// An attempt that would have less time is not begun.
pub(super) const MIN_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);

/// Interval at which an attempt looks for its end or its cancellation.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Why an attempt failed that was cancelled.
const CANCELLED: &str = "stopped before its end";

/// Sends events.
pub(super) struct ChannelSender<'a> {
    pub settings: &'a AlertSettings,
    pub clock: &'a dyn Clock,
    pub environment: &'a AlertEnvironment,
    /// Ends attempts early.
    pub is_cancelled: &'a dyn Fn() -> bool,
}

/// The result of one attempt on one channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AttemptResult {
    /// The channel.
    pub channel: AlertChannel,
    /// Where it leads: a program, an address without its path, or a socket.
    pub target: String,
    /// Why it failed; none if it did not.
    pub error: Option<String>,
    /// Its duration, in milliseconds.
    pub duration_ms: u64,
}

impl ChannelSender<'_> {
    /// Sends an event on some channels. Those that have no time before `end` are left out.
    pub fn send(
        &self,
        event: &AlertEvent,
        waiting: usize,
        channels: &BTreeSet<AlertChannel>,
        end: Instant,
    ) -> Vec<AttemptResult> {
        let json = event.to_json(waiting);
        let attempts = channels.iter().filter_map(|channel| {
            let began = self.clock.instant();
            let left = end.saturating_duration_since(began);
            if left < MIN_ATTEMPT_TIMEOUT {
                return None;
            }
            let timeout = ATTEMPT_TIMEOUT.min(left);
            let (target, result) = match channel {
                AlertChannel::Command => self.run_program(&json, timeout)?,
                AlertChannel::Url => self.post(&json, timeout)?,
                AlertChannel::Journal => self.write_journal(event)?,
            };
            let passed = self.clock.instant().saturating_duration_since(began);
            Some(AttemptResult {
                channel: *channel,
                target,
                error: result.err(),
                duration_ms: u64::try_from(passed.as_millis()).unwrap_or(u64::MAX),
            })
        });
        attempts.collect()
    }

    fn run_program(&self, json: &str, timeout: Duration) -> Option<(String, Result<(), String>)> {
        let words = self.settings.command.as_ref()?;
        let (program, arguments) = words.split_first()?;
        if let Some(untrusted) = UntrustedCommand::find(self.settings, self.environment) {
            let text = format!("{}; {}", untrusted.message(), untrusted.hint());
            return Some((program.clone(), Err(text)));
        }
        let run = ProgramRun {
            program,
            arguments,
            directory: &self.settings.directory,
            search_path: &self.environment.search_path,
            timeout,
            clock: self.clock,
            is_cancelled: self.is_cancelled,
        };
        Some((program.clone(), run.run(json.as_bytes())))
    }

    fn post(&self, json: &str, timeout: Duration) -> Option<(String, Result<(), String>)> {
        let url = self.settings.url.as_ref()?;
        let post = Post {
            url: url.clone(),
            json: json.to_string(),
            timeout,
            certificate_file: self.environment.certificate_file.clone(),
        };
        Some((post::origin(url), post.run(self.is_cancelled)))
    }

    fn write_journal(&self, event: &AlertEvent) -> Option<(String, Result<(), String>)> {
        match &self.settings.journal {
            JournalTarget::None => None,
            JournalTarget::Socket(path) => Some((
                path.display().to_string(),
                journal::write_to_journal(path, event),
            )),
            JournalTarget::System if Path::new(journal::JOURNAL_SOCKET).exists() => Some((
                journal::JOURNAL_SOCKET.to_string(),
                journal::write_to_journal(journal::JOURNAL_SOCKET.as_ref(), event),
            )),
            JournalTarget::System => {
                let socket = Path::new(journal::SYSLOG_SOCKET);
                let result = journal::write_to_syslog(socket, event, std::process::id());
                Some((journal::SYSLOG_SOCKET.to_string(), result))
            }
        }
    }
}
