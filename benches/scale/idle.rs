//! What a console on quiet hosts uses.

use std::fs;
use std::time::{Duration, Instant};

use crate::bench_fleet::millis;
use crate::measure;
use crate::table::Table;
use crate::{is_live, keys, new_directory, start_console};

/// Longer than a few polls of each host.
const SETTLING: Duration = Duration::from_secs(20);

pub fn measure(table: &mut Table, size: usize) -> Option<()> {
    let seconds = std::env::var("SECONDS").ok();
    let seconds = seconds.and_then(|text| text.parse().ok()).unwrap_or(60);
    let directory = new_directory();
    let (fleet, path) = crate::commands::remote_fleet(&directory, size)?;
    let mut console = start_console(&fleet, &path);
    let whole = keys::wait_until_live(&mut console);
    table.add(
        "whole fleet seen",
        "ms",
        size,
        millis(whole - console.began),
        None,
    );
    take_for(&mut console, SETTLING);
    assert!(is_live(console.screen.screen()), "a host is lost");
    let pid = console.pid();
    let before = measure::usage(pid);
    let bytes = take_for(&mut console, Duration::from_secs(seconds));
    let after = measure::usage(pid);
    let part = seconds as f64;
    let cores = (after.0 - before.0) / part;
    table.add("processor time", "cores", size, cores, Some(0.1));
    let switches = after.1.saturating_sub(before.1) as f64 / part;
    table.add("switches a second", "", size, switches, None);
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let threads = measure::number(&status, "Threads:") as f64;
    table.add("threads", "", size, threads, Some(64.0));
    let (resident, _) = measure::memory(pid);
    table.add("resident", "MB", size, resident, Some(100.0));
    table.add(
        "bytes drawn a minute",
        "B",
        size,
        bytes as f64 * 60.0 / part,
        None,
    );
    let opened = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    table.add("file descriptors", "", size, opened as f64, None);
    console.quit(b"q");
    Some(())
}

/// Reads output for some time; returns the number of bytes.
fn take_for(console: &mut crate::Terminal, time: Duration) -> usize {
    let (mut bytes, end) = (0, Instant::now() + time);
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        bytes += console.take(left).map_or(0, |(_, count)| count);
    }
    bytes
}
