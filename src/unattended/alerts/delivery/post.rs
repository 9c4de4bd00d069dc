//! Posts an event to an address: HTTP or HTTPS, no redirects, no proxy, bounded in time and in what is
//! read of the answer.
//!
//! The limits of the HTTP client hold for each part of an exchange, so a server that keeps sending can
//! overrun them. The post has a thread of its own, which is given up at its deadline; after that, the
//! connection fails at its next use, which ends the thread.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, bounded};
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, NextTimeout, RustlsConnector, TcpConnector, Transport,
};

use super::{CANCELLED, POLL_INTERVAL};
use crate::base::clock::{Clock, SystemClock};
use crate::base::error::describe_io_error;
use crate::unattended::alerts::event::{quote_first_line, visible};

/// Maximum number of bytes of an answer that are read.
const MAX_ANSWER_BYTES: u64 = 1024;

/// Maximum size of the header of an answer, in bytes.
const MAX_HEADER_BYTES: usize = 16 * 1024;

/// Returns scheme and host of an address; the rest may be secret.
pub(super) fn origin(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    format!("{scheme}://{host}")
}

/// The addresses of posts whose threads have not ended.
static RUNNING_POSTS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// A post whose thread has not ended.
struct RunningPost {
    url: String,
}

impl RunningPost {
    /// Notes a post; none if an earlier one to the same address has not ended: threads that hang must
    /// not pile up in a process that sends for long.
    fn begin(url: &str) -> Option<RunningPost> {
        let mut running = RUNNING_POSTS.lock().unwrap_or_else(PoisonError::into_inner);
        let url = url.to_string();
        let is_new = running.insert(url.clone());
        is_new.then(|| RunningPost { url })
    }
}

impl Drop for RunningPost {
    fn drop(&mut self) {
        let mut running = RUNNING_POSTS.lock().unwrap_or_else(PoisonError::into_inner);
        running.remove(&self.url);
    }
}

/// A post of a JSON text.
#[derive(Clone)]
pub(super) struct Post {
    pub url: String,
    pub json: String,
    pub timeout: Duration,
    /// The file of certificate authorities; none for those of the machine.
    pub certificate_file: Option<PathBuf>,
}

