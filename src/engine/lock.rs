//! Locks between runs: kernel locks on files that nobody but us may open. A holder
//! that died has let go; one that lives is named.
//!
//! `<archive_dir>/.shepherd/locks/`, where no file is ever removed but one:
//!
//! | file | what holds its lock |
//! |---|---|
//! | `AGENT.lock` | the run that works on an agent |
//! | `AGENT.queue` | who waits for that run to end |
//! | `.ledger.lock` | who appends to the ledger |
//! | `.pins.lock` | who changes pins or deletes entries |
//! | `.replace.lock` | up to [`MAX_REPLACING_RUNS`] runs that replace memories |
//!
//! All of them are of mode 0600, also with `archive_group`: whoever may open a file for
//! reading can hold a shared lock on it for ever, and so keep every run from working.
//! Members of the group see the names of these files, and in `AGENT.holder`, of mode
//! 0640, who works on an agent since when. A lock that they take on that file, on the
//! ledger or on an entry makes nobody wait; it can hide from other members that a run
//! is at work.
//!
//! Earlier versions made the files of mode 0640, and somebody may have had one open
//! ever since: such a file is replaced as soon as no run holds its lock.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use chrono::{DateTime, FixedOffset};
use serde::{Deserialize, Serialize};

use super::Engine;
use super::semaphore::{Permit, WaitLimit, acquire};
use crate::archive::{Archive, PROGRAM_DIRECTORY_NAME};
use crate::clock::Clock;
use crate::durable;
use crate::error::{Error, ErrorKind, PathContext, Result};
use crate::sys::{self, LockConflict};

/// How many runs may be replacing memories at the same time: so many records at the
/// most wait for the ledger that must not be given up.
pub const MAX_REPLACING_RUNS: u64 = 16;

/// How long the ledger or a place among those runs is waited for.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// How often somebody who waits for a run to end looks again.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The mode of every file that is locked.
const LOCK_FILE_MODE: u32 = 0o600;

/// The length of the line in which a holder is written down.
const HOLDER_LINE_BYTES: usize = 255;

/// How often the name of a holder is looked for in passing,
const HOLDER_READ_ATTEMPTS: usize = 2000;

/// and by whoever is refused, with a pause in between: on a busy machine whoever has
/// just taken the lock may have to wait for a processor before it can write.
const HOLDER_READ_ATTEMPTS_ON_REFUSAL: usize = 500;
const HOLDER_READ_INTERVAL: Duration = Duration::from_millis(2);

/// Who holds a lock, as the holder wrote it down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockHolder {
    /// Process id.
    pub pid: u32,
    /// The operator's user name.
    pub user: String,
    /// Since when.
    pub since: DateTime<FixedOffset>,
    /// The run.
    pub run: String,
}

impl LockHolder {
    /// "run 5a10 of ops (process 4711, since 01:00:06)"
    pub fn describe(&self) -> String {
        format!(
            "run {} of {} (process {}, since {})",
            self.run,
            self.user,
            self.pid,
            self.since.format("%H:%M:%S")
        )
    }
}

/// A lock that is held until it is dropped.
#[derive(Debug)]
pub struct AgentLock {
    file: File,
    /// Where the holder is written down, if that is not the file itself.
    holder_file: Option<File>,
}

impl Drop for AgentLock {
    /// Closing it is not enough: a child that another thread is just starting
    /// has a copy of the descriptor until it becomes another program.
    fn drop(&mut self) {
        // Nobody is to be taken for the next one.
        let _ = self
            .holder_file
            .as_ref()
            .unwrap_or(&self.file)
            .write_at(b"\n", 0);
        for file in self.holder_file.iter().chain([&self.file]) {
            sys::unlock(file.as_fd());
        }
    }
}

/// Takes the lock of an agent.
///
/// # Errors
/// [`ErrorKind::Busy`], naming the holder, when another run has it; else what the
/// system answered.
pub fn acquire_agent_lock(
    archive: &Archive,
    agent: &str,
    holder: &LockHolder,
) -> Result<AgentLock> {
    let path = lock_path(archive, agent);
    let mut file = open_lock_file(archive, &path)?;
    let mut read_attempts = 0;
    // Who is refused is told by whom, and one that has let go meanwhile refuses nobody.
    loop {
        if sys::try_lock(file.as_fd()).with_path("lock", &path)? {
            if is_still_at(&file, &path) {
                break;
            }
            // It was replaced in between.
            file = open_lock_file(archive, &path)?;
            continue;
        }
        let mut options = OpenOptions::new();
        let note =
            durable::open_nofollow_nonblocking(&holder_path(archive, agent), options.read(true));
        let holder = note.ok().and_then(|mut file| read_holder(&mut file));
        if holder.is_none() && read_attempts < HOLDER_READ_ATTEMPTS_ON_REFUSAL {
            read_attempts += 1;
            std::thread::sleep(HOLDER_READ_INTERVAL);
            continue;
        }
        let who = holder.map_or_else(|| "another run".to_string(), |it| it.describe());
        return Err(
            Error::new(ErrorKind::Busy, format!("{agent} is locked by {who}"))
                .with_hint("wait until it has ended; nothing was changed"),
        );
    }
    let lock = AgentLock {
        holder_file: open_holder_file(archive, agent),
        file,
    };
    // For people only: the lock itself is the kernel's, so a full disk is no
    // reason to give up. It is one line, written over the one before: a file
    // whose length stays costs no journal.
    if let Ok(text) = serde_json::to_string(holder) {
        let file = lock.holder_file.as_ref().unwrap_or(&lock.file);
        let _ = file.write_all_at(format!("{text:<HOLDER_LINE_BYTES$}\n").as_bytes(), 0);
    }
    Ok(lock)
}

