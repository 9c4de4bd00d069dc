//! What an act would be about: the marked agents, the one under the cursor, a run.

use super::{Model, ResetStage, RunSummary, Screen};
use crate::console::command::Command;
use crate::engine::{Operation, Outcome, UndoTarget};

impl Model {
    /// The agents that an act would be about: the marked ones, else the one
    /// under the cursor or on the screen.
    pub fn target_agents(&self, command: Command) -> Vec<String> {
        match (self.screen, &self.reset.stage) {
            (Screen::Agent, _) => vec![self.agent.agent.clone()],
            (Screen::Reset, ResetStage::Result(result)) if command == Command::RetryFailed => {
                result.failed_agents()
            }
            (Screen::Reset, ResetStage::Result(result)) => result.changed_agents(),
            _ if command == Command::PlanUndo => match self.undo_target() {
                UndoTarget::Agents(names) | UndoTarget::Redo(names) => names,
                UndoTarget::Run(_) => {
                    let run = self.last_undoable_run();
                    let agents = run.into_iter().flat_map(RunSummary::undoable_agents);
                    agents.map(str::to_string).collect()
                }
            },
            _ if command == Command::PlanRedo => match self.last_redoable_run() {
                Some((_, agents)) => agents,
                None => self.marked_or_current_agents(),
            },
            _ => self.marked_or_current_agents(),
        }
    }

    /// What an undo would be of: at a result that run; elsewhere the last resets of the
    /// agents, or the last run where none of the marked agents has one.
    pub fn undo_target(&self) -> UndoTarget {
        match (self.screen, &self.reset.stage) {
            (Screen::Reset, ResetStage::Result(result)) => UndoTarget::Run(result.run_id.clone()),
            (Screen::Agent, _) => UndoTarget::Agents(vec![self.agent.agent.clone()]),
            _ => {
                let agents = self.marked_or_current_agents();
                let has_any =
                    self.marks.is_empty() || agents.iter().any(|it| self.has_undoable_reset(it));
                match self.last_undoable_run().filter(|_| !has_any) {
                    Some(run) => UndoTarget::Run(run.run_id.clone()),
                    None => UndoTarget::Agents(agents),
                }
            }
        }
    }

    /// The youngest run of which something can be undone.
    pub fn last_undoable_run(&self) -> Option<&RunSummary> {
        let mut runs = self.log.runs.iter();
        runs.find(|run| run.undoable_agents().next().is_some())
    }

    /// The last undo and its agents, where none of the marked agents, or of the one under
    /// the cursor, has an undo that can be taken back.
    pub fn last_redoable_run(&self) -> Option<(&RunSummary, Vec<String>)> {
        if self.screen == Screen::Agent {
            return None;
        }
        let wanted = self.marked_or_current_agents();
        let mut last = None;
        for (run, agents) in self.log.redoable_runs() {
            if agents.iter().any(|it| wanted.iter().any(|name| name == it)) {
                return None;
            }
            last.get_or_insert((run, agents));
        }
        let (run, agents) = last?;
        Some((run, agents.into_iter().map(str::to_string).collect()))
    }

    /// Whether an agent has a reset that can be undone, as far as is known here.
    fn has_undoable_reset(&self, name: &str) -> bool {
        let last = self
            .find_row(name)
            .and_then(|row| row.latest_observation()?.last_run.as_ref());
        // The log may not have been read since.
        let was_reset =
            last.is_some_and(|it| (it.operation, it.outcome) == (Operation::Reset, Outcome::Ok));
        let mut undoable = self.log.runs.iter().flat_map(RunSummary::undoable_agents);
        was_reset || undoable.any(|agent| agent == name)
    }

    fn marked_or_current_agents(&self) -> Vec<String> {
        if self.marks.is_empty() {
            return self.cursor_agent.clone().into_iter().collect();
        }
        let names = self.rows.iter().map(|row| &row.name);
        let marked = names.filter(|name| self.marks.contains(*name));
        marked.cloned().collect()
    }

    /// Marked agents that the filter hides.
    pub fn hidden_marked_agents(&self) -> Vec<String> {
        self.marks
            .iter()
            .filter(|name| !self.visible_agents.contains(name))
            .cloned()
            .collect()
    }
}
