//! The bodies of the fuzz targets, which the tests of the main package run too.

#[path = "../../tests/support/fake_transport.rs"]
mod fake_transport;
#[path = "../../tests/suite/fuzz"]
mod fuzz {
    pub mod targets;
}

pub use fuzz::targets;
