//! The obligations of `src/transport.rs`, on every transport.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use memory_shepherd::digest::Digest;
use memory_shepherd::error::{Error, ErrorKind};
use memory_shepherd::file_systems::FileSystems;
use memory_shepherd::transport::bounded::BoundedTransport;
use memory_shepherd::transport::fake::FakeTransport;
use memory_shepherd::transport::local::LocalTransport;
use memory_shepherd::transport::{
    Attributes, FailureCause, FileIdentity, MemoryDirectory, MemoryObject, SettleOutcome,
    SpecialFile, SwapMethod, Transport,
};
use tempfile::TempDir;

use super::world::{TestClock, names};

pub const NEW: &str = ".shepherd-new";

/// Appends to a file that is open as long as this lives.
pub type Writer = Box<dyn FnMut(&[u8])>;

/// Where a transport is tried, and what an agent can do there behind its back.
pub trait Ground {
    fn transport(&self) -> &dyn Transport;
    /// A folder that exists and is empty at first.
    fn folder(&self) -> PathBuf;
    /// Another path to that folder, through a link.
    fn alias(&self) -> PathBuf;
    fn exchanges(&self) -> bool;
    fn write(&self, name: &str, bytes: &[u8]);
    fn bytes(&self, name: &str) -> Option<Vec<u8>>;
    fn rename(&self, from: &str, to: &str);
    fn names(&self) -> Vec<String>;
    fn put_odd(&self, name: &str, odd: &SpecialFile);
    fn odd(&self, name: &str) -> Option<SpecialFile>;
    /// Opens a file for appending; the answer writes, and closes when dropped.
    fn writer(&self, name: &str) -> Writer;
    fn attributes(&self, name: &str) -> Attributes;

    /// Lets so much time pass that a second look tells something; false where
    /// one look is enough.
    fn wait(&self) -> bool {
        false
    }

    fn memory(&self) -> PathBuf {
        self.folder().join("MEMORY.md")
    }

    fn open(&self) -> Box<dyn MemoryDirectory> {
        self.transport().open_directory(&self.memory()).unwrap()
    }

    fn probe(&self) -> MemoryObject {
        let mut found = self.transport().probe(&[&self.memory()]);
        found.pop().unwrap().unwrap()
    }
}

pub struct OnDisk<T = LocalTransport> {
    pub dir: TempDir,
    pub transport: T,
    pub exchanges: bool,
    pub clock: Arc<TestClock>,
    /// Where nobody can see who has a file open, it is looked at twice.
    pub looks_twice: bool,
}

impl OnDisk {
    pub fn new(exchanges: bool) -> OnDisk {
        let dir = TempDir::new().unwrap();
        fs::create_dir(dir.path().join("agent")).unwrap();
        symlink("agent", dir.path().join("alias")).unwrap();
        let clock = TestClock::new();
        OnDisk {
            dir,
            transport: match exchanges {
                true => LocalTransport::new(clock.clone()),
                false => LocalTransport::without_kernel_features(clock.clone()),
            },
            exchanges,
            clock,
            looks_twice: false,
        }
    }
}

impl OnDisk<BoundedTransport> {
    /// As if no file system could be trusted to answer.
    pub fn bounded() -> OnDisk<BoundedTransport> {
        let OnDisk {
            dir,
            transport,
            exchanges,
            clock,
            looks_twice,
        } = OnDisk::new(true);
        let systems = FileSystems::new(Path::new(""), Duration::from_secs(60), clock.clone());
        OnDisk {
            dir,
            transport: BoundedTransport::new(Arc::new(transport), Arc::new(systems)),
            exchanges,
            clock,
            looks_twice,
        }
    }
}

impl<T> OnDisk<T> {
    fn folder(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("agent")
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }
}

impl<T: Transport> Ground for OnDisk<T> {
    fn transport(&self) -> &dyn Transport {
        &self.transport
    }

    fn folder(&self) -> PathBuf {
        OnDisk::folder(self)
    }

    fn alias(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("alias")
    }

    fn exchanges(&self) -> bool {
        self.exchanges
    }

    fn wait(&self) -> bool {
        self.clock.advance(Duration::from_millis(250));
        self.looks_twice
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::create_dir_all(self.at(name).parent().unwrap()).unwrap();
        fs::write(self.at(name), bytes).unwrap();
    }

    fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let meta = fs::symlink_metadata(self.at(name)).ok()?;
        meta.is_file().then(|| fs::read(self.at(name)).unwrap())
    }

    fn rename(&self, from: &str, to: &str) {
        fs::create_dir_all(self.at(to).parent().unwrap()).unwrap();
        fs::rename(self.at(from), self.at(to)).unwrap();
    }

    fn names(&self) -> Vec<String> {
        names(&self.folder())
    }

    fn put_odd(&self, name: &str, odd: &SpecialFile) {
        let path = self.at(name);
        match odd {
            SpecialFile::Symlink(target) => symlink(str::from_utf8(target).unwrap(), path).unwrap(),
            SpecialFile::Directory => fs::create_dir(path).unwrap(),
            // Not by a program: what is forked has the files of other tests open
            // for a moment, and counts as their writer.
            SpecialFile::Fifo => {
                let mode = rustix::fs::Mode::from_raw_mode(0o600);
                let fifo = rustix::fs::FileType::Fifo;
                rustix::fs::mknodat(rustix::fs::CWD, path, fifo, mode, 0).unwrap();
            }
            SpecialFile::Socket => drop(UnixListener::bind(path).unwrap()),
            SpecialFile::Device | SpecialFile::ForeignHardLink(_) => panic!("needs root"),
            SpecialFile::Leased => panic!("no object of its own"),
        }
    }

    fn odd(&self, name: &str) -> Option<SpecialFile> {
        let kind = fs::symlink_metadata(self.at(name)).ok()?.file_type();
        if kind.is_symlink() {
            let target = fs::read_link(self.at(name)).unwrap();
            return Some(SpecialFile::Symlink(
                target.into_os_string().into_encoded_bytes(),
            ));
        }
        [
            (kind.is_dir(), SpecialFile::Directory),
            (kind.is_fifo(), SpecialFile::Fifo),
            (kind.is_socket(), SpecialFile::Socket),
        ]
        .into_iter()
        .find_map(|(is, odd)| is.then_some(odd))
    }

    fn writer(&self, name: &str) -> Writer {
        let options = fs::File::options().append(true).open(self.at(name));
        let mut file = options.unwrap();
        Box::new(move |bytes| file.write_all(bytes).unwrap())
    }

    fn attributes(&self, name: &str) -> Attributes {
        let meta = fs::metadata(self.at(name)).unwrap();
        Attributes {
            uid: meta.uid(),
            gid: meta.gid(),
            mode: meta.mode() & 0o7777,
            xattrs: Vec::new(),
        }
    }
}

pub struct InMemory(FakeTransport);

impl InMemory {
    pub fn new() -> InMemory {
        let fake = FakeTransport::new(TestClock::new());
        fake.make_folder("/home/agent", 1000, 100, 0o755);
        fake.put_special_file("/home/alias", SpecialFile::Symlink(b"agent".to_vec()));
        InMemory(fake)
    }
}

impl Ground for InMemory {
    fn transport(&self) -> &dyn Transport {
        &self.0
    }

    fn folder(&self) -> PathBuf {
        PathBuf::from("/home/agent")
    }

    fn alias(&self) -> PathBuf {
        PathBuf::from("/home/alias")
    }

    fn exchanges(&self) -> bool {
        true
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        self.0.write_file(self.folder().join(name), bytes);
    }

    fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        self.0.content(self.folder().join(name))
    }

    fn rename(&self, from: &str, to: &str) {
        self.0
            .rename(self.folder().join(from), self.folder().join(to));
    }

    fn names(&self) -> Vec<String> {
        self.0.list_names(self.folder())
    }

    fn put_odd(&self, name: &str, odd: &SpecialFile) {
        self.0
            .put_special_file(self.folder().join(name), odd.clone());
    }

    fn odd(&self, name: &str) -> Option<SpecialFile> {
        let found = self.0.probe(&[&self.folder().join(name)]).pop().unwrap();
        match found.unwrap() {
            MemoryObject::Special(odd) => Some(odd),
            _ => None,
        }
    }

    fn writer(&self, name: &str) -> Writer {
        let mut writer = self.0.open_writer(self.folder().join(name)).unwrap();
        Box::new(move |bytes| writer.write(bytes))
    }

    fn attributes(&self, name: &str) -> Attributes {
        self.0.attributes(self.folder().join(name)).unwrap()
    }
}

