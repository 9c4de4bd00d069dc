#!/usr/bin/env bash
# Builds a program that needs no library of the system, for any Linux of this architecture:
# target/ARCH-unknown-linux-musl/release/memory-shepherd. Needs rustup and musl-gcc (musl-tools).
set -euo pipefail
cd "$(dirname "$0")/.."
# Whatever the variable says outside: the paths below are relative to it.
export CARGO_TARGET_DIR=target

target=$(uname -m)-unknown-linux-musl
if ! command -v musl-gcc >/dev/null; then
    echo "error: musl-gcc is missing; install the package musl-tools" >&2
    exit 1
fi
rustup target add "$target"
cargo build --release --locked --target "$target"
program=target/$target/release/memory-shepherd
# A program with an interpreter is not static.
if LC_ALL=C readelf --program-headers "$program" | grep -q INTERP; then
    echo "error: $program needs a dynamic linker" >&2
    exit 1
fi
ls "$program"
