#!/usr/bin/env bash
# Ends the router that start-router.sh started, after letting its open answers end.
#
# Usage: scripts/stop-router.sh
# Waits 5 s longer than the router's --drain (30 s unless it was started with another).
set -euo pipefail
. "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"

PID_FILE="$ROOT/router.pid"

# A PID is used again by the system sooner or later: only a router may be ended.
is_router() {
    case "$(ps -o command= -p "$1" 2>/dev/null)" in
        *session-slot-router*) return 0 ;;
    esac
    return 1
}

# How long the router lets open answers run on: from its flags, else the environment, else its default.
drain_seconds() {
    local seconds
    seconds="$(ps -o args= -p "$1" | sed -n 's/.*--drain[= ]\([0-9][0-9]*\).*/\1/p')"
    printf '%s\n' "${seconds:-${SLOT_ROUTER_DRAIN:-30}}"
}

if [ ! -f "$PID_FILE" ]; then
    printf 'no router is running here (no %s)\n' "$PID_FILE"
    exit 0
fi
pid="$(tr -cd '0-9' <"$PID_FILE")"
if [ -z "$pid" ] || ! is_router "$pid"; then
    rm -f "$PID_FILE"
    printf 'no router is running here: PID %s had already ended\n' "${pid:-?}"
    exit 0
fi
tenths=$((($(drain_seconds "$pid") + 5) * 10))
kill "$pid"
printf 'asked the router (PID %s) to end; waiting for open answers ...\n' "$pid"
if ! ended_within "$pid" "$tenths"; then
    die "the router (PID $pid) still runs; end it with: kill -9 $pid"
fi
rm -f "$PID_FILE"
printf 'the router has ended\n'
