//! `lint`: checks baselines and memories against the rules, explains the rules, applies safe fixes.

mod annotations;
mod sarif;
mod text;

use std::collections::HashSet;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

use super::{CommandContext, CommandResult};
use crate::base::clock::{Clock, SystemClock};
use crate::base::durable;
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::base::untrusted::visible_line;
use crate::cli::arguments::values::EXIT_CODES;
use crate::cli::baseline::plans::warn_of_foreign_baseline;
use crate::config::{self, Agent};
use crate::engine::{self, Engine, FixedFile, LintDecisions, LintedFile, SealStatus};
use crate::lint::{
    Finding, LintSettings, RULES, Rule, RuleId, Severity, Suppressed, TextRole, Unchecked, Words,
};
use text::{RuleDocument, RulesDocument, WordListItem, WordsDocument};

/// Size limit of a text of no agent, in bytes.
const MAX_INPUT_BYTES: u64 = 16 << 20;

/// The name of standard input in findings.
const STANDARD_INPUT: &str = "-";

/// Arguments of `lint`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct LintArgs {
    #[command(subcommand)]
    what: Option<LintVerb>,
    /// Agents, files, or `-` for standard input; by default all agents of the config
    #[arg(value_name = "AGENT|FILE|-")]
    targets: Vec<String>,
    /// How files of no agent and standard input are judged
    #[arg(long, value_name = "ZONE", value_enum, default_value_t)]
    zone: TargetZone,
    /// Format of the output
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    format: LintFormat,
    /// Exits with 1 if a finding has at least this severity
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t)]
    fail_on: FailLevel,
    /// Applies safe fixes to baselines, of the fleet or with a name in .md or .markdown: line ends, byte
    /// order mark, a missing separator of a draft
    #[arg(long)]
    fix: bool,
}

/// What `lint` prints about its rules.
#[derive(Debug, Subcommand)]
enum LintVerb {
    /// Explains a rule: when it fires, why, and what to do
    #[command(after_help = EXIT_CODES)]
    Explain {
        /// Number or name, such as MS402 or separator-ambiguous
        #[arg(value_name = "ID")]
        rule: String,
    },
    /// Lists all rules
    #[command(after_help = EXIT_CODES)]
    Rules,
    /// Lists the word lists that rules use, or prints one
    #[command(after_help = EXIT_CODES)]
    Words {
        /// Name of the list that is printed
        #[arg(value_name = "LIST")]
        list: Option<String>,
    },
}

/// How a text of no agent is judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum TargetZone {
    /// As a baseline.
    #[default]
    Baseline,
    /// As notes of an agent.
    Scratch,
}

/// Format of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum LintFormat {
    /// For people, with the lines in question.
    #[default]
    Text,
    /// One line a finding.
    Short,
    /// One JSON document.
    Json,
    /// SARIF 2.1.0.
    Sarif,
    /// Annotations of a workflow on GitHub.
    Github,
}

/// Severity from which findings fail the command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum FailLevel {
    /// Errors only.
    #[default]
    Error,
    /// Warnings, too.
    Warning,
    /// Any finding.
    Info,
}

impl FailLevel {
    fn severity(self) -> Severity {
        match self {
            FailLevel::Error => Severity::Error,
            FailLevel::Warning => Severity::Warning,
            FailLevel::Info => Severity::Info,
        }
    }
}

/// Numbers of findings.
#[derive(Default, Serialize)]
struct LintSummary {
    files: usize,
    errors: usize,
    warnings: usize,
    infos: usize,
    suppressed: usize,
    /// Files that were corrected.
    fixed: usize,
}

/// The answer of `lint`, which every format renders.
#[derive(Serialize)]
struct LintDocument {
    findings: Vec<Finding>,
    unchecked: Vec<Unchecked>,
    suppressed: Vec<Suppressed>,
    /// Targets that could not be read, which is never clean.
    unread: Vec<UnreadTarget>,
    summary: LintSummary,
    /// The files, for excerpts.
    #[serde(skip)]
    files: Vec<LintedFile>,
    /// The working directory.
    #[serde(skip)]
    directory: PathBuf,
}

