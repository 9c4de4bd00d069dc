//! Interrupted runs that a command finds: their recovery comes first, and a command whose target depends
//! on the last run stops after it.

use std::collections::BTreeMap;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::quantity::list_names;
use crate::cli::CommandContext;
use crate::cli::runs::arguments::UndoArgs;
use crate::cli::signals::RunSignals;
use crate::engine::{Engine, InterruptedTurn, RecoveredTurns, RunProgress, UserRun};

/// Recovers the interrupted runs of agents. A command that changes nothing warns of them.
pub(in crate::cli) fn recover_interrupted(
    context: &mut CommandContext<'_>,
    engine: &Engine,
    agents: &[String],
    is_dry_run: bool,
    signals: &RunSignals,
) -> Result<RecoveredTurns> {
    if is_dry_run {
        // A journal that cannot be read stops the command that changes something.
        let turns = engine.runs().unrecorded_turns(agents).unwrap_or_default();
        if !turns.is_empty() {
            context.print_warning(format!(
                "{}; it is recovered first, and the plan may be another one then",
                describe_interrupted(&turns)
            ));
        }
        return Ok(RecoveredTurns::default());
    }
    signals.catch();
    // A recovery holds locks, and must not wait for a reader of the output.
    let mut lines = Vec::new();
    let recovered =
        engine
            .runs()
            .recover_interrupted_turns(agents, &signals.stop, &mut |progress| {
                if let RunProgress::LogLine(line) = progress {
                    lines.push(line);
                }
            });
    signals.release();
    lines
        .iter()
        .for_each(|it| context.output.print_progress(it));
    recovered
}

/// Describes interrupted turns: `run 1a2b3c4d, the undo of run 5e6f7a8b on scout, was interrupted`.
fn describe_interrupted(turns: &[InterruptedTurn]) -> String {
    let mut agents_by_run: BTreeMap<(&str, String), Vec<&str>> = BTreeMap::new();
    for turn in turns {
        let act = match &turn.undone_run {
            Some(undone) => format!("the undo of run {undone} on"),
            None => format!("a {} of", turn.operation.as_str()),
        };
        let agents = agents_by_run.entry((&turn.run, act)).or_default();
        agents.push(&turn.agent);
    }
    let runs = agents_by_run.iter().map(|((run, act), agents)| {
        format!("run {run}, {act} {}, was interrupted", list_names(agents))
    });
    runs.collect::<Vec<_>>().join("; ")
}

/// Returns the error of an undo without a run that found interrupted runs: by now, the last run may be
/// another one than when the command was typed.
///
/// # Errors
/// The ledger cannot be read.
pub(in crate::cli) fn interrupted_undo_error(
    engine: &Engine,
    args: &UndoArgs,
    recovered: &[InterruptedTurn],
) -> Result<Error> {
    let message = format!(
        "{}; that is recovered now, and nothing else was undone",
        describe_interrupted(recovered)
    );
    let error = Error::new(ErrorKind::Conflict, message);
    if !args.last {
        let redo = if args.redo { "--redo " } else { "" };
        let names = args.agents.join(" ");
        let again = engine.command_line(&format!("undo {redo}{names}"));
        let log = engine.command_line("log");
        return Ok(error
            .with_hint(format!("`{log}` lists the runs"))
            .with_hint(format!("to undo one more: {again}")));
    }
    Ok(match engine.history().last_run_of_user()? {
        None => error,
        Some(last) => error.with_hint(format!(
            "to undo run {}, too: {}",
            describe_user_run(engine, &last),
            engine.command_line(&format!("undo --run {}", last.run))
        )),
    })
}

/// Returns the error of a push of chosen lines that found interrupted runs: the lines may have moved.
pub(in crate::cli) fn interrupted_push_error(
    engine: &Engine,
    recovered: &[InterruptedTurn],
) -> Error {
    let message = format!(
        "{}; that is recovered now, and the line numbers may mean other lines",
        describe_interrupted(recovered)
    );
    let agent = recovered.first().map_or("", |turn| &turn.agent);
    let diff = engine.command_line(&format!("diff {agent}"));
    Error::new(ErrorKind::Conflict, message).with_hint(format!(
        "nothing was pushed; look at the memory again: {diff}"
    ))
}

/// Describes a run: `1a2b3c4d, a reset of scout on 2026-03-14 at 09:00:30`.
pub(in crate::cli) fn describe_user_run(engine: &Engine, run: &UserRun) -> String {
    let agents: Vec<&str> = run.agents.iter().rev().map(String::as_str).collect();
    format!(
        "{}, a {} of {} on {}",
        run.run,
        run.operation.as_str(),
        list_names(&agents),
        engine.clock().zone().format_second(run.time)
    )
}
