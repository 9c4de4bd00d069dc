//! The connection to one host: the session that all callers share, and its state.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use chrono::{DateTime, FixedOffset, Timelike};

use super::askpass::ConnectAttempt;
use super::batch_read;
use super::chunked_read::MAX_FILE_BYTES;
use super::client::{ReplyResult, SessionLink, SftpClient, StatResult, home_directory_request};
use super::directory::SftpDirectory;
use super::ending_links::end_link;
use super::listing::SftpListing;
use super::session::{Deadline, Session, SessionWaker};
use super::ssh::{ChildGuard, Connector, SftpStream, SshChild, explain_session_error};
use super::wire::{ServerExtensions, ServerLimits};
use crate::base::clock::{Clock, SystemClock};
use crate::base::error::{Error, ErrorKind};
use crate::config::{SftpExtension, SshHost};
use crate::transport::{
    BatchSink, Connection, ConnectionSetting, ConnectionStatus, DirectoryListing, FailureCause,
    FileMetadata, HANDLE_LIMIT, MemoryDirectory, OnConnected, OnProbed, Reachability,
    ServerFeature, Transport, TransportError,
};

/// First pause after a failed attempt; it doubles with each further failure.
const MIN_RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// A session that ends earlier counts as a failed attempt, except the first in a row.
const MIN_SESSION_DURATION: Duration = Duration::from_secs(30);

/// Upper limit of the pause.
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(120);

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
    /// The process of the session, or of the last attempt.
    child_guard: Option<ChildGuard>,
    /// Called when the running attempt has a result or waits for an answer.
    waiters: Vec<OnConnected>,
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
    /// An attempt is running; callers wait for its result, but not for the answer to a question.
    Connecting(RunningAttempt),
    Connected(Arc<SftpClient>),
    /// No attempt before `until`.
    Paused {
        until: Instant,
        next_attempt: DateTime<FixedOffset>,
    },
}

/// An attempt to connect.
#[derive(Default)]
struct RunningAttempt {
    /// Its questions, if it may ask.
    prompts: Option<ConnectAttempt>,
    /// The session, once it was opened.
    link: Option<Arc<SessionLink>>,
    /// Whether the identity file was missing when the attempt began.
    lacks_key: bool,
}

impl RunningAttempt {
    /// Returns the error for callers that would otherwise wait for an answer.
    fn pending_question_error(&self) -> Option<TransportError> {
        self.prompts
            .as_ref()
            .and_then(ConnectAttempt::pending_question_error)
    }
}

/// The deadline of an attempt that may ask. Callers that wait for its result learn of a question.
struct AttemptDeadline {
    attempt: ConnectAttempt,
    host_connection: Weak<HostConnection>,
}

impl Deadline for AttemptDeadline {
    fn instant(&self) -> Instant {
        self.attempt.instant()
    }

    fn set_waker(&mut self, waker: SessionWaker) {
        self.attempt.set_waker(waker);
    }

    fn on_turn(&self) {
        if self.attempt.pending_prompt().is_some()
            && let Some(host_connection) = self.host_connection.upgrade()
        {
            host_connection.wake_waiters();
        }
    }
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
        if let ConnectPhase::Connecting(attempt) = &self.0.lock_current_state().phase {
            attempt.prompts.iter().for_each(ConnectAttempt::abandon);
        }
    }
}

