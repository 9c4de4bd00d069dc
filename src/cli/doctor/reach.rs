//! Whether agents, or anybody else, can write what they must not: the config, the
//! baselines, every directory and file of the archive, or a directory above one of
//! them. By owner and mode bits; access control lists are not looked at. And whether
//! those who may read the archive come as far as it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{DoctorReport, local};
use crate::baseline::seal;
use crate::cli::Environment;
use crate::cli::output::count;
use crate::config::{Agent, Config};
use crate::durable;

/// The bit of directories in which everybody may only change files of their own.
const STICKY: u32 = 0o1000;

/// The most paths that are named of one user.
const MOST_NAMED: usize = 10;

/// A user who should write none of it, and through which agents it is one.
struct Stranger<'c> {
    uid: u32,
    groups: Vec<u32>,
    /// "uid 1000 (scout) of scout and 2 other agents"
    shown: String,
    agents: Vec<&'c str>,
}

/// Checks it for every user that an agent's memory or its directory belongs to, and for
/// everybody.
pub(super) fn about_reach(report: &mut DoctorReport, config: &Config, world: &Environment) {
    let mut owners: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    let mut ours = 0;
    for agent in &config.agents {
        let users = users(agent);
        let is_ours = |uid: &u32| *uid == 0 || *uid == world.env.uid;
        ours += usize::from(!users.is_empty() && users.iter().all(is_ours));
        for uid in users.into_iter().filter(|uid| !is_ours(uid)) {
            owners.entry(uid).or_default().push(&agent.name);
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
    let strangers: Vec<Stranger<'_>> = owners
        .into_iter()
        .map(|(uid, agents)| stranger(uid, agents, world))
        .collect();
    let targets = targets(config);
    let mut safe: BTreeSet<&str> = BTreeSet::new();
    let mut reached: BTreeSet<&str> = BTreeSet::new();
    for stranger in &strangers {
        let paths: Vec<&Target> = targets
            .iter()
            .filter(|target| target.can_be_changed_by(stranger.uid, &stranger.groups))
            .collect();
        let agents = match paths.is_empty() {
            true => &mut safe,
            false => &mut reached,
        };
        agents.extend(&stranger.agents);
        name_paths(report, &stranger.shown, &paths);
    }
    let open: Vec<&Target> = targets.iter().filter(|it| it.is_open_to_all()).collect();
    if strangers.is_empty() {
        name_paths(report, "every user of this machine", &open);
    }
    about_groups(report, &targets);
    about_access_lists(report, &targets);
    let safe = safe.difference(&reached).count();
    if safe > 0 {
        report.ok(format!(
            "the users of {} can write neither config, baselines nor archive",
            count(safe, "agent")
        ));
    }
}

fn stranger<'c>(uid: u32, agents: Vec<&'c str>, world: &Environment) -> Stranger<'c> {
    let account = (world.account)(uid);
    let user = account
        .as_ref()
        .map_or(String::new(), |it| format!(" ({})", it.name));
    let names = match agents.as_slice() {
        [one] => (*one).to_string(),
        [first, rest @ ..] => format!("{first} and {}", count(rest.len(), "other agent")),
        [] => String::new(),
    };
    Stranger {
        uid,
        groups: account.map_or_else(Vec::new, |account| account.groups),
        shown: format!("uid {uid}{user} of {names}"),
        agents,
    }
}

fn name_paths(report: &mut DoctorReport, who: &str, targets: &[&Target]) {
    for target in targets.iter().take(MOST_NAMED) {
        let path = target.path.display();
        match target
            .missing
            .as_ref()
            .filter(|_| target.mode & STICKY != 0)
        {
            None => report.fail(
                format!("{who} can write {path}"),
                &format!(
                    "take that right away, or the agent can undo the protection: chown root \
                     {path} && chmod go-w {path}"
                ),
            ),
            Some(missing) => report.fail(
                format!("{who} can create {}", missing.display()),
                &format!(
                    "create it yourself, with mode 0700: mkdir -m 700 {}",
                    missing.display()
                ),
            ),
        }
    }
    if targets.len() > MOST_NAMED {
        let more = targets.len() - MOST_NAMED;
        report.fail(format!("{who} can write {more} more of them"), "");
    }
}

