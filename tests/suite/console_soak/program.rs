//! The soak test with the real program in a terminal: keys, resizes, and agents that
//! write arbitrary bytes while their fleet is reset and undone. The final screen equals
//! that of a program just started on this fleet, and every byte of the output is on the
//! list of allowed sequences.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::number_from_environment;
use crate::fixture::{PROGRAM_PATH, Site};
use crate::fuzz::SeededNumbers;
use crate::output_checker::{StreamKind, all_payloads, unexpected_output};
use crate::terminal::{Terminal, isolated_command, wait_timeout};

/// The number of steps if no duration is given.
const DEFAULT_STEPS: usize = 250;

/// Keys that are pressed. None of them quits, stops the program or locks the fleet.
const PRESSED_KEYS: &[&str] = &[
    "j",
    "k",
    "G",
    "gg",
    "\x04",
    "\x15",
    "\x06",
    "\x02",
    "\t",
    "\x1b[Z",
    "\r",
    "l",
    "h",
    "\x1b",
    "-",
    "1",
    "2",
    "3",
    "5",
    "7",
    "8",
    "d",
    "t",
    "w",
    ".",
    "f",
    "=",
    "_",
    "i",
    "}",
    "{",
    "]",
    "[",
    "n",
    "N",
    "/the\r",
    "/is:drifted\r",
    "/\x15\r",
    " ",
    "v",
    "a",
    "A",
    "s",
    "S",
    "r",
    "R",
    "X",
    "z",
    "Z",
    "y",
    "yn",
    "yd",
    "yl",
    "ya",
    "yc",
    "c",
    "?",
    "?wrap\r",
    ":agent mon\r",
    ":sort age\r",
    ":theme dark\r",
    ":theme mono\r",
    ":theme terminal\r",
    "reset 1\r",
    "reset 2\r",
    "undo 1\r",
    "undo 2\r",
    "\x0c",
    "@",
    "x",
    "\x1b[200~pasted\r\x1b[201~",
    "\x1b[A",
    "\x1b[6~",
];

const AGENTS: [&str; 2] = ["code-reviewer", "monitor-bot"];
const CONFIG: &str = "memory-shepherd.conf";

struct ProgramSoak {
    site: Site,
    terminal: Terminal,
    numbers: SeededNumbers,
    payloads: Vec<Vec<u8>>,
    config: String,
}

impl ProgramSoak {
    fn start_console(site: &Site, size: (u16, u16)) -> Terminal {
        let mut command = isolated_command(Path::new(PROGRAM_PATH), &site.path("home"));
        command.args(["--config", site.path(CONFIG).to_str().unwrap()]);
        // These keys hand the terminal over for a moment.
        command.env("EDITOR", "true");
        command.env("PAGER", "true");
        Terminal::start(command, size)
    }

    fn take_step(&mut self) {
        match self.numbers.below(20) {
            0 => {
                // A frame for a larger size wraps; the emulator cannot wrap in a single
                // row, nor wrap a wide letter in a single column.
                let columns = 2 + self.numbers.below(299) as u16;
                let rows = 2 + self.numbers.below(99) as u16;
                self.terminal.resize(columns, rows);
            }
            1..4 => self.change_memory(),
            4 => {
                let comment = "# saved again\n";
                let wrong = "no_such_key = 1\n";
                let text = [comment, wrong, ""][self.numbers.below(3)];
                self.site.write(CONFIG, format!("{text}{}", self.config));
            }
            // A plan ignores keys for this time.
            5 => self.terminal.wait_for_quiet(),
            _ => {
                for _ in 0..=self.numbers.below(3) {
                    let key = PRESSED_KEYS[self.numbers.below(PRESSED_KEYS.len())];
                    self.terminal.send(key);
                }
            }
        }
        self.terminal.drain_output();
    }

    /// Help and palette list the quit command, too.
    fn restart_if_quit(&mut self) {
        if let Some(ended) = self.terminal.exit_status() {
            assert!(ended.success(), "{ended:?}");
            let again = ProgramSoak::start_console(&self.site, (120, 36));
            let mut left = std::mem::replace(&mut self.terminal, again);
            left.wait_for_exit();
            left.assert_restored();
            assert_only_own_sequences(&left);
            self.terminal.wait_for("AGENT");
        }
    }

    /// Changes a memory as an agent does.
    fn change_memory(&mut self) {
        let agent = AGENTS[self.numbers.below(AGENTS.len())];
        let name = format!("agents/{agent}/MEMORY.md");
        let path = self.site.path(&name);
        let payload = self.payloads[self.numbers.below(self.payloads.len())].clone();
        match self.numbers.below(6) {
            0 => {
                let _ = fs::remove_file(&path);
            }
            1 => {
                let beside = path.with_extension("new");
                fs::write(&beside, payload).unwrap();
                fs::rename(beside, &path).unwrap();
            }
            2 => self.site.write(&name, Site::read_baseline(agent)),
            3 => self.site.write(&name, payload),
            _ if path.exists() => self.site.append(&name, payload),
            _ => {}
        }
    }
}

