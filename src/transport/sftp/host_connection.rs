//! The connection to one host: the session that all callers share, and its state.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use chrono::{DateTime, FixedOffset, Timelike};

use super::askpass::ConnectAttempt;
use super::batch_read;
use super::chunked_read::MAX_FILE_BYTES;
use super::client::SftpClient;
use super::directory::SftpDirectory;
use super::session::{Deadline, Session};
use super::ssh::{ChildGuard, Connector, SftpStream, SshChild, explain_session_error};
use super::wire::{ServerExtensions, ServerLimits};
use crate::clock::{Clock, SystemClock};
use crate::config::{SftpExtension, SshHost};
use crate::error::{Error, ErrorKind};
use crate::transport::{
    BatchSink, ConnectionSetting, ConnectionStatus, FailureCause, FileMetadata, HANDLE_LIMIT,
    MemoryDirectory, MemoryObject, Reachability, ServerFeature, Transport, TransportError,
};

/// First pause after a failed attempt; it doubles with each further failure.
const MIN_RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// A session that ends earlier counts as a failed attempt, except the first in a row.
const MIN_SESSION_DURATION: Duration = Duration::from_secs(30);

/// Upper limit of the pause.
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(120);

/// Interval at which callers that wait for a connection check for a pending question.
const PROMPT_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The transport to a host.
pub struct SftpTransport(Arc<HostConnection>);

/// The connection to a host and what callers need to open it.
struct HostConnection {
    host: SshHost,
    connector: Arc<dyn Connector>,
    clock: Arc<dyn Clock>,
    state: Mutex<HostState>,
    state_changed: Condvar,
}

/// The state of a connection.
#[derive(Default)]
struct HostState {
    phase: ConnectPhase,
    /// Result of the last finished attempt.
    reachability: Reachability,
    /// Start of that reachability.
    reachability_since: Option<DateTime<FixedOffset>>,
    /// Number of failed attempts in a row.
    failures: u32,
    /// The reason why there is no session.
    error: Option<TransportError>,
    /// Whether a background thread retries, so that other callers do not wait for a host that
    /// failed.
    is_retried_in_background: bool,
    /// Set by `close`: no further attempt.
    is_closed: bool,
    /// The process of the session, or of the attempt that is running.
    child_guard: Option<ChildGuard>,
    /// A session that ended, kept until the next attempt.
    ended_client: Option<Arc<SftpClient>>,
    /// Start of the session.
    session_start: Option<Instant>,
    /// Number of short sessions in a row.
    short_sessions: u32,
}

/// The phase of a connection.
#[derive(Default)]
enum ConnectPhase {
    /// No attempt yet, or the session was lost and may be opened again.
    #[default]
    Idle,
    /// An attempt is running; other callers wait for its result, but not for the answer to a
    /// question.
    Connecting(Option<ConnectAttempt>),
    Connected(Arc<SftpClient>),
    /// No attempt before `until`.
    Paused {
        until: Instant,
        next_attempt: DateTime<FixedOffset>,
    },
}

impl SftpTransport {
    /// Creates the transport without connecting.
    pub fn new(
        host: SshHost,
        connector: Arc<dyn Connector>,
        clock: Arc<dyn Clock>,
    ) -> SftpTransport {
        SftpTransport(Arc::new(HostConnection {
            host,
            connector,
            clock,
            state: Mutex::default(),
            state_changed: Condvar::new(),
        }))
    }

    /// Closes the session and asks its process to exit. Does not wait.
    pub(super) fn close(&self) {
        self.0.close();
    }

    /// Returns whether [`SftpTransport::close`] was called.
    pub(super) fn is_closed(&self) -> bool {
        self.0.lock_current_state().is_closed
    }

    /// Returns whether the process has exited and no other is being started; meaningful after
    /// [`SftpTransport::close`].
    pub(super) fn has_process_exited(&self) -> bool {
        let state = self.0.lock_current_state();
        let connecting = matches!(state.phase, ConnectPhase::Connecting(_));
        !connecting
            && state
                .child_guard
                .as_ref()
                .is_none_or(ChildGuard::has_exited)
    }

