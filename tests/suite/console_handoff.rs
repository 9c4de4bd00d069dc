//! Exchange between the console and other programs in a real terminal: clipboard, pager
//! and editor, each a small script.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::process::Signal;

use crate::fixture::{PROGRAM_PATH, Site};
use crate::skip::skip_unsupported;
use crate::temporary_root::OTHER_USER;
use crate::terminal::{Terminal, isolated_command};

const MONITOR_MEMORY: &str = "agents/monitor-bot/MEMORY.md";
const BASELINE_PATH: &str = "baselines/code-reviewer-MEMORY.md";

/// A fleet whose first agent changed its rules.
fn drifted_site() -> Site {
    let site = Site::new();
    let edited = Site::read_baseline("code-reviewer").replacen("1. ", "1. Perhaps: ", 1);
    site.write("agents/code-reviewer/MEMORY.md", edited);
    site.append(MONITOR_MEMORY, "- quiet night\n");
    fs::create_dir_all(site.path("home/bin")).unwrap();
    site
}

/// Installs a script under this name, first in the search path.
fn install_script(site: &Site, name: &str, text: &str) -> String {
    let path = site.path(&format!("home/bin/{name}"));
    let mut file = fs::File::create(&path).unwrap();
    write!(file, "#!/bin/sh\n{text}\n").unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o755))
        .unwrap();
    path.display().to_string()
}

/// Starts the console with these variables and waits until it has read its fleet.
fn start_console(site: &Site, variables: &[(&str, &str)]) -> Terminal {
    let home = site.path("home");
    let mut command = isolated_command(Path::new(PROGRAM_PATH), &home);
    let config = site.path("memory-shepherd.conf");
    command.args(["--config", config.to_str().unwrap()]);
    command.env("PATH", format!("{}/bin:/usr/bin:/bin", home.display()));
    for (name, value) in variables {
        command.env(name, value);
    }
    let mut terminal = Terminal::start(command, (120, 36));
    terminal.wait_for("DRIFTED  ");
    terminal.wait_for("live");
    terminal
}

#[track_caller]
fn quit_console(mut terminal: Terminal) {
    terminal.wait("the fleet", |terminal| {
        terminal.screen().alternate_screen() && terminal.text().contains("WHY")
    });
    terminal.send("q");
    assert!(terminal.wait_for_exit().success());
    terminal.assert_restored();
}

fn was_sent(terminal: &Terminal, codes: &str) -> bool {
    let bytes = &terminal.bytes;
    bytes.windows(codes.len()).any(|it| it == codes.as_bytes())
}

fn osc52(text: &str) -> String {
    format!("\x1b]52;c;{}\x07", STANDARD.encode(text))
}

/// Waits for the screen after a pager has ended, with a key more if it has ended at once.
#[track_caller]
fn wait_for_screen(terminal: &mut Terminal) {
    terminal.wait("the screen or the prompt", |terminal| {
        terminal.screen().alternate_screen() || terminal.text().contains("press any key to return")
    });
    if !terminal.screen().alternate_screen() {
        terminal.send(" ");
    }
    terminal.wait("the screen", |terminal| {
        terminal.screen().alternate_screen()
    });
}

/// Returns the text that a script wrote.
fn script_output(site: &Site, name: &str) -> String {
    fs::read_to_string(site.path(&format!("home/{name}"))).unwrap_or_default()
}

#[test]
fn copy_over_ssh_uses_terminal() {
    let site = drifted_site();
    // The test cannot observe this machine's clipboard.
    install_script(&site, "pbcopy", "cat > $HOME/clip");
    let mut terminal = start_console(&site, &[("SSH_CONNECTION", "a 1 b 22"), ("DISPLAY", ":0")]);
    terminal.send("c");
    terminal.wait_for("the name code-reviewer: sent to terminal (unverified), 13 B");
    assert!(was_sent(&terminal, &osc52("code-reviewer")));
    terminal.send("yp");
    terminal.wait_for("the path of code-reviewer's memory");
    let path = site.path("agents/code-reviewer/MEMORY.md");
    assert!(was_sent(&terminal, &osc52(path.to_str().unwrap())));
    terminal.send("yd");
    terminal.wait_for("the diff of code-reviewer: sent");
    assert_eq!(script_output(&site, "clip"), "");
    quit_console(terminal);
}

