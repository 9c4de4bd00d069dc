//! Baseline versions that the archive keeps for undo.

use super::*;
use memory_shepherd::engine::UndoMode;

/// Returns the path of the copy of the only version that was pushed.
fn only_version_path(world: &World) -> PathBuf {
    let versions = world.archive_directory().join(".shepherd/baselines");
    let names = super::super::world::sorted_names(&versions);
    assert_eq!(names.len(), 1);
    versions.join(&names[0])
}

fn damage_file(path: &Path) -> Vec<u8> {
    let bytes = fs::read(path).unwrap();
    let mut damaged = bytes.clone();
    damaged[3] ^= 1;
    fs::write(path, damaged).unwrap();
    bytes
}

#[test]
fn damaged_version_of_the_same_length_is_rewritten() {
    for is_engine_reused in [false, true] {
        let world = World::new(&["ranger", "scout"]);
        world.write_scratch("scout", "- one\n");
        let engine = world.engine();
        world.reset_with_engine(&engine).assert_ok();
        let path = only_version_path(&world);
        let bytes = damage_file(&path);
        assert_single_finding(&world, FindingSubject::Version, "was changed");
        world.write_scratch("scout", "- two\n");
        match is_engine_reused {
            true => world.reset_with_engine(&engine),
            false => world.reset(),
        };
        assert_eq!(fs::read(&path).unwrap(), bytes);
        assert_eq!(findings(&world), []);
        world.undo("scout", UndoMode::Refuse).assert_ok();
        assert!(world.read_memory("scout").ends_with(b"- two\n"));
    }
}

#[test]
fn longer_or_unreadable_version_is_rewritten() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- one\n");
    world.reset().assert_ok();
    let path = only_version_path(&world);
    let bytes = fs::read(&path).unwrap();
    for damaged in [[&bytes[..], b"more"].concat(), Vec::new()] {
        fs::write(&path, damaged).unwrap();
        world.write_scratch("scout", "- two\n");
        world.reset().assert_ok();
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
}
