//! Draws the last verification: its findings, its parts, and the baselines with their seal.

use unicode_width::UnicodeWidthStr;

use crate::base::quantity::{format_count, format_size};
use crate::base::untrusted;
use crate::console::age::{format_age, format_time};
use crate::console::command::Command;
use crate::console::frame::draw_fleet_name;
use crate::console::model::Model;
use crate::console::screens::baselines::view::{fact_lines, seal_problem, short_state, state_role};
use crate::console::screens::verify::state::{PartResult, VerifyRow, VerifyStage};
use crate::console::screens::verify::update::{check_subject, would_write};
use crate::console::theme::Role;
use crate::console::widgets::canvas::{
    Canvas, fit_start_of_sentence, shorten_untrusted, wrap_text,
};
use crate::console::widgets::list_pane::NO_HIGHLIGHT;
use crate::engine::{BaselineSummary, Finding, FindingSubject, VerifyProgress};

/// Lines about the row under the cursor.
const DETAIL_LINES: u16 = 4;

/// Column behind the result.
const NAME_X: u16 = 13;

pub fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    let x = canvas.put_text(0, 0, "VERIFY", Role::Title) + 2;
    let x = draw_fleet_name(model, canvas, x, 0);
    draw_status(model, canvas, x);
    draw_seal_line(model, canvas);
    canvas.draw_rule(2);
    canvas.put_text(2, 3, "RESULT", Role::Heading);
    canvas.put_text(NAME_X, 3, "WHAT", Role::Heading);
    let rows = model.verify.rows(&model.baselines);
    let height = verify_list_height(model);
    model
        .verify
        .list
        .draw(canvas, 4, (rows.len(), height), |canvas, y, index| {
            draw_row(model, canvas, y, &rows[index]);
            NO_HIGHLIGHT
        });
    let bottom = canvas.area.height - 3 - DETAIL_LINES;
    canvas.draw_rule(bottom);
    if let Some(row) = rows.get(model.verify.list.cursor) {
        draw_details(model, canvas, bottom + 1, row);
    }
}

/// Draws when the verification ran and how it ended, or how far it is.
fn draw_status(model: &Model, canvas: &mut Canvas<'_>, x: u16) {
    let (text, role) = match &model.verify.stage {
        VerifyStage::Never => ("not verified yet".to_string(), Role::Dim),
        VerifyStage::Running {
            is_cancelled: true, ..
        } => ("stopping …".to_string(), Role::Warn),
        VerifyStage::Running { progress, .. } => {
            let key = model.key_hint(Command::Quit);
            (
                format!("{}  {key} stops", describe_progress(*progress)),
                Role::Text,
            )
        }
        VerifyStage::Done(result) => match &result.outcome {
            Err(_) => ("not verified".to_string(), Role::Bad),
            Ok(found) => {
                let age = format_age(model.now.local_time, result.ended_at);
                let seconds = result.duration.as_millis();
                let took = format!("{}.{}s", seconds / 1000, seconds % 1000 / 100);
                let ran = format!("ran {age} ago ({took})");
                let failures = found.findings.len() as u64 + found.omitted_findings;
                if result.is_outdated {
                    let key = model.key_hint(Command::VerifyNow);
                    let text = format!("{ran}  baselines changed since: {key} verifies again");
                    return draw_status_text(canvas, x, &text, Role::Warn);
                }
                match (failures, found.describe_unsealed()) {
                    (0, Some(unsealed)) => (format!("{ran}  {unsealed}"), Role::Warn),
                    (0, None) => (format!("{ran}  nothing wrong"), Role::Good),
                    (1, _) => (format!("{ran}  1 FAILURE"), Role::Bad),
                    (count, _) => (format!("{ran}  {count} FAILURES"), Role::Bad),
                }
            }
        },
    };
    draw_status_text(canvas, x, &text, role);
}

fn draw_status_text(canvas: &mut Canvas<'_>, x: u16, text: &str, role: Role) {
    canvas.put_start(x, 0, text, role);
}

