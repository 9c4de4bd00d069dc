//! The operator console: the screens over the engine. Not there yet; this is
//! the door that the command line opens.

use std::sync::Arc;

use crate::config::{Config, Env};
use crate::engine::Engine;
use crate::error::{Error, Kind, Result};

/// What the console is started with.
pub struct Options {
    /// The engine of the fleet.
    pub engine: Arc<Engine>,
    /// Nothing may be changed.
    pub read_only: bool,
    /// The theme asked for on the command line.
    pub theme: Option<String>,
    /// No colours, whatever the theme says.
    pub no_color: bool,
    /// The screen is drawn over a network.
    pub over_ssh: bool,
    /// To read the configuration again when it changes.
    pub env: Env,
    /// What the operator should know when the screen opens.
    pub note: Option<String>,
    /// Makes the engine of a configuration that was read again.
    pub rebuild: Box<dyn Fn(Config) -> Engine + Send>,
}

/// Opens the console and returns when the operator leaves it.
///
/// # Errors
/// In this version, always.
pub fn run(options: Options) -> Result<()> {
    drop(options);
    Err(Error::new(
        Kind::Internal,
        "this build has no console; `memory-shepherd status` shows the fleet",
    ))
}