    /// Kills the process.
    pub(super) fn kill_process(&self) {
        let child_guard = self.0.lock_current_state().child_guard.take();
        if let Some(child_guard) = child_guard {
            child_guard.kill();
        }
    }
}

impl Drop for SftpTransport {
    fn drop(&mut self) {
        if let ConnectPhase::Connecting(Some(attempt)) = &self.0.lock_current_state().phase {
            attempt.abandon();
        }
    }
}

impl HostConnection {
    /// Locks the state, after taking note of a session that has ended.
    fn lock_current_state(&self) -> MutexGuard<'_, HostState> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let ConnectPhase::Connected(connection) = &state.phase
            && let Some(session_error) = connection.session.end_error()
        {
            let why = explain_session_error(&self.host, &session_error);
            // Dropping it takes until its process has exited, so it is not dropped under this lock.
            state.ended_client = Some(Arc::clone(connection));
            state.phase = ConnectPhase::Idle;
            state.child_guard.iter().for_each(ChildGuard::terminate);
            state.set_reachability(Reachability::from_cause(why.cause), &*self.clock);
            state.error = Some(why);
            let now = self.clock.instant();
            let short = |begun: Instant| now.duration_since(begun) < MIN_SESSION_DURATION;
            state.short_sessions = if state.session_start.take().is_some_and(short) {
                state.short_sessions.saturating_add(1)
            } else {
                0
            };
            // A host that accepts sessions and ends them at once gets a pause as well.
            if state.short_sessions > 1 {
                state.failures = state.short_sessions - 1;
                state.phase = self.pause_after_failures(state.failures);
            }
        }
        state
    }

    /// Returns the session, connecting if there is none. Concurrent callers wait for the same
    /// attempt. A failed host that is retried in the background is left to that retry.
    fn client_or_connect(
        self: &Arc<HostConnection>,
        is_background_retry: bool,
    ) -> Result<Arc<SftpClient>, TransportError> {
        let mut state = self.lock_current_state();
        state.is_retried_in_background |= is_background_retry;
        loop {
            if state.is_closed {
                return Err(self.closed_error());
            }
            let is_left_to_retrier =
                state.is_retried_in_background && !is_background_retry && state.failures > 0;
            match (&state.phase, &state.error) {
                (ConnectPhase::Connected(connection), _) => return Ok(Arc::clone(connection)),
                (
                    ConnectPhase::Paused { .. } | ConnectPhase::Connecting(_) | ConnectPhase::Idle,
                    Some(why),
                ) if is_left_to_retrier => {
                    return Err(why.clone());
                }
                (ConnectPhase::Paused { until, .. }, Some(why))
                    if self.clock.instant() < *until =>
                {
                    return Err(why.clone());
                }
                (ConnectPhase::Connecting(attempt), _) => {
                    state = self.wait_while_connecting(attempt.clone(), state)?
                }
                (ConnectPhase::Paused { .. } | ConnectPhase::Idle, _) => break,
            }
        }
        state.phase = ConnectPhase::Connecting(None);
        let lost = state.ended_client.take();
        drop(state);
        drop(lost);
        tracing::debug!(host = self.host.authority(), "connect");
        let stream = self.connector.connect(&self.host);
        let child = stream.as_ref().ok().and_then(|it| it.child.as_ref());
        let Some(attempt) = child.and_then(SshChild::attempt).cloned() else {
            let until = SystemClock.instant() + self.reply_timeout();
            return self
                .finish_connecting(stream.and_then(|stream| self.start_client(stream, until)));
        };
        // The host may ask a question, and no caller here may wait for the answer.
        self.lock_current_state().phase = ConnectPhase::Connecting(Some(attempt.clone()));
        self.state_changed.notify_all();
        let host_connection = Arc::clone(self);
        let thread = thread::Builder::new().name("ssh".into()).spawn(move || {
            let connected =
                stream.and_then(|stream| host_connection.start_client(stream, attempt.clone()));
            let _ = host_connection.finish_connecting(connected);
            attempt.report_finished(&host_connection.host);
        });
        match thread {
            Ok(_) => self.wait_for_outcome(),
            Err(error) => {
                let message = format!("cannot start a thread for ssh: {error}");
                let error = Error::new(ErrorKind::Host, message);
                self.finish_connecting(Err(TransportError::new(FailureCause::Unreachable, error)))
            }
        }
    }

    /// Waits for the result of the attempt, unless it waits for the answer to a question.
    fn wait_for_outcome(&self) -> Result<Arc<SftpClient>, TransportError> {
        let mut state = self.lock_current_state();
        loop {
            state = match (&state.phase, &state.error) {
                (ConnectPhase::Connected(connection), _) => return Ok(Arc::clone(connection)),
                (ConnectPhase::Connecting(attempt), _) => {
                    self.wait_while_connecting(attempt.clone(), state)?
                }
                (ConnectPhase::Paused { .. } | ConnectPhase::Idle, Some(why)) => {
                    return Err(why.clone());
                }
                (ConnectPhase::Paused { .. } | ConnectPhase::Idle, None) => {
                    return Err(self.closed_error());
                }
            };
        }
    }

    /// Waits a moment while an attempt is running; fails if it waits for the answer to a question.
    fn wait_while_connecting<'l>(
        &'l self,
        attempt: Option<ConnectAttempt>,
        state: MutexGuard<'l, HostState>,
    ) -> Result<MutexGuard<'l, HostState>, TransportError> {
        if let Some(why) = attempt
            .as_ref()
            .and_then(ConnectAttempt::pending_question_error)
        {
            return Err(why);
        }
        let woken = self.state_changed.wait_timeout(state, PROMPT_POLL_INTERVAL);
        Ok(woken.unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Records the result of an attempt and wakes the callers that wait for it.
    fn finish_connecting(
        &self,
        connected: Result<SftpClient, TransportError>,
    ) -> Result<Arc<SftpClient>, TransportError> {
        let connected = connected
            .map(Arc::new)
            .map_err(|why| self.explain_missing_key(why));
        let mut state = self.lock_current_state();
        let connected = match connected {
            Ok(_) if state.is_closed => Err(self.closed_error()),
            connected => connected,
        };
        match &connected {
            Ok(connection) => {
                state.phase = ConnectPhase::Connected(Arc::clone(connection));
                state.set_reachability(Reachability::Connected, &*self.clock);
                state.failures = 0;
                state.error = None;
                state.session_start = Some(self.clock.instant());
            }
            Err(why) => {
                state.phase = if self.connector.is_blocked(&self.host) {
                    // A blocked connector fails without asking the host, so a pause would spare
                    // nothing.
                    self.pause_for(Duration::ZERO)
                } else {
                    state.failures = state.failures.saturating_add(1);
                    self.pause_after_failures(state.failures)
                };
                state.set_reachability(Reachability::from_cause(why.cause), &*self.clock);
                state.error = Some(why.clone());
                state.child_guard = None;
            }
        }
        drop(state);
        self.state_changed.notify_all();
        connected
    }

    /// Adds a hint if the identity file is missing: ssh does not report that and goes on without
    /// one.
    fn explain_missing_key(&self, why: TransportError) -> TransportError {
        let key = self.host.identity_file.iter();
        let mut absent = key.filter(|key| matches!(key.try_exists(), Ok(false)));
        match (why.cause, absent.next()) {
            (FailureCause::Refused, Some(key)) => {
                why.with_hint(format!("identity_file {} does not exist", key.display()))
            }
            _ => why,
        }
    }

    /// Returns the time limit of connecting and of a reply.
    fn reply_timeout(&self) -> Duration {
        Duration::from_secs(self.host.timeout_seconds.max(1).into())
    }

    /// Returns the pause after this number of failures.
    fn pause_after_failures(&self, failures: u32) -> ConnectPhase {
        self.pause_for(self.retry_interval(failures))
    }

    fn pause_for(&self, pause: Duration) -> ConnectPhase {
        ConnectPhase::Paused {
            until: self.clock.instant() + pause,
            next_attempt: self.clock.now() + pause,
        }
    }

    /// Returns the length of the pause after this number of failures. It varies by host, so that
    /// the hosts behind one dead router are not all tried at once.
    fn retry_interval(&self, failures: u32) -> Duration {
        let doubled = MIN_RETRY_INTERVAL.saturating_mul(1 << (failures - 1).min(16));
        let mut hasher = DefaultHasher::new();
        (&self.host, failures, self.clock.now().nanosecond()).hash(&mut hasher);
        let share = 75 + (hasher.finish() % 51) as u32;
        doubled.min(MAX_RETRY_INTERVAL) * share / 100
    }

    fn closed_error(&self) -> TransportError {
        let message = format!("{}: the connection is closed", self.host.name);
        TransportError::new(
            FailureCause::Unreachable,
            Error::new(ErrorKind::Host, message),
        )
    }

    fn start_client(
        &self,
        stream: SftpStream,
        until: impl Deadline + 'static,
    ) -> Result<SftpClient, TransportError> {
        let SftpStream { pipes: link, child } = stream;
        {
            let mut state = self.lock_current_state();
            state.child_guard = child.as_ref().map(SshChild::guard);
            if state.is_closed {
                state.child_guard.iter().for_each(ChildGuard::terminate);
                return Err(self.closed_error());
            }
        }
        // The limit for connecting also applies to each reply, by the system clock, which the
        // session waits by whatever clock this connection has.
        let session = Session::start_with_timeout(link, until, self.reply_timeout())
            .map_err(|session_error| explain_session_error(&self.host, &session_error));
        let session = match child.as_ref().and_then(SshChild::attempt) {
            Some(attempt) => attempt.explain_outcome(session)?,
            None => session?,
        };
        let mut connection = SftpClient {
            host: self.host.clone(),
            extensions: session.extensions(),
            limits: None,
            session,
            home_directory: PathBuf::new(),
            _child: child,
        };
        connection.home_directory = connection.resolve_path(b".")?;
        // The session requested them earlier, so they have arrived by now.
        connection.limits = connection.session.limits();
        Ok(connection)
    }

    fn close(&self) {
        let mut state = self.lock_current_state();
        state.is_closed = true;
        if let ConnectPhase::Connected(connection) = &state.phase {
            connection.session.close();
        }
        state.child_guard.iter().for_each(ChildGuard::terminate);
        drop(state);
        self.state_changed.notify_all();
    }
}

