//! Texts handed to other programs, and baselines edited in an editor.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use memory_shepherd::archive::{EntryKind, WrittenEntry};
use memory_shepherd::base::digest::Digest;
use memory_shepherd::base::error::{Error, ErrorKind};
use memory_shepherd::base::invocation::Invocation;
use memory_shepherd::console::handoff::{ClipboardText, CopyOutcome, PagerText};
use memory_shepherd::console::keys::key_guard::KEY_GUARD_TIME;
use memory_shepherd::console::message::{DraftChange, DraftText, Effect, ExternalText, Msg};
use memory_shepherd::console::screens::log::state::MessageLevel;
use memory_shepherd::console::shell::external_copy::{ExternalCopy, KeptCopy};
use memory_shepherd::engine::{
    FileState, FleetEvent, OpenedBaseline, Operation, Outcome, Protection, Reachability, SealMatch,
    State, UndoMode,
};

use super::{BASELINE, SECOND, console_with_run, console_with_texts};
use crate::console_fixture::{TestConsole, file_comparison, fleet_of_four, opened_baseline};
use crate::engine_samples::{
    history_record, host_status, observation_of, plan, run_report, run_summary, undo_plan,
};
use crate::temporary_root::temporary_root;

/// Returns the text that these keys copy.
#[track_caller]
fn press_and_copy(console: &mut TestConsole, keys: &str) -> ClipboardText {
    match console.press(keys).as_slice() {
        [Effect::CopyToClipboard(clip)] => clip.clone(),
        effects => panic!("{keys}: {effects:?}, {}", console.message_text()),
    }
}

#[test]
fn names_paths_and_diffs_are_copied() {
    let mut console = fleet_of_four();
    let clip = press_and_copy(&mut console, "c");
    assert_eq!(
        (clip.description.as_str(), clip.text.as_str()),
        ("the name charlie", "charlie")
    );
    assert_eq!(press_and_copy(&mut console, "yn"), clip);
    let path = press_and_copy(&mut console, "yp").text;
    assert_eq!(path, "/agents/charlie/MEMORY.md");
    assert_eq!(press_and_copy(&mut console, "yh").text.len(), 64);
    let patch = Effect::PreparePatch("charlie".to_string());
    assert_eq!(console.press("yd"), [patch]);
    let came = console.send(Msg::PatchPrepared(
        "charlie".to_string(),
        Ok(b"-a\n+b\n".to_vec()),
    ));
    assert!(matches!(came.as_slice(), [Effect::CopyToClipboard(clip)] if clip.text == "-a\n+b\n"));
    console.send(Msg::PatchPrepared(
        "charlie".to_string(),
        Err("it is away".to_string()),
    ));
    assert_eq!(console.message_text(), "nothing was copied: it is away");
}

#[test]
fn copied_command_line_names_the_config() {
    let mut console = fleet_of_four();
    console.model.config.invocation = Invocation::with_config(Path::new("/srv/my fleet.conf"));
    let wanted = |verb: &str| format!("memory-shepherd {verb} --config '/srv/my fleet.conf'");
    let hash = |console: &TestConsole| {
        let shown = console.model.reset.plan.shown();
        shown.unwrap().plan.hash.clone()
    };
    for (keys, verb) in [("j z", "undo bravo"), ("Z", "undo --redo bravo")] {
        console.press_and_plan(keys, undo_plan(&["bravo"], false, UndoMode::Refuse));
        let verb = format!("{verb} --plan {}", hash(&console));
        assert_eq!(press_and_copy(&mut console, "c").text, wanted(&verb));
        console.press("Esc");
    }
    console.press_and_plan("X", plan(&[("bravo", State::Scratch)]));
    let reset = format!("reset bravo --plan {}", hash(&console));
    assert_eq!(press_and_copy(&mut console, "c").text, wanted(&reset));
    // A run keeps the command line with which it began.
    console.press("y");
    console.send(Msg::RunEnded(Box::new(run_report(&[(
        "bravo",
        Outcome::Ok,
        None,
    )]))));
    assert_eq!(press_and_copy(&mut console, "yc").text, wanted(&reset));
}

