//! Checks of write access: whether agents, or all users, can write the config, the baselines, a
//! directory or file of the archive, or a directory above these. Also checks that members of
//! `archive_group` can reach the archive. Considers owner and mode bits; reports access control
//! lists without evaluating them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{DoctorReport, FleetSubject};
use crate::base::invocation::quote_operand;
use crate::cli::Environment;
use crate::cli::output::format_count;

/// The mode bit of directories in which users can rename and delete only their own files.
const STICKY_BIT: u32 = 0o1000;

/// Maximum number of paths reported for one user.
const MAX_REPORTED_PATHS: usize = 10;

/// A user without a right to write these paths, with the agents that run as this user.
struct UntrustedUser<'c> {
    uid: u32,
    groups: Vec<u32>,
    /// "uid 1000 (scout) of scout and 2 other agents"
    label: String,
    agents: Vec<&'c str>,
}

/// Checks write access of all users, and of each user that owns a memory or its directory.
pub(super) fn check_write_access(report: &mut DoctorReport, fleet: &FleetSubject<'_>) {
    let (engine, environment) = (fleet.engine, fleet.environment);
    let agents = &fleet.answering_agents;
    let mut owners: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    let mut own_count = 0;
    for agent in agents {
        let users: BTreeSet<u32> = engine.context().memory_owners(agent).into_iter().collect();
        let is_own_or_root = |uid: &u32| *uid == 0 || *uid == environment.env.uid;
        own_count += usize::from(!users.is_empty() && users.iter().all(is_own_or_root));
        for uid in users.into_iter().filter(|uid| !is_own_or_root(uid)) {
            owners.entry(uid).or_default().push(&agent.name);
        }
    }
    if own_count > 0 {
        let agents = format_count(own_count, "agent");
        report.add_warning(
            format!("files of {agents} belong to you or to root"),
            "an agent that runs as one of these users can write baselines and archive: \
             run each agent as a user of its own",
        );
    }
    let untrusted_users: Vec<UntrustedUser<'_>> = owners
        .into_iter()
        .map(|(uid, agents)| describe_untrusted_user(uid, agents, environment))
        .collect();
    let targets = inspect_paths(engine.runs().protected_paths(agents));
    let mut agents_without_access: BTreeSet<&str> = BTreeSet::new();
    let mut agents_with_access: BTreeSet<&str> = BTreeSet::new();
    for user in &untrusted_users {
        let paths: Vec<&ProtectedPath> = targets
            .iter()
            .filter(|target| target.is_writable_by(user.uid, &user.groups))
            .collect();
        let agents = if paths.is_empty() {
            &mut agents_without_access
        } else {
            &mut agents_with_access
        };
        agents.extend(&user.agents);
        report_writable_paths(report, &user.label, &paths);
    }
    let world_writable: Vec<&ProtectedPath> =
        targets.iter().filter(|it| it.is_world_writable()).collect();
    if untrusted_users.is_empty() {
        report_writable_paths(report, "every user of this machine", &world_writable);
    }
    check_group_access(report, &targets);
    check_access_lists(report, &targets);
    let safe = agents_without_access
        .difference(&agents_with_access)
        .count();
    if safe > 0 {
        let agents = format_count(safe, "agent");
        report.add_ok(format!(
            "the users of {agents} can write neither config, baselines nor archive"
        ));
    }
}

fn describe_untrusted_user<'c>(
    uid: u32,
    agents: Vec<&'c str>,
    environment: &Environment,
) -> UntrustedUser<'c> {
    let account = (environment.find_account)(uid);
    let user = account
        .as_ref()
        .map_or(String::new(), |it| format!(" ({})", it.name));
    let names = match agents.as_slice() {
        [one] => (*one).to_string(),
        [first, rest @ ..] => format!("{first} and {}", format_count(rest.len(), "other agent")),
        [] => String::new(),
    };
    UntrustedUser {
        uid,
        groups: account.map_or_else(Vec::new, |account| account.groups),
        label: format!("uid {uid}{user} of {names}"),
        agents,
    }
}

fn report_writable_paths(report: &mut DoctorReport, user: &str, targets: &[&ProtectedPath]) {
    for target in targets.iter().take(MAX_REPORTED_PATHS) {
        let (path, operand) = (target.path.display(), quote_operand(&target.path));
        match target
            .missing_child
            .as_ref()
            .filter(|_| target.mode & STICKY_BIT != 0)
        {
            None if target.is_symlink => report.add_failure(
                format!("{user} owns the symlink {path}"),
                &format!("it may replace it: chown -h root {operand}"),
            ),
            None => report.add_failure(
                format!("{user} can write {path}"),
                &format!(
                    "remove write access, or the agent can undo the protection: chown root \
                     {operand} && chmod go-w {operand}"
                ),
            ),
            Some(missing) => report.add_failure(
                format!("{user} can create {}", missing.display()),
                &format!(
                    "create it yourself, with mode 0700: mkdir -m 700 {}",
                    quote_operand(missing)
                ),
            ),
        }
    }
    if targets.len() > MAX_REPORTED_PATHS {
        let more = targets.len() - MAX_REPORTED_PATHS;
        report.add_failure(format!("{user} can write {more} more of these paths"), "");
    }
}

