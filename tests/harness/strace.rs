//! The program's system calls, recorded and manipulated from outside by strace.
//!
//! A point is the nth call of a name, because strace counts each name separately. Points come from
//! an undisturbed run.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::{BufRead, BufReader, PipeReader};
use std::path::Path;
use std::process::{Child, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::fixture::{Fleet, has_tool};
use super::scene::{Scene, assert_ok};
use crate::full_harness::is_full_harness;
use crate::skip::skip_unsupported;

/// Timeout of any run, in seconds; one that takes longer is a failure.
const RUN_TIMEOUT: &str = "60";

/// Timeout of a program that is stopped on its way: others may be stopped and resumed in that time, and
/// a lease lasts 45 seconds.
const STEPPED_TIMEOUT: &str = "600";

/// Calls that change the disk, make changes durable, or take or give a right to change it.
const CHANGING_CALLS: &[&str] = &[
    "chmod",
    "chown",
    "copy_file_range",
    "creat",
    "fallocate",
    "fchmod",
    "fchmodat",
    "fchmodat2",
    "fchown",
    "fchownat",
    "fdatasync",
    "flock",
    "fremovexattr",
    "fsetxattr",
    "fsync",
    "ftruncate",
    "futimesat",
    "lchown",
    "link",
    "linkat",
    "lremovexattr",
    "lsetxattr",
    "mkdir",
    "mkdirat",
    "mknod",
    "mknodat",
    "msync",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "removexattr",
    "rename",
    "renameat",
    "renameat2",
    "rmdir",
    "sendfile",
    "setxattr",
    "splice",
    "symlink",
    "symlinkat",
    "sync",
    "sync_file_range",
    "syncfs",
    "truncate",
    "unlink",
    "unlinkat",
    "utime",
    "utimensat",
    "utimes",
    "write",
    "writev",
];

/// Calls whose arguments decide whether they change the disk, and the arguments that do.
const CHANGING_BY_ARGUMENT: &[(&str, &[&str])] = &[
    ("open", &["O_CREAT", "O_TMPFILE", "O_TRUNC"]),
    ("openat", &["O_CREAT", "O_TMPFILE", "O_TRUNC"]),
    ("openat2", &["O_CREAT", "O_TMPFILE", "O_TRUNC"]),
    ("fcntl", &["F_SETLEASE", "F_SETLK", "F_OFD_SETLK"]),
    ("ioctl", &["FICLONE", "FS_IOC_SET"]),
];

/// Calls that do not change the disk.
const HARMLESS_CALLS: &[&str] = &[
    "access",
    "alarm",
    "arch_prctl",
    "brk",
    "capget",
    "clock_getres",
    "clock_gettime",
    "clock_nanosleep",
    "clone",
    "clone3",
    "close",
    "close_range",
    "connect",
    "dup",
    "dup2",
    "dup3",
    "epoll_create1",
    "epoll_ctl",
    "epoll_wait",
    "eventfd2",
    "execve",
    "exit",
    "exit_group",
    "faccessat",
    "faccessat2",
    "fadvise64",
    "fgetxattr",
    "flistxattr",
    "fstat",
    "fstatfs",
    "futex",
    "getcwd",
    "getdents64",
    "getegid",
    "geteuid",
    "getgid",
    "getgroups",
    "getpid",
    "getppid",
    "getpriority",
    "getrandom",
    "getresgid",
    "getresuid",
    "getrlimit",
    "getrusage",
    "getsockopt",
    "gettid",
    "gettimeofday",
    "getuid",
    "getxattr",
    "kill",
    "lgetxattr",
    "listxattr",
    "llistxattr",
    "lseek",
    "lstat",
    "madvise",
    "membarrier",
    "memfd_create",
    "mprotect",
    "mremap",
    "munmap",
    "nanosleep",
    "newfstatat",
    "pidfd_open",
    "pipe",
    "pipe2",
    "poll",
    "ppoll",
    "prctl",
    "pread64",
    "preadv",
    "preadv2",
    "prlimit64",
    "read",
    "readlink",
    "readlinkat",
    "readv",
    "recvfrom",
    "recvmsg",
    "restart_syscall",
    "rseq",
    "rt_sigaction",
    "rt_sigpending",
    "rt_sigprocmask",
    "rt_sigreturn",
    "rt_sigtimedwait",
    "sched_getaffinity",
    "sched_yield",
    "sendmsg",
    "sendto",
    "set_robust_list",
    "set_tid_address",
    "setfsgid",
    "setfsuid",
    "setsid",
    "sigaltstack",
    "socket",
    "socketpair",
    "stat",
    "statfs",
    "statx",
    "sysinfo",
    "tgkill",
    "time",
    "umask",
    "uname",
    "wait4",
    "waitid",
];

/// The nth call of this name by a process or thread.
#[derive(Clone, Debug)]
pub struct SystemCall {
    pub name: String,
    pub occurrence: usize,
    /// The line of the log, without the process id.
    pub text: String,
}

impl SystemCall {
    /// Returns whether the call changes the disk.
    pub fn changes(&self) -> bool {
        changes(&self.name, &self.text)
    }

    /// Returns whether this harness knows the effect of the call. Writes through a shared mapping
    /// are not traceable.
    fn is_known(&self) -> bool {
        let name = self.name.as_str();
        let mapped = self.text.contains("MAP_SHARED") && self.text.contains("PROT_WRITE");
        CHANGING_CALLS.contains(&name)
            || HARMLESS_CALLS.contains(&name)
            || CHANGING_BY_ARGUMENT.iter().any(|(known, _)| *known == name)
            || name == "mmap" && !mapped
    }
}

/// Returns whether a call with this name and log line changes the disk.
pub fn changes(name: &str, text: &str) -> bool {
    match CHANGING_BY_ARGUMENT
        .iter()
        .find(|(known, _)| *known == name)
    {
        Some((_, words)) => words.iter().any(|word| text.contains(word)),
        None => CHANGING_CALLS.contains(&name),
    }
}

/// Returns whether programs can be traced here; prints a notice when they cannot.
pub fn can_trace() -> bool {
    if !has_tool("strace") || !has_tool("timeout") {
        return false;
    }
    let probe = std::process::Command::new("strace")
        .args(["-f", "-o", "/dev/null", "true"])
        .output();
    let works = probe.is_ok_and(|output| output.status.success());
    if !works {
        skip_unsupported("strace may not trace here");
    }
    works
}

/// Returns the strace command that wraps the program, with these options.
fn strace_wrapper(log: &Path, options: &[String], timeout: &str) -> Vec<String> {
    let words = ["timeout", "-s", "KILL", timeout, "strace", "-f", "-o"];
    words
        .iter()
        .map(ToString::to_string)
        .chain([log.display().to_string()])
        .chain(options.iter().cloned())
        .collect()
}

/// Runs the program under strace to its end, or until strace ends it.
pub fn run_traced(fleet: &Fleet, log: &Path, options: &[String], arguments: &[&str]) -> Output {
    let words = strace_wrapper(log, options, RUN_TIMEOUT);
    let wrapper: Vec<&str> = words.iter().map(String::as_str).collect();
    let began = std::time::Instant::now();
    let output = fleet.command(&wrapper, arguments).output().unwrap();
    let bound = std::time::Duration::from_secs(RUN_TIMEOUT.parse().unwrap());
    assert!(began.elapsed() < bound, "{arguments:?} hangs");
    output
}

/// Records all calls of an undisturbed run.
pub fn record_calls(fleet: &Fleet, log: &Path, arguments: &[&str]) -> (Output, Vec<SystemCall>) {
    record_calls_with(fleet, log, &[], arguments)
}

/// Records the calls of an undisturbed, successful run that change the disk.
#[track_caller]
pub fn record_changing_calls(scene: &Scene, arguments: &[&str]) -> Vec<SystemCall> {
    let (output, mut calls) = record_calls(&scene.fleet, &scene.trace_log, arguments);
    assert_ok(&output);
    calls.retain(SystemCall::changes);
    calls
}

/// Records all calls of a run under these strace options.
pub fn record_calls_with(
    fleet: &Fleet,
    log: &Path,
    options: &[String],
    arguments: &[&str],
) -> (Output, Vec<SystemCall>) {
    let output = run_traced(fleet, log, options, arguments);
    let calls = parse_log(&fs::read_to_string(log).unwrap());
    let unknown: BTreeSet<&str> = calls
        .iter()
        .filter(|call| !call.is_known())
        .map(|call| call.text.as_str())
        .collect();
    assert!(
        unknown.is_empty(),
        "classify these calls in strace.rs, or no harness covers them: {unknown:#?}"
    );
    (output, calls)
}

/// Parses a log of `strace -f`.
fn parse_log(log: &str) -> Vec<SystemCall> {
    let mut count: HashMap<(&str, &str), usize> = HashMap::new();
    let mut seen = BTreeSet::new();
    let mut calls = Vec::new();
    for line in log.lines() {
        let (pid, text) = line.split_once(' ').unwrap_or_default();
        let text = text.trim_start();
        let name = text.split('(').next().unwrap_or_default();
        let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.is_empty() || name.len() == text.len() || !name.bytes().all(word) {
            continue; // A signal, an end, or the second half of a call.
        }
        let nth = count.entry((pid, name)).or_default();
        *nth += 1;
        // Each thread counts by itself, and is hit at the same number.
        if seen.insert((name, *nth)) {
            calls.push(SystemCall {
                name: name.to_string(),
                occurrence: *nth,
                text: text.to_string(),
            });
        }
    }
    calls
}

/// Returns options that inject `what` at the nth call of a name, and at every later one with `on`.
pub fn injection_options(name: &str, what: &str, nth: usize, on: bool) -> Vec<String> {
    let on = if on { "+" } else { "" };
    // Not --seccomp-bpf, which is faster: signals then never arrive.
    vec![
        format!("--trace={name}"),
        format!("--inject={name}:{what}:when={nth}{on}"),
    ]
}

/// The program under strace, stopped behind some calls.
pub struct SteppedProgram {
    child: Child,
    log: BufReader<PipeReader>,
    /// Threads whose stop strace has reported, of processes that are not stopped as a whole.
    reported: BTreeSet<i32>,
    stopped: Option<Pid>,
}

impl SteppedProgram {
    /// Starts the program with strace options that stop it.
    pub fn start(fleet: &Fleet, options: &[String], arguments: &[&str]) -> SteppedProgram {
        // The pipe reports the end of strace.
        let (reader, writer) = std::io::pipe().unwrap();
        let words = strace_wrapper(Path::new("/dev/stdin"), options, STEPPED_TIMEOUT);
        let wrapper: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut command = fleet.command(&wrapper, arguments);
        command.stdin(writer).stdout(Stdio::null());
        command.stderr(Stdio::null());
        SteppedProgram {
            child: command.spawn().unwrap(),
            log: BufReader::new(reader),
            reported: BTreeSet::new(),
            stopped: None,
        }
    }

    /// Waits until all threads of a process are stopped; returns the call behind which they are, or
    /// None when the program has ended.
    ///
    /// strace reports the stop of each thread. Only when the last one is reported does nothing
    /// change any more, and the next report belongs to the next stop.
    pub fn wait_for_stop(&mut self) -> Option<String> {
        let mut call = String::new();
        loop {
            let mut line = String::new();
            if self.log.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            let thread = line.split(' ').next().and_then(|id| id.parse().ok());
            let Some(thread) = thread else { continue };
            if line.contains("--- stopped by SIGSTOP ---") {
                self.reported.insert(thread);
            } else if line.contains('(') {
                call = line.trim_end().to_string();
            }
            // The end of a thread may complete a stop as well.
            let threads = self.reported.iter().map(|thread| threads_beside(*thread));
            let stopped = threads
                .filter(|threads| !threads.is_empty())
                .find(|threads| threads.is_subset(&self.reported));
            if let Some(threads) = stopped {
                self.reported.retain(|thread| !threads.contains(thread));
                self.stopped = threads.first().and_then(|thread| Pid::from_raw(*thread));
                return Some(call);
            }
        }
    }

    pub fn resume(&mut self) {
        if let Some(pid) = self.stopped.take() {
            // The process may be gone by now; the following wait detects that.
            let _ = kill_process(pid, Signal::CONT);
        }
    }
}

/// Returns the ids of all threads of this thread's process; none when it has ended.
fn threads_beside(thread: i32) -> BTreeSet<i32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{thread}/task")) else {
        return BTreeSet::new();
    };
    threads
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

