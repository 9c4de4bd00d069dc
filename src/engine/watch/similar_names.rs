//! Files that have the name of a missing memory but for its spelling: in other case, or with
//! characters in another form, as programs of other systems write them. On the disk that is another
//! name, so a reset would create a second memory, and never archive the first.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::base::error::{Error, ErrorKind};
use crate::base::file_systems::SpellingDifference;
use crate::config::Agent;
use crate::engine::watch::MemoryChecks;
use crate::store::agent_history::AgentHistory;
use crate::transport::MemoryDirectory;

/// A file beside a missing memory.
pub(in crate::engine) struct SimilarFile {
    name: OsString,
    difference: SpellingDifference,
    /// Why no memory is created beside it; `None` where an earlier run found or left a file at the
    /// memory's path, so that the agent may have made this one.
    pub refusal: Option<Error>,
}

impl SimilarFile {
    /// Describes the file, to follow the reason of a missing memory.
    pub fn describe(&self) -> String {
        let name = self.name.display();
        let difference = self.difference.describe();
        let bytes = match self.difference {
            SpellingDifference::Case => String::new(),
            _ => format!(" (bytes {})", self.name.as_bytes().escape_ascii()),
        };
        format!("{name}{bytes} is there, a name that differs only in {difference}")
    }

    /// Describes the effect of a reset that is not refused.
    pub fn note(&self) -> String {
        format!("{}; a reset leaves it unread", self.describe())
    }
}

impl MemoryChecks {
    /// Returns the file that a missing memory may be, unless it is the memory of another agent.
    pub(in crate::engine) fn find_similar_file(
        &self,
        agent: &Agent,
        history: &AgentHistory,
        directory: &dyn MemoryDirectory,
    ) -> Option<SimilarFile> {
        let memory = agent.observed_path();
        let name = directory.find_similar_name()?;
        let difference = SpellingDifference::between(memory.file_name()?, &name)?;
        let path = memory.with_file_name(&name);
        let mut agents = self.context.config().agents.iter();
        let is_configured = |other: &Agent| {
            let is_on_same_host = other.host() == agent.host();
            is_on_same_host && other.observed_path() == path
        };
        if agents.any(is_configured) {
            return None;
        }
        let mut found = SimilarFile {
            name,
            difference,
            refusal: None,
        };
        if !MemoryChecks::has_file_record(agent, history) {
            found.refusal = Some(refusal_of(agent, memory, &found));
        }
        Some(found)
    }
}

fn refusal_of(agent: &Agent, memory: &Path, found: &SimilarFile) -> Error {
    let message = format!(
        "no memory file {}, but {}; a reset would create a second memory",
        memory.display(),
        found.describe()
    );
    let key = agent.observed_key();
    let name = found.name.display();
    let exact = match found.difference {
        SpellingDifference::Case => String::new(),
        _ => format!(
            " with exactly these bytes: {}",
            found.name.as_bytes().escape_ascii()
        ),
    };
    Error::new(ErrorKind::Conflict, message)
        .with_hint(format!("end {key} in {name}{exact}"))
        .with_hint(
            "if the agent reads the name of the config, rename the file to it; if it is another file, \
             create an empty memory",
        )
}
