//! Prepares the texts of agents, in a class of jobs per host, so that a host that does not answer
//! delays no other agent's texts. Keeps copies of the texts read, to show while their host is
//! unreachable.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use super::facts;
use super::job_queue::{JobClass, JobQueue, Request};
use crate::base::diff;
use crate::console::markdown::{self, MarkdownHighlighter};
use crate::console::message::{AgentTexts, Msg};
use crate::console::text::{self, PreparedText};
use crate::engine::{AgentDetail, Engine};

/// Time limit of a diff for the screen; after it the diff is coarser.
pub(super) const DIFF_TIMEOUT: Duration = Duration::from_millis(500);

/// Time limit of the search for syntax tones; the rest of the text stays plain.
pub(super) const HIGHLIGHT_TIMEOUT: Duration = Duration::from_secs(2);

/// Equal lines around a change of a patch.
const PATCH_CONTEXT_LINES: usize = 3;

/// Maximum size of all cached copies in bytes.
const MAX_CACHE_BYTES: usize = 4 << 20;

/// End of the error for an unreachable memory of which there is no cached copy.
const NO_CACHED_TEXT: &str =
    "; there is no copy of its text: the console keeps those that it has shown since it started";

/// Prepares the texts of the agents of an engine.
pub(super) struct TextPreparer {
    engine: Arc<Engine>,
    cache: Mutex<DetailCache>,
    /// Loaded for the first text.
    highlighter: OnceLock<MarkdownHighlighter>,
}

impl TextPreparer {
    pub(super) fn new(engine: &Arc<Engine>) -> Arc<TextPreparer> {
        Arc::new(TextPreparer {
            engine: Arc::clone(engine),
            cache: Mutex::default(),
            highlighter: OnceLock::new(),
        })
    }

    /// Queues a job that prepares the texts of an agent, and then one for its syntax tones.
    pub(super) fn request_texts(self: &Arc<Self>, name: String, jobs: &JobQueue) {
        let Some(class) = self.class_of(&name) else {
            return;
        };
        let request = Request::latest(class, "texts").listed_as(format!("texts of {name}"));
        let (preparer, queue) = (Arc::clone(self), jobs.clone());
        jobs.submit(request, move |started| {
            if let Err(error) = started {
                return Some(Msg::TextsNotPrepared(name, error.to_string()));
            }
            let (texts, memory) = preparer.prepare_texts(&name)?;
            let generation = texts.generation;
            // The tones come later: the text does not wait for them.
            if queue.send(Msg::TextsPrepared(Box::new(texts))) {
                queue.submit(Request::latest(JobClass::Tones, "tones"), move |started| {
                    started.ok()?;
                    preparer.prepare_tones(name, generation, &memory)
                });
            }
            None
        });
    }

    /// Queues a job that makes the patch of an agent.
    pub(super) fn request_patch(self: &Arc<Self>, name: String, jobs: &JobQueue) {
        let Some(class) = self.class_of(&name) else {
            return;
        };
        let label = format!("diff of {name} for the clipboard");
        let preparer = Arc::clone(self);
        jobs.submit(Request::listed(class, label), move |started| {
            let patch = match started {
                Ok(()) => preparer.make_patch(&name),
                Err(error) => Err(error.to_string()),
            };
            Some(Msg::PatchPrepared(name, patch))
        });
    }

    /// Queues a job that compares three versions of an agent's rules.
    pub(super) fn request_rules(self: &Arc<Self>, name: String, jobs: &JobQueue) {
        let Some(class) = self.class_of(&name) else {
            return;
        };
        let request = Request::listed(class, format!("rules of {name}"));
        let preparer = Arc::clone(self);
        jobs.submit(request, move |started| {
            let engine = &preparer.engine;
            let compared =
                started.and_then(|()| engine.history().compare_rules(engine.agent(&name)?));
            let text = match compared {
                Ok(compared) => text::prepare_rules(&compared),
                Err(error) => PreparedText::note(error.to_string()),
            };
            Some(Msg::RulesCompared(name, text))
        });
    }

    /// Returns the class of jobs about an agent, that of its host; an agent that does not exist has
    /// no texts.
    fn class_of(&self, name: &str) -> Option<JobClass> {
        let agent = self.engine.agent(name).ok()?;
        Some(JobClass::Texts(agent.host().cloned()))
    }

