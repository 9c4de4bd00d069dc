//! Verify screen: started, stopped, and what its findings lead to.

use memory_shepherd::base::error::{Error, ErrorKind};
use memory_shepherd::console::message::{Effect, Msg};
use memory_shepherd::console::screen::Screen;
use memory_shepherd::console::screens::baseline_plan::state::BaselinePlanRequest;
use memory_shepherd::engine::{BaselineState, FindingSubject, VerifyProgress};

use super::MINUTE;
use crate::console_fixture::{TestConsole, fleet_of_four};
use crate::engine_samples::{
    baseline_finding, baseline_list, baseline_summary, finding, verification,
};

const TAMPERED: &str = "baseline does not match its seal: alpha-MEMORY.md has 9f2c…, sealed 77ab…";

/// A console with a verification that found a changed baseline and a changed entry.
fn console_with_findings() -> TestConsole {
    let mut console = fleet_of_four();
    console.press("6");
    let list = vec![
        baseline_summary("alpha", BaselineState::Changed),
        baseline_summary("bravo", BaselineState::Ok),
    ];
    console.load_baselines(baseline_list(list));
    console.send(Msg::Verified(Ok(Box::new(verification(vec![
        baseline_finding("alpha", TAMPERED, "review the change"),
        finding(
            FindingSubject::Entry,
            "the entry alpha/1.md was changed",
            "copy the archive",
        ),
    ])))));
    console
}

#[test]
fn first_visit_verifies_and_later_ones_do_not() {
    let mut console = fleet_of_four();
    assert_eq!(console.press("6"), [Effect::Verify, Effect::LoadBaselines]);
    console.send(Msg::Verified(Ok(Box::new(verification(Vec::new())))));
    assert_eq!(console.message_text(), "verification: nothing wrong");
    console.press("1");
    assert_eq!(console.press("6"), [Effect::LoadBaselines]);
    assert_eq!(console.press("V"), [Effect::Verify, Effect::LoadBaselines]);
}

#[test]
fn changed_baseline_outdates_the_verification() {
    let mut console = console_with_findings();
    let list = |state| baseline_list(vec![baseline_summary("alpha", state)]);
    console.load_baselines(list(BaselineState::Ok));
    assert!(!console.screen_text().contains("verifies again"));
    console.load_baselines(list(BaselineState::Changed));
    let screen = console.screen_text();
    assert!(
        screen.contains("baselines changed since: V verifies again"),
        "{screen}"
    );
}

#[test]
fn verification_runs_once_at_a_time_and_stops() {
    let mut console = fleet_of_four();
    console.press("V");
    console.send(Msg::VerifyProgressed(VerifyProgress::Entries(12, 96)));
    assert!(console.screen_text().contains("entries: 12 of 96"));
    assert_eq!(console.press("V"), []);
    assert_eq!(console.press("^c"), [Effect::CancelVerify]);
    let error = Error::new(ErrorKind::Interrupted, "the verification was stopped");
    console.send(Msg::Verified(Err(error)));
    assert!(
        console
            .screen_text()
            .contains("the verification was stopped")
    );
    // The key that stopped it quits again.
    let effects = console.press("^c");
    assert!(effects.contains(&Effect::Quit), "{effects:?}");
}

#[test]
fn finding_about_a_baseline_leads_to_its_evidence() {
    let mut console = console_with_findings();
    console.press("gg");
    let text = console.screen_text();
    assert!(text.contains("X restores the sealed version"), "{text}");
    let effects = console.press("Enter");
    assert!(
        matches!(&effects[0], Effect::CompareBaseline(request) if request.name == "alpha-MEMORY.md")
    );
    console.press("q");
    assert_eq!(console.model.screen, Screen::Verify);
    let effects = console.press("S");
    assert!(
        matches!(effects.last(), Some(Effect::MakeBaselinePlan(_, BaselinePlanRequest::Seal { names, .. }))
            if names == &["alpha-MEMORY.md"])
    );
    console.press("Esc X");
    let restore = BaselinePlanRequest::Restore {
        names: vec!["alpha-MEMORY.md".to_string()],
        version: "sealed".to_string(),
    };
    let mut plans = console.effects.iter().filter_map(|effect| match effect {
        Effect::MakeBaselinePlan(_, request) => Some(request),
        _ => None,
    });
    assert_eq!(plans.next_back(), Some(&restore));
}

