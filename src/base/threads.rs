//! Work on several threads, in bounded number.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Maximum number of threads that read the files of this machine.
const MAX_READ_THREADS: usize = 8;

/// Number of files from which on one more thread reads them: starting it costs as much as reading
/// a few.
const FILES_PER_READ_THREAD: usize = 64;

/// Maximum number of files that such a thread has open at the same time.
const OPEN_FILES_PER_READ_THREAD: usize = 6;

/// Number of chunks of work that each thread takes at least, so that none waits long for another.
const CHUNKS_PER_THREAD: usize = 8;

/// Maximum number of items in a chunk.
const MAX_CHUNK_ITEMS: usize = 32;

/// Files that the process always has open: streams, ledger, watches.
const RESERVED_OPEN_FILES: usize = 24;

/// Runs `local` on this thread and at the same time a function for each item, on a limited number of
/// other threads; `start` makes the function of a thread. With fewer threads than that, it takes
/// longer.
pub(crate) fn run_on_threads<J: Send, T: Send, U, A: FnMut(J) -> T>(
    here: impl FnOnce() -> U,
    items: Vec<J>,
    threads: usize,
    start: impl Fn() -> A + Sync,
) -> (U, Vec<T>) {
    let count = items.len().min(threads);
    let waiting = Mutex::new(items.into_iter());
    let next = || {
        waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .next()
    };
    let work = || std::iter::from_fn(next).map(start()).collect::<Vec<T>>();
    thread::scope(|scope| {
        let spawn = |_| thread::Builder::new().spawn_scoped(scope, work).ok();
        let threads: Vec<_> = (0..count).map_while(spawn).collect();
        let local_result = here();
        let mut done = work();
        for thread in threads {
            done.extend(thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        (local_result, done)
    })
}

/// Returns how many files can be open besides those that the process always has. Where that is less
/// than `wanted`, raises the limit as far as possible: the usual limit of 1,024 serves select(2),
/// which this program does not use.
pub(crate) fn available_open_files(wanted: usize) -> usize {
    let available = |limit: Option<u64>| {
        let limit = limit.map_or(usize::MAX, |limit| limit as usize);
        limit.saturating_sub(RESERVED_OPEN_FILES)
    };
    let limit = getrlimit(Resource::Nofile);
    if available(limit.current) >= wanted {
        return available(limit.current);
    }
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => available(raised.current),
        Err(_) => available(limit.current),
    }
}

type Job<'scope> = Box<dyn FnOnce() + Send + 'scope>;

/// Threads for work that waits for hosts. They are kept until this is dropped, because starting one
/// costs as much as a step of an agent.
pub(crate) struct KeptThreads<'scope, 'env: 'scope> {
    scope: &'scope Scope<'scope, 'env>,
    queue: Arc<JobQueue<'scope>>,
}

/// The jobs of kept threads. Its threads sleep while there are none: those that wait at a channel
/// look for a message several times first, which hundreds of threads cannot afford.
#[derive(Default)]
struct JobQueue<'scope> {
    state: Mutex<JobQueueState<'scope>>,
    changed: Condvar,
}

#[derive(Default)]
struct JobQueueState<'scope> {
    jobs: VecDeque<Job<'scope>>,
    /// Number of threads that wait for one.
    idle: usize,
    is_closed: bool,
}

/// Results of jobs in the order of their numbers, and the number of jobs that have not ended.
struct JobResults<U> {
    state: Mutex<(Vec<Option<thread::Result<U>>>, usize)>,
    all_ended: Condvar,
}

impl<'scope, 'env> KeptThreads<'scope, 'env> {
    /// Starts none yet.
    pub fn new(scope: &'scope Scope<'scope, 'env>) -> KeptThreads<'scope, 'env> {
        KeptThreads {
            scope,
            queue: Arc::default(),
        }
    }

