//! The effective values of a section of the config, and the settings that they make.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::alert_settings::{
    AlertKind, AlertSettings, JournalTarget, parse_percent, parse_time_span,
};
use super::ini::SourceLine;
use super::keys::{
    CONFIG_KEYS, KEYS_NOT_INHERITED, KeySpec, KeyValue, PathBases, RESET_KEYS, SectionKind,
};
use super::{
    ACCEPT_IN_PLACE, Agent, AgentLayout, FindingsPolicy, GeneralSettings, LintConfig, Protection,
    RemoteAccess, ResetMemory, SealRequirement, SftpExtension, SshHost,
};
use crate::base::reset_interval::ResetInterval;
use crate::lint::{RuleId, Severity};

/// An effective value, as `config show` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EffectiveValue {
    /// `general`, or the name of the agent.
    pub section: String,
    /// The key, under its current name.
    pub key: &'static str,
    /// The value, paths absolute.
    pub value: String,
    /// Origin of the value. For a value that an agent inherits from the fleet, this is the line in
    /// `[general]`.
    pub origin: ValueOrigin,
}

/// Origin of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueOrigin {
    /// No line of the file sets the value.
    Default,
    /// The line that sets the value, counted from 1.
    Line(usize),
}

/// The value of a key in the file.
pub(super) enum KeySlot<'t> {
    /// A value, and the line that sets it.
    Set(KeyValue, SourceLine<'t>),
    /// A line without a value.
    Empty(SourceLine<'t>),
    /// The key has a diagnostic: it is neither usable nor missing.
    Invalid,
}

/// The values of the keys in a section: few, so that finding one compares few names.
#[derive(Default)]
pub(super) struct KeySlots<'t>(Vec<(&'static str, KeySlot<'t>)>);

impl<'t> KeySlots<'t> {
    pub(super) fn get(&self, key: &str) -> Option<&KeySlot<'t>> {
        let found = self.0.iter().find(|(of, _)| *of == key);
        found.map(|(_, slot)| slot)
    }

    /// Sets the value of a key in place of an earlier one.
    pub(super) fn insert(&mut self, key: &'static str, slot: KeySlot<'t>) {
        self.take(key);
        self.0.push((key, slot));
    }

    /// Sets the value of a key that has none.
    pub(super) fn insert_if_absent(&mut self, key: &'static str, slot: KeySlot<'t>) {
        if self.get(key).is_none() {
            self.0.push((key, slot));
        }
    }

    fn take(&mut self, key: &str) -> Option<KeySlot<'t>> {
        let at = self.0.iter().position(|(of, _)| *of == key)?;
        Some(self.0.swap_remove(at).1)
    }
}

/// Whether the file sets a key, even to an invalid value.
pub(super) fn is_given(slots: &KeySlots<'_>, key: &str) -> bool {
    matches!(slots.get(key), Some(KeySlot::Set(..) | KeySlot::Invalid))
}

/// The effective values of all sections.
#[derive(Clone, Debug)]
pub(super) struct ResolvedSections {
    pub(super) general: ResolvedSection,
    pub(super) lint: ResolvedSection,
    /// None without such a section.
    pub(super) alerts: Option<ResolvedSection>,
    /// Those of the agents, in their order.
    pub(super) agents: Vec<ResolvedSection>,
}

/// A key, its value, and where that comes from.
type ResolvedValue = (&'static str, KeyValue, ValueOrigin);

/// The values that sections of a kind have where they set none: those of the fleet, or defaults.
#[derive(Clone, Debug)]
pub(super) struct InheritedValues {
    kind: SectionKind,
    /// In the order of the table.
    values: Arc<[ResolvedValue]>,
}

impl InheritedValues {
    /// Precedence: the value of the fleet, the default of the table.
    pub(super) fn new(
        base: &PathBases,
        kind: SectionKind,
        fleet: Option<&ResolvedSection>,
    ) -> InheritedValues {
        let values = keys_of(kind).filter_map(|doc| {
            let fleet = fleet.filter(|_| !KEYS_NOT_INHERITED.contains(&doc.name));
            if let Some((value, origin)) = fleet.and_then(|fleet| fleet.find(doc.name)) {
                return Some((doc.name, value.clone(), origin));
            }
            let has_default = !doc.default.is_empty();
            let value = has_default.then(|| base.parse_value(doc.shape, doc.default).ok());
            Some((doc.name, value.flatten()?, ValueOrigin::Default))
        });
        InheritedValues {
            kind,
            values: values.collect(),
        }
    }
}

/// The effective values of a section.
#[derive(Clone, Debug)]
pub(super) struct ResolvedSection {
    /// Those of its own, in the order of the table.
    own: Box<[ResolvedValue]>,
    inherited: InheritedValues,
}

/// Returns the keys that have an effect in sections of a kind.
fn keys_of(kind: SectionKind) -> impl Iterator<Item = &'static KeySpec> {
    let keys = CONFIG_KEYS.iter();
    keys.filter(move |doc| doc.section.has_effect_in(kind))
}

