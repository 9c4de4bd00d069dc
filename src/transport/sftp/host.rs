//! One host: its session, which everybody shares, and what is known of it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use chrono::{DateTime, FixedOffset, Timelike};

use super::askpass::Call;
use super::connection::Connection;
use super::folder::SftpFolder;
use super::session::{Deadline, Session};
use super::ssh::{ChildGuard, Connector, SftpStream, SshChild, explain};
use super::together;
use super::wire::{Extensions, Limits};
use crate::clock::{Clock, System};
use crate::config::{Extension, Host};
use crate::error::{Error, Kind};
use crate::transport::{
    Cause, ConnectionSetting, ConnectionStatus, File, Folder, MemoryObject, Pieces, Reachability,
    ServerFeature, Transport, TransportError,
};

/// How long a host that did not answer is left alone, at first; it doubles.
const PAUSE: Duration = Duration::from_secs(2);

/// A session that ended earlier counts as a try that failed, but for the first.
const LASTING: Duration = Duration::from_secs(30);

/// The longest that it is left alone.
const LONGEST: Duration = Duration::from_secs(120);

/// How often whoever waits for a host looks whether it asks something.
const GLANCE: Duration = Duration::from_millis(100);

/// A host as a transport.
pub struct Sftp(Arc<HostConnection>);

/// The way to a host.
struct HostConnection {
    host: Host,
    dial: Arc<dyn Connector>,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    changed: Condvar,
}

/// How a host stands.
#[derive(Default)]
struct State {
    phase: Phase,
    /// What the last try came to; while one is under way, the one before.
    reach: Reachability,
    /// Since when that is so.
    since: Option<DateTime<FixedOffset>>,
    /// Tries in a row that failed.
    failures: u32,
    /// Why there is no session.
    error: Option<TransportError>,
    /// Somebody keeps trying, so that nobody else has to wait for a host that did
    /// not answer.
    watched: bool,
    /// Nobody connects any more.
    left: bool,
    /// The process of the session, or of the one that is to be.
    leash: Option<ChildGuard>,
    /// A session that ended, until the next begins.
    lost: Option<Arc<Connection>>,
    /// When the session began.
    begun: Option<Instant>,
    /// Sessions in a row that did not last.
    short: u32,
}

/// What is going on.
#[derive(Default)]
enum Phase {
    /// Nobody asked for it yet, or its session was lost and may be had anew.
    #[default]
    Idle,
    /// Somebody is connecting; the others wait for what comes of it, but not for the
    /// answer to a question.
    Connecting(Option<Call>),
    Connected(Arc<Connection>),
    /// It is left alone for a while.
    Paused {
        until: Instant,
        next: DateTime<FixedOffset>,
    },
}

impl Sftp {
    /// A host, not connected to yet.
    pub fn new(host: Host, dial: Arc<dyn Connector>, clock: Arc<dyn Clock>) -> Sftp {
        Sftp(Arc::new(HostConnection {
            host,
            dial,
            clock,
            state: Mutex::default(),
            changed: Condvar::new(),
        }))
    }

    /// Ends the session, and asks its process to end. Does not wait.
    pub(super) fn leave(&self) {
        self.0.leave();
    }

    /// Whether it was left.
    pub(super) fn is_left(&self) -> bool {
        self.0.state().left
    }

    /// Whether its process is gone, and none is being started; after
    /// [`Sftp::leave`].
    pub(super) fn has_left(&self) -> bool {
        let state = self.0.state();
        let connecting = matches!(state.phase, Phase::Connecting(_));
        !connecting && state.leash.as_ref().is_none_or(ChildGuard::has_ended)
    }

    /// Ends its process in any case.
    pub(super) fn kill(&self) {
        let leash = self.0.state().leash.take();
        if let Some(leash) = leash {
            leash.kill();
        }
    }
}

impl Drop for Sftp {
    fn drop(&mut self) {
        if let Phase::Connecting(Some(call)) = &self.0.state().phase {
            call.abandon();
        }
    }
}

