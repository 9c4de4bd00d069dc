//! Tests of where the config file is searched for, and of files that cannot be read.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

#[test]
fn missing_named_config_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let mut env = ConfigEnvironment {
        cwd: directory.path().to_path_buf(),
        ..test_env()
    };
    // The config in the current directory must not take its place.
    fs::write(directory.path().join(CONFIG_FILE_NAME), "").unwrap();
    let error = locate(Some(Path::new("other.conf")), &env).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    let missing = directory.path().join("other.conf").display().to_string();
    assert!(error.message().contains(&missing), "{error}");
    assert!(error.message().contains("--config"), "{error}");

    env.config_path_variable = Some("gone.conf".into());
    let error = locate(None, &env).unwrap_err();
    assert!(error.message().contains("$MEMORY_SHEPHERD_CONF"), "{error}");
}

// --- where the config is -----------------------------------------------------

/// Returns the environment of a user in `world`.
fn environment_in(world: &Path) -> ConfigEnvironment {
    ConfigEnvironment {
        home: Some(world.join("home")),
        xdg_config_home: Some(world.join("xdg")),
        config_path_variable: Some("../variable.conf".into()),
        program_directory: Some(world.join("bin")),
        uid: 1000,
        ..ConfigEnvironment::bare(world.join("cwd"))
    }
}

#[test]
fn locate_searches_from_flag_to_system() {
    let world = tempfile::tempdir().unwrap();
    let at = |name: &str| world.path().join(name);
    let mut env = environment_in(world.path());
    let system = at("etc.conf");
    let in_order = [
        (at("flag.conf"), at("flag.conf")),
        (at("variable.conf"), at("cwd/../variable.conf")),
        (
            at("cwd").join(CONFIG_FILE_NAME),
            at("cwd").join(CONFIG_FILE_NAME),
        ),
        (
            at("xdg/memory-shepherd").join(CONFIG_FILE_NAME),
            at("xdg/memory-shepherd").join(CONFIG_FILE_NAME),
        ),
        (
            at("bin").join(CONFIG_FILE_NAME),
            at("bin").join(CONFIG_FILE_NAME),
        ),
        (system.clone(), system.clone()),
    ];
    for (file, _) in &in_order {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "").unwrap();
    }
    for (step, (file, found)) in in_order.iter().enumerate() {
        let flag = at("flag.conf");
        if step == 2 {
            env.config_path_variable = Some(PathBuf::new());
        }
        let located =
            locate_with_system_path((step == 0).then_some(&*flag), &env, &system).unwrap();
        assert_eq!(&located.path, found);
        let expected = match step {
            // Named, or in the current directory: another shell finds another one.
            0..=2 => Invocation::with_config(found),
            _ => Invocation::default(),
        };
        assert_eq!(located.invocation, expected, "{step}");
        assert_eq!(located.load(&env).unwrap().invocation, expected, "{step}");
        fs::remove_file(file).unwrap();
    }
}

#[test]
fn without_xdg_variable_config_is_below_home() {
    let world = tempfile::tempdir().unwrap();
    let at = |name: &str| world.path().join(name);
    let env = ConfigEnvironment {
        xdg_config_home: None,
        config_path_variable: None,
        program_directory: None,
        ..environment_in(world.path())
    };
    let system = at("etc.conf");
    let user = at("home/.config/memory-shepherd");
    fs::create_dir_all(&user).unwrap();
    fs::write(user.join(CONFIG_FILE_NAME), "").unwrap();
    let located = locate_with_system_path(None, &env, &system).unwrap();
    assert_eq!(located.path, user.join(CONFIG_FILE_NAME));
    let tilde = Path::new("~/.config/memory-shepherd").join(CONFIG_FILE_NAME);
    assert_eq!(
        locate_with_system_path(Some(&tilde), &env, &system)
            .unwrap()
            .path,
        user.join(CONFIG_FILE_NAME)
    );
}

#[test]
fn without_config_error_names_searched_places() {
    let world = tempfile::tempdir().unwrap();
    let at = |name: &str| world.path().join(name);
    let env = ConfigEnvironment {
        xdg_config_home: None,
        config_path_variable: None,
        program_directory: None,
        ..environment_in(world.path())
    };
    let system = at("etc.conf");
    let error = locate_with_system_path(None, &env, &system).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    for place in [
        at("cwd").join(CONFIG_FILE_NAME),
        at("home/.config/memory-shepherd").join(CONFIG_FILE_NAME),
        system,
    ] {
        assert!(
            error.message().contains(&place.display().to_string()),
            "{error}"
        );
    }
    let hints = error.hints().join("\n");
    assert!(
        hints.contains("memory-shepherd demo") && hints.contains("--config"),
        "{hints}"
    );
}

