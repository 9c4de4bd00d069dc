//! Which unit files this program wrote, for which config, and whether they are unchanged since.
//!
//! The first line is a comment with the digest of all that follows; the key
//! `X-MemoryShepherd-Config` names the config. systemd ignores both.

use std::path::{Path, PathBuf};

use super::escape::{quote, split_words};
use crate::base::digest::Digest;

/// Beginning of the first line.
const HEADER_PREFIX: &str = "# Written by `memory-shepherd schedule install`; sha256 of the rest: ";

/// Key of the config's path.
const CONFIG_KEY: &str = "X-MemoryShepherd-Config=";

/// Line of a timer that is enabled when it is installed.
const ENABLED_LINE: &str = "X-MemoryShepherd-Enable=yes";

/// Who wrote a unit file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum UnitOwner {
    /// This program, for the config at this path.
    Own { config: PathBuf, is_intact: bool },
    /// Another program, or an operator.
    Foreign,
}

/// Returns the lines of `[Unit]` that name the config, and whether the unit is enabled when it is
/// installed.
pub(super) fn ownership_lines(config: &str, is_enabled: bool) -> String {
    let enabled = if is_enabled {
        format!("{ENABLED_LINE}\n")
    } else {
        String::new()
    };
    format!("{CONFIG_KEY}{}\n{enabled}", quote(config))
}

/// Puts the header before the text of a unit.
pub(super) fn sign_unit(text: &str) -> String {
    format!("{HEADER_PREFIX}{}\n{text}", Digest::of(text.as_bytes()))
}

/// Returns who wrote a unit file.
pub(super) fn unit_owner(text: &str) -> UnitOwner {
    let Some((digest, rest)) = text
        .strip_prefix(HEADER_PREFIX)
        .and_then(|text| text.split_once('\n'))
    else {
        return UnitOwner::Foreign;
    };
    let config = rest
        .lines()
        .find_map(|line| split_words(line.strip_prefix(CONFIG_KEY)?)?.pop());
    match config {
        Some(config) => UnitOwner::Own {
            config: Path::new(&config).to_path_buf(),
            is_intact: digest == Digest::of(rest.as_bytes()).to_string(),
        },
        None => UnitOwner::Foreign,
    }
}

/// Returns whether a unit of this program was enabled when it was installed.
pub(super) fn is_enabled_by_install(text: &str) -> bool {
    text.lines().any(|line| line == ENABLED_LINE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edited_unit_keeps_config_and_is_not_intact() {
        let config = "/srv/a %h \"b\".conf";
        let text = sign_unit(&format!("[Unit]\n{}", ownership_lines(config, true)));
        let own = |is_intact| UnitOwner::Own {
            config: config.into(),
            is_intact,
        };
        assert_eq!(unit_owner(&text), own(true));
        assert_eq!(unit_owner(&(text.clone() + "Wants=x\n")), own(false));
        assert!(is_enabled_by_install(&text));
        assert_eq!(unit_owner("[Unit]\n"), UnitOwner::Foreign);
    }
}
