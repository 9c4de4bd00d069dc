//! Loads themes and writes texts for the pager to files.

use std::io::{self, Write};
use std::path::Path;

use tempfile::NamedTempFile;

use crate::console::external_copy::ExternalCopy;
use crate::console::handoff::PagerText;
use crate::console::theme::{Theme, Themes};
use crate::engine::OpenedBaseline;
use crate::error::{Error, PathContext, Result};
use crate::quantity::format_count;

/// Result that the event loop handles itself.
pub enum Loaded {
    /// A theme.
    Theme(LoadedTheme),
    /// A text for the pager, by the number of its request, in a file that is removed with this.
    Page(u64, Result<NamedTempFile>),
    /// A baseline for the external editor, by the number of its request, and its copy.
    ExternalCopy(u64, Box<OpenedBaseline>, Result<ExternalCopy>),
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

/// Saves lines to a new file that only the operator can read. Returns what was done, for the
/// operator.
pub(super) fn save_lines(path: &Path, lines: &[u8]) -> Result<String> {
    let directory = path.parent().unwrap_or(path);
    let prepare = || {
        let mut file = NamedTempFile::new_in(directory)?;
        file.write_all(lines)?;
        file.as_file().sync_all()?;
        Ok::<_, io::Error>(file)
    };
    let file = prepare().with_path("write a new file in", directory)?;
    file.persist_noclobber(path).map_err(|refused| {
        let error = Error::from_io("create", path, &refused.error);
        match refused.error.kind() {
            io::ErrorKind::AlreadyExists => error.with_hint("choose another name"),
            _ => error,
        }
    })?;
    let count = lines.iter().filter(|byte| **byte == b'\n').count();
    let lines = format_count(count as u64, "line");
    Ok(format!("{lines} saved to {}", path.display()))
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
