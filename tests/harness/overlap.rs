//! Bind mounts hide neither directories that overlap nor two agents on one memory.

use std::fs;
use std::path::PathBuf;

use super::fixture::{BASELINE, Fleet};
use super::mounts::{Mount, may_mount};
use super::processes::test_directory;

struct OverlapScene {
    _mounts: Vec<Mount>,
    _temporary: tempfile::TempDir,
    fleet: Fleet,
}

impl OverlapScene {
    /// Creates two agents with a note each; `mounts` are pairs of source and mount point below the
    /// root.
    fn new(mounts: &[(&str, &str)], change: impl Fn(String) -> String) -> OverlapScene {
        let (temporary, root) = test_directory(true);
        let fleet = Fleet::new(&root, &root.join("archives"), &["scout", "ranger"]);
        for agent in fleet.agents() {
            fs::write(fleet.memory_path(agent), format!("{BASELINE}- note\n")).unwrap();
        }
        let path = |name: &str| -> PathBuf { root.join(name) };
        let mount = |(from, to): &(&str, &str)| {
            let (from, to) = (path(from), path(to));
            let words = ["--bind", from.to_str().unwrap()];
            if from.is_file() {
                fs::create_dir_all(to.parent().unwrap()).unwrap();
                fs::write(&to, "").unwrap();
                return Mount::mount_over_file(&words, &to).unwrap();
            }
            fs::create_dir_all(&from).unwrap();
            Mount::new(&words, &to).unwrap()
        };
        let mounts = mounts.iter().map(mount).collect();
        let config = fs::read_to_string(fleet.config_path()).unwrap();
        fs::write(fleet.config_path(), change(config)).unwrap();
        OverlapScene {
            _mounts: mounts,
            _temporary: temporary,
            fleet,
        }
    }

    /// Runs a command; returns its exit code and output.
    fn run(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.fleet.run(arguments);
        let bytes = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&bytes).into_owned();
        (output.status.code().unwrap(), said)
    }

    /// Asserts that every command is refused because of an error in this line.
    #[track_caller]
    fn assert_refused(&self, line: usize) {
        for arguments in [
            &["reset", "--all"][..],
            &["reset", "ranger", "--dry-run"],
            &["undo", "scout"],
            &["status"],
            &["doctor"],
            &["config", "check"],
        ] {
            let (code, said) = self.run(arguments);
            assert_eq!(code, 2, "{arguments:?}: {said}");
            let here = [format!(".conf:{line}: error"), format!("line {line}: ")];
            assert!(here.iter().any(|it| said.contains(it)), "{said}");
        }
        self.assert_unchanged();
    }

    #[track_caller]
    fn assert_unchanged(&self) {
        for agent in self.fleet.agents() {
            let memory = fs::read_to_string(self.fleet.memory_path(agent)).unwrap();
            assert!(memory.ends_with("- note\n"), "{memory}");
            let litter = self.fleet.leftovers(agent);
            assert!(!litter.iter().any(|name| name.starts_with(".shepherd")));
        }
    }
}

const ARCHIVE_LINE: usize = 3;
const SCOUT_LINE: usize = 5;

#[test]
fn bind_mount_does_not_hide_overlap() {
    if !may_mount("overlap::bind_mount_does_not_hide_overlap") {
        return;
    }
    let same = |config: String| config;
    // The archive is a directory inside the agent's, mounted elsewhere,
    let inside = ("agents/scout/deep", "archives");
    OverlapScene::new(&[inside], same).assert_refused(ARCHIVE_LINE);
    // or the agent's own directory or one below it;
    OverlapScene::new(&[("agents/scout", "archives")], same).assert_refused(SCOUT_LINE);
    let below = |config: String| config.replace("/archives", "/mnt/archives");
    OverlapScene::new(&[("agents/scout", "mnt")], below).assert_refused(ARCHIVE_LINE);
    // or one directory of the archive is.
    OverlapScene::new(&[("agents/scout", "archives/scout")], same).assert_refused(ARCHIVE_LINE);
    // The agent's directory is one of the archive's.
    let elsewhere = |config: String| config.replace("= agents/scout/", "= mnt/");
    let scene = OverlapScene::new(&[("archives/scout", "mnt")], elsewhere);
    scene.assert_refused(SCOUT_LINE);
    // The baselines are in the agent's directory.
    let baselines = |config: String| config.replace("[general]", "[general]\nbaseline_dir = mnt");
    OverlapScene::new(&[("agents/scout/deep", "mnt")], baselines).assert_refused(2);
}

#[test]
fn bind_mount_does_not_hide_shared_memory() {
    if !may_mount("overlap::bind_mount_does_not_hide_shared_memory") {
        return;
    }
    let twin = |config: String| config.replace("= agents/ranger/MEMORY.md", "= mnt/MEMORY.md");
    for mounts in [
        &[("agents/scout", "mnt")][..],
        &[("agents", "tree"), ("tree/scout", "mnt")],
        // Only the file is mounted.
        &[("agents/scout/MEMORY.md", "mnt/MEMORY.md")],
    ] {
        let scene = OverlapScene::new(mounts, twin);
        for arguments in [&["reset", "scout"][..], &["ranger"], &["reset", "--all"]] {
            let (code, said) = scene.run(arguments);
            assert_eq!(code, 6, "{arguments:?}: {said}");
            assert!(said.contains("shares its memory file with"), "{said}");
        }
        let (code, said) = scene.run(&["doctor"]);
        assert_eq!(code, 1, "{said}");
        let shared = "scout and ranger share one memory file";
        assert!(said.contains(shared), "{said}");
        scene.assert_unchanged();
    }
}

#[test]
fn lint_fix_leaves_memory_at_another_path_alone() {
    if !may_mount("overlap::lint_fix_leaves_memory_at_another_path_alone") {
        return;
    }
    let scene = OverlapScene::new(&[("agents/scout", "elsewhere")], |config| config);
    let memory = scene.fleet.memory_path("scout");
    fs::write(&memory, "one\r\ntwo\n").unwrap();
    let elsewhere = scene.fleet.root.join("elsewhere/MEMORY.md");
    assert_eq!(fs::read(&elsewhere).unwrap(), b"one\r\ntwo\n");
    let (code, said) = scene.run(&["lint", "--fix", elsewhere.to_str().unwrap()]);
    assert_eq!(code, 6, "{said}");
    assert!(said.contains("it is the memory of scout"), "{said}");
    assert_eq!(fs::read(&memory).unwrap(), b"one\r\ntwo\n");
}
