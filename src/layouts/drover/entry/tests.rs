use super::*;

const ID: &str = "01HF7YAT00AAAAAAAAAAAAAAAA";

fn global() -> Place {
    Place {
        scope: Scope::Global,
        segment: String::new(),
    }
}

fn agent(name: &str) -> Place {
    Place {
        scope: Scope::Agent,
        segment: name.to_string(),
    }
}

fn parse(text: &str) -> Result<Entry, LoadFault> {
    parse_entry(text.as_bytes(), &global())
}

/// A file with these lines in its mapping beside those that are needed.
fn file_with(lines: &str) -> String {
    format!(
        "---\nid: {ID}\nscope: global\nkind: user\nsummary: s\ncreatedAt: 5\n{lines}---\n\nbody\n"
    )
}

#[test]
fn entry_is_written_as_it_was_read() {
    let text = file_with("agentId: w\ntags:\n  - style\n  - \"1\"\nupdatedAt: 7\n");
    let entry = parse(&text).unwrap();
    assert_eq!(entry.tags, ["style", "1"]);
    assert_eq!((entry.created_ms, entry.updated_ms), (5, Some(7)));
    assert_eq!(format_entry(&entry), text);
}

#[test]
fn unknown_keys_are_kept_behind_the_known_ones() {
    let text = file_with("extra: # why\n  a: [1, 2]\nupdatedAt: 7\n");
    let entry = parse(&text).unwrap();
    assert_eq!(entry.unknown_lines, "extra: # why\n  a: [1, 2]\n");
    let expected = file_with("updatedAt: 7\nextra: # why\n  a: [1, 2]\n");
    assert_eq!(format_entry(&entry), expected);
}

#[test]
fn files_that_agents_do_not_see_have_a_reason() {
    let whole = file_with("");
    let cases = [
        (format!("\u{feff}{whole}"), LoadFault::Bom),
        (whole.replacen("---\n", "", 1), LoadFault::NoFence),
        (format!(" {whole}"), LoadFault::NoFence),
        (String::new(), LoadFault::NoFence),
        (
            whole.replace("kind: user", "kind: user\nkind: user"),
            LoadFault::Yaml,
        ),
        (whole.replace("kind: user", "kind: [user"), LoadFault::Yaml),
        (whole.replace(ID, &ID.to_lowercase()), LoadFault::Id),
        (whole.replace(ID, &"1".repeat(26)), LoadFault::Id),
        (whole.replace("user", "other"), LoadFault::Kind),
        (
            whole.replace("scope: global", "scope: all"),
            LoadFault::Scope,
        ),
        (
            whole.replace("summary: s", "summary: 5"),
            LoadFault::Summary,
        ),
        (
            whole.replace("summary: s", "summary: \"\""),
            LoadFault::Summary,
        ),
        (
            whole.replace("createdAt: 5", "createdAt: soon"),
            LoadFault::Created,
        ),
        (whole.replace("createdAt: 5\n", ""), LoadFault::Created),
    ];
    for (text, fault) in cases {
        assert_eq!(parse(&text).unwrap_err(), fault, "{text}");
    }
}

#[test]
fn reading_is_as_lenient_as_agents_are() {
    assert_eq!(
        parse(&file_with("").replace('\n', "\r\n")).unwrap().body,
        "body"
    );
    assert_eq!(
        parse(&file_with("").replace("---\nid", "---  \n\nid"))
            .unwrap()
            .id,
        ID
    );
    let of_year = file_with("").replace("createdAt: 5", "createdAt: \"2026-01-02\"");
    assert_eq!(parse(&of_year).unwrap().created_ms, 2026);
    assert_eq!(
        parse(&file_with("updatedAt: soon\n")).unwrap().updated_ms,
        None
    );
    assert!(parse(&file_with("tags: [a, 1]\n")).unwrap().tags.is_empty());
    assert!(parse(&file_with("tags: a\n")).unwrap().tags.is_empty());
    let invalid = [file_with("").as_bytes(), b"\xff"].concat();
    assert_eq!(
        parse_entry(&invalid, &global()).unwrap().body,
        "body\n\u{fffd}"
    );
}

#[test]
fn directory_says_what_the_file_does_not() {
    let text = file_with("agentId: \"../x\"\n").replace("scope: global\n", "");
    let entry = parse_entry(text.as_bytes(), &agent("w")).unwrap();
    assert_eq!(
        (entry.scope, entry.agent_id.as_deref()),
        (Scope::Agent, Some("w"))
    );
    let text = file_with("agentId: other\n");
    let entry = parse_entry(text.as_bytes(), &agent("w")).unwrap();
    assert_eq!(
        (entry.scope, entry.agent_id.as_deref()),
        (Scope::Global, Some("other"))
    );
}
