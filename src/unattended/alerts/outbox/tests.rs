//! Tests of what is alerted, how often, and what waits.

use super::*;
use crate::engine::{State, StateObserver};
use crate::unattended::alerts::test_config::parse_config;

/// Two agents of this machine with one baseline, and two of one host.
const CONFIG: &str = "\
[alerts]
journal = yes

[scout]
memory_file = /scout.md
baseline = common.md

[ranger]
memory_file = /ranger.md
baseline = common.md

[far]
remote_host = harbour
remote_memory = /far.md
baseline = far.md

[farther]
remote_host = harbour
remote_memory = /farther.md
baseline = far.md
";

/// An outbox, its config, and the time.
struct Fixture {
    outbox: Outbox,
    config: Config,
    settings: AlertSettings,
    now: DateTime<FixedOffset>,
    changes: Vec<StateChange>,
    holding: Vec<Condition>,
    unknown: BTreeMap<String, BTreeSet<String>>,
    run_ends: Vec<RunEnd>,
}

impl Fixture {
    fn new() -> Fixture {
        let config = parse_config(CONFIG);
        Fixture {
            outbox: Outbox::default(),
            settings: config.alerts.clone().unwrap(),
            config,
            now: DateTime::parse_from_rfc3339("2026-03-14T09:00:00+01:00").unwrap(),
            changes: Vec::new(),
            holding: Vec::new(),
            unknown: BTreeMap::new(),
            run_ends: Vec::new(),
        }
    }

    fn pass(&mut self, minutes: i64) {
        self.now += Duration::minutes(minutes);
    }

    /// An observer sees that an agent changes its state.
    fn change(&mut self, agent: &str, from: State, to: State) {
        self.holding.retain(|it| it.agent.as_deref() != Some(agent));
        let change = StateChange {
            time: self.now,
            agent: agent.to_string(),
            from: Some(from),
            to,
            reason: "as said".to_string(),
            observer: StateObserver::Timer,
        };
        let kind = match to {
            State::Unreach => Some(AlertKind::Unreachable),
            _ => immediate_kind(to),
        };
        if let Some(kind) = kind {
            let condition = state_condition(&self.config, kind, &change);
            self.holding.push(condition);
        }
        self.changes.push(change);
    }

    /// A run ends the state of an agent, for which the log has no line.
    fn end_by_run(&mut self, agent: &str) {
        self.holding.retain(|it| it.agent.as_deref() != Some(agent));
    }

    /// Checks, with all changes so far.
    fn check(&mut self) {
        let found = Findings {
            holding: self.holding.clone(),
            changes: self.changes.clone(),
            run_ends: std::mem::take(&mut self.run_ends),
            unknown: self.unknown.clone(),
            last_record: Some(0),
            last_change: None,
            ledger_error: None,
        };
        let context = CheckContext {
            config: &self.config,
            settings: &self.settings,
            now: self.now,
        };
        self.outbox.add_findings(&found, &context);
    }

    fn channels(&self) -> BTreeSet<AlertChannel> {
        AlertChannel::of_settings(&self.settings)
    }

    fn take(&mut self) -> Option<AlertEvent> {
        let channels = self.channels();
        let due = self.outbox.take_due(&channels, &self.settings, self.now)?;
        Some(due.event)
    }

    /// Sends all that is due.
    fn send(&mut self) -> Vec<AlertEvent> {
        let mut sent = Vec::new();
        while let Some(event) = self.take() {
            let channels = self.channels();
            self.outbox
                .note_delivery(&event.id, &channels, false, self.now);
            sent.push(event);
        }
        sent
    }

    /// Checks, and returns what is sent: kind and agents.
    fn alerts(&mut self) -> Vec<(AlertKind, String)> {
        self.check();
        let sent = self.send().into_iter();
        sent.map(|event| (event.kind, event.agents.join(" ")))
            .collect()
    }
}

fn drifted(agents: &str) -> (AlertKind, String) {
    (AlertKind::Drifted, agents.to_string())
}

#[test]
fn condition_that_holds_is_alerted_once() {
    let mut fleet = Fixture::new();
    fleet.change("scout", State::Clean, State::Drifted);
    assert_eq!(fleet.alerts(), [drifted("scout")]);
    for _ in 0..20 {
        fleet.pass(60);
        assert_eq!(fleet.alerts(), []);
    }
}

