//! What a unit may not do: the lines that confine its service, computed from the config.
//!
//! Only directories that a run writes are writable: those of the memories on this machine, and the
//! archive's. A unit of the system runs as root, because it gives memories back to their owners,
//! with the capabilities for that alone. systemd can confine a unit of a user to directories only in
//! a user namespace, which shows files of all other users and groups as those of `nobody`. Without
//! one, the program restricts its writes by itself.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::UnitScope;
use super::escape::{quote, unit_path};
use crate::base::error::Result;
use crate::config::{Agent, Config};

/// How the units of a user are confined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserSandbox {
    /// In a user namespace.
    Namespaces,
    /// By system call filters, and by the program itself, for this reason.
    FiltersOnly(String),
}

/// What a service does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServicePurpose {
    /// Resets agents.
    Reset,
    /// Watches baselines.
    Guard,
}

/// Lines that confine every service.
const FILTER_LINES: &str = "\
NoNewPrivileges=yes
KeyringMode=private
LockPersonality=yes
MemoryDenyWriteExecute=yes
RestrictNamespaces=yes
RestrictRealtime=yes
SystemCallArchitectures=native
SystemCallErrorNumber=EPERM
SystemCallFilter=@system-service
SystemCallFilter=~@resources
";

/// The line of a service with a network.
const NETWORK_LINE: &str = "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK\n";

/// The option of `reset` and `guard` in services that systemd does not confine to directories.
pub(super) const RESTRICT_WRITES_OPTION: &str = "--restrict-writes";

/// The line of such a service: `@system-service` lacks these calls. A systemd that does not know one
/// ignores its name.
const WRITE_RESTRICTION_LINE: &str =
    "SystemCallFilter=landlock_add_rule landlock_create_ruleset landlock_restrict_self\n";

/// Lines that need namespaces, or a service manager with privileges.
const NAMESPACE_LINES: &str = "\
PrivateDevices=yes
PrivateMounts=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHome=read-only
ProtectHostname=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectSystem=strict
";

/// Capabilities of a run: it reads and replaces files of other users, and gives the new files the
/// owner, group and mode of the old ones. A lease shows that no other process writes a file.
const RESET_CAPABILITIES: &str =
    "CAP_CHOWN CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_FOWNER CAP_FSETID CAP_LEASE";

/// The guard also restores baselines that are immutable.
const GUARD_CAPABILITIES: &str = "CAP_CHOWN CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_FOWNER \
                                  CAP_FSETID CAP_LEASE CAP_LINUX_IMMUTABLE";

/// Directories that `PrivateTmp=` replaces.
const TEMPORARY_DIRECTORIES: [&str; 2] = ["/tmp", "/var/tmp"];

/// Settings of the kernel without which an ordinary user has no user namespaces: the file, and the
/// value that forbids them.
const NAMESPACE_SETTINGS: [(&str, &str); 3] = [
    ("user/max_user_namespaces", "0"),
    ("kernel/unprivileged_userns_clone", "0"),
    ("kernel/apparmor_restrict_unprivileged_userns", "1"),
];

/// Returns why units of a user cannot be in a user namespace with this config, if they cannot.
pub fn find_sandbox_obstacle(config: &Config) -> Option<String> {
    if has_remote_agent(config.reset_agents()) {
        let text = "ssh refuses the system's ssh_config in a user namespace, where root does not \
                    own it";
        return Some(text.to_string());
    }
    let group = config.general.archive_group.as_ref()?;
    Some(format!(
        "files cannot be given to archive_group {group} in a user namespace"
    ))
}

/// Returns why the kernel has no user namespaces for ordinary users, if it has none. `settings` is
/// `/proc/sys`.
pub fn find_kernel_obstacle(settings: &Path) -> Option<String> {
    NAMESPACE_SETTINGS.iter().find_map(|(name, forbidding)| {
        let value = fs::read_to_string(settings.join(name)).ok()?;
        let name = name.replace('/', ".");
        (value.trim() == *forbidding)
            .then(|| format!("the kernel forbids user namespaces ({name} = {forbidding})"))
    })
}

/// Returns whether alerts leave the machine, or may: that of a command is its own matter.
fn sends_alerts(config: &Config) -> bool {
    let alerts = config.alerts.as_ref();
    alerts.is_some_and(|it| it.url.is_some() || it.command.is_some())
}

/// Returns the lines that confine a service of a package, whose config is not known: it has the
/// network, and can write everywhere but to the system's own directories.
pub(super) fn packaged_sandbox_lines(purpose: ServicePurpose, config_directory: &str) -> String {
    let namespaces = NAMESPACE_LINES
        .replace("ProtectHome=read-only\n", "")
        .replace("ProtectSystem=strict\n", "ProtectSystem=full\n");
    let root = root_lines(purpose);
    format!("{FILTER_LINES}{NETWORK_LINE}{namespaces}{root}ReadWritePaths=-{config_directory}\n")
}

/// Returns the lines of a service of the system alone: its capabilities, and the kernel's log, which a
/// user cannot read, and cannot cover inside a container.
fn root_lines(purpose: ServicePurpose) -> String {
    let capabilities = match purpose {
        ServicePurpose::Reset => RESET_CAPABILITIES,
        ServicePurpose::Guard => GUARD_CAPABILITIES,
    };
    format!("ProtectKernelLogs=yes\nCapabilityBoundingSet={capabilities}\n")
}

