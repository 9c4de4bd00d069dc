//! Baselines whose separator is easily misread: front matter, code fences, headings that are
//! underlined, comments, lists, tables, line ends.

/// A baseline with the rule `- RULE` above its separator, where it has one.
pub struct OddBaseline {
    pub name: &'static str,
    pub text: &'static str,
    /// The line of its separator `---`, from 1.
    pub separator_line: Option<usize>,
}

const fn odd(name: &'static str, text: &'static str, separator_line: Option<usize>) -> OddBaseline {
    OddBaseline {
        name,
        text,
        separator_line,
    }
}

/// All of them.
pub const ODD_BASELINES: [OddBaseline; 44] = [
    odd("no separator", "# Role\n\n- RULE\n- more\n", None),
    odd("no line end", "# Role\n\n- RULE", None),
    odd(
        "front matter alone",
        "---\nname: a\n---\n\n# Role\n\n- RULE\n",
        None,
    ),
    odd(
        "front matter, dots",
        "---\nname: a\n...\n\n# Role\n\n- RULE\n",
        None,
    ),
    odd(
        "front matter, spaces",
        "---  \nname: a\n--- \n# Role\n\n- RULE\n",
        None,
    ),
    odd(
        "front matter, CR LF",
        "---\r\nname: a\r\n---\r\n\r\n# Role\r\n\r\n- RULE\r\n",
        None,
    ),
    odd(
        "front matter, list",
        "---\nname: a\ntools:\n- b\n---\n# Role\n\n- RULE\n",
        None,
    ),
    odd(
        "front matter, comment",
        "---\n# a comment\nname: a\n---\n\n- RULE\n",
        None,
    ),
    odd(
        "front matter, BOM",
        "\u{FEFF}---\nname: a\n---\n\n# Role\n\n- RULE\n",
        None,
    ),
    odd(
        "front matter below a blank line",
        "\n---\nname: a\n---\n\n- RULE\n",
        None,
    ),
    odd(
        "front matter, open",
        "---\nname: a\n\n# Role\n\n- RULE\n",
        None,
    ),
    odd(
        "front matter, then separator",
        "---\nname: a\n---\n\n- RULE\n\n---\n",
        Some(7),
    ),
    odd(
        "front matter, then tail",
        "---\nname: a\n---\n- RULE\n\n---\n\n## Notes\n",
        Some(6),
    ),
    odd("separator in front", "---\n\n# Role\n\n- RULE\n", None),
    odd(
        "separators in front",
        "---\n---\n\n# Role\n\n- RULE\n",
        None,
    ),
    odd(
        "separators in front and below",
        "---\n\n- RULE\n\n---\n",
        Some(5),
    ),
    odd("fence", "# Role\n\n```\n---\n```\n\n- RULE\n", None),
    odd(
        "fence of tildes",
        "# Role\n\n~~~ yaml\n---\n~~~\n\n- RULE\n",
        None,
    ),
    odd(
        "fence, longer",
        "# Role\n\n````\n```\n---\n````\n\n- RULE\n",
        None,
    ),
    odd("fence, open", "# Role\n\n- RULE\n\n```\n\n---\n", None),
    odd("fence in a list", "# Role\n\n- RULE\n  ```\n---\n", Some(5)),
    odd(
        "fence, then separator",
        "```\n---\n```\n- RULE\n\n---\n",
        Some(6),
    ),
    odd(
        "separator, then fence",
        "- RULE\n\n---\n\n```\n---\n```\n",
        Some(3),
    ),
    odd("setext heading", "Role\n---\n\n- RULE\n", None),
    odd(
        "setext heading of two lines",
        "My\nrole\n---\n\n- RULE\n",
        None,
    ),
    odd(
        "setext heading at the end",
        "# Role\n\n- RULE\n\nNotes\n---\n",
        None,
    ),
    odd(
        "setext heading, then separator",
        "Role\n---\n\n- RULE\n\n---\n",
        Some(6),
    ),
    odd(
        "separator, then setext heading",
        "- RULE\n\n---\n\nNotes\n---\n",
        Some(3),
    ),
    odd("comment", "# Role\n\n<!--\n---\n-->\n\n- RULE\n", None),
    odd(
        "comment, open",
        "# Role\n\n- RULE\n\n<!-- notes\n\n---\n",
        None,
    ),
    odd(
        "comment, then separator",
        "<!--\n---\n-->\n\n- RULE\n\n---\n",
        Some(7),
    ),
    odd(
        "separator, then comment",
        "- RULE\n\n---\n\n<!--\n---\n-->\n",
        Some(3),
    ),
    odd(
        "comment of one line above",
        "- RULE\n\n<!-- notes below -->\n---\n",
        Some(4),
    ),
    odd("below a list", "# Role\n\n- RULE\n---\n", Some(4)),
    odd(
        "below a nested list",
        "# Role\n\n- RULE\n  - more\n    text\n---\n",
        Some(6),
    ),
    odd("in a list item", "# Role\n\n- RULE\n\n  ---\n", None),
    odd("below a quotation", "- RULE\n\n> quoted\n---\n", Some(4)),
    odd(
        "below a table",
        "- RULE\n\n| a | b |\n|---|---|\n| 1 | 2 |\n---\n",
        Some(6),
    ),
    odd("below HTML", "- RULE\n\n<div>\n</div>\n---\n", Some(5)),
    odd("CR LF", "# Role\r\n\r\n- RULE\r\n\r\n---\r\n", Some(5)),
    odd(
        "mixed line ends",
        "# Role\r\n\n- RULE\n\r\n---\n\r\n## Notes\r\n",
        Some(5),
    ),
    odd("BOM", "\u{FEFF}# Role\n\n- RULE\n\n---\n", Some(5)),
    odd("several", "# A\n\n---\n\n- RULE\n\n---\n\n---\n", Some(9)),
    odd(
        "no line end below the separator",
        "# Role\n\n- RULE\n\n---",
        Some(5),
    ),
];
