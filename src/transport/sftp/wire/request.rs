//! What is asked of a server, and what may be answered.

#[cfg(doc)]
use super::flags;
use super::{
    Attrs, EXTENDED, FSYNC, HARDLINK, LIMITS, Limits, MAX_DATA_BYTES, MAX_HANDLE_BYTES,
    MAX_PATH_BYTES, Malformed, POSIX_RENAME, Reply, STATVFS, Statvfs, packet, put_string,
    put_strings, put_u32, put_u64, status,
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
    /// Removes a name that is no folder's.
    Remove {
        /// Which.
        path: Vec<u8>,
    },
    /// Makes a folder.
    MakeDir {
        /// Which.
        path: Vec<u8>,
        /// Its mode, from which the server takes its umask.
        mode: u32,
    },
    /// Removes a folder that is empty.
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
    /// Opens a folder for [`Request::ReadDir`].
    OpenDir {
        /// Which.
        path: Vec<u8>,
    },
    /// Some more names of a folder, or [`status::EOF`].
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
    /// fsync(2), also of a folder that was opened with [`Request::Open`].
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
    /// What the server takes; answered with [`Limits`]. `limits@openssh.com`,
    /// version 1.
    Limits,
}

impl Request {
    /// Appends the packet: its length and its frame.
    pub fn encode(&self, id: u32, out: &mut Vec<u8>) {
        packet(out, |out| {
            out.push(self.kind());
            put_u32(out, id);
            self.encode_body(out);
        });
    }

    pub(super) fn kind(&self) -> u8 {
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
            | Request::Limits => EXTENDED,
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
            Request::PosixRename { from, to } => put_strings(out, &[POSIX_RENAME, from, to]),
            Request::HardLink { from, to } => put_strings(out, &[HARDLINK, from, to]),
            Request::Fsync { handle } => put_strings(out, &[FSYNC, handle]),
            Request::Statvfs { path } => put_strings(out, &[STATVFS, path]),
            Request::Limits => put_string(out, LIMITS),
        }
    }

    /// Why this is never sent, if it is not.
    ///
    /// # Errors
    /// A path with NUL, of which OpenSSH's server dies, or something longer than
    /// a server has to take.
    pub fn check(&self) -> Result<(), Malformed> {
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
                return Err(Malformed::new("too many bytes in one request"));
            }
            Request::Read { length, .. } if !(1..=MAX_DATA_BYTES).contains(length) => {
                return Err(Malformed::new("none or too many bytes asked for at once"));
            }
            _ => &[],
        };
        if paths.iter().any(|path| path.contains(&0)) {
            return Err(Malformed::new("a path has a NUL byte"));
        }
        if paths.iter().any(|path| path.len() > MAX_PATH_BYTES) {
            return Err(Malformed::new("a path is too long"));
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
            _ => Err(Malformed::new("a handle is too long")),
        }
    }

    /// What may be answered.
    pub fn wants(&self) -> Wants {
        match self {
            Request::Open { .. } | Request::OpenDir { .. } => Wants::Handle,
            Request::Read { length, .. } => Wants::Data(*length),
            Request::Lstat { .. } | Request::Fstat { .. } => Wants::Attrs,
            Request::RealPath { .. } | Request::ReadLink { .. } => Wants::Path,
            Request::ReadDir { .. } => Wants::Names,
            Request::Statvfs { .. } => Wants::Statvfs,
            Request::Limits => Wants::Limits,
            Request::Close { .. }
            | Request::Write { .. }
            | Request::Fsetstat { .. }
            | Request::Remove { .. }
            | Request::MakeDir { .. }
            | Request::RemoveDir { .. }
            | Request::Rename { .. }
            | Request::PosixRename { .. }
            | Request::HardLink { .. }
            | Request::Fsync { .. } => Wants::Status,
        }
    }
}

/// What a request may be answered with, other than that it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
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
    /// The [`Limits`].
    Limits,
}

impl Wants {
    /// The reply, if it is one to such a request.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(self, reply: Reply) -> Result<Reply, Malformed> {
        let wrong = |what: String| Err(Malformed(what));
        match (self, &reply) {
            // That it is done is no answer where something was to be told.
            (wants, Reply::Status { code, .. }) => match wants {
                Wants::Status => Ok(reply),
                _ if *code != status::OK => Ok(reply),
                _ => wrong(format!("only a status, not {}", wants.called())),
            },
            (Wants::Data(most), Reply::Data(bytes)) => match bytes.len() {
                0 => wrong("a read is answered with no bytes".into()),
                got if got > most as usize => {
                    wrong(format!("a read of {most} bytes is answered with {got}"))
                }
                _ => Ok(reply),
            },
            (Wants::Path, Reply::Names(names)) => match names.as_slice() {
                [one] if one.name.len() <= MAX_PATH_BYTES => Ok(reply),
                [_] => wrong("a path is too long".into()),
                names => wrong(format!("{} names instead of one", names.len())),
            },
            (Wants::Statvfs, Reply::Extended(bytes)) => Statvfs::decode(bytes).map(|_| reply),
            (Wants::Limits, Reply::Extended(bytes)) => Limits::decode(bytes).map(|_| reply),
            (Wants::Handle, Reply::Handle(_))
            | (Wants::Names, Reply::Names(_))
            | (Wants::Attrs, Reply::Attrs(_)) => Ok(reply),
            (wants, reply) => wrong(format!(
                "a reply of the wrong type: {}, not {}",
                reply.called(),
                wants.called()
            )),
        }
    }

    fn called(self) -> &'static str {
        match self {
            Wants::Status => "a status",
            Wants::Handle => "a handle",
            Wants::Data(_) => "bytes",
            Wants::Names | Wants::Path => "names",
            Wants::Attrs => "attributes",
            Wants::Statvfs | Wants::Limits => "that of an extension",
        }
    }
}
