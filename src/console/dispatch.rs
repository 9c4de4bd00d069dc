//! The checks and actions of commands: which ones the current screen offers, why one cannot run now,
//! and the effects of running it.

use super::command::KeyContext::{
    self, Agent, Any, ArchiveText, Archives, BaselinePlan, Baselines, Comparison, Editor,
    EditorDialog, EditorPanel, EntryDiff, Fleet, Hosts, Log, Retention, Schedule, Timeline, Verify,
    Versions,
};
use super::command::table::command_rows;
use super::command::{Command, CommandSpec, require};
use super::keys::key::Key;
use super::keys::keymap::{KeyMeaning, is_typed};
use super::message::Effect;
use super::model::Model;
use super::model::copied_text::clipboard_text;
use super::model::plans::check_baseline_planning;
use super::model::read_only::toggle_read_only;
use super::model::targets::{
    check_reset_targets, check_subject_baseline, check_subject_diff, check_target_agents,
    retry_request, selected_entry,
};
use super::model::trouble::check_trouble;
use super::model::undo_offers::{check_other_undo, planned_undo_offer};
use super::model::visible_text::{
    check_comparison, check_hits, check_hunks, check_side_by_side, check_text, go_to_hunk,
};
use super::overlay::Overlay;
use super::screens::baselines::state::ComparedVersion;
use super::screens::editor::buffer::TextBuffer;
use super::screens::editor::buffer::register::{copy_lines, cut_chars, cut_lines, paste_register};
use super::screens::editor::buffer::selection::{copy_selection, cut_selection, toggle_selection};
use super::screens::fleet::visible_agents::reverse_visible_agents;
use super::screens::{
    self, agent::update as agent, agent::update::memory, archives::update as archives,
    baseline_plan::update as baseline_plan, baselines::update as baselines,
    editor::update as editor, fleet::update as fleet, hosts::update as hosts, log::update as log,
    reset::update as reset, verify::update as verify,
};
use super::update::{handoff, plan, question, trouble, undo};
use crate::engine::UndoMode;

/// Returns the commands available in the current context, apart from those that are about something
/// that the screen does not have.
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
    keymap.command_specs().filter(move |spec| {
        let is_in_context = spec.contexts.contains(&context)
            || (spec.contexts.contains(&Any) && is_reachable(spec));
        is_in_context && is_offered(spec.command, model)
    })
}

/// Checks that a command can run now.
///
/// # Errors
/// The reason why not, for the operator.
pub fn check_enabled(command: Command, model: &Model) -> Result<(), String> {
    let context = model.key_context();
    let contexts = model.preferences.keymap.spec_of(command).contexts;
    let is_available = contexts.contains(&context) || contexts.contains(&Any);
    require(is_available, "not on this screen")?;
    check(command, context, model)
}

/// Conversion of an action's result to effects.
trait IntoEffects {
    fn into_effects(self, model: &mut Model) -> Vec<Effect>;
}

impl IntoEffects for () {
    fn into_effects(self, _: &mut Model) -> Vec<Effect> {
        Vec::new()
    }
}

impl IntoEffects for Option<Effect> {
    fn into_effects(self, _: &mut Model) -> Vec<Effect> {
        self.into_iter().collect()
    }
}

impl IntoEffects for Vec<Effect> {
    fn into_effects(self, _: &mut Model) -> Vec<Effect> {
        self
    }
}

/// A refused action only shows why.
impl<T: IntoEffects> IntoEffects for Result<T, String> {
    fn into_effects(self, model: &mut Model) -> Vec<Effect> {
        match self {
            Ok(done) => done.into_effects(model),
            Err(why) => {
                model.show_hint(&why);
                Vec::new()
            }
        }
    }
}

/// Defines the checks and actions of commands by the rows of their table.
macro_rules! define_actions {
    (|$model:ident, $command:ident, $key:ident| $(
        $name:ident $id:literal $hint:literal $category:ident $(/ $change:ident)?
        $contexts:expr, [$($keys:literal)*], $title:literal $(offered if ($offered:expr))?:
            $($context:pat $(if $check:expr)? => $action:expr),+;
    )*) => {
        /// Whether the screen has a subject for the command.
        fn is_offered($command: Command, $model: &Model) -> bool {
            match $command {
                $($(Command::$name => $offered,)?)*
                _ => true,
            }
        }

        /// Checks that the command can run now in a context of its own.
        fn check($command: Command, context: KeyContext, $model: &Model) -> Result<(), String> {
            match $command {
                $(Command::$name => match context { $($context => { $($check?;)? })+ },)*
                Command::Extra => {}
            }
            Ok(())
        }

        /// Performs the command in the current context.
        pub(super) fn perform($command: Command, $model: &mut Model, $key: Key) -> Vec<Effect> {
            match $command {
                $(Command::$name => match $model.key_context() {
                    $($context => $action.into_effects($model),)+
                },)*
                Command::Extra => vec![Effect::RunExtraCommand],
            }
        }
    };
}

command_rows!(define_actions);
