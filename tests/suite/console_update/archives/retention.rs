//! The page about retention, and the plan to prune.

use std::sync::Arc;

use super::*;
use crate::archive_samples::retention_overview;
use memory_shepherd::base::error::{Error, ErrorKind};
use memory_shepherd::console::command::KeyContext;
use memory_shepherd::console::keys::key::{Key, KeyCode};
use memory_shepherd::console::keys::key_guard::KEY_GUARD_TIME;
use memory_shepherd::console::widgets::plan_pane::{Confirmation, PLAN_LIFETIME};
use memory_shepherd::engine::{PruneReport, RetentionOverview};

fn answer_retention(console: &mut TestConsole, overview: RetentionOverview) -> Vec<Effect> {
    let number = console.model.archives.retention.plan.requests.last_id;
    console.send(Msg::RetentionLoaded(number, Ok(Box::new(overview))))
}

/// A console with the page about retention.
fn console_with_overview() -> TestConsole {
    let mut console = console_with_found("", &[("scout", 0)]);
    console.press("r");
    answer_retention(&mut console, retention_overview());
    console
}

/// A console with the plan to prune what the page shows.
fn console_with_plan() -> TestConsole {
    let mut console = console_with_overview();
    console.press("X");
    console.advance(KEY_GUARD_TIME);
    assert_eq!(console.model.key_context(), KeyContext::PrunePlan);
    console
}

fn requests(effects: &[Effect]) -> usize {
    let is_request = |effect: &&Effect| matches!(effect, Effect::LoadRetention(_));
    effects.iter().filter(is_request).count()
}

fn report(overview: RetentionOverview, errors: Vec<Error>) -> PruneReport {
    let mut deleted: Vec<PathBuf> = overview.expiring().map(|it| it.path.clone()).collect();
    deleted.sort();
    PruneReport {
        run: Some("5a10c3d2".to_string()),
        deleted_entries: deleted,
        deleted_versions: overview.expiring_versions().to_vec(),
        overview,
        notes: Vec::new(),
        errors,
        ledger_head: None,
    }
}

#[test]
fn overview_is_read_behind_the_search() {
    let mut console = console();
    let effects = console.press("4");
    assert_eq!((searches(&effects).len(), requests(&effects)), (1, 0));
    answer(&mut console, "", &[("scout", 0)]);
    let number = console.model.archives.searches.last_id;
    assert_eq!(requests(&console.send(Msg::ArchiveSearchEnded(number))), 1);
    assert!(!console.screen_text().contains("retention 30d"));
    answer_retention(&mut console, retention_overview());
    assert!(console.screen_text().contains("retention 30d: 13 expire"));
    // It is not read again at each visit, but after a run, and when it is old.
    let visit = |console: &mut TestConsole| {
        console.press("1 4");
        answer(console, "", &[("scout", 0)]);
        let number = console.model.archives.searches.last_id;
        let count = requests(&console.send(Msg::ArchiveSearchEnded(number)));
        answer_retention(console, retention_overview());
        count
    };
    assert_eq!(visit(&mut console), 0);
    console.advance(std::time::Duration::from_secs(6 * 60));
    assert_eq!(visit(&mut console), 1);
    assert_eq!(visit(&mut console), 0);
    let report = crate::engine_samples::run_report(&[]);
    console.send(Msg::RunEnded(Box::new(report)));
    assert_eq!(visit(&mut console), 1);
}

#[test]
fn page_opens_agents_and_leads_back() {
    let mut console = console_with_overview();
    let text = console.screen_text();
    assert!(
        text.contains("13 entries") && text.contains("disk 30% used"),
        "{text}"
    );
    // The cursor begins at the first agent, and rows without one do not open.
    console.press("Enter");
    let text = console.screen_text();
    assert!(text.contains("stay: 284 younger than 30 days"), "{text}");
    assert!(text.contains("triage/2026-01-11_0900.md"), "{text}");
    // What is pruned is shown first.
    assert_eq!(console.press("X"), []);
    assert!(
        console
            .message_text()
            .contains("a prune is about all agents")
    );
    console.press("Esc");
    assert_eq!(console.model.archives.page, ArchivesPage::Retention);
    console.press("G Enter");
    assert!(console.message_text().contains("no agent under the cursor"));
    console.press("q");
    assert_eq!(console.model.archives.page, ArchivesPage::List);
}