/// A target that could not be read.
#[derive(Serialize)]
struct UnreadTarget {
    target: String,
    message: String,
}

impl LintDocument {
    fn new(
        mut files: Vec<LintedFile>,
        unread: Vec<UnreadTarget>,
        fixed: usize,
        directory: PathBuf,
    ) -> LintDocument {
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let mut document = LintDocument {
            findings: Vec::new(),
            unchecked: Vec::new(),
            suppressed: Vec::new(),
            unread,
            summary: LintSummary {
                files: files.len(),
                fixed,
                ..LintSummary::default()
            },
            files: Vec::new(),
            directory,
        };
        for file in &files {
            document
                .findings
                .extend(file.report.findings.iter().cloned());
            document
                .unchecked
                .extend(file.report.unchecked.iter().cloned());
            document
                .suppressed
                .extend(file.report.suppressed.iter().cloned());
        }
        let count = |severity: Severity| {
            let findings = document.findings.iter();
            findings.filter(|it| it.severity == severity).count()
        };
        document.summary.errors = count(Severity::Error);
        document.summary.warnings = count(Severity::Warning);
        document.summary.infos = count(Severity::Info);
        document.summary.suppressed = document.suppressed.len();
        document.files = files;
        document
    }

    /// Returns a path as people and workflows read it: relative to the working directory if it is
    /// below it.
    fn shown_path<'p>(&self, path: &'p str) -> &'p str {
        let relative = Path::new(path).strip_prefix(&self.directory).ok();
        relative.and_then(Path::to_str).unwrap_or(path)
    }

    /// Returns the kind that the answer stands for: an unread target before findings.
    fn kind(&self, fail_on: FailLevel) -> Option<ErrorKind> {
        let mut findings = self.findings.iter();
        if !self.unread.is_empty() {
            Some(ErrorKind::Host)
        } else if findings.any(|it| it.severity >= fail_on.severity()) {
            Some(ErrorKind::Partial)
        } else {
            None
        }
    }
}

/// A text to lint.
enum LintTarget<'e> {
    Baseline(&'e Agent),
    Memory(&'e Agent),
    File(PathBuf),
    StandardInput,
}

/// Rules and settings for the targets: those of the fleet, or the defaults without a config.
struct LintSession {
    engine: Option<Engine>,
    decisions: LintDecisions,
    /// Settings for texts of no agent.
    settings: LintSettings,
    zone: TargetZone,
}

impl LintSession {
    fn separator(&self) -> &str {
        let engine = self.engine.as_ref();
        engine.map_or("---", |it| it.config().general.separator.as_str())
    }

    /// Whether a seal protects the baselines of the fleet.
    fn has_seal(&self) -> bool {
        let status = self
            .engine
            .as_ref()
            .map(|engine| engine.baselines().seal_status());
        matches!(status, Some(Ok(SealStatus::Applied(_))))
    }

    fn role(&self) -> TextRole {
        match self.zone {
            TargetZone::Baseline => TextRole::Baseline,
            TargetZone::Scratch => TextRole::Scratch,
        }
    }

    /// Reads and lints a target; `None` where there is nothing to read yet.
    fn lint(&self, target: &LintTarget<'_>) -> Result<Option<LintedFile>> {
        let engine = self.engine.as_ref();
        let text = match (target, engine) {
            (LintTarget::Baseline(agent), Some(engine)) => {
                return engine
                    .lint()
                    .lint_baseline(agent, &self.decisions)
                    .map(Some);
            }
            (LintTarget::Memory(agent), Some(engine)) => {
                return engine.observer().lint_memory(agent, &self.decisions);
            }
            (LintTarget::Baseline(_) | LintTarget::Memory(_), None) => return Ok(None),
            (LintTarget::File(path), _) => {
                durable::read_regular_file(path, MAX_INPUT_BYTES).with_path("read", path)?
            }
            (LintTarget::StandardInput, _) => read_standard_input()?,
        };
        let path = match target {
            LintTarget::File(path) => path.as_path(),
            _ => Path::new(STANDARD_INPUT),
        };
        let (role, separator) = (self.role(), self.separator());
        let linted = engine::lint_text(path, text, role, separator, &self.settings);
        Ok(Some(linted))
    }
}

fn read_standard_input() -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let input = io::stdin().lock();
    let read = input.take(MAX_INPUT_BYTES + 1).read_to_end(&mut text);
    read.with_path("read", Path::new("standard input"))?;
    if text.len() as u64 > MAX_INPUT_BYTES {
        return Err(Error::new(
            ErrorKind::Host,
            "standard input has more than 16 MiB",
        ));
    }
    Ok(text)
}

