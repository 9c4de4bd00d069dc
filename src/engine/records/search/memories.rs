//! Search in memories: those of this machine are read now, those of hosts are the texts that this
//! process read last. It looks at what agents wrote: at scratch, and where a memory has drifted or
//! has no boundary, at the whole text.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, FixedOffset};
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

use super::{FoundMemory, FoundText, SearchRequest, SearchResult};
use crate::archive::search::Source;
use crate::boundary::Boundary;
use crate::config::Agent;
use crate::engine::Engine;
use crate::engine::watch::observe::memory_text::MemoryText;

/// Maximum size of a kept text; the rest of a longer one is not found.
const MAX_REMOTE_TEXT_BYTES: usize = 256 << 10;

/// Maximum size of all kept texts, compressed.
const MAX_REMOTE_TEXTS_BYTES: usize = 32 << 20;

/// The memories of hosts as this process read them last.
#[derive(Default)]
pub(in crate::engine) struct RemoteTexts {
    texts: Mutex<KeptTexts>,
}

#[derive(Default)]
struct KeptTexts {
    by_agent: HashMap<String, KeptText>,
    /// Size of all of them, compressed.
    bytes: usize,
}

struct KeptText {
    /// The text, compressed: a console on thousands of agents keeps thousands.
    deflated: Arc<[u8]>,
    boundary: Option<Boundary>,
    read_at: DateTime<FixedOffset>,
}

impl RemoteTexts {
    /// Keeps the beginning of a memory that was read, while there is room.
    pub fn keep(
        &self,
        agent: &str,
        text: &[u8],
        boundary: Option<Boundary>,
        read_at: DateTime<FixedOffset>,
    ) {
        let text = &text[..text.len().min(MAX_REMOTE_TEXT_BYTES)];
        let deflated = deflate(text);
        let mut kept = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        let before = kept.by_agent.remove(agent);
        kept.bytes -= before.map_or(0, |it| it.deflated.len());
        if let Ok(deflated) = deflated
            && kept.bytes + deflated.len() <= MAX_REMOTE_TEXTS_BYTES
        {
            kept.bytes += deflated.len();
            let text = KeptText {
                deflated,
                boundary,
                read_at,
            };
            kept.by_agent.insert(agent.to_string(), text);
        }
    }

    /// Notes that a memory is still as it was read.
    pub fn confirm(&self, agent: &str, at: DateTime<FixedOffset>) {
        let mut kept = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = kept.by_agent.get_mut(agent) {
            text.read_at = at;
        }
    }

    /// Returns the text that was read last.
    pub(super) fn get(&self, agent: &str) -> Option<MemoryText> {
        let kept = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        let text = kept.by_agent.get(agent)?;
        let (boundary, read_at) = (text.boundary, text.read_at);
        let deflated = Arc::clone(&text.deflated);
        drop(kept);
        let mut text = Vec::new();
        DeflateDecoder::new(&*deflated)
            .read_to_end(&mut text)
            .ok()?;
        Some(MemoryText {
            text,
            boundary,
            read_at,
        })
    }
}

fn deflate(text: &[u8]) -> io::Result<Arc<[u8]>> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text)?;
    Ok(encoder.finish()?.into())
}

impl Engine {
    /// Notes that memories of hosts are still as they were read.
    pub(in crate::engine) fn confirm_texts(&self, agents: &[String], at: DateTime<FixedOffset>) {
        for agent in agents {
            self.remote_texts.confirm(agent, at);
        }
    }

    pub(super) fn search_memories(
        &self,
        request: &SearchRequest,
        goes_on: &dyn Fn() -> bool,
        result: &mut SearchResult,
    ) {
        // Without a word, memories are a result only where the query asks for them.
        let filter = &request.query.filter;
        if !request.query.has_text() && !filter.names_source(Source::Live) {
            return;
        }
        let agents = self.config().agents.iter();
        let (local, remote): (Vec<&Agent>, Vec<&Agent>) = agents
            .filter(|it| filter.allows_memory(&it.name))
            .partition(|it| it.location.host().is_none());
        if request.reads_remote && !remote.is_empty() {
            self.observe_all(&remote);
        }
        let mut unread = Vec::new();
        let baselines = Mutex::new(self.baseline_cache());
        for agent in local {
            if !goes_on() {
                return;
            }
            match self.read_memory_text(agent, &baselines) {
                Ok(memory) => add_memory(request, agent, &memory, result),
                Err(error) => unread.push(format!("{}: {error}", agent.name)),
            }
        }
        let mut never_read = 0;
        for agent in remote {
            match self.remote_texts.get(&agent.name) {
                Some(memory) => add_memory(request, agent, &memory, result),
                None => never_read += 1,
            }
        }
        match never_read {
            0 => {}
            1 => result
                .notes
                .push("1 memory on a host was not read yet".to_string()),
            _ => result
                .notes
                .push(format!("{never_read} memories on hosts were not read yet")),
        }
        match unread.as_slice() {
            [] => {}
            [one] => result
                .notes
                .push(format!("1 memory was not searched: {one}")),
            [first, ..] => result.notes.push(format!(
                "{} memories were not searched, such as {first}",
                unread.len()
            )),
        }
    }
}

/// Returns where the part of a memory begins that its agent wrote.
pub(super) fn searched_start(boundary: Option<Boundary>, length: usize) -> usize {
    let intact = boundary.filter(|boundary| !boundary.is_drifted());
    intact.map_or(0, |boundary| boundary.offset.min(length))
}

fn add_memory(
    request: &SearchRequest,
    agent: &Agent,
    memory: &MemoryText,
    result: &mut SearchResult,
) {
    let start = searched_start(memory.boundary, memory.text.len());
    let Some(mut hits) = request.query.find_hits(&memory.text[start..]) else {
        return;
    };
    hits.move_by(start);
    let path = agent.location.memory().display();
    result.memories.push(FoundMemory {
        agent: agent.name.clone(),
        address: match agent.location.host() {
            Some(host) => format!("{}:{path}", host.authority()),
            None => path.to_string(),
        },
        read_at: memory.read_at,
        text: FoundText::new(&memory.text, hits, request.max_lines),
    });
}
