//! Entries of the layout `drover`, and files that its agents do not write.

/// A body of the shape that agents are asked for.
pub const BODY: &str = "the rule\n\n**Why:** a reason\n\n**How to apply:** always";

/// The id in the name of the odd file.
pub const ODD_ID: &str = "01HF7YAT00FFFFFFFFFFFFFFFF";

/// The lines of the odd entry.
pub const ODD_LINES: &str = "scope: global\nkind: user\nsummary: odd\n";

/// Writes the text of an entry, whose mapping has these lines beside id and time.
pub fn entry_text(id: &str, lines: &str) -> String {
    format!("---\nid: {id}\n{lines}createdAt: 1700000000000\n---\n\n{BODY}\n")
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
}

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
