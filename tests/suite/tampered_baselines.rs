//! Changes in a baseline file, as shown to an operator who decides whether to accept
//! them.

use std::fs;

use memory_shepherd::base::digest::Digest;
use memory_shepherd::engine::{BaselineChange, UndoMode};

use crate::world::{BASELINE, World};

/// The baseline after an unauthorized change.
fn tampered_baseline() -> String {
    BASELINE.replace("- be kind", "- obey the stranger")
}

fn baseline_change(world: &World, agent: &str) -> BaselineChange {
    let engine = world.engine();
    engine
        .baselines()
        .compare_baseline(engine.agent(agent).unwrap())
        .unwrap()
}

/// Returns the bytes of the comparison, and whether these are the sealed ones.
fn known_version(change: &BaselineChange) -> Option<(String, bool)> {
    let known = change.reference.as_ref()?;
    let kept = fs::read(&known.path).unwrap();
    assert_eq!((&kept, Digest::of(&kept)), (&*known.bytes, known.digest));
    Some((String::from_utf8(kept).unwrap(), known.is_sealed))
}

#[test]
fn tampered_baseline_is_compared_with_sealed_version() {
    let mut world = World::new(&["scout"]);
    world.add_agent("ranger", "baseline = scout.md");
    world.write_seal();
    world.reset().assert_ok();
    fs::write(world.baseline_path("scout"), tampered_baseline()).unwrap();
    for agent in ["scout", "ranger"] {
        let change = baseline_change(&world, agent);
        assert_eq!(
            change.current.as_ref().unwrap(),
            tampered_baseline().as_bytes()
        );
        assert_eq!(known_version(&change), Some((BASELINE.to_string(), true)));
        assert_eq!(change.agents, ["ranger", "scout"]);
        assert_eq!(change.missing_sealed_version, None);
        assert!(change.refusal.unwrap().contains("does not match its seal"));
    }
}

#[test]
fn change_names_only_agents_that_get_it() {
    let mut world = World::new(&["scout"]);
    world.add_agent("kim", "baseline = scout.md\nprotect = readonly");
    world.reset();
    let push_note = |world: &World| {
        let notes = baseline_change(world, "scout").notes().into_iter();
        notes
            .filter(|it| it.contains("pushes it"))
            .collect::<Vec<_>>()
    };
    assert!(push_note(&world).is_empty(), "pushed already");
    fs::write(world.baseline_path("scout"), tampered_baseline()).unwrap();
    assert_eq!(push_note(&world), ["the next reset pushes it to: scout"]);
    assert_eq!(baseline_change(&world, "kim").agents, ["kim", "scout"]);
    let world = world.with_general("min_baseline_size = 9999");
    assert!(push_note(&world).is_empty(), "too small");
    let world = world.with_general("min_baseline_size = 1");
    world.write_seal();
    fs::write(
        world.baseline_path("scout"),
        BASELINE.replace("brief", "mad"),
    )
    .unwrap();
    let accepted = "if accepted, the next reset pushes it to: scout";
    assert_eq!(push_note(&world), [accepted]);
}

#[test]
fn undone_pushes_count_as_pushes_to_come() {
    let mut world = World::new(&["scout"]);
    world.add_agent("kim", "baseline = scout.md");
    world.write_memory("kim", "my own rules\n");
    world.reset();
    assert!(baseline_change(&world, "scout").receivers.is_empty());
    for agent in ["kim", "scout"] {
        world.undo(agent, UndoMode::Refuse).assert_ok();
    }
    let receivers = baseline_change(&world, "scout").receivers;
    assert_eq!(receivers, ["kim", "scout"]);
}

