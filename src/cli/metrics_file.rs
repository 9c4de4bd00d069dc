//! `--metrics FILE` of `status` and `reset`: writes the metrics of the fleet for the textfile collector
//! of node-exporter.

use std::path::PathBuf;

use super::CommandContext;
use super::observation::observe_fleet;
use crate::base::error::ErrorKind;
use crate::engine::{Engine, Observation};
use crate::unattended::metrics::{self, MetricsCommand};

/// Options about metrics.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct MetricsFlags {
    /// Also writes metrics for Prometheus to this file, at the end
    ///
    /// The file is replaced as a whole. For node-exporter, it is NAME.prom in the directory of its
    /// textfile collector.
    #[arg(long = "metrics", value_name = "FILE")]
    pub(super) file: Option<PathBuf>,
}

/// Writes the metrics of agents that were observed. Returns the kind of the error if the file
/// cannot be written, which is said on standard error.
pub(super) fn write_metrics(
    context: &mut CommandContext<'_>,
    engine: &Engine,
    flags: &MetricsFlags,
    command: &'static str,
    observations: &[Observation],
    kind: Option<ErrorKind>,
) -> Option<ErrorKind> {
    let file = flags.file.as_ref()?;
    let path = context.environment.env.resolve(file);
    let command = MetricsCommand {
        name: command,
        exit_code: kind.map_or(0, ErrorKind::exit_code),
    };
    let error = metrics::write_metrics(engine, &path, command, observations).err()?;
    context.print_failure(&error);
    Some(error.kind())
}

/// Observes all agents and writes their metrics, after a run. A file that cannot be written is no
/// failure of the run.
pub(super) fn write_metrics_after_run(
    context: &mut CommandContext<'_>,
    engine: &Engine,
    flags: &MetricsFlags,
    kind: Option<ErrorKind>,
) {
    if flags.file.is_none() {
        return;
    }
    write_metrics(
        context,
        engine,
        flags,
        "reset",
        &observe_fleet(engine),
        kind,
    );
}
