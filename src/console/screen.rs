//! The names of the screens.

/// The screens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Screen {
    /// All agents.
    #[default]
    Fleet,
    /// One agent.
    Agent,
    /// A plan, a run or its result.
    Reset,
    /// Runs and messages.
    Log,
    /// Hosts and their connections.
    Hosts,
    /// Baselines and their versions.
    Baselines,
    /// A plan over baselines.
    BaselinePlan,
    /// Verification.
    Verify,
    /// Entries and memories that a query finds.
    Archives,
    /// A baseline in the editor.
    Editor,
}

impl Screen {
    /// Whether the screen shows verification results that a changed baseline outdates.
    pub fn shows_baseline_states(self) -> bool {
        matches!(self, Screen::Baselines | Screen::Verify)
    }
}
