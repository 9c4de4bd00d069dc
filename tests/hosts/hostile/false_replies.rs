//! Hosts that send false or malformed replies.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memory_shepherd::base::clock::SystemClock;
use memory_shepherd::engine::Outcome;
use memory_shepherd::layouts::{MAX_LISTED_NAMES, MemoryFiles};
use memory_shepherd::transport::sftp::SftpTransport;
use memory_shepherd::transport::{MAX_PAGE_ENTRIES, Transport};

use super::frames::{
    ATTRS, DATA, HANDLE, NAMES, OPEN, READ, READDIR, WRITE, is_changing, put_string, read_string,
    replace_size, reply_head, request_name, status_reply,
};
use super::scenario::{
    AGENT, HOST_OPERATIONS, HostOperation, HostScenario, LONG_TIMEOUT, NOTE, SharedCount,
    filter_at, has_sftp_server, pass_all, plan_undo, reply_filter, request_filter, request_names,
    run, sample_points, sftp_server_program, try_each,
};
use crate::remote::{add_remote_agent, engine_with_connector};
use crate::servers::{
    FilteredServer, ReplyFate, ReplyFilter, RequestFate, SentRequest, host_named, with_length,
};
use crate::world::{BASELINE, World};

const STATUS_CODES: [u32; 10] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 31];

#[test]
fn false_status_at_any_request_loses_nothing() {
    if !has_sftp_server() {
        return;
    }
    let mut points = Vec::new();
    for act in HOST_OPERATIONS {
        for (point, name) in request_names(act).into_iter().enumerate().skip(1) {
            for code in STATUS_CODES {
                points.extend([false, true].map(|done| (act, point, name, code, done)));
            }
        }
    }
    let count = try_each(
        sample_points(points, 17),
        8,
        |(act, point, name, code, done)| {
            let scene = HostScenario::new(act);
            let between = if done {
                FilteredServer::new(sftp_server_program(), pass_all()).with_reply_filter(
                    reply_filter(move |asked, frame| {
                        if asked.number == point {
                            *frame = status_reply(&asked.frame, code);
                        }
                        ReplyFate::Pass
                    }),
                )
            } else {
                let lie = move |frame: &mut Vec<u8>| {
                    RequestFate::Reply(with_length(&status_reply(frame, code)))
                };
                FilteredServer::new(sftp_server_program(), filter_at(point, lie))
            };
            let fault = format!("{act:?}, status {code} at request {point}, {name}, done: {done}");
            scene.assert_survives(between, &fault);
        },
    );
    println!("false status at {count} points, losses 0");
}

#[test]
fn denied_request_kind_loses_nothing() {
    if !has_sftp_server() {
        return;
    }
    let mut points = Vec::new();
    for act in [HostOperation::Reset, HostOperation::UndoCreate] {
        let mut kinds = request_names(act);
        kinds.remove(0);
        // Requests that only a recovery sends.
        kinds.extend(["opendir", "readdir", "readlink", "rename"]);
        kinds.sort_unstable();
        kinds.dedup();
        for kind in kinds {
            // Code 4 also stands for a full disk, a quota and a read-only file system.
            for code in [0, 1, 2, 3, 4, 8] {
                points.extend([false, true].map(|done| (act, kind, code, done)));
            }
        }
    }
    let count = try_each(sample_points(points, 2), 8, |(act, kind, code, done)| {
        let scene = HostScenario::new(act);
        let between = if done {
            FilteredServer::new(sftp_server_program(), pass_all()).with_reply_filter(reply_filter(
                move |asked, frame| {
                    if request_name(&asked.frame) == kind {
                        *frame = status_reply(&asked.frame, code);
                    }
                    ReplyFate::Pass
                },
            ))
        } else {
            FilteredServer::new(
                sftp_server_program(),
                request_filter(move |_, frame| {
                    if request_name(frame) == kind {
                        RequestFate::Reply(with_length(&status_reply(frame, code)))
                    } else {
                        RequestFate::Pass
                    }
                }),
            )
        };
        let fault = format!("{act:?}, status {code} to each {kind}, done: {done}");
        scene.assert_survives(between, &fault);
    });
    println!("requests denied in {count} ways, losses 0");
}

