//! The retention overview: what the archive holds for each agent, what expires now, why the rest
//! stays and until when, and what a shorter retention time would free. Changes nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use chrono::{DateTime, FixedOffset, NaiveDateTime};
use serde::{Serialize, Serializer};

use super::assessment::{AssessedEntry, Assessment, Depth, KeepReason, Verdict};
use super::dates::{RetentionDates, days, describe_days};
use super::scope::RetentionScope;
use super::unused_versions::{UnusedVersions, VersionCandidates};
use crate::archive::{self, DiskSpace, EntryKind, agent_directory_of, format_stamp};
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::untrusted::serialize_path;
use crate::engine::runs::Retention;
use crate::store::record::Outcome;

/// Retention times, in days, whose gain is shown if they are shorter than the configured one.
const SHORTER_DAYS: [u32; 8] = [365, 180, 90, 21, 14, 7, 3, 1];

/// What retention would delete now, and what stays.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RetentionOverview {
    /// `archive_dir`.
    #[serde(serialize_with = "serialize_path")]
    pub archive: PathBuf,
    /// `archive_retention_days`.
    pub days: u32,
    /// The present time.
    pub time: DateTime<FixedOffset>,
    /// Time of the earlier run that confirms the date; `None` if no run does: then nothing expires.
    pub confirmed: Option<DateTime<FixedOffset>>,
    /// Why the present date is not confirmed, if entries wait for that.
    pub unconfirmed: Option<String>,
    /// The entries of each agent in each directory, those that take most of the disk first. Agents
    /// of the config without entries are included.
    pub agents: Vec<AgentRetention>,
    /// What shorter retention times would delete in addition, the longest first.
    pub shorter: Vec<ShorterRetention>,
    /// The baseline versions; `None` if only some agents were asked for.
    pub versions: Option<VersionRetention>,
    /// Space on the archive's file system; `None` if it does not say.
    pub disk: Option<DiskSpace>,
    /// Lines of the pins file that name no entry, as sentences.
    pub unclear_pins: Vec<String>,
    /// Directories of entries that cannot be read: everything in them stays.
    #[serde(skip)]
    pub unreadable: Vec<Error>,
}

/// The entries of an agent in one directory.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AgentRetention {
    /// The agent; `None` if neither the ledger nor the config says whose the entries are.
    pub agent: Option<String>,
    /// Whether the agent is in the config.
    pub configured: bool,
    /// The directory below `archive_dir`; empty for `archive_dir` itself.
    #[serde(serialize_with = "serialize_path")]
    pub directory: PathBuf,
    /// Number of entries.
    pub entries: usize,
    /// Their bytes.
    pub bytes: u64,
    /// The bytes that they take on the disk.
    pub disk_bytes: u64,
    /// Local time in the name of the oldest one.
    #[serde(serialize_with = "serialize_stamp")]
    pub oldest: Option<NaiveDateTime>,
    /// Local time in the name of the newest one.
    #[serde(serialize_with = "serialize_stamp")]
    pub newest: Option<NaiveDateTime>,
    /// Those that expire now, oldest first.
    pub expiring: Vec<ExpiringEntry>,
    /// Bytes of these.
    pub expiring_bytes: u64,
    /// The bytes that these take on the disk.
    pub expiring_disk_bytes: u64,
    /// The others, by the reason that keeps them.
    pub kept: Vec<KeptEntries>,
    /// When the next of them becomes older than the retention time; the first run a day later may
    /// delete it.
    pub next_expiry: Option<DateTime<FixedOffset>>,
    /// Why the agent counts as failed, if it does: its entries stay until a run succeeds.
    pub failure: Option<String>,
}

/// An entry that expires now.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct ExpiringEntry {
    /// Path below `archive_dir`.
    #[serde(serialize_with = "serialize_path")]
    pub path: PathBuf,
    /// Its content, by its name.
    pub kind: EntryKind,
    /// Size in bytes.
    pub size: u64,
    /// The latest of the times of its name, its file and its record, which is older than the
    /// retention time.
    pub dated: DateTime<FixedOffset>,
}

/// Entries that stay for the same reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct KeptEntries {
    /// The reason.
    pub reason: KeepReason,
    /// Their number.
    pub entries: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// What a shorter retention time would delete in addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ShorterRetention {
    /// The retention time.
    pub days: u32,
    /// Number of entries.
    pub entries: usize,
    /// Their bytes.
    pub bytes: u64,
    /// The bytes that they take on the disk.
    pub disk_bytes: u64,
}

