//! Line ends: LF and CR LF mean the same to a boundary, because editors and tools of agents replace
//! one by the other without a change of any rule.

use std::borrow::Cow;

/// The line ends of a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LineEnds {
    /// Every line ends with LF.
    Lf,
    /// Every line ends with CR LF.
    CrLf,
    /// Some lines end with LF, others with CR LF.
    Mixed,
}

impl LineEnds {
    /// Returns the line ends of a text; `None` if it has none.
    fn of(text: &[u8]) -> Option<LineEnds> {
        let cr_lf = memchr::memmem::find_iter(text, b"\r\n").count();
        let lf = memchr::memchr_iter(b'\n', text).count() - cr_lf;
        match (lf, cr_lf) {
            (0, 0) => None,
            (_, 0) => Some(LineEnds::Lf),
            (0, _) => Some(LineEnds::CrLf),
            _ => Some(LineEnds::Mixed),
        }
    }

    fn name(self) -> &'static str {
        match self {
            LineEnds::Lf => "LF",
            LineEnds::CrLf => "CR LF",
            LineEnds::Mixed => "mixed",
        }
    }
}

/// Describes how the line ends of rules differ from those of their version: "CR LF line ends, LF in
/// the baseline"; `None` if they do not differ.
pub fn describe_line_ends(rules: &[u8], version: &[u8]) -> Option<String> {
    let (own, expected) = (LineEnds::of(rules)?, LineEnds::of(version)?);
    (own != expected).then(|| {
        format!(
            "{} line ends, {} in the baseline",
            own.name(),
            expected.name()
        )
    })
}

/// Splits a line into its text and its line end: nothing, LF or CR LF.
pub(super) fn split_line_end(line: &[u8]) -> (&[u8], &[u8]) {
    let text = line.strip_suffix(b"\n").unwrap_or(line);
    let text = if text.len() < line.len() {
        text.strip_suffix(b"\r").unwrap_or(text)
    } else {
        text
    };
    line.split_at(text.len())
}

/// Returns the length of the beginning of `text` that equals `prefix`, line ends aside; `None` if it
/// does not begin with it.
pub(super) fn matching_prefix_length(text: &[u8], prefix: &[u8]) -> Option<usize> {
    if text.starts_with(prefix) {
        return Some(prefix.len());
    }
    let mut rest = text;
    for line in prefix.split_inclusive(|byte| *byte == b'\n') {
        let (line_text, line_end) = split_line_end(line);
        let behind = rest.strip_prefix(line_text)?;
        rest = match line_end {
            b"" => behind,
            _ => [&b"\n"[..], b"\r\n"]
                .iter()
                .find_map(|end| behind.strip_prefix(*end))?,
        };
    }
    Some(text.len() - rest.len())
}

/// As [`matching_prefix_length`], with the end of the last line of `prefix`; `None` as well if `text`
/// continues that line.
pub(super) fn whole_lines_length(text: &[u8], prefix: &[u8]) -> Option<usize> {
    let length = matching_prefix_length(text, prefix)?;
    let line_end = match &text[length..] {
        [] => 0,
        _ if prefix.is_empty() || prefix.ends_with(b"\n") => 0,
        [b'\n', ..] => 1,
        [b'\r', b'\n', ..] => 2,
        _ => return None,
    };
    Some(length + line_end)
}

/// Returns `text` with the line ends of `model`, so that a comparison of the two shows other changes
/// only: line by line as long as both have the same lines, then with those of most of its lines, unless
/// most lines of `text` have these, too.
pub fn with_line_ends_of<'t>(text: &'t [u8], model: &[u8]) -> Cow<'t, [u8]> {
    let has_cr_lf = |text: &[u8]| memchr::memmem::find(text, b"\r\n").is_some();
    if !has_cr_lf(text) && !has_cr_lf(model) {
        return Cow::Borrowed(text);
    }
    fn lines(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
        text.split_inclusive(|byte| *byte == b'\n')
            .map(split_line_end)
    }
    let cr_lf_count = |text| lines(text).filter(|(_, end)| *end == b"\r\n").count();
    let has_mostly_cr_lf = |text| 2 * cr_lf_count(text) > lines(text).count();
    let most: Option<&[u8]> = match (has_mostly_cr_lf(text), has_mostly_cr_lf(model)) {
        (false, true) => Some(b"\r\n"),
        (true, false) => Some(b"\n"),
        _ => None,
    };
    let mut model_lines = lines(model);
    let mut is_same_so_far = true;
    let mut converted = Vec::with_capacity(text.len() + cr_lf_count(model));
    for (line, end) in lines(text) {
        let model_end = model_lines
            .next()
            .filter(|(model_line, _)| is_same_so_far && *model_line == line)
            .map(|(_, end)| end);
        is_same_so_far = model_end.is_some();
        converted.extend_from_slice(line);
        converted.extend_from_slice(match (end, model_end) {
            (b"", _) => b"",
            (_, None | Some(b"")) => most.unwrap_or(end),
            (_, Some(end)) => end,
        });
    }
    Cow::Owned(converted)
}
