//! Reads theme files. Every mistake is reported at once, with file and line.

use std::path::Path;

use ratatui::style::{Color, Modifier, Style};
use toml::Spanned;
use toml::de::DeValue;

use super::{BUILT_IN_THEMES, Role, Theme, read_built_in};
use crate::config::{ConfigErrors, Diagnostic, DiagnosticLevel};
use crate::console::preferences::setting_error::SettingError;
use crate::console::preferences::toml_source::{TomlSource, table_entries};

/// The attributes by name.
const ATTRIBUTES: &[(&str, Modifier)] = &[
    ("bold", Modifier::BOLD),
    ("dim", Modifier::DIM),
    ("italic", Modifier::ITALIC),
    ("underlined", Modifier::UNDERLINED),
    ("reversed", Modifier::REVERSED),
];

/// Reads a theme. A role that it leaves out has the style of its base; without a base, that of the
/// theme `fallback`; without either, every role is required.
pub(super) fn read_theme(
    text: &str,
    path: &Path,
    fallback: Option<&'static str>,
) -> Result<Theme, ConfigErrors> {
    let mut source = TomlSource::new(text, path);
    let theme = parse_theme(&mut source, fallback);
    let mut found = source.into_diagnostics();
    match theme {
        Some(Ok(theme)) if found.is_empty() => Ok(theme),
        Some(Err(ConfigErrors(more))) => {
            found.extend(more);
            Err(ConfigErrors(found))
        }
        _ => Err(ConfigErrors(found)),
    }
}

/// Parses what is valid of a theme; `None` if the text is not TOML.
fn parse_theme(
    source: &mut TomlSource<'_>,
    fallback: Option<&str>,
) -> Option<Result<Theme, ConfigErrors>> {
    let all = source.parse()?;
    let mut base = fallback;
    let mut word_marks = None;
    let mut styles = Vec::new();
    for (name, value) in table_entries(&all) {
        match *name.get_ref() {
            "base" => base = read_base(source, value).or(base),
            "word_marks" => match value.get_ref() {
                DeValue::Boolean(marks) => word_marks = Some(*marks),
                _ => source.report(
                    value.span(),
                    SettingError::new("word_marks must be true or false, without quotes", ""),
                ),
            },
            "roles" => {
                for (name, value) in source.expect_table(value, "roles must be a section: [roles]")
                {
                    let style = read_style(source, value);
                    let names: Vec<&str> = Role::ALL.iter().map(|(_, name)| *name).collect();
                    match names.iter().position(|role| role == name.get_ref()) {
                        Some(role) => styles.push((role, style)),
                        None => source.report_unknown(&name, "role", &names),
                    }
                }
            }
            _ => source.report_unknown(&name, "setting", &["base", "word_marks", "roles"]),
        }
    }
    let theme = match base {
        Some(base) => read_built_in(base)?,
        None => empty_base(&styles, source.path),
    };
    Some(theme.map(|mut theme| {
        theme.has_word_marks = word_marks.unwrap_or(theme.has_word_marks);
        for (role, style) in styles {
            theme.styles[role] = style;
        }
        theme
    }))
}

fn read_base<'v>(source: &mut TomlSource<'_>, value: &'v Spanned<DeValue<'v>>) -> Option<&'v str> {
    let base = source.expect_string(value, "the base")?;
    let names: Vec<&str> = BUILT_IN_THEMES.iter().map(|(name, _)| *name).collect();
    if names.contains(base.get_ref()) {
        return Some(base.into_inner());
    }
    source.report_unknown(&base, "built-in theme", &names);
    None
}

/// Returns an empty base for a theme that must name every role, or the roles that are missing.
fn empty_base(styles: &[(usize, Style)], path: &Path) -> Result<Theme, ConfigErrors> {
    let is_named = |index: usize| styles.iter().any(|(role, _)| *role == index);
    let all = Role::ALL.iter().enumerate();
    let missing = all.filter(|(index, _)| !is_named(*index));
    let found: Vec<Diagnostic> = missing
        .map(|(_, (_, role))| Diagnostic {
            level: DiagnosticLevel::Error,
            file: path.to_path_buf(),
            line: None,
            text: String::new(),
            message: format!("missing role `{role}`"),
            hints: Vec::new(),
        })
        .collect();
    if found.is_empty() {
        Ok(Theme {
            has_word_marks: false,
            styles: vec![Style::new(); Role::ALL.len()],
        })
    } else {
        Err(ConfigErrors(found))
    }
}

fn read_style<'v>(source: &mut TomlSource<'_>, value: &'v Spanned<DeValue<'v>>) -> Style {
    let mut style = Style::new();
    let how = "a role is written `{ fg = \"red\", style = [\"bold\"] }`";
    for (name, value) in source.expect_table(value, how) {
        match *name.get_ref() {
            "fg" => style.fg = read_colour(source, value),
            "bg" => style.bg = read_colour(source, value),
            "style" => {
                let list = source.expect_list(value, "style must be a list: style = [\"bold\"]");
                for item in list.unwrap_or_default() {
                    style = style.add_modifier(read_attribute(source, item));
                }
            }
            _ => source.report_unknown(&name, "field", &["fg", "bg", "style"]),
        }
    }
    style
}

fn read_colour<'v>(source: &mut TomlSource<'_>, value: &'v Spanned<DeValue<'v>>) -> Option<Color> {
    let text = source.expect_string(value, "a colour")?;
    let colour = text.get_ref().parse().ok();
    if colour.is_none() {
        let message = format!("invalid colour `{}`", text.get_ref());
        let hint = "`#rrggbb`, a number from 0 to 255, or a name such as `red` or `lightred`";
        source.report(text.span(), SettingError::new(message, hint));
    }
    colour
}

fn read_attribute<'v>(source: &mut TomlSource<'_>, value: &'v Spanned<DeValue<'v>>) -> Modifier {
    let Some(name) = source.expect_string(value, "an attribute") else {
        return Modifier::empty();
    };
    let found = ATTRIBUTES.iter().find(|(own, _)| own == name.get_ref());
    found.map_or_else(
        || {
            let names: Vec<&str> = ATTRIBUTES.iter().map(|(name, _)| *name).collect();
            source.report_unknown(&name, "attribute", &names);
            Modifier::empty()
        },
        |(_, modifier)| *modifier,
    )
}