fn find_value<'v>(values: &'v [ResolvedValue], key: &str) -> Option<&'v ResolvedValue> {
    values.iter().find(|(of, ..)| *of == key)
}

impl ResolvedSection {
    /// Precedence: the line of the file, a computed default, the inherited value. The keys with
    /// computed defaults are those of the section alone.
    pub(super) fn new(
        mut slots: KeySlots<'_>,
        computed: &[(&str, KeyValue)],
        inherited: &InheritedValues,
    ) -> ResolvedSection {
        let own = keys_of(inherited.kind).filter_map(|doc| {
            if let Some(KeySlot::Set(value, source)) = slots.take(doc.name) {
                return Some((doc.name, value, ValueOrigin::Line(source.number)));
            }
            let (_, value) = computed.iter().find(|(key, _)| *key == doc.name)?;
            Some((doc.name, value.clone(), ValueOrigin::Default))
        });
        ResolvedSection {
            own: own.collect(),
            inherited: inherited.clone(),
        }
    }

    /// Returns the origin of the value of a key, if it has one.
    pub(super) fn origin(&self, key: &str) -> Option<ValueOrigin> {
        self.find(key).map(|(_, origin)| origin)
    }

    fn find(&self, key: &str) -> Option<(&KeyValue, ValueOrigin)> {
        let inherited = || find_value(&self.inherited.values, key);
        let (_, value, origin) = find_value(&self.own, key).or_else(inherited)?;
        Some((value, *origin))
    }

    fn text(&self, key: &str) -> Option<String> {
        self.find(key).map(|(value, _)| value.to_string())
    }

    /// Returns the value of a key whose values are words.
    fn word(&self, key: &str) -> Option<&str> {
        match self.find(key)? {
            (KeyValue::Text(word), _) => Some(word),
            _ => None,
        }
    }

    fn path(&self, key: &str) -> Option<PathBuf> {
        match self.find(key)? {
            (KeyValue::Path(path), _) => Some(path.clone()),
            _ => None,
        }
    }

    fn number<T: TryFrom<u64>>(&self, key: &str) -> Option<T> {
        match self.find(key)? {
            (KeyValue::Number(number), _) => T::try_from(*number).ok(),
            (KeyValue::PermissionBits(bits), _) => T::try_from(u64::from(*bits)).ok(),
            _ => None,
        }
    }

    fn interval(&self, key: &str) -> Option<ResetInterval> {
        match self.find(key)? {
            (KeyValue::Interval(interval), _) => Some(*interval),
            _ => None,
        }
    }

    pub(super) fn effective_values(&self, section: &str) -> Vec<EffectiveValue> {
        let entries = keys_of(self.inherited.kind).filter_map(|doc| {
            let (value, origin) = self.find(doc.name)?;
            Some(EffectiveValue {
                section: section.to_string(),
                key: doc.name,
                value: value.to_string(),
                origin,
            })
        });
        entries.collect()
    }

    /// The getters return an empty value only for a key without a default in the table; a test
    /// checks that all other keys have one.
    pub(super) fn to_general_settings(&self) -> GeneralSettings {
        GeneralSettings {
            baseline_dir: self.path("baseline_dir").unwrap_or_default(),
            archive_dir: self.path("archive_dir").unwrap_or_default(),
            archive_id: self.text("archive_id").and_then(|id| id.parse().ok()),
            max_memory_size: self.number("max_memory_size").unwrap_or_default(),
            min_baseline_size: self.number("min_baseline_size").unwrap_or_default(),
            archive_retention_days: self.number("archive_retention_days").unwrap_or_default(),
            separator: self.text("separator").unwrap_or_default(),
            fleet_name: self.text("fleet_name").unwrap_or_default(),
            fleet_tag: self.text("fleet_tag"),
            protect: self.protect_level(),
            require_seal: match self.word("require_seal") {
                Some("always") => SealRequirement::Always,
                Some("signed") => SealRequirement::Signed,
                Some("never") => SealRequirement::Never,
                _ => SealRequirement::IfPresent,
            },
            seal_signers: self.path("seal_signers"),
            local_timeout: self.number("local_timeout").unwrap_or_default(),
            remote_timeout: self.number("remote_timeout").unwrap_or_default(),
            remote_poll: self.number("remote_poll").unwrap_or_default(),
            archive_mode: self.number("archive_mode").unwrap_or_default(),
            archive_group: self.text("archive_group"),
            archive_findings: self.findings_policy(),
            every: self.interval("every").unwrap_or_default(),
            theme: self.text("theme").unwrap_or_default(),
        }
    }

