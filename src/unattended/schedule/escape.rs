//! Values as unit files quote them (systemd.syntax(7)), and the way back.

use std::path::Path;

use crate::base::error::{Error, ErrorKind, Result};

/// Returns the text of a path that a unit file can name.
///
/// # Errors
/// The path is not UTF-8, or has a character that a unit file cannot express.
pub(super) fn unit_path(path: &Path) -> Result<&str> {
    let text = path
        .to_str()
        .filter(|text| !text.contains(char::is_control));
    text.ok_or_else(|| {
        let path = path.display();
        let message =
            format!("cannot name {path} in a unit or crontab: control characters, or not UTF-8");
        Error::new(ErrorKind::Config, message).with_hint("rename it")
    })
}

/// Quotes a word. Both ways in which systemd reads quotes agree on `\\` and `\"`, and specifiers
/// begin with `%`.
pub(super) fn quote(word: &str) -> String {
    let mut quoted = String::from("\"");
    for c in word.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '%' => quoted.push_str("%%"),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Quotes an argument of a command line, in which `$` begins a variable. In the path of the program
/// it does not.
pub(super) fn quote_argument(word: &str) -> String {
    quote(&word.replace('$', "$$"))
}

/// Returns the words of a value, without quotes, or `None` if a quote does not end. Variables and
/// specifiers stay as they are, but `%%` is `%`.
pub(super) fn split_words(value: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut chars = value.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, quote) {
            ('\\', _) => word.get_or_insert_default().push(chars.next()?),
            (c, Some(open)) if c == open => quote = None,
            ('"' | '\'', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            ('%', _) if chars.next_if_eq(&'%').is_some() => {
                word.get_or_insert_default().push('%');
            }
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn quoted_words_read_back(words in proptest::collection::vec("[^\\p{Cc}]{0,12}", 0..5)) {
            let quoted: Vec<String> = words.iter().map(|it| quote(it)).collect();
            prop_assert_eq!(split_words(&quoted.join(" ")), Some(words));
        }
    }

    #[test]
    fn path_with_line_feed_is_refused() {
        assert!(unit_path(Path::new("/srv/a\nb")).is_err());
        assert_eq!(unit_path(Path::new("/srv/a b")).unwrap(), "/srv/a b");
    }

    #[test]
    fn variable_and_specifier_are_literal() {
        assert_eq!(
            quote_argument("/a %h $HOME \"x\\"),
            r#""/a %%h $$HOME \"x\\""#
        );
    }
}
