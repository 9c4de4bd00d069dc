//! A directory for temporary files, as a variable of the environment names it.

use std::path::Path;

use memory_shepherd::base::temporary::TemporaryRoot;
use memory_shepherd::base::trust::TrustedUser;

/// A user that owns nothing.
#[allow(dead_code)]
pub const OTHER_USER: u32 = 4711;

/// Returns a path as `$TMPDIR` of the user of this process.
pub fn temporary_root(path: &Path) -> TemporaryRoot {
    let user = TrustedUser {
        uid: rustix::process::geteuid().as_raw(),
        ..TrustedUser::ROOT
    };
    TemporaryRoot::new("TMPDIR", path.to_path_buf(), user)
}
