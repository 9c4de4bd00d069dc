//! The table of all keys of the config, and the parsers of their values.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt;
use std::path::{Component, Path, PathBuf};

use super::agent::DEFAULT_SEPARATOR;
use super::alert_settings::{AlertKind, AlertShape};
use super::baseline_name::is_seal_file;
use super::command_words::expand_home_in_command;
use super::{ACCEPT_IN_PLACE, SftpExtension, strip_dot_components};
use crate::archive::QUARANTINE_DIRECTORY_NAME;
use crate::base::digest::Digest;
use crate::base::reset_interval::{IntervalFault, ResetInterval};
use crate::lint::{RULES, Rule, RuleId, Severity};

/// The kind of section that a key belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectionKind {
    /// In `[general]`.
    General,
    /// In `[lint]`.
    Lint,
    /// In `[alerts]`.
    Alerts,
    /// In the section of any agent.
    AnyAgent,
    /// In the section of an agent on this machine.
    LocalAgent,
    /// In the section of an agent on another host.
    RemoteAgent,
}

impl SectionKind {
    /// Returns whether a key of this kind has an effect in a section of `kind`.
    pub(super) fn has_effect_in(self, kind: SectionKind) -> bool {
        self == kind || (self == SectionKind::AnyAgent && kind.is_agent())
    }

    fn is_agent(self) -> bool {
        !matches!(
            self,
            SectionKind::General | SectionKind::Lint | SectionKind::Alerts
        )
    }
}

/// Shape of a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum ValueShape {
    Text,
    /// A word for the arguments of `ssh` and similar programs.
    SingleWord,
    Host,
    Separator,
    Directory,
    File,
    RemoteFile,
    Baseline,
    ArchiveSubdirectory,
    Number(u64, u64, NumberUnit),
    PermissionBits,
    Interval,
    /// The digest that is the id of an archive.
    ArchiveId,
    Choice(&'static [&'static str]),
    /// A list of these words, separated by commas.
    ChoiceList(&'static [&'static str]),
    /// A list of lint rules, separated by commas.
    LintRules,
    /// A list of lint rules with their severities, separated by commas.
    LintSeverities,
    /// A value of `[alerts]`.
    Alert(AlertShape),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberUnit {
    Bytes,
    Days,
    Seconds,
    Port,
    Alerts,
}

/// Unit suffixes after a number, with their factor.
#[rustfmt::skip]
const UNIT_SUFFIXES: &[(NumberUnit, &[&str], u64)] = &[
    (NumberUnit::Bytes, &["", "b", "byte", "bytes"], 1),
    (NumberUnit::Bytes, &["k", "kb", "kib"], 1 << 10),
    (NumberUnit::Bytes, &["m", "mb", "mib"], 1 << 20),
    (NumberUnit::Bytes, &["g", "gb", "gib"], 1 << 30),
    (NumberUnit::Days, &["", "d", "day", "days"], 1),
    (NumberUnit::Days, &["w", "week", "weeks"], 7),
    (NumberUnit::Seconds, &["", "s", "sec", "second", "seconds"], 1),
    (NumberUnit::Seconds, &["m", "min", "minute", "minutes"], 60),
    (NumberUnit::Seconds, &["h", "hour", "hours"], 3600),
];

/// Specification of a key, for the parser and the documentation.
#[derive(Clone, Copy, Debug)]
pub struct KeySpec {
    /// Kind of section.
    pub section: SectionKind,
    /// Name of the key.
    pub name: &'static str,
    /// Whether an agent requires the key.
    pub is_required: bool,
    /// Default value; empty: unset, inherited from `[general]`, or as `description` says.
    pub default: &'static str,
    /// Description in one line.
    pub description: &'static str,
    pub(super) shape: ValueShape,
}

impl KeySpec {
    /// Returns whether the key is allowed in a section of kind `scope`: `[general]`, `[lint]`, or an
    /// agent, also at a location where it has no effect.
    pub(super) fn is_allowed_in(&self, scope: SectionKind) -> bool {
        self.section == scope || self.section.is_agent() && scope.is_agent()
    }
}

