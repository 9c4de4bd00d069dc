//! The demo's host: the requests it serves, how it disconnects and reconnects, and the outcome of a
//! reset where its server lacks an extension.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{chown, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use memory_shepherd::archive::EntryKind;
use memory_shepherd::base::error::ErrorKind;
use memory_shepherd::demo::host::{DemoHost, SupportedExtensions};
use memory_shepherd::engine::{Engine, Outcome, State, UndoMode, UndoTarget};
use memory_shepherd::transport::sftp::SftpTransport;
use memory_shepherd::transport::sftp::session::Session;
use memory_shepherd::transport::sftp::ssh::Connector;
use memory_shepherd::transport::sftp::wire::{
    Attrs, Reply, Request, ServerExtensions, Statvfs, flags, status,
};
use memory_shepherd::transport::{
    FailureCause, MemoryDirectory, MemoryObject, SettleOutcome, SpecialFile, Transport,
    TransportError,
};
use tempfile::TempDir;

use super::contract::{
    DiskFixture, TransportFixture, commit_staged, settle_and_collect, stage_file,
};
use super::remote::{add_remote_agent, engine_with_connector, sftp_fixture_with};
use super::servers::{self, host_named};
use super::world::{BASELINE, TestClock, World, apply_plan};
use crate::skip::skip_unsupported;

/// Upper bound of a wait for an event that must happen.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Extensions of its server beyond the base protocol.
pub const ALL_EXTENSIONS: [&str; 5] = ["posix-rename", "hardlink", "fsync", "statvfs", "limits"];

/// Returns all extensions but these.
fn extensions_without(extensions: &[&str]) -> SupportedExtensions {
    let has = |name| !extensions.contains(&name);
    SupportedExtensions {
        posix_rename: has("posix-rename"),
        hardlink: has("hardlink"),
        fsync: has("fsync"),
        statvfs: has("statvfs"),
        limits: has("limits"),
    }
}

fn start_host(lacks: &[&str]) -> DemoHost {
    DemoHost::start(Path::new("/"), extensions_without(lacks)).unwrap()
}

/// Returns a directory on this disk, served over SFTP by the demo's server.
pub fn in_process_fixture(lacks: &[&str]) -> DiskFixture<SftpTransport> {
    sftp_fixture_with(host_named("remote"), start_host(lacks))
}

/// A session with a host, and a directory that it serves.
struct SessionFixture {
    session: Session,
    dir: TempDir,
}

impl SessionFixture {
    fn connect(host: &DemoHost) -> SessionFixture {
        let link = host.connect(&servers::host_named("remote")).unwrap().pipes;
        SessionFixture {
            session: Session::start(link, Instant::now() + WAIT_TIMEOUT).unwrap(),
            dir: crate::directory(),
        }
    }

    fn path(&self, name: &str) -> Vec<u8> {
        let path = self.dir.path().join(name);
        path.into_os_string().into_encoded_bytes()
    }

    fn request(&self, request: Request) -> Reply {
        let answers = self.session.send_batch(vec![request]).wait();
        answers.into_iter().next().unwrap().unwrap()
    }

    fn request_status(&self, request: Request) -> u32 {
        match self.request(request) {
            Reply::Status(code) => code,
            reply => panic!("{reply:?}"),
        }
    }

    fn open_request(&self, name: &str, flags: u32) -> Request {
        let (path, mode) = (self.path(name), Some(0o600));
        Request::Open { path, flags, mode }
    }

    fn open_handle(&self, name: &str, flags: u32) -> Vec<u8> {
        match self.request(self.open_request(name, flags)) {
            Reply::Handle(handle) => handle,
            reply => panic!("{reply:?}"),
        }
    }

    fn write_file(&self, name: &str, bytes: &[u8]) {
        fs::write(self.dir.path().join(name), bytes).unwrap();
    }

    fn read_file(&self, name: &str) -> Vec<u8> {
        fs::read(self.dir.path().join(name)).unwrap()
    }
}

#[test]
fn server_announces_extensions_and_refuses_others() {
    let every = ServerExtensions {
        posix_rename: true,
        hardlink: true,
        fsync: true,
        statvfs: true,
        limits: true,
        lsetstat: false,
    };
    let guest = SessionFixture::connect(&start_host(&[]));
    assert_eq!(guest.session.extensions(), every);
    drop(guest);

    let host = start_host(&ALL_EXTENSIONS);
    let guest = SessionFixture::connect(&host);
    assert_eq!(guest.session.extensions(), ServerExtensions::default());
    guest.write_file("a", b"a");
    let handle = guest.open_handle("a", flags::READ);
    let (from, to) = (guest.path("a"), guest.path("b"));
    for request in [
        Request::PosixRename {
            from: from.clone(),
            to: to.clone(),
        },
        Request::HardLink {
            from: from.clone(),
            to: to.clone(),
        },
        Request::Fsync(handle),
        Request::Statvfs(from),
        Request::Limits,
    ] {
        assert_eq!(guest.request_status(request), status::UNSUPPORTED);
    }
    assert_eq!(super::world::sorted_names(guest.dir.path()), ["a"]);
}

