//! The files that decide what a unit runs: its unit file and its drop-ins, in all directories where
//! the service manager of a scope looks for them.
//!
//! Follows systemd.unit(5). The variables `SYSTEMD_UNIT_PATH`, `XDG_CONFIG_DIRS`, `XDG_DATA_HOME` and
//! `XDG_DATA_DIRS` are those of the service manager, which is not asked: their defaults count.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::UnitScope;
use crate::base::durable;
use crate::base::error::{Result, describe_io_error};
use crate::config::ConfigEnvironment;

/// Maximum number of names that are read of all directories.
const MAX_NAMES: usize = 100_000;

/// Maximum number of names of one unit.
const MAX_ALIASES: usize = 64;

/// Load path of the system's service manager: table 1 of systemd.unit(5), by precedence, with the
/// directories `system.attached` of its synopsis. Distributions have one of the two last places of
/// packages, or both in one.
const SYSTEM_SEARCH_PATH: [&str; 13] = [
    "/etc/systemd/system.control",
    "/run/systemd/system.control",
    "/run/systemd/transient",
    "/run/systemd/generator.early",
    super::SYSTEM_UNIT_DIRECTORY,
    "/etc/systemd/system.attached",
    "/run/systemd/system",
    "/run/systemd/system.attached",
    "/run/systemd/generator",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/run/systemd/generator.late",
];

impl UnitScope {
    /// Returns the directories in which the service manager looks for units, by precedence.
    ///
    /// # Errors
    /// The user's directory is unknown.
    pub fn search_path(
        self,
        env: &ConfigEnvironment,
        runtime_directory: Option<&Path>,
    ) -> Result<Vec<PathBuf>> {
        if self == UnitScope::System {
            return Ok(SYSTEM_SEARCH_PATH.map(PathBuf::from).to_vec());
        }
        let units = self.unit_directory(env)?;
        let runtime = runtime_directory.map(|it| it.join("systemd"));
        let in_runtime = |name: &str| Some(runtime.as_ref()?.join(name));
        let fixed = |path: &str| Some(PathBuf::from(path));
        let data = env
            .home
            .as_ref()
            .map(|it| it.join(".local/share/systemd/user"));
        // Table 2 of systemd.unit(5), by precedence.
        let places = [
            Some(units.with_file_name("user.control")),
            in_runtime("user.control"),
            in_runtime("transient"),
            in_runtime("generator.early"),
            Some(units),
            fixed("/etc/xdg/systemd/user"),
            fixed("/etc/systemd/user"),
            in_runtime("user"),
            fixed("/run/systemd/user"),
            in_runtime("generator"),
            data,
            fixed("/usr/local/share/systemd/user"),
            fixed("/usr/share/systemd/user"),
            fixed("/usr/local/lib/systemd/user"),
            fixed("/usr/lib/systemd/user"),
            in_runtime("generator.late"),
        ];
        Ok(places.into_iter().flatten().collect())
    }
}

/// The units and drop-ins of a search path.
pub struct UnitSearchPath {
    /// By precedence; a directory that several paths lead to counts once.
    directories: Vec<UnitDirectory>,
    /// Names that are symlinks to the unit of another name, with that name.
    aliases: Vec<(String, String)>,
    /// What was not read, and why.
    pub unread: Vec<String>,
}

/// A directory of the search path, which need not exist.
struct UnitDirectory {
    path: PathBuf,
    units: BTreeSet<String>,
    /// Directories of drop-ins by name, with the names of their files.
    drop_ins: BTreeMap<String, Vec<OsString>>,
}

/// The files that decide what a unit runs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DecidingFiles {
    /// The unit file that is used.
    pub unit: Option<PathBuf>,
    /// Directories of drop-ins.
    pub drop_in_directories: Vec<PathBuf>,
    /// The drop-ins that are used, in the order in which they apply. One that replaces another of its
    /// name is among them, also an empty one.
    pub drop_ins: Vec<PathBuf>,
}