impl HostState {
    /// Sets the reachability; its start time changes only with its value.
    fn set_reachability(&mut self, reach: Reachability, clock: &dyn Clock) {
        if self.reachability != reach {
            self.reachability = reach;
            self.reachability_since = Some(clock.now());
        }
    }
}

impl Transport for SftpTransport {
    fn max_memory_bytes(&self) -> u64 {
        MAX_FILE_BYTES
    }

    fn probe(&self, memories: &[&Path]) -> Vec<Result<MemoryObject, TransportError>> {
        let connection = match self.0.client_or_connect(false) {
            Ok(connection) => connection,
            Err(error) => return memories.iter().map(|_| Err(error.clone())).collect(),
        };
        let paths: Vec<PathBuf> = memories
            .iter()
            .map(|it| connection.absolute_path(it))
            .collect();
        let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
        let looked = connection.stat_memories(&paths);
        let found = looked.and_then(|found| connection.resolve_link_targets(&paths, found));
        found.unwrap_or_else(|error| memories.iter().map(|_| Err(error.clone())).collect())
    }

    fn open_directory(&self, memory: &Path) -> Result<Box<dyn MemoryDirectory>, TransportError> {
        let connection = self.0.client_or_connect(false)?;
        let path = connection.absolute_path(memory);
        let directory = SftpDirectory::open(connection, &path, self.0.clock.clone())?;
        Ok(Box::new(directory))
    }