// Which transports are tried is for each test binary to say.
on_every_ground! {
    everywhere {
        absent_is_said_only_of_an_existing_folder
        a_path_through_a_link_is_refused
        probes_answer_in_order_each_for_itself
        odd_objects_are_told_and_never_read
        a_file_is_read_to_its_end
        an_error_of_the_sink_ends_the_read_and_comes_back
        a_staged_file_is_exact
        a_failed_stage_leaves_nothing
        an_existing_name_is_not_staged_over
        a_swap_displaces_exactly_what_stood_there
        a_swap_displaces_whatever_stood_there
        a_swap_into_an_empty_place_creates
        a_swap_of_nothing_fails
        a_swap_of_what_an_agent_put_at_the_staged_name_is_no_success
        a_memory_is_taken_away
        settling_inspects_and_removes
        settling_leaves_the_file_when_the_inspection_fails
        settling_removes_odd_objects_and_keeps_folders
        names_are_told
    }
    here {
        settling_waits_for_a_writer_and_reads_what_it_wrote
        extended_attributes_are_kept
    }
}

pub fn read(folder: &dyn MemoryDirectory) -> Vec<u8> {
    let mut bytes = Vec::new();
    let file = folder.read_memory(&mut |piece| {
        bytes.extend_from_slice(piece);
        Ok(())
    });
    assert_eq!(file.unwrap().stamp.size, bytes.len() as u64);
    bytes
}

pub fn stage(ground: &dyn Ground, folder: &dyn MemoryDirectory, bytes: &[u8]) -> FileIdentity {
    let attributes = folder.inherited_attributes(NEW).unwrap();
    let staged = folder.stage(NEW, &mut |sink| sink(bytes), &attributes);
    folder.link_staged(NEW).unwrap();
    assert_eq!(ground.bytes(&folder.staged_file_name(NEW)).unwrap(), bytes);
    staged.unwrap()
}

/// Settles, and gives what was inspected, each time.
pub fn settle(folder: &dyn MemoryDirectory, name: &str) -> (SettleOutcome, Vec<Vec<u8>>) {
    let mut seen = Vec::new();
    let settled = folder.settle(name, &mut |read| {
        let mut bytes = Vec::new();
        read(&mut |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })?;
        seen.push(bytes);
        Ok(())
    });
    (settled.unwrap(), seen)
}

/// The same of a file that nobody has open, with the second look where one is not enough.
///
/// A process that another test starts has the files of this one open from its fork until
/// it executes its program: it is waited for.
pub fn settle_wholly(
    ground: &dyn Ground,
    folder: &dyn MemoryDirectory,
    name: &str,
) -> (SettleOutcome, Vec<Vec<u8>>) {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        match settle(folder, name) {
            (SettleOutcome::StillOpen, seen) if ground.wait() => {
                let (settled, more) = settle(folder, name);
                return (settled, [seen, more].concat());
            }
            (SettleOutcome::StillOpen, seen) if seen.is_empty() && Instant::now() < end => {
                thread::yield_now();
            }
            settled => return settled,
        }
    }
}

fn absent_is_said_only_of_an_existing_folder(ground: &dyn Ground) {
    assert_eq!(ground.probe(), MemoryObject::Absent);
    assert_eq!(ground.open().stat_memory().unwrap(), MemoryObject::Absent);
    let lost = ground.folder().join("gone/MEMORY.md");
    let probed = ground.transport().probe(&[&lost]).pop().unwrap();
    assert_eq!(probed.unwrap_err().cause, FailureCause::NoFolder);
    let opened = ground.transport().open_directory(&lost).map(drop);
    assert_eq!(opened.unwrap_err().cause, FailureCause::NoFolder);
    ground.write("file", b"no folder");
    let inside = ground.folder().join("file/MEMORY.md");
    let probed = ground.transport().probe(&[&inside]).pop().unwrap();
    assert_eq!(probed.unwrap_err().cause, FailureCause::Refused);
}

fn a_path_through_a_link_is_refused(ground: &dyn Ground) {
    ground.write("MEMORY.md", b"x");
    ground.put_odd("sub", &SpecialFile::Directory);
    for path in [
        ground.alias().join("MEMORY.md"),
        ground.alias().join("sub/MEMORY.md"),
    ] {
        let probed = ground.transport().probe(&[&path]).pop().unwrap();
        assert_eq!(probed.unwrap_err().cause, FailureCause::Refused, "{path:?}");
        let opened = ground.transport().open_directory(&path).map(drop);
        assert_eq!(opened.unwrap_err().cause, FailureCause::Refused, "{path:?}");
    }
}

