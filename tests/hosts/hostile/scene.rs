//! One agent on a host, what a run is to do with it, and what must hold whatever
//! the host does meanwhile.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use memory_shepherd::engine::{Engine, Outcome, Plan, RunReport, UndoMode, UndoTarget};
use memory_shepherd::transport::sftp::ssh::Connector;

use super::frames::{INIT, called};

use crate::remote::{add_remote, engine};
use crate::servers::{Between, Ear, Fate, Judge, Program, Said, sftp_server};
use crate::world::{BASELINE, World};

/// What the agent wrote.
pub const NOTE: &[u8] = b"a note of the agent\n";

pub const AGENT: &str = "ranger";

/// Machines that test are slow, and shared.
pub const PATIENT: &str = "remote_timeout = 600";

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// A memory with a note is reset.
    Reset,
    /// A memory is made where none was.
    Create,
    /// A reset is undone.
    Undo,
    /// The making of a memory is undone.
    TakeBack,
}

pub const ACTS: [Act; 4] = [Act::Reset, Act::Create, Act::Undo, Act::TakeBack];

pub struct Scene {
    pub world: World,
    /// What stood there before the first run.
    pub before: Option<Vec<u8>>,
    plan: Plan,
    /// What it comes to.
    goal: Option<Vec<u8>>,
}

/// OpenSSH's server.
pub fn good() -> Program {
    sftp_server().unwrap()
}

/// Whether there is one; says so if there is not.
pub fn there_is_a_server() -> bool {
    sftp_server().is_some()
}

/// Whether all of a sweep is wanted.
pub fn full() -> bool {
    std::env::var_os("HARNESS").is_some_and(|value| value == "full")
}

/// All points of a sweep, or each of so many.
pub fn some<T>(points: Vec<T>, each: usize) -> Vec<T> {
    let step = if full() { 1 } else { each };
    points.into_iter().step_by(step).collect()
}

/// Tries all points, so many at a time: most of the time a run waits for a disk.
/// One that fails keeps no other from being tried.
pub fn each<T: Send>(points: Vec<T>, together: usize, try_one: impl Fn(T) + Sync) -> usize {
    let count = points.len();
    let left = Mutex::new(points.into_iter());
    let failed = Count::default();
    let work = || {
        while let Some(point) = next(&left) {
            if catch_unwind(AssertUnwindSafe(|| try_one(point))).is_err() {
                failed.add();
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..together {
            scope.spawn(work);
        }
    });
    assert_eq!(
        failed.get(),
        0,
        "so many of {count} points failed, see above"
    );
    count
}

fn next<T>(left: &Mutex<impl Iterator<Item = T>>) -> Option<T> {
    left.lock().unwrap().next()
}

/// Passes whatever begins a session, and has the rest judged.
pub fn judge(act: impl Fn(usize, &mut Vec<u8>) -> Fate + Send + Sync + 'static) -> Judge {
    Arc::new(move |number, frame| match frame[0] {
        INIT => Fate::Pass,
        _ => act(number, frame),
    })
}

pub fn pass() -> Judge {
    judge(|_, _| Fate::Pass)
}

/// Does this at one request only.
pub fn at(point: usize, act: impl Fn(&mut Vec<u8>) -> Fate + Send + Sync + 'static) -> Judge {
    judge(move |number, frame| match number == point {
        true => act(frame),
        false => Fate::Pass,
    })
}

/// Hears the answers to all but the beginning of sessions.
pub fn ear(
    act: impl Fn(&crate::servers::Asked, &mut Vec<u8>) -> Said + Send + Sync + 'static,
) -> Ear {
    Arc::new(move |asked, frame| match asked.frame[0] {
        INIT => Said::Pass,
        _ => act(asked, frame),
    })
}

/// What is asked of a host in an undisturbed run, in order; the first begins it.
pub fn requests(act: Act) -> Vec<&'static str> {
    let heard = Arc::new(Mutex::new(vec!["init"]));
    let hears = Arc::clone(&heard);
    let all = judge(move |_, frame| {
        hears.lock().unwrap().push(called(frame));
        Fate::Pass
    });
    let scene = Scene::new(act);
    let report = scene.run(Between::new(good(), all));
    assert_eq!(report.results[0].outcome, Outcome::Ok, "{report:?}");
    let heard = heard.lock().unwrap();
    heard.clone()
}

impl Scene {
    pub fn new(act: Act) -> Scene {
        Scene::with(act, PATIENT)
    }

