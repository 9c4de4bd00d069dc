//! Dependency rules of the crate, checked against its sources: which module may name
//! which module or crate, read the environment and the clock, or write escape codes.

use std::fs;
use std::path::{Path, PathBuf};

/// The modules of the crate: each uses those before it.
const MODULES: &[&str] = &[
    "base",
    "boundary",
    "lint",
    "archive",
    "config",
    "transport",
    "layouts",
    "store",
    "baseline",
    "engine",
    "unattended",
    "console",
    "demo",
    "cli",
];

/// The services of the engine: each uses those before it.
const ENGINE_SERVICES: &[&str] = &["baselines", "watch", "runs", "layouts", "records"];

/// The parts of the console that use files, threads, processes or the clock; all others only compute.
const IMPURE_CONSOLE_MODULES: &[&str] = &["shell", "preferences", "theme"];

/// A source file, without the parts to which the rules do not apply.
pub struct Source {
    /// Text without comments, strings and tests.
    pub code: String,
    /// Text without comments and tests.
    text: String,
}

/// Replaces comments with blanks, and strings unless `strings` is set; keeps line
/// feeds.
fn blank_out_comments(source: &str, strings: bool) -> String {
    let mut out = String::new();
    let mut rest = source;
    while let Some(c) = rest.chars().next() {
        let length = token_length(rest);
        let token = &rest[..length];
        rest = &rest[length..];
        let drop = match c {
            '/' => length > 1,
            _ => length > c.len_utf8() && !strings,
        };
        match drop {
            true => out.extend(token.chars().map(|c| if c == '\n' { '\n' } else { ' ' })),
            false => out.push_str(token),
        }
    }
    out
}

/// Returns the length in bytes of the comment, string or character at the beginning,
/// otherwise of one character.
fn token_length(rest: &str) -> usize {
    let one = rest.chars().next().map_or(0, char::len_utf8);
    let until = |from: usize, end: &str| {
        rest[from..]
            .find(end)
            .map_or(rest.len(), |at| from + at + end.len())
    };
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return until(2, "*/");
    }
    if rest.starts_with('"') {
        let mut escaped = false;
        for (at, c) in rest.char_indices().skip(1) {
            match c {
                '"' if !escaped => return at + 1,
                '\\' => escaped = !escaped,
                _ => escaped = false,
            }
        }
        return rest.len();
    }
    if let Some(raw) = rest.strip_prefix("r#") {
        let hashes = 1 + raw.len() - raw.trim_start_matches('#').len();
        if rest[1 + hashes..].starts_with('"') {
            return until(2 + hashes, &format!("\"{}", "#".repeat(hashes)));
        }
    }
    if rest.starts_with("r\"") {
        return until(2, "\"");
    }
    if let Some(inner) = rest.strip_prefix('\'') {
        // A lifetime has no quote after its first character.
        let mut chars = inner.char_indices();
        let first = chars.next().map(|(_, c)| c);
        if first == Some('\\') {
            return inner[2..].find('\'').map_or(one, |at| at + 4);
        }
        if let Some((at, '\'')) = chars.next() {
            return at + 2;
        }
    }
    one
}

impl Source {
    pub fn new(source: &str) -> Source {
        let end = source.find("#[cfg(test)]\nmod tests {");
        let source = &source[..end.unwrap_or(source.len())];
        Source {
            code: blank_out_comments(source, false),
            text: blank_out_comments(source, true),
        }
    }
}

/// Returns the lines that contain `word` as a whole word or path.
fn lines_with(text: &str, word: &str) -> Vec<usize> {
    let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let whole = |line: &str| {
        line.match_indices(word).any(|(at, _)| {
            !part(line[..at].chars().next_back()) && !part(line[at + word.len()..].chars().next())
        })
    };
    let numbered = text.lines().enumerate();
    numbered
        .filter(|(_, line)| whole(line))
        .map(|(number, _)| number + 1)
        .collect()
}

/// Words that code must not name outside of its exempt files.
struct WordRule {
    words: &'static [&'static str],
    /// Says whether the file at a path, relative to `src`, may name them.
    is_exempt: fn(&str) -> bool,
    why: &'static str,
}

