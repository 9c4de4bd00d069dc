//! The wire format of SFTP version 3.
//!
//! Sources: draft-ietf-secsh-filexfer-02 for the packets, OpenSSH's `PROTOCOL` file (section 4,
//! "SFTP protocol changes") for the extensions.
//!
//! Integers are big endian; a string is its length, an u32, and its bytes. A packet is its length,
//! an u32, and a *frame*: a type, an id, a body.
//!
//! This module trusts no number that it reads: it checks every length and count against the bytes
//! received before it allocates for them.

mod request;

use std::fmt;

pub use self::request::{ExpectedReply, Request};

/// The protocol version that this client speaks.
pub const PROTOCOL_VERSION: u32 = 3;

/// Size limit of a frame in either direction: OpenSSH sends and accepts 256 KiB, and exits on more.
pub const MAX_FRAME_BYTES: usize = 256 * 1024 + 1024;

/// Size limit of one READ or WRITE, which keeps the packet with its header below 256 KiB. Every
/// server accepts 32 KiB; more only where its [`ServerLimits`] say so.
pub const MAX_DATA_BYTES: u32 = 255 * 1024;

/// Size limit of a handle in the draft.
const MAX_HANDLE_BYTES: usize = 256;

/// Size limit of a path, far beyond `PATH_MAX`.
const MAX_PATH_BYTES: usize = 32 * 1024;

/// Limit of the extensions that a server may announce.
const MAX_EXTENSIONS: usize = 64;

const EXTENSION_LIMITS: &[u8] = b"limits@openssh.com";
const EXTENSION_POSIX_RENAME: &[u8] = b"posix-rename@openssh.com";
const EXTENSION_HARDLINK: &[u8] = b"hardlink@openssh.com";
const EXTENSION_FSYNC: &[u8] = b"fsync@openssh.com";
const EXTENSION_STATVFS: &[u8] = b"statvfs@openssh.com";
const EXTENSION_LSETSTAT: &[u8] = b"lsetstat@openssh.com";

/// Flags of [`Request::Open`].
pub mod flags {
    /// Opens for reading.
    pub const READ: u32 = 1;
    /// Opens for writing.
    pub const WRITE: u32 = 2;
    /// Creates the file if it is absent.
    pub const CREATE: u32 = 8;
    /// Fails if the name exists, even as a dangling link.
    pub const EXCLUSIVE: u32 = 32;
}

/// Status codes of [`Reply::Status`] in version 3. Servers send others, too.
pub mod status {
    /// Success.
    pub const OK: u32 = 0;
    /// End of a file or directory.
    pub const EOF: u32 = 1;
    /// Absent; also ENOTDIR, ELOOP and EBADF of OpenSSH.
    pub const NO_SUCH_FILE: u32 = 2;
    /// EPERM, EACCES, and requests that the server is configured to deny.
    pub const PERMISSION_DENIED: u32 = 3;
    /// Every other failure: EEXIST, ENOSPC, EROFS, EMFILE, EIO.
    pub const FAILURE: u32 = 4;
    /// EINVAL and ENAMETOOLONG of OpenSSH.
    pub const BAD_MESSAGE: u32 = 5;
    /// The server does not support the request.
    pub const UNSUPPORTED: u32 = 8;
}

const PACKET_INIT: u8 = 1;
const PACKET_VERSION: u8 = 2;
const PACKET_STATUS: u8 = 101;
const PACKET_HANDLE: u8 = 102;
const PACKET_DATA: u8 = 103;
const PACKET_NAME: u8 = 104;
const PACKET_ATTRS: u8 = 105;
const PACKET_EXTENDED: u8 = 200;
const PACKET_EXTENDED_REPLY: u8 = 201;

/// A reply of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The result of a request without data, or its failure: one of [`status`], or any other
    /// number. The server's text is dropped.
    Status(u32),
    /// Handle of an open file or directory.
    Handle(Vec<u8>),
    /// Bytes of a file.
    Data(Vec<u8>),
    /// Names.
    Names(Vec<NameEntry>),
    /// Attributes of an object.
    Attrs(Attrs),
    /// The body of an extension's reply: see [`Statvfs::decode`] and [`ServerLimits::decode`].
    Extended(Vec<u8>),
}

/// One name of a reply. The line for display that comes with it is dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameEntry {
    /// The name, or the path.
    pub name: Vec<u8>,
    /// Attributes of the object, as far as the server sends them.
    pub attrs: Attrs,
}

/// Attributes of an object, each optional. Extended ones are skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attrs {
    /// Length in bytes.
    pub size: Option<u64>,
    /// User id and group id.
    pub owner: Option<(u32, u32)>,
    /// Permission bits and, in replies, the file type.
    pub mode: Option<u32>,
    /// Times of the last access and the last change, in seconds since 1970.
    pub times: Option<(u32, u32)>,
}