const fn optional_key(
    scope: SectionKind,
    key: &'static str,
    shape: ValueShape,
    default: &'static str,
    doc: &'static str,
) -> KeySpec {
    let required = false;
    KeySpec {
        section: scope,
        name: key,
        is_required: required,
        default,
        description: doc,
        shape,
    }
}

const fn required_key(
    scope: SectionKind,
    key: &'static str,
    shape: ValueShape,
    doc: &'static str,
) -> KeySpec {
    KeySpec {
        section: scope,
        name: key,
        is_required: true,
        default: "",
        description: doc,
        shape,
    }
}

const SIZE_SHAPE: ValueShape = ValueShape::Number(1, 1 << 40, NumberUnit::Bytes);
const POLL_SHAPE: ValueShape = ValueShape::Number(1, 86_400, NumberUnit::Seconds);
const TIMEOUT_SHAPE: ValueShape = ValueShape::Number(1, 3_600, NumberUnit::Seconds);
const PROTECT_SHAPE: ValueShape = ValueShape::Choice(&["none", "typed", "readonly"]);
const ACCEPT_DEGRADED_SHAPE: ValueShape = ValueShape::ChoiceList(&[
    SftpExtension::PosixRename.as_str(),
    SftpExtension::Hardlink.as_str(),
    SftpExtension::Fsync.as_str(),
    ACCEPT_IN_PLACE,
]);
const FINDINGS_SHAPE: ValueShape = ValueShape::Choice(&["record", "quarantine", "redact-copy"]);
const TIME_SPAN_SHAPE: ValueShape = ValueShape::Alert(AlertShape::TimeSpan);
const SEAL_SHAPE: ValueShape = ValueShape::Choice(&["if-present", "always", "signed", "never"]);

