//! Rules about baselines: sizes, parts, wording, separators, drift.

use super::*;

#[test]
fn complete_baseline_has_no_finding_above_info() {
    let text = baseline_with(&format!("## Work\n\n{}", FILLER.repeat(3)));
    let report = check_baseline(&text);
    let loud = report
        .findings
        .iter()
        .filter(|it| it.severity > Severity::Info);
    assert_eq!(loud.count(), 0, "{:#?}", report.findings);
    assert!(report.unchecked.is_empty());
}

#[test]
fn sizes_inform_by_their_limits() {
    let of_size = |size: usize| {
        let text = baseline_with("## Work\n\n");
        let filler = FILLER.repeat(size / FILLER.len() + 1);
        let missing = size.saturating_sub(text.len());
        text.replace("## Work\n\n", &format!("## Work\n\n{}", &filler[..missing]))
    };
    let rules_at = |size: usize| {
        let report = check_baseline(&of_size(size));
        let ids = report.findings.iter().map(|it| it.rule);
        ids.filter(|it| it.code() < "MS110").collect::<Vec<_>>()
    };
    assert_eq!(rules_at(900), [RuleId::BaselineTooSmall]);
    assert_eq!(rules_at(1500), [RuleId::BaselineThin]);
    assert_eq!(rules_at(4000), []);
    assert_eq!(
        rules_at(18_000),
        [],
        "max_memory_size alone is not a reason"
    );
    assert_eq!(rules_at(21_000), [RuleId::BaselineLarge, RuleId::OverLimit]);
    assert_eq!(
        rules_at(26_000),
        [RuleId::BaselineBloated, RuleId::OverLimit]
    );
    // A row of the console has room for it.
    for finding in check_baseline(&of_size(999_000)).findings {
        let is_about_size = finding.rule.code() < "MS110";
        let summary = finding.summary();
        assert!(!is_about_size || summary.len() <= 76, "{summary}");
    }
}

#[test]
fn encoding_faults_are_told_apart() {
    assert_severities(
        RuleId::BadEncoding,
        check_baseline,
        &[
            ("a\nb\n", NONE),
            ("a\r\nb\r\n", NONE),
            ("a\r\nb\n", W),
            ("a\rb\n", W),
            ("\u{FEFF}a\n", W),
            ("a\0b\n", E),
        ],
    );
    let settings = LintSettings::default();
    let report = check(
        b"a\xFF\n",
        TextRole::Baseline,
        &FleetFacts::default(),
        &settings,
    );
    assert_eq!(severity_of(&report, RuleId::BadEncoding), E);
    assert_eq!(
        report
            .findings
            .iter()
            .find(|it| it.rule == RuleId::BadEncoding)
            .unwrap()
            .range
            .start
            .col,
        2
    );
}

#[test]
fn missing_parts_need_a_separator_to_count() {
    let text = format!("# board\n\n{}", FILLER.repeat(4));
    let with_separator = format!("{text}\n---\n");
    for rule in [
        RuleId::MissingIdentity,
        RuleId::MissingRules,
        RuleId::MissingMemorySystem,
    ] {
        assert_eq!(
            severity_of(&check_baseline(&text), rule),
            NONE,
            "{}",
            rule.code()
        );
        assert!(
            severity_of(&check_baseline(&with_separator), rule).is_some(),
            "{}",
            rule.code()
        );
    }
    let report = check_baseline(&text);
    let coverage = report
        .findings
        .iter()
        .find(|it| it.rule == RuleId::Coverage)
        .unwrap();
    assert!(
        coverage
            .message
            .starts_with("0 of 7 parts found; not found: identity, rules")
    );
}

#[test]
fn empty_section_is_reported_unless_it_continues() {
    assert_severities(
        RuleId::EmptySection,
        check_section,
        &[
            ("## Tools\n", I),
            ("## Tools\n\n### Search\n\nUse `rg`.\n", NONE),
            ("## This heading is a sentence and says all of it.\n", NONE),
        ],
    );
}

