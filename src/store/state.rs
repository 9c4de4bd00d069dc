//! States of an agent, worst first.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The state of an agent; the variants are ordered worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum State {
    /// The baseline file does not match the seal.
    Tampered,
    /// The host's key differs from the known one.
    HostKey,
    /// The text above the boundary differs from the baseline.
    Drifted,
    /// There is no boundary.
    NoSep,
    /// The host cannot be reached, or waits for an answer of the operator.
    Unreach,
    /// The host answered, but the memory or baseline cannot be used.
    Error,
    /// The file is provably absent.
    Missing,
    /// The checks of a memory of several files found an error.
    Ill,
    /// Larger than `max_memory_size`.
    Oversize,
    /// Intact, but against an earlier version of the baseline.
    Behind,
    /// Locked by a run.
    Busy,
    /// Intact, with scratch below the boundary.
    Scratch,
    /// A memory of several files, which is never reset.
    Layout,
    /// Equal to the baseline.
    Clean,
    /// Not read yet.
    Loading,
}

impl State {
    /// All states, worst first.
    pub const ALL: [State; 15] = [
        State::Tampered,
        State::HostKey,
        State::Drifted,
        State::NoSep,
        State::Unreach,
        State::Error,
        State::Missing,
        State::Ill,
        State::Oversize,
        State::Behind,
        State::Busy,
        State::Scratch,
        State::Layout,
        State::Clean,
        State::Loading,
    ];

    /// Returns whether the state asks for an operator.
    pub fn needs_attention(self) -> bool {
        self < State::Busy
    }

    /// The name for people and scripts.
    pub fn as_str(self) -> &'static str {
        let (name, ..) = self.texts();
        name
    }

    /// Two cells that distinguish the state without colour.
    pub fn glyph(self) -> &'static str {
        let (_, glyph, _) = self.texts();
        glyph
    }

    /// Returns its meaning in one line.
    pub fn description(self) -> &'static str {
        let (.., description) = self.texts();
        description
    }

    /// Returns name, glyph and description.
    #[rustfmt::skip]
    fn texts(self) -> (&'static str, &'static str, &'static str) {
        match self {
            State::Tampered => ("TAMPERED", "!!", "baseline does not match its seal; resets are blocked"),
            State::HostKey => ("HOSTKEY", "HK", "host key changed; resets are blocked"),
            State::Drifted => ("DRIFTED", "~~", "agent changed the text above the separator"),
            State::NoSep => ("NOSEP", "??", "no separator; a reset archives the whole file"),
            State::Unreach => ("UNREACH", "x ", "host cannot be reached; showing the last known content"),
            State::Error => ("ERROR", "E ", "cannot use memory or baseline; see WHY"),
            State::Missing => ("MISSING", "- ", "no memory file; a reset creates it"),
            State::Ill => ("ILL", "+ ", "a memory of several files has errors; see Health"),
            State::Oversize => ("OVERSIZE", "^ ", "memory is larger than max_memory_size"),
            State::Behind => ("BEHIND", "< ", "rules of an earlier baseline; reset or push to update"),
            State::Busy => ("BUSY", "> ", "locked by a run; wait for it to end"),
            State::Scratch => ("SCRATCH", ". ", "rules intact, notes below the separator"),
            State::Layout => ("LAYOUT", "# ", "memory of several files; never reset"),
            State::Clean => ("CLEAN", "  ", "equal to the baseline; nothing to reset"),
            State::Loading => ("LOADING", "… ", "not read yet"),
        }
    }

    /// Returns whether the agent needs no attention.
    pub fn is_healthy(self) -> bool {
        matches!(
            self,
            State::Scratch | State::Clean | State::Layout | State::Busy | State::Loading
        )
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
