#!/usr/bin/env bash
# Installs the programs that bench/src/bin/fleet.rs measures beside the router, once, into a cache folder outside the clone.
#
# Usage: scripts/setup-peers.sh        prints lines sglang=PATH, litellm=PATH and nginx=PATH
# ROUTER_CACHE_DIR moves the cache. nginx is the machine's own where there is one, else Debian's package is unpacked.
set -euo pipefail
. "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"

# Pinned: another version may choose servers in another way, or call its settings by other names.
SGLANG=sglang-router==0.3.2
LITELLM='litellm[proxy]==1.108.7'

# install_pip PACKAGE FOLDER
install_pip() {
    "$PYTHON3" -m venv "$2" && "$2/bin/python" -m pip install --quiet --disable-pip-version-check "$1"
}

# install_deb PACKAGE FOLDER: unpacked only, so that no service is started and nothing of the system is changed.
install_deb() {
    if ! have apt-get || ! have dpkg-deb; then
        note "$1 is not installed, and without apt-get and dpkg-deb it can't be had"
        return 1
    fi
    (cd "$2" && apt-get --quiet download "$1" && dpkg-deb --extract "$1"_*.deb .)
}

# setup HOW WHAT PROGRAM: installs WHAT unless it is there; sets FOUND to its PROGRAM.
setup() {
    local folder
    # The name carries the version, so that a changed pin makes a new folder.
    folder="$CACHE/$(printf '%s' "$2" | tr -c 'a-z0-9.-' '-')"
    install_once "$2" "$folder" "$1" "$2" "$folder"
    FOUND="$folder/$3"
}

# find_nginx: sets FOUND; Debian keeps it where only root's PATH looks.
find_nginx() {
    FOUND="$(PATH="$PATH:/usr/sbin:/usr/local/sbin" type -P nginx)" || setup install_deb nginx usr/sbin/nginx
}

PYTHON3="$(find_python)" || die "python3 3.10 or newer is missing"
CACHE="$(cache_dir)/peers"
setup install_pip "$SGLANG" bin/sglang-router
printf 'sglang=%s\n' "$FOUND"
setup install_pip "$LITELLM" bin/litellm
printf 'litellm=%s\n' "$FOUND"
find_nginx
printf 'nginx=%s\n' "$FOUND"
