//! A config for tests of alerts.

use std::path::Path;

use crate::config::{Config, ConfigEnvironment, parse};

/// Parses the text of a config, as that of the file `/srv/night.conf`.
pub(super) fn parse_config(text: &str) -> Config {
    let env = ConfigEnvironment {
        cwd: "/".into(),
        home: None,
        xdg_config_home: None,
        xdg_state_home: None,
        config_path_variable: None,
        program_directory: None,
        uid: 1000,
    };
    parse(text.as_bytes(), Path::new("/srv/night.conf"), &env).unwrap()
}
