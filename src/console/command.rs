//! THE table: every command with its keys, its words and where it holds. Keys,
//! footer, help, palette and the key table of docs/console.md come from here.

use super::keymap::KeyMeaning;
use super::model::{Model, ResetStage, SIDES, Screen, Tab};
use crate::engine::Protection;

/// Where a command holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Context {
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

impl Context {
    /// The word for people.
    pub fn word(self) -> &'static str {
        match self {
            Context::Any => "everywhere",
            Context::Fleet => "fleet",
            Context::Agent => "agent",
            Context::Plan => "plan",
            Context::Run => "run",
            Context::Result => "result",
            Context::Log => "log",
            Context::Hosts => "hosts",
        }
    }
}

/// For the order of help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Category {
    /// What this program is for.
    Act,
    /// Looking at something.
    Look,
    /// Marks, filters and order.
    Select,
    /// Getting somewhere.
    Move,
    /// Everything else.
    Program,
}

impl Category {
    /// The heading in help.
    pub fn title(self) -> &'static str {
        match self {
            Category::Act => "Act",
            Category::Look => "Look",
            Category::Select => "Select",
            Category::Move => "Move",
            Category::Program => "Program",
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
    Confirm,
    Append,
    Overwrite,
    KeepHidden,
    DropHidden,
    Retry,
    EditBaseline,
    CopyName,
    CopyPath,
    CopyDigest,
    CopyDiff,
    CopyLine,
    CopyAll,
    CopyCommand,
    CopyPlan,
    Page,
    Answer,
    OpenDiff,
    Open,
    Read,
    ReadAll,
    TryNow,
    NextTab,
    PreviousTab,
    Sides,
    Wrap,
    Reveal,
    Full,
    MoreContext,
    LessContext,
    Blanks,
    Search,
    NextHit,
    PreviousHit,
    NextHunk,
    PreviousHunk,
    Mark,
    MarkRange,
    MarkAll,
    ClearMarks,
    Filter,
    Sort,
    Reverse,
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
    Back,
    Last,
    GoFleet,
    GoAgent,
    GoReset,
    GoLog,
    GoHosts,
    Help,
    Palette,
    ReadOnly,
    HostAway,
    Redraw,
    Suspend,
    Quit,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// The command.
    pub command: Command,
    /// Its name in the palette.
    pub id: &'static str,
    /// What it does, in a line.
    pub title: &'static str,
    /// Its word in the footer; empty where it is not shown there.
    pub hint: &'static str,
    /// Where it stands in help.
    pub category: Category,
    /// Where it holds.
    pub contexts: &'static [Context],
    /// The keys unless the operator has others, the one to show first.
    pub keys: &'static [&'static str],
}

use Context::{Agent, Any, Fleet, Hosts, Log, Plan, Result as Outcome, Run};

/// Where a list or a text can be moved through.
const SCROLLED: &[Context] = &[Fleet, Agent, Plan, Run, Outcome, Log, Hosts];

macro_rules! table {
    ($($command:ident $id:literal $hint:literal $category:ident $contexts:expr, [$($key:literal)*], $title:literal;)*) => {
        /// All commands, in the order of help and of the footer.
        pub const TABLE: &[Spec] = &[$(Spec {
            command: Command::$command,
            id: $id,
            title: $title,
            hint: $hint,
            category: Category::$category,
            contexts: $contexts,
            keys: &[$($key),*],
        }),*];
    };
}

