//! The fleet that several benchmarks reset, and the arithmetic of their figures.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// A fleet of agents with baselines of 12 KB. Their files are on this disk.
pub struct Fleet {
    pub root: PathBuf,
    pub agents: Vec<String>,
    pub baseline: String,
}

impl Fleet {
    /// Creates these agents; `lines` returns the lines that locate an agent's memory in the config.
    pub fn create(
        root: PathBuf,
        general: &str,
        agents: Vec<String>,
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
        };
        let mut config = format!("[general]\n{general}");
        for agent in &fleet.agents {
            fs::create_dir_all(fleet.memory(agent).parent().unwrap()).unwrap();
            fs::write(fleet.baseline(agent), &fleet.baseline).unwrap();
            let lines = lines(&fleet, agent);
            config.push_str(&format!("[{agent}]\n{lines}baseline = {agent}.md\n"));
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
        self.root.join("baselines").join(format!("{agent}.md"))
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
