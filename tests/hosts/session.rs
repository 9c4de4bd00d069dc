//! A session with OpenSSH's own server, over pipes and without ssh.

use crate::skip::skip_missing_tool;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use tempfile::TempDir;

use memory_shepherd::transport::sftp::session::*;
use memory_shepherd::transport::sftp::wire::{
    Attrs, Reply, Request, ServerExtensions, Statvfs, flags, status,
};

const SERVER_PATHS: &[&str] = &[
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/libexec/sftp-server",
    "/usr/lib/ssh/sftp-server",
];

/// The server, in a directory of its own.
struct SftpServerSession {
    child: Child,
    dir: TempDir,
    session: Session,
}

impl SftpServerSession {
    fn new(arguments: &[&str]) -> Option<SftpServerSession> {
        let found = SERVER_PATHS.iter().find(|path| Path::new(path).exists());
        let Some(server) = found else {
            skip_missing_tool("sftp-server");
            return None;
        };
        let mut child = Command::new(server)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let link = SessionPipes {
            input: child.stdin.take().unwrap().into(),
            output: child.stdout.take().unwrap().into(),
            stderr: child.stderr.take().map(OwnedFd::from),
        };
        let deadline = Instant::now() + REPLY_TIMEOUT;
        Some(SftpServerSession {
            child,
            dir: crate::directory(),
            session: Session::start(link, deadline).unwrap(),
        })
    }

    fn path(&self, name: impl AsRef<[u8]>) -> Vec<u8> {
        let path = self.dir.path().join(OsStr::from_bytes(name.as_ref()));
        path.into_os_string().into_vec()
    }

    fn request_batch(&self, batch: Vec<Request>) -> Vec<Reply> {
        let answers = self.session.send_batch(batch).wait();
        answers.into_iter().map(Result::unwrap).collect()
    }

    fn request(&self, request: Request) -> Reply {
        let [reply] = self.request_batch(vec![request]).try_into().unwrap();
        reply
    }

    fn open_handle(&self, path: Vec<u8>, flags: u32) -> Vec<u8> {
        let mode = Some(0o600);
        match self.request(Request::Open { path, flags, mode }) {
            Reply::Handle(handle) => handle,
            reply => panic!("{reply:?}"),
        }
    }

    /// Closes the server's input; asserts that the server ends and leaves nothing behind.
    fn assert_server_ends(mut self) {
        drop(self.session);
        assert!(self.child.wait().unwrap().success());
    }
}

fn status_code(reply: &Reply) -> u32 {
    match reply {
        Reply::Status(code) => *code,
        reply => panic!("{reply:?}"),
    }
}

#[test]
fn file_is_written_read_renamed_and_linked() {
    let Some(host) = SftpServerSession::new(&["-e"]) else {
        return;
    };
    let every = ServerExtensions {
        posix_rename: true,
        hardlink: true,
        fsync: true,
        statvfs: true,
        limits: true,
        lsetstat: true,
    };
    assert_eq!(host.session.extensions(), every);
    assert_eq!(host.session.limits().unwrap().read, 261_120);
    let name = b"no\xFFtext \xE2\x98\x83";
    let new = host.path([name.as_slice(), b".new"].concat());
    let content: Vec<u8> = (0..2 * 255 * 1024).map(|n: u32| (n / 7) as u8).collect();
    write_new_file(&host, &new, &content);
    assert_file_has(&host, &new, &content);
    let (memory, aside) = (host.path(name), host.path("aside"));
    fs::write(OsStr::from_bytes(&memory), "old").unwrap();
    displace_memory(&host, &memory, &aside, &new);
    assert_displaced(&host, &memory, &aside);
    assert_eq!(fs::read(OsStr::from_bytes(&memory)).unwrap(), content);
    host.assert_server_ends();
}

/// Writes two pieces of the maximum size, in one batch with all the rest.
fn write_new_file(host: &SftpServerSession, new: &[u8], content: &[u8]) {
    let handle = host.open_handle(
        new.to_vec(),
        flags::WRITE | flags::CREATE | flags::EXCLUSIVE,
    );
    let half = content.len() / 2;
    let write = |offset: usize| Request::Write {
        handle: handle.clone(),
        offset: offset as u64,
        bytes: content[offset..offset + half].to_vec(),
    };
    let attrs = Attrs {
        mode: Some(0o640),
        ..Attrs::default()
    };
    let replies = host.request_batch(vec![
        write(0),
        write(half),
        Request::Fsetstat {
            handle: handle.clone(),
            attrs,
        },
        Request::Fsync(handle.clone()),
        Request::Close(handle.clone()),
        Request::Fsync(handle),
    ]);
    let codes: Vec<u32> = replies.iter().map(status_code).collect();
    assert_eq!(codes[..5], [0; 5]);
    assert_ne!(codes[5], 0);
}

