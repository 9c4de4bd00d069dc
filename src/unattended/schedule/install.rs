//! A plan of unit files to create, change and remove, and applying it.
//!
//! A file is touched only if this program wrote it for the same config and it is unchanged since,
//! or with [`Consent`]. Directories of drop-ins are never touched.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use serde::Serialize;

use super::original::{OriginalUnit, parse_original_service, started_unit};
use super::ownership::{UnitOwner, is_enabled_by_install, unit_owner};
use super::service_manager::ServiceManager;
use super::unit_files::unit_files;
use super::units::Unit;
use crate::base::durable::{OperatorDirectory, ReplacedFile};
use crate::base::error::Result;
use crate::config::config_identity;

/// Mode of unit files.
const UNIT_MODE: Mode = Mode::from_raw_mode(0o644);

/// Mode of their directory, if it does not exist yet.
const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o755);

/// Directories of the links that `systemctl enable` makes.
const WANTS_DIRECTORIES: [&str; 3] = [
    "timers.target.wants",
    "multi-user.target.wants",
    "default.target.wants",
];

/// What the operator consents to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Consent {
    /// Unit files that were edited, that belong to another config, or that another program wrote,
    /// are replaced and removed as well.
    pub force: bool,
    /// Units of the original tool are removed.
    pub take_over: bool,
}

/// What happens to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileAction {
    /// It does not exist yet.
    Create,
    /// Its text changes.
    Update,
    /// It is removed.
    Remove,
    /// It has the text already.
    Unchanged,
    /// It stays as it is, for a reason.
    Leave,
}

/// A file of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlannedFile {
    /// Name of the unit.
    pub name: String,
    /// What happens to it.
    pub action: FileAction,
    /// Why it stays as it is, or why consent was needed.
    pub reason: Option<String>,
    /// Whether it is a unit of the original tool.
    #[serde(rename = "original")]
    pub is_original: bool,
    /// Whether it is there in the place of a unit of the config, whatever wrote it. Units of the
    /// original tool and of other configs are not, and masks.
    #[serde(skip)]
    pub is_of_config: bool,
    /// Whether it is enabled when the plan is applied.
    #[serde(rename = "enabled")]
    pub is_enabled: bool,
    /// The text of the file.
    #[serde(skip)]
    pub old: Option<String>,
    /// The text that it gets.
    #[serde(rename = "content")]
    pub new: Option<String>,
}

/// The plan of an installation, or of its removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstallPlan {
    /// Directory of the units.
    pub directory: PathBuf,
    /// The files, by name.
    pub files: Vec<PlannedFile>,
    /// Services of the original tool in the directory.
    pub originals: Vec<OriginalUnit>,
}

/// Commands of the service manager, as the words behind `systemctl`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanCommands {
    /// Those that applying the plan runs.
    pub run: Vec<Vec<String>>,
    /// Those that the operator has to run.
    pub pending: Vec<Vec<String>>,
}

/// A unit file in the directory.
struct FoundFile {
    text: Option<String>,
    kind: FoundKind,
}

/// Who wrote a unit file, as far as the plan needs it.
enum FoundKind {
    /// This program, for this config; unchanged since.
    Own,
    /// A unit of the original tool.
    Original,
    /// Needs consent, for this reason.
    Guarded { reason: String, owner: GuardedOwner },
}

/// Whose unit a file is that needs consent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GuardedOwner {
    ThisConfig,
    OtherConfig,
    /// Nothing is run by a mask.
    Mask,
    /// Another program or an operator wrote it, or it is a symlink.
    Unknown,
}

impl FoundFile {
    /// Returns whether it is there in the place of the config's unit of its name.
    fn replaces_unit(&self) -> bool {
        match &self.kind {
            FoundKind::Own => true,
            FoundKind::Original => false,
            FoundKind::Guarded { owner, .. } => {
                matches!(owner, GuardedOwner::ThisConfig | GuardedOwner::Unknown)
            }
        }
    }
}

