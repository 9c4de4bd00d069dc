//! The demo's host: what it serves, how it goes away and comes back, and what
//! becomes of a reset where its server lacks something.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{chown, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use memory_shepherd::archive::EntryKind;
use memory_shepherd::demo::host::{DemoHost, SupportedExtensions};
use memory_shepherd::engine::{Engine, Outcome, State, UndoMode, UndoTarget};
use memory_shepherd::error::ErrorKind;
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

use super::contract::{Ground, NEW, OnDisk, settle, stage};
use super::remote::{add_remote, engine, ground_by};
use super::servers::{self, host};
use super::world::{BASELINE, TestClock, World, apply};

/// How long anything that surely happens may take.
const BOUND: Duration = Duration::from_secs(60);

/// What its server can do beside the protocol's own.
pub const ALL: [&str; 5] = ["posix-rename", "hardlink", "fsync", "statvfs", "limits"];

/// Everything but these.
fn without(extensions: &[&str]) -> SupportedExtensions {
    let has = |name| !extensions.contains(&name);
    SupportedExtensions {
        posix_rename: has("posix-rename"),
        hardlink: has("hardlink"),
        fsync: has("fsync"),
        statvfs: has("statvfs"),
        limits: has("limits"),
    }
}

fn start(lacks: &[&str]) -> DemoHost {
    DemoHost::start(Path::new("/"), without(lacks)).unwrap()
}

/// A folder on this disk, over SFTP with the demo's server.
pub fn ground(lacks: &[&str]) -> OnDisk<SftpTransport> {
    ground_by(host("remote"), start(lacks))
}

/// A session with a host, and a folder for it.
struct Guest {
    session: Session,
    dir: TempDir,
}

impl Guest {
    fn of(host: &DemoHost) -> Guest {
        let link = host.connect(&servers::host("remote")).unwrap().pipes;
        Guest {
            session: Session::start(link, Instant::now() + BOUND).unwrap(),
            dir: crate::folder(),
        }
    }

    fn path(&self, name: &str) -> Vec<u8> {
        let path = self.dir.path().join(name);
        path.into_os_string().into_encoded_bytes()
    }

    fn ask(&self, request: Request) -> Reply {
        let answers = self.session.send_batch(vec![request]).wait();
        answers.into_iter().next().unwrap().unwrap()
    }

    fn code(&self, request: Request) -> u32 {
        match self.ask(request) {
            Reply::Status { code, .. } => code,
            reply => panic!("{reply:?}"),
        }
    }

    fn open(&self, name: &str, flags: u32) -> Request {
        let (path, mode) = (self.path(name), Some(0o600));
        Request::Open { path, flags, mode }
    }

    fn opened(&self, name: &str, flags: u32) -> Vec<u8> {
        match self.ask(self.open(name, flags)) {
            Reply::Handle(handle) => handle,
            reply => panic!("{reply:?}"),
        }
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.dir.path().join(name), bytes).unwrap();
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.dir.path().join(name)).unwrap()
    }
}

#[test]
fn it_announces_what_it_can_and_refuses_the_rest() {
    let every = ServerExtensions {
        posix_rename: true,
        hardlink: true,
        fsync: true,
        statvfs: true,
        limits: true,
        lsetstat: false,
    };
    let guest = Guest::of(&start(&[]));
    assert_eq!(guest.session.extensions(), every);
    drop(guest);

    let host = start(&ALL);
    let guest = Guest::of(&host);
    assert_eq!(guest.session.extensions(), ServerExtensions::default());
    guest.write("a", b"a");
    let handle = guest.opened("a", flags::READ);
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
        Request::Fsync { handle },
        Request::Statvfs { path: from },
        Request::Limits,
    ] {
        assert_eq!(guest.code(request), status::UNSUPPORTED);
    }
    assert_eq!(super::world::names(guest.dir.path()), ["a"]);
}

#[test]
fn extensions_do_what_openssh_says_they_do() {
    let host = start(&[]);
    let guest = Guest::of(&host);
    let limits = guest.session.limits().unwrap();
    assert_eq!((limits.read, limits.write), (261_120, 261_120));
    guest.write("a", b"a");
    guest.write("b", b"b");
    let paths = || (guest.path("a"), guest.path("b"));
    let (from, to) = paths();
    let link = Request::HardLink { from, to };
    assert_eq!(guest.code(link), status::FAILURE, "replaces nothing");
    let (from, to) = paths();
    let rename = Request::Rename { from, to };
    assert_eq!(guest.code(rename), status::FAILURE, "replaces nothing");
    assert_eq!(
        (guest.read("a"), guest.read("b")),
        (b"a".into(), b"b".into())
    );
    let (from, to) = paths();
    assert_eq!(guest.code(Request::PosixRename { from, to }), status::OK);
    assert_eq!(super::world::names(guest.dir.path()), ["b"]);
    assert_eq!(guest.read("b"), b"a");
    // Of a folder, too.
    let handle = guest.opened(".", flags::READ);
    assert_eq!(guest.code(Request::Fsync { handle }), status::OK);
    let Reply::Extended(body) = guest.ask(Request::Statvfs {
        path: guest.path("b"),
    }) else {
        panic!("no numbers");
    };
    let space = Statvfs::decode(&body).unwrap();
    assert!(
        space.blocks >= space.blocks_available && space.fragment_size > 0,
        "{space:?}"
    );
}

