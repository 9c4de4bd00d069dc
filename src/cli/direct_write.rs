//! Writes to a memory without a config: the run of an engine whose archive is a directory in the memory
//! that exists only for as long as the run does. A later write recovers what an interrupted one left.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use chrono::{DateTime, TimeDelta, Utc};
use rustix::fs::Mode;

use crate::archive::{EntryKind, parse_entry_name};
use crate::base::clock::{Clock, SystemClock};
use crate::base::durable::{create_directory, is_random_name, new_random_name};
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::config::{Agent, AgentLayout, Config, GeneralSettings};
use crate::engine::{Engine, EngineSetup, OperationPlan, Outcome, Trigger};
use crate::layouts::{Layout, Layouts, OperationRequest, PlanFailure, PlannedOperation};
use crate::transport::SingleTransport;
use crate::transport::local::LocalTransport;

/// Suffix of the directories of runs that displaced what other programs wrote.
const KEPT_SUFFIX: &str = "-kept";

/// The name under which the engine knows the memory.
const AGENT: &str = "memory";

/// How often an operation is planned whose files another write changes before it is applied.
const MAX_APPLY_ATTEMPTS: usize = 10;

/// Age from which a directory without a run is taken for a left one.
const MIN_LEFT_AGE: TimeDelta = TimeDelta::seconds(60);

/// A memory that is written without a config.
pub(super) struct DirectMemory<'m> {
    /// Its layout.
    pub(super) layout: &'static dyn Layout,
    /// Its directory.
    pub(super) root: &'m Path,
    /// The directory for what a run needs to be recovered; none is the memory itself.
    pub(super) journal: Option<&'m Path>,
    /// All layouts.
    pub(super) layouts: Layouts,
    /// The user who asks.
    pub(super) user: &'m str,
}

