//! What a run installs in place of a file: content in parts, so that a large one is never in memory as
//! a whole, or no file.

use std::io::{Cursor, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;

use crate::base::error::{Error, PathContext, Result};
use crate::boundary::{Baseline, MemoryAccumulator};
use crate::engine::context::Context;
use crate::store::record::FileState;
use crate::transport::{ByteSink, ObjectId};

/// A part of the content to install.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::engine) enum ContentPart {
    Bytes(Arc<Vec<u8>>),
    Baseline(Arc<Baseline>),
    /// An entry below `archive_dir`, and how many of its first bytes to leave out.
    Entry(PathBuf, u64),
}

/// Content to install, in parts, so that a large one is never in memory as a whole.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::engine) struct ContentParts(pub Vec<ContentPart>);

impl ContentParts {
    /// Feeds all bytes to `sink`.
    pub fn write_to(&self, context: &Context, sink: ByteSink<'_>) -> Result<()> {
        for part in &self.0 {
            match part {
                ContentPart::Bytes(bytes) => sink(bytes)?,
                ContentPart::Baseline(baseline) => sink(baseline.bytes())?,
                ContentPart::Entry(path, skip) => {
                    let mut file = context.archive().open_entry(path)?;
                    let failed = |error| {
                        Error::from_io("read", &context.archive().root().join(path), &error)
                    };
                    let mut skip = *skip;
                    let mut buffer = vec![0; 128 * 1024];
                    loop {
                        let count = file.read(&mut buffer).map_err(failed)?;
                        if count == 0 {
                            break;
                        }
                        let pass = skip.min(count as u64);
                        skip -= pass;
                        sink(&buffer[pass as usize..count])?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Opens a reader of the same bytes.
    pub fn open_reader(&self, context: &Context) -> Result<Box<dyn Read>> {
        let mut all: Box<dyn Read> = Box::new(std::io::empty());
        for part in &self.0 {
            let next: Box<dyn Read> = match part {
                ContentPart::Bytes(bytes) => Box::new(Cursor::new(bytes.to_vec())),
                ContentPart::Baseline(baseline) => Box::new(Cursor::new(baseline.bytes().to_vec())),
                ContentPart::Entry(path, skip) => {
                    let mut file = context.archive().open_entry(path)?;
                    file.seek(SeekFrom::Start(*skip))
                        .with_path("read", &context.archive().root().join(path))?;
                    Box::new(file)
                }
            };
            all = Box::new(all.chain(next));
        }
        Ok(all)
    }

    /// Returns the file state of these bytes, and whether they end with a complete line.
    pub fn measure(&self, context: &Context) -> Result<(FileState, bool)> {
        let mut reading = MemoryAccumulator::default();
        let mut last = b'\n';
        self.write_to(context, &mut |bytes| {
            last = bytes.last().copied().unwrap_or(last);
            reading.push(bytes);
            Ok(())
        })?;
        Ok((FileState::from_reading(&mut reading), last == b'\n'))
    }
}

/// What an undo puts in the memory's place.
pub(in crate::engine) enum Replacement {
    /// No file: the memory is removed.
    Absent,
    /// A new file.
    File(ContentParts),
    /// An object that an earlier run displaced and kept beside the memory.
    KeptObject {
        /// The name of the object.
        name: String,
        /// Its identity, where known.
        id: Option<ObjectId>,
    },
    /// A new symlink with this target.
    Symlink(Vec<u8>),
}
