//! One run at a time for each agent: a kernel lock on a file that agents cannot
//! write. A holder that died has let go; one that lives is named.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use chrono::{DateTime, FixedOffset};
use serde::{Deserialize, Serialize};

use super::Engine;
use crate::archive::{Archive, OWN};
use crate::clock::Clock;
use crate::durable;
use crate::error::{Error, Kind, PathContext, Result};
use crate::sys;

/// How often somebody who waits looks again.
const AGAIN: Duration = Duration::from_millis(50);

/// The length of the line in which a holder is written down.
const LINE: usize = 255;

/// How often the name of a holder is looked for in passing,
const LOOKS: usize = 2000;

/// and by whoever is refused, with a pause in between: on a busy machine whoever has
/// just taken the lock may have to wait for a processor before it can write.
const LOOKS_WHEN_REFUSED: usize = 500;
const BETWEEN: Duration = Duration::from_millis(2);

/// Who holds a lock, as the holder wrote it down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Process id.
    pub pid: u32,
    /// The operator's user name.
    pub user: String,
    /// Since when.
    pub since: DateTime<FixedOffset>,
    /// The run.
    pub run: String,
}

impl Holder {
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
pub struct Lock {
    file: File,
}

impl Drop for Lock {
    /// Closing it is not enough: a child that another thread is just starting
    /// has a copy of the descriptor until it becomes another program.
    fn drop(&mut self) {
        // Nobody is to be taken for the next one.
        let _ = self.file.write_at(b"\n", 0);
        sys::unlock(self.file.as_fd());
    }
}

/// Takes the lock of an agent.
///
/// # Errors
/// [`Kind::Busy`], naming the holder, when another run has it; else what the
/// system answered.
pub fn take(archive: &Archive, agent: &str, holder: &Holder) -> Result<Lock> {
    let path = path(archive, agent);
    let mut file = open(archive, &path)?;
    let mut looks = 0;
    // Who is refused is told by whom, and one that has let go meanwhile refuses nobody.
    while !sys::try_lock(file.as_fd()).path("lock", &path)? {
        let holder = read(&mut file);
        if holder.is_none() && looks < LOOKS_WHEN_REFUSED {
            looks += 1;
            std::thread::sleep(BETWEEN);
            continue;
        }
        let who = holder.map_or_else(|| "another run".to_string(), |it| it.describe());
        return Err(
            Error::new(Kind::Busy, format!("{agent} is locked by {who}"))
                .hint("wait until it has ended; nothing was changed"),
        );
    }
    // For people only: the lock itself is the kernel's, so a full disk is no
    // reason to give up. It is one line, written over the one before: a file
    // whose length stays costs no journal.
    if let Ok(text) = serde_json::to_string(holder) {
        let _ = file.write_all_at(format!("{text:<LINE$}\n").as_bytes(), 0);
    }
    Ok(Lock { file })
}

/// The places of one who waits for locks: whoever waits for one of them, too,
/// comes next. Given back when it is dropped.
#[derive(Debug)]
pub struct Queue {
    _places: Vec<File>,
}

/// Takes the lock under which pins change and entries are deleted.
///
/// # Errors
/// As [`durable::lock`].
pub fn pins(archive: &Archive, clock: &dyn Clock) -> Result<Lock> {
    archive.folder(&Path::new(OWN).join("locks"))?;
    // No agent has such a name.
    let path = archive.own("locks").join(".pins.lock");
    let file = durable::open_as_is(
        &path,
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(archive.file_mode().as_raw_mode()),
    )
    .path("open the lock", &path)?;
    archive.dress_own(&file, &path)?;
    durable::lock(&file, &path, clock)?;
    Ok(Lock { file })
}

impl Engine {
    /// Waits, no longer than `patience`, until nobody holds the locks of these
    /// agents. Those who wait come one after the other, if they keep the result
    /// until they have taken the locks. They hold none meanwhile, so that two
    /// who want several never wait for each other.
    ///
    /// When the time is over it just ends: then a lock is taken or refused as
    /// ever.
    ///
    /// # Errors
    /// What the system answered.
    pub fn wait_for<'n>(
        &self,
        agents: impl IntoIterator<Item = &'n str>,
        patience: Duration,
    ) -> Result<Queue> {
        let archive = self.archive();
        let end = self.clock().instant() + patience;
        let mut agents: Vec<&str> = agents.into_iter().collect();
        // Everybody in the same order, each place once.
        agents.sort_unstable();
        agents.dedup();
        let mut places = Vec::new();
        for agent in &agents {
            let path = archive.own("locks").join(format!("{agent}.queue"));
            let place = open(archive, &path)?;
            while !sys::try_lock(place.as_fd()).path("lock", &path)? {
                if !self.again(end) {
                    break;
                }
            }
            places.push(place);
        }
        for agent in agents {
            while holder(archive, agent).is_some() && self.again(end) {}
        }
        Ok(Queue { _places: places })
    }

    /// Lets some time pass; false when there is none left.
    fn again(&self, end: Instant) -> bool {
        let left = end.saturating_duration_since(self.clock().instant());
        if left.is_zero() {
            return false;
        }
        self.clock().sleep(left.min(AGAIN));
        true
    }

    /// Holds the lock of an agent as a run does, until the result is dropped,
    /// without doing anything to the agent.
    ///
    /// # Errors
    /// An agent that is not configured, [`Kind::Busy`] when a run has the lock,
    /// or what the system answered.
    pub fn hold(&self, agent: &str) -> Result<Lock> {
        let holder = Holder {
            pid: std::process::id(),
            user: self.setup.user.clone(),
            since: self.clock().now(),
            run: super::reset::run_id(),
        };
        take(self.archive(), &self.agent(agent)?.name, &holder)
    }
}

/// Who holds the lock of an agent, without touching it; `None` when nobody
/// does. A holder that wrote nothing down is an empty description.
pub fn holder(archive: &Archive, agent: &str) -> Option<String> {
    // Not into a FIFO: that would wait for somebody who writes.
    let mut file =
        durable::open_as_is(&path(archive, agent), OpenOptions::new().read(true)).ok()?;
    if !sys::is_locked(file.as_fd()).ok()? {
        return None;
    }
    Some(named(&mut file).map_or_else(String::new, |holder| holder.describe()))
}

/// Opens the file of a lock, which nobody ever removes: another one in its place
/// would be another lock.
fn open(archive: &Archive, path: &Path) -> Result<File> {
    archive.folder(&Path::new(OWN).join("locks"))?;
    let file = durable::open_as_is(
        path,
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(archive.file_mode().as_raw_mode()),
    )
    .path("open the lock", path)?;
    archive.dress_own(&file, path)?;
    Ok(file)
}

/// The file of an agent's lock.
pub(super) fn path(archive: &Archive, agent: &str) -> PathBuf {
    archive.own("locks").join(format!("{agent}.lock"))
}

/// Who has just taken a lock writes it down a moment later.
fn named(file: &mut File) -> Option<Holder> {
    for _ in 0..LOOKS {
        if let Some(holder) = read(file) {
            return Some(holder);
        }
        std::thread::yield_now();
    }
    None
}

fn read(file: &mut File) -> Option<Holder> {
    let mut text = Vec::new();
    file.rewind().ok()?;
    file.take(4096).read_to_end(&mut text).ok()?;
    let line = text.split(|byte| *byte == b'\n').next()?;
    serde_json::from_slice(line).ok()
}
