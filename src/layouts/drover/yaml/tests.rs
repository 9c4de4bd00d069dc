use super::*;

/// Strings and what `yaml` 2.8 writes for them as the value of a key and as an item of a list.
const WRITTEN: [(&str, &str); 22] = [
    ("yes", "yes"),
    ("12:30", "12:30"),
    ("1_000", "1_000"),
    ("2026-01-01", "2026-01-01"),
    ("it's", "it's"),
    ("---", "---"),
    ("a, b", "a, b"),
    ("tab\there", "tab\there"),
    ("back\\slash", "back\\slash"),
    ("true", "\"true\""),
    ("1", "\"1\""),
    ("1e3", "\"1e3\""),
    (".5", "\".5\""),
    ("~", "\"~\""),
    ("", "\"\""),
    (" lead", "\" lead\""),
    ("- a", "\"- a\""),
    ("a #b", "\"a #b\""),
    ("a: b", "\"a: b\""),
    ("\"q\": x", "'\"q\": x'"),
    ("a: \"x\" and 'y'", "\"a: \\\"x\\\" and 'y'\""),
    ("\u{7}: bell", "\"\\a: bell\""),
];

#[test]
fn strings_are_written_as_yaml_2_does() {
    for (text, expected) in WRITTEN {
        assert_eq!(write_text(text, 2, Some(9)), expected, "{text:?}");
    }
}

#[test]
fn long_strings_are_folded_at_80_columns() {
    let words = "this is a long summary of many words that goes over the width of eighty columns \
                 for certain, and then some more words follow";
    let plain = "this is a long summary of many words that goes over the width of eighty\n  \
                 columns for certain, and then some more words follow";
    assert_eq!(write_text(words, 2, Some(9)), plain);
    let quoted = "\"a: this is a long summary of many words that goes over the width of\n  \
                  eighty columns for certain, and then some more words follow\"";
    assert_eq!(write_text(&format!("a: {words}"), 2, Some(9)), quoted);
    let long = "x".repeat(120);
    assert_eq!(write_text(&long, 2, Some(9)), long);
    let broken = format!("\"a:\n  {}\\\n  {}\"", "x".repeat(77), "x".repeat(43));
    assert_eq!(write_text(&format!("a: {long}"), 2, Some(9)), broken);
}

fn values(text: &str) -> Vec<Value> {
    let pairs = parse_mapping(text).unwrap();
    pairs.into_iter().map(|pair| pair.value).collect()
}

#[test]
fn scalars_are_resolved_by_the_core_schema() {
    let text =
        "a: yes\nb: true\nc: 0x1f\nd: ~\ne: \"1\"\nf: 1e3\ng: !!str 5\nh: -.inf\ni:\nj: 0o17\n";
    let expected = [
        Value::Text("yes".into()),
        Value::Bool,
        Value::Number(31.0),
        Value::Null,
        Value::Text("1".into()),
        Value::Number(1000.0),
        Value::Text("5".into()),
        Value::Number(f64::NEG_INFINITY),
        Value::Null,
        Value::Number(15.0),
    ];
    assert_eq!(values(text), expected);
}

#[test]
fn what_is_not_one_mapping_is_refused() {
    let deep = format!("a: {}", "[".repeat(1000));
    for wrong in [
        "",
        "- a\n",
        "a",
        "a: 1\na: 2\n",
        "a: {b: 1, b: 2}\n",
        "a: [",
        "a: b: c\n",
        &deep,
    ] {
        assert!(parse_mapping(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn aliases_have_the_value_of_their_anchor() {
    let text = "a: &x [one, two]\nb: *x\nc: &y text\nd: *y\n";
    let list = Value::List(vec![Value::Text("one".into()), Value::Text("two".into())]);
    let one = Value::Text("text".into());
    assert_eq!(values(text), [list.clone(), list, one.clone(), one]);
    // Lists of lists are not copied: each level would double them.
    let bomb = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: *c\n";
    let copied = Value::List(vec![Value::Mapping, Value::Mapping]);
    assert_eq!(values(bomb)[3], copied);
}

#[test]
fn source_of_a_pair_is_its_lines() {
    let text = "id: x # why\nmore:\n  - a\n  # note\n  - b\nlast: {k: 1}\n";
    let pairs = parse_mapping(text).unwrap();
    let sources: Vec<&str> = pairs.iter().map(|pair| pair.source.as_str()).collect();
    assert_eq!(
        sources,
        [
            "id: x # why",
            "more:\n  - a\n  # note\n  - b",
            "last: {k: 1}"
        ]
    );
    let pairs = parse_mapping("{id: x, more: [é, b], last: 1}\n").unwrap();
    let sources: Vec<&str> = pairs.iter().map(|pair| pair.source.as_str()).collect();
    assert_eq!(sources, ["id: x", "more: [é, b]", "last: 1"]);
}