#[test]
fn prune_runs_only_after_the_words_in_full() {
    let mut console = console_with_plan();
    for keys in [
        "Enter",
        "y",
        "Space",
        "prune Space 1 3 Enter",
        "Backspace Enter",
    ] {
        assert_eq!(console.press(keys), [], "{keys}");
        assert_eq!(console.model.key_context(), KeyContext::PrunePlan, "{keys}");
    }
    assert!(console.message_text().contains("type prune 14 in full"));
    assert!(console.screen_text().contains("No undo brings them back"));
    let shown = Arc::new(retention_overview());
    assert_eq!(
        console.press("4 Enter"),
        [Effect::PruneArchive(shown.clone())]
    );
    assert_eq!(console.model.archives.page, ArchivesPage::Retention);
    assert_eq!(console.press("X"), []);
    assert!(console.message_text().contains("being pruned"));
    let pruned = report(retention_overview(), Vec::new());
    let effects = console.send(Msg::ArchivePruned(Ok(Box::new(pruned))));
    assert_eq!(requests(&effects), 1);
    assert_eq!(searches(&effects), [""]);
    assert_eq!(
        console.message_text(),
        "deleted 13 entries (15600 bytes) and 1 baseline version, run 5a10c3d2"
    );
}

#[test]
fn keys_typed_ahead_do_not_confirm_a_prune() {
    let mut console = console_with_overview();
    let keys = "Xprune 14"
        .chars()
        .map(|c| Key::from_code(KeyCode::Char(c)));
    let enter = Key::from_code(KeyCode::Enter);
    for key in keys.chain([enter]) {
        assert_eq!(console.send(Msg::KeysPressed(vec![key])), []);
    }
    let plan = console.model.archives.retention.plan.shown().unwrap();
    assert_eq!(plan.prompt.typed_text, "");
}

#[test]
fn changed_overview_voids_what_was_typed() {
    let mut console = console_with_plan();
    console.type_line("prune 14");
    // A run has ended; what it left is the same, so the words stay.
    let run = crate::engine_samples::run_report(&[]);
    console.send(Msg::RunEnded(Box::new(run)));
    let number = console.model.archives.searches.last_id;
    assert_eq!(requests(&console.send(Msg::ArchiveSearchEnded(number))), 1);
    // While it is read, nothing is confirmed.
    assert_eq!(console.press("Enter"), []);
    answer_retention(&mut console, retention_overview());
    let typed = |console: &TestConsole| {
        let plan = console.model.archives.retention.plan.shown().unwrap();
        (
            plan.prompt.confirmation.clone(),
            plan.prompt.typed_text.clone(),
        )
    };
    assert_eq!(
        typed(&console),
        (
            Confirmation::TypedText("prune 14".to_string()),
            "prune 14".to_string()
        )
    );
    // After a minute it is made again.
    assert_eq!(requests(&console.advance(PLAN_LIFETIME)), 1);
    let mut other = retention_overview();
    other.agents[0].expiring.pop();
    answer_retention(&mut console, other.clone());
    let word = Confirmation::TypedText("prune 13".to_string());
    assert_eq!(typed(&console), (word, String::new()));
    assert!(console.message_text().contains("what expires has changed"));
    console.advance(KEY_GUARD_TIME);
    console.type_line("prune 13");
    assert_eq!(
        console.press("Enter"),
        [Effect::PruneArchive(Arc::new(other))]
    );
}

