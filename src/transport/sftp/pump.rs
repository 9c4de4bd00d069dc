//! Reads open files of a host, a batch of requests at a time.

use std::path::Path;

use super::connection::{Answer, Connection, attrs};
use super::folder::{Handle, moved};
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
pub(super) const AHEAD: usize = 24;

/// No memory on a host that claims more is read.
pub(super) const LARGEST: u64 = 16 << 20;

/// Why a memory of this size is not read.
pub(super) fn too_large(host: &Connection, path: &Path, size: u64) -> TransportError {
    let why = format!("it has {size} bytes, more than the 16 MiB that are read from a host");
    host.refused("read", path, &why)
}

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
    /// What was asked for: from where, and how much.
    asked: Vec<(u64, u32)>,
}

impl<'p> Pump<'p> {
    pub(super) fn new(handle: &'p Handle, path: &'p Path, size: u64) -> Pump<'p> {
        Pump {
            handle,
            path,
            size,
            offset: 0,
            most: size.saturating_mul(2).max(2 * LARGEST),
            ends: 0,
            asked: Vec::new(),
        }
    }

    /// The next requests.
    pub(super) fn next(&mut self) -> Vec<Request> {
        self.asked.clear();
        let mut at = self.offset;
        while self.asked.len() < AHEAD && at < self.size {
            let length = u64::from(PIECE).min(self.size - at) as u32;
            self.asked.push((at, length));
            at += u64::from(length);
        }
        if at >= self.size {
            // What it has grown by meanwhile, or that it ends there.
            self.asked.push((at, PROBE));
        }
        let read = |(offset, length): &(u64, u32)| Request::Read {
            handle: self.handle.clone(),
            offset: *offset,
            length: *length,
        };
        let mut batch: Vec<Request> = self.asked.iter().map(read).collect();
        batch.push(Request::Fstat {
            handle: self.handle.clone(),
        });
        batch
    }

    /// How many bytes they ask for.
    pub(super) fn asked(&self) -> u64 {
        self.asked
            .iter()
            .map(|(_, length)| u64::from(*length))
            .sum()
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
        for ((at, _), answer) in self.asked.iter().zip(reads) {
            // Behind a short answer, which servers may give, nothing that was asked
            // for is what comes next: neither bytes nor the end of the file.
            if *at != self.offset {
                return Ok(None);
            }
            match answer {
                Ok(Reply::Data(data)) => {
                    sink(data)?;
                    self.offset += data.len() as u64;
                }
                Ok(Reply::Status {
                    code: status::EOF, ..
                }) => return self.ended(host, after),
                Ok(Reply::Status { code, .. }) => {
                    return Err(host.failed("read", self.path, *code));
                }
                _ => return Err(host.odd_answer("read", self.path)),
            }
        }
        self.size = self.size.max(after.size.unwrap_or(0));
        match self.offset >= self.most {
            true => Err(host.refused("read", self.path, "it grows as fast as it is read")),
            false => Ok(None),
        }
    }

    /// The server says that it ends here. One that ends before its size was not
    /// read, whatever the server says; one that is written meanwhile is read on.
    fn ended(&mut self, host: &Connection, after: &Attrs) -> Result<Option<Attrs>, TransportError> {
        self.ends += 1;
        match after.size {
            Some(size) if size == self.offset => Ok(Some(*after)),
            // Cut short while it was read.
            Some(size) if size < self.offset => Err(moved(host, self.path)),
            Some(size) if self.ends <= ENDS => {
                self.size = size;
                Ok(None)
            }
            _ => {
                let why = "it ends before the size that the server claims";
                Err(host.refused("read", self.path, why))
            }
        }
    }
}