/// The path that a request moves aside, if it moves the memory.
fn moved_memory(frame: &[u8]) -> Option<PathBuf> {
    if request_name(frame) != "posix-rename" {
        return None;
    }
    let path = read_string(frame, 5 + 4 + "posix-rename@openssh.com".len());
    path.ends_with(b"/MEMORY.md")
        .then(|| PathBuf::from(OsString::from_vec(path)))
}

#[test]
fn late_note_survives_a_falsely_denied_move() {
    if !has_sftp_server() {
        return;
    }
    const LATE: &str = "- late\n";
    for code in [2, 3, 4] {
        let scene = HostScenario::new(HostOperation::UndoCreate);
        let moves = SharedCount::default();
        let count = moves.clone();
        let append = request_filter(move |_, frame| {
            if let Some(memory) = moved_memory(frame).filter(|_| count.get() == 0) {
                count.add();
                let file = OpenOptions::new().append(true).open(memory);
                file.unwrap().write_all(LATE.as_bytes()).unwrap();
            }
            RequestFate::Pass
        });
        let lie = reply_filter(move |asked, frame| {
            if moved_memory(&asked.frame).is_some() {
                *frame = status_reply(&asked.frame, code);
            }
            ReplyFate::Pass
        });
        let host = FilteredServer::new(sftp_server_program(), append).with_reply_filter(lie);
        let said = format!("status {code}: {:?}", scene.run(host));
        assert_eq!(moves.get(), 1, "{said}");
        assert!(scene.preserves(LATE.as_bytes()), "{said}");
        scene.assert_next_run_settles(&said);
        assert!(scene.preserves(LATE.as_bytes()), "{said}");
    }
}

/// Resets two agents on a host that answers this status to the first two requests of a kind, as
/// when the new files of both do not fit on its disk together. Returns the number of these requests.
fn count_requests_after_failures(kind: &'static str, code: u32, succeeds: bool) -> usize {
    let agents = [AGENT, "scout"];
    let mut world = World::new(&[]).with_general(LONG_TIMEOUT);
    for agent in agents {
        add_remote_agent(&mut world, agent, "box");
        world.write_scratch(agent, NOTE);
    }
    let seen = SharedCount::default();
    let count = seen.clone();
    let judge = request_filter(move |_, frame| {
        if request_name(frame) != kind {
            return RequestFate::Pass;
        }
        count.add();
        if count.get() <= agents.len() {
            RequestFate::Reply(with_length(&status_reply(frame, code)))
        } else {
            RequestFate::Pass
        }
    });
    let host = FilteredServer::new(sftp_server_program(), judge);
    let ran = world.reset_with_engine(&engine_with_connector(&world, host));
    let said = format!("{kind}, status {code}: {:?}", ran.report);
    assert_eq!(ran.report.worst_kind().is_none(), succeeds, "{said}");
    for agent in agents {
        let is_reset = world.read_memory(agent) == BASELINE.as_bytes();
        assert_eq!(is_reset, succeeds, "{said}");
        assert!(world.preserves(agent, NOTE), "{said}");
        // A second attempt does not archive the notes again.
        assert_eq!(world.entry_names(agent).len(), 1, "{said}");
        assert!(world.leftovers(agent).is_empty(), "{said}");
    }
    seen.get()
}

#[test]
fn disk_full_beside_other_agents_is_tried_again() {
    if !has_sftp_server() {
        return;
    }
    const DENIED: u32 = 3;
    const FAILURE: u32 = 4;
    for kind in ["mkdir", "create", "write"] {
        assert_eq!(count_requests_after_failures(kind, FAILURE, true), 4);
        // Space has nothing to do with it.
        assert_eq!(count_requests_after_failures(kind, DENIED, false), 2);
    }
}

