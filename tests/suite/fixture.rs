//! A small fleet on the disk, and the program run on it with an isolated environment:
//! no variable, home directory or config of the user who runs the tests.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use tempfile::TempDir;

use super::tree_snapshot::snapshot_tree;

/// The program.
pub const PROGRAM_PATH: &str = env!("CARGO_BIN_EXE_memory-shepherd");

/// A config in the original tool's form, verbatim except for the paths.
const ORIGINAL_CONFIG: &str = "\
[general]
baseline_dir=./baselines
archive_dir=./archives
max_memory_size=16384
archive_retention_days=30

[code-reviewer]
memory_file=DIR/agents/code-reviewer/MEMORY.md
baseline=code-reviewer-MEMORY.md

[monitor-bot]
memory_file=DIR/agents/monitor-bot/MEMORY.md
baseline=monitor-bot-MEMORY.md
archive_subdir=monitor
";

/// A directory with a fleet of two agents, CLEAN at first.
pub struct Site {
    _temporary: TempDir,
    pub dir: PathBuf,
}

/// Exit code and output of the program.
#[must_use]
pub struct CommandOutput {
    pub exit_code: i32,
    pub stdout: String,
    pub stderr: String,
    dir: PathBuf,
}

impl Site {
    pub fn new() -> Site {
        let temporary = tempfile::tempdir().unwrap();
        let dir = temporary.path().canonicalize().unwrap();
        let site = Site {
            _temporary: temporary,
            dir,
        };
        site.write(
            "memory-shepherd.conf",
            ORIGINAL_CONFIG.replace("DIR", site.dir.to_str().unwrap()),
        );
        for agent in ["code-reviewer", "monitor-bot"] {
            let baseline = Self::read_baseline(agent);
            site.write(&format!("baselines/{agent}-MEMORY.md"), &baseline);
            site.write(&format!("agents/{agent}/MEMORY.md"), &baseline);
        }
        site.write("home/.keep", "");
        site
    }

