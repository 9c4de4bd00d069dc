//! Whether other users can replace what root, or this user, runs or reads.

mod command;

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::base::durable::component_names;

pub use command::{CommandPlaces, find_untrusted_in_command, read_interpreter_line};

/// Maximum number of symlinks that a path may lead through, as in the kernel.
const MAX_SYMLINKS: usize = 40;

/// Directories in which a service looks for a program that is named without its directory.
pub const SERVICE_SEARCH_PATH: [&str; 4] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"];

/// Lookups in the machine's user database; `main` provides them.
#[derive(Clone, Copy, Debug)]
pub struct UserDatabase {
    /// Returns the group of a user that has no other member.
    pub find_private_group: fn(u32) -> Option<u32>,
    /// Returns the name of a user.
    pub find_user_name: fn(u32) -> Option<String>,
    /// Returns the name of a group.
    pub find_group_name: fn(u32) -> Option<String>,
    /// Returns the home directory of a user, by name.
    pub find_home: fn(&str) -> Option<PathBuf>,
}

impl UserDatabase {
    /// Knows no user and no group.
    pub const EMPTY: UserDatabase = UserDatabase {
        find_private_group: |_| None,
        find_user_name: |_| None,
        find_group_name: |_| None,
        find_home: |_| None,
    };

    fn describe_user(self, uid: u32) -> String {
        describe_id("uid", uid, self.find_user_name)
    }

    fn describe_group(self, gid: u32) -> String {
        describe_id("group", gid, self.find_group_name)
    }
}

fn describe_id(kind: &str, id: u32, find_name: fn(u32) -> Option<String>) -> String {
    let name = find_name(id).map_or_else(String::new, |name| format!(" ({name})"));
    format!("{kind} {id}{name}")
}

/// The user who may change the examined files, beside root.
#[derive(Clone, Copy, Debug)]
pub struct TrustedUser {
    /// The user's id.
    pub uid: u32,
    /// Looks up the user's private group, which counts as the user.
    pub database: UserDatabase,
}

impl TrustedUser {
    /// Root alone, whatever the groups.
    pub const ROOT: TrustedUser = TrustedUser {
        uid: 0,
        database: UserDatabase::EMPTY,
    };

    fn owns_group(self, group: u32) -> bool {
        (self.database.find_private_group)(self.uid) == Some(group)
    }
}

/// A file, directory or symlink that another user can change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UntrustedPlace {
    /// Its path.
    pub path: PathBuf,
    cause: DistrustCause,
    /// The user who should own it.
    user: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DistrustCause {
    /// The user who owns it.
    Owner(u32),
    /// Who can write it.
    Writer(Writer),
    /// Who can create files in it, a sticky directory.
    Creator(Writer),
}

/// Other users who can write a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    /// A group, by the mode.
    Group(u32),
    /// A user, by the access list (acl(5)).
    ListedUser(u32),
    /// A group, by the access list.
    ListedGroup(u32),
    World,
}

impl UntrustedPlace {
    /// Returns the command, of root, that takes the change away from other users; none for a sticky
    /// directory, which is meant for all of them.
    pub fn remedy(&self) -> Option<String> {
        let path = self.path.display().to_string();
        Some(match self.cause {
            // A symlink has an owner of its own.
            DistrustCause::Owner(_) => {
                let owner = match self.user {
                    0 => "root".to_string(),
                    user => user.to_string(),
                };
                shell_words::join(["chown", "-h", &owner, &path])
            }
            DistrustCause::Writer(Writer::Group(_) | Writer::World) => {
                shell_words::join(["chmod", "go-w", &path])
            }
            DistrustCause::Writer(Writer::ListedUser(_) | Writer::ListedGroup(_)) => {
                shell_words::join(["setfacl", "-b", &path])
            }
            DistrustCause::Creator(_) => return None,
        })
    }

