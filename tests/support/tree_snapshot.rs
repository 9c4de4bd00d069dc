//! Everything that a look at a directory could change.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use memory_shepherd::base::digest::Digest;

/// Returns a directory and everything below it: kind, mode, inode, times and content.
pub fn snapshot_tree(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut tree = BTreeMap::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(path) = open.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let content = if meta.is_file() {
            fs::read(&path).unwrap()
        } else if meta.is_symlink() {
            fs::read_link(&path).unwrap().into_os_string().into_vec()
        } else {
            Vec::new()
        };
        if meta.is_dir() {
            let items = fs::read_dir(&path).unwrap();
            open.extend(items.map(|item| item.unwrap().path()));
        }
        let times = (
            meta.mtime(),
            meta.mtime_nsec(),
            meta.ctime(),
            meta.ctime_nsec(),
        );
        let digest = Digest::of(&content);
        let what = format!("{:o} {} {times:?} {digest}", meta.mode(), meta.ino());
        tree.insert(path, what);
    }
    tree
}
