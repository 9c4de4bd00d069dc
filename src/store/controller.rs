//! What the controller's own files depend on: the config, the clock, the archive, and in whose name
//! this process acts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::archive::{Archive, PROGRAM_DIRECTORY_NAME};
use crate::base::clock::Clock;
use crate::base::error::{Error, ErrorKind, Result};
use crate::config::{Agent, Config};
use crate::store::trigger::Trigger;

/// The directory of drafts, in the program's own directory of the archive.
const DRAFT_DIRECTORY_NAME: &str = "drafts";

/// The config, the clock and the archive, and in whose name this process acts.
pub struct Controller {
    config: Config,
    clock: Arc<dyn Clock>,
    archive: Archive,
    user: String,
    trigger: Trigger,
}

impl Controller {
    /// Creates a controller. Reads and writes nothing.
    pub fn new(
        config: Config,
        clock: Arc<dyn Clock>,
        archive: Archive,
        user: String,
        trigger: Trigger,
    ) -> Controller {
        Controller {
            config,
            clock,
            archive,
            user,
            trigger,
        }
    }

    /// The configuration; it does not change during a controller's life.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Source of all times.
    pub fn clock(&self) -> &dyn Clock {
        self.clock.as_ref()
    }

    /// Shared handle to the clock, for threads that outlive the controller.
    pub fn clock_handle(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    /// The archive.
    pub fn archive(&self) -> &Archive {
        &self.archive
    }

    /// The operator's user name.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// What starts the runs of this process.
    pub fn trigger(&self) -> Trigger {
        self.trigger
    }

    /// The directory of the texts that operators edit here and have not saved.
    pub fn draft_directory(&self) -> PathBuf {
        self.archive.program_path(DRAFT_DIRECTORY_NAME)
    }

    /// Creates that directory if necessary.
    ///
    /// # Errors
    /// As [`Archive::open_or_create_directory`].
    pub fn create_draft_directory(&self) -> Result<()> {
        let directory = Path::new(PROGRAM_DIRECTORY_NAME).join(DRAFT_DIRECTORY_NAME);
        self.archive.open_or_create_directory(&directory).map(drop)
    }

    /// Returns the command line of a verb with its arguments, for messages.
    pub fn command_line(&self, verb: &str) -> String {
        self.config.invocation.command_line(verb)
    }

    /// Returns the agent of this name.
    ///
    /// # Errors
    /// [`ErrorKind::User`], with a suggestion, when the config has no such agent.
    pub fn agent(&self, name: &str) -> Result<&Agent> {
        self.config.agent(name).ok_or_else(|| {
            let error = Error::new(ErrorKind::User, format!("no agent named {name}"));
            match self.config.suggest_agent(name) {
                Some(near) => error.with_hint(format!("did you mean {near}?")),
                None => error.with_hint(format!(
                    "run `{}` to list all agents",
                    self.command_line("status")
                )),
            }
        })
    }

    /// The error of a typed path that leads to no entry.
    pub(crate) fn unknown_entry_error(&self, typed: &Path) -> Error {
        let message = format!("no entry {} in the archive", typed.display());
        let list = self.command_line("archive list");
        Error::new(ErrorKind::User, message).with_hint(format!("run `{list}` to list all entries"))
    }
}
