//! The text that a command copies, or hands to the pager.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use super::plans::plan_kind;
use super::targets::{no_subject_reason, subject_agent};
use super::visible_text::has_line_cursor;
use super::{Model, PlanKind, equivalent_command};
use crate::base::invocation::as_operand;
use crate::base::quantity::format_count;
use crate::console::agent_row::AgentRow;
use crate::console::command::Command;
use crate::console::handoff::{ClipboardText, PagerText};
use crate::console::screen::Screen;
use crate::console::screens::agent::marked_lines::MarkedLines;
use crate::console::screens::agent::state::AgentTab;
use crate::console::screens::agent::state::memory::describe_finding;
use crate::console::screens::archives::state::ArchiveRow;
use crate::console::text::{LineKind, Pane, TextLine};

/// Cells of the label of a fact.
const FACT_LABEL_CELLS: usize = 20;

/// Returns the text that a command copies.
///
/// # Errors
/// The screen has nothing that the command copies.
pub fn clipboard_text(model: &Model, command: Command) -> Result<ClipboardText, String> {
    let nothing_to_copy = || "nothing to copy".to_string();
    match command {
        Command::CopyPath if model.screen == Screen::Archives => {
            let path = match model.archives.current_row() {
                Some(ArchiveRow::Memory(found)) if !model.archives.timeline.is_open => {
                    found.address.clone()
                }
                Some(ArchiveRow::File(found)) if !model.archives.timeline.is_open => {
                    found.address.clone()
                }
                _ => {
                    let entry = model.archives.chosen_entry()?;
                    as_operand(entry.path).display().to_string()
                }
            };
            Ok(ClipboardText::new("the path", path.as_bytes()))
        }
        Command::CopyPath if model.screen == Screen::Agent && model.agent.tab.is_about_layout() => {
            let location = layout_file_location(model)?;
            Ok(ClipboardText::new("the path", location.as_bytes()))
        }
        Command::CopyName | Command::CopyPath | Command::CopyDigest => agent_text(model, command),
        Command::CopyLine if marked_lines_here(model).is_some() => {
            let marked = marked_lines_here(model).ok_or_else(nothing_to_copy)?;
            let what = format_count(marked.len() as u64, "marked line");
            Ok(ClipboardText {
                is_truncated: marked.iter().any(|line| line.is_truncated),
                ..ClipboardText::new(what, &marked.to_text())
            })
        }
        Command::CopyLine => {
            let (what, line) = current_line(model).ok_or_else(nothing_to_copy)?;
            Ok(ClipboardText {
                is_truncated: line.is_truncated,
                ..ClipboardText::new(what, &line.bytes)
            })
        }
        Command::CopyAll => {
            let (what, text) = full_text(model).ok_or_else(nothing_to_copy)?;
            let lines = match model.screen {
                Screen::Agent => model.agent.current_pane().lines.as_slice(),
                _ => &[],
            };
            Ok(ClipboardText {
                is_truncated: lines.iter().any(|line| line.is_truncated),
                ..ClipboardText::new(what, &text)
            })
        }
        Command::CopyCommand | Command::CopyPlan => {
            let line = equivalent_command_line(model);
            let line = line.ok_or("this row has no equivalent command line")?;
            Ok(ClipboardText::new("the command line", line.as_bytes()))
        }
        Command::CopyScheduleLine => {
            let (what, line) = schedule_line(model)?;
            Ok(ClipboardText::new(what, line.as_bytes()))
        }
        _ => Err(nothing_to_copy()),
    }
}

/// Returns the text that a command copies of the agent that keys are about: its digest, its path, else
/// its name.
fn agent_text(model: &Model, command: Command) -> Result<ClipboardText, String> {
    let name = subject_agent(model);
    let name = name.ok_or_else(|| no_subject_reason(model))?;
    let row = model.find_row(name);
    let (what, text) = match command {
        Command::CopyPath => {
            let path = row.map(AgentRow::memory_location);
            let path = path.ok_or("the agent is no longer in the config")?;
            (format!("the path of {name}'s memory"), path)
        }
        Command::CopyDigest => {
            let seen = row.and_then(AgentRow::last_readable_observation);
            let content = seen.and_then(|seen| seen.content.as_ref());
            let content = content.ok_or("its memory has not been read")?;
            let digest = content.sha256.to_string();
            (format!("the digest of {name}'s memory"), digest)
        }
        _ => (format!("the name {name}"), name.to_string()),
    };
    Ok(ClipboardText::new(what, text.as_bytes()))
}