    fn read_batch(
        &self,
        files: &[(&Path, &FileMetadata)],
        sink: BatchSink<'_>,
    ) -> Vec<Result<FileMetadata, TransportError>> {
        let read = self.0.client_or_connect(false).and_then(|connection| {
            let end = self.0.clock.instant() + batch_read::BATCH_READ_TIMEOUT;
            batch_read::read_batch(&connection, files, sink, || self.0.clock.instant() < end)
        });
        read.unwrap_or_else(|error| files.iter().map(|_| Err(error.clone())).collect())
    }

    fn connection_status(&self) -> Option<ConnectionStatus> {
        let state = self.0.lock_current_state();
        let mut status = ConnectionStatus {
            reachability: state.reachability,
            is_connecting: matches!(state.phase, ConnectPhase::Connecting(_)),
            since: state.reachability_since,
            failures: state.failures,
            error: state.error.clone(),
            ..ConnectionStatus::default()
        };
        match &state.phase {
            ConnectPhase::Connected(connection) => {
                status.latency = connection.session.latency();
                status.server_features = server_features(&connection.extensions);
                status.server_limits = server_limits(connection.limits.as_ref());
            }
            ConnectPhase::Paused { .. } if self.0.connector.is_blocked(&self.0.host) => {
                status.is_blocked = true
            }
            ConnectPhase::Paused {
                until,
                next_attempt: next,
            } => {
                status.next_attempt_instant = Some(*until);
                status.next_attempt = Some(*next);
            }
            ConnectPhase::Connecting(attempt) => {
                status.pending_prompt = attempt.as_ref().and_then(ConnectAttempt::pending_prompt)
            }
            ConnectPhase::Idle => {}
        }
        Some(status)
    }

