//! Tests of the format, byte by byte, and of bytes that must be rejected.

#![allow(clippy::unwrap_used)]

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn length_prefixed(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_string(&mut out, bytes);
    out
}

/// Returns the frame of a reply, as `decode_reply` expects it.
fn reply_frame(id: u32, reply: &Reply) -> Vec<u8> {
    let mut out = vec![match reply {
        Reply::Status(_) => PACKET_STATUS,
        Reply::Handle(_) => PACKET_HANDLE,
        Reply::Data(_) => PACKET_DATA,
        Reply::Names(_) => PACKET_NAME,
        Reply::Attrs(_) => PACKET_ATTRS,
        Reply::Extended(_) => PACKET_EXTENDED_REPLY,
    }];
    put_u32(&mut out, id);
    match reply {
        Reply::Status(code) => {
            put_u32(&mut out, *code);
            put_strings(&mut out, &[b"Failure", b"en"]);
        }
        Reply::Handle(bytes) | Reply::Data(bytes) => put_string(&mut out, bytes),
        Reply::Names(names) => {
            put_u32(&mut out, names.len() as u32);
            for name in names {
                put_strings(&mut out, &[&name.name, b"-rw------- 1 a b 7 c"]);
                name.attrs.encode(&mut out);
            }
        }
        Reply::Attrs(attrs) => attrs.encode(&mut out),
        Reply::Extended(bytes) => out.extend(bytes),
    }
    out
}

fn any_attrs() -> impl Strategy<Value = Attrs> {
    let parts = (
        any::<Option<u64>>(),
        any::<Option<(u32, u32)>>(),
        any::<Option<u32>>(),
        any::<Option<(u32, u32)>>(),
    );
    parts.prop_map(|(size, owner, mode, times)| Attrs {
        size,
        owner,
        mode,
        times,
    })
}

fn any_bytes(longest: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..=longest)
}

fn any_reply() -> impl Strategy<Value = Reply> {
    let name = (any_bytes(40), any_attrs()).prop_map(|(name, attrs)| NameEntry { name, attrs });
    prop_oneof![
        any::<u32>().prop_map(Reply::Status),
        any_bytes(MAX_HANDLE_BYTES).prop_map(Reply::Handle),
        any_bytes(600).prop_map(Reply::Data),
        vec(name, 0..5).prop_map(Reply::Names),
        any_attrs().prop_map(Reply::Attrs),
        any_bytes(100).prop_map(Reply::Extended),
    ]
}

/// Returns requests of every kind, with made-up text in them.
fn all_requests(word: &[u8], number: u64, attrs: Attrs) -> Vec<Request> {
    let (path, handle, bytes) = (word.to_vec(), word.to_vec(), word.to_vec());
    let (from, to) = (word.to_vec(), [word, b"2"].concat());
    let of = |path: &Vec<u8>| path.clone();
    vec![
        Request::Open {
            path: of(&path),
            flags: flags::WRITE | flags::CREATE | flags::EXCLUSIVE,
            mode: attrs.mode,
        },
        Request::Close(of(&handle)),
        Request::Read {
            handle: of(&handle),
            offset: number,
            length: 7,
        },
        Request::Write {
            handle: of(&handle),
            offset: number,
            bytes,
        },
        Request::Lstat(of(&path)),
        Request::Fstat(of(&handle)),
        Request::Fsetstat {
            handle: of(&handle),
            attrs,
        },
        Request::Remove(of(&path)),
        Request::MakeDir {
            path: of(&path),
            mode: 0o700,
        },
        Request::RemoveDir(of(&path)),
        Request::Rename {
            from: of(&from),
            to: of(&to),
        },
        Request::RealPath(of(&path)),
        Request::ReadLink(of(&path)),
        Request::OpenDir(of(&path)),
        Request::ReadDir(of(&handle)),
        Request::PosixRename {
            from: of(&from),
            to: of(&to),
        },
        Request::HardLink { from, to },
        Request::Fsync(handle),
        Request::Statvfs(path),
        Request::Limits,
    ]
}

