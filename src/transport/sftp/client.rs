//! One session with a host: its requests, and the interpretation of their replies.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::session::{PendingReplies, RequestError, Session};
use super::ssh::{SshChild, explain_session_error};
use super::wire::{Attrs, Reply, Request, ServerExtensions, flags, status};
use crate::base::error::{Error, ErrorKind};
use crate::config::SshHost;
use crate::transport::{
    Attributes, FailureCause, FileMetadata, MemoryObject, SpecialFile, Stamp, TransportError,
};

/// A session and the process behind it.
pub(super) struct SessionLink {
    pub(super) session: Session,
    /// Dropped after the session: the child exits when its input ends.
    pub(super) child: Option<SshChild>,
}

/// A session, with what is known since its start.
pub(super) struct SftpClient {
    pub(super) host: SshHost,
    pub(super) link: Arc<SessionLink>,
    extensions: ServerExtensions,
    /// The directory to which relative paths are resolved.
    home_directory: PathBuf,
}

/// Number of requests of a stat: the real path of the directory, the directory with and without
/// following links, so that "no such file" is trustworthy, then the memory itself.
pub(super) const STAT_REQUESTS: usize = 4;

pub(super) fn stat_requests(memory: &Path) -> [Request; STAT_REQUESTS] {
    let directory = memory.parent().unwrap_or(Path::new("/"));
    [
        Request::RealPath(path_bytes(directory)),
        lstat_request(directory),
        lstat_request(&directory.join(".")),
        lstat_request(memory),
    ]
}

pub(super) fn path_bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

pub(super) fn lstat_request(path: &Path) -> Request {
    Request::Lstat(path_bytes(path))
}

/// Returns the request that removes a path that is no directory.
pub(super) fn remove_request(path: &Path) -> Request {
    Request::Remove(path_bytes(path))
}

/// Returns the request that opens a path for reading.
pub(super) fn open_request(path: &Path) -> Request {
    Request::Open {
        path: path_bytes(path),
        flags: flags::READ,
        mode: None,
    }
}

/// The object at a name, or the reason why it is unknown.
pub(super) type StatResult = Result<MemoryObject, TransportError>;

/// The reply to one request of a batch, or the reason why there is none.
pub(super) type ReplyResult = Result<Reply, RequestError>;

/// The server's name for an open file or directory.
pub(super) type FileHandle = Vec<u8>;

/// The request for the directory to which a server resolves relative paths.
pub(super) fn home_directory_request() -> Request {
    Request::RealPath(b".".to_vec())
}

impl SftpClient {
    /// Creates the client of a session that was opened with [`home_directory_request`], from the
    /// reply.
    ///
    /// # Errors
    /// The session has ended, or the host does not say what the home directory is.
    pub(super) fn new(
        host: &SshHost,
        link: &Arc<SessionLink>,
        replies: Vec<ReplyResult>,
    ) -> Result<SftpClient, TransportError> {
        let mut client = SftpClient {
            host: host.clone(),
            link: Arc::clone(link),
            extensions: link.session.extensions(),
            home_directory: PathBuf::new(),
        };
        let replies = client.check_session(replies)?;
        let home = replies.first().and_then(reply_path);
        client.home_directory =
            home.ok_or_else(|| client.reply_error("resolve", Path::new("."), replies.first()))?;
        Ok(client)
    }

    /// Returns the session.
    pub(super) fn session(&self) -> &Session {
        &self.link.session
    }

    /// Returns the host's name, for messages.
    pub(super) fn host_name(&self) -> &str {
        &self.host.name
    }

    /// Returns the server's extensions to the protocol.
    pub(super) fn extensions(&self) -> &ServerExtensions {
        &self.extensions
    }

    /// Sends the requests together and returns one reply for each, in order.
    ///
    /// # Errors
    /// The session is lost.
    pub(super) fn request_batch(
        &self,
        batch: Vec<Request>,
    ) -> Result<Vec<ReplyResult>, TransportError> {
        self.check_session(self.link.session.send_batch(batch).wait())
    }

    /// Sends the first requests without any other request between them; the rest follow without
    /// waiting for a reply.
    ///
    /// # Errors
    /// The session is lost, and the effect of the requests is unknown.
    pub(super) fn request_isolated(
        &self,
        first: Vec<Request>,
        behind: Vec<Request>,
    ) -> Result<Vec<ReplyResult>, TransportError> {
        self.check_session(self.link.session.send_isolated(first, behind).wait())
    }

