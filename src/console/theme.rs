//! Colours and attributes, by meaning. A closed set of roles; themes are TOML
//! files in `themes/`, embedded.

use ratatui::style::{Color, Modifier, Style};
use serde::Deserialize;

use super::text::Tone;
use crate::engine::{Outcome, State};
use crate::error::{Error, Kind, Result};

/// The default theme's name.
pub const DEFAULT: &str = "terminal";

/// The theme without colour.
pub const MONO: &str = "mono";

/// The themes that come with the program.
pub const BUILT_IN: &[(&str, &str)] = &[
    (DEFAULT, include_str!("../../themes/terminal.toml")),
    (MONO, include_str!("../../themes/mono.toml")),
];

macro_rules! roles {
    ($($field:ident $role:ident $doc:literal,)*) => {
        /// What a run of cells means.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Role { $(#[doc = $doc] $role,)* }

        /// All roles; a theme must name every one.
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Roles { $($field: Look,)* }

        impl Roles {
            fn get(&self, role: Role) -> &Look {
                match role { $(Role::$role => &self.$field,)* }
            }
        }
    };
}

roles! {
    text Text "Ordinary text.",
    dim Dim "Less important text.",
    title Title "The name of what is shown.",
    tag Tag "The fleet's tag.",
    rule Rule "Lines between regions.",
    heading Heading "Column heads, headings of help, the tab that is open.",
    cursor Cursor "The row under the cursor.",
    mark Mark "The star of a marked row.",
    key Key "A key in a hint.",
    disabled Disabled "A command that cannot be run now.",
    prompt Prompt "What is being typed.",
    tampered Tampered "State TAMPERED.",
    drifted Drifted "States DRIFTED and NOSEP.",
    trouble Trouble "States ERROR and MISSING.",
    oversize Oversize "State OVERSIZE.",
    busy Busy "State BUSY.",
    scratch Scratch "State SCRATCH.",
    clean Clean "State CLEAN.",
    loading Loading "State LOADING.",
    good Good "It went well.",
    warn Warn "Something is in the way.",
    bad Bad "It went wrong.",
    added Added "A line that the agent added.",
    added_word AddedWord "The words of it that are new.",
    removed Removed "A line that the agent removed.",
    removed_word RemovedWord "The words of it that are gone.",
    separator Separator "The boundary.",
    number Number "Line numbers.",
    markdown_heading MarkdownHeading "A heading in an agent's text.",
    markdown_strong MarkdownStrong "Strong emphasis there.",
    markdown_emphasis MarkdownEmphasis "Emphasis there.",
    markdown_code MarkdownCode "Code there.",
    markdown_link MarkdownLink "A link there.",
    markdown_list MarkdownList "What begins an item of a list there.",
    markdown_quote MarkdownQuote "A quotation there.",
    hit Hit "A search hit.",
    revealed Revealed "Characters that would not show; no agent's text can wear this.",
}

/// A role's look as a theme writes it.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Look {
    fg: Option<Color>,
    bg: Option<Color>,
    #[serde(default)]
    style: Vec<Attribute>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Attribute {
    Bold,
    Dim,
    Italic,
    Underlined,
    Reversed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    word_marks: bool,
    roles: Roles,
}

/// A theme.
pub struct Theme {
    file: File,
}

impl Theme {
    /// The built-in theme of this name.
    ///
    /// # Errors
    /// [`Kind::User`] when there is none.
    pub fn named(name: &str) -> Result<Theme> {
        let found = BUILT_IN.iter().find(|(own, _)| *own == name);
        let Some((_, text)) = found else {
            let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
            return Err(
                Error::new(Kind::User, format!("there is no theme called {name}"))
                    .hint(format!("there are {}", names.join(" and "))),
            );
        };
        Theme::read(text).map_err(|error| error.context(format!("the theme {name}")))
    }

    fn read(text: &str) -> Result<Theme> {
        let file = toml::from_str(text)
            .map_err(|error| Error::new(Kind::Config, error.message().to_string()))?;
        Ok(Theme { file })
    }

    /// Whether changed words are marked by signs, because there is no colour.
    pub fn word_marks(&self) -> bool {
        self.file.word_marks
    }

    /// How a role looks.
    pub fn style(&self, role: Role) -> Style {
        let look = self.file.roles.get(role);
        let mut style = Style::new();
        style.fg = look.fg;
        style.bg = look.bg;
        for attribute in &look.style {
            style = style.add_modifier(match attribute {
                Attribute::Bold => Modifier::BOLD,
                Attribute::Dim => Modifier::DIM,
                Attribute::Italic => Modifier::ITALIC,
                Attribute::Underlined => Modifier::UNDERLINED,
                Attribute::Reversed => Modifier::REVERSED,
            });
        }
        style
    }
}

