//! The command table: every command with its default keys, id, title and key contexts.
//! Keymap, footer, help, palette and the key table of docs/console.md derive from it. Plain
//! data: `super::availability` decides whether a command can run now.

/// Screen, or stage of a screen, in which a command is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyContext {
    /// All screens.
    Any,
    /// Fleet screen.
    Fleet,
    /// Agent screen, all tabs.
    Agent,
    /// Plan that waits for confirmation.
    Plan,
    /// Run in progress.
    Run,
    /// Result of a run.
    Result,
    /// Log screen.
    Log,
    /// Log screen, while keys are for the schedule.
    Schedule,
    /// Hosts screen.
    Hosts,
    /// List of baselines.
    Baselines,
    /// Versions of a baseline.
    Versions,
    /// Two versions of a baseline.
    Comparison,
    /// Plan over baselines.
    BaselinePlan,
    /// Verify screen.
    Verify,
    /// Archives: what was found.
    Archives,
    /// Archives: the text of an entry or a memory.
    ArchiveText,
    /// Archives: an entry compared with another text.
    EntryDiff,
    /// Archives: what happened to one agent.
    Timeline,
    /// Archives: what retention deletes now, and why the rest stays.
    Retention,
    /// Archives: the plan to delete that.
    PrunePlan,
    /// Editor, while keys are commands.
    Editor,
    /// Editor, while text is selected.
    EditorSelection,
    /// Editor, while keys type text.
    EditorTyping,
    /// Panel of the editor.
    EditorPanel,
    /// Question of the editor: a save, a change on the disk, a draft.
    EditorDialog,
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

    /// Returns the display name, as docs and `memory-shepherd keys` show it.
    pub fn label(self) -> &'static str {
        match self {
            KeyContext::Any => "everywhere",
            KeyContext::Fleet => "fleet",
            KeyContext::Agent => "agent",
            KeyContext::Plan => "plan",
            KeyContext::Run => "run",
            KeyContext::Result => "result",
            KeyContext::Log => "log",
            KeyContext::Schedule => "schedule",
            KeyContext::Hosts => "hosts",
            KeyContext::Baselines => "baselines",
            KeyContext::Versions => "versions",
            KeyContext::Comparison => "comparison",
            KeyContext::BaselinePlan => "baseline plan",
            KeyContext::Verify => "verify",
            KeyContext::Archives => "archives",
            KeyContext::ArchiveText => "archived text",
            KeyContext::EntryDiff => "entry diff",
            KeyContext::Timeline => "timeline",
            KeyContext::Retention => "retention",
            KeyContext::PrunePlan => "prune plan",
            KeyContext::Editor => "editor",
            KeyContext::EditorSelection => "editor's selection",
            KeyContext::EditorTyping => "editor's typing",
            KeyContext::EditorPanel => "editor's panel",
            KeyContext::EditorDialog => "editor's questions",
        }
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

