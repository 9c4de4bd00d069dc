//! The copy of a baseline in the external editor: read when the editor ended, or kept as a draft when
//! the console ends.

use std::sync::Arc;

use super::EffectRunner;
use super::job_queue::JobClass;
use crate::console::message::{DraftChange, DraftText, ExternalText, Msg};
use crate::console::shell::external_copy::ExternalCopy;
use crate::engine::OpenedBaseline;

impl EffectRunner {
    /// Reads the copy of a baseline after the external editor ended, well or not.
    pub fn read_external_copy(
        &self,
        opened: Box<OpenedBaseline>,
        copy: ExternalCopy,
        has_succeeded: bool,
    ) {
        let ended_at = has_succeeded.then(|| self.engine.clock().instant());
        self.submit(JobClass::Handoff, move |started| {
            let text = started.and_then(|_| copy.read_text());
            let kept = copy.finish(text.as_deref().ok(), ended_at);
            Msg::ExternalEditEnded(Box::new(ExternalText {
                opened: *opened,
                text,
                kept,
            }))
        });
    }

    /// Keeps what an external editor wrote until the console ended, as a draft that is written at
    /// once. Returns what to tell the operator.
    pub fn keep_external_copy(
        &mut self,
        opened: &OpenedBaseline,
        copy: ExternalCopy,
    ) -> Option<String> {
        let text = copy.read_text().ok().filter(|text| *text != opened.bytes);
        let change = text.clone().map(|text| DraftChange {
            name: opened.name.clone(),
            text: Some(DraftText {
                bytes: Arc::new(text),
                base: Arc::new(opened.bytes.clone()),
            }),
            replaced: None,
        });
        let is_stored = change.is_some_and(|change| {
            let job = self.drafts.begin_change(&self.engine, change);
            job.write_now()
        });
        let kept = copy.finish(text.as_deref().filter(|_| is_stored), None);
        kept.map(|kept| kept.to_string())
    }
}
