//! The parser from the lines of a config to a [`Config`], or to all of its faults.
//!
//! Does not stop at a fault, and reports each once: a key whose line has a diagnostic is not also
//! missing, and a second section of a name is checked but needs no keys.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use crate::base::digest::Digest;
use crate::base::file_systems::hash_path;
use crate::base::invocation::Invocation;
use crate::base::threads::map_on_processors;

use super::agent_name::{MAX_AGENT_NAME_BYTES, agent_name_hint, is_agent_name};
use super::foreign_habits::find_foreign_habits;
use super::ini::{self, Diagnostics, IniItem, SourceLine};
use super::keys::{
    CONFIG_KEYS, KeyValue, PathBases, RESET_KEYS, SectionKind, ValueShape, canonical_key,
    closest_match,
};
use super::plain_data::sorted_by_name;
use super::resolved_section::{
    InheritedValues, KeySlot, KeySlots, ResolvedSection, ResolvedSections, is_given,
};
use super::shared_directories::{SHARED_ENTRY_DIRECTORY_HINT, shared_entry_directories};
use super::{
    ACCEPT_IN_PLACE, Agent, Config, ConfigEnvironment, ConfigErrors, DiagnosticLevel, LayoutKeys,
    RemoteAccess, SshHost, strip_dot_components,
};

/// Keys that only some layouts have.
const LAYOUT_KEYS: [&str; 2] = ["memory_ref", "state_dir"];

/// Sections that are not agents, unless they have one of [`AGENT_KEYS`].
const RESERVED_SECTIONS: &[&str] = &[LINT_SECTION, ALERTS_SECTION];
/// The section of the lint's settings.
pub(super) const LINT_SECTION: &str = "lint";
/// The section of alerts.
pub(super) const ALERTS_SECTION: &str = "alerts";
const AGENT_KEYS: &[&str] = &["memory_file", "remote_host", "memory_dir"];
/// The other keys of such a memory.
const RESET_OPTIONS: &[&str] = &["separator", "max_memory_size", "shared", "every"];

/// Number of agents' sections that are read together.
const SECTIONS_PER_PART: usize = 32;

/// Checks the text of a config without reading files. `path` is its location: diagnostics name it,
/// and relative paths start at its directory.
pub fn parse(
    text: &[u8],
    path: &Path,
    env: &ConfigEnvironment,
) -> std::result::Result<Config, ConfigErrors> {
    let partial = parse_partial(text, path, env);
    if partial.diagnostics.has_errors() {
        return Err(ConfigErrors(partial.diagnostics.into_sorted()));
    }
    Ok(Config {
        warnings: partial.diagnostics.into_sorted(),
        ..partial.config
    })
}

/// The readable part of a config.
pub(super) struct PartialConfig {
    /// The config with the agents whose memory is known, without warnings.
    pub config: Config,
    /// Faults found so far.
    pub diagnostics: Diagnostics,
    /// Whether the directories of the fleet are those that the file names.
    pub has_directories: bool,
}

