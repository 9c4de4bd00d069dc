//! Foreign bytes made visible: the one type and the one function.
//!
//! An agent chooses the content of its memory, and may attack the operator's terminal or eyes:
//! escape codes, text that changes direction, characters without width. Dropping them would hide
//! the attack, printing them would carry it out; so each becomes a *mark* that names it. All code
//! that prints text from a disk, a server or a user calls this module. The rules: `engine.md`
//! section 6.

use std::ffi::OsStr;
use std::fmt;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use icu_properties::props::{
    DefaultIgnorableCodePoint, EmojiModifier, ExtendedPictographic, GeneralCategory, Script,
};
use icu_properties::{CodePointMapData, CodePointSetData};
use serde::Serializer;
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Distance of tab stops, in cells.
const TAB_STOP: usize = 8;
/// Combining marks that a base may carry (`engine.md` section 6).
const MAX_COMBINING_MARKS: usize = 4;
/// Pictographs in one joined emoji, as in the longest recommended ones (families).
/// A longer chain counts as two cells, and a terminal may draw hundreds.
const MAX_JOINED_PICTOGRAPHS: usize = 4;
/// The suffix that turns a digit, `#` or `*` into an emoji keycap.
const KEYCAP_SUFFIX: &str = "\u{FE0F}\u{20E3}";
/// Characters that start an escape sequence in a terminal (ECMA-48).
const ESCAPE_INTRODUCERS: &str = "\x1B\u{90}\u{98}\u{9B}\u{9D}\u{9E}\u{9F}";
const KEYCAP_BASES: [char; 12] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', '#', '*'];

/// Agent text, names, paths, host names, banners: bytes that must not be printed as they are. There
/// is not a `Display`; `Debug` prints the revealed text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Untrusted(Vec<u8>);

impl Untrusted {
    /// Wraps foreign bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// Returns the raw bytes: to compare, hash or diff, never to print.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Reveals the text as tokens of one line; see [`reveal_line`].
    pub fn to_tokens(&self, options: RevealOptions) -> Vec<VisibleToken> {
        reveal_line(&self.0, options)
    }

    /// Reveals the text as a string of one line; see [`visible_line()`].
    pub fn to_visible_line(&self) -> String {
        visible_line(&self.0)
    }
}

impl fmt::Debug for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Untrusted({})", self.to_visible_line())
    }
}

/// Converts from `&str`, `&String`, `&OsStr`, `&Path` and the like.
impl<T: AsRef<OsStr> + ?Sized> From<&T> for Untrusted {
    fn from(text: &T) -> Self {
        Self::new(text.as_ref().as_bytes())
    }
}

impl From<String> for Untrusted {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl From<PathBuf> for Untrusted {
    fn from(path: PathBuf) -> Self {
        Self::from(&path)
    }
}

/// A run of text that is safe to put into cells. Runs with `is_mark` come from this module (an
/// escape made visible), and are shown in a style that agent text cannot obtain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VisibleToken {
    /// The text to print.
    pub text: String,
    /// Whether this module made the text.
    pub is_mark: bool,
}

/// Characters of a line that are shown together, for an editor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VisiblePiece {
    /// The text to print.
    pub text: String,
    /// Whether this module made the text.
    pub is_mark: bool,
    /// The bytes of the line that it shows.
    pub source: Range<usize>,
}

/// Purpose for which a line is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RevealPurpose {
    /// Reading. The joiners and selectors inside well-formed emoji pass.
    Prose,
    /// Comparison: nothing invisible passes, not even inside emoji.
    Diff,
}

/// Options for showing a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RevealOptions {
    /// Decides which joiners pass.
    pub purpose: RevealPurpose,
    /// Marks ordinary whitespace too: spaces, tabs, CR before LF.
    pub marks_whitespace: bool,
    /// Maximum width of a line in cells, not counting the `…(+N)` of a longer one.
    pub max_cells: usize,
}