#[test]
fn extensions_behave_as_in_openssh() {
    let host = start_host(&[]);
    let guest = SessionFixture::connect(&host);
    let limits = guest.session.limits().unwrap();
    assert_eq!((limits.read, limits.write), (261_120, 261_120));
    guest.write_file("a", b"a");
    guest.write_file("b", b"b");
    let paths = || (guest.path("a"), guest.path("b"));
    let (from, to) = paths();
    let link = Request::HardLink { from, to };
    assert_eq!(
        guest.request_status(link),
        status::FAILURE,
        "an existing name is not replaced"
    );
    let (from, to) = paths();
    let rename = Request::Rename { from, to };
    assert_eq!(
        guest.request_status(rename),
        status::FAILURE,
        "an existing name is not replaced"
    );
    assert_eq!(
        (guest.read_file("a"), guest.read_file("b")),
        (b"a".into(), b"b".into())
    );
    let (from, to) = paths();
    assert_eq!(
        guest.request_status(Request::PosixRename { from, to }),
        status::OK
    );
    assert_eq!(super::world::sorted_names(guest.dir.path()), ["b"]);
    assert_eq!(guest.read_file("b"), b"a");
    // fsync works on a directory as well.
    let handle = guest.open_handle(".", flags::READ);
    assert_eq!(guest.request_status(Request::Fsync(handle)), status::OK);
    let Reply::Extended(body) = guest.request(Request::Statvfs(guest.path("b"))) else {
        panic!("no statvfs reply");
    };
    let space = Statvfs::decode(&body).unwrap();
    assert!(
        space.files >= space.files_available && space.blocks_available > 0,
        "{space:?}"
    );
}

#[test]
fn open_file_survives_rename_and_removal() {
    let host = start_host(&[]);
    let guest = SessionFixture::connect(&host);
    guest.write_file("a", b"content");
    let handle = guest.open_handle("a", flags::READ);
    let (from, to) = (guest.path("a"), guest.path("b"));
    assert_eq!(
        guest.request_status(Request::PosixRename { from, to }),
        status::OK
    );
    let path = guest.path("b");
    assert_eq!(guest.request_status(Request::Remove(path)), status::OK);
    let read = |offset| Request::Read {
        handle: handle.clone(),
        offset,
        length: 100,
    };
    assert_eq!(guest.request(read(3)), Reply::Data(b"tent".into()));
    assert_eq!(guest.request_status(read(7)), status::EOF);
    let close = || Request::Close(handle.clone());
    assert_eq!(guest.request_status(close()), status::OK);
    assert_eq!(guest.request_status(read(0)), status::FAILURE);
    assert_eq!(guest.request_status(close()), status::FAILURE);
}