/// Reads the readable part of a config, and reports its faults.
pub(super) fn parse_partial(text: &[u8], path: &Path, env: &ConfigEnvironment) -> PartialConfig {
    let path = strip_dot_components(&env.cwd.join(path));
    let base = PathBases {
        directory: path.parent().unwrap_or(&path),
        home: env.home.as_deref(),
    };
    let mut reader = ConfigReader {
        path_bases: base,
        diagnostics: Diagnostics::new(&path),
    };
    let items = ini::parse_items(text, &mut reader.diagnostics);
    let sections = reader.group_sections(items);
    let SectionSlots {
        general: general_slots,
        lint: lint_slots,
        alerts: alerts_slots,
        agents: mut agent_sections,
    } = reader.read_sections(&sections);
    reader.check_base_paths();
    agent_sections.retain(|(section, kind, slots)| !section.is_faulty && has_memory(*kind, slots));

    let is_invalid = |key| matches!(general_slots.get(key), Some(KeySlot::Invalid));
    let has_directories = !["archive_dir", "baseline_dir"].into_iter().any(is_invalid);
    reader.check_seal_signers(&general_slots);
    reader.check_layouts(&agent_sections, &env.layouts);
    let fleet = reader.resolve_general(&path, general_slots);
    let inherit = |kind, fleet| InheritedValues::new(&reader.path_bases, kind, fleet);
    let lint = ResolvedSection::new(lint_slots, &[], &inherit(SectionKind::Lint, None));
    let alerts = alerts_slots
        .map(|slots| ResolvedSection::new(slots, &[], &inherit(SectionKind::Alerts, None)));
    let of_local = inherit(SectionKind::LocalAgent, Some(&fleet));
    let of_remote = inherit(SectionKind::RemoteAgent, Some(&fleet));
    let resolve = |section| resolve_agent(section, &of_local, &of_remote);
    let resolved = map_on_processors(agent_sections, || &resolve);
    let local_memories = local_memories(&resolved);
    reader.warn_of_sharing(&resolved, &local_memories);
    let (mut agents, agent_values): (Vec<Agent>, Vec<_>) =
        resolved.into_iter().map(|it| (it.agent, it.values)).unzip();
    share_longest_timeout(&mut agents);
    let general = fleet.to_general_settings();
    let lint_config = lint.to_lint_config();
    let alert_settings = alerts
        .as_ref()
        .map(|alerts| alerts.to_alert_settings(reader.path_bases.directory));
    PartialConfig {
        config: Config {
            path: path.clone(),
            invocation: Invocation::default(),
            general,
            lint: lint_config,
            alerts: alert_settings,
            agents_by_name: sorted_by_name(&agents),
            local_memories,
            text_digest: Digest::of(text),
            agents,
            warnings: Vec::new(),
            resolved: Some(ResolvedSections {
                general: fleet,
                lint,
                alerts,
                agents: agent_values,
            }),
        },
        diagnostics: reader.diagnostics,
        has_directories,
    }
}

/// An agent, and what it was made from.
struct ResolvedAgent<'s> {
    agent: Agent,
    values: ResolvedSection,
    /// The line that names its memory.
    memory_source: SourceLine<'s>,
    /// See [`Config::local_memories`]; none on a host.
    memory_hash: Option<u64>,
}

/// Makes an agent of the values of its section, and of those that agents of its kind inherit.
fn resolve_agent<'s>(
    (section, kind, slots): AgentSection<'s>,
    of_local: &InheritedValues,
    of_remote: &InheritedValues,
) -> ResolvedAgent<'s> {
    let computed = [("archive_subdir", KeyValue::Text(section.name.to_string()))];
    let memory_source = memory_source(&slots).unwrap_or(&section.source).clone();
    let inherited = match kind {
        SectionKind::RemoteAgent => of_remote,
        _ => of_local,
    };
    let values = ResolvedSection::new(slots, &computed, inherited);
    let agent = values.to_agent(&section.name, section.source.number, kind);
    let is_local = agent.host().is_none();
    ResolvedAgent {
        memory_hash: is_local.then(|| hash_path(agent.observed_path())),
        agent,
        values,
        memory_source,
    }
}

/// Returns the hashes of the memories of this machine with the indexes of their agents, sorted.
fn local_memories(agents: &[ResolvedAgent<'_>]) -> Vec<(u64, usize)> {
    let hashes = agents.iter().enumerate();
    let hashes = hashes.filter_map(|(index, it)| Some((it.memory_hash?, index)));
    let mut hashes: Vec<(u64, usize)> = hashes.collect();
    hashes.sort_unstable();
    hashes
}

/// Whether an agent sets the location of its memory.
fn has_memory(kind: SectionKind, slots: &KeySlots<'_>) -> bool {
    let is_set = |key: &&str| matches!(slots.get(key), Some(KeySlot::Set(..)));
    match kind {
        SectionKind::LocalAgent => ["memory_file", "layout", "memory_dir"].iter().any(is_set),
        SectionKind::RemoteAgent => {
            let mut memories = ["remote_memory", "layout", "memory_dir"].iter();
            is_set(&"remote_host") && memories.any(is_set)
        }
        _ => false,
    }
}

/// Agents with the same SSH settings share a session, so the longest of their `remote_timeout`
/// applies.
fn share_longest_timeout(agents: &mut [Agent]) {
    let without_timeout = |host: &SshHost| SshHost {
        timeout_seconds: 0,
        ..host.clone()
    };
    let mut longest_timeouts: BTreeMap<SshHost, u32> = BTreeMap::new();
    for host in agents.iter().filter_map(|agent| agent.host()) {
        let time = longest_timeouts.entry(without_timeout(host)).or_default();
        *time = host.timeout_seconds.max(*time);
    }
    for agent in agents {
        if let Some(RemoteAccess { host, .. }) = &mut agent.remote {
            host.timeout_seconds = longest_timeouts
                .get(&without_timeout(host))
                .copied()
                .unwrap_or(host.timeout_seconds);
        }
    }
}

/// A section of the file.
struct ConfigSection<'t> {
    name: Cow<'t, str>,
    source: SourceLine<'t>,
    /// The header has a diagnostic already, or repeats the name of another section.
    is_faulty: bool,
    lines: Vec<ConfigLine<'t>>,
}