#[test]
fn escape_cancels_incomplete_key_sequence_only() {
    let mut console = console_with_texts();
    assert_eq!(console.press("y Esc"), []);
    assert_eq!(
        console.model.screen,
        memory_shepherd::console::screen::Screen::Agent
    );
    assert!(console.model.pending_keys.keys.is_empty());
}

#[test]
fn lines_and_texts_are_copied_verbatim() {
    let mut console = console_with_texts();
    let all = press_and_copy(&mut console, "ya").text;
    assert!(
        all.contains("\n-two\n+TWO\n three\n"),
        "a diff keeps its signs: {all}"
    );
    console.press("Tab");
    assert_eq!(
        press_and_copy(&mut console, "ya").text,
        "note one\nnote two\n"
    );
    let line = press_and_copy(&mut console, "yl");
    assert_eq!(
        (line.description.as_str(), line.text.as_str()),
        ("line 14", "note one")
    );
    console.press("/ t w o Enter");
    assert_eq!(press_and_copy(&mut console, "yl").text, "note two");
}

#[test]
fn copy_of_partly_shown_text_says_so() {
    let mut console = console_with_texts();
    let part = ClipboardText {
        is_truncated: true,
        ..ClipboardText::new("line 66", b"xxxx")
    };
    console.send(Msg::ClipboardCopied(part, CopyOutcome::CopiedBy("xclip")));
    assert_eq!(console.message_text(), "xclip has line 66, 4 B, truncated");
    let mut console = console_with_texts();
    let long = [BASELINE, b"one\n", &[b'x'; 300_000]].concat();
    console.load_texts("charlie", &long, Some(BASELINE));
    console.press("Tab");
    let all = press_and_copy(&mut console, "ya");
    assert!(all.is_truncated && all.text.contains("more bytes not shown"));
    console.press("/ z z z Enter");
    let message = console.message_text();
    assert_eq!(message, "no hit; what is not shown was not searched");
    console.press("/ x x x Enter");
    assert!(press_and_copy(&mut console, "yl").is_truncated);
    console.press("/ o n e Enter");
    assert!(!press_and_copy(&mut console, "yl").is_truncated);
}

#[test]
fn copied_text_reveals_invisible_characters() {
    let plain = "tabs\tare, lines\r\nare, ‹marks› are, 日本 is\n";
    let clip = ClipboardText::new("it", plain.as_bytes());
    assert_eq!((clip.text.as_str(), clip.is_escaped), (plain, false));
    for hidden in [
        &b"\x1b[201~rm -rf ~\r"[..],
        b"a\x03b",
        b"a\xffb",
        "a\u{202e}b".as_bytes(),
        "a\u{e0041}b".as_bytes(),
        b"a\rb",
    ] {
        let clip = ClipboardText::new("it", hidden);
        assert!(clip.is_escaped, "{hidden:?}");
        let odd =
            |c: char| c.is_control() || ('\u{e0000}'..='\u{e007f}').contains(&c) || c == '\u{202e}';
        assert!(!clip.text.contains(odd), "{:?}", clip.text);
    }
}

#[test]
fn copy_outcome_is_reported_and_logged() {
    let mut console = fleet_of_four();
    let clip = press_and_copy(&mut console, "c");
    console.send(Msg::ClipboardCopied(
        clip.clone(),
        CopyOutcome::SentToTerminal,
    ));
    assert_eq!(
        console.message_text(),
        "the name charlie: sent to terminal (unverified), 7 B"
    );
    console.send(Msg::ClipboardCopied(
        clip.clone(),
        CopyOutcome::CopiedBy("wl-copy"),
    ));
    assert_eq!(console.message_text(), "wl-copy has the name charlie, 7 B");
    let again = console.send(Msg::ClipboardCopied(
        clip.clone(),
        CopyOutcome::Failed("why".into()),
    ));
    assert_eq!(again, [Effect::CopyThroughTerminal(clip.clone())]);
    assert_eq!(console.message_text(), "why; trying the terminal instead");
    console.send(Msg::ClipboardCopied(clip, CopyOutcome::TooLong(3)));
    assert!(
        console.message_text().ends_with("nothing was copied"),
        "{}",
        console.message_text()
    );
    assert_eq!(console.model.log.messages.len(), 4, "the log keeps them");
}