#[test]
fn condition_that_came_again_is_alerted_again() {
    let mut fleet = Fixture::new();
    fleet.change("scout", State::Clean, State::Drifted);
    assert_eq!(fleet.alerts(), [drifted("scout")]);
    fleet.pass(20);
    fleet.change("scout", State::Drifted, State::Clean);
    assert_eq!(fleet.alerts(), []);
    fleet.pass(20);
    fleet.change("scout", State::Clean, State::Drifted);
    assert_eq!(fleet.alerts(), [drifted("scout")]);
    // The change from one drift to the other does not end the event.
    fleet.pass(20);
    fleet.change("scout", State::Drifted, State::NoSep);
    assert_eq!(fleet.alerts(), []);
}

#[test]
fn condition_ended_by_unchecked_run_is_alerted_again() {
    let mut fleet = Fixture::new();
    fleet.change("scout", State::Clean, State::Drifted);
    assert_eq!(fleet.alerts(), [drifted("scout")]);
    fleet.end_by_run("scout");
    fleet.pass(60);
    fleet.change("scout", State::Clean, State::Drifted);
    assert_eq!(fleet.alerts(), [drifted("scout")]);
}

#[test]
fn condition_over_before_the_check_is_alerted() {
    let mut fleet = Fixture::new();
    fleet.check();
    fleet.pass(60);
    fleet.change("scout", State::Clean, State::Tampered);
    fleet.end_by_run("scout");
    fleet.pass(1);
    let [event] = fleet_events(&mut fleet).try_into().unwrap();
    assert_eq!(event.kind, AlertKind::Tampered);
    assert_eq!(event.since, fleet.now - Duration::minutes(1));
    assert_eq!(fleet.alerts(), []);
}

fn fleet_events(fleet: &mut Fixture) -> Vec<AlertEvent> {
    fleet.check();
    fleet.send()
}

#[test]
fn agents_of_one_host_or_baseline_are_one_alert() {
    let mut fleet = Fixture::new();
    fleet.change("far", State::Clean, State::Unreach);
    fleet.change("farther", State::Clean, State::Unreach);
    fleet.change("scout", State::Clean, State::Tampered);
    fleet.pass(1);
    fleet.change("ranger", State::Clean, State::Tampered);
    let sent = fleet_events(&mut fleet);
    let seen: Vec<(AlertKind, String, Option<&str>)> = sent
        .iter()
        .map(|it| (it.kind, it.agents.join(" "), it.host.as_deref()))
        .collect();
    assert_eq!(
        seen,
        [
            (AlertKind::Tampered, "scout".to_string(), Some("local")),
            (
                AlertKind::Unreachable,
                "far farther".to_string(),
                Some("harbour")
            ),
        ]
    );
    // One of them is back, and lost again: the host was never back.
    fleet.pass(20);
    fleet.change("far", State::Unreach, State::Clean);
    fleet.pass(20);
    fleet.change("far", State::Clean, State::Unreach);
    assert_eq!(fleet.alerts(), []);
}

#[test]
fn lasting_condition_is_repeated_after_its_time() {
    let mut fleet = Fixture::new();
    fleet.change("scout", State::Clean, State::Drifted);
    let [first] = fleet_events(&mut fleet).try_into().unwrap();
    fleet.pass(24 * 60 - 1);
    assert_eq!(fleet.alerts(), []);
    fleet.pass(1);
    let [second] = fleet_events(&mut fleet).try_into().unwrap();
    assert!(!first.is_repeated && second.is_repeated);
    assert_eq!(first.since, second.since);
    assert_ne!(first.id, second.id);
    fleet.settings.repeat_after = None;
    fleet.pass(7 * 24 * 60);
    assert_eq!(fleet.alerts(), []);
}

#[test]
fn flapping_condition_is_few_events() {
    let mut fleet = Fixture::new();
    let mut sent = Vec::new();
    let mut times = Vec::new();
    for minute in 0..60 {
        fleet.change("scout", State::Clean, State::Drifted);
        sent.extend(fleet_events(&mut fleet));
        fleet.pass(1);
        fleet.change("scout", State::Drifted, State::Clean);
        sent.extend(fleet_events(&mut fleet));
        times.resize(sent.len(), minute);
    }
    assert!((2..=7).contains(&sent.len()), "{}", sent.len());
    assert!(
        times.windows(2).all(|pair| pair[1] - pair[0] >= 9),
        "{times:?}"
    );
    // None is forgotten.
    fleet.pass(20);
    sent.extend(fleet_events(&mut fleet));
    assert_eq!(sent.iter().map(|it| it.times).sum::<usize>(), 60);
}

