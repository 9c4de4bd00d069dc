//! Saves and plans that change a baseline with its seal: others see both change together.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use chrono::{DateTime, FixedOffset};

use super::*;
use crate::base::clock::Clock;
use crate::base::digest::Digest;
use crate::base::sys;
use crate::baseline::seal::SEAL_FILE_NAME;
use crate::console::message::{ReplacedBaseline, TextSave};

/// A clock that compares a baseline with its seal at each look at the time.
struct ComparingClock {
    root: PathBuf,
    has_seen_mismatch: AtomicBool,
}

impl ComparingClock {
    fn matches_seal(&self) -> bool {
        let read = |name| std::fs::read(self.root.join("baselines").join(name)).unwrap();
        let seal = String::from_utf8(read(SEAL_FILE_NAME)).unwrap();
        seal.contains(&Digest::of(&read("a.md")).to_string())
    }

    fn is_seal_locked(&self) -> bool {
        let locks = self.root.join("archives/.shepherd/locks");
        let lock = std::fs::File::open(locks.join(".seal.lock")).unwrap();
        sys::lock_conflict(lock.as_fd()).unwrap().is_some()
    }
}

impl Clock for ComparingClock {
    fn now(&self) -> DateTime<FixedOffset> {
        let is_sealed = self.root.join("baselines").join(SEAL_FILE_NAME).exists();
        // The change may end after the first look.
        if is_sealed && !self.matches_seal() && !self.is_seal_locked() && !self.matches_seal() {
            self.has_seen_mismatch.store(true, Ordering::Relaxed);
        }
        SystemClock.now()
    }

    fn instant(&self) -> Instant {
        SystemClock.instant()
    }

    fn sleep(&self, duration: Duration) {
        SystemClock.sleep(duration);
    }
}

#[test]
fn sealed_save_and_restore_are_one_change() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path().canonicalize().unwrap();
    std::fs::create_dir(root.join("baselines")).unwrap();
    std::fs::write(root.join("baselines/a.md"), BASELINE).unwrap();
    let path = root.join("fleet.conf");
    let config = "[general]\nmin_baseline_size = 10\n\
                  [here]\nmemory_file = /agent/MEMORY.md\nbaseline = a.md\n";
    std::fs::write(&path, config).unwrap();
    let clock = Arc::new(ComparingClock {
        root: root.clone(),
        has_seen_mismatch: AtomicBool::new(false),
    });
    let (_release, released) = bounded::<()>(0);
    let hosts = LocalAndSilentHosts(fake_with_agent(), fake_with_agent(), released);
    let engine = Engine::new(EngineSetup {
        config: config::load(&path, &test_env(&root)).unwrap(),
        clock: Arc::clone(&clock) as _,
        transports: Arc::new(hosts),
        user: "tester".to_string(),
        trigger: Trigger::Console,
        archive_group: None,
        layouts: Default::default(),
    });
    let mut plan = engine.seals().plan_seal(&SealScope::All, false).unwrap();
    plan.accept_lint_errors();
    engine.seals().apply_seal(&plan, None).unwrap();
    let factory = Arc::new(|_| unreachable!("the config does not change"));
    let (mut runner, inbox) = start_runner(&root, engine, factory);
    let wait_for = |is_expected: &dyn Fn(&Msg) -> bool| {
        std::iter::from_fn(|| inbox.recv_timeout(WAIT_TIMEOUT).ok()).find(is_expected)
    };
    runner.execute(Effect::SaveText(Box::new(TextSave {
        name: "a.md".to_string(),
        bytes: BASELINE.replace("kind", "brief").into_bytes(),
        expected: ReplacedBaseline::File(Digest::of(BASELINE.as_bytes())),
        is_immutable: false,
        is_sealed: true,
        has_foreign_lines: false,
        accepts_lint_errors: true,
    })));
    let saved = wait_for(&|msg| matches!(msg, Msg::TextSaved(..)));
    assert!(
        matches!(&saved, Some(Msg::TextSaved(_, Ok(saved))) if saved.seal == Ok(SealMatch::Sealed)),
        "{saved:?}"
    );
    let request = BaselinePlanRequest::Restore {
        names: vec!["a.md".to_string()],
        version: "previous".to_string(),
    };
    runner.execute(Effect::MakeBaselinePlan(1, request));
    let Some(Msg::BaselinePlanMade(_, Ok(prepared))) =
        wait_for(&|msg| matches!(msg, Msg::BaselinePlanMade(..)))
    else {
        panic!("no plan");
    };
    runner.execute(Effect::ApplyBaselinePlan(Arc::clone(&prepared.change)));
    let applied = wait_for(&|msg| matches!(msg, Msg::BaselinePlanApplied(_)));
    let Some(Msg::BaselinePlanApplied(Ok(applied))) = applied else {
        panic!("not applied: {applied:?}");
    };
    assert!(applied.summary.contains("and sealed it"), "{applied:?}");
    assert!(clock.matches_seal());
    assert!(!clock.has_seen_mismatch.load(Ordering::Relaxed));
}
