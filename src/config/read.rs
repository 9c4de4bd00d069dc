//! From the lines of a config to a [`Config`], or to everything that is wrong.
//!
//! Nothing here stops at a fault. Each is reported once: a key whose line is
//! bad already is not missing as well, and a second section of a name is
//! checked but asked for nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::invocation::Invocation;

use super::ini::{self, Diagnostics, IniItem, Spot};
use super::keys::{DefaultDirectory, KEYS, SectionKind, Value, ValueShape, canonical, closest};
use super::{
    Agent, BaselineEntry, Config, DiagnosticLevel, Env, Extension, General, Host, IN_PLACE,
    MemoryLocation, Origin, Problems, Protect, RequireSeal, tidy,
};

/// Sections that are no agents, unless they have one of [`AGENT_MARKS`].
const RESERVED: &[&str] = &["lint", "alerts"];
const AGENT_MARKS: &[&str] = &["memory_file", "remote_host"];

/// The most bytes of an agent's name. Files of its runs are called by it with a
/// random name and an ending behind, and file systems take 255 for all of that.
const LONGEST_NAME: usize = 200;

/// Checks a config without touching anything. `path` is where it stands:
/// diagnostics name it, and relative paths start at its folder.
pub fn parse(text: &[u8], path: &Path, env: &Env) -> std::result::Result<Config, Problems> {
    let parsed = parse_partly(text, path, env);
    match parsed.report.has_errors() {
        true => Err(Problems(parsed.report.finish())),
        false => Ok(Config {
            warnings: parsed.report.finish(),
            ..parsed.config
        }),
    }
}

/// A config as far as it can be read.
pub(super) struct Parsed {
    /// Agents whose memory is known, and no warnings.
    pub config: Config,
    /// What is wrong with it.
    pub report: Diagnostics,
    /// Whether the directories of the fleet are those that the file names.
    pub has_directories: bool,
}

/// Reads what can be read of a config, and reports what is wrong with it.
pub(super) fn parse_partly(text: &[u8], path: &Path, env: &Env) -> Parsed {
    let path = tidy(&env.cwd.join(path));
    let base = DefaultDirectory {
        folder: path.parent().unwrap_or(&path),
        home: env.home.as_deref(),
    };
    let report = Diagnostics::new(&path);
    let mut reader = ConfigReader { base, report };
    let items = ini::read(text, &mut reader.report);
    let sections = reader.sections(items);
    let mut own = Slots::new();
    let mut herd = Vec::new();
    for section in &sections {
        if section.name == "general" {
            own = reader.slots(section, SectionKind::General);
            reader.complete(section, &own, SectionKind::General);
        } else if section.is_agent() {
            let slots = reader.slots(section, SectionKind::Agent);
            let place = reader.place(&slots);
            reader.complete(section, &slots, place);
            herd.push((section, place, slots));
        }
    }
    // With errors it may have some.
    if herd.is_empty() && !reader.report.has_errors() {
        let message = "the config has no agents, so nothing is ever reset".to_string();
        let hint =
            "add a section for each: its name in brackets, below it memory_file and baseline";
        let hint = Some(hint.to_string());
        reader
            .report
            .add(DiagnosticLevel::Warning, None, message, hint);
    }
    let bases = [Some(reader.base.folder), reader.base.home];
    for base in bases.into_iter().flatten() {
        if base.to_str().is_none() {
            // The ledger is JSON, and records paths.
            let message = format!("the name of {} is not UTF-8", base.display());
            let hint = "paths go by it, and no run can be recorded: rename it".to_string();
            let report = &mut reader.report;
            report.add(DiagnosticLevel::Error, None, message, Some(hint));
        }
    }
    herd.retain(|(section, place, slots)| !section.doubtful && has_memory(*place, slots));

    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let mut computed = vec![("fleet_name", Value::Text(stem.into_owned()))];
    if given(&own, "archive_group") {
        computed.push(("archive_mode", Value::Bits(0o640)));
    }
    let is_lost = |key| matches!(own.get(key), Some(SectionSlot::Lost));
    let has_directories = !["archive_dir", "baseline_dir"].into_iter().any(is_lost);
    let fleet = Resolved::new(&reader.base, own, SectionKind::General, &computed, None);
    let mut entries = fleet.entries("general");
    let mut agents = Vec::new();
    for (section, place, slots) in herd {
        let computed = [("archive_subdir", Value::Text(section.name.clone()))];
        let values = Resolved::new(&reader.base, slots, place, &computed, Some(&fleet));
        entries.extend(values.entries(&section.name));
        agents.push((values.agent(section, place), &section.spot));
    }
    reader.sharing(&agents);
    let mut agents: Vec<Agent> = agents.into_iter().map(|(agent, _)| agent).collect();
    agree_on_timeouts(&mut agents);
    let named = agents.iter().enumerate();
    let places = named.map(|(place, agent)| (agent.name.clone(), place));
    let places = places.collect();
    let general = fleet.general();
    Parsed {
        config: Config {
            path: path.clone(),
            invocation: Invocation::default(),
            general,
            places,
            agents,
            warnings: Vec::new(),
            entries,
        },
        report: reader.report,
        has_directories,
    }
}

