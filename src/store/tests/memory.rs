//! A store in memory, for the contract tests: it shows what a store does that is not about files.

mod entries;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::base::digest::Digest;
use crate::base::durable::UnsyncedObject;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::moment::Zone;
use crate::store::agent_history::AgentHistory;
use crate::store::controller::Controller;
use crate::store::holds::{Hold, HoldLock, Holds};
use crate::store::journal::{Journal, JournalRecord, Journals, Transaction};
use crate::store::lease::{
    HeldLock, Lease, LeaseSurvey, Leases, LockHolder, describe_holder, describe_lock,
};
use crate::store::ledger::{
    Ledger, LedgerCheck, LedgerLine, LedgerScan, LineProblem, RecordTimes, ReverseScan,
};
use crate::store::observation::Observation;
use crate::store::observations::{KnownState, Observations, SavedFleet, StateChange, StateNote};
use crate::store::record::{LedgerPosition, LedgerRecord, RunEvent};
use crate::store::record_line::RecordSummary;
use crate::store::versions::{StoredVersion, VersionDeletion, VersionDraft, Versions};
use crate::transport::Stamp;

/// What all handles of a store share.
#[derive(Default)]
struct Content {
    documents: HashMap<Hold, Vec<u8>>,
    locked: HashMap<Hold, LockHolder>,
    journals: BTreeMap<PathBuf, Vec<u8>>,
    grants: HashMap<String, (u64, LockHolder)>,
    last_token: u64,
    lines: Vec<Vec<u8>>,
    known: HashMap<String, KnownState>,
    changes: Vec<StateChange>,
    fleet: Vec<u8>,
    versions: BTreeMap<Digest, (Vec<u8>, u64)>,
    stores: u64,
    last_check: Option<i64>,
    entries: entries::StoredEntries,
}

/// A store in memory; clones share it.
#[derive(Clone)]
pub(crate) struct MemoryStore {
    content: Arc<Mutex<Content>>,
    controller: Arc<Controller>,
    /// Who takes locks through this handle.
    holder: LockHolder,
}

impl MemoryStore {
    pub fn new(controller: &Arc<Controller>, holder: LockHolder) -> MemoryStore {
        MemoryStore {
            content: Arc::default(),
            controller: Arc::clone(controller),
            holder,
        }
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap()
    }

    /// Appends a record to the ledger.
    fn append(&self, event: RunEvent) -> Result<()> {
        let mut content = self.content();
        let at = end_of(&content.lines);
        let (_, line) = LedgerRecord::new(event, at, self.holder.since, None)?;
        content.lines.push(line);
        Ok(())
    }

    /// Replaces a text in the lines of the ledger.
    pub fn replace_in_records(&self, from: &str, to: &str) {
        for line in &mut self.content().lines {
            *line = str::from_utf8(line).unwrap().replace(from, to).into_bytes();
        }
    }

    /// Takes an agent away from its holder, and gives it to another.
    pub fn take_over(&self, agent: &str) {
        let mut content = self.content();
        content.last_token += 1;
        let grant = (content.last_token, self.holder.clone());
        content.grants.insert(agent.to_string(), grant);
    }
}

struct MemoryHold {
    store: MemoryStore,
    hold: Hold,
}

impl Drop for MemoryHold {
    fn drop(&mut self) {
        self.store.content().locked.remove(&self.hold);
    }
}

impl Holds for MemoryStore {
    fn read(&self, hold: Hold) -> Result<Option<Vec<u8>>> {
        Ok(self.content().documents.get(&hold).cloned())
    }

    fn lock(&self, hold: Hold) -> Result<Box<dyn HoldLock + '_>> {
        let mut content = self.content();
        if let Some(holder) = content.locked.get(&hold) {
            let holder = describe_holder(Some(holder), Zone::UTC);
            return Err(Error::new(ErrorKind::Busy, format!("held by {holder}")));
        }
        content.locked.insert(hold, self.holder.clone());
        Ok(Box::new(MemoryHold {
            store: self.clone(),
            hold,
        }))
    }

    fn holder(&self, hold: Hold) -> Option<Option<LockHolder>> {
        self.content().locked.get(&hold).cloned().map(Some)
    }

    fn location(&self, hold: Hold) -> PathBuf {
        PathBuf::from(format!("{hold:?}"))
    }
}