/// All keys, in the order of `config show`.
#[rustfmt::skip]
pub(super) const CONFIG_KEYS: &[KeySpec] = &[
    optional_key(SectionKind::General, "baseline_dir", ValueShape::Directory, "./baselines", "directory of the baselines"),
    optional_key(SectionKind::General, "archive_dir", ValueShape::Directory, "./archives", "directory of the archive"),
    optional_key(SectionKind::General, "archive_id", ValueShape::ArchiveId, "", "the archive that has to be in archive_dir; doctor prints it"),
    optional_key(SectionKind::General, "max_memory_size", SIZE_SHAPE, "16384", "bytes; a larger memory is OVERSIZE"),
    optional_key(SectionKind::General, "min_baseline_size", ValueShape::Number(0, 1 << 40, NumberUnit::Bytes), "1000", "bytes; a smaller baseline is never pushed"),
    optional_key(SectionKind::General, "archive_retention_days", ValueShape::Number(1, 36_500, NumberUnit::Days), "30", "days after which an entry is deleted"),
    optional_key(SectionKind::General, "separator", ValueShape::Separator, DEFAULT_SEPARATOR, "the line between baseline and scratch, compared literally"),
    optional_key(SectionKind::General, "fleet_name", ValueShape::Text, "", "name typed to confirm a plan of the whole fleet; default: the stem of the config file"),
    optional_key(SectionKind::General, "fleet_tag", ValueShape::Text, "", "tag such as PROD in the header of every screen"),
    optional_key(SectionKind::General, "protect", PROTECT_SHAPE, "none", "typed: confirmed on screen by typing the agent's name; readonly: resets are refused"),
    optional_key(SectionKind::General, "require_seal", SEAL_SHAPE, "if-present", "requirement on the seal for a baseline to be pushed"),
    optional_key(SectionKind::General, "seal_signers", ValueShape::File, "", "allowed-signers file of the keys that may sign the seal"),
    optional_key(SectionKind::General, "local_timeout", TIMEOUT_SHAPE, "30", "timeout of a file system of this machine, in seconds"),
    optional_key(SectionKind::General, "remote_timeout", TIMEOUT_SHAPE, "15", "timeout of a remote host, in seconds"),
    optional_key(SectionKind::General, "remote_poll", POLL_SHAPE, "10", "interval between two polls of a remote memory, in seconds"),
    optional_key(SectionKind::General, "archive_mode", ValueShape::PermissionBits, "0600", "permission bits of entries; 0640 when archive_group is set"),
    optional_key(SectionKind::General, "archive_group", ValueShape::SingleWord, "", "the group whose members may read the archive"),
    optional_key(SectionKind::General, "archive_findings", FINDINGS_SHAPE, "record", "entries with secrets or injections: recorded; quarantine: only the owner can read them; redact-copy: also a copy without the secrets"),
    optional_key(SectionKind::General, "every", ValueShape::Interval, "3h", "interval of the scheduled resets of all agents without one of their own"),
    optional_key(SectionKind::General, "theme", ValueShape::Text, "terminal", "the theme of the screens"),
    optional_key(SectionKind::Lint, "profile", ValueShape::ChoiceList(&["tiny", "right-to-left"]), "", "tiny: small baselines are meant so; right-to-left: the fleet writes such scripts"),
    optional_key(SectionKind::Lint, "ignore", ValueShape::LintRules, "", "rules that are not checked, by number or name"),
    optional_key(SectionKind::Lint, "severity", ValueShape::LintSeverities, "", "rules with another severity, such as MS403=warning"),
    optional_key(SectionKind::Lint, "allow", ValueShape::File, "", "a TOML file of findings that are allowed, with reason and last day"),
    optional_key(SectionKind::Lint, "accepted", ValueShape::File, "", "findings that are known, as `lint --format json` prints them; only new ones are reported"),
    optional_key(SectionKind::Lint, "words", ValueShape::Directory, "", "directory of word lists that replace those of the program; `lint words` lists them"),
    optional_key(SectionKind::Alerts, "on", ValueShape::ChoiceList(&AlertKind::NAMES), AlertKind::ALL_NAMES, "events that raise an alert"),
    optional_key(SectionKind::Alerts, "command", ValueShape::Alert(AlertShape::Command), "", "program with arguments that gets the event as JSON on its standard input"),
    optional_key(SectionKind::Alerts, "url", ValueShape::Alert(AlertShape::Url), "", "address that the event is posted to as JSON"),
    optional_key(SectionKind::Alerts, "journal", ValueShape::Alert(AlertShape::Journal), "no", "yes: events go to the journal, or to syslog without one; a path: to the journal's socket there"),
    optional_key(SectionKind::Alerts, "unreachable_after", TIME_SPAN_SHAPE, "1h", "how long a host is unreachable before that is an event"),
    optional_key(SectionKind::Alerts, "disk_below", ValueShape::Alert(AlertShape::Percent), "10%", "free space of the archive's file system below which that is an event"),
    optional_key(SectionKind::Alerts, "repeat_after", TIME_SPAN_SHAPE, "24h", "time after which an event that still holds is alerted again; 0: never"),
    optional_key(SectionKind::Alerts, "max_per_hour", ValueShape::Number(1, 1000, NumberUnit::Alerts), "20", "alerts an hour; further ones wait"),
    required_key(SectionKind::LocalAgent, "memory_file", ValueShape::File, "the agent's memory; on another machine: remote_host and remote_memory"),
    optional_key(SectionKind::AnyAgent, "layout", ValueShape::SingleWord, "", "the layout of the agent's memory of several files in memory_dir"),
    // Its shape depends on where the agent is.
    optional_key(SectionKind::AnyAgent, "memory_dir", ValueShape::Text, "", "the directory of that memory, on remote_host if that is given"),
    optional_key(SectionKind::AnyAgent, "memory_ref", ValueShape::SingleWord, "", "the Git branch that holds that memory, in the repository memory_dir of this machine, for layouts that read one"),
    // As memory_dir.
    optional_key(SectionKind::AnyAgent, "state_dir", ValueShape::Text, "", "the directory of the agent's own program, for layouts that look at it"),
    required_key(SectionKind::AnyAgent, "baseline", ValueShape::Baseline, "the baseline's file name inside baseline_dir"),
    optional_key(SectionKind::AnyAgent, "archive_subdir", ValueShape::ArchiveSubdirectory, "", "directory inside archive_dir; default: the agent's name"),
    optional_key(SectionKind::AnyAgent, "archive_findings", FINDINGS_SHAPE, "", "as in [general], for this agent"),
    required_key(SectionKind::RemoteAgent, "remote_host", ValueShape::Host, "the host that remote_memory is on, or a Host alias of the SSH config"),
    optional_key(SectionKind::RemoteAgent, "remote_user", ValueShape::SingleWord, "", "the SSH user"),
    required_key(SectionKind::RemoteAgent, "remote_memory", ValueShape::RemoteFile, "the agent's memory on remote_host"),
    optional_key(SectionKind::RemoteAgent, "remote_port", ValueShape::Number(1, 65_535, NumberUnit::Port), "", "the SSH port"),
    optional_key(SectionKind::RemoteAgent, "identity_file", ValueShape::File, "", "the private key for SSH"),
    optional_key(SectionKind::AnyAgent, "protect", PROTECT_SHAPE, "", "as in [general], for this agent"),
    optional_key(SectionKind::AnyAgent, "max_memory_size", SIZE_SHAPE, "", "as in [general], for this agent"),
    optional_key(SectionKind::AnyAgent, "separator", ValueShape::Separator, "", "as in [general], for this agent"),
    optional_key(SectionKind::AnyAgent, "shared", ValueShape::Choice(&["yes", "no"]), "", "no: the agent writes no notes into the file, so its baseline needs no separator; default: yes"),
    optional_key(SectionKind::AnyAgent, "every", ValueShape::Interval, "", "interval of its scheduled resets, by a timer of its own; default: as in [general], together with the others"),
    optional_key(SectionKind::RemoteAgent, "remote_poll", POLL_SHAPE, "", "as in [general], for this agent"),
    optional_key(SectionKind::RemoteAgent, "remote_timeout", TIMEOUT_SHAPE, "", "as in [general], for the host of this agent; of several, the longest applies"),
    optional_key(SectionKind::AnyAgent, "accept_degraded", ACCEPT_DEGRADED_SHAPE, "", "degraded promises accepted: what its host's SFTP server may lack, such as fsync; in-place for a memory that is a mount point"),
];

