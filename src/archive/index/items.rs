//! The files of memories of several files in the index. Their words are there beside those of entries, so
//! that similar words are found in both; a memory is a container, and the path below it the key.

use std::collections::{HashMap, HashSet};

use chrono::DateTime;
use rusqlite::{OptionalExtension, Transaction, params};

use super::sync::{
    KnownDocument, begin, forget_container, free_place, known_documents, remove_document,
};
use super::{
    ArchiveIndex, ITEM_KIND, ITEM_SOURCE, WordCollector, index_error, match_expression, minute_of,
};
use crate::archive::search::Query;
use crate::base::error::Result;

/// A file of a memory, as it was listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedItem {
    /// Its path below the directory of the memory.
    pub path: String,
    /// Its size in bytes.
    pub size: u64,
    /// Last modification, in nanoseconds since 1970.
    pub modified_ns: i64,
    /// Its inode; 0 on a host that does not tell it.
    pub inode: u64,
}

impl ListedItem {
    fn is_same(&self, known: &KnownDocument) -> bool {
        known.size == self.size as i64
            && known.modified_ns == self.modified_ns
            && known.inode == self.inode as i64
    }
}

impl ArchiveIndex {
    /// Returns the files, by their positions, whose words the index lacks, or has of an earlier state.
    ///
    /// # Errors
    /// The index is damaged or locked.
    pub fn changed_items(&self, memory: &str, listed: &[ListedItem]) -> Result<Vec<usize>> {
        let query = || -> rusqlite::Result<Vec<usize>> {
            let known = match self.memory_container(memory)? {
                Some(container) => known_documents(&self.connection, container)?,
                None => HashMap::new(),
            };
            let is_changed = |item: &ListedItem| {
                let known = known.get(&item.path);
                known.is_none_or(|known| !item.is_same(known))
            };
            let changed = listed
                .iter()
                .enumerate()
                .filter(|(_, item)| is_changed(item));
            Ok(changed.map(|(position, _)| position).collect())
        };
        query().map_err(|error| index_error(&self.path, &error))
    }

    /// Returns the paths of the files of a memory that may match a query; none where the query has no
    /// words, so that all may.
    ///
    /// # Errors
    /// The index is damaged or locked.
    pub fn find_items(&self, memory: &str, query: &Query) -> Result<Option<HashSet<String>>> {
        let Some(expression) = match_expression(query) else {
            return Ok(None);
        };
        let find = || -> rusqlite::Result<HashSet<String>> {
            let sql = "SELECT document.key FROM words
                 JOIN document ON document.place = words.rowid
                 JOIN container ON container.id = document.container
                 WHERE words MATCH ?1 AND container.source = ?2 AND container.path = ?3";
            let mut statement = self.connection.prepare_cached(sql)?;
            let of_memory = params![expression, ITEM_SOURCE, memory];
            let paths = statement.query_map(of_memory, |row| row.get(0))?;
            paths.collect()
        };
        let found = find().map_err(|error| index_error(&self.path, &error))?;
        Ok(Some(found))
    }

    /// Adds the words of files, in place of those that the index has of them.
    ///
    /// # Errors
    /// The index cannot be written.
    pub fn index_items(&mut self, memory: &str, items: &[(&ListedItem, &[u8])]) -> Result<()> {
        let path = self.path.clone();
        let mut write = || -> rusqlite::Result<()> {
            let container = self.memory_container(memory)?;
            let transaction = begin(&mut self.connection)?;
            let container = match container {
                Some(container) => container,
                None => {
                    let sql =
                        "INSERT INTO container (source, path, modified_ns) VALUES (?1, ?2, 0)";
                    transaction.execute(sql, params![ITEM_SOURCE, memory])?;
                    transaction.last_insert_rowid()
                }
            };
            let known = known_documents(&transaction, container)?;
            let mut collector = WordCollector::default();
            for (item, text) in items {
                if let Some(known) = known.get(&item.path) {
                    remove_document(&transaction, known.place)?;
                }
                add_item(&transaction, container, item, collector.collect(text))?;
            }
            transaction.commit()
        };
        write().map_err(|error| index_error(&path, &error))
    }

    /// Forgets the files of a memory that are not listed any more.
    ///
    /// # Errors
    /// The index cannot be written.
    pub fn forget_absent_items(&mut self, memory: &str, listed: &[ListedItem]) -> Result<()> {
        let path = self.path.clone();
        let mut write = || -> rusqlite::Result<()> {
            let Some(container) = self.memory_container(memory)? else {
                return Ok(());
            };
            let listed: HashSet<&str> = listed.iter().map(|item| item.path.as_str()).collect();
            let known = known_documents(&self.connection, container)?;
            let gone = known
                .iter()
                .filter(|(path, _)| !listed.contains(path.as_str()));
            let gone: Vec<i64> = gone.map(|(_, known)| known.place).collect();
            if gone.is_empty() {
                return Ok(());
            }
            let transaction = begin(&mut self.connection)?;
            for place in gone {
                remove_document(&transaction, place)?;
            }
            transaction.commit()
        };
        write().map_err(|error| index_error(&path, &error))
    }

    /// Forgets all memories but these.
    ///
    /// # Errors
    /// The index cannot be written.
    pub fn keep_memories(&mut self, kept: &HashSet<String>) -> Result<()> {
        let path = self.path.clone();
        let mut write = || -> rusqlite::Result<()> {
            let containers = self.containers()?.into_iter();
            let others = containers.filter(|it| {
                it.source == ITEM_SOURCE && !kept.contains(&*it.path.to_string_lossy())
            });
            let others: Vec<i64> = others.map(|it| it.id).collect();
            if others.is_empty() {
                return Ok(());
            }
            let transaction = begin(&mut self.connection)?;
            for container in others {
                forget_container(&transaction, container)?;
            }
            transaction.commit()
        };
        write().map_err(|error| index_error(&path, &error))
    }

    fn memory_container(&self, memory: &str) -> rusqlite::Result<Option<i64>> {
        let sql = "SELECT id FROM container WHERE source = ?1 AND path = ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        let id = statement.query_row(params![ITEM_SOURCE, memory], |row| row.get(0));
        id.optional()
    }
}

fn add_item(
    transaction: &Transaction<'_>,
    container: i64,
    item: &ListedItem,
    (words, new_words): (String, Vec<Box<str>>),
) -> rusqlite::Result<()> {
    let time = DateTime::from_timestamp_nanos(item.modified_ns).naive_utc();
    let place = free_place(transaction, minute_of(time))?;
    transaction
        .prepare_cached(
            "INSERT INTO document (place, id, container, key, kind, size, modified_ns, inode)
             SELECT ?1, last_id + 1, ?2, ?3, ?4, ?5, ?6, ?7 FROM counter",
        )?
        .execute(params![
            place,
            container,
            item.path,
            ITEM_KIND,
            item.size as i64,
            item.modified_ns,
            item.inode as i64,
        ])?;
    transaction
        .prepare_cached("INSERT INTO words (rowid, text) VALUES (?1, ?2)")?
        .execute(params![place, words])?;
    for word in &new_words {
        transaction
            .prepare_cached("INSERT OR IGNORE INTO vocabulary (word) VALUES (?1)")?
            .execute([&**word])?;
    }
    Ok(())
}