/// Returns a host that announces hard links on a file system without them.
fn server_without_hard_links(away: &SharedCount) -> FilteredServer {
    let away = away.clone();
    FilteredServer::new(
        sftp_server_program(),
        request_filter(move |_, frame| match request_name(frame) {
            "hardlink" => RequestFate::Reply(with_length(&status_reply(frame, 4))),
            "posix-rename" => {
                if read_string(frame, 5 + 4 + "posix-rename@openssh.com".len())
                    .ends_with(b"/MEMORY.md")
                {
                    away.add();
                }
                RequestFate::Pass
            }
            _ => RequestFate::Pass,
        }),
    )
}

#[test]
fn failing_hard_links_are_found_before_the_swap() {
    if !has_sftp_server() {
        return;
    }
    let away = SharedCount::default();
    let report = HostScenario::new(HostOperation::Reset)
        .assert_survives(server_without_hard_links(&away), "no hard links");
    assert_eq!(away.get(), 0, "the memory was displaced");
    let said = format!("{report:?}");
    assert!(said.contains("accept_degraded = hardlink"), "{said}");
}

#[test]
fn accepted_missing_hard_links_are_worked_around() {
    if !has_sftp_server() {
        return;
    }
    let mut world = World::new(&[]).with_general(LONG_TIMEOUT);
    add_remote_agent(&mut world, AGENT, "box\naccept_degraded = hardlink");
    world.write_scratch(AGENT, "a note\n");
    let before = world.read_memory(AGENT);
    let away = SharedCount::default();
    let engine = engine_with_connector(&world, server_without_hard_links(&away));
    let ran = world.reset_with_engine(&engine);
    let result = &ran.report.results[0];
    assert_eq!(
        (result.outcome, result.kind),
        (Outcome::Ok, None),
        "{result:?}"
    );
    assert!(
        result
            .note
            .as_ref()
            .is_some_and(|note| note.contains("hardlink")),
        "{result:?}"
    );
    assert_eq!(world.read_memory(AGENT), BASELINE.as_bytes());
    assert!(world.leftovers(AGENT).is_empty());
    assert_eq!(away.get(), 1);
    let report = run(&engine, &plan_undo(&engine));
    assert_eq!(report.results[0].outcome, Outcome::Ok, "{report:?}");
    assert_eq!(world.read_memory(AGENT), before);
    assert!(world.leftovers(AGENT).is_empty());
}

#[test]
fn unreadable_memory_is_never_replaced() {
    if !has_sftp_server() {
        return;
    }
    let mut points = Vec::new();
    for kind in ["open", "read", "fstat"] {
        points.extend([0, 1, 2, 3, 4, 8, 31].map(|code| (kind, code)));
    }
    try_each(points, 8, |(kind, code)| {
        let scene = HostScenario::new(HostOperation::Reset);
        let changed = SharedCount::default();
        let changing = changed.clone();
        let judge = request_filter(move |_, frame| {
            if is_changing(frame) {
                changing.add();
            }
            let directory = read_string(frame, 5).ends_with(b"/.");
            if request_name(frame) == kind && !directory {
                RequestFate::Reply(with_length(&status_reply(frame, code)))
            } else {
                RequestFate::Pass
            }
        });
        let report = scene.assert_survives(
            FilteredServer::new(sftp_server_program(), judge),
            &format!("status {code} to each {kind}"),
        );
        assert_ne!(report.results[0].outcome, Outcome::Ok, "{report:?}");
        assert_eq!(changed.get(), 0, "{kind} {code}: {report:?}");
    });
}

/// Returns a filter that falsifies sizes in the attributes that answer requests of the kind `of`.
fn false_sizes(of: &'static str, size: fn(u64) -> u64) -> ReplyFilter {
    reply_filter(move |asked, frame| {
        // Regular files only; the mode follows size and owner.
        let is_file = frame[0] == ATTRS && frame.len() > 28 && frame[27] & 0xF0 == 0x80;
        let path = read_string(&asked.frame, 5);
        let directory = path.ends_with(b"/.") || path.ends_with(AGENT.as_bytes());
        if request_name(&asked.frame) == of && is_file && !directory {
            replace_size(frame, size);
        }
        ReplyFate::Pass
    })
}