    /// Runs `act` for each item, all at the same time. The results are in the order of the items.
    pub fn map<T: Send + 'env, U: Send + 'env>(
        &self,
        items: Vec<T>,
        act: impl Fn(T) -> U + Send + Sync + 'env,
    ) -> Vec<U> {
        let mut items = items.into_iter();
        let Some(here) = items.next() else {
            return Vec::new();
        };
        let act = Arc::new(act);
        let results = Arc::new(JobResults::new(items.len()));
        for (number, item) in items.enumerate() {
            let (act, results) = (Arc::clone(&act), Arc::clone(&results));
            self.start(Box::new(move || {
                let result = catch_unwind(AssertUnwindSafe(|| act(item)));
                results.add(number, result);
            }));
        }
        let first = act(here);
        let others = results.wait().into_iter();
        let others = others.map(|result| result.unwrap_or_else(|panic| resume_unwind(panic)));
        std::iter::once(first).chain(others).collect()
    }

    /// Gives a job to a thread that is idle or new. Without one, does a job here.
    fn start(&self, job: Job<'scope>) {
        let mut state = self.queue.lock();
        state.jobs.push_back(job);
        let has_thread = state.idle >= state.jobs.len();
        drop(state);
        if has_thread {
            return self.queue.changed.notify_one();
        }
        let queue = Arc::clone(&self.queue);
        let started = thread::Builder::new().spawn_scoped(self.scope, move || queue.do_jobs());
        if started.is_err()
            && let Some(job) = self.queue.lock().jobs.pop_front()
        {
            job();
        }
    }
}

impl Drop for KeptThreads<'_, '_> {
    fn drop(&mut self) {
        self.queue.lock().is_closed = true;
        self.queue.changed.notify_all();
    }
}

impl<'scope> JobQueue<'scope> {
    fn lock(&self) -> MutexGuard<'_, JobQueueState<'scope>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does jobs until the queue is closed.
    fn do_jobs(&self) {
        loop {
            let mut state = self.lock();
            while state.jobs.is_empty() && !state.is_closed {
                state.idle += 1;
                let woken = self.changed.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
            let Some(job) = state.jobs.pop_front() else {
                return;
            };
            drop(state);
            job();
        }
    }
}

impl<U> JobResults<U> {
    fn new(count: usize) -> JobResults<U> {
        JobResults {
            state: Mutex::new(((0..count).map(|_| None).collect(), count)),
            all_ended: Condvar::new(),
        }
    }

    fn add(&self, number: usize, result: thread::Result<U>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0[number] = Some(result);
        state.1 -= 1;
        if state.1 == 0 {
            self.all_ended.notify_one();
        }
    }

    /// Waits until all jobs have ended; returns their results.
    fn wait(&self) -> Vec<thread::Result<U>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.all_ended.wait_while(state, |state| state.1 > 0);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut state.0).into_iter().flatten().collect()
    }
}

/// Runs a function for each item on this thread and so many others, which take `chunk` items at a
/// time; `start` makes the function of a thread. The results are in the order of the items.
fn map_on_threads<T: Send, U: Send, A: FnMut(T) -> U>(
    items: Vec<T>,
    others: usize,
    chunk: usize,
    start: impl Fn() -> A + Sync,
) -> Vec<U> {
    let count = items.len();
    let mut items = items.into_iter();
    let chunks = (0..count.div_ceil(chunk))
        .map(|number| (number, items.by_ref().take(chunk).collect::<Vec<T>>()))
        .collect();
    let start_chunks = || {
        let mut act = start();
        move |(number, items): (usize, Vec<T>)| {
            let results: Vec<U> = items.into_iter().map(&mut act).collect();
            (number, results)
        }
    };
    let (_, mut done) = run_on_threads(|| (), chunks, others, start_chunks);
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().flat_map(|(_, results)| results).collect()
}

/// Returns how many threads read so many files of this machine: none more than there are processors,
/// and one for a few files.
fn read_threads(count: usize) -> usize {
    let most = (count / FILES_PER_READ_THREAD).min(MAX_READ_THREADS);
    if most <= 1 {
        return 1;
    }
    let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = processors.min(most);
    let files = available_open_files(OPEN_FILES_PER_READ_THREAD * threads);
    (files / OPEN_FILES_PER_READ_THREAD).clamp(1, threads)
}

/// Returns how many items a thread takes at a time.
fn chunk_length(count: usize, threads: usize) -> usize {
    (count / (threads * CHUNKS_PER_THREAD)).clamp(1, MAX_CHUNK_ITEMS)
}

