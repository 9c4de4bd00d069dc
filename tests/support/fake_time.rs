//! The library that fakes the clock of a program: for tests of what takes minutes or a month.

use std::path::Path;
use std::process::Command;

use crate::skip::skip_missing_tool;

/// Where distributions install it.
const LIBRARIES: &[&str] = &[
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib64/faketime/libfaketimeMT.so.1",
    "/usr/lib/faketime/libfaketimeMT.so.1",
];

/// A fake of the clock of this machine.
#[derive(Clone, Copy)]
pub struct FakeTime(&'static str);

impl FakeTime {
    /// Finds the library; prints a notice if it is missing.
    pub fn find() -> Option<FakeTime> {
        let found = LIBRARIES.iter().find(|path| Path::new(path).exists());
        if found.is_none() {
            skip_missing_tool("faketime");
        }
        found.map(|path| FakeTime(path))
    }

    /// Gives a program and its children another time: `@2036-03-03 00:00:00` at their start, or
    /// `+0 x300` for hours that pass in seconds. Durations and the times of files stay real.
    pub fn apply(self, command: &mut Command, time: &str) {
        command
            .env("LD_PRELOAD", self.0)
            .env("FAKETIME", time)
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .env("NO_FAKE_STAT", "1");
    }
}
