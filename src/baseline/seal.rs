//! The seal: the digests of the baselines, in the manifest `.checksums` of their directory, with
//! `.checksums.meta` and `.checksums.sig` beside it if it is signed. Reads these files; whether a
//! signature is good is asked in [`super::signatures`].

mod manifest;
mod meta;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::base::diff::count_lines;
use crate::base::durable;
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::base::invocation::quote_operand;
use crate::config::{Config, SealRequirement};
pub use crate::config::{META_FILE_NAME, SEAL_FILE_NAME, SIGNATURE_FILE_NAME, is_baseline_name};
pub use manifest::BaselineSeal;
pub use meta::SealMeta;

/// Size limit of a manifest.
const MAX_MANIFEST_BYTES: u64 = 16 << 20;

/// Limit of its lines: each one is a file that is read and compared.
const MAX_MANIFEST_LINES: usize = 10_000;

/// Size limit of the two files beside it.
const MAX_SIDE_FILE_BYTES: u64 = 64 << 10;

/// Hint for a baseline that does not match its seal.
pub fn reseal_hint(config: &Config, name: &str) -> String {
    let name = quote_operand(name);
    let invocation = &config.invocation;
    let sign = signing_argument(config);
    format!(
        "if the change is not yours, put the sealed version back: {}; if it is, \
         preview its seal: {}",
        invocation.command_line(&format!("baseline restore {name}")),
        invocation.command_line(&format!("seal {name}{sign} --dry-run"))
    )
}

/// Hint for a baseline that a seal does not list: it has no sealed version.
pub fn unlisted_hint(config: &Config, name: &str) -> String {
    let seal = format!(
        "seal {}{} --dry-run",
        quote_operand(name),
        signing_argument(config)
    );
    format!(
        "if the file is yours, preview its seal: {}",
        config.invocation.command_line(&seal)
    )
}

/// Command line that seals what this program saved, and nothing else.
pub fn seal_saved_command(config: &Config) -> String {
    let seal = format!("seal{}", signing_argument(config));
    config.invocation.command_line(&seal)
}

/// Hint for baselines without a seal.
pub fn seal_hint(config: &Config) -> String {
    format!(
        "review every baseline first, because a seal accepts the current content; then: {}",
        config
            .invocation
            .command_line(&format!("seal --all{}", signing_argument(config)))
    )
}

fn signing_argument(config: &Config) -> &'static str {
    let general = &config.general;
    let is_signed = general.require_seal == SealRequirement::Signed;
    if is_signed || general.seal_signers.is_some() {
        " --sign KEYFILE"
    } else {
        ""
    }
}

/// The files of a seal as they are on the disk. As JSON, each is a text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SealFiles {
    /// The manifest.
    #[serde(with = "text", skip_serializing_if = "Option::is_none")]
    pub manifest: Option<Vec<u8>>,
    /// Serial, time and expiry.
    #[serde(with = "text", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Vec<u8>>,
    /// The signature.
    #[serde(with = "text", skip_serializing_if = "Option::is_none")]
    pub signature: Option<Vec<u8>>,
}

/// A file as text. Bytes that are not UTF-8 are replaced; a signature counts all the same, because
/// `ssh-keygen` ignores what follows it.
mod text {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(
        bytes: &Option<Vec<u8>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let text = bytes.as_deref().map(String::from_utf8_lossy);
        text.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Vec<u8>>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        Ok(text.map(String::into_bytes))
    }
}

impl SealFiles {
    /// Reads the files in a directory, without following symlinks.
    ///
    /// # Errors
    /// A file that cannot be read, or that is not a plain file: it may have been put in the place
    /// of the seal.
    pub fn read(directory: &Path) -> Result<SealFiles> {
        let read_one = |name, limit| read_seal_file(directory, name, limit);
        Ok(SealFiles {
            manifest: read_one(SEAL_FILE_NAME, MAX_MANIFEST_BYTES)?,
            meta: read_one(META_FILE_NAME, MAX_SIDE_FILE_BYTES)?,
            signature: read_one(SIGNATURE_FILE_NAME, MAX_SIDE_FILE_BYTES)?,
        })
    }

