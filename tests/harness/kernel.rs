//! Agents' kernel calls that no safe crate wraps: mappings, leases and changes of user. The only
//! unsafe code of the harness.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// A writable shared mapping of a whole file. It keeps the file open for writing after its
/// descriptor is closed.
pub struct SharedMapping {
    address: *mut libc::c_void,
    length: usize,
}

impl SharedMapping {
    pub fn new(file: &File) -> io::Result<SharedMapping> {
        let length = file.metadata()?.len() as usize;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses a free address; accessing a file shorter than the mapping
        // would end the process, and no test truncates this one.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                access,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(SharedMapping {
            address: at,
            length,
        })
    }

    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.length);
        // SAFETY: inside the mapping, as was just checked.
        unsafe {
            let to = self.address.cast::<u8>().add(offset);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: `new` mapped it, and no pointer into it is left.
        unsafe { libc::munmap(self.address, self.length) };
    }
}

/// Makes this thread, and no other, a user without any right of root, permanently. The library's
/// functions would change all threads; the kernel's calls do not.
pub fn become_user(id: u32) {
    let none: *const libc::gid_t = std::ptr::null();
    // SAFETY: these take numbers, and a list of no groups.
    let refused = unsafe {
        libc::syscall(libc::SYS_setgroups, 0, none) != 0
            || libc::syscall(libc::SYS_setresgid, id, id, id) != 0
            || libc::syscall(libc::SYS_setresuid, id, id, id) != 0
    };
    assert!(!refused, "{}", io::Error::last_os_error());
}

/// Chooses the signal of a descriptor (`asm-generic/fcntl.h`); the libc crate lacks it.
const F_SETSIG: libc::c_int = 10;

/// A write lease on a file: it keeps every other process from opening the file.
pub struct WriteLease(File);

impl WriteLease {
    pub fn take(file: File) -> io::Result<WriteLease> {
        let lease = WriteLease(file);
        if lease.set_lease(libc::F_WRLCK) {
            Ok(lease)
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Lets the waiting process open the file, and takes a new lease if no other process opens it
    /// first. Returns true when a process had waited.
    pub fn renew(&self) -> bool {
        let wanted = self.is_break_requested();
        if wanted {
            self.set_lease(libc::F_UNLCK);
            self.set_lease(libc::F_WRLCK);
        }
        wanted
    }

    /// Returns whether another process waits to open the file.
    pub fn is_break_requested(&self) -> bool {
        // SAFETY: it takes no argument.
        let kind = unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_GETLEASE) };
        kind != libc::F_WRLCK
    }

    fn set_lease(&self, kind: libc::c_int) -> bool {
        let file = self.0.as_raw_fd();
        // SAFETY: these take numbers. The chosen signal is ignored; the default one, which is back
        // after each lease, would end this process.
        unsafe {
            libc::fcntl(file, F_SETSIG, libc::SIGURG);
            libc::fcntl(file, libc::F_SETLEASE, kind) == 0
        }
    }
}
