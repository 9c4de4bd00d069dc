//! Calls to file systems that may hang.
//!
//! A call to a dead mount (NFS, FUSE, a frozen disk) waits in the kernel and cannot be cancelled.
//! Such calls therefore run on another thread, which the caller abandons when it does not return
//! within a time limit. Until that thread returns, every further call to its file system fails at
//! once.
//!
//! The file systems that the archive's path crosses are trusted, because a run can record nothing
//! without them. Calls to them are made directly, so a small fleet on one disk starts no thread.

pub mod ancestry;
mod mounts;
mod positions;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{
    Receiver, RecvTimeoutError, Sender, after, bounded, select_biased, unbounded,
};

use self::mounts::{
    DeviceNumber, MountTable, MountTableCache, crossed_file_systems, is_at_or_below, is_plain,
};
pub use self::positions::{
    PathPositions, SpellingDifference, hash_path, resolve_parent_components,
};
use crate::base::clock::Clock;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::threads::map_on_processors;

/// The total time of a call, in multiples of the time limit between two reports: a call that keeps
/// reporting must end as well.
const MAX_LIMITS_PER_CALL: u32 = 4;

/// The slowest transfer, in bytes per second, that extends the total time of a call.
const MIN_BYTES_PER_SECOND: u64 = 4096;

/// How long an idle thread waits for its next call before it ends.
const IDLE_THREAD_TIMEOUT: Duration = Duration::from_secs(5);

/// The file systems of this machine.
pub struct FileSystems {
    mount_table: MountTableCache,
    archive_path: PathBuf,
    call_timeout: Duration,
    clock: Arc<dyn Clock>,
    /// By the devices that a path crosses and the archive's path does not.
    untrusted_by_devices: Mutex<HashMap<Vec<DeviceNumber>, Arc<FileSystem>>>,
    trusted_devices: Mutex<Option<Arc<TrustedDevices>>>,
}

/// The devices that the archive's path crosses, and the mount table that they were read from.
struct TrustedDevices {
    table: Arc<MountTable>,
    devices: BTreeMap<DeviceNumber, PathBuf>,
    /// The mount points of all other devices.
    other_points: Vec<PathBuf>,
}

impl FileSystems {
    /// Trusts the file systems of `archive`. A call to any other is abandoned when it reports
    /// nothing for `limit`, or takes four times `limit` in addition to the time that its bytes may
    /// take.
    pub fn new(archive: &Path, limit: Duration, clock: Arc<dyn Clock>) -> FileSystems {
        FileSystems {
            mount_table: MountTableCache::new(),
            archive_path: archive.to_path_buf(),
            call_timeout: limit,
            clock,
            untrusted_by_devices: Mutex::default(),
            trusted_devices: Mutex::default(),
        }
    }

    /// Returns the file system that a call about `path` may wait for, or None if it is trusted.
    /// Paths with the same result wait for each other, others do not.
    pub fn find_untrusted(&self, path: &Path) -> Option<Arc<FileSystem>> {
        self.find_untrusted_in(&self.current_trusted_devices(), path)
    }