/// Reports files and directories that a group can write: an agent may join the group later.
fn check_group_access(report: &mut DoctorReport, targets: &[ProtectedPath]) {
    for target in targets.iter().filter(|it| it.is_group_writable()) {
        let path = target.path.display();
        report.add_warning(
            format!("members of gid {} can write {path}", target.gid),
            &format!(
                "if they should not: chmod g-w {}",
                quote_operand(&target.path)
            ),
        );
    }
}

/// Reports files and directories with an access list (acl(5)), which grants rights that owner,
/// group and mode do not show.
fn check_access_lists(report: &mut DoctorReport, targets: &[ProtectedPath]) {
    let with_access_list: Vec<&ProtectedPath> =
        targets.iter().filter(|it| it.has_access_list()).collect();
    if let [first, ..] = with_access_list.as_slice() {
        let (path, operand) = (first.path.display(), quote_operand(&first.path));
        let more = match with_access_list.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        report.add_warning(
            format!("access lists decide who can write {path}{more}; they are not checked"),
            &format!(
                "see who can with getfacl {operand}; remove the list with setfacl -b {operand}"
            ),
        );
    }
}

/// Checks that members of `archive_group` can pass through all directories above the archive. A run
/// sets the group of the directories that it creates, but may have been killed before, and leaves
/// existing directories unchanged.
pub(super) fn check_group_reach(report: &mut DoctorReport, fleet: &FleetSubject<'_>) {
    let general = &fleet.engine.config().general;
    let Some(name) = &general.archive_group else {
        return report.add_ok("no archive_group has to reach the archive");
    };
    // A missing group is reported elsewhere.
    let Some(group) = (fleet.environment.find_group)(name) else {
        return;
    };
    for directory in general.archive_dir.ancestors().skip(1) {
        let Ok(meta) = fs::metadata(directory) else {
            continue;
        };
        let (path, operand) = (directory.display(), quote_operand(directory));
        let (bit, fix) = if meta.gid() == group {
            (0o010, format!("chmod g+x {operand}"))
        } else {
            (
                0o001,
                format!(
                    "chgrp {name} {operand} && chmod g+x {operand}; or, for all users, chmod o+x \
                     {operand}"
                ),
            )
        };
        if meta.mode() & bit == 0 {
            report.add_warning(
                format!(
                    "members of archive_group {name} cannot pass through {path} (gid {}, mode \
                     {:04o}), so they cannot read the archive",
                    meta.gid(),
                    meta.mode() & 0o7777
                ),
                &fix,
            );
        }
    }
    report.add_ok_if_silent(format!(
        "members of archive_group {name} can pass through all directories above the archive"
    ));
}

/// A path that no agent may write.
struct ProtectedPath {
    path: PathBuf,
    uid: u32,
    gid: u32,
    mode: u32,
    is_symlink: bool,
    is_directory: bool,
    /// The file that will be created in this directory.
    missing_child: Option<PathBuf>,
}

impl ProtectedPath {
    /// Whether a user can change a file or the names in a directory. The owner always can, by
    /// changing the mode.
    fn is_writable_by(&self, uid: u32, groups: &[u32]) -> bool {
        if self.uid == uid {
            return true;
        }
        if self.is_sticky() {
            return false;
        }
        let write_bit = if groups.contains(&self.gid) {
            0o020
        } else {
            0o002
        };
        self.mode & write_bit != 0
    }

    /// Whether sticky protection applies: in a sticky directory such as /tmp, existing files of
    /// others are safe, but any user can create a missing one.
    fn is_sticky(&self) -> bool {
        self.is_directory && self.mode & STICKY_BIT != 0 && self.missing_child.is_none()
    }

    /// Whether the path has an access list. The system stores none that only repeats the mode.
    fn has_access_list(&self) -> bool {
        let mut size = [0_u8; 0];
        let list = rustix::fs::lgetxattr(&self.path, "system.posix_acl_access", &mut size[..]);
        list.is_ok()
    }

    fn is_world_writable(&self) -> bool {
        !self.is_sticky() && self.mode & 0o002 != 0
    }

    fn is_group_writable(&self) -> bool {
        // A group with the same number as the owner is usually the private group of that user.
        let shared = self.gid != 0 && self.gid != self.uid;
        !self.is_sticky() && self.mode & 0o022 == 0o020 && shared
    }
}