/// Plans the installation of `units` for the config at `config`.
///
/// # Errors
/// The directory cannot be read.
pub fn plan_install(
    directory: &Path,
    config: &Path,
    units: &[Unit],
    consent: Consent,
) -> Result<InstallPlan> {
    let (mut found, originals) = read_unit_files(directory, config)?;
    let mut files = Vec::new();
    for unit in units {
        let found = found.remove(&unit.name);
        let is_of_config = found.as_ref().is_some_and(FoundFile::replaces_unit);
        let (old, action, reason, is_original) = match found {
            None => (None, FileAction::Create, None, false),
            Some(file) => {
                let is_same = file.text.as_ref() == Some(&unit.text);
                let (action, reason, is_original) = match file.kind {
                    FoundKind::Own if is_same => (FileAction::Unchanged, None, false),
                    FoundKind::Own => (FileAction::Update, None, false),
                    FoundKind::Original => {
                        let (action, reason) = original_action(FileAction::Update, consent);
                        (action, Some(reason), true)
                    }
                    FoundKind::Guarded { reason, .. } if consent.force => {
                        (FileAction::Update, Some(reason), false)
                    }
                    FoundKind::Guarded { reason, .. } => (FileAction::Leave, Some(reason), false),
                };
                (file.text, action, reason, is_original)
            }
        };
        files.push(PlannedFile {
            name: unit.name.clone(),
            action,
            reason,
            old,
            is_original,
            is_of_config,
            is_enabled: unit.is_enabled && action != FileAction::Leave,
            new: Some(unit.text.clone()),
        });
    }
    files.extend(planned_removals(found, consent, true));
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(InstallPlan {
        directory: directory.to_path_buf(),
        files,
        originals,
    })
}

/// Plans the removal of all units of the config at `config`.
///
/// # Errors
/// The directory cannot be read.
pub fn plan_uninstall(directory: &Path, config: &Path, consent: Consent) -> Result<InstallPlan> {
    let (found, originals) = read_unit_files(directory, config)?;
    Ok(InstallPlan {
        directory: directory.to_path_buf(),
        files: planned_removals(found, consent, false),
        originals,
    })
}

/// Returns what happens to a unit of the original tool, and why.
fn original_action(action: FileAction, consent: Consent) -> (FileAction, String) {
    let reason = "a unit of the original tool".to_string();
    if consent.take_over {
        (action, reason)
    } else {
        (FileAction::Leave, reason)
    }
}

/// Returns the files that are not wanted: those of this config, and with `has_originals` those of
/// the original tool.
fn planned_removals(
    found: BTreeMap<String, FoundFile>,
    consent: Consent,
    has_originals: bool,
) -> Vec<PlannedFile> {
    let removals = found.into_iter().filter_map(|(name, file)| {
        let is_original = matches!(file.kind, FoundKind::Original);
        let (action, reason) = match file.kind {
            FoundKind::Own => (FileAction::Remove, None),
            FoundKind::Original if has_originals => {
                let (action, reason) = original_action(FileAction::Remove, consent);
                (action, Some(reason))
            }
            FoundKind::Guarded {
                reason,
                owner: GuardedOwner::ThisConfig,
            } if consent.force => (FileAction::Remove, Some(reason)),
            FoundKind::Guarded {
                reason,
                owner: GuardedOwner::ThisConfig,
            } => (FileAction::Leave, Some(reason)),
            FoundKind::Original | FoundKind::Guarded { .. } => return None,
        };
        Some(PlannedFile {
            name,
            action,
            reason,
            old: file.text,
            new: None,
            is_original,
            is_of_config: !is_original,
            is_enabled: false,
        })
    });
    removals.collect()
}

/// Reads the unit files of a directory, and finds the services of the original tool.
fn read_unit_files(
    directory: &Path,
    config: &Path,
) -> Result<(BTreeMap<String, FoundFile>, Vec<OriginalUnit>)> {
    let files = unit_files(directory)?;
    let identity = config_identity(config);
    let originals: Vec<OriginalUnit> = files
        .iter()
        .filter_map(|(name, file)| parse_original_service(name, file.text.as_ref().ok()?))
        .collect();
    let is_original = |name: &str, text: &str| {
        let started = started_unit(name, text);
        let is_it = |original: &OriginalUnit| {
            name == original.service || started.as_ref() == Some(&original.service)
        };
        originals.iter().any(is_it)
    };
    let found = files.into_iter().map(|(name, file)| {
        let is_mask = file.is_mask();
        let guarded = |reason: String| FoundKind::Guarded {
            reason,
            owner: if is_mask {
                GuardedOwner::Mask
            } else {
                GuardedOwner::Unknown
            },
        };
        let kind = match (&file.text, &file.link) {
            (Ok(text), _) if is_original(&name, text) => FoundKind::Original,
            (_, Some(target)) => guarded(format!("it is a symlink to {}", target.display())),
            (Err(reason), None) => guarded(reason.clone()),
            (Ok(text), None) => found_kind(text, &identity),
        };
        let text = file.text.ok();
        (name, FoundFile { text, kind })
    });
    Ok((found.collect(), originals))
}

