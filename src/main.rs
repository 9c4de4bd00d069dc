//! The program: resolves the process environment, runs the command line, and turns an error into
//! the exit code. The modules below read neither environment nor user database by themselves.

use std::env;
use std::fs;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use memory_shepherd::base::temporary::TemporaryRoot;
use memory_shepherd::base::trust::{TrustedUser, UserDatabase};
use memory_shepherd::cli::{self, Environment, UserAccount};
use memory_shepherd::config::ConfigEnvironment;
use memory_shepherd::console::shell::external_tools::ExternalTools;
use memory_shepherd::layouts::Layouts;
use memory_shepherd::transport::sftp::askpass;
use memory_shepherd::unattended::alerts::AlertEnvironment;
use rustix::fs::Mode;
use uzers::os::unix::{GroupExt, UserExt};
use uzers::{
    get_effective_uid, get_effective_username, get_group_by_gid, get_group_by_name,
    get_user_by_name, get_user_by_uid,
};

fn main() -> ExitCode {
    if let Some(prompt_exit_code) = askpass::askpass_main(env::args_os(), |name| env::var_os(name))
    {
        return prompt_exit_code;
    }
    // Files are private where they have to be; a umask that takes the owner's bits would only keep
    // this program from its own locks and directories.
    let umask = rustix::process::umask(Mode::empty());
    rustix::process::umask(umask & !Mode::RWXU);
    // With a handler, a write beyond the file-size limit (`ulimit -f`) returns an error.
    // Child processes do not inherit it, as they would inherit an ignored signal.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    // Formats panics. A failed installation only makes them harder to read.
    let panic_hook = color_eyre::config::HookBuilder::blank().display_env_section(false);
    let _ = panic_hook.install();
    let error_kind = cli::run(env::args_os(), &read_environment());
    error_kind.map_or(ExitCode::SUCCESS, |kind| kind.exit_code().into())
}

fn read_environment() -> Environment {
    let path_variable = |name| env::var_os(name).map(PathBuf::from);
    let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .filter_map(env::var_os)
        .find(|value| !value.is_empty());
    let uid = get_effective_uid();
    // Without the variable, as execvp(3) does.
    let search_path = env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let user = get_effective_username().map(|user| user.to_string_lossy().into_owned());
    let home = env::home_dir().filter(|home| home.is_absolute());
    // A deleted current directory has no path, and relative paths name nothing there. `/proc/self/cwd`
    // would lead to a path that can be created anew, as another directory.
    let cwd = env::current_dir().unwrap_or_else(|_| PathBuf::from("/proc/self/cwd (deleted)"));
    let user_database = system_user_database();
    let trusted_user = TrustedUser {
        uid,
        database: user_database,
    };
    let layouts = Layouts::BUILT_IN;
    Environment {
        temporary_root: TemporaryRoot::new("TMPDIR", cwd.join(env::temp_dir()), trusted_user),
        env: ConfigEnvironment {
            cwd,
            home: home.clone(),
            xdg_config_home: path_variable("XDG_CONFIG_HOME"),
            xdg_state_home: path_variable("XDG_STATE_HOME"),
            config_path_variable: path_variable("MEMORY_SHEPHERD_CONF"),
            program_directory: env::current_exe()
                .ok()
                .and_then(|program| program.parent().map(PathBuf::from)),
            uid,
            user_database,
            layouts: layouts.config_keys(),
        },
        layouts,
        user: user.unwrap_or_else(|| uid.to_string()),
        debug_log: path_variable("MEMORY_SHEPHERD_DEBUG_LOG")
            .filter(|path| !path.as_os_str().is_empty()),
        external_tools: ExternalTools::from_variables(|name| env::var_os(name)),
        runtime_directory: path_variable("XDG_RUNTIME_DIR")
            .filter(|directory| directory.is_absolute()),
        program_path: env::current_exe().unwrap_or_else(|_| "memory-shepherd".into()),
        alerts: AlertEnvironment {
            certificate_file: path_variable("SSL_CERT_FILE"),
            search_path: env::split_paths(&search_path).collect(),
            home,
            is_root: uid == 0,
        },
        is_no_color_set: is_set("NO_COLOR"),
        term: env::var("TERM").unwrap_or_default(),
        colorterm: env::var("COLORTERM").unwrap_or_default(),
        locale: locale.map(|value| value.to_string_lossy().into_owned()),
        is_over_ssh: is_set("SSH_CONNECTION"),
        is_stdin_terminal: io::stdin().is_terminal(),
        is_stdout_terminal: io::stdout().is_terminal(),
        is_stderr_terminal: io::stderr().is_terminal(),
        terminal_columns: rustix::termios::tcgetwinsize(io::stdout())
            .ok()
            .map(|size| usize::from(size.ws_col))
            .filter(|columns| *columns > 0),
        find_group: |name| get_group_by_name(name).map(|group| group.gid()),
        find_account: |uid| {
            let user = get_user_by_uid(uid)?;
            let groups = user.groups().unwrap_or_default();
            Some(UserAccount {
                name: user.name().to_string_lossy().into_owned(),
                groups: groups.iter().map(|group| group.gid()).collect(),
            })
        },
    }
}

fn system_user_database() -> UserDatabase {
    UserDatabase {
        find_private_group,
        find_user_name: |uid| {
            let user = get_user_by_uid(uid)?;
            Some(user.name().to_string_lossy().into_owned())
        },
        find_group_name: |gid| {
            let group = get_group_by_gid(gid)?;
            Some(group.name().to_string_lossy().into_owned())
        },
        find_home: |name| get_user_by_name(name).map(|user| user.home_dir().to_path_buf()),
    }
}

/// Returns the primary group of a user if it is the user's own: it has the user's name and no other
/// member, and no other user has it as the primary group. A directory service need not list its
/// users, so the file of local users cannot answer alone.
fn find_private_group(uid: u32) -> Option<u32> {
    let user = get_user_by_uid(uid)?;
    let gid = user.primary_group_id();
    let group = get_group_by_gid(gid)?;
    let is_of_name = group.name() == user.name();
    let has_other_member = || group.members().iter().any(|name| name != user.name());
    if !is_of_name || has_other_member() {
        return None;
    }
    let accounts = fs::read_to_string("/etc/passwd").ok()?;
    // name:password:uid:gid:...
    let is_of_another = |line: &str| {
        let number = |field| line.split(':').nth(field)?.parse::<u32>().ok();
        number(3) == Some(gid) && number(2) != Some(uid)
    };
    (!accounts.lines().any(is_of_another)).then_some(gid)
}
