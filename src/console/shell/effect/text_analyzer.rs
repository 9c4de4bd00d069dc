//! Analyzes the text of the editor in a job: syntax tones, and the findings of the lint.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::agent_texts::HIGHLIGHT_TIMEOUT;
use crate::console::markdown::MarkdownHighlighter;
use crate::console::message::TextAnalysis;
use crate::engine::{BaselineLint, Engine, PushedVersions};

/// Analyzes texts of the baselines of an engine.
pub(super) struct TextAnalyzer {
    engine: Arc<Engine>,
    /// Loaded for the first text.
    highlighter: OnceLock<MarkdownHighlighter>,
    /// What the baseline that was analyzed last is compared with, by its name.
    references: Mutex<Option<(String, Arc<References>)>>,
}

/// What the texts of one baseline are compared with; it is read from the disk once.
struct References {
    lint: BaselineLint,
    pushed_versions: PushedVersions,
}

impl TextAnalyzer {
    pub(super) fn new(engine: &Arc<Engine>) -> Arc<TextAnalyzer> {
        Arc::new(TextAnalyzer {
            engine: Arc::clone(engine),
            highlighter: OnceLock::new(),
            references: Mutex::default(),
        })
    }

    /// Reads the versions of the next baseline again.
    pub(super) fn forget_versions(&self) {
        *self.lock_references() = None;
    }

    /// Finds tones, findings, and what the text changes for its agents.
    pub(super) fn analyze(&self, baseline: String, generation: u64, text: &[u8]) -> TextAnalysis {
        let clock = self.engine.clock();
        let end = clock.instant() + HIGHLIGHT_TIMEOUT;
        let markdown = self.highlighter.get_or_init(MarkdownHighlighter::load);
        let tones = markdown.line_tones(text, &|| clock.instant() < end);
        let references = self.find_references(&baseline);
        let findings = references.lint.lint(text).findings;
        let end = clock.instant() + HIGHLIGHT_TIMEOUT;
        let rule_changes = references.pushed_versions.compare(text, end);
        TextAnalysis {
            baseline,
            generation,
            tones,
            findings,
            rule_changes,
        }
    }

    fn find_references(&self, name: &str) -> Arc<References> {
        let known = self.lock_references().clone();
        if let Some((_, references)) = known.filter(|(it, _)| it == name) {
            return references;
        }
        // An allowlist that cannot be read allows nothing; `lint` and `doctor` report it.
        let decisions = self.engine.lint().load_lint_decisions().unwrap_or_default();
        let references = Arc::new(References {
            lint: self.engine.lint().baseline_lint(name, &decisions),
            pushed_versions: self.engine.baselines().pushed_versions(name),
        });
        *self.lock_references() = Some((name.to_string(), Arc::clone(&references)));
        references
    }

    fn lock_references(&self) -> MutexGuard<'_, Option<(String, Arc<References>)>> {
        self.references
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
