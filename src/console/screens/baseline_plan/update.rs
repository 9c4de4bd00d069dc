//! What the screen of a plan over baselines does: asks for what the plan needs, requests it, shows
//! it, replaces it when it expires, and applies it once it is confirmed.

use std::sync::Arc;

use crate::base::error::Error;
use crate::console::command::{Command, require};
use crate::console::message::Effect;
use crate::console::model::Model;
use crate::console::model::read_only::{
    check_started_writable, check_writable, is_unlocked, unlock_hint,
};
use crate::console::model::targets::{restorable_version, subject_baseline, target_baselines};
use crate::console::model::undo_offers::planned_undo_offer;
use crate::console::model::visible_text::{scroll_text, text_height};
use crate::console::screen::Screen;
use crate::console::screens::baseline_plan::state::{
    AppliedBaselinePlan, BEING_WRITTEN_REASON, BaselineChangePlan, BaselinePlanRequest,
    BaselinePlanRow, BaselinePlanView, BaselinePrompt, PreparedBaselinePlan,
};
use crate::console::screens::baselines;
use crate::console::screens::baselines::view::describe_owner;
use crate::console::screens::verify::state::VerifyStage;
use crate::console::text::{PreparedText, TextLine};
use crate::console::widgets::list_pane::ListPane;
use crate::console::widgets::plan_pane::{Confirmation, PlanChange, PlanPrompt, PlanStage};
use crate::console::widgets::prompt::{Prompt, PromptPurpose};
use crate::engine::{BaselineState, Protection, TextReplacement};

/// Text that a new baseline begins with, in the engine's words.
const TEMPLATE_SOURCE: &str = "template";

/// Returns the plan on the screen, if it can be changed or confirmed.
fn ready_plan(model: &Model) -> Result<&BaselinePlanView, String> {
    let plan = &model.baseline_plan.plan;
    require(plan.applying().is_none(), BEING_WRITTEN_REASON)?;
    plan.check_shown()
}

/// Checks that the plan is a seal, which can be signed.
pub fn check_signing(model: &Model) -> Result<(), String> {
    check_started_writable(model)?;
    let is_seal = matches!(ready_plan(model)?.request, BaselinePlanRequest::Seal { .. });
    require(is_seal, "only a seal is signed")
}

/// Checks that a key confirms the plan.
pub fn check_confirmation(model: &Model) -> Result<(), String> {
    let prompt = &ready_plan(model)?.prompt;
    if let Some(why) = &prompt.refusal {
        return Err(why.clone());
    }
    match &prompt.confirmation {
        Confirmation::NothingToRun => Err("nothing to write".to_string()),
        Confirmation::TypedText(_) => Err("type the words to confirm this plan".to_string()),
        _ => check_writable(model),
    }
}

/// Requests the plan of a seal for the marked baselines, or the one that the screen is about.
pub fn plan_seal(model: &mut Model) -> Vec<Effect> {
    let names = target_baselines(model);
    let is_all = names.len() > 1 && names.len() == model.baselines.summaries().len();
    let request = BaselinePlanRequest::Seal {
        names,
        is_all,
        key: None,
    };
    request_plan(model, request, false)
}

/// Requests the plan that puts a version back.
pub fn plan_restore(model: &mut Model) -> Result<Vec<Effect>, String> {
    let version = restorable_version(model)?;
    Ok(plan_restore_of(model, version))
}

/// Requests the plan that takes a change of baselines back.
pub fn plan_undo(model: &mut Model, names: Vec<String>, version: String) -> Vec<Effect> {
    let request = BaselinePlanRequest::Restore { names, version };
    request_plan(model, request, false)
}

fn plan_restore_of(model: &mut Model, version: String) -> Vec<Effect> {
    let names = target_baselines(model);
    if names.is_empty() {
        return Vec::new();
    }
    request_plan(
        model,
        BaselinePlanRequest::Restore { names, version },
        false,
    )
}

