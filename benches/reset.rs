//! Costs of a reset, as ratios of operations in the same run on the same disk:
//!
//! - 200 agents against a bare loop of the same durable system calls, one agent after the other,
//!   against the same loop in batches that are flushed together as a run's are, and against a shell
//!   script that does, without any sync, what the original tool does for each agent;
//! - 10,000 agents against 100: time for each; resident memory, beside that of a process that only
//!   reads the configuration;
//! - a memory of 100 MB against copying and syncing it;
//! - one agent in a process of its own, as a timer runs it: processor time, also with a ledger of
//!   100,000 records;
//! - the search for the boundary in 1 MB and in 16 MB.
//!
//! `cargo bench --bench reset`. The fleets are created below the target directory, on its disk.
//! Each figure is the median of several rounds, in which the compared operations take turns.

#![allow(unsafe_code)]
#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a harness may stop and speak"
)]

#[path = "../tests/support/bench_fleet.rs"]
#[allow(dead_code, reason = "shared with other benchmarks")]
mod bench_fleet;
#[path = "../tests/support/cost.rs"]
#[allow(dead_code, reason = "shared with other benchmarks")]
mod cost;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use memory_shepherd::boundary::{Baseline, find_boundary};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};

use self::bench_fleet::{Fleet, median, millis, ratio};
use self::cost::Cost;

const BINARY: &str = env!("CARGO_BIN_EXE_memory-shepherd");
const ROUNDS: usize = 7;

fn main() {
    let directory = tempfile::Builder::new()
        .prefix("reset-bench")
        .tempdir_in(env!("CARGO_TARGET_TMPDIR"))
        .expect("a directory");
    two_hundred(directory.path());
    many(directory.path());
    large(directory.path());
    cold(directory.path());
    boundary();
}

impl Fleet {
    fn reset(&self, arguments: &[&str]) -> Cost {
        let mut command = Command::new(BINARY);
        command.args(arguments).arg("-q").arg("--config");
        command.arg(self.config_path());
        let cost = Cost::of(&mut command);
        for agent in &self.agents {
            let length = fs::metadata(self.memory(agent)).unwrap().len();
            assert_eq!(length, self.baseline.len() as u64, "{agent} was not reset");
        }
        cost
    }
}

fn two_hundred(directory: &Path) {
    let ours = Fleet::local(directory.join("ours"), 200);
    let bare = Bare::new(directory.join("bare"), 200);
    let batched = Bare::new(directory.join("batched"), 200);
    let shell = Fleet::local(directory.join("shell"), 200);
    let script = directory.join("original.sh");
    fs::write(&script, SCRIPT).unwrap();
    let mut times = [const { Vec::new() }; 4];
    for round in 0..=ROUNDS {
        for fleet in [&ours, &bare.fleet, &batched.fleet, &shell] {
            fleet.scribble();
        }
        let mut pipeline = Command::new("bash");
        pipeline.arg(&script).arg(&shell.root);
        let round_times = [
            ours.reset(&["reset", "--all"]).wall,
            bare.reset(1),
            batched.reset(64),
            Cost::of(&mut pipeline).wall,
        ];
        // The first round makes directories and keeps the baselines' versions.
        if round > 0 {
            for (times, time) in times.iter_mut().zip(round_times) {
                times.push(time);
            }
        }
    }
    let [ours, bare, batched, shell] = times.map(median);
    println!(
        "200 agents: {:.1} ms; bare loop {:.0} ms, that is {:.2} times it (at most 1.5); \
         bare loop in batches {:.1} ms, {:.2} times it; \
         shell without sync {:.0} ms, {:.1} times slower (at least 10)",
        millis(ours),
        millis(bare),
        ratio(ours, bare),
        millis(batched),
        ratio(ours, batched),
        millis(shell),
        ratio(shell, ours)
    );
}