table! {
    OpenDiff      "diff"          "diff"        Look    &[Fleet, Agent, Plan, Run, Outcome, Log], ["d"], "Show the live diff of the agent under the cursor";
    PlanReset     "reset"         "reset plan"  Act     &[Fleet, Agent], ["X"], "Plan a reset of the marked agents, else of the one under the cursor; changes nothing yet";
    PlanUndo      "undo"          "undo"        Act     &[Fleet, Agent, Outcome], ["z" "u"], "Plan to undo the last reset of the marked agents, else of the one under the cursor; at a result, that run";
    PlanRedo      "redo"          ""            Act     &[Fleet, Agent], ["Z"], "Plan to take the last undo back";
    Confirm       "confirm"       "run it"      Act     &[Plan], ["y"], "Run the plan, where one key is enough";
    Append        "undo-append"   "append newer notes" Act &[Plan], ["a"], "Undo, and append what the agent wrote since below the restored file";
    Overwrite     "undo-overwrite" "overwrite"  Act     &[Plan], ["o"], "Undo, and archive what the agent wrote since";
    KeepHidden    "keep-hidden"   "keep hidden" Act     &[Plan], ["h"], "Keep marked agents in the plan that the filter hides";
    DropHidden    "drop-hidden"   "drop hidden" Act     &[Plan], ["v"], "Take marked agents out of the plan that the filter hides";
    Retry         "retry"         "retry"        Act    &[Outcome], ["r"], "Plan a reset of the agents that failed, were refused or were not started";
    EditBaseline  "edit"          "edit"        Act   &[Fleet, Agent], ["E"], "Edit the baseline of this agent in $VISUAL or $EDITOR";
    Answer        "answer"        ""            Act     &[Any], ["@"], "Answer what a host asks: a passphrase, a password, whether an unknown host key is right";
    Mark          "mark"          "mark"        Select  &[Fleet], ["Space"], "Mark or unmark the agent under the cursor";
    Filter        "filter"        "filter"      Select  &[Fleet], ["/"], "Show only some agents: words, !not, ~fuzzy, is:drifted, is:marked, host:NAME, host:=USER@NAME:PORT";
    MarkRange     "mark-range"    ""            Select  &[Fleet], ["v"], "Mark from the last marked agent to the cursor";
    MarkAll       "mark-all"      ""            Select  &[Fleet], ["a"], "Mark all agents that are shown";
    ClearMarks    "clear-marks"   ""            Select  &[Fleet], ["A"], "Clear all marks, also hidden ones";
    Sort          "sort"          ""            Select  &[Fleet], ["s"], "Choose the order of the fleet";
    Reverse       "reverse"       ""            Select  &[Fleet], ["S"], "Reverse the order";
    NextHunk      "next-hunk"     "hunk"        Look    &[Agent], ["}"], "Go to the next hunk";
    PreviousHunk  "previous-hunk" ""            Look    &[Agent], ["{"], "Go to the previous hunk";
    NextAgent     "next-agent"    "agent"       Move    &[Agent], ["]"], "Go to the next agent, staying on this screen";
    PreviousAgent "previous-agent" ""           Move    &[Agent], ["["], "Go to the previous agent";
    NextTab       "next-tab"      "tab"         Look    &[Agent], ["Tab"], "Go to the next tab: diff, scratch, facts, baseline, history";
    PreviousTab   "previous-tab"  ""            Look    &[Agent], ["S-Tab"], "Go to the previous tab";
    Search        "search"        "search"      Look    &[Agent, Log], ["/"], "Search in the text";
    NextHit       "next-hit"      ""            Look    &[Agent, Log], ["n"], "Go to the next hit, or to the next hunk when nothing is searched for";
    PreviousHit   "previous-hit"  ""            Look    &[Agent, Log], ["N"], "Go to the previous hit, or hunk";
    Sides         "sides"         "side/unified" Look   &[Agent], ["t"], "Show the two texts of a diff side by side, or in one";
    Wrap          "wrap"          "wrap"        Look    &[Agent], ["w"], "Wrap long lines, or cut them";
    Reveal        "reveal"        "invisibles"  Look    &[Agent], ["."], "Toggle whitespace marks; dangerous characters are always marked";
    Full          "full"          "full"        Look    &[Agent], ["f"], "The text alone, on the whole screen, so that it can be copied clean";
    MoreContext   "more-context"  ""            Look    &[Agent], ["="], "Show more equal lines around a change";
    LessContext   "less-context"  ""            Look    &[Agent], ["_"], "Show fewer equal lines around a change";
    Blanks        "blanks"        ""            Look    &[Agent], ["i"], "Take lines that differ in white space alone for equal, in the view; findings still count";
    Open          "open"          "open"        Look    &[Fleet, Agent, Outcome, Log, Hosts], ["Enter" "l" "Right"], "Open what is under the cursor; at the hosts, the agents of that one; in a history, what that run changed";
    Page          "pager"         "pager"       Look    &[Agent, Outcome, Log], ["o"], "Read the text, or the entry under the cursor, in $PAGER";
    CopyName      "copy-name"     ""            Look    &[Fleet, Agent, Outcome], ["yn" "c"], "Copy the name of the agent";
    CopyPath      "copy-path"     ""            Look    &[Fleet, Agent, Outcome], ["yp"], "Copy the path of its memory";
    CopyDigest    "copy-digest"   ""            Look    &[Fleet, Agent, Outcome], ["yh"], "Copy the digest of its memory";
    CopyDiff      "copy-diff"     ""            Look    &[Fleet, Agent, Outcome], ["yd"], "Copy what it changed above the separator, as a patch";
    CopyLine      "copy-line"     ""            Look    &[Agent, Outcome, Log], ["yl"], "Copy the line at the top, or of the hit; the row under the cursor";
    CopyAll       "copy-all"      ""            Look    &[Agent, Outcome, Log], ["ya"], "Copy all of the text; of a result its report";
    CopyCommand   "copy-command"  ""            Look    &[Outcome, Log], ["yc"], "Copy the command line that does the same as this run";
    CopyPlan      "copy-plan"     ""            Look    &[Plan], ["c"], "Copy the command line that does the same as this plan";
    Read          "read"          ""            Look    &[Fleet, Agent], ["r"], "Read this agent again; a host that did not answer is tried at once";
    TryNow        "try-now"       "try now"     Look    &[Hosts], ["r"], "Try this host now, and read its agents again";
    ReadAll       "read-all"      ""            Look    &[Fleet, Agent, Outcome, Log, Hosts], ["R" "^r"], "Read all agents again; hosts that did not answer are tried at once";
    Down          "down"          ""            Move    SCROLLED, ["j" "Down"], "Down";
    Up            "up"            ""            Move    SCROLLED, ["k" "Up"], "Up";
    HalfDown      "half-down"     ""            Move    SCROLLED, ["^d"], "Half a page down";
    HalfUp        "half-up"       ""            Move    SCROLLED, ["^u"], "Half a page up";
    PageDown      "page-down"     ""            Move    SCROLLED, ["PgDn" "^f"], "A page down";
    PageUp        "page-up"       ""            Move    SCROLLED, ["PgUp" "^b"], "A page up";
    Top           "top"           ""            Move    SCROLLED, ["gg" "Home"], "To the beginning";
    Bottom        "bottom"        ""            Move    SCROLLED, ["G" "End"], "To the end";
    Back          "back"          "back"        Move    SCROLLED, ["q" "Esc" "h" "Left"], "Back one level; the first of these keys quits at the fleet";
    Last          "last"          ""            Move    &[Any], ["-"], "The screen before this one";
    GoFleet       "fleet"         ""            Move    &[Any], ["1"], "The fleet";
    GoAgent       "agent"         ""            Move    &[Any], ["2"], "The agent under the cursor";
    GoReset       "plan"          ""            Move    &[Any], ["5"], "The plan, run or result";
    GoLog         "log"           "log"         Move    &[Any], ["7"], "The log";
    GoHosts       "hosts"         ""            Move    &[Any], ["8"], "The hosts: how they stand, and why";
    ReadOnly      "read-only"     ""            Program &[Any], ["!"], "Switch read-only on; or, after y, off, for 30 minutes also where agents are protected";
    HostAway      "host"          "demo host"   Program &[Any], ["D"], "In the demo alone: make its host go away, or come back";
    Redraw        "redraw"        ""            Program &[Any], ["^l"], "Draw the whole screen again";
    Suspend       "suspend"       ""            Program &[Any], ["^z"], "Back to the shell; fg returns";
    Quit          "quit"          ""            Program &[Any], ["^c"], "Quit; during a run: finish the agent in hand, do not start the rest";
    Palette       "palette"       "commands"    Program &[Any], [":"], "Every command, screen, order and agent, by a few letters";
    Help          "help"          "help"        Program &[Any], ["?" "F1"], "Keys of this screen; Enter runs one";
}

