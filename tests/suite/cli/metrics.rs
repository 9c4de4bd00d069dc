//! `--metrics FILE`: a file that Prometheus accepts, with the fleet's states and sizes.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, symlink};

use super::*;

/// A sample: its name, its labels and its value.
#[derive(Debug, PartialEq)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

/// Parses the text format of Prometheus, version 0.0.4, and accepts nothing that the program need not
/// write: each family has HELP, TYPE and then its samples; no sample occurs twice.
fn parse_exposition(text: &str) -> Vec<Sample> {
    assert!(text.ends_with('\n') && !text.contains("\n\n"), "{text}");
    let mut samples: Vec<Sample> = Vec::new();
    let mut families = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let help = line.strip_prefix("# HELP ").unwrap();
        let (family, help) = help.split_once(' ').unwrap();
        assert!(is_name(family, true) && !help.trim().is_empty(), "{line}");
        assert!(!families.contains(&family), "{family} occurs twice");
        families.push(family);
        assert_eq!(
            lines.next(),
            Some(format!("# TYPE {family} gauge").as_str())
        );
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            let sample = parse_sample(line);
            assert_eq!(sample.name, family, "{line}");
            let is_same = |it: &Sample| it.name == sample.name && it.labels == sample.labels;
            assert!(!samples.iter().any(is_same), "{line} occurs twice");
            samples.push(sample);
        }
    }
    samples
}

fn is_name(name: &str, is_metric: bool) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || is_metric && c == ':';
    !name.is_empty()
        && name.chars().all(is_allowed)
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && (is_metric || !name.starts_with("__"))
}

fn parse_sample(line: &str) -> Sample {
    let (name, rest) = line.split_once('{').unwrap();
    assert!(is_name(name, true), "{line}");
    let mut labels = BTreeMap::new();
    let mut rest = rest;
    loop {
        let (label, quoted) = rest.split_once("=\"").unwrap();
        assert!(is_name(label, false), "{line}");
        let mut value = String::new();
        let mut chars = quoted.char_indices();
        let end = loop {
            match chars.next().unwrap() {
                (end, '"') => break end,
                (_, '\\') => value.push(match chars.next().unwrap().1 {
                    'n' => '\n',
                    c @ ('\\' | '"') => c,
                    c => panic!("escape {c} in {line}"),
                }),
                (_, c) => value.push(c),
            }
        };
        assert_eq!(labels.insert(label.to_string(), value), None, "{line}");
        rest = &quoted[end + 1..];
        match rest.strip_prefix(',') {
            Some(next) => rest = next,
            None => break,
        }
    }
    let value = rest.strip_prefix("} ").unwrap();
    let value: f64 = value.parse().unwrap();
    assert!(value.is_finite(), "{line}");
    Sample {
        name: name.to_string(),
        labels,
        value,
    }
}

/// Returns the value of a sample of an agent.
fn value_of(samples: &[Sample], name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let name = format!("memory_shepherd_{name}");
    let has = |it: &Sample, (label, value): &(&str, &str)| {
        it.labels.get(*label).map(String::as_str) == Some(*value)
    };
    let mut found = samples
        .iter()
        .filter(|it| it.name == name && labels.iter().all(|label| has(it, label)));
    let value = found.next()?.value;
    assert_eq!(found.next(), None, "{name} {labels:?}");
    Some(value)
}

#[test]
fn status_writes_metrics_of_every_agent() {
    let site = site_with_notes_and_drift();
    let config = site.read("memory-shepherd.conf");
    let named = config.replacen(
        "[general]",
        "[general]\nfleet_name = night \"shift\" \\n",
        1,
    );
    site.write("memory-shepherd.conf", named);
    site.write(
        "fleet.prom",
        "# HELP memory_shepherd_info An earlier page.\n",
    );
    let arguments = ["status", "--exit-code", "--metrics", "fleet.prom"];
    let _ = site.run(arguments).assert_code(1);
    let samples = parse_exposition(&site.read("fleet.prom"));
    let mode = fs::metadata(site.path("fleet.prom")).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o644);
    let fleet = samples[0].labels["fleet"].clone();
    assert_eq!(fleet, "night \"shift\" \\n");
    let value = |name: &str, agent: &str| value_of(&samples, name, &[("agent", agent)]);
    for (agent, state) in [("code-reviewer", "SCRATCH"), ("monitor-bot", "DRIFTED")] {
        let states = samples
            .iter()
            .filter(|it| it.name == "memory_shepherd_agent_state" && it.labels["agent"] == agent);
        let set: Vec<&str> = states
            .filter(|it| it.value == 1.0)
            .map(|it| it.labels["state"].as_str())
            .collect();
        assert_eq!(set, [state]);
        assert_eq!(value("agent_read", agent), Some(1.0));
        assert_eq!(value("agent_memory_limit_bytes", agent), Some(16384.0));
    }
    let size = fs::metadata(site.path(REVIEWER_MEMORY)).unwrap().len();
    assert_eq!(
        value("agent_memory_bytes", "code-reviewer"),
        Some(size as f64)
    );
    assert!(value("agent_scratch_lines", "code-reviewer") > Some(3.0));
    assert_eq!(
        value("agent_last_reset_timestamp_seconds", "code-reviewer"),
        None
    );
    let exit = value_of(&samples, "command_exit_code", &[("command", "status")]);
    assert_eq!(exit, Some(1.0));
    assert!(value_of(&samples, "archive_free_bytes", &[]) > Some(0.0));
}