impl Post {
    /// Posts the text. An answer of 2xx is a success.
    ///
    /// # Errors
    /// Why it failed, in a few words, without the path of the address.
    pub fn run(self, is_cancelled: &dyn Fn() -> bool) -> Result<(), String> {
        let Some(running) = RunningPost::begin(&self.url) else {
            return Err("an earlier post has not ended".to_string());
        };
        let deadline = SystemClock.instant() + self.timeout;
        let timeout_error = no_answer(self.timeout);
        let (result_sender, results) = bounded(1);
        let post = move || {
            let result = self.exchange(deadline);
            // The next post may begin as soon as this one has its result.
            drop(running);
            // A post that was given up has no receiver.
            let _ = result_sender.send(result);
        };
        thread::Builder::new()
            .spawn(post)
            .map_err(|error| format!("cannot start a thread: {}", describe_io_error(&error)))?;
        loop {
            let left = deadline.saturating_duration_since(SystemClock.instant());
            match results.recv_timeout(left.min(POLL_INTERVAL)) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err("the HTTP client ended without a result".to_string());
                }
                Err(RecvTimeoutError::Timeout) if left.is_zero() => return Err(timeout_error),
                Err(RecvTimeoutError::Timeout) if is_cancelled() => {
                    return Err(CANCELLED.to_string());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn exchange(&self, deadline: Instant) -> Result<(), String> {
        let mut builder = ureq::Agent::config_builder()
            .timeout_global(Some(self.timeout))
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .max_response_header_size(MAX_HEADER_BYTES)
            .proxy(None)
            .user_agent(concat!("memory-shepherd/", env!("CARGO_PKG_VERSION")));
        if self.url.starts_with("https:") {
            builder = builder.tls_config(tls_config(self.certificate_file.as_deref())?);
        }
        let connector =
            ().chain(TcpConnector::default())
                .chain(DeadlineConnector { deadline })
                .chain(RustlsConnector::default());
        let resolver = DefaultResolver::default();
        let agent = ureq::Agent::with_parts(builder.build(), connector, resolver);
        let request = agent.post(&self.url).content_type("application/json");
        let mut answer = request
            .send(&self.json)
            .map_err(|error| self.describe(&error))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        let body = answer.body_mut().with_config().limit(MAX_ANSWER_BYTES);
        // The status alone says what is needed if the answer cannot be read.
        let text = body.lossy_utf8(true).read_to_string().unwrap_or_default();
        Err(format!(
            "answer {}{}",
            status.as_u16(),
            quote_first_line(&text)
        ))
    }

    fn describe(&self, error: &ureq::Error) -> String {
        match error {
            ureq::Error::Timeout(_) => no_answer(self.timeout),
            error => visible(&error.to_string().replace(&self.url, &origin(&self.url))),
        }
    }
}

fn no_answer(timeout: Duration) -> String {
    format!("no answer within {} s", timeout.as_secs())
}

/// Makes connections fail from a deadline on.
#[derive(Debug)]
struct DeadlineConnector {
    deadline: Instant,
}

impl<In: Transport> Connector<In> for DeadlineConnector {
    type Out = DeadlineTransport<In>;

    fn connect(
        &self,
        _details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, ureq::Error> {
        let deadline = self.deadline;
        Ok(chained.map(|inner| DeadlineTransport { inner, deadline }))
    }
}

/// A connection that fails from a deadline on.
#[derive(Debug)]
struct DeadlineTransport<In> {
    inner: In,
    deadline: Instant,
}

impl<In> DeadlineTransport<In> {
    fn limit(&self, mut timeout: NextTimeout) -> Result<NextTimeout, ureq::Error> {
        let left = self
            .deadline
            .saturating_duration_since(SystemClock.instant());
        if left.is_zero() {
            return Err(ureq::Error::Timeout(ureq::Timeout::Global));
        }
        timeout.after = left.min(*timeout.after).into();
        Ok(timeout)
    }
}

impl<In: Transport> Transport for DeadlineTransport<In> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.inner.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        let timeout = self.limit(timeout)?;
        self.inner.transmit_output(amount, timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        let timeout = self.limit(timeout)?;
        self.inner.await_input(timeout)
    }

    fn is_open(&mut self) -> bool {
        self.inner.is_open()
    }

    fn is_tls(&self) -> bool {
        self.inner.is_tls()
    }
}

/// Trusts the certificate authorities of a file, or of this machine. `rustls_native_certs` finds the
/// file itself, in the same variable.
fn tls_config(certificate_file: Option<&Path>) -> Result<TlsConfig, String> {
    if let Some(path) = certificate_file {
        let shown = visible(&path.display().to_string());
        let meta = fs::metadata(path).map_err(|error| {
            let cause = describe_io_error(&error);
            format!("cannot read the certificates of SSL_CERT_FILE, {shown}: {cause}")
        })?;
        if !meta.is_file() {
            let fault = "it is not a regular file";
            return Err(format!(
                "cannot read the certificates of SSL_CERT_FILE, {shown}: {fault}"
            ));
        }
    }
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        return Err(
            "this machine has no certificate authorities; install the package ca-certificates"
                .to_string(),
        );
    }
    let roots: Vec<Certificate<'static>> = found
        .certs
        .iter()
        .map(|certificate| Certificate::from_der(certificate).to_owned())
        .collect();
    let provider = rustls::crypto::ring::default_provider();
    Ok(TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(RootCerts::Specific(Arc::new(roots)))
        .unversioned_rustls_crypto_provider(Arc::new(provider))
        .build())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpListener;
    use std::thread::{self, JoinHandle};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn post_json(url: &str, json: &str, timeout: Duration) -> Result<(), String> {
        let post = Post {
            url: url.to_string(),
            json: json.to_string(),
            timeout,
            certificate_file: None,
        };
        post.run(&|| false)
    }

    /// Serves one connection: sends an answer, and returns the request's head and body.
    fn serve_once(answer: &'static str) -> (String, JoinHandle<(String, String)>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/secret-token", listener.local_addr().unwrap());
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).unwrap() > 0 {}
            let length = head
                .lines()
                .filter_map(|line| line.split_once(": "))
                .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
                .map_or(0, |(_, value)| value.parse().unwrap());
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            // A client may have closed the connection.
            let _ = stream.write_all(answer.as_bytes());
            (head, String::from_utf8(body).unwrap())
        });
        (url, server)
    }

    #[test]
    fn event_is_posted_as_json() {
        let (url, server) = serve_once("HTTP/1.1 204 No Content\r\n\r\n");
        assert_eq!(post_json(&url, "{\"event\":\"disk\"}", LONG), Ok(()));
        let (head, body) = server.join().unwrap();
        assert!(
            head.starts_with("POST /secret-token HTTP/1.1\r\n"),
            "{head}"
        );
        assert!(
            head.to_lowercase()
                .contains("content-type: application/json")
        );
        assert_eq!(body, "{\"event\":\"disk\"}");
    }

    #[test]
    fn error_answer_is_quoted_without_the_path() {
        let (url, server) =
            serve_once("HTTP/1.1 403 No\r\nContent-Length: 12\r\n\r\nno\x1b[31m token");
        let error = post_json(&url, "{}", LONG).unwrap_err();
        server.join().unwrap();
        assert!(error.starts_with("answer 403: no"), "{error}");
        assert!(
            !error.contains('\x1b') && !error.contains("secret-token"),
            "{error}"
        );
    }

    #[test]
    fn redirect_is_not_followed() {
        let (url, server) = serve_once(
            "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
        );
        let error = post_json(&url, "{}", LONG).unwrap_err();
        server.join().unwrap();
        assert_eq!(error, "answer 302");
    }

    #[test]
    fn silent_server_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/secret-token", listener.local_addr().unwrap());
        let error = post_json(&url, "{}", Duration::from_millis(300)).unwrap_err();
        assert!(error.starts_with("no answer within"), "{error}");
    }

    /// The server sees the connection end, so the thread that was given up ends as well.
    #[test]
    fn endless_interim_answers_are_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // The client reads few of them at a time, or it would refuse their size.
            let pause = Duration::from_millis(1);
            stream.set_read_timeout(Some(pause)).unwrap();
            let mut request = [0; 4096];
            while stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").is_ok() {
                match stream.read(&mut request) {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    Err(_) => break,
                }
            }
        });
        let began = Instant::now();
        let error = post_json(&url, "{}", Duration::from_millis(300)).unwrap_err();
        assert!(error.starts_with("no answer within"), "{error}");
        assert!(began.elapsed() < LONG);
        server.join().unwrap();
    }

    #[test]
    fn cancelled_post_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let post = Post {
            url: format!("http://{}/", listener.local_addr().unwrap()),
            json: "{}".to_string(),
            timeout: LONG,
            certificate_file: None,
        };
        let began = Instant::now();
        assert_eq!(post.run(&|| true), Err(CANCELLED.to_string()));
        assert!(began.elapsed() < LONG);
    }

    #[test]
    fn post_waits_for_the_end_of_an_earlier_one() {
        let url = "http://127.0.0.1:9/earlier";
        let earlier = RunningPost::begin(url).unwrap();
        let error = post_json(url, "{}", LONG).unwrap_err();
        assert_eq!(error, "an earlier post has not ended");
        drop(earlier);
        let error = post_json(url, "{}", LONG).unwrap_err();
        assert_ne!(error, "an earlier post has not ended");
    }

    #[test]
    fn certificates_are_not_read_from_a_fifo() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, mode, 0).unwrap();
        let error = tls_config(Some(&fifo)).unwrap_err();
        assert!(error.ends_with("it is not a regular file"), "{error}");
        let error = tls_config(Some(&directory.path().join("none"))).unwrap_err();
        assert!(error.contains("SSL_CERT_FILE"), "{error}");
    }

    #[test]
    fn refused_connection_does_not_show_the_path() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/secret-token", listener.local_addr().unwrap());
        drop(listener);
        let error = post_json(&url, "{}", LONG).unwrap_err();
        assert!(!error.contains("secret-token"), "{error}");
    }

    #[test]
    fn origin_leaves_the_path_out() {
        assert_eq!(
            origin("https://a.example:8443/x?y#z"),
            "https://a.example:8443"
        );
    }
}
