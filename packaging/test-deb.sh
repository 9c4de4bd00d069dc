#!/usr/bin/env bash
# Installs, upgrades, removes and purges the Debian package in a chroot of this machine's release.
# Needs root, debootstrap and the package mirror; runs packaging/build-deb.sh first, unless a
# package is given. Exits with 77 where no chroot can be made:
#
#     packaging/test-deb.sh [target/debian/memory-shepherd_VERSION_ARCH.deb]
set -euo pipefail
cd "$(dirname "$0")/.."

# In a mount namespace of its own: mounts of the chroot end with the script.
if [ -z "${SHEPHERD_TEST_NAMESPACE:-}" ]; then
    package=${1:-}
    if [ -z "$package" ]; then
        package=$(packaging/build-deb.sh | tail -n 1)
    fi
    SHEPHERD_TEST_NAMESPACE=1 exec unshare --mount "$0" "$package"
fi
package=$1
# Nothing is made beside this directory, which only root can enter.
work=$(mktemp -d)
root=$work/root
trap 'umount "$root/proc" 2>/dev/null || true; rm -rf --one-file-system "$work"' EXIT

say() { printf 'test-deb: %s\n' "$*"; }
fail() {
    say "FAILED: $*" >&2
    exit 1
}
run() {
    chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
        DEBIAN_FRONTEND=noninteractive "$@"
}
# Keeps a changed config, without a question.
apt_get() {
    run apt-get -qq -y --no-install-recommends -o Dpkg::Options::=--force-confdef \
        -o Dpkg::Options::=--force-confold "$@" >"$root/tmp/apt.log" 2>&1 ||
        { cat "$root/tmp/apt.log"; fail "apt-get $*"; }
}
# The target of a link in the chroot is not looked up.
must_exist() {
    for path in "$@"; do
        if [ ! -e "$root$path" ] && [ ! -L "$root$path" ]; then
            fail "$path is missing"
        fi
    done
}
must_be_gone() {
    for path in "$@"; do
        if [ -e "$root$path" ] || [ -L "$root$path" ]; then
            fail "$path is still there"
        fi
    done
}
# All files that packages and operators may leave; not the logs and databases of apt and dpkg.
list_files() {
    (cd "$root" && find . -xdev \( -path ./proc -o -path ./tmp -o -path ./var/cache -o -path ./var/log \
        -o -path ./var/lib/apt -o -path ./var/lib/dpkg \) -prune -o -print | sort)
}

if command -v lintian >/dev/null; then
    lintian --allow-root --fail-on error --tag-display-limit 0 "$package" || fail "lintian"
    say "lintian reports no errors"
else
    say "note: lintian is not installed; its check is left out"
fi

# An older package, whose config differs from that of the new one.
old=$work/old
dpkg-deb -R "$package" "$old"
new_version=$(sed -n 's/^Version: //p' "$old/DEBIAN/control")
sed -i 's/^Version: .*/Version: 0.0.0-1/' "$old/DEBIAN/control"
echo '# from an older release' >>"$old/etc/memory-shepherd/memory-shepherd.conf"
dpkg-deb --root-owner-group -b "$old" "$work/old.deb" >/dev/null
rm -rf "$old"

release=$(. /etc/os-release && echo "$VERSION_CODENAME")
mirror=$(apt-get indextargets --format '$(RELEASE) $(SITE)' 'Created-By: Packages' |
    sed -n "s/^$release //p" | head -n 1)
say "bootstrapping $release"
debootstrap --variant=minbase "$release" "$root" ${mirror:+"$mirror"} >"$work/log" 2>&1 ||
    { tail -n 20 "$work/log"; say "cannot make a chroot"; exit 77; }
mount -t proc proc "$root/proc"
cp "$work/old.deb" "$root/tmp/old.deb"
cp "$package" "$root/tmp/new.deb"
list_files >"$root/tmp/before"

