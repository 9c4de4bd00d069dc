//! The ancestry of directories, independent of how their paths are written: symlinks resolved,
//! device and inode of each directory up to the root, and the position on the file system, which
//! all mounts of it share.
//!
//! A symlink that belongs neither to root nor to the current user is not followed: agents can
//! create such links, and nothing that an agent creates may look like an error of the
//! configuration. A symlink to another file system is not followed either, because that one may
//! hang. Operations that change files refuse paths through symlinks.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::FileSystems;
use super::mounts::{Mount, MountTable, crossed_file_systems};

/// The largest number of symlinks in a path.
const MAX_LINKS: usize = 40;

/// Device and inode.
type DirectoryId = (u64, u64);

/// The position of a directory in the tree of directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ancestry {
    /// Its path with symlinks resolved.
    pub path: PathBuf,
    /// The existing directories from this one up to the root.
    directory_ids: Vec<DirectoryId>,
    exists: bool,
    mount_location: Option<Arc<MountLocation>>,
}

/// A mount and its mount point.
#[derive(Debug, PartialEq, Eq)]
struct MountLocation {
    mount_point: PathBuf,
    mount: Mount,
}

impl Ancestry {
    /// Returns its device and inode, if it exists.
    fn directory_id(&self) -> Option<DirectoryId> {
        self.directory_ids.first().copied().filter(|_| self.exists)
    }

    /// Whether this is `other` or a directory inside it.
    pub fn is_within(&self, other: &Ancestry) -> bool {
        is_path_below(&self.path, &other.path)
            || other
                .directory_id()
                .is_some_and(|id| self.directory_ids.contains(&id))
            || self.is_within_on_file_system(other)
    }

    /// Whether this is within `other` by their positions on the file system, for different mounts
    /// of one file system.
    fn is_within_on_file_system(&self, other: &Ancestry) -> bool {
        let (Some(here), Some(there)) = (&self.mount_location, &other.mount_location) else {
            return false;
        };
        let is_same_mount = here.mount_point.as_os_str() == there.mount_point.as_os_str();
        if is_same_mount || here.mount.device != there.mount.device {
            return false;
        }
        let place = |path: &Path, mounted: &MountLocation| {
            let rest = path
                .strip_prefix(&mounted.mount_point)
                .unwrap_or(Path::new(""));
            mounted.mount.root.join(rest)
        };
        place(&self.path, here).starts_with(place(&other.path, there))
    }
}

/// Whether a resolved path is another one or below it: the bytes alone exclude most of a large fleet.
fn is_path_below(path: &Path, above: &Path) -> bool {
    let (bytes, prefix) = (path.as_os_str().as_bytes(), above.as_os_str().as_bytes());
    bytes.starts_with(prefix) && path.starts_with(above)
}

/// The object at a path, usually a directory.
struct DirectoryNode {
    path: PathBuf,
    /// None if the path does not exist.
    id: Option<DirectoryId>,
    parent: Option<Rc<DirectoryNode>>,
    /// The mount that it is on.
    mount_location: Option<Arc<MountLocation>>,
}

/// Resolves paths, and caches each step.
struct AncestryResolver {
    table: Arc<MountTable>,
    /// By the path as it is written: other spellings are other keys.
    nodes: HashMap<OsString, Option<Rc<DirectoryNode>>>,
}

impl AncestryResolver {
    fn new(table: &Arc<MountTable>) -> AncestryResolver {
        AncestryResolver {
            table: Arc::clone(table),
            nodes: HashMap::new(),
        }
    }

    /// Returns the ancestry of the directory at a path; None if it cannot be resolved.
    fn resolve_ancestry(&mut self, path: &Path) -> Option<Ancestry> {
        let node = self.cached_node(path, MAX_LINKS)?;
        let mut ids = Vec::new();
        let mut ancestor = Some(&node);
        while let Some(node) = ancestor {
            ids.extend(node.id);
            ancestor = node.parent.as_ref();
        }
        Some(Ancestry {
            path: node.path.clone(),
            directory_ids: ids,
            exists: node.id.is_some(),
            mount_location: node.mount_location.clone(),
        })
    }

    fn cached_node(&mut self, path: &Path, links: usize) -> Option<Rc<DirectoryNode>> {
        if let Some(known) = self.nodes.get(path.as_os_str()) {
            return known.clone();
        }
        let node = self.resolve_node(path, links);
        self.nodes.insert(path.as_os_str().to_owned(), node.clone());
        node
    }