#[test]
fn open_fence_is_an_error_if_it_hides_a_separator() {
    assert_eq!(
        severity_of(
            &check_baseline("text\n\n```\ncode\n"),
            RuleId::UnclosedFence
        ),
        W
    );
    assert_eq!(
        severity_of(
            &check_baseline("text\n\n```\ncode\n\n---\n"),
            RuleId::UnclosedFence
        ),
        E
    );
    assert_eq!(
        severity_of(
            &check_baseline("text\n\n```\ncode\n```\n\n---\n"),
            RuleId::UnclosedFence
        ),
        NONE
    );
}

#[test]
fn placeholders_are_told_from_code() {
    assert_severities(
        RuleId::PlaceholderLeft,
        check_section,
        &[
            ("Ask <your lead> first.", W),
            ("Ask {Name of the lead} first.", W),
            ("The channel is {{CHANNEL}}.", W),
            ("Send it to [insert channel here].", W),
            ("Owner: TBD", W),
            ("Set YOUR_API_HOST in the shell.", W),
            (
                "See [your runbook](https://handbook.example.org/run).",
                NONE,
            ),
            ("Use `${HOME}/notes` and {a,b}.", NONE),
            ("The list of TODO items is in the tracker.", NONE),
            ("```sh\necho <your name>\n```", NONE),
            ("<your a> <your b> <your c> <your d>", W),
            ("<your a> <your b> <your c> <your d> <your e>", E),
        ],
    );
    let text = baseline_with("<your a>\n\n<your b> <your c>\n<your d> <your e>");
    assert_eq!(unfilled_lines(text.as_bytes()).map(|it| it.len()), Some(3));
    assert_eq!(unfilled_lines(baseline_with("").as_bytes()), None);
}

#[test]
fn vague_rule_needs_a_test() {
    let with_rule = |rule: &str| {
        check_baseline(
            &baseline_with("").replace("Never delete a report; set its label instead.", rule),
        )
    };
    assert_severities(
        RuleId::VagueRule,
        with_rule,
        &[
            ("Be careful with reports of the lead.", I),
            ("Handle errors appropriately.", I),
            ("Be careful: run `lhctl check` first.", NONE),
            ("Never answer more than 3 reports.", NONE),
        ],
    );
}

#[test]
fn repeated_items_are_found_across_sections() {
    let one = "- Never push to the main branch of the service `herald` without a review of the lead who is on call.\n";
    let two = &one.replace("Never push", "never **push**");
    let three = &one.replace("a review", "a second review");
    assert_severities(
        RuleId::DuplicateRule,
        check_section,
        &[
            (&format!("## A\n\n{one}\n## B\n\n{two}"), W),
            (&format!("## A\n\n{one}\n## B\n\n{three}"), W),
            ("## A\n\n- ask the lead\n\n## B\n\n- ask the lead\n", NONE),
            (
                "## A\n\n- ✅ write the name of the host in full\n- ❌ write the name of the host in full\n",
                NONE,
            ),
            (
                "## A\n\n- **Host:** the one of the rota\n- **Port:** the one of the rota\n",
                NONE,
            ),
        ],
    );
}

#[test]
fn invitation_to_edit_the_baseline_is_reported() {
    assert_severities(
        RuleId::SelfEditInvitation,
        check_section,
        &[
            ("This file is yours to evolve.", W),
            ("When you learn something, update MEMORY.md.", W),
            ("Never update this file above the line.", NONE),
            ("Write to MEMORY.md below the line only.", NONE),
        ],
    );
}