    /// Sends requests whose replies are not needed.
    pub(super) fn send_without_waiting(&self, batch: Vec<Request>) {
        drop(self.link.session.send_batch(batch));
    }

    fn check_session(&self, answers: Vec<ReplyResult>) -> Result<Vec<ReplyResult>, TransportError> {
        let session_error = answers.iter().find_map(|answer| match answer {
            Err(RequestError::SessionEnded(session_error)) => {
                Some(explain_session_error(&self.host, session_error))
            }
            _ => None,
        });
        if let Some(session_error) = session_error {
            return Err(session_error);
        }
        match answers.first() {
            Some(Err(unsent @ RequestError::NotSent(_))) => {
                let message = format!("{}: {unsent}", self.host_name());
                let error = Error::new(ErrorKind::Host, message);
                Err(TransportError::new(FailureCause::Refused, error))
            }
            _ => Ok(answers),
        }
    }

    /// Sends one request and returns its reply.
    pub(super) fn request_one(&self, request: Request) -> Result<ReplyResult, TransportError> {
        let reply = self.request_batch(vec![request])?.pop();
        reply.ok_or_else(|| Error::new(ErrorKind::Internal, "a request has no reply").into())
    }

    /// Returns the absolute path of a configured one: a relative path, or one with `~/`, starts in
    /// the home directory on the host.
    pub(super) fn absolute_path(&self, path: &Path) -> PathBuf {
        let relative = path.strip_prefix("~").unwrap_or(path);
        let joined = self.home_directory.join(relative);
        // Without `.` and doubled slashes, as servers write paths.
        let parts = joined.components().filter(|it| *it != Component::CurDir);
        parts.collect()
    }

    /// Returns the object that the replies to [`stat_requests`] describe.
    pub(super) fn object_from_replies(
        &self,
        memory: &Path,
        answers: &[ReplyResult],
    ) -> Result<MemoryObject, TransportError> {
        let directory = memory.parent().unwrap_or(Path::new("/"));
        self.check_directory(directory, answers)?;
        let [_, directory_reply, search_reply, file_reply] = answers else {
            return Err(self.reply_error("stat", memory, None));
        };
        match (status_code(file_reply), reply_attrs(file_reply)) {
            // Only a directory that can be searched proves that the name is absent.
            (Some(status::NO_SUCH_FILE), _) => match reply_attrs(search_reply) {
                Some(found) if file_type(found) == Some(TYPE_DIRECTORY) => Ok(MemoryObject::Absent),
                _ => Err(self.reply_error("search", directory, Some(search_reply))),
            },
            (_, Some(found)) => self.object_from_attrs(memory, found, reply_attrs(directory_reply)),
            _ => Err(self.reply_error("stat", memory, Some(file_reply))),
        }
    }

    /// Fails unless the replies to [`stat_requests`] show that the directory exists and that its
    /// path goes through no symlink.
    pub(super) fn check_directory(
        &self,
        directory: &Path,
        answers: &[ReplyResult],
    ) -> Result<(), TransportError> {
        let [real_path_reply, directory_reply, ..] = answers else {
            return Err(self.reply_error("stat", directory, None));
        };
        match (status_code(directory_reply), reply_attrs(directory_reply)) {
            (Some(status::NO_SUCH_FILE), _) => {
                let message = format!(
                    "{}:{} does not exist",
                    self.host_name(),
                    directory.display()
                );
                Err(TransportError::new(
                    FailureCause::NoDirectory,
                    Error::new(ErrorKind::Host, message)
                        .with_hint("create the directory, or correct remote_memory"),
                ))
            }
            (_, Some(found)) if file_type(found) == Some(TYPE_SYMLINK) => {
                Err(self.link_in_path_error(directory, None))
            }
            (_, Some(found)) if file_type(found) == Some(TYPE_DIRECTORY) => {
                match reply_path(real_path_reply) {
                    Some(real) if real == directory => Ok(()),
                    Some(real) => Err(self.link_in_path_error(directory, Some(&real))),
                    None => {
                        let reply = Some(real_path_reply);
                        Err(self.reply_error("resolve", directory, reply))
                    }
                }
            }
            (_, Some(_)) => Err(self.refused_error("use", directory, "it is not a directory")),
            _ => Err(self.reply_error("stat", directory, Some(directory_reply))),
        }
    }

