//! Every config of `tests/configs`: the valid ones load, and the invalid ones
//! say everything that is wrong with them and nothing else.
//!
//! A valid file lists its warnings as `# warn: SUBSTRING`; an invalid one what
//! must be read in its diagnostics as `# expect: SUBSTRING`.

use std::fs;
use std::path::{Path, PathBuf};

use memory_shepherd::config::{self, Diagnostic, Env, Level};

fn env() -> Env {
    Env {
        cwd: PathBuf::from("/nowhere"),
        home: Some(PathBuf::from("/home/operator")),
        xdg_config_home: None,
        config_variable: None,
        uid: 1000,
    }
}

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/configs")
        .join(folder);
    let entries = fs::read_dir(&folder).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|ext| ext == "conf"));
    files.sort();
    assert!(!files.is_empty(), "no configs in {}", folder.display());
    files
}

fn marks(file: &Path, mark: &str) -> Vec<String> {
    let bytes = fs::read(file).unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let lines = text.lines().filter_map(|line| line.strip_prefix(mark));
    lines.map(|line| line.trim().to_string()).collect()
}

/// Every mark is found, and every diagnostic of that level has a mark.
fn match_up(file: &Path, list: &[Diagnostic], marks: &[String], level: Level) -> Vec<String> {
    let mut wrong = Vec::new();
    let name = file.file_name().unwrap().display();
    for mark in marks {
        if !list.iter().any(|it| it.to_string().contains(mark)) {
            wrong.push(format!("{name}: nothing says: {mark}"));
        }
    }
    for it in list.iter().filter(|it| it.level == level) {
        if !marks.iter().any(|mark| it.to_string().contains(mark)) {
            wrong.push(format!("{name}: not expected: {it}"));
        }
    }
    wrong
}

#[test]
fn valid_configs_load_with_exactly_their_warnings() {
    let mut wrong = Vec::new();
    for file in files("valid") {
        match config::load(&file, &env()) {
            Ok(config) => {
                let marks = marks(&file, "# warn:");
                wrong.extend(match_up(&file, &config.warnings, &marks, Level::Warning));
            }
            Err(problems) => wrong.push(problems.to_string()),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn invalid_configs_say_everything_that_is_wrong_and_nothing_else() {
    let mut wrong = Vec::new();
    for file in files("invalid") {
        let marks = marks(&file, "# expect:");
        if marks.is_empty() {
            wrong.push(format!("{}: expects nothing", file.display()));
        }
        match config::load(&file, &env()) {
            Ok(_) => wrong.push(format!("{}: loads", file.display())),
            Err(problems) => wrong.extend(match_up(&file, &problems.0, &marks, Level::Error)),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
