//! Every config of `tests/configs`: the valid ones load, and the invalid ones
//! say everything that is wrong with them and nothing else.
//!
//! A valid file lists its warnings as `# warn: SUBSTRING`; an invalid one what
//! must be read in its diagnostics as `# expect: SUBSTRING`.

use std::fs;
use std::path::{Path, PathBuf};

use memory_shepherd::config::{
    self, ConfigEnvironment, Diagnostic, DiagnosticLevel, SftpExtension,
};

use crate::fixture::Site;

fn env() -> ConfigEnvironment {
    ConfigEnvironment {
        cwd: PathBuf::from("/nowhere"),
        home: Some(PathBuf::from("/home/operator")),
        xdg_config_home: None,
        xdg_state_home: None,
        config_path_variable: None,
        uid: 1000,
    }
}

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/configs")
        .join(folder);
    let entries = fs::read_dir(&folder).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|ext| ext == "conf"));
    files.sort();
    assert!(!files.is_empty(), "no configs in {}", folder.display());
    files
}

fn marks(file: &Path, mark: &str) -> Vec<String> {
    let bytes = fs::read(file).unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let lines = text.lines().filter_map(|line| line.strip_prefix(mark));
    lines.map(|line| line.trim().to_string()).collect()
}

/// Every mark is found, and every diagnostic of that level has a mark.
fn match_up(
    file: &Path,
    list: &[Diagnostic],
    marks: &[String],
    level: DiagnosticLevel,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let name = file.file_name().unwrap().display();
    for mark in marks {
        if !list.iter().any(|it| it.to_string().contains(mark)) {
            wrong.push(format!("{name}: nothing says: {mark}"));
        }
    }
    for it in list.iter().filter(|it| it.level == level) {
        if !marks.iter().any(|mark| it.to_string().contains(mark)) {
            wrong.push(format!("{name}: not expected: {it}"));
        }
    }
    wrong
}