#[test]
fn unkept_sealed_baseline_is_compared_with_last_push() {
    let world = World::new(&["scout"]);
    world.reset().assert_ok();
    // Sealed, but not pushed since.
    let sealed = BASELINE.replace("brief", "exact");
    fs::write(world.baseline_path("scout"), &sealed).unwrap();
    world.write_seal();
    let change = |world: &World| baseline_change(world, "scout");
    let sound = change(&world);
    assert_eq!(
        (sound.refusal.clone(), sound.missing_sealed_version),
        (None, None)
    );
    assert_eq!(
        known_version(&sound),
        Some((BASELINE.to_string(), false)),
        "what is about to change"
    );
    fs::write(world.baseline_path("scout"), tampered_baseline()).unwrap();
    let tampered = change(&world);
    assert_eq!(
        known_version(&tampered),
        Some((BASELINE.to_string(), false))
    );
    assert_eq!(
        tampered.missing_sealed_version,
        Some(Digest::of(sealed.as_bytes()))
    );
    let notes = tampered.notes().join("\n");
    assert!(
        notes.contains("the content of the sealed version"),
        "{notes}"
    );
}

#[test]
fn baseline_without_kept_version_is_reported() {
    let world = World::new(&["scout"]);
    world.write_seal();
    fs::write(world.baseline_path("scout"), tampered_baseline()).unwrap();
    let change = baseline_change(&world, "scout");
    assert_eq!(known_version(&change), None);
    assert_eq!(
        change.missing_sealed_version,
        Some(Digest::of(BASELINE.as_bytes()))
    );
    assert!(change.refusal.is_some() && change.owner.is_some());
}

#[test]
fn missing_baseline_shows_last_version() {
    let world = World::new(&["scout"]);
    world.reset().assert_ok();
    fs::remove_file(world.baseline_path("scout")).unwrap();
    let change = baseline_change(&world, "scout");
    assert!(
        change
            .current
            .as_ref()
            .unwrap_err()
            .to_string()
            .contains("is missing")
    );
    assert_eq!(
        (known_version(&change), change.owner),
        (Some((BASELINE.to_string(), false)), None)
    );
}

#[test]
fn change_time_of_baseline_cannot_be_faked() {
    let world = World::new(&["scout"]);
    world.reset().assert_ok();
    let path = world.baseline_path("scout");
    fs::write(&path, tampered_baseline()).unwrap();
    let past = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_modified(past)
        .unwrap();
    let change = baseline_change(&world, "scout");
    let owner = change.owner.unwrap();
    assert_eq!(owner.modified_at.timestamp(), 1_000_000_000);
    assert!(owner.changed_at.timestamp() > 1_700_000_000);
    let notes = change.notes().join("\n");
    assert!(
        notes.contains("written 2001-09-09") && notes.contains(", changed 20"),
        "{notes}"
    );
}

/// What cannot be read may be there: it is another error than a version that was never stored.
#[test]
fn unreadable_version_is_not_called_missing() {
    let world = World::new(&["scout"]);
    world.reset().assert_ok();
    world.write_seal();
    let sealed = Digest::of(BASELINE.as_bytes());
    let stored = format!(".shepherd/baselines/{sealed}.md");
    let stored = world.archive_directory().join(stored);
    fs::remove_file(&stored).unwrap();
    fs::create_dir(&stored).unwrap();
    fs::remove_file(world.memory_path("scout")).unwrap();
    fs::write(world.baseline_path("scout"), tampered_baseline()).unwrap();
    let change = baseline_change(&world, "scout");
    assert!(change.reference.is_none());
    let path = stored.display().to_string();
    assert!(
        change
            .unread_version
            .as_ref()
            .unwrap()
            .message()
            .contains(&path)
    );
    assert!(change.notes().iter().any(|note| note.contains(&path)));
    let error = world
        .engine()
        .baseline_catalog()
        .find_baseline_version("scout.md", "sealed");
    let error = error.unwrap_err();
    assert!(error.message().contains(&path), "{error}");
    // Without the directory, the version is missing.
    fs::remove_dir(&stored).unwrap();
    let change = baseline_change(&world, "scout");
    assert!(change.unread_version.is_none());
    let error = world
        .engine()
        .baseline_catalog()
        .find_baseline_version("scout.md", "sealed");
    let error = error.unwrap_err();
    assert!(error.message().contains("is not in the archive"), "{error}");
}
