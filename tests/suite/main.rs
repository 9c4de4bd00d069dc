//! One integration binary.

#![allow(clippy::expect_used, clippy::unwrap_used)]

mod cli;
mod configs;
mod demo;
mod fixture;