/// Runs a function for each item, on several processors where there are many items; `start` makes
/// the function of a thread. It may read files of this machine, and must not wait for anything else.
/// The results are in the order of the items.
pub(crate) fn map_on_processors<T: Send, U: Send, A: FnMut(T) -> U>(
    items: Vec<T>,
    start: impl Fn() -> A + Sync,
) -> Vec<U> {
    let threads = read_threads(items.len());
    let chunk = chunk_length(items.len(), threads);
    map_on_threads(items, threads - 1, chunk, start)
}

/// As [`map_on_processors`], with some items at a time.
pub(crate) fn map_chunks_on_processors<'t, T: Sync, U: Send, A: FnMut(&'t [T]) -> U>(
    items: &'t [T],
    start: impl Fn() -> A + Sync,
) -> Vec<U> {
    let threads = read_threads(items.len());
    let chunk = chunk_length(items.len(), threads);
    map_on_threads(items.chunks(chunk).collect(), threads - 1, 1, start)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use crossbeam_channel::unbounded;

    use super::*;

    #[test]
    fn all_work_is_done_with_few_or_no_threads() {
        for threads in [0, 1, 7] {
            let (here, mut done) =
                run_on_threads(|| "here", (0..100).collect(), threads, || |it| it * 2);
            done.sort();
            assert_eq!(here, "here");
            assert_eq!(done, (0..200).step_by(2).collect::<Vec<i32>>());
        }
    }

    #[test]
    fn kept_threads_work_at_the_same_time() {
        let (sender, received) = unbounded();
        let number = AtomicUsize::new(0);
        thread::scope(|scope| {
            let threads = KeptThreads::new(scope);
            assert_eq!(threads.map(Vec::new(), |it: i32| it), [0; 0]);
            // Each of the ten waits for the one after it.
            for _ in 0..3 {
                let gates: Vec<_> = (0..10).map(|_| unbounded::<()>()).collect();
                let openers = gates.iter().map(|gate| Some(gate.0.clone()));
                let openers = std::iter::once(None).chain(openers);
                let gates: Vec<_> = openers
                    .zip(gates.iter().map(|gate| gate.1.clone()))
                    .collect();
                let count = gates.len();
                let done = threads.map(gates.into_iter().enumerate().collect(), {
                    let (sender, number) = (sender.clone(), &number);
                    move |(place, (opener, gate))| {
                        if place + 1 < count {
                            gate.recv().unwrap();
                        }
                        if let Some(opener) = opener {
                            opener.send(()).unwrap();
                        }
                        number.fetch_add(1, Ordering::Relaxed);
                        sender.send(thread::current().id()).unwrap();
                        place
                    }
                });
                assert_eq!(done, (0..10).collect::<Vec<_>>());
            }
        });
        drop(sender);
        assert_eq!(number.into_inner(), 30);
        let threads: HashSet<_> = received.iter().collect();
        assert!(threads.len() < 30, "none of the threads was kept");
    }

    #[test]
    fn panic_on_a_kept_thread_is_that_of_the_caller() {
        let panic = catch_unwind(|| {
            thread::scope(|scope| {
                let threads = KeptThreads::new(scope);
                threads.map(vec![1, 2, 3], |it| assert!(it != 2, "item {it}"));
            });
        });
        let message = panic.unwrap_err().downcast::<String>().unwrap();
        assert_eq!(*message, "item 2");
    }

    #[test]
    fn results_on_processors_keep_their_order() {
        for count in [0, 1, 63, 64, 1000] {
            let items: Vec<usize> = (0..count).collect();
            let done = map_on_processors(items.clone(), || |it: usize| it * 2);
            assert_eq!(done, items.iter().map(|it| it * 2).collect::<Vec<_>>());
            let chunks = map_chunks_on_processors(&items, || <[usize]>::to_vec);
            assert_eq!(chunks.concat(), items);
        }
        assert_eq!(read_threads(FILES_PER_READ_THREAD), 1);
        assert!(read_threads(1 << 20) <= MAX_READ_THREADS);
    }
}
