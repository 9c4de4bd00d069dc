//! Key bindings: rejects key sequences that cannot work, and resolves a sequence to a command
//! in a context. Defaults come from the command table; the operator's overrides replace them
//! per command. Does not read the preferences file and holds no typed keys.

use super::key::{Key, KeyCode, format_sequence, parse_sequence};
use crate::console::command::{self, COMMAND_TABLE, Command, CommandSpec, KeyContext};
use crate::console::preferences::setting_error::SettingError;

/// Keys that never reach the console, and what intercepts them.
const RESERVED_KEYS: &[(&str, &str)] = &[
    ("^s", "terminals pause output with it"),
    ("^q", "terminals resume output with it"),
    ("^h", "terminals send it for Backspace"),
    ("^i", "terminals send it for Tab"),
    ("^j", "terminals send it for Enter"),
    ("^m", "terminals send it for Enter"),
    ("^a", "screen and tmux intercept it"),
    ("^g", "zellij intercepts it"),
    ("^p", "zellij intercepts it"),
    ("^t", "zellij intercepts it"),
    ("^n", "zellij intercepts it"),
    ("^o", "zellij intercepts it"),
    ("F10", "terminals open their menu with it"),
    ("F11", "terminals toggle full screen with it"),
];

/// Default prefix of tmux; allowed only as one of several keys of a command.
const TMUX_PREFIX: Key = Key {
    code: KeyCode::Char('b'),
    has_ctrl: true,
};

/// The key that confirms a plan.
pub const CONFIRM_KEY: char = 'y';

/// Checks the key list of a command as a whole, after [`check_sequence`] accepted each one.
///
/// # Errors
/// The reason why the command cannot have exactly these keys.
pub fn check_sequences(command: Command, sequences: &[Vec<Key>]) -> Result<(), SettingError> {
    let id = command::spec_of(command).id;
    match sequences {
        [] if is_confirmation(command) => refuse_fixed_key(id),
        [] if matches!(command, Command::Quit | Command::Help) => Err(SettingError::new(
            format!("{id} needs at least one key"),
            "",
        )),
        [one] if one.contains(&TMUX_PREFIX) => refuse_tmux_prefix(),
        _ => Ok(()),
    }
}

/// Whether a command confirms what is shown, for which the key is fixed.
fn is_confirmation(command: Command) -> bool {
    matches!(command, Command::ConfirmPlan | Command::ConfirmSave)
}

fn refuse_fixed_key(id: &str) -> Result<(), SettingError> {
    Err(SettingError::new(
        format!("{id} is always `{CONFIRM_KEY}`"),
        "the confirmation key is fixed, so that a mistyped key never confirms",
    ))
}

fn refuse_tmux_prefix() -> Result<(), SettingError> {
    Err(SettingError::new(
        format!("`{TMUX_PREFIX}` is the prefix of tmux"),
        "use it only as one of several keys of a command",
    ))
}

/// Checks that a command may have this key sequence.
///
/// # Errors
/// The reason why not.
pub fn check_sequence(command: Command, sequence: &[Key]) -> Result<(), SettingError> {
    let id = command::spec_of(command).id;
    let refuse = |message: String, hint: &str| Err(SettingError::new(message, hint));
    if is_confirmation(command) && sequence != [Key::from_code(KeyCode::Char(CONFIRM_KEY))] {
        return refuse_fixed_key(id);
    }
    for key in sequence {
        let name = key.to_string();
        if let Some((_, by)) = RESERVED_KEYS.iter().find(|(taken, _)| *taken == name) {
            return refuse(format!("`{name}` never reaches the console: {by}"), "");
        }
        if *key == TMUX_PREFIX && sequence.len() > 1 {
            return refuse_tmux_prefix();
        }
        if key.code == KeyCode::Esc && (command != Command::GoBack || sequence.len() > 1) {
            return refuse("`Esc` always goes back".to_string(), "choose another key");
        }
    }
    let is_enter_or_space = matches!(sequence.last(), Some(key)
            if key.code == KeyCode::Enter || key.printable_char() == Some(' '));
    if is_enter_or_space
        && command::spec_of(command)
            .contexts
            .contains(&KeyContext::Plan)
        && command::spec_of(command).category == command::CommandCategory::Actions
    {
        return refuse(
            format!("`{id}` cannot be Enter or Space: they do nothing at a plan"),
            "",
        );
    }
    let is_confirm_key = sequence.last().and_then(|key| key.printable_char()) == Some(CONFIRM_KEY);
    if is_confirm_key && command::requests_plan(command) {
        return refuse(
            format!("`{CONFIRM_KEY}` confirms a plan, so it cannot open one"),
            "a held key must never confirm the plan that it opened",
        );
    }
    Ok(())
}

