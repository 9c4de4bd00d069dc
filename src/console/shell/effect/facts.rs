//! Facts about an agent for the facts pane: labels, each with a line of text.

use chrono::{DateTime, FixedOffset};

use crate::base::digest::Digest;
use crate::base::moment::Zone;
use crate::base::quantity::format_count;
use crate::boundary::{BoundaryRule, describe_line_ends};
use crate::config::{Agent, ValueOrigin};
use crate::console::agent_row::known_scratch_lines;
use crate::console::text::TextLine;
use crate::console::theme::{Role, role_of_state};
use crate::engine::{
    AgentDetail, BaselineChange, Engine, MemoryContent, Observation, Protection, State,
};

/// Width of the bar that shows how full a memory is, in cells.
const USAGE_BAR_CELLS: u64 = 20;

/// Text of facts that depend on the boundary when it cannot be determined.
const UNKNOWN_WITHOUT_BASELINE: &str = "unknown without the baseline";

/// Label of a fact, and its line.
type Fact = (&'static str, TextLine);

/// Returns the titles of the baseline and the memory, the sides of a diff.
pub(super) fn diff_titles(agent: &Agent, detail: &AgentDetail) -> [String; 2] {
    let memory = agent.observed_path().display();
    let name = agent.baseline().unwrap_or_default();
    if detail.next_operator_part.is_some() {
        return [
            format!("memory {memory} (above {})", agent.separator()),
            format!("baseline {name}"),
        ];
    }
    let baseline = match detail.reference_label() {
        Some(version) => format!("{version} of {name}"),
        None => format!("baseline {name}"),
    };
    [
        format!("{baseline} (above {})", agent.separator()),
        format!("memory {memory}"),
    ]
}

/// Returns the titles of the last known version of a baseline and of its file, the sides of a
/// diff.
pub(super) fn baseline_diff_titles(change: &BaselineChange) -> [String; 2] {
    let known = match &change.reference {
        Some(known) if known.is_sealed => "sealed version",
        Some(_) => "last known version",
        None => "no version is kept",
    };
    [known.to_string(), format!("file {}", change.path.display())]
}

/// Returns all facts of an agent. `observation` is current; `detail` may be a cached copy.
pub(super) fn agent_facts(
    engine: &Engine,
    agent: &Agent,
    observation: &Observation,
    detail: &AgentDetail,
) -> Vec<Fact> {
    // In a fleet of one agent, a plan cannot be of the wrong one.
    let is_sole_agent = engine.config().agents.len() == 1;
    let since = engine
        .observations()
        .state_since(&agent.name, observation.state);
    let mut facts = state_facts(engine, agent, observation, since, is_sole_agent);
    facts.extend(memory_facts(engine, agent, detail));
    facts.extend(baseline_facts(engine, agent, detail));
    // The checks of a layout are on a tab of their own.
    if agent.reset.is_some() {
        facts.extend(finding_facts(detail));
    }
    facts.extend(archive_facts(engine, agent, observation));
    facts.extend(setting_facts(engine, agent));
    facts
}

fn finding_facts(detail: &AgentDetail) -> Vec<Fact> {
    let mut facts = vec![heading_fact("Findings")];
    let found = memory_findings(detail);
    if found.is_empty() {
        facts.push(toned_fact("", "none", Role::Dim));
    }
    let found = found.into_iter();
    facts.extend(found.map(|(text, tone)| toned_fact("", text, tone)));
    facts
}

fn toned_fact(label: &'static str, text: impl Into<String>, tone: Role) -> Fact {
    let raw = text.into().into_bytes();
    let tones = vec![(0..raw.len(), tone)];
    let line = TextLine {
        bytes: raw,
        tones,
        ..TextLine::default()
    };
    (label, line)
}

fn plain_fact(label: &'static str, text: impl Into<String>) -> Fact {
    toned_fact(label, text, Role::Text)
}

/// Returns a heading. Its line is empty, so that it takes no row of its own.
fn heading_fact(label: &'static str) -> Fact {
    (label, TextLine::default())
}

fn state_facts(
    engine: &Engine,
    agent: &Agent,
    observation: &Observation,
    since: Option<DateTime<FixedOffset>>,
    is_sole_agent: bool,
) -> Vec<Fact> {
    let mut facts = vec![heading_fact("Now")];
    facts.push(toned_fact(
        "state",
        observation.state.to_string(),
        role_of_state(observation.state),
    ));
    if let Some(since) = since {
        facts.push(plain_fact("since", format_time(since)));
    }
    if !observation.reason.is_empty() {
        facts.push(plain_fact("why", &observation.reason));
    }
    facts.push(match &observation.blocker {
        Some(block) => toned_fact("reset", format!("BLOCKED: {}", block.reason), Role::Bad),
        None if agent.reset.is_none() => plain_fact("reset", "never: it has no baseline"),
        None if observation.ledger_error.is_some() => {
            toned_fact("reset", "refused: the ledger cannot be read", Role::Bad)
        }
        None => match engine.memory_checks().rights_refusal(agent) {
            Some(refusal) => {
                toned_fact("reset", format!("not by this user: {refusal}"), Role::Warn)
            }
            None => plain_fact("reset", "possible"),
        },
    });
    let protection = observation.protection;
    let effect = match protection {
        Protection::None if observation.blocker.is_some() || agent.reset.is_none() => {
            "none".to_string()
        }
        Protection::None if !is_sole_agent && observation.state == State::Drifted => {
            "none; typed confirmation because the rules were edited".to_string()
        }
        Protection::None if !is_sole_agent && !observation.is_intact() => {
            "none; typed confirmation because the rules are not intact".to_string()
        }
        _ => format!("{}: {}", protection.as_str(), protection.description()),
    };
    facts.push(plain_fact("protection", effect));
    facts
}

fn memory_facts(engine: &Engine, agent: &Agent, detail: &AgentDetail) -> Vec<Fact> {
    let seen = &detail.observation;
    let mut facts = vec![heading_fact("Memory")];
    facts.push(plain_fact(
        "host",
        match agent.host() {
            None => "local: this machine".to_string(),
            Some(host) => {
                let user = host.user.as_ref().map(|user| format!("{user}@"));
                let port = host.port.map(|port| format!(", port {port}"));
                format!(
                    "{}{}{}",
                    user.unwrap_or_default(),
                    host.name,
                    port.unwrap_or_default()
                )
            }
        },
    ));
    facts.push(plain_fact(
        "path",
        agent.observed_path().display().to_string(),
    ));
    if let Some(owner) = engine.context().memory_owner(agent) {
        let text = format!(
            "uid {}, gid {}, mode {:04o}",
            owner.uid, owner.gid, owner.mode
        );
        facts.push(plain_fact("owner", text));
    }
    facts.push(plain_fact("read", format_time(seen.read_at)));
    let Some(content) = &seen.content else {
        // A directory has none.
        if seen.state == State::Layout {
            return facts;
        }
        let text = if seen.is_absent {
            "none: the file does not exist"
        } else {
            "unknown"
        };
        facts.push(toned_fact("content", text, Role::Warn));
        return facts;
    };
    facts.extend(content_facts(content, detail, engine.clock().zone()));
    facts
}

fn content_facts(content: &MemoryContent, detail: &AgentDetail, zone: Zone) -> Vec<Fact> {
    let seen = &detail.observation;
    let (size, limit) = (content.size, seen.max_size.max(1));
    let share = size.saturating_mul(100) / limit;
    let full = (size.saturating_mul(USAGE_BAR_CELLS).div_ceil(limit)).min(USAGE_BAR_CELLS) as usize;
    let bar = "█".repeat(full) + &"░".repeat(USAGE_BAR_CELLS as usize - full);
    let tone = match share {
        0..90 => Role::Text,
        90..=100 => Role::Warn,
        _ => Role::Bad,
    };
    let size = format!("{bar} {share}%  {size} of {limit} bytes");
    let mut facts = vec![toned_fact("size", size, tone)];
    facts.push(plain_fact("lines", content.lines.to_string()));
    let scratch = match known_scratch_lines(seen) {
        Some(lines) => format!(
            "{}, {}",
            format_count(lines, "line"),
            format_count(content.scratch_bytes, "byte")
        ),
        None => UNKNOWN_WITHOUT_BASELINE.to_string(),
    };
    facts.push(plain_fact("scratch", scratch));
    facts.push(plain_fact(
        "changed",
        format_time(zone.at(DateTime::from_timestamp_nanos(content.modified_ns))),
    ));
    facts.push(plain_fact("sha256", content.sha256.to_string()));
    match &content.boundary {
        None => {
            let missing_boundary_text = if known_scratch_lines(seen).is_none() {
                UNKNOWN_WITHOUT_BASELINE
            } else {
                "none: the whole memory is scratch"
            };
            facts.push(toned_fact("separator", missing_boundary_text, Role::Warn));
        }
        Some(boundary) => {
            let place = match boundary.line {
                0 => "none, as in the baseline".to_string(),
                line => format!(
                    "line {line}, {} of {}",
                    boundary.separator_number, boundary.separator_count
                ),
            };
            let version = detail.operator_part.as_deref().unwrap_or_default();
            let line_ends = describe_line_ends(detail.split_at_boundary().0, version);
            let (how, tone) = match boundary.rule {
                BoundaryRule::Intact => match line_ends {
                    Some(line_ends) => (format!("intact; {line_ends}"), Role::Text),
                    None => ("intact".to_string(), Role::Good),
                },
                BoundaryRule::Behind(version) => (
                    format!("intact, of the earlier version {}", version.short_hex(12)),
                    Role::Warn,
                ),
                BoundaryRule::Aligned(version) => (
                    format!(
                        "edited: +{} -{} lines against version {}",
                        boundary.added_lines,
                        boundary.removed_lines,
                        version.short_hex(12)
                    ),
                    Role::Warn,
                ),
            };
            facts.push(plain_fact("separator", place));
            facts.push(toned_fact("above it", how, tone));
        }
    }
    facts
}

fn baseline_facts(engine: &Engine, agent: &Agent, detail: &AgentDetail) -> Vec<Fact> {
    let Some(path) = engine.config().baseline_path(agent) else {
        return Vec::new();
    };
    let mut facts = vec![
        heading_fact("Baseline"),
        plain_fact("path", path.display().to_string()),
    ];
    facts.push(match detail.observation.baseline {
        Some(digest) => plain_fact("sha256", digest.to_string()),
        None => toned_fact("sha256", "none that may be pushed", Role::Bad),
    });
    if let Some(part) = &detail.operator_part {
        let lines = part.split_inclusive(|byte| *byte == b'\n').count();
        let text = format!(
            "{}, {}, sha256 {}",
            format_count(part.len() as u64, "byte"),
            format_count(lines as u64, "line"),
            Digest::of(part)
        );
        facts.push(plain_fact("operator part", text));
    }
    facts
}

/// Returns the findings in a memory, each with its tone.
pub(super) fn memory_findings(detail: &AgentDetail) -> Vec<(String, Role)> {
    let Some(content) = &detail.observation.content else {
        return Vec::new();
    };
    let mut found = Vec::new();
    match &content.boundary {
        Some(boundary) => {
            let none = || "the baseline has no separator".to_string();
            let separator = boundary.describe_separator().unwrap_or_else(none);
            found.push((separator, Role::Text));
        }
        None if known_scratch_lines(&detail.observation).is_none() => {
            let why = "scratch unknown without the baseline";
            found.push((why.to_string(), Role::Warn));
        }
        None => found.push(("no separator".to_string(), Role::Warn)),
    }
    let hidden = content.hidden;
    for (count, singular, plural) in [
        (
            hidden.invisible,
            "invisible character",
            "invisible characters",
        ),
        (hidden.controls, "control character", "control characters"),
        (hidden.escapes, "of them an escape", "of them escapes"),
        (
            hidden.invalid,
            "byte that is not UTF-8",
            "bytes that are not UTF-8",
        ),
    ] {
        match count {
            0 => {}
            1 => found.push((format!("1 {singular}"), Role::Warn)),
            count => found.push((format!("{count} {plural}"), Role::Warn)),
        }
    }
    let findings = content.findings.describe();
    if !findings.is_empty() {
        let rules = content.findings.rules.join(" ");
        let rules = if rules.is_empty() {
            rules
        } else {
            format!(" ({rules})")
        };
        found.push((format!("{findings}{rules}"), Role::Warn));
    }
    if crate::base::untrusted::has_mixed_scripts(&detail.memory_prefix) {
        found.push(("words of mixed scripts".to_string(), Role::Warn));
    }
    if content.size > detail.observation.max_size {
        let excess = content.size - detail.observation.max_size;
        found.push((format!("over the limit by {excess} bytes"), Role::Warn));
    }
    found
}

fn archive_facts(engine: &Engine, agent: &Agent, observation: &Observation) -> Vec<Fact> {
    let (directory, entries) = engine.entries().archive_usage(agent);
    let mut facts = vec![
        heading_fact("Archive"),
        plain_fact("directory", directory.display().to_string()),
    ];
    facts.push(match entries {
        Ok((count, bytes)) => plain_fact("entries", format!("{count}, {bytes} bytes")),
        Err(error) => toned_fact("entries", error.to_string(), Role::Bad),
    });
    let days = engine.config().general.archive_retention_days;
    facts.push(plain_fact(
        "kept for",
        format!("{days} days, pinned ones for ever"),
    ));
    facts.push(match &observation.last_run {
        Some(last) => plain_fact(
            "last run",
            format!(
                "{}  {} {}, run {}",
                format_time(last.time),
                last.operation.as_str(),
                last.outcome.as_str(),
                last.run
            ),
        ),
        None if observation.ledger_error.is_some() => toned_fact("last run", "unknown", Role::Warn),
        None => toned_fact("last run", "none yet", Role::Dim),
    });
    if let Some(why) = &observation.ledger_error {
        facts.push(toned_fact("ledger", why, Role::Bad));
    }
    facts
}

/// Returns the settings of the agent, each with the line of the config that sets it.
fn setting_facts(engine: &Engine, agent: &Agent) -> Vec<Fact> {
    let config = engine.config();
    let mut facts = vec![
        heading_fact("Settings"),
        plain_fact("config", config.path.display().to_string()),
    ];
    let own_settings = config.values_of_agent(&agent.name).into_iter();
    facts.extend(own_settings.map(|entry| {
        let origin = match entry.origin {
            ValueOrigin::Default => "default".to_string(),
            ValueOrigin::Line(line) => format!("line {line}"),
        };
        plain_fact(entry.key, format!("{}  ({origin})", entry.value))
    }));
    facts
}

fn format_time(time: DateTime<FixedOffset>) -> String {
    time.format("%Y-%m-%d %H:%M:%S %:z").to_string()
}
