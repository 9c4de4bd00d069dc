//! Positions of paths on their file systems: which paths may lead to the same file, by the mount
//! table alone.
//!
//! Two paths without symlinks lead to one file only if they are one path, or if mounts show one
//! directory of a file system at several places. A mount shows a directory of its device, so the
//! device and the path below the device's root find both. Names that differ in case or in the form
//! of their characters count as one, because they are on some file systems.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use icu_normalizer::DecomposingNormalizerBorrowed;

use super::mounts::{MountTable, is_plain};

/// Finds positions by one mount table.
pub struct PathPositions {
    table: Arc<MountTable>,
    has_aliases: bool,
}

impl PathPositions {
    pub(super) fn new(table: Arc<MountTable>) -> PathPositions {
        PathPositions {
            has_aliases: table.has_aliases(),
            table,
        }
    }

    /// Whether different paths can lead to one file. If not, the hash of a position is that of the path
    /// ([`hash_path`]).
    pub fn has_aliases(&self) -> bool {
        self.has_aliases
    }

    /// Whether these are the positions by a table.
    pub(super) fn is_of(&self, table: &Arc<MountTable>) -> bool {
        Arc::ptr_eq(&self.table, table)
    }

    /// Whether the mount table cannot be read, so that positions expose no mounts.
    pub fn is_unknown(&self) -> bool {
        self.table.is_empty()
    }

    /// Returns the hash of the position of an absolute path. Paths to one file have one hash;
    /// others may have it as well.
    pub fn hash_position(&self, path: &Path) -> u64 {
        let path = resolve_parent_components(path);
        let mount = self.has_aliases.then(|| self.table.mount_of(&path));
        let Some((point, mount)) = mount.flatten() else {
            return hash_path(&path);
        };
        let mut hasher = DefaultHasher::new();
        mount.device.hash(&mut hasher);
        if mount.root == Path::new("/") && point == Path::new("/") {
            hash_folded(&path, &mut hasher);
        } else {
            let rest = path.strip_prefix(point).unwrap_or(&path);
            let mut at = mount.root.clone();
            // A file that is a mount point has no name below it.
            at.extend(rest.components());
            hash_folded(&at, &mut hasher);
        }
        hasher.finish()
    }
}

/// Returns the hash of an absolute path, which all spellings of it share.
pub fn hash_path(path: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    hash_folded(&resolve_parent_components(path), &mut hasher);
    hasher.finish()
}

/// Resolves `..`; where the path has no symlinks, that is what the kernel does.
pub fn resolve_parent_components(path: &Path) -> Cow<'_, Path> {
    if !path.as_os_str().as_bytes().windows(2).any(|it| it == b"..") {
        return Cow::Borrowed(path);
    }
    let mut resolved = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(resolved.pop()),
            other => resolved.push(other),
        }
    }
    Cow::Owned(resolved)
}

/// Hashes a path in a form that all spellings of its names share.
fn hash_folded(path: &Path, hasher: &mut DefaultHasher) {
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_ascii() && is_plain(path) {
        return hasher.write(&bytes.to_ascii_lowercase());
    }
    let path: PathBuf = path.components().collect();
    let text = path.to_string_lossy();
    let text = DecomposingNormalizerBorrowed::new_nfkd().normalize(&text);
    hasher.write(text.to_lowercase().as_bytes());
}

/// The difference of two names that lead to one file on some file systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpellingDifference {
    /// Upper and lower case.
    Case,
    /// Composed and decomposed characters, which look the same.
    CharacterForm,
    /// Both.
    CaseAndCharacterForm,
}

impl SpellingDifference {
    /// Compares two names; `None` if they are equal, or differ in more, or are not UTF-8.
    pub fn between(one: &OsStr, other: &OsStr) -> Option<SpellingDifference> {
        let (one, other) = (one.to_str()?, other.to_str()?);
        if one == other {
            return None;
        }
        if one.is_ascii() && other.is_ascii() {
            let is_equal = one.eq_ignore_ascii_case(other);
            return is_equal.then_some(SpellingDifference::Case);
        }
        // Unlike the compatible forms, the canonical ones stand for the same characters.
        let normalizer = DecomposingNormalizerBorrowed::new_nfd();
        let [first, second] = [one, other].map(|name| normalizer.normalize(name));
        if first == second {
            Some(SpellingDifference::CharacterForm)
        } else if first.to_lowercase() != second.to_lowercase() {
            None
        } else if one.to_lowercase() == other.to_lowercase() {
            Some(SpellingDifference::Case)
        } else {
            Some(SpellingDifference::CaseAndCharacterForm)
        }
    }