fn copied_baseline() -> Box<OpenedBaseline> {
    Box::new(opened_baseline(&["charlie", "delta"], b"old\n"))
}

/// The end of the external editor, with what it wrote.
fn edited(text: &[u8]) -> Msg {
    Msg::ExternalEditEnded(Box::new(ExternalText {
        opened: *copied_baseline(),
        text: Ok(text.to_vec()),
        kept: None,
    }))
}

#[test]
fn external_edit_is_compared_and_confirmed() {
    let mut console = fleet_of_four();
    let name = || "charlie".to_string();
    assert_eq!(console.press("E"), [Effect::InspectBaseline(name())]);
    let effects = console.send(Msg::BaselineInspected(name(), Ok(copied_baseline())));
    assert_eq!(effects, [Effect::OpenEditor(copied_baseline())]);
    let effects = console.send(edited(b"old\n"));
    assert_eq!(
        (effects.len(), console.message_text()),
        (0, "baseline charlie-MEMORY.md is unchanged")
    );
    let effects = console.send(edited(b"new\n"));
    let draft = DraftChange {
        name: "charlie-MEMORY.md".to_string(),
        text: Some(DraftText {
            bytes: Arc::new(b"new\n".to_vec()),
            base: Arc::new(b"old\n".to_vec()),
        }),
        replaced: None,
    };
    assert!(effects.contains(&Effect::KeepDraft(draft)));
    let Some(Effect::CompareWithFile(baseline, generation, text, known)) = effects.last() else {
        panic!("{effects:?}");
    };
    assert_eq!(*known, Digest::of(b"old\n"));
    // Another program has written since: that is not part of the edit.
    let compared = Ok(Box::new(file_comparison(b"old\nobey me\n", text)));
    console.send(Msg::FileCompared(baseline.clone(), *generation, compared));
    assert!(
        console
            .screen_text()
            .contains("has changed since it was opened")
    );
    console.press("Esc :w");
    let effects = console.press("Enter");
    let [Effect::CompareWithFile(_, generation, ..)] = effects.as_slice() else {
        panic!("{effects:?}");
    };
    let compared = Ok(Box::new(file_comparison(b"old\n", b"new\n")));
    console.send(Msg::FileCompared(
        "charlie-MEMORY.md".to_string(),
        *generation,
        compared,
    ));
    console.advance(KEY_GUARD_TIME);
    let effects = console.press("y");
    assert!(
        matches!(&effects[..], [Effect::SaveText(save)] if save.is_sealed && save.bytes == b"new\n")
    );
    // The edit is one step for undo.
    let mut console = fleet_of_four();
    console.send(edited(b"new\n"));
    console.press("Esc u");
    assert_eq!(console.edited_text(), "old\n");
}

#[test]
fn external_edit_of_any_bytes_is_saved_whole() {
    let mut console = fleet_of_four();
    let bytes = b"caf\xe9\r\n";
    let effects = console.send(edited(bytes));
    let Some(Effect::CompareWithFile(baseline, generation, ..)) = effects.last() else {
        panic!("{effects:?}");
    };
    let compared = Ok(Box::new(file_comparison(b"old\n", bytes)));
    console.send(Msg::FileCompared(baseline.clone(), *generation, compared));
    console.advance(KEY_GUARD_TIME);
    let effects = console.press("y");
    assert!(matches!(&effects[..], [Effect::SaveText(save)] if save.bytes == bytes));
    // Without an answer, the bytes are neither changed nor dropped.
    let mut console = fleet_of_four();
    console.send(edited(bytes));
    console.press("Esc i");
    assert!(console.message_text().contains("line 1 is not UTF-8"));
    assert!(console.editor().is_modified);
    assert_eq!(console.editor().text_bytes(), bytes);
    console.press(":w");
    assert!(matches!(
        console.press("Enter")[..],
        [Effect::CompareWithFile(..)]
    ));
}

