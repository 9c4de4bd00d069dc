//! Exports of entries.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::archive_search::{search, write_entry};
use super::world::World;

#[test]
fn exported_entries_fit_their_checksums() {
    let world = World::new(&["scout"]);
    write_entry(&world, "scout/2025-01-02_0300.md", "walrus\n");
    write_entry(&world, "te am\\x/agent/2025-01-02_0300.md", "narwhal\n");
    let engine = world.engine();
    let entries: Vec<_> = search(&engine, "in:archive").entries;
    let entries: Vec<_> = entries.into_iter().map(|found| found.entry).collect();
    let to = world.root.join("export");
    let report = engine.entries().export_entries(&entries, &to).unwrap();
    assert_eq!((report.entries.len(), report.bytes), (2, 15));
    let check = std::process::Command::new("sha256sum")
        .args(["--check", "--strict", "SHA256SUMS"])
        .current_dir(&to)
        .output()
        .unwrap();
    assert!(check.status.success(), "{check:?}");
    let copied = fs::read(to.join("te am\\x/agent/2025-01-02_0300.md")).unwrap();
    assert_eq!(copied, b"narwhal\n");
    // Nothing is overwritten, and no copy becomes an entry.
    assert!(engine.entries().export_entries(&entries, &to).is_err());
    let inside = world.archive_directory().join("copy");
    assert!(engine.entries().export_entries(&entries, &inside).is_err());
    assert!(!inside.exists());
    let around = world.root.join("new/../archives/copy");
    assert!(engine.entries().export_entries(&entries, &around).is_err());
    assert_eq!(search(&engine, "in:archive").entries.len(), 2);
}

#[test]
fn export_into_a_directory_of_others_is_refused() {
    let world = World::new(&["scout"]);
    write_entry(&world, "scout/2025-01-02_0300.md", "walrus\n");
    let engine = world.engine();
    let found = search(&engine, "in:archive").entries;
    let entries: Vec<_> = found.into_iter().map(|found| found.entry).collect();
    let to = world.root.join("export");
    fs::create_dir(&to).unwrap();
    let refused = |mode| {
        fs::set_permissions(&to, fs::Permissions::from_mode(mode)).unwrap();
        let error = engine.entries().export_entries(&entries, &to).unwrap_err();
        assert_eq!(fs::read_dir(&to).unwrap().count(), 0);
        error.message().to_string()
    };
    for mode in [0o777, 0o770, 0o702] {
        let why = refused(mode);
        assert!(why.contains("can be written by other users"), "{why}");
    }
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&to, Some(1), None).unwrap();
        let why = refused(0o700);
        assert!(why.contains("belongs to another user"), "{why}");
        std::os::unix::fs::chown(&to, Some(0), None).unwrap();
    }
    // An empty directory that is the operator's alone.
    fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).unwrap();
    let report = engine.entries().export_entries(&entries, &to).unwrap();
    assert_eq!(report.entries.len(), 1);
}

#[test]
fn single_entry_is_exported_to_a_new_file_only() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let world = World::new(&["scout"]);
    let entry = Path::new("scout/2025-01-02_0300.md");
    let source = write_entry(&world, "scout/2025-01-02_0300.md", "a walrus\n");
    let engine = world.engine();
    let outside = world.archive_directory().parent().unwrap().to_path_buf();
    let to = outside.join("copy.md");
    let (digest, bytes) = engine.entries().export_entry(entry, &to).unwrap();
    assert_eq!(
        (bytes, digest),
        (9, memory_shepherd::base::digest::Digest::of(b"a walrus\n"))
    );
    assert_eq!(fs::read(&to).unwrap(), b"a walrus\n");
    let meta = fs::metadata(&to).unwrap();
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    assert_eq!(meta.mtime(), fs::metadata(&source).unwrap().mtime());
    // Neither over a file or a link, nor into the archive by any path.
    fs::write(&to, "mine\n").unwrap();
    assert!(
        engine
            .entries()
            .export_entry(entry, &to)
            .unwrap_err()
            .to_string()
            .contains("exists")
    );
    assert_eq!(fs::read(&to).unwrap(), b"mine\n");
    let dangling = outside.join("dangling.md");
    symlink(outside.join("nowhere.md"), &dangling).unwrap();
    assert!(engine.entries().export_entry(entry, &dangling).is_err());
    assert!(!outside.join("nowhere.md").exists());
    let alias = outside.join("alias");
    symlink(world.archive_directory(), &alias).unwrap();
    for inside in [
        world.archive_directory().join("scout/2025-01-03_0300.md"),
        world.archive_directory().join("copy.md"),
        alias.join("copy.md"),
        outside.join("other/../alias/scout/copy.md"),
    ] {
        let error = engine
            .entries()
            .export_entry(entry, &inside)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("in the archive") || error.contains("no such file"),
            "{error}"
        );
    }
    assert_eq!(world.entry_names("scout"), ["2025-01-02_0300.md"]);
    // An entry that is gone leaves no file.
    let none = outside.join("none.md");
    assert!(
        engine
            .entries()
            .export_entry(Path::new("scout/2025-01-09_0300.md"), &none)
            .is_err()
    );
    assert!(
        engine
            .entries()
            .export_entry(Path::new("../agents/scout/MEMORY.md"), &none)
            .is_err()
    );
    assert!(!none.exists());
}

#[test]
fn swapped_directory_gets_no_exported_entry() {
    let world = World::new(&["scout"]);
    for day in 10..30 {
        write_entry(&world, &format!("scout/2025-01-{day}_0300.md"), "walrus\n");
    }
    let engine = world.engine();
    let found = search(&engine, "in:archive").entries;
    let entries: Vec<_> = found.into_iter().map(|found| found.entry).collect();
    let at = |name: &str| world.root.join(name);
    fs::create_dir_all(at("elsewhere/scout")).unwrap();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Another user may own the directory around it.
        let racer = scope.spawn(|| {
            let mut swaps = 0;
            while !is_done.load(Ordering::Relaxed) {
                if fs::rename(at("out"), at(&format!("aside-{swaps}"))).is_ok() {
                    swaps += 1;
                    let _ = symlink("elsewhere", at("out"));
                }
            }
            swaps
        });
        for _ in 0..20 {
            let _ = engine.entries().export_entries(&entries, &at("out"));
            // The racer may put it back at any moment.
            let _ = fs::remove_file(at("out"));
        }
        is_done.store(true, Ordering::Relaxed);
        racer.join().unwrap()
    });
    let landed = fs::read_dir(at("elsewhere/scout")).unwrap().count();
    assert_eq!(
        (landed, fs::read_dir(at("elsewhere")).unwrap().count()),
        (0, 1)
    );
}