#[test]
fn status_codes_name_the_failure() {
    let host = start_host(&[]);
    let guest = SessionFixture::connect(&host);
    assert_eq!(
        guest.request_status(guest.open_request("none", flags::READ)),
        status::NO_SUCH_FILE
    );
    let new = flags::WRITE | flags::CREATE | flags::EXCLUSIVE;
    let handle = guest.open_handle("new", new);
    let write = Request::Write {
        handle,
        offset: 0,
        bytes: b"new".into(),
    };
    assert_eq!(guest.request_status(write), status::OK);
    assert_eq!(
        guest.request_status(guest.open_request("new", new)),
        status::FAILURE
    );
    assert_eq!(guest.read_file("new"), b"new");
    // A name that is a symlink is taken, whatever it points to.
    symlink("nowhere", guest.dir.path().join("link")).unwrap();
    assert_eq!(
        guest.request_status(guest.open_request("link", new)),
        status::FAILURE
    );
    let path = guest.path("link");
    let Reply::Attrs(found) = guest.request(Request::Lstat(path)) else {
        panic!("no attributes");
    };
    assert_eq!(found.mode.unwrap() & 0o170_000, 0o120_000, "not followed");
    let path = guest.path("link");
    let Reply::Names(names) = guest.request(Request::ReadLink(path)) else {
        panic!("no target");
    };
    assert_eq!(names[0].name, b"nowhere");
    // Opening a FIFO does not block.
    let fifo = guest.dir.path().join("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, fifo, kind, mode, 0).unwrap();
    guest.open_handle("fifo", flags::READ);
}

#[test]
fn attributes_are_changed_one_by_one() {
    let host = start_host(&[]);
    let guest = SessionFixture::connect(&host);
    guest.write_file("a", b"content");
    let handle = guest.open_handle("a", flags::READ | flags::WRITE);
    let look = || {
        let handle = handle.clone();
        match guest.request(Request::Fstat(handle)) {
            Reply::Attrs(attrs) => attrs,
            reply => panic!("{reply:?}"),
        }
    };
    let set = |attrs| {
        let handle = handle.clone();
        assert_eq!(
            guest.request_status(Request::Fsetstat { handle, attrs }),
            status::OK
        );
    };
    let mut expected = look();
    assert_eq!(expected.size, Some(7));
    assert_eq!(expected.mode.unwrap() & 0o170_000, 0o100_000);
    set(Attrs {
        size: Some(4),
        ..Attrs::default()
    });
    set(Attrs {
        mode: Some(0o604),
        ..Attrs::default()
    });
    set(Attrs {
        owner: expected.owner,
        ..Attrs::default()
    });
    set(Attrs {
        times: Some((1_000_000_000, 2_000_000_000)),
        ..Attrs::default()
    });
    expected.size = Some(4);
    expected.mode = Some(0o100_604);
    expected.times = Some((1_000_000_000, 2_000_000_000));
    assert_eq!(look(), expected);
    assert_eq!(guest.read_file("a"), b"cont");
}

#[test]
fn long_directory_is_listed_whole() {
    let host = start_host(&[]);
    let guest = SessionFixture::connect(&host);
    for number in 0..250 {
        guest.write_file(&format!("{number:03}"), b"");
    }
    let path = guest.path("");
    let Reply::Handle(handle) = guest.request(Request::OpenDir(path)) else {
        panic!("no handle");
    };
    let mut names = Vec::new();
    loop {
        let handle = handle.clone();
        match guest.request(Request::ReadDir(handle)) {
            Reply::Names(more) => names.extend(more.into_iter().map(|it| it.name)),
            Reply::Status(code) => {
                assert_eq!(code, status::EOF);
                break;
            }
            reply => panic!("{reply:?}"),
        }
        assert!(names.len() <= 250, "the list does not end");
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 250);
}

#[test]
fn go_away_disconnects_and_come_back_serves_again() {
    let served = Arc::new(start_host(&[]));
    let clock = TestClock::new();
    let transport = SftpTransport::new(host_named("remote"), served.clone(), clock.clone());
    let dir = crate::directory();
    let memory = dir.path().canonicalize().unwrap().join("MEMORY.md");
    let probe = || transport.probe(&[&memory]).pop().unwrap();
    let why = |probed: Result<MemoryObject, TransportError>| {
        let error = probed.unwrap_err();
        assert_eq!(error.cause, FailureCause::Unreachable, "{error}");
        error.to_string()
    };
    assert_eq!(probe().unwrap(), MemoryObject::Absent);
    for _ in 0..3 {
        let directory = transport.open_directory(&memory).unwrap();
        served.go_offline();
        assert!(served.is_offline());
        let cut = directory.settle("name", &mut |_| Ok(())).unwrap_err();
        assert_eq!(cut.cause, FailureCause::Unreachable);
        let end = Instant::now() + WAIT_TIMEOUT;
        while !why(probe()).contains("no route") {
            assert!(Instant::now() < end, "the disconnect is not noticed");
            clock.advance(Duration::from_secs(1000));
        }
        served.go_online().unwrap();
        assert!(!served.is_offline());
        clock.advance(Duration::from_secs(1000));
        assert_eq!(probe().unwrap(), MemoryObject::Absent);
    }
}

#[test]
fn dropped_server_disconnects_its_clients() {
    let served = start_host(&[]);
    let mut links = Vec::new();
    for _ in 0..3 {
        links.push(served.connect(&host_named("remote")).unwrap().pipes);
    }
    let guest = SessionFixture::connect(&served);
    guest.write_file("a", b"a");
    guest.open_handle("a", flags::READ);
    drop(served);
    for link in links {
        let mut rest = Vec::new();
        File::from(link.output).read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"", "the server sent bytes");
    }
    let end = Instant::now() + WAIT_TIMEOUT;
    while guest.session.end_error().is_none() {
        assert!(Instant::now() < end, "the disconnect is not noticed");
        std::thread::yield_now();
    }
}

