//! The table of all keys, and what their values must look like.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Component, Path, PathBuf};

use super::{Extension, IN_PLACE, tidy};

/// Where a key may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In `[general]`.
    General,
    /// In the section of any agent.
    Agent,
    /// In the section of an agent on this machine.
    Local,
    /// In the section of an agent on another host.
    Remote,
}

impl Scope {
    /// Whether a key of this scope has a meaning in a section of `place`.
    pub(super) fn covers(self, place: Scope) -> bool {
        self == place || (self == Scope::Agent && place != Scope::General)
    }
}

/// What a value must look like.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
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
    pub scope: Scope,
    /// Its name.
    pub key: &'static str,
    /// Whether an agent cannot do without it.
    pub required: bool,
    /// The text that it has when no line says otherwise; empty: unset, taken
    /// over from `[general]`, or as `doc` says.
    pub default: &'static str,
    /// What it is, in a line.
    pub doc: &'static str,
    pub(super) shape: Shape,
}

impl KeyDoc {
    /// Whether the key may stand in a section of that kind: `[general]`, or an
    /// agent of whatever place.
    pub(super) fn stands_with(&self, scope: Scope) -> bool {
        (self.scope == Scope::General) == (scope == Scope::General)
    }
}

const fn key(
    scope: Scope,
    key: &'static str,
    shape: Shape,
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

const fn required(scope: Scope, key: &'static str, shape: Shape, doc: &'static str) -> KeyDoc {
    KeyDoc {
        scope,
        key,
        required: true,
        default: "",
        doc,
        shape,
    }
}

const BYTES: Shape = Shape::Number(1, 1 << 40, Unit::Bytes);
const POLL: Shape = Shape::Number(1, 86_400, Unit::Seconds);
const TIMEOUT: Shape = Shape::Number(1, 3_600, Unit::Seconds);
const PROTECT: Shape = Shape::Choice(&["none", "typed", "readonly"]);
const WEAKER: Shape = Shape::Words(&[
    Extension::PosixRename.word(),
    Extension::Hardlink.word(),
    Extension::Fsync.word(),
    IN_PLACE,
]);
const SEAL: Shape = Shape::Choice(&["if-present", "always", "signed", "never"]);

/// Every key there is, in the order of `config show`.
#[rustfmt::skip]
pub(super) const KEYS: &[KeyDoc] = &[
    key(Scope::General, "baseline_dir", Shape::Folder, "./baselines", "directory of the baselines"),
    key(Scope::General, "archive_dir", Shape::Folder, "./archives", "directory of the archive"),
    key(Scope::General, "max_memory_size", BYTES, "16384", "bytes; a larger memory is OVERSIZE"),
    key(Scope::General, "min_baseline_size", Shape::Number(0, 1 << 40, Unit::Bytes), "1000", "bytes; a smaller baseline is never pushed"),
    key(Scope::General, "archive_retention_days", Shape::Number(1, 36_500, Unit::Days), "30", "days after which an entry is deleted"),
    key(Scope::General, "separator", Shape::Separator, "---", "the line between baseline and scratch, compared literally"),
    key(Scope::General, "fleet_name", Shape::Text, "", "typed to confirm a plan of the whole fleet; default: the config file's stem"),
    key(Scope::General, "fleet_tag", Shape::Text, "", "a mark such as PROD in the header of every screen"),
    key(Scope::General, "protect", PROTECT, "none", "typed: confirmed on screen by typing the agent's name; readonly: resets are refused"),
    key(Scope::General, "require_seal", SEAL, "if-present", "what a seal must be like for a baseline to be pushed"),
    key(Scope::General, "seal_signers", Shape::File, "", "an OpenSSH allowed-signers file outside the agents' reach"),
    key(Scope::General, "local_timeout", TIMEOUT, "30", "seconds until a file system of this machine counts as not answering"),
    key(Scope::General, "remote_timeout", TIMEOUT, "15", "seconds until a remote host counts as not answering"),
    key(Scope::General, "remote_poll", POLL, "10", "seconds between two looks at a remote memory"),
    key(Scope::General, "archive_mode", Shape::Mode, "0600", "permission bits of entries; 0640 when archive_group is set"),
    key(Scope::General, "archive_group", Shape::Word, "", "the group whose members may read the archive"),
    key(Scope::General, "theme", Shape::Text, "terminal", "the theme of the screens"),
    required(Scope::Local, "memory_file", Shape::File, "the agent's memory; on another machine: remote_host and remote_memory"),
    required(Scope::Agent, "baseline", Shape::Baseline, "the baseline's file name inside baseline_dir"),
    key(Scope::Agent, "archive_subdir", Shape::Subdir, "", "directory inside archive_dir; default: the agent's name"),
    required(Scope::Remote, "remote_host", Shape::Host, "the host that remote_memory is on, or a Host alias of the SSH config"),
    key(Scope::Remote, "remote_user", Shape::Word, "", "the SSH user"),
    required(Scope::Remote, "remote_memory", Shape::RemoteFile, "the agent's memory on remote_host"),
    key(Scope::Remote, "remote_port", Shape::Number(1, 65_535, Unit::Port), "", "the SSH port"),
    key(Scope::Remote, "identity_file", Shape::File, "", "the private key for SSH"),
    key(Scope::Agent, "protect", PROTECT, "", "as in [general], for this agent"),
    key(Scope::Agent, "max_memory_size", BYTES, "", "as in [general], for this agent"),
    key(Scope::Agent, "separator", Shape::Separator, "", "as in [general], for this agent"),
    key(Scope::Agent, "every", Shape::Text, "", "how often the agent's timer runs, such as 3h"),
    key(Scope::Remote, "remote_poll", POLL, "", "as in [general], for this agent"),
    key(Scope::Remote, "remote_timeout", TIMEOUT, "", "as in [general], for this agent's host: of several the longest holds"),
    key(Scope::Agent, "accept_weaker", WEAKER, "", "weaker promises: what its host's SFTP server may lack, such as fsync; in-place for a memory that is a mount point"),
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
pub(super) type Fault = (String, Option<String>);

fn fault<T>(what: impl Into<String>, hint: impl Into<String>) -> Result<T, Fault> {
    Err((what.into(), Some(hint.into())))
}

/// What relative paths and `~` start from.
pub(super) struct Base<'a> {
    pub(super) folder: &'a Path,
    pub(super) home: Option<&'a Path>,
}

impl Base<'_> {
    /// Turns a text into a value of that shape.
    pub(super) fn check(&self, shape: Shape, text: &str) -> Result<Value, Fault> {
        if text.contains('\0') {
            return fault("contains a NUL character", "remove it");
        }
        let value = match shape {
            Shape::Text => Ok(Value::Text(text.to_string())),
            Shape::Word => word(text),
            Shape::Host => host(text),
            Shape::Separator => separator(text),
            Shape::Folder => self.local(text),
            Shape::File => names_a_file(text).and_then(|()| self.local(text)),
            Shape::RemoteFile => names_a_file(text).and_then(|()| remote(text)),
            Shape::Baseline => names_a_file(text).and_then(|()| inside(text, "baseline_dir")),
            Shape::Subdir => subdir(text),
            Shape::Number(min, max, unit) => number(text, min, max, unit),
            Shape::Mode => mode(text),
            Shape::Choice(words) => choice(text, words),
            Shape::Words(words) => some_of(text, words),
        };
        value.and_then(|value| reads_back(text, value))
    }

    /// A path on this machine, absolute.
    fn local(&self, text: &str) -> Result<Value, Fault> {
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
fn of_another<T>(text: &str) -> Result<T, Fault> {
    fault(
        format!("is `{text}`, and only `~/` can be expanded"),
        "write the full path, or ./~… for a name that starts with `~`",
    )
}

/// A path on another host, as it was written.
fn remote(text: &str) -> Result<Value, Fault> {
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
fn reads_back(text: &str, value: Value) -> Result<Value, Fault> {
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
fn names_a_file(text: &str) -> Result<(), Fault> {
    match text.rsplit('/').next() {
        Some("" | "." | ".." | "~") => fault(
            format!("must name a file, and `{text}` is a directory"),
            "add the file's name",
        ),
        _ => Ok(()),
    }
}

/// A relative path that cannot leave the folder it starts from.
fn inside(text: &str, folder: &str) -> Result<Value, Fault> {
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
fn fits(path: &Path) -> Result<(), Fault> {
    if path.components().any(|part| part.as_os_str().len() > 255) {
        return fault("has a name of more than 255 bytes", "write a shorter one");
    }
    if path.as_os_str().len() >= 4096 {
        return fault("is longer than 4,095 bytes", "write a shorter one");
    }
    Ok(())
}

fn subdir(text: &str) -> Result<Value, Fault> {
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
fn word(text: &str) -> Result<Value, Fault> {
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
fn host(text: &str) -> Result<Value, Fault> {
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

fn separator(text: &str) -> Result<Value, Fault> {
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

fn number(text: &str, min: u64, max: u64, unit: Unit) -> Result<Value, Fault> {
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

fn mode(text: &str) -> Result<Value, Fault> {
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

fn choice(text: &str, words: &[&str]) -> Result<Value, Fault> {
    if words.contains(&text) {
        return Ok(Value::Text(text.to_string()));
    }
    Err((
        format!("must be one of {}, not `{text}`", words.join(", ")),
        closest(text, words.iter().copied()).map(|word| format!("did you mean `{word}`?")),
    ))
}

fn some_of(text: &str, words: &[&str]) -> Result<Value, Fault> {
    let listed = text.split(',').map(str::trim);
    let checked: Result<Vec<_>, Fault> = listed.map(|word| choice(word, words)).collect();
    let texts: Vec<_> = checked?.iter().map(Value::to_string).collect();
    Ok(Value::Text(texts.join(", ")))
}
