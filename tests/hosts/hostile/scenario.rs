//! One agent on a host, the operation that a run performs on it, and the invariants that hold
//! whatever the host does.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use memory_shepherd::engine::{Engine, Outcome, Plan, RunReport, UndoMode, UndoTarget};
use memory_shepherd::transport::sftp::ssh::Connector;

use super::frames::{INIT, request_name};

use crate::full_harness::is_full_harness;
use crate::remote::{add_remote_agent, engine_with_connector};
use crate::servers::{
    FilteredServer, ReplyFate, ReplyFilter, RequestFate, RequestFilter, ServerProgram, sftp_server,
};
use crate::world::{BASELINE, World};

/// The agent's note.
pub const NOTE: &[u8] = b"a note of the agent\n";

pub const AGENT: &str = "ranger";

/// Generous timeout: test machines are slow and shared.
pub const LONG_TIMEOUT: &str = "remote_timeout = 600";

/// Operation that is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostOperation {
    /// Reset of a memory with a note.
    Reset,
    /// Creation of a missing memory.
    Create,
    /// Undo of a reset.
    Undo,
    /// Undo of a creation.
    UndoCreate,
}

pub const HOST_OPERATIONS: [HostOperation; 4] = [
    HostOperation::Reset,
    HostOperation::Create,
    HostOperation::Undo,
    HostOperation::UndoCreate,
];

pub struct HostScenario {
    pub world: World,
    /// Content of the memory before the first run.
    pub before: Option<Vec<u8>>,
    plan: Plan,
    /// Content of the memory after the operation.
    expected_memory: Option<Vec<u8>>,
}

/// Returns OpenSSH's server, which must be installed.
pub fn sftp_server_program() -> ServerProgram {
    sftp_server().unwrap()
}

/// Returns whether OpenSSH's server is installed; prints a notice if it is not.
pub fn has_sftp_server() -> bool {
    sftp_server().is_some()
}

/// Returns all points in the full harness, otherwise every `each`-th.
pub fn sample_points<T>(points: Vec<T>, each: usize) -> Vec<T> {
    let step = if is_full_harness() { 1 } else { each };
    points.into_iter().step_by(step).collect()
}

