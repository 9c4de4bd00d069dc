//! Hosts that say what is not so.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memory_shepherd::engine::Outcome;

use super::frames::{
    ATTRS, DATA, HANDLE, NAMES, OPEN, READ, READDIR, WRITE, answer, called, changes, put_string,
    resize, status, string,
};
use super::scene::{
    ACTS, AGENT, Act, Count, PATIENT, Scene, at, each, ear, good, judge, pass, requests, run, some,
    there_is_a_server, undo,
};
use crate::remote::{add_remote, engine};
use crate::servers::{Asked, Between, Ear, Fate, Said, packet};
use crate::world::{BASELINE, World};

const CODES: [u32; 10] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 31];

#[test]
fn a_false_status_at_any_request_loses_nothing() {
    if !there_is_a_server() {
        return;
    }
    let mut points = Vec::new();
    for act in ACTS {
        for (point, name) in requests(act).into_iter().enumerate().skip(1) {
            for code in CODES {
                points.extend([false, true].map(|done| (act, point, name, code, done)));
            }
        }
    }
    let count = each(some(points, 17), 8, |(act, point, name, code, done)| {
        let scene = Scene::new(act);
        let between = match done {
            true => Between::new(good(), pass()).hearing(ear(move |asked, frame| {
                if asked.number == point {
                    *frame = status(&asked.frame, code);
                }
                Said::Pass
            })),
            false => {
                let lie = move |frame: &mut Vec<u8>| Fate::Answer(packet(&status(frame, code)));
                Between::new(good(), at(point, lie))
            }
        };
        let fault = format!("{act:?}, status {code} at request {point}, {name}, done: {done}");
        scene.survives(between, &fault);
    });
    println!("a false status at {count} points, losses 0");
}

#[test]
fn a_host_that_denies_a_kind_of_request_loses_nothing() {
    if !there_is_a_server() {
        return;
    }
    let mut points = Vec::new();
    for act in [Act::Reset, Act::TakeBack] {
        let mut kinds = requests(act);
        kinds.remove(0);
        // What comes with a recovery.
        kinds.extend(["opendir", "readdir", "readlink", "rename"]);
        kinds.sort_unstable();
        kinds.dedup();
        for kind in kinds {
            // A full disk, a quota and a read-only file system are 4, too.
            for code in [0, 1, 2, 3, 4, 8] {
                points.extend([false, true].map(|done| (act, kind, code, done)));
            }
        }
    }
    let count = each(some(points, 2), 8, |(act, kind, code, done)| {
        let scene = Scene::new(act);
        let between = match done {
            true => Between::new(good(), pass()).hearing(ear(move |asked, frame| {
                if called(&asked.frame) == kind {
                    *frame = status(&asked.frame, code);
                }
                Said::Pass
            })),
            false => Between::new(
                good(),
                judge(move |_, frame| match called(frame) == kind {
                    true => Fate::Answer(packet(&status(frame, code))),
                    false => Fate::Pass,
                }),
            ),
        };
        let fault = format!("{act:?}, status {code} to each {kind}, done: {done}");
        scene.survives(between, &fault);
    });
    println!("denied in {count} ways, losses 0");
}

/// A host that announces hard links on a file system that has none.
fn linkless(away: &Count) -> Between {
    let away = away.clone();
    Between::new(
        good(),
        judge(move |_, frame| match called(frame) {
            "hardlink" => Fate::Answer(packet(&status(frame, 4))),
            "posix-rename" => {
                if string(frame, 5 + 4 + "posix-rename@openssh.com".len()).ends_with(b"/MEMORY.md")
                {
                    away.add();
                }
                Fate::Pass
            }
            _ => Fate::Pass,
        }),
    )
}

#[test]
fn links_that_are_announced_and_fail_are_found_out_before_a_memory_is_away() {
    if !there_is_a_server() {
        return;
    }
    let away = Count::default();
    let report = Scene::new(Act::Reset).survives(linkless(&away), "no hard links");
    assert_eq!(away.get(), 0, "the memory was taken away");
    let said = format!("{report:?}");
    assert!(said.contains("accept_weaker = hardlink"), "{said}");
}

