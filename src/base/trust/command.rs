//! The files that a command line may run, read or write.
//!
//! What a program does with its words is not known: `timeout`, `flock` and `env` run one of them, an
//! interpreter reads one, a shell is given a text of them. So there is one rule for all: whatever a
//! word may name belongs to the command, with the interpreters in the first lines of what it names.
//! Variables, patterns and what a program does by itself are not followed.

use std::collections::{BTreeSet, HashSet};
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::{TrustedUser, UntrustedPlace, find_program, find_untrusted_lookup};

/// Maximum length of the line that names an interpreter, as in the kernel.
const MAX_INTERPRETER_BYTES: u64 = 256;

/// Maximum length of a path, as in the kernel.
const MAX_PATH_BYTES: usize = 4096;

/// Characters that do not end a path within a text, beside letters and digits.
const PATH_CHARACTERS: &str = "/._-~+";

/// Characters that separate the words of a shell.
const WORD_SEPARATORS: &[char] = &[
    ' ', '\t', '\n', '"', '\'', ';', '|', '&', '<', '>', '(', ')',
];

/// Open files of the process that uses these names, whatever they lead to for this one.
const OWN_FILES: [&str; 5] = [
    "/dev/stdin",
    "/dev/stdout",
    "/dev/stderr",
    "/dev/fd",
    "/proc/self/fd",
];

/// The first line of a script.
#[derive(Debug, PartialEq, Eq)]
pub struct InterpreterLine {
    /// Path of the interpreter.
    pub interpreter: String,
    /// The rest of the line, which is one argument.
    argument: Option<String>,
}

/// Reads the line with which the kernel finds the interpreter of a script; none for other files.
pub fn read_interpreter_line(path: &Path) -> Option<InterpreterLine> {
    // To open a device or a FIFO may do something.
    std::fs::metadata(path).ok().filter(|meta| meta.is_file())?;
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags(libc::O_NONBLOCK);
    let mut beginning = Vec::new();
    let mut file = options.open(path).ok()?.take(MAX_INTERPRETER_BYTES);
    file.read_to_end(&mut beginning).ok()?;
    let text = String::from_utf8_lossy(&beginning);
    let blanks = [' ', '\t'];
    let line = text
        .lines()
        .next()?
        .strip_prefix("#!")?
        .trim_matches(blanks);
    let (interpreter, argument) = line.split_once(blanks).unwrap_or((line, ""));
    let argument = argument.trim_start_matches(blanks);
    Some(InterpreterLine {
        interpreter: interpreter.to_string(),
        argument: (!argument.is_empty()).then(|| argument.to_string()),
    })
}

/// Where a command looks for what its words name.
#[derive(Clone, Copy, Debug)]
pub struct CommandPlaces<'a> {
    /// The working directory.
    pub directory: &'a Path,
    /// What `~/` stands for.
    pub home: Option<&'a Path>,
    /// Where a program without a directory is looked for.
    pub search_path: &'a [PathBuf],
}

/// Returns the first place that belongs to a command and that another user can change.
///
/// A word may name a path: absolute, in the home, or something that exists in the working directory or
/// in a directory that another word names. It may name a program of the search path, which another
/// user could plant in a directory before. It may do so as a whole or in part: `--file=PATH`,
/// `-fPATH`, `cat PATH; . "PATH"`.
pub fn find_untrusted_in_command(
    words: &[String],
    places: CommandPlaces<'_>,
    user: TrustedUser,
) -> Option<UntrustedPlace> {
    let mut files = CommandFiles {
        places,
        user,
        names: words.iter().flat_map(|it| names_for_shell(it)).collect(),
        directories: BTreeSet::from([places.directory.to_path_buf()]),
        examined: HashSet::new(),
    };
    // What is found may name more: in the first line of a script, or as a directory.
    loop {
        let size = files.examined.len();
        if let Some(place) = files.examine_names() {
            return Some(place);
        }
        if files.examined.len() == size {
            return None;
        }
    }
}

/// Returns the names in a word, also those in its text without quotes: a shell joins quoted text to the
/// text beside it.
fn names_for_shell(word: &str) -> BTreeSet<String> {
    let mut names = possible_names(word);
    if word.contains(['"', '\'']) {
        names.extend(possible_names(&word.replace(['"', '\''], "")));
    }
    names
}

