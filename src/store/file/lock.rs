//! Locks between runs: kernel locks on files that only their owner may open. The death of a holder
//! releases its lock; a refusal names a living holder.
//!
//! `<archive_dir>/.shepherd/locks/`; only one of these files is ever removed (below):
//!
//! | file | holder of its lock |
//! |---|---|
//! | `AGENT.lock` | the run that works on an agent, or the command that prunes its entries |
//! | `AGENT.queue` | the run that waits for that run to end |
//! | `.ledger.lock` | a process that appends to the ledger, or replaces its active file |
//! | `.index.lock` | a process that changes the search index |
//! | `.index-turn.lock` | a search that begins to read it, or a process that waits to replace its file |
//! | `.index-use.lock` | up to [`MAX_INDEX_USERS`] searches that read it, or a process that replaces its file |
//! | `.pins.lock` | a process that changes pins or deletes entries |
//! | `.replace.lock` | up to [`MAX_REPLACING_RUNS`] runs that replace memories |
//! | `.alerts.lock`, `.schedule.lock`, `.accepted-seal.lock`, `.serials.lock`, `.replacing.lock` | a process that changes a [`Hold`] |
//! | `.alert-delivery.lock` | the process that delivers alerts |
//! | `.scheduler-HASH.lock` | `schedule run` of a config, whose path has this hash |
//! | `.versions.lock` | a process that deletes baseline versions: see `versions` |
//!
//! All of them have mode 0600, also with `archive_group`: a user who may open a file for reading
//! can hold a shared lock on it for ever, and so block every run. Members of the group see the
//! names of these files, and read in `AGENT.holder`, of mode 0640, which run holds an agent since
//! when. A lock that they take on that file, on the ledger or on an entry blocks no run; it can
//! hide a run from other members.

mod lock_directory;

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::semaphore::{Permit, WaitLimit, acquire, try_acquire_all};
use crate::archive::{Archive, PROGRAM_DIRECTORY_NAME};
use crate::base::clock::Clock;
use crate::base::digest::Digest;
use crate::base::durable;
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::base::moment::Zone;
use crate::base::sys::{self, LockConflict};
use crate::config::config_identity;
use crate::store::controller::Controller;
use crate::store::file::Locks;
use crate::store::holds::Hold;
use crate::store::lease::{HeldLock, Lease, LeaseSurvey, Leases, LockHolder, describe_lock};
use crate::store::ledger::Ledger;
use crate::store::record::new_run_id;
use lock_directory::LockDirectory;

/// Maximum number of runs that replace memories at the same time. It bounds the records that wait
/// for the ledger and must not be given up. The error of [`ArchiveLock::Replacing`] names it, too.
const MAX_REPLACING_RUNS: u64 = 16;

/// Maximum number of editors, seals and restores of baselines at the same time.
const MAX_BASELINE_EDITS: u64 = 64;

/// Maximum number of searches that read the index at the same time.
const MAX_INDEX_USERS: u64 = 64;

/// Maximum wait for searches that read the index.
const INDEX_USERS_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum wait for the ledger, for the pins or for a permit to replace memories.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// Name of the lock for changes of the seal and of baseline files.
pub(crate) const SEAL_LOCK_FILE_NAME: &str = ".seal.lock";

/// Interval at which a waiting run checks whether a lock is free.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Mode of every lock file.
const LOCK_FILE_MODE: u32 = 0o600;

/// Length of the line that describes the holder, padded with spaces.
const HOLDER_LINE_BYTES: usize = 255;

/// Attempts to read a new holder's description, without a pause.
const HOLDER_READ_ATTEMPTS: usize = 2000;

/// Attempts after a refusal, with a pause in between: on a busy machine a new holder may wait for a
/// processor before it can write its description.
const HOLDER_READ_ATTEMPTS_ON_REFUSAL: usize = 500;
const HOLDER_READ_INTERVAL: Duration = Duration::from_millis(2);

/// Attempts to lock the guard of replaced lock files, with the same pause: two seconds.
const MAX_REPLACE_ATTEMPTS: usize = 1000;

