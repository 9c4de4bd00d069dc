//! Reading a theme. All that is wrong with it is said at once, with file and line.

use std::path::Path;

use ratatui::style::{Color, Modifier, Style};
use toml::Spanned;
use toml::de::DeValue;

use super::{BUILT_IN, Role, Theme, built_in};
use crate::config::{Diagnostic, DiagnosticLevel, Problems};
use crate::console::keymap::KeyError;
use crate::console::source::{TomlSource, entries};

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
    let mut source = TomlSource::new(text, path);
    let theme = theme(&mut source, otherwise);
    let mut found = source.found();
    match theme {
        Some(Ok(theme)) if found.is_empty() => Ok(theme),
        Some(Err(Problems(more))) => {
            found.extend(more);
            Err(Problems(found))
        }
        _ => Err(Problems(found)),
    }
}

/// What of it can be read; none if it is no TOML.
fn theme(source: &mut TomlSource<'_>, otherwise: Option<&str>) -> Option<Result<Theme, Problems>> {
    let all = source.all()?;
    let mut base = otherwise;
    let mut word_marks = None;
    let mut looks = Vec::new();
    for (name, value) in entries(&all) {
        match *name.get_ref() {
            "base" => base = named_base(source, value).or(base),
            "word_marks" => match value.get_ref() {
                DeValue::Boolean(marks) => word_marks = Some(*marks),
                _ => source.wrong(
                    value.span(),
                    KeyError::new("word_marks is true or false, without quotes", ""),
                ),
            },
            "roles" => {
                for (name, value) in source.table(value, "roles is a section: [roles]") {
                    let look = look(source, value);
                    let names: Vec<&str> = Role::ALL.iter().map(|(_, name)| *name).collect();
                    match names.iter().position(|role| role == name.get_ref()) {
                        Some(role) => looks.push((role, look)),
                        None => source.unknown(&name, "role", &names),
                    }
                }
            }
            _ => source.unknown(&name, "setting", &["base", "word_marks", "roles"]),
        }
    }
    let theme = match base {
        Some(base) => built_in(base)?,
        None => blank(&looks, source.path),
    };
    Some(theme.map(|mut theme| {
        theme.word_marks = word_marks.unwrap_or(theme.word_marks);
        for (role, look) in looks {
            theme.looks[role] = look;
        }
        theme
    }))
}

fn named_base<'v>(source: &mut TomlSource<'_>, value: &'v Spanned<DeValue<'v>>) -> Option<&'v str> {
    let base = source.string(value, "the base")?;
    let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
    if names.contains(base.get_ref()) {
        return Some(base.into_inner());
    }
    source.unknown(&base, "built-in theme", &names);
    None
}

/// What is under a theme that names all roles.
fn blank(looks: &[(usize, Style)], path: &Path) -> Result<Theme, Problems> {
    let is_named = |place: usize| looks.iter().any(|(role, _)| *role == place);
    let all = Role::ALL.iter().enumerate();
    let missing = all.filter(|(place, _)| !is_named(*place));
    let found: Vec<Diagnostic> = missing
        .map(|(_, (_, role))| Diagnostic {
            level: DiagnosticLevel::Error,
            file: path.to_path_buf(),
            line: None,
            text: String::new(),
            message: format!("the role `{role}` is missing"),
            hint: None,
        })
        .collect();
    match found.is_empty() {
        true => Ok(Theme {
            word_marks: false,
            looks: vec![Style::new(); Role::ALL.len()],
        }),
        false => Err(Problems(found)),
    }
}

fn look<'v>(source: &mut TomlSource<'_>, value: &'v Spanned<DeValue<'v>>) -> Style {
    let mut style = Style::new();
    let how = "the look of a role is written `{ fg = \"red\", style = [\"bold\"] }`";
    for (name, value) in source.table(value, how) {
        match *name.get_ref() {
            "fg" => style.fg = colour(source, value),
            "bg" => style.bg = colour(source, value),
            "style" => {
                let list = source.list(value, "style is a list: style = [\"bold\"]");
                for item in list.unwrap_or_default() {
                    style = style.add_modifier(attribute(source, item));
                }
            }
            _ => source.unknown(&name, "field", &["fg", "bg", "style"]),
        }
    }
    style
}

fn colour<'v>(source: &mut TomlSource<'_>, value: &'v Spanned<DeValue<'v>>) -> Option<Color> {
    let text = source.string(value, "a colour")?;
    let colour = text.get_ref().parse().ok();
    if colour.is_none() {
        let message = format!("`{}` is no colour", text.get_ref());
        let hint = "`#rrggbb`, a number from 0 to 255, or a name such as `red` or `lightred`";
        source.wrong(text.span(), KeyError::new(message, hint));
    }
    colour
}

fn attribute<'v>(source: &mut TomlSource<'_>, value: &'v Spanned<DeValue<'v>>) -> Modifier {
    let Some(name) = source.string(value, "an attribute") else {
        return Modifier::empty();
    };
    let found = ATTRIBUTES.iter().find(|(own, _)| own == name.get_ref());
    found.map_or_else(
        || {
            let names: Vec<&str> = ATTRIBUTES.iter().map(|(name, _)| *name).collect();
            source.unknown(&name, "attribute", &names);
            Modifier::empty()
        },
        |(_, modifier)| *modifier,
    )
}
