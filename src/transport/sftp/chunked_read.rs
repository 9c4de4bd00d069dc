//! Reads open files of a host, a batch of requests at a time.

use std::path::Path;

use super::client::{FileHandle, ReplyResult, SftpClient, reply_attrs};
use super::wire::{Attrs, Reply, Request, status};
use crate::base::digest::{Digest, Hasher};
use crate::transport::{ByteSink, TransportError};

/// Bytes per request; every server has to accept this size.
pub(super) const READ_REQUEST_BYTES: u32 = 32 * 1024;

/// The least bytes per request that a server's short reads reduce it to: a single short read may
/// also be due to an agent that writes to the file.
const MIN_READ_REQUEST_BYTES: u32 = 512;

/// Bytes that are requested beyond the end of a file. They count against the limit of bytes in
/// flight, and there are many files.
const EOF_PROBE_BYTES: u32 = 1024;

/// Number of times that a file may end elsewhere than at its reported size: an agent may be writing
/// to it.
const MAX_EARLY_ENDS: u32 = 16;

/// Requests in flight per file.
pub(super) const MAX_REQUESTS_PER_FILE: usize = 24;

/// Size limit of a memory on a host.
pub(super) const MAX_FILE_BYTES: u64 = 16 << 20;

/// Returns the error for a memory over the size limit.
pub(super) fn too_large_error(client: &SftpClient, path: &Path, size: u64) -> TransportError {
    let why = format!("its size, {size} bytes, is more than the 16 MiB that are read from a host");
    client.refused_error("read", path, &why)
}

/// Identifies the content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileContent {
    pub(super) digest: Digest,
    /// Number of bytes.
    pub(super) size: u64,
}

/// An open file that is being read, a batch of requests at a time.
pub(super) struct ChunkedRead<'p> {
    handle: &'p FileHandle,
    path: &'p Path,
    /// The size that the server reports.
    claimed_size: u64,
    pub(super) offset: u64,
    max_offset: u64,
    /// Bytes per request: no more than the server has returned for one.
    request_bytes: u32,
    /// Number of times that the file ended elsewhere than at its reported size.
    early_ends: u32,
    /// The requested ranges: offset and length.
    requested_ranges: Vec<(u64, u32)>,
}

impl<'p> ChunkedRead<'p> {
    pub(super) fn new(handle: &'p FileHandle, path: &'p Path, size: u64) -> ChunkedRead<'p> {
        ChunkedRead {
            handle,
            path,
            claimed_size: size,
            offset: 0,
            max_offset: size.saturating_mul(2).max(2 * MAX_FILE_BYTES),
            request_bytes: READ_REQUEST_BYTES,
            early_ends: 0,
            requested_ranges: Vec::new(),
        }
    }

    /// Returns the next requests.
    pub(super) fn next_requests(&mut self) -> Vec<Request> {
        self.requested_ranges.clear();
        let mut at = self.offset;
        while self.requested_ranges.len() < MAX_REQUESTS_PER_FILE && at < self.claimed_size {
            let length = u64::from(self.request_bytes).min(self.claimed_size - at) as u32;
            self.requested_ranges.push((at, length));
            at += u64::from(length);
        }
        if at >= self.claimed_size {
            // Finds what was appended in between, or confirms the end.
            self.requested_ranges.push((at, EOF_PROBE_BYTES));
        }
        let read = |(offset, length): &(u64, u32)| Request::Read {
            handle: self.handle.clone(),
            offset: *offset,
            length: *length,
        };
        let mut batch: Vec<Request> = self.requested_ranges.iter().map(read).collect();
        batch.push(Request::Fstat(self.handle.clone()));
        batch
    }

    /// Returns the number of bytes that these requests ask for.
    pub(super) fn requested_bytes(&self) -> u64 {
        self.requested_ranges
            .iter()
            .map(|(_, length)| u64::from(*length))
            .sum()
    }

    /// Handles their replies. At the end of the file, returns its attributes.
    pub(super) fn handle_replies(
        &mut self,
        client: &SftpClient,
        answers: &[ReplyResult],
        sink: ByteSink<'_>,
    ) -> Result<Option<Attrs>, TransportError> {
        let Some((after, reads)) = answers.split_last() else {
            return Err(client.reply_error("read", self.path, None));
        };
        let Some(after) = reply_attrs(after) else {
            return Err(client.reply_error("stat", self.path, Some(after)));
        };
        for ((at, length), answer) in self.requested_ranges.iter().zip(reads) {
            // After a short read, which servers may return, the later replies do not continue at
            // this offset, neither bytes nor the end of the file. They are requested again.
            if *at != self.offset {
                return Ok(None);
            }
            match answer {
                Ok(Reply::Data(data)) => {
                    sink(data)?;
                    self.offset += data.len() as u64;
                    let is_short = data.len() < *length as usize;
                    if is_short && *at < self.claimed_size {
                        self.request_bytes = (data.len() as u32).max(MIN_READ_REQUEST_BYTES);
                    }
                }
                Ok(Reply::Status(status::EOF)) => return self.handle_end_of_file(client, after),
                _ => return Err(client.reply_error("read", self.path, Some(answer))),
            }
        }
        self.claimed_size = self.claimed_size.max(after.size.unwrap_or(0));
        if self.offset >= self.max_offset {
            Err(client.refused_error("read", self.path, "it grows as fast as it is read"))
        } else {
            Ok(None)
        }
    }

    /// Handles the replies to the last requests, and returns whether the file ends there, and has this
    /// content as a whole.
    pub(super) fn ends_with_content(
        &mut self,
        client: &SftpClient,
        answers: &[ReplyResult],
        content: FileContent,
    ) -> bool {
        let mut hasher = Hasher::default();
        let end = self.handle_replies(client, answers, &mut |bytes| {
            hasher.update(bytes);
            Ok(())
        });
        let read = FileContent {
            digest: hasher.finish(),
            size: self.offset,
        };
        matches!(end, Ok(Some(_))) && read == content
    }

    /// Handles an end of file. A file that ends before its reported size was not read completely,
    /// whatever the server says; a file that is being written is read on.
    fn handle_end_of_file(
        &mut self,
        client: &SftpClient,
        after: &Attrs,
    ) -> Result<Option<Attrs>, TransportError> {
        self.early_ends += 1;
        match after.size {
            Some(size) if size == self.offset => Ok(Some(*after)),
            // Truncated during the read.
            Some(size) if size < self.offset => Err(client.replaced_error(self.path)),
            Some(size) if self.early_ends <= MAX_EARLY_ENDS => {
                self.claimed_size = size;
                Ok(None)
            }
            _ => {
                let why = "it ends before the size that the server reports";
                Err(client.refused_error("read", self.path, why))
            }
        }
    }
}