/// Opens the input line for the name of a new baseline: at first that of the one under the cursor, if
/// its file is missing.
pub fn prompt_new_name(model: &mut Model) {
    open_name_prompt(
        model,
        missing_subject(model).unwrap_or_default().to_string(),
        TEMPLATE_SOURCE.to_string(),
    );
}

/// Returns the baseline under the cursor, if its file is missing.
fn missing_subject(model: &Model) -> Option<&str> {
    let summary = model.baselines.find(model.baselines.subject()?)?;
    (summary.state == BaselineState::Missing).then_some(summary.name.as_str())
}

/// Opens the input line for the name of a new baseline, with a name that was refused, if there is one.
fn open_name_prompt(model: &mut Model, name: String, source: String) {
    let other_source = if source == TEMPLATE_SOURCE {
        let subject = subject_baseline(model).filter(|_| missing_subject(model).is_none());
        subject.map(str::to_string)
    } else {
        Some(TEMPLATE_SOURCE.to_string())
    };
    let prompt = BaselinePrompt::NewName {
        source,
        other_source,
    };
    model.input_line = Some(Prompt::with_text(PromptPurpose::Baseline(prompt), name));
}

/// Opens the input line for the text to find.
pub fn prompt_pattern(model: &mut Model) {
    let prompt = BaselinePrompt::Pattern {
        names: target_baselines(model),
        is_regex: false,
    };
    open_prompt(model, prompt);
}

/// Opens the input line for the file of the signing key.
pub fn prompt_signing_key(model: &mut Model) {
    let purpose = PromptPurpose::Baseline(BaselinePrompt::SigningKey);
    let key = model.baseline_plan.signing_key.clone();
    model.input_line = Some(Prompt::prefilled(purpose, key));
}

fn open_prompt(model: &mut Model, prompt: BaselinePrompt) {
    model.input_line = Some(Prompt::new(PromptPurpose::Baseline(prompt)));
}

pub fn finish_prompt(
    model: &mut Model,
    prompt: BaselinePrompt,
    text: String,
    is_prefilled: bool,
) -> Vec<Effect> {
    let is_deletion = matches!(prompt, BaselinePrompt::Replacement { .. });
    if text.is_empty() && !is_deletion {
        model.show_hint("nothing was typed");
        return Vec::new();
    }
    let request = match prompt {
        BaselinePrompt::NewName { source, .. } => {
            BaselinePlanRequest::Create { name: text, source }
        }
        BaselinePrompt::Pattern { names, is_regex } => {
            let pattern = TextReplacement {
                pattern: text.clone(),
                is_regex,
                ..TextReplacement::default()
            };
            if let Err(error) = pattern.check_pattern() {
                model.show_hint(&error.to_line());
                let prompt = BaselinePrompt::Pattern { names, is_regex };
                model.input_line = Some(Prompt::with_text(PromptPurpose::Baseline(prompt), text));
                return Vec::new();
            }
            let next = BaselinePrompt::Replacement {
                names,
                pattern: text,
                is_regex,
            };
            open_prompt(model, next);
            return Vec::new();
        }
        BaselinePrompt::Replacement {
            names,
            pattern,
            is_regex,
        } => BaselinePlanRequest::Replace {
            names,
            replacement: TextReplacement {
                pattern,
                replacement: text,
                is_regex,
            },
        },
        // The line stays open until the file has been read.
        BaselinePrompt::SigningKey => {
            let key = text.clone();
            model.input_line = Some(Prompt {
                is_prefilled,
                ..Prompt::with_text(PromptPurpose::Baseline(prompt), text)
            });
            return vec![Effect::CheckSigningKey(key)];
        }
    };
    request_plan(model, request, false)
}

