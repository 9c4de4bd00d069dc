//! Reads several memories of a host concurrently: one round trip opens all of them, the next reads
//! the short ones.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::chunked_read::{ChunkedRead, MAX_FILE_BYTES, too_large_error};
use super::client::{FileHandle, SftpClient, open_request};
use super::wire::{Attrs, Request};
use crate::transport::{BatchSink, FileMetadata, MemoryObject, TransportError};

/// Time limit of a batch: a server may send each reply in time and still never finish.
pub(super) const BATCH_READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes that are requested per round trip. Requests exceed the probed sizes only where memories
/// have grown since, or the host reports wrong sizes.
const BYTES_PER_ROUND_TRIP: u64 = 16 << 20;

/// The metadata of a memory that was read, or the reason why it was not.
type ReadOutcome = Result<FileMetadata, TransportError>;

/// A memory that is being read.
struct MemoryTransfer<'p> {
    number: usize,
    chunked_read: ChunkedRead<'p>,
}

/// Reads these memories, each of which a probe found to be this file. Stops waiting once `in_time`
/// returns false.
///
/// # Errors
/// The session is lost.
pub(super) fn read_batch(
    client: &SftpClient,
    files: &[(&Path, &FileMetadata)],
    sink: BatchSink<'_>,
    in_time: impl Fn() -> bool,
) -> Result<Vec<ReadOutcome>, TransportError> {
    let paths: Vec<PathBuf> = files
        .iter()
        .map(|(path, _)| client.absolute_path(path))
        .collect();
    let mut done: Vec<Option<ReadOutcome>> = files.iter().map(|_| None).collect();
    // A file that is too large is not opened; its place among the outcomes stays empty.
    let small_enough: Vec<usize> = (0..files.len())
        .filter(|number| files[*number].1.stamp.size <= MAX_FILE_BYTES)
        .collect();
    for numbers in small_enough.chunks(client.max_batch_handles()) {
        let open = |number: &usize| open_request(&paths[*number]);
        let answers = client.request_batch(numbers.iter().map(open).collect())?;
        let mut handles: Vec<(usize, FileHandle)> = Vec::new();
        for (number, answer) in numbers.iter().zip(answers) {
            match client.handle_from_reply(&paths[*number], answer) {
                Ok(handle) => handles.push((*number, handle)),
                Err(error) => done[*number] = Some(Err(error)),
            }
        }
        let read = transfer_all(client, files, &paths, &handles, sink, &in_time, &mut done);
        let close = handles
            .into_iter()
            .map(|(_, handle)| Request::Close(handle));
        client.send_without_waiting(close.collect());
        read?;
    }
    let whole = done.into_iter().zip(files).zip(&paths);
    let whole = whole.map(|((done, (_, file)), path)| {
        done.unwrap_or_else(|| Err(too_large_error(client, path, file.stamp.size)))
    });
    Ok(whole.collect())
}

fn transfer_all(
    client: &SftpClient,
    files: &[(&Path, &FileMetadata)],
    paths: &[PathBuf],
    handles: &[(usize, FileHandle)],
    sink: BatchSink<'_>,
    in_time: &impl Fn() -> bool,
    done: &mut [Option<ReadOutcome>],
) -> Result<(), TransportError> {
    let pumped = handles.iter().map(|(number, handle)| MemoryTransfer {
        number: *number,
        chunked_read: ChunkedRead::new(handle, &paths[*number], files[*number].1.stamp.size),
    });
    let mut waiting: VecDeque<MemoryTransfer<'_>> = pumped.collect();
    while !waiting.is_empty() {
        let mut pumped: Vec<MemoryTransfer<'_>> = Vec::new();
        let mut batches: Vec<Vec<Request>> = Vec::new();
        let mut asked = 0;
        while asked < BYTES_PER_ROUND_TRIP
            && let Some(mut next) = waiting.pop_front()
        {
            batches.push(next.chunked_read.next_requests());
            asked += next.chunked_read.requested_bytes();
            pumped.push(next);
        }
        let request_counts: Vec<usize> = batches.iter().map(Vec::len).collect();
        let answers = client.request_batch(batches.into_iter().flatten().collect())?;
        let mut left = answers.as_slice();
        let is_late = !in_time();
        for (mut it, count) in pumped.into_iter().zip(request_counts) {
            let (mine, others) = left.split_at(count.min(left.len()));
            left = others;
            let (number, path) = (it.number, paths[it.number].as_path());
            let mut take = |piece: &[u8]| {
                sink(number, piece);
                Ok(())
            };
            match it.chunked_read.handle_replies(client, mine, &mut take) {
                Ok(None) if is_late => {
                    let why = "it took longer than 60 s";
                    done[number] = Some(Err(client.refused_error("read", path, why)));
                }
                Ok(None) => waiting.push_back(it),
                Ok(Some(after)) => {
                    done[number] = Some(check_unreplaced(client, path, files[number].1, &after))
                }
                Err(error) => done[number] = Some(Err(error)),
            }
        }
    }
    Ok(())
}

/// Fails if the opened file is not the one that the probe found.
fn check_unreplaced(
    client: &SftpClient,
    path: &Path,
    probed: &FileMetadata,
    after: &Attrs,
) -> ReadOutcome {
    match client.object_from_attrs(path, after, None)? {
        MemoryObject::File(file) if file.attributes.uid == probed.attributes.uid => Ok(file),
        _ => Err(client.replaced_error(path)),
    }
}