impl HoldLock for MemoryHold {
    fn read(&self) -> Result<Option<Vec<u8>>> {
        self.store.read(self.hold)
    }

    fn replace(&mut self, text: Option<&[u8]>) -> Result<()> {
        let mut content = self.store.content();
        match text {
            Some(text) => content.documents.insert(self.hold, text.to_vec()),
            None => content.documents.remove(&self.hold),
        };
        Ok(())
    }
}

struct MemoryJournal {
    store: MemoryStore,
    path: PathBuf,
}

impl Journals for MemoryStore {
    fn list(&self) -> Result<Vec<(String, PathBuf)>> {
        let content = self.content();
        let named = |path: &PathBuf| {
            let agent = path.to_str()?.split('.').next()?.to_string();
            Some((agent, path.clone()))
        };
        Ok(content.journals.keys().filter_map(named).collect())
    }

    fn text(&self, journal: &Path) -> Result<Option<Vec<u8>>> {
        Ok(self.content().journals.get(journal).cloned())
    }

    fn create(
        &self,
        agent: &str,
        transaction: &Transaction,
    ) -> Result<(Box<dyn Journal>, Vec<UnsyncedObject>)> {
        let name = format!("{agent}{}.json", transaction.files[0].staged_name);
        let path = PathBuf::from(name);
        let text = serde_json::to_vec(transaction).unwrap();
        self.content().journals.insert(path.clone(), text);
        Ok((self.open(&path)?, Vec::new()))
    }

    fn open(&self, journal: &Path) -> Result<Box<dyn Journal>> {
        Ok(Box::new(MemoryJournal {
            store: self.clone(),
            path: journal.to_path_buf(),
        }))
    }

    fn remove(&self, journal: &Path) -> Result<()> {
        self.content().journals.remove(journal);
        Ok(())
    }
}

impl Journal for MemoryJournal {
    fn path(&self) -> &Path {
        &self.path
    }

    fn append(&self, record: &JournalRecord) -> Result<()> {
        let mut content = self.store.content();
        let text = content.journals.get_mut(&self.path).unwrap();
        text.push(b'\n');
        serde_json::to_writer(text, record).unwrap();
        Ok(())
    }

    fn unsynced(&self) -> Option<UnsyncedObject> {
        None
    }
}

#[derive(Debug)]
struct MemoryLease {
    content: Arc<Mutex<Content>>,
    agent: String,
    token: u64,
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the content of a store")
    }
}

impl MemoryLease {
    fn is_newest(&self) -> bool {
        let content = self.content.lock().unwrap();
        let newest = content.grants.get(&self.agent);
        newest.is_some_and(|(token, _)| *token == self.token)
    }
}

impl Drop for MemoryLease {
    fn drop(&mut self) {
        if self.is_newest() {
            self.content.lock().unwrap().grants.remove(&self.agent);
        }
    }
}

impl Leases for MemoryStore {
    fn acquire(&self, agent: &str, holder: &LockHolder) -> Result<Arc<dyn Lease>> {
        let mut content = self.content();
        if let Some((_, holder)) = content.grants.get(agent) {
            let message = describe_lock(Some(holder), holder.since, Zone::UTC);
            return Err(Error::new(ErrorKind::Busy, message));
        }
        content.last_token += 1;
        let token = content.last_token;
        let grant = (token, holder.clone());
        content.grants.insert(agent.to_string(), grant);
        Ok(Arc::new(MemoryLease {
            content: Arc::clone(&self.content),
            agent: agent.to_string(),
            token,
        }))
    }

    fn find_held(&self, agent: &str) -> Option<HeldLock> {
        let content = self.content();
        let (_, holder) = content.grants.get(agent)?;
        Some(HeldLock {
            agent: agent.to_string(),
            holder: Some(holder.clone()),
        })
    }

    fn survey(&self) -> Box<dyn LeaseSurvey> {
        Box::new(self.clone())
    }