/// Bytes written by hand from the draft and from OpenSSH's `PROTOCOL`.
#[test]
fn request_bytes_match_the_draft() {
    let number = 0x0102_0304_0506_0708;
    let attrs = Attrs {
        size: Some(9),
        owner: Some((1, 2)),
        mode: Some(0o600),
        times: Some((3, 4)),
    };
    let w = "\0\0\0\u{1}w";
    let to = "\0\0\0\u{2}w2";
    let offset = "\u{1}\u{2}\u{3}\u{4}\u{5}\u{6}\u{7}\u{8}";
    let mode = b"\0\0\x01\x80";
    let all = [
        b"\0\0\0\x0f\0\0\0\0\0\0\0\x09\0\0\0\x01\0\0\0\x02".as_slice(),
        mode,
        b"\0\0\0\x03\0\0\0\x04",
    ]
    .concat();
    let text = |parts: &[&str]| parts.concat().into_bytes();
    let expected: Vec<(u8, Vec<u8>)> = vec![
        (
            3,
            [text(&[w, "\0\0\0\u{2a}\0\0\0\u{4}"]), mode.to_vec()].concat(),
        ),
        (4, text(&[w])),
        (5, text(&[w, offset, "\0\0\0\u{7}"])),
        (6, text(&[w, offset, w])),
        (7, text(&[w])),
        (8, text(&[w])),
        (10, [text(&[w]), all].concat()),
        (13, text(&[w])),
        (
            14,
            [text(&[w]), b"\0\0\0\x04\0\0\x01\xc0".to_vec()].concat(),
        ),
        (15, text(&[w])),
        (18, text(&[w, to])),
        (16, text(&[w])),
        (19, text(&[w])),
        (11, text(&[w])),
        (12, text(&[w])),
        (200, text(&["\0\0\0\u{18}posix-rename@openssh.com", w, to])),
        (200, text(&["\0\0\0\u{14}hardlink@openssh.com", w, to])),
        (200, text(&["\0\0\0\u{11}fsync@openssh.com", w])),
        (200, text(&["\0\0\0\u{13}statvfs@openssh.com", w])),
        (200, text(&["\0\0\0\u{12}limits@openssh.com"])),
    ];
    let requests = all_requests(b"w", number, attrs);
    assert_eq!(requests.len(), expected.len());
    for (request, (kind, body)) in requests.iter().zip(expected) {
        let mut packet = vec![0xEE];
        request.encode(0xA1B2_C3D4, &mut packet);
        let length = (body.len() + 5) as u32;
        let head = [
            &[0xEE],
            &length.to_be_bytes()[..],
            &[kind, 0xA1, 0xB2, 0xC3, 0xD4],
        ];
        assert_eq!(packet, [head.concat(), body].concat(), "{request:?}");
    }
    let mut init = Vec::new();
    encode_init(&mut init);
    assert_eq!(init, b"\0\0\0\x05\x01\0\0\0\x03");
}

#[test]
fn truncated_reply_is_rejected() {
    let full = Attrs {
        size: Some(1),
        owner: Some((2, 3)),
        mode: Some(4),
        times: Some((5, 6)),
    };
    let name = |name: &[u8], attrs: Attrs| NameEntry {
        name: name.to_vec(),
        attrs,
    };
    let replies = [
        Reply::Status(status::FAILURE),
        Reply::Handle(b"\0\0\0\x80".to_vec()),
        Reply::Data(b"notes".to_vec()),
        Reply::Names(vec![name(b"a\xff", full), name(b"b", Attrs::default())]),
        Reply::Attrs(full),
    ];
    for reply in replies {
        let whole = reply_frame(7, &reply);
        assert_eq!(decode_reply(&whole), Ok((7, Ok(reply.clone()))));
        for end in 0..whole.len() {
            let cut = decode_reply(&whole[..end]);
            // A status may lack its message, or the language of it.
            let message = 1 + 4 + 4 + 4 + b"Failure".len();
            match (&reply, end) {
                (_, 0..5) => assert!(cut.is_err(), "{reply:?} {end}"),
                (Reply::Status(_), end) if end == 9 || end == message => {
                    assert_eq!(cut, Ok((7, Ok(reply.clone()))));
                }
                _ => assert!(matches!(cut, Ok((7, Err(_)))), "{reply:?} {end}"),
            }
        }
        let longer = [&whole[..], b"\0"].concat();
        assert!(
            matches!(decode_reply(&longer), Ok((7, Err(_)))),
            "{reply:?}"
        );
    }
    let numbers: Vec<u8> = (1..=11_u64).flat_map(u64::to_be_bytes).collect();
    let statvfs = Statvfs::decode(&numbers).unwrap();
    assert_eq!((statvfs.blocks_available, statvfs.flags), (5, 10));
    assert_eq!((statvfs.files, statvfs.files_available), (6, 8));
    let limits = ServerLimits {
        packet: 1,
        read: 2,
        write: 3,
        handles: 4,
    };
    assert_eq!(ServerLimits::decode(&numbers[..32]), Ok(limits));
    for end in 0..numbers.len() {
        assert!(Statvfs::decode(&numbers[..end]).is_err(), "{end}");
        assert!(
            end == 32 || ServerLimits::decode(&numbers[..end]).is_err(),
            "{end}"
        );
    }
    assert!(Statvfs::decode(&[numbers, vec![0]].concat()).is_err());
}