/// Meaning of a key sequence in a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyMeaning {
    /// Complete sequence of this command.
    Command(Command),
    /// Prefix of at least one longer sequence.
    Prefix,
    /// Not bound.
    Unbound,
}

/// The keys of every command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keymap {
    /// In the order of the command table; an added command last.
    bindings: Vec<KeyBinding>,
    /// What is bound in each context, apart from what is bound in `Any`: footers ask for it in every
    /// frame. Commands of the editor's text come first.
    by_context: Vec<Vec<BoundSequence>>,
}

/// A sequence, as the places of its binding and of itself in that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BoundSequence {
    binding: usize,
    sequence: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct KeyBinding {
    spec: &'static CommandSpec,
    sequences: Vec<Vec<Key>>,
    default_sequences: Vec<Vec<Key>>,
}

/// Conflict: two commands whose sequences overlap in a shared context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyConflict {
    /// Overridden command; it keeps its defaults.
    pub command: Command,
    /// The rejected keys.
    pub keys: Vec<Key>,
    /// The command that has overlapping keys.
    pub other_command: Command,
    /// Its keys: equal to `keys`, a prefix of them, or an extension.
    pub other_keys: Vec<Key>,
}

impl Default for Keymap {
    fn default() -> Keymap {
        Keymap::of_bindings(COMMAND_TABLE.iter().map(KeyBinding::new).collect())
    }
}

impl Keymap {
    fn of_bindings(bindings: Vec<KeyBinding>) -> Keymap {
        let mut by_context = vec![Vec::new(); KeyContext::ALL.len()];
        for is_of_editor in [true, false] {
            let of_kind = |(_, it): &(usize, &KeyBinding)| it.is_of_editor() == is_of_editor;
            for (binding, it) in bindings.iter().enumerate().filter(of_kind) {
                let places = 0..it.sequences.len();
                let sequences = places.map(|sequence| BoundSequence { binding, sequence });
                for context in it.spec.contexts {
                    by_context[*context as usize].extend(sequences.clone());
                }
            }
        }
        Keymap {
            bindings,
            by_context,
        }
    }

    /// Returns the defaults with the overrides applied, in file order. A command whose
    /// override conflicts keeps its defaults and is reported.
    pub fn with_overrides(
        mut overrides: Vec<(Command, Vec<Vec<Key>>)>,
    ) -> (Keymap, Vec<KeyConflict>) {
        let mut conflicts = Vec::new();
        loop {
            let mut bindings: Vec<KeyBinding> = COMMAND_TABLE.iter().map(KeyBinding::new).collect();
            for (command, keys) in &overrides {
                if let Some(binding) = bindings.get_mut(*command as usize) {
                    binding.set_sequences(keys.clone());
                }
            }
            let keymap = Keymap::of_bindings(bindings);
            let is_overridden = |command| overrides.iter().any(|(it, _)| *it == command);
            let found: Vec<KeyConflict> = overrides
                .iter()
                .rev()
                .filter_map(|(command, _)| keymap.find_conflict(*command, &is_overridden))
                .collect();
            // A conflict with an unchanged command cannot be resolved by dropping another.
            let unavoidable = found
                .iter()
                .find(|conflict| !is_overridden(conflict.other_command));
            let Some(conflict) = unavoidable.or(found.first()).cloned() else {
                return (keymap, conflicts);
            };
            overrides.retain(|(command, _)| *command != conflict.command);
            conflicts.push(conflict);
        }
    }

