//! One session with a host: what is asked of it, and what its answers say.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::session::{RequestError, Session};
use super::ssh::{SshChild, explain};
use super::wire::{Attrs, Extensions, Limits, Reply, Request, status};
use crate::config::Host;
use crate::error::{Error, Kind};
use crate::transport::{Attributes, Cause, File, MemoryObject, SpecialFile, Stamp, TransportError};

/// A session with what was learnt when it began.
pub(super) struct Connection {
    pub(super) host: Host,
    pub(super) session: Session,
    pub(super) extensions: Extensions,
    pub(super) limits: Option<Limits>,
    /// Where paths begin that are not absolute.
    pub(super) home: PathBuf,
    /// After the session: it ends when its input does.
    pub(super) _child: Option<SshChild>,
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
pub(super) type Found = Result<MemoryObject, TransportError>;

/// The answer to one request of a batch: the server's, or why that one has none.
pub(super) type Answer = Result<Reply, RequestError>;

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
            Err(RequestError::Broken(broken)) => Some(explain(&self.host, broken)),
            _ => None,
        });
        if let Some(broken) = broken {
            return Err(broken);
        }
        match answers.first() {
            Some(Err(unsent @ RequestError::Unsent(_))) => {
                let message = format!("{}: {unsent}", self.host());
                let error = Error::new(Kind::Host, message);
                Err(TransportError::new(Cause::Refused, error))
            }
            _ => Ok(answers),
        }
    }

    pub(super) fn real_path(&self, path: &[u8]) -> Result<PathBuf, TransportError> {
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

    /// What the answers to [`look_at`] say of a memory.
    pub(super) fn object(
        &self,
        memory: &Path,
        answers: &[Answer],
    ) -> Result<MemoryObject, TransportError> {
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
                        .hint("nothing is made there; correct remote_memory or make the directory"),
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
            (_, Some(_)) => return Err(self.refused("use", folder, "it is not a directory")),
            (Some(other), _) => return Err(self.failed("look at", folder, other)),
            (None, None) => return Err(self.odd_answer("look at", folder)),
        }
        match (code(file), attrs(file)) {
            // Only a folder that can be searched proves that it lacks the name.
            (Some(status::NO_SUCH_FILE), _) => match (code(inside), attrs(inside)) {
                (_, Some(found)) if kind(found) == Some(DIRECTORY) => Ok(MemoryObject::Absent),
                (Some(other), _) => Err(self.failed("search", folder, other)),
                _ => Err(self.odd_answer("search", folder)),
            },
            (Some(other), _) => Err(self.failed("look at", memory, other)),
            (_, Some(found)) => self.described(memory, found, attrs(outside)),
            (None, None) => Err(self.odd_answer("look at", memory)),
        }
    }

    /// What stands at some names.
    pub(super) fn look(&self, memories: &[&Path]) -> Result<Vec<Found>, TransportError> {
        let ask = memories.iter().flat_map(|memory| look_at(memory));
        let answers = self.ask(ask.collect())?;
        let looks = answers.chunks(LOOK).zip(memories);
        Ok(looks
            .map(|(answers, memory)| self.object(memory, answers))
            .collect())
    }

    /// The same with the targets of links. That there is nothing is asked for twice:
    /// the same status stands for other troubles, some of which pass.
    pub(super) fn complete(
        &self,
        memories: &[&Path],
        mut found: Vec<Found>,
    ) -> Result<Vec<Found>, TransportError> {
        let places = |found: &[Found], wanted: fn(&MemoryObject) -> bool| -> Vec<usize> {
            let all = found.iter().enumerate();
            let some = all.filter(|(_, found)| found.as_ref().is_ok_and(wanted));
            some.map(|(place, _)| place).collect()
        };
        let absent = places(&found, |object| *object == MemoryObject::Absent);
        if !absent.is_empty() {
            let memories: Vec<&Path> = absent.iter().map(|place| memories[*place]).collect();
            for (place, object) in absent.into_iter().zip(self.look(&memories)?) {
                found[place] = object;
            }
        }
        let links = places(&found, |it| {
            matches!(it, MemoryObject::Odd(SpecialFile::Symlink(_)))
        });
        if !links.is_empty() {
            let paths = links.iter().map(|place| bytes(memories[*place]));
            let ask = paths.map(|path| Request::ReadLink { path });
            for (place, answer) in links.iter().zip(self.ask(ask.collect())?) {
                let target = match answer {
                    Ok(Reply::Names(mut names)) => names.pop().map(|name| name.name),
                    _ => None,
                };
                found[*place] = Ok(MemoryObject::Odd(SpecialFile::Symlink(
                    target.unwrap_or_default(),
                )));
            }
        }
        Ok(found)
    }

    /// The same for one.
    pub(super) fn with_target(
        &self,
        memory: &Path,
        object: MemoryObject,
    ) -> Result<MemoryObject, TransportError> {
        let found = self.complete(&[memory], vec![Ok(object)])?.pop();
        found.unwrap_or_else(|| Err(self.odd_answer("look at", memory)))
    }

    /// What a file's attributes say that it is.
    pub(super) fn described(
        &self,
        memory: &Path,
        found: &Attrs,
        folder: Option<&Attrs>,
    ) -> Result<MemoryObject, TransportError> {
        let odd = match kind(found) {
            Some(REGULAR) => {
                // Links cannot be counted here, so a file of somebody else's may
                // be a further name of one that is none of the agent's business.
                if let (Some((uid, _)), Some((owner, _))) =
                    (found.owner, folder.and_then(|folder| folder.owner))
                    && uid != owner
                {
                    let why = format!(
                        "it belongs to user {uid} and its directory to user {owner}, and over SFTP nobody can tell whether it is a link to a file elsewhere"
                    );
                    return Err(self.refused("read", memory, &why));
                }
                return Ok(MemoryObject::File(file(found).ok_or_else(|| {
                    self.refused(
                        "read",
                        memory,
                        "the server does not tell its size, owner and mode",
                    )
                })?));
            }
            Some(SYMLINK) => SpecialFile::Symlink(Vec::new()),
            Some(DIRECTORY) => SpecialFile::Directory,
            Some(FIFO) => SpecialFile::Fifo,
            Some(SOCKET) => SpecialFile::Socket,
            Some(BLOCK | CHARACTER) => SpecialFile::Device,
            _ => return Err(self.refused("read", memory, "the server does not tell what it is")),
        };
        Ok(MemoryObject::Odd(odd))
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
        status::NO_SUCH_FILE => "no such file or directory",
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
