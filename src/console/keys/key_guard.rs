//! The key guard of a plan or a question: ignores keys that were typed before the operator can
//! have read it. It lasts until no key has come for a while, so that the rest of a word whose
//! first letters came too early never runs as commands.

use std::time::Duration;

/// Time without keys after which keys count again.
pub const KEY_GUARD_TIME: Duration = Duration::from_millis(400);

/// Ignores keys until none has come for [`KEY_GUARD_TIME`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyGuard {
    until: Duration,
    /// Whether it has ignored a key; the screen then shows a notice.
    has_ignored: bool,
}

impl KeyGuard {
    /// Creates a guard that begins now.
    pub fn new(now: Duration) -> KeyGuard {
        KeyGuard {
            until: now + KEY_GUARD_TIME,
            has_ignored: false,
        }
    }

    /// Begins again. The notice stays while keys keep arriving.
    pub fn restart(&mut self, now: Duration) {
        self.has_ignored &= self.is_active(now);
        self.until = now + KEY_GUARD_TIME;
    }

    /// Whether a key that arrives now would be ignored.
    pub fn is_active(&self, now: Duration) -> bool {
        now < self.until
    }

    /// Returns whether to ignore a key that arrives now; if so, the guard lasts longer.
    pub fn intercepts_key(&mut self, now: Duration) -> bool {
        let ignores = self.is_active(now);
        if ignores {
            self.ignore_key(now);
        }
        ignores
    }

    /// Ignores a key and those that follow right after it.
    pub fn ignore_key(&mut self, now: Duration) {
        self.has_ignored = true;
        self.until = now + KEY_GUARD_TIME;
    }

    /// Returns until when the notice is shown, if it is shown now.
    pub fn notice_until(&self, now: Duration) -> Option<Duration> {
        (self.has_ignored && self.is_active(now)).then_some(self.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUARD_START: Duration = Duration::from_secs(7);

    fn millis_after_start(millis: u64) -> Duration {
        GUARD_START + Duration::from_millis(millis)
    }

    #[test]
    fn key_guard_lasts_while_keys_keep_coming() {
        let mut guard = KeyGuard::new(GUARD_START);
        assert_eq!(
            guard.notice_until(GUARD_START),
            None,
            "nothing was ignored yet"
        );
        for millis in [0, 399, 798, 1_000, 1_399] {
            assert!(guard.intercepts_key(millis_after_start(millis)), "{millis}");
        }
        assert_eq!(
            guard.notice_until(millis_after_start(1_798)),
            Some(millis_after_start(1_799))
        );
        assert_eq!(guard.notice_until(millis_after_start(1_799)), None);
        assert!(!guard.intercepts_key(millis_after_start(1_799)));
    }

    #[test]
    fn restarted_key_guard_reports_ignored_keys() {
        let mut guard = KeyGuard::new(GUARD_START);
        guard.ignore_key(millis_after_start(100));
        guard.restart(millis_after_start(200));
        assert_eq!(
            guard.notice_until(millis_after_start(300)),
            Some(millis_after_start(600))
        );
        guard.restart(millis_after_start(900));
        assert_eq!(guard.notice_until(millis_after_start(900)), None);
        assert!(guard.intercepts_key(millis_after_start(1_000)));
    }
}
