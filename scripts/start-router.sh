#!/usr/bin/env bash
# Starts the router in the background and says whether it answers.
#
# Usage: scripts/start-router.sh [the router's flags ...]     see scripts/start-router.sh --help
#        scripts/start-router.sh --demo                       a small real llama-server, with and without the router
# router.log and router.pid are in the project root, whatever the working directory; so is router.sqlite, unless the
# flags, the environment or the file set another state_dir.
set -euo pipefail
. "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"

BINARY="$TARGET/release/session-slot-router"
LOG="$ROOT/router.log"
PID_FILE="$ROOT/router.pid"

build_router() {
    if have cargo; then
        [ -x "$BINARY" ] || note "building the router (the first time takes a few minutes) ..."
        build --release -p session-slot-router
    elif [ -x "$BINARY" ]; then
        note "cargo is missing: starting the router as it was built before"
    else
        die "cargo is missing and no router is built: install Rust from https://rustup.rs"
    fi
}

# Where the router is going to be reached: as it understands its flags, environment and file itself.
address_from() {
    local address
    address="$(printf '%s\n' "$1" | sed -n 's/^listen *= *"\(.*\)".*/\1/p')"
    case "$address" in
        0.0.0.0:*) printf '127.0.0.1:%s\n' "${address##*:}" ;;
        "[::]":*) printf '[::1]:%s\n' "${address##*:}" ;;
        *) printf '%s\n' "$address" ;;
    esac
}

# Whether the settings hold the default. A "." in the file looks the same and is taken for it.
is_default_state_dir() {
    [ -z "${SLOT_ROUTER_STATE_DIR:-}" ] && [ "$(printf '%s\n' "$1" | sed -n 's/^state_dir *= *"\(.*\)"$/\1/p')" = . ]
}

# Whether anything accepts connections there, be it a router or not.
accepts() {
    local host="${1%:*}"
    host="${host#[}"
    (exec 3<>"/dev/tcp/${host%]}/${1##*:}") 2>/dev/null
}

# What a second start says, on the screen and in the log, without touching the first one's files.
port_taken() {
    local message="port ${1##*:} is taken: something already answers at $1; nothing was started"
    printf '%s %s\n' "$(date '+%Y-%m-%dT%H:%M:%S%z')" "$message" >>"$LOG"
    [ ! -f "$PID_FILE" ] || note "a router was started here before, with PID $(cat "$PID_FILE")"
    die "$message"
}

# stop-router.sh knows of one router only.
one_router_only() {
    local pid
    [ -f "$PID_FILE" ] || return 0
    pid="$(tr -cd '0-9' <"$PID_FILE")"
    [ -n "$pid" ] && is_router "$pid" || return 0
    note "stop it with scripts/stop-router.sh, or start this one from another copy of the project"
    die "a router that was started here still runs (PID $pid); nothing was started"
}

# Waits until the router answers or has ended.
wait_for_answer() {
    local left=300
    while is_running "$1" && [ "$left" -gt 0 ]; do
        if answers "$2"; then
            # Of two starts at the same moment, one is answered by the other's router and is about to end.
            sleep 0.3
            is_running "$1"
            return
        fi
        left=$((left - 1))
        sleep 0.1
    done
    return 1
}

report_failure() {
    note "the end of its log:"
    tail -n "+$(($2 + 1))" "$LOG" | tail -n 15 >&2
    if is_running "$1"; then
        kill "$1" 2>/dev/null || true
        die "the router did not answer within 30 s and was stopped"
    fi
    die "the router ended without answering"
}

start() {
    local config address pid lines=0
    config="$("$BINARY" "$@" --print-config)" || die "nothing was started"
    if "$own_state_dir" && is_default_state_dir "$config"; then set -- --state-dir "$ROOT" "$@"; fi
    address="$(address_from "$config")"
    ! accepts "$address" || port_taken "$address"
    one_router_only
    [ ! -f "$LOG" ] || lines="$(wc -l <"$LOG")"
    nohup "$BINARY" "$@" >>"$LOG" 2>&1 </dev/null &
    pid=$!
    # Interrupted before its PID is written down, it would run on unknown to stop-router.sh.
    trap 'kill "$pid" 2>/dev/null; exit 130' INT TERM
    printf 'router started: PID %s, log %s\n' "$pid" "$LOG"
    wait_for_answer "$pid" "http://$address/router/health" || report_failure "$pid" "$lines"
    printf '%s\n' "$pid" >"$PID_FILE"
    printf 'it answers at http://%s\n' "$address"
}

own_state_dir=true
for flag in "$@"; do
    case "$flag" in
        --demo) exec "$SCRIPTS/demo.sh" ;;
        --state-dir | --state-dir=*) own_state_dir=false ;;
    esac
done
build_router
for flag in "$@"; do
    case "$flag" in -h | --help | -V | --version | --print-config) exec "$BINARY" "$@" ;; esac
done
start "$@"
