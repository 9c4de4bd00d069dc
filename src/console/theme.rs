//! Colours and attributes, by meaning. A closed set of roles; themes are TOML
//! files, embedded from `themes/` or in the user's directory, where one is layered
//! over another.

mod colour_depth;
#[cfg(test)]
mod tests;
mod theme_file;

use std::fs;
use std::io;
use std::path::PathBuf;

use ratatui::style::Style;

pub use colour_depth::ColourDepth;

use super::text::Tone;
use crate::config::{self, ConfigErrors};
use crate::durable;
use crate::engine::{Outcome, State};
use crate::error::{Error, ErrorKind, Result};

/// The default theme's name.
pub const DEFAULT_THEME: &str = "terminal";

/// The theme without colour.
pub const MONOCHROME_THEME: &str = "mono";

/// Where the operator's own themes are, in the directory of their preferences.
pub const THEMES_DIRECTORY: &str = "themes";

/// The themes that come with the program.
pub const BUILT_IN_THEMES: &[(&str, &str)] = &[
    (DEFAULT_THEME, include_str!("../../themes/terminal.toml")),
    ("dark", include_str!("../../themes/dark.toml")),
    ("light", include_str!("../../themes/light.toml")),
    (
        "high-contrast",
        include_str!("../../themes/high-contrast.toml"),
    ),
    (
        "colour-blind",
        include_str!("../../themes/colour-blind.toml"),
    ),
    (MONOCHROME_THEME, include_str!("../../themes/mono.toml")),
];

