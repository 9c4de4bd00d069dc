//! Fetches what is handed out and in, away from the screen's thread.

use crossbeam_channel::{Receiver, Sender};

use crate::archive::WrittenEntry;
use crate::baseline::{self, InspectedBaseline};
use crate::config::{Agent, ProtectLevel};
use crate::console::external_tools;
use crate::console::model::{BaselineEdit, ClipboardText, CopyOutcome, PagerText};
use crate::console::update::Msg;
use crate::diff;
use crate::engine::Engine;
use crate::error::Result;

/// How much of an entry is read in the pager.
const MAX_PAGED_BYTES: usize = 8 << 20;

/// What is to be fetched.
pub(super) enum HandoffJob {
    CopyToClipboard(Vec<&'static [&'static str]>, ClipboardText),
    LoadEntry(String, WrittenEntry),
    InspectBaseline(String),
    InspectEdited(Box<BaselineEdit>),
}

pub(super) fn run_handoff_jobs(
    engine: &Engine,
    jobs: &Receiver<HandoffJob>,
    messages: &Sender<Msg>,
) {
    for errand in jobs {
        let message = match errand {
            HandoffJob::CopyToClipboard(copiers, clip) => {
                let outcome = match external_tools::copy_to_clipboard(&copiers, &clip.text) {
                    Ok(program) => CopyOutcome::CopiedBy(program),
                    Err(why) => CopyOutcome::Failed(why),
                };
                Msg::ClipboardCopied(clip, outcome)
            }
            HandoffJob::LoadEntry(agent, written) => {
                let page = load_entry(engine, &agent, &written);
                Msg::EntryLoaded(agent, written, page)
            }
            HandoffJob::InspectBaseline(agent) => {
                let found = prepare_edit(engine, &agent).map(Box::new);
                Msg::BaselineInspected(agent, found)
            }
            HandoffJob::InspectEdited(edit) => {
                let now = inspect_baseline(engine, &edit.agent);
                let new = now.as_ref().map_or(&[][..], |now| &now.bytes);
                let changed = diff::count_changes(&edit.original.bytes, new, None);
                Msg::BaselineEdited(edit, now, changed)
            }
        };
        if messages.send(message).is_err() {
            return;
        }
    }
}

fn load_entry(engine: &Engine, agent: &str, written: &WrittenEntry) -> Result<PagerText> {
    let mut bytes = engine.read_entry(written, MAX_PAGED_BYTES)?;
    let more = written.size.saturating_sub(bytes.len() as u64);
    if more > 0 {
        bytes.extend(format!("\n({more} bytes more are not shown)\n").into_bytes());
    }
    Ok(PagerText::new(agent, &bytes))
}

fn inspect_baseline(engine: &Engine, agent: &str) -> Result<InspectedBaseline> {
    baseline::inspect_baseline(engine.config(), engine.agent(agent)?)
}

fn prepare_edit(engine: &Engine, name: &str) -> Result<BaselineEdit> {
    let agent = engine.agent(name)?;
    let all = engine.config().agents.iter();
    let sharing_agents: Vec<&Agent> = all
        .filter(|other| other.baseline == agent.baseline)
        .collect();
    let protected_agents = sharing_agents
        .iter()
        .filter(|it| it.protect == ProtectLevel::ReadOnly);
    Ok(BaselineEdit {
        agent: name.to_string(),
        protected_agents: protected_agents.map(|other| other.name.clone()).collect(),
        sharing_agents: sharing_agents
            .iter()
            .map(|other| other.name.clone())
            .collect(),
        original: inspect_baseline(engine, name)?,
    })
}
