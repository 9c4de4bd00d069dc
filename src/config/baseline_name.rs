//! Names of the files in `baseline_dir`: which ones are the seal's, and which a baseline can have.

/// File name of the seal's manifest.
pub const SEAL_FILE_NAME: &str = ".checksums";

/// File name of the seal's serial, time and expiry.
pub const META_FILE_NAME: &str = ".checksums.meta";

/// File name of the seal's signature.
pub const SIGNATURE_FILE_NAME: &str = ".checksums.sig";

/// Returns whether a name can be that of a baseline: it stays in its directory, and is none of the
/// seal's own files. A seal without a signature may hold any name.
pub fn is_baseline_name(name: &str) -> bool {
    // Only one spelling: neither `a//b` nor `a/`.
    let mut parts = name.split('/');
    parts.all(|part| !["", ".", ".."].contains(&part))
        && !name.contains('\0')
        && !is_seal_file(name)
}

/// Returns whether a file of `baseline_dir` is one of the seal's own.
pub(super) fn is_seal_file(name: &str) -> bool {
    [SEAL_FILE_NAME, META_FILE_NAME, SIGNATURE_FILE_NAME].contains(&name)
}