fn probes_answer_in_order_each_for_itself(ground: &dyn Ground) {
    ground.write("a", b"1");
    ground.write("c", b"333");
    let folder = ground.folder();
    let paths = ["a", "gone/b", "c", "d"].map(|name| folder.join(name));
    let found = ground
        .transport()
        .probe(&paths.each_ref().map(PathBuf::as_path));
    let size = |found: &Result<MemoryObject, _>| match found {
        Ok(MemoryObject::File(file)) => file.stamp.size,
        other => panic!("{other:?}"),
    };
    assert_eq!(found.len(), 4);
    assert_eq!(size(&found[0]), 1);
    assert_eq!(found[1].as_ref().unwrap_err().cause, FailureCause::NoFolder);
    assert_eq!(size(&found[2]), 3);
    assert_eq!(*found[3].as_ref().unwrap(), MemoryObject::Absent);
}

fn odds() -> [SpecialFile; 4] {
    [
        SpecialFile::Symlink(b"/etc/passwd".to_vec()),
        SpecialFile::Directory,
        SpecialFile::Fifo,
        SpecialFile::Socket,
    ]
}

fn odd_objects_are_told_and_never_read(ground: &dyn Ground) {
    for (number, odd) in odds().into_iter().enumerate() {
        let name = format!("memory-{number}");
        ground.put_odd(&name, &odd);
        let path = ground.folder().join(name);
        let probed = ground.transport().probe(&[&path]).pop().unwrap();
        assert_eq!(probed.unwrap(), MemoryObject::Special(odd.clone()));
        let folder = ground.transport().open_directory(&path).unwrap();
        assert_eq!(
            folder.stat_memory().unwrap(),
            MemoryObject::Special(odd.clone())
        );
        // A FIFO does not hold us.
        let read = folder.read_memory(&mut |_| panic!("{odd} was read"));
        assert!(read.is_err());
    }
}

fn a_file_is_read_to_its_end(ground: &dyn Ground) {
    let big: Vec<u8> = (0..400_000u32).flat_map(u32::to_le_bytes).collect();
    for bytes in [&b""[..], b"no newline", b"\r\n\0\xff", &big] {
        ground.write("MEMORY.md", bytes);
        let folder = ground.open();
        assert!(read(folder.as_ref()) == bytes);
        assert!(read(folder.as_ref()) == bytes, "again from its beginning");
        let MemoryObject::File(looked) = folder.stat_memory().unwrap() else {
            panic!("no file")
        };
        let done = folder.read_memory(&mut |_| Ok(())).unwrap();
        assert_eq!(done.stamp, looked.stamp);
        // A security module may have put its label on it.
        let (have, want) = (done.attributes, ground.attributes("MEMORY.md"));
        assert_eq!(
            (have.uid, have.gid, have.mode),
            (want.uid, want.gid, want.mode)
        );
    }
}

fn an_error_of_the_sink_ends_the_read_and_comes_back(ground: &dyn Ground) {
    ground.write("MEMORY.md", &[b'x'; 1 << 20]);
    let mut calls = 0;
    let error = ground.open().read_memory(&mut |_| {
        calls += 1;
        Err(Error::new(ErrorKind::Integrity, "mine"))
    });
    let error = error.unwrap_err();
    assert_eq!((error.cause, calls), (FailureCause::CallerFailed, 1));
    assert_eq!(Error::from(error), Error::new(ErrorKind::Integrity, "mine"));
}

fn a_staged_file_is_exact(ground: &dyn Ground) {
    let folder = ground.open();
    let attributes = Attributes {
        mode: 0o640,
        ..folder.inherited_attributes(NEW).unwrap()
    };
    let content = &mut |sink: memory_shepherd::transport::ByteSink<'_>| {
        sink(b"first ")?;
        sink(b"")?;
        sink(b"second\0\xff")
    };
    folder.stage(NEW, content, &attributes).unwrap();
    folder.link_staged(NEW).unwrap();
    let new = folder.staged_file_name(NEW);
    assert_eq!(ground.bytes(&new).unwrap(), b"first second\0\xff");
    assert_eq!(ground.attributes(&new), attributes);
    assert_eq!(ground.probe(), MemoryObject::Absent);
    assert_eq!(ground.names(), [NEW]);
}

