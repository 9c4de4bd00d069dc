//! What somebody types that nobody else may see. Its bytes are overwritten when
//! it goes, it is never moved by growing, and it cannot be printed.

use std::fmt;

use zeroize::Zeroizing;

/// The longest secret, in bytes: what ssh reads of an answer, less its line feed
/// and a little.
pub const MAX_SECRET_BYTES: usize = 1000;

/// A passphrase, password or code.
#[derive(PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Nothing yet, with room for the longest.
    pub fn new() -> Secret {
        // Growing would leave copies behind that nobody overwrites.
        Secret(Zeroizing::new(String::with_capacity(MAX_SECRET_BYTES)))
    }

    /// Adds text; false, and nothing is added, when it becomes too long.
    #[must_use]
    pub fn push(&mut self, text: &str) -> bool {
        let fits = self.0.len() + text.len() <= MAX_SECRET_BYTES;
        if fits {
            self.0.push_str(text);
        }
        fits
    }

    /// Takes the last character away.
    pub fn pop(&mut self) {
        self.0.pop();
    }

    /// Its text, for whoever it is meant for.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// How many characters it has.
    pub fn char_count(&self) -> usize {
        self.0.chars().count()
    }

    /// Whether it has none.
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

/// Says nothing of it, not even its length.
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