/// Why there is nothing to look at among the hosts.
pub const NO_HOSTS: &str = "no agent of this fleet is on another host";

/// The row of a command.
pub fn spec(command: Command) -> &'static Spec {
    // The test below proves that every command has a row.
    TABLE
        .iter()
        .find(|spec| spec.command == command)
        .unwrap_or(&TABLE[0])
}

/// Where a command holds, for people.
pub fn places(spec: &Spec) -> Vec<&'static str> {
    match spec.contexts == SCROLLED {
        true => vec![Any.word()],
        false => spec.contexts.iter().map(|it| it.word()).collect(),
    }
}

/// Whether a command asks for a plan, which then waits for its confirmation.
pub fn opens_a_plan(command: Command) -> bool {
    matches!(
        command,
        Command::PlanReset
            | Command::PlanUndo
            | Command::PlanRedo
            | Command::Retry
            | Command::Append
            | Command::Overwrite
    )
}

/// The commands that the screen offers: those that hold in its context. What only
/// the demo has is not offered elsewhere, what a plan asks about hidden marks only there.
pub fn offered(model: &Model) -> impl Iterator<Item = &'static Spec> {
    let demo = model.is_demo();
    let context = model.context();
    let keymap = &model.preferences.keymap;
    // What holds everywhere is hidden where the context has another use for its keys.
    let reached = move |spec: &Spec| {
        let keys = keymap.keys(spec.command);
        let meant = KeyMeaning::Command(spec.command);
        keys.is_empty()
            || keys
                .iter()
                .any(|keys| keymap.meaning(context, keys) == meant)
    };
    let hides = match &model.reset.stage {
        ResetStage::Plan(view) => !view.hidden.is_empty(),
        _ => false,
    };
    TABLE.iter().filter(move |spec| {
        let asks_of_hidden = matches!(spec.command, Command::KeepHidden | Command::DropHidden);
        let holds =
            spec.contexts.contains(&context) || (spec.contexts.contains(&Any) && reached(spec));
        holds && (demo || spec.command != Command::HostAway) && (hides || !asks_of_hidden)
    })
}