#[test]
fn hourly_limit_lets_events_wait_and_keeps_room() {
    let mut fleet = Fixture::new();
    fleet.settings.max_per_hour = 4;
    let agents: Vec<String> = (0..10).map(|number| format!("a{number}")).collect();
    let sections = agents
        .iter()
        .map(|name| format!("[{name}]\nmemory_file = /{name}.md\nbaseline = {name}.md\n"));
    let text: String = sections.collect();
    fleet.config = parse_config(&text);
    for agent in &agents {
        fleet.change(agent, State::Clean, State::Drifted);
    }
    assert_eq!(fleet.alerts().len(), 3);
    fleet.change("a9", State::Drifted, State::Tampered);
    assert_eq!(fleet.alerts(), [(AlertKind::Tampered, "a9".to_string())]);
    let mut late = 0;
    for _ in 0..4 {
        fleet.pass(60);
        late += fleet.alerts().len();
    }
    assert_eq!(late, 7);
    assert!(fleet.outbox.pending.is_empty());
}

#[test]
fn failed_channel_is_tried_again_later_and_others_not() {
    let mut fleet = Fixture::new();
    fleet.settings.command = Some(vec!["notify".to_string()]);
    fleet.change("scout", State::Clean, State::Drifted);
    fleet.check();
    let event = fleet.take().unwrap();
    let delivered = BTreeSet::from([AlertChannel::Journal]);
    fleet
        .outbox
        .note_delivery(&event.id, &delivered, true, fleet.now);
    assert_eq!(fleet.take(), None);
    fleet.pass(6);
    let channels = fleet.channels();
    let again = fleet
        .outbox
        .take_due(&channels, &fleet.settings, fleet.now)
        .unwrap();
    assert_eq!(again.event.id, event.id);
    assert_eq!(again.channels, BTreeSet::from([AlertChannel::Command]));
    // A second failure waits longer.
    fleet
        .outbox
        .note_delivery(&event.id, &BTreeSet::new(), true, fleet.now);
    fleet.pass(6);
    assert_eq!(fleet.take(), None);
    // A channel that left the config is not waited for.
    fleet.settings.command = None;
    let channels = fleet.channels();
    fleet.outbox.retain_channels(&channels);
    assert!(fleet.outbox.pending.is_empty());
}

#[test]
fn broken_channel_does_not_use_up_the_limit() {
    let mut fleet = Fixture::new();
    fleet.settings.max_per_hour = 2;
    fleet.change("scout", State::Clean, State::Drifted);
    fleet.check();
    for _ in 0..4 {
        let event = fleet.take().unwrap();
        let none = BTreeSet::new();
        fleet
            .outbox
            .note_delivery(&event.id, &none, true, fleet.now);
        fleet.pass(5);
        let event = fleet.take();
        assert!(event.is_none_or(|event| event.agents == ["scout"]));
        fleet.pass(40);
    }
    fleet.change("ranger", State::Clean, State::Drifted);
    fleet.check();
    assert_eq!(fleet.send().len(), 2);
}

#[test]
fn undeliverable_events_are_dropped_in_the_end() {
    let mut fleet = Fixture::new();
    fleet.settings.repeat_after = None;
    fleet.change("scout", State::Clean, State::Drifted);
    fleet.check();
    let mut attempts = 0;
    for _ in 0..20 {
        fleet.pass(6 * 60);
        fleet.check();
        let Some(event) = fleet.take() else { break };
        attempts += 1;
        let none = BTreeSet::new();
        fleet
            .outbox
            .note_delivery(&event.id, &none, true, fleet.now);
    }
    assert_eq!(attempts, MAX_ATTEMPTS);
    assert_eq!(fleet.outbox.dropped, 1);
    assert!(fleet.outbox.pending.is_empty());
}

#[test]
fn event_that_waits_a_week_is_dropped() {
    let mut fleet = Fixture::new();
    fleet.settings.repeat_after = None;
    fleet.change("scout", State::Clean, State::Drifted);
    fleet.check();
    fleet.pass(7 * 24 * 60 - 1);
    fleet.check();
    assert_eq!((fleet.outbox.pending.len(), fleet.outbox.dropped), (1, 0));
    fleet.pass(1);
    fleet.check();
    assert_eq!((fleet.outbox.pending.len(), fleet.outbox.dropped), (0, 1));
}

