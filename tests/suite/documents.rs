//! Consistency of the documents with the program: the commands and files of the README,
//! the reference pages, the tests that decisions name, and the links between pages.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use memory_shepherd::archive::search::Query;
use memory_shepherd::config::{SectionKind, keys};

use crate::fixture::PROGRAM_PATH;

fn project_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub fn read_page(name: &str) -> String {
    let path = project_root().join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the text between two marks of a page.
pub fn marked_section<'p>(page: &'p str, name: &str) -> &'p str {
    let (_, rest) = page.split_once(&format!("<!-- {name} -->\n")).unwrap();
    rest.split_once(&format!("<!-- /{name} -->")).unwrap().0
}

/// Returns the code blocks of a text, without their fences.
pub fn code_blocks<'t>(text: &'t str, language: &str) -> Vec<&'t str> {
    let fence = format!("```{language}\n");
    let blocks = text.split(&fence).skip(1);
    blocks
        .map(|block| block.split("```").next().unwrap())
        .collect()
}

/// Returns the cells of each row of a page's tables.
fn table_rows(page: &str) -> Vec<Vec<&str>> {
    let rows = page.lines().filter_map(|line| line.strip_prefix('|'));
    rows.map(|row| {
        row.trim_end_matches('|')
            .split('|')
            .map(str::trim)
            .collect()
    })
    .collect()
}

/// Returns the words of a text between backticks.
fn backtick_words(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns the text of a section, from its heading to the next one of its level.
fn section<'p>(page: &'p str, heading: &str) -> &'p str {
    let (_, rest) = page.split_once(&format!("\n## {heading}\n")).unwrap();
    rest.split("\n## ").next().unwrap()
}

fn help(command: &[&str]) -> String {
    let output = Command::new(PROGRAM_PATH)
        .args(command)
        .arg("--help")
        .output();
    String::from_utf8(output.unwrap().stdout).unwrap()
}

#[test]
fn readme_has_fewer_than_200_lines() {
    assert!(read_page("README.md").lines().count() < 200);
}

#[test]
fn readme_first_fleet_works_as_pasted() {
    let readme = read_page("README.md");
    let script = code_blocks(marked_section(&readme, "first fleet"), "sh").concat();
    let home = tempfile::tempdir().unwrap();
    let programs = Path::new(PROGRAM_PATH).parent().unwrap().display();
    let path = std::env::var("PATH").unwrap();
    let ran = Command::new("sh")
        .args(["-euc", &script])
        .current_dir(project_root())
        .env_clear()
        .env("HOME", home.path())
        .env("PATH", format!("{programs}:{path}"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr),
    );
    assert!(ran.status.success(), "{out}{err}");
    let memory = fs::read_to_string(home.path().join("agents/my-agent/MEMORY.md")).unwrap();
    assert!(memory.ends_with("40 minutes\n"), "{memory}");
}

#[test]
fn command_page_lists_every_command_and_option() {
    let page = read_page("docs/command-line.md");
    let listed = |help: &str, part: &str| -> Vec<String> {
        let lines = help.lines().skip_while(|line| *line != part).skip(1);
        let lines = lines.take_while(|line| !line.is_empty());
        let words = lines.filter_map(|line| line.split_whitespace().next());
        words.map(str::to_string).collect()
    };
    let mut commands = vec![Vec::new()];
    for command in listed(&help(&[]), "Commands:") {
        if command == "help" {
            continue;
        }
        let below = listed(&help(&[&command]), "Commands:");
        commands.extend(below.into_iter().map(|it| vec![command.clone(), it]));
        commands.push(vec![command]);
    }
    assert!(commands.len() > 12, "{commands:?}");
    let page_words: BTreeSet<&str> = backtick_words(&page)
        .flat_map(str::split_whitespace)
        .collect();
    for command in &commands {
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        assert!(
            page.contains(&format!("`{}", command.join(" "))),
            "{command:?}"
        );
        let help = help(&command);
        let lines = help.lines().map(str::trim_start);
        for option in lines.filter(|line| line.starts_with('-')) {
            let flags = option
                .split([' ', ','])
                .filter(|word| word.starts_with('-'));
            for flag in flags.filter(|flag| *flag != "-") {
                assert!(page_words.contains(flag), "{command:?} {flag}");
            }
        }
    }
}

#[test]
fn every_query_of_the_archive_page_is_valid() {
    let page = read_page("docs/archives.md");
    let now = chrono::Local::now().fixed_offset();
    let mut count = 0;
    for row in table_rows(section(&page, "Queries")) {
        for query in backtick_words(row[0]) {
            if let Err(error) = Query::parse(query, now) {
                panic!("{query}: {error}");
            }
            count += 1;
        }
    }
    assert!(count > 20, "{count}");
}

#[test]
fn command_page_lists_exit_codes_of_help() {
    let page = read_page("docs/command-line.md");
    let codes = code_blocks(marked_section(&page, "exit codes"), "")[0];
    assert!(help(&[]).contains(codes), "{codes}");
}

