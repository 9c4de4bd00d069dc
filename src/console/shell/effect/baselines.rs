//! Executes the effects on baselines: lists and compares them, makes the plans over them and applies
//! these, and verifies.

use std::convert::Infallible;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, bounded};

use super::agent_texts::DIFF_TIMEOUT;
use super::job_queue::{JobClass, Request};
use super::{EffectRunner, MAX_HISTORY_RECORDS};
use crate::base::diff;
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::base::quantity::format_count;
use crate::baseline::signatures::SigningKey;
use crate::config::ConfigEnvironment;
use crate::console::message::{ComparisonTexts, Msg};
use crate::console::screens::baseline_plan::state::{
    AppliedBaselinePlan, BaselineChangePlan, BaselinePlanRequest, BaselinePlanRow,
    PreparedBaselinePlan,
};
use crate::console::screens::baselines::state::{ComparedVersion, ComparisonRequest};
use crate::console::screens::reset::state::RuleChangeRequest;
use crate::console::text::{self, ComparedTexts, PreparedText};
use crate::engine::{
    BaselineAction, BaselineFile, BaselinePlan, Engine, PlannedBaseline, SealChange,
    SealChangeKind, SealMatch, SealPlan, SealScope,
};
use crate::lint::Finding;

/// Interval between two reports of the progress of a verification.
const VERIFY_REPORT_INTERVAL: Duration = Duration::from_millis(250);

pub(super) fn list_baselines(runner: &EffectRunner) {
    let request = Request::latest(JobClass::BaselineList, "list").listed_as("baselines");
    runner.submit(request, |engine| {
        let list = engine.map(|it| it.baseline_catalog().list_baselines());
        let list = list.map(Box::new).map_err(|error| error.to_string());
        Msg::BaselinesLoaded(list)
    });
}

pub(super) fn load_baseline_versions(runner: &EffectRunner, name: String) {
    let request = Request::listed(JobClass::BaselineTexts, format!("versions of {name}"));
    runner.submit(request, move |engine| {
        let versions = engine.and_then(|it| {
            it.baseline_catalog()
                .baseline_history(&name, MAX_HISTORY_RECORDS)
        });
        let versions = versions
            .map(|page| page.versions)
            .map_err(|error| error.to_string());
        Msg::BaselineVersionsLoaded(name, versions)
    });
}

pub(super) fn compare_baseline(runner: &EffectRunner, comparison: ComparisonRequest) {
    let request = Request::latest(JobClass::BaselineTexts, "comparison")
        .listed_as(format!("comparison of {}", comparison.name));
    runner.submit(request, move |engine| {
        let texts = engine.and_then(|it| compare(it, &comparison));
        let texts = texts.map(Box::new).map_err(|error| error.to_string());
        Msg::BaselineCompared(comparison, texts)
    });
}

/// Compares the rules that a plan replaces with those that it installs.
pub(super) fn compare_new_rules(runner: &EffectRunner, change: RuleChangeRequest) {
    let request = Request::latest(JobClass::BaselineTexts, "new rules")
        .listed_as(format!("new rules of {}", change.agent));
    runner.submit(request, move |engine| {
        let text = match engine {
            Ok(engine) => prepare_rule_change(engine, &change),
            Err(error) => PreparedText::note(error.to_string()),
        };
        Msg::NewRulesCompared(change, text)
    });
}

pub(super) fn make_baseline_plan(
    runner: &EffectRunner,
    id: u64,
    plan_request: BaselinePlanRequest,
) {
    let env = runner.env.clone();
    let label = format!("{} plan", plan_request.verb());
    let request = Request::listed(JobClass::BaselinePlans, label);
    runner.submit(request, move |engine| {
        let plan = engine.and_then(|it| make_plan(it, &env, &plan_request));
        Msg::BaselinePlanMade(id, plan.map(Box::new))
    });
}

