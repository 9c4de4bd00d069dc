//! Work on several threads, in bounded number.

use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

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

/// Runs `act` for each item, all at the same time.
pub(crate) fn map_parallel<T: Send, U: Send>(items: Vec<T>, act: impl Fn(T) -> U + Sync) -> Vec<U> {
    let others = items.len().saturating_sub(1);
    map_on_threads(items, others, 1, || &act)
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

/// Runs a function for each item, on several processors where there are many items; `start` makes
/// the function of a thread. It may read files of this machine, and must not wait for anything else.
/// The results are in the order of the items.
pub(crate) fn map_on_processors<T: Send, U: Send, A: FnMut(T) -> U>(
    items: Vec<T>,
    start: impl Fn() -> A + Sync,
) -> Vec<U> {
    let threads = read_threads(items.len());
    let chunk = (items.len() / (threads * CHUNKS_PER_THREAD)).clamp(1, MAX_CHUNK_ITEMS);
    map_on_threads(items, threads - 1, chunk, start)
}

#[cfg(test)]
mod tests {
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
        assert_eq!(map_parallel(vec![3, 1, 2], |it| it + 1), [4, 2, 3]);
        assert_eq!(map_parallel(Vec::new(), |it: i32| it), [0; 0]);
    }

    #[test]
    fn results_on_processors_keep_their_order() {
        for count in [0, 1, 63, 64, 1000] {
            let items: Vec<usize> = (0..count).collect();
            let done = map_on_processors(items.clone(), || |it: usize| it * 2);
            assert_eq!(done, items.iter().map(|it| it * 2).collect::<Vec<_>>());
        }
        assert_eq!(read_threads(FILES_PER_READ_THREAD), 1);
        assert!(read_threads(1 << 20) <= MAX_READ_THREADS);
    }
}
