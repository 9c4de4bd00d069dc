//! The mount table of this process, from `/proc/self/mountinfo` (proc_pid_mountinfo(5)), read again
//! when the kernel reports a change. Reading it calls no file system, so it works while one hangs.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Deref;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The device number of a file system, as the kernel writes it: `MAJOR:MINOR`.
pub type DeviceNumber = String;

/// A mounted file system, without its mount point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The number of the mount.
    pub id: u32,
    /// The number of the mount that the mount point is in.
    pub parent: u32,
    /// The file system.
    pub device: DeviceNumber,
    /// The directory of the file system that is visible at the mount point.
    pub root: PathBuf,
}

/// The mounts of this process.
#[derive(Default)]
pub struct MountTable {
    /// The last one at each mount point.
    by_point: HashMap<PathBuf, Mount>,
    /// All of them, the shortest mount points first.
    all: Vec<(PathBuf, Mount)>,
    ids: HashSet<u32>,
}

impl FromIterator<(PathBuf, Mount)> for MountTable {
    fn from_iter<I: IntoIterator<Item = (PathBuf, Mount)>>(mounts: I) -> MountTable {
        let mut all: Vec<(PathBuf, Mount)> = mounts.into_iter().collect();
        let by_point = all.iter().cloned().collect();
        all.sort_by_key(|(point, _)| point.as_os_str().len());
        MountTable {
            by_point,
            ids: all.iter().map(|(_, mount)| mount.id).collect(),
            all,
        }
    }
}

impl Deref for MountTable {
    type Target = HashMap<PathBuf, Mount>;

    fn deref(&self) -> &Self::Target {
        &self.by_point
    }
}

impl MountTable {
    /// Returns the mount that an absolute path without symlinks leads to, and its mount point. A mount
    /// on a directory hides those below it that were there before, wherever the table lists them: each
    /// mount on the way has to be in the one before.
    pub fn mount_of(&self, path: &Path) -> Option<(&Path, &Mount)> {
        let spelled = (path, is_plain(path));
        let crossed = self.all.iter();
        let crossed = crossed.filter(|(point, _)| is_at_or_below(spelled, point));
        let crossed: Vec<&(PathBuf, Mount)> = crossed.collect();
        let mut found: Option<&(PathBuf, Mount)> = None;
        let is_next =
            |found: Option<&(PathBuf, Mount)>, (point, mount): &(PathBuf, Mount)| match found {
                Some((last_point, last)) => {
                    mount.parent == last.id && mount.id != last.id && point.starts_with(last_point)
                }
                None => !self.ids.contains(&mount.parent) || mount.parent == mount.id,
            };
        // Each step finds a mount further down, so there are no more steps than mounts.
        for _ in 0..crossed.len() {
            match crossed.iter().find(|it| is_next(found, it)) {
                Some(next) => found = Some(next),
                None => break,
            }
        }
        found.map(|(point, mount)| (point.as_path(), mount))
    }

    /// Whether a directory of a file system may be visible at two places. A mount that shows a
    /// directory where it is anyway, as the sandbox of a service does, adds no place.
    pub fn has_aliases(&self) -> bool {
        let mounts = self.all.iter().filter(|(point, mount)| {
            let above = self.all.iter().find(|(_, it)| it.id == mount.parent);
            !above.is_some_and(|above| shows_same_place(above, point, mount))
        });
        let mut roots: HashMap<&str, Vec<&Path>> = HashMap::new();
        for (_, mount) in mounts {
            let root = mount.root.as_path();
            let others = roots.entry(&mount.device).or_default();
            let overlaps = |it: &&Path| it.starts_with(root) || root.starts_with(it);
            if others.iter().any(overlaps) {
                return true;
            }
            others.push(root);
        }
        false
    }
}

/// Whether a mount shows what its mount point shows in the mount above it.
fn shows_same_place(above: &(PathBuf, Mount), point: &Path, mount: &Mount) -> bool {
    let (above_point, above) = above;
    let is_below = |rest: &Path| above.root.join(rest) == mount.root;
    above.id != mount.id
        && above.device == mount.device
        && point.strip_prefix(above_point).is_ok_and(is_below)
}

/// A cache of the mount table.
pub struct MountTableCache {
    state: Mutex<MountState>,
}

struct MountState {
    /// None if there is no `/proc`.
    file: Option<File>,
    table: Option<Arc<MountTable>>,
}

impl MountTableCache {
    /// Opens the table of this process without reading it.
    pub fn new() -> MountTableCache {
        MountTableCache {
            state: Mutex::new(MountState {
                file: File::open("/proc/self/mountinfo").ok(),
                table: None,
            }),
        }
    }

    /// Returns the current table; empty if it cannot be read.
    pub fn current(&self) -> Arc<MountTable> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let MountState { file, table } = &mut *state;
        let changed = file.as_ref().is_none_or(has_changed);
        if let Some(table) = table.as_ref().filter(|_| !changed) {
            return Arc::clone(table);
        }
        let mut text = Vec::new();
        if let Some(file) = file {
            // A partly read table is better than none.
            let _ = file.seek(SeekFrom::Start(0));
            let _ = file.read_to_end(&mut text);
        }
        Arc::clone(table.insert(Arc::new(parse_mount_table(&text))))
    }
}