pub(super) fn check_signing_key(runner: &EffectRunner, key: String) {
    let path = key_path(&key, &runner.env);
    runner.submit(JobClass::BaselinePlans, move |engine| {
        let checked = engine.and_then(|_| check_key_file(&path));
        Msg::SigningKeyChecked(key, checked)
    });
}

pub(super) fn apply_baseline_plan(runner: &mut EffectRunner, plan: Arc<BaselineChangePlan>) {
    let env = runner.env.clone();
    let (write_guard, write) = bounded(0);
    runner.baseline_write_handle = Some(write);
    let request = Request::listed(JobClass::BaselinePlans, "writing baselines");
    runner.submit(request, move |engine| {
        let _write_guard: Sender<Infallible> = write_guard;
        let applied = engine.and_then(|it| apply_plan(it, &env, &plan));
        Msg::BaselinePlanApplied(applied)
    });
}

/// Verifies in a job of its own class; reports progress at most once per interval.
pub(super) fn verify(runner: &mut EffectRunner) {
    runner.verify_cancel_flag = Arc::default();
    let (cancel, messages) = (
        Arc::clone(&runner.verify_cancel_flag),
        runner.messages.clone(),
    );
    let request = Request::listed(JobClass::Verify, "verification");
    runner.submit(request, move |engine| {
        let verified = engine.and_then(|engine| {
            let mut last_report = engine.clock().instant();
            engine.verifier().verify(None, &cancel, &mut |step| {
                let now = engine.clock().instant();
                if now - last_report >= VERIFY_REPORT_INTERVAL {
                    last_report = now;
                    // The main thread may have ended, or be busy: the next report follows.
                    let _ = messages.try_send(Msg::VerifyProgressed(step));
                }
            })
        });
        Msg::Verified(verified.map(Box::new))
    });
}

/// Returns the old side of a comparison: a baseline that is not in the seal is compared with what was
/// known of it before, else with the template.
fn known_old_side(engine: &Engine, request: &ComparisonRequest) -> ComparedVersion {
    let [old, _] = &request.sides;
    if let Some(fallback) = &request.fallback {
        let found = engine
            .baseline_catalog()
            .find_baseline_version(&request.name, &old.argument());
        return found.map_or(fallback, |_| old).clone();
    }
    if *old != ComparedVersion::Sealed || engine.baseline_catalog().is_in_seal(&request.name) {
        return old.clone();
    }
    let previous = ComparedVersion::Previous;
    let found = engine
        .baseline_catalog()
        .find_baseline_version(&request.name, &previous.argument());
    found.map_or(ComparedVersion::Template, |_| previous)
}

/// Compares two versions of a baseline.
fn compare(engine: &Engine, request: &ComparisonRequest) -> Result<ComparisonTexts> {
    let mut titles = [String::new(), String::new()];
    let mut texts = Vec::new();
    let old_side = known_old_side(engine, request);
    for (title, side) in titles.iter_mut().zip([&old_side, &request.sides[1]]) {
        let (digest, bytes) = engine
            .baseline_catalog()
            .find_baseline_version(&request.name, &side.argument())?;
        *title = match side {
            ComparedVersion::Stored(_) => side.label(),
            _ => format!("{}  {}…", side.label(), digest.short_hex(8)),
        };
        texts.push(bytes);
    }
    let deadline = Some(engine.clock().instant() + DIFF_TIMEOUT);
    let (old, new) = (&texts[0], &texts[1]);
    let texts = ComparedTexts {
        text: text::prepare_comparison([old, new], deadline),
        titles,
        changed_lines: diff::count_changes(old, new, deadline),
    };
    Ok(ComparisonTexts { texts, old_side })
}

/// Prepares the change of rules that a plan brings.
fn prepare_rule_change(engine: &Engine, request: &RuleChangeRequest) -> PreparedText {
    let deadline = Some(engine.clock().instant() + DIFF_TIMEOUT);
    match engine.baselines().rules_since(&request.agent, request.old) {
        Some([old, new]) => text::prepare_comparison([&old, &new], deadline),
        None => {
            let why = "the version that was pushed last, or the baseline, cannot be read";
            PreparedText::note(why)
        }
    }
}

