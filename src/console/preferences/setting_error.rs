//! Error in a setting of the operator: a key, a filter, a column, a theme.

/// Error in a setting of the preferences or of a theme.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingError {
    /// What is wrong, without a full stop.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl SettingError {
    /// Creates an error; an empty hint means none.
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> SettingError {
        SettingError {
            message: message.into(),
            hint: Some(hint.into()).filter(|hint| !hint.is_empty()),
        }
    }
}
