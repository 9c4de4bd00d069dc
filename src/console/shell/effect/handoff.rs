//! Loads what other programs get: texts for the clipboard and the pager, and baselines for the
//! external editor.

use std::fs;
use std::io::ErrorKind::NotFound;

use crate::archive::WrittenEntry;
use crate::base::error::{Error, ErrorKind, Result};
use crate::console::handoff::{ClipboardText, CopyOutcome, PagerText};
use crate::console::shell::external_tools;
use crate::engine::{Engine, OpenedBaseline};

/// Maximum size of an entry in the pager.
const MAX_PAGED_BYTES: usize = 8 << 20;

/// Puts a text on the clipboard with the first of these programs that works.
pub(super) fn copy_to_clipboard(commands: &[&[&'static str]], text: &ClipboardText) -> CopyOutcome {
    match external_tools::copy_to_clipboard(commands, &text.text) {
        Ok(program) => CopyOutcome::CopiedBy(program),
        Err(why) => CopyOutcome::Failed(why),
    }
}

/// Loads an entry of an agent for the pager.
pub(super) fn load_entry(
    engine: &Engine,
    agent: &str,
    written: &WrittenEntry,
) -> Result<PagerText> {
    let mut bytes = engine.entries().read_entry(written, MAX_PAGED_BYTES)?;
    let more = written.size.saturating_sub(bytes.len() as u64);
    if more > 0 {
        bytes.extend(format!("\n({more} bytes more are not shown)\n").into_bytes());
    }
    Ok(PagerText::new(agent, &bytes))
}

/// Opens the baseline of an agent, to copy it for the external editor.
pub(super) fn prepare_edit(engine: &Engine, name: &str) -> Result<OpenedBaseline> {
    let agent = engine.agent(name)?;
    let name = &agent.required_reset()?.baseline;
    let path = engine.config().general.baseline_dir.join(name);
    if fs::symlink_metadata(&path).is_err_and(|error| error.kind() == NotFound) {
        let message = format!(
            "edit opens existing baselines only; the baseline {} is missing",
            path.display()
        );
        return Err(Error::new(ErrorKind::Conflict, message)
            .with_hint("write the baseline, or restore it from a backup"));
    }
    engine.baseline_edits().open_baseline(name)
}