#[test]
fn what_is_open_stays_open_whatever_becomes_of_its_name() {
    let host = start(&[]);
    let guest = Guest::of(&host);
    guest.write("a", b"content");
    let handle = guest.opened("a", flags::READ);
    let (from, to) = (guest.path("a"), guest.path("b"));
    assert_eq!(guest.code(Request::PosixRename { from, to }), status::OK);
    let path = guest.path("b");
    assert_eq!(guest.code(Request::Remove { path }), status::OK);
    let read = |offset| Request::Read {
        handle: handle.clone(),
        offset,
        length: 100,
    };
    assert_eq!(guest.ask(read(3)), Reply::Data(b"tent".into()));
    assert_eq!(guest.code(read(7)), status::EOF);
    let close = || Request::Close {
        handle: handle.clone(),
    };
    assert_eq!(guest.code(close()), status::OK);
    assert_eq!(guest.code(read(0)), status::FAILURE);
    assert_eq!(guest.code(close()), status::FAILURE);
}

#[test]
fn its_answers_tell_what_was_wrong() {
    let host = start(&[]);
    let guest = Guest::of(&host);
    assert_eq!(
        guest.code(guest.open("none", flags::READ)),
        status::NO_SUCH_FILE
    );
    let new = flags::WRITE | flags::CREATE | flags::EXCLUSIVE;
    let handle = guest.opened("new", new);
    let write = Request::Write {
        handle,
        offset: 0,
        bytes: b"new".into(),
    };
    assert_eq!(guest.code(write), status::OK);
    assert_eq!(guest.code(guest.open("new", new)), status::FAILURE);
    assert_eq!(guest.read("new"), b"new");
    // A name that is a link is not free, wherever it leads.
    symlink("nowhere", guest.dir.path().join("link")).unwrap();
    assert_eq!(guest.code(guest.open("link", new)), status::FAILURE);
    let path = guest.path("link");
    let Reply::Attrs(found) = guest.ask(Request::Lstat { path }) else {
        panic!("no attributes");
    };
    assert_eq!(found.mode.unwrap() & 0o170_000, 0o120_000, "not followed");
    let path = guest.path("link");
    let Reply::Names(names) = guest.ask(Request::ReadLink { path }) else {
        panic!("no target");
    };
    assert_eq!(names[0].name, b"nowhere");
    // Nobody waits at a FIFO.
    let fifo = guest.dir.path().join("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, fifo, kind, mode, 0).unwrap();
    guest.opened("fifo", flags::READ);
}

#[test]
fn attributes_are_changed_one_by_one() {
    let host = start(&[]);
    let guest = Guest::of(&host);
    guest.write("a", b"content");
    let handle = guest.opened("a", flags::READ | flags::WRITE);
    let look = || {
        let handle = handle.clone();
        match guest.ask(Request::Fstat { handle }) {
            Reply::Attrs(attrs) => attrs,
            reply => panic!("{reply:?}"),
        }
    };
    let set = |attrs| {
        let handle = handle.clone();
        assert_eq!(guest.code(Request::Fsetstat { handle, attrs }), status::OK);
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
    assert_eq!(guest.read("a"), b"cont");
}

#[test]
fn a_long_folder_is_listed_whole() {
    let host = start(&[]);
    let guest = Guest::of(&host);
    for number in 0..250 {
        guest.write(&format!("{number:03}"), b"");
    }
    let path = guest.path("");
    let Reply::Handle(handle) = guest.ask(Request::OpenDir { path }) else {
        panic!("no handle");
    };
    let mut names = Vec::new();
    loop {
        let handle = handle.clone();
        match guest.ask(Request::ReadDir { handle }) {
            Reply::Names(more) => names.extend(more.into_iter().map(|it| it.name)),
            Reply::Status { code, .. } => {
                assert_eq!(code, status::EOF);
                break;
            }
            reply => panic!("{reply:?}"),
        }
        assert!(names.len() <= 250, "it has an end");
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 250);
}

#[test]
fn going_away_cuts_and_refuses_and_coming_back_serves_again() {
    let served = Arc::new(start(&[]));
    let clock = TestClock::new();
    let transport = SftpTransport::new(host("remote"), served.clone(), clock.clone());
    let dir = crate::folder();
    let memory = dir.path().canonicalize().unwrap().join("MEMORY.md");
    let probe = || transport.probe(&[&memory]).pop().unwrap();
    let why = |probed: Result<MemoryObject, TransportError>| {
        let error = probed.unwrap_err();
        assert_eq!(error.cause, FailureCause::Unreachable, "{error}");
        error.to_string()
    };
    assert_eq!(probe().unwrap(), MemoryObject::Absent);
    for _ in 0..3 {
        let folder = transport.open_directory(&memory).unwrap();
        served.go_offline();
        assert!(served.is_offline());
        let cut = folder.exists("name").unwrap_err();
        assert_eq!(cut.cause, FailureCause::Unreachable);
        let end = Instant::now() + BOUND;
        while !why(probe()).contains("no route") {
            assert!(Instant::now() < end, "it is noticed");
            clock.advance(Duration::from_secs(1000));
        }
        served.go_online().unwrap();
        assert!(!served.is_offline());
        clock.advance(Duration::from_secs(1000));
        assert_eq!(probe().unwrap(), MemoryObject::Absent);
    }
}

#[test]
fn it_ends_with_whoever_has_it() {
    let served = start(&[]);
    let mut links = Vec::new();
    for _ in 0..3 {
        links.push(served.connect(&host("remote")).unwrap().pipes);
    }
    let guest = Guest::of(&served);
    guest.write("a", b"a");
    guest.opened("a", flags::READ);
    drop(served);
    for link in links {
        let mut rest = Vec::new();
        File::from(link.output).read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"", "it never said anything");
    }
    let end = Instant::now() + BOUND;
    while guest.session.end_error().is_none() {
        assert!(Instant::now() < end, "it is noticed");
        std::thread::yield_now();
    }
}

/// An agent on a host that lacks some extensions, all of which it accepts or none.
fn poor(lacks: &[&str], accepts: bool) -> (World, Engine) {
    let mut world = World::new(&[]);
    match accepts {
        false => add_remote(&mut world, "ranger", "box"),
        true => {
            let memory = world.memory("ranger");
            let lines = format!(
                "remote_host = box\nremote_memory = {}\nremote_timeout = 3600\naccept_weaker = {}",
                memory.display(),
                lacks.join(",")
            );
            world.add("ranger", &lines);
            world.set_baseline("ranger", BASELINE);
        }
    }
    world.write_scratch("ranger", "a note\n");
    let engine = engine(&world, start(lacks));
    (world, engine)
}

/// What a memory is replaced with, in the words of the config.
const WEAKER: [&[&str]; 4] = [
    &["posix-rename"],
    &["hardlink"],
    &["fsync"],
    &["posix-rename", "hardlink", "fsync"],
];

#[test]
fn where_a_host_lacks_something_nothing_is_changed_unless_that_is_accepted() {
    for lacks in WEAKER {
        let (world, engine) = poor(lacks, false);
        let before = world.read("ranger");
        let names = ["ranger".to_string()];
        let plan = engine.plan_reset(&names, false).unwrap();
        assert!(plan.steps.is_empty(), "{plan:?}");
        let key = format!("`accept_weaker = {}` in [ranger]", lacks.join(", "));
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
        // Whoever resets without a look is told the same.
        let unseen = engine.plan_unobserved(&names, false).unwrap();
        let ran = engine.apply_plan(&unseen, false, &AtomicBool::new(false), &mut |_| {});
        let result = &ran.results[0];
        assert_eq!(result.outcome, Outcome::Failed, "{result:?}");
        told(&format!("{result:?}"));
        assert_eq!(world.read("ranger"), before);
        assert_eq!(world.litter("ranger"), Vec::<String>::new());
        assert!(world.pending().is_empty());
    }
}

#[test]
fn where_a_host_lacks_something_and_that_is_accepted_plan_and_run_name_it() {
    for lacks in WEAKER {
        let (world, engine) = poor(lacks, true);
        let before = world.read("ranger");
        let names = ["ranger".to_string()];
        let plan = engine.plan_reset(&names, false).unwrap();
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
        let ran = apply(&engine, &plan);
        let result = &ran.report.results[0];
        assert_eq!(result.outcome, Outcome::Ok, "{result:?}");
        assert!(named(result.note.as_deref().unwrap()), "{result:?}");
        assert_eq!(world.read("ranger"), BASELINE.as_bytes());
        assert!(world.archived("ranger").ends_with(b"a note\n"));
        assert!(world.litter("ranger").is_empty());
        let target = UndoTarget::Agents(names.to_vec());
        let plan = engine.plan_undo(&target, UndoMode::Refuse, false).unwrap();
        let ran = apply(&engine, &plan);
        assert_eq!(
            ran.report.results[0].outcome,
            Outcome::Ok,
            "{:?}",
            ran.report
        );
        assert_eq!(world.read("ranger"), before);
        assert_eq!(
            engine.observe(engine.agent("ranger").unwrap()).state,
            State::Scratch
        );
    }
}

/// Links cannot be counted over SFTP: a file of somebody else's may be a further name
/// of one that is none of the agent's business.
#[test]
fn displaced_file_of_another_owner_is_kept() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root has files that are somebody else's");
        return;
    }
    let ground = ground(&[]);
    let ground: &dyn Ground = &ground;
    ground.write("MEMORY.md", b"old");
    let folder = ground.open();
    let new = stage(ground, folder.as_ref(), b"new");
    chown(ground.memory(), Some(1234), Some(1234)).unwrap();
    let displaced = folder.swap(NEW, new).unwrap().displaced.remove(0);
    let is_kept = |folder: &dyn MemoryDirectory| {
        let (settled, seen) = match settle(folder, &displaced) {
            (SettleOutcome::StillOpen, _) if ground.wait() => settle(folder, &displaced),
            settled => settled,
        };
        assert_eq!(
            settled,
            SettleOutcome::Kept(SpecialFile::ForeignHardLink(1234))
        );
        assert!(seen.is_empty());
        assert_eq!(ground.bytes(&displaced).unwrap(), b"old");
    };
    // As it was opened behind the swap, and as the next contact finds it.
    is_kept(folder.as_ref());
    is_kept(ground.open().as_ref());
}