/// The extensions that a server announced, each in the version that this client supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerExtensions {
    /// [`Request::PosixRename`].
    pub posix_rename: bool,
    /// [`Request::HardLink`].
    pub hardlink: bool,
    /// [`Request::Fsync`].
    pub fsync: bool,
    /// [`Request::Statvfs`].
    pub statvfs: bool,
    /// [`Request::Limits`].
    pub limits: bool,
    /// Attributes of a link itself can be set. This client does not use it.
    pub lsetstat: bool,
}

impl ServerExtensions {
    /// Returns whether the server announces OpenSSH's extensions that read and none that writes, as it
    /// does when it is read-only; one that denies these requests alone announces the same.
    pub fn announces_reads_only(&self) -> bool {
        let writes = self.posix_rename || self.hardlink || self.fsync || self.lsetstat;
        self.statvfs && !writes
    }
}

/// The part of statvfs(3) that tells whether a file system has room for a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statvfs {
    /// Free blocks for users other than root.
    pub blocks_available: u64,
    /// Total inodes.
    pub files: u64,
    /// Free inodes for users other than root.
    pub files_available: u64,
    /// Bit 0: read-only. Bit 1: no set-id.
    pub flags: u64,
}

/// Limits of a server; 0 means that it sets none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerLimits {
    /// Size limit of a packet, in bytes.
    pub packet: u64,
    /// Size limit of the data in a reply to READ, in bytes.
    pub read: u64,
    /// Size limit of the data in a WRITE, in bytes.
    pub write: u64,
    /// Limit of the handles that are open at once.
    pub handles: u64,
}

/// A violation of the format, described in our words, without text of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MalformedPacket(String);

impl fmt::Display for MalformedPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for MalformedPacket {}

impl MalformedPacket {
    pub(super) fn new(what: impl Into<String>) -> MalformedPacket {
        MalformedPacket(what.into())
    }
}

/// Appends INIT, the first packet of a session, which is the only one without an id.
pub fn encode_init(out: &mut Vec<u8>) {
    put_packet(out, |out| {
        out.push(PACKET_INIT);
        put_u32(out, PROTOCOL_VERSION);
    });
}

impl Reply {
    fn kind_name(&self) -> &'static str {
        match self {
            Reply::Status(_) => "a status",
            Reply::Handle(_) => "a handle",
            Reply::Data(_) => "bytes",
            Reply::Names(_) => "names",
            Reply::Attrs(_) => "attributes",
            Reply::Extended(_) => "an extension's reply",
        }
    }
}

/// Decodes a frame, which is a packet without its length, into the id of its request and the reply.
///
/// # Errors
/// Inner: the body is malformed, which concerns that request only. Outer: the frame is not a reply,
/// so the stream is not understood and the session cannot go on.
pub fn decode_reply(
    frame: &[u8],
) -> Result<(u32, Result<Reply, MalformedPacket>), MalformedPacket> {
    let mut rest = FrameReader(frame);
    let kind = rest.take_byte()?;
    if !matches!(
        kind,
        PACKET_STATUS
            | PACKET_HANDLE
            | PACKET_DATA
            | PACKET_NAME
            | PACKET_ATTRS
            | PACKET_EXTENDED_REPLY
    ) {
        return Err(MalformedPacket(format!(
            "a packet of type {kind} is not a reply"
        )));
    }
    let id = rest.take_u32()?;
    Ok((id, decode_body(kind, rest)))
}

fn decode_body(kind: u8, mut rest: FrameReader<'_>) -> Result<Reply, MalformedPacket> {
    let reply = match kind {
        PACKET_STATUS => {
            let code = rest.take_u32()?;
            // Old servers omit the message and its language, or the latter.
            for _ in ["message", "language"] {
                if !rest.0.is_empty() {
                    rest.take_string()?;
                }
            }
            Reply::Status(code)
        }
        PACKET_HANDLE => {
            let handle = rest.take_string()?;
            if handle.len() > MAX_HANDLE_BYTES {
                return Err(MalformedPacket::new("a handle is too long"));
            }
            Reply::Handle(handle.to_vec())
        }
        PACKET_DATA => Reply::Data(rest.take_string()?.to_vec()),
        PACKET_NAME => Reply::Names(decode_names(&mut rest)?),
        PACKET_ATTRS => Reply::Attrs(Attrs::decode(&mut rest)?),
        // `decode_reply` lets only one other type pass.
        _ => Reply::Extended(std::mem::take(&mut rest.0).to_vec()),
    };
    rest.expect_end()?;
    Ok(reply)
}

