//! Views of the fleet: states, sort orders, filters, columns, header and details.

use std::path::Path;

use memory_shepherd::base::digest::Digest;
use memory_shepherd::base::moment::Zone;
use memory_shepherd::console::message::Msg;
use memory_shepherd::console::preferences;
use memory_shepherd::console::screens::fleet::sort_order::SortOrder;
use memory_shepherd::console::screens::fleet::state::ViewState;
use memory_shepherd::console::screens::fleet::visible_agents::restore_view_state;
use memory_shepherd::engine::{
    FileState, LockHolder, Observation, Operation, Outcome, Protection, State, Trigger,
    describe_lock,
};

use super::{
    TERMINAL_SIZES, apply_preferences, assert_view, assert_view_from, fleet_of_every_state,
    rendered_text,
};
use crate::console_fixture::unread_fleet;
use crate::engine_samples::{config_error_of, local_address, observation_of, run_summary};

#[test]
fn fleet_of_every_state_matches_snapshot() {
    assert_view("fleet", |_| {});
}

#[test]
fn unchanged_run_and_local_hosts_give_reasons_room() {
    let names = ["code-reviewer", "docs-writer", "triage"];
    let mut console = unread_fleet(&names, (120, 36));
    let reasons = [
        "1 protected line gone, rules edited: L22 L31",
        "rules edited: L22 L31",
        "rules edited: L8 L9 L10 L11 …, 2 invisible characters",
    ];
    let seen = names.iter().zip(reasons).map(|(name, reason)| {
        let mut seen = observation_of(name, State::Drifted);
        seen.reason = reason.to_string();
        seen.last_run.as_mut().unwrap().outcome = Outcome::Unchanged;
        seen.content.as_mut().unwrap().findings.injections = 1;
        seen
    });
    console.observe(seen.collect());
    let text = rendered_text(&console, "terminal");
    assert!(
        text.contains(" = ") && !text.contains("unchanged"),
        "{text}"
    );
    assert!(!text.contains("HOST"), "{text}");
    assert!(text.contains("1 protected gone, L22 L31; 1 inj"), "{text}");
    assert!(
        text.contains("rules edited: L22 L31; 1 injection"),
        "{text}"
    );
}

#[test]
fn every_end_of_a_last_run_is_short_and_explained() {
    let ends = [
        (Outcome::Ok, false, "ok", "done, and read back"),
        (Outcome::Unchanged, false, "=", "unchanged: "),
        (Outcome::Failed, false, "FAIL", "FAILED: "),
        (Outcome::Refused, false, "REF", "REFUSED: "),
        (Outcome::NotStarted, false, "STOP", "not started: "),
        (Outcome::Ok, true, "undo", "undone: "),
    ];
    for (outcome, is_undo, sign, meaning) in ends {
        let names = ["alpha", "bravo"];
        let mut console = unread_fleet(&names, (120, 36));
        let reason = "1 protected line gone, rules edited: L22 L31";
        let seen = names.map(|name| {
            let mut seen = observation_of(name, State::Drifted);
            seen.reason = reason.to_string();
            seen
        });
        console.observe(seen.to_vec());
        let width = |text: &str| text.lines().find_map(|line| line.find("WHY"));
        let before = width(&rendered_text(&console, "terminal"));
        let mut seen = seen[0].clone();
        let last = seen.last_run.as_mut().unwrap();
        last.outcome = outcome;
        last.time -= chrono::Duration::days(3);
        if is_undo {
            last.operation = Operation::Undo;
        }
        console.observe(vec![seen]);
        let text = rendered_text(&console, "terminal");
        assert!(text.contains(&format!("03-11 {sign} ")), "{text}");
        assert!(text.contains(reason), "{text}");
        let cells = [before, width(&text)].map(Option::unwrap);
        assert!(cells[1] <= cells[0] + 2, "{cells:?}: {text}");
        console.press("? /");
        console.type_line(meaning.trim_end_matches(": "));
        console.press("Enter");
        let help = rendered_text(&console, "terminal");
        assert!(help.contains(&format!("{sign} ")), "{help}");
        assert!(help.contains(meaning), "{help}");
    }
}

#[test]
fn tampered_agent_says_what_to_do_first() {
    let name = "customer-support-agent-of-the-night-shift";
    for (columns, rows) in [(120, 36), (80, 24), (80, 23), (60, 15)] {
        let mut console = unread_fleet(&[name, "bravo"], (columns, rows));
        let mut seen = observation_of(name, State::Tampered);
        seen.content = observation_of(name, State::Scratch).content;
        console.observe(vec![seen, observation_of("bravo", State::Clean)]);
        let fleet = rendered_text(&console, "terminal");
        assert!(fleet.contains("BLOCKED"), "{fleet}");
        assert!(fleet.contains("Enter shows "), "{fleet}");
        console.open_agent(name, b"", None);
        let evidence = rendered_text(&console, "terminal");
        let step = "BLOCKED; Enter shows the change: ";
        assert!(evidence.contains(step), "{evidence}");
        console.press("S-Tab");
        let facts = rendered_text(&console, "terminal");
        assert!(facts.contains("BLOCKED; X says what to do: "), "{facts}");
    }
}

