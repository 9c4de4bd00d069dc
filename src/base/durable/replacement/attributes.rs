//! Owner, mode, access control list and user attributes of a file that a new one replaces.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{self, FileType, Gid, Mode, OFlags, Uid, XattrFlags};
use rustix::io::Errno;
use serde::Serialize;

use crate::base::error::{PathContext, Result};

/// The access control list, which is an extended attribute.
const ACL_NAME: &[u8] = b"system.posix_acl_access";

/// Size limit of the kernel for a value and for the list of names, in bytes.
const MAX_XATTR_BYTES: usize = 64 * 1024;

/// Permission bits of a file's group.
const GROUP_BITS: Mode = Mode::RWXG;

/// What a new file does not have of the one that it replaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LostAttributes {
    /// User id of the old owner.
    pub owner: Option<u32>,
    /// Id of the old group, whose members have no rights any more.
    pub group: Option<u32>,
    /// Whether the access control list or an attribute of a user is missing.
    pub xattrs: bool,
    /// Number of other names of the old file, which keep its text.
    pub other_names: u64,
}

impl LostAttributes {
    /// Says what is missing, in a few words; none if nothing is.
    pub fn describe(&self) -> Option<String> {
        let owner = self.owner.map(|uid| format!("its owner was user id {uid}"));
        let group = self
            .group
            .map(|gid| format!("its group was group id {gid}"));
        let xattrs = self
            .xattrs
            .then(|| "extended attributes were not kept".to_string());
        let other_names = match self.other_names {
            0 => None,
            1 => Some("its other name (a hard link) keeps the text from before".to_string()),
            count => Some(format!(
                "its {count} other names (hard links) keep the text from before"
            )),
        };
        let attributes = owner.into_iter().chain(group).chain(xattrs);
        let parts: Vec<String> = attributes.chain(other_names).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// Gives a new file what it can have of the regular file `name`, and returns the rest. No user gets
/// a right that the old file did not give: without the old group or access control list, the group
/// has none.
///
/// # Errors
/// The system's error.
pub(super) fn copy_attributes(
    directory: &OwnedFd,
    name: &OsStr,
    path: &Path,
    new: &File,
) -> Result<LostAttributes> {
    // Everything comes from one descriptor: the name may lead to another file a moment later.
    let open = |flags: OFlags| {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        fs::openat(directory, name, flags, Mode::empty())
    };
    let readable = open(OFlags::RDONLY | OFlags::NONBLOCK).ok();
    let old = match &readable {
        Some(old) => fs::fstat(old),
        None => open(OFlags::PATH).and_then(|old| fs::fstat(&old)),
    };
    let old = match old {
        // It has been removed since.
        Err(Errno::NOENT) => return Ok(LostAttributes::default()),
        old => old.with_path("stat", path)?,
    };
    if FileType::from_raw_mode(old.st_mode) != FileType::RegularFile {
        return Ok(LostAttributes::default());
    }
    let own = fs::fstat(new).with_path("stat", path)?;
    let mut lost = LostAttributes {
        other_names: (old.st_nlink as u64).saturating_sub(1),
        ..LostAttributes::default()
    };
    // The owner last: only root can change the group of another user's file.
    if own.st_gid != old.st_gid {
        let changed = fs::fchown(new, None, Some(Gid::from_raw(old.st_gid)));
        lost.group = is_refused(changed)
            .with_path("keep the group of", path)?
            .then_some(old.st_gid);
    }
    if own.st_uid != old.st_uid {
        let changed = fs::fchown(new, Some(Uid::from_raw(old.st_uid)), None);
        lost.owner = is_refused(changed)
            .with_path("keep the owner of", path)?
            .then_some(old.st_uid);
    }
    let xattrs = readable.as_ref().map(|old| copy_xattrs(old, new));
    let xattrs = xattrs.unwrap_or(CopiedXattrs {
        has_lost_some: true,
        has_lost_acl: true,
    });
    lost.xattrs = xattrs.has_lost_some;
    let mut mode = Mode::from_raw_mode(old.st_mode & 0o777);
    if lost.group.is_some() || xattrs.has_lost_acl {
        mode.remove(GROUP_BITS);
    }
    fs::fchmod(new, mode).with_path("keep the mode of", path)?;
    Ok(lost)
}

/// Returns whether the system refuses a change of owner: to this user, or because it knows no such
/// user here.
fn is_refused(changed: rustix::io::Result<()>) -> rustix::io::Result<bool> {
    match changed {
        Ok(()) => Ok(false),
        Err(Errno::PERM | Errno::INVAL) => Ok(true),
        Err(errno) => Err(errno),
    }
}

/// What [`copy_xattrs`] could not copy.
#[derive(Default)]
struct CopiedXattrs {
    has_lost_some: bool,
    has_lost_acl: bool,
}

/// Copies the access control list and the attributes of users as far as possible; a security module
/// labels the new file by itself. The writer of the old file chose them, so none of them may stop a
/// replacement.
fn copy_xattrs(old: &OwnedFd, new: &File) -> CopiedXattrs {
    let mut copied = CopiedXattrs::default();
    let mut list = vec![0; MAX_XATTR_BYTES];
    let names = match fs::flistxattr(old, &mut list) {
        Ok(length) => &list[..length],
        Err(Errno::NOTSUP) => return copied,
        Err(_) => {
            copied.has_lost_some = true;
            ACL_NAME
        }
    };
    let names = names.split(|byte| *byte == 0);
    let mut has_acl = false;
    for name in names.filter(|name| name.starts_with(b"user.") || *name == ACL_NAME) {
        let mut value = vec![0; MAX_XATTR_BYTES];
        let set = match fs::fgetxattr(old, name, &mut value[..]) {
            // There is none, or no longer.
            Err(Errno::NODATA | Errno::NOTSUP) => continue,
            Err(errno) => Err(errno),
            Ok(length) => fs::fsetxattr(new, name, &value[..length], XattrFlags::empty()),
        };
        has_acl |= name == ACL_NAME;
        copied.has_lost_some |= set.is_err();
        copied.has_lost_acl |= set.is_err() && name == ACL_NAME;
    }
    if !has_acl {
        // The directory's default list may have added one.
        match fs::fremovexattr(new, ACL_NAME) {
            Ok(()) | Err(Errno::NODATA | Errno::NOTSUP) => {}
            Err(_) => copied.has_lost_acl = true,
        }
    }
    copied
}
