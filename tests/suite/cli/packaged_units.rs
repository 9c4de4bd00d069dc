//! `schedule install --packaged`: the units of a package, which fit any config.

use super::schedule::unit_names;
use super::unit_sandbox::assert_systemd_accepts;
use super::*;

const PACKAGED: [&str; 6] = [
    "schedule",
    "install",
    "--packaged",
    PROGRAM_PATH,
    "--prefix",
    "package",
];

#[test]
fn packaged_units_need_no_config_and_match_golden() {
    let site = Site::new();
    fs::remove_file(site.path("memory-shepherd.conf")).unwrap();
    let ran = site.run(PACKAGED).assert_code(0);
    assert!(!ran.stdout.contains("enable --now"), "{}", ran.stdout);
    let texts: String = unit_names(&site, "package")
        .iter()
        .map(|name| format!("== {name}\n{}", site.read(&format!("package/{name}"))))
        .collect();
    insta::assert_snapshot!("packaged_units", texts.replace(PROGRAM_PATH, "[PROGRAM]"));
}

#[test]
fn packaged_units_need_a_prefix() {
    let site = Site::new();
    let _ = site
        .run([
            "schedule",
            "install",
            "--packaged",
            "/usr/bin/memory-shepherd",
        ])
        .assert_code(2);
}

/// Each unit of a package is replaced by one that the program installs.
#[test]
fn packaged_units_have_names_of_installed_ones() {
    let site = Site::new();
    let _ = site.run(PACKAGED).assert_code(0);
    let target = ["--system", "--prefix", "units"];
    let _ = site
        .run_command(site.command().args(["schedule", "install"]).args(target))
        .assert_code(0);
    let (packaged, installed) = (unit_names(&site, "package"), unit_names(&site, "units"));
    assert_eq!(packaged.len(), 3, "{packaged:?}");
    assert!(packaged.is_subset(&installed), "{packaged:?}");
}

#[test]
fn packaged_units_pass_systemd_verify_and_security() {
    let site = Site::new();
    let _ = site.run(PACKAGED).assert_code(0);
    assert_systemd_accepts(&site, "package");
}
