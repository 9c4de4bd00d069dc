//! Agents on other hosts: the transport over SFTP, and the whole engine over it.
//!
//! A test binary of its own: it starts processes all the time, and what is just
//! being started has the files of other tests open, which counts as a writer.

#![allow(clippy::expect_used, clippy::print_stdout, clippy::unwrap_used)]
// What the other test binary needs, too.
#![allow(dead_code)]

/// The transports to other hosts.
macro_rules! on_every_ground {
    (everywhere { $($case:ident)* } here { $($here:ident)* }) => {
        mod sftp_server {
            $(#[test] fn $case() {
                if let Some(ground) = crate::remote::ground() {
                    super::$case(&ground);
                }
            })*
        }
    };
}

mod askpass;
#[path = "../suite/contract.rs"]
mod contract;
mod remote;
mod servers;
mod session;
mod sshd;
#[path = "../suite/terminal.rs"]
mod terminal;
#[path = "../suite/world.rs"]
mod world;
