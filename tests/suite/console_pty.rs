//! The console in a real terminal: its screens, its effects on agents, and the restored
//! terminal after every kind of exit.

mod baselines;
mod editor;
mod memory;
mod themes;

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use memory_shepherd::console::shell::terminal::{TerminalFeatures, TerminalScreen};
use portable_pty::CommandBuilder;
use rustix::process::Signal;

use crate::fixture::{PROGRAM_PATH, Site};
use crate::signed_seals::{has_ssh_keygen, make_key};
use crate::terminal::{Terminal, isolated_command, visible_cells};

const TERMINAL_SIZE: (u16, u16) = (120, 36);
const REVIEWER_MEMORY: &str = "agents/code-reviewer/MEMORY.md";
const MONITOR_MEMORY: &str = "agents/monitor-bot/MEMORY.md";
const CONFIG_NAME: &str = "memory-shepherd.conf";

/// A fleet of two: one agent changed its rules, one has a few notes.
fn two_agent_site() -> Site {
    let site = Site::new();
    let edited = Site::read_baseline("code-reviewer").replacen("1. ", "1. Perhaps: ", 1);
    site.write(REVIEWER_MEMORY, edited);
    site.append(MONITOR_MEMORY, "- quiet night\n- disk at 71 %\n");
    site
}

/// Appends as an agent does.
fn append_note(site: &Site, name: &str, text: &str) {
    let file = fs::File::options().append(true).open(site.path(name));
    file.unwrap().write_all(text.as_bytes()).unwrap();
}

fn start_program(site: &Site, arguments: &[&str]) -> Terminal {
    start_program_at(site, arguments, TERMINAL_SIZE)
}

/// The command that opens the console.
fn console_command(site: &Site) -> CommandBuilder {
    let mut command = isolated_command(Path::new(PROGRAM_PATH), &site.path("home"));
    command.args(["--config", site.path(CONFIG_NAME).to_str().unwrap()]);
    command
}

fn start_program_at(site: &Site, arguments: &[&str], size: (u16, u16)) -> Terminal {
    let mut command = isolated_command(Path::new(PROGRAM_PATH), &site.path("home"));
    command.args(arguments);
    if arguments.first() != Some(&"demo") {
        command.args(["--config", site.path(CONFIG_NAME).to_str().unwrap()]);
    }
    Terminal::start(command, size)
}

/// Starts the console and waits until it has read the fleet.
fn start_fleet(site: &Site) -> Terminal {
    start_fleet_at(site, TERMINAL_SIZE)
}

fn start_fleet_at(site: &Site, size: (u16, u16)) -> Terminal {
    let mut terminal = start_program_at(site, &[], size);
    terminal.wait_for("DRIFTED  ");
    terminal.wait_for("SCRATCH  ");
    terminal.wait_for("live");
    terminal
}

#[track_caller]
fn quit_console(mut terminal: Terminal) {
    terminal.send("q");
    let ended = terminal.wait_for_exit();
    assert!(ended.success(), "{ended:?}");
    terminal.assert_restored();
}

/// Sends nothing for longer than a plan ignores keys.
fn outlast_key_guard(terminal: &mut Terminal) {
    (0..4).for_each(|_| terminal.wait_for_quiet());
}

/// Returns the screen row of an agent.
fn agent_row(terminal: &Terminal, agent: &str) -> String {
    let text = terminal.text();
    let mut rows = text.lines().filter(|row| row.contains(agent));
    rows.next().unwrap_or_default().to_string()
}

#[test]
fn console_starts_on_fleet_and_restores_terminal() {
    let site = two_agent_site();
    let mut terminal = start_fleet(&site);
    assert!(terminal.screen().alternate_screen() && terminal.screen().hide_cursor());
    assert!(terminal.screen().bracketed_paste() && terminal.is_raw());
    assert!(
        agent_row(&terminal, "code-reviewer").starts_with('>'),
        "the cursor is not on the worst agent"
    );
    terminal.wait_for_quiet();
    let before = terminal.bytes.len();
    terminal.wait_for_quiet();
    assert_eq!(
        terminal.bytes.len(),
        before,
        "an idle console wrote to the terminal"
    );
    quit_console(terminal);
}

