//! Rules about commands (703, 704) and about text that is encoded to hide them (713).

use std::ops::Range;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::document::Document;
use super::finding::{Draft, Places};
use super::phrases::{has_override_phrase, is_standing_order};
use super::prohibitions::{is_prohibited, sentence_before};
use super::rule::{RuleId, Severity};
use super::secret_ranges::quotable;
use super::words::{WordList, Words, pattern, pattern_in_any_case, patterns};
use super::{Context, Drafts};

/// Longest distance from a verb to its destination, in bytes.
const MAX_ORDER_BYTES: usize = 120;
/// Longest line that is searched for what it sends, in bytes.
const MAX_COMMAND_BYTES: usize = 4000;
/// Longest encoded text that is decoded, in bytes.
const MAX_BLOB_BYTES: usize = 64 << 10;

/// Accepts the last group of base64 in any form.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

patterns! {
    DESTINATION = pattern_in_any_case(
        r#"https?://[^\s/:'"`<>()]+|\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+|\b\d{1,3}(?:\.\d{1,3}){3}\b|\b[a-z0-9-]+(?:\.[a-z0-9-]+)*\.(?:com|net|org|io|dev|app|xyz|ru|cn|top|site|online|info|biz|co|cc|ws|link|live|tk|pw|su)\b"#
    );
    PRIVATE_HOST = pattern_in_any_case(
        r"^(?:localhost|127\.|10\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.|169\.254\.|0\.0\.0\.0|\[?::1|[^.]*$|.*\.(?:internal|local|localdomain|lan|corp|intranet|home|test)$)"
    );
    HEADER = pattern_in_any_case(
        r#"(?:-H|--header)[ \t=]*(?:'[^'\n]*'|"[^"\n]*"|\S+)|(?:-u|--user)[ \t]+\S+|\b(?:authorization|apikey|x-api-key)[ \t]*:[ \t]*(?:bearer[ \t]+|basic[ \t]+)?\S+|\([^)\n]*\bis in\b[^)\n]*\)"#
    );
    BODY = pattern_in_any_case(
        r"\$\([ \t]*cat\b|`cat\b|-d[ \t]*@|--data(?:-binary|-raw|-urlencode)?\b|-F\b|--form\b|-T\b|--upload-file\b|\bscp\b|\brsync\b"
    );
    PIPE_TO_NETCAT = pattern_in_any_case(
        r"\b(?:tar|cat|env|printenv)\b[^\n]*\|[ \t]*(?:nc|ncat|netcat)\b[ \t]+(?:-\w+[ \t]+)*[\w.-]+[ \t]+\d+"
    );
    PAST_OR_DENIED = pattern_in_any_case(r"\b(?:was|were|rotated|revoked|never|not|don't|cannot|no)\b");
    DOWNLOAD_AND_RUN = pattern_in_any_case(concat!(
        r"\b(?:curl|wget)\b[^\n|]*\|[ \t]*(?:sudo[ \t]+)?(?:ba|z|da)?sh\b",
        r#"|\beval[ \t]+["'$`(]"#,
        r"|\b(?:curl|wget)\b[^\n]*&&[ \t]*(?:sudo[ \t]+)?chmod[ \t]+(?:\+x|a\+x|u\+x|[0-7]*7[0-7]*)\b",
    ));
    HIDDEN_RUN = pattern_in_any_case(concat!(
        r"\bbase64[ \t]+(?:-d|--decode|-D)\b[^\n]*\|[ \t]*(?:sudo[ \t]+)?(?:ba|z)?sh\b",
        r"|\bnc(?:at)?\b[^\n]*[ \t]-[a-z]*e\b",
        r"|\b(?:ba|z)?sh[ \t]+<\([ \t]*(?:curl|wget)\b",
        r"|\bexec[ \t]*\([^)\n]{0,60}(?:urlopen|requests\.get)",
    ));
    DENIED = pattern_in_any_case(r"\b(?:never|not|don't|avoid|refuse[ds]?|blocked|forbidden|instead of)\b");
    BASE64_BLOB = pattern(r"[A-Za-z0-9+/_-]{24,}={0,2}");
    HEX_BLOB = pattern(r"\b(?:[0-9a-fA-F]{2}){16,}\b|(?:\\x[0-9a-fA-F]{2}){12,}");
}