impl UnitSearchPath {
    /// Reads the names in directories. What cannot be read counts as empty.
    pub fn read(directories: impl IntoIterator<Item = PathBuf>) -> UnitSearchPath {
        let mut reader = NameReader::default();
        let mut found: Vec<(UnitDirectory, PathBuf)> = Vec::new();
        for path in directories {
            let real = path.canonicalize().unwrap_or_else(|_| path.clone());
            if found.iter().all(|(_, other)| *other != real) {
                found.push((reader.read_directory(path), real));
            }
        }
        let (directories, real_paths): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        UnitSearchPath {
            aliases: find_aliases(&directories, &real_paths),
            directories,
            unread: reader.unread,
        }
    }

    /// Returns the directories, by precedence.
    pub fn directories(&self) -> impl Iterator<Item = &Path> {
        self.directories.iter().map(|it| it.path.as_path())
    }

    /// Returns the names of all services, without their aliases.
    pub fn services(&self) -> BTreeSet<&str> {
        let units = self.directories.iter().flat_map(|it| &it.units);
        // An instance may have nothing but drop-ins.
        let with_drop_ins = self.directories.iter().flat_map(|it| it.drop_ins.keys());
        let names = units.chain(with_drop_ins).map(|name| {
            let name = name.as_str();
            name.strip_suffix(".d").unwrap_or(name)
        });
        let is_alias = |name: &str| self.aliases.iter().any(|(alias, _)| alias == name);
        names
            .filter(|name| name.ends_with(".service") && !is_alias(name))
            .collect()
    }

    /// Returns the files that decide what a unit runs.
    pub fn deciding_files(&self, unit: &str) -> DecidingFiles {
        let names = self.names_of(unit);
        let mut candidates: Vec<Vec<String>> = names.iter().map(|it| drop_in_names(it)).collect();
        // Those of all units of a type come last.
        candidates.extend(
            unit.rsplit_once('.')
                .map(|(_, kind)| vec![format!("{kind}.d")]),
        );
        let mut files = DecidingFiles {
            unit: names.iter().find_map(|it| self.unit_file(it)),
            ..DecidingFiles::default()
        };
        // A file replaces those of the same name that come later.
        let mut drop_ins: BTreeMap<&OsString, PathBuf> = BTreeMap::new();
        for names in &candidates {
            for directory in &self.directories {
                for name in names {
                    let Some(found) = directory.drop_ins.get(name) else {
                        continue;
                    };
                    let path = directory.path.join(name);
                    for file in found {
                        drop_ins.entry(file).or_insert_with(|| path.join(file));
                    }
                    files.drop_in_directories.push(path);
                }
            }
        }
        files.drop_ins = drop_ins.into_values().collect();
        files
    }

    /// Returns the first unit file of a name, else of its template; none for an alias.
    fn unit_file(&self, name: &str) -> Option<PathBuf> {
        if self.aliases.iter().any(|(alias, _)| alias == name) {
            return None;
        }
        let template = name.split_once('@').and_then(|(prefix, rest)| {
            let (_, kind) = rest.rsplit_once('.')?;
            Some(format!("{prefix}@.{kind}"))
        });
        let first = |name: &str| {
            let mut directories = self.directories.iter();
            let directory = directories.find(|it| it.units.contains(name))?;
            Some(directory.path.join(name))
        };
        first(name).or_else(|| first(&template?))
    }

    /// Returns the names of a unit: its own, and those that are symlinks to it or that it leads to.
    fn names_of(&self, unit: &str) -> Vec<String> {
        let mut names = vec![unit.to_string()];
        let mut index = 0;
        while let Some(name) = names.get(index).cloned() {
            for (alias, target) in &self.aliases {
                for (from, to) in [(alias, target), (target, alias)] {
                    if *from == name && !names.contains(to) && names.len() < MAX_ALIASES {
                        names.push(to.clone());
                    }
                }
            }
            index += 1;
        }
        names
    }
}