/// Removes copied text from the output: base64 letters only.
fn without_clipboard_sequences(bytes: &[u8]) -> Vec<u8> {
    const BEGIN: &[u8] = b"\x1b]52;c;";
    let clip = |rest: &[u8]| {
        let text = rest.strip_prefix(BEGIN)?;
        let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
        let length = text.iter().take_while(|byte| is_letter(byte)).count();
        let ended = text[length..].starts_with(b"\x07");
        ended.then_some(BEGIN.len() + length + 1)
    };
    let (mut rest, mut kept) = (bytes, Vec::new());
    while let Some(first) = rest.first() {
        let length = clip(rest).unwrap_or_else(|| {
            kept.push(*first);
            1
        });
        rest = &rest[length..];
    }
    kept
}

/// Asserts that the output contains only the program's own sequences.
#[track_caller]
fn assert_only_own_sequences(terminal: &Terminal) {
    let mut foreign = unexpected_output(
        StreamKind::Screen,
        &without_clipboard_sequences(&terminal.bytes),
    );
    // The echo of keys typed while the pager had the terminal.
    foreign.retain(|it| !["control 08", "control 0d", "control 0a"].contains(&it.as_str()));
    assert!(foreign.is_empty(), "{foreign:?}");
}

/// Returns the rows of a screen without trailing blanks.
fn trimmed_rows(terminal: &Terminal) -> Vec<String> {
    let text = terminal.text();
    text.lines().map(|row| row.trim_end().to_string()).collect()
}

/// Whether the header names the editor's mode. A screen being drawn may be blank.
fn is_editor_shown(terminal: &Terminal) -> bool {
    let rows = trimmed_rows(terminal);
    rows.first().is_some_and(|row| row.ends_with(" NORMAL"))
}

/// Closes every overlay; shows the whole fleet without marks, the cursor on the first agent.
fn show_whole_fleet(terminal: &mut Terminal) {
    // A plan that the restored config has closed ignores keys until none comes for a while.
    if terminal.text().contains("pause for half a second") {
        (0..4).for_each(|_| terminal.wait_for_quiet());
    }
    terminal.send("\x1b");
    terminal.drain_output();
    // The editor keeps a text that is not saved.
    if is_editor_shown(terminal) {
        terminal.send(":q!\r");
        terminal.drain_output();
    }
    terminal.send("\x1b\x1b\x1b1A\x1b");
    terminal.wait_for_quiet();
    // The cursor on both agents ends their new trouble, which a fresh console does not have.
    terminal.send("G");
    terminal.wait_for_quiet();
    terminal.send("gg");
    terminal.wait_for_quiet();
}

#[test]
fn soaked_program_matches_fresh_program() {
    let seconds = number_from_environment("SOAK_SECONDS").map(Duration::from_secs);
    let seed = number_from_environment("SOAK_SEED").unwrap_or(1);
    let site = Site::new();
    let terminal = ProgramSoak::start_console(&site, (120, 36));
    let mut soak = ProgramSoak {
        config: site.read(CONFIG),
        site,
        terminal,
        numbers: SeededNumbers(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
        payloads: all_payloads(),
    };
    soak.terminal.wait_for("live");
    let began = Instant::now();
    let mut steps = 0;
    while match seconds {
        Some(seconds) => began.elapsed() < seconds,
        None => steps < DEFAULT_STEPS,
    } {
        soak.take_step();
        soak.restart_if_quit();
        steps += 1;
    }
    println!("SOAK_SEED={seed}: {steps} steps in {:.0?}", began.elapsed());
    let ProgramSoak {
        site,
        mut terminal,
        config,
        ..
    } = soak;
    site.write(CONFIG, config);
    terminal.resize(120, 36);
    terminal.wait("the fleet", |terminal| {
        show_whole_fleet(terminal);
        let text = terminal.text();
        text.contains("live") && text.contains("WHY")
    });
    let mut fresh = ProgramSoak::start_console(&site, (120, 36));
    let end = Instant::now() + wait_timeout();
    loop {
        show_whole_fleet(&mut fresh);
        show_whole_fleet(&mut terminal);
        let (shown, expected) = (trimmed_rows(&terminal), trimmed_rows(&fresh));
        if shown == expected {
            break;
        }
        assert!(
            Instant::now() < end,
            "screen:\n{}\nscreen of a fresh console:\n{}",
            shown.join("\n"),
            expected.join("\n")
        );
    }
    assert_only_own_sequences(&terminal);
    for mut terminal in [terminal, fresh] {
        // The first key may warn of a text in the editor that is not saved.
        terminal.send("qq");
        assert!(terminal.wait_for_exit().success());
        terminal.assert_restored();
    }
}
