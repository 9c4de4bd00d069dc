//! What every screen looks like in every state: pictures in words, at the two
//! sizes that matter most.
//!
//! `INSTA_UPDATE=always cargo test console_views` draws them anew, and
//! `UPDATE_README=1 cargo test console_views` writes the keys into README.md.

mod agent;

use std::fs;
use std::path::Path;
use std::time::Duration;

use memory_shepherd::baseline::Inspected;
use memory_shepherd::console::command::{self, TABLE};
use memory_shepherd::console::model::{Edit, FleetView, Level, Sort};
use memory_shepherd::console::preferences;
use memory_shepherd::console::theme::{MONO, Theme};
use memory_shepherd::console::update::{DEAF, Msg};
use memory_shepherd::console::view;
use memory_shepherd::digest::Digest;
use memory_shepherd::engine::{
    Act, Observation, Outcome, Progress, Reach, Setting, Stage as Step, Standing, State, UndoMode,
};
use memory_shepherd::transport::sftp::askpass::{self, HostKey, Question, Wants, Whose};
use memory_shepherd::untrusted::{Hidden, Untrusted};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use crate::console_fleet::{
    Console, address, fleet, host, host_key, passphrase, plan, report, run, seen, skipped, undo,
    unread, wrong,
};

const SIZES: [(u16, u16); 2] = [(120, 36), (80, 24)];

