//! The seal: `.checksums` in the baselines' folder, the output of `sha256sum`.
//!
//! Format (GNU coreutils, sha256sum(1)): 64 hexadecimal digits, a space, a
//! space or `*`, the name. A line that begins with a backslash has `\\`, `\n`
//! and `\r` escaped in its name. Names written from the parent folder
//! (`baselines/x.md`) are accepted.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::digest::Digest;
use crate::error::{Error, Kind, Result};

/// The manifest's name.
pub const FILE: &str = ".checksums";

/// A manifest that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seal {
    digests: HashMap<String, Digest>,
}

impl Seal {
    /// Reads the seal of a folder; `None` where there is none.
    ///
    /// # Errors
    /// One that cannot be read, or has a line that is not of the format: a seal
    /// that cannot be trusted seals nothing.
    pub fn read(folder: &Path) -> Result<Option<Seal>> {
        let path = folder.join(FILE);
        // A link that leads nowhere is not "no seal".
        let read = || -> std::io::Result<String> {
            let mut text = String::new();
            let mut options = OpenOptions::new();
            options
                .read(true)
                .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
            options.open(&path)?.read_to_string(&mut text)?;
            Ok(text)
        };
        match read() {
            Ok(text) => Seal::parse(&text, folder).map(Some).map_err(|line| {
                let message = format!("the seal {} is broken at line {line}", path.display());
                Error::new(Kind::Integrity, message)
                    .hint("every line must be as sha256sum prints it")
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("read the seal", &path, &error).with_kind(Kind::Integrity)),
        }
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
            let before = digests.insert(bare.to_string(), digest);
            if before.is_some_and(|before| before != digest) {
                return Err(number + 1); // Two lines that contradict each other.
            }
        }
        Ok(Seal { digests })
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
