//! Availability: which commands the current screen offers, and why one cannot run now.

use super::command::{Command, CommandSpec, KeyContext};
use super::model::Model;
use super::screen::Screen;
use super::screens::agent::state::{AgentTab, MIN_SIDE_BY_SIDE_COLUMNS};
use super::screens::archives::state::{ArchivesPage, NO_ENTRY_REASON};
use super::screens::baseline_plan::state::{
    BEING_WRITTEN_REASON, BaselinePlanRequest, BaselinePlanStage,
};
use super::screens::baselines::state::NO_BASELINE_REASON;
use super::screens::editor::state::EditorDialog;
use super::screens::hosts::state::NO_HOSTS_REASON;
use super::screens::log::state::LogRow;
use super::screens::reset::state::{PlanRequest, PlanView, ResetStage};
use super::widgets::plan_pane::Confirmation;
use crate::console::keys::keymap::{KeyMeaning, is_typed};
use crate::engine::{Protection, SealMatch, UndoMode};

/// Returns the commands available in the current context. Omits the commands about hidden marks
/// unless the plan has some, and those about a push or an undo at other plans.
pub fn offered_commands(model: &Model) -> impl Iterator<Item = &'static CommandSpec> {
    let context = model.key_context();
    let keymap = &model.preferences.keymap;
    // A command of context `Any` is unreachable where the context binds all of its keys.
    let is_reachable = move |spec: &CommandSpec| {
        let keys = keymap.sequences(spec.command);
        let own_meaning = KeyMeaning::Command(spec.command);
        keys.is_empty()
            || keys.iter().any(|keys| {
                !is_typed(context, keys) && keymap.resolve(context, keys) == own_meaning
            })
    };
    let (has_hidden_marks, is_push) = match &model.reset.stage {
        ResetStage::Plan(view) => (
            !view.hidden_agents.is_empty(),
            matches!(view.request, PlanRequest::Push(..)),
        ),
        _ => (false, false),
    };
    keymap.command_specs().filter(move |spec| {
        let is_about_hidden_marks = matches!(
            spec.command,
            Command::KeepHiddenAgents | Command::DropHiddenAgents
        );
        let is_in_context = spec.contexts.contains(&context)
            || (spec.contexts.contains(&KeyContext::Any) && is_reachable(spec));
        let is_about_push = spec.command == Command::ChangeKeptScratch;
        let is_about_undo = spec.command == Command::PlanOtherUndo;
        is_in_context
            && (has_hidden_marks || !is_about_hidden_marks)
            && (is_push || !is_about_push)
            && (!is_about_undo || model.planned_undo_offer().is_some())
    })
}