#[test]
fn links_that_fail_are_done_without_where_that_is_accepted() {
    if !there_is_a_server() {
        return;
    }
    let mut world = World::new(&[]).general(PATIENT);
    add_remote(&mut world, AGENT, "box\naccept_weaker = hardlink");
    world.write_scratch(AGENT, "a note\n");
    let before = world.read(AGENT);
    let away = Count::default();
    let engine = engine(&world, linkless(&away));
    let ran = world.reset_by(&engine);
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
    assert_eq!(world.read(AGENT), BASELINE.as_bytes());
    assert!(world.litter(AGENT).is_empty());
    assert_eq!(away.get(), 1);
    let report = run(&engine, &undo(&engine));
    assert_eq!(report.results[0].outcome, Outcome::Ok, "{report:?}");
    assert_eq!(world.read(AGENT), before);
    assert!(world.litter(AGENT).is_empty());
}

#[test]
fn a_memory_that_cannot_be_read_is_never_replaced() {
    if !there_is_a_server() {
        return;
    }
    let mut points = Vec::new();
    for kind in ["open", "read", "fstat"] {
        points.extend([0, 1, 2, 3, 4, 8, 31].map(|code| (kind, code)));
    }
    each(points, 8, |(kind, code)| {
        let scene = Scene::new(Act::Reset);
        let changed = Count::default();
        let changing = changed.clone();
        let judge = judge(move |_, frame| {
            if changes(frame) {
                changing.add();
            }
            let folder = string(frame, 5).ends_with(b"/.");
            match called(frame) == kind && !folder {
                true => Fate::Answer(packet(&status(frame, code))),
                false => Fate::Pass,
            }
        });
        let report = scene.survives(
            Between::new(good(), judge),
            &format!("status {code} to each {kind}"),
        );
        assert_ne!(report.results[0].outcome, Outcome::Ok, "{report:?}");
        assert_eq!(changed.get(), 0, "{kind} {code}: {report:?}");
    });
}

/// Where sizes are told: in answers of this type to requests of this kind.
fn sizes(of: &'static str, size: fn(u64) -> u64) -> Ear {
    ear(move |asked, frame| {
        // Of files; the mode is behind size and owner.
        let is_file = frame[0] == ATTRS && frame.len() > 28 && frame[27] & 0xF0 == 0x80;
        let path = string(&asked.frame, 5);
        let folder = path.ends_with(b"/.") || path.ends_with(AGENT.as_bytes());
        if called(&asked.frame) == of && is_file && !folder {
            resize(frame, size);
        }
        Said::Pass
    })
}

