//! Passes the commit that is built to the program, for `--version`.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Otherwise each commit would recompile a build for development.
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = is_release.then(commit_of_checkout).flatten();
    let version = env!("CARGO_PKG_VERSION");
    let text = commit.map_or_else(
        || version.to_string(),
        |commit| format!("{version} ({commit})"),
    );
    println!("cargo:rustc-env=MEMORY_SHEPHERD_VERSION={text}");
}

/// Returns the abbreviated commit of a checkout; none in a package, or without git.
fn commit_of_checkout() -> Option<String> {
    if !Path::new(".git").exists() {
        return None;
    }
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_string())
    };
    // The log of HEAD changes with each commit and checkout.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    println!("cargo:rerun-if-changed={log}");
    git(&["rev-parse", "--short=12", "HEAD"])
}
