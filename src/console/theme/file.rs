//! Reading a theme. All that is wrong with it is said at once, with file and line.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use ratatui::style::{Color, Modifier, Style};
use serde::Deserialize;
use toml::Spanned;

use super::{BUILT_IN, Role, Theme, built_in};
use crate::config::{Diagnostic, Level, Problems, closest};

/// A theme as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    base: Option<Spanned<String>>,
    word_marks: Option<bool>,
    #[serde(default)]
    roles: BTreeMap<Spanned<String>, Look>,
}

/// The look of a role as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Look {
    fg: Option<Spanned<String>>,
    bg: Option<Spanned<String>>,
    #[serde(default)]
    style: Vec<Spanned<String>>,
}

/// The attributes, by name.
const ATTRIBUTES: &[(&str, Modifier)] = &[
    ("bold", Modifier::BOLD),
    ("dim", Modifier::DIM),
    ("italic", Modifier::ITALIC),
    ("underlined", Modifier::UNDERLINED),
    ("reversed", Modifier::REVERSED),
];

/// Reads a theme. A role that it does not name is that of its base, whole; without
/// one, that of the theme `otherwise`, and if there is none, it must name it.
pub(super) fn read(
    text: &str,
    path: &Path,
    otherwise: Option<&'static str>,
) -> Result<Theme, Problems> {
    let mut reader = Reader {
        text,
        path,
        otherwise,
        found: Vec::new(),
    };
    let theme = reader.theme();
    match theme {
        Some(theme) if reader.found.is_empty() => Ok(theme),
        _ => {
            reader.found.sort_by_key(|problem| problem.line);
            Err(Problems(reader.found))
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    path: &'a Path,
    otherwise: Option<&'static str>,
    found: Vec<Diagnostic>,
}

impl Reader<'_> {
    fn theme(&mut self) -> Option<Theme> {
        let file: File = match toml::from_str(self.text) {
            Ok(file) => file,
            Err(error) => {
                let message = error.message().replace('\n', ", ");
                self.wrong(error.span(), message, None);
                return None;
            }
        };
        let mut theme = match (&file.base, self.otherwise) {
            (Some(base), _) => match built_in(base.get_ref()) {
                Some(theme) => self.sound(theme)?,
                None => {
                    let names = BUILT_IN.iter().map(|(name, _)| *name);
                    self.unknown("built-in theme", base, names);
                    return None;
                }
            },
            (None, Some(otherwise)) => self.sound(built_in(otherwise)?)?,
            (None, None) => self.blank(&file.roles),
        };
        theme.word_marks = file.word_marks.unwrap_or(theme.word_marks);
        for (name, look) in &file.roles {
            let look = self.look(look);
            match Role::ALL
                .iter()
                .position(|(_, role)| role == name.get_ref())
            {
                Some(role) => theme.looks[role] = look,
                None => {
                    let names = Role::ALL.iter().map(|(_, name)| *name);
                    self.unknown("role", name, names);
                }
            }
        }
        Some(theme)
    }

    fn sound(&mut self, theme: Result<Theme, Problems>) -> Option<Theme> {
        theme
            .map_err(|Problems(found)| self.found.extend(found))
            .ok()
    }

    /// What is under a theme that names all roles.
    fn blank(&mut self, roles: &BTreeMap<Spanned<String>, Look>) -> Theme {
        for (_, role) in Role::ALL {
            if !roles.keys().any(|name| name.get_ref() == role) {
                self.wrong(None, format!("the role `{role}` is missing"), None);
            }
        }
        Theme {
            word_marks: false,
            looks: vec![Style::new(); Role::ALL.len()],
        }
    }

    fn look(&mut self, look: &Look) -> Style {
        let mut style = Style::new();
        style.fg = look.fg.as_ref().and_then(|text| self.colour(text));
        style.bg = look.bg.as_ref().and_then(|text| self.colour(text));
        for name in &look.style {
            match ATTRIBUTES.iter().find(|(own, _)| own == name.get_ref()) {
                Some((_, modifier)) => style = style.add_modifier(*modifier),
                None => {
                    let names = ATTRIBUTES.iter().map(|(name, _)| *name);
                    self.unknown("attribute", name, names);
                }
            }
        }
        style
    }

    fn colour(&mut self, text: &Spanned<String>) -> Option<Color> {
        let colour = text.get_ref().parse().ok();
        if colour.is_none() {
            let message = format!("`{}` is no colour", text.get_ref());
            let hint = "`#rrggbb`, a number from 0 to 255, or a name such as `red` or `lightred`";
            self.wrong(Some(text.span()), message, Some(hint.to_string()));
        }
        colour
    }

    fn unknown<'n>(
        &mut self,
        what: &str,
        name: &Spanned<String>,
        names: impl Iterator<Item = &'n str> + Clone,
    ) {
        let hint = match closest(name.get_ref(), names.clone()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("there are {}", names.collect::<Vec<_>>().join(", ")),
        };
        let message = format!("there is no {what} called `{}`", name.get_ref());
        self.wrong(Some(name.span()), message, Some(hint));
    }

    fn wrong(&mut self, span: Option<Range<usize>>, message: String, hint: Option<String>) {
        let before = span.and_then(|span| self.text.get(..span.start));
        let line = before.map(|before| before.matches('\n').count());
        let text = line.and_then(|line| self.text.lines().nth(line));
        self.found.push(Diagnostic {
            level: Level::Error,
            file: self.path.to_path_buf(),
            line: line.map(|line| line + 1),
            text: text.unwrap_or_default().trim().chars().take(120).collect(),
            message,
            hint,
        });
    }
}