/// Requests the plan that a key signs, or says why the key cannot sign; then the line stays open. A
/// line that has changed since counts as another one.
pub fn handle_key_checked(
    model: &mut Model,
    key: String,
    checked: Result<(), Error>,
) -> Vec<Effect> {
    let is_awaited = model.input_line.as_ref().is_some_and(|it| {
        let purpose = &it.purpose;
        it.text == key && matches!(purpose, PromptPurpose::Baseline(BaselinePrompt::SigningKey))
    });
    if !is_awaited {
        return Vec::new();
    }
    model.is_dirty = true;
    if let Err(error) = checked {
        if model.baseline_plan.signing_key == key {
            model.baseline_plan.signing_key.clear();
        }
        model.show_hint(&error.to_line());
        return Vec::new();
    }
    model.input_line = None;
    let Some(view) = model.baseline_plan.view() else {
        model.show_hint("the plan to sign was closed");
        return Vec::new();
    };
    let BaselinePlanRequest::Seal { names, is_all, .. } = view.request.clone() else {
        return Vec::new();
    };
    model.baseline_plan.signing_key.clone_from(&key);
    let request = BaselinePlanRequest::Seal {
        names,
        is_all,
        key: Some(key),
    };
    request_plan(model, request, false)
}

/// Requests a plan. A replan replaces the plan on the screen once it is made; any other request
/// goes to the screen of the plan.
pub fn request_plan(
    model: &mut Model,
    request: BaselinePlanRequest,
    is_replan: bool,
) -> Vec<Effect> {
    let screen = &mut model.baseline_plan;
    let id = screen.plan.begin(&request, is_replan);
    model.is_dirty = true;
    if !is_replan {
        screen.list = ListPane::default();
        model.key_guards.plan.restart(model.now.elapsed);
        if model.screen != Screen::BaselinePlan {
            screen.plan.opened_from = model.screen;
        }
        model.go_to_screen(Screen::BaselinePlan);
    }
    vec![Effect::MakeBaselinePlan(id, request)]
}

/// Leaves the plan and goes back to where it was requested.
pub fn abandon_plan(model: &mut Model) {
    model.baseline_plan.plan.end();
    model.is_dirty = true;
    if model.screen == Screen::BaselinePlan {
        model.go_to_screen(model.baseline_plan.plan.opened_from);
    }
}

/// Shows the requested plan. An equal one keeps the confirmation typed so far.
pub fn handle_plan(model: &mut Model, id: u64, plan: Result<Box<PreparedBaselinePlan>, Error>) {
    let Some(request) = model.baseline_plan.plan.accept(id) else {
        return;
    };
    model.is_dirty = true;
    let prepared = match plan {
        Ok(prepared) => *prepared,
        Err(error) => {
            model.report_error(error.to_line());
            let message = model.last_message.take();
            abandon_plan(model);
            if let BaselinePlanRequest::Create { name, source } = request {
                open_name_prompt(model, name, source);
            }
            model.last_message = message;
            return;
        }
    };
    let confirmation = required_confirmation(model, &request, &prepared);
    let prompt = PlanPrompt {
        refusal: key_refusal(model, &prepared)
            .or_else(|| prepared.refusal.clone())
            .or_else(|| protection_refusal(model, &prepared)),
        ..PlanPrompt::new(confirmation, model.now.elapsed)
    };
    let shown = BaselinePlanView {
        request,
        plan: prepared,
        prompt,
    };
    let plan = &mut model.baseline_plan.plan;
    let change = plan.show(shown, |old, new| old.change == new.change);
    if change == PlanChange::Other {
        model.report_warning("plan refreshed: its files have changed");
    }
    // The operator may be reading it.
    if matches!(change, PlanChange::New | PlanChange::Other) {
        show_current_row(model);
    }
}

/// Returns what confirms a plan: for one file whose change was made here a key, else typed words.
fn required_confirmation(
    model: &Model,
    request: &BaselinePlanRequest,
    prepared: &PreparedBaselinePlan,
) -> Confirmation {
    let rows = &prepared.rows;
    let is_signature = matches!(request, BaselinePlanRequest::Seal { key: Some(_), .. });
    let is_typed = rows
        .iter()
        .any(|row| row.is_foreign || row.replaces_foreign || !row.lint_errors.is_empty())
        || rows
            .iter()
            .any(|row| has_protection(model, &row.agents, Protection::Typed));
    match rows.len() {
        0 if is_signature => Confirmation::SingleKey,
        0 => Confirmation::NothingToRun,
        1 if !is_typed => Confirmation::SingleKey,
        count => Confirmation::TypedText(format!("{} {count}", request.verb())),
    }
}