#[test]
fn reset_is_planned_confirmed_and_undone() {
    let site = two_agent_site();
    let drifted = site.read(REVIEWER_MEMORY);
    let mut terminal = start_fleet(&site);
    terminal.send("d");
    terminal.wait_for("Perhaps: ");
    terminal.send("X");
    terminal.wait_for("RESET PLAN");
    terminal.wait_for("reset 1");
    // The plan ignores keys until it accepts them, and other keys never confirm.
    terminal.send("y\r \r");
    terminal.wait_for_quiet();
    terminal.send("\r y\r");
    terminal.wait_for_quiet();
    assert_eq!(
        site.read(REVIEWER_MEMORY),
        drifted,
        "reset before the confirmation"
    );
    type_confirmation(&mut terminal, "reset 1");
    terminal.send("\r");
    // During the run the screen counts finished agents, and an undo waits.
    terminal.wait_for("z undoes this run");
    assert_eq!(
        site.read(REVIEWER_MEMORY),
        Site::read_baseline("code-reviewer")
    );
    assert_eq!(site.entry_names("code-reviewer").len(), 1);
    terminal.send("z");
    terminal.wait_for("UNDO PLAN");
    terminal.wait_for_quiet();
    terminal.send_until("y", "the undo", |terminal| {
        !terminal.text().contains("UNDO PLAN")
    });
    terminal.wait_for("1 ok, 0 failed");
    assert_eq!(site.read(REVIEWER_MEMORY), drifted, "byte for byte");
    terminal.send("1");
    terminal.wait_for("WHY");
    quit_console(terminal);
}

/// Types a word once the plan accepts keys, without input from before.
fn type_confirmation(terminal: &mut Terminal, word: &str) {
    let keys = "\x7f".repeat(word.len()) + word;
    terminal.send_until(&keys, "typing", |terminal| {
        terminal.text().contains(&format!("{word}_"))
    });
}

#[test]
fn key_that_arrives_byte_by_byte_is_one_key() {
    let site = two_agent_site();
    let mut terminal = start_fleet(&site);
    let is_on = |terminal: &Terminal, agent: &str| agent_row(terminal, agent).starts_with('>');
    let (first, second) = ("code-reviewer", "monitor-bot");
    // Where the machine is so busy that the bytes come too far apart, `A` clears the marks.
    terminal.wait("an arrow key in three parts", |terminal| {
        terminal.send("a");
        terminal.wait_for("marked 2");
        terminal.send("j");
        terminal.wait("the cursor", |terminal| is_on(terminal, second));
        // The footer answers each Esc, so it has been read alone.
        terminal.send("\x1b");
        terminal.wait_for("q quits");
        terminal.send("[");
        terminal.drain_output();
        terminal.send("A");
        terminal.wait_for_quiet();
        is_on(terminal, first) && terminal.text().contains("marked 2")
    });
    quit_console(terminal);
}

#[test]
fn resize_storm_ends_with_exact_screen() {
    let site = two_agent_site();
    let mut terminal = start_fleet(&site);
    let mut random = 7_u32;
    let mut next = |most: u32| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((random >> 8) % most + 1) as u16
    };
    for number in 0..40 {
        let (columns, rows) = match number {
            0 => (1, 1),
            1 => (300, 100),
            _ => (next(300), next(100)),
        };
        terminal.resize(columns, rows);
        if number % 3 == 0 {
            terminal.send("jk");
        }
    }
    terminal.resize(97, 31);
    // Neither an earlier size nor the delayed details of the cursor's row may remain:
    // the final screen equals that of a console started with this size.
    let mut other = start_fleet_at(&site, (97, 31));
    other.wait("the cursor's agent", |other| {
        other.row(27).starts_with(" code-reviewer: ")
    });
    let expected = visible_cells(other.screen());
    quit_console(other);
    terminal.wait_for_cells("after the storm", &expected);
    let before = terminal.bytes.len();
    terminal.send("\x0c");
    terminal.wait("everything to be drawn again", |terminal| {
        terminal.bytes.len() > before + 500
    });
    terminal.wait_for_cells("a fresh paint", &expected);
    quit_console(terminal);
}