/// The lock of an agent; dropping it releases the lock.
struct AgentLock {
    controller: Arc<Controller>,
    file: File,
    path: PathBuf,
    /// The file with the holder's description, if that is not the lock file itself.
    holder_file: Option<File>,
    token: u64,
}

impl fmt::Debug for AgentLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the lock {}", self.path.display())
    }
}

impl Lease for AgentLock {
    fn token(&self) -> u64 {
        self.token
    }

    fn check(&self) -> Result<()> {
        // An archive that was moved away took its locks with it.
        self.controller.archive().check_root()?;
        if find_still_at(&self.file, &self.path).with_path("stat", &self.path)? {
            return Ok(());
        }
        let message = format!(
            "{} was removed or replaced while its lock was held: another run may work on the agent",
            self.path.display()
        );
        Err(Error::new(ErrorKind::Busy, message)
            .with_hint("nothing was changed; leave the lock files in place, and try again"))
    }
}

impl Drop for AgentLock {
    /// Unlocks explicitly: a child process that another thread is just starting has a copy of the
    /// descriptor until it executes its program, so a close would not release the lock.
    fn drop(&mut self) {
        // The next holder must not be taken for this one.
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

/// The locks of agents as leases. The token of a grant is the number of the next record of the ledger,
/// as far as this process knows it: the lock itself keeps others from the agent.
pub(crate) struct FileLeases {
    controller: Arc<Controller>,
    ledger: Arc<dyn Ledger>,
}

impl FileLeases {
    /// Creates the leases; reads and writes nothing yet.
    pub fn new(controller: &Arc<Controller>, ledger: &Arc<dyn Ledger>) -> FileLeases {
        FileLeases {
            controller: Arc::clone(controller),
            ledger: Arc::clone(ledger),
        }
    }
}

impl Leases for FileLeases {
    fn acquire(&self, agent: &str, holder: &LockHolder) -> Result<Arc<dyn Lease>> {
        let archive = self.controller.archive();
        let zone = self.controller.clock().zone();
        let (file, holder_file) = acquire_agent_lock(archive, agent, holder, zone)?;
        Ok(Arc::new(AgentLock {
            controller: Arc::clone(&self.controller),
            file,
            path: lock_path(archive, agent),
            holder_file,
            token: self.ledger.known_head().0 + 1,
        }))
    }

    fn find_held(&self, agent: &str) -> Option<HeldLock> {
        find_held_lock(self.controller.archive(), agent)
    }

    fn survey(&self) -> Box<dyn LeaseSurvey> {
        Box::new(LockDirectory::open(self.controller.archive()))
    }

    fn watched_path(&self, agent: &str) -> PathBuf {
        holder_path(self.controller.archive(), agent)
    }
}

/// Acquires the lock of an agent. Returns its file, and the one with the holder's description, if that
/// is another one.
///
/// # Errors
/// [`ErrorKind::Busy`], naming the holder, when another run has it; otherwise the system's error.
fn acquire_agent_lock(
    archive: &Archive,
    agent: &str,
    holder: &LockHolder,
    zone: Zone,
) -> Result<(File, Option<File>)> {
    let path = lock_path(archive, agent);
    let mut file = open_lock_file(archive, &path)?;
    let mut read_attempts = 0;
    // A refusal names the holder; a holder that has released the lock since refuses no run.
    loop {
        if sys::try_lock(file.as_fd()).with_path("lock", &path)? {
            if is_still_at(&file, &path) {
                break;
            }
            // The file was replaced between open and lock.
            file = open_lock_file(archive, &path)?;
            continue;
        }
        let mut options = OpenOptions::new();
        let note =
            durable::open_nofollow_nonblocking(&holder_path(archive, agent), options.read(true));
        let found = note.ok().and_then(|mut file| read_holder(&mut file));
        if found.is_none() && read_attempts < HOLDER_READ_ATTEMPTS_ON_REFUSAL {
            read_attempts += 1;
            std::thread::sleep(HOLDER_READ_INTERVAL);
            continue;
        }
        // The run that is refused takes the lock at this moment.
        let message = describe_lock(found.as_ref(), holder.since, zone);
        return Err(Error::new(ErrorKind::Busy, message)
            .with_hint("wait for that run to end; nothing was changed"));
    }
    let holder_file = open_holder_file(archive, agent);
    write_holder(holder_file.as_ref().unwrap_or(&file), holder);
    Ok((file, holder_file))
}

/// Writes the holder of a lock into a file. The description is for people only: the kernel holds the
/// lock, so a full disk does not prevent it. It is one line that overwrites the one before: a file of
/// constant length needs no journal.
fn write_holder(file: &File, holder: &LockHolder) {
    if let Ok(text) = serde_json::to_string(holder) {
        let _ = file.write_all_at(format!("{text:<HOLDER_LINE_BYTES$}\n").as_bytes(), 0);
    }
}

/// Opens the file in which members of the archive's group read the holder of a lock, and locks it
/// if possible; none without a group.
fn open_holder_file(archive: &Archive, agent: &str) -> Option<File> {
    if !archive.permissions().has_group() {
        return None;
    }
    let path = holder_path(archive, agent);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.mode(archive.permissions().file_mode().as_raw_mode());
    let file = durable::open_nofollow_nonblocking(&path, &mut options).ok()?;
    archive.permissions().repair_own_file(&file, &path).ok()?;
    let _ = sys::try_lock(file.as_fd());
    Some(file)
}

/// A lock of the archive that does not say who holds it. Where it has several permits, several
/// processes can have one each, and another one can take all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveLock {
    /// For changes of pins and the deletion of entries.
    Pins,
    /// For appends to the ledger.
    Ledger,
    /// For changes of the seal and of baseline files.
    Seal,
    /// For operators who edit baselines. The guard takes all permits while it restores one.
    BaselineEdits,
    /// For changes of the search index.
    Index,
    /// For processes that are about to take [`ArchiveLock::IndexUse`]: without a turn, searches that
    /// follow each other would never leave a gap.
    IndexTurn,
    /// For searches that read the index. A process that replaces its file takes all permits.
    IndexUse,
    /// For changes of the last known states.
    States,
    /// For runs that replace memories.
    Replacing,
}

impl ArchiveLock {
    /// Returns the name of its file, its number of permits, and the error for those who wait too long.
    #[rustfmt::skip]
    fn row(self) -> (&'static str, u64, &'static str) {
        match self {
            ArchiveLock::Pins => (".pins.lock", 1, "the pins are locked by another process"),
            ArchiveLock::Ledger => (".ledger.lock", 1, "the ledger is locked by another process"),
            ArchiveLock::Seal => (SEAL_LOCK_FILE_NAME, 1, "the seal is locked by another process"),
            ArchiveLock::BaselineEdits => (".edit.lock", MAX_BASELINE_EDITS, "the guard is restoring a baseline"),
            ArchiveLock::Index => (".index.lock", 1, "the search index is being updated by another process"),
            ArchiveLock::IndexTurn => (".index-turn.lock", 1, "the search index is being replaced by another process"),
            ArchiveLock::IndexUse => (".index-use.lock", MAX_INDEX_USERS, "the search index is being replaced by another process"),
            ArchiveLock::States => (".states.lock", 1, "the states are locked by another process"),
            ArchiveLock::Replacing => (".replace.lock", MAX_REPLACING_RUNS, "16 other runs are replacing memories"),
        }
    }