    /// Returns the files with their names, the manifest last.
    pub fn named(&self) -> [(&'static str, Option<&[u8]>); 3] {
        [
            (META_FILE_NAME, self.meta.as_deref()),
            (SIGNATURE_FILE_NAME, self.signature.as_deref()),
            (SEAL_FILE_NAME, self.manifest.as_deref()),
        ]
    }

    /// Parses the manifest of `directory`; none without one.
    ///
    /// # Errors
    /// A line with another format: such a seal covers no baseline.
    pub fn parse(&self, directory: &Path) -> Result<Option<BaselineSeal>> {
        let manifest = self.manifest.as_deref();
        manifest
            .map(|bytes| parse_manifest(bytes, directory))
            .transpose()
    }
}

impl BaselineSeal {
    /// Reads the manifest of a directory; none where there is none.
    ///
    /// # Errors
    /// The manifest cannot be read, or one of its lines has another format.
    pub fn read(directory: &Path) -> Result<Option<BaselineSeal>> {
        let bytes = read_seal_file(directory, SEAL_FILE_NAME, MAX_MANIFEST_BYTES)?;
        bytes
            .map(|bytes| parse_manifest(&bytes, directory))
            .transpose()
    }
}

fn parse_manifest(bytes: &[u8], directory: &Path) -> Result<BaselineSeal> {
    let path = directory.join(SEAL_FILE_NAME);
    let broken = |message: String| Error::new(ErrorKind::Integrity, message);
    if count_lines(bytes) > MAX_MANIFEST_LINES {
        let path = path.display();
        let message = format!("the seal {path} has more than {MAX_MANIFEST_LINES} lines");
        return Err(broken(message).with_hint("remove the lines of files that are not baselines"));
    }
    let text = str::from_utf8(bytes)
        .map_err(|_| broken(format!("the seal {} is not text", path.display())))?;
    BaselineSeal::parse(text, directory).map_err(|line| {
        broken(format!(
            "invalid line {line} in the seal {}",
            path.display()
        ))
        .with_hint("every line must have the format of sha256sum, and every name only one digest")
    })
}

/// Reads a file of the seal; none where it does not exist.
fn read_seal_file(directory: &Path, name: &str, limit: u64) -> Result<Option<Vec<u8>>> {
    let path = directory.join(name);
    let directory = match durable::open_directory_errno(directory) {
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(durable::open_directory_error(errno, directory)),
        Ok(directory) => directory,
    };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let refuse = |why: String| {
        let message = format!("the seal {} {why}", path.display());
        Err(Error::new(ErrorKind::Integrity, message))
    };
    let broken = |error: Error| error.with_kind(ErrorKind::Integrity);
    let file = match fs::openat(&directory, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return refuse("is a symlink".to_string()),
        Err(errno) => return Err(errno).with_path("read the seal", &path).map_err(broken),
    };
    let meta = file.metadata().with_path("stat the seal", &path);
    if !meta.map_err(broken)?.is_file() {
        return refuse("is not a regular file".to_string());
    }
    let mut bytes = Vec::new();
    file.take(limit + 1)
        .read_to_end(&mut bytes)
        .with_path("read the seal", &path)
        .map_err(broken)?;
    if bytes.len() as u64 > limit {
        return refuse(format!("is over {} KiB", limit >> 10));
    }
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifest_with_too_many_lines_is_refused() {
        let line = |number: usize| format!("{}  {number}.md\n", "0".repeat(64));
        let most: String = (0..MAX_MANIFEST_LINES).map(line).collect();
        let parse = |text: &str| parse_manifest(text.as_bytes(), Path::new("/etc/baselines"));
        assert_eq!(parse(&most).unwrap().names().count(), MAX_MANIFEST_LINES);
        let error = parse(&(most + &line(MAX_MANIFEST_LINES))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Integrity);
        let expected = "the seal /etc/baselines/.checksums has more than 10000 lines";
        assert_eq!(error.message(), expected);
    }

    #[test]
    fn symlink_or_directory_as_seal_is_integrity_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap();
        assert_eq!(BaselineSeal::read(&path), Ok(None));
        assert_eq!(BaselineSeal::read(&path.join("none")), Ok(None));
        for name in [SEAL_FILE_NAME, META_FILE_NAME, SIGNATURE_FILE_NAME] {
            let seal = path.join(name);
            let kind = || SealFiles::read(&path).unwrap_err().kind();
            std::os::unix::fs::symlink("nowhere", &seal).unwrap();
            assert_eq!(kind(), ErrorKind::Integrity);
            std::fs::remove_file(&seal).unwrap();
            std::fs::create_dir(&seal).unwrap();
            assert_eq!(kind(), ErrorKind::Integrity);
            std::fs::remove_dir(&seal).unwrap();
        }
    }
}
