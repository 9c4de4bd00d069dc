//! Overlapping directories: refused as errors of the config, and harmless where the
//! check cannot see the overlap.

use std::fs::{self, File, FileTimes};
use std::io::Write;
use std::os::unix::fs::{lchown, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use memory_shepherd::config::{
    self, Config, ConfigEnvironment, ConfigErrors, DiagnosticLevel, LayoutKeys,
};

use super::world::{World, apply_plan, bare_environment};
use crate::skip::skip_unsupported;

/// The age at which a sweep takes a nameless file for the leftover of a killed run.
const STALE_AGE: Duration = Duration::from_secs(25 * 60 * 60);

fn append(file: &mut File, text: &str) {
    file.write_all(text.as_bytes()).unwrap();
}

/// Makes the agent's archive directory the one that holds its memory.
#[test]
fn sweep_keeps_recorded_files() {
    let world = World::new(&["scout"]).with_general("archive_dir = agents");
    let engine = world.engine_with_config(world.unchecked_config());
    let reset = |note: &str| {
        world.write_scratch("scout", note);
        let plan = engine
            .planner()
            .plan_reset(&["scout".to_string()], false)
            .unwrap();
        apply_plan(&engine, &plan)
    };
    world.write_scratch("scout", "");
    let memory = world.memory_path("scout");
    let mut writer = File::options().append(true).open(&memory).unwrap();
    reset("- early\n").assert_ok();
    let names = |world: &World| {
        let mut names = world.leftovers("scout");
        names.retain(|name| name.starts_with(".shepherd-"));
        names
    };
    let displaced = names(&world);
    assert_eq!(displaced.len(), 1, "a writer has it open");
    append(&mut writer, "- late\n");
    let long_ago = FileTimes::new().set_modified(SystemTime::UNIX_EPOCH);
    writer.set_times(long_ago).unwrap();
    world.clock.advance(STALE_AGE);
    reset("- second\n");
    assert_eq!(names(&world), displaced, "a writer has it open still");
    drop(writer);
    reset("- third\n");
    assert_eq!(names(&world), [""; 0]);
    let entries = fs::read_dir(world.agent_directory("scout")).unwrap();
    let late = entries.filter(|entry| {
        let path = entry.as_ref().unwrap().path();
        fs::read_to_string(path).is_ok_and(|text| text.ends_with("- late\n"))
    });
    assert_eq!(late.count(), 1);
}

/// Reads a config in `root` with these directories and one agent.
fn load_config(
    root: &Path,
    archive: &str,
    baselines: &str,
    memory: &str,
) -> Result<Config, ConfigErrors> {
    let agent = format!("memory_file = {memory}\nbaseline = scout.md\n");
    load_agent(root, archive, baselines, &agent)
}

/// Reads a config in `root` with these directories and the lines of one agent.
fn load_agent(
    root: &Path,
    archive: &str,
    baselines: &str,
    agent: &str,
) -> Result<Config, ConfigErrors> {
    let text =
        format!("[general]\narchive_dir = {archive}\nbaseline_dir = {baselines}\n[scout]\n{agent}");
    let path = root.join("memory-shepherd.conf");
    fs::write(&path, text).unwrap();
    let env = ConfigEnvironment {
        layouts: vec![LayoutKeys {
            name: "notes",
            keys: &[],
        }],
        ..bare_environment(root)
    };
    let loaded = config::load(&path, &env);
    // A running console reads the config in another way.
    let again = config::reload(&path, &env);
    assert_eq!(loaded.is_ok(), again.is_ok());
    loaded
}

/// Returns the lines of the errors.
fn error_lines(loaded: Result<Config, ConfigErrors>) -> Vec<usize> {
    let problems = loaded.unwrap_err().0;
    assert!(
        problems
            .iter()
            .all(|it| it.level == DiagnosticLevel::Error && !it.hints.is_empty())
    );
    problems.iter().map(|it| it.line.unwrap()).collect()
}

fn directory_with(names: &[&str]) -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    for name in names {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    (directory, root)
}

const MEMORY_LINE: usize = 5;
const LAYOUT_DIRECTORY_LINE: usize = 5;
const ARCHIVE_LINE: usize = 2;
const BASELINES_LINE: usize = 3;

/// Overlaps: the archive, the baselines, the memory, and the lines of the errors.
const OVERLAPS: &[(&str, &str, &str, &[usize])] = &[
    // The archive is the agent's own directory, or above it.
    (
        "agents/scout",
        "baselines",
        "agents/scout/M.md",
        &[MEMORY_LINE],
    ),
    ("agents", "baselines", "agents/scout/M.md", &[MEMORY_LINE]),
    (
        "agents",
        "baselines",
        "agents/scout/deep/M.md",
        &[MEMORY_LINE],
    ),
    (
        "agents",
        "baselines",
        "agents/.shepherd/M.md",
        &[MEMORY_LINE],
    ),
    // The archive is inside the agent's directory.
    (
        "agents/scout/a/b",
        "baselines",
        "agents/scout/M.md",
        &[ARCHIVE_LINE],
    ),
    (
        "archives",
        "baselines",
        "M.md",
        &[ARCHIVE_LINE, BASELINES_LINE],
    ),
    // So are the baselines.
    (
        "archives",
        "agents/scout",
        "agents/scout/M.md",
        &[BASELINES_LINE],
    ),
    (
        "archives",
        "agents/scout/b",
        "agents/scout/M.md",
        &[BASELINES_LINE],
    ),
    // The program deletes files in the baselines' directory.
    (
        "archives",
        "archives/scout",
        "agents/scout/M.md",
        &[BASELINES_LINE],
    ),
    (
        "archives",
        "archives/.shepherd/b",
        "agents/scout/M.md",
        &[BASELINES_LINE],
    ),
    // Another spelling of the same path.
    (
        "agents/scout/../../agents",
        "baselines",
        "agents/scout/M.md",
        &[MEMORY_LINE],
    ),
];

#[test]
fn overlapping_directories_are_config_errors() {
    for made in [false, true] {
        for (archive, baselines, memory, expected) in OVERLAPS {
            let (_directory, root) = directory_with(&["agents/scout"]);
            if made {
                fs::create_dir_all(root.join(archive)).unwrap();
                fs::create_dir_all(root.join(baselines)).unwrap();
                fs::create_dir_all(root.join(memory).parent().unwrap()).unwrap();
            }
            let found = error_lines(load_config(&root, archive, baselines, memory));
            assert_eq!(found, *expected, "{archive} {baselines} {memory} {made}");
        }
    }
}

#[test]
fn layout_directory_overlap_is_a_config_error() {
    let reset = "memory_file = agents/scout/M.md\nbaseline = scout.md\n";
    // The archive, the baselines, the keys of the agent's reset, and the lines of the errors.
    let cases: [(&str, &str, &str, &[usize]); 6] = [
        ("archives", "baselines", "", &[]),
        ("archives", "baselines", reset, &[]),
        // The directory above it is not the agent's.
        ("agents/archives", "agents/baselines", "", &[]),
        ("agents/notes/archives", "baselines", "", &[ARCHIVE_LINE]),
        (
            "agents/notes/archives",
            "agents/notes",
            reset,
            &[ARCHIVE_LINE, BASELINES_LINE],
        ),
        ("agents/notes", "baselines", reset, &[LAYOUT_DIRECTORY_LINE]),
    ];
    for (archive, baselines, reset, expected) in cases {
        let (_directory, root) = directory_with(&["agents/scout", "agents/notes"]);
        let agent = format!("memory_dir = agents/notes\nlayout = notes\n{reset}");
        let found = match load_agent(&root, archive, baselines, &agent) {
            Ok(_) => Vec::new(),
            errors => error_lines(errors),
        };
        assert_eq!(found, expected, "{archive} {baselines} {reset}");
    }
}

#[test]
fn adjacent_directories_are_accepted() {
    for (archive, baselines, memory) in [
        ("archives", "baselines", "agents/scout/M.md"),
        // The original's layout, or nearly.
        ("archives", ".", "agents/scout/M.md"),
        (".", "baselines", "../elsewhere/M.md"),
        ("b/archives", "b", "agents/scout/M.md"),
        ("archives", "archives/baselines", "agents/scout/M.md"),
        ("archives", "archives", "agents/scout/M.md"),
        ("agents/scout-archive", "baselines", "agents/scout/M.md"),
    ] {
        let (_directory, root) = directory_with(&["x/agents/scout", "elsewhere"]);
        let loaded = load_config(&root.join("x"), archive, baselines, memory);
        assert!(
            loaded.is_ok(),
            "{archive} {baselines}: {}",
            loaded.unwrap_err()
        );
    }
}

#[test]
fn symlinks_do_not_hide_overlap() {
    let (_directory, root) = directory_with(&["agents/scout/deep", "archives", "baselines"]);
    symlink(root.join("agents/scout/deep"), root.join("to-deep")).unwrap();
    symlink("archives", root.join("to-archives")).unwrap();
    let lines =
        |archive, baselines, memory| error_lines(load_config(&root, archive, baselines, memory));
    let memory = "agents/scout/M.md";
    assert_eq!(lines("to-deep", "baselines", memory), [ARCHIVE_LINE]);
    assert_eq!(lines("to-deep/a", "baselines", memory), [ARCHIVE_LINE]);
    assert_eq!(lines("archives", "to-deep", memory), [BASELINES_LINE]);
    assert_eq!(
        lines("archives", "baselines", "to-archives/scout/M.md"),
        [MEMORY_LINE]
    );
}

/// One agent must not block the reset of all others.
#[test]
fn symlink_planted_by_agent_is_not_a_config_error() {
    let (_directory, root) = directory_with(&["agents", "archives", "baselines"]);
    let link = root.join("agents/scout");
    symlink("../archives", &link).unwrap();
    let load = || load_config(&root, "archives", "baselines", "agents/scout/M.md");
    assert_eq!(error_lines(load()), [MEMORY_LINE], "the operator's own");
    if lchown(&link, Some(4_000_000), None).is_err() {
        return skip_unsupported("only root can give links away");
    }
    assert!(load().is_ok());
}

#[test]
fn baseline_inside_agent_directory_is_an_error() {
    let (_directory, root) = directory_with(&["b/scout"]);
    assert!(load_config(&root, "archives", "b", "agents/M.md").is_ok());
    let text = "[general]\nbaseline_dir = b\n[scout]\nmemory_file = b/scout/M.md\n\
                baseline = scout/scout.md\n";
    let path = root.join("memory-shepherd.conf");
    fs::write(&path, text).unwrap();
    let env = bare_environment(&root);
    assert_eq!(error_lines(config::load(&path, &env)), [5]);
}
