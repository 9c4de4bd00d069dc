//! What an installed unit file runs.

use std::path::PathBuf;

use super::escape::split_words;
use super::original::COMMAND_PREFIXES;

/// Returns the program that a service starts; none in a unit without `ExecStart=`, or where it is not
/// named with its directory.
pub fn find_unit_program(text: &str) -> Option<PathBuf> {
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="))?;
    let words = split_words(value)?;
    let program = words.first()?.trim_start_matches(COMMAND_PREFIXES);
    program.starts_with('/').then(|| PathBuf::from(program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_of_a_service_is_unquoted() {
        let text = "[Service]\nType=oneshot\nExecStart=\"/opt/a b/x\" reset --config \"/c\"\n";
        assert_eq!(find_unit_program(text), Some(PathBuf::from("/opt/a b/x")));
        let text = "[Service]\nExecStart=-/opt/x\n";
        assert_eq!(find_unit_program(text), Some(PathBuf::from("/opt/x")));
        assert_eq!(find_unit_program("[Service]\nExecStart=x\n"), None);
        assert_eq!(find_unit_program("[Timer]\nOnCalendar=daily\n"), None);
    }
}
