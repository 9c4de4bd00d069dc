//! Search in the files of memories of several files. They are listed each time; the index has the words of
//! those that it knows, and the others are read, compared, and added to it. Those of hosts are searched
//! only by a query that asks for such memories.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

use chrono::{DateTime, FixedOffset};

use super::similar::{ENOUGH_TEXTS, MAX_ADDED_TEXTS, describe_similar_words};
use super::{FoundMemoryFile, FoundText, SearchRequest, SearchResult};
use crate::archive::index::{CandidateOrder, ListedItem, MAX_INDEXED_BYTES};
use crate::archive::search::{Query, Source};
use crate::base::error::Result;
use crate::config::{Agent, AgentLayout};
use crate::engine::layout_memory::LayoutMemory;
use crate::engine::records::ArchiveSearch;
use crate::layouts::SearchableFile;
use crate::store::file::lock::{self, ArchiveLock};

/// Number of files that are read at once.
const BATCH_FILES: usize = 256;

/// A memory of several files that is searched.
struct SearchedMemory<'s> {
    agent: &'s Agent,
    layout: &'s AgentLayout,
    memory: LayoutMemory,
    /// What the index knows it by.
    key: String,
    /// Its files, the newest first.
    files: Vec<SearchableFile>,
    /// The same as the index knows them.
    listed: Vec<ListedItem>,
}

impl ArchiveSearch {
    /// Adds the files that match.
    pub(super) fn search_memory_files(
        &self,
        request: &SearchRequest,
        goes_on: &dyn Fn() -> bool,
        result: &mut SearchResult,
    ) {
        let is_asked_for = request.query.filter.names_source(Source::Memory);
        if !request.query.has_text() && !is_asked_for {
            return;
        }
        // Until the end of the search, no process replaces the file of the index.
        let _mark = self
            .has_open_index()
            .then(|| lock::mark_index_use(self.context.archive(), self.context.clock()));
        let (mut memories, mut unsearched, mut failed) = (Vec::new(), 0, Vec::new());
        for (agent, layout) in self.agents_with_layouts(request) {
            if agent.host().is_some() && !is_asked_for {
                unsearched += 1;
                continue;
            }
            let listed = self.list_memory(request, agent, layout);
            let searched = listed.and_then(|memory| {
                let found = self.find_in_files(request, &request.query, &memory, goes_on)?;
                Ok((memory, found))
            });
            match searched {
                Ok((memory, found)) => {
                    result.files.extend(found);
                    memories.push(memory);
                }
                Err(error) => failed.push(format!("{}: {error}", agent.name)),
            }
        }
        self.add_similar_files(request, &memories, goes_on, result);
        sort_files(&mut result.files, request.order);
        if result.files.len() > request.limit {
            result.files.truncate(request.limit);
            let note = format!("more than {} files of memories match", request.limit);
            result.notes.push(note);
        }
        if unsearched > 0 {
            let note = "memories of several files on hosts are searched with in:memory only";
            result.notes.push(note.to_string());
        }
        let notes = failed.iter();
        result
            .notes
            .extend(notes.map(|it| format!("not searched, as a memory of several files: {it}")));
    }