#[test]
fn hidden_condition_neither_ends_nor_begins() {
    let mut fleet = Fixture::new();
    fleet.change("far", State::Clean, State::Drifted);
    assert_eq!(fleet.alerts(), [drifted("far")]);
    let hide = |fleet: &mut Fixture| {
        let key = subject_of(&fleet.config, AlertKind::Drifted, "far").key(AlertKind::Drifted);
        fleet.unknown = BTreeMap::from([(key, BTreeSet::from(["far".to_string()]))]);
    };
    for hiding in [
        State::Unreach,
        State::Error,
        State::Tampered,
        State::HostKey,
    ] {
        fleet.pass(60);
        fleet.change("far", State::Drifted, hiding);
        hide(&mut fleet);
        let others = fleet.alerts();
        assert!(!others.contains(&drifted("far")), "{others:?}");
        fleet.pass(60);
        fleet.unknown.clear();
        fleet.change("far", hiding, State::NoSep);
        assert_eq!(fleet.alerts(), [], "{hiding}");
    }
    // An unknown condition that was not alerted before is none.
    fleet.pass(60);
    fleet.end_by_run("far");
    fleet.check();
    hide(&mut fleet);
    assert_eq!(fleet.alerts(), []);
    fleet.unknown.clear();
    fleet.pass(60);
    fleet.change("far", State::Unreach, State::Drifted);
    assert_eq!(fleet.alerts(), [drifted("far")]);
}

#[test]
fn tampering_that_the_guard_ends_is_alerted_each_time() {
    let mut fleet = Fixture::new();
    for _ in 0..2 {
        fleet.change("far", State::Unreach, State::Tampered);
        fleet.changes.last_mut().unwrap().observer = StateObserver::Guard;
        fleet.end_by_run("far");
        let key = subject_of(&fleet.config, AlertKind::Tampered, "far").key(AlertKind::Tampered);
        fleet.unknown = BTreeMap::from([(key, BTreeSet::from(["far".to_string()]))]);
        assert_eq!(fleet.alerts(), [(AlertKind::Tampered, "far".to_string())]);
        fleet.pass(60);
    }
}

#[test]
fn failure_of_the_host_hides_that_of_its_agent() {
    let mut fleet = Fixture::new();
    let failure = |fleet: &Fixture, subject: Subject| Condition {
        kind: AlertKind::FailedReset,
        subject,
        agent: Some("far".to_string()),
        state: None,
        since: fleet.now,
        run: Some("5a10c3d2".to_string()),
        message: "reset of far failed".to_string(),
    };
    let own = Subject::Agent("far".to_string());
    let of_host = Subject::Host("harbour".to_string());
    let failed = (AlertKind::FailedReset, "far".to_string());
    for (subject, hidden, expected) in [
        (&own, &of_host, true),
        (&of_host, &own, true),
        (&own, &of_host, false),
        (&of_host, &own, true),
    ] {
        fleet.pass(60);
        let condition = failure(&fleet, subject.clone());
        fleet.run_ends = vec![RunEnd::Failed(condition.clone())];
        fleet.holding = vec![condition];
        fleet.unknown.clear();
        if subject == &of_host {
            let key = hidden.key(AlertKind::FailedReset);
            let agents = BTreeSet::from(["far".to_string()]);
            fleet.unknown.insert(key, agents);
        }
        let expected = if expected {
            vec![failed.clone()]
        } else {
            Vec::new()
        };
        assert_eq!(fleet.alerts(), expected, "{subject:?}");
    }
    fleet.pass(60);
    fleet.holding.clear();
    fleet.run_ends = vec![
        RunEnd::Succeeded("far".to_string()),
        RunEnd::Failed(failure(&fleet, own)),
    ];
    assert_eq!(fleet.alerts(), [failed]);
}

#[test]
fn too_many_events_drop_the_least_urgent() {
    let mut fleet = Fixture::new();
    let template = |number: usize, kind| Condition {
        kind,
        subject: Subject::Agent(format!("a{number}")),
        agent: Some("scout".to_string()),
        state: None,
        since: DateTime::parse_from_rfc3339("2026-03-14T08:00:00+01:00").unwrap(),
        run: None,
        message: String::new(),
    };
    let many = (0..MAX_PENDING_EVENTS + 10).map(|number| template(number, AlertKind::Oversize));
    fleet.holding = many.collect();
    fleet.holding.push(template(0, AlertKind::Tampered));
    fleet.check();
    assert_eq!(fleet.outbox.pending.len(), MAX_PENDING_EVENTS);
    assert_eq!(fleet.outbox.dropped, 11);
    assert_eq!(fleet.take().unwrap().kind, AlertKind::Tampered);
}

