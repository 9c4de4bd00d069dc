//! Prepares the texts of agents. Each host has a thread for that, so that one who
//! does not answer keeps no other agent's texts waiting; and of what was read
//! before a copy is kept, for when it cannot be read any more.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::{facts, spawn_reporting_panics};
use crate::config::SshHost;
use crate::console::markdown::{self, MarkdownHighlighter};
use crate::console::text;
use crate::console::update::{AgentTexts, Msg};
use crate::diff;
use crate::engine::{AgentDetail, Engine};

/// How long a diff for the screen may take before it is shown coarser.
pub(super) const DIFF_TIMEOUT: Duration = Duration::from_millis(500);

/// How long the search for colours may take; what is left stays plain.
const HIGHLIGHT_TIMEOUT: Duration = Duration::from_secs(2);

/// Equal lines around a change of a patch.
const PATCH_CONTEXT_LINES: usize = 3;

/// Bytes of the copies that are kept, in memory alone.
const MAX_CACHE_BYTES: usize = 4 << 20;

/// Why nothing is shown of a memory that was read before.
const NO_CACHED_TEXT: &str =
    "; there is no copy of its text: the console keeps those that it has shown since it started";

/// Those who prepare texts. They end when this is dropped.
pub(super) struct TextWorkers {
    engine: Arc<Engine>,
    generation_base: u64,
    messages: Sender<Msg>,
    cache: Arc<Mutex<DetailCache>>,
    highlighter: Sender<HighlightJob>,
    /// By host; one for all agents of this machine.
    threads_by_host: HashMap<Option<SshHost>, Sender<TextRequest>>,
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
            generation_base: first,
            messages: messages.clone(),
            cache: Arc::default(),
            highlighter: spawn_highlighter(engine, messages),
            threads_by_host: HashMap::new(),
        }
    }

    /// The texts of this agent are wanted.
    pub(super) fn request_texts(&mut self, name: String) {
        self.send_request(&name.clone(), TextRequest::Texts(name));
    }

    /// Its diff as a patch is wanted.
    pub(super) fn request_patch(&mut self, name: String) {
        self.send_request(&name.clone(), TextRequest::Patch(name));
    }

    fn send_request(&mut self, name: &str, request: TextRequest) {
        let Ok(agent) = self.engine.agent(name) else {
            return;
        };
        let host = agent.location.host().cloned();
        let thread = self.threads_by_host.entry(host).or_insert_with(|| {
            let (sender, wanted) = unbounded();
            let preparer = TextWorker {
                engine: Arc::clone(&self.engine),
                generation_base: self.generation_base,
                messages: self.messages.clone(),
                cache: Arc::clone(&self.cache),
                highlighter: self.highlighter.clone(),
            };
            spawn_reporting_panics(self.messages.clone(), move || {
                preparer.run_requests(&wanted)
            });
            sender
        });
        // One that is gone has said so by itself.
        drop(thread.send(request));
    }
}

/// A memory without colours: whose, the generation of its texts, and its bytes.
type HighlightJob = (String, u64, Vec<u8>);

/// Finds the colours of memories, of the last one that is wanted. The rules of
/// Markdown are loaded for the first.
fn spawn_highlighter(engine: &Arc<Engine>, messages: &Sender<Msg>) -> Sender<HighlightJob> {
    let (sender, wanted) = unbounded::<HighlightJob>();
    let (engine, out) = (Arc::clone(engine), messages.clone());
    spawn_reporting_panics(messages.clone(), move || {
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
            let markdown = markdown.get_or_insert_with(MarkdownHighlighter::load);
            let tones = markdown.line_tones(&memory, &|| engine.clock().instant() < end);
            if out
                .send(Msg::TonesPrepared(agent, generation, tones))
                .is_err()
            {
                return;
            }
        }
    });
    sender
}

struct TextWorker {
    engine: Arc<Engine>,
    generation_base: u64,
    messages: Sender<Msg>,
    cache: Arc<Mutex<DetailCache>>,
    highlighter: Sender<HighlightJob>,
}

impl TextWorker {
    /// When texts of several are wanted, only those of the last one are.
    fn run_requests(self, wanted: &Receiver<TextRequest>) {
        while let Ok(first) = wanted.recv() {
            let mut latest = None;
            for wanted in std::iter::once(first).chain(wanted.try_iter()) {
                match wanted {
                    TextRequest::Texts(name) => latest = Some(name),
                    TextRequest::Patch(name) => {
                        let patch = self.make_patch(&name);
                        if self.messages.send(Msg::PatchPrepared(name, patch)).is_err() {
                            return;
                        }
                    }
                }
            }
            let Some((texts, memory)) = latest.and_then(|name| self.prepare_texts(&name)) else {
                continue;
            };
            let wanted = (texts.agent.clone(), texts.generation, memory);
            if self
                .messages
                .send(Msg::TextsPrepared(Box::new(texts)))
                .is_err()
            {
                return;
            }
            // The colours come later: a text that waited for them would be late.
            drop(self.highlighter.send(wanted));
        }
    }

