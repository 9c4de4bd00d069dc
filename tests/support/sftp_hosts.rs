//! Hosts without encryption: an `ssh` that becomes OpenSSH's `sftp-server`.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::skip::skip_missing_tool;

/// Where systems install the server.
const SERVERS: [&str; 2] = ["/usr/lib/openssh/sftp-server", "/usr/libexec/sftp-server"];

/// Writes the `ssh` into a directory, and returns the search path that begins with that directory.
/// None without a server.
pub fn write_ssh(directory: &Path) -> Option<OsString> {
    let Some(server) = SERVERS.iter().find(|path| Path::new(path).exists()) else {
        skip_missing_tool("sftp-server");
        return None;
    };
    fs::create_dir_all(directory).unwrap();
    let ssh = directory.join("ssh");
    // A question about its settings is for the real one.
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = -G ] && exec /usr/bin/ssh \"$@\"\nexec {server} -e 2>/dev/null\n"
    );
    fs::write(&ssh, script).unwrap();
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = std::iter::once(directory.to_path_buf());
    std::env::join_paths(own.chain(std::env::split_paths(&path))).ok()
}