pub(super) fn run(context: &mut CommandContext<'_>, args: &LintArgs) -> CommandResult {
    match &args.what {
        Some(LintVerb::Explain { rule }) => return explain_rule(context, rule),
        Some(LintVerb::Rules) => {
            return context.print_answer(&RulesDocument { rules: RULES });
        }
        Some(LintVerb::Words { list }) => return print_words(context, list.as_deref()),
        None => {}
    }
    let session = open_lint_session(context, args)?;
    let mut targets = lint_targets(context, args, session.engine.as_ref())?;
    // Standard input can be read once.
    let mut has_read_input = false;
    targets.retain(|it| {
        let is_input = matches!(it, LintTarget::StandardInput);
        let is_second = is_input && has_read_input;
        has_read_input |= is_input;
        !is_second
    });
    let mut files = Vec::new();
    let mut unread = Vec::new();
    let mut fixed = 0;
    let mut fault: Option<ErrorKind> = None;
    for target in &targets {
        let mut linted = session.lint(target);
        let can_be_fixed = args.fix && target.can_be_fixed(session.zone);
        if let (true, Ok(Some(file))) = (can_be_fixed, &linted) {
            match fix(context, &session, file) {
                Ok(false) => {}
                Ok(true) => {
                    fixed += 1;
                    linted = session.lint(target);
                }
                Err(error) => {
                    context.print_failure(&error);
                    let kind = error.kind();
                    fault = Some(fault.map_or(kind, |fault| fault.more_serious(kind)));
                }
            }
        }
        match linted {
            Ok(linted) => {
                if let Some(error) = linted.as_ref().and_then(partly_read_error) {
                    unread.push(report_unread(context, target, &error));
                }
                files.extend(linted);
            }
            Err(error) => unread.push(report_unread(context, target, &error)),
        }
    }
    let document = LintDocument::new(files, unread, fixed, context.environment.env.cwd.clone());
    let kinds = document.kind(args.fail_on).into_iter().chain(fault);
    print_lint(context, &document, args.format)?;
    Ok(kinds.reduce(ErrorKind::more_serious))
}

/// Corrects a file that was linted. Returns whether it changed.
fn fix(context: &mut CommandContext<'_>, session: &LintSession, file: &LintedFile) -> Result<bool> {
    let (fixed, engine) = match &session.engine {
        Some(engine) => (engine.lint().fix_linted_file(file)?, engine),
        None => {
            let fixed = engine::fix_draft(file, &SystemClock)?;
            return Ok(fixed != FixedFile::Unchanged);
        }
    };
    if let FixedFile::Baseline { name, is_foreign } = &fixed {
        if *is_foreign {
            warn_of_foreign_baseline(context, engine, "", name);
        }
        if session.has_seal() {
            let note = "a seal covers the baselines: seal the corrected one again";
            context.print_note(note);
        }
    }
    Ok(fixed != FixedFile::Unchanged)
}

fn explain_rule(context: &mut CommandContext<'_>, name: &str) -> CommandResult {
    let Some(rule) = RuleId::parse(name) else {
        let names = RULES.iter().flat_map(|rule| [rule.id, rule.name]);
        let hint = "`memory-shepherd lint rules` lists all rules";
        return Err(unknown_name_error("lint rule", name, names, hint).into());
    };
    let rule: &'static Rule = rule.rule();
    context.print_answer(&RuleDocument { rule })
}

