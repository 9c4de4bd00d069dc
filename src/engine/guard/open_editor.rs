//! Finds baselines that an operator has open in an editor of their own. Vim and Emacs leave a file
//! beside the one that they edit, by default.

use std::path::{Path, PathBuf};

use chrono::{DateTime, Duration, FixedOffset};
use rustix::fs::{Stat, lstat};
use rustix::process::geteuid;

/// How long the guard waits for an editor, counted from the last change of the baseline. Without a limit,
/// a process that can create such a file could keep a damaged baseline for ever.
pub(super) fn max_wait() -> Duration {
    Duration::hours(1)
}

/// Returns the file that an editor has beside a baseline, while the guard waits for that editor. A
/// file counts only if root or the user of this process owns it: agents can create files in a
/// directory that they can write, but not as these users.
pub(super) fn find_editor_file(baseline: &Path, now: DateTime<FixedOffset>) -> Option<PathBuf> {
    let changed = lstat(baseline).ok().map_or(0, |stat| stat.st_ctime);
    let age = now - DateTime::from_timestamp(changed, 0)?.with_timezone(now.offset());
    if age < Duration::zero() || age >= max_wait() {
        return None;
    }
    let (directory, name) = (baseline.parent()?, baseline.file_name()?.to_str()?);
    let names = [format!(".{name}.swp"), format!(".#{name}")];
    let is_trusted = |stat: Stat| stat.st_uid == 0 || stat.st_uid == geteuid().as_raw();
    names
        .into_iter()
        .map(|name| directory.join(name))
        .find(|path| lstat(path).is_ok_and(is_trusted))
}
