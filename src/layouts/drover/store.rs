//! The entries below a directory, as the agents' own program loads them, and the files that it leaves
//! out.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::entry::{Entry, LoadFault, Place, Scope, parse_entry};
use super::ids::{is_entry_id, is_segment};
use crate::base::error::{Error, Result};
use crate::base::threads::map_on_processors;
use crate::layouts::{DirectoryPages, MemoryFiles};
use crate::transport::{DirectoryEntry, FileMetadata, MemoryObject, SpecialFile};

/// A file whose name is that of an entry.
#[derive(Clone, Debug)]
pub struct EntryFile {
    /// Its path below the directory of the memory.
    pub path: PathBuf,
    /// The id in its name.
    pub name_id: String,
    /// The directory that it is in.
    pub place: Place,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// When it was changed, in nanoseconds since 1970.
    pub modified: i64,
    /// The entry, if agents see it.
    pub entry: std::result::Result<Entry, LoadFault>,
}

/// A file whose name is that of an entry, before it is read.
pub struct ListedFile {
    pub path: PathBuf,
    pub name_id: String,
    pub metadata: FileMetadata,
}

/// The names of a directory of entries.
#[derive(Default)]
pub struct ListedPlace {
    /// Those of entries, in ascending order.
    pub files: Vec<ListedFile>,
    /// What else has the name of a Markdown file, and is left out.
    pub odd_names: Vec<OddName>,
    /// Names that could not be looked at.
    pub unread: Vec<(PathBuf, Error)>,
}

/// Something with the name of a Markdown file that agents do not read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OddName {
    /// Its path below the directory of the memory.
    pub path: PathBuf,
    /// What it is, if it is no regular file.
    pub object: Option<String>,
}

/// The names of a directory of entries, some at a time.
pub struct PlaceListing {
    pages: Option<DirectoryPages>,
    place: Place,
}

impl PlaceListing {
    /// Opens a directory. One that does not exist is empty.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn open(files: &MemoryFiles, place: Place) -> Result<PlaceListing> {
        let pages = files.list(&place.directory())?;
        Ok(PlaceListing { pages, place })
    }

    /// Returns the next entries, at least `count` if there are as many; none at the end.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn next_entries(&mut self, count: usize) -> Result<Option<ListedPlace>> {
        let Some(pages) = &mut self.pages else {
            return Ok(None);
        };
        let mut listed = ListedPlace::default();
        while listed.files.len() < count {
            let Some(page) = pages.next() else {
                self.pages = None;
                break;
            };
            for entry in page? {
                listed.add(&self.place, entry);
            }
        }
        listed
            .files
            .sort_by(|one, other| one.name_id.cmp(&other.name_id));
        listed.odd_names.sort();
        Ok(Some(listed))
    }
}

impl ListedPlace {
    /// Adds a name, if it is that of a Markdown file.
    fn add(&mut self, place: &Place, entry: DirectoryEntry) {
        let path = place.directory().join(&entry.name);
        let name = entry.name.as_encoded_bytes();
        let Some(stem) = name.strip_suffix(b".md") else {
            return;
        };
        let id = std::str::from_utf8(stem).ok().filter(|it| is_entry_id(it));
        let object = match entry.object {
            Ok(MemoryObject::File(metadata)) => match id {
                Some(id) => {
                    self.files.push(ListedFile {
                        name_id: id.to_string(),
                        path,
                        metadata,
                    });
                    return;
                }
                None => None,
            },
            Ok(MemoryObject::Special(special)) => Some(special.to_string()),
            // It is gone by now.
            Ok(MemoryObject::Absent) => return,
            Err(error) => return self.unread.push((path, error.into())),
        };
        self.odd_names.push(OddName { path, object });
    }
}

/// Lists the entries of a directory.
///
/// # Errors
/// It cannot be read. One that does not exist is empty.
pub fn list_place(files: &MemoryFiles, place: &Place) -> Result<ListedPlace> {
    let listed = PlaceListing::open(files, place.clone())?.next_entries(usize::MAX)?;
    Ok(listed.unwrap_or_default())
}

/// Lists the directories that entries can be in, in the order in which they are read, and those of
/// agents and runs that have other names.
///
/// # Errors
/// The directories cannot be read.
pub fn list_places(files: &MemoryFiles) -> Result<(Vec<Place>, Vec<PathBuf>)> {
    let mut places = vec![Place {
        scope: Scope::Global,
        segment: String::new(),
    }];
    let mut odd = Vec::new();
    for scope in [Scope::Agent, Scope::Run] {
        let directory = Path::new(scope.directory());
        let mut segments = Vec::new();
        for page in files.list(directory)?.into_iter().flatten() {
            for entry in page? {
                if !matches!(
                    &entry.object,
                    Ok(MemoryObject::Special(SpecialFile::Directory))
                ) {
                    continue;
                }
                match entry.name.to_str().filter(|name| is_segment(name)) {
                    Some(name) => segments.push(name.to_string()),
                    None => odd.push(directory.join(&entry.name)),
                }
            }
        }
        segments.sort();
        places.extend(segments.into_iter().map(|segment| Place { scope, segment }));
    }
    odd.sort();
    Ok((places, odd))
}

