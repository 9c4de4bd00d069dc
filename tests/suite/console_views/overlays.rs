//! Views that can cover or replace any screen: the log and background jobs, help, the palette,
//! confirmations, a message, a terminal that is too small.

use std::time::Duration;

use memory_shepherd::console::message::Msg;
use memory_shepherd::console::screens::log::state::MessageLevel;
use memory_shepherd::engine::{FleetEvent, Outcome, Reachability, State};

use super::agent::{BASELINE, open_agent};
use super::{
    TERMINAL_SIZES, TestConsole, apply_preferences, assert_view, assert_view_from,
    fleet_of_every_state, rendered_text,
};
use crate::console_fixture::unread_fleet;
use crate::engine_samples::{host_status, plan, run_summary, skipped_agent};
use crate::report_samples::fleet_report;

#[test]
fn key_continuations_match_snapshot() {
    assert_view("which_key", |console| {
        apply_preferences(
            console,
            "[keys]\nmark = \"m\"\nreset = \"Space r\"\nundo = [\"Space u\", \"z\"]\nclear-marks = \"Space c m\"\n",
        );
        console.press("Space");
        console.advance(Duration::from_millis(500));
    });
}

#[test]
fn background_jobs_match_snapshot() {
    assert_view("jobs", |console| {
        console.press("R d");
        console.list_jobs(&["texts of billing-bot"]);
        let mut hangs = host_status("10.0.0.61", Reachability::Unknown, &["researcher"]);
        hangs.connection.is_connecting = true;
        console.send(Msg::Fleet(FleetEvent::HostsChanged(vec![hangs])));
        console.press("7");
        console.send(Msg::LogLoaded(Ok(vec![run_summary(
            "5a10c3d2",
            190,
            &[("monitor-bot", Outcome::Ok)],
        )])));
        console.list_jobs(&["report", "texts of billing-bot"]);
        console.advance(Duration::from_secs(100));
    });
}

#[test]
fn log_with_report_matches_snapshot() {
    let report = |console: &mut TestConsole| {
        console.press("7");
        console.list_jobs(&["ledger"]);
        let report = fleet_report("inbox-scout", "connection timed out");
        console.send(Msg::ReportLoaded(Ok((&report).into())));
    };
    assert_view("log_report", report);
    assert_view("log_report_folded", |console| {
        report(console);
        console.press("f j");
    });
    assert_view("log_report_unknown", |console| {
        console.press("7");
        console.send(Msg::ReportLoaded(Err("the chain is broken".to_string())));
    });
}

