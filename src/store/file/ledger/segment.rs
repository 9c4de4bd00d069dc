//! Segments: compressed parts of a ledger that no run changes any more.
//!
//! `<archive_dir>/.shepherd/ledger-<first>-<last>.jsonl.gz`, by the numbers of the first and the
//! last record, so that the order of the names is that of the records. A segment is one gzip stream
//! and nothing else. It is read as a whole, up to the size that one can have: what a damaged stream
//! yields before the checksum at its end is checked does not count as a record.

use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use rustix::fs::FileType;

use crate::base::durable;
use crate::base::error::{Error, ErrorKind, Result};
use crate::store::record_line::{MAX_RECORD_BYTES, MAX_SEQ, parse_record_header};

/// Maximum size of a segment's lines, unless it has a single record that is longer.
pub(super) const MAX_SEGMENT_BYTES: u64 = 1 << 20;

/// How much longer the gzip stream of lines that do not compress may be than they are.
const MAX_GZIP_OVERHEAD_BYTES: u64 = 64 << 10;

/// The name of a segment before and behind the numbers.
const NAME_PREFIX: &str = "ledger-";
const NAME_SUFFIX: &str = ".jsonl.gz";

/// The digits of each number.
const NAME_DIGITS: usize = 12;

/// A segment of a ledger.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Segment {
    /// Number of its first record.
    pub first: u64,
    /// Number of its last record.
    pub last: u64,
    /// Its path.
    pub path: PathBuf,
}

impl Segment {
    /// Creates the name of the segment with these records.
    pub fn new(directory: &Path, first: u64, last: u64) -> Segment {
        let name = format!("{NAME_PREFIX}{first:0NAME_DIGITS$}-{last:0NAME_DIGITS$}{NAME_SUFFIX}");
        Segment {
            first,
            last,
            path: directory.join(name),
        }
    }

    /// Parses a file name; none if it is not that of a segment.
    pub fn parse(directory: &Path, name: &str) -> Option<Segment> {
        let numbers = name.strip_prefix(NAME_PREFIX)?.strip_suffix(NAME_SUFFIX)?;
        let (first, last) = numbers.split_once('-')?;
        let parse = |digits: &str| {
            let is_number = digits.bytes().all(|it| it.is_ascii_digit());
            let number: u64 = digits.parse().ok().filter(|_| is_number)?;
            (1..=MAX_SEQ).contains(&number).then_some(number)
        };
        let segment = Segment::new(directory, parse(first)?, parse(last)?);
        let is_exact = segment.first <= segment.last && segment.file_name() == name;
        is_exact.then_some(segment)
    }

    /// Returns whether a file name is one that a command line with `ledger-*.jsonl.gz` names.
    pub fn matches_glob(name: &str) -> bool {
        name.starts_with(NAME_PREFIX) && name.ends_with(NAME_SUFFIX)
    }

    /// Returns its file name.
    pub fn file_name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Returns whether it has the record with this number, by its name.
    pub fn has_record(&self, seq: u64) -> bool {
        (self.first..=self.last).contains(&seq)
    }

    /// Returns the error for a segment that is not what was written.
    pub fn damage_error(&self, why: &str) -> Error {
        let message = format!("the ledger segment {} {why}", self.path.display());
        Error::new(ErrorKind::Integrity, message).with_hint(self.restore_hint())
    }

    /// Returns what to do about a segment that is not what was written.
    pub fn restore_hint(&self) -> String {
        format!(
            "restore {} from a backup; it has the records {} to {}, and no others are affected; \
             without one, move ledger.jsonl, all of its segments (ledger-*.jsonl.gz), reset.log and \
             reset.log.old away: the next run starts a new ledger, and older runs cannot be undone",
            self.file_name(),
            self.first,
            self.last
        )
    }

    fn open_error(&self, error: &io::Error) -> Error {
        if error.kind() != io::ErrorKind::InvalidInput {
            return self.system_error(error);
        }
        let kind = rustix::fs::lstat(&self.path).map(|it| FileType::from_raw_mode(it.st_mode));
        let found = kind.map_or("not a regular file", durable::describe_file_type);
        let message = format!("the ledger segment {} is {found}", self.path.display());
        let hint = format!("move it away, and {}", self.restore_hint());
        Error::new(ErrorKind::Integrity, message).with_hint(hint)
    }