    fn open(self, archive: &Archive) -> Result<(File, PathBuf)> {
        let (name, ..) = self.row();
        let path = archive.program_path("locks").join(name);
        Ok((open_lock_file(archive, &path)?, path))
    }

    /// Checks that the lock can be taken once it is free.
    ///
    /// # Errors
    /// The system's error.
    pub fn check(self, archive: &Archive) -> Result<()> {
        self.open(archive).map(drop)
    }

    /// Takes all permits; none while another process has one or waits for one.
    ///
    /// # Errors
    /// The system's error.
    pub fn try_acquire_all(self, archive: &Archive) -> Result<Option<Permit>> {
        let (file, path) = self.open(archive)?;
        try_acquire_all(file, &path)
    }

    /// Takes a permit; none while other processes have all of them or wait for one.
    ///
    /// # Errors
    /// The system's error.
    pub fn try_acquire(self, archive: &Archive, clock: &dyn Clock) -> Result<Option<Permit>> {
        self.acquire_within(archive, clock, Duration::ZERO, &|| true)
    }

    /// Takes a permit, and waits for it up to a minute.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] when other processes have all permits for longer, otherwise the system's
    /// error.
    pub fn acquire(self, archive: &Archive, clock: &dyn Clock) -> Result<Permit> {
        self.acquire_unless(archive, clock, &|| false)
    }