#[test]
fn other_findings_lead_to_the_report() {
    let mut console = console_with_findings();
    console.press("gg");
    let hints = |console: &TestConsole| console.screen_text().lines().last().unwrap().to_string();
    assert!(hints(&console).contains("S seal"), "{}", hints(&console));
    console.press("j");
    assert!(!hints(&console).contains("S seal"), "{}", hints(&console));
    let text = console.screen_text();
    assert!(text.contains("o opens the report"), "{text}");
    console.press("Enter");
    assert_eq!(console.model.screen, Screen::Verify);
    let effects = console.press("ya");
    match effects.as_slice() {
        [Effect::CopyToClipboard(clip)] => {
            assert!(clip.text.contains("was changed"), "{}", clip.text);
        }
        effects => panic!("{effects:?}"),
    }
    let effects = console.press("o");
    assert!(matches!(effects[..], [Effect::OpenPager(_)]), "{effects:?}");
}

#[test]
fn hints_name_only_keys_that_write() {
    let mut console = console_with_findings();
    let behind = baseline_summary("alpha", BaselineState::Behind);
    console.load_baselines(baseline_list(vec![behind]));
    console.press("gg");
    let text = console.screen_text();
    assert!(text.contains("Enter shows the change"), "{text}");
    for keys in ["X restore", "S seal"] {
        assert!(!text.contains(keys), "{keys}: {text}");
    }
    console.press("G");
    let text = console.screen_text();
    assert!(text.contains("behind: alpha"), "{text}");
    for keys in ["X restore", "S seal", "P pushes"] {
        assert!(!text.contains(keys), "{keys}: {text}");
    }
}

#[test]
fn result_is_reported_on_other_screens() {
    let mut console = fleet_of_four();
    console.press("V 1");
    console.send(Msg::Verified(Ok(Box::new(verification(vec![finding(
        FindingSubject::Seal,
        "the seal has no good signature",
        "sign it",
    )])))));
    assert_eq!(
        console.message_text(),
        "verification: 1 failure; 6 shows it"
    );
    assert_eq!(console.model.screen, Screen::Fleet);
}

#[test]
fn age_of_the_result_repaints_in_steps() {
    let mut console = console_with_findings();
    console.press("k");
    console.model.is_dirty = false;
    console.advance(MINUTE + MINUTE);
    assert!(console.model.is_dirty);
    assert!(console.screen_text().contains("ran 1m ago"));
}

#[test]
fn cursor_stays_on_its_row_when_rows_move() {
    let list = |agents: [(&str, BaselineState); 3]| {
        let of = |(agent, state)| baseline_summary(agent, state);
        baseline_list(agents.into_iter().map(of).collect())
    };
    let mut console = fleet_of_four();
    console.press("6");
    console.load_baselines(list([
        ("alpha", BaselineState::Changed),
        ("bravo", BaselineState::Changed),
        ("charlie", BaselineState::Ok),
    ]));
    console.press("j");
    let subject = |console: &TestConsole| {
        console
            .model
            .verify
            .subject(&console.model.baselines)
            .map(str::to_string)
    };
    let bravo = Some("bravo-MEMORY.md".to_string());
    assert_eq!(subject(&console), bravo);
    console.load_baselines(list([
        ("alpha", BaselineState::Changed),
        ("charlie", BaselineState::Changed),
        ("bravo", BaselineState::Ok),
    ]));
    assert_eq!(subject(&console), bravo);
    // The end of the verification puts its rows above.
    console.send(Msg::Verified(Ok(Box::new(verification(vec![finding(
        FindingSubject::Entry,
        "the entry alpha/1.md was changed",
        "copy the archive",
    )])))));
    assert_eq!(subject(&console), bravo);
    // A removed row leaves the cursor on a visible one, and says so.
    console.load_baselines(list([
        ("alpha", BaselineState::Changed),
        ("charlie", BaselineState::Changed),
        ("delta", BaselineState::Ok),
    ]));
    assert!(
        console
            .message_text()
            .contains("bravo-MEMORY.md is no longer listed"),
        "{}",
        console.message_text()
    );
    console.load_baselines(baseline_list(Vec::new()));
    assert!(
        console
            .model
            .verify
            .current_row(&console.model.baselines)
            .is_some()
    );
}

#[test]
fn untouched_cursor_shows_the_first_failure() {
    let mut console = fleet_of_four();
    console.press("6");
    console.load_baselines(baseline_list(vec![baseline_summary(
        "alpha",
        BaselineState::Ok,
    )]));
    console.send(Msg::Verified(Ok(Box::new(verification(vec![finding(
        FindingSubject::Seal,
        "the seal has no good signature",
        "sign it",
    )])))));
    assert!(
        console.screen_text().contains("marked"),
        "{}",
        console.screen_text()
    );
}

