//! `keys`, and what `doctor` says of the operator's own file.

use super::*;

const FILE: &str = "home/.config/memory-shepherd/console.toml";

#[test]
fn lists_the_keys_in_force() {
    let site = Site::new();
    // It needs no fleet.
    fs::remove_file(site.path("memory-shepherd.conf")).unwrap();
    let ran = site.run(["keys"]).code(0).says("X ").says("reset");
    assert!(!ran.out.contains('*'), "{}", ran.out);
    site.write(
        FILE,
        "[keys]\nreset = [\"F5\", \"Space r\"]\nmark = \"m\"\nlog = []\n",
    );
    let ran = site.run(["keys"]).code(0);
    assert_eq!(ran.err, "");
    let _ = ran
        .says("F5  Space r *")
        .says("(none) *")
        .says("(by default 7)")
        .says("3 commands changed by ");
    let json = site.run(["keys", "--json"]).code(0).json();
    let rows = json["keys"].as_array().unwrap();
    let reset = rows.iter().find(|row| row["id"] == "reset").unwrap();
    assert_eq!(reset["keys"], serde_json::json!(["F5", "Space r"]));
    assert_eq!(reset["default_keys"], serde_json::json!(["X"]));
    assert_eq!(reset["contexts"], serde_json::json!(["fleet", "agent"]));
    assert_eq!(
        (&reset["changed"], &reset["category"]),
        (&true.into(), &"act".into())
    );
    assert_eq!(json["file"], site.path(FILE).to_str().unwrap());
    assert_eq!(json["diagnostics"], serde_json::json!([]));
}

#[test]
fn the_file_is_where_xdg_says() {
    let site = Site::new();
    site.write("xdg/memory-shepherd/console.toml", "[keys]\nlog = \"L\"\n");
    let mut command = site.command();
    command.env("XDG_CONFIG_HOME", site.path("xdg")).arg("keys");
    let _ = site.ran(&mut command).code(0).says("L *");
}

#[test]
fn everything_wrong_is_told_at_once_and_ends_with_2() {
    let site = busy();
    let _ = site.run(["reset", "--all"]).code(0);
    site.write(FILE, "[keys]\nrset = \"F5\"\nmark = \"d\"\nlog = \"L\"\n");
    for verb in ["keys", "doctor"] {
        let ran = site.run([verb]).code(2);
        let all = ran.out.clone() + &ran.err;
        for told in [
            "did you mean `reset`?",
            "mark: `d` is the key of diff already",
        ] {
            assert!(all.contains(told), "{verb}: {told:?} is not in {all}");
        }
    }
    let ran = site.run(["keys"]).code(2);
    assert!(ran.err.contains("console.toml:2: error: "), "{}", ran.err);
    let _ = ran.says("L *").says("1 command changed");
    let json = site.run(["keys", "--json"]).code(2).json();
    assert_eq!(json["diagnostics"][1]["line"], 3);
    let ran = site.run(["doctor"]).code(2);
    let _ = ran.says("FAIL  console.toml line 2: there is no command `rset`");
    site.write(FILE, "[keys]\nlog = \"L\"\n");
    let _ = site
        .run(["doctor"])
        .code(0)
        .says("other keys for 1 command");
}

#[test]
fn hostile_names_are_shown_and_not_obeyed() {
    let site = Site::new();
    site.write(
        FILE,
        "[keys]\n\"\\u001b[31mx\" = \"F5\"\nmark = \"\\u202e\\u001b\\u0007\"\n",
    );
    let ran = site.run(["keys"]).code(2);
    no_escape(&ran.err);
    no_escape(&ran.out);
}
