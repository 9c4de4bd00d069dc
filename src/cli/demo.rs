//! `memory-shepherd demo`: the example fleet in the console, with a command that disconnects its
//! host.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::arguments::ConsoleFlags;
use super::metrics_file::MetricsFlags;
use super::{CommandContext, CommandResult, ConsoleSetup, signals};
use crate::clock;
use crate::console::ExtraCommand;
use crate::console::command::{Command, CommandCategory, CommandSpec, KeyContext};
use crate::demo::{self, Demo};
use crate::error::ErrorKind;
use crate::invocation::Invocation;

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

impl CommandContext<'_> {
    /// Builds the example fleet and opens the console on it; without a terminal, prints its status.
    /// The fleet stays in `dir`; without it, it is in a temporary directory, which is removed.
    pub(super) fn run_demo(
        &mut self,
        dir: Option<PathBuf>,
        agents: Option<usize>,
        flags: &ConsoleFlags,
    ) -> CommandResult {
        let dir = dir.map(|dir| self.environment.env.cwd.join(dir));
        // An interrupted build must not leave half a fleet in a temporary directory: the fleet is
        // finished, then removed.
        let interrupted = signals::register_stop_flag(&Arc::default())?;
        let clock = clock::SystemClock;
        let demo = match &dir {
            Some(dir) => demo::build_in(dir, agents, &clock)?,
            None => demo::build_temporary(&self.environment.temp_directory, agents, &clock)?,
        };
        if interrupted.load(Ordering::Relaxed) {
            return Ok(Some(ErrorKind::Interrupted));
        }
        self.config_flag = Some(demo.config_path().to_path_buf());
        self.connector = demo.host().clone();
        if self.can_open_console() {
            let (config, _) = self.load_config()?;
            let writers = demo.start_writers();
            let note = format!("example fleet in {}", demo.directory().display());
            let setup = ConsoleSetup {
                startup_message: Some(note),
                connector: Some(demo.host().clone()),
                initial_agent: Some(demo::INITIAL_AGENT.to_string()),
                extra_command: Some(host_command(&demo)),
                ..ConsoleSetup::default()
            };
            let ended = self.open_console(config, flags, setup);
            drop(writers);
            if dir.is_some() && ended.is_ok() {
                self.output.print_note(&format!(
                    "example fleet kept in {}; open it with `{}`",
                    demo.directory().display(),
                    Invocation::with_config(demo.config_path()).console_command_line()
                ));
            }
            return ended;
        }
        self.output.print_note(&format!(
            "example fleet created in {}",
            demo.directory().display()
        ));
        self.run_status(&[], false, &MetricsFlags::default())?;
        if dir.is_none() {
            self.output
                .print_note("the fleet is removed now; use --dir DIR to keep it");
        }
        // Unreadable agents are part of the example, not a failure.
        Ok(None)
    }
}