/// Returns the location of the file that a tab about a memory with a layout is about: that of the
/// item or of the finding.
///
/// # Errors
/// The tab has no item or finding, or none with a file.
fn layout_file_location(model: &Model) -> Result<OsString, String> {
    let (memory, health) = (&model.agent.memory, &model.agent.health);
    let path = match model.agent.tab {
        AgentTab::Health => {
            let finding = health
                .current_finding()
                .ok_or("no finding under the cursor")?;
            finding.path.as_deref().ok_or("the finding names no file")?
        }
        _ => match (memory.subject_item(), memory.subject_id()) {
            (Some(item), _) => &item.path,
            (None, Some(id)) => return Err(format!("{id} is not in the list any more")),
            (None, None) => return Err("no item under the cursor".to_string()),
        },
    };
    let row = model.find_row(&model.agent.agent);
    let location = row.and_then(|row| row.layout_location(path));
    Ok(location.ok_or("the agent has no memory with a layout any more")?)
}

/// Returns the line that the schedule offers to copy, with what it is: how to make a schedule, or
/// how to read the output of the timer's runs.
///
/// # Errors
/// The schedule is not loaded, or the journal has no output of the timer.
fn schedule_line(model: &Model) -> Result<(&'static str, String), String> {
    let view = &model.log.schedule;
    let overview = view.overview.as_ref();
    let overview = overview.ok_or("the schedule is being read")?;
    let Some(row) = view.current_row() else {
        return Ok(if overview.has_manager() || overview.crontab.is_empty() {
            let line = model.config.invocation.command_line("schedule install");
            ("the command line", line)
        } else {
            ("the lines for a crontab", overview.crontab.join("\n"))
        });
    };
    let line = row.journal_command();
    let elsewhere = "the output of these runs is where `schedule run` or cron writes it";
    Ok(("the command line", line.ok_or(elsewhere)?))
}

/// Returns the row under the cursor of a list about a memory with a layout.
fn current_layout_row(model: &Model) -> Option<(String, TextLine)> {
    let text = match model.agent.tab {
        AgentTab::Memory => {
            let item = model.agent.memory.subject_item()?;
            format!("{}  {}", item.id, item.title)
        }
        AgentTab::Health => describe_finding(model.agent.health.current_finding()?),
        _ => return None,
    };
    Some(("the row".to_string(), TextLine::note(text)))
}

/// Returns the command line that does what the screen plans or has done, if there is one.
fn equivalent_command_line(model: &Model) -> Option<String> {
    match (model.screen, model.reset.result()) {
        (Screen::BaselinePlan, _) => model
            .baseline_plan
            .view()
            .map(|view| equivalent_command::for_baseline_plan(model, view)),
        (Screen::Archives, _) if plan_kind(model) == Some(PlanKind::Prune) => {
            Some(equivalent_command::for_prune(model))
        }
        (Screen::Reset, Some(view)) => equivalent_command::for_result(model, view),
        (Screen::Reset, None) => equivalent_command::for_plan(model, model.reset.plan.shown()?),
        (Screen::Log, _) => equivalent_command::for_run(model, model.log.current_run()?),
        _ => None,
    }
}

/// Returns the marked lines of the text on the screen.
fn marked_lines_here(model: &Model) -> Option<&MarkedLines> {
    if model.screen == Screen::Archives {
        let marked = &model.archives.text.marked_lines;
        return Some(marked).filter(|it| has_line_cursor(model) && !it.is_empty());
    }
    let is_scratch_tab = model.screen == Screen::Agent && model.agent.tab == AgentTab::Scratch;
    let marked = model.agent.marked_lines_of(&model.agent.agent);
    marked.filter(|_| is_scratch_tab)
}

