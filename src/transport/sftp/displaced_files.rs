//! Displaced files of a memory on a host that were inspected once, and are open.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::chunked_read::FileContent;
use super::client::FileHandle;

/// Time for which a displaced file must stay unchanged before its removal, since open writers
/// cannot be detected. It starts at the displacement; before that the file was read for its archive
/// entry.
pub(super) const QUIET_PERIOD: Duration = Duration::from_millis(250);

/// A displaced file, open.
pub(super) struct OpenDisplacedFile {
    pub(super) handle: FileHandle,
    /// Its content when it was read last, if it was.
    pub(super) last_content: Option<FileContent>,
    /// Start of the period without changes, if it is unchanged.
    pub(super) unchanged_since: Instant,
}

/// Displaced files that were inspected, by name.
#[derive(Default)]
pub(super) struct DisplacedFiles(pub(super) RefCell<HashMap<String, OpenDisplacedFile>>);

impl DisplacedFiles {
    /// Keeps a displaced file open.
    pub(super) fn keep(&self, name: &str, file: OpenDisplacedFile) {
        self.0.borrow_mut().insert(name.to_string(), file);
    }

    /// Returns when the last of them can be settled.
    pub(super) fn next_settle_time(&self) -> Option<Instant> {
        let files = self.0.borrow();
        files
            .values()
            .map(|it| it.unchanged_since + QUIET_PERIOD)
            .max()
    }

    /// Takes the open handles, to be closed.
    pub(super) fn take_handles(&self) -> impl Iterator<Item = FileHandle> {
        self.0.take().into_values().map(|it| it.handle)
    }
}