/// Whether the lines of an agent say where its memory is.
fn has_memory(place: SectionKind, slots: &Slots) -> bool {
    let is_set = |key: &&str| matches!(slots.get(*key), Some(SectionSlot::Set(..)));
    match place {
        SectionKind::Local => is_set(&"memory_file"),
        SectionKind::Remote => ["remote_host", "remote_memory"].iter().all(is_set),
        _ => false,
    }
}

/// Agents that are reached in the same way share a session, so the longest of their
/// `remote_timeout` holds for it.
fn agree_on_timeouts(agents: &mut [Agent]) {
    let way = |host: &Host| Host {
        timeout: 0,
        ..host.clone()
    };
    let mut longest: BTreeMap<Host, u32> = BTreeMap::new();
    for host in agents.iter().filter_map(|agent| agent.place.host()) {
        let time = longest.entry(way(host)).or_default();
        *time = host.timeout.max(*time);
    }
    for agent in agents {
        if let MemoryLocation::Remote { host, .. } = &mut agent.place {
            host.timeout = longest.get(&way(host)).copied().unwrap_or(host.timeout);
        }
    }
}

/// A section as it stands in the file.
struct Section {
    name: String,
    spot: Spot,
    /// The header has a diagnostic already, or is the second of its name.
    doubtful: bool,
    lines: Vec<ConfigLine>,
}

/// A line of a section.
struct ConfigLine {
    spot: Spot,
    key: String,
    /// None where the line has a diagnostic already.
    value: Option<String>,
}

impl Section {
    fn is_agent(&self) -> bool {
        let marked = |line: &ConfigLine| AGENT_MARKS.contains(&line.key.as_str());
        !RESERVED.contains(&self.name.as_str()) || self.lines.iter().any(marked)
    }
}

/// What the file says about a key.
enum SectionSlot {
    Set(Value, Spot),
    Empty(Spot),
    /// There is a diagnostic already: the key is neither usable nor missing.
    Lost,
}

type Slots = BTreeMap<&'static str, SectionSlot>;

/// Whether the file says anything about a key, even something bad.
fn given(slots: &Slots, key: &str) -> bool {
    matches!(
        slots.get(key),
        Some(SectionSlot::Set(..) | SectionSlot::Lost)
    )
}

/// Turns sections into values and collects what is wrong.
struct ConfigReader<'a> {
    base: DefaultDirectory<'a>,
    report: Diagnostics,
}