#[test]
fn failed_verification_is_shown_in_full() {
    let failed = |keys: &str| {
        let mut console = fleet_of_four();
        console.send(Msg::Resized(80, 24));
        console.press("6");
        console.press(keys);
        let message = "cannot read /srv/fleets/production/archives/.shepherd/ledger.jsonl: \
                       input/output error";
        let error = Error::new(ErrorKind::Host, message).with_hint("check the disk");
        console.send(Msg::Verified(Err(error)));
        console
    };
    for keys in ["gg", "1"] {
        let console = failed(keys);
        assert!(
            console.message_text().contains("input/output error"),
            "{keys}"
        );
        assert!(console.message_text().contains("check the disk"), "{keys}");
        assert_eq!(console.model.log.messages.len(), 1, "{keys}");
    }
    let mut console = failed("gg");
    console.press("gg");
    let text = console.screen_text();
    for part in [
        "FAIL",
        ".shepherd/ledger.jsonl:",
        "input/output error",
        "check the disk",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let effects = console.press("ya");
    assert!(
        matches!(&effects[..], [Effect::CopyToClipboard(clip)] if clip.text.contains("check the disk")),
        "{effects:?}"
    );
}

#[test]
fn unchecked_and_failed_baselines_are_counted() {
    let text_of = |sealed, unsealed, failures| {
        let mut console = fleet_of_four();
        console.press("6");
        let failure = baseline_finding("alpha", TAMPERED, "review the change");
        let mut found = verification(vec![failure; failures]);
        found.counts.sealed_baselines = sealed;
        found.counts.unsealed_baselines = unsealed;
        console.send(Msg::Verified(Ok(Box::new(found))));
        console
    };
    for (counts, expected) in [
        ((0, 0, 0), "baselines  none to check"),
        ((7, 0, 0), "baselines  7 match the seal"),
        ((0, 0, 3), "baselines  3 do not match the seal"),
        (
            (22, 3, 1),
            "baselines  22 match the seal, 1 does not, 3 have no seal: NOT checked",
        ),
        (
            (1, 10, 0),
            "baselines  1 matches the seal, 10 have no seal: NOT checked",
        ),
        (
            (0, 1, 2),
            "baselines  2 do not match the seal, 1 has no seal: NOT checked",
        ),
    ] {
        let console = text_of(counts.0, counts.1, counts.2);
        let text = console.screen_text();
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let mut partial = text_of(1, 10, 0);
    assert_eq!(
        partial.message_text(),
        "verification: nothing wrong, but 10 baselines have no seal: NOT checked"
    );
    let text = partial.screen_text();
    assert!(text.contains("partly     baselines"), "{text}");
    let effects = partial.press("ya");
    assert!(
        matches!(&effects[..], [Effect::CopyToClipboard(clip)] if clip.text.contains("partly baselines")),
        "{effects:?}"
    );
}

#[test]
fn verification_that_does_not_stop_can_be_left() {
    let mut console = fleet_of_four();
    console.press("V");
    assert_eq!(console.press("^c"), [Effect::CancelVerify]);
    assert!(
        console.message_text().contains("^c again quits"),
        "{}",
        console.message_text()
    );
    let effects = console.press("^c");
    assert!(effects.contains(&Effect::Quit), "{effects:?}");
}

#[test]
fn finding_leads_to_the_baseline_that_it_names() {
    let mut console = fleet_of_four();
    console.press("6");
    let list = ["alpha", "bravo"].map(|agent| baseline_summary(agent, BaselineState::Ok));
    console.load_baselines(baseline_list(list.into()));
    // The path contains the name of another baseline.
    let message = "b.md is sealed, but cannot read /srv/alpha-MEMORY.md/b.md: not a directory";
    let found = baseline_finding("bravo", message, "restore it");
    console.send(Msg::Verified(Ok(Box::new(verification(vec![found])))));
    console.press("gg");
    assert_eq!(
        console.model.verify.subject(&console.model.baselines),
        Some("bravo-MEMORY.md")
    );
}

#[test]
fn seal_line_counts_baselines_that_differ() {
    let mut console = console_with_findings();
    let all = [
        ("alpha", BaselineState::Changed),
        ("bravo", BaselineState::Ok),
    ];
    let list = all.map(|(agent, state)| baseline_summary(agent, state));
    console.load_baselines(baseline_list(list.into()));
    let screen = console.screen_text();
    let text = "the seal lists 2 of 2 baselines; 1 differs from it";
    assert!(screen.contains(text), "{screen}");
}
