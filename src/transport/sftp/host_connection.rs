//! One host: its session, which everybody shares, and what is known of it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use chrono::{DateTime, FixedOffset, Timelike};

use super::askpass::ConnectAttempt;
use super::batch_read;
use super::client::SftpClient;
use super::memory_directory::SftpDirectory;
use super::session::{Deadline, Session};
use super::ssh::{ChildGuard, Connector, SftpStream, SshChild, explain_session_error};
use super::wire::{ServerExtensions, ServerLimits};
use crate::clock::{Clock, SystemClock};
use crate::config::{SftpExtension, SshHost};
use crate::error::{Error, ErrorKind};
use crate::transport::{
    BatchSink, ConnectionSetting, ConnectionStatus, FailureCause, FileMetadata, MemoryDirectory,
    MemoryObject, Reachability, ServerFeature, Transport, TransportError,
};

/// How long a host that did not answer is left alone, at first; it doubles.
const MIN_RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// A session that ended earlier counts as a try that failed, but for the first.
const MIN_SESSION_DURATION: Duration = Duration::from_secs(30);

/// The longest that it is left alone.
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(120);

/// How often whoever waits for a host looks whether it asks something.
const PROMPT_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A host as a transport.
pub struct SftpTransport(Arc<HostConnection>);

/// The way to a host.
struct HostConnection {
    host: SshHost,
    connector: Arc<dyn Connector>,
    clock: Arc<dyn Clock>,
    state: Mutex<HostState>,
    state_changed: Condvar,
}

/// How a host stands.
#[derive(Default)]
struct HostState {
    phase: ConnectPhase,
    /// What the last try came to; while one is under way, the one before.
    reachability: Reachability,
    /// Since when that is so.
    reachability_since: Option<DateTime<FixedOffset>>,
    /// Tries in a row that failed.
    failures: u32,
    /// Why there is no session.
    error: Option<TransportError>,
    /// Somebody keeps trying, so that nobody else has to wait for a host that did
    /// not answer.
    is_retried_in_background: bool,
    /// Nobody connects any more.
    is_closed: bool,
    /// The process of the session, or of the one that is to be.
    child_guard: Option<ChildGuard>,
    /// A session that ended, until the next begins.
    ended_client: Option<Arc<SftpClient>>,
    /// When the session began.
    session_start: Option<Instant>,
    /// Sessions in a row that did not last.
    short_sessions: u32,
}

/// What is going on.
#[derive(Default)]
enum ConnectPhase {
    /// Nobody asked for it yet, or its session was lost and may be had anew.
    #[default]
    Idle,
    /// Somebody is connecting; the others wait for what comes of it, but not for the
    /// answer to a question.
    Connecting(Option<ConnectAttempt>),
    Connected(Arc<SftpClient>),
    /// It is left alone for a while.
    Paused {
        until: Instant,
        next_attempt: DateTime<FixedOffset>,
    },
}

impl SftpTransport {
    /// A host, not connected to yet.
    pub fn new(host: SshHost, dial: Arc<dyn Connector>, clock: Arc<dyn Clock>) -> SftpTransport {
        SftpTransport(Arc::new(HostConnection {
            host,
            connector: dial,
            clock,
            state: Mutex::default(),
            state_changed: Condvar::new(),
        }))
    }

    /// Ends the session, and asks its process to end. Does not wait.
    pub(super) fn close(&self) {
        self.0.close();
    }

    /// Whether it was left.
    pub(super) fn is_closed(&self) -> bool {
        self.0.lock_current_state().is_closed
    }

    /// Whether its process is gone, and none is being started; after
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

    /// Ends its process in any case.
    pub(super) fn kill_process(&self) {
        let leash = self.0.lock_current_state().child_guard.take();
        if let Some(leash) = leash {
            leash.kill();
        }
    }
}

impl Drop for SftpTransport {
    fn drop(&mut self) {
        if let ConnectPhase::Connecting(Some(call)) = &self.0.lock_current_state().phase {
            call.abandon();
        }
    }
}