impl HostConnection {
    /// Locks the state, after taking note of a session that has ended.
    fn lock_current_state(&self) -> MutexGuard<'_, HostState> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let ConnectPhase::Connected(connection) = &state.phase
            && let Some(session_error) = connection.session().end_error()
        {
            let why = explain_session_error(&self.host, &session_error);
            end_link(Arc::clone(&connection.link), || ());
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
    fn client_or_connect(self: &Arc<HostConnection>) -> Result<Arc<SftpClient>, TransportError> {
        let mut has_tried = false;
        let mut state = self.lock_current_state();
        loop {
            let is_left_to_retrier = state.is_retried_in_background && state.failures > 0;
            let is_over = has_tried || is_left_to_retrier;
            state = match (&state.phase, &state.error) {
                _ if state.is_closed => return Err(self.closed_error()),
                (ConnectPhase::Connected(connection), _) => return Ok(Arc::clone(connection)),
                (ConnectPhase::Connecting(attempt), why) => {
                    let question = attempt.pending_question_error();
                    let is_left = is_left_to_retrier && !has_tried;
                    if let Some(why) = question.or_else(|| why.clone().filter(|_| is_left)) {
                        return Err(why);
                    }
                    has_tried = true;
                    let woken = self.state_changed.wait(state);
                    woken.unwrap_or_else(PoisonError::into_inner)
                }
                (ConnectPhase::Paused { .. } | ConnectPhase::Idle, Some(why)) if is_over => {
                    return Err(why.clone());
                }
                (ConnectPhase::Paused { until, .. }, Some(why))
                    if self.clock.instant() < *until =>
                {
                    return Err(why.clone());
                }
                (ConnectPhase::Paused { .. } | ConnectPhase::Idle, _) => {
                    has_tried = true;
                    self.start_attempt(state);
                    self.lock_current_state()
                }
            };
        }
    }

    /// Starts to connect, and calls `when_done` when there is a result or a question.
    fn start_connecting(self: &Arc<HostConnection>, when_done: OnConnected) {
        let mut state = self.lock_current_state();
        let is_due = match &state.phase {
            _ if state.is_closed => false,
            ConnectPhase::Connected(_) => false,
            ConnectPhase::Paused { until, .. } => self.clock.instant() >= *until,
            ConnectPhase::Connecting(attempt) => {
                if attempt.pending_question_error().is_none() {
                    state.waiters.push(when_done);
                    return;
                }
                false
            }
            ConnectPhase::Idle => true,
        };
        if is_due {
            state.waiters.push(when_done);
            self.start_attempt(state);
        } else {
            drop(state);
            when_done();
        }
    }

    /// Starts an attempt. The thread that serves the session records its result.
    fn start_attempt(self: &Arc<HostConnection>, mut state: MutexGuard<'_, HostState>) {
        let key = self.host.identity_file.as_ref();
        state.phase = ConnectPhase::Connecting(RunningAttempt::default());
        drop(state);
        let lacks_key = key.is_some_and(|key| matches!(key.try_exists(), Ok(false)));
        tracing::debug!(host = self.host.authority(), "connect");
        let stream = self.connector.connect(&self.host);
        let opened = stream.and_then(|stream| self.open_session(stream, lacks_key));
        match opened {
            Ok(session) => {
                let host_connection = Arc::downgrade(self);
                let home = session.send_batch(vec![home_directory_request()]);
                home.then(move |replies| {
                    if let Some(host_connection) = host_connection.upgrade() {
                        host_connection.finish_attempt(replies);
                    }
                });
            }
            Err(why) => self.record_result(Err(why)),
        }
    }

    /// Opens the session of an attempt, and stores it with the attempt.
    fn open_session(
        self: &Arc<HostConnection>,
        stream: SftpStream,
        lacks_key: bool,
    ) -> Result<Session, TransportError> {
        let SftpStream { pipes, child } = stream;
        let prompts = child.as_ref().and_then(SshChild::attempt).cloned();
        let deadline: Box<dyn Deadline> = match &prompts {
            Some(attempt) => Box::new(AttemptDeadline {
                attempt: attempt.clone(),
                host_connection: Arc::downgrade(self),
            }),
            None => Box::new(SystemClock.instant() + self.reply_timeout()),
        };
        let guard = child.as_ref().map(SshChild::guard);
        let mut state = self.lock_current_state();
        if state.is_closed {
            drop(state);
            guard.iter().for_each(ChildGuard::terminate);
            return Err(self.closed_error());
        }
        state.child_guard = guard;
        // Before the session has its first turn, which may wake callers because of a question.
        state.phase = ConnectPhase::Connecting(RunningAttempt {
            prompts,
            link: None,
            lacks_key,
        });
        drop(state);
        // The limit for connecting also applies to each reply, by the system clock, which the
        // session waits by whatever clock this connection has.
        let session = Session::open(pipes, deadline, self.reply_timeout())
            .map_err(|session_error| explain_session_error(&self.host, &session_error))?;
        if let ConnectPhase::Connecting(attempt) = &mut self.lock_current_state().phase {
            attempt.link = Some(Arc::new(SessionLink {
                session: session.clone(),
                child,
            }));
        }
        Ok(session)
    }

    /// Ends an attempt whose session has a home directory now, or has ended. Runs on the thread that
    /// serves the sessions.
    fn finish_attempt(&self, replies: Vec<ReplyResult>) {
        let mut state = self.lock_current_state();
        let ConnectPhase::Connecting(attempt) = &mut state.phase else {
            return;
        };
        let RunningAttempt {
            prompts,
            link,
            lacks_key,
        } = std::mem::take(attempt);
        drop(state);
        let Some(link) = link else {
            return;
        };
        let connected = SftpClient::new(&self.host, &link, replies);
        let connected = match &prompts {
            Some(attempt) => attempt.explain_outcome(connected),
            None => connected,
        };
        let has_failed = connected.is_err();
        self.record_result(connected.map_err(|why| self.explain_missing_key(why, lacks_key)));
        let host = self.host.clone();
        let report = move || prompts.iter().for_each(|it| it.report_finished(&host));
        if has_failed {
            link.child.iter().for_each(|it| it.guard().terminate());
            // Its questions are withdrawn first.
            end_link(link, report);
        } else {
            report();
        }
    }

    /// Records the result of an attempt and wakes the callers that wait for it.
    fn record_result(&self, connected: Result<SftpClient, TransportError>) {
        let mut state = self.lock_current_state();
        let connected = match connected {
            Ok(client) if state.is_closed => {
                end_link(client.link, || ());
                Err(self.closed_error())
            }
            connected => connected,
        };
        match connected {
            Ok(connection) => {
                state.phase = ConnectPhase::Connected(Arc::new(connection));
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
                state.error = Some(why);
            }
        }
        drop(state);
        self.wake_waiters();
    }

    /// Lets the callers that wait for an attempt look at its state.
    fn wake_waiters(&self) {
        // Under the lock: a caller that has just looked waits by now.
        let waiters = std::mem::take(&mut self.lock_current_state().waiters);
        self.state_changed.notify_all();
        waiters.into_iter().for_each(|when_done| when_done());
    }

    /// Adds a hint if the identity file is missing: ssh does not report that and goes on without
    /// one.
    fn explain_missing_key(&self, why: TransportError, lacks_key: bool) -> TransportError {
        match (why.cause, &self.host.identity_file) {
            (FailureCause::Refused, Some(key)) if lacks_key => {
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

    fn close(&self) {
        let mut state = self.lock_current_state();
        state.is_closed = true;
        if let ConnectPhase::Connected(connection) = &state.phase {
            connection.session().close();
            end_link(Arc::clone(&connection.link), || ());
        }
        state.child_guard.iter().for_each(ChildGuard::terminate);
        drop(state);
        self.wake_waiters();
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

    fn probe(&self, memories: &[&Path]) -> Vec<StatResult> {
        match self.0.client_or_connect() {
            Ok(client) => {
                let paths = absolute_paths(&client, memories);
                let paths = as_paths(&paths);
                let found = client.stat_memories(&paths);
                let found = found.and_then(|found| client.resolve_link_targets(&paths, found));
                found.unwrap_or_else(|error| same_errors(paths.len(), &error))
            }
            Err(error) => same_errors(memories.len(), &error),
        }
    }

    fn start_probe(&self, memories: &[&Path], when_done: OnProbed) {
        let state = self.0.lock_current_state();
        let ConnectPhase::Connected(client) = &state.phase else {
            let question = match &state.phase {
                ConnectPhase::Connecting(attempt) => attempt.pending_question_error(),
                _ => None,
            };
            let error = question.or_else(|| state.error.clone());
            let error = error.unwrap_or_else(|| self.0.closed_error());
            drop(state);
            let errors = same_errors(memories.len(), &error);
            return when_done(Box::new(move || Some(errors)));
        };
        let client = Arc::clone(client);
        drop(state);
        let paths = absolute_paths(&client, memories);
        let pending = client.request_stats(&as_paths(&paths));
        pending.then(move |replies| {
            when_done(Box::new(move || {
                let paths = as_paths(&paths);
                let found = client.objects_from_replies(&paths, replies);
                let found = found.unwrap_or_else(|error| same_errors(paths.len(), &error));
                let is_whole = !found.iter().any(SftpClient::needs_further_requests);
                is_whole.then_some(found)
            }));
        });
    }

    fn open_directory(&self, memory: &Path) -> Result<Box<dyn MemoryDirectory>, TransportError> {
        let connection = self.0.client_or_connect()?;
        let path = connection.absolute_path(memory);
        let directory = SftpDirectory::open(connection, &path, self.0.clock.clone())?;
        Ok(Box::new(directory))
    }

    fn list_directory(
        &self,
        directory: &Path,
    ) -> Result<Box<dyn DirectoryListing>, TransportError> {
        let connection = self.0.client_or_connect()?;
        let path = connection.absolute_path(directory);
        Ok(Box::new(SftpListing::open(&connection, &path)?))
    }

    fn read_batch(
        &self,
        files: &[(&Path, &FileMetadata)],
        sink: BatchSink<'_>,
    ) -> Vec<Result<FileMetadata, TransportError>> {
        let read = self.0.client_or_connect().and_then(|connection| {
            let end = self.0.clock.instant() + batch_read::BATCH_READ_TIMEOUT;
            batch_read::read_batch(&connection, files, sink, || self.0.clock.instant() < end)
        });
        read.unwrap_or_else(|error| files.iter().map(|_| Err(error.clone())).collect())
    }

    fn connection(&self) -> Option<&dyn Connection> {
        Some(self)
    }

    fn absolute_path(&self, memory: &Path) -> Option<PathBuf> {
        match &self.0.lock_current_state().phase {
            ConnectPhase::Connected(connection) => Some(connection.absolute_path(memory)),
            _ => None,
        }
    }
}

impl Connection for SftpTransport {
    fn status(&self) -> ConnectionStatus {
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
                status.latency = connection.session().latency();
                status.server_features = server_features(connection.extensions());
                status.server_limits = server_limits(connection.session().known_limits().as_ref());
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
                let prompts = attempt.prompts.as_ref();
                status.pending_prompt = prompts.and_then(ConnectAttempt::pending_prompt)
            }
            ConnectPhase::Idle => {}
        }
        status
    }

    fn start_connecting(&self, when_done: OnConnected) {
        self.0.start_connecting(when_done);
    }

    fn retry_in_background(&self) {
        self.0.lock_current_state().is_retried_in_background = true;
    }

    fn retry_now(&self) {
        let mut state = self.0.lock_current_state();
        if let ConnectPhase::Paused { .. } = state.phase {
            state.phase = ConnectPhase::Idle;
        }
    }

    fn settings(&self) -> Result<Vec<ConnectionSetting>, TransportError> {
        self.0.connector.connection_settings(&self.0.host)
    }
}

fn absolute_paths(client: &SftpClient, memories: &[&Path]) -> Vec<PathBuf> {
    memories.iter().map(|it| client.absolute_path(it)).collect()
}

fn as_paths(paths: &[PathBuf]) -> Vec<&Path> {
    paths.iter().map(PathBuf::as_path).collect()
}

fn same_errors(count: usize, error: &TransportError) -> Vec<StatResult> {
    (0..count).map(|_| Err(error.clone())).collect()
}

/// Returns the server's optional features, each with the degradation without it.
fn server_features(has: &ServerExtensions) -> Vec<ServerFeature> {
    if has.announces_reads_only() {
        return vec![ServerFeature {
            name: "requests that write",
            is_available: false,
            degradation: "it is read-only (`sftp-server -R`), or denies them, and nothing can be \
                          reset there",
            needs_consent: false,
        }];
    }
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