    /// Returns the result of [`FileSystems::find_untrusted`] for each path, from one read of the
    /// mount table.
    pub fn find_untrusted_all<'p>(
        &self,
        paths: impl IntoIterator<Item = &'p (impl AsRef<Path> + ?Sized + 'p)>,
    ) -> Vec<Option<Arc<FileSystem>>> {
        let trusted = self.current_trusted_devices();
        paths
            .into_iter()
            .map(|path| self.find_untrusted_in(&trusted, path.as_ref()))
            .collect()
    }

    fn find_untrusted_in(&self, trusted: &TrustedDevices, path: &Path) -> Option<Arc<FileSystem>> {
        let TrustedDevices {
            table,
            devices,
            other_points,
        } = trusted;
        let spelled = (path, is_plain(path));
        if !other_points
            .iter()
            .any(|point| is_at_or_below(spelled, point))
        {
            return None;
        }
        let mut other: BTreeMap<DeviceNumber, PathBuf> = crossed_file_systems(table, path);
        other.retain(|device, _| !devices.contains_key(device));
        let (devices, points): (Vec<DeviceNumber>, Vec<PathBuf>) = other.into_iter().unzip();
        let mut known = self
            .untrusted_by_devices
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let found = known.entry(devices).or_insert_with(|| {
            let clock = Arc::clone(&self.clock);
            Arc::new(FileSystem::new(points, self.call_timeout, clock))
        });
        Some(Arc::clone(found))
    }

    /// Returns the devices that the archive's path crosses now.
    fn current_trusted_devices(&self) -> Arc<TrustedDevices> {
        let table = self.mount_table.current();
        let mut trusted = self
            .trusted_devices
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*trusted
            && Arc::ptr_eq(&known.table, &table)
        {
            return Arc::clone(known);
        }
        let devices = crossed_file_systems(&table, &self.archive_path);
        let others = table
            .iter()
            .filter(|(_, mount)| !devices.contains_key(&mount.device));
        let other_points = others.map(|(point, _)| point.clone()).collect();
        Arc::clone(trusted.insert(Arc::new(TrustedDevices {
            table,
            devices,
            other_points,
        })))
    }

    /// Returns the positions of paths by the mount table as it is now; `known`, where the table is
    /// still the one that these were made from.
    pub fn current_positions(&self, known: Option<Arc<PathPositions>>) -> Arc<PathPositions> {
        let table = self.mount_table.current();
        match known {
            Some(known) if known.is_of(&table) => known,
            _ => Arc::new(PathPositions::new(table)),
        }
    }

    /// Returns the mount points below a path without symlinks.
    pub fn mount_points_below(&self, path: &Path) -> Vec<PathBuf> {
        let table = self.mount_table.current();
        let below = table
            .keys()
            .filter(|it| it.starts_with(path) && *it != path);
        below.cloned().collect()
    }

    /// Calls an inspection function for many paths, on one thread per file system that may hang, and
    /// on several processors for many paths of the others; `start` makes the function of a thread. The
    /// result of a path is None if its file system does not answer within `timeout`, or if the
    /// function returned None.
    pub fn inspect_paths<T, L>(
        &self,
        paths: Vec<PathBuf>,
        timeout: Duration,
        start: impl Fn() -> L + Clone + Send + Sync + 'static,
    ) -> Vec<Option<T>>
    where
        T: Send + 'static,
        L: FnMut(&Path) -> Option<T>,
    {
        let mut found: Vec<Option<T>> = paths.iter().map(|_| None).collect();
        let trusted = self.current_trusted_devices();
        let mut groups = GroupedByFileSystem::default();
        for (number, path) in paths.into_iter().enumerate() {
            groups.add(self.find_untrusted_in(&trusted, &path), (number, path));
        }
        let (sender, answers) = unbounded();
        for (system, paths) in groups.untrusted {
            let (sender, start) = (sender.clone(), start.clone());
            let inspect_group = move || {
                let mut inspect = start();
                for (number, path) in paths {
                    if sender.send((number, inspect(&path))).is_err() {
                        return;
                    }
                }
            };
            // The paths of one that cannot be called keep None.
            drop(system.start_call(inspect_group));
        }
        drop(sender);
        let inspected = map_on_processors(groups.trusted, || {
            let mut inspect = start();
            move |(number, path): (usize, PathBuf)| (number, inspect(&path))
        });
        for (number, seen) in inspected {
            found[number] = seen;
        }
        let timeout_channel = after(timeout);
        loop {
            select_biased! {
                recv(answers) -> answer => match answer {
                    Ok((number, seen)) => found[number] = seen,
                    Err(_) => return found,
                },
                recv(timeout_channel) -> _ => return found,
            }
        }
    }

    /// Makes a call about `path`, directly if its file system is trusted.
    ///
    /// # Errors
    /// [`ErrorKind::Host`], naming the mount point, if the file system does not answer.
    pub fn call<T: Send + 'static>(
        &self,
        path: &Path,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        match self.find_untrusted(path) {
            None => Ok(job()),
            Some(system) => system.call(job),
        }
    }
}

