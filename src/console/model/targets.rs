//! What a command is about: the agents to plan for, the agent, line, text or entry under the
//! cursor.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::undo_offers::is_undoable_change;
use super::{Model, PlanKind, equivalent_command};
use crate::archive::WrittenEntry;
use crate::base::invocation::as_operand;
use crate::base::quantity::format_count;
use crate::console::agent_row::AgentRow;
use crate::console::command::{Command, KeyContext, require};
use crate::console::handoff::{ClipboardText, PagerText};
use crate::console::screen::Screen;
use crate::console::screens::agent::marked_lines::MarkedLines;
use crate::console::screens::agent::state::AgentTab;
use crate::console::screens::agent::state::memory::describe_finding;
use crate::console::screens::archives::state::retention::{BEING_PRUNED_REASON, has_expired};
use crate::console::screens::archives::state::{ArchiveRow, ArchivesPage};
use crate::console::screens::log::state::{LogRow, RunSummary};
use crate::console::screens::reset::state::{PlanRequest, REDO_VERB, ResetStage, ResultView};
use crate::console::text::{LineKind, TextLine};
use crate::engine::{
    Operation, Protection, ScratchRequest, ScratchSelection, UndoMode, UndoTarget,
};
use crate::transport::sftp::askpass::Question;

/// Why an agent without a baseline is not reset, behind its name and `is`.
pub const NEVER_RESET_REASON: &str = "never reset (layout without a baseline)";

/// Cells of the label of a fact.
const FACT_LABEL_CELLS: usize = 20;

impl Model {
    /// Returns the agents that a command acts on: the marked ones, else the one under the cursor or
    /// on the screen; on the baselines screen those whose baselines the command is about.
    pub fn target_agents(&self) -> Vec<String> {
        match (self.screen, &self.reset.stage) {
            (Screen::Agent, _) => vec![self.agent.agent.clone()],
            (Screen::Baselines, _) => self.users_of_baselines(&self.baselines.targets()),
            (Screen::Reset, ResetStage::Result(result)) => self.undoable_agents(result),
            _ => self.marked_or_current_agents(),
        }
    }

    /// Returns the agents for which the run of a result can be undone, as far as the log knows.
    pub fn undoable_agents(&self, result: &ResultView) -> Vec<String> {
        let mut agents = result.undoable_agents();
        if let Some(run) = self.log.find_run(&result.run_id) {
            agents.retain(|agent| !run.undone_agents.contains(agent));
        }
        agents
    }

    /// Returns the request that pushes to agents again; of a run of another program, what it kept is
    /// in the ledger.
    fn retried_push(
        &self,
        result: &ResultView,
        agents: Vec<String>,
    ) -> Result<PlanRequest, String> {
        let own = self.log.find_own_run(&result.run_id);
        let requested = match own.map(|run| &run.request) {
            Some(PlanRequest::Push(_, request)) => Some(request.clone()),
            _ => {
                let run = self.log.find_run(&result.run_id);
                let mut events = run.into_iter().flat_map(|run| &run.events);
                let kept = events.find_map(|event| event.kept_scratch.as_ref());
                kept.map(|kept| kept.selection.clone().into())
            }
        };
        match requested {
            Some(ScratchRequest::Selection(ScratchSelection::Lines(_))) => Err(format!(
                "the numbers of its lines may have changed: mark them again, then {}",
                self.key_hint(Command::PlanPush)
            )),
            Some(request) => Ok(PlanRequest::Push(agents, request)),
            None => Ok(PlanRequest::Push(agents, ScratchSelection::All.into())),
        }
    }