    /// As [`ArchiveLock::acquire`]; `is_cancelled` ends the wait.
    ///
    /// # Errors
    /// As [`ArchiveLock::acquire`], also for a wait that was cancelled.
    pub fn acquire_unless(
        self,
        archive: &Archive,
        clock: &dyn Clock,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Permit> {
        let permit = self.acquire_within(archive, clock, LOCK_TIMEOUT, is_cancelled)?;
        permit.ok_or_else(|| {
            let (name, _, busy) = self.row();
            let path = archive.program_path("locks").join(name);
            let who = format!("run `fuser -v {}` to list the processes", path.display());
            let message = format!("{busy}; gave up after one minute");
            Error::new(ErrorKind::Busy, message).with_hint(who)
        })
    }

    fn acquire_within(
        self,
        archive: &Archive,
        clock: &dyn Clock,
        timeout: Duration,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Option<Permit>> {
        let (_, permits, _) = self.row();
        let (file, path) = self.open(archive)?;
        let wait = WaitLimit {
            clock,
            timeout,
            is_cancelled,
        };
        acquire(file, &path, permits, &wait)
    }
}

/// Marks that a search reads the index, until the result is dropped: until then no process
/// replaces its file. Several processes can hold it at the same time.
///
/// # Errors
/// As [`ArchiveLock::acquire`], while a process replaces the index.
pub fn mark_index_use(archive: &Archive, clock: &dyn Clock) -> Result<Permit> {
    let _turn = ArchiveLock::IndexTurn.acquire(archive, clock)?;
    ArchiveLock::IndexUse.acquire(archive, clock)
}

/// Keeps searches from reading the index, so that its file can be replaced. Waits for those in
/// progress; later ones wait for it.
///
/// # Errors
/// [`ErrorKind::Busy`] when one goes on for long, otherwise the system's error.
pub fn exclude_index_users(archive: &Archive, clock: &dyn Clock) -> Result<Permit> {
    let _turn = ArchiveLock::IndexTurn.acquire(archive, clock)?;
    let end = clock.instant() + INDEX_USERS_TIMEOUT;
    loop {
        if let Some(permit) = ArchiveLock::IndexUse.try_acquire_all(archive)? {
            return Ok(permit);
        }
        if clock.instant() >= end {
            let message = "the search index is in use by another process";
            return Err(Error::new(ErrorKind::Busy, message));
        }
        clock.sleep(LOCK_POLL_INTERVAL);
    }
}

/// A lock that one process holds for long, and in which it says who it is; dropping it releases it.
#[derive(Debug)]
pub struct HolderLock {
    /// The lock file, which describes the holder.
    file: File,
    path: PathBuf,
    _permit: Permit,
}

impl Drop for HolderLock {
    fn drop(&mut self) {
        // The next holder must not be taken for this one.
        let _ = self.file.write_at(b"\n", 0);
    }
}

/// Whether a process has a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockUse {
    /// It is free.
    Free,
    /// A process holds it.
    Held,
    /// This user may not know.
    Unknown,
}

/// Finds out whether a process is changing baselines or their seal, without taking its lock. A lock
/// that other users may open says nothing: one of them could hold it for ever.
pub(crate) fn find_seal_writer(archive: &Archive) -> LockUse {
    let path = archive.program_path("locks").join(SEAL_LOCK_FILE_NAME);
    let file = match durable::open_own_file(&path, OpenOptions::new().read(true)) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return LockUse::Unknown,
        Err(_) => return LockUse::Free,
        Ok(file) => file,
    };
    let is_private = file.metadata().is_ok_and(|it| it.mode() & 0o077 == 0);
    match sys::lock_conflict(file.as_fd()) {
        Ok(Some(LockConflict::Exclusive)) if is_private => LockUse::Held,
        _ => LockUse::Free,
    }
}

/// What a lock with a holder is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HolderLockKind {
    /// A document of the store; held while it is read and written.
    Hold(Hold),
    /// The delivery of alerts; held while it lasts.
    AlertDelivery,
    /// The schedule of a config; held by its `schedule run`.
    Scheduler,
}

