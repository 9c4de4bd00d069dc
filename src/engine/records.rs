//! Answers from what runs recorded and archived: histories, reports, verification, timelines, search.

pub(super) mod archive_growth;
pub(super) mod entry_export;
pub(super) mod last_success;
pub(super) mod report;
pub(super) mod run_history;
pub(super) mod search;
pub(super) mod three_way;
pub(super) mod timeline;
pub(super) mod verify;