fn decode_names(rest: &mut FrameReader<'_>) -> Result<Vec<NameEntry>, MalformedPacket> {
    // Two lengths and the flags of its attributes.
    const MIN_NAME_ENTRY_BYTES: usize = 12;
    let count = rest.take_u32()? as usize;
    if count > rest.0.len() / MIN_NAME_ENTRY_BYTES {
        return Err(MalformedPacket(format!("{count} names in too few bytes")));
    }
    let mut names = Vec::new();
    for _ in 0..count {
        let name = rest.take_string()?.to_vec();
        rest.take_string()?;
        let attrs = Attrs::decode(rest)?;
        names.push(NameEntry { name, attrs });
    }
    Ok(names)
}

const ATTR_SIZE: u32 = 1;
const ATTR_OWNER: u32 = 2;
const ATTR_MODE: u32 = 4;
const ATTR_TIMES: u32 = 8;
const ATTR_EXTENDED: u32 = 0x8000_0000;

impl Attrs {
    fn encode(&self, out: &mut Vec<u8>) {
        let flag = |given: bool, flag: u32| if given { flag } else { 0 };
        let flags = flag(self.size.is_some(), ATTR_SIZE)
            | flag(self.owner.is_some(), ATTR_OWNER)
            | flag(self.mode.is_some(), ATTR_MODE)
            | flag(self.times.is_some(), ATTR_TIMES);
        put_u32(out, flags);
        if let Some(size) = self.size {
            put_u64(out, size);
        }
        if let Some((user, group)) = self.owner {
            put_u32(out, user);
            put_u32(out, group);
        }
        if let Some(mode) = self.mode {
            put_u32(out, mode);
        }
        if let Some((accessed, modified)) = self.times {
            put_u32(out, accessed);
            put_u32(out, modified);
        }
    }

    fn decode(rest: &mut FrameReader<'_>) -> Result<Attrs, MalformedPacket> {
        let flags = rest.take_u32()?;
        if flags & !(ATTR_SIZE | ATTR_OWNER | ATTR_MODE | ATTR_TIMES | ATTR_EXTENDED) != 0 {
            // With an unknown flag, the position of the later fields is unknown.
            return Err(MalformedPacket(format!("attributes with flags {flags:#x}")));
        }
        let mut attrs = Attrs::default();
        if flags & ATTR_SIZE != 0 {
            attrs.size = Some(rest.take_u64()?);
        }
        if flags & ATTR_OWNER != 0 {
            attrs.owner = Some((rest.take_u32()?, rest.take_u32()?));
        }
        if flags & ATTR_MODE != 0 {
            attrs.mode = Some(rest.take_u32()?);
        }
        if flags & ATTR_TIMES != 0 {
            attrs.times = Some((rest.take_u32()?, rest.take_u32()?));
        }
        if flags & ATTR_EXTENDED != 0 {
            // Each one takes bytes, so that a wrong count ends with the frame.
            for _ in 0..rest.take_u32()? {
                rest.take_string()?;
                rest.take_string()?;
            }
        }
        Ok(attrs)
    }
}

/// Returns whether a frame is of the type of VERSION.
pub(super) fn is_version(frame: &[u8]) -> bool {
    frame.first() == Some(&PACKET_VERSION)
}

impl ServerExtensions {
    /// Decodes the frame of VERSION, the reply to INIT.
    ///
    /// # Errors
    /// The frame is of another type or version, or announces too many extensions.
    pub fn decode(frame: &[u8]) -> Result<ServerExtensions, MalformedPacket> {
        let mut rest = FrameReader(frame);
        let kind = rest.take_byte()?;
        if kind != PACKET_VERSION {
            return Err(MalformedPacket(format!(
                "a packet of type {kind} before VERSION"
            )));
        }
        let version = rest.take_u32()?;
        if version != PROTOCOL_VERSION {
            return Err(MalformedPacket(format!("SFTP version {version}, not 3")));
        }
        let mut extensions = ServerExtensions::default();
        for _ in 0..MAX_EXTENSIONS {
            if rest.0.is_empty() {
                return Ok(extensions);
            }
            match (rest.take_string()?, rest.take_string()?) {
                (EXTENSION_POSIX_RENAME, b"1") => extensions.posix_rename = true,
                (EXTENSION_HARDLINK, b"1") => extensions.hardlink = true,
                (EXTENSION_FSYNC, b"1") => extensions.fsync = true,
                (EXTENSION_STATVFS, b"2") => extensions.statvfs = true,
                (EXTENSION_LIMITS, b"1") => extensions.limits = true,
                (EXTENSION_LSETSTAT, b"1") => extensions.lsetstat = true,
                _ => {}
            }
        }
        if rest.0.is_empty() {
            Ok(extensions)
        } else {
            Err(MalformedPacket::new("too many extensions"))
        }
    }
}