/// Makes a plan over baselines. Only the paths of `env` are used: the operator names a key as a
/// shell would.
fn make_plan(
    engine: &Engine,
    env: &ConfigEnvironment,
    request: &BaselinePlanRequest,
) -> Result<PreparedBaselinePlan> {
    let plan = match request {
        BaselinePlanRequest::Seal { names, is_all, key } => {
            return prepare_seal(engine, env, names, *is_all, key.as_deref());
        }
        BaselinePlanRequest::Restore { names, version } => {
            engine.baseline_edits().plan_restore(names, version)?
        }
        BaselinePlanRequest::Create { name, source } => {
            engine.baseline_edits().plan_new_baseline(name, source)?
        }
        BaselinePlanRequest::Replace { names, replacement } => engine
            .baseline_edits()
            .plan_replacement(names, replacement)?,
    };
    let deadline = engine.clock().instant() + DIFF_TIMEOUT;
    let rows = plan
        .files
        .iter()
        .map(|file| file_row(&plan, file, deadline));
    let rows: Vec<BaselinePlanRow> = rows.collect();
    // A version that was never sealed is sealed by a plan of its own, which shows its lint errors.
    let is_restore = matches!(plan.action, BaselineAction::Restore { .. });
    let is_resealed = !rows.is_empty()
        && rows.iter().all(|row| !row.is_foreign)
        && plan.files.iter().all(|file| is_sealed_now(engine, file))
        && (!is_restore || plan.files.iter().all(|file| file.has_been_sealed));
    let immutable = plan.files.iter().map(|file| &file.name);
    let immutable: Vec<&str> = immutable
        .filter(|name| engine.baseline_edits().is_baseline_immutable(name))
        .map(String::as_str)
        .collect();
    let note = files_note(&plan, is_resealed);
    let refusal = immutable
        .iter()
        .find_map(|name| engine.baseline_edits().unlock_refusal(name));
    // The row of the plan cuts the end of a long note.
    let note = if immutable.is_empty() || refusal.is_some() {
        note
    } else {
        let names = immutable.join(", ");
        format!("unlocks {names} for the write and locks it again; {note}")
    };
    Ok(PreparedBaselinePlan {
        problem: None,
        rows,
        notes: vec![note],
        refusal,
        needs_key: false,
        change: Arc::new(BaselineChangePlan::Files { plan, is_resealed }),
    })
}

/// Returns whether the seal follows a change of a file, as it follows a save of the editor: the file
/// is the sealed one, and no signature is needed.
fn is_sealed_now(engine: &Engine, file: &PlannedBaseline) -> bool {
    let opened = engine.baseline_edits().open_baseline(&file.name);
    opened.is_ok_and(|it| {
        it.seal == SealMatch::Sealed && file.before.bytes() == Some(it.bytes.as_slice())
    })
}

/// Says what follows from a plan over files.
pub(super) fn files_note(plan: &BaselinePlan, is_resealed: bool) -> String {
    let unchanged = match plan.unchanged.as_slice() {
        [] => String::new(),
        names => format!("; unchanged: {}", names.join(", ")),
    };
    match &plan.action {
        BaselineAction::Restore { .. } if plan.files.is_empty() => match plan.unchanged.len() {
            1 => "the file is that version already".to_string(),
            _ => "the files are those versions already".to_string(),
        },
        BaselineAction::Restore { .. } => {
            let objects = plan.files.iter().map(|file| &file.before);
            let mut notes: Vec<&str> = objects
                .map(|before| match before {
                    BaselineFile::Readable(_) => {
                        "the replaced bytes are kept as a version; owner and mode stay"
                    }
                    BaselineFile::Absent => "the file does not exist",
                    BaselineFile::Unreadable(_) => {
                        "what is there now stays beside it, under a name .shepherd-…"
                    }
                })
                .collect();
            // Each is said once, whatever the number of files.
            notes.sort_unstable();
            notes.dedup();
            let is_refused = plan.files.iter().any(|file| file.is_refused);
            notes.extend(match (is_resealed, plan.files.len()) {
                (true, 1) => Some("it is sealed, too"),
                (true, _) => Some("the files are sealed, too"),
                (false, _) if is_refused => Some("resets refuse it until it is sealed"),
                (false, _) => None,
            });
            notes.join("; ")
        }
        BaselineAction::Create { .. } if plan.files.iter().any(|it| !it.agents.is_empty()) => {
            "the config names it: the next reset of its agents pushes it".to_string()
        }
        BaselineAction::Create { .. } => {
            "name it in the config: `baseline = FILE` in the section of an agent".to_string()
        }
        BaselineAction::Replace if plan.files.is_empty() => format!("no match{unchanged}"),
        BaselineAction::Replace => {
            let count: usize = plan.files.iter().map(|file| file.replaced).sum();
            let seal = match (is_resealed, plan.files.len()) {
                (true, 1) => "the file is sealed, too",
                (true, _) => "the files are sealed, too",
                (false, _) => "seal the baselines afterwards",
            };
            format!("{count} replaced in all; {seal}{unchanged}")
        }
    }
}

