//! Command lines of this program that messages suggest. They name the config, so that they act on
//! the same fleet in every directory.

use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Returns a path below a directory of the program as a command takes it: `./` goes before one that
/// begins with a dash, which would be taken for an option.
pub fn as_operand(path: &Path) -> Cow<'_, Path> {
    if path.as_os_str().as_bytes().starts_with(b"-") {
        let mut operand = OsString::from("./");
        operand.push(path);
        return Cow::Owned(operand.into());
    }
    Cow::Borrowed(path)
}

/// Quotes a path or the name of a baseline for a command line that a message suggests.
pub fn quote_operand(path: impl AsRef<Path>) -> String {
    let operand = as_operand(path.as_ref());
    shell_words::quote(&operand.to_string_lossy()).into_owned()
}

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
            let flag = format!(" --config {}", quote_operand(config));
            line.insert_str(end_of_options(&line), &flag);
        }
        line
    }
}

/// Returns where the options of a command line end: before `--`, which is no part of a quoted word.
fn end_of_options(line: &str) -> usize {
    let mut ends = line.match_indices(" -- ").map(|(end, _)| end);
    let end = ends.find(|end| shell_words::split(&line[..*end]).is_ok());
    end.unwrap_or(line.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operand_that_begins_with_dash_is_no_option() {
        for (path, quoted) in [
            ("scout/a.md", "scout/a.md"),
            ("-dash/a.md", "./-dash/a.md"),
            ("--all", "./--all"),
            ("-it's.md", r"'./-it'\''s.md'"),
            ("#team/a.md", "'#team/a.md'"),
        ] {
            assert_eq!(quote_operand(path), quoted);
        }
    }

    #[test]
    fn config_flag_goes_before_operands_behind_dashes() {
        let invocation = Invocation::with_config(Path::new("f.conf"));
        for (verb, line) in [
            (
                "baseline replace -- a b",
                "baseline replace --config f.conf -- a b",
            ),
            ("seal 'a -- b'", "seal 'a -- b' --config f.conf"),
            ("seal 'a -- b' -- c", "seal 'a -- b' --config f.conf -- c"),
        ] {
            assert_eq!(
                invocation.command_line(verb),
                format!("memory-shepherd {line}")
            );
        }
    }

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
