//! Skips: the one way to end a test early for something that this machine lacks.

use std::env;
use std::fmt::Display;
use std::io::{self, Write};
use std::thread;

/// Reports a missing tool, which `.ci/run` installs. Fails the test where
/// `REQUIRE_TOOLS=1`, as in `.ci/run`.
pub fn skip_missing_tool(tool: &str) {
    let required = env::var_os("REQUIRE_TOOLS").is_some_and(|value| value == "1");
    assert!(!required, "{tool} is missing, with REQUIRE_TOOLS=1");
    skip_unsupported(format_args!("{tool} is missing"));
}

/// Reports a limit of the kernel, the file system or the user's rights.
///
/// Unlike `println!` this appears for tests that pass, too.
pub fn skip_unsupported(reason: impl Display) {
    let thread = thread::current();
    let test = thread.name().unwrap_or_default();
    let _ = writeln!(io::stderr(), "skipped: {test}: {reason}");
}