fn file_row(plan: &BaselinePlan, file: &PlannedBaseline, deadline: Instant) -> BaselinePlanRow {
    let old = file.before.bytes().unwrap_or_default();
    let label = match (&plan.action, &file.before) {
        (BaselineAction::Create { .. }, _) => "new".to_string(),
        (BaselineAction::Restore { .. }, BaselineFile::Unreadable(_)) => {
            "replaces other".to_string()
        }
        (BaselineAction::Restore { .. }, _) => "restored".to_string(),
        (BaselineAction::Replace, _) => format!("{} replaced", file.replaced),
    };
    BaselinePlanRow {
        name: file.name.clone(),
        label,
        digests: [
            short_digest(file.before.bytes()),
            short_digest(Some(&file.after)),
        ],
        changed_lines: diff::count_changes(old, &file.after, Some(deadline)),
        is_foreign: file.is_foreign,
        replaces_foreign: file.replaces_foreign,
        is_refused: file.is_refused,
        lint_errors: Vec::new(),
        owner: None,
        agents: file.agents.clone(),
        text: text::prepare_comparison([old, &file.after], Some(deadline)),
    }
}

fn short_digest(bytes: Option<&[u8]>) -> String {
    bytes.map_or("no file".to_string(), |bytes| {
        format!("{}…", Digest::of(bytes).short_hex(8))
    })
}

fn prepare_seal(
    engine: &Engine,
    env: &ConfigEnvironment,
    names: &[String],
    is_all: bool,
    key: Option<&str>,
) -> Result<PreparedBaselinePlan> {
    let scope = if is_all {
        SealScope::All
    } else {
        SealScope::Named(names.iter().cloned().collect())
    };
    let mut plan = engine.seals().plan_seal(&scope, key.is_some())?;
    // The plan shows the errors, and the words that confirm it accept them.
    plan.accept_lint_errors();
    let deadline = engine.clock().instant() + DIFF_TIMEOUT;
    let rows = plan.selected().map(|change| seal_row(change, deadline));
    let rows: Vec<BaselinePlanRow> = rows.collect();
    let path = key.map(|key| key_path(key, env));
    let signing_key = path.as_deref().map(signing_key);
    let refusal = engine
        .seals()
        .preview_seal(&plan, signing_key.as_ref())
        .err();
    let others = plan.unaccepted().count();
    let note = match (rows.is_empty(), others) {
        (true, _) if key.is_some() => "signs the unchanged seal".to_string(),
        (true, _) => "nothing changed since the last seal; nothing is to be sealed".to_string(),
        (false, 0) => "resets push the sealed versions".to_string(),
        (false, 1) => "1 other changed file stays unsealed".to_string(),
        (false, count) => format!("{count} other changed files stay unsealed"),
    };
    Ok(PreparedBaselinePlan {
        rows,
        problem: plan.describe_problem(),
        notes: vec![note],
        needs_key: key.is_none() && refusal.is_some() && plan.needs_key(),
        refusal: refusal.map(|error| describe_refusal(&error)),
        change: Arc::new(BaselineChangePlan::Seal(
            Box::new(plan),
            key.map(str::to_string),
        )),
    })
}