    /// The same with a line in the section of the agent's host.
    pub fn with(act: Act, general: &str) -> Scene {
        // While it is prepared, hosts may take their time.
        let mut world = World::new(&[]).general(PATIENT);
        add_remote(&mut world, AGENT, "box");
        let had_one = matches!(act, Act::Reset | Act::Undo);
        if had_one {
            world.write_scratch(AGENT, NOTE);
        }
        let before = had_one.then(|| world.read(AGENT));
        let first = engine(&world, good());
        let goal = match act {
            Act::Reset | Act::Create => Some(BASELINE.as_bytes().to_vec()),
            Act::Undo | Act::TakeBack => {
                let ran = world.reset_by(&first);
                assert_eq!(
                    ran.report.results[0].outcome,
                    Outcome::Ok,
                    "{:?}",
                    ran.report
                );
                before.clone()
            }
        };
        let plan = match act {
            Act::Reset | Act::Create => first.plan_unobserved(&[AGENT.to_string()], false).unwrap(),
            Act::Undo | Act::TakeBack => undo(&first),
        };
        Scene {
            world: world.general(general),
            before,
            plan,
            goal,
        }
    }

    /// From now on hosts may take their time.
    pub fn patient(self) -> Scene {
        let world = self.world.general(PATIENT);
        Scene { world, ..self }
    }

    /// The run, by this way.
    pub fn run(&self, dial: impl Connector + 'static) -> RunReport {
        let by = engine(&self.world, dial);
        run(&by, &self.plan)
    }

    pub fn memory(&self) -> Option<Vec<u8>> {
        fs::read(self.world.memory(AGENT)).ok()
    }

    /// Whether these bytes are in the memory, beside it, or in the archive.
    pub fn has(&self, bytes: &[u8]) -> bool {
        contains(&self.world.folder(AGENT), bytes)
            || contains(&self.world.archive().join(AGENT), bytes)
    }

    /// What holds whatever happened: nothing is lost, and the memory is whole, or
    /// there is a record of why it is not there.
    pub fn holds(&self, said: &str) {
        if self.before.is_some() {
            assert!(self.has(NOTE), "the note is lost: {said}");
        }
        let memory = self.memory();
        let absent_is_fine = self.before.is_none() || !self.world.pending().is_empty();
        let whole = match &memory {
            None => absent_is_fine,
            Some(bytes) => Some(bytes) == self.before.as_ref() || bytes == BASELINE.as_bytes(),
        };
        let shown = memory.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(whole, "the memory is {shown:?}: {said}");
    }

    /// What a run says that it did, it did.
    pub fn is_true(&self, report: &RunReport, said: &str) {
        let result = &report.results[0];
        if result.outcome == Outcome::Ok && result.kind.is_none() {
            assert_eq!(self.memory(), self.goal, "{said}");
        }
    }

    /// The next run, with a good server, puts everything right; and it can be
    /// undone to the exact bytes.
    pub fn settles(&self, said: &str) {
        let next = engine(&self.world, good());
        let plan = next.plan_unobserved(&[AGENT.to_string()], false).unwrap();
        let report = run(&next, &plan);
        let said = format!("{said}\nthen {report:?}");
        assert_eq!(report.worst_kind(), None, "{said}");
        assert_eq!(
            self.memory().as_deref(),
            Some(BASELINE.as_bytes()),
            "{said}"
        );
        let litter = self.world.litter(AGENT);
        assert!(litter.is_empty(), "{litter:?} is left: {said}");
        let pending = self.world.pending();
        assert!(pending.is_empty(), "{pending:?} is left: {said}");
        if self.before.is_some() {
            assert!(
                contains(&self.world.archive().join(AGENT), NOTE),
                "the note is lost: {said}"
            );
        }
        let report = run(&next, &undo(&next));
        let said = format!("{said}\nundone {report:?}");
        assert_eq!(report.results[0].outcome, Outcome::Ok, "{said}");
        assert_eq!(self.memory(), self.before, "{said}");
    }

    /// A run by this way, and all that must hold afterwards.
    pub fn survives(&self, dial: impl Connector + 'static, fault: &str) -> RunReport {
        let report = self.run(dial);
        let said = format!("{fault}: {report:?}");
        self.holds(&said);
        self.is_true(&report, &said);
        self.settles(&said);
        report
    }
}

pub fn run(engine: &Engine, plan: &Plan) -> RunReport {
    engine.apply_plan(plan, false, &AtomicBool::new(false), &mut |_| {})
}

pub fn undo(engine: &Engine) -> Plan {
    let target = UndoTarget::Agents(vec![AGENT.to_string()]);
    engine.plan_undo(&target, UndoMode::Refuse, false).unwrap()
}

/// Whether a file in a folder, or in one in it, has these bytes.
pub fn contains(folder: &Path, bytes: &[u8]) -> bool {
    let items = fs::read_dir(folder).into_iter().flatten();
    items.map(Result::unwrap).any(|item| {
        let kind = item.file_type().unwrap();
        let has = |whole: Vec<u8>| whole.windows(bytes.len()).any(|part| part == bytes);
        kind.is_dir() && contains(&item.path(), bytes)
            || kind.is_file() && fs::read(item.path()).is_ok_and(has)
    })
}

/// Counts how often something was reached.
#[derive(Clone, Default)]
pub struct Count(Arc<AtomicUsize>);

impl Count {
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    pub fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}