#[test]
fn false_sizes_lose_nothing() {
    if !has_sftp_server() {
        return;
    }
    let all: [fn(u64) -> u64; 8] = [
        |_| 0,
        |_| 1,
        |size| size - 1,
        |size| size + 1,
        |size| size + 100_000,
        |_| 16 << 20,
        |_| 1 << 40,
        |_| u64::MAX,
    ];
    let mut points = Vec::new();
    for act in [HostOperation::Reset, HostOperation::Undo] {
        for of in ["lstat", "fstat"] {
            points.extend(all.iter().enumerate().map(|size| (act, of, size)));
        }
    }
    let count = try_each(points, 8, |(act, of, (number, size))| {
        let scene = HostScenario::new(act);
        let between = FilteredServer::new(sftp_server_program(), pass_all())
            .with_reply_filter(false_sizes(of, *size));
        scene.assert_survives(
            between,
            &format!("{act:?}, false size {number} to each {of}"),
        );
    });
    println!("false sizes in {count} ways, losses 0");
}

#[test]
fn acknowledged_but_unstored_write_is_detected() {
    if !has_sftp_server() {
        return;
    }
    // Nothing, half of the data, or other data; of one write, or of all.
    for how in 0..3 {
        for act in [
            HostOperation::Reset,
            HostOperation::Undo,
            HostOperation::Create,
        ] {
            let scene = HostScenario::new(act);
            let judge = request_filter(move |_, frame| {
                if frame[0] != WRITE {
                    return RequestFate::Pass;
                }
                let handle = read_string(frame, 5);
                let at = 9 + handle.len() + 8;
                let mut bytes = read_string(frame, at);
                match how {
                    0 => return RequestFate::Reply(with_length(&status_reply(frame, 0))),
                    1 => bytes.truncate(bytes.len() / 2),
                    _ => bytes[3] ^= 1,
                }
                frame.truncate(at);
                put_string(frame, &bytes);
                RequestFate::Pass
            });
            let fault = format!("{act:?}, not stored as {how}");
            let report =
                scene.assert_survives(FilteredServer::new(sftp_server_program(), judge), &fault);
            assert_ne!(
                report.results[0].outcome,
                Outcome::Ok,
                "{fault}: {report:?}"
            );
        }
    }
}

/// Replaces a reply by a malformed or additional one.
fn malformed_reply(how: usize, asked: &SentRequest, frame: &mut Vec<u8>) -> ReplyFate {
    let twice =
        |frame: &[u8]| ReplyFate::Replace([with_length(frame), with_length(frame)].concat());
    match how {
        0 => twice(frame),
        // Another id, an unknown type, another type, a reply cut short.
        1 => {
            frame[1..5].copy_from_slice(&u32::MAX.to_be_bytes());
            ReplyFate::Pass
        }
        2 => {
            frame[0] = 77;
            ReplyFate::Pass
        }
        3 => {
            frame[0] = if frame[0] == HANDLE { DATA } else { HANDLE };
            ReplyFate::Pass
        }
        4 => {
            frame.truncate(frame.len() - 1);
            ReplyFate::Pass
        }
        5 => {
            frame.extend(b"more");
            ReplyFate::Pass
        }
        // Lengths beyond any packet, and plain text.
        6 => ReplyFate::Replace(vec![0xFF; 64]),
        7 => ReplyFate::Replace([&(300_u32 << 10).to_be_bytes()[..], &vec![0; 300 << 10]].concat()),
        8 => ReplyFate::Replace(vec![0; 4]),
        9 => ReplyFate::Replace(b"Connection closed by peer\r\n".to_vec()),
        // An impossible count.
        10 => {
            *frame = reply_head(NAMES, &asked.frame);
            frame.extend(u32::MAX.to_be_bytes());
            ReplyFate::Pass
        }
        // Bytes of an unrequested reply.
        11 => {
            *frame = reply_head(DATA, &asked.frame);
            put_string(frame, &vec![b'x'; 100_000]);
            ReplyFate::Pass
        }
        // A handle of the maximum length, one byte longer, and an empty one.
        12..=14 => {
            if frame[0] == HANDLE {
                *frame = reply_head(HANDLE, &asked.frame);
                put_string(frame, &vec![7; [256, 257, 0][how - 12]]);
            }
            ReplyFate::Pass
        }
        _ => ReplyFate::SendByteByByte,
    }
}

