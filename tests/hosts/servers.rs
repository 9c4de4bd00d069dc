//! SFTP servers to be tried.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use memory_shepherd::clock::SystemClock;
use memory_shepherd::config::SshHost;
use memory_shepherd::transport::TransportError;
use memory_shepherd::transport::sftp::session::SessionPipes;
use memory_shepherd::transport::sftp::ssh::{Connector, SftpStream, SshChild};

/// How long a server may take for what it has got.
const ENDING: Duration = Duration::from_secs(120);

pub fn host(name: &str) -> SshHost {
    SshHost {
        name: name.to_string(),
        user: None,
        port: None,
        identity_file: None,
        // A slow machine is no dead host.
        timeout_seconds: 600,
    }
}

/// A program that speaks SFTP on its standard input and output.
#[derive(Clone)]
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

/// A program that never says a word and never ends.
pub fn mute() -> Program {
    Program {
        path: "sleep".into(),
        arguments: vec!["600"],
    }
}

/// What becomes of a request on its way.
pub enum Fate {
    Pass,
    /// It never arrives, and nothing does any more. What came before is answered.
    Cut,
    /// It arrives, and its answer does not, nor does anything else.
    CutBehind,
    /// It never arrives, and has no answer.
    Swallow,
    /// It never arrives; this is said in its place, as it is.
    Answer(Vec<u8>),
    /// It is late, with all that was sent together with it, and the connection is
    /// lost: see [`Late`].
    Late,
}

/// What becomes of an answer.
pub enum Said {
    Pass,
    /// It never comes.
    Drop,
    /// These bytes come instead.
    Bytes(Vec<u8>),
    /// It comes byte by byte.
    Drip,
}

/// A request of a client: its number, from 0 over all sessions, INIT among them,
/// and its frame without the length.
#[derive(Clone)]
pub struct Asked {
    pub number: usize,
    pub frame: Vec<u8>,
}

/// Decides over the requests to a server, of which this is the number, from 1, and
/// the frame without its length. It may change it.
pub type Judge = Arc<dyn Fn(usize, &mut Vec<u8>) -> Fate + Send + Sync>;

/// Decides over the answer to a request, which it may change; over VERSION, too.
pub type Ear = Arc<dyn Fn(&Asked, &mut Vec<u8>) -> Said + Send + Sync>;

/// A server with somebody in between, on one session after the other.
pub struct Between {
    server: Program,
    judge: Judge,
    ear: Ear,
    asked: Arc<AtomicUsize>,
    late: Late,
}

/// Requests that a host has got and not done yet, while whoever sent them is gone.
#[derive(Clone, Default)]
pub struct Late(Arc<Mutex<Vec<Kept>>>);

/// A server with what it does later, and what ends when it has ended.
struct Kept {
    to_server: File,
    frames: Vec<Vec<u8>>,
    ended: Receiver<()>,
}

impl Late {
    /// Has the hosts do it, and waits for that; how many requests there were.
    pub fn happens(&self) -> usize {
        let kept = std::mem::take(&mut *self.0.lock().unwrap());
        let mut count = 0;
        for Kept {
            mut to_server,
            frames,
            ended,
        } in kept
        {
            count += frames.len();
            for frame in frames {
                write_frame(&mut to_server, &frame);
            }
            drop(to_server);
            // Nothing is ever sent.
            let over = ended.recv_timeout(ENDING);
            assert_eq!(over, Err(RecvTimeoutError::Disconnected));
        }
        count
    }
}

/// The way to a server that leads through somebody in between.
pub struct Way {
    /// The client's.
    pub link: SessionPipes,
    /// The other end of that.
    pub client: UnixStream,
    pub to_server: File,
    pub from_server: File,
}

impl Way {
    /// Takes the place of a connection.
    pub fn cut(link: SessionPipes) -> Way {
        let (ours, client) = UnixStream::pair().unwrap();
        Way {
            to_server: File::from(link.input),
            from_server: File::from(link.output),
            link: SessionPipes {
                input: OwnedFd::from(ours.try_clone().unwrap()),
                output: OwnedFd::from(ours),
                stderr: link.stderr,
            },
            client,
        }
    }
}

/// What the two directions of one session share.
struct Wire {
    /// To the client; both directions answer.
    client: Mutex<UnixStream>,
    /// Requests that the server was given and has not answered.
    open: Mutex<HashMap<u32, Asked>>,
    answered: Condvar,
    /// Answers to this request and to all behind it do not come.
    deaf: AtomicUsize,
}

impl Wire {
    fn open(&self) -> MutexGuard<'_, HashMap<u32, Asked>> {
        self.open.lock().unwrap()
    }

    fn say(&self, bytes: &[u8]) {
        // It may be gone.
        let _ = self.client.lock().unwrap().write_all(bytes);
    }

    fn hang_up(&self) {
        let _ = self.client.lock().unwrap().shutdown(Shutdown::Both);
    }

    /// Waits until the server has answered whatever it was given.
    fn wait(&self) {
        let open = self.open();
        let some = |open: &mut HashMap<_, _>| !open.is_empty();
        drop(self.answered.wait_timeout_while(open, ENDING, some));
    }
}

impl Between {
    pub fn new(server: Program, judge: Judge) -> Between {
        Between {
            server,
            judge,
            ear: Arc::new(|_, _| Said::Pass),
            asked: Arc::default(),
            late: Late::default(),
        }
    }