/// Checks that a command can run now.
///
/// # Errors
/// The reason why not, for the operator.
pub fn check_enabled(command: Command, model: &Model) -> Result<(), String> {
    let agent = &model.agent;
    let is_agent_screen = model.screen == Screen::Agent;
    if model.read_only.is_forced && changes_baselines(command, model) {
        return model.read_only_reason().map_or(Ok(()), Err);
    }
    match command {
        Command::OpenSelected if model.key_context() == KeyContext::Retention => require(
            model.archives.page == ArchivesPage::Retention
                && model.archives.retention.current_group().is_some(),
            "no agent under the cursor",
        ),
        Command::OpenPager | Command::OpenSelected if model.screen == Screen::Archives => {
            if model.archives.timeline.is_open {
                return model.archives.chosen_entry().map(drop);
            }
            let has_relaxation =
                command == Command::OpenSelected && model.archives.current_relaxation().is_some();
            let has_row = model.archives.current_row().is_some();
            require(has_row || has_relaxation, NO_ENTRY_REASON)
        }
        Command::ControlTimer => model.timer_refusal().map_or(Ok(()), Err),
        Command::OpenSelected if model.key_context() == KeyContext::Schedule => {
            model.timer_refusal().map_or(Ok(()), Err)
        }
        Command::PlanPrune => model.prune_refusal().map_or(Ok(()), Err),
        Command::ShowTimeline => require(
            model.archives.current_row().is_some(),
            "no agent under the cursor",
        ),
        Command::PlanEntryRestore => {
            model.archives.chosen_entry()?;
            let reset_key = model.key_hint(Command::GoReset);
            require(
                !model.is_running(),
                format!("a run is in progress; {reset_key} shows it"),
            )
        }
        Command::ToggleMark
        | Command::MarkRange
        | Command::MarkAll
        | Command::ClearMarks
        | Command::PromoteLines
            if model.archives.page == ArchivesPage::Text && model.screen == Screen::Archives =>
        {
            check_archive_line(command, model)
        }
        Command::ExportEntry => model.archives.chosen_entry().map(drop),
        Command::CompareEntry | Command::ToggleMark if model.screen == Screen::Archives => {
            model.archives.chosen_entry().map(drop)
        }
        Command::TogglePin => {
            model.archives.chosen_entry()?;
            model.read_only_reason().map_or(Ok(()), Err)
        }
        Command::PlanSeal | Command::PlanRestore | Command::NewBaseline | Command::ReplaceText
            if model.is_writing_baselines() =>
        {
            Err(BEING_WRITTEN_REASON.to_string())
        }
        Command::PlanUndo if model.screen == Screen::Baselines && model.is_writing_baselines() => {
            Err(BEING_WRITTEN_REASON.to_string())
        }
        Command::PlanSeal
        | Command::PlanRestore
        | Command::OpenSelected
        | Command::CompareVersions
            if model.screen == Screen::Verify =>
        {
            require(
                model.verify_subject().is_some(),
                "the row is about no baseline",
            )
        }
        Command::OpenPager | Command::CopyAll if model.screen == Screen::Verify => {
            require(model.verify_report().is_some(), "no verification yet")
        }
        Command::ConfirmPlan | Command::NameSigningKey if model.screen == Screen::BaselinePlan => {
            check_baseline_plan(model, command)
        }
        Command::PlanUndo | Command::PlanSeal | Command::ReplaceText
            if model.screen == Screen::Baselines =>
        {
            require(model.baselines.subject().is_some(), NO_BASELINE_REASON)
        }
        Command::PlanReset
        | Command::PlanPush
        | Command::PlanUndo
        | Command::PlanRedo
        | Command::RetryFailed => check_plan_request(command, model),
        Command::ChangeKeptScratch => match &model.reset.stage {
            ResetStage::Plan(view) => require(
                matches!(view.request, PlanRequest::Push(..)),
                "only a push keeps scratch",
            ),
            _ => Err("no plan".to_string()),
        },
        Command::PlanRestore => model.restorable_version().map(drop),
        Command::ConfirmPlan
        | Command::UndoAppend
        | Command::UndoOverwrite
        | Command::KeepHiddenAgents
        | Command::DropHiddenAgents => match &model.reset.stage {
            ResetStage::Plan(view) => check_plan_command(command, view, model),
            _ if model.has_plan() => Err("the plan is not ready yet".to_string()),
            _ => Err("no plan".to_string()),
        },
        Command::NextHunk | Command::PreviousHunk => check_hunks(model),
        Command::NextHit | Command::PreviousHit
            if model.screen == Screen::Archives
                && model.archives.page != ArchivesPage::Comparison =>
        {
            let screen = &model.archives;
            let row = screen.current_row().filter(|_| !screen.timeline.is_open);
            let is_searched = screen.page.has_text() && !screen.pane().query.is_empty();
            let has_hits = is_searched || row.is_some_and(|row| row.hits().is_some());
            require(has_hits, "no hits: the query has no words")
        }
        Command::NextHit | Command::PreviousHit
            if model.has_text() && model.visible_pane().query.is_empty() =>
        {
            check_hunks(model)
        }
        Command::ToggleSideBySide => {
            check_comparison(model).and_then(|()| check_side_by_side(model))
        }
        Command::MoreContext | Command::LessContext | Command::ToggleIgnoreWhitespace => {
            check_comparison(model)
        }
        Command::ToggleWhitespaceMarks if is_agent_screen && agent.tab == AgentTab::Facts => {
            Err("facts are not file text; there is no whitespace to mark".to_string())
        }
        Command::ToggleFullScreen | Command::ToggleWrap | Command::ToggleWhitespaceMarks => {
            check_text_tab(model)
        }
        Command::Search if is_agent_screen => check_text_tab(model),
        Command::OpenSelected if is_agent_screen => check_history_record(model),
        Command::OpenSelected if model.key_context() == KeyContext::EditorDialog => {
            check_evidence(model)
        }
        Command::CompareVersions
        | Command::OpenSelected
        | Command::OpenVersions
        | Command::ToggleMark
            if model.screen == Screen::Baselines =>
        {
            require(model.baselines.subject().is_some(), NO_BASELINE_REASON)
        }
        Command::ClearMarks if model.screen == Screen::Baselines => {
            require(!model.baselines.marks.is_empty(), "no baselines marked")
        }
        Command::OpenDiff => match model.subject_agent() {
            Some(_) => Ok(()),
            None if model.has_plan() => Err("the plan is not ready yet".to_string()),
            None => Err(model.no_subject_reason()),
        },
        Command::ToggleMark | Command::MarkRange | Command::MarkAll if is_agent_screen => {
            check_line_cursor(model)
        }
        Command::PromoteLines => {
            check_line_cursor(model).and_then(|()| model.read_only_reason().map_or(Ok(()), Err))
        }
        Command::SaveMarkedLines => check_marked_lines(model),
        Command::ClearMarks if is_agent_screen => check_marked_lines(model),
        Command::GoAgent | Command::ToggleMark | Command::MarkRange => require(
            model.fleet.cursor_agent.is_some(),
            "no agent under the cursor",
        ),
        Command::EditBaseline => {
            let reason = match model.screen {
                Screen::Baselines => NO_BASELINE_REASON.to_string(),
                _ => model.no_subject_reason(),
            };
            require(model.subject_baseline().is_some(), reason)
        }
        Command::EditExternally => check_edit(model),
        Command::ConfirmSave
        | Command::ShowChanges
        | Command::MergeChanges
        | Command::TakeTheirs
        | Command::OverwriteFile
        | Command::RecoverDraft
        | Command::DiscardDraft => check_answer(command, model),
        Command::InsertText
        | Command::AppendText
        | Command::AppendToLine
        | Command::OpenLineBelow
        | Command::OpenLineAbove
        | Command::UndoTyping
        | Command::RedoTyping
        | Command::CutSelection
        | Command::CutChar
        | Command::CutLine
        | Command::PasteText
        | Command::FixFinding => {
            let editor = model.editor.as_ref();
            match editor.and_then(|editor| editor.read_only.as_ref()) {
                Some(why) => Err(format!("read-only: {why}")),
                None => Ok(()),
            }
        }
        Command::GoToTrouble => model.trouble_refusal().map_or(Ok(()), Err),
        Command::PlanOtherUndo => model.other_undo_refusal().map_or(Ok(()), Err),
        Command::UndoSave => require(model.undone_save().is_some(), no_save_reason(model)),
        Command::OpenPager if is_agent_screen && !agent.is_list() => {
            require(!agent.current_pane().lines.is_empty(), "no text yet")
        }
        Command::OpenPager => model.selected_entry().map(drop),
        Command::CopyLine | Command::CopyAll if is_agent_screen && agent.is_list() => {
            check_text_tab(model)
        }
        Command::CopyName
        | Command::CopyPath
        | Command::CopyDigest
        | Command::CopyLine
        | Command::CopyAll
        | Command::CopyCommand
        | Command::CopyPlan
        | Command::CopyScheduleLine => model.clipboard_text(command).map(drop),
        Command::CopyPatch => require(model.subject_agent().is_some(), model.no_subject_reason()),
        Command::AnswerQuestion => require(!model.questions.is_empty(), "no questions from hosts"),
        Command::ClearMarks => require(!model.fleet.marks.is_empty(), "no agents marked"),
        Command::GoReset => require(
            !matches!(model.reset.stage, ResetStage::Empty),
            format!(
                "no plan yet; {} makes one",
                model.key_hint(Command::PlanReset)
            ),
        ),
        Command::RetryHost => require(model.hosts.current_status().is_some(), NO_HOSTS_REASON),
        Command::GoToPreviousScreen => {
            require(model.previous_screen.is_some(), "no previous screen")
        }
        Command::ToggleReadOnly => require(
            !model.read_only.is_forced,
            "started with --read-only; quit and start without it",
        ),
        _ => Ok(()),
    }
}