/// The stored baseline versions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VersionRetention {
    /// Their number.
    pub stored: usize,
    /// The bytes that they take on the disk.
    pub disk_bytes: u64,
    /// Those that no undo needs any more.
    pub expiring: Vec<Digest>,
    /// The bytes that these take on the disk.
    pub expiring_disk_bytes: u64,
    /// Why unused versions stay, if they do.
    pub blocked: Option<String>,
}

/// Serializes a time in the form of names of entries.
fn serialize_stamp<S: Serializer>(
    stamp: &Option<NaiveDateTime>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    stamp.map(format_stamp).serialize(serializer)
}

impl KeepReason {
    /// Returns what the entries are, for a retention time of `days`: "younger than 30 days".
    pub fn describe(self, days: u32) -> String {
        let time = describe_days(days);
        match self {
            KeepReason::Younger => format!("younger than {time}"),
            KeepReason::YoungerFile => format!("changed within {time}"),
            KeepReason::NeededByUndo => "needed by an undo".to_string(),
            KeepReason::NewerRecord => format!("recorded within {time}"),
            KeepReason::ActiveElsewhere => format!("of an agent with runs within {time}"),
            KeepReason::Pinned => "pinned".to_string(),
            KeepReason::NeededByPin => "continued by a pinned entry".to_string(),
            KeepReason::Newest => "newest".to_string(),
            KeepReason::UnknownOwner => "of unknown owner".to_string(),
            KeepReason::RunFailed => "of a failed agent".to_string(),
            KeepReason::UnclearPin => "maybe meant by an unclear pin".to_string(),
            KeepReason::Unconfirmed => "waiting for a confirmed date".to_string(),
        }
    }
}

impl RetentionOverview {
    /// Returns all entries that expire now.
    pub fn expiring(&self) -> impl Iterator<Item = &ExpiringEntry> {
        self.agents.iter().flat_map(|agent| &agent.expiring)
    }

    /// Returns the versions that expire now.
    pub fn expiring_versions(&self) -> &[Digest] {
        self.versions.as_ref().map_or(&[], |it| &it.expiring)
    }

    /// Returns the kind that decides the exit code: a directory that cannot be read.
    pub fn worst_kind(&self) -> Option<ErrorKind> {
        let kinds = self.unreadable.iter().map(Error::kind);
        kinds.reduce(ErrorKind::more_serious)
    }
}

impl AgentRetention {
    fn add(&mut self, it: &AssessedEntry, dates: &RetentionDates) {
        let entry = &it.entry;
        self.entries += 1;
        self.bytes += entry.size;
        self.disk_bytes += it.disk_bytes;
        let stamp = Some(entry.stamp);
        self.oldest = self.oldest.map_or(stamp, |oldest| stamp.min(Some(oldest)));
        self.newest = self.newest.max(stamp);
        match it.verdict {
            Verdict::Expires => {
                self.expiring_bytes += entry.size;
                self.expiring_disk_bytes += it.disk_bytes;
                self.expiring.push(ExpiringEntry {
                    path: entry.path.clone(),
                    kind: entry.kind,
                    size: entry.size,
                    dated: it.dated_at,
                });
            }
            Verdict::Kept(reason) => {
                self.add_kept(reason, entry.size);
                let due = it.dated_at + days(dates.days);
                if !it.is_held && due > dates.now {
                    self.next_expiry = Some(self.next_expiry.map_or(due, |next| next.min(due)));
                }
            }
            Verdict::OutOfScope => {}
        }
    }

    fn add_kept(&mut self, reason: KeepReason, size: u64) {
        let found = self.kept.binary_search_by_key(&reason, |kept| kept.reason);
        let place = found.unwrap_or_else(|place| {
            let kept = KeptEntries {
                reason,
                entries: 0,
                bytes: 0,
            };
            self.kept.insert(place, kept);
            place
        });
        self.kept[place].entries += 1;
        self.kept[place].bytes += size;
    }