    fn absolute_path(&self, memory: &Path) -> Option<PathBuf> {
        match &self.0.lock_current_state().phase {
            ConnectPhase::Connected(connection) => Some(connection.absolute_path(memory)),
            _ => None,
        }
    }

    fn ensure_connected(&self) -> Result<(), TransportError> {
        self.0.client_or_connect(true).map(drop)
    }

    fn retry_now(&self) {
        let mut state = self.0.lock_current_state();
        if let ConnectPhase::Paused { .. } = state.phase {
            state.phase = ConnectPhase::Idle;
        }
    }

    fn connection_settings(&self) -> Result<Vec<ConnectionSetting>, TransportError> {
        self.0.connector.connection_settings(&self.0.host)
    }
}

/// Returns the server's optional features, each with the degradation without it.
fn server_features(has: &ServerExtensions) -> Vec<ServerFeature> {
    let all = [
        (
            "posix-rename@openssh.com",
            has.posix_rename,
            SftpExtension::PosixRename.degradation(),
        ),
        (
            "hardlink@openssh.com",
            has.hardlink,
            SftpExtension::Hardlink.degradation(),
        ),
        (
            "fsync@openssh.com",
            has.fsync,
            SftpExtension::Fsync.degradation(),
        ),
        (
            "statvfs@openssh.com",
            has.statvfs,
            "a full disk is not distinguished from other failures",
        ),
        (
            "limits@openssh.com",
            has.limits,
            "the server's limits are unknown; the protocol's minimum applies",
        ),
    ];
    let ability =
        |(name, is_available, without): (&'static str, bool, &'static str)| ServerFeature {
            name,
            is_available,
            degradation: without,
            needs_consent: SftpExtension::ALL
                .iter()
                .any(|it| name.starts_with(it.as_str())),
        };
    all.map(ability).to_vec()
}

/// Returns the limits that the server set; in the protocol 0 means no limit.
fn server_limits(limits: Option<&ServerLimits>) -> Vec<(&'static str, u64)> {
    let all = limits.map(|limits| {
        [
            ("packet", limits.packet),
            ("read", limits.read),
            ("write", limits.write),
            (HANDLE_LIMIT, limits.handles),
        ]
    });
    let set = all.into_iter().flatten().filter(|(_, limit)| *limit > 0);
    set.collect()
}