const WORD_RULES: &[WordRule] = &[
    WordRule {
        words: &["console", "cli", "ratatui", "crossterm", "clap"],
        is_exempt: |path| {
            let module = path.split(['/', '.']).next().unwrap_or_default();
            !MODULES.contains(&module) || matches!(module, "console" | "demo" | "cli")
        },
        why: "is above this module",
    },
    WordRule {
        words: &["crossterm"],
        is_exempt: |path| {
            matches!(
                path,
                "console/shell/event_loop.rs"
                    | "console/shell/input.rs"
                    | "console/shell/input/split_escape.rs"
                    | "console/shell/terminal.rs"
            )
        },
        why: "only console/shell/event_loop.rs, console/shell/input and console/shell/terminal.rs",
    },
    WordRule {
        words: &["russh", "russh_sftp", "tokio"],
        is_exempt: |path| path.starts_with("demo/host"),
        why: "only the demo's host",
    },
    WordRule {
        words: &["tui_textarea"],
        is_exempt: |path| path == "console/screens/editor/buffer.rs",
        why: "only the editor's buffer",
    },
    WordRule {
        words: &["ratatui"],
        is_exempt: can_draw,
        why: "only canvas, widgets, terminal, theme and views of the console",
    },
    WordRule {
        words: &[
            "std::fs",
            "std::io",
            "std::thread",
            "std::process",
            "std::net",
        ],
        is_exempt: |path| !is_pure_console_file(path),
        why: "this file only computes",
    },
    WordRule {
        words: &[
            "std::env",
            "env::var",
            "env::var_os",
            "process::exit",
            "process::abort",
        ],
        // The programs that it starts get the environment as it is.
        is_exempt: |path| path == "main.rs" || path == "base/child_process.rs",
        why: "only main.rs",
    },
    WordRule {
        words: &["Instant::now", "SystemTime::now", "Local::now", "Utc::now"],
        is_exempt: |path| path == "base/clock.rs",
        why: "only base/clock.rs reads the clock",
    },
    WordRule {
        words: &["with_timezone"],
        // What plans resets needs the rules of the zone, not only the offset of one instant.
        is_exempt: |path| {
            path.starts_with("unattended/schedule/")
                || path.starts_with("cli/schedule")
                || matches!(
                    path,
                    "cli/doctor/schedule.rs"
                        | "cli/doctor/units.rs"
                        | "console/shell/effect/schedule.rs"
                )
        },
        why: "moment::Zone knows the offset of each instant",
    },
    WordRule {
        words: &["offset()"],
        // Positions in files.
        is_exempt: |path| path == "base/clock.rs" || path.starts_with("store/file/ledger/"),
        why: "moment::Zone knows the offset of each instant",
    },
    WordRule {
        words: &["unsafe"],
        is_exempt: |path| path == "base/sys.rs",
        why: "only base/sys.rs",
    },
    WordRule {
        words: &[
            "fs::create_dir",
            "fs::create_dir_all",
            "fs::write",
            "fs::copy",
            "File::create",
            "File::create_new",
        ],
        is_exempt: |_| false,
        why: "the umask alone decides the mode; give one",
    },
    WordRule {
        words: &["tempfile::", "env::temp_dir"],
        // Probes are in the archive.
        is_exempt: |path| matches!(path, "base/temporary.rs" | "engine/probe.rs" | "main.rs"),
        why: "another user may own the directory; use temporary::TemporaryRoot",
    },
    WordRule {
        words: &["mod utils"],
        is_exempt: |_| false,
        why: "say what it is for",
    },
];

fn can_draw(path: &str) -> bool {
    let is_screen_view = path
        .strip_prefix("console/screens/")
        .is_some_and(|screen| screen.split(['/', '.']).nth(1) == Some("view"));
    is_screen_view
        || path.starts_with("console/widgets")
        || path.starts_with("console/shell/terminal")
        || path.starts_with("console/view")
        || path.starts_with("console/theme")
}

fn is_pure_console_file(path: &str) -> bool {
    let name = path.strip_prefix("console/").unwrap_or_default();
    let module = name.split(['/', '.']).next().unwrap_or_default();
    !module.is_empty() && !IMPURE_CONSOLE_MODULES.contains(&module)
}

fn may_write_escape_codes(path: &str) -> bool {
    // `untrusted` names these characters in order to show them, the lint in order to find them, and
    // `split_escape` reads them.
    path.starts_with("console/shell/terminal")
        || matches!(
            path,
            "cli/output.rs"
                | "cli/output/printer.rs"
                | "console/shell/input/split_escape.rs"
                | "lint/characters.rs"
                | "base/untrusted.rs"
        )
}

/// Returns the services that a file of the engine must not name: all of them, for a file outside of
/// their directories.
fn services_above(path: &str) -> &'static [&'static str] {
    let name = path.strip_prefix("engine/");
    name.map_or(&[], |name| names_after(ENGINE_SERVICES, name))
}

/// Returns the modules that a file must not name; none for `main.rs` and `lib.rs`.
fn modules_above(path: &str) -> &'static [&'static str] {
    match path {
        "main.rs" | "lib.rs" => &[],
        path => names_after(MODULES, path),
    }
}

