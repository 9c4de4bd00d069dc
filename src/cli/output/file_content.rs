//! Bytes of a file in an answer.

use serde::Serialize;

use crate::base::digest::{Digest, to_hex};

/// The content of a file, for JSON and as exact bytes.
#[derive(Serialize)]
pub struct FileContent {
    sha256: Digest,
    size: usize,
    text: String,
    /// The bytes in hexadecimal, if they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    hex: Option<String>,
    #[serde(skip)]
    bytes: Vec<u8>,
}

impl FileContent {
    /// Takes the bytes of a file.
    pub fn new(bytes: Vec<u8>) -> FileContent {
        let is_text = str::from_utf8(&bytes).is_ok();
        FileContent {
            sha256: Digest::of(&bytes),
            size: bytes.len(),
            text: String::from_utf8_lossy(&bytes).into_owned(),
            hex: (!is_text).then(|| to_hex(&bytes)),
            bytes,
        }
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