fn describe_progress(progress: Option<VerifyProgress>) -> String {
    match progress {
        None => "reading the ledger …".to_string(),
        Some(VerifyProgress::Ledger(lines)) => format!("ledger: {lines} records"),
        Some(VerifyProgress::Entries(number, count)) => format!("entries: {number} of {count}"),
        Some(VerifyProgress::Versions(number)) => format!("baseline versions: {number}"),
    }
}

/// Draws what the seal covers.
fn draw_seal_line(model: &Model, canvas: &mut Canvas<'_>) {
    let summaries = model.baselines.summaries();
    let sealed = summaries.iter().filter(|it| it.sealed.is_some()).count();
    let list = model
        .baselines
        .list
        .as_ref()
        .and_then(|it| it.as_ref().ok());
    let problem = list.and_then(|list| seal_problem(list));
    let (text, role) = match (summaries.len(), sealed) {
        (0, _) => (String::new(), Role::Dim),
        (_, 0) if problem.is_some() => (problem.unwrap_or_default(), Role::Bad),
        (count, 0) => {
            let keys = [Command::GoBaselines, Command::MarkAll, Command::PlanSeal];
            let keys = keys.map(|it| model.key_hint(it)).join(" ");
            let baselines = format_count(count as u64, "baseline");
            let keys = if model.read_only.is_forced {
                String::new()
            } else {
                format!("; {keys} seals")
            };
            let text = format!("no seal: integrity of {baselines} is NOT checked{keys}");
            (text, Role::Warn)
        }
        (count, sealed) => {
            let differs = |it: &&BaselineSummary| it.sealed.is_some() && it.sealed != it.sha256;
            let listed = format!("the seal lists {sealed} of {count} baselines");
            match summaries.iter().filter(differs).count() {
                0 => (listed, Role::Text),
                1 => (format!("{listed}; 1 differs from it"), Role::Warn),
                count => (format!("{listed}; {count} differ from it"), Role::Warn),
            }
        }
    };
    canvas.put_start(0, 1, &text, role);
}

fn draw_row(model: &Model, canvas: &mut Canvas<'_>, y: u16, row: &VerifyRow) {
    let room = canvas.room(NAME_X);
    match row {
        VerifyRow::Part {
            name,
            result,
            summary,
        } => {
            let role = match result {
                PartResult::Ok => Role::Good,
                PartResult::Partial | PartResult::Unchecked => Role::Warn,
                PartResult::Failed(_) => Role::Bad,
            };
            canvas.put_text(2, y, &result.word(), role);
            let text = format!("{name:<10} {summary}");
            canvas.put_text(NAME_X, y, &fit_start_of_sentence(&text, room), Role::Text);
        }
        VerifyRow::Failure(why) => {
            canvas.put_text(2, y, "FAIL", Role::Bad);
            let text = fit_start_of_sentence(why, room);
            canvas.put_text(NAME_X, y, &text, Role::Text);
        }
        VerifyRow::Finding(index) => {
            let found = model.verify.verification();
            let Some(finding) = found.and_then(|found| found.findings.get(*index)) else {
                return;
            };
            canvas.put_text(2, y, "FAIL", Role::Bad);
            let text = fit_start_of_sentence(&finding.message, room);
            canvas.put_text(NAME_X, y, &text, Role::Text);
        }
        VerifyRow::Note(note) => {
            canvas.put_text(2, y, "note", Role::Warn);
            let text = fit_start_of_sentence(note, room);
            canvas.put_text(NAME_X, y, &text, Role::Text);
        }
        VerifyRow::Baseline(name) => {
            if let Some(summary) = model.baselines.find(name) {
                draw_baseline(model, canvas, y, summary);
            }
        }
    }
}

