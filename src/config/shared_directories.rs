//! Agents that keep their archive entries in one directory.

use std::collections::HashMap;
use std::fmt;

use super::Agent;

/// The hint for a [`SharedEntryDirectory`].
pub const SHARED_ENTRY_DIRECTORY_HINT: &str =
    "give each agent a directory of its own, to keep their entries apart";

/// Two agents with the same `archive_subdir`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedEntryDirectory<'a> {
    /// The first agent of the config with this directory.
    pub first: &'a str,
    /// The other agent.
    pub second: &'a str,
    /// The directory.
    pub directory: &'a str,
}

impl fmt::Display for SharedEntryDirectory<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SharedEntryDirectory {
            first,
            second,
            directory,
        } = self;
        write!(
            f,
            "agents `{first}` and `{second}` share the archive_subdir `{directory}`"
        )
    }
}

/// Returns each agent that has the directory of an earlier one, in the order of the config.
pub fn shared_entry_directories<'a>(
    agents: impl IntoIterator<Item = &'a Agent>,
) -> Vec<SharedEntryDirectory<'a>> {
    let mut owners: HashMap<&str, &str> = HashMap::new();
    let shared = agents.into_iter().filter_map(|agent| {
        let (second, directory) = (agent.name.as_str(), agent.archive_subdir.as_str());
        let first = *owners.entry(directory).or_insert(second);
        (first != second).then_some(SharedEntryDirectory {
            first,
            second,
            directory,
        })
    });
    shared.collect()
}