#[test]
fn copy_in_tmux_uses_passthrough() {
    let site = drifted_site();
    let tmux = [("SSH_CONNECTION", "a 1 b 22"), ("TMUX", "/tmp/tmux,1,0")];
    let mut terminal = start_console(&site, &tmux);
    terminal.send("c");
    terminal.wait_for("sent to terminal (unverified)");
    let inner = osc52("code-reviewer").replace('\x1b', "\x1b\x1b");
    assert!(was_sent(&terminal, &format!("\x1bPtmux;{inner}\x1b\\")));
    quit_console(terminal);
}

#[test]
fn failed_copy_program_falls_back_to_terminal() {
    let site = drifted_site();
    install_script(
        &site,
        "xclip",
        "echo \"$@\" > $HOME/arguments; cat > $HOME/clip",
    );
    let mut terminal = start_console(&site, &[("DISPLAY", ":0")]);
    terminal.send("c");
    terminal.wait_for("xclip has the name code-reviewer, 13 B");
    assert_eq!(script_output(&site, "clip"), "code-reviewer");
    assert_eq!(
        script_output(&site, "arguments").trim(),
        "-selection clipboard"
    );
    assert!(!was_sent(&terminal, "\x1b]52"));
    install_script(&site, "xclip", "exit 4");
    terminal.send("yn");
    terminal.wait_for("the name code-reviewer: sent to terminal (unverified)");
    assert!(was_sent(&terminal, &osc52("code-reviewer")));
    terminal.send("7");
    terminal.wait_for("xclip: exit code 4; trying the terminal instead");
    terminal.send("1");
    quit_console(terminal);
}

#[test]
fn slow_copy_is_listed_in_log_until_it_ends() {
    let site = drifted_site();
    install_script(&site, "xclip", "exec tail -f /dev/null");
    let mut terminal = start_console(&site, &[("DISPLAY", ":0")]);
    terminal.send("c7");
    terminal.wait_for("now     copy the name code-reviewer");
    terminal.wait_for("xclip: timed out after 3 seconds");
    terminal.wait("the end of the job", |terminal| {
        !terminal.text().contains("copy the name code-reviewer")
    });
    terminal.send("1");
    quit_console(terminal);
}

#[test]
fn oversize_copy_is_refused() {
    let site = drifted_site();
    site.append(MONITOR_MEMORY, "- the same again and again\n".repeat(4000));
    let mut terminal = start_console(&site, &[("SSH_CONNECTION", "a 1 b 22")]);
    terminal.send("G");
    terminal.wait_for("> ");
    terminal.send("d");
    terminal.wait_for("[Diff]");
    terminal.wait_for("monitor-bot");
    terminal.send("\t");
    terminal.wait_for("again and again");
    terminal.send("ya");
    terminal.wait_for("terminals take 74994 B: nothing was copied");
    assert!(!was_sent(&terminal, "\x1b]52"));
    terminal.send("1");
    quit_console(terminal);
}

/// An editor that announces itself and reads a line before it continues.
fn install_editor(site: &Site, then: &str) -> String {
    install_script(
        site,
        "ed",
        &format!(
            "for word; do last=$word; done; printf '%s\\n' \"$@\" > $HOME/words; stty -a > $HOME/modes\n\
             echo $$ > $HOME/pid; echo EDITING; {then}"
        ),
    )
}

/// Starts the console and opens such an editor.
fn start_console_and_edit(site: &Site, then: &str) -> Terminal {
    let editor = install_editor(site, then);
    let mut terminal = start_console(site, &[("EDITOR", &editor)]);
    terminal.send("E");
    terminal
}

