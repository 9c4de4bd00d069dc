//! Entries of the layout `drover`, and files that its agents do not write.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::{CWD, Mode, mkfifoat};

use super::drover_entries::{BODY, EntryScope, entry_text, put_with_id_command};

/// The id in the name of the odd file.
pub const ODD_ID: &str = "01HF7YAT00FFFFFFFFFFFFFFFF";

/// The id that a file claims to have, other than that in its name.
pub const CLAIMED_ID: &str = "01HF7YAT00GGGGGGGGGGGGGGGG";

/// The lines of the odd entry.
pub const ODD_LINES: &str = "scope: global\nkind: user\nsummary: odd\n";

/// An operation on one entry.
#[derive(Clone, Copy, Debug)]
pub enum EntryOperation {
    Put,
    Move,
    Forget,
}

impl EntryOperation {
    pub const ALL: [EntryOperation; 3] = [
        EntryOperation::Put,
        EntryOperation::Move,
        EntryOperation::Forget,
    ];

    /// Returns its command line for the entry with an id: a put makes it global, a move gives it to the
    /// agent `w`.
    pub fn command(self, id: &str) -> Vec<&str> {
        match self {
            EntryOperation::Put => put_with_id_command(id, EntryScope::Global, "new", BODY),
            EntryOperation::Move => vec!["move", id, "--scope", "agent", "--agent-id", "w"],
            EntryOperation::Forget => vec!["forget", id],
        }
    }
}

/// Bytes of the odd file, and what is known of them.
pub struct OddFile {
    pub name: &'static str,
    pub bytes: Vec<u8>,
    /// The body that agents see, or why they see nothing.
    pub seen: Result<String, &'static str>,
    /// The checks that find something.
    pub checks: &'static [&'static str],
    /// Why the entry cannot be moved.
    pub move_refusal: Option<&'static str>,
}

impl OddFile {
    /// An entry that agents see.
    fn seen(name: &'static str, bytes: impl Into<Vec<u8>>, body: &str) -> OddFile {
        OddFile {
            name,
            bytes: bytes.into(),
            seen: Ok(body.to_string()),
            checks: &[],
            move_refusal: None,
        }
    }

    /// A file that agents do not see.
    fn unseen(name: &'static str, bytes: impl Into<Vec<u8>>, reason: &'static str) -> OddFile {
        OddFile {
            name,
            bytes: bytes.into(),
            seen: Err(reason),
            checks: &["unloadable"],
            move_refusal: Some("no memory"),
        }
    }

    /// Whether an operation on the entry is refused.
    pub fn is_refused(&self, operation: EntryOperation) -> bool {
        match operation {
            EntryOperation::Put => self.seen.is_err(),
            EntryOperation::Move => self.move_refusal.is_some(),
            EntryOperation::Forget => false,
        }
    }

    /// Whether an operation on the entry changes something: a file that agents do not see cannot be
    /// forgotten.
    pub fn is_changed_by(&self, operation: EntryOperation) -> bool {
        self.seen.is_ok() && !self.is_refused(operation)
    }
}

/// Creates an object at a path.
pub type CreateObject = fn(&Path);

/// Objects in the place of an entry, by name. The symlink leads to `target.md` beside the directory of
/// the entry.
pub const SPECIAL_OBJECTS: [(&str, CreateObject); 5] = [
    ("symlink", |path| symlink("../target.md", path).unwrap()),
    ("dangling symlink", |path| symlink("absent", path).unwrap()),
    ("symlink to a directory", |path| {
        symlink("../agents", path).unwrap();
    }),
    ("FIFO", |path| {
        mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).unwrap();
    }),
    ("directory", |path| fs::create_dir(path).unwrap()),
];

/// Files that agents do not write, all with the name of one entry.
pub fn odd_files() -> Vec<OddFile> {
    let text = entry_text(ODD_ID, ODD_LINES);
    let with_body = |body: &str| text.replace(BODY, body);
    let [nul_body, long_body] = [
        BODY.replace("a reason", "a\0b"),
        format!("{BODY}{}", "x".repeat(10 << 20)),
    ];
    let with_line = |line: &str, other: &str| text.replace(line, other);
    vec![
        OddFile {
            checks: &["line-ends"],
            ..OddFile::seen(
                "CRLF",
                text.replace('\n', "\r\n"),
                &BODY.replace('\n', "\r\n"),
            )
        },
        OddFile::seen("no final newline", text.trim_end(), BODY),
        OddFile {
            checks: &["body-blank"],
            move_refusal: Some("body must be 1-4000 chars (got 0)"),
            ..OddFile::seen("no body", with_body("").trim_end(), "")
        },
        OddFile {
            checks: &["control"],
            ..OddFile::seen("NUL", with_body(&nul_body), &nul_body)
        },
        OddFile {
            checks: &["utf8"],
            move_refusal: Some("is not valid UTF-8"),
            ..OddFile::seen(
                "not UTF-8",
                [text.as_bytes(), b"\xff\n"].concat(),
                &format!("{BODY}\n\u{fffd}"),
            )
        },
        OddFile {
            checks: &["body-long"],
            move_refusal: Some("body must be 1-4000 chars (got 1048"),
            ..OddFile::seen("10 MB", with_body(&long_body), &long_body)
        },
        OddFile::unseen("BOM", format!("\u{feff}{text}"), "bom"),
        OddFile::unseen("empty file", "", "no-fence"),
        OddFile::unseen("no fence", &text[4..], "no-fence"),
        OddFile::unseen("blank first line", format!("\n{text}"), "no-fence"),
        OddFile::unseen("list", "---\n- id\n---\n", "yaml"),
        OddFile::unseen("key twice", with_line("kind:", "kind: x\nkind:"), "yaml"),
        OddFile::unseen("no id", with_line("id: 01", "other: 01"), "id"),
        OddFile::unseen("short id", with_line("id: 01", "id: 1"), "id"),
        OddFile::unseen("kind", with_line("user", "User"), "kind"),
        OddFile::unseen("scope", with_line("global", "all"), "scope"),
        OddFile::unseen("number as summary", with_line("odd", "12"), "summary"),
        OddFile::unseen("empty summary", with_line("odd", "\"\""), "summary"),
        OddFile::unseen("no time", with_line("17000", "soon 17000"), "created"),
    ]
}