pub(super) fn check(context: &Context<'_>, drafts: &mut Drafts) {
    let document = context.document;
    check_exfiltration(document, drafts);
    check_remote_execution(document, drafts);
    check_blobs(document, drafts);
}

/// Returns the index of each line in the judged part on which a pattern matches. Searches each line
/// once: the search for a match may read to the end of its line.
fn lines_with(document: &Document<'_>, pattern: &regex::bytes::Regex) -> Vec<usize> {
    let mut lines = Vec::new();
    let mut at = document.judged_range().start;
    while let Some(found) = pattern.find_at(document.text, at) {
        let line = document.line_at(found.start());
        lines.push(line);
        at = document.lines[line].end;
    }
    lines
}

fn check_exfiltration(document: &Document<'_>, drafts: &mut Drafts) {
    let mut lines = lines_with(document, document.words.pattern(WordList::SecretSources));
    lines.extend(lines_with(document, &PIPE_TO_NETCAT));
    lines.sort_unstable();
    lines.dedup();
    let mut places = Places::default();
    let mut worst = Severity::Warning;
    for index in lines {
        let line = document.line_text(index);
        if line.len() <= MAX_COMMAND_BYTES && sends_secret(line, document.words) {
            places.add(document.line_range(index), "sends a secret away");
            if !is_prohibited(document, index, &(line.len()..line.len())) {
                worst = Severity::Error;
            }
        }
    }
    let what = "a secret is sent to a public address";
    let draft = Draft::quoting(RuleId::Exfiltration, what, places, document);
    drafts.extend(draft.map(|it| it.severity(worst)));
}

/// Whether a line sends a secret to a public address.
fn sends_secret(line: &[u8], words: &Words) -> bool {
    if PIPE_TO_NETCAT.is_match(line) {
        return !PAST_OR_DENIED.is_match(line);
    }
    let line = HEADER.replace_all(line, &b" "[..]);
    let line = line.as_ref();
    let is_denied = PAST_OR_DENIED.is_match(line);
    let destinations: Vec<Range<usize>> = DESTINATION
        .find_iter(line)
        .filter(|it| is_public(it.as_bytes()))
        .map(|it| it.range())
        .collect();
    let topic = words.pattern(WordList::Topics);
    let sources = words.pattern(WordList::SecretSources).find_iter(line);
    let sources: Vec<Range<usize>> = sources
        .filter(|it| !topic.is_match(&line[it.end()..]))
        .map(|it| it.range())
        .collect();
    if destinations.is_empty() || is_denied {
        return false;
    }
    let is_outside = |source: &&Range<usize>| {
        let mut hosts = destinations.iter();
        !hosts.any(|host| host.start <= source.start && source.end <= host.end)
    };
    let sources: Vec<&Range<usize>> = sources.iter().filter(is_outside).collect();
    if sources.is_empty() {
        return false;
    }
    let verbs = words.pattern(WordList::SendingVerbs);
    let mut verbs = verbs.find_iter(line).map(|it| it.range()).peekable();
    if verbs.peek().is_some() && BODY.is_match(line) {
        return true;
    }
    // The nearest source and destination make the shortest order.
    verbs.any(|verb| {
        let source = sources.partition_point(|it| it.start < verb.end);
        let destination = sources.get(source).and_then(|source| {
            let behind = destinations.partition_point(|it| it.start < source.end);
            destinations.get(behind)
        });
        destination.is_some_and(|it| it.start - verb.start <= MAX_ORDER_BYTES)
    })
}

fn is_public(destination: &[u8]) -> bool {
    let lower = destination.to_ascii_lowercase();
    let host = lower
        .strip_prefix(b"https://")
        .or(lower.strip_prefix(b"http://"));
    let host = host.unwrap_or(&lower);
    let at = host.iter().rposition(|byte| *byte == b'@');
    let host = &host[at.map_or(0, |at| at + 1)..];
    !PRIVATE_HOST.is_match(host)
}

