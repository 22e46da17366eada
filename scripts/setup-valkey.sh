#!/usr/bin/env bash
# Finds the program of a Valkey or Redis (7.0 or later) for the tests; as root on Debian, installs it.
#
# Usage: scripts/setup-valkey.sh       prints a line redis=PATH
# Only Debian's package of tools is installed: the server is in it, and nothing is started or enabled by it.
set -euo pipefail
. "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"

# Debian's tool for checking a dump is the server by another name; linked under the server's, it is the server.
link_tools() {
    local kind
    mkdir -p "$(cache_dir)"
    for kind in valkey redis; do
        if have "$kind-check-rdb"; then
            ln -sf "$(command -v "$kind-check-rdb")" "$(cache_dir)/$kind-server"
        fi
    done
}

# Prints the first program that says it is such a server.
find_server() {
    local name program
    for name in valkey-server redis-server "$(cache_dir)/valkey-server" "$(cache_dir)/redis-server"; do
        program="$(command -v "$name")" || continue
        case "$("$program" --version 2>/dev/null)" in
            *erver\ v=[0-6].*) ;;
            *erver\ v=*) printf '%s\n' "$program" && return 0 ;;
        esac
    done
    return 1
}

install_tools() {
    have apt-get && [ "$(id -u)" = 0 ] || return 1
    note "installing the tools of Valkey or Redis (once) ..."
    apt-get install --yes --no-install-recommends valkey-tools >/dev/null 2>&1 </dev/null ||
        apt-get install --yes --no-install-recommends redis-tools >/dev/null 2>&1 </dev/null
}

link_tools
if ! server="$(find_server)"; then
    install_tools && link_tools
    server="$(find_server)" ||
        die "install valkey-server, or redis-server 7.0 or later (Debian: apt install redis-server; macOS: brew install valkey)"
fi
printf 'redis=%s\n' "$server"
