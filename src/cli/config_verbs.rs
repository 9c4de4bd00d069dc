//! `config check` and `config show`: all mistakes in a config, and its effective values.

use std::collections::BTreeSet;
use std::io;

use serde::Serialize;

use super::arguments::ConfigVerb;
use super::output::{Document, OutputRole, Printer, dim, format_count, heading, plain};
use super::{CommandContext, CommandResult};
use crate::base::error::ErrorKind;
use crate::baseline::BaselineRefusal;
use crate::config::{
    self, Agent, Config, ConfigEnvironment, ConfigErrors, Diagnostic, DiagnosticLevel,
    EffectiveValue, ValueOrigin,
};
use crate::console::theme::{ColourDepth, Themes};
use crate::engine::Engine;
use crate::unattended::alerts::{AlertEnvironment, UntrustedCommand};

/// The answer of `config check`.
#[derive(Serialize)]
struct ConfigCheckDocument {
    config: String,
    agents: Option<usize>,
    errors: usize,
    warnings: usize,
    diagnostics: Vec<Diagnostic>,
}

impl Document for ConfigCheckDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        for diagnostic in &self.diagnostics {
            printer.write_diagnostic(diagnostic)?;
        }
        let agents = self
            .agents
            .map_or(String::new(), |number| format_count(number, "agent") + ", ");
        let role = match self.errors {
            0 => OutputRole::Good,
            _ => OutputRole::Bad,
        };
        let found = format!(
            "{agents}{}, {}",
            format_count(self.errors, "error"),
            format_count(self.warnings, "warning")
        );
        printer.write_line(&[heading(&self.config), plain(": "), (role, &found)])
    }
}

/// The answer of `config show`.
#[derive(Serialize)]
struct ConfigShowDocument {
    config: String,
    values: Vec<EffectiveValue>,
}

impl Document for ConfigShowDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        printer.write_line(&[dim("# "), dim(&self.config)])?;
        let mut section = "";
        for entry in &self.values {
            if entry.section != section {
                section = &entry.section;
                printer.write_plain_line("")?;
                printer.write_line(&[heading(&format!("[{section}]"))])?;
            }
            let origin = match entry.origin {
                ValueOrigin::Default => "  # default".to_string(),
                ValueOrigin::Line(line) => format!("  # line {line}"),
            };
            let pair = format!("{}={}", entry.key, entry.value);
            printer.write_line(&[plain(&pair), dim(&origin)])?;
        }
        Ok(())
    }
}

/// Returns an error for each agent whose memory, where the config says that it is, no run can
/// replace. Other commands refuse these agents one by one, so that the other agents can still be
/// reset.
fn memory_diagnostics(engine: &Engine) -> Vec<Diagnostic> {
    let config = engine.config();
    let diagnostic = |agent: &Agent, key: &str, message: String, hints: Vec<String>| {
        let layout = agent.layout.as_ref().filter(|_| key == "memory_dir");
        let path = layout.map_or(agent.observed_path(), |it| &it.directory);
        let value = path.display().to_string();
        config.error_at_value((&agent.name, key), &value, message, hints)
    };
    let mut diagnostics = Vec::new();
    for (agent, key, error) in engine.memory_checks().irreplaceable_memories() {
        let message = format!("{}: {}", agent.name, error.message());
        diagnostics.push(diagnostic(agent, key, message, error.hints().to_vec()));
    }
    for names in engine.shared_memories().agents_sharing_memories() {
        let agents = names.iter().filter_map(|name| config.agent(name));
        for agent in agents.skip(1) {
            let message = config::same_memory_message(names[0], &agent.name);
            let hints = vec![config::SAME_MEMORY_HINT.to_string()];
            let key = agent.observed_key();
            diagnostics.push(diagnostic(agent, key, message, hints));
        }
    }
    diagnostics
}

