//! What starts runs.

use serde::{Deserialize, Serialize};

/// What started a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// An operator in the console.
    Console,
    /// A command.
    #[default]
    Cli,
    /// A timer.
    Timer,
}

impl Trigger {
    /// The name for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Trigger::Console => "console",
            Trigger::Cli => "cli",
            Trigger::Timer => "timer",
        }
    }
}
