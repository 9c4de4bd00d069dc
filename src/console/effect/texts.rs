//! Prepares the texts of agents. Each host has a thread for that, so that one who
//! does not answer keeps no other agent's texts waiting; and of what was read
//! before a copy is kept, for when it cannot be read any more.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::{facts, guarded};
use crate::config::Host;
use crate::console::markdown::{self, Markdown};
use crate::console::text;
use crate::console::update::{Msg, Texts};
use crate::diff;
use crate::engine::{Detail, Engine};

/// How long a diff for the screen may take before it is shown coarser.
pub(super) const DIFF_TIME: Duration = Duration::from_millis(500);

/// How long the search for colours may take; what is left stays plain.
const HIGHLIGHT_TIMEOUT: Duration = Duration::from_secs(2);

/// Equal lines around a change of a patch.
const CONTEXT: usize = 3;

/// Bytes of the copies that are kept, in memory alone.
const MAX_COPIES_BYTES: usize = 4 << 20;

/// Why nothing is shown of a memory that was read before.
const NO_COPY: &str =
    "; there is no copy of its text: the console keeps those that it has shown since it started";

/// Those who prepare texts. They end when this is dropped.
pub(super) struct TextWorkers {
    engine: Arc<Engine>,
    first: u64,
    messages: Sender<Msg>,
    copies: Arc<Mutex<TextCopies>>,
    painter: Sender<Unpainted>,
    /// By host; one for all agents of this machine.
    threads: HashMap<Option<Host>, Sender<TextRequest>>,
}

/// What is wanted of an agent.
enum TextRequest {
    /// Its texts, for the screen.
    Texts(String),
    /// Its diff, as a patch.
    Patch(String),
}

impl TextWorkers {
    /// Nobody yet; `first` goes on top of the engine's generations.
    pub(super) fn new(engine: &Arc<Engine>, first: u64, messages: &Sender<Msg>) -> TextWorkers {
        TextWorkers {
            engine: Arc::clone(engine),
            first,
            messages: messages.clone(),
            copies: Arc::default(),
            painter: painter(engine, messages),
            threads: HashMap::new(),
        }
    }

    /// The texts of this agent are wanted.
    pub(super) fn want(&mut self, name: String) {
        self.ask(&name.clone(), TextRequest::Texts(name));
    }

    /// Its diff as a patch is wanted.
    pub(super) fn want_patch(&mut self, name: String) {
        self.ask(&name.clone(), TextRequest::Patch(name));
    }

    fn ask(&mut self, name: &str, what: TextRequest) {
        let Ok(agent) = self.engine.agent(name) else {
            return;
        };
        let host = agent.place.host().cloned();
        let thread = self.threads.entry(host).or_insert_with(|| {
            let (sender, wanted) = unbounded();
            let preparer = TextWorker {
                engine: Arc::clone(&self.engine),
                first: self.first,
                messages: self.messages.clone(),
                copies: Arc::clone(&self.copies),
                painter: self.painter.clone(),
            };
            guarded(self.messages.clone(), move || preparer.run(&wanted));
            sender
        });
        // One that is gone has said so by itself.
        drop(thread.send(what));
    }
}

/// A memory without colours: whose, the generation of its texts, and its bytes.
type Unpainted = (String, u64, Vec<u8>);

/// Finds the colours of memories, of the last one that is wanted. The rules of
/// Markdown are loaded for the first.
fn painter(engine: &Arc<Engine>, messages: &Sender<Msg>) -> Sender<Unpainted> {
    let (sender, wanted) = unbounded::<Unpainted>();
    let (engine, out) = (Arc::clone(engine), messages.clone());
    guarded(messages.clone(), move || {
        let mut markdown = None;
        while let Ok(mut next) = wanted.recv() {
            while let Ok(newer) = wanted.try_recv() {
                next = newer;
            }
            let (agent, generation, memory) = next;
            if memory.is_empty() || memory.len() > markdown::MAX_TEXT_BYTES {
                continue;
            }
            let end = engine.clock().instant() + HIGHLIGHT_TIMEOUT;
            let markdown = markdown.get_or_insert_with(Markdown::load);
            let tones = markdown.tones(&memory, &|| engine.clock().instant() < end);
            if out.send(Msg::Tones(agent, generation, tones)).is_err() {
                return;
            }
        }
    });
    sender
}

struct TextWorker {
    engine: Arc<Engine>,
    first: u64,
    messages: Sender<Msg>,
    copies: Arc<Mutex<TextCopies>>,
    painter: Sender<Unpainted>,
}