fn a_failed_stage_leaves_nothing(ground: &dyn Ground) {
    let folder = ground.open();
    let attributes = folder.inherited_attributes(NEW).unwrap();
    let staged = folder.stage(
        NEW,
        &mut |sink| {
            sink(b"half")?;
            Err(Error::new(ErrorKind::Integrity, "mine"))
        },
        &attributes,
    );
    assert_eq!(Error::from(staged.unwrap_err()).message(), "mine");
    assert!(ground.names().is_empty());
}

fn an_existing_name_is_not_staged_over(ground: &dyn Ground) {
    for odd in [None, Some(SpecialFile::Symlink(b"elsewhere".to_vec()))] {
        match &odd {
            None => ground.write(NEW, b"theirs"),
            Some(odd) => ground.put_odd("link", odd),
        }
        let name = if odd.is_some() { "link" } else { NEW };
        let folder = ground.open();
        let attributes = folder.inherited_attributes(NEW).unwrap();
        let staged = folder.stage(name, &mut |sink| sink(b"ours"), &attributes);
        assert_eq!(staged.unwrap_err().cause, FailureCause::Refused);
        assert_eq!(ground.odd(name), odd);
    }
    assert_eq!(ground.bytes(NEW).unwrap(), b"theirs");
    assert_eq!(ground.names(), [NEW, "link"]);
}

fn a_swap_displaces_exactly_what_stood_there(ground: &dyn Ground) {
    ground.write("MEMORY.md", b"old");
    let folder = ground.open();
    let new = stage(ground, folder.as_ref(), b"new");
    // A save that comes after everything was looked at.
    ground.write("MEMORY.md", b"saved just now");
    let swapped = folder.swap(NEW, new).unwrap();
    let method = match ground.exchanges() {
        true => SwapMethod::Exchange,
        false => SwapMethod::TakeAway,
    };
    assert_eq!(swapped.method, method);
    let [displaced] = swapped.displaced.as_slice() else {
        panic!("{swapped:?}")
    };
    assert_eq!(ground.bytes("MEMORY.md").unwrap(), b"new");
    assert_eq!(ground.bytes(displaced).unwrap(), b"saved just now");
    assert_eq!(ground.names().len(), 2);
    let names = folder.displaced_names(NEW).unwrap();
    assert_eq!(names, swapped.displaced);
}

fn a_swap_displaces_whatever_stood_there(ground: &dyn Ground) {
    for odd in odds() {
        ground.put_odd("MEMORY.md", &odd);
        let folder = ground.open();
        let new = stage(ground, folder.as_ref(), b"new");
        let swapped = folder.swap(NEW, new).unwrap();
        assert_eq!(ground.bytes("MEMORY.md").unwrap(), b"new");
        assert_eq!(ground.odd(&swapped.displaced[0]), Some(odd.clone()));
        // Make room for the next one.
        folder
            .move_memory_aside(&format!("done-{}", ground.names().len()))
            .unwrap();
        if odd == SpecialFile::Directory {
            assert_eq!(
                settle(folder.as_ref(), &swapped.displaced[0]).0,
                SettleOutcome::Kept(odd)
            );
            return; // It stays under that name; the others were tried before.
        }
        let displaced = &swapped.displaced[0];
        settle(folder.as_ref(), displaced);
        assert!(folder.remove_special_file(displaced, &odd).unwrap());
    }
}

fn a_swap_into_an_empty_place_creates(ground: &dyn Ground) {
    let folder = ground.open();
    let new = stage(ground, folder.as_ref(), b"new");
    let swapped = folder.swap(NEW, new).unwrap();
    assert_eq!(swapped.method, SwapMethod::Create);
    assert!(swapped.displaced.is_empty());
    assert_eq!(ground.names(), ["MEMORY.md"]);
    assert_eq!(ground.bytes("MEMORY.md").unwrap(), b"new");
}

