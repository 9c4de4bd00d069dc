//! Owner, mode and extended attributes of files on this machine.

use std::fs::File as StdFile;
use std::path::Path;

use rustix::fs::{self, Mode, XattrFlags};
use rustix::io::Errno;

use super::errors::ownership_error;
use crate::base::error::{Error, PathContext};
use crate::base::process_rights::describe_refused_owner;
use crate::transport::xattrs::keep_xattrs_within_limit;
use crate::transport::{Attributes, Xattr};

/// Size limit of the kernel for a value and for the list of names (`XATTR_SIZE_MAX`,
/// `XATTR_LIST_MAX`), in bytes.
const MAX_XATTR_BYTES: usize = 64 * 1024;

/// The attributes to read by name where the list of names exceeds that limit: access rights must
/// survive whatever else an agent attaches to the file.
const ESSENTIAL_XATTRS: [&str; 7] = [
    "security.capability",
    "security.evm",
    "security.ima",
    "security.selinux",
    "security.SMACK64",
    "system.nfs4_acl",
    "system.posix_acl_access",
];

/// The way to a file's extended attributes.
pub(super) enum XattrAccess<'a> {
    /// An open file.
    File(&'a StdFile),
    /// The path of a descriptor that was opened with `O_PATH`.
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

/// Returns the extended attributes that this process may see, reduced by [`keep_xattrs_within_limit`], and
/// a lower bound of the number left out.
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
    let (kept, over) = keep_xattrs_within_limit(sizes);
    dropped += over;
    let mut found = Vec::new();
    let mut value = vec![0; MAX_XATTR_BYTES];
    for (name, size) in kept {
        match access.read_value(name, &mut value[..]) {
            // An attribute that grew may exceed the limit.
            Ok(length) if length > size && name.starts_with(b"user.") => dropped += 1,
            Ok(length) => found.push((name.to_vec(), value[..length].to_vec())),
            Err(errno) if is_xattr_absent(errno) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok((found, dropped))
}

/// Returns whether the attribute was removed in between, or is of a kind that this file system does
/// not support.
fn is_xattr_absent(errno: Errno) -> bool {
    matches!(errno, Errno::NODATA | Errno::NOTSUP)
}

/// Sets owner, mode and extended attributes of a new file.
pub(super) fn apply_attributes(
    file: &StdFile,
    attributes: &Attributes,
    memory: &Path,
) -> Result<(), Error> {
    let attributes = attributes.for_new_file();
    let stat = fs::fstat(file).with_path("stat", memory)?;
    if (stat.st_uid, stat.st_gid) != (attributes.uid, attributes.gid) {
        let uid = (stat.st_uid != attributes.uid).then(|| fs::Uid::from_raw(attributes.uid));
        let gid = (stat.st_gid != attributes.gid).then(|| fs::Gid::from_raw(attributes.gid));
        let given = fs::fchown(file, uid, gid);
        if given == Err(Errno::PERM)
            && let Some(owner) = describe_refused_owner(attributes.uid, Some(attributes.gid))
        {
            return Err(ownership_error(memory, &owner));
        }
        given.with_path("set the owner of", memory)?;
    }
    fs::fchmod(file, Mode::from_raw_mode(attributes.mode)).with_path("set the mode of", memory)?;
    // A security module may have set the right label already.
    let (found_xattrs, _) =
        read_xattrs(&XattrAccess::File(file)).with_path("read the attributes of", memory)?;
    // Removes what the directory's default access control list added and the old file does not
    // have; labels of security modules stay.
    let wanted = |name: &[u8]| attributes.xattrs.iter().any(|(wanted, _)| wanted == name);
    for (name, _) in found_xattrs.iter().filter(|(name, _)| !wanted(name)) {
        if !name.starts_with(b"security.") {
            fs::fremovexattr(file, name.as_slice())
                .with_path("set the extended attributes of", memory)?;
        }
    }
    for (name, value) in attributes
        .xattrs
        .iter()
        .filter(|xattr| !found_xattrs.contains(xattr))
    {
        fs::fsetxattr(file, name.as_slice(), value, XattrFlags::empty())
            .with_path("set the extended attributes of", memory)
            .map_err(|error| {
                error.with_hint(format!(
                    "extended attribute: {}",
                    String::from_utf8_lossy(name)
                ))
            })?;
    }
    Ok(())
}
