//! Calls to file systems that may hang.
//!
//! A call to a dead mount (NFS, FUSE, a frozen disk) waits in the kernel and cannot
//! be taken back. So whoever must not wait with it has such calls made on another
//! thread, which is left behind when it does not return within a limit. Until it
//! does, every further call to that file system fails at once.
//!
//! The file systems that the archive's path crosses are trusted: without them nothing
//! can be recorded anyway. Calls to them are made directly, so a fleet on one disk
//! starts no thread.

pub mod ancestry;
mod mounts;

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

use self::mounts::{Device, Mounts, Table, crossed};
use crate::clock::Clock;
use crate::error::{Error, Kind, Result};

/// How often the limit fits into the time that a call may take in all: one that reports
/// something now and then must end as well.
const LIMITS: u32 = 4;

/// Bytes a second that a file system moves at least, beyond that time.
const SLOWEST: u64 = 4096;

/// How long a thread that has nothing to do stays for the next call.
const IDLE: Duration = Duration::from_secs(5);

/// The file systems of this machine.
pub struct FileSystems {
    mounts: Mounts,
    archive: PathBuf,
    limit: Duration,
    clock: Arc<dyn Clock>,
    /// By the devices that a path crosses and the archive's does not.
    known: Mutex<HashMap<Vec<Device>, Arc<FileSystem>>>,
    trusted: Mutex<Option<Arc<Trusted>>>,
}

/// The devices that the archive's path crosses, by a mount table.
struct Trusted {
    table: Arc<Table>,
    devices: BTreeMap<Device, PathBuf>,
}

impl FileSystems {
    /// Trusts the file systems of `archive`; a call to any other is given up when it
    /// reports nothing for `limit`, or takes four times as long beside moving bytes.
    pub fn new(archive: &Path, limit: Duration, clock: Arc<dyn Clock>) -> FileSystems {
        FileSystems {
            mounts: Mounts::new(),
            archive: archive.to_path_buf(),
            limit,
            clock,
            known: Mutex::default(),
            trusted: Mutex::default(),
        }
    }

    /// The file system that a call about `path` may wait for; none where that is a
    /// trusted one. Paths with the same answer wait for each other, others do not.
    pub fn of(&self, path: &Path) -> Option<Arc<FileSystem>> {
        self.of_by(&self.trusted(), path)
    }

    /// The same for each of these, by one look at the mount points.
    pub fn of_all<'p>(
        &self,
        paths: impl IntoIterator<Item = &'p PathBuf>,
    ) -> Vec<Option<Arc<FileSystem>>> {
        let trusted = self.trusted();
        let systems = paths.into_iter().map(|path| self.of_by(&trusted, path));
        systems.collect()
    }

    fn of_by(&self, trusted: &Trusted, path: &Path) -> Option<Arc<FileSystem>> {
        let Trusted { table, devices } = trusted;
        let mut mounts = path.ancestors().filter_map(|point| table.get(point));
        if mounts.all(|mount| devices.contains_key(&mount.device)) {
            return None;
        }
        let mut other: BTreeMap<Device, PathBuf> = crossed(table, path);
        other.retain(|device, _| !devices.contains_key(device));
        let (devices, points): (Vec<Device>, Vec<PathBuf>) = other.into_iter().unzip();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.entry(devices).or_insert_with(|| {
            let clock = Arc::clone(&self.clock);
            Arc::new(FileSystem::new(points, self.limit, clock))
        });
        Some(Arc::clone(found))
    }

    /// The devices that the archive's path crosses now.
    fn trusted(&self) -> Arc<Trusted> {
        let table = self.mounts.table();
        let mut trusted = self.trusted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*trusted
            && Arc::ptr_eq(&known.table, &table)
        {
            return Arc::clone(known);
        }
        let devices = crossed(&table, &self.archive);
        Arc::clone(trusted.insert(Arc::new(Trusted { table, devices })))
    }

    /// The mount points below a path without links.
    pub fn mounts_below(&self, path: &Path) -> Vec<PathBuf> {
        let table = self.mounts.table();
        let below = table
            .keys()
            .filter(|it| it.starts_with(path) && *it != path);
        below.cloned().collect()
    }

    /// Looks at many paths, each file system's on a thread of its own, which `start`
    /// begins. None for one of which nothing is known: its file system does not answer
    /// within `patience`, or the look came to nothing.
    pub fn look_at_all<T, L>(
        &self,
        paths: Vec<PathBuf>,
        patience: Duration,
        start: impl Fn() -> L + Clone + Send + 'static,
    ) -> Vec<Option<T>>
    where
        T: Send + 'static,
        L: FnMut(&Path) -> Option<T>,
    {
        let mut found: Vec<Option<T>> = paths.iter().map(|_| None).collect();
        let trusted = self.trusted();
        let mut groups = BySystem::default();
        for (number, path) in paths.into_iter().enumerate() {
            groups.add(self.of_by(&trusted, &path), (number, path));
        }
        let (sender, answers) = unbounded();
        for (system, paths) in groups.others {
            let (sender, start) = (sender.clone(), start.clone());
            let all = move || {
                let mut look = start();
                for (number, path) in paths {
                    if sender.send((number, look(&path))).is_err() {
                        return;
                    }
                }
            };
            // One that does not answer tells nothing.
            drop(system.start(all));
        }
        drop(sender);
        let mut look = start();
        for (number, path) in groups.trusted {
            found[number] = look(&path);
        }
        let over = after(patience);
        loop {
            select_biased! {
                recv(answers) -> answer => match answer {
                    Ok((number, seen)) => found[number] = seen,
                    Err(_) => return found,
                },
                recv(over) -> _ => return found,
            }
        }
    }

    /// Makes a call about `path`, directly where its file system is trusted.
    ///
    /// # Errors
    /// [`Kind::Host`], naming the mount point, when the file system does not answer.
    pub fn call<T: Send + 'static>(
        &self,
        path: &Path,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        match self.of(path) {
            None => Ok(job()),
            Some(system) => system.call(job),
        }
    }
}