fn a_swap_of_nothing_fails(ground: &dyn Ground) {
    let folder = ground.open();
    let new = stage(ground, folder.as_ref(), b"new");
    folder.remove_name(&folder.staged_file_name(NEW)).unwrap();
    assert!(folder.swap(NEW, new).is_err());
    ground.write("MEMORY.md", b"old");
    assert!(folder.swap(NEW, new).is_err());
    // Whatever it did, nothing is lost.
    let kept = ground
        .names()
        .into_iter()
        .any(|name| ground.bytes(&name).is_some_and(|it| it == b"old"));
    assert!(kept);
}

fn a_swap_of_what_an_agent_put_at_the_staged_name_is_no_success(ground: &dyn Ground) {
    for old in [None, Some("old")] {
        let folder = ground.open();
        let new = stage(ground, folder.as_ref(), b"new");
        if let Some(old) = old {
            ground.write("MEMORY.md", old.as_bytes());
        }
        // The name is free again for a file of the agent's own, of the same size.
        folder.remove_name(&folder.staged_file_name(NEW)).unwrap();
        ground.write("planted", b"own");
        ground.rename("planted", &folder.staged_file_name(NEW));
        assert_eq!(
            folder.swap(NEW, new).unwrap_err().cause,
            FailureCause::Replaced
        );
        let mut kept = vec![ground.bytes("MEMORY.md").unwrap()];
        for name in folder.displaced_names(NEW).unwrap() {
            kept.push(ground.bytes(&name).unwrap());
            folder.remove_name(&name).unwrap();
        }
        assert!(kept.contains(&b"own".to_vec()));
        assert!(old.is_none_or(|old| kept.contains(&old.as_bytes().to_vec())));
        folder.remove_name("MEMORY.md").unwrap();
        assert!(ground.names().is_empty());
    }
}

fn a_memory_is_taken_away(ground: &dyn Ground) {
    let folder = ground.open();
    assert_eq!(
        folder.move_memory_aside("aside").unwrap_err().cause,
        FailureCause::Replaced
    );
    ground.write("MEMORY.md", b"old");
    ground.write("occupied", b"theirs");
    assert!(folder.move_memory_aside("occupied").is_err());
    assert_eq!(ground.bytes("occupied").unwrap(), b"theirs");
    assert_eq!(ground.bytes("MEMORY.md").unwrap(), b"old");
    folder.move_memory_aside("aside").unwrap();
    assert_eq!(ground.probe(), MemoryObject::Absent);
    let aside = folder.staged_file_name("aside");
    assert_eq!(ground.bytes(&aside).unwrap(), b"old");
    // It is found again, also by whoever takes over.
    let taken_over = [".shepherd-one", ".shepherd-two"].map(str::to_string);
    folder.take_over_run("aside", &taken_over[..1]).unwrap();
    ground
        .open()
        .take_over_run("aside", &taken_over[..1])
        .unwrap();
    folder.take_over_run("aside", &taken_over).unwrap();
    assert_eq!(folder.displaced_names("aside").unwrap(), [aside.as_str()]);
    assert!(folder.exists(&aside).unwrap());
    folder.remove_name(&aside).unwrap();
    assert_eq!(ground.names(), ["occupied"]);
}

fn settling_inspects_and_removes(ground: &dyn Ground) {
    ground.write("displaced", b"content");
    let folder = ground.open();
    let (settled, seen) = settle_wholly(ground, folder.as_ref(), "displaced");
    assert_eq!(settled, SettleOutcome::Removed { was_watched: true });
    assert_eq!(seen, [b"content"]);
    assert!(ground.names().is_empty());
    // What is gone is settled.
    let (settled, seen) = settle_wholly(ground, folder.as_ref(), "displaced");
    assert_eq!(settled, SettleOutcome::Removed { was_watched: true });
    assert!(seen.is_empty());
}

fn settling_waits_for_a_writer_and_reads_what_it_wrote(ground: &dyn Ground) {
    ground.write("MEMORY.md", b"old");
    let folder = ground.open();
    let mut writer = ground.writer("MEMORY.md");
    let new = stage(ground, folder.as_ref(), b"new");
    let displaced = folder.swap(NEW, new).unwrap().displaced.remove(0);
    assert_eq!(
        settle(folder.as_ref(), &displaced),
        (SettleOutcome::StillOpen, Vec::new())
    );
    writer(b" and late");
    assert_eq!(
        settle(folder.as_ref(), &displaced).0,
        SettleOutcome::StillOpen
    );
    assert_eq!(ground.bytes(&displaced).unwrap(), b"old and late");
    drop(writer);
    let (settled, seen) = settle_wholly(ground, folder.as_ref(), &displaced);
    assert_eq!(settled, SettleOutcome::Removed { was_watched: true });
    assert_eq!(seen, [b"old and late"]);
    assert_eq!(ground.names(), ["MEMORY.md"]);
}