    /// Returns the request that tries the failures of the result on the screen again: an undo is
    /// tried again as the undo of the same run.
    ///
    /// # Errors
    /// The screen shows no result, no agent failed, or runs of its kind are not tried again.
    pub fn retry_request(&self) -> Result<PlanRequest, String> {
        let result = match (self.screen, &self.reset.stage) {
            (Screen::Reset, ResetStage::Result(result)) => result,
            _ => return Err("no result on the screen".to_string()),
        };
        let failed = result.failed_agents();
        if failed.is_empty() {
            return Err("no agent failed, was refused or was not started".to_string());
        }
        let own = self.log.find_own_run(&result.run_id);
        match result.operation {
            Operation::Reset => Ok(PlanRequest::Reset(failed)),
            Operation::Edit => own
                .map(|run| run.request.clone())
                .ok_or_else(|| "plan the operation again on the Memory tab".to_string()),
            Operation::Undo => {
                let target = self.retried_undo(result, failed).ok_or_else(|| {
                    let key = self.key_hint(Command::PlanUndo);
                    format!("open the run to undo in the log: {key} there plans its undo")
                })?;
                Ok(PlanRequest::Undo(target, UndoMode::Refuse))
            }
            Operation::Push => self.retried_push(result, failed),
            _ => Err("only a reset, a push or an undo can be tried again".to_string()),
        }
    }

    /// Returns the target that undoes for `agents` the run that an undo was to undo; `None` if no
    /// target does, or if that run is unknown.
    fn retried_undo(&self, result: &ResultView, agents: Vec<String>) -> Option<UndoTarget> {
        if result.verb == REDO_VERB {
            return Some(UndoTarget::Redo(agents));
        }
        let own = self.log.find_own_run(&result.run_id);
        let requested = match own.map(|run| &run.request) {
            Some(PlanRequest::Undo(UndoTarget::Run(run) | UndoTarget::RunAgents(run, _), _)) => {
                Some(run.as_str())
            }
            Some(PlanRequest::Undo(UndoTarget::Agents(_), _)) => None,
            _ => self.log.find_run(&result.run_id)?.undone_run(),
        };
        let Some(undone) = requested else {
            return own.map(|_| UndoTarget::Agents(agents));
        };
        let last_reset = |agent: &String| {
            let mut runs = self.log.runs.iter();
            runs.find(|run| run.undoable_agents().any(|it| it == agent))
        };
        let is_last = |agent| last_reset(agent).is_some_and(|run| run.run_id == undone);
        if agents.iter().all(is_last) {
            Some(UndoTarget::Agents(agents))
        } else {
            let run = self.log.find_run(undone)?;
            Some(if run.has_changed_exactly(&agents) {
                UndoTarget::Run(undone.to_string())
            } else {
                UndoTarget::RunAgents(undone.to_string(), agents)
            })
        }
    }

    /// Returns the newest run that can be undone for an agent, if no marked agent has one.
    pub fn last_undoable_run(&self) -> Option<&RunSummary> {
        let mut marked = self.fleet.marks.iter();
        let has_any = self.screen != Screen::Fleet
            || self.fleet.marks.is_empty()
            || marked.any(|it| self.has_undoable_change(it));
        let mut runs = self.log.runs.iter().filter(|_| !has_any);
        runs.find(|run| run.undoable_agents().next().is_some())
    }

    /// Returns the last undo that can be redone, if neither a marked agent nor the one under the
    /// cursor has one.
    pub fn last_redoable_run(&self) -> Option<&RunSummary> {
        if self.screen == Screen::Agent {
            return None;
        }
        let marks = &self.fleet.marks;
        let cursor = self.fleet.cursor_agent.as_deref();
        let is_wanted = |name: &str| {
            if marks.is_empty() {
                Some(name) == cursor
            } else {
                marks.contains(name)
            }
        };
        let mut last = None;
        for (run, agents) in self.log.redoable_runs() {
            if agents.iter().any(|name| is_wanted(name)) {
                return None;
            }
            last.get_or_insert(run);
        }
        last
    }

    /// Whether an agent is known to have a change that can be undone.
    fn has_undoable_change(&self, name: &str) -> bool {
        let last = self
            .find_row(name)
            .and_then(|row| row.latest_observation()?.last_run.as_ref());
        // The log may be older than the observation.
        let mut undoable = self.log.runs.iter().flat_map(RunSummary::undoable_agents);
        last.is_some_and(is_undoable_change) || undoable.any(|agent| agent == name)
    }

    /// Returns the agents that use any of these baselines, in the order of the fleet.
    fn users_of_baselines(&self, names: &[String]) -> Vec<String> {
        let baselines = names.iter().filter_map(|name| self.baselines.find(name));
        let users: BTreeSet<&String> = baselines.flat_map(|it| &it.agents).collect();
        let all = self.rows.iter().map(|row| &row.name);
        all.filter(|name| users.contains(name)).cloned().collect()
    }