#[test]
fn reset_writes_metrics_of_what_it_did() {
    let site = site_with_notes_and_drift();
    let _ = site
        .run(["reset", "--all", "--metrics", "fleet.prom"])
        .assert_code(0);
    let samples = parse_exposition(&site.read("fleet.prom"));
    let value = |name: &str, agent: &str| value_of(&samples, name, &[("agent", agent)]);
    let state = [("agent", "monitor-bot"), ("state", "CLEAN")];
    assert_eq!(value_of(&samples, "agent_state", &state), Some(1.0));
    assert_eq!(value("agent_archive_entries", "monitor-bot"), Some(1.0));
    assert!(value("agent_archive_bytes", "monitor-bot") > Some(100.0));
    assert_eq!(value("agent_last_run_failed", "monitor-bot"), Some(0.0));
    let reset = value("agent_last_reset_timestamp_seconds", "monitor-bot");
    let run = value("agent_last_run_timestamp_seconds", "monitor-bot");
    assert!(reset > Some(1.6e9) && reset == run, "{reset:?} {run:?}");
    let runs = |result| value_of(&samples, "runs", &[("result", result)]);
    assert_eq!((runs("ok"), runs("failed")), (Some(1.0), Some(0.0)));
    // A failed reset is counted.
    fs::remove_file(site.path("baselines/monitor-bot-MEMORY.md")).unwrap();
    let ran = site.run(["reset", "--all", "--metrics", "fleet.prom"]);
    let samples = parse_exposition(&site.read("fleet.prom"));
    let failed = value_of(&samples, "runs", &[("result", "failed")]);
    assert_eq!(failed, Some(1.0));
    let exit = value_of(&samples, "command_exit_code", &[("command", "reset")]);
    assert_eq!(exit, Some(f64::from(ran.exit_code)));
}

#[test]
fn unwritable_metrics_fail_status_and_no_reset() {
    let site = site_with_notes_and_drift();
    let ran = site.run(["status", "--metrics", "nowhere/fleet.prom"]);
    let _ = ran
        .assert_code(3)
        .assert_stderr_has("nowhere")
        .assert_stderr_has("hint: --metrics needs a directory");
    let ran = site.run(["reset", "--all", "--metrics", "nowhere/fleet.prom"]);
    let _ = ran.assert_code(0).assert_stderr_has("nowhere");
}

#[test]
fn metrics_replace_no_other_file() {
    let site = site_with_notes_and_drift();
    let metrics = |path: &str| site.run(["status", "--quiet", "--metrics", path]);
    symlink("/dev/null", site.path("link.prom")).unwrap();
    let files = || [REVIEWER_MEMORY, "memory-shepherd.conf"].map(|it| site.read(it));
    let before = files();
    for path in [
        REVIEWER_MEMORY,
        "memory-shepherd.conf",
        "agents",
        "link.prom",
    ] {
        let _ = metrics(path).assert_code(2);
    }
    assert_eq!(files(), before);
    assert!(site.path("link.prom").is_symlink());
    site.write("fleet.prom", "");
    for _ in ["an empty file", "an earlier one"] {
        let _ = metrics("fleet.prom").assert_code(0);
    }
    assert!(!parse_exposition(&site.read("fleet.prom")).is_empty());
}

#[test]
fn metrics_directory_may_be_behind_a_symlink() {
    let site = Site::new();
    fs::create_dir(site.path("real")).unwrap();
    symlink("real", site.path("link")).unwrap();
    let _ = site
        .run(["status", "--metrics", "link/fleet.prom"])
        .assert_code(0);
    assert!(site.path("real/fleet.prom").is_file());
    let names: Vec<_> = fs::read_dir(site.path("real")).unwrap().collect();
    assert_eq!(names.len(), 1);
}

/// The page names every metric, and no other.
#[test]
fn metrics_page_lists_every_metric() {
    let site = site_with_notes_and_drift();
    fs::create_dir(site.path("entries")).unwrap();
    let section = "\n[scout]\nlayout=drover\nmemory_dir=./entries\n";
    site.append("memory-shepherd.conf", section);
    let _ = site.run(["reset", "--all"]).assert_code(0);
    let _ = site
        .run(["status", "--metrics", "fleet.prom"])
        .assert_code(0);
    let written: std::collections::BTreeSet<String> = parse_exposition(&site.read("fleet.prom"))
        .into_iter()
        .map(|sample| sample.name)
        .collect();
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/alerts.md");
    let page = fs::read_to_string(page).unwrap();
    let listed: std::collections::BTreeSet<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `memory_shepherd_"))
        .filter_map(|rest| rest.split('`').next())
        .map(|name| format!("memory_shepherd_{name}"))
        .collect();
    assert_eq!(listed, written);
}