/// Files and directories that all members of a group can write: no agent of today may be
/// among these, but nobody checks that tomorrow.
fn about_groups(report: &mut DoctorReport, targets: &[Target]) {
    for target in targets.iter().filter(|it| it.is_open_to_a_group()) {
        let path = target.path.display();
        report.warn(
            format!("members of gid {} can write {path}", target.gid),
            &format!("unless all of them may: chmod g-w {path}"),
        );
    }
}

/// Files and directories with an access list (acl(5)), which gives users and groups rights
/// that owner, group and mode do not show.
fn about_access_lists(report: &mut DoctorReport, targets: &[Target]) {
    let listed: Vec<&Target> = targets.iter().filter(|it| it.has_access_list()).collect();
    if let [first, ..] = listed.as_slice() {
        let path = first.path.display();
        let more = match listed.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        report.warn(
            format!("access lists decide who can write {path}{more}; they were not looked at"),
            &format!("getfacl {path} shows who can; setfacl -b {path} removes the list"),
        );
    }
}

/// Checks that members of `archive_group` can pass through all folders above the
/// archive. A run gives its group the folders that it makes, but was perhaps
/// killed meanwhile; what stood there before is left as it is.
pub(super) fn about_the_group(report: &mut DoctorReport, config: &Config, world: &Environment) {
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
            "members of archive_group {name} can pass through all directories above the archive"
        ));
    }
}

/// Whom an agent's memory, or the directory where it would be made, belongs to.
pub(super) fn owner(agent: &Agent) -> Option<u32> {
    let memory = local(agent)?;
    let stat = durable::stat_unlinked(memory);
    let stat = stat.or_else(|_| durable::stat_unlinked(memory.parent().unwrap_or(memory)));
    stat.ok().map(|stat| stat.st_uid)
}

/// Whom an agent's memory and its directory belong to: whoever has the directory puts
/// files there, whoever they belong to.
fn users(agent: &Agent) -> BTreeSet<u32> {
    let directory = local(agent).and_then(Path::parent);
    let directory = directory.and_then(|path| durable::stat_unlinked(path).ok());
    let directory = directory.map(|stat| stat.st_uid);
    owner(agent).into_iter().chain(directory).collect()
}

/// What no agent may write.
struct Target {
    path: PathBuf,
    uid: u32,
    gid: u32,
    mode: u32,
    is_directory: bool,
    /// What is to be created in it.
    missing: Option<PathBuf>,
}

impl Target {
    /// Whether a user can change a file, or what a directory's names stand for. The
    /// owner always can, since nothing keeps it from changing the mode.
    fn can_be_changed_by(&self, uid: u32, groups: &[u32]) -> bool {
        if self.uid == uid {
            return true;
        }
        if self.is_sticky() {
            return false;
        }
        match groups.contains(&self.gid) {
            true => self.mode & 0o020 != 0,
            false => self.mode & 0o002 != 0,
        }
    }

    /// In a sticky directory, such as /tmp, others' files stay what they are; but what
    /// is not there yet anybody can create.
    fn is_sticky(&self) -> bool {
        self.is_directory && self.mode & STICKY != 0 && self.missing.is_none()
    }

    /// Whether the system keeps a list of rights beside the mode. One that says no more
    /// than the mode is not kept.
    fn has_access_list(&self) -> bool {
        let mut size = [0_u8; 0];
        let list = rustix::fs::lgetxattr(&self.path, "system.posix_acl_access", &mut size[..]);
        list.is_ok()
    }

