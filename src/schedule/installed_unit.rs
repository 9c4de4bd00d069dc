//! What an installed unit file runs, and what systemd adds to it.

use std::fs;
use std::path::{Path, PathBuf};

use super::escape::split_words;

/// Returns the program that a service starts; none in a unit without `ExecStart=`.
pub fn find_unit_program(text: &str) -> Option<PathBuf> {
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="))?;
    let words = split_words(value)?;
    words.first().map(PathBuf::from)
}

/// Returns the files that systemd adds to a unit file: those in its directory of drop-ins. The
/// directory itself comes first.
pub fn find_drop_ins(unit: &Path) -> Vec<PathBuf> {
    let mut name = unit.as_os_str().to_os_string();
    name.push(".d");
    let directory = PathBuf::from(name);
    let Ok(entries) = fs::read_dir(&directory) else {
        return Vec::new();
    };
    let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let files = files.filter(|path| path.extension().is_some_and(|it| it == "conf"));
    let mut files: Vec<PathBuf> = files.collect();
    files.sort();
    files.insert(0, directory);
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_of_a_service_is_unquoted() {
        let text = "[Service]\nType=oneshot\nExecStart=\"/opt/a b/x\" reset --config \"/c\"\n";
        assert_eq!(find_unit_program(text), Some(PathBuf::from("/opt/a b/x")));
        assert_eq!(find_unit_program("[Timer]\nOnCalendar=daily\n"), None);
    }
}
