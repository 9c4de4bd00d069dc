//! Posts an event to an address: HTTP or HTTPS, no redirects, no proxy, bounded in time and in what is
//! read of the answer.

use std::sync::Arc;
use std::time::Duration;

use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};

use crate::alerts::event::{quote_first_line, visible};

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

/// Posts a JSON text. An answer of 2xx is a success.
///
/// # Errors
/// Why it failed, in a few words, without the path of the address.
pub(super) fn post_json(url: &str, json: &str, timeout: Duration) -> Result<(), String> {
    let mut builder = ureq::Agent::config_builder()
        .timeout_global(Some(timeout))
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .max_response_header_size(MAX_HEADER_BYTES)
        .proxy(None)
        .user_agent(concat!("memory-shepherd/", env!("CARGO_PKG_VERSION")));
    if url.starts_with("https:") {
        builder = builder.tls_config(tls_config()?);
    }
    let agent = ureq::Agent::new_with_config(builder.build());
    let request = agent.post(url).content_type("application/json");
    let mut answer = request
        .send(json)
        .map_err(|error| describe(&error, url, timeout))?;
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

/// Trusts the certificate authorities of this machine.
fn tls_config() -> Result<TlsConfig, String> {
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

fn describe(error: &ureq::Error, url: &str, timeout: Duration) -> String {
    match error {
        ureq::Error::Timeout(_) => format!("no answer within {} s", timeout.as_secs()),
        error => visible(&error.to_string().replace(url, &origin(url))),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpListener;
    use std::thread::{self, JoinHandle};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

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