/// Whether a command leads to nothing but a change of baselines.
fn changes_baselines(command: Command, model: &Model) -> bool {
    match command {
        Command::PlanSeal
        | Command::PlanRestore
        | Command::NewBaseline
        | Command::ReplaceText
        | Command::NameSigningKey
        | Command::UndoSave => true,
        Command::PlanUndo => model.screen == Screen::Baselines,
        _ => false,
    }
}

/// Checks that a command of a plan over baselines can run now.
///
/// # Errors
/// The reason why not.
pub fn check_baseline_plan(model: &Model, command: Command) -> Result<(), String> {
    let view = match &model.baseline_plan.stage {
        BaselinePlanStage::Plan(view) => view,
        BaselinePlanStage::Applying(_) => return Err(BEING_WRITTEN_REASON.to_string()),
        _ => return Err("the plan is not ready yet".to_string()),
    };
    let is_seal = matches!(view.request, BaselinePlanRequest::Seal { .. });
    match command {
        Command::NameSigningKey if !is_seal => Err("only a seal is signed".to_string()),
        Command::NameSigningKey => Ok(()),
        _ => {
            if let Some(why) = &view.prompt.refusal {
                return Err(why.clone());
            }
            match &view.prompt.confirmation {
                Confirmation::NothingToRun => Err("nothing to write".to_string()),
                Confirmation::TypedText(_) => {
                    Err("type the words to confirm this plan".to_string())
                }
                _ => model.read_only_reason().map_or(Ok(()), Err),
            }
        }
    }
}