/// Returns what a word may name, in whole or in part.
fn possible_names(word: &str) -> BTreeSet<String> {
    let is_end = |it: char| !it.is_alphanumeric() && !PATH_CHARACTERS.contains(it);
    let mut names = BTreeSet::new();
    let mut is_option = false;
    let mut before = None;
    for (at, character) in word.char_indices() {
        let is_start = before.is_none_or(is_end);
        if is_start {
            is_option = character == '-';
        }
        let is_part = is_start || is_option;
        // A value may follow any letter of an option, and does not begin within a path.
        is_option &= character != '/';
        before = Some(character);
        if !is_part {
            continue;
        }
        let rest = &word[at..];
        let ends = [rest.find(is_end), rest.find(WORD_SEPARATORS), None];
        let parts = ends.map(|end| &rest[..end.unwrap_or(rest.len())]);
        let parts = parts.into_iter().filter(|it| it.len() <= MAX_PATH_BYTES);
        names.extend(parts.map(str::to_string));
    }
    names.remove("");
    names
}

/// The files of a command, as far as they are known.
struct CommandFiles<'a> {
    places: CommandPlaces<'a>,
    user: TrustedUser,
    /// What the words may name.
    names: BTreeSet<String>,
    /// The directories that they name, and the working directory.
    directories: BTreeSet<PathBuf>,
    /// The paths that were examined.
    examined: HashSet<PathBuf>,
}