    /// Somebody who decides over the answers.
    pub fn hearing(self, ear: Ear) -> Between {
        Between { ear, ..self }
    }

    /// What is done late.
    pub fn late(&self) -> Late {
        self.late.clone()
    }
}

impl Connector for Between {
    fn connect(&self, _: &SshHost) -> Result<SftpStream, TransportError> {
        let (child, link) = self.server.start();
        let child = Arc::new(Mutex::new(child));
        let Way {
            link,
            mut to_server,
            mut from_server,
            client: theirs,
        } = Way::cut(link);
        let (judge, ear) = (Arc::clone(&self.judge), Arc::clone(&self.ear));
        let (asked, late) = (Arc::clone(&self.asked), self.late.clone());
        let mut requests = theirs.try_clone().unwrap();
        let wire = Arc::new(Wire {
            client: Mutex::new(theirs),
            open: Mutex::default(),
            answered: Condvar::new(),
            deaf: AtomicUsize::new(usize::MAX),
        });
        let back = Arc::clone(&wire);
        let (ending, ended) = channel::<()>();
        let stuck = Arc::clone(&child);
        thread::spawn(move || {
            while let Some(mut frame) = read_frame(&mut requests) {
                let number = asked.fetch_add(1, Ordering::SeqCst);
                let sent = frame.clone();
                // The first frame begins the session.
                let fate = match number {
                    0 => Fate::Pass,
                    number => judge(number, &mut frame),
                };
                match fate {
                    Fate::Pass => {}
                    Fate::Swallow => continue,
                    Fate::Answer(bytes) => {
                        wire.say(&bytes);
                        continue;
                    }
                    Fate::CutBehind => wire.deaf.store(number, Ordering::SeqCst),
                    Fate::Cut => break,
                    Fate::Late => {
                        let mut frames = vec![frame];
                        frames.extend(read_rest(&mut requests));
                        wire.wait();
                        late.0.lock().unwrap().push(Kept {
                            to_server,
                            frames,
                            ended,
                        });
                        return wire.hang_up();
                    }
                }
                let id = id(&sent);
                wire.open().insert(
                    id,
                    Asked {
                        number,
                        frame: sent,
                    },
                );
                if write_frame(&mut to_server, &frame).is_none() || matches!(fate, Fate::CutBehind)
                {
                    break;
                }
            }
            // The server does what it has got, and ends; unless it cannot.
            drop(to_server);
            if ended.recv_timeout(ENDING) == Err(RecvTimeoutError::Timeout) {
                let _ = stuck.lock().unwrap().kill();
            }
        });
        thread::spawn(move || {
            while let Some(mut frame) = read_frame(&mut from_server) {
                let asked = back.open().get(&id(&frame)).cloned();
                let said = match &asked {
                    Some(asked) if asked.number >= back.deaf.load(Ordering::SeqCst) => Said::Drop,
                    Some(asked) => ear(asked, &mut frame),
                    None => Said::Pass,
                };
                match said {
                    Said::Pass => back.say(&packet(&frame)),
                    Said::Drop => {}
                    Said::Bytes(bytes) => back.say(&bytes),
                    Said::Drip => packet(&frame).chunks(1).for_each(|byte| back.say(byte)),
                }
                back.open().remove(&id(&frame));
                back.answered.notify_all();
            }
            let _ = child.lock().unwrap().wait();
            back.open().clear();
            back.answered.notify_all();
            back.hang_up();
            drop(ending);
        });
        Ok(SftpStream {
            pipes: link,
            child: None,
        })
    }
}

/// The id of a frame; INIT and VERSION have none, and count as 0.
fn id(frame: &[u8]) -> u32 {
    let id = frame.get(1..5).filter(|_| frame[0] > 2);
    id.map_or(0, |id| u32::from_be_bytes(id.try_into().unwrap()))
}

pub fn read_frame(from: &mut impl Read) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length).ok()?;
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    from.read_exact(&mut frame).ok()?;
    Some(frame)
}

/// What else has arrived.
fn read_rest(from: &mut UnixStream) -> Vec<Vec<u8>> {
    let mut bytes = Vec::new();
    // Fails where there is no more.
    from.set_nonblocking(true).unwrap();
    let _ = from.read_to_end(&mut bytes);
    let mut bytes = bytes.as_slice();
    std::iter::from_fn(|| read_frame(&mut bytes)).collect()
}

/// A frame with its length.
pub fn packet(frame: &[u8]) -> Vec<u8> {
    let length = (frame.len() as u32).to_be_bytes();
    [&length[..], frame].concat()
}

pub fn write_frame(to: &mut impl Write, frame: &[u8]) -> Option<()> {
    to.write_all(&packet(frame)).ok()
}

impl Program {
    pub fn start(&self) -> (Child, SessionPipes) {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let link = SessionPipes {
            input: OwnedFd::from(child.stdin.take().unwrap()),
            output: OwnedFd::from(child.stdout.take().unwrap()),
            stderr: Some(OwnedFd::from(child.stderr.take().unwrap())),
        };
        (child, link)
    }
}

/// A program that ends with the session.
pub fn carried(child: Child, link: SessionPipes) -> SftpStream {
    let child = Some(SshChild::new(child, Arc::new(SystemClock)));
    SftpStream { pipes: link, child }
}

impl Connector for Program {
    fn connect(&self, _: &SshHost) -> Result<SftpStream, TransportError> {
        let (child, link) = self.start();
        Ok(carried(child, link))
    }
}
