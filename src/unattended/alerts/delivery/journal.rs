//! Writes an event to the journal by its native protocol, with a field for each part; or to syslog, as
//! one line.
//!
//! The protocol is a stable interface of systemd (<https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>): a
//! datagram of `FIELD=value` lines. The crates that write it fix the path of the socket.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use crate::base::error::describe_io_error;
use crate::config::AlertKind;
use crate::unattended::alerts::event::{AlertEvent, Severity};

/// The socket of the journal.
pub(super) const JOURNAL_SOCKET: &str = "/run/systemd/journal/socket";

/// The socket of syslog.
pub(super) const SYSLOG_SOCKET: &str = "/dev/log";

/// How long a full socket is waited for.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// The facility `daemon` of syslog.
const FACILITY: u8 = 3;

/// Returns the id of the journal's messages of a kind, for `journalctl MESSAGE_ID=…`.
fn message_id(kind: AlertKind) -> &'static str {
    match kind {
        AlertKind::Tampered => "5b0f1a7c6d2e4f0b9a3c8e714d6f2a01",
        AlertKind::Hostkey => "5b0f1a7c6d2e4f0b9a3c8e714d6f2a02",
        AlertKind::FailedReset => "5b0f1a7c6d2e4f0b9a3c8e714d6f2a03",
        AlertKind::Disk => "5b0f1a7c6d2e4f0b9a3c8e714d6f2a04",
        AlertKind::MissedSchedule => "5b0f1a7c6d2e4f0b9a3c8e714d6f2a05",
        AlertKind::Unreachable => "5b0f1a7c6d2e4f0b9a3c8e714d6f2a06",
        AlertKind::Drifted => "5b0f1a7c6d2e4f0b9a3c8e714d6f2a07",
        AlertKind::Oversize => "5b0f1a7c6d2e4f0b9a3c8e714d6f2a08",
        AlertKind::HealthWorse => "5b0f1a7c6d2e4f0b9a3c8e714d6f2a09",
    }
}

/// Returns the priority of syslog: critical or warning; a test is a notice.
fn priority(event: &AlertEvent) -> u8 {
    match event.severity {
        _ if event.is_test => 5,
        Severity::Critical => 2,
        Severity::Warning => 4,
    }
}

/// Returns the parts of an event as fields of this program, without those that it lacks.
fn own_fields(event: &AlertEvent) -> Vec<(&'static str, String)> {
    let agents = event.agents.join(" ");
    let fields = [
        ("EVENT", Some(event.kind.as_str().to_string())),
        ("ID", Some(event.id.clone())),
        ("SEVERITY", Some(event.severity.as_str().to_string())),
        ("TEST", event.is_test.then(|| "yes".to_string())),
        ("FLEET", Some(event.fleet.clone())),
        ("CONFIG", Some(event.config.clone())),
        ("AGENT", event.agent.clone()),
        ("AGENTS", Some(agents).filter(|it| !it.is_empty())),
        ("HOST", event.host.clone()),
        ("STATE", event.state.map(|state| state.as_str().to_string())),
        ("SINCE", Some(event.since.to_rfc3339())),
        ("RUN", event.run.clone()),
    ];
    let named = fields.into_iter();
    named
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
}

/// Returns the datagram of an event. Each value is one line: it was made visible.
fn journal_datagram(event: &AlertEvent) -> String {
    let mut text = format!(
        "MESSAGE={}\nPRIORITY={}\nSYSLOG_FACILITY={FACILITY}\n\
         SYSLOG_IDENTIFIER=memory-shepherd\nMESSAGE_ID={}\n",
        one_line(&event.message),
        priority(event),
        message_id(event.kind)
    );
    for (name, value) in own_fields(event) {
        text.push_str(&format!("MEMORY_SHEPHERD_{name}={}\n", one_line(&value)));
    }
    text
}

/// Returns the line of an event, in the form that programs write to the socket of syslog.
fn syslog_line(event: &AlertEvent, process_id: u32) -> String {
    let code = FACILITY * 8 + priority(event);
    let time = event.time.format("%b %e %H:%M:%S");
    let fields = own_fields(event).into_iter().map(|(name, value)| {
        let value = one_line(&value).replace('\\', "\\\\").replace('"', "\\\"");
        format!(" {}=\"{value}\"", name.to_lowercase())
    });
    let fields: String = fields.collect();
    let message = one_line(&event.message);
    format!("<{code}>{time} memory-shepherd[{process_id}]: {message}{fields}")
}

