//! Command lines of this program that messages suggest. They name the config, so that they act on
//! the same fleet in every directory.

use std::path::{Path, PathBuf};

/// The flags that suggested command lines have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Invocation {
    config: Option<PathBuf>,
}

impl Invocation {
    /// Creates an invocation that names `config` in every command line. The default names none and
    /// leaves the config to the search.
    pub fn with_config(config: &Path) -> Invocation {
        Invocation {
            config: Some(config.to_path_buf()),
        }
    }

    /// Returns the command line that opens the console.
    pub fn console_command_line(&self) -> String {
        self.append_config_flag("memory-shepherd".to_string())
    }

    /// Returns the command line of a verb. `verb` includes its arguments, already quoted for a
    /// shell.
    pub fn command_line(&self, verb: &str) -> String {
        self.append_config_flag(format!("memory-shepherd {verb}"))
    }

    fn append_config_flag(&self, mut line: String) -> String {
        if let Some(config) = &self.config {
            line.push_str(" --config ");
            line.push_str(&shell_words::quote(&config.to_string_lossy()));
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_quotes_config_for_shell() {
        let line = |config: &str| Invocation::with_config(Path::new(config)).command_line("undo a");
        assert_eq!(
            line("/srv/a.conf"),
            "memory-shepherd undo a --config /srv/a.conf"
        );
        assert_eq!(
            line("/srv/it's $HOME.conf"),
            r"memory-shepherd undo a --config '/srv/it'\''s $HOME.conf'"
        );
        assert_eq!(
            Invocation::default().command_line("log"),
            "memory-shepherd log"
        );
    }
}
