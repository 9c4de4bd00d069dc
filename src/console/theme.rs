//! Themes: the style of each role of a closed set. Themes are TOML files, built in from `themes/`
//! or in the user's directory, and each is layered over a built-in one.

mod colour_depth;
#[cfg(test)]
mod tests;
mod theme_file;

use std::fs;
use std::io;
use std::path::PathBuf;

use ratatui::style::Style;

pub use colour_depth::{ANSI_COLOURS, ColourDepth};

use crate::base::durable;
use crate::base::error::{Error, ErrorKind, Result};
use crate::config::{self, ConfigEnvironment, ConfigErrors};
use crate::engine::{Outcome, State};

/// Name of the default theme.
pub const DEFAULT_THEME: &str = "terminal";

/// Name of the theme without colour.
pub const MONOCHROME_THEME: &str = "mono";

/// Directory of the user's own themes, in the directory of their preferences.
pub const THEMES_DIRECTORY: &str = "themes";

/// The built-in themes: name and text.
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
        /// Meaning of a run of cells, which its style follows from.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Role { $(#[doc = $doc] $role,)* }

        impl Role {
            /// All roles with their names in themes, in the order of a theme's styles.
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
    heading Heading "Column headings, headings of help, the open tab.",
    cursor Cursor "The row under the cursor.",
    mark Mark "The star of a marked row.",
    key Key "A key in a hint.",
    disabled Disabled "A command that cannot be run now.",
    prompt Prompt "Text being typed.",
    tampered Tampered "State TAMPERED.",
    drifted Drifted "States DRIFTED and NOSEP.",
    trouble Trouble "States ERROR, MISSING, ILL and UNREACH.",
    oversize Oversize "State OVERSIZE.",
    behind Behind "State BEHIND.",
    busy Busy "State BUSY.",
    scratch Scratch "State SCRATCH.",
    clean Clean "State CLEAN.",
    loading Loading "State LOADING.",
    good Good "Success.",
    warn Warn "A warning.",
    bad Bad "A failure.",
    added Added "A line that the agent added.",
    added_word AddedWord "The new words of a changed line.",
    removed Removed "A line that the agent removed.",
    removed_word RemovedWord "The removed words of a changed line.",
    separator Separator "The boundary.",
    number Number "Line numbers.",
    markdown_heading MarkdownHeading "A heading in an agent's text.",
    markdown_strong MarkdownStrong "Strong emphasis in an agent's text.",
    markdown_emphasis MarkdownEmphasis "Emphasis in an agent's text.",
    markdown_code MarkdownCode "Code in an agent's text.",
    markdown_link MarkdownLink "A link in an agent's text.",
    markdown_list MarkdownList "The marker of a list item in an agent's text.",
    markdown_quote MarkdownQuote "A quotation in an agent's text.",
    hit Hit "A search hit.",
    revealed Revealed "Revealed characters that would be invisible; no agent's text can have this style.",
}

/// A theme: the style of each role.
#[derive(Clone, Debug)]
pub struct Theme {
    has_word_marks: bool,
    styles: Vec<Style>,
}

impl Theme {
    /// Returns the built-in theme of this name, in true colour.
    ///
    /// # Errors
    /// [`ErrorKind::User`] if there is none.
    pub fn built_in(name: &str) -> Result<Theme> {
        Themes::default().load(name)
    }

    /// Returns whether signs mark changed words, for lack of colour.
    pub fn has_word_marks(&self) -> bool {
        self.has_word_marks
    }

    /// Returns the style of a role, to be drawn over that of [`Role::Text`], which covers the whole
    /// screen.
    pub fn style(&self, role: Role) -> Style {
        // Every theme has a style for each role.
        self.styles.get(role as usize).copied().unwrap_or_default()
    }
}

/// The available themes: the built-in ones and those of the user.
#[derive(Clone, Debug, Default)]
pub struct Themes {
    directory: Option<PathBuf>,
    colour_depth: ColourDepth,
}

/// The largest theme file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 16;

impl Themes {
    /// Creates the set with the user's themes in `directory`, for a terminal with these colours.
    pub fn new(directory: Option<PathBuf>, depth: ColourDepth) -> Themes {
        Themes {
            directory,
            colour_depth: depth,
        }
    }

    /// Creates the set with the themes in the user's directory.
    pub fn of_user(env: &ConfigEnvironment, depth: ColourDepth) -> Themes {
        let directory = env.config_directory();
        Themes::new(directory.map(|it| it.join(THEMES_DIRECTORY)), depth)
    }