impl RevealOptions {
    /// Options for text to read.
    pub const PROSE: RevealOptions = RevealOptions {
        purpose: RevealPurpose::Prose,
        marks_whitespace: false,
        max_cells: 4096,
    };
    /// Options for text to compare.
    pub const DIFF: RevealOptions = RevealOptions {
        purpose: RevealPurpose::Diff,
        ..RevealOptions::PROSE
    };
}

/// The one revealing function: turns one line, given without its LF, into tokens. Adjacent tokens
/// differ in kind.
///
/// An LF inside becomes a mark. A final CR counts as part of the line end: it is dropped, unless
/// `options.marks_whitespace` is set. Takes linear time; the part that is cut off is only counted,
/// in N (characters, and bytes that are not UTF-8).
pub fn reveal_line(line: &[u8], options: RevealOptions) -> Vec<VisibleToken> {
    let body = line.strip_suffix(b"\r").unwrap_or(line);
    reveal_tokens(
        if options.marks_whitespace { line } else { body },
        options,
        false,
    )
}

/// Reveals a line as [`reveal_line`] does, piece by piece: runs of printable ASCII, whose text is
/// their source, and single characters. Every byte is in one piece, also a final CR.
pub fn reveal_pieces(line: &[u8], options: RevealOptions) -> Vec<VisiblePiece> {
    let mut writer = TokenWriter::new(options);
    // The part that does not fit is in the last piece.
    if writer.write_line(line, false).is_none() {
        writer.starts.push((writer.bytes_shown, writer.text_length));
        writer.append_text("…", true);
    }
    let starts = std::mem::take(&mut writer.starts);
    let mut tokens = writer.tokens.into_iter();
    let mut token = tokens.next();
    // Bytes of text before the token.
    let mut passed = 0;
    let mut pieces = Vec::with_capacity(starts.len());
    for (index, (source, from)) in starts.iter().copied().enumerate() {
        let next = starts.get(index + 1).copied();
        let (source_end, to) = next.unwrap_or((line.len(), writer.text_length));
        while let Some(current) = token.as_ref().filter(|it| from >= passed + it.text.len()) {
            passed += current.text.len();
            token = tokens.next();
        }
        let shown = token.as_ref().map(|it| (&it.text, it.is_mark));
        let Some((text, is_mark)) = shown else { break };
        let text = text.get(from - passed..(to - passed).min(text.len()));
        pieces.push(VisiblePiece {
            text: text.unwrap_or_default().to_string(),
            is_mark,
            source: source..source_end,
        });
    }
    pieces
}

/// Reveals text as a plain string of one line, for command-line text and messages.
///
/// Since a string has no style, `‹` and `›` in the input become marks too, so that agent text
/// cannot forge a mark. LF is a mark, and so is a final CR, since no LF followed it. Cut as
/// [`RevealOptions::PROSE`] says.
pub fn visible_line(text: impl AsRef<[u8]>) -> String {
    let text = text.as_ref();
    let is_printable = |byte: &u8| matches!(byte, b' '..=b'~');
    if text.len() <= RevealOptions::PROSE.max_cells && text.iter().all(is_printable) {
        return String::from_utf8_lossy(text).into_owned();
    }
    let tokens = reveal_tokens(text, RevealOptions::PROSE, true);
    tokens.into_iter().map(|token| token.text).collect()
}

/// Reveals text as a plain string of several lines, for standard error and messages: each LF is
/// kept (a CR before it is dropped), and each line is revealed as by [`visible_line()`].
pub fn visible_text(text: impl AsRef<[u8]>) -> String {
    reveal_text(text.as_ref(), RevealOptions::PROSE)
}

/// Reveals text like [`visible_text`] without cutting lines, for a pager or the clipboard.
pub fn visible_text_uncut(text: impl AsRef<[u8]>) -> String {
    let options = RevealOptions {
        max_cells: usize::MAX,
        ..RevealOptions::PROSE
    };
    reveal_text(text.as_ref(), options)
}

fn reveal_text(text: &[u8], options: RevealOptions) -> String {
    let line = |part: &[u8]| -> String {
        let tokens = reveal_tokens(part, options, true).into_iter();
        tokens.map(|token| token.text).collect()
    };
    let reveal = |part: &[u8]| match part.strip_suffix(b"\n") {
        Some(ended) => line(ended.strip_suffix(b"\r").unwrap_or(ended)) + "\n",
        None => line(part),
    };
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    lines.map(reveal).collect()
}

