//! Agents that have leases on their memories, by which they keep everybody else
//! from opening them. They get around nothing and hold nobody up.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::thread;

use crate::fixture::{BASELINE, Fleet, is_root};
use crate::kernel::Lease;
use crate::tools::{Running, alone, ground};

/// What an agent does with its lease when somebody wants to open its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// It holds on to it, until the kernel ends it.
    Keeps,
    /// It gives it back and takes a new one.
    Renews,
    /// It puts another file there, on which it has a lease, too.
    Dodges,
}

/// A lease on a file that was just written: a process that another test is
/// starting may have it open for a moment.
fn take(path: &Path) -> io::Result<Lease> {
    let mut lease = Lease::take(File::open(path)?);
    for _ in 0..10_000 {
        match lease {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::yield_now(),
            lease => return lease,
        }
        lease = Lease::take(File::open(path)?);
    }
    lease
}

/// A fleet whose agents have these notes and leases on their memories; none, and
/// said so, where there are no leases.
fn leased(root: &Path, agents: &[&str]) -> Option<(Fleet, Vec<Lease>)> {
    let fleet = Fleet::new(root, &root.join("archives"), agents);
    let mut leases = Vec::new();
    for agent in agents {
        fs::write(fleet.memory(agent), format!("{BASELINE}- note\n")).unwrap();
        match take(&fleet.memory(agent)) {
            Ok(lease) => leases.push(lease),
            Err(error) => {
                println!("skipped: no leases here: {error}");
                return None;
            }
        }
    }
    Some((fleet, leases))
}

fn gets_around_nothing(answer: Answer) {
    let (_temporary, root) = ground(false);
    let Some((fleet, mut leases)) = leased(&root, &["scout"]) else {
        return;
    };
    let memory = fleet.memory("scout");
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
    let mut running = Running::on(&fleet, &["reset", "scout"]);
    let mut dodges = 0;
    while !running.has_ended() {
        match answer {
            Answer::Keeps => {}
            Answer::Renews => drop(leases[0].renew()),
            Answer::Dodges if dodges < 100 && leases[dodges].is_wanted() => {
                dodges += 1;
                let text = format!("{BASELINE}- note {dodges}\n");
                let other = fleet.folder("scout").join("other");
                fs::write(&other, &text).unwrap();
                leases.push(take(&other).unwrap());
                // From the moment of its reset on the memory is the baseline.
                if fs::metadata(&memory).unwrap().len() == BASELINE.len() as u64 {
                    fs::remove_file(&other).unwrap();
                } else {
                    fs::rename(&other, &memory).unwrap();
                    before = text;
                }
            }
            Answer::Dodges => {}
        }
        thread::yield_now();
    }
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{answer:?}: {ended:?}");
    if answer == Answer::Dodges {
        // The last one may have come right behind the reset.
        assert!(dodges > 0);
    } else {
        assert_eq!(fs::read_to_string(&memory).unwrap(), BASELINE);
        assert_eq!(looks(), looked, "owner and mode stay");
    }
    // What was displaced stays beside it until the lease is over.
    // Nobody opens it meanwhile, which would take 45 seconds.
    let beside = fs::read_dir(fleet.folder("scout")).unwrap().count();
    let left = (beside, fleet.pending().len());
    // Whoever takes another one is without any for an instant, in which it may have
    // been settled.
    let over = left == (1, 0) && answer != Answer::Keeps;
    assert!(left == (2, 1) || over, "{answer:?}: {left:?} {ended:?}");
    drop(leases);
    let again = Running::on(&fleet, &["reset", "scout"]).end();
    assert_eq!(again.code, Some(0), "{again:?}");
    assert_eq!(fs::read_to_string(&memory).unwrap(), BASELINE);
    assert!(fleet.litter("scout").is_empty(), "{again:?}");
    assert!(fleet.pending().is_empty());
    if answer != Answer::Dodges {
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
fn an_agent_with_a_lease_does_not_get_around_its_reset() {
    let _alone = alone();
    for answer in [Answer::Keeps, Answer::Renews, Answer::Dodges] {
        gets_around_nothing(answer);
    }
}

#[test]
fn agents_with_leases_hold_up_nobody_else() {
    let _alone = alone();
    let (_temporary, root) = ground(false);
    let agents = ["a1", "a2", "a3", "b1", "b2"];
    let Some((fleet, mut leases)) = leased(&root, &agents) else {
        return;
    };
    // Those of the last two are given back.
    leases.truncate(3);
    let ended = Running::on(&fleet, &["reset", "--all"]).end();
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
        assert_eq!(fs::read_to_string(fleet.memory(late)).unwrap(), BASELINE);
    }
}
