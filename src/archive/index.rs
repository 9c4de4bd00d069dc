//! The full-text index of the archive: which documents have which words.
//!
//! `<archive_dir>/.shepherd/index.sqlite` is derived from the documents alone and can be deleted at
//! any time. It is an SQLite database with an FTS5 table over the words of [`for_each_word`], so that
//! it agrees with a scan of the documents. It holds no text: excerpts come from the documents
//! themselves.
//!
//! A search brings it up to date first; a reset neither reads nor writes it. A file that cannot be
//! used (damaged, of another version, with other tables, owned by another user) is replaced; while
//! another process writes to it, a search reads all entries instead.

mod health;
mod items;
mod sync;

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use chrono::{NaiveDateTime, Timelike};
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};

use super::entry::EntryName;
use super::search::{Phrase, Query, Vocabulary, for_each_word, is_vocabulary_word};
use super::{Archive, ArchiveEntry, EntryKind, PROGRAM_DIRECTORY_NAME};
use crate::base::durable;
use crate::base::error::{Error, ErrorKind, PathContext, Result};
pub use health::{IndexFault, IndexHealth};
pub use items::ListedItem;
use sync::kind_number;
pub use sync::{IndexProgress, MAX_INDEXED_BYTES, SyncReport};

/// Name of the index in the program's own directory.
const INDEX_FILE_NAME: &str = "index.sqlite";

/// Names of SQLite's files beside it: the journal, and those of a database with a write-ahead log,
/// which this one never has. SQLite opens what it finds there, and would wait for a FIFO.
const COMPANION_FILE_NAMES: [&str; 3] = [
    "index.sqlite-journal",
    "index.sqlite-wal",
    "index.sqlite-shm",
];

/// The format; an index of another one is replaced.
const INDEX_FORMAT: i64 = 3;

/// Marks the file as an index of this program (SQLite's `application_id`).
const APPLICATION_ID: i64 = 0x5348_4550;

/// Memory for pages, in KiB.
const CACHE_KIB: i64 = 16_384;

/// Words that more documents have say little, and their ranks take long.
const MAX_RANKED_DOCUMENTS: i64 = 5_000;

/// How long a reader waits while another process commits.
const BUSY_TIMEOUT: Duration = Duration::from_millis(200);

/// Bytes of words in memory before FTS5 writes a segment: fewer segments are merged less often.
const HASH_BYTES: i64 = 8 << 20;

/// The number of [`DocumentSource::Entry`] in the index.
const ENTRY_SOURCE: i64 = 0;

/// Source in the index of the files of memories of several files ([`ListedItem`]).
const ITEM_SOURCE: i64 = 1;

/// Kind in the index of a file of a memory: none of the kinds of entries.
const ITEM_KIND: i64 = -1;

/// Bits of a place below the minute of its document: a million documents of one minute have places
/// of their own, in front of those of the next minute.
const PLACE_BITS: u32 = 20;

/// A document is known by its container and the key there. Its place is the rowid of its words, and
/// in the order of time: FTS5 finds the newest documents, and those of a span of time, without
/// looking at the others.
const SCHEMA: &str = "
CREATE TABLE container (
    id INTEGER PRIMARY KEY,
    source INTEGER NOT NULL,
    path TEXT NOT NULL,
    modified_ns INTEGER NOT NULL,
    UNIQUE (source, path)
);
CREATE TABLE document (
    place INTEGER PRIMARY KEY,
    id INTEGER NOT NULL UNIQUE,
    container INTEGER NOT NULL REFERENCES container,
    key TEXT NOT NULL,
    kind INTEGER NOT NULL,
    size INTEGER NOT NULL,
    modified_ns INTEGER NOT NULL,
    inode INTEGER NOT NULL,
    UNIQUE (container, key)
);
CREATE INDEX document_size ON document (size);
CREATE TABLE counter (
    documents INTEGER NOT NULL, bytes INTEGER NOT NULL, last_id INTEGER NOT NULL
);
INSERT INTO counter VALUES (0, 0, 0);
CREATE TRIGGER document_added AFTER INSERT ON document BEGIN
    UPDATE counter SET documents = documents + (new.kind >= 0),
        bytes = bytes + new.size * (new.kind >= 0), last_id = max(last_id, new.id);
