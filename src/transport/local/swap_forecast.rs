//! Forecasts a swap from the flags of memory and directory (statx(2)) and of their file system, without
//! trying it. Where kernel or file system do not report flags, the forecast is clear.

use std::ffi::OsStr;
use std::path::Path;

use rustix::fs::{
    self, Access, AtFlags, FileType, Mode, StatVfsMountFlags, Statx, StatxAttributes, StatxFlags,
};
use rustix::io::Errno;

use super::errors::{ownership_error, refused_error, unwritable_directory_error};
use super::open_directory::OpenDirectory;
use crate::base::error::{Error, ErrorKind};
use crate::base::invocation::quote_operand;
use crate::base::process_rights::describe_refused_owner;
use crate::transport::{SwapForecast, TransportError};

impl OpenDirectory {
    /// Forecasts the swap of the memory at `name`, which has this status.
    pub(super) fn forecast_from_flags(&self, name: &OsStr, memory: Option<&Statx>) -> SwapForecast {
        let path = self.path_of(name);
        let directory = self.statx(OsStr::new(""));
        let (mut causes, mut commands) = (Vec::new(), Vec::new());
        let parts = [
            ("it", path.as_path(), memory),
            ("its directory", &self.path, directory.as_ref()),
        ];
        for (what, path, found) in parts {
            if let Some((flag_words, flags)) = found.and_then(immutability_flags) {
                causes.push(format!("{what} is {flag_words}"));
                commands.push(format!("chattr -{flags} {}", quote_operand(path)));
            }
        }
        let is_read_only =
            fs::fstatvfs(&self.fd).is_ok_and(|it| it.f_flag.contains(StatVfsMountFlags::RDONLY));
        if is_read_only {
            causes.push("it is on a read-only file system".to_string());
            let directory = quote_operand(&self.path);
            commands.push(format!(
                "mount -o remount,rw \"$(findmnt -no TARGET -T {directory})\""
            ));
        }
        let mounted = memory.filter(|it| it.stx_attributes.contains(StatxAttributes::MOUNT_ROOT));
        let is_file =
            |it: &Statx| FileType::from_raw_mode(it.stx_mode.into()) == FileType::RegularFile;
        if mounted.is_some_and(|it| !is_file(it)) {
            causes.push("the object mounted there is not a file".to_string());
            commands.push(format!("umount {}", path.display()));
        }
        match (causes.is_empty(), mounted) {
            (true, None) => SwapForecast::Clear,
            (true, Some(_)) => SwapForecast::InPlace,
            (false, _) => SwapForecast::Refused(cannot_replace_error(&path, &causes, &commands)),
        }
    }

    /// Returns why this process may not write the directory, which replacing the memory at `name` has to;
    /// none where it may, and for a mount point, which is written in place.
    pub(super) fn find_write_refusal(&self, name: &OsStr, memory: Option<&Statx>) -> Option<Error> {
        if memory.is_some_and(|it| it.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)) {
            return None;
        }
        let wanted = Access::WRITE_OK | Access::EXEC_OK;
        match fs::accessat(&self.fd, ".", wanted, AtFlags::EACCESS) {
            Err(Errno::ACCESS) => Some(unwritable_directory_error(&self.path_of(name))),
            _ => None,
        }
    }

    /// Returns why this process may not give a new file the owner and the group of the memory at `name`, or
    /// without one the owner of the directory; none where it may, and for a mount point, which is written
    /// in place.
    pub(super) fn find_ownership_refusal(
        &self,
        name: &OsStr,
        memory: Option<&Statx>,
    ) -> Option<Error> {
        let directory = fs::fstat(&self.fd).ok()?;
        let Some(found) = memory else {
            let owner = describe_refused_owner(directory.st_uid, None)?;
            return Some(ownership_error(&self.path_of(name), &owner));
        };
        let is_replaced = FileType::from_raw_mode(found.stx_mode.into()) == FileType::RegularFile
            && !found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
        // A new file gets this group by itself.
        let has_group =
            directory.st_mode & Mode::SGID.as_raw_mode() != 0 && directory.st_gid == found.stx_gid;
        let gid = (!has_group).then_some(found.stx_gid);
        let owner = is_replaced.then(|| describe_refused_owner(found.stx_uid, gid))??;
        Some(ownership_error(&self.path_of(name), &owner))
    }

    /// Returns the forecast's reason in place of `error`, where there is one.
    pub(super) fn explain_swap_error(&self, name: &OsStr, error: Error) -> TransportError {
        refused_error(
            match self.forecast_from_flags(name, self.statx(name).as_ref()) {
                SwapForecast::Refused(reason) => reason,
                _ => error,
            },
        )
    }

    /// Returns the status of `name`, or of the directory itself for an empty name.
    pub(super) fn statx(&self, name: &OsStr) -> Option<Statx> {
        let how = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::EMPTY_PATH;
        fs::statx(
            &self.fd,
            name,
            how,
            StatxFlags::TYPE | StatxFlags::UID | StatxFlags::GID,
        )
        .ok()
    }
}

/// Returns the flags that keep a file or directory from being changed, in words and as letters of
/// chattr(1).
fn immutability_flags(found: &Statx) -> Option<(&'static str, &'static str)> {
    let has = |flag| found.stx_attributes.contains(flag);
    match (
        has(StatxAttributes::IMMUTABLE),
        has(StatxAttributes::APPEND),
    ) {
        (true, true) => Some(("immutable and append-only", "ia")),
        (true, false) => Some(("immutable", "i")),
        (false, true) => Some(("append-only", "a")),
        (false, false) => None,
    }
}

fn cannot_replace_error(memory: &Path, causes: &[String], commands: &[String]) -> Error {
    let message = format!(
        "cannot replace {}: {}",
        memory.display(),
        causes.join(" and ")
    );
    let hint = format!("run {} and try again", commands.join(" && "));
    Error::new(ErrorKind::Host, message).with_hint(hint)
}
