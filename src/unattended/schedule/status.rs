//! The state of installed timers, as the service manager knows it.

use std::collections::BTreeMap;
use std::path::Path;

use chrono::{DateTime, FixedOffset, NaiveDateTime, TimeZone};
use serde::Serialize;

use super::ownership::{UnitOwner, is_enabled_by_install, unit_owner};
use super::service_manager::ServiceManager;
use super::unit_files::unit_files;
use crate::base::error::Result;
use crate::config::config_identity;

/// How late a timer may be, in seconds, before its run counts as missed.
const MAX_DELAY_SECONDS: i64 = 60;

/// A timer that this program wrote for a config.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InstalledTimer {
    /// Name of the unit.
    pub name: String,
    /// Calendar expression of its file.
    pub calendar: String,
    /// Whether `schedule install` enabled it.
    pub enabled_by_install: bool,
    /// Whether it was edited since it was installed.
    pub edited: bool,
}

/// State of a timer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TimerStatus {
    /// Whether the timer waits for its next time.
    pub active: bool,
    /// `enabled`, `disabled` or another word of systemctl(1).
    pub enabled: String,
    /// When it is due next.
    pub next: Option<DateTime<FixedOffset>>,
    /// When it started its service last.
    pub last: Option<DateTime<FixedOffset>>,
    /// Result of the service's last run, as in `systemctl show`; `None` before the first one.
    pub result: Option<String>,
    /// Exit code of the service's last run.
    pub exit_code: Option<i32>,
    /// Whether the service runs now.
    pub running: bool,
    /// Whether a run is overdue, or an installed timer that has to be enabled does not run.
    pub missed: bool,
}

/// Returns the timers in a directory that this program wrote for the config at `config`, by name.
///
/// # Errors
/// The directory cannot be read.
pub fn find_installed_timers(directory: &Path, config: &Path) -> Result<Vec<InstalledTimer>> {
    let files = unit_files(directory)?.into_iter();
    let identity = config_identity(config);
    let timers = files.filter_map(|(name, file)| {
        // An unreadable file or a symlink is not one of this program.
        let text = file.text.ok().filter(|_| file.link.is_none())?;
        let UnitOwner::Own {
            config: of,
            is_intact,
        } = unit_owner(&text)
        else {
            return None;
        };
        let is_own = config_identity(&of) == identity;
        let calendar = text
            .lines()
            .find_map(|line| line.strip_prefix("OnCalendar="));
        (name.ends_with(".timer") && is_own).then(|| InstalledTimer {
            name,
            calendar: calendar.unwrap_or_default().to_string(),
            enabled_by_install: is_enabled_by_install(&text),
            edited: !is_intact,
        })
    });
    Ok(timers.collect())
}

/// Properties of timers and services that are asked for.
const PROPERTIES: &str = "Id,ActiveState,UnitFileState,NextElapseUSecRealtime,LastTriggerUSec,\
                          Result,ExecMainStatus,ExecMainExitTimestamp";

/// Asks the service manager for the state of timers, in their order. Each time has the offset that
/// holds then in the time zone of `now`.
///
/// # Errors
/// The service manager does not answer.
pub fn read_timer_statuses<Tz: TimeZone>(
    timers: &[InstalledTimer],
    manager: &dyn ServiceManager,
    now: &DateTime<Tz>,
) -> Result<Vec<TimerStatus>> {
    let names: Vec<String> = timers
        .iter()
        .flat_map(|timer| [timer.name.clone(), service_name(&timer.name)])
        .collect();
    let mut arguments = vec!["show", "-p", PROPERTIES];
    arguments.extend(names.iter().map(String::as_str));
    let units = parse_properties(&manager.run(&arguments)?);
    let empty = BTreeMap::new();
    let properties = |name: &str| units.get(name).unwrap_or(&empty);
    let statuses = timers.iter().map(|timer| {
        let service = properties(&service_name(&timer.name));
        timer_status(timer, properties(&timer.name), service, now)
    });
    Ok(statuses.collect())
}

/// Returns the name of the service of a timer.
fn service_name(timer: &str) -> String {
    format!("{}.service", timer.strip_suffix(".timer").unwrap_or(timer))
}

type Properties = BTreeMap<String, String>;

/// Parses the blocks that `systemctl show` prints, by their `Id`.
fn parse_properties(text: &str) -> BTreeMap<String, Properties> {
    let blocks = text.split("\n\n").map(|block| {
        let pairs = block.lines().filter_map(|line| line.split_once('='));
        let pairs = pairs.map(|(key, value)| (key.to_string(), value.to_string()));
        pairs.collect::<Properties>()
    });
    let named = blocks.filter_map(|block| Some((block.get("Id")?.clone(), block)));
    named.collect()
}