impl HostConnection {
    /// As it stands now: a session that ended meanwhile is none.
    fn lock_current_state(&self) -> MutexGuard<'_, HostState> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let ConnectPhase::Connected(connection) = &state.phase
            && let Some(broken) = connection.session.end_error()
        {
            let why = explain_session_error(&self.host, &broken);
            // To let go of it takes as long as its process takes to end.
            state.ended_client = Some(Arc::clone(connection));
            state.phase = ConnectPhase::Idle;
            state.child_guard.iter().for_each(ChildGuard::terminate);
            state.set_reachability(Reachability::from_cause(why.cause), &*self.clock);
            state.error = Some(why);
            let now = self.clock.instant();
            let short = |begun: Instant| now.duration_since(begun) < MIN_SESSION_DURATION;
            state.short_sessions = match state.session_start.take().is_some_and(short) {
                true => state.short_sessions.saturating_add(1),
                false => 0,
            };
            // Whoever lets us in and hangs up is left alone as well.
            if state.short_sessions > 1 {
                state.failures = state.short_sessions - 1;
                state.phase = self.pause_after_failures(state.failures);
            }
        }
        state
    }

    /// The session, connecting if there is none. Whoever comes while somebody
    /// connects waits for the same outcome. A host that somebody watches and that
    /// did not answer is left to them.
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
                (ConnectPhase::Connecting(call), _) => {
                    state = self.wait_while_connecting(call.clone(), state)?
                }
                (ConnectPhase::Paused { .. } | ConnectPhase::Idle, _) => break,
            }
        }
        state.phase = ConnectPhase::Connecting(None);
        let lost = state.ended_client.take();
        drop(state);
        drop(lost);
        tracing::debug!(host = self.host.authority(), "connect");
        let dialed = self.connector.connect(&self.host);
        let child = dialed.as_ref().ok().and_then(|it| it.child.as_ref());
        let Some(call) = child.and_then(SshChild::attempt).cloned() else {
            let until = SystemClock.instant() + self.reply_timeout();
            return self
                .finish_connecting(dialed.and_then(|dialed| self.start_client(dialed, until)));
        };
        // It may come to a question, which nobody here should have to wait for.
        self.lock_current_state().phase = ConnectPhase::Connecting(Some(call.clone()));
        self.state_changed.notify_all();
        let line = Arc::clone(self);
        let thread = thread::Builder::new().name("ssh".into()).spawn(move || {
            let connected = dialed.and_then(|dialed| line.start_client(dialed, call.clone()));
            let _ = line.finish_connecting(connected);
            call.report_finished(&line.host);
        });
        match thread {
            Ok(_) => self.wait_for_outcome(),
            Err(error) => {
                let error = Error::new(ErrorKind::Host, format!("no thread for ssh: {error}"));
                self.finish_connecting(Err(TransportError::new(FailureCause::Unreachable, error)))
            }
        }
    }

    /// What comes of connecting, unless that is a question.
    fn wait_for_outcome(&self) -> Result<Arc<SftpClient>, TransportError> {
        let mut state = self.lock_current_state();
        loop {
            state = match (&state.phase, &state.error) {
                (ConnectPhase::Connected(connection), _) => return Ok(Arc::clone(connection)),
                (ConnectPhase::Connecting(call), _) => {
                    self.wait_while_connecting(call.clone(), state)?
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

    /// Waits a moment while somebody connects; not for the answer to a question.
    fn wait_while_connecting<'l>(
        &'l self,
        call: Option<ConnectAttempt>,
        state: MutexGuard<'l, HostState>,
    ) -> Result<MutexGuard<'l, HostState>, TransportError> {
        if let Some(why) = call
            .as_ref()
            .and_then(ConnectAttempt::pending_question_error)
        {
            return Err(why);
        }
        let woken = self.state_changed.wait_timeout(state, PROMPT_POLL_INTERVAL);
        Ok(woken.unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Tells everybody what came of connecting.
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
                state.phase = match self.connector.is_blocked(&self.host) {
                    // Where the dial itself says no, there is nothing to be spared.
                    true => self.pause_for(Duration::ZERO),
                    false => {
                        state.failures = state.failures.saturating_add(1);
                        self.pause_after_failures(state.failures)
                    }
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

    /// Why there is no connection, with the key that is not there: ssh says nothing
    /// of it, and goes on without one.
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

    /// How long connecting, and a reply, may take.
    fn reply_timeout(&self) -> Duration {
        Duration::from_secs(self.host.timeout_seconds.max(1).into())
    }

    /// It is left alone for a while, after so many failures.
    fn pause_after_failures(&self, failures: u32) -> ConnectPhase {
        self.pause_for(self.retry_interval(failures))
    }

    fn pause_for(&self, pause: Duration) -> ConnectPhase {
        ConnectPhase::Paused {
            until: self.clock.instant() + pause,
            next_attempt: self.clock.now() + pause,
        }
    }

    /// How long it is left alone after so many failures: the same for nobody else,
    /// so that not all hosts behind one dead router are tried at one moment.
    fn retry_interval(&self, failures: u32) -> Duration {
        let doubled = MIN_RETRY_INTERVAL.saturating_mul(1 << (failures - 1).min(16));
        let mut hasher = DefaultHasher::new();
        (&self.host, failures, self.clock.now().nanosecond()).hash(&mut hasher);
        let share = 75 + (hasher.finish() % 51) as u32;
        doubled.min(MAX_RETRY_INTERVAL) * share / 100
    }

    fn closed_error(&self) -> TransportError {
        let message = format!("{}: nothing is asked of it any more", self.host.name);
        TransportError::new(
            FailureCause::Unreachable,
            Error::new(ErrorKind::Host, message),
        )
    }

    fn start_client(
        &self,
        dialed: SftpStream,
        until: impl Deadline + 'static,
    ) -> Result<SftpClient, TransportError> {
        let SftpStream { pipes: link, child } = dialed;
        {
            let mut state = self.lock_current_state();
            state.child_guard = child.as_ref().map(SshChild::guard);
            if state.is_closed {
                state.child_guard.iter().for_each(ChildGuard::terminate);
                return Err(self.closed_error());
            }
        }
        // What counts as not answering holds for each reply as well, by the machine's
        // time, which the session waits by, whatever clock we have.
        let session = Session::start_with_timeout(link, until, self.reply_timeout())
            .map_err(|broken| explain_session_error(&self.host, &broken));
        let session = match child.as_ref().and_then(SshChild::attempt) {
            Some(call) => call.explain_outcome(session)?,
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
        // Asked for before, so they are here.
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
    /// Something was found out; since when it is so is known if it was so before.
    fn set_reachability(&mut self, reach: Reachability, clock: &dyn Clock) {
        if self.reachability != reach {
            self.reachability = reach;
            self.reachability_since = Some(clock.now());
        }
    }
}

impl Transport for SftpTransport {
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
        let mut contact = ConnectionStatus {
            reachability: state.reachability,
            is_connecting: matches!(state.phase, ConnectPhase::Connecting(_)),
            since: state.reachability_since,
            failures: state.failures,
            error: state.error.clone(),
            ..ConnectionStatus::default()
        };
        match &state.phase {
            ConnectPhase::Connected(connection) => {
                contact.latency = connection.session.latency();
                contact.server_features = server_features(&connection.extensions);
                contact.server_limits = server_limits(connection.limits.as_ref());
            }
            ConnectPhase::Paused { .. } if self.0.connector.is_blocked(&self.0.host) => {
                contact.is_blocked = true
            }
            ConnectPhase::Paused {
                until,
                next_attempt: next,
            } => {
                contact.next_attempt_instant = Some(*until);
                contact.next_attempt = Some(*next);
            }
            ConnectPhase::Connecting(call) => {
                contact.pending_prompt = call.as_ref().and_then(ConnectAttempt::pending_prompt)
            }
            ConnectPhase::Idle => {}
        }
        Some(contact)
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

/// What the server announced, and the degradation where it did not.
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
            "a full disk there is not told from other failures",
        ),
        (
            "limits@openssh.com",
            has.limits,
            "it does not tell its limits; the protocol's smallest are kept to",
        ),
    ];
    let ability = |(name, there, without): (&'static str, bool, &'static str)| ServerFeature {
        name,
        is_available: there,
        degradation: without,
        needs_consent: SftpExtension::ALL
            .iter()
            .any(|it| name.starts_with(it.as_str())),
    };
    all.map(ability).to_vec()
}

/// The limits that it set; 0 stands for none.
fn server_limits(limits: Option<&ServerLimits>) -> Vec<(&'static str, u64)> {
    let all = limits.map(|limits| {
        [
            ("packet", limits.packet),
            ("read", limits.read),
            ("write", limits.write),
            ("handles", limits.handles),
        ]
    });
    let set = all.into_iter().flatten().filter(|(_, limit)| *limit > 0);
    set.collect()
}
