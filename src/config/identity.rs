//! Which config a path means, however it is spelled.

use std::path::{Path, PathBuf};

/// Returns the path by which a config is known to units, pauses and alerts: its directory without
/// symlinks and `..`, and the name of the file. A path whose directory cannot be resolved is returned
/// as it is.
///
/// The file itself is not resolved: configs that are symlinks to one file are configs of their own.
pub fn config_identity(path: &Path) -> PathBuf {
    let resolved = || Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
    resolved().unwrap_or_else(|| path.to_path_buf())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn spellings_of_a_config_have_one_identity() {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path().canonicalize().unwrap();
        fs::create_dir(root.join("fleet")).unwrap();
        symlink("fleet", root.join("link")).unwrap();
        fs::write(root.join("fleet/a.conf"), "").unwrap();
        symlink("a.conf", root.join("fleet/b.conf")).unwrap();
        for (path, identity) in [
            ("fleet/a.conf", "fleet/a.conf"),
            ("fleet/../fleet/./a.conf", "fleet/a.conf"),
            ("link/a.conf", "fleet/a.conf"),
            ("link/gone.conf", "fleet/gone.conf"),
            ("fleet/b.conf", "fleet/b.conf"),
            ("gone/../a.conf", "gone/../a.conf"),
        ] {
            assert_eq!(
                config_identity(&root.join(path)),
                root.join(identity),
                "{path}"
            );
        }
    }
}
