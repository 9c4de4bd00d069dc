//! Each documented exit code, by what leads to it.

use std::os::unix::fs::symlink;

use super::*;

#[test]
fn is_0_when_all_went_well() {
    let site = busy();
    let _ = site.run(["status"]).code(0);
    let _ = site.run([]).code(0).says("SCRATCH");
    let _ = site.run(["diff", "monitor-bot"]).code(0);
    let _ = site.run(["reset", "--all"]).code(0);
    let _ = site.run(["reset", "--all"]).code(0);
    let _ = site.run(["diff", "monitor-bot", "--exit-code"]).code(0);
    let _ = site.run(["--version"]).code(0).says("memory-shepherd 0.");
    let _ = site.run(["help", "reset"]).code(0).says("Exit codes:");
}

#[test]
fn is_1_for_differences_and_findings() {
    let site = busy();
    let _ = site.run(["diff", "monitor-bot", "--exit-code"]).code(1);
    let _ = site
        .run(["diff", "monitor-bot", "--exit-code", "--stat"])
        .code(1);
    fs::remove_dir_all(site.path("agents/monitor-bot")).unwrap();
    let _ = site
        .run(["doctor"])
        .code(1)
        .says("FAIL  the directory of monitor-bot");
}

#[test]
fn is_2_for_usage_and_config() {
    let site = busy();
    for arguments in [
        &["reset"][..],
        &["reset", "--all", "monitor-bot"],
        &["reset", "monitor-bot", "--plan", "abc"],
        &["undo"],
        &["undo", "--append", "--overwrite", "monitor-bot"],
        &["undo", "--run", "00000000"],
        &["--nonsense"],
        &["nobody"],
        &["status", "nobody"],
        &["diff", "nobody"],
        &["log", "nobody"],
        &["--read-only", "status"],
        &["monitor-bot", "status"],
        &["diff", "monitor-bot", "--against-archive", "nothing"],
        &["--config", "missing.conf", "status"],
        &["--config", "missing.conf", "doctor"],
        &["--config", "agents", "status"],
    ] {
        let ran = site.ran(site.command().args(arguments)).code(2);
        assert!(!ran.err.is_empty() || !ran.out.is_empty(), "{arguments:?}");
    }
    site.append("memory-shepherd.conf", "archive_groop=x\n[general]\n");
    for verb in ["status", "doctor", "log"] {
        let _ = site.run([verb]).code(2);
    }
    let _ = site
        .run(["reset", "--all"])
        .code(2)
        .warns("nothing runs with it");
    assert!(!site.path("archives").exists());
}

#[test]
fn is_3_for_what_cannot_be_read() {
    let site = busy();
    site.append(
        "memory-shepherd.conf",
        "[far]\nremote_host=10.0.0.50\nremote_memory=/x/MEMORY.md\nbaseline=monitor-bot-MEMORY.md\n",
    );
    let _ = site
        .run(["status"])
        .code(3)
        .warns("far could not be read: ")
        .says("3 agents");
}

#[test]
fn is_4_for_integrity() {
    let site = busy();
    let _ = site.run(["code-reviewer"]).code(0);
    let sums = "0".repeat(64) + "  monitor-bot-MEMORY.md\n";
    site.write("baselines/.checksums", sums);
    let _ = site
        .run(["reset", "monitor-bot"])
        .code(4)
        .warns("monitor-bot");
    let _ = site.run(["reset", "--all", "--dry-run"]).code(4);
    let _ = site.run(["status"]).code(4).says("TAMPERED");
    let _ = site.run(["doctor"]).code(4);
    fs::remove_file(site.path("baselines/.checksums")).unwrap();
    let ledger = site.read("archives/.shepherd/ledger.jsonl");
    site.write(
        "archives/.shepherd/ledger.jsonl",
        ledger.replace("cli", "cly"),
    );
    let _ = site.run(["log"]).code(4).warns("broken at line 1");
    let _ = site.run(["doctor"]).code(4);
    let _ = site.run(["status"]).code(4).warns("LAST is not known");
}

#[test]
fn is_5_while_another_run_holds_the_lock() {
    let site = busy();
    let held = engine(&site).hold_agent_lock("monitor-bot").unwrap();
    let _ = site
        .run(["reset", "monitor-bot"])
        .code(5)
        .warns("of tester (process");
    let _ = site.run(["reset", "--all", "--dry-run"]).code(5);
    let _ = site.run(["status"]).code(0).says("DRIFTED");
    drop(held);
    let _ = site.run(["reset", "monitor-bot"]).code(0);
}

#[test]
fn is_6_for_refusals() {
    let site = busy();
    let _ = site.run(["reset", "monitor-bot"]).code(0);
    site.append(MONITOR, "- more\n");
    let _ = site
        .run(["undo", "monitor-bot", "--dry-run"])
        .code(6)
        .warns("--append");
    let _ = site
        .run(["undo", "monitor-bot"])
        .code(6)
        .warns("hint: --append")
        .warns("--overwrite");
    let _ = site
        .run(["undo", "code-reviewer"])
        .code(6)
        .warns("nothing to undo");
    site.append("memory-shepherd.conf", "protect=readonly\n");
    let _ = site
        .run(["reset", "monitor-bot"])
        .code(6)
        .warns("read-only");
    site.write("baselines/code-reviewer-MEMORY.md", "# small\n\n---\n");
    let _ = site
        .run(["reset", "code-reviewer"])
        .code(6)
        .warns("has only 13 bytes");
    fs::remove_file(site.path("baselines/code-reviewer-MEMORY.md")).unwrap();
    let _ = site
        .run(["reset", "code-reviewer"])
        .code(6)
        .warns("is missing");
}