#[test]
fn external_edit_of_a_locked_baseline_is_kept() {
    let mut console = fleet_of_four();
    console.press("!");
    let effects = console.send(edited(b"new\n"));
    assert!(console.message_text().contains("is not saved: read-only"));
    assert!(effects.iter().any(|it| matches!(it, Effect::KeepDraft(_))));
    assert!(
        !effects
            .iter()
            .any(|it| matches!(it, Effect::CompareWithFile(..)))
    );
    assert_eq!(console.edited_text(), "new\n");
    let kept_in = "what the editor wrote is kept in /tmp/y";
    let ended = |text| ExternalText {
        opened: *copied_baseline(),
        text,
        kept: Some(KeptCopy {
            directory: "/tmp/y".into(),
            may_be_open: false,
        }),
    };
    let lost = Error::new(ErrorKind::Host, "cannot read /tmp/x");
    console.send(Msg::ExternalEditEnded(Box::new(ended(Err(lost)))));
    let said = format!("cannot read /tmp/x; {kept_in}");
    assert_eq!(console.message_text(), said);
    // A killed editor leaves the copy as it was, and a file to recover from.
    let unchanged = ended(Ok(b"old\n".to_vec()));
    console.send(Msg::ExternalEditEnded(Box::new(unchanged)));
    assert_eq!(console.message_text(), kept_in);
}

#[test]
fn copy_is_kept_if_its_editor_returns_at_once() {
    let root = tempfile::tempdir().unwrap();
    let written_at = Instant::now();
    let seconds = |number| Some(written_at + Duration::from_secs(number));
    let finish = |text: &[u8], ended_at| {
        let copy =
            ExternalCopy::write(&temporary_root(root.path()), &copied_baseline(), written_at)
                .unwrap();
        let directory = copy.path().parent().unwrap().to_path_buf();
        let kept = copy.finish(Some(text), ended_at);
        assert_eq!(directory.exists(), kept.is_some());
        kept.map(|kept| kept.may_be_open)
    };
    assert_eq!(finish(b"old\n", seconds(0)), Some(true));
    assert_eq!(finish(b"old\n", seconds(1)), None);
    assert_eq!(finish(b"saved\n", seconds(0)), None);
    assert_eq!(finish(b"old\n", None), None, "the editor failed");
}

#[test]
fn copy_that_became_a_symlink_is_not_followed() {
    let root = tempfile::tempdir().unwrap();
    let other = root.path().join("other");
    std::fs::write(&other, "other\n").unwrap();
    let place = temporary_root(root.path());
    let copy = ExternalCopy::write(&place, &copied_baseline(), Instant::now()).unwrap();
    std::fs::remove_file(copy.path()).unwrap();
    std::os::unix::fs::symlink(&other, copy.path()).unwrap();
    let error = copy.read_text().unwrap_err();
    assert!(error.to_string().contains("not a regular file"), "{error}");
    assert!(copy.finish(None, None).is_some(), "it is kept");
}

#[test]
fn replaced_directory_of_a_copy_is_not_read() {
    let root = tempfile::tempdir().unwrap();
    let place = temporary_root(root.path());
    let copy = ExternalCopy::write(&place, &copied_baseline(), Instant::now()).unwrap();
    std::fs::write(copy.path(), "typed\n").unwrap();
    let directory = copy.path().parent().unwrap();
    std::fs::rename(directory, root.path().join("moved")).unwrap();
    std::fs::create_dir(directory).unwrap();
    std::fs::write(copy.path(), "planted\n").unwrap();
    assert_eq!(copy.read_text().unwrap(), b"typed\n");
}

#[test]
fn editor_failure_stays_the_shown_message() {
    let mut console = fleet_of_four();
    let failed = "the editor: exit code 3";
    console.send(Msg::Reported(MessageLevel::Warn, failed.to_string()));
    console.send(edited(b"old\n"));
    assert_eq!(console.message_text(), failed);
}

#[test]
fn history_row_opens_its_entry_in_pager() {
    let mut console = fleet_of_four();
    console.press("d");
    let written = run_with_entry().events[0].change.entry.clone().unwrap();
    let mut past = history_record(3, 10, |event| event.agent = "charlie".to_string());
    past.record.event.change.entry = Some(written.clone());
    console.press("S-Tab");
    console.send(Msg::HistoryLoaded("charlie".to_string(), Ok(vec![past])));
    assert_eq!(
        console.press("o"),
        [Effect::LoadEntry("charlie".to_string(), written)]
    );
}

