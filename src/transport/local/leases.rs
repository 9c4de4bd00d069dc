//! File systems on which a lease proves that no writer has a file open.
//!
//! A lease is on an inode of this kernel. It does not detect a writer that reaches the same bytes
//! without that inode: through the upper layer of an overlay, on the server of a network file
//! system, on the host of a virtual machine, in the process behind FUSE. So leases count only on
//! file systems that are known to have no such writers.

use std::os::fd::AsFd;

use rustix::fs;

/// Type numbers (statfs(2)) of file systems where each open goes through the inode.
const LEASE_SAFE_FILE_SYSTEMS: &[i64] = &[
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // Btrfs
    0xca45_1a4e, // bcachefs
    0xf2f5_2010, // F2FS
    0x2fc1_2fc1, // ZFS
    0x3153_464a, // JFS
    0x5265_4973, // ReiserFS
    0x3434,      // NILFS2
    0x4d44,      // FAT
    0x2011_bab0, // exFAT
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
];

/// Type numbers and names of common file systems where it does not.
const LEASE_UNSAFE_FILE_SYSTEMS: &[(i64, &str)] = &[
    (0x794c_7630, "overlay"),
    (0x6573_5546, "FUSE or virtiofs"),
    (0x0102_1997, "9p"),
    (0x6969, "NFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x517b, "SMB"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x0bd0_0bd0, "Lustre"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0xf15f, "eCryptfs"),
    (0x786f_4256, "VirtualBox"),
    (0xbacb_acbc, "VMware"),
];

/// Returns why a lease on this file, or on a file in this directory, proves nothing; `None` where
/// it proves that no writer has the file open.
pub(super) fn lease_obstacle(file: impl AsFd) -> Option<String> {
    let kind = match fs::fstatfs(file) {
        Ok(system) => system.f_type,
        Err(errno) => return Some(format!("the type of its file system is unknown: {errno}")),
    };
    // Some architectures sign-extend 32 bits.
    let kind = kind & 0xffff_ffff;
    if LEASE_SAFE_FILE_SYSTEMS.contains(&kind) {
        return None;
    }
    let name = LEASE_UNSAFE_FILE_SYSTEMS
        .iter()
        .find(|(other, _)| *other == kind);
    let name = name.map_or_else(
        || format!("type {kind:#x}"),
        |(_, name)| (*name).to_string(),
    );
    Some(format!(
        "on this file system ({name}) a lease does not detect all writers"
    ))
}