    /// Whether any of the agents that a command acts on is as wanted. Unlike
    /// [`Model::target_agents`], it copies no names of marked agents: each frame asks.
    fn has_target_agent(&self, is_wanted: impl Fn(&str) -> bool) -> bool {
        match (self.screen, &self.reset.stage) {
            (Screen::Agent | Screen::Baselines, _) | (Screen::Reset, ResetStage::Result(_)) => {
                self.target_agents().iter().any(|name| is_wanted(name))
            }
            _ if self.fleet.marks.is_empty() => {
                self.fleet.cursor_agent.as_deref().is_some_and(is_wanted)
            }
            _ => self.fleet.marks.iter().any(|name| is_wanted(name)),
        }
    }

    /// Checks that a plan can be requested for the agents that a command acts on.
    pub fn check_target_agents(&self) -> Result<(), String> {
        self.check_no_run()?;
        let reason = match self.key_context() {
            KeyContext::Result => "nothing to undo in this run",
            KeyContext::Baselines if self.baselines.subject().is_some() => {
                "no agent uses this baseline"
            }
            _ => "no agent to act on",
        };
        require(self.has_target_agent(|_| true), reason)
    }

    /// Checks that a reset or a push can be planned for the agents that a command acts on.
    pub fn check_reset_targets(&self) -> Result<(), String> {
        self.check_target_agents()?;
        let is_reset = |name: &str| !self.find_row(name).is_some_and(AgentRow::is_never_reset);
        if self.has_target_agent(is_reset) {
            return Ok(());
        }
        Err(match self.target_agents().as_slice() {
            [one] => format!("{one} is {NEVER_RESET_REASON}"),
            _ => format!("the marked agents are {NEVER_RESET_REASON}"),
        })
    }

    /// Whether the agent on the screen has a memory with a layout.
    pub fn has_layout(&self) -> bool {
        let row = self.find_row(&self.agent.agent);
        row.is_some_and(|row| row.layout.is_some())
    }

    /// Returns the directory of the memory with a layout of an agent; an empty path if it has none.
    pub fn layout_directory(&self, agent: &str) -> PathBuf {
        let layout = self.find_row(agent).and_then(|row| row.layout.as_ref());
        layout.map_or_else(PathBuf::new, |layout| layout.directory.clone())
    }

    /// Checks that the agent that a key is about is reset, so that it has a baseline.
    pub fn check_subject_is_reset(&self) -> Result<(), String> {
        let name = self.subject_agent();
        let row = name.and_then(|name| self.find_row(name));
        let never_reset = row.filter(|row| row.is_never_reset());
        let refusal = never_reset.map(|row| format!("{} is {NEVER_RESET_REASON}", row.name));
        refusal.map_or(Ok(()), Err)
    }

    /// Checks that a key is about an agent that can be compared with a baseline.
    pub fn check_subject_diff(&self) -> Result<(), String> {
        self.check_subject_agent()?;
        self.check_subject_is_reset()
    }

    /// Checks that the cursor of the fleet is on an agent.
    pub fn check_fleet_cursor(&self) -> Result<(), String> {
        require(
            self.fleet.cursor_agent.is_some(),
            "no agent under the cursor",
        )
    }

    /// Checks that a key is about an agent.
    pub fn check_subject_agent(&self) -> Result<(), String> {
        match self.subject_agent() {
            Some(_) => Ok(()),
            None if self.has_plan() => Err("the plan is not ready yet".to_string()),
            None => Err(self.no_subject_reason()),
        }
    }

    /// Checks that the external editor may change the baseline of the agent that a key is about.
    pub fn check_external_edit(&self) -> Result<(), String> {
        let agent = self
            .subject_agent()
            .ok_or_else(|| self.no_subject_reason())?;
        self.check_subject_is_reset()?;
        let row = self.find_row(agent);
        let observation = row.and_then(|row| row.latest_observation());
        let protected = observation.is_some_and(|seen| seen.protection == Protection::ReadOnly);
        let is_modified = self.editor.as_ref().is_some_and(|it| it.is_modified);
        require(
            !is_modified,
            "the editor has changes that are not saved: save or leave it first",
        )?;
        require(
            !protected || self.is_unlocked(),
            format!("agent is protected as read-only; {}", self.unlock_hint()),
        )?;
        self.check_writable()
    }

