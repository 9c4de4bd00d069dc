//! `config check` and `config show`.

use std::io;

use serde::Serialize;

use super::output::{Document, OutputRole, Printer, count};
use super::{CommandContext, CommandResult};
use crate::config::{
    self, Agent, BaselineEntry, Diagnostic, DiagnosticLevel, MemoryLocation, Origin,
};
use crate::engine::Engine;
use crate::error::Kind;

/// What `config check` answers.
#[derive(Serialize)]
struct Check {
    config: String,
    agents: Option<usize>,
    errors: usize,
    warnings: usize,
    diagnostics: Vec<Diagnostic>,
}

impl Document for Check {
    fn text(&self, page: &mut Printer<'_>) -> io::Result<()> {
        for diagnostic in &self.diagnostics {
            page.diagnostic(diagnostic)?;
        }
        let agents = self
            .agents
            .map_or(String::new(), |number| count(number, "agent") + ", ");
        let role = match self.errors {
            0 => OutputRole::Good,
            _ => OutputRole::Bad,
        };
        let found = format!(
            "{agents}{}, {}",
            count(self.errors, "error"),
            count(self.warnings, "warning")
        );
        page.line(&[
            (OutputRole::Head, &self.config),
            (OutputRole::Plain, ": "),
            (role, &found),
        ])
    }
}

/// What `config show` answers.
#[derive(Serialize)]
struct Show {
    config: String,
    values: Vec<BaselineEntry>,
}

impl Document for Show {
    fn text(&self, page: &mut Printer<'_>) -> io::Result<()> {
        page.line(&[(OutputRole::Dim, "# "), (OutputRole::Dim, &self.config)])?;
        let mut section = "";
        for entry in &self.values {
            if entry.section != section {
                section = &entry.section;
                page.plain("")?;
                page.line(&[(OutputRole::Head, &format!("[{section}]"))])?;
            }
            let origin = match entry.origin {
                Origin::Default => "  # default".to_string(),
                Origin::Line(line) => format!("  # line {line}"),
            };
            let pair = format!("{}={}", entry.key, entry.value);
            page.line(&[(OutputRole::Plain, &pair), (OutputRole::Dim, &origin)])?;
        }
        Ok(())
    }
}

/// Agents that no reset can be for, because of where the config says that their memories
/// are. They are refused one by one, so that none keeps the others from being reset; here
/// each is an error.
fn memory_errors(engine: &Engine) -> Vec<Diagnostic> {
    let config = engine.config();
    let diagnostic = |agent: &Agent, message: String, hint: Option<String>| {
        let key = match agent.place {
            MemoryLocation::Local { .. } => "memory_file",
            MemoryLocation::Remote { .. } => "remote_memory",
        };
        Diagnostic {
            level: DiagnosticLevel::Error,
            file: config.path.clone(),
            line: match config.origin(&agent.name, key) {
                Origin::Line(line) => Some(line),
                Origin::Default => None,
            },
            text: format!("{key} = {}", agent.place.memory().display()),
            message,
            hint,
        }
    };
    let mut found = Vec::new();
    for (agent, error) in engine.irreplaceable_memories() {
        let message = format!("{}: {}", agent.name, error.message());
        found.push(diagnostic(agent, message, error.hints().first().cloned()));
    }
    for names in engine.shared_memories() {
        let agents = names.iter().filter_map(|name| config.agent(name));
        for agent in agents.skip(1) {
            let message = config::same_memory(names[0], &agent.name);
            let hint = Some(config::SAME_MEMORY_HINT.to_string());
            found.push(diagnostic(agent, message, hint));
        }
    }
    found
}

impl CommandContext<'_> {
    pub(super) fn config_check(&mut self) -> CommandResult {
        let located = config::locate(self.flag.as_deref(), &self.world.env)?;
        for note in &located.notes {
            self.out.warning(note);
        }
        let config::Examined { config, problems } = config::examine(&located.path, &self.world.env);
        let is_error = |it: &Diagnostic| it.level == DiagnosticLevel::Error;
        let agents = config.as_ref().map(|config| config.agents.len());
        let agents = agents.filter(|_| !problems.iter().any(is_error));
        // A group that this machine lacks keeps commands from running, not this.
        let engine = config.and_then(|config| self.engine(config).ok());
        let errors: Vec<Diagnostic> = engine.iter().flat_map(memory_errors).collect();
        // What the config alone shows is a warning for commands that go on.
        let is_new = |it: &Diagnostic| errors.iter().all(|error| error.message != it.message);
        let mut diagnostics: Vec<Diagnostic> = problems.into_iter().filter(is_new).collect();
        diagnostics.extend(errors);
        diagnostics.sort_by_key(|it| it.line);
        let count = |level| diagnostics.iter().filter(|it| it.level == level).count();
        let check = Check {
            config: located.path.display().to_string(),
            agents,
            errors: count(DiagnosticLevel::Error),
            warnings: count(DiagnosticLevel::Warning),
            diagnostics,
        };
        self.out.document(&check)?;
        Ok((check.errors > 0).then_some(Kind::Config))
    }

    pub(super) fn config_show(&mut self) -> CommandResult {
        let (config, _) = self.config()?;
        self.out.document(&Show {
            config: config.path.display().to_string(),
            values: config.entries().to_vec(),
        })?;
        Ok(None)
    }
}
