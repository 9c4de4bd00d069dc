//! One agent in full: its observation and the bytes of its memory.

use std::borrow::Cow;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use crate::boundary::{BoundaryRule, with_line_ends_of};
use crate::config::Agent;
use crate::engine::watch::Observer;
use crate::store::observation::Observation;

/// One agent in full: its observation and the bytes of its memory.
#[derive(Clone, Debug)]
pub struct AgentDetail {
    /// The agent's state at the time of the read.
    pub observation: Observation,
    /// The baseline version that the memory is measured against, if there is one: the bytes up to
    /// and including its separator line.
    pub operator_part: Option<Vec<u8>>,
    /// The operator part that a reset installs, where the memory holds that of an earlier version.
    pub next_operator_part: Option<Vec<u8>>,
    /// The beginning of the memory, up to [`MAX_WINDOW_BYTES`](crate::engine::MAX_WINDOW_BYTES)
    /// bytes; empty when there is none to read.
    pub memory_prefix: Vec<u8>,
    /// Number of bytes of the memory behind `memory_prefix`.
    pub omitted_bytes: u64,
    /// Why the memory could not be read, if it could not.
    pub error: Option<String>,
}

impl AgentDetail {
    /// Splits the prefix into the part above the boundary and the scratch below it. Without a
    /// boundary everything is above.
    pub fn split_at_boundary(&self) -> (&[u8], &[u8]) {
        let boundary = self
            .observation
            .content
            .as_ref()
            .and_then(|content| content.boundary);
        match boundary {
            Some(boundary) => boundary.split(&self.memory_prefix),
            None => (&self.memory_prefix, &[]),
        }
    }

    /// Returns the two texts of the live diff, old and new; `None` without a baseline. They are the
    /// baseline and what the agent made of it above the boundary; where the memory is behind, its
    /// rules and those that a reset installs. The old one has the line ends of the new one.
    pub fn compared_parts(&self) -> Option<(Cow<'_, [u8]>, &[u8])> {
        let old = self.operator_part.as_deref()?;
        let new = match &self.next_operator_part {
            Some(next) => next,
            None => self.split_at_boundary().0,
        };
        Some((with_line_ends_of(old, new), new))
    }

    /// Names the version that the memory is measured against, where that is not the current
    /// baseline: the baseline cannot be used, or has changed since.
    pub fn reference_label(&self) -> Option<&'static str> {
        self.operator_part.as_ref()?;
        let seen = &self.observation;
        let boundary = seen.content.as_ref().and_then(|content| content.boundary);
        let version = boundary.and_then(|boundary| boundary.rule.version());
        match (seen.baseline, version) {
            (None, _) => Some("last known version"),
            (Some(current), Some(version)) if current != version => Some("earlier version"),
            _ => None,
        }
    }
}

impl Observer {
    /// Observes an agent and reads the beginning of its memory.
    pub fn read_detail(&self, agent: &Agent) -> AgentDetail {
        let baselines = Mutex::new(self.baselines.baseline_cache());
        let seen = self.observe_with_bytes(agent, &baselines);
        let content = seen.observation.content.as_ref();
        let baseline = seen.baseline.as_deref();
        AgentDetail {
            next_operator_part: match content.and_then(|it| it.boundary).map(|it| it.rule) {
                Some(BoundaryRule::Behind(_)) => baseline.map(|it| it.operator_part().to_vec()),
                _ => None,
            },
            operator_part: seen.version.map(|version| version.operator_part().to_vec()),
            omitted_bytes: content.map_or(0, |content| content.size - seen.prefix.len() as u64),
            error: match content {
                Some(_) => None,
                None => Some(seen.observation.reason.clone()),
            },
            memory_prefix: seen.prefix,
            observation: seen.observation,
        }
    }

    /// Makes the generations of later observations start at a number, for an engine that takes the place
    /// of another one.
    pub fn continue_generations(&self, first: u64) {
        self.last_generation.fetch_max(first, Ordering::Relaxed);
    }

    pub(in crate::engine) fn next_generation(&self) -> u64 {
        self.last_generation.fetch_add(1, Ordering::Relaxed)
    }
}
