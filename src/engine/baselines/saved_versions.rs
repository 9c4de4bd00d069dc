//! Versions of baselines that operators made with this program, as the ledger tells.
//!
//! A save vouches for a version only as far as for the text that it began with. A person who edits a file
//! that another program has changed saves the stranger's lines with his own, perhaps unseen: such a
//! version is not known here, whichever program saved it, until a seal accepts it by name.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError};

use super::accepted_seal::AcceptedSeal;
use crate::base::digest::Digest;
use crate::base::error::Result;
use crate::boundary::Baseline;
use crate::config::Agent;
use crate::engine::baselines::Baselines;
use crate::engine::baselines::catalog::SEALED_VERSION_NOTE;
use crate::lint;
use crate::store::agent_history::{AgentHistory, MAX_EARLIER_VERSIONS};
use crate::store::record::{FileState, Operation, Outcome, RunEvent};

/// Begins the note of a save with lines that another program wrote.
pub(in crate::engine) const MERGED_TEXT_NOTE: &str = "with lines of another program";

/// What operators sealed, saved and put back, for all baselines.
pub(in crate::engine) struct SavedVersions {
    template: Digest,
    baselines: HashMap<String, BaselineTrail>,
}

/// What the ledger tells of one baseline.
#[derive(Default)]
struct BaselineTrail {
    /// The version in the accepted seal.
    accepted: Option<Digest>,
    /// The version that was sealed last, as far as the events were followed.
    sealed: Option<Digest>,
    /// The version that was made from a known one, or put back, last since the last seal.
    last_saved: Option<Digest>,
    /// All versions that a seal ever listed.
    ever_sealed: HashSet<Digest>,
    /// All versions that were ever sealed or made from known ones, oldest first.
    known: Vec<Digest>,
    /// All versions that saves found or made, oldest first.
    saved: Vec<Digest>,
    /// The last edit of a sealed version, through all saves since.
    edit: Option<SealedEdit>,
}

/// An edit that began with the version that the seal listed then. Another program may have made that
/// seal, and no record has it.
#[derive(Clone, Copy)]
struct SealedEdit {
    base: Digest,
    saved: Digest,
}

impl BaselineTrail {
    /// Adds a known version as the newest one.
    fn add_known(&mut self, version: Digest) {
        add_newest(&mut self.known, version);
    }

    /// Adds a version that a seal lists as the newest known one.
    fn add_sealed(&mut self, version: Digest) {
        self.ever_sealed.insert(version);
        self.add_known(version);
    }

    /// Follows a change of the file to what it found and made.
    fn follow_save(&mut self, event: &RunEvent) {
        let before = event.change.before.as_ref().and_then(FileState::digest);
        let made = event.baseline.filter(|_| event.outcome == Outcome::Ok);
        for version in before.into_iter().chain(made) {
            add_newest(&mut self.saved, version);
        }
    }

    /// Whether an edit may begin with a version. Older ones were replaced for a reason: a user who can
    /// write `baseline_dir` can put one back.
    fn is_current(&self, version: Digest) -> bool {
        [self.accepted, self.sealed, self.last_saved].contains(&Some(version))
    }

    /// Follows an edit to its seal: an operator who seals what became of a version has accepted that
    /// version, too.
    fn follow_edit(&mut self, event: &RunEvent) {
        let before = event.change.before.as_ref().and_then(FileState::digest);
        match (event.operation, event.outcome, event.baseline) {
            (Operation::Save, Outcome::Ok, Some(saved)) => {
                let is_sealed = before.is_some() && before == event.sealed_version;
                let base = match self.edit {
                    Some(edit) if before == Some(edit.saved) => Some(edit.base),
                    _ => before.filter(|_| is_sealed),
                };
                self.edit = base.map(|base| SealedEdit { base, saved });
            }
            (Operation::Seal, _, sealed) => {
                let edit = self.edit.take();
                let edit = edit.filter(|edit| Some(edit.saved) == sealed);
                for version in edit.map(|edit| edit.base).into_iter().chain(sealed) {
                    self.add_sealed(version);
                }
            }
            _ => self.edit = None,
        }
    }

    /// Whether the accepted seal was made elsewhere, after the last one of the ledger. It is over what
    /// was saved here.
    fn is_sealed_elsewhere(&self) -> bool {
        self.accepted.is_some() && self.sealed.is_some() && self.accepted != self.sealed
    }
}