#[test]
fn configuration_page_lists_keys_with_defaults() {
    let page = read_page("docs/configuration.md");
    let sections =
        ["`[general]`", "`[lint]`", "`[alerts]`", "An agent"].map(|name| section(&page, name));
    let mut known: BTreeSet<(usize, &str)> = BTreeSet::new();
    for doc in keys() {
        let number = match doc.section {
            SectionKind::General => 0,
            SectionKind::Lint => 1,
            SectionKind::Alerts => 2,
            _ => 3,
        };
        let rows = table_rows(sections[number]);
        let row = rows
            .iter()
            .find(|row| backtick_words(row[0]).any(|it| it == doc.name));
        let row = row.unwrap_or_else(|| panic!("docs/configuration.md lacks `{}`", doc.name));
        known.insert((number, row[0]));
        if doc.is_required {
            assert!(row[1].starts_with("required"), "{row:?}");
        } else if !doc.default.is_empty() {
            assert_eq!(backtick_words(row[1]).next(), Some(doc.default), "{row:?}");
        }
    }
    for (number, text) in sections.into_iter().enumerate() {
        for row in table_rows(text) {
            let is_key = backtick_words(row[0]).next().is_some();
            assert!(!is_key || known.contains(&(number, row[0])), "{row:?}");
        }
    }
}

/// Returns the anchor that a heading has on GitHub.
fn anchor(heading: &str) -> String {
    let kept = heading
        .trim()
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .collect::<String>();
    kept.replace(' ', "-")
}

#[test]
fn decisions_are_short_and_name_tests_that_exist() {
    let directories = ["src", "tests"].map(|name| project_root().join(name));
    let files = directories.iter().flat_map(|it| source_files(it));
    let all: String = files.map(|it| fs::read_to_string(it).unwrap()).collect();
    let pages = markdown_pages().into_iter();
    let decisions = pages.filter(|path| path.parent().unwrap().ends_with("decisions"));
    let mut count = 0;
    for path in decisions {
        let page = fs::read_to_string(&path).unwrap();
        assert!(page.lines().count() <= 80, "{}", path.display());
        let is_test = |name: &&str| {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            name.chars().all(plain) && name.matches('_').count() >= 3
        };
        for name in backtick_words(&page).filter(is_test) {
            count += 1;
            let exists = all.contains(&format!("fn {name}("));
            assert!(exists, "{}: {name}", path.display());
        }
    }
    assert!(count > 10, "no tests found");
}

fn markdown_pages() -> Vec<PathBuf> {
    fn gather(directory: &Path, pages: &mut Vec<PathBuf>) {
        for item in fs::read_dir(directory).unwrap() {
            let path = item.unwrap().path();
            if path.is_dir() {
                gather(&path, pages);
            } else if path.extension().is_some_and(|it| it == "md") {
                pages.push(path);
            }
        }
    }
    let mut pages = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
        .map(|name| project_root().join(name))
        .to_vec();
    gather(&project_root().join("docs"), &mut pages);
    pages
}

/// Returns the paths of all Rust files below a directory.
fn source_files(directory: &Path) -> Vec<PathBuf> {
    let items = fs::read_dir(directory)
        .unwrap()
        .map(|it| it.unwrap().path());
    items
        .flat_map(|path| match path.is_dir() {
            true => source_files(&path),
            false => vec![path],
        })
        .filter(|path| path.extension().is_some_and(|end| end == "rs"))
        .collect()
}

#[test]
fn pages_name_source_files_that_exist() {
    let names = ["src", "tests", "benches", "examples"];
    let directories = names.map(|name| project_root().join(name));
    let files: Vec<PathBuf> = directories.iter().flat_map(|it| source_files(it)).collect();
    let mut missing = Vec::new();
    for page in markdown_pages() {
        let text = fs::read_to_string(&page).unwrap();
        let words = backtick_words(&text).filter(|it| !it.contains([' ', '\n']));
        // A word in capitals is a placeholder.
        for word in words.filter(|it| !it.contains(char::is_uppercase)) {
            let is_path = names.iter().any(|it| word.starts_with(&format!("{it}/")));
            let exists = if is_path {
                project_root().join(word).exists()
            } else {
                !word.ends_with(".rs") || files.iter().any(|it| it.ends_with(word))
            };
            if !exists {
                missing.push(format!("{}: {word}", page.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut broken = Vec::new();
    let mut count = 0;
    for path in markdown_pages() {
        let text = fs::read_to_string(&path).unwrap();
        let links = text
            .split("](")
            .skip(1)
            .filter_map(|it| it.split(')').next());
        let pictures = ["src=\"", "srcset=\""].into_iter().flat_map(|name| {
            let all = text.split(name).skip(1);
            all.filter_map(|it| it.split('"').next())
        });
        for link in links.chain(pictures).filter(|it| !it.contains("://")) {
            count += 1;
            let (name, wanted) = link.split_once('#').unwrap_or((link, ""));
            let target = match name {
                "" => path.clone(),
                name => path.parent().unwrap().join(name),
            };
            let has_anchor = || {
                let text = fs::read_to_string(&target).unwrap_or_default();
                let headings = text.lines().filter(|line| line.starts_with('#'));
                headings
                    .map(|line| anchor(line.trim_start_matches('#')))
                    .any(|it| it == wanted)
            };
            if !target.exists() || (!wanted.is_empty() && !has_anchor()) {
                broken.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(count > 40, "no links found");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
