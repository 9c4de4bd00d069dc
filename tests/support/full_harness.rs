//! The choice between the quick part of the harnesses and all of them.

/// Returns whether the full harness runs, and not only the quick part.
pub fn is_full_harness() -> bool {
    std::env::var_os("HARNESS").is_some_and(|value| value == "full")
}