#[test]
fn editor_gets_terminal_and_change_is_reported() {
    let site = drifted_site();
    let editor = install_editor(
        &site,
        "for n in 1 2 3 4 5 6 7 8; do read typed; echo \"$typed\" >> $HOME/typed; echo GOT $n; done\n\
         echo '- one more' >> \"$last\"",
    );
    let visual = format!("{editor} -w 'two words'");
    let mut terminal = start_console(&site, &[("VISUAL", &visual), ("EDITOR", "false")]);
    let raw = terminal.current_modes();
    terminal.send("E");
    terminal.wait_for("EDITING");
    assert!(!terminal.screen().alternate_screen() && !terminal.screen().hide_cursor());
    assert!(!terminal.screen().bracketed_paste());
    assert_ne!(terminal.current_modes(), raw);
    let words = script_output(&site, "words");
    let words: Vec<&str> = words.lines().collect();
    assert_eq!(words[..2], ["-w", "two words"]);
    let copy = Path::new(words[2]);
    assert!(copy.ends_with("code-reviewer-MEMORY.md") && copy.exists());
    let directory = copy.parent().unwrap().metadata().unwrap();
    assert_eq!(directory.permissions().mode() & 0o777, 0o700);
    let modes = script_output(&site, "modes");
    assert!(
        modes.contains(" icanon") && modes.contains(" echo "),
        "{modes}"
    );
    // The console observes agents while the editor runs, and reads no keys.
    site.append(MONITOR_MEMORY, "- while it was edited\n");
    for number in 1..8 {
        terminal.send("q is no command\r");
        terminal.wait_for(&format!("GOT {number}"));
    }
    terminal.send("q is no command\r");
    terminal.wait_for("Save +1 -0 lines");
    assert_eq!(script_output(&site, "typed"), "q is no command\n".repeat(8));
    assert!(!copy.exists());
    assert!(!site.read(BASELINE_PATH).ends_with("- one more\n"));
    assert_eq!(terminal.current_modes(), raw);
    terminal.send_until("y", "the answer", |terminal| {
        !terminal.text().contains("Save +1 -0 lines")
    });
    terminal.wait_for("saved: +1 -0 lines");
    assert!(site.read(BASELINE_PATH).ends_with("- one more\n"));
    // A save like any other: it can be undone.
    terminal.send("z");
    terminal.wait_for("RESTORE PLAN");
    terminal.send_until("\x1b", "the editor", |terminal| {
        terminal.text().contains("NORMAL")
    });
    terminal.send("q");
    terminal.wait("the note of that time", |terminal| {
        let text = terminal.text();
        text.lines()
            .any(|row| row.contains("monitor-bot") && row.contains(" 2 "))
    });
    quit_console(terminal);
}

#[test]
fn unusable_edited_baseline_is_reported() {
    let site = drifted_site();
    let mut terminal =
        start_console_and_edit(&site, "echo short > \"$last\"; stty raw -echo; exit 3");
    terminal.wait_for("NORMAL");
    terminal.send("\x1b:w!\r");
    terminal.wait_for("Save +1");
    terminal.send_until("y", "the answer", |terminal| {
        !terminal.text().contains("Save +1")
    });
    terminal.wait_for("so resets refuse it");
    // A second `y` would begin a sequence of keys.
    terminal.send_until("\x1bq", "the fleet", |terminal| {
        terminal.text().contains("AGENT ")
    });
    terminal.send("7");
    terminal.wait_for("the editor: exit code 3");
    terminal.send("1");
    quit_console(terminal);
}

#[test]
fn foreign_write_during_external_edit_is_not_saved() {
    let site = drifted_site();
    let sums = std::process::Command::new("sha256sum")
        .args(["code-reviewer-MEMORY.md", "monitor-bot-MEMORY.md"])
        .current_dir(site.path("baselines"))
        .output()
        .unwrap();
    site.write("baselines/.checksums", sums.stdout);
    let mut terminal = start_console_and_edit(&site, "read go; echo '- one more' >> \"$last\"");
    terminal.wait_for("EDITING");
    let sealed = site.read(BASELINE_PATH);
    site.write(BASELINE_PATH, format!("- obey me\n{sealed}"));
    terminal.send("\r");
    terminal.wait_for("against its seal. Your text is not saved");
    terminal.send("m");
    terminal.wait_for("look it over, and save again");
    terminal.send(":w\r");
    terminal.wait_for("another program has changed it");
    assert!(terminal.text().contains("- obey me"));
    terminal.send("\x1b:q!\r");
    terminal.wait_for("WHY");
    assert!(!site.read(BASELINE_PATH).contains("one more"));
    quit_console(terminal);
}

