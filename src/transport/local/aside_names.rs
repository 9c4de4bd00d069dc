//! Names of files beside a memory while it is replaced.

use super::errors::refused_error;
use crate::base::durable;
use crate::transport::TransportError;

/// Text between the staged name and the random part of a copy's name.
const COPY_INFIX: &str = "-copy";

/// Returns a random name to move a file to on behalf of `staged`: unlike `staged`, which everybody
/// can see, no process can have taken it.
pub(super) fn new_aside_name(staged: &str) -> Result<String, TransportError> {
    let random = durable::new_random_name().map_err(refused_error)?;
    Ok(format!("{staged}{random}"))
}

/// Returns whether [`new_aside_name`] made `name`.
pub(super) fn is_aside_name(staged: &str, name: &str) -> bool {
    let random = name.strip_prefix(staged);
    random.is_some_and(durable::is_random_name)
}

/// Returns a random name for the copy of a memory that is made while writing `staged` in place.
pub(super) fn new_copy_name(staged: &str) -> Result<String, TransportError> {
    new_aside_name(&format!("{staged}{COPY_INFIX}"))
}

/// Returns whether [`new_copy_name`] made `name`.
pub(super) fn is_copy_name(staged: &str, name: &str) -> bool {
    is_aside_name(&format!("{staged}{COPY_INFIX}"), name)
}

/// Returns the name of an unfinished staged file, where the system has no unnamed files.
pub(super) fn unfinished_name(staged: &str) -> String {
    format!("{staged}-new")
}