impl ConfigReader<'_> {
    /// Groups the lines and checks the names of the sections.
    fn sections(&mut self, items: Vec<IniItem>) -> Vec<Section> {
        let mut sections: Vec<Section> = Vec::new();
        let mut firsts = BTreeMap::new();
        for IniItem { spot, kind } in items {
            match kind {
                ini::IniItemKind::Section { name, broken } => {
                    let first = *firsts.entry(name.clone()).or_insert(spot.line);
                    let doubtful = broken || !self.name_is_good(&name, &spot, first);
                    sections.push(Section {
                        name,
                        spot,
                        doubtful,
                        lines: Vec::new(),
                    });
                }
                ini::IniItemKind::Pair { key, value } => match sections.last_mut() {
                    Some(section) => {
                        let value = Some(value);
                        section.lines.push(ConfigLine { spot, key, value });
                    }
                    None => {
                        let hint = match KEYS.iter().find(|doc| doc.key == canonical(&key)) {
                            Some(doc) if doc.scope == SectionKind::General => {
                                "put it below a line [general]"
                            }
                            _ => "put it below the [name] of an agent",
                        };
                        let message = format!("`{key}` stands before the first section");
                        self.report.error(&spot, message, Some(hint.to_string()));
                    }
                },
                ini::IniItemKind::Lost { key } => {
                    if let Some(section) = sections.last_mut() {
                        section.lines.push(ConfigLine {
                            spot,
                            key,
                            value: None,
                        });
                    }
                }
            }
        }
        sections
    }

    /// Reports a name that no section may have. `first` is the line of the first
    /// section of that name.
    fn name_is_good(&mut self, name: &str, spot: &Spot, first: usize) -> bool {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let (message, hint) = if first != spot.line {
            let hint = format!("line {first} has the first one; put its keys there, or rename one");
            (format!("there are two sections [{name}]"), hint)
        } else if name.is_empty() {
            let hint = "write the agent's name between the brackets";
            ("the section has no name".to_string(), hint.to_string())
        } else if !name.chars().all(allowed) {
            let better = name.replace(|c| !allowed(c), "-");
            let message = "a section's name has only letters, digits, `_` and `-`";
            (message.to_string(), format!("write [{better}]"))
        } else if name == "all" {
            let message = "`all` cannot be an agent: `memory-shepherd all` resets every agent";
            (
                message.to_string(),
                "give the agent another name".to_string(),
            )
        } else if name.len() > LONGEST_NAME {
            let length = name.len();
            (
                format!("a section's name has at most {LONGEST_NAME} characters, this {length}"),
                "give the agent a shorter name: files in the archive are called by it".to_string(),
            )
        } else {
            return true;
        };
        self.report.error(spot, message, Some(hint));
        false
    }

    /// Reads the values of a section, `scope` saying which kind it is.
    fn slots(&mut self, section: &Section, scope: SectionKind) -> Slots {
        let mut slots = Slots::new();
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        for ConfigLine {
            spot,
            key: written,
            value,
        } in &section.lines
        {
            let name = canonical(written);
            let mut here = KEYS.iter().filter(|doc| doc.stands_with(scope));
            let doc = here.find(|doc| doc.key == name);
            let (doc, value) = match (doc, value) {
                (Some(doc), Some(value)) => (doc, value.as_str()),
                (Some(doc), None) => {
                    slots.entry(doc.key).or_insert(SectionSlot::Lost);
                    continue;
                }
                (None, Some(_)) => {
                    if let Some(meant) = self.unknown_key(spot, written, scope) {
                        slots.entry(meant).or_insert(SectionSlot::Lost);
                    }
                    continue;
                }
                (None, None) => continue,
            };
            if let Some(line) = seen.get(doc.key) {
                let message = format!("`{written}` sets `{}` a second time", doc.key);
                let hint = format!("line {line} has the first one; keep one of the two");
                self.report.error(spot, message, Some(hint));
                continue;
            }
            seen.insert(doc.key, spot.line);
            let slot = if value.is_empty() && !matches!(doc.shape, ValueShape::Separator) {
                SectionSlot::Empty(spot.clone())
            } else {
                match self.base.check(doc.shape, value) {
                    Ok(value) => SectionSlot::Set(value, spot.clone()),
                    Err((fault, hint)) => {
                        self.report
                            .error(spot, format!("`{written}` {fault}"), hint);
                        SectionSlot::Lost
                    }
                }
            };
            if let Some(inner) = unquoted(value) {
                let message = format!("the quotes are a part of the value of `{written}`");
                self.report
                    .warn(spot, message, Some(format!("write {written} = {inner}")));
            }
            slots.insert(doc.key, slot);
        }
        slots
    }

    /// Reports a key that the section does not know, and returns the one that
    /// was probably meant.
    fn unknown_key(&mut self, spot: &Spot, key: &str, scope: SectionKind) -> Option<&'static str> {
        let here = || {
            KEYS.iter()
                .filter(|doc| doc.stands_with(scope))
                .map(|doc| doc.key)
        };
        let (this, other) = match scope {
            SectionKind::General => ("[general]", "the section of an agent"),
            _ => ("an agent", "[general]"),
        };
        let elsewhere = KEYS.iter().any(|doc| doc.key == canonical(key));
        let meant = if elsewhere {
            None
        } else {
            closest(key, here())
        };
        let hint = match meant {
            Some(meant) => format!("did you mean `{meant}`?"),
            None if elsewhere => format!("it belongs in {other}"),
            None => format!("the keys are {}", here().collect::<Vec<_>>().join(", ")),
        };
        let message = format!("`{key}` is not a key of {this}");
        self.report.error(spot, message, Some(hint));
        meant
    }

    /// Where the agent lives, judged by its keys.
    fn place(&mut self, slots: &Slots) -> SectionKind {
        let spot = |key| match slots.get(key) {
            Some(SectionSlot::Set(_, spot)) => Some(spot),
            _ => None,
        };
        let remote = ["remote_host", "remote_memory"];
        let there = remote.into_iter().find_map(|key| Some((key, spot(key)?)));
        if let (Some(here), Some((key, there))) = (spot("memory_file"), there) {
            let later = if here.line > there.line { here } else { there };
            let message = format!(
                "the agent has both `memory_file` and `{key}`, and can live in one place only"
            );
            let hint = "keep memory_file for an agent on this machine, remote_host and remote_memory for another";
            self.report.error(later, message, Some(hint.to_string()));
        }
        if let Some(SectionSlot::Set(Value::Text(host), _)) = slots.get("remote_host")
            && let Some((_, name)) = host.rsplit_once('@')
            && let Some(user) = spot("remote_user")
        {
            let message = "`remote_host` names a user, too, who does not count";
            let hint = format!("write remote_host = {name}, or leave out remote_user");
            self.report.warn(user, message, Some(hint));
        }
        let elsewhere = remote.into_iter().any(|key| given(slots, key));
        if elsewhere && given(slots, "memory_file") {
            // That is the fault; asking for what else belongs to a host is no help.
            SectionKind::Agent
        } else if elsewhere {
            SectionKind::Remote
        } else {
            SectionKind::Local
        }
    }

    /// Reports required keys that are missing, and keys that say nothing.
    fn complete(&mut self, section: &Section, slots: &Slots, place: SectionKind) {
        for doc in KEYS.iter().filter(|doc| doc.stands_with(place)) {
            let key = doc.key;
            let needed = doc.required && doc.scope.covers(place);
            let add = || Some(format!("add `{key} = …`: {}", doc.doc));
            match slots.get(key) {
                None if needed && !section.doubtful => {
                    let message = format!("the agent `{}` lacks `{key}`", section.name);
                    self.report.error(&section.spot, message, add());
                }
                Some(SectionSlot::Empty(spot)) if needed => {
                    self.report
                        .error(spot, format!("`{key}` has no value"), add());
                }
                Some(SectionSlot::Empty(spot)) => {
                    let message = format!("`{key}` has no value and counts as left out");
                    let hint = "remove the line, or write a value".to_string();
                    self.report.warn(spot, message, Some(hint));
                }
                Some(SectionSlot::Set(_, spot))
                    if doc.scope == SectionKind::Remote && place == SectionKind::Local =>
                {
                    let message = format!("`{key}` does nothing for an agent on this machine");
                    let hint = "remove it, or add remote_host and remote_memory".to_string();
                    self.report.warn(spot, message, Some(hint));
                }
                _ => {}
            }
        }
        if let Some(SectionSlot::Set(Value::Text(words), spot)) = slots.get("accept_weaker") {
            let (stands, idle): (_, &dyn Fn(&&str) -> bool) = match place {
                SectionKind::Local => ("on this machine", &|word| *word != IN_PLACE),
                _ => ("on another host", &|word| *word == IN_PLACE),
            };
            for word in words.split(", ").filter(idle) {
                let message =
                    format!("`accept_weaker = {word}` does nothing for an agent {stands}");
                self.report
                    .warn(spot, message, Some("remove it".to_string()));
            }
        }
        if let Some(SectionSlot::Set(Value::Text(word), spot)) = slots.get("require_seal")
            && word == "signed"
        {
            let message = "this version cannot check signatures yet, so it refuses every reset";
            let hint = "use require_seal=always".to_string();
            self.report.warn(spot, message, Some(hint));
        }
    }

    /// Warns about agents that share what should be their own.
    fn sharing(&mut self, agents: &[(Agent, &Spot)]) {
        let mut memories = BTreeMap::new();
        let mut folders = BTreeMap::new();
        for (agent, spot) in agents {
            let name = agent.name.as_str();
            let first = *memories.entry(agent.place.file()).or_insert(name);
            if first != name {
                let message = same_memory(first, name);
                let hint = SAME_MEMORY_HINT.to_string();
                self.report.warn(spot, message, Some(hint));
            }
            let folder = agent.archive_subdir.as_str();
            let first = *folders.entry(folder).or_insert(name);
            if first != name {
                let message = format!(
                    "the agents `{first}` and `{name}` share the archive_subdir `{folder}`"
                );
                let hint = "give each its own, so that their entries can be told apart".to_string();
                self.report.warn(spot, message, Some(hint));
            }
        }
    }
}

