//! What the pieces of a Markdown text are, for their colours.

use std::collections::HashMap;

use syntect::parsing::{ParseState, Scope, ScopeStack, SyntaxSet};

use super::text::{Tone, Tones};

/// Longer texts stay plain.
pub const LONGEST: usize = 256 << 10;

/// So do longer lines.
const LONGEST_LINE: usize = 1 << 10;

/// Pieces of one text that get a tone; the rest stays plain.
const MOST: usize = 20_000;

/// The rules of Markdown, which take a moment to load.
pub struct Markdown {
    syntaxes: SyntaxSet,
    tones: Vec<(Scope, Tone)>,
}

impl Markdown {
    /// Loads the rules.
    pub fn load() -> Markdown {
        let tone = |(name, tone)| Some((Scope::new(name).ok()?, tone));
        let tones = [
            ("markup.raw", Tone::Code),
            ("markup.underline.link", Tone::Link),
            ("meta.link", Tone::Link),
            ("meta.image", Tone::Link),
            ("markup.bold", Tone::Strong),
            ("markup.italic", Tone::Emphasis),
            ("markup.heading", Tone::Heading),
            ("markup.quote", Tone::Quote),
            ("punctuation.definition.list_item", Tone::List),
            ("markup.list.numbered.bullet", Tone::List),
        ];
        Markdown {
            syntaxes: SyntaxSet::load_defaults_newlines(),
            tones: tones.into_iter().filter_map(tone).collect(),
        }
    }

    /// The tones of a text, by the numbers of its lines from 1. It ends early when
    /// it may not `go_on`: some texts are made to take long.
    pub fn tones(&self, text: &[u8], go_on: &dyn Fn() -> bool) -> HashMap<usize, Tones> {
        let mut all = HashMap::new();
        let Some(syntax) = self.syntaxes.find_syntax_by_name("Markdown") else {
            return all;
        };
        if text.len() > LONGEST {
            return all;
        }
        let mut state = ParseState::new(syntax);
        let mut stack = ScopeStack::new();
        let mut left = MOST;
        for (number, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let Some(line) = str::from_utf8(line)
                .ok()
                .filter(|it| it.len() <= LONGEST_LINE)
            else {
                continue;
            };
            if left == 0 || !go_on() {
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
                let tone = self.tone(&stack);
                if tone != Tone::Plain && !piece.is_empty() {
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

    /// The innermost of the scopes that has one.
    fn tone(&self, stack: &ScopeStack) -> Tone {
        let of = |scope: &Scope| {
            let mut tones = self.tones.iter();
            let found = tones.find(|(prefix, _)| prefix.is_prefix_of(*scope));
            found.map(|(_, tone)| *tone)
        };
        stack.scopes.iter().rev().find_map(of).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tones of a text, as words with what they are of.
    fn shown(text: &str) -> Vec<String> {
        let markdown = Markdown::load();
        let tones = markdown.tones(text.as_bytes(), &|| true);
        let mut shown = Vec::new();
        for (number, line) in text.lines().enumerate() {
            for (range, tone) in tones.get(&(number + 1)).into_iter().flatten() {
                shown.push(format!("{}:{tone:?}:{}", number + 1, &line[range.clone()]));
            }
        }
        shown
    }

    #[test]
    fn what_markdown_is_made_of_has_a_tone() {
        let text = "# Rules\n\n- be **kind** and *brief*\n\n> said\n\nrun `ls` or [this](http://x.y)\n\n\
                    ```\nlet x = 1;\n```\nplain\n\n1. first\n";
        let shown = shown(text);
        for expected in [
            "1:Heading:# Rules",
            "3:List:-",
            "3:Strong:**kind**",
            "3:Emphasis:*brief*",
            "5:Quote:> said",
            "7:Code:`ls`",
            "10:Code:let x = 1;",
            "14:List:1.",
        ] {
            assert!(
                shown.iter().any(|it| it == expected),
                "{expected}: {shown:#?}"
            );
        }
        assert!(
            shown.iter().any(|it| it.starts_with("7:Link:")),
            "{shown:#?}"
        );
        assert!(!shown.iter().any(|it| it.starts_with("12:")), "{shown:#?}");
    }

    #[test]
    fn long_lines_and_texts_stay_plain() {
        let markdown = Markdown::load();
        let tones = |text: &str| markdown.tones(text.as_bytes(), &|| true);
        let long = format!("# {}\n# short\n", "x".repeat(LONGEST_LINE));
        assert_eq!(tones(&long).keys().collect::<Vec<_>>(), [&2]);
        assert!(tones(&format!("# a\n{}", "x\n".repeat(LONGEST / 2))).is_empty());
        assert!(markdown.tones(b"# a\n", &|| false).is_empty());
        // Bytes that are no UTF-8 are not looked into.
        assert_eq!(markdown.tones(b"# \xff\n# b\n", &|| true).len(), 1);
    }
}
