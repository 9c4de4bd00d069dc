//! How the last run of a timer ended, by the service manager and the ledger. The console and
//! `schedule status` show it in the same words.

use super::status::TimerStatus;
use crate::engine::Outcome;

/// Outcomes in the order in which they are named: what needs attention first.
const NAMED_OUTCOMES: [Outcome; 5] = [
    Outcome::Failed,
    Outcome::Refused,
    Outcome::NotStarted,
    Outcome::Ok,
    Outcome::Unchanged,
];

/// What the ledger has of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunOutcomes {
    /// The outcome of each agent.
    pub outcomes: Vec<Outcome>,
    /// Problem that concerns no single agent.
    pub problem: Option<String>,
}

/// How the last run of a timer ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TimerResult {
    /// There was none, or it is not known.
    #[default]
    Unknown,
    /// It runs now.
    Running,
    /// It ended well; the numbers of agents, if the ledger has them, in words.
    Ok(String),
    /// It failed; what the service manager and the ledger say, in words.
    Failed(String),
}

impl RunOutcomes {
    fn has_failed(&self) -> bool {
        self.problem.is_some() || self.outcomes.iter().any(|it| it.is_failure())
    }

    /// Describes the numbers of agents: "1 failed, 2 ok".
    fn describe(&self) -> String {
        let count = |outcome: Outcome| self.outcomes.iter().filter(|it| **it == outcome).count();
        let counts = NAMED_OUTCOMES.map(|outcome| (count(outcome), outcome.count_label()));
        let counts = counts.into_iter().filter(|(count, _)| *count > 0);
        let counts = counts.map(|(count, label)| format!("{count} {}", label.to_lowercase()));
        let parts: Vec<String> = counts.chain(self.problem.clone()).collect();
        parts.join(", ")
    }
}

impl TimerResult {
    /// Returns how a run ended that no service manager started.
    pub fn of_run(run: &RunOutcomes) -> TimerResult {
        if run.has_failed() {
            TimerResult::Failed(run.describe())
        } else if run.outcomes.is_empty() {
            TimerResult::Ok("ok".to_string())
        } else {
            TimerResult::Ok(run.describe())
        }
    }

    /// Returns how the last run of a timer ended: the service manager knows whether, and the ledger how
    /// many.
    pub fn of_timer(status: &TimerStatus, run: Option<&RunOutcomes>) -> TimerResult {
        let of_run = run.map(TimerResult::of_run).unwrap_or_default();
        match &status.result {
            _ if status.running => TimerResult::Running,
            None => of_run,
            Some(result) if result == "success" => match of_run {
                // What the ledger has was another run.
                TimerResult::Failed(_) | TimerResult::Unknown => TimerResult::Ok("ok".to_string()),
                of_run => of_run,
            },
            Some(result) => {
                let how = match (result.as_str(), status.exit_code) {
                    ("exit-code", Some(code)) => format!("exit {code}"),
                    _ => result.clone(),
                };
                TimerResult::Failed(match of_run {
                    TimerResult::Failed(counts) => format!("{how}: {counts}"),
                    _ => how,
                })
            }
        }
    }

    /// Describes it: "3 ok", "exit 4: 1 refused, 2 ok".
    pub fn describe(&self) -> &str {
        match self {
            TimerResult::Unknown => "-",
            TimerResult::Running => "running",
            TimerResult::Ok(text) | TimerResult::Failed(text) => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_of(outcomes: &[Outcome]) -> RunOutcomes {
        RunOutcomes {
            outcomes: outcomes.to_vec(),
            problem: None,
        }
    }

    fn status_of(result: Option<&str>, exit_code: i32) -> TimerStatus {
        TimerStatus {
            active: true,
            enabled: "enabled".to_string(),
            next: None,
            last: None,
            result: result.map(str::to_string),
            exit_code: Some(exit_code),
            running: false,
            missed: false,
        }
    }

    #[test]
    fn result_joins_service_manager_and_ledger() {
        let good = run_of(&[Outcome::Unchanged, Outcome::Ok, Outcome::Ok]);
        let bad = run_of(&[Outcome::Ok, Outcome::Failed]);
        for (result, code, run, text) in [
            (Some("success"), 0, Some(&good), "2 ok, 1 unchanged"),
            // The ledger does not have this run.
            (Some("success"), 0, Some(&bad), "ok"),
            (Some("success"), 0, None, "ok"),
            (Some("exit-code"), 3, Some(&bad), "exit 3: 1 failed, 1 ok"),
            (Some("exit-code"), 3, Some(&good), "exit 3"),
            (Some("timeout"), 0, None, "timeout"),
            (None, 0, Some(&bad), "1 failed, 1 ok"),
            (None, 0, None, "-"),
        ] {
            let found = TimerResult::of_timer(&status_of(result, code), run);
            assert_eq!(found.describe(), text, "{result:?}");
        }
    }

    #[test]
    fn problem_of_no_agent_is_a_failure() {
        let run = RunOutcomes {
            problem: Some("the ledger is full".to_string()),
            ..run_of(&[Outcome::Ok])
        };
        let failed = TimerResult::Failed("1 ok, the ledger is full".to_string());
        assert_eq!(TimerResult::of_run(&run), failed);
    }
}