#[test]
fn restored_size_is_redrawn() {
    let site = two_agent_site();
    let mut terminal = start_fleet(&site);
    terminal.wait_for_quiet();
    let expected = visible_cells(terminal.screen());
    // The kernel may merge two changes into one signal: the size is the old one, and
    // the terminal has cut its content.
    terminal.resize_unseen(20, 5);
    terminal.signal(Signal::WINCH);
    terminal.wait_for_cells("the size that came back", &expected);
    quit_console(terminal);
}

#[test]
fn huge_terminal_is_used_in_part() {
    let site = two_agent_site();
    let mut terminal = start_fleet(&site);
    terminal.resize(1100, 520);
    terminal.wait("the footer in the last row that is used", |terminal| {
        terminal.row(511).contains("? help")
    });
    assert_eq!(terminal.row(519), "");
    quit_console(terminal);
}

#[test]
fn ending_signals_restore_terminal() {
    for signal in [Signal::TERM, Signal::HUP, Signal::INT, Signal::QUIT] {
        let site = two_agent_site();
        let mut terminal = start_fleet(&site);
        terminal.signal(signal);
        let ended = terminal.wait_for_exit();
        assert_eq!(
            ended.signal(),
            None,
            "{signal:?}: killed instead of a clean exit"
        );
        assert_eq!(ended.exit_code(), 130, "{signal:?}: interrupted");
        terminal.assert_restored();
    }
}

#[test]
fn signal_during_startup_restores_terminal() {
    let site = two_agent_site();
    let (mut terminal, go_on) = Terminal::start_stopped(console_command(&site), TERMINAL_SIZE);
    // The console waits for the terminal to take the sequences that enter the screen.
    terminal.wait("raw mode", |terminal| terminal.is_raw());
    terminal.signal(Signal::TERM);
    go_on();
    let ended = terminal.wait_for_exit();
    assert_eq!(ended.signal(), None, "killed instead of a clean exit");
    assert_eq!(ended.exit_code(), 130, "interrupted");
    terminal.assert_restored();
}

/// A size that no thread's stack can have, so that the system refuses every thread.
const REFUSED_STACK_SIZE: &str = "70368744177664";

#[test]
fn refused_thread_ends_console_with_reason() {
    let site = two_agent_site();
    let mut command = console_command(&site);
    command.env("RUST_MIN_STACK", REFUSED_STACK_SIZE);
    let mut terminal = Terminal::start(command, TERMINAL_SIZE);
    let ended = terminal.wait_for_exit();
    assert_eq!(ended.exit_code(), 3, "{}", terminal.text());
    terminal.assert_restored();
    let output = String::from_utf8_lossy(&terminal.bytes).into_owned();
    assert!(output.contains("cannot start a thread: "), "{output:?}");
    assert!(!output.contains("panicked"), "{output:?}");
}

#[test]
fn control_z_suspends_and_resumes() {
    for by_key in [true, false] {
        let site = two_agent_site();
        let mut terminal = start_fleet(&site);
        for _ in 0..2 {
            match by_key {
                true => terminal.send("\x1a"),
                false => terminal.signal(Signal::TSTP),
            }
            terminal.wait("a stop", |terminal| terminal.process_state().0 == 'T');
            terminal.wait("a screen that was left", |terminal| {
                !terminal.screen().alternate_screen()
            });
            terminal.assert_restored();
            append_note(&site, MONITOR_MEMORY, "- while nobody looked\n");
            terminal.signal(Signal::CONT);
            terminal.wait("a screen", |terminal| terminal.screen().alternate_screen());
            terminal.wait_for("SCRATCH  ");
            assert!(terminal.is_raw() && terminal.screen().hide_cursor());
        }
        terminal.wait("the new notes", |terminal| {
            agent_row(terminal, "monitor-bot").contains(" 4 ")
        });
        quit_console(terminal);
    }
}