/// Says that two agents have one memory.
pub fn same_memory(first: &str, second: &str) -> String {
    format!("the agents `{first}` and `{second}` have the same memory")
}

/// What follows from [`same_memory`].
pub const SAME_MEMORY_HINT: &str = "a reset of either is refused as long as they share it";

/// What a value would be without the quotes around it, if it has any.
fn unquoted(value: &str) -> Option<&str> {
    ['"', '\'']
        .iter()
        .find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote))
}

/// The effective values of a section, in the order of the table.
struct Resolved(Vec<(&'static str, Value, Origin)>);

impl Resolved {
    /// The line of the file wins, then what the fleet says, then a computed
    /// default, then the table's.
    fn new(
        base: &DefaultDirectory,
        mut slots: Slots,
        place: SectionKind,
        computed: &[(&str, Value)],
        fleet: Option<&Resolved>,
    ) -> Resolved {
        let docs = KEYS.iter().filter(|doc| doc.scope.covers(place));
        let values = docs.filter_map(|doc| {
            if let Some(SectionSlot::Set(value, spot)) = slots.remove(doc.key) {
                return Some((doc.key, value, Origin::Line(spot.line)));
            }
            if let Some((value, origin)) = fleet.and_then(|fleet| fleet.get(doc.key)) {
                return Some((doc.key, value.clone(), origin));
            }
            let computed = computed.iter().find(|(key, _)| *key == doc.key);
            let value = match computed {
                Some((_, value)) => value.clone(),
                None if doc.default.is_empty() => return None,
                None => base.check(doc.shape, doc.default).ok()?,
            };
            Some((doc.key, value, Origin::Default))
        });
        Resolved(values.collect())
    }

    fn get(&self, key: &str) -> Option<(&Value, Origin)> {
        let found = self.0.iter().find(|(of, ..)| *of == key);
        found.map(|(_, value, origin)| (value, *origin))
    }

    fn text(&self, key: &str) -> Option<String> {
        self.get(key).map(|(value, _)| value.to_string())
    }

    fn path(&self, key: &str) -> Option<PathBuf> {
        match self.get(key)? {
            (Value::Path(path), _) => Some(path.clone()),
            _ => None,
        }
    }

    fn number<T: TryFrom<u64>>(&self, key: &str) -> Option<T> {
        match self.get(key)? {
            (Value::Number(number), _) => T::try_from(*number).ok(),
            (Value::Bits(bits), _) => T::try_from(u64::from(*bits)).ok(),
            _ => None,
        }
    }
}

impl Resolved {
    fn entries(&self, section: &str) -> Vec<BaselineEntry> {
        let entries = self.0.iter().map(|(key, value, origin)| BaselineEntry {
            section: section.to_string(),
            key,
            value: value.to_string(),
            origin: *origin,
        });
        entries.collect()
    }

    /// The getters fall back to nothing only for a key without a default in the
    /// table; a test holds that all the others have one.
    fn general(&self) -> General {
        General {
            baseline_dir: self.path("baseline_dir").unwrap_or_default(),
            archive_dir: self.path("archive_dir").unwrap_or_default(),
            max_memory_size: self.number("max_memory_size").unwrap_or_default(),
            min_baseline_size: self.number("min_baseline_size").unwrap_or_default(),
            archive_retention_days: self.number("archive_retention_days").unwrap_or_default(),
            separator: self.text("separator").unwrap_or_default(),
            fleet_name: self.text("fleet_name").unwrap_or_default(),
            fleet_tag: self.text("fleet_tag"),
            protect: self.protect(),
            require_seal: match self.text("require_seal").as_deref() {
                Some("always") => RequireSeal::Always,
                Some("signed") => RequireSeal::Signed,
                Some("never") => RequireSeal::Never,
                _ => RequireSeal::IfPresent,
            },
            seal_signers: self.path("seal_signers"),
            local_timeout: self.number("local_timeout").unwrap_or_default(),
            remote_timeout: self.number("remote_timeout").unwrap_or_default(),
            remote_poll: self.number("remote_poll").unwrap_or_default(),
            archive_mode: self.number("archive_mode").unwrap_or_default(),
            archive_group: self.text("archive_group"),
            theme: self.text("theme").unwrap_or_default(),
        }
    }

    fn agent(&self, section: &Section, place: SectionKind) -> Agent {
        let place = match place {
            SectionKind::Remote => MemoryLocation::Remote {
                host: Host {
                    name: self.text("remote_host").unwrap_or_default(),
                    user: self.text("remote_user"),
                    port: self.number("remote_port"),
                    identity_file: self.path("identity_file"),
                    timeout: self.number("remote_timeout").unwrap_or_default(),
                },
                memory: self.path("remote_memory").unwrap_or_default(),
                poll: self.number("remote_poll").unwrap_or_default(),
                accept_weaker: self.extensions("accept_weaker"),
            },
            _ => MemoryLocation::Local {
                memory: self.path("memory_file").unwrap_or_default(),
                accept_in_place: self.has_word("accept_weaker", IN_PLACE),
            },
        };
        Agent {
            name: section.name.clone(),
            place,
            baseline: self.text("baseline").unwrap_or_default(),
            archive_subdir: self.text("archive_subdir").unwrap_or_default(),
            protect: self.protect(),
            max_memory_size: self.number("max_memory_size").unwrap_or_default(),
            separator: self.text("separator").unwrap_or_default(),
            every: self.text("every"),
            line: section.spot.line,
        }
    }

    fn extensions(&self, key: &str) -> Vec<Extension> {
        let listed = |it: &Extension| self.has_word(key, it.word());
        Extension::ALL.into_iter().filter(listed).collect()
    }

    /// Whether a word is in the list of a key.
    fn has_word(&self, key: &str, word: &str) -> bool {
        let words = self.text(key).unwrap_or_default();
        words.split(", ").any(|it| it == word)
    }

    fn protect(&self) -> Protect {
        match self.text("protect").as_deref() {
            Some("typed") => Protect::Typed,
            Some("readonly") => Protect::ReadOnly,
            _ => Protect::None,
        }
    }
}
