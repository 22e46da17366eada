#!/usr/bin/env bash
# Installs the real agents and SDKs that the tests drive, once each, into a cache folder outside the clone.
#
# Usage: scripts/setup-agents.sh [NAME...]     prints a line NAME=FOLDER for each; all of tests/agents/ without NAME
# A folder of tests/agents/ is installed with npm where it has a package.json, with pip where it has a requirements.txt
# (into a virtual environment). ROUTER_CACHE_DIR moves the cache.
set -euo pipefail
. "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"

AGENTS="$ROOT/tests/agents"

# fingerprint FOLDER: a number that changes with what is to be installed, so that a changed pin makes a new folder.
fingerprint() {
    (cd "$1" && cat package.json package-lock.json requirements.txt 2>/dev/null || true) | cksum | cut -d ' ' -f 1
}

install_npm() {
    have npm || die "npm is missing: install Node.js 20 or newer"
    cp "$AGENTS/$1/package.json" "$AGENTS/$1/package-lock.json" "$2/"
    (cd "$2" && npm ci --no-audit --no-fund --loglevel=error)
}

# A line `# Python LOWEST BELOW` in the requirements tells which versions will do.
install_pip() {
    local python versions
    versions="$(sed -n 's/^# Python //p' "$AGENTS/$1/requirements.txt")"
    # Split on purpose: two numbers.
    # shellcheck disable=SC2086
    python="$(find_python $versions)" || die "there is no Python that $1 takes (from, below: ${versions:-3.10})"
    "$python" -m venv "$2" && "$2/bin/python" -m pip install --quiet --disable-pip-version-check \
        --requirement "$AGENTS/$1/requirements.txt"
}

[ "$#" -gt 0 ] || set -- $(cd "$AGENTS" && printf '%s\n' */ | tr -d /)
for name in "$@"; do
    [ -d "$AGENTS/$name" ] || die "there is no folder tests/agents/$name"
    folder="$(cache_dir)/agents/$name-$(fingerprint "$AGENTS/$name")"
    how=install_npm
    [ -f "$AGENTS/$name/package.json" ] || how=install_pip
    install_once "$name" "$folder" "$how" "$name" "$folder"
    printf '%s=%s\n' "$name" "$folder"
done
