//! SFTP servers for the tests: real ones, silent ones, and ones with a filter in between.

use crate::skip::skip_missing_tool;
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

use memory_shepherd::base::clock::SystemClock;
use memory_shepherd::config::SshHost;
use memory_shepherd::transport::TransportError;
use memory_shepherd::transport::sftp::session::SessionPipes;
use memory_shepherd::transport::sftp::ssh::{Connector, SftpStream, SshChild};

/// Upper bound for a server to finish the requests that it has received.
const EXIT_TIMEOUT: Duration = Duration::from_secs(120);

pub fn host_named(name: &str) -> SshHost {
    SshHost {
        name: name.to_string(),
        user: None,
        port: None,
        identity_file: None,
        // A slow machine must not count as a dead host.
        timeout_seconds: 600,
    }
}

/// A program that speaks SFTP on its standard input and output.
#[derive(Clone)]
pub struct ServerProgram {
    path: PathBuf,
    arguments: Vec<String>,
}

/// Returns OpenSSH's server, or None where it is not installed.
pub fn sftp_server() -> Option<ServerProgram> {
    let places = ["/usr/lib/openssh/sftp-server", "/usr/libexec/sftp-server"];
    let path = places.iter().map(PathBuf::from).find(|path| path.exists());
    if path.is_none() {
        skip_missing_tool("sftp-server");
    }
    Some(ServerProgram {
        path: path?,
        arguments: vec!["-e".to_string()],
    })
}

/// Returns OpenSSH's server with a limit of open files.
pub fn sftp_server_with_open_files(limit: usize) -> ServerProgram {
    let script = format!(
        "ulimit -n {limit}; for server in /usr/lib/openssh/sftp-server /usr/libexec/sftp-server; do \
         [ -x $server ] && exec $server -e; done"
    );
    ServerProgram {
        path: "/bin/sh".into(),
        arguments: vec!["-c".to_string(), script],
    }
}

/// Returns a program that never sends a byte and never ends.
pub fn silent_program() -> ServerProgram {
    ServerProgram {
        path: "sleep".into(),
        arguments: vec!["600".to_string()],
    }
}

/// Returns a program that also ignores requests to exit.
pub fn stubborn_program() -> ServerProgram {
    let script = "trap '' TERM; exec sleep 600";
    ServerProgram {
        path: "sh".into(),
        arguments: vec!["-c".to_string(), script.to_string()],
    }
}

/// Outcome of a request on its way to the server.
pub enum RequestFate {
    Pass,
    /// Drops it and everything after it. Earlier requests are answered.
    Disconnect,
    /// Delivers it, and drops its answer and everything after it.
    DisconnectAfter,
    /// Drops it without an answer.
    Discard,
    /// Drops it and sends this frame, unchanged, as the answer.
    Reply(Vec<u8>),
    /// Delays it with all that was sent together with it, and loses the connection: see
    /// [`DelayedRequests`].
    Delay,
}

/// Outcome of a reply on its way to the client.
pub enum ReplyFate {
    Pass,
    /// Drops it.
    Drop,
    /// Sends these bytes instead.
    Replace(Vec<u8>),
    /// Sends it byte by byte.
    SendByteByByte,
}

/// A request of a client: its number, from 0 over all sessions and INIT included, and its frame
/// without the length.
#[derive(Clone)]
pub struct SentRequest {
    pub number: usize,
    pub frame: Vec<u8>,
}

/// Decides on a request to a server and may change it. Arguments: its number, from 1, and its frame
/// without the length.
pub type RequestFilter = Arc<dyn Fn(usize, &mut Vec<u8>) -> RequestFate + Send + Sync>;

/// Decides on the reply to a request, VERSION included, and may change it.
pub type ReplyFilter = Arc<dyn Fn(&SentRequest, &mut Vec<u8>) -> ReplyFate + Send + Sync>;

/// A server behind a filter, for one session after the other.
pub struct FilteredServer {
    server: ServerProgram,
    request_filter: RequestFilter,
    reply_filter: ReplyFilter,
    request_count: Arc<AtomicUsize>,
    delayed: DelayedRequests,
}

/// Requests that a host has received and not yet executed, after their client has disconnected.
#[derive(Clone, Default)]
pub struct DelayedRequests(Arc<Mutex<Vec<DelayedServer>>>);

/// A server with its delayed requests, and the channel that closes when it has ended.
struct DelayedServer {
    to_server: File,
    frames: Vec<Vec<u8>>,
    ended: Receiver<()>,
}

