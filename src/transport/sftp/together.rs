//! Reads many memories of a host at the same time: one round trip opens all of
//! them, the next reads what is not long.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::connection::{Answer, Connection, bytes, code};
use super::folder::{Handle, handle, moved};
use super::pump::{LARGEST, Pump, too_large};
use super::wire::{Attrs, Request, flags, status};
use crate::transport::{File, MemoryObject, Pieces, TransportError};

/// How long all of it may take: a server may answer each question in time, and
/// take for ever all the same.
pub(super) const BATCH_READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes that are asked for in one round. More than a probe's sizes come to is only
/// asked for where memories have grown since, or a host makes up sizes as it goes.
const BYTES_PER_ROUND_TRIP: u64 = 16 << 20;

/// How a memory was found to be: what it is now, or why it was not read.
type BatchRead = Result<File, TransportError>;

/// A memory on its way here.
struct MemoryTransfer<'p> {
    number: usize,
    pump: Pump<'p>,
}

/// Reads these, each of which a probe found to be this file. They are no longer
/// waited for once `in_time` says no.
///
/// # Errors
/// The session is lost.
pub(super) fn read(
    host: &Connection,
    files: &[(&Path, &File)],
    sink: Pieces<'_>,
    in_time: impl Fn() -> bool,
) -> Result<Vec<BatchRead>, TransportError> {
    let paths: Vec<PathBuf> = files.iter().map(|(path, _)| host.absolute(path)).collect();
    let open = |path: &PathBuf| Request::Open {
        path: bytes(path),
        flags: flags::READ,
        mode: None,
    };
    // What is too long is not even opened; the place of its answer stays empty.
    let small: Vec<usize> = (0..files.len())
        .filter(|number| files[*number].1.stamp.size <= LARGEST)
        .collect();
    let answers = host.ask(small.iter().map(|number| open(&paths[*number])).collect())?;
    let mut done: Vec<Option<BatchRead>> = files.iter().map(|_| None).collect();
    let mut handles: Vec<(usize, Handle)> = Vec::new();
    for (number, answer) in small.into_iter().zip(answers) {
        match opened(host, &paths[number], answer) {
            Ok(handle) => handles.push((number, handle)),
            Err(error) => done[number] = Some(Err(error)),
        }
    }
    let read = pump_all(host, files, &paths, &handles, sink, in_time, &mut done);
    let close = handles
        .into_iter()
        .map(|(_, handle)| Request::Close { handle });
    host.tell(close.collect());
    read?;
    let whole = done.into_iter().zip(files).zip(&paths);
    let whole = whole.map(|((done, (_, file)), path)| {
        done.unwrap_or_else(|| Err(too_large(host, path, file.stamp.size)))
    });
    Ok(whole.collect())
}

fn pump_all(
    host: &Connection,
    files: &[(&Path, &File)],
    paths: &[PathBuf],
    handles: &[(usize, Handle)],
    sink: Pieces<'_>,
    in_time: impl Fn() -> bool,
    done: &mut [Option<BatchRead>],
) -> Result<(), TransportError> {
    let pumped = handles.iter().map(|(number, handle)| MemoryTransfer {
        number: *number,
        pump: Pump::new(handle, &paths[*number], files[*number].1.stamp.size),
    });
    let mut waiting: VecDeque<MemoryTransfer<'_>> = pumped.collect();
    while !waiting.is_empty() {
        let mut pumped: Vec<MemoryTransfer<'_>> = Vec::new();
        let mut batches: Vec<Vec<Request>> = Vec::new();
        let mut asked = 0;
        while asked < BYTES_PER_ROUND_TRIP
            && let Some(mut next) = waiting.pop_front()
        {
            batches.push(next.pump.next());
            asked += next.pump.asked();
            pumped.push(next);
        }
        let counts: Vec<usize> = batches.iter().map(Vec::len).collect();
        let answers = host.ask(batches.into_iter().flatten().collect())?;
        let mut left = answers.as_slice();
        let late = !in_time();
        for (mut it, count) in pumped.into_iter().zip(counts) {
            let (mine, others) = left.split_at(count.min(left.len()));
            left = others;
            let (number, path) = (it.number, paths[it.number].as_path());
            let mut take = |piece: &[u8]| {
                sink(number, piece);
                Ok(())
            };
            match it.pump.take(host, mine, &mut take) {
                Ok(None) if late => {
                    let why = "it takes more than a minute";
                    done[number] = Some(Err(host.refused("read", path, why)));
                }
                Ok(None) => waiting.push_back(it),
                Ok(Some(after)) => done[number] = Some(found(host, path, files[number].1, &after)),
                Err(error) => done[number] = Some(Err(error)),
            }
        }
    }
    Ok(())
}

/// What was opened may be something else than what was looked at.
fn found(host: &Connection, path: &Path, probed: &File, after: &Attrs) -> BatchRead {
    match host.described(path, after, None)? {
        MemoryObject::File(file) if file.attributes.uid == probed.attributes.uid => Ok(file),
        _ => Err(moved(host, path)),
    }
}

fn opened(host: &Connection, path: &Path, answer: Answer) -> Result<Handle, TransportError> {
    match code(&answer) {
        Some(status::NO_SUCH_FILE) => Err(moved(host, path)),
        Some(code) => Err(host.failed("open", path, code)),
        None => handle(answer).ok_or_else(|| host.odd_answer("open", path)),
    }
}