    fn agents_with_layouts<'s>(
        &'s self,
        request: &'s SearchRequest,
    ) -> impl Iterator<Item = (&'s Agent, &'s AgentLayout)> {
        let filter = &request.query.filter;
        let agents = self.context.config().agents.iter();
        let agents = agents.filter_map(|agent| Some((agent, agent.layout.as_ref()?)));
        agents.filter(move |(agent, layout)| filter.allows_layout(&agent.name, &layout.name))
    }

    /// Lists the files of a memory, and forgets in the index those that are gone.
    fn list_memory<'s>(
        &self,
        request: &SearchRequest,
        agent: &'s Agent,
        layout: &'s AgentLayout,
    ) -> Result<SearchedMemory<'s>> {
        let memory = self.context.open_layout_memory(agent)?;
        let mut files = memory.texts()?;
        files.sort_by_key(|file| Reverse(file.metadata.stamp.modified));
        let key = agent.layout_memory_id().unwrap_or_default();
        let listed: Vec<ListedItem> = files.iter().map(listed_item).collect();
        self.change_index(|index| index.forget_absent_items(&key, &listed));
        let filter = &request.query.filter;
        let is_allowed =
            |file: &SearchableFile| filter.allows_time(self.time_of(file).naive_local());
        let (files, listed) = files
            .into_iter()
            .zip(listed)
            .filter(|(file, _)| is_allowed(file))
            .unzip();
        Ok(SearchedMemory {
            agent,
            layout,
            memory,
            key,
            files,
            listed,
        })
    }

    /// Returns the files that match, at most a few more than are wanted.
    fn find_in_files(
        &self,
        request: &SearchRequest,
        query: &Query,
        searched: &SearchedMemory<'_>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Vec<FoundMemoryFile>> {
        let (changed, candidates) = self.split_by_index(query, searched);
        let is_candidate = |number: &usize| {
            let path = &searched.listed[*number].path;
            let is_proposed = candidates.as_ref().is_none_or(|it| it.contains(path));
            is_proposed && !changed.contains(number)
        };
        let candidates: Vec<usize> = (0..searched.files.len()).filter(is_candidate).collect();
        let mut found = Vec::new();
        let mut compare = |numbers: &[usize], is_new: bool| -> Result<bool> {
            for batch in numbers.chunks(BATCH_FILES) {
                if !goes_on() || !is_new && found.len() > request.limit {
                    return Ok(false);
                }
                let texts = searched.read(batch)?;
                if is_new {
                    self.index_texts(searched, &texts);
                }
                for (number, text) in texts {
                    found.extend(self.compare_file(request, query, searched, number, &text));
                }
            }
            Ok(true)
        };
        let mut new: Vec<usize> = changed.iter().copied().collect();
        new.sort_unstable();
        if compare(&new, true)? {
            compare(&candidates, false)?;
        }
        Ok(found)
    }

    /// Returns the files whose words the index does not know, and the paths of those among the others that
    /// may match; none if all may.
    fn split_by_index(
        &self,
        query: &Query,
        searched: &SearchedMemory<'_>,
    ) -> (HashSet<usize>, Option<HashSet<String>>) {
        let mut state = self.index_state();
        state.forget_replaced();
        let asked = state.index().map(|index| {
            let changed = index.changed_items(&searched.key, &searched.listed)?;
            Ok((changed, index.find_items(&searched.key, query)?))
        });
        // Without the index, all are read.
        let all = || ((0..searched.files.len()).collect(), None);
        let (changed, candidates): (Vec<usize>, _) = asked
            .and_then(|answer: Result<_>| answer.ok())
            .unwrap_or_else(all);
        (changed.into_iter().collect(), candidates)
    }

    fn index_texts(&self, searched: &SearchedMemory<'_>, texts: &[(usize, Vec<u8>)]) {
        let texts = texts.iter().filter(|(number, text)| {
            let is_small = text.len() as u64 <= MAX_INDEXED_BYTES;
            // The name is in the index as text.
            is_small && searched.files[*number].path.to_str().is_some()
        });
        let texts: Vec<(&ListedItem, &[u8])> = texts
            .map(|(number, text)| (&searched.listed[*number], text.as_slice()))
            .collect();
        self.change_index(|index| index.index_items(&searched.key, &texts));
    }

    /// Changes the index, unless another process does so now: then the next search does it.
    fn change_index(
        &self,
        change: impl FnOnce(&mut crate::archive::index::ArchiveIndex) -> Result<()>,
    ) {
        if !self.has_open_index() {
            return;
        }
        let lock = ArchiveLock::Index.try_acquire_all(self.context.archive());
        if let (Ok(Some(_lock)), Some(index)) = (lock, self.index_state().index()) {
            // What is not in the index is read by the next search.
            let _ = change(index);
        }
    }

    fn compare_file(
        &self,
        request: &SearchRequest,
        query: &Query,
        searched: &SearchedMemory<'_>,
        number: usize,
        text: &[u8],
    ) -> Option<FoundMemoryFile> {
        let hits = query.find_hits(text)?;
        let file = &searched.files[number];
        let path = searched.layout.directory.join(&file.path);
        let path = path.display();
        Some(FoundMemoryFile {
            agent: searched.agent.name.clone(),
            layout: searched.layout.name.clone(),
            collection: file.collection.clone(),
            item: file.item.clone(),
            title: searched.memory.layout.title(file, text),
            path: file.path.clone(),
            address: match searched.agent.host() {
                Some(host) => format!("{}:{path}", host.authority()),
                None => path.to_string(),
            },
            modified: self.time_of(file),
            size: file.metadata.stamp.size,
            text: FoundText::new(text, hits, request.max_lines),
        })
    }

    /// Adds the files with words that resemble those of the query, where the words themselves are rare.
    fn add_similar_files(
        &self,
        request: &SearchRequest,
        memories: &[SearchedMemory<'_>],
        goes_on: &dyn Fn() -> bool,
        result: &mut SearchResult,
    ) {
        let is_rare = result.files.len() < ENOUGH_TEXTS && !memories.is_empty();
        if !is_rare || !request.query.has_text() {
            return;
        }
        if self.index_state().vocabulary().is_none() {
            let note = "not searched for similar words: the index cannot be read now";
            result.notes.push(note.to_string());
            return;
        }
        let Some(query) = self.widen_query(&request.query) else {
            return;
        };
        let known: HashSet<(String, PathBuf)> =
            result.files.iter().map(FoundMemoryFile::key).collect();
        let found = memories
            .iter()
            .filter_map(|memory| self.find_in_files(request, &query, memory, goes_on).ok());
        let mut added: Vec<FoundMemoryFile> = found.flatten().collect();
        added.retain(|file| !known.contains(&file.key()));
        sort_files(&mut added, CandidateOrder::Relevance);
        added.truncate(MAX_ADDED_TEXTS);
        if !added.is_empty() {
            let words = describe_similar_words(&query);
            result
                .notes
                .push(format!("also found similar words in memories: {words}"));
        }
        result.files.extend(added);
    }

    fn time_of(&self, file: &SearchableFile) -> DateTime<FixedOffset> {
        let time = DateTime::from_timestamp_nanos(file.metadata.stamp.modified);
        self.context.clock().zone().at(time.fixed_offset())
    }

    /// Reads a file of a memory that a search found.
    ///
    /// # Errors
    /// The agent is not configured, or the file cannot be read.
    pub(super) fn read_memory_file(&self, agent: &str, path: &Path) -> Result<Vec<u8>> {
        let agent = self.context.agent(agent)?;
        let files = self.context.open_layout_memory(agent)?.files;
        files.read(path)?.map_err(|fault| fault.to_error(path))
    }
}