#[test]
fn closed_terminal_ends_console() {
    let site = two_agent_site();
    let mut terminal = start_fleet(&site);
    let (_, before) = terminal.process_state();
    terminal.close("j");
    let began = Instant::now();
    // A zombie still reports its processor time.
    terminal.wait("the end", |terminal| {
        matches!(terminal.process_state().0, 'Z' | '?')
    });
    let (_, after) = terminal.process_state();
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    assert!(
        after - before < 1.0,
        "busy loop: {:.2} s of processor time",
        after - before
    );
    let ended = terminal.wait_for_exit();
    assert_eq!(ended.signal(), None, "{ended:?}");
    assert_eq!(ended.exit_code(), 130);
}

#[test]
fn kept_demo_names_its_directory() {
    let site = Site::new();
    let mut terminal = start_program(&site, &["demo", "--dir", "the fleet"]);
    terminal.wait_for("TAMPERED  ");
    terminal.send("q");
    assert!(terminal.wait_for_exit().success());
    terminal.assert_restored();
    let directory = site.path("home/the fleet").display().to_string();
    let said = terminal.text().replace('\n', "");
    assert!(
        said.contains(&format!("example fleet kept in {directory}; ")),
        "{said}"
    );
    assert!(said.contains(&format!("--config '{directory}/")), "{said}");
}

#[test]
fn memory_changes_show_at_once() {
    let site = two_agent_site();
    let mut terminal = start_fleet(&site);
    append_note(&site, MONITOR_MEMORY, "- third\n");
    let took = terminal.wait("the third note", |terminal| {
        agent_row(terminal, "monitor-bot").contains(" 3 ")
    });
    println!("a local change showed after {took:?}");
    // A change of the agent's rules is detected, too.
    let edited = site.read(MONITOR_MEMORY).replacen("1. ", "1. Perhaps: ", 1);
    site.write(MONITOR_MEMORY, edited);
    terminal.wait("the drift", |terminal| {
        agent_row(terminal, "monitor-bot").contains("DRIFTED")
    });
    // So is a change while the agent's text is open.
    terminal.send("j");
    terminal.wait("the cursor", |terminal| {
        agent_row(terminal, "monitor-bot").starts_with('>')
    });
    terminal.send("d");
    terminal.wait_for("Perhaps: ");
    terminal.send("\tG");
    terminal.wait_for("- third");
    append_note(&site, MONITOR_MEMORY, "- fourth\n");
    terminal.wait_for("- fourth");
    terminal.send("q");
    terminal.wait_for("DRIFTED  ");
    quit_console(terminal);
}

#[test]
fn broken_and_repaired_config_is_followed() {
    let site = two_agent_site();
    let mut terminal = start_fleet(&site);
    let good = site.read(CONFIG_NAME);
    site.write(CONFIG_NAME, format!("{good}\n[new-one]\nno_such_key=1\n"));
    terminal.wait_for("memory-shepherd.conf:");
    assert!(
        terminal.text().contains("monitor-bot"),
        "the old config is not in force"
    );
    let unknown_group = "[general]\narchive_group=no-such-group-here";
    site.write(CONFIG_NAME, good.replace("[general]", unknown_group));
    terminal.wait_for("archive_group: no group");
    site.write("baselines/triage-MEMORY.md", Site::read_baseline("triage"));
    site.write("agents/triage/MEMORY.md", Site::read_baseline("triage"));
    let path = site.path("agents/triage/MEMORY.md");
    let section = format!(
        "\n[triage]\nmemory_file={}\nbaseline=triage-MEMORY.md\n",
        path.display()
    );
    site.write(CONFIG_NAME, good + &section);
    terminal.wait_for("CLEAN  ");
    assert!(agent_row(&terminal, "triage").contains("CLEAN"));
    assert!(
        !terminal.text().contains("memory-shepherd.conf:"),
        "{}",
        terminal.text()
    );
    // The new config's paths are watched as well.
    append_note(&site, "agents/triage/MEMORY.md", "- one\n- two\n- three\n");
    terminal.wait("its notes", |terminal| {
        agent_row(terminal, "triage").contains(" 3 ")
    });
    quit_console(terminal);
}

const PREFERENCES_PATH: &str = "home/config/memory-shepherd/console.toml";

