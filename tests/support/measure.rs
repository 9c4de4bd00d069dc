//! Series of figures, and what a process uses according to /proc.

use std::fs;

pub fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// Returns the value below which this many hundredths of the values are.
pub fn share(values: &[f64], hundredths: usize) -> f64 {
    let last = values.len().saturating_sub(1);
    values
        .get((values.len() * hundredths / 100).min(last))
        .copied()
        .unwrap_or(f64::NAN)
}

pub fn median(values: Vec<f64>) -> f64 {
    share(&sorted(values), 50)
}

/// Returns the number on a line of a file in /proc.
pub fn number(text: &str, name: &str) -> u64 {
    let line = text.lines().find(|line| line.starts_with(name));
    let word = line.and_then(|line| line.split_whitespace().nth(1));
    word.and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Returns the number of writes, to the terminal and between threads.
pub fn writes(pid: u32) -> u64 {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    number(&io, "syscw:")
}

/// Returns processor time in seconds and context switches of all threads.
pub fn usage(pid: u32) -> (f64, u64) {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("stat");
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or("").split(' ').collect();
    let ticks = fields[11..15]
        .iter()
        .map(|field| field.parse().unwrap_or(0.0));
    // USER_HZ is 100 on Linux.
    let time = ticks.sum::<f64>() / 100.0;
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("tasks");
    let switches = tasks.flatten().map(|task| {
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        number(&status, "voluntary_ctxt_switches:") + number(&status, "nonvoluntary_ctxt_switches:")
    });
    (time, switches.sum())
}

/// Returns resident memory, and the private part of it, in MB.
pub fn memory(pid: u32) -> (f64, f64) {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let megabytes = |name| number(&rollup, name) as f64 / 1024.0;
    (megabytes("Rss:"), megabytes("Pss:"))
}