impl SearchedMemory<'_> {
    /// Reads files, by their numbers; those that are gone are left out.
    fn read(&self, numbers: &[usize]) -> Result<Vec<(usize, Vec<u8>)>> {
        let files: Vec<_> = numbers
            .iter()
            .map(|number| {
                (
                    self.files[*number].path.as_path(),
                    &self.files[*number].metadata,
                )
            })
            .collect();
        let read = self.memory.files.read_all(&files).into_iter();
        let texts = numbers
            .iter()
            .zip(read)
            .map(|(number, text)| Ok((*number, text?)));
        let texts: Vec<(usize, Option<Vec<u8>>)> = texts.collect::<Result<_>>()?;
        let texts = texts
            .into_iter()
            .filter_map(|(number, text)| Some((number, text?)));
        Ok(texts.collect())
    }
}

fn listed_item(file: &SearchableFile) -> ListedItem {
    let stamp = &file.metadata.stamp;
    ListedItem {
        path: file.path.to_string_lossy().into_owned(),
        size: stamp.size,
        modified_ns: stamp.modified,
        inode: stamp.inode,
    }
}

/// Sorts files that were found; those with similar words are behind the others.
fn sort_files(files: &mut [FoundMemoryFile], order: CandidateOrder) {
    files.sort_by(|one, other| {
        let by_similarity = other.text.similarity.total_cmp(&one.text.similarity);
        let by_order = match order {
            CandidateOrder::Relevance => other.text.hit_count.cmp(&one.text.hit_count),
            CandidateOrder::Newest => other.modified.cmp(&one.modified),
            CandidateOrder::Oldest => one.modified.cmp(&other.modified),
            CandidateOrder::Largest => other.size.cmp(&one.size),
        };
        let by_key = || {
            other
                .modified
                .cmp(&one.modified)
                .then_with(|| one.key().cmp(&other.key()))
        };
        by_similarity.then(by_order).then_with(by_key)
    });
}
