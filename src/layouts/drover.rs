//! The layout `drover`: memory that agents keep in one Markdown file per entry, in three scopes.
//!
//! ```text
//! global/ID.md            every agent
//! agents/AGENT/ID.md      one agent
//! runs/RUN/ID.md          one run
//! ```
//!
//! Entries are those that the agents' own program loads ([`Store`]); what it leaves out in silence is a
//! finding here.

mod entry;
mod health;
mod ids;
mod operations;
mod prompt;
mod ranking;
mod repair;
mod store;
mod view;
mod yaml;

use std::path::{Path, PathBuf};

use chrono::{DateTime, FixedOffset, Utc};

use super::{
    ArgumentForm, ArgumentSpec, Collection, FoundItem, HealthFinding, ItemContent, ItemPages,
    Layout, MemoryFiles, MemoryItem, OperationRequest, OperationSpec, PlanFailure,
    PlannedOperation, SearchAnswer, SearchableFile,
};
use crate::base::error::{Error, ErrorKind, Result};
pub use entry::{Entry, Kind, LoadFault, Place, Scope};
pub use ids::{is_segment, new_id, stable_id};
use operations::PutRequest;
pub use prompt::{
    IndexBlock, IndexLimits, InstructionChain, InstructionFile, InstructionSettings, index_block,
};
pub use ranking::{RankingMode, rank};
use repair::RepairRequest;
use store::UnreadFile;
pub use store::{EntryFile, Store};
pub use view::{View, ViewKind};

/// The layout.
pub struct DroverLayout;

/// Number of entries that are read at once.
const PAGE_ENTRIES: usize = 200;

/// Number of names that are listed and sorted before the first of them are read: of a larger directory,
/// the next as many follow. On a host, a name costs more.
const SORTED_NAMES: usize = 20_000;
const SORTED_REMOTE_NAMES: usize = 1_000;

/// Number of files that are read to detect the layout.
const MAX_DETECTED_FILES: usize = 20;

