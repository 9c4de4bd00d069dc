//! The seal: the digests of the baselines, in the manifest `.checksums` of their directory, which
//! is the output of `sha256sum`. Reads the manifest and never writes it.
//!
//! Format (GNU coreutils, sha256sum(1)): 64 hexadecimal digits, a space, a
//! space or `*`, the name. A line that begins with a backslash has `\\`, `\n`
//! and `\r` escaped in its name. Names written from the parent directory
//! (`baselines/x.md`) are accepted.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;

use crate::config::Config;
use crate::digest::Digest;
use crate::durable;
use crate::error::{Error, ErrorKind, PathContext, Result};

/// File name of the manifest.
pub const SEAL_FILE_NAME: &str = ".checksums";

/// Size limit of a manifest.
const MAX_MANIFEST_BYTES: u64 = 16 << 20;

/// Hint for a baseline that does not match its seal.
pub fn reseal_hint(config: &Config) -> String {
    format!(
        "if the change is not yours, restore the file from a backup; if it is: {}",
        seal_command(config)
    )
}

/// A parsed manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BaselineSeal {
    digests: HashMap<String, Digest>,
}

/// Hint for sealing all baselines by hand.
pub fn seal_hint(config: &Config) -> String {
    format!(
        "review every baseline first, because a seal accepts the current content; then: {}",
        seal_command(config)
    )
}

/// Returns the shell command that seals the baselines of all agents.
fn seal_command(config: &Config) -> String {
    let names = config.agents.iter().map(|agent| agent.baseline.as_str());
    let mut patterns: BTreeSet<String> = names.map(baseline_pattern).collect();
    if patterns.is_empty() {
        patterns.insert("*.md".to_string());
    }
    let patterns: Vec<String> = patterns.into_iter().collect();
    format!(
        "cd {} && sha256sum -- {} > {SEAL_FILE_NAME}",
        shell_words::quote(&config.general.baseline_dir.to_string_lossy()),
        patterns.join(" ")
    )
}

/// Returns a shell pattern for a baseline and those of the same kind beside it, such as `sub/*.md`,
/// or the quoted name if no such pattern matches it.
fn baseline_pattern(name: &str) -> String {
    let (directory, file) = name.split_at(name.rfind('/').map_or(0, |slash| slash + 1));
    match file.rsplit_once('.') {
        // A pattern does not match a hidden file.
        Some((stem, extension)) if !stem.is_empty() && !stem.starts_with('.') => {
            let directory = match directory {
                "" => "".into(),
                directory => shell_words::quote(directory),
            };
            format!(
                "{directory}*{}",
                shell_words::quote(&format!(".{extension}"))
            )
        }
        _ => shell_words::quote(name).into_owned(),
    }
}

impl BaselineSeal {
    /// Reads the seal of a directory; none where it has no manifest.
    ///
    /// # Errors
    /// The manifest cannot be read, or one of its lines has another format: such a seal covers no
    /// baseline.
    pub fn read(directory: &Path) -> Result<Option<BaselineSeal>> {
        let path = directory.join(SEAL_FILE_NAME);
        let Some(text) = read(directory, &path)? else {
            return Ok(None);
        };
        BaselineSeal::parse(&text, directory)
            .map(Some)
            .map_err(|line| {
                let message = format!("invalid line {line} in the seal {}", path.display());
                Error::new(ErrorKind::Integrity, message).with_hint(
                    "every line must have the format of sha256sum, and every name only one digest",
                )
            })
    }

    /// Returns the digest that the seal has for a file of the directory.
    pub fn expected_digest(&self, name: &str) -> Option<Digest> {
        self.digests.get(name).copied()
    }

    fn parse(text: &str, directory: &Path) -> Result<BaselineSeal, usize> {
        let parent = directory
            .file_name()
            .map(|name| format!("{}/", name.to_string_lossy()));
        let mut digests = HashMap::new();
        for (number, line) in text.lines().enumerate() {
            if line.is_empty() {
                continue;
            }
            let (escaped, line) = match line.strip_prefix('\\') {
                Some(rest) => (true, rest),
                None => (false, line),
            };
            let (digest, name) = line
                .split_at_checked(64)
                .and_then(|(digest, rest)| {
                    let name = rest.strip_prefix("  ").or(rest.strip_prefix(" *"))?;
                    Some((digest.parse().ok()?, name))
                })
                .ok_or(number + 1)?;
            let mut name = name.to_string();
            if escaped {
                name = unescape_file_name(&name).ok_or(number + 1)?;
            }
            let bare = name.strip_prefix("./").unwrap_or(&name);
            let bare = parent
                .as_deref()
                .and_then(|p| bare.strip_prefix(p))
                .unwrap_or(bare);
            // One of two digests of a name is wrong, and the manifest does not tell which.
            if digests
                .insert(bare.to_string(), digest)
                .is_some_and(|other| other != digest)
            {
                return Err(number + 1);
            }
        }
        Ok(BaselineSeal { digests })
    }
}