    /// Returns the objects at several paths.
    pub(super) fn stat_memories(
        &self,
        memories: &[&Path],
    ) -> Result<Vec<StatResult>, TransportError> {
        self.objects_from_replies(memories, self.request_stats(memories).wait())
    }

    /// Sends the requests for [`SftpClient::objects_from_replies`].
    pub(super) fn request_stats(&self, memories: &[&Path]) -> PendingReplies {
        let ask = memories.iter().flat_map(|memory| stat_requests(memory));
        self.link.session.send_batch(ask.collect())
    }

    /// Returns the objects at several paths, from the replies.
    ///
    /// # Errors
    /// The session is lost.
    pub(super) fn objects_from_replies(
        &self,
        memories: &[&Path],
        replies: Vec<ReplyResult>,
    ) -> Result<Vec<StatResult>, TransportError> {
        let answers = self.check_session(replies)?;
        let replies = answers.chunks(STAT_REQUESTS).zip(memories);
        Ok(replies
            .map(|(answers, memory)| self.object_from_replies(memory, answers))
            .collect())
    }

    /// Whether [`SftpClient::resolve_link_targets`] has requests for an object.
    pub(super) fn needs_further_requests(found: &StatResult) -> bool {
        matches!(
            found,
            Ok(MemoryObject::Absent | MemoryObject::Special(SpecialFile::Symlink(_)))
        )
    }

    /// Adds the targets of symlinks. Asks a second time for absent objects: servers use the same
    /// status for other errors, some of them transient.
    pub(super) fn resolve_link_targets(
        &self,
        memories: &[&Path],
        mut found: Vec<StatResult>,
    ) -> Result<Vec<StatResult>, TransportError> {
        let indices = |found: &[StatResult], wanted: fn(&MemoryObject) -> bool| -> Vec<usize> {
            let all = found.iter().enumerate();
            let some = all.filter(|(_, found)| found.as_ref().is_ok_and(wanted));
            some.map(|(place, _)| place).collect()
        };
        let absent = indices(&found, |object| *object == MemoryObject::Absent);
        if !absent.is_empty() {
            let memories: Vec<&Path> = absent.iter().map(|place| memories[*place]).collect();
            for (place, object) in absent.into_iter().zip(self.stat_memories(&memories)?) {
                found[place] = object;
            }
        }
        let links = indices(&found, |it| {
            matches!(it, MemoryObject::Special(SpecialFile::Symlink(_)))
        });
        if !links.is_empty() {
            let paths = links.iter().map(|place| path_bytes(memories[*place]));
            let ask = paths.map(Request::ReadLink);
            for (place, answer) in links.iter().zip(self.request_batch(ask.collect())?) {
                let target = match answer {
                    Ok(Reply::Names(mut names)) => names.pop().map(|name| name.name),
                    _ => None,
                };
                found[*place] = Ok(MemoryObject::Special(SpecialFile::Symlink(
                    target.unwrap_or_default(),
                )));
            }
        }
        Ok(found)
    }

    /// Does the same for one memory.
    pub(super) fn resolve_link_target(
        &self,
        memory: &Path,
        object: MemoryObject,
    ) -> Result<MemoryObject, TransportError> {
        let found = self
            .resolve_link_targets(&[memory], vec![Ok(object)])?
            .pop();
        found.unwrap_or_else(|| Err(self.reply_error("stat", memory, None)))
    }

    /// Returns the object that a file's attributes describe.
    pub(super) fn object_from_attrs(
        &self,
        memory: &Path,
        found: &Attrs,
        directory: Option<&Attrs>,
    ) -> Result<MemoryObject, TransportError> {
        let special = match file_type(found) {
            Some(TYPE_REGULAR) => {
                // SFTP has no link counts, so a file of another user may be a further name of a
                // file that the agent must not read.
                if let (Some((uid, _)), Some((owner, _))) =
                    (found.owner, directory.and_then(|directory| directory.owner))
                    && uid != owner
                {
                    let why = format!(
                        "it belongs to user {uid} and its directory to user {owner}, and SFTP does not show whether it is a link to a file elsewhere"
                    );
                    return Err(self.refused_error("read", memory, &why));
                }
                return Ok(MemoryObject::File(file_metadata(found).ok_or_else(
                    || {
                        self.refused_error(
                            "read",
                            memory,
                            "the server does not report its size, owner and mode",
                        )
                    },
                )?));
            }
            Some(TYPE_SYMLINK) => SpecialFile::Symlink(Vec::new()),
            Some(TYPE_DIRECTORY) => SpecialFile::Directory,
            Some(TYPE_FIFO) => SpecialFile::Fifo,
            Some(TYPE_SOCKET) => SpecialFile::Socket,
            Some(TYPE_BLOCK_DEVICE | TYPE_CHARACTER_DEVICE) => SpecialFile::Device,
            _ => {
                return Err(self.refused_error(
                    "read",
                    memory,
                    "the server does not report its type",
                ));
            }
        };
        Ok(MemoryObject::Special(special))
    }

