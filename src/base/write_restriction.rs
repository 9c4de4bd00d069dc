//! Restricts where this process may write: Landlock, which needs neither rights nor namespaces.
//!
//! The kernel then refuses to create, open for writing, rename and remove files elsewhere, also for
//! the processes that this one starts. It does not refuse to change the mode, owner, times or
//! attributes of a file elsewhere, and files that are open already can still be written.

use std::path::{Path, PathBuf};
use std::time::Duration;

use landlock::{
    ABI, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus,
};

use crate::base::file_systems::FileSystems;

/// The version of Landlock that has all rights to write to files. Later ones add devices, the network
/// and signals.
const WRITE_RIGHTS: ABI = ABI::V3;

/// Directory of devices: terminals, and /dev/null, which programs that a run starts open.
const DEVICE_DIRECTORY: &str = "/dev";

/// What the kernel enforces of a write restriction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteRestriction {
    /// All of it.
    Full,
    /// Files elsewhere can still be truncated: Landlock of Linux 5.19 to 6.1.
    Partial,
    /// Nothing, for this reason.
    NotEnforced(String),
}

/// Restricts this thread, and all threads and processes that it starts from now on, to write below
/// these directories and to devices. They can gain no privileges either (`no_new_privs`).
///
/// The restriction is that of a thread: only a call on the main thread, before it starts others,
/// restricts the process. A directory that is missing, or whose file system does not answer within
/// `timeout`, is not writable. Threads that open those which may hang do nothing else.
pub fn restrict_writes(
    directories: Vec<PathBuf>,
    file_systems: &FileSystems,
    timeout: Duration,
) -> WriteRestriction {
    let open_directory = || |path: &Path| PathFd::new(path).ok();
    let opened = file_systems.inspect_paths(directories, timeout, open_directory);
    let devices = PathFd::new(DEVICE_DIRECTORY).ok();
    enforce(opened.into_iter().flatten().chain(devices))
        .unwrap_or_else(|error| WriteRestriction::NotEnforced(error.to_string()))
}

fn enforce(directories: impl Iterator<Item = PathFd>) -> Result<WriteRestriction, RulesetError> {
    let rights = AccessFs::from_write(WRITE_RIGHTS);
    let rules = directories.map(|it| Ok::<_, RulesetError>(PathBeneath::new(it, rights)));
    let status = Ruleset::default()
        // The first version of Landlock forbids every rename to another directory.
        .set_compatibility(CompatLevel::SoftRequirement)
        .handle_access(AccessFs::Refer)?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(rights)?
        .create()?
        .add_rules(rules)?
        .restrict_self()?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => WriteRestriction::Full,
        RulesetStatus::PartiallyEnforced => WriteRestriction::Partial,
        RulesetStatus::NotEnforced => WriteRestriction::NotEnforced(
            "the kernel has no Landlock of Linux 5.19 or later".into(),
        ),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind;
    use std::process::Command;
    use std::sync::Arc;
    use std::thread;

    use super::*;
    use crate::base::clock::SystemClock;
    use crate::skip::skip_unsupported;

    fn restrict_to(directories: Vec<PathBuf>) -> WriteRestriction {
        let limit = Duration::from_secs(60);
        let file_systems = FileSystems::new(Path::new("/"), limit, Arc::new(SystemClock));
        restrict_writes(directories, &file_systems, limit)
    }

    #[test]
    fn writes_elsewhere_are_refused() {
        let temporary = tempfile::tempdir().unwrap();
        let at = |name: &str| temporary.path().join(name);
        let (inside, outside) = (at("inside"), at("outside"));
        fs::create_dir(&inside).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "kept").unwrap();
        let directories = vec![inside.clone(), at("missing")];
        let steps = move || {
            if let WriteRestriction::NotEnforced(why) = restrict_to(directories) {
                return skip_unsupported(why);
            }
            let write = |path: PathBuf| fs::write(path, "x").map_err(|error| error.kind());
            let refused = Err(ErrorKind::PermissionDenied);
            assert_eq!(write(inside.join("new")), Ok(()));
            fs::create_dir(inside.join("below")).unwrap();
            fs::rename(inside.join("new"), inside.join("below/new")).unwrap();
            assert_eq!(write(outside.join("new")), refused);
            assert_eq!(write(outside.join("kept")), refused);
            assert!(fs::remove_file(outside.join("kept")).is_err());
            assert!(fs::rename(inside.join("below/new"), outside.join("new")).is_err());
            assert_eq!(fs::read(outside.join("kept")).unwrap(), b"kept");
            // Programs and threads that it starts are restricted as well.
            let touch = Command::new("touch").arg(outside.join("new")).output();
            assert!(!touch.unwrap().status.success());
            let path = outside.join("new");
            assert_eq!(
                thread::spawn(move || fs::write(path, "x"))
                    .join()
                    .unwrap()
                    .map_err(|it| it.kind()),
                refused
            );
            assert!(!outside.join("new").exists());
        };
        // The restriction ends with its thread.
        thread::spawn(steps).join().unwrap();
    }
}