impl Statvfs {
    /// Decodes the body of [`Reply::Extended`].
    ///
    /// # Errors
    /// The body does not have exactly eleven numbers.
    pub fn decode(body: &[u8]) -> Result<Statvfs, MalformedPacket> {
        let mut rest = FrameReader(body);
        let mut numbers = [0; 11];
        for number in &mut numbers {
            *number = rest.take_u64()?;
        }
        rest.expect_end()?;
        Ok(Statvfs {
            blocks_available: numbers[4],
            files: numbers[5],
            files_available: numbers[7],
            flags: numbers[9],
        })
    }
}

impl ServerLimits {
    /// Decodes the body of [`Reply::Extended`].
    ///
    /// # Errors
    /// The body does not have exactly four numbers.
    pub fn decode(body: &[u8]) -> Result<ServerLimits, MalformedPacket> {
        let mut rest = FrameReader(body);
        let limits = ServerLimits {
            packet: rest.take_u64()?,
            read: rest.take_u64()?,
            write: rest.take_u64()?,
            handles: rest.take_u64()?,
        };
        rest.expect_end()?;
        Ok(limits)
    }
}

/// Splits a byte stream into frames. Holds at most one unfinished frame, and allocates no more than
/// its announced length.
#[derive(Debug, Default)]
pub struct FrameSplitter {
    /// The four bytes of the length, then those of the frame.
    partial: Vec<u8>,
}

impl FrameSplitter {
    /// Takes bytes from the front of `bytes` until a frame is complete or no bytes are left.
    ///
    /// # Errors
    /// No reply can have this length: the stream is not understood from here on.
    pub fn next_frame(&mut self, bytes: &mut &[u8]) -> Result<Option<Vec<u8>>, MalformedPacket> {
        const LENGTH_PREFIX_BYTES: usize = 4;
        fill_to_length(&mut self.partial, bytes, LENGTH_PREFIX_BYTES);
        let Some(head) = self.partial.first_chunk::<LENGTH_PREFIX_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*head) as usize;
        if length == 0 || length > MAX_FRAME_BYTES {
            return Err(MalformedPacket(format!("a packet of {length} bytes")));
        }
        fill_to_length(&mut self.partial, bytes, LENGTH_PREFIX_BYTES + length);
        if self.partial.len() < LENGTH_PREFIX_BYTES + length {
            return Ok(None);
        }
        let mut frame = std::mem::take(&mut self.partial);
        frame.drain(..LENGTH_PREFIX_BYTES);
        Ok(Some(frame))
    }
}

/// Moves bytes until `partial` has `length` of them.
fn fill_to_length(partial: &mut Vec<u8>, bytes: &mut &[u8], length: usize) {
    let missing = length.saturating_sub(partial.len());
    partial.reserve_exact(missing);
    let (taken, rest) = bytes.split_at(missing.min(bytes.len()));
    partial.extend_from_slice(taken);
    *bytes = rest;
}

/// The rest of a frame.
struct FrameReader<'a>(&'a [u8]);

impl<'a> FrameReader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], MalformedPacket> {
        let short = || MalformedPacket::new("a reply is cut short");
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn take_array<const N: usize>(&mut self) -> Result<[u8; N], MalformedPacket> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn take_byte(&mut self) -> Result<u8, MalformedPacket> {
        self.take_array::<1>().map(|[byte]| byte)
    }

    fn take_u32(&mut self) -> Result<u32, MalformedPacket> {
        self.take_array().map(u32::from_be_bytes)
    }

    fn take_u64(&mut self) -> Result<u64, MalformedPacket> {
        self.take_array().map(u64::from_be_bytes)
    }

    fn take_string(&mut self) -> Result<&'a [u8], MalformedPacket> {
        let length = self.take_u32()? as usize;
        self.take(length)
    }

    fn expect_end(&self) -> Result<(), MalformedPacket> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(MalformedPacket::new("a reply has trailing bytes"))
        }
    }
}

fn put_u32(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_be_bytes());
}

fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_be_bytes());
}

/// [`Request::validate`] refuses strings that exceed the length field.
fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u32(out, bytes.len() as u32);
    out.extend_from_slice(bytes);
}

fn put_strings(out: &mut Vec<u8>, strings: &[&[u8]]) {
    for string in strings {
        put_string(out, string);
    }
}

/// Appends a packet with the frame that `fill` writes.
fn put_packet(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    put_u32(out, 0);
    fill(out);
    let length = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

#[cfg(test)]
mod tests;
