//! Power cuts. Memories and archive are on ext4 in image files. At each call that changes something
//! the program is stopped, and the images are copied without unmounting and without syncing: data
//! that the program did not flush is not in the copy. Each copy is mounted like a disk after a
//! power cut, and must hold everything that it should.
//!
//! Timed commits of the journal are disabled, so that only the program's own flushes reach the
//! disk, and so are the flushes by which ext4 helps programs that rename without syncing. The tests
//! cannot show writes that a drive acknowledged and reordered in its own cache.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::compaction;
use super::crash::{PUSHED_NOTES, PUSHES, assert_no_failures};
use super::edits;
use super::file_edits::{self, check_after_edit};
use super::fixture::{BASELINE, has_tool};
use super::full_harness::is_full_harness;
use super::mounts::{Mount, may_mount};
use super::processes::test_directory;
use super::quarantine;
use super::scene::{CheckResult, InitialMemory, RESET_ALL, Scene, twelve_agents};
use super::seal;
use super::strace::{
    self, SteppedProgram, SystemCall, can_trace, injection_options, sample, sample_if_quick,
};

/// Upper bound of the time between two calls of the program.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Size of each disk; copies are sparse.
const DISK_BYTES: u64 = 8 << 20;

/// Setup of the disks and their content.
#[derive(Clone)]
struct PowerSetup {
    cast: Vec<(&'static str, InitialMemory)>,
    /// Whether the archive has a disk of its own.
    has_two_disks: bool,
    /// The journal's mode.
    data_mode: &'static str,
    /// Whether the disk gets another device number afterwards, as it may after a reboot.
    is_renumbered: bool,
    /// What happened before the run.
    prepare: fn(&mut Scene),
    /// Arguments of the run.
    words: &'static [&'static str],
    /// Checks the disks after the cut.
    check: fn(&Scene) -> CheckResult,
}

impl PowerSetup {
    fn new(cast: Vec<(&'static str, InitialMemory)>) -> PowerSetup {
        PowerSetup {
            cast,
            has_two_disks: false,
            data_mode: "ordered",
            is_renumbered: false,
            prepare: |_| {},
            words: RESET_ALL,
            check: Scene::check_all,
        }
    }
}

/// Mounted disks with a fleet on them.
struct DiskBench {
    scene: Scene,
    mounts: Vec<Mount>,
    disks: Vec<PathBuf>,
    places: Vec<PathBuf>,
    /// The disks' devices; while they are open, the kernel keeps their identity.
    devices: Vec<(PathBuf, File)>,
    setup: PowerSetup,
    directory: TempDir,
}

/// Content of the disks at one instant.
struct DiskSnapshot {
    after: String,
    disks: Vec<PathBuf>,
}

impl DiskBench {
    fn new(setup: &PowerSetup) -> DiskBench {
        let (directory, root) = test_directory(true);
        let count = if setup.has_two_disks { 2 } else { 1 };
        let disks: Vec<PathBuf> = (0..count).map(|i| root.join(format!("disk{i}"))).collect();
        let places: Vec<PathBuf> = (0..count).map(|i| root.join(format!("at{i}"))).collect();
        disks.iter().for_each(|disk| format_disk(disk));
        let mounts = mount_disks(&disks, &places, setup.data_mode);
        let fleet = places[0].join("fleet");
        let archive = places.last().unwrap().join("archives");
        let mut scene = Scene::new_at(&fleet, &archive, &root.join("log"), &setup.cast);
        (setup.prepare)(&mut scene);
        let bench = DiskBench {
            scene,
            devices: places.iter().map(|place| mounted_device(place)).collect(),
            mounts,
            disks,
            places,
            setup: setup.clone(),
            directory,
        };
        // The initial content is on the disk.
        for place in &bench.places {
            rustix::fs::syncfs(File::open(place).unwrap()).unwrap();
        }
        bench
    }

    /// Returns the calls of such a run that change something.
    fn changing_calls(&self) -> Vec<SystemCall> {
        let (fleet, log) = (&self.scene.fleet, &self.scene.trace_log);
        let (output, mut calls) = strace::record_calls(fleet, log, self.setup.words);
        // The guard ends with 1 when it has restored something.
        assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
        calls.retain(SystemCall::changes);
        calls
    }

    /// Returns the names of those calls.
    fn call_names(&self) -> BTreeSet<String> {
        let names = self.changing_calls().into_iter().map(|call| call.name);
        // The other calls write nothing to the disk, and would only take time.
        names
            .filter(|name| is_full_harness() || name.contains("sync"))
            .collect()
    }

