//! The seal of the baselines: parsed, and changed for one file.

use std::fs;

use memory_shepherd::base::digest::Digest;
use memory_shepherd::base::error::ErrorKind;
use memory_shepherd::baseline::seal::{self, BaselineSeal};

use super::{PART_SEPARATOR, directory};

/// Fuzzes the seal. The first byte decides: after `!` the rest is the file; otherwise
/// the parts are names, sealed in the format of `sha256sum`.
pub fn seal(bytes: &[u8]) {
    let site = directory();
    let read = |text: &[u8]| {
        fs::write(site.path().join(seal::SEAL_FILE_NAME), text).unwrap();
        BaselineSeal::read(&site.path().canonicalize().unwrap())
    };
    let [b'!', file @ ..] = bytes else {
        let names = bytes.split(|byte| *byte == PART_SEPARATOR);
        let names: Vec<&str> = names
            .filter_map(|name| std::str::from_utf8(name).ok())
            .filter(|name| !name.is_empty() && !name.contains('\0'))
            .collect();
        let text: String = names.iter().map(|name| sha256sum_line(name)).collect();
        let seal = read(text.as_bytes()).unwrap().unwrap();
        for name in names {
            let bare = name.strip_prefix("./").unwrap_or(name);
            assert_eq!(
                seal.expected_digest(bare),
                Some(Digest::of(b"")),
                "{name:?}"
            );
        }
        return;
    };
    match read(file) {
        Err(error) => assert_eq!(error.kind(), ErrorKind::Integrity),
        Ok(None) => panic!("an existing seal was read as absent"),
        // Each line seals a file, or is empty.
        Ok(Some(seal)) => {
            let text = std::str::from_utf8(file).expect("a seal that is not text was accepted");
            for line in text
                .lines()
                .filter(|line| !line.is_empty() && !line.starts_with('\\'))
            {
                let (digest, name) = line.split_at(64);
                let name = name.strip_prefix("  ").or(name.strip_prefix(" *")).unwrap();
                let bare = name.strip_prefix("./").unwrap_or(name);
                let directory = site.path().file_name().unwrap().display().to_string() + "/";
                let bare = bare.strip_prefix(&directory).unwrap_or(bare);
                assert_eq!(seal.expected_digest(bare), digest.parse().ok(), "{line}");
            }
            // Sealing a file changes no other line.
            let mut changed = seal.clone();
            changed.set("new\n.md", Digest::of(b"new"));
            let again = read(changed.to_text().as_bytes()).unwrap().unwrap();
            assert_eq!(again.expected_digest("new\n.md"), Some(Digest::of(b"new")));
            let others = seal.names().filter(|name| *name != "new\n.md");
            for name in others {
                assert_eq!(
                    again.expected_digest(name),
                    seal.expected_digest(name),
                    "{name:?}"
                );
            }
        }
    }
}

/// Returns the line of `sha256sum` for an empty file.
fn sha256sum_line(name: &str) -> String {
    let escaped = name
        .replace('\\', "\\\\")
        .replace('\n', "\\n")
        .replace('\r', "\\r");
    let mark = if escaped == name { "" } else { "\\" };
    format!("{mark}{}  {escaped}\n", Digest::of(b""))
}