/// A typo in `memory_file` moves no workspace away.
#[test]
fn is_6_for_a_directory_as_memory() {
    let site = busy();
    let config = site.read("memory-shepherd.conf");
    let path = "agents/code-reviewer/MEMORY.md";
    site.write(
        "memory-shepherd.conf",
        config.replace(path, "agents/code-reviewer"),
    );
    let before = site.read(REVIEWER);
    for arguments in [
        &["reset", "code-reviewer"][..],
        &["reset", "--all"],
        &["reset", "--all", "--dry-run"],
    ] {
        let ran = site.ran(site.command().args(arguments)).code(6);
        let said = "agents/code-reviewer is a directory, and no record says";
        let text = format!("{}{}", ran.out, ran.err);
        assert!(text.contains(said), "{text}");
        let _ = ran.warns("hint: add the name of the file");
    }
    assert_eq!(site.read(REVIEWER), before);
    assert_eq!(site.read(MONITOR), Site::baseline("monitor-bot"));
    let check = site.run(["config", "check"]).code(2);
    let _ = check.says("memory-shepherd.conf:8: error: code-reviewer: ");
    let _ = site.run(["doctor"]).code(1).says("FAIL  code-reviewer: ");
    let _ = site.run(["status"]).code(6);
}

#[test]
fn is_the_most_serious_of_several() {
    let site = busy();
    site.append("memory-shepherd.conf", "protect=readonly\n");
    let _held = engine(&site).hold_agent_lock("code-reviewer").unwrap();
    let _ = site.run(["reset", "--all"]).code(6);
}

/// The reader of a pipe decides when the run goes on, so the signal comes
/// in the middle of it.
#[test]
fn is_130_when_interrupted_and_the_rest_is_left_alone() {
    let site = Site::new();
    let demo = site.path("demo");
    let arguments = ["demo", "--agents", "1000", "--dir", "demo"];
    let _ = site.run(arguments).code(0);
    let mut child = Command::new(PROGRAM)
        .args(["reset", "--all"])
        .env_clear()
        .current_dir(&demo)
        .env("MEMORY_SHEPHERD_CONF", demo.join("memory-shepherd.conf"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("] Reset ") {
        line.clear();
        assert!(out.read_line(&mut line).unwrap() > 0);
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{err}");
    assert!(err.contains("interrupted before it came to "), "{err}");
    assert!(!rest.contains("Reset android-999"), "{rest}");
    let left = fs::read_dir(demo.join("archives/.shepherd/tx"))
        .unwrap()
        .count();
    assert_eq!(left, 0);
}

/// Mistakes of the text and of what it names, in one go.
#[test]
fn config_check_names_all_mistakes_at_once() {
    let site = Site::new();
    let config = site.read("memory-shepherd.conf");
    let dir = site.dir.display();
    symlink("agents", site.path("alias")).unwrap();
    let more = format!(
        "[same]\nmemory_file={dir}/agents/monitor-bot/../code-reviewer/MEMORY.md\nbaseline=a.md\n\
         [text]\nmemory_file={dir}/agents/code-reviewer/MEMORY.md\nbaseline=a.md\n\
         [linked]\nmemory_file={dir}/alias/code-reviewer/MEMORY.md\nbaseline=a.md\n\
         [directory]\nmemory_file={dir}/agents/code-reviewer\nbaselin=a.md\n\
         [broken]\nmax_memory_size=many\nmemory_file={dir}/agents/broken/MEMORY.md\n"
    );
    let all = [
        "the agents `code-reviewer` and `same` have the same memory",
        "the agents `code-reviewer` and `text` have the same memory",
        "linked: ",
        "is reached through a link",
        "is a directory, and no record says",
    ];
    let broken = [
        "`baselin` is not a key",
        "`max_memory_size`",
        "lacks `baseline`",
    ];
    site.write("memory-shepherd.conf", format!("{config}{more}"));
    let ran = site.run(["config", "check"]).code(2);
    for said in all.iter().chain(&broken) {
        assert!(ran.out.contains(said), "{said}: {}", ran.out);
    }
    assert!(!ran.out.contains("warning: the agents"), "{}", ran.out);
    // Without mistakes of the text.
    let more = more.replace("baselin=", "baseline=");
    let more = more.split("[broken]").next().unwrap();
    site.write("memory-shepherd.conf", format!("{config}{more}"));
    let ran = site.run(["config", "check"]).code(2);
    for said in all {
        assert!(ran.out.contains(said), "{said}: {}", ran.out);
    }
    assert!(ran.out.contains("6 agents, 4 errors"), "{}", ran.out);
    // Commands go on with the others.
    let _ = site.run(["reset", "monitor-bot"]).code(0);
}
