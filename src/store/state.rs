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
    pub const ALL: [State; 14] = [
        State::Tampered,
        State::HostKey,
        State::Drifted,
        State::NoSep,
        State::Unreach,
        State::Error,
        State::Missing,
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
        match self {
            State::Tampered => "TAMPERED",
            State::HostKey => "HOSTKEY",
            State::Drifted => "DRIFTED",
            State::NoSep => "NOSEP",
            State::Unreach => "UNREACH",
            State::Error => "ERROR",
            State::Missing => "MISSING",
            State::Oversize => "OVERSIZE",
            State::Behind => "BEHIND",
            State::Busy => "BUSY",
            State::Scratch => "SCRATCH",
            State::Clean => "CLEAN",
            State::Layout => "LAYOUT",
            State::Loading => "LOADING",
        }
    }

    /// Two cells that distinguish the state without colour.
    pub fn glyph(self) -> &'static str {
        match self {
            State::Tampered => "!!",
            State::HostKey => "HK",
            State::Drifted => "~~",
            State::NoSep => "??",
            State::Unreach => "x ",
            State::Error => "E ",
            State::Missing => "- ",
            State::Oversize => "^ ",
            State::Behind => "< ",
            State::Busy => "> ",
            State::Scratch => ". ",
            State::Clean => "  ",
            State::Layout => "# ",
            State::Loading => "… ",
        }
    }

    /// Returns its meaning in one line.
    pub fn description(self) -> &'static str {
        match self {
            State::Tampered => "baseline does not match its seal; resets are blocked",
            State::HostKey => "host key changed; resets are blocked",
            State::Drifted => "agent changed the text above the separator",
            State::NoSep => "no separator; a reset archives the whole file",
            State::Unreach => "host cannot be reached; showing the last known content",
            State::Error => "cannot use memory or baseline; see WHY",
            State::Missing => "no memory file; a reset creates it",
            State::Oversize => "memory is larger than max_memory_size",
            State::Behind => "rules of an earlier baseline; reset or push to update",
            State::Busy => "locked by a run; wait for it to end",
            State::Scratch => "rules intact, notes below the separator",
            State::Clean => "equal to the baseline; nothing to reset",
            State::Layout => "memory of several files; never reset",
            State::Loading => "not read yet",
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
