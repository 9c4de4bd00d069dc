//! One host: its session, which everybody shares, and what is known of it.

use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use chrono::{DateTime, FixedOffset, Timelike};

use super::askpass::Call;
use super::folder::SftpFolder;
use super::session::{Deadline, Failure, Session};
use super::ssh::{Carrier, Dial, Dialed, Leash, explain};
use super::together;
use super::wire::{Attrs, Extensions, Limits, Reply, Request, status};
use crate::clock::{Clock, System};
use crate::config::Host;
use crate::error::{Error, Kind};
use crate::transport::{
    Ability, Attributes, Cause, Contact, File, Folder, Object, Odd, Pieces, Reach, Setting, Stamp,
    Transport, TransportError,
};

/// How long a host that did not answer is left alone, at first; it doubles.
const PAUSE: Duration = Duration::from_secs(2);

/// The longest that it is left alone.
const LONGEST: Duration = Duration::from_secs(120);

/// How often whoever waits for a host looks whether it asks something.
const GLANCE: Duration = Duration::from_millis(100);

/// A host as a transport.
pub struct Sftp(Arc<Line>);

/// The way to a host.
struct Line {
    host: Host,
    dial: Arc<dyn Dial>,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    changed: Condvar,
}

/// How a host stands.
#[derive(Default)]
struct State {
    phase: Phase,
    /// What the last try came to; while one is under way, the one before.
    reach: Reach,
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
    leash: Option<Leash>,
    /// A session that ended, until the next begins.
    lost: Option<Arc<Connection>>,
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

/// A session with what was learnt when it began.
pub(super) struct Connection {
    host: Host,
    session: Session,
    extensions: Extensions,
    limits: Option<Limits>,
    /// Where paths begin that are not absolute.
    home: PathBuf,
    /// After the session: it ends when its input does.
    _child: Option<Carrier>,
}

impl Sftp {
    /// A host, not connected to yet.
    pub fn new(host: Host, dial: Arc<dyn Dial>, clock: Arc<dyn Clock>) -> Sftp {
        Sftp(Arc::new(Line {
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

    /// Whether its process is gone; after [`Sftp::leave`].
    pub(super) fn has_left(&self) -> bool {
        let state = self.0.state();
        state.leash.as_ref().is_none_or(Leash::has_ended)
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

impl Line {
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
            state.leash.iter().for_each(Leash::terminate);
            state.turn(Reach::of(why.cause), &*self.clock);
            state.error = Some(why);
        }
        state
    }

    /// The session, connecting if there is none. Whoever comes while somebody
    /// connects waits for the same outcome. A host that somebody watches and that
    /// did not answer is left to them.
    fn connection(self: &Arc<Line>, watching: bool) -> Result<Arc<Connection>, TransportError> {
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
        let Some(call) = child.and_then(Carrier::call).cloned() else {
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
        let connected = connected.map(Arc::new);
        let mut state = self.state();
        let connected = match connected {
            Ok(_) if state.left => Err(self.gone()),
            connected => connected,
        };
        match &connected {
            Ok(connection) => {
                state.phase = Phase::Connected(Arc::clone(connection));
                state.turn(Reach::Up, &*self.clock);
                state.failures = 0;
                state.error = None;
            }
            Err(why) => {
                // Where the dial itself says no, there is nothing to be spared.
                let pause = match self.dial.bars(&self.host) {
                    true => Duration::ZERO,
                    false => {
                        state.failures = state.failures.saturating_add(1);
                        self.pause(state.failures)
                    }
                };
                state.phase = Phase::Paused {
                    until: self.clock.instant() + pause,
                    next: self.clock.now() + pause,
                };
                state.turn(Reach::of(why.cause), &*self.clock);
                state.error = Some(why.clone());
                state.leash = None;
            }
        }
        drop(state);
        self.changed.notify_all();
        connected
    }

    /// How long connecting, and a reply, may take.
    fn limit(&self) -> Duration {
        Duration::from_secs(self.host.timeout.max(1).into())
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
        dialed: Dialed,
        until: impl Deadline + 'static,
    ) -> Result<Connection, TransportError> {
        let Dialed { link, child } = dialed;
        {
            let mut state = self.state();
            state.leash = child.as_ref().map(Carrier::leash);
            if state.left {
                state.leash.iter().for_each(Leash::terminate);
                return Err(self.gone());
            }
        }
        // What counts as not answering holds for each reply as well, by the machine's
        // time, which the session waits by, whatever clock we have.
        let session = Session::start_with(link, until, self.limit())
            .map_err(|broken| explain(&self.host, &broken));
        let session = match child.as_ref().and_then(Carrier::call) {
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
        state.leash.iter().for_each(Leash::terminate);
        drop(state);
        self.changed.notify_all();
    }
}

impl State {
    /// Something was found out; since when it is so is known if it was so before.
    fn turn(&mut self, reach: Reach, clock: &dyn Clock) {
        if self.reach != reach {
            self.reach = reach;
            self.since = Some(clock.now());
        }
    }
}

impl Transport for Sftp {
    fn probe(&self, memories: &[&Path]) -> Vec<Result<Object, TransportError>> {
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
            let end = self.0.clock.instant() + together::LONGEST;
            together::read(&connection, files, sink, || self.0.clock.instant() < end)
        });
        read.unwrap_or_else(|error| files.iter().map(|_| Err(error.clone())).collect())
    }

    fn contact(&self) -> Option<Contact> {
        let state = self.0.state();
        let mut contact = Contact {
            reach: state.reach,
            trying: matches!(state.phase, Phase::Connecting(_)),
            since: state.since,
            failures: state.failures,
            error: state.error.clone(),
            ..Contact::default()
        };
        match &state.phase {
            Phase::Connected(connection) => {
                contact.latency = connection.session.latency();
                contact.abilities = abilities(&connection.extensions);
                contact.limits = limits(connection.limits.as_ref());
            }
            Phase::Paused { until, next } => {
                contact.until = Some(*until);
                contact.next = Some(*next);
            }
            Phase::Idle | Phase::Connecting(_) => {}
        }
        Some(contact)
    }

    fn approach(&self) -> Result<(), TransportError> {
        self.0.connection(true).map(drop)
    }

    fn hurry(&self) {
        let mut state = self.0.state();
        if let Phase::Paused { .. } = state.phase {
            state.phase = Phase::Idle;
        }
    }

    fn settings(&self) -> Result<Vec<Setting>, TransportError> {
        self.0.dial.settings(&self.0.host)
    }
}

/// What the server announced, and what is weaker where it did not.
fn abilities(has: &Extensions) -> Vec<Ability> {
    let nothing = "what an agent puts in the memory's place in that instant may be lost, so nothing is reset there unless accept_weaker allows it";
    let all = [
        ("posix-rename@openssh.com", has.posix_rename, nothing),
        ("hardlink@openssh.com", has.hardlink, nothing),
        (
            "fsync@openssh.com",
            has.fsync,
            "a power cut there may leave a new memory empty, so nothing is reset there unless accept_weaker allows it",
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
    let ability = |(name, there, without)| Ability {
        name,
        there,
        without,
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

/// The requests of a look at a memory: where its folder really is, the folder
/// from outside and from inside, so that "no such file" can be believed, then the
/// memory itself.
pub(super) const LOOK: usize = 4;

pub(super) fn look_at(memory: &Path) -> [Request; LOOK] {
    let folder = memory.parent().unwrap_or(Path::new("/"));
    [
        Request::RealPath {
            path: bytes(folder),
        },
        lstat(folder),
        lstat(&folder.join(".")),
        lstat(memory),
    ]
}

pub(super) fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

pub(super) fn lstat(path: &Path) -> Request {
    Request::Lstat { path: bytes(path) }
}

/// What stands at a name, or why that is not known.
type Found = Result<Object, TransportError>;

/// The answer to one request of a batch: the server's, or why that one has none.
pub(super) type Answer = Result<Reply, Failure>;

impl Connection {
    /// The host's name, for messages.
    pub(super) fn host(&self) -> &str {
        &self.host.name
    }

    /// What the server can do beside the protocol's own.
    pub(super) fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// Asks; all of it leaves at once. One answer for each request, in order.
    ///
    /// # Errors
    /// The session is lost.
    pub(super) fn ask(&self, batch: Vec<Request>) -> Result<Vec<Answer>, TransportError> {
        self.whole(self.session.ask(batch).wait())
    }

    /// Asks apart from everything else; nothing comes between the first requests,
    /// and the others follow without waiting.
    ///
    /// # Errors
    /// The session is lost, and nobody knows what became of it.
    pub(super) fn ask_apart(
        &self,
        first: Vec<Request>,
        behind: Vec<Request>,
    ) -> Result<Vec<Answer>, TransportError> {
        self.whole(self.session.ask_apart(first, behind).wait())
    }

    /// Asks and does not wait: for what needs no answer.
    pub(super) fn tell(&self, batch: Vec<Request>) {
        drop(self.session.ask(batch));
    }

    fn whole(&self, answers: Vec<Answer>) -> Result<Vec<Answer>, TransportError> {
        let broken = answers.iter().find_map(|answer| match answer {
            Err(Failure::Broken(broken)) => Some(explain(&self.host, broken)),
            _ => None,
        });
        broken.map_or(Ok(answers), Err)
    }

    fn real_path(&self, path: &[u8]) -> Result<PathBuf, TransportError> {
        let answers = self.ask(vec![Request::RealPath {
            path: path.to_vec(),
        }])?;
        let shown = String::from_utf8_lossy(path).into_owned();
        let real = answers.first().and_then(real_path_of);
        real.ok_or_else(|| self.odd_answer("resolve", Path::new(&shown)))
    }

    /// Where a configured path is: one that begins with `~/` or is not absolute
    /// begins in the home folder there.
    pub(super) fn absolute(&self, path: &Path) -> PathBuf {
        let inside = path.strip_prefix("~").unwrap_or(path);
        let whole = self.home.join(inside);
        // Without `.` and doubled slashes, as the server writes paths.
        let parts = whole.components().filter(|it| *it != Component::CurDir);
        parts.collect()
    }

    /// What three answers of [`look_at`] say of a memory.
    pub(super) fn object(
        &self,
        memory: &Path,
        answers: &[Answer],
    ) -> Result<Object, TransportError> {
        let [real, outside, inside, file] = answers else {
            return Err(self.odd_answer("look at", memory));
        };
        let folder = memory.parent().unwrap_or(Path::new("/"));
        match (code(outside), attrs(outside)) {
            (Some(status::NO_SUCH_FILE), _) => {
                let message = format!("{}:{} does not exist", self.host(), folder.display());
                return Err(TransportError::new(
                    Cause::NoFolder,
                    Error::new(Kind::Host, message)
                        .hint("nothing is made there; correct remote_memory or make the folder"),
                ));
            }
            (_, Some(found)) if kind(found) == Some(SYMLINK) => {
                return Err(self.through_a_link(folder, None));
            }
            (_, Some(found)) if kind(found) == Some(DIRECTORY) => match real_path_of(real) {
                Some(real) if real == folder => {}
                Some(real) => return Err(self.through_a_link(folder, Some(&real))),
                None => return Err(self.odd_answer("resolve", folder)),
            },
            (_, Some(_)) => return Err(self.refused("use", folder, "it is not a folder")),
            (Some(other), _) => return Err(self.failed("look at", folder, other)),
            (None, None) => return Err(self.odd_answer("look at", folder)),
        }
        match (code(file), attrs(file)) {
            // Only a folder that can be searched proves that it lacks the name.
            (Some(status::NO_SUCH_FILE), _) => match (code(inside), attrs(inside)) {
                (_, Some(found)) if kind(found) == Some(DIRECTORY) => Ok(Object::Absent),
                (Some(other), _) => Err(self.failed("search", folder, other)),
                _ => Err(self.odd_answer("search", folder)),
            },
            (Some(other), _) => Err(self.failed("look at", memory, other)),
            (_, Some(found)) => self.described(memory, found, attrs(outside)),
            (None, None) => Err(self.odd_answer("look at", memory)),
        }
    }

    /// What stands at some names.
    fn look(&self, memories: &[&Path]) -> Result<Vec<Found>, TransportError> {
        let ask = memories.iter().flat_map(|memory| look_at(memory));
        let answers = self.ask(ask.collect())?;
        let looks = answers.chunks(LOOK).zip(memories);
        Ok(looks
            .map(|(answers, memory)| self.object(memory, answers))
            .collect())
    }

    /// The same with the targets of links. That there is nothing is asked for twice:
    /// the same status stands for other troubles, some of which pass.
    fn complete(
        &self,
        memories: &[&Path],
        mut found: Vec<Found>,
    ) -> Result<Vec<Found>, TransportError> {
        let places = |found: &[Found], wanted: fn(&Object) -> bool| -> Vec<usize> {
            let all = found.iter().enumerate();
            let some = all.filter(|(_, found)| found.as_ref().is_ok_and(wanted));
            some.map(|(place, _)| place).collect()
        };
        let absent = places(&found, |object| *object == Object::Absent);
        if !absent.is_empty() {
            let memories: Vec<&Path> = absent.iter().map(|place| memories[*place]).collect();
            for (place, object) in absent.into_iter().zip(self.look(&memories)?) {
                found[place] = object;
            }
        }
        let links = places(&found, |it| matches!(it, Object::Odd(Odd::Symlink(_))));
        if !links.is_empty() {
            let paths = links.iter().map(|place| bytes(memories[*place]));
            let ask = paths.map(|path| Request::ReadLink { path });
            for (place, answer) in links.iter().zip(self.ask(ask.collect())?) {
                let target = match answer {
                    Ok(Reply::Names(mut names)) => names.pop().map(|name| name.name),
                    _ => None,
                };
                found[*place] = Ok(Object::Odd(Odd::Symlink(target.unwrap_or_default())));
            }
        }
        Ok(found)
    }

    /// The same for one.
    pub(super) fn with_target(
        &self,
        memory: &Path,
        object: Object,
    ) -> Result<Object, TransportError> {
        let found = self.complete(&[memory], vec![Ok(object)])?.pop();
        found.unwrap_or_else(|| Err(self.odd_answer("look at", memory)))
    }

    /// What a file's attributes say that it is.
    pub(super) fn described(
        &self,
        memory: &Path,
        found: &Attrs,
        folder: Option<&Attrs>,
    ) -> Result<Object, TransportError> {
        let odd = match kind(found) {
            Some(REGULAR) => {
                // Links cannot be counted here, so a file of somebody else's may
                // be a further name of one that is none of the agent's business.
                if let (Some((uid, _)), Some((owner, _))) =
                    (found.owner, folder.and_then(|folder| folder.owner))
                    && uid != owner
                {
                    let why = format!(
                        "it belongs to user {uid} and its folder to user {owner}, and over SFTP nobody can tell whether it is a link to a file elsewhere"
                    );
                    return Err(self.refused("read", memory, &why));
                }
                return Ok(Object::File(file(found).ok_or_else(|| {
                    self.refused(
                        "read",
                        memory,
                        "the server does not tell its size, owner and mode",
                    )
                })?));
            }
            Some(SYMLINK) => Odd::Symlink(Vec::new()),
            Some(DIRECTORY) => Odd::Directory,
            Some(FIFO) => Odd::Fifo,
            Some(SOCKET) => Odd::Socket,
            Some(BLOCK | CHARACTER) => Odd::Device,
            _ => return Err(self.refused("read", memory, "the server does not tell what it is")),
        };
        Ok(Object::Odd(odd))
    }

    pub(super) fn through_a_link(&self, folder: &Path, real: Option<&Path>) -> TransportError {
        let message = format!(
            "{}:{} goes through a symbolic link, which is never followed",
            self.host(),
            folder.display()
        );
        let error = Error::new(Kind::Host, message);
        let error = match real {
            Some(real) => error.hint(format!(
                "write the real path in the configuration: {}",
                real.display()
            )),
            None => error.hint("write the real path in the configuration"),
        };
        TransportError::new(Cause::Refused, error)
    }

    /// The server said no, with this status.
    pub(super) fn failed(&self, verb: &str, path: &Path, code: u32) -> TransportError {
        self.refused(verb, path, meaning(code))
    }

    /// The server answered something that is no answer to that.
    pub(super) fn odd_answer(&self, verb: &str, path: &Path) -> TransportError {
        self.refused(verb, path, "the server's answer makes no sense")
    }

    pub(super) fn refused(&self, verb: &str, path: &Path, why: &str) -> TransportError {
        let message = format!("cannot {verb} {}:{}: {why}", self.host(), path.display());
        TransportError::new(Cause::Refused, Error::new(Kind::Host, message))
    }
}

fn meaning(code: u32) -> &'static str {
    match code {
        status::EOF => "unexpected end of file",
        status::NO_SUCH_FILE => "no such file or folder",
        status::PERMISSION_DENIED => "permission denied",
        status::BAD_MESSAGE => "the server does not accept the request",
        status::UNSUPPORTED => "the server cannot do that",
        // A full disk, a quota, a read-only file system: it does not say.
        _ => "the server failed without saying why",
    }
}

const KIND: u32 = 0o170_000;
pub(super) const REGULAR: u32 = 0o100_000;
pub(super) const DIRECTORY: u32 = 0o040_000;
const SYMLINK: u32 = 0o120_000;
const FIFO: u32 = 0o010_000;
const SOCKET: u32 = 0o140_000;
const BLOCK: u32 = 0o060_000;
const CHARACTER: u32 = 0o020_000;

/// The file type in a mode.
pub(super) fn kind(attrs: &Attrs) -> Option<u32> {
    attrs.mode.map(|mode| mode & KIND)
}

/// A regular file by its attributes; none where the server leaves something out.
pub(super) fn file(attrs: &Attrs) -> Option<File> {
    let (uid, gid) = attrs.owner?;
    let (_, modified) = attrs.times?;
    Some(File {
        stamp: Stamp {
            size: attrs.size?,
            modified: i64::from(modified) * 1_000_000_000,
            changed: 0,
            inode: 0,
        },
        attributes: Attributes {
            uid,
            gid,
            mode: attrs.mode? & 0o7777,
            xattrs: Vec::new(),
        },
        dropped: 0,
    })
}

pub(super) fn code(answer: &Answer) -> Option<u32> {
    match answer {
        Ok(Reply::Status { code, .. }) => Some(*code),
        _ => None,
    }
}

pub(super) fn attrs(answer: &Answer) -> Option<&Attrs> {
    match answer {
        Ok(Reply::Attrs(attrs)) => Some(attrs),
        _ => None,
    }
}

fn real_path_of(answer: &Answer) -> Option<PathBuf> {
    match answer {
        Ok(Reply::Names(names)) => {
            let [name] = names.as_slice() else {
                return None;
            };
            let path = PathBuf::from(OsStr::from_bytes(&name.name));
            path.is_absolute().then_some(path)
        }
        _ => None,
    }
}