fn has_protection(model: &Model, agents: &[String], protection: Protection) -> bool {
    let mut rows = agents.iter().filter_map(|name| model.find_row(name));
    rows.any(|row| row.protection() == protection)
}

/// Says that a plan needs a key to sign with, if it does.
fn key_refusal(model: &Model, prepared: &PreparedBaselinePlan) -> Option<String> {
    let key = model.key_hint(Command::NameSigningKey);
    let why = "a seal without a signature is refused here";
    let needs_key = prepared.needs_key;
    needs_key.then(|| format!("{why}; {key} names the key that signs it"))
}

/// Returns why a plan is refused because an agent of a baseline is protected, if it is.
fn protection_refusal(model: &Model, prepared: &PreparedBaselinePlan) -> Option<String> {
    if is_unlocked(model) {
        return None;
    }
    let agents = prepared.rows.iter().flat_map(|row| &row.agents);
    let is_protected =
        |name: &&String| has_protection(model, std::slice::from_ref(*name), Protection::ReadOnly);
    let name = agents.into_iter().find(is_protected)?;
    let hint = unlock_hint(model);
    Some(format!(
        "{name} has this baseline and is protected as read-only; {hint}"
    ))
}

/// Applies the confirmed plan; an expired one is made again instead.
pub fn apply_plan(model: &mut Model) -> Vec<Effect> {
    let PlanStage::Plan(view) = model.baseline_plan.plan.end() else {
        return Vec::new();
    };
    let plan = Arc::clone(&view.plan.change);
    if let BaselineChangePlan::Files {
        is_resealed: false, ..
    } = *plan
    {
        let agents = view.plan.rows.iter().flat_map(|row| &row.agents);
        model.trouble.expect_unsealed(agents, model.now.local_time);
    }
    // After a change the next step is to seal the same baselines, or to push them.
    let is_change = matches!(
        view.request,
        BaselinePlanRequest::Replace { .. } | BaselinePlanRequest::Seal { .. }
    );
    if !is_change {
        for row in &view.plan.rows {
            model.baselines.marks.remove(&row.name);
        }
    }
    model.baseline_plan.has_quit = false;
    model.baseline_plan.plan.stage = PlanStage::Applying(view);
    model.is_dirty = true;
    vec![Effect::ApplyBaselinePlan(plan)]
}

/// Reports what was written, goes back, and reads what it concerns again.
pub fn handle_applied(
    model: &mut Model,
    applied: Result<AppliedBaselinePlan, Error>,
) -> Vec<Effect> {
    let is_undo = planned_undo_offer(model).is_some();
    let view = match model.baseline_plan.plan.end() {
        PlanStage::Applying(view) => Some(view),
        _ => None,
    };
    if let VerifyStage::Done(result) = &mut model.verify.stage {
        result.is_outdated = true;
    }
    let mut effects = vec![Effect::LoadLog];
    match applied {
        Ok(applied) => {
            if applied.failures.is_empty() {
                let next = view.and_then(|view| next_step(model, &view, &applied));
                let text = format!("{}{}", applied.summary, next.unwrap_or_default());
                model.report_info(text);
            } else {
                let failures = applied.failures.join("; ");
                let text = format!("{}; not written: {failures}", applied.summary);
                model.report_error(text);
            }
            model.log.remember_change(applied.runs, is_undo);
            if let Some(name) = applied.created {
                model.baselines.list_pane.key = Some(name);
            }
            effects.push(Effect::ReadAgents(applied.agents));
        }
        Err(error) => {
            let why = error.to_line();
            model.report_error(why.clone());
            // What was chosen and typed is not lost: another key may sign.
            if let Some(mut view) = view {
                view.prompt = PlanPrompt {
                    refusal: Some(why),
                    ..PlanPrompt::new(view.prompt.confirmation, model.now.elapsed)
                };
                model.baseline_plan.plan.stage = PlanStage::Plan(view);
                return effects;
            }
        }
    }
    if model.screen == Screen::BaselinePlan {
        let message = model.last_message.take();
        model.go_to_screen(model.baseline_plan.plan.opened_from);
        model.last_message = message;
    }
    if model.screen == Screen::Baselines {
        effects.extend(baselines::update::reload(model));
    } else {
        effects.push(Effect::LoadBaselines);
    }
    model.is_dirty = true;
    effects
}

