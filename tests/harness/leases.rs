//! Agents with leases on their memories, which keep other processes from opening them. A lease
//! bypasses no check and blocks no run.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::fixture::{BASELINE, Fleet, is_root};
use crate::kernel::WriteLease;
use crate::processes::{RunningProgram, processor_lock, test_directory};
use crate::skip::skip_unsupported;

/// Reaction of an agent to a process that wants to open its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseBehavior {
    /// Keeps the lease until the kernel ends it.
    KeepsLease,
    /// Gives it back and takes a new one.
    RenewsLease,
    /// Replaces the file by another one, also with a lease.
    MovesFile,
}

/// Takes a lease on a file that was just written; retries, because a process that another test is
/// starting may have it open for a moment.
fn take_lease(path: &Path) -> io::Result<WriteLease> {
    let mut lease = WriteLease::take(File::open(path)?);
    for _ in 0..10_000 {
        match lease {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::yield_now(),
            lease => return lease,
        }
        lease = WriteLease::take(File::open(path)?);
    }
    lease
}

/// Returns a fleet whose agents have these notes and leases on their memories; None, with a notice,
/// where leases do not work.
fn fleet_with_leases(root: &Path, agents: &[&str]) -> Option<(Fleet, Vec<WriteLease>)> {
    let fleet = Fleet::new(root, &root.join("archives"), agents);
    let mut leases = Vec::new();
    for agent in agents {
        fs::write(fleet.memory_path(agent), format!("{BASELINE}- note\n")).unwrap();
        match take_lease(&fleet.memory_path(agent)) {
            Ok(lease) => leases.push(lease),
            Err(error) => {
                skip_unsupported(format_args!("no leases: {error}"));
                return None;
            }
        }
    }
    Some((fleet, leases))
}

fn assert_reset_despite_lease(answer: LeaseBehavior) {
    let (_temporary, root) = test_directory(false);
    let Some((fleet, mut leases)) = fleet_with_leases(&root, &["scout"]) else {
        return;
    };
    let memory = fleet.memory_path("scout");
    let owner = if is_root() { Some(61_001) } else { None };
    chown(&memory, owner, owner).unwrap();
    fs::set_permissions(&memory, fs::Permissions::from_mode(0o640)).unwrap();
    let looks = || {
        let meta = fs::metadata(&memory).unwrap();
        (meta.uid(), meta.gid(), meta.mode())
    };
    let looked = looks();
    let mut before = format!("{BASELINE}- note\n");
    let mut running = RunningProgram::start_on(&fleet, &["reset", "scout"]);
    let mut dodges = 0;
    while !running.has_ended() {
        match answer {
            LeaseBehavior::KeepsLease => {}
            LeaseBehavior::RenewsLease => drop(leases[0].renew()),
            LeaseBehavior::MovesFile if dodges < 100 && leases[dodges].is_break_requested() => {
                dodges += 1;
                let text = format!("{BASELINE}- note {dodges}\n");
                let other = fleet.agent_directory("scout").join("other");
                fs::write(&other, &text).unwrap();
                leases.push(take_lease(&other).unwrap());
                // From its reset on the memory is the baseline.
                if fs::metadata(&memory).unwrap().len() == BASELINE.len() as u64 {
                    fs::remove_file(&other).unwrap();
                } else {
                    fs::rename(&other, &memory).unwrap();
                    before = text;
                }
            }
            LeaseBehavior::MovesFile => {}
        }
        thread::yield_now();
    }
    let ended = running.wait();
    assert_eq!(ended.code, Some(0), "{answer:?}: {ended:?}");
    if answer == LeaseBehavior::MovesFile {
        // The last replacement may have come right after the reset.
        assert!(dodges > 0);
    } else {
        assert_eq!(fs::read_to_string(&memory).unwrap(), BASELINE);
        assert_eq!(looks(), looked, "owner and mode changed");
    }
    // The displaced file stays beside the memory until the lease is over: a process that opens it
    // before would wait until the kernel ends the lease, by default for 45 seconds.
    let beside = fs::read_dir(fleet.agent_directory("scout"))
        .unwrap()
        .count();
    let left = (beside, fleet.pending_journals().len());
    // An agent that renews its lease has none for an instant, in which the file may have been
    // settled; so has one whose lease the kernel ends during the run.
    let seconds = fs::read_to_string("/proc/sys/fs/lease-break-time").unwrap();
    let limit = Duration::from_secs(seconds.trim().parse().unwrap());
    let may_end = answer != LeaseBehavior::KeepsLease || ended.duration >= limit;
    let over = left == (1, 0) && may_end;
    assert!(left == (2, 1) || over, "{answer:?}: {left:?} {ended:?}");
    drop(leases);
    let again = RunningProgram::start_on(&fleet, &["reset", "scout"]).wait();
    assert_eq!(again.code, Some(0), "{again:?}");
    assert_eq!(fs::read_to_string(&memory).unwrap(), BASELINE);
    assert!(fleet.leftovers("scout").is_empty(), "{again:?}");
    assert!(fleet.pending_journals().is_empty());
    if answer != LeaseBehavior::MovesFile {
        assert!(fleet.run(&["undo", "scout"]).status.success());
        assert_eq!(fs::read_to_string(&memory).unwrap(), before);
        assert_eq!(looks(), looked);
    }
    let archived = fleet.entries("scout").into_values();
    assert!(
        archived.into_iter().any(|entry| entry == before.as_bytes()),
        "{before}"
    );
    let verified = fleet.run(&["verify"]);
    assert!(verified.status.success(), "{verified:?}");
}

#[test]
fn agent_holding_a_lease_cannot_avoid_reset() {
    let _alone = processor_lock();
    for answer in [
        LeaseBehavior::KeepsLease,
        LeaseBehavior::RenewsLease,
        LeaseBehavior::MovesFile,
    ] {
        assert_reset_despite_lease(answer);
    }
}

#[test]
fn agents_holding_leases_delay_no_other() {
    let _alone = processor_lock();
    let (_temporary, root) = test_directory(false);
    let agents = ["a1", "a2", "a3", "b1", "b2"];
    let Some((fleet, mut leases)) = fleet_with_leases(&root, &agents) else {
        return;
    };
    // The last two leases are given back.
    leases.truncate(3);
    let ended = RunningProgram::start_on(&fleet, &["reset", "--all"]).wait();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let place = |agent: &str| {
        let line = format!("Reset {agent} ");
        ended
            .err
            .find(&line)
            .or_else(|| ended.out.find(&line))
            .unwrap()
    };
    for late in ["a1", "a2", "a3"] {
        assert!(
            place("b1") < place(late) && place("b2") < place(late),
            "{ended:?}"
        );
        assert_eq!(
            fs::read_to_string(fleet.memory_path(late)).unwrap(),
            BASELINE
        );
    }
}