/// Items, grouped by the file systems that they may wait for.
pub struct GroupedByFileSystem<T> {
    /// The items of all trusted file systems.
    pub trusted: Vec<T>,
    /// The items of each untrusted file system.
    pub untrusted: Vec<(Arc<FileSystem>, Vec<T>)>,
}

impl<T> Default for GroupedByFileSystem<T> {
    fn default() -> GroupedByFileSystem<T> {
        GroupedByFileSystem {
            trusted: Vec::new(),
            untrusted: Vec::new(),
        }
    }
}

impl<T> GroupedByFileSystem<T> {
    /// Adds an item of a file system; None means a trusted one.
    pub fn add(&mut self, system: Option<Arc<FileSystem>>, item: T) {
        let Some(system) = system else {
            return self.trusted.push(item);
        };
        let mut others = self.untrusted.iter_mut();
        match others.find(|(it, _)| Arc::ptr_eq(it, &system)) {
            Some((_, items)) => items.push(item),
            None => self.untrusted.push((system, vec![item])),
        }
    }
}

type FileSystemJob = Box<dyn FnOnce() + Send>;

/// A file system that may hang, or several that a path crosses one after the other.
pub struct FileSystem {
    mount_points: Vec<PathBuf>,
    call_timeout: Duration,
    clock: Arc<dyn Clock>,
    /// Accepts a job only while a thread waits for one.
    job_channel: (Sender<FileSystemJob>, Receiver<FileSystemJob>),
    /// How many calls were abandoned and have not returned.
    abandoned_calls: Mutex<usize>,
}

impl fmt::Debug for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file system at {}", self.display_mount_points())
    }
}

impl FileSystem {
    /// Creates the handle of the file system that is mounted at these points.
    pub fn new(points: Vec<PathBuf>, limit: Duration, clock: Arc<dyn Clock>) -> FileSystem {
        FileSystem {
            mount_points: points,
            call_timeout: limit,
            clock,
            job_channel: bounded(0),
            abandoned_calls: Mutex::new(0),
        }
    }

    /// Returns its mount points, for display.
    pub fn display_mount_points(&self) -> String {
        let points = self
            .mount_points
            .iter()
            .map(|point| point.display().to_string());
        points.collect::<Vec<_>>().join(" and ")
    }

    /// Makes a call on another thread and waits for its result.
    ///
    /// # Errors
    /// [`ErrorKind::Host`], naming the mount point, if it does not return within the limit, if an
    /// earlier call has not returned yet, or if no thread can be started.
    pub fn call<T: Send + 'static>(
        self: &Arc<Self>,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = bounded(1);
        let call = self.start_call(move || {
            // The receiver of an abandoned call is gone.
            let _ = reply.send(job());
        })?;
        call.receive(&answer)
    }

    /// Starts a call that reports through channels of the caller; [`FileSystemCall::receive`] waits
    /// for its reports.
    ///
    /// # Errors
    /// As [`FileSystem::call`], except that it does not wait for this call.
    pub fn start_call(
        self: &Arc<Self>,
        job: impl FnOnce() + Send + 'static,
    ) -> Result<FileSystemCall> {
        if *self.lock_abandoned_calls() > 0 {
            return Err(self.hang_error());
        }
        let state = Arc::new(Mutex::new(CallProgress::Running));
        let returned = ReturnGuard {
            file_system: Arc::clone(self),
            state: Arc::clone(&state),
        };
        self.run_on_thread(Box::new(move || {
            let _returned = returned;
            job();
        }))?;
        Ok(FileSystemCall {
            file_system: Arc::clone(self),
            state,
            started: self.clock.instant(),
            moved_bytes: AtomicU64::new(0),
        })
    }

    /// Drops `value` on another thread, because closing a file can hang as well. If no thread can
    /// be started, the value is leaked.
    pub fn drop_on_thread<T: Send + 'static>(&self, value: T) {
        // A thread that cannot be started drops its job here, with everything that it owns.
        let value = ManuallyDrop::new(value);
        let _ = self.run_on_thread(Box::new(move || drop(ManuallyDrop::into_inner(value))));
    }

    /// Hands a job to an idle thread, or to a new one.
    ///
    /// # Errors
    /// No thread can be started. The caller must not run the job itself: it may hang, and it may
    /// wait for the caller.
    fn run_on_thread(&self, job: FileSystemJob) -> Result<()> {
        let Err(refused) = self.job_channel.0.try_send(job) else {
            return Ok(());
        };
        let jobs = self.job_channel.1.clone();
        let work = move || {
            let mut next = Some(refused.into_inner());
            while let Some(job) = next {
                job();
                next = jobs.recv_timeout(IDLE_THREAD_TIMEOUT).ok();
            }
        };
        let started = thread::Builder::new().spawn(work);
        started.map(drop).map_err(|error| {
            let message = format!(
                "cannot start a thread for calls to the file system at {}: {error}",
                self.display_mount_points()
            );
            Error::new(ErrorKind::Host, message).with_hint(
                "end other processes, or raise the limit of processes (ulimit -u, TasksMax, \
                 pids.max)",
            )
        })
    }

    fn lock_abandoned_calls(&self) -> MutexGuard<'_, usize> {
        self.abandoned_calls
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn hang_error(&self) -> Error {
        let limit = self.call_timeout.as_secs();
        let message = format!(
            "the file system at {} does not answer within {limit} s",
            self.display_mount_points()
        );
        Error::new(ErrorKind::Host, message)
            .with_hint("check its server or disk; `local_timeout` sets how long a call may take")
    }
}

