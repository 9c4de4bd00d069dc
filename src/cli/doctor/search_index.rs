//! Check of the search index.

use super::{DoctorReport, FleetSubject};
use crate::archive::index::{IndexFault, IndexHealth};
use crate::base::quantity::describe_size;

pub(super) fn check_search_index(report: &mut DoctorReport, fleet: &FleetSubject<'_>) {
    let health = IndexHealth::examine(fleet.engine.archive());
    let path = health.path.display();
    let size = health
        .size
        .map_or(String::new(), |size| format!(" ({})", describe_size(size)));
    let Some(fault) = health.fault else {
        return match health.size {
            Some(_) => report.add_ok(format!("search index {path}{size}")),
            None => report.add_ok(format!(
                "no search index yet; the first search creates {path}"
            )),
        };
    };
    let reindex = fleet.engine.command_line("archive reindex");
    let rebuild = format!("the next search replaces it, or `{reindex}` now; entries are untouched");
    let (what, hint) = match fault {
        IndexFault::Unopened(why) => (format!("cannot be used: {why}"), rebuild),
        IndexFault::Foreign(uid) => (
            format!("belongs to uid {uid}: a search by this user replaces it"),
            format!("search as uid {uid}, or remove {path}"),
        ),
        IndexFault::ForeignCompanion(file) => (
            format!("cannot be used: {} is not a regular file", file.display()),
            format!("find out who made it, then remove {}", file.display()),
        ),
        IndexFault::OtherFormat => ("is of another version, or no index".to_string(), rebuild),
        IndexFault::Damaged(why) => (format!("is damaged: {why}"), rebuild),
        IndexFault::Interrupted(journal) => (
            format!(
                "was being changed when its process ended: {}",
                journal.display()
            ),
            format!(
                "if no search runs now, the next one completes or reverts the change, or `{reindex}` \
                 rebuilds the index"
            ),
        ),
    };
    report.add_warning(format!("search index {path}{size} {what}"), &hint);
}
