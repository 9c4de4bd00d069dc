//! A simulated month: a hundred agents write notes, timers reset them, and each day has every fault
//! once. The real program runs with the clock of a simulated time. What it does with a fault is
//! checked at each run: the alerts that go out are the expected ones, each of them once. After the
//! month every note is in an entry or in a memory, and nothing is left behind.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;

use rustix::fs::{FlockOperation, fcntl_lock};
use serde_json::Value;

use crate::fake_time::FakeTime;
use crate::fixture::{BASELINE, Fleet, directory_files, is_root};
use crate::full_harness::is_full_harness;
use crate::mounts::{Mount, may_mount};
use crate::processes::{
    EndedRun, RUN_TIMEOUT, RunningProgram, SeededRandom, processor_lock, test_directory, wait_for,
};
use crate::skip::skip_unsupported;
use crate::strace::can_trace;

/// The variable with the seed of another month, which a failed one has printed.
const SEED_VARIABLE: &str = "MONTH_SEED";
const SEED: u64 = 30_100_826;

const DAYS: usize = 30;

/// Days of a run that is not of the full harness.
const QUICK_DAYS: usize = 10;
const MINUTES_PER_DAY: i64 = 24 * 60;

/// The fleet: agents on a host and on this machine that are reset together, and those with an interval
/// of a week, which are reset one by one.
const REMOTE_AGENTS: usize = 10;
const SHARED_AGENTS: usize = 10;
const WEEKLY_AGENTS: usize = 80;

/// The agent whose directory is a small file system of its own.
const SMALL_DISK_AGENT: &str = "near-0";

/// The first day: after the times of all files that the test writes.
const BEGIN: &str = "2036-03-03";

/// Calls at which a run is killed: each changes the disk, or takes a lock.
const KILL_CALLS: &[&str] = &[
    "openat",
    "write",
    "fsync",
    "fdatasync",
    "renameat2",
    "unlink",
    "unlinkat",
    "linkat",
    "fcntl",
    "fchmod",
];

/// What a timer runs.
const SCHEDULED_RESET: &[&str] = &["reset", "--scheduled", "--wait", "120"];

/// What goes wrong in one run of the shared timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Nothing, which shows that the run before left nothing behind.
    None,
    /// The file system of an agent is full.
    FullDisk,
    /// The host does not answer.
    HostDown,
    /// The host still does not answer.
    HostStillDown,
    /// The run is killed.
    Killed,
    /// An agent has changed a baseline.
    Tampered,
    /// The clock is set back, and an agent drifts.
    ClockBack,
    /// Another process holds the lock of an agent.
    Locked,
}

/// The faults of each day, in blocks that stay together.
const FAULTS_OF_DAY: &[&[Fault]] = &[
    &[Fault::FullDisk],
    &[Fault::Killed, Fault::None],
    &[Fault::Tampered],
    &[Fault::HostDown, Fault::HostStillDown],
    &[Fault::ClockBack],
    &[Fault::Locked],
];

/// An alert: its kind, and what it is about.
type Alert = (String, String);

fn alert(kind: &str, about: &str) -> Alert {
    (kind.to_string(), about.to_string())
}

struct Month {
    _temporary: tempfile::TempDir,
    fleet: Fleet,
    fake_time: FakeTime,
    random: SeededRandom,
    /// Every note that an agent wrote.
    tokens: Vec<String>,
    /// Number of alerts that were read.
    alerts_read: usize,
    /// Identifiers of all alerts.
    alert_ids: BTreeSet<String>,
    /// Numbers of faults that happened, by name.
    counts: BTreeMap<String, usize>,
    small_disk: Option<Mount>,
}

fn shared_names() -> Vec<String> {
    let far = (0..REMOTE_AGENTS).map(|number| format!("far-{number}"));
    let near = (0..SHARED_AGENTS).map(|number| format!("near-{number}"));
    far.chain(near).collect()
}

fn weekly_names() -> Vec<String> {
    (0..WEEKLY_AGENTS)
        .map(|number| format!("weekly-{number}"))
        .collect()
}

/// A time of the month as the clock library reads it.
fn time_at(minutes: i64) -> String {
    let begin = chrono::DateTime::parse_from_rfc3339(&format!("{BEGIN}T00:00:00Z")).unwrap();
    let time = begin + chrono::Duration::minutes(minutes);
    time.format("@%Y-%m-%d %H:%M:%S").to_string()
}

