//! THE table: every command with its keys, its words and where it holds. Keys,
//! footer, help, palette and the key table of docs/console.md come from here.

use super::keymap::KeyMeaning;
use super::model::{AgentTab, MIN_SIDE_BY_SIDE_COLUMNS, Model, ResetStage, Screen};
use crate::engine::Protection;

/// Where a command holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyContext {
    /// Everywhere.
    Any,
    /// The fleet.
    Fleet,
    /// One agent: diff and scratch.
    Agent,
    /// A plan that waits for its confirmation.
    Plan,
    /// A run in progress.
    Run,
    /// The result of a run.
    Result,
    /// The log.
    Log,
    /// The hosts.
    Hosts,
}

impl KeyContext {
    /// The word for people.
    pub fn label(self) -> &'static str {
        match self {
            KeyContext::Any => "everywhere",
            KeyContext::Fleet => "fleet",
            KeyContext::Agent => "agent",
            KeyContext::Plan => "plan",
            KeyContext::Run => "run",
            KeyContext::Result => "result",
            KeyContext::Log => "log",
            KeyContext::Hosts => "hosts",
        }
    }
}

/// For the order of help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CommandCategory {
    /// What this program is for.
    Actions,
    /// Looking at something.
    Viewing,
    /// Marks, filters and order.
    Selection,
    /// Getting somewhere.
    Navigation,
    /// Everything else.
    General,
}

impl CommandCategory {
    /// The heading in help.
    pub fn heading(self) -> &'static str {
        match self {
            CommandCategory::Actions => "Act",
            CommandCategory::Viewing => "Look",
            CommandCategory::Selection => "Select",
            CommandCategory::Navigation => "Move",
            CommandCategory::General => "Program",
        }
    }
}

/// What can be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the table below says what each one does")]
pub enum Command {
    PlanReset,
    PlanUndo,
    PlanRedo,
    ConfirmPlan,
    UndoAppend,
    UndoOverwrite,
    KeepHiddenAgents,
    DropHiddenAgents,
    RetryFailed,
    EditBaseline,
    CopyName,
    CopyPath,
    CopyDigest,
    CopyPatch,
    CopyLine,
    CopyAll,
    CopyCommand,
    CopyPlan,
    OpenPager,
    AnswerQuestion,
    OpenDiff,
    OpenSelected,
    ReadAgent,
    ReadAllAgents,
    RetryHost,
    NextTab,
    PreviousTab,
    ToggleSideBySide,
    ToggleWrap,
    ToggleWhitespaceMarks,
    ToggleFullScreen,
    MoreContext,
    LessContext,
    ToggleIgnoreWhitespace,
    Search,
    NextHit,
    PreviousHit,
    NextHunk,
    PreviousHunk,
    ToggleMark,
    MarkRange,
    MarkAll,
    ClearMarks,
    Filter,
    ChooseSortOrder,
    ReverseSortOrder,
    Down,
    Up,
    HalfDown,
    HalfUp,
    PageDown,
    PageUp,
    Top,
    Bottom,
    NextAgent,
    PreviousAgent,
    GoBack,
    GoToPreviousScreen,
    GoFleet,
    GoAgent,
    GoReset,
    GoLog,
    GoHosts,
    Help,
    Palette,
    ToggleReadOnly,
    ToggleDemoHost,
    Redraw,
    Suspend,
    Quit,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct CommandSpec {
    /// The command.
    pub command: Command,
    /// Its name in the palette.
    pub id: &'static str,
    /// What it does, in a line.
    pub title: &'static str,
    /// Its word in the footer; empty where it is not shown there.
    pub hint: &'static str,
    /// Where it stands in help.
    pub category: CommandCategory,
    /// Where it holds.
    pub contexts: &'static [KeyContext],
    /// The keys unless the operator has others, the one to show first.
    pub keys: &'static [&'static str],
}

use KeyContext::{Agent, Any, Fleet, Hosts, Log, Plan, Result as Outcome, Run};

