#!/usr/bin/env bash
# Ends the router that start-router.sh started, after letting its open answers end.
#
# Usage: scripts/stop-router.sh
# Waits until the router has ended: at most its drain time (30 s unless it was set otherwise).
set -euo pipefail
. "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"

PID_FILE="$ROOT/router.pid"

# The router ends by itself once its --drain is over, wherever that was set; this only bounds waiting for one that hangs.
LONGEST_WAIT_S=3600
# After so long it is said how to end it at once.
HINT_AFTER_S=35

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
kill "$pid"
printf 'asked the router (PID %s) to end; waiting for open answers ...\n' "$pid"
if ! ended_within "$pid" $((HINT_AFTER_S * 10)); then
    note "still waiting; to cut the open answers: kill -9 $pid"
    ended_within "$pid" $((LONGEST_WAIT_S * 10)) || die "the router (PID $pid) still runs; end it with: kill -9 $pid"
fi
rm -f "$PID_FILE"
printf 'the router has ended\n'