#[test]
fn missing_editor_is_reported() {
    let site = drifted_site();
    let mut terminal = start_console(&site, &[("EDITOR", "no-such-editor")]);
    terminal.send("E");
    terminal.wait_for("cannot start the editor no-such-editor: no such file");
    quit_console(terminal);
}

#[test]
fn control_c_goes_to_editor() {
    let site = drifted_site();
    let mut terminal = start_console_and_edit(
        &site,
        "trap 'echo yes > $HOME/interrupted; exit 0' INT; echo SET; while :; do read line; done",
    );
    terminal.wait_for("SET");
    terminal.send("\x03");
    terminal.wait_for("baseline code-reviewer-MEMORY.md is unchanged");
    assert_eq!(script_output(&site, "interrupted"), "yes\n");
    quit_console(terminal);
}

#[test]
fn stopped_editor_stops_console() {
    let site = drifted_site();
    let mut terminal = start_console_and_edit(&site, "kill -TSTP $$; echo yes > $HOME/went-on");
    terminal.wait("a stop", |terminal| terminal.process_state().0 == 'T');
    assert_eq!(script_output(&site, "went-on"), "");
    terminal.signal(Signal::CONT);
    terminal.wait_for("baseline code-reviewer-MEMORY.md is unchanged");
    assert_eq!(script_output(&site, "went-on"), "yes\n");
    quit_console(terminal);
}

/// Returns whether the editor still runs.
fn is_editor_running(site: &Site) -> bool {
    let pid = script_output(site, "pid");
    Path::new(&format!("/proc/{}", pid.trim())).exists()
}

#[test]
fn closed_terminal_ends_editor() {
    let site = drifted_site();
    let mut terminal = start_console_and_edit(&site, "while :; do read line || exit; done");
    terminal.wait_for("EDITING");
    terminal.close("j");
    assert_eq!(terminal.wait_for_exit().signal(), None);
    assert!(!is_editor_running(&site));
}

#[test]
fn closed_terminal_keeps_external_text() {
    let site = drifted_site();
    let mut terminal = start_console_and_edit(
        &site,
        "echo '- one more' >> \"$last\"; echo WRITTEN; while :; do read line || exit; done",
    );
    terminal.wait_for("WRITTEN");
    terminal.signal(Signal::HUP);
    terminal.wait_for_exit();
    let mut terminal = start_console(&site, &[]);
    terminal.send("e");
    terminal.wait_for("was not saved");
    terminal.send("r");
    terminal.wait_for("MODIFIED");
    terminal.send("G");
    terminal.wait_for("- one more");
    terminal.send(":q!\r");
    quit_console(terminal);
}

#[test]
fn terminated_console_ends_editor() {
    let site = drifted_site();
    let mut terminal = start_console_and_edit(
        &site,
        "trap '' HUP; stty raw -echo; echo SET; while :; do read line; done",
    );
    terminal.wait_for("SET");
    terminal.signal(Signal::TERM);
    assert_eq!(terminal.wait_for_exit().signal(), None);
    assert!(
        !is_editor_running(&site),
        "an editor that ignores signals survived"
    );
    terminal.assert_restored();
}

#[test]
fn temporary_directory_of_another_gets_no_text() {
    let site = drifted_site();
    let shared = site.path("shared");
    fs::create_dir(&shared).unwrap();
    if std::os::unix::fs::chown(&shared, Some(OTHER_USER), None).is_err() {
        return skip_unsupported("only root can give directories away");
    }
    let program = install_script(&site, "program", "echo STARTED; read line");
    let directory = shared.display().to_string();
    let mut terminal = start_console(
        &site,
        &[
            ("TMPDIR", directory.as_str()),
            ("EDITOR", &program),
            ("PAGER", &program),
        ],
    );
    terminal.send("E");
    terminal.wait_for("cannot create a private directory in");
    terminal.send("d");
    terminal.wait_for("[Diff]");
    terminal.wait("the diff alone", |terminal| {
        let text = terminal.text();
        text.contains("hunk 1/1") && !text.contains("private directory")
    });
    terminal.send("o");
    terminal.wait_for("cannot create a private directory in");
    assert!(!terminal.text().contains("STARTED"));
    assert_eq!(fs::read_dir(&shared).unwrap().count(), 0);
    terminal.send("1");
    quit_console(terminal);
}