    /// Returns the names of all themes, the built-in ones first.
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

    /// Loads a theme; the user's, if both have one of this name.
    ///
    /// # Errors
    /// [`ErrorKind::User`] if there is none, [`ErrorKind::Config`] if its file is invalid.
    pub fn load(&self, name: &str) -> Result<Theme> {
        let found = match self.load_user_theme(name)? {
            Some(text) => Some(text),
            None => read_built_in(name).transpose()?,
        };
        let mut theme = found.ok_or_else(|| self.unknown_theme_error(name))?;
        let background = theme.style(Role::Text);
        for style in &mut theme.styles {
            *style = self.colour_depth.reduce_style(*style, background);
        }
        Ok(theme)
    }

    /// Returns an error of [`Themes::load`] as lines: each mistake with its hint, with paths
    /// relative to the user's directory.
    pub fn error_lines(&self, error: &Error) -> Vec<String> {
        let mut lines = error.details().to_vec();
        if lines.is_empty() {
            let hint = error.hints().first();
            let hint = hint.map_or(String::new(), |hint| format!("; {hint}"));
            lines.push(format!("{}{hint}", error.message()));
        }
        if let Some(directory) = &self.directory {
            let directory = format!("{}/", directory.display());
            for line in &mut lines {
                *line = line.replacen(&directory, "", 1);
            }
        }
        lines
    }

    fn load_user_theme(&self, name: &str) -> Result<Option<Theme>> {
        let Some(directory) = self.directory.as_ref().filter(|_| is_theme_name(name)) else {
            return Ok(None);
        };
        let path = directory.join(format!("{name}.toml"));
        let bytes = match durable::read_regular_file(&path, MAX_FILE_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if durable::is_absent(&error) => return Ok(None),
            Err(error) => {
                let large = error.kind() == io::ErrorKind::FileTooLarge;
                let error = Error::from_io("read", &path, &error).with_kind(ErrorKind::Config);
                return Err(if large {
                    error.with_hint("a theme has one line per role")
                } else {
                    error
                });
            }
        };
        let Ok(text) = String::from_utf8(bytes) else {
            let message = format!("{} is not UTF-8", path.display());
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
        let error = Error::new(ErrorKind::User, format!("unknown theme `{name}`"));
        let error = match config::closest_match(name, names.iter().map(String::as_str)) {
            Some(near) => error.with_hint(format!("did you mean `{near}`?")),
            None => error,
        };
        let error = error.with_hint(format!("available themes: {}", names.join(", ")));
        match &self.directory {
            Some(directory) => {
                error.with_hint(format!("put your own themes into {}", directory.display()))
            }
            None => error,
        }
    }
}

fn is_built_in(name: &str) -> bool {
    BUILT_IN_THEMES.iter().any(|(own, _)| *own == name)
}

/// Returns whether a text can be the name of a theme: a plain file name, not a path.
pub(super) fn is_theme_name(name: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    !name.is_empty() && !name.starts_with('.') && name.chars().all(part)
}

/// Reads the built-in theme of this name.
fn read_built_in(name: &str) -> Option<Result<Theme, ConfigErrors>> {
    let (_, text) = BUILT_IN_THEMES.iter().find(|(own, _)| *own == name)?;
    let path = PathBuf::from(format!("themes/{name}.toml"));
    Some(theme_file::read_theme(text, &path, None))
}

/// Returns the role of a state.
pub fn role_of_state(state: State) -> Role {
    match state {
        State::Tampered | State::HostKey => Role::Tampered,
        State::Drifted | State::NoSep => Role::Drifted,
        State::Unreach | State::Error | State::Missing | State::Ill => Role::Trouble,
        State::Oversize => Role::Oversize,
        State::Behind => Role::Behind,
        State::Busy => Role::Busy,
        State::Scratch => Role::Scratch,
        State::Clean | State::Layout => Role::Clean,
        State::Loading => Role::Loading,
    }
}

/// Returns the role of an outcome.
pub fn role_of_outcome(outcome: Outcome) -> Role {
    match outcome {
        Outcome::Ok => Role::Good,
        Outcome::Unchanged => Role::Dim,
        Outcome::Failed | Outcome::Refused => Role::Bad,
        Outcome::NotStarted => Role::Warn,
    }
}
