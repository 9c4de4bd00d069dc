//! Requests to a server, and the replies that each one allows.

#[cfg(doc)]
use super::flags;
use super::{
    Attrs, EXTENSION_FSYNC, EXTENSION_HARDLINK, EXTENSION_LIMITS, EXTENSION_POSIX_RENAME,
    EXTENSION_STATVFS, MAX_DATA_BYTES, MAX_HANDLE_BYTES, MAX_PATH_BYTES, MalformedPacket,
    PACKET_EXTENDED, Reply, ServerLimits, Statvfs, put_packet, put_string, put_strings, put_u32,
    put_u64, status,
};

/// A request to a server. Paths, names and handles are bytes, not necessarily text. An unnamed field
/// is the path or the handle that the description of its variant mentions.
///
/// There is no SETSTAT, because it follows links, and no STAT for the same reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Opens a file; the reply is a handle. Follows links, and blocks on a FIFO together with every
    /// later request: check the object first.
    Open {
        /// Path of the file.
        path: Vec<u8>,
        /// Access mode, from [`flags`].
        flags: u32,
        /// Mode of a new file, minus the server's umask.
        mode: Option<u32>,
    },
    /// Closes a handle.
    Close(Vec<u8>),
    /// Reads; the reply has at least one byte, or is [`status::EOF`].
    Read {
        /// Handle of the file.
        handle: Vec<u8>,
        /// Offset of the first byte.
        offset: u64,
        /// Maximum number of bytes, up to [`MAX_DATA_BYTES`].
        length: u32,
    },
    /// Writes all bytes.
    Write {
        /// Handle of the file.
        handle: Vec<u8>,
        /// Offset of the first byte.
        offset: u64,
        /// Content, up to [`MAX_DATA_BYTES`].
        bytes: Vec<u8>,
    },
    /// Stats a path without following a link.
    Lstat(Vec<u8>),
    /// Stats the file of a handle.
    Fstat(Vec<u8>),
    /// Changes the given attributes of an open file.
    Fsetstat {
        /// Handle of the file.
        handle: Vec<u8>,
        /// New attributes. Owner first, and mode in a request of its own: a new owner clears set-id
        /// bits.
        attrs: Attrs,
    },
    /// Removes a path that is not a directory.
    Remove(Vec<u8>),
    /// Creates a directory.
    MakeDir {
        /// Path of the directory.
        path: Vec<u8>,
        /// Mode, minus the server's umask.
        mode: u32,
    },
    /// Removes the path of an empty directory.
    RemoveDir(Vec<u8>),
    /// Renames to a free name. OpenSSH makes a link and removes the old name.
    Rename {
        /// Old path.
        from: Vec<u8>,
        /// New path.
        to: Vec<u8>,
    },
    /// Resolves links in a path; the reply is exactly one name.
    RealPath(Vec<u8>),
    /// Reads the target of a symlink at a path; the reply is exactly one name.
    ReadLink(Vec<u8>),
    /// Opens the directory at a path for [`Request::ReadDir`].
    OpenDir(Vec<u8>),
    /// Reads further names from the handle of a directory; the reply may be [`status::EOF`].
    ReadDir(Vec<u8>),
    /// Renames as rename(2) does, which replaces. `posix-rename@openssh.com`, version 1.
    PosixRename {
        /// Old path.
        from: Vec<u8>,
        /// New path.
        to: Vec<u8>,
    },
    /// Links as link(2) does: does not replace, and links a symlink itself. `hardlink@openssh.com`,
    /// version 1.
    HardLink {
        /// Existing path.
        from: Vec<u8>,
        /// New path.
        to: Vec<u8>,
    },
    /// Syncs the handle of a file, as fsync(2) does, or of a directory that was opened with
    /// [`Request::Open`]. `fsync@openssh.com`, version 1.
    Fsync(Vec<u8>),
    /// Asks for the file system of the object at a path; the reply is a [`Statvfs`].
    /// `statvfs@openssh.com`, version 2.
    Statvfs(Vec<u8>),
    /// Asks for the server's limits; the reply is [`ServerLimits`]. `limits@openssh.com`, version
    /// 1.
    Limits,
}