impl CommandFiles<'_> {
    /// Examines what the names lead to, and adds what that names.
    fn examine_names(&mut self) -> Option<UntrustedPlace> {
        let mut paths: Vec<PathBuf> = Vec::new();
        for name in &self.names {
            if let Some(path) = self.path_in_home(name) {
                paths.push(path);
            } else if name.starts_with('/') {
                paths.push(PathBuf::from(name));
            } else {
                let found = self.directories.iter().map(|it| it.join(name));
                paths.extend(found.filter(|it| it.symlink_metadata().is_ok()));
                paths.extend(self.search_program(name));
            }
        }
        paths.into_iter().find_map(|path| self.examine(path))
    }

    /// Returns what `~/PATH` and `~USER/PATH` name to a shell.
    fn path_in_home(&self, name: &str) -> Option<PathBuf> {
        let (user, rest) = match name.strip_prefix('~')?.split_once('/') {
            Some((user, rest)) => (user, Path::new(rest)),
            None => (&name[1..], Path::new("")),
        };
        let home = match user {
            "" => self.places.home?.to_path_buf(),
            user => (self.user.database.find_home)(user)?,
        };
        Some(home.join(rest))
    }

    /// Returns the program of a name, and the directories in which another user could plant one
    /// before it is looked for; nothing where there is no such program.
    fn search_program(&self, name: &str) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        if !name.contains('/') {
            for place in self.places.search_path {
                let place = self.places.directory.join(place);
                let found = find_program(name, self.places.directory, [&place]);
                paths.push(place);
                if found.is_some() {
                    paths.extend(found);
                    return paths;
                }
            }
        }
        Vec::new()
    }

    /// Examines a path, and adds what it names.
    fn examine(&mut self, path: PathBuf) -> Option<UntrustedPlace> {
        let is_own_file = OWN_FILES.iter().any(|it| path.starts_with(it));
        if is_own_file || !self.examined.insert(path.clone()) {
            return None;
        }
        if let Some(place) = find_untrusted_lookup(&path, self.user) {
            return Some(place);
        }
        if path.is_dir() {
            // A directory may have endless names, by a symlink to itself.
            self.directories.extend(path.canonicalize());
        } else if let Some(line) = read_interpreter_line(&path) {
            let texts = std::iter::once(line.interpreter).chain(line.argument);
            self.names.extend(texts.flat_map(|it| possible_names(&it)));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;
    use crate::base::trust::find_untrusted_ancestor;
    use crate::skip::skip_unsupported;

    /// A directory of root with programs, one of which another user owns.
    struct Scene {
        temporary: tempfile::TempDir,
    }

    const OTHER_USER: u32 = 4711;

    /// None, and says so, where this process is not root.
    fn scene() -> Option<Scene> {
        let temporary = tempfile::tempdir().unwrap();
        if find_untrusted_ancestor(temporary.path(), TrustedUser::ROOT).is_some() {
            skip_unsupported("the temporary directory does not belong to root alone");
            return None;
        }
        let scene = Scene { temporary };
        for directory in ["bin", "theirs", "shared"] {
            fs::create_dir(scene.path(directory)).unwrap();
        }
        if chown(scene.path("theirs"), Some(OTHER_USER), None).is_err() {
            skip_unsupported("only root can give directories away");
            return None;
        }
        let sticky = fs::Permissions::from_mode(0o1777);
        fs::set_permissions(scene.path("shared"), sticky).unwrap();
        scene.add("theirs/tool", "");
        scene.add("bin/tool", "");
        scene.add("ours", "");
        Some(scene)
    }

    impl Scene {
        fn path(&self, name: &str) -> PathBuf {
            self.temporary.path().join(name)
        }

        fn add(&self, name: &str, text: &str) {
            let path = self.path(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }

        /// In a command, `{}` is the path of the scene.
        fn is_trusted(&self, command: &str, search_path: &[&str]) -> bool {
            let root = self.temporary.path();
            let command = command.replace("{}", &root.display().to_string());
            let words = shell_words::split(&command).unwrap();
            let search_path = search_path.iter().map(|it| self.path(it));
            let search_path: Vec<PathBuf> = search_path.chain(["/usr/bin".into()]).collect();
            let places = CommandPlaces {
                directory: root,
                home: Some(root),
                search_path: &search_path,
            };
            find_untrusted_in_command(&words, places, TrustedUser::ROOT).is_none()
        }

        /// Checks that a command is refused because of the other user, and not of its form.
        fn assert_refused(&self, command: &str) {
            assert!(!self.is_trusted(command, &["bin"]), "{command}");
            let ours = command.replace("theirs/tool", "bin/tool");
            let ours = ours.replace("theirs", "bin");
            assert!(self.is_trusted(&ours, &["bin"]), "{ours}");
        }
    }

    #[test]
    fn script_behind_options_belongs_to_the_command() {
        let Some(scene) = scene() else { return };
        for command in [
            "sh theirs/tool -c x",
            "sh -e theirs/tool",
            "bash -o pipefail theirs/tool",
            "python3 -Wonce theirs/tool",
            "perl -MEncode theirs/tool",
            "ruby -rset theirs/tool",
            "nodejs theirs/tool",
            "busybox sh theirs/tool",
            "awk -f theirs/tool",
            "awk -ftheirs/tool",
            "awk --file=theirs/tool",
            "sh -ec 'cat \"$0\"' theirs/tool",
        ] {
            scene.assert_refused(command);
        }
    }

    #[test]
    fn program_behind_wrapper_belongs_to_the_command() {
        let Some(scene) = scene() else { return };
        for command in [
            "timeout 5 theirs/tool",
            "nice -n5 {}/theirs/tool",
            "nohup theirs/tool",
            "setsid -w theirs/tool",
            "ionice -c 3 theirs/tool",
            "stdbuf -oL theirs/tool",
            "flock /run/lock-of-none theirs/tool",
            "setpriv --reuid=0 theirs/tool",
            "chroot theirs tool",
            "/lib64/ld-linux-x86-64.so.2 theirs/tool",
            "wrapper-of-none wrapper-of-none theirs/tool",
        ] {
            scene.assert_refused(command);
        }
        // A wrapper looks for the program by itself.
        let command = "/usr/bin/timeout 5 tool";
        assert!(!scene.is_trusted(command, &["theirs", "bin"]));
        assert!(scene.is_trusted(command, &["bin", "theirs"]));
    }

    #[test]
    fn home_of_another_user_belongs_to_the_command() {
        let user = TrustedUser {
            database: crate::base::trust::UserDatabase {
                find_home: |name| (name == "other").then(|| PathBuf::from("/var/tmp")),
                ..crate::base::trust::UserDatabase::EMPTY
            },
            ..TrustedUser::ROOT
        };
        let places = CommandPlaces {
            directory: Path::new("/"),
            home: None,
            search_path: &[],
        };
        for (word, is_trusted) in [
            ("~other/tool", false),
            ("cd ~other && ./tool", false),
            ("~nobody-here/tool", true),
        ] {
            let found = find_untrusted_in_command(&[word.to_string()], places, user);
            assert_eq!(found.is_none(), is_trusted, "{word}");
        }
    }

    #[test]
    fn paths_in_text_of_shell_belong_to_the_command() {
        let Some(scene) = scene() else { return };
        for command in [
            "sh -c theirs/tool",
            "sh -c 'cat | theirs/tool'",
            "sh -c '. \"{}/theirs/tool\"; true'",
            "sh -c 'x=$(theirs/tool)&&:'",
            "sh -c '~/theirs/tool'",
            "sh -c 'curl --data @theirs/tool https://example.org/a'",
            "sh -c 'cat >{}/theirs/new'",
            "sh -c 'cat {}/theirs/*'",
            "sh -c 'cd theirs && ./tool'",
        ] {
            scene.assert_refused(command);
        }
        // A shell joins quoted text to the text beside it.
        for (directory, is_trusted) in [("the\"\"irs", false), ("b\"\"in", true)] {
            let command = format!("sh -c '{{}}/{directory}/tool'");
            assert_eq!(
                scene.is_trusted(&command, &["bin"]),
                is_trusted,
                "{command}"
            );
        }
    }

    #[test]
    fn settings_of_env_belong_to_the_command() {
        let Some(scene) = scene() else { return };
        for command in [
            "env PYTHONPATH={}/theirs ours",
            "env LD_PRELOAD=/none:{}/theirs/tool ours",
            "env -i PATH={}/theirs tool",
            "env -u HOME theirs/tool",
            "env -C theirs ./tool",
            "env -Ctheirs ./tool",
            "env -vC{}/theirs ./tool",
            "env --chdir=theirs ./tool",
            "env --split-string='theirs/tool -x'",
            "env -S'theirs/tool -x'",
            "env -- A=1 theirs/tool",
            "env env theirs/tool",
        ] {
            scene.assert_refused(command);
        }
    }

    #[test]
    fn interpreter_of_another_user_is_found() {
        let Some(scene) = scene() else { return };
        let theirs = scene.path("theirs/tool");
        scene.add("notify", &format!("#!{}\n", theirs.display()));
        let notify = scene.path("notify");
        scene.add("outer", &format!("#! {} -x\n", notify.display()));
        scene.add("fine", "#!/bin/sh\n");
        assert!(!scene.is_trusted("./notify", &[]));
        assert!(
            !scene.is_trusted("./outer", &[]),
            "an interpreter of an interpreter"
        );
        assert!(!scene.is_trusted("timeout 5 ./outer", &[]), "a wrapper");
        assert!(scene.is_trusted("./fine", &[]));
    }

    #[test]
    fn program_that_env_finds_belongs_to_the_command() {
        let Some(scene) = scene() else { return };
        for first_line in [
            "#!/usr/bin/env tool",
            "#!/usr/bin/env -S tool -u",
            "#!/usr/bin/env -Stool -u",
            "#!/usr/bin/env -vS A=1 tool",
        ] {
            scene.add("notify", &format!("{first_line}\n"));
            assert!(
                !scene.is_trusted("./notify", &["theirs", "bin"]),
                "{first_line}"
            );
            assert!(
                scene.is_trusted("./notify", &["bin", "theirs"]),
                "{first_line}"
            );
        }
    }

    #[test]
    fn directory_searched_before_is_examined() {
        let Some(scene) = scene() else { return };
        // The other user could put it there before the command looks.
        fs::remove_file(scene.path("theirs/tool")).unwrap();
        for command in ["tool", "/usr/bin/env tool", "/bin/sh -c 'tool; :'"] {
            assert!(!scene.is_trusted(command, &["theirs", "bin"]), "{command}");
            assert!(!scene.is_trusted(command, &["shared", "bin"]), "{command}");
            assert!(scene.is_trusted(command, &["bin", "theirs"]), "{command}");
        }
    }

    #[test]
    fn file_in_sticky_directory_is_untrusted() {
        let Some(scene) = scene() else { return };
        scene.add("shared/ours", "");
        fs::create_dir(scene.path("shared/own")).unwrap();
        scene.add("shared/own/tool", "");
        // It may be a hard link to another program of root, and a missing one may become that.
        for command in [
            "shared/ours",
            "sh -c 'cat >{}/shared/new'",
            "env PYTHONPATH={}/shared ours",
        ] {
            assert!(!scene.is_trusted(command, &["bin"]), "{command}");
        }
        assert!(scene.is_trusted("shared/own/tool", &["bin"]));
    }

    #[test]
    fn harmless_words_of_commands_are_trusted() {
        let Some(scene) = scene() else { return };
        for command in [
            "ours --severity critical -vvv",
            "logger -t memory-shepherd -p daemon.crit",
            "curl --data @/dev/stdin https://chat.example.org/hooks/T0/B1?a=b&c=/d",
            "sh -c 'jq \"{text: .message}\" | curl --json @- https://example.org/a/b'",
            "sh -c 'cat >/dev/null 2>/dev/full; sed s/theirs/ours/g'",
        ] {
            assert!(scene.is_trusted(command, &["bin"]), "{command}");
        }
    }

    #[test]
    fn files_that_name_one_another_end() {
        let Some(scene) = scene() else { return };
        scene.add("loop", &format!("#!{}\n", scene.path("loop").display()));
        symlink(".", scene.path("again")).unwrap();
        assert!(scene.is_trusted("./loop again ./again loop/again", &[]));
        let long = "-".repeat(400);
        assert!(scene.is_trusted(&format!("ours {long}"), &[]));
    }
}