/// The state of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CallProgress {
    Running,
    Abandoned,
    Returned,
}

/// A call that was started.
pub struct FileSystemCall {
    file_system: Arc<FileSystem>,
    state: Arc<Mutex<CallProgress>>,
    started: Instant,
    /// The bytes that the call has moved so far.
    moved_bytes: AtomicU64,
}

impl FileSystemCall {
    /// Waits for the next report of the call.
    ///
    /// # Errors
    /// No report within the limit; the call is abandoned.
    pub fn receive<T>(&self, channel: &Receiver<T>) -> Result<T> {
        self.check_received(channel.recv_timeout(self.report_timeout()))
    }

    /// Adds bytes that the call has moved, which extend its total time.
    pub fn add_moved_bytes(&self, count: usize) {
        self.moved_bytes.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Returns how long the next report may take.
    fn report_timeout(&self) -> Duration {
        let FileSystem {
            call_timeout: limit,
            clock,
            ..
        } = &*self.file_system;
        let moving =
            Duration::from_secs(self.moved_bytes.load(Ordering::Relaxed) / MIN_BYTES_PER_SECOND);
        let end = self.started + *limit * MAX_LIMITS_PER_CALL + moving;
        end.saturating_duration_since(clock.instant()).min(*limit)
    }

    /// Sends a value to the call, which must receive it within the limit.
    ///
    /// # Errors
    /// As [`FileSystemCall::receive`].
    pub fn send<T>(&self, channel: &Sender<T>, value: T) -> Result<()> {
        let sent = channel.send_timeout(value, self.report_timeout());
        self.check_received(sent.map_err(|error| {
            if error.is_timeout() {
                RecvTimeoutError::Timeout
            } else {
                RecvTimeoutError::Disconnected
            }
        }))
    }

    /// Whether the call was abandoned and has not returned yet.
    pub fn is_abandoned(&self) -> bool {
        *self.state() == CallProgress::Abandoned
    }

    fn check_received<T>(&self, received: Result<T, RecvTimeoutError>) -> Result<T> {
        received.map_err(|error| match error {
            RecvTimeoutError::Timeout => {
                let mut state = self.state();
                if *state == CallProgress::Running {
                    *state = CallProgress::Abandoned;
                    *self.file_system.lock_abandoned_calls() += 1;
                }
                self.file_system.hang_error()
            }
            RecvTimeoutError::Disconnected => {
                let message = format!("a call to {:?} ended without a result", self.file_system);
                Error::new(ErrorKind::Internal, message)
            }
        })
    }

    fn state(&self) -> MutexGuard<'_, CallProgress> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Marks a call as returned when dropped, also after a panic.
struct ReturnGuard {
    file_system: Arc<FileSystem>,
    state: Arc<Mutex<CallProgress>>,
}

impl Drop for ReturnGuard {
    fn drop(&mut self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *state, CallProgress::Returned) == CallProgress::Abandoned {
            *self.file_system.lock_abandoned_calls() -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::SystemClock;

    fn file_system_with_limit(limit: Duration) -> Arc<FileSystem> {
        Arc::new(FileSystem::new(
            vec!["/mnt/far".into()],
            limit,
            Arc::new(SystemClock),
        ))
    }

    #[test]
    fn call_returns_result_of_its_job() {
        let system = file_system_with_limit(Duration::from_secs(60));
        let numbers: Vec<i32> = (0..100)
            .map(|it| system.call(move || it).unwrap())
            .collect();
        assert_eq!(numbers, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn hung_call_is_abandoned_and_others_fail_fast() {
        let system = file_system_with_limit(Duration::from_millis(1));
        let (release, hung) = bounded::<()>(0);
        let (done, returned) = bounded(1);
        let error = system.call(move || {
            let _ = hung.recv();
            let _ = done.send(());
        });
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Host);
        assert!(error.message().contains("/mnt/far"), "{error}");
        let untouched = system.call(|| panic!("a call was made to a hung file system"));
        assert_eq!(untouched.unwrap_err().kind(), ErrorKind::Host);
        // The file system answers again.
        drop(release);
        returned.recv().unwrap();
        while *system.lock_abandoned_calls() > 0 {
            thread::yield_now();
        }
        let patient = Arc::new(FileSystem::new(
            Vec::new(),
            Duration::from_secs(60),
            Arc::new(SystemClock),
        ));
        assert_eq!(patient.call(|| 7).unwrap(), 7);
        assert!(system.start_call(|| ()).is_ok());
    }

    #[test]
    fn slowly_reporting_call_times_out() {
        let clock = Arc::new(TickingClock(Mutex::new(Instant::now())));
        let limit = Duration::from_secs(60);
        let system = Arc::new(FileSystem::new(Vec::new(), limit, clock));
        let (give, drops) = bounded(0);
        let call = system
            .start_call(move || while give.send(1_u8).is_ok() {})
            .unwrap();
        let received = (0..1000).take_while(|_| call.receive(&drops).is_ok());
        // Each read of the clock advances it by 15 seconds.
        assert!(received.count() < 20);
        assert!(call.is_abandoned());
    }

    struct TickingClock(Mutex<Instant>);

    impl Clock for TickingClock {
        fn now(&self) -> chrono::DateTime<chrono::FixedOffset> {
            chrono::DateTime::default()
        }

        fn instant(&self) -> Instant {
            let mut now = self.0.lock().unwrap();
            *now += Duration::from_secs(15);
            *now
        }

        fn sleep(&self, _: Duration) {}
    }

    #[test]
    fn panicking_job_is_an_error() {
        let system = file_system_with_limit(Duration::from_secs(60));
        let error = system.call(|| panic!("as it is tested")).map(|(): ()| ());
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Internal);
        assert_eq!(system.call(|| 7).unwrap(), 7);
    }

    #[test]
    fn archive_file_system_is_called_directly() {
        let directory = tempfile::tempdir().unwrap();
        let systems = FileSystems::new(
            directory.path(),
            Duration::from_secs(60),
            Arc::new(SystemClock),
        );
        assert!(
            systems
                .find_untrusted(&directory.path().join("MEMORY.md"))
                .is_none()
        );
        let here = thread::current().id();
        let on = systems.call(directory.path(), || thread::current().id());
        assert_eq!(on.unwrap(), here);
        if systems
            .mount_table
            .current()
            .contains_key(Path::new("/proc"))
        {
            let proc = Path::new("/proc/version");
            let on = systems.call(proc, || thread::current().id());
            assert_ne!(on.unwrap(), here);
            assert!(Arc::ptr_eq(
                &systems.find_untrusted(proc).unwrap(),
                &systems.find_untrusted(Path::new("/proc")).unwrap()
            ));
        }
    }
}