fn timer_status<Tz: TimeZone>(
    installed: &InstalledTimer,
    timer: &Properties,
    service: &Properties,
    now: &DateTime<Tz>,
) -> TimerStatus {
    let zone = now.timezone();
    let time = |properties: &Properties, key: &str| parse_timestamp(properties.get(key)?, &zone);
    let text = |properties: &Properties, key: &str| properties.get(key).cloned();
    let is_active = text(timer, "ActiveState").as_deref() == Some("active");
    let is_running = text(service, "ActiveState").as_deref() == Some("activating");
    let next = time(timer, "NextElapseUSecRealtime");
    let has_run = time(service, "ExecMainExitTimestamp").is_some();
    let is_overdue =
        next.is_some_and(|next| next + chrono::Duration::seconds(MAX_DELAY_SECONDS) < *now);
    TimerStatus {
        active: is_active,
        enabled: text(timer, "UnitFileState").unwrap_or_default(),
        next,
        last: time(timer, "LastTriggerUSec"),
        result: text(service, "Result").filter(|_| has_run),
        exit_code: text(service, "ExecMainStatus")
            .and_then(|code| code.parse().ok())
            .filter(|_| has_run),
        running: is_running,
        missed: !is_running && (is_overdue || installed.enabled_by_install && !is_active),
    }
}

/// Parses `Mon 2026-02-02 02:50:00 UTC`; other texts, such as `n/a`, stand for no time. Properties of
/// the kind `…USec` have this form with any `--timestamp=` before version 259.
fn parse_timestamp<Tz: TimeZone>(text: &str, zone: &Tz) -> Option<DateTime<FixedOffset>> {
    let utc = NaiveDateTime::parse_from_str(text, "%a %Y-%m-%d %H:%M:%S UTC").ok()?;
    Some(utc.and_utc().with_timezone(zone).fixed_offset())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::reset_interval::summer_time::SummerTime;

    struct FixedAnswer(&'static str);

    impl ServiceManager for FixedAnswer {
        fn is_running(&self) -> bool {
            true
        }

        fn run(&self, _: &[&str]) -> Result<String> {
            Ok(self.0.to_string())
        }
    }

    fn timer(name: &str, enabled_by_install: bool) -> InstalledTimer {
        InstalledTimer {
            name: name.to_string(),
            calendar: String::new(),
            enabled_by_install,
            edited: false,
        }
    }

    #[test]
    fn timer_and_service_make_one_status() {
        let answer = "Id=a.timer\nActiveState=active\nUnitFileState=enabled\n\
                      NextElapseUSecRealtime=Mon 2026-02-02 02:50:00 UTC\n\
                      LastTriggerUSec=Sun 2026-02-01 23:50:00 UTC\n\n\
                      Id=a.service\nActiveState=failed\nResult=exit-code\nExecMainStatus=4\n\
                      ExecMainExitTimestamp=Sun 2026-02-01 23:50:01 UTC\n\n\
                      Id=b.timer\nActiveState=inactive\nUnitFileState=disabled\n\
                      NextElapseUSecRealtime=\nLastTriggerUSec=n/a\n\n\
                      Id=b.service\nActiveState=inactive\nResult=success\nExecMainStatus=0\n\
                      ExecMainExitTimestamp=\n";
        let now = DateTime::parse_from_rfc3339("2026-02-02T03:00:00+01:00").unwrap();
        let timers = [timer("a.timer", true), timer("b.timer", false)];
        let statuses = read_timer_statuses(&timers, &FixedAnswer(answer), &now).unwrap();
        let [first, second] = &statuses[..] else {
            panic!("{statuses:?}");
        };
        assert_eq!(
            first.next.unwrap().to_rfc3339(),
            "2026-02-02T03:50:00+01:00"
        );
        assert_eq!(first.last.unwrap().timestamp(), 1_769_989_800);
        assert_eq!(first.result.as_deref(), Some("exit-code"));
        assert_eq!((first.exit_code, first.missed), (Some(4), false));
        assert_eq!((second.next, second.last), (None, None));
        assert_eq!((second.result.clone(), second.missed), (None, false));
    }

    #[test]
    fn times_have_the_offset_that_holds_then() {
        let answer = "Id=a.timer\nActiveState=active\n\
                      NextElapseUSecRealtime=Sun 2026-03-29 01:30:00 UTC\n\
                      LastTriggerUSec=Sun 2026-03-29 00:30:00 UTC\n";
        let now = DateTime::parse_from_rfc3339("2026-03-29T01:40:00+01:00").unwrap();
        let now = now.with_timezone(&SummerTime);
        let timers = [timer("a.timer", true)];
        let statuses = read_timer_statuses(&timers, &FixedAnswer(answer), &now).unwrap();
        let shown = |time: Option<DateTime<FixedOffset>>| time.unwrap().to_rfc3339();
        assert_eq!(shown(statuses[0].next), "2026-03-29T03:30:00+02:00");
        assert_eq!(shown(statuses[0].last), "2026-03-29T01:30:00+01:00");
    }

    #[test]
    fn overdue_or_inactive_timer_is_missed() {
        let answer =
            "Id=a.timer\nActiveState=active\nNextElapseUSecRealtime=Mon 2026-02-02 02:50:00 UTC\n";
        let now = DateTime::parse_from_rfc3339("2026-02-02T09:00:00+01:00").unwrap();
        let timers = [timer("a.timer", true), timer("b.timer", true)];
        let statuses = read_timer_statuses(&timers, &FixedAnswer(answer), &now).unwrap();
        assert!(statuses.iter().all(|status| status.missed), "{statuses:?}");
    }
}
