//! The table of all keys, and what their values must look like.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Component, Path, PathBuf};

use super::{Extension, IN_PLACE, tidy};

/// Where a key may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectionKind {
    /// In `[general]`.
    General,
    /// In the section of any agent.
    Agent,
    /// In the section of an agent on this machine.
    Local,
    /// In the section of an agent on another host.
    Remote,
}

impl SectionKind {
    /// Whether a key of this scope has a meaning in a section of `place`.
    pub(super) fn covers(self, place: SectionKind) -> bool {
        self == place || (self == SectionKind::Agent && place != SectionKind::General)
    }
}

/// What a value must look like.
#[derive(Clone, Copy, Debug)]
pub(super) enum ValueShape {
    Text,
    /// Goes into the arguments of `ssh` and the like.
    Word,
    Host,
    Separator,
    Folder,
    File,
    RemoteFile,
    Baseline,
    Subdir,
    Number(u64, u64, Unit),
    Mode,
    Choice(&'static [&'static str]),
    /// Some of these, with commas in between.
    Words(&'static [&'static str]),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Bytes,
    Days,
    Seconds,
    Port,
}

/// What people write behind a number, and what it is worth in the unit.
#[rustfmt::skip]
const SUFFIXES: &[(Unit, &[&str], u64)] = &[
    (Unit::Bytes, &["", "b", "byte", "bytes"], 1),
    (Unit::Bytes, &["k", "kb", "kib"], 1 << 10),
    (Unit::Bytes, &["m", "mb", "mib"], 1 << 20),
    (Unit::Bytes, &["g", "gb", "gib"], 1 << 30),
    (Unit::Days, &["", "d", "day", "days"], 1),
    (Unit::Days, &["w", "week", "weeks"], 7),
    (Unit::Seconds, &["", "s", "sec", "second", "seconds"], 1),
    (Unit::Seconds, &["m", "min", "minute", "minutes"], 60),
    (Unit::Seconds, &["h", "hour", "hours"], 3600),
];

/// One key of the config: what the reader accepts and what the documentation
/// says about it.
#[derive(Clone, Copy, Debug)]
pub struct KeyDoc {
    /// Where it may stand.
    pub scope: SectionKind,
    /// Its name.
    pub key: &'static str,
    /// Whether an agent cannot do without it.
    pub required: bool,
    /// The text that it has when no line says otherwise; empty: unset, taken
    /// over from `[general]`, or as `doc` says.
    pub default: &'static str,
    /// What it is, in a line.
    pub doc: &'static str,
    pub(super) shape: ValueShape,
}

impl KeyDoc {
    /// Whether the key may stand in a section of that kind: `[general]`, or an
    /// agent of whatever place.
    pub(super) fn stands_with(&self, scope: SectionKind) -> bool {
        (self.scope == SectionKind::General) == (scope == SectionKind::General)
    }
}

const fn key(
    scope: SectionKind,
    key: &'static str,
    shape: ValueShape,
    default: &'static str,
    doc: &'static str,
) -> KeyDoc {
    let required = false;
    KeyDoc {
        scope,
        key,
        required,
        default,
        doc,
        shape,
    }
}

const fn required(
    scope: SectionKind,
    key: &'static str,
    shape: ValueShape,
    doc: &'static str,
) -> KeyDoc {
    KeyDoc {
        scope,
        key,
        required: true,
        default: "",
        doc,
        shape,
    }
}

const BYTES: ValueShape = ValueShape::Number(1, 1 << 40, Unit::Bytes);
const POLL: ValueShape = ValueShape::Number(1, 86_400, Unit::Seconds);
const TIMEOUT: ValueShape = ValueShape::Number(1, 3_600, Unit::Seconds);
const PROTECT: ValueShape = ValueShape::Choice(&["none", "typed", "readonly"]);
const WEAKER: ValueShape = ValueShape::Words(&[
    Extension::PosixRename.word(),
    Extension::Hardlink.word(),
    Extension::Fsync.word(),
    IN_PLACE,
]);
const SEAL: ValueShape = ValueShape::Choice(&["if-present", "always", "signed", "never"]);