fn settling_leaves_the_file_when_the_inspection_fails(ground: &dyn Ground) {
    ground.write("displaced", b"content");
    let folder = ground.open();
    let fail = || {
        folder.settle("displaced", &mut |_| {
            Err(Error::new(ErrorKind::Host, "disk full"))
        })
    };
    let settled = match fail() {
        Ok(SettleOutcome::StillOpen) if ground.wait() => fail(),
        settled => settled,
    };
    assert_eq!(Error::from(settled.unwrap_err()).message(), "disk full");
    assert_eq!(ground.bytes("displaced").unwrap(), b"content");
    // No lease is left behind: a writer can open it at once.
    ground.writer("displaced")(b"!");
    let (_, seen) = settle_wholly(ground, folder.as_ref(), "displaced");
    assert_eq!(seen.last().unwrap(), b"content!");
}

fn settling_removes_odd_objects_and_keeps_folders(ground: &dyn Ground) {
    let folder = ground.open();
    for odd in odds() {
        ground.put_odd("displaced", &odd);
        let (settled, seen) = settle(folder.as_ref(), "displaced");
        assert!(seen.is_empty());
        if odd == SpecialFile::Directory {
            assert_eq!(settled, SettleOutcome::Kept(odd));
            assert_eq!(ground.names(), ["displaced"]);
            return; // It stays under that name.
        }
        assert_eq!(settled, SettleOutcome::Special(odd.clone()));
        // It waits until it is described, and stays if it is something else by then.
        assert_eq!(ground.names(), ["displaced"]);
        assert!(
            !folder
                .remove_special_file("displaced", &SpecialFile::Directory)
                .unwrap()
        );
        assert!(folder.remove_special_file("displaced", &odd).unwrap());
        assert!(ground.names().is_empty());
        assert!(folder.remove_special_file("displaced", &odd).unwrap());
    }
}

fn names_are_told(ground: &dyn Ground) {
    let folder = ground.open();
    assert!(!folder.exists("name").unwrap());
    let holds = |name: &str, content: &[u8]| {
        let held = folder.find_content(name, Digest::of(content));
        held.unwrap().is_some()
    };
    assert!(!holds("name", b""));
    assert!(folder.displaced_names("name").unwrap().is_empty());
    let name = folder.staged_file_name("name");
    ground.write(&name, b"content");
    assert!(folder.exists(&name).unwrap());
    assert!(holds(&name, b"content"));
    assert!(!holds(&name, b"contents"));
    assert_eq!(folder.displaced_names("name").unwrap(), [name.as_str()]);
    ground.put_odd("link", &SpecialFile::Symlink(b"name".to_vec()));
    assert!(folder.exists("link").unwrap());
    assert!(!holds("link", b"content"));
    ground.put_odd("dangling", &SpecialFile::Symlink(b"nowhere".to_vec()));
    assert!(folder.exists("dangling").unwrap());
    folder.remove_name("link").unwrap();
    assert_eq!(ground.bytes(&name).unwrap(), b"content");
    folder.remove_name(&name).unwrap();
    folder.remove_name(&name).unwrap();
    assert_eq!(ground.names(), ["dangling"]);
}

fn extended_attributes_are_kept(ground: &dyn Ground) {
    let folder = ground.open();
    let attributes = Attributes {
        xattrs: vec![(b"user.colour".to_vec(), b"blue\0".to_vec())],
        ..folder.inherited_attributes(NEW).unwrap()
    };
    let new = match folder.stage(NEW, &mut |sink| sink(b"new"), &attributes) {
        Ok(new) => new,
        Err(error) => {
            println!("skipped: no user attributes here: {error}");
            assert!(ground.names().is_empty());
            return;
        }
    };
    folder.link_staged(NEW).unwrap();
    folder.swap(NEW, new).unwrap();
    let have = folder
        .read_memory(&mut |_| Ok(()))
        .unwrap()
        .attributes
        .xattrs;
    assert!(have.contains(&attributes.xattrs[0]), "{have:?}");
}
