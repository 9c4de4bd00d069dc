//! Files of killed processes in the directories of the archive.

use crate::archive::QUARANTINE_DIRECTORY_NAME;
use crate::base::durable;
use crate::base::error::{Error, Result};
use crate::config::Agent;
use crate::store::controller::Controller;
use crate::store::journal::Journals;

/// Removes what killed processes left in the directories of these agents' entries and in the
/// program's own, except files that a journal names: recovery settles these. Returns why it could
/// not remove some.
pub(crate) fn remove_stale_files<'a>(
    controller: &Controller,
    agents: impl Iterator<Item = &'a Agent>,
    journals: &dyn Journals,
) -> Vec<Error> {
    let archive = controller.archive();
    archive.remove_leftovers(&[]);
    let entries = agents.flat_map(|agent| {
        let directory = archive.root().join(&agent.archive_subdir);
        let quarantine = directory.join(QUARANTINE_DIRECTORY_NAME);
        let has_quarantine = agent.archive_findings.has_quarantine();
        [Some(directory), has_quarantine.then_some(quarantine)]
    });
    let own = ["", "tx", "baselines"].map(|name| archive.program_path(name));
    let directories = own.into_iter().chain(entries.flatten());
    let now = controller.clock().now().into();
    let removed = directories
        .map(|directory| durable::remove_stale_files(&directory, now, || journals.random_names()));
    removed.filter_map(Result::err).collect()
}
