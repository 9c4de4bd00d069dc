//! Keeps the draft of the editor on the disk: the last change wins, and it is written before the
//! program ends.

use std::sync::{Arc, Mutex, PoisonError};

use crate::console::message::{DraftChange, Msg};
use crate::console::screens::log::state::MessageLevel;
use crate::engine::Engine;
use crate::error::Result;

/// Numbers the changes of drafts in their order.
#[derive(Default)]
pub(super) struct DraftKeeper {
    last: Option<DraftJob>,
    count: u64,
    /// Number of the last change that is on the disk.
    written: Arc<Mutex<u64>>,
}

/// A change of a draft that may have to be written.
#[derive(Clone)]
pub(super) struct DraftJob {
    engine: Arc<Engine>,
    change: DraftChange,
    number: u64,
    written: Arc<Mutex<u64>>,
}

impl DraftKeeper {
    /// Remembers a change; the job that is returned writes it.
    pub(super) fn begin_change(&mut self, engine: &Arc<Engine>, change: DraftChange) -> DraftJob {
        self.count += 1;
        let job = DraftJob {
            engine: Arc::clone(engine),
            change,
            number: self.count,
            written: Arc::clone(&self.written),
        };
        self.last = Some(job.clone());
        job
    }

    /// Writes the last change, unless that was done.
    pub(super) fn finish(&mut self) {
        if let Some(job) = self.last.take() {
            // The console is gone, and with it the place for a message.
            let _ = job.write();
        }
    }
}

impl DraftJob {
    /// Writes the change, unless a later one was written. Returns a message about a failure.
    pub(super) fn perform(self) -> Option<Msg> {
        let error = self.write().err()?;
        let text = format!(
            "the text of {} is only in this console: {error}",
            self.change.name
        );
        Some(Msg::Reported(MessageLevel::Error, text))
    }

    fn write(&self) -> Result<()> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if *written >= self.number {
            return Ok(());
        }
        let name = &self.change.name;
        match &self.change.text {
            Some(text) => {
                self.engine
                    .save_baseline_draft(name, &text.base, &text.bytes)?;
            }
            None => self.engine.discard_baseline_draft(name)?,
        }
        *written = self.number;
        Ok(())
    }
}