    fn marked_or_current_agents(&self) -> Vec<String> {
        if self.fleet.marks.is_empty() {
            return self.fleet.cursor_agent.clone().into_iter().collect();
        }
        let marked = self.fleet.marks.iter();
        let mut places: Vec<usize> = marked.filter_map(|name| self.rows.place(name)).collect();
        places.sort_unstable();
        let rows = places.into_iter().map(|place| &self.rows[place]);
        rows.map(|row| row.name.clone()).collect()
    }

    /// Returns the agent that a key is about: under the cursor, or on the screen.
    pub fn subject_agent(&self) -> Option<&str> {
        match self.screen {
            Screen::Fleet => self.fleet.cursor_agent.as_deref(),
            Screen::Agent => Some(&self.agent.agent),
            Screen::Reset => self.reset.current_agent(),
            Screen::Log => match self.log.rows().get(self.log.cursor) {
                Some(LogRow::Run(run)) => match run.events.as_slice() {
                    [one] => self.find_row(&one.agent).map(|row| row.name.as_str()),
                    _ => None,
                },
                _ => None,
            },
            Screen::Editor => self.editor.as_ref().and_then(|editor| {
                let user = editor.opened.users.first();
                user.map(|user| user.agent.as_str())
            }),
            Screen::Hosts | Screen::BaselinePlan => None,
            Screen::Archives => {
                let agent = self.archives.subject_agent()?;
                self.find_row(agent).map(|row| row.name.as_str())
            }
            Screen::Verify => {
                let summary = self.baselines.find(self.verify_subject()?)?;
                summary.agents.first().map(String::as_str)
            }
            // A baseline stands for the first agent that uses it.
            Screen::Baselines => {
                let subject = self.baselines.subject()?;
                let summary = self.baselines.find(subject)?;
                summary.agents.first().map(String::as_str)
            }
        }
    }

    /// Checks that what the page about retention shows can be pruned now.
    pub fn check_prune(&self) -> Result<(), String> {
        self.check_writable()?;
        let key = self.key_hint(Command::GoBack);
        require(
            self.archives.page != ArchivesPage::RetentionAgent,
            format!("a prune is about all agents; {key} goes back to them"),
        )?;
        let view = &self.archives.retention;
        require(!view.is_pruning, BEING_PRUNED_REASON)?;
        let shown = view.shown().ok_or("the overview is not ready yet")?;
        require(has_expired(shown), "nothing expires now")
    }

    /// Returns the question that the answer key opens: that of the host under the cursor, else the
    /// oldest.
    pub fn current_question(&self) -> Option<&Question> {
        let status = match self.screen {
            Screen::Hosts => self.hosts.current_status(),
            _ => self
                .subject_agent()
                .and_then(|agent| self.hosts.status_of_agent(agent)),
        };
        let login = status.map(|status| status.host.authority());
        let mut questions = self.questions.iter();
        questions
            .find(|question| Some(&question.host) == login.as_ref())
            .or(self.questions.first())
    }

    /// Says that a question waits no longer for its answer, and the key that asks again.
    pub fn describe_expired_question(&self, question: &Question) -> String {
        let (host, key) = (&question.host, self.key_hint(Command::ReadAgent));
        format!("{host}: the question has expired; {key} asks again")
    }

    /// Returns why a key is about no agent here.
    pub fn no_subject_reason(&self) -> String {
        let open = self.key_hint(Command::OpenSelected);
        let row = self.log.rows().get(self.log.cursor).copied();
        match row.filter(|_| self.screen == Screen::Log) {
            Some(LogRow::Message(_)) => "the row is a note, not a run of an agent".to_string(),
            Some(LogRow::Run(run)) if run.events.len() > 1 => {
                format!("the run has several agents; {open} shows them")
            }
            _ => "no agent under the cursor".to_string(),
        }
    }

