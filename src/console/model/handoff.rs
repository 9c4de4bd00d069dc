//! What is handed out of the console, and into it: texts for the clipboard and
//! for the pager, baselines for the editor.

use super::{AgentTab, KeyGuard, LogRow, Model, ResetStage, Screen, equivalent_command};
use crate::archive::WrittenEntry;
use crate::baseline::InspectedBaseline;
use crate::console::command::Command;
use crate::console::text::{LineKind, TextLine};
use crate::untrusted::{self, HiddenCounts};

/// Cells of what a fact is about.
const FACT_LABEL_CELLS: usize = 20;

/// A text for the clipboard. It is pasted into shells: nothing in it is invisible,
/// and no control character passes but what ends a line, and tabs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClipboardText {
    /// What it is, as in "the name code-reviewer".
    pub description: String,
    /// The text.
    pub text: String,
    /// Whether something in it was made visible, so that it is not byte for byte
    /// what stands there.
    pub is_escaped: bool,
    /// Whether it goes on, and the rest was not read for the screen.
    pub is_truncated: bool,
}

impl ClipboardText {
    /// A text that somebody may have written who is not to be trusted. Plain text
    /// stays as it is.
    pub fn new(what: impl Into<String>, bytes: &[u8]) -> ClipboardText {
        let (text, revealed) = escape_invisible(bytes);
        ClipboardText {
            description: what.into(),
            text,
            is_escaped: revealed,
            is_truncated: false,
        }
    }
}

/// A text without anything invisible, and whether that is another text.
fn escape_invisible(bytes: &[u8]) -> (String, bool) {
    match std::str::from_utf8(bytes) {
        Ok(text) if untrusted::count_hidden(bytes) == HiddenCounts::default() => {
            (text.to_string(), false)
        }
        _ => (untrusted::visible_text_uncut(bytes), true),
    }
}

/// What became of a text for the clipboard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyOutcome {
    /// This program has it.
    CopiedBy(&'static str),
    /// It was sent to the terminal, which says nothing back.
    SentToTerminal,
    /// No program of this machine took it: why, if there is one.
    Failed(String),
    /// It is longer than terminals take, which is so many bytes.
    TooLong(usize),
}

/// A text for the pager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PagerText {
    /// Names it, and its file: agents' names and our own words only.
    pub name: String,
    /// The text, with nothing invisible in it.
    pub text: String,
}

impl PagerText {
    /// A text that somebody may have written who is not to be trusted.
    pub fn new(name: impl Into<String>, bytes: &[u8]) -> PagerText {
        PagerText {
            name: name.into(),
            text: escape_invisible(bytes).0,
        }
    }
}

/// A baseline that is to be edited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaselineEdit {
    /// The agent it was opened for.
    pub agent: String,
    /// All agents that have it.
    pub sharing_agents: Vec<String>,
    /// Those of them that are protected as read-only.
    pub protected_agents: Vec<String>,
    /// What it is before.
    pub original: InspectedBaseline,
}

/// The question before a sealed baseline is edited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealQuestion {
    /// What is to be edited.
    pub edit: BaselineEdit,
    /// Ignores what was typed before it can have been read.
    pub guard: KeyGuard,
}

/// What was asked for and comes later. It takes the terminal, so it comes to nothing
/// once something else is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandoffRequest {
    /// The baseline of an agent, to be edited.
    EditBaseline(String),
    /// An entry of an agent, to be read.
    ReadEntry(String, WrittenEntry),
}

impl Model {
    /// The agent that a key is about: under the cursor, or on the screen.
    pub fn subject_agent(&self) -> Option<&str> {
        match self.screen {
            Screen::Fleet => self.cursor_agent.as_deref(),
            Screen::Agent => Some(&self.agent.agent),
            Screen::Reset => self.reset.current_agent(),
            Screen::Log => match self.log.rows().get(self.log.cursor) {
                Some(LogRow::Run(run)) => match run.events.as_slice() {
                    [one] => self.find_row(&one.agent).map(|row| row.name.as_str()),
                    _ => None,
                },
                _ => None,
            },
            Screen::Hosts => None,
        }
    }

    /// Why a key is about no agent where the cursor is.
    pub fn no_subject_reason(&self) -> String {
        let open = self.key_hint(Command::OpenSelected);
        let row = self.log.rows().get(self.log.cursor).copied();
        match row.filter(|_| self.screen == Screen::Log) {
            Some(LogRow::Message(_)) => "the row is a note, not a run of an agent".to_string(),
            Some(LogRow::Run(run)) if run.events.len() > 1 => {
                format!("the run is of several agents; {open} shows them")
            }
            _ => "there is no agent under the cursor".to_string(),
        }
    }