    /// Adds a command that is not in the table. It gets its default keys unless an override of the
    /// operator takes one of them.
    pub fn add_command(&mut self, spec: &'static CommandSpec) {
        let mut binding = KeyBinding::new(spec);
        if self
            .bindings
            .iter()
            .any(|it| binding.find_overlap(it).is_some())
        {
            binding.sequences.clear();
        }
        self.bindings.push(binding);
        *self = Keymap::of_bindings(std::mem::take(&mut self.bindings));
    }

    /// Returns the rows of all commands, in the order of help and of the footer.
    pub fn command_specs(&self) -> impl Iterator<Item = &'static CommandSpec> {
        self.bindings.iter().map(|binding| binding.spec)
    }

    /// Returns the row of a command.
    pub fn spec_of(&self, command: Command) -> &'static CommandSpec {
        self.find_binding(command)
            .map_or_else(|| command::spec_of(command), |binding| binding.spec)
    }

    fn find_binding(&self, command: Command) -> Option<&KeyBinding> {
        // The variants have the order of the rows; an added command is the last one.
        self.bindings.get(command as usize)
    }

    /// Returns the conflict of a command, preferring one with an unchanged command.
    fn find_conflict(
        &self,
        command: Command,
        is_overridden: &impl Fn(Command) -> bool,
    ) -> Option<KeyConflict> {
        let own_binding = self.find_binding(command)?;
        let mut found = None;
        for other in self.bindings.iter().filter(|it| it.spec.command != command) {
            let Some((keys, other_keys)) = own_binding.find_overlap(other) else {
                continue;
            };
            let conflict = KeyConflict {
                command,
                keys: keys.clone(),
                other_command: other.spec.command,
                other_keys: other_keys.clone(),
            };
            if !is_overridden(other.spec.command) {
                return Some(conflict);
            }
            found = found.or(Some(conflict));
        }
        found
    }

    /// Returns all sequences of a command; the first one is displayed.
    pub fn sequences(&self, command: Command) -> &[Vec<Key>] {
        self.find_binding(command)
            .map_or(&[], |binding| &binding.sequences)
    }

    /// Returns all sequences of a command as the operator writes them.
    pub fn sequence_texts(&self, command: Command) -> Vec<String> {
        self.sequences(command)
            .iter()
            .map(|keys| format_sequence(keys))
            .collect()
    }

    /// Returns all sequences of a command in one text, separated by two blanks if a sequence
    /// contains a blank itself.
    pub fn joined_sequences(&self, command: Command) -> String {
        join_sequences(&self.sequence_texts(command))
    }

    /// Returns the sequences of a command in one text, without those that mean another command in
    /// `context`.
    pub fn joined_sequences_in(&self, context: KeyContext, command: Command) -> String {
        let texts: Vec<String> = self
            .sequences(command)
            .iter()
            .filter(|keys| !is_typed(context, keys))
            .filter(|keys| {
                let is_here =
                    |(it, own): (Command, &[Key])| it == command && own == keys.as_slice();
                !self.sequences_in_context(context).any(is_here)
                    || self.resolve(context, keys) == KeyMeaning::Command(command)
            })
            .map(|keys| format_sequence(keys))
            .collect();
        join_sequences(&texts)
    }

    /// Returns what a command does, and which of its keys mean another command in one of its
    /// contexts: `Go back one level (h: not in plan)`.
    pub fn title_with_exceptions(&self, command: Command) -> String {
        let spec = self.spec_of(command);
        let mut title = spec.title.to_string();
        for keys in self.sequences(command) {
            let contexts = spec.contexts.iter();
            let taken: Vec<&str> = contexts
                .filter(|context| self.resolve(**context, keys) != KeyMeaning::Command(command))
                .map(|context| context.label())
                .collect();
            if !taken.is_empty() {
                let key = format_sequence(keys);
                title.push_str(&format!(" ({key}: not in {})", taken.join(", ")));
            }
        }
        title
    }

    /// Returns what to press for a command, for use in a message; the palette entry
    /// (`:id`) for a command without a key.
    pub fn key_hint(&self, command: Command) -> String {
        let first = |command| {
            self.sequences(command)
                .first()
                .map(|keys| format_sequence(keys))
        };
        let id = self.spec_of(command).id;
        first(command).unwrap_or_else(|| match first(Command::Palette) {
            Some(palette) => format!("{palette}{id}"),
            None => format!("the command {id}"),
        })
    }

    /// Returns the key that quits at the fleet, for display.
    pub fn exit_key_text(&self) -> String {
        match self.sequences(Command::GoBack).first() {
            Some(keys) if keys.as_slice() != [Key::from_code(KeyCode::Esc)] => {
                format_sequence(keys)
            }
            _ => self.key_hint(Command::Quit),
        }
    }

    /// Whether `key` quits at the fleet.
    pub fn is_exit_key(&self, key: Key) -> bool {
        let first = self.sequences(Command::GoBack).first();
        first.is_some_and(|keys| keys.last() == Some(&key))
    }

    /// Whether the operator changed a command's keys.
    pub fn is_overridden(&self, command: Command) -> bool {
        self.find_binding(command)
            .is_some_and(|binding| binding.sequences != binding.default_sequences)
    }

    /// Resolves `keys` in `context`. A command of the context itself takes precedence over
    /// one of context `Any`, and the editor's own commands over those of several screens.
    pub fn resolve(&self, context: KeyContext, keys: &[Key]) -> KeyMeaning {
        let mut is_prefix = false;
        for (command, sequence) in self.sequences_in_context(context) {
            if sequence == keys {
                return KeyMeaning::Command(command);
            }
            is_prefix |= sequence.starts_with(keys);
        }
        if is_prefix {
            KeyMeaning::Prefix
        } else {
            KeyMeaning::Unbound
        }
    }

    /// Whether `keys` are bound, or begin a bound sequence, in any context.
    pub fn is_bound_anywhere(&self, keys: &[Key]) -> bool {
        let mut sequences = self.bindings.iter().flat_map(|it| &it.sequences);
        sequences.any(|sequence| sequence.starts_with(keys))
    }

    /// Returns the continuations of `keys` in `context`: the rest of each sequence and its
    /// command.
    pub fn continuations(&self, context: KeyContext, keys: &[Key]) -> Vec<(String, Command)> {
        let mut found: Vec<(String, Command)> = Vec::new();
        for (command, sequence) in self.sequences_in_context(context) {
            if let Some(rest) = sequence.strip_prefix(keys).filter(|rest| !rest.is_empty()) {
                let rest = format_sequence(rest);
                if !found.iter().any(|(other, _)| *other == rest) {
                    found.push((rest, command));
                }
            }
        }
        found
    }

    fn sequences_in_context(&self, context: KeyContext) -> impl Iterator<Item = (Command, &[Key])> {
        let of_context = |context: KeyContext| self.by_context[context as usize].iter();
        let bound = of_context(context).chain(of_context(KeyContext::Any));
        bound.map(|place| {
            let binding = &self.bindings[place.binding];
            (binding.spec.command, &*binding.sequences[place.sequence])
        })
    }
}

