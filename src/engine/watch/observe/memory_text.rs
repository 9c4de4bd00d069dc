//! The beginning of a memory and its boundary, for searches: neither scanned nor cached.

use std::sync::Mutex;

use chrono::{DateTime, FixedOffset};

use crate::base::error::{Error, ErrorKind};
use crate::baseline::BaselineCache;
use crate::boundary::{Boundary, MemoryAccumulator, classify};
use crate::config::Agent;
use crate::engine::watch::Observer;

/// The beginning of a memory as it was read.
pub(in crate::engine) struct MemoryText {
    pub text: Vec<u8>,
    pub boundary: Option<Boundary>,
    pub read_at: DateTime<FixedOffset>,
}

impl Observer {
    /// Reads the beginning of a memory and finds its boundary, without a scan of the text.
    ///
    /// # Errors
    /// The reason of its state, where it cannot be read as a file.
    pub(in crate::engine) fn read_memory_text<'c>(
        &'c self,
        agent: &'c Agent,
        baselines: &Mutex<BaselineCache<'c>>,
    ) -> Result<MemoryText, Error> {
        self.try_read_memory_text(agent, baselines)
            .ok_or_else(|| Error::new(ErrorKind::Host, self.observe(agent).reason))
    }

    fn try_read_memory_text<'c>(
        &'c self,
        agent: &'c Agent,
        baselines: &Mutex<BaselineCache<'c>>,
    ) -> Option<MemoryText> {
        let history = self.context.history(&agent.name);
        let subject = self.prepare_subject(agent, history, baselines);
        let current = subject.reference_or_empty();
        let read_at = self.context.clock().now();
        let mut reading = MemoryAccumulator::for_baseline(&current);
        let read = self
            .context
            .open_directory(agent)
            .ok()?
            .read_memory(&mut |piece| {
                reading.push(piece);
                Ok(())
            });
        read.ok()?;
        let boundary = classify(&reading, &current, subject.earlier_versions()).boundary;
        Some(MemoryText {
            text: reading.into_prefix(),
            boundary,
            read_at,
        })
    }
}