/// Returns a warning about a command of the alerts that is not run because root would run what another
/// user can change.
fn command_diagnostic(config: &Config, environment: &AlertEnvironment) -> Option<Diagnostic> {
    let settings = config.alerts.as_ref()?;
    let untrusted = UntrustedCommand::find(settings, environment)?;
    let program = settings.command.as_ref()?.first()?;
    let (message, hints) = (untrusted.message(), vec![untrusted.hint()]);
    Some(Diagnostic {
        level: DiagnosticLevel::Warning,
        ..config.error_at_value(("alerts", "command"), program, message, hints)
    })
}

/// Returns an error for a theme with which no console starts.
fn theme_diagnostic(config: &Config, env: &ConfigEnvironment) -> Option<Diagnostic> {
    let name = &config.general.theme;
    let error = Themes::of_user(env, ColourDepth::default())
        .load(name)
        .err()?;
    let (message, hints) = (error.message().to_string(), error.hints().to_vec());
    Some(config.error_at_value(("general", "theme"), name, message, hints))
}

/// Returns an error for each baseline that no reset installs, because it is missing, too small or not
/// filled in. What a seal refuses is not the config's.
fn baseline_diagnostics(engine: &Engine) -> Vec<Diagnostic> {
    let config = engine.config();
    let mut baselines = engine.baselines().baseline_cache();
    let mut seen = BTreeSet::new();
    let mut diagnostics = Vec::new();
    for agent in &config.agents {
        if let Some(baseline) = agent.baseline()
            && seen.insert(baseline)
            && let Err(BaselineRefusal::Unusable(error)) = baselines.load(agent)
        {
            diagnostics.push(config.error_at_value(
                (&agent.name, "baseline"),
                baseline,
                format!("resets refuse it: {}", error.message()),
                error.hints().to_vec(),
            ));
        }
    }
    diagnostics
}

pub(super) fn run(context: &mut CommandContext<'_>, verb: ConfigVerb) -> CommandResult {
    match verb {
        ConfigVerb::Check => check(context),
        ConfigVerb::Show => show(context),
    }
}

fn check(context: &mut CommandContext<'_>) -> CommandResult {
    let located = config::locate(context.config_flag.as_deref(), &context.environment.env)?;
    let config::CheckedConfig {
        config,
        diagnostics: problems,
    } = config::check_file(&located.path, &context.environment.env);
    let is_error = |it: &Diagnostic| it.level == DiagnosticLevel::Error;
    let agents = config
        .as_ref()
        .map(|config| config.agents.len())
        .filter(|_| !problems.iter().any(is_error));
    let mut errors: Vec<Diagnostic> = Vec::new();
    if let Some(config) = config {
        let group = super::resolve_archive_group(&config, context.environment.find_group);
        let group = group.unwrap_or_else(|ConfigErrors(missing)| {
            errors.extend(missing);
            None
        });
        errors.extend(theme_diagnostic(&config, &context.environment.env));
        errors.extend(command_diagnostic(&config, &context.environment.alerts));
        let engine = context.new_cli_engine(config, group);
        errors.extend(memory_diagnostics(&engine));
        errors.extend(baseline_diagnostics(&engine));
    }
    // For commands that go on, the same problems are warnings of the config.
    let is_new = |it: &Diagnostic| errors.iter().all(|error| error.message != it.message);
    let mut diagnostics: Vec<Diagnostic> = problems.into_iter().filter(is_new).collect();
    diagnostics.extend(errors);
    diagnostics.sort_by_key(|it| it.line);
    let count_of = |level| diagnostics.iter().filter(|it| it.level == level).count();
    let check = ConfigCheckDocument {
        config: located.path.display().to_string(),
        agents,
        errors: count_of(DiagnosticLevel::Error),
        warnings: count_of(DiagnosticLevel::Warning),
        diagnostics,
    };
    context.print_document(&check)?;
    Ok((check.errors > 0).then_some(ErrorKind::Config))
}

fn show(context: &mut CommandContext<'_>) -> CommandResult {
    let config = context.load_config()?;
    context.print_answer(&ConfigShowDocument {
        config: config.path.display().to_string(),
        values: config.effective_values(),
    })
}
