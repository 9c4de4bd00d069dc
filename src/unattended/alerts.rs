//! Alerts: tells operators what is wrong with a fleet, once, on the channels that `[alerts]` names.
//!
//! Nothing here is part of a reset. The command line calls [`raise_and_deliver`] after a run has
//! released its locks and printed its result. Conditions become events in the archive's
//! `alerts.json` before anything is sent, so that an event that cannot be delivered waits for the next
//! run. Delivery happens in the same process, with a limit for each attempt and one for all: the
//! service manager ends a process that a timer's command leaves behind.

mod conditions;
mod delivery;
mod event;
mod outbox;
mod outbox_file;
#[cfg(test)]
mod test_config;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;

pub use delivery::AttemptResult;
pub use event::{AlertEvent, Severity};
pub use outbox::{AlertChannel, WaitingAlert};

use crate::base::error::{Error, ErrorKind, describe_io_error};
use crate::base::trust::{
    CommandPlaces, TrustedUser, UntrustedPlace, find_program, find_untrusted_in_command,
};
use crate::config::{AlertKind, AlertSettings};
use crate::engine::{
    Engine, Hold, HolderLock, HolderLockKind, LockHolder, RunReport, describe_holder,
};
use conditions::{ConditionFinder, Findings};
use delivery::ChannelSender;
use outbox::{CheckContext, Outbox, PendingEvent};
use outbox_file::LockedOutbox;

/// Time limit of all deliveries of one process.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of events that are sent although they cannot be recorded.
const MAX_UNRECORDED_EVENTS: usize = 5;

/// Time from which on a lock of the alerts is suspected to hang: a working process holds it for no
/// longer than its deliveries take.
const STUCK_LOCK_SECONDS: u64 = 120;

/// How often a process looks for events without the lock of the outbox, before it does so with it.
const MAX_UNLOCKED_CHECKS: usize = 3;

/// What deliveries use of the process's environment.
#[derive(Clone, Debug, Default)]
pub struct AlertEnvironment {
    /// `$SSL_CERT_FILE`: certificate authorities for `url`, instead of those of the machine.
    pub certificate_file: Option<PathBuf>,
    /// The directories of `$PATH`.
    pub search_path: Vec<PathBuf>,
    /// Home directory of the user.
    pub home: Option<PathBuf>,
    /// Whether the process runs as root.
    pub is_root: bool,
}

/// A command of the alerts that root does not run, because another user can change what belongs to it.
#[derive(Debug)]
pub struct UntrustedCommand {
    program: String,
    place: UntrustedPlace,
}

impl UntrustedCommand {
    /// Looks at whatever the words of the command may name, as a delivery runs it; none for other users
    /// than root, and without a command.
    pub fn find(
        settings: &AlertSettings,
        environment: &AlertEnvironment,
    ) -> Option<UntrustedCommand> {
        let words = settings.command.as_ref().filter(|_| environment.is_root)?;
        let program = words.first()?.clone();
        let places = CommandPlaces {
            directory: &settings.directory,
            home: environment.home.as_deref(),
            search_path: &environment.search_path,
        };
        let place = find_untrusted_in_command(words, places, TrustedUser::ROOT)?;
        Some(UntrustedCommand { program, place })
    }

    /// Returns what is not run, and why.
    pub fn message(&self) -> String {
        let program = event::visible(&self.program);
        event::visible(&format!("{program} is not run as root: {}", self.place))
    }

    /// Returns what to do.
    pub fn hint(&self) -> String {
        let remedy = self.place.remedy().map_or_else(
            || "name a directory that only root can write".to_string(),
            |remedy| format!("if you trust what it is now: {}", event::visible(&remedy)),
        );
        format!("{remedy}; or use it from a script that only root can write")
    }
}

