//! `--restrict-writes` of `reset` and `guard`: the kernel refuses all writes that a run does not need.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::CommandContext;
use crate::base::clock::SystemClock;
use crate::base::file_systems::FileSystems;
use crate::base::write_restriction::{WriteRestriction, restrict_writes};
use crate::config::{Agent, Config};
use crate::unattended::schedule::{ServicePurpose, has_remote_agent, writable_directories};

/// Directories in which ssh and its helpers keep control sockets and temporary files.
const SSH_TEMPORARY_DIRECTORIES: [&str; 2] = ["/tmp", "/var/tmp"];

/// The option about writes.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct WriteRestrictionFlags {
    /// Lets the kernel refuse all writes that the run does not need
    ///
    /// Only archive_dir, the directories of the agents' memories (for `guard`, baseline_dir), the
    /// directory of --metrics and /dev stay writable; for agents on other hosts, also what ssh writes.
    /// Programs that the run starts, such as the command of the alerts, are restricted as well. A
    /// directory that is missing at the start stays unwritable. Needs Landlock of Linux 5.19 or
    /// later; without it, prints a warning and runs unrestricted.
    #[arg(long = "restrict-writes")]
    pub(super) is_restricted: bool,
}

/// Restricts the writes of the process, if the operator asks for it, to those of a run of these
/// agents. Called on the main thread once the config is known, before the engine starts a thread.
/// Threads that the check of the config has left on a hung mount only look at directories.
pub(super) fn restrict_run_writes(
    context: &mut CommandContext<'_>,
    flags: &WriteRestrictionFlags,
    config: &Config,
    agents: &[&Agent],
    purpose: ServicePurpose,
    metrics_file: Option<&Path>,
) {
    if !flags.is_restricted {
        return;
    }
    let mut directories = writable_directories(config, agents, purpose);
    let metrics_file = metrics_file.map(|file| context.environment.env.resolve(file));
    directories.extend(
        metrics_file
            .as_ref()
            .and_then(|file| file.parent())
            .map(PathBuf::from),
    );
    // Metrics are about all agents.
    let connects = has_remote_agent(agents.iter().copied())
        || metrics_file.is_some() && has_remote_agent(config.agents.iter());
    if connects {
        directories.extend(ssh_directories(context));
    }
    let timeout = Duration::from_secs(config.general.local_timeout.into());
    let archive_path = &config.general.archive_dir;
    let file_systems = FileSystems::new(archive_path, timeout, Arc::new(SystemClock));
    match restrict_writes(directories, &file_systems, timeout) {
        WriteRestriction::Full => {}
        WriteRestriction::Partial => context.print_note(
            "--restrict-writes: this kernel cannot refuse to truncate files elsewhere; \
             Linux 6.2 can",
        ),
        WriteRestriction::NotEnforced(why) => {
            context.print_warning(format!("writes are not restricted: {why}"))
        }
    }
}

/// Returns the directories that ssh writes: known hosts, control sockets, temporary files.
fn ssh_directories(context: &CommandContext<'_>) -> Vec<PathBuf> {
    let environment = context.environment;
    let mut directories: Vec<PathBuf> = SSH_TEMPORARY_DIRECTORIES.map(PathBuf::from).into();
    directories.push(environment.temporary_root.path().to_path_buf());
    directories.extend(environment.runtime_directory.clone());
    directories.extend(environment.env.home.as_ref().map(|home| home.join(".ssh")));
    directories
}