/// Returns the error of a name that is none of `names`; the hint is for one that resembles none of them.
fn unknown_name_error(
    what: &str,
    name: &str,
    names: impl Iterator<Item = &'static str>,
    hint: &str,
) -> Error {
    let error = Error::new(ErrorKind::User, format!("no {what} named {name}"));
    match config::closest_match(name, names) {
        Some(near) => error.with_hint(format!("did you mean {near}?")),
        None => error.with_hint(hint),
    }
}

fn print_words(context: &mut CommandContext<'_>, name: Option<&str>) -> CommandResult {
    let lists: Vec<WordListItem> = Words::shipped_lists()
        .filter(|(list, _)| name.is_none_or(|name| name == *list))
        .map(|(name, text)| WordListItem { name, text })
        .collect();
    if let (Some(name), []) = (name, lists.as_slice()) {
        let names = Words::shipped_lists().map(|(name, _)| name);
        let hint = "`memory-shepherd lint words` lists them";
        return Err(unknown_name_error("word list", name, names, hint).into());
    }
    let prints_text = name.is_some();
    context.print_answer(&WordsDocument { lists, prints_text })
}

/// Opens the fleet, or uses the defaults if all targets are files and no config may be used.
fn open_lint_session(
    context: &mut CommandContext<'_>,
    args: &LintArgs,
) -> std::result::Result<LintSession, super::CommandError> {
    let mut targets = args.targets.iter();
    let needs_no_config = !args.targets.is_empty() && targets.all(|it| is_path(context, it));
    if needs_no_config && !finds_config_for_lint(context) {
        let settings = LintSettings {
            today: SystemClock.now().date_naive(),
            ..LintSettings::default()
        };
        return Ok(LintSession {
            engine: None,
            decisions: LintDecisions::default(),
            settings,
            zone: args.zone,
        });
    }
    let engine = context.open_engine()?;
    let decisions = engine.lint().load_lint_decisions()?;
    let settings = engine.lint().lint_settings(None, &decisions);
    Ok(LintSession {
        engine: Some(engine),
        decisions,
        settings,
        zone: args.zone,
    })
}

/// Whether a lint of files has a config. One that is found and not trusted is not used, which a
/// warning says: the files are linted all the same.
fn finds_config_for_lint(context: &mut CommandContext<'_>) -> bool {
    let env = &context.environment.env;
    match config::locate_if_any(context.config_flag.as_deref(), env) {
        Ok(found) => found.is_some(),
        Err(_) if context.config_flag.is_some() || env.names_config() => true,
        Err(error) => {
            context.print_warning(format!(
                "{}; the lint uses its default settings",
                error.message()
            ));
            context.print_hints(error.hints());
            false
        }
    }
}

/// Resolves targets: agents by name, files that belong to agents, other files. A baseline that
/// several agents share is judged once.
fn lint_targets<'e>(
    context: &CommandContext<'_>,
    args: &LintArgs,
    engine: Option<&'e Engine>,
) -> Result<Vec<LintTarget<'e>>> {
    let Some(engine) = engine else {
        let targets = args.targets.iter();
        return Ok(targets.map(|it| file_target(context, it)).collect());
    };
    let config = engine.config();
    let mut seen_baselines: HashSet<&str> = HashSet::new();
    let mut targets = Vec::new();
    let mut add_agent = |agent: &'e Agent, targets: &mut Vec<LintTarget<'e>>| {
        let Some(baseline) = agent.baseline() else {
            return;
        };
        if seen_baselines.insert(baseline) {
            targets.push(LintTarget::Baseline(agent));
        }
        targets.push(LintTarget::Memory(agent));
    };
    if args.targets.is_empty() {
        for agent in &config.agents {
            add_agent(agent, &mut targets);
        }
    }
    for name in &args.targets {
        let path = context.environment.env.cwd.join(name);
        // Of the memories only their configured paths are compared, which have no links: looking
        // at each could hang.
        let real_path = path.canonicalize().ok();
        let mut agents = config.agents.iter();
        if let Some(agent) = config.agent(name) {
            agent.required_reset()?;
            add_agent(agent, &mut targets);
        } else if let Some(agent) = agents.find(|it| {
            config
                .baseline_path(it)
                .is_some_and(|it| is_same_path(&it, &path))
        }) {
            targets.push(LintTarget::Baseline(agent));
        } else if let Some(agent) = config.reset_agents().find(|it| {
            let memory = it.observed_path();
            it.host().is_none() && (memory == path || Some(memory) == real_path.as_deref())
        }) {
            targets.push(LintTarget::Memory(agent));
        } else if is_path(context, name) {
            targets.push(file_target(context, name));
        } else {
            // Neither an agent nor a file.
            engine.agent(name)?;
        }
    }
    Ok(targets)
}

