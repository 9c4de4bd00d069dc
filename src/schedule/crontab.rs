//! The schedule as lines of a crontab, for machines without systemd.

use std::path::Path;

use super::calendar::OffsetParts;
use super::escape::unit_path;
use super::time_limit::{agent_arguments, reset_arguments};
use super::units::{agent_schedule, shared_agents};
use crate::config::Config;
use crate::error::Result;
use crate::reset_interval::ResetInterval;

/// Returns the lines that have the effect of the timers that `schedule install` enables. cron knows
/// no seconds and no jitter: agents whose offsets are in the same minute start together.
///
/// # Errors
/// A path that a line cannot name.
pub fn crontab_lines(config: &Config, program: &Path) -> Result<Vec<String>> {
    let (program, config_path) = (unit_path(program)?, unit_path(&config.path)?);
    let reset = reset_arguments();
    let command = |agent: Option<&str>| {
        let words = std::iter::once(program)
            .chain(reset.iter().map(String::as_str))
            .chain(["--quiet", "--config", config_path])
            .chain(agent_arguments(agent));
        // In a crontab, `%` begins the standard input of the command.
        shell_words::join(words).replace('%', "\\%")
    };
    let mut lines = Vec::new();
    if shared_agents(config).next().is_some() {
        let times = cron_times(config.general.every, 0);
        lines.push(format!("{times} {}", command(None)));
    }
    for (index, agent) in config.agents.iter().enumerate() {
        if agent.own_interval.is_some() {
            let (interval, offset) = agent_schedule(config, index);
            let times = cron_times(interval, offset);
            lines.push(format!("{times} {}", command(Some(&agent.name))));
        }
    }
    Ok(lines)
}

/// Returns the five fields of an interval and an offset, whose seconds are dropped.
fn cron_times(interval: ResetInterval, offset: u32) -> String {
    let at = OffsetParts::new(offset % interval.seconds());
    let (minute, hour) = (at.minutes, at.hours);
    match interval.minutes() {
        every @ ..60 => format!("{minute}-59/{every} * * * *"),
        60 => format!("{minute} * * * *"),
        every @ ..1440 => format!("{minute} {hour}-23/{} * * *", every / 60),
        1440 => format!("{minute} {hour} * * *"),
        _ => format!("{minute} {hour} * * {}", at.weekday()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cron_fields_have_interval_and_offset() {
        for (every, offset, fields) in [
            ("3h", 0, "0 0-23/3 * * *"),
            ("6h", 3_700, "1 1-23/6 * * *"),
            ("15m", 61, "1-59/15 * * * *"),
            ("1h", 754, "12 * * * *"),
            ("1d", 86_399, "59 23 * * *"),
            ("7d", 86_400, "0 0 * * Tue"),
        ] {
            assert_eq!(cron_times(every.parse().unwrap(), offset), fields);
        }
    }
}
