//! `keys`, and the findings of `doctor` in the operator's key file.

use super::*;

const KEYS_FILE: &str = "home/.config/memory-shepherd/console.toml";

#[test]
fn keys_lists_bindings_in_force() {
    let site = Site::new();
    // `keys` needs no fleet.
    fs::remove_file(site.path("memory-shepherd.conf")).unwrap();
    let ran = site
        .run(["keys"])
        .assert_code(0)
        .assert_stdout_has("X ")
        .assert_stdout_has("reset");
    assert!(!ran.stdout.contains('*'), "{}", ran.stdout);
    site.write(
        KEYS_FILE,
        "[keys]\nreset = [\"F5\", \"Space r\"]\nmark = \"m\"\nlog = []\n",
    );
    let ran = site.run(["keys"]).assert_code(0);
    assert_eq!(ran.stderr, "");
    let _ = ran
        .assert_stdout_has("F5  Space r *")
        .assert_stdout_has("(none) *")
        .assert_stdout_has("(default: 7)")
        .assert_stdout_has("3 commands changed by ");
    let json = site.run(["keys", "--json"]).assert_code(0).json();
    let rows = json["keys"].as_array().unwrap();
    let reset = rows.iter().find(|row| row["id"] == "reset").unwrap();
    assert_eq!(reset["keys"], serde_json::json!(["F5", "Space r"]));
    assert_eq!(reset["default_keys"], serde_json::json!(["X"]));
    assert_eq!(reset["contexts"], serde_json::json!(["fleet", "agent"]));
    assert_eq!(
        (&reset["changed"], &reset["category"]),
        (&true.into(), &"act".into())
    );
    assert_eq!(json["file"], site.path(KEYS_FILE).to_str().unwrap());
    assert_eq!(json["diagnostics"], serde_json::json!([]));
}

#[test]
fn key_file_follows_xdg_config_home() {
    let site = Site::new();
    site.write("xdg/memory-shepherd/console.toml", "[keys]\nlog = \"L\"\n");
    let mut command = site.command();
    command.env("XDG_CONFIG_HOME", site.path("xdg")).arg("keys");
    let _ = site
        .run_command(&mut command)
        .assert_code(0)
        .assert_stdout_has("L *");
}

#[test]
fn key_errors_are_all_reported_and_exit_2() {
    let site = site_with_notes_and_drift();
    let _ = site.run(["reset", "--all"]).assert_code(0);
    site.write(
        KEYS_FILE,
        "[keys]\nrset = \"F5\"\nmark = \"d\"\nlog = \"L\"\n",
    );
    for verb in ["keys", "doctor"] {
        let ran = site.run([verb]).assert_code(2);
        let all = ran.stdout.clone() + &ran.stderr;
        for told in [
            "did you mean `reset`?",
            "mark: `d` is already bound to diff",
        ] {
            assert!(all.contains(told), "{verb}: {told:?} is not in {all}");
        }
    }
    let ran = site.run(["keys"]).assert_code(2);
    assert!(
        ran.stderr.contains("console.toml:2: error: "),
        "{}",
        ran.stderr
    );
    let _ = ran
        .assert_stdout_has("L *")
        .assert_stdout_has("1 command changed");
    let json = site.run(["keys", "--json"]).assert_code(2).json();
    assert_eq!(json["diagnostics"][1]["line"], 3);
    let ran = site.run(["doctor"]).assert_code(2);
    let _ = ran.assert_stdout_has("FAIL  console.toml line 2: unknown command `rset`");
    site.write(KEYS_FILE, "[keys]\nlog = \"L\"\n");
    let _ = site
        .run(["doctor"])
        .assert_code(0)
        .assert_stdout_has("1 command with changed keys");
}

#[test]
fn hostile_key_names_are_escaped() {
    let site = Site::new();
    site.write(
        KEYS_FILE,
        "[keys]\n\"\\u001b[31mx\" = \"F5\"\nmark = \"\\u202e\\u001b\\u0007\"\n",
    );
    let ran = site.run(["keys"]).assert_code(2);
    assert_no_escape(&ran.stderr);
    assert_no_escape(&ran.stdout);
}
