//! One integration binary.

mod architecture;
mod configs;
