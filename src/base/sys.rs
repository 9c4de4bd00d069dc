//! Kernel calls that no safe crate wraps: file leases, open-file-description locks,
//! sync_file_range, calls between fork and exec, the next child that ended, signal masks and
//! dispositions. The only unsafe code of this crate.
#![allow(unsafe_code)]

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The outcome of a file lease request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseOutcome {
    /// No process has the file open for writing, and no process can open it for writing while the
    /// lease is held.
    Granted,
    /// A process has it open or mapped for writing.
    OpenElsewhere,
    /// This process may not take leases on the file (another owner and no `CAP_LEASE`, or a file
    /// system without leases).
    Unavailable,
}

/// Sets the signal of a descriptor (`asm-generic/fcntl.h`); the libc crate lacks it.
const F_SETSIG: libc::c_int = 10;

/// Takes a read lease on a file that was opened read-only (fcntl(2), `F_SETLEASE`). A process that
/// then opens it for writing waits until the lease is released.
pub fn take_read_lease(file: BorrowedFd<'_>) -> LeaseOutcome {
    request_lease(file, libc::F_RDLCK)
}

/// Takes a write lease on a file that was opened for writing. It is granted if no other process has
/// the file open at all; a process that then opens the file waits until the lease is released.
pub fn take_write_lease(file: BorrowedFd<'_>) -> LeaseOutcome {
    request_lease(file, libc::F_WRLCK)
}

fn request_lease(file: BorrowedFd<'_>, kind: libc::c_int) -> LeaseOutcome {
    // The kernel signals the holder of a lease that another process waits for it, by SIGIO, whose
    // default action ends the process. SIGURG is ignored by default; `is_read_lease_unbroken` asks
    // whether a process waits.
    // SAFETY: F_SETSIG and F_SETLEASE take an int and touch no memory of ours.
    let result = unsafe {
        match libc::fcntl(file.as_raw_fd(), F_SETSIG, libc::SIGURG) {
            0 => libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind),
            failed => failed,
        }
    };
    if result == 0 {
        return LeaseOutcome::Granted;
    }
    match io::Error::last_os_error().raw_os_error() {
        Some(libc::EAGAIN) => LeaseOutcome::OpenElsewhere,
        _ => LeaseOutcome::Unavailable,
    }
}

/// Whether a granted read lease is unbroken, that is, no process waits for its release (fcntl(2),
/// `F_GETLEASE`).
pub fn is_read_lease_unbroken(file: BorrowedFd<'_>) -> bool {
    get_lease(file) == libc::F_RDLCK
}

/// Whether a lease that [`take_write_lease`] was granted is unbroken.
pub fn is_write_lease_unbroken(file: BorrowedFd<'_>) -> bool {
    get_lease(file) == libc::F_WRLCK
}

fn get_lease(file: BorrowedFd<'_>) -> libc::c_int {
    // SAFETY: F_GETLEASE takes no argument.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLEASE) }
}

/// Releases a lease; the opens that waited for it continue.
pub fn release_lease(file: BorrowedFd<'_>) {
    // SAFETY: as in `request_lease`. It cannot fail for a held lease, and a lease that the kernel
    // has revoked needs no release.
    unsafe {
        libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK);
    }
}

/// Every byte of a file, including those beyond its end.
const ALL_BYTES: Range<u64> = 0..0;

fn lock_request(kind: libc::c_int, bytes: &Range<u64>) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: bytes.start as libc::off_t,
        // 0 means all bytes from the start on.
        l_len: bytes.end.saturating_sub(bytes.start) as libc::off_t,
        l_pid: 0,
    }
}

/// Takes an exclusive lock that belongs to this open file description (fcntl(2), `F_OFD_SETLK`).
/// Closing its last descriptor releases it, however the process ends. Returns false if another open
/// file holds a lock.
pub fn try_lock(file: BorrowedFd<'_>) -> io::Result<bool> {
    try_lock_bytes(file, ALL_BYTES)
}

