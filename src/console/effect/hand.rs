//! Fetches what is handed out and in, away from the screen's thread.

use crossbeam_channel::{Receiver, Sender};

use crate::archive::Written;
use crate::baseline::{self, Inspected};
use crate::config::{Agent, Protect};
use crate::console::model::{ClipboardText, CopyOutcome, Edit, PagerText};
use crate::console::outside;
use crate::console::update::Msg;
use crate::diff;
use crate::engine::Engine;
use crate::error::Result;

/// How much of an entry is read in the pager.
const MAX_PAGED_BYTES: usize = 8 << 20;

/// What is to be fetched.
pub(super) enum HandoffJob {
    Copy(Vec<&'static [&'static str]>, ClipboardText),
    Entry(String, Written),
    Baseline(String),
    Edited(Box<Edit>),
}

pub(super) fn run(engine: &Engine, errands: &Receiver<HandoffJob>, messages: &Sender<Msg>) {
    for errand in errands {
        let message = match errand {
            HandoffJob::Copy(copiers, clip) => {
                let handed = match outside::copy(&copiers, &clip.text) {
                    Ok(program) => CopyOutcome::Program(program),
                    Err(why) => CopyOutcome::Nobody(why),
                };
                Msg::Copied(clip, handed)
            }
            HandoffJob::Entry(agent, written) => {
                let page = entry(engine, &agent, &written);
                Msg::Entry(agent, written, page)
            }
            HandoffJob::Baseline(agent) => {
                let found = look(engine, &agent).map(Box::new);
                Msg::Baseline(agent, found)
            }
            HandoffJob::Edited(edit) => {
                let now = inspect(engine, &edit.agent);
                let new = now.as_ref().map_or(&[][..], |now| &now.bytes);
                let changed = diff::stat(&edit.before.bytes, new, None);
                Msg::Edited(edit, now, changed)
            }
        };
        if messages.send(message).is_err() {
            return;
        }
    }
}

fn entry(engine: &Engine, agent: &str, written: &Written) -> Result<PagerText> {
    let mut bytes = engine.entry(written, MAX_PAGED_BYTES)?;
    let more = written.size.saturating_sub(bytes.len() as u64);
    if more > 0 {
        bytes.extend(format!("\n({more} bytes more are not shown)\n").into_bytes());
    }
    Ok(PagerText::new(agent, &bytes))
}

fn inspect(engine: &Engine, agent: &str) -> Result<Inspected> {
    baseline::inspect(engine.config(), engine.agent(agent)?)
}

fn look(engine: &Engine, name: &str) -> Result<Edit> {
    let agent = engine.agent(name)?;
    let all = engine.config().agents.iter();
    let users: Vec<&Agent> = all
        .filter(|other| other.baseline == agent.baseline)
        .collect();
    let protected = users.iter().filter(|it| it.protect == Protect::ReadOnly);
    Ok(Edit {
        agent: name.to_string(),
        protected: protected.map(|other| other.name.clone()).collect(),
        users: users.iter().map(|other| other.name.clone()).collect(),
        before: inspect(engine, name)?,
    })
}