/// What the sandbox of a service depends on.
pub(super) struct SandboxSetup<'a> {
    pub(super) config: &'a Config,
    /// The agents that the service resets.
    pub(super) agents: &'a [&'a Agent],
    pub(super) scope: UnitScope,
    pub(super) user_sandbox: &'a UserSandbox,
    /// The program, which the sandbox must not hide.
    pub(super) program: &'a Path,
}

impl SandboxSetup<'_> {
    /// Returns the lines that confine a service.
    ///
    /// # Errors
    /// A path that a unit cannot name.
    pub(super) fn lines(&self, purpose: ServicePurpose) -> Result<String> {
        let mut lines = FILTER_LINES.to_string();
        // Directories of an archive with a group have the set-group-ID bit, which this forbids.
        if self.config.general.archive_group.is_none() {
            lines.push_str("RestrictSUIDSGID=yes\n");
        }
        let has_network =
            has_remote_agent(self.agents.iter().copied()) || sends_alerts(self.config);
        if has_network {
            lines.push_str(NETWORK_LINE);
        } else {
            lines.push_str("RestrictAddressFamilies=AF_UNIX\n");
        }
        if !self.has_namespaces(purpose) {
            lines.push_str(WRITE_RESTRICTION_LINE);
            return Ok(lines);
        }
        lines.push_str(NAMESPACE_LINES);
        if !has_network {
            lines.push_str("IPAddressDeny=any\nPrivateNetwork=yes\n");
        }
        if !self.uses_temporary_directory() {
            lines.push_str("PrivateTmp=yes\n");
        }
        lines.push_str(&match self.scope {
            UnitScope::User => "PrivateUsers=yes\nCapabilityBoundingSet=\n".to_string(),
            UnitScope::System => root_lines(purpose),
        });
        for path in writable_directories(self.config, self.agents, purpose) {
            // A directory that is missing must not keep the service from its other agents.
            let path = format!("-{}", unit_path(&path)?);
            lines.push_str(&format!("ReadWritePaths={}\n", quote(&path)));
        }
        Ok(lines)
    }

    /// Returns whether systemd confines the service to directories. Otherwise its program does.
    pub(super) fn has_namespaces(&self, purpose: ServicePurpose) -> bool {
        match (self.scope, self.user_sandbox) {
            (UnitScope::System, _) => true,
            // The guard gives a restored baseline its group, which a user namespace does not know.
            (UnitScope::User, UserSandbox::Namespaces) => purpose == ServicePurpose::Reset,
            (UnitScope::User, UserSandbox::FiltersOnly(_)) => false,
        }
    }

    /// Whether something that the service needs is in a directory that `PrivateTmp=` hides.
    fn uses_temporary_directory(&self) -> bool {
        let general = &self.config.general;
        let hosts = self.agents.iter().filter_map(|it| it.host());
        let identities = hosts.filter_map(|host| host.identity_file.clone());
        let lint = &self.config.lint;
        let mut needed: Vec<PathBuf> = vec![
            self.program.to_path_buf(),
            self.config.path.clone(),
            general.archive_dir.clone(),
            general.baseline_dir.clone(),
        ];
        needed.extend(general.seal_signers.clone());
        needed.extend(lint.allow_file.clone());
        needed.extend(lint.accepted_file.clone());
        needed.extend(lint.words_directory.clone());
        needed.extend(local_directories(self.agents));
        needed.extend(identities);
        // A program of the PATH becomes a path beside the config, which is needed anyway.
        if let Some(alerts) = &self.config.alerts {
            let words = alerts.command.iter().flatten();
            needed.extend(words.map(|word| alerts.directory.join(word)));
        }
        needed.iter().any(|path| {
            TEMPORARY_DIRECTORIES
                .iter()
                .any(|temporary| path.starts_with(temporary))
        })
    }
}

/// Returns the directories of the config that a run of these agents, or the guard, writes; none of
/// them is inside another one.
pub fn writable_directories(
    config: &Config,
    agents: &[&Agent],
    purpose: ServicePurpose,
) -> Vec<PathBuf> {
    let general = &config.general;
    let mut paths = BTreeSet::from([general.archive_dir.clone()]);
    paths.extend(local_directories(agents));
    if purpose == ServicePurpose::Guard {
        paths.insert(general.baseline_dir.clone());
    }
    // A directory comes before all that it contains.
    let mut outermost: Vec<PathBuf> = Vec::new();
    for path in paths {
        if !outermost.iter().any(|above| path.starts_with(above)) {
            outermost.push(path);
        }
    }
    outermost
}

/// Returns the directories of the memories that are on this machine.
fn local_directories(agents: &[&Agent]) -> impl Iterator<Item = PathBuf> {
    let directories = agents.iter().flat_map(|agent| agent.local_directories());
    directories.map(|(_, path)| path.to_path_buf())
}

/// Whether one of the agents is on another host.
pub fn has_remote_agent<'a>(mut agents: impl Iterator<Item = &'a Agent>) -> bool {
    agents.any(|agent| agent.host().is_some())
}
