//! Tests of where the config file is searched for, and of files that cannot be read.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;
use crate::skip::skip_unsupported;

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

/// A directory in which a config is found, and the search for it.
struct FoundConfig {
    directory: tempfile::TempDir,
    env: ConfigEnvironment,
}

/// Another user, and the group that only the user of the environment is in.
const OTHER_USER: u32 = 65534;
const PRIVATE_GROUP: u32 = 4712;

fn found_config() -> FoundConfig {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join(CONFIG_FILE_NAME);
    fs::write(&file, "").unwrap();
    set_mode(&file, 0o644);
    let env = ConfigEnvironment {
        cwd: directory.path().canonicalize().unwrap(),
        home: None,
        uid: fs::metadata(&file).unwrap().uid(),
        user_database: UserDatabase {
            find_private_group: |_| Some(PRIVATE_GROUP),
            find_user_name: |_| Some("mallory".to_string()),
            find_group_name: |_| Some("agents".to_string()),
            find_home: |_| None,
        },
        ..test_env()
    };
    FoundConfig { directory, env }
}

fn set_mode(path: &Path, bits: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(bits)).unwrap();
}

impl FoundConfig {
    fn file(&self) -> PathBuf {
        self.env.cwd.join(CONFIG_FILE_NAME)
    }

    /// The config of the machine, which must not take the place of an untrusted one.
    fn locate(&self) -> Result<LocatedConfig> {
        let system = self.env.cwd.join("etc.conf");
        fs::write(&system, "").unwrap();
        locate_with_system_path(None, &self.env, &system)
    }

    /// Why the config is refused; it can still be named.
    fn refusal(&self) -> Option<String> {
        assert!(locate(Some(&self.file()), &self.env).is_ok());
        match self.locate() {
            Ok(located) => {
                assert_eq!(located.path.file_name(), self.file().file_name());
                None
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Config);
                let flag = format!("--config {}", self.file().display());
                assert!(error.hints()[0].contains(&flag), "{error}");
                Some(error.message().to_string())
            }
        }
    }
}

#[test]
fn config_in_directory_of_others_is_refused() {
    let found = found_config();
    assert_eq!(found.refusal(), None);
    set_mode(&found.file(), 0o664);
    let group = found.refusal().unwrap();
    assert!(group.contains("(agents) can write"), "{group}");
    set_mode(&found.file(), 0o646);
    assert!(found.refusal().unwrap().contains("every user can write"));
    set_mode(&found.file(), 0o644);
    set_mode(found.directory.path(), 0o777);
    assert!(found.refusal().unwrap().contains("every user can write"));
}

#[test]
fn found_config_in_sticky_directory_is_refused() {
    let found = found_config();
    set_mode(found.directory.path(), 0o1777);
    // Another user can have made it, as a hard link to another config of the same owner.
    let refusal = found.refusal().unwrap();
    assert!(refusal.contains("every user can create files"), "{refusal}");
    let mut below = found;
    let own = below.env.cwd.join("own");
    fs::create_dir(&own).unwrap();
    fs::write(own.join(CONFIG_FILE_NAME), "").unwrap();
    below.env.cwd = own;
    assert_eq!(below.refusal(), None, "nobody else can replace a directory");
}

#[test]
fn config_of_another_user_is_refused() {
    use std::os::unix::fs::{chown, lchown};
    let found = found_config();
    if chown(found.file(), Some(OTHER_USER), None).is_err() {
        return skip_unsupported("only root can give files away");
    }
    let owner = found.refusal().unwrap();
    assert!(owner.contains("uid 65534 (mallory) owns"), "{owner}");
    chown(found.file(), Some(found.env.uid), None).unwrap();
    assert_eq!(found.refusal(), None);
    // A directory above it, and a symlink in its place.
    chown(found.directory.path(), Some(OTHER_USER), None).unwrap();
    assert!(found.refusal().unwrap().contains("(mallory) owns"));
    chown(found.directory.path(), Some(found.env.uid), None).unwrap();
    fs::rename(found.file(), found.env.cwd.join("real")).unwrap();
    symlink("real", found.file()).unwrap();
    assert_eq!(found.refusal(), None, "a symlink of one's own");
    lchown(found.file(), Some(OTHER_USER), None).unwrap();
    assert!(found.refusal().unwrap().contains("(mallory) owns"));
}

#[test]
fn config_writable_by_private_group_is_used() {
    let found = found_config();
    let of_group = |path: &Path| {
        set_mode(path, 0o775);
        std::os::unix::fs::chown(path, None, Some(PRIVATE_GROUP)).is_ok()
    };
    if of_group(&found.file()) && of_group(found.directory.path()) {
        assert_eq!(found.refusal(), None);
        let mut other = found;
        other.env.user_database = UserDatabase::EMPTY;
        assert!(other.refusal().is_some());
    }
}

#[test]
fn untrusted_config_beside_program_is_refused() {
    let mut found = found_config();
    set_mode(&found.file(), 0o666);
    found.env.program_directory = Some(found.env.cwd.clone());
    found.env.cwd = found.env.cwd.join("elsewhere");
    let system = found.directory.path().join("etc.conf");
    fs::write(&system, "").unwrap();
    let error = locate_with_system_path(None, &found.env, &system).unwrap_err();
    assert!(error.message().contains("every user can write"), "{error}");
}

#[test]
fn config_in_home_of_others_is_refused_to_root() {
    let found = found_config();
    let home = found.env.cwd.join("home");
    let user = home.join(".config/memory-shepherd");
    fs::create_dir_all(&user).unwrap();
    fs::write(user.join(CONFIG_FILE_NAME), "").unwrap();
    set_mode(&user.join(CONFIG_FILE_NAME), 0o666);
    let env = |uid| ConfigEnvironment {
        cwd: found.env.cwd.join("elsewhere"),
        home: Some(home.clone()),
        xdg_config_home: None,
        uid,
        ..found.env.clone()
    };
    let locate = |uid| locate_with_system_path(None, &env(uid), Path::new("/nowhere"));
    assert!(locate(0).is_err());
    // It is where the user's own settings are.
    assert!(locate(1000).is_ok());
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
