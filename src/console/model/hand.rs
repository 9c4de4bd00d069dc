//! What is handed out of the console, and into it: texts for the clipboard and
//! for the pager, baselines for the editor.

use super::{KeyGuard, LogRow, Model, ResetStage, Screen, Tab, twin};
use crate::archive::Written;
use crate::baseline::Inspected;
use crate::console::command::Command;
use crate::console::text::{LineKind, TextLine};
use crate::untrusted::{self, Hidden};

/// Cells of what a fact is about.
const LABEL: usize = 20;

/// A text for the clipboard. It is pasted into shells: nothing in it is invisible,
/// and no control character passes but what ends a line, and tabs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClipboardText {
    /// What it is, as in "the name code-reviewer".
    pub what: String,
    /// The text.
    pub text: String,
    /// Whether something in it was made visible, so that it is not byte for byte
    /// what stands there.
    pub revealed: bool,
    /// Whether it goes on, and the rest was not read for the screen.
    pub cut: bool,
}

impl ClipboardText {
    /// A text that somebody may have written who is not to be trusted. Plain text
    /// stays as it is.
    pub fn new(what: impl Into<String>, bytes: &[u8]) -> ClipboardText {
        let (text, revealed) = safe(bytes);
        ClipboardText {
            what: what.into(),
            text,
            revealed,
            cut: false,
        }
    }
}

/// A text without anything invisible, and whether that is another text.
fn safe(bytes: &[u8]) -> (String, bool) {
    match std::str::from_utf8(bytes) {
        Ok(text) if untrusted::hidden(bytes) == Hidden::default() => (text.to_string(), false),
        _ => (untrusted::whole(bytes), true),
    }
}

/// What became of a text for the clipboard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyOutcome {
    /// This program has it.
    Program(&'static str),
    /// It was sent to the terminal, which says nothing back.
    Terminal,
    /// No program of this machine took it: why, if there is one.
    Nobody(String),
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
            text: safe(bytes).0,
        }
    }
}

/// A baseline that is to be edited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The agent it was opened for.
    pub agent: String,
    /// All agents that have it.
    pub users: Vec<String>,
    /// Those of them that are protected as read-only.
    pub protected: Vec<String>,
    /// What it is before.
    pub before: Inspected,
}

/// The question before a sealed baseline is edited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealQuestion {
    /// What is to be edited.
    pub edit: Edit,
    /// Ignores what was typed before it can have been read.
    pub guard: KeyGuard,
}

/// What was asked for and comes later. It takes the terminal, so it comes to nothing
/// once something else is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandoffRequest {
    /// The baseline of an agent, to be edited.
    Baseline(String),
    /// An entry of an agent, to be read.
    Entry(String, Written),
}

impl Model {
    /// The agent that a key is about: under the cursor, or on the screen.
    pub fn subject(&self) -> Option<&str> {
        match self.screen {
            Screen::Fleet => self.cursor.as_deref(),
            Screen::Agent => Some(&self.agent.name),
            Screen::Reset => self.reset.subject(),
            Screen::Log => match self.log.rows().get(self.log.cursor) {
                Some(LogRow::Run(run)) => match run.events.as_slice() {
                    [one] => self.row(&one.agent).map(|row| row.name.as_str()),
                    _ => None,
                },
                _ => None,
            },
            Screen::Hosts => None,
        }
    }