END;
CREATE TRIGGER document_removed AFTER DELETE ON document BEGIN
    UPDATE counter SET documents = documents - (old.kind >= 0),
        bytes = bytes - old.size * (old.kind >= 0);
END;
CREATE TABLE sweep (time_ns INTEGER NOT NULL);
CREATE TABLE vocabulary (id INTEGER PRIMARY KEY, word TEXT NOT NULL UNIQUE);
CREATE VIRTUAL TABLE words USING fts5(
    text, content='', contentless_delete=1, tokenize='ascii'
);
";

/// Selects what [`read_document`] reads.
const SELECT_DOCUMENT: &str = "
SELECT document.id, container.source, container.path, document.key, document.size,
    document.modified_ns
FROM document JOIN container ON container.id = document.container";

/// An open index.
pub struct ArchiveIndex {
    connection: Connection,
    path: PathBuf,
    /// Device and inode of the file that is open.
    file_id: Option<(u64, u64)>,
}

/// A text whose words the index has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Its id.
    pub id: DocumentId,
    /// Where it comes from.
    pub source: DocumentSource,
}

/// The id of a document in one index: the same while the document is in the index, also when it
/// changes, and never that of another one. It says nothing of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DocumentId(i64);

/// Where a document comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DocumentSource {
    /// It is an entry of the archive; its container is a directory, and its key the name there.
    Entry(ArchiveEntry),
}

/// A document that may match a query.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    place: i64,
    /// How well its words match: higher is better; 0 where the order is another one.
    pub score: f64,
}

/// The order of candidates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CandidateOrder {
    /// By BM25 (k1 1.2, b 0.75, as FTS5 computes it), then the newest first. By time alone where a
    /// query has no words, or words that more than 5,000 documents have.
    #[default]
    Relevance,
    /// By the time in their names, the newest first.
    Newest,
    /// By that time, the oldest first.
    Oldest,
    /// By size.
    Largest,
}

impl ArchiveIndex {
    /// Opens the index of an archive; none where there is none that can be used.
    ///
    /// # Errors
    /// Another process keeps it locked.
    pub fn open(archive: &Archive) -> Result<Option<ArchiveIndex>> {
        ArchiveIndex::open_usable(&archive.program_path(INDEX_FILE_NAME))
    }

    /// Creates an empty index in place of the one that is there. No other process may have that one
    /// open and read it: SQLite would apply the journal of the new file to it.
    ///
    /// # Errors
    /// The system's error.
    pub fn create(archive: &Archive) -> Result<ArchiveIndex> {
        archive.open_or_create_directory(Path::new(PROGRAM_DIRECTORY_NAME))?;
        let path = archive.program_path(INDEX_FILE_NAME);
        // The file is derived from the entries: nothing is lost with it.
        ArchiveIndex::remove(archive)?;
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        let permissions = archive.permissions();
        options.mode(permissions.entry_mode().as_raw_mode());
        let file = durable::open_nofollow_nonblocking(&path, &mut options)
            .with_path("create the index", &path)?;
        permissions.repair_file(&file, permissions.entry_mode(), &path)?;
        let index = ArchiveIndex::connect(&path).map_err(|error| index_error(&path, &error))?;
        index
            .create_schema()
            .map_err(|error| index_error(&path, &error))?;
        Ok(index)
    }

