//! A small layout for tests: a directory of notes of one line each, `NAME.md`. Those that the agent
//! keeps are in `kept/`.

use std::path::{Path, PathBuf};

use chrono::{DateTime, FixedOffset, Utc};
use memory_shepherd::base::error::{Error, ErrorKind, Result};
use memory_shepherd::layouts::drover::DroverLayout;
use memory_shepherd::layouts::{
    ArgumentForm, ArgumentSpec, Collection, FileEdit, FoundItem, HealthFinding, HealthSeverity,
    ItemContent, ItemPages, Layout, Layouts, MemoryFiles, MemoryItem, OperationRequest,
    OperationSpec, PlanFailure, PlannedOperation, SearchAnswer, SearchableFile,
};
use memory_shepherd::transport::MemoryObject;

/// The layouts of tests.
pub const LAYOUTS: Layouts = Layouts(&[&NotesLayout, &DroverLayout]);

const COLLECTIONS: [(&str, &str); 2] = [("new", "New notes"), ("kept", "Kept notes")];

pub struct NotesLayout;

/// The directory of a collection, below that of the memory.
fn directory_of(collection: &str) -> Result<&'static Path> {
    match collection {
        "new" => Ok(Path::new("")),
        "kept" => Ok(Path::new("kept")),
        _ => Err(Error::new(
            ErrorKind::User,
            format!("no collection {collection}"),
        )),
    }
}

fn read_note(files: &MemoryFiles, path: &Path) -> Result<Vec<u8>> {
    files.read(path)?.map_err(|fault| fault.to_error(path))
}

/// Returns the notes of a directory, a page at a time.
fn note_pages<'f>(files: &'f MemoryFiles, directory: &'static Path) -> Result<ItemPages<'f>> {
    let Some(mut listing) = files.list(directory)? else {
        return Ok(Box::new(std::iter::empty()));
    };
    let to_item = move |name: PathBuf, size, seconds: i64| -> Result<MemoryItem> {
        let path = directory.join(name);
        let title = match files.read(&path)? {
            Ok(bytes) => MemoryItem::title_of(&String::from_utf8_lossy(&bytes)),
            Err(_) => "unreadable".to_string(),
        };
        Ok(MemoryItem {
            id: path.display().to_string(),
            title,
            path,
            bytes: size,
            modified: DateTime::<Utc>::from_timestamp(seconds, 0).map(|time| time.fixed_offset()),
            visible_to: "all".to_string(),
            labels: Vec::new(),
            failure: None,
        })
    };
    Ok(Box::new(std::iter::from_fn(move || {
        let page = listing.next()?;
        Some(page.and_then(|entries| {
            entries
                .into_iter()
                .filter_map(|entry| match entry.object {
                    Ok(MemoryObject::File(file)) => Some((PathBuf::from(entry.name), file.stamp)),
                    _ => None,
                })
                .filter(|(name, _)| name.extension() == Some("md".as_ref()))
                // The memory that is reset is in the same directory.
                .filter(|(name, _)| name != Path::new("MEMORY.md"))
                .map(|(name, stamp)| to_item(name, stamp.size, stamp.modified / 1_000_000_000))
                .collect()
        }))
    })))
}

