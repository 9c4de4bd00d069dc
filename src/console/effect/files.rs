//! Reads themes and writes texts for the pager, away from the screen's thread: a
//! disk may take its time.

use std::io::Write;
use std::path::{Path, PathBuf};

use crossbeam_channel::{Receiver, Sender};
use tempfile::NamedTempFile;

use crate::console::model::PagerText;
use crate::console::theme::{Theme, Themes};
use crate::error::{PathContext, Result};

/// What is to be done.
pub(super) enum FileJob {
    /// The theme of a name, and whether the operator asked for it just now.
    Theme(Themes, String, bool),
    /// A text in a file of this directory, by the number of the request.
    Page(u64, PathBuf, PagerText),
}

/// What came of it.
pub enum Loaded {
    /// A theme.
    Theme(LoadedTheme),
    /// The text, in a file that is removed with this.
    Page(u64, Result<NamedTempFile>),
}

/// A theme that is to be worn.
pub struct LoadedTheme {
    /// Its name.
    pub name: String,
    /// The theme, or in lines why there is none.
    pub theme: Result<Theme, Vec<String>>,
    /// The names of all themes that there are now.
    pub theme_names: Vec<String>,
    /// The operator asked for it just now.
    pub is_requested: bool,
}

pub(super) fn run_file_jobs(jobs: &Receiver<FileJob>, loaded: &Sender<Loaded>) {
    for chore in jobs {
        let done = match chore {
            FileJob::Theme(themes, name, asked) => {
                let theme = themes.load(&name);
                Loaded::Theme(LoadedTheme {
                    theme: theme.map_err(|error| themes.error_lines(&error)),
                    theme_names: themes.names(),
                    name,
                    is_requested: asked,
                })
            }
            FileJob::Page(number, directory, page) => {
                Loaded::Page(number, write_page(&directory, &page))
            }
        };
        if loaded.send(done).is_err() {
            return;
        }
    }
}

/// A text in a file that only the operator can read.
fn write_page(directory: &Path, page: &PagerText) -> Result<NamedTempFile> {
    // Names of the ledger's are nobody's to trust.
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
