//! The archive under the hand: entries in other spellings, and who else may open its
//! files.

use std::fs;

use super::fixture::BASELINE;
use super::mounts::{Mount, may_mount};
use super::scene::{Had, Scene, is_ok};

#[test]
fn pin_through_a_bind_mount_is_of_the_entry() {
    if !may_mount("archive::pin_through_a_bind_mount_is_of_the_entry") {
        return;
    }
    let scene = Scene::new(&[("scout", Had::scratch("- note\n"))]);
    is_ok(&scene.fleet.run(&["reset", "--all"]));
    let entries = scene.fleet.entries("scout");
    let (name, _) = entries.first_key_value().unwrap();
    let at = scene.fleet.root.join("elsewhere");
    let archive = scene.fleet.archive.to_str().unwrap();
    let _mount = Mount::new(&["--bind", archive], &at).unwrap();
    let typed = at.join("scout").join(name);
    is_ok(
        &scene
            .fleet
            .run(&["archive", "pin", typed.to_str().unwrap()]),
    );
    let pins = fs::read_to_string(scene.fleet.archive.join(".shepherd/pins")).unwrap();
    assert_eq!(pins, format!("scout/{name}\n"));
    assert_eq!(
        fs::read(scene.fleet.memory("scout")).unwrap(),
        BASELINE.as_bytes()
    );
}
