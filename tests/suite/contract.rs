//! Obligations of `src/transport.rs`, tested on every transport.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::fake_transport::FakeTransport;
use memory_shepherd::base::digest::Digest;
use memory_shepherd::base::error::{Error, ErrorKind};
use memory_shepherd::base::file_systems::FileSystems;
use memory_shepherd::config::SftpExtension;
use memory_shepherd::transport::bounded::BoundedTransport;
use memory_shepherd::transport::local::LocalTransport;
use memory_shepherd::transport::{
    Attributes, ByteSink, DirectoryEntry, DisplacedObject, FailureCause, InstalledMemory,
    InterruptedRun, MAX_PAGE_ENTRIES, MemoryDirectory, MemoryObject, NewMemory, RecoveredRun,
    SettleOutcome, SpecialFile, StagedAttributes, SwapMethod, SwapOutcome, SwapProgress, Transport,
    TransportError,
};
use tempfile::TempDir;

// The tests of hosts include this file at another path.
#[path = "contract/several_files.rs"]
mod several_files;

use self::several_files::{
    decided_swap_is_begun_by_a_recovery, directory_is_created_and_removed_while_empty,
    named_staged_file_is_committed, swap_that_had_not_begun_is_given_up,
};
use super::world::{TestClock, sorted_names};
use crate::skip::skip_unsupported;

pub const STAGED_NAME: &str = ".shepherd-new";

/// Appends to a file that stays open until this value is dropped.
pub type AppendWriter = Box<dyn FnMut(&[u8])>;

/// The transport under test, with the actions of an agent that bypasses it.
pub trait TransportFixture {
    fn transport(&self) -> &dyn Transport;
    /// A directory that exists and is empty at first.
    fn directory(&self) -> PathBuf;
    /// Another path to that directory, through a symlink.
    fn symlinked_directory(&self) -> PathBuf;
    fn can_exchange(&self) -> bool;
    fn write(&self, name: &str, read_bytes: &[u8]);
    fn bytes(&self, name: &str) -> Option<Vec<u8>>;
    fn rename(&self, from: &str, to: &str);
    fn names(&self) -> Vec<String>;
    fn create_special_file(&self, name: &str, special_file_at: &SpecialFile);
    fn special_file(&self, name: &str) -> Option<SpecialFile>;
    /// Opens a file for appending; the returned value writes, and closes when dropped.
    fn open_writer(&self, name: &str) -> AppendWriter;
    fn read_attributes(&self, name: &str) -> Attributes;
    /// Where the staged file has its name.
    fn staged_file_name(&self) -> String {
        STAGED_NAME.to_string()
    }
    /// Makes an agent remove the staged file once it has a name, right before the swap, and
    /// put a file of its own in its place if it is given one.
    fn replace_staged_before_swap(&self, own: Option<&'static [u8]>);

    /// Advances the clock until a second inspection is meaningful; returns false where
    /// one inspection is enough.
    fn advance_past_second_check(&self) -> bool {
        false
    }

    fn memory_path(&self) -> PathBuf {
        self.directory().join("MEMORY.md")
    }

    fn open_directory(&self) -> Box<dyn MemoryDirectory> {
        self.transport()
            .open_directory(&self.memory_path())
            .unwrap()
    }

    fn probe_memory(&self) -> MemoryObject {
        let mut found = self.transport().probe(&[&self.memory_path()]);
        found.pop().unwrap().unwrap()
    }
}

/// What an agent does between the link of a staged file and the swap.
pub type LinkAction = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

pub struct DiskFixture<T = LocalTransport> {
    pub dir: TempDir,
    pub transport: T,
    pub can_exchange: bool,
    pub clock: Arc<TestClock>,
    /// Whether files are inspected twice, as where the transport cannot see who has them open.
    pub settles_twice: bool,
    /// `None` where a staged file has its name at once, in a directory of the run.
    pub link_action: Option<LinkAction>,
}

impl DiskFixture {
    pub fn new(exchanges: bool) -> DiskFixture {
        let dir = TempDir::new().unwrap();
        fs::create_dir(dir.path().join("agent")).unwrap();
        symlink("agent", dir.path().join("alias")).unwrap();
        let clock = TestClock::new();
        let transport = match exchanges {
            true => LocalTransport::new(clock.clone()),
            false => LocalTransport::without_kernel_features(clock.clone()),
        };
        let link_action = LinkAction::default();
        let action = Arc::clone(&link_action);
        let transport = transport.with_link_hook(Arc::new(move || {
            if let Some(act) = action.lock().unwrap().take() {
                act();
            }
            Ok(())
        }));
        DiskFixture {
            dir,
            transport,
            can_exchange: exchanges,
            clock,
            settles_twice: false,
            link_action: Some(link_action),
        }
    }
}

impl DiskFixture<BoundedTransport> {
    /// A fixture that trusts no file system to answer in time.
    pub fn bounded() -> DiskFixture<BoundedTransport> {
        let DiskFixture {
            dir,
            transport,
            can_exchange: exchanges,
            clock,
            settles_twice: looks_twice,
            link_action,
        } = DiskFixture::new(true);
        let systems = FileSystems::new(Path::new(""), Duration::from_secs(60), clock.clone());
        DiskFixture {
            dir,
            transport: BoundedTransport::new(Arc::new(transport), Arc::new(systems)),
            can_exchange: exchanges,
            clock,
            settles_twice: looks_twice,
            link_action,
        }
    }
}

impl<T> DiskFixture<T> {
    fn directory(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("agent")
    }