fn describe_refusal(error: &Error) -> String {
    let hints = error.hints().first().map(|hint| format!("; {hint}"));
    format!("{}{}", error.message(), hints.unwrap_or_default())
}

/// Returns the path of a key that the operator typed: `~/` is the home directory.
fn key_path(typed: &str, env: &ConfigEnvironment) -> PathBuf {
    match (typed.strip_prefix("~/"), &env.home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => env.cwd.join(typed),
    }
}

/// Checks that a key is a file that can be read.
fn check_key_file(path: &Path) -> Result<()> {
    // A FIFO would keep the reader waiting.
    let metadata = fs::metadata(path).with_path("read", path)?;
    if !metadata.is_file() {
        let message = format!("cannot sign with {}: it is not a file", path.display());
        return Err(Error::new(ErrorKind::Conflict, message));
    }
    File::open(path).with_path("read", path).map(drop)
}

fn signing_key(path: &Path) -> SigningKey<'_> {
    SigningKey {
        path,
        lifetime_days: None,
    }
}

fn seal_row(change: &SealChange, deadline: Instant) -> BaselinePlanRow {
    let new = change.bytes.as_deref().unwrap_or_default();
    let (old, text) = match (change.kind, &change.sealed_bytes) {
        (SealChangeKind::New, _) => (&[][..], None),
        (_, Some(bytes)) => (bytes.as_slice(), None),
        (_, None) => {
            let note = "the content of the sealed version is not known: read the whole file";
            (&[][..], Some(text::prepare_whole(note, new)))
        }
    };
    BaselinePlanRow {
        name: change.name.clone(),
        label: match change.lint_errors.len() as u64 {
            0 => change.kind.as_str().to_string(),
            count => format!("{}, {}", change.kind.as_str(), format_count(count, "error")),
        },
        lint_errors: change.lint_errors.iter().map(Finding::summary).collect(),
        digests: [
            change.sealed.map_or("not sealed".to_string(), |it| {
                format!("{}…", it.short_hex(8))
            }),
            short_digest(change.bytes.as_deref()),
        ],
        changed_lines: diff::count_changes(old, new, Some(deadline)),
        is_foreign: !change.is_saved_here,
        replaces_foreign: false,
        is_refused: false,
        owner: change.owner,
        agents: change.agents.clone(),
        text: text.unwrap_or_else(|| text::prepare_comparison([old, new], Some(deadline))),
    }
}

/// Applies a plan over baselines.
fn apply_plan(
    engine: &Engine,
    env: &ConfigEnvironment,
    plan: &BaselineChangePlan,
) -> Result<AppliedBaselinePlan> {
    match plan {
        BaselineChangePlan::Seal(plan, key) => apply_seal(engine, env, plan, key.as_deref()),
        BaselineChangePlan::Files { plan, is_resealed } => {
            Ok(apply_files(engine, plan, *is_resealed))
        }
    }
}

fn apply_seal(
    engine: &Engine,
    env: &ConfigEnvironment,
    plan: &SealPlan,
    key: Option<&str>,
) -> Result<AppliedBaselinePlan> {
    let path = key.map(|key| key_path(key, env));
    let signing_key = path.as_deref().map(signing_key);
    let report = engine.seals().apply_seal(plan, signing_key.as_ref())?;
    let run = report.run.unwrap_or_default();
    let mut summary = match report.sealed.as_slice() {
        [] => format!("signed the unchanged seal (run {run})"),
        [one] => format!("sealed {one} (run {run})"),
        names => format!("sealed {} baselines (run {run})", names.len()),
    };
    if let (Some(signed), _) = (&report.signed, &report.meta) {
        summary.push_str(&format!(", signed by {}", signed.signer.principal));
    } else if report.meta.is_some() {
        summary.push_str(", signed");
    }
    Ok(AppliedBaselinePlan {
        summary,
        agents: engine
            .config()
            .agents
            .iter()
            .map(|it| it.name.clone())
            .collect(),
        ..AppliedBaselinePlan::default()
    })
}

