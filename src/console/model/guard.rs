//! The key guard: what a plan or a question does with keys that were typed before the
//! operator can have read it. It ignores every key until there was quiet, so that a
//! word of which the first letters came too early never goes on as commands.

use std::time::Duration;

use super::{MessageLevel, Model, Overlay, ResetStage, Screen};
use crate::console::keymap::{Code, Key};

/// How long no key may come before keys count again.
pub const GUARD_TIME: Duration = Duration::from_millis(400);

/// Ignores keys until none has come for [`GUARD_TIME`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyGuard {
    until: Duration,
    /// Whether it has ignored a key, which the screen then says.
    has_ignored: bool,
}

impl KeyGuard {
    /// A guard that begins now.
    pub fn new(now: Duration) -> KeyGuard {
        KeyGuard {
            until: now + GUARD_TIME,
            has_ignored: false,
        }
    }

    /// Begins again. While keys keep coming the screen goes on to say so.
    pub fn restart(&mut self, now: Duration) {
        self.has_ignored &= self.is_on(now);
        self.until = now + GUARD_TIME;
    }

    /// Whether a key that came now would be ignored.
    pub fn is_on(&self, now: Duration) -> bool {
        now < self.until
    }

    /// A key came. Returns whether it is ignored; then the guard goes on.
    pub fn ignores(&mut self, now: Duration) -> bool {
        let ignores = self.is_on(now);
        if ignores {
            self.ignore(now);
        }
        ignores
    }

    /// Ignores a key that came, and those that come right behind it.
    pub fn ignore(&mut self, now: Duration) {
        self.has_ignored = true;
        self.until = now + GUARD_TIME;
    }

    /// Until when the screen says that keys are ignored, if it says so now.
    pub fn told_until(&self, now: Duration) -> Option<Duration> {
        (self.has_ignored && self.is_on(now)).then_some(self.until)
    }
}

impl Model {
    /// Says that a question was given up by a key. One that was meant for something else
    /// is followed by more of that, which the guard ignores.
    pub fn give_up_question(&mut self, key: Key, what: &str) {
        if key.code != Code::Esc && key.typed() != Some('n') {
            self.given_up = KeyGuard::new(self.now.since);
        }
        self.say(MessageLevel::Info, what);
    }

    /// Whether a plan is on the screen, or is being made for it.
    pub fn has_plan(&self) -> bool {
        let is_plan = matches!(
            self.reset.stage,
            ResetStage::Plan(_) | ResetStage::Planning(_)
        );
        is_plan && self.screen == Screen::Reset
    }

    /// Until when the screen says that keys are ignored, if it says so now.
    pub fn ignores_keys_until(&self) -> Option<Duration> {
        let guard = match &self.overlay {
            Some(Overlay::Question(answering)) => &answering.guard,
            Some(Overlay::Seal(question)) => &question.guard,
            Some(_) => return None,
            None if self.has_plan() => &self.reset.guard,
            None => return None,
        };
        guard.told_until(self.now.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: Duration = Duration::from_secs(7);

    fn after(millis: u64) -> Duration {
        BEGIN + Duration::from_millis(millis)
    }

    #[test]
    fn guard_goes_on_while_keys_keep_coming() {
        let mut guard = KeyGuard::new(BEGIN);
        assert_eq!(guard.told_until(BEGIN), None, "nothing was ignored yet");
        for millis in [0, 399, 798, 1_000, 1_399] {
            assert!(guard.ignores(after(millis)), "{millis}");
        }
        assert_eq!(guard.told_until(after(1_798)), Some(after(1_799)));
        assert_eq!(guard.told_until(after(1_799)), None);
        assert!(!guard.ignores(after(1_799)));
    }

    #[test]
    fn restarted_guard_tells_of_keys_that_keep_coming() {
        let mut guard = KeyGuard::new(BEGIN);
        guard.ignore(after(100));
        guard.restart(after(200));
        assert_eq!(guard.told_until(after(300)), Some(after(600)));
        guard.restart(after(900));
        assert_eq!(guard.told_until(after(900)), None);
        assert!(guard.ignores(after(1_000)));
    }
}
