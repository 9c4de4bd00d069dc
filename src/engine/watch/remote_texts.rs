//! The memories of hosts as this process read them last, for searches.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, FixedOffset};
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

use crate::boundary::Boundary;
use crate::engine::watch::Observer;
use crate::engine::watch::observe::memory_text::MemoryText;

/// Maximum size of a kept text; the rest of a longer one is not found.
const MAX_REMOTE_TEXT_BYTES: usize = 256 << 10;

/// Maximum size of all kept texts, compressed.
const MAX_REMOTE_TEXTS_BYTES: usize = 32 << 20;

/// The memories of hosts as this process read them last.
#[derive(Default)]
pub(in crate::engine) struct RemoteTexts {
    texts: Mutex<KeptTexts>,
}

#[derive(Default)]
struct KeptTexts {
    by_agent: HashMap<String, KeptText>,
    /// Size of all of them, compressed.
    bytes: usize,
}

struct KeptText {
    /// The text, compressed: a console on thousands of agents keeps thousands.
    deflated: Arc<[u8]>,
    boundary: Option<Boundary>,
    read_at: DateTime<FixedOffset>,
}

impl RemoteTexts {
    /// Keeps the beginning of a memory that was read, while there is room.
    pub fn keep(
        &self,
        agent: &str,
        text: &[u8],
        boundary: Option<Boundary>,
        read_at: DateTime<FixedOffset>,
    ) {
        let text = &text[..text.len().min(MAX_REMOTE_TEXT_BYTES)];
        let deflated = deflate(text);
        let mut kept = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        let before = kept.by_agent.remove(agent);
        kept.bytes -= before.map_or(0, |it| it.deflated.len());
        if let Ok(deflated) = deflated
            && kept.bytes + deflated.len() <= MAX_REMOTE_TEXTS_BYTES
        {
            kept.bytes += deflated.len();
            let text = KeptText {
                deflated,
                boundary,
                read_at,
            };
            kept.by_agent.insert(agent.to_string(), text);
        }
    }

    /// Notes that a memory is still as it was read.
    pub fn confirm(&self, agent: &str, at: DateTime<FixedOffset>) {
        let mut kept = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = kept.by_agent.get_mut(agent) {
            text.read_at = at;
        }
    }

    /// Returns the text that was read last.
    pub fn get(&self, agent: &str) -> Option<MemoryText> {
        let kept = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        let text = kept.by_agent.get(agent)?;
        let (boundary, read_at) = (text.boundary, text.read_at);
        let deflated = Arc::clone(&text.deflated);
        drop(kept);
        let mut text = Vec::new();
        DeflateDecoder::new(&*deflated)
            .read_to_end(&mut text)
            .ok()?;
        Some(MemoryText {
            text,
            boundary,
            read_at,
        })
    }
}

fn deflate(text: &[u8]) -> io::Result<Arc<[u8]>> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text)?;
    Ok(encoder.finish()?.into())
}

impl Observer {
    /// The memories of hosts as they were read last.
    pub(in crate::engine) fn remote_texts(&self) -> &RemoteTexts {
        &self.remote_texts
    }
}
