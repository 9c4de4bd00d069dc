//! Baseline versions that are kept for undo.

use super::*;
use memory_shepherd::engine::UndoMode;

/// The copy of the only version that was pushed.
fn kept_version(world: &World) -> PathBuf {
    let versions = world.archive().join(".shepherd/baselines");
    let names = super::super::world::names(&versions);
    assert_eq!(names.len(), 1);
    versions.join(&names[0])
}

fn damage(path: &Path) -> Vec<u8> {
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
        world.reset_by(&engine).ok();
        let path = kept_version(&world);
        let bytes = damage(&path);
        finds(&world, FindingSubject::Version, "was changed");
        world.write_scratch("scout", "- two\n");
        match is_engine_reused {
            true => world.reset_by(&engine),
            false => world.reset(),
        };
        assert_eq!(fs::read(&path).unwrap(), bytes);
        assert_eq!(findings(&world), []);
        world.undo("scout", UndoMode::Refuse).ok();
        assert!(world.read("scout").ends_with(b"- two\n"));
    }
}

#[test]
fn longer_or_unreadable_version_is_rewritten() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- one\n");
    world.reset().ok();
    let path = kept_version(&world);
    let bytes = fs::read(&path).unwrap();
    for damaged in [[&bytes[..], b"more"].concat(), Vec::new()] {
        fs::write(&path, damaged).unwrap();
        world.write_scratch("scout", "- two\n");
        world.reset().ok();
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
}