/// An operation that a key or the palette triggers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the table below says what each one does")]
pub enum Command {
    PlanReset,
    PlanPush,
    ChangeKeptScratch,
    PlanUndo,
    PlanRedo,
    PlanOtherUndo,
    ConfirmPlan,
    UndoAppend,
    UndoOverwrite,
    KeepHiddenAgents,
    DropHiddenAgents,
    RetryFailed,
    EditBaseline,
    EditExternally,
    InsertText,
    AppendText,
    AppendToLine,
    OpenLineBelow,
    OpenLineAbove,
    UndoTyping,
    RedoTyping,
    SelectText,
    CutSelection,
    CopySelection,
    CutChar,
    CutLine,
    CopyTextLine,
    PasteText,
    CursorLeft,
    CursorRight,
    NextWord,
    PreviousWord,
    LineStart,
    LineEnd,
    NextFinding,
    PreviousFinding,
    FixFinding,
    CommandLine,
    UndoSave,
    ConfirmSave,
    ShowChanges,
    MergeChanges,
    TakeTheirs,
    OverwriteFile,
    RecoverDraft,
    DiscardDraft,
    CopyName,
    CopyPath,
    CopyDigest,
    CopyPatch,
    CopyLine,
    CopyAll,
    CopyCommand,
    CopyPlan,
    CopyScheduleLine,
    ControlTimer,
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
    FoldReport,
    MoreContext,
    LessContext,
    ToggleIgnoreWhitespace,
    Search,
    NextHit,
    PreviousHit,
    NextHunk,
    PreviousHunk,
    ToggleMark,
    PromoteLines,
    SaveMarkedLines,
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
    GoToTrouble,
    GoFleet,
    GoAgent,
    GoReset,
    GoLog,
    GoHosts,
    GoBaselines,
    GoVerify,
    GoArchives,
    CompareEntry,
    ChangeOrder,
    TogglePin,
    ShowTimeline,
    ShowRetention,
    PlanPrune,
    ExportEntry,
    PlanEntryRestore,
    VerifyNow,
    CompareVersions,
    OpenVersions,
    NextVersion,
    PreviousVersion,
    ChooseOldSide,
    ChooseNewSide,
    PlanSeal,
    PlanRestore,
    NewBaseline,
    ReplaceText,
    NameSigningKey,
    Help,
    Palette,
    ToggleReadOnly,
    Redraw,
    Suspend,
    Quit,
    /// The command that the caller of the console adds; it has no row in the table.
    Extra,
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
    EditorPanel, EditorSelection, EditorTyping, EntryDiff, Fleet, Hosts, Log, Plan, PrunePlan,
    Result as Outcome, Retention, Run, Schedule, Timeline, Verify, Versions,
};

/// Contexts that can be left.
const LEAVABLE_CONTEXTS: &[KeyContext] = &[
    EditorTyping,
    Fleet,
    Agent,
    Plan,
    Run,
    Outcome,
    Log,
    Schedule,
    Hosts,
    Baselines,
    Versions,
    Comparison,
    BaselinePlan,
    Verify,
    Archives,
    ArchiveText,
    EntryDiff,
    Timeline,
    Retention,
    PrunePlan,
    Editor,
    EditorSelection,
    EditorPanel,
    EditorDialog,
];

