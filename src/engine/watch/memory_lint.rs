//! The lint of a memory.

use std::time::Duration;

use crate::base::error::{Error, ErrorKind, Result};
use crate::boundary::with_line_ends_of;
use crate::config::Agent;
use crate::engine::baselines::lint::{LintDecisions, LintedFile, end_of_last_separator};
use crate::engine::watch::Observer;
use crate::lint::{DriftFacts, FleetFacts, LintInput, TextRole, lint};

/// Time limit of the comparison of a memory with what was pushed; after it, the counts are those of
/// a coarser diff.
const DRIFT_DIFF_TIMEOUT: Duration = Duration::from_millis(500);

impl Observer {
    /// Lints the memory of an agent; `None` where it does not exist yet.
    ///
    /// # Errors
    /// The memory cannot be read.
    pub fn lint_memory(
        &self,
        agent: &Agent,
        decisions: &LintDecisions,
    ) -> Result<Option<LintedFile>> {
        let detail = self.read_detail(agent);
        if detail.observation.is_absent {
            return Ok(None);
        }
        if let Some(why) = &detail.error {
            let message = format!("cannot read the memory of {}: {why}", agent.name);
            return Err(Error::new(ErrorKind::Host, message));
        }
        let content = detail.observation.content.as_ref();
        let boundary = content.and_then(|content| content.boundary);
        // Without a usable baseline the boundary is unknown; the memory is not at fault.
        let is_scratch_known = detail.observation.is_scratch_known();
        let text = detail.memory_prefix;
        let size = content.map_or(text.len() as u64, |content| content.size);
        let mut facts = FleetFacts {
            memory_size: Some(size),
            ..FleetFacts::default()
        };
        let role = match boundary {
            Some(boundary) => TextRole::Memory {
                scratch_start: boundary.offset.min(text.len()),
                is_intact: !boundary.is_drifted(),
            },
            None => TextRole::Memory {
                scratch_start: if is_scratch_known {
                    text.len()
                } else {
                    end_of_last_separator(&text, agent.separator())
                },
                is_intact: false,
            },
        };
        if let (Some(boundary), Some(pushed)) = (
            boundary.filter(|it| it.is_drifted()),
            detail.operator_part.as_ref(),
        ) {
            let (above, _) = boundary.split(&text);
            let deadline = self.context.clock().instant() + DRIFT_DIFF_TIMEOUT;
            let pushed = with_line_ends_of(pushed, above);
            let drift = DriftFacts::compare(&pushed, above, Some(deadline));
            facts.drift = Some(drift.with_separator_line(boundary.line));
        } else if boundary.is_none() && is_scratch_known {
            facts.drift = Some(DriftFacts::without_separator());
        }
        let path = agent.observed_path().to_path_buf();
        let settings = self.lint.lint_settings(Some(agent), decisions);
        let report = lint(
            &LintInput {
                agent: Some(&agent.name),
                path: &path.to_string_lossy(),
                text: &text,
                role,
                separator: agent.separator(),
                facts: &facts,
            },
            &settings,
        );
        Ok(Some(LintedFile {
            unread_bytes: size.saturating_sub(text.len() as u64),
            path,
            text,
            report,
        }))
    }
}