    fn remove(archive: &Archive) -> Result<()> {
        // Without its journal first, a new index would take over the changes of the old one.
        for name in COMPANION_FILE_NAMES.into_iter().chain([INDEX_FILE_NAME]) {
            let path = archive.program_path(name);
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::from_io("remove", &path, &error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns whether the file that is open is the one at the path, and can still be used.
    pub fn is_current(&self) -> bool {
        self.file_id.is_some()
            && self.file_id == file_id(&self.path)
            && has_regular_companions(&self.path)
    }

    /// Opens the index at a path; none where there is none that can be used.
    ///
    /// # Errors
    /// Another process keeps it locked.
    fn open_usable(path: &Path) -> Result<Option<ArchiveIndex>> {
        let file = durable::open_own_file(path, OpenOptions::new().read(true));
        let Ok(meta) = file.and_then(|file| file.metadata()) else {
            return Ok(None);
        };
        // A database of another user may be made to attack its reader.
        if meta.uid() != rustix::process::geteuid().as_raw() || !has_regular_companions(path) {
            return Ok(None);
        }
        let checked = ArchiveIndex::connect(path).and_then(|index| {
            let number = |name: &str| -> rusqlite::Result<i64> {
                index
                    .connection
                    .query_row(&format!("PRAGMA {name}"), [], |row| row.get(0))
            };
            let is_ours = number("application_id")? == APPLICATION_ID
                && number("user_version")? == INDEX_FORMAT
                && schema_objects(&index.connection)? == expected_objects()?;
            Ok(is_ours.then_some(index))
        });
        match checked {
            Ok(index) => Ok(index),
            Err(error) if is_busy(&error) => Err(index_error(path, &error)),
            Err(_) => Ok(None),
        }
    }

    fn connect(path: &Path) -> rusqlite::Result<ArchiveIndex> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.execute_batch(&format!(
            "PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;
             PRAGMA journal_mode = TRUNCATE; PRAGMA synchronous = NORMAL;
             PRAGMA temp_store = MEMORY; PRAGMA cache_size = -{CACHE_KIB};"
        ))?;
        Ok(ArchiveIndex {
            connection,
            path: path.to_path_buf(),
            file_id: file_id(path),
        })
    }

    fn create_schema(&self) -> rusqlite::Result<()> {
        self.connection.execute_batch(&format!(
            "BEGIN IMMEDIATE; {SCHEMA}
             INSERT INTO words (words, rank) VALUES ('hashsize', {HASH_BYTES});
             PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {INDEX_FORMAT};
             COMMIT;"
        ))
    }

    /// Makes what is read from here on one state of the index, until the result is dropped.
    ///
    /// # Errors
    /// The index is damaged or locked.
    pub fn snapshot(&self) -> Result<rusqlite::Transaction<'_>> {
        let transaction = self.connection.unchecked_transaction();
        transaction.map_err(|error| index_error(&self.path, &error))
    }

    /// Returns the entries that may match a query, in an order. Regular expressions, pins and the
    /// agents of a directory are the caller's: it names the directories that count.
    ///
    /// # Errors
    /// The index is damaged or locked.
    pub fn find_candidates(
        &self,
        query: &Query,
        order: CandidateOrder,
        counts: &dyn Fn(&Path) -> bool,
    ) -> Result<Vec<Candidate>> {
        self.query_candidates(query, order, counts)
            .map_err(|error| index_error(&self.path, &error))
    }

    fn query_candidates(
        &self,
        query: &Query,
        order: CandidateOrder,
        counts: &dyn Fn(&Path) -> bool,
    ) -> rusqlite::Result<Vec<Candidate>> {
        // A bound within a minute leaves all of that minute over.
        let since = query.filter.since.map(minute_of);
        let until = query.filter.until.map(|until| {
            let is_whole = until.second() == 0 && until.nanosecond() == 0;
            minute_of(until) + i64::from(!is_whole)
        });
        let since = since.map_or(i64::MIN, first_place);
        let until = until.map_or(i64::MAX, first_place);
        let expression = match_expression(query);
        let mut from = match expression {
            Some(_) => "FROM words".to_string(),
            None => "FROM document AS words".to_string(),
        };
        let mut conditions = "WHERE words.rowid >= ?1 AND words.rowid < ?2".to_string();
        if expression.is_some() {
            conditions += " AND words MATCH ?3";
        }
        let of_entry = self.entry_conditions(query, counts)?;
        if !of_entry.is_empty() || order == CandidateOrder::Largest {
            from += " JOIN document ON document.place = words.rowid";
            conditions += &of_entry;
        }
        let sources = format!("{from} {conditions}");
        let is_ranked = order == CandidateOrder::Relevance
            && expression.is_some()
            && self.has_few_rows(&sources, (since, until), expression.as_deref())?;
        let (score, order) = match order {
            CandidateOrder::Relevance if is_ranked => ("-rank", "rank, words.rowid DESC"),
            CandidateOrder::Relevance | CandidateOrder::Newest => ("0.0", "words.rowid DESC"),
            CandidateOrder::Oldest => ("0.0", "words.rowid"),
            CandidateOrder::Largest => ("0.0", "document.size DESC, words.rowid DESC"),
        };
        let sql = format!("SELECT words.rowid, {score} {sources} ORDER BY {order}");
        let mut statement = self.connection.prepare(&sql)?;
        let candidate = |row: &rusqlite::Row<'_>| {
            Ok(Candidate {
                place: row.get(0)?,
                score: row.get(1)?,
            })
        };
        match expression {
            Some(expression) => statement
                .query_map(params![since, until, expression], candidate)?
                .collect(),
            None => statement
                .query_map(params![since, until], candidate)?
                .collect(),
        }
    }