/// Every key there is, in the order of `config show`.
#[rustfmt::skip]
pub(super) const KEYS: &[KeyDoc] = &[
    key(SectionKind::General, "baseline_dir", ValueShape::Folder, "./baselines", "directory of the baselines"),
    key(SectionKind::General, "archive_dir", ValueShape::Folder, "./archives", "directory of the archive"),
    key(SectionKind::General, "max_memory_size", BYTES, "16384", "bytes; a larger memory is OVERSIZE"),
    key(SectionKind::General, "min_baseline_size", ValueShape::Number(0, 1 << 40, Unit::Bytes), "1000", "bytes; a smaller baseline is never pushed"),
    key(SectionKind::General, "archive_retention_days", ValueShape::Number(1, 36_500, Unit::Days), "30", "days after which an entry is deleted"),
    key(SectionKind::General, "separator", ValueShape::Separator, "---", "the line between baseline and scratch, compared literally"),
    key(SectionKind::General, "fleet_name", ValueShape::Text, "", "typed to confirm a plan of the whole fleet; default: the config file's stem"),
    key(SectionKind::General, "fleet_tag", ValueShape::Text, "", "a mark such as PROD in the header of every screen"),
    key(SectionKind::General, "protect", PROTECT, "none", "typed: confirmed on screen by typing the agent's name; readonly: resets are refused"),
    key(SectionKind::General, "require_seal", SEAL, "if-present", "what a seal must be like for a baseline to be pushed"),
    key(SectionKind::General, "seal_signers", ValueShape::File, "", "an OpenSSH allowed-signers file outside the agents' reach"),
    key(SectionKind::General, "local_timeout", TIMEOUT, "30", "seconds until a file system of this machine counts as not answering"),
    key(SectionKind::General, "remote_timeout", TIMEOUT, "15", "seconds until a remote host counts as not answering"),
    key(SectionKind::General, "remote_poll", POLL, "10", "seconds between two looks at a remote memory"),
    key(SectionKind::General, "archive_mode", ValueShape::Mode, "0600", "permission bits of entries; 0640 when archive_group is set"),
    key(SectionKind::General, "archive_group", ValueShape::Word, "", "the group whose members may read the archive"),
    key(SectionKind::General, "theme", ValueShape::Text, "terminal", "the theme of the screens"),
    required(SectionKind::Local, "memory_file", ValueShape::File, "the agent's memory; on another machine: remote_host and remote_memory"),
    required(SectionKind::Agent, "baseline", ValueShape::Baseline, "the baseline's file name inside baseline_dir"),
    key(SectionKind::Agent, "archive_subdir", ValueShape::Subdir, "", "directory inside archive_dir; default: the agent's name"),
    required(SectionKind::Remote, "remote_host", ValueShape::Host, "the host that remote_memory is on, or a Host alias of the SSH config"),
    key(SectionKind::Remote, "remote_user", ValueShape::Word, "", "the SSH user"),
    required(SectionKind::Remote, "remote_memory", ValueShape::RemoteFile, "the agent's memory on remote_host"),
    key(SectionKind::Remote, "remote_port", ValueShape::Number(1, 65_535, Unit::Port), "", "the SSH port"),
    key(SectionKind::Remote, "identity_file", ValueShape::File, "", "the private key for SSH"),
    key(SectionKind::Agent, "protect", PROTECT, "", "as in [general], for this agent"),
    key(SectionKind::Agent, "max_memory_size", BYTES, "", "as in [general], for this agent"),
    key(SectionKind::Agent, "separator", ValueShape::Separator, "", "as in [general], for this agent"),
    key(SectionKind::Agent, "every", ValueShape::Text, "", "how often the agent's timer runs, such as 3h"),
    key(SectionKind::Remote, "remote_poll", POLL, "", "as in [general], for this agent"),
    key(SectionKind::Remote, "remote_timeout", TIMEOUT, "", "as in [general], for this agent's host: of several the longest holds"),
    key(SectionKind::Agent, "accept_weaker", WEAKER, "", "weaker promises: what its host's SFTP server may lack, such as fsync; in-place for a memory that is a mount point"),
];