/// Whether a target names a file or standard input, because no agent can have that name or
/// because the file exists.
fn is_path(context: &CommandContext<'_>, target: &str) -> bool {
    target == STANDARD_INPUT
        || target.contains(['/', '.'])
        || context.environment.env.cwd.join(target).exists()
}

fn file_target<'e>(context: &CommandContext<'_>, name: &str) -> LintTarget<'e> {
    match name {
        STANDARD_INPUT => LintTarget::StandardInput,
        _ => LintTarget::File(context.environment.env.cwd.join(name)),
    }
}

fn report_unread(
    context: &mut CommandContext<'_>,
    target: &LintTarget<'_>,
    error: &Error,
) -> UnreadTarget {
    let name = match target {
        LintTarget::Baseline(agent) => format!("baseline of {}", agent.name),
        LintTarget::Memory(agent) => format!("memory of {}", agent.name),
        LintTarget::File(path) => path.display().to_string(),
        LintTarget::StandardInput => STANDARD_INPUT.to_string(),
    };
    // An error about a file names it.
    let message = if matches!(target, LintTarget::File(_)) {
        error.to_string()
    } else {
        format!("{name}: {error}")
    };
    context.print_error(&message);
    context.print_hints(error.hints());
    UnreadTarget {
        target: visible_line(&name),
        message: visible_line(error.message()),
    }
}

fn print_lint(
    context: &mut CommandContext<'_>,
    document: &LintDocument,
    format: LintFormat,
) -> Result<()> {
    let output = &mut context.output;
    if output.is_json() {
        return output.print_json(document);
    }
    match format {
        LintFormat::Json => output.print_json(document),
        LintFormat::Sarif => output.print_foreign_json(&sarif::SarifLog::new(document)),
        LintFormat::Text => output.print_text(|it| text::write_findings(document, it)),
        LintFormat::Short => output.print_text(|it| text::write_lines(document, it)),
        LintFormat::Github => output.print_text(|it| annotations::write_annotations(document, it)),
    }
}

impl LintTarget<'_> {
    /// Whether `--fix` may change it: files of the operator only.
    fn can_be_fixed(&self, zone: TargetZone) -> bool {
        match self {
            LintTarget::Baseline(_) => true,
            LintTarget::File(_) => zone == TargetZone::Baseline,
            LintTarget::Memory(_) | LintTarget::StandardInput => false,
        }
    }
}

/// Returns the error of a file that was checked in part: what is behind that may be anything.
fn partly_read_error(file: &LintedFile) -> Option<Error> {
    let read = file.text.len() as u64;
    let message = format!(
        "only the first {read} of {} bytes were checked",
        read + file.unread_bytes
    );
    let hint = "reset the agent, and check the archived entry";
    (file.unread_bytes > 0).then(|| Error::new(ErrorKind::Host, message).with_hint(hint))
}

/// Whether two paths name the same file.
fn is_same_path(one: &Path, other: &Path) -> bool {
    one == other
        || one
            .canonicalize()
            .and_then(|one| Ok(one == other.canonicalize()?))
            .unwrap_or(false)
}