    fn watched_path(&self, agent: &str) -> PathBuf {
        PathBuf::from(agent)
    }
}

impl Lease for MemoryLease {
    fn token(&self) -> u64 {
        self.token
    }

    fn check(&self) -> Result<()> {
        if self.is_newest() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Busy, "another run has the agent"))
    }
}

impl LeaseSurvey for MemoryStore {
    fn find_held(&self, agent: &str) -> Option<HeldLock> {
        (self as &dyn Leases).find_held(agent)
    }

    fn stamp(&self, agent: &str) -> Option<Stamp> {
        let token = self.content().grants.get(agent).map(|grant| grant.0)?;
        Some(stamp_of(token))
    }
}

impl Observations for MemoryStore {
    fn known_states(&self, agents: &[&str]) -> Vec<Option<KnownState>> {
        let content = self.content();
        let known = agents.iter().map(|agent| content.known.get(*agent));
        known.map(Option::<&KnownState>::copied).collect()
    }

    fn note(&self, notes: &[StateNote]) {
        let mut content = self.content();
        for note in notes {
            let known = content.known.get(note.agent()).copied();
            let Some(effect) = note.effect_on(known) else {
                continue;
            };
            match effect.known {
                Some(known) => content.known.insert(note.agent().to_string(), known),
                None => content.known.remove(note.agent()),
            };
            content.changes.extend(effect.change);
        }
    }

    fn changes(&self) -> Result<Vec<StateChange>> {
        Ok(self.content().changes.clone())
    }

    fn save_fleet(&self, seen: &mut dyn Iterator<Item = &Observation>) -> Result<()> {
        let seen: Vec<&Observation> = seen.collect();
        self.content().fleet = serde_json::to_vec(&seen).unwrap();
        Ok(())
    }

    fn load_fleet(&self) -> SavedFleet {
        let observations = serde_json::from_slice(&self.content().fleet);
        SavedFleet {
            observations: observations.unwrap_or_default(),
            is_own: true,
        }
    }

    fn watched_path(&self) -> PathBuf {
        PathBuf::from("states")
    }
}

/// A stamp of something that changes with a number.
fn stamp_of(number: u64) -> Stamp {
    Stamp {
        size: number,
        modified: 0,
        changed: 0,
        inode: 0,
    }
}

struct MemoryDraft {
    store: MemoryStore,
    digest: Digest,
    bytes: Vec<u8>,
}

impl VersionDraft for MemoryDraft {
    fn unsynced_content(&self) -> Option<UnsyncedObject> {
        None
    }

    fn assign_name(self: Box<Self>) -> Result<()> {
        let mut content = self.store.content();
        content.stores += 1;
        let stores = content.stores;
        content.versions.insert(self.digest, (self.bytes, stores));
        Ok(())
    }
}

impl Versions for MemoryStore {
    fn start_version(&self, digest: Digest, bytes: &[u8]) -> Result<Option<Box<dyn VersionDraft>>> {
        let mut content = self.content();
        content.stores += 1;
        let stores = content.stores;
        if let Some(stored) = content.versions.get_mut(&digest) {
            stored.1 = stores;
            return Ok(None);
        }
        Ok(Some(Box::new(MemoryDraft {
            store: self.clone(),
            digest,
            bytes: bytes.to_vec(),
        })))
    }

    fn open_unsynced(&self, _version: Digest) -> Result<Vec<UnsyncedObject>> {
        Ok(Vec::new())
    }

    fn read_version(&self, digest: Digest) -> Result<Arc<Vec<u8>>> {
        let content = self.content();
        let stored = content.versions.get(&digest);
        let stored = stored.map(|(bytes, _)| Arc::new(bytes.clone()));
        stored.ok_or_else(|| Error::new(ErrorKind::Host, "it is not stored"))
    }

    fn digest_version(&self, digest: Digest) -> Result<Option<Digest>> {
        let content = self.content();
        let stored = content.versions.get(&digest);
        Ok(stored.map(|(bytes, _)| Digest::of(bytes)))
    }

    fn digests(&self) -> Result<Vec<Digest>> {
        Ok(self.content().versions.keys().copied().collect())
    }