    /// Describes who can change the place, with the names that the database knows.
    pub fn describe(&self, database: UserDatabase) -> String {
        let path = self.path.display();
        match self.cause {
            DistrustCause::Owner(uid) => format!("{} owns {path}", database.describe_user(uid)),
            DistrustCause::Writer(writer) => {
                writer.describe(&format!("can write {path}"), database)
            }
            DistrustCause::Creator(writer) => {
                writer.describe(&format!("can create files in {path}"), database)
            }
        }
    }
}

impl Writer {
    fn describe(self, right: &str, database: UserDatabase) -> String {
        match self {
            Writer::Group(gid) => format!("{} {right}", database.describe_group(gid)),
            Writer::ListedUser(uid) => {
                format!("{} {right} by its access list", database.describe_user(uid))
            }
            Writer::ListedGroup(gid) => {
                format!(
                    "{} {right} by its access list",
                    database.describe_group(gid)
                )
            }
            Writer::World => format!("every user {right}"),
        }
    }
}

impl fmt::Display for UntrustedPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe(UserDatabase::EMPTY))
    }
}

/// Returns the first file, directory or symlink that leads to a file and that another user than root
/// and `user` can change: on the path itself, and on those of the symlinks that it leads through.
///
/// In a sticky directory such as `/tmp`, others can neither remove nor rename what they do not own.
/// So there the owner of a directory decides. The owner of a file says nothing: it may be a hard link
/// to another file of that owner, which everybody who can create files there can make.
pub fn find_untrusted_ancestor(path: &Path, user: TrustedUser) -> Option<UntrustedPlace> {
    find_untrusted(path, user, false)
}

/// Returns the first place as [`find_untrusted_ancestor`] does, or the directory where another user
/// could create what is missing of the path, or something in the directory that the path names.
pub fn find_untrusted_lookup(path: &Path, user: TrustedUser) -> Option<UntrustedPlace> {
    find_untrusted(path, user, true)
}

fn find_untrusted(path: &Path, user: TrustedUser, is_lookup: bool) -> Option<UntrustedPlace> {
    let mut place = PathBuf::from("/");
    let mut rest = component_names(path);
    let mut symlinks = 0;
    // The sticky directory that `place` is in, if others can create files there.
    let mut shared = None;
    loop {
        let Ok(meta) = fs::symlink_metadata(&place) else {
            // What does not exist has nothing that a user could change now.
            return shared.filter(|_| is_lookup);
        };
        if shared.is_some() && !meta.is_dir() {
            return shared;
        }
        let untrusted = |cause| UntrustedPlace {
            path: place.clone(),
            cause,
            user: user.uid,
        };
        if let Some(cause) = find_distrust_cause(&place, &meta, user) {
            return Some(untrusted(cause));
        }
        shared = find_writer(&place, &meta, user)
            .filter(|_| is_sticky_directory(&meta))
            .map(|writer| untrusted(DistrustCause::Creator(writer)));
        if meta.is_symlink() {
            symlinks += 1;
            let target = fs::read_link(&place)
                .ok()
                .filter(|_| symlinks <= MAX_SYMLINKS)?;
            place.pop();
            if target.is_absolute() {
                place = PathBuf::from("/");
            }
            let mut further = component_names(&target);
            further.append(&mut rest);
            rest = further;
        }
        let Some(name) = rest.pop_front() else {
            return shared.filter(|_| is_lookup);
        };
        if name == OsStr::new("..") {
            place.pop();
        } else {
            place.push(name);
        }
    }
}

/// Returns the file that a process runs for a program: one named with its directory starts at
/// `directory`, any other is looked for in `search_path`.
pub fn find_program(
    program: &str,
    directory: &Path,
    search_path: impl IntoIterator<Item = impl AsRef<Path>>,
) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        let meta = fs::metadata(path);
        meta.is_ok_and(|meta| meta.is_file() && meta.mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return Some(directory.join(program)).filter(|path| path.exists());
    }
    let places = search_path.into_iter();
    // A relative place starts at the working directory, which is `directory`.
    let mut paths = places.map(|place| directory.join(place).join(program));
    paths.find(is_program)
}

