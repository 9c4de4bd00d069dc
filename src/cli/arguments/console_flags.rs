//! Options of everything that opens the console.

use clap::Args;

#[derive(Debug, Default, Args)]
pub(in crate::cli) struct ConsoleFlags {
    /// Opens the console read-only: no command can change anything
    #[arg(long)]
    pub(in crate::cli) read_only: bool,
    /// Theme of the console; overrides the config
    ///
    /// terminal (the colours of the terminal), dark, light, high-contrast, colour-blind, mono (no
    /// colours), or the name of a theme file.
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) theme: Option<String>,
}
