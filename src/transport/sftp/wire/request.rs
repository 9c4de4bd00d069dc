//! What is asked of a server, and what may be answered.

#[cfg(doc)]
use super::flags;
use super::{
    Attrs, EXTENSION_FSYNC, EXTENSION_HARDLINK, EXTENSION_LIMITS, EXTENSION_POSIX_RENAME,
    EXTENSION_STATVFS, MAX_DATA_BYTES, MAX_HANDLE_BYTES, MAX_PATH_BYTES, MalformedPacket,
    PACKET_EXTENDED, Reply, ServerLimits, Statvfs, put_packet, put_string, put_strings, put_u32,
    put_u64, status,
};

/// What is asked of a server. Paths, names and handles are bytes: nothing says
/// that they are text.
///
/// There is no SETSTAT: it follows links. There is no STAT for the same reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Opens a file; answered with a handle. Follows links, and blocks on a FIFO
    /// together with every request behind it: look before.
    Open {
        /// Which.
        path: Vec<u8>,
        /// For what, of [`flags`].
        flags: u32,
        /// Mode of a new file, from which the server takes its umask.
        mode: Option<u32>,
    },
    /// Gives a handle back.
    Close {
        /// Which.
        handle: Vec<u8>,
    },
    /// Reads; answered with at least one byte, or with [`status::EOF`].
    Read {
        /// From which file.
        handle: Vec<u8>,
        /// From where.
        offset: u64,
        /// At most how much, up to [`MAX_DATA_BYTES`].
        length: u32,
    },
    /// Writes all of it.
    Write {
        /// To which file.
        handle: Vec<u8>,
        /// From where on.
        offset: u64,
        /// What, up to [`MAX_DATA_BYTES`].
        bytes: Vec<u8>,
    },
    /// Looks at a name; does not follow a link that stands there.
    Lstat {
        /// Which.
        path: Vec<u8>,
    },
    /// Looks at an open file.
    Fstat {
        /// Which.
        handle: Vec<u8>,
    },
    /// Changes the attributes of an open file that are given.
    Fsetstat {
        /// Which.
        handle: Vec<u8>,
        /// To what. Owner first and mode in a request of its own: a new owner
        /// takes set-id bits away.
        attrs: Attrs,
    },
    /// Removes a name that is no directory's.
    Remove {
        /// Which.
        path: Vec<u8>,
    },
    /// Makes a directory.
    MakeDir {
        /// Which.
        path: Vec<u8>,
        /// Its mode, from which the server takes its umask.
        mode: u32,
    },
    /// Removes a directory that is empty.
    RemoveDir {
        /// Which.
        path: Vec<u8>,
    },
    /// Renames where the new name is free. OpenSSH makes a link and removes the
    /// old name.
    Rename {
        /// The old name.
        from: Vec<u8>,
        /// The new name.
        to: Vec<u8>,
    },
    /// The path without links; answered with exactly one name.
    RealPath {
        /// Which.
        path: Vec<u8>,
    },
    /// Where a link points to; answered with exactly one name.
    ReadLink {
        /// Which.
        path: Vec<u8>,
    },
    /// Opens a directory for [`Request::ReadDir`].
    OpenDir {
        /// Which.
        path: Vec<u8>,
    },
    /// Some more names of a directory, or [`status::EOF`].
    ReadDir {
        /// Which.
        handle: Vec<u8>,
    },
    /// rename(2): replaces. `posix-rename@openssh.com`, version 1.
    PosixRename {
        /// The old name.
        from: Vec<u8>,
        /// The new name.
        to: Vec<u8>,
    },
    /// link(2): does not replace, and links a link itself.
    /// `hardlink@openssh.com`, version 1.
    HardLink {
        /// The name that is there.
        from: Vec<u8>,
        /// The further one.
        to: Vec<u8>,
    },
    /// fsync(2), also of a directory that was opened with [`Request::Open`].
    /// `fsync@openssh.com`, version 1.
    Fsync {
        /// Which.
        handle: Vec<u8>,
    },
    /// The file system that a path is on; answered with a [`Statvfs`].
    /// `statvfs@openssh.com`, version 2.
    Statvfs {
        /// Which path.
        path: Vec<u8>,
    },
    /// What the server takes; answered with [`ServerLimits`]. `limits@openssh.com`,
    /// version 1.
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
            Request::Close { .. } => 4,
            Request::Read { .. } => 5,
            Request::Write { .. } => 6,
            Request::Lstat { .. } => 7,
            Request::Fstat { .. } => 8,
            Request::Fsetstat { .. } => 10,
            Request::OpenDir { .. } => 11,
            Request::ReadDir { .. } => 12,
            Request::Remove { .. } => 13,
            Request::MakeDir { .. } => 14,
            Request::RemoveDir { .. } => 15,
            Request::RealPath { .. } => 16,
            Request::Rename { .. } => 18,
            Request::ReadLink { .. } => 19,
            Request::PosixRename { .. }
            | Request::HardLink { .. }
            | Request::Fsync { .. }
            | Request::Statvfs { .. }
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
            Request::Close { handle } | Request::Fstat { handle } | Request::ReadDir { handle } => {
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
            Request::Lstat { path }
            | Request::Remove { path }
            | Request::RemoveDir { path }
            | Request::RealPath { path }
            | Request::ReadLink { path }
            | Request::OpenDir { path } => put_string(out, path),
            Request::Fsetstat { handle, attrs } => {
                put_string(out, handle);
                attrs.encode(out);
            }
            Request::Rename { from, to } => put_strings(out, &[from, to]),
            Request::PosixRename { from, to } => {
                put_strings(out, &[EXTENSION_POSIX_RENAME, from, to])
            }
            Request::HardLink { from, to } => put_strings(out, &[EXTENSION_HARDLINK, from, to]),
            Request::Fsync { handle } => put_strings(out, &[EXTENSION_FSYNC, handle]),
            Request::Statvfs { path } => put_strings(out, &[EXTENSION_STATVFS, path]),
            Request::Limits => put_string(out, EXTENSION_LIMITS),
        }
    }

    /// Why this is never sent, if it is not.
    ///
    /// # Errors
    /// A path with NUL, of which OpenSSH's server dies, or something longer than
    /// a server has to take.
    pub fn validate(&self) -> Result<(), MalformedPacket> {
        let paths: &[&Vec<u8>] = match self {
            Request::Open { path, .. }
            | Request::Lstat { path }
            | Request::Remove { path }
            | Request::MakeDir { path, .. }
            | Request::RemoveDir { path }
            | Request::RealPath { path }
            | Request::ReadLink { path }
            | Request::OpenDir { path }
            | Request::Statvfs { path } => &[path],
            Request::Rename { from, to }
            | Request::PosixRename { from, to }
            | Request::HardLink { from, to } => &[from, to],
            Request::Write { bytes, .. } if bytes.len() > MAX_DATA_BYTES as usize => {
                return Err(MalformedPacket::new("too many bytes in one request"));
            }
            Request::Read { length, .. } if !(1..=MAX_DATA_BYTES).contains(length) => {
                return Err(MalformedPacket::new(
                    "none or too many bytes asked for at once",
                ));
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
            Request::Close { handle }
            | Request::Read { handle, .. }
            | Request::Write { handle, .. }
            | Request::Fstat { handle }
            | Request::Fsetstat { handle, .. }
            | Request::ReadDir { handle }
            | Request::Fsync { handle } => handle,
            _ => return Ok(()),
        };
        match handle.len() {
            0..=MAX_HANDLE_BYTES => Ok(()),
            _ => Err(MalformedPacket::new("a handle is too long")),
        }
    }

    /// What may be answered.
    pub fn expected_reply(&self) -> ExpectedReply {
        match self {
            Request::Open { .. } | Request::OpenDir { .. } => ExpectedReply::Handle,
            Request::Read { length, .. } => ExpectedReply::Data(*length),
            Request::Lstat { .. } | Request::Fstat { .. } => ExpectedReply::Attrs,
            Request::RealPath { .. } | Request::ReadLink { .. } => ExpectedReply::Path,
            Request::ReadDir { .. } => ExpectedReply::Names,
            Request::Statvfs { .. } => ExpectedReply::Statvfs,
            Request::Limits => ExpectedReply::Limits,
            Request::Close { .. }
            | Request::Write { .. }
            | Request::Fsetstat { .. }
            | Request::Remove { .. }
            | Request::MakeDir { .. }
            | Request::RemoveDir { .. }
            | Request::Rename { .. }
            | Request::PosixRename { .. }
            | Request::HardLink { .. }
            | Request::Fsync { .. } => ExpectedReply::Status,
        }
    }
}

/// What a request may be answered with, other than that it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedReply {
    /// That it is done.
    Status,
    /// A handle.
    Handle,
    /// Bytes: at least one and at most so many.
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
    /// The reply, if it is one to such a request.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check_reply(self, reply: Reply) -> Result<Reply, MalformedPacket> {
        let wrong = |what: String| Err(MalformedPacket(what));
        match (self, &reply) {
            // That it is done is no answer where something was to be told.
            (wants, Reply::Status { code, .. }) => match wants {
                ExpectedReply::Status => Ok(reply),
                _ if *code != status::OK => Ok(reply),
                _ => wrong(format!("only a status, not {}", wants.kind_name())),
            },
            (ExpectedReply::Data(max_bytes), Reply::Data(bytes)) => match bytes.len() {
                0 => wrong("a read is answered with no bytes".into()),
                got if got > max_bytes as usize => wrong(format!(
                    "a read of {max_bytes} bytes is answered with {got}"
                )),
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
            ExpectedReply::Statvfs | ExpectedReply::Limits => "that of an extension",
        }
    }
}