    fn resolve_node(&mut self, path: &Path, links: usize) -> Option<Rc<DirectoryNode>> {
        let Some(parent) = path.parent() else {
            return Some(Rc::new(DirectoryNode {
                path: path.to_path_buf(),
                id: fs::symlink_metadata(path).ok().map(|it| id(&it)),
                parent: None,
                mount_location: self.mount_location(path),
            }));
        };
        let parent = self.cached_node(parent, links)?;
        let name = match path.components().next_back()? {
            Component::Normal(name) => name,
            Component::ParentDir => return Some(parent.parent.clone().unwrap_or(parent)),
            _ => return Some(parent),
        };
        let path = parent.path.join(name);
        // A directory that does not exist has no entries.
        let found = parent.id.and_then(|_| fs::symlink_metadata(&path).ok());
        if let Some(link) = found.as_ref().filter(|found| found.is_symlink()) {
            let ours = rustix::process::geteuid().as_raw();
            if links == 0 || (link.uid() != 0 && link.uid() != ours) {
                return None;
            }
            let target = fs::read_link(&path).ok()?;
            let target = parent.path.join(target);
            // The caller's time limit covers only the file systems that the path itself crosses.
            let crossed = |path: &Path| crossed_file_systems(&self.table, path).into_keys();
            let (here, mut there) = (crossed(&path).collect::<Vec<_>>(), crossed(&target));
            if there.any(|device| !here.contains(&device)) {
                return None;
            }
            return self.cached_node(&target, links - 1);
        }
        Some(Rc::new(DirectoryNode {
            id: found.as_ref().map(id),
            mount_location: self
                .mount_location(&path)
                .or_else(|| parent.mount_location.clone()),
            parent: Some(parent),
            path,
        }))
    }

    fn mount_location(&self, path: &Path) -> Option<Arc<MountLocation>> {
        let mount = self.table.get(path)?.clone();
        let point = path.to_path_buf();
        Some(Arc::new(MountLocation {
            mount_point: point,
            mount,
        }))
    }
}

fn id(meta: &fs::Metadata) -> DirectoryId {
    (meta.dev(), meta.ino())
}

/// Resolves the ancestries of directories; None for each that is not resolved within `timeout`.
pub fn resolve_ancestries(
    systems: &FileSystems,
    paths: Vec<PathBuf>,
    timeout: Duration,
) -> Vec<Option<Ancestry>> {
    let table = systems.mount_table.current();
    systems.inspect_paths(paths, timeout, move || {
        let mut resolver = AncestryResolver::new(&table);
        move |path| resolver.resolve_ancestry(path)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{lchown, symlink};

    use super::*;
    use crate::skip::skip_unsupported;

    #[test]
    fn ancestry_is_independent_of_path_spelling() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir(root.join("c")).unwrap();
        symlink("a", root.join("link")).unwrap();
        symlink(root.join("link/b"), root.join("c/further")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let mut resolver = AncestryResolver::new(&Arc::default());
        let mut at = |path: &str| resolver.resolve_ancestry(&root.join(path));
        let b = at("a/b").unwrap();
        assert_eq!(b.path, root.join("a/b"));
        for path in ["link/b", "c/further", "c/../link/./b", "c/further/../b"] {
            assert_eq!(at(path).unwrap(), b, "{path}");
        }
        assert_eq!(at("loop"), None);
        let missing = at("link/none/deeper").unwrap();
        assert_eq!(missing.path, root.join("a/none/deeper"));
        assert_eq!(missing.directory_id(), None);
        let (a, c) = (at("a").unwrap(), at("c").unwrap());
        assert!(b.is_within(&a) && b.is_within(&b) && missing.is_within(&a));
        assert!(!a.is_within(&b) && !c.is_within(&a) && !b.is_within(&missing));
        // By device and inode alone, as through a bind mount.
        let mut elsewhere = b.clone();
        elsewhere.path = PathBuf::from("/mnt/b");
        assert!(elsewhere.is_within(&a) && !elsewhere.is_within(&c));
    }

    #[test]
    fn symlink_of_other_user_is_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let link = root.path().join("link");
        symlink("/", &link).unwrap();
        let ancestry = || AncestryResolver::new(&Arc::default()).resolve_ancestry(&link);
        assert!(ancestry().is_some());
        if lchown(&link, Some(4_000_000), None).is_err() {
            return skip_unsupported("only root can give links away");
        }
        assert_eq!(ancestry(), None);
    }

    #[test]
    fn mounts_of_one_file_system_share_ancestry() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        for name in ["a/b/c", "mnt", "far"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        let mount = |id, device: &str, root: PathBuf| Mount {
            id,
            parent: 1,
            device: device.to_string(),
            root,
        };
        let table = [
            (PathBuf::from("/"), mount(1, "254:0", PathBuf::from("/"))),
            (root.join("mnt"), mount(2, "254:0", root.join("a/b"))),
            (root.join("far"), mount(3, "0:51", root.join("a/b"))),
        ];
        let table = table.into_iter().collect();
        let mut resolver = AncestryResolver::new(&Arc::new(table));
        let mut at = |path: &str| resolver.resolve_ancestry(&root.join(path)).unwrap();
        let (a, b, c) = (at("a"), at("a/b"), at("a/b/c"));
        let (mounted, inside, far) = (at("mnt"), at("mnt/c/d"), at("far"));
        assert!(mounted.is_within(&a) && mounted.is_within(&b) && inside.is_within(&c));
        assert!(b.is_within(&mounted) && c.is_within(&mounted));
        assert!(!a.is_within(&mounted) && !mounted.is_within(&c));
        assert!(!far.is_within(&a) && !far.is_within(&mounted));
    }
}
