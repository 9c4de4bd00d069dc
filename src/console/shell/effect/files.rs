//! Loads themes and writes texts for the pager to files.

use std::path::Path;

use rustix::fs::Mode;

use crate::base::durable::OperatorDirectory;
use crate::base::error::Result;
use crate::base::quantity::format_count;
use crate::base::temporary::{PrivateFile, TemporaryRoot};
use crate::console::handoff::PagerText;
use crate::console::shell::external_copy::ExternalCopy;
use crate::console::theme::{Theme, Themes};
use crate::engine::OpenedBaseline;

/// Result that the event loop handles itself.
pub enum Loaded {
    /// A theme.
    Theme(LoadedTheme),
    /// A text for the pager, by the number of its request, in a file that is removed with this.
    Page(u64, Result<PrivateFile>),
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
    let (directory, name) = OperatorDirectory::open_parent(path)?;
    let created = directory.create_file(name, lines, Mode::RUSR | Mode::WUSR);
    created.map_err(|error| {
        if path.symlink_metadata().is_ok() {
            error.with_hint("choose another name")
        } else {
            error
        }
    })?;
    let count = lines.iter().filter(|byte| **byte == b'\n').count();
    let lines = format_count(count as u64, "line");
    Ok(format!("{lines} saved to {}", path.display()))
}

/// Writes a text to a new file in `root` that only the operator can read.
pub(super) fn write_page(root: &TemporaryRoot, page: &PagerText) -> Result<PrivateFile> {
    // The name may come from a ledger, which others can write.
    let name = page.name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let name = format!("{name}.txt");
    PrivateFile::create(root, "memory-shepherd-page-", &name, page.text.as_bytes())
}
