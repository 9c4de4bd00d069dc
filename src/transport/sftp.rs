//! Memories on other hosts, over SFTP version 3, which every OpenSSH speaks.
//!
//! | module | what it is for |
//! |---|---|
//! | [`wire`] | the bytes of requests and replies: pure, and hostile on the other side |
//! | [`session`] | many requests of many callers over one pair of pipes, in bounded time and memory |
//!
//! The other side may be anything. No reply is believed that was not asked for,
//! nothing is allocated because a reply announces it, and what a host says is
//! foreign text.

pub mod session;
pub mod wire;

pub use self::session::{Broken, Failure, Heard, Link, Pending, Session, Why};
pub use self::wire::{Attrs, Extensions, Limits, Malformed, Name, Reply, Request, Statvfs};
