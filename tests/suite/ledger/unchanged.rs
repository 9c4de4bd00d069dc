//! The record of a run's unchanged agents.

use super::super::world::{apply_plan, records};
use super::*;
use memory_shepherd::engine::{
    LedgerRecord, Operation, RunDiffSide, RunProgress, RunReport, UndoMode, UndoTarget,
};

const AGENTS: [&str; 4] = ["alpha", "bravo", "charlie", "delta"];

/// A world whose memories equal their baselines.
fn clean_world() -> World {
    let world = World::new(&AGENTS);
    for agent in AGENTS {
        world.write_scratch(agent, "");
    }
    world
}

/// Returns the lines of the ledger's file.
fn lines(world: &World) -> Vec<LedgerRecord> {
    let text = fs::read_to_string(ledger_path(world)).unwrap();
    let lines = text.lines();
    lines
        .map(|line| LedgerRecord::parse(line.as_bytes()).unwrap())
        .collect()
}

/// Returns number, agent and outcome of each record that a log shows.
fn shown(world: &World, agent: Option<&str>, last: Option<usize>) -> Vec<(u64, String, Outcome)> {
    let engine = world.engine();
    let mut shown = Vec::new();
    let range = engine.ledger().records(agent, last).unwrap();
    range
        .for_each(&mut |record| {
            let event = &record.event;
            shown.push((record.seq, event.agent.clone(), event.outcome));
            Ok(())
        })
        .unwrap();
    shown
}

#[test]
fn unchanged_agents_share_one_record_per_run() {
    let world = clean_world();
    world.reset();
    world.reset();
    world.write_scratch("bravo", "- note\n");
    let ran = world.reset();
    let records = lines(&world);
    assert_eq!(records.len(), 4);
    let agents = |at: usize| records[at].event.agents().collect::<Vec<_>>();
    assert_eq!((agents(0), agents(1)), (AGENTS.to_vec(), AGENTS.to_vec()));
    assert_eq!(agents(2), ["bravo"]);
    assert_eq!(agents(3), ["alpha", "charlie", "delta"]);
    let last = &records[3].event;
    assert_eq!(
        (last.outcome, last.agent.as_str()),
        (Outcome::Unchanged, "")
    );
    assert_eq!((&last.run, &last.note), (&ran.report.run, &None));
    // Address and baseline are said once.
    let details = |at: usize| records[at].event.unchanged.as_ref().unwrap().details.len();
    assert_eq!((details(0), details(1), details(3)), (4, 0, 0));
    // One unchanged agent has a record of its own.
    let engine = world.engine();
    let plan = engine
        .planner()
        .plan_reset(&["delta".to_string()], false)
        .unwrap();
    apply_plan(&engine, &plan);
    let record = &lines(&world)[4].event;
    assert_eq!((record.agent.as_str(), &record.unchanged), ("delta", &None));
}

#[test]
fn every_agent_has_its_view_of_a_shared_record() {
    let world = clean_world();
    world.reset();
    world.write_scratch("bravo", "- note\n");
    let ran = world.reset();
    for has_index in [true, false] {
        if !has_index {
            let _ = fs::remove_file(world.archive_directory().join(".shepherd/ledger.index"));
        }
        let engine = world.engine();
        for agent in AGENTS {
            let seen = engine.observer().observe(engine.agent(agent).unwrap());
            let last = seen.last_run.unwrap();
            assert_eq!(last.run, ran.report.run);
            let expected = if agent == "bravo" {
                Outcome::Ok
            } else {
                Outcome::Unchanged
            };
            assert_eq!((last.outcome, last.operation), (expected, Operation::Reset));
        }
    }
    let unchanged = |seq, agent: &str| (seq, agent.to_string(), Outcome::Unchanged);
    assert_eq!(
        shown(&world, Some("charlie"), None),
        [unchanged(1, "charlie"), unchanged(3, "charlie")]
    );
    assert_eq!(
        shown(&world, Some("charlie"), Some(1)),
        [unchanged(3, "charlie")]
    );
    let all = shown(&world, None, None);
    assert_eq!(all.len(), 8);
    for last in 1..=8 {
        assert_eq!(shown(&world, None, Some(last)), all[8 - last..], "{last}");
    }
    let engine = world.engine();
    let page = engine.history().agent_history("charlie", 10).unwrap();
    let views: Vec<_> = page.entries.iter().map(|it| &it.record.event).collect();
    assert_eq!(views.len(), 2);
    assert!(
        views
            .iter()
            .all(|event| event.agent == "charlie" && event.unchanged.is_none())
    );
    assert_eq!(
        views[0].note.as_deref(),
        Some("already equal to its baseline")
    );
    let memory = world.memory_path("charlie");
    assert_eq!(
        views[1].memory.as_ref(),
        Some(&memory),
        "the first record has its address"
    );
    let seq = page.entries[0].record.seq;
    let diff = engine
        .history()
        .run_diff(engine.agent("charlie").unwrap(), seq)
        .unwrap();
    assert_eq!(diff.after, RunDiffSide::Unchanged);
    assert_eq!(findings(&world), []);
}