impl DelayedRequests {
    /// Lets the hosts execute their requests, waits for that, and returns the number of requests.
    pub fn deliver(&self) -> usize {
        let kept = std::mem::take(&mut *self.0.lock().unwrap());
        let mut count = 0;
        for DelayedServer {
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
            // The channel carries no values: only its end matters.
            let over = ended.recv_timeout(EXIT_TIMEOUT);
            assert_eq!(over, Err(RecvTimeoutError::Disconnected));
        }
        count
    }
}

/// A link to a server that passes through a filter.
pub struct InterceptedLink {
    /// The client's end.
    pub link: SessionPipes,
    /// The filter's end of the client's link.
    pub client: UnixStream,
    pub to_server: File,
    pub from_server: File,
}

impl InterceptedLink {
    /// Takes the place of a connection.
    pub fn intercept(link: SessionPipes) -> InterceptedLink {
        let (ours, client) = UnixStream::pair().unwrap();
        InterceptedLink {
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

/// State shared by the two directions of one session.
struct SessionRelay {
    /// Stream to the client; both directions send replies.
    client: Mutex<UnixStream>,
    /// Requests that the server has received and not answered.
    unanswered: Mutex<HashMap<u32, SentRequest>>,
    answered: Condvar,
    /// Number of the request from which on replies are dropped.
    silenced: AtomicUsize,
}

impl SessionRelay {
    fn lock_unanswered(&self) -> MutexGuard<'_, HashMap<u32, SentRequest>> {
        self.unanswered.lock().unwrap()
    }

    fn send_reply(&self, bytes: &[u8]) {
        // The client may have disconnected.
        let _ = self.client.lock().unwrap().write_all(bytes);
    }

    fn hang_up(&self) {
        let _ = self.client.lock().unwrap().shutdown(Shutdown::Both);
    }

    /// Forwards replies until the server closes its end.
    fn forward_replies(&self, mut from_server: File, filter: &ReplyFilter) {
        while let Some(mut frame) = read_frame(&mut from_server) {
            let request = self.lock_unanswered().get(&frame_id(&frame)).cloned();
            let fate = match &request {
                Some(request) if request.number >= self.silenced.load(Ordering::SeqCst) => {
                    ReplyFate::Drop
                }
                Some(request) => filter(request, &mut frame),
                None => ReplyFate::Pass,
            };
            match fate {
                ReplyFate::Pass => self.send_reply(&with_length(&frame)),
                ReplyFate::Drop => {}
                ReplyFate::Replace(bytes) => self.send_reply(&bytes),
                ReplyFate::SendByteByByte => with_length(&frame)
                    .chunks(1)
                    .for_each(|byte| self.send_reply(byte)),
            }
            self.lock_unanswered().remove(&frame_id(&frame));
            self.answered.notify_all();
        }
    }

    /// Waits until the server has answered every request that it received.
    fn wait_for_replies(&self) {
        let open = self.lock_unanswered();
        let some = |open: &mut HashMap<_, _>| !open.is_empty();
        drop(self.answered.wait_timeout_while(open, EXIT_TIMEOUT, some));
    }
}

impl FilteredServer {
    pub fn new(server: ServerProgram, request_filter: RequestFilter) -> FilteredServer {
        FilteredServer {
            server,
            request_filter,
            reply_filter: Arc::new(|_, _| ReplyFate::Pass),
            request_count: Arc::default(),
            delayed: DelayedRequests::default(),
        }
    }

    /// Adds a filter of the replies.
    pub fn with_reply_filter(self, reply_filter: ReplyFilter) -> FilteredServer {
        FilteredServer {
            reply_filter,
            ..self
        }
    }

    /// Returns the delayed requests.
    pub fn delayed_requests(&self) -> DelayedRequests {
        self.delayed.clone()
    }
}

impl Connector for FilteredServer {
    fn connect(&self, _: &SshHost) -> Result<SftpStream, TransportError> {
        let (child, link) = self.server.start();
        let child = Arc::new(Mutex::new(child));
        let InterceptedLink {
            link,
            to_server,
            from_server,
            client,
        } = InterceptedLink::intercept(link);
        let requests = client.try_clone().unwrap();
        let relay = Arc::new(SessionRelay {
            client: Mutex::new(client),
            unanswered: Mutex::default(),
            answered: Condvar::new(),
            silenced: AtomicUsize::new(usize::MAX),
        });
        let (ending, ended) = channel::<()>();
        let request_relay = RequestRelay {
            relay: Arc::clone(&relay),
            requests,
            to_server,
            filter: Arc::clone(&self.request_filter),
            count: Arc::clone(&self.request_count),
            delayed: self.delayed.clone(),
            child: Arc::clone(&child),
            ended,
        };
        let filter = Arc::clone(&self.reply_filter);
        thread::spawn(move || request_relay.run());
        thread::spawn(move || {
            relay.forward_replies(from_server, &filter);
            let _ = child.lock().unwrap().wait();
            relay.lock_unanswered().clear();
            relay.answered.notify_all();
            relay.hang_up();
            drop(ending);
        });
        Ok(SftpStream {
            pipes: link,
            child: None,
        })
    }
}

/// The direction of one session from the client to the server.
struct RequestRelay {
    relay: Arc<SessionRelay>,
    requests: UnixStream,
    to_server: File,
    filter: RequestFilter,
    count: Arc<AtomicUsize>,
    delayed: DelayedRequests,
    child: Arc<Mutex<Child>>,
    /// Closes when the server has ended.
    ended: Receiver<()>,
}

impl RequestRelay {
    /// Forwards requests until a filter or an end of the line ends the session.
    fn run(mut self) {
        while let Some(mut frame) = read_frame(&mut self.requests) {
            let number = self.count.fetch_add(1, Ordering::SeqCst);
            let sent = SentRequest {
                number,
                frame: frame.clone(),
            };
            // The first frame begins the session.
            let fate = match number {
                0 => RequestFate::Pass,
                number => (self.filter)(number, &mut frame),
            };
            match fate {
                RequestFate::Pass => {}
                RequestFate::Discard => continue,
                RequestFate::Reply(bytes) => {
                    self.relay.send_reply(&bytes);
                    continue;
                }
                RequestFate::DisconnectAfter => {
                    self.relay.silenced.store(number, Ordering::SeqCst);
                }
                RequestFate::Disconnect => break,
                RequestFate::Delay => return self.delay(frame),
            }
            let id = frame_id(&sent.frame);
            self.relay.lock_unanswered().insert(id, sent);
            if write_frame(&mut self.to_server, &frame).is_none()
                || matches!(fate, RequestFate::DisconnectAfter)
            {
                break;
            }
        }
        // The server executes the requests that it has received and ends, unless it cannot.
        drop(self.to_server);
        if self.ended.recv_timeout(EXIT_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            let _ = self.child.lock().unwrap().kill();
        }
    }

    /// Keeps a request and all that was sent together with it, and ends the session.
    fn delay(mut self, frame: Vec<u8>) {
        let mut frames = vec![frame];
        frames.extend(read_available_frames(&mut self.requests));
        self.relay.wait_for_replies();
        self.delayed.0.lock().unwrap().push(DelayedServer {
            to_server: self.to_server,
            frames,
            ended: self.ended,
        });
        self.relay.hang_up();
    }
}

/// Returns the id of a frame; INIT and VERSION have none and count as 0.
fn frame_id(frame: &[u8]) -> u32 {
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

/// Returns the further frames that have arrived.
fn read_available_frames(from: &mut UnixStream) -> Vec<Vec<u8>> {
    let mut bytes = Vec::new();
    // Reading fails where no more bytes are available.
    from.set_nonblocking(true).unwrap();
    let _ = from.read_to_end(&mut bytes);
    let mut unread = bytes.as_slice();
    std::iter::from_fn(|| read_frame(&mut unread)).collect()
}

/// Returns a frame with its length in front.
pub fn with_length(frame: &[u8]) -> Vec<u8> {
    let length = (frame.len() as u32).to_be_bytes();
    [&length[..], frame].concat()
}

pub fn write_frame(to: &mut impl Write, frame: &[u8]) -> Option<()> {
    to.write_all(&with_length(frame)).ok()
}

impl ServerProgram {
    /// Returns a script that stands for an ssh whose host has this server.
    pub fn ssh_script(&self) -> String {
        let (path, arguments) = (self.path.display(), self.arguments.join(" "));
        format!("#!/bin/sh\nexec {path} {arguments}\n")
    }

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

/// Wraps a program that ends with the session.
pub fn stream_of_child(child: Child, link: SessionPipes) -> SftpStream {
    let child = Some(SshChild::new(child, Arc::new(SystemClock)));
    SftpStream { pipes: link, child }
}

impl Connector for ServerProgram {
    fn connect(&self, _: &SshHost) -> Result<SftpStream, TransportError> {
        let (child, link) = self.start();
        Ok(stream_of_child(child, link))
    }
}
