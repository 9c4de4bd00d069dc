use std::collections::BTreeMap;

use chrono::{DateTime, Duration};

use super::*;
use crate::base::reset_interval::summer_time::SummerTime;
use crate::unattended::schedule::units::find_timer_agent;

type Time = DateTime<SummerTime>;

fn time(text: &str) -> Time {
    let time = DateTime::parse_from_rfc3339(text).unwrap();
    time.with_timezone(&SummerTime)
}

fn group(agent: &str, every: &str, offset: u32) -> ScheduledGroup {
    ScheduledGroup {
        agent: Some(agent.to_string()).filter(|it| !it.is_empty()),
        interval: every.parse().unwrap(),
        offset,
    }
}

fn schedule(groups: &[ScheduledGroup], now: &str) -> Scheduler<SummerTime> {
    Scheduler::new(groups.to_vec(), &time(now), |_| None)
}

fn agents_due(scheduler: &mut Scheduler<SummerTime>, now: &str) -> Vec<String> {
    let due = scheduler.take_due(&time(now)).into_iter();
    due.map(|group| group.agent.unwrap_or_default()).collect()
}

#[test]
fn groups_are_due_at_their_own_times() {
    let groups = [group("", "3h", 0), group("scout", "1h", 600)];
    let mut scheduler = schedule(&groups, "2026-03-14T08:30:00+01:00");
    let next = "next reset: 2026-03-14 09:00:00, all agents without an interval of their own";
    assert_eq!(scheduler.describe_next(|_| false), next);
    let mut due = |now: &str| agents_due(&mut scheduler, now);
    assert_eq!(due("2026-03-14T08:59:59+01:00"), Vec::<String>::new());
    assert_eq!(due("2026-03-14T09:00:00+01:00"), [""]);
    assert_eq!(due("2026-03-14T09:00:01+01:00"), Vec::<String>::new());
    assert_eq!(due("2026-03-14T09:10:30+01:00"), ["scout"]);
    // Both were missed while the machine was suspended: one run makes up for all.
    assert_eq!(due("2026-03-14T18:20:00+01:00"), ["", "scout"]);
    assert_eq!(due("2026-03-14T18:20:30+01:00"), Vec::<String>::new());
    let next = "next reset: 2026-03-14 19:10:00, scout";
    assert_eq!(scheduler.describe_next(|_| false), next);
}

#[test]
fn group_of_a_timer_is_the_one_of_the_config() {
    let every = "every = 1h\n";
    let section = |name: &str, more: &str| {
        format!("[{name}]\nmemory_file = agents/{name}/MEMORY.md\nbaseline = b.md\n{more}")
    };
    let environment = crate::config::ConfigEnvironment::bare("/fleet");
    for (fleet, names) in [(true, 3), (false, 2)] {
        let mut text = section("scout", every) + &section("guard", every);
        if fleet {
            text += &section("shared", "");
        }
        let path = std::path::Path::new("/fleet/memory-shepherd.conf");
        let config = crate::config::parse(text.as_bytes(), path, &environment).unwrap();
        let groups = ScheduledGroup::of_config(&config);
        assert_eq!(groups.len(), names);
        for group in &groups {
            let found = ScheduledGroup::of_timer(&config, group.agent.as_deref());
            assert_eq!(found.as_ref(), Some(group));
        }
        for other in ["shared", "none"] {
            let found = ScheduledGroup::of_timer(&config, Some(other));
            assert_eq!(found, ScheduledGroup::of_timer(&config, None));
            assert_eq!(found.is_some(), fleet);
        }
        for (unit, agent) in [
            ("memory-shepherd.timer", Some(None)),
            ("memory-shepherd-scout.timer", Some(Some("scout"))),
            ("memory-shepherd.guard", Some(Some("guard"))),
            ("memory-shepherd-guard.timer", None),
            ("memory-shepherd-none.timer", None),
            ("memory-shepherdscout.timer", None),
        ] {
            assert_eq!(find_timer_agent(&config, unit), agent, "{unit}");
        }
    }
}

