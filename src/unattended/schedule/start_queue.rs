//! The resets that are due and wait to be started: pure.
//!
//! Few run at once, so that a fleet whose times were all missed does not start as many processes as
//! it has agents. A reset that cannot be started stays due.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use super::scheduler::ScheduledGroup;

/// Maximum number of resets that run at once.
const MAX_RUNNING_RESETS: usize = 16;

/// Time between two attempts to start a reset.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// Resets in the order in which they became due.
#[derive(Debug, Default)]
pub struct StartQueue {
    waiting: VecDeque<ScheduledGroup>,
    /// When the first one is tried again; none unless the last attempt failed.
    retry_at: Option<Instant>,
}

impl StartQueue {
    /// Adds a group that is due. One that waits already is started once.
    pub fn add(&mut self, group: ScheduledGroup) {
        if !self.waiting.iter().any(|it| it.agent == group.agent) {
            self.waiting.push_back(group);
        }
    }

    /// Forgets the agents that are in none of these groups.
    pub fn retain_groups(&mut self, groups: &[ScheduledGroup]) {
        let is_known = |group: &ScheduledGroup| groups.iter().any(|it| it.agent == group.agent);
        self.waiting.retain(is_known);
    }

    /// Starts the resets for which there is room beside those that run. Returns why one cannot be
    /// started, unless that is so since an earlier call.
    pub fn start_waiting(
        &mut self,
        now: Instant,
        running: usize,
        mut start: impl FnMut(&ScheduledGroup) -> io::Result<()>,
    ) -> Option<(ScheduledGroup, io::Error)> {
        if self.retry_at.is_some_and(|time| now < time) {
            return None;
        }
        for _ in running..MAX_RUNNING_RESETS {
            let group = self.waiting.front()?;
            if let Err(error) = start(group) {
                let earlier = self.retry_at.replace(now + RETRY_INTERVAL);
                return earlier.is_none().then(|| (group.clone(), error));
            }
            self.retry_at = None;
            self.waiting.pop_front();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::{Clock, SystemClock};

    fn group(agent: &str) -> ScheduledGroup {
        ScheduledGroup {
            agent: Some(agent.to_string()),
            interval: "1h".parse().unwrap(),
            offset: 0,
        }
    }

    fn started(queue: &mut StartQueue, now: Instant, running: usize) -> Vec<String> {
        let mut names = Vec::new();
        let failed = queue.start_waiting(now, running, |group| {
            names.extend(group.agent.clone());
            Ok(())
        });
        assert!(failed.is_none());
        names
    }

    #[test]
    fn reset_that_cannot_start_is_tried_again() {
        let now = SystemClock.instant();
        let mut queue = StartQueue::default();
        queue.add(group("scout"));
        queue.add(group("triage"));
        let mut attempts = 0;
        let mut fail = |queue: &mut StartQueue, now: Instant| {
            let failed = queue.start_waiting(now, 0, |_| {
                attempts += 1;
                Err(io::Error::from(io::ErrorKind::WouldBlock))
            });
            (failed.map(|it| it.0), attempts)
        };
        assert_eq!(fail(&mut queue, now), (Some(group("scout")), 1));
        // It is due again while it waits.
        queue.add(group("scout"));
        let later = now + RETRY_INTERVAL;
        let sooner = later - Duration::from_secs(1);
        assert_eq!(fail(&mut queue, sooner), (None, 1));
        // It was said before.
        assert_eq!(fail(&mut queue, later), (None, 2));
        let later = later + RETRY_INTERVAL;
        assert_eq!(started(&mut queue, later, 0), ["scout", "triage"]);
        assert_eq!(started(&mut queue, later, 0), [""; 0]);
        // After a success, the next failure is said.
        queue.add(group("scout"));
        assert!(fail(&mut queue, later).0.is_some());
    }

    #[test]
    fn resets_beyond_the_limit_wait_in_order() {
        let now = SystemClock.instant();
        let mut queue = StartQueue::default();
        let names: Vec<String> = (0..300).map(|number| format!("agent-{number}")).collect();
        for name in &names {
            queue.add(group(name));
        }
        let (first, rest) = names.split_at(MAX_RUNNING_RESETS);
        assert_eq!(started(&mut queue, now, 0), first);
        assert_eq!(started(&mut queue, now, MAX_RUNNING_RESETS), [""; 0]);
        assert_eq!(started(&mut queue, now, MAX_RUNNING_RESETS - 1), rest[..1]);
        // One has left the config.
        let groups: Vec<ScheduledGroup> = rest[2..].iter().map(|it| group(it)).collect();
        queue.retain_groups(&groups);
        assert_eq!(started(&mut queue, now, MAX_RUNNING_RESETS - 1), rest[2..3]);
    }
}
