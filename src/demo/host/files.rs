//! What the host's SFTP server does: as much of version 3 of the protocol and of
//! OpenSSH's extensions as our transport asks for, on the files of this machine.
//! It answers as OpenSSH's server does, but for names that are not UTF-8, which
//! its library does not know.

use std::collections::HashMap;
use std::fs::{self, DirEntry, File, FileTimes, Metadata, ReadDir};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use russh_sftp::de;
use russh_sftp::extensions::{FSYNC, HARDLINK, LIMITS, STATVFS};
use russh_sftp::extensions::{FsyncExtension, HardlinkExtension, StatvfsExtension};
use russh_sftp::protocol::{
    self, Attrs, Data, ExtendedReply, FileAttributes, Handle, Name, OpenFlags, Packet, Status,
    StatusCode, VERSION, Version,
};
use russh_sftp::server::Handler;
use rustix::fs::{CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use serde::Deserialize;

const POSIX_RENAME: &str = "posix-rename@openssh.com";

/// The most that one reply carries, and one request: OpenSSH's numbers.
const MOST_READ: u32 = 255 * 1024;
const MOST_PACKET: u32 = 256 * 1024;

/// Names in one reply to READDIR.
const NAMES: usize = 100;

/// What a server can do beside the protocol's own: OpenSSH's extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// `posix-rename@openssh.com`
    pub posix_rename: bool,
    /// `hardlink@openssh.com`
    pub hardlink: bool,
    /// `fsync@openssh.com`
    pub fsync: bool,
    /// `statvfs@openssh.com`
    pub statvfs: bool,
    /// `limits@openssh.com`
    pub limits: bool,
}

impl Abilities {
    /// As OpenSSH's server.
    pub const ALL: Abilities = Abilities {
        posix_rename: true,
        hardlink: true,
        fsync: true,
        statvfs: true,
        limits: true,
    };

    /// With the version of each, as they are announced.
    fn announced(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let all = [
            (self.posix_rename, POSIX_RENAME, "1"),
            (self.hardlink, HARDLINK, "1"),
            (self.fsync, FSYNC, "1"),
            (self.statvfs, STATVFS, "2"),
            (self.limits, LIMITS, "1"),
        ];
        let has = all.into_iter().filter(|(has, ..)| *has);
        has.map(|(_, name, version)| (name, version))
    }
}

/// One connection: what it may ask for, and what it has open. A file that is open
/// stays readable whatever becomes of its name.
pub struct Files {
    home: PathBuf,
    abilities: Abilities,
    open: HashMap<String, Open>,
    /// Handles that were given out: no number is given twice.
    given: u64,
}

enum Open {
    File(File),
    Folder(ReadDir),
}

/// What a request comes to, if it does not fail.
type Answer<T> = Result<T, StatusCode>;

impl Files {
    /// A connection that has asked for nothing yet. Paths that are not absolute
    /// begin in `home`.
    pub fn new(home: &Path, abilities: Abilities) -> Files {
        Files {
            home: home.to_path_buf(),
            abilities,
            open: HashMap::new(),
            given: 0,
        }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.home.join(path)
    }

    fn give(&mut self, id: u32, open: Open) -> Handle {
        let handle = self.given.to_string();
        self.given += 1;
        self.open.insert(handle.clone(), open);
        Handle { id, handle }
    }

    fn file(&self, handle: &str) -> Answer<&File> {
        match self.open.get(handle) {
            Some(Open::File(file)) => Ok(file),
            _ => Err(StatusCode::Failure),
        }
    }

    fn open_file(&self, path: &str, flags: OpenFlags, attrs: &FileAttributes) -> io::Result<File> {
        let mut how = match (
            flags.contains(OpenFlags::READ),
            flags.contains(OpenFlags::WRITE),
        ) {
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
            _ => OFlags::RDONLY,
        };
        for (flag, means) in [
            (OpenFlags::APPEND, OFlags::APPEND),
            (OpenFlags::CREATE, OFlags::CREATE),
            (OpenFlags::TRUNCATE, OFlags::TRUNC),
            (OpenFlags::EXCLUDE, OFlags::EXCL),
        ] {
            how.set(means, flags.contains(flag));
        }
        // One that waits at a FIFO would keep everybody waiting.
        how |= OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let mode = Mode::from_raw_mode(attrs.permissions.unwrap_or(0o666) & 0o7777);
        Ok(File::from(rustix::fs::open(self.at(path), how, mode)?))
    }

    fn real_path(&self, path: &str) -> io::Result<PathBuf> {
        let path = self.at(path);
        match (fs::canonicalize(&path), path.parent(), path.file_name()) {
            // Its last part need not exist.
            (Err(error), Some(parent), Some(name)) if error.kind() == io::ErrorKind::NotFound => {
                Ok(fs::canonicalize(parent)?.join(name))
            }
            (real, ..) => real,
        }
    }

