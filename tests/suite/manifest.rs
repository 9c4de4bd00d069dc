//! The manifest: the minimum supported Rust version.

use std::process::Command;

use serde_json::Value;

/// Returns major, minor and patch number of a Rust release; missing parts are zero.
fn release(text: &str) -> Vec<u32> {
    let numbers = text.split('.').map(|number| number.parse().unwrap());
    numbers.chain([0, 0]).take(3).collect()
}

/// `.ci/run` also compiles with that toolchain where it is installed; this test works
/// without it.
#[test]
fn no_dependency_needs_a_newer_rust() {
    let rustc = Command::new("rustc").arg("-vV").output().unwrap().stdout;
    let rustc = String::from_utf8(rustc).unwrap();
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: "));
    let metadata = Command::new(env!("CARGO"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["metadata", "--locked", "--offline", "--format-version=1"])
        .args(["--filter-platform", host.unwrap()])
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&metadata.stderr);
    assert!(metadata.status.success(), "{complaint}");
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let ours = release(env!("CARGO_PKG_RUST_VERSION"));
    let newer: Vec<String> = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|package| {
            let needs = package["rust_version"].as_str()?;
            let name = package["name"].as_str().unwrap();
            (release(needs) > ours).then(|| format!("{name} needs {needs}"))
        })
        .collect();
    assert!(newer.is_empty(), "rust-version is too old: {newer:#?}");
}