    pub(super) fn link_in_path_error(
        &self,
        directory: &Path,
        real: Option<&Path>,
    ) -> TransportError {
        let message = format!(
            "{}:{} goes through a symlink, which is never followed",
            self.host_name(),
            directory.display()
        );
        let error = Error::new(ErrorKind::Host, message);
        let error = match real {
            Some(real) => error.with_hint(format!(
                "write the real path in the configuration: {}",
                real.display()
            )),
            None => error.with_hint("write the real path in the configuration"),
        };
        TransportError::new(FailureCause::Refused, error)
    }

    /// Returns the handle in the reply to an open request.
    pub(super) fn handle_from_reply(
        &self,
        path: &Path,
        answer: ReplyResult,
    ) -> Result<FileHandle, TransportError> {
        match answer {
            Ok(Reply::Handle(handle)) => Ok(handle),
            _ if status_code(&answer) == Some(status::NO_SUCH_FILE) => {
                Err(self.replaced_error(path))
            }
            _ => Err(self.reply_error("open", path, Some(&answer))),
        }
    }

    /// Opens a file for reading.
    pub(super) fn open_file(&self, path: &Path) -> Result<FileHandle, TransportError> {
        let answer = self.request_one(open_request(path))?;
        self.handle_from_reply(path, answer)
    }

    /// Opens the regular file at a path, with its attributes; `None` where another object is there.
    pub(super) fn open_regular(
        &self,
        path: &Path,
    ) -> Result<Option<(FileHandle, Attrs)>, TransportError> {
        let found = self.request_one(lstat_request(path))?;
        let regular =
            reply_attrs(&found).is_some_and(|attrs| file_type(attrs) == Some(TYPE_REGULAR));
        match status_code(&found) {
            Some(status::NO_SUCH_FILE) => return Ok(None),
            Some(_) => return Err(self.reply_error("stat", path, Some(&found))),
            None if !regular => return Ok(None),
            None => {}
        }
        let handle = self.open_file(path)?;
        let found = self.request_one(Request::Fstat(handle.clone()))?;
        match reply_attrs(&found) {
            Some(found) if file_type(found) == Some(TYPE_REGULAR) => Ok(Some((handle, *found))),
            _ => {
                self.close_handle(handle);
                Ok(None)
            }
        }
    }

    /// Returns whether there is an object at a path.
    pub(super) fn exists_at(&self, path: &Path) -> Result<bool, TransportError> {
        let found = self.request_one(lstat_request(path))?;
        match (status_code(&found), reply_attrs(&found)) {
            (Some(status::NO_SUCH_FILE), _) => Ok(false),
            (_, Some(_)) => Ok(true),
            _ => Err(self.reply_error("stat", path, Some(&found))),
        }
    }

    /// Closes a handle, without waiting.
    pub(super) fn close_handle(&self, handle: FileHandle) {
        self.send_without_waiting(vec![Request::Close(handle)]);
    }

    /// Renames a path to a free name.
    pub(super) fn rename_request(&self, from: &Path, to: &Path) -> Request {
        let (from, to) = (path_bytes(from), path_bytes(to));
        if self.extensions().posix_rename {
            Request::PosixRename { from, to }
        } else {
            Request::Rename { from, to }
        }
    }

    /// Returns the error for the reply to a request that takes space on the host. The protocol has
    /// no status for a full disk.
    pub(super) fn write_error(
        &self,
        verb: &str,
        path: &Path,
        reply: Option<&ReplyResult>,
    ) -> TransportError {
        let error = self.reply_error(verb, path, reply);
        error.with_full_disk(reply.and_then(status_code) == Some(status::FAILURE))
    }