    /// Returns the conditions on directories and kinds; empty where all count.
    fn entry_conditions(
        &self,
        query: &Query,
        counts: &dyn Fn(&Path) -> bool,
    ) -> rusqlite::Result<String> {
        let mut conditions = String::new();
        let containers = self.containers()?;
        let counting: Vec<String> = containers
            .iter()
            .filter(|it| it.source == ENTRY_SOURCE && counts(&it.path))
            .map(|it| it.id.to_string())
            .collect();
        if counting.len() < containers.len() {
            conditions += &format!(" AND document.container IN ({})", counting.join(","));
        }
        let kinds: Vec<String> = EntryKind::ALL
            .iter()
            .filter(|it| query.filter.allows_kind(**it))
            .map(|kind| kind_number(*kind).to_string())
            .collect();
        if kinds.len() < EntryKind::ALL.len() {
            conditions += &format!(" AND document.kind IN ({})", kinds.join(","));
        }
        Ok(conditions)
    }

    /// Returns whether so few rows match that ranking them is quick.
    fn has_few_rows(
        &self,
        sources: &str,
        (since, until): (i64, i64),
        expression: Option<&str>,
    ) -> rusqlite::Result<bool> {
        let most = MAX_RANKED_DOCUMENTS + 1;
        let sql = format!("SELECT count(*) FROM (SELECT 1 {sources} LIMIT {most})");
        let mut statement = self.connection.prepare(&sql)?;
        let count: i64 =
            statement.query_row(params![since, until, expression], |row| row.get(0))?;
        Ok(count < most)
    }

    /// Returns a document that was found; none if it was removed since.
    ///
    /// # Errors
    /// The index is damaged or locked.
    pub fn document(&self, candidate: Candidate) -> Result<Option<Document>> {
        let query = || -> rusqlite::Result<Option<Document>> {
            // The `+` keeps SQLite from preparing the statement again for each place.
            let sql = format!("{SELECT_DOCUMENT} WHERE document.place = +?1");
            let mut statement = self.connection.prepare_cached(&sql)?;
            let document = statement.query_row([candidate.place], read_document);
            Ok(document.optional()?.flatten())
        };
        query().map_err(|error| index_error(&self.path, &error))
    }

    /// Returns the documents whose texts are not in the index, because they are too large.
    ///
    /// # Errors
    /// The index is damaged or locked.
    pub fn large_documents(&self) -> Result<Vec<Document>> {
        let query = || -> rusqlite::Result<Vec<Document>> {
            // The order by an expression keeps SQLite from looking at all documents in the order of
            // places.
            let sql =
                format!("{SELECT_DOCUMENT} WHERE document.size > ?1 ORDER BY +document.place DESC");
            let mut statement = self.connection.prepare_cached(&sql)?;
            let rows = statement.query_map([MAX_INDEXED_BYTES as i64], read_document)?;
            rows.filter_map(Result::transpose).collect()
        };
        query().map_err(|error| index_error(&self.path, &error))
    }