macro_rules! roles {
    ($($field:ident $role:ident $doc:literal,)*) => {
        /// What a run of cells means.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Role { $(#[doc = $doc] $role,)* }

        impl Role {
            /// All roles, each with its name in themes. Their order is that of the
            /// looks of a theme.
            pub const ALL: &[(Role, &str)] = &[$((Role::$role, stringify!($field)),)*];
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

/// A theme: how each role looks.
#[derive(Clone, Debug)]
pub struct Theme {
    has_word_marks: bool,
    styles: Vec<Style>,
}

impl Theme {
    /// The built-in theme of this name, in all its colours.
    ///
    /// # Errors
    /// [`ErrorKind::User`] when there is none.
    pub fn built_in(name: &str) -> Result<Theme> {
        Themes::default().load(name)
    }

    /// Whether changed words are marked by signs, because there is no colour.
    pub fn has_word_marks(&self) -> bool {
        self.has_word_marks
    }

    /// How a role looks. What it says nothing about is that of [`Role::Text`],
    /// which is on the whole screen.
    pub fn style(&self, role: Role) -> Style {
        // The looks are made from the roles, one for each.
        self.styles.get(role as usize).copied().unwrap_or_default()
    }
}

/// The themes that can be chosen: the built-in ones, and those of the user.
#[derive(Clone, Debug, Default)]
pub struct Themes {
    directory: Option<PathBuf>,
    colour_depth: ColourDepth,
}

/// The longest theme that is read.
const MAX_FILE_BYTES: u64 = 1 << 16;

impl Themes {
    /// With the user's themes in `directory`, for a terminal of so many colours.
    pub fn new(directory: Option<PathBuf>, depth: ColourDepth) -> Themes {
        Themes {
            directory,
            colour_depth: depth,
        }
    }

    /// The names of all themes, the built-in ones first.
    pub fn names(&self) -> Vec<String> {
        let mut own: Vec<String> = Vec::new();
        let directory = self
            .directory
            .as_ref()
            .and_then(|directory| fs::read_dir(directory).ok());
        for item in directory.into_iter().flatten().flatten() {
            let path = item.path();
            if let (Some("toml"), Some(name)) = (
                path.extension().and_then(|end| end.to_str()),
                path.file_stem().and_then(|name| name.to_str()),
            ) && is_theme_name(name)
                && !is_built_in(name)
            {
                own.push(name.to_string());
            }
        }
        own.sort();
        let built_in = BUILT_IN_THEMES.iter().map(|(name, _)| (*name).to_string());
        built_in.chain(own).collect()
    }

    /// The theme of this name; the user's, where both have one.
    ///
    /// # Errors
    /// [`ErrorKind::User`] when there is none, [`ErrorKind::Config`] when it is wrong.
    pub fn load(&self, name: &str) -> Result<Theme> {
        let found = match self.load_user_theme(name)? {
            Some(text) => Some(text),
            None => read_built_in(name).transpose()?,
        };
        let mut theme = found.ok_or_else(|| self.unknown_theme_error(name))?;
        let ground = theme.style(Role::Text);
        for look in &mut theme.styles {
            *look = self.colour_depth.reduce_style(*look, ground);
        }
        Ok(theme)
    }

    /// An error of [`Themes::load`] in lines: all that is wrong, in a file of the
    /// user's directory, and what can be done about it.
    pub fn error_lines(&self, error: &Error) -> Vec<String> {
        let mut told = error.details().to_vec();
        if told.is_empty() {
            let hint = error.hints().first();
            let hint = hint.map_or(String::new(), |hint| format!("; {hint}"));
            told.push(format!("{}{hint}", error.message()));
        }
        if let Some(directory) = &self.directory {
            let directory = format!("{}/", directory.display());
            for line in &mut told {
                *line = line.replacen(&directory, "", 1);
            }
        }
        told
    }

    fn load_user_theme(&self, name: &str) -> Result<Option<Theme>> {
        let Some(directory) = self.directory.as_ref().filter(|_| is_theme_name(name)) else {
            return Ok(None);
        };
        let path = directory.join(format!("{name}.toml"));
        let bytes = match durable::read_regular_file(&path, MAX_FILE_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                let large = error.kind() == io::ErrorKind::FileTooLarge;
                let error = Error::from_io("read", &path, &error).with_kind(ErrorKind::Config);
                return Err(match large {
                    true => error.with_hint("a theme has a line for each role"),
                    false => error,
                });
            }
        };
        let Ok(text) = String::from_utf8(bytes) else {
            let message = format!("{} is no UTF-8 text", path.display());
            return Err(Error::new(ErrorKind::Config, message));
        };
        Ok(Some(theme_file::read_theme(
            &text,
            &path,
            Some(DEFAULT_THEME),
        )?))
    }

    fn unknown_theme_error(&self, name: &str) -> Error {
        let names = self.names();
        let error = Error::new(ErrorKind::User, format!("there is no theme called {name}"));
        let error = match config::closest_match(name, names.iter().map(String::as_str)) {
            Some(near) => error.with_hint(format!("did you mean `{near}`?")),
            None => error,
        };
        let error = error.with_hint(format!("there are {}", names.join(", ")));
        match &self.directory {
            Some(directory) => error.with_hint(format!("your own go into {}", directory.display())),
            None => error,
        }
    }
}

fn is_built_in(name: &str) -> bool {
    BUILT_IN_THEMES.iter().any(|(own, _)| *own == name)
}

/// Whether this can be the name of a theme: a name and no way elsewhere.
pub(super) fn is_theme_name(name: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    !name.is_empty() && !name.starts_with('.') && name.chars().all(part)
}

/// The built-in theme of this name.
fn read_built_in(name: &str) -> Option<Result<Theme, ConfigErrors>> {
    let (_, text) = BUILT_IN_THEMES.iter().find(|(own, _)| *own == name)?;
    let path = PathBuf::from(format!("themes/{name}.toml"));
    Some(theme_file::read_theme(text, &path, None))
}

/// The role of a state.
pub fn role_of_state(state: State) -> Role {
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
pub fn role_of_tone(tone: Tone) -> Role {
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
        Tone::State(state) => role_of_state(state),
    }
}

/// The role of an outcome.
pub fn role_of_outcome(outcome: Outcome) -> Role {
    match outcome {
        Outcome::Ok => Role::Good,
        Outcome::Unchanged => Role::Dim,
        Outcome::Failed | Outcome::Refused => Role::Bad,
        Outcome::NotStarted => Role::Warn,
    }
}