impl Request {
    /// Appends the packet: its length and its frame.
    pub fn encode(&self, id: u32, out: &mut Vec<u8>) {
        put_packet(out, |out| {
            out.push(self.packet_type());
            put_u32(out, id);
            self.encode_body(out);
        });
    }

    pub(super) fn packet_type(&self) -> u8 {
        match self {
            Request::Open { .. } => 3,
            Request::Close(_) => 4,
            Request::Read { .. } => 5,
            Request::Write { .. } => 6,
            Request::Lstat(_) => 7,
            Request::Fstat(_) => 8,
            Request::Fsetstat { .. } => 10,
            Request::OpenDir(_) => 11,
            Request::ReadDir(_) => 12,
            Request::Remove(_) => 13,
            Request::MakeDir { .. } => 14,
            Request::RemoveDir(_) => 15,
            Request::RealPath(_) => 16,
            Request::Rename { .. } => 18,
            Request::ReadLink(_) => 19,
            Request::PosixRename { .. }
            | Request::HardLink { .. }
            | Request::Fsync(_)
            | Request::Statvfs(_)
            | Request::Limits => PACKET_EXTENDED,
        }
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        match self {
            Request::Open { path, flags, mode } => {
                put_string(out, path);
                put_u32(out, *flags);
                let attrs = Attrs {
                    mode: *mode,
                    ..Attrs::default()
                };
                attrs.encode(out);
            }
            Request::Close(handle) | Request::Fstat(handle) | Request::ReadDir(handle) => {
                put_string(out, handle);
            }
            Request::Read {
                handle,
                offset,
                length,
            } => {
                put_string(out, handle);
                put_u64(out, *offset);
                put_u32(out, *length);
            }
            Request::Write {
                handle,
                offset,
                bytes,
            } => {
                put_string(out, handle);
                put_u64(out, *offset);
                put_string(out, bytes);
            }
            Request::MakeDir { path, mode } => {
                put_string(out, path);
                let attrs = Attrs {
                    mode: Some(*mode),
                    ..Attrs::default()
                };
                attrs.encode(out);
            }
            Request::Lstat(path)
            | Request::Remove(path)
            | Request::RemoveDir(path)
            | Request::RealPath(path)
            | Request::ReadLink(path)
            | Request::OpenDir(path) => put_string(out, path),
            Request::Fsetstat { handle, attrs } => {
                put_string(out, handle);
                attrs.encode(out);
            }
            Request::Rename { from, to } => put_strings(out, &[from, to]),
            Request::PosixRename { from, to } => {
                put_strings(out, &[EXTENSION_POSIX_RENAME, from, to])
            }
            Request::HardLink { from, to } => put_strings(out, &[EXTENSION_HARDLINK, from, to]),
            Request::Fsync(handle) => put_strings(out, &[EXTENSION_FSYNC, handle]),
            Request::Statvfs(path) => put_strings(out, &[EXTENSION_STATVFS, path]),
            Request::Limits => put_string(out, EXTENSION_LIMITS),
        }
    }

    /// Checks that the request may be sent.
    ///
    /// # Errors
    /// A path has a NUL byte, which crashes OpenSSH's server, or something is longer than a server
    /// has to accept.
    pub fn validate(&self) -> Result<(), MalformedPacket> {
        let paths: &[&Vec<u8>] = match self {
            Request::Open { path, .. }
            | Request::Lstat(path)
            | Request::Remove(path)
            | Request::MakeDir { path, .. }
            | Request::RemoveDir(path)
            | Request::RealPath(path)
            | Request::ReadLink(path)
            | Request::OpenDir(path)
            | Request::Statvfs(path) => &[path],
            Request::Rename { from, to }
            | Request::PosixRename { from, to }
            | Request::HardLink { from, to } => &[from, to],
            Request::Write { bytes, .. } if bytes.len() > MAX_DATA_BYTES as usize => {
                return Err(MalformedPacket::new("too many bytes in one request"));
            }
            Request::Read { length, .. } if !(1..=MAX_DATA_BYTES).contains(length) => {
                return Err(MalformedPacket::new("a read of no or too many bytes"));
            }
            _ => &[],
        };
        if paths.iter().any(|path| path.contains(&0)) {
            return Err(MalformedPacket::new("a path has a NUL byte"));
        }
        if paths.iter().any(|path| path.len() > MAX_PATH_BYTES) {
            return Err(MalformedPacket::new("a path is too long"));
        }
        let handle = match self {
            Request::Close(handle)
            | Request::Read { handle, .. }
            | Request::Write { handle, .. }
            | Request::Fstat(handle)
            | Request::Fsetstat { handle, .. }
            | Request::ReadDir(handle)
            | Request::Fsync(handle) => handle,
            _ => return Ok(()),
        };
        match handle.len() {
            0..=MAX_HANDLE_BYTES => Ok(()),
            _ => Err(MalformedPacket::new("a handle is too long")),
        }
    }