/// A line of a section.
struct ConfigLine<'t> {
    source: SourceLine<'t>,
    key: Cow<'t, str>,
    /// `None` if the line has a diagnostic already.
    value: Option<Cow<'t, str>>,
}

impl ConfigSection<'_> {
    fn is_agent(&self) -> bool {
        let is_agent_key = |line: &ConfigLine<'_>| AGENT_KEYS.contains(&&*line.key);
        !RESERVED_SECTIONS.contains(&&*self.name) || self.lines.iter().any(is_agent_key)
    }
}

/// The values of the keys of all sections.
#[derive(Default)]
struct SectionSlots<'s> {
    general: KeySlots<'s>,
    lint: KeySlots<'s>,
    /// None without such a section.
    alerts: Option<KeySlots<'s>>,
    agents: Vec<AgentSection<'s>>,
}

/// The section of an agent, and the values of its keys.
type AgentSection<'s> = (&'s ConfigSection<'s>, SectionKind, KeySlots<'s>);

/// Converts sections to values and collects faults.
struct ConfigReader<'a> {
    path_bases: PathBases<'a>,
    diagnostics: Diagnostics,
}

impl ConfigReader<'_> {
    /// Reads the values of all sections, and reports missing keys.
    fn read_sections<'s>(&mut self, sections: &'s [ConfigSection<'s>]) -> SectionSlots<'s> {
        let mut found = SectionSlots::default();
        let is_agent =
            |section: &&ConfigSection<'_>| section.name != "general" && section.is_agent();
        let (agents, others): (Vec<_>, Vec<_>) = sections.iter().partition(is_agent);
        for section in others {
            if section.name == "general" {
                found.general = self.read_slots(section, SectionKind::General);
                self.check_required_keys(section, &found.general, SectionKind::General);
            } else if section.name == LINT_SECTION {
                found.lint = self.read_slots(section, SectionKind::Lint);
                self.check_required_keys(section, &found.lint, SectionKind::Lint);
            } else {
                let slots = self.read_slots(section, SectionKind::Alerts);
                self.check_required_keys(section, &slots, SectionKind::Alerts);
                self.check_alert_channels(section, &slots);
                found.alerts = Some(slots);
            }
        }
        found.agents = self.read_agent_sections(&agents);
        // If there are errors, they may have hidden the agents.
        if found.agents.is_empty() && !self.diagnostics.has_errors() {
            let message = "the config has no agents; nothing is ever reset".to_string();
            let hint = "add a section for each agent: [NAME], then memory_file and baseline";
            let hint = Some(hint.to_string());
            self.diagnostics
                .add(DiagnosticLevel::Warning, None, message, hint);
        }
        found
    }

    fn read_agent_sections<'s>(
        &mut self,
        sections: &[&'s ConfigSection<'s>],
    ) -> Vec<AgentSection<'s>> {
        let (path_bases, file) = (self.path_bases, &self.diagnostics.file);
        let parts = map_on_processors(sections.chunks(SECTIONS_PER_PART).collect(), || {
            |sections: &[&'s ConfigSection<'s>]| {
                let mut reader = ConfigReader {
                    path_bases,
                    diagnostics: Diagnostics::new(file),
                };
                let read = |section: &&'s ConfigSection<'s>| {
                    let mut slots = reader.read_slots(section, SectionKind::AnyAgent);
                    let kind = reader.agent_kind(&slots);
                    reader.resolve_directory("memory_dir", &mut slots, kind);
                    reader.resolve_directory("state_dir", &mut slots, kind);
                    reader.check_required_keys(section, &slots, kind);
                    (*section, kind, slots)
                };
                let found: Vec<AgentSection<'s>> = sections.iter().map(read).collect();
                (found, reader.diagnostics)
            }
        });
        let mut found = Vec::with_capacity(sections.len());
        for (part, diagnostics) in parts {
            found.extend(part);
            self.diagnostics.append(diagnostics);
        }
        found
    }

    /// Reports directories that relative paths start at and that are not UTF-8: the ledger is JSON,
    /// and records paths.
    fn check_base_paths(&mut self) {
        let bases = [Some(self.path_bases.directory), self.path_bases.home];
        for base in bases.into_iter().flatten() {
            if base.to_str().is_none() {
                let message = format!("path {} is not UTF-8", base.display());
                let hint = "rename it: the ledger cannot record paths below it".to_string();
                self.diagnostics
                    .add(DiagnosticLevel::Error, None, message, Some(hint));
            }
        }
    }

    /// Resolves the section of the fleet; `path` is the config's.
    fn resolve_general(&self, path: &Path, slots: KeySlots<'_>) -> ResolvedSection {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let mut computed = vec![("fleet_name", KeyValue::Text(stem.into_owned()))];
        if is_given(&slots, "archive_group") {
            computed.push(("archive_mode", KeyValue::PermissionBits(0o640)));
        }
        let inherited = InheritedValues::new(&self.path_bases, SectionKind::General, None);
        ResolvedSection::new(slots, &computed, &inherited)
    }

    /// Groups the lines and checks the names of the sections.
    fn group_sections<'t>(&mut self, items: Vec<IniItem<'t>>) -> Vec<ConfigSection<'t>> {
        let mut sections: Vec<ConfigSection<'t>> = Vec::new();
        let mut first_lines = HashMap::new();
        for IniItem { source, kind } in items {
            match kind {
                ini::IniItemKind::Section { name, is_malformed } => {
                    let number = sections.len() + 1;
                    let first = *first_lines.entry(name.clone()).or_insert(source.number);
                    sections.push(ConfigSection {
                        is_faulty: is_malformed
                            || !self.check_section_name(&name, &source, first, number),
                        name,
                        source,
                        lines: Vec::new(),
                    });
                }
                ini::IniItemKind::Pair { key, value } => match sections.last_mut() {
                    Some(section) => section.lines.push(ConfigLine {
                        source,
                        key,
                        value: Some(value),
                    }),
                    None => {
                        let hint = match CONFIG_KEYS
                            .iter()
                            .find(|doc| doc.name == canonical_key(&key))
                        {
                            Some(doc) if doc.section == SectionKind::General => {
                                "put it below a line [general]"
                            }
                            _ => "put it below the [name] of an agent",
                        };
                        let message = format!("`{key}` is set before the first section");
                        self.diagnostics
                            .add_error(&source, message, Some(hint.to_string()));
                    }
                },
                ini::IniItemKind::Malformed { key } => {
                    if let Some(section) = sections.last_mut() {
                        section.lines.push(ConfigLine {
                            source,
                            key,
                            value: None,
                        });
                    }
                }
            }
        }
        sections
    }

    /// Checks that alerts have a channel.
    fn check_alert_channels(&mut self, section: &ConfigSection<'_>, slots: &KeySlots<'_>) {
        let has_channel =
            ["command", "url", "journal"]
                .into_iter()
                .any(|key| match slots.get(key) {
                    Some(KeySlot::Set(value, _)) => value.to_string() != "no",
                    Some(KeySlot::Invalid) => true,
                    Some(KeySlot::Empty(_)) | None => false,
                });
        if !has_channel {
            let message = "the section [alerts] names no channel for alerts";
            let hint = "add `command = …`, `url = …` or `journal = yes`, or remove the section";
            self.diagnostics.add_warning(
                &section.source,
                message.to_string(),
                Some(hint.to_string()),
            );
        }
    }

    /// Signatures need an allowed-signers file.
    fn check_seal_signers(&mut self, slots: &KeySlots<'_>) {
        if let Some(KeySlot::Set(value, source)) = slots.get("require_seal")
            && value.to_string() == "signed"
            && !is_given(slots, "seal_signers")
        {
            let message = "`require_seal = signed` needs `seal_signers`";
            let hint = "add `seal_signers = FILE`: an allowed-signers file (ssh-keygen(1)) that \
                        agents cannot write";
            self.diagnostics
                .add_error(source, message, Some(hint.to_string()));
        }
    }

    /// Parses a key as a directory of this machine or of a host.
    fn resolve_directory(
        &mut self,
        key: &'static str,
        slots: &mut KeySlots<'_>,
        kind: SectionKind,
    ) {
        let Some(KeySlot::Set(text, source)) = slots.get(key) else {
            return;
        };
        let shape = match kind {
            SectionKind::RemoteAgent => ValueShape::RemoteFile,
            _ => ValueShape::Directory,
        };
        let slot = match self.path_bases.parse_value(shape, &text.to_string()) {
            Ok(value) => KeySlot::Set(value, source.clone()),
            Err((fault, hint)) => {
                self.diagnostics
                    .add_error(source, format!("`{key}` {fault}"), hint);
                KeySlot::Invalid
            }
        };
        slots.insert(key, slot);
    }

    /// Checks that layouts are known and have what they need, and that nothing is set that they lack.
    fn check_layouts(&mut self, agents: &[AgentSection<'_>], known: &[LayoutKeys]) {
        for (_, kind, slots) in agents {
            let set = |key| match slots.get(key) {
                Some(KeySlot::Set(value, source)) => Some((value.to_string(), source)),
                _ => None,
            };
            let layout = set("layout");
            let keys = layout.as_ref().and_then(|(name, _)| {
                let layout = known.iter().find(|layout| layout.name == name);
                layout.map(|layout| layout.keys)
            });
            let mut faults = Vec::new();
            match (&layout, slots.get("memory_dir")) {
                (Some((name, source)), _) if keys.is_none() => {
                    let names = known.iter().map(|layout| layout.name);
                    let hint = match closest_match(name, names.clone()) {
                        Some(meant) => format!("did you mean `{meant}`?"),
                        None if known.is_empty() => "this program has no layouts".to_string(),
                        None => format!("the layouts are {}", names.collect::<Vec<_>>().join(", ")),
                    };
                    faults.push((*source, format!("no layout is named `{name}`"), hint));
                }
                (Some((_, source)), None | Some(KeySlot::Empty(_))) => {
                    let message = "`layout` needs `memory_dir`".to_string();
                    faults.push((*source, message, "add `memory_dir = DIRECTORY`".to_string()));
                }
                (None, Some(KeySlot::Set(_, source))) => {
                    let message = "`memory_dir` needs `layout`".to_string();
                    faults.push((source, message, "add `layout = NAME`".to_string()));
                }
                _ => {}
            }
            for key in LAYOUT_KEYS {
                let Some((_, source)) = set(key) else {
                    continue;
                };
                let fault = match (&layout, keys) {
                    (None, _) => format!("`{key}` needs `layout`"),
                    (Some((name, _)), Some(keys)) if !keys.contains(&key) => {
                        format!("the layout {name} has no `{key}`")
                    }
                    _ if key == "memory_ref" && *kind == SectionKind::RemoteAgent => {
                        "`memory_ref` names a branch of this machine, not of `remote_host`"
                            .to_string()
                    }
                    _ => continue,
                };
                faults.push((source, fault, "remove it".to_string()));
            }
            for (source, message, hint) in faults {
                self.diagnostics.add_error(source, message, Some(hint));
            }
        }
    }

    /// Checks the name of a section, and reports it if invalid. `first_line` is the line of the
    /// first section of that name; `number` is the section's.
    fn check_section_name(
        &mut self,
        name: &str,
        source: &SourceLine<'_>,
        first_line: usize,
        number: usize,
    ) -> bool {
        let (message, hint) = if first_line != source.number {
            let hint = format!(
                "the first is on line {first_line}; move the keys there, or rename one section"
            );
            (format!("duplicate section [{name}]"), hint)
        } else if name.is_empty() {
            let hint = "write the name of the agent between the brackets";
            ("the section has no name".to_string(), hint.to_string())
        } else if !is_agent_name(name) {
            let message = "a section name has only letters, digits, `_` and `-`";
            (message.to_string(), agent_name_hint(name, number))
        } else if name == "all" {
            let message =
                "`all` cannot be the name of an agent: `memory-shepherd all` resets every agent";
            (
                message.to_string(),
                "give the agent another name".to_string(),
            )
        } else if name.len() > MAX_AGENT_NAME_BYTES {
            let length = name.len();
            (
                format!(
                    "a section name has at most {MAX_AGENT_NAME_BYTES} characters; this one has {length}"
                ),
                "give the agent a shorter name; files in the archive are named after it"
                    .to_string(),
            )
        } else {
            return true;
        };
        self.diagnostics.add_error(source, message, Some(hint));
        false
    }

    /// Reads the values of a section of a kind.
    fn read_slots<'s>(
        &mut self,
        section: &'s ConfigSection<'s>,
        kind: SectionKind,
    ) -> KeySlots<'s> {
        let mut slots = KeySlots::default();
        let mut first_lines: BTreeMap<&str, usize> = BTreeMap::new();
        for ConfigLine {
            source,
            key: written,
            value,
        } in &section.lines
        {
            let name = canonical_key(written);
            let mut keys = CONFIG_KEYS.iter();
            let doc = keys.find(|doc| doc.name == name && doc.is_allowed_in(kind));
            let (doc, value) = match (doc, value) {
                (Some(doc), Some(value)) => (doc, value.as_ref()),
                (Some(doc), None) => {
                    slots.insert_if_absent(doc.name, KeySlot::Invalid);
                    continue;
                }
                (None, Some(_)) => {
                    if let Some(meant) = self.report_unknown_key(source, written, kind) {
                        slots.insert_if_absent(meant, KeySlot::Invalid);
                    }
                    continue;
                }
                (None, None) => continue,
            };
            if let Some(line) = first_lines.get(doc.name) {
                let message = format!("`{written}` sets `{}` a second time", doc.name);
                let hint = format!("the first is on line {line}; keep one of the two");
                self.diagnostics.add_error(source, message, Some(hint));
                continue;
            }
            first_lines.insert(doc.name, source.number);
            let slot = if value.is_empty() && !matches!(doc.shape, ValueShape::Separator) {
                KeySlot::Empty(source.clone())
            } else {
                match self.path_bases.parse_value(doc.shape, value) {
                    Ok(value) => KeySlot::Set(value, source.clone()),
                    Err((fault, hint)) => {
                        self.diagnostics
                            .add_error(source, format!("`{written}` {fault}"), hint);
                        KeySlot::Invalid
                    }
                }
            };
            for (message, hint) in find_foreign_habits(doc.shape, written, value) {
                self.diagnostics.add_warning(source, message, Some(hint));
            }
            if let Some(inner) = strip_quotes(value) {
                let message = format!("the quotes are part of the value of `{written}`");
                self.diagnostics.add_warning(
                    source,
                    message,
                    Some(format!("write {written} = {inner}")),
                );
            }
            slots.insert(doc.name, slot);
        }
        slots
    }

    /// Reports an unknown key, and returns the key that was probably meant.
    fn report_unknown_key(
        &mut self,
        source: &SourceLine<'_>,
        key: &str,
        kind: SectionKind,
    ) -> Option<&'static str> {
        let allowed_keys = || {
            CONFIG_KEYS
                .iter()
                .filter(|doc| doc.is_allowed_in(kind))
                .map(|doc| doc.name)
        };
        let this_section = section_label(kind);
        let mut specs = CONFIG_KEYS.iter();
        let elsewhere = specs.find(|doc| doc.name == canonical_key(key));
        let suggestion = match elsewhere {
            Some(_) => None,
            None => closest_match(key, allowed_keys()),
        };
        let hint = match (suggestion, elsewhere.map(|doc| doc.section)) {
            (Some(meant), _) => format!("did you mean `{meant}`?"),
            (None, Some(SectionKind::General)) => "it belongs in [general]".to_string(),
            (None, Some(SectionKind::Lint)) => "it belongs in [lint]".to_string(),
            (None, Some(SectionKind::Alerts)) => "it belongs in [alerts]".to_string(),
            (None, Some(_)) => "it belongs in the section of an agent".to_string(),
            (None, None) => format!(
                "the keys are {}",
                allowed_keys().collect::<Vec<_>>().join(", ")
            ),
        };
        let message = format!("`{key}` is not a key of {this_section}");
        self.diagnostics.add_error(source, message, Some(hint));
        suggestion
    }

    /// Determines the location of an agent from its keys.
    fn agent_kind(&mut self, slots: &KeySlots<'_>) -> SectionKind {
        let source_of = |key| match slots.get(key) {
            Some(KeySlot::Set(_, source)) => Some(source),
            _ => None,
        };
        let remote = ["remote_host", "remote_memory"];
        let remote_source = remote
            .into_iter()
            .find_map(|key| Some((key, source_of(key)?)));
        if let (Some(local_source), Some((key, there))) = (source_of("memory_file"), remote_source)
        {
            let later = if local_source.number > there.number {
                local_source
            } else {
                there
            };
            let message =
                format!("`memory_file` and `{key}` exclude each other: an agent has one memory");
            let hint =
                "keep memory_file for an agent on this machine, else remote_host and remote_memory";
            self.diagnostics
                .add_error(later, message, Some(hint.to_string()));
        }
        if let Some(KeySlot::Set(KeyValue::Text(host), _)) = slots.get("remote_host")
            && let Some((_, name)) = host.rsplit_once('@')
            && let Some(user) = source_of("remote_user")
        {
            let message = "user in `remote_host` ignored: `remote_user` is set";
            let hint = format!("write remote_host = {name}, or remove remote_user");
            self.diagnostics.add_warning(user, message, Some(hint));
        }
        let is_remote = remote.into_iter().any(|key| is_given(slots, key));
        if is_remote && is_given(slots, "memory_file") {
            // Naming both is the fault; asking for further keys of a host would not help.
            SectionKind::AnyAgent
        } else if is_remote {
            SectionKind::RemoteAgent
        } else {
            SectionKind::LocalAgent
        }
    }

    /// Reports missing required keys, and keys without a value or effect.
    fn check_required_keys(
        &mut self,
        section: &ConfigSection<'_>,
        slots: &KeySlots<'_>,
        kind: SectionKind,
    ) {
        // An agent with a layout may lack a memory that is reset.
        let is_without_reset = ["layout", "memory_dir"]
            .iter()
            .any(|key| is_given(slots, key))
            && !RESET_KEYS.iter().any(|key| is_given(slots, key));
        for doc in CONFIG_KEYS.iter().filter(|doc| doc.is_allowed_in(kind)) {
            let key = doc.name;
            let is_required = doc.is_required
                && doc.section.has_effect_in(kind)
                && !(is_without_reset && RESET_KEYS.contains(&key));
            let missing_key_hint = || Some(format!("add `{key} = …`: {}", doc.description));
            match slots.get(key) {
                None if is_required && !section.is_faulty => {
                    let message = format!("agent `{}` lacks `{key}`", section.name);
                    self.diagnostics
                        .add_error(&section.source, message, missing_key_hint());
                }
                Some(KeySlot::Empty(source)) if is_required => {
                    self.diagnostics.add_error(
                        source,
                        format!("`{key}` has no value"),
                        missing_key_hint(),
                    );
                }
                Some(KeySlot::Empty(source)) => {
                    let message = format!("`{key}` has no value and counts as unset");
                    let hint = "remove the line, or write a value".to_string();
                    self.diagnostics.add_warning(source, message, Some(hint));
                }
                Some(KeySlot::Set(_, source))
                    if is_without_reset && RESET_OPTIONS.contains(&key) =>
                {
                    let message = format!("`{key}` has no effect for an agent that is never reset");
                    let hint = "remove it, or add the memory that is reset, and its baseline";
                    self.diagnostics
                        .add_warning(source, message, Some(hint.to_string()));
                }
                Some(KeySlot::Set(_, source))
                    if doc.section == SectionKind::RemoteAgent
                        && kind == SectionKind::LocalAgent =>
                {
                    let message = format!("`{key}` has no effect for an agent on this machine");
                    let hint = "remove it, or add remote_host and remote_memory".to_string();
                    self.diagnostics.add_warning(source, message, Some(hint));
                }
                _ => {}
            }
        }
        if let Some(KeySlot::Set(KeyValue::Text(words), source)) = slots.get("accept_degraded") {
            let (where_it_runs, has_no_effect): (_, &dyn Fn(&&str) -> bool) = match kind {
                SectionKind::LocalAgent => ("on this machine", &|word| *word != ACCEPT_IN_PLACE),
                _ => ("on another host", &|word| *word == ACCEPT_IN_PLACE),
            };
            for word in words.split(", ").filter(has_no_effect) {
                let message = format!(
                    "`accept_degraded = {word}` has no effect for an agent {where_it_runs}"
                );
                self.diagnostics
                    .add_warning(source, message, Some("remove it".to_string()));
            }
        }
    }

    /// Warns about agents that share a memory or an archive directory. `local_memories` are those of
    /// [`local_memories`].
    fn warn_of_sharing(&mut self, agents: &[ResolvedAgent<'_>], local_memories: &[(u64, usize)]) {
        let pairs = local_memories.windows(2);
        let repeated = pairs.filter(|pair| pair[0].0 == pair[1].0);
        let repeated: HashSet<usize> = repeated.flatten().map(|(_, index)| *index).collect();
        let mut memories = HashMap::new();
        for (
            index,
            ResolvedAgent {
                agent,
                memory_source,
                memory_hash,
                ..
            },
        ) in agents.iter().enumerate()
        {
            let is_alone = memory_hash.is_some() && !repeated.contains(&index);
            // Agents may share a memory that is never reset.
            if is_alone || agent.reset.is_none() {
                continue;
            }
            let name = agent.name.as_str();
            let first = *memories.entry(agent.file_identity()).or_insert(name);
            if first != name {
                let message = same_memory_message(first, name);
                let hint = SAME_MEMORY_HINT.to_string();
                self.diagnostics
                    .add_warning(memory_source, message, Some(hint));
            }
        }
        let shared = shared_entry_directories(agents.iter().map(|it| &it.agent));
        if shared.is_empty() {
            return;
        }
        let sources: HashMap<&str, &SourceLine<'_>> = agents
            .iter()
            .map(|it| (it.agent.name.as_str(), &it.memory_source))
            .collect();
        for shared in shared {
            if let Some(source) = sources.get(shared.second) {
                let hint = SHARED_ENTRY_DIRECTORY_HINT.to_string();
                self.diagnostics
                    .add_warning(source, shared.to_string(), Some(hint));
            }
        }
    }
}

/// Names a section in a message.
fn section_label(kind: SectionKind) -> &'static str {
    match kind {
        SectionKind::General => "[general]",
        SectionKind::Lint => "[lint]",
        SectionKind::Alerts => "[alerts]",
        _ => "an agent",
    }
}

/// Returns the line that names an agent's memory.
fn memory_source<'k, 't>(slots: &'k KeySlots<'t>) -> Option<&'k SourceLine<'t>> {
    let keys = ["memory_file", "remote_memory"].into_iter();
    keys.filter_map(|key| slots.get(key))
        .find_map(|slot| match slot {
            KeySlot::Set(_, source) => Some(source),
            _ => None,
        })
}

/// Returns the message about two agents with one memory.
pub fn same_memory_message(first: &str, second: &str) -> String {
    format!("agents `{first}` and `{second}` have the same memory")
}

/// The hint for [`same_memory_message`].
pub const SAME_MEMORY_HINT: &str =
    "give each agent a memory of its own; until then resets of both are refused";

/// Returns a value without the quotes around it, if it has any.
fn strip_quotes(value: &str) -> Option<&str> {
    ['"', '\'']
        .iter()
        .find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote))
}