impl Layout for NotesLayout {
    fn name(&self) -> &'static str {
        "notes"
    }

    fn detect(&self, files: &MemoryFiles) -> Result<Option<String>> {
        let kept = files.list(Path::new("kept"))?;
        Ok(kept.map(|_| "a directory kept/".to_string()))
    }

    fn collections(&self, _files: &MemoryFiles) -> Result<Vec<Collection>> {
        let collections = COLLECTIONS.map(|(id, name)| Collection {
            id: id.to_string(),
            name: name.to_string(),
        });
        Ok(collections.to_vec())
    }

    fn items<'f>(&self, files: &'f MemoryFiles, collection: &str) -> Result<ItemPages<'f>> {
        note_pages(files, directory_of(collection)?)
    }

    fn read(
        &self,
        files: &MemoryFiles,
        _collection: Option<&str>,
        item: &str,
    ) -> Result<ItemContent> {
        let path = PathBuf::from(item);
        let bytes = read_note(files, &path)?;
        let given = None;
        Ok(ItemContent { path, bytes, given })
    }

    fn texts(&self, files: &MemoryFiles) -> Result<Vec<SearchableFile>> {
        let mut texts = Vec::new();
        for (collection, _) in COLLECTIONS {
            let directory = directory_of(collection)?;
            for entry in files.list(directory)?.into_iter().flatten() {
                let notes = entry?.into_iter().filter_map(|entry| {
                    let path = directory.join(entry.name);
                    let MemoryObject::File(metadata) = entry.object.ok()? else {
                        return None;
                    };
                    (path.extension() == Some("md".as_ref())).then(|| SearchableFile {
                        item: path.display().to_string(),
                        collection: collection.to_string(),
                        path,
                        metadata,
                    })
                });
                texts.extend(notes.filter(|note| note.path != Path::new("MEMORY.md")));
            }
        }
        Ok(texts)
    }

    fn title(&self, _file: &SearchableFile, bytes: &[u8]) -> String {
        MemoryItem::title_of(&String::from_utf8_lossy(bytes))
    }

    fn search(&self, files: &MemoryFiles, query: &str) -> Result<SearchAnswer> {
        let wanted = query.to_lowercase();
        let mut results = Vec::new();
        let mut unread = Vec::new();
        for (collection, _) in COLLECTIONS {
            for item in self.items(files, collection)?.flatten().flatten() {
                match read_note(files, &item.path) {
                    Ok(text) => {
                        let text = String::from_utf8_lossy(&text).to_lowercase();
                        results.extend(text.contains(&wanted).then_some(FoundItem {
                            item: item.id,
                            path: item.path,
                            line: Some(1),
                            score: 1.0,
                            snippet: item.title,
                        }));
                    }
                    Err(error) => unread.push(error.with_context(&item.id)),
                }
            }
        }
        Ok(SearchAnswer {
            mode: "text",
            results,
            unread,
        })
    }

    fn health(
        &self,
        files: &MemoryFiles,
        _now: DateTime<FixedOffset>,
    ) -> Result<Vec<HealthFinding>> {
        let mut findings = Vec::new();
        for (collection, _) in COLLECTIONS {
            for item in self
                .items(files, collection)?
                .collect::<Result<Vec<_>>>()?
                .concat()
            {
                let lines = read_note(files, &item.path)?
                    .split(|byte| *byte == b'\n')
                    .count();
                let (check, severity) = match (item.bytes, lines) {
                    (0, _) => ("empty", HealthSeverity::Error),
                    (_, 0..=2) => continue,
                    _ => ("long", HealthSeverity::Warning),
                };
                findings.push(HealthFinding {
                    check,
                    severity,
                    path: Some(item.path),
                    line: None,
                    id: Some(item.id),
                    measured: Some(item.bytes.to_string()),
                    reported: None,
                    why: "a note has one line",
                    remedy: "rewrite it",
                });
            }
        }
        Ok(findings)
    }

    fn operations(&self) -> &'static [OperationSpec] {
        const NOTE: ArgumentSpec = ArgumentSpec {
            name: "note",
            title: "note to keep",
            form: ArgumentForm::Positional,
            is_required: true,
            choices: &[],
        };
        &[OperationSpec {
            name: "keep",
            title: "keep a note",
            arguments: &[NOTE],
        }]
    }

    fn plan(
        &self,
        files: &MemoryFiles,
        _record: Option<&MemoryFiles>,
        request: &OperationRequest,
    ) -> Result<PlannedOperation, PlanFailure> {
        let path = PathBuf::from(request.required("note")?);
        let text = read_note(files, &path)?;
        let edit = |path, before, after| FileEdit {
            path,
            before,
            after,
            moved_from: None,
        };
        Ok(PlannedOperation {
            outcome: "kept",
            message: format!("kept {}", path.display()),
            facts: serde_json::json!({}),
            edits: vec![
                edit(Path::new("kept").join(&path), None, Some(text.clone())),
                edit(path, Some(text), None),
            ],
            basis: None,
        })
    }
}