/// Reads the text of the manifest, without following symlinks; none where it does not exist.
/// Anything else that is not a plain readable file is an error: it may have been put in the place
/// of the manifest.
fn read(directory: &Path, path: &Path) -> Result<Option<String>> {
    let directory = match durable::open_directory_errno(directory) {
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(durable::open_directory_error(errno, directory)),
        Ok(directory) => directory,
    };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let refuse = |why: &str| {
        let message = format!("the seal {} {why}", path.display());
        Err(Error::new(ErrorKind::Integrity, message))
    };
    let broken = |error: Error| error.with_kind(ErrorKind::Integrity);
    let file = match fs::openat(&directory, SEAL_FILE_NAME, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return refuse("is a symlink"),
        Err(errno) => return Err(errno).with_path("read the seal", path).map_err(broken),
    };
    let meta = file.metadata().with_path("stat the seal", path);
    if !meta.map_err(broken)?.is_file() {
        return refuse("is not a regular file");
    }
    let mut bytes = Vec::new();
    file.take(MAX_MANIFEST_BYTES + 1)
        .read_to_end(&mut bytes)
        .with_path("read the seal", path)
        .map_err(broken)?;
    if bytes.len() as u64 > MAX_MANIFEST_BYTES {
        return refuse("is over 16 MiB");
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(_) => refuse("is not text"),
    }
}

fn unescape_file_name(name: &str) -> Option<String> {
    let mut chars = name.chars();
    let mut plain = String::new();
    while let Some(c) = chars.next() {
        plain.push(match c {
            '\\' => match chars.next()? {
                '\\' => '\\',
                'n' => '\n',
                'r' => '\r',
                _ => return None,
            },
            c => c,
        });
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABC_DIGEST: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn parse(text: &str) -> Result<BaselineSeal, usize> {
        BaselineSeal::parse(text, Path::new("/etc/baselines"))
    }

    #[test]
    fn every_sha256sum_format_is_parsed() {
        let text = format!(
            "{ABC_DIGEST}  a.md\n{ABC_DIGEST} *b.md\n{ABC_DIGEST}  ./c.md\n{ABC_DIGEST}  baselines/d.md\n\\{ABC_DIGEST}  e\\\\f\\n.md\n"
        );
        let seal = parse(&text).unwrap();
        for name in ["a.md", "b.md", "c.md", "d.md", "e\\f\n.md"] {
            assert_eq!(
                seal.expected_digest(name),
                Some(Digest::of(b"abc")),
                "{name}"
            );
        }
        assert_eq!(seal.expected_digest("g.md"), None);
    }

    #[test]
    fn name_with_two_digests_is_rejected() {
        let other = ABC_DIGEST.replace('b', "c");
        assert_eq!(
            parse(&format!("{ABC_DIGEST}  a.md\n{other}  ./a.md\n")),
            Err(2)
        );
        assert!(parse(&format!("{ABC_DIGEST}  a.md\n{ABC_DIGEST}  ./a.md\n")).is_ok());
    }

    #[test]
    fn symlink_or_directory_as_seal_is_integrity_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap();
        assert_eq!(BaselineSeal::read(&path), Ok(None));
        assert_eq!(BaselineSeal::read(&path.join("none")), Ok(None));
        let seal = path.join(SEAL_FILE_NAME);
        std::os::unix::fs::symlink("nowhere", &seal).unwrap();
        assert_eq!(
            BaselineSeal::read(&path).unwrap_err().kind(),
            ErrorKind::Integrity
        );
        std::fs::remove_file(&seal).unwrap();
        std::fs::create_dir(&seal).unwrap();
        assert_eq!(
            BaselineSeal::read(&path).unwrap_err().kind(),
            ErrorKind::Integrity
        );
    }

    #[test]
    fn malformed_seal_line_is_rejected() {
        assert_eq!(parse(&format!("{ABC_DIGEST}  a.md\nnonsense\n")), Err(2));
        assert_eq!(parse("ba78  a.md\n"), Err(1));
        assert_eq!(parse(&format!("{ABC_DIGEST} a.md\n")), Err(1));
        let other = ABC_DIGEST.replace('b', "c");
        assert_eq!(
            parse(&format!("{ABC_DIGEST}  a.md\n{other}  a.md\n")),
            Err(2)
        );
        assert!(parse(&format!("{ABC_DIGEST}  a.md\n{ABC_DIGEST}  a.md\n")).is_ok());
        assert_eq!(parse(&format!("\\{ABC_DIGEST}  a\\q.md\n")), Err(1));
    }
}