impl Month {
    fn new(seed: u64, fake_time: FakeTime, can_mount: bool) -> Month {
        let (temporary, root) = test_directory(true);
        let (shared, weekly) = (shared_names(), weekly_names());
        let names: Vec<&str> = shared.iter().chain(&weekly).map(String::as_str).collect();
        let fleet = Fleet::new(&root, &root.join("archives"), &names);
        let mut month = Month {
            _temporary: temporary,
            fleet,
            fake_time,
            random: SeededRandom::new(seed),
            tokens: Vec::new(),
            alerts_read: 0,
            alert_ids: BTreeSet::new(),
            counts: BTreeMap::new(),
            small_disk: None,
        };
        if can_mount {
            let directory = month.fleet.agent_directory(SMALL_DISK_AGENT);
            let options = ["-t", "tmpfs", "-o", "size=256k,mode=755", "tmpfs"];
            month.small_disk = Some(Mount::new(&options, &directory).unwrap());
        }
        month.write_config();
        month.write_ssh();
        for name in &names {
            fs::write(month.fleet.memory_path(name), BASELINE).unwrap();
        }
        let sealed = month.run(&time_at(0), &["seal", "--all"]);
        assert_eq!(sealed.code, Some(0), "{sealed:?}");
        month
    }

    fn write_config(&self) {
        let mut config = format!(
            "[general]\nmin_baseline_size = 10\narchive_dir = {}\nevery = 12h\n\
             archive_retention_days = 400\n\n[alerts]\n\
             on = tampered, hostkey, failed-reset, missed-schedule, unreachable, drifted, oversize\n\
             command = sh -c 'cat >>events'\nunreachable_after = 2h\nrepeat_after = 0\n\
             max_per_hour = 1000\n\n",
            self.fleet.archive.display()
        );
        for agent in self.fleet.agents() {
            let memory = self.fleet.memory_path(agent).display().to_string();
            let place = if agent.starts_with("far-") {
                format!("remote_host = harbour\nremote_memory = {memory}\n")
            } else {
                format!("memory_file = {memory}\n")
            };
            let every = if agent.starts_with("weekly-") {
                "every = 7d\n"
            } else {
                ""
            };
            config.push_str(&format!("[{agent}]\n{place}{every}baseline = {agent}.md\n"));
        }
        fs::write(self.fleet.config_path(), config).unwrap();
    }

