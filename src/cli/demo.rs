//! `memory-shepherd demo`: the example fleet in the console, with a command that disconnects its
//! host.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::arguments::console_flags::ConsoleFlags;
use super::status::{self, StatusArgs};
use super::{CommandContext, CommandResult, ConsoleSetup, signals};
use crate::base::clock;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::invocation::Invocation;
use crate::base::trust::find_untrusted_ancestor;
use crate::cli::arguments::values::parse_demo_size;
use crate::config::ConfigEnvironment;
use crate::console::ExtraCommand;
use crate::console::command::{Command, CommandCategory, CommandSpec, KeyContext};
use crate::demo::{self, Demo};

/// Arguments of `demo`.
#[derive(Debug, clap::Args)]
pub(super) struct DemoArgs {
    /// Creates the fleet in this directory and keeps it
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Number of agents, 15 to 1000
    #[arg(long, value_name = "N", value_parser = parse_demo_size)]
    agents: Option<usize>,
    #[command(flatten)]
    console: ConsoleFlags,
}

/// Specification of the command that disconnects and reconnects the host.
static HOST_COMMAND: CommandSpec = CommandSpec {
    command: Command::Extra,
    id: "host",
    title: "Disconnect or reconnect the host of the demo",
    hint: "demo host",
    category: CommandCategory::General,
    contexts: &[KeyContext::Fleet, KeyContext::Hosts],
    keys: &["D"],
};

/// Returns the command that disconnects the host of the demo, and then reconnects it.
fn host_command(demo: &Demo) -> ExtraCommand {
    let host = Arc::clone(demo.host());
    ExtraCommand {
        spec: &HOST_COMMAND,
        run: Box::new(move || {
            if host.is_offline() {
                host.go_online()?;
                return Ok("the demo's host is connected again".to_string());
            }
            host.go_offline();
            Ok("the demo's host is disconnected; the same key reconnects it".to_string())
        }),
    }
}

/// Refuses a place that another user could swap while the fleet is used: it is written by path.
fn check_demo_place(dir: &Path, env: &ConfigEnvironment) -> Result<()> {
    let Some(place) = find_untrusted_ancestor(dir, env.trusted_user()) else {
        return Ok(());
    };
    let message = format!(
        "the example fleet cannot be made in {}: {}",
        dir.display(),
        place.describe(env.user_database)
    );
    Err(Error::new(ErrorKind::Conflict, message)
        .with_hint("name a directory of your own, or leave out --dir; nothing was written"))
}

/// Builds the example fleet and opens the console on it; without a terminal, prints its status.
/// The fleet stays in `dir`; without it, it is in a temporary directory, which is removed.
pub(super) fn run(context: &mut CommandContext<'_>, args: &DemoArgs) -> CommandResult {
    let agents = args.agents;
    let dir = args.dir.as_ref();
    let dir = dir.map(|dir| context.environment.env.cwd.join(dir));
    // An interrupted build must not leave half a fleet in a temporary directory: the fleet is
    // finished, then removed.
    let interrupted = signals::register_stop_flag(&Arc::default())?;
    let clock = clock::SystemClock;
    if let Some(dir) = &dir {
        check_demo_place(dir, &context.environment.env)?;
    }
    let demo = match &dir {
        Some(dir) => demo::build_in(dir, agents, &clock)?,
        None => demo::build_temporary(&context.environment.temporary_root, agents, &clock)?,
    };
    if interrupted.load(Ordering::Relaxed) {
        return Ok(Some(ErrorKind::Interrupted));
    }
    context.config_flag = Some(demo.config_path().to_path_buf());
    context.connector = demo.host().clone();
    let directory = demo.directory().display();
    if context.can_open_console() {
        let config = context.load_config()?;
        let writers = demo.start_writers();
        let note = format!("example fleet in {directory}");
        let setup = ConsoleSetup {
            startup_message: Some(note),
            connector: Some(demo.host().clone()),
            initial_agent: Some(demo::INITIAL_AGENT.to_string()),
            extra_command: Some(host_command(&demo)),
            ..ConsoleSetup::default()
        };
        let ended = context.open_console(config, &args.console, setup);
        drop(writers);
        if dir.is_some() && ended.is_ok() {
            let open = Invocation::with_config(demo.config_path()).console_command_line();
            context.print_note(format!(
                "example fleet kept in {directory}; open it with `{open}`"
            ));
        }
        return ended;
    }
    context.print_note(format!("example fleet created in {directory}"));
    status::run(context, &StatusArgs::default())?;
    if dir.is_none() {
        context.print_note("the fleet is removed now; use --dir DIR to keep it");
    }
    // Unreadable agents are part of the example, not a failure.
    Ok(None)
}
