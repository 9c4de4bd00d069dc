//! Owner, mode and times of a file, for messages.

use std::path::Path;

use chrono::{DateTime, FixedOffset};
use rustix::fs::{Stat, lstat};

use crate::base::moment::Zone;

/// Format of times in notes.
const TIME_FORMAT: &str = "%Y-%m-%d %H:%M:%S";

/// Owner, mode and times of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOwner {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Permissions, with the set-user, set-group and sticky bits.
    pub mode: u32,
    /// When its content was written (mtime); programs can set this time.
    pub modified_at: DateTime<FixedOffset>,
    /// When the file changed in any way (ctime); programs cannot set this time.
    pub changed_at: DateTime<FixedOffset>,
}

impl FileOwner {
    /// Returns the owner of the object at a path, with times in a zone; `None` if it cannot be read.
    pub(in crate::engine) fn of(path: &Path, zone: Zone) -> Option<FileOwner> {
        FileOwner::from_stat(&lstat(path).ok()?, zone)
    }

    /// Returns the owner in a file's status, with times in a zone; `None` if a time is out of range.
    pub(in crate::engine) fn from_stat(stat: &Stat, zone: Zone) -> Option<FileOwner> {
        let time = |seconds, nanoseconds: u64| {
            let time = DateTime::from_timestamp(seconds, nanoseconds.try_into().unwrap_or(0));
            Some(zone.at(time?))
        };
        Some(FileOwner {
            uid: stat.st_uid,
            gid: stat.st_gid,
            mode: stat.st_mode & 0o7777,
            modified_at: time(stat.st_mtime, stat.st_mtime_nsec)?,
            changed_at: time(stat.st_ctime, stat.st_ctime_nsec)?,
        })
    }

    /// Returns, for example, "file owned by uid 0, gid 0, mode 0644, written 2026-03-14 09:00:00".
    pub fn describe(&self) -> String {
        let (uid, gid, mode) = (self.uid, self.gid, self.mode);
        let [written, changed] =
            [self.modified_at, self.changed_at].map(|it| it.format(TIME_FORMAT));
        let mut text =
            format!("file owned by uid {uid}, gid {gid}, mode {mode:04o}, written {written}");
        // A program that sets back mtime cannot set back ctime.
        if (self.changed_at - self.modified_at).num_seconds().abs() > 1 {
            text.push_str(&format!(", changed {changed}"));
        }
        text
    }
}
