//! What this process may do beyond the files of its user: capabilities and groups.

use rustix::process::{getegid, geteuid, getgroups};
use rustix::thread::{CapabilitySet, capabilities};

/// Returns whether this process has a capability (capabilities(7)).
pub fn has_capability(capability: CapabilitySet) -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(capability))
}

/// Describes the user or group that this process may not give to a file of its own; none where it may
/// give both. No group: the file has the right one.
pub fn describe_refused_owner(uid: u32, gid: Option<u32>) -> Option<String> {
    let has_group = |gid: &u32| {
        let groups = getgroups().unwrap_or_default();
        let own = getegid();
        let mut groups = groups.iter().chain([&own]).map(|it| it.as_raw());
        groups.any(|it| it == *gid)
    };
    let refused = if geteuid().as_raw() == uid {
        gid.filter(|gid| !has_group(gid))
            .map(|gid| format!("group id {gid}"))
    } else {
        Some(format!("user id {uid}"))
    };
    refused.filter(|_| !has_capability(CapabilitySet::CHOWN))
}
