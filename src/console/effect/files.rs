//! Loads themes and writes texts for the pager to files.

use std::io::Write;
use std::path::Path;

use tempfile::NamedTempFile;

use crate::console::handoff::PagerText;
use crate::console::theme::{Theme, Themes};
use crate::error::{PathContext, Result};

/// Result that the event loop handles itself.
pub enum Loaded {
    /// A theme.
    Theme(LoadedTheme),
    /// A text for the pager, by the number of its request, in a file that is removed with this.
    Page(u64, Result<NamedTempFile>),
}

/// A theme to apply.
pub struct LoadedTheme {
    /// Its name.
    pub name: String,
    /// The theme, or its errors in lines.
    pub theme: Result<Theme, Vec<String>>,
    /// Names of all themes that exist now.
    pub theme_names: Vec<String>,
    /// Whether the operator asked for it.
    pub is_requested: bool,
}

/// Loads a theme, and the names of all themes.
pub(super) fn load_theme(themes: &Themes, name: String, is_requested: bool) -> LoadedTheme {
    LoadedTheme {
        theme: themes
            .load(&name)
            .map_err(|error| themes.error_lines(&error)),
        theme_names: themes.names(),
        name,
        is_requested,
    }
}

/// Writes a text to a new file in `directory` that only the operator can read.
pub(super) fn write_page(directory: &Path, page: &PagerText) -> Result<NamedTempFile> {
    // The name may come from a ledger, which others can write.
    let name = page.name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let mut file = tempfile::Builder::new()
        .prefix(&format!("{name}-"))
        .suffix(".txt")
        .tempfile_in(directory)
        .with_path("write a text for the pager in", directory)?;
    let path = file.path().to_path_buf();
    file.write_all(page.text.as_bytes())
        .with_path("write", &path)?;
    Ok(file)
}
