//! What a reset promises less where a host lacks something, and whether the
//! operator accepts that.

use crate::config::{Agent, Extension};
use crate::error::{Error, Kind, Result};
use crate::transport::Folder;

/// What changing this agent's memory promises less, for people.
///
/// # Errors
/// Something that the config does not accept.
pub(super) fn accepted(agent: &Agent, folder: &dyn Folder) -> Result<Vec<String>> {
    let lacks = folder.lacks();
    let accepted = agent.place.accept_weaker();
    if lacks.iter().any(|it| !accepted.contains(it)) {
        let list = |each: &dyn Fn(&Extension) -> String| {
            let each: Vec<String> = lacks.iter().map(each).collect();
            each.join(", ")
        };
        let message = format!(
            "its host's SFTP server lacks {}, without which {}",
            list(&|it| format!("{}@openssh.com", it.word())),
            list(&|it| consequence(*it).to_string()),
        );
        let hint = format!(
            "OpenSSH's server has them, unless sshd_config denies them; `accept_weaker = {}` in [{}] accepts it",
            list(&|it| it.word().to_string()),
            agent.name
        );
        return Err(Error::new(Kind::Host, message).hint(hint));
    }
    let note = |it: &Extension| {
        format!(
            "its host lacks {}@openssh.com: {}",
            it.word(),
            consequence(*it)
        )
    };
    Ok(lacks.iter().map(note).collect())
}

fn consequence(lacks: Extension) -> &'static str {
    match lacks {
        Extension::PosixRename => {
            "what an agent puts in the memory's place in that very instant may be lost"
        }
        Extension::Hardlink => {
            "a memory that an agent makes anew in that very instant may be written over"
        }
        Extension::Fsync => "a power cut there may leave the new memory empty or half written",
    }
}