fn assert_file_has(host: &SftpServerSession, new: &[u8], content: &[u8]) {
    let half = content.len() / 2;
    let handle = host.open_handle(new.to_vec(), flags::READ);
    let length = 255 * 1024;
    let read = |offset: usize| Request::Read {
        handle: handle.clone(),
        offset: offset as u64,
        length,
    };
    let fstat = Request::Fstat(handle.clone());
    let replies = host.request_batch(vec![fstat, read(0), read(half), read(2 * half)]);
    let [
        Reply::Attrs(attrs),
        Reply::Data(first),
        Reply::Data(second),
        end,
    ] = replies.as_slice()
    else {
        panic!("{replies:?}");
    };
    assert_eq!(attrs.size, Some(content.len() as u64));
    assert_eq!(attrs.mode, Some(0o100_640));
    assert_eq!([&first[..], second].concat(), content);
    assert_eq!(status_code(end), status::EOF);
}

/// Gives the memory another name, and the new file the name of the memory.
fn displace_memory(host: &SftpServerSession, memory: &[u8], aside: &[u8], new: &[u8]) {
    let replies = host.session.send_isolated(
        vec![
            Request::PosixRename {
                from: memory.to_vec(),
                to: aside.to_vec(),
            },
            Request::HardLink {
                from: new.to_vec(),
                to: memory.to_vec(),
            },
        ],
        Vec::new(),
    );
    for reply in replies.wait() {
        assert_eq!(status_code(&reply.unwrap()), 0);
    }
}

/// Checks that no link replaces the memory, and what the server says of it.
fn assert_displaced(host: &SftpServerSession, memory: &[u8], aside: &[u8]) {
    let replaces = Request::HardLink {
        from: aside.to_vec(),
        to: memory.to_vec(),
    };
    let absent = Request::Lstat(host.path("absent"));
    let present = Request::Lstat(memory.to_vec());
    let replies = host.request_batch(vec![replaces, absent, present]);
    assert_eq!(status_code(&replies[0]), status::FAILURE);
    assert_eq!(status_code(&replies[1]), status::NO_SUCH_FILE);
    let Reply::Attrs(found) = &replies[2] else {
        panic!("{replies:?}");
    };
    let real = fs::metadata(OsStr::from_bytes(memory)).unwrap();
    assert_eq!(found.owner, Some((real.uid(), real.gid())));
    assert_eq!(found.times.unwrap().1, real.mtime() as u32);
    assert_eq!(found.mode, Some(real.permissions().mode()));
    assert_eq!(fs::read(OsStr::from_bytes(aside)).unwrap(), b"old");
}

#[test]
fn directories_links_and_file_systems_are_inspected() {
    let Some(host) = SftpServerSession::new(&["-e"]) else {
        return;
    };
    let real_path = host.dir.path().canonicalize().unwrap();
    let directory = real_path.into_os_string().into_vec();
    let name = b"caf\xE9".to_vec();
    fs::write(OsStr::from_bytes(&host.path(&name)), "x").unwrap();
    let link = host.path("link");
    std::os::unix::fs::symlink(OsStr::from_bytes(b"to\xFF"), OsStr::from_bytes(&link)).unwrap();
    let replies = host.request_batch(vec![
        Request::RealPath(host.path(".")),
        Request::ReadLink(link.clone()),
        Request::Lstat(link.clone()),
        Request::Statvfs(directory.clone()),
        Request::OpenDir(directory.clone()),
        Request::Rename {
            from: host.path(&name),
            to: host.path("plain"),
        },
        Request::Remove(link),
    ]);
    let path = |reply: &Reply| match reply {
        Reply::Names(names) => names[0].name.clone(),
        reply => panic!("{reply:?}"),
    };
    assert_eq!(path(&replies[0]), directory);
    assert_eq!(path(&replies[1]), b"to\xFF");
    assert!(matches!(&replies[2], Reply::Attrs(attrs) if attrs.mode == Some(0o120_777)));
    let Reply::Extended(body) = &replies[3] else {
        panic!("{replies:?}");
    };
    assert!(Statvfs::decode(body).unwrap().blocks_available > 0);
    assert_eq!((status_code(&replies[5]), status_code(&replies[6])), (0, 0));
    let Reply::Handle(handle) = &replies[4] else {
        panic!("{replies:?}");
    };
    let list = Request::ReadDir(handle.clone());
    let close = Request::Close(handle.clone());
    let replies = host.request_batch(vec![list.clone(), list, close]);
    let Reply::Names(names) = &replies[0] else {
        panic!("{replies:?}");
    };
    let mut names: Vec<&[u8]> = names.iter().map(|it| it.name.as_slice()).collect();
    names.sort();
    assert_eq!(names, [&b"."[..], b"..", b"plain"]);
    assert_eq!(
        (status_code(&replies[1]), status_code(&replies[2])),
        (status::EOF, 0)
    );
    // A directory opened like a file can be synced.
    let handle = host.open_handle(directory, flags::READ);
    assert_eq!(status_code(&host.request(Request::Fsync(handle))), 0);
    host.assert_server_ends();
}

