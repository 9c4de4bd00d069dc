//! What the operator has decided about the lint: the files of `[lint]`, which name findings that are
//! allowed or accepted, and the fleet's words.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

use crate::base::digest::Digest;
use crate::base::durable;
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::engine::baselines::Lint;
use crate::lint::{Allowance, RuleId, Words};

/// Size limit of the allowlist and of the accepted findings, in bytes.
const MAX_DECISION_BYTES: u64 = 64 << 20;

/// What the operator has decided about findings: the files that `[lint]` names.
#[derive(Clone, Debug, Default)]
pub struct LintDecisions {
    pub(in crate::engine) allowances: Arc<[Allowance]>,
    pub(super) accepted_findings: Arc<BTreeSet<String>>,
    /// The fleet's words; those of the program by default.
    pub(super) words: Option<Arc<Words>>,
    /// Digest of the files that they came from; none without any.
    pub(in crate::engine) source: Option<Digest>,
}

impl LintDecisions {
    /// Returns the words that rules look for.
    pub(in crate::engine) fn words(&self) -> Arc<Words> {
        self.words.clone().unwrap_or_else(Words::built_in)
    }
}

/// The allowlist, a TOML file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AllowFile {
    #[serde(default)]
    allow: Vec<Allowance>,
}

/// What `lint --format json` prints, as far as it identifies findings.
#[derive(Deserialize)]
struct AcceptedFile {
    findings: Vec<AcceptedFinding>,
}

#[derive(Deserialize)]
struct AcceptedFinding {
    fingerprint: String,
}

impl Lint {
    /// Reads the files of `[lint]`: which findings the operator knows, and the fleet's words.
    ///
    /// # Errors
    /// [`ErrorKind::Config`]: one of them cannot be read or has another format.
    pub fn load_lint_decisions(&self) -> Result<LintDecisions> {
        let settings = &self.context.config().lint;
        let mut decisions = LintDecisions::default();
        let mut source = String::new();
        if let Some(path) = &settings.allow_file {
            let text = read_decisions(path)?;
            source.push_str(&format!("{text:?}"));
            let parsed: AllowFile =
                toml::from_str(&text).map_err(|error| decision_error(path, error.message()))?;
            for allowance in &parsed.allow {
                check_allowance(allowance).map_err(|why| decision_error(path, &why))?;
            }
            decisions.allowances = parsed.allow.into();
        }
        if let Some(path) = &settings.accepted_file {
            let text = read_decisions(path)?;
            source.push_str(&format!("{text:?}"));
            let parsed: AcceptedFile = serde_json::from_str(&text)
                .map_err(|error| decision_error(path, &error.to_string()))?;
            let fingerprints = parsed.findings.into_iter().map(|it| it.fingerprint);
            decisions.accepted_findings = Arc::new(fingerprints.collect());
        }
        if let Some(directory) = &settings.words_directory {
            let lists = read_word_lists(directory)?;
            source.push_str(&format!("{lists:?}"));
            let words = Words::with_lists(&lists).map_err(|why| decision_error(directory, &why))?;
            decisions.words = Some(Arc::new(words));
        }
        decisions.source = (!source.is_empty()).then(|| Digest::of(source.as_bytes()));
        Ok(decisions)
    }
}

fn read_decisions(path: &Path) -> Result<String> {
    let bytes = durable::read_regular_file(path, MAX_DECISION_BYTES)
        .with_path("read", path)
        .map_err(|error| error.with_kind(ErrorKind::Config))?;
    String::from_utf8(bytes).map_err(|_| decision_error(path, "it is not UTF-8"))
}

/// Reads the word lists in a directory: its files `NAME.txt`.
fn read_word_lists(directory: &Path) -> Result<BTreeMap<String, String>> {
    let unreadable = |error: Error| error.with_kind(ErrorKind::Config);
    let entries = std::fs::read_dir(directory).with_path("read", directory);
    let mut lists = BTreeMap::new();
    for entry in entries.map_err(unreadable)? {
        let path = entry
            .with_path("read", directory)
            .map_err(unreadable)?
            .path();
        if path.extension().is_none_or(|it| it != "txt") {
            continue;
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        lists.insert(name.into_owned(), read_decisions(&path)?);
    }
    Ok(lists)
}

fn decision_error(path: &Path, why: &str) -> Error {
    let message = format!("cannot use {}: {}", path.display(), why.trim());
    Error::new(ErrorKind::Config, message).with_hint("docs/lint.md describes the files of [lint]")
}

/// Checks what the types of an entry do not.
fn check_allowance(allowance: &Allowance) -> Result<(), String> {
    let name = &allowance.rule;
    if RuleId::parse(name).is_none() {
        return Err(format!("`{name}` is not a rule"));
    }
    if allowance.text.is_some() == allowance.fingerprint.is_some() {
        return Err(format!(
            "the entry for {name} needs either `text` or `fingerprint`"
        ));
    }
    if allowance.reason.trim().is_empty() {
        return Err(format!("the entry for {name} has no reason"));
    }
    Ok(())
}