/// The file in which members of the archive's group read who holds a lock, locked
/// itself as far as nobody prevents that; none where there is no group.
fn open_holder_file(archive: &Archive, agent: &str) -> Option<File> {
    if !archive.has_group() {
        return None;
    }
    let path = holder_path(archive, agent);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.mode(archive.file_mode().as_raw_mode());
    let file = durable::open_nofollow_nonblocking(&path, &mut options).ok()?;
    archive.repair_program_file(&file, &path).ok()?;
    let _ = sys::try_lock(file.as_fd());
    Some(file)
}

/// Takes the lock under which pins change and entries are deleted.
///
/// # Errors
/// [`ErrorKind::Busy`] when it stays another's for a minute, else what the system
/// answered.
pub fn lock_pins(archive: &Archive, clock: &dyn Clock) -> Result<Permit> {
    let path = archive.program_path("locks").join(".pins.lock");
    let busy = "the pins stay locked by another process";
    acquire_permit(archive, &path, 1, clock, &|| false, busy)
}

/// Takes the lock under which the ledger is appended to.
///
/// # Errors
/// As [`lock_pins`].
pub fn lock_ledger(archive: &Archive, clock: &dyn Clock) -> Result<Permit> {
    let path = archive.program_path("locks").join(".ledger.lock");
    let busy = "the ledger stays locked by another process";
    acquire_permit(archive, &path, 1, clock, &|| false, busy)
}

/// Takes a place among the runs that replace memories.
///
/// # Errors
/// As [`lock_pins`]; the same when `is_cancelled` ends the wait.
pub fn acquire_replacing_permit(
    archive: &Archive,
    clock: &dyn Clock,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Permit> {
    let path = archive.program_path("locks").join(".replace.lock");
    let busy = format!("{MAX_REPLACING_RUNS} other runs are replacing memories");
    acquire_permit(
        archive,
        &path,
        MAX_REPLACING_RUNS,
        clock,
        is_cancelled,
        &busy,
    )
}

/// `busy` says what is the case when none is had.
fn acquire_permit(
    archive: &Archive,
    path: &Path,
    permits: u64,
    clock: &dyn Clock,
    is_cancelled: &dyn Fn() -> bool,
    busy_message: &str,
) -> Result<Permit> {
    let wait = WaitLimit {
        clock,
        timeout: LOCK_TIMEOUT,
        is_cancelled,
    };
    let permit = acquire(open_lock_file(archive, path)?, path, permits, &wait)?;
    permit.ok_or_else(|| {
        let message = format!("{busy_message}, and a minute was not enough to wait for it");
        let who = format!("`fuser -v {}` shows the processes", path.display());
        Error::new(ErrorKind::Busy, message).with_hint(who)
    })
}

/// The places of one who waits for locks: whoever waits for one of them, too,
/// comes next. Given back when it is dropped.
#[derive(Debug)]
pub struct LockQueue {
    _permits: Vec<Permit>,
}

impl Engine {
    /// Waits until nobody holds the locks of these agents, as long as runs of this engine
    /// wait for locks ([`Engine::with_lock_timeout`]). Those who wait come one after the
    /// other, if they keep the result until their run has ended. They hold no lock
    /// meanwhile, so that two who want several never wait for each other.
    ///
    /// When the time is over it just ends: then a lock is taken or refused as
    /// ever.
    ///
    /// # Errors
    /// What the system answered.
    pub fn wait_for_locks<'n>(
        &self,
        agents: impl IntoIterator<Item = &'n str>,
    ) -> Result<LockQueue> {
        let archive = self.archive();
        let clock = self.clock();
        let mut places = Vec::new();
        let Some(end) = self.lock_deadline else {
            return Ok(LockQueue { _permits: places });
        };
        let _span = tracing::debug_span!("wait for locks").entered();
        let mut agents: Vec<&str> = agents.into_iter().collect();
        // Everybody in the same order, each place once.
        agents.sort_unstable();
        agents.dedup();
        for agent in &agents {
            let path = archive.program_path("locks").join(format!("{agent}.queue"));
            let wait = WaitLimit {
                clock,
                timeout: end.saturating_duration_since(clock.instant()),
                is_cancelled: &|| false,
            };
            places.extend(acquire(open_lock_file(archive, &path)?, &path, 1, &wait)?);
        }
        for agent in agents {
            while describe_holder(archive, agent).is_some() && self.wait_lock_interval() {}
        }
        Ok(LockQueue { _permits: places })
    }

    /// Lets some time pass for a lock to be given back; false when there is none left.
    pub fn wait_lock_interval(&self) -> bool {
        let clock = self.clock();
        let end = self.lock_deadline.unwrap_or_else(|| clock.instant());
        let left = end.saturating_duration_since(clock.instant());
        if !left.is_zero() {
            clock.sleep(left.min(LOCK_POLL_INTERVAL));
        }
        !left.is_zero()
    }

    /// Holds the lock of an agent as a run does, until the result is dropped,
    /// without doing anything to the agent.
    ///
    /// # Errors
    /// An agent that is not configured, [`ErrorKind::Busy`] when a run has the lock,
    /// or what the system answered.
    pub fn hold_agent_lock(&self, agent: &str) -> Result<AgentLock> {
        let holder = LockHolder {
            pid: std::process::id(),
            user: self.setup.user.clone(),
            since: self.clock().now(),
            run: super::reset::new_run_id(),
        };
        acquire_agent_lock(self.archive(), &self.agent(agent)?.name, &holder)
    }
}