/// Contexts with a list or a text to scroll.
const SCROLLABLE_CONTEXTS: &[KeyContext] = LEAVABLE_CONTEXTS.split_at(1).1;

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
    OpenDiff               "diff"           "diff"               Viewing    &[Fleet, Agent, Plan, Run, Outcome, Log], ["d"], "Show the live diff of the agent under the cursor";
    PlanReset              "reset"          "plan reset"         Actions    &[Fleet, Agent], ["X"], "Plan a reset of marked agents, or this one; changes nothing";
    PlanPush               "push"           "push"               Actions    &[Fleet, Agent, Baselines], ["P"], "Plan a push: install baselines, keep all or marked scratch";
    ChangeKeptScratch      "keep-scratch"   "change kept scratch" Actions   &[Plan], ["s"], "Change what a push keeps of the scratch: all, marked, none";
    PlanUndo               "undo"           "undo"               Actions    &[Fleet, Agent, Outcome, Baselines, Comparison], ["z" "u"], "Plan an undo: of the newest act of this console, or here";
    PlanRedo               "redo"           ""                   Actions    &[Fleet, Agent], ["Z"], "Plan to undo the newest undo of this console, or here";
    PlanOtherUndo          "other-undo"     "other act"          Actions    &[Plan, BaselinePlan], ["Tab"], "Plan to undo or redo another act instead, the next older one";
    ConfirmPlan            "confirm"        "run"                Actions    &[Plan, BaselinePlan], ["y"], "Run the plan, where one key is enough";
    UndoAppend             "undo-append"    "append newer notes" Actions    &[Plan], ["a"], "Undo; append what was written since to the restored file";
    UndoOverwrite          "undo-overwrite" "overwrite"          Actions    &[Plan], ["o"], "Undo; archive what was written since";
    KeepHiddenAgents       "keep-hidden"    "keep hidden"        Actions    &[Plan], ["h"], "Keep marked agents in the plan though the filter hides them";
    DropHiddenAgents       "drop-hidden"    "drop hidden"        Actions    &[Plan], ["v"], "Remove marked agents from the plan if the filter hides them";
    RetryFailed            "retry"          "retry"              Actions    &[Outcome], ["r"], "Plan again for failed, refused and not started agents";
    EditBaseline           "edit"           "edit"               Actions    &[Fleet, Agent, Baselines, Comparison], ["e"], "Edit the baseline of this agent";
    EditExternally         "edit-external"  ""                   Actions    &[Fleet, Agent, Baselines, Comparison, Editor], ["E"], "Edit the baseline in $VISUAL or $EDITOR";
    PlanRestore            "restore"        "restore"            Actions    &[Baselines, Versions, Comparison, Verify], ["X"], "Plan to put the sealed version back, or the one chosen";
    PlanSeal               "seal"           "seal"               Actions    &[Baselines, Versions, Comparison, Verify], ["S"], "Plan a seal of marked baselines, or this one";
    ReplaceText            "replace"        "replace"            Actions    &[Baselines], ["s"], "Plan one search and replace for all marked baselines";
    NewBaseline            "new"            "new"                Actions    &[Baselines], ["N"], "Plan a new baseline from the template or from this one";
    NameSigningKey         "sign"           "sign"               Actions    &[BaselinePlan], ["K"], "Sign the seal: name the file of an SSH key";
    InsertText             "insert"         "insert"             Actions    &[Editor], ["i"], "Type text before the cursor; Esc ends typing";
    AppendText             "append"         ""                   Actions    &[Editor], ["a"], "Type text behind the cursor";
    AppendToLine           "append-line"    ""                   Actions    &[Editor], ["A"], "Type text at the end of the line";
    OpenLineBelow          "line-below"     ""                   Actions    &[Editor], ["o"], "Type a new line below";
    OpenLineAbove          "line-above"     ""                   Actions    &[Editor], ["O"], "Type a new line above";
    UndoTyping             "undo-typing"    "undo"               Actions    &[Editor], ["u"], "Undo the last change of the text";
    RedoTyping             "redo-typing"    ""                   Actions    &[Editor], ["^r"], "Redo the last change that was undone";
    ConfirmSave            "confirm-save"   "save"               Actions    &[EditorDialog], ["y"], "Save the text as shown";
    ShowChanges            "changes"        "diff"               Actions    &[EditorDialog], ["d"], "Show or hide the difference from the file";
    MergeChanges           "merge"          "merge"              Actions    &[EditorDialog], ["m"], "Merge both changes; conflicts are marked in the text";
    TakeTheirs             "theirs"         "take theirs"        Actions    &[EditorDialog], ["t"], "Take the file as it is now; u brings your text back";
    OverwriteFile          "overwrite-file" "overwrite"          Actions    &[EditorDialog], ["o"], "Save your text over the changed file; asks for the word";
    RecoverDraft           "recover"        "recover"            Actions    &[EditorDialog], ["r"], "Continue with the text that was not saved";
    DiscardDraft           "discard"        "discard"            Actions    &[EditorDialog], ["x"], "Remove the text that was not saved; asks for the word";
    UndoSave               "undo-save"      "undo save"          Actions    &[Editor, Log], ["z"], "Plan to put back the version from before a save";
    CommandLine            "command-line"   "w save, wq, q!" Actions   &[Editor, EditorSelection, EditorPanel], [":"], "Type w, wq, q, w! or q!, or a line number";
    NextFinding            "next-finding"   "finding"            Viewing    &[Editor, EditorPanel], ["}"], "Go to the next finding of the lint";
    PreviousFinding        "previous-finding" ""                 Viewing    &[Editor, EditorPanel], ["{"], "Go to the previous finding of the lint";
    FixFinding             "fix"            "fix"                Actions    &[Editor, EditorPanel], ["F"], "Apply the fix of this finding; u undoes it";
    SelectText             "select"         "select"             Selection  &[Editor, EditorSelection], ["v"], "Begin or end a selection of text";
    CutSelection           "cut"            "cut"                Actions    &[EditorSelection], ["d" "x"], "Cut the selected text";
    CopySelection          "copy-selection" "copy"               Actions    &[EditorSelection], ["y"], "Copy the selected text, also to the clipboard";
    CutChar                "cut-char"       ""                   Actions    &[Editor], ["x" "Del"], "Cut the character at the cursor";
    CutLine                "cut-line"       ""                   Actions    &[Editor], ["dd"], "Cut the line";
    CopyTextLine           "copy-text-line" ""                   Actions    &[Editor], ["yy"], "Copy the line, also to the clipboard";
    PasteText              "paste"          ""                   Actions    &[Editor], ["p"], "Paste what was cut or copied";
    CursorLeft             "left"           ""                   Navigation &[Editor, EditorSelection], ["h" "Left" "Backspace"], "Move left";
    CursorRight            "right"          ""                   Navigation &[Editor, EditorSelection], ["l" "Right"], "Move right";
    NextWord               "next-word"      ""                   Navigation &[Editor, EditorSelection], ["w"], "Move to the next word";
    PreviousWord           "previous-word"  ""                   Navigation &[Editor, EditorSelection], ["b"], "Move to the previous word";
    LineStart              "line-start"     ""                   Navigation &[Editor, EditorSelection], ["0" "Home"], "Move to the beginning of the line";
    LineEnd                "line-end"       ""                   Navigation &[Editor, EditorSelection], ["$" "End"], "Move to the end of the line";
    ControlTimer           "timer"          "run/skip/pause"     Actions    &[Log, Schedule], ["T"], "Run, skip or pause this timer; each is a plan first";
    AnswerQuestion         "answer"         ""                   Actions    &[Any], ["@"], "Answer a host: passphrase, password or unknown host key";
    ToggleMark             "mark"           "mark"               Selection  &[Fleet, Agent, Baselines, Archives, ArchiveText, Timeline], ["Space"], "Mark or unmark the row or scratch line, and move down";
    Filter                 "filter"         "filter"             Selection  &[Fleet, Baselines], ["/"], "Filter: words !not ~fuzzy is:drifted is:marked host:NAME";
    MarkRange              "mark-range"     ""                   Selection  &[Fleet, Agent, ArchiveText], ["v"], "Mark from the last marked agent or line to the cursor";
    MarkAll                "mark-all"       ""                   Selection  &[Fleet, Agent, Baselines, ArchiveText], ["a"], "Mark all rows shown, or all lines of the scratch";
    ClearMarks             "clear-marks"    ""                   Selection  &[Fleet, Agent, Baselines, ArchiveText], ["A"], "Clear all marks, including hidden ones";
    PromoteLines           "promote"        "promote"            Selection  &[Agent, ArchiveText], ["p"], "Edit the baseline with the marked scratch lines inserted";
    SaveMarkedLines        "save-lines"     ""                   Selection  &[Agent], ["W"], "Save the marked lines of the scratch to a new file";
    ChooseSortOrder        "sort"           ""                   Selection  &[Fleet], ["s"], "Choose the sort order";
    ReverseSortOrder       "reverse"        ""                   Selection  &[Fleet], ["S"], "Reverse the sort order";
    NextHunk               "next-hunk"      "hunk"               Viewing    &[Agent, Comparison, BaselinePlan, EntryDiff], ["}"], "Go to the next hunk";
    PreviousHunk           "previous-hunk"  ""                   Viewing    &[Agent, Comparison, BaselinePlan, EntryDiff], ["{"], "Go to the previous hunk";
    NextAgent              "next-agent"     "agent"              Navigation &[Agent, Comparison], ["]"], "Go to the next agent or baseline and stay on this screen";
    PreviousAgent          "previous-agent" ""                   Navigation &[Agent, Comparison], ["["], "Go to the previous agent or baseline and stay here";
    NextTab                "next-tab"       "tab"                Viewing    &[Agent, Editor, EditorPanel, Log, Schedule], ["Tab"], "Go to the next tab, panel of the editor, or to the timers";
    PreviousTab            "previous-tab"   ""                   Viewing    &[Agent, Editor, EditorPanel, Log, Schedule], ["S-Tab"], "Go to the previous tab or panel";
    Search                 "search"         "search"             Viewing    &[Agent, Log, Comparison, Editor, EditorSelection, Archives, ArchiveText, EntryDiff], ["/"], "Search the text";
    NextHit                "next-hit"       ""                   Viewing    &[Agent, Log, Comparison, Editor, EditorSelection, Archives, ArchiveText, EntryDiff], ["n"], "Go to the next hit; without a search, the next hunk";
    PreviousHit            "previous-hit"   ""                   Viewing    &[Agent, Log, Comparison, Editor, EditorSelection, Archives, ArchiveText, EntryDiff], ["N"], "Go to the previous hit; without a search, the previous hunk";
    ToggleSideBySide       "sides"          "side-by-side"       Viewing    &[Agent, Comparison, BaselinePlan, EntryDiff], ["t"], "Toggle side-by-side and unified diff";
    ToggleWrap             "wrap"           "wrap"               Viewing    &[Agent, Comparison, BaselinePlan, ArchiveText, EntryDiff], ["w"], "Toggle line wrapping";
    ToggleWhitespaceMarks  "reveal"         "whitespace"         Viewing    &[Agent, Comparison, BaselinePlan, ArchiveText, EntryDiff], ["."], "Toggle whitespace marks; dangerous characters always show";
    ToggleFullScreen       "full"           "full"               Viewing    &[Agent], ["f"], "Toggle full screen: the text without borders, for copying";
    FoldReport             "report"         ""                   Viewing    &[Log], ["f"], "Fold or unfold the report since last evening";
    MoreContext            "more-context"   ""                   Viewing    &[Agent, Comparison, BaselinePlan, EntryDiff], ["="], "Show more unchanged lines around each change";
    LessContext            "less-context"   ""                   Viewing    &[Agent, Comparison, BaselinePlan, EntryDiff], ["_"], "Show fewer unchanged lines around each change";
    ToggleIgnoreWhitespace "blanks"         ""                   Viewing    &[Agent, Comparison, BaselinePlan, EntryDiff], ["i"], "Hide or show whitespace-only changes; findings count them";
    OpenSelected           "open"           "open"               Viewing    &[Fleet, Agent, Outcome, Log, Schedule, Hosts, Baselines, Versions, Verify, Editor, EditorPanel, EditorDialog, Archives, Timeline, Retention], ["Enter" "l" "Right"], "Open the row: an agent, run, baseline, host or entry";
    CompareEntry           "compare-entry"  "diff"               Viewing    &[Archives, ArchiveText, Timeline], ["d"], "Compare the entry with the memory, or the marked entry";
    ShowTimeline           "timeline"       "timeline"           Viewing    &[Archives, ArchiveText], ["t"], "Show all runs and entries of this agent, newest first";
    ShowRetention          "retention"      "retention"          Viewing    &[Archives], ["r"], "Show what retention deletes now, and why the rest stays";
    PlanPrune              "prune"          "prune"              Actions    &[Retention], ["X"], "Plan to delete what retention shows; typing confirms it";
    OpenPager              "pager"          "pager"              Viewing    &[Agent, Outcome, Log, Verify, Archives, ArchiveText, Timeline], ["o"], "Open the text, or the entry under the cursor, in $PAGER";
    ExportEntry            "export"         "export"             Viewing    &[Archives, ArchiveText, Timeline], ["W"], "Export the entry to a new file outside of the archive";
    CopyName               "copy-name"      ""                   Viewing    &[Fleet, Agent, Outcome, Archives, ArchiveText, Timeline], ["yn" "c"], "Copy the name of the agent";
    CopyPath               "copy-path"      ""                   Viewing    &[Fleet, Agent, Outcome, Archives, ArchiveText, Timeline], ["yp"], "Copy the path of the memory or entry";
    CopyDigest             "copy-digest"    ""                   Viewing    &[Fleet, Agent, Outcome], ["yh"], "Copy the digest of its memory";
    CopyPatch              "copy-diff"      ""                   Viewing    &[Fleet, Agent, Outcome], ["yd"], "Copy its changes above the separator, as a patch";
    CopyLine               "copy-line"      ""                   Viewing    &[Agent, Outcome, Log, Archives, ArchiveText], ["yl"], "Copy the marked lines, the line of the hit, or this row";
    CopyAll                "copy-all"       ""                   Viewing    &[Agent, Outcome, Log, Verify, ArchiveText], ["ya"], "Copy the whole text, or the report of a run or verification";
    CopyCommand            "copy-command"   ""                   Viewing    &[Outcome, Log], ["yc"], "Copy the command line equivalent to this run";
    CopyPlan               "copy-plan"      ""                   Viewing    &[Plan, BaselinePlan, PrunePlan], ["c"], "Copy the command line equivalent to this plan";
    CopyScheduleLine       "copy-schedule"  "copy"               Viewing    &[Schedule], ["y"], "Copy how to install a schedule, or to read a timer's output";
    ReadAgent              "read"           ""                   Viewing    &[Fleet, Agent], ["r"], "Read this agent again, and retry its host at once";
    RetryHost              "try-now"        "retry now"          Viewing    &[Hosts], ["r"], "Retry this host now, and read its agents again";
    ReadAllAgents          "read-all"       ""                   Viewing    &[Fleet, Agent, Outcome, Log, Schedule, Hosts, Baselines, Versions, Comparison, Archives, Timeline, Retention], ["R" "^r"], "Read all agents and this screen again; retry lost hosts";
    Down                   "down"           ""                   Navigation SCROLLABLE_CONTEXTS, ["j" "Down"], "Move down";
    Up                     "up"             ""                   Navigation SCROLLABLE_CONTEXTS, ["k" "Up"], "Move up";
    HalfDown               "half-down"      ""                   Navigation SCROLLABLE_CONTEXTS, ["^d"], "Move half a page down";
    HalfUp                 "half-up"        ""                   Navigation SCROLLABLE_CONTEXTS, ["^u"], "Move half a page up";
    PageDown               "page-down"      ""                   Navigation SCROLLABLE_CONTEXTS, ["PgDn" "^f"], "Move a page down";
    PageUp                 "page-up"        ""                   Navigation SCROLLABLE_CONTEXTS, ["PgUp" "^b"], "Move a page up";
    Top                    "top"            ""                   Navigation SCROLLABLE_CONTEXTS, ["gg" "Home"], "Go to the beginning";
    Bottom                 "bottom"         ""                   Navigation SCROLLABLE_CONTEXTS, ["G" "End"], "Go to the end";
    GoBack                 "back"           "back"               Navigation LEAVABLE_CONTEXTS, ["q" "Esc" "h" "Left"], "Go back one level; at the fleet, the first key quits";
    GoToPreviousScreen     "last"           ""                   Navigation &[Any], ["-"], "Go to the previous screen";
    GoToTrouble            "trouble"        ""                   Navigation &[Any], ["'"], "Go to the agent that became worse, and back from there";
    GoFleet                "fleet"          ""                   Navigation &[Any], ["1"], "Go to the fleet";
    GoAgent                "agent"          ""                   Navigation &[Any], ["2"], "Go to the agent under the cursor";
    GoBaselines            "baselines"      ""                   Navigation &[Any], ["3"], "Go to the baselines: state, versions, comparisons";
    GoArchives             "archives"       ""                   Navigation &[Any], ["4"], "Go to the archives: search all that agents wrote";
    ChangeOrder            "order"          "order"              Selection  &[Archives], ["s"], "Search in another order: best, newest, oldest, largest";
    PlanEntryRestore       "restore-entry"  "restore plan"       Actions    &[Archives, ArchiveText, Timeline], ["X"], "Plan to restore the memory from before this entry's run";
    TogglePin              "pin"            "pin"                Actions    &[Archives, ArchiveText, Timeline], ["P"], "Pin the entry, which retention never deletes, or unpin it";
    GoVerify               "verify"         ""                   Navigation &[Any], ["6"], "Go to the verification of ledger, archive and baselines";
    VerifyNow              "verify-now"     "verify"             Viewing    &[Any], ["V"], "Verify now: ledger, archive, baselines and their seal";
    CompareVersions        "compare"        "compare"            Viewing    &[Baselines, Versions, Verify], ["d"], "Show what changed in the baseline under the cursor";
    OpenVersions           "versions"       "versions"           Viewing    &[Baselines, Comparison], ["v"], "Show the versions of this baseline";
    NextVersion            "next-version"   "other version"      Viewing    &[Comparison, EntryDiff], ["Tab"], "Compare with the next version, or the next other text";
    PreviousVersion        "previous-version" ""                 Viewing    &[Comparison, EntryDiff], ["S-Tab"], "Compare with the one before it";
    ChooseOldSide          "old-side"       "old"                Viewing    &[Comparison], ["<"], "Choose the old side: a version, or another baseline";
    ChooseNewSide          "new-side"       "new"                Viewing    &[Comparison], [">"], "Choose the new side: a version, or another baseline";
    GoReset                "plan"           ""                   Navigation &[Any], ["5"], "Go to the plan, run or result";
    GoLog                  "log"            "log"                Navigation &[Any], ["7"], "Go to the log, the report and the schedule";
    GoHosts                "hosts"          ""                   Navigation &[Any], ["8"], "Go to the hosts: state and reason of each";
    ToggleReadOnly         "read-only"      ""                   General    &[Any], ["!"], "Toggle read-only; off also unlocks agents for 30 minutes";
    Redraw                 "redraw"         ""                   General    &[Any], ["^l"], "Redraw the screen";
    Suspend                "suspend"        ""                   General    &[Any], ["^z"], "Suspend to the shell; fg resumes";
    Quit                   "quit"           ""                   General    &[Any], ["^c"], "Quit; in a run: finish agents in progress, start no others";
    Palette                "palette"        "commands"           General    &[Any], [":"], "Find a command, screen, sort order or agent by a few letters";
    Help                   "help"           "help"               General    &[Any], ["?" "F1"], "Show the keys of this screen; Enter runs one";
}

/// Returns the row of a command of the table; [`crate::console::keys::keymap::Keymap::spec_of`] also knows an added
/// one.
pub fn spec_of(command: Command) -> &'static CommandSpec {
    // `command_table_is_consistent` proves that every command has a row.
    COMMAND_TABLE
        .iter()
        .find(|spec| spec.command == command)
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

/// Whether a command requests a plan, which then waits for confirmation.
pub fn requests_plan(command: Command) -> bool {
    matches!(
        command,
        Command::PlanReset
            | Command::PlanPush
            | Command::ChangeKeptScratch
            | Command::PlanUndo
            | Command::UndoSave
            | Command::PlanRedo
            | Command::PlanOtherUndo
            | Command::RetryFailed
            | Command::UndoAppend
            | Command::UndoOverwrite
            | Command::PlanRestore
            | Command::PlanEntryRestore
            | Command::PlanSeal
            | Command::PlanPrune
            | Command::ControlTimer
    )
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