impl DirectMemory<'_> {
    /// Recovers an interrupted write, and applies an operation.
    ///
    /// # Errors
    /// The operation is refused, or the files cannot be read or written.
    pub(super) fn apply(
        &self,
        request: &OperationRequest,
    ) -> Result<PlannedOperation, PlanFailure> {
        self.recover()?;
        let journal = self.journal_root();
        // Before anything is written, also a directory.
        let operation = self.plan(request)?;
        if operation.edits.is_empty() {
            return Ok(operation);
        }
        for directory in [self.root, journal] {
            create_directory(directory, Mode::from_raw_mode(0o777))?;
        }
        let directory = journal.join(new_random_name()?);
        create_directory(&directory, Mode::RWXU)?;
        let engine = self.engine(&directory)?;
        let mut applied = self.apply_with(&engine, request);
        for _ in 1..MAX_APPLY_ATTEMPTS {
            match &applied {
                Err(PlanFailure::Failed(error)) if error.kind() == ErrorKind::Conflict => {
                    applied = self.apply_with(&engine, request);
                }
                _ => break,
            }
        }
        if !engine.runs().has_open_turn(AGENT) {
            drop(engine);
            close_journal(&directory)?;
            return applied;
        }
        // What a run has left unfinished is recovered from there by the next write.
        applied?;
        let message = format!(
            "a file is changed, but another program may still write its old content; the next write settles \
             it, from {}",
            directory.display()
        );
        Err(Error::new(ErrorKind::Partial, message).into())
    }

    /// Returns what an operation would do.
    fn plan(&self, request: &OperationRequest) -> Result<PlannedOperation, PlanFailure> {
        let directory = self.journal_root().join(".shepherd-none");
        let engine = self.engine(&directory)?;
        let memory = engine.layouts().open(AGENT)?;
        engine.layouts().plan_operation(&memory, request)
    }

    fn journal_root(&self) -> &Path {
        self.journal.unwrap_or(self.root)
    }

    fn apply_with(
        &self,
        engine: &Engine,
        request: &OperationRequest,
    ) -> Result<PlannedOperation, PlanFailure> {
        let OperationPlan { operation, plan } = engine.layouts().plan(AGENT, request, false)?;
        if let Some(skipped) = plan.skipped.first() {
            let kind = skipped.kind.unwrap_or(ErrorKind::Conflict);
            return Err(Error::new(kind, skipped.reason.clone()).into());
        }
        let stop = AtomicBool::new(false);
        let report = engine.runs().apply_plan(&plan, true, &stop, &mut |_| {});
        let Some(result) = report.results.first() else {
            return Err(Error::new(ErrorKind::Internal, "the run has no result").into());
        };
        match (result.outcome, result.kind) {
            (Outcome::Ok | Outcome::Unchanged, None) => Ok(operation),
            (_, kind) => {
                let note = result.note.clone().unwrap_or_default();
                Err(Error::new(kind.unwrap_or(ErrorKind::Partial), note).into())
            }
        }
    }

    /// Recovers interrupted writes. Those that go on are left to their processes.
    fn recover(&self) -> Result<()> {
        let Ok(entries) = fs::read_dir(self.journal_root()) else {
            return Ok(());
        };
        let own_uid = rustix::process::geteuid().as_raw();
        let is_journal = |entry: &fs::DirEntry| {
            let name = entry.file_name();
            // Those of other users are theirs to recover, and might lead anywhere.
            let is_own = |it: fs::Metadata| it.is_dir() && it.uid() == own_uid;
            name.to_str().is_some_and(is_random_name) && entry.metadata().is_ok_and(is_own)
        };
        let left = entries.flatten().filter(is_journal).map(|it| it.path());
        for directory in left.collect::<Vec<PathBuf>>() {
            let engine = self.engine(&directory)?;
            let stop = AtomicBool::new(false);
            let agents = [AGENT.to_string()];
            let had_open_turn = engine.runs().has_open_turn(AGENT);
            self.check_root_of(&engine, &directory)?;
            engine
                .runs()
                .recover_interrupted_turns(&agents, &stop, &mut |_| {})?
                .into_result()?;
            if let Some(turn) = engine.runs().unrecorded_turns(&agents)?.first() {
                let root = turn.memory.as_deref().unwrap_or(self.root);
                return Err(unrecovered_error(root, &directory));
            }
            let is_old = || {
                let changed = fs::metadata(&directory).and_then(|it| it.modified());
                let now = SystemClock.now().to_utc();
                let age = changed.ok().map(|it| now - DateTime::<Utc>::from(it));
                age.is_some_and(|age| age > MIN_LEFT_AGE)
            };
            // Without a turn, a process may be about to begin one.
            if !engine.runs().has_open_turn(AGENT) && (had_open_turn || is_old()) {
                drop(engine);
                close_journal(&directory)?;
            }
        }
        Ok(())
    }

    /// Checks that an interrupted write in the memory was one of this directory: in a copy, or after a move,
    /// recovery would change the files at the old path. A journal elsewhere may serve several memories.
    fn check_root_of(&self, engine: &Engine, journal: &Path) -> Result<()> {
        if self.journal.is_some() {
            return Ok(());
        }
        let turns = engine.runs().unrecorded_turns(&[AGENT.to_string()])?;
        let mut roots = turns.iter().filter_map(|turn| turn.memory.as_deref());
        match roots.find(|root| !is_same_directory(root, self.root)) {
            Some(root) => Err(unrecovered_error(root, journal)),
            None => Ok(()),
        }
    }

    fn engine(&self, directory: &Path) -> Result<Engine> {
        let mut general =
            GeneralSettings::new(directory.join("baselines"), directory.to_path_buf());
        general.min_baseline_size = 0;
        let mut agent = Agent::new(&general, AGENT, self.root.join("MEMORY.md"), "none.md");
        agent.reset = None;
        agent.layout = Some(AgentLayout {
            name: self.layout.name().to_string(),
            directory: self.root.to_path_buf(),
            reference: None,
            state_directory: None,
        });
        let clock = Arc::new(SystemClock);
        let transport = LocalTransport::new(clock.clone());
        Ok(Engine::new(EngineSetup {
            config: Config::new(general, vec![agent])?,
            transports: Arc::new(SingleTransport(Arc::new(transport))),
            clock,
            user: self.user.to_string(),
            trigger: Trigger::Cli,
            archive_group: None,
            layouts: self.layouts,
        }))
    }
}

/// Whether two paths lead to one directory.
fn is_same_directory(one: &Path, other: &Path) -> bool {
    let identity = |path| fs::metadata(path).map(|it| (it.dev(), it.ino())).ok();
    identity(one).is_some_and(|one| Some(one) == identity(other))
}

/// The error of an interrupted write whose files are not where it left them. A write before it is recovered
/// would be taken for another program's.
fn unrecovered_error(root: &Path, journal: &Path) -> Error {
    let message = format!(
        "a write to {} was interrupted, and its files are not there now",
        root.display()
    );
    Error::new(ErrorKind::Conflict, message).with_hint(format!(
        "put them back, or use that path again; or delete {}, which holds the earlier content",
        journal.display()
    ))
}

/// Removes the directory of a run that has ended. Bytes that another program wrote while the run
/// replaced its files are kept beside it, and are an error that names them.
fn close_journal(directory: &Path) -> Result<()> {
    let entries = fs::read_dir(directory.join(AGENT)).into_iter().flatten();
    let is_foreign = |entry: fs::DirEntry| {
        let name = entry.file_name();
        let parsed = name.to_str().and_then(parse_entry_name);
        parsed.is_some_and(|(_, kind, _)| kind != EntryKind::FullBackup)
    };
    if !entries.flatten().any(is_foreign) {
        return fs::remove_dir_all(directory).with_path("remove", directory);
    }
    let kept = PathBuf::from(format!("{}{KEPT_SUFFIX}", directory.display()));
    fs::rename(directory, &kept).with_path("rename", directory)?;
    let message = format!(
        "another program wrote a file while it was replaced; its bytes are in {}",
        kept.join(AGENT).display()
    );
    Err(Error::new(ErrorKind::Partial, message))
}