/// The durable system calls of a reset and nothing else.
struct Bare {
    fleet: Fleet,
    archive: PathBuf,
}

impl Bare {
    fn new(root: PathBuf, count: usize) -> Bare {
        let fleet = Fleet::local(root, count);
        let archive = fleet.root.join("archives");
        fs::create_dir_all(archive.join("tx")).unwrap();
        for agent in &fleet.agents {
            fs::create_dir_all(archive.join(agent)).unwrap();
        }
        Bare { fleet, archive }
    }

    /// Resets. `batch` agents take each step together; the changes of a step are synced one by one
    /// for a single agent, and as a whole file system for several.
    fn reset(&self, batch: usize) -> Duration {
        let began = Instant::now();
        let stamp = format!("{:?}", std::time::SystemTime::now());
        let tx = open(&self.archive.join("tx"), OFlags::DIRECTORY);
        let flush = |changed: &mut dyn Iterator<Item = &OwnedFd>| match batch {
            1 => changed.for_each(|file| rustix::fs::fsync(file).unwrap()),
            _ => rustix::fs::syncfs(&tx).unwrap(),
        };
        let mut ledger = File::options()
            .append(true)
            .create(true)
            .open(self.archive.join("ledger.jsonl"))
            .unwrap();
        let record = "x".repeat(1000);
        for agents in self.fleet.agents.chunks(batch) {
            let mut turns = Vec::new();
            for agent in agents {
                let memory = self.fleet.memory(agent);
                let directory = open(memory.parent().unwrap(), OFlags::DIRECTORY);
                let entries = open(&self.archive.join(agent), OFlags::DIRECTORY);
                let bytes = fs::read(&memory).unwrap();
                let entry = nameless(&entries, &bytes[self.fleet.baseline.len()..]);
                turns.push((agent, directory, entries, entry));
            }
            flush(&mut turns.iter().map(|(.., entry)| entry));
            let mut records = Vec::new();
            for (agent, _, entries, entry) in &turns {
                link(entry, entries, &stamp);
                let record = nameless(&tx, record.as_bytes());
                link(&record, &tx, agent);
                records.push(record);
            }
            let entries = turns.iter().map(|(_, _, entries, _)| entries);
            flush(&mut entries.chain(&records).chain([&tx]));
            let staged: Vec<OwnedFd> = turns
                .iter()
                .map(|(_, directory, ..)| nameless(directory, self.fleet.baseline.as_bytes()))
                .collect();
            flush(&mut staged.iter());
            for ((_, directory, ..), staged) in turns.iter().zip(&staged) {
                link(staged, directory, ".staged");
                let exchange = RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(directory, ".staged", directory, "MEMORY.md", exchange)
                    .unwrap();
            }
            flush(&mut turns.iter().map(|(_, directory, ..)| directory));
            for record in &records {
                rustix::io::write(record, b"{\"swapped\":\"exchange\"}\n").unwrap();
            }
            flush(&mut records.iter());
            for (_, directory, ..) in &turns {
                let mut displaced = File::from(open_at(directory, ".staged"));
                displaced.read_to_end(&mut Vec::new()).unwrap();
                rustix::fs::unlinkat(directory, ".staged", AtFlags::empty()).unwrap();
            }
            flush(&mut turns.iter().map(|(_, directory, ..)| directory));
            for (_, directory, ..) in &turns {
                let mut installed = File::from(open_at(directory, "MEMORY.md"));
                installed.read_to_end(&mut Vec::new()).unwrap();
                ledger.write_all(record.as_bytes()).unwrap();
            }
            ledger.sync_data().unwrap();
            for (agent, ..) in &turns {
                rustix::fs::unlinkat(&tx, agent.as_str(), AtFlags::empty()).unwrap();
            }
        }
        began.elapsed()
    }
}

fn open(path: &Path, flags: OFlags) -> OwnedFd {
    rustix::fs::open(
        path,
        OFlags::RDONLY | OFlags::CLOEXEC | flags,
        Mode::empty(),
    )
    .unwrap()
}

