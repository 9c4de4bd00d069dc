//! What can come over any screen: the log and the work in the background, help, the
//! palette, what is asked before something is done, a message, a size that is too small.

use std::time::Duration;

use memory_shepherd::baseline::InspectedBaseline;
use memory_shepherd::console::model::{BaselineEdit, MessageLevel};
use memory_shepherd::console::update::Msg;
use memory_shepherd::engine::{Outcome, Reachability, State};

use super::agent::{BASELINE, reading};
use super::{Console, SIZES, drawn, herd, picture, picture_of, prefer};
use crate::console_fleet::{host, plan, run, skipped, unread};

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

#[test]
fn what_goes_on_in_the_background() {
    picture("jobs", |console| {
        console.press("R d");
        let mut hangs = host("10.0.0.61", Reachability::Unknown, &["researcher"]);
        hangs.connection.is_connecting = true;
        console.send(Msg::HostsChanged(vec![hangs]));
        console.press("7");
        console.send(Msg::LogLoaded(Ok(vec![run(
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
        let agent = console.model.cursor_agent.clone().unwrap();
        let before = InspectedBaseline {
            path: format!("/etc/memory-shepherd/baselines/{agent}-MEMORY.md").into(),
            bytes: Vec::new(),
            is_sealed: true,
            seal_mismatch: None,
            problems: Vec::new(),
        };
        let edit = BaselineEdit {
            sharing_agents: vec![agent.clone(), "code-reviewer-eu".to_string()],
            protected_agents: Vec::new(),
            agent: agent.clone(),
            original: before,
        };
        console.send(Msg::BaselineInspected(agent, Ok(Box::new(edit))));
    });
}

#[test]
fn log() {
    picture("log", |console| {
        console.send(Msg::Reported(
            MessageLevel::Warn,
            "something was odd".to_string(),
        ));
        console.send(Msg::Reported(
            MessageLevel::Warn,
            "something was odd".to_string(),
        ));
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
        console.model.read_only.is_on = true;
        console.press("!");
    });
}

#[test]
fn a_message_stays_until_the_next_key() {
    for size in SIZES {
        let mut console = herd();
        console.send(Msg::Resized(size.0, size.1));
        console.send(Msg::Reported(
            MessageLevel::Error,
            "something is wrong".to_string(),
        ));
        console.pass(Duration::from_secs(70));
        let shows = |console: &Console| drawn(console, "terminal").contains("something is wrong");
        assert!(shows(&console), "{size:?}");
        console.press("j");
        assert!(!shows(&console), "{size:?}");
    }
}

#[test]
fn message_hides_nothing_on_any_screen() {
    let planned = |console: &mut Console| {
        console.plan("X", plan(&[("code-reviewer", State::Drifted)]));
        console.pass(Duration::from_secs(2));
    };
    type Shown<'s> = (&'s str, &'s dyn Fn(&mut Console));
    let screens: [Shown<'_>; 7] = [
        ("fleet", &|_| {}),
        ("agent", &|console| {
            reading(console, "docs-writer", BASELINE, Some(BASELINE))
        }),
        ("history", &|console| drop(console.press("d S-Tab"))),
        ("plan", &planned),
        ("run", &|console| {
            planned(console);
            console.type_line("reset 1");
            console.press("Enter");
        }),
        ("log", &|console| drop(console.press("7"))),
        ("hosts", &|console| drop(console.press("8"))),
    ];
    for size in SIZES.into_iter().chain([(60, 15)]) {
        for (screen, open) in &screens {
            let mut console = herd();
            console.send(Msg::Resized(size.0, size.1));
            open(&mut console);
            console.model.last_message = None;
            let before = drawn(&console, "terminal");
            console.model.show_hint("something is wrong");
            let after = drawn(&console, "terminal");
            let changed = before
                .lines()
                .zip(after.lines())
                .filter(|(old, new)| old != new);
            let changed: Vec<_> = changed.collect();
            assert_eq!(
                changed,
                [("", " something is wrong")],
                "{screen} at {size:?}"
            );
        }
    }
}

#[test]
fn errors_that_differ_look_different_where_they_are_cut() {
    let place = "/srv/fleets/somewhere/deep/down/memory-shepherd.conf";
    let errors = [
        "7: [scout] no_such_key: unknown",
        "19: [scout] baseline: it is missing",
    ];
    let errors = errors.map(|error| format!("{place}:{error}"));
    let mut console = herd();
    console.send(Msg::Resized(80, 24));
    for error in &errors {
        console.send(Msg::Reported(MessageLevel::Error, error.clone()));
    }
    console.press("7");
    let shown = drawn(&console, "terminal");
    let rows: Vec<&str> = shown.lines().filter(|row| row.contains("error")).collect();
    assert_eq!(rows.len(), 2, "{shown}");
    assert!(rows[0].ends_with("baseline: it is missing"), "{shown}");
    assert!(rows[1].ends_with("no_such_key: unknown"), "{shown}");
    // Above the fleet as well.
    let mut console = herd();
    console.send(Msg::Resized(80, 24));
    console.model.config_error = Some(errors[0].clone());
    console.model.preferences_error = Some(errors[1].clone());
    let shown = drawn(&console, "terminal");
    let rows: Vec<&str> = shown
        .lines()
        .filter(|row| row.contains("[scout]"))
        .collect();
    assert!(rows.len() == 2 && rows[0] != rows[1], "{shown}");
    // And in a plan, of two agents that are left out.
    let mut console = herd();
    console.send(Msg::Resized(80, 24));
    let mut made = plan(&[]);
    let reason =
        |cause| format!("cannot read box:/srv/agents/of/the/whole/fleet/MEMORY.md: {cause}");
    let causes = ["Permission denied", "Input/output error"];
    made.skipped = causes
        .map(|cause| skipped("docs-writer", State::Error, &reason(cause)))
        .to_vec();
    console.plan("X", made);
    let shown = drawn(&console, "terminal");
    for cause in causes {
        let row = shown
            .lines()
            .find(|row| row.contains("skipped: ") && row.ends_with(cause));
        assert!(row.is_some(), "{cause}: {shown}");
    }
}

#[test]
fn help_explains_the_states() {
    for size in SIZES {
        let mut console = herd();
        console.send(Msg::Resized(size.0, size.1));
        console.press("?");
        let shown = drawn(&console, "terminal");
        for state in State::ALL {
            assert!(shown.contains(state.description()), "{state}: {shown}");
        }
        assert!(shown.contains("Act\n"), "the keys begin in sight: {shown}");
        console.press("/");
        console.type_line("sealed tampered");
        let shown = drawn(&console, "terminal");
        assert!(shown.contains(State::Tampered.description()), "{shown}");
        assert!(!shown.contains(State::Drifted.description()), "{shown}");
        // Of an agent its own state is explained.
        console.press("Esc Esc");
        reading(&mut console, "docs-writer", BASELINE, Some(BASELINE));
        console.press("?");
        let shown = drawn(&console, "terminal");
        assert!(shown.contains(State::Scratch.description()), "{shown}");
        assert!(!shown.contains(State::Drifted.description()), "{shown}");
    }
}

#[test]
fn too_small() {
    for (columns, rows) in [(59, 15), (40, 10), (20, 5)] {
        let mut console = herd();
        console.send(Msg::Resized(columns, rows));
        let name = format!("too_small_{columns}x{rows}");
        insta::assert_snapshot!(name, drawn(&console, "terminal"));
    }
}
