//! The files that decide what a command runs: its program, the interpreters of its first line, what
//! `env` finds, and the script that a shell or another interpreter is given.

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::{TrustedUser, UntrustedPlace, find_program, find_untrusted_ancestor};

/// Maximum length of the line that names an interpreter, as in the kernel.
const MAX_INTERPRETER_BYTES: u64 = 256;

/// How many programs may lead to one another. The kernel follows fewer interpreters.
const MAX_CHAIN_LENGTH: usize = 8;

/// Where a process without `PATH` looks for a program, as in execvp(3).
const DEFAULT_SEARCH_PATH: [&str; 2] = ["/bin", "/usr/bin"];

/// Names of programs that run the first argument that names a file, without a version behind them, and
/// the letter of the option that runs a text instead.
const INTERPRETERS: [(&str, char); 14] = [
    ("sh", 'c'),
    ("ash", 'c'),
    ("bash", 'c'),
    ("dash", 'c'),
    ("ksh", 'c'),
    ("mksh", 'c'),
    ("zsh", 'c'),
    ("fish", 'c'),
    ("python", 'c'),
    ("perl", 'e'),
    ("ruby", 'e'),
    ("node", 'e'),
    ("lua", 'e'),
    ("php", 'r'),
];

/// Options of `env` that have a value of their own, short and long.
const ENV_VALUE_OPTIONS: [(char, &str); 4] = [
    ('u', "unset"),
    ('C', "chdir"),
    ('a', "argv0"),
    ('S', "split-string"),
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
    // The path may lead to a FIFO.
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

/// A command that is about to be run, and where its programs are looked for.
struct CommandStep {
    words: Vec<String>,
    directory: PathBuf,
    search_path: Vec<PathBuf>,
    /// Whether another program looks for this one, at a moment of its own.
    is_searched_later: bool,
}

/// Returns the first place that decides what a command runs and that another user can change. The
/// command starts in `directory`, and its programs are looked for in `search_path`.
pub fn find_untrusted_in_command(
    words: &[String],
    directory: &Path,
    search_path: impl IntoIterator<Item = impl AsRef<Path>>,
    user: TrustedUser,
) -> Option<UntrustedPlace> {
    let search_path = search_path.into_iter().map(|it| it.as_ref().to_path_buf());
    let mut step = CommandStep {
        words: words.to_vec(),
        directory: directory.to_path_buf(),
        search_path: search_path.collect(),
        is_searched_later: false,
    };
    for _ in 0..MAX_CHAIN_LENGTH {
        let mut examined = step.searched_directories();
        let program = step.words.first()?;
        let found = find_program(program, &step.directory, &step.search_path);
        examined.extend(found.clone());
        examined.extend(found.as_ref().and_then(|found| step.find_script(found)));
        let mut places = examined.iter();
        if let Some(place) = places.find_map(|path| find_untrusted_ancestor(path, user)) {
            return Some(place);
        }
        step = step.next(&found?)?;
    }
    None
}

impl CommandStep {
    /// Returns the directories in which another user could plant the program before it is looked for.
    fn searched_directories(&self) -> Vec<PathBuf> {
        let has_directory = self.words.first().is_some_and(|it| it.contains('/'));
        if has_directory || !self.is_searched_later {
            return Vec::new();
        }
        let mut directories = Vec::new();
        for place in &self.search_path {
            let place = self.directory.join(place);
            let has_program = self
                .words
                .first()
                .is_some_and(|name| find_program(name, &self.directory, [&place]).is_some());
            directories.push(place);
            if has_program {
                break;
            }
        }
        directories
    }

    /// Returns the file that an interpreter is given to run.
    fn find_script(&self, program: &Path) -> Option<PathBuf> {
        let name = program.file_name()?.to_str()?;
        // For example `python3.11`.
        let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        let (_, text_option) = INTERPRETERS.iter().find(|(known, _)| *known == name)?;
        let arguments = self.words.get(1..)?;
        let is_text_option = |it: &str| {
            let letters = it.strip_prefix('-').filter(|it| !it.starts_with('-'));
            letters.is_some_and(|letters| letters.contains(*text_option))
        };
        // What follows the script are its own arguments.
        let before_text = arguments.iter().take_while(|it| !is_text_option(it));
        let mut files = before_text.map(|it| self.directory.join(it));
        files.find(|file| file.is_file())
    }

    /// Returns what a program runs in its place, as far as that can be known.
    fn next(self, program: &Path) -> Option<CommandStep> {
        if program.file_name().is_some_and(|name| name == "env") {
            return self.command_of_env();
        }
        let line = read_interpreter_line(program)?;
        let script = program.to_string_lossy().into_owned();
        // The kernel looks for it nowhere else.
        let interpreter = self.directory.join(line.interpreter);
        let words = std::iter::once(interpreter.to_string_lossy().into_owned())
            .chain(line.argument)
            .chain([script])
            .chain(self.words.into_iter().skip(1));
        Some(CommandStep {
            words: words.collect(),
            ..self
        })
    }

    /// Returns the command that `env` runs.
    fn command_of_env(mut self) -> Option<CommandStep> {
        self.is_searched_later = true;
        let mut rest: VecDeque<String> = self.words.drain(1..).collect();
        let mut is_behind_options = false;
        while let Some(word) = rest.pop_front() {
            let is_option = word.starts_with('-') && !is_behind_options;
            if is_option {
                match EnvOption::parse(&word) {
                    EnvOption::End => is_behind_options = true,
                    EnvOption::IgnoreEnvironment => self.use_default_search_path(),
                    EnvOption::WithValue { name, value } => {
                        let value = match value {
                            Some(value) => value,
                            None => rest.pop_front()?,
                        };
                        match name {
                            'S' => {
                                let words = shell_words::split(&value).ok()?;
                                words.into_iter().rev().for_each(|it| rest.push_front(it));
                            }
                            'C' => self.directory = self.directory.join(value),
                            'u' if value == "PATH" => self.use_default_search_path(),
                            _ => {}
                        }
                    }
                    EnvOption::Other => {}
                }
                continue;
            }
            is_behind_options = true;
            match word.split_once('=') {
                Some(("PATH", value)) => {
                    self.search_path = value.split(':').map(PathBuf::from).collect();
                }
                Some(_) => {}
                None => {
                    rest.push_front(word);
                    self.words = rest.into();
                    return Some(self);
                }
            }
        }
        None
    }

    fn use_default_search_path(&mut self) {
        self.search_path = DEFAULT_SEARCH_PATH.map(PathBuf::from).to_vec();
    }
}

/// An option of `env`.
enum EnvOption {
    /// No option follows.
    End,
    IgnoreEnvironment,
    WithValue {
        /// Its short form.
        name: char,
        /// Its value, if that is in the same word.
        value: Option<String>,
    },
    Other,
}

impl EnvOption {
    fn parse(word: &str) -> EnvOption {
        match word {
            "--" => return EnvOption::End,
            "-" => return EnvOption::IgnoreEnvironment,
            _ => {}
        }
        if let Some(long) = word.strip_prefix("--") {
            let (long, value) = match long.split_once('=') {
                Some((long, value)) => (long, Some(value.to_string())),
                None => (long, None),
            };
            // An abbreviation is accepted, as everywhere in GNU programs.
            let mut options = ENV_VALUE_OPTIONS.into_iter();
            return match options.find(|(_, name)| name.starts_with(long)) {
                Some((name, _)) => EnvOption::WithValue { name, value },
                None if "ignore-environment".starts_with(long) => EnvOption::IgnoreEnvironment,
                None => EnvOption::Other,
            };
        }
        // Short options may share a word, the last one with its value.
        let mut ignores_environment = false;
        let letters = word.char_indices().skip(1);
        for (at, letter) in letters {
            if ENV_VALUE_OPTIONS.iter().any(|(name, _)| *name == letter) {
                let value = &word[at + letter.len_utf8()..];
                let value = (!value.is_empty()).then(|| value.to_string());
                return EnvOption::WithValue {
                    name: letter,
                    value,
                };
            }
            ignores_environment |= letter == 'i';
        }
        if ignores_environment {
            EnvOption::IgnoreEnvironment
        } else {
            EnvOption::Other
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    /// A directory of root with programs, one of which another user owns.
    struct Scene {
        temporary: tempfile::TempDir,
    }

    const OTHER_USER: u32 = 4711;

    /// None where this process cannot give files away.
    fn scene() -> Option<Scene> {
        let temporary = tempfile::tempdir().unwrap();
        if find_untrusted_ancestor(temporary.path(), TrustedUser::ROOT).is_some() {
            return None;
        }
        let scene = Scene { temporary };
        for directory in ["bin", "theirs"] {
            fs::create_dir(scene.path(directory)).unwrap();
        }
        chown(scene.path("theirs"), Some(OTHER_USER), None).ok()?;
        scene.add("theirs/tool", "");
        scene.add("bin/tool", "");
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

        fn is_trusted(&self, command: &str, search_path: &[&str]) -> bool {
            let words = shell_words::split(command).unwrap();
            let search_path = search_path.iter().map(|it| self.path(it));
            let search_path: Vec<PathBuf> = search_path.chain(["/usr/bin".into()]).collect();
            let user = TrustedUser::ROOT;
            find_untrusted_in_command(&words, self.temporary.path(), search_path, user).is_none()
        }
    }

    #[test]
    fn interpreter_of_another_user_is_found() {
        let Some(scene) = scene() else { return };
        let theirs = scene.path("theirs/tool");
        scene.add("notify", &format!("#!{}\n", theirs.display()));
        scene.add(
            "outer",
            &format!("#! {} -x\n", scene.path("notify").display()),
        );
        scene.add("fine", "#!/bin/sh\n");
        assert!(!scene.is_trusted("./notify", &[]));
        assert!(
            !scene.is_trusted("./outer", &[]),
            "an interpreter of an interpreter"
        );
        assert!(scene.is_trusted("./fine", &[]));
        assert!(!scene.is_trusted("sh -e theirs/tool", &[]), "a script");
        assert!(!scene.is_trusted("bash -o pipefail theirs/tool", &[]));
        // What a text does with its arguments is not known.
        assert!(scene.is_trusted("sh -ec 'cat \"$0\"' theirs/tool", &[]));
        assert!(!scene.is_trusted("sh theirs/tool -c x", &[]));
        assert!(scene.is_trusted("cat theirs/tool", &[]));
    }

    #[test]
    fn program_that_env_finds_belongs_to_the_command() {
        let Some(scene) = scene() else { return };
        let theirs = scene.path("theirs").display().to_string();
        for first_line in [
            "#!/usr/bin/env tool".to_string(),
            "#!/usr/bin/env -S tool -u".to_string(),
            "#!/usr/bin/env -vS A=1 tool".to_string(),
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
        let set_path = format!("env -i PATH={theirs} tool");
        for command in [
            set_path.as_str(),
            "env -u HOME theirs/tool",
            "env -C theirs ./tool",
            "env --chdir=theirs ./tool",
            "env --split-string='theirs/tool -x'",
            "env -- A=1 theirs/tool",
            "env env theirs/tool",
        ] {
            assert!(!scene.is_trusted(command, &["bin"]), "{command}");
        }
        assert!(scene.is_trusted("env A=1 tool theirs/tool", &["bin"]));
    }

    #[test]
    fn directory_where_env_could_find_is_examined() {
        let Some(scene) = scene() else { return };
        // The other user could put it there before `env` looks.
        fs::remove_file(scene.path("theirs/tool")).unwrap();
        assert!(!scene.is_trusted("env tool", &["theirs", "bin"]));
        assert!(scene.is_trusted("env tool", &["bin", "theirs"]));
    }

    #[test]
    fn scripts_that_run_one_another_end() {
        let Some(scene) = scene() else { return };
        scene.add("loop", &format!("#!{}\n", scene.path("loop").display()));
        assert!(scene.is_trusted("./loop", &[]));
    }
}