/// Keys of `[general]` that an agent does not inherit: setting them in its section means more than
/// the value. An agent with an interval of its own has a timer of its own.
pub(super) const KEYS_NOT_INHERITED: &[&str] = &["every"];

/// The keys of an agent that has a memory which is reset.
pub(super) const RESET_KEYS: &[&str] = &["memory_file", "remote_memory", "baseline"];

/// Other accepted names of keys (those of the original tool, and former ones), and the current
/// name.
const KEY_ALIASES: &[(&str, &str)] = &[
    ("remote_scp_timeout", "remote_timeout"),
    ("accept_weaker", "accept_degraded"),
];

/// Returns all keys of the config, for the documentation.
pub fn keys() -> &'static [KeySpec] {
    CONFIG_KEYS
}

/// Returns the current name of a key that may be written with another name.
pub(super) fn canonical_key(key: &str) -> &str {
    let alias = KEY_ALIASES.iter().find(|(alias, _)| *alias == key);
    alias.map_or(key, |(_, current)| *current)
}

/// Maximum length in bytes of a name that is checked for misspelling; comparing costs the length of
/// the name for each character of each candidate.
const MAX_MISSPELT_BYTES: usize = 256;

/// Minimum similarity of two names for a suggestion.
const MIN_SIMILARITY: f64 = 0.8;

/// Returns the candidate most similar to `name`, if one is similar enough.
pub(crate) fn closest_match<'a>(
    name: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    if name.len() > MAX_MISSPELT_BYTES {
        return None;
    }
    let name = name.to_lowercase();
    let score = |it: &str| {
        let it = it.to_lowercase();
        let similarity = strsim::jaro_winkler(&name, &it);
        // Jaro-Winkler underrates two swapped letters in a short word.
        let has_comparable_length =
            name.len().min(it.len()) > 2 && name.len().abs_diff(it.len()) < 2;
        if similarity < MIN_SIMILARITY
            && has_comparable_length
            && strsim::osa_distance(&name, &it) == 1
        {
            MIN_SIMILARITY
        } else {
            similarity
        }
    };
    let scored = candidates.map(|it| (score(it), it));
    let matches = scored.filter(|(score, _)| *score >= MIN_SIMILARITY);
    matches.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, it)| it)
}