#[test]
fn edit_of_shared_read_only_baseline_needs_unlock() {
    let mut console = fleet_of_four();
    let name = || "charlie".to_string();
    let mut shared = copied_baseline();
    shared.users[1].protection = Protection::ReadOnly;
    console.press("E");
    assert_eq!(
        console.send(Msg::BaselineInspected(name(), Ok(shared.clone()))),
        []
    );
    assert!(
        console
            .message_text()
            .contains("delta is protected as read-only; ! ! y unlocks"),
        "{}",
        console.message_text()
    );
    // After locking and unlocking with the key, E works.
    console.press("! ! y E");
    let effects = console.send(Msg::BaselineInspected(name(), Ok(shared.clone())));
    assert_eq!(effects, [Effect::OpenEditor(shared)]);
}

#[test]
fn tampered_baseline_is_not_edited_elsewhere() {
    let mut console = fleet_of_four();
    let mut tampered = copied_baseline();
    tampered.seal = SealMatch::Mismatch("it does not match".to_string());
    console.press("E");
    let effects = console.send(Msg::BaselineInspected("charlie".to_string(), Ok(tampered)));
    assert_eq!(effects, []);
    assert!(console.message_text().ends_with("it does not match"));
}

#[test]
fn late_handoff_is_dropped_after_other_input() {
    let name = || "charlie".to_string();
    let mut console = fleet_of_four();
    console.press("E j");
    assert_eq!(
        console.send(Msg::BaselineInspected(name(), Ok(copied_baseline()))),
        []
    );
    console.send(Msg::LogLoaded(Ok(vec![run_with_entry()])));
    console.press("7 o j");
    let written = run_with_entry().events[0].change.entry.clone().unwrap();
    let came = |written: WrittenEntry| Msg::EntryLoaded(name(), written, Ok(pager_text()));
    assert_eq!(console.send(came(written.clone())), []);
    // A different entry of the same agent.
    let mut other = written.clone();
    other.path = "charlie/2026-03-14_0800.md".into();
    console.press("k o");
    assert_eq!(console.send(came(other)), []);
    assert_eq!(
        console.send(came(written)),
        [Effect::OpenPager(pager_text())]
    );
}

fn pager_text() -> PagerText {
    PagerText::new("charlie", b"text")
}

#[test]
fn read_only_blocks_editing() {
    let mut console = fleet_of_four();
    console.press("!");
    assert_eq!(console.press("E"), []);
    assert_eq!(console.message_text(), "read-only; ! switches it off");
    let mut console = fleet_of_four();
    let mut protected = observation_of("charlie", State::Drifted);
    protected.protection = Protection::ReadOnly;
    console.observe(vec![protected]);
    assert_eq!(console.press("E"), []);
    assert!(
        console.message_text().contains("! ! y unlocks"),
        "{}",
        console.message_text()
    );
}

/// A run with an archive entry.
fn run_with_entry() -> memory_shepherd::console::screens::log::state::RunSummary {
    let mut run = run_summary("aaaa", 10, &[("charlie", Outcome::Ok)]);
    run.events[0].change.entry = Some(WrittenEntry {
        path: "charlie/2026-03-14_0900.md".into(),
        kind: EntryKind::Scratch,
        digest: Digest::of(b"x"),
        size: 1,
        base: None,
        findings: None,
    });
    run
}