/// Returns why another user can change a file, or what a directory contains; none if no other can. In
/// a sticky directory each user changes only what is theirs.
fn find_distrust_cause(
    path: &Path,
    meta: &fs::Metadata,
    user: TrustedUser,
) -> Option<DistrustCause> {
    let kind = meta.file_type();
    // What is written to /dev/null is never read from it, and a symlink to it masks a unit.
    if kind.is_char_device() && meta.rdev() == rustix::fs::makedev(1, 3) {
        return None;
    }
    if meta.uid() != 0 && meta.uid() != user.uid {
        return Some(DistrustCause::Owner(meta.uid()));
    }
    // The mode of a device or socket says who can send to it.
    let is_endpoint = kind.is_char_device() || kind.is_block_device() || kind.is_socket();
    if is_endpoint || is_sticky_directory(meta) {
        return None;
    }
    find_writer(path, meta, user).map(DistrustCause::Writer)
}

fn is_sticky_directory(meta: &fs::Metadata) -> bool {
    meta.is_dir() && meta.mode() & 0o1000 != 0
}

/// Returns who else can write a file or directory. The mode of a symlink says nothing.
fn find_writer(path: &Path, meta: &fs::Metadata, user: TrustedUser) -> Option<Writer> {
    if meta.is_symlink() {
        None
    } else if meta.mode() & 0o002 != 0 {
        Some(Writer::World)
    } else if meta.mode() & 0o020 == 0 {
        None
    } else if let Some(list) = read_access_list(path) {
        // The bits of the group are the mask of the list.
        list.find_writer(user, meta.gid())
    } else {
        (!user.owns_group(meta.gid())).then(|| Writer::Group(meta.gid()))
    }
}

/// Maximum size of an access list, as in the kernel.
const MAX_LIST_BYTES: usize = 64 << 10;

/// The entries of an access list: tag, rights and id, as in linux/posix_acl_xattr.h.
struct AccessList(Vec<(u16, u16, u32)>);

/// Reads the access list of a file; none for a file that has only a mode.
fn read_access_list(path: &Path) -> Option<AccessList> {
    let mut bytes = vec![0; MAX_LIST_BYTES];
    let size = rustix::fs::lgetxattr(path, "system.posix_acl_access", &mut bytes[..]).ok()?;
    // A version comes first.
    let (entries, _) = bytes.get(size_of::<u32>()..size)?.as_chunks::<8>();
    let entries = entries.iter().map(|&[a, b, c, d, e, f, g, h]| {
        (
            u16::from_le_bytes([a, b]),
            u16::from_le_bytes([c, d]),
            u32::from_le_bytes([e, f, g, h]),
        )
    });
    Some(AccessList(entries.collect()))
}