impl Locks {
    /// Makes the runs of this process wait up to `timeout`, from now, for agents that other runs have
    /// locked. A second call changes nothing.
    pub(crate) fn set_timeout(&self, timeout: Duration) {
        if !timeout.is_zero() {
            let end = self.controller.clock().instant() + timeout;
            let _ = self.deadline.set(end);
        }
    }

    /// Returns whether runs wait for agents that other runs have locked.
    pub fn has_timeout(&self) -> bool {
        self.deadline.get().is_some()
    }

    /// Tries to take a lock, and writes who holds it.
    ///
    /// # Errors
    /// The archive cannot be written.
    pub fn try_lock_with_holder(&self, kind: HolderLockKind) -> Result<Option<HolderLock>> {
        let path = self.holder_lock_path(kind);
        let file = open_lock_file(self.controller.archive(), &path)?;
        let description = file.try_clone().with_path("lock", &path)?;
        let Some(permit) = try_acquire_all(file, &path)? else {
            return Ok(None);
        };
        write_holder(&description, &self.new_lock_holder(""));
        Ok(Some(HolderLock {
            file: description,
            path,
            _permit: permit,
        }))
    }

    /// Returns whether a lock that was taken earlier is the one that other processes find in the
    /// archive now. Another archive has another one, and so has an archive that was deleted and created
    /// again.
    pub fn is_lock_in_force(&self, lock: &HolderLock, kind: HolderLockKind) -> bool {
        lock.path == self.holder_lock_path(kind) && is_still_at(&lock.file, &lock.path)
    }

    /// Finds the holder of a lock without taking it; none when it is free, and no description for a
    /// holder that has not written who it is.
    pub fn find_lock_holder_of(&self, kind: HolderLockKind) -> Option<Option<LockHolder>> {
        let path = self.holder_lock_path(kind);
        let opened = durable::open_nofollow_nonblocking(&path, OpenOptions::new().read(true));
        let mut file = opened.ok()?;
        let conflict = sys::lock_conflict(file.as_fd()).ok()?;
        (conflict == Some(LockConflict::Exclusive)).then(|| read_holder(&mut file))
    }

    pub(crate) fn holder_lock_path(&self, kind: HolderLockKind) -> PathBuf {
        let name = match kind {
            HolderLockKind::Hold(Hold::Schedule) => ".schedule.lock".to_string(),
            HolderLockKind::Hold(Hold::Alerts) => ".alerts.lock".to_string(),
            HolderLockKind::Hold(Hold::AcceptedSeal) => ".accepted-seal.lock".to_string(),
            HolderLockKind::Hold(Hold::SealSerials) => ".serials.lock".to_string(),
            HolderLockKind::Hold(Hold::BaselineChanges) => ".replacing.lock".to_string(),
            HolderLockKind::Hold(Hold::Health) => ".health.lock".to_string(),
            HolderLockKind::AlertDelivery => ".alert-delivery.lock".to_string(),
            // Configs may share an archive.
            HolderLockKind::Scheduler => {
                let config = config_identity(&self.controller.config().path);
                let hash = Digest::of(config.as_os_str().as_bytes()).short_hex(8);
                format!(".scheduler-{hash}.lock")
            }
        };
        self.controller.archive().program_path("locks").join(name)
    }
}