/// What a terminal of this size shows.
fn drawn(console: &Console, theme: &str) -> String {
    let (columns, rows) = console.model.size;
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    let theme = Theme::named(theme).unwrap();
    terminal
        .draw(|frame| view::draw(&console.model, &theme, frame.buffer_mut()))
        .unwrap();
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for row in 0..rows {
        let mut skip = 0;
        let mut line = String::new();
        for column in 0..columns {
            let symbol = buffer[(column, row)].symbol();
            if skip == 0 {
                line.push_str(symbol);
                skip = unicode_width::UnicodeWidthStr::width(symbol).max(1);
            }
            skip -= 1;
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Pictures of a state at both sizes, and no panic at sizes that are too small.
fn picture(name: &str, make: impl Fn(&mut Console)) {
    picture_of(name, herd, make);
}

fn picture_of(name: &str, first: impl Fn() -> Console, make: impl Fn(&mut Console)) {
    for (columns, rows) in SIZES {
        let mut console = first();
        console.send(Msg::Resize(columns, rows));
        make(&mut console);
        let name = format!("{name}_{columns}x{rows}");
        insta::assert_snapshot!(name, drawn(&console, "terminal"));
    }
    for (columns, rows) in [(160, 50), (60, 15), (59, 15), (60, 14), (20, 5), (1, 1)] {
        let mut console = first();
        // Where nothing can be seen no key does anything.
        let (width, height) = (columns.max(60), rows.max(15));
        console.send(Msg::Resize(width, height));
        make(&mut console);
        console.send(Msg::Resize(columns, rows));
        drawn(&console, "terminal");
        drawn(&console, MONO);
        // Also when the size changes later.
        console.send(Msg::Resize(rows, columns));
        drawn(&console, "terminal");
    }
}

/// A fleet with an agent in every state.
fn herd() -> Console {
    let mut console = fleet(&[
        ("android-17", State::Clean),
        ("billing-bot", State::Tampered),
        ("code-reviewer", State::Drifted),
        ("docs-writer", State::Scratch),
        ("inbox-scout", State::Error),
        ("log-digger", State::NoSep),
        ("monitor-bot", State::Scratch),
        ("release-captain", State::Busy),
        ("researcher", State::Oversize),
        ("test-runner", State::Missing),
        (
            "an-agent-with-a-name-that-is-very-long-indeed",
            State::Clean,
        ),
    ]);
    let failed = [
        ("code-reviewer", Outcome::Ok),
        ("monitor-bot", Outcome::Ok),
        ("inbox-scout", Outcome::Failed),
    ];
    let mut first = run("1f00d5ee", 1630, &[("researcher", Outcome::Ok)]);
    first.undone = vec!["researcher".to_string()];
    console.send(Msg::Log(Ok(vec![run("5a10c3d2", 190, &failed), first])));
    console
}

// ---- The fleet ---------------------------------------------------------------

#[test]
fn fleet_in_every_state() {
    picture("fleet", |_| {});
}

#[test]
fn fleet_with_marks_some_of_them_hidden() {
    picture("fleet_marks", |console| {
        console.press("j Space j Space / ! c o d e Enter");
    });
}

#[test]
fn fleet_while_a_filter_is_typed() {
    picture("fleet_filtering", |console| {
        console.press("/ i s : s c");
    });
}

#[test]
fn fleet_whose_filter_hides_all() {
    picture("fleet_nothing", |console| {
        console.press("/ f o o Enter");
    });
}

#[test]
fn fleet_in_another_order() {
    picture("fleet_sorted", |console| {
        console.press("s n a m e Enter S");
    });
}

#[test]
fn fleet_without_agents() {
    picture_of("fleet_empty", || unread(&[], (120, 36)), |_| {});
}

#[test]
fn fleet_that_is_remembered() {
    let names = ["billing-bot", "code-reviewer", "docs-writer", "new-one"];
    picture_of(
        "fleet_loading",
        || unread(&names, (120, 36)),
        |console| {
            let old = [State::Tampered, State::Drifted, State::Scratch];
            let old = names.iter().zip(old).map(|(name, state)| Observation {
                address: Some(address(name)),
                ..seen(name, state)
            });
            console.send(Msg::Remembered(old.collect()));
            console.observe(vec![seen("docs-writer", State::Clean)]);
        },
    );
}

#[test]
fn fleet_that_was_never_seen() {
    picture_of(
        "fleet_unread",
        || unread(&["alpha", "bravo"], (120, 36)),
        |_| {},
    );
}

#[test]
fn fleet_with_a_wrong_config_and_a_broken_ledger() {
    picture("fleet_errors", |console| {
        console.send(Msg::ConfigBroken(vec![wrong(
            "[triage] no_such_key: unknown",
        )]));
        console.send(Msg::Log(Err(
            "the ledger's chain is broken at record 7".to_string()
        )));
    });
}

#[test]
fn fleet_that_is_read_only() {
    picture("fleet_read_only", |console| {
        console.model.read_only.on = true;
        console.press("X");
    });
}

#[test]
fn fleet_that_is_unlocked() {
    picture("fleet_unlocked", |console| {
        console.model.read_only.on = true;
        console.press("! y");
    });
}

/// What a file of preferences says, put in force.
fn prefer(console: &mut Console, text: &str) {
    let (preferences, found) = preferences::parse(text, Path::new("console.toml"));
    assert_eq!(found, []);
    console.send(Msg::Preferences(Box::new(preferences)));
    console.press("j k");
}

#[test]
fn fleet_with_a_filter_of_the_last_time() {
    picture("fleet_kept", |console| {
        console.model.look_again(FleetView {
            sort: Sort::Size,
            reverse: true,
            filter: "!code".to_string(),
        });
    });
}

#[test]
fn fleet_with_other_columns_and_keys() {
    picture("fleet_preferred", |console| {
        let mut runs = Vec::new();
        for (number, size) in [9_000, 500, 16_000, 24_000, 12_000].into_iter().enumerate() {
            let id = format!("0000000{number}");
            let mut run = run(&id, number as i64, &[("monitor-bot", Outcome::Ok)]);
            run.events[0].before = Some(Standing::File {
                sha256: Digest::of(b""),
                size,
                lines: 7,
            });
            runs.push(run);
        }
        console.send(Msg::Log(Ok(runs)));
        prefer(
            console,
            "columns = [\"agent\", \"state\", \"trend\", \"size\", \"last-run\", \"why\"]\n\
             [keys]\nreset = \"Space r\"\nmark = \"m\"\nhelp = \"F1\"\nlog = []\n",
        );
    });
}

#[test]
fn fleet_with_wrong_preferences() {
    picture("fleet_wrong_preferences", |console| {
        let path = Path::new("/home/op/.config/memory-shepherd/console.toml");
        let (_, found) = preferences::parse("[keys]\nrset = \"F5\"\nsort = \"d\"\n", path);
        console.model.complain(&found);
        console.press("j k");
    });
}

#[test]
fn keys_that_can_follow() {
    picture("which_key", |console| {
        prefer(
            console,
            "[keys]\nmark = \"m\"\nreset = \"Space r\"\nundo = [\"Space u\", \"z\"]\nclear-marks = \"Space c m\"\n",
        );
        console.press("Space");
        console.pass(Duration::from_millis(500));
    });
}

// ---- One agent ---------------------------------------------------------------

const BASELINE: &[u8] = include_bytes!("../../baselines/code-reviewer-MEMORY.md");

/// What the agent made of its baseline, with notes below.
fn memory(edit: impl Fn(String) -> String, notes: &str) -> Vec<u8> {
    let text = String::from_utf8(BASELINE.to_vec()).unwrap();
    (edit(text) + notes).into_bytes()
}

const NOTES: &str = "\n## Today\n- LH-12 waits for CI\n- asked the platform lead about the lock\n";

fn edited(text: String) -> String {
    text.replacen("1. ", "1. Perhaps: ", 1)
        .replacen("4. Label", "4. Never label", 1)
}

/// Opens an agent with such a memory.
fn reading(console: &mut Console, name: &str, memory: &[u8], baseline: Option<&[u8]>) {
    console.open(name, memory, baseline);
    console.pass(Duration::from_secs(1));
}

#[test]
fn agent_that_has_drifted() {
    picture("agent_drifted", |console| {
        reading(
            console,
            "code-reviewer",
            &memory(edited, NOTES),
            Some(BASELINE),
        );
    });
}

#[test]
fn agent_that_has_drifted_without_colours() {
    for (columns, rows) in SIZES {
        let mut console = herd();
        console.send(Msg::Resize(columns, rows));
        console.model.word_marks = true;
        reading(
            &mut console,
            "code-reviewer",
            &memory(edited, NOTES),
            Some(BASELINE),
        );
        let name = format!("agent_drifted_mono_{columns}x{rows}");
        insta::assert_snapshot!(name, drawn(&console, MONO));
    }
}

#[test]
fn agent_that_is_intact() {
    picture("agent_intact", |console| {
        reading(
            console,
            "docs-writer",
            &memory(|text| text, NOTES),
            Some(BASELINE),
        );
    });
}

#[test]
fn agent_that_is_clean() {
    picture("agent_clean", |console| {
        let mut clean = seen("android-17", State::Clean);
        clean.content.as_mut().unwrap().scratch_bytes = 0;
        console.observe(vec![clean]);
        reading(console, "android-17", BASELINE, Some(BASELINE));
    });
}

#[test]
fn agent_without_a_boundary() {
    picture("agent_nosep", |console| {
        let log = "# Session log\n".to_string() + &"- something happened\n".repeat(40);
        reading(console, "log-digger", log.as_bytes(), Some(BASELINE));
    });
}

#[test]
fn agent_that_writes_too_much() {
    picture("agent_oversize", |console| {
        let notes = "- the same as yesterday\n".repeat(900);
        reading(
            console,
            "researcher",
            &memory(|text| text, &notes),
            Some(BASELINE),
        );
    });
}

#[test]
fn agent_that_cannot_be_read() {
    picture("agent_error", |console| {
        reading(console, "inbox-scout", b"", Some(BASELINE));
    });
}

#[test]
fn agent_without_a_baseline() {
    picture("agent_tampered", |console| {
        reading(console, "billing-bot", &memory(|text| text, NOTES), None);
    });
}

#[test]
fn agent_whose_texts_are_on_their_way() {
    picture("agent_waiting", |console| {
        console.press("j d");
    });
}

#[test]
fn agent_scratch() {
    picture("agent_scratch", |console| {
        reading(
            console,
            "docs-writer",
            &memory(|text| text, NOTES),
            Some(BASELINE),
        );
        console.press("Tab");
    });
}

#[test]
fn agent_that_is_searched() {
    picture("agent_search", |console| {
        reading(
            console,
            "docs-writer",
            &memory(|text| text, NOTES),
            Some(BASELINE),
        );
        console.press("/");
        console.type_line("never");
    });
    picture("agent_searched", |console| {
        reading(
            console,
            "docs-writer",
            &memory(|text| text, NOTES),
            Some(BASELINE),
        );
        console.press("/");
        console.type_line("never");
        console.press("Enter");
    });
}

#[test]
fn agent_with_hidden_characters() {
    let hide = |text: String| {
        text.replacen("1. ", "1. \u{202e}\u{200b}\x1b[31m ", 1)
            .replacen("3. ", "3. \u{e0069}\u{e0067} p\u{430}ypal \u{ad}", 1)
    };
    let notes = "tab\there\r\nno utf-8: ";
    let mut hidden = memory(hide, notes);
    hidden.extend(b"\xff\xfe\n");
    picture("agent_hidden", |console| {
        let mut found = seen("code-reviewer", State::Drifted);
        found.content.as_mut().unwrap().hidden = Hidden {
            invisible: 5,
            controls: 1,
            invalid: 2,
            escapes: 1,
        };
        console.observe(vec![found]);
        reading(console, "code-reviewer", &hidden, Some(BASELINE));
    });
    picture("agent_revealed", |console| {
        reading(console, "code-reviewer", &hidden, Some(BASELINE));
        console.press(". Tab");
    });
}

#[test]
fn agent_without_wrapping() {
    picture("agent_unwrapped", |console| {
        reading(
            console,
            "code-reviewer",
            &memory(edited, NOTES),
            Some(BASELINE),
        );
        console.press("w n");
    });
}

#[test]
fn agent_that_writes_while_one_reads() {
    picture("agent_grown", |console| {
        let notes: String = (1..60).map(|n| format!("- note {n}\n")).collect();
        let text = memory(|text| text, &notes);
        reading(console, "docs-writer", &text, Some(BASELINE));
        console.press("Tab ^d ^d");
        let more = format!("- first of all\n- and then\n{notes}");
        console.texts("docs-writer", &memory(|text| text, &more), Some(BASELINE));
    });
}

// ---- Plan, run, result ---------------------------------------------------------

fn planned(console: &mut Console, keys: &str, plan: memory_shepherd::engine::Plan) {
    console.plan(keys, plan);
    console.pass(Duration::from_secs(2));
}

#[test]
fn plan_of_one() {
    picture("plan_key", |console| {
        planned(console, "X", plan(&[("docs-writer", State::Scratch)]));
    });
}

#[test]
fn plan_to_be_typed() {
    picture("plan_typed", |console| {
        let agents = [
            ("code-reviewer", State::Drifted),
            ("docs-writer", State::Scratch),
            ("log-digger", State::NoSep),
            ("test-runner", State::Missing),
            ("researcher", State::Oversize),
        ];
        let mut made = plan(&agents);
        made.skipped = vec![
            skipped(
                "billing-bot",
                State::Tampered,
                "the baseline does not match the seal",
            ),
            skipped(
                "release-captain",
                State::Busy,
                "locked by run 5a10c3d2 of timer",
            ),
        ];
        planned(console, "a X", made);
        console.type_line("reset");
    });
}

#[test]
fn plan_of_the_whole_fleet() {
    picture("plan_fleet", |console| {
        let mut made = plan(&[
            ("docs-writer", State::Scratch),
            ("monitor-bot", State::Scratch),
        ]);
        made.whole_fleet = true;
        planned(console, "a X", made);
    });
}

/// What three hosts lack, in all.
const WEAKER: [&str; 4] = [
    "on other hosts a memory is absent for a moment, loses extended attributes and access lists, and two looks take the place of a lease on open files",
    "box lacks posix-rename@openssh.com: what an agent puts in the memory's place in that very instant may be lost",
    "box lacks hardlink@openssh.com: a memory that an agent makes anew in that very instant may be written over",
    "box lacks fsync@openssh.com: a power cut there may leave the new memory empty or half written",
];

#[test]
fn plan_for_hosts_that_lack_something() {
    let make = |console: &mut Console| {
        let mut made = plan(&[
            ("code-reviewer", State::Drifted),
            ("docs-writer", State::Scratch),
            ("monitor-bot", State::Scratch),
        ]);
        for step in &mut made.steps[1..] {
            step.host = "box".to_string();
            step.weaker = WEAKER.map(str::to_string).to_vec();
        }
        planned(console, "X", made);
    };
    picture("plan_weaker", make);
    for (columns, rows) in SIZES {
        let mut console = herd();
        console.send(Msg::Resize(columns, rows));
        make(&mut console);
        let shown = drawn(&console, "terminal");
        let shown: Vec<&str> = shown.split_whitespace().collect();
        for text in WEAKER {
            assert!(shown.join(" ").contains(text), "{text}\n{shown:?}");
        }
    }
    // Where there is no room for all of it, that is said.
    let mut console = herd();
    console.send(Msg::Resize(60, 15));
    let mut made = plan(&[("docs-writer", State::Scratch)]);
    made.steps[0].weaker = WEAKER.map(str::to_string).to_vec();
    planned(&mut console, "X", made);
    let shown = drawn(&console, "terminal");
    assert!(shown.contains("lines more of what is weaker"), "{shown}");
    assert!(shown.contains("docs-writer"), "{shown}");
}

#[test]
fn plan_with_nothing_to_run() {
    picture("plan_nothing", |console| {
        let mut made = plan(&[]);
        made.skipped = vec![skipped(
            "billing-bot",
            State::Tampered,
            "the baseline billing-bot-MEMORY.md does not match the seal; resets are blocked",
        )];
        planned(console, "X", made);
    });
}

#[test]
fn plan_on_its_way_and_no_plan() {
    picture("plan_waiting", |console| {
        console.press("X");
    });
    picture("plan_none", |console| {
        console.press("X");
        console.model.reset.stage = Default::default();
    });
}

#[test]
fn plan_with_hidden_marks() {
    picture("plan_hidden", |console| {
        console.press("a / ! d o c s Enter");
        let agents = [
            ("docs-writer", State::Scratch),
            ("monitor-bot", State::Scratch),
        ];
        planned(console, "X", plan(&agents));
    });
}

#[test]
fn plan_of_an_undo() {
    picture("undo_key", |console| {
        planned(
            console,
            "z",
            undo(&["docs-writer"], false, UndoMode::Refuse),
        );
    });
    picture("undo_choice", |console| {
        planned(console, "z", undo(&["docs-writer"], true, UndoMode::Refuse));
    });
    picture("undo_overwrite", |console| {
        planned(console, "z", undo(&["docs-writer"], true, UndoMode::Refuse));
        console.press("o");
        console.answer(undo(&["docs-writer"], true, UndoMode::Overwrite));
        console.pass(DEAF);
    });
}

const THREE: [(&str, State); 3] = [
    ("code-reviewer", State::Drifted),
    ("docs-writer", State::Scratch),
    ("monitor-bot", State::Scratch),
];

fn running(console: &mut Console) {
    planned(console, "X", plan(&THREE));
    console.type_line("reset 3");
    console.press("Enter");
    let done = report(&[("code-reviewer", Outcome::Ok, None)])
        .results
        .remove(0);
    console.send(Msg::Progress(Progress::Done(done)));
    console.send(Msg::Progress(Progress::Stage(
        "docs-writer".to_string(),
        Step::Swap,
    )));
    console.pass(Duration::from_secs(2));
}

fn ended(console: &mut Console) {
    running(console);
    let results = [
        ("code-reviewer", Outcome::Ok, None),
        (
            "docs-writer",
            Outcome::Failed,
            Some("archive disk full (needs 41K, 12K free); memory untouched"),
        ),
        ("monitor-bot", Outcome::NotStarted, Some("cancelled")),
    ];
    let mut ended = report(&results);
    ended.retired = vec!["code-reviewer/2026-02-12_0100.md".into()];
    console.send(Msg::Ended(Box::new(ended)));
}

#[test]
fn run_in_progress() {
    picture("run", running);
    picture("run_cancelled", |console| {
        running(console);
        console.press("^c");
    });
}

#[test]
fn what_goes_on_in_the_background() {
    picture("jobs", |console| {
        console.press("R d");
        let mut hangs = host("10.0.0.61", Reach::Unknown, &["researcher"]);
        hangs.contact.trying = true;
        console.send(Msg::Hosts(vec![hangs]));
        console.press("7");
        console.send(Msg::Log(Ok(vec![run(
            "5a10c3d2",
            190,
            &[("monitor-bot", Outcome::Ok)],
        )])));
        console.pass(Duration::from_secs(100));
    });
}

#[test]
fn a_sealed_baseline_is_asked_about() {
    picture("sealed", |console| {
        console.press("E");
        let agent = console.model.cursor.clone().unwrap();
        let before = Inspected {
            path: format!("/etc/memory-shepherd/baselines/{agent}-MEMORY.md").into(),
            bytes: Vec::new(),
            sealed: true,
            tampered: None,
            problems: Vec::new(),
        };
        let edit = Edit {
            users: vec![agent.clone(), "code-reviewer-eu".to_string()],
            protected: Vec::new(),
            agent: agent.clone(),
            before,
        };
        console.send(Msg::Baseline(agent, Ok(Box::new(edit))));
    });
}

#[test]
fn result_of_a_run() {
    picture("result", |console| {
        ended(console);
        console.press("j");
    });
}

// ---- Hosts -----------------------------------------------------------------------

/// A fleet with hosts in every state, some of which were well before.
fn spread() -> Console {
    let mut console = herd();
    let of = [
        (
            "box",
            Reach::Up,
            State::Scratch,
            &["docs-writer", "monitor-bot"][..],
        ),
        ("edge-7", Reach::HostKey, State::HostKey, &["android-17"]),
        (
            "10.0.0.61",
            Reach::Away,
            State::Unreach,
            &["code-reviewer", "researcher"],
        ),
        ("vault", Reach::Refused, State::Error, &["log-digger"]),
        ("new", Reach::Unknown, State::Loading, &[]),
    ];
    for (name, reach, state, agents) in of {
        if !agents.is_empty() {
            let on = |state| {
                let mut agents: Vec<_> = agents.iter().map(|agent| seen(agent, state)).collect();
                agents
                    .iter_mut()
                    .for_each(|seen| seen.host = name.to_string());
                agents
            };
            console.observe(on(State::Scratch));
            console.observe(on(state));
        }
        let mut status = host(name, reach, agents);
        if agents.is_empty() {
            status.agents = vec!["test-runner".to_string()];
        }
        console.send(Msg::Hosts(vec![status]));
    }
    console.pass(Duration::from_secs(1));
    console.model.message = None;
    console
}

#[test]
fn hosts_in_every_state() {
    picture_of("hosts", spread, |console| {
        console.press("8");
    });
}

#[test]
fn hosts_one_of_which_is_away() {
    picture_of("hosts_away", spread, |console| {
        console.press("8 j j");
        let host = console.model.hosts.current().unwrap().host.clone();
        let why = "`ssh -G 10.0.0.61` does not come to an end".to_string();
        console.send(Msg::Settings(host, Err(why)));
    });
}

#[test]
fn hosts_one_of_which_is_well_and_lacks_something() {
    picture_of("hosts_up", spread, |console| {
        console.press("8 G");
        let host = console.model.hosts.current().unwrap().host.clone();
        let setting = |(name, value): (&str, &str)| Setting {
            name: name.to_string(),
            value: value.to_string(),
        };
        let settings = [
            ("hostname", "10.0.0.50"),
            ("user", "ops"),
            ("port", "22"),
            ("proxyjump", "bastion\u{1b}[31m\u{202e}"),
            ("identityfile", "~/.ssh/id_ed25519"),
        ];
        console.send(Msg::Settings(host, Ok(settings.map(setting).to_vec())));
    });
}

/// What is cut where it is narrow is not the reason.
#[test]
fn the_reason_is_readable_on_every_screen() {
    let shown = |size: (u16, u16), keys: &str| {
        let mut console = spread();
        console.send(Msg::Resize(size.0, size.1));
        console.press(keys);
        drawn(&console, "terminal")
    };
    for size in SIZES {
        let fleet = shown(size, "j j");
        assert!(fleet.contains("code-reviewer BLOCKED: No route to host; next try"));
        assert!(fleet.contains("HOST"), "{fleet}");
        assert!(
            size.0 < 120 || fleet.contains("10.0.0.61"),
            "the host is whole: {fleet}"
        );
        assert!(fleet.contains("live, 4 not"), "{fleet}");
        let hosts = shown(size, "8");
        let rows = hosts
            .lines()
            .filter(|line| line.contains("No route to host"));
        assert!(rows.count() > 0, "{hosts}");
        assert!(hosts.contains("another host key\n"), "{hosts}");
    }
    // Of five hosts all but one.
    let small = shown((60, 15), "8");
    for host in ["edge-7", "vault", "10.0.0.61", "new"] {
        assert!(small.contains(host), "{host}: {small}");
    }
    assert!(small.contains(" why "), "{small}");
}

#[test]
fn hosts_that_ask_or_were_not_answered() {
    picture_of("hosts_asking", spread, |console| {
        let mut asks = host("new", Reach::Unknown, &["test-runner"]);
        asks.contact.asks = Some("a password");
        let mut barred = host("vault", Reach::Away, &["log-digger"]);
        barred.contact.barred = true;
        console.send(Msg::Hosts(vec![asks, barred]));
        console.press("8");
    });
}

#[test]
fn hosts_of_one_name_are_told_apart() {
    let mut console = spread();
    let mut other = host(
        "box",
        Reach::Up,
        &["an-agent-with-a-name-that-is-very-long-indeed"],
    );
    other.host.user = Some("op".to_string());
    console.send(Msg::Hosts(vec![other]));
    let shown = drawn(&console, "terminal");
    assert!(shown.contains(" op@box:2222 "), "{shown}");
    assert!(shown.contains(" box:2222 "), "{shown}");
}

#[test]
fn an_error_is_told_whole_below_its_result() {
    let why = "box:/srv/agents/".to_string() + &"deep/".repeat(30) + "MEMORY.md: Permission denied";
    for size in SIZES {
        let mut console = herd();
        console.send(Msg::Resize(size.0, size.1));
        running(&mut console);
        let mut report = report(&[("docs-writer", Outcome::Failed, Some(&why))]);
        report.results[0].hints = vec!["chmod u+r MEMORY.md".to_string()];
        console.send(Msg::Ended(Box::new(report)));
        let shown = drawn(&console, "terminal");
        assert!(shown.contains("hint: chmod u+r MEMORY.md"), "{shown}");
        assert!(shown.matches("Permission denied").count() >= 2, "{shown}");
        assert!(shown.contains("nothing was changed that could be undone"));
    }
}

#[test]
fn the_demo_offers_its_key_where_it_is_narrow_too() {
    let mut console = herd();
    console.model.host_away = Some(false);
    console.send(Msg::Resize(80, 24));
    let shown = drawn(&console, "terminal");
    assert!(shown.lines().last().unwrap().contains("D host"), "{shown}");
}

#[test]
fn what_was_undone_is_called_so() {
    let mut console = herd();
    let mut undone = seen("docs-writer", State::Scratch);
    undone.last.as_mut().unwrap().act = Act::Undo;
    console.observe(vec![undone]);
    assert!(drawn(&console, "terminal").contains("06:00 undone"));
}

#[test]
fn hosts_where_there_are_none() {
    picture("hosts_none", |console| {
        console.press("8");
    });
}

#[test]
fn fleet_some_of_which_cannot_be_reached() {
    picture_of("fleet_unreached", spread, |console| {
        console.press("j j");
    });
}

#[test]
fn agent_that_cannot_be_reached() {
    picture_of("agent_cached", spread, |console| {
        reading(
            console,
            "code-reviewer",
            &memory(edited, NOTES),
            Some(BASELINE),
        );
        console.copied("code-reviewer", &memory(edited, NOTES), Some(BASELINE), 130);
    });
    picture_of("agent_no_copy", spread, |console| {
        reading(console, "android-17", b"", None);
        console.press("X");
    });
}

// ---- Everything else -------------------------------------------------------------

#[test]
fn log() {
    picture("log", |console| {
        console.send(Msg::Note(Level::Warn, "something was odd".to_string()));
        console.send(Msg::Note(Level::Warn, "something was odd".to_string()));
        console.press("7 j");
    });
    picture("log_searched", |console| {
        console.press("7 / F A I L E D Enter");
    });
    picture_of(
        "log_empty",
        || unread(&["alpha"], (120, 36)),
        |console| {
            console.press("7");
        },
    );
}

#[test]
fn help() {
    picture("help", |console| {
        console.press("? j j");
    });
    picture("help_searched", |console| {
        console.press("? / m a r k");
    });
    picture("help_agent", |console| {
        reading(console, "docs-writer", BASELINE, Some(BASELINE));
        console.press("? G");
    });
}

#[test]
fn palette() {
    picture("palette_filters", |console| {
        prefer(console, "[filters]\nnight = \"is:drifted !test\"\n");
        console.press(": f i l t e r");
    });
    picture("palette", |console| {
        console.press(":");
    });
    picture("palette_searched", |console| {
        console.press(": a g e n t");
    });
    picture("palette_nothing", |console| {
        console.press(": x x x x");
    });
}

#[test]
fn unlock() {
    picture("unlock", |console| {
        console.model.read_only.on = true;
        console.press("!");
    });
}

#[test]
fn questions() {
    picture("asked", |console| {
        console.asked(passphrase(1, "harbour"));
    });
    picture("asked_much", |console| {
        console.asked(passphrase(1, "harbour"));
        console.asked(host_key(2, "cliff"));
        console.press("j");
    });
    picture("question_passphrase", |console| {
        console.asked(passphrase(1, "harbour"));
        console.asked(host_key(2, "cliff"));
        console.press("@ ^u");
        console.type_line("open sesame");
    });
    picture("question_again", |console| {
        let mut again = passphrase(1, "harbour");
        again.again = true;
        console.asked(again);
        console.press("@ ^u");
        console.type_line(&"0123456789".repeat(20));
    });
    picture("question_host_key", |console| {
        console.asked(host_key(1, "harbour"));
        console.press("@ y e Enter");
    });
    picture("question_host_key_mistyped", |console| {
        console.asked(host_key(1, "harbour"));
        console.press("@ ^u");
        console.type_line("open sesame");
    });
    picture("question_gone", |console| {
        console.asked(passphrase(1, "harbour"));
        console.press("@ ^u");
        console.type_line("open");
        console.send(Msg::Desk(askpass::Event::Withdrawn(1)));
    });
}

/// A host that asks chooses its words, and may choose them badly.
#[test]
fn hostile_questions() {
    let hostile = |wants: Wants| Question {
        wants,
        text: Untrusted::new(
            "(op@harbour) \x1b[2J\x1b]0;owned\x07\u{202e}drowssap\n\n\n".to_string()
                + &"a very long line ".repeat(40)
                + &"\nmore".repeat(30),
        ),
        ..passphrase(1, "harbour")
    };
    picture("question_hostile", |console| {
        console.asked(hostile(Wants::Secret(Whose::Host)));
        console.press("@ x");
    });
    picture("question_consent", |console| {
        console.asked(hostile(Wants::Consent));
        console.press("@ n");
    });
    picture("question_touch", |console| {
        console.asked(hostile(Wants::Nothing));
        console.press("@ x");
    });
    picture("question_hostile_key", |console| {
        let key = HostKey {
            host: Untrusted::new("\x1b[31m[".to_string() + &"host".repeat(60)),
            kind: Untrusted::new("\u{2066}"),
            fingerprint: Untrusted::new("SHA256:".to_string() + &"x\t".repeat(90)),
            more: vec![Untrusted::new("one line\nof ".repeat(90)); 90],
        };
        console.asked(hostile(Wants::HostKey(key)));
        console.press("@ y");
    });
}

#[test]
fn a_message_stays_until_the_next_key_also_where_it_has_one_row() {
    for size in [(80, 24), (120, 36)] {
        let mut console = herd();
        console.send(Msg::Resize(size.0, size.1));
        console.send(Msg::Note(Level::Error, "something is wrong".to_string()));
        console.pass(Duration::from_secs(70));
        let shows = |console: &Console| drawn(console, "terminal").contains("something is wrong");
        assert!(shows(&console), "{size:?}");
        console.press("j");
        assert!(!shows(&console), "{size:?}");
    }
}

#[test]
fn too_small() {
    for (columns, rows) in [(59, 15), (40, 10), (20, 5)] {
        let mut console = herd();
        console.send(Msg::Resize(columns, rows));
        let name = format!("too_small_{columns}x{rows}");
        insta::assert_snapshot!(name, drawn(&console, "terminal"));
    }
}

// ---- The keys of the README --------------------------------------------------------

const BEGIN: &str = "<!-- keys -->";
const END: &str = "<!-- /keys -->";

/// The key table of the README, from the table of commands.
fn keys() -> String {
    let mut rows: Vec<_> = TABLE.iter().collect();
    rows.sort_by_key(|spec| spec.category);
    let mut text = "| Key | Where | What it does |\n|---|---|---|\n".to_string();
    for spec in rows {
        let keys: Vec<String> = spec.keys.iter().map(|key| format!("`{key}`")).collect();
        text.push_str(&format!(
            "| {} | {} | {} |\n",
            keys.join(" "),
            command::places(spec).join(", "),
            spec.title.replace('|', "\\|")
        ));
    }
    text
}

#[test]
fn the_readme_lists_the_keys() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let Ok(readme) = fs::read_to_string(&path) else {
        panic!("there is no README.md to list the keys in");
    };
    let parts = readme.split_once(BEGIN).and_then(|(before, rest)| {
        let (now, after) = rest.split_once(END)?;
        Some((before, now, after))
    });
    let Some((before, now, after)) = parts else {
        panic!("README.md has no {BEGIN} … {END}");
    };
    let wanted = format!("\n{}", keys());
    if std::env::var_os("UPDATE_README").is_some() {
        let text = format!("{before}{BEGIN}{wanted}{END}{after}");
        fs::write(path, text).unwrap();
        return;
    }
    assert!(
        now == wanted,
        "the keys in README.md are not those of the commands;\n\
         UPDATE_README=1 cargo test the_readme_lists_the_keys writes them"
    );
}
