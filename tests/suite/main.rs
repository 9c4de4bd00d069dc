//! The one integration test binary: a single link step for all modules.

// A test panics on failure and prints its measurements.
#![allow(clippy::expect_used, clippy::print_stdout, clippy::unwrap_used)]

mod accepted_seals;
mod address;
mod alerts;
mod architecture;
mod archive_exports;
mod archive_samples;
mod archive_search;
mod baseline_changes;
mod baseline_plans;
mod baseline_saves;
mod baselines;
mod behind;
mod bounded_transport;
mod cli;
mod configs;
mod console_bytes;
mod console_fixture;
mod console_handoff;
mod console_pty;
mod console_soak;
mod console_update;
mod console_views;
mod run_records;
/// The transports of this machine.
macro_rules! on_every_transport {
    (everywhere { $($case:ident)* } here { $($here:ident)* }) => {
        mod local {
            $(#[test] fn $case() { super::$case(&super::DiskFixture::new(true)); })*
            $(#[test] fn $here() { super::$here(&super::DiskFixture::new(true)); })*
        }
        mod without_kernel_help {
            $(#[test] fn $case() { super::$case(&super::DiskFixture::new(false)); })*
            $(#[test] fn $here() { super::$here(&super::DiskFixture::new(false)); })*
        }
        mod bounded {
            $(#[test] fn $case() { super::$case(&super::DiskFixture::bounded()); })*
            $(#[test] fn $here() { super::$here(&super::DiskFixture::bounded()); })*
        }
        mod fake {
            $(#[test] fn $case() { super::$case(&super::FakeFixture::new()); })*
            $(#[test] fn $here() { super::$here(&super::FakeFixture::new()); })*
        }
    };
}

mod contract;
mod crashes;
mod demo;
mod disk;
mod documents;
#[path = "../support/drover_entries.rs"]
mod drover_entries;
mod drover_files;
mod drover_fixture;
mod drover_health;
mod drover_odd_input;
mod drover_odd_trees;
mod drover_operations;
mod drover_properties;
mod drover_reads;
mod drover_repair;
mod drover_writes;
#[path = "../support/earlier.rs"]
mod earlier;
#[path = "../support/edited_files.rs"]
mod edited_files;
mod editing;
mod engine;
mod engine_samples;
#[path = "../support/fake_time.rs"]
mod fake_time;
#[path = "../support/fake_transport.rs"]
mod fake_transport;
mod file_edits;
mod file_ownership;
mod findings;
mod fixture;
mod fleet;
mod fuzz;
mod guard;
mod hostile;
mod import_circles;
mod kept_objects;
mod known_health;
mod layouts;
mod ledger;
mod lint;
mod local_times;
mod manifest;
mod memory_search;
mod migration;
mod moved_archives;
#[path = "../support/notes_layout.rs"]
mod notes_layout;
mod odd_baselines;
#[path = "../support/odd_entries.rs"]
mod odd_entries;
mod original;
mod output_checker;
mod overlap;
mod packaging;
mod painter;
mod process_limits;
mod push;
mod regressions;
mod report_samples;
mod reports;
mod reset_layouts;
mod saved_observations;
mod scale;
mod schedule_controls;
mod schedule_samples;
mod schemas;
mod screenshots;
mod seals;
mod search_index;
mod search_quality;
mod shared_memories;
mod signed_seals;
mod similar_names;
#[path = "../support/skip.rs"]
mod skip;
mod states;
mod steady_writers;
mod tampered_baselines;
#[path = "../support/temporary_root.rs"]
mod temporary_root;
#[path = "../support/terminal.rs"]
mod terminal;
#[path = "../support/thread_time.rs"]
mod thread_time;
#[path = "../support/tree_snapshot.rs"]
mod tree_snapshot;
mod undo;
mod world;
mod writers;

/// A temporary directory for a world of agents.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}