fn open_at(directory: &OwnedFd, name: &str) -> OwnedFd {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::empty()).unwrap()
}

fn nameless(directory: &OwnedFd, bytes: &[u8]) -> OwnedFd {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, ".", flags, Mode::RUSR | Mode::WUSR).unwrap();
    rustix::io::write(&file, bytes).unwrap();
    file
}

fn link(file: &OwnedFd, directory: &OwnedFd, name: &str) {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, path, directory, name, AtFlags::SYMLINK_FOLLOW).unwrap();
}

/// A shell script that archives the part below the last separator and copies the baseline over the
/// memory, with a dozen processes for each agent.
const SCRIPT: &str = r##"
set -e
root=$1
mkdir -p "$root/archives"
for directory in "$root"/agents/*; do
  agent=$(basename "$directory")
  memory=$directory/MEMORY.md
  baseline=$root/baselines/$agent.md
  size=$(stat -c %s "$baseline")
  [ "$size" -ge 1000 ]
  used=$(stat -c %s "$memory")
  [ "$used" -gt 0 ]
  line=$(grep -n '^---$' "$memory" | tail -1 | cut -d: -f1)
  notes=$(tail -n +$((line + 1)) "$memory" | sed '/^$/d')
  stamp=$(date +%Y-%m-%d_%H%M)
  mkdir -p "$root/archives/$agent"
  printf '# %s\n\n%s\n' "$agent" "$notes" > "$root/archives/$agent/$stamp.md"
  cp "$baseline" "$memory.tmp"
  mv "$memory.tmp" "$memory"
  echo "[$(date '+%Y-%m-%d %H:%M:%S')] reset $agent" >> "$root/archives/reset.log"
done
"##;

fn many(directory: &Path) {
    let few = Fleet::local(directory.join("few"), 100);
    let many = Fleet::local(directory.join("many"), 10_000);
    let mut each = [Vec::new(), Vec::new()];
    let mut resident = [0; 2];
    for round in 0..=3 {
        few.scribble();
        many.scribble();
        // A hundred agents are done before the clock has ticked much: ten rounds.
        let mut small = Duration::ZERO;
        for _ in 0..10 {
            few.scribble();
            let cost = few.reset(&["reset", "--all"]);
            small += cost.wall;
            resident[0] = cost.resident;
        }
        let cost = many.reset(&["reset", "--all"]);
        resident[1] = cost.resident;
        if round > 0 {
            each[0].push(small / 1000);
            each[1].push(cost.wall / 10_000);
        }
    }
    let mut check = Command::new(BINARY);
    check.args(["config", "check", "--config"]);
    check.arg(many.root.join("memory-shepherd.conf"));
    let configuration = Cost::of(&mut check).resident;
    let [few, many] = each.map(median);
    println!(
        "10,000 agents: {:.3} ms each, {:.2} times that of 100 (at most 1.5: {:.3} ms); \
         resident {} MB, reading the configuration alone {} MB, 100 agents {} MB",
        millis(many),
        ratio(many, few),
        millis(few),
        resident[1] / 1024,
        configuration / 1024,
        resident[0] / 1024
    );
}

fn large(directory: &Path) {
    let fleet = Fleet::local(directory.join("large"), 1);
    let memory = fleet.memory(&fleet.agents[0]);
    let notes = "- something happened today, and it was worth a line of a hundred bytes or so, all in all\n";
    // In pieces: this process's own memory would be counted as the child's, too.
    let piece = notes.repeat(1_000_000 / notes.len());
    let mut times = [Vec::new(), Vec::new()];
    let mut resident = 0;
    for round in 0..=3 {
        let mut file = File::create(&memory).unwrap();
        file.write_all(fleet.baseline.as_bytes()).unwrap();
        for _ in 0..100 {
            file.write_all(piece.as_bytes()).unwrap();
        }
        // A run waits while a process has the memory open.
        drop(file);
        rustix::fs::sync();
        let began = Instant::now();
        let copy = directory.join("large").join(format!("copy-{round}"));
        fs::copy(&memory, &copy).unwrap();
        File::open(&copy).unwrap().sync_all().unwrap();
        let copied = began.elapsed();
        fs::remove_file(copy).unwrap();
        rustix::fs::sync();
        let cost = fleet.reset(&["reset", "--all"]);
        resident = resident.max(cost.resident);
        times[0].push(cost.wall);
        times[1].push(copied);
    }
    let [reset, copy] = times.map(median);
    println!(
        "a memory of 100 MB: {:.0} ms, {:.2} times a synced copy of {:.0} ms (at most 3); \
         resident {} MB (at most 64)",
        millis(reset),
        ratio(reset, copy),
        millis(copy),
        resident / 1024
    );
}

fn cold(directory: &Path) {
    let fleet = Fleet::local(directory.join("cold"), 24);
    let agent = fleet.agents[0].as_str();
    let one = |fleet: &Fleet| {
        let times = (0..ROUNDS).map(|_| {
            fleet.scribble();
            let mut command = Command::new(BINARY);
            command.args(["reset", agent, "-q", "--config"]);
            command.arg(fleet.root.join("memory-shepherd.conf"));
            Cost::of(&mut command).processor
        });
        median(times.collect())
    };
    fleet.scribble();
    fleet.reset(&["reset", "--all"]);
    println!(
        "one agent of 24, cold: {:.1} ms of processor time (below 15)",
        millis(one(&fleet))
    );
    let mut records = 24;
    while records < 100_000 {
        fleet.scribble();
        fleet.reset(&["reset", "--all"]);
        records += 24;
        // Real runs would take long; the content of the records does not matter.
        if records > 24 * 4 {
            records += lengthen(&fleet, 100_000 - records);
            fleet.scribble();
            fleet.reset(&["reset", "--all"]);
            break;
        }
    }
    println!(
        "the same with {records} records in the ledger: {:.1} ms",
        millis(one(&fleet))
    );
}

/// Appends records that continue the chain.
fn lengthen(fleet: &Fleet, count: usize) -> usize {
    use memory_shepherd::base::digest::Digest;
    let path = fleet.root.join("archives/.shepherd/ledger.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let last = text.lines().last().unwrap();
    let mut record: serde_json::Value = serde_json::from_str(last).unwrap();
    let mut prev = Digest::of(last.as_bytes());
    let mut seq = record["seq"].as_u64().unwrap();
    let mut file = File::options().append(true).open(&path).unwrap();
    for _ in 0..count {
        seq += 1;
        record["seq"] = seq.into();
        record["prev"] = prev.to_string().into();
        let line = serde_json::to_string(&record).unwrap();
        prev = Digest::of(line.as_bytes());
        writeln!(file, "{line}").unwrap();
    }
    count
}

fn boundary() {
    let text = "# Rules\n\n- be kind\n- be brief\n\n---\n";
    let baseline = Baseline::new(text.as_bytes().to_vec(), "---");
    let time = |length: usize| {
        // Edited rules, and separators all over the notes: the costly case.
        let note = "- a note\n\nA line\n\n---\n\n";
        let memory = format!(
            "# Rules\n\n- be cruel\n\n---\n{}",
            note.repeat(length / note.len())
        );
        let times = (0..5).map(|_| {
            let began = Instant::now();
            assert!(find_boundary(memory.as_bytes(), &baseline, &[]).is_some());
            began.elapsed()
        });
        median(times.collect())
    };
    let (small, large) = (time(1 << 20), time(16 << 20));
    println!(
        "the boundary in 16 MB: {:.1} ms, {:.1} times that in 1 MB (linear: 16)",
        millis(large),
        ratio(large, small)
    );
}