    /// Describes why entries stay, for a retention time of `days`: "295 younger than 30 days",
    /// "2 pinned", and when the next of them expires. Of an agent that counts as failed, all of them
    /// stay until a run succeeds, also those that grow too old.
    pub fn describe_kept(&self, days: u32) -> Vec<String> {
        let is_told = |kept: &KeptEntries| kept.reason == KeepReason::RunFailed;
        let failure = self.failure.as_ref();
        let failure = failure.filter(|_| self.entries > 0 && !self.kept.iter().any(is_told));
        let failure = failure.map(|why| format!("all, because {why}"));
        let kept = self.kept.iter().map(|kept| {
            let reason = kept.reason.describe(days);
            match (kept.reason, &self.failure) {
                (KeepReason::RunFailed, Some(why)) => format!("{} {reason} ({why})", kept.entries),
                _ => format!("{} {reason}", kept.entries),
            }
        });
        let next = self.next_expiry;
        let next = next.map(|next| format!("next expires {}", next.format("%Y-%m-%d")));
        failure.into_iter().chain(kept).chain(next).collect()
    }
}

/// Agents that count as failed, each with the reason.
pub(super) type FailedAgents = BTreeMap<String, String>;

/// The overview, and the assessment that it was made from.
pub(super) struct AssessedOverview {
    pub overview: RetentionOverview,
    /// The agents whose entries expire.
    pub owners: BTreeSet<String>,
}

impl Retention {
    /// Returns what retention would delete now and why the rest stays, for these agents, which may
    /// have left the config, or for the whole archive. It takes no lock and writes nothing.
    ///
    /// # Errors
    /// An agent that neither the config nor an entry names, or a ledger, an archive or pins that
    /// cannot be read: then nothing expires.
    pub fn retention_overview(&self, agents: &[String]) -> Result<RetentionOverview> {
        let failed = self.failed_agents()?;
        Ok(self.assess_overview(agents, &failed)?.overview)
    }