/// Returns the current line with its description: in a text the hit or the first visible line,
/// elsewhere the row under the cursor.
fn current_line(model: &Model) -> Option<(String, TextLine)> {
    match (model.screen, model.reset.result()) {
        (Screen::Agent, _) if model.agent.is_list() => current_layout_row(model),
        (Screen::Agent, _) => {
            let pane = model.agent.current_pane();
            let line = line_of(pane, model.agent.has_line_cursor())?;
            let what = match line.new_number.or(line.old_number) {
                Some(number) => format!("line {number}"),
                None => "a line".to_string(),
            };
            Some((what, line.clone()))
        }
        (Screen::Archives, _) if model.archives.is_text_current() => {
            let line = line_of(&model.archives.text.pane, has_line_cursor(model))?;
            Some(("the line".to_string(), line.clone()))
        }
        (Screen::Log, _) => {
            let text = model.log.current_row()?.text();
            Some(("the row".to_string(), TextLine::note(text)))
        }
        (Screen::Reset, Some(_)) => {
            let line = model.reset.current_line()?;
            Some(("the row".to_string(), TextLine::note(line.to_text())))
        }
        _ => None,
    }
}

/// Returns the line of the cursor, or else the current one.
fn line_of(pane: &Pane, has_line_cursor: bool) -> Option<&TextLine> {
    let cursor = has_line_cursor.then_some(pane.cursor_line);
    pane.lines.get(cursor.or_else(|| pane.current_line())?)
}

/// Returns the whole text of the screen with its description.
fn full_text(model: &Model) -> Option<(String, Vec<u8>)> {
    match (model.screen, model.reset.result()) {
        (Screen::Agent, _) if !model.agent.has_full_text() => None,
        (Screen::Agent, _) if model.agent.tab == AgentTab::Health => {
            let findings = model.agent.health.findings().iter();
            let text: String = findings.map(|it| describe_finding(it) + "\n").collect();
            Some(("the findings".to_string(), text.into_bytes()))
        }
        (Screen::Agent, _) => {
            let lines = &model.agent.current_pane().lines;
            let labels = match model.agent.tab {
                AgentTab::Facts => model.agent.fact_labels.as_slice(),
                _ => &[],
            };
            let what = match (model.agent.tab, model.agent.memory.content.item()) {
                (AgentTab::Memory, Some(item)) => format!("the text of {item}"),
                _ => format!("the text of {}", model.agent.agent),
            };
            Some((what, join_lines(lines, labels)))
        }
        (Screen::Archives, _) => {
            let lines = model.archives.text.pane.lines.as_slice();
            let is_shown = model.archives.is_text_current() && !lines.is_empty();
            is_shown.then(|| ("the text".to_string(), join_lines(lines, &[])))
        }
        (Screen::Verify, _) => {
            let text = model.verify.report(&model.baselines)?;
            Some(("the verification report".to_string(), text.into_bytes()))
        }
        (Screen::Log, _) => {
            let rows = model.log.rows();
            let rows = rows.iter().map(|row| {
                let time = row.time().format("%Y-%m-%d %H:%M:%S");
                format!("{time}  {}\n", row.text())
            });
            Some(("the log".to_string(), rows.collect::<String>().into_bytes()))
        }
        (Screen::Reset, Some(view)) => {
            let command = equivalent_command::for_result(model, view);
            let mut text = command.map_or_else(String::new, |line| format!("$ {line}\n"));
            for error in &view.errors {
                text.push_str(&format!("error: {error}\n"));
            }
            for line in &view.lines {
                text.push_str(&format!("{}\n", line.to_text()));
            }
            let what = format!("the report of run {}", view.run_id);
            Some((what, text.into_bytes()))
        }
        _ => None,
    }
}

/// Returns the text of the agent screen, or the report of a verification, for the pager.
pub fn pager_text(model: &Model) -> Option<PagerText> {
    let name = match model.screen {
        Screen::Agent => model.agent.agent.clone(),
        Screen::Verify => "verification".to_string(),
        _ => return None,
    };
    let (_, text) = full_text(model)?;
    Some(PagerText::new(name, &text))
}

/// Joins lines to a text; those of a diff with their signs, facts with their labels.
fn join_lines(lines: &[TextLine], labels: &[&str]) -> Vec<u8> {
    let changed = |line: &TextLine| matches!(line.kind, LineKind::Added | LineKind::Removed);
    let signs = lines.iter().any(changed);
    let mut text = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if let Some(label) = labels.get(at) {
            let width = if line.bytes.is_empty() {
                0
            } else {
                FACT_LABEL_CELLS
            };
            text.extend(format!("{label:<width$}").into_bytes());
        }
        if signs {
            text.push(match line.kind {
                LineKind::Added => b'+',
                LineKind::Removed => b'-',
                _ => b' ',
            });
        }
        text.extend_from_slice(&line.bytes);
        text.push(b'\n');
    }
    text
}
