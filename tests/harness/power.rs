//! Power cuts. Memories and archive lie on ext4 in files of their own. At each
//! call that changes something the program is stopped, and those files are
//! copied as they are, without unmounting and without syncing: what the program
//! did not put on the disk is not in the copy. Each copy is mounted like a disk
//! after a power cut, and everything has to be there.
//!
//! Timed commits of the journal are put off, so that nothing gets onto the disk
//! but what the program asked for, and so are the flushes by which ext4 helps
//! programs that rename without syncing. What this cannot show: writes that a
//! drive acknowledged and reordered in its own cache.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::crash::report;
use super::fixture::{full, has};
use super::mounts::{Mount, may_mount};
use super::scene::{Had, RESET, Scene, crowd};
use super::tools::ground;
use super::trace::{self, Call, Stepper, can_trace, inject, sample};

/// How long the program may take from one call to the next.
const PATIENCE: Duration = Duration::from_secs(30);

/// How large each disk is; copies are sparse.
const SIZE: u64 = 8 << 20;

/// How the disks are made and what is put on them.
#[derive(Clone)]
struct Setup {
    cast: Vec<(&'static str, Had)>,
    /// Whether the archive has a disk of its own.
    two: bool,
    /// The journal's mode.
    data: &'static str,
    /// Whether the disk has another number afterwards, as it may after a reboot.
    renumbered: bool,
    /// Whether all were reset before.
    reset: bool,
}

impl Setup {
    fn new(cast: Vec<(&'static str, Had)>) -> Setup {
        Setup {
            cast,
            two: false,
            data: "ordered",
            renumbered: false,
            reset: false,
        }
    }
}

/// Disks, mounted with a fleet on them.
struct Bench {
    scene: Scene,
    mounts: Vec<Mount>,
    disks: Vec<PathBuf>,
    places: Vec<PathBuf>,
    /// The disks' devices, which are the same ones as long as they are open.
    devices: Vec<(PathBuf, File)>,
    setup: Setup,
    folder: TempDir,
}

/// What was on the disks at one instant.
struct Shot {
    after: String,
    disks: Vec<PathBuf>,
}

impl Bench {
    fn new(setup: &Setup) -> Bench {
        let (folder, root) = ground(true);
        let count = if setup.two { 2 } else { 1 };
        let disks: Vec<PathBuf> = (0..count).map(|i| root.join(format!("disk{i}"))).collect();
        let places: Vec<PathBuf> = (0..count).map(|i| root.join(format!("at{i}"))).collect();
        disks.iter().for_each(|disk| format(disk));
        let mounts = mount(&disks, &places, setup.data);
        let fleet = places[0].join("fleet");
        let archive = places.last().unwrap().join("archives");
        let scene = Scene::at(&fleet, &archive, &root.join("log"), &setup.cast);
        if setup.reset {
            scene.does(RESET);
        }
        let bench = Bench {
            scene,
            devices: places.iter().map(|place| device(place)).collect(),
            mounts,
            disks,
            places,
            setup: setup.clone(),
            folder,
        };
        // What was there before is on the disk.
        for place in &bench.places {
            rustix::fs::syncfs(File::open(place).unwrap()).unwrap();
        }
        bench
    }

    fn words<'w>(&self) -> &'w [&'w str] {
        match self.setup.reset {
            true => &["undo", "scout"],
            false => RESET,
        }
    }

    /// The calls of such a run that change something.
    fn calls(&self) -> Vec<Call> {
        trace::changing(&self.scene, self.words())
    }

    /// The names of those calls.
    fn names(&self) -> BTreeSet<String> {
        let names = self.calls().into_iter().map(|call| call.name);
        // The others put nothing on the disk; all of them take their time.
        names
            .filter(|name| full() || name.contains("sync"))
            .collect()
    }

