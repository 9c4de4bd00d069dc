//! A run of an earlier day: retention relies on two runs that are a day apart.

use std::fs;
use std::path::Path;

use chrono::{DateTime, Duration, FixedOffset};
use memory_shepherd::base::digest::Digest;
use memory_shepherd::engine::LedgerRecord;

/// Inserts a run without effect, `days` days before `now`, at the start of an archive's
/// ledger.
pub fn insert_earlier_run(archive: &Path, agent: &str, now: DateTime<FixedOffset>, days: i64) {
    let own = archive.join(".shepherd");
    let path = own.join("ledger.jsonl");
    let text = fs::read_to_string(&path).unwrap_or_default();
    let first = serde_json::json!({
        "seq": 1, "prev": Digest::ZERO, "time": now - Duration::days(days),
        "run": "0ea71e20", "act": "reset", "trigger": "timer", "user": "timer",
        "agent": agent, "host": "local", "outcome": "unchanged",
    });
    let later = text
        .lines()
        .map(|line| LedgerRecord::parse(line.as_bytes()).unwrap());
    let records =
        std::iter::once(LedgerRecord::parse(first.to_string().as_bytes()).unwrap()).chain(later);
    let (mut prev, mut lines) = (Digest::ZERO, String::new());
    for (record, seq) in records.zip(1..) {
        let record = LedgerRecord {
            seq,
            previous_digest: prev,
            ..record
        };
        let line = serde_json::to_string(&record).unwrap();
        prev = Digest::of(line.as_bytes());
        lines.push_str(&line);
        lines.push('\n');
    }
    fs::create_dir_all(&own).unwrap();
    fs::write(path, lines).unwrap();
    // Both files describe the old chain.
    for file in [own.join("ledger.index"), archive.join("reset.log")] {
        let _ = fs::remove_file(file);
    }
}
