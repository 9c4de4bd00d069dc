//! The SFTP server of the host: the parts of protocol version 3 and of OpenSSH's extensions that
//! our transport uses, on the files of this machine. It answers as OpenSSH's server does, except
//! for names that are not UTF-8, which its library does not support.

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

/// Maximum payload of a reply, and maximum size of a request: the values of OpenSSH.
const MAX_READ_BYTES: u32 = 255 * 1024;
const MAX_PACKET_BYTES: u32 = 256 * 1024;

/// Maximum number of names in one reply to READDIR.
const NAMES_PER_REPLY: usize = 100;

/// Supported extensions of OpenSSH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SupportedExtensions {
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

impl SupportedExtensions {
    /// Returns the extensions of OpenSSH's server.
    pub const ALL: SupportedExtensions = SupportedExtensions {
        posix_rename: true,
        hardlink: true,
        fsync: true,
        statvfs: true,
        limits: true,
    };

    /// Returns the extensions with their versions, as announced.
    fn announced_names(self) -> impl Iterator<Item = (&'static str, &'static str)> {
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

/// One connection: its extensions and its open handles. An open file stays readable after its name
/// is removed.
pub struct SftpHandler {
    home: PathBuf,
    extensions: SupportedExtensions,
    open_handles: HashMap<String, OpenHandle>,
    /// Number of the next handle; no number is used twice.
    next_handle: u64,
}

enum OpenHandle {
    File(File),
    Directory(ReadDir),
}

/// Result of a request.
type HandlerResult<T> = Result<T, StatusCode>;

impl SftpHandler {
    /// Creates the handler of a new connection. Relative paths start in `home`.
    pub fn new(home: &Path, abilities: SupportedExtensions) -> SftpHandler {
        SftpHandler {
            home: home.to_path_buf(),
            extensions: abilities,
            open_handles: HashMap::new(),
            next_handle: 0,
        }
    }

    fn resolve_path(&self, path: &str) -> PathBuf {
        self.home.join(path)
    }

    fn insert_handle(&mut self, id: u32, open: OpenHandle) -> Handle {
        let handle = self.next_handle.to_string();
        self.next_handle += 1;
        self.open_handles.insert(handle.clone(), open);
        Handle { id, handle }
    }

    fn find_file(&self, handle: &str) -> HandlerResult<&File> {
        match self.open_handles.get(handle) {
            Some(OpenHandle::File(file)) => Ok(file),
            _ => Err(StatusCode::Failure),
        }
    }

    fn open_file(&self, path: &str, flags: OpenFlags, attrs: &FileAttributes) -> io::Result<File> {
        let mut open_flags = match (
            flags.contains(OpenFlags::READ),
            flags.contains(OpenFlags::WRITE),
        ) {
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
            _ => OFlags::RDONLY,
        };
        for (flag, system_flag) in [
            (OpenFlags::APPEND, OFlags::APPEND),
            (OpenFlags::CREATE, OFlags::CREATE),
            (OpenFlags::TRUNCATE, OFlags::TRUNC),
            (OpenFlags::EXCLUDE, OFlags::EXCL),
        ] {
            open_flags.set(system_flag, flags.contains(flag));
        }
        // Without NONBLOCK, opening a FIFO would block all connections.
        open_flags |= OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let mode = Mode::from_raw_mode(attrs.permissions.unwrap_or(0o600) & 0o7777);
        Ok(File::from(rustix::fs::open(
            self.resolve_path(path),
            open_flags,
            mode,
        )?))
    }

    fn canonicalize_path(&self, path: &str) -> io::Result<PathBuf> {
        let path = self.resolve_path(path);
        match (fs::canonicalize(&path), path.parent(), path.file_name()) {
            // The last component need not exist.
            (Err(error), Some(parent), Some(name)) if error.kind() == io::ErrorKind::NotFound => {
                Ok(fs::canonicalize(parent)?.join(name))
            }
            (real, ..) => real,
        }
    }

    fn read_directory_page(&mut self, handle: &str) -> HandlerResult<Vec<protocol::File>> {
        let Some(OpenHandle::Directory(directory)) = self.open_handles.get_mut(handle) else {
            return Err(StatusCode::Failure);
        };
        let entries: io::Result<Vec<DirEntry>> = directory.take(NAMES_PER_REPLY).collect();
        let file = |entry: DirEntry| {
            // An entry that is removed during listing has no attributes.
            let attrs = entry.metadata().map(|it| file_attributes(&it));
            let name = entry.file_name().to_string_lossy().into_owned();
            protocol::File::new(name, attrs.unwrap_or_else(|_| FileAttributes::empty()))
        };
        let names: Vec<_> = entries
            .map_err(status_code)?
            .into_iter()
            .map(file)
            .collect();
        if names.is_empty() {
            Err(StatusCode::Eof)
        } else {
            Ok(names)
        }
    }

    fn read_piece(&self, handle: &str, offset: u64, length: u32) -> HandlerResult<Vec<u8>> {
        let mut data = vec![0; length.min(MAX_READ_BYTES) as usize];
        let file = self.find_file(handle)?;
        let read = file.read_at(&mut data, offset).map_err(status_code)?;
        data.truncate(read);
        match read {
            0 if length > 0 => Err(StatusCode::Eof),
            _ => Ok(data),
        }
    }

    /// Runs the request of an extension. Returns the reply of extensions that answer with more than
    /// OK.
    fn run_extension(&self, request: &str, data: Vec<u8>) -> HandlerResult<Option<Vec<u64>>> {
        if !self
            .extensions
            .announced_names()
            .any(|(name, _)| name == request)
        {
            return Err(StatusCode::OpUnsupported);
        }
        match request {
            POSIX_RENAME => {
                let paths: HardlinkExtension = decode_request(data)?;
                let renamed = fs::rename(
                    self.resolve_path(&paths.oldpath),
                    self.resolve_path(&paths.newpath),
                );
                renamed.map_err(status_code)?;
            }
            HARDLINK => {
                let paths: HardlinkExtension = decode_request(data)?;
                let (from, to) = (
                    self.resolve_path(&paths.oldpath),
                    self.resolve_path(&paths.newpath),
                );
                fs::hard_link(from, to).map_err(status_code)?;
            }
            FSYNC => {
                let FsyncExtension { handle } = decode_request(data)?;
                // Does not wait for the disk: these files need not outlive a power cut, and a host
                // with a busy disk would count as unreachable.
                self.find_file(&handle)?;
            }
            STATVFS => {
                let StatvfsExtension { path } = decode_request(data)?;
                let statistics = rustix::fs::statvfs(self.resolve_path(&path))
                    .map_err(|errno| status_code(errno.into()))?;
                return Ok(Some(vec![
                    statistics.f_bsize,
                    statistics.f_frsize,
                    statistics.f_blocks,
                    statistics.f_bfree,
                    statistics.f_bavail,
                    statistics.f_files,
                    statistics.f_ffree,
                    statistics.f_favail,
                    statistics.f_fsid,
                    // The flags for read-only and no set-id have the same values there.
                    statistics.f_flag.bits() & 3,
                    statistics.f_namemax,
                ]));
            }
            // The number of handles is unlimited.
            LIMITS => {
                let (packet, read) = (u64::from(MAX_PACKET_BYTES), u64::from(MAX_READ_BYTES));
                return Ok(Some(vec![packet, read, read, 0]));
            }
            _ => return Err(StatusCode::OpUnsupported),
        }
        Ok(None)
    }
}

/// Decodes the payload of an extension request.
fn decode_request<T: for<'de> Deserialize<'de>>(data: Vec<u8>) -> HandlerResult<T> {
    de::from_bytes(&mut data.into()).map_err(|_| StatusCode::BadMessage)
}

/// Returns the status for a system error, the same that OpenSSH's server returns.
fn status_code(error: io::Error) -> StatusCode {
    match Errno::from_io_error(&error) {
        Some(Errno::NOENT | Errno::NOTDIR | Errno::BADF | Errno::LOOP) => StatusCode::NoSuchFile,
        Some(Errno::PERM | Errno::ACCESS | Errno::FAULT) => StatusCode::PermissionDenied,
        Some(Errno::NAMETOOLONG | Errno::INVAL) => StatusCode::BadMessage,
        Some(Errno::NOSYS) => StatusCode::OpUnsupported,
        _ => StatusCode::Failure,
    }
}

fn file_attributes(metadata: &Metadata) -> FileAttributes {
    FileAttributes {
        size: Some(metadata.size()),
        uid: Some(metadata.uid()),
        gid: Some(metadata.gid()),
        // Sets the file type, which the conversion of the library gets wrong.
        permissions: Some(metadata.mode()),
        atime: Some(clamp_seconds(metadata.atime())),
        mtime: Some(clamp_seconds(metadata.mtime())),
        ..FileAttributes::empty()
    }
}

/// Times of the protocol range from 1970 to 2106.
fn clamp_seconds(time: i64) -> u32 {
    time.clamp(0, i64::from(u32::MAX)) as u32
}

fn apply_attributes(file: &File, to: &FileAttributes) -> io::Result<()> {
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

fn ok_status(id: u32) -> Status {
    Status {
        id,
        status_code: StatusCode::Ok,
        error_message: String::new(),
        language_tag: String::new(),
    }
}

fn name_reply(id: u32, path: &Path) -> Name {
    Name {
        id,
        files: vec![protocol::File::dummy(path.to_string_lossy())],
    }
}

/// Requests of a connection are handled one after the other, each to its end, which blocks other
/// connections for a time too short to notice.
impl Handler for SftpHandler {
    type Error = StatusCode;

    fn unimplemented(&self) -> StatusCode {
        StatusCode::OpUnsupported
    }

    async fn init(&mut self, _: u32, _: HashMap<String, String>) -> HandlerResult<Version> {
        let owned = |(name, version): (&str, &str)| (name.to_string(), version.to_string());
        Ok(Version {
            version: VERSION,
            extensions: self.extensions.announced_names().map(owned).collect(),
        })
    }

    async fn open(
        &mut self,
        id: u32,
        path: String,
        flags: OpenFlags,
        attrs: FileAttributes,
    ) -> HandlerResult<Handle> {
        let file = self.open_file(&path, flags, &attrs).map_err(status_code)?;
        Ok(self.insert_handle(id, OpenHandle::File(file)))
    }

    async fn close(&mut self, id: u32, handle: String) -> HandlerResult<Status> {
        let closed = self.open_handles.remove(&handle);
        closed.map(|_| ok_status(id)).ok_or(StatusCode::Failure)
    }

    async fn read(
        &mut self,
        id: u32,
        handle: String,
        offset: u64,
        length: u32,
    ) -> HandlerResult<Data> {
        let data = self.read_piece(&handle, offset, length)?;
        Ok(Data { id, data })
    }

    async fn write(
        &mut self,
        id: u32,
        handle: String,
        offset: u64,
        data: Vec<u8>,
    ) -> HandlerResult<Status> {
        let file = self.find_file(&handle)?;
        file.write_all_at(&data, offset).map_err(status_code)?;
        Ok(ok_status(id))
    }

    async fn lstat(&mut self, id: u32, path: String) -> HandlerResult<Attrs> {
        let metadata = fs::symlink_metadata(self.resolve_path(&path)).map_err(status_code)?;
        let attrs = file_attributes(&metadata);
        Ok(Attrs { id, attrs })
    }

    async fn fstat(&mut self, id: u32, handle: String) -> HandlerResult<Attrs> {
        let metadata = self.find_file(&handle)?.metadata().map_err(status_code)?;
        let attrs = file_attributes(&metadata);
        Ok(Attrs { id, attrs })
    }

    async fn fsetstat(
        &mut self,
        id: u32,
        handle: String,
        to: FileAttributes,
    ) -> HandlerResult<Status> {
        apply_attributes(self.find_file(&handle)?, &to).map_err(status_code)?;
        Ok(ok_status(id))
    }

    async fn opendir(&mut self, id: u32, path: String) -> HandlerResult<Handle> {
        let directory = fs::read_dir(self.resolve_path(&path)).map_err(status_code)?;
        Ok(self.insert_handle(id, OpenHandle::Directory(directory)))
    }

    async fn readdir(&mut self, id: u32, handle: String) -> HandlerResult<Name> {
        let files = self.read_directory_page(&handle)?;
        Ok(Name { id, files })
    }

    async fn remove(&mut self, id: u32, path: String) -> HandlerResult<Status> {
        fs::remove_file(self.resolve_path(&path)).map_err(status_code)?;
        Ok(ok_status(id))
    }

    async fn mkdir(
        &mut self,
        id: u32,
        path: String,
        attrs: FileAttributes,
    ) -> HandlerResult<Status> {
        let mode = attrs.permissions.unwrap_or(0o777) & 0o7777;
        let made = fs::DirBuilder::new()
            .mode(mode)
            .create(self.resolve_path(&path));
        made.map_err(status_code)?;
        Ok(ok_status(id))
    }

    async fn rmdir(&mut self, id: u32, path: String) -> HandlerResult<Status> {
        fs::remove_dir(self.resolve_path(&path)).map_err(status_code)?;
        Ok(ok_status(id))
    }

    async fn realpath(&mut self, id: u32, path: String) -> HandlerResult<Name> {
        let real = self.canonicalize_path(&path).map_err(status_code)?;
        Ok(name_reply(id, &real))
    }

    async fn readlink(&mut self, id: u32, path: String) -> HandlerResult<Name> {
        let target = fs::read_link(self.resolve_path(&path)).map_err(status_code)?;
        Ok(name_reply(id, &target))
    }

    /// Fails if the new name exists.
    async fn rename(&mut self, id: u32, from: String, to: String) -> HandlerResult<Status> {
        let (from, to) = (self.resolve_path(&from), self.resolve_path(&to));
        let renamed = rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE);
        renamed.map_err(|errno| status_code(errno.into()))?;
        Ok(ok_status(id))
    }

    async fn extended(&mut self, id: u32, request: String, data: Vec<u8>) -> HandlerResult<Packet> {
        Ok(match self.run_extension(&request, data)? {
            None => Packet::Status(ok_status(id)),
            Some(numbers) => Packet::ExtendedReply(ExtendedReply {
                id,
                data: numbers.into_iter().flat_map(u64::to_be_bytes).collect(),
            }),
        })
    }
}