/// Places in the queues of agents' locks. Runs that wait for the same agent take turns; dropping
/// this gives up the places.
#[derive(Debug)]
pub struct LockQueue {
    _permits: Vec<Permit>,
}

impl Locks {
    /// Waits until no run holds the locks of these agents, if runs of this process wait at all
    /// (`Engine::with_lock_timeout`). Waiting runs take turns,
    /// provided that each keeps the result until it has ended. They hold no agent's lock while they
    /// wait, so two runs that want several agents never deadlock.
    ///
    /// A timeout is not an error here: acquiring the lock then succeeds or fails as without a wait. The
    /// wait ends early once `is_cancelled` returns true.
    ///
    /// # Errors
    /// The system's error.
    pub fn wait_for_locks<'n>(
        &self,
        agents: impl IntoIterator<Item = &'n str>,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<LockQueue> {
        let archive = self.controller.archive();
        let clock = self.controller.clock();
        let mut places = Vec::new();
        let Some(end) = self.deadline.get().copied() else {
            return Ok(LockQueue { _permits: places });
        };
        let _span = tracing::debug_span!("wait for locks").entered();
        let mut agents: Vec<&str> = agents.into_iter().collect();
        // All runs queue in the same order, which excludes a deadlock.
        agents.sort_unstable();
        agents.dedup();
        for agent in &agents {
            let path = archive.program_path("locks").join(format!("{agent}.queue"));
            let wait = WaitLimit {
                clock,
                timeout: end.saturating_duration_since(clock.instant()),
                is_cancelled,
            };
            places.extend(acquire(open_lock_file(archive, &path)?, &path, 1, &wait)?);
        }
        for agent in agents {
            while self.leases.is_held(agent) && !is_cancelled() && self.wait_lock_interval() {}
        }
        Ok(LockQueue { _permits: places })
    }

    /// Sleeps for one poll interval; false when the deadline has passed.
    pub fn wait_lock_interval(&self) -> bool {
        let clock = self.controller.clock();
        let end = self
            .deadline
            .get()
            .copied()
            .unwrap_or_else(|| clock.instant());
        let left = end.saturating_duration_since(clock.instant());
        if !left.is_zero() {
            clock.sleep(left.min(LOCK_POLL_INTERVAL));
        }
        !left.is_zero()
    }

    /// Returns the run that holds the lock of an agent now; none if the lock is free, or its holder has
    /// not written who it is.
    pub fn lock_holder(&self, agent: &str) -> Option<LockHolder> {
        self.leases.find_held(agent)?.holder
    }

    /// Returns the locks of agents that runs hold now.
    pub fn held_locks(&self) -> Vec<HeldLock> {
        let agents = self.controller.config().agents.iter();
        agents
            .filter_map(|agent| self.leases.find_held(&agent.name))
            .collect()
    }

    /// Returns the description of a run of this engine that takes a lock now.
    pub(crate) fn new_lock_holder(&self, run: &str) -> LockHolder {
        let machine = rustix::system::uname();
        LockHolder {
            pid: std::process::id(),
            user: self.controller.user().to_string(),
            since: self.controller.clock().now(),
            run: run.to_string(),
            trigger: self.controller.trigger(),
            host: machine.nodename().to_string_lossy().into_owned(),
        }
    }

    /// Holds the lock of an agent as a run does, until the result is dropped, and leaves the agent
    /// unchanged.
    ///
    /// # Errors
    /// An agent that is not configured, [`ErrorKind::Busy`] when a run has the lock, or the
    /// system's error.
    pub fn hold_agent_lock(&self, agent: &str) -> Result<Arc<dyn Lease>> {
        let holder = self.new_lock_holder(&new_run_id());
        let agent = &self.controller.agent(agent)?.name;
        self.leases.acquire(agent, &holder)
    }
}

