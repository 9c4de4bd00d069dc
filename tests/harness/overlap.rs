//! Bind mounts hide neither directories that overlap nor two agents on one memory.

use std::fs;
use std::path::PathBuf;

use super::fixture::{BASELINE, Fleet};
use super::mounts::{Mount, may_mount};
use super::tools::ground;

struct Scene {
    _mounts: Vec<Mount>,
    _temporary: tempfile::TempDir,
    fleet: Fleet,
}

impl Scene {
    /// Two agents with a note each; `mounts` are pairs of what is mounted and where,
    /// below the root.
    fn new(mounts: &[(&str, &str)], change: impl Fn(String) -> String) -> Scene {
        let (temporary, root) = ground(true);
        let fleet = Fleet::new(&root, &root.join("archives"), &["scout", "ranger"]);
        for agent in fleet.agents() {
            fs::write(fleet.memory(agent), format!("{BASELINE}- note\n")).unwrap();
        }
        let path = |name: &str| -> PathBuf { root.join(name) };
        let mount = |(from, to): &(&str, &str)| {
            let (from, to) = (path(from), path(to));
            let words = ["--bind", from.to_str().unwrap()];
            if from.is_file() {
                fs::create_dir_all(to.parent().unwrap()).unwrap();
                fs::write(&to, "").unwrap();
                return Mount::file(&words, &to).unwrap();
            }
            fs::create_dir_all(&from).unwrap();
            Mount::new(&words, &to).unwrap()
        };
        let mounts = mounts.iter().map(mount).collect();
        let config = fs::read_to_string(fleet.config()).unwrap();
        fs::write(fleet.config(), change(config)).unwrap();
        Scene {
            _mounts: mounts,
            _temporary: temporary,
            fleet,
        }
    }

    /// What a command ends with, and what it says.
    fn run(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.fleet.run(arguments);
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        (output.status.code().unwrap(), said)
    }

    /// That no command does anything, because of an error in this line.
    #[track_caller]
    fn is_refused(&self, line: usize) {
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
        self.is_untouched();
    }

    #[track_caller]
    fn is_untouched(&self) {
        for agent in self.fleet.agents() {
            let memory = fs::read_to_string(self.fleet.memory(agent)).unwrap();
            assert!(memory.ends_with("- note\n"), "{memory}");
            let litter = self.fleet.litter(agent);
            assert!(!litter.iter().any(|name| name.starts_with(".shepherd")));
        }
    }
}

const ARCHIVE: usize = 3;
const SCOUT: usize = 5;

#[test]
fn bind_mount_hides_no_overlap() {
    if !may_mount("overlap::bind_mount_hides_no_overlap") {
        return;
    }
    let same = |config: String| config;
    // The archive is a directory in the agent's, mounted elsewhere,
    let inside = ("agents/scout/deep", "archives");
    Scene::new(&[inside], same).is_refused(ARCHIVE);
    // or the agent's own, or below it;
    Scene::new(&[("agents/scout", "archives")], same).is_refused(SCOUT);
    let below = |config: String| config.replace("/archives", "/mnt/archives");
    Scene::new(&[("agents/scout", "mnt")], below).is_refused(ARCHIVE);
    // so is one directory of it.
    Scene::new(&[("agents/scout", "archives/scout")], same).is_refused(ARCHIVE);
    // The agent's directory is one of the archive's.
    let elsewhere = |config: String| config.replace("= agents/scout/", "= mnt/");
    let scene = Scene::new(&[("archives/scout", "mnt")], elsewhere);
    scene.is_refused(SCOUT);
    // The baselines are in the agent's directory.
    let baselines = |config: String| config.replace("[general]", "[general]\nbaseline_dir = mnt");
    Scene::new(&[("agents/scout/deep", "mnt")], baselines).is_refused(2);
}

#[test]
fn bind_mount_hides_no_shared_memory() {
    if !may_mount("overlap::bind_mount_hides_no_shared_memory") {
        return;
    }
    let twin = |config: String| config.replace("= agents/ranger/MEMORY.md", "= mnt/MEMORY.md");
    for mounts in [
        &[("agents/scout", "mnt")][..],
        &[("agents", "tree"), ("tree/scout", "mnt")],
        // The file alone.
        &[("agents/scout/MEMORY.md", "mnt/MEMORY.md")],
    ] {
        let scene = Scene::new(mounts, twin);
        for arguments in [&["reset", "scout"][..], &["ranger"], &["reset", "--all"]] {
            let (code, said) = scene.run(arguments);
            assert_eq!(code, 6, "{arguments:?}: {said}");
            assert!(said.contains("shares its memory file with"), "{said}");
        }
        let (code, said) = scene.run(&["doctor"]);
        assert_eq!(code, 1, "{said}");
        let shared = "scout and ranger share one memory file";
        assert!(said.contains(shared), "{said}");
        scene.is_untouched();
    }
}