    fn read_error(&self, error: &io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => self.damage_error("is truncated"),
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
                self.damage_error(&format!("cannot be decompressed: {error}"))
            }
            _ => self.system_error(error),
        }
    }

    fn system_error(&self, error: &io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::NotFound => self.damage_error("is missing"),
            _ => Error::from_io("read the ledger segment", &self.path, error),
        }
    }

    /// Maximum size of its lines: only a single record may be longer than other segments.
    fn max_bytes(&self) -> u64 {
        if self.first == self.last {
            MAX_RECORD_BYTES
        } else {
            MAX_SEGMENT_BYTES
        }
    }

    /// Reads all of its lines: as many as its name says, the last one complete. The checksum of the
    /// gzip stream matches them.
    ///
    /// # Errors
    /// A segment that cannot be read or decompressed, or is longer than any that is written.
    pub fn read_whole(&self) -> Result<Vec<u8>> {
        let max_bytes = self.max_bytes();
        let too_long = || {
            let why = format!("is too long: its records have more than {max_bytes} bytes");
            self.damage_error(&why)
        };
        let file = durable::open_own_file(&self.path, OpenOptions::new().read(true))
            .map_err(|error| self.open_error(&error))?;
        // A stream may have any number of blocks without content.
        let max_file_bytes = max_bytes + MAX_GZIP_OVERHEAD_BYTES;
        let metadata = file.metadata();
        if metadata.map_err(|error| self.system_error(&error))?.len() > max_file_bytes {
            return Err(too_long());
        }
        let mut decoder = GzDecoder::new(BufReader::new(file.take(max_file_bytes)));
        let mut text = Vec::new();
        let read = (&mut decoder).take(max_bytes + 1).read_to_end(&mut text);
        read.map_err(|error| self.read_error(&error))?;
        if text.len() as u64 > max_bytes {
            return Err(too_long());
        }
        let rest = decoder.get_mut().fill_buf();
        if !rest.map_err(|error| self.system_error(&error))?.is_empty() {
            return Err(self.damage_error("has other bytes behind its gzip stream"));
        }
        self.check_lines(&text)?;
        Ok(text)
    }

    /// Checks that lines begin with the record that the name of this segment says, and are as many.
    fn check_lines(&self, text: &[u8]) -> Result<()> {
        let first = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
        if let Ok(header) = parse_record_header(first)
            && header.seq != self.first
        {
            return Err(self.damage_error(&format!("begins with record {}", header.seq)));
        }
        let count = text.iter().filter(|byte| **byte == b'\n').count() as u64;
        let wanted = (self.last - self.first).saturating_add(1);
        if text.last().is_some_and(|byte| *byte != b'\n') {
            Err(self.damage_error("has no complete last line"))
        } else if count > wanted {
            Err(self.damage_error("has more records than its name says"))
        } else if count == 0 {
            Err(self.damage_error("has no records"))
        } else if count < wanted {
            let last = self.first + count - 1;
            Err(self.damage_error(&format!("ends behind record {last}")))
        } else {
            Ok(())
        }
    }
}

/// Compresses the lines of a segment. The same lines give the same bytes.
pub(super) fn compress(lines: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(lines)?;
    encoder.finish()
}

/// The lines of a segment.
pub(super) struct SegmentLines {
    segment: Segment,
    text: Vec<u8>,
    /// Where the next line begins.
    offset: usize,
    /// Number of the last record that was read.
    seq: u64,
}

impl SegmentLines {
    /// Reads a segment, and begins before its first line.
    ///
    /// # Errors
    /// As [`Segment::read_whole`].
    pub fn open(segment: &Segment) -> Result<SegmentLines> {
        Ok(SegmentLines {
            segment: segment.clone(),
            text: segment.read_whole()?,
            offset: 0,
            seq: segment.first - 1,
        })
    }

    /// Returns the segment.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Returns the number of the line that was read last.
    pub fn line_number(&self) -> u64 {
        self.seq + 1 - self.segment.first
    }

    /// Returns the next line without its line feed; none at the end.
    pub fn peek_line(&self) -> Option<&[u8]> {
        let rest = &self.text[self.offset..];
        let length = rest.iter().position(|byte| *byte == b'\n')?;
        Some(&rest[..length])
    }