    fn names(&mut self, handle: &str) -> Answer<Vec<protocol::File>> {
        let Some(Open::Folder(folder)) = self.open.get_mut(handle) else {
            return Err(StatusCode::Failure);
        };
        let some: io::Result<Vec<DirEntry>> = folder.take(NAMES).collect();
        let file = |entry: DirEntry| {
            // What is removed while it is listed has no attributes any more.
            let attrs = entry.metadata().map(|it| attributes(&it));
            let name = entry.file_name().to_string_lossy().into_owned();
            protocol::File::new(name, attrs.unwrap_or_else(|_| FileAttributes::empty()))
        };
        let names: Vec<_> = some.map_err(code)?.into_iter().map(file).collect();
        match names.is_empty() {
            true => Err(StatusCode::Eof),
            false => Ok(names),
        }
    }

    fn piece(&self, handle: &str, offset: u64, length: u32) -> Answer<Vec<u8>> {
        let mut data = vec![0; length.min(MOST_READ) as usize];
        let file = self.file(handle)?;
        let read = file.read_at(&mut data, offset).map_err(code)?;
        data.truncate(read);
        match read {
            0 if length > 0 => Err(StatusCode::Eof),
            _ => Ok(data),
        }
    }

    /// An extension's request; the answer of those that answer more than OK.
    fn extension(&self, request: &str, data: Vec<u8>) -> Answer<Option<Vec<u64>>> {
        if !self.abilities.announced().any(|(name, _)| name == request) {
            return Err(StatusCode::OpUnsupported);
        }
        match request {
            POSIX_RENAME => {
                let paths: HardlinkExtension = read_from(data)?;
                let renamed = fs::rename(self.at(&paths.oldpath), self.at(&paths.newpath));
                renamed.map_err(code)?;
            }
            HARDLINK => {
                let paths: HardlinkExtension = read_from(data)?;
                let (from, to) = (self.at(&paths.oldpath), self.at(&paths.newpath));
                fs::hard_link(from, to).map_err(code)?;
            }
            FSYNC => {
                let FsyncExtension { handle } = read_from(data)?;
                // Nothing is waited for: what is here need not outlive a power cut,
                // and a host whose disk is busy for too long counts as gone.
                self.file(&handle)?;
            }
            STATVFS => {
                let StatvfsExtension { path } = read_from(data)?;
                let it = rustix::fs::statvfs(self.at(&path)).map_err(|errno| code(errno.into()))?;
                return Ok(Some(vec![
                    it.f_bsize,
                    it.f_frsize,
                    it.f_blocks,
                    it.f_bfree,
                    it.f_bavail,
                    it.f_files,
                    it.f_ffree,
                    it.f_favail,
                    it.f_fsid,
                    // Read-only and no set-id have the same numbers there.
                    it.f_flag.bits() & 3,
                    it.f_namemax,
                ]));
            }
            // How many handles there may be is left open.
            LIMITS => {
                let (packet, read) = (u64::from(MOST_PACKET), u64::from(MOST_READ));
                return Ok(Some(vec![packet, read, read, 0]));
            }
            _ => return Err(StatusCode::OpUnsupported),
        }
        Ok(None)
    }
}

/// What an extension's request carries.
fn read_from<T: for<'de> Deserialize<'de>>(data: Vec<u8>) -> Answer<T> {
    de::from_bytes(&mut data.into()).map_err(|_| StatusCode::BadMessage)
}

/// The status for an error of the system's: the same that OpenSSH's server takes.
fn code(error: io::Error) -> StatusCode {
    match Errno::from_io_error(&error) {
        Some(Errno::NOENT | Errno::NOTDIR | Errno::BADF | Errno::LOOP) => StatusCode::NoSuchFile,
        Some(Errno::PERM | Errno::ACCESS | Errno::FAULT) => StatusCode::PermissionDenied,
        Some(Errno::NAMETOOLONG | Errno::INVAL) => StatusCode::BadMessage,
        Some(Errno::NOSYS) => StatusCode::OpUnsupported,
        _ => StatusCode::Failure,
    }
}

fn attributes(found: &Metadata) -> FileAttributes {
    FileAttributes {
        size: Some(found.size()),
        uid: Some(found.uid()),
        gid: Some(found.gid()),
        // With the type, which the library's own conversion gets wrong.
        permissions: Some(found.mode()),
        atime: Some(seconds(found.atime())),
        mtime: Some(seconds(found.mtime())),
        ..FileAttributes::empty()
    }
}

/// The protocol's times end in 2106 and begin in 1970.
fn seconds(time: i64) -> u32 {
    time.clamp(0, i64::from(u32::MAX)) as u32
}

fn change(file: &File, to: &FileAttributes) -> io::Result<()> {
    if let Some(size) = to.size {
        file.set_len(size)?;
    }
    if let Some(mode) = to.permissions {
        file.set_permissions(fs::Permissions::from_mode(mode & 0o7777))?;
    }
    if let (Some(read), Some(written)) = (to.atime, to.mtime) {
        let time = |seconds: u32| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.into());
        let times = FileTimes::new().set_accessed(time(read));
        file.set_times(times.set_modified(time(written)))?;
    }
    if to.uid.is_some() || to.gid.is_some() {
        fchown(file, to.uid, to.gid)?;
    }
    Ok(())
}

