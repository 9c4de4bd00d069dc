//! Leases: who may act on an agent, one holder at a time.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use chrono::{DateTime, FixedOffset};
use serde::{Deserialize, Serialize};

use crate::base::error::Result;
use crate::base::moment::Zone;
use crate::base::quantity::describe_duration;
use crate::store::trigger::Trigger;
use crate::transport::Stamp;

/// The leases of a store.
pub trait Leases: Send + Sync {
    /// Grants an agent to a run, until the result is dropped.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`](crate::base::error::ErrorKind::Busy), naming the holder, when it is granted to
    /// another run; otherwise the store cannot be written.
    fn acquire(&self, agent: &str, holder: &LockHolder) -> Result<Arc<dyn Lease>>;

    /// Returns who has an agent; none when it is free. Takes nothing.
    fn find_held(&self, agent: &str) -> Option<HeldLock>;

    /// Starts to look at many agents.
    fn survey(&self) -> Box<dyn LeaseSurvey>;

    /// Returns a path that changes when an agent is granted and released, for watches.
    fn watched_path(&self, agent: &str) -> PathBuf;
}

impl dyn Leases + '_ {
    /// Returns whether a run has an agent.
    pub(crate) fn is_held(&self, agent: &str) -> bool {
        self.find_held(agent).is_some()
    }
}

/// A grant; dropping it gives it back.
pub trait Lease: fmt::Debug + Send + Sync {
    /// Its number, which rises with every grant of the agent after which its holder recorded something.
    fn token(&self) -> u64;

    /// Checks that it is still in force, before what it allows becomes visible to the agent.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`](crate::base::error::ErrorKind::Busy): another run may have the agent.
    fn check(&self) -> Result<()>;
}

/// A look at the leases of many agents.
pub trait LeaseSurvey: Send + Sync {
    /// As [`Leases::find_held`].
    fn find_held(&self, agent: &str) -> Option<HeldLock>;

    /// Returns a stamp that changes when the agent is granted or released; none where it was never
    /// granted.
    fn stamp(&self, agent: &str) -> Option<Stamp>;
}

/// An agent's lock that is not free.
#[derive(Clone, Debug)]
pub struct HeldLock {
    /// The agent.
    pub agent: String,
    /// Its holder; none for one that has not written who it is.
    pub holder: Option<LockHolder>,
}

/// Description of a lock's holder, as the holder wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockHolder {
    /// Process id.
    pub pid: u32,
    /// Name of the operator.
    pub user: String,
    /// Time of acquisition.
    pub since: DateTime<FixedOffset>,
    /// Id of the run.
    pub run: String,
    /// What started the run.
    pub trigger: Trigger,
    /// Name of its machine.
    pub host: String,
}

impl LockHolder {
    /// Returns how long the lock has been held at the time `now`, in seconds; 0 if the clock was set
    /// back.
    pub fn held_seconds(&self, now: DateTime<FixedOffset>) -> u64 {
        (now - self.since).num_seconds().max(0).unsigned_abs()
    }
}

/// Words how long a lock has been held at the time `now`, and by whom: "locked for 2 h 10 min by run
/// 5a10 of ops@build-1 (timer, process 4711, since 2026-03-14 01:00:06)". The duration comes first: a
/// narrow column cuts the end. It is left out below a minute: it would soon be wrong where the text
/// stays on a screen. `None` stands for a holder that has not written who it is.
pub fn describe_lock(
    holder: Option<&LockHolder>,
    now: DateTime<FixedOffset>,
    zone: Zone,
) -> String {
    let Some(holder) = holder else {
        return "locked by another run".to_string();
    };
    let duration = match holder.held_seconds(now) {
        ..60 => String::new(),
        seconds => format!("for {} ", describe_duration(seconds)),
    };
    format!(
        "locked {duration}by run {} of {}@{} ({}, process {}, since {})",
        holder.run,
        holder.user,
        holder.host,
        holder.trigger.as_str(),
        holder.pid,
        zone.format_second(holder.since)
    )
}

/// Words the process that holds a lock: "process 4711 of root since 2026-03-14 01:00:06". `None`
/// stands for a holder that has not written who it is.
pub fn describe_holder(holder: Option<&LockHolder>, zone: Zone) -> String {
    let Some(holder) = holder else {
        return "another process".to_string();
    };
    let since = zone.format_second(holder.since);
    let (pid, user) = (holder.pid, &holder.user);
    format!("process {pid} of {user} since {since}")
}
