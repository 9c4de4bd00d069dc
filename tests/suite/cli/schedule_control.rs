//! `schedule pause`, `resume` and `skip`, and what a scheduled reset does then.

use memory_shepherd::unattended::schedule::timer_subject;

use super::*;

/// A site whose agent monitor-bot is reset by itself every half hour.
fn scheduled_site() -> Site {
    let site = site_with_notes_and_drift();
    site.append("memory-shepherd.conf", "every=30m\n");
    site
}

fn holds(site: &Site) -> serde_json::Value {
    let arguments = [
        "schedule", "status", "--user", "--prefix", "units", "--json",
    ];
    let ran = site.run(arguments).assert_code(0).json();
    ran["holds"].clone()
}

#[test]
fn paused_agent_is_left_out_of_scheduled_resets() {
    let site = scheduled_site();
    let changed = site.read(MONITOR_MEMORY);
    let _ = site
        .run(["schedule", "pause", "monitor-bot"])
        .assert_code(0);
    assert_eq!(holds(&site)[0]["agent"], "monitor-bot");
    let ran = site
        .run(["reset", "--scheduled", "--json", "monitor-bot"])
        .assert_code(0)
        .json();
    assert_eq!(ran["held"][0]["agent"], "monitor-bot");
    assert_eq!(site.read(MONITOR_MEMORY), changed);
    // The others are reset.
    let ran = site
        .run([
            "reset",
            "--scheduled",
            "--json",
            "code-reviewer",
            "monitor-bot",
        ])
        .assert_code(0)
        .json();
    assert_eq!(ran["results"].as_array().unwrap().len(), 1);
    assert_eq!(ran["results"][0]["agent"], "code-reviewer");
    // A reset by hand is not held back.
    let _ = site.run(["reset", "monitor-bot"]).assert_code(0);
    assert_ne!(site.read(MONITOR_MEMORY), changed);
    let _ = site.run(["schedule", "resume"]).assert_code(0);
    assert_eq!(holds(&site), serde_json::json!([]));
    let ran = site
        .run(["reset", "--scheduled", "--json", "monitor-bot"])
        .assert_code(0)
        .json();
    assert_eq!(ran["results"][0]["agent"], "monitor-bot");
}

#[test]
fn status_report_and_doctor_name_pauses() {
    let site = scheduled_site();
    let _ = site.run(["schedule", "pause"]).assert_code(0);
    for verb in ["status", "report"] {
        let shown = site.run([verb]).assert_code(0).stdout;
        for subject in [timer_subject(None), "monitor-bot"] {
            let line = format!("held back: {subject}: paused since ");
            assert!(shown.contains(&line), "{verb}: {shown}");
        }
        let document = site.run([verb, "--json"]).json();
        assert_eq!(document["holds"], holds(&site), "{verb}");
    }
    let checks = site.run(["doctor", "--json"]).json();
    let paused = |level: &str| {
        let checks = checks["checks"].as_array().unwrap().iter();
        let found = checks.filter(|it| it["check"] == "schedule" && it["level"] == level);
        found.count()
    };
    assert_eq!((paused("warn"), paused("ok")), (2, 0), "{checks:#}");
    let _ = site.run(["schedule", "resume"]).assert_code(0);
    let shown = site.run(["status"]).stdout;
    assert!(!shown.contains("held back"), "{shown}");
}

#[test]
fn agent_of_a_paused_fleet_is_not_resumed_alone() {
    let site = scheduled_site();
    let _ = site.run(["schedule", "pause"]).assert_code(0);
    let refused = site.run(["schedule", "resume", "code-reviewer"]);
    let _ = refused.assert_code(6).assert_stderr_has("cannot resume");
    // One with an interval of its own has a pause of its own.
    let _ = site
        .run(["schedule", "resume", "monitor-bot"])
        .assert_code(0);
    assert_eq!(holds(&site).as_array().unwrap().len(), 1);
}

#[test]
fn pause_of_an_agent_that_left_is_resumed() {
    for arguments in [
        &["schedule", "resume"][..],
        &["schedule", "resume", "monitor-bot"],
    ] {
        let site = scheduled_site();
        let _ = site
            .run(["schedule", "pause", "monitor-bot"])
            .assert_code(0);
        let config = site.read("memory-shepherd.conf");
        site.write(
            "memory-shepherd.conf",
            config.replace("[monitor-bot]", "[renamed]"),
        );
        let _ = site
            .run_command(site.command().args(arguments))
            .assert_code(0);
        site.write("memory-shepherd.conf", config);
        assert_eq!(holds(&site), serde_json::json!([]), "{arguments:?}");
    }
}