/// Whether keys type or edit text in a context, so that they reach no command there.
pub fn is_typed(context: KeyContext, keys: &[Key]) -> bool {
    let edits_text = |key: &Key| match (key.code, key.has_ctrl) {
        (KeyCode::Char(c), true) => matches!(c, 'h' | 'w' | 'u'),
        (KeyCode::Esc | KeyCode::BackTab | KeyCode::F(_), _) => false,
        _ => true,
    };
    context == KeyContext::EditorTyping && keys.iter().any(edits_text)
}

fn join_sequences(texts: &[String]) -> String {
    let blanks = texts.iter().any(|text| text.contains(' '));
    texts.join(if blanks { "  " } else { " " })
}

impl KeyBinding {
    /// Binds a command to its default keys.
    fn new(spec: &'static CommandSpec) -> KeyBinding {
        // `default_keys_round_trip_and_are_allowed` proves that all of them parse.
        let keys = spec.keys.iter();
        let defaults: Vec<Vec<Key>> = keys.filter_map(|text| parse_sequence(text).ok()).collect();
        KeyBinding {
            spec,
            sequences: defaults.clone(),
            default_sequences: defaults,
        }
    }

    fn set_sequences(&mut self, mut sequences: Vec<Vec<Key>>) {
        // Esc closes every overlay and leaves every screen.
        let escape = vec![Key::from_code(KeyCode::Esc)];
        if self.spec.command == Command::GoBack && !sequences.contains(&escape) {
            sequences.push(escape);
        }
        self.sequences = sequences;
    }

