//! How the values of options are parsed, and the exit codes that every help text ends with.

use std::str::FromStr;

use chrono::{DateTime, FixedOffset};

use crate::base::digest::Digest;

/// The end of every help text; scripts and timers rely on these numbers.
pub(in crate::cli) const EXIT_CODES: &str = "\
Exit codes:
    0  ok
    1  some agents failed, or there are differences or findings
    2  the command line or the config is wrong
    3  a host or file cannot be reached or read
    4  integrity: tampered baseline, changed host key, broken seal or ledger
    5  another run holds the lock
    6  the plan has changed, or the operation was refused for safety
  130  interrupted
Where several apply, the first of 130, 4, 2, 6, 5, 3, 1 is used.";

pub(in crate::cli) fn parse_number<T: FromStr>(text: &str) -> Result<T, String> {
    let parsed = text.parse().ok();
    parsed.ok_or_else(|| "expected a whole number that is not too large".to_string())
}

pub(in crate::cli) fn parse_record_count(text: &str) -> Result<usize, String> {
    match parse_number(text)? {
        0 => Err("expected a number of at least 1".to_string()),
        count => Ok(count),
    }
}

/// Parses the number of agents of the example fleet.
#[cfg(feature = "demo")]
pub(in crate::cli) fn parse_demo_size(text: &str) -> Result<usize, String> {
    let count = parse_number(text).ok();
    let allowed = count.filter(|count| (15..=1000).contains(count));
    allowed.ok_or_else(|| "expected a whole number from 15 to 1000".to_string())
}

pub(in crate::cli) fn parse_plan_hash(text: &str) -> Result<String, String> {
    let hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if text.len() >= 8 && hex {
        Ok(text.to_ascii_lowercase())
    } else {
        Err("a plan hash has at least 8 hexadecimal digits".to_string())
    }
}

pub(in crate::cli) fn parse_anchor(text: &str) -> Result<(u64, Digest), String> {
    let (seq, digest) = text
        .split_once(':')
        .ok_or("expected SEQ:HASH, as a run prints it")?;
    let seq = parse_number(seq)?;
    Ok((seq, digest.parse()?))
}

/// Parses an instant in RFC 3339.
pub(in crate::cli) fn parse_instant(text: &str) -> Result<DateTime<FixedOffset>, String> {
    DateTime::parse_from_rfc3339(text)
        .map_err(|_| "expected a time in RFC 3339, such as 2026-06-15T12:00:00Z".to_string())
}