#[test]
fn separators_of_a_baseline_are_judged() {
    let body = FILLER.repeat(3);
    let cases: &[(String, RuleId, Option<Severity>)] = &[
        (body.clone(), RuleId::SeparatorMissing, W),
        (format!("{body}\n---\n"), RuleId::SeparatorMissing, NONE),
        (format!("{body}\n---\n"), RuleId::SeparatorAmbiguous, NONE),
        (
            format!("{body}\n---\n\n{body}\n---\n"),
            RuleId::SeparatorAmbiguous,
            I,
        ),
        (
            format!("a\n\n---\n\nb\n\n---\n{}", body.repeat(3)),
            RuleId::SeparatorAmbiguous,
            W,
        ),
        (
            format!("{body}\n---\n\n## Scratch Notes\n"),
            RuleId::TextAfterSeparator,
            NONE,
        ),
        (
            format!("{body}\n---\n\nLast change: spring.\n"),
            RuleId::TextAfterSeparator,
            W,
        ),
        (
            format!("{body}\n---\n\n## Rules\n\n- One.\n"),
            RuleId::TextAfterSeparator,
            E,
        ),
        (
            format!("{body}\n---\n\n{body}\n{body}"),
            RuleId::TextAfterSeparator,
            E,
        ),
    ];
    for (text, rule, expected) in cases {
        assert_eq!(
            severity_of(&check_baseline(text), *rule),
            *expected,
            "{text}"
        );
    }
    let settings = LintSettings {
        is_shared: false,
        ..LintSettings::default()
    };
    let report = check(
        body.as_bytes(),
        TextRole::Baseline,
        &FleetFacts::default(),
        &settings,
    );
    assert_eq!(severity_of(&report, RuleId::SeparatorMissing), NONE);
}

#[test]
fn drift_is_reported_as_facts() {
    let pushed = "# Scout\n\n- Never delete.\n- Ask first.\n- Read all.\n\n---\n";
    let above = "# Scout\n\n- Ask first, if there is time.\n- Read all.\n- Be fast.\n\n---\n";
    let drift = check_drift(pushed, above);
    assert_eq!(drift.severity, Severity::Error);
    assert!(
        drift
            .message
            .contains("1 protected line with never/must/do not is gone: \"- Never delete.\""),
        "{}",
        drift.message
    );
    let facts = FleetFacts {
        drift: Some(DriftFacts::without_separator()),
        ..FleetFacts::default()
    };
    let role = TextRole::Memory {
        scratch_start: 0,
        is_intact: false,
    };
    let report = check(b"# Scout\n", role, &facts, &LintSettings::default());
    assert_eq!(severity_of(&report, RuleId::SeparatorMissing), E);
    assert_eq!(severity_of(&report, RuleId::Drift), NONE);
}

#[test]
fn underline_in_place_of_a_separator_is_named() {
    let facts = FleetFacts {
        drift: Some(DriftFacts::without_separator()),
        ..FleetFacts::default()
    };
    let role = TextRole::Memory {
        scratch_start: 0,
        is_intact: false,
    };
    let text = b"# Scout\n\nBe fast.\n---\n- a note\n";
    let report = check(text, role, &facts, &LintSettings::default());
    let mut found = report.findings.iter();
    let found = found
        .find(|it| it.rule == RuleId::SeparatorMissing)
        .unwrap();
    let why = "line 4 underlines the text above it, which makes that a heading";
    assert!(found.message.contains(why), "{}", found.message);
}

#[test]
fn moved_lines_are_no_losses() {
    let facts = DriftFacts::compare(b"a\nb\nc\nnever d\n", b"never d\na\nb\nc\n", None);
    assert_eq!(facts.to_string(), "lines 1 moved");
}

#[test]
fn status_and_logs_do_not_belong_in_a_baseline() {
    assert_severities(
        RuleId::StaleStatus,
        check_section,
        &[
            ("## In Progress\n\nThe move of the board.\n", W),
            ("## Next steps\n\nAsk the lead.\n", W),
            ("- [x] set up the host of the board\n", W),
            ("## Status codes\n\nA list of the codes.\n", NONE),
            ("- [ ] check the label before an answer\n", NONE),
        ],
    );
    let log = "## 2026-03-01\n\nx\n\n## 2026-03-02\n\nx\n\n## Mar 3, 2026\n\nx\n";
    assert_eq!(severity_of(&check_section(log), RuleId::DatedLog), W);
    assert_eq!(
        severity_of(&check_section(&log[..31]), RuleId::DatedLog),
        NONE
    );
    let transcript = "User: a\nAssistant: b\n**User:** c\nassistant: d\n";
    assert_eq!(
        severity_of(&check_notes(transcript), RuleId::RawTranscript),
        I
    );
    assert_eq!(
        severity_of(
            &check_notes("User: a\nAssistant: b\n"),
            RuleId::RawTranscript
        ),
        NONE
    );
}