#[test]
fn dangling_config_symlink_is_found_and_fails() {
    let directory = tempfile::tempdir().unwrap();
    let env = ConfigEnvironment {
        cwd: directory.path().to_path_buf(),
        ..test_env()
    };
    symlink("gone", directory.path().join(CONFIG_FILE_NAME)).unwrap();
    let located = locate(None, &env).unwrap();
    let problems = load(&located.path, &env).unwrap_err();
    assert!(problems.to_string().contains("no such file"), "{problems}");
}

#[test]
fn root_rejects_unsafe_config_of_others() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join(CONFIG_FILE_NAME);
    let env = ConfigEnvironment {
        cwd: directory.path().to_path_buf(),
        home: None,
        uid: 0,
        ..test_env()
    };
    let nowhere = directory.path().join("etc.conf");
    let why = || match locate_with_system_path(None, &env, &nowhere) {
        Ok(located) => {
            assert_eq!(located.path, file);
            "taken".to_string()
        }
        Err(error) => error.hints()[0].clone(),
    };
    let mode = |path: &Path, bits| {
        fs::set_permissions(path, fs::Permissions::from_mode(bits)).unwrap();
    };
    fs::write(&file, "").unwrap();
    if fs::metadata(&file).unwrap().uid() != 0 {
        assert!(why().contains("root does not own it"));
        return;
    }
    mode(&file, 0o644);
    assert_eq!(why(), "taken");
    mode(&file, 0o664);
    assert!(why().contains("others can write it"));
    mode(&file, 0o600);
    mode(directory.path(), 0o777);
    assert!(why().contains("others can replace it"));
    mode(directory.path(), 0o1777);
    assert_eq!(why(), "taken");
    std::os::unix::fs::chown(&file, Some(65534), None).unwrap();
    assert!(why().contains("root does not own it"));
    fs::rename(&file, directory.path().join("real")).unwrap();
    symlink("real", &file).unwrap();
    assert!(why().contains("symlink"));

    // The same holds beside the program.
    let beside = ConfigEnvironment {
        cwd: directory.path().join("elsewhere"),
        program_directory: Some(directory.path().to_path_buf()),
        ..env.clone()
    };
    let error = locate_with_system_path(None, &beside, &nowhere).unwrap_err();
    assert!(error.hints()[0].contains("it is a symlink"), "{error}");

    // And in the home of another user; a symlink of one's own is followed.
    let home = directory.path().join("home");
    let user = home.join(".config/memory-shepherd");
    fs::create_dir_all(&user).unwrap();
    fs::write(user.join("real"), "").unwrap();
    symlink("real", user.join(CONFIG_FILE_NAME)).unwrap();
    let at_home = ConfigEnvironment {
        home: Some(home),
        xdg_config_home: None,
        program_directory: None,
        ..beside
    };
    let found = locate_with_system_path(None, &at_home, &nowhere).unwrap();
    assert_eq!(found.path, user.join(CONFIG_FILE_NAME));
    std::os::unix::fs::chown(user.join("real"), Some(65534), None).unwrap();
    let error = locate_with_system_path(None, &at_home, &nowhere).unwrap_err();
    assert!(error.hints()[0].contains("root does not own it"), "{error}");

    // The search skips this file and finds another: the answer includes the note.
    fs::write(&nowhere, "").unwrap();
    let located = locate_with_system_path(None, &env, &nowhere).unwrap();
    assert_eq!(located.path, nowhere);
    assert!(located.notes[0].contains("skipped "), "{:?}", located.notes);
}

#[test]
fn config_from_pipe_is_loaded_once_only() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    let (kind, mode) = (
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
    );
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
    let there = pipe.clone();
    let writer = std::thread::spawn(move || {
        fs::write(there, "[bot]\nmemory_file = /srv/M.md\nbaseline = b.md\n").unwrap();
    });
    assert_eq!(load(&pipe, &test_env()).unwrap().agents.len(), 1);
    writer.join().unwrap();
    // A running console does not wait for a writer.
    let text = reload(&pipe, &test_env()).unwrap_err().to_string();
    assert!(text.contains("it is not a regular file"), "{text}");
}

#[test]
fn unreadable_config_error_names_path() {
    let directory = tempfile::tempdir().unwrap();
    let big = directory.path().join("big.conf");
    fs::write(&big, vec![b'#'; MAX_CONFIG_BYTES as usize + 1]).unwrap();
    for (path, cause) in [
        (directory.path().join("gone"), "no such file or directory"),
        (directory.path().to_path_buf(), "is a directory"),
        (big, "larger than 4194304 bytes"),
    ] {
        let text = load(&path, &test_env()).unwrap_err().to_string();
        assert!(
            text.starts_with(&format!("{}: error: ", path.display())),
            "{text}"
        );
        assert!(text.contains(cause), "{text}");
    }
}

// --- values ------------------------------------------------------------------
