//! Leftovers of killed processes: files of replacements that no journal records, and their removal.
//!
//! Each random name says what it may hold: the file that it belongs to, and the old and the new content
//! of that file. A leftover is removed only if it holds one of them, this user owns it, and no process
//! that lives has locked it. So neither another program's file nor a save that a new file has displaced
//! by accident is ever taken for one.

use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{self, AtFlags, Mode, OFlags};

use super::ReplacementNames;
use crate::base::digest::{Digest, Hasher};
use crate::base::durable::random_names::{RANDOM_NAME_PREFIX, is_random_name, new_random_name};
use crate::base::durable::{open_directory_errno, read_at_most};
use crate::base::error::Result;
use crate::base::sys;

/// Number of hexadecimal digits of each of the four parts of a name: the file, a random number, and the
/// old and the new content. That is 32 digits, as in every random name.
const PART_DIGITS: usize = 8;

/// Maximum size of a leftover whose content is compared.
const MAX_LEFTOVER_BYTES: u64 = 64 << 20;

/// The kind of file that a random name is for.
#[derive(Clone, Copy)]
enum NamePurpose {
    /// The new file, or what it displaced.
    Complete,
    /// The new file while it is written, where files cannot be nameless.
    Unfinished,
}

/// What a file holds that its name describes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DescribedContent {
    /// The content of the file before, which the new one may not have replaced yet.
    Old,
    /// The content of the new file.
    New,
}

impl ReplacementNames {
    /// Creates names that say what they may hold: a replacement of the file `name`, from the content
    /// `old` (if that is known) to the content `new`.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn describing(name: &OsStr, old: Option<Digest>, new: Digest) -> Result<ReplacementNames> {
        let unknown = new_random_name()?;
        let complete = || -> Result<String> {
            let random = new_random_name()?;
            let salt = &random[random.len() - PART_DIGITS..];
            let old = match old {
                Some(old) => content_part(salt, old),
                None => unknown[unknown.len() - PART_DIGITS..].to_string(),
            };
            let file = file_part(name, NamePurpose::Complete);
            let new = content_part(salt, new);
            Ok(format!("{RANDOM_NAME_PREFIX}{file}{salt}{old}{new}"))
        };
        let random = new_random_name()?;
        let rest = &random[RANDOM_NAME_PREFIX.len() + PART_DIGITS..];
        let file = file_part(name, NamePurpose::Unfinished);
        let unfinished = format!("{RANDOM_NAME_PREFIX}{file}{rest}");
        Ok(ReplacementNames([complete()?, unfinished, complete()?]))
    }
}