    /// Names the difference.
    pub fn describe(self) -> &'static str {
        match self {
            SpellingDifference::Case => "case",
            SpellingDifference::CharacterForm => "the form of its characters",
            SpellingDifference::CaseAndCharacterForm => "case and the form of its characters",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::mounts::Mount;
    use super::*;

    fn positions(mounts: &[(&str, &str, &str)]) -> PathPositions {
        // The first one is that of the root.
        let table = (0..).zip(mounts).map(|(id, (point, device, root))| {
            let mount = Mount {
                id,
                parent: 0,
                device: device.to_string(),
                root: PathBuf::from(root),
            };
            (PathBuf::from(point), mount)
        });
        PathPositions::new(Arc::new(table.collect()))
    }

    #[test]
    fn paths_to_one_file_have_one_position() {
        let table = [
            ("/", "254:0", "/"),
            ("/bind", "254:0", "/srv/a"),
            ("/srv/far", "0:51", "/"),
            ("/far", "0:51", "/deep"),
            ("/srv/b/MEMORY.md", "254:0", "/srv/a/MEMORY.md"),
        ];
        let positions = positions(&table);
        let at = |path: &str| positions.hash_position(Path::new(path));
        let memory = at("/srv/a/MEMORY.md");
        for path in [
            "/bind/MEMORY.md",
            "/srv/b/MEMORY.md",
            "/srv/./a//MEMORY.md",
            "/srv/b/../a/MEMORY.md",
            "/srv/A/memory.md",
        ] {
            assert_eq!(at(path), memory, "{path}");
        }
        assert_eq!(at("/far/M.md"), at("/srv/far/deep/M.md"));
        assert_eq!(at("/srv/\u{e9}/M.md"), at("/srv/e\u{301}/M.md"));
        for path in ["/srv/c/MEMORY.md", "/far/a/MEMORY.md", "/srv/far/MEMORY.md"] {
            assert_ne!(at(path), memory, "{path}");
        }
        assert_ne!(at("/far/M.md"), at("/srv/far/M.md"));
    }

    #[test]
    fn directory_at_two_places_is_an_alias() {
        let root = ("/", "254:0", "/");
        let at = |more: &[(&str, &str, &str)]| {
            let mounts: Vec<_> = [root].iter().chain(more).copied().collect();
            positions(&mounts)
        };
        let same_place = at(&[
            ("/srv/x", "254:0", "/srv/x"),
            ("/tmp", "0:40", "/"),
            ("/etc/hosts", "254:1", "/containers/hosts"),
            ("/etc/hostname", "254:1", "/containers/hostname"),
        ]);
        assert!(!same_place.has_aliases());
        let path = Path::new("/srv/x/A/../MEMORY.md");
        assert_eq!(same_place.hash_position(path), hash_path(path));
        for alias in [
            [("/bind", "254:0", "/srv/x")].as_slice(),
            &[("/a", "0:40", "/"), ("/b", "0:40", "/deep")],
            &[("/srv/x", "254:0", "/srv/y")],
        ] {
            assert!(at(alias).has_aliases(), "{alias:?}");
        }
    }

    #[test]
    fn spellings_of_one_name_are_told_apart() {
        let difference = |one: &str, other: &str| {
            SpellingDifference::between(OsStr::new(one), OsStr::new(other))
        };
        for (one, other, expected) in [
            ("MEMORY.md", "MEMORY.md", None),
            ("MEMORY.md", "memory.md", Some(SpellingDifference::Case)),
            ("\u{c9}t.md", "\u{e9}t.md", Some(SpellingDifference::Case)),
            (
                "M\u{e9}.md",
                "Me\u{301}.md",
                Some(SpellingDifference::CharacterForm),
            ),
            (
                "M\u{e9}.md",
                "me\u{301}.md",
                Some(SpellingDifference::CaseAndCharacterForm),
            ),
            ("MEMORY.md", "MEMORY2.md", None),
            ("M2.md", "M\u{b2}.md", None),
            ("M\u{e9}.md", "Me.md", None),
        ] {
            assert_eq!(difference(one, other), expected, "{one} {other}");
            assert_eq!(difference(other, one), expected, "{other} {one}");
        }
    }

    #[test]
    fn unreadable_mount_table_is_unknown() {
        assert!(positions(&[]).is_unknown());
        assert!(!positions(&[("/", "254:0", "/")]).is_unknown());
    }
}
