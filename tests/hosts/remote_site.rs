//! The real binary on agents of a host; a script takes the place of ssh.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::terminal::{self, Terminal};
use super::world::{BASELINE, World};

const PROGRAM_PATH: &str = env!("CARGO_BIN_EXE_memory-shepherd");

/// A fleet with agents on a host, and a directory with an ssh script.
pub struct RemoteSite {
    pub world: World,
    config: PathBuf,
    pub bin: PathBuf,
}

impl RemoteSite {
    /// Adds these agents to a world, each with the config lines `lines`; `ssh` is the script.
    pub fn new(mut world: World, agents: &[&str], lines: &str, ssh: &str) -> RemoteSite {
        for agent in agents {
            let memory = world.memory_path(agent);
            let lines = format!(
                "remote_host = box\nremote_timeout = 3600\nremote_memory = {}\n{lines}",
                memory.display()
            );
            world.add_agent(agent, &lines);
            world.set_baseline(agent, BASELINE);
            world.write_scratch(agent, "a note\n");
        }
        let config = world.config().path;
        let bin = world.root.join("bin");
        fs::create_dir(&bin).unwrap();
        fs::write(bin.join("ssh"), ssh).unwrap();
        fs::set_permissions(bin.join("ssh"), PermissionsExt::from_mode(0o755)).unwrap();
        RemoteSite { world, config, bin }
    }

    fn search_path(&self) -> String {
        format!("{}:/usr/bin:/bin", self.bin.display())
    }

    pub fn run_program(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(PROGRAM_PATH);
        command.env_clear().env("PATH", self.search_path());
        command.env("HOME", self.world.root.join("home"));
        command.arg("--config").arg(&self.config).args(arguments);
        command.output().unwrap()
    }

    pub fn start_console(&self) -> Terminal {
        let mut command =
            terminal::isolated_command(Path::new(PROGRAM_PATH), &self.world.root.join("home"));
        command.env("PATH", self.search_path());
        command.args(["--config", self.config.to_str().unwrap()]);
        Terminal::start(command, (120, 36))
    }
}