#[test]
fn hostile_lengths_are_rejected_cheaply() {
    let body = |kind: u8, rest: &[u8]| {
        let mut frame = vec![kind];
        put_u32(&mut frame, 7);
        frame.extend_from_slice(rest);
        frame
    };
    let four_gib = b"\xff\xff\xff\xff";
    let mut names = four_gib.to_vec();
    // As many as fit are there.
    for _ in 0..1000 {
        put_strings(&mut names, &[b"a", b""]);
        put_u32(&mut names, 0);
    }
    let refused = [
        body(PACKET_HANDLE, four_gib),
        body(PACKET_HANDLE, &length_prefixed(&[0; MAX_HANDLE_BYTES + 1])),
        body(PACKET_DATA, four_gib),
        body(PACKET_STATUS, &[&[0, 0, 0, 4], &four_gib[..]].concat()),
        body(PACKET_STATUS, &[0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]),
        body(PACKET_NAME, four_gib),
        body(PACKET_NAME, &names),
        body(PACKET_NAME, b"\0\0\0\x01"),
        // Extended attributes: more than there are; a size and no bytes for it.
        body(PACKET_ATTRS, b"\x80\0\0\0\xff\xff\xff\xff"),
        body(
            PACKET_ATTRS,
            b"\x80\0\0\0\0\0\0\x01\0\0\0\x01a\xff\xff\xff\xff",
        ),
        body(PACKET_ATTRS, b"\0\0\0\x01"),
        // A flag of later versions.
        body(PACKET_ATTRS, b"\0\0\0\x10\0\0\0\0"),
    ];
    for frame in refused {
        assert!(matches!(decode_reply(&frame), Ok((7, Err(_)))), "{frame:?}");
    }
    for frame in [
        &b""[..],
        &[PACKET_VERSION, 0, 0, 0, 3],
        &[1; 40],
        &[99, 0, 0, 0, 7],
    ] {
        assert!(decode_reply(frame).is_err(), "{frame:?}");
    }
    let longest = body(PACKET_HANDLE, &length_prefixed(&[9; MAX_HANDLE_BYTES]));
    assert!(matches!(
        decode_reply(&longest),
        Ok((7, Ok(Reply::Handle(_))))
    ));
}

#[test]
fn unknown_fields_are_skipped_or_kept() {
    // A status that version 3 does not have, with a long text.
    let mut long = vec![PACKET_STATUS, 0, 0, 0, 1, 0, 0, 0, 11];
    put_strings(&mut long, &[&[b'x'; 2000], b"en"]);
    assert_eq!(decode_reply(&long), Ok((1, Ok(Reply::Status(11)))));
    // Extended attributes between two names.
    let mut names = vec![PACKET_NAME, 0, 0, 0, 1, 0, 0, 0, 2];
    put_strings(&mut names, &[b"a", b"long"]);
    names.extend(b"\x80\0\0\x04\0\0\x81\x80\0\0\0\x02");
    put_strings(&mut names, &[b"k@x", b"v", b"", b""]);
    put_strings(&mut names, &[b"b", b"long"]);
    put_u32(&mut names, 0);
    let (_, reply) = decode_reply(&names).unwrap();
    let Ok(Reply::Names(names)) = reply else {
        panic!("{reply:?}");
    };
    let names: Vec<_> = names
        .iter()
        .map(|it| (&it.name[..], it.attrs.mode))
        .collect();
    assert_eq!(names, [(&b"a"[..], Some(0o100_600)), (b"b", None)]);
}

