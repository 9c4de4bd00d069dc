//! One host: its session, which everybody shares, and what is known of it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::askpass::Call;
use super::folder::SftpFolder;
use super::session::{Deadline, Failure, Session};
use super::ssh::{Carrier, Dial, Dialed, explain};
use super::wire::{Attrs, Extensions, Reply, Request, status};
use crate::clock::Clock;
use crate::config::Host;
use crate::error::{Error, Kind};
use crate::transport::{
    Attributes, Cause, File, Folder, Object, Odd, Stamp, Transport, TransportError,
};

/// How long a host that did not answer is left alone, at first; it doubles.
const PAUSE: Duration = Duration::from_secs(2);

/// The longest that it is left alone.
const LONGEST: Duration = Duration::from_secs(120);

/// How often whoever waits for a connection looks whether it has come to a
/// question.
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
enum State {
    /// Nobody asked for it yet, or its session was lost and may be had anew.
    Idle,
    /// Somebody is connecting; the others wait for what comes of it, but not for the
    /// answer to a question.
    Connecting(Option<Call>),
    Connected(Arc<Connection>),
    /// It is left alone for a while.
    Away {
        until: Instant,
        pause: Duration,
        why: TransportError,
    },
}

/// A session with what was learnt when it began.
pub(super) struct Connection {
    host: Host,
    session: Session,
    extensions: Extensions,
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
            state: Mutex::new(State::Idle),
            changed: Condvar::new(),
        }))
    }
}

impl Drop for Sftp {
    fn drop(&mut self) {
        if let State::Connecting(Some(call)) = &*self.0.state() {
            call.abandon();
        }
    }
}

impl Line {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session, connecting if there is none. Whoever comes while somebody
    /// connects waits for the same outcome.
    fn connection(self: &Arc<Line>) -> Result<Arc<Connection>, TransportError> {
        let mut state = self.state();
        let pause = match &*state {
            State::Connected(connection) if connection.session.ended().is_none() => {
                return Ok(Arc::clone(connection));
            }
            State::Connecting(_) => return self.outcome(state),
            State::Away { until, why, .. } if self.clock.instant() < *until => {
                return Err(why.clone());
            }
            State::Away { pause, .. } => (*pause * 2).clamp(PAUSE, LONGEST),
            State::Idle | State::Connected(_) => PAUSE,
        };
        *state = State::Connecting(None);
        drop(state);
        let dialed = self.dial.dial(&self.host);
        let child = dialed
            .as_ref()
            .ok()
            .and_then(|dialed| dialed.child.as_ref());
        let Some(call) = child.and_then(Carrier::call).cloned() else {
            let limit = Duration::from_secs(self.host.timeout.max(1).into());
            let until = self.clock.instant() + limit;
            let connected = dialed.and_then(|dialed| self.connect(dialed, until));
            return self.settle(connected, pause);
        };
        // It may come to a question, which nobody here should have to wait for.
        *self.state() = State::Connecting(Some(call.clone()));
        self.changed.notify_all();
        let line = Arc::clone(self);
        let thread = thread::Builder::new().name("ssh".into()).spawn(move || {
            let connected = dialed.and_then(|dialed| line.connect(dialed, call.clone()));
            let _ = line.settle(connected, pause);
            call.tell(&line.host);
        });
        match thread {
            Ok(_) => self.outcome(self.state()),
            Err(error) => {
                let error = Error::new(Kind::Host, format!("no thread for ssh: {error}"));
                let failed = TransportError::new(Cause::Unreachable, error);
                self.settle(Err(failed), pause)
            }
        }
    }

    /// Waits while somebody connects, for what comes of it, unless that is a
    /// question.
    fn outcome(&self, mut state: MutexGuard<'_, State>) -> Result<Arc<Connection>, TransportError> {
        loop {
            let limit = match &*state {
                State::Connected(connection) => return Ok(Arc::clone(connection)),
                State::Away { why, .. } => return Err(why.clone()),
                State::Connecting(Some(call)) => match call.waits() {
                    Some(why) => return Err(why),
                    None => GLANCE,
                },
                // A dial takes no time; it is told when it has come to anything.
                State::Connecting(None) | State::Idle => LONGEST,
            };
            let woken = self.changed.wait_timeout(state, limit);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Tells everybody what came of connecting.
    fn settle(
        &self,
        connected: Result<Connection, TransportError>,
        pause: Duration,
    ) -> Result<Arc<Connection>, TransportError> {
        let connected = connected.map(Arc::new);
        *self.state() = match &connected {
            Ok(connection) => State::Connected(Arc::clone(connection)),
            Err(why) => {
                // Where the dial itself says no, there is nothing to be spared.
                let pause = match self.dial.bars(&self.host) {
                    true => Duration::ZERO,
                    false => pause,
                };
                State::Away {
                    until: self.clock.instant() + pause,
                    pause,
                    why: why.clone(),
                }
            }
        };
        self.changed.notify_all();
        connected
    }

    fn connect(
        &self,
        dialed: Dialed,
        until: impl Deadline + 'static,
    ) -> Result<Connection, TransportError> {
        let Dialed { link, child } = dialed;
        let session = Session::start(link, until).map_err(|broken| explain(&self.host, &broken));
        let session = match child.as_ref().and_then(Carrier::call) {
            Some(call) => call.judge(session)?,
            None => session?,
        };
        let mut connection = Connection {
            host: self.host.clone(),
            extensions: session.extensions(),
            session,
            home: PathBuf::new(),
            _child: child,
        };
        connection.home = connection.real_path(b".")?;
        Ok(connection)
    }
}

impl Transport for Sftp {
    fn probe(&self, memories: &[&Path]) -> Vec<Result<Object, TransportError>> {
        let connection = match self.0.connection() {
            Ok(connection) => connection,
            Err(error) => return memories.iter().map(|_| Err(error.clone())).collect(),
        };
        let paths: Vec<PathBuf> = memories.iter().map(|it| connection.absolute(it)).collect();
        let ask = paths.iter().flat_map(|path| look_at(path));
        match connection.ask(ask.collect()) {
            Ok(replies) => {
                let looks = replies.chunks(LOOK).zip(&paths);
                looks
                    .map(|(replies, path)| {
                        let object = connection.object(path, replies)?;
                        connection.with_target(path, object)
                    })
                    .collect()
            }
            Err(error) => memories.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    fn open(&self, memory: &Path) -> Result<Box<dyn Folder>, TransportError> {
        let connection = self.0.connection()?;
        let path = connection.absolute(memory);
        let folder = SftpFolder::open(connection, &path, self.0.clock.clone())?;
        Ok(Box::new(folder))
    }
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

    /// Asks apart from everything else; nothing comes between these requests.
    ///
    /// # Errors
    /// The session is lost, and nobody knows what became of it.
    pub(super) fn ask_apart(&self, batch: Vec<Request>) -> Result<Vec<Answer>, TransportError> {
        self.whole(self.session.ask_apart(batch).wait())
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
    fn absolute(&self, path: &Path) -> PathBuf {
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

    /// An object, with its target if it is a link.
    pub(super) fn with_target(
        &self,
        memory: &Path,
        object: Object,
    ) -> Result<Object, TransportError> {
        let Object::Odd(Odd::Symlink(_)) = object else {
            return Ok(object);
        };
        let path = bytes(memory);
        let target = match self.ask(vec![Request::ReadLink { path }])?.pop() {
            Some(Ok(Reply::Names(mut names))) => names.pop().map(|name| name.name),
            _ => None,
        };
        Ok(Object::Odd(Odd::Symlink(target.unwrap_or_default())))
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
