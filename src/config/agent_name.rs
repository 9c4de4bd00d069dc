//! Names of agents: which there can be, and what to write in place of another one.

/// Maximum length of an agent name in bytes. Files of its runs have that name plus a random name
/// and a suffix, and file systems allow 255 bytes in all.
pub(super) const MAX_AGENT_NAME_BYTES: usize = 200;

/// Returns whether a text can be the name of an agent: letters, digits, `_` and `-`.
pub fn is_agent_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_agent_name_char)
}

/// Suggests a name of an agent instead of an invalid one, for the section with a number. Where little
/// would be left of the name, a comment can keep it.
pub(super) fn agent_name_hint(name: &str, number: usize) -> String {
    let kept = name.chars().filter(char::is_ascii_alphanumeric).count();
    let count = name.chars().filter(|c| c.is_alphanumeric()).count();
    if count > 0 && kept * 2 < count {
        return format!(
            "directories and locks are named after it: write [agent-{number}], or the name in \
             Latin letters, and `# {name}` above it"
        );
    }
    let suggestion = name.replace(|c| !is_agent_name_char(c), "-");
    format!("write [{suggestion}]")
}

fn is_agent_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}