impl AccessList {
    /// Returns another user or group that can write, where the mask lets them.
    fn find_writer(&self, user: TrustedUser, group: u32) -> Option<Writer> {
        const WRITE: u16 = 0x02;
        let writers = self.0.iter().filter(|(_, rights, _)| rights & WRITE != 0);
        let mut others = writers.filter_map(|&(tag, _, id)| match tag {
            // ACL_USER, ACL_GROUP_OBJ and ACL_GROUP.
            0x02 if id != 0 && id != user.uid => Some(Writer::ListedUser(id)),
            0x04 if !user.owns_group(group) => Some(Writer::Group(group)),
            0x08 if !user.owns_group(id) => Some(Writer::ListedGroup(id)),
            _ => None,
        });
        others.next()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;
    use crate::skip::skip_unsupported;

    /// The group that counts as that of any user.
    const PRIVATE_GROUP: u32 = 4712;

    fn user(uid: u32) -> TrustedUser {
        let find_private_group = |_| Some(PRIVATE_GROUP);
        let database = UserDatabase {
            find_private_group,
            ..UserDatabase::EMPTY
        };
        TrustedUser { uid, database }
    }

    /// The directories of tests belong to root only where root runs them.
    fn root_directory() -> Option<(tempfile::TempDir, PathBuf)> {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().canonicalize().unwrap();
        if find_untrusted_ancestor(&path, TrustedUser::ROOT).is_some() {
            skip_unsupported("the temporary directory does not belong to root alone");
            return None;
        }
        Some((temporary, path))
    }

    #[test]
    fn symlink_in_a_place_of_others_is_untrusted() {
        let Some((_temporary, root)) = root_directory() else {
            return;
        };
        let program = root.join("program");
        fs::write(&program, "").unwrap();
        fs::create_dir(root.join("open")).unwrap();
        let mode = fs::Permissions::from_mode(0o777);
        fs::set_permissions(root.join("open"), mode).unwrap();
        symlink("../program", root.join("open/link")).unwrap();
        symlink("open/link", root.join("far")).unwrap();
        assert_eq!(find_untrusted_ancestor(&program, TrustedUser::ROOT), None);
        for link in ["open/link", "far"] {
            let found = find_untrusted_ancestor(&root.join(link), TrustedUser::ROOT).unwrap();
            assert_eq!(found.path, root.join("open"), "{link}");
            assert_eq!(found.cause, DistrustCause::Writer(Writer::World));
        }
    }

    #[test]
    fn own_files_of_a_user_are_trusted() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("unit");
        fs::write(&file, "").unwrap();
        let owner = fs::metadata(&file).unwrap().uid();
        let chmod = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let found = || find_untrusted_ancestor(&file, user(owner)).map(|it| it.path);
        chmod(&file, 0o644);
        assert_eq!(found(), None);
        chmod(&file, 0o646);
        assert_eq!(found().as_deref(), Some(file.as_path()));
        chmod(&file, 0o644);
        chmod(directory.path(), 0o777);
        assert_eq!(found().as_deref(), Some(directory.path()));
    }

    #[test]
    fn sticky_directory_keeps_only_directories() {
        let Some((_temporary, root)) = root_directory() else {
            return;
        };
        let shared = root.join("shared");
        fs::create_dir_all(shared.join("own")).unwrap();
        fs::write(shared.join("own/file"), "").unwrap();
        // Another user may have made these, as hard links.
        fs::write(shared.join("file"), "").unwrap();
        symlink("own", shared.join("link")).unwrap();
        let chmod = |mode| fs::set_permissions(&shared, fs::Permissions::from_mode(mode)).unwrap();
        let found = |name: &str| {
            let path = shared.join(name);
            let ancestor = find_untrusted_ancestor(&path, TrustedUser::ROOT);
            let lookup = find_untrusted_lookup(&path, TrustedUser::ROOT);
            [ancestor, lookup].map(|it| it.map(|it| (it.path, it.cause)))
        };
        let planted = |writer| Some((shared.clone(), DistrustCause::Creator(writer)));
        let of_world = || planted(Writer::World);
        chmod(0o1777);
        for (name, expected) in [
            ("file", [of_world(), of_world()]),
            ("link/file", [of_world(), of_world()]),
            ("own", [None, None]),
            ("own/file", [None, None]),
            // What is looked up there later.
            ("", [None, of_world()]),
            ("missing/file", [None, of_world()]),
            ("own/missing", [None, None]),
            ("own/..", [None, of_world()]),
        ] {
            assert_eq!(found(name), expected, "{name}");
        }
        let place = find_untrusted_ancestor(&shared.join("file"), TrustedUser::ROOT).unwrap();
        assert_eq!(place.remedy(), None, "a directory for all users stays one");
        chmod(0o1755);
        assert_eq!(found("file"), [None, None]);
        if chown(&shared, None, Some(PRIVATE_GROUP)).is_ok() {
            chmod(0o1775);
            let of_group = || planted(Writer::Group(PRIVATE_GROUP));
            assert_eq!(found("file"), [of_group(), of_group()]);
        }
    }