/// Checks a memory against what was pushed; both parts end with a separator.
fn check_drift(pushed: &str, above: &str) -> Finding {
    let facts = FleetFacts {
        drift: Some(DriftFacts::compare(
            pushed.as_bytes(),
            above.as_bytes(),
            None,
        )),
        ..FleetFacts::default()
    };
    let role = TextRole::Memory {
        scratch_start: above.len(),
        is_intact: false,
    };
    let settings = LintSettings::default();
    let report = check(above.as_bytes(), role, &facts, &settings);
    let mut found = report.findings.into_iter();
    found.find(|it| it.rule == RuleId::Drift).unwrap()
}

#[test]
fn drift_begins_at_its_first_difference() {
    let line = |pushed: &str, above: &str| check_drift(pushed, above).range.start.line;
    assert_eq!(line("a\nb\nc\n---\n", "a\nc\n---\n"), 2, "only removed");
    assert_eq!(line("a\nb\nc\nd\n---\n", "a\nc\nd\ne\n---\n"), 2);
    assert_eq!(line("a\nb\n---\n", "x\na\nb\n---\n"), 1);
    assert_eq!(line("a\nb\nc\n", "a\nb\n"), 2, "behind the last line");
}

#[test]
fn fingerprint_of_drift_tells_all_changes() {
    let fingerprint = |above: &str| check_drift("a\nb\nc\nd\n---\n", above).fingerprint;
    let accepted = fingerprint("a\nx\nc\nd\n---\n");
    assert_eq!(accepted, fingerprint("a\nx\nc\nd\n---\n"));
    assert_ne!(accepted, fingerprint("a\nx\nc\n---\n"));
    assert_ne!(accepted, fingerprint("a\nx\nc\nd\ny\n---\n"));
    // A secret cannot be guessed from it.
    let with_secret = |value: &str| fingerprint(&format!("a\npassword: {value}\nc\nd\n---\n"));
    assert_eq!(with_secret("Hunter2-Blue"), with_secret("Hunter3-Blue"));
}

#[test]
fn lines_of_pasted_code_are_counted() {
    let message = |text: &str| {
        let report = check_baseline(text);
        let mut found = report.findings.into_iter();
        let found = found.find(|it| it.rule == RuleId::PastedReference);
        found.map(|it| it.related.len() + it.range.start.line)
    };
    let code = |lines: usize| format!("```\n{}", "x = 1\n".repeat(lines));
    assert_eq!(message(&code(40)), None, "open at the end");
    assert_eq!(message(&code(41)), Some(1), "open at the end");
    assert_eq!(message(&(code(40) + "```\n")), None);
    assert_eq!(message(&(code(41) + "```\n")), Some(1));
}

#[test]
fn heading_of_notes_is_no_late_text() {
    for heading in [
        "Scratchpad",
        "Notes",
        "Notizen",
        "Notas:",
        "Заметки",
        "笔记",
    ] {
        let text = baseline_with("").replace("Scratch Notes", heading);
        let severity = severity_of(&check_baseline(&text), RuleId::TextAfterSeparator);
        assert_eq!(severity, NONE, "{heading}");
    }
    let text = baseline_with("").replace("Scratch Notes", "Notes on deployment");
    let severity = severity_of(&check_baseline(&text), RuleId::TextAfterSeparator);
    assert_eq!(severity, Some(Severity::Error));
}