fn add_newest(versions: &mut Vec<Digest>, version: Digest) {
    versions.retain(|known| *known != version);
    versions.push(version);
}

impl SavedVersions {
    /// Whether lines of another program may be in a version that an edit begins with. Where no seal
    /// was ever made there is nothing to tell them by.
    pub fn is_foreign_base(&self, name: &str, version: Digest) -> bool {
        let trail = self.baselines.get(name);
        trail.is_some_and(|trail| !trail.known.is_empty() && !trail.is_current(version))
    }

    /// Whether lines of another program may be in a version that an operator chooses to put back.
    pub fn is_foreign_version(&self, name: &str, version: Digest) -> bool {
        let trail = self.baselines.get(name);
        trail.is_some_and(|trail| !trail.known.is_empty() && !trail.known.contains(&version))
    }

    /// Whether a seal ever listed a version of a baseline.
    pub fn has_been_sealed(&self, name: &str, version: Digest) -> bool {
        let trail = self.baselines.get(name);
        trail.is_some_and(|trail| trail.ever_sealed.contains(&version))
    }

    /// Whether a version is that which an operator saved or put back last. A version that was sealed
    /// over counts no longer.
    pub fn is_last_saved(&self, name: &str, version: Digest) -> bool {
        let trail = self.baselines.get(name);
        trail.is_some_and(|it| it.last_saved == Some(version) && !it.is_sealed_elsewhere())
    }

    /// Returns the versions of a baseline that operators made, newest first. Where it was never sealed,
    /// there is nothing to tell them from those of other programs.
    fn versions_newest_first(&self, name: &str) -> impl Iterator<Item = Digest> {
        let trail = self.baselines.get(name);
        let versions = trail.map_or(&[][..], |trail| match (trail.sealed, trail.accepted) {
            (None, None) => &trail.saved,
            _ => &trail.known,
        });
        versions.iter().rev().copied()
    }

    /// Follows the next event of a baseline. `is_before_seal`: it is older than the accepted seal.
    fn follow(&mut self, name: String, event: &RunEvent, is_before_seal: bool) {
        // It says what was left beside the file, and nothing of the file.
        if event.operation == Operation::Repair {
            return;
        }
        let trail = self.baselines.entry(name.clone()).or_default();
        trail.follow_edit(event);
        trail.follow_save(event);
        let is_made = event.outcome == Outcome::Ok && self.is_made_from_known(&name, event);
        let note = event.note.as_deref().unwrap_or_default();
        let is_made = is_made && !note.starts_with(MERGED_TEXT_NOTE);
        // The seal chooses its own version, and not the operator.
        let is_of_seal =
            event.operation == Operation::Restore && note.starts_with(SEALED_VERSION_NOTE);
        let trail = self.baselines.entry(name).or_default();
        if event.operation == Operation::Seal {
            trail.sealed = event.baseline;
        } else if let Some(version) = event.baseline.filter(|_| is_made) {
            trail.add_known(version);
        }
        let is_saved = is_made && !is_of_seal && !is_before_seal;
        trail.last_saved = event.baseline.filter(|_| is_saved);
    }

    /// Whether a save began with a current version, or a restore put a known one back. A save that
    /// created the file did if another baseline, or the template, has its text.
    fn is_made_from_known(&self, name: &str, event: &RunEvent) -> bool {
        let trail = self.baselines.get(name);
        let Some(version) = event.baseline else {
            return false;
        };
        match (event.operation, &event.change.before) {
            (Operation::Save, None | Some(FileState::Absent)) => {
                let mut all = self.baselines.values();
                version == self.template || all.any(|trail| trail.is_current(version))
            }
            (Operation::Save, Some(before)) => {
                let before = before.digest();
                before.is_some_and(|it| trail.is_some_and(|trail| trail.is_current(it)))
            }
            (Operation::Restore, _) => trail.is_some_and(|it| it.known.contains(&version)),
            _ => false,
        }
    }
}

