//! The Debian package: what its metadata names exists, and is documented.

use std::fs;
use std::path::Path;

use memory_shepherd::config::{self, SYSTEM_CONFIG_PATH};

use crate::world::bare_environment;

fn project_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn package_metadata() -> toml::Value {
    let manifest = fs::read_to_string(project_root().join("Cargo.toml")).unwrap();
    let manifest: toml::Value = toml::from_str(&manifest).unwrap();
    manifest["package"]["metadata"]["deb"].clone()
}

#[test]
fn package_lists_files_that_exist() {
    let build = fs::read_to_string(project_root().join("packaging/build-deb.sh")).unwrap();
    let metadata = package_metadata();
    let assets = metadata["assets"].as_array().unwrap();
    assert!(assets.len() > 10, "{assets:?}");
    for asset in assets {
        let source = asset[0].as_str().unwrap();
        if let Some(generated) = source.strip_prefix("target/package/") {
            let name = generated.trim_end_matches("/*");
            assert!(build.contains(&format!("$stage/{name}")), "{source}");
        } else if let Some((directory, pattern)) = source.rsplit_once("/*") {
            let mut items = fs::read_dir(project_root().join(directory)).unwrap();
            assert!(
                items.any(|item| item.unwrap().path().to_str().unwrap().ends_with(pattern)),
                "{source}"
            );
        } else if !source.starts_with("target/release/") {
            assert!(project_root().join(source).is_file(), "{source}");
        }
    }
}

/// The config of the package is the one that the program and the units look for.
#[test]
fn config_of_package_is_valid_and_a_conffile() {
    let metadata = package_metadata();
    let files = metadata["conf-files"].as_array().unwrap();
    assert_eq!(files[0].as_str(), Some(SYSTEM_CONFIG_PATH));
    assert_eq!(files.len(), 1);
    let path = project_root().join("packaging/debian/memory-shepherd.conf");
    let config = config::load(&path, &bare_environment(project_root())).unwrap();
    assert!(config.agents.is_empty());
    assert!(config.general.archive_dir.starts_with("/var/lib"));
    assert!(config.general.baseline_dir.starts_with("/etc"));
}