/// Counts of characters in a file that do not show as themselves; a finding about the whole file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct HiddenCounts {
    /// Characters without a shape of their own: formats and bidirectional controls, default
    /// ignorables, tags, selectors, joiners, fillers, private and unassigned ones. Whitespace and
    /// characters inside emoji do not count.
    pub invisible: u64,
    /// Control characters (C0, DEL, C1), except LF, TAB and the CR before an LF.
    pub controls: u64,
    /// Bytes that are not UTF-8.
    pub invalid: u64,
    /// Control characters that start an escape sequence, such as ESC and CSI; also counted in
    /// `controls`.
    pub escapes: u64,
}

/// Counts hidden characters in a whole file; all zero for plain text.
pub fn count_hidden(bytes: &[u8]) -> HiddenCounts {
    let mut counts = HiddenCounts::default();
    let is_not_plain = |byte: u8| !matches!(byte, b' '..=b'~' | b'\n' | b'\t');
    // Most notes are plain, which a check of many bytes at once shows.
    let plain = |piece: &[u8]| {
        !piece
            .iter()
            .fold(false, |any, byte| any | is_not_plain(*byte))
    };
    if bytes.chunks(4096).all(plain) {
        return counts;
    }
    for chunk in bytes.utf8_chunks() {
        counts.invalid += chunk.invalid().len() as u64;
        let mut rest = chunk.valid();
        while let Some((plain, tail)) = rest
            .bytes()
            .position(is_not_plain)
            .map(|at| rest.split_at(at))
        {
            let c = tail.chars().next().unwrap_or_default();
            let consumed = match char_class(c) {
                _ if tail.starts_with("\r\n") => 2,
                _ if tail.starts_with(KEYCAP_SUFFIX) && plain.ends_with(KEYCAP_BASES) => {
                    KEYCAP_SUFFIX.len()
                }
                CharClass::Base => emoji_length(tail, true).max(c.len_utf8()),
                class => {
                    counts.invisible += u64::from(class == CharClass::Invisible);
                    counts.controls += u64::from(class == CharClass::Control);
                    counts.escapes += u64::from(ESCAPE_INTRODUCERS.contains(c));
                    c.len_utf8()
                }
            };
            rest = tail.get(consumed..).unwrap_or_default();
        }
    }
    counts
}

/// Replaces invisible characters by marks. Returns the text, and whether it has changed: plain text
/// stays as it is.
pub fn escape_hidden(bytes: &[u8]) -> (String, bool) {
    match std::str::from_utf8(bytes) {
        Ok(text) if count_hidden(bytes) == HiddenCounts::default() => (text.to_string(), false),
        _ => (visible_text_uncut(bytes), true),
    }
}

/// Whether a word mixes Latin letters with Cyrillic or Greek ones (shown as a badge). Digits, `_`,
/// combining marks and invisible characters do not end a word.
pub fn has_mixed_scripts(bytes: &[u8]) -> bool {
    let (latin, lookalike) = (1_u8, 2_u8);
    let scripts = CodePointMapData::<Script>::new();
    let mixed = |text: &str| {
        let mut word = 0;
        text.chars().any(|c| {
            match c {
                'a'..='z' | 'A'..='Z' => word |= latin,
                '0'..='9' | '_' => {}
                '\0'..='\x7F' => word = 0,
                _ if c.is_alphabetic() => match scripts.get(c) {
                    Script::Latin => word |= latin,
                    Script::Cyrillic | Script::Greek => word |= lookalike,
                    _ => {}
                },
                _ if matches!(char_class(c), CharClass::Combining | CharClass::Invisible) => {}
                _ => word = 0,
            }
            word == latin | lookalike
        })
    };
    !bytes.is_ascii() && bytes.utf8_chunks().any(|chunk| mixed(chunk.valid()))
}

