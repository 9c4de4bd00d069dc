//! `config check` and `config show`.

use std::io;

use serde::Serialize;

use super::output::{Document, Page, Role, count};
use super::{Context, Ended};
use crate::config::{self, Agent, Diagnostic, Entry, Level, Origin, Problems};
use crate::engine::Engine;
use crate::error::{Error, Kind};

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
    fn text(&self, page: &mut Page<'_>) -> io::Result<()> {
        for diagnostic in &self.diagnostics {
            page.diagnostic(diagnostic)?;
        }
        let agents = self
            .agents
            .map_or(String::new(), |number| count(number, "agent") + ", ");
        let role = match self.errors {
            0 => Role::Good,
            _ => Role::Bad,
        };
        let found = format!(
            "{agents}{}, {}",
            count(self.errors, "error"),
            count(self.warnings, "warning")
        );
        page.line(&[
            (Role::Head, &self.config),
            (Role::Plain, ": "),
            (role, &found),
        ])
    }
}

/// What `config show` answers.
#[derive(Serialize)]
struct Show {
    config: String,
    values: Vec<Entry>,
}

impl Document for Show {
    fn text(&self, page: &mut Page<'_>) -> io::Result<()> {
        page.line(&[(Role::Dim, "# "), (Role::Dim, &self.config)])?;
        let mut section = "";
        for entry in &self.values {
            if entry.section != section {
                section = &entry.section;
                page.plain("")?;
                page.line(&[(Role::Head, &format!("[{section}]"))])?;
            }
            let origin = match entry.origin {
                Origin::Default => "  # default".to_string(),
                Origin::Line(line) => format!("  # line {line}"),
            };
            let pair = format!("{}={}", entry.key, entry.value);
            page.line(&[(Role::Plain, &pair), (Role::Dim, &origin)])?;
        }
        Ok(())
    }
}

/// Agents whose memory is a directory by mistake. They are refused one by one, so that
/// none keeps the others from being reset; here each is an error.
fn misplaced(engine: &Engine) -> Vec<Diagnostic> {
    let diagnostic = |(agent, error): (&Agent, Error)| Diagnostic {
        level: Level::Error,
        file: engine.config().path.clone(),
        line: match engine.config().origin(&agent.name, "memory_file") {
            Origin::Line(line) => Some(line),
            Origin::Default => None,
        },
        text: format!("memory_file = {}", agent.place.memory().display()),
        message: format!("{}: {}", agent.name, error.message()),
        hint: error.hints().first().cloned(),
    };
    let found = engine.misplaced_memories();
    found.into_iter().map(diagnostic).collect()
}

impl Context<'_> {
    pub(super) fn config_check(&mut self) -> Ended {
        let located = config::locate(self.flag.as_deref(), &self.world.env)?;
        for note in &located.notes {
            self.out.warning(note);
        }
        let (agents, diagnostics) = match config::load(&located.path, &self.world.env) {
            Ok(config) => {
                let mut diagnostics = config.warnings.clone();
                let agents = config.agents.len();
                // A group that this machine lacks keeps commands from running, not this.
                let engine = self.engine(config);
                diagnostics.extend(engine.iter().flat_map(misplaced));
                (Some(agents), diagnostics)
            }
            Err(Problems(diagnostics)) => (None, diagnostics),
        };
        let count = |level| diagnostics.iter().filter(|it| it.level == level).count();
        let check = Check {
            config: located.path.display().to_string(),
            agents,
            errors: count(Level::Error),
            warnings: count(Level::Warning),
            diagnostics,
        };
        self.out.document(&check)?;
        Ok((check.errors > 0).then_some(Kind::Config))
    }

    pub(super) fn config_show(&mut self) -> Ended {
        let (config, _) = self.config()?;
        self.out.document(&Show {
            config: config.path.display().to_string(),
            values: config.entries().to_vec(),
        })?;
        Ok(None)
    }
}