/// Whether the kernel has changed the table since it was read (proc_pid_mounts(5)).
fn has_changed(file: &File) -> bool {
    let mut polled = [PollFd::new(file, PollFlags::PRI)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Parses the table. A mount over another one comes later and replaces it.
fn parse_mount_table(text: &[u8]) -> MountTable {
    let lines = text.split(|byte| *byte == b'\n');
    let mount = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ');
        let mut number = || str::from_utf8(fields.next()?).ok()?.parse().ok();
        let (id, parent) = (number()?, number()?);
        let mount = Mount {
            id,
            parent,
            device: String::from_utf8(fields.next()?.to_vec()).ok()?,
            root: decode_path(fields.next()?),
        };
        Some((decode_path(fields.next()?), mount))
    };
    lines.filter_map(mount).collect()
}

fn decode_path(field: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescape_octal(field)))
}

/// Decodes `\040` and the like: three octal digits for characters that separate fields.
fn unescape_octal(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, after @ ..] = rest {
        let octal = |digits: &[u8]| {
            let text = str::from_utf8(digits).ok()?;
            u8::from_str_radix(text, 8).ok()
        };
        let escaped = after.get(..3).filter(|_| *first == b'\\').and_then(octal);
        plain.push(escaped.unwrap_or(*first));
        rest = match escaped {
            Some(_) => &after[3..],
            None => after,
        };
    }
    plain
}

/// Whether the bytes of a path are those of its names alone: others may spell the same names.
pub fn is_plain(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    !bytes.windows(2).any(|pair| matches!(pair, b"//" | b"/."))
}

/// Whether a path, plain or not, is a mount point or below it. The bytes of a plain path exclude most
/// mount points.
pub fn is_at_or_below((path, is_plain): (&Path, bool), point: &Path) -> bool {
    let (bytes, prefix) = (path.as_os_str().as_bytes(), point.as_os_str().as_bytes());
    (!is_plain || bytes.starts_with(prefix)) && path.starts_with(point)
}

/// Returns the file systems that a path crosses from the root, by device, each with its outermost
/// mount point. The path must have no symlinks; the paths of memories have none.
pub fn crossed_file_systems(table: &MountTable, path: &Path) -> BTreeMap<DeviceNumber, PathBuf> {
    let mut found = BTreeMap::new();
    let mut outermost: Vec<&Path> = path.ancestors().collect();
    outermost.reverse();
    for point in outermost {
        if let Some(mount) = table.get(point) {
            found
                .entry(mount.device.clone())
                .or_insert_with(|| point.to_path_buf());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip::skip_unsupported;

    const MOUNT_TABLE: &str = "\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
40 27 0:51 / /srv/far\\040away rw - nfs4 host:/x rw
41 40 0:52 / /srv/far\\040away/deep rw - fuse.sshfs x rw
42 27 254:0 /srv /bind rw - ext4 /dev/vda rw
43 27 0:60 / /over rw - tmpfs tmpfs rw
44 43 0:61 / /over rw - tmpfs tmpfs rw
";

    fn crossed_devices(path: &str) -> Vec<(String, String)> {
        let found =
            crossed_file_systems(&parse_mount_table(MOUNT_TABLE.as_bytes()), Path::new(path));
        let shown = |(device, point): (String, PathBuf)| (device, point.display().to_string());
        found.into_iter().map(shown).collect()
    }

    #[test]
    fn path_crosses_every_mount_above_it() {
        let pair = |device: &str, point: &str| (device.to_string(), point.to_string());
        assert_eq!(crossed_devices("/srv/scout/M.md"), [pair("254:0", "/")]);
        assert_eq!(
            crossed_devices("/srv/far away/deep/M.md"),
            [
                pair("0:51", "/srv/far away"),
                pair("0:52", "/srv/far away/deep"),
                pair("254:0", "/"),
            ]
        );
        // The same file system under another name, and a mount that hides another.
        assert_eq!(crossed_devices("/bind/M.md"), [pair("254:0", "/")]);
        let over = crossed_devices("/over/M.md");
        assert_eq!(over, [pair("0:61", "/over"), pair("254:0", "/")]);
    }

    #[test]
    fn mount_over_a_parent_hides_those_below() {
        let table = "\
27 1 254:0 / / rw - ext4 /dev/vda rw
40 27 0:51 / /x/y rw - tmpfs none rw
41 27 254:0 /parent /x rw - ext4 /dev/vda rw
42 27 0:52 / /xx rw - tmpfs none rw
43 42 254:0 /src /xx rw - ext4 /dev/vda rw
44 40 0:53 / /x/y/z rw - tmpfs none rw
";
        let table = parse_mount_table(table.as_bytes());
        let id = |path: &str| table.mount_of(Path::new(path)).unwrap().1.id;
        assert_eq!(id("/x/y/M.md"), 41);
        assert_eq!(id("/x/y/z/M.md"), 41);
        assert_eq!(id("/xx/M.md"), 43);
        assert_eq!(id("/xxx/M.md"), 27);
        // Without the root of the file system, as in a chroot.
        let table = parse_mount_table(b"41 27 254:0 /parent /x rw - ext4 /dev/vda rw\n");
        assert!(table.mount_of(Path::new("/y")).is_none());
        assert_eq!(table.mount_of(Path::new("/x/y")).unwrap().1.id, 41);
    }

    #[test]
    fn mount_table_of_process_has_a_root() {
        let mounts = MountTableCache::new();
        let table = mounts.current();
        if table.is_empty() {
            skip_unsupported("no /proc/self/mountinfo here");
            return;
        }
        assert!(table.contains_key(Path::new("/")));
        assert!(Arc::ptr_eq(&table, &mounts.current()), "read once");
    }
}
