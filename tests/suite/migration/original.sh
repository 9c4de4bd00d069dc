#!/usr/bin/env bash
# Stands for the original script, as far as docs/migration.md relies on it: reads key=value lines of
# the config beside it, archives, resets, and deletes old Markdown files below the archive.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
stamp=$(date +%Y-%m-%d_%H%M)
declare -A value
agents=()
section=
while read -r line; do
    line=${line%%#*}
    case $line in
        '[general]') section=general ;;
        '['*']') section=${line//[\[\]]/} && agents+=("$section") ;;
        *=*) value[$section.${line%%=*}]=${line#*=} ;;
    esac
done <"$here/memory-shepherd.conf"
absolute() { case $1 in /*) echo "$1" ;; *) echo "$here/$1" ;; esac; }
baselines=$(absolute "${value[general.baseline_dir]}")
archive=$(absolute "${value[general.archive_dir]}")

reset() {
    local memory=${value[$1.memory_file]} baseline=$baselines/${value[$1.baseline]}
    local directory=$archive/${value[$1.archive_subdir]:-$1} line scratch
    mkdir -p "$directory"
    line=$(grep -n '^---$' "$memory" | tail -n 1 | cut -d: -f1)
    if [ -z "$line" ]; then
        cp "$memory" "$directory/$stamp-full-backup.md"
    else
        scratch=$(tail -n +$((line + 1)) "$memory" | grep -v -e '^## Scratch Notes' -e '^[[:space:]]*$')
        if [ -n "$scratch" ]; then
            printf '# %s scratch notes — archived %s\n\n%s\n' "$1" "$stamp" "$scratch" >"$directory/$stamp.md"
        fi
    fi
    cp "$baseline" "$memory.reset-tmp"
    mv -f "$memory.reset-tmp" "$memory"
}

if [ "${1:-all}" = all ]; then
    set -- "${agents[@]}"
fi
for agent; do
    reset "$agent"
done
find "$archive" -name '*.md' -mtime +"${value[general.archive_retention_days]}" -delete