/// Returns why the record under the cursor has no save to undo, and which keys undo its run.
fn no_save_reason(model: &Model) -> String {
    let row = match model.screen {
        Screen::Log => model.log.rows().into_iter().nth(model.log.cursor),
        _ => None,
    };
    match row {
        Some(LogRow::Run(run)) if run.undoable_agents().next().is_some() => {
            let [open, undo] =
                [Command::OpenSelected, Command::PlanUndo].map(|it| model.key_hint(it));
            format!("no save of a baseline: {open} opens the run, {undo} there undoes it")
        }
        _ => "no save of a baseline to undo here".to_string(),
    }
}

fn require(condition: bool, reason: impl Into<String>) -> Result<(), String> {
    if condition {
        Ok(())
    } else {
        Err(reason.into())
    }
}

fn check_plan_request(command: Command, model: &Model) -> Result<(), String> {
    let reset_key = model.key_hint(Command::GoReset);
    require(
        !model.is_running(),
        format!("a run is in progress; {reset_key} shows it"),
    )?;
    if command == Command::RetryFailed {
        return model.retry_request().map(drop);
    }
    let reason = match (model.key_context(), command) {
        (KeyContext::Result, Command::PlanUndo) => "nothing to undo in this run",
        (KeyContext::Baselines, _) if model.baselines.subject().is_some() => {
            "no agent uses this baseline"
        }
        _ => "no agent to act on",
    };
    let has_own_act = match (model.key_context(), command) {
        (KeyContext::Fleet, Command::PlanUndo) => !model.undo_offers().is_empty(),
        (KeyContext::Fleet, Command::PlanRedo) => !model.redo_offers().is_empty(),
        _ => false,
    };
    require(model.has_target_agents() || has_own_act, reason)
}