    /// Returns the kind of reply that the request allows.
    pub fn expected_reply(&self) -> ExpectedReply {
        match self {
            Request::Open { .. } | Request::OpenDir(_) => ExpectedReply::Handle,
            Request::Read { length, .. } => ExpectedReply::Data(*length),
            Request::Lstat(_) | Request::Fstat(_) => ExpectedReply::Attrs,
            Request::RealPath(_) | Request::ReadLink(_) => ExpectedReply::Path,
            Request::ReadDir(_) => ExpectedReply::Names,
            Request::Statvfs(_) => ExpectedReply::Statvfs,
            Request::Limits => ExpectedReply::Limits,
            Request::Close(_)
            | Request::Write { .. }
            | Request::Fsetstat { .. }
            | Request::Remove(_)
            | Request::MakeDir { .. }
            | Request::RemoveDir(_)
            | Request::Rename { .. }
            | Request::PosixRename { .. }
            | Request::HardLink { .. }
            | Request::Fsync(_) => ExpectedReply::Status,
        }
    }
}

/// The kind of reply that a request allows, besides a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedReply {
    /// A success status.
    Status,
    /// A handle.
    Handle,
    /// Bytes: at least one, and at most this number.
    Data(u32),
    /// Names.
    Names,
    /// Exactly one name.
    Path,
    /// Attributes.
    Attrs,
    /// A [`Statvfs`].
    Statvfs,
    /// The [`ServerLimits`].
    Limits,
}

impl ExpectedReply {
    /// Returns the reply if the request allows it.
    ///
    /// # Errors
    /// The violation.
    pub fn check_reply(self, reply: Reply) -> Result<Reply, MalformedPacket> {
        let wrong = |what: String| Err(MalformedPacket(what));
        match (self, &reply) {
            // A success status is not enough where data was requested.
            (wants, Reply::Status(code)) => match wants {
                ExpectedReply::Status => Ok(reply),
                _ if *code != status::OK => Ok(reply),
                _ => wrong(format!("only a status, not {}", wants.kind_name())),
            },
            (ExpectedReply::Data(max_bytes), Reply::Data(bytes)) => match bytes.len() {
                0 => wrong("a read returned no bytes".into()),
                got if got > max_bytes as usize => {
                    wrong(format!("a read of {max_bytes} bytes returned {got}"))
                }
                _ => Ok(reply),
            },
            (ExpectedReply::Path, Reply::Names(names)) => match names.as_slice() {
                [one] if one.name.len() <= MAX_PATH_BYTES => Ok(reply),
                [_] => wrong("a path is too long".into()),
                names => wrong(format!("{} names instead of one", names.len())),
            },
            (ExpectedReply::Statvfs, Reply::Extended(bytes)) => {
                Statvfs::decode(bytes).map(|_| reply)
            }
            (ExpectedReply::Limits, Reply::Extended(bytes)) => {
                ServerLimits::decode(bytes).map(|_| reply)
            }
            (ExpectedReply::Handle, Reply::Handle(_))
            | (ExpectedReply::Names, Reply::Names(_))
            | (ExpectedReply::Attrs, Reply::Attrs(_)) => Ok(reply),
            (wants, reply) => wrong(format!(
                "a reply of the wrong type: {}, not {}",
                reply.kind_name(),
                wants.kind_name()
            )),
        }
    }

    fn kind_name(self) -> &'static str {
        match self {
            ExpectedReply::Status => "a status",
            ExpectedReply::Handle => "a handle",
            ExpectedReply::Data(_) => "bytes",
            ExpectedReply::Names | ExpectedReply::Path => "names",
            ExpectedReply::Attrs => "attributes",
            ExpectedReply::Statvfs | ExpectedReply::Limits => "an extension's reply",
        }
    }
}
