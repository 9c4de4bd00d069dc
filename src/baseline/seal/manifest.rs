//! The manifest `.checksums`, which is the output of `sha256sum`: parsed, changed line by line, and
//! written. Pure.
//!
//! Format (GNU coreutils, sha256sum(1)): 64 hexadecimal digits, a space, a space or `*`, the name. A
//! line that begins with a backslash has `\\`, `\n` and `\r` escaped in its name. Names written from
//! the parent directory (`baselines/x.md`) are accepted. An unchanged line keeps every byte.

use std::collections::HashMap;
use std::path::Path;

use crate::base::digest::{Digest, format_checksum_line};

/// A parsed manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BaselineSeal {
    lines: Vec<ManifestLine>,
    /// Digests by the name of the file in its directory.
    digests: HashMap<String, Digest>,
}

/// A line with its line end; the name is none in an empty line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ManifestLine {
    text: String,
    name: Option<String>,
}

impl BaselineSeal {
    /// Parses the manifest of `directory`. An error is the number of an invalid line: such a seal
    /// covers no baseline.
    pub(super) fn parse(text: &str, directory: &Path) -> Result<BaselineSeal, usize> {
        let parent = directory
            .file_name()
            .map(|name| format!("{}/", name.to_string_lossy()));
        let mut seal = BaselineSeal::default();
        for (number, text) in text.split_inclusive('\n').enumerate() {
            let line = match text.strip_suffix('\n') {
                Some(line) => line.strip_suffix('\r').unwrap_or(line),
                None => text,
            };
            let parsed = (!line.is_empty())
                .then(|| parse_line(line, parent.as_deref()).ok_or(number + 1))
                .transpose()?;
            // One of two digests of a name is wrong, and the manifest does not tell which.
            if let Some((name, digest)) = &parsed
                && let Some(other) = seal.digests.insert(name.clone(), *digest)
                && other != *digest
            {
                return Err(number + 1);
            }
            seal.lines.push(ManifestLine {
                text: text.to_string(),
                name: parsed.map(|(name, _)| name),
            });
        }
        Ok(seal)
    }

    /// Returns the digest that the seal has for a file of the directory.
    pub fn expected_digest(&self, name: &str) -> Option<Digest> {
        self.digests.get(name).copied()
    }

    /// Returns the names of the files that the seal covers.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.digests.keys().map(String::as_str)
    }

    /// Sets the digest of a file: in the place of its line, or at the end.
    pub fn set(&mut self, name: &str, digest: Digest) {
        let line = ManifestLine {
            text: format_checksum_line(name, digest),
            name: Some(name.to_string()),
        };
        let place = self.lines.iter().position(|it| it.is_of(name));
        self.remove(name);
        self.digests.insert(name.to_string(), digest);
        let end = self.lines.len();
        let place = place.unwrap_or(end).min(end);
        if place == end {
            self.end_last_line();
        }
        self.lines.insert(place, line);
    }

    /// Removes the lines of a file.
    pub fn remove(&mut self, name: &str) {
        self.lines.retain(|line| !line.is_of(name));
        self.digests.remove(name);
    }

    /// Returns the text of the manifest.
    pub fn to_text(&self) -> String {
        self.lines.iter().map(|line| line.text.as_str()).collect()
    }

    /// The last line of a file may lack its line feed.
    fn end_last_line(&mut self) {
        if let Some(last) = self.lines.last_mut()
            && !last.text.ends_with('\n')
        {
            last.text.push('\n');
        }
    }
}

impl ManifestLine {
    fn is_of(&self, name: &str) -> bool {
        self.name.as_deref() == Some(name)
    }
}

/// Returns name and digest in a line. `parent` is the name of the manifest's directory, with a
/// slash.
fn parse_line(line: &str, parent: Option<&str>) -> Option<(String, Digest)> {
    let (is_escaped, line) = match line.strip_prefix('\\') {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    let (digest, rest) = line.split_at_checked(64)?;
    let name = rest.strip_prefix("  ").or(rest.strip_prefix(" *"))?;
    let name = if is_escaped {
        unescape_file_name(name)?
    } else {
        name.to_string()
    };
    let bare = name.strip_prefix("./").unwrap_or(&name);
    let bare = parent
        .and_then(|parent| bare.strip_prefix(parent))
        .unwrap_or(bare);
    Some((bare.to_string(), digest.parse().ok()?))
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
    use proptest::prelude::*;

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

    #[test]
    fn sealing_one_file_leaves_other_lines_unchanged() {
        let others = [
            format!("{} *other.md\r\n", ABC_DIGEST.to_uppercase()),
            "\n".to_string(),
            format!("{ABC_DIGEST}  baselines/third.md"),
        ];
        let text = format!(
            "{}{ABC_DIGEST}  ./a.md\n{}{}",
            others[0], others[1], others[2]
        );
        let mut seal = parse(&text).unwrap();
        let digest = Digest::of(b"new");
        seal.set("a.md", digest);
        seal.set("b.md", digest);
        let expected = format!(
            "{}{digest}  a.md\n{}{}\n{digest}  b.md\n",
            others[0], others[1], others[2]
        );
        assert_eq!(seal.to_text(), expected);
        seal.remove("a.md");
        assert_eq!(seal.expected_digest("a.md"), None);
        let rest = expected.replace(&format!("{digest}  a.md\n"), "");
        assert_eq!(seal.to_text(), rest);
    }

    proptest! {
        #[test]
        fn written_manifest_is_parsed_back(
            names in proptest::collection::vec("[a-z\\\\ *.é\n\r-]{1,12}", 1..8),
            text in "(?s).{0,80}",
        ) {
            let before = parse(&text).unwrap_or_default();
            let mut seal = before.clone();
            for name in &names {
                seal.set(name, Digest::of(name.as_bytes()));
            }
            let again = parse(&seal.to_text()).unwrap();
            for name in names.iter().filter(|name| !name.starts_with("./")) {
                prop_assert_eq!(again.expected_digest(name), Some(Digest::of(name.as_bytes())));
            }
        }
    }
}
