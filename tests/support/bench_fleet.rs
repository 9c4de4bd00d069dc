//! The fleet that several benchmarks reset and watch, and the arithmetic of their figures.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// A fleet of agents with baselines of 12 KB. Their files are on this disk.
pub struct Fleet {
    pub root: PathBuf,
    pub agents: Vec<String>,
    pub baseline: String,
    /// How many baselines the agents share; None where each has its own.
    roles: Option<usize>,
}

impl Fleet {
    /// Creates these agents, each with a baseline of its own; `lines` returns the lines that locate
    /// an agent's memory in the config.
    pub fn create(
        root: PathBuf,
        general: &str,
        agents: Vec<String>,
        lines: impl Fn(&Fleet, &str) -> String,
    ) -> Fleet {
        Fleet::create_with_roles(root, general, agents, None, lines)
    }

    /// Creates agents of this machine, each with a baseline of its own.
    pub fn local(root: PathBuf, count: usize) -> Fleet {
        Fleet::create(root, "", local_names(count), local_lines)
    }

    /// Creates agents of this machine that share baselines, as large fleets do: an agent's role is
    /// the remainder of its number.
    pub fn local_with_roles(root: PathBuf, count: usize, roles: usize) -> Fleet {
        Fleet::create_with_roles(root, "", local_names(count), Some(roles), local_lines)
    }

    /// Creates `each` agents on each of these hosts, each with a baseline of its own.
    pub fn on_hosts(root: PathBuf, general: &str, hosts: &[String], each: usize) -> Fleet {
        Fleet::create(root, general, remote_names(hosts, each), remote_lines)
    }

    /// Creates `each` agents on each of these hosts that share baselines.
    pub fn on_hosts_with_roles(
        root: PathBuf,
        general: &str,
        hosts: &[String],
        each: usize,
        roles: usize,
    ) -> Fleet {
        let agents = remote_names(hosts, each);
        Fleet::create_with_roles(root, general, agents, Some(roles), remote_lines)
    }

    fn create_with_roles(
        root: PathBuf,
        general: &str,
        agents: Vec<String>,
        roles: Option<usize>,
        lines: impl Fn(&Fleet, &str) -> String,
    ) -> Fleet {
        let rule = "- keep to the facts, be brief, and ask before you change anything\n";
        let mut baseline = format!("# Rules\n\n{}", rule.repeat(180));
        baseline.truncate(12_000 - 7);
        baseline.push_str("\n\n---\n\n");
        fs::create_dir_all(root.join("baselines")).unwrap();
        let fleet = Fleet {
            root,
            agents,
            baseline,
            roles,
        };
        let mut config = format!("[general]\n{general}");
        for agent in &fleet.agents {
            fs::create_dir_all(fleet.memory(agent).parent().unwrap()).unwrap();
            let path = fleet.baseline(agent);
            if !path.exists() {
                fs::write(&path, &fleet.baseline).unwrap();
            }
            let (lines, name) = (lines(&fleet, agent), fleet.baseline_name(agent));
            config.push_str(&format!("[{agent}]\n{lines}baseline = {name}\n"));
        }
        fs::write(fleet.config_path(), config).unwrap();
        fleet
    }

    pub fn config_path(&self) -> PathBuf {
        self.root.join("memory-shepherd.conf")
    }

    pub fn memory(&self, agent: &str) -> PathBuf {
        self.root.join("agents").join(agent).join("MEMORY.md")
    }

    pub fn baseline(&self, agent: &str) -> PathBuf {
        self.root.join("baselines").join(self.baseline_name(agent))
    }

    fn baseline_name(&self, agent: &str) -> String {
        let place = self.roles.zip(agent.rsplit('-').next());
        let role = place.and_then(|(roles, text)| Some(text.parse::<usize>().ok()? % roles));
        role.map_or(format!("{agent}.md"), |role| format!("role-{role:03}.md"))
    }

    /// Writes each memory: the baseline and forty lines below it, synced.
    pub fn scribble(&self) {
        for agent in &self.agents {
            let notes: String = (0..40)
                .map(|number| format!("- note {number} of {agent}: something happened today\n"))
                .collect();
            fs::write(self.memory(agent), format!("{}{notes}", self.baseline)).unwrap();
        }
        rustix::fs::sync();
    }

    /// Writes each memory as a fleet at work has them: of fifty agents, thirty are as their baseline,
    /// nineteen have from one to nineteen notes, and one has changed a rule.
    pub fn set_working_states(&self) {
        for (number, agent) in self.agents.iter().enumerate() {
            let text = match number % 50 {
                0..30 => self.baseline.clone(),
                30 => self.baseline.replacen("be brief", "be long", 2),
                turn => format!("{}{}", self.baseline, "- a note\n".repeat(turn - 30)),
            };
            fs::write(self.memory(agent), text).unwrap();
        }
    }

    /// Appends a note to a memory.
    pub fn note(&self, agent: &str) {
        let file = File::options().append(true).open(self.memory(agent));
        file.unwrap().write_all(b"- a note\n").unwrap();
    }
}

fn local_names(count: usize) -> Vec<String> {
    (0..count)
        .map(|number| format!("agent-{number:05}"))
        .collect()
}

fn local_lines(_: &Fleet, agent: &str) -> String {
    format!("memory_file = agents/{agent}/MEMORY.md\n")
}

fn remote_names(hosts: &[String], each: usize) -> Vec<String> {
    let of_host = |host: &String| {
        let host = host.clone();
        (0..each).map(move |number| format!("{host}-{number:03}"))
    };
    hosts.iter().flat_map(of_host).collect()
}

fn remote_lines(fleet: &Fleet, agent: &str) -> String {
    let (host, _) = agent.rsplit_once('-').unwrap();
    let memory = fleet.memory(agent);
    format!(
        "remote_host = {host}\nremote_memory = {}\n",
        memory.display()
    )
}

pub fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

pub fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

pub fn ratio(a: Duration, b: Duration) -> f64 {
    a.as_secs_f64() / b.as_secs_f64()
}