    /// Reads the next line without its line feed; false at the end.
    pub fn read_line(&mut self, line: &mut Vec<u8>) -> bool {
        line.clear();
        let Some(next) = self.peek_line() else {
            return false;
        };
        line.extend_from_slice(next);
        self.offset += line.len() + 1;
        self.seq += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment_with(directory: &Path, bytes: &[u8], last: u64) -> Segment {
        let segment = Segment::new(directory, 1, last);
        std::fs::write(&segment.path, bytes).unwrap();
        segment
    }

    fn read_lines(segment: &Segment) -> Result<Vec<Vec<u8>>> {
        let mut lines = SegmentLines::open(segment)?;
        let (mut line, mut all) = (Vec::new(), Vec::new());
        while lines.read_line(&mut line) {
            all.push(line.clone());
        }
        Ok(all)
    }

    #[test]
    fn segment_names_are_parsed_exactly() {
        let directory = Path::new("/a");
        let segment = Segment::new(directory, 1, 4711);
        let name = "ledger-000000000001-000000004711.jsonl.gz";
        assert_eq!(segment.path, directory.join(name));
        assert_eq!(Segment::parse(directory, name), Some(segment));
        let long = Segment::new(directory, 1_000_000_000_000, 1_000_000_000_001);
        assert_eq!(Segment::parse(directory, &long.file_name()), Some(long));
        for other in [
            "ledger.jsonl",
            "ledger-1-4711.jsonl.gz",
            "ledger-000000000001-000000004711.jsonl",
            "ledger-000000004711-000000000001.jsonl.gz",
            "ledger-000000000000-000000004711.jsonl.gz",
            "ledger-+00000000001-000000004711.jsonl.gz",
            "ledger-000000000001-000000004711.jsonl.gz~",
            "ledger-000000000001-99999999999999999999999.jsonl.gz",
            "ledger-000000000001-18446744073709551615.jsonl.gz",
        ] {
            assert_eq!(Segment::parse(directory, other), None, "{other}");
        }
    }

    #[test]
    fn lines_are_read_back_as_they_were() {
        let temporary = tempfile::tempdir().unwrap();
        let text = b"one\n\ngr\xc3\xb6\xc3\x9fer\n";
        let segment = segment_with(temporary.path(), &compress(text).unwrap(), 3);
        let lines = read_lines(&segment).unwrap();
        assert_eq!(lines, [&b"one"[..], b"", "größer".as_bytes()]);
        assert_eq!(segment.read_whole().unwrap(), text);
    }

    #[test]
    fn damaged_segment_is_an_integrity_error() {
        let temporary = tempfile::tempdir().unwrap();
        let whole = compress(b"one\ntwo\n").unwrap();
        let mut changed = whole.clone();
        let middle = changed.len() / 2;
        changed[middle] ^= 1;
        let second = compress(b"three\n").unwrap();
        let cases: [(&str, Vec<u8>, u64); 9] = [
            ("is truncated", whole[..whole.len() - 1].to_vec(), 2),
            ("is truncated", Vec::new(), 2),
            ("cannot be decompressed", changed, 2),
            (
                "cannot be decompressed",
                b"one\ntwo\n this is no gzip".to_vec(),
                2,
            ),
            ("other bytes behind", [&whole[..], b"x"].concat(), 2),
            ("other bytes behind", [whole.clone(), second].concat(), 2),
            ("more records", whole.clone(), 1),
            ("ends behind record 2", whole.clone(), 3),
            ("no complete last line", compress(b"one\ntwo").unwrap(), 2),
        ];
        for (words, bytes, last) in cases {
            let segment = segment_with(temporary.path(), &bytes, last);
            let error = read_lines(&segment).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Integrity, "{error}");
            assert!(error.message().contains(words), "{words}: {error}");
            if !words.contains("record") {
                assert!(segment.read_whole().is_err(), "{words}");
            }
        }
    }

    #[test]
    fn more_lines_than_a_segment_has_are_not_read() {
        let temporary = tempfile::tempdir().unwrap();
        let text = vec![b'\n'; 2 * MAX_SEGMENT_BYTES as usize];
        let bytes = compress(&text).unwrap();
        let segment = segment_with(temporary.path(), &bytes, text.len() as u64);
        let error = read_lines(&segment).unwrap_err();
        assert!(error.message().contains("is too long"), "{error}");
        // A single record may be longer.
        let mut text = vec![b'x'; 2 * MAX_SEGMENT_BYTES as usize];
        text.push(b'\n');
        let segment = segment_with(temporary.path(), &compress(&text).unwrap(), 1);
        assert_eq!(read_lines(&segment).unwrap(), [&text[..text.len() - 1]]);
    }

    #[test]
    fn object_in_place_of_segment_is_named() {
        let temporary = tempfile::tempdir().unwrap();
        let segment = Segment::new(temporary.path(), 1, 2);
        let check = |words: &str| {
            let error = read_lines(&segment).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Integrity);
            assert!(error.message().ends_with(words), "{error}");
            assert!(error.hints()[0].starts_with("move it away, and restore "));
        };
        std::fs::create_dir(&segment.path).unwrap();
        check(" is a directory");
        std::fs::remove_dir(&segment.path).unwrap();
        std::os::unix::fs::symlink("/dev/null", &segment.path).unwrap();
        check(" is a symlink");
        std::fs::remove_file(&segment.path).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &segment.path, fifo, mode, 0).unwrap();
        check(" is a FIFO");
    }

    #[test]
    fn decompression_bomb_is_read_in_bounded_memory() {
        let temporary = tempfile::tempdir().unwrap();
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        let zeros = vec![0; 1 << 20];
        for _ in 0..64 {
            encoder.write_all(&zeros).unwrap();
        }
        let segment = segment_with(temporary.path(), &encoder.finish().unwrap(), 1);
        let error = segment.read_whole().unwrap_err();
        assert!(error.message().contains("is too long"), "{error}");
    }
}
