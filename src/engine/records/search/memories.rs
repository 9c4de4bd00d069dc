//! Search in memories: those of this machine are read now, those of hosts are the texts that this
//! process read last. It looks at what agents wrote: at scratch, and where a memory has drifted or
//! has no boundary, at the whole text.

use std::collections::HashSet;
use std::sync::Mutex;

use super::similar::{ENOUGH_TEXTS, MAX_ADDED_TEXTS, describe_similar_words};
use super::{FoundMemory, FoundText, SearchRequest, SearchResult};
use crate::archive::search::{Query, Source, Vocabulary, add_vocabulary_words};
use crate::base::error::Result;
use crate::boundary::Boundary;
use crate::config::Agent;
use crate::engine::records::ArchiveSearch;
use crate::engine::watch::observe::memory_text::MemoryText;

impl ArchiveSearch {
    /// Adds the memories that match.
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
        if request.reads_remote {
            let agents = self.searched_agents(request);
            let remote: Vec<&Agent> = agents.filter(|it| it.host().is_some()).collect();
            self.observer.observe_all(&remote);
        }
        let mut unread = Vec::new();
        self.for_each_memory(request, goes_on, &mut |agent, memory| match memory {
            Some(Ok(memory)) => {
                let found = find_in_memory(request, &request.query, agent, &memory);
                result.memories.extend(found);
            }
            Some(Err(error)) => unread.push(format!("{}: {error}", agent.name)),
            None => result.never_read.push(agent.name.clone()),
        });
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

    /// Adds the memories with words that resemble those of the query, where the words themselves are
    /// rare; the most similar ones come first.
    pub(super) fn add_similar_memories(
        &self,
        request: &SearchRequest,
        goes_on: &dyn Fn() -> bool,
        result: &mut SearchResult,
    ) {
        let texts = result.entries.iter().filter_map(|it| it.text.as_ref());
        let exact = texts.filter(|text| text.similarity >= 1.0).count();
        let has_words = request.query.required_phrases().next().is_some();
        if exact + result.memories.len() >= ENOUGH_TEXTS || !has_words {
            return;
        }
        // Read once more: most searches find enough, and need no words of other memories.
        let mut words = HashSet::new();
        self.for_each_memory(request, goes_on, &mut |_, memory| {
            if let Some(Ok(memory)) = memory {
                add_vocabulary_words(memory.searched_text(), &mut words);
            }
        });
        let Some(query) = request.query.with_similar_words(&Vocabulary::new(words)) else {
            return;
        };
        let known: HashSet<String> = result.memories.iter().map(|it| it.agent.clone()).collect();
        let mut added = Vec::new();
        self.for_each_memory(request, goes_on, &mut |agent, memory| {
            if let Some(Ok(memory)) = memory
                && !known.contains(&agent.name)
            {
                added.extend(find_in_memory(request, &query, agent, &memory));
            }
        });
        added.sort_by(|one, other| other.text.similarity.total_cmp(&one.text.similarity));
        added.truncate(MAX_ADDED_TEXTS);
        if !added.is_empty() {
            let words = describe_similar_words(&query);
            let note = format!("also found similar words in memories: {words}");
            result.notes.push(note);
        }
        result.memories.extend(added);
    }

    fn searched_agents(&self, request: &SearchRequest) -> impl Iterator<Item = &Agent> {
        let agents = self.context.config().reset_agents();
        agents.filter(|it| request.query.filter.allows_memory(&it.name))
    }

    /// Visits the memories that a query allows, those of this machine first; one of a host that was not
    /// read yet is none.
    fn for_each_memory(
        &self,
        request: &SearchRequest,
        goes_on: &dyn Fn() -> bool,
        visit: &mut dyn FnMut(&Agent, Option<Result<MemoryText>>),
    ) {
        let agents = self.searched_agents(request);
        let (local, remote): (Vec<_>, Vec<_>) = agents.partition(|it| it.host().is_none());
        let baselines = Mutex::new(self.baselines.baseline_cache());
        for agent in local {
            if !goes_on() {
                return;
            }
            let memory = self.observer.read_memory_text(agent, &baselines);
            visit(agent, Some(memory));
        }
        for agent in remote {
            visit(agent, self.observer.remote_texts().get(&agent.name).map(Ok));
        }
    }
}

impl MemoryText {
    /// Returns the part that its agent wrote.
    fn searched_text(&self) -> &[u8] {
        &self.text[searched_start(self.boundary, self.text.len())..]
    }
}

/// Returns where the part of a memory begins that its agent wrote.
pub(super) fn searched_start(boundary: Option<Boundary>, length: usize) -> usize {
    let intact = boundary.filter(|boundary| !boundary.is_drifted());
    intact.map_or(0, |boundary| boundary.offset.min(length))
}

fn find_in_memory(
    request: &SearchRequest,
    query: &Query,
    agent: &Agent,
    memory: &MemoryText,
) -> Option<FoundMemory> {
    let searched = memory.searched_text();
    let mut hits = query.find_hits(searched)?;
    hits.move_by(memory.text.len() - searched.len());
    let path = agent.observed_path().display();
    Some(FoundMemory {
        agent: agent.name.clone(),
        address: match agent.host() {
            Some(host) => format!("{}:{path}", host.authority()),
            None => path.to_string(),
        },
        read_at: memory.read_at,
        text: FoundText::new(&memory.text, hits, request.max_lines),
    })
}