#[test]
fn invalid_reply_at_any_request_loses_nothing() {
    if !has_sftp_server() {
        return;
    }
    let mut points = Vec::new();
    for act in [HostOperation::Reset, HostOperation::UndoCreate] {
        for point in 1..request_names(act).len() {
            points.extend((0..16).map(|how| (act, point, how)));
        }
    }
    let count = try_each(sample_points(points, 13), 8, |(act, point, how)| {
        let scene = HostScenario::new(act);
        let malformed = reply_filter(move |asked, frame| {
            if asked.number == point {
                malformed_reply(how, asked, frame)
            } else {
                ReplyFate::Pass
            }
        });
        let between =
            FilteredServer::new(sftp_server_program(), pass_all()).with_reply_filter(malformed);
        scene.assert_survives(between, &format!("{act:?}, malformed {how} at {point}"));
    });
    println!("malformed replies at {count} points, losses 0");
}

#[test]
fn invalid_reply_is_described() {
    if !has_sftp_server() {
        return;
    }
    for (how, words) in [
        (4, "a reply is cut short"),
        (5, "a reply has trailing bytes"),
    ] {
        let malformed = reply_filter(move |asked, frame| match request_name(&asked.frame) {
            "lstat" => malformed_reply(how, asked, frame),
            _ => ReplyFate::Pass,
        });
        let host =
            FilteredServer::new(sftp_server_program(), pass_all()).with_reply_filter(malformed);
        let report = HostScenario::new(HostOperation::Reset).assert_survives(host, words);
        let said = format!("{report:?}");
        let expected = format!("unexpected reply from the server: {words}");
        assert!(said.contains(&expected), "{said}");
    }
}

#[test]
fn invalid_version_is_reported_and_changes_nothing() {
    if !has_sftp_server() {
        return;
    }
    try_each((0..12).filter(|how| *how != 1).collect(), 8, |how| {
        let scene = HostScenario::new(HostOperation::Reset);
        let greeting: ReplyFilter = Arc::new(move |asked, frame| match (&asked.frame[0], how) {
            // VERSION has neither an id nor a length to falsify.
            (1, 4) => {
                frame[1..5].copy_from_slice(&6_u32.to_be_bytes());
                ReplyFate::Pass
            }
            (1, how) => malformed_reply(how, asked, frame),
            _ => ReplyFate::Pass,
        });
        let between =
            FilteredServer::new(sftp_server_program(), pass_all()).with_reply_filter(greeting);
        let report = scene.assert_survives(between, &format!("malformed VERSION, kind {how}"));
        assert_ne!(report.results[0].outcome, Outcome::Ok, "{report:?}");
    });
}

#[test]
fn host_replying_byte_by_byte_works() {
    if !has_sftp_server() {
        return;
    }
    let scene = HostScenario::new(HostOperation::Reset);
    let drips = FilteredServer::new(sftp_server_program(), pass_all())
        .with_reply_filter(Arc::new(|_, _| ReplyFate::SendByteByByte));
    let report = scene.assert_survives(drips, "replies byte by byte");
    assert_eq!(report.results[0].outcome, Outcome::Ok, "{report:?}");
}

