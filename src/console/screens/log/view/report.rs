//! The report at the top of the log: what happened since the last evening, the worst first.

use crate::console::canvas::{Canvas, fit_end_of_sentence, shorten_untrusted, truncate_untrusted};
use crate::console::command::Command;
use crate::console::model::Model;
use crate::console::screens::log::state::ReportText;
use crate::console::theme::Role;
use crate::engine::{ReportLevel, ReportRow};
use crate::quantity::format_count;

/// Column of the subjects, behind the topics.
const SUBJECT_X: u16 = 15;

/// Draws the report.
pub(super) fn draw_report(model: &Model, canvas: &mut Canvas<'_>, y: u16) {
    let report = match &model.log.report {
        None => return,
        Some(Ok(report)) => report,
        Some(Err(why)) => {
            let text = format!("report: {why}");
            let room = usize::from(canvas.width()).saturating_sub(1);
            canvas.put_text(1, y, &fit_end_of_sentence(&text, room), Role::Bad);
            canvas.draw_rule(y + 1);
            return;
        }
    };
    draw_headline(model, canvas, y, report);
    let shown = model.shown_report_rows();
    for (y, row) in (y + 1..).zip(report.rows.iter().take(shown)) {
        draw_row(canvas, y, row);
    }
    if shown < report.rows.len() && !model.is_report_collapsed() {
        let command = model.config.invocation.command_line("report");
        let more = format!("and {} more: {command}", report.rows.len() - shown);
        let room = usize::from(canvas.width()).saturating_sub(2);
        let y = y + 1 + shown as u16;
        canvas.put_text(2, y, &fit_end_of_sentence(&more, room), Role::Dim);
    }
    canvas.draw_rule(y + model.report_height() - 1);
}

fn draw_headline(model: &Model, canvas: &mut Canvas<'_>, y: u16, report: &ReportText) {
    let key = model.key_hint(Command::FoldReport);
    let hint = match (report.rows.len(), model.log.is_report_folded) {
        (0, _) => String::new(),
        // The key shows nothing while the schedule has its room.
        (rows, false) if model.is_report_collapsed() => format_count(rows as u64, "item"),
        (rows, true) => format!("{key} shows {}", format_count(rows as u64, "item")),
        (_, false) => format!("{key} folds"),
    };
    canvas.put_right(canvas.width(), y, &hint, Role::Dim);
    let room = usize::from(canvas.width()).saturating_sub(hint.len() + 2);
    let text = fit_end_of_sentence(&report.headline, room);
    canvas.put_text(1, y, &text, Role::Title);
}

fn draw_row(canvas: &mut Canvas<'_>, y: u16, row: &ReportRow) {
    let role = match row.level {
        ReportLevel::Bad => Role::Bad,
        ReportLevel::Warn => Role::Warn,
        ReportLevel::Info => Role::Dim,
    };
    canvas.put_text(2, y, row.topic, role);
    let width = if canvas.width() >= 100 { 24 } else { 16 };
    let subject = shorten_untrusted(&row.subject, width);
    canvas.put_text(SUBJECT_X, y, &subject, Role::Text);
    let x = SUBJECT_X + width as u16 + 1;
    let room = usize::from(canvas.width().saturating_sub(x));
    // How often and since when is at its start.
    canvas.put_text(x, y, &truncate_untrusted(&row.text, room), Role::Text);
}
