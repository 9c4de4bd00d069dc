//! The seal: `.checksums` in the baselines' folder, the output of `sha256sum`.
//!
//! Format (GNU coreutils, sha256sum(1)): 64 hexadecimal digits, a space, a
//! space or `*`, the name. A line that begins with a backslash has `\\`, `\n`
//! and `\r` escaped in its name. Names written from the parent folder
//! (`baselines/x.md`) are accepted.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;

use crate::config::General;
use crate::digest::Digest;
use crate::durable::{self, Walk};
use crate::error::{Error, Kind, PathContext, Result};

/// The manifest's name.
pub const FILE: &str = ".checksums";

/// No sensible manifest comes near this.
const MAX_SIZE: u64 = 16 << 20;

/// How to seal the baselines of a folder, for whoever has looked at them.
pub fn reseal_hint(folder: &Path) -> String {
    let folder = folder.to_string_lossy();
    format!(
        "a change that is not yours: put your own copy back; one that is: cd {} && sha256sum -- \
         *.md > {FILE}",
        shell_words::quote(&folder)
    )
}

/// A manifest that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seal {
    digests: HashMap<String, Digest>,
}

/// How a seal of all baselines is made by hand.
pub fn how_to_seal(general: &General) -> String {
    let directory = general.baseline_dir.to_string_lossy();
    format!(
        "read every baseline first, because a seal accepts what it finds; then: cd {} && sha256sum \
         -- *.md > {FILE}",
        shell_words::quote(&directory)
    )
}

impl Seal {
    /// Reads the seal of a folder; `None` where there is none.
    ///
    /// # Errors
    /// One that cannot be read, or has a line that is not of the format: a seal
    /// that cannot be trusted seals nothing.
    pub fn read(folder: &Path) -> Result<Option<Seal>> {
        let path = folder.join(FILE);
        let Some(text) = read(folder, &path)? else {
            return Ok(None);
        };
        Seal::parse(&text, folder).map(Some).map_err(|line| {
            let message = format!("the seal {} is broken at line {line}", path.display());
            Error::new(Kind::Integrity, message)
                .hint("every line must be as sha256sum prints it, and no name may have two digests")
        })
    }

    /// The digest that the seal names for a file of the folder.
    pub fn expected(&self, name: &str) -> Option<Digest> {
        self.digests.get(name).copied()
    }

    fn parse(text: &str, folder: &Path) -> Result<Seal, usize> {
        let parent = folder
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
                name = unescape(&name).ok_or(number + 1)?;
            }
            let bare = name.strip_prefix("./").unwrap_or(&name);
            let bare = parent
                .as_deref()
                .and_then(|p| bare.strip_prefix(p))
                .unwrap_or(bare);
            // One of two digests of a name is wrong, and nobody knows which.
            if digests
                .insert(bare.to_string(), digest)
                .is_some_and(|other| other != digest)
            {
                return Err(number + 1);
            }
        }
        Ok(Seal { digests })
    }
}

/// The text of the seal, following no link; none when nothing stands there.
/// Everything else that is no plain readable file is an error: what stands there
/// might have been put there instead of the seal.
fn read(folder: &Path, path: &Path) -> Result<Option<String>> {
    let folder = match durable::open_folder_raw(folder, Walk::Kernel) {
        Err(Errno::NOENT) => return Ok(None),
        Err(_) => durable::open_folder(folder, Walk::Kernel)?,
        Ok(folder) => folder,
    };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let refuse = |why: &str| {
        let message = format!("the seal {} {why}", path.display());
        Err(Error::new(Kind::Integrity, message))
    };
    let broken = |error: Error| error.with_kind(Kind::Integrity);
    let file = match fs::openat(&folder, FILE, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return refuse("is a symbolic link"),
        Err(errno) => return Err(errno).path("read the seal", path).map_err(broken),
    };
    let meta = file.metadata().path("look at the seal", path);
    if !meta.map_err(broken)?.is_file() {
        return refuse("is not a regular file");
    }
    let mut bytes = Vec::new();
    file.take(MAX_SIZE + 1)
        .read_to_end(&mut bytes)
        .path("read the seal", path)
        .map_err(broken)?;
    if bytes.len() as u64 > MAX_SIZE {
        return refuse("is over 16 MiB");
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(_) => refuse("is no text"),
    }
}

fn unescape(name: &str) -> Option<String> {
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

    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn parse(text: &str) -> Result<Seal, usize> {
        Seal::parse(text, Path::new("/etc/baselines"))
    }

    #[test]
    fn every_form_of_sha256sum_is_read() {
        let text = format!(
            "{ABC}  a.md\n{ABC} *b.md\n{ABC}  ./c.md\n{ABC}  baselines/d.md\n\\{ABC}  e\\\\f\\n.md\n"
        );
        let seal = parse(&text).unwrap();
        for name in ["a.md", "b.md", "c.md", "d.md", "e\\f\n.md"] {
            assert_eq!(seal.expected(name), Some(Digest::of(b"abc")), "{name}");
        }
        assert_eq!(seal.expected("g.md"), None);
    }

    #[test]
    fn a_name_with_two_digests_breaks_the_seal() {
        let other = ABC.replace('b', "c");
        assert_eq!(parse(&format!("{ABC}  a.md\n{other}  ./a.md\n")), Err(2));
        assert!(parse(&format!("{ABC}  a.md\n{ABC}  ./a.md\n")).is_ok());
    }

    #[test]
    fn a_link_in_the_place_of_the_seal_is_no_missing_seal() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        assert_eq!(Seal::read(&path), Ok(None));
        assert_eq!(Seal::read(&path.join("none")), Ok(None));
        let seal = path.join(FILE);
        std::os::unix::fs::symlink("nowhere", &seal).unwrap();
        assert_eq!(Seal::read(&path).unwrap_err().kind(), Kind::Integrity);
        std::fs::remove_file(&seal).unwrap();
        std::fs::create_dir(&seal).unwrap();
        assert_eq!(Seal::read(&path).unwrap_err().kind(), Kind::Integrity);
    }

    #[test]
    fn a_line_of_another_form_breaks_the_seal() {
        assert_eq!(parse(&format!("{ABC}  a.md\nnonsense\n")), Err(2));
        assert_eq!(parse("ba78  a.md\n"), Err(1));
        assert_eq!(parse(&format!("{ABC} a.md\n")), Err(1));
        let other = ABC.replace('b', "c");
        assert_eq!(parse(&format!("{ABC}  a.md\n{other}  a.md\n")), Err(2));
        assert!(parse(&format!("{ABC}  a.md\n{ABC}  a.md\n")).is_ok());
        assert_eq!(parse(&format!("\\{ABC}  a\\q.md\n")), Err(1));
    }
}
