//! What a step of several files needs of a transport: named staged files, swaps that a recovery
//! begins, and directories.

use memory_shepherd::transport::{
    InstalledMemory, InterruptedRun, MemoryDirectory, MemoryObject, SettleOutcome, SpecialFile,
    SwapMethod, SwapProgress,
};

use super::{
    STAGED_NAME, TransportFixture, commit_staged, interrupted_run, read_file, settle_fully,
    stage_file,
};

/// Settles a displaced file that no process has open: on a host the first attempts only begin to
/// watch it.
fn settle_to_end(fixture: &dyn TransportFixture, directory: &dyn MemoryDirectory, name: &str) {
    for _ in 0..4 {
        if settle_fully(fixture, directory, name).0 != SettleOutcome::StillOpen {
            return;
        }
    }
    panic!("{name} stays open");
}

/// Recovers a run in the directory, and returns how it replaced the memory. Afterwards, the files
/// that it displaced are settled.
fn recover_and_settle(fixture: &dyn TransportFixture, run: &InterruptedRun) -> Option<SwapMethod> {
    let directory = fixture.open_directory();
    let recovered = directory.recover(run).unwrap().unwrap();
    for name in recovered.displaced {
        settle_to_end(fixture, directory.as_ref(), &name);
    }
    recovered.method
}

fn run_at(progress: SwapProgress) -> InterruptedRun {
    InterruptedRun {
        progress,
        ..interrupted_run(b"new")
    }
}

pub fn named_staged_file_is_committed(fixture: &dyn TransportFixture) {
    fixture.write("MEMORY.md", b"old");
    let directory = fixture.open_directory();
    stage_file(directory.as_ref(), b"new");
    directory.name_staged(STAGED_NAME).unwrap();
    assert_eq!(fixture.bytes("MEMORY.md").unwrap(), b"old");
    let swapped = commit_staged(directory.as_ref()).unwrap();
    assert_eq!(fixture.bytes("MEMORY.md").unwrap(), b"new");
    settle_to_end(fixture, directory.as_ref(), &swapped.displaced[0]);
    assert_eq!(fixture.names(), ["MEMORY.md"]);
}

pub fn decided_swap_is_begun_by_a_recovery(fixture: &dyn TransportFixture) {
    for memory in [Some(b"old"), None] {
        if let Some(bytes) = memory {
            fixture.write("MEMORY.md", bytes);
        }
        let directory = fixture.open_directory();
        stage_file(directory.as_ref(), b"new");
        directory.name_staged(STAGED_NAME).unwrap();
        drop(directory);
        let run = InterruptedRun {
            creates_memory: memory.is_none(),
            ..run_at(SwapProgress::Decided)
        };
        assert!(recover_and_settle(fixture, &run).is_some());
        let directory = fixture.open_directory();
        assert_eq!(read_file(directory.as_ref()), b"new");
        assert_eq!(fixture.names(), ["MEMORY.md"]);
        // The agent removes it.
        let removal = InterruptedRun {
            installed: InstalledMemory::Absent,
            ..run_at(SwapProgress::Decided)
        };
        let removed = recover_and_settle(fixture, &removal);
        assert_eq!(removed, Some(SwapMethod::Remove));
        assert!(fixture.names().is_empty());
    }
}

pub fn swap_that_had_not_begun_is_given_up(fixture: &dyn TransportFixture) {
    fixture.write("MEMORY.md", b"old");
    let directory = fixture.open_directory();
    stage_file(directory.as_ref(), b"new");
    directory.name_staged(STAGED_NAME).unwrap();
    drop(directory);
    // A memory that has the new content by chance is no swap.
    for memory in [b"old", b"new"] {
        fixture.write("MEMORY.md", memory);
        let run = InterruptedRun {
            creates_memory: true,
            ..run_at(SwapProgress::NotBegun)
        };
        assert_eq!(recover_and_settle(fixture, &run), None);
        assert_eq!(fixture.bytes("MEMORY.md").unwrap(), memory);
        assert_eq!(fixture.names(), ["MEMORY.md"]);
    }
}

pub fn directory_is_created_and_removed_while_empty(fixture: &dyn TransportFixture) {
    let directory = fixture.open_directory();
    assert!(directory.create_directory().unwrap());
    assert!(!directory.create_directory().unwrap(), "it is there");
    let object = directory.stat_memory().unwrap();
    assert_eq!(object, MemoryObject::Special(SpecialFile::Directory));
    fixture.write("MEMORY.md/note", b"the agent's");
    assert!(!directory.remove_directory().unwrap());
    assert_eq!(fixture.bytes("MEMORY.md/note").unwrap(), b"the agent's");
    fixture.rename("MEMORY.md/note", "note");
    assert!(directory.remove_directory().unwrap());
    assert!(directory.remove_directory().unwrap(), "it is gone");
    // A file is no directory.
    fixture.rename("note", "MEMORY.md");
    assert!(directory.create_directory().is_err());
    assert!(!directory.remove_directory().unwrap());
    assert_eq!(fixture.bytes("MEMORY.md").unwrap(), b"the agent's");
}
