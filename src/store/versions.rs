//! Baseline versions: the bytes of every baseline that was pushed, sealed or replaced, by digest.
//! Retention deletes those that no undo needs any more.

use std::path::PathBuf;
use std::sync::Arc;

use crate::base::digest::Digest;
use crate::base::durable::{self, UnsyncedObject};
use crate::base::error::Result;
use crate::transport::Stamp;

/// A stored version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredVersion {
    /// Digest of its bytes, by its name.
    pub digest: Digest,
    /// Size in bytes.
    pub size: u64,
    /// Bytes that it takes on the disk.
    pub disk_bytes: u64,
    /// Time of the last store, in seconds since 1970.
    pub stored_at: i64,
    /// Changes when it is stored again.
    pub(crate) stamp: Stamp,
}

/// The baseline versions of a store.
pub trait Versions: Send + Sync {
    /// Starts to store a version; none when it is already stored. Then retention keeps it for as long
    /// as one that is stored now.
    ///
    /// # Errors
    /// The store cannot be written.
    fn start_version(&self, digest: Digest, bytes: &[u8]) -> Result<Option<Box<dyn VersionDraft>>>;

    /// Opens what has to be synced before a record relies on a version.
    ///
    /// # Errors
    /// It is not stored.
    fn open_unsynced(&self, version: Digest) -> Result<Vec<UnsyncedObject>>;

    /// Reads the bytes of a version.
    ///
    /// # Errors
    /// It is not stored, cannot be read, or does not match its digest.
    fn read_version(&self, digest: Digest) -> Result<Arc<Vec<u8>>>;

    /// Reads a version without its bytes, and returns their digest; none if it is not stored.
    ///
    /// # Errors
    /// It cannot be read.
    fn digest_version(&self, digest: Digest) -> Result<Option<Digest>>;

    /// Returns the digests of all versions, also of those that cannot be read.
    ///
    /// # Errors
    /// The store cannot be read.
    fn digests(&self) -> Result<Vec<Digest>>;

    /// Lists the versions that can be deleted.
    ///
    /// # Errors
    /// The store cannot be read.
    fn list(&self) -> Result<Vec<StoredVersion>>;

    /// Where a version is, whether or not it is stored; for people.
    fn location(&self, digest: Digest) -> PathBuf;

    /// Keeps other processes from relying on stored versions, until the result is dropped.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`](crate::base::error::ErrorKind::Busy) when another process deletes for ten
    /// seconds; otherwise the store cannot be written.
    fn lock_for_deletion(&self) -> Result<Box<dyn VersionDeletion + '_>>;

    /// Notes that retention has checked the versions now. A failure only costs another check.
    fn note_check(&self);

    /// Returns the time of the last check by retention, in seconds since 1970; none before the first.
    fn last_check(&self) -> Option<i64>;
}

impl dyn Versions + '_ {
    /// Stores a version, unless it is stored, and returns its digest. It is durable when this returns.
    ///
    /// # Errors
    /// The store cannot be written.
    pub(crate) fn store(&self, bytes: &[u8]) -> Result<Digest> {
        let digest = Digest::of(bytes);
        if let Some(draft) = self.start_version(digest, bytes)? {
            durable::sync_all(draft.unsynced_content())?;
            draft.assign_name()?;
        }
        durable::sync_all(self.open_unsynced(digest)?)?;
        Ok(digest)
    }
}

/// A version that has no name yet.
pub trait VersionDraft: Send + Sync {
    /// What has to be synced before it gets its name.
    fn unsynced_content(&self) -> Option<UnsyncedObject>;

    /// Gives it its name. The name is durable once what [`Versions::open_unsynced`] returns is synced.
    ///
    /// # Errors
    /// The store cannot be written.
    fn assign_name(self: Box<Self>) -> Result<()>;
}

/// The deletion of versions, while no other process begins to rely on one.
pub trait VersionDeletion {
    /// Deletes a listed version, unless it was stored again since it was listed. Returns whether it
    /// is gone.
    ///
    /// # Errors
    /// The store cannot be written.
    fn delete(&self, version: &StoredVersion) -> Result<bool>;
}
