//! Prepares the comparison of three versions of an agent's rules: as pushed last, as the baseline is
//! now, and as the memory is now.

use super::prepare::text_line;
use super::{LineKind, PreparedText, TextLine};
use crate::base::diff::drift::{ChangeKind, DriftCounts, LineChange, SectionDrift};
use crate::base::diff::{self};
use crate::base::quantity::format_count;
use crate::console::theme::Role;
use crate::engine::RuleComparison;

/// Prepares what the operator and the agent changed since the last push, by section.
pub fn prepare_rules(compared: &RuleComparison) -> PreparedText {
    let rules = &compared.rules;
    let [operator, agent] = [
        DriftCounts::of(rules.operator_changes()),
        DriftCounts::of(rules.agent_changes()),
    ];
    let mut lines = vec![note(
        Role::Text,
        match compared.pushed {
            Some(version) => format!(
                "Since version {} was pushed:   baseline {operator}   memory {agent}",
                version.short_hex(8)
            ),
            None => format!("No push is known; compared with the baseline:   memory {agent}"),
        },
    )];
    if !compared.has_boundary {
        let text = "No separator: the whole memory counts as rules.";
        lines.push(note(Role::Warn, text.to_string()));
    }
    let protected = rules.agent_changes().filter(|it| it.is_protection_gone());
    let count = protected.count();
    if count > 0 {
        let rules = format_count(count as u64, "rule");
        let text = format!("The agent removed or reworded {rules} with never, must or do not.");
        lines.push(note(Role::Bad, text));
    }
    lines.push(note(
        Role::Dim,
        "+ added   - removed   ~ edited   > moved".to_string(),
    ));
    for section in &rules.sections {
        push_section(&mut lines, section);
    }
    lines.into()
}

fn note(tone: Role, text: String) -> TextLine {
    TextLine {
        tones: vec![(0..text.len(), tone)],
        ..TextLine::note(text)
    }
}

/// Appends the changes of a section, if it has any.
fn push_section(lines: &mut Vec<TextLine>, section: &SectionDrift) {
    let groups = [
        ("changed in the baseline", &section.operator_changes, false),
        ("changed by the agent", &section.agent_changes, true),
    ];
    if groups.iter().all(|(_, changes, _)| changes.is_empty()) {
        return;
    }
    lines.push(TextLine::note(""));
    lines.push(if section.heading.is_empty() {
        note(
            Role::MarkdownHeading,
            "(before the first heading)".to_string(),
        )
    } else {
        TextLine {
            bytes: section.heading.clone(),
            tones: vec![(0..section.heading.len(), Role::MarkdownHeading)],
            ..TextLine::default()
        }
    });
    for (title, changes, is_by_agent) in groups {
        if changes.is_empty() {
            continue;
        }
        let counts = DriftCounts::of(changes);
        lines.push(note(Role::Dim, format!("{title}: {counts}")));
        for change in changes {
            push_change(lines, change);
            if is_by_agent && change.is_protection_gone() {
                let text = "a rule with never, must or do not";
                lines.push(note(Role::Bad, text.to_string()));
            }
        }
    }
}

/// Appends the lines of a change; a moved line once, with both of its numbers.
fn push_change(lines: &mut Vec<TextLine>, change: &LineChange) {
    let line = |kind, side: &Option<(usize, Vec<u8>)>, is_old: bool| {
        let (number, bytes) = side.clone()?;
        Some(TextLine {
            kind,
            old_number: is_old.then_some(number),
            new_number: (!is_old).then_some(number),
            bytes,
            ..TextLine::default()
        })
    };
    match (change.kind, &change.old, &change.new) {
        (ChangeKind::Edited, Some((old_number, old)), Some((new_number, new))) => {
            let words = diff::compare_lines(old, new, None);
            lines.extend(words.lines.into_iter().map(|words| TextLine {
                old_number: words.old_number.map(|_| *old_number),
                new_number: words.new_number.map(|_| *new_number),
                lacks_line_feed: false,
                ..text_line(words)
            }));
        }
        (ChangeKind::Moved, Some((old_number, _)), Some((new_number, text))) => {
            lines.push(TextLine {
                old_number: Some(*old_number),
                new_number: Some(*new_number),
                bytes: text.clone(),
                ..TextLine::default()
            });
        }
        (_, old, new) => {
            lines.extend(line(LineKind::Removed, old, true));
            lines.extend(line(LineKind::Added, new, false));
        }
    }
}