/// Locks a byte range, which need not exist, as [`try_lock`] does the whole file.
///
/// # Errors
/// As [`try_lock`].
pub fn try_lock_bytes(file: BorrowedFd<'_>, bytes: Range<u64>) -> io::Result<bool> {
    let result = set_lock(file, libc::F_WRLCK, &bytes);
    if result == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Ok(false),
        _ => Err(error),
    }
}

/// Releases all locks of this open file at once. Closing it would not be enough: a child process
/// that is just being started has copies of the descriptors until its exec, which keep the locks.
pub fn unlock(file: BorrowedFd<'_>) {
    unlock_bytes(file, ALL_BYTES);
}

/// Releases the locks on a byte range.
pub fn unlock_bytes(file: BorrowedFd<'_>, bytes: Range<u64>) {
    set_lock(file, libc::F_UNLCK, &bytes);
}

fn set_lock(file: BorrowedFd<'_>, kind: libc::c_int, bytes: &Range<u64>) -> libc::c_int {
    let lock = lock_request(kind, bytes);
    // SAFETY: the kernel reads the struct, which outlives the call.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) }
}

/// A lock that another open file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockConflict {
    /// Its holder needs no write permission for the file.
    Shared,
    /// Its holder may write the file.
    Exclusive,
}

/// Returns the lock that would make `try_lock` fail (`F_OFD_GETLK`). It takes no lock itself, so
/// the query never makes another process fail.
pub fn lock_conflict(file: BorrowedFd<'_>) -> io::Result<Option<LockConflict>> {
    byte_lock_conflict(file, ALL_BYTES)
}

/// Returns the lock that would make [`try_lock_bytes`] fail.
pub fn byte_lock_conflict(
    file: BorrowedFd<'_>,
    bytes: Range<u64>,
) -> io::Result<Option<LockConflict>> {
    let lock = query_lock(file, &bytes)?;
    Ok(match libc::c_int::from(lock.l_type) {
        libc::F_UNLCK => None,
        libc::F_RDLCK => Some(LockConflict::Shared),
        _ => Some(LockConflict::Exclusive),
    })
}

/// Returns the first byte of the lock that would make [`try_lock_bytes`] fail.
#[cfg(test)]
pub fn first_conflict_offset(file: BorrowedFd<'_>, bytes: Range<u64>) -> io::Result<Option<u64>> {
    let lock = query_lock(file, &bytes)?;
    let is_free = libc::c_int::from(lock.l_type) == libc::F_UNLCK;
    Ok((!is_free).then_some(lock.l_start as u64))
}

fn query_lock(file: BorrowedFd<'_>, bytes: &Range<u64>) -> io::Result<libc::flock> {
    let mut lock = lock_request(libc::F_WRLCK, bytes);
    // SAFETY: the kernel reads and writes the struct, which outlives the call.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    match result {
        0 => Ok(lock),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Starts the writeback of a file, so that a later sync has less to wait for. A hint: that sync
/// reports the errors.
pub fn start_writeback(file: BorrowedFd<'_>) {
    // SAFETY: it takes numbers only.
    unsafe {
        libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE);
    }
}

/// Waits until the content of a file is written, and returns an error if writing it has failed
/// since it was opened (sync_file_range(2)). It commits no journal and flushes no cache: an earlier
/// syncfs has done so.
///
/// # Errors
/// A write that failed.
pub fn wait_for_writeback(file: BorrowedFd<'_>) -> rustix::io::Result<()> {
    const FLAGS: libc::c_uint = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: it takes numbers only.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, FLAGS) } {
        0 => Ok(()),
        _ => Err(
            rustix::io::Errno::from_io_error(&io::Error::last_os_error())
                .unwrap_or(rustix::io::Errno::IO),
        ),
    }
}

/// Makes the child process of `command` the leader of a new session (setsid(2)), so that it has no
/// controlling terminal and no key pressed at this program's terminal ends it.
pub fn start_in_own_session(command: &mut Command) {
    let begin = || rustix::process::setsid().map(drop).map_err(io::Error::from);
    // SAFETY: between fork and exec it makes one system call and touches no memory that another
    // thread could hold.
    unsafe {
        command.pre_exec(begin);
    }
}