/// The original's name of a key, and ours.
const ALIASES: &[(&str, &str)] = &[("remote_scp_timeout", "remote_timeout")];

/// Every key of the config, for the documentation.
pub fn keys() -> &'static [KeyDoc] {
    KEYS
}

/// Our name of a key.
pub(super) fn canonical(key: &str) -> &str {
    let alias = ALIASES.iter().find(|(theirs, _)| *theirs == key);
    alias.map_or(key, |(_, ours)| *ours)
}

/// The longest name that may be a misspelt one, in bytes; comparing costs the
/// length of the name for each character of each candidate.
const MISSPELT: usize = 256;

/// How much alike two names are of which one may be meant by the other.
const NEAR: f64 = 0.8;

/// The candidate that was probably meant.
pub(crate) fn closest<'a>(
    name: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    if name.len() > MISSPELT {
        return None;
    }
    let name = name.to_lowercase();
    let score = |it: &str| {
        let it = it.to_lowercase();
        let alike = strsim::jaro_winkler(&name, &it);
        // It overlooks two letters that changed places in a short word.
        let long = name.len().min(it.len()) > 2 && name.len().abs_diff(it.len()) < 2;
        match alike < NEAR && long && strsim::osa_distance(&name, &it) == 1 {
            true => NEAR,
            false => alike,
        }
    };
    let scored = candidates.map(|it| (score(it), it));
    let near = scored.filter(|(score, _)| *score >= NEAR);
    near.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, it)| it)
}

/// A checked value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    Path(PathBuf),
    Number(u64),
    Bits(u32),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => f.write_str(text),
            Value::Path(path) => write!(f, "{}", path.display()),
            Value::Number(number) => write!(f, "{number}"),
            Value::Bits(bits) => write!(f, "{bits:04o}"),
        }
    }
}

/// What is wrong with a value, to be read behind the name of its key, and what
/// to do about it.
pub(super) type KeyFault = (String, Option<String>);

fn fault<T>(what: impl Into<String>, hint: impl Into<String>) -> Result<T, KeyFault> {
    Err((what.into(), Some(hint.into())))
}

/// What relative paths and `~` start from.
pub(super) struct DefaultDirectory<'a> {
    pub(super) folder: &'a Path,
    pub(super) home: Option<&'a Path>,
}

impl DefaultDirectory<'_> {
    /// Turns a text into a value of that shape.
    pub(super) fn check(&self, shape: ValueShape, text: &str) -> Result<Value, KeyFault> {
        if text.contains('\0') {
            return fault("contains a NUL character", "remove it");
        }
        let value = match shape {
            ValueShape::Text => Ok(Value::Text(text.to_string())),
            ValueShape::Word => word(text),
            ValueShape::Host => host(text),
            ValueShape::Separator => separator(text),
            ValueShape::Folder => self.local(text),
            ValueShape::File => names_a_file(text).and_then(|()| self.local(text)),
            ValueShape::RemoteFile => names_a_file(text).and_then(|()| remote(text)),
            ValueShape::Baseline => names_a_file(text).and_then(|()| inside(text, "baseline_dir")),
            ValueShape::Subdir => subdir(text),
            ValueShape::Number(min, max, unit) => number(text, min, max, unit),
            ValueShape::Mode => mode(text),
            ValueShape::Choice(words) => choice(text, words),
            ValueShape::Words(words) => some_of(text, words),
        };
        value.and_then(|value| reads_back(text, value))
    }

    /// A path on this machine, absolute.
    fn local(&self, text: &str) -> Result<Value, KeyFault> {
        let path = match text.strip_prefix('~') {
            None => self.folder.join(text),
            Some(rest) if rest.is_empty() || rest.starts_with('/') => match self.home {
                Some(home) => home.join(rest.trim_start_matches('/')),
                None => {
                    return fault(
                        "starts with `~`, but no home is known",
                        "write the full path",
                    );
                }
            },
            Some(_) => return of_another(text),
        };
        Ok(Value::Path(tidy(&path)))
    }
}