impl Layout for DroverLayout {
    fn name(&self) -> &'static str {
        "drover"
    }

    fn detect(&self, files: &MemoryFiles) -> Result<Option<String>> {
        let (places, _) = store::list_places(files)?;
        for place in places {
            let mut listed = store::list_place(files, &place)?.files;
            listed.truncate(MAX_DETECTED_FILES);
            let (read, _) = store::read_listed(files, &place, listed);
            if let Some(file) = read.iter().find(|file| file.entry.is_ok()) {
                return Ok(Some(format!("an entry at {}", file.path.display())));
            }
        }
        Ok(None)
    }

    fn collections(&self, files: &MemoryFiles) -> Result<Vec<Collection>> {
        let (places, _) = store::list_places(files)?;
        let collections = places.into_iter().map(|place| Collection {
            id: place.directory_name(),
            name: match place.scope {
                Scope::Global => "global".to_string(),
                Scope::Agent => format!("agent {}", place.segment),
                Scope::Run => format!("run {}", place.segment),
            },
        });
        Ok(collections.collect())
    }

    fn items<'f>(&self, files: &'f MemoryFiles, collection: &str) -> Result<ItemPages<'f>> {
        let place = place_of_collection(collection)?;
        let chunk = match files.local_root() {
            Some(_) => SORTED_NAMES,
            None => SORTED_REMOTE_NAMES,
        };
        let mut listing = store::PlaceListing::open(files, place.clone())?;
        let mut left = Vec::new();
        Ok(Box::new(std::iter::from_fn(move || {
            if left.is_empty() {
                match listing.next_entries(chunk) {
                    Ok(listed) => left = listed?.files,
                    Err(error) => return Some(Err(error)),
                }
            }
            let rest = left.split_off(left.len().min(PAGE_ENTRIES));
            let page = std::mem::replace(&mut left, rest);
            let (read, unread) = store::read_listed(files, &place, page);
            if let Some(lost) = unread.iter().find(|it| it.error.is_host_lost()) {
                return Some(Err(lost.error.clone()));
            }
            let unread = unread.iter().map(item_of_unread);
            let mut items: Vec<MemoryItem> = read.iter().map(item_of).chain(unread).collect();
            items.sort_by(|one, other| one.id.cmp(&other.id));
            Some(Ok(items))
        })))
    }

    fn read(
        &self,
        files: &MemoryFiles,
        collection: Option<&str>,
        item: &str,
    ) -> Result<ItemContent> {
        let no_item = || Error::new(ErrorKind::User, format!("no memory '{item}'"));
        if let Some((directory, name)) = item.rsplit_once('/') {
            let id = name.strip_suffix(".md").ok_or_else(no_item)?;
            return self.read(files, Some(directory), id);
        }
        if !ids::is_entry_id(item) {
            return Err(no_item());
        }
        let name = format!("{item}.md");
        let path = match collection {
            Some(collection) => place_of_collection(collection)?.directory().join(name),
            None => {
                let mut store = Store::load(files)?;
                let seen = store.find(item).map(|(file, _)| file);
                let named = || store.files.iter().rev().find(|file| file.name_id == item);
                let found = seen.or_else(named).map(|file| file.path.clone());
                // A file that cannot be read may be the one.
                let why = || store.unread.pop().map_or_else(no_item, |(_, error)| error);
                found.ok_or_else(why)?
            }
        };
        let bytes = files.read(&path)?.map_err(|fault| fault.to_error(&path))?;
        let entry = entry::parse_entry(&bytes, &place_of_path(&path)?);
        let given = entry.ok().map(|entry| entry.body.into_bytes());
        Ok(ItemContent { path, bytes, given })
    }

    fn texts(&self, files: &MemoryFiles) -> Result<Vec<SearchableFile>> {
        let (places, _) = store::list_places(files)?;
        let mut texts = Vec::new();
        for place in places {
            let collection = place.directory_name();
            let listed = store::list_place(files, &place)?.files.into_iter();
            texts.extend(listed.map(|file| SearchableFile {
                item: file.name_id,
                collection: collection.clone(),
                path: file.path,
                metadata: file.metadata,
            }));
        }
        Ok(texts)
    }

    fn title(&self, file: &SearchableFile, bytes: &[u8]) -> String {
        let place = Place::of_directory(Path::new(&file.collection));
        let entry = place.map(|place| entry::parse_entry(bytes, &place));
        title_of(entry.unwrap_or(Err(LoadFault::Scope)).as_ref())
    }

    fn search(&self, files: &MemoryFiles, query: &str) -> Result<SearchAnswer> {
        let store = Store::load(files)?;
        let (seen, entries): (Vec<&EntryFile>, Vec<&Entry>) = store.entries().unzip();
        let ranked = rank(&entries, query, RankingMode::Bm25);
        let results = ranked.into_iter().map(|(number, score)| FoundItem {
            item: entries[number].id.clone(),
            path: seen[number].path.clone(),
            line: None,
            score,
            snippet: MemoryItem::title_of(&entries[number].summary),
        });
        Ok(SearchAnswer {
            mode: RankingMode::Bm25.as_str(),
            results: results.collect(),
            unread: store.unread.into_iter().map(|(_, error)| error).collect(),
        })
    }

    fn health(
        &self,
        files: &MemoryFiles,
        now: DateTime<FixedOffset>,
    ) -> Result<Vec<HealthFinding>> {
        let store = Store::load(files)?;
        if let Some((_, error)) = store.unread.iter().find(|(_, it)| it.is_host_lost()) {
            return Err(error.clone());
        }
        Ok(health::check_store(&store, files.local_root(), now))
    }

    fn operations(&self) -> &'static [OperationSpec] {
        OPERATIONS
    }

    fn plan(
        &self,
        files: &MemoryFiles,
        record: Option<&MemoryFiles>,
        request: &OperationRequest,
    ) -> Result<PlannedOperation, PlanFailure> {
        let directory = request.value("cwd").map(Path::new);
        match request.operation.as_str() {
            "put" => operations::plan_put(files, &put_request(request)?, request),
            "forget" => {
                let id = request.required("id")?;
                operations::plan_forget(files, id, request.value("agent-id"), directory)
            }
            "move" => {
                let id = request.required("id")?;
                let to_agent = request.value("to-agent");
                operations::plan_move(files, id, &put_request(request)?, to_agent, request)
            }
            "repair" => {
                let kind = request.value("kind").map(str::parse).transpose();
                let repair = RepairRequest {
                    file: request.required("file")?,
                    kind: kind.map_err(|why: String| Error::new(ErrorKind::User, why))?,
                    summary: request.value("summary"),
                };
                repair::plan_repair(files, &repair)
            }
            "prune" => operations::plan_prune(files, days_of(request)?, request),
            _ => {
                let record = record.ok_or_else(|| Error::new(ErrorKind::User, "no record"))?;
                operations::plan_reset(files, record, &reset_place(request)?)
            }
        }
    }
}