/// Escapes everything but printable ASCII in valid JSON, for `--json` on a terminal. In valid JSON
/// such characters occur only in strings, and LF (kept), TAB and CR (which become spaces) only
/// between values.
pub fn escape_json_to_ascii(json: &str) -> String {
    let escape = |unit: u16| match u8::try_from(unit) {
        Ok(byte @ (b' '..=b'~' | b'\n')) => char::from(byte).to_string(),
        Ok(b'\t' | b'\r') => " ".to_string(),
        _ => format!("\\u{unit:04x}"),
    };
    json.encode_utf16().map(escape).collect()
}

/// Visual class of a character.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CharClass {
    Control,   // C0, DEL, C1
    Invisible, // shows nothing, or has no known shape
    Space,     // whitespace other than space and tab
    Combining, // belongs to the character before it
    Base,      // shows by itself
}

fn char_class(c: char) -> CharClass {
    use GeneralCategory as G;
    let category = CodePointMapData::<G>::new().get(c);
    // Selectors, tags, Hangul fillers, the grapheme joiner; not the Braille blank.
    let ignorable = CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(c);
    match category {
        G::Control => CharClass::Control,
        G::Format | G::LineSeparator | G::ParagraphSeparator => CharClass::Invisible,
        G::PrivateUse | G::Unassigned | G::Surrogate => CharClass::Invisible,
        _ if ignorable || c == '\u{2800}' => CharClass::Invisible,
        G::SpaceSeparator if c != ' ' => CharClass::Space,
        G::NonspacingMark | G::SpacingMark | G::EnclosingMark => CharClass::Combining,
        // The vowels and finals of conjoining Hangul, and a few prefixes.
        _ if c.width() == Some(0) => CharClass::Combining,
        _ => CharClass::Base,
    }
}

/// Returns the length in bytes of the emoji at the start of `text`, or 0. An emoji is a pictograph,
/// optionally with a skin tone; where `joiners` may pass, also one with VS16, a keycap, and up to
/// [`MAX_JOINED_PICTOGRAPHS`] pictographs joined by ZWJ.
fn emoji_length(text: &str, joiners: bool) -> usize {
    let pictographs = CodePointSetData::new::<ExtendedPictographic>();
    let modifiers = CodePointSetData::new::<EmojiModifier>();
    // Code points reserved for future emoji are pictographs too.
    let is_pictograph = |c: char| pictographs.contains(c) && char_class(c) == CharClass::Base;
    let is_emoji_style = |c: char| modifiers.contains(c) || joiners && c == '\u{FE0F}';
    let after_keycap_base = text.strip_prefix(KEYCAP_BASES);
    if joiners && after_keycap_base.is_some_and(|rest| rest.starts_with(KEYCAP_SUFFIX)) {
        return 1 + KEYCAP_SUFFIX.len();
    }
    let (mut end, mut rest) = (0, text);
    for _ in 0..MAX_JOINED_PICTOGRAPHS {
        let Some(after) = rest.strip_prefix(is_pictograph) else {
            break;
        };
        let after = after.strip_prefix(is_emoji_style).unwrap_or(after);
        end = text.len() - after.len();
        match after.strip_prefix('\u{200D}') {
            Some(joined) if joiners => rest = joined,
            _ => break,
        }
    }
    end
}

/// Builder of the tokens of one line, piece by piece. A piece is written whole or not at all; the
/// methods return `None` if it does not fit.
struct TokenWriter {
    options: RevealOptions,
    tokens: Vec<VisibleToken>,
    /// Remaining cells.
    cells_left: usize,
    /// Bytes of the line written so far.
    bytes_shown: usize,
    /// Bytes of text in all tokens.
    text_length: usize,
    /// Where each piece begins: in the line, and in the text of all tokens.
    starts: Vec<(usize, usize)>,
    /// The base for a combining mark: its offset in the last token, and the number of marks that it
    /// carries. `None` at the start, after a tab, and after our marks.
    combining_base: Option<(usize, usize)>,
}