/// Where a list or a text can be moved through.
const SCROLLABLE_CONTEXTS: &[KeyContext] = &[Fleet, Agent, Plan, Run, Outcome, Log, Hosts];

macro_rules! table {
    ($($command:ident $id:literal $hint:literal $category:ident $contexts:expr, [$($key:literal)*], $title:literal;)*) => {
        /// All commands, in the order of help and of the footer.
        pub const COMMAND_TABLE: &[CommandSpec] = &[$(CommandSpec {
            command: Command::$command,
            id: $id,
            title: $title,
            hint: $hint,
            category: CommandCategory::$category,
            contexts: $contexts,
            keys: &[$($key),*],
        }),*];
    };
}

table! {
    OpenDiff      "diff"          "diff"        Viewing    &[Fleet, Agent, Plan, Run, Outcome, Log], ["d"], "Show the live diff of the agent under the cursor";
    PlanReset     "reset"         "reset plan"  Actions     &[Fleet, Agent], ["X"], "Plan a reset of the marked agents, else of the one under the cursor; changes nothing yet";
    PlanUndo      "undo"          "undo"        Actions     &[Fleet, Agent, Outcome], ["z" "u"], "Plan to undo the last reset of the marked agents, else of the one under the cursor; at a result, that run";
    PlanRedo      "redo"          ""            Actions     &[Fleet, Agent], ["Z"], "Plan to take the last undo back";
    ConfirmPlan       "confirm"       "run it"      Actions     &[Plan], ["y"], "Run the plan, where one key is enough";
    UndoAppend        "undo-append"   "append newer notes" Actions &[Plan], ["a"], "Undo, and append what the agent wrote since below the restored file";
    UndoOverwrite     "undo-overwrite" "overwrite"  Actions     &[Plan], ["o"], "Undo, and archive what the agent wrote since";
    KeepHiddenAgents    "keep-hidden"   "keep hidden" Actions     &[Plan], ["h"], "Keep marked agents in the plan that the filter hides";
    DropHiddenAgents    "drop-hidden"   "drop hidden" Actions     &[Plan], ["v"], "Take marked agents out of the plan that the filter hides";
    RetryFailed         "retry"         "retry"        Actions    &[Outcome], ["r"], "Plan a reset of the agents that failed, were refused or were not started";
    EditBaseline  "edit"          "edit"        Actions   &[Fleet, Agent], ["E"], "Edit the baseline of this agent in $VISUAL or $EDITOR";
    AnswerQuestion        "answer"        ""            Actions     &[Any], ["@"], "Answer what a host asks: a passphrase, a password, whether an unknown host key is right";
    ToggleMark          "mark"          "mark"        Selection  &[Fleet], ["Space"], "Mark or unmark the agent under the cursor";
    Filter        "filter"        "filter"      Selection  &[Fleet], ["/"], "Show only some agents: words, !not, ~fuzzy, is:drifted, is:marked, host:NAME, host:=USER@NAME:PORT";
    MarkRange     "mark-range"    ""            Selection  &[Fleet], ["v"], "Mark from the last marked agent to the cursor";
    MarkAll       "mark-all"      ""            Selection  &[Fleet], ["a"], "Mark all agents that are shown";
    ClearMarks    "clear-marks"   ""            Selection  &[Fleet], ["A"], "Clear all marks, also hidden ones";
    ChooseSortOrder          "sort"          ""            Selection  &[Fleet], ["s"], "Choose the order of the fleet";
    ReverseSortOrder       "reverse"       ""            Selection  &[Fleet], ["S"], "Reverse the order";
    NextHunk      "next-hunk"     "hunk"        Viewing    &[Agent], ["}"], "Go to the next hunk";
    PreviousHunk  "previous-hunk" ""            Viewing    &[Agent], ["{"], "Go to the previous hunk";
    NextAgent     "next-agent"    "agent"       Navigation    &[Agent], ["]"], "Go to the next agent, staying on this screen";
    PreviousAgent "previous-agent" ""           Navigation    &[Agent], ["["], "Go to the previous agent";
    NextTab       "next-tab"      "tab"         Viewing    &[Agent], ["Tab"], "Go to the next tab: diff, scratch, facts, baseline, history";
    PreviousTab   "previous-tab"  ""            Viewing    &[Agent], ["S-Tab"], "Go to the previous tab";
    Search        "search"        "search"      Viewing    &[Agent, Log], ["/"], "Search in the text";
    NextHit       "next-hit"      ""            Viewing    &[Agent, Log], ["n"], "Go to the next hit, or to the next hunk when nothing is searched for";
    PreviousHit   "previous-hit"  ""            Viewing    &[Agent, Log], ["N"], "Go to the previous hit, or hunk";
    ToggleSideBySide         "sides"         "side/unified" Viewing   &[Agent], ["t"], "Show the two texts of a diff side by side, or in one";
    ToggleWrap          "wrap"          "wrap"        Viewing    &[Agent], ["w"], "Wrap long lines, or cut them";
    ToggleWhitespaceMarks        "reveal"        "invisibles"  Viewing    &[Agent], ["."], "Toggle whitespace marks; dangerous characters are always marked";
    ToggleFullScreen          "full"          "full"        Viewing    &[Agent], ["f"], "The text alone, on the whole screen, so that it can be copied clean";
    MoreContext   "more-context"  ""            Viewing    &[Agent], ["="], "Show more equal lines around a change";
    LessContext   "less-context"  ""            Viewing    &[Agent], ["_"], "Show fewer equal lines around a change";
    ToggleIgnoreWhitespace        "blanks"        ""            Viewing    &[Agent], ["i"], "Take lines that differ in white space alone for equal, in the view; findings still count";
    OpenSelected          "open"          "open"        Viewing    &[Fleet, Agent, Outcome, Log, Hosts], ["Enter" "l" "Right"], "Open what is under the cursor; at the hosts, the agents of that one; in a history, what that run changed";
    OpenPager          "pager"         "pager"       Viewing    &[Agent, Outcome, Log], ["o"], "Read the text, or the entry under the cursor, in $PAGER";
    CopyName      "copy-name"     ""            Viewing    &[Fleet, Agent, Outcome], ["yn" "c"], "Copy the name of the agent";
    CopyPath      "copy-path"     ""            Viewing    &[Fleet, Agent, Outcome], ["yp"], "Copy the path of its memory";
    CopyDigest    "copy-digest"   ""            Viewing    &[Fleet, Agent, Outcome], ["yh"], "Copy the digest of its memory";
    CopyPatch      "copy-diff"     ""            Viewing    &[Fleet, Agent, Outcome], ["yd"], "Copy what it changed above the separator, as a patch";
    CopyLine      "copy-line"     ""            Viewing    &[Agent, Outcome, Log], ["yl"], "Copy the line at the top, or of the hit; the row under the cursor";
    CopyAll       "copy-all"      ""            Viewing    &[Agent, Outcome, Log], ["ya"], "Copy all of the text; of a result its report";
    CopyCommand   "copy-command"  ""            Viewing    &[Outcome, Log], ["yc"], "Copy the command line that does the same as this run";
    CopyPlan      "copy-plan"     ""            Viewing    &[Plan], ["c"], "Copy the command line that does the same as this plan";
    ReadAgent          "read"          ""            Viewing    &[Fleet, Agent], ["r"], "Read this agent again; a host that did not answer is tried at once";
    RetryHost        "try-now"       "try now"     Viewing    &[Hosts], ["r"], "Try this host now, and read its agents again";
    ReadAllAgents       "read-all"      ""            Viewing    &[Fleet, Agent, Outcome, Log, Hosts], ["R" "^r"], "Read all agents again; hosts that did not answer are tried at once";
    Down          "down"          ""            Navigation    SCROLLABLE_CONTEXTS, ["j" "Down"], "Down";
    Up            "up"            ""            Navigation    SCROLLABLE_CONTEXTS, ["k" "Up"], "Up";
    HalfDown      "half-down"     ""            Navigation    SCROLLABLE_CONTEXTS, ["^d"], "Half a page down";
    HalfUp        "half-up"       ""            Navigation    SCROLLABLE_CONTEXTS, ["^u"], "Half a page up";
    PageDown      "page-down"     ""            Navigation    SCROLLABLE_CONTEXTS, ["PgDn" "^f"], "A page down";
    PageUp        "page-up"       ""            Navigation    SCROLLABLE_CONTEXTS, ["PgUp" "^b"], "A page up";
    Top           "top"           ""            Navigation    SCROLLABLE_CONTEXTS, ["gg" "Home"], "To the beginning";
    Bottom        "bottom"        ""            Navigation    SCROLLABLE_CONTEXTS, ["G" "End"], "To the end";
    GoBack          "back"          "back"        Navigation    SCROLLABLE_CONTEXTS, ["q" "Esc" "h" "Left"], "Back one level; the first of these keys quits at the fleet";
    GoToPreviousScreen          "last"          ""            Navigation    &[Any], ["-"], "The screen before this one";
    GoFleet       "fleet"         ""            Navigation    &[Any], ["1"], "The fleet";
    GoAgent       "agent"         ""            Navigation    &[Any], ["2"], "The agent under the cursor";
    GoReset       "plan"          ""            Navigation    &[Any], ["5"], "The plan, run or result";
    GoLog         "log"           "log"         Navigation    &[Any], ["7"], "The log";
    GoHosts       "hosts"         ""            Navigation    &[Any], ["8"], "The hosts: how they stand, and why";
    ToggleReadOnly      "read-only"     ""            General &[Any], ["!"], "Switch read-only on; or, after y, off, for 30 minutes also where agents are protected";
    ToggleDemoHost      "host"          "demo host"   General &[Any], ["D"], "In the demo alone: make its host go away, or come back";
    Redraw        "redraw"        ""            General &[Any], ["^l"], "Draw the whole screen again";
    Suspend       "suspend"       ""            General &[Any], ["^z"], "Back to the shell; fg returns";
    Quit          "quit"          ""            General &[Any], ["^c"], "Quit; during a run: finish the agent in hand, do not start the rest";
    Palette       "palette"       "commands"    General &[Any], [":"], "Every command, screen, order and agent, by a few letters";
    Help          "help"          "help"        General &[Any], ["?" "F1"], "Keys of this screen; Enter runs one";
}

