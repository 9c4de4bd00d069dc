//! One integration binary.

mod configs;