impl HostConnection {
    /// As it stands now: a session that ended meanwhile is none.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Phase::Connected(connection) = &state.phase
            && let Some(broken) = connection.session.ended()
        {
            let why = explain(&self.host, &broken);
            // To let go of it takes as long as its process takes to end.
            state.lost = Some(Arc::clone(connection));
            state.phase = Phase::Idle;
            state.leash.iter().for_each(ChildGuard::terminate);
            state.turn(Reachability::of(why.cause), &*self.clock);
            state.error = Some(why);
            let now = self.clock.instant();
            let short = |begun: Instant| now.duration_since(begun) < LASTING;
            state.short = match state.begun.take().is_some_and(short) {
                true => state.short.saturating_add(1),
                false => 0,
            };
            // Whoever lets us in and hangs up is left alone as well.
            if state.short > 1 {
                state.failures = state.short - 1;
                state.phase = self.paused(state.failures);
            }
        }
        state
    }

    /// The session, connecting if there is none. Whoever comes while somebody
    /// connects waits for the same outcome. A host that somebody watches and that
    /// did not answer is left to them.
    fn connection(
        self: &Arc<HostConnection>,
        watching: bool,
    ) -> Result<Arc<Connection>, TransportError> {
        let mut state = self.state();
        state.watched |= watching;
        loop {
            if state.left {
                return Err(self.gone());
            }
            let others = state.watched && !watching && state.failures > 0;
            match (&state.phase, &state.error) {
                (Phase::Connected(connection), _) => return Ok(Arc::clone(connection)),
                (Phase::Paused { .. } | Phase::Connecting(_) | Phase::Idle, Some(why))
                    if others =>
                {
                    return Err(why.clone());
                }
                (Phase::Paused { until, .. }, Some(why)) if self.clock.instant() < *until => {
                    return Err(why.clone());
                }
                (Phase::Connecting(call), _) => state = self.wait(call.clone(), state)?,
                (Phase::Paused { .. } | Phase::Idle, _) => break,
            }
        }
        state.phase = Phase::Connecting(None);
        let lost = state.lost.take();
        drop(state);
        drop(lost);
        let dialed = self.dial.dial(&self.host);
        let child = dialed.as_ref().ok().and_then(|it| it.child.as_ref());
        let Some(call) = child.and_then(SshChild::call).cloned() else {
            let until = System.instant() + self.limit();
            return self.settle(dialed.and_then(|dialed| self.connect(dialed, until)));
        };
        // It may come to a question, which nobody here should have to wait for.
        self.state().phase = Phase::Connecting(Some(call.clone()));
        self.changed.notify_all();
        let line = Arc::clone(self);
        let thread = thread::Builder::new().name("ssh".into()).spawn(move || {
            let connected = dialed.and_then(|dialed| line.connect(dialed, call.clone()));
            let _ = line.settle(connected);
            call.tell(&line.host);
        });
        match thread {
            Ok(_) => self.outcome(),
            Err(error) => {
                let error = Error::new(Kind::Host, format!("no thread for ssh: {error}"));
                self.settle(Err(TransportError::new(Cause::Unreachable, error)))
            }
        }
    }

    /// What comes of connecting, unless that is a question.
    fn outcome(&self) -> Result<Arc<Connection>, TransportError> {
        let mut state = self.state();
        loop {
            state = match (&state.phase, &state.error) {
                (Phase::Connected(connection), _) => return Ok(Arc::clone(connection)),
                (Phase::Connecting(call), _) => self.wait(call.clone(), state)?,
                (Phase::Paused { .. } | Phase::Idle, Some(why)) => return Err(why.clone()),
                (Phase::Paused { .. } | Phase::Idle, None) => return Err(self.gone()),
            };
        }
    }

    /// Waits a moment while somebody connects; not for the answer to a question.
    fn wait<'l>(
        &'l self,
        call: Option<Call>,
        state: MutexGuard<'l, State>,
    ) -> Result<MutexGuard<'l, State>, TransportError> {
        if let Some(why) = call.as_ref().and_then(Call::waits) {
            return Err(why);
        }
        let woken = self.changed.wait_timeout(state, GLANCE);
        Ok(woken.unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Tells everybody what came of connecting.
    fn settle(
        &self,
        connected: Result<Connection, TransportError>,
    ) -> Result<Arc<Connection>, TransportError> {
        let connected = connected.map(Arc::new).map_err(|why| self.without_key(why));
        let mut state = self.state();
        let connected = match connected {
            Ok(_) if state.left => Err(self.gone()),
            connected => connected,
        };
        match &connected {
            Ok(connection) => {
                state.phase = Phase::Connected(Arc::clone(connection));
                state.turn(Reachability::Up, &*self.clock);
                state.failures = 0;
                state.error = None;
                state.begun = Some(self.clock.instant());
            }
            Err(why) => {
                state.phase = match self.dial.bars(&self.host) {
                    // Where the dial itself says no, there is nothing to be spared.
                    true => self.pausing(Duration::ZERO),
                    false => {
                        state.failures = state.failures.saturating_add(1);
                        self.paused(state.failures)
                    }
                };
                state.turn(Reachability::of(why.cause), &*self.clock);
                state.error = Some(why.clone());
                state.leash = None;
            }
        }
        drop(state);
        self.changed.notify_all();
        connected
    }

    /// Why there is no connection, with the key that is not there: ssh says nothing
    /// of it, and goes on without one.
    fn without_key(&self, why: TransportError) -> TransportError {
        let key = self.host.identity_file.iter();
        let mut absent = key.filter(|key| matches!(key.try_exists(), Ok(false)));
        match (why.cause, absent.next()) {
            (Cause::Refused, Some(key)) => {
                why.hint(format!("identity_file {} does not exist", key.display()))
            }
            _ => why,
        }
    }

    /// How long connecting, and a reply, may take.
    fn limit(&self) -> Duration {
        Duration::from_secs(self.host.timeout.max(1).into())
    }

    /// It is left alone for a while, after so many failures.
    fn paused(&self, failures: u32) -> Phase {
        self.pausing(self.pause(failures))
    }

    fn pausing(&self, pause: Duration) -> Phase {
        Phase::Paused {
            until: self.clock.instant() + pause,
            next: self.clock.now() + pause,
        }
    }

    /// How long it is left alone after so many failures: the same for nobody else,
    /// so that not all hosts behind one dead router are tried at one moment.
    fn pause(&self, failures: u32) -> Duration {
        let doubled = PAUSE.saturating_mul(1 << (failures - 1).min(16));
        let mut hasher = DefaultHasher::new();
        (&self.host, failures, self.clock.now().nanosecond()).hash(&mut hasher);
        let share = 75 + (hasher.finish() % 51) as u32;
        doubled.min(LONGEST) * share / 100
    }

    fn gone(&self) -> TransportError {
        let message = format!("{}: nothing is asked of it any more", self.host.name);
        TransportError::new(Cause::Unreachable, Error::new(Kind::Host, message))
    }

    fn connect(
        &self,
        dialed: SftpStream,
        until: impl Deadline + 'static,
    ) -> Result<Connection, TransportError> {
        let SftpStream { link, child } = dialed;
        {
            let mut state = self.state();
            state.leash = child.as_ref().map(SshChild::leash);
            if state.left {
                state.leash.iter().for_each(ChildGuard::terminate);
                return Err(self.gone());
            }
        }
        // What counts as not answering holds for each reply as well, by the machine's
        // time, which the session waits by, whatever clock we have.
        let session = Session::start_with(link, until, self.limit())
            .map_err(|broken| explain(&self.host, &broken));
        let session = match child.as_ref().and_then(SshChild::call) {
            Some(call) => call.judge(session)?,
            None => session?,
        };
        let mut connection = Connection {
            host: self.host.clone(),
            extensions: session.extensions(),
            limits: None,
            session,
            home: PathBuf::new(),
            _child: child,
        };
        connection.home = connection.real_path(b".")?;
        // Asked for before, so they are here.
        connection.limits = connection.session.limits();
        Ok(connection)
    }

    fn leave(&self) {
        let mut state = self.state();
        state.left = true;
        if let Phase::Connected(connection) = &state.phase {
            connection.session.close();
        }
        state.leash.iter().for_each(ChildGuard::terminate);
        drop(state);
        self.changed.notify_all();
    }
}