/// Removes the leftovers of replacements of the files `names`. The old content of a file stays while
/// that file is missing: the leftover may be the only copy. Leftovers that cannot be removed stay.
pub fn remove_replacement_leftovers<'n>(
    directory: &OwnedFd,
    names: impl IntoIterator<Item = &'n OsStr>,
) {
    let mut files = HashMap::new();
    for name in names {
        for purpose in [NamePurpose::Complete, NamePurpose::Unfinished] {
            files.insert(file_part(name, purpose), (name, purpose));
        }
    }
    for entry in fs::Dir::read_from(directory)
        .into_iter()
        .flatten()
        .flatten()
    {
        let found = str::from_utf8(entry.file_name().to_bytes());
        let Some(found) = found.ok().filter(|it| is_random_name(it)) else {
            continue;
        };
        let part = &found[RANDOM_NAME_PREFIX.len()..][..PART_DIGITS];
        let Some((name, purpose)) = files.get(part) else {
            continue;
        };
        let is_there = || fs::statat(directory, *name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        let is_leftover = match purpose {
            NamePurpose::Complete => match described_content(directory, found) {
                Ok(Some(DescribedContent::New)) => true,
                Ok(Some(DescribedContent::Old)) => is_there(),
                Ok(None) | Err(_) => false,
            },
            NamePurpose::Unfinished => is_abandoned(directory, found).unwrap_or(false),
        };
        if is_leftover {
            let _ = fs::unlinkat(directory, found, AtFlags::empty());
        }
    }
}

/// Removes the leftovers of replacements of the files in a directory, and of `missing` ones, which are
/// not always there. Leftovers that cannot be removed stay, and so does everything in a directory that
/// cannot be read.
pub fn remove_leftovers_in(path: &Path, missing: &[&str]) {
    let Ok(directory) = open_directory_errno(path) else {
        return;
    };
    let entries = fs::Dir::read_from(&directory).into_iter().flatten();
    let present: Vec<CString> = entries
        .flatten()
        .map(|entry| entry.file_name().to_owned())
        .collect();
    let is_random = |name: &CString| name.to_str().is_ok_and(is_random_name);
    if present.iter().any(is_random) {
        let present = present
            .iter()
            .map(|name| OsStr::from_bytes(name.to_bytes()));
        let missing = missing.iter().map(OsStr::new);
        remove_replacement_leftovers(&directory, present.chain(missing));
    }
}

/// Returns which of the contents that its name says a file holds; none if it holds neither, or is
/// locked.
fn described_content(directory: &OwnedFd, found: &str) -> io::Result<Option<DescribedContent>> {
    let Some(file) = open_own_unlocked(directory, found)? else {
        return Ok(None);
    };
    let content = Digest::of(&read_at_most(file, MAX_LEFTOVER_BYTES)?);
    let parts = &found[RANDOM_NAME_PREFIX.len() + PART_DIGITS..];
    let (salt, contents) = parts.split_at(PART_DIGITS);
    let (old, new) = contents.split_at(PART_DIGITS);
    let content = content_part(salt, content);
    Ok(if content == old {
        Some(DescribedContent::Old)
    } else {
        (content == new).then_some(DescribedContent::New)
    })
}

/// Returns whether an unfinished file is abandoned. An empty one may have been created a moment ago,
/// and be locked in the next.
fn is_abandoned(directory: &OwnedFd, found: &str) -> io::Result<bool> {
    let file = open_own_unlocked(directory, found)?;
    file.map_or(Ok(false), |file| Ok(file.metadata()?.len() > 0))
}

/// Opens a regular file that this user owns and no process has locked; none if it is something else.
fn open_own_unlocked(directory: &OwnedFd, found: &str) -> io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(fs::openat(directory, found, flags, Mode::empty())?);
    let meta = file.metadata()?;
    let is_own = meta.is_file() && meta.uid() == rustix::process::geteuid().as_raw();
    let is_free = is_own && sys::lock_conflict(file.as_fd())?.is_none();
    Ok(is_free.then_some(file))
}

/// Returns the part of a name that stands for the file.
fn file_part(name: &OsStr, purpose: NamePurpose) -> String {
    let mut hasher = Hasher::default();
    hasher.update(match purpose {
        NamePurpose::Complete => b"replacement of ",
        NamePurpose::Unfinished => b"unfinished replacement of ",
    });
    hasher.update(name.as_bytes());
    hasher.finish().short_hex(PART_DIGITS)
}