#[test]
fn extensions_count_only_in_spoken_version() {
    let announced = |version: u32, pairs: &[(&str, &str)]| {
        let mut frame = vec![PACKET_VERSION];
        put_u32(&mut frame, version);
        for (name, value) in pairs {
            put_strings(&mut frame, &[name.as_bytes(), value.as_bytes()]);
        }
        frame
    };
    let all = [
        ("posix-rename@openssh.com", "1"),
        ("statvfs@openssh.com", "2"),
        ("fstatvfs@openssh.com", "2"),
        ("hardlink@openssh.com", "1"),
        ("fsync@openssh.com", "1"),
        ("lsetstat@openssh.com", "1"),
        ("limits@openssh.com", "1"),
    ];
    let every = ServerExtensions {
        posix_rename: true,
        hardlink: true,
        fsync: true,
        statvfs: true,
        limits: true,
        lsetstat: true,
    };
    let whole = announced(3, &all);
    assert_eq!(ServerExtensions::decode(&whole), Ok(every));
    assert_eq!(
        ServerExtensions::decode(&announced(3, &[])),
        Ok(ServerExtensions::default())
    );
    let others = all.map(|(name, version)| (name, if version == "1" { "2" } else { "1" }));
    assert_eq!(
        ServerExtensions::decode(&announced(3, &others)),
        Ok(ServerExtensions::default())
    );
    for version in [0, 2, 4, u32::MAX] {
        assert!(ServerExtensions::decode(&announced(version, &all)).is_err());
    }
    // Between two extensions, the rest looks like fewer of them.
    let mut ends = vec![5];
    for (name, value) in all {
        ends.push(ends[ends.len() - 1] + 8 + name.len() + value.len());
    }
    for end in (0..whole.len()).filter(|end| !ends.contains(end)) {
        assert!(ServerExtensions::decode(&whole[..end]).is_err(), "{end}");
    }
    assert!(ServerExtensions::decode(&announced(3, &[("a", "b"); 64])).is_ok());
    assert!(ServerExtensions::decode(&announced(3, &[("a", "b"); 65])).is_err());
    assert!(ServerExtensions::decode(&reply_frame(3, &Reply::Data(Vec::new()))).is_err());
}

#[test]
fn invalid_request_is_not_sent() {
    for request in all_requests(b"ok", 1, Attrs::default()) {
        assert_eq!(request.validate(), Ok(()), "{request:?}");
    }
    for request in all_requests(b"a\0b", 1, Attrs::default()) {
        let on_handles = matches!(
            request,
            Request::Close(_)
                | Request::Read { .. }
                | Request::Write { .. }
                | Request::Fstat(_)
                | Request::Fsetstat { .. }
                | Request::ReadDir(_)
                | Request::Fsync(_)
                | Request::Limits
        );
        assert_eq!(request.validate().is_ok(), on_handles, "{request:?}");
    }
    for request in all_requests(&[b'a'; MAX_PATH_BYTES + 1], 1, Attrs::default()) {
        let limits = request == Request::Limits;
        assert_eq!(request.validate().is_ok(), limits, "{request:?}");
    }
    let handle = Vec::new;
    let read = |length| Request::Read {
        handle: handle(),
        offset: 0,
        length,
    };
    assert!(read(0).validate().is_err());
    assert!(read(MAX_DATA_BYTES).validate().is_ok());
    assert!(read(MAX_DATA_BYTES + 1).validate().is_err());
    let write = |length: u32| Request::Write {
        handle: handle(),
        offset: 0,
        bytes: vec![0; length as usize],
    };
    let mut packet = Vec::new();
    write(MAX_DATA_BYTES).encode(0, &mut packet);
    assert!(write(MAX_DATA_BYTES).validate().is_ok() && packet.len() <= 256 * 1024);
    assert!(write(MAX_DATA_BYTES + 1).validate().is_err());
}