impl State {
    /// Something was found out; since when it is so is known if it was so before.
    fn turn(&mut self, reach: Reachability, clock: &dyn Clock) {
        if self.reach != reach {
            self.reach = reach;
            self.since = Some(clock.now());
        }
    }
}

impl Transport for Sftp {
    fn probe(&self, memories: &[&Path]) -> Vec<Result<MemoryObject, TransportError>> {
        let connection = match self.0.connection(false) {
            Ok(connection) => connection,
            Err(error) => return memories.iter().map(|_| Err(error.clone())).collect(),
        };
        let paths: Vec<PathBuf> = memories.iter().map(|it| connection.absolute(it)).collect();
        let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
        let looked = connection.look(&paths);
        let found = looked.and_then(|found| connection.complete(&paths, found));
        found.unwrap_or_else(|error| memories.iter().map(|_| Err(error.clone())).collect())
    }

    fn open(&self, memory: &Path) -> Result<Box<dyn Folder>, TransportError> {
        let connection = self.0.connection(false)?;
        let path = connection.absolute(memory);
        let folder = SftpFolder::open(connection, &path, self.0.clock.clone())?;
        Ok(Box::new(folder))
    }

    fn read(
        &self,
        files: &[(&Path, &File)],
        sink: Pieces<'_>,
    ) -> Vec<Result<File, TransportError>> {
        let read = self.0.connection(false).and_then(|connection| {
            let end = self.0.clock.instant() + together::BATCH_READ_TIMEOUT;
            together::read(&connection, files, sink, || self.0.clock.instant() < end)
        });
        read.unwrap_or_else(|error| files.iter().map(|_| Err(error.clone())).collect())
    }

