//! Directories that overlap: refused as errors of the config, and harmless where the
//! check could not see them.

use std::fs::{self, File, FileTimes};
use std::io::Write;
use std::os::unix::fs::{lchown, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use memory_shepherd::config::{self, Config, ConfigEnvironment, ConfigErrors, DiagnosticLevel};

use super::world::{World, apply};

/// An age at which a sweep takes a file without a name for the rest of a killed run.
const STALE: Duration = Duration::from_secs(25 * 60 * 60);

fn append(file: &mut File, text: &str) {
    file.write_all(text.as_bytes()).unwrap();
}

/// The archive's directory of the agent is the one that its memory is in.
#[test]
fn sweep_spares_what_a_record_names() {
    let world = World::new(&["scout"]).general("archive_dir = agents");
    let engine = world.engine_with_config(world.unchecked_config());
    let reset = |note: &str| {
        world.write_scratch("scout", note);
        let plan = engine.plan_reset(&["scout".to_string()], false).unwrap();
        apply(&engine, &plan)
    };
    world.write_scratch("scout", "");
    let memory = world.memory("scout");
    let mut writer = File::options().append(true).open(&memory).unwrap();
    reset("- early\n").ok();
    let names = |world: &World| {
        let mut names = world.litter("scout");
        names.retain(|name| name.starts_with(".shepherd-"));
        names
    };
    let displaced = names(&world);
    assert_eq!(displaced.len(), 1, "a writer has it open");
    append(&mut writer, "- late\n");
    let long_ago = FileTimes::new().set_modified(SystemTime::UNIX_EPOCH);
    writer.set_times(long_ago).unwrap();
    world.clock.advance(STALE);
    reset("- second\n");
    assert_eq!(names(&world), displaced, "a writer has it open still");
    drop(writer);
    reset("- third\n");
    assert_eq!(names(&world), [""; 0]);
    let entries = fs::read_dir(world.folder("scout")).unwrap();
    let late = entries.filter(|entry| {
        let path = entry.as_ref().unwrap().path();
        fs::read_to_string(path).is_ok_and(|text| text.ends_with("- late\n"))
    });
    assert_eq!(late.count(), 1);
}

/// Reads a config in `root` with these directories and one agent.
fn load(root: &Path, archive: &str, baselines: &str, memory: &str) -> Result<Config, ConfigErrors> {
    let text = format!(
        "[general]\narchive_dir = {archive}\nbaseline_dir = {baselines}\n\
         [scout]\nmemory_file = {memory}\nbaseline = scout.md\n"
    );
    let path = root.join("memory-shepherd.conf");
    fs::write(&path, text).unwrap();
    let env = ConfigEnvironment {
        cwd: root.to_path_buf(),
        home: None,
        xdg_config_home: None,
        xdg_state_home: None,
        config_path_variable: None,
        uid: 0,
    };
    let loaded = config::load(&path, &env);
    // A running console reads it in another way.
    let again = config::reload(&path, &env);
    assert_eq!(loaded.is_ok(), again.is_ok());
    loaded
}

/// The lines of the errors.
fn lines(loaded: Result<Config, ConfigErrors>) -> Vec<usize> {
    let problems = loaded.unwrap_err().0;
    assert!(
        problems
            .iter()
            .all(|it| it.level == DiagnosticLevel::Error && it.hint.is_some())
    );
    problems.iter().map(|it| it.line.unwrap()).collect()
}

fn directory(names: &[&str]) -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    for name in names {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    (directory, root)
}

const MEMORY: usize = 5;
const ARCHIVE: usize = 2;
const BASELINES: usize = 3;

#[test]
fn overlapping_directories_are_errors_of_the_config() {
    for made in [false, true] {
        for (archive, baselines, memory, expected) in [
            // The archive is the agent's own directory, or above it.
            (
                "agents/scout",
                "baselines",
                "agents/scout/M.md",
                &[MEMORY][..],
            ),
            ("agents", "baselines", "agents/scout/M.md", &[MEMORY]),
            ("agents", "baselines", "agents/scout/deep/M.md", &[MEMORY]),
            ("agents", "baselines", "agents/.shepherd/M.md", &[MEMORY]),
            // It is inside the agent's.
            (
                "agents/scout/a/b",
                "baselines",
                "agents/scout/M.md",
                &[ARCHIVE],
            ),
            ("archives", "baselines", "M.md", &[ARCHIVE, BASELINES]),
            // So are the baselines.
            (
                "archives",
                "agents/scout",
                "agents/scout/M.md",
                &[BASELINES],
            ),
            (
                "archives",
                "agents/scout/b",
                "agents/scout/M.md",
                &[BASELINES],
            ),
            // Files are deleted where the baselines are.
            (
                "archives",
                "archives/scout",
                "agents/scout/M.md",
                &[BASELINES],
            ),
            (
                "archives",
                "archives/.shepherd/b",
                "agents/scout/M.md",
                &[BASELINES],
            ),
            // Another way to spell it.
            (
                "agents/scout/../../agents",
                "baselines",
                "agents/scout/M.md",
                &[MEMORY],
            ),
        ] {
            let (_directory, root) = directory(&["agents/scout"]);
            if made {
                fs::create_dir_all(root.join(archive)).unwrap();
                fs::create_dir_all(root.join(baselines)).unwrap();
                fs::create_dir_all(root.join(memory).parent().unwrap()).unwrap();
            }
            let found = lines(load(&root, archive, baselines, memory));
            assert_eq!(found, expected, "{archive} {baselines} {memory} {made}");
        }
    }
}

#[test]
fn directories_beside_each_other_are_no_error() {
    for (archive, baselines, memory) in [
        ("archives", "baselines", "agents/scout/M.md"),
        // As the original had it, or nearly.
        ("archives", ".", "agents/scout/M.md"),
        (".", "baselines", "../elsewhere/M.md"),
        ("b/archives", "b", "agents/scout/M.md"),
        ("archives", "archives/baselines", "agents/scout/M.md"),
        ("archives", "archives", "agents/scout/M.md"),
        ("agents/scout-archive", "baselines", "agents/scout/M.md"),
    ] {
        let (_directory, root) = directory(&["x/agents/scout", "elsewhere"]);
        let loaded = load(&root.join("x"), archive, baselines, memory);
        assert!(
            loaded.is_ok(),
            "{archive} {baselines}: {}",
            loaded.unwrap_err()
        );
    }
}

#[test]
fn links_hide_no_overlap() {
    let (_directory, root) = directory(&["agents/scout/deep", "archives", "baselines"]);
    symlink(root.join("agents/scout/deep"), root.join("to-deep")).unwrap();
    symlink("archives", root.join("to-archives")).unwrap();
    let lines = |archive, baselines, memory| lines(load(&root, archive, baselines, memory));
    let memory = "agents/scout/M.md";
    assert_eq!(lines("to-deep", "baselines", memory), [ARCHIVE]);
    assert_eq!(lines("to-deep/a", "baselines", memory), [ARCHIVE]);
    assert_eq!(lines("archives", "to-deep", memory), [BASELINES]);
    assert_eq!(
        lines("archives", "baselines", "to-archives/scout/M.md"),
        [MEMORY]
    );
}

/// One agent must not keep all others from being reset.
#[test]
fn link_that_an_agent_planted_is_no_error_of_the_config() {
    let (_directory, root) = directory(&["agents", "archives", "baselines"]);
    let link = root.join("agents/scout");
    symlink("../archives", &link).unwrap();
    let load = || load(&root, "archives", "baselines", "agents/scout/M.md");
    assert_eq!(lines(load()), [MEMORY], "the operator's own");
    if lchown(&link, Some(4_000_000), None).is_err() {
        return println!("skipped: only root can give links away");
    }
    assert!(load().is_ok());
}

#[test]
fn baseline_inside_an_agents_directory_is_an_error() {
    let (_directory, root) = directory(&["b/scout"]);
    assert!(load(&root, "archives", "b", "agents/M.md").is_ok());
    let text = "[general]\nbaseline_dir = b\n[scout]\nmemory_file = b/scout/M.md\n\
                baseline = scout/scout.md\n";
    let path = root.join("memory-shepherd.conf");
    fs::write(&path, text).unwrap();
    let env = ConfigEnvironment {
        cwd: root.clone(),
        home: None,
        xdg_config_home: None,
        xdg_state_home: None,
        config_path_variable: None,
        uid: 0,
    };
    assert_eq!(lines(config::load(&path, &env)), [5]);
}