    /// Returns the text that a command copies.
    ///
    /// # Errors
    /// The screen has nothing that the command copies.
    pub fn clipboard_text(&self, command: Command) -> Result<ClipboardText, String> {
        let nothing_to_copy = || "nothing to copy".to_string();
        match command {
            Command::CopyPath if self.screen == Screen::Archives => {
                let path = match self.archives.current_row() {
                    Some(ArchiveRow::Memory(found)) if !self.archives.timeline.is_open => {
                        found.address.clone()
                    }
                    _ => {
                        let entry = self.archives.chosen_entry()?;
                        as_operand(entry.path).display().to_string()
                    }
                };
                Ok(ClipboardText::new("the path", path.as_bytes()))
            }
            Command::CopyPath if self.is_layout_tab() => {
                let location = self.layout_file_location()?;
                Ok(ClipboardText::new("the path", location.as_bytes()))
            }
            Command::CopyName | Command::CopyPath | Command::CopyDigest => self.agent_text(command),
            Command::CopyLine if self.marked_lines_here().is_some() => {
                let marked = self.marked_lines_here().ok_or_else(nothing_to_copy)?;
                let what = format_count(marked.len() as u64, "marked line");
                Ok(ClipboardText {
                    is_truncated: marked.iter().any(|line| line.is_truncated),
                    ..ClipboardText::new(what, &marked.to_text())
                })
            }
            Command::CopyLine => {
                let (what, line) = self.current_line().ok_or_else(nothing_to_copy)?;
                Ok(ClipboardText {
                    is_truncated: line.is_truncated,
                    ..ClipboardText::new(what, &line.bytes)
                })
            }
            Command::CopyAll => {
                let (what, text) = self.full_text().ok_or_else(nothing_to_copy)?;
                let lines = match self.screen {
                    Screen::Agent => self.agent.current_pane().lines.as_slice(),
                    _ => &[],
                };
                Ok(ClipboardText {
                    is_truncated: lines.iter().any(|line| line.is_truncated),
                    ..ClipboardText::new(what, &text)
                })
            }
            Command::CopyCommand | Command::CopyPlan => {
                let line = self.equivalent_command_line();
                let line = line.ok_or("this row has no equivalent command line")?;
                Ok(ClipboardText::new("the command line", line.as_bytes()))
            }
            Command::CopyScheduleLine => {
                let (what, line) = self.schedule_line()?;
                Ok(ClipboardText::new(what, line.as_bytes()))
            }
            _ => Err(nothing_to_copy()),
        }
    }

    /// Returns the text that a command copies of the agent that keys are about: its digest, its path, else
    /// its name.
    fn agent_text(&self, command: Command) -> Result<ClipboardText, String> {
        let name = self.subject_agent();
        let name = name.ok_or_else(|| self.no_subject_reason())?;
        let row = self.find_row(name);
        let (what, text) = match command {
            Command::CopyPath => {
                let path = row.map(AgentRow::memory_location);
                let path = path.ok_or("the agent is no longer in the config")?;
                (format!("the path of {name}'s memory"), path)
            }
            Command::CopyDigest => {
                let seen = row.and_then(AgentRow::last_readable_observation);
                let content = seen.and_then(|seen| seen.content.as_ref());
                let content = content.ok_or("its memory has not been read")?;
                let digest = content.sha256.to_string();
                (format!("the digest of {name}'s memory"), digest)
            }
            _ => (format!("the name {name}"), name.to_string()),
        };
        Ok(ClipboardText::new(what, text.as_bytes()))
    }

    /// Whether the screen shows a tab about a memory with a layout.
    fn is_layout_tab(&self) -> bool {
        self.screen == Screen::Agent && self.agent.tab.is_about_layout()
    }

    /// Returns the location of the file that a tab about a memory with a layout is about: that of the
    /// item or of the finding.
    ///
    /// # Errors
    /// The tab has no item or finding, or none with a file.
    fn layout_file_location(&self) -> Result<OsString, String> {
        let (memory, health) = (&self.agent.memory, &self.agent.health);
        let path = match self.agent.tab {
            AgentTab::Health => {
                let finding = health
                    .current_finding()
                    .ok_or("no finding under the cursor")?;
                finding.path.as_deref().ok_or("the finding names no file")?
            }
            _ => match (memory.subject_item(), memory.subject_id()) {
                (Some(item), _) => &item.path,
                (None, Some(id)) => return Err(format!("{id} is not in the list any more")),
                (None, None) => return Err("no item under the cursor".to_string()),
            },
        };
        let row = self.find_row(&self.agent.agent);
        let location = row.and_then(|row| row.layout_location(path));
        Ok(location.ok_or("the agent has no memory with a layout any more")?)
    }

