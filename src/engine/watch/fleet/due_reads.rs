//! The reads of agents that are due, in the order of their times, and the pauses between those of
//! one agent.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

/// Minimum pause between two reads of an agent that writes all the time.
const MIN_READ_PAUSE: Duration = Duration::from_millis(200);

/// Reading an agent takes at most one part in this many of the time of a processor.
const MAX_READ_SHARE: u32 = 20;

/// Maximum pause after a read that was slow because it waited for a disk, or for a processor that
/// other programs used: its elapsed time does not say that the next read is slow as well.
const MAX_PAUSE_AFTER_WAIT: Duration = Duration::from_secs(1);

/// What a read took.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadCost {
    /// Time from its begin to its end.
    pub elapsed: Duration,
    /// Time of a processor that it used; long for a large memory alone.
    pub processor: Duration,
}

impl ReadCost {
    /// Returns how long a changed agent waits for its next read.
    pub(super) fn pause(self) -> Duration {
        let after_wait = (self.elapsed * MAX_READ_SHARE).min(MAX_PAUSE_AFTER_WAIT);
        MIN_READ_PAUSE
            .max(after_wait)
            .max(self.processor * MAX_READ_SHARE)
    }
}

/// Reads by agent, of which those that run keep later ones of the same agent waiting.
#[derive(Default)]
pub(super) struct DueReads {
    /// The time of each agent's next read.
    times: HashMap<String, Instant>,
    /// The same of agents whose reads do not run, the first one due first.
    ready: BTreeSet<(Instant, String)>,
    running: HashSet<String>,
    /// The earliest time of the next read of each agent that has been read.
    earliest: HashMap<String, Instant>,
    /// Agents whose next reads the operator waits for.
    requested: HashSet<String>,
}

impl DueReads {
    /// Schedules the next read of an agent, not before the pause after the last one has ended, unless an
    /// earlier one is scheduled. Returns whether none was.
    pub(super) fn schedule(&mut self, agent: String, due: Instant) -> bool {
        let earliest = self.earliest.get(&agent).copied();
        let is_requested = self.requested.contains(&agent);
        let due = earliest
            .filter(|_| !is_requested)
            .map_or(due, |it| it.max(due));
        let before = self.times.get(&agent).copied();
        if before.is_some_and(|before| before <= due) {
            return false;
        }
        self.times.insert(agent.clone(), due);
        if let Some(before) = before {
            self.ready.remove(&(before, agent.clone()));
        }
        if !self.running.contains(&agent) {
            self.ready.insert((due, agent));
        }
        before.is_none()
    }

    /// As [`DueReads::schedule`], for a read that the operator waits for: no earlier read delays it
    /// beyond its own end.
    pub(super) fn request(&mut self, agent: String, now: Instant) -> bool {
        self.requested.insert(agent.clone());
        self.schedule(agent, now)
    }

    /// Returns when the first read that could start is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.ready.first().map(|(due, _)| *due)
    }

    /// Starts the first read that is due, if one is, and returns its agent.
    pub(super) fn start_next(&mut self, now: Instant) -> Option<String> {
        self.next_due().filter(|due| *due <= now)?;
        let (_, agent) = self.ready.pop_first()?;
        self.times.remove(&agent);
        self.requested.remove(&agent);
        self.running.insert(agent.clone());
        Some(agent)
    }

    /// Notes that a read has ended. A further one of the agent does not start before `earliest`, unless
    /// it was requested.
    pub(super) fn end(&mut self, agent: &str, earliest: Instant) {
        self.earliest.insert(agent.to_string(), earliest);
        self.running.remove(agent);
        if let Some(due) = self.times.get_mut(agent) {
            if !self.requested.contains(agent) {
                *due = (*due).max(earliest);
            }
            self.ready.insert((*due, agent.to_string()));
        }
    }

    /// Number of reads that run.
    pub(super) fn running_count(&self) -> usize {
        self.running.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_that_waited_delays_the_next_at_most_1_s() {
        let pause = |elapsed, processor| {
            let cost = ReadCost {
                elapsed: Duration::from_millis(elapsed),
                processor: Duration::from_millis(processor),
            };
            cost.pause().as_millis()
        };
        assert_eq!(pause(1, 1), 200);
        assert_eq!(pause(20, 1), 400);
        // The machine is overloaded, or a disk does not answer for a minute.
        assert_eq!(pause(600, 2), 1000);
        assert_eq!(pause(60_000, 2), 1000);
        // The memory is large.
        assert_eq!(pause(700, 600), 12_000);
    }

    #[test]
    fn reads_start_in_order_and_once_per_agent() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut reads = DueReads::default();
        assert!(reads.schedule("late".to_string(), at(9)));
        assert!(reads.schedule("early".to_string(), at(3)));
        assert!(!reads.schedule("late".to_string(), at(5)));
        assert_eq!(reads.next_due(), Some(at(3)));
        assert_eq!(reads.start_next(at(2)), None);
        assert_eq!(reads.start_next(at(6)).as_deref(), Some("early"));
        // A change during the read waits for its end.
        assert!(reads.schedule("early".to_string(), at(4)));
        assert_eq!(reads.start_next(at(6)).as_deref(), Some("late"));
        assert_eq!((reads.start_next(at(6)), reads.running_count()), (None, 2));
        reads.end("early", at(7));
        reads.end("late", at(7));
        assert_eq!(
            (reads.start_next(at(6)), reads.next_due()),
            (None, Some(at(7)))
        );
        assert_eq!(reads.start_next(at(7)).as_deref(), Some("early"));
    }

    #[test]
    fn requested_read_follows_the_running_one() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut reads = DueReads::default();
        reads.schedule("slow".to_string(), at(0));
        reads.start_next(at(0));
        assert!(reads.request("slow".to_string(), at(1)));
        assert_eq!(reads.start_next(at(2)), None);
        reads.end("slow", at(90));
        assert_eq!(reads.start_next(at(3)).as_deref(), Some("slow"));
        // The request is done.
        reads.schedule("slow".to_string(), at(4));
        reads.end("slow", at(90));
        assert_eq!(reads.next_due(), Some(at(90)));
    }
}