#[test]
fn log_matches_snapshot() {
    assert_view("log", |console| {
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
    assert_view("log_searched", |console| {
        console.press("7");
        console.list_jobs(&["ledger"]);
        console.press("/ F A I L E D Enter");
    });
    assert_view_from(
        "log_empty",
        || unread_fleet(&["alpha"], (120, 36)),
        |console| {
            console.press("7");
        },
    );
}

#[test]
fn help_matches_snapshot() {
    assert_view("help", |console| {
        console.press("? j j");
    });
    assert_view("help_searched", |console| {
        console.press("? / m a r k");
    });
    assert_view("help_agent", |console| {
        open_agent(console, "docs-writer", BASELINE, Some(BASELINE));
        console.press("? G");
    });
}

#[test]
fn palette_matches_snapshot() {
    assert_view("palette_filters", |console| {
        apply_preferences(console, "[filters]\nnight = \"is:drifted !test\"\n");
        console.press(": f i l t e r");
    });
    assert_view("palette", |console| {
        console.press(":");
    });
    assert_view("palette_searched", |console| {
        console.press(": a g e n t");
    });
    assert_view("palette_nothing", |console| {
        console.press(": x x x x");
    });
}

#[test]
fn unlock_question_matches_snapshot() {
    assert_view("unlock", |console| {
        console.model.read_only.is_on = true;
        console.press("!");
    });
}

#[test]
fn message_stays_until_next_key() {
    for size in TERMINAL_SIZES {
        let mut console = fleet_of_every_state();
        console.send(Msg::Resized(size.0, size.1));
        console.send(Msg::Reported(
            MessageLevel::Error,
            "something is wrong".to_string(),
        ));
        console.advance(Duration::from_secs(70));
        let shows = |console: &TestConsole| {
            rendered_text(console, "terminal").contains("something is wrong")
        };
        assert!(shows(&console), "{size:?}");
        console.press("j");
        assert!(!shows(&console), "{size:?}");
    }
}

#[test]
fn message_hides_nothing_on_any_screen() {
    let planned = |console: &mut TestConsole| {
        console.press_and_plan("X", plan(&[("code-reviewer", State::Drifted)]));
        console.advance(Duration::from_secs(2));
    };
    type ScreenSetup<'s> = (&'s str, &'s dyn Fn(&mut TestConsole));
    let screens: [ScreenSetup<'_>; 7] = [
        ("fleet", &|_| {}),
        ("agent", &|console| {
            open_agent(console, "docs-writer", BASELINE, Some(BASELINE))
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
    for size in TERMINAL_SIZES.into_iter().chain([(60, 15)]) {
        for (screen, open) in &screens {
            let mut console = fleet_of_every_state();
            console.send(Msg::Resized(size.0, size.1));
            open(&mut console);
            console.model.last_message = None;
            let before = rendered_text(&console, "terminal");
            console.model.show_hint("something is wrong");
            let after = rendered_text(&console, "terminal");
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
fn truncated_errors_remain_distinguishable() {
    let place = "/srv/fleets/somewhere/deep/down/memory-shepherd.conf";
    let errors = [
        "7: [scout] no_such_key: unknown",
        "19: [scout] baseline: it is missing",
    ];
    let errors = errors.map(|error| format!("{place}:{error}"));
    let mut console = fleet_of_every_state();
    console.send(Msg::Resized(80, 24));
    for error in &errors {
        console.send(Msg::Reported(MessageLevel::Error, error.clone()));
    }
    console.press("7");
    let shown = rendered_text(&console, "terminal");
    let rows: Vec<&str> = shown.lines().filter(|row| row.contains("error")).collect();
    assert_eq!(rows.len(), 2, "{shown}");
    assert!(rows[0].ends_with("baseline: it is missing"), "{shown}");
    assert!(rows[1].ends_with("no_such_key: unknown"), "{shown}");
    // The fleet shows it as well.
    let mut console = fleet_of_every_state();
    console.send(Msg::Resized(80, 24));
    console.model.errors.config = Some(errors[0].clone());
    console.model.errors.preferences = Some(errors[1].clone());
    let shown = rendered_text(&console, "terminal");
    let rows: Vec<&str> = shown
        .lines()
        .filter(|row| row.contains("[scout]"))
        .collect();
    assert!(rows.len() == 2 && rows[0] != rows[1], "{shown}");
    // So does a plan that skips two agents.
    let mut console = fleet_of_every_state();
    console.send(Msg::Resized(80, 24));
    let mut made = plan(&[]);
    let reason =
        |cause| format!("cannot read box:/srv/agents/of/the/whole/fleet/MEMORY.md: {cause}");
    let causes = ["Permission denied", "Input/output error"];
    made.skipped = causes
        .map(|cause| skipped_agent("docs-writer", State::Error, &reason(cause)))
        .to_vec();
    console.press_and_plan("X", made);
    let shown = rendered_text(&console, "terminal");
    for cause in causes {
        let row = shown
            .lines()
            .find(|row| row.contains("skipped: ") && row.ends_with(cause));
        assert!(row.is_some(), "{cause}: {shown}");
    }
}

#[test]
fn help_explains_the_shown_states() {
    for size in TERMINAL_SIZES {
        let mut console = fleet_of_every_state();
        console.send(Msg::Resized(size.0, size.1));
        console.press("?");
        let shown = rendered_text(&console, "terminal");
        for state in State::ALL {
            assert!(shown.contains(state.description()), "{state}: {shown}");
        }
        assert!(
            shown.contains("Actions\n"),
            "the keys begin in sight: {shown}"
        );
        console.press("/");
        console.type_line("seal tampered");
        let shown = rendered_text(&console, "terminal");
        assert!(shown.contains(State::Tampered.description()), "{shown}");
        assert!(!shown.contains(State::Drifted.description()), "{shown}");
        // An agent's screen explains that agent's state.
        console.press("Esc Esc");
        open_agent(&mut console, "docs-writer", BASELINE, Some(BASELINE));
        console.press("?");
        let shown = rendered_text(&console, "terminal");
        assert!(shown.contains(State::Scratch.description()), "{shown}");
        assert!(!shown.contains(State::Drifted.description()), "{shown}");
    }
}

#[test]
fn too_small_terminal_matches_snapshot() {
    for (columns, rows) in [(59, 15), (40, 10), (20, 5)] {
        let mut console = fleet_of_every_state();
        console.send(Msg::Resized(columns, rows));
        let name = format!("too_small_{columns}x{rows}");
        insta::assert_snapshot!(name, rendered_text(&console, "terminal"));
    }
}