/// Why there is nothing to look at among the hosts.
pub const NO_HOSTS_REASON: &str = "no agent of this fleet is on another host";

/// The row of a command.
pub fn spec_of(command: Command) -> &'static CommandSpec {
    // The test below proves that every command has a row.
    COMMAND_TABLE
        .iter()
        .find(|spec| spec.command == command)
        .unwrap_or(&COMMAND_TABLE[0])
}

/// Where a command holds, for people.
pub fn context_labels(spec: &CommandSpec) -> Vec<&'static str> {
    match spec.contexts == SCROLLABLE_CONTEXTS {
        true => vec![Any.label()],
        false => spec.contexts.iter().map(|it| it.label()).collect(),
    }
}

/// Whether a command asks for a plan, which then waits for its confirmation.
pub fn requests_plan(command: Command) -> bool {
    matches!(
        command,
        Command::PlanReset
            | Command::PlanUndo
            | Command::PlanRedo
            | Command::RetryFailed
            | Command::UndoAppend
            | Command::UndoOverwrite
    )
}

/// The commands that the screen offers: those that hold in its context. What only
/// the demo has is not offered elsewhere, what a plan asks about hidden marks only there.
pub fn offered_commands(model: &Model) -> impl Iterator<Item = &'static CommandSpec> {
    let demo = model.is_demo();
    let context = model.key_context();
    let keymap = &model.preferences.keymap;
    // What holds everywhere is hidden where the context has another use for its keys.
    let is_reachable = move |spec: &CommandSpec| {
        let keys = keymap.sequences(spec.command);
        let own_meaning = KeyMeaning::Command(spec.command);
        keys.is_empty()
            || keys
                .iter()
                .any(|keys| keymap.resolve(context, keys) == own_meaning)
    };
    let has_hidden_marks = match &model.reset.stage {
        ResetStage::Plan(view) => !view.hidden_agents.is_empty(),
        _ => false,
    };
    COMMAND_TABLE.iter().filter(move |spec| {
        let asks_of_hidden = matches!(
            spec.command,
            Command::KeepHiddenAgents | Command::DropHiddenAgents
        );
        let is_in_context = spec.contexts.contains(&context)
            || (spec.contexts.contains(&Any) && is_reachable(spec));
        is_in_context
            && (demo || spec.command != Command::ToggleDemoHost)
            && (has_hidden_marks || !asks_of_hidden)
    })
}