/// Returns the part of a name that stands for a content.
fn content_part(salt: &str, content: Digest) -> String {
    Digest::of(format!("{salt} {content}").as_bytes()).short_hex(PART_DIGITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::durable::{OperatorDirectory, ReplacedFile};

    const NAME: &str = "fleet.prom";

    struct Scene {
        temporary: tempfile::TempDir,
        directory: OperatorDirectory,
    }

    fn scene() -> Scene {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().canonicalize().unwrap();
        let directory = OperatorDirectory::open(&path).unwrap();
        Scene {
            temporary,
            directory,
        }
    }

    impl Scene {
        /// Leaves a file under the name that a replacement of "old" by "new" gives it.
        fn leave(&self, content: &str) -> String {
            let old = Some(Digest::of(b"old"));
            let names = ReplacementNames::describing(NAME.as_ref(), old, Digest::of(b"new"));
            let ReplacementNames([name, ..]) = names.unwrap();
            std::fs::write(self.temporary.path().join(&name), content).unwrap();
            name
        }

        fn has(&self, name: &str) -> bool {
            self.temporary.path().join(name).symlink_metadata().is_ok()
        }

        /// Replaces the file, and removes what is left of earlier replacements.
        fn replace(&self, replaced: ReplacedFile<'_>, bytes: &str) -> Result<()> {
            let (name, mode) = (OsStr::new(NAME), Mode::RUSR | Mode::WUSR);
            let directory = &self.directory;
            directory.replace_file(name, replaced, bytes.as_bytes(), mode)?;
            directory.remove_leftovers([name]);
            Ok(())
        }
    }

    #[test]
    fn leftover_of_killed_replacement_is_removed() {
        let scene = scene();
        let left = [scene.leave("old"), scene.leave("new")];
        scene.replace(ReplacedFile::Known(None), "newer").unwrap();
        assert!(left.iter().all(|name| !scene.has(name)));
        assert!(scene.has(NAME));
    }

    #[test]
    fn leftover_stays_while_its_file_is_missing() {
        let scene = scene();
        let left = scene.leave("old");
        scene.directory.remove_leftovers([OsStr::new(NAME)]);
        assert!(scene.has(&left));
    }

    #[test]
    fn leftover_of_missing_file_goes_if_it_is_new() {
        let scene = scene();
        let left = [scene.leave("new"), scene.leave("old")];
        remove_leftovers_in(scene.temporary.path(), &[]);
        assert!(left.iter().all(|name| scene.has(name)));
        remove_leftovers_in(scene.temporary.path(), &[NAME]);
        assert_eq!(left.map(|name| scene.has(&name)), [false, true]);
    }

    #[test]
    fn leftover_of_program_file_goes_with_next_one() {
        let scene = scene();
        let path = scene.temporary.path().join(NAME);
        let left = [scene.leave("new"), scene.leave("of another program")];
        crate::base::durable::replace_file(&path, b"newer", Mode::RUSR).unwrap();
        assert_eq!(left.map(|name| scene.has(&name)), [false, true]);
    }

    #[test]
    fn foreign_or_locked_leftover_is_spared() {
        let scene = scene();
        let foreign = scene.leave("a save of another program");
        let locked = scene.leave("new");
        let file = File::options()
            .write(true)
            .open(scene.temporary.path().join(&locked))
            .unwrap();
        assert!(sys::try_lock(file.as_fd()).unwrap());
        let unrelated = new_random_name().unwrap();
        std::fs::write(scene.temporary.path().join(&unrelated), "new").unwrap();
        let of_others = scene.leave("new");
        let path = scene.temporary.path().join(&of_others);
        let is_of_others = std::os::unix::fs::chown(path, Some(4711), None).is_ok();
        scene.replace(ReplacedFile::Any, "newer").unwrap();
        assert!(scene.has(&foreign) && scene.has(&locked) && scene.has(&unrelated));
        assert_eq!(scene.has(&of_others), is_of_others);
        drop(file);
        scene.replace(ReplacedFile::Any, "newest").unwrap();
        assert!(!scene.has(&locked));
    }

    #[test]
    fn unexpected_file_is_not_replaced() {
        let scene = scene();
        std::fs::write(scene.temporary.path().join(NAME), "of another program").unwrap();
        for known in [None, Some(&b"old"[..])] {
            let refused = scene.replace(ReplacedFile::Known(known), "new");
            assert!(refused.is_err());
        }
        let text = std::fs::read_to_string(scene.temporary.path().join(NAME)).unwrap();
        assert_eq!(text, "of another program");
        let entries = std::fs::read_dir(scene.temporary.path()).unwrap();
        assert_eq!(entries.count(), 1);
    }
}
