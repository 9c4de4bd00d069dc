//! A config for tests of alerts.

use std::path::Path;

use crate::config::{Config, ConfigEnvironment, parse};

/// Parses the text of a config, as that of the file `/srv/night.conf`.
pub(super) fn parse_config(text: &str) -> Config {
    let env = ConfigEnvironment {
        uid: 1000,
        ..ConfigEnvironment::bare("/")
    };
    parse(text.as_bytes(), Path::new("/srv/night.conf"), &env).unwrap()
}
