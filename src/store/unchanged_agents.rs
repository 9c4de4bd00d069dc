//! The list of unchanged agents in the record of a run.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::base::digest::Digest;

/// Bytes that an agent's details take beside their values: quotes, commas, names of fields.
const DETAILS_OVERHEAD_BYTES: usize = 80;

/// The agents that a run found unchanged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UnchangedAgents {
    /// Why nothing was to be done, for all agents whose details give no other reason.
    pub note: String,
    /// The agents' names, by the host of their memory, `local` for this machine.
    pub agents: BTreeMap<String, Vec<String>>,
    /// What the records of single agents would say beyond that.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub details: BTreeMap<String, UnchangedDetails>,
}

/// What is to be recorded of one unchanged agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UnchangedDetails {
    /// Why nothing was to be done, where that is not the common reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The host with user and port, where no earlier record has the address of the memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<String>,
    /// The path of the memory, where no earlier record has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<PathBuf>,
    /// The version that the memory was found with, where no earlier record names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Digest>,
}

impl UnchangedDetails {
    /// Returns about how many bytes they take in a record.
    pub(crate) fn estimated_bytes(&self) -> usize {
        let texts = self.note.iter().chain(&self.login).map(String::len);
        let memory = self.memory.iter().map(|path| path.as_os_str().len());
        let baseline = self.baseline.iter().map(|_| 64);
        let length: usize = texts.chain(memory).chain(baseline).sum();
        DETAILS_OVERHEAD_BYTES + length
    }
}