/// Who holds the lock of an agent, without touching it; `None` when nobody
/// does. A holder that wrote nothing down is an empty description.
pub fn describe_holder(archive: &Archive, agent: &str) -> Option<String> {
    let note = holder_path(archive, agent);
    // Not into a FIFO: that would wait for somebody who writes.
    let open =
        |path: &Path| durable::open_nofollow_nonblocking(path, OpenOptions::new().read(true));
    let locked = match open(&lock_path(archive, agent)) {
        // For a member of the archive's group.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => open(&note),
        file => file,
    };
    if sys::lock_conflict(locked.ok()?.as_fd()).ok()? != Some(LockConflict::Exclusive) {
        return None;
    }
    let holder = open(&note)
        .ok()
        .and_then(|mut file| wait_for_holder(&mut file));
    Some(holder.map_or_else(String::new, |holder| holder.describe()))
}

/// Opens the file of a lock. Another one in its place would be another lock, so it is
/// replaced only if others than its owner may open it and no run holds its lock.
fn open_lock_file(archive: &Archive, path: &Path) -> Result<File> {
    archive.open_or_create_directory(&Path::new(PROGRAM_DIRECTORY_NAME).join("locks"))?;
    let file = open_or_create(path)?;
    if archive.is_private(&file, path)? {
        return Ok(file);
    }
    // Two who both find such a file must not remove each other's.
    let guard_path = archive.program_path("locks").join(".replaced.lock");
    let guard = open_or_create(&guard_path)?;
    while !sys::try_lock(guard.as_fd()).with_path("lock", &guard_path)? {
        std::thread::sleep(HOLDER_READ_INTERVAL);
    }
    let file = open_or_create(path)?;
    let held =
        sys::lock_conflict(file.as_fd()).with_path("lock", path)? == Some(LockConflict::Exclusive);
    let file = match archive.is_private(&file, path)? || held {
        true => Ok(file),
        false => {
            std::fs::remove_file(path).with_path("replace", path)?;
            open_or_create(path)
        }
    };
    sys::unlock(guard.as_fd());
    file
}

fn open_or_create(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    durable::open_nofollow_nonblocking(path, options.mode(LOCK_FILE_MODE))
        .with_path("open the lock", path)
}

/// Whether a file that was opened at a path still stands there.
fn is_still_at(file: &File, path: &Path) -> bool {
    let identity = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
    let opened = file.metadata().map(identity);
    let stands = std::fs::symlink_metadata(path).map(identity);
    matches!((opened, stands), (Ok(opened), Ok(stands)) if opened == stands)
}

/// The file of an agent's lock.
fn lock_path(archive: &Archive, agent: &str) -> PathBuf {
    archive.program_path("locks").join(format!("{agent}.lock"))
}

/// The file in which the holder of an agent's lock is written down, which changes when
/// the lock is taken and given back.
pub(super) fn holder_path(archive: &Archive, agent: &str) -> PathBuf {
    match archive.has_group() {
        true => archive
            .program_path("locks")
            .join(format!("{agent}.holder")),
        false => lock_path(archive, agent),
    }
}

/// Who has just taken a lock writes it down a moment later.
fn wait_for_holder(file: &mut File) -> Option<LockHolder> {
    for _ in 0..HOLDER_READ_ATTEMPTS {
        if let Some(holder) = read_holder(file) {
            return Some(holder);
        }
        std::thread::yield_now();
    }
    None
}

fn read_holder(file: &mut File) -> Option<LockHolder> {
    let mut text = Vec::new();
    file.rewind().ok()?;
    file.take(4096).read_to_end(&mut text).ok()?;
    let line = text.split(|byte| *byte == b'\n').next()?;
    serde_json::from_slice(line).ok()
}