/// Returns an engine with an agent on a host that lacks these extensions; the agent accepts all
/// degradations or none.
fn engine_lacking(lacks: &[&str], accepts: bool) -> (World, Engine) {
    let mut world = World::new(&[]);
    if accepts {
        let memory = world.memory_path("ranger");
        let lines = format!(
            "remote_host = box\nremote_memory = {}\nremote_timeout = 3600\naccept_degraded = {}",
            memory.display(),
            lacks.join(",")
        );
        world.add_agent("ranger", &lines);
        world.set_baseline("ranger", BASELINE);
    } else {
        add_remote_agent(&mut world, "ranger", "box");
    }
    world.write_scratch("ranger", "a note\n");
    let engine = engine_with_connector(&world, start_host(lacks));
    (world, engine)
}

/// Degraded replacements, in the words of the config.
const DEGRADATIONS: [&[&str]; 4] = [
    &["posix-rename"],
    &["hardlink"],
    &["fsync"],
    &["posix-rename", "hardlink", "fsync"],
];

#[test]
fn unaccepted_degradation_changes_nothing() {
    for lacks in DEGRADATIONS {
        let (world, engine) = engine_lacking(lacks, false);
        let before = world.read_memory("ranger");
        let names = ["ranger".to_string()];
        let plan = engine.planner().plan_reset(&names, false).unwrap();
        assert!(plan.steps.is_empty(), "{plan:?}");
        let key = format!("`accept_degraded = {}` in [ranger]", lacks.join(", "));
        let told = |text: &str| {
            assert!(
                lacks
                    .iter()
                    .all(|it| text.contains(&format!("{it}@openssh.com"))),
                "{text}"
            );
            assert!(text.contains(&key), "{text}");
        };
        let skipped = &plan.skipped[0];
        told(&format!("{}; {}", skipped.reason, skipped.hints.join("; ")));
        // A plan without an observation reports the same.
        let unseen = engine.planner().plan_unobserved(&names, false).unwrap();
        let ran = engine
            .runs()
            .apply_plan(&unseen, false, &AtomicBool::new(false), &mut |_| {});
        let result = &ran.results[0];
        assert_eq!(result.outcome, Outcome::Failed, "{result:?}");
        told(&format!("{result:?}"));
        assert_eq!(world.read_memory("ranger"), before);
        assert_eq!(world.leftovers("ranger"), Vec::<String>::new());
        assert!(world.pending_journals().is_empty());
    }
}

#[test]
fn accepted_degradation_is_named_by_plan_and_run() {
    for lacks in DEGRADATIONS {
        let (world, engine) = engine_lacking(lacks, true);
        let before = world.read_memory("ranger");
        let names = ["ranger".to_string()];
        let plan = engine.planner().plan_reset(&names, false).unwrap();
        let named = |text: &str| {
            lacks
                .iter()
                .all(|it| text.contains(&format!("lacks {it}@")))
        };
        assert!(named(&plan.steps[0].degradations.join("; ")), "{plan:?}");
        assert!(
            plan.degradations()[0].starts_with("on other hosts"),
            "{plan:?}"
        );
        let ran = apply_plan(&engine, &plan);
        let result = &ran.report.results[0];
        assert_eq!(result.outcome, Outcome::Ok, "{result:?}");
        assert!(named(result.note.as_deref().unwrap()), "{result:?}");
        assert_eq!(world.read_memory("ranger"), BASELINE.as_bytes());
        assert!(world.all_entry_bytes("ranger").ends_with(b"a note\n"));
        assert!(world.leftovers("ranger").is_empty());
        let target = UndoTarget::Agents(names.to_vec());
        let plan = engine
            .planner()
            .plan_undo(&target, UndoMode::Refuse, false)
            .unwrap();
        let ran = apply_plan(&engine, &plan);
        ran.assert_outcome(Outcome::Ok);
        assert_eq!(world.read_memory("ranger"), before);
        assert_eq!(
            engine
                .observer()
                .observe(engine.agent("ranger").unwrap())
                .state,
            State::Scratch
        );
    }
}