    pub(super) fn to_lint_config(&self) -> LintConfig {
        let words = |key: &str| {
            let text = self.text(key).unwrap_or_default();
            let words: Vec<String> = text.split(", ").map(str::to_string).collect();
            words
        };
        let severities = words("severity").into_iter().filter_map(|item| {
            let (rule, severity) = item.split_once('=')?;
            Some((RuleId::parse(rule)?, Severity::parse(severity)?))
        });
        LintConfig {
            is_tiny: self.has_word("profile", "tiny"),
            is_right_to_left: self.has_word("profile", "right-to-left"),
            ignored_rules: words("ignore")
                .iter()
                .filter_map(|it| RuleId::parse(it))
                .collect(),
            severities: severities.collect(),
            allow_file: self.path("allow"),
            accepted_file: self.path("accepted"),
            words_directory: self.path("words"),
        }
    }

    /// Returns the settings of alerts. `directory` is that of the config.
    pub(super) fn to_alert_settings(&self, directory: &Path) -> AlertSettings {
        let time_span = |key: &str| {
            let text = self.text(key).unwrap_or_default();
            Duration::from_secs(parse_time_span(&text).unwrap_or_default())
        };
        let kinds = self.text("on").unwrap_or_default();
        let percent = self.text("disk_below").as_deref().and_then(parse_percent);
        AlertSettings {
            kinds: kinds.split(", ").filter_map(AlertKind::parse).collect(),
            command: self
                .text("command")
                .and_then(|it| shell_words::split(&it).ok()),
            directory: directory.to_path_buf(),
            url: self.text("url"),
            journal: match self.find("journal") {
                Some((KeyValue::Path(path), _)) => JournalTarget::Socket(path.clone()),
                Some((KeyValue::Text(text), _)) if text == "yes" => JournalTarget::System,
                _ => JournalTarget::None,
            },
            unreachable_after: time_span("unreachable_after"),
            disk_below_percent: percent.unwrap_or_default(),
            repeat_after: Some(time_span("repeat_after")).filter(|it| !it.is_zero()),
            max_per_hour: self.number("max_per_hour").unwrap_or_default(),
        }
    }

    pub(super) fn to_agent(&self, name: &str, section_line: usize, kind: SectionKind) -> Agent {
        let layout = self.text("layout").zip(self.path("memory_dir"));
        // An agent whose baseline is missing by mistake is one that is reset.
        let is_layout_meant = ["layout", "memory_dir"]
            .iter()
            .any(|key| self.find(key).is_some());
        let has_reset = !is_layout_meant || RESET_KEYS.iter().any(|key| self.find(key).is_some());
        let remote = (kind == SectionKind::RemoteAgent).then(|| RemoteAccess {
            host: SshHost {
                name: self.text("remote_host").unwrap_or_default(),
                user: self.text("remote_user"),
                port: self.number("remote_port"),
                identity_file: self.path("identity_file"),
                timeout_seconds: self.number("remote_timeout").unwrap_or_default(),
            },
            poll_seconds: self.number("remote_poll").unwrap_or_default(),
            accept_degraded: self.extension_list("accept_degraded"),
        });
        let memory_key = match remote {
            Some(_) => "remote_memory",
            None => "memory_file",
        };
        let reset = has_reset.then(|| ResetMemory {
            path: self.path(memory_key).unwrap_or_default(),
            baseline: self.text("baseline").unwrap_or_default(),
            separator: self.text("separator").unwrap_or_default(),
            max_size: self.number("max_memory_size").unwrap_or_default(),
            is_shared: self.word("shared") != Some("no"),
            accept_in_place: remote.is_none() && self.has_word("accept_degraded", ACCEPT_IN_PLACE),
            own_interval: self.interval("every"),
        });
        Agent {
            name: name.to_string(),
            remote,
            reset,
            layout: layout.map(|(name, directory)| AgentLayout {
                name,
                directory,
                reference: self.text("memory_ref"),
                state_directory: self.path("state_dir"),
            }),
            archive_subdir: self.text("archive_subdir").unwrap_or_default(),
            archive_findings: self.findings_policy(),
            protect: self.protect_level(),
            section_line,
        }
    }

    fn extension_list(&self, key: &str) -> Vec<SftpExtension> {
        let listed = |it: &SftpExtension| self.has_word(key, it.as_str());
        SftpExtension::ALL.into_iter().filter(listed).collect()
    }

    /// Whether a word is in the list of a key.
    fn has_word(&self, key: &str, word: &str) -> bool {
        let words = self.word(key).unwrap_or_default();
        words.split(", ").any(|it| it == word)
    }

    fn findings_policy(&self) -> FindingsPolicy {
        match self.word("archive_findings") {
            Some("quarantine") => FindingsPolicy::Quarantine,
            Some("redact-copy") => FindingsPolicy::RedactCopy,
            _ => FindingsPolicy::Record,
        }
    }

    fn protect_level(&self) -> Protection {
        match self.word("protect") {
            Some("typed") => Protection::Typed,
            Some("readonly") => Protection::ReadOnly,
            _ => Protection::None,
        }
    }
}