/// Returns the directory that a collection is.
fn place_of_collection(collection: &str) -> Result<Place> {
    Place::of_directory(Path::new(collection)).ok_or_else(|| {
        let message = format!("no collection {collection}; see the tree");
        Error::new(ErrorKind::User, message)
    })
}

/// Returns the directory that the file of an entry is in.
fn place_of_path(path: &Path) -> Result<Place> {
    let place = path.parent().and_then(Place::of_directory);
    place.ok_or_else(|| Error::new(ErrorKind::User, format!("no memory {}", path.display())))
}

fn item_of(file: &EntryFile) -> MemoryItem {
    let entry = file.entry.as_ref();
    let visible_to = match entry {
        Err(_) => "none".to_string(),
        Ok(entry) => match (entry.scope, &entry.agent_id, &entry.run_id) {
            (Scope::Global, ..) => "all".to_string(),
            (Scope::Agent, Some(agent), _) => format!("agent {agent}"),
            (Scope::Run, _, Some(run)) => format!("run {run}"),
            _ => "none".to_string(),
        },
    };
    MemoryItem {
        id: file.name_id.clone(),
        title: title_of(entry),
        path: file.path.clone(),
        bytes: file.bytes.len() as u64,
        modified: Some(time_of(file.modified)),
        visible_to,
        labels: entry.map_or_else(|_| Vec::new(), labels_of),
        failure: None,
    }
}

/// Returns the summary of an entry, or why agents do not see it.
fn title_of(entry: Result<&Entry, &LoadFault>) -> String {
    match entry {
        Ok(entry) => MemoryItem::title_of(&entry.summary),
        Err(fault) => format!("agents do not see it: {}", fault.as_str()),
    }
}

/// Returns the kind and the tags of an entry.
fn labels_of(entry: &Entry) -> Vec<String> {
    let kind = entry.kind.as_str().to_string();
    let tags = entry.tags.iter().map(|tag| format!("#{tag}"));
    std::iter::once(kind).chain(tags).collect()
}

/// Makes the item of a file that cannot be read.
fn item_of_unread(UnreadFile { file, error }: &UnreadFile) -> MemoryItem {
    MemoryItem {
        id: file.name_id.clone(),
        title: "cannot be read".to_string(),
        path: file.path.clone(),
        bytes: file.metadata.stamp.size,
        modified: Some(time_of(file.metadata.stamp.modified)),
        visible_to: "none".to_string(),
        labels: Vec::new(),
        failure: Some(error.to_line()),
    }
}

fn time_of(nanoseconds: i64) -> DateTime<FixedOffset> {
    DateTime::<Utc>::from_timestamp_nanos(nanoseconds).fixed_offset()
}

const fn argument(
    name: &'static str,
    title: &'static str,
    form: ArgumentForm,
    is_required: bool,
) -> ArgumentSpec {
    ArgumentSpec {
        name,
        title,
        form,
        is_required,
        choices: &[],
    }
}

/// An argument with these values.
const fn choice(argument: ArgumentSpec, choices: &'static [&'static str]) -> ArgumentSpec {
    ArgumentSpec {
        choices,
        ..argument
    }
}

const ID: ArgumentSpec = argument("id", "id of the entry", ArgumentForm::Positional, true);
const ID_OR_PATH: ArgumentSpec = argument(
    "id",
    "id of the entry, or the path of one file below the directory",
    ArgumentForm::ItemOrFile,
    true,
);
const AGENT_ID: ArgumentSpec = argument(
    "agent-id",
    "who asks; else the operator",
    ArgumentForm::Named,
    false,
);
const RUN_ID: ArgumentSpec = argument(
    "run-id",
    "run that the entry is of",
    ArgumentForm::Named,
    false,
);
const SCOPE: ArgumentSpec = choice(
    argument("scope", "global, agent or run", ArgumentForm::Named, true),
    &["global", "agent", "run"],
);
const KINDS: &[&str] = &["user", "feedback", "project", "reference"];
const CWD: ArgumentSpec = argument(
    "cwd",
    "where instruction files are; else every entry tagged so is one",
    ArgumentForm::Directory,
    false,
);

