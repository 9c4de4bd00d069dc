//! A memory on an overlay whose upper layer is written directly, as the host of a container can do:
//! a lease on the overlay's file does not detect such a writer.

use std::fs::{self, File};
use std::io::Write;

use super::fixture::{BASELINE, Fleet};
use super::mounts::{Mount, may_mount};
use super::processes::test_directory;
use super::scene::{RESET_ALL, output_text};
use crate::skip::skip_unsupported;

#[test]
fn writer_below_overlay_is_reported() {
    if !may_mount("overlay::writer_below_overlay_is_reported") {
        return;
    }
    let (_temporary, root) = test_directory(false);
    let fleet = Fleet::new(&root, &root.join("archives"), &["scout"]);
    let layer = |name: &str| {
        let path = root.join("layers").join(name);
        fs::create_dir_all(&path).unwrap();
        path
    };
    let (lower, upper, work) = (layer("lower"), layer("upper"), layer("work"));
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        lower.display(),
        upper.display(),
        work.display()
    );
    let words = ["-t", "overlay", "overlay", "-o", &options];
    let mount = match Mount::new(&words, &fleet.agent_directory("scout")) {
        Ok(mount) => mount,
        Err(error) => return skip_unsupported(format_args!("no overlay file system: {error}")),
    };
    fs::write(fleet.memory_path("scout"), format!("{BASELINE}- note\n")).unwrap();
    let mut below = File::options()
        .append(true)
        .open(upper.join("MEMORY.md"))
        .unwrap();
    below.write_all(b"- from below\n").unwrap();
    let doctor = output_text(&fleet.run(&["doctor"]));
    assert!(doctor.contains("(overlay)"), "{doctor}");
    let output = fleet.run(RESET_ALL);
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    let told = output_text(&output);
    assert!(told.contains("late writers cannot be detected"), "{told}");
    assert!(told.contains("(overlay)"), "{told}");
    assert_eq!(
        fs::read_to_string(fleet.memory_path("scout")).unwrap(),
        BASELINE
    );
    let mut entries = fleet.entries("scout").into_values();
    assert!(entries.any(|entry| entry.ends_with(b"- note\n- from below\n")));
    assert!(fleet.leftovers("scout").is_empty());
    drop(below);
    drop(mount);
}
