//! What this process may do beyond the files of its user: capabilities and groups.

use rustix::process::{getegid, geteuid, getgroups};
use rustix::thread::{CapabilitySet, capabilities};

/// Returns whether this process has a capability (capabilities(7)).
pub fn has_capability(capability: CapabilitySet) -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(capability))
}

/// Describes the owner or group that this process may not give to a file of its own; none where it may
/// give both.
pub fn describe_refused_owner(uid: u32, gid: u32) -> Option<String> {
    let is_own_user = geteuid().as_raw() == uid;
    let is_own_group = || {
        let groups = getgroups().unwrap_or_default();
        groups
            .iter()
            .chain([&getegid()])
            .any(|it| it.as_raw() == gid)
    };
    if (is_own_user && is_own_group()) || has_capability(CapabilitySet::CHOWN) {
        return None;
    }
    Some(if is_own_user {
        format!("group id {gid}")
    } else {
        format!("user id {uid}")
    })
}
