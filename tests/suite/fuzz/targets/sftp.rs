//! Replies of an SFTP server.

use memory_shepherd::transport::sftp::wire::{
    self, ExpectedReply, FrameSplitter, MAX_FRAME_BYTES, Reply, ServerExtensions, ServerLimits,
    Statvfs,
};

/// Fuzzes replies of an SFTP server: the frames do not depend on how the bytes arrive,
/// a frame either parses as a reply or fails, and no reply is larger than its frame or
/// of another kind than its request.
pub fn sftp(bytes: &[u8]) {
    let whole = read_frames(bytes, bytes.len());
    for size in [1, 3, 7] {
        assert_eq!(read_frames(bytes, size), whole, "in pieces of {size}");
    }
    let (frames, _) = whole;
    let lengths = frames.iter().map(|frame| 4 + frame.len());
    assert!(lengths.sum::<usize>() <= bytes.len());
    // The following checks also run on bytes without a packet around them.
    for frame in frames.iter().map(Vec::as_slice).chain([bytes]) {
        if ServerExtensions::decode(frame).is_ok() {
            assert_eq!(&frame[..5], b"\x02\0\0\0\x03");
        }
        let Ok((id, reply)) = wire::decode_reply(frame) else {
            continue;
        };
        assert_eq!(frame[1..5], id.to_be_bytes());
        let Ok(reply) = reply else {
            continue;
        };
        assert!(min_reply_size(&reply) <= frame.len(), "{reply:?}");
        assert_fits_one_request(&reply);
    }
}

/// Returns the frames of a stream that arrives in pieces, and whether it breaks the framing.
fn read_frames(bytes: &[u8], piece: usize) -> (Vec<Vec<u8>>, bool) {
    let (mut frames, mut found) = (FrameSplitter::default(), Vec::new());
    for mut piece in bytes.chunks(piece.max(1)) {
        loop {
            match frames.next_frame(&mut piece) {
                Ok(Some(frame)) => {
                    assert!((1..=MAX_FRAME_BYTES).contains(&frame.len()));
                    found.push(frame);
                }
                Ok(None) => break,
                Err(_) => return (found, true),
            }
        }
        assert!(piece.is_empty());
    }
    (found, false)
}

/// Returns the minimum number of bytes of the frame that a reply holds.
fn min_reply_size(reply: &Reply) -> usize {
    5 + match reply {
        Reply::Status(_) | Reply::Attrs(_) => 4,
        Reply::Handle(bytes) => {
            assert!(bytes.len() <= 256);
            4 + bytes.len()
        }
        Reply::Data(bytes) => 4 + bytes.len(),
        Reply::Names(names) => {
            let each = names.iter().map(|name| 12 + name.name.len());
            4 + each.sum::<usize>()
        }
        Reply::Extended(bytes) => bytes.len(),
    }
}

fn assert_fits_one_request(reply: &Reply) {
    let wanted = [
        ExpectedReply::Status,
        ExpectedReply::Handle,
        ExpectedReply::Data(4),
        ExpectedReply::Names,
        ExpectedReply::Path,
        ExpectedReply::Attrs,
        ExpectedReply::Statvfs,
        ExpectedReply::Limits,
    ];
    for wants in wanted {
        let Ok(taken) = wants.check_reply(reply.clone()) else {
            continue;
        };
        assert_eq!(taken, *reply);
        match (wants, reply) {
            (ExpectedReply::Data(most), Reply::Data(bytes)) => {
                assert!((1..=most as usize).contains(&bytes.len()));
            }
            (ExpectedReply::Path, Reply::Names(names)) => assert_eq!(names.len(), 1),
            (ExpectedReply::Statvfs, Reply::Extended(body)) => {
                Statvfs::decode(body).unwrap();
            }
            (ExpectedReply::Limits, Reply::Extended(body)) => {
                ServerLimits::decode(body).unwrap();
            }
            (ExpectedReply::Status, Reply::Status(_))
            | (ExpectedReply::Handle, Reply::Handle(_))
            | (ExpectedReply::Names, Reply::Names(_))
            | (ExpectedReply::Attrs, Reply::Attrs(_)) => {}
            (_, Reply::Status(code)) => assert_ne!(*code, 0),
            _ => panic!("{reply:?} does not answer {wants:?}"),
        }
    }
}
