//! Size limit and JSON form of extended attributes.

use super::Xattr;

/// Limit of the names and values kept per file, in bytes: records and the ledger store them, and an
/// agent can attach any number to its memory.
const MAX_KEPT_XATTR_BYTES: usize = 64 * 1024;

/// Returns which attributes of these sizes to keep, in their order, and the number of the others:
/// where all together exceed 64 KiB, the largest `user.*` ones are left out. The others control
/// access to the file and are always kept.
pub fn keep_xattrs_within_limit<N: AsRef<[u8]>>(found: Vec<(N, usize)>) -> (Vec<(N, usize)>, u64) {
    let weight = |(name, size): &(N, usize)| name.as_ref().len() + size;
    let is_user_xattr = |(name, _): &(N, usize)| name.as_ref().starts_with(b"user.");
    let mut order: Vec<usize> = (0..found.len()).collect();
    // Attributes that are always kept come first, then the smallest.
    order.sort_by_key(|at| (is_user_xattr(&found[*at]), weight(&found[*at])));
    let mut sum = 0;
    let mut keep = vec![false; found.len()];
    for at in order {
        sum += weight(&found[at]);
        keep[at] = !is_user_xattr(&found[at]) || sum <= MAX_KEPT_XATTR_BYTES;
    }
    let dropped = keep.iter().filter(|keep| !**keep).count() as u64;
    let kept = found.into_iter().zip(keep);
    let kept = kept.filter_map(|(one, keep)| keep.then_some(one)).collect();
    (kept, dropped)
}

/// Form of attributes in JSON: pairs of hexadecimal strings, name and value.
pub(super) mod json {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Xattr;
    use crate::base::digest::to_hex;

    fn decode_hex(text: &str) -> Option<Vec<u8>> {
        let digit = |byte: u8| (byte as char).to_digit(16);
        let pair = |pair: &[u8]| match *pair {
            [high, low] => Some((digit(high)? << 4 | digit(low)?) as u8),
            _ => None,
        };
        text.as_bytes().chunks(2).map(pair).collect()
    }

    pub(in crate::transport) fn serialize<S: Serializer>(
        xattrs: &[Xattr],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(
            xattrs
                .iter()
                .map(|(name, value)| (to_hex(name), to_hex(value))),
        )
    }

    pub(in crate::transport) fn deserialize<'d, D: Deserializer<'d>>(
        deserializer: D,
    ) -> Result<Vec<Xattr>, D::Error> {
        let pairs = Vec::<(String, String)>::deserialize(deserializer)?;
        let pairs = pairs.into_iter();
        let read = pairs.map(|(name, value)| Some((decode_hex(&name)?, decode_hex(&value)?)));
        let xattrs: Option<Vec<Xattr>> = read.collect();
        xattrs.ok_or_else(|| D::Error::custom("an extended attribute is not hexadecimal"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Attributes;

    #[test]
    fn largest_user_xattrs_are_dropped() {
        let found = vec![
            ("user.big", 60_000),
            ("user.small", 10),
            ("security.label", 70_000),
            ("user.bigger", 61_000),
        ];
        let (kept, dropped) = keep_xattrs_within_limit(found.clone());
        assert_eq!((kept, dropped), (vec![found[2]], 3));
        let found = [&found[..2], &found[3..]].concat();
        let (kept, dropped) = keep_xattrs_within_limit(found.clone());
        assert_eq!((kept, dropped), (found[..2].to_vec(), 1));
        let flood = (0..1000).map(|number| (format!("user.{number}"), 60_000));
        let (kept, dropped) = keep_xattrs_within_limit(flood.collect());
        assert_eq!((kept.len(), dropped), (1, 999));
    }

    #[test]
    fn xattrs_round_trip_as_compact_json() {
        let attributes = Attributes {
            xattrs: vec![(b"user.a".to_vec(), (0..=255).collect())],
            ..Attributes::default()
        };
        let text = serde_json::to_string(&attributes).unwrap();
        assert!(text.contains(r#"[["757365722e61","000102"#), "{text}");
        assert_eq!(
            serde_json::from_str::<Attributes>(&text).unwrap(),
            attributes
        );
        for wrong in ["7", "+1", "zz"] {
            let text = text.replace("757365722e61", wrong);
            assert!(serde_json::from_str::<Attributes>(&text).is_err());
        }
    }
}