#[test]
fn clock_that_was_ahead_silences_nothing() {
    let mut fleet = Fixture::new();
    fleet.pass(365 * 24 * 60);
    fleet.change("scout", State::Clean, State::Drifted);
    assert_eq!(fleet.alerts(), [drifted("scout")]);
    fleet.pass(-365 * 24 * 60);
    fleet.changes.clear();
    fleet.change("ranger", State::Clean, State::Drifted);
    assert_eq!(fleet.alerts(), [drifted("ranger")]);
    fleet.pass(24 * 60);
    assert_eq!(fleet.alerts().len(), 2);
}

#[test]
fn clock_set_back_delays_no_alert() {
    let mut fleet = Fixture::new();
    fleet.change("scout", State::Clean, State::Drifted);
    assert_eq!(fleet.alerts(), [drifted("scout")]);
    fleet.end_by_run("scout");
    assert_eq!(fleet.alerts(), []);
    fleet.pass(-120);
    fleet.changes.clear();
    // A run has reset it by the time of the check.
    fleet.change("scout", State::Clean, State::Drifted);
    fleet.end_by_run("scout");
    fleet.pass(1);
    assert_eq!(fleet.alerts(), [drifted("scout")]);
}

fn missed(agent: &str, since: DateTime<FixedOffset>) -> Condition {
    Condition {
        kind: AlertKind::MissedSchedule,
        subject: Subject::Agent(agent.to_string()),
        agent: Some(agent.to_string()),
        state: None,
        since,
        run: None,
        message: String::new(),
    }
}

#[test]
fn set_back_clock_repeats_no_missed_schedule() {
    let mut fleet = Fixture::new();
    fleet.settings.kinds = [AlertKind::MissedSchedule].into();
    let condition = missed("scout", fleet.now);
    fleet.pass(11);
    fleet.holding = vec![condition.clone()];
    assert_eq!(fleet.alerts().len(), 1);
    // By this clock nothing is overdue yet.
    fleet.pass(-60);
    fleet.holding.clear();
    assert_eq!(fleet.alerts(), []);
    fleet.pass(90);
    fleet.holding = vec![condition];
    assert_eq!(fleet.alerts(), []);
    // A reset comes.
    fleet.holding.clear();
    assert_eq!(fleet.alerts(), []);
    fleet.pass(60);
    fleet.holding = vec![missed("scout", fleet.now - Duration::minutes(30))];
    assert_eq!(fleet.alerts().len(), 1);
}

#[test]
fn event_that_ended_before_it_is_sent_says_so() {
    let mut fleet = Fixture::new();
    fleet.change("scout", State::Clean, State::Drifted);
    fleet.end_by_run("scout");
    fleet.change("ranger", State::Clean, State::Drifted);
    fleet.check();
    let sent = fleet.send();
    let over = |agent: &str| {
        let event = sent.iter().find(|it| it.agents == [agent]).unwrap();
        (event.is_over, event.message.ends_with("(over by now)"))
    };
    assert_eq!(over("scout"), (true, true));
    assert_eq!(over("ranger"), (false, false));
}

#[test]
fn next_waiting_event_names_when_it_may_go() {
    let mut fleet = Fixture::new();
    fleet.settings.max_per_hour = 4;
    for agent in ["scout", "ranger"] {
        fleet.change(agent, State::Clean, State::Drifted);
    }
    fleet.check();
    let first = fleet.now;
    assert_eq!(fleet.send().len(), 2);
    fleet.pass(10);
    fleet.change("far", State::Clean, State::Drifted);
    fleet.change("farther", State::Clean, State::Drifted);
    fleet.check();
    // Three of four are for warnings.
    assert_eq!(fleet.send().len(), 1);
    let next = fleet.outbox.next_waiting(&fleet.settings, fleet.now);
    assert_eq!(next.unwrap().until, first + Duration::hours(1));
}

#[test]
fn kinds_that_are_not_named_raise_nothing() {
    let mut fleet = Fixture::new();
    fleet.settings.kinds = [AlertKind::Tampered].into();
    fleet.change("scout", State::Clean, State::Drifted);
    fleet.holding.clear();
    assert_eq!(fleet.alerts(), []);
}

#[test]
fn stored_outbox_is_read_back() {
    let mut fleet = Fixture::new();
    fleet.change("scout", State::Clean, State::Drifted);
    fleet.check();
    let text = serde_json::to_string(&fleet.outbox).unwrap();
    assert_eq!(serde_json::from_str::<Outbox>(&text).unwrap(), fleet.outbox);
    assert_eq!(
        serde_json::from_str::<Outbox>("{}").unwrap(),
        Outbox::default()
    );
}
