//! SFTP servers to be tried.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use memory_shepherd::clock::System;
use memory_shepherd::config::Host;
use memory_shepherd::transport::TransportError;
use memory_shepherd::transport::sftp::session::Link;
use memory_shepherd::transport::sftp::ssh::{Carrier, Dial, Dialed};

pub fn host(name: &str) -> Host {
    Host {
        name: name.to_string(),
        user: None,
        port: None,
        identity_file: None,
        timeout: 15,
    }
}

/// A program that speaks SFTP on its standard input and output.
pub struct Program {
    path: PathBuf,
    arguments: Vec<&'static str>,
}

/// OpenSSH's server; none where it is not installed.
pub fn sftp_server() -> Option<Program> {
    let places = ["/usr/lib/openssh/sftp-server", "/usr/libexec/sftp-server"];
    let path = places.iter().map(PathBuf::from).find(|path| path.exists());
    if path.is_none() {
        println!("skipped: OpenSSH's sftp-server is not installed");
    }
    Some(Program {
        path: path?,
        arguments: vec!["-e"],
    })
}

impl Dial for Program {
    fn dial(&self, _: &Host) -> Result<Dialed, TransportError> {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let link = Link {
            input: OwnedFd::from(child.stdin.take().unwrap()),
            output: OwnedFd::from(child.stdout.take().unwrap()),
            errors: Some(OwnedFd::from(child.stderr.take().unwrap())),
        };
        Ok(Dialed {
            link,
            child: Some(Carrier::new(child, Arc::new(System))),
        })
    }
}