/// Reveals a line whose final CR is shown. `is_plain`: the result will lose its style, so our
/// brackets must not occur in the text.
fn reveal_tokens(line: &[u8], options: RevealOptions, is_plain: bool) -> Vec<VisibleToken> {
    let mut writer = TokenWriter::new(options);
    if writer.write_line(line, is_plain).is_none() {
        let remaining = line
            .get(writer.bytes_shown..)
            .unwrap_or_default()
            .utf8_chunks();
        let counts = remaining.map(|chunk| chunk.valid().chars().count() + chunk.invalid().len());
        writer.append_text(&format!("…(+{})", counts.sum::<usize>()), true);
    }
    writer.tokens
}

impl TokenWriter {
    fn new(options: RevealOptions) -> TokenWriter {
        TokenWriter {
            options,
            tokens: Vec::new(),
            cells_left: options.max_cells,
            bytes_shown: 0,
            text_length: 0,
            starts: Vec::new(),
            combining_base: None,
        }
    }

    fn write_line(&mut self, line: &[u8], plain: bool) -> Option<()> {
        let joiners = self.options.purpose == RevealPurpose::Prose;
        for chunk in line.utf8_chunks() {
            let mut rest = chunk.valid();
            while let Some(c) = rest.chars().next() {
                self.starts.push((self.bytes_shown, self.text_length));
                let emoji = emoji_length(rest, joiners);
                let used = match char_class(c) {
                    _ if c == '\t' => self.write_tab()?,
                    _ if c.is_ascii_graphic() && emoji == 0 || c == ' ' => {
                        self.write_ascii(rest)?
                    }
                    _ if plain && matches!(c, '‹' | '›') => self.write_code_point(rest, c)?,
                    CharClass::Base => {
                        let piece = rest.get(..emoji.max(c.len_utf8())).unwrap_or(rest);
                        self.write_piece(piece, piece.width(), false)?;
                        piece.len()
                    }
                    CharClass::Combining => self.write_combining(rest, c)?,
                    _ => self.write_code_point(rest, c)?,
                };
                self.bytes_shown += used;
                rest = rest.get(used..).unwrap_or_default();
            }
            for byte in chunk.invalid() {
                self.starts.push((self.bytes_shown, self.text_length));
                self.write_mark(&format!("\\x{byte:02X}"))?;
                self.bytes_shown += 1;
            }
        }
        Some(())
    }

    /// Writes the printable ASCII at the start of `rest`, as far as it fits: the fast path, one
    /// piece for most lines.
    fn write_ascii(&mut self, rest: &str) -> Option<usize> {
        let marks_whitespace = self.options.marks_whitespace;
        if marks_whitespace && rest.starts_with(' ') {
            self.write_mark("·")?;
            return Some(1);
        }
        let bytes = rest.bytes().take(self.cells_left.max(1));
        let is_shown =
            |byte: &u8| matches!(byte, b' '..=b'~') && !(marks_whitespace && *byte == b' ');
        let mut run_length = bytes.take_while(is_shown).count();
        // The last character may be the digit of a keycap.
        if run_length > 1 && emoji_length(rest.get(run_length - 1..).unwrap_or_default(), true) > 0
        {
            run_length -= 1;
        }
        let start = self.write_piece(
            rest.get(..run_length).unwrap_or_default(),
            run_length,
            false,
        )?;
        self.combining_base = Some((start + run_length - 1, 0));
        Some(run_length)
    }

    fn write_tab(&mut self) -> Option<usize> {
        let mut cells = TAB_STOP - (self.options.max_cells - self.cells_left) % TAB_STOP;
        if cells > self.cells_left {
            return None;
        }
        if self.options.marks_whitespace {
            self.write_mark("→")?;
            cells -= 1;
        }
        if cells > 0 {
            self.write_piece(&" ".repeat(cells), cells, false)?;
        }
        self.combining_base = None;
        Some(1)
    }