#[test]
fn undo_skips_shared_records() {
    let world = clean_world();
    let first = world.reset();
    world.write_scratch("bravo", "- note\n");
    let second = world.reset();
    world.reset();
    // The last run that changed its memory.
    world.undo("bravo", UndoMode::Refuse).assert_ok();
    assert!(world.read_memory("bravo").ends_with(b"- note\n"));
    let ran = world.undo("alpha", UndoMode::Refuse);
    assert_eq!(ran.report.results[0].outcome, Outcome::Refused);
    assert!(ran.note().contains("nothing to undo"), "{}", ran.note());
    let engine = world.engine();
    let run = |run: &str| {
        engine
            .planner()
            .plan_undo(&UndoTarget::Run(run.to_string()), UndoMode::Refuse, false)
    };
    let error = run(&first.report.run).unwrap_err();
    assert!(error.message().contains("changed no memory"), "{error}");
    let plan = run(&second.report.run).unwrap();
    assert_eq!((plan.steps.len(), plan.skipped.len()), (0, 1), "{plan:?}");
}

#[test]
fn shared_record_names_found_version_and_address() {
    let world = clean_world();
    world.reset();
    // After a change of the baseline they are behind, and not drifted.
    for agent in AGENTS {
        world.set_baseline(agent, "# Other rules\n\n---\n");
    }
    for agent in AGENTS {
        let seen = world.observe(agent);
        assert_eq!(
            seen.state,
            memory_shepherd::engine::State::Behind,
            "{}",
            seen.reason
        );
    }
    // Where a file was, a directory is the agent's doing.
    let memory = world.memory_path("delta");
    fs::remove_file(&memory).unwrap();
    fs::create_dir(&memory).unwrap();
    let ran = world.reset();
    assert_eq!(
        ran.result_of("delta").outcome,
        Outcome::Ok,
        "{:?}",
        ran.lines
    );
}

#[test]
fn shared_and_single_records_read_alike() {
    let world = clean_world();
    world.reset();
    world.reset();
    let records = lines(&world);
    // As an earlier version would have written it.
    let (mut prev, mut seq, mut text) = (Digest::ZERO, 0, String::new());
    for record in &records {
        for view in record.views() {
            seq += 1;
            let record = LedgerRecord {
                seq,
                previous_digest: prev,
                ..view
            };
            let line = serde_json::to_string(&record).unwrap();
            prev = Digest::of(line.as_bytes());
            text.push_str(&(line + "\n"));
        }
    }
    let before: Vec<_> = AGENTS
        .iter()
        .map(|agent| world.observe(agent).last_run)
        .collect();
    let rows: Vec<_> = shown(&world, None, None)
        .into_iter()
        .map(|it| (it.1, it.2))
        .collect();
    fs::write(ledger_path(&world), text).unwrap();
    fs::remove_file(world.archive_directory().join("reset.log")).unwrap();
    let after: Vec<_> = AGENTS
        .iter()
        .map(|agent| world.observe(agent).last_run)
        .collect();
    assert_eq!(before, after);
    let old: Vec<_> = shown(&world, None, None)
        .into_iter()
        .map(|it| (it.1, it.2))
        .collect();
    assert_eq!(rows, old);
    assert_eq!(findings(&world), []);
}