#[test]
fn memory_by_another_path_is_refused() {
    let mut world = World::new(&[]);
    add_remote(&mut world, "scout", "box");
    add_remote(&mut world, "other", "box");
    // Its home is the root there.
    let memory = world.memory("scout");
    let below_home = memory.strip_prefix("/").unwrap().display();
    let lines = format!("remote_host = box\nremote_memory = ~/{below_home}\n");
    world.add("twin", &lines);
    world.set_baseline("twin", BASELINE);
    for agent in ["scout", "other"] {
        world.write_scratch(agent, "- note\n");
    }
    for unseen in [false, true] {
        let engine = engine(&world, start(&[]));
        let names = ["scout", "twin", "other"].map(str::to_string);
        let plan = match unseen {
            true => engine.plan_unobserved(&names, false).unwrap(),
            false => engine.plan_reset(&names, false).unwrap(),
        };
        let report = engine.apply_plan(&plan, !unseen, &false.into(), &mut |_| ());
        for result in &report.results {
            let refused = result.kind == Some(ErrorKind::Conflict);
            assert_eq!(refused, result.agent != "other", "{result:?}");
        }
    }
    assert!(world.read("scout").ends_with(b"- note\n"));
}

#[test]
fn late_entries_of_a_host_hold_only_what_was_appended() {
    let mut world = World::new(&[]);
    add_remote(&mut world, "ranger", "box");
    world.write_scratch("ranger", "- a note\n".repeat(20_000));
    let before = world.read("ranger");
    let file = File::options().append(true).open(world.memory("ranger"));
    let (mut file, mut looks) = (file.unwrap(), 0);
    world.clock.meanwhile(move || {
        looks += 1;
        if looks <= 2 {
            file.write_all(format!("- late {looks}\n").as_bytes())
                .unwrap();
        }
    });
    let engine = engine(&world, start(&[]));
    world.reset_by(&engine).ok();
    let late: Vec<_> = world.records()[0].event.late_entries.clone();
    let kinds: Vec<_> = late.iter().map(|it| (it.kind, it.size)).collect();
    assert!(!kinds.is_empty());
    assert!(
        kinds.iter().all(|it| it.0 == EntryKind::Appended),
        "{kinds:?}"
    );
    assert_eq!(kinds.iter().map(|it| it.1).sum::<u64>(), 18, "{kinds:?}");
    assert!(world.litter("ranger").is_empty());
    let plan = engine.plan_undo(
        &UndoTarget::Agents(vec!["ranger".to_string()]),
        UndoMode::Refuse,
        false,
    );
    apply(&engine, &plan.unwrap()).ok();
    let after = [&before[..], b"- late 1\n- late 2\n"].concat();
    assert!(world.read("ranger") == after);
}
