//! Analyzes the text of the editor in a job: syntax tones, and the findings of the lint.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::agent_texts::HIGHLIGHT_TIMEOUT;
use crate::console::markdown::MarkdownHighlighter;
use crate::console::message::TextAnalysis;
use crate::engine::{BaselineLint, Engine};

/// Analyzes texts of the baselines of an engine.
pub(super) struct TextAnalyzer {
    engine: Arc<Engine>,
    /// Loaded for the first text.
    highlighter: OnceLock<MarkdownHighlighter>,
    /// The lint of the baseline that was analyzed last; it reads other versions from the disk.
    lint: Mutex<Option<(String, Arc<BaselineLint>)>>,
}

impl TextAnalyzer {
    pub(super) fn new(engine: &Arc<Engine>) -> Arc<TextAnalyzer> {
        Arc::new(TextAnalyzer {
            engine: Arc::clone(engine),
            highlighter: OnceLock::new(),
            lint: Mutex::default(),
        })
    }

    /// Reads the versions of the next baseline again.
    pub(super) fn forget_versions(&self) {
        *self.lock_lint() = None;
    }

    /// Finds tones and findings.
    pub(super) fn analyze(&self, baseline: String, generation: u64, text: &[u8]) -> TextAnalysis {
        let clock = self.engine.clock();
        let end = clock.instant() + HIGHLIGHT_TIMEOUT;
        let markdown = self.highlighter.get_or_init(MarkdownHighlighter::load);
        let tones = markdown.line_tones(text, &|| clock.instant() < end);
        let findings = self.find_lint(&baseline).lint(text).findings;
        TextAnalysis {
            baseline,
            generation,
            tones,
            findings,
        }
    }

    fn find_lint(&self, name: &str) -> Arc<BaselineLint> {
        let known = self.lock_lint().clone();
        if let Some((_, lint)) = known.filter(|(it, _)| it == name) {
            return lint;
        }
        // An allowlist that cannot be read allows nothing; `lint` and `doctor` report it.
        let decisions = self.engine.load_lint_decisions().unwrap_or_default();
        let lint = Arc::new(self.engine.baseline_lint(name, &decisions));
        *self.lock_lint() = Some((name.to_string(), Arc::clone(&lint)));
        lint
    }

    fn lock_lint(&self) -> MutexGuard<'_, Option<(String, Arc<BaselineLint>)>> {
        self.lint.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
