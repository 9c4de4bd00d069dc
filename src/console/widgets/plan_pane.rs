//! A plan: requested, shown, confirmed and applied. All plans of the console are one of these: of runs, of
//! baselines, of a prune and of the schedule. What a plan changes, and how that is applied, is its screen's.

use std::time::Duration;

use crate::console::keys::key::{Key, KeyCode};
use crate::console::requests::NumberedRequests;
use crate::console::screen::Screen;

/// Age at which a plan expires and is made again.
pub const PLAN_LIFETIME: Duration = Duration::from_secs(60);

/// What confirms a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Confirmation {
    /// Nothing: the plan changes nothing.
    NothingToRun,
    /// `y`.
    SingleKey,
    /// These words, typed in full, and Enter.
    TypedText(String),
    /// Nothing yet: the operator must choose what happens to newer notes.
    NewerNotes,
}

/// The confirmation of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanPrompt {
    /// What confirms the plan.
    pub confirmation: Confirmation,
    /// The words typed so far.
    pub typed_text: String,
    /// When the plan was made.
    pub made_at: Duration,
    /// Why it cannot be confirmed as it is.
    pub refusal: Option<String>,
}

/// A plan `P` that was made for a request `R`, and waits for its confirmation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownPlan<R, P> {
    /// Its request, which is repeated when the plan expires.
    pub request: R,
    /// The plan.
    pub plan: P,
    /// What confirms it.
    pub prompt: PlanPrompt,
}

/// Stage of a plan; `A` is what is known of it while it is applied.
#[derive(Clone, Debug, Default)]
pub enum PlanStage<R, P, A> {
    /// No plan.
    #[default]
    Empty,
    /// The plan is being made.
    Planning(R),
    /// The plan waits for its confirmation.
    Plan(Box<ShownPlan<R, P>>),
    /// The plan is being applied.
    Applying(A),
}

/// The plan of a screen, from its request to its end.
#[derive(Clone, Debug)]
pub struct PlanPane<R, P, A> {
    /// Its stage.
    pub stage: PlanStage<R, P, A>,
    /// Requests for the plan, or for what it is made from.
    pub requests: NumberedRequests,
    /// Screen to go back to.
    pub opened_from: Screen,
}

impl<R, P, A> Default for PlanPane<R, P, A> {
    fn default() -> PlanPane<R, P, A> {
        PlanPane {
            stage: PlanStage::Empty,
            requests: NumberedRequests::default(),
            opened_from: Screen::default(),
        }
    }
}

/// How a plan that was made differs from the one that it takes the place of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanChange {
    /// It is the first one.
    New,
    /// It changes the same, and goes on where that one was.
    Same,
    /// It changes the same, and has to be confirmed from the beginning.
    Renewed,
    /// It changes something else.
    Other,
}

impl<R: Clone, P, A> PlanPane<R, P, A> {
    /// Whether there is a plan, made or being made, that is not applied yet.
    pub fn is_open(&self) -> bool {
        matches!(self.stage, PlanStage::Plan(_) | PlanStage::Planning(_))
    }

    /// Whether the first plan is being made.
    pub fn is_planning(&self) -> bool {
        matches!(self.stage, PlanStage::Planning(_))
    }

    /// Returns what is known of the plan that is being applied, if one is.
    pub fn applying(&self) -> Option<&A> {
        match &self.stage {
            PlanStage::Applying(applying) => Some(applying),
            _ => None,
        }
    }

    /// Returns the plan that waits for its confirmation.
    pub fn shown(&self) -> Option<&ShownPlan<R, P>> {
        match &self.stage {
            PlanStage::Plan(shown) => Some(shown),
            _ => None,
        }
    }

    /// Returns the plan that waits for its confirmation, to change it.
    pub fn shown_mut(&mut self) -> Option<&mut ShownPlan<R, P>> {
        match &mut self.stage {
            PlanStage::Plan(shown) => Some(shown),
            _ => None,
        }
    }

