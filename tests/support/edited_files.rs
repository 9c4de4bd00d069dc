//! Files beside a memory, and edits of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use memory_shepherd::layouts::FileEdit;

/// The files and directories of an agent: a directory has no content.
pub type Tree = BTreeMap<PathBuf, Option<Vec<u8>>>;

pub fn read_tree(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(directory) = open.pop() {
        for item in fs::read_dir(&directory).unwrap() {
            let path = item.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_path_buf();
            if fs::symlink_metadata(&path).unwrap().is_dir() {
                tree.insert(name, None);
                open.push(path);
            } else {
                tree.insert(name, Some(fs::read(&path).unwrap()));
            }
        }
    }
    tree
}

/// Writes three files into `notes` below an agent's directory.
pub fn write_notes(root: &Path) {
    let notes = root.join("notes");
    fs::create_dir(&notes).unwrap();
    for (name, text) in [("a.md", "alpha\n"), ("b.md", "beta\n"), ("empty.md", "")] {
        fs::write(notes.join(name), text).unwrap();
    }
}

pub fn edit(path: &str, before: Option<&str>, after: Option<&str>) -> FileEdit {
    FileEdit {
        path: path.into(),
        before: before.map(|text| text.as_bytes().to_vec()),
        after: after.map(|text| text.as_bytes().to_vec()),
        moved_from: None,
    }
}

/// Returns the first `count` of these edits: a replacement, a new file in new directories, a removal, a
/// replaced empty file, and one more new file.
pub fn edits(count: usize) -> Vec<FileEdit> {
    let mut all = vec![
        edit("notes/a.md", Some("alpha\n"), Some("alpha, changed\n")),
        edit("new/deep/c.md", None, Some("gamma\n")),
        edit("notes/b.md", Some("beta\n"), None),
        edit("notes/empty.md", Some(""), Some("delta\n")),
        edit("new/e.md", None, Some("epsilon\n")),
    ];
    all.truncate(count);
    all
}

/// Returns the tree after these edits.
pub fn edited(mut tree: Tree, edits: &[FileEdit]) -> Tree {
    for edit in edits {
        match &edit.after {
            Some(bytes) => {
                let parents = edit.path.ancestors().skip(1);
                for directory in parents.filter(|it| !it.as_os_str().is_empty()) {
                    tree.insert(directory.to_path_buf(), None);
                }
                tree.insert(edit.path.clone(), Some(bytes.clone()));
            }
            None => drop(tree.remove(&edit.path)),
        }
    }
    tree
}