#[test]
fn valid_configs_load_with_exactly_their_warnings() {
    let mut wrong = Vec::new();
    for file in files("valid") {
        match config::load(&file, &env()) {
            Ok(config) => {
                let marks = marks(&file, "# warn:");
                wrong.extend(match_up(
                    &file,
                    &config.warnings,
                    &marks,
                    DiagnosticLevel::Warning,
                ));
            }
            Err(problems) => wrong.push(problems.to_string()),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn invalid_configs_say_everything_that_is_wrong_and_nothing_else() {
    let mut wrong = Vec::new();
    for file in files("invalid") {
        let marks = marks(&file, "# expect:");
        if marks.is_empty() {
            wrong.push(format!("{}: expects nothing", file.display()));
        }
        match config::load(&file, &env()) {
            Ok(_) => wrong.push(format!("{}: loads", file.display())),
            Err(problems) => {
                wrong.extend(match_up(&file, &problems.0, &marks, DiagnosticLevel::Error))
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn remote_page_says_what_each_extension_is_for() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/remote-hosts.md");
    let page = fs::read_to_string(page).unwrap();
    let page: Vec<&str> = page.split_whitespace().collect();
    let page = page.join(" ");
    for lacks in SftpExtension::ALL {
        let told = format!("without `{}`, {}", lacks.as_str(), lacks.degradation());
        assert!(page.contains(&told), "docs/remote-hosts.md lacks: {told}");
    }
}

/// The longest name that a config may give an agent serves for all that is done
/// with it.
#[test]
fn an_agent_with_the_longest_name_is_reset_and_undone() {
    let site = Site::new();
    let (memory, config) = ("agents/monitor-bot/MEMORY.md", "memory-shepherd.conf");
    let named = |name: &str| {
        let text = site.read(config);
        let text = text.replace("archive_subdir=monitor\n", "");
        let section = text.rfind('[').unwrap();
        let end = section + text[section..].find(']').unwrap();
        site.write(
            config,
            format!("{}[{name}{}", &text[..section], &text[end..]),
        );
    };
    let longest = "n".repeat(200);
    named(&longest);
    site.append(memory, "- a note\n");
    let before = site.read(memory);
    let _ = site.run(["reset", "--all"]).code(0);
    let _ = site.run(["undo", &longest]).code(0);
    assert_eq!(site.read(memory), before);
    named(&(longest + "n"));
    let _ = site
        .run(["config", "check"])
        .code(2)
        .says("at most 200 characters");
}

/// What the original did with a config that did not say what was meant, by the
/// program itself: where the meaning is plain it is kept, and else nothing runs.
mod the_original {
    use super::*;

    const REVIEWER: &str = "agents/code-reviewer/MEMORY.md";
    const MONITOR: &str = "agents/monitor-bot/MEMORY.md";

    /// A site whose config has `new` in place of `old`, and notes to reset.
    fn site(old: &str, new: &str) -> Site {
        let site = Site::new();
        let config = site.read("memory-shepherd.conf");
        assert!(config.contains(old), "{old}");
        site.write("memory-shepherd.conf", config.replace(old, new));
        site.append(REVIEWER, "- a note\n");
        site.append(MONITOR, "- another\n");
        site
    }

    fn is_reset(site: &Site, memory: &str, agent: &str) {
        let _ = site.run(["reset", "--all"]).code(0);
        assert_eq!(site.read(memory), Site::baseline(agent));
    }

    /// Neither agent is reset, also not the one whose section is right, and the
    /// line is named.
    #[track_caller]
    fn runs_nothing(site: &Site, line: &str) {
        let before = site.tree();
        for arguments in [["reset", "--all"], ["reset", "code-reviewer"]] {
            let _ = site.run(arguments).code(2).warns(line);
        }
        let _ = site.run(["all"]).code(2).warns(line);
        assert_eq!(site.tree(), before);
    }

    #[test]
    fn cut_values_at_a_hash() {
        let site = site("agents/monitor-bot/", "agents/monitor#2/");
        let notes = Site::baseline("monitor-bot") + "- a note\n";
        site.write("agents/monitor#2/MEMORY.md", notes);
        is_reset(&site, "agents/monitor#2/MEMORY.md", "monitor-bot");
        assert!(!site.path("agents/monitor").exists());
    }

    #[test]
    fn ignored_keys_with_spaces_around_the_equals_sign() {
        let site = site("archive_subdir=monitor", "archive_subdir = elsewhere");
        is_reset(&site, MONITOR, "monitor-bot");
        assert_eq!(site.entries("elsewhere").len(), 1);
        assert!(!site.path("archives/monitor-bot").exists());
    }

    #[test]
    fn ignored_unknown_keys() {
        let unknown = "archive_subdri=monitor";
        runs_nothing(&site("archive_subdir=monitor", unknown), unknown);
        let unknown = "archive_retention=30";
        runs_nothing(&site("archive_retention_days=30", unknown), unknown);
    }

    #[test]
    fn gave_one_agent_the_identity_of_another_below_an_odd_section_name() {
        for odd in [
            "[monitor bot]",
            "[monitor.bot]",
            "[]",
            "[monitor-bot",
            "[mönitor]",
        ] {
            runs_nothing(&site("[monitor-bot]", odd), odd);
        }
        runs_nothing(&site("[monitor-bot]", "[code-reviewer]"), "two sections");
    }

    #[test]
    fn took_bad_numbers_for_the_default() {
        for (key, was) in [
            ("archive_retention_days", "30"),
            ("max_memory_size", "16384"),
        ] {
            for bad in [
                "30d",
                "-1",
                "0",
                "1.5",
                "thirty",
                "0x1e",
                "99999999999999999999",
            ] {
                let line = format!("{key}={bad}");
                runs_nothing(&site(&format!("{key}={was}"), &line), &line);
            }
        }
        for bad in [
            "min_baseline_size=1k",
            "remote_scp_timeout=0",
            "remote_poll=x",
        ] {
            let new = format!("[general]\n{bad}");
            runs_nothing(&site("[general]", &new), bad);
        }
        let bad = "archive_subdir=m\nmax_memory_size=big";
        runs_nothing(&site("archive_subdir=monitor", bad), "max_memory_size=big");
    }

    #[test]
    fn fell_back_to_another_config_when_the_configured_one_was_missing() {
        let site = site("[general]", "[general]");
        let before = site.tree();
        for missing in ["night.conf", "nowhere/memory-shepherd.conf"] {
            let ran = site.run(["--config", missing, "reset", "--all"]);
            let _ = ran.code(2).warns("does not exist").warns(missing);
        }
        assert_eq!(site.tree(), before);
    }
}
