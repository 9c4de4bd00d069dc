//! Performs commands: one arm each, which changes the model and returns effects.

use super::{handoff, plan, question, trouble, undo};
use crate::console::availability;
use crate::console::chooser;
use crate::console::command::Command;
use crate::console::keys::key::Key;
use crate::console::message::Effect;
use crate::console::model::Model;
use crate::console::overlay::{Chooser, Overlay};
use crate::console::screen::Screen;
use crate::console::screens;
use crate::console::screens::agent::state::AgentTab;
use crate::console::screens::baselines::state::ComparedVersion;
use crate::console::screens::reset::state::PlanRequest;
use crate::console::screens::{
    agent, archives, baseline_plan, baselines, editor, fleet, hosts, log, reset, verify,
};
use crate::console::widgets::prompt::{Prompt, PromptPurpose};
use crate::engine::UndoMode;

/// Performs a command that `key` triggered, or shows why it cannot run now.
pub fn perform_command(model: &mut Model, command: Command, key: Key) -> Vec<Effect> {
    if let Err(why) = availability::check_enabled(command, model) {
        model.show_hint(&why);
        return Vec::new();
    }
    model.is_dirty = true;
    if model.screen == Screen::Editor
        && let Some(effects) = editor::update::perform_counted(model, command)
    {
        return effects;
    }
    let page = screens::page_rows(model) as isize;
    match command {
        Command::Down => return screens::move_cursor(model, 1),
        Command::Up => return screens::move_cursor(model, -1),
        Command::HalfDown | Command::HalfUp | Command::PageDown | Command::PageUp
            if model.screen == Screen::Editor =>
        {
            return editor::update::move_page(model, command);
        }
        Command::Top | Command::Bottom if model.screen == Screen::Editor => {
            return editor::update::go_to_end(model, command == Command::Bottom);
        }
        Command::HalfDown => return screens::move_cursor(model, page / 2),
        Command::HalfUp => return screens::move_cursor(model, -page / 2),
        Command::PageDown => return screens::move_cursor(model, page),
        Command::PageUp => return screens::move_cursor(model, -page),
        Command::Top => return screens::move_cursor(model, isize::MIN / 2),
        Command::Bottom => return screens::move_cursor(model, isize::MAX / 2),
        Command::OpenSelected => return screens::open_selected(model),
        Command::GoBack => return screens::go_back(model, key),
        Command::GoToPreviousScreen => {
            let previous = model.previous_screen.unwrap_or(Screen::Fleet);
            return screens::return_to(model, previous);
        }
        Command::GoFleet => model.go_to_screen(Screen::Fleet),
        Command::GoToTrouble => return trouble::go_to_trouble(model),
        Command::PlanSeal => return baseline_plan::update::plan_seal(model),
        Command::PlanRestore => return baseline_plan::update::plan_restore(model),
        Command::NewBaseline => baseline_plan::update::prompt_new_name(model),
        Command::ReplaceText => baseline_plan::update::prompt_pattern(model),
        Command::NameSigningKey => baseline_plan::update::prompt_signing_key(model),
        Command::GoArchives => return archives::update::open(model),
        Command::CompareEntry => return archives::update::compare(model),
        Command::ChangeOrder => archives::update::change_order(model),
        Command::PlanEntryRestore => return archives::update::find_run(model),
        Command::TogglePin => return archives::update::toggle_pin(model),
        Command::ExportEntry => archives::update::prompt_export_path(model),
        Command::ShowRetention => return archives::update::retention::open(model),
        Command::PlanPrune => archives::update::retention::plan_prune(model),
        Command::ShowTimeline => return archives::update::timeline::open(model),
        Command::GoVerify => return verify::update::open(model),
        Command::VerifyNow => return verify::update::start(model),
        Command::GoBaselines => return baselines::update::open(model),
        Command::GoAgent if model.screen == Screen::Agent => {}
        Command::GoAgent => {
            let name = model.subject_agent().map(str::to_string);
            let name = name.or_else(|| model.fleet.cursor_agent.clone());
            return name.map_or_else(Vec::new, |name| agent::update::open_at_finding(model, name));
        }
        Command::GoReset => reset::update::open(model),
        Command::GoLog => return log::update::open(model),
        Command::GoHosts => return hosts::update::open(model),
        Command::RetryHost => return hosts::update::retry_host(model),
        Command::CompareVersions => return screens::open_selected(model),
        Command::OpenVersions => return baselines::update::open_versions(model),
        Command::NextVersion if model.screen == Screen::Archives => {
            return archives::update::cycle_comparison(model, 1);
        }
        Command::PreviousVersion if model.screen == Screen::Archives => {
            return archives::update::cycle_comparison(model, -1);
        }
        Command::NextVersion => return baselines::update::cycle_old_side(model, 1),
        Command::PreviousVersion => {
            let by = ComparedVersion::COMMON.len() - 1;
            return baselines::update::cycle_old_side(model, by);
        }
        Command::ChooseOldSide => return baselines::update::choose_side(model, "old "),
        Command::ChooseNewSide => return baselines::update::choose_side(model, "new "),
        Command::OpenDiff => {
            let name = model.subject_agent().map(str::to_string);
            return name.map_or_else(Vec::new, |name| {
                agent::update::open_tab(model, name, AgentTab::Diff)
            });
        }
        Command::NextAgent if model.screen == Screen::Baselines => {
            return baselines::update::open_neighbour(model, 1);
        }
        Command::PreviousAgent if model.screen == Screen::Baselines => {
            return baselines::update::open_neighbour(model, -1);
        }
        Command::NextAgent => return agent::update::open_neighbour(model, 1),
        Command::PreviousAgent => return agent::update::open_neighbour(model, -1),
        Command::NextTab | Command::PreviousTab if model.screen == Screen::Editor => {
            editor::update::cycle_panel(model, 1);
        }
        Command::NextTab | Command::PreviousTab if model.screen == Screen::Log => {
            log::update::schedule::toggle_focus(model);
        }
        Command::ControlTimer => log::update::schedule::open_dialog(model),
        Command::NextTab => return agent::update::cycle_tab(model, 1),
        Command::PreviousTab => {
            return agent::update::cycle_tab(model, AgentTab::ALL.len() - 1);
        }
        Command::ToggleWrap => model.text_options.is_wrapping ^= true,
        Command::ToggleSideBySide | Command::MoreContext | Command::LessContext => {
            agent::update::change_arrangement(model, command);
        }
        Command::ToggleIgnoreWhitespace => model.text_options.is_whitespace_ignored ^= true,
        Command::FoldReport => model.log.is_report_folded = !model.log.is_report_folded,
        Command::ToggleFullScreen => agent::update::toggle_full_screen(model),
        Command::ToggleWhitespaceMarks => model.text_options.is_whitespace_marked ^= true,
        Command::Search => {
            screens::begin_search(model);
        }
        Command::NextHit => screens::go_to_next_hit(model, true),
        Command::PreviousHit => screens::go_to_next_hit(model, false),
        Command::NextHunk => model.go_to_hunk(true),
        Command::PreviousHunk => model.go_to_hunk(false),
        Command::Filter if model.screen == Screen::Baselines => {
            baselines::update::begin_filter(model);
        }
        Command::Filter => {
            model.input_line = Some(Prompt {
                old: Some(std::mem::take(&mut model.fleet.filter)),
                ..Prompt::new(PromptPurpose::Filter)
            });
            fleet::update::set_filter(model, String::new());
        }
        Command::ToggleMark | Command::MarkRange | Command::MarkAll | Command::ClearMarks => {
            screens::change_marks(model, command);
        }
        Command::PromoteLines => {
            if model.screen == Screen::Agent {
                agent::update::remember_promoted_lines(model);
            }
            return editor::update::promote_lines(model);
        }
        Command::SaveMarkedLines => {
            model.input_line = Some(Prompt::new(PromptPurpose::SavePath));
        }
        Command::ChooseSortOrder => {
            chooser::open_chooser(model, Overlay::Palette(Chooser::with_query("sort ")));
        }
        Command::ReverseSortOrder => {
            model.reverse_visible_agents();
        }
        Command::ReadAgent => return read_agent(model),
        Command::ReadAllAgents => {
            model.report_info("reading all agents again");
            let names: Vec<String> = model.rows.iter().map(|row| row.name.clone()).collect();
            let ask = Effect::AllowQuestions(names.clone());
            let mut effects = vec![ask, Effect::ReadAgents(names), Effect::LoadLog];
            if model.screen == Screen::Baselines {
                effects.extend(baselines::update::reload(model));
            }
            archives::update::reload(model);
            effects.extend(log::update::schedule::refresh(model));
            return effects;
        }
        Command::PlanReset => {
            let request = PlanRequest::Reset(model.target_agents());
            return reset::update::request_plan(model, request, false);
        }
        Command::PlanPush => return reset::push::plan_push(model),
        Command::ChangeKeptScratch => return reset::push::change_kept_scratch(model),
        Command::RetryFailed => match model.retry_request() {
            Ok(request) => return reset::update::request_plan(model, request, false),
            Err(why) => model.show_hint(&why),
        },
        Command::PlanUndo | Command::UndoSave => return undo::plan_undo(model),
        Command::PlanRedo => return undo::plan_redo(model),
        Command::PlanOtherUndo => return undo::plan_other(model),
        Command::ConfirmPlan => return plan::confirm(model),
        Command::UndoAppend => {
            return reset::update::plan_undo_with_mode(model, UndoMode::Append);
        }
        Command::UndoOverwrite => {
            return reset::update::plan_undo_with_mode(model, UndoMode::Overwrite);
        }
        Command::KeepHiddenAgents => reset::update::keep_hidden_agents(model),
        Command::DropHiddenAgents => return reset::update::drop_hidden_agents(model),
        Command::CopyName
        | Command::CopyPath
        | Command::CopyDigest
        | Command::CopyLine
        | Command::CopyAll
        | Command::CopyCommand
        | Command::CopyPlan
        | Command::CopyScheduleLine => return handoff::copy_to_clipboard(model, command),
        Command::CopyPatch => return handoff::request_patch(model),
        Command::EditBaseline => return open_editor(model),
        Command::EditExternally => return handoff::request_edit(model),
        Command::CommandLine => {
            let prompt = Prompt {
                old: Some(String::new()),
                ..Prompt::new(PromptPurpose::EditorCommand)
            };
            model.input_line = model.editor.is_some().then_some(prompt);
        }
        Command::NextFinding => return editor::update::go_to_finding(model, true),
        Command::PreviousFinding => return editor::update::go_to_finding(model, false),
        Command::FixFinding => return editor::update::fix_finding(model),
        Command::ConfirmSave
        | Command::ShowChanges
        | Command::MergeChanges
        | Command::TakeTheirs
        | Command::OverwriteFile
        | Command::RecoverDraft
        | Command::DiscardDraft => return editor::update::perform_answer(model, command),
        Command::InsertText
        | Command::AppendText
        | Command::AppendToLine
        | Command::OpenLineBelow
        | Command::OpenLineAbove
        | Command::UndoTyping
        | Command::RedoTyping
        | Command::SelectText
        | Command::CutSelection
        | Command::CopySelection
        | Command::CutChar
        | Command::CutLine
        | Command::CopyTextLine
        | Command::PasteText
        | Command::CursorLeft
        | Command::CursorRight
        | Command::NextWord
        | Command::PreviousWord
        | Command::LineStart
        | Command::LineEnd => return editor::update::perform(model, command),
        Command::OpenPager => return handoff::open_pager(model),
        Command::AnswerQuestion => question::open_current_question(model),
        Command::ToggleReadOnly => toggle_read_only(model),
        Command::Extra => return vec![Effect::RunExtraCommand],
        Command::Help => chooser::open_chooser(model, Overlay::Help(Chooser::for_browsing())),
        Command::Palette => {
            chooser::open_chooser(model, Overlay::Palette(Chooser::with_query("")));
        }
        Command::Redraw => return vec![Effect::Redraw],
        Command::Suspend => {
            let draft = editor::update::keep_draft_now(model);
            return draft.into_iter().chain([Effect::Suspend]).collect();
        }
        Command::Quit if model.screen == Screen::Verify && model.verify.can_cancel() => {
            return verify::update::cancel(model);
        }
        Command::Quit => return plan::quit(model),
    }
    Vec::new()
}