    fn contact(&self) -> Option<ConnectionStatus> {
        let state = self.0.state();
        let mut contact = ConnectionStatus {
            reach: state.reach,
            trying: matches!(state.phase, Phase::Connecting(_)),
            since: state.since,
            failures: state.failures,
            error: state.error.clone(),
            ..ConnectionStatus::default()
        };
        match &state.phase {
            Phase::Connected(connection) => {
                contact.latency = connection.session.latency();
                contact.abilities = abilities(&connection.extensions);
                contact.limits = limits(connection.limits.as_ref());
            }
            Phase::Paused { .. } if self.0.dial.bars(&self.0.host) => contact.barred = true,
            Phase::Paused { until, next } => {
                contact.until = Some(*until);
                contact.next = Some(*next);
            }
            Phase::Connecting(call) => contact.asks = call.as_ref().and_then(Call::asks),
            Phase::Idle => {}
        }
        Some(contact)
    }

    fn absolute(&self, memory: &Path) -> Option<PathBuf> {
        match &self.0.state().phase {
            Phase::Connected(connection) => Some(connection.absolute(memory)),
            _ => None,
        }
    }

    fn ensure_connected(&self) -> Result<(), TransportError> {
        self.0.connection(true).map(drop)
    }

    fn retry_now(&self) {
        let mut state = self.0.state();
        if let Phase::Paused { .. } = state.phase {
            state.phase = Phase::Idle;
        }
    }

    fn settings(&self) -> Result<Vec<ConnectionSetting>, TransportError> {
        self.0.dial.settings(&self.0.host)
    }
}

/// What the server announced, and what is weaker where it did not.
fn abilities(has: &Extensions) -> Vec<ServerFeature> {
    let all = [
        (
            "posix-rename@openssh.com",
            has.posix_rename,
            Extension::PosixRename.without(),
        ),
        (
            "hardlink@openssh.com",
            has.hardlink,
            Extension::Hardlink.without(),
        ),
        ("fsync@openssh.com", has.fsync, Extension::Fsync.without()),
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
        there,
        without,
        relied_on: Extension::ALL.iter().any(|it| name.starts_with(it.word())),
    };
    all.map(ability).to_vec()
}

/// The limits that it set; 0 stands for none.
fn limits(limits: Option<&Limits>) -> Vec<(&'static str, u64)> {
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
