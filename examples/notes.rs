//! The program with one more layout: notes of one line each, as the tests use it.

use std::env;
use std::io::{self, IsTerminal};
use std::process::ExitCode;

use memory_shepherd::cli::{self, Environment};

#[path = "../tests/support/notes_layout.rs"]
mod notes_layout;

fn main() -> ExitCode {
    let directory = env::current_dir().unwrap_or_else(|_| "/".into());
    let uid = uzers::get_effective_uid();
    let mut environment = Environment {
        term: env::var("TERM").unwrap_or_default(),
        is_stdin_terminal: io::stdin().is_terminal(),
        is_stdout_terminal: io::stdout().is_terminal(),
        is_stderr_terminal: io::stderr().is_terminal(),
        ..Environment::bare(&directory, notes_layout::LAYOUTS)
    };
    environment.env.uid = uid;
    environment.alerts.is_root = uid == 0;
    let error_kind = cli::run(env::args_os(), &environment);
    error_kind.map_or(ExitCode::SUCCESS, |kind| kind.exit_code().into())
}
