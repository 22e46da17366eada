#!/usr/bin/env bash
# Shows what the router changes: the same agent sessions straight at a small real llama-server and through the router.
#
# Usage: scripts/demo.sh
# Sets up everything by itself (in a cache folder outside the clone), uses free ports and leaves nothing running.
set -euo pipefail
. "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"

# What llama-server is started with, one line for each part of the table: NAME|FLAGS.
SETTINGS="default settings|--ctx-size 16384
--parallel 4 --no-kv-unified|--ctx-size 16384 --parallel 4 --no-kv-unified"
# What is replayed. Left alone, the server puts sessions that share more than half of a slot's tokens into that slot,
# where each reads again what follows the shared system prompt. Twice as many sessions as slots: each comes back to a
# slot that another one has taken. Its state is worth saving, as it is longer than warm.min_tokens.
SESSIONS=8
TURNS=4
SEED=1
SYSTEM_TOKENS=450
TURN_TOKENS=60
MAX_TOKENS=8
SCHEDULE=turn

prepare() {
    local setup
    need_cargo
    setup="$("$SCRIPTS/setup-llama.sh")"
    PYTHON="$(printf '%s\n' "$setup" | sed -n 's/^python=//p')"
    THREADS="$("$PYTHON" -c 'import os; print(max(1, (os.cpu_count() or 2) // 2))')"
    MODEL="$(printf '%s\n' "$setup" | sed -n 's/^model=//p')"
    note "building the router and the replay (the first time takes a few minutes) ..."
    build --release -p session-slot-router -p session-slot-bench --bin session-slot-router --bin replay
}

# start_llama FLAGS...: a fresh server, so that no run profits from the one before; sets LLAMA and LLAMA_URL.
start_llama() {
    STATES="$WORK/states"
    rm -rf "$STATES"
    # As many threads as cores would wait for each other as soon as anything else runs beside them.
    start_helper llama "$PYTHON" "$SCRIPTS/llama_server.py" --model "$MODEL" --threads "$THREADS" \
        --swa-full --slot-save-path "$STATES" "$@"
    LLAMA="$HELPER"
    LLAMA_URL="$(url_of llama)"
}

# start_router: in front of it, with nothing remembered; sets ROUTER and ROUTER_URL.
start_router() {
    local port state left=100
    port="$(free_port)"
    state="$WORK/state"
    rm -rf "$state"
    mkdir "$state"
    start_helper router "$TARGET/release/session-slot-router" \
        --listen "127.0.0.1:$port" --upstream "$LLAMA_URL" --state-dir "$state" --warm-dir "$STATES"
    ROUTER="$HELPER"
    ROUTER_URL="http://127.0.0.1:$port"
    until answers "$ROUTER_URL/router/health"; do
        left=$((left - 1))
        if [ "$left" -eq 0 ] || ! is_running "$ROUTER"; then
            tail -n 5 "$WORK/router.out" "$WORK/router.err" >&2
            die "the router did not start"
        fi
        sleep 0.1
    done
}

# replay URL LABEL [FLAGS...]: one line of results is added to $WORK/results.
replay() {
    local url="$1" label="$2"
    shift 2
    # A failed request is part of the result, not the end of the demo.
    run_interruptibly "$TARGET/release/replay" --url "$url" --metrics-url "$LLAMA_URL" "--label=$label" --json \
        --sessions "$SESSIONS" --turns "$TURNS" --seed "$SEED" --schedule "$SCHEDULE" \
        --system-tokens "$SYSTEM_TOKENS" --turn-tokens "$TURN_TOKENS" --max-tokens "$MAX_TOKENS" \
        "$@" >>"$WORK/results" || [ "$?" -eq 1 ]
}

# keep_advice NAME: what the router says about this server is added to $WORK/advice.
keep_advice() {
    "$PYTHON" - "$1" "$ROUTER_URL/router/status" >>"$WORK/advice" <<'PYTHON'
import json, sys, textwrap, urllib.request
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
advice = json.load(direct.open(sys.argv[2], timeout=10))["server"]["advice"]
print(f"\nOn {sys.argv[1]} the router advises" + (":" if advice else " nothing."))
for line in advice:
    print(textwrap.fill(line, 110, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False))
PYTHON
}

compare() {
    local name="$1"
    shift
    note "$name: straight at llama-server ..."
    start_llama "$@"
    replay "$LLAMA_URL" "$name|direct"
    end_helper "$LLAMA"
    note "$name: through the router ..."
    start_llama "$@"
    start_router
    replay "$ROUTER_URL" "$name|router" --session-field
    keep_advice "$name"
    end_helper "$ROUTER"
    end_helper "$LLAMA"
}

print_table() {
    printf '\n%s sessions x %s turns on 4 slots\n\n' "$SESSIONS" "$TURNS"
    "$PYTHON" - "$WORK/results" <<'PYTHON'
import json, sys
row = "{:<30} {:<8} {:>12} {:>12} {:>9} {:>12} {:>7}"
print(row.format("llama-server with", "way", "tokens sent", "computed", "reuse %", "TTFT p50 ms", "failed"))
for line in open(sys.argv[1]):
    r = json.loads(line)
    name, way = r["label"].split("|")
    print(row.format(name, way, r["sent"], r["server_computed"], r["server_reuse_percent"],
                     round(r["ttft_p50_ms"]), r["failed"]))
PYTHON
    printf '\nReplayed: %s agents that share a system prompt of about %s tokens and take turns, one request at a time.\n' \
        "$SESSIONS" "$SYSTEM_TOKENS"
    printf 'tokens sent: prompt tokens of all requests. computed: by the server'"'"'s own counter; the rest was reused.\n'
    printf 'TTFT: time to the first token of an answer.\n'
    printf 'Each llama-server also has --swa-full and --slot-save-path, the folder in which the router has states saved.\n'
    cat "$WORK/advice"
}

prepare
begin_work
while IFS='|' read -r name flags <&5; do
    # Split on purpose: flags hold no spaces.
    # shellcheck disable=SC2086
    compare "$name" $flags
done 5<<END
$SETTINGS
END
print_table