    /// The text that a command copies.
    ///
    /// # Errors
    /// Why there is none.
    pub fn clipboard_text(&self, command: Command) -> Result<ClipboardText, String> {
        let agent = || self.subject_agent().ok_or_else(|| self.no_subject_reason());
        let nothing_to_copy = || "there is nothing to copy".to_string();
        match command {
            Command::CopyName => {
                let name = agent()?;
                Ok(ClipboardText::new(
                    format!("the name {name}"),
                    name.as_bytes(),
                ))
            }
            Command::CopyPath => {
                let name = agent()?;
                let path = self.fleet.memory_locations.get(name);
                let path = path.ok_or("the config has no such agent any more")?;
                Ok(ClipboardText::new(
                    format!("the path of {name}'s memory"),
                    path.as_bytes(),
                ))
            }
            Command::CopyDigest => {
                let name = agent()?;
                let observation = self
                    .find_row(name)
                    .and_then(|row| row.last_readable_observation());
                let content = observation.and_then(|seen| seen.content.as_ref());
                let digest = content.ok_or("its memory was not read")?.sha256.to_string();
                Ok(ClipboardText::new(
                    format!("the digest of {name}'s memory"),
                    digest.as_bytes(),
                ))
            }
            Command::CopyLine => {
                let (what, line) = self.current_line().ok_or_else(nothing_to_copy)?;
                Ok(ClipboardText {
                    is_truncated: line.is_truncated,
                    ..ClipboardText::new(what, &line.bytes)
                })
            }
            Command::CopyAll => {
                let (what, text) = self.full_text().ok_or_else(nothing_to_copy)?;
                let lines = match self.screen {
                    Screen::Agent => self.agent.current_pane().lines.as_slice(),
                    _ => &[],
                };
                Ok(ClipboardText {
                    is_truncated: lines.iter().any(|line| line.is_truncated),
                    ..ClipboardText::new(what, &text)
                })
            }
            Command::CopyCommand | Command::CopyPlan => {
                let line = match (self.screen, &self.reset.stage) {
                    (Screen::Reset, ResetStage::Plan(view)) => {
                        Some(equivalent_command::for_plan(self, view))
                    }
                    (Screen::Reset, ResetStage::Result(view)) => {
                        Some(equivalent_command::for_result(self, view))
                    }
                    (Screen::Log, _) => match self.log.rows().get(self.log.cursor) {
                        Some(LogRow::Run(run)) => Some(equivalent_command::for_run(self, run)),
                        _ => None,
                    },
                    _ => None,
                };
                let line = line.ok_or("no command line does this row's")?;
                Ok(ClipboardText::new("the command line", line.as_bytes()))
            }
            _ => Err(nothing_to_copy()),
        }
    }

    /// The line that a text is read at: the hit, else the one at the top; elsewhere
    /// the row under the cursor.
    fn current_line(&self) -> Option<(String, TextLine)> {
        let ours = |text: String| TextLine::note(LineKind::Note, text);
        match (self.screen, &self.reset.stage) {
            (Screen::Agent, _) if self.agent.is_list() => None,
            (Screen::Agent, _) => {
                let pane = self.agent.current_pane();
                let line = pane.lines.get(pane.current_line()?)?;
                let what = match line.new_number.or(line.old_number) {
                    Some(number) => format!("line {number}"),
                    None => "a line".to_string(),
                };
                Some((what, line.clone()))
            }
            (Screen::Log, _) => {
                let text = self.log.rows().get(self.log.cursor)?.text();
                Some(("the row".to_string(), ours(text)))
            }
            (Screen::Reset, ResetStage::Result(view)) => {
                let line = view.lines.get(self.reset.cursor)?;
                Some(("the row".to_string(), ours(line.to_text())))
            }
            _ => None,
        }
    }

    /// All of a text.
    fn full_text(&self) -> Option<(String, Vec<u8>)> {
        match (self.screen, &self.reset.stage) {
            (Screen::Agent, _) if self.agent.is_list() => None,
            (Screen::Agent, _) => {
                let lines = &self.agent.current_pane().lines;
                let labels = match self.agent.tab {
                    AgentTab::Facts => self.agent.fact_labels.as_slice(),
                    _ => &[],
                };
                let what = format!("the text of {}", self.agent.agent);
                (!lines.is_empty()).then(|| (what, join_lines(lines, labels)))
            }
            (Screen::Log, _) => {
                let rows = self.log.rows();
                let rows = rows.iter().map(|row| {
                    let time = row.time().format("%Y-%m-%d %H:%M:%S");
                    format!("{time}  {}\n", row.text())
                });
                Some(("the log".to_string(), rows.collect::<String>().into_bytes()))
            }
            (Screen::Reset, ResetStage::Result(view)) => {
                let mut text = format!("$ {}\n", equivalent_command::for_result(self, view));
                for line in &view.lines {
                    text.push_str(&format!("{}\n", line.to_text()));
                }
                let what = format!("the report of run {}", view.run_id);
                Some((what, text.into_bytes()))
            }
            _ => None,
        }
    }

    /// What the pager shows of an agent: the text on the screen.
    pub fn pager_text(&self) -> Option<PagerText> {
        let (_, text) = self.full_text().filter(|_| self.screen == Screen::Agent)?;
        Some(PagerText::new(self.agent.agent.clone(), &text))
    }

    /// The entry under the cursor, and whose it is.
    ///
    /// # Errors
    /// Why there is none.
    pub fn selected_entry(&self) -> Result<(String, WrittenEntry), String> {
        let of = |agent: &str, entry: Option<&WrittenEntry>| match entry {
            Some(entry) => Ok((agent.to_string(), entry.clone())),
            None => Err(format!("nothing of {agent} was archived then")),
        };
        match (self.screen, &self.reset.stage) {
            (Screen::Reset, ResetStage::Result(view)) => match view.lines.get(self.reset.cursor) {
                Some(line) => of(&line.agent, line.entry.as_ref()),
                None => Err(self.no_subject_reason()),
            },
            (Screen::Log, _) => match self.log.rows().get(self.log.cursor) {
                Some(LogRow::Run(run)) => match run.events.as_slice() {
                    [one] => of(&one.agent, one.entry.as_ref()),
                    _ => Err(format!(
                        "the run has several agents; {} shows them",
                        self.key_hint(Command::OpenSelected)
                    )),
                },
                _ => Err("this row is no run".to_string()),
            },
            (Screen::Agent, _) if self.agent.tab == AgentTab::History && self.agent.is_list() => {
                let past = self.agent.history.current_record();
                let past = past.ok_or("nothing was done to it yet")?;
                of(&self.agent.agent, past.record.event.entry.as_ref())
            }
            _ => Err("there is no entry here".to_string()),
        }
    }
}

/// Lines as a text; those of a diff with their signs, facts with what they are about.
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