/// Ends the child process of `command` when this process ends, however it does (prctl(2),
/// `PR_SET_PDEATHSIG`). The thread that starts it must wait for it.
pub fn end_with_parent(command: &mut Command) {
    let begin = || {
        let signal = rustix::process::Signal::KILL;
        rustix::process::set_parent_process_death_signal(Some(signal)).map_err(io::Error::from)
    };
    // SAFETY: between fork and exec it makes one system call and touches no memory that another
    // thread could hold.
    unsafe {
        command.pre_exec(begin);
    }
}

/// Returns the process id of a child process that has ended and whose status was not taken yet, and
/// leaves its status to be taken (waitid(2), `WNOWAIT`); none if there is none.
pub fn find_ended_child() -> Option<u32> {
    // SAFETY: a siginfo_t of zeros is valid.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: waitid writes to `info` alone.
    let result = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, options) };
    // SAFETY: a successful waitid has filled the fields of SIGCHLD, or left zeros.
    let pid = if result == 0 {
        unsafe { info.si_pid() }
    } else {
        0
    };
    u32::try_from(pid).ok().filter(|pid| *pid != 0)
}

/// Lets the child process of `command` inherit these descriptors under the same numbers. They stay
/// closed in the programs that other threads start at the same time.
pub fn pass_descriptors(command: &mut Command, descriptors: Vec<RawFd>) {
    let begin = move || {
        for descriptor in &descriptors {
            // SAFETY: F_SETFD takes an int and touches no memory of ours.
            if unsafe { libc::fcntl(*descriptor, libc::F_SETFD, 0) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: between fork and exec it makes system calls alone; the list was allocated before.
    unsafe {
        command.pre_exec(begin);
    }
}

/// Puts the child process of `command` into a process group of its own and makes that group the
/// foreground of the terminal on its standard input, so that key signals go to the child and not to
/// this process.
pub fn start_in_foreground(command: &mut Command) {
    let begin = || {
        rustix::process::setpgid(None, None)?;
        set_terminal_foreground(rustix::stdio::stdin(), rustix::process::getpid())
    };
    // SAFETY: between fork and exec it makes system calls alone and touches no
    // memory that another thread could hold.
    unsafe {
        command.pre_exec(begin);
    }
}

/// Returns whether this process ignores a signal (sigaction(2)).
pub fn is_signal_ignored(signal: libc::c_int) -> bool {
    // SAFETY: with no new action the call only writes the current one to plain data on this stack.
    unsafe {
        let mut current = std::mem::zeroed::<libc::sigaction>();
        libc::sigaction(signal, std::ptr::null(), &raw mut current) == 0
            && current.sa_sigaction == libc::SIG_IGN
    }
}

/// Makes a process group the foreground of a terminal. The caller may be in the background:
/// SIGTTOU, which would stop it, is blocked during the call.
pub fn set_terminal_foreground(
    terminal: BorrowedFd<'_>,
    group: rustix::process::Pid,
) -> io::Result<()> {
    // SAFETY: both sets are plain data on this stack, the first one emptied before
    // it is used, and the calls change the mask of this thread alone.
    unsafe {
        let mut blocked_signals = std::mem::zeroed::<libc::sigset_t>();
        let mut previous_mask = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut blocked_signals);
        libc::sigaddset(&raw mut blocked_signals, libc::SIGTTOU);
        libc::pthread_sigmask(
            libc::SIG_BLOCK,
            &raw const blocked_signals,
            &raw mut previous_mask,
        );
        let outcome = rustix::termios::tcsetpgrp(terminal, group);
        libc::pthread_sigmask(
            libc::SIG_SETMASK,
            &raw const previous_mask,
            std::ptr::null_mut(),
        );
        outcome.map_err(io::Error::from)
    }
}

/// Returns memory that was freed to the system, as far as the C library can: glibc keeps what lies
/// between blocks in use, which after the first read of a large fleet is a quarter of the heap.
pub fn return_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) takes the locks of the heap, as malloc does.
    unsafe {
        libc::malloc_trim(0);
    }
}
