//! The names that files have beside a memory while it is replaced.

use super::refused_error;
use crate::durable;
use crate::transport::TransportError;

/// Where a file goes that is taken away for `staged`: to a name that nobody can
/// have taken, though everybody sees `staged`.
pub(super) fn new_aside_name(staged: &str) -> Result<String, TransportError> {
    let random = durable::new_random_name().map_err(refused_error)?;
    Ok(format!("{staged}{random}"))
}

/// Whether `name` was made by [`new_aside_name`].
pub(super) fn is_aside_name(staged: &str, name: &str) -> bool {
    let random = name.strip_prefix(staged);
    random.is_some_and(durable::is_random_name)
}

/// The name of a file that is being staged where there are no nameless ones.
pub(super) fn unfinished_name(staged: &str) -> String {
    format!("{staged}-new")
}