/// Checks that the cursor is on a line of the scratch.
fn check_line_cursor(model: &Model) -> Result<(), String> {
    let agent = &model.agent;
    if agent.tab != AgentTab::Scratch {
        let keys = scratch_tab_keys(model);
        return Err(format!(
            "lines are marked in the scratch tab; {keys} goes there"
        ));
    }
    let key = model.key_hint(Command::ToggleFullScreen);
    require(
        agent.has_line_cursor(),
        format!("lines are not marked in full screen; {key} leaves it"),
    )?;
    let line = agent.scratch.lines.get(agent.scratch.cursor_line);
    require(
        line.is_some_and(|line| line.new_number.is_some()),
        "the cursor is not on a line of the scratch",
    )
}

/// Checks a command about lines of a text of the archives.
fn check_archive_line(command: Command, model: &Model) -> Result<(), String> {
    let screen = &model.archives;
    match command {
        Command::ClearMarks => require(!screen.text.marked_lines.is_empty(), "no marked lines"),
        Command::PromoteLines => {
            require(
                model.subject_baseline().is_some(),
                "the agent left the config, and no baseline is its own",
            )?;
            require(
                !screen.chosen_lines().is_empty(),
                "no line under the cursor",
            )?;
            model.read_only_reason().map_or(Ok(()), Err)
        }
        _ => require(screen.is_text_current(), "no text yet"),
    }
}

/// Returns the key that leads to the scratch tab, and how often it is pressed: `S-Tab twice`.
fn scratch_tab_keys(model: &Model) -> String {
    let tab = model.agent.tab;
    let count = AgentTab::ALL.len();
    let steps = (0..count).find(|by| tab.cycle(*by) == AgentTab::Scratch);
    let forward = steps.unwrap_or(0);
    let (key, presses) = if forward <= count - forward {
        (Command::NextTab, forward)
    } else {
        (Command::PreviousTab, count - forward)
    };
    let key = model.key_hint(key);
    match presses {
        ..=1 => key,
        2 => format!("{key} twice"),
        presses => format!("{key} {presses} times"),
    }
}

/// Checks that lines of the agent on the screen are marked.
fn check_marked_lines(model: &Model) -> Result<(), String> {
    let marked = model.agent.marked_lines_of(&model.agent.agent);
    let key = model.key_hint(Command::ToggleMark);
    require(
        marked.is_some(),
        format!("no marked lines; {key} in the scratch tab marks one"),
    )
}

/// Checks a command that confirms or changes the plan on the screen.
fn check_plan_command(command: Command, view: &PlanView, model: &Model) -> Result<(), String> {
    let key = |command| model.key_hint(command);
    let has_hidden_agents = !view.hidden_agents.is_empty();
    match (command, &view.prompt.confirmation) {
        (Command::KeepHiddenAgents | Command::DropHiddenAgents, _) => {
            require(has_hidden_agents, "the filter hides no marked agent")
        }
        (Command::ConfirmPlan, _) if model.read_only.is_forced => {
            model.read_only_reason().map_or(Ok(()), Err)
        }
        _ if has_hidden_agents => Err(model.hidden_agents_refusal()),
        (_, Confirmation::NothingToRun) => Err("nothing to run".to_string()),
        (Command::ConfirmPlan, Confirmation::SingleKey) => {
            model.read_only_reason().map_or(Ok(()), Err)
        }
        (Command::ConfirmPlan, Confirmation::TypedText(_)) => {
            Err("type the words to confirm this plan".to_string())
        }
        (Command::ConfirmPlan, Confirmation::NewerNotes) => {
            let overwrite = key(Command::UndoOverwrite);
            Err(if view.offers_undo_mode(UndoMode::Append) {
                let append = key(Command::UndoAppend);
                format!("the agent has written since: {append} appends, {overwrite} overwrites")
            } else {
                format!("the agent has written since: {overwrite} overwrites")
            })
        }
        (Command::UndoAppend, _) if view.plan.undo_choices() == [UndoMode::Overwrite] => {
            Err(format!(
                "before the run there was no file to append to; {} archives the new notes",
                key(Command::UndoOverwrite)
            ))
        }
        _ => require(
            !view.plan.undo_choices().is_empty(),
            "no agent of this plan has written since",
        ),
    }
}