/// The home of another user.
fn of_another<T>(text: &str) -> Result<T, KeyFault> {
    fault(
        format!("is `{text}`, and only `~/` can be expanded"),
        "write the full path, or ./~… for a name that starts with `~`",
    )
}

/// A path on another host, as it was written.
fn remote(text: &str) -> Result<Value, KeyFault> {
    if text.starts_with('~') && !text.starts_with("~/") {
        return of_another(text);
    }
    let path = Path::new(text);
    if path.components().any(|part| part == Component::ParentDir) {
        return fault(
            format!("is `{text}`, and what `..` leads to depends on links there"),
            "write the path without `..`",
        );
    }
    fits(path)?;
    Ok(Value::Path(path.to_path_buf()))
}

/// `config show` prints values that mean the same when they are read: without
/// its `./` or its last `/`, a path may begin or end with what is trimmed or
/// expanded.
fn reads_back(text: &str, value: Value) -> Result<Value, KeyFault> {
    let shown = value.to_string();
    if shown.trim() == shown && (text.starts_with("~/") || !shown.starts_with("~/")) {
        return Ok(value);
    }
    fault(
        format!("is the path `{shown}`, which begins with `~/` or has white space at an end"),
        "give it another name",
    )
}

/// A reset displaces whatever stands at the path, so a folder must not get here.
fn names_a_file(text: &str) -> Result<(), KeyFault> {
    match text.rsplit('/').next() {
        Some("" | "." | ".." | "~") => fault(
            format!("must name a file, and `{text}` is a directory"),
            "add the file's name",
        ),
        _ => Ok(()),
    }
}

/// A relative path that cannot leave the folder it starts from.
fn inside(text: &str, folder: &str) -> Result<Value, KeyFault> {
    let path = Path::new(text);
    let stays = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    if text.starts_with("~/") || !path.components().all(stays) {
        let name = path.file_name().unwrap_or(OsStr::new("NAME"));
        return fault(
            format!("must stay inside {folder}, and `{text}` leaves it"),
            format!(
                "write a path relative to {folder}, such as {}",
                name.display()
            ),
        );
    }
    fits(path)?;
    Ok(Value::Text(tidy(path).display().to_string()))
}

/// What file systems take.
fn fits(path: &Path) -> Result<(), KeyFault> {
    if path.components().any(|part| part.as_os_str().len() > 255) {
        return fault("has a name of more than 255 bytes", "write a shorter one");
    }
    if path.as_os_str().len() >= 4096 {
        return fault("is longer than 4,095 bytes", "write a shorter one");
    }
    Ok(())
}

fn subdir(text: &str) -> Result<Value, KeyFault> {
    let value = inside(text, "archive_dir")?;
    let path = value.to_string();
    let first = path.split('/').next().unwrap_or_default();
    if first.is_empty() {
        let hint = "write the name of a directory, or leave the key out for the agent's own name";
        return fault(
            "must name a directory inside archive_dir, not archive_dir itself",
            hint,
        );
    }
    if first.starts_with(".shepherd") || matches!(first, "reset.log" | "reset.log.old") {
        return fault(
            format!("cannot be `{text}`, a name that the archive keeps for itself"),
            "write another name",
        );
    }
    Ok(value)
}

/// A host, user or group. A leading `-` would be an option of the program that
/// gets it.
fn word(text: &str) -> Result<Value, KeyFault> {
    if text.starts_with('-') || text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return fault(
            format!("must be one word that does not start with `-`, not `{text}`"),
            "write the name alone",
        );
    }
    Ok(Value::Text(text.to_string()))
}

/// The longest name that the domain name system has, and the longest of a host.
const LONGEST_HOST: usize = 255;