/// Draws a baseline: its state, the digests in the seal and on the disk, size, time and owner.
fn draw_baseline(model: &Model, canvas: &mut Canvas<'_>, y: u16, summary: &BaselineSummary) {
    canvas.put_text(2, y, short_state(summary.state), state_role(summary.state));
    let is_wide = canvas.width() >= 110;
    let name_width: u16 = if is_wide { 34 } else { 26 };
    let name = shorten_untrusted(&summary.name, usize::from(name_width) - 1);
    let mut x = NAME_X;
    canvas.put_text(x, y, &name, Role::Text);
    x += name_width;
    let digest = |digest: Option<crate::base::digest::Digest>| {
        digest.map_or("none".to_string(), |it| format!("{}…", it.short_hex(6)))
    };
    let is_equal = summary.sealed == summary.sha256;
    let digests = match (summary.sealed, summary.sha256) {
        (None, actual) => format!("{} not in the seal", digest(actual)),
        (sealed, _) if is_equal => digest(sealed),
        (sealed, actual) => format!("{} != {}", digest(sealed), digest(actual)),
    };
    let role = if is_equal { Role::Dim } else { Role::Text };
    canvas.put_text(x, y, &digests, role);
    x += 26;
    let Some(owner) = summary.owner.filter(|_| usize::from(x) < canvas.room(0)) else {
        return;
    };
    let size = summary.size.map_or("-".to_string(), format_size);
    let changed = format_time(model.now.local_time, owner.changed_at);
    let facts = format!(
        "{size:>6}  {changed}  uid {} mode {:04o}",
        owner.uid, owner.mode
    );
    let room = usize::from(canvas.width() - x);
    // The lines below have the same facts.
    if facts.width() <= room {
        canvas.put_text(x, y, &facts, Role::Dim);
    }
}

/// Draws the row under the cursor in full, and what can be done about it.
fn draw_details(model: &Model, canvas: &mut Canvas<'_>, y: u16, row: &VerifyRow) {
    let room = canvas.room(2);
    let mut lines: Vec<(String, Role)> = Vec::new();
    let mut push = |text: &str, role: Role| {
        let wrapped = wrap_text(
            &untrusted::visible_line(text),
            room,
            usize::from(DETAIL_LINES),
        );
        lines.extend(wrapped.into_iter().map(|line| (line, role)));
    };
    match row {
        VerifyRow::Part { name, summary, .. } => push(&format!("{name}: {summary}"), Role::Text),
        VerifyRow::Failure(why) => push(why, Role::Bad),
        VerifyRow::Note(note) => push(note, Role::Text),
        VerifyRow::Finding(index) => {
            let found = model.verify.verification();
            if let Some(finding) = found.and_then(|found| found.findings.get(*index)) {
                push(&finding.message, Role::Bad);
                push(&remedy(model, finding), Role::Text);
            }
        }
        VerifyRow::Baseline(name) => {
            if let Some(summary) = model.baselines.find(name) {
                for (text, role) in fact_lines(model, summary) {
                    push(&text, role);
                }
            }
        }
    }
    for ((text, role), y) in lines.iter().take(usize::from(DETAIL_LINES)).zip(y..) {
        canvas.put_text(1, y, text, *role);
    }
}

/// Says what can be done about a finding, with the keys.
fn remedy(model: &Model, finding: &Finding) -> String {
    let key = |command| model.key_hint(command);
    let keys = match finding.subject {
        FindingSubject::Baseline if check_subject(model).is_ok() => {
            let changes = [
                (Command::PlanRestore, "restores the sealed version"),
                (Command::PlanSeal, "seals this one"),
            ];
            let mut keys = format!("{} shows the change", key(Command::OpenSelected));
            for (command, what) in changes {
                if !model.read_only.is_forced && would_write(model, command) {
                    keys.push_str(&format!(", {} {what}", key(command)));
                }
            }
            return keys;
        }
        FindingSubject::Seal => {
            let (baselines, seal) = (key(Command::GoBaselines), key(Command::PlanSeal));
            if model.read_only.is_forced {
                format!("{baselines} shows the baselines")
            } else {
                format!("{baselines} shows the baselines; there {seal} seals those that are marked")
            }
        }
        _ => {
            let (pager, copy) = (key(Command::OpenPager), key(Command::CopyAll));
            format!("{pager} opens the report, {copy} copies it")
        }
    };
    match finding.hints.first() {
        Some(hint) => format!("{hint}; {keys}"),
        None => keys,
    }
}

/// Returns the number of rows of the verification that fit.
pub fn verify_list_height(model: &Model) -> usize {
    // Two lines of header, a rule, the column heads; a rule, the details, the message, the hints.
    let fixed = 7 + usize::from(DETAIL_LINES);
    model.rows_beside(fixed)
}