/// Whether a command can be run now; if not, why.
///
/// # Errors
/// The reason, for the operator.
pub fn enabled(command: Command, model: &Model) -> Result<(), String> {
    let need = |condition: bool, why: &str| match condition {
        true => Ok(()),
        false => Err(why.to_string()),
    };
    let key = |command| model.key(command);
    // Why a key of diffs, or of texts, does nothing.
    let no_diff = || {
        format!(
            "there is no diff here; {} goes to it",
            key(Command::NextTab)
        )
    };
    let no_text = || format!("this is a list; {} opens a text", key(Command::Open));
    match command {
        Command::PlanReset | Command::PlanUndo | Command::PlanRedo | Command::Retry => {
            let shows = key(Command::GoReset);
            need(
                !model.is_running(),
                &format!("a run is in progress; {shows} shows it"),
            )?;
            let targets = model.targets(command);
            need(!targets.is_empty(), "there is no agent to do it to")
        }
        Command::Confirm | Command::Append | Command::Overwrite => match &model.reset.stage {
            ResetStage::Plan(view) => view.offers(command, model),
            _ => Err("there is no plan".to_string()),
        },
        Command::DropHidden => match &model.reset.stage {
            ResetStage::Plan(view) => {
                need(!view.hidden.is_empty(), "the filter hides none of them")
            }
            _ => Err("there is no plan".to_string()),
        },
        Command::NextHunk | Command::PreviousHunk => need(
            model.agent.is_diff() && !model.agent.pane().hunks.is_empty(),
            "there is no hunk: nothing above the separator differs",
        ),
        Command::Sides => {
            let agent = &model.agent;
            need(agent.is_diff(), &no_diff())?;
            need(
                !agent.full,
                &format!(
                    "the text alone is in one piece; {} leaves it",
                    key(Command::Full)
                ),
            )?;
            let columns = model.size.0;
            let why = format!("needs {SIDES} columns, and here are {columns}");
            need(columns >= SIDES, &why)
        }
        Command::MoreContext | Command::LessContext | Command::Blanks => {
            need(model.agent.is_diff(), &no_diff())
        }
        Command::Reveal if model.agent.tab == Tab::Facts => {
            Err("facts are no text of a file, and their whitespace is plain".to_string())
        }
        Command::Full | Command::Wrap | Command::Reveal => need(!model.agent.is_list(), &no_text()),
        Command::Search if model.screen == Screen::Agent => {
            need(!model.agent.is_list(), &no_text())
        }
        Command::Open if model.screen == Screen::Agent => {
            need(
                model.agent.is_list(),
                "only what is in a history opens here",
            )?;
            need(
                model.agent.history.current().is_some(),
                "nothing was done to it yet",
            )
        }
        Command::OpenDiff => match model.subject() {
            Some(_) => Ok(()),
            None if model.has_plan() => Err("the plan is still being made".to_string()),
            None => Err(model.why_no_subject()),
        },
        Command::GoAgent | Command::Mark | Command::MarkRange => {
            need(model.cursor.is_some(), "there is no agent under the cursor")
        }
        Command::EditBaseline => {
            let agent = model.subject().ok_or_else(|| model.why_no_subject())?;
            let seen = model.row(agent).and_then(|row| row.best());
            let protected = seen.is_some_and(|seen| seen.protect == Protection::ReadOnly);
            need(
                !protected || model.unlocked(),
                &format!(
                    "it is protected as read-only; {} unlocks it for 30 minutes",
                    key(Command::ReadOnly)
                ),
            )?;
            model.why_read_only().map_or(Ok(()), Err)
        }
        Command::Page if model.screen == Screen::Agent && model.agent.is_list() => {
            model.entry().map(|_| ())
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
        | Command::CopyPlan => model.clip(command).map(drop),
        Command::CopyDiff => need(model.subject().is_some(), &model.why_no_subject()),
        Command::Page if model.screen == Screen::Agent => {
            need(!model.agent.pane().lines.is_empty(), "there is no text yet")
        }
        Command::Page => model.entry().map(drop),
        Command::Answer => need(!model.questions.is_empty(), "no host asks anything"),
        Command::ClearMarks => need(!model.marks.is_empty(), "nothing is marked"),
        Command::GoReset => need(
            !matches!(model.reset.stage, ResetStage::Empty),
            &format!(
                "there is no plan yet; {} makes one",
                key(Command::PlanReset)
            ),
        ),
        Command::TryNow => need(model.hosts.current().is_some(), NO_HOSTS),
        Command::Last => need(model.previous.is_some(), "there was no other screen yet"),
        Command::HostAway => need(model.is_demo(), "only the demo has one to play with"),
        Command::ReadOnly => need(
            !model.read_only.forced,
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
    fn the_table_is_consistent() {
        let mut ids = HashSet::new();
        let mut commands = HashSet::new();
        for spec in TABLE {
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
            assert_eq!(super::spec(spec.command).id, spec.id);
        }
    }

    #[test]
    fn no_key_means_two_things_in_one_context() {
        for context in [Fleet, Agent, Plan, Run, Outcome, Log, Hosts, Any] {
            let mut seen: HashSet<&str> = HashSet::new();
            for spec in TABLE.iter().filter(|spec| spec.contexts.contains(&context)) {
                for key in spec.keys {
                    // On a plan, h and v answer a question while it is asked.
                    let asked = context == Plan && spec.command == Command::Back && *key == "h";
                    assert!(seen.insert(key) || asked, "{key} in {context:?}");
                }
            }
        }
    }
}