/// Returns why the command of the alerts cannot be run, if its program is not there or is none.
pub fn find_command_problem(
    settings: &AlertSettings,
    environment: &AlertEnvironment,
) -> Option<String> {
    let program = settings.command.as_ref()?.first()?;
    let shown = event::visible(program);
    let Some(path) = find_program(program, &settings.directory, &environment.search_path) else {
        return Some(format!("cannot run {shown}: no such program"));
    };
    let cause = if path.is_dir() {
        "it is a directory".to_string()
    } else {
        let access = rustix::fs::access(&path, rustix::fs::Access::EXEC_OK);
        describe_io_error(&access.err()?.into())
    };
    Some(format!("cannot run {shown}: {cause}"))
}

/// What a delivery did.
#[derive(Debug, Default, Serialize)]
pub struct DeliveryReport {
    /// The events that went out on at least one channel.
    pub sent: Vec<AlertEvent>,
    /// The attempts that failed.
    pub failed: Vec<AttemptResult>,
    /// The channels that took an event.
    #[serde(skip)]
    pub delivered: BTreeSet<AlertChannel>,
    /// Number of events that wait.
    pub waiting: usize,
    /// The one of them that is sent next.
    pub next_waiting: Option<WaitingAlert>,
    /// Why failed and missed resets are not known, if the ledger cannot be read.
    pub ledger_error: Option<String>,
    /// Number of events that were dropped: too old, too many, or tried too often.
    pub dropped: usize,
    /// Why events are not recorded, if they are not.
    pub unrecorded: Option<String>,
    /// What to do about that.
    #[serde(skip)]
    pub hints: Vec<String>,
    /// The process that keeps this one from recording or sending, if one does.
    pub held: Option<HeldAlerts>,
}

/// A lock of the alerts that another process holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldAlerts {
    /// Names the process and since when.
    pub message: String,
    /// Whether it has held the lock for longer than a working process does.
    pub is_stuck: bool,
}

impl HeldAlerts {
    /// Describes the process that changes the alerts; none if there is none.
    pub fn find_change(engine: &Engine) -> Option<HeldAlerts> {
        let holder = engine.holds().holder(Hold::Alerts)?;
        Some(HeldAlerts::new(engine, holder))
    }

    /// Describes the process that delivers alerts; none if there is none.
    pub fn find_delivery(engine: &Engine) -> Option<HeldAlerts> {
        let holder = engine
            .locks()
            .find_lock_holder_of(HolderLockKind::AlertDelivery)?;
        Some(HeldAlerts::new(engine, holder))
    }

    fn new(engine: &Engine, holder: Option<LockHolder>) -> HeldAlerts {
        let held = holder
            .as_ref()
            .map_or(0, |it| it.held_seconds(engine.clock().now()));
        HeldAlerts {
            message: format!(
                "the alerts are held by {}",
                describe_holder(holder.as_ref(), engine.clock().zone())
            ),
            is_stuck: held >= STUCK_LOCK_SECONDS,
        }
    }
}

impl Serialize for HeldAlerts {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.message)
    }
}

impl DeliveryReport {
    /// Notes the attempts to send an event, and gives up the channels that failed. Returns those that
    /// took it.
    fn note_attempts(
        &mut self,
        event: AlertEvent,
        results: Vec<AttemptResult>,
        usable: &mut BTreeSet<AlertChannel>,
    ) -> BTreeSet<AlertChannel> {
        let mut delivered = BTreeSet::new();
        for result in results {
            if result.error.is_none() {
                delivered.insert(result.channel);
            } else {
                usable.remove(&result.channel);
                self.failed.push(result);
            }
        }
        if !delivered.is_empty() {
            self.sent.push(event);
        }
        self.delivered.extend(&delivered);
        delivered
    }

    fn note_unrecorded(&mut self, engine: &Engine, error: &Error) {
        self.unrecorded = Some(error.to_string());
        self.hints = error.hints().to_vec();
        if error.kind() == ErrorKind::Busy {
            self.held = HeldAlerts::find_change(engine);
        }
    }
}