/// Whether a command can be run now; if not, why.
///
/// # Errors
/// The reason, for the operator.
pub fn check_enabled(command: Command, model: &Model) -> Result<(), String> {
    let require = |condition: bool, read_only_reason: &str| match condition {
        true => Ok(()),
        false => Err(read_only_reason.to_string()),
    };
    let key = |command| model.key_hint(command);
    // Why a key of diffs, or of texts, does nothing.
    let no_diff = || {
        format!(
            "there is no diff here; {} goes to it",
            key(Command::NextTab)
        )
    };
    let no_text = || {
        format!(
            "this is a list; {} opens a text",
            key(Command::OpenSelected)
        )
    };
    match command {
        Command::PlanReset | Command::PlanUndo | Command::PlanRedo | Command::RetryFailed => {
            let reset_key = key(Command::GoReset);
            require(
                !model.is_running(),
                &format!("a run is in progress; {reset_key} shows it"),
            )?;
            let targets = model.target_agents(command);
            require(!targets.is_empty(), "there is no agent to do it to")
        }
        Command::ConfirmPlan | Command::UndoAppend | Command::UndoOverwrite => {
            match &model.reset.stage {
                ResetStage::Plan(view) => view.check_offered(command, model),
                _ => Err("there is no plan".to_string()),
            }
        }
        Command::DropHiddenAgents => match &model.reset.stage {
            ResetStage::Plan(view) => require(
                !view.hidden_agents.is_empty(),
                "the filter hides none of them",
            ),
            _ => Err("there is no plan".to_string()),
        },
        Command::NextHunk | Command::PreviousHunk => require(
            model.agent.is_comparison() && !model.agent.current_pane().hunks.is_empty(),
            "there is no hunk: nothing above the separator differs",
        ),
        Command::ToggleSideBySide => {
            let agent = &model.agent;
            require(agent.is_comparison(), &no_diff())?;
            require(
                !agent.is_full_screen,
                &format!(
                    "the text alone is in one piece; {} leaves it",
                    key(Command::ToggleFullScreen)
                ),
            )?;
            let columns = model.size.0;
            let why = format!("needs {MIN_SIDE_BY_SIDE_COLUMNS} columns, and here are {columns}");
            require(columns >= MIN_SIDE_BY_SIDE_COLUMNS, &why)
        }
        Command::MoreContext | Command::LessContext | Command::ToggleIgnoreWhitespace => {
            require(model.agent.is_comparison(), &no_diff())
        }
        Command::ToggleWhitespaceMarks if model.agent.tab == AgentTab::Facts => {
            Err("facts are no text of a file, and their whitespace is plain".to_string())
        }
        Command::ToggleFullScreen | Command::ToggleWrap | Command::ToggleWhitespaceMarks => {
            require(!model.agent.is_list(), &no_text())
        }
        Command::Search if model.screen == Screen::Agent => {
            require(!model.agent.is_list(), &no_text())
        }
        Command::OpenSelected if model.screen == Screen::Agent => {
            require(
                model.agent.is_list(),
                "only what is in a history opens here",
            )?;
            require(
                model.agent.history.current_record().is_some(),
                "nothing was done to it yet",
            )
        }
        Command::OpenDiff => match model.subject_agent() {
            Some(_) => Ok(()),
            None if model.has_plan() => Err("the plan is still being made".to_string()),
            None => Err(model.no_subject_reason()),
        },
        Command::GoAgent | Command::ToggleMark | Command::MarkRange => require(
            model.cursor_agent.is_some(),
            "there is no agent under the cursor",
        ),
        Command::EditBaseline => {
            let agent = model
                .subject_agent()
                .ok_or_else(|| model.no_subject_reason())?;
            let observation = model
                .find_row(agent)
                .and_then(|row| row.latest_observation());
            let protected = observation.is_some_and(|seen| seen.protection == Protection::ReadOnly);
            require(
                !protected || model.is_unlocked(),
                &format!(
                    "it is protected as read-only; {} unlocks it for 30 minutes",
                    key(Command::ToggleReadOnly)
                ),
            )?;
            model.read_only_reason().map_or(Ok(()), Err)
        }
        Command::OpenPager if model.screen == Screen::Agent && model.agent.is_list() => {
            model.selected_entry().map(|_| ())
        }
        Command::CopyLine | Command::CopyAll
            if model.screen == Screen::Agent && model.agent.is_list() =>
        {
            Err(no_text())
        }
        Command::CopyName
        | Command::CopyPath
        | Command::CopyDigest
        | Command::CopyLine
        | Command::CopyAll
        | Command::CopyCommand
        | Command::CopyPlan => model.clipboard_text(command).map(drop),
        Command::CopyPatch => require(model.subject_agent().is_some(), &model.no_subject_reason()),
        Command::OpenPager if model.screen == Screen::Agent => require(
            !model.agent.current_pane().lines.is_empty(),
            "there is no text yet",
        ),
        Command::OpenPager => model.selected_entry().map(drop),
        Command::AnswerQuestion => require(!model.questions.is_empty(), "no host asks anything"),
        Command::ClearMarks => require(!model.marks.is_empty(), "nothing is marked"),
        Command::GoReset => require(
            !matches!(model.reset.stage, ResetStage::Empty),
            &format!(
                "there is no plan yet; {} makes one",
                key(Command::PlanReset)
            ),
        ),
        Command::RetryHost => require(model.hosts.current_status().is_some(), NO_HOSTS_REASON),
        Command::GoToPreviousScreen => require(
            model.previous_screen.is_some(),
            "there was no other screen yet",
        ),
        Command::ToggleDemoHost => require(model.is_demo(), "only the demo has one to play with"),
        Command::ToggleReadOnly => require(
            !model.read_only.is_forced,
            "started with --read-only; leave and start without it",
        ),
        _ => Ok(()),
    }
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
            assert!(ids.insert(spec.id), "{} stands twice", spec.id);
            assert!(commands.insert(spec.command), "{} stands twice", spec.id);
            assert!(
                !spec.title.is_empty() && !spec.title.ends_with('.'),
                "{}",
                spec.id
            );
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
        for context in [Fleet, Agent, Plan, Run, Outcome, Log, Hosts, Any] {
            let mut seen: HashSet<&str> = HashSet::new();
            for spec in COMMAND_TABLE
                .iter()
                .filter(|spec| spec.contexts.contains(&context))
            {
                for key in spec.keys {
                    // On a plan, h and v answer a question while it is asked.
                    let asked = context == Plan && spec.command == Command::GoBack && *key == "h";
                    assert!(seen.insert(key) || asked, "{key} in {context:?}");
                }
            }
        }
    }
}
