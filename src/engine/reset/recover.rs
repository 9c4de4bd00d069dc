//! The record of a transaction, and putting right what an interrupted run left.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Run;
use crate::archive::{EntryKind, OWN, Written};
use crate::config::Agent;
use crate::digest::{Digest, Hasher};
use crate::durable::NewFile;
use crate::engine::ledger::{Act, Event, Outcome, Standing};
use crate::error::{Error, Kind, PathContext, Result};
use crate::transport::{Cause, Folder, Object, Settled};

/// The record of a transaction: what an interrupted run left, and what it was
/// about. `<archive_dir>/.shepherd/tx/AGENT.RANDOM.json`, gone when its last
/// displaced file is settled. A writer that never closes an old file keeps one
/// record alive and holds up no later run.
#[derive(Serialize, Deserialize)]
pub(super) struct Transaction {
    pub(super) event: Event,
    pub(super) memory: PathBuf,
    pub(super) staged: String,
    /// Inode of the file that stood there before; 0 where unknown.
    pub(super) inode: u64,
    /// Digests of contents that are archived already.
    pub(super) known: Vec<Digest>,
}

impl Run<'_> {
    /// Settles one displaced file; contents that are not `known` get an entry.
    pub(super) fn settle_file(
        &self,
        agent: &Agent,
        folder: &dyn Folder,
        name: &str,
        known: &[Digest],
        late: &mut Vec<Written>,
    ) -> Result<Settled, Error> {
        let archive = self.engine.archive();
        let now = self.engine.clock().now();
        let settled = folder.settle(name, &mut |read| {
            let mut hasher = Hasher::default();
            read(&mut |bytes| {
                hasher.update(bytes);
                Ok(())
            })?;
            let digest = hasher.finish();
            if known.contains(&digest) || late.iter().any(|written| written.digest == digest) {
                return Ok(());
            }
            let mut draft = archive.begin(Path::new(&agent.archive_subdir))?;
            read(&mut |bytes| draft.write(bytes))?;
            late.push(draft.finish(EntryKind::Late, now)?);
            Ok(())
        })?;
        Ok(settled)
    }

    /// Whether the memory begins with what a run installed, read anew.
    pub(super) fn read_back(&self, folder: &dyn Folder, event: &Event) -> Result<bool, Error> {
        let Some(Standing::File { sha256, size, .. }) = event.after else {
            return Ok(folder.look()? == Object::Absent);
        };
        let (mut hasher, mut left) = (Hasher::default(), size);
        if !matches!(folder.look()?, Object::File(_)) {
            return Ok(false);
        }
        let read = folder.read(&mut |bytes| {
            let count = left.min(bytes.len() as u64);
            hasher.update(&bytes[..count as usize]);
            left -= count;
            Ok(())
        });
        match read {
            Ok(_) => Ok(left == 0 && hasher.finish() == sha256),
            Err(error) if error.cause == Cause::Moved => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Step 1: looks what interrupted runs left, and puts it right. Under the
    /// agent's lock.
    pub(super) fn recover(&mut self, agent: &Agent) -> Result<(), Error> {
        for record in self.transactions(agent)? {
            self.recover_one(agent, &record)?;
        }
        Ok(())
    }

    pub(super) fn recover_one(&mut self, agent: &Agent, record: &Path) -> Result<(), Error> {
        let text = std::fs::read(record).path("read", record)?;
        let transaction: Transaction = serde_json::from_slice(&text).map_err(|error| {
            let message = format!("{} is no transaction record: {error}", record.display());
            Error::new(Kind::Integrity, message).hint(
                "it names what an interrupted run left in the agent's folder: archive the \
                 .shepherd-* files there by hand, then delete the record",
            )
        })?;
        let folder = match self.engine.transport().open(&transaction.memory) {
            Err(error) if error.cause == Cause::NoFolder => {
                self.say(&format!(
                    "{}: the folder in which run {} was interrupted is not there now",
                    agent.name, transaction.event.run
                ));
                // It may be back later, with what was displaced in it.
                return Ok(());
            }
            folder => folder?,
        };
        let Transaction {
            mut event,
            staged,
            inode,
            mut known,
            ..
        } = transaction;
        let own = event.run == self.id;
        let recorded = self.engine.records()?.iter().any(|record| {
            let past = &record.what;
            (&past.run, &past.agent) == (&event.run, &event.agent)
                && (&past.before, &past.after) == (&event.before, &event.after)
        });
        let new = event.after.as_ref().and_then(Standing::digest);
        let is_new = |name: &str| match new {
            Some(new) => folder.holds(name, new),
            None => Ok(None),
        };
        if !recorded
            && let Some(new) = is_new(&staged)?
            && folder.look()? == Object::Absent
        {
            // Taken away, and interrupted before the new file took its place.
            folder.swap(&staged, new)?;
        }
        // The name holds the new file before the swap, the old one after it.
        let swapped = recorded
            || match folder.stands(&staged)? {
                true => is_new(&staged)?.is_none(),
                false => match folder.look()? {
                    // The notes below it do not make the old file a new one.
                    Object::File(file) if inode != 0 && file.stamp.inode == inode => false,
                    _ => self.read_back(folder.as_ref(), &event)?,
                },
            };
        folder.remove_unfinished(&staged)?;
        known.extend(new);
        let (mut left, mut lost) = (Vec::new(), Vec::new());
        for name in folder.displaced_names(&staged)? {
            let mut late = Vec::new();
            let settled = self.settle_file(agent, folder.as_ref(), &name, &known, &mut late)?;
            known.extend(late.iter().map(|written| written.digest));
            event.late.extend(late);
            match settled {
                Settled::Open => left.push(name),
                Settled::Lost(error) => lost.push(error.to_string()),
                Settled::Odd(odd) if !matches!(event.before, Some(Standing::Odd(_))) => {
                    event.late.push(self.describe(agent, &odd)?);
                }
                _ => {}
            }
        }
        if !left.is_empty() {
            self.say(&format!(
                "{}: a writer still has {} open, which run {} displaced; the next run settles it",
                agent.name,
                left.join(", "),
                event.run
            ));
        }
        let (note, tell) = match (recorded, swapped) {
            (true, _) => ("settled what this run displaced", !event.late.is_empty()),
            (false, true) => (
                "interrupted after the memory was replaced; finished since",
                true,
            ),
            (false, false) => (
                "interrupted before the memory was replaced",
                !event.late.is_empty() || !own && left.is_empty(),
            ),
        };
        if recorded || !swapped && own {
            event.act = Act::Repair;
        }
        if !swapped {
            event.after = None;
            event.outcome = match own {
                true => Outcome::Ok,
                false => Outcome::Failed,
            };
        }
        if tell || !lost.is_empty() {
            lost.insert(0, note.to_string());
            let note = lost.join("; ");
            self.say(&format!("{}: run {}: {note}", agent.name, event.run));
            event.note = Some(note);
            self.engine
                .book()
                .ledger
                .append(vec![event], self.engine.clock())?;
        }
        if left.is_empty() {
            self.end_transaction(record);
        }
        Ok(())
    }

    /// The transaction records of an agent: what its runs left unsettled.
    pub(super) fn transactions(&self, agent: &Agent) -> Result<Vec<PathBuf>, Error> {
        let path = self.engine.archive().own("tx");
        let items = match std::fs::read_dir(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            items => items.path("list", &path)?,
        };
        // A name of an agent has no dot.
        let prefix = format!("{}.", agent.name);
        let mut records = Vec::new();
        for item in items {
            let name = item.path("list", &path)?.file_name();
            if name.to_string_lossy().starts_with(&prefix) {
                records.push(path.join(name));
            }
        }
        records.sort();
        Ok(records)
    }

    pub(super) fn write_transaction(
        &self,
        agent: &Agent,
        transaction: &Transaction,
    ) -> Result<PathBuf, Error> {
        let archive = self.engine.archive();
        let folder = Arc::new(archive.folder(&Path::new(OWN).join("tx"))?);
        let path = archive.own("tx");
        let text = serde_json::to_vec(transaction).map_err(|error| {
            Error::new(
                Kind::Internal,
                format!("cannot write a transaction: {error}"),
            )
        })?;
        let mut file = NewFile::create(&folder, &path, archive.file_mode())?;
        file.write(&text)?;
        let name = format!("{}{}.json", agent.name, transaction.staged);
        if !file.link(name.as_ref())? {
            let message = format!("{} exists already", path.join(name).display());
            return Err(Error::new(Kind::Internal, message));
        }
        rustix::fs::fsync(&*folder).path("sync the folder", &path)?;
        Ok(path.join(name))
    }

    pub(super) fn end_transaction(&mut self, record: &Path) {
        if let Err(error) = std::fs::remove_file(record) {
            self.say(&Error::io("remove", record, &error).to_string());
        }
    }
}