/// A checked value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KeyValue {
    Text(String),
    Path(PathBuf),
    Number(u64),
    PermissionBits(u32),
    Interval(ResetInterval),
}

impl KeyValue {
    /// Returns the value as `config show` prints it.
    fn to_text(&self) -> Cow<'_, str> {
        match self {
            KeyValue::Text(text) => Cow::Borrowed(text),
            KeyValue::Path(path) => path.to_string_lossy(),
            KeyValue::Number(number) => Cow::Owned(number.to_string()),
            KeyValue::PermissionBits(bits) => Cow::Owned(format!("{bits:04o}")),
            KeyValue::Interval(interval) => Cow::Owned(interval.to_string()),
        }
    }
}

impl fmt::Display for KeyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text())
    }
}

/// Fault of a value, to be read after the name of its key, and a hint.
pub(super) type KeyFault = (String, Option<String>);

fn key_fault<T>(what: impl Into<String>, hint: impl Into<String>) -> Result<T, KeyFault> {
    Err((what.into(), Some(hint.into())))
}

/// Base directories of relative paths and of `~`.
#[derive(Clone, Copy)]
pub(super) struct PathBases<'a> {
    pub(super) directory: &'a Path,
    pub(super) home: Option<&'a Path>,
}

impl PathBases<'_> {
    /// Parses a text as a value of a shape.
    pub(super) fn parse_value(&self, shape: ValueShape, text: &str) -> Result<KeyValue, KeyFault> {
        if text.contains('\0') {
            return key_fault("contains a NUL character", "remove it");
        }
        let value = match shape {
            ValueShape::Text => Ok(KeyValue::Text(text.to_string())),
            ValueShape::SingleWord => parse_single_word(text),
            ValueShape::Host => parse_host(text),
            ValueShape::Separator => parse_separator(text),
            ValueShape::Directory => self.parse_local_path(text),
            ValueShape::File => check_names_file(text).and_then(|()| self.parse_local_path(text)),
            ValueShape::RemoteFile => check_names_file(text).and_then(|()| parse_remote_path(text)),
            ValueShape::Baseline => parse_baseline(text),
            ValueShape::ArchiveSubdirectory => parse_archive_subdirectory(text),
            ValueShape::Number(min, max, unit) => parse_number(text, min, max, unit),
            ValueShape::PermissionBits => parse_permission_bits(text),
            ValueShape::Interval => parse_interval(text),
            ValueShape::ArchiveId => parse_archive_id(text),
            ValueShape::Choice(words) => parse_choice(text, words),
            ValueShape::ChoiceList(words) => parse_choice_list(text, words),
            ValueShape::LintRules => parse_lint_rules(text),
            ValueShape::LintSeverities => parse_lint_severities(text),
            ValueShape::Alert(shape) => self.parse_alert_value(shape, text),
        };
        value.and_then(|value| check_round_trip(text, value))
    }

    /// Parses a value of `[alerts]`. Its text stays as it is, but for the path of a socket and
    /// `~/` in a command.
    fn parse_alert_value(&self, shape: AlertShape, text: &str) -> Result<KeyValue, KeyFault> {
        if shape == AlertShape::Journal && text.contains('/') {
            return check_names_file(text).and_then(|()| self.parse_local_path(text));
        }
        let is_command = shape == AlertShape::Command;
        let home = self.home.and_then(Path::to_str).filter(|_| is_command);
        match shape.check(text) {
            Ok(()) => Ok(KeyValue::Text(match home {
                Some(home) => expand_home_in_command(text, home),
                None => text.to_string(),
            })),
            Err((fault, hint)) => key_fault(fault, hint),
        }
    }

    /// Parses a path on this machine; the result is absolute.
    fn parse_local_path(&self, text: &str) -> Result<KeyValue, KeyFault> {
        let path = match text.strip_prefix('~') {
            None => self.directory.join(text),
            Some(rest) if rest.is_empty() || rest.starts_with('/') => match self.home {
                Some(home) => home.join(rest.trim_start_matches('/')),
                None => {
                    return key_fault(
                        "starts with `~`, but no home is known",
                        "write the full path",
                    );
                }
            },
            Some(_) => return other_home_fault(text),
        };
        Ok(KeyValue::Path(strip_dot_components(&path)))
    }
}