    /// What an agent changed above its boundary, as a patch.
    fn make_patch(&self, name: &str) -> Result<Vec<u8>, String> {
        let agent = self.engine.agent(name).map_err(|error| error.to_string())?;
        let detail = self.engine.read_detail(agent);
        if let Some(error) = detail.error {
            return Err(error);
        }
        let Some(old) = &detail.operator_part else {
            return Err(format!("{name} has no baseline to compare with"));
        };
        let deadline = self.engine.clock().instant() + DIFF_TIMEOUT;
        let diff = diff::compare_lines(old, detail.split_at_boundary().0, Some(deadline));
        if diff.is_empty() {
            return Err(format!("nothing above the separator of {name} differs"));
        }
        let directory = &self.engine.config().general.baseline_dir;
        let (old, new) = (directory.join(&agent.baseline), agent.location.memory());
        let old = match detail.reference_label() {
            Some(version) => format!("{version} of {}", old.display()),
            None => old.display().to_string(),
        };
        Ok(diff.to_unified(&old, &new.to_string_lossy(), PATCH_CONTEXT_LINES))
    }

    fn prepare_texts(&self, name: &str) -> Option<(AgentTexts, Vec<u8>)> {
        let agent = self.engine.agent(name).ok()?;
        let mut detail = self.engine.read_detail(agent);
        let generation = detail.observation.generation + self.generation_base;
        let observation = detail.observation.clone();
        let findings = summarize_findings(&detail);
        let mut cached_at = None;
        if let Some(host) = agent.location.host() {
            let mut copies = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
            if detail.observation.is_content_known() {
                copies.insert(detail.clone());
            } else if self
                .engine
                .connection_status(host)
                .reachability
                .is_failure()
                && let Some(copy) = copies.get(name)
            {
                cached_at = Some(copy.observation.read_at);
                detail = copy;
            } else if self
                .engine
                .connection_status(host)
                .reachability
                .is_failure()
                && let Some(why) = &mut detail.error
            {
                why.push_str(NO_CACHED_TEXT);
            }
        }
        let change = self.engine.compare_baseline(agent);
        let deadline = self.engine.clock().instant() + DIFF_TIMEOUT;
        let texts = AgentTexts {
            agent: name.to_string(),
            address: detail.observation.address.clone(),
            generation,
            diff: text::prepare_diff(&detail, Some(deadline)),
            scratch: text::prepare_scratch(&detail),
            baseline: text::prepare_baseline_diff(&change, Some(deadline)),
            baseline_titles: facts::baseline_diff_titles(&change),
            facts: facts::agent_facts(&self.engine, agent, &observation, &detail),
            diff_titles: facts::diff_titles(agent, &detail),
            findings,
            cached_at,
        };
        Some((texts, detail.memory_prefix))
    }
}

/// What was read last of some agents, those that were opened last.
#[derive(Default)]
pub(super) struct DetailCache {
    entries: VecDeque<AgentDetail>,
}

impl DetailCache {
    /// Keeps this one, and of the others as many as there is room for.
    pub(super) fn insert(&mut self, detail: AgentDetail) {
        let bytes = |copy: &AgentDetail| {
            copy.memory_prefix.len() + copy.operator_part.as_ref().map_or(0, Vec::len)
        };
        if bytes(&detail) > MAX_CACHE_BYTES {
            return;
        }
        let is_same_agent = |copy: &AgentDetail| copy.observation.agent == detail.observation.agent;
        self.entries.retain(|copy| !is_same_agent(copy));
        self.entries.push_front(detail);
        let mut sum = 0;
        let fits = |copy: &AgentDetail| {
            sum += bytes(copy);
            sum <= MAX_CACHE_BYTES
        };
        let count = self
            .entries
            .iter()
            .map(fits)
            .take_while(|fits| *fits)
            .count();
        self.entries.truncate(count);
    }

    pub(super) fn get(&self, agent: &str) -> Option<AgentDetail> {
        let mut copies = self.entries.iter();
        copies.find(|copy| copy.observation.agent == agent).cloned()
    }
}

/// What is remarkable about a file, in a line.
pub fn summarize_findings(detail: &AgentDetail) -> String {
    match &detail.observation.content {
        Some(_) => {
            let found = facts::memory_findings(detail).into_iter();
            found.map(|(text, _)| text).collect::<Vec<_>>().join(" · ")
        }
        None => detail.observation.reason.clone(),
    }
}