/// Returns how serious a command is that runs foreign code: none where it does not.
fn remote_execution_severity(line: &[u8], words: &Words) -> Option<(Range<usize>, Severity)> {
    let hidden = HIDDEN_RUN.find(line);
    let found = hidden.or_else(|| DOWNLOAD_AND_RUN.find(line))?;
    let is_serious = hidden.is_some()
        || is_standing_order(line, words)
        || words.pattern(WordList::ShadyHosts).is_match(line);
    let is_denied = DENIED.is_match(sentence_before(line, found.start()));
    let severity = if is_serious && !is_denied {
        Severity::Error
    } else {
        Severity::Warning
    };
    Some((found.range(), severity))
}

fn check_remote_execution(document: &Document<'_>, drafts: &mut Drafts) {
    let mut lines = lines_with(document, &DOWNLOAD_AND_RUN);
    lines.extend(lines_with(document, &HIDDEN_RUN));
    lines.sort_unstable();
    lines.dedup();
    let mut places = Places::default();
    let mut worst = Severity::Warning;
    for index in lines {
        let Some((found, severity)) =
            remote_execution_severity(document.line_text(index), document.words)
        else {
            continue;
        };
        if !document.is_fenced(index) && !is_prohibited(document, index, &found) {
            worst = worst.max(severity);
        }
        let start = document.lines[index].start;
        places.add(start + found.start..start + found.end, "runs foreign code");
    }
    let what = "runs code that comes from elsewhere";
    let draft = Draft::quoting(RuleId::RemoteExec, what, places, document);
    drafts.extend(draft.map(|it| it.severity(worst)));
}

/// Finds encoded text that says what rules 701, 703 or 704 report.
fn check_blobs(document: &Document<'_>, drafts: &mut Drafts) {
    let judged = document.judged_range();
    let text = &document.text[judged.clone()];
    let mut places = Places::default();
    let mut decoded_text = None;
    let base64 = BASE64_BLOB
        .find_iter(text)
        .map(|it| (it, decode_base64(it.as_bytes())));
    let hex = HEX_BLOB
        .find_iter(text)
        .map(|it| (it, decode_hex(it.as_bytes())));
    for (found, decoded) in base64.chain(hex) {
        let Some(decoded) = decoded.filter(|it| is_mostly_text(it)) else {
            continue;
        };
        let mut lines = decoded.split(|byte| *byte == b'\n');
        let is_attack = has_override_phrase(&decoded, document.words)
            || lines.any(|line| {
                line.len() <= MAX_COMMAND_BYTES
                    && (sends_secret(line, document.words)
                        || remote_execution_severity(line, document.words).is_some())
            });
        if is_attack {
            places.add(
                judged.start + found.start()..judged.start + found.end(),
                "encoded text",
            );
            decoded_text.get_or_insert(decoded);
        }
    }
    if let Some(decoded) = decoded_text {
        let message = format!(
            "encoded text that says: {}",
            quotable(&decoded, document.words)
        );
        drafts.push(Draft::new(RuleId::EncodedBlob, message).at(places));
    }
}

fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    let cut = &text[..text.len().min(MAX_BLOB_BYTES)];
    let plain = cut.iter().map(|byte| match byte {
        b'-' => b'+',
        b'_' => b'/',
        byte => *byte,
    });
    let plain: Vec<u8> = plain.filter(|byte| *byte != b'=').collect();
    // A single character behind the last whole group carries no byte.
    let whole = match plain.len() % 4 {
        1 => plain.len() - 1,
        _ => plain.len(),
    };
    BASE64.decode(&plain[..whole]).ok()
}

fn decode_hex(text: &[u8]) -> Option<Vec<u8>> {
    let cut = &text[..text.len().min(MAX_BLOB_BYTES)];
    let digits: Vec<u8> = cut
        .iter()
        .filter(|byte| !matches!(byte, b'\\' | b'x'))
        .map(|byte| char::from(*byte).to_digit(16))
        .map(|digit| digit.map(|it| it as u8))
        .collect::<Option<_>>()?;
    Some(
        digits
            .chunks_exact(2)
            .map(|pair| pair[0] << 4 | pair[1])
            .collect(),
    )
}

/// Whether decoded bytes read as text; most that look encoded are digests and keys.
fn is_mostly_text(bytes: &[u8]) -> bool {
    let is_text = |byte: &&u8| matches!(byte, b' '..=b'~' | b'\n' | b'\t' | b'\r' | 0x80..);
    str::from_utf8(bytes).is_ok() && bytes.iter().filter(is_text).count() * 20 >= bytes.len() * 19
}