/// Tries all points, `together` at a time: a run mostly waits for a disk. A failed point does not
/// stop the others.
pub fn try_each<T: Send>(points: Vec<T>, together: usize, try_one: impl Fn(T) + Sync) -> usize {
    let count = points.len();
    let left = Mutex::new(points.into_iter());
    let failed = SharedCount::default();
    let work = || {
        while let Some(point) = take_next(&left) {
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
    assert_eq!(failed.get(), 0, "failed points of {count}, see above");
    count
}

fn take_next<T>(left: &Mutex<impl Iterator<Item = T>>) -> Option<T> {
    left.lock().unwrap().next()
}

/// Returns a filter that passes the first request of a session and asks `act` about the rest.
pub fn request_filter(
    act: impl Fn(usize, &mut Vec<u8>) -> RequestFate + Send + Sync + 'static,
) -> RequestFilter {
    Arc::new(move |number, frame| match frame[0] {
        INIT => RequestFate::Pass,
        _ => act(number, frame),
    })
}

pub fn pass_all() -> RequestFilter {
    request_filter(|_, _| RequestFate::Pass)
}

/// Returns a filter with this fate for one request only.
pub fn filter_at(
    point: usize,
    act: impl Fn(&mut Vec<u8>) -> RequestFate + Send + Sync + 'static,
) -> RequestFilter {
    request_filter(move |number, frame| {
        if number == point {
            act(frame)
        } else {
            RequestFate::Pass
        }
    })
}

/// Returns a filter of the replies to all but the first request of a session.
pub fn reply_filter(
    act: impl Fn(&crate::servers::SentRequest, &mut Vec<u8>) -> ReplyFate + Send + Sync + 'static,
) -> ReplyFilter {
    Arc::new(move |asked, frame| match asked.frame[0] {
        INIT => ReplyFate::Pass,
        _ => act(asked, frame),
    })
}

/// Returns the requests of an undisturbed run, in order, from its first on.
pub fn request_names(act: HostOperation) -> Vec<&'static str> {
    let heard = Arc::new(Mutex::new(vec!["init"]));
    let hears = Arc::clone(&heard);
    let all = request_filter(move |_, frame| {
        hears.lock().unwrap().push(request_name(frame));
        RequestFate::Pass
    });
    let scene = HostScenario::new(act);
    let report = scene.run(FilteredServer::new(sftp_server_program(), all));
    assert_eq!(report.results[0].outcome, Outcome::Ok, "{report:?}");
    let heard = heard.lock().unwrap();
    heard.clone()
}

impl HostScenario {
    pub fn new(act: HostOperation) -> HostScenario {
        HostScenario::with_general(act, LONG_TIMEOUT)
    }

    /// Prepares a scenario with the config line `general`.
    pub fn with_general(act: HostOperation, general: &str) -> HostScenario {
        // The preparation uses the generous timeout.
        let mut world = World::new(&[]).with_general(LONG_TIMEOUT);
        add_remote_agent(&mut world, AGENT, "box");
        let had_one = matches!(act, HostOperation::Reset | HostOperation::Undo);
        if had_one {
            world.write_scratch(AGENT, NOTE);
        }
        let before = had_one.then(|| world.read_memory(AGENT));
        let first = engine_with_connector(&world, sftp_server_program());
        let goal = match act {
            HostOperation::Reset | HostOperation::Create => Some(BASELINE.as_bytes().to_vec()),
            HostOperation::Undo | HostOperation::UndoCreate => {
                let ran = world.reset_with_engine(&first);
                ran.assert_outcome(Outcome::Ok);
                before.clone()
            }
        };
        let plan = match act {
            HostOperation::Reset | HostOperation::Create => first
                .planner()
                .plan_unobserved(&[AGENT.to_string()], false)
                .unwrap(),
            HostOperation::Undo | HostOperation::UndoCreate => plan_undo(&first),
        };
        HostScenario {
            world: world.with_general(general),
            before,
            plan,
            expected_memory: goal,
        }
    }

    /// Switches to the generous timeout.
    pub fn with_long_timeout(self) -> HostScenario {
        let world = self.world.with_general(LONG_TIMEOUT);
        HostScenario { world, ..self }
    }

    /// Runs the operation through this connector.
    pub fn run(&self, dial: impl Connector + 'static) -> RunReport {
        let by = engine_with_connector(&self.world, dial);
        run(&by, &self.plan)
    }

    pub fn memory(&self) -> Option<Vec<u8>> {
        fs::read(self.world.memory_path(AGENT)).ok()
    }

    /// Returns whether these bytes are in the memory, beside it, or in the archive.
    pub fn preserves(&self, bytes: &[u8]) -> bool {
        any_file_contains(&self.world.agent_directory(AGENT), bytes)
            || any_file_contains(&self.world.archive_directory().join(AGENT), bytes)
    }

    /// Asserts the invariants: no bytes are lost, and the memory is whole, or a record says why it
    /// is absent.
    pub fn assert_invariants(&self, said: &str) {
        if self.before.is_some() {
            assert!(self.preserves(NOTE), "the note is lost: {said}");
        }
        let memory = self.memory();
        let absent_is_fine = self.before.is_none() || !self.world.pending_journals().is_empty();
        let whole = match &memory {
            None => absent_is_fine,
            Some(bytes) => Some(bytes) == self.before.as_ref() || bytes == BASELINE.as_bytes(),
        };
        let shown = memory.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(whole, "the memory is {shown:?}: {said}");
    }

    /// Asserts that the run did what its report says.
    pub fn assert_report_is_true(&self, report: &RunReport, said: &str) {
        let result = &report.results[0];
        if result.outcome == Outcome::Ok && result.kind.is_none() {
            assert_eq!(self.memory(), self.expected_memory, "{said}");
        }
    }

    /// Asserts that the memory holds the baseline and that no journal is left.
    #[track_caller]
    pub fn assert_recovered(&self, said: &str) {
        assert_eq!(
            self.memory().as_deref(),
            Some(BASELINE.as_bytes()),
            "{said}"
        );
        assert_eq!(
            self.world.pending_journals(),
            Vec::<String>::new(),
            "{said}"
        );
    }

    /// Asserts that the next run, with a good server, recovers everything, and that it can be
    /// undone to the exact bytes.
    pub fn assert_next_run_settles(&self, said: &str) {
        let next = engine_with_connector(&self.world, sftp_server_program());
        let plan = next
            .planner()
            .plan_unobserved(&[AGENT.to_string()], false)
            .unwrap();
        let report = run(&next, &plan);
        let said = format!("{said}\nthen {report:?}");
        assert_eq!(report.worst_kind(), None, "{said}");
        self.assert_recovered(&said);
        let litter = self.world.leftovers(AGENT);
        assert!(litter.is_empty(), "{litter:?} is left: {said}");
        if self.before.is_some() {
            assert!(
                any_file_contains(&self.world.archive_directory().join(AGENT), NOTE),
                "the note is lost: {said}"
            );
        }
        let report = run(&next, &plan_undo(&next));
        let said = format!("{said}\nundone {report:?}");
        assert_eq!(report.results[0].outcome, Outcome::Ok, "{said}");
        assert_eq!(self.memory(), self.before, "{said}");
    }

    /// Runs the operation through this connector and asserts all invariants; returns the run's
    /// report.
    pub fn assert_survives(&self, dial: impl Connector + 'static, fault: &str) -> RunReport {
        let report = self.run(dial);
        let said = format!("{fault}: {report:?}");
        self.assert_invariants(&said);
        self.assert_report_is_true(&report, &said);
        self.assert_next_run_settles(&said);
        report
    }
}

pub fn run(engine: &Engine, plan: &Plan) -> RunReport {
    engine
        .runs()
        .apply_plan(plan, false, &AtomicBool::new(false), &mut |_| {})
}

pub fn plan_undo(engine: &Engine) -> Plan {
    let target = UndoTarget::Agents(vec![AGENT.to_string()]);
    engine
        .planner()
        .plan_undo(&target, UndoMode::Refuse, false)
        .unwrap()
}

/// Returns whether a file in a directory, or one level below it, has these bytes.
pub fn any_file_contains(directory: &Path, bytes: &[u8]) -> bool {
    let items = fs::read_dir(directory).into_iter().flatten();
    items.map(Result::unwrap).any(|item| {
        let kind = item.file_type().unwrap();
        let has = |whole: Vec<u8>| whole.windows(bytes.len()).any(|part| part == bytes);
        kind.is_dir() && any_file_contains(&item.path(), bytes)
            || kind.is_file() && fs::read(item.path()).is_ok_and(has)
    })
}

/// A counter shared by threads.
#[derive(Clone, Default)]
pub struct SharedCount(Arc<AtomicUsize>);

impl SharedCount {
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    pub fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}