    /// Installs an `ssh` that reaches this machine, unless the file `down` exists.
    fn write_ssh(&self) {
        let script = format!(
            "#!/bin/sh\nif [ -e '{}' ]; then\n    \
             echo 'ssh: connect to host harbour port 22: Connection refused' >&2\n    exit 255\nfi\n\
             for server in /usr/lib/openssh/sftp-server /usr/libexec/sftp-server; do\n    \
             [ -x $server ] && exec $server -e\ndone\n",
            self.down_path().display()
        );
        let directory = self.fleet.root.join("bin");
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("ssh"), script).unwrap();
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(directory.join("ssh"), mode).unwrap();
    }

    fn down_path(&self) -> PathBuf {
        self.fleet.root.join("down")
    }

    fn note_fault(&mut self, fault: &str) {
        *self.counts.entry(fault.to_string()).or_default() += 1;
    }

    fn command(&self, time: &str, wrapper: &[&str], arguments: &[&str]) -> Command {
        let mut command = self.fleet.command(wrapper, arguments);
        let path = std::env::var("PATH").unwrap();
        command
            .env("PATH", format!("{}/bin:{path}", self.fleet.root.display()))
            .env("HOME", &self.fleet.root);
        self.fake_time.apply(&mut command, time);
        command
    }

    fn start(&self, time: &str, arguments: &[&str]) -> RunningProgram {
        RunningProgram::start(self.command(time, &[], arguments))
    }

    fn run(&self, time: &str, arguments: &[&str]) -> EndedRun {
        self.start(time, arguments).end_within(RUN_TIMEOUT)
    }

    /// An agent writes a note that no other note equals: at its end, or with a new file.
    fn write_note(&mut self, agent: &str) {
        let token = format!(
            "note-{:06}-{:08x}",
            self.tokens.len(),
            self.random.next() >> 32
        );
        let line = format!("- {token}\n");
        let path = self.fleet.memory_path(agent);
        if self.random.below(4) == 0 {
            let mut text = fs::read(&path).unwrap();
            text.extend_from_slice(line.as_bytes());
            let new = path.with_file_name("new");
            fs::write(&new, text).unwrap();
            fs::rename(&new, &path).unwrap();
        } else {
            drop(self.fleet.append_note(agent, &line));
        }
        self.tokens.push(token);
    }

    fn write_notes(&mut self) {
        let shared = shared_names();
        for _ in 0..3 + self.random.below(4) {
            let agent = self.random.pick(&shared).clone();
            self.write_note(&agent);
        }
    }

    /// Returns the alerts that came since the last call, sorted.
    fn new_alerts(&mut self) -> Vec<Alert> {
        let text = fs::read_to_string(self.fleet.root.join("events")).unwrap_or_default();
        let events: Vec<Value> = text
            .lines()
            .skip(self.alerts_read)
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        self.alerts_read += events.len();
        let mut alerts: Vec<Alert> = Vec::new();
        for event in events {
            let id = event["id"].as_str().unwrap().to_string();
            assert!(self.alert_ids.insert(id), "sent twice: {event}");
            let kind = event["event"].as_str().unwrap();
            let agents = event["agents"].as_array().unwrap().iter();
            let names: Vec<&str> = agents.map(|name| name.as_str().unwrap()).collect();
            alerts.push(alert(kind, &names.join(" ")));
        }
        alerts.sort();
        alerts
    }

    /// Asserts that a run has ended as it should, and that exactly these alerts went out.
    #[track_caller]
    fn assert_run(&mut self, ended: &EndedRun, codes: &[i32], mut expected: Vec<Alert>) {
        let code = ended.code.unwrap_or(-1);
        assert!(codes.contains(&code), "{codes:?}: {ended:?}");
        expected.sort();
        assert_eq!(self.new_alerts(), expected, "{ended:?}");
    }

    fn reset_shared(&mut self, time: &str, codes: &[i32], expected: Vec<Alert>) {
        let ended = self.run(time, SCHEDULED_RESET);
        self.assert_run(&ended, codes, expected);
    }

    /// Runs the shared timer at a time, in minutes since the begin of the month.
    fn run_with_fault(&mut self, minutes: i64, fault: Fault) {
        self.write_notes();
        let time = time_at(minutes);
        match fault {
            Fault::None => self.reset_shared(&time, &[0], Vec::new()),
            Fault::FullDisk => self.run_with_full_disk(&time),
            Fault::HostDown => {
                fs::write(self.down_path(), "").unwrap();
                let lost = shared_names()[..REMOTE_AGENTS].join(" ");
                self.reset_shared(&time, &[3], vec![alert("failed-reset", &lost)]);
                self.note_fault("host down");
            }
            Fault::HostStillDown => {
                let lost = shared_names()[..REMOTE_AGENTS].join(" ");
                self.reset_shared(&time, &[3], vec![alert("unreachable", &lost)]);
                fs::remove_file(self.down_path()).unwrap();
            }
            Fault::Killed => self.run_killed(&time),
            Fault::Tampered => self.run_with_tampered_baseline(&time),
            Fault::ClockBack => {
                let back = 60 + i64::try_from(self.random.below(4 * 60)).unwrap();
                let agent = self.pick_local();
                let text = fs::read_to_string(self.fleet.memory_path(&agent)).unwrap();
                let drifted = text.replace("- be kind\n", "- be cruel\n");
                fs::write(self.fleet.memory_path(&agent), drifted).unwrap();
                let time = time_at(minutes - back);
                self.reset_shared(&time, &[0], vec![alert("drifted", &agent)]);
                self.note_fault("clock set back");
            }
            Fault::Locked => self.run_with_locked_agent(&time),
        }
    }

    /// Picks an agent of the shared timer on this machine, other than that of the small disk.
    fn pick_local(&mut self) -> String {
        let number = 1 + self.random.below(SHARED_AGENTS as u64 - 1);
        format!("near-{number}")
    }

    fn run_with_full_disk(&mut self, time: &str) {
        if self.small_disk.is_none() {
            return self.reset_shared(time, &[0], Vec::new());
        }
        self.write_note(SMALL_DISK_AGENT);
        let directory = self.fleet.agent_directory(SMALL_DISK_AGENT);
        let filler = directory.join("filler");
        let mut file = File::create(&filler).unwrap();
        while file.write_all(&[0; 1024]).is_ok() {}
        let expected = vec![alert("failed-reset", SMALL_DISK_AGENT)];
        self.reset_shared(time, &[3], expected);
        fs::remove_file(&filler).unwrap();
        self.note_fault("full disk");
    }

    fn run_killed(&mut self, time: &str) {
        let call = *self.random.pick(KILL_CALLS);
        let number = 1 + self.random.below(10);
        let inject = format!("inject={call}:signal=KILL:when={number}");
        let trace = format!("trace={call}");
        let wrapper = [
            "strace",
            "-f",
            "-qq",
            // Kills the program, and none that it starts.
            "-b",
            "execve",
            "-o",
            "/dev/null",
            "-e",
            &trace,
            "-e",
            &inject,
        ];
        let command = self.command(time, &wrapper, SCHEDULED_RESET);
        let ended = RunningProgram::start(command).end_within(RUN_TIMEOUT);
        if ended.code.is_none() {
            self.note_fault("killed run");
        }
        assert_eq!(self.new_alerts(), [], "{inject}: {ended:?}");
    }

    fn run_with_tampered_baseline(&mut self, time: &str) {
        let agent = self.pick_local();
        self.write_note(&agent);
        let baseline = self.fleet.baseline_path(&agent);
        fs::write(&baseline, BASELINE.replace("kind", "cruel")).unwrap();
        let expected = vec![alert("tampered", &agent), alert("failed-reset", &agent)];
        self.reset_shared(time, &[4], expected);
        if self.random.below(2) == 0 {
            let ended = self.run(time, &["guard", "--once"]);
            self.assert_run(&ended, &[1], Vec::new());
        } else {
            fs::write(&baseline, BASELINE).unwrap();
        }
        assert_eq!(fs::read_to_string(&baseline).unwrap(), BASELINE);
        self.note_fault("tampered baseline");
    }

    /// A reset by hand is refused, and the timer's waits until the lock is free.
    fn run_with_locked_agent(&mut self, time: &str) {
        let agent = self.pick_local();
        self.write_note(&agent);
        let locks = self.fleet.archive.join(".shepherd/locks");
        let lock = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(locks.join(format!("{agent}.lock")))
            .unwrap();
        fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        let holder = serde_json::json!({
            "pid": std::process::id(),
            "user": "root",
            "since": "2036-03-03T00:00:00Z",
            "run": "5a10c3d2",
        });
        let line = format!("{holder}\n");
        lock.write_all_at(line.as_bytes(), 0).unwrap();
        let ended = self.run(time, &["reset", &agent]);
        self.assert_run(&ended, &[5], Vec::new());
        let queue = locks.join(format!("{agent}.queue"));
        let _ = fs::remove_file(&queue);
        let waiting = self.start(time, SCHEDULED_RESET);
        wait_for("a run that waits", || queue.exists());
        drop(lock);
        let ended = waiting.end_within(RUN_TIMEOUT);
        self.assert_run(&ended, &[0], Vec::new());
        let memory = fs::read_to_string(self.fleet.memory_path(&agent)).unwrap();
        assert_eq!(memory, BASELINE, "{ended:?}");
        self.note_fault("locked agent");
    }

    /// Runs the timers of agents with an interval of a week, each on its day: in one process, or in the
    /// full harness one by one.
    fn run_weekly(&mut self, day: usize) {
        let due: Vec<String> = weekly_names()
            .into_iter()
            .enumerate()
            .filter(|(number, _)| number % 7 == day % 7)
            .map(|(_, name)| name)
            .collect();
        due.iter().for_each(|agent| self.write_note(agent));
        let at_once = if is_full_harness() { 1 } else { due.len() };
        for agents in due.chunks(at_once) {
            let names: Vec<&str> = agents.iter().map(String::as_str).collect();
            let words = [SCHEDULED_RESET, &names].concat();
            let time = time_at(day as i64 * MINUTES_PER_DAY + MINUTES_PER_DAY - 30);
            let ended = self.run(&time, &words);
            self.assert_run(&ended, &[0], Vec::new());
        }
    }

    fn run_day(&mut self, day: usize) {
        let mut blocks = FAULTS_OF_DAY.to_vec();
        for last in (1..blocks.len()).rev() {
            let other = usize::try_from(self.random.below(last as u64 + 1)).unwrap();
            blocks.swap(last, other);
        }
        let mut faults = blocks.concat();
        // What is right again is seen to be so before it goes wrong the next day.
        faults.push(Fault::None);
        let interval = MINUTES_PER_DAY / faults.len() as i64;
        for (number, fault) in faults.iter().enumerate() {
            let jitter = self.random.below(5) as i64;
            let minutes = day as i64 * MINUTES_PER_DAY + number as i64 * interval + jitter;
            self.run_with_fault(minutes, *fault);
        }
        self.run_weekly(day);
    }

    /// Checks what is left after the month.
    fn check_end(&mut self, days: usize) {
        let time = time_at(days as i64 * MINUTES_PER_DAY);
        self.reset_shared(&time, &[0], Vec::new());
        let ended = self.run(&time, &["alerts", "send", "--json"]);
        self.assert_run(&ended, &[0], Vec::new());
        let sent: Value = serde_json::from_str(&ended.out).unwrap();
        assert_eq!(sent["waiting"], 0, "{sent}");
        let ended = self.run(&time, &["verify"]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let mut kept = String::new();
        for agent in self.fleet.agents() {
            kept.push_str(&fs::read_to_string(self.fleet.memory_path(agent)).unwrap());
            for (name, bytes) in self.fleet.entries(agent) {
                assert!(!name.starts_with(".shepherd-"), "{agent}: {name}");
                kept.push_str(&String::from_utf8_lossy(&bytes));
            }
            assert_eq!(self.fleet.leftovers(agent), [""; 0], "{agent}");
        }
        let kept: BTreeSet<&str> = kept
            .lines()
            .filter_map(|line| line.strip_prefix("- "))
            .collect();
        let lost: Vec<&String> = self
            .tokens
            .iter()
            .filter(|token| !kept.contains(token.as_str()))
            .collect();
        assert!(lost.is_empty(), "{lost:?} of {} notes", self.tokens.len());
        assert_eq!(self.fleet.pending_journals(), [""; 0]);
        for (name, _) in directory_files(&self.fleet.archive.join(".shepherd")) {
            assert!(!name.starts_with(".shepherd-"), "{name}");
        }
        for (name, _) in directory_files(&self.fleet.archive.join(".shepherd/locks")) {
            let path = self.fleet.archive.join(".shepherd/locks").join(&name);
            let file = File::options().read(true).write(true).open(path).unwrap();
            fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).expect(&name);
        }
    }
}