const OPERATIONS: &[OperationSpec] = &[
    OperationSpec {
        name: "put",
        title: "create or replace an entry",
        arguments: &[
            SCOPE,
            choice(
                argument(
                    "kind",
                    "user, feedback, project or reference",
                    ArgumentForm::Named,
                    true,
                ),
                KINDS,
            ),
            argument(
                "summary",
                "the line that agents see",
                ArgumentForm::Named,
                true,
            ),
            argument(
                "body",
                "the text that recall returns",
                ArgumentForm::Text,
                true,
            ),
            AGENT_ID,
            RUN_ID,
            argument("tag", "tag", ArgumentForm::Repeated, false),
            argument(
                "id",
                "entry to replace; without it, a new one",
                ArgumentForm::Named,
                false,
            ),
            CWD,
        ],
    },
    OperationSpec {
        name: "forget",
        title: "remove an entry",
        arguments: &[ID_OR_PATH, AGENT_ID, CWD],
    },
    OperationSpec {
        name: "move",
        title: "give an entry another scope",
        arguments: &[
            ID,
            SCOPE,
            argument(
                "to-agent",
                "agent that gets the entry; else the one who asks, or its own",
                ArgumentForm::Named,
                false,
            ),
            AGENT_ID,
            RUN_ID,
            CWD,
        ],
    },
    OperationSpec {
        name: "repair",
        title: "make an entry of a file that agents do not see, or move it to where it belongs",
        arguments: &[
            argument(
                "file",
                "id in its name, or path below the directory",
                ArgumentForm::ItemOrFile,
                true,
            ),
            choice(
                argument(
                    "kind",
                    "where the file has none",
                    ArgumentForm::Named,
                    false,
                ),
                KINDS,
            ),
            argument(
                "summary",
                "where the file has none",
                ArgumentForm::Named,
                false,
            ),
        ],
    },
    OperationSpec {
        name: "prune",
        title: "remove the entries of old runs",
        arguments: &[argument(
            "days",
            "age of the newest entry of a run",
            ArgumentForm::Named,
            true,
        )],
    },
    OperationSpec {
        name: "reset",
        title: "bring the entries of a scope back to a recorded set",
        arguments: &[
            argument(
                "to",
                "directory of the recorded entries",
                ArgumentForm::Record,
                true,
            ),
            choice(
                argument(
                    "scope",
                    "agent (default) or global",
                    ArgumentForm::Named,
                    false,
                ),
                &["agent", "global"],
            ),
            argument(
                "agent-id",
                "agent whose entries are reset",
                ArgumentForm::Named,
                false,
            ),
        ],
    },
];

/// Returns what a request says of an entry as it is to be.
fn put_request(request: &OperationRequest) -> Result<PutRequest> {
    let scope = request.required("scope")?;
    let text = |name: &str| request.value(name).unwrap_or_default().to_string();
    Ok(PutRequest {
        scope: scope
            .parse()
            .map_err(|hint: String| unknown_scope(scope, hint))?,
        kind: text("kind"),
        summary: text("summary"),
        body: text("body"),
        agent_id: request.value("agent-id").map(str::to_string),
        run_id: request.value("run-id").map(str::to_string),
        tags: request.values("tag").to_vec(),
        id: request.value("id").map(str::to_string),
        directory: request.value("cwd").map(PathBuf::from),
    })
}

/// Returns the age in days that a request names.
fn days_of(request: &OperationRequest) -> Result<u32> {
    let text = request.required("days")?;
    let days = text.parse().ok().filter(|days| *days > 0);
    days.ok_or_else(|| {
        let message = format!("days must be a whole number above 0 (got '{text}')");
        Error::new(ErrorKind::User, message)
    })
}

fn unknown_scope(scope: &str, hint: String) -> Error {
    Error::new(ErrorKind::User, format!("no scope {scope}")).with_hint(hint)
}

/// Returns the directory whose entries a request resets: the global one only where it is named.
fn reset_place(request: &OperationRequest) -> Result<Place> {
    let scope = request.value("scope").unwrap_or(Scope::Agent.as_str());
    let agent = request.value("agent-id");
    let (scope, segment) = match (scope, agent) {
        ("global", None) => (Scope::Global, ""),
        ("agent", Some(agent)) if is_segment(agent) => (Scope::Agent, agent),
        _ => {
            let message = "a reset needs an agent-id, or the scope global";
            return Err(Error::new(ErrorKind::User, message));
        }
    };
    Ok(Place {
        scope,
        segment: segment.to_string(),
    })
}