/// Opens the baseline that a key is about.
fn open_editor(model: &mut Model) -> Vec<Effect> {
    let baseline = model.subject_baseline().map(str::to_string);
    baseline.map_or_else(Vec::new, |baseline| editor::update::open(model, baseline))
}

/// Reads the agent under the cursor or on the screen again, with its texts and its history.
fn read_agent(model: &mut Model) -> Vec<Effect> {
    model.report_info("reading again");
    let is_agent_screen = model.screen == Screen::Agent;
    let name = if is_agent_screen {
        Some(model.agent.agent.clone())
    } else {
        model.fleet.cursor_agent.clone()
    };
    let names: Vec<String> = name.into_iter().collect();
    let mut effects = vec![
        Effect::AllowQuestions(names.clone()),
        Effect::ReadAgents(names),
    ];
    if is_agent_screen {
        effects.push(Effect::PrepareTexts(model.agent.agent.clone()));
    }
    effects.extend(agent::update::request_tab(model));
    effects
}

fn toggle_read_only(model: &mut Model) {
    if model.read_only.is_on {
        model.overlay = Some(Overlay::UnlockReadOnly);
    } else {
        model.read_only.is_on = true;
        model.read_only.unlocked_until = None;
        let key = model.key_hint(Command::ToggleReadOnly);
        let what = "again turns it off and unlocks protected agents";
        model.report_info(format!("read-only; {key} {what}"));
    }
}