#[test]
fn reply_must_match_its_request() {
    let failed = Reply::Status(status::NO_SUCH_FILE);
    let done = Reply::Status(status::OK);
    let names = |count: usize| Reply::Names(vec![NameEntry::default(); count]);
    let data = |length: usize| Reply::Data(vec![0; length]);
    let replies = [
        done.clone(),
        Reply::Handle(vec![1]),
        data(1),
        names(1),
        Reply::Attrs(Attrs::default()),
        Reply::Extended(vec![0; 88]),
        Reply::Extended(vec![0; 32]),
    ];
    for request in all_requests(b"x", 1, Attrs::default()) {
        let wants = request.expected_reply();
        assert_eq!(wants.check_reply(failed.clone()), Ok(failed.clone()));
        let fitting = replies
            .iter()
            .filter(|it| wants.check_reply((*it).clone()).is_ok());
        assert_eq!(fitting.count(), 1, "{request:?}");
    }
    assert!(ExpectedReply::Data(5).check_reply(data(5)).is_ok());
    for length in [0, 6] {
        assert!(ExpectedReply::Data(5).check_reply(data(length)).is_err());
    }
    for count in [0, 2] {
        assert!(ExpectedReply::Path.check_reply(names(count)).is_err());
        assert!(ExpectedReply::Names.check_reply(names(count)).is_ok());
    }
}

#[test]
fn frame_reader_allocates_only_announced_size() {
    let mut frames = FrameSplitter::default();
    let head = (MAX_FRAME_BYTES as u32).to_be_bytes();
    assert_eq!(frames.next_frame(&mut &head[..]), Ok(None));
    let many = vec![7; MAX_FRAME_BYTES + 3];
    let mut bytes = &many[..1];
    assert_eq!(frames.next_frame(&mut bytes), Ok(None));
    assert_eq!(frames.partial.capacity(), 4 + MAX_FRAME_BYTES);
    let mut bytes = &many[1..];
    let frame = frames.next_frame(&mut bytes).unwrap().unwrap();
    assert_eq!((frame.len(), bytes.len()), (MAX_FRAME_BYTES, 3));
    for length in [0, MAX_FRAME_BYTES as u32 + 1, u32::MAX] {
        let mut frames = FrameSplitter::default();
        assert!(frames.next_frame(&mut &length.to_be_bytes()[..]).is_err());
        assert!(frames.partial.capacity() < 64);
    }
}

proptest! {
    #[test]
    fn replies_round_trip(id: u32, reply in any_reply()) {
        prop_assert_eq!(decode_reply(&reply_frame(id, &reply)), Ok((id, Ok(reply))));
    }

    #[test]
    fn requests_carry_their_length_and_id(
        id: u32,
        word in any_bytes(300),
        number: u64,
        attrs in any_attrs(),
    ) {
        let mut all = Vec::new();
        let requests = all_requests(&word, number, attrs);
        for request in &requests {
            request.encode(id, &mut all);
        }
        // The splitter returns the same frames wherever the stream is cut.
        let mut frames = FrameSplitter::default();
        for request in &requests {
            let mut rest = &all[..];
            let frame = frames.next_frame(&mut rest).unwrap().unwrap();
            let taken = all.len() - rest.len();
            prop_assert_eq!(frame.len(), taken - 4);
            prop_assert_eq!(frame[0], request.packet_type());
            prop_assert_eq!(&frame[1..5], id.to_be_bytes());
            all.drain(..taken);
        }
        prop_assert!(all.is_empty());
    }

    #[test]
    fn stream_cuts_do_not_change_frames(
        replies in vec(any_reply(), 1..6),
        cuts in vec(1_usize..40, 1..20),
    ) {
        let sent: Vec<Vec<u8>> = replies.iter().map(|reply| reply_frame(1, reply)).collect();
        let stream: Vec<u8> = sent.iter().flat_map(|frame| length_prefixed(frame)).collect();
        let (mut frames, mut got) = (FrameSplitter::default(), Vec::new());
        let (mut rest, mut cuts) = (&stream[..], cuts.iter().cycle());
        while !rest.is_empty() {
            let (mut piece, later) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
            while let Some(frame) = frames.next_frame(&mut piece).unwrap() {
                got.push(frame);
            }
            prop_assert!(piece.is_empty());
            rest = later;
        }
        prop_assert_eq!(got, sent);
    }

    #[test]
    fn decode_never_panics_on_any_bytes(bytes in any_bytes(200), kind in 100_u8..106, id: u32) {
        let _ = ServerExtensions::decode(&bytes);
        let _ = decode_reply(&bytes);
        let mut frame = vec![kind];
        put_u32(&mut frame, id);
        frame.extend(bytes);
        if let Ok((_, Ok(Reply::Names(names)))) = decode_reply(&frame) {
            prop_assert!(names.len() * 12 <= frame.len());
        }
    }
}
