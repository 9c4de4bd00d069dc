//! Secrets in the text (6xx).

use super::finding::{Draft, Places};
use super::rule::RuleId;
use super::{Context, Drafts};
use crate::base::digest::Digest;

/// Number of first characters that a message shows.
const SHOWN_CHARS: usize = 4;

pub(super) fn check(context: &Context<'_>, drafts: &mut Drafts) {
    let document = context.document;
    if document.secrets.0.is_empty() {
        return;
    }
    let key = Digest::of(document.text).to_string();
    for (rule, is_shaped, what) in [
        (RuleId::Secret, true, "secret"),
        (RuleId::AssignedSecret, false, "value"),
    ] {
        let judged = document.judged_range();
        let found = document.secrets.0.iter();
        let found = found
            .filter(|it| it.is_shaped == is_shaped && it.range.start >= judged.start)
            .map(|it| &it.range);
        let mut places = Places::default();
        for range in found {
            places.add(range.clone(), describe_secret(&key, document.bytes(range)));
        }
        let Some((_, first)) = places.list.first() else {
            continue;
        };
        let more = match places.len() {
            1 => String::new(),
            number => format!(" and {} more", number - 1),
        };
        let message = match rule {
            RuleId::Secret => format!("{}: {first}{more}", places.count(what)),
            _ => format!("{} that may be a secret: {first}{more}", places.count(what)),
        };
        drafts.push(Draft::new(rule, message).at(places));
    }
}

/// Describes a secret without showing it: its first characters, its length, and a digest by which
/// equal values of one file are recognized. The key of the digest is the file itself, so that a
/// weak secret cannot be guessed from a report alone.
fn describe_secret(key: &str, value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    let shown: String = text.chars().take(SHOWN_CHARS).collect();
    let length = text.chars().count();
    let digest = Digest::of(&[key.as_bytes(), b"|", value].concat());
    let digest = digest.short_hex(8);
    format!("{shown}…, {length} characters, digest {digest}")
}
