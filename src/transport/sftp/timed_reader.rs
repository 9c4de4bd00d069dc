//! Reads of open files and of directories of a host, each in bounded time.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::chunked_read::{ChunkedRead, FileContent};
use super::client::{FileHandle, ReplyResult, SftpClient};
use super::listing::NameStream;
use super::wire::{Attrs, Request};
use crate::base::clock::Clock;
use crate::base::digest::Hasher;
use crate::transport::{ByteSink, MAX_SEARCHED_NAMES, TransportError};

/// Time limit of reading one file, or one directory listing.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(60);

/// Limits of a directory listing: number of names, and bytes of names.
const MAX_LISTED_NAMES: usize = MAX_SEARCHED_NAMES;
const MAX_LISTED_NAME_BYTES: usize = 16 << 20;

/// Reads whole files and directories in one session.
#[derive(Clone)]
pub(super) struct TimedReader {
    pub(super) client: Arc<SftpClient>,
    pub(super) clock: Arc<dyn Clock>,
}

impl TimedReader {
    /// Reads an open file to its end; `size` is its reported size. The returned attributes are
    /// those after the last byte.
    pub(super) fn read_to_end(
        &self,
        handle: &FileHandle,
        path: &Path,
        size: u64,
        sink: ByteSink<'_>,
    ) -> Result<(FileContent, Attrs), TransportError> {
        let (content, after, _) = self.read_with_requests(handle, path, size, Vec::new(), sink)?;
        Ok((content, after))
    }

    /// Reads an open file to its end, and returns the replies to further requests that leave with
    /// its first reads, too.
    pub(super) fn read_with_requests(
        &self,
        handle: &FileHandle,
        path: &Path,
        size: u64,
        mut more: Vec<Request>,
        sink: ByteSink<'_>,
    ) -> Result<(FileContent, Attrs, Vec<ReplyResult>), TransportError> {
        let mut pump = ChunkedRead::new(handle, path, size);
        let mut hasher = Hasher::default();
        let mut rest = Vec::new();
        let end = self.clock.instant() + TRANSFER_TIMEOUT;
        loop {
            self.check_deadline(end, path)?;
            let mut batch = pump.next_requests();
            let count = batch.len();
            batch.append(&mut more);
            let mut answers = self.client.request_batch(batch)?;
            rest.extend(answers.split_off(count.min(answers.len())));
            let after = pump.handle_replies(&self.client, &answers, &mut |bytes| {
                hasher.update(bytes);
                sink(bytes)
            })?;
            if let Some(after) = after {
                let content = FileContent {
                    digest: hasher.finish(),
                    size: pump.offset,
                };
                return Ok((content, after, rest));
            }
        }
    }

    /// Returns the names in a directory; `None` where it does not exist.
    pub(super) fn list_names(&self, path: &Path) -> Result<Option<Vec<Vec<u8>>>, TransportError> {
        let Some(stream) = NameStream::open(&self.client, path)? else {
            return Ok(None);
        };
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut length = 0;
        let end = self.clock.instant() + TRANSFER_TIMEOUT;
        loop {
            self.check_deadline(end, path)?;
            let Some(more) = stream.next_names()? else {
                return Ok(Some(names));
            };
            if names.len() >= MAX_LISTED_NAMES || length >= MAX_LISTED_NAME_BYTES {
                let why = "it has more than 100,000 names or 16 MiB of names";
                return Err(self.client.refused_error("list", path, why));
            }
            length += more.iter().map(|name| name.name.len()).sum::<usize>();
            names.extend(more.into_iter().map(|name| name.name));
        }
    }

    /// Limits the total time: a server may send each reply in time and still never finish.
    fn check_deadline(&self, end: Instant, path: &Path) -> Result<(), TransportError> {
        if self.clock.instant() < end {
            Ok(())
        } else {
            Err(self
                .client
                .refused_error("read", path, "it took longer than 60 s"))
        }
    }
}