/// The role of a state.
pub fn of_state(state: State) -> Role {
    match state {
        State::Tampered | State::HostKey => Role::Tampered,
        State::Drifted | State::NoSep => Role::Drifted,
        State::Unreach | State::Error | State::Missing => Role::Trouble,
        State::Oversize => Role::Oversize,
        State::Busy => Role::Busy,
        State::Scratch => Role::Scratch,
        State::Clean => Role::Clean,
        State::Loading => Role::Loading,
    }
}

/// The role of a tone.
pub fn of_tone(tone: Tone) -> Role {
    match tone {
        Tone::Plain => Role::Text,
        Tone::Heading => Role::MarkdownHeading,
        Tone::Strong => Role::MarkdownStrong,
        Tone::Emphasis => Role::MarkdownEmphasis,
        Tone::Code => Role::MarkdownCode,
        Tone::Link => Role::MarkdownLink,
        Tone::List => Role::MarkdownList,
        Tone::Quote => Role::MarkdownQuote,
        Tone::Dim => Role::Dim,
        Tone::Good => Role::Good,
        Tone::Warn => Role::Warn,
        Tone::Bad => Role::Bad,
        Tone::State(state) => of_state(state),
    }
}

/// The role of an outcome.
pub fn of_outcome(outcome: Outcome) -> Role {
    match outcome {
        Outcome::Ok => Role::Good,
        Outcome::Unchanged => Role::Dim,
        Outcome::Failed | Outcome::Refused => Role::Bad,
        Outcome::NotStarted => Role::Warn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_theme_has_every_role() {
        for (name, _) in BUILT_IN {
            Theme::named(name).unwrap();
        }
        assert_eq!(Theme::named("nope").err().unwrap().kind(), Kind::User);
    }

    #[test]
    fn mono_uses_no_colour_and_tells_states_apart() {
        let mono = Theme::named(MONO).unwrap();
        assert!(mono.word_marks());
        for state in State::ALL {
            let style = mono.style(of_state(state));
            assert_eq!((style.fg, style.bg), (None, None), "{state}");
        }
        assert_ne!(mono.style(Role::Cursor), mono.style(Role::Text));
    }

    #[test]
    fn nothing_that_agents_write_looks_like_a_revealed_character() {
        for (name, _) in BUILT_IN {
            let theme = Theme::named(name).unwrap();
            let roles = [
                Role::Text,
                Role::Added,
                Role::AddedWord,
                Role::Removed,
                Role::RemovedWord,
                Role::Dim,
                Role::MarkdownHeading,
                Role::MarkdownStrong,
                Role::MarkdownEmphasis,
                Role::MarkdownCode,
                Role::MarkdownLink,
                Role::MarkdownList,
                Role::MarkdownQuote,
            ];
            for role in roles {
                let style = theme.style(role);
                assert_ne!(style, theme.style(Role::Revealed), "{name}");
                assert!(
                    !style.add_modifier.contains(Modifier::REVERSED),
                    "{name} {role:?}"
                );
            }
        }
    }

    #[test]
    fn no_markdown_looks_like_a_state_or_a_change_or_the_boundary() {
        let tones = [
            Tone::Heading,
            Tone::Strong,
            Tone::Emphasis,
            Tone::Code,
            Tone::Link,
            Tone::List,
            Tone::Quote,
        ];
        let ours = [
            Role::Added,
            Role::AddedWord,
            Role::Removed,
            Role::RemovedWord,
            Role::Separator,
            Role::Good,
            Role::Warn,
            Role::Bad,
            Role::Dim,
        ];
        for (name, _) in BUILT_IN {
            let theme = Theme::named(name).unwrap();
            let plain = theme.style(Role::Text);
            let states = State::ALL.into_iter().map(of_state);
            for ours in states.chain(ours).map(|role| theme.style(role)) {
                for tone in tones {
                    let style = theme.style(of_tone(tone));
                    assert!(style == plain || style != ours, "{name}: {tone:?}");
                }
            }
        }
    }

    #[test]
    fn a_theme_that_lacks_a_role_or_has_another_is_an_error() {
        assert!(Theme::read("word_marks = true\n[roles]\ntext = {}\n").is_err());
        let more = format!("{}\nextra = {{}}\n", BUILT_IN[0].1);
        assert!(Theme::read(&more).is_err());
    }
}