#[test]
fn skip_with_an_impossible_time_holds_nothing_back() {
    let site = scheduled_site();
    let _ = site.run(["schedule", "skip", "monitor-bot"]).assert_code(0);
    let file = "archives/.shepherd/schedule.json";
    let mut text: serde_json::Value = serde_json::from_str(&site.read(file)).unwrap();
    let config = text["configs"].as_object_mut().unwrap();
    let skip = &mut config.values_mut().next().unwrap()["timers"][0]["skip"];
    for time in ["due", "begins", "ends"] {
        skip[time] = "+262142-12-31T10:00:00Z".into();
    }
    site.write(file, text.to_string());
    let _ = site
        .run(["reset", "--scheduled", "monitor-bot"])
        .assert_code(0)
        .assert_stderr_has("out of range");
}

#[test]
fn dry_run_of_a_control_changes_nothing() {
    let site = scheduled_site();
    let _ = site.run(["schedule", "skip"]).assert_code(0);
    let before = site.snapshot_files();
    for verb in ["pause", "resume", "skip"] {
        let ran = site
            .run(["schedule", verb, "--dry-run", "--json"])
            .assert_code(0)
            .json();
        assert_eq!(ran["dry_run"], true);
        assert_eq!(ran["changes"].as_array().unwrap().len(), 2, "{verb}");
    }
    assert_eq!(site.snapshot_files(), before);
    let _ = site.run(["schedule", "pause", "nobody"]).assert_code(2);
}

#[test]
fn resume_where_nothing_is_held_writes_nothing() {
    let site = scheduled_site();
    let before = site.snapshot_files();
    for arguments in [
        &["schedule", "resume"][..],
        &["schedule", "resume", "memory-shepherd.timer"],
    ] {
        let ran = site.run_command(site.command().args(arguments));
        let ran = ran.assert_code(0);
        let _ = ran.assert_stdout_has("paused or skipped");
    }
    assert_eq!(site.snapshot_files(), before);
}

/// A skip holds for one due time of the config, however late its file says that it ends: an interval
/// may have become shorter since.
#[test]
fn skip_beyond_its_due_time_is_not_listed() {
    let site = scheduled_site();
    let _ = site.run(["schedule", "skip", "monitor-bot"]).assert_code(0);
    assert_eq!(holds(&site).as_array().unwrap().len(), 1);
    let file = "archives/.shepherd/schedule.json";
    let mut text: serde_json::Value = serde_json::from_str(&site.read(file)).unwrap();
    let config = text["configs"].as_object_mut().unwrap();
    let skip = &mut config.values_mut().next().unwrap()["timers"][0]["skip"];
    skip["begins"] = "2026-03-14T10:00:00Z".into();
    skip["ends"] = "2126-03-14T10:00:00Z".into();
    site.write(file, text.to_string());
    assert_eq!(holds(&site), serde_json::json!([]));
}

#[test]
fn timers_are_named_as_units_or_agents() {
    let site = scheduled_site();
    for (name, agent) in [
        ("memory-shepherd.timer", serde_json::Value::Null),
        ("memory-shepherd-monitor-bot", "monitor-bot".into()),
        ("monitor-bot", "monitor-bot".into()),
        ("code-reviewer", "code-reviewer".into()),
    ] {
        let arguments = ["schedule", "skip", name, "--dry-run", "--json"];
        let ran = site.run(arguments).assert_code(0).json();
        assert_eq!(ran["changes"][0]["agent"], agent, "{name}");
        assert!(ran["changes"][0]["due"].is_string(), "{name}");
    }
}

#[test]
fn control_output_matches_goldens() {
    let site = scheduled_site();
    for verb in ["pause", "resume"] {
        insta::assert_snapshot!(
            format!("schedule_{verb}"),
            site.run(["schedule", verb]).normalized_output()
        );
    }
    for verb in ["pause", "resume", "skip"] {
        insta::assert_snapshot!(
            format!("help_schedule_{verb}"),
            site.run(["schedule", verb, "--help"]).normalized_output()
        );
    }
}

#[test]
fn damaged_pauses_are_reported_and_reset_runs() {
    let site = scheduled_site();
    let _ = site.run(["schedule", "pause"]).assert_code(0);
    site.write("archives/.shepherd/schedule.json", "{");
    let _ = site
        .run(["reset", "--scheduled", "monitor-bot"])
        .assert_code(0)
        .assert_stderr_has("is ignored: it is damaged");
    let _ = site.run(["schedule", "resume"]).assert_code(0);
    assert_eq!(holds(&site), serde_json::json!([]));
}
