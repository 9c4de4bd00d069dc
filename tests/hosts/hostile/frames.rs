//! Requests and replies as bytes.

pub const INIT: u8 = 1;
pub const OPEN: u8 = 3;
pub const READ: u8 = 5;
pub const WRITE: u8 = 6;
pub const LSTAT: u8 = 7;
pub const FSTAT: u8 = 8;
pub const READDIR: u8 = 12;
pub const STATUS: u8 = 101;
pub const HANDLE: u8 = 102;
pub const DATA: u8 = 103;
pub const NAMES: u8 = 104;
pub const ATTRS: u8 = 105;
const EXTENDED: u8 = 200;

/// Returns the kind of a request; an open that creates a file is "create".
pub fn request_name(frame: &[u8]) -> &'static str {
    match frame[0] {
        INIT => "init",
        OPEN if opens_new(frame) => "create",
        OPEN => "open",
        4 => "close",
        READ => "read",
        WRITE => "write",
        LSTAT => "lstat",
        FSTAT => "fstat",
        10 => "fsetstat",
        11 => "opendir",
        READDIR => "readdir",
        13 => "remove",
        14 => "mkdir",
        15 => "rmdir",
        16 => "realpath",
        18 => "rename",
        19 => "readlink",
        EXTENDED => match read_string(frame, 5).as_slice() {
            b"posix-rename@openssh.com" => "posix-rename",
            b"hardlink@openssh.com" => "hardlink",
            b"fsync@openssh.com" => "fsync",
            b"statvfs@openssh.com" => "statvfs",
            b"limits@openssh.com" => "limits",
            other => panic!("{}", String::from_utf8_lossy(other)),
        },
        other => panic!("unknown request type {other}"),
    }
}

/// Returns whether a request changes anything on a host.
pub fn is_changing(frame: &[u8]) -> bool {
    let all = [
        "create",
        "write",
        "fsetstat",
        "remove",
        "mkdir",
        "rmdir",
        "rename",
        "posix-rename",
        "hardlink",
    ];
    all.contains(&request_name(frame))
}

fn opens_new(frame: &[u8]) -> bool {
    let at = 9 + read_string(frame, 5).len();
    read_u32(frame, at) & 8 != 0
}

pub fn read_u32(frame: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(frame[at..at + 4].try_into().unwrap())
}

/// Reads the string at offset `at`.
pub fn read_string(frame: &[u8], at: usize) -> Vec<u8> {
    let length = read_u32(frame, at) as usize;
    frame[at + 4..at + 4 + length].to_vec()
}

pub fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u32).to_be_bytes());
    out.extend(bytes);
}

/// Returns the first bytes of a reply to a request: its type and id.
pub fn reply_head(kind: u8, to: &[u8]) -> Vec<u8> {
    [&[kind], &to[1..5]].concat()
}

/// Returns a status reply.
pub fn status_reply(to: &[u8], code: u32) -> Vec<u8> {
    let mut frame = reply_head(STATUS, to);
    frame.extend(code.to_be_bytes());
    put_string(&mut frame, b"as it says");
    put_string(&mut frame, b"");
    frame
}

/// Replaces the size in a reply with attributes.
pub fn replace_size(frame: &mut [u8], size: impl Fn(u64) -> u64) {
    let true_size = u64::from_be_bytes(frame[9..17].try_into().unwrap());
    // The size follows the flags, whose first bit says that it is present.
    assert_eq!(read_u32(frame, 5) & 1, 1);
    frame[9..17].copy_from_slice(&size(true_size).to_be_bytes());
}
