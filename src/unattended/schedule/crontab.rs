//! The schedule as lines of a crontab, for machines without systemd.

use std::path::Path;

use super::calendar::OffsetParts;
use super::escape::unit_path;
use super::time_limit::{agent_arguments, reset_arguments};
use super::units::{agent_schedule, shared_agents};
use crate::base::error::Result;
use crate::base::reset_interval::ResetInterval;
use crate::config::Config;

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
        escape_percent_signs(&shell_words::join(words))
    };
    let mut lines = Vec::new();
    if shared_agents(config).next().is_some() {
        let times = cron_times(config.general.every, 0);
        lines.push(format!("{times} {}", command(None)));
    }
    for (index, agent) in config.agents.iter().enumerate() {
        if agent.own_interval().is_some() {
            let (interval, offset) = agent_schedule(config, index);
            let times = cron_times(interval, offset);
            lines.push(format!("{times} {}", command(Some(&agent.name))));
        }
    }
    Ok(lines)
}

/// Escapes a command for a crontab, where `%` begins its standard input. cron takes a backslash before
/// `%` away, unless that backslash follows another one: a quote is between the two then. Words with a
/// backslash are in single quotes.
fn escape_percent_signs(command: &str) -> String {
    command.replace('%', "\\%").replace("\\\\%", "\\''\\%")
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
    use proptest::prelude::*;

    use super::*;

    /// Returns the command that cron gives to the shell, as `do_command.c` of Vixie cron reads it; none
    /// if a part of it would become standard input.
    fn command_of_cron(line: &str) -> Option<String> {
        let mut command = String::new();
        let mut is_escaped = false;
        for c in line.chars() {
            match (c, is_escaped) {
                ('%', true) => drop(command.pop()),
                ('%', false) => return None,
                _ => {}
            }
            command.push(c);
            is_escaped = c == '\\' && !is_escaped;
        }
        Some(command)
    }

    proptest! {
        #[test]
        fn words_of_a_crontab_line_read_back(
            words in proptest::collection::vec(r#"[a%\\ '"$]{1,8}"#, 1..4),
        ) {
            let line = escape_percent_signs(&shell_words::join(&words));
            let command = command_of_cron(&line).unwrap();
            prop_assert_eq!(shell_words::split(&command).unwrap(), words);
        }
    }

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
