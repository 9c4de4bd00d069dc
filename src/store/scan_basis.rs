//! The basis of findings: two scans of a text on the same basis find the same.

use serde::{Deserialize, Serialize};

use crate::base::digest::Digest;

/// What findings depend on besides the text, its boundary and the baseline: the program, the config,
/// and the decisions of `[lint]` that are in force. On an equal basis, an equal text has equal
/// findings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanBasis(u64);

impl ScanBasis {
    /// Makes the basis of a text that names all that findings depend on.
    pub(crate) fn of(dependencies: &str) -> ScanBasis {
        ScanBasis(Digest::of(dependencies.as_bytes()).to_number())
    }
}