#[test]
fn unrecorded_unchanged_agents_all_fail() {
    let world = clean_world();
    world.reset();
    world.reset();
    let text = fs::read_to_string(ledger_path(&world)).unwrap();
    fs::write(ledger_path(&world), text.replacen("tester", "hacker", 1)).unwrap();
    let ran = world.reset();
    for agent in AGENTS {
        let result = ran.result_of(agent);
        assert_eq!(
            (result.outcome, result.kind),
            (Outcome::Unchanged, Some(ErrorKind::Integrity))
        );
        let note = result.note.as_deref().unwrap();
        assert!(
            note.contains("already equal to its baseline; not recorded: "),
            "{note}"
        );
        let told = format!("{agent}: not recorded: ");
        assert!(
            ran.lines.iter().any(|line| line.contains(&told)),
            "{:?}",
            ran.lines
        );
    }
    assert!(records(&world.engine()).is_err());
}

/// Resets all agents, and calls `act` once after the run has released the lock of `agent`, which it
/// finds unchanged.
fn reset_with_act_after(world: &World, agent: &str, mut act: impl FnMut() + Send) -> RunReport {
    let engine = world.engine();
    let names: Vec<String> = AGENTS.map(str::to_string).to_vec();
    let plan = engine.planner().plan_reset(&names, false).unwrap();
    let (mut is_done, mut has_acted) = (false, false);
    engine
        .runs()
        .apply_plan(&plan, true, &AtomicBool::new(false), &mut |progress| {
            match progress {
                RunProgress::AgentDone(result) if result.agent == agent => is_done = true,
                // Of an agent behind it.
                RunProgress::AgentDone(_) | RunProgress::Stage(..) if is_done && !has_acted => {
                    has_acted = true;
                    act();
                }
                _ => {}
            }
        })
}

#[test]
fn agent_changed_since_is_not_recorded_unchanged() {
    let world = clean_world();
    world.reset();
    world.write_scratch("delta", "- note\n");
    let mut other = String::new();
    let report = reset_with_act_after(&world, "alpha", || {
        world.set_baseline("alpha", "# New rules\n\n- be brief\n\n---\n");
        let engine = world.engine();
        let plan = engine
            .planner()
            .plan_reset(&["alpha".to_string()], false)
            .unwrap();
        let ran = apply_plan(&engine, &plan);
        ran.assert_ok();
        other = ran.report.run;
    });
    let result = report
        .results
        .iter()
        .find(|it| it.agent == "alpha")
        .unwrap();
    assert_eq!((result.outcome, result.kind), (Outcome::Unchanged, None));
    let note = result.note.as_deref().unwrap();
    assert!(
        note.ends_with(&format!("; run {other} has changed it since")),
        "{note}"
    );
    let seen = world.observe("alpha").last_run.unwrap();
    assert_eq!((seen.run, seen.outcome), (other, Outcome::Ok));
    let last = world.observe("bravo").last_run.unwrap();
    assert_eq!(last.run, report.run);
}

#[test]
fn unrecorded_unchanged_agent_has_hints() {
    let world = clean_world();
    world.reset();
    world.write_scratch("delta", "- note\n");
    let report = reset_with_act_after(&world, "alpha", || {
        // Two first records break the chain.
        let path = ledger_path(&world);
        let text = fs::read_to_string(&path).unwrap();
        let first = text.lines().next().unwrap();
        fs::write(&path, format!("{first}\n{first}\n")).unwrap();
    });
    let result = report
        .results
        .iter()
        .find(|it| it.agent == "alpha")
        .unwrap();
    assert_eq!(result.kind, Some(ErrorKind::Integrity));
    assert!(result.note.as_deref().unwrap().contains("; not recorded: "));
    assert!(result.hints[0].contains("`verify` lists every broken line"));
}
