//! Agents that have leases on their memories, by which they keep everybody else
//! from opening them. They get around nothing and hold nobody up.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::thread;

use crate::fixture::{BASELINE, Fleet, is_root};
use crate::kernel::WriteLease;
use crate::processes::{RunningProgram, processor_lock, test_directory};
use crate::skip::skip_unsupported;

/// What an agent does with its lease when somebody wants to open its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseBehavior {
    /// It holds on to it, until the kernel ends it.
    KeepsLease,
    /// It gives it back and takes a new one.
    RenewsLease,
    /// It puts another file there, on which it has a lease, too.
    MovesFile,
}

/// A lease on a file that was just written: a process that another test is
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

/// A fleet whose agents have these notes and leases on their memories; none, and
/// said so, where there are no leases.
fn fleet_with_leases(root: &Path, agents: &[&str]) -> Option<(Fleet, Vec<WriteLease>)> {
    let fleet = Fleet::new(root, &root.join("archives"), agents);
    let mut leases = Vec::new();
    for agent in agents {
        fs::write(fleet.memory_path(agent), format!("{BASELINE}- note\n")).unwrap();
        match take_lease(&fleet.memory_path(agent)) {
            Ok(lease) => leases.push(lease),
            Err(error) => {
                skip_unsupported(format_args!("no leases here: {error}"));
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
    let owner = match is_root() {
        true => Some(61_001),
        false => None,
    };
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
                // From the moment of its reset on the memory is the baseline.
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
        // The last one may have come right behind the reset.
        assert!(dodges > 0);
    } else {
        assert_eq!(fs::read_to_string(&memory).unwrap(), BASELINE);
        assert_eq!(looks(), looked, "owner and mode stay");
    }
    // What was displaced stays beside it until the lease is over.
    // Nobody opens it meanwhile, which would take 45 seconds.
    let beside = fs::read_dir(fleet.agent_directory("scout"))
        .unwrap()
        .count();
    let left = (beside, fleet.pending_journals().len());
    // Whoever takes another one is without any for an instant, in which it may have
    // been settled.
    let over = left == (1, 0) && answer != LeaseBehavior::KeepsLease;
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
    // Those of the last two are given back.
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