#[test]
fn sizes_are_not_believed() {
    if !there_is_a_server() {
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
    for act in [Act::Reset, Act::Undo] {
        for of in ["lstat", "fstat"] {
            points.extend(all.iter().enumerate().map(|size| (act, of, size)));
        }
    }
    let count = each(points, 8, |(act, of, (number, size))| {
        let scene = Scene::new(act);
        let between = Between::new(good(), pass()).hearing(sizes(of, *size));
        scene.survives(
            between,
            &format!("{act:?}, false size {number} to each {of}"),
        );
    });
    println!("false sizes in {count} ways, losses 0");
}

#[test]
fn what_was_acknowledged_and_not_stored_is_found() {
    if !there_is_a_server() {
        return;
    }
    // Nothing, half of it, something else; of one write, or of all.
    for how in 0..3 {
        for act in [Act::Reset, Act::Undo, Act::Create] {
            let scene = Scene::new(act);
            let judge = judge(move |_, frame| {
                if frame[0] != WRITE {
                    return Fate::Pass;
                }
                let handle = string(frame, 5);
                let at = 9 + handle.len() + 8;
                let mut bytes = string(frame, at);
                match how {
                    0 => return Fate::Answer(packet(&status(frame, 0))),
                    1 => bytes.truncate(bytes.len() / 2),
                    _ => bytes[3] ^= 1,
                }
                frame.truncate(at);
                put_string(frame, &bytes);
                Fate::Pass
            });
            let fault = format!("{act:?}, not stored as {how}");
            let report = scene.survives(Between::new(good(), judge), &fault);
            assert_ne!(
                report.results[0].outcome,
                Outcome::Ok,
                "{fault}: {report:?}"
            );
        }
    }
}

/// What else than its answer comes of a request.
fn nonsense(how: usize, asked: &Asked, frame: &mut Vec<u8>) -> Said {
    let twice = |frame: &[u8]| Said::Bytes([packet(frame), packet(frame)].concat());
    match how {
        0 => twice(frame),
        // Another id, a type that is none, another type, a short one.
        1 => {
            frame[1..5].copy_from_slice(&u32::MAX.to_be_bytes());
            Said::Pass
        }
        2 => {
            frame[0] = 77;
            Said::Pass
        }
        3 => {
            frame[0] = if frame[0] == HANDLE { DATA } else { HANDLE };
            Said::Pass
        }
        4 => {
            frame.truncate(frame.len() - 1);
            Said::Pass
        }
        5 => {
            frame.extend(b"more");
            Said::Pass
        }
        // Lengths that no packet has, and text.
        6 => Said::Bytes(vec![0xFF; 64]),
        7 => Said::Bytes([&(300_u32 << 10).to_be_bytes()[..], &vec![0; 300 << 10]].concat()),
        8 => Said::Bytes(vec![0; 4]),
        9 => Said::Bytes(b"Connection closed by somebody\r\n".to_vec()),
        // A count that cannot be true.
        10 => {
            *frame = answer(NAMES, &asked.frame);
            frame.extend(u32::MAX.to_be_bytes());
            Said::Pass
        }
        // Bytes that nobody asked for.
        11 => {
            *frame = answer(DATA, &asked.frame);
            put_string(frame, &vec![b'x'; 100_000]);
            Said::Pass
        }
        // A handle of the longest kind, one beyond, and none.
        12..=14 => {
            if frame[0] == HANDLE {
                *frame = answer(HANDLE, &asked.frame);
                put_string(frame, &vec![7; [256, 257, 0][how - 12]]);
            }
            Said::Pass
        }
        _ => Said::Drip,
    }
}

#[test]
fn nonsense_in_place_of_any_answer_loses_nothing() {
    if !there_is_a_server() {
        return;
    }
    let mut points = Vec::new();
    for act in [Act::Reset, Act::TakeBack] {
        for point in 1..requests(act).len() {
            points.extend((0..16).map(|how| (act, point, how)));
        }
    }
    let count = each(some(points, 13), 8, |(act, point, how)| {
        let scene = Scene::new(act);
        let nonsense = ear(move |asked, frame| match asked.number == point {
            true => nonsense(how, asked, frame),
            false => Said::Pass,
        });
        let between = Between::new(good(), pass()).hearing(nonsense);
        scene.survives(between, &format!("{act:?}, nonsense {how} at {point}"));
    });
    println!("nonsense at {count} points, losses 0");
}

#[test]
fn nonsense_in_place_of_version_is_told_and_nothing_is_done() {
    if !there_is_a_server() {
        return;
    }
    each((0..12).filter(|how| *how != 1).collect(), 8, |how| {
        let scene = Scene::new(Act::Reset);
        let greeting: Ear = Arc::new(move |asked, frame| match (&asked.frame[0], how) {
            // It has neither an id nor a length to play with.
            (1, 4) => {
                frame[1..5].copy_from_slice(&6_u32.to_be_bytes());
                Said::Pass
            }
            (1, how) => nonsense(how, asked, frame),
            _ => Said::Pass,
        });
        let between = Between::new(good(), pass()).hearing(greeting);
        let report = scene.survives(between, &format!("VERSION is nonsense {how}"));
        assert_ne!(report.results[0].outcome, Outcome::Ok, "{report:?}");
    });
}

#[test]
fn a_host_that_answers_byte_by_byte_is_no_other() {
    if !there_is_a_server() {
        return;
    }
    let scene = Scene::new(Act::Reset);
    let drips = Between::new(good(), pass()).hearing(Arc::new(|_, _| Said::Drip));
    let report = scene.survives(drips, "it drips");
    assert_eq!(report.results[0].outcome, Outcome::Ok, "{report:?}");
}

#[test]
fn one_handle_for_everything_loses_nothing() {
    if !there_is_a_server() {
        return;
    }
    for act in ACTS {
        // That of the folder, or of the memory, or of whatever came third.
        for kept in 0..3 {
            let scene = Scene::new(act);
            let first = std::sync::Mutex::new((0, Vec::new()));
            let same = ear(move |_, frame| {
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
                Said::Pass
            });
            let between = Between::new(good(), pass()).hearing(same);
            scene.survives(between, &format!("{act:?}, one handle, the {kept}."));
        }
    }
}

/// How many bytes of answers were made up.
#[derive(Clone, Default)]
struct Taken(Arc<AtomicU64>);

impl Taken {
    fn count(&self, bytes: Vec<u8>) -> Fate {
        self.0.fetch_add(bytes.len() as u64, Ordering::SeqCst);
        Fate::Answer(bytes)
    }
}

#[test]
fn a_file_without_end_is_left_at_a_bound() {
    if !there_is_a_server() {
        return;
    }
    let scene = Scene::new(Act::Reset);
    let taken = Taken::default();
    let counted = taken.clone();
    let endless = judge(move |_, frame| {
        if frame[0] != READ {
            return Fate::Pass;
        }
        let wanted = u32::from_be_bytes(frame[frame.len() - 4..].try_into().unwrap());
        let mut data = answer(DATA, frame);
        put_string(&mut data, &vec![b'x'; wanted as usize]);
        counted.count(packet(&data))
    });
    // It grows as well.
    let size = Arc::new(AtomicU64::new(0));
    let grows = ear(move |asked, frame| {
        if called(&asked.frame) == "fstat" && frame[0] == ATTRS {
            let grown = size.fetch_add(1 << 20, Ordering::SeqCst);
            resize(frame, |size| size + grown);
        }
        Said::Pass
    });
    let report = scene.survives(
        Between::new(good(), endless).hearing(grows),
        "no end of file",
    );
    assert_ne!(report.results[0].outcome, Outcome::Ok, "{report:?}");
    let taken = taken.0.load(Ordering::SeqCst);
    println!("{taken} bytes were taken");
    assert!((32 << 20..256 << 20).contains(&taken), "{taken}");
}

#[test]
fn a_list_without_end_is_left_at_a_bound() {
    if !there_is_a_server() {
        return;
    }
    // Many names, or long ones; none at all has no end, either.
    for (count, length) in [(500, 10_usize), (1, 200_000), (0, 0)] {
        let scene = Scene::new(Act::Reset);
        // A list is wanted where a run was interrupted.
        let point = requests(Act::Reset)
            .iter()
            .position(|name| *name == "posix-rename")
            .unwrap();
        scene.run(Between::new(good(), super::cuts::cut_for_good(point, true)));
        let taken = Taken::default();
        let counted = taken.clone();
        let endless = judge(move |number, frame| {
            if frame[0] != READDIR {
                return Fate::Pass;
            }
            let mut names = answer(NAMES, frame);
            names.extend((count as u32).to_be_bytes());
            for name in 0..count {
                let name = format!("{number}-{name}-{}", "x".repeat(length));
                put_string(&mut names, name.as_bytes());
                put_string(&mut names, b"");
                names.extend([0; 4]);
            }
            counted.count(packet(&names))
        });
        let fault = format!("a list without end, {count} names of {length} at once");
        scene.survives(Between::new(good(), endless), &fault);
        let taken = taken.0.load(Ordering::SeqCst);
        println!("{taken} bytes of names were taken");
        assert!((1..256 << 20).contains(&taken), "{fault}: {taken}");
    }
}

#[test]
fn an_empty_list_hides_nothing_from_its_record() {
    if !there_is_a_server() {
        return;
    }
    let all = requests(Act::Reset);
    let points = all.iter().enumerate().filter(|(_, name)| {
        ["posix-rename", "hardlink", "remove", "mkdir", "create"].contains(name)
    });
    let points = points.map(|(point, _)| point).collect();
    each(points, 8, |point| {
        let scene = Scene::new(Act::Reset);
        scene.run(Between::new(good(), super::cuts::cut_for_good(point, true)));
        let empty = judge(move |_, frame| match frame[0] == READDIR {
            true => Fate::Answer(packet(&status(frame, 1))),
            false => Fate::Pass,
        });
        let fault = format!("cut behind {point}, then lists are empty");
        scene.survives(Between::new(good(), empty), &fault);
    });
}

#[test]
fn a_request_that_opens_is_seen_to_be_one() {
    let open = [&[OPEN][..], &[0; 4], &[0, 0, 0, 1, b'x'], &[0, 0, 0, 1]].concat();
    assert_eq!(called(&open), "open");
    assert!(!changes(&open));
}