#[test]
fn pager_opens_entry_of_selected_row() {
    let mut console = fleet_of_four();
    let runs = vec![
        run_with_entry(),
        run_summary("bbbb", 20, &[("alpha", Outcome::Unchanged)]),
        run_summary(
            "cccc",
            30,
            &[("alpha", Outcome::Ok), ("bravo", Outcome::Ok)],
        ),
    ];
    let written = run_with_entry().events[0].change.entry.clone().unwrap();
    console.send(Msg::LogLoaded(Ok(runs)));
    console.press("7");
    let effects = console.press("o");
    assert_eq!(
        effects,
        [Effect::LoadEntry("charlie".to_string(), written.clone())]
    );
    let effects = console.send(Msg::EntryLoaded(
        "charlie".to_string(),
        written.clone(),
        Ok(pager_text()),
    ));
    assert_eq!(effects, [Effect::OpenPager(pager_text())]);
    console.press("j o");
    assert_eq!(console.message_text(), "the run archived nothing of alpha");
    console.press("j o");
    assert_eq!(
        console.message_text(),
        "the run has several agents; Enter shows them"
    );
    console.press("k k Enter");
    let effects = console.press("o");
    assert_eq!(effects, [Effect::LoadEntry("charlie".to_string(), written)]);
}

#[test]
fn pager_shows_text_of_screen() {
    let mut console = console_with_texts();
    console.press("Tab");
    let effects = console.press("o");
    assert_eq!(
        effects,
        [Effect::OpenPager(PagerText::new(
            "charlie",
            b"note one\nnote two\n"
        ))]
    );
}

#[test]
fn run_keeps_its_equivalent_command() {
    let mut console = fleet_of_four();
    let made = plan(&[("bravo", State::Scratch)]);
    let command = format!("memory-shepherd reset bravo --plan {}", made.hash);
    console.press_and_plan("j X", made);
    assert_eq!(press_and_copy(&mut console, "c").text, command);
    console.press("y");
    let ended = run_report(&[("bravo", Outcome::Ok, None)]);
    let id = ended.run.clone();
    console.send(Msg::RunEnded(Box::new(ended)));
    assert_eq!(press_and_copy(&mut console, "yc").text, command);
    let report = press_and_copy(&mut console, "ya").text;
    assert!(
        report.starts_with(&format!("$ {command}\nbravo  ok")),
        "{report}"
    );
    // The ledger does not contain the plan; this session remembers it.
    let runs = vec![
        run_summary(&id, 0, &[("bravo", Outcome::Ok)]),
        run_summary("old", 90, &[("alpha", Outcome::Ok)]),
    ];
    console.send(Msg::LogLoaded(Ok(runs)));
    console.press("7 /");
    console.type_line("reset bravo");
    console.press("Enter");
    assert_eq!(press_and_copy(&mut console, "yc").text, command);
    console.press("G");
    assert_eq!(
        press_and_copy(&mut console, "yc").text,
        "memory-shepherd reset alpha"
    );
}

#[test]
fn undo_and_redo_name_their_own_agents() {
    let undo = |id: &str, minutes: i64, agents: &[&str], undone: &str| {
        let agents: Vec<(&str, Outcome)> = agents.iter().map(|it| (*it, Outcome::Ok)).collect();
        let mut run = run_summary(id, minutes, &agents);
        for event in &mut run.events {
            event.operation = Operation::Undo;
            event.undone_run = Some(undone.to_string());
        }
        run
    };
    let whole = [("alpha", Outcome::Ok), ("bravo", Outcome::Ok)];
    let mut redo = undo("redo", 10, &["alpha"], "part");
    redo.is_redo = true;
    let mut mixed = undo("mixed", 30, &["bravo", "alpha"], "first");
    mixed.events[1].undone_run = Some("second".to_string());
    let runs = vec![
        redo,
        undo("part", 20, &["alpha"], "first"),
        mixed,
        undo("all", 40, &["alpha", "bravo"], "first"),
        undo("gone", 50, &["alpha"], "forgotten"),
        run_summary("second", 60, &whole),
        run_summary("first", 70, &whole),
    ];
    let mut console = fleet_of_four();
    console.send(Msg::LogLoaded(Ok(runs)));
    console.press("7 gg");
    for command in [
        Some("undo --redo alpha"),
        None,
        None,
        Some("undo --run first"),
        None,
    ] {
        let expected = command.map(|command| format!("memory-shepherd {command}"));
        assert_eq!(copied_command(&mut console), expected);
        // The result of the run names the same.
        console.press("Enter");
        assert_eq!(copied_command(&mut console), expected);
        console.press("q j");
    }
}