/// Fault: `~NAME`, the home of another user.
fn other_home_fault<T>(text: &str) -> Result<T, KeyFault> {
    key_fault(
        format!("is `{text}`, and only `~/` can be expanded"),
        "write the full path, or ./~… for a name that starts with `~`",
    )
}

/// Parses a path on another host; it stays as configured.
fn parse_remote_path(text: &str) -> Result<KeyValue, KeyFault> {
    if text.starts_with('~') && !text.starts_with("~/") {
        return other_home_fault(text);
    }
    let path = Path::new(text);
    if path.components().any(|part| part == Component::ParentDir) {
        return key_fault(
            format!("is `{text}`, and the target of `..` depends on symlinks there"),
            "write the path without `..`",
        );
    }
    check_path_length(path)?;
    Ok(KeyValue::Path(path.to_path_buf()))
}

/// Checks that `config show` prints a value that has the same meaning when read again: without its
/// `./` or its last `/`, a path may begin or end with text that is trimmed or expanded.
fn check_round_trip(text: &str, value: KeyValue) -> Result<KeyValue, KeyFault> {
    let shown = value.to_text();
    if shown.trim() != shown || (shown.starts_with("~/") && !text.starts_with("~/")) {
        let fault = format!(
            "is the path `{shown}`, which begins with `~/`, or begins or ends with whitespace"
        );
        return key_fault(fault, "give it another name");
    }
    Ok(value)
}

/// A reset displaces the object at the path, so a directory is refused.
fn check_names_file(text: &str) -> Result<(), KeyFault> {
    match text.rsplit('/').next() {
        Some("" | "." | ".." | "~") => key_fault(
            format!("must name a file, and `{text}` is a directory"),
            "add the file's name",
        ),
        _ => Ok(()),
    }
}

/// Parses the name of a baseline.
fn parse_baseline(text: &str) -> Result<KeyValue, KeyFault> {
    check_names_file(text)?;
    let value = parse_relative_path(text, "baseline_dir")?;
    match &value {
        KeyValue::Text(name) if is_seal_file(name) => key_fault(
            format!("must not name a file of the seal, and `{text}` is one: `seal` overwrites it"),
            "give the baseline another name",
        ),
        _ => Ok(value),
    }
}

/// Parses a relative path that cannot leave its base directory.
fn parse_relative_path(text: &str, directory: &str) -> Result<KeyValue, KeyFault> {
    let path = Path::new(text);
    let can_stay_inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    if text.starts_with("~/") || !path.components().all(can_stay_inside) {
        let name = path.file_name().unwrap_or(OsStr::new("NAME"));
        return key_fault(
            format!("must stay inside {directory}, and `{text}` leaves it"),
            format!(
                "write a path relative to {directory}, such as {}",
                name.display()
            ),
        );
    }
    check_path_length(path)?;
    Ok(KeyValue::Text(
        strip_dot_components(path).display().to_string(),
    ))
}

/// Checks the limits of file systems for paths and names.
fn check_path_length(path: &Path) -> Result<(), KeyFault> {
    if path.components().any(|part| part.as_os_str().len() > 255) {
        return key_fault("has a name of more than 255 bytes", "write a shorter one");
    }
    if path.as_os_str().len() >= 4096 {
        return key_fault("is longer than 4,095 bytes", "write a shorter one");
    }
    Ok(())
}

fn parse_archive_subdirectory(text: &str) -> Result<KeyValue, KeyFault> {
    let value = parse_relative_path(text, "archive_dir")?;
    let path = value.to_string();
    let first = path.split('/').next().unwrap_or_default();
    if first.is_empty() {
        let hint = "write the name of a directory, or leave the key out for the agent's own name";
        return key_fault(
            "must name a directory inside archive_dir, not archive_dir itself",
            hint,
        );
    }
    let is_quarantine = path
        .split('/')
        .skip(1)
        .any(|name| name == QUARANTINE_DIRECTORY_NAME);
    let is_program_file =
        first.starts_with(".shepherd") || matches!(first, "reset.log" | "reset.log.old");
    if is_program_file || is_quarantine {
        return key_fault(
            format!("cannot be `{text}`, a name that the archive reserves"),
            "write another name",
        );
    }
    Ok(value)
}