    /// Runs the program and copies the disks behind each of these calls, keeping equal copies once.
    /// Also returns the number of calls.
    fn snapshot_after_calls(
        &self,
        names: &BTreeSet<String>,
        words: &[&str],
        shelf: &str,
    ) -> (Vec<DiskSnapshot>, usize) {
        let shelf = self.directory.path().join(shelf);
        fs::create_dir(&shelf).unwrap();
        let traced: Vec<&str> = names.iter().map(String::as_str).collect();
        let set = traced.join(",");
        let options = [
            format!("--trace={set}"),
            format!("--inject={set}:signal=STOP"),
        ];
        let mut run = SteppedProgram::start(&self.scene.fleet, &options, words);
        let mut shots = Vec::new();
        let mut last = None;
        let mut stops = 0;
        while let Some(after) = run.wait_for_stop() {
            stops += 1;
            let now = self.written();
            if last.as_ref() != Some(&now) {
                let name = |i| shelf.join(format!("{stops}-{i}"));
                let disks: Vec<PathBuf> = (0..self.disks.len()).map(name).collect();
                last = Some(self.copy_to(&disks));
                shots.push(DiskSnapshot { after, disks });
            }
            run.resume();
        }
        (shots, stops)
    }

    /// Copies the disks at one instant; returns how much was written until then.
    fn copy_to(&self, copies: &[PathBuf]) -> Vec<String> {
        for _ in 0..1000 {
            let before = self.written();
            let pairs = self.disks.iter().zip(copies);
            pairs.for_each(|(disk, to)| copy_sparse(disk, to));
            // The file system itself may have written during the copy.
            if before == self.written() {
                return before;
            }
        }
        panic!("the disks are written to all the time");
    }

    /// Returns how much was written to each disk, once no write is in flight.
    fn written(&self) -> Vec<String> {
        self.places.iter().map(|place| written(place)).collect()
    }

    /// Replaces the disks by a copy, as after a reboot.
    fn reboot(&mut self, shot: &DiskSnapshot) {
        if self.setup.is_renumbered {
            self.reboot_renumbered(shot);
        } else {
            self.reboot_same_numbers(shot);
        }
    }

    /// Keeps the device numbers.
    fn reboot_same_numbers(&mut self, shot: &DiskSnapshot) {
        self.mounts.clear();
        let devices = &self.devices;
        for (at, (disk, copy)) in self.disks.iter().zip(&shot.disks).enumerate() {
            copy_sparse(copy, disk);
            // Drops the kernel's cache of the old content.
            let status = Command::new("blockdev")
                .arg("--flushbufs")
                .arg(&devices[at].0)
                .status();
            assert!(status.unwrap().success());
            let options = mount_options(self.setup.data_mode);
            let words = [
                "-t",
                "ext4",
                "-o",
                &options,
                devices[at].0.to_str().unwrap(),
            ];
            self.mounts
                .push(Mount::new(&words, &self.places[at]).unwrap());
        }
    }