/// Raises the events that are due, and delivers what waits. `report` is that of the run that has just
/// ended, if any. Ends early, between attempts and within those on a program or an address, once `is_cancelled`
/// says so. Returns none if the config names no channel.
pub fn raise_and_deliver(
    engine: &Engine,
    report: Option<&RunReport>,
    environment: &AlertEnvironment,
    is_cancelled: &dyn Fn() -> bool,
) -> Option<DeliveryReport> {
    let settings = engine.config().alerts.as_ref()?;
    let channels = AlertChannel::of_settings(settings);
    if channels.is_empty() {
        return None;
    }
    let sender = Sender {
        engine,
        settings,
        channels,
        sender: ChannelSender {
            settings,
            clock: engine.clock(),
            environment,
            is_cancelled,
        },
    };
    let mut done = DeliveryReport::default();
    let lock = match sender.raise(report, &mut done) {
        Ok(lock) => lock,
        Err(error) => return Some(sender.deliver_unrecorded(report, &error)),
    };
    let Some(lock) = lock else {
        // The process that delivers looks for new events until there are none, unless it is stopped.
        if done.waiting > 0 {
            done.held = HeldAlerts::find_delivery(engine);
        }
        return Some(done);
    };
    if let Err(error) = sender.deliver(lock, &mut done) {
        done.note_unrecorded(engine, &error);
    }
    Some(done)
}

/// Sends a test event of a kind on every channel that the config names, and records nothing.
pub fn send_test(
    engine: &Engine,
    kind: AlertKind,
    environment: &AlertEnvironment,
) -> (AlertEvent, Vec<AttemptResult>) {
    let event = AlertEvent::for_test(kind, engine.config(), engine.clock().now());
    let Some(settings) = &engine.config().alerts else {
        return (event, Vec::new());
    };
    let sender = ChannelSender {
        settings,
        clock: engine.clock(),
        environment,
        is_cancelled: &|| false,
    };
    let channels = AlertChannel::of_settings(settings);
    let end = engine.clock().instant() + DELIVERY_TIMEOUT;
    let results = sender.send(&event, 0, &channels, end);
    (event, results)
}

/// Raises and delivers the events of one engine.
struct Sender<'a> {
    engine: &'a Engine,
    settings: &'a AlertSettings,
    channels: BTreeSet<AlertChannel>,
    sender: ChannelSender<'a>,
}