    fn list(&self) -> Result<Vec<StoredVersion>> {
        let content = self.content();
        let listed = content
            .versions
            .iter()
            .map(|(digest, (bytes, stores))| StoredVersion {
                digest: *digest,
                size: bytes.len() as u64,
                disk_bytes: bytes.len() as u64,
                stored_at: 0,
                stamp: stamp_of(*stores),
            });
        Ok(listed.collect())
    }

    fn location(&self, digest: Digest) -> PathBuf {
        PathBuf::from(digest.to_string())
    }

    fn lock_for_deletion(&self) -> Result<Box<dyn VersionDeletion + '_>> {
        Ok(Box::new(self.clone()))
    }

    fn note_check(&self) {
        self.content().last_check = Some(self.holder.since.timestamp());
    }

    fn last_check(&self) -> Option<i64> {
        self.content().last_check
    }
}

impl VersionDeletion for MemoryStore {
    fn delete(&self, version: &StoredVersion) -> Result<bool> {
        let mut content = self.content();
        let now = content.versions.get(&version.digest).map(|stored| stored.1);
        if now.is_some_and(|stores| stamp_of(stores) != version.stamp) {
            return Ok(false);
        }
        content.versions.remove(&version.digest);
        Ok(true)
    }
}

/// The ledger of a store in memory, as one process has it.
pub(crate) struct MemoryLedger {
    store: MemoryStore,
    /// How many records were there at the last call of [`Ledger::take_recorded_agents`].
    taken: Mutex<Option<usize>>,
}

impl MemoryLedger {
    pub fn new(store: &MemoryStore) -> MemoryLedger {
        MemoryLedger {
            store: store.clone(),
            taken: Mutex::default(),
        }
    }

    fn lines(&self) -> Vec<Vec<u8>> {
        self.store.content().lines.clone()
    }

    fn records(&self) -> Vec<LedgerRecord> {
        let lines = self.lines().into_iter();
        lines
            .map(|line| LedgerRecord::parse(&line).unwrap())
            .collect()
    }
}

/// Returns the position at which the record with this number ends, and its line.
fn position_behind(seq: usize, line: &[u8]) -> LedgerPosition {
    LedgerPosition {
        seq: seq as u64,
        line_digest: Digest::of(line),
        ..LedgerPosition::default()
    }
}

fn end_of(lines: &[Vec<u8>]) -> LedgerPosition {
    let last = lines.last().map(|line| position_behind(lines.len(), line));
    last.unwrap_or_default()
}

fn chain_error() -> Error {
    Error::new(ErrorKind::Integrity, "it does not continue the line before")
}

impl Ledger for MemoryLedger {
    fn append(&self, events: Vec<RunEvent>) -> Result<()> {
        events.into_iter().try_for_each(|it| self.store.append(it))
    }

    fn check_writable(&self) -> Result<()> {
        Ok(())
    }

    fn head(&self) -> Result<(u64, Digest)> {
        Ok(self.known_head())
    }

    fn known_head(&self) -> (u64, Digest) {
        end_of(&self.store.content().lines).head()
    }

    fn durable_head(&self) -> Option<(u64, Digest)> {
        Some(self.known_head()).filter(|head| head.0 > 0)
    }

    fn known_history(&self, agent: &str) -> Result<AgentHistory> {
        let mut history = AgentHistory::default();
        for record in self.records() {
            let at = LedgerPosition::default();
            match record.event.view_of_agent(agent) {
                Some(view) if record.event.unchanged.is_some() => {
                    history.add_unchanged(&view, record.time, at);
                }
                Some(event) => history.add_event(&event, record.time, at),
                None => {}
            }
        }
        Ok(history)
    }

    fn take_recorded_agents(&self) -> Result<Option<HashSet<String>>> {
        let records = self.records();
        let taken = self.taken.lock().unwrap().replace(records.len());
        let agents = |count| {
            let events = records.iter().skip(count).map(|record| &record.event);
            events
                .flat_map(RunEvent::agents)
                .map(str::to_string)
                .collect()
        };
        Ok(taken.map(agents))
    }