    /// Returns the plan that waits for its confirmation.
    ///
    /// # Errors
    /// Why there is none.
    pub fn check_shown(&self) -> Result<&ShownPlan<R, P>, String> {
        let reason = if self.is_planning() {
            "the plan is not ready yet"
        } else {
            "no plan"
        };
        self.shown().ok_or(reason.to_string())
    }

    /// Returns the request of the plan that is not applied yet.
    pub fn request(&self) -> Option<&R> {
        match &self.stage {
            PlanStage::Planning(request) => Some(request),
            PlanStage::Plan(shown) => Some(&shown.request),
            PlanStage::Empty | PlanStage::Applying(_) => None,
        }
    }

    /// Begins a request. The plan of a replan takes the place of the shown one once it is made. Returns the
    /// number of the request.
    pub fn begin(&mut self, request: &R, is_replan: bool) -> u64 {
        if !is_replan {
            self.stage = PlanStage::Planning(request.clone());
        }
        self.requests.begin()
    }

    /// Ends the request that a reply answers. Returns it, unless the reply is late.
    pub fn accept(&mut self, id: u64) -> Option<R> {
        let is_awaited = self.requests.accept(id);
        self.request().filter(|_| is_awaited).cloned()
    }

    /// Shows a plan that was made now. One that changes the same as the shown one, which has not expired,
    /// keeps its age and what was typed.
    pub fn show(
        &mut self,
        mut new: ShownPlan<R, P>,
        changes_same: impl FnOnce(&P, &P) -> bool,
    ) -> PlanChange {
        let change = match self.shown() {
            None => PlanChange::New,
            Some(old)
                if old.prompt.confirmation != new.prompt.confirmation
                    || !changes_same(&old.plan, &new.plan) =>
            {
                PlanChange::Other
            }
            Some(old) if old.prompt.is_expired(new.prompt.made_at) => PlanChange::Renewed,
            Some(old) => {
                new.prompt.made_at = old.prompt.made_at;
                new.prompt.typed_text.clone_from(&old.prompt.typed_text);
                PlanChange::Same
            }
        };
        self.stage = PlanStage::Plan(Box::new(new));
        change
    }

    /// Abandons the plan, unless it is being applied. Returns whether there was one.
    pub fn abandon(&mut self) -> bool {
        let is_open = self.is_open();
        if is_open {
            self.stage = PlanStage::Empty;
        }
        is_open
    }

    /// Ends the plan. A reply to its request is late from then on.
    pub fn end(&mut self) -> PlanStage<R, P, A> {
        self.requests.is_pending = false;
        std::mem::take(&mut self.stage)
    }
}

/// A plan of any kind: what keys and time do to it is the same.
pub trait AnyPlan {
    /// Returns what confirms the plan; `None` while it is being made.
    fn prompt(&self) -> Option<&PlanPrompt>;

    /// Returns what confirms the plan, to be typed.
    fn prompt_mut(&mut self) -> Option<&mut PlanPrompt>;

    /// Returns when the plan expires; `None` while it is being made, also again.
    fn expires_at(&self) -> Option<Duration>;
}

impl<R: Clone, P, A> AnyPlan for PlanPane<R, P, A> {
    fn prompt(&self) -> Option<&PlanPrompt> {
        self.shown().map(|shown| &shown.prompt)
    }

    fn prompt_mut(&mut self) -> Option<&mut PlanPrompt> {
        self.shown_mut().map(|shown| &mut shown.prompt)
    }

    fn expires_at(&self) -> Option<Duration> {
        let prompt = self.prompt().filter(|_| !self.requests.is_pending);
        prompt.map(PlanPrompt::expires_at)
    }
}

/// What a key changes in a confirmation that is typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypedConfirmation {
    /// The words typed so far.
    Changed,
    /// The plan is confirmed.
    Confirmed,
    /// Nothing: Enter confirms only these words.
    Incomplete(String),
}