/// Copies the equivalent command line, if the row has one.
fn copied_command(console: &mut TestConsole) -> Option<String> {
    let effects = console.press("yc");
    effects.into_iter().find_map(|effect| match effect {
        Effect::CopyToClipboard(clip) => Some(clip.text),
        _ => None,
    })
}

#[test]
fn undo_with_newer_notes_names_its_choice() {
    let file = |text: &[u8]| {
        Some(FileState::File {
            sha256: Digest::of(text),
            size: text.len() as u64,
            lines: 1,
        })
    };
    let mut reset = run_summary("first", 30, &[("alpha", Outcome::Ok)]);
    reset.events[0].change.before = file(b"notes");
    reset.events[0].change.after = file(b"rules");
    for (before, after, command) in [
        (b"rules", b"notes", Some("undo --run first")),
        (
            b"newer",
            b"notes+newer".as_slice(),
            Some("undo --run first --append"),
        ),
        (b"newer", b"notes", None),
    ] as [(&[u8], &[u8], Option<&str>); 3]
    {
        let mut undo = run_summary("undo", 10, &[("alpha", Outcome::Ok)]);
        undo.events[0].operation = Operation::Undo;
        undo.events[0].undone_run = Some("first".to_string());
        undo.events[0].change.before = file(before);
        undo.events[0].change.after = file(after);
        let mut console = fleet_of_four();
        console.send(Msg::LogLoaded(Ok(vec![undo, reset.clone()])));
        console.press("7 gg");
        let expected = command.map(|command| format!("memory-shepherd {command}"));
        assert_eq!(copied_command(&mut console), expected);
    }
}

#[test]
fn unlocked_plan_has_no_command_line() {
    let mut console = fleet_of_four();
    let mut made = plan(&[("bravo", State::Scratch)]);
    made.steps[0].protection = Protection::ReadOnly;
    console.press_and_plan("j X", made);
    assert_eq!(console.press("c"), []);
    assert!(!console.screen_text().contains("same as:"));
    console.press("y");
    assert!(console.model.reset.is_running());
    let ended = run_report(&[("bravo", Outcome::Ok, None)]);
    console.send(Msg::RunEnded(Box::new(ended)));
    assert_eq!(copied_command(&mut console), None);
}

#[test]
fn unpin_names_its_entries_and_cannot_be_undone() {
    let mut unpin = run_summary("unpin", 10, &[("", Outcome::Ok)]);
    unpin.events[0].operation = Operation::Unpin;
    unpin.events[0].pinned_entries = vec!["alpha/2026-11-01_0900-1.md".into()];
    let mut console = fleet_of_four();
    console.send(Msg::LogLoaded(Ok(vec![unpin])));
    console.press("7 gg");
    let command = "memory-shepherd archive unpin alpha/2026-11-01_0900-1.md";
    assert_eq!(copied_command(&mut console).as_deref(), Some(command));
    console.press("Enter");
    assert!(!console.screen_text().contains("undoes this run"));
    assert_eq!(console.press("z"), []);
}

fn shown_jobs(console: &TestConsole) -> Vec<&str> {
    let jobs = console.model.background_jobs.visible.iter();
    jobs.map(|job| job.label.as_str()).collect()
}

/// Answers the requests of the log: first for its runs, then for the report.
fn answer_log(console: &mut TestConsole) {
    let effects = console.send(Msg::LogLoaded(Ok(Vec::new())));
    if effects.contains(&Effect::LoadReport) {
        console.send(Msg::ReportLoaded(Err("unknown".to_string())));
    }
}

