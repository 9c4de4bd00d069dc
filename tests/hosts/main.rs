//! Agents on other hosts: the transport over SFTP, and the whole engine over it.
//!
//! A separate test binary: it starts processes all the time, and a process that is being started
//! holds the open files of other tests, which counts as a writer.

#![allow(clippy::expect_used, clippy::print_stdout, clippy::unwrap_used)]
// Shared support modules hold items that only the other test binaries use.
#![allow(dead_code)]

/// Runs a test on each transport to other hosts.
macro_rules! on_every_transport {
    (everywhere { $($case:ident)* } here { $($here:ident)* }) => {
        mod sftp_server {
            $(#[test] fn $case() {
                if let Some(fixture) = crate::remote::sftp_fixture() {
                    super::$case(&fixture);
                }
            })*
        }
        mod sshd {
            $(#[test] fn $case() {
                if let Some(server) = crate::sshd::Sshd::start() {
                    super::$case(&crate::remote::sshd_fixture(&server));
                }
            })*
        }
        mod over_ssh {
            $(#[test] fn $case() {
                if let Some(fixture) = crate::over_ssh::ssh_fixture() {
                    super::$case(&fixture);
                }
            })*
        }
        mod in_process {
            $(#[test] fn $case() {
                super::$case(&crate::in_process::in_process_fixture(&[]));
            })*
        }
        mod without_posix_rename {
            $(#[test] fn $case() {
                super::$case(&crate::in_process::in_process_fixture(&["posix-rename"]));
            })*
        }
        mod without_hardlink {
            $(#[test] fn $case() {
                super::$case(&crate::in_process::in_process_fixture(&["hardlink"]));
            })*
        }
        mod without_fsync {
            $(#[test] fn $case() {
                super::$case(&crate::in_process::in_process_fixture(&["fsync"]));
            })*
        }
        mod without_statvfs {
            $(#[test] fn $case() {
                super::$case(&crate::in_process::in_process_fixture(&["statvfs"]));
            })*
        }
        mod without_limits {
            $(#[test] fn $case() {
                super::$case(&crate::in_process::in_process_fixture(&["limits"]));
            })*
        }
        mod without_any {
            $(#[test] fn $case() {
                super::$case(&crate::in_process::in_process_fixture(&crate::in_process::ALL_EXTENSIONS));
            })*
        }
    };
}

mod askpass;
mod command_line;
#[path = "../suite/contract.rs"]
mod contract;
mod doctor;
mod drover;
#[path = "../support/drover_entries.rs"]
mod drover_entries;
#[path = "../support/edited_files.rs"]
mod edited_files;
#[path = "../support/fake_transport.rs"]
mod fake_transport;
mod file_edits;
#[path = "../support/full_harness.rs"]
mod full_harness;
mod hostile;
mod in_process;
mod interop;
mod layouts;
#[path = "../support/notes_layout.rs"]
mod notes_layout;
#[path = "../support/odd_entries.rs"]
mod odd_entries;
mod over_ssh;
mod remote;
mod remote_site;
mod round_trips;
mod servers;
mod session;
#[path = "../support/skip.rs"]
mod skip;
mod sshd;
#[path = "../support/temporary_root.rs"]
mod temporary_root;
#[path = "../support/terminal.rs"]
mod terminal;
#[path = "../support/tree_snapshot.rs"]
mod tree_snapshot;
mod watch;
#[path = "../suite/world.rs"]
mod world;
mod writers;

/// Returns a directory for a world of agents: in memory where possible. A disk under load may take
/// half a minute to sync, and a host that does not answer for 15 seconds counts as lost.
fn directory() -> tempfile::TempDir {
    let memory = tempfile::tempdir_in("/dev/shm");
    memory.or_else(|_| tempfile::tempdir()).unwrap()
}
