//! Holds: small documents in which this controller keeps what was decided or seen, and which its
//! processes change in turn.

use std::path::PathBuf;

use crate::base::error::Result;
use crate::store::lease::LockHolder;

/// A document of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hold {
    /// Pauses and skips of scheduled resets.
    Schedule,
    /// What was alerted, and what waits to be.
    Alerts,
    /// The last seal that was made or accepted, which the guard puts back.
    AcceptedSeal,
    /// The highest serial of each key that signed a seal.
    SealSerials,
    /// Changes of baselines and seal that are under way.
    BaselineChanges,
    /// What the last checks of memories of several files found.
    Health,
}

/// The documents of a store.
pub trait Holds: Send + Sync {
    /// Reads a document without a lock: it may change at once. None before it is first written.
    ///
    /// # Errors
    /// It cannot be read, or another user than root, this one and the owner of the archive wrote it.
    fn read(&self, hold: Hold) -> Result<Option<Vec<u8>>>;

    /// Keeps other processes from changing a document until the result is dropped. A change is short,
    /// so this waits for theirs.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`](crate::base::error::ErrorKind::Busy), naming the holder, after ten seconds;
    /// or the store cannot be written.
    fn lock(&self, hold: Hold) -> Result<Box<dyn HoldLock + '_>>;

    /// Returns the process that changes a document now: none if there is none, and no description of one
    /// that has not written it yet.
    fn holder(&self, hold: Hold) -> Option<Option<LockHolder>>;

    /// Where a document is, for people and for watches.
    fn location(&self, hold: Hold) -> PathBuf;
}

/// A document that only this process changes.
pub trait HoldLock {
    /// Reads it, as [`Holds::read`].
    ///
    /// # Errors
    /// As [`Holds::read`].
    fn read(&self) -> Result<Option<Vec<u8>>>;

    /// Replaces it as a whole; none removes it. It is durable when this returns.
    ///
    /// # Errors
    /// The store cannot be written; the document is then unchanged.
    fn replace(&mut self, text: Option<&[u8]>) -> Result<()>;
}
