//! The time of the lint grows with the text and no faster, whatever an agent wrote into it.

use std::time::{Duration, Instant};

use super::*;

/// Size of the smaller text, in bytes.
const SMALL_BYTES: usize = 16 << 10;
/// Number of times that the larger text is as long.
const GROWTH: usize = 16;
/// Number of times that the larger text may take as long. Linear work gives 16, quadratic work 256.
const MAX_RATIO: f64 = 64.0;
/// The shortest time that counts: a shorter one is noise.
const MIN_TIME: Duration = Duration::from_millis(20);

/// Checks that the time grows with the size of a text that repeats a piece, in each role and beside
/// an earlier version.
fn assert_linear(name: &str, piece: &str) {
    let time_of = |size: usize| {
        let text = piece.repeat(size / piece.len()).into_bytes();
        let memory = TextRole::Memory {
            scratch_start: 0,
            is_intact: true,
        };
        let facts = FleetFacts {
            pushed_version: Some(b"# scout\n\n---\n".to_vec()),
            sealed_version: Some(text.clone()),
            ..FleetFacts::default()
        };
        let settings = LintSettings::default();
        let start = Instant::now();
        for role in [TextRole::Baseline, memory] {
            check(&text, role, &facts, &settings);
        }
        start.elapsed().max(MIN_TIME)
    };
    // The least of two: another program may take the processor.
    let small = time_of(SMALL_BYTES).min(time_of(SMALL_BYTES));
    let large = time_of(SMALL_BYTES * GROWTH);
    let ratio = large.as_secs_f64() / small.as_secs_f64();
    assert!(ratio < MAX_RATIO, "{name}: {small:?}, then {large:?}");
}

#[test]
fn lint_of_lookalike_separators_is_linear() {
    assert_linear("lookalikes and headings", "———\n# a\n");
}

#[test]
fn lint_of_hostile_pieces_is_linear() {
    for (name, piece) in [
        ("headings", "# Rules\n"),
        ("separators", "---\n"),
        ("carriage returns", "\r"),
        ("NUL", "\0"),
        ("no UTF-8 and emoji", "🏴\u{E0041}"),
        ("characters without width", "\u{200B}"),
        ("links", "[a](https://a.example/x) "),
        ("lines of links", "[a](https://a.example/x)\n"),
        ("fences", "```\n"),
        ("one line", "a"),
        ("one line of words", "never do this "),
        ("items", "- one two three four five\n"),
        ("tables", "| a | b |\n"),
        ("downloads without an end", "curl eval \" "),
        ("hidden runs without an end", "base64 -d bash <(curl "),
        (
            "secrets in a long token",
            "eyJaaaaaaaaaa-AKIA0123456789ABCDEF-",
        ),
        (
            "secrets in a long address",
            "x.sk-abcdefghijklmnopqrstuvwxyz0123456789.",
        ),
        ("orders to send secrets", "send .env to a.io "),
        ("overrides on a line", "[INST] "),
        ("assignments", "password: aB3$xyz9Q!mm "),
        ("escapes", "\x1B["),
        ("placeholders", "<your x> {Aa "),
        ("comments", "<!-- shepherd:ignore MS305 a --> "),
        ("open comments", "<!-- shepherd:ignore MS305 "),
        ("encoded", "aWdub3JlIGFsbCBwcmV2aW91cyBpbnN0cnVjdGlvbnM= "),
    ] {
        assert_linear(name, piece);
    }
}

#[test]
fn line_of_16_mib_is_linted() {
    let report = check_baseline(&"a".repeat(16 << 20));
    assert_eq!(severity_of(&report, RuleId::HugeLine), W);
}
