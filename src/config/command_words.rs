//! The words of a command in a value, as a shell splits them.

/// Expands `~/` at the start of each word of a command, outside quotes, as a shell does.
pub(super) fn expand_home_in_command(command: &str, home: &str) -> String {
    let home = shell_words::quote(home);
    let mut expanded = String::with_capacity(command.len());
    for (at, c) in command.char_indices() {
        let is_word_start = command[..at].ends_with([' ', '\t']) || at == 0;
        let is_home = c == '~' && command[at + 1..].starts_with('/');
        if is_home && is_word_start && !is_quoted_at(command, at) {
            expanded.push_str(&home);
        } else {
            expanded.push(c);
        }
    }
    expanded
}

/// Returns whether a position of a command is inside quotes.
pub(super) fn is_quoted_at(command: &str, at: usize) -> bool {
    let mut open = None;
    let mut chars = command[..at].chars();
    while let Some(c) = chars.next() {
        match (c, open) {
            ('\\', None | Some('"')) => {
                chars.next();
            }
            ('"' | '\'', None) => open = Some(c),
            (c, Some(quote)) if c == quote => open = None,
            _ => {}
        }
    }
    open.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn home_is_expanded_as_in_a_shell() {
        for (command, expanded) in [
            ("~/notify.sh", "/home/op/notify.sh"),
            (
                "nice ~/a ~/b\t~/c",
                "nice /home/op/a /home/op/b\t/home/op/c",
            ),
            (
                "a '~/b' \"x ~/c\" --to=~/d ~",
                "a '~/b' \"x ~/c\" --to=~/d ~",
            ),
        ] {
            assert_eq!(expand_home_in_command(command, "/home/op"), expanded);
        }
        let spaced = expand_home_in_command("~/it is", "/home/o p");
        assert_eq!(shell_words::split(&spaced).unwrap(), ["/home/o p/it", "is"]);
    }
}