    fn is_open_to_all(&self) -> bool {
        !self.is_sticky() && self.mode & 0o002 != 0
    }

    fn is_open_to_a_group(&self) -> bool {
        // A group of the same number is commonly the owner's alone.
        let shared = self.gid != 0 && self.gid != self.uid;
        !self.is_sticky() && self.mode & 0o022 == 0o020 && shared
    }
}

/// What is in a directory, as far as it can be read.
fn children(path: &Path) -> impl Iterator<Item = PathBuf> {
    let items = fs::read_dir(path).into_iter().flatten();
    items.filter_map(|item| Some(item.ok()?.path()))
}

/// Files and directories that are written to or relied on, and all directories above.
fn targets(config: &Config) -> Vec<Target> {
    let general = &config.general;
    let mut paths = vec![config.path.clone(), general.baseline_dir.join(seal::FILE)];
    paths.extend(["reset.log", "reset.log.old"].map(|name| general.archive_dir.join(name)));
    let own = general.archive_dir.join(crate::archive::OWN);
    let directories = [own.clone(), own.join("locks"), own.join("tx")];
    paths.extend(directories.iter().flat_map(|path| children(path)));
    paths.extend(directories);
    for agent in &config.agents {
        paths.push(general.baseline_dir.join(&agent.baseline));
        paths.push(general.archive_dir.join(&agent.archive_subdir));
    }
    paths.extend(general.seal_signers.clone());
    let mut targets = BTreeMap::new();
    for path in paths {
        let mut missing = None;
        for above in path.ancestors() {
            if targets.contains_key(above) && missing.is_none() {
                break;
            }
            let Ok(meta) = fs::symlink_metadata(above) else {
                missing = Some(above.to_path_buf());
                continue;
            };
            let target = targets.entry(above.to_path_buf()).or_insert(Target {
                path: above.to_path_buf(),
                uid: meta.uid(),
                gid: meta.gid(),
                mode: meta.mode(),
                is_directory: meta.is_dir(),
                missing: None,
            });
            if let Some(missing) = missing.take() {
                target.missing.get_or_insert(missing);
            }
        }
    }
    targets.into_values().collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn access_list_is_noticed() {
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
        let target = |path: &Path| Target {
            path: path.to_path_buf(),
            uid: 0,
            gid: 0,
            mode: 0o755,
            is_directory: true,
            missing: None,
        };
        assert!(!target(directory.path()).has_access_list());
        let flags = rustix::fs::XattrFlags::empty();
        let name = "system.posix_acl_access";
        if let Err(error) = rustix::fs::lsetxattr(directory.path(), name, &list, flags) {
            println!("skipped: no access lists here: {error}");
            return;
        }
        assert!(target(directory.path()).has_access_list());
    }

    #[test]
    fn the_mode_bits_decide_who_can_change_what() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "x").unwrap();
        let meta = fs::metadata(&path).unwrap();
        let (mine, group) = (meta.uid(), meta.gid());
        let other = mine + 1;
        let at = |path: &Path| {
            let meta = fs::metadata(path).unwrap();
            Target {
                path: path.to_path_buf(),
                uid: meta.uid(),
                gid: meta.gid(),
                mode: meta.mode(),
                is_directory: meta.is_dir(),
                missing: None,
            }
        };
        let with = |mode| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            [
                at(&path).can_be_changed_by(mine, &[]),
                at(&path).can_be_changed_by(other, &[group]),
                at(&path).can_be_changed_by(other, &[]),
            ]
        };
        assert_eq!(with(0o400), [true, false, false]);
        assert_eq!(with(0o660), [true, true, false]);
        assert_eq!(with(0o606), [true, false, true]);
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        let mut sticky = at(folder.path());
        assert!(!sticky.can_be_changed_by(other, &[]));
        sticky.missing = Some(path.clone());
        assert!(
            sticky.can_be_changed_by(other, &[]),
            "what is not there yet"
        );
    }
}