impl Sender<'_> {
    fn context(&self) -> CheckContext<'_> {
        CheckContext {
            config: self.engine.config(),
            settings: self.settings,
            now: self.engine.clock().now(),
        }
    }

    /// Whether no further event is sent.
    fn is_over(&self, end: Instant) -> bool {
        let left = end.saturating_duration_since(self.engine.clock().instant());
        left < delivery::MIN_ATTEMPT_TIMEOUT || (self.sender.is_cancelled)()
    }

    /// Records the events that are due. Returns the lock of the delivery, unless another process
    /// holds it. The lock is tried while the outbox is locked, so that no event is left between the two.
    fn raise(
        &self,
        report: Option<&RunReport>,
        done: &mut DeliveryReport,
    ) -> Result<Option<HolderLock>, Error> {
        let (mut file, found) = self.check(report)?;
        let context = self.context();
        let outbox = file.outbox();
        outbox.retain_channels(&self.channels);
        outbox.add_findings(&found, &context);
        done.waiting = outbox.pending.len();
        done.next_waiting = outbox.next_waiting(self.settings, context.now);
        done.ledger_error = found.ledger_error;
        file.save(context.now)?;
        self.engine
            .locks()
            .try_lock_with_holder(HolderLockKind::AlertDelivery)
    }

    /// Looks for events, and locks the outbox. Ledgers are read before that, so that a long one keeps
    /// no other process from its alerts; if another one has checked since, what was read may be older
    /// than what it found, and is read again.
    fn check(&self, report: Option<&RunReport>) -> Result<(LockedOutbox<'_>, Findings), Error> {
        let find = |earlier: &Outbox| {
            let finder = ConditionFinder::new(self.engine, self.settings, report);
            finder.find(earlier.earlier_checks())
        };
        for _ in 0..MAX_UNLOCKED_CHECKS {
            let earlier = outbox_file::read_outbox(self.engine)?;
            let found = find(&earlier);
            let mut file = LockedOutbox::open(self.engine)?;
            if file.outbox().checks == earlier.checks {
                return Ok((file, found));
            }
        }
        let mut file = LockedOutbox::open(self.engine)?;
        let found = find(file.outbox());
        Ok((file, found))
    }

    /// Delivers what waits, most urgent first. A channel that fails is not tried again by this process.
    fn deliver(&self, lock: HolderLock, done: &mut DeliveryReport) -> Result<(), Error> {
        let end = self.engine.clock().instant() + DELIVERY_TIMEOUT;
        let mut usable = self.channels.clone();
        let mut lock = Some(lock);
        loop {
            let is_over = self.is_over(end);
            let next = self.next_due(&usable, is_over, &mut lock, done)?;
            let Some((pending, waiting)) = next else {
                return Ok(());
            };
            let channels = pending.channels.intersection(&usable).copied().collect();
            let results = self.sender.send(&pending.event, waiting, &channels, end);
            // What a signal stopped is sent by the next command, without a pause.
            let is_cancelled = (self.sender.is_cancelled)();
            let has_failed = !is_cancelled && results.iter().any(|result| result.error.is_some());
            let id = pending.event.id.clone();
            let delivered = done.note_attempts(pending.event, results, &mut usable);
            let mut file = LockedOutbox::open(self.engine)?;
            let now = self.engine.clock().now();
            let outbox = file.outbox();
            outbox.note_delivery(&id, &delivered, has_failed, now);
            file.save(now)?;
        }
    }

    /// Returns the next event to send, and how many wait behind it. Without one, the lock of the
    /// delivery is released while the outbox is still locked: a process that records an event then
    /// delivers it itself.
    fn next_due(
        &self,
        usable: &BTreeSet<AlertChannel>,
        is_over: bool,
        lock: &mut Option<HolderLock>,
        done: &mut DeliveryReport,
    ) -> Result<Option<(PendingEvent, usize)>, Error> {
        let mut file = LockedOutbox::open(self.engine)?;
        let now = self.engine.clock().now();
        let outbox = file.outbox();
        let due = if is_over {
            None
        } else {
            outbox.take_due(usable, self.settings, now)
        };
        done.waiting = outbox.pending.len();
        done.next_waiting = outbox.next_waiting(self.settings, now);
        let dropped = if due.is_some() {
            0
        } else {
            std::mem::take(&mut outbox.dropped)
        };
        done.dropped += dropped;
        if due.is_some() || dropped > 0 {
            file.save(now)?;
        }
        if due.is_none() {
            drop(lock.take());
        }
        Ok(due.map(|due| (due, done.waiting.saturating_sub(1))))
    }

    /// Sends what the run says of itself, and that the disk is full, although it cannot be recorded:
    /// that may be the very event. Each run does so while the record fails.
    fn deliver_unrecorded(&self, report: Option<&RunReport>, error: &Error) -> DeliveryReport {
        let mut done = DeliveryReport::default();
        done.note_unrecorded(self.engine, error);
        if report.is_none() || error.kind() == ErrorKind::Busy {
            return done;
        }
        let finder = ConditionFinder::new(self.engine, self.settings, report);
        let mut outbox = Outbox::default();
        outbox.add_findings(&finder.find_in_report(), &self.context());
        let end = self.engine.clock().instant() + DELIVERY_TIMEOUT;
        let mut usable = self.channels.clone();
        for _ in 0..MAX_UNRECORDED_EVENTS {
            let now = self.engine.clock().now();
            let Some(due) = outbox.take_due(&usable, self.settings, now) else {
                break;
            };
            if self.is_over(end) {
                break;
            }
            let results = self.sender.send(&due.event, 0, &usable, end);
            outbox.note_delivery(&due.event.id, &self.channels, false, now);
            done.note_attempts(due.event, results, &mut usable);
        }
        done
    }
}
