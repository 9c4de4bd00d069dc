//! What a command over baselines is about: the baseline under the cursor, the marked ones, the version
//! to restore, the rows of a verification.

use super::Model;
use crate::console::command::require;
use crate::console::screen::Screen;
use crate::console::screens::baselines::state::NO_BASELINE_REASON;
use crate::console::screens::verify::state::{VerifyRow, part_rows};
use crate::engine::BaselineState;

impl Model {
    /// Returns the name of the baseline that a key is about: that of the agent, where the screen shows
    /// agents.
    pub fn subject_baseline(&self) -> Option<&str> {
        match self.screen {
            Screen::Baselines => return self.baselines.subject(),
            Screen::Verify => return self.verify_subject(),
            Screen::Editor => return self.editor.as_ref().map(|it| it.opened.name.as_str()),
            _ => {}
        }
        let row = self.find_row(self.subject_agent()?);
        row?.baseline.as_deref()
    }

    /// Checks that a key is about a baseline.
    pub fn check_subject_baseline(&self) -> Result<(), String> {
        self.check_subject_is_reset()?;
        let reason = match self.screen {
            Screen::Baselines => NO_BASELINE_REASON.to_string(),
            _ => self.no_subject_reason(),
        };
        require(self.subject_baseline().is_some(), reason)
    }

    /// Returns the version that the restore key would put back, in the engine's words.
    ///
    /// # Errors
    /// The version under the cursor cannot be put back.
    pub fn restorable_version(&self) -> Result<String, String> {
        match self.screen {
            Screen::Baselines => Ok(self.baselines.restorable_version()?.argument()),
            _ => Ok("sealed".to_string()),
        }
    }

    /// Returns the baselines that a plan is for.
    pub fn target_baselines(&self) -> Vec<String> {
        if self.screen == Screen::Baselines {
            return self.baselines.targets();
        }
        let subject = self.subject_baseline();
        subject.map(str::to_string).into_iter().collect()
    }

    /// Returns the rows of the verify screen: why it failed or the findings first, then the parts, the remarks, and the
    /// baselines.
    pub fn verify_rows(&self) -> Vec<VerifyRow> {
        let mut rows = Vec::new();
        rows.extend(self.verify.failure().map(VerifyRow::Failure));
        if let Some(found) = self.verify.verification() {
            rows.extend((0..found.findings.len()).map(VerifyRow::Finding));
            rows.extend(part_rows(found));
            rows.extend(found.notes.iter().cloned().map(VerifyRow::Note));
        }
        let names = self.baselines.summaries().iter().map(|it| it.name.clone());
        rows.extend(names.map(VerifyRow::Baseline));
        rows
    }

    /// Returns the row under the cursor of the verify screen.
    pub fn current_verify_row(&self) -> Option<VerifyRow> {
        self.verify_rows().into_iter().nth(self.verify.list.cursor)
    }

    /// Returns the baseline that the row under the cursor of the verify screen is about.
    pub fn verify_subject(&self) -> Option<&str> {
        let summaries = self.baselines.summaries();
        let name = match self.current_verify_row()? {
            VerifyRow::Baseline(name) => name,
            VerifyRow::Finding(index) => {
                let finding = self.verify.verification()?.findings.get(index)?;
                finding.baseline.clone()?
            }
            VerifyRow::Failure(_) | VerifyRow::Part { .. } | VerifyRow::Note(_) => return None,
        };
        let mut found = summaries.iter().filter(|it| it.name == name);
        found.next().map(|it| it.name.as_str())
    }

    /// Returns the report of the verification as text, for the clipboard and the pager.
    pub fn verify_report(&self) -> Option<String> {
        if let Some(why) = self.verify.failure() {
            return Some(format!("FAIL   {why}\n"));
        }
        let found = self.verify.verification()?;
        let mut text = String::new();
        for row in part_rows(found) {
            if let VerifyRow::Part {
                name,
                result,
                summary,
            } = row
            {
                let word = result.word();
                text.push_str(&format!("{word:<6} {name:<10} {summary}\n"));
            }
        }
        for finding in &found.findings {
            text.push_str(&format!("FAIL   {}\n", finding.message));
            for hint in &finding.hints {
                text.push_str(&format!("       hint: {hint}\n"));
            }
        }
        for note in &found.notes {
            text.push_str(&format!("note   {note}\n"));
        }
        for summary in self.baselines.summaries() {
            if summary.state == BaselineState::Ok {
                continue;
            }
            let owner = summary.owner.map(|owner| owner.describe());
            let digest = |digest: Option<crate::base::digest::Digest>| {
                digest.map_or("none".to_string(), |it| it.to_string())
            };
            text.push_str(&format!(
                "{:<22} {}\n      sealed {}, on disk {}\n",
                summary.state.as_str(),
                summary.name,
                digest(summary.sealed),
                digest(summary.sha256)
            ));
            text.extend(owner.map(|owner| format!("      {owner}\n")));
        }
        Some(text)
    }

    /// Whether the screen shows verification results that a changed baseline outdates.
    pub fn shows_baseline_states(&self) -> bool {
        matches!(self.screen, Screen::Baselines | Screen::Verify)
    }
}