/// Returns who wrote a unit that is not the original tool's.
fn found_kind(text: &str, own_identity: &Path) -> FoundKind {
    let guarded = |reason: String, owner| FoundKind::Guarded { reason, owner };
    match unit_owner(text) {
        UnitOwner::Own { config, is_intact } if config_identity(&config) == own_identity => {
            if is_intact {
                FoundKind::Own
            } else {
                let reason = "it was edited since it was installed".to_string();
                guarded(reason, GuardedOwner::ThisConfig)
            }
        }
        UnitOwner::Own { config, .. } => guarded(
            format!("it belongs to the config {}", config.display()),
            GuardedOwner::OtherConfig,
        ),
        UnitOwner::Foreign => guarded(
            "another program or an operator wrote it".to_string(),
            GuardedOwner::Unknown,
        ),
    }
}

impl PlannedFile {
    /// Returns whether the plan writes or removes the file.
    fn is_changed(&self) -> bool {
        matches!(
            self.action,
            FileAction::Create | FileAction::Update | FileAction::Remove
        )
    }

    /// Returns what the new file may replace: what the plan has shown, or anything by consent.
    fn replaced(&self) -> ReplacedFile<'_> {
        match &self.reason {
            None => ReplacedFile::Known(self.old.as_deref().map(str::as_bytes)),
            Some(_) => ReplacedFile::Any,
        }
    }

    /// Returns whether `systemctl` can enable the unit.
    fn can_be_enabled(&self) -> bool {
        let text = self.old.as_deref().unwrap_or_default();
        text.lines().any(|line| line.trim() == "[Install]")
    }

    /// Returns whether the unit is a service that runs until it is stopped.
    fn is_lasting_service(&self) -> bool {
        self.name.ends_with(".service") && self.can_be_enabled()
    }

    /// Returns whether the unit is disabled before its file changes: it goes, or was enabled for a
    /// reason that is over.
    fn is_disabled(&self) -> bool {
        let was_enabled = self.old.as_deref().is_some_and(is_enabled_by_install);
        let ends = match self.action {
            FileAction::Remove => true,
            FileAction::Update => self.is_original || was_enabled && !self.is_enabled,
            FileAction::Create | FileAction::Unchanged | FileAction::Leave => false,
        };
        ends && self.can_be_enabled()
    }
}

impl InstallPlan {
    /// Returns whether a unit of the original tool stays.
    pub fn keeps_original(&self) -> bool {
        let mut files = self.files.iter();
        files.any(|file| file.is_original && file.action == FileAction::Leave)
    }

    /// Returns the files that stay for a reason.
    pub fn left_files(&self) -> impl Iterator<Item = &PlannedFile> {
        let files = self.files.iter();
        files.filter(|file| file.action == FileAction::Leave)
    }

    /// Returns whether a file is written or removed.
    fn has_changes(&self) -> bool {
        self.files.iter().any(PlannedFile::is_changed)
    }

    /// Returns the commands of the service manager before files change: units that go are stopped
    /// and disabled while their files are there.
    fn commands_before(&self) -> Vec<Vec<String>> {
        let names = self.files.iter().filter(|file| file.is_disabled());
        command_for(&["disable", "--now"], names)
    }

    /// Returns the commands of the service manager after files have changed. It reads the units again
    /// even if none has changed: an earlier call may have failed before it did.
    fn commands_after(&self, stale: &BTreeSet<String>) -> Vec<Vec<String>> {
        let mut commands = vec![vec!["daemon-reload".to_string()]];
        let enabled = self.files.iter().filter(|file| file.is_enabled);
        commands.extend(command_for(&["enable", "--now"], enabled));
        // A service that runs on keeps its old command line and limits.
        let restarted = self.files.iter().filter(|file| {
            let is_changed = file.action == FileAction::Update;
            file.is_lasting_service() && (is_changed || stale.contains(&file.name))
        });
        commands.extend(command_for(&["try-restart"], restarted));
        commands
    }