/// Names the key that gets a changed baseline to its agents, where they can have it at once.
fn next_step(
    model: &Model,
    view: &BaselinePlanView,
    applied: &AppliedBaselinePlan,
) -> Option<String> {
    let is_sealed = match &*view.plan.change {
        BaselineChangePlan::Seal(..) => true,
        BaselineChangePlan::Files { is_resealed, .. } => *is_resealed,
    };
    let is_on_list = model.baseline_plan.plan.opened_from == Screen::Baselines;
    let is_used = !applied.agents.is_empty();
    let key = model.key_hint(Command::PlanPush);
    (is_sealed && is_on_list && is_used).then(|| format!("; {key} plans the push"))
}

/// Moves the cursor by a row; scrolls the difference otherwise, and where there is only one file.
pub fn move_cursor(model: &mut Model, by: isize) {
    if by.abs() > 1 || model.baseline_plan.rows().len() < 2 {
        return scroll_text(model, by);
    }
    let screen = &mut model.baseline_plan;
    screen.list = screen.list.stepped(by, screen.rows());
    show_current_row(model);
}

/// Shows the row under the cursor: what must not be overlooked about it, then its difference.
fn show_current_row(model: &mut Model) {
    let mut text = PreparedText::default();
    let mut notes = Vec::new();
    if let Some(row) = model.baseline_plan.current_row() {
        text = row.text.clone();
        notes = row_notes(model, row);
    }
    let has_notes = !notes.is_empty();
    if let Some(lines) = &mut text.ignoring_whitespace {
        lines.splice(..0, notes.clone());
    }
    text.lines.splice(..0, notes);
    let pane = &mut model.baseline_plan.pane;
    pane.clear();
    pane.show(text);
    if !has_notes {
        let height = text_height(model);
        model.baseline_plan.pane.scroll_to_first_hunk(height);
    }
}

/// Returns what the plan accepts with a row, a line each: a change that was not made here, and each
/// error of the lint. The facts about the whole plan follow, because the line below the text is then
/// about the row.
fn row_notes(model: &Model, row: &BaselinePlanRow) -> Vec<TextLine> {
    let mut texts = Vec::new();
    if row.is_foreign {
        let owner = row.owner.map(|owner| describe_owner(model, owner));
        let owner = owner.unwrap_or_else(|| "the file is gone".to_string());
        let request = model.baseline_plan.view().map(|view| &view.request);
        texts.push(match request {
            Some(BaselinePlanRequest::Restore { .. }) => {
                "not all of this version was saved by this program".to_string()
            }
            Some(BaselinePlanRequest::Create { source, .. }) => {
                format!(
                    "not all of {source} was saved by this program: compare it with its seal first"
                )
            }
            Some(BaselinePlanRequest::Replace { .. }) => {
                "not all of the file was saved by this program: compare it with its seal first"
                    .to_string()
            }
            _ => format!("not all saved by this program: {owner}"),
        });
    }
    texts.extend(row.lint_errors.iter().map(|it| format!("lint error: {it}")));
    if texts.is_empty() {
        return Vec::new();
    }
    let view = model.baseline_plan.view();
    texts.extend(view.into_iter().flat_map(|it| it.plan.notes.clone()));
    texts.push(String::new());
    let note = |text| TextLine::note(text);
    texts.into_iter().map(note).collect()
}

/// Goes back one level: the plan is abandoned, unless it is being applied.
pub fn go_back(model: &mut Model) {
    if model.baseline_plan.plan.applying().is_some() {
        model.show_hint(BEING_WRITTEN_REASON);
    } else {
        abandon_plan(model);
    }
}
