//! Applies the safe fixes of findings.

use super::finding::{Finding, FixKind};

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Returns the text with the safe fixes of its findings and a final line feed; none where nothing
/// changes. Applying it to its own result changes nothing.
pub fn apply_safe_fixes(text: &[u8], findings: &[Finding]) -> Option<Vec<u8>> {
    let fixes = findings.iter().filter_map(|it| it.fix.as_ref());
    let safe = fixes.filter(|fix| fix.kind == FixKind::Safe);
    let mut edits: Vec<_> = safe.flat_map(|fix| &fix.edits).collect();
    edits.sort_by_key(|edit| edit.range.start.byte);
    let mut fixed = Vec::with_capacity(text.len());
    let mut at = 0;
    for edit in edits {
        let range = edit.range.start.byte..edit.range.end.byte;
        if range.start < at || range.end > text.len() {
            continue;
        }
        fixed.extend_from_slice(&text[at..range.start]);
        fixed.extend_from_slice(edit.text.as_bytes());
        at = range.end;
    }
    fixed.extend_from_slice(&text[at..]);
    if !fixed.is_empty() && !fixed.ends_with(b"\n") {
        let end = line_end(&fixed);
        fixed.extend_from_slice(end.as_bytes());
    }
    (fixed != text).then_some(fixed)
}

/// Returns the line end of a text, as fixes write it: CR LF where all lines have it.
pub(super) fn line_end(text: &[u8]) -> &'static str {
    let mut ends = text.split_inclusive(|byte| *byte == b'\n');
    let is_cr_lf = |line: &[u8]| line.ends_with(b"\r\n") || !line.ends_with(b"\n");
    let has_cr_lf = text.windows(2).any(|pair| pair == b"\r\n");
    let has_lone_cr = text
        .windows(2)
        .any(|pair| pair[0] == b'\r' && pair[1] != b'\n')
        || text.ends_with(b"\r");
    if has_cr_lf && !has_lone_cr && ends.all(is_cr_lf) {
        "\r\n"
    } else {
        "\n"
    }
}

/// Returns the number of bytes of the byte order marks that a text begins with. Programs that add a
/// mark to a text that has one leave two, and removing one of them would make the other the first.
pub(super) fn leading_marks_len(text: &[u8]) -> usize {
    let marks = text.chunks(BYTE_ORDER_MARK.len());
    marks.take_while(|it| *it == BYTE_ORDER_MARK).count() * BYTE_ORDER_MARK.len()
}

/// Returns a text as the fix of MS110 leaves it: without byte order marks and lone carriage returns.
pub(super) fn normalize_line_ends(text: &[u8]) -> Vec<u8> {
    let text = &text[leading_marks_len(text)..];
    let is_lone_cr = |at: usize| text[at] == b'\r' && text.get(at + 1) != Some(&b'\n');
    let bytes = text.iter().enumerate();
    bytes
        .map(|(at, byte)| if is_lone_cr(at) { b'\n' } else { *byte })
        .collect()
}