#[test]
fn start_makes_up_for_a_missed_time() {
    let now = time("2026-03-14T10:00:00+01:00");
    for (last, is_due) in [
        (None, false),
        (Some("2026-03-14T09:00:05+01:00"), false),
        (Some("2026-03-14T08:59:00+01:00"), true),
        (Some("2026-01-01T00:00:00+01:00"), true),
        // A record of a clock that was ahead.
        (Some("2026-05-01T00:00:00+01:00"), false),
    ] {
        let groups = vec![group("", "3h", 0)];
        let mut scheduler = Scheduler::new(groups, &now, |_| last.map(time));
        assert_eq!(!scheduler.take_due(&now).is_empty(), is_due, "{last:?}");
        assert_eq!(
            *scheduler.next_due().unwrap(),
            time("2026-03-14T12:00:00+01:00")
        );
    }
}

#[test]
fn clock_set_back_delays_no_reset() {
    let mut scheduler = schedule(&[group("", "3h", 0)], "2026-03-16T08:30:00+01:00");
    assert_eq!(
        agents_due(&mut scheduler, "2026-03-16T09:00:00+01:00"),
        [""]
    );
    // Two days back: the next reset is not in two days.
    let none = agents_due(&mut scheduler, "2026-03-14T09:00:20+01:00");
    assert_eq!(none, Vec::<String>::new());
    assert_eq!(
        agents_due(&mut scheduler, "2026-03-14T12:00:00+01:00"),
        [""]
    );
}

#[test]
fn changed_config_keeps_the_times_of_the_others() {
    let mut scheduler = schedule(
        &[group("a", "1h", 0), group("b", "1h", 0)],
        "2026-03-14T08:30:00+01:00",
    );
    let groups = vec![group("b", "1h", 0), group("c", "30m", 0)];
    // The time of b has passed, that of the new one has not come.
    scheduler.replace_groups(groups, &time("2026-03-14T09:00:10+01:00"));
    assert_eq!(
        agents_due(&mut scheduler, "2026-03-14T09:00:10+01:00"),
        ["b"]
    );
    scheduler.replace_groups(Vec::new(), &time("2026-03-14T09:00:20+01:00"));
    assert_eq!(scheduler.describe_next(|_| false), "no agents to reset");
    assert_eq!(
        scheduler.wait_time(&time("2026-03-14T09:00:20+01:00")),
        MAX_WAIT
    );
}

#[test]
fn moved_time_is_made_up_for_once() {
    // The times of an agent move with the number of agents.
    let mut scheduler = schedule(&[group("a", "7d", 7200)], "2026-03-16T01:00:00+01:00");
    let moved = vec![group("a", "7d", 3600 + 1800), group("b", "7d", 0)];
    let now = "2026-03-16T01:50:00+01:00";
    scheduler.replace_groups(moved, &time(now));
    assert_eq!(agents_due(&mut scheduler, now), ["a"]);
    assert_eq!(
        agents_due(&mut scheduler, "2026-03-16T02:30:00+01:00"),
        Vec::<String>::new()
    );
}

#[test]
fn shorter_interval_says_what_is_due_now() {
    let mut scheduler = schedule(
        &[group("a", "6h", 95), group("b", "6h", 0)],
        "2026-03-14T07:30:00+01:00",
    );
    let now = "2026-03-14T09:20:00+01:00";
    let changed = vec![group("a", "1h", 95), group("b", "6h", 0)];
    let made_due = scheduler.replace_groups(changed.clone(), &time(now));
    let text = describe_made_due(&made_due, |_| false).unwrap();
    assert_eq!(text, "the changed config makes a reset due now: a");
    assert_eq!(agents_due(&mut scheduler, now), ["a"]);
    let next = "next reset: 2026-03-14 10:01:35, a";
    assert_eq!(scheduler.describe_next(|_| false), next);
    // A longer one makes none due, nor does the same config.
    for groups in [changed, vec![group("a", "6h", 95), group("b", "6h", 0)]] {
        let made_due = scheduler.replace_groups(groups, &time(now));
        assert_eq!(describe_made_due(&made_due, |_| false), None);
        assert_eq!(agents_due(&mut scheduler, now), [""; 0]);
    }
}