    /// Returns the row under the cursor of a list about a memory with a layout.
    fn current_layout_row(&self) -> Option<(String, TextLine)> {
        let text = match self.agent.tab {
            AgentTab::Memory => {
                let item = self.agent.memory.subject_item()?;
                format!("{}  {}", item.id, item.title)
            }
            AgentTab::Health => describe_finding(self.agent.health.current_finding()?),
            _ => return None,
        };
        Some(("the row".to_string(), TextLine::note(text)))
    }

    /// Returns the command line that does what the screen plans or has done, if there is one.
    fn equivalent_command_line(&self) -> Option<String> {
        match (self.screen, &self.reset.stage) {
            (Screen::BaselinePlan, _) => self
                .baseline_plan
                .view()
                .map(|view| equivalent_command::for_baseline_plan(self, view)),
            (Screen::Archives, _) if self.plan_kind() == Some(PlanKind::Prune) => {
                Some(equivalent_command::for_prune(self))
            }
            (Screen::Reset, ResetStage::Plan(view)) => equivalent_command::for_plan(self, view),
            (Screen::Reset, ResetStage::Result(view)) => equivalent_command::for_result(self, view),
            (Screen::Log, _) => match self.log.rows().get(self.log.cursor) {
                Some(LogRow::Run(run)) => equivalent_command::for_run(self, run),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the marked lines of the text on the screen.
    fn marked_lines_here(&self) -> Option<&MarkedLines> {
        if self.screen == Screen::Archives {
            let marked = &self.archives.text.marked_lines;
            return Some(marked).filter(|it| self.has_line_cursor() && !it.is_empty());
        }
        let is_scratch_tab = self.screen == Screen::Agent && self.agent.tab == AgentTab::Scratch;
        let marked = self.agent.marked_lines_of(&self.agent.agent);
        marked.filter(|_| is_scratch_tab)
    }

    /// Returns the current line with its description: in a text the hit or the first visible line,
    /// elsewhere the row under the cursor.
    fn current_line(&self) -> Option<(String, TextLine)> {
        let ours = |text: String| TextLine::note(text);
        match (self.screen, &self.reset.stage) {
            (Screen::Agent, _) if self.agent.is_list() => self.current_layout_row(),
            (Screen::Agent, _) => {
                let pane = self.agent.current_pane();
                let index = if self.agent.has_line_cursor() {
                    pane.cursor_line
                } else {
                    pane.current_line()?
                };
                let line = pane.lines.get(index)?;
                let what = match line.new_number.or(line.old_number) {
                    Some(number) => format!("line {number}"),
                    None => "a line".to_string(),
                };
                Some((what, line.clone()))
            }
            (Screen::Archives, _) if self.archives.is_text_current() => {
                let pane = &self.archives.text.pane;
                let at = if self.has_line_cursor() {
                    pane.cursor_line
                } else {
                    pane.current_line()?
                };
                let line = pane.lines.get(at)?;
                Some(("the line".to_string(), line.clone()))
            }
            (Screen::Log, _) => {
                let text = self.log.rows().get(self.log.cursor)?.text();
                Some(("the row".to_string(), ours(text)))
            }
            (Screen::Reset, ResetStage::Result(view)) => {
                let line = view.lines.get(self.reset.cursor)?;
                Some(("the row".to_string(), ours(line.to_text())))
            }
            _ => None,
        }
    }

    /// Returns the whole text of the screen with its description.
    fn full_text(&self) -> Option<(String, Vec<u8>)> {
        match (self.screen, &self.reset.stage) {
            (Screen::Agent, _) if !self.agent.has_full_text() => None,
            (Screen::Agent, _) if self.agent.tab == AgentTab::Health => {
                let findings = self.agent.health.findings().iter();
                let text: String = findings.map(|it| describe_finding(it) + "\n").collect();
                Some(("the findings".to_string(), text.into_bytes()))
            }
            (Screen::Agent, _) => {
                let lines = &self.agent.current_pane().lines;
                let labels = match self.agent.tab {
                    AgentTab::Facts => self.agent.fact_labels.as_slice(),
                    _ => &[],
                };
                let what = match (self.agent.tab, self.agent.memory.content.item()) {
                    (AgentTab::Memory, Some(item)) => format!("the text of {item}"),
                    _ => format!("the text of {}", self.agent.agent),
                };
                Some((what, join_lines(lines, labels)))
            }
            (Screen::Archives, _) => {
                let lines = self.archives.text.pane.lines.as_slice();
                let is_shown = self.archives.is_text_current() && !lines.is_empty();
                is_shown.then(|| ("the text".to_string(), join_lines(lines, &[])))
            }
            (Screen::Verify, _) => {
                let text = self.verify_report()?;
                Some(("the verification report".to_string(), text.into_bytes()))
            }
            (Screen::Log, _) => {
                let rows = self.log.rows();
                let rows = rows.iter().map(|row| {
                    let time = row.time().format("%Y-%m-%d %H:%M:%S");
                    format!("{time}  {}\n", row.text())
                });
                Some(("the log".to_string(), rows.collect::<String>().into_bytes()))
            }
            (Screen::Reset, ResetStage::Result(view)) => {
                let command = equivalent_command::for_result(self, view);
                let mut text = command.map_or_else(String::new, |line| format!("$ {line}\n"));
                for error in &view.errors {
                    text.push_str(&format!("error: {error}\n"));
                }
                for line in &view.lines {
                    text.push_str(&format!("{}\n", line.to_text()));
                }
                let what = format!("the report of run {}", view.run_id);
                Some((what, text.into_bytes()))
            }
            _ => None,
        }
    }

    /// Returns the text of the agent screen, or the report of a verification, for the pager.
    pub fn pager_text(&self) -> Option<PagerText> {
        let name = match self.screen {
            Screen::Agent => self.agent.agent.clone(),
            Screen::Verify => "verification".to_string(),
            _ => return None,
        };
        let (_, text) = self.full_text()?;
        Some(PagerText::new(name, &text))
    }

    /// Returns the entry under the cursor with its agent.
    ///
    /// # Errors
    /// The row under the cursor is not a run of one agent, or its run archived nothing.
    pub fn selected_entry(&self) -> Result<(String, WrittenEntry), String> {
        let of = |agent: &str, entry: Option<&WrittenEntry>| match entry {
            Some(entry) => Ok((agent.to_string(), entry.clone())),
            None if agent.is_empty() => Err("this row is about no agent".to_string()),
            None => Err(format!("the run archived nothing of {agent}")),
        };
        match (self.screen, &self.reset.stage) {
            (Screen::Reset, ResetStage::Result(view)) => match view.lines.get(self.reset.cursor) {
                Some(line) => of(&line.agent, line.entry.as_ref()),
                None => Err(self.no_subject_reason()),
            },
            (Screen::Log, _) => match self.log.rows().get(self.log.cursor) {
                Some(LogRow::Run(run)) => match run.events.as_slice() {
                    [one] => of(&one.agent, one.change.entry.as_ref()),
                    _ => Err(format!(
                        "the run has several agents; {} shows them",
                        self.key_hint(Command::OpenSelected)
                    )),
                },
                _ => Err("the row is not a run".to_string()),
            },
            (Screen::Agent, _) if self.agent.tab == AgentTab::History && self.agent.is_list() => {
                let past = self.agent.history.current_record();
                let past = past.ok_or("no record yet")?;
                of(&self.agent.agent, past.record.event.change.entry.as_ref())
            }
            _ => Err("no entry here".to_string()),
        }
    }
}

/// Joins lines to a text; those of a diff with their signs, facts with their labels.
fn join_lines(lines: &[TextLine], labels: &[&str]) -> Vec<u8> {
    let changed = |line: &TextLine| matches!(line.kind, LineKind::Added | LineKind::Removed);
    let signs = lines.iter().any(changed);
    let mut text = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if let Some(label) = labels.get(at) {
            let width = if line.bytes.is_empty() {
                0
            } else {
                FACT_LABEL_CELLS
            };
            text.extend(format!("{label:<width$}").into_bytes());
        }
        if signs {
            text.push(match line.kind {
                LineKind::Added => b'+',
                LineKind::Removed => b'-',
                _ => b' ',
            });
        }
        text.extend_from_slice(&line.bytes);
        text.push(b'\n');
    }
    text
}