/// Returns the names that are symlinks to a unit of another name in the search path. Of a name that is
/// in several directories, the first one counts.
fn find_aliases(directories: &[UnitDirectory], real_paths: &[PathBuf]) -> Vec<(String, String)> {
    let mut seen = BTreeSet::new();
    let mut aliases = Vec::new();
    for directory in directories {
        for name in &directory.units {
            if !seen.insert(name) {
                continue;
            }
            let Ok(link) = fs::read_link(directory.path.join(name)) else {
                continue;
            };
            let target = directory.path.join(link);
            let parent = target.parent().and_then(|it| it.canonicalize().ok());
            let target = target.file_name().and_then(|it| it.to_str());
            // Outside of the search path, the name of the file says nothing.
            if let (Some(parent), Some(target)) = (parent, target)
                && real_paths.contains(&parent)
                && target != name
                && is_unit(target)
            {
                aliases.push((name.clone(), target.to_string()));
            }
        }
    }
    aliases
}

/// Returns the names of a unit's directories of drop-ins, the most specific one first. Each `-` of the
/// unit's name ends the name of one.
fn drop_in_names(unit: &str) -> Vec<String> {
    let Some((stem, kind)) = unit.rsplit_once('.') else {
        return Vec::new();
    };
    let (prefix, instances) = match stem.split_once('@') {
        None => (stem, vec![String::new()]),
        Some((prefix, "")) => (prefix, vec!["@".to_string()]),
        Some((prefix, instance)) => (prefix, vec![format!("@{instance}"), "@".to_string()]),
    };
    let dashes = prefix.rmatch_indices('-').map(|(index, _)| index + 1);
    let shorter = dashes.filter(|end| *end < prefix.len());
    let prefixes = std::iter::once(prefix.len()).chain(shorter);
    let prefixes = prefixes.filter_map(|end| prefix.get(..end));
    prefixes
        .flat_map(|prefix| instances.iter().map(move |it| (prefix, it)))
        .map(|(prefix, instance)| format!("{prefix}{instance}.{kind}.d"))
        .collect()
}

fn is_unit(name: &str) -> bool {
    name.ends_with(".service") || name.ends_with(".timer")
}

/// Reads the names in directories, up to a limit.
#[derive(Default)]
struct NameReader {
    count: usize,
    unread: Vec<String>,
}

impl NameReader {
    fn read_directory(&mut self, path: PathBuf) -> UnitDirectory {
        let mut directory = UnitDirectory {
            units: BTreeSet::new(),
            drop_ins: BTreeMap::new(),
            path,
        };
        for name in self.read_names(&directory.path) {
            // The service manager reads no unit of another name.
            let Ok(name) = name.into_string() else {
                continue;
            };
            if is_unit(&name) {
                directory.units.insert(name);
            } else if let Some(unit) = name.strip_suffix(".d")
                && (is_unit(unit) || ["service", "timer"].contains(&unit))
            {
                let mut files = self.read_names(&directory.path.join(&name));
                files.retain(|file| Path::new(file).extension().is_some_and(|it| it == "conf"));
                directory.drop_ins.insert(name, files);
            }
        }
        directory
    }

    /// Returns the names in a directory; none where it does not exist.
    fn read_names(&mut self, directory: &Path) -> Vec<OsString> {
        let mut names = Vec::new();
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) => {
                if !durable::is_absent(&error) {
                    self.add_unread(directory, &describe_io_error(&error));
                }
                return names;
            }
        };
        for entry in entries {
            match entry {
                Ok(_) if self.count >= MAX_NAMES => {
                    self.add_unread(directory, "there are too many units");
                    break;
                }
                Ok(entry) => {
                    self.count += 1;
                    names.push(entry.file_name());
                }
                Err(error) => {
                    self.add_unread(directory, &describe_io_error(&error));
                    break;
                }
            }
        }
        names
    }

    fn add_unread(&mut self, path: &Path, reason: &str) {
        self.unread.push(format!("{}: {reason}", path.display()));
    }
}