#[test]
fn preferences_are_followed_and_errors_reported() {
    let site = two_agent_site();
    // Neither the file nor its directory exists yet.
    let mut terminal = start_fleet(&site);
    site.write(PREFERENCES_PATH, "[keys]\nlog = \"L\"\n");
    terminal.wait_for("in force");
    terminal.wait_for("L log");
    site.write(PREFERENCES_PATH, "theme = \"mono\"\n[keys]\nlogg = \"7\"\n");
    terminal.wait_for("console.toml:3: unknown command `logg`; did you mean `log`?");
    assert!(terminal.text().contains("L log"), "{}", terminal.text());
    // The file is replaced by rename, as editors do.
    let columns = "columns = [\"agent\", \"state\", \"size\"]\n";
    site.write("home/new", columns);
    fs::rename(site.path("home/new"), site.path(PREFERENCES_PATH)).unwrap();
    terminal.wait("the columns", |terminal| {
        agent_row(terminal, "AGENT")
            .trim_start()
            .starts_with("AGENT")
    });
    let text = terminal.text();
    assert!(
        !text.contains("console.toml:") && !text.contains("WHY"),
        "{text}"
    );
    assert!(text.contains("7 log"), "{text}");
    fs::remove_file(site.path(PREFERENCES_PATH)).unwrap();
    terminal.wait_for("WHY");
    quit_console(terminal);
}

#[test]
fn preferences_are_followed_through_symlink() {
    let site = two_agent_site();
    site.write("home/dotfiles/console.toml", "[keys]\nlog = \"L\"\n");
    fs::create_dir_all(site.path(PREFERENCES_PATH).parent().unwrap()).unwrap();
    symlink(
        site.path("home/dotfiles/console.toml"),
        site.path(PREFERENCES_PATH),
    )
    .unwrap();
    let mut terminal = start_fleet(&site);
    terminal.wait_for("L log");
    for key in ["M", "J", "Y"] {
        let text = format!("[keys]\nlog = \"{key}\"\nprevious-hit = []\n");
        site.write("home/dotfiles/console.toml", text);
        terminal.wait_for(&format!("{key} log"));
    }
    quit_console(terminal);
}

#[test]
fn order_and_filter_are_restored_on_next_start() {
    let site = two_agent_site();
    let mut terminal = start_fleet(&site);
    terminal.send("/monitor\r");
    terminal.wait("the filter", |terminal| {
        agent_row(terminal, "code-reviewer").is_empty()
    });
    terminal.send("S");
    quit_console(terminal);
    let mut terminal = start_program(&site, &[]);
    terminal.wait_for("filter: monitor (restored; Esc clears)");
    terminal.wait_for("reversed");
    terminal.wait_for("1 DRIFTED");
    assert!(agent_row(&terminal, "code-reviewer").is_empty());
    terminal.send("\x1b");
    terminal.wait("all of them", |terminal| {
        !agent_row(terminal, "code-reviewer").is_empty()
    });
    quit_console(terminal);
    // The console reports an unreadable file and continues.
    site.write("home/state/memory-shepherd/view.toml", "[[[");
    let mut terminal = start_fleet(&site);
    terminal.send("7");
    terminal.wait_for("sort order and filter are not saved");
    terminal.send("1");
    terminal.wait_for("filter: none");
    quit_console(terminal);
}

#[test]
fn pending_key_shows_continuations() {
    let site = two_agent_site();
    let mut terminal = start_fleet(&site);
    terminal.send("g");
    terminal.wait_for("Go to the beginning");
    terminal.wait_for("Esc cancels");
    terminal.send("\x1b");
    terminal.wait("the popup to go", |terminal| {
        !terminal.text().contains("Go to the beginning")
    });
    quit_console(terminal);
}

#[test]
fn removed_baseline_is_reported_and_recovers() {
    let site = two_agent_site();
    let mut terminal = start_fleet(&site);
    let baseline = site.path("baselines/monitor-bot-MEMORY.md");
    fs::remove_file(&baseline).unwrap();
    terminal.wait("the error", |terminal| {
        agent_row(terminal, "monitor-bot").contains("ERROR")
    });
    assert!(
        agent_row(&terminal, "monitor-bot").contains("baseline"),
        "{}",
        terminal.text()
    );
    terminal.send("a X");
    terminal.wait_for("RESET PLAN");
    terminal.wait_for("skipped");
    terminal.send_until("\x1b", "the fleet", |terminal| {
        terminal.text().contains("AGENT ") && !terminal.text().contains("RESET PLAN")
    });
    site.write(
        "baselines/monitor-bot-MEMORY.md",
        Site::read_baseline("monitor-bot"),
    );
    terminal.wait("its repair", |terminal| {
        agent_row(terminal, "monitor-bot").contains("SCRATCH")
    });
    quit_console(terminal);
}

