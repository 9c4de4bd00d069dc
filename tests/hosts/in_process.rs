//! The demo's host: what it serves, how it goes away and comes back, and what
//! becomes of a reset where its server lacks something.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use memory_shepherd::demo::host::{Abilities, Host};
use memory_shepherd::engine::{Outcome, State};
use memory_shepherd::transport::sftp::ssh::Dial;
use memory_shepherd::transport::sftp::{Everywhere, Sftp};
use memory_shepherd::transport::{Cause, Object, Transport, TransportError};
use tempfile::TempDir;

use super::contract::OnDisk;
use super::remote::{add_remote, engine, ground_by};
use super::servers::host;
use super::world::{BASELINE, TestClock, World};

/// What its server can do beside the protocol's own.
pub const ALL: [&str; 5] = ["posix-rename", "hardlink", "fsync", "statvfs", "limits"];

/// Everything but these.
fn without(extensions: &[&str]) -> Abilities {
    let has = |name| !extensions.contains(&name);
    Abilities {
        posix_rename: has("posix-rename"),
        hardlink: has("hardlink"),
        fsync: has("fsync"),
        statvfs: has("statvfs"),
        limits: has("limits"),
    }
}

fn start(lacks: &[&str]) -> Host {
    Host::start(Path::new("/"), without(lacks)).unwrap()
}

/// A folder on this disk, over SFTP with the demo's server.
pub fn ground(lacks: &[&str]) -> OnDisk<Sftp> {
    ground_by(host("remote"), start(lacks))
}
