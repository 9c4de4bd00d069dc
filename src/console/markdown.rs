//! Finds the elements of a Markdown text and gives them tones, for their colours. Limits bound the
//! time and memory that a hostile text can take.

use std::collections::HashMap;

use syntect::parsing::{
    ParseState, Scope, ScopeStack, SyntaxDefinition, SyntaxSet, SyntaxSetBuilder,
};

use super::text::Tones;
use super::theme::Role;

/// The longest text that is highlighted, in bytes; longer ones stay plain.
pub const MAX_TEXT_BYTES: usize = 256 << 10;

/// The longest line that is highlighted, in bytes.
const MAX_LINE_BYTES: usize = 1 << 10;

/// Toned pieces of one text; the rest stays plain.
const MAX_TONED_SPANS: usize = 20_000;

/// The syntax rules.
const SYNTAX_RULES: &str = include_str!("markdown.sublime-syntax");

/// Highlights Markdown.
pub struct MarkdownHighlighter {
    syntaxes: SyntaxSet,
    scope_tones: Vec<(Scope, Role)>,
}

impl MarkdownHighlighter {
    /// Parses the rules, which takes some time.
    pub fn load() -> MarkdownHighlighter {
        let mut rules = SyntaxSetBuilder::new();
        // The rules are embedded, and a test proves that they parse.
        if let Ok(markdown) = SyntaxDefinition::load_from_str(SYNTAX_RULES, true, None) {
            rules.add(markdown);
        }
        let tone = |(name, tone)| Some((Scope::new(name).ok()?, tone));
        let tones = [
            ("markup.raw", Role::MarkdownCode),
            ("markup.underline.link", Role::MarkdownLink),
            ("markup.bold", Role::MarkdownStrong),
            ("markup.italic", Role::MarkdownEmphasis),
            ("markup.heading", Role::MarkdownHeading),
            ("markup.quote", Role::MarkdownQuote),
            ("markup.list", Role::MarkdownList),
        ];
        MarkdownHighlighter {
            syntaxes: rules.build(),
            scope_tones: tones.into_iter().filter_map(tone).collect(),
        }
    }

    /// Returns the tones of a text by line number, from 1. Stops early if `should_continue` returns
    /// false: some texts are made to take long.
    pub fn line_tones(
        &self,
        text: &[u8],
        should_continue: &dyn Fn() -> bool,
    ) -> HashMap<usize, Tones> {
        let mut all = HashMap::new();
        let Some(syntax) = self.syntaxes.find_syntax_by_name("Markdown") else {
            return all;
        };
        if text.len() > MAX_TEXT_BYTES {
            return all;
        }
        let mut state = ParseState::new(syntax);
        let mut stack = ScopeStack::new();
        let mut left = MAX_TONED_SPANS;
        for (number, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let Some(line) = str::from_utf8(line)
                .ok()
                .filter(|it| it.len() <= MAX_LINE_BYTES)
            else {
                continue;
            };
            if left == 0 || !should_continue() {
                break;
            }
            let Ok(changes) = state.parse_line(line, &self.syntaxes) else {
                break;
            };
            let mut tones: Tones = Vec::new();
            let mut at = 0;
            let end = line.trim_end_matches(['\n', '\r']).len();
            for (next, change) in changes
                .iter()
                .map(|(at, it)| (*at, Some(it)))
                .chain([(end, None)])
            {
                let piece = at..next.min(end);
                let tone = self.scope_tone(&stack);
                if tone != Role::Text && !piece.is_empty() {
                    match tones.last_mut() {
                        Some((last, same)) if *same == tone && last.end == at => {
                            last.end = piece.end
                        }
                        _ => tones.push((piece, tone)),
                    }
                }
                at = next;
                if let Some(change) = change
                    && stack.apply(change).is_err()
                {
                    return all;
                }
            }
            left = left.saturating_sub(tones.len());
            if !tones.is_empty() {
                all.insert(number + 1, tones);
            }
        }
        all
    }