#[test]
fn reused_handle_loses_nothing() {
    if !has_sftp_server() {
        return;
    }
    for act in HOST_OPERATIONS {
        // The handle of the directory, of the memory, or of the third open.
        for kept in 0..3 {
            let scene = HostScenario::new(act);
            let first = std::sync::Mutex::new((0, Vec::new()));
            let same = reply_filter(move |_, frame| {
                if frame[0] == HANDLE {
                    let mut first = first.lock().unwrap();
                    if first.0 == kept {
                        first.1 = frame[5..].to_vec();
                    } else if first.0 > kept {
                        frame.truncate(5);
                        frame.extend(&first.1);
                    }
                    first.0 += 1;
                }
                ReplyFate::Pass
            });
            let between =
                FilteredServer::new(sftp_server_program(), pass_all()).with_reply_filter(same);
            scene.assert_survives(between, &format!("{act:?}, handle {kept} for every open"));
        }
    }
}

/// Number of fabricated reply bytes.
#[derive(Clone, Default)]
struct SentBytes(Arc<AtomicU64>);

impl SentBytes {
    fn count_reply(&self, bytes: Vec<u8>) -> RequestFate {
        self.0.fetch_add(bytes.len() as u64, Ordering::SeqCst);
        RequestFate::Reply(bytes)
    }
}

#[test]
fn endless_file_is_abandoned_at_a_bound() {
    if !has_sftp_server() {
        return;
    }
    let scene = HostScenario::new(HostOperation::Reset);
    let taken = SentBytes::default();
    let counted = taken.clone();
    let endless = request_filter(move |_, frame| {
        if frame[0] != READ {
            return RequestFate::Pass;
        }
        let wanted = u32::from_be_bytes(frame[frame.len() - 4..].try_into().unwrap());
        let mut data = reply_head(DATA, frame);
        put_string(&mut data, &vec![b'x'; wanted as usize]);
        counted.count_reply(with_length(&data))
    });
    // The reported size grows as well.
    let size = Arc::new(AtomicU64::new(0));
    let grows = reply_filter(move |asked, frame| {
        if request_name(&asked.frame) == "fstat" && frame[0] == ATTRS {
            let grown = size.fetch_add(1 << 20, Ordering::SeqCst);
            replace_size(frame, |size| size + grown);
        }
        ReplyFate::Pass
    });
    let report = scene.assert_survives(
        FilteredServer::new(sftp_server_program(), endless).with_reply_filter(grows),
        "file without end",
    );
    assert_ne!(report.results[0].outcome, Outcome::Ok, "{report:?}");
    let taken = taken.0.load(Ordering::SeqCst);
    println!("{taken} bytes read of a file without end");
    assert!((32 << 20..256 << 20).contains(&taken), "{taken}");
}

#[test]
fn endless_listing_is_abandoned_at_a_bound() {
    if !has_sftp_server() {
        return;
    }
    // Many names, long names, or none at all: each list is endless.
    for (count, length) in [(500, 10_usize), (1, 200_000), (0, 0)] {
        let scene = HostScenario::new(HostOperation::Reset);
        // A run lists a directory only where an earlier run was interrupted.
        let point = request_names(HostOperation::Reset)
            .iter()
            .position(|name| *name == "posix-rename")
            .unwrap();
        scene.run(FilteredServer::new(
            sftp_server_program(),
            super::disconnects::disconnect_for_good(point, true),
        ));
        let taken = SentBytes::default();
        let counted = taken.clone();
        let endless = request_filter(move |number, frame| {
            if frame[0] != READDIR {
                return RequestFate::Pass;
            }
            let mut names = reply_head(NAMES, frame);
            names.extend((count as u32).to_be_bytes());
            for name in 0..count {
                let name = format!("{number}-{name}-{}", "x".repeat(length));
                put_string(&mut names, name.as_bytes());
                put_string(&mut names, b"");
                names.extend([0; 4]);
            }
            counted.count_reply(with_length(&names))
        });
        let fault = format!("endless list, {count} names of {length} bytes per reply");
        scene.assert_survives(FilteredServer::new(sftp_server_program(), endless), &fault);
        let taken = taken.0.load(Ordering::SeqCst);
        println!("{taken} bytes read of an endless list");
        assert!((1..256 << 20).contains(&taken), "{fault}: {taken}");
    }
}

