//! `docs/migration.md`: its commands, run on a deployment of the original script, there and back.

use std::collections::BTreeMap;
use std::fs::{self, FileTimes};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use crate::documents::{code_blocks, marked_section, read_page};
use crate::fixture::PROGRAM_PATH;

const SCRIPT: &str = include_str!("migration/original.sh");

/// Files of a workspace, and one with a separator.
const AGENTS: [(&str, &str); 4] = [
    ("scout-memory", "MEMORY.md"),
    ("scout-agents", "AGENTS.md"),
    ("scout-tools", "TOOLS.md"),
    ("ranger", "RANGER.md"),
];

const UNITS: [(&str, &str); 4] = [
    (
        "memory-shepherd-memory.service",
        "[Service]\nType=oneshot\nExecStart=%h/memory-shepherd/memory-shepherd.sh scout-memory\n",
    ),
    (
        "memory-shepherd-memory.timer",
        "[Timer]\nOnUnitActiveSec=3h\n\n[Install]\nWantedBy=timers.target\n",
    ),
    (
        "memory-shepherd-workspace.service",
        "[Service]\nType=oneshot\nExecStart=%h/memory-shepherd/memory-shepherd.sh scout-agents\n\
         ExecStart=%h/memory-shepherd/memory-shepherd.sh scout-tools\n",
    ),
    (
        "memory-shepherd-workspace.timer",
        "[Timer]\nOnUnitActiveSec=60\n\n[Install]\nWantedBy=timers.target\n",
    ),
];

/// A home with a deployment of the original script.
struct Deployment {
    home: tempfile::TempDir,
}

impl Deployment {
    fn new() -> Deployment {
        let deployment = Deployment {
            home: tempfile::tempdir().unwrap(),
        };
        let home = deployment.home.path().display();
        let mut config = String::from(
            "[general]\nbaseline_dir=./baselines\narchive_dir=./archives\nmax_memory_size=16384\n\
             min_baseline_size=500\narchive_retention_days=30\nseparator=---\n",
        );
        for (agent, file) in AGENTS {
            let subdir = agent.replace('-', "/");
            config.push_str(&format!(
                "\n[{agent}]\nmemory_file={home}/workspace/{file}\nbaseline={agent}.md\n\
                 archive_subdir={subdir}\n"
            ));
            let baseline = Self::baseline(agent);
            deployment.write(&format!("memory-shepherd/baselines/{agent}.md"), &baseline);
            deployment.write(&format!("workspace/{file}"), &baseline);
        }
        deployment.write("memory-shepherd/memory-shepherd.conf", &config);
        deployment.write_program("memory-shepherd/memory-shepherd.sh", SCRIPT);
        deployment.write_program(
            "bin/systemctl",
            "#!/bin/sh\necho \"$@\" >>\"$HOME/systemctl\"\n",
        );
        for (name, text) in UNITS {
            deployment.write(&format!(".config/systemd/user/{name}"), text);
        }
        deployment
    }