/// Items by the file systems that they may wait for.
pub struct BySystem<T> {
    /// Those of trusted ones.
    pub trusted: Vec<T>,
    /// Those of each other.
    pub others: Vec<(Arc<FileSystem>, Vec<T>)>,
}

impl<T> Default for BySystem<T> {
    fn default() -> BySystem<T> {
        BySystem {
            trusted: Vec::new(),
            others: Vec::new(),
        }
    }
}

impl<T> BySystem<T> {
    /// Adds an item of a file system; none is a trusted one.
    pub fn add(&mut self, system: Option<Arc<FileSystem>>, item: T) {
        let Some(system) = system else {
            return self.trusted.push(item);
        };
        let mut others = self.others.iter_mut();
        match others.find(|(it, _)| Arc::ptr_eq(it, &system)) {
            Some((_, items)) => items.push(item),
            None => self.others.push((system, vec![item])),
        }
    }
}

type FileSystemJob = Box<dyn FnOnce() + Send>;

/// A file system, or several that a path crosses one after the other, that may hang.
pub struct FileSystem {
    points: Vec<PathBuf>,
    limit: Duration,
    clock: Arc<dyn Clock>,
    /// Takes a job only while a thread waits for one.
    jobs: (Sender<FileSystemJob>, Receiver<FileSystemJob>),
    /// Calls that were given up and have not returned.
    abandoned: Mutex<usize>,
}

impl fmt::Debug for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file system at {}", self.shown())
    }
}

impl FileSystem {
    /// The file system mounted at these places.
    pub fn new(points: Vec<PathBuf>, limit: Duration, clock: Arc<dyn Clock>) -> FileSystem {
        FileSystem {
            points,
            limit,
            clock,
            jobs: bounded(0),
            abandoned: Mutex::new(0),
        }
    }

    /// Where it is mounted, for people.
    pub fn shown(&self) -> String {
        let points = self.points.iter().map(|point| point.display().to_string());
        points.collect::<Vec<_>>().join(" and ")
    }