#[test]
fn non_memory_files_are_reported() {
    let site = two_agent_site();
    let mut terminal = start_fleet(&site);
    let path = site.path(MONITOR_MEMORY);
    let becomes = |terminal: &mut Terminal, what: &str, state: &str, make: &dyn Fn()| {
        let _ = fs::remove_dir(&path);
        let _ = fs::remove_file(&path);
        terminal.wait(&format!("MISSING before {what}"), |terminal| {
            agent_row(terminal, "monitor-bot").contains("MISSING")
        });
        make();
        terminal.wait(what, |terminal| {
            agent_row(terminal, "monitor-bot").contains(state)
        });
    };
    becomes(&mut terminal, "a directory", "ERROR", &|| {
        fs::create_dir(&path).unwrap()
    });
    becomes(&mut terminal, "a link", "ERROR", &|| {
        symlink("/etc/passwd", &path).unwrap()
    });
    becomes(&mut terminal, "a link to itself", "ERROR", &|| {
        symlink(&path, &path).unwrap()
    });
    becomes(&mut terminal, "a pipe", "ERROR", &|| {
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
    });
    becomes(&mut terminal, "an empty file", "NOSEP", &|| {
        site.write(MONITOR_MEMORY, "")
    });
    becomes(&mut terminal, "no text", "NOSEP", &|| {
        site.write(
            MONITOR_MEMORY,
            (0..=255).cycle().take(100_000).collect::<Vec<u8>>(),
        );
    });
    let hidden = || {
        site.write(MONITOR_MEMORY, "hidden");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o0)).unwrap();
    };
    // Root may read every file.
    let root = rustix::process::geteuid().is_root();
    becomes(
        &mut terminal,
        "an unreadable file",
        if root { "NOSEP" } else { "ERROR" },
        &hidden,
    );
    // The agent's text still opens.
    for _ in 0..3 {
        terminal.send("d");
        terminal.wait_for("[Diff]");
        terminal.send("]");
        terminal.wait_for_quiet();
        terminal.send("q");
        terminal.wait_for("AGENT ");
    }
    quit_console(terminal);
}

#[test]
fn read_only_console_plans_and_runs_nothing() {
    let site = two_agent_site();
    let before = site.read(REVIEWER_MEMORY);
    let mut terminal = start_program(&site, &["--read-only"]);
    terminal.wait_for("DRIFTED  ");
    assert!(terminal.row(0).contains(" RO "), "{}", terminal.row(0));
    terminal.send("X");
    terminal.wait_for("RESET PLAN");
    terminal.wait_for("Started with --read-only: runs are disabled");
    terminal.send_until("reset 1\r", "keys that count", |_| true);
    terminal.send("!");
    terminal.wait_for("quit and start without it");
    terminal.send("1");
    terminal.wait_for("WHY");
    assert_eq!(site.read(REVIEWER_MEMORY), before);
    quit_console(terminal);
}

#[test]
fn demo_leaves_no_files_behind() {
    for end in ["q", "^c", "TERM", "HUP", "close"] {
        let site = Site::new();
        let mut terminal = start_program(&site, &["demo"]);
        terminal.wait_for("TAMPERED  ");
        let temporary = || fs::read_dir(site.path("home/tmp")).unwrap().count();
        assert_eq!(temporary(), 1);
        match end {
            "q" => terminal.send("q"),
            "^c" => terminal.send("\x03"),
            "TERM" => terminal.signal(Signal::TERM),
            "HUP" => terminal.signal(Signal::HUP),
            _ => terminal.close("j"),
        }
        let ended = terminal.wait_for_exit();
        assert_eq!(ended.signal(), None, "{end}: {ended:?}");
        assert_eq!(temporary(), 0, "{end} leaves files behind");
        if end != "close" {
            terminal.assert_restored();
        }
    }
}