#[test]
fn more_handles_than_a_byte_counts_keep_their_files() {
    let Some(host) = SftpServerSession::new(&["-e"]) else {
        return;
    };
    let count = 250_usize;
    let opens = (0..count).map(|number| Request::Open {
        path: host.path(format!("{number}")),
        flags: flags::READ | flags::WRITE | flags::CREATE,
        mode: Some(0o600),
    });
    let handles: Vec<Vec<u8>> = host
        .request_batch(opens.collect())
        .into_iter()
        .map(|reply| match reply {
            Reply::Handle(handle) => handle,
            reply => panic!("{reply:?}"),
        })
        .collect();
    assert!(
        handles
            .iter()
            .any(|handle| std::str::from_utf8(handle).is_err())
    );
    let writes = handles
        .iter()
        .enumerate()
        .map(|(number, handle)| Request::Write {
            handle: handle.clone(),
            offset: 0,
            bytes: format!("of {number}").into_bytes(),
        });
    assert!(
        host.request_batch(writes.collect())
            .iter()
            .all(|it| status_code(it) == 0)
    );
    for number in 0..count {
        let content = fs::read_to_string(host.dir.path().join(format!("{number}"))).unwrap();
        assert_eq!(content, format!("of {number}"));
    }
    // Abandoned handles are closed: there is room for as many again, twice.
    let closes = handles.into_iter().map(Request::Close);
    assert!(
        host.request_batch(closes.collect())
            .iter()
            .all(|it| status_code(it) == 0)
    );
    for _ in 0..8 {
        let opens = (0..count).map(|number| Request::Open {
            path: host.path(format!("{number}")),
            flags: flags::READ,
            mode: None,
        });
        drop(host.session.send_batch(opens.collect()));
    }
    let handle = host.open_handle(host.path("7"), flags::READ);
    assert_eq!(status_code(&host.request(Request::Close(handle))), 0);
    host.assert_server_ends();
}

#[test]
fn fifty_pairs_replace_fifty_memories() {
    let Some(host) = SftpServerSession::new(&["-e"]) else {
        return;
    };
    let name = |number: usize, end: &str| host.path(format!("{number}.{end}"));
    for number in 0..50 {
        fs::write(OsStr::from_bytes(&name(number, "md")), "old").unwrap();
        fs::write(OsStr::from_bytes(&name(number, "new")), "new").unwrap();
    }
    let pairs: Vec<PendingReplies> = (0..50)
        .map(|number| {
            let first = Request::PosixRename {
                from: name(number, "md"),
                to: name(number, "aside"),
            };
            let second = Request::HardLink {
                from: name(number, "new"),
                to: name(number, "md"),
            };
            host.session.send_isolated(vec![first, second], Vec::new())
        })
        .collect();
    for (number, pending) in pairs.into_iter().enumerate() {
        for answer in pending.wait() {
            assert_eq!(status_code(&answer.unwrap()), 0);
        }
        let read = |end: &str| fs::read(OsStr::from_bytes(&name(number, end))).unwrap();
        assert_eq!(
            (read("md"), read("aside")),
            (b"new".to_vec(), b"old".to_vec())
        );
    }
    host.assert_server_ends();
}

#[test]
fn dead_server_ends_the_session() {
    let Some(mut host) = SftpServerSession::new(&[]) else {
        return;
    };
    let handle = host.open_handle(host.path("a"), flags::WRITE | flags::CREATE);
    host.child.kill().unwrap();
    host.child.wait().unwrap();
    let answer = host.session.send_batch(vec![Request::Close(handle)]).wait();
    let Err(RequestError::SessionEnded(broken)) = &answer[0] else {
        panic!("{answer:?}");
    };
    assert_eq!(
        (&broken.reason, broken.has_greeted),
        (&CloseReason::EndOfFile, true)
    );
}
