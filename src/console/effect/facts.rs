//! What is known of an agent, fact by fact, for reading.

use std::path::Path;

use chrono::{DateTime, FixedOffset};
use rustix::fs::Stat;

use crate::config::{Agent, MemoryLocation, Origin};
use crate::console::model::{modified, scratch_lines};
use crate::console::text::{TextLine, Tone};
use crate::digest::Digest;
use crate::durable;
use crate::engine::memory::Rule;
use crate::engine::{BaselineChange, Content, Detail, Engine, Observation, Protection};
use crate::error::Result;

/// Cells of the bar that shows how full a memory is.
const BAR: u64 = 20;

/// A fact: what it is about, and a line to be read.
type Fact = (&'static str, TextLine);

/// Names of the baseline and of the memory, for the two sides of a diff.
pub(super) fn titles(agent: &Agent, detail: &Detail) -> [String; 2] {
    let baseline = match detail.pushed_version() {
        Some(version) => format!("{version} of {}", agent.baseline),
        None => format!("baseline {}", agent.baseline),
    };
    [
        format!("{baseline} (above {})", agent.separator),
        format!("memory {}", agent.place.memory().display()),
    ]
}

/// Names of the last known version of a baseline and of its file, for two sides.
pub(super) fn baseline_titles(change: &BaselineChange) -> [String; 2] {
    let known = match &change.known {
        Some(known) if known.is_sealed => "sealed version",
        Some(_) => "last pushed version",
        None => "no version is kept",
    };
    [known.to_string(), format!("file {}", change.path.display())]
}

/// All of it. `seen` is what the agent looks like now; the rest may be of a copy.
pub(super) fn facts(
    engine: &Engine,
    agent: &Agent,
    seen: &Observation,
    detail: &Detail,
) -> Vec<Fact> {
    // Of a fleet of one nobody can mean another.
    let alone = engine.config().agents.len() == 1;
    let mut facts = state(seen, alone);
    facts.extend(memory(engine, agent, detail));
    facts.extend(baseline(engine, agent, detail));
    facts.push(heading("Findings"));
    let mut found = findings(detail);
    // That resets are blocked stands above.
    found.retain(|(_, tone)| *tone != Tone::Bad);
    if found.is_empty() {
        facts.push(fact("", "none", Tone::Dim));
    }
    facts.extend(found.into_iter().map(|(text, tone)| fact("", text, tone)));
    facts.extend(archive(engine, agent, seen));
    facts.extend(settings(engine, agent));
    facts
}

fn fact(label: &'static str, text: impl Into<String>, tone: Tone) -> Fact {
    let raw = text.into().into_bytes();
    let tones = vec![(0..raw.len(), tone)];
    let line = TextLine {
        raw,
        tones,
        ..TextLine::default()
    };
    (label, line)
}

fn plain(label: &'static str, text: impl Into<String>) -> Fact {
    fact(label, text, Tone::Plain)
}

/// An empty line would be one more to scroll through: the heading has its own.
fn heading(label: &'static str) -> Fact {
    (label, TextLine::default())
}

fn state(seen: &Observation, alone: bool) -> Vec<Fact> {
    let mut facts = vec![heading("Now")];
    facts.push(fact(
        "state",
        seen.state.to_string(),
        Tone::State(seen.state),
    ));
    if !seen.why.is_empty() {
        facts.push(plain("why", &seen.why));
    }
    facts.push(match &seen.block {
        Some(block) => fact("reset", format!("BLOCKED: {}", block.why), Tone::Bad),
        None => plain("reset", "possible"),
    });
    facts.push(plain(
        "protection",
        match seen.protect {
            Protection::None if seen.block.is_some() => "none",
            Protection::None if !alone && !seen.is_intact() => {
                "none, but its rules are not intact: a plan of it is confirmed by typing"
            }
            Protection::None => "none: one key confirms a plan of this agent alone",
            Protection::Typed => "typed: every plan that touches it is confirmed by typing",
            Protection::ReadOnly => "readonly: the command read-only unlocks it for 30 minutes",
        },
    ));
    facts
}

/// What the system says of a memory of this machine.
fn status(engine: &Engine, memory: &Path) -> Result<rustix::io::Result<Stat>> {
    let path = memory.to_path_buf();
    let systems = engine.file_systems();
    systems.call(memory, move || durable::stat_unlinked(&path))
}

fn memory(engine: &Engine, agent: &Agent, detail: &Detail) -> Vec<Fact> {
    let seen = &detail.observation;
    let mut facts = vec![heading("Memory")];
    facts.push(plain(
        "host",
        match agent.place.host() {
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
    facts.push(plain("path", agent.place.memory().display().to_string()));
    if let MemoryLocation::Local { memory, .. } = &agent.place
        && let Ok(Ok(stat)) = status(engine, memory)
    {
        let mode = stat.st_mode & 0o7777;
        let owner = format!("uid {}, gid {}, mode {mode:04o}", stat.st_uid, stat.st_gid);
        facts.push(plain("owner", owner));
    }
    facts.push(plain("read", time(seen.read)));
    let Some(content) = &seen.content else {
        facts.push(match seen.absent {
            true => fact("content", "none: there is no such file", Tone::Warn),
            false => fact("content", "not known", Tone::Warn),
        });
        return facts;
    };
    facts.extend(content_of(content, detail));
    facts
}

fn content_of(content: &Content, detail: &Detail) -> Vec<Fact> {
    let seen = &detail.observation;
    let (size, limit) = (content.size, seen.limit.max(1));
    let share = size.saturating_mul(100) / limit;
    let full = (size.saturating_mul(BAR).div_ceil(limit)).min(BAR) as usize;
    let bar = "█".repeat(full) + &"░".repeat(BAR as usize - full);
    let tone = match share {
        0..90 => Tone::Plain,
        90..=100 => Tone::Warn,
        _ => Tone::Bad,
    };
    let size = format!("{bar} {share}%  {size} of {limit} bytes");
    let mut facts = vec![fact("size", size, tone)];
    facts.push(plain("lines", content.lines.to_string()));
    let unknown = || "cannot be told without the baseline".to_string();
    let scratch = scratch_lines(seen).map_or_else(unknown, |lines| {
        format!("{lines} lines, {} bytes", content.scratch_bytes)
    });
    facts.push(plain("scratch", scratch));
    facts.push(plain(
        "changed",
        time(modified(content.modified, seen.read)),
    ));
    facts.push(plain("sha256", content.sha256.to_string()));
    match &content.boundary {
        None => {
            let none = if scratch_lines(seen).is_none() {
                "cannot be told without the baseline"
            } else if detail.cr_lf {
                "ends with CR LF, so it is none: all of it counts as scratch"
            } else {
                "none: all of it counts as scratch"
            };
            facts.push(fact("separator", none, Tone::Warn));
        }
        Some(boundary) => {
            let place = match boundary.line {
                0 => "none, as in the baseline".to_string(),
                line => format!("line {line}, {} of {}", boundary.nth, boundary.of),
            };
            let (how, tone) = match boundary.rule {
                Rule::Intact => ("intact".to_string(), Tone::Good),
                Rule::Behind(version) => (
                    format!("intact, of the earlier version {}", version.short(12)),
                    Tone::Warn,
                ),
                Rule::Aligned(version) => (
                    format!(
                        "edited: +{} -{} lines against version {}",
                        boundary.added,
                        boundary.removed,
                        version.short(12)
                    ),
                    Tone::Warn,
                ),
            };
            facts.push(plain("separator", place));
            facts.push(fact("above it", how, tone));
        }
    }
    facts
}

fn baseline(engine: &Engine, agent: &Agent, detail: &Detail) -> Vec<Fact> {
    let path = engine.config().general.baseline_dir.join(&agent.baseline);
    let mut facts = vec![
        heading("Baseline"),
        plain("path", path.display().to_string()),
    ];
    facts.push(match detail.observation.baseline {
        Some(digest) => plain("sha256", digest.to_string()),
        None => fact("sha256", "there is none that may be pushed", Tone::Bad),
    });
    if let Some(part) = &detail.operator_part {
        let lines = part.split_inclusive(|byte| *byte == b'\n').count();
        let text = format!(
            "{} bytes, {lines} lines, sha256 {}",
            part.len(),
            Digest::of(part)
        );
        facts.push(plain("operator part", text));
    }
    facts
}

/// What is remarkable about a memory.
pub(super) fn findings(detail: &Detail) -> Vec<(String, Tone)> {
    let Some(content) = &detail.observation.content else {
        return Vec::new();
    };
    let mut found = Vec::new();
    match &content.boundary {
        Some(boundary) if boundary.line > 0 => {
            let (line, nth, of) = (boundary.line, boundary.nth, boundary.of);
            found.push((format!("separator L{line} ({nth} of {of})"), Tone::Plain));
        }
        Some(_) => found.push(("the baseline has no separator".to_string(), Tone::Plain)),
        None if detail.cr_lf => {
            let why = "the separator line ends with CR LF, the baseline's with LF";
            found.push((why.to_string(), Tone::Warn));
        }
        None if scratch_lines(&detail.observation).is_none() => {
            let why = "scratch unknown without the baseline";
            found.push((why.to_string(), Tone::Warn));
        }
        None => found.push(("no separator".to_string(), Tone::Warn)),
    }
    let hidden = content.hidden;
    for (count, one, many) in [
        (
            hidden.invisible,
            "invisible character",
            "invisible characters",
        ),
        (hidden.controls, "control character", "control characters"),
        (hidden.escapes, "of them an escape", "of them escapes"),
        (
            hidden.invalid,
            "byte that is no UTF-8",
            "bytes that are no UTF-8",
        ),
    ] {
        match count {
            0 => {}
            1 => found.push((format!("1 {one}"), Tone::Warn)),
            count => found.push((format!("{count} {many}"), Tone::Warn)),
        }
    }
    if crate::untrusted::mixed_scripts(&detail.memory) {
        found.push(("words of mixed scripts".to_string(), Tone::Warn));
    }
    if content.size > detail.observation.limit {
        let over = content.size - detail.observation.limit;
        found.push((format!("over the limit by {over} bytes"), Tone::Warn));
    }
    if let Some(block) = &detail.observation.block {
        found.push((format!("resets are BLOCKED: {}", block.why), Tone::Bad));
    }
    found
}

fn archive(engine: &Engine, agent: &Agent, seen: &Observation) -> Vec<Fact> {
    let folder = Path::new(&agent.archive_subdir);
    let path = engine.archive().root().join(folder);
    let mut facts = vec![
        heading("Archive"),
        plain("directory", path.display().to_string()),
    ];
    facts.push(match engine.archive().list(folder) {
        Ok(entries) => {
            let bytes: u64 = entries.iter().map(|entry| entry.size).sum();
            plain("entries", format!("{}, {bytes} bytes", entries.len()))
        }
        Err(error) => fact("entries", error.to_string(), Tone::Bad),
    });
    let days = engine.config().general.archive_retention_days;
    facts.push(plain(
        "kept for",
        format!("{days} days, pinned ones for ever"),
    ));
    facts.push(match &seen.last {
        Some(last) => plain(
            "last run",
            format!(
                "{}  {} {}, run {}",
                time(last.time),
                last.act.word(),
                last.outcome.word(),
                last.run
            ),
        ),
        None => fact("last run", "none yet", Tone::Dim),
    });
    if let Some(why) = &seen.ledger_error {
        facts.push(fact("ledger", why, Tone::Bad));
    }
    facts
}

/// What holds for the agent, and which line of the config says so.
fn settings(engine: &Engine, agent: &Agent) -> Vec<Fact> {
    let config = engine.config();
    let mut facts = vec![
        heading("Settings"),
        plain("config", config.path.display().to_string()),
    ];
    let own = config
        .entries()
        .iter()
        .filter(|entry| entry.section == agent.name);
    facts.extend(own.map(|entry| {
        let origin = match entry.origin {
            Origin::Default => "default".to_string(),
            Origin::Line(line) => format!("line {line}"),
        };
        plain(entry.key, format!("{}  ({origin})", entry.value))
    }));
    facts
}

fn time(time: DateTime<FixedOffset>) -> String {
    time.format("%Y-%m-%d %H:%M:%S %:z").to_string()
}