    /// Makes a call on another thread and waits for what it returns.
    ///
    /// # Errors
    /// [`Kind::Host`], naming the mount point, when it does not return within the
    /// limit, when an earlier call still has not, or when no thread can be started.
    pub fn call<T: Send + 'static>(
        self: &Arc<Self>,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = bounded(1);
        let call = self.start(move || {
            // Nobody waits for a call that was given up.
            let _ = reply.send(job());
        })?;
        call.receive(&answer)
    }

    /// Begins a call that reports through channels of the caller's own; what comes
    /// from it is awaited with [`FileSystemCall::receive`].
    ///
    /// # Errors
    /// As [`FileSystem::call`], of earlier calls.
    pub fn start(self: &Arc<Self>, job: impl FnOnce() + Send + 'static) -> Result<FileSystemCall> {
        if *self.abandoned() > 0 {
            return Err(self.hangs());
        }
        let state = Arc::new(Mutex::new(CallProgress::Running));
        let returned = Returned {
            system: Arc::clone(self),
            state: Arc::clone(&state),
        };
        self.spawn(Box::new(move || {
            let _returned = returned;
            job();
        }))?;
        Ok(FileSystemCall {
            system: Arc::clone(self),
            state,
            began: self.clock.instant(),
            bytes: AtomicU64::new(0),
        })
    }

    /// Drops `value` on a thread that may wait: closing a file can hang as well. Where no
    /// thread can be started the value stays until the process ends.
    pub fn dispose<T: Send + 'static>(&self, value: T) {
        // Threads that cannot be started drop their job, and what it owns.
        let value = ManuallyDrop::new(value);
        let _ = self.spawn(Box::new(move || drop(ManuallyDrop::into_inner(value))));
    }

    /// Gives a job to a thread that waits for one, or to a new one.
    ///
    /// # Errors
    /// When no thread can be started. The caller must not do the job itself: it may hang,
    /// and it may wait for the caller.
    fn spawn(&self, job: FileSystemJob) -> Result<()> {
        let Err(refused) = self.jobs.0.try_send(job) else {
            return Ok(());
        };
        let jobs = self.jobs.1.clone();
        let work = move || {
            let mut next = Some(refused.into_inner());
            while let Some(job) = next {
                job();
                next = jobs.recv_timeout(IDLE).ok();
            }
        };
        let started = thread::Builder::new().spawn(work);
        started.map(drop).map_err(|error| {
            let message = format!(
                "cannot start a thread for calls to the file system at {}: {error}",
                self.shown()
            );
            Error::new(Kind::Host, message).hint(
                "end other processes, or raise the limit of processes (ulimit -u, TasksMax, \
                 pids.max)",
            )
        })
    }

    fn abandoned(&self) -> MutexGuard<'_, usize> {
        self.abandoned
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn hangs(&self) -> Error {
        let limit = self.limit.as_secs();
        let message = format!(
            "the file system at {} does not answer within {limit} s",
            self.shown()
        );
        Error::new(Kind::Host, message).hint(
            "see whether its server or disk is up; `local_timeout` is how long a call may take",
        )
    }
}

/// How far a call has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CallProgress {
    Running,
    Abandoned,
    Returned,
}

/// A call that was begun.
pub struct FileSystemCall {
    system: Arc<FileSystem>,
    state: Arc<Mutex<CallProgress>>,
    began: Instant,
    /// Moved between the threads so far.
    bytes: AtomicU64,
}

impl FileSystemCall {
    /// Waits for the next thing that the call reports.
    ///
    /// # Errors
    /// When nothing comes within the limit; the call is given up then.
    pub fn receive<T>(&self, channel: &Receiver<T>) -> Result<T> {
        self.outcome(channel.recv_timeout(self.patience()))
    }