/// Returns what follows the first part of a path in a list; the whole list if that lacks it.
fn names_after(list: &'static [&'static str], path: &str) -> &'static [&'static str] {
    let own = path.split(['/', '.']).next();
    let own = list.iter().position(|name| Some(*name) == own);
    &list[own.map_or(0, |own| own + 1)..]
}

/// Returns the rules that a file breaks. `path` is relative to `src`.
fn find_breaches(path: &str, source: &str) -> Vec<String> {
    let mut found = Vec::new();
    if path.ends_with("tests.rs") || path.contains("/tests/") {
        return found;
    }
    let source = Source::new(source);
    for rule in WORD_RULES.iter().filter(|rule| !(rule.is_exempt)(path)) {
        for word in rule.words {
            for line in lines_with(&source.code, word) {
                found.push(format!("src/{path}:{line}: {word}: {}", rule.why));
            }
        }
    }
    let modules = modules_above(path).iter().map(|it| format!("crate::{it}"));
    let services = services_above(path).iter();
    for above in modules.chain(services.map(|it| format!("engine::{it}"))) {
        for line in lines_with(&source.code, &above) {
            found.push(format!("src/{path}:{line}: {above}: is above this file"));
        }
    }
    if path
        .split('/')
        .any(|part| part.trim_end_matches(".rs") == "utils")
    {
        found.push(format!("src/{path}: say what it is for"));
    }
    if !may_write_escape_codes(path) {
        let lower = source.text.to_lowercase();
        for escape in ["\\x1b", "\\u{1b}", "\\033", "0x1b", "\u{1b}"] {
            if let Some(at) = lower.find(escape) {
                let line = lower[..at].lines().count().max(1);
                let why = "only console/shell/terminal and cli/output write escape codes";
                found.push(format!("src/{path}:{line}: {why}"));
            }
        }
    }
    found
}