    /// Whether it is a command of the editor's text.
    fn is_of_editor(&self) -> bool {
        self.spec.contexts.first() == Some(&KeyContext::Editor)
            || self.spec.contexts.first() == Some(&KeyContext::EditorSelection)
    }

    /// Returns the first pair of sequences that cannot both be reached. Overlaps between
    /// defaults are intended.
    fn find_overlap<'a>(&'a self, other: &'a KeyBinding) -> Option<(&'a Vec<Key>, &'a Vec<Key>)> {
        // In the editor its own commands come first, as typed text does: other screens keep the keys
        // that an operator gives them.
        if self.is_of_editor() != other.is_of_editor() {
            return None;
        }
        let is_global = |it: &KeyBinding| it.spec.contexts.contains(&KeyContext::Any);
        let is_shared = |context| other.spec.contexts.contains(context);
        let share_context =
            is_global(self) || is_global(other) || self.spec.contexts.iter().any(is_shared);
        if !share_context {
            return None;
        }
        let pairs = self
            .sequences
            .iter()
            .flat_map(|own| other.sequences.iter().map(move |keys| (own, keys)));
        pairs
            .filter(|(own, keys)| own.starts_with(keys) || keys.starts_with(own))
            .find(|(own, keys)| {
                !(self.default_sequences.contains(own) && other.default_sequences.contains(keys))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(context: KeyContext, text: &str) -> KeyMeaning {
        Keymap::default().resolve(context, &parse_sequence(text).unwrap())
    }

    fn patch(command: Command, keys: &[&str]) -> (Command, Vec<Vec<Key>>) {
        let keys = keys.iter().map(|text| parse_sequence(text).unwrap());
        (command, keys.collect())
    }

    /// Commands that keep their defaults because of a conflict, each with the other command.
    fn conflicts_of(patches: &[(Command, &[&str])]) -> Vec<(Command, Command)> {
        let patches = patches.iter().map(|(command, keys)| patch(*command, keys));
        let (_, conflicts) = Keymap::with_overrides(patches.collect());
        conflicts
            .iter()
            .map(|it| (it.command, it.other_command))
            .collect()
    }

    #[test]
    fn default_keys_round_trip_and_are_allowed() {
        for spec in COMMAND_TABLE {
            let mut all = Vec::new();
            for text in spec.keys {
                let keys =
                    parse_sequence(text).unwrap_or_else(|it| panic!("{it:?} of {}", spec.id));
                assert_eq!(format_sequence(&keys), *text, "{}", spec.id);
                assert_eq!(check_sequence(spec.command, &keys), Ok(()), "{}", spec.id);
                all.push(keys);
            }
            assert_eq!(check_sequences(spec.command, &all), Ok(()), "{}", spec.id);
        }
    }

    #[test]
    fn context_binding_shadows_global_binding() {
        assert_eq!(of(KeyContext::Fleet, "g"), KeyMeaning::Prefix);
        assert_eq!(
            of(KeyContext::Fleet, "gg"),
            KeyMeaning::Command(Command::Top)
        );
        assert_eq!(
            of(KeyContext::Fleet, "X"),
            KeyMeaning::Command(Command::PlanReset)
        );
        assert_eq!(
            of(KeyContext::Fleet, "^c"),
            KeyMeaning::Command(Command::Quit)
        );
        assert_eq!(
            of(KeyContext::Plan, "y"),
            KeyMeaning::Command(Command::ConfirmPlan)
        );
        assert_eq!(of(KeyContext::Fleet, "y"), KeyMeaning::Prefix);
        assert_eq!(
            of(KeyContext::Fleet, "yn"),
            KeyMeaning::Command(Command::CopyName)
        );
        assert_eq!(of(KeyContext::Plan, "Enter"), KeyMeaning::Unbound);
        assert_eq!(of(KeyContext::Plan, "Space"), KeyMeaning::Unbound);
    }

    #[test]
    fn impossible_keys_are_rejected() {
        for (command, text) in [
            (Command::PlanReset, "^s"),
            (Command::PlanReset, "x ^a"),
            (Command::PlanReset, "F11"),
            (Command::PageUp, "^b"),
            (Command::GoLog, "Esc"),
            (Command::GoBack, "g Esc"),
            (Command::PlanReset, "y"),
            (Command::PlanUndo, "gy"),
            (Command::UndoAppend, "y"),
            (Command::UndoAppend, "Enter"),
            (Command::UndoOverwrite, "Space"),
            (Command::KeepHiddenAgents, "Enter"),
            (Command::ConfirmPlan, "Enter"),
            (Command::ConfirmPlan, "Y"),
        ] {
            let keys = parse_sequence(text).unwrap();
            let wrong = check_sequence(command, &keys).and(check_sequences(command, &[keys]));
            assert!(wrong.is_err(), "{text} of {command:?}");
        }
        assert!(check_sequences(Command::ConfirmPlan, &[]).is_err());
        assert!(check_sequences(Command::Quit, &[]).is_err());
        assert!(check_sequences(Command::Help, &[]).is_err());
        assert_eq!(check_sequences(Command::PlanReset, &[]), Ok(()));
        let both = [
            parse_sequence("PgUp").unwrap(),
            parse_sequence("^b").unwrap(),
        ];
        assert_eq!(check_sequences(Command::PageUp, &both), Ok(()));
    }

    #[test]
    fn key_list_replaces_defaults_and_empty_unbinds() {
        let (keymap, conflicts) = Keymap::with_overrides(vec![
            patch(Command::PlanReset, &["F5", "Q"]),
            patch(Command::GoLog, &[]),
            patch(Command::GoBack, &["b"]),
        ]);
        assert_eq!(conflicts, []);
        let meaning =
            |text: &str| keymap.resolve(KeyContext::Fleet, &parse_sequence(text).unwrap());
        assert_eq!(meaning("Q"), KeyMeaning::Command(Command::PlanReset));
        assert_eq!(meaning("X"), KeyMeaning::Unbound);
        assert_eq!(meaning("7"), KeyMeaning::Unbound);
        assert_eq!(meaning("Esc"), KeyMeaning::Command(Command::GoBack));
        assert_eq!(keymap.key_hint(Command::PlanReset), "F5");
        assert_eq!(keymap.key_hint(Command::GoLog), ":log");
        assert_eq!(keymap.exit_key_text(), "b");
        assert!(
            keymap.is_overridden(Command::GoLog) && !keymap.is_overridden(Command::ChooseSortOrder)
        );
    }

    #[test]
    fn conflicts_are_found_in_shared_contexts() {
        use Command::*;
        assert_eq!(
            conflicts_of(&[(PlanReset, &["d"])]),
            [(PlanReset, OpenDiff)]
        );
        assert_eq!(
            conflicts_of(&[(PlanReset, &["g"])]),
            [(PlanReset, Top)],
            "g hides gg"
        );
        assert_eq!(
            conflicts_of(&[(PlanReset, &["jj"])]),
            [(PlanReset, Down)],
            "j hides jj"
        );
        assert_eq!(
            conflicts_of(&[(PlanReset, &["7"])]),
            [(PlanReset, GoLog)],
            "everywhere"
        );
        assert_eq!(conflicts_of(&[(RetryHost, &["f"])]), [], "another screen");
        assert_eq!(
            conflicts_of(&[(PlanReset, &["d"]), (OpenDiff, &["X"])]),
            [],
            "exchanged"
        );
        assert_eq!(
            conflicts_of(&[(PlanReset, &["Space r"]), (ToggleMark, &["m"])]),
            []
        );
        assert_eq!(
            conflicts_of(&[(KeepHiddenAgents, &["q"])]),
            [(KeepHiddenAgents, GoBack)],
            "q must leave a plan"
        );
        // Of two overrides the later one yields, unless the earlier one must.
        assert_eq!(
            conflicts_of(&[(ToggleMark, &["m"]), (ChooseSortOrder, &["m"])]),
            [(ChooseSortOrder, ToggleMark)]
        );
        assert_eq!(
            conflicts_of(&[(PlanReset, &["d"]), (ChooseSortOrder, &["d"])]),
            [(ChooseSortOrder, OpenDiff), (PlanReset, OpenDiff)]
        );
        // An override that falls back to its defaults may conflict with another override.
        assert_eq!(
            conflicts_of(&[
                (PlanReset, &["d"]),
                (OpenDiff, &["j"]),
                (ChooseSortOrder, &["X"])
            ]),
            [
                (OpenDiff, Down),
                (PlanReset, OpenDiff),
                (ChooseSortOrder, PlanReset)
            ]
        );
    }

    #[test]
    fn keys_of_another_command_here_are_not_listed() {
        let keymap = Keymap::default();
        let listed = |context| keymap.joined_sequences_in(context, Command::GoBack);
        assert_eq!(listed(KeyContext::Plan), "q Esc Left");
        assert_eq!(listed(KeyContext::Agent), "q Esc h Left");
        let title = keymap.title_with_exceptions(Command::GoBack);
        let exceptions = "(h: not in plan, editor, editor's selection) \
             (Left: not in editor, editor's selection)";
        assert!(title.ends_with(exceptions), "{title}");
        let has_exceptions = |it: Command| {
            use Command::{Bottom, GoBack, OpenSelected, Top};
            matches!(it, GoBack | OpenSelected | Top | Bottom)
        };
        for spec in COMMAND_TABLE
            .iter()
            .filter(|it| !has_exceptions(it.command))
        {
            assert_eq!(keymap.title_with_exceptions(spec.command), spec.title);
        }
        // A command of other screens keeps its keys.
        let keep = keymap.joined_sequences_in(KeyContext::Agent, Command::KeepHiddenAgents);
        assert_eq!(keep, "h");
    }

    #[test]
    fn keys_following_a_prefix_are_listed() {
        let (keymap, _) = Keymap::with_overrides(vec![patch(Command::GoLog, &["g Home", "gl"])]);
        let following = keymap.continuations(KeyContext::Fleet, &parse_sequence("g").unwrap());
        assert_eq!(
            following,
            [
                ("g".to_string(), Command::Top),
                ("Home".to_string(), Command::GoLog),
                ("l".to_string(), Command::GoLog),
            ]
        );
    }
}