    /// Writes a mark for `c`: a control by its picture or code, anything else by its code point and
    /// the number of its repetitions at the start of `rest`.
    fn write_code_point(&mut self, rest: &str, c: char) -> Option<usize> {
        let code = u32::from(c);
        let mut run = 1;
        let mark = match char::from_u32(0x2400 + code) {
            Some(picture) if code < 0x20 => picture.to_string(),
            _ if c == '\x7F' => "␡".to_string(),
            _ if c.is_control() => format!("‹{code:02X}›"),
            _ => {
                run = rest.chars().take_while(|next| *next == c).count();
                let times = Some(format!("x{run}")).filter(|_| run > 1);
                format!("‹U+{code:04X}›{}", times.unwrap_or_default())
            }
        };
        self.write_mark(&mark)?;
        Some(run * c.len_utf8())
    }

    fn write_combining(&mut self, rest: &str, c: char) -> Option<usize> {
        let cells = c.width().unwrap_or(0);
        let base =
            (self.combining_base).and_then(|(start, _)| self.tokens.last()?.text.get(start..));
        let can_join = |base: &str| format!("{base}{c}").graphemes(true).nth(1).is_none();
        // The vowels and finals of Hangul join only Hangul; elsewhere they have no width and would
        // be lost on the screen.
        if cells == 0 && !can_join(base.unwrap_or("◌")) {
            return self.write_code_point(rest, c);
        }
        match self.combining_base {
            Some((_, MAX_COMBINING_MARKS)) => {
                let run = rest
                    .chars()
                    .take_while(|c| char_class(*c) == CharClass::Combining);
                let (count, used) = run.fold((0, 0), |(n, len), c| (n + 1, len + c.len_utf8()));
                self.write_mark(&format!("‹+{count}›"))?;
                return Some(used);
            }
            Some((start, carried)) => {
                let mark = self.tokens.last().is_some_and(|last| last.is_mark);
                self.write_piece(c.encode_utf8(&mut [0; 4]), cells, mark)?;
                self.combining_base = Some((start, carried + 1));
            }
            None => {
                // The mark and its circle are in one token, so that they share a cell.
                let start = self.write_piece(&format!("◌{c}"), 1 + cells, true)?;
                self.combining_base = Some((start, 1));
            }
        }
        Some(c.len_utf8())
    }

    fn write_mark(&mut self, text: &str) -> Option<usize> {
        self.write_piece(text, text.width(), true)
    }

    /// Appends a piece and returns its offset in the last token. Combining marks may sit on it,
    /// unless it is a mark of ours.
    fn write_piece(&mut self, text: &str, cells: usize, mark: bool) -> Option<usize> {
        self.cells_left = self.cells_left.checked_sub(cells)?;
        let start = self.append_text(text, mark);
        self.combining_base = (!mark).then_some((start, 0));
        Some(start)
    }

    /// Appends text to the last token if it is of the same kind, else begins a new one.
    fn append_text(&mut self, piece: &str, mark: bool) -> usize {
        let last = self.tokens.pop_if(|last| last.is_mark == mark);
        let mut text = last.map_or(String::new(), |last| last.text);
        let start = text.len();
        text.push_str(piece);
        self.text_length += piece.len();
        self.tokens.push(VisibleToken {
            text,
            is_mark: mark,
        });
        start
    }
}

/// Serializes a path as text; bytes that are not UTF-8 become replacement characters, instead of failing
/// the document.
pub fn serialize_path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Lines and their revealed form, with marks in brackets; the same for every purpose.
    const CHARACTER_CLASSES: &str =
        "- plain [text]: ~ é 漢字 が Ж 🚀👍🏽🇪🇺 -> - plain [text]: ~ é 漢字 が Ж 🚀👍🏽🇪🇺