/// Returns owner and mode of these paths, of what symlinks among them lead to, and of all directories
/// above.
fn inspect_paths(mut paths: Vec<PathBuf>) -> Vec<ProtectedPath> {
    let mut targets = BTreeMap::new();
    while let Some(path) = paths.pop() {
        let mut missing = None;
        for above in path.ancestors() {
            if targets.contains_key(above) && missing.is_none() {
                break;
            }
            let Ok(meta) = fs::symlink_metadata(above) else {
                missing = Some(above.to_path_buf());
                continue;
            };
            let is_new = !targets.contains_key(above);
            if is_new && meta.is_symlink() {
                paths.extend(symlink_target(above));
            }
            let target = targets.entry(above.to_path_buf()).or_insert(ProtectedPath {
                path: above.to_path_buf(),
                uid: meta.uid(),
                gid: meta.gid(),
                // The mode of a symlink grants nothing.
                mode: if meta.is_symlink() { 0 } else { meta.mode() },
                is_symlink: meta.is_symlink(),
                is_directory: meta.is_dir(),
                missing_child: None,
            });
            if let Some(missing) = missing.take() {
                target.missing_child.get_or_insert(missing);
            }
        }
    }
    targets.into_values().collect()
}

/// Returns the path that a symlink names, which may be another symlink.
fn symlink_target(link: &Path) -> Option<PathBuf> {
    let directory = fs::canonicalize(link.parent()?).ok()?;
    Some(directory.join(fs::read_link(link).ok()?))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::skip::skip_unsupported;

    #[test]
    fn access_list_is_detected() {
        let directory = tempfile::tempdir().unwrap();
        // acl_ea_header and its entries, as in linux/posix_acl_xattr.h: user 4711 may write.
        let mut list = 2_u32.to_le_bytes().to_vec();
        let nobody = u32::MAX;
        for (tag, rights, id) in [
            (0x01_u16, 7_u16, nobody),
            (0x02, 7, 4711),
            (0x04, 5, nobody),
            (0x10, 7, nobody),
            (0x20, 5, nobody),
        ] {
            list.extend(tag.to_le_bytes());
            list.extend(rights.to_le_bytes());
            list.extend(id.to_le_bytes());
        }
        let target = |path: &Path| ProtectedPath {
            path: path.to_path_buf(),
            uid: 0,
            gid: 0,
            mode: 0o755,
            is_symlink: false,
            is_directory: true,
            missing_child: None,
        };
        assert!(!target(directory.path()).has_access_list());
        let flags = rustix::fs::XattrFlags::empty();
        let name = "system.posix_acl_access";
        if let Err(error) = rustix::fs::lsetxattr(directory.path(), name, &list, flags) {
            skip_unsupported(format_args!("no access lists here: {error}"));
            return;
        }
        assert!(target(directory.path()).has_access_list());
    }

    #[test]
    fn mode_bits_decide_who_can_change_a_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "x").unwrap();
        let meta = fs::metadata(&path).unwrap();
        let (mine, group) = (meta.uid(), meta.gid());
        let other = mine + 1;
        let at = |path: &Path| {
            let meta = fs::metadata(path).unwrap();
            ProtectedPath {
                path: path.to_path_buf(),
                uid: meta.uid(),
                gid: meta.gid(),
                mode: meta.mode(),
                is_symlink: false,
                is_directory: meta.is_dir(),
                missing_child: None,
            }
        };
        let with = |mode| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            [
                at(&path).is_writable_by(mine, &[]),
                at(&path).is_writable_by(other, &[group]),
                at(&path).is_writable_by(other, &[]),
            ]
        };
        assert_eq!(with(0o400), [true, false, false]);
        assert_eq!(with(0o660), [true, true, false]);
        assert_eq!(with(0o606), [true, false, true]);
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        let mut sticky = at(directory.path());
        assert!(!sticky.is_writable_by(other, &[]));
        sticky.missing_child = Some(path.clone());
        assert!(sticky.is_writable_by(other, &[]), "a missing file");
    }

    #[test]
    fn symlink_grants_nothing_and_its_target_counts() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        for name in ["links", "own", "shared"] {
            fs::create_dir(root.join(name)).unwrap();
        }
        let mode = fs::Permissions::from_mode(0o777);
        fs::set_permissions(root.join("shared"), mode).unwrap();
        fs::write(root.join("shared/a.conf"), "").unwrap();
        let link = |target: &str, name: &str| {
            std::os::unix::fs::symlink(target, root.join(name)).unwrap();
        };
        link("../shared/a.conf", "own/a.conf");
        link("../own/a.conf", "links/a.conf");
        let found = inspect_paths(vec![root.join("links/a.conf")]);
        let writable = found.iter().filter(|it| it.is_world_writable());
        let paths: Vec<PathBuf> = writable
            .filter_map(|it| it.path.canonicalize().ok())
            .filter(|it| it.starts_with(&root))
            .collect();
        assert_eq!(paths, [root.join("shared")]);
    }
}
