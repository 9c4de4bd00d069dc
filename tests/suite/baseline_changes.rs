//! Changes of a baseline with its seal, as others see them: what is half done is never taken for
//! tampering, and a lock never hides tampering for long.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use crossbeam_channel::bounded;
use memory_shepherd::base::clock::Clock;
use memory_shepherd::base::digest::Digest;
use memory_shepherd::engine::{
    BaselineWriter, Engine, SavedBaseline, SealMatch, SealScope, State, TextOrigin,
};

use crate::world::{BASELINE, TestClock, World};

/// The longest time that a change under way is waited for, and the last look.
const MAX_WAIT: Duration = Duration::from_secs(11);

fn edited() -> String {
    BASELINE.replacen("---\n", "- One rule more.\n\n---\n", 1)
}

/// Two agents with sealed baselines, and a sealed file that no agent uses.
fn sealed_world() -> World {
    let world = World::new(&["ranger", "scout"]);
    for agent in ["ranger", "scout"] {
        world.write_memory(agent, BASELINE);
    }
    fs::write(world.root.join("baselines/spare.md"), BASELINE).unwrap();
    let engine = world.engine();
    let names = ["ranger.md", "scout.md", "spare.md"].map(str::to_string);
    let scope = SealScope::Named(names.into());
    let plan = engine.seals().plan_seal(&scope, false).unwrap();
    engine.seals().apply_seal(&plan, None).unwrap();
    world
}

/// Saves an edited text, and leaves its seal for later.
fn save(writer: &BaselineWriter<'_>, name: &str) -> SavedBaseline {
    let expected = Some(Digest::of(BASELINE.as_bytes()));
    writer
        .save(name, edited().as_bytes(), expected, TextOrigin::Operator)
        .unwrap()
}

/// Looks at a world, with an engine as that of another process, while a change of a baseline has no
/// seal yet: the seal follows when the look begins to wait.
fn look_during_change<T>(world: &World, name: &str, look: impl FnOnce(&Engine) -> T) -> T {
    let engine = world.engine();
    let (asleep, wake) = bounded(1);
    let (sealed, end) = bounded::<()>(0);
    thread::scope(|scope| {
        let writer = engine.baseline_files().begin_baseline_change().unwrap();
        let digest = save(&writer, name).digest;
        let engine = &engine;
        scope.spawn(move || {
            let _sealed = sealed;
            if wake.recv().is_ok() {
                let edits = engine.baseline_edits();
                edits.seal_saved(&writer, name, digest, false).unwrap();
            }
        });
        let clock = TestClock::new();
        clock.on_sleep(move || {
            let _ = asleep.try_send(());
            let _ = end.recv();
        });
        look(&world.engine_with_clock(clock, world.local_transport()))
    })
}

fn state_of(engine: &Engine, agent: &str) -> State {
    engine
        .observer()
        .observe(engine.agent(agent).unwrap())
        .state
}

#[test]
fn half_done_change_is_never_seen_as_tampering() {
    let look = |name: &str, look: &dyn Fn(&Engine)| {
        look_during_change(&sealed_world(), name, |engine| look(engine));
    };
    look("scout.md", &|engine| {
        assert_eq!(state_of(engine, "scout"), State::Behind);
    });
    look("scout.md", &|engine| {
        let agents = engine.config().agents.iter().collect::<Vec<_>>();
        let seen = engine.observer().observe_all(&agents);
        assert!(
            seen.iter().all(|it| it.state != State::Tampered),
            "{seen:?}"
        );
    });
    look("scout.md", &|engine| {
        let plan = engine
            .planner()
            .plan_reset(&["scout".to_string()], false)
            .unwrap();
        assert_eq!((plan.steps.len(), plan.skipped.len()), (1, 0));
    });
    // Without a plan, as a timer resets.
    look("scout.md", &|engine| {
        let plan = engine
            .planner()
            .plan_unobserved(&["scout".to_string()], false)
            .unwrap();
        let report = engine
            .runs()
            .apply_plan(&plan, false, &AtomicBool::new(false), &mut |_| {});
        assert_eq!(report.worst_kind(), None);
    });
    for name in ["scout.md", "spare.md"] {
        look(name, &|engine| {
            let found = engine
                .verifier()
                .verify(None, &AtomicBool::new(false), &mut |_| {});
            assert!(found.unwrap().findings.is_empty());
        });
        look(name, &|engine| {
            let opened = engine.baseline_edits().open_baseline(name).unwrap();
            assert_eq!(opened.seal, SealMatch::Sealed);
        });
    }
}

#[test]
fn seal_from_before_a_change_is_read_again() {
    let world = sealed_world();
    let engine = world.engine();
    let mut baselines = engine.baselines().baseline_cache();
    let mut load = |agent| baselines.load(engine.agent(agent).unwrap()).map(drop);
    assert_eq!(load("ranger"), Ok(()));
    let other = world.engine();
    let writer = other.baseline_files().begin_baseline_change().unwrap();
    let digest = save(&writer, "scout.md").digest;
    let edits = other.baseline_edits();
    edits
        .seal_saved(&writer, "scout.md", digest, false)
        .unwrap();
    drop(writer);
    assert_eq!(load("scout"), Ok(()));
}

#[test]
fn change_that_ends_without_its_seal_is_tampered() {
    let world = sealed_world();
    let engine = world.engine();
    // As a kill does, the end of the writer releases its lock.
    save(
        &engine.baseline_files().begin_baseline_change().unwrap(),
        "scout.md",
    );
    let began = world.clock.instant();
    assert_eq!(state_of(&world.engine(), "scout"), State::Tampered);
    assert_eq!(world.clock.instant(), began, "there is nothing to wait for");
}

#[test]
fn endless_change_hides_tampering_for_seconds() {
    let world = sealed_world();
    let engine = world.engine();
    let _writer = engine.baseline_files().begin_baseline_change().unwrap();
    for agent in ["ranger", "scout"] {
        world.set_baseline(agent, edited());
    }
    let clock = TestClock::new();
    let began = clock.instant();
    let observer = world.engine_with_clock(Arc::clone(&clock) as _, world.local_transport());
    let agents = observer.config().agents.iter().collect::<Vec<_>>();
    let seen = observer.observer().observe_all(&agents);
    assert!(
        seen.iter().all(|it| it.state == State::Tampered),
        "{seen:?}"
    );
    let waited = clock.instant() - began;
    assert!(waited <= MAX_WAIT * 2, "{waited:?}");
}

#[test]
fn lock_that_others_may_open_hides_no_tampering() {
    let world = sealed_world();
    let engine = world.engine();
    let _writer = engine.baseline_files().begin_baseline_change().unwrap();
    world.set_baseline("scout", edited());
    let lock = world.archive_directory().join(".shepherd/locks/.seal.lock");
    fs::set_permissions(lock, fs::Permissions::from_mode(0o644)).unwrap();
    let clock = TestClock::new();
    let began = clock.instant();
    let observer = world.engine_with_clock(Arc::clone(&clock) as _, world.local_transport());
    assert_eq!(state_of(&observer, "scout"), State::Tampered);
    assert_eq!(clock.instant(), began);
}
