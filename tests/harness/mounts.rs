//! Private file systems of a test. They live in a mount namespace that ends with the test's
//! process, so none stays mounted, however it ends; loop devices detach with their last mount.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::fixture::{has_tool, is_own_process, is_root, run_in_own_process};
use crate::skip::skip_unsupported;

/// Returns whether this process may mount. Otherwise runs the test of this name again in a process
/// that may, and returns false: the test is then over.
pub fn may_mount(test: &str) -> bool {
    if is_own_process() {
        return true;
    }
    if !is_root() {
        skip_unsupported("needs root, to mount");
        return false;
    }
    if !has_tool("unshare") || !has_tool("mount") {
        return false;
    }
    let private = ["unshare", "--mount", "--propagation", "private"];
    let probe = Command::new(private[0])
        .args(&private[1..])
        .arg("true")
        .output();
    if !probe.is_ok_and(|output| output.status.success()) {
        skip_unsupported("no mount namespaces");
        return false;
    }
    run_in_own_process(test, &private);
    false
}

/// A mount that is unmounted on drop.
pub struct Mount {
    mount_point: PathBuf,
}

impl Mount {
    /// Mounts with these arguments of `mount`; returns its message where that fails.
    pub fn new(words: &[&str], at: &Path) -> Result<Mount, String> {
        std::fs::create_dir_all(at).unwrap();
        Mount::mount_over_file(words, at)
    }

    /// Mounts over a file that exists.
    pub fn mount_over_file(words: &[&str], at: &Path) -> Result<Mount, String> {
        let output = Command::new("mount").args(words).arg(at).output().unwrap();
        if output.status.success() {
            Ok(Mount {
                mount_point: at.to_path_buf(),
            })
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }
}

impl Mount {
    /// Changes the options of the mount.
    pub fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        let mut mount = Command::new("mount");
        let done = mount.args(["-o", &options]).arg(&self.mount_point).status();
        assert!(done.unwrap().success(), "mount -o {options}");
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let done = Command::new("umount").arg(&self.mount_point).output();
        if !done.is_ok_and(|output| output.status.success()) {
            // A process still has a file open there.
            let _ = Command::new("umount")
                .arg("--lazy")
                .arg(&self.mount_point)
                .output();
        }
    }
}
