//! Kernel calls that no safe crate wraps: file leases, open-file-description
//! locks, sync_file_range, what happens between fork and exec, and signal masks. The
//! only unsafe code of this crate.
#![allow(unsafe_code)]

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What a file lease request came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseOutcome {
    /// Nobody has the file open for writing, and nobody can open it so while
    /// the lease is held.
    Granted,
    /// Somebody has it open for writing, or maps it so.
    OpenElsewhere,
    /// This process may not take leases here (another owner and no
    /// `CAP_LEASE`, or a file system without them).
    Unavailable,
}

/// Chooses the signal of a descriptor (`asm-generic/fcntl.h`); the libc crate
/// lacks it.
const F_SETSIG: libc::c_int = 10;

/// Takes a read lease on a file that was opened read-only (fcntl(2),
/// `F_SETLEASE`). Whoever then opens it for writing waits until the lease goes.
pub fn take_read_lease(file: BorrowedFd<'_>) -> LeaseOutcome {
    request_lease(file, libc::F_RDLCK)
}

/// Takes a write lease on a file that was opened for writing. It is granted when
/// nobody else has the file open at all, and whoever then opens it waits until
/// the lease goes.
pub fn take_write_lease(file: BorrowedFd<'_>) -> LeaseOutcome {
    request_lease(file, libc::F_WRLCK)
}

fn request_lease(file: BorrowedFd<'_>, kind: libc::c_int) -> LeaseOutcome {
    // The kernel tells the holder of a lease that somebody waits, by SIGIO,
    // whose default is to end the process. SIGURG is ignored by default; whether
    // somebody waits is asked with `lease_is_whole`.
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

/// Whether a lease that was granted is still whole, that is, whether nobody
/// waits for it to go (fcntl(2), `F_GETLEASE`).
pub fn is_read_lease_unbroken(file: BorrowedFd<'_>) -> bool {
    get_lease(file) == libc::F_RDLCK
}

/// The same of a lease that [`take_write_lease`] was granted.
pub fn is_write_lease_unbroken(file: BorrowedFd<'_>) -> bool {
    get_lease(file) == libc::F_WRLCK
}

fn get_lease(file: BorrowedFd<'_>) -> libc::c_int {
    // SAFETY: F_GETLEASE takes no argument.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLEASE) }
}

/// Gives a lease back; whoever waited may open the file now.
pub fn release_lease(file: BorrowedFd<'_>) {
    // SAFETY: as in `take_lease`. It cannot fail for a lease we hold, and for
    // one that the kernel took away there is nothing left to do.
    unsafe {
        libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK);
    }
}

/// Every byte of a file, also those it does not have yet.
const ALL_BYTES: Range<u64> = 0..0;

fn lock_request(kind: libc::c_int, bytes: &Range<u64>) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: bytes.start as libc::off_t,
        // None is all that follow.
        l_len: bytes.end.saturating_sub(bytes.start) as libc::off_t,
        l_pid: 0,
    }
}

/// Takes an exclusive lock that belongs to this open file (fcntl(2),
/// `F_OFD_SETLK`) and goes when its last descriptor is closed, however the
/// process ends. False when somebody else holds one.
///
/// # Errors
/// Whatever else the kernel answers.
pub fn try_lock(file: BorrowedFd<'_>) -> io::Result<bool> {
    try_lock_bytes(file, ALL_BYTES)
}

/// The same for some bytes, which need not exist.
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

/// Gives all locks of this open file back now: a process that this one is just
/// starting has copies of its descriptors for an instant, which would keep them
/// until then.
pub fn unlock(file: BorrowedFd<'_>) {
    unlock_bytes(file, ALL_BYTES);
}

/// Gives the locks on some bytes back.
pub fn unlock_bytes(file: BorrowedFd<'_>, bytes: Range<u64>) {
    set_lock(file, libc::F_UNLCK, &bytes);
}

fn set_lock(file: BorrowedFd<'_>, kind: libc::c_int, bytes: &Range<u64>) -> libc::c_int {
    let lock = lock_request(kind, bytes);
    // SAFETY: the kernel reads the struct, which outlives the call.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) }
}

/// A lock that an open file other than ours holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockConflict {
    /// Who holds it needs no right to write the file.
    Shared,
    /// Who holds it may write the file.
    Exclusive,
}

/// The lock that keeps `try_lock` from taking the whole file; takes none itself, so
/// that looking never makes anybody else fail (`F_OFD_GETLK`).
///
/// # Errors
/// Whatever the kernel answers.
pub fn lock_conflict(file: BorrowedFd<'_>) -> io::Result<Option<LockConflict>> {
    byte_lock_conflict(file, ALL_BYTES)
}

/// The same for some bytes.
///
/// # Errors
/// Whatever the kernel answers.
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

/// The first byte of such a lock.
///
/// # Errors
/// Whatever the kernel answers.
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

/// Lets the disk begin with what was written to a file, so that a sync later has
/// less to wait for. A hint: what comes of it is told by that sync.
pub fn start_writeback(file: BorrowedFd<'_>) {
    // SAFETY: it takes numbers only.
    unsafe {
        libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE);
    }
}

/// Waits until the content of a file is written, and tells whether writing it has
/// failed since it was opened (sync_file_range(2)). It asks for no journal and
/// no cache to be emptied: that is what a sync before it was for.
///
/// # Errors
/// That writing failed.
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

/// Gives a process that is about to be started a session of its own (setsid(2)):
/// it has no terminal then, and no key pressed at ours ends it.
pub fn start_in_own_session(command: &mut Command) {
    let begin = || rustix::process::setsid().map(drop).map_err(io::Error::from);
    // SAFETY: between fork and exec it makes one system call and touches no
    // memory that another thread could hold.
    unsafe {
        command.pre_exec(begin);
    }
}

/// Makes a process that is about to be started the foreground of the terminal that
/// is its standard input, in a group of its own: what keys send goes to it, and
/// not to us.
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

/// Makes a group of processes the foreground of a terminal. Whoever is not in the
/// foreground may do that, too: the signal that would stop it is held back.
///
/// # Errors
/// Whatever the kernel answers.
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