/// Parses one rule of the lint.
fn parse_lint_rule(text: &str) -> Result<&'static Rule, KeyFault> {
    RuleId::parse(text).map(RuleId::rule).ok_or_else(|| {
        let names = RULES.iter().flat_map(|rule| [rule.id, rule.name]);
        let hint = match closest_match(text, names) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => "`memory-shepherd lint rules` lists them".to_string(),
        };
        (
            format!("has `{text}`, which is not a lint rule"),
            Some(hint),
        )
    })
}

/// Splits a list at its commas.
fn list_items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
}

fn parse_lint_rules(text: &str) -> Result<KeyValue, KeyFault> {
    let rules: Vec<&Rule> = list_items(text)
        .map(parse_lint_rule)
        .collect::<Result<_, _>>()?;
    if let Some(rule) = rules.iter().find(|rule| rule.blocks_resets) {
        return key_fault(
            format!("has {}, which can refuse a reset", rule.id),
            "remove it: such a finding must be corrected",
        );
    }
    let ids: Vec<&str> = rules.iter().map(|rule| rule.id).collect();
    Ok(KeyValue::Text(ids.join(", ")))
}

fn parse_lint_severities(text: &str) -> Result<KeyValue, KeyFault> {
    let mut items = Vec::new();
    for item in list_items(text) {
        let (rule, severity) = item.split_once('=').unwrap_or((item, ""));
        let rule = parse_lint_rule(rule.trim())?;
        let Some(severity) = Severity::parse(severity.trim()) else {
            return key_fault(
                format!("has `{item}`, which names no severity"),
                format!("write {}=info, {0}=warning or {0}=error", rule.id),
            );
        };
        items.push(format!("{}={severity}", rule.id));
    }
    Ok(KeyValue::Text(items.join(", ")))
}

/// Parses a host, user or group. A leading `-` would be an option of the program that gets the
/// word.
fn parse_single_word(text: &str) -> Result<KeyValue, KeyFault> {
    if text.starts_with('-') || text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return key_fault(
            format!("must be one word that does not start with `-`, not `{text}`"),
            "write the name alone",
        );
    }
    Ok(KeyValue::Text(text.to_string()))
}

/// Maximum length of a domain name, and of a host name, in bytes.
const MAX_HOST_BYTES: usize = 255;

/// Parses a host as `ssh` takes it: without port, brackets or scheme, which have keys of their own
/// or no meaning.
fn parse_host(text: &str) -> Result<KeyValue, KeyFault> {
    let host_hint = |name: &str| format!("write the host alone, `{name}`, without brackets");
    let host_and_port_hint = |name: &str, port: &str| match port.parse::<u16>() {
        Ok(port) => format!("write remote_host = {name} and remote_port = {port}"),
        Err(_) => format!("write remote_host = {name}; a port goes into remote_port"),
    };
    let (excess, hint) = if text.len() > MAX_HOST_BYTES {
        let what = format!("has more than {MAX_HOST_BYTES} bytes");
        return key_fault(
            what,
            "write a shorter one, such as a Host alias of the SSH config",
        );
    } else if let Some((scheme, rest)) = text.split_once("://") {
        let rest = rest.split('/').next().unwrap_or_default();
        let (name, port) = rest.rsplit_once(':').unwrap_or((rest, ""));
        (
            format!("the scheme {scheme}"),
            host_and_port_hint(name, port),
        )
    } else if let Some((name, rest)) = text.strip_prefix('[').and_then(|it| it.split_once(']')) {
        let hint = match rest.strip_prefix(':') {
            Some(port) => host_and_port_hint(name, port),
            None => host_hint(name),
        };
        ("brackets".to_string(), hint)
    } else if let Some((name, port)) = text.split_once(':').filter(|(_, it)| !it.contains(':')) {
        ("a port".to_string(), host_and_port_hint(name, port))
    } else {
        return parse_single_word(text);
    };
    key_fault(
        format!("must be a host name without {excess}: `{text}`"),
        hint,
    )
}

