//! A plan that waits for its confirmation: what confirms it, what has been typed, and until when. All
//! plans of the console have one: of runs, of baselines, of a prune and of the schedule.

use std::time::Duration;

use crate::console::keys::key::{Key, KeyCode};

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
}