    /// Takes note of bytes that the call moved: it may take longer for them.
    pub fn note_bytes(&self, count: usize) {
        self.bytes.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// How long the next report may take.
    fn patience(&self) -> Duration {
        let FileSystem { limit, clock, .. } = &*self.system;
        let moving = Duration::from_secs(self.bytes.load(Ordering::Relaxed) / SLOWEST);
        let end = self.began + *limit * LIMITS + moving;
        end.saturating_duration_since(clock.instant()).min(*limit)
    }

    /// Hands something to the call, which has to take it within the limit.
    ///
    /// # Errors
    /// As [`FileSystemCall::receive`].
    pub fn send<T>(&self, channel: &Sender<T>, value: T) -> Result<()> {
        let sent = channel.send_timeout(value, self.patience());
        self.outcome(sent.map_err(|error| match error.is_timeout() {
            true => RecvTimeoutError::Timeout,
            false => RecvTimeoutError::Disconnected,
        }))
    }

    /// Whether the call was given up and has not returned yet.
    pub fn is_abandoned(&self) -> bool {
        *self.state() == CallProgress::Abandoned
    }

    fn outcome<T>(&self, received: Result<T, RecvTimeoutError>) -> Result<T> {
        received.map_err(|error| match error {
            RecvTimeoutError::Timeout => {
                let mut state = self.state();
                if *state == CallProgress::Running {
                    *state = CallProgress::Abandoned;
                    *self.system.abandoned() += 1;
                }
                self.system.hangs()
            }
            RecvTimeoutError::Disconnected => {
                let message = format!("a call to {:?} ended without a result", self.system);
                Error::new(Kind::Internal, message)
            }
        })
    }

    fn state(&self) -> MutexGuard<'_, CallProgress> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes note that a call returned, however it did.
struct Returned {
    system: Arc<FileSystem>,
    state: Arc<Mutex<CallProgress>>,
}

impl Drop for Returned {
    fn drop(&mut self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *state, CallProgress::Returned) == CallProgress::Abandoned {
            *self.system.abandoned() -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::System;

    fn system(limit: Duration) -> Arc<FileSystem> {
        Arc::new(FileSystem::new(
            vec!["/mnt/far".into()],
            limit,
            Arc::new(System),
        ))
    }

    #[test]
    fn call_returns_what_the_job_returned() {
        let system = system(Duration::from_secs(60));
        let numbers: Vec<i32> = (0..100)
            .map(|it| system.call(move || it).unwrap())
            .collect();
        assert_eq!(numbers, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn hung_call_is_given_up_and_others_fail_at_once() {
        let system = system(Duration::from_millis(1));
        let (release, hung) = bounded::<()>(0);
        let (done, returned) = bounded(1);
        let error = system.call(move || {
            let _ = hung.recv();
            let _ = done.send(());
        });
        let error = error.unwrap_err();
        assert_eq!(error.kind(), Kind::Host);
        assert!(error.message().contains("/mnt/far"), "{error}");
        let untouched = system.call(|| panic!("a call was made to a hung file system"));
        assert_eq!(untouched.unwrap_err().kind(), Kind::Host);
        // It answers again.
        drop(release);
        returned.recv().unwrap();
        while *system.abandoned() > 0 {
            thread::yield_now();
        }
        let patient = Arc::new(FileSystem::new(
            Vec::new(),
            Duration::from_secs(60),
            Arc::new(System),
        ));
        assert_eq!(patient.call(|| 7).unwrap(), 7);
        assert!(system.start(|| ()).is_ok());
    }

    #[test]
    fn call_that_reports_a_little_now_and_then_ends() {
        let clock = Arc::new(Ticking(Mutex::new(Instant::now())));
        let limit = Duration::from_secs(60);
        let system = Arc::new(FileSystem::new(Vec::new(), limit, clock));
        let (give, drops) = bounded(0);
        let call = system
            .start(move || while give.send(1_u8).is_ok() {})
            .unwrap();
        let received = (0..1000).take_while(|_| call.receive(&drops).is_ok());
        // Each look at the clock lets a quarter of a minute pass.
        assert!(received.count() < 20);
        assert!(call.is_abandoned());
    }

    struct Ticking(Mutex<Instant>);

    impl Clock for Ticking {
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
    fn panicking_job_is_an_error_and_no_hang() {
        let system = system(Duration::from_secs(60));
        let error = system.call(|| panic!("as it is tested")).map(|(): ()| ());
        assert_eq!(error.unwrap_err().kind(), Kind::Internal);
        assert_eq!(system.call(|| 7).unwrap(), 7);
    }

    #[test]
    fn archives_own_file_system_is_asked_directly() {
        let directory = tempfile::tempdir().unwrap();
        let systems = FileSystems::new(directory.path(), Duration::from_secs(60), Arc::new(System));
        assert!(systems.of(&directory.path().join("MEMORY.md")).is_none());
        let here = thread::current().id();
        let on = systems.call(directory.path(), || thread::current().id());
        assert_eq!(on.unwrap(), here);
        if systems.mounts.table().contains_key(Path::new("/proc")) {
            let proc = Path::new("/proc/version");
            let on = systems.call(proc, || thread::current().id());
            assert_ne!(on.unwrap(), here);
            assert!(Arc::ptr_eq(
                &systems.of(proc).unwrap(),
                &systems.of(Path::new("/proc")).unwrap()
            ));
        }
    }
}
