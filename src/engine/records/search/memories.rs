//! Search in memories: those of this machine are read now, those of hosts are the texts that this
//! process read last. It looks at what agents wrote: at scratch, and where a memory has drifted or
//! has no boundary, at the whole text.

use std::sync::Mutex;

use super::{FoundMemory, FoundText, SearchRequest, SearchResult};
use crate::archive::search::Source;
use crate::boundary::Boundary;
use crate::config::Agent;
use crate::engine::records::ArchiveSearch;
use crate::engine::watch::observe::memory_text::MemoryText;

impl ArchiveSearch {
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
        let agents = self.context.config().reset_agents();
        let (local, remote): (Vec<&Agent>, Vec<&Agent>) = agents
            .filter(|it| filter.allows_memory(&it.name))
            .partition(|it| it.host().is_none());
        if request.reads_remote && !remote.is_empty() {
            self.observer.observe_all(&remote);
        }
        let mut unread = Vec::new();
        let baselines = Mutex::new(self.baselines.baseline_cache());
        for agent in local {
            if !goes_on() {
                return;
            }
            match self.observer.read_memory_text(agent, &baselines) {
                Ok(memory) => add_memory(request, agent, &memory, result),
                Err(error) => unread.push(format!("{}: {error}", agent.name)),
            }
        }
        for agent in remote {
            match self.observer.remote_texts().get(&agent.name) {
                Some(memory) => add_memory(request, agent, &memory, result),
                None => result.never_read.push(agent.name.clone()),
            }
        }
        match result.never_read.len() {
            0 => {}
            1 => result
                .notes
                .push("1 memory on a host was not read yet".to_string()),
            count => result
                .notes
                .push(format!("{count} memories on hosts were not read yet")),
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
    let path = agent.observed_path().display();
    result.memories.push(FoundMemory {
        agent: agent.name.clone(),
        address: match agent.host() {
            Some(host) => format!("{}:{path}", host.authority()),
            None => path.to_string(),
        },
        read_at: memory.read_at,
        text: FoundText::new(&memory.text, hits, request.max_lines),
    });
}