impl PlanPrompt {
    /// Creates the confirmation of a plan that was made now.
    pub fn new(confirmation: Confirmation, now: Duration) -> PlanPrompt {
        PlanPrompt {
            confirmation,
            typed_text: String::new(),
            made_at: now,
            refusal: None,
        }
    }

    /// Returns when the plan expires.
    pub fn expires_at(&self) -> Duration {
        self.made_at + PLAN_LIFETIME
    }

    /// Whether the plan is too old to be confirmed.
    pub fn is_expired(&self, now: Duration) -> bool {
        now >= self.expires_at()
    }

    /// Whether nothing more than the command to confirm is needed: the words are typed, if the plan asks
    /// for any.
    pub fn is_confirmed(&self) -> bool {
        match &self.confirmation {
            Confirmation::SingleKey => true,
            Confirmation::TypedText(words) => self.typed_text.trim() == words,
            Confirmation::NothingToRun | Confirmation::NewerNotes => false,
        }
    }

    /// Whether words are typed to confirm the plan.
    pub fn awaits_text(&self) -> bool {
        matches!(self.confirmation, Confirmation::TypedText(_)) && self.refusal.is_none()
    }

    /// Takes a key while the words are typed. Returns `None` for a key that is a command: the words
    /// begin with their first character, and the keys of other characters go on working until then.
    pub fn type_key(&mut self, key: Key) -> Option<TypedConfirmation> {
        let Confirmation::TypedText(word) = &self.confirmation else {
            return None;
        };
        let typed = &mut self.typed_text;
        match (key.code, key.printable_char()) {
            (_, Some(c)) if typed.is_empty() && !word.starts_with(c) => return None,
            (_, Some(c)) => typed.push(c),
            (KeyCode::Backspace, _) => drop(typed.pop()),
            (KeyCode::Char('u'), _) if key.has_ctrl && !typed.is_empty() => typed.clear(),
            (KeyCode::Enter, _) => {
                let word = word.clone();
                return Some(if self.is_confirmed() {
                    TypedConfirmation::Confirmed
                } else {
                    TypedConfirmation::Incomplete(word)
                });
            }
            _ => return None,
        }
        Some(TypedConfirmation::Changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_is_confirmed_by_all_its_words_alone() {
        let prompt = |confirmation: Confirmation, typed: &str| PlanPrompt {
            typed_text: typed.to_string(),
            ..PlanPrompt::new(confirmation, Duration::ZERO)
        };
        let words = || Confirmation::TypedText("prune 3".to_string());
        for (confirmation, typed, is_confirmed) in [
            (Confirmation::SingleKey, "", true),
            (words(), "prune 3 ", true),
            (words(), "prune", false),
            (words(), "", false),
            (Confirmation::NothingToRun, "", false),
            (Confirmation::NewerNotes, "", false),
        ] {
            let prompt = prompt(confirmation, typed);
            assert_eq!(prompt.is_confirmed(), is_confirmed, "{prompt:?}");
        }
    }

    #[test]
    fn equal_plan_in_time_keeps_what_was_typed() {
        let shown = |plan: u32, seconds: u64| ShownPlan {
            request: (),
            plan,
            prompt: PlanPrompt::new(Confirmation::SingleKey, Duration::from_secs(seconds)),
        };
        let mut pane = PlanPane::<(), u32, ()>::default();
        let mut show = |plan, seconds| {
            let change = pane.show(shown(plan, seconds), |old, new| old == new);
            let prompt = pane.prompt_mut().unwrap();
            let typed = std::mem::replace(&mut prompt.typed_text, "typed".to_string());
            (change, typed, prompt.made_at.as_secs())
        };
        assert_eq!(show(1, 0), (PlanChange::New, String::new(), 0));
        assert_eq!(show(1, 59), (PlanChange::Same, "typed".to_string(), 0));
        assert_eq!(show(1, 60), (PlanChange::Renewed, String::new(), 60));
        assert_eq!(show(2, 61), (PlanChange::Other, String::new(), 61));
    }
}
