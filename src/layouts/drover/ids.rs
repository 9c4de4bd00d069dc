//! Ids of entries, and names of the directories that entries are in.

use crate::base::digest::Digest;

/// The digits of Crockford's base 32, which leaves out I, L, O and U.
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// Length of an id.
const ID_LENGTH: usize = 26;

/// Number of digits of an id that are its time.
const TIME_LENGTH: usize = 10;

/// Whether a text is an id of an entry: 26 digits in upper case.
pub fn is_entry_id(text: &str) -> bool {
    text.len() == ID_LENGTH && text.bytes().all(|it| ALPHABET.contains(&it))
}

/// Whether a text can be the id of an agent or of a run, which name directories.
pub fn is_segment(text: &str) -> bool {
    let is_allowed = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'_' | b'-');
    (1..=64).contains(&text.len()) && text.bytes().all(is_allowed)
}

/// Makes an id: the time in milliseconds since 1970, then random digits.
pub fn new_id(time_ms: u64, random: [u8; ID_LENGTH - TIME_LENGTH]) -> String {
    let digit = |value: u64| char::from(ALPHABET[(value & 31) as usize]);
    let time = (0..TIME_LENGTH)
        .rev()
        .map(|place| digit(time_ms >> (5 * place)));
    time.chain(random.into_iter().map(|byte| digit(byte.into())))
        .collect()
}

/// Returns the id that an instruction file has as an entry, by its absolute path.
pub fn stable_id(path: &str) -> String {
    let digest = Digest::of(path.as_bytes());
    let bytes = digest.to_bytes().into_iter().take(ID_LENGTH);
    bytes
        .map(|byte| char::from(ALPHABET[usize::from(byte & 31)]))
        .collect()
}

/// Returns the time of an id in milliseconds since 1970.
pub fn time_of_id(id: &str) -> u64 {
    let digits = id.bytes().take(TIME_LENGTH);
    digits.fold(0, |time, digit| {
        let value = ALPHABET.iter().position(|it| *it == digit).unwrap_or(0);
        (time << 5) | value as u64
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_their_time_and_digest() {
        let id = new_id(1_700_000_000_000, [10; 16]);
        assert_eq!(id, "01HF7YAT00AAAAAAAAAAAAAAAA");
        assert!(is_entry_id(&id));
        assert_eq!(time_of_id(&id), 1_700_000_000_000);
        assert_eq!(stable_id("/r/AGENTS.md"), "XRJVHFNB7QDP2QH712CA9CCTRF");
    }

    #[test]
    fn ids_and_segments_are_checked() {
        for wrong in [
            "",
            "01HF7YAT00AAAAAAAAAAAAAAA",
            "01hf7yat00aaaaaaaaaaaaaaaa",
            "01HF7YAT00AAAAAAAAAAAAAAAI",
            "01HF7YAT00AAAAAAAAAAAAAAAAA",
        ] {
            assert!(!is_entry_id(wrong), "{wrong}");
        }
        for wrong in ["", "a.b", "a b", "../x", "é", &"a".repeat(65)] {
            assert!(!is_segment(wrong), "{wrong}");
        }
        assert!(is_segment("Agent_7-x"));
    }
}