    /// Runs the program and copies the disks behind each of these calls; equal
    /// copies are kept once. Also gives how many calls there were.
    fn shoot(&self, names: &BTreeSet<String>, words: &[&str], shelf: &str) -> (Vec<Shot>, usize) {
        let shelf = self.folder.path().join(shelf);
        fs::create_dir(&shelf).unwrap();
        let set: Vec<&str> = names.iter().map(String::as_str).collect();
        let set = set.join(",");
        let options = [
            format!("--trace={set}"),
            format!("--inject={set}:signal=STOP"),
        ];
        let mut run = Stepper::start(&self.scene.fleet, &options, words);
        let mut shots = Vec::new();
        let mut last = None;
        let mut stops = 0;
        while let Some(after) = run.stop() {
            stops += 1;
            let now = self.written();
            if last.as_ref() != Some(&now) {
                let name = |i| shelf.join(format!("{stops}-{i}"));
                let disks: Vec<PathBuf> = (0..self.disks.len()).map(name).collect();
                last = Some(self.copy_to(&disks));
                shots.push(Shot { after, disks });
            }
            run.go_on();
        }
        (shots, stops)
    }

    /// Copies the disks at one instant; gives how much was written until then.
    fn copy_to(&self, copies: &[PathBuf]) -> Vec<String> {
        for _ in 0..1000 {
            let before = self.written();
            let pairs = self.disks.iter().zip(copies);
            pairs.for_each(|(disk, to)| sparse(disk, to));
            // The file system itself may have written meanwhile.
            if before == self.written() {
                return before;
            }
        }
        panic!("something keeps writing to the disks");
    }

    /// How much was written to each disk, once all of that has come to an end.
    fn written(&self) -> Vec<String> {
        self.places.iter().map(|place| written(place)).collect()
    }

    /// Puts a copy in place of the disks, as after a reboot.
    fn reboot(&mut self, shot: &Shot) {
        match self.setup.renumbered {
            true => self.reboot_renumbered(shot),
            false => self.reboot_alike(shot),
        }
    }