/// All entries of a memory.
#[derive(Default)]
pub struct Store {
    /// The files whose names are those of entries, in the order in which they are read.
    pub files: Vec<EntryFile>,
    /// The files that agents see, each by its position: of several with one id, the last one at the
    /// place of the first.
    visible: Vec<usize>,
    /// Directories of agents and runs that are left out for their names.
    pub odd_directories: Vec<PathBuf>,
    /// What else has the name of a Markdown file, and is left out.
    pub odd_names: Vec<OddName>,
    /// Files that could not be read, by their paths.
    pub unread: Vec<(PathBuf, Error)>,
}

impl Store {
    /// Reads the entries below a directory.
    ///
    /// # Errors
    /// A directory cannot be read.
    pub fn load(files: &MemoryFiles) -> Result<Store> {
        let (places, odd_directories) = list_places(files)?;
        let mut store = Store {
            odd_directories,
            ..Store::default()
        };
        for place in places {
            let listed = list_place(files, &place)?;
            store.odd_names.extend(listed.odd_names);
            store.unread.extend(listed.unread);
            let (read, unread) = read_listed(files, &place, listed.files);
            store.files.extend(read);
            let unread = unread.into_iter().map(|it| (it.file.path, it.error));
            store.unread.extend(unread);
        }
        let mut positions: HashMap<&str, usize> = HashMap::new();
        for (number, file) in store.files.iter().enumerate() {
            let Ok(entry) = &file.entry else { continue };
            let position = *positions.entry(&entry.id).or_insert_with(|| {
                store.visible.push(number);
                store.visible.len() - 1
            });
            store.visible[position] = number;
        }
        Ok(store)
    }

    /// Reads the entries as [`Store::load`] does.
    ///
    /// # Errors
    /// One of the files cannot be read.
    pub fn load_whole(files: &MemoryFiles) -> Result<Store> {
        let mut store = Store::load(files)?;
        match store.unread.pop() {
            Some((_, error)) => Err(error),
            None => Ok(store),
        }
    }

    /// Returns the entries that agents see, with their files.
    pub fn entries(&self) -> impl Iterator<Item = (&EntryFile, &Entry)> {
        self.visible.iter().filter_map(|number| {
            let file = &self.files[*number];
            file.entry.as_ref().ok().map(|entry| (file, entry))
        })
    }

    /// Returns the entry with an id, if agents see one.
    pub fn find(&self, id: &str) -> Option<(&EntryFile, &Entry)> {
        self.entries().find(|(_, entry)| entry.id == id)
    }

    /// Returns all files whose entry has an id.
    pub fn files_of(&self, id: &str) -> impl Iterator<Item = &EntryFile> {
        let has_id = move |file: &&EntryFile| file.entry.as_ref().is_ok_and(|it| it.id == id);
        self.files.iter().filter(has_id)
    }
}

/// A file that cannot be read.
pub struct UnreadFile {
    pub file: ListedFile,
    pub error: Error,
}

/// Reads the files of a directory; those that are gone by now are left out.
pub fn read_listed(
    files: &MemoryFiles,
    place: &Place,
    listed: Vec<ListedFile>,
) -> (Vec<EntryFile>, Vec<UnreadFile>) {
    let read: Vec<Result<Option<EntryFile>, Box<UnreadFile>>> = if files.local_root().is_some() {
        map_on_processors(listed, || {
            |file: ListedFile| {
                let content = files.read_all(&[(&file.path, &file.metadata)]).pop();
                to_entry_file(place, file, content.unwrap_or(Ok(None)))
            }
        })
    } else {
        let paths = listed.iter().map(|it| (it.path.as_path(), &it.metadata));
        let contents = files.read_all(&paths.collect::<Vec<_>>());
        map_on_processors(listed.into_iter().zip(contents).collect(), || {
            |(file, content)| to_entry_file(place, file, content)
        })
    };
    let (mut entries, mut unread) = (Vec::new(), Vec::new());
    for result in read {
        match result {
            Ok(entry) => entries.extend(entry),
            Err(file) => unread.push(*file),
        }
    }
    (entries, unread)
}

fn to_entry_file(
    place: &Place,
    file: ListedFile,
    content: Result<Option<Vec<u8>>>,
) -> Result<Option<EntryFile>, Box<UnreadFile>> {
    let content = match content {
        Ok(content) => content,
        Err(error) => return Err(Box::new(UnreadFile { file, error })),
    };
    Ok(content.map(|bytes| EntryFile {
        entry: parse_entry(&bytes, place),
        place: place.clone(),
        path: file.path,
        name_id: file.name_id,
        modified: file.metadata.stamp.modified,
        bytes,
    }))
}
