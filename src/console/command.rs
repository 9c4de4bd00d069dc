//! The data of commands: ids, titles, contexts and default keys. Keymap, footer, help, palette and the
//! key table of docs/console.md derive from their table.

pub(super) mod table;

use table::command_rows;

/// Defines the contexts of keys: each with its display name and its meaning.
macro_rules! key_contexts {
    ($($context:ident $label:literal $doc:literal,)*) => {
        /// Screen, or stage of a screen, in which a command is available.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum KeyContext { $(#[doc = $doc] $context,)* }

        impl KeyContext {
            /// All contexts.
            pub(super) const ALL: &[KeyContext] = &[$(KeyContext::$context,)*];

            /// Returns the display name, as docs and `memory-shepherd keys` show it.
            pub fn label(self) -> &'static str {
                match self { $(KeyContext::$context => $label,)* }
            }
        }
    };
}

// The first one cannot be left, and the second one has nothing to scroll.
key_contexts! {
    Any "everywhere" "All screens.",
    EditorTyping "editor's typing" "Editor, while keys type text.",
    Fleet "fleet" "Fleet screen.",
    Agent "agent" "Agent screen, all tabs.",
    Plan "plan" "Plan that waits for confirmation.",
    Run "run" "Run in progress.",
    Result "result" "Result of a run.",
    Log "log" "Log screen.",
    Schedule "schedule" "Log screen, while keys are for the schedule.",
    Hosts "hosts" "Hosts screen.",
    Baselines "baselines" "List of baselines.",
    Versions "versions" "Versions of a baseline.",
    Comparison "comparison" "Two versions of a baseline.",
    BaselinePlan "baseline plan" "Plan over baselines.",
    Verify "verify" "Verify screen.",
    Archives "archives" "Archives: what was found.",
    ArchiveText "archived text" "Archives: the text of an entry or a memory.",
    EntryDiff "entry diff" "Archives: an entry compared with another text.",
    Timeline "timeline" "Archives: what happened to one agent.",
    Retention "retention" "Archives: what retention deletes now, and why the rest stays.",
    PrunePlan "prune plan" "Archives: the plan to delete that.",
    Editor "editor" "Editor, while keys are commands.",
    EditorSelection "editor's selection" "Editor, while text is selected.",
    EditorPanel "editor's panel" "Panel of the editor.",
    EditorDialog "editor's questions" "Question of the editor: a save, a change on the disk, a draft.",
}

impl KeyContext {
    /// Whether digits are counts, and no keys of commands.
    pub fn takes_counts(self) -> bool {
        matches!(
            self,
            KeyContext::Editor
                | KeyContext::EditorSelection
                | KeyContext::EditorPanel
                | KeyContext::EditorDialog
        )
    }
}

/// Group of commands in help, in display order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CommandCategory {
    /// Resets, undos and edits.
    Actions,
    /// Reading, searching and copying.
    Viewing,
    /// Marks, filters and order.
    Selection,
    /// Moving the cursor and changing screens.
    Navigation,
    /// Everything else.
    General,
}

impl CommandCategory {
    /// Returns the id, as `memory-shepherd keys --json` writes it.
    pub fn id(self) -> &'static str {
        match self {
            CommandCategory::Actions => "act",
            CommandCategory::Viewing => "look",
            CommandCategory::Selection => "select",
            CommandCategory::Navigation => "move",
            CommandCategory::General => "program",
        }
    }

    /// Returns the heading in help.
    pub fn heading(self) -> &'static str {
        match self {
            CommandCategory::Actions => "Actions",
            CommandCategory::Viewing => "View",
            CommandCategory::Selection => "Selection",
            CommandCategory::Navigation => "Navigation",
            CommandCategory::General => "General",
        }
    }
}

/// One row of the command table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandSpec {
    /// The command.
    pub command: Command,
    /// Id, in the palette and in `[keys]` of the preferences.
    pub id: &'static str,
    /// One-line description, imperative, without a full stop.
    pub title: &'static str,
    /// Label in the footer; empty if the footer omits the command.
    pub hint: &'static str,
    /// Group in help.
    pub category: CommandCategory,
    /// Contexts in which the command is available.
    pub contexts: &'static [KeyContext],
    /// Default keys; the first one is displayed.
    pub keys: &'static [&'static str],
}

use KeyContext::{
    Agent, Any, ArchiveText, Archives, BaselinePlan, Baselines, Comparison, Editor, EditorDialog,
    EditorPanel, EditorSelection, EntryDiff, Fleet, Hosts, Log, Plan, PrunePlan, Result as Outcome,
    Retention, Run, Schedule, Timeline, Verify, Versions,
};

/// Contexts that can be left.
const LEAVABLE_CONTEXTS: &[KeyContext] = KeyContext::ALL.split_at(1).1;

