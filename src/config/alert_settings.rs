//! The settings of `[alerts]`: which events raise an alert, and the channels on which it goes out.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The kind of an event that raises an alert; the variants are ordered most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AlertKind {
    /// A baseline does not match its seal.
    Tampered,
    /// The key of a host differs from the known one.
    Hostkey,
    /// The last reset of an agent failed or was refused.
    FailedReset,
    /// The archive's file system is nearly full.
    Disk,
    /// The last successful reset of an agent is older than its schedule allows.
    MissedSchedule,
    /// A host has not been reachable for some time.
    Unreachable,
    /// An agent changed its rules, or has no separator any more.
    Drifted,
    /// A memory is larger than its limit.
    Oversize,
    /// The checks of a memory of several files found an error.
    HealthWorse,
}

impl AlertKind {
    /// All kinds, most urgent first.
    pub const ALL: [AlertKind; 9] = [
        AlertKind::Tampered,
        AlertKind::Hostkey,
        AlertKind::FailedReset,
        AlertKind::Disk,
        AlertKind::MissedSchedule,
        AlertKind::Unreachable,
        AlertKind::Drifted,
        AlertKind::Oversize,
        AlertKind::HealthWorse,
    ];

    /// The names of all kinds, in the same order.
    pub(super) const NAMES: [&'static str; 9] = [
        "tampered",
        "hostkey",
        "failed-reset",
        "disk",
        "missed-schedule",
        "unreachable",
        "drifted",
        "oversize",
        "health-worse",
    ];

    /// The names of all kinds as one value of the config.
    pub(super) const ALL_NAMES: &'static str = "tampered, hostkey, failed-reset, disk, \
                                                missed-schedule, unreachable, drifted, oversize, \
                                                health-worse";

    /// Returns the name in the config and in events.
    pub const fn as_str(self) -> &'static str {
        AlertKind::NAMES[self as usize]
    }

    /// Returns the kind of a name.
    pub fn parse(name: &str) -> Option<AlertKind> {
        AlertKind::ALL
            .into_iter()
            .find(|kind| kind.as_str() == name)
    }
}

/// Where events go as entries of the system's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum JournalTarget {
    /// Nowhere.
    #[default]
    None,
    /// To the journal of this machine, or to its syslog without one.
    System,
    /// To the journal's socket at this path.
    Socket(PathBuf),
}

/// The `[alerts]` section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlertSettings {
    /// The events that raise an alert.
    pub kinds: BTreeSet<AlertKind>,
    /// A program with its arguments.
    pub command: Option<Vec<String>>,
    /// The directory in which the program runs: that of the config.
    pub directory: PathBuf,
    /// An address that events are posted to.
    pub url: Option<String>,
    /// Where events go as entries of the system's log.
    pub journal: JournalTarget,
    /// How long a host is unreachable before that is an event.
    pub unreachable_after: Duration,
    /// Percentage of free space below which that is an event.
    pub disk_below_percent: u8,
    /// Time after which an event that still holds is alerted again; none for never.
    pub repeat_after: Option<Duration>,
    /// Maximum number of alerts an hour.
    pub max_per_hour: usize,
}

/// Shape of a value of `[alerts]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AlertShape {
    /// A program with its arguments.
    Command,
    /// An address of HTTP or HTTPS.
    Url,
    /// `yes`, `no`, or the path of a socket.
    Journal,
    /// A number with a unit, such as `24h`.
    TimeSpan,
    /// A whole number of percent.
    Percent,
}

impl AlertShape {
    /// Checks the text of a value.
    ///
    /// # Errors
    /// The fault, to be read after the name of the key, and a hint.
    pub(super) fn check(self, text: &str) -> Result<(), (String, String)> {
        let (is_valid, wanted, hint) = match self {
            AlertShape::Command => return check_command(text),
            AlertShape::Url => return check_url(text),
            AlertShape::Journal => (
                matches!(text, "yes" | "no"),
                "yes, no or the path of a socket",
                "write yes for the journal of this machine",
            ),
            AlertShape::TimeSpan => (
                parse_time_span(text).is_some(),
                "a number with s, m, h or d, at most 365d",
                "write a time such as 90m or 24h",
            ),
            AlertShape::Percent => (
                parse_percent(text).is_some(),
                "a whole number of percent from 1 to 99",
                "write a percentage such as 10%",
            ),
        };
        if is_valid {
            return Ok(());
        }
        Err((format!("must be {wanted}, not `{text}`"), hint.to_string()))
    }
}

/// The longest time span, in seconds.
const MAX_TIME_SPAN_SECONDS: u64 = 365 * 86_400;

