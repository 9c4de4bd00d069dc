//! The files that decide what a unit runs, as systemd itself finds them.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use memory_shepherd::unattended::schedule::{UnitScope, UnitSearchPath};

use super::*;
use crate::skip::skip_missing_tool;

/// Runs `systemd-analyze` with these variables and returns both streams; `None` if it is missing.
fn analyze(variables: &[(&str, &str)], arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("systemd-analyze");
    command.env_clear().envs(variables.iter().copied());
    let Ok(output) = command.args(arguments).output() else {
        skip_missing_tool("systemd-analyze");
        return None;
    };
    let streams = [output.stdout, output.stderr].concat();
    Some(String::from_utf8(streams).unwrap())
}

#[test]
fn unit_search_path_is_that_of_systemd() {
    let variables = [("HOME", "/home/a"), ("XDG_RUNTIME_DIR", "/run/user/7")];
    let mut env = bare_environment(Path::new("/"));
    env.home = Some("/home/a".into());
    for (scope, flag) in [(UnitScope::System, "--system"), (UnitScope::User, "--user")] {
        let Some(paths) = analyze(&variables, &[flag, "unit-paths"]) else {
            return;
        };
        let runtime = Path::new("/run/user/7");
        let own = scope.search_path(&env, Some(runtime)).unwrap();
        // Where /lib is a symlink, the order of its two paths says nothing.
        let order = |paths: Vec<PathBuf>| -> Vec<PathBuf> {
            let mut paths: Vec<PathBuf> = paths
                .into_iter()
                .map(|it| it.canonicalize().unwrap_or(it))
                .collect();
            paths.dedup();
            paths
        };
        let paths: Vec<PathBuf> = paths.lines().map(PathBuf::from).collect();
        assert!(paths.len() > 10, "{paths:?}");
        let own = order(own);
        let shared: Vec<PathBuf> = own
            .iter()
            .filter(|it| order(paths.clone()).contains(it))
            .cloned()
            .collect();
        assert_eq!(shared, order(paths), "{own:?}");
    }
}

/// systemd names each file that it reads because of an unknown key.
#[test]
fn deciding_files_are_those_that_systemd_reads() {
    let temporary = tempfile::tempdir().unwrap();
    let root = temporary.path().canonicalize().unwrap();
    let unit = "memory-shepherd--x.service";
    let directories = ["linked", "first", "second"];
    let write = |directory: &str, drop_in: &str, file: &str| {
        let path = root.join(directory).join(drop_in);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join(file), "[Service]\nUnknown=1\n").unwrap();
    };
    for directory in directories {
        fs::create_dir_all(root.join(directory)).unwrap();
        for drop_in in [
            "memory-.service.d",
            "memory-shepherd-.service.d",
            "memory-shepherd--.service.d",
            "memory-shepherd--x.service.d",
            "alias.service.d",
            "other-.service.d",
        ] {
            write(directory, drop_in, "same.conf");
            write(directory, drop_in, &format!("{directory}-{drop_in}.conf"));
        }
        write(directory, "service.d", &format!("{directory}.conf"));
    }
    write("second", "memory-.service.d", "masked.conf");
    write("second", "memory-shepherd--x.service.d", "generic.conf");
    write("first", "memory-.service.d", "generic.conf");
    write("first", "memory-shepherd--x.service.d", "no-suffix");
    symlink(
        "/dev/null",
        root.join("first/memory-.service.d/masked.conf"),
    )
    .unwrap();
    symlink(unit, root.join("first/alias.service")).unwrap();
    let text = "[Service]\nExecStart=/bin/true\nUnknown=1\n";
    fs::write(root.join("linked").join(unit), text).unwrap();
    fs::write(root.join("second").join(unit), text).unwrap();
    let own = UnitSearchPath::read(directories.map(|it| root.join(it))).deciding_files(unit);
    let own: BTreeSet<PathBuf> = own.unit.into_iter().chain(own.drop_ins).collect();
    let is_mask = |path: &PathBuf| path.ends_with("masked.conf");
    assert_eq!(own.iter().filter(|it| is_mask(it)).count(), 1);
    let path = directories
        .map(|it| root.join(it).display().to_string())
        .join(":")
        + ":";
    let file = root.join("linked").join(unit);
    let arguments = ["verify", "--man=no", file.to_str().unwrap()];
    let Some(answer) = analyze(&[("SYSTEMD_UNIT_PATH", &path)], &arguments) else {
        return;
    };
    let named = answer.lines().filter_map(|line| {
        let (path, _) = line.split_once(": Unknown key")?;
        let (path, _) = path.rsplit_once(':')?;
        Some(PathBuf::from(path)).filter(|path| path.starts_with(&root))
    });
    let named: BTreeSet<PathBuf> = named.collect();
    let own: BTreeSet<PathBuf> = own.into_iter().filter(|it| !is_mask(it)).collect();
    assert_eq!(own, named);
}
