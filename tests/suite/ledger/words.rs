//! The words of records, transaction records and JSON documents, which every version has to read.

use std::fs;

use memory_shepherd::archive::EntryKind;
use memory_shepherd::base::digest::Digest;
use memory_shepherd::base::error::ErrorKind;
use memory_shepherd::engine::{
    FileState, Operation, Outcome, Protection, ScratchSelection, State, Trigger, UndoMode,
};
use memory_shepherd::transport::{SpecialFile, SwapMethod};
use serde::Serialize;
use serde_json::{Value, json};

use super::ledger_path;
use crate::world::World;

fn words<T: Serialize>(values: &[T]) -> Vec<Value> {
    let values = values.iter();
    values.map(|it| serde_json::to_value(it).unwrap()).collect()
}

#[test]
fn words_of_records_never_change() {
    let entry_kinds = [
        "scratch",
        "full-backup",
        "late",
        "appended",
        "odd",
        "redacted",
    ];
    assert_eq!(words(&EntryKind::ALL), entry_kinds);
    let special = [
        SpecialFile::Symlink(b"x".to_vec()),
        SpecialFile::Directory,
        SpecialFile::Fifo,
        SpecialFile::Device,
        SpecialFile::Socket,
        SpecialFile::ForeignHardLink(7),
        SpecialFile::Leased,
    ];
    assert_eq!(
        words(&special),
        [
            json!({"symlink": [120]}),
            json!("directory"),
            json!("fifo"),
            json!("device"),
            json!("socket"),
            json!({"foreign_link": 7}),
            json!("leased"),
        ]
    );
    let sha256 = Digest::of(b"");
    let file = FileState::File {
        sha256,
        size: 1,
        lines: 2,
    };
    let states = [
        FileState::Absent,
        file,
        FileState::Special(SpecialFile::Fifo),
    ];
    assert_eq!(
        words(&states),
        [
            json!("absent"),
            json!({"file": {"sha256": sha256, "size": 1, "lines": 2}}),
            json!({"odd": "fifo"}),
        ]
    );
    let operations = [
        Operation::Reset,
        Operation::Undo,
        Operation::Repair,
        Operation::Begin,
        Operation::Retire,
        Operation::Pin,
        Operation::Unpin,
        Operation::Push,
        Operation::Seal,
        Operation::Save,
        Operation::Restore,
        Operation::Guard,
    ];
    let names = [
        "reset", "undo", "repair", "begin", "retire", "pin", "unpin", "push", "seal", "save",
        "restore", "guard",
    ];
    assert_eq!(words(&operations), names);
    let outcomes = [
        Outcome::Ok,
        Outcome::Unchanged,
        Outcome::Failed,
        Outcome::Refused,
        Outcome::NotStarted,
    ];
    let names = ["ok", "unchanged", "failed", "refused", "not_started"];
    assert_eq!(words(&outcomes), names);
    let triggers = [Trigger::Console, Trigger::Cli, Trigger::Timer];
    assert_eq!(words(&triggers), ["console", "cli", "timer"]);
    let methods = [
        SwapMethod::Create,
        SwapMethod::Exchange,
        SwapMethod::TakeAway,
        SwapMethod::Remove,
        SwapMethod::InPlace,
    ];
    let names = ["create", "exchange", "take-away", "remove", "in-place"];
    assert_eq!(words(&methods), names);
    let protections = [Protection::None, Protection::Typed, Protection::ReadOnly];
    assert_eq!(words(&protections), ["none", "typed", "readonly"]);
    let modes = [UndoMode::Refuse, UndoMode::Append, UndoMode::Overwrite];
    assert_eq!(words(&modes), ["refuse", "append", "overwrite"]);
    assert_eq!(words(&[State::HostKey, State::NoSep]), ["HOSTKEY", "NOSEP"]);
    let kept: [ScratchSelection; 3] = ["all", "none", "3-5,9"].map(|it| it.parse().unwrap());
    assert_eq!(words(&kept), ["all", "none", "3-5,9"]);
}

/// A record with a word that this version does not know is neither cut off nor passed over.
#[test]
fn record_of_another_version_is_kept() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- one\n");
    assert_eq!(world.reset().report.worst_kind(), None);
    let path = ledger_path(&world);
    let ledger = fs::read_to_string(&path).unwrap();
    let changed = ledger.replace("\"trigger\":\"cli\"", "\"trigger\":\"later\"");
    assert_ne!(changed, ledger);
    fs::write(&path, &changed).unwrap();
    // Without the log of heads, nothing else says that the line was complete.
    fs::remove_file(world.archive_directory().join("reset.log")).unwrap();
    world.write_scratch("scout", "- two\n");
    let ran = world.reset();
    assert_eq!(
        ran.report.worst_kind(),
        Some(ErrorKind::Integrity),
        "{:?}",
        ran.report
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), changed);
}