#[test]
fn fleet_with_hidden_marks_matches_snapshot() {
    assert_view("fleet_marks", |console| {
        console.press("j Space j Space / ! c o d e Enter");
    });
}

#[test]
fn fleet_while_filtering_matches_snapshot() {
    assert_view("fleet_filtering", |console| {
        console.press("/ i s : s c");
    });
}

#[test]
fn fleet_with_empty_filter_result_matches_snapshot() {
    assert_view("fleet_nothing", |console| {
        console.press("/ f o o Enter");
    });
}

/// The column cuts the end of the reason; the strip below the fleet has all of it.
#[test]
fn busy_agent_shows_how_long_it_is_locked() {
    let mut console = fleet_of_every_state();
    console.send(Msg::Resized(120, 36));
    let mut locked = observation_of("docs-writer", State::Busy);
    let holder = LockHolder {
        pid: 312,
        user: "ops".to_string(),
        since: locked.read_at - chrono::Duration::minutes(130),
        run: "5a10c3d2".to_string(),
        trigger: Trigger::Timer,
        host: "build-1".to_string(),
    };
    locked.reason = describe_lock(
        Some(&holder),
        locked.read_at,
        Zone::Fixed(*locked.read_at.offset()),
    );
    console.observe(vec![locked]);
    console.press("/ d o c s - w Enter");
    let shown = rendered_text(&console, "terminal");
    let row = shown
        .lines()
        .find(|line| line.contains("BUSY      docs-writer"));
    assert!(row.unwrap().contains("locked for 2 h 10 min"), "{shown}");
    let all = "locked for 2 h 10 min by run 5a10c3d2 of ops@build-1 (timer, process 312, since ";
    assert!(shown.contains(all), "{shown}");
}

#[test]
fn protected_agents_have_a_mark_that_help_names() {
    for (columns, rows) in TERMINAL_SIZES {
        let mut console = fleet_of_every_state();
        console.send(Msg::Resized(columns, rows));
        let mut protected = observation_of("docs-writer", State::Scratch);
        protected.protection = Protection::ReadOnly;
        let mut typed = observation_of(
            "an-agent-with-a-name-that-is-very-long-indeed",
            State::Clean,
        );
        typed.protection = Protection::Typed;
        console.observe(vec![protected, typed]);
        let shown = rendered_text(&console, "terminal");
        assert!(shown.contains("docs-writer R "), "{shown}");
        let long = shown
            .lines()
            .find(|row| row.contains("CLEAN     an-"))
            .unwrap();
        assert!(long.contains(" T "), "{shown}");
        console.press("? / r e a d o n l y Enter");
        let shown = rendered_text(&console, "terminal");
        assert!(shown.contains("   R  readonly"), "{shown}");
    }
}

#[test]
fn fleet_with_findings_matches_snapshot() {
    assert_view("fleet_findings", |console| {
        let with_findings = |name: &str, state, secrets, injections| {
            let mut seen = observation_of(name, state);
            if let Some(content) = &mut seen.content {
                content.findings.secrets = secrets;
                content.findings.injections = injections;
            }
            seen
        };
        let names: Vec<String> = console
            .model
            .rows
            .iter()
            .map(|it| it.name.clone())
            .collect();
        let seen = names.iter().filter_map(|name| {
            let row = console.model.find_row(name)?;
            match row.state() {
                State::Drifted => Some(with_findings(name, State::Drifted, 0, 1)),
                State::Scratch => Some(with_findings(name, State::Scratch, 2, 1)),
                State::Oversize => Some(with_findings(name, State::Oversize, 12, 0)),
                _ => None,
            }
        });
        let seen: Vec<Observation> = seen.collect();
        console.observe(seen);
    });
}

#[test]
fn unknown_state_filter_lists_all_states() {
    let mut console = fleet_of_every_state();
    console.send(Msg::Resized(80, 24));
    console.press("/");
    console.type_line("is:bogus");
    console.press("Enter");
    let shown = rendered_text(&console, "terminal");
    assert!(shown.contains("marked"), "{shown}");
}

