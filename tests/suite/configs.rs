//! Configs of `tests/configs`: valid ones load, and invalid ones produce exactly the
//! expected diagnostics.
//!
//! A valid file lists its warnings as `# warn: SUBSTRING`; an invalid one lists its
//! diagnostics as `# expect: SUBSTRING`.

use std::fs;
use std::path::{Path, PathBuf};

use memory_shepherd::config::{
    self, ConfigEnvironment, Diagnostic, DiagnosticLevel, LayoutKeys, SftpExtension,
};

use crate::fixture::Site;

fn env() -> ConfigEnvironment {
    ConfigEnvironment {
        home: Some(PathBuf::from("/home/operator")),
        uid: 1000,
        layouts: vec![LayoutKeys {
            name: "notes",
            keys: &["memory_ref", "state_dir"],
        }],
        ..ConfigEnvironment::bare("/nowhere")
    }
}

fn config_files(directory: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/configs")
        .join(directory);
    let entries = fs::read_dir(&directory).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|ext| ext == "conf"));
    files.sort();
    assert!(!files.is_empty(), "no configs in {}", directory.display());
    files
}

fn expectation_marks(file: &Path, mark: &str) -> Vec<String> {
    let bytes = fs::read(file).unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let lines = text.lines().filter_map(|line| line.strip_prefix(mark));
    lines.map(|line| line.trim().to_string()).collect()
}

/// Asserts that every mark matches a diagnostic, and every diagnostic of that level a
/// mark.
fn unmatched_diagnostics(
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
fn valid_configs_load_with_expected_warnings() {
    let mut wrong = Vec::new();
    for file in config_files("valid") {
        match config::load(&file, &env()) {
            Ok(config) => {
                let marks = expectation_marks(&file, "# warn:");
                wrong.extend(unmatched_diagnostics(
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
fn invalid_configs_report_exactly_expected_errors() {
    let mut wrong = Vec::new();
    for file in config_files("invalid") {
        let marks = expectation_marks(&file, "# expect:");
        if marks.is_empty() {
            wrong.push(format!("{}: expects nothing", file.display()));
        }
        match config::load(&file, &env()) {
            Ok(_) => wrong.push(format!("{}: loads", file.display())),
            Err(problems) => wrong.extend(unmatched_diagnostics(
                &file,
                &problems.0,
                &marks,
                DiagnosticLevel::Error,
            )),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn remote_page_describes_every_extension() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/remote-hosts.md");
    let page = fs::read_to_string(page).unwrap();
    let page: Vec<&str> = page.split_whitespace().collect();
    let page = page.join(" ");
    for lacks in SftpExtension::ALL {
        let told = format!("without `{}`, {}", lacks.as_str(), lacks.degradation());
        assert!(page.contains(&told), "docs/remote-hosts.md lacks: {told}");
    }
}

/// Every command works with an agent name of the maximum length.
#[test]
fn longest_agent_name_can_be_reset_and_undone() {
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
    let _ = site.run(["reset", "--all"]).assert_code(0);
    let _ = site.run(["undo", &longest]).assert_code(0);
    assert_eq!(site.read(memory), before);
    named(&(longest + "n"));
    let _ = site
        .run(["config", "check"])
        .assert_code(2)
        .assert_stdout_has("at most 200 characters");
}

/// The original tool misread some configs. The program keeps the plain meaning, and
/// refuses to run where the meaning is unclear.
mod the_original {
    use super::*;

    const REVIEWER_MEMORY: &str = "agents/code-reviewer/MEMORY.md";
    const MONITOR_MEMORY: &str = "agents/monitor-bot/MEMORY.md";

    /// A site whose config has `new` in place of `old`, and notes to reset.
    fn site_with_config(old: &str, new: &str) -> Site {
        let site = Site::new();
        let config = site.read("memory-shepherd.conf");
        assert!(config.contains(old), "{old}");
        site.write("memory-shepherd.conf", config.replace(old, new));
        site.append(REVIEWER_MEMORY, "- a note\n");
        site.append(MONITOR_MEMORY, "- another\n");
        site
    }

    fn assert_resets(site: &Site, memory: &str, agent: &str) {
        let _ = site.run(["reset", "--all"]).assert_code(0);
        assert_eq!(site.read(memory), Site::read_baseline(agent));
    }

    /// Resets neither agent, not even the one with a correct section, and names the
    /// line.
    #[track_caller]
    fn assert_rejected(site: &Site, line: &str) {
        let before = site.snapshot_files();
        for arguments in [["reset", "--all"], ["reset", "code-reviewer"]] {
            let _ = site.run(arguments).assert_code(2).assert_stderr_has(line);
        }
        let _ = site.run(["all"]).assert_code(2).assert_stderr_has(line);
        assert_eq!(site.snapshot_files(), before);
    }

    #[test]
    fn value_with_hash_is_read_whole() {
        let site = site_with_config("agents/monitor-bot/", "agents/monitor#2/");
        let notes = Site::read_baseline("monitor-bot") + "- a note\n";
        site.write("agents/monitor#2/MEMORY.md", notes);
        assert_resets(&site, "agents/monitor#2/MEMORY.md", "monitor-bot");
        assert!(!site.path("agents/monitor").exists());
    }

    #[test]
    fn spaces_around_equals_are_accepted() {
        let site = site_with_config("archive_subdir=monitor", "archive_subdir = elsewhere");
        assert_resets(&site, MONITOR_MEMORY, "monitor-bot");
        assert_eq!(site.entry_names("elsewhere").len(), 1);
        assert!(!site.path("archives/monitor-bot").exists());
    }

    #[test]
    fn unknown_key_is_an_error() {
        let unknown = "archive_subdri=monitor";
        assert_rejected(
            &site_with_config("archive_subdir=monitor", unknown),
            unknown,
        );
        let unknown = "archive_retention=30";
        assert_rejected(
            &site_with_config("archive_retention_days=30", unknown),
            unknown,
        );
    }

    #[test]
    fn invalid_section_name_is_an_error() {
        for odd in [
            "[monitor bot]",
            "[monitor.bot]",
            "[]",
            "[monitor-bot",
            "[mönitor]",
        ] {
            assert_rejected(&site_with_config("[monitor-bot]", odd), odd);
        }
        assert_rejected(
            &site_with_config("[monitor-bot]", "[code-reviewer]"),
            "duplicate section",
        );
    }

    #[test]
    fn invalid_number_is_an_error() {
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
                assert_rejected(&site_with_config(&format!("{key}={was}"), &line), &line);
            }
        }
        for bad in [
            "min_baseline_size=1k",
            "remote_scp_timeout=0",
            "remote_poll=x",
        ] {
            let new = format!("[general]\n{bad}");
            assert_rejected(&site_with_config("[general]", &new), bad);
        }
        let bad = "archive_subdir=m\nmax_memory_size=big";
        assert_rejected(
            &site_with_config("archive_subdir=monitor", bad),
            "max_memory_size=big",
        );
    }

    #[test]
    fn missing_configured_file_has_no_fallback() {
        let site = site_with_config("[general]", "[general]");
        let before = site.snapshot_files();
        for missing in ["night.conf", "nowhere/memory-shepherd.conf"] {
            let ran = site.run(["--config", missing, "reset", "--all"]);
            let _ = ran
                .assert_code(2)
                .assert_stderr_has("does not exist")
                .assert_stderr_has(missing);
        }
        assert_eq!(site.snapshot_files(), before);
    }
}