#[test]
fn prune_is_refused_with_a_reason() {
    let mut console = console_with_overview();
    console.model.read_only.is_on = true;
    assert_eq!(console.press("X"), []);
    assert!(console.message_text().contains("read-only"));
    console.model.read_only.is_forced = true;
    assert_eq!(console.press("X"), []);
    assert!(console.message_text().contains("--read-only"));
    assert_eq!(console.model.archives.page, ArchivesPage::Retention);
    // Nothing expires.
    let mut console = console_with_found("", &[("scout", 0)]);
    console.press("r");
    console.press("X");
    assert!(console.message_text().contains("not ready yet"));
    let mut overview = retention_overview();
    overview.versions = None;
    for agent in &mut overview.agents {
        agent.expiring.clear();
    }
    answer_retention(&mut console, overview);
    let hints = console.screen_text();
    assert!(!hints.lines().last().unwrap().contains("prune"), "{hints}");
    console.press("X");
    assert!(console.message_text().contains("nothing expires now"));
}

#[test]
fn problems_of_a_prune_are_reported() {
    let mut console = console_with_plan();
    console.type_line("prune 14");
    console.press("Enter");
    let locked = Error::new(
        ErrorKind::Busy,
        "triage: its entries stay: locked by pid 312",
    );
    let mut some = report(retention_overview(), vec![locked]);
    some.deleted_entries.truncate(1);
    some.deleted_versions.clear();
    console.send(Msg::ArchivePruned(Ok(Box::new(some))));
    assert_eq!(
        console.message_text(),
        "deleted 1 entry (1200 bytes), run 5a10c3d2; 1 problem, listed in the log (7)"
    );
    let logged = console.model.log.messages.iter();
    assert!(
        logged
            .clone()
            .any(|it| it.text.contains("locked by pid 312"))
    );
    let failed = Err("cannot read the ledger".to_string());
    console.send(Msg::ArchivePruned(failed));
    assert_eq!(
        console.message_text(),
        "nothing was deleted: cannot read the ledger"
    );
}

#[test]
fn adopted_config_closes_the_prune_plan() {
    let mut console = console_with_plan();
    let config = console.model.config.clone();
    let agents = crate::engine_samples::configured_agents(&["scout"]);
    console.send(Msg::ConfigAdopted(config, agents, false));
    assert_eq!(console.model.archives.page, ArchivesPage::Retention);
    assert!(console.message_text().contains("it closed the plan"));
}

#[test]
fn overview_of_the_previous_config_is_dropped() {
    let mut console = console_with_overview();
    console.press("r");
    let number = console.model.archives.retention.plan.requests.last_id;
    let config = console.model.config.clone();
    let agents = crate::engine_samples::configured_agents(&["scout"]);
    console.send(Msg::ConfigAdopted(config, agents, false));
    let mut late = retention_overview();
    late.agents.clear();
    console.send(Msg::RetentionLoaded(number, Ok(Box::new(late))));
    let overview = console.model.archives.retention.shown().unwrap();
    assert!(!overview.agents.is_empty());
}

#[test]
fn agent_without_entries_closes_its_page() {
    let mut console = console_with_overview();
    console.press("Enter");
    assert_eq!(console.model.archives.page, ArchivesPage::RetentionAgent);
    // The overview is requested again behind the search.
    console.press("R");
    let number = console.model.archives.searches.last_id;
    console.send(Msg::ArchiveSearchEnded(number));
    let mut overview = retention_overview();
    overview.agents.clear();
    answer_retention(&mut console, overview);
    assert_eq!(console.model.archives.page, ArchivesPage::Retention);
}

#[test]
fn resize_restarts_the_guard_of_a_prune_plan() {
    let mut console = console_with_plan();
    console.send(Msg::Resized(100, 30));
    console.send(Msg::KeysPressed(vec![Key::from_code(KeyCode::Char('p'))]));
    let plan = console.model.archives.retention.plan.shown().unwrap();
    assert_eq!(plan.prompt.typed_text, "");
}
