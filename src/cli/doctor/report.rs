//! The report of `doctor`: results of checks, as text and as JSON.

use std::io;

use serde::Serialize;

use super::DoctorSubject;
use super::table::{Check, CheckRow};
use crate::base::error::{Error, ErrorKind};
use crate::cli::output::{Document, Printer, bad, format_count, good, notice, plain, warn};
use crate::config::{self, Diagnostic};

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum CheckLevel {
    Ok,
    Warn,
    Fail,
}

/// A result of a check.
#[derive(Serialize)]
struct CheckResult {
    /// Name of the check in the table.
    check: &'static str,
    level: CheckLevel,
    text: String,
    hint: Option<String>,
    /// Error kind of a failure, for the exit code.
    #[serde(skip)]
    kind: Option<ErrorKind>,
}

/// The answer of `doctor`.
#[derive(Default, Serialize)]
pub(super) struct DoctorReport {
    checks: Vec<CheckResult>,
    /// The check that adds results now.
    #[serde(skip)]
    row: Option<&'static CheckRow>,
    /// Number of results before those of this check.
    #[serde(skip)]
    earlier_count: usize,
}

impl DoctorReport {
    /// Runs a check, if there is what it needs.
    pub(super) fn run_check(&mut self, row: &'static CheckRow, subject: &DoctorSubject<'_>) {
        self.row = Some(row);
        self.earlier_count = self.checks.len();
        match (&row.check, &subject.fleet) {
            (Check::Program(check), _) => check(self, subject),
            (Check::Fleet(check), Some(fleet)) => check(self, fleet),
            (Check::Archive(check), Some(fleet)) if fleet.missing_group.is_none() => {
                check(self, fleet);
            }
            (Check::Fleet(_) | Check::Archive(_), _) => {}
        }
    }

    /// Returns the most serious error kind of all failures.
    pub(super) fn error_kind(&self) -> Option<ErrorKind> {
        let kinds = self.checks.iter().filter_map(|check| check.kind);
        kinds.reduce(ErrorKind::more_serious)
    }

    /// Adds a result. A finding without a hint of its own gets the remedy of the table.
    fn add_result(
        &mut self,
        level: CheckLevel,
        kind: Option<ErrorKind>,
        text: impl Into<String>,
        hint: &str,
    ) {
        let hint = match (level, hint) {
            (CheckLevel::Ok, _) => None,
            (_, "") => self.row.map(|row| row.remedy.to_string()),
            (_, hint) => Some(hint.to_string()),
        };
        self.checks.push(CheckResult {
            check: self.row.map_or("", |row| row.name),
            level,
            text: text.into(),
            hint,
            kind,
        });
    }

    pub(super) fn add_ok(&mut self, text: impl Into<String>) {
        self.add_result(CheckLevel::Ok, None, text, "");
    }

    /// Adds a good result, unless the check has added a result before.
    pub(super) fn add_ok_if_silent(&mut self, text: impl Into<String>) {
        if self.checks.len() == self.earlier_count {
            self.add_ok(text);
        }
    }

    pub(super) fn add_warning(&mut self, text: impl Into<String>, hint: &str) {
        self.add_result(CheckLevel::Warn, None, text, hint);
    }

    pub(super) fn add_failure(&mut self, text: impl Into<String>, hint: &str) {
        self.add_result(CheckLevel::Fail, Some(ErrorKind::Partial), text, hint);
    }

    /// Adds a host or remote memory that cannot be reached or read.
    pub(super) fn add_unreachable(&mut self, text: impl Into<String>, hint: &str) {
        self.add_result(CheckLevel::Fail, Some(ErrorKind::Host), text, hint);
    }

    /// Adds an error. Config and integrity errors keep their kind; any other is a plain failure.
    pub(super) fn add_error(&mut self, error: &Error) {
        // An integrity error needs all of its hints.
        let hints = match error.kind() {
            ErrorKind::Integrity => error.hints(),
            _ => &error.hints()[..error.hints().len().min(1)],
        };
        let kind = match error.kind() {
            kind @ (ErrorKind::Config | ErrorKind::Integrity) => kind,
            _ => ErrorKind::Partial,
        };
        let hint = hints.join("; ");
        self.add_result(CheckLevel::Fail, Some(kind), error.message(), &hint);
    }

    pub(super) fn add_diagnostic(&mut self, file: &str, it: &Diagnostic) {
        let line = it
            .line
            .map_or(String::new(), |line| format!(" line {line}"));
        let text = format!("{file}{line}: {}", it.message);
        let hint = it.hints.join("; ");
        match it.level {
            config::DiagnosticLevel::Warning => self.add_warning(text, &hint),
            config::DiagnosticLevel::Error => {
                self.add_error(&Error::new(ErrorKind::Config, text).with_hint(hint))
            }
        }
    }
}

impl Document for DoctorReport {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        for check in &self.checks {
            let (role, word) = match check.level {
                CheckLevel::Ok => good("ok    "),
                CheckLevel::Warn => warn("warn  "),
                CheckLevel::Fail => bad("FAIL  "),
            };
            printer.write_line(&[(role, word), plain(&check.text)])?;
            if let Some(hint) = &check.hint {
                printer.write_line(&[notice("      hint: "), plain(hint)])?;
            }
        }
        let number = |level| self.checks.iter().filter(|it| it.level == level).count();
        let mut names: Vec<&str> = self
            .checks
            .iter()
            .filter(|it| it.level != CheckLevel::Ok)
            .map(|it| it.check)
            .collect();
        names.dedup();
        let names = if names.is_empty() {
            String::new()
        } else {
            format!(" ({})", names.join(", "))
        };
        printer.write_plain_line(format!(
            "{} ok, {}, {}{names}",
            number(CheckLevel::Ok),
            format_count(number(CheckLevel::Warn), "warning"),
            format_count(number(CheckLevel::Fail), "failure")
        ))
    }
}