#[test]
fn corrected_clock_repeats_no_reset() {
    let mut scheduler = schedule(&[group("", "3h", 0)], "2026-03-14T08:30:00+01:00");
    assert_eq!(
        agents_due(&mut scheduler, "2026-03-14T09:00:00+01:00"),
        [""]
    );
    for now in ["2026-03-14T08:59:59+01:00", "2026-03-14T09:00:01+01:00"] {
        assert_eq!(
            agents_due(&mut scheduler, now),
            Vec::<String>::new(),
            "{now}"
        );
    }
}

/// Runs a schedule over a year in which the machine is suspended now and then. Returns the looks at
/// the clock, and when each group was due.
fn simulate_year(groups: &[ScheduledGroup]) -> (Vec<Time>, BTreeMap<String, Vec<Time>>) {
    let mut now = time("2026-01-01T00:00:00+01:00");
    let end = time("2027-01-01T00:00:00+01:00");
    let mut scheduler = Scheduler::new(groups.to_vec(), &now, |_| None);
    let (mut looks, mut runs) = (Vec::new(), BTreeMap::<String, Vec<Time>>::new());
    let mut random = 7_u64;
    while now < end {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let number = (random >> 33) as i64;
        // A suspension of up to three days, some hundred times a year.
        now += if number % 10_007 == 0 {
            Duration::seconds(number % 259_200)
        } else {
            Duration::from_std(scheduler.wait_time(&now)).unwrap()
        };
        looks.push(now);
        for group in scheduler.take_due(&now) {
            runs.entry(group.agent.unwrap_or_default())
                .or_default()
                .push(now);
        }
    }
    (looks, runs)
}

#[test]
fn suspended_year_with_summer_time_misses_no_reset() {
    let groups = [
        group("", "3h", 120),
        group("hourly", "1h", 0),
        group("half-hourly", "30m", 7),
        // In the hour that is skipped in March, and comes twice in October.
        group("daily", "1d", 9000),
        group("weekly", "7d", 0),
    ];
    let (looks, runs) = simulate_year(&groups);
    for group in &groups {
        let name = group.agent.clone().unwrap_or_default();
        let mut due = group
            .interval
            .next_after(group.offset, &time("2026-01-01T00:00:00+01:00"));
        let mut expected = Vec::new();
        let last_look = looks[looks.len() - 1];
        while due <= last_look {
            // The first look at the clock at that time or later; several times share one.
            let look = looks[looks.partition_point(|look| *look < due)];
            if expected.last() != Some(&look) {
                expected.push(look);
            }
            due = group.interval.next_after(group.offset, &due);
        }
        assert!(!expected.is_empty() && runs[&name] == expected, "{name}");
    }
}

#[test]
fn span_of_a_due_time_ends_at_the_next_one() {
    let fleet = group("", "3h", 170);
    let agent = group("scout", "1h", 754);
    for (group, due, begins, ends) in [
        (
            &fleet,
            "2026-03-14T09:02:50+01:00",
            "2026-03-14T09:00:00+01:00",
            "2026-03-14T12:00:00+01:00",
        ),
        (
            &fleet,
            "2026-03-14T12:00:00+01:00",
            "2026-03-14T12:00:00+01:00",
            "2026-03-14T15:00:00+01:00",
        ),
        // cron starts it at the full minute.
        (
            &agent,
            "2026-03-14T09:12:34+01:00",
            "2026-03-14T09:12:00+01:00",
            "2026-03-14T10:12:00+01:00",
        ),
        // The hour from 2 o'clock is skipped.
        (
            &fleet,
            "2026-03-29T00:02:50+01:00",
            "2026-03-29T00:00:00+01:00",
            "2026-03-29T03:00:00+02:00",
        ),
    ] {
        let (first, last) = group.span_of(&time(due));
        assert_eq!((first, last), (time(begins), time(ends)), "{due}");
    }
    let after = fleet.due_after(&time("2026-03-14T09:02:50+01:00"));
    assert_eq!(after, time("2026-03-14T12:02:50+01:00"));
}