    /// Returns the number of entries and of their bytes.
    ///
    /// # Errors
    /// The index is damaged or locked.
    pub fn archive_size(&self) -> Result<(u64, u64)> {
        let sql = "SELECT documents, bytes FROM counter";
        let size = self.connection.query_row(sql, [], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
        });
        let (count, bytes) = size.map_err(|error| index_error(&self.path, &error))?;
        Ok((count.unsigned_abs(), bytes.unsigned_abs()))
    }

    /// Returns the words that can be misspelt or inflected, and a number that grows with them.
    ///
    /// # Errors
    /// The index is damaged or locked.
    pub fn vocabulary(&self) -> Result<(Vocabulary, i64)> {
        let query = || -> rusqlite::Result<Vec<String>> {
            let mut statement = self.connection.prepare("SELECT word FROM vocabulary")?;
            let words = statement.query_map([], |row| row.get(0))?;
            words.collect()
        };
        let version = self.vocabulary_version()?;
        let words = query().map_err(|error| index_error(&self.path, &error))?;
        Ok((Vocabulary::new(words), version))
    }

    /// Returns the number that grows with the vocabulary.
    ///
    /// # Errors
    /// The index is damaged or locked.
    pub fn vocabulary_version(&self) -> Result<i64> {
        let sql = "SELECT coalesce(max(id), 0) FROM vocabulary";
        let version = self.connection.query_row(sql, [], |row| row.get(0));
        version.map_err(|error| index_error(&self.path, &error))
    }

    /// Returns the names in a directory whose entries are in the index.
    ///
    /// # Errors
    /// The index is damaged or locked.
    pub fn indexed_names(&self, directory: &Path) -> Result<HashSet<String>> {
        let query = || -> rusqlite::Result<HashSet<String>> {
            let mut statement = self.connection.prepare_cached(
                "SELECT document.key FROM document
                 JOIN container ON container.id = document.container
                 WHERE container.source = ?1 AND container.path = ?2",
            )?;
            let of_directory = params![ENTRY_SOURCE, directory.to_str()];
            let names = statement.query_map(of_directory, |row| row.get(0))?;
            names.collect()
        };
        query().map_err(|error| index_error(&self.path, &error))
    }

    fn containers(&self) -> rusqlite::Result<Vec<Container>> {
        let sql = "SELECT id, source, path FROM container";
        let mut statement = self.connection.prepare_cached(sql)?;
        let rows = statement.query_map([], |row| {
            Ok(Container {
                id: row.get(0)?,
                source: row.get(1)?,
                path: PathBuf::from(row.get::<_, String>(2)?),
            })
        })?;
        rows.collect()
    }
}

/// Where documents of one source are.
struct Container {
    id: i64,
    source: i64,
    path: PathBuf,
}

/// Returns the minutes between 1970 and a local time.
fn minute_of(time: NaiveDateTime) -> i64 {
    time.and_utc().timestamp().div_euclid(60)
}

/// Returns the first place of a minute.
fn first_place(minute: i64) -> i64 {
    minute << PLACE_BITS
}

/// Reads a document; none where its source or its key is none, which only a damaged index has.
fn read_document(row: &rusqlite::Row<'_>) -> rusqlite::Result<Option<Document>> {
    let (id, source) = (DocumentId(row.get(0)?), row.get::<_, i64>(1)?);
    let (directory, name): (String, String) = (row.get(2)?, row.get(3)?);
    let size: i64 = row.get(4)?;
    let modified_ns: i64 = row.get(5)?;
    let source = match source {
        ENTRY_SOURCE => EntryName::parse(&name).map(|name| {
            DocumentSource::Entry(ArchiveEntry {
                path: Path::new(&directory).join(&name.text),
                kind: name.kind,
                stamp: name.stamp,
                number: name.number,
                size: size.unsigned_abs(),
                modified: modified_ns.div_euclid(1_000_000_000),
            })
        }),
        _ => None,
    };
    Ok(source.map(|source| Document { id, source }))
}