impl Baselines {
    /// Reads from the ledger which versions of baselines are known. `accepted`: the seal whose lines
    /// the operator has accepted. Fewer are known if a segment cannot be read.
    ///
    /// # Errors
    /// The active file of the ledger cannot be read.
    pub(in crate::engine) fn saved_versions(
        &self,
        accepted: &AcceptedSeal,
    ) -> Result<SavedVersions> {
        let mut saved = SavedVersions {
            template: Digest::of(lint::TEMPLATE),
            baselines: HashMap::new(),
        };
        for name in accepted.seal.names() {
            let trail = saved.baselines.entry(name.to_string()).or_default();
            trail.accepted = accepted.seal.expected_digest(name);
            if let Some(version) = trail.accepted {
                trail.add_sealed(version);
            }
        }
        // A seal that was made elsewhere is in no record.
        let sealed_at = accepted.meta.as_ref().map(|meta| meta.time);
        let mut back = self.context.ledger().scan_backwards()?;
        let mut events = Vec::new();
        while let Some((_, record)) = back.next_readable(&mut |it| it.is_about_archive())? {
            let mut event = record.event;
            if let Some(name) = event.file.take() {
                events.push((name, event, Some(record.time) < sealed_at));
            }
        }
        for (name, event, is_before_seal) in events.into_iter().rev() {
            saved.follow(name, &event, is_before_seal);
        }
        Ok(saved)
    }

    /// Reads which versions of baselines are known, also where no seal can be read: then the records of
    /// earlier ones tell.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub(in crate::engine) fn known_versions(&self) -> Result<SavedVersions> {
        let accepted = self.accepted_seal().unwrap_or_default();
        self.saved_versions(&accepted)
    }

    pub(in crate::engine) fn load_version(
        &self,
        agent: &Agent,
        digest: Digest,
    ) -> Option<Baseline> {
        let bytes = self.context.baseline_versions().read_version(digest).ok()?;
        Some(agent.cut_baseline(bytes.to_vec()))
    }

    /// Returns the versions that an agent's memory may have, newest first: those that runs pushed or found
    /// in it, and before the first run those that operators made of its baseline.
    pub(in crate::engine) fn earlier_digests(
        &self,
        agent: &Agent,
        history: &AgentHistory,
    ) -> Vec<Digest> {
        let Some(name) = agent
            .baseline()
            .filter(|_| history.pushed_versions.is_empty())
        else {
            return history.pushed_versions.clone();
        };
        let head = self.context.ledger().known_head();
        let mut latest = self
            .latest_known
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match latest.as_mut() {
            Some((at, _)) if self.are_versions_unchanged(*at, head) => *at = head,
            _ => *latest = self.known_versions().ok().map(|known| (head, known)),
        }
        let known = latest.as_ref().map(|(_, known)| known);
        let versions = known
            .into_iter()
            .flat_map(|it| it.versions_newest_first(name));
        versions.take(MAX_EARLIER_VERSIONS).collect()
    }

    /// Returns whether no record between two heads of the ledger is about a baseline: a run appends
    /// many, and none of them makes a version known.
    fn are_versions_unchanged(&self, earlier: (u64, Digest), head: (u64, Digest)) -> bool {
        let has_change = || {
            let mut back = self.context.ledger().scan_back_to(earlier.0)?;
            back.next_matching(&mut |it| it.is_about_archive())
        };
        earlier == head || (earlier.0 < head.0 && matches!(has_change(), Ok(None)))
    }

    /// Loads [earlier versions](Self::earlier_digests) of an agent's baseline. A drifted memory is
    /// measured against the first: what was pushed last, or before the first run the current baseline.
    pub(in crate::engine) fn earlier_versions(
        &self,
        agent: &Agent,
        history: &AgentHistory,
        current: Option<&Arc<Baseline>>,
    ) -> Vec<Arc<Baseline>> {
        let is_first_run = history.pushed_versions.is_empty();
        let version = |digest: Digest| match current {
            Some(current) if current.digest() == digest => {
                (!is_first_run).then(|| Arc::clone(current))
            }
            _ => self.load_version(agent, digest).map(Arc::new),
        };
        let first = current.filter(|_| is_first_run).map(Arc::clone);
        let digests = self.earlier_digests(agent, history);
        first
            .into_iter()
            .chain(digests.into_iter().filter_map(version))
            .collect()
    }

    /// Returns the operator parts of a pushed version and of the current baseline of an agent;
    /// `None` if one of them cannot be read.
    pub fn rules_since(&self, agent: &str, version: Digest) -> Option<[Vec<u8>; 2]> {
        let agent = self.context.config().agent(agent)?;
        let old = self.load_version(agent, version)?;
        let new = self.baseline_cache().load(agent).ok()?;
        Some([&old, &new].map(|version| version.operator_part().to_vec()))
    }
}