    pub fn read_baseline(agent: &str) -> String {
        let baselines = Path::new(env!("CARGO_MANIFEST_DIR")).join("baselines");
        fs::read_to_string(baselines.join(format!("{agent}-MEMORY.md"))).unwrap()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    pub fn append(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let mut text = fs::read(self.path(name)).unwrap();
        text.extend_from_slice(bytes.as_ref());
        self.write(name, text);
    }

    pub fn read(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.path(name)).unwrap()).into_owned()
    }

    /// The program as a command, with the directory as its working directory.
    pub fn command(&self) -> Command {
        let mut command = Command::new(PROGRAM_PATH);
        command
            .env_clear()
            .env("HOME", self.path("home"))
            .env("TMPDIR", self.path("home"))
            .env("TZ", "UTC")
            .current_dir(&self.dir);
        command
    }

    pub fn run<const N: usize>(&self, arguments: [&str; N]) -> CommandOutput {
        self.run_command(self.command().args(arguments))
    }

    pub fn run_command(&self, command: &mut Command) -> CommandOutput {
        let output = command.output().unwrap();
        CommandOutput {
            exit_code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            dir: self.dir.clone(),
        }
    }

    /// Returns everything in the directory, as [`snapshot_tree`] does.
    pub fn snapshot_files(&self) -> BTreeMap<PathBuf, String> {
        snapshot_tree(&self.dir)
    }

    /// Returns the names of an agent's entries.
    pub fn entry_names(&self, subdir: &str) -> Vec<String> {
        let list = fs::read_dir(self.path("archives").join(subdir)).unwrap();
        let mut names: Vec<String> = list
            .map(|item| item.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

impl CommandOutput {
    /// Asserts the exit code, and prints the whole output on failure.
    #[track_caller]
    pub fn assert_code(self, code: i32) -> CommandOutput {
        assert_eq!(
            self.exit_code, code,
            "stdout:\n{}\nstderr:\n{}",
            self.stdout, self.stderr
        );
        self
    }

    /// Returns the one JSON document, after a check of its schema.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        let value: serde_json::Value = serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}:\n{}\nstderr:\n{}", self.stdout, self.stderr));
        assert_eq!(value["schema"], "memory-shepherd/1");
        value
    }

    #[track_caller]
    pub fn assert_stdout_has(self, text: &str) -> CommandOutput {
        assert!(
            self.stdout.contains(text),
            "{text:?} is not in:\n{}",
            self.stdout
        );
        self
    }

    #[track_caller]
    pub fn assert_stderr_has(self, text: &str) -> CommandOutput {
        assert!(
            self.stderr.contains(text),
            "{text:?} is not in:\n{}",
            self.stderr
        );
        self
    }

    /// Returns both streams, with placeholders for values that differ between runs.
    pub fn normalized_output(&self) -> String {
        let code = self.exit_code;
        let (out, err) = (self.normalize(&self.stdout), self.normalize(&self.stderr));
        format!("exit {code}\n--- stdout\n{out}--- stderr\n{err}")
    }

    fn normalize(&self, text: &str) -> String {
        let text = text.replace(self.dir.to_str().unwrap(), "[DIR]");
        let lines = text
            .lines()
            .map(|line| normalize_json_line(&normalize_words(line)));
        lines
            .map(|line| line.trim_end().to_string() + "\n")
            .collect()
    }
}

/// Patterns of such values: `d` is a digit, `h` a hexadecimal digit, `?` marks the
/// character before it as optional, in any number.
const VOLATILE_SHAPES: &[(&str, &str)] = &[
    ("dddd-dd-ddTdd:dd:dd.d?Z", "[TIME]"),
    ("dddd-dd-ddTdd:dd:ddZ", "[TIME]"),
    ("dddd-dd-dd dd:dd:dd", "[TIME]"),
    // Runs of one minute have numbers.
    ("dddd-dd-dd_dddd-d?", "[STAMP]"),
    ("dddd-dd-dd_dddd", "[STAMP]"),
    ("dddd-dd-dd", "[DATE]"),
    ("dd:dd:dd", "[TIME]"),
    ("dd:dd", "[HH:MM]"),
    (
        "hhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh",
        "[SHA256]",
    ),
    ("column d?", "column [N]"),
    ("hhhhhhhhhhhhhhhh", "[HEX16]"),
    ("hhhhhhhhhhhh", "[PLAN]"),
    ("hhhhhhhh", "[HEX8]"),
];

fn normalize_words(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    let mut before = ' ';
    while let Some(first) = rest.chars().next() {
        let fits = |(shape, name): &(&str, &'static str)| {
            let length = matched_length(rest, shape)?;
            let ends = !rest[length..].starts_with(|c: char| c.is_ascii_alphanumeric());
            (ends && !before.is_ascii_alphanumeric()).then_some((length, *name))
        };
        let length = match VOLATILE_SHAPES.iter().find_map(fits) {
            Some((length, name)) => {
                out.push_str(name);
                length
            }
            None => {
                out.push(first);
                first.len_utf8()
            }
        };
        before = rest[..length].chars().next_back().unwrap_or(' ');
        rest = &rest[length..];
    }
    out
}

/// Returns the length in bytes of the text's beginning that matches the pattern.
fn matched_length(text: &str, shape: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 0;
    let mut shape = shape.bytes().peekable();
    while let Some(want) = shape.next() {
        let is = |byte: &u8| match want {
            b'd' => byte.is_ascii_digit(),
            b'h' => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
            _ => *byte == want,
        };
        if shape.next_if_eq(&b'?').is_some() {
            while bytes.get(at).is_some_and(is) {
                at += 1;
            }
        } else if bytes.get(at).is_some_and(is) {
            at += 1;
        } else {
            return None;
        }
    }
    Some(at)
}

/// Replaces JSON values that depend on the machine and the time.
fn normalize_json_line(line: &str) -> String {
    let keys = [
        "user",
        "uid",
        "gid",
        "duration_ms",
        "seconds",
        "disk_bytes",
        "expiring_disk_bytes",
        "free_bytes",
        "total_bytes",
    ];
    let Some((key, _)) = line.split_once(": ") else {
        return line.to_string();
    };
    match keys.iter().any(|it| key.trim() == format!("\"{it}\"")) {
        true => format!("{key}: [...]{}", if line.ends_with(',') { "," } else { "" }),
        false => line.to_string(),
    }
}
