//! The config parser.

use std::collections::HashMap;
use std::path::{Component, Path};

use memory_shepherd::archive;
use memory_shepherd::config::{Agent, Config, ConfigErrors, DiagnosticLevel, GeneralSettings};

use super::{CONFIG, parse_config};

/// Fuzzes the config parser: it accepts all of the bytes, or gives every mistake a
/// position; an accepted config obeys its rules, and its printed form parses to the
/// same config.
pub fn config(bytes: &[u8]) {
    let lines = bytes.split(|byte| *byte == b'\n').count();
    let diagnostics = match parse_config(bytes) {
        Ok(config) => {
            for agent in &config.agents {
                assert_valid_agent(agent);
            }
            let names = config.agents.iter().map(|agent| (&agent.name, agent));
            let names: HashMap<_, _> = names.collect();
            assert_eq!(
                names.len(),
                config.agents.len(),
                "two agents with the same name"
            );
            let general = &config.general;
            assert!(general.baseline_dir.is_absolute() && general.archive_dir.is_absolute());
            assert_eq!(general.archive_mode & !0o177, 0o600, "archive_mode");
            assert!(general.archive_retention_days > 0);
            let warnings = config.warnings.iter();
            assert!(
                warnings
                    .clone()
                    .all(|it| it.level == DiagnosticLevel::Warning)
            );
            let shown = shown_config(&config);
            let again = parse_config(shown.as_bytes()).unwrap_or_else(|problems| {
                panic!("printed config was refused:\n{shown}\n{problems}")
            });
            assert_eq!(without_lines(&again), without_lines(&config), "{shown}");
            config.warnings
        }
        Err(ConfigErrors(list)) => {
            assert!(list.iter().any(|it| it.level == DiagnosticLevel::Error));
            list
        }
    };
    // The last diagnostic only counts the remaining ones.
    let placed = diagnostics.iter().filter(|it| it.line.is_some());
    assert!(placed.is_sorted_by_key(|it| it.line));
    for it in &diagnostics {
        assert!(
            it.line.is_none_or(|line| (1..=lines).contains(&line)),
            "{it}"
        );
        assert_eq!(it.file, Path::new(CONFIG));
        assert!(it.text.chars().count() <= 201, "{it}");
    }
    serde_json::to_string(&diagnostics).unwrap();
}

fn assert_valid_agent(agent: &Agent) {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    assert!(agent.name.chars().all(allowed) && !agent.name.is_empty());
    assert!(agent.name != "all" && agent.name != "general");
    for inside in agent
        .baseline()
        .into_iter()
        .chain([agent.archive_subdir.as_str()])
    {
        let mut parts = Path::new(inside).components();
        assert!(
            parts.all(|part| matches!(part, Component::Normal(_))),
            "{inside}"
        );
        assert!(!inside.is_empty() && !inside.contains('\0'));
    }
    assert!(
        !agent
            .archive_subdir
            .starts_with(archive::PROGRAM_DIRECTORY_NAME)
    );
    let separator = agent.separator();
    assert!(!separator.is_empty() && !separator.contains(['\n', '\r']));
    assert!(agent.max_memory_size() > 0);
    let memory = agent.observed_path();
    match agent.host() {
        None => assert!(memory.is_absolute()),
        Some(host) => {
            for word in [Some(&host.name), host.user.as_ref()].into_iter().flatten() {
                assert!(!word.is_empty() && !word.starts_with('-'), "{word}");
                assert!(!word.contains(char::is_whitespace), "{word}");
            }
        }
    }
    assert!(memory.file_name().is_some(), "{}", memory.display());
}

/// Parses the output of `config show`.
fn shown_config(config: &Config) -> String {
    let mut text = String::new();
    let mut section = "";
    let values = config.effective_values();
    for entry in &values {
        if entry.section != section {
            section = &entry.section;
            text.push_str(&format!("[{section}]\n"));
        }
        text.push_str(&format!("{}={}\n", entry.key, entry.value));
    }
    text
}

/// A config without line positions.
fn without_lines(config: &Config) -> (GeneralSettings, Vec<Agent>) {
    let mut agents = config.agents.clone();
    for agent in &mut agents {
        agent.section_line = 0;
    }
    (config.general.clone(), agents)
}
