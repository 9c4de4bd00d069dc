#!/usr/bin/env bash
# Builds the Debian package of this machine's architecture: target/debian/memory-shepherd_*.deb.
# The program itself generates manual page, completions and units.
set -euo pipefail
cd "$(dirname "$0")/.."
# Whatever the variable says outside: the paths below and those in Cargo.toml are relative to it.
export CARGO_TARGET_DIR=target

cargo_deb_version=3.8.0
tool=target/tools/bin/cargo-deb
if ! "$tool" --version 2>/dev/null | grep -qF "$cargo_deb_version"; then
    cargo install --quiet --locked cargo-deb --version "$cargo_deb_version" --root target/tools
fi
cargo build --release --locked

program=target/release/memory-shepherd
stage=target/package
rm -rf "$stage"
mkdir -p "$stage/units"
"$program" man >"$stage/memory-shepherd.1"
"$program" completions bash >"$stage/memory-shepherd.bash"
"$program" completions zsh >"$stage/_memory-shepherd"
"$program" completions fish >"$stage/memory-shepherd.fish"
"$program" --quiet schedule install --packaged /usr/bin/memory-shepherd --prefix "$stage/units" >/dev/null
cp CHANGELOG.md "$stage/changelog"

# The time of the commit makes two builds of it the same.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
field() { sed -n "s/^$1 = \"\(.*\)\"\$/\1/p" Cargo.toml | head -n 1; }
revision=1
cat >"$stage/changelog.Debian" <<END
memory-shepherd ($(field version)-$revision) unstable; urgency=medium

  * Release $(field version); changelog.gz lists what changed.

 -- $(field maintainer)  $(date -uRd "@$SOURCE_DATE_EPOCH")
END

rm -rf target/debian
"$tool" --no-build --quiet --deb-revision "$revision" >/dev/null
ls target/debian/*.deb