fn apply_files(engine: &Engine, plan: &BaselinePlan, is_resealed: bool) -> AppliedBaselinePlan {
    let mut applied = AppliedBaselinePlan::default();
    let mut written = Vec::new();
    let mut remarks = String::new();
    // A restored version was sealed before; a new one is sealed only without lint errors.
    let is_restore = matches!(plan.action, BaselineAction::Restore { .. });
    for file in &plan.files {
        // Others see file and seal change together.
        let changed = engine
            .baseline_files()
            .begin_baseline_change()
            .and_then(|writer| {
                let saved = writer.apply(plan, file)?;
                let sealed = is_resealed.then(|| {
                    engine.baseline_edits().seal_saved(
                        &writer,
                        &file.name,
                        saved.digest,
                        is_restore,
                    )
                });
                Ok((saved, sealed))
            });
        match changed {
            Ok((saved, sealed)) => {
                applied.agents.extend(file.agents.iter().cloned());
                for remark in saved.remarks() {
                    remarks.push_str(&format!("; {}: {remark}", file.name));
                }
                let seal = match sealed {
                    Some(Ok(_)) => ", and sealed it",
                    _ => "",
                };
                written.push(format!("{} (run {}){seal}", file.name, saved.run));
                applied.runs.push(saved.run);
                if let Some(Err(error)) = sealed {
                    let failure = format!("the seal of {}: {error}", file.name);
                    applied.failures.push(failure);
                }
            }
            Err(error) => applied.failures.push(format!("{}: {error}", file.name)),
        }
    }
    let verb = match &plan.action {
        BaselineAction::Restore { .. } => "restored",
        BaselineAction::Create { .. } => {
            applied.created = plan.files.first().map(|file| file.name.clone());
            "created"
        }
        BaselineAction::Replace => "changed",
    };
    applied.summary = match written.as_slice() {
        [] => format!("no baseline {verb}"),
        [one] => format!("{verb} {one}"),
        many => format!("{verb} {} baselines", many.len()),
    };
    applied.summary.push_str(&remarks);
    applied
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// A baseline file that a plan writes.
    fn planned_file(before: BaselineFile, agents: &[&str]) -> PlannedBaseline {
        PlannedBaseline {
            name: "scout.md".to_string(),
            before,
            after: Arc::new(b"# Rules\n".to_vec()),
            replaced: 0,
            agents: agents.iter().map(|it| it.to_string()).collect(),
            is_foreign: false,
            replaces_foreign: false,
            is_refused: false,
            has_been_sealed: false,
        }
    }

    #[test]
    fn creation_names_the_config_where_it_lacks_the_file() {
        let note = |agents: &[&str]| {
            let plan = BaselinePlan {
                action: BaselineAction::Create {
                    source: "template".to_string(),
                },
                files: vec![planned_file(BaselineFile::Absent, agents)],
                unchanged: Vec::new(),
            };
            files_note(&plan, false)
        };
        assert!(note(&[]).starts_with("name it in the config"));
        assert!(note(&["scout"]).starts_with("the config names it"));
    }

    #[test]
    fn restore_says_what_happens_to_the_object_there() {
        let note = |before| {
            let plan = BaselinePlan {
                action: BaselineAction::Restore {
                    version: "sealed".to_string(),
                },
                files: vec![planned_file(before, &[])],
                unchanged: Vec::new(),
            };
            files_note(&plan, false)
        };
        assert!(note(BaselineFile::Readable(Vec::new())).contains("kept as a version"));
        assert!(note(BaselineFile::Absent).contains("does not exist"));
        let fifo = BaselineFile::Unreadable("a FIFO".to_string());
        assert!(note(fifo).contains("stays beside it"));
    }
}