/// A host as `ssh` takes it: without port, brackets or scheme, which have other
/// places.
fn host(text: &str) -> Result<Value, KeyFault> {
    let alone = |name: &str| format!("write the host alone, `{name}`, without brackets");
    let and_port = |name: &str, port: &str| match port.parse::<u16>() {
        Ok(port) => format!("write remote_host = {name} and remote_port = {port}"),
        Err(_) => format!("write remote_host = {name}; a port goes into remote_port"),
    };
    let (what, hint) = if text.len() > LONGEST_HOST {
        let what = format!("has more than {LONGEST_HOST} bytes");
        return fault(
            what,
            "write a shorter one, such as a Host alias of the SSH config",
        );
    } else if let Some((scheme, rest)) = text.split_once("://") {
        let rest = rest.split('/').next().unwrap_or_default();
        let (name, port) = rest.rsplit_once(':').unwrap_or((rest, ""));
        (format!("has the scheme {scheme}"), and_port(name, port))
    } else if let Some((name, rest)) = text.strip_prefix('[').and_then(|it| it.split_once(']')) {
        let hint = match rest.strip_prefix(':') {
            Some(port) => and_port(name, port),
            None => alone(name),
        };
        ("has brackets".to_string(), hint)
    } else if let Some((name, port)) = text.split_once(':').filter(|(_, it)| !it.contains(':')) {
        ("has a port".to_string(), and_port(name, port))
    } else {
        return word(text);
    };
    fault(format!("{what}, and must be a host alone: `{text}`"), hint)
}

fn separator(text: &str) -> Result<Value, KeyFault> {
    if text.is_empty() {
        return fault(
            "is empty, and would match every empty line",
            "write a line such as ---",
        );
    }
    if text.contains("\\n") || text.contains(|c: char| c.is_control() && c != '\t') {
        return fault(
            "must be one line, because it is compared with whole lines",
            "write a line such as ---; there are no escapes",
        );
    }
    Ok(Value::Text(text.to_string()))
}

fn number(text: &str, min: u64, max: u64, unit: Unit) -> Result<Value, KeyFault> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse::<u64>() {
        Ok(number) if plain && (min..=max).contains(&number) => Ok(Value::Number(number)),
        _ => {
            let (name, example) = match unit {
                Unit::Bytes => ("bytes", "16384"),
                Unit::Days => ("days", "30"),
                Unit::Seconds => ("seconds", "15"),
                Unit::Port => ("a port", "22"),
            };
            let meant =
                with_suffix(text, unit).filter(|number| !plain && (min..=max).contains(number));
            fault(
                format!("must be a whole number from {min} to {max}, not `{text}`"),
                match meant {
                    Some(number) => format!("write {name}: {number}"),
                    None => format!("write {name} in digits, such as {example}"),
                },
            )
        }
    }
}

/// What `16K`, `16,384` or `2 weeks` is in the unit.
fn with_suffix(text: &str, unit: Unit) -> Option<u64> {
    let end = text
        .find(|c: char| !matches!(c, '0'..='9' | ',' | '_'))
        .unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    let number: u64 = digits.replace([',', '_'], "").parse().ok()?;
    let suffix = suffix.trim().to_lowercase();
    let known =
        |(of, names, _): &&(Unit, &[&str], u64)| *of == unit && names.contains(&suffix.as_str());
    let (.., factor) = SUFFIXES.iter().find(known)?;
    number.checked_mul(*factor)
}

fn mode(text: &str) -> Result<Value, KeyFault> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    let plain = !digits.is_empty() && digits.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    match u32::from_str_radix(digits, 8) {
        Ok(bits) if plain && bits <= 0o777 && bits & 0o600 == 0o600 => Ok(Value::Bits(bits)),
        _ => fault(
            format!(
                "must be octal permission bits up to 0777 that let the owner read and write, not `{text}`"
            ),
            "write 0600, or 0640 together with archive_group",
        ),
    }
}

fn choice(text: &str, words: &[&str]) -> Result<Value, KeyFault> {
    if words.contains(&text) {
        return Ok(Value::Text(text.to_string()));
    }
    Err((
        format!("must be one of {}, not `{text}`", words.join(", ")),
        closest(text, words.iter().copied()).map(|word| format!("did you mean `{word}`?")),
    ))
}

fn some_of(text: &str, words: &[&str]) -> Result<Value, KeyFault> {
    let listed = text.split(',').map(str::trim);
    let checked: Result<Vec<_>, KeyFault> = listed.map(|word| choice(word, words)).collect();
    let texts: Vec<_> = checked?.iter().map(Value::to_string).collect();
    Ok(Value::Text(texts.join(", ")))
}