    /// Returns a baseline of 500 to 1000 bytes; only that of the ranger has a separator.
    fn baseline(agent: &str) -> String {
        let rules = format!(
            "# Rules of {agent}\n\n{}",
            "- keep to the task\n".repeat(30)
        );
        match agent {
            "ranger" => rules + "\n---\n",
            _ => rules,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn write_program(&self, name: &str, text: &str) {
        self.write(name, text);
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Every agent writes a note.
    fn write_notes(&self, note: &str) {
        for (agent, file) in AGENTS {
            let text = format!("{}- {note} of {agent}\n", Self::baseline(agent));
            self.write(&format!("workspace/{file}"), &text);
        }
    }

    /// Runs a script, and returns what it printed.
    #[track_caller]
    fn run(&self, script: &str, timezone: &str) -> String {
        let programs = Path::new(PROGRAM_PATH).parent().unwrap().display();
        let path = std::env::var("PATH").unwrap();
        let own = self.path("bin");
        let ran = Command::new("sh")
            .args(["-euc", script])
            .current_dir(self.home.path())
            .env_clear()
            .env("HOME", self.home.path())
            .env("PATH", format!("{}:{programs}:{path}", own.display()))
            .env("TZ", timezone)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let (out, err) = (
            String::from_utf8_lossy(&ran.stdout),
            String::from_utf8_lossy(&ran.stderr),
        );
        assert!(ran.status.success(), "{script}\n{out}{err}");
        out.into_owned()
    }

    /// Returns the texts of the files in a directory, by name.
    fn texts(&self, directory: &str) -> BTreeMap<String, String> {
        let items = fs::read_dir(self.path(directory)).unwrap();
        let files = items
            .map(|item| item.unwrap())
            .filter(|item| item.path().is_file());
        files
            .map(|item| {
                let name = item.file_name().into_string().unwrap();
                (name, fs::read_to_string(item.path()).unwrap())
            })
            .collect()
    }

    /// Returns how many entries of an agent end with its note, and have the form of an entry.
    fn count_entries(&self, archive: &str, agent: &str, note: &str) -> usize {
        let directory = format!("{archive}/{}", agent.replace('-', "/"));
        let end = format!("- {note} of {agent}\n");
        let texts = self.texts(&directory);
        let has_form = |name: &str, text: &str| match agent {
            "ranger" => text.starts_with("# ranger scratch notes — archived "),
            _ => name.contains("-full-backup") && text.starts_with("# Rules of"),
        };
        let entries = texts.iter();
        entries
            .filter(|(name, text)| text.ends_with(&end) && has_form(name, text))
            .count()
    }

    #[track_caller]
    fn assert_clean(&self) {
        for (agent, file) in AGENTS {
            let memory = fs::read_to_string(self.path(&format!("workspace/{file}"))).unwrap();
            assert_eq!(memory, Self::baseline(agent), "{agent}");
        }
    }
}

const ARCHIVE: &str = "memory-shepherd/archives";
const COPY: &str = "archives-of-memory-shepherd";
const UNIT_DIRECTORY: &str = ".config/systemd/user";

#[test]
fn migration_page_works_there_and_back() {
    let page = read_page("docs/migration.md");
    let [there, back] =
        ["there", "back"].map(|name| code_blocks(marked_section(&page, name), "sh").concat());
    let deployment = Deployment::new();
    deployment.write_notes("first");
    // An hour apart: the original overwrites entries of the same minute.
    deployment.run("memory-shepherd/memory-shepherd.sh all", "UTC");
    deployment.write_notes("second");
    deployment.run(&there, "UTC-1");
    deployment.assert_clean();
    for (agent, _) in AGENTS {
        for note in ["first", "second"] {
            assert_eq!(deployment.count_entries(ARCHIVE, agent, note), 1, "{agent}");
        }
    }
    let found = deployment.run(
        "memory-shepherd archive search '\"first of scout-tools\"' \
         --config memory-shepherd/memory-shepherd.conf",
        "UTC-1",
    );
    assert!(found.contains("first of scout-tools"), "{found}");
    let units = deployment.texts(UNIT_DIRECTORY);
    assert!(!units.contains_key("memory-shepherd-workspace.timer"));
    assert!(!units.values().any(|text| text.contains(".sh")));
    let timer = &units["memory-shepherd-scout-agents.timer"];
    assert!(timer.contains("OnCalendar=*-*-* *:01/5:"), "{timer}");
    assert!(timer.contains("Enable=yes"), "{timer}");

    // The retention of the original goes by the age of the file alone.
    let versions = deployment.path(&format!("{ARCHIVE}/.shepherd/baselines"));
    let old = SystemTime::now() - Duration::from_secs(60 * 86_400);
    for version in fs::read_dir(&versions).unwrap() {
        let file = fs::File::open(version.unwrap().path()).unwrap();
        file.set_times(FileTimes::new().set_modified(old)).unwrap();
    }
    deployment.write_notes("third");
    deployment.run(&back, "UTC-2");
    deployment.assert_clean();
    assert_eq!(
        deployment.texts(UNIT_DIRECTORY),
        UNITS
            .map(|(name, text)| (name.to_string(), text.to_string()))
            .into()
    );
    let calls = fs::read_to_string(deployment.path("systemctl")).unwrap();
    assert!(calls.contains("enable --now memory-shepherd-workspace.timer"));
    for (agent, _) in AGENTS {
        for note in ["first", "second", "third"] {
            assert_eq!(deployment.count_entries(ARCHIVE, agent, note), 1, "{agent}");
        }
        assert_eq!(deployment.count_entries(COPY, agent, "second"), 1);
    }
    assert_eq!(fs::read_dir(&versions).unwrap().count(), 0);
    let copied = deployment.path(&format!("{COPY}/.shepherd/baselines"));
    assert_eq!(fs::read_dir(copied).unwrap().count(), AGENTS.len());

    // And there again.
    deployment.write_notes("fourth");
    deployment.run(
        "memory-shepherd reset --all --config memory-shepherd/memory-shepherd.conf",
        "UTC-3",
    );
    deployment.assert_clean();
    let listed = deployment.run(
        "memory-shepherd archive list --config memory-shepherd/memory-shepherd.conf",
        "UTC-3",
    );
    assert!(listed.contains("16 entries"), "{listed}");
}