/// Parses `90m`, `24h`, `7d` or `3600s` as seconds; without a unit only `0`.
pub(super) fn parse_time_span(text: &str) -> Option<u64> {
    if text == "0" {
        return Some(0);
    }
    let unit = text.chars().next_back()?;
    let factor = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return None,
    };
    let digits = text.strip_suffix(unit)?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let seconds = digits.parse::<u64>().ok()?.checked_mul(factor)?;
    (seconds <= MAX_TIME_SPAN_SECONDS).then_some(seconds)
}

/// Parses `10%` or `10`.
pub(super) fn parse_percent(text: &str) -> Option<u8> {
    let digits = text.strip_suffix('%').unwrap_or(text).trim_end();
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let percent = digits.parse().ok()?;
    (1..=99).contains(&percent).then_some(percent)
}

/// Maximum length of a command or an address, in bytes.
const MAX_TARGET_BYTES: usize = 4096;

/// What joins or redirects commands in a shell.
const SHELL_OPERATORS: [&str; 8] = ["|", "||", "&", "&&", ";", ">", ">>", "<"];

fn check_command(text: &str) -> Result<(), (String, String)> {
    let words = shell_words::split(text).unwrap_or_default();
    // No shell reads it: an operator of one would become an argument. One in quotes is meant as such.
    let is_operator = |word: &&String| SHELL_OPERATORS.contains(&word.as_str());
    let mut unquoted = text.split_ascii_whitespace();
    if let Some(word) = words.iter().find(is_operator)
        && unquoted.any(|it| it == word)
    {
        return Err((
            format!("is run without a shell, so `{word}` would be an argument of the program"),
            "for a pipeline or a redirection: sh -c '…'".to_string(),
        ));
    }
    if words.first().is_some_and(|word| !word.is_empty()) && text.len() <= MAX_TARGET_BYTES {
        return Ok(());
    }
    Err((
        format!("must be a program with its arguments, not `{text}`"),
        "write words as for a shell, and close every quote; for a pipeline: sh -c '…'".to_string(),
    ))
}

fn check_url(text: &str) -> Result<(), (String, String)> {
    let rest = ["http://", "https://"]
        .into_iter()
        .find_map(|scheme| text.strip_prefix(scheme));
    let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next());
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
    let (fault, hint) = match host {
        None => (
            "must begin with http:// or https://",
            "write the whole address",
        ),
        Some("") => ("names no host", "write the whole address"),
        Some(host) if host.contains('@') => (
            "has a user name, which is not sent",
            "remove it, or use `command` with curl",
        ),
        Some(_) if !is_plain => (
            "has a space or a character other than ASCII",
            "write such characters as %20 and the like",
        ),
        Some(_) if text.len() > MAX_TARGET_BYTES => ("is too long", "write a shorter address"),
        Some(_) => return Ok(()),
    };
    Err((fault.to_string(), hint.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_kinds_are_parsed_back() {
        for kind in AlertKind::ALL {
            assert_eq!(AlertKind::parse(kind.as_str()), Some(kind));
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
        assert_eq!(AlertKind::NAMES.join(", "), AlertKind::ALL_NAMES);
    }

    #[test]
    fn time_span_needs_unit_and_limit() {
        let parsed = ["0", "90m", "24h", "7d", "5s"].map(parse_time_span);
        assert_eq!(
            parsed,
            [Some(0), Some(5400), Some(86_400), Some(604_800), Some(5)]
        );
        for wrong in [
            "",
            "h",
            "24",
            "-1h",
            "1 h",
            "1w",
            "366d",
            "99999999999999999999d",
        ] {
            assert_eq!(parse_time_span(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn percent_is_between_1_and_99() {
        assert_eq!(
            ["10%", "5", "99 %"].map(parse_percent),
            [Some(10), Some(5), Some(99)]
        );
        for wrong in ["", "%", "0", "100", "1.5", "-3", "ten"] {
            assert_eq!(parse_percent(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn url_names_scheme_and_host() {
        let is_accepted = |text| AlertShape::Url.check(text).is_ok();
        assert!(is_accepted("https://hooks.example.org/T0/B1?x=1"));
        assert!(is_accepted("http://127.0.0.1:9000"));
        for wrong in [
            "ftp://a/b",
            "hooks.example.org",
            "https:///x",
            "https://me:pw@example.org/",
            "http://a b/",
            "http://ä/",
        ] {
            assert!(!is_accepted(wrong), "{wrong}");
        }
    }

    #[test]
    fn command_is_split_like_in_a_shell() {
        let is_accepted = |text| AlertShape::Command.check(text).is_ok();
        assert!(is_accepted("/usr/local/bin/notify --to 'night shift'"));
        assert!(!is_accepted("notify 'night shift"));
        assert!(!is_accepted("''"));
        assert!(!is_accepted("cat | mail ops"));
        assert!(is_accepted("sh -c 'cat | mail ops'"));
        assert!(is_accepted("notify '|'"));
    }
}
