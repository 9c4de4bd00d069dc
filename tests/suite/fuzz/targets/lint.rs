//! The lint on any text.

use memory_shepherd::lint::{
    FleetFacts, LintInput, LintSettings, TextRole, apply_safe_fixes, lint,
};

/// Fuzzes the lint. The first byte is the role of the text: a baseline, notes, or a memory whose
/// scratch begins after as many bytes.
pub fn lint_text(bytes: &[u8]) {
    let (first, text) = bytes.split_first().unwrap_or((&0, b""));
    let role = match first {
        0 => TextRole::Baseline,
        1 => TextRole::Scratch,
        length => TextRole::Memory {
            scratch_start: usize::from(*length).min(text.len()),
            is_intact: length % 2 == 0,
        },
    };
    let check = |text: &[u8]| {
        let input = LintInput {
            agent: None,
            path: "MEMORY.md",
            text,
            role,
            separator: "---",
            facts: &FleetFacts::default(),
        };
        lint(&input, &LintSettings::default())
    };
    let report = check(text);
    for finding in &report.findings {
        for range in finding.ranges() {
            assert!(range.start.byte <= range.end.byte && range.end.byte <= text.len());
        }
        assert!(!finding.message.chars().any(char::is_control));
    }
    for secret in &report.secrets {
        assert!(secret.start < secret.end && secret.end <= text.len());
    }
    if let Some(fixed) = apply_safe_fixes(text, &report.findings)
        && role == TextRole::Baseline
    {
        let again = check(&fixed);
        assert_eq!(apply_safe_fixes(&fixed, &again.findings), None);
    }
}
