//! Check of free space and inodes against what runs archive.

use chrono::Duration;

use super::{DoctorReport, FleetSubject};
use crate::archive::{self, DiskSpace};
use crate::base::quantity::{describe_size, format_count};
use crate::engine::ArchiveGrowth;

/// Number of days that free space has to last, at the rate of the last month.
const MIN_DAYS_LEFT: u64 = 60;

/// Times further ahead are not said.
const MAX_SHOWN_DAYS: u64 = 10 * 365;

pub(super) fn check_disk_space(report: &mut DoctorReport, fleet: &FleetSubject<'_>) {
    let engine = fleet.engine;
    let archive = engine.archive();
    let root = archive.root().display();
    let growth = match engine.history().archive_growth() {
        Ok(growth) => growth,
        Err(error) => {
            let text = format!("the growth of {root} is not known: {error}");
            return report.add_warning(text, "put the ledger right first");
        }
    };
    let Some(disk) = DiskSpace::of(archive.root()) else {
        return report.add_warning(
            format!("the file system of {root} does not say how much is free"),
            "watch the free space by the means of that file system",
        );
    };
    let days = format_count(growth.days, "day");
    let rate = format!(
        "{} archived a day over the last {days}",
        describe_size(growth.bytes / growth.days)
    );
    let free = format!("{} free for {root}", describe_size(disk.free_bytes));
    let left = ArchiveGrowth::days_until(disk.free_bytes, growth.bytes, growth.days);
    report_days_left(report, fleet, &format!("{free}, {rate}"), left);
    // Some file systems have as many inodes as space allows, and say 0.
    if let Some(inodes) = archive::free_inodes(archive.root()) {
        let left = ArchiveGrowth::days_until(inodes, growth.entries, growth.days);
        let entries = format_count(growth.entries, "entry");
        let text =
            format!("{inodes} free inodes for {root}, {entries} archived in the last {days}");
        report_days_left(report, fleet, &text, left);
    }
}

/// Reports how long something lasts, and warns if that is not long.
fn report_days_left(
    report: &mut DoctorReport,
    fleet: &FleetSubject<'_>,
    text: &str,
    days_left: Option<u64>,
) {
    let engine = fleet.engine;
    match days_left {
        Some(left) if left <= MAX_SHOWN_DAYS => {
            let end = engine.clock().now() + Duration::days(i64::try_from(left).unwrap_or(0));
            let lasts = format!(
                "{text}: enough until {} ({}) at that rate",
                end.format("%Y-%m-%d"),
                format_count(left, "day")
            );
            if left >= MIN_DAYS_LEFT {
                return report.add_ok(lasts);
            }
            let prune = engine.command_line("archive prune");
            let hint = format!(
                "free space on that file system, or set a shorter archive_retention_days: `{prune} \
                 --dry-run` says what that frees, and `{prune}` frees it, also when the disk is full. \
                 A reset that finds the disk full changes no memory"
            );
            report.add_warning(lasts, &hint);
        }
        Some(_) => report.add_ok(format!("{text}: enough for more than ten years")),
        None => report.add_ok(text),
    }
}