    /// Why a key is about no agent where the cursor is.
    pub fn why_no_subject(&self) -> String {
        let open = self.key(Command::Open);
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
    pub fn clip(&self, command: Command) -> Result<ClipboardText, String> {
        let agent = || self.subject().ok_or_else(|| self.why_no_subject());
        let none = || "there is nothing to copy".to_string();
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
                let path = self.fleet.memories.get(name);
                let path = path.ok_or("the config has no such agent any more")?;
                Ok(ClipboardText::new(
                    format!("the path of {name}'s memory"),
                    path.as_bytes(),
                ))
            }
            Command::CopyDigest => {
                let name = agent()?;
                let seen = self.row(name).and_then(|row| row.last_read());
                let content = seen.and_then(|seen| seen.content.as_ref());
                let digest = content.ok_or("its memory was not read")?.sha256.to_string();
                Ok(ClipboardText::new(
                    format!("the digest of {name}'s memory"),
                    digest.as_bytes(),
                ))
            }
            Command::CopyLine => {
                let (what, line) = self.line().ok_or_else(none)?;
                Ok(ClipboardText {
                    cut: line.cut,
                    ..ClipboardText::new(what, &line.raw)
                })
            }
            Command::CopyAll => {
                let (what, text) = self.whole().ok_or_else(none)?;
                let lines = match self.screen {
                    Screen::Agent => self.agent.pane().lines.as_slice(),
                    _ => &[],
                };
                Ok(ClipboardText {
                    cut: lines.iter().any(|line| line.cut),
                    ..ClipboardText::new(what, &text)
                })
            }
            Command::CopyCommand | Command::CopyPlan => {
                let line = match (self.screen, &self.reset.stage) {
                    (Screen::Reset, ResetStage::Plan(view)) => Some(twin::of_plan(self, view)),
                    (Screen::Reset, ResetStage::Result(view)) => Some(twin::of_result(self, view)),
                    (Screen::Log, _) => match self.log.rows().get(self.log.cursor) {
                        Some(LogRow::Run(run)) => Some(twin::of_run(self, run)),
                        _ => None,
                    },
                    _ => None,
                };
                let line = line.ok_or("no command line does this row's")?;
                Ok(ClipboardText::new("the command line", line.as_bytes()))
            }
            _ => Err(none()),
        }
    }

    /// The line that a text is read at: the hit, else the one at the top; elsewhere
    /// the row under the cursor.
    fn line(&self) -> Option<(String, TextLine)> {
        let ours = |text: String| TextLine::note(LineKind::Note, text);
        match (self.screen, &self.reset.stage) {
            (Screen::Agent, _) if self.agent.is_list() => None,
            (Screen::Agent, _) => {
                let pane = self.agent.pane();
                let line = pane.lines.get(pane.line_read()?)?;
                let what = match line.new.or(line.old) {
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
                Some(("the row".to_string(), ours(line.text())))
            }
            _ => None,
        }
    }

    /// All of a text.
    fn whole(&self) -> Option<(String, Vec<u8>)> {
        match (self.screen, &self.reset.stage) {
            (Screen::Agent, _) if self.agent.is_list() => None,
            (Screen::Agent, _) => {
                let lines = &self.agent.pane().lines;
                let labels = match self.agent.tab {
                    Tab::Facts => self.agent.labels.as_slice(),
                    _ => &[],
                };
                let what = format!("the text of {}", self.agent.name);
                (!lines.is_empty()).then(|| (what, joined(lines, labels)))
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
                let mut text = format!("$ {}\n", twin::of_result(self, view));
                for line in &view.lines {
                    text.push_str(&format!("{}\n", line.text()));
                }
                let what = format!("the report of run {}", view.run);
                Some((what, text.into_bytes()))
            }
            _ => None,
        }
    }

    /// What the pager shows of an agent: the text on the screen.
    pub fn page(&self) -> Option<PagerText> {
        let (_, text) = self.whole().filter(|_| self.screen == Screen::Agent)?;
        Some(PagerText::new(self.agent.name.clone(), &text))
    }

    /// The entry under the cursor, and whose it is.
    ///
    /// # Errors
    /// Why there is none.
    pub fn entry(&self) -> Result<(String, Written), String> {
        let of = |agent: &str, entry: Option<&Written>| match entry {
            Some(entry) => Ok((agent.to_string(), entry.clone())),
            None => Err(format!("nothing of {agent} was archived then")),
        };
        match (self.screen, &self.reset.stage) {
            (Screen::Reset, ResetStage::Result(view)) => match view.lines.get(self.reset.cursor) {
                Some(line) => of(&line.agent, line.entry.as_ref()),
                None => Err(self.why_no_subject()),
            },
            (Screen::Log, _) => match self.log.rows().get(self.log.cursor) {
                Some(LogRow::Run(run)) => match run.events.as_slice() {
                    [one] => of(&one.agent, one.entry.as_ref()),
                    _ => Err(format!(
                        "the run has several agents; {} shows them",
                        self.key(Command::Open)
                    )),
                },
                _ => Err("this row is no run".to_string()),
            },
            (Screen::Agent, _) if self.agent.tab == Tab::History && self.agent.is_list() => {
                let past = self.agent.history.current();
                let past = past.ok_or("nothing was done to it yet")?;
                of(&self.agent.name, past.record.what.entry.as_ref())
            }
            _ => Err("there is no entry here".to_string()),
        }
    }
}

/// Lines as a text; those of a diff with their signs, facts with what they are about.
fn joined(lines: &[TextLine], labels: &[&str]) -> Vec<u8> {
    let changed = |line: &TextLine| matches!(line.kind, LineKind::Added | LineKind::Removed);
    let signs = lines.iter().any(changed);
    let mut text = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if let Some(label) = labels.get(at) {
            let width = if line.raw.is_empty() { 0 } else { LABEL };
            text.extend(format!("{label:<width$}").into_bytes());
        }
        if signs {
            text.push(match line.kind {
                LineKind::Added => b'+',
                LineKind::Removed => b'-',
                _ => b' ',
            });
        }
        text.extend_from_slice(&line.raw);
        text.push(b'\n');
    }
    text
}