/// Contexts with a list or a text to scroll.
const SCROLLABLE_CONTEXTS: &[KeyContext] = LEAVABLE_CONTEXTS.split_at(1).1;

/// Returns the row of a command of the table; [`crate::console::keys::keymap::Keymap::spec_of`] also knows an added
/// one.
pub fn spec_of(command: Command) -> &'static CommandSpec {
    // The variants have the order of the rows.
    COMMAND_TABLE
        .get(command as usize)
        .unwrap_or(&COMMAND_TABLE[0])
}

/// Returns the display names of a command's contexts.
pub fn context_labels(spec: &CommandSpec) -> Vec<&'static str> {
    if spec.contexts == SCROLLABLE_CONTEXTS || spec.contexts == LEAVABLE_CONTEXTS {
        vec![Any.label()]
    } else {
        spec.contexts.iter().map(|it| it.label()).collect()
    }
}

/// Returns a reason as an error unless a condition of a command holds.
pub(super) fn require(condition: bool, reason: impl Into<String>) -> Result<(), String> {
    if condition {
        Ok(())
    } else {
        Err(reason.into())
    }
}

/// How a command leads to changes of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangeKind {
    /// It requests a plan, which then waits for confirmation.
    Plan,
    /// It changes files itself, or leads to nothing but changes.
    Write,
}

/// Defines [`Command`], [`COMMAND_TABLE`] and [`change_kind`] by the rows of the table.
macro_rules! define_commands {
    (|$model:ident, $command:ident, $key:ident| $(
        $name:ident $id:literal $hint:literal $category:ident $(/ $change:ident)?
        $contexts:expr, [$($keys:literal)*], $title:literal $(offered if ($offered:expr))?:
            $($context:pat $(if $check:expr)? => $action:expr),+;
    )*) => {
        /// An operation that a key or the palette triggers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Command {
            $(#[doc = $title] $name,)*
            /// The command that the caller of the console adds; it has no row in the table.
            Extra,
        }

        /// All commands, in the order of help and of the footer.
        pub const COMMAND_TABLE: &[CommandSpec] = &[$(CommandSpec {
            command: Command::$name,
            id: $id,
            title: $title,
            hint: $hint,
            category: CommandCategory::$category,
            contexts: $contexts,
            keys: &[$($keys),*],
        }),*];

        /// Returns how a command leads to changes of files; none if it does not.
        fn change_kind(command: Command) -> Option<ChangeKind> {
            match command {
                $($(Command::$name => Some(ChangeKind::$change),)?)*
                _ => None,
            }
        }
    };
}

command_rows!(define_commands);

/// Whether a command requests a plan, which then waits for confirmation.
pub fn requests_plan(command: Command) -> bool {
    change_kind(command) == Some(ChangeKind::Plan)
}

/// Whether a command changes files, or leads to nothing but changes.
pub fn changes_files(command: Command) -> bool {
    change_kind(command).is_some()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn command_table_is_consistent() {
        let mut ids = HashSet::new();
        let mut commands = HashSet::new();
        for spec in COMMAND_TABLE {
            assert!(ids.insert(spec.id), "duplicate {}", spec.id);
            assert!(commands.insert(spec.command), "duplicate {}", spec.id);
            assert!(
                !spec.title.is_empty() && !spec.title.ends_with('.'),
                "{}",
                spec.id
            );
            // Help shows as much in 80 columns.
            assert!(spec.title.len() <= 60, "{}", spec.title);
            assert!(
                !spec.keys.is_empty() && !spec.contexts.is_empty(),
                "{}",
                spec.id
            );
            assert_eq!(super::spec_of(spec.command).id, spec.id);
        }
    }

    #[test]
    fn keys_are_unique_per_context() {
        for context in LEAVABLE_CONTEXTS.iter().copied().chain([Any]) {
            let mut seen: HashSet<&str> = HashSet::new();
            for spec in COMMAND_TABLE
                .iter()
                .filter(|spec| spec.contexts.contains(&context))
            {
                for key in spec.keys {
                    // At a plan, `h` keeps hidden marks and never goes back; in the editor, the
                    // first of two commands has the key.
                    let is_shared = match (context, spec.command) {
                        (Plan, Command::GoBack) => *key == "h",
                        (Editor | EditorSelection, Command::GoBack) => {
                            matches!(*key, "h" | "Left")
                        }
                        (Editor, Command::OpenSelected) => matches!(*key, "l" | "Right"),
                        (Editor | EditorSelection, Command::Top) => *key == "Home",
                        (Editor | EditorSelection, Command::Bottom) => *key == "End",
                        _ => false,
                    };
                    assert!(seen.insert(key) || is_shared, "{key} in {context:?}");
                }
            }
        }
    }
}
