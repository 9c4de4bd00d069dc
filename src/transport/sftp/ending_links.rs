//! Sessions that have ended, until their processes have exited. One thread waits for all of them.

use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::client::SessionLink;
use super::ssh::{CHILD_EXIT_TIMEOUT, SshChild};
use crate::base::clock::{Clock, SystemClock};

/// Interval at which the thread looks for processes that have exited, while there are some.
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A session whose process was asked to exit.
struct EndingLink {
    link: Arc<SessionLink>,
    since: Instant,
    when_done: Box<dyn FnOnce() + Send>,
}

/// Drops a session whose process was asked to exit, and then calls `when_done`. A process that does
/// not exit is killed. Waits for nothing.
pub(super) fn end_link(link: Arc<SessionLink>, when_done: impl FnOnce() + Send + 'static) {
    static ENDING_LINKS: LazyLock<Option<Sender<EndingLink>>> = LazyLock::new(|| {
        let (sender, inbox) = unbounded();
        let builder = thread::Builder::new().name("ssh exit".into());
        let thread = builder.spawn(move || end_links(&inbox));
        thread.ok().map(|_| sender)
    });
    if let Some(sender) = &*ENDING_LINKS {
        // The thread never ends, so this cannot fail.
        let _ = sender.send(EndingLink {
            link,
            since: SystemClock.instant(),
            when_done: Box::new(when_done),
        });
    }
}

fn end_links(inbox: &Receiver<EndingLink>) {
    let mut ending: Vec<EndingLink> = Vec::new();
    loop {
        let next = if ending.is_empty() {
            inbox.recv().ok()
        } else {
            inbox.recv_timeout(EXIT_POLL_INTERVAL).ok()
        };
        ending.extend(next.into_iter().chain(inbox.try_iter()));
        let now = SystemClock.instant();
        let (ended, rest): (Vec<EndingLink>, Vec<EndingLink>) =
            ending.into_iter().partition(|it| it.has_exited(now));
        ending = rest;
        for EndingLink {
            link, when_done, ..
        } in ended
        {
            drop(link);
            when_done();
        }
    }
}

impl EndingLink {
    /// Whether the process has exited; kills it once its time is up.
    fn has_exited(&self, now: Instant) -> bool {
        let Some(guard) = self.link.child.as_ref().map(SshChild::guard) else {
            return true;
        };
        if guard.has_exited() {
            return true;
        }
        if now >= self.since + CHILD_EXIT_TIMEOUT {
            guard.start_kill();
        }
        false
    }
}