fn done(id: u32) -> Status {
    Status {
        id,
        status_code: StatusCode::Ok,
        error_message: String::new(),
        language_tag: String::new(),
    }
}

fn name(id: u32, path: &Path) -> Name {
    Name {
        id,
        files: vec![protocol::File::dummy(path.to_string_lossy())],
    }
}

/// Requests of one connection come one after the other, and each is done at once:
/// nobody else is served meanwhile, which so few do not notice.
impl Handler for Files {
    type Error = StatusCode;

    fn unimplemented(&self) -> StatusCode {
        StatusCode::OpUnsupported
    }

    async fn init(&mut self, _: u32, _: HashMap<String, String>) -> Answer<Version> {
        let owned = |(name, version): (&str, &str)| (name.to_string(), version.to_string());
        Ok(Version {
            version: VERSION,
            extensions: self.abilities.announced().map(owned).collect(),
        })
    }

    async fn open(
        &mut self,
        id: u32,
        path: String,
        flags: OpenFlags,
        attrs: FileAttributes,
    ) -> Answer<Handle> {
        let file = self.open_file(&path, flags, &attrs).map_err(code)?;
        Ok(self.give(id, Open::File(file)))
    }

    async fn close(&mut self, id: u32, handle: String) -> Answer<Status> {
        let closed = self.open.remove(&handle);
        closed.map(|_| done(id)).ok_or(StatusCode::Failure)
    }

    async fn read(&mut self, id: u32, handle: String, offset: u64, length: u32) -> Answer<Data> {
        let data = self.piece(&handle, offset, length)?;
        Ok(Data { id, data })
    }

    async fn write(
        &mut self,
        id: u32,
        handle: String,
        offset: u64,
        data: Vec<u8>,
    ) -> Answer<Status> {
        let file = self.file(&handle)?;
        file.write_all_at(&data, offset).map_err(code)?;
        Ok(done(id))
    }

    async fn lstat(&mut self, id: u32, path: String) -> Answer<Attrs> {
        let found = fs::symlink_metadata(self.at(&path)).map_err(code)?;
        let attrs = attributes(&found);
        Ok(Attrs { id, attrs })
    }

    async fn fstat(&mut self, id: u32, handle: String) -> Answer<Attrs> {
        let found = self.file(&handle)?.metadata().map_err(code)?;
        let attrs = attributes(&found);
        Ok(Attrs { id, attrs })
    }

    async fn fsetstat(&mut self, id: u32, handle: String, to: FileAttributes) -> Answer<Status> {
        change(self.file(&handle)?, &to).map_err(code)?;
        Ok(done(id))
    }

    async fn opendir(&mut self, id: u32, path: String) -> Answer<Handle> {
        let folder = fs::read_dir(self.at(&path)).map_err(code)?;
        Ok(self.give(id, Open::Folder(folder)))
    }

    async fn readdir(&mut self, id: u32, handle: String) -> Answer<Name> {
        let files = self.names(&handle)?;
        Ok(Name { id, files })
    }

    async fn remove(&mut self, id: u32, path: String) -> Answer<Status> {
        fs::remove_file(self.at(&path)).map_err(code)?;
        Ok(done(id))
    }

    async fn mkdir(&mut self, id: u32, path: String, attrs: FileAttributes) -> Answer<Status> {
        let mode = attrs.permissions.unwrap_or(0o777) & 0o7777;
        let made = fs::DirBuilder::new().mode(mode).create(self.at(&path));
        made.map_err(code)?;
        Ok(done(id))
    }

    async fn rmdir(&mut self, id: u32, path: String) -> Answer<Status> {
        fs::remove_dir(self.at(&path)).map_err(code)?;
        Ok(done(id))
    }

    async fn realpath(&mut self, id: u32, path: String) -> Answer<Name> {
        let real = self.real_path(&path).map_err(code)?;
        Ok(name(id, &real))
    }

    async fn readlink(&mut self, id: u32, path: String) -> Answer<Name> {
        let target = fs::read_link(self.at(&path)).map_err(code)?;
        Ok(name(id, &target))
    }

    /// Replaces nothing.
    async fn rename(&mut self, id: u32, from: String, to: String) -> Answer<Status> {
        let (from, to) = (self.at(&from), self.at(&to));
        let renamed = rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE);
        renamed.map_err(|errno| code(errno.into()))?;
        Ok(done(id))
    }

    async fn extended(&mut self, id: u32, request: String, data: Vec<u8>) -> Answer<Packet> {
        Ok(match self.extension(&request, data)? {
            None => Packet::Status(done(id)),
            Some(numbers) => Packet::ExtendedReply(ExtendedReply {
                id,
                data: numbers.into_iter().flat_map(u64::to_be_bytes).collect(),
            }),
        })
    }
}