impl TextWorker {
    /// When texts of several are wanted, only those of the last one are.
    fn run(self, wanted: &Receiver<TextRequest>) {
        while let Ok(first) = wanted.recv() {
            let mut latest = None;
            for wanted in std::iter::once(first).chain(wanted.try_iter()) {
                match wanted {
                    TextRequest::Texts(name) => latest = Some(name),
                    TextRequest::Patch(name) => {
                        let patch = self.patch(&name);
                        if self.messages.send(Msg::Patch(name, patch)).is_err() {
                            return;
                        }
                    }
                }
            }
            let Some((texts, memory)) = latest.and_then(|name| self.prepare(&name)) else {
                continue;
            };
            let wanted = (texts.agent.clone(), texts.generation, memory);
            if self.messages.send(Msg::Texts(Box::new(texts))).is_err() {
                return;
            }
            // The colours come later: a text that waited for them would be late.
            drop(self.painter.send(wanted));
        }
    }

    /// What an agent changed above its boundary, as a patch.
    fn patch(&self, name: &str) -> Result<Vec<u8>, String> {
        let agent = self.engine.agent(name).map_err(|error| error.to_string())?;
        let detail = self.engine.detail(agent);
        if let Some(error) = detail.error {
            return Err(error);
        }
        let Some(old) = &detail.operator_part else {
            return Err(format!("{name} has no baseline to compare with"));
        };
        let deadline = self.engine.clock().instant() + DIFF_TIME;
        let diff = diff::lines(old, detail.parts().0, Some(deadline));
        if diff.is_empty() {
            return Err(format!("nothing above the separator of {name} differs"));
        }
        let folder = &self.engine.config().general.baseline_dir;
        let (old, new) = (folder.join(&agent.baseline), agent.place.memory());
        let old = match detail.pushed_version() {
            Some(version) => format!("{version} of {}", old.display()),
            None => old.display().to_string(),
        };
        Ok(diff.unified(&old, &new.to_string_lossy(), CONTEXT))
    }

    fn prepare(&self, name: &str) -> Option<(Texts, Vec<u8>)> {
        let agent = self.engine.agent(name).ok()?;
        let mut detail = self.engine.detail(agent);
        let generation = detail.observation.generation + self.first;
        let seen = detail.observation.clone();
        let findings = findings(&detail);
        let mut copied = None;
        if let Some(host) = agent.place.host() {
            let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
            if detail.observation.was_read() {
                copies.keep(detail.clone());
            } else if self.engine.contact(host).reach.is_trouble()
                && let Some(copy) = copies.of(name)
            {
                copied = Some(copy.observation.read);
                detail = copy;
            } else if self.engine.contact(host).reach.is_trouble()
                && let Some(why) = &mut detail.error
            {
                why.push_str(NO_COPY);
            }
        }
        let change = self.engine.baseline_change(agent);
        let deadline = self.engine.clock().instant() + DIFF_TIME;
        let texts = Texts {
            agent: name.to_string(),
            address: detail.observation.address.clone(),
            generation,
            diff: text::diff(&detail, Some(deadline)),
            scratch: text::scratch(&detail),
            baseline: text::baseline(&change, Some(deadline)),
            baseline_titles: facts::baseline_titles(&change),
            facts: facts::facts(&self.engine, agent, &seen, &detail),
            titles: facts::titles(agent, &detail),
            findings,
            copied,
        };
        Some((texts, detail.memory))
    }
}

/// What was read last of some agents, those that were opened last.
#[derive(Default)]
pub(super) struct TextCopies {
    list: VecDeque<Detail>,
}

impl TextCopies {
    /// Keeps this one, and of the others as many as there is room for.
    pub(super) fn keep(&mut self, detail: Detail) {
        let bytes =
            |copy: &Detail| copy.memory.len() + copy.operator_part.as_ref().map_or(0, Vec::len);
        if bytes(&detail) > MAX_COPIES_BYTES {
            return;
        }
        let same = |copy: &Detail| copy.observation.agent == detail.observation.agent;
        self.list.retain(|copy| !same(copy));
        self.list.push_front(detail);
        let mut sum = 0;
        let fits = |copy: &Detail| {
            sum += bytes(copy);
            sum <= MAX_COPIES_BYTES
        };
        let count = self.list.iter().map(fits).take_while(|fits| *fits).count();
        self.list.truncate(count);
    }

    pub(super) fn of(&self, agent: &str) -> Option<Detail> {
        let mut copies = self.list.iter();
        copies.find(|copy| copy.observation.agent == agent).cloned()
    }
}

/// What is remarkable about a file, in a line.
pub fn findings(detail: &Detail) -> String {
    match &detail.observation.content {
        Some(_) => {
            let found = facts::findings(detail).into_iter();
            found.map(|(text, _)| text).collect::<Vec<_>>().join(" · ")
        }
        None => detail.observation.why.clone(),
    }
}