    /// Returns the tone of the innermost scope that has one.
    fn scope_tone(&self, stack: &ScopeStack) -> Role {
        let of = |scope: &Scope| {
            let mut tones = self.scope_tones.iter();
            let found = tones.find(|(prefix, _)| prefix.is_prefix_of(*scope));
            found.map(|(_, tone)| *tone)
        };
        stack.scopes.iter().rev().find_map(of).unwrap_or(Role::Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the tones of a text as `LINE:TONE:TEXT`.
    fn toned_words(text: &str) -> Vec<String> {
        let markdown = MarkdownHighlighter::load();
        let tones = markdown.line_tones(text.as_bytes(), &|| true);
        let mut shown = Vec::new();
        for (number, line) in text.lines().enumerate() {
            for (range, tone) in tones.get(&(number + 1)).into_iter().flatten() {
                let tone = format!("{tone:?}").replacen("Markdown", "", 1);
                shown.push(format!("{}:{tone}:{}", number + 1, &line[range.clone()]));
            }
        }
        shown
    }

    #[test]
    fn markdown_elements_have_tones() {
        let text = "# Rules\n\
                    - be **kind**, *brief* and __very__ _short_\n\
                    > said\n\
                    run `ls` or ``a`b`` or [this](http://x.y)\n\
                    ~~~ rust\n\
                    # let **x** = 1;\n\
                    ```\n\
                    ~~~\n\
                    plain\n\
                    12. see https://example.org/a.\n";
        let expected = [
            "1:Heading:# Rules",
            "2:List:-",
            "2:Strong:**kind**",
            "2:Emphasis:*brief*",
            "2:Strong:__very__",
            "2:Emphasis:_short_",
            "3:Quote:> said",
            "4:Code:`ls`",
            "4:Code:``a`b``",
            "4:Link:[this](http://x.y)",
            "5:Code:~~~ rust",
            "6:Code:# let **x** = 1;",
            "7:Code:```",
            "8:Code:~~~",
            "10:List:12.",
            "10:Link:https://example.org/a.",
        ];
        assert_eq!(toned_words(text), expected);
    }

    #[test]
    fn markdown_lookalikes_have_no_tone() {
        let text = "#no heading\n\
                    a_b_c 2 * 3 * 4 ** 5 **\n\
                    \\*not\\* \\`this\\`\n\
                    `` no end `\n\
                    -no item\n\
                    [no link] (apart)\n";
        assert_eq!(toned_words(text), [""; 0]);
    }

    #[test]
    fn overlong_lines_and_texts_stay_plain() {
        let markdown = MarkdownHighlighter::load();
        let tones = |text: &str| markdown.line_tones(text.as_bytes(), &|| true);
        let long = format!("# {}\n# short\n", "x".repeat(MAX_LINE_BYTES));
        assert_eq!(tones(&long).keys().collect::<Vec<_>>(), [&2]);
        assert!(tones(&format!("# a\n{}", "x\n".repeat(MAX_TEXT_BYTES / 2))).is_empty());
        assert!(markdown.line_tones(b"# a\n", &|| false).is_empty());
        // Lines that are not UTF-8 stay plain.
        assert_eq!(markdown.line_tones(b"# \xff\n# b\n", &|| true).len(), 1);
    }
    proptest::proptest! {
        /// For any text, the pieces are in order, do not overlap, consist of whole characters, and
        /// never have a tone of the program's own text.
        #[test]
        fn toned_spans_are_ordered_and_on_char_boundaries(
            text in "([`*_#>\\[\\]()~!\\\\ a日\\n\\r\u{200b}-]|http://|1\\. ){0,120}",
        ) {
            let tones = MarkdownHighlighter::load().line_tones(text.as_bytes(), &|| true);
            let lines: Vec<&str> = text.split('\n').collect();
            for (number, tones) in tones {
                let line = lines[number - 1];
                let mut end = 0;
                for (range, tone) in tones {
                    proptest::prop_assert!(range.start >= end && range.end > range.start);
                    proptest::prop_assert!(line.get(range.clone()).is_some(), "{line:?} {range:?}");
                    let role = format!("{tone:?}");
                    proptest::prop_assert!(role.starts_with("Markdown"));
                    end = range.end;
                }
            }
        }
    }
}