    fn prepare_tones(&self, agent: String, generation: u64, memory: &[u8]) -> Option<Msg> {
        if memory.is_empty() || memory.len() > markdown::MAX_TEXT_BYTES {
            return None;
        }
        let clock = self.engine.clock();
        let end = clock.instant() + HIGHLIGHT_TIMEOUT;
        let markdown = self.highlighter.get_or_init(MarkdownHighlighter::load);
        let tones = markdown.line_tones(memory, &|| clock.instant() < end);
        Some(Msg::TonesPrepared(agent, generation, tones))
    }

    /// Returns the live diff of an agent as a patch: what it changed above its boundary or, where
    /// its memory is behind, what changed in the baseline.
    pub(super) fn make_patch(&self, name: &str) -> Result<Vec<u8>, String> {
        let agent = self.engine.agent(name).map_err(|error| error.to_string())?;
        let detail = self.engine.observer().read_detail(agent);
        if let Some(error) = detail.error {
            return Err(error);
        }
        let Some((old, new)) = detail.compared_parts() else {
            return Err(format!("{name} has no baseline to compare with"));
        };
        let deadline = self.engine.clock().instant() + DIFF_TIMEOUT;
        let diff = diff::compare_lines(&old, new, Some(deadline));
        if diff.is_empty() {
            return Err(format!("nothing above the separator of {name} differs"));
        }
        if let Some(why) = diff.describe_too_large() {
            return Err(format!("the difference of {name} is {why}"));
        }
        let path = self.engine.config().required_baseline_path(agent);
        let path = path.map_err(|error| error.to_string())?;
        let baseline = path.display().to_string();
        let memory = agent.observed_path().display().to_string();
        let (old, new) = match detail.reference_label() {
            Some(_) if detail.next_operator_part.is_some() => (memory, baseline),
            Some(version) => (format!("{version} of {baseline}"), memory),
            None => (baseline, memory),
        };
        Ok(diff.to_unified(&old, &new, PATCH_CONTEXT_LINES))
    }

    fn prepare_texts(&self, name: &str) -> Option<(AgentTexts, Vec<u8>)> {
        let agent = self.engine.agent(name).ok()?;
        let mut detail = self.engine.observer().read_detail(agent);
        let generation = detail.observation.generation;
        let observation = detail.observation.clone();
        let findings = summarize_findings(&detail);
        let mut cached_observation = None;
        if let Some(host) = agent.host() {
            let mut copies = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
            if detail.observation.is_content_known() {
                copies.insert(detail.clone());
            } else if self
                .engine
                .hosts()
                .connection_status(host)
                .reachability
                .is_failure()
            {
                if let Some(copy) = copies.get(name) {
                    cached_observation = Some(Box::new(copy.observation.clone()));
                    detail = copy;
                } else if let Some(error) = &mut detail.error {
                    error.push_str(NO_CACHED_TEXT);
                }
            }
        }
        let change = self.engine.baselines().compare_baseline(agent);
        let change = change.map_err(|error| error.to_string());
        let deadline = self.engine.clock().instant() + DIFF_TIMEOUT;
        let texts = AgentTexts {
            agent: name.to_string(),
            address: detail.observation.address.clone(),
            generation,
            diff: text::prepare_diff(&detail, Some(deadline)),
            scratch: text::prepare_scratch(&detail),
            baseline: match &change {
                Ok(change) => text::prepare_baseline_diff(change, Some(deadline)),
                Err(why) => PreparedText::note(why.clone()),
            },
            baseline_titles: change
                .as_ref()
                .map_or_else(|_| Default::default(), facts::baseline_diff_titles),
            facts: facts::agent_facts(&self.engine, agent, &observation, &detail),
            diff_titles: facts::diff_titles(agent, &detail),
            findings,
            cached_observation,
            observation: Some(Box::new(observation)),
        };
        Some((texts, detail.memory_prefix))
    }
}

/// Cache of the details of the agents opened last.
#[derive(Default)]
pub(super) struct DetailCache {
    entries: VecDeque<AgentDetail>,
}

impl DetailCache {
    /// Adds a detail; removes the oldest ones that no longer fit. One that is too large by itself
    /// is not kept.
    pub(super) fn insert(&mut self, detail: AgentDetail) {
        let bytes = |copy: &AgentDetail| {
            let parts = [&copy.operator_part, &copy.next_operator_part];
            copy.memory_prefix.len() + parts.into_iter().flatten().map(Vec::len).sum::<usize>()
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

/// Returns the findings of a memory in one line.
pub fn summarize_findings(detail: &AgentDetail) -> String {
    match &detail.observation.content {
        Some(_) => {
            let found = facts::memory_findings(detail).into_iter();
            found.map(|(text, _)| text).collect::<Vec<_>>().join(" · ")
        }
        None => detail.observation.reason.clone(),
    }
}
