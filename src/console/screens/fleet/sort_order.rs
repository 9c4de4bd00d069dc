//! The orders in which the fleet can be sorted.

/// Sort order of the fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortOrder {
    /// Worst state first.
    #[default]
    Severity,
    /// By name.
    Name,
    /// Largest memory first.
    Size,
    /// Most scratch first.
    Scratch,
    /// Most recent change first.
    Changed,
    /// Oldest last run first.
    LastRun,
}

impl SortOrder {
    /// All orders.
    pub const ALL: [SortOrder; 6] = [
        SortOrder::Severity,
        SortOrder::Name,
        SortOrder::Size,
        SortOrder::Scratch,
        SortOrder::Changed,
        SortOrder::LastRun,
    ];

    /// Returns the display name.
    pub fn label(self) -> &'static str {
        match self {
            SortOrder::Severity => "severity",
            SortOrder::Name => "name",
            SortOrder::Size => "size",
            SortOrder::Scratch => "scratch",
            SortOrder::Changed => "changed",
            SortOrder::LastRun => "last run",
        }
    }

    /// Returns which agents come first.
    pub fn description(self) -> &'static str {
        match self {
            SortOrder::Severity => "worst state first",
            SortOrder::Name => "by name",
            SortOrder::Size => "largest memory first",
            SortOrder::Scratch => "most scratch first",
            SortOrder::Changed => "by last change, newest first",
            SortOrder::LastRun => "by last run, oldest first",
        }
    }
}
