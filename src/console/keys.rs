//! Keys: how they are written and typed, what each one means on a screen, and when one that was
//! typed ahead is ignored.

pub mod key;
pub mod key_guard;
pub mod keymap;