config=/etc/memory-shepherd/memory-shepherd.conf
say "installing an older package"
apt_get install /tmp/old.deb
run memory-shepherd --version
run memory-shepherd config check >/dev/null
must_exist $config /usr/share/man/man1/memory-shepherd.1.gz \
    /usr/share/bash-completion/completions/memory-shepherd \
    /usr/share/zsh/vendor-completions/_memory-shepherd \
    /usr/share/fish/vendor_completions.d/memory-shepherd.fish \
    /usr/lib/systemd/system/memory-shepherd.timer \
    /usr/lib/systemd/system/memory-shepherd-guard.service
must_be_gone /etc/systemd/system/timers.target.wants/memory-shepherd.timer \
    /etc/systemd/system/multi-user.target.wants/memory-shepherd-guard.service

say "purging it unused"
apt_get purge memory-shepherd
list_files >"$root/tmp/after"
comm -13 "$root/tmp/before" "$root/tmp/after" | grep . && fail "these files are left"
apt_get install /tmp/old.deb

say "an operator adds an agent and resets it"
mkdir -p "$root/srv/agents/scout"
run memory-shepherd baseline new draft-MEMORY.md >/dev/null
run cp /usr/share/doc/memory-shepherd/examples/baselines/triage-MEMORY.md \
    /etc/memory-shepherd/baselines/scout-MEMORY.md
cat >>"$root$config" <<'END'

[scout]
memory_file=/srv/agents/scout/MEMORY.md
baseline=scout-MEMORY.md
END
run memory-shepherd --quiet reset scout
echo '- a note of the first release' >>"$root/srv/agents/scout/MEMORY.md"
run memory-shepherd --quiet reset scout
# What `systemctl enable` does.
wants=/etc/systemd/system/timers.target.wants
mkdir -p "$root$wants"
ln -s /usr/lib/systemd/system/memory-shepherd.timer "$root$wants/"

say "upgrading to $new_version"
apt_get install /tmp/new.deb
[ "$(run dpkg-query -W -f '${Version}' memory-shepherd)" = "$new_version" ] || fail "the version"
grep -q '^\[scout\]' "$root$config" || fail "the changed config was replaced"
must_exist $config.dpkg-dist $wants/memory-shepherd.timer
run memory-shepherd status scout
run memory-shepherd --quiet verify
run memory-shepherd archive search 'first release' | grep -q 'a note of the first release' ||
    fail "the entry is not found"

say "units of schedule install replace those of the package"
run memory-shepherd schedule install >/dev/null
must_exist /etc/systemd/system/memory-shepherd.timer /etc/systemd/system/memory-shepherd-scout.timer
run memory-shepherd schedule uninstall >/dev/null
must_be_gone /etc/systemd/system/memory-shepherd.timer

say "removing"
apt_get remove memory-shepherd
must_be_gone /usr/bin/memory-shepherd /usr/lib/systemd/system/memory-shepherd.timer \
    /usr/share/man/man1/memory-shepherd.1.gz /usr/share/doc/memory-shepherd
must_exist $config /etc/memory-shepherd/baselines/scout-MEMORY.md /srv/agents/scout/MEMORY.md \
    /var/lib/memory-shepherd/archives/.shepherd/ledger.jsonl
[ -n "$(ls "$root/var/lib/memory-shepherd/archives/scout")" ] || fail "the entries are gone"

say "installing again, and purging"
apt_get install /tmp/new.deb
run memory-shepherd --quiet verify
apt_get purge memory-shepherd
list_files >"$root/tmp/after"
left=$(comm -13 "$root/tmp/before" "$root/tmp/after" |
    grep -vE '^\./(srv/agents|etc/memory-shepherd/baselines|var/lib/memory-shepherd)(/|$)' |
    grep -vxE '\./etc/memory-shepherd' || true)
[ -z "$left" ] || fail "files are left: $left"
must_be_gone $config
must_exist /etc/memory-shepherd/baselines/scout-MEMORY.md \
    /var/lib/memory-shepherd/archives/.shepherd/ledger.jsonl
say "ok"
