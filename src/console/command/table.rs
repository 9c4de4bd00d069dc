//! The table of all commands. A row has the data of a command, and for each context where it differs:
//! the check that says why the command is not possible, and its action. The order is that of help
//! and of the footer.
//!
//! ```text
//! NAME id hint category[/CHANGE_KIND] contexts, keys, title [offered if (CONDITION)]:
//!     CONTEXT [if CHECK] => ACTION, …;
//! ```
//!
//! A check is not a match guard: the first arm whose context matches decides, and a failed check
//! refuses the command.
//!
//! The rows stand in a macro, because their parts belong to different floors: the data to
//! [`command`](super), which names no screen, and the checks and actions to
//! [`dispatch`](crate::console::dispatch), which knows all of them.

/// Passes the rows to a macro.
macro_rules! command_rows {
    ($define:ident) => {
        $define! {|model, command, key|
            OpenDiff               "diff"           "diff"               Viewing       &[Fleet, Agent, Plan, Run, Outcome, Log], ["d"], "Show the live diff of the agent under the cursor":
                _ if check_subject_diff(model) => agent::open_diff(model);
            PlanReset              "reset"          "plan reset"         Actions/Plan  &[Fleet, Agent], ["X"], "Plan a reset of marked agents, or this one; changes nothing":
                _ if check_reset_targets(model) => reset::plan_reset(model);
            PlanPush               "push"           "push"               Actions/Plan  &[Fleet, Agent, Baselines, Comparison], ["P"], "Plan a push: install baselines, keep all or marked scratch":
                _ if check_reset_targets(model) => reset::plan_push(model);
            ChangeKeptScratch      "keep-scratch"   "change kept scratch" Actions/Plan  &[Plan], ["s"], "Change what a push keeps of the scratch: all, marked, none"
                offered if (reset::check_push(model).is_ok()):
                _ if reset::check_push(model) => reset::change_kept_scratch(model);
            PlanUndo               "undo"           "undo"               Actions/Plan  &[Fleet, Agent, Outcome, Baselines, Comparison], ["z" "u"], "Plan an undo: of the newest act of this console, or here":
                Baselines | Comparison if baselines::check_change(model) => undo::plan_undo(model),
                Fleet if undo::check_undo(model) => undo::plan_undo(model),
                _ if check_target_agents(model) => undo::plan_undo(model);
            PlanRedo               "redo"           ""                   Actions/Plan  &[Fleet, Agent], ["Z"], "Plan to undo the newest undo of this console, or here":
                Fleet if undo::check_redo(model) => undo::plan_redo(model),
                _ if check_target_agents(model) => undo::plan_redo(model);
            PlanOtherUndo          "other-undo"     "other act"          Actions/Plan  &[Plan, BaselinePlan], ["Tab"], "Plan to undo or redo another act instead, the next older one"
                offered if (planned_undo_offer(model).is_some()):
                _ if check_other_undo(model) => undo::plan_other(model);
            ConfirmPlan            "confirm"        "run"                Actions/Write &[Plan, BaselinePlan], ["y"], "Run the plan, where one key is enough":
                BaselinePlan if baseline_plan::check_confirmation(model) => plan::confirm(model),
                _ if reset::check_confirmation(model) => plan::confirm(model);
            UndoAppend             "undo-append"    "append newer notes" Actions/Plan  &[Plan], ["a"], "Undo; append what was written since to the restored file":
                _ if reset::check_undo_mode(model, UndoMode::Append) => reset::plan_undo_with_mode(model, UndoMode::Append);
            UndoOverwrite          "undo-overwrite" "overwrite"          Actions/Plan  &[Plan], ["o"], "Undo; archive what was written since":
                _ if reset::check_undo_mode(model, UndoMode::Overwrite) => reset::plan_undo_with_mode(model, UndoMode::Overwrite);
            KeepHiddenAgents       "keep-hidden"    "keep hidden"        Actions       &[Plan], ["h"], "Keep marked agents in the plan though the filter hides them"
                offered if (reset::check_hidden_agents(model).is_ok()):
                _ if reset::check_hidden_agents(model) => reset::keep_hidden_agents(model);
            DropHiddenAgents       "drop-hidden"    "drop hidden"        Actions       &[Plan], ["v"], "Remove marked agents from the plan if the filter hides them"
                offered if (reset::check_hidden_agents(model).is_ok()):
                _ if reset::check_hidden_agents(model) => reset::drop_hidden_agents(model);
            RetryFailed            "retry"          "retry"              Actions/Plan  &[Outcome], ["r"], "Plan again for failed, refused and not started agents":
                _ if retry_request(model) => reset::retry_failed(model);
            ChooseOperation        "operation"      "operation"          Actions/Write &[Agent], ["O"], "Choose an operation on the memory and plan it"
                offered if (memory::has_layout(model)):
                _ if memory::check_operations(model) => memory::choose_operation(model);
            EditBaseline           "edit"           "edit"               Actions/Write &[Fleet, Agent, Baselines, Comparison], ["e"], "Edit the baseline of this agent":
                _ if check_subject_baseline(model) => editor::open_subject(model);
            EditExternally         "edit-external"  ""                   Actions/Write &[Fleet, Agent, Baselines, Comparison, Editor], ["E"], "Edit the baseline in $VISUAL or $EDITOR":
                _ if handoff::check_external_edit(model) => handoff::request_edit(model);
            PlanRestore            "restore"        "restore"            Actions/Plan  &[Baselines, Versions, Comparison, Verify], ["X"], "Plan to put the sealed version back, or the one chosen":
                Verify if verify::check_change(model) => baseline_plan::plan_restore(model),
                _ if baselines::check_restore(model) => baseline_plan::plan_restore(model);
            PlanSeal               "seal"           "seal"               Actions/Plan  &[Baselines, Versions, Comparison, Verify], ["S"], "Plan a seal of marked baselines, or this one":
                Verify if verify::check_change(model) => baseline_plan::plan_seal(model),
                _ if baselines::check_change(model) => baseline_plan::plan_seal(model);
            ReplaceText            "replace"        "replace"            Actions/Write &[Baselines], ["s"], "Plan one search and replace for all marked baselines":
                _ if baselines::check_change(model) => baseline_plan::prompt_pattern(model);
            NewBaseline            "new"            "new"                Actions/Write &[Baselines], ["N"], "Plan a new baseline from the template or from this one":
                _ if check_baseline_planning(model) => baseline_plan::prompt_new_name(model);
            NameSigningKey         "sign"           "sign"               Actions/Write &[BaselinePlan], ["K"], "Sign the seal: name the file of an SSH key":
                _ if baseline_plan::check_signing(model) => baseline_plan::prompt_signing_key(model);
            InsertText             "insert"         "insert"             Actions       &[Editor], ["i"], "Type text before the cursor; Esc ends typing":
                _ if editor::check_editable(model) => editor::begin_typing(model, |_| {});
            AppendText             "append"         ""                   Actions       &[Editor], ["a"], "Type text behind the cursor":
                _ if editor::check_editable(model) => editor::begin_typing(model, |text| text.move_glyph(true));
            AppendToLine           "append-line"    ""                   Actions       &[Editor], ["A"], "Type text at the end of the line":
                _ if editor::check_editable(model) => editor::begin_typing(model, |text| text.move_to_line_end(true));
            OpenLineBelow          "line-below"     ""                   Actions       &[Editor], ["o"], "Type a new line below":
                _ if editor::check_editable(model) => editor::begin_typing(model, TextBuffer::open_line_below);
            OpenLineAbove          "line-above"     ""                   Actions       &[Editor], ["O"], "Type a new line above":
                _ if editor::check_editable(model) => editor::begin_typing(model, TextBuffer::open_line_above);
            UndoTyping             "undo-typing"    "undo"               Actions       &[Editor], ["u"], "Undo the last change of the text":
                _ if editor::check_editable(model) => editor::undo_typing(model, TextBuffer::undo, "nothing to undo");
            RedoTyping             "redo-typing"    ""                   Actions       &[Editor], ["^r"], "Redo the last change that was undone":
                _ if editor::check_editable(model) => editor::undo_typing(model, TextBuffer::redo, "nothing to redo");
            ConfirmSave            "confirm-save"   "save"               Actions       &[EditorDialog], ["y"], "Save the text as shown":
                _ if editor::check_save(model) => editor::confirm_save(model);
            ShowChanges            "changes"        "diff"               Actions       &[EditorDialog], ["d"], "Show or hide the difference from the file":
                _ if editor::check_changes(model) => editor::toggle_changes(model);
            MergeChanges           "merge"          "merge"              Actions       &[EditorDialog], ["m"], "Merge both changes; conflicts are marked in the text":
                _ if editor::check_changed_text(model) => editor::merge_changes(model);
            TakeTheirs             "theirs"         "take theirs"        Actions       &[EditorDialog], ["t"], "Take the file as it is now; u brings your text back":
                _ if editor::check_changed_text(model) => editor::take_theirs(model);
            OverwriteFile          "overwrite-file" "overwrite"          Actions       &[EditorDialog], ["o"], "Save your text over the changed file; asks for the word":
                _ if editor::check_changed_file(model) => editor::prompt_overwrite(model);
            RecoverDraft           "recover"        "recover"            Actions       &[EditorDialog], ["r"], "Continue with the text that was not saved":
                _ if editor::check_draft(model) => editor::take_draft(model);
            DiscardDraft           "discard"        "discard"            Actions       &[EditorDialog], ["x"], "Remove the text that was not saved; asks for the word":
                _ if editor::check_draft(model) => editor::prompt_discard(model);
            UndoSave               "undo-save"      "undo save"          Actions/Plan  &[Editor, Log], ["z"], "Plan to put back the version from before a save":
                _ if undo::check_save(model) => undo::plan_undo(model);
            CommandLine            "command-line"   "w save, wq, q!" Actions       &[Editor, EditorSelection, EditorPanel], [":"], "Type w, wq, q, w! or q!, or a line number":
                _ => editor::begin_command_line(model);
            NextFinding            "next-finding"   "finding"            Viewing       &[Editor, EditorPanel], ["}"], "Go to the next finding of the lint":
                _ => editor::go_to_finding(model, true);
            PreviousFinding        "previous-finding" ""                 Viewing       &[Editor, EditorPanel], ["{"], "Go to the previous finding of the lint":
                _ => editor::go_to_finding(model, false);
            FixFinding             "fix"            "fix"                Actions       &[Editor, EditorPanel], ["F"], "Apply the fix of this finding; u undoes it":
                _ if editor::check_editable(model) => editor::fix_finding(model);
            SelectText             "select"         "select"             Selection     &[Editor, EditorSelection], ["v"], "Begin or end a selection of text":
                _ => editor::move_in_text(model, toggle_selection);
            CutSelection           "cut"            "cut"                Actions       &[EditorSelection], ["d" "x"], "Cut the selected text":
                _ if editor::check_editable(model) => editor::change_at_rest(model, cut_selection);
            CopySelection          "copy-selection" "copy"               Actions       &[EditorSelection], ["y"], "Copy the selected text, also to the clipboard":
                _ => editor::copy(model, copy_selection);
            CutChar                "cut-char"       ""                   Actions       &[Editor], ["x" "Del"], "Cut the character at the cursor":
                _ if editor::check_editable(model) => editor::change_at_rest(model, |text| cut_chars(text, 1));
            CutLine                "cut-line"       ""                   Actions       &[Editor], ["dd"], "Cut the line":
                _ if editor::check_editable(model) => editor::change_at_rest(model, |text| cut_lines(text, 1));
            CopyTextLine           "copy-text-line" ""                   Actions       &[Editor], ["yy"], "Copy the line, also to the clipboard":
                _ => editor::copy(model, |text| copy_lines(text, 1));
            PasteText              "paste"          ""                   Actions       &[Editor], ["p"], "Paste what was cut or copied":
                _ if editor::check_editable(model) => editor::change_at_rest(model, paste_register);
            CursorLeft             "left"           ""                   Navigation    &[Editor, EditorSelection], ["h" "Left" "Backspace"], "Move left":
                _ => editor::move_in_text(model, |text| text.move_glyph(false));
            CursorRight            "right"          ""                   Navigation    &[Editor, EditorSelection], ["l" "Right"], "Move right":
                _ => editor::move_in_text(model, |text| text.move_glyph(true));
            NextWord               "next-word"      ""                   Navigation    &[Editor, EditorSelection], ["w"], "Move to the next word":
                _ => editor::move_in_text(model, |text| text.move_word(true));
            PreviousWord           "previous-word"  ""                   Navigation    &[Editor, EditorSelection], ["b"], "Move to the previous word":
                _ => editor::move_in_text(model, |text| text.move_word(false));
            LineStart              "line-start"     ""                   Navigation    &[Editor, EditorSelection], ["0" "Home"], "Move to the beginning of the line":
                _ => editor::move_in_text(model, |text| text.move_to_line_end(false));
            LineEnd                "line-end"       ""                   Navigation    &[Editor, EditorSelection], ["$" "End"], "Move to the end of the line":
                _ => editor::move_in_text(model, |text| text.move_to_line_end(true));
            ControlTimer           "timer"          "run/skip/pause"     Actions/Plan  &[Log, Schedule], ["T"], "Run, skip or pause this timer; each is a plan first":
                _ if log::schedule::check_timer(model) => log::schedule::open_dialog(model);
            AnswerQuestion         "answer"         ""                   Actions       &[Any], ["@"], "Answer a host: passphrase, password or unknown host key":
                _ if require(!model.questions.is_empty(), "no questions from hosts") => question::open_current_question(model);
            ToggleMark             "mark"           "mark"               Selection     &[Fleet, Agent, Baselines, Archives, ArchiveText, Timeline], ["Space"], "Mark or unmark the row or scratch line, and move down":
                Fleet if fleet::check_cursor(model) => fleet::change_marks(model, command),
                Agent if agent::check_line_cursor(model) => agent::change_marks(model, command),
                Baselines if baselines::check_subject(model) => baselines::change_marks(model, command),
                ArchiveText if archives::check_text(model) => archives::change_marks(model, command),
                _ if model.archives.chosen_entry() => archives::change_marks(model, command);
            Filter                 "filter"         "filter"             Selection     &[Fleet, Baselines], ["/"], "Filter: words !not ~fuzzy is:drifted is:marked host:NAME":
                _ => screens::begin_filter(model);
            MarkRange              "mark-range"     ""                   Selection     &[Fleet, Agent, ArchiveText], ["v"], "Mark from the last marked agent or line to the cursor":
                Fleet if fleet::check_cursor(model) => fleet::change_marks(model, command),
                Agent if agent::check_line_cursor(model) => agent::change_marks(model, command),
                _ if archives::check_text(model) => archives::change_marks(model, command);
            MarkAll                "mark-all"       ""                   Selection     &[Fleet, Agent, Baselines, ArchiveText], ["a"], "Mark all rows shown, or all lines of the scratch":
                Fleet => fleet::change_marks(model, command),
                Agent if agent::check_line_cursor(model) => agent::change_marks(model, command),
                Baselines => baselines::change_marks(model, command),
                _ if archives::check_text(model) => archives::change_marks(model, command);
            ClearMarks             "clear-marks"    ""                   Selection     &[Fleet, Agent, Baselines, ArchiveText], ["A"], "Clear all marks, including hidden ones":
                Fleet if require(!model.fleet.marks.is_empty(), "no agents marked") => fleet::change_marks(model, command),
                Agent if agent::check_marked_lines(model) => agent::change_marks(model, command),
                Baselines if require(!model.baselines.marks.is_empty(), "no baselines marked") => baselines::change_marks(model, command),
                _ if require(!model.archives.text.marked_lines.is_empty(), "no marked lines") => archives::change_marks(model, command);
            PromoteLines           "promote"        "promote"            Selection     &[Agent, ArchiveText], ["p"], "Edit the baseline with the marked scratch lines inserted":
                Agent if agent::check_promotion(model) => { agent::remember_promoted_lines(model); editor::promote_lines(model) },
                _ if archives::check_promotion(model) => editor::promote_lines(model);
            SaveMarkedLines        "save-lines"     ""                   Selection     &[Agent], ["W"], "Save the marked lines of the scratch to a new file":
                _ if agent::check_marked_lines(model) => agent::prompt_save_path(model);
            ChooseSortOrder        "sort"           ""                   Selection     &[Fleet], ["s"], "Choose the sort order":
                _ => model.overlay = Some(Overlay::palette("sort "));
            SortItems              "sort-items"     "sort"               Selection     &[Agent], ["s"], "Sort a memory: as listed, newest, largest, title":
                _ if memory::check_items(model) => memory::sort_items(model);
            ReverseSortOrder       "reverse"        ""                   Selection     &[Fleet], ["S"], "Reverse the sort order":
                _ => reverse_visible_agents(model);
            NextHunk               "next-hunk"      "hunk"               Viewing       &[Agent, Comparison, BaselinePlan, EntryDiff], ["}"], "Go to the next hunk":
                _ if check_hunks(model) => go_to_hunk(model, true);
            PreviousHunk           "previous-hunk"  ""                   Viewing       &[Agent, Comparison, BaselinePlan, EntryDiff], ["{"], "Go to the previous hunk":
                _ if check_hunks(model) => go_to_hunk(model, false);
            NextAgent              "next-agent"     "agent"              Navigation    &[Agent, Comparison], ["]"], "Go to the next agent or baseline and stay on this screen":
                Comparison => baselines::open_neighbour(model, 1),
                _ => agent::open_neighbour(model, 1);
            PreviousAgent          "previous-agent" ""                   Navigation    &[Agent, Comparison], ["["], "Go to the previous agent or baseline and stay here":
                Comparison => baselines::open_neighbour(model, -1),
                _ => agent::open_neighbour(model, -1);
            NextTab                "next-tab"       "tab"                Viewing       &[Agent, Editor, EditorPanel, Log, Schedule], ["Tab"], "Go to the next tab, panel of the editor, or to the timers":
                Editor | EditorPanel => editor::cycle_panel(model, 1),
                Log | Schedule => log::schedule::toggle_focus(model),
                _ => agent::cycle_tab(model, 1);
            PreviousTab            "previous-tab"   ""                   Viewing       &[Agent, Editor, EditorPanel, Log, Schedule], ["S-Tab"], "Go to the previous tab or panel":
                Editor | EditorPanel => editor::cycle_panel(model, 1),
                Log | Schedule => log::schedule::toggle_focus(model),
                _ => agent::cycle_tab(model, -1);
            Search                 "search"         "search"             Viewing       &[Agent, Log, Comparison, Editor, EditorSelection, Archives, ArchiveText, EntryDiff], ["/"], "Search the text, or filter the items of a memory":
                Agent if agent::check_search(model) => screens::begin_search(model),
                _ => screens::begin_search(model);
            NextHit                "next-hit"       ""                   Viewing       &[Agent, Log, Comparison, Editor, EditorSelection, Archives, ArchiveText, EntryDiff], ["n"], "Go to the next hit; without a search, the next hunk":
                Archives | ArchiveText if archives::check_hits(model) => archives::go_to_next_hit(model, true),
                _ if check_hits(model) => screens::go_to_next_hit(model, true);
            PreviousHit            "previous-hit"   ""                   Viewing       &[Agent, Log, Comparison, Editor, EditorSelection, Archives, ArchiveText, EntryDiff], ["N"], "Go to the previous hit; without a search, the previous hunk":
                Archives | ArchiveText if archives::check_hits(model) => archives::go_to_next_hit(model, false),
                _ if check_hits(model) => screens::go_to_next_hit(model, false);
            ToggleSideBySide       "sides"          "side-by-side"       Viewing       &[Agent, Comparison, BaselinePlan, EntryDiff], ["t"], "Toggle side-by-side and unified diff":
                _ if check_side_by_side(model) => agent::toggle_side_by_side(model);
            ToggleWrap             "wrap"           "wrap"               Viewing       &[Agent, Comparison, BaselinePlan, ArchiveText, EntryDiff], ["w"], "Toggle line wrapping":
                _ if check_text(model) => model.text_options.is_wrapping ^= true;
            ToggleWhitespaceMarks  "reveal"         "whitespace"         Viewing       &[Agent, Comparison, BaselinePlan, ArchiveText, EntryDiff], ["."], "Toggle whitespace marks; dangerous characters always show":
                Agent if agent::check_file_text(model) => model.text_options.is_whitespace_marked ^= true,
                _ if check_text(model) => model.text_options.is_whitespace_marked ^= true;
            ToggleFullScreen       "full"           "full"               Viewing       &[Agent], ["f"], "Toggle full screen: the text without borders, for copying":
                _ if check_text(model) => agent::toggle_full_screen(model);
            FoldReport             "report"         ""                   Viewing       &[Log], ["f"], "Fold or unfold the report since last evening":
                _ => model.log.is_report_folded ^= true;
            MoreContext            "more-context"   ""                   Viewing       &[Agent, Comparison, BaselinePlan, EntryDiff], ["="], "Show more unchanged lines around each change":
                _ if check_comparison(model) => agent::change_context(model, 1);
            LessContext            "less-context"   ""                   Viewing       &[Agent, Comparison, BaselinePlan, EntryDiff], ["_"], "Show fewer unchanged lines around each change":
                _ if check_comparison(model) => agent::change_context(model, -1);
            ToggleIgnoreWhitespace "blanks"         ""                   Viewing       &[Agent, Comparison, BaselinePlan, EntryDiff], ["i"], "Hide or show whitespace-only changes; findings count them":
                _ if check_comparison(model) => model.text_options.is_whitespace_ignored ^= true;
            OpenSelected           "open"           "open"               Viewing       &[Fleet, Agent, Outcome, Log, Schedule, Hosts, Baselines, Versions, Verify, Editor, EditorPanel, EditorDialog, Archives, Timeline, Retention], ["Enter" "l" "Right"], "Open the row: an agent, run, baseline, host or entry":
                Agent if agent::check_selected(model) => agent::open_selected(model),
                Log => log::open_selected(model),
                Schedule if log::schedule::check_timer(model) => log::schedule::open_dialog(model),
                Hosts => hosts::show_host_agents(model),
                Baselines | Versions if baselines::check_subject(model) => baselines::open_selected(model),
                Verify if verify::check_subject(model) => verify::open_selected(model),
                Editor => editor::open_evidence(model),
                EditorPanel => editor::open_selected(model),
                EditorDialog if editor::check_evidence(model) => editor::open_evidence(model),
                Archives | Timeline if archives::check_selected(model) => archives::open_selected(model),
                Retention if archives::retention::check_selected(model) => archives::open_selected(model),
                _ => agent::open_subject(model);
            CompareEntry           "compare-entry"  "diff"               Viewing       &[Archives, ArchiveText, Timeline], ["d"], "Compare the entry with the memory, or the marked entry":
                _ if model.archives.chosen_entry() => archives::compare(model);
            ShowTimeline           "timeline"       "timeline"           Viewing       &[Archives, ArchiveText], ["t"], "Show all runs and entries of this agent, newest first":
                _ if archives::timeline::check_agent(model) => archives::timeline::open(model);
            ShowRetention          "retention"      "retention"          Viewing       &[Archives], ["r"], "Show what retention deletes now, and why the rest stays":
                _ => archives::retention::open(model);
            PlanPrune              "prune"          "prune"              Actions/Plan  &[Retention], ["X"], "Plan to delete what retention shows; typing confirms it":
                _ if archives::retention::check_prune(model) => archives::retention::open_plan(model);
            OpenPager              "pager"          "pager"              Viewing       &[Agent, Outcome, Log, Verify, Archives, ArchiveText, Timeline], ["o"], "Open the text, or the entry under the cursor, in $PAGER":
                Agent if agent::check_pager(model) => handoff::open_pager(model),
                Verify if verify::check_report(model) => handoff::open_pager(model),
                Archives | ArchiveText | Timeline if archives::check_row(model) => handoff::open_pager(model),
                _ if selected_entry(model) => handoff::open_pager(model);
            ExportEntry            "export"         "export"             Viewing       &[Archives, ArchiveText, Timeline], ["W"], "Export the entry to a new file outside of the archive":
                _ if model.archives.chosen_entry() => archives::prompt_export_path(model);
            CopyName               "copy-name"      ""                   Viewing       &[Fleet, Agent, Outcome, Archives, ArchiveText, Timeline], ["yn" "c"], "Copy the name of the agent":
                _ if clipboard_text(model, command) => handoff::copy_to_clipboard(model, command);
            CopyPath               "copy-path"      ""                   Viewing       &[Fleet, Agent, Outcome, Archives, ArchiveText, Timeline], ["yp"], "Copy the path of the memory or entry":
                _ if clipboard_text(model, command) => handoff::copy_to_clipboard(model, command);
            CopyDigest             "copy-digest"    ""                   Viewing       &[Fleet, Agent, Outcome], ["yh"], "Copy the digest of its memory":
                _ if clipboard_text(model, command) => handoff::copy_to_clipboard(model, command);
            CopyPatch              "copy-diff"      ""                   Viewing       &[Fleet, Agent, Outcome], ["yd"], "Copy its changes above the separator, as a patch":
                _ if check_subject_diff(model) => handoff::request_patch(model);
            CopyLine               "copy-line"      ""                   Viewing       &[Agent, Outcome, Log, Archives, ArchiveText], ["yl"], "Copy the marked lines, the line of the hit, or this row":
                Agent if agent::check_clipboard(model, command) => handoff::copy_to_clipboard(model, command),
                _ if clipboard_text(model, command) => handoff::copy_to_clipboard(model, command);
            CopyAll                "copy-all"       ""                   Viewing       &[Agent, Outcome, Log, Verify, ArchiveText], ["ya"], "Copy the whole text, or the report of a run or verification":
                Agent if agent::check_clipboard(model, command) => handoff::copy_to_clipboard(model, command),
                Verify if verify::check_report(model) => handoff::copy_to_clipboard(model, command),
                _ if clipboard_text(model, command) => handoff::copy_to_clipboard(model, command);
            CopyCommand            "copy-command"   ""                   Viewing       &[Outcome, Log], ["yc"], "Copy the command line equivalent to this run":
                _ if clipboard_text(model, command) => handoff::copy_to_clipboard(model, command);
            CopyPlan               "copy-plan"      ""                   Viewing       &[Plan, BaselinePlan, PrunePlan], ["c"], "Copy the command line equivalent to this plan":
                _ if clipboard_text(model, command) => handoff::copy_to_clipboard(model, command);
            CopyScheduleLine       "copy-schedule"  "copy"               Viewing       &[Schedule], ["y"], "Copy how to install a schedule, or to read a timer's output":
                _ if clipboard_text(model, command) => handoff::copy_to_clipboard(model, command);
            ReadAgent              "read"           ""                   Viewing       &[Fleet, Agent], ["r"], "Read this agent again, and retry its host at once":
                _ => agent::read_again(model);
            RetryHost              "try-now"        "retry now"          Viewing       &[Hosts], ["r"], "Retry this host now, and read its agents again":
                _ if hosts::check_host(model) => hosts::retry_host(model);
            ReadAllAgents          "read-all"       ""                   Viewing       &[Fleet, Agent, Outcome, Log, Schedule, Hosts, Baselines, Versions, Comparison, Archives, Timeline, Retention], ["R" "^r"], "Read all agents and this screen again; retry lost hosts":
                _ => fleet::read_all(model);
            Down                   "down"           ""                   Navigation    SCROLLABLE_CONTEXTS, ["j" "Down"], "Move down":
                _ => screens::move_cursor(model, 1);
            Up                     "up"             ""                   Navigation    SCROLLABLE_CONTEXTS, ["k" "Up"], "Move up":
                _ => screens::move_cursor(model, -1);
            HalfDown               "half-down"      ""                   Navigation    SCROLLABLE_CONTEXTS, ["^d"], "Move half a page down":
                _ => screens::move_half_page(model, 1);
            HalfUp                 "half-up"        ""                   Navigation    SCROLLABLE_CONTEXTS, ["^u"], "Move half a page up":
                _ => screens::move_half_page(model, -1);
            PageDown               "page-down"      ""                   Navigation    SCROLLABLE_CONTEXTS, ["PgDn" "^f"], "Move a page down":
                _ => screens::move_page(model, 1);
            PageUp                 "page-up"        ""                   Navigation    SCROLLABLE_CONTEXTS, ["PgUp" "^b"], "Move a page up":
                _ => screens::move_page(model, -1);
            Top                    "top"            ""                   Navigation    SCROLLABLE_CONTEXTS, ["gg" "Home"], "Go to the beginning":
                _ => screens::go_to_end(model, false);
            Bottom                 "bottom"         ""                   Navigation    SCROLLABLE_CONTEXTS, ["G" "End"], "Go to the end":
                _ => screens::go_to_end(model, true);
            GoBack                 "back"           "back"               Navigation    LEAVABLE_CONTEXTS, ["q" "Esc" "h" "Left"], "Go back one level; at the fleet, the first key quits":
                _ => screens::go_back(model, key);
            GoToPreviousScreen     "last"           ""                   Navigation    &[Any], ["-"], "Go to the previous screen":
                _ if require(model.previous_screen.is_some(), "no previous screen") => screens::go_to_previous(model);
            GoToTrouble            "trouble"        ""                   Navigation    &[Any], ["'"], "Go to the agent that became worse, and back from there":
                _ if check_trouble(model) => trouble::go_to_trouble(model);
            GoFleet                "fleet"          ""                   Navigation    &[Any], ["1"], "Go to the fleet":
                _ => fleet::open(model);
            GoAgent                "agent"          ""                   Navigation    &[Any], ["2"], "Go to the agent under the cursor":
                Agent if fleet::check_cursor(model) => {},
                _ if fleet::check_cursor(model) => agent::go_to_agent(model);
            GoBaselines            "baselines"      ""                   Navigation    &[Any], ["3"], "Go to the baselines: state, versions, comparisons":
                _ => baselines::open(model);
            GoArchives             "archives"       ""                   Navigation    &[Any], ["4"], "Go to the archives: search all that agents wrote":
                _ => archives::open(model);
            ChangeOrder            "order"          "order"              Selection     &[Archives], ["s"], "Search in another order: best, newest, oldest, largest":
                _ => archives::change_order(model);
            PlanEntryRestore       "restore-entry"  "restore plan"       Actions/Plan  &[Archives, ArchiveText, Timeline], ["X"], "Plan to restore the memory from before this entry's run":
                _ if archives::check_restore(model) => archives::find_run(model);
            TogglePin              "pin"            "pin"                Actions/Write &[Archives, ArchiveText, Timeline], ["P"], "Pin the entry, which retention never deletes, or unpin it":
                _ if archives::check_pin(model) => archives::toggle_pin(model);
            GoVerify               "verify"         ""                   Navigation    &[Any], ["6"], "Go to the verification of ledger, archive and baselines":
                _ => verify::open(model);
            VerifyNow              "verify-now"     "verify"             Viewing       &[Any], ["V"], "Verify now: ledger, archive, baselines and their seal":
                _ => verify::start(model);
            CompareVersions        "compare"        "compare"            Viewing       &[Baselines, Versions, Verify], ["d"], "Show what changed in the baseline under the cursor":
                Verify if verify::check_subject(model) => verify::open_selected(model),
                _ if baselines::check_subject(model) => baselines::open_selected(model);
            OpenVersions           "versions"       "versions"           Viewing       &[Baselines, Comparison], ["v"], "Show the versions of this baseline":
                _ if baselines::check_subject(model) => baselines::open_versions(model);
            NextVersion            "next-version"   "other version"      Viewing       &[Comparison, EntryDiff], ["Tab"], "Compare with the next version, or the next other text":
                EntryDiff => archives::cycle_comparison(model, 1),
                _ => baselines::cycle_old_side(model, 1);
            PreviousVersion        "previous-version" ""                 Viewing       &[Comparison, EntryDiff], ["S-Tab"], "Compare with the one before it":
                EntryDiff => archives::cycle_comparison(model, -1),
                _ => baselines::cycle_old_side(model, ComparedVersion::COMMON.len() - 1);
            ChooseOldSide          "old-side"       "old"                Viewing       &[Comparison], ["<"], "Choose the old side: a version, or another baseline":
                _ => baselines::choose_side(model, "old ");
            ChooseNewSide          "new-side"       "new"                Viewing       &[Comparison], [">"], "Choose the new side: a version, or another baseline":
                _ => baselines::choose_side(model, "new ");
            GoReset                "plan"           ""                   Navigation    &[Any], ["5"], "Go to the plan, run or result":
                _ if reset::check_stage(model) => reset::open(model);
            GoLog                  "log"            "log"                Navigation    &[Any], ["7"], "Go to the log, the report and the schedule":
                _ => log::open(model);
            GoHosts                "hosts"          ""                   Navigation    &[Any], ["8"], "Go to the hosts: state and reason of each":
                _ => hosts::open(model);
            ToggleReadOnly         "read-only"      ""                   General       &[Any], ["!"], "Toggle read-only; off also unlocks agents for 30 minutes":
                _ if require(!model.read_only.is_forced, "started with --read-only; quit and start without it") => toggle_read_only(model);
            Redraw                 "redraw"         ""                   General       &[Any], ["^l"], "Redraw the screen":
                _ => vec![Effect::Redraw];
            Suspend                "suspend"        ""                   General       &[Any], ["^z"], "Suspend to the shell; fg resumes":
                _ => editor::suspend(model);
            Quit                   "quit"           ""                   General       &[Any], ["^c"], "Quit; in a run: finish agents in progress, start no others":
                Verify => verify::cancel_or_quit(model),
                _ => plan::quit(model);
            Palette                "palette"        "commands"           General       &[Any], [":"], "Find a command, screen, sort order or agent by a few letters":
                _ => model.overlay = Some(Overlay::palette(""));
            Help                   "help"           "help"               General       &[Any], ["?" "F1"], "Show the keys of this screen; Enter runs one":
                _ => model.overlay = Some(Overlay::help());
        }
    };
}

pub(in crate::console) use command_rows;
