//! Listing a directory of a host.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::client::{
    FileHandle, ReplyResult, SftpClient, path_bytes, reply_attrs, stat_requests, status_code,
};
use super::wire::{Attrs, NameEntry, Reply, Request, status};
use crate::transport::{DirectoryEntry, DirectoryListing, MAX_PAGE_ENTRIES, TransportError};

/// The names of an open directory, as the server sends them.
pub(super) struct NameStream {
    client: Arc<SftpClient>,
    path: PathBuf,
    handle: FileHandle,
}

impl NameStream {
    /// Opens a directory; `None` where it does not exist.
    pub(super) fn open(
        client: &Arc<SftpClient>,
        path: &Path,
    ) -> Result<Option<NameStream>, TransportError> {
        let reply = client.request_one(opening_request(path))?;
        if status_code(&reply) == Some(status::NO_SUCH_FILE) {
            return Ok(None);
        }
        NameStream::from_reply(client, path, reply).map(Some)
    }

    /// Returns the stream of a directory, given the reply to its [`opening_request`].
    fn from_reply(
        client: &Arc<SftpClient>,
        path: &Path,
        reply: ReplyResult,
    ) -> Result<NameStream, TransportError> {
        Ok(NameStream {
            handle: client.handle_from_reply(path, reply)?,
            client: Arc::clone(client),
            path: path.to_path_buf(),
        })
    }

    /// Requests further names; `None` after the last one.
    pub(super) fn next_names(&self) -> Result<Option<Vec<NameEntry>>, TransportError> {
        let reply = self
            .client
            .request_one(Request::ReadDir(self.handle.clone()))?;
        match reply {
            // An empty reply would be asked for again and again.
            Ok(Reply::Names(names)) if !names.is_empty() => Ok(Some(names)),
            Ok(Reply::Status(status::EOF)) => Ok(None),
            reply => Err(self.client.reply_error("list", &self.path, Some(&reply))),
        }
    }
}

impl Drop for NameStream {
    fn drop(&mut self) {
        let handle = std::mem::take(&mut self.handle);
        self.client
            .send_without_waiting(vec![Request::Close(handle)]);
    }
}

fn opening_request(path: &Path) -> Request {
    Request::OpenDir(path_bytes(path))
}

/// A directory whose path was checked.
pub(super) struct SftpListing {
    names: NameStream,
    attrs: Attrs,
    /// Names that no page has yet: the server chooses how many it sends.
    received: Vec<NameEntry>,
}

impl SftpListing {
    /// Checks the path of a directory and opens it, in one round trip.
    pub(super) fn open(
        client: &Arc<SftpClient>,
        path: &Path,
    ) -> Result<SftpListing, TransportError> {
        // The requests that check the directory of a memory.
        let mut batch = stat_requests(&path.join("MEMORY.md")).to_vec();
        batch.push(opening_request(path));
        let mut replies = client.request_batch(batch)?;
        let opened = replies.pop();
        let names = opened.map(|reply| NameStream::from_reply(client, path, reply));
        client.check_directory(path, &replies)?;
        let attrs = replies.get(1).and_then(reply_attrs).copied();
        Ok(SftpListing {
            names: names.unwrap_or_else(|| Err(client.reply_error("list", path, None)))?,
            attrs: attrs.unwrap_or_default(),
            received: Vec::new(),
        })
    }

    /// Returns the entry of a name; `None` for one that is no file name.
    fn entry(&self, found: NameEntry) -> Option<DirectoryEntry> {
        let is_name = !matches!(&*found.name, b"" | b"." | b"..")
            && !found.name.iter().any(|byte| matches!(byte, b'/' | 0));
        let name = is_name.then(|| OsString::from_vec(found.name))?;
        let NameStream { client, path, .. } = &self.names;
        let object = client.object_from_attrs(&path.join(&name), &found.attrs, Some(&self.attrs));
        Some(DirectoryEntry { name, object })
    }
}

impl DirectoryListing for SftpListing {
    fn next_page(&mut self) -> Result<Option<Vec<DirectoryEntry>>, TransportError> {
        if self.received.is_empty() {
            match self.names.next_names()? {
                Some(names) => self.received = names,
                None => return Ok(None),
            }
        }
        let count = self.received.len().min(MAX_PAGE_ENTRIES);
        let page: Vec<NameEntry> = self.received.drain(..count).collect();
        let entries = page.into_iter().filter_map(|found| self.entry(found));
        Ok(Some(entries.collect()))
    }
}