#[test]
fn jobs_stay_in_log_until_they_end() {
    let mut console = fleet_of_four();
    console.press("7");
    answer_log(&mut console);
    console.advance(2 * SECOND);
    assert_eq!(shown_jobs(&console), [""; 0]);
    console.press("R");
    console.list_jobs(&["ledger"]);
    assert_eq!(shown_jobs(&console), [""; 0], "what is quick has no row");
    console.advance(2 * SECOND);
    assert_eq!(shown_jobs(&console), ["ledger", "reading 4 of 4 agents"]);
    answer_log(&mut console);
    console.list_jobs(&[]);
    console.press("1 d 7");
    answer_log(&mut console);
    console.list_jobs(&["texts of charlie"]);
    console.advance(2 * SECOND);
    assert_eq!(
        shown_jobs(&console),
        ["reading 4 of 4 agents", "texts of charlie"]
    );
    let all = ["alpha", "bravo", "charlie"].map(|name| observation_of(name, State::Clean));
    console.observe(all.to_vec());
    console.load_texts("charlie", b"a\n", Some(b"a\n"));
    answer_log(&mut console);
    console.list_jobs(&[]);
    console.advance(SECOND);
    assert_eq!(shown_jobs(&console), ["reading delta"]);
    console.observe(vec![observation_of("delta", State::Unreach)]);
    console.advance(SECOND);
    assert_eq!(shown_jobs(&console), [""; 0], "it folds away");
}

#[test]
fn jobs_redraw_only_the_log_and_rarely() {
    let mut console = fleet_of_four();
    console.press("R");
    console.advance(2 * SECOND);
    console.model.is_dirty = false;
    let mut frames = 0;
    console.press("7");
    for round in 0..40 {
        // An agent is read every 50 ms, again and again.
        let names = vec!["alpha".to_string()];
        console.model.is_dirty = false;
        console.observe(vec![observation_of("alpha", State::Clean)]);
        console
            .model
            .background_jobs
            .begin_reads(&names, console.moment());
        console.advance(SECOND / 20);
        frames += usize::from(console.model.is_dirty);
        assert!(frames <= 2 + round / 8, "{frames} after {round}");
    }
}

#[test]
fn run_is_listed_as_job() {
    let mut console = console_with_run();
    console.press("7");
    console.advance(2 * SECOND);
    assert!(
        shown_jobs(&console).contains(&"run: 0 of 1 agents done"),
        "{:?}",
        shown_jobs(&console)
    );
}

#[test]
fn hanging_host_shows_connecting_since() {
    let mut console = fleet_of_four();
    let mut status = host_status("harbour", Reachability::Unknown, &["charlie"]);
    status.connection.is_connecting = true;
    console.press("7");
    console.send(Msg::Fleet(FleetEvent::HostsChanged(vec![status.clone()])));
    console.advance(90 * SECOND);
    let since = console.now - 90 * SECOND;
    let jobs = &console.model.background_jobs.visible;
    let job = jobs.iter().find(|job| job.label == "connecting to harbour");
    assert!(
        job.is_some_and(|job| job.started.elapsed == since),
        "{jobs:?}"
    );
    // ssh waits for the operator, not for the host.
    status.connection.pending_prompt = Some("a passphrase");
    console.send(Msg::Fleet(FleetEvent::HostsChanged(vec![status.clone()])));
    console.advance(SECOND);
    assert!(shown_jobs(&console).contains(&"harbour: waiting for an answer"));
    assert!(!shown_jobs(&console).contains(&"connecting to harbour"));
    status.connection.is_connecting = false;
    console.send(Msg::Fleet(FleetEvent::HostsChanged(vec![status])));
    console.advance(SECOND);
    let shown = shown_jobs(&console);
    assert!(
        !shown.iter().any(|job| job.contains("harbour")),
        "{shown:?}"
    );
}

/// The label of a host changes once another one of its name is known.
#[test]
fn jobs_of_hosts_with_one_name_end() {
    let mut console = fleet_of_four();
    let mut first = host_status("box", Reachability::Unknown, &["charlie"]);
    let mut second = host_status("box", Reachability::Unknown, &["delta"]);
    second.host.user = Some("root".to_string());
    console.press("7");
    for is_connecting in [true, false] {
        first.connection.is_connecting = is_connecting;
        second.connection.is_connecting = is_connecting;
        for status in [&first, &second] {
            console.send(Msg::Fleet(FleetEvent::HostsChanged(vec![status.clone()])));
        }
        console.advance(2 * SECOND);
        let shown = shown_jobs(&console).into_iter();
        let connecting = shown.filter(|job| job.starts_with("connecting to "));
        assert_eq!(connecting.count(), if is_connecting { 2 } else { 0 });
    }
}
