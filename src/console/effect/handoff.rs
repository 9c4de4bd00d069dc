//! Loads what other programs get, and inspects what they return: texts for the clipboard and
//! the pager, and baselines for the editor.

use std::fs;
use std::io::ErrorKind::NotFound;

use crate::archive::WrittenEntry;
use crate::baseline::InspectedBaseline;
use crate::config::{Agent, ProtectLevel};
use crate::console::external_tools;
use crate::console::handoff::{ClipboardText, CopyOutcome, ExternalEdit, PagerText};
use crate::console::message::{EditedBaseline, Msg};
use crate::diff;
use crate::engine::{BaselineEdit, Engine, FindingCounts};
use crate::error::{Error, ErrorKind, Result};

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
    let mut bytes = engine.read_entry(written, MAX_PAGED_BYTES)?;
    let more = written.size.saturating_sub(bytes.len() as u64);
    if more > 0 {
        bytes.extend(format!("\n({more} bytes more are not shown)\n").into_bytes());
    }
    Ok(PagerText::new(agent, &bytes))
}

/// Records what the external editor saved, and inspects and lints the baseline again.
pub(super) fn inspect_edited(engine: &Engine, edit: ExternalEdit, mark: &BaselineEdit) -> Msg {
    let recorded = engine.record_external_save(&edit.baseline, &edit.original.bytes, mark);
    let now = recorded.and_then(|_| inspect_baseline(engine, &edit.agent));
    let text = now.as_ref().map_or(&[][..], |now| &now.bytes);
    // An allowlist that cannot be read allows nothing; `lint` and `doctor` report it.
    let decisions = engine.load_lint_decisions().unwrap_or_default();
    let findings = match &now {
        Ok(_) => {
            engine
                .baseline_lint(&edit.baseline, &decisions)
                .lint(text)
                .findings
        }
        Err(_) => Vec::new(),
    };
    Msg::BaselineEdited(Box::new(EditedBaseline {
        changed_lines: diff::count_changes(&edit.original.bytes, text, None),
        findings: FindingCounts::of(&findings),
        edit,
        now,
    }))
}

fn inspect_baseline(engine: &Engine, agent: &str) -> Result<InspectedBaseline> {
    engine.inspect_baseline(engine.agent(agent)?)
}

/// Inspects the baseline of an agent before it is edited.
pub(super) fn prepare_edit(engine: &Engine, name: &str) -> Result<ExternalEdit> {
    let agent = engine.agent(name)?;
    let sharing_agents: Vec<&Agent> = engine
        .config()
        .agents
        .iter()
        .filter(|other| other.baseline == agent.baseline)
        .collect();
    let path = engine.config().baseline_path(agent);
    if fs::symlink_metadata(&path).is_err_and(|error| error.kind() == NotFound) {
        let message = format!(
            "edit opens existing baselines only; the baseline {} is missing",
            path.display()
        );
        return Err(Error::new(ErrorKind::Conflict, message)
            .with_hint("write the baseline, or restore it from a backup"));
    }
    Ok(ExternalEdit {
        agent: name.to_string(),
        baseline: agent.baseline.clone(),
        protected_agents: sharing_agents
            .iter()
            .filter(|it| it.protect == ProtectLevel::ReadOnly)
            .map(|it| it.name.clone())
            .collect(),
        sharing_agents: sharing_agents.iter().map(|it| it.name.clone()).collect(),
        original: inspect_baseline(engine, name)?,
    })
}
