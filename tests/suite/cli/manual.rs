//! `completions` and `man`.

use std::process::Command;

use super::*;
use crate::skip::skip_missing_tool;

/// Returns the commands that `--help` lists.
fn verbs(site: &Site) -> Vec<String> {
    let help = site.run(["--help"]).assert_code(0).stdout;
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    lines
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .filter(|verb| *verb != "help")
        .map(str::to_string)
        .collect()
}

#[test]
fn bash_completions_parse_and_name_every_command() {
    let site = Site::new();
    let ran = site.run(["completions", "bash"]).assert_code(0);
    for verb in verbs(&site) {
        assert!(ran.stdout.contains(&verb), "{verb}");
    }
    let script = site.path("completions.bash");
    fs::write(&script, &ran.stdout).unwrap();
    match Command::new("bash").arg("-n").arg(&script).output() {
        Ok(parsed) => assert!(parsed.status.success(), "{parsed:?}"),
        Err(_) => skip_missing_tool("bash"),
    }
}

#[test]
fn completions_of_an_unknown_shell_are_misuse() {
    let ran = Site::new().run(["completions", "dos"]).assert_code(2);
    assert_eq!(ran.stdout, "");
}

#[test]
fn manual_page_describes_every_command() {
    let site = Site::new();
    // The manual needs no fleet.
    fs::remove_file(site.path("memory-shepherd.conf")).unwrap();
    let page = site.run(["man"]).assert_code(0).stdout;
    assert!(page.contains(".TH memory-shepherd 1"), "{page}");
    let verbs = verbs(&site);
    assert!(verbs.len() > 12, "{verbs:?}");
    for verb in verbs.iter().map(String::as_str).chain(["archive pin"]) {
        assert!(
            page.contains(&format!(".SS memory-shepherd {verb}\n")),
            "{verb}"
        );
    }
    assert_eq!(page.matches(".SH EXIT STATUS\n").count(), 1, "{page}");
    let json = site.run(["man", "--json"]).assert_code(0).json();
    assert_eq!(json["name"], "memory-shepherd.1");
    assert_eq!(json["text"], page.as_str());
}