/// Finds the holder of an agent's lock without taking the lock; none when it is free.
fn find_held_lock(archive: &Archive, agent: &str) -> Option<HeldLock> {
    find_held_lock_with(archive, agent, |path| {
        durable::open_nofollow_nonblocking(path, OpenOptions::new().read(true))
    })
}

/// As [`find_held_lock`]; `open` opens a file of the directory of locks.
fn find_held_lock_with(
    archive: &Archive,
    agent: &str,
    open: impl Fn(&Path) -> io::Result<File>,
) -> Option<HeldLock> {
    let locked = match open(&lock_path(archive, agent)) {
        // Members of the archive's group may only read the holder's file.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open(&holder_path(archive, agent))
        }
        file => file,
    };
    if sys::lock_conflict(locked.ok()?.as_fd()).ok()? != Some(LockConflict::Exclusive) {
        return None;
    }
    let holder = open(&holder_path(archive, agent))
        .ok()
        .and_then(|mut file| wait_for_holder(&mut file));
    Some(HeldLock {
        agent: agent.to_string(),
        holder,
    })
}

/// Opens a lock file, which its owner alone may open. If others may, one of them can have it open and
/// lock it for ever: then it is replaced, unless a run holds its lock, since a new file at its path is
/// another lock.
pub(crate) fn open_lock_file(archive: &Archive, path: &Path) -> Result<File> {
    archive.open_or_create_directory(&Path::new(PROGRAM_DIRECTORY_NAME).join("locks"))?;
    let file = open_or_create(path)?;
    if archive.permissions().is_private(&file, path)? {
        return Ok(file);
    }
    // Two processes that both find such a file must not remove each other's replacement.
    let guard_path = archive.program_path("locks").join(".replaced.lock");
    let guard = open_or_create(&guard_path)?;
    let mut attempts = 0;
    while !sys::try_lock(guard.as_fd()).with_path("lock", &guard_path)? {
        attempts += 1;
        if attempts == MAX_REPLACE_ATTEMPTS {
            let path = guard_path.display();
            let message = format!("{path} has been locked by another process for 2 s");
            let hint = format!("run `fuser -v {path}` to list the processes");
            return Err(Error::new(ErrorKind::Busy, message).with_hint(hint));
        }
        std::thread::sleep(HOLDER_READ_INTERVAL);
    }
    let file = open_or_create(path)?;
    let held =
        sys::lock_conflict(file.as_fd()).with_path("lock", path)? == Some(LockConflict::Exclusive);
    let file = if archive.permissions().is_private(&file, path)? || held {
        Ok(file)
    } else {
        std::fs::remove_file(path).with_path("replace", path)?;
        open_or_create(path)
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

/// Returns whether the path still leads to this open file.
pub(crate) fn is_still_at(file: &File, path: &Path) -> bool {
    find_still_at(file, path).unwrap_or(false)
}

/// As [`is_still_at`], with the errors of the system.
fn find_still_at(file: &File, path: &Path) -> io::Result<bool> {
    let opened = file.metadata()?;
    match std::fs::symlink_metadata(path) {
        Err(error) if durable::is_absent(&error) => Ok(false),
        stands => {
            let stands = stands?;
            Ok((opened.dev(), opened.ino()) == (stands.dev(), stands.ino()))
        }
    }
}

/// Path of an agent's lock file.
fn lock_path(archive: &Archive, agent: &str) -> PathBuf {
    archive.program_path("locks").join(format!("{agent}.lock"))
}

/// Path of the file that describes the holder of an agent's lock; it changes when the lock is
/// acquired and released.
fn holder_path(archive: &Archive, agent: &str) -> PathBuf {
    if archive.permissions().has_group() {
        archive
            .program_path("locks")
            .join(format!("{agent}.holder"))
    } else {
        lock_path(archive, agent)
    }
}

/// Reads the holder's description, which a new holder writes just after it has the lock.
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