    #[test]
    fn mode_of_device_or_socket_is_no_danger() {
        let Some((_temporary, root)) = root_directory() else {
            return;
        };
        let socket = root.join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).unwrap();
        for path in [socket.as_path(), Path::new("/dev/full")] {
            let found = find_untrusted_lookup(path, TrustedUser::ROOT);
            assert_eq!(found, None, "{}", path.display());
        }
        chown(&socket, Some(4711), None).unwrap();
        assert!(find_untrusted_lookup(&socket, TrustedUser::ROOT).is_some());
    }

    #[test]
    fn access_list_counts_as_that_of_others() {
        const USER: u32 = 4711;
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("unit");
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o660)).unwrap();
        if chown(&file, Some(USER), Some(PRIVATE_GROUP)).is_err() {
            return skip_unsupported("only root can give files away");
        }
        let cause = || {
            let meta = fs::symlink_metadata(&file).unwrap();
            find_distrust_cause(&file, &meta, user(USER))
        };
        assert_eq!(cause(), None);
        // acl(5), version 2: the owner, user 1, the group, the mask and the others.
        let entries: [(u16, u16, u32); 5] = [
            (0x01, 6, u32::MAX),
            (0x02, 6, 1),
            (0x04, 0, u32::MAX),
            (0x10, 6, u32::MAX),
            (0x20, 0, u32::MAX),
        ];
        let mut list = 2_u32.to_le_bytes().to_vec();
        for (tag, rights, id) in entries {
            list.extend(tag.to_le_bytes());
            list.extend(rights.to_le_bytes());
            list.extend(id.to_le_bytes());
        }
        let flags = rustix::fs::XattrFlags::empty();
        // Some file systems have no access lists.
        if rustix::fs::setxattr(&file, "system.posix_acl_access", &list, flags).is_ok() {
            assert_eq!(cause(), Some(DistrustCause::Writer(Writer::ListedUser(1))));
            // The mask, which is the group of the mode, takes the right back.
            fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
            assert_eq!(cause(), None);
        }
    }

    #[test]
    fn link_to_dev_null_is_no_danger() {
        let Some((_temporary, root)) = root_directory() else {
            return;
        };
        symlink("/dev/null", root.join("mask")).unwrap();
        assert_eq!(
            find_untrusted_ancestor(&root.join("mask"), TrustedUser::ROOT),
            None
        );
    }

    #[test]
    fn symlink_of_another_user_is_untrusted() {
        let Some((_temporary, root)) = root_directory() else {
            return;
        };
        fs::write(root.join("program"), "").unwrap();
        symlink("program", root.join("link")).unwrap();
        assert_eq!(
            find_untrusted_ancestor(&root.join("link"), TrustedUser::ROOT),
            None
        );
        std::os::unix::fs::lchown(root.join("link"), Some(4711), None).unwrap();
        let found = find_untrusted_ancestor(&root.join("link"), TrustedUser::ROOT).unwrap();
        assert_eq!(found.path, root.join("link"));
        assert_eq!(found.cause, DistrustCause::Owner(4711));
        chown(root.join("program"), Some(4711), None).unwrap();
        let found = find_untrusted_ancestor(&root.join("program"), TrustedUser::ROOT).unwrap();
        assert_eq!(found.path, root.join("program"));
    }

    #[test]
    fn program_is_found_as_a_process_finds_it() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        for (name, mode) in [("first", 0o644), ("second", 0o755)] {
            fs::create_dir(root.join(name)).unwrap();
            let program = root.join(name).join("notify");
            fs::write(&program, "").unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
        }
        let places = ["first", "second"];
        let found = |program| find_program(program, root, places);
        // The first one cannot be executed.
        assert_eq!(found("notify"), Some(root.join("second/notify")));
        assert_eq!(found("first/notify"), Some(root.join("first/notify")));
        assert_eq!(found("program-of-none"), None);
        assert_eq!(found("none/notify"), None);
    }

    #[test]
    fn loop_of_symlinks_ends() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("loop");
        symlink("loop", &link).unwrap();
        let _ = find_untrusted_ancestor(&link, TrustedUser::ROOT);
    }
}