pub fn read_sources() -> Vec<(String, String)> {
    fn collect_files(directory: &Path, files: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect_files(&path, files);
            } else if path.extension().is_some_and(|end| end == "rs") {
                files.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    collect_files(&root, &mut files);
    files.sort();
    let named = files.into_iter().map(|file| {
        let name = file.strip_prefix(&root).unwrap().display().to_string();
        (name, fs::read_to_string(&file).unwrap())
    });
    named.collect()
}

#[test]
fn sources_obey_dependency_rules() {
    let sources = read_sources();
    assert!(sources.len() > 30, "no sources found");
    let found: Vec<String> = sources
        .iter()
        .flat_map(|(path, source)| find_breaches(path, source))
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Returns the concatenated sources of `tests`.
fn collect_test_sources(directory: &Path, all: &mut String) {
    for item in fs::read_dir(directory).unwrap() {
        let path = item.unwrap().path();
        if path.is_dir() {
            collect_test_sources(&path, all);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

/// Returns the tests that the tables of a page name in their last column.
fn proof_test_names(page: &str) -> Vec<&str> {
    let rows = page.lines().filter(|line| line.starts_with('|'));
    let proofs = rows.filter_map(|row| row.trim_end_matches('|').rsplit('|').next());
    let named = proofs.flat_map(|proof| proof.split('`').skip(1).step_by(2));
    let is_test = |name: &&str| name.contains('_') && !name.contains(['/', '.', '-', ' ']);
    named.filter(is_test).collect()
}

#[test]
fn promised_proofs_name_existing_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = String::new();
    collect_test_sources(&root.join("tests"), &mut all);
    collect_test_sources(&root.join("src"), &mut all);
    let read = |name: &str| fs::read_to_string(root.join(name)).unwrap();
    let pages = [("docs/promises.md", 50), ("docs/security.md", 40)];
    for (page, least) in pages {
        let page = read(page);
        let proofs = proof_test_names(&page);
        assert!(proofs.len() >= least, "{proofs:?}");
        for name in proofs {
            let defined = all.contains(&format!("fn {name}("));
            assert!(defined, "no test with the name {name}");
        }
    }
}

/// Sources that break a rule, by the path of their file.
const BREACHES: &[(&str, &str)] = &[
    ("engine/plan.rs", "use crate::console::model;"),
    ("transport/local.rs", "use crate::engine::Engine;"),
    ("lint.rs", "use crate::baseline::Baseline;"),
    ("console/update.rs", "use crate::demo::Demo;"),
    ("engine.rs", "use crate::cli::output;"),
    (
        "store/file/lock.rs",
        "use crate::engine::watch::classified_content::state_of;",
    ),
    ("engine/watch.rs", "use crate::engine::runs::Planner;"),
    ("engine/context.rs", "use crate::engine::runs::Planner;"),
    ("transport/local.rs", "fn f() { ratatui::init(); }"),
    ("base/diff.rs", "use clap::Parser;"),
    ("config/read.rs", "crossterm::x();"),
    ("base/untrusted.rs", "use crate::console;"),
    ("console/shell/effect.rs", "use crossterm::event;"),
    ("console/screens/fleet/view.rs", "use crossterm::style;"),
    ("console/model.rs", "use ratatui::layout::Rect;"),
    ("cli/output.rs", "use ratatui::style::Color;"),
    ("console/update.rs", "use std::fs;"),
    ("console/text.rs", "use std::io::Write;"),
    ("console/screens/log/state.rs", "use std::process::Command;"),
    ("console/screens/log/update.rs", "use std::thread;"),
    ("console/screens/log/state.rs", "use ratatui::style::Style;"),
    (
        "console/screens/log/update.rs",
        "use ratatui::layout::Rect;",
    ),
    ("console/chooser.rs", "std::thread::spawn(f);"),
    ("console/filter.rs", "let now = std::time::Instant::now();"),
    ("console/update.rs", "let now = SystemTime::now();"),
    ("cli/run.rs", "let home = std::env::var(\"HOME\");"),
    ("demo.rs", "use std::env;"),
    ("transport/sftp.rs", "use russh_sftp::client;"),
    ("demo.rs", "tokio::spawn(f);"),
    ("engine/log.rs", "let now = chrono::Local::now();"),
    ("console/shell/effect.rs", "let now = Utc::now();"),
    ("cli/log.rs", "time.with_timezone(&zone)"),
    ("console/age.rs", "let offset = now.offset();"),
    ("cli.rs", "std::process::exit(1);"),
    ("lib.rs", "mod utils;"),
    ("engine/utils.rs", ""),
    ("base/durable.rs", "unsafe { f() }"),
    ("demo.rs", "fs::write(path, text)?;"),
    (
        "unattended/schedule/install.rs",
        "std::fs::create_dir_all(path)?;",
    ),
    ("console/view.rs", "let code = \"\\x1b[0m\";"),
    ("cli/run.rs", "let code = b'\\u{1B}';"),
    ("demo/people.rs", "let code = r#\"\u{1b}[0m\"#;"),
];

/// Sources that break no rule although they resemble a breach.
const NEAR_BREACHES: &[(&str, &str)] = &[
    (
        "engine.rs",
        "/// Console and command line.\n// use crate::console;",
    ),
    (
        "engine.rs",
        "enum Trigger { Console, Cli }\nlet clinic = \"from the cli\";",
    ),
    (
        "engine.rs",
        "/* cli */ let c = '\"'; let l: &'static str = \"cli\";",
    ),
    (
        "engine/runs/plan.rs",
        "use crate::engine::store::record::Operation;",
    ),
    ("base/error.rs", "let hint = r#\"open the \"console\"\"#;"),
    ("main.rs", "use std::env;"),
    ("base/clock.rs", "Instant::now()"),
    ("base/sys.rs", "unsafe { f() }"),
    ("archive.rs", "NewFile::create(directory, path, mode)?;"),
    ("demo/host/files.rs", "use russh_sftp::server::Handler;"),
    (
        "console/shell/terminal.rs",
        "use crossterm::queue; use ratatui::Terminal; \"\\x1b[0m\"",
    ),
    (
        "console/shell/terminal/painter.rs",
        "use ratatui::buffer::Buffer; \"\\x1b[K\"",
    ),
    (
        "console/screens/log/view.rs",
        "use ratatui::buffer::Buffer;",
    ),
    (
        "console/widgets/text_pane.rs",
        "use ratatui::buffer::Buffer;",
    ),
    (
        "diff.rs",
        "fn f() {}\n#[cfg(test)]\nmod tests {\n    Instant::now();\n}",
    ),
    ("config/tests.rs", "std::env::var(\"HOME\")"),
    ("console/text.rs", "deadline: Option<std::time::Instant>"),
];

#[test]
fn dependency_rule_breaches_are_detected() {
    for (path, source) in BREACHES {
        assert!(
            !find_breaches(path, source).is_empty(),
            "{path}: {source:.60}"
        );
    }
}

#[test]
fn code_that_resembles_a_breach_is_accepted() {
    for (path, source) in NEAR_BREACHES {
        assert_eq!(find_breaches(path, source), Vec::<String>::new(), "{path}");
    }
}

/// `skip.rs` writes past the capture of output, and `REQUIRE_TOOLS` turns a skip into a
/// failure.
#[test]
fn tests_are_skipped_through_one_module() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = String::new();
    collect_test_sources(&root.join("tests"), &mut all);
    collect_test_sources(&root.join("src"), &mut all);
    let printed: Vec<&str> = all
        .lines()
        .filter(|line| line.contains(concat!("println!(\"", "skipped")))
        .collect();
    assert!(printed.is_empty(), "{printed:#?}");
}
