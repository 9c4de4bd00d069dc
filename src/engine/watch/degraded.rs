//! Degraded guarantees: what a reset cannot promise where a host lacks a feature, and whether the
//! operator accepts that.

use std::path::Path;

use crate::base::error::{Error, ErrorKind, Result};
use crate::config::{ACCEPT_IN_PLACE, Agent, SftpExtension};
use crate::engine::watch::MemoryChecks;
use crate::transport::{DirectoryObstacles, MemoryDirectory, SwapForecast};

/// The degradations of every memory that is reached over SFTP, whatever the server.
pub(in crate::engine) const SFTP_DEGRADATIONS: &str = "on other hosts a memory is absent for a moment, loses extended \
     attributes and access lists, and late writers are detected by reading twice, not by a lease";

/// Describes the degradation of a memory that is written in place; none where it
/// can be replaced.
///
/// # Errors
/// The config does not accept it.
pub(in crate::engine) fn in_place_degradation(
    agent: &Agent,
    outlook: &SwapForecast,
) -> Result<Option<String>> {
    let memory = agent.observed_path().display();
    match (outlook, agent.accepts_in_place()) {
        (SwapForecast::Clear | SwapForecast::Refused(_), _) => Ok(None),
        (SwapForecast::InPlace, true) => Ok(Some(format!(
            "{memory} is a mount point of its own and is written in place: a crash at that \
             moment leaves it half written until the next run, and while the process is stopped \
             an agent's writes may be overwritten"
        ))),
        (SwapForecast::InPlace, false) => {
            let message =
                format!("{memory} is a mount point of its own, so nothing can replace it");
            let hint = format!(
                "mount its directory instead; `accept_degraded = {ACCEPT_IN_PLACE}` in [{}] has it written \
                 where it is, which is not crash-safe",
                agent.name
            );
            Err(Error::new(ErrorKind::Conflict, message).with_hint(hint))
        }
    }
}

/// Returns the degradations of an agent's memory, one sentence for each SFTP extension that its
/// host lacks; none on this machine.
///
/// # Errors
/// Something that the config does not accept.
pub(in crate::engine) fn accepted_degradations(
    agent: &Agent,
    lacks: &[SftpExtension],
) -> Result<Vec<String>> {
    let accepted = agent.accept_degraded();
    if lacks.iter().any(|it| !accepted.contains(it)) {
        let list = |each: &dyn Fn(&SftpExtension) -> String| {
            let each: Vec<String> = lacks.iter().map(each).collect();
            each.join(", ")
        };
        let message = format!(
            "its host's SFTP server, or the file system there, lacks {}, without which {}",
            list(&|it| format!("{}@openssh.com", it.as_str())),
            list(&|it| it.degradation().to_string()),
        );
        let hint = format!(
            "OpenSSH's server has them, unless sshd_config denies them; `accept_degraded = {}` in [{}] accepts it",
            list(&|it| it.as_str().to_string()),
            agent.name
        );
        return Err(Error::new(ErrorKind::Host, message).with_hint(hint));
    }
    let host = agent.host().map_or("it", |host| &host.name);
    let note = |it: &SftpExtension| {
        let (name, without) = (it.as_str(), it.degradation());
        format!("{host} lacks {name}@openssh.com: {without}")
    };
    Ok(lacks.iter().map(note).collect())
}

impl MemoryChecks {
    /// Returns the degradation of an agent's memory that is written in place; none where it can be
    /// replaced, as far as that can be told without trying, or is on a host.
    ///
    /// # Errors
    /// Why no reset can replace it.
    pub fn replacement_degradation(&self, agent: &Agent) -> Result<Option<String>> {
        if agent.host().is_some() {
            return Ok(None);
        }
        match self.context.open_directory(agent) {
            Ok(directory) => replacement_degradation(agent, directory.as_ref()),
            Err(_) => Ok(None),
        }
    }

    /// Returns why this process may not replace or create the memory of an agent of this machine; none
    /// where it may, or where the directory cannot be opened.
    pub fn rights_refusal(&self, agent: &Agent) -> Option<Error> {
        let obstacles = self.local_obstacles(agent)?;
        obstacles.write_refusal.or(obstacles.ownership_refusal)
    }

    /// Returns why this process may not give a new file the owner and the group of an agent's memory, where
    /// it may write the directory.
    pub fn ownership_refusal(&self, agent: &Agent) -> Option<Error> {
        let obstacles = self.local_obstacles(agent)?;
        let is_writable = obstacles.write_refusal.is_none();
        obstacles.ownership_refusal.filter(|_| is_writable)
    }

    fn local_obstacles(&self, agent: &Agent) -> Option<DirectoryObstacles> {
        if agent.host().is_some() {
            return None;
        }
        self.context.open_directory(agent).ok()?.obstacles().ok()
    }

    /// Returns why processes that write an agent's memory cannot be detected, whatever rights
    /// this process has; none where they can, or where the directory cannot be opened.
    pub fn undetectable_writers_reason(&self, agent: &Agent) -> Option<String> {
        undetectable_writers_reason(self.context.open_directory(agent).ok()?.as_ref())
    }
}

/// Returns the degradation of an agent's memory in an open directory, as
/// [`MemoryChecks::replacement_degradation`] does.
///
/// # Errors
/// Why no reset can replace it.
pub(in crate::engine) fn replacement_degradation(
    agent: &Agent,
    directory: &dyn MemoryDirectory,
) -> Result<Option<String>> {
    if agent.host().is_some() {
        return Ok(None);
    }
    match directory.properties()?.swap_forecast {
        SwapForecast::Refused(error) => Err(error),
        forecast => in_place_degradation(agent, &forecast),
    }
}

/// Checks that a file of an edit can be replaced by an exchange: an edit writes nothing in place,
/// because a crash would leave half of it.
///
/// # Errors
/// Why the file cannot be replaced.
pub(in crate::engine) fn check_exchangeable(path: &Path, forecast: &SwapForecast) -> Result<()> {
    match forecast {
        SwapForecast::Clear => Ok(()),
        SwapForecast::Refused(error) => Err(error.clone()),
        SwapForecast::InPlace => {
            let message = format!("cannot replace {}: it is a mount point", path.display());
            Err(Error::new(ErrorKind::Conflict, message).with_hint("mount its directory instead"))
        }
    }
}

/// Returns why writers cannot be detected in a directory, whatever rights this process has; none
/// where they can.
pub(in crate::engine) fn undetectable_writers_reason(
    directory: &dyn MemoryDirectory,
) -> Option<String> {
    let obstacles = directory.obstacles();
    obstacles.map_or_else(
        |error| Some(error.to_string()),
        |it| it.undetectable_writers_reason,
    )
}