#[test]
fn redone_reset_is_shown_as_redone() {
    let mut console = fleet_of_every_state();
    for (is_redo, word) in [(false, " undo"), (true, " redo")] {
        let mut redone = observation_of("docs-writer", State::Clean);
        if let Some(last) = &mut redone.last_run {
            (last.operation, last.is_redo) = (Operation::Undo, is_redo);
        }
        console.observe(vec![redone]);
        let shown = rendered_text(&console, "terminal");
        let row = shown.lines().find(|row| row.contains("docs-writer"));
        assert!(row.is_some_and(|row| row.contains(word)), "{shown}");
    }
}

#[test]
fn sorted_fleet_matches_snapshot() {
    assert_view("fleet_sorted", |console| {
        console.press("s n a m e Enter S");
    });
}

#[test]
fn reversed_order_is_named_on_narrow_screens() {
    let mut console = fleet_of_every_state();
    console.send(Msg::Resized(80, 24));
    assert!(!rendered_text(&console, "terminal").contains("sort: "));
    console.press("S");
    let text = rendered_text(&console, "terminal");
    assert!(text.contains("sort: severity, reversed"), "{text}");
}

#[test]
fn empty_fleet_matches_snapshot() {
    assert_view_from("fleet_empty", || unread_fleet(&[], (120, 36)), |_| {});
}

#[test]
fn remembered_fleet_matches_snapshot() {
    let names = ["billing-bot", "code-reviewer", "docs-writer", "new-one"];
    assert_view_from(
        "fleet_loading",
        || unread_fleet(&names, (120, 36)),
        |console| {
            let old = [State::Tampered, State::Drifted, State::Scratch];
            let old = names.iter().zip(old).map(|(name, state)| {
                Box::new(Observation {
                    address: Some(local_address(name)),
                    ..observation_of(name, state)
                })
            });
            console.send(Msg::SavedObservationsLoaded(old.collect()));
            console.observe(vec![observation_of("docs-writer", State::Clean)]);
        },
    );
}

#[test]
fn unread_fleet_matches_snapshot() {
    assert_view_from(
        "fleet_unread",
        || unread_fleet(&["alpha", "bravo"], (120, 36)),
        |_| {},
    );
}

#[test]
fn fleet_with_errors_matches_snapshot() {
    assert_view("fleet_errors", |console| {
        console.send(Msg::ConfigInvalid(vec![config_error_of(
            "[triage] no_such_key: unknown",
        )]));
        console.send(Msg::LogLoaded(Err(
            "the ledger's chain is broken at record 7".to_string(),
        )));
    });
}

#[test]
fn read_only_fleet_matches_snapshot() {
    assert_view("fleet_read_only", |console| {
        console.model.read_only.is_on = true;
        console.press("E");
    });
}

#[test]
fn unlocked_fleet_matches_snapshot() {
    assert_view("fleet_unlocked", |console| {
        console.model.read_only.is_on = true;
        console.press("! y");
    });
}

#[test]
fn fleet_with_restored_filter_matches_snapshot() {
    assert_view("fleet_kept", |console| {
        restore_view_state(
            &mut console.model,
            ViewState {
                sort_order: SortOrder::Size,
                is_reversed: true,
                filter: "!code".to_string(),
            },
        );
    });
}

#[test]
fn fleet_with_custom_columns_matches_snapshot() {
    assert_view("fleet_preferred", |console| {
        let mut runs = Vec::new();
        for (number, size) in [9_000, 500, 16_000, 24_000, 12_000].into_iter().enumerate() {
            let id = format!("0000000{number}");
            let mut run = run_summary(&id, number as i64, &[("monitor-bot", Outcome::Ok)]);
            run.events[0].change.before = Some(FileState::File {
                sha256: Digest::of(b""),
                size,
                lines: 7,
            });
            runs.push(run);
        }
        console.send(Msg::LogLoaded(Ok(runs)));
        apply_preferences(
            console,
            "columns = [\"agent\", \"state\", \"trend\", \"size\", \"last-run\", \"why\"]\n\
             [keys]\nreset = \"Space r\"\nmark = \"m\"\nhelp = \"F1\"\nlog = []\n",
        );
    });
}

#[test]
fn fleet_with_invalid_preferences_matches_snapshot() {
    assert_view("fleet_wrong_preferences", |console| {
        let path = Path::new("/home/op/.config/memory-shepherd/console.toml");
        let (_, found) = preferences::parse("[keys]\nrset = \"F5\"\nsort = \"d\"\n", path);
        console.model.report_preference_problems(&found);
        console.press("j k");
    });
}

#[test]
fn undone_reset_is_shown_as_undone() {
    let mut console = fleet_of_every_state();
    let mut undone = observation_of("docs-writer", State::Scratch);
    undone.last_run.as_mut().unwrap().operation = Operation::Undo;
    console.observe(vec![undone]);
    assert!(rendered_text(&console, "terminal").contains("06:00 undo"));
}