    /// Checks the reply to a request that takes space on the host.
    pub(super) fn check_written(
        &self,
        answer: &ReplyResult,
        verb: &str,
        path: &Path,
    ) -> Result<(), TransportError> {
        match status_code(answer) {
            Some(status::OK) => Ok(()),
            _ => Err(self.write_error(verb, path, Some(answer))),
        }
    }

    pub(super) fn replaced_error(&self, path: &Path) -> TransportError {
        let message = format!(
            "{}:{} was replaced by another process",
            self.host_name(),
            path.display()
        );
        TransportError::new(
            FailureCause::Replaced,
            Error::new(ErrorKind::Conflict, message)
                .with_hint("nothing was lost; run the command again"),
        )
    }

    /// Returns the number of files that one batch may hold open: half of what the server allows, since
    /// other callers of this session hold some, too.
    pub(super) fn max_batch_handles(&self) -> usize {
        match self.link.session.limits() {
            Some(limits) if limits.handles > 0 => (limits.handles / 2).max(1) as usize,
            _ => usize::MAX,
        }
    }

    /// Returns the error for a reply that is not the expected one: a failure, or a reply that does
    /// not fit its request.
    pub(super) fn reply_error(
        &self,
        verb: &str,
        path: &Path,
        reply: Option<&ReplyResult>,
    ) -> TransportError {
        match reply {
            Some(Ok(Reply::Status(code))) => self.refused_error(verb, path, status_text(*code)),
            Some(Err(malformed)) => {
                let why = format!("unexpected reply from the server: {malformed}");
                self.refused_error(verb, path, &why)
            }
            _ => self.refused_error(verb, path, "unexpected reply from the server"),
        }
    }

    pub(super) fn refused_error(&self, verb: &str, path: &Path, why: &str) -> TransportError {
        let message = format!(
            "cannot {verb} {}:{}: {why}",
            self.host_name(),
            path.display()
        );
        TransportError::new(FailureCause::Refused, Error::new(ErrorKind::Host, message))
    }
}

fn status_text(code: u32) -> &'static str {
    match code {
        status::EOF => "unexpected end of file",
        status::NO_SUCH_FILE => "no such file or directory",
        status::PERMISSION_DENIED => "permission denied",
        status::BAD_MESSAGE => "the server rejected the request",
        status::UNSUPPORTED => "the server does not support the request",
        // Covers a full disk, a quota and a read-only file system: the protocol does not
        // distinguish them.
        _ => "the server failed without a reason",
    }
}

const FILE_TYPE_MASK: u32 = 0o170_000;
pub(super) const TYPE_REGULAR: u32 = 0o100_000;
pub(super) const TYPE_DIRECTORY: u32 = 0o040_000;
const TYPE_SYMLINK: u32 = 0o120_000;
const TYPE_FIFO: u32 = 0o010_000;
const TYPE_SOCKET: u32 = 0o140_000;
const TYPE_BLOCK_DEVICE: u32 = 0o060_000;
const TYPE_CHARACTER_DEVICE: u32 = 0o020_000;

/// Returns the file type in a mode.
pub(super) fn file_type(attrs: &Attrs) -> Option<u32> {
    attrs.mode.map(|mode| mode & FILE_TYPE_MASK)
}

/// Returns the metadata of a regular file; `None` where the server omits an attribute.
pub(super) fn file_metadata(attrs: &Attrs) -> Option<FileMetadata> {
    let (uid, gid) = attrs.owner?;
    let (_, modified) = attrs.times?;
    Some(FileMetadata {
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
        dropped_xattrs: 0,
    })
}

pub(super) fn status_code(answer: &ReplyResult) -> Option<u32> {
    match answer {
        Ok(Reply::Status(code)) => Some(*code),
        _ => None,
    }
}

pub(super) fn into_handle(answer: ReplyResult) -> Option<FileHandle> {
    match answer {
        Ok(Reply::Handle(handle)) => Some(handle),
        _ => None,
    }
}

pub(super) fn reply_attrs(answer: &ReplyResult) -> Option<&Attrs> {
    match answer {
        Ok(Reply::Attrs(attrs)) => Some(attrs),
        _ => None,
    }
}

fn reply_path(answer: &ReplyResult) -> Option<PathBuf> {
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