impl Drop for SteppedProgram {
    fn drop(&mut self) {
        if let Some(pid) = self.stopped {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns at most `most` elements, evenly spread and the same every time; the first and the last
/// are among them.
pub fn sample<T: Clone>(all: &[T], most: usize) -> Vec<T> {
    if all.len() <= most || most < 2 {
        return all.to_vec();
    }
    let last = all.len() - 1;
    (0..most)
        .map(|i| all[i * last / (most - 1)].clone())
        .collect()
}

/// Returns all elements in the full harness, otherwise a sample of at most `most`.
pub fn sample_if_quick<T: Clone>(all: &[T], most: usize) -> Vec<T> {
    if is_full_harness() {
        all.to_vec()
    } else {
        sample(all, most)
    }
}

#[test]
fn strace_log_is_parsed_call_by_call() {
    let log = "\
7 openat(AT_FDCWD, \"a\", O_RDONLY|O_CLOEXEC) = 3
7 openat(3, \"b (c)\", O_WRONLY|O_CREAT, 0600) = 4
8 write(4, \"x\", 1 <unfinished ...>
7 write(1, \"y\", 1) = 1
8 <... write resumed>) = 1
8 --- SIGSTOP {si_signo=SIGSTOP} ---
7 +++ exited with 0 +++
";
    let calls = parse_log(log);
    let seen: Vec<_> = calls
        .iter()
        .map(|call| (call.name.as_str(), call.occurrence, call.changes()))
        .collect();
    assert_eq!(
        seen,
        [
            ("openat", 1, false),
            ("openat", 2, true),
            ("write", 1, true)
        ]
    );
}
