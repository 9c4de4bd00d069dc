//! The lint on a corpus of its own, its command, its formats and its settings.

mod command;
mod corpus;
mod rules_page;
