//! One integration binary: it links once, and nothing is forgotten.

mod configs;
mod screenshots;