    /// Returns the unchanged services that may run on with an older text than that of their files,
    /// because an earlier call failed before the service manager read them.
    fn stale_services(&self, manager: &dyn ServiceManager) -> BTreeSet<String> {
        let services = self.files.iter().filter(|file| {
            let is_unchanged = file.action == FileAction::Unchanged;
            is_unchanged && file.is_lasting_service()
        });
        let is_stale = |name: &str| {
            let answer = manager.run(&["show", "-p", "NeedDaemonReload", name]);
            // One that does not answer fails at its next command, too.
            answer.is_ok_and(|it| it.trim() == "NeedDaemonReload=yes")
        };
        let names = services.map(|file| file.name.clone());
        names.filter(|name| is_stale(name)).collect()
    }

    /// Returns the commands of `systemctl` that applying the plan runs, if this service manager runs,
    /// or leaves to the operator.
    pub fn commands(&self, manager: Option<&dyn ServiceManager>) -> PlanCommands {
        if let Some(manager) = manager.filter(|manager| manager.is_running()) {
            let after = self.commands_after(&self.stale_services(manager));
            return PlanCommands {
                run: [self.commands_before(), after].concat(),
                pending: Vec::new(),
            };
        }
        // The files of units that go are gone, so these cannot be disabled any more.
        let disabled = self.files.iter().filter(|file| file.is_disabled());
        let mut after = self.commands_after(&BTreeSet::new());
        if !self.has_changes() {
            after.remove(0);
        }
        PlanCommands {
            run: Vec::new(),
            pending: [command_for(&["stop"], disabled), after].concat(),
        }
    }

    /// Applies the plan. Without a service manager that runs, the commands are left to the operator.
    ///
    /// # Errors
    /// A file cannot be written or removed, or a command fails; what was done before stays, and the
    /// next call does the rest.
    pub fn apply(&self, manager: Option<&dyn ServiceManager>) -> Result<PlanCommands> {
        // The service manager compares files with what it has read, so it is asked before they change.
        let commands = self.commands(manager);
        let run = |commands: &[Vec<String>]| {
            commands.iter().try_for_each(|command| {
                let words: Vec<&str> = command.iter().map(String::as_str).collect();
                manager.map_or(Ok(()), |manager| manager.run(&words).map(drop))
            })
        };
        // Without a service manager there are none.
        let before_count = self.commands_before().len().min(commands.run.len());
        let (before, after) = commands.run.split_at(before_count);
        run(before)?;
        if self.has_changes() {
            self.change_files()?;
        }
        self.remove_leftovers();
        run(after)?;
        Ok(commands)
    }

    fn change_files(&self) -> Result<()> {
        let creates = self
            .files
            .iter()
            .any(|file| file.action == FileAction::Create);
        let directory = if creates {
            OperatorDirectory::open_or_create(&self.directory, DIRECTORY_MODE)?
        } else {
            OperatorDirectory::open(&self.directory)?
        };
        for file in self.files.iter().filter(|file| file.is_changed()) {
            let name = OsStr::new(&file.name);
            match &file.new {
                Some(text) => {
                    directory.replace_file(name, file.replaced(), text.as_bytes(), UNIT_MODE)?;
                }
                None => directory.remove_file(name)?,
            }
        }
        let removed = self.files.iter();
        let removed: BTreeSet<&str> = removed
            .filter(|file| file.action == FileAction::Remove)
            .map(|file| file.name.as_str())
            .collect();
        remove_links(&directory, &removed);
        Ok(())
    }

    /// Removes what a killed installation has left beside the files.
    fn remove_leftovers(&self) {
        let Ok(directory) = OperatorDirectory::open(&self.directory) else {
            // It does not exist.
            return;
        };
        directory.remove_leftovers(self.files.iter().map(|file| OsStr::new(&file.name)));
    }
}

/// Returns one command for several units, or none.
fn command_for<'a>(
    words: &[&str],
    files: impl Iterator<Item = &'a PlannedFile>,
) -> Vec<Vec<String>> {
    let names: Vec<String> = files.map(|file| file.name.clone()).collect();
    if names.is_empty() {
        return Vec::new();
    }
    let words = words.iter().map(|word| (*word).to_string());
    vec![words.chain(names).collect()]
}

/// Removes the links to removed units that `systemctl enable` made, for a service manager that does
/// not run. A link that stays only makes the service manager say that the unit is missing.
fn remove_links(directory: &OperatorDirectory, removed: &BTreeSet<&str>) {
    for wants in WANTS_DIRECTORIES {
        let Some(links) = directory.open_below(wants) else {
            continue;
        };
        for name in removed.iter().map(OsStr::new) {
            let target = links.read_symlink(name).unwrap_or_default();
            if target.file_name() == Some(name) {
                let _ = links.remove_file(name);
            }
        }
    }
}