    fn record_times(&self) -> Result<RecordTimes> {
        let recent: Vec<_> = self.records().iter().map(|record| record.time).collect();
        let latest = recent.iter().max().map(|latest| {
            let place = recent.iter().position(|time| time == latest).unwrap();
            (place as u64 + 1, *latest)
        });
        Ok(RecordTimes { latest, recent })
    }

    fn scan(&self, from: LedgerPosition) -> Result<Option<Box<dyn LedgerScan>>> {
        let lines = self.lines();
        if lines.is_empty() {
            return Ok(None);
        }
        let position = from;
        Ok(Some(Box::new(MemoryScan { lines, position })))
    }

    fn scan_back_to(&self, seq: u64) -> Result<Box<dyn ReverseScan>> {
        let lines = self.lines();
        let end = end_of(&lines);
        Ok(Box::new(MemoryReverseScan {
            lines,
            end,
            next: end,
            after_seq: seq,
        }))
    }

    fn read_record(&self, position: LedgerPosition) -> Result<LedgerRecord> {
        let lines = self.lines();
        let line = &lines[position.seq as usize - 1];
        if Digest::of(line) != position.line_digest {
            return Err(chain_error());
        }
        Ok(LedgerRecord::parse(line).unwrap())
    }

    fn undone_runs(&self, from: LedgerPosition) -> Result<HashSet<String>> {
        let records = self.records().into_iter().skip(from.seq as usize);
        Ok(records
            .filter_map(|record| record.event.undone_run)
            .collect())
    }

    fn check(&self) -> Result<LedgerCheck> {
        Ok(LedgerCheck::default())
    }

    fn archive_id(&self) -> Result<Option<Digest>> {
        Ok(self.lines().first().map(|line| Digest::of(line)))
    }

    fn compact(&self) -> Result<Option<String>> {
        Ok(None)
    }

    fn renew_reserve(&self) {}

    fn location(&self) -> PathBuf {
        PathBuf::from("ledger")
    }
}

struct MemoryScan {
    lines: Vec<Vec<u8>>,
    position: LedgerPosition,
}

impl LedgerScan for MemoryScan {
    fn position(&self) -> LedgerPosition {
        self.position
    }

    fn next_line(&mut self) -> Result<Option<LedgerLine>> {
        let Some(line) = self.lines.get(self.position.seq as usize) else {
            return Ok(None);
        };
        let record = LedgerRecord::parse(line).unwrap();
        let number = self.position.seq + 1;
        let is_next = record.previous_digest == self.position.line_digest;
        self.position = position_behind(number as usize, line);
        Ok(Some(LedgerLine {
            number,
            record: Some(record),
            problem: (!is_next).then(|| LineProblem {
                description: format!("line {number}"),
                restore_hint: None,
                error: chain_error(),
            }),
        }))
    }

    fn skip_unreadable(&mut self) -> bool {
        false
    }

    fn trailing_bytes(&self) -> Result<u64> {
        Ok(0)
    }
}

struct MemoryReverseScan {
    lines: Vec<Vec<u8>>,
    end: LedgerPosition,
    /// Where the next record ends.
    next: LedgerPosition,
    after_seq: u64,
}

impl ReverseScan for MemoryReverseScan {
    fn take_unread(&mut self) -> Option<Error> {
        None
    }

    fn end(&self) -> LedgerPosition {
        self.end
    }

    fn next_readable(
        &mut self,
        is_wanted: &mut dyn FnMut(&RecordSummary<'_>) -> bool,
    ) -> Result<Option<(LedgerPosition, LedgerRecord)>> {
        while self.next.seq > self.after_seq {
            let at = self.next;
            let line = &self.lines[at.seq as usize - 1];
            if Digest::of(line) != at.line_digest {
                return Err(chain_error());
            }
            let summary: RecordSummary<'_> = serde_json::from_slice(line).unwrap();
            self.next = LedgerPosition {
                seq: at.seq - 1,
                line_digest: summary.previous_digest,
                ..LedgerPosition::default()
            };
            if is_wanted(&summary) {
                return Ok(Some((at, LedgerRecord::parse(line).unwrap())));
            }
        }
        Ok(None)
    }
}
