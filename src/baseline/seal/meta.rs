//! `.checksums.meta`: serial, time and expiry of a signed seal. It is itself a line of the manifest,
//! so that one signature covers both.

use chrono::{DateTime, FixedOffset};
use serde::{Deserialize, Serialize};

use crate::base::moment::Zone;

/// Serial, time and expiry of a signed seal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealMeta {
    /// Grows with every signed seal: a lower one is an old seal that was put back.
    pub serial: u64,
    /// When the seal was made.
    pub time: DateTime<FixedOffset>,
    /// When it stops being accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<DateTime<FixedOffset>>,
    /// `fleet_name` of the config that it was made with. One that was made by hand may lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<String>,
}

impl SealMeta {
    /// Parses the file.
    ///
    /// # Errors
    /// The fault.
    pub fn parse(bytes: &[u8]) -> Result<SealMeta, String> {
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }

    /// Returns it with its times in a zone.
    pub fn in_zone(self, zone: Zone) -> SealMeta {
        SealMeta {
            time: zone.at(self.time),
            expires: self.expires.map(|time| zone.at(time)),
            ..self
        }
    }

    /// Returns the content of the file: one line of JSON.
    pub fn to_bytes(&self) -> Vec<u8> {
        // A number and two times always serialize.
        let mut bytes = serde_json::to_vec(self).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }

    /// Returns whether the seal has expired at `now`.
    pub fn is_expired(&self, now: DateTime<FixedOffset>) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> DateTime<FixedOffset> {
        DateTime::parse_from_rfc3339(text).unwrap()
    }

    #[test]
    fn meta_is_read_back_and_expires() {
        let meta = SealMeta {
            serial: 7,
            time: time("2026-03-14T09:00:00+01:00"),
            expires: Some(time("2026-03-15T09:00:00+01:00")),
            fleet: Some("prod".to_string()),
        };
        assert_eq!(SealMeta::parse(&meta.to_bytes()), Ok(meta.clone()));
        assert!(!meta.is_expired(time("2026-03-15T07:59:59Z")));
        assert!(meta.is_expired(time("2026-03-15T08:00:00Z")));
        assert!(SealMeta::parse(b"{\"serial\": -1}").is_err());
    }
}