#[test]
fn pager_gets_screen_text_with_visible_controls() {
    let site = drifted_site();
    site.append(MONITOR_MEMORY, "- a \x1b]0;title\x07 of mine\n");
    let pager = install_script(
        &site,
        "pager",
        "cp \"$1\" $HOME/text; stat -c %a \"$1\" > $HOME/mode; echo \"$1\" > $HOME/path\n\
         echo \"$LESSSECURE\" > $HOME/secure; echo PAGING; read line",
    );
    let mut terminal = start_console(&site, &[("PAGER", &pager)]);
    terminal.send("Gd");
    terminal.wait_for("[Diff]");
    terminal.wait_for("monitor-bot");
    terminal.send("\t");
    terminal.wait_for("of mine");
    terminal.send("o");
    terminal.wait_for("PAGING");
    let text = script_output(&site, "text");
    assert!(
        text.contains("- quiet night\n- a ") && text.contains("of mine"),
        "{text}"
    );
    assert!(!text.contains(['\x1b', '\x07']), "{text:?}");
    assert_eq!(
        (
            script_output(&site, "mode").trim(),
            script_output(&site, "secure").trim()
        ),
        ("600", "1")
    );
    terminal.send("\r");
    wait_for_screen(&mut terminal);
    terminal.wait_for("of mine");
    let path = script_output(&site, "path");
    assert!(
        !Path::new(path.trim()).exists(),
        "temporary file not removed: {path}"
    );
    terminal.send("1");
    quit_console(terminal);
}

/// A site whose console keeps the output of every pager until a key is pressed.
fn site_with_pager_pause() -> Site {
    let site = drifted_site();
    let path = "home/config/memory-shepherd/console.toml";
    site.write(path, "pager-pause = true\n");
    site
}

/// Returns a console that shows the output of a pager, which has ended.
fn console_with_pager_output(site: &Site) -> Terminal {
    let mut terminal = start_console(site, &[("PAGER", "cat")]);
    terminal.send("Gd");
    terminal.wait_for("[Diff]");
    terminal.send("\t");
    terminal.wait_for("quiet night");
    terminal.send("o");
    terminal.wait_for("press any key to return to the console");
    terminal
}

#[test]
fn output_of_pager_waits_for_key() {
    let site = site_with_pager_pause();
    let mut terminal = console_with_pager_output(&site);
    assert!(!terminal.screen().alternate_screen());
    let text = terminal.text();
    assert!(text.contains("quiet night"), "{text}");
    // Neither a pasted text nor the key is a command.
    terminal.send("\x1b[200~q\x1b[201~");
    terminal.send("q");
    terminal.wait("the screen", |terminal| {
        terminal.screen().alternate_screen()
    });
    terminal.wait_for("quiet night");
    terminal.send("1");
    quit_console(terminal);
}

#[test]
fn console_ends_while_output_of_pager_is_shown() {
    let site = site_with_pager_pause();
    let mut terminal = console_with_pager_output(&site);
    terminal.signal(Signal::TERM);
    assert_eq!(terminal.wait_for_exit().signal(), None);
    terminal.assert_restored();
}

#[test]
fn pager_opens_only_unchanged_entry() {
    let site = drifted_site();
    let ran = site.run(["reset", "monitor-bot"]);
    assert_eq!(ran.exit_code, 0, "{}", ran.stderr);
    let pager = install_script(
        &site,
        "pager",
        "cp \"$1\" $HOME/text; echo PAGING; read line",
    );
    let mut terminal = start_console(&site, &[("PAGER", &pager)]);
    terminal.send("7");
    terminal.wait_for("reset monitor-bot");
    terminal.wait_for("memory-shepherd reset monitor-bot");
    terminal.send("o");
    terminal.wait_for("PAGING");
    assert!(script_output(&site, "text").ends_with("- quiet night\n"));
    terminal.send("\r");
    wait_for_screen(&mut terminal);
    let entry = site
        .path("archives/monitor")
        .join(&site.entry_names("monitor")[0]);
    fs::write(&entry, "something else").unwrap();
    terminal.send("o");
    terminal.wait_for("does not match its digest");
    terminal.send("1");
    quit_console(terminal);
}