/// Returns the FTS5 expression of the phrases of a query; none where no phrase is required.
fn match_expression(query: &Query) -> Option<String> {
    let mut required: Vec<String> = query.required_phrases().map(phrase_expression).collect();
    required.extend(query.similar_words().map(|words| {
        let words: Vec<String> = words.iter().map(|it| format!("\"{}\"", it.word)).collect();
        format!("({})", words.join(" OR "))
    }));
    if required.is_empty() {
        return None;
    }
    let mut expression = required.join(" AND ");
    for phrase in query.excluded_phrases() {
        expression = format!("({expression}) NOT {}", phrase_expression(phrase));
    }
    Some(expression)
}

/// Folded words hold neither quotation marks nor blanks.
fn phrase_expression(phrase: &Phrase) -> String {
    let star = if phrase.is_prefix { " *" } else { "" };
    format!("\"{}\"{star}", phrase.words.join(" "))
}

/// Collects the folded words of texts.
#[derive(Default)]
struct WordCollector {
    /// Words that can be misspelt or inflected, of all texts.
    seen: HashSet<Box<str>>,
}

impl WordCollector {
    /// Returns the words of another text, with a blank between two, and those that can be misspelt
    /// or inflected and were not in an earlier text.
    fn collect(&mut self, text: &[u8]) -> (String, Vec<Box<str>>) {
        let (mut words, mut new) = (String::with_capacity(text.len()), Vec::new());
        for_each_word(text, |word, _| {
            words.push_str(word);
            words.push(' ');
            if is_vocabulary_word(word) && !self.seen.contains(word) {
                self.seen.insert(word.into());
                new.push(word.into());
            }
        });
        (words, new)
    }
}

/// An object of a database schema: type, name, table and SQL.
type SchemaObject = (String, String, String, Option<String>);

/// Returns the objects of a database, at most a few more than an index has: a view in place of a
/// table could be endless, and a trigger could change what is written.
fn schema_objects(connection: &Connection) -> rusqlite::Result<Vec<SchemaObject>> {
    const MAX_OBJECTS: usize = 64;
    let mut statement = connection.prepare(&format!(
        "SELECT type, name, tbl_name, sql FROM sqlite_master LIMIT {MAX_OBJECTS}"
    ))?;
    let objects = statement.query_map([], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
    })?;
    let mut objects: Vec<SchemaObject> = objects.collect::<rusqlite::Result<_>>()?;
    objects.sort();
    Ok(objects)
}

/// Returns the objects that this version of SQLite creates for an index.
fn expected_objects() -> rusqlite::Result<Vec<SchemaObject>> {
    let connection = Connection::open_in_memory()?;
    connection.execute_batch(SCHEMA)?;
    schema_objects(&connection)
}

/// Returns whether everything at the names of SQLite's files beside the index at a path is a
/// regular file.
fn has_regular_companions(path: &Path) -> bool {
    COMPANION_FILE_NAMES.iter().all(|name| {
        match std::fs::symlink_metadata(path.with_file_name(name)) {
            Ok(meta) => meta.is_file(),
            Err(error) => durable::is_absent(&error),
        }
    })
}

/// Returns device and inode of a file.
fn file_id(path: &Path) -> Option<(u64, u64)> {
    let meta = std::fs::symlink_metadata(path).ok()?;
    Some((meta.dev(), meta.ino()))
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked)
    )
}

fn index_error(path: &Path, error: &rusqlite::Error) -> Error {
    let kind = match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase) => {
            ErrorKind::Integrity
        }
        _ if is_busy(error) => ErrorKind::Busy,
        _ => ErrorKind::Host,
    };
    let cause = match error {
        rusqlite::Error::SqliteFailure(_, Some(message)) => message.clone(),
        error => error.to_string(),
    };
    Error::new(
        kind,
        format!("cannot use the index {}: {cause}", path.display()),
    )
}
