//! Archive entries.

use memory_shepherd::archive::{self, EntryKind};

use super::{input_part, time_of_minute};

/// Fuzzes entries. Parts: a name; minute, kind and number of another entry; a scratch.
pub fn entry(bytes: &[u8]) {
    let read = std::str::from_utf8(input_part(bytes, 0)).ok();
    if let Some(name) = read
        && let Some((stamp, kind, number)) = archive::parse_entry_name(name)
    {
        assert!(!name.contains(['/', '\0']) && !name.starts_with('.'));
        assert_eq!(archive::format_entry_name(stamp, kind, number), name);
    }
    let (numbers, scratch) = (input_part(bytes, 1), input_part(bytes, 2));
    let number = |from: usize| {
        let mut four = [0; 4];
        for (to, byte) in four.iter_mut().zip(numbers.iter().skip(from)) {
            *to = *byte;
        }
        u32::from_le_bytes(four)
    };
    let at = time_of_minute(number(0));
    let kind = EntryKind::ALL[number(4) as usize % EntryKind::ALL.len()];
    let name = archive::format_entry_name(at.naive_local(), kind, number(5));
    let again = archive::parse_entry_name(&name).expect("not a name that the program makes");
    assert_eq!(again, (at.naive_local(), kind, number(5)), "{name}");
    let entry = [
        archive::format_scratch_header("scout_2-b", at).as_bytes(),
        scratch,
    ]
    .concat();
    assert_eq!(archive::strip_scratch_header(&entry), Some(scratch));
    if let Some(found) = archive::strip_scratch_header(scratch) {
        assert!(scratch.ends_with(found));
        assert!(scratch[..scratch.len() - found.len()].ends_with(b"\n\n"));
    }
}