fn parse_separator(text: &str) -> Result<KeyValue, KeyFault> {
    if text.is_empty() {
        return key_fault(
            "is empty and would match every empty line",
            "write a line such as ---",
        );
    }
    if text.contains("\\n") || text.contains(|c: char| c.is_control() && c != '\t') {
        return key_fault(
            "must be one line, because it is compared with whole lines",
            "write a line such as ---; there are no escapes",
        );
    }
    Ok(KeyValue::Text(text.to_string()))
}

fn parse_number(text: &str, min: u64, max: u64, unit: NumberUnit) -> Result<KeyValue, KeyFault> {
    let is_decimal = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse::<u64>() {
        Ok(number) if is_decimal && (min..=max).contains(&number) => Ok(KeyValue::Number(number)),
        _ => {
            let (name, example) = match unit {
                NumberUnit::Bytes => ("bytes", "16384"),
                NumberUnit::Days => ("days", "30"),
                NumberUnit::Seconds => ("seconds", "15"),
                NumberUnit::Port => ("a port", "22"),
                NumberUnit::Alerts => ("a number of alerts", "20"),
            };
            let suggestion = parse_with_suffix(text, unit)
                .filter(|number| !is_decimal && (min..=max).contains(number));
            key_fault(
                format!("must be a whole number from {min} to {max}, not `{text}`"),
                match suggestion {
                    Some(number) => format!("write {name}: {number}"),
                    None => format!("write {name} in digits, such as {example}"),
                },
            )
        }
    }
}

/// Converts `16K`, `16,384` or `2 weeks` to the unit.
fn parse_with_suffix(text: &str, unit: NumberUnit) -> Option<u64> {
    let end = text
        .find(|c: char| !matches!(c, '0'..='9' | ',' | '_'))
        .unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    let number: u64 = digits.replace([',', '_'], "").parse().ok()?;
    let suffix = suffix.trim().to_lowercase();
    let is_known_suffix = |(of, names, _): &&(NumberUnit, &[&str], u64)| {
        *of == unit && names.contains(&suffix.as_str())
    };
    let (.., factor) = UNIT_SUFFIXES.iter().find(is_known_suffix)?;
    number.checked_mul(*factor)
}

fn parse_permission_bits(text: &str) -> Result<KeyValue, KeyFault> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    let is_octal = !digits.is_empty() && digits.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    match u32::from_str_radix(digits, 8) {
        Ok(bits) if is_octal && bits <= 0o777 && bits & 0o600 == 0o600 => {
            Ok(KeyValue::PermissionBits(bits))
        }
        _ => key_fault(
            format!(
                "must be octal permission bits up to 0777 that let the owner read and write, not `{text}`"
            ),
            "write 0600, or 0640 together with archive_group",
        ),
    }
}

fn parse_archive_id(text: &str) -> Result<KeyValue, KeyFault> {
    match text.parse::<Digest>() {
        Ok(id) => Ok(KeyValue::Text(id.to_string())),
        Err(_) => key_fault(
            "must have 64 hexadecimal digits",
            "copy the line that `doctor` prints",
        ),
    }
}

fn parse_interval(text: &str) -> Result<KeyValue, KeyFault> {
    let parsed = text.parse().map(KeyValue::Interval);
    parsed.map_err(|fault: IntervalFault| (fault.fault, Some(fault.hint)))
}

fn parse_choice(text: &str, words: &[&str]) -> Result<KeyValue, KeyFault> {
    if words.contains(&text) {
        return Ok(KeyValue::Text(text.to_string()));
    }
    let hint =
        closest_match(text, words.iter().copied()).map(|word| format!("did you mean `{word}`?"));
    let fault = format!("must be one of {}, not `{text}`", words.join(", "));
    Err((fault, hint))
}

fn parse_choice_list(text: &str, words: &[&str]) -> Result<KeyValue, KeyFault> {
    let listed = text.split(',').map(str::trim);
    let checked: Result<Vec<_>, KeyFault> = listed.map(|word| parse_choice(word, words)).collect();
    let texts: Vec<_> = checked?.iter().map(KeyValue::to_string).collect();
    Ok(KeyValue::Text(texts.join(", ")))
}