    fn path_of(&self, name: &str) -> PathBuf {
        self.directory().join(name)
    }
}

impl<T: Transport> TransportFixture for DiskFixture<T> {
    fn transport(&self) -> &dyn Transport {
        &self.transport
    }

    fn directory(&self) -> PathBuf {
        DiskFixture::directory(self)
    }

    fn symlinked_directory(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("alias")
    }

    fn can_exchange(&self) -> bool {
        self.can_exchange
    }

    fn advance_past_second_check(&self) -> bool {
        self.clock.advance(Duration::from_millis(250));
        self.settles_twice
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::create_dir_all(self.path_of(name).parent().unwrap()).unwrap();
        fs::write(self.path_of(name), bytes).unwrap();
    }

    fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let meta = fs::symlink_metadata(self.path_of(name)).ok()?;
        meta.is_file()
            .then(|| fs::read(self.path_of(name)).unwrap())
    }

    fn rename(&self, from: &str, to: &str) {
        fs::create_dir_all(self.path_of(to).parent().unwrap()).unwrap();
        fs::rename(self.path_of(from), self.path_of(to)).unwrap();
    }

    fn names(&self) -> Vec<String> {
        sorted_names(&self.directory())
    }

    fn create_special_file(&self, name: &str, special: &SpecialFile) {
        let path = self.path_of(name);
        match special {
            SpecialFile::Symlink(target) => symlink(str::from_utf8(target).unwrap(), path).unwrap(),
            SpecialFile::Directory => fs::create_dir(path).unwrap(),
            // The test writes in its own process: a forked one inherits the open files
            // of other tests for a moment, and counts as their writer.
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

    fn special_file(&self, name: &str) -> Option<SpecialFile> {
        let kind = fs::symlink_metadata(self.path_of(name)).ok()?.file_type();
        if kind.is_symlink() {
            let target = fs::read_link(self.path_of(name)).unwrap();
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
        .find_map(|(is, special)| is.then_some(special))
    }

    fn open_writer(&self, name: &str) -> AppendWriter {
        let options = fs::File::options().append(true).open(self.path_of(name));
        let mut file = options.unwrap();
        Box::new(move |bytes| file.write_all(bytes).unwrap())
    }

    fn read_attributes(&self, name: &str) -> Attributes {
        let meta = fs::metadata(self.path_of(name)).unwrap();
        Attributes {
            uid: meta.uid(),
            gid: meta.gid(),
            mode: meta.mode() & 0o7777,
            xattrs: Vec::new(),
        }
    }

    fn staged_file_name(&self) -> String {
        match self.link_action {
            Some(_) => STAGED_NAME.to_string(),
            None => format!("{STAGED_NAME}/new"),
        }
    }

    fn replace_staged_before_swap(&self, own: Option<&'static [u8]>) {
        let staged = self.path_of(&self.staged_file_name());
        let planted = self.path_of("planted");
        let act = move || {
            fs::remove_file(&staged).unwrap();
            if let Some(own) = own {
                fs::write(&planted, own).unwrap();
                fs::rename(planted, staged).unwrap();
            }
        };
        match &self.link_action {
            Some(action) => *action.lock().unwrap() = Some(Box::new(act)),
            None => act(),
        }
    }
}

pub struct FakeFixture(FakeTransport);

impl FakeFixture {
    pub fn new() -> FakeFixture {
        let fake = FakeTransport::new(TestClock::new());
        fake.make_directory("/home/agent", 1000, 100, 0o755);
        fake.put_special_file("/home/alias", SpecialFile::Symlink(b"agent".to_vec()));
        FakeFixture(fake)
    }
}

impl TransportFixture for FakeFixture {
    fn transport(&self) -> &dyn Transport {
        &self.0
    }

    fn directory(&self) -> PathBuf {
        PathBuf::from("/home/agent")
    }

    fn symlinked_directory(&self) -> PathBuf {
        PathBuf::from("/home/alias")
    }

    fn can_exchange(&self) -> bool {
        true
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        self.0.write_file(self.directory().join(name), bytes);
    }

    fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        self.0.content(self.directory().join(name))
    }

    fn rename(&self, from: &str, to: &str) {
        self.0
            .rename(self.directory().join(from), self.directory().join(to));
    }

    fn names(&self) -> Vec<String> {
        self.0.list_names(self.directory())
    }

    fn create_special_file(&self, name: &str, special: &SpecialFile) {
        self.0
            .put_special_file(self.directory().join(name), special.clone());
    }

    fn special_file(&self, name: &str) -> Option<SpecialFile> {
        let found = self.0.probe(&[&self.directory().join(name)]).pop().unwrap();
        match found.unwrap() {
            MemoryObject::Special(special) => Some(special),
            _ => None,
        }
    }

    fn open_writer(&self, name: &str) -> AppendWriter {
        let mut writer = self.0.open_writer(self.directory().join(name)).unwrap();
        Box::new(move |bytes| writer.write(bytes))
    }

    fn read_attributes(&self, name: &str) -> Attributes {
        self.0.attributes(self.directory().join(name)).unwrap()
    }

    fn replace_staged_before_swap(&self, own: Option<&'static [u8]>) {
        let staged = self.directory().join(STAGED_NAME);
        self.0.delete(&staged);
        if let Some(own) = own {
            self.0.write_file(staged, own);
        }
    }
}

// Each test binary chooses its transports.
on_every_transport! {
    everywhere {
        absent_is_reported_only_in_existing_directory
        path_through_symlink_is_refused
        probe_results_are_ordered_and_independent
        special_files_are_reported_and_never_read
        file_is_read_to_its_end
        sink_error_ends_the_read_and_is_returned
        listing_has_every_name_with_its_object
        listing_comes_in_pages
        listing_refuses_symlinks_and_absent_directories
        staged_file_has_exact_bytes_and_attributes
        failed_stage_leaves_nothing
        stage_does_not_overwrite_existing_name
        swap_displaces_current_file
        swap_displaces_any_special_file
        swap_without_memory_creates_it
        swap_without_staged_file_fails
        swap_of_file_planted_at_staged_name_fails
        take_away_moves_the_memory_aside
        settle_inspects_and_removes
        settle_keeps_file_when_inspection_fails
        settle_removes_special_files_keeps_directories
        recovery_finds_a_swap_and_what_it_displaced
        recovery_finds_a_created_memory
        recovery_finishes_an_interrupted_swap
        recovery_before_the_swap_keeps_the_memory
        recovery_ignores_names_of_others
        named_staged_file_is_committed
        decided_swap_is_begun_by_a_recovery
        swap_that_had_not_begun_is_given_up
        directory_is_created_and_removed_while_empty
    }
    here {
        settle_waits_for_writer_and_reads_late_bytes
        extended_attributes_are_kept
    }
}

pub fn read_file(directory: &dyn MemoryDirectory) -> Vec<u8> {
    let mut bytes = Vec::new();
    let file = directory.read_memory(&mut |piece| {
        bytes.extend_from_slice(piece);
        Ok(())
    });
    assert_eq!(file.unwrap().stamp.size, bytes.len() as u64);
    bytes
}

pub fn stage_file(directory: &dyn MemoryDirectory, bytes: &[u8]) {
    let mut content = |sink: ByteSink<'_>| sink(bytes);
    let staged = claim_and_stage(
        directory,
        STAGED_NAME,
        &mut content,
        StagedAttributes::Inherited,
    );
    staged.unwrap();
}

/// Claims a run's name, and creates its new file.
fn claim_and_stage(
    directory: &dyn MemoryDirectory,
    run: &str,
    content: &mut dyn FnMut(ByteSink<'_>) -> Result<(), Error>,
    attributes: StagedAttributes,
) -> Result<Vec<SftpExtension>, TransportError> {
    directory.claim(run)?;
    directory.stage(run, content, attributes)
}

/// Claims a run's name, and moves the memory aside.
fn take_away(directory: &dyn MemoryDirectory, run: &str) -> Result<SwapOutcome, TransportError> {
    directory.claim(run)?;
    directory.commit(run, NewMemory::Nothing)
}

pub fn commit_staged(directory: &dyn MemoryDirectory) -> Result<SwapOutcome, TransportError> {
    let new = NewMemory::StagedFile {
        accepts_in_place: false,
    };
    directory.commit(STAGED_NAME, new)
}

/// Replaces a memory "old" that a writer has open. Returns the directory, the displaced file and
/// the writer.
pub fn displace_open_memory(
    fixture: &dyn TransportFixture,
) -> (Box<dyn MemoryDirectory>, String, AppendWriter) {
    fixture.write("MEMORY.md", b"old");
    let directory = fixture.open_directory();
    let writer = fixture.open_writer("MEMORY.md");
    stage_file(directory.as_ref(), b"new");
    let mut swapped = commit_staged(directory.as_ref()).unwrap();
    (directory, swapped.displaced.remove(0), writer)
}

/// Returns a run that was interrupted while it installed this content, before it was known whether
/// it had replaced the memory.
pub fn interrupted_run(content: &[u8]) -> InterruptedRun {
    InterruptedRun {
        name: STAGED_NAME.to_string(),
        takeover_names: vec![".shepherd-one".to_string()],
        directory_id: None,
        memory_inode: 0,
        creates_memory: false,
        installed: InstalledMemory::File {
            content: Digest::of(content),
            size: content.len() as u64,
        },
        progress: SwapProgress::Unknown,
        displaced: None,
    }
}

/// Reads a displaced file, in an inspection.
pub fn read_displaced(object: DisplacedObject<'_>, sink: ByteSink<'_>) -> Result<(), Error> {
    match object {
        DisplacedObject::File(read) => Ok(read(sink).map(drop)?),
        DisplacedObject::Special(special) => panic!("it is {special}"),
    }
}

/// Settles a file; returns the content of each inspection.
pub fn settle_and_collect(
    directory: &dyn MemoryDirectory,
    name: &str,
) -> (SettleOutcome, Vec<Vec<u8>>) {
    let mut seen = Vec::new();
    let settled = directory.settle(name, &mut |object| {
        if let DisplacedObject::File(_) = object {
            let mut bytes = Vec::new();
            read_displaced(object, &mut |piece| {
                bytes.extend_from_slice(piece);
                Ok(())
            })?;
            seen.push(bytes);
        }
        Ok(())
    });
    (settled.unwrap(), seen)
}

/// Settles a file that no process has open, with the second inspection where one is not
/// enough.
///
/// A process that another test starts has the files of this one open from its fork
/// until it executes its program; this function waits for that.
pub fn settle_fully(
    fixture: &dyn TransportFixture,
    directory: &dyn MemoryDirectory,
    name: &str,
) -> (SettleOutcome, Vec<Vec<u8>>) {
    let end = Instant::now() + Duration::from_secs(10);
    let mut all = Vec::new();
    loop {
        let (settled, seen) = settle_and_collect(directory, name);
        if settled == SettleOutcome::StillOpen && fixture.advance_past_second_check() {
            let (settled, more) = settle_and_collect(directory, name);
            return (settled, [seen, more].concat());
        }
        // A file that is looked at again is the same.
        let new = seen.into_iter().filter(|it| all.last() != Some(it));
        let new: Vec<Vec<u8>> = new.collect();
        all.extend(new);
        if settled != SettleOutcome::StillOpen || Instant::now() >= end {
            return (settled, all);
        }
        thread::yield_now();
    }
}

fn absent_is_reported_only_in_existing_directory(fixture: &dyn TransportFixture) {
    assert_eq!(fixture.probe_memory(), MemoryObject::Absent);
    assert_eq!(
        fixture.open_directory().stat_memory().unwrap(),
        MemoryObject::Absent
    );
    let lost = fixture.directory().join("gone/MEMORY.md");
    let probed = fixture.transport().probe(&[&lost]).pop().unwrap();
    assert_eq!(probed.unwrap_err().cause, FailureCause::NoDirectory);
    let opened = fixture.transport().open_directory(&lost).map(drop);
    assert_eq!(opened.unwrap_err().cause, FailureCause::NoDirectory);
    fixture.write("file", b"no directory");
    let inside = fixture.directory().join("file/MEMORY.md");
    let probed = fixture.transport().probe(&[&inside]).pop().unwrap();
    assert_eq!(probed.unwrap_err().cause, FailureCause::Refused);
}

fn path_through_symlink_is_refused(fixture: &dyn TransportFixture) {
    fixture.write("MEMORY.md", b"x");
    fixture.create_special_file("sub", &SpecialFile::Directory);
    for path in [
        fixture.symlinked_directory().join("MEMORY.md"),
        fixture.symlinked_directory().join("sub/MEMORY.md"),
    ] {
        let probed = fixture.transport().probe(&[&path]).pop().unwrap();
        assert_eq!(probed.unwrap_err().cause, FailureCause::Refused, "{path:?}");
        let opened = fixture.transport().open_directory(&path).map(drop);
        assert_eq!(opened.unwrap_err().cause, FailureCause::Refused, "{path:?}");
    }
}

fn probe_results_are_ordered_and_independent(fixture: &dyn TransportFixture) {
    fixture.write("a", b"1");
    fixture.write("c", b"333");
    let directory = fixture.directory();
    let paths = ["a", "gone/b", "c", "d"].map(|name| directory.join(name));
    let found = fixture
        .transport()
        .probe(&paths.each_ref().map(PathBuf::as_path));
    let size = |found: &Result<MemoryObject, _>| match found {
        Ok(MemoryObject::File(file)) => file.stamp.size,
        other => panic!("{other:?}"),
    };
    assert_eq!(found.len(), 4);
    assert_eq!(size(&found[0]), 1);
    assert_eq!(
        found[1].as_ref().unwrap_err().cause,
        FailureCause::NoDirectory
    );
    assert_eq!(size(&found[2]), 3);
    assert_eq!(*found[3].as_ref().unwrap(), MemoryObject::Absent);
}

fn special_files() -> [SpecialFile; 4] {
    [
        SpecialFile::Symlink(b"/etc/passwd".to_vec()),
        SpecialFile::Directory,
        SpecialFile::Fifo,
        SpecialFile::Socket,
    ]
}

fn special_files_are_reported_and_never_read(fixture: &dyn TransportFixture) {
    for (number, special) in special_files().into_iter().enumerate() {
        let name = format!("memory-{number}");
        fixture.create_special_file(&name, &special);
        let path = fixture.directory().join(name);
        let probed = fixture.transport().probe(&[&path]).pop().unwrap();
        assert_eq!(probed.unwrap(), MemoryObject::Special(special.clone()));
        let directory = fixture.transport().open_directory(&path).unwrap();
        assert_eq!(
            directory.stat_memory().unwrap(),
            MemoryObject::Special(special.clone())
        );
        // Opening a FIFO does not block.
        let read = directory.read_memory(&mut |_| panic!("{special} was read"));
        assert!(read.is_err());
    }
}

fn file_is_read_to_its_end(fixture: &dyn TransportFixture) {
    let big: Vec<u8> = (0..400_000u32).flat_map(u32::to_le_bytes).collect();
    for bytes in [&b""[..], b"no newline", b"\r\n\0\xff", &big] {
        fixture.write("MEMORY.md", bytes);
        let directory = fixture.open_directory();
        assert!(read_file(directory.as_ref()) == bytes);
        assert!(
            read_file(directory.as_ref()) == bytes,
            "not read from its beginning"
        );
        let MemoryObject::File(looked) = directory.stat_memory().unwrap() else {
            panic!("no file")
        };
        let done = directory.read_memory(&mut |_| Ok(())).unwrap();
        assert_eq!(done.stamp, looked.stamp);
        // A security module may have added its label.
        let (have, want) = (done.attributes, fixture.read_attributes("MEMORY.md"));
        assert_eq!(
            (have.uid, have.gid, have.mode),
            (want.uid, want.gid, want.mode)
        );
    }
}

fn sink_error_ends_the_read_and_is_returned(fixture: &dyn TransportFixture) {
    fixture.write("MEMORY.md", &[b'x'; 1 << 20]);
    let mut calls = 0;
    let error = fixture.open_directory().read_memory(&mut |_| {
        calls += 1;
        Err(Error::new(ErrorKind::Integrity, "mine"))
    });
    let error = error.unwrap_err();
    assert_eq!((error.cause, calls), (FailureCause::CallerFailed, 1));
    assert_eq!(Error::from(error), Error::new(ErrorKind::Integrity, "mine"));
}

/// Returns the pages of a listing.
fn list_pages(fixture: &dyn TransportFixture, directory: &Path) -> Vec<Vec<DirectoryEntry>> {
    let mut listing = fixture.transport().list_directory(directory).unwrap();
    let mut pages = Vec::new();
    while let Some(page) = listing.next_page().unwrap() {
        pages.push(page);
    }
    assert!(listing.next_page().unwrap().is_none());
    pages
}

fn listing_has_every_name_with_its_object(fixture: &dyn TransportFixture) {
    let empty = list_pages(fixture, &fixture.directory());
    assert!(names_in_pages(&empty).is_empty());
    fixture.write("MEMORY.md", b"four");
    fixture.write(".hidden", b"");
    fixture.create_special_file("inbox", &SpecialFile::Directory);
    fixture.create_special_file("pipe", &SpecialFile::Fifo);
    fixture.create_special_file("link", &SpecialFile::Symlink(b"MEMORY.md".to_vec()));
    let pages = list_pages(fixture, &fixture.directory());
    assert_eq!(
        names_in_pages(&pages),
        [".hidden", "MEMORY.md", "inbox", "link", "pipe"]
    );
    for entry in pages.into_iter().flatten() {
        let object = entry.object.unwrap();
        match entry.name.to_str().unwrap() {
            "MEMORY.md" => assert_eq!(object, fixture.probe_memory()),
            ".hidden" => assert!(matches!(object, MemoryObject::File(_)), "{object:?}"),
            "inbox" => assert_eq!(object, MemoryObject::Special(SpecialFile::Directory)),
            "pipe" => assert_eq!(object, MemoryObject::Special(SpecialFile::Fifo)),
            _ => {
                let is_link = matches!(object, MemoryObject::Special(SpecialFile::Symlink(_)));
                assert!(is_link, "{object:?}");
            }
        }
    }
}

fn listing_comes_in_pages(fixture: &dyn TransportFixture) {
    let count = MAX_PAGE_ENTRIES + 1;
    for number in 0..count {
        fixture.write(&format!("{number:05}.md"), b"");
    }
    let pages = list_pages(fixture, &fixture.directory());
    assert!(pages.iter().all(|page| page.len() <= MAX_PAGE_ENTRIES));
    let names = names_in_pages(&pages);
    assert_eq!(names.len(), count);
    assert!(
        names
            .iter()
            .zip(0..)
            .all(|(name, number)| *name == format!("{number:05}.md"))
    );
}

fn listing_refuses_symlinks_and_absent_directories(fixture: &dyn TransportFixture) {
    let cause_of = |directory: &Path| {
        let listing = fixture.transport().list_directory(directory);
        listing.err().map(|error| error.cause)
    };
    assert_eq!(
        cause_of(&fixture.symlinked_directory()),
        Some(FailureCause::Refused)
    );
    assert_eq!(
        cause_of(&fixture.directory().join("absent")),
        Some(FailureCause::NoDirectory)
    );
    fixture.write("MEMORY.md", b"");
    assert_eq!(
        cause_of(&fixture.memory_path()),
        Some(FailureCause::Refused)
    );
}

/// Returns the names of all pages, sorted.
fn names_in_pages(pages: &[Vec<DirectoryEntry>]) -> Vec<String> {
    let names = pages.iter().flatten();
    let mut names: Vec<String> = names
        .map(|it| it.name.to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn staged_file_has_exact_bytes_and_attributes(fixture: &dyn TransportFixture) {
    fixture.write("MEMORY.md", b"for its owner");
    let attributes = Attributes {
        mode: 0o640,
        ..fixture.read_attributes("MEMORY.md")
    };
    let directory = fixture.open_directory();
    take_away(directory.as_ref(), "aside").unwrap();
    let content = &mut |sink: ByteSink<'_>| {
        sink(b"first ")?;
        sink(b"")?;
        sink(b"second\0\xff")
    };
    let given = StagedAttributes::Exact(attributes.clone());
    claim_and_stage(directory.as_ref(), STAGED_NAME, content, given).unwrap();
    assert_eq!(fixture.probe_memory(), MemoryObject::Absent);
    commit_staged(directory.as_ref()).unwrap();
    assert_eq!(fixture.bytes("MEMORY.md").unwrap(), b"first second\0\xff");
    assert_eq!(fixture.read_attributes("MEMORY.md"), attributes);
    assert_eq!(fixture.names(), ["MEMORY.md", "aside"]);
}

fn failed_stage_leaves_nothing(fixture: &dyn TransportFixture) {
    let directory = fixture.open_directory();
    let staged = claim_and_stage(
        directory.as_ref(),
        STAGED_NAME,
        &mut |sink| {
            sink(b"half")?;
            Err(Error::new(ErrorKind::Integrity, "mine"))
        },
        StagedAttributes::Inherited,
    );
    assert_eq!(Error::from(staged.unwrap_err()).message(), "mine");
    assert!(fixture.names().is_empty());
}

fn stage_does_not_overwrite_existing_name(fixture: &dyn TransportFixture) {
    for special in [None, Some(SpecialFile::Symlink(b"elsewhere".to_vec()))] {
        match &special {
            None => fixture.write(STAGED_NAME, b"theirs"),
            Some(special) => fixture.create_special_file("link", special),
        }
        let name = if special.is_some() {
            "link"
        } else {
            STAGED_NAME
        };
        let inherited = StagedAttributes::Inherited;
        let directory = fixture.open_directory();
        let staged = claim_and_stage(
            directory.as_ref(),
            name,
            &mut |sink| sink(b"ours"),
            inherited,
        );
        assert_eq!(staged.unwrap_err().cause, FailureCause::Refused);
        assert_eq!(fixture.special_file(name), special);
    }
    assert_eq!(fixture.bytes(STAGED_NAME).unwrap(), b"theirs");
    assert_eq!(fixture.names(), [STAGED_NAME, "link"]);
}

fn swap_displaces_current_file(fixture: &dyn TransportFixture) {
    fixture.write("MEMORY.md", b"old");
    let directory = fixture.open_directory();
    stage_file(directory.as_ref(), b"new");
    // A save after the last inspection.
    fixture.write("MEMORY.md", b"saved just now");
    let swapped = commit_staged(directory.as_ref()).unwrap();
    assert_eq!(swapped.method, replacing_method(fixture));
    let [displaced] = swapped.displaced.as_slice() else {
        panic!("{swapped:?}")
    };
    assert_eq!(fixture.bytes("MEMORY.md").unwrap(), b"new");
    assert_eq!(fixture.bytes(displaced).unwrap(), b"saved just now");
    assert_eq!(fixture.names().len(), 2);
}

fn replacing_method(fixture: &dyn TransportFixture) -> SwapMethod {
    match fixture.can_exchange() {
        true => SwapMethod::Exchange,
        false => SwapMethod::TakeAway,
    }
}

fn swap_displaces_any_special_file(fixture: &dyn TransportFixture) {
    for special in special_files() {
        fixture.create_special_file("MEMORY.md", &special);
        let directory = fixture.open_directory();
        stage_file(directory.as_ref(), b"new");
        let swapped = commit_staged(directory.as_ref()).unwrap();
        assert_eq!(fixture.bytes("MEMORY.md").unwrap(), b"new");
        assert_eq!(
            fixture.special_file(&swapped.displaced[0]),
            Some(special.clone())
        );
        // Frees the name for the next file.
        let done = format!("done-{}", fixture.names().len());
        take_away(directory.as_ref(), &done).unwrap();
        let displaced = &swapped.displaced[0];
        let settled = settle_fully(fixture, directory.as_ref(), displaced).0;
        if special == SpecialFile::Directory {
            assert_eq!(settled, SettleOutcome::Kept(special));
            return; // It stays under that name; the others were tried before.
        }
        assert_eq!(settled, SettleOutcome::Removed { was_watched: true });
        assert_eq!(fixture.special_file(displaced), None);
    }
}

fn swap_without_memory_creates_it(fixture: &dyn TransportFixture) {
    let directory = fixture.open_directory();
    stage_file(directory.as_ref(), b"new");
    let swapped = commit_staged(directory.as_ref()).unwrap();
    assert_eq!(swapped.method, SwapMethod::Create);
    assert!(swapped.displaced.is_empty());
    assert_eq!(fixture.names(), ["MEMORY.md"]);
    assert_eq!(fixture.bytes("MEMORY.md").unwrap(), b"new");
}

fn swap_without_staged_file_fails(fixture: &dyn TransportFixture) {
    let directory = fixture.open_directory();
    stage_file(directory.as_ref(), b"new");
    fixture.replace_staged_before_swap(None);
    assert!(commit_staged(directory.as_ref()).is_err());
    fixture.write("MEMORY.md", b"old");
    assert!(commit_staged(directory.as_ref()).is_err());
    // In every case no byte is lost.
    let kept = fixture
        .names()
        .into_iter()
        .any(|name| fixture.bytes(&name).is_some_and(|it| it == b"old"));
    assert!(kept);
}

fn swap_of_file_planted_at_staged_name_fails(fixture: &dyn TransportFixture) {
    for old in [None, Some("old")] {
        let directory = fixture.open_directory();
        stage_file(directory.as_ref(), b"new");
        if let Some(old) = old {
            fixture.write("MEMORY.md", old.as_bytes());
        }
        // A file of the same size.
        fixture.replace_staged_before_swap(Some(b"own"));
        assert_eq!(
            commit_staged(directory.as_ref()).unwrap_err().cause,
            FailureCause::Replaced
        );
        let mut kept = vec![fixture.bytes("MEMORY.md").unwrap()];
        let run = InterruptedRun {
            progress: SwapProgress::Done,
            ..interrupted_run(b"new")
        };
        let displaced = directory.recover(&run).unwrap().unwrap().displaced;
        let taken = take_away(directory.as_ref(), "aside").unwrap();
        for name in displaced.iter().chain(&taken.displaced) {
            loop {
                let (settled, seen) = settle_fully(fixture, directory.as_ref(), name);
                kept.extend(seen);
                // A file that was not read before takes one inspection more.
                if settled != SettleOutcome::StillOpen {
                    break;
                }
            }
        }
        assert!(kept.contains(&b"own".to_vec()));
        assert!(old.is_none_or(|old| kept.contains(&old.as_bytes().to_vec())));
        assert!(fixture.names().is_empty());
    }
}

fn take_away_moves_the_memory_aside(fixture: &dyn TransportFixture) {
    let directory = fixture.open_directory();
    let take_away = |name| take_away(directory.as_ref(), name);
    assert_eq!(
        take_away("aside").unwrap_err().cause,
        FailureCause::Replaced
    );
    fixture.write("MEMORY.md", b"old");
    fixture.write("occupied", b"theirs");
    assert!(take_away("occupied").is_err());
    assert_eq!(fixture.bytes("occupied").unwrap(), b"theirs");
    assert_eq!(fixture.bytes("MEMORY.md").unwrap(), b"old");
    let taken = take_away("aside").unwrap();
    assert_eq!(taken.method, SwapMethod::Remove);
    assert_eq!(fixture.probe_memory(), MemoryObject::Absent);
    let [aside] = taken.displaced.as_slice() else {
        panic!("{taken:?}")
    };
    assert_eq!(fixture.bytes(aside).unwrap(), b"old");
    // It is found again, also by a new session.
    let taken_over = [".shepherd-one", ".shepherd-two"].map(str::to_string);
    let found = RecoveredRun {
        method: Some(SwapMethod::Remove),
        displaced: vec![aside.clone()],
    };
    let recover = |directory: &dyn MemoryDirectory, count: usize| {
        let run = InterruptedRun {
            name: "aside".to_string(),
            takeover_names: taken_over[..count].to_vec(),
            installed: InstalledMemory::Absent,
            ..interrupted_run(b"")
        };
        assert_eq!(directory.recover(&run).unwrap().as_ref(), Some(&found));
    };
    recover(directory.as_ref(), 1);
    recover(fixture.open_directory().as_ref(), 1);
    recover(directory.as_ref(), 2);
    let (settled, seen) = settle_fully(fixture, directory.as_ref(), aside);
    assert_eq!(settled, SettleOutcome::Removed { was_watched: true });
    assert_eq!(seen.last().unwrap(), b"old");
    assert_eq!(fixture.names(), ["occupied"]);
}

fn settle_inspects_and_removes(fixture: &dyn TransportFixture) {
    fixture.write("displaced", b"content");
    let directory = fixture.open_directory();
    let (settled, seen) = settle_fully(fixture, directory.as_ref(), "displaced");
    assert_eq!(settled, SettleOutcome::Removed { was_watched: true });
    assert_eq!(seen, [b"content"]);
    assert!(fixture.names().is_empty());
    // A removed file counts as settled.
    let (settled, seen) = settle_fully(fixture, directory.as_ref(), "displaced");
    assert_eq!(settled, SettleOutcome::Removed { was_watched: true });
    assert!(seen.is_empty());
}

fn settle_waits_for_writer_and_reads_late_bytes(fixture: &dyn TransportFixture) {
    let (directory, displaced, mut writer) = displace_open_memory(fixture);
    assert_eq!(
        settle_and_collect(directory.as_ref(), &displaced),
        (SettleOutcome::StillOpen, Vec::new())
    );
    writer(b" and late");
    assert_eq!(
        settle_and_collect(directory.as_ref(), &displaced).0,
        SettleOutcome::StillOpen
    );
    assert_eq!(fixture.bytes(&displaced).unwrap(), b"old and late");
    drop(writer);
    let (settled, seen) = settle_fully(fixture, directory.as_ref(), &displaced);
    assert_eq!(settled, SettleOutcome::Removed { was_watched: true });
    assert_eq!(seen, [b"old and late"]);
    assert_eq!(fixture.names(), ["MEMORY.md"]);
}

fn settle_keeps_file_when_inspection_fails(fixture: &dyn TransportFixture) {
    fixture.write("displaced", b"content");
    let directory = fixture.open_directory();
    let fail = || {
        directory.settle("displaced", &mut |_| {
            Err(Error::new(ErrorKind::Host, "disk full"))
        })
    };
    let settled = match fail() {
        Ok(SettleOutcome::StillOpen) if fixture.advance_past_second_check() => fail(),
        settled => settled,
    };
    assert_eq!(Error::from(settled.unwrap_err()).message(), "disk full");
    assert_eq!(fixture.bytes("displaced").unwrap(), b"content");
    // No lease remains: a writer can open the file at once.
    fixture.open_writer("displaced")(b"!");
    let (_, seen) = settle_fully(fixture, directory.as_ref(), "displaced");
    assert_eq!(seen.last().unwrap(), b"content!");
}

fn settle_removes_special_files_keeps_directories(fixture: &dyn TransportFixture) {
    let directory = fixture.open_directory();
    for special in special_files() {
        fixture.create_special_file("displaced", &special);
        if special == SpecialFile::Directory {
            let (settled, seen) = settle_and_collect(directory.as_ref(), "displaced");
            assert!(seen.is_empty());
            assert_eq!(settled, SettleOutcome::Kept(special));
            assert_eq!(fixture.names(), ["displaced"]);
            return; // It stays under that name.
        }
        let settle = |act: &dyn Fn() -> Result<(), Error>| {
            directory.settle("displaced", &mut |object| {
                assert!(matches!(object, DisplacedObject::Special(found) if *found == special));
                // It waits until it is described.
                assert_eq!(fixture.names(), ["displaced"]);
                act()
            })
        };
        let failed = settle(&|| Err(Error::new(ErrorKind::Host, "disk full")));
        assert_eq!(Error::from(failed.unwrap_err()).message(), "disk full");
        // It stays if it has been replaced by then.
        let replaced = settle(&|| {
            fixture.rename("displaced", "away");
            fixture.write("displaced", b"theirs");
            Ok(())
        });
        assert_eq!(replaced.unwrap(), SettleOutcome::StillOpen);
        assert_eq!(fixture.bytes("displaced").unwrap(), b"theirs");
        fixture.rename("away", "displaced");
        let removed = SettleOutcome::Removed { was_watched: true };
        assert_eq!(settle(&|| Ok(())).unwrap(), removed);
        assert!(fixture.names().is_empty());
    }
}

fn recovery_finds_a_swap_and_what_it_displaced(fixture: &dyn TransportFixture) {
    fixture.write("MEMORY.md", b"old");
    let directory = fixture.open_directory();
    stage_file(directory.as_ref(), b"new");
    let swapped = commit_staged(directory.as_ref()).unwrap();
    let recovered = fixture.open_directory().recover(&interrupted_run(b"new"));
    assert_eq!(
        recovered.unwrap(),
        Some(RecoveredRun {
            method: Some(replacing_method(fixture)),
            displaced: swapped.displaced.clone(),
        })
    );
    // Where the swap is journaled, recovery only lists what it displaced.
    let journaled = InterruptedRun {
        takeover_names: [".shepherd-one", ".shepherd-two"]
            .map(str::to_string)
            .to_vec(),
        progress: SwapProgress::Done,
        displaced: Some(swapped.displaced.clone()),
        ..interrupted_run(b"new")
    };
    let directory = fixture.open_directory();
    assert_eq!(
        directory.recover(&journaled).unwrap(),
        Some(RecoveredRun {
            method: None,
            displaced: swapped.displaced.clone(),
        })
    );
    let (_, seen) = settle_fully(fixture, directory.as_ref(), &swapped.displaced[0]);
    assert_eq!(seen.last().unwrap(), b"old");
    assert_eq!(fixture.names(), ["MEMORY.md"]);
    assert_eq!(fixture.bytes("MEMORY.md").unwrap(), b"new");
}

fn recovery_finds_a_created_memory(fixture: &dyn TransportFixture) {
    let run = InterruptedRun {
        creates_memory: true,
        ..interrupted_run(b"new")
    };
    let recovered = |method| {
        let displaced = Vec::new();
        Some(RecoveredRun { method, displaced })
    };
    let directory = fixture.open_directory();
    assert_eq!(directory.recover(&run).unwrap(), recovered(None));
    assert!(fixture.names().is_empty());
    stage_file(directory.as_ref(), b"new");
    commit_staged(directory.as_ref()).unwrap();
    let created = recovered(Some(SwapMethod::Create));
    assert_eq!(fixture.open_directory().recover(&run).unwrap(), created);
    // An agent may already have written below the content.
    fixture.write("MEMORY.md", b"new and more");
    assert_eq!(fixture.open_directory().recover(&run).unwrap(), created);
    fixture.write("MEMORY.md", b"other");
    let other = fixture.open_directory().recover(&run).unwrap();
    assert_eq!(other, recovered(None));
    assert_eq!(fixture.names(), ["MEMORY.md"]);
}

/// Interrupted between moving the old file aside and linking the new one.
fn recovery_finishes_an_interrupted_swap(fixture: &dyn TransportFixture) {
    fixture.write(&fixture.staged_file_name(), b"new");
    let recovered = fixture.open_directory().recover(&interrupted_run(b"new"));
    assert_eq!(
        recovered.unwrap(),
        Some(RecoveredRun {
            method: Some(SwapMethod::Create),
            displaced: Vec::new(),
        })
    );
    assert_eq!(fixture.bytes("MEMORY.md").unwrap(), b"new");
    assert_eq!(fixture.names(), ["MEMORY.md"]);
}

fn recovery_before_the_swap_keeps_the_memory(fixture: &dyn TransportFixture) {
    fixture.write("MEMORY.md", b"old");
    let MemoryObject::File(file) = fixture.probe_memory() else {
        panic!("no file")
    };
    let run = InterruptedRun {
        memory_inode: file.stamp.inode,
        ..interrupted_run(b"new")
    };
    // Neither the whole new file nor a part of it passes for a swap.
    for staged in [None, Some("new"), Some("ne")] {
        if let Some(staged) = staged {
            fixture.write(&fixture.staged_file_name(), staged.as_bytes());
        }
        let directory = fixture.open_directory();
        let recovered = directory.recover(&run).unwrap().unwrap();
        assert_eq!(recovered.method, None, "{staged:?}");
        for name in recovered.displaced {
            settle_fully(fixture, directory.as_ref(), &name);
        }
        assert_eq!(fixture.bytes("MEMORY.md").unwrap(), b"old");
        assert_eq!(fixture.names(), ["MEMORY.md"], "{staged:?}");
    }
}

fn recovery_ignores_names_of_others(fixture: &dyn TransportFixture) {
    fixture.write("MEMORY.md", b"old");
    let theirs = format!("{STAGED_NAME}-0");
    fixture.write(&theirs, b"theirs");
    let dangling = SpecialFile::Symlink(b"nowhere".to_vec());
    fixture.create_special_file("dangling", &dangling);
    let run = InterruptedRun {
        progress: SwapProgress::Done,
        ..interrupted_run(b"new")
    };
    let recovered = fixture.open_directory().recover(&run).unwrap().unwrap();
    assert!(recovered.displaced.is_empty());
    let mut names = fixture.names();
    names.sort();
    assert_eq!(names, [&theirs, "MEMORY.md", "dangling"]);
}

fn extended_attributes_are_kept(fixture: &dyn TransportFixture) {
    let directory = fixture.open_directory();
    fixture.write("MEMORY.md", b"old");
    let attributes = Attributes {
        xattrs: vec![(b"user.colour".to_vec(), b"blue\0".to_vec())],
        ..fixture.read_attributes("MEMORY.md")
    };
    let given = StagedAttributes::Exact(attributes.clone());
    if let Err(error) = claim_and_stage(
        directory.as_ref(),
        STAGED_NAME,
        &mut |sink| sink(b"new"),
        given,
    ) {
        skip_unsupported(format_args!("no user attributes here: {error}"));
        assert_eq!(fixture.names(), ["MEMORY.md"]);
        return;
    }
    commit_staged(directory.as_ref()).unwrap();
    let have = directory
        .read_memory(&mut |_| Ok(()))
        .unwrap()
        .attributes
        .xattrs;
    assert!(have.contains(&attributes.xattrs[0]), "{have:?}");
}