/// Names that a server sends for a directory, and that are no names of files in it.
const FALSE_NAMES: [&[u8]; 7] = [
    b"../outside",
    b"/etc/passwd",
    b"a/b",
    b"",
    b".",
    b"..",
    b"nul\0",
];

#[test]
fn endless_listing_is_paged_without_false_names() {
    if !has_sftp_server() {
        return;
    }
    let directory = crate::directory();
    let path = directory.path().canonicalize().unwrap();
    let endless = request_filter(|number, frame| {
        if frame[0] != READDIR {
            return RequestFate::Pass;
        }
        let real = (0..MAX_PAGE_ENTRIES + 1).map(|at| format!("{number}-{at}").into_bytes());
        let all: Vec<Vec<u8>> = FALSE_NAMES
            .iter()
            .map(|it| it.to_vec())
            .chain(real)
            .collect();
        let mut names = reply_head(NAMES, frame);
        names.extend((all.len() as u32).to_be_bytes());
        for name in &all {
            put_string(&mut names, name);
            put_string(&mut names, b"");
            // No attributes: the type is unknown.
            names.extend([0; 4]);
        }
        RequestFate::Reply(with_length(&names))
    });
    let server = FilteredServer::new(sftp_server_program(), endless);
    let transport = SftpTransport::new(host_named("box"), Arc::new(server), Arc::new(SystemClock));
    let transport: Arc<dyn Transport> = Arc::new(transport);
    let mut listing = transport.list_directory(&path).unwrap();
    let mut seen = 0;
    while seen < 4 * MAX_PAGE_ENTRIES {
        let page = listing.next_page().unwrap().expect("the list is endless");
        assert!(page.len() <= MAX_PAGE_ENTRIES);
        for entry in &page {
            let name = entry.name.as_bytes();
            assert!(!FALSE_NAMES.contains(&name), "{:?}", entry.name);
            assert!(entry.object.is_err(), "{:?} has no type", entry.name);
        }
        seen += page.len();
    }
    let files = MemoryFiles::new(transport, &path);
    let pages = files.list(Path::new("")).unwrap().unwrap();
    let (mut listed, mut failed) = (0, None);
    for page in pages.take(MAX_LISTED_NAMES) {
        match page {
            Ok(page) => listed += page.len(),
            Err(error) => failed = failed.or(Some(error)),
        }
        if failed.is_some() {
            break;
        }
    }
    assert!(listed <= MAX_LISTED_NAMES);
    let failed = failed.expect("the list is endless");
    assert!(failed.message().contains("200000 names"), "{failed}");
}

#[test]
fn empty_listing_hides_no_journaled_file() {
    if !has_sftp_server() {
        return;
    }
    let all = request_names(HostOperation::Reset);
    let changing = ["posix-rename", "hardlink", "remove", "mkdir", "create"];
    let points = all
        .iter()
        .enumerate()
        .filter(|(_, name)| changing.contains(name))
        .map(|(point, _)| point)
        .collect();
    try_each(points, 8, |point| {
        let scene = HostScenario::new(HostOperation::Reset);
        scene.run(FilteredServer::new(
            sftp_server_program(),
            super::disconnects::disconnect_for_good(point, true),
        ));
        let empty = request_filter(move |_, frame| {
            if frame[0] == READDIR {
                RequestFate::Reply(with_length(&status_reply(frame, 1)))
            } else {
                RequestFate::Pass
            }
        });
        let fault = format!("cut after {point}, then empty lists");
        scene.assert_survives(FilteredServer::new(sftp_server_program(), empty), &fault);
    });
}

#[test]
fn open_request_is_recognized() {
    let open = [&[OPEN][..], &[0; 4], &[0, 0, 0, 1, b'x'], &[0, 0, 0, 1]].concat();
    assert_eq!(request_name(&open), "open");
    assert!(!is_changing(&open));
}
