//! SFTP servers to be tried.

use std::fs::File;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

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
        // A slow machine is no dead host.
        timeout: 600,
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

/// What becomes of a request on its way.
pub enum Fate {
    Pass,
    /// It never arrives, and nothing does any more.
    Cut,
    /// It arrives, and its answer does not, nor anything else.
    CutBehind,
}

/// Decides over the requests to a server, of which this is the number, from 1, and
/// the frame without its length. It may change it.
pub type Judge = Arc<dyn Fn(usize, &mut Vec<u8>) -> Fate + Send + Sync>;

/// A server with somebody in between, on one session after the other.
pub struct Between {
    server: Program,
    judge: Judge,
    asked: Arc<AtomicUsize>,
}

impl Between {
    pub fn new(server: Program, judge: Judge) -> Between {
        Between {
            server,
            judge,
            asked: Arc::default(),
        }
    }
}

impl Dial for Between {
    fn dial(&self, host: &Host) -> Result<Dialed, TransportError> {
        let Dialed { link, child } = self.server.dial(host)?;
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut to_server = File::from(link.input);
        let mut from_server = File::from(link.output);
        let (judge, asked) = (Arc::clone(&self.judge), Arc::clone(&self.asked));
        let mut requests = theirs.try_clone().unwrap();
        let mut replies = theirs;
        let answers = Arc::new(AtomicBool::new(true));
        let still = Arc::clone(&answers);
        thread::spawn(move || {
            while let Some(mut frame) = read_frame(&mut requests) {
                // The first frame begins the session.
                let number = asked.fetch_add(1, Ordering::SeqCst);
                let fate = match number {
                    0 => Fate::Pass,
                    number => judge(number, &mut frame),
                };
                still.fetch_and(!matches!(fate, Fate::CutBehind), Ordering::SeqCst);
                if matches!(fate, Fate::Cut) || write_frame(&mut to_server, &frame).is_none() {
                    break;
                }
                if matches!(fate, Fate::CutBehind) {
                    break;
                }
            }
            // The server does what it has got, and ends.
            drop(to_server);
            let _ = requests.shutdown(Shutdown::Read);
        });
        thread::spawn(move || {
            while let Some(frame) = read_frame(&mut from_server) {
                let passes = answers.load(Ordering::SeqCst);
                if passes && write_frame(&mut replies, &frame).is_none() {
                    break;
                }
            }
            let _ = replies.shutdown(Shutdown::Both);
        });
        let link = Link {
            input: OwnedFd::from(ours.try_clone().unwrap()),
            output: OwnedFd::from(ours),
            errors: link.errors,
        };
        Ok(Dialed { link, child })
    }
}

pub fn read_frame(from: &mut impl Read) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length).ok()?;
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    from.read_exact(&mut frame).ok()?;
    Some(frame)
}

pub fn write_frame(to: &mut impl Write, frame: &[u8]) -> Option<()> {
    let length = (frame.len() as u32).to_be_bytes();
    to.write_all(&[&length[..], frame].concat()).ok()
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
