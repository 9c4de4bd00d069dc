//! Whether agents can write what they must not: the config, the baselines, the
//! archive, or a folder above one of them. By owner and mode bits; access
//! control lists are not looked at. And whether those who may read the archive
//! come as far as it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Report, local};
use crate::baseline::seal;
use crate::cli::World;
use crate::cli::output::count;
use crate::config::{Agent, Config};

/// Checks it for every user that an agent's file or folder belongs to.
pub(super) fn about_reach(report: &mut Report, config: &Config, world: &World) {
    let mut owners: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    let mut ours = 0;
    for agent in &config.agents {
        match owner(agent) {
            Some(uid) if uid == 0 || uid == world.env.uid => ours += 1,
            Some(uid) => owners.entry(uid).or_default().push(&agent.name),
            None => {}
        }
    }
    if ours > 0 {
        report.warn(
            format!(
                "the files of {} belong to you or to root",
                count(ours, "agent")
            ),
            "an agent that runs as such a user can write baselines and archive: \
             give agents users of their own",
        );
    }
    let targets = targets(config);
    let mut safe = 0;
    for (uid, agents) in owners {
        let account = (world.account)(uid);
        let groups = account.as_ref().map_or(&[][..], |account| &account.groups);
        let reached: Vec<&PathBuf> = targets
            .iter()
            .filter(|path| can_change(path, uid, groups))
            .collect();
        if reached.is_empty() {
            safe += agents.len();
            continue;
        }
        let user = account
            .as_ref()
            .map_or(String::new(), |it| format!(" ({})", it.name));
        let names = match agents.as_slice() {
            [one] => (*one).to_string(),
            [first, rest @ ..] => format!("{first} and {}", count(rest.len(), "other agent")),
            [] => continue,
        };
        for path in reached {
            report.fail(
                format!("uid {uid}{user} of {names} can write {}", path.display()),
                &format!("take that right away, or the agent can undo the protection: chown root {0} && chmod go-w {0}", path.display()),
            );
        }
    }
    if safe > 0 {
        report.ok(format!(
            "the users of {} can write neither config, baselines nor archive",
            count(safe, "agent")
        ));
    }
}

/// Checks that members of `archive_group` can pass through all folders above the
/// archive. A run gives its group the folders that it makes, but was perhaps
/// killed meanwhile; what stood there before is left as it is.
pub(super) fn about_the_group(report: &mut Report, config: &Config, world: &World) {
    let general = &config.general;
    let Some(name) = &general.archive_group else {
        return;
    };
    // That there is no such group is an error of its own.
    let Some(group) = (world.group)(name) else {
        return;
    };
    let mut barred = false;
    for folder in general.archive_dir.ancestors().skip(1) {
        let Ok(meta) = fs::metadata(folder) else {
            continue;
        };
        let path = folder.display();
        let (bit, way) = match meta.gid() == group {
            true => (0o010, format!("chmod g+x {path}")),
            false => (
                0o001,
                format!(
                    "chgrp {name} {path} && chmod g+x {path}; or, to let everybody pass, chmod o+x {path}"
                ),
            ),
        };
        if meta.mode() & bit == 0 {
            barred = true;
            report.warn(
                format!(
                    "members of archive_group {name} cannot pass through {path} (gid {}, mode \
                     {:04o}), so they cannot read the archive",
                    meta.gid(),
                    meta.mode() & 0o7777
                ),
                &way,
            );
        }
    }
    if !barred {
        report.ok(format!(
            "members of archive_group {name} can pass through all folders above the archive"
        ));
    }
}

/// Whom an agent's memory, or the folder where it would be made, belongs to.
pub(super) fn owner(agent: &Agent) -> Option<u32> {
    let memory = local(agent)?;
    let meta = fs::symlink_metadata(memory);
    let meta = meta.or_else(|_| fs::metadata(memory.parent().unwrap_or(memory)));
    meta.ok().map(|meta| meta.uid())
}

/// What no agent may write: files, their folders, and all folders above.
fn targets(config: &Config) -> BTreeSet<PathBuf> {
    let general = &config.general;
    let mut paths = vec![
        config.path.clone(),
        general.baseline_dir.join(seal::FILE),
        general.archive_dir.join(crate::archive::OWN),
    ];
    let baselines = config.agents.iter().map(|agent| &agent.baseline);
    paths.extend(baselines.map(|name| general.baseline_dir.join(name)));
    paths.extend(general.seal_signers.clone());
    let mut targets = BTreeSet::new();
    for path in paths {
        for above in path.ancestors().filter(|above| above.exists()) {
            targets.insert(above.to_path_buf());
        }
    }
    targets
}

/// Whether a user can change a file, or what a folder's names stand for. The
/// owner always can, since nothing keeps it from changing the mode.
fn can_change(path: &Path, uid: u32, groups: &[u32]) -> bool {
    let Ok(meta) = fs::symlink_metadata(path) else {
        return false;
    };
    if meta.uid() == uid {
        return true;
    }
    // In a sticky folder, such as /tmp, others' files stay what they are.
    if meta.is_dir() && meta.mode() & 0o1000 != 0 {
        return false;
    }
    match groups.contains(&meta.gid()) {
        true => meta.mode() & 0o020 != 0,
        false => meta.mode() & 0o002 != 0,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_mode_bits_decide_who_can_change_what() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "x").unwrap();
        let meta = fs::metadata(&path).unwrap();
        let (mine, group) = (meta.uid(), meta.gid());
        let other = mine + 1;
        let with = |mode| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            [
                can_change(&path, mine, &[]),
                can_change(&path, other, &[group]),
                can_change(&path, other, &[]),
            ]
        };
        assert_eq!(with(0o400), [true, false, false]);
        assert_eq!(with(0o660), [true, true, false]);
        assert_eq!(with(0o606), [true, false, true]);
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(!can_change(folder.path(), other, &[]));
    }
}