    /// With the same device numbers.
    fn reboot_alike(&mut self, shot: &Shot) {
        self.mounts.clear();
        let devices = &self.devices;
        for (at, (disk, copy)) in self.disks.iter().zip(&shot.disks).enumerate() {
            sparse(copy, disk);
            // What the kernel knows of the old content.
            let mut forget = Command::new("blockdev");
            let forget = forget.arg("--flushbufs").arg(&devices[at].0);
            assert!(forget.status().unwrap().success());
            let options = options(self.setup.data);
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

    /// On top of the old disks, which still keep their numbers.
    fn reboot_renumbered(&mut self, shot: &Shot) {
        let old = std::mem::take(&mut self.mounts);
        for (disk, copy) in self.disks.iter().zip(&shot.disks) {
            // A new file: the old one is still in use below.
            fs::remove_file(disk).unwrap();
            sparse(copy, disk);
        }
        self.mounts = mount(&self.disks, &self.places, self.setup.data);
        self.mounts.extend(old);
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // The one that was mounted last is on top.
        while !self.mounts.is_empty() {
            self.mounts.remove(0);
        }
    }
}

fn format(disk: &Path) {
    File::create(disk).unwrap().set_len(SIZE).unwrap();
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

fn options(data: &str) -> String {
    format!("commit=600,noauto_da_alloc,data={data}")
}

/// The device that is mounted there, opened.
fn device(place: &Path) -> (PathBuf, File) {
    let minor = rustix::fs::minor(fs::metadata(place).unwrap().dev());
    let path = PathBuf::from(format!("/dev/loop{minor}"));
    let file = File::open(&path).unwrap();
    (path, file)
}

fn mount(disks: &[PathBuf], places: &[PathBuf], data: &str) -> Vec<Mount> {
    let options = format!("loop,{}", options(data));
    let mount = |(disk, place): (&PathBuf, &PathBuf)| {
        let words = ["-t", "ext4", "-o", &options, disk.to_str().unwrap()];
        Mount::new(&words, place).unwrap()
    };
    disks.iter().zip(places).map(mount).collect()
}

/// How much was written to the disk that is mounted there, as its device counts.
fn written(place: &Path) -> String {
    let device = fs::metadata(place).unwrap().dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let path = format!("/sys/dev/block/{major}:{minor}/stat");
    let end = Instant::now() + PATIENCE;
    loop {
        let text = fs::read_to_string(&path).unwrap();
        let fields: Vec<&str> = text.split_whitespace().collect();
        // Requests that were written, and those that are in flight.
        if fields[8] == "0" {
            return format!("{} {}", fields[4], fields[6]);
        }
        assert!(
            Instant::now() < end,
            "the disk does not come to rest: {text}"
        );
    }
}

/// Copies a file, with holes where there are only zeros.
fn sparse(from: &Path, to: &Path) {
    let (mut from, mut file) = (File::open(from).unwrap(), File::create(to).unwrap());
    file.set_len(SIZE).unwrap();
    let mut block = [0; 4096];
    for at in (0..SIZE).step_by(block.len()) {
        from.read_exact(&mut block).unwrap();
        if block != [0; 4096] {
            file.seek(SeekFrom::Start(at)).unwrap();
            file.write_all(&block).unwrap();
        }
    }
}

/// Cuts the power behind every call; `most` of the states that differ are
/// looked at where not all are.
fn cut(name: &str, setup: &Setup, most: usize) {
    let names = Bench::new(setup).names();
    let mut bench = Bench::new(setup);
    let (shots, stops) = bench.shoot(&names, bench.words(), "shots");
    assert!(shots.len() > 3, "{name}: nothing was written to the disk");
    let chosen: Vec<usize> = (0..shots.len()).collect();
    let chosen = if full() {
        chosen
    } else {
        sample(&chosen, most)
    };
    let mut failures = Vec::new();
    for shot in chosen.iter().map(|at| &shots[*at]) {
        bench.reboot(shot);
        if let Err(why) = bench.scene.account() {
            failures.push(format!("cut after {}: {why}", shot.after));
        }
    }
    println!(
        "{name}: cut at {stops} points, {} different disks, {} looked at",
        shots.len(),
        chosen.len()
    );
    report(name, &failures);
}

/// Kills the program at a call, and cuts the power right then.
fn kill_and_cut(name: &str, setup: &Setup, most: usize) {
    let calls = Bench::new(setup).calls();
    let chosen = sample(&calls, most);
    let mut failures = Vec::new();
    for call in &chosen {
        let mut bench = Bench::new(setup);
        let options = inject(&call.name, "signal=KILL", call.nth, false);
        let scene = &bench.scene;
        trace::run(&scene.fleet, &scene.log, &options, bench.words());
        let copy = |at| bench.folder.path().join(format!("copy{at}"));
        let disks: Vec<PathBuf> = (0..bench.disks.len()).map(copy).collect();
        bench.copy_to(&disks);
        let after = call.text.clone();
        bench.reboot(&Shot { after, disks });
        if let Err(why) = bench.scene.account() {
            failures.push(format!("killed and cut at {}: {why}", call.text));
        }
    }
    println!("{name}: {} of {} points", chosen.len(), calls.len());
    report(name, &failures);
}

/// Cuts the power, and then again while the next run puts things right.
fn cut_twice(name: &str, setup: &Setup, first: usize, second: usize) {
    let names = Bench::new(setup).names();
    let mut bench = Bench::new(setup);
    let (shots, _) = bench.shoot(&names, bench.words(), "first");
    let (mut pairs, mut failures) = (0, Vec::new());
    let every: Vec<usize> = (0..shots.len()).collect();
    for at in sample(&every, first) {
        bench.reboot(&shots[at]);
        let (again, _) = bench.shoot(&names, RESET, &format!("second{at}"));
        let every: Vec<usize> = (0..again.len()).collect();
        for shot in sample(&every, second).iter().map(|at| &again[*at]) {
            pairs += 1;
            bench.reboot(shot);
            if let Err(why) = bench.scene.account() {
                failures.push(format!(
                    "cut after {} and {}: {why}",
                    shots[at].after, shot.after
                ));
            }
        }
    }
    println!("{name}: {pairs} pairs");
    report(name, &failures);
    assert!(pairs > first);
}

fn can_cut(test: &str) -> bool {
    can_trace() && has("mkfs.ext4") && has("blockdev") && may_mount(&format!("power::{test}"))
}

fn scratch() -> Vec<(&'static str, Had)> {
    vec![("scout", Had::scratch("- note\n"))]
}

#[test]
fn a_power_cut_at_any_call_of_a_reset_loses_nothing() {
    if !can_cut("a_power_cut_at_any_call_of_a_reset_loses_nothing") {
        return;
    }
    let one = Setup::new(scratch());
    cut("power cut, one disk", &one, 8);
    let two = Setup {
        two: true,
        ..one.clone()
    };
    cut("power cut, archive on another disk", &two, 8);
    let writeback = Setup {
        data: "writeback",
        ..two.clone()
    };
    cut("power cut, data=writeback", &writeback, 6);
    for (what, had) in [("a new file", Had::Nothing), ("a FIFO", Had::Fifo)] {
        let setup = Setup::new(vec![("scout", had)]);
        cut(&format!("power cut, {what}"), &setup, 4);
    }
}

#[test]
fn a_power_cut_at_any_call_of_a_run_over_many_agents_loses_nothing() {
    if !can_cut("a_power_cut_at_any_call_of_a_run_over_many_agents_loses_nothing") {
        return;
    }
    let one = Setup::new(crowd());
    cut("power cut, twelve agents", &one, 4);
    let two = Setup {
        two: true,
        ..one.clone()
    };
    cut("power cut, twelve agents, two disks", &two, 4);
    if full() {
        let writeback = Setup {
            data: "writeback",
            ..two
        };
        cut("power cut, twelve agents, data=writeback", &writeback, 0);
    }
}

#[test]
fn a_power_cut_at_any_call_of_an_undo_loses_nothing() {
    if !can_cut("a_power_cut_at_any_call_of_an_undo_loses_nothing") {
        return;
    }
    for (what, had) in [
        ("notes", Had::scratch("- note\n")),
        ("a new file", Had::Nothing),
    ] {
        let setup = Setup {
            reset: true,
            two: true,
            ..Setup::new(vec![("scout", had)])
        };
        cut(&format!("power cut, undo of a reset of {what}"), &setup, 5);
    }
}

#[test]
fn a_disk_with_another_number_after_a_power_cut_is_the_same_disk() {
    if !can_cut("a_disk_with_another_number_after_a_power_cut_is_the_same_disk") {
        return;
    }
    let setup = Setup {
        renumbered: true,
        ..Setup::new(scratch())
    };
    cut("power cut, another device number", &setup, 8);
}

#[test]
fn a_power_cut_right_behind_a_kill_loses_nothing() {
    if !can_cut("a_power_cut_right_behind_a_kill_loses_nothing") {
        return;
    }
    let setup = Setup {
        two: true,
        ..Setup::new(scratch())
    };
    let most = |quick, most| if full() { most } else { quick };
    kill_and_cut("killed and cut", &setup, most(6, 200));
}

#[test]
fn a_power_cut_of_the_run_that_puts_things_right_loses_nothing() {
    if !can_cut("a_power_cut_of_the_run_that_puts_things_right_loses_nothing") {
        return;
    }
    let setup = Setup {
        two: true,
        ..Setup::new(scratch())
    };
    match full() {
        true => cut_twice("cut twice", &setup, 20, 12),
        false => cut_twice("cut twice", &setup, 3, 3),
    }
    if full() {
        let setup = Setup::new(crowd());
        cut_twice("cut twice, twelve agents", &setup, 8, 5);
    }
}