/// Prints the seed of a month that fails.
struct SeedNotice(u64);

impl Drop for SeedNotice {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("the month again: {SEED_VARIABLE}={}", self.0);
        }
    }
}

#[test]
fn month_of_faults_loses_no_note_and_no_alert() {
    const TEST: &str = "month::month_of_faults_loses_no_note_and_no_alert";
    let Some(fake_time) = FakeTime::find() else {
        return;
    };
    if !can_trace() {
        return;
    }
    if is_root() && !may_mount(TEST) {
        return;
    }
    if !is_root() {
        skip_unsupported("no full disk without root");
    }
    let _processors = processor_lock();
    let chosen_seed = std::env::var(SEED_VARIABLE).ok();
    let seed = chosen_seed.map_or(SEED, |seed| seed.parse().unwrap());
    let _notice = SeedNotice(seed);
    let mut month = Month::new(seed, fake_time, is_root());
    let days = if is_full_harness() { DAYS } else { QUICK_DAYS };
    for day in 0..days {
        month.run_day(day);
    }
    month.check_end(days);
    let kills = month.counts["killed run"];
    assert!(kills >= days / 2, "{kills} kills");
    println!(
        "month: {} agents, {} notes, {} alerts, {:?}",
        month.fleet.agents().len(),
        month.tokens.len(),
        month.alerts_read,
        month.counts
    );
}
