//! Habits of other INI files and of shells that this format takes literally: comments after `;`,
//! variables, `~NAME`. A value with one of them is used as it is written, and warned about where
//! something else is surely meant.

use super::alert_settings::AlertShape;
use super::command_words::is_quoted_at;
use super::keys::ValueShape;

/// Programs that expand variables in their arguments themselves.
const SHELLS: [&str; 7] = ["sh", "bash", "dash", "zsh", "ksh", "fish", "env"];

/// A warning about a value: the message and the hint.
type ForeignHabit = (String, String);

/// Returns the foreign habits in the value of a key.
pub(super) fn find_foreign_habits(shape: ValueShape, key: &str, value: &str) -> Vec<ForeignHabit> {
    let comment = find_comment(shape, key, value);
    let variable = find_variable(shape, value);
    let home = find_other_home(shape, value);
    [comment, variable, home].into_iter().flatten().collect()
}

fn is_command(shape: ValueShape) -> bool {
    matches!(shape, ValueShape::Alert(AlertShape::Command))
}

fn is_relative_path(shape: ValueShape) -> bool {
    matches!(
        shape,
        ValueShape::Baseline | ValueShape::ArchiveSubdirectory
    )
}

fn is_path(shape: ValueShape, value: &str) -> bool {
    let is_socket = matches!(shape, ValueShape::Alert(AlertShape::Journal)) && value.contains('/');
    let is_file = matches!(
        shape,
        ValueShape::Directory | ValueShape::File | ValueShape::RemoteFile
    );
    is_file || is_socket || is_relative_path(shape)
}

/// Finds ` ; text` behind a value. A path may go on behind it.
fn find_comment(shape: ValueShape, key: &str, value: &str) -> Option<ForeignHabit> {
    let mut marks = value.match_indices(';');
    let (at, _) = marks.find(|(at, _)| {
        value[..*at].ends_with([' ', '\t']) && !(is_command(shape) && is_quoted_at(value, *at))
    })?;
    let (before, comment) = (value[..at].trim_end(), &value[at..]);
    if is_path(shape, value) && comment.contains('/') {
        return None;
    }
    let text = comment[1..].trim();
    Some((
        format!(
            "`{comment}` is part of the value of `{key}`: `;` begins a comment only at the start of a line"
        ),
        format!("write {key} = {before} # {text}"),
    ))
}

/// Finds `$NAME`, `${NAME}` and `%(name)s`. A shell that runs a command expands the first two.
fn find_variable(shape: ValueShape, value: &str) -> Option<ForeignHabit> {
    let is_url = matches!(shape, ValueShape::Alert(AlertShape::Url));
    if !is_path(shape, value) && !is_command(shape) && !is_url {
        return None;
    }
    if is_command(shape) {
        let words = shell_words::split(value).unwrap_or_default();
        let program = words.first().and_then(|word| word.rsplit('/').next());
        if program.is_some_and(|program| SHELLS.contains(&program)) {
            return None;
        }
    }
    let variable = variable_at_any_place(value)?;
    let is_home = matches!(variable, "$HOME" | "${HOME}");
    let hint = if is_command(shape) && !is_home {
        format!("write its value, or let a shell expand it: sh -c '… {variable} …'")
    } else if is_home && !is_relative_path(shape) && !is_url {
        "write ~/ in its place".to_string()
    } else {
        "write its value".to_string()
    };
    let message = format!("`{variable}` is used as it is written: nothing expands variables here");
    Some((message, hint))
}

/// Returns the first variable in a text.
fn variable_at_any_place(text: &str) -> Option<&str> {
    let is_name = |name: &str| {
        let mut chars = name.chars();
        let is_start = |c: char| c.is_ascii_alphabetic() || c == '_';
        chars.next().is_some_and(is_start) && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let found = text.char_indices().find_map(|(at, c)| {
        let rest = &text[at + c.len_utf8()..];
        let enclosed = |open: char, close: &str| {
            let inner = rest.strip_prefix(open)?;
            let length = inner.find(close)?;
            is_name(&inner[..length]).then_some(1 + 1 + length + close.len())
        };
        let length = match c {
            '$' => enclosed('{', "}").or_else(|| {
                let end = |c: char| !c.is_ascii_alphanumeric() && c != '_';
                let length = rest.find(end).unwrap_or(rest.len());
                is_name(&rest[..length]).then_some(1 + length)
            }),
            '%' => enclosed('(', ")s"),
            _ => None,
        };
        length.map(|length| at..at + length)
    });
    found.map(|range| &text[range])
}

/// Finds `~NAME` in relative paths and commands, where it is valid.
fn find_other_home(shape: ValueShape, value: &str) -> Option<ForeignHabit> {
    let words = if is_command(shape) {
        shell_words::split(value).unwrap_or_default()
    } else if is_relative_path(shape) {
        vec![value.to_string()]
    } else {
        return None;
    };
    let is_home = |word: &String| {
        let user = word.strip_prefix('~').and_then(|rest| rest.split_once('/'));
        user.is_some_and(|(user, _)| user.chars().next().is_some_and(char::is_alphabetic))
    };
    let word = words.into_iter().find(is_home)?;
    let message =
        format!("`{word}` is used as it is written: only `~/` is expanded, in paths and commands");
    Some((message, "write the full path".to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMAND: ValueShape = ValueShape::Alert(AlertShape::Command);

    #[test]
    fn literal_values_have_no_foreign_habit() {
        for (shape, value) in [
            (ValueShape::Directory, "./arch"),
            (ValueShape::Directory, "./a;b"),
            (ValueShape::File, "/srv/a ; b/MEMORY.md"),
            (ValueShape::File, "/srv/$/a$1/100%"),
            (ValueShape::File, "~/x"),
            (ValueShape::Separator, ";; ---"),
            (ValueShape::Text, "$TEAM"),
            (COMMAND, "sh -c 'a ; echo $HOME'"),
            (COMMAND, "/bin/bash -c 'echo ${X}'"),
            (COMMAND, "notify 'a ;b' \"c ;d\""),
            (COMMAND, "~/notify.sh ~"),
            (ValueShape::Baseline, "~x.md"),
        ] {
            assert_eq!(find_foreign_habits(shape, "key", value), [], "{value}");
        }
    }

    #[test]
    fn variables_are_found_with_their_braces() {
        for (text, variable) in [
            ("$HOME/arch", "$HOME"),
            ("/srv/${TEAM}/x", "${TEAM}"),
            ("%(here)s/arch", "%(here)s"),
            ("é$é$A_1-b", "$A_1"),
        ] {
            assert_eq!(variable_at_any_place(text), Some(variable));
        }
    }
}