    /// Mounts on top of the old disks, which keep their device numbers.
    fn reboot_renumbered(&mut self, shot: &DiskSnapshot) {
        let old = std::mem::take(&mut self.mounts);
        for (disk, copy) in self.disks.iter().zip(&shot.disks) {
            // A new file: the old one is still in use below.
            fs::remove_file(disk).unwrap();
            copy_sparse(copy, disk);
        }
        self.mounts = mount_disks(&self.disks, &self.places, self.setup.data_mode);
        self.mounts.extend(old);
    }
}

impl Drop for DiskBench {
    fn drop(&mut self) {
        // Unmounts in reverse order of mounting.
        while !self.mounts.is_empty() {
            self.mounts.remove(0);
        }
    }
}

fn format_disk(disk: &Path) {
    File::create(disk).unwrap().set_len(DISK_BYTES).unwrap();
    let output = Command::new("mkfs.ext4")
        .args(["-q", "-F", "-b", "1024", "-J", "size=2", "-N", "512"])
        .args(["-E", "lazy_itable_init=0,nodiscard"])
        .arg(disk)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn mount_options(data: &str) -> String {
    format!("commit=600,noauto_da_alloc,data={data}")
}

/// Returns the device mounted at this path, and its open file.
fn mounted_device(place: &Path) -> (PathBuf, File) {
    let minor = rustix::fs::minor(fs::metadata(place).unwrap().dev());
    let path = PathBuf::from(format!("/dev/loop{minor}"));
    let file = File::open(&path).unwrap();
    (path, file)
}

fn mount_disks(disks: &[PathBuf], places: &[PathBuf], data: &str) -> Vec<Mount> {
    let options = format!("loop,{}", mount_options(data));
    let mount = |(disk, place): (&PathBuf, &PathBuf)| {
        let words = ["-t", "ext4", "-o", &options, disk.to_str().unwrap()];
        Mount::new(&words, place).unwrap()
    };
    disks.iter().zip(places).map(mount).collect()
}

/// Returns how much was written to the disk mounted at this path, by the device's counters.
fn written(place: &Path) -> String {
    let device = fs::metadata(place).unwrap().dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let path = format!("/sys/dev/block/{major}:{minor}/stat");
    let end = Instant::now() + CALL_TIMEOUT;
    loop {
        let text = fs::read_to_string(&path).unwrap();
        let fields: Vec<&str> = text.split_whitespace().collect();
        // Requests that were written, and those in flight.
        if fields[8] == "0" {
            return format!("{} {}", fields[4], fields[6]);
        }
        assert!(Instant::now() < end, "writes stay in flight: {text}");
    }
}

/// Copies a file, with holes for blocks of zeros.
fn copy_sparse(from: &Path, to: &Path) {
    let (mut from, mut file) = (File::open(from).unwrap(), File::create(to).unwrap());
    file.set_len(DISK_BYTES).unwrap();
    let mut block = [0; 4096];
    for at in (0..DISK_BYTES).step_by(block.len()) {
        from.read_exact(&mut block).unwrap();
        if block != [0; 4096] {
            file.seek(SeekFrom::Start(at)).unwrap();
            file.write_all(&block).unwrap();
        }
    }
}

/// Cuts the power behind every call. Without the full harness, checks at most `most` of the states
/// that differ.
fn cut_at_every_call(name: &str, setup: &PowerSetup, most: usize) {
    let names = DiskBench::new(setup).call_names();
    let mut bench = DiskBench::new(setup);
    let (shots, stops) = bench.snapshot_after_calls(&names, setup.words, "shots");
    assert!(shots.len() > 3, "{name}: nothing was written to the disk");
    let numbers: Vec<usize> = (0..shots.len()).collect();
    let chosen = sample_if_quick(&numbers, most);
    let mut failures = Vec::new();
    for shot in chosen.iter().map(|at| &shots[*at]) {
        bench.reboot(shot);
        if let Err(why) = (setup.check)(&bench.scene) {
            failures.push(format!("cut after {}: {why}", shot.after));
        }
    }
    println!(
        "{name}: cut at {stops} points, {} different disks, {} checked",
        shots.len(),
        chosen.len()
    );
    assert_no_failures(name, &failures);
}

/// Kills the program at a call, and cuts the power at that moment.
fn kill_and_cut(name: &str, setup: &PowerSetup, most: usize) {
    let calls = DiskBench::new(setup).changing_calls();
    let chosen = sample(&calls, most);
    let mut failures = Vec::new();
    for call in &chosen {
        let mut bench = DiskBench::new(setup);
        let options = injection_options(&call.name, "signal=KILL", call.occurrence, false);
        let scene = &bench.scene;
        strace::run_traced(&scene.fleet, &scene.trace_log, &options, setup.words);
        let copy = |at| bench.directory.path().join(format!("copy{at}"));
        let disks: Vec<PathBuf> = (0..bench.disks.len()).map(copy).collect();
        bench.copy_to(&disks);
        let after = call.text.clone();
        bench.reboot(&DiskSnapshot { after, disks });
        if let Err(why) = (setup.check)(&bench.scene) {
            failures.push(format!("killed and cut at {}: {why}", call.text));
        }
    }
    println!("{name}: {} of {} points", chosen.len(), calls.len());
    assert_no_failures(name, &failures);
}

/// Cuts the power, and then again during the recovery by the next run.
fn cut_twice(name: &str, setup: &PowerSetup, first: usize, second: usize) {
    let names = DiskBench::new(setup).call_names();
    let mut bench = DiskBench::new(setup);
    let (shots, _) = bench.snapshot_after_calls(&names, setup.words, "first");
    let (mut pairs, mut failures) = (0, Vec::new());
    let every: Vec<usize> = (0..shots.len()).collect();
    for at in sample(&every, first) {
        bench.reboot(&shots[at]);
        let (again, _) = bench.snapshot_after_calls(&names, RESET_ALL, &format!("second{at}"));
        let every: Vec<usize> = (0..again.len()).collect();
        for shot in sample(&every, second).iter().map(|at| &again[*at]) {
            pairs += 1;
            bench.reboot(shot);
            if let Err(why) = (setup.check)(&bench.scene) {
                failures.push(format!(
                    "cut after {} and {}: {why}",
                    shots[at].after, shot.after
                ));
            }
        }
    }
    println!("{name}: {pairs} pairs");
    assert_no_failures(name, &failures);
    assert!(pairs > first);
}

fn can_cut_power(test: &str) -> bool {
    can_trace()
        && has_tool("mkfs.ext4")
        && has_tool("blockdev")
        && may_mount(&format!("power::{test}"))
}

fn agent_with_scratch() -> Vec<(&'static str, InitialMemory)> {
    vec![("scout", InitialMemory::scratch("- note\n"))]
}

#[test]
fn power_cut_at_any_call_of_reset_loses_nothing() {
    if !can_cut_power("power_cut_at_any_call_of_reset_loses_nothing") {
        return;
    }
    let one = PowerSetup::new(agent_with_scratch());
    cut_at_every_call("power cut, one disk", &one, 8);
    let two = PowerSetup {
        has_two_disks: true,
        ..one.clone()
    };
    cut_at_every_call("power cut, archive on another disk", &two, 8);
    let writeback = PowerSetup {
        data_mode: "writeback",
        ..two.clone()
    };
    cut_at_every_call("power cut, data=writeback", &writeback, 6);
    for (what, had) in [
        ("a new file", InitialMemory::Missing),
        ("a FIFO", InitialMemory::Fifo),
    ] {
        let setup = PowerSetup::new(vec![("scout", had)]);
        cut_at_every_call(&format!("power cut, {what}"), &setup, 4);
    }
}

#[test]
fn power_cut_at_any_call_of_fleet_reset_loses_nothing() {
    if !can_cut_power("power_cut_at_any_call_of_fleet_reset_loses_nothing") {
        return;
    }
    let one = PowerSetup::new(twelve_agents());
    cut_at_every_call("power cut, twelve agents", &one, 4);
    let two = PowerSetup {
        has_two_disks: true,
        ..one.clone()
    };
    cut_at_every_call("power cut, twelve agents, two disks", &two, 4);
    if is_full_harness() {
        let writeback = PowerSetup {
            data_mode: "writeback",
            ..two
        };
        cut_at_every_call("power cut, twelve agents, data=writeback", &writeback, 0);
    }
}

#[test]
fn power_cut_at_any_call_of_undo_loses_nothing() {
    if !can_cut_power("power_cut_at_any_call_of_undo_loses_nothing") {
        return;
    }
    for (what, had) in [
        ("notes", InitialMemory::scratch("- note\n")),
        ("a new file", InitialMemory::Missing),
    ] {
        let setup = PowerSetup {
            prepare: |scene| scene.run_ok(RESET_ALL),
            words: &["undo", "scout"],
            has_two_disks: true,
            ..PowerSetup::new(vec![("scout", had)])
        };
        cut_at_every_call(&format!("power cut, undo of a reset of {what}"), &setup, 5);
    }
}

#[test]
fn power_cut_at_any_call_of_release_loses_nothing() {
    if !can_cut_power("power_cut_at_any_call_of_release_loses_nothing") {
        return;
    }
    let clean = PowerSetup {
        prepare: |scene| quarantine::set_policy(scene, "quarantine"),
        check: |scene| quarantine::check_recovery(scene, "- note\n"),
        has_two_disks: true,
        ..PowerSetup::new(agent_with_scratch())
    };
    cut_at_every_call("power cut, release from quarantine", &clean, 10);
    let notes = format!("- the key is {}\n", quarantine::KEY);
    let secret = PowerSetup {
        cast: vec![("scout", InitialMemory::scratch(&notes))],
        prepare: |scene| quarantine::set_policy(scene, "redact-copy"),
        check: |scene| {
            let notes = format!("- the key is {}\n", quarantine::KEY);
            quarantine::check_recovery(scene, &notes)
        },
        ..clean
    };
    cut_at_every_call("power cut, redacted copy", &secret, 8);
}

#[test]
fn power_cut_at_any_call_of_push_loses_nothing() {
    if !can_cut_power("power_cut_at_any_call_of_push_loses_nothing") {
        return;
    }
    let setup = PowerSetup {
        prepare: |scene| scene.make_behind(""),
        words: &["push", "scout"],
        has_two_disks: true,
        ..PowerSetup::new(agent_with_scratch())
    };
    cut_at_every_call("power cut, push", &setup, 8);
    let [_, (words, _)] = PUSHES;
    let chosen = PowerSetup {
        cast: vec![("scout", InitialMemory::scratch(PUSHED_NOTES))],
        prepare: |scene| scene.make_behind(PUSHES[1].1),
        words,
        ..setup
    };
    cut_at_every_call("power cut, push of chosen lines", &chosen, 8);
}

#[test]
fn power_cut_at_any_call_of_edit_leaves_whole_files() {
    if !can_cut_power("power_cut_at_any_call_of_edit_leaves_whole_files") {
        return;
    }
    let cast = ["ranger", "scout"].map(|name| (name, InitialMemory::file(BASELINE)));
    let save = PowerSetup {
        prepare: |scene| scene.run_ok(&["seal", "--all"]),
        words: &[edits::EDIT, "save"],
        check: edits::check_after_save,
        has_two_disks: true,
        ..PowerSetup::new(cast.to_vec())
    };
    cut_at_every_call("power cut, save", &save, 8);
    let replace = PowerSetup {
        words: edits::REPLACE,
        check: edits::check_after_replace,
        ..save
    };
    cut_at_every_call("power cut, replacement in two baselines", &replace, 8);
}

#[test]
fn power_cut_in_edit_of_files_leaves_all_or_nothing() {
    if !can_cut_power("power_cut_in_edit_of_files_leaves_all_or_nothing") {
        return;
    }
    let edit = |words, check| PowerSetup {
        prepare: file_edits::prepare,
        words,
        check,
        has_two_disks: true,
        ..PowerSetup::new(vec![("scout", InitialMemory::file(BASELINE))])
    };
    let one = edit(&[edits::EDIT, "files-1"], |scene| {
        check_after_edit(scene, 1)
    });
    cut_at_every_call("power cut, edit of one file", &one, 8);
    let two = edit(&[edits::EDIT, "files-2"], |scene| {
        check_after_edit(scene, 2)
    });
    cut_at_every_call("power cut, edit of two files", &two, 8);
    let five = edit(&[edits::EDIT, "files-5"], |scene| {
        check_after_edit(scene, 5)
    });
    cut_at_every_call("power cut, edit of five files", &five, 8);
}

#[test]
fn power_cut_at_any_call_of_seal_leaves_whole_files() {
    if !can_cut_power("power_cut_at_any_call_of_seal_leaves_whole_files") {
        return;
    }
    let cast = ["ranger", "scout"].map(|name| (name, InitialMemory::Missing));
    let seal = PowerSetup {
        prepare: |scene| seal::seal_and_change(scene),
        words: &["seal", "--all"],
        check: seal::check_after_seal,
        has_two_disks: true,
        ..PowerSetup::new(cast.to_vec())
    };
    cut_at_every_call("power cut, seal", &seal, 8);
    let guard = PowerSetup {
        words: &["guard", "--once"],
        check: seal::check_after_guard,
        ..seal
    };
    cut_at_every_call("power cut, guard", &guard, 8);
}

#[test]
fn power_cut_at_any_call_of_compaction_loses_nothing() {
    if !can_cut_power("power_cut_at_any_call_of_compaction_loses_nothing") {
        return;
    }
    let setup = PowerSetup {
        prepare: |scene| compaction::lengthen_ledger(scene),
        check: compaction::check_compaction,
        has_two_disks: true,
        ..PowerSetup::new(agent_with_scratch())
    };
    cut_at_every_call("power cut, compaction of the ledger", &setup, 8);
    let writeback = PowerSetup {
        data_mode: "writeback",
        ..setup
    };
    cut_at_every_call("power cut, compaction, data=writeback", &writeback, 4);
}

#[test]
fn renumbered_disk_after_power_cut_is_recognized() {
    if !can_cut_power("renumbered_disk_after_power_cut_is_recognized") {
        return;
    }
    let setup = PowerSetup {
        is_renumbered: true,
        ..PowerSetup::new(agent_with_scratch())
    };
    cut_at_every_call("power cut, another device number", &setup, 8);
}

#[test]
fn power_cut_after_kill_loses_nothing() {
    if !can_cut_power("power_cut_after_kill_loses_nothing") {
        return;
    }
    let setup = PowerSetup {
        has_two_disks: true,
        ..PowerSetup::new(agent_with_scratch())
    };
    let most = |quick, most| if is_full_harness() { most } else { quick };
    kill_and_cut("killed and cut", &setup, most(6, 200));
}

#[test]
fn power_cut_of_recovery_loses_nothing() {
    if !can_cut_power("power_cut_of_recovery_loses_nothing") {
        return;
    }
    let setup = PowerSetup {
        has_two_disks: true,
        ..PowerSetup::new(agent_with_scratch())
    };
    if is_full_harness() {
        cut_twice("cut twice", &setup, 20, 12);
    } else {
        cut_twice("cut twice", &setup, 3, 3);
    }
    if is_full_harness() {
        let setup = PowerSetup::new(twelve_agents());
        cut_twice("cut twice, twelve agents", &setup, 8, 5);
    }
}