literal ‹U+202E›x4 ␛ …(+5) ◌ -> literal ‹U+202E›x4 ␛ …(+5) ◌
a\tb\t漢\t|\r -> a       b       漢      |
\0a\rc\x1B[31m\x7F\u{85}\u{9B} -> [␀]a[␍]c[␛][31m[␡‹85›‹9B›]
\u{202E}\u{2066}\u{AD}\u{FEFF}\u{2028} -> [‹U+202E›‹U+2066›‹U+00AD›‹U+FEFF›‹U+2028›]
\u{E000}\u{378}\u{FFFF}\u{E0041}\u{2800} -> [‹U+E000›‹U+0378›‹U+FFFF›‹U+E0041›‹U+2800›]
\u{115F}\u{1160}\u{3164}\u{FFA0} -> [‹U+115F›‹U+1160›‹U+3164›‹U+FFA0›]
a\u{34F}\u{FE0F}\u{200D}b\u{200B}\u{200B} -> a[‹U+034F›‹U+FE0F›‹U+200D›]b[‹U+200B›x2]
\u{A0}\u{3000}\u{2003}\u{2003} -> [‹U+00A0›‹U+3000›‹U+2003›x2]
e\u{301}\u{301}\u{301}\u{301}\u{302}\u{903}! -> e\u{301}\u{301}\u{301}\u{301}[‹+2›]!
\u{301}a\t\u{903} -> [◌\u{301}]a      [◌\u{903}]
\u{1112}\u{1161}\u{11AB} a\u{1161} -> \u{1112}\u{1161}\u{11AB} a[‹U+1161›]";

    fn options(whitespace: bool, max_cells: usize, prose: bool) -> RevealOptions {
        RevealOptions {
            purpose: if prose {
                RevealPurpose::Prose
            } else {
                RevealPurpose::Diff
            },
            marks_whitespace: whitespace,
            max_cells,
        }
    }

    fn format_tokens(line: impl AsRef<[u8]>, options: RevealOptions) -> String {
        let show = |token: VisibleToken| {
            if token.is_mark {
                format!("[{}]", token.text)
            } else {
                token.text
            }
        };
        reveal_line(line.as_ref(), options)
            .into_iter()
            .map(show)
            .collect()
    }

    #[test]
    fn each_character_class_is_shown_by_its_rule() {
        for (line, expected) in CHARACTER_CLASSES
            .split('\n')
            .filter_map(|row| row.split_once(" -> "))
        {
            assert_eq!(
                format_tokens(line, RevealOptions::PROSE),
                expected,
                "{line:?}"
            );
            assert_eq!(
                format_tokens(line, RevealOptions::DIFF),
                expected,
                "{line:?}"
            );
        }
        assert_eq!(
            format_tokens(b"\n\xFF(\xED\xA0", RevealOptions::DIFF),
            r"[␊\xFF]([\xED\xA0]"
        );
        let whitespace = options(true, 99, false);
        assert_eq!(
            format_tokens("a b\tc \t \r", whitespace),
            "a[·]b[→]    c[·→]     [·␍]"
        );
    }

    #[test]
    fn joiners_pass_only_in_prose_inside_emoji() {
        let emoji = "❤\u{FE0F} 👩🏽\u{200D}🚀 👁\u{FE0F}\u{200D}🗨\u{FE0F} no1\u{FE0F}\u{20E3}";
        for line in emoji.split(' ') {
            assert_eq!(format_tokens(line, RevealOptions::PROSE), line);
            assert!(
                format_tokens(line, RevealOptions::DIFF).contains("[‹U+"),
                "{line}"
            );
            assert_eq!(
                count_hidden(line.as_bytes()),
                HiddenCounts::default(),
                "{line}"
            );
        }
        let line = "🚀\u{200D}🚀\u{200D}🚀\u{200D}🚀\u{200D}🚀 🚀\u{200D}a\u{FE0E}";
        let expected = "🚀\u{200D}🚀\u{200D}🚀\u{200D}🚀[‹U+200D›]🚀 🚀[‹U+200D›]a[‹U+FE0E›]";
        assert_eq!(format_tokens(line, RevealOptions::PROSE), expected);
    }

    #[test]
    fn long_line_is_cut_and_the_rest_counted() {
        let cut = |line: &[u8], cells| format_tokens(line, options(false, cells, true));
        assert_eq!(cut("漢字漢é".as_bytes(), 5), "漢字[…(+2)]");
        assert_eq!(cut(b"abc", 3), "abc");
        assert_eq!(cut(b"abc\x1B\xFF", 0), "[…(+5)]");
        let huge = [&b"b"[..], &b"\xCC\x81".repeat(5_000_000)].concat();
        assert_eq!(cut(&huge, 2), "b\u{301}\u{301}\u{301}\u{301}[…(+4999996)]");
        assert!(visible_line("\u{200B}".repeat(3_000_000)).ends_with("›x3000000"));
    }

    #[test]
    fn plain_strings_cannot_forge_marks() {
        assert_eq!(visible_line("‹›\u{202E}\n\r"), "‹U+2039›‹U+203A›‹U+202E›␊␍");
        assert_eq!(visible_text("a\r\n\x1B\n\nb\r"), "a\n␛\n\nb␍");
        assert_eq!(format!("{:?}", Untrusted::from("/a\x07")), "Untrusted(/a␇)");
    }

    #[test]
    fn hidden_characters_are_counted_and_json_is_ascii() {
        let bytes = b"\r\n\t\xE2\x80\xAE\xE2\x80\x8B\xE2\xA0\x80\x1B\r\x7F\xC2\x9B\xFF\xC3\xC2\xA0";
        let found = r#"{"invisible":3,"controls":4,"invalid":2,"escapes":2}"#;
        assert_eq!(serde_json::to_string(&count_hidden(bytes)).unwrap(), found);
        assert!(
            has_mixed_scripts("p\u{430}y".as_bytes()) && has_mixed_scripts("1\u{3B1}_b".as_bytes())
        );
        assert!(!has_mixed_scripts("pay Ωμέγα мир 5µm".as_bytes()));
        let json = escape_json_to_ascii("{\n\t\"é🚀\x7F\": 1}");
        assert_eq!(json, "{\n \"\\u00e9\\ud83d\\ude80\\u007f\": 1}");
    }

    /// Generates bytes rich in the characters that the rules cover.
    fn hostile_bytes() -> impl Strategy<Value = Vec<u8>> {
        let odd = "[\t\r\n\x1B\u{9B}‹›◌1❤🚀🏽🇪\u{200D}\u{FE0F}\u{20E3}\u{301}\u{903}\u{1112}\u{1161}\u{202E}\u{A0}\u{D4E}]";
        let bytes = prop::collection::vec(any::<u8>(), 0..3);
        let piece = (odd, any::<char>(), "[ -~]{0,5}", odd, bytes)
            .prop_map(|(a, b, c, d, e)| [format!("{a}{b}{c}{d}").into_bytes(), e].concat());
        prop::collection::vec(piece, 0..20).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn no_dangerous_character_passes(bytes in hostile_bytes(), prose: bool, whitespace: bool, max in 0..90usize) {
            let mut tokens = reveal_line(&bytes, options(whitespace, max, prose));
            prop_assert!(tokens.windows(2).all(|pair| pair[0].is_mark != pair[1].is_mark));
            for token in &tokens {
                let joined = token.text.replace(['\u{200D}', '\u{FE0F}'], "");
                prop_assert!(joined == token.text || prose && !token.is_mark);
                let shows = |c| matches!(char_class(c), CharClass::Base | CharClass::Combining) || c == ' ';
                prop_assert!(joined.chars().all(shows), "{:?}", token.text);
                prop_assert!(token.text.graphemes(true).all(|cell| cell.width() > 0));
            }
            if let Some(last) = tokens.last_mut().filter(|last| last.is_mark) {
                last.text.truncate(last.text.find('…').unwrap_or(last.text.len()));
            }
            let graphemes = tokens.iter().flat_map(|token| token.text.graphemes(true));
            prop_assert!(graphemes.map(UnicodeWidthStr::width).sum::<usize>() <= max);
            visible_line(&bytes);
        }

        #[test]
        fn plain_text_stays_unchanged(line in "[ -~‹›␀-␡◌…·→éж漢🚀]{1,99}", prose: bool) {
            let token = VisibleToken { text: line.clone(), is_mark: false };
            prop_assert_eq!(reveal_line(line.as_bytes(), options(false, 200, prose)), [token]);
            prop_assert_eq!(count_hidden(line.as_bytes()), HiddenCounts::default());
        }
    }
}