/// Checks that the agent screen shows a diff with hunks.
fn check_hunks(model: &Model) -> Result<(), String> {
    require(model.is_comparison(), "hunks are on the Diff tab")?;
    let reason = match (model.screen, model.agent.tab) {
        (Screen::Agent, AgentTab::Diff) => "no hunks: nothing above the separator differs",
        _ => "no hunks: nothing differs",
    };
    require(!model.visible_pane().hunks.is_empty(), reason)
}

/// Checks that the agent screen shows a diff.
fn check_comparison(model: &Model) -> Result<(), String> {
    let key = model.key_hint(Command::NextTab);
    require(
        model.has_diff_options(),
        format!("no diff on this tab; {key} switches tabs"),
    )
}

fn check_side_by_side(model: &Model) -> Result<(), String> {
    let key = model.key_hint(Command::ToggleFullScreen);
    require(
        model.screen != Screen::Agent || !model.agent.is_full_screen,
        format!("not side by side in full screen; {key} leaves it"),
    )?;
    let columns = model.size.0;
    require(
        columns >= MIN_SIDE_BY_SIDE_COLUMNS,
        format!(
            "side by side needs {MIN_SIDE_BY_SIDE_COLUMNS} columns; the terminal has {columns}"
        ),
    )
}

/// Checks that the agent screen shows a text.
fn check_text_tab(model: &Model) -> Result<(), String> {
    let key = model.key_hint(Command::OpenSelected);
    require(
        model.has_text(),
        format!("this tab is a list; {key} opens a text"),
    )
}

/// Checks that a record of the history is under the cursor.
fn check_history_record(model: &Model) -> Result<(), String> {
    if model.agent.tab == AgentTab::Baseline {
        return Ok(());
    }
    require(
        model.agent.is_list(),
        "only records of the history open here",
    )?;
    require(
        model.agent.history.current_record().is_some(),
        "no record yet",
    )
}

/// Checks that the editor shows what a save said of a baseline that is not sealed.
fn check_evidence(model: &Model) -> Result<(), String> {
    let is_unsealed_save = model.editor.as_ref().is_some_and(|it| {
        matches!(it.dialog, Some(EditorDialog::Message(_)))
            && matches!(
                it.opened.seal,
                SealMatch::SavedHere(_) | SealMatch::Mismatch(_)
            )
    });
    require(is_unsealed_save, "not an answer to this question")
}

/// Checks a command that answers the question of the editor.
fn check_answer(command: Command, model: &Model) -> Result<(), String> {
    let dialog = model.editor.as_ref().and_then(|it| it.dialog.as_ref());
    let is_offered = match dialog {
        Some(EditorDialog::Save(dialog)) => {
            command == Command::ConfirmSave && dialog.diff.is_some() && !dialog.is_saving
        }
        Some(EditorDialog::Draft { .. }) => matches!(
            command,
            Command::ShowChanges | Command::RecoverDraft | Command::DiscardDraft
        ),
        Some(EditorDialog::Changed { disk, .. }) => match command {
            Command::MergeChanges | Command::TakeTheirs => {
                let is_editable = model
                    .editor
                    .as_ref()
                    .is_some_and(|it| it.whole_text.is_none());
                disk.bytes().is_some() && is_editable
            }
            _ => matches!(command, Command::ShowChanges | Command::OverwriteFile),
        },
        Some(EditorDialog::Message(_)) | None => false,
    };
    require(is_offered, "not an answer to this question")
}

/// Checks that the baseline of the agent under the cursor may be edited.
fn check_edit(model: &Model) -> Result<(), String> {
    let agent = model
        .subject_agent()
        .ok_or_else(|| model.no_subject_reason())?;
    let observation = model
        .find_row(agent)
        .and_then(|row| row.latest_observation());
    let protected = observation.is_some_and(|seen| seen.protection == Protection::ReadOnly);
    let is_modified = model.editor.as_ref().is_some_and(|it| it.is_modified);
    require(
        !is_modified,
        "the editor has changes that are not saved: save or leave it first",
    )?;
    require(
        !protected || model.is_unlocked(),
        format!("agent is protected as read-only; {}", model.unlock_hint()),
    )?;
    model.read_only_reason().map_or(Ok(()), Err)
}
