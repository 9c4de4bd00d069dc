//! Typed secrets (passphrases, passwords, codes). The bytes of a [`Secret`] are overwritten on
//! drop, never reallocated, and never printed.

use std::fmt;

use zeroize::Zeroizing;

/// The maximum length of a secret in bytes: somewhat less than ssh reads of an answer, including
/// its line feed.
pub const MAX_SECRET_BYTES: usize = 1000;

/// A passphrase, password or code.
#[derive(PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Creates an empty secret with capacity for [`MAX_SECRET_BYTES`].
    pub fn new() -> Secret {
        // Reallocation would leave copies in memory that are not overwritten.
        Secret(Zeroizing::new(String::with_capacity(MAX_SECRET_BYTES)))
    }

    /// Appends `text`. Returns false, and appends nothing, if the secret would exceed
    /// [`MAX_SECRET_BYTES`].
    #[must_use]
    pub fn push(&mut self, text: &str) -> bool {
        let fits = self.0.len() + text.len() <= MAX_SECRET_BYTES;
        if fits {
            self.0.push_str(text);
        }
        fits
    }

    /// Removes the last character.
    pub fn pop(&mut self) {
        self.0.pop();
    }

    /// Returns the plain text, to be passed to its recipient only.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns the number of characters.
    pub fn char_count(&self) -> usize {
        self.0.chars().count()
    }

    /// Whether the secret is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Default for Secret {
    fn default() -> Secret {
        Secret::new()
    }
}

impl Clone for Secret {
    fn clone(&self) -> Secret {
        let mut copy = Secret::new();
        copy.0.push_str(&self.0);
        copy
    }
}

/// Prints the type name only, not even the length.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_never_moves_and_is_bounded() {
        let mut secret = Secret::new();
        let place = secret.expose().as_ptr();
        for _ in 0..MAX_SECRET_BYTES / 2 {
            assert!(secret.push("é"));
        }
        assert!(!secret.push("x"));
        assert_eq!(
            (secret.char_count(), secret.expose().len()),
            (MAX_SECRET_BYTES / 2, MAX_SECRET_BYTES)
        );
        assert_eq!(secret.expose().as_ptr(), place);
        let copy = secret.clone();
        assert_eq!(copy.0.capacity(), secret.0.capacity());
        secret.pop();
        assert_eq!(secret.char_count(), MAX_SECRET_BYTES / 2 - 1);
        assert_ne!(copy, secret);
    }

    #[test]
    fn secret_debug_output_is_redacted() {
        let mut secret = Secret::new();
        assert!(secret.push("hunter2"));
        assert_eq!(
            format!("{secret:?} {:?}", Some(&secret)),
            "Secret Some(Secret)"
        );
    }
}
