//! Reads open files of a host, a batch of requests at a time.

use std::path::Path;

use super::folder::{Handle, moved};
use super::host::{Answer, Connection, attrs};
use super::wire::{Attrs, Reply, Request, status};
use crate::digest::Digest;
use crate::transport::{Sink, TransportError};

/// Bytes of one request. Every server has to take it.
pub(super) const PIECE: u32 = 32 * 1024;

/// Bytes that are asked for behind the end of a file. It counts as under way,
/// and there are many files.
const PROBE: u32 = 1024;

/// How often a file may end elsewhere than where its size says: an agent may be
/// writing to it.
const ENDS: u32 = 16;

/// Requests that are under way for one file.
pub(super) const AHEAD: u64 = 24;

/// No memory on a host that claims more is read.
pub(super) const LARGEST: u64 = 16 << 20;

/// What an open file held when it was read, and its attributes after that.
pub(super) struct Held {
    pub(super) content: Digest,
    pub(super) size: u64,
    pub(super) after: Attrs,
}

/// An open file on its way here, a batch of requests at a time.
pub(super) struct Pump<'p> {
    handle: &'p Handle,
    path: &'p Path,
    /// What it claims to have.
    size: u64,
    pub(super) offset: u64,
    most: u64,
    /// How often it seemed to end elsewhere than where it does.
    ends: u32,
}

impl<'p> Pump<'p> {
    pub(super) fn new(handle: &'p Handle, path: &'p Path, size: u64) -> Pump<'p> {
        Pump {
            handle,
            path,
            size,
            offset: 0,
            // One that grows as fast as it is read is left: what follows is found
            // when the displaced file is settled.
            most: size.saturating_mul(2).clamp(LARGEST, 2 * LARGEST),
            ends: 0,
        }
    }

    /// The next requests.
    pub(super) fn next(&self) -> Vec<Request> {
        let mut batch = Vec::new();
        let mut at = self.offset;
        let mut read = |offset, length| {
            batch.push(Request::Read {
                handle: self.handle.clone(),
                offset,
                length,
            });
        };
        for _ in 0..AHEAD {
            if at >= self.size {
                // What it has grown by meanwhile, or that it ends there.
                read(at, PROBE);
                break;
            }
            let length = u64::from(PIECE).min(self.size - at);
            read(at, length as u32);
            at += length;
        }
        batch.push(Request::Fstat {
            handle: self.handle.clone(),
        });
        batch
    }

    /// Takes the answers to them. At the end of the file, its attributes.
    pub(super) fn take(
        &mut self,
        host: &Connection,
        answers: &[Answer],
        sink: Sink<'_>,
    ) -> Result<Option<Attrs>, TransportError> {
        let Some((after, reads)) = answers.split_last() else {
            return Err(host.odd_answer("read", self.path));
        };
        let Some(after) = attrs(after) else {
            return Err(host.odd_answer("look at", self.path));
        };
        // Where the next answer begins, if the ones before were not short.
        let mut next = self.offset;
        for answer in reads {
            match answer {
                // It has to be asked for again.
                Ok(Reply::Data(_)) if next != self.offset => break,
                Ok(Reply::Data(data)) => {
                    sink(data)?;
                    next += match next < self.size {
                        true => u64::from(PIECE).min(self.size - next),
                        false => data.len() as u64,
                    };
                    self.offset += data.len() as u64;
                }
                // A file that ends before its end was not read, whatever the server
                // says. One that is written meanwhile is read on.
                Ok(Reply::Status {
                    code: status::EOF, ..
                }) if after.size == Some(self.offset) => return Ok(Some(*after)),
                Ok(Reply::Status {
                    code: status::EOF, ..
                }) if after.size < Some(self.offset) => {
                    // Cut short while it was read.
                    return Err(moved(host, self.path));
                }
                Ok(Reply::Status {
                    code: status::EOF, ..
                }) if self.ends < ENDS => {
                    self.ends += 1;
                    self.size = after.size.unwrap_or(self.offset);
                    return Ok(None);
                }
                Ok(Reply::Status {
                    code: status::EOF, ..
                }) => {
                    let why = "it ends before the size that the server claims";
                    return Err(host.refused("read", self.path, why));
                }
                Ok(Reply::Status { code, .. }) => {
                    return Err(host.failed("read", self.path, *code));
                }
                _ => return Err(host.odd_answer("read", self.path)),
            }
        }
        Ok((self.offset >= self.most).then_some(*after))
    }
}