    /// Returns the agents of the config whose entries stay, because their last run failed or their
    /// baseline is refused. A run that the full disk of the archive prevented keeps no entries.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub(super) fn failed_agents(&self) -> Result<FailedAgents> {
        let mut failed = FailedAgents::new();
        for agent in &self.context.config().agents {
            if let Some(last) = self.context.history(&agent.name)?.last_run
                && last.outcome.is_failure()
                && !last.is_archive_full
            {
                let time = self.context.clock().zone().format_minute(last.time);
                let run = &last.run;
                let outcome = match last.outcome {
                    Outcome::Refused => "was refused",
                    Outcome::NotStarted => "did not start",
                    _ => "failed",
                };
                let reason = format!("its last run, {run} of {time}, {outcome}");
                failed.insert(agent.name.clone(), reason);
            }
        }
        for (agent, error) in self.baselines.refused_baselines() {
            let reason = || format!("resets refuse it: {}", error.message());
            failed.entry(agent.name.clone()).or_insert_with(reason);
        }
        Ok(failed)
    }

    /// Judges all entries and versions.
    pub(super) fn assess_overview(
        &self,
        agents: &[String],
        failed: &FailedAgents,
    ) -> Result<AssessedOverview> {
        let named: HashSet<&str> = agents.iter().map(String::as_str).collect();
        let is_limited = !named.is_empty();
        let failures = failed.keys().map(String::as_str);
        let named = is_limited.then_some(named);
        let scope = RetentionScope::from_failures(self.context.config(), failures, named);
        let dates = self.retention_dates()?;
        let candidates = if is_limited {
            VersionCandidates::default()
        } else {
            self.find_version_candidates(&dates)?
        };
        let directories = self.scope_directories(&scope, true)?;
        let mut assessment =
            self.assess_entries(&scope, &dates, Depth::All, &directories, &candidates)?;
        assessment
            .entries
            .retain(|it| it.verdict != Verdict::OutOfScope);
        let unused = self.select_unused_versions(&candidates, &assessment.facts, &dates);
        let groups = self.group_entries(agents, &assessment, &dates, failed)?;
        let unreadable = self.recorded_unreadable(&assessment);
        let waits = assessment.count_kept(KeepReason::Unconfirmed) > 0;
        let unconfirmed = if waits {
            Some(self.describe_unconfirmed_date(&dates)?)
        } else {
            None
        };
        let faults = assessment.pin_faults.iter();
        let overview = RetentionOverview {
            archive: self.context.archive().root().to_path_buf(),
            days: dates.days,
            time: dates.now,
            confirmed: dates.confirmed,
            unconfirmed,
            shorter: count_shorter(&assessment, &dates),
            versions: (!is_limited).then(|| summarize_versions(&candidates, unused)),
            disk: DiskSpace::of(self.context.archive().root()),
            unclear_pins: faults.map(|(fault, _)| fault.to_string()).collect(),
            unreadable,
            agents: groups,
        };
        let owners = assessment.expired().flat_map(|it| it.owners.iter());
        Ok(AssessedOverview {
            overview,
            owners: owners.cloned().collect(),
        })
    }

    /// Groups the entries by agent and directory.
    fn group_entries(
        &self,
        agents: &[String],
        assessment: &Assessment,
        dates: &RetentionDates,
        failed: &FailedAgents,
    ) -> Result<Vec<AgentRetention>> {
        let mut groups: HashMap<(Option<&str>, &Path), AgentRetention> = HashMap::new();
        for it in &assessment.entries {
            let name = match &*it.owners {
                [name] => Some(name.as_str()),
                _ => None,
            };
            let directory = agent_directory_of(&it.entry.path);
            groups
                .entry((name, directory))
                .or_insert_with(|| self.empty_group(name, directory, failed))
                .add(it, dates);
        }
        let mut found: Vec<AgentRetention> = groups.into_values().collect();
        let known: HashSet<String> = found.iter().filter_map(|it| it.agent.clone()).collect();
        for name in agents {
            if !known.contains(name) {
                self.context.agent(name)?;
            }
        }
        for agent in &self.context.config().agents {
            let is_asked = agents.is_empty() || agents.contains(&agent.name);
            if is_asked && !known.contains(&agent.name) {
                let directory = Path::new(&agent.archive_subdir);
                found.push(self.empty_group(Some(&agent.name), directory, failed));
            }
        }
        found.sort_by(|a, b| {
            let size = b.disk_bytes.cmp(&a.disk_bytes);
            size.then_with(|| (&a.agent, &a.directory).cmp(&(&b.agent, &b.directory)))
        });
        Ok(found)
    }

    /// Returns the group of an agent in a directory, without entries.
    fn empty_group(
        &self,
        agent: Option<&str>,
        directory: &Path,
        failed: &FailedAgents,
    ) -> AgentRetention {
        AgentRetention {
            agent: agent.map(str::to_string),
            configured: agent.is_some_and(|it| self.context.config().agent(it).is_some()),
            directory: directory.to_path_buf(),
            failure: agent.and_then(|it| failed.get(it).cloned()),
            ..AgentRetention::default()
        }
    }

    /// Returns the errors of directories that cannot be read: those of the config's agents, and
    /// others that the ledger names.
    fn recorded_unreadable(&self, assessment: &Assessment) -> Vec<Error> {
        let claimed = self.agent_directories();
        let recorded = assessment.facts.directories.iter();
        let is_claimed = |it: &Path| it.to_str().is_some_and(|it| claimed.contains(it));
        let others: BTreeSet<&PathBuf> = recorded
            .filter(|it| !is_claimed(it) && archive::is_below_archive(it))
            .collect();
        let mut errors = assessment.unreadable.clone();
        for error in others
            .into_iter()
            .filter_map(|it| self.context.entries().list(it).err())
        {
            if !errors.contains(&error) {
                errors.push(error);
            }
        }
        errors
    }
}

/// Counts what shorter retention times would delete in addition.
fn count_shorter(assessment: &Assessment, dates: &RetentionDates) -> Vec<ShorterRetention> {
    let shorter = SHORTER_DAYS.iter().filter(|shorter| **shorter < dates.days);
    let mut counts: Vec<ShorterRetention> = shorter
        .map(|days| ShorterRetention {
            days: *days,
            entries: 0,
            bytes: 0,
            disk_bytes: 0,
        })
        .collect();
    let limit = dates.limit_for(dates.days);
    let younger = |it: &&AssessedEntry| !it.is_held && it.dated_at >= limit;
    for it in assessment.entries.iter().filter(younger) {
        for count in &mut counts {
            if it.dated_at < dates.limit_for(count.days) {
                count.entries += 1;
                count.bytes += it.entry.size;
                count.disk_bytes += it.disk_bytes;
            }
        }
    }
    counts
}

fn summarize_versions(candidates: &VersionCandidates, unused: UnusedVersions) -> VersionRetention {
    VersionRetention {
        stored: candidates.stored_count,
        disk_bytes: candidates.stored_disk_bytes,
        expiring: unused.versions.iter().map(|it| it.digest).collect(),
        expiring_disk_bytes: unused.versions.iter().map(|it| it.disk_bytes).sum(),
        blocked: unused.kept.map(|(_, why)| why),
    }
}