/// Links cannot be counted over SFTP: a file of another user may be a second name of a file outside
/// the agent's reach.
#[test]
fn displaced_file_of_another_owner_is_kept() {
    if !rustix::process::geteuid().is_root() {
        skip_unsupported("needs root, for files of another user");
        return;
    }
    let in_process = in_process_fixture(&[]);
    let fixture: &dyn TransportFixture = &in_process;
    fixture.write("MEMORY.md", b"old");
    let directory = fixture.open_directory();
    stage_file(directory.as_ref(), b"new");
    chown(fixture.memory_path(), Some(1234), Some(1234)).unwrap();
    let displaced = commit_staged(directory.as_ref())
        .unwrap()
        .displaced
        .remove(0);
    let is_kept = |directory: &dyn MemoryDirectory| {
        let (settled, seen) = match settle_and_collect(directory, &displaced) {
            (SettleOutcome::StillOpen, _) if fixture.advance_past_second_check() => {
                settle_and_collect(directory, &displaced)
            }
            settled => settled,
        };
        assert_eq!(
            settled,
            SettleOutcome::Kept(SpecialFile::ForeignHardLink(1234))
        );
        assert!(seen.is_empty());
        assert_eq!(fixture.bytes(&displaced).unwrap(), b"old");
    };
    // The file is kept as opened after the swap and as the next contact finds it.
    is_kept(directory.as_ref());
    is_kept(fixture.open_directory().as_ref());
}

#[test]
fn memory_by_another_path_is_refused() {
    let mut world = World::new(&[]);
    add_remote_agent(&mut world, "scout", "box");
    add_remote_agent(&mut world, "other", "box");
    // The host's root is the agent's home.
    let memory = world.memory_path("scout");
    let below_home = memory.strip_prefix("/").unwrap().display();
    let lines = format!("remote_host = box\nremote_memory = ~/{below_home}\n");
    world.add_agent("twin", &lines);
    world.set_baseline("twin", BASELINE);
    for agent in ["scout", "other"] {
        world.write_scratch(agent, "- note\n");
    }
    for unseen in [false, true] {
        let engine = engine_with_connector(&world, start_host(&[]));
        let names = ["scout", "twin", "other"].map(str::to_string);
        let plan = if unseen {
            engine.planner().plan_unobserved(&names, false).unwrap()
        } else {
            engine.planner().plan_reset(&names, false).unwrap()
        };
        let report = engine
            .runs()
            .apply_plan(&plan, !unseen, &false.into(), &mut |_| ());
        for result in &report.results {
            let refused = result.kind == Some(ErrorKind::Conflict);
            assert_eq!(refused, result.agent != "other", "{result:?}");
        }
    }
    assert!(world.read_memory("scout").ends_with(b"- note\n"));
}

#[test]
fn remote_memory_in_other_case_is_refused() {
    let mut world = World::new(&[]);
    add_remote_agent(&mut world, "far", "box");
    let engine = engine_with_connector(&world, start_host(&[]));
    let other = world.agent_directory("far").join("memory.md");
    fs::write(other, "notes").unwrap();
    let plan = engine
        .planner()
        .plan_reset(&["far".to_string()], false)
        .unwrap();
    let reason = &plan.skipped[0].reason;
    assert!(reason.contains("memory.md is there"), "{reason}");
    assert_eq!(plan.skipped[0].kind, Some(ErrorKind::Conflict));
    let hints = plan.skipped[0].hints.join("; ");
    assert!(hints.contains("remote_memory"), "{hints}");
    assert!(!world.memory_path("far").exists());
}

#[test]
fn late_remote_entries_hold_only_appended_bytes() {
    let mut world = World::new(&[]);
    add_remote_agent(&mut world, "ranger", "box");
    world.write_scratch("ranger", "- a note\n".repeat(20_000));
    let before = world.read_memory("ranger");
    let file = File::options()
        .append(true)
        .open(world.memory_path("ranger"));
    let (mut file, mut looks) = (file.unwrap(), 0);
    world.clock.on_sleep(move || {
        looks += 1;
        if looks <= 2 {
            file.write_all(format!("- late {looks}\n").as_bytes())
                .unwrap();
        }
    });
    let engine = engine_with_connector(&world, start_host(&[]));
    world.reset_with_engine(&engine).assert_ok();
    let late: Vec<_> = world.read_records()[0].event.change.late_entries.clone();
    let kinds: Vec<_> = late.iter().map(|it| (it.kind, it.size)).collect();
    assert!(!kinds.is_empty());
    assert!(
        kinds.iter().all(|it| it.0 == EntryKind::Appended),
        "{kinds:?}"
    );
    assert_eq!(kinds.iter().map(|it| it.1).sum::<u64>(), 18, "{kinds:?}");
    assert!(world.leftovers("ranger").is_empty());
    let plan = engine.planner().plan_undo(
        &UndoTarget::Agents(vec!["ranger".to_string()]),
        UndoMode::Refuse,
        false,
    );
    apply_plan(&engine, &plan.unwrap()).assert_ok();
    let after = [&before[..], b"- late 1\n- late 2\n"].concat();
    assert!(world.read_memory("ranger") == after);
}