/// Returns a value without line feeds, which would begin another field.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r', '\0'], " ")
}

/// Writes an event to the journal's socket.
///
/// # Errors
/// Why it failed, in a few words.
pub(super) fn write_to_journal(socket: &Path, event: &AlertEvent) -> Result<(), String> {
    send(socket, journal_datagram(event).as_bytes())
}

/// Writes an event to the socket of syslog.
///
/// # Errors
/// Why it failed, in a few words.
pub(super) fn write_to_syslog(
    socket: &Path,
    event: &AlertEvent,
    process_id: u32,
) -> Result<(), String> {
    send(socket, syslog_line(event, process_id).as_bytes())
}

fn send(socket: &Path, datagram: &[u8]) -> Result<(), String> {
    let write = || -> io::Result<()> {
        let from = UnixDatagram::unbound()?;
        // The socket of a reader that hangs is full at some time.
        from.set_write_timeout(Some(WRITE_TIMEOUT))?;
        from.send_to(datagram, socket)?;
        Ok(())
    };
    write().map_err(|error| {
        let cause = match error.kind() {
            io::ErrorKind::WouldBlock => "its reader does not read".to_string(),
            _ => describe_io_error(&error),
        };
        format!("cannot write to {}: {cause}", socket.display())
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use chrono::DateTime;

    use super::*;
    use crate::unattended::alerts::test_config::parse_config;

    fn test_event() -> AlertEvent {
        let now = DateTime::parse_from_rfc3339("2026-03-14T09:00:00+01:00").unwrap();
        let config = parse_config("[scout]\nmemory_file=/scout.md\nbaseline=scout.md\n");
        AlertEvent::for_test(AlertKind::Tampered, &config, now)
    }

    #[test]
    fn journal_gets_one_datagram_with_fields() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let socket = UnixDatagram::bind(&path).unwrap();
        let event = AlertEvent {
            is_test: false,
            message: "two\nlines".to_string(),
            ..test_event()
        };
        write_to_journal(&path, &event).unwrap();
        let mut buffer = [0; 8192];
        let length = socket.recv(&mut buffer).unwrap();
        let text = std::str::from_utf8(&buffer[..length]).unwrap();
        assert!(text.ends_with('\n'));
        let fields: Vec<(&str, &str)> = text
            .lines()
            .map(|line| line.split_once('=').unwrap())
            .collect();
        for expected in [
            ("MESSAGE", "two lines"),
            ("PRIORITY", "2"),
            ("SYSLOG_IDENTIFIER", "memory-shepherd"),
            ("MESSAGE_ID", message_id(AlertKind::Tampered)),
            ("MEMORY_SHEPHERD_EVENT", "tampered"),
            ("MEMORY_SHEPHERD_AGENT", "scout"),
            ("MEMORY_SHEPHERD_STATE", "TAMPERED"),
            ("MEMORY_SHEPHERD_FLEET", "night"),
            ("MEMORY_SHEPHERD_SINCE", "2026-03-14T09:00:00+01:00"),
        ] {
            assert!(fields.contains(&expected), "{expected:?} {fields:?}");
        }
    }

    #[test]
    fn unread_journal_times_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let _socket = UnixDatagram::bind(&path).unwrap();
        let event = test_event();
        let failed = (0..100_000).find_map(|_| write_to_journal(&path, &event).err());
        assert!(failed.unwrap().contains("its reader does not read"));
    }

    #[test]
    fn missing_journal_is_an_error() {
        let error = write_to_journal(Path::new("/nonexistent/socket"), &test_event());
        assert!(error.unwrap_err().contains("/nonexistent/socket"));
    }

    #[test]
    fn syslog_line_has_priority_and_fields() {
        let line = syslog_line(&test_event(), 42);
        let begin = "<29>Mar 14 09:00:00 memory-shepherd[42]: test of the alert tampered";
        assert!(line.starts_with(begin), "{line}");
        assert!(line.contains(" event=\"tampered\" ") && line.contains(" agent=\"scout\""));
        assert!(!line.contains('\n'));
    }

    #[test]
    fn message_ids_are_distinct_128_bit_numbers() {
        let ids: BTreeSet<&str> = AlertKind::ALL.into_iter().map(message_id).collect();
        assert_eq!(ids.len(), AlertKind::ALL.len());
        for id in ids {
            assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()));
        }
    }
}