#[test]
fn demo_host_disconnects_and_reconnects() {
    let site = Site::new();
    let mut terminal = start_program(&site, &["demo"]);
    let agents = ["dock-watch", "customs-clerk"];
    terminal.wait_for("CLEAN  ");
    for _ in 0..2 {
        // The console pauses before it retries a host that did not answer.
        terminal.send_until("R", "the agents of the host", |terminal| {
            agent_row(terminal, agents[0]).contains("SCRATCH")
                && agent_row(terminal, agents[1]).contains("DRIFTED")
        });
        terminal.send("D");
        terminal.wait("that it is away", |terminal| {
            agents
                .iter()
                .all(|agent| agent_row(terminal, agent).contains("UNREACH"))
        });
        assert!(agent_row(&terminal, "data-steward").contains("CLEAN"));
        terminal.send("D");
    }
    quit_console(terminal);
}

/// Set when this binary restarts itself to panic on a screen.
const PANIC_VARIABLE: &str = "MEMORY_SHEPHERD_TEST_PANIC";

#[test]
fn child_panics_on_screen() {
    if std::env::var_os(PANIC_VARIABLE).is_none() {
        return;
    }
    let screen = TerminalScreen::enter(TerminalFeatures::from_term("xterm", "")).unwrap();
    panic!(
        "this is the panic of a test on a screen of {:?}",
        screen.size()
    );
}

/// Set when this binary restarts itself on a terminal that it cannot write to.
const FULL_VARIABLE: &str = "MEMORY_SHEPHERD_TEST_FULL";

#[test]
fn child_cannot_enter_screen() {
    if std::env::var_os(FULL_VARIABLE).is_none() {
        return;
    }
    let out = rustix::io::dup(rustix::stdio::stdout()).unwrap();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    rustix::stdio::dup2_stdout(&full).unwrap();
    let entered = TerminalScreen::enter(TerminalFeatures::from_term("xterm", ""));
    rustix::stdio::dup2_stdout(&out).unwrap();
    let error = entered.err().expect("nothing can be written");
    assert!(error.to_string().contains("take over"), "{error}");
}

#[test]
fn failed_terminal_setup_is_undone() {
    let site = Site::new();
    let program = std::env::current_exe().unwrap();
    let mut command = isolated_command(&program, &site.path("home"));
    command.args(["--exact", "console_pty::child_cannot_enter_screen"]);
    command.env(FULL_VARIABLE, "1");
    let mut terminal = Terminal::start(command, TERMINAL_SIZE);
    let ended = terminal.wait_for_exit();
    assert!(ended.success(), "{}", terminal.text());
    terminal.assert_restored();
}

#[test]
fn panic_is_reported_after_terminal_is_restored() {
    let site = Site::new();
    let program = std::env::current_exe().unwrap();
    let mut command = isolated_command(&program, &site.path("home"));
    command.args([
        "--exact",
        "console_pty::child_panics_on_screen",
        "--nocapture",
        "--test-threads=1",
    ]);
    command.env(PANIC_VARIABLE, "1");
    command.env("RUST_BACKTRACE", "0");
    let mut terminal = Terminal::start(command, TERMINAL_SIZE);
    let ended = terminal.wait_for_exit();
    assert_eq!(ended.exit_code(), 101, "{}", terminal.text());
    terminal.assert_restored();
    let output = String::from_utf8_lossy(&terminal.bytes).into_owned();
    let place = |text: &str| {
        output
            .find(text)
            .unwrap_or_else(|| panic!("no {text:?} in {output:?}"))
    };
    let (entered, left) = (place("\x1b[?1049h"), place("\x1b[?1049l"));
    let said = place("this is the panic of a test on a screen of (120, 36)");
    assert!(entered < left && left < said, "{output:?}");
    assert_eq!(
        output.matches("\x1b[?1049l").count(),
        1,
        "the alternate screen was not left exactly once: {output:?}"
    );
    assert!(
        terminal.text().contains("this is the panic"),
        "{}",
        terminal.text()
    );
}
