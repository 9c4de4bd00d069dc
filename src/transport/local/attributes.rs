//! Owner, mode and extended attributes of files on this machine.

use std::fs::File as StdFile;
use std::path::Path;

use rustix::fs::{self, Mode, XattrFlags};
use rustix::io::Errno;

use crate::error::{Error, PathContext};
use crate::transport::xattrs::keep_within_limit;
use crate::transport::{Attributes, Xattr};

/// The longest value, and the longest list of names, that the kernel hands out
/// (`XATTR_SIZE_MAX`, `XATTR_LIST_MAX`).
const MAX_XATTR_BYTES: usize = 64 * 1024;

/// What is asked for by name where the list of names is longer than that: who
/// may use a file must survive whatever else an agent hangs on it.
const ESSENTIAL_XATTRS: [&str; 7] = [
    "security.capability",
    "security.evm",
    "security.ima",
    "security.selinux",
    "security.SMACK64",
    "system.nfs4_acl",
    "system.posix_acl_access",
];

/// How a file's extended attributes are reached.
pub(super) enum XattrAccess<'a> {
    /// It is open.
    File(&'a StdFile),
    /// By the path of a descriptor that was opened for nothing but to name it.
    Path(&'a str),
}

impl XattrAccess<'_> {
    fn list_size(&self) -> rustix::io::Result<usize> {
        match self {
            XattrAccess::File(file) => fs::flistxattr_query(file),
            XattrAccess::Path(path) => fs::listxattr_query(*path),
        }
    }

    fn read_list(&self, list: &mut Vec<u8>) -> rustix::io::Result<usize> {
        match self {
            XattrAccess::File(file) => fs::flistxattr(file, list),
            XattrAccess::Path(path) => fs::listxattr(*path, list),
        }
    }

    fn value_size(&self, name: &[u8]) -> rustix::io::Result<usize> {
        match self {
            XattrAccess::File(file) => fs::fgetxattr_query(file, name),
            XattrAccess::Path(path) => fs::getxattr_query(*path, name),
        }
    }

    fn read_value(&self, name: &[u8], value: &mut [u8]) -> rustix::io::Result<usize> {
        match self {
            XattrAccess::File(file) => fs::fgetxattr(file, name, value),
            XattrAccess::Path(path) => fs::getxattr(*path, name, value),
        }
    }
}

/// The extended attributes that this process may see, as far as they are
/// [`keep_within_limit`], and how many were left out, at least.
pub(super) fn read_xattrs(access: &XattrAccess<'_>) -> rustix::io::Result<(Vec<Xattr>, u64)> {
    // Most files have none.
    if let Ok(0) = access.list_size() {
        return Ok((Vec::new(), 0));
    }
    let mut list = vec![0; MAX_XATTR_BYTES];
    let (names, mut dropped) = match access.read_list(&mut list) {
        Ok(length) => {
            list.truncate(length);
            let names = list.split(|byte| *byte == 0);
            (names.filter(|name| !name.is_empty()).collect(), 0)
        }
        Err(Errno::NOTSUP) => (Vec::new(), 0),
        Err(Errno::TOOBIG | Errno::RANGE) => (ESSENTIAL_XATTRS.map(str::as_bytes).to_vec(), 1),
        Err(errno) => return Err(errno),
    };
    let mut sizes = Vec::new();
    for name in names {
        match access.value_size(name) {
            Ok(size) => sizes.push((name, size)),
            Err(errno) if is_xattr_absent(errno) => {}
            Err(errno) => return Err(errno),
        }
    }
    let (kept, over) = keep_within_limit(sizes);
    dropped += over;
    let mut found = Vec::new();
    let mut value = vec![0; MAX_XATTR_BYTES];
    for (name, size) in kept {
        match access.read_value(name, &mut value[..]) {
            // One that grew is not what could be afforded.
            Ok(length) if length > size && name.starts_with(b"user.") => dropped += 1,
            Ok(length) => found.push((name.to_vec(), value[..length].to_vec())),
            Err(errno) if is_xattr_absent(errno) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok((found, dropped))
}

/// Removed meanwhile, or of a kind that this file system does not know.
fn is_xattr_absent(errno: Errno) -> bool {
    matches!(errno, Errno::NODATA | Errno::NOTSUP)
}

/// Gives a new file its owner, mode and extended attributes.
pub(super) fn apply_attributes(
    file: &StdFile,
    attributes: &Attributes,
    memory: &Path,
) -> Result<(), Error> {
    let attributes = attributes.for_new_file();
    let stat = fs::fstat(file).with_path("look at", memory)?;
    if (stat.st_uid, stat.st_gid) != (attributes.uid, attributes.gid) {
        let uid = (stat.st_uid != attributes.uid).then(|| fs::Uid::from_raw(attributes.uid));
        let gid = (stat.st_gid != attributes.gid).then(|| fs::Gid::from_raw(attributes.gid));
        fs::fchown(file, uid, gid)
            .with_path("keep the owner of", memory)
            .map_err(|error| {
                error.with_hint(format!(
                    "run as root or as the user with id {}, whose file it is",
                    attributes.uid
                ))
            })?;
    }
    fs::fchmod(file, Mode::from_raw_mode(attributes.mode)).with_path("keep the mode of", memory)?;
    // The label that a security module gave the new file may be right already.
    let (found_xattrs, _) =
        read_xattrs(&XattrAccess::File(file)).with_path("read the attributes of", memory)?;
    // The directory's default access control list is not the old file's; what
    // security modules add is theirs.
    let wanted = |name: &[u8]| attributes.xattrs.iter().any(|(wanted, _)| wanted == name);
    for (name, _) in found_xattrs.iter().filter(|(name, _)| !wanted(name)) {
        if !name.starts_with(b"security.") {
            fs::fremovexattr(file, name.as_slice())
                .with_path("keep the extended attributes of", memory)?;
        }
    }
    for (name, value) in attributes
        .xattrs
        .iter()
        .filter(|xattr| !found_xattrs.contains(xattr))
    {
        fs::fsetxattr(file, name.as_slice(), value, XattrFlags::empty())
            .with_path("keep the extended attributes of", memory)
            .map_err(|error| {
                error.with_hint(format!(
                    "the attribute is {}",
                    String::from_utf8_lossy(name)
                ))
            })?;
    }
    Ok(())
}
