#!/usr/bin/env bash
# Tests start-router.sh and stop-router.sh against a fake llama-server, in a copy of the project's scripts.
#
# Usage: scripts/test-scripts.sh
set -euo pipefail
. "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"

# A copy, so that a router this clone really runs keeps its log, PID and database.
make_copy() {
    COPY="$WORK/a project"
    mkdir -p "$COPY/bin" "$COPY/target/release" "$WORK/elsewhere"
    cp -R "$SCRIPTS" "$COPY/scripts"
    cp "$TARGET/debug/session-slot-router" "$COPY/target/release/"
}

# In the copy, as on a machine without cargo, so that the router built for the tests is the one that is started.
without_cargo() {
    (
        unset CARGO_TARGET_DIR
        PATH="$BARE_PATH"
        cd "$WORK/elsewhere"
        "$@"
    )
}

# A folder of links to what the scripts use, so that nothing else is found.
make_bare_path() {
    local tool
    BARE_PATH="$WORK/tools"
    mkdir "$BARE_PATH"
    for tool in bash cat curl date dirname env head kill mkdir mktemp nohup ps rm sed sleep tail tr wc; do
        ln -s "$(type -P "$tool")" "$BARE_PATH/$tool"
    done
}

FAILED=0
check() {
    local what="$1"
    shift
    if "$@"; then return 0; fi
    FAILED=$((FAILED + 1))
    note "FAILED: $what"
    cat "$WORK/said" >&2
}

says() { grep -q -e "$1" "$WORK/said"; }
logs() { grep -q -e "$1" "$COPY/router.log"; }
succeeds() { "$@" >"$WORK/said" 2>&1; }
fails() { ! "$@" >"$WORK/said" 2>&1; }
is_absent() { [ ! -e "$1" ]; }
start() { without_cargo "$COPY/scripts/start-router.sh" --listen "127.0.0.1:$PORT" --upstream "$UPSTREAM" "$@"; }
start_elsewhere() { PORT="$(free_port)" start; }
stop() { without_cargo "$COPY/scripts/stop-router.sh"; }

test_nothing_runs() {
    check "stopping nothing succeeds" succeeds stop
    check "and says so" says 'no router is running'
}

test_first_start() {
    check "a first start succeeds" succeeds start
    check "it prints the log's name" says 'router.log'
    PID="$(cat "$COPY/router.pid" 2>/dev/null || echo 0)"
    check "it prints the PID" says "PID $PID"
    check "the database is in the project root" [ -f "$COPY/router.sqlite" ]
    check "the working directory stays clean" rmdir "$WORK/elsewhere"
    mkdir -p "$WORK/elsewhere"
    check "the router answers" answers "http://127.0.0.1:$PORT/router/health"
    check "bash alone sees that, too" answers_plain "http://127.0.0.1:$PORT/router/health"
}

test_second_start() {
    check "a second start fails" fails start
    check "it says that the port is taken" says "port $PORT is taken"
    check "the log says so, too" logs "port $PORT is taken"
    check "the first one's PID file is untouched" [ "$(cat "$COPY/router.pid")" = "$PID" ]
    check "the first one still runs" is_running "$PID"
    check "a second start on another port fails as well" fails start_elsewhere
    check "it says that one still runs" says "still runs (PID $PID)"
    check "the first one's PID file is still untouched" [ "$(cat "$COPY/router.pid")" = "$PID" ]
}

test_stop() {
    check "stopping succeeds" succeeds stop
    check "the router has ended" fails is_running "$PID"
    check "the PID file is gone" is_absent "$COPY/router.pid"
}

test_failing_start() {
    check "a wrong flag fails" fails start --no-such-flag
    check "the flag is named" says 'no-such-flag'
    check "no PID file is left" is_absent "$COPY/router.pid"
}

test_foreign_pid() {
    printf '%s\n' "$$" >"$COPY/router.pid"
    check "a PID that is another program's is left alone" succeeds stop
    check "and its file removed" is_absent "$COPY/router.pid"
}

test_similar_command_line() {
    : >"$WORK/session-slot-router"
    # It waits for the end of its standard input first, as an editor with that file open would wait.
    start_helper editor cat - "$WORK/session-slot-router"
    printf '%s\n' "$HELPER" >"$COPY/router.pid"
    check "a program with the router's name in an argument is left alone" succeeds stop
    check "stop-router.sh says that no router runs" says 'no router is running'
    check "that program still runs" is_running "$HELPER"
    end_helper "$HELPER"
}

test_state_dir_and_drain_of_a_file() {
    mkdir "$WORK/state"
    rm -f "$COPY/router.sqlite"
    printf 'state_dir = "%s"\ndrain = 1\n' "$WORK/state" >"$WORK/router.toml"
    check "a start with a file succeeds" succeeds start --config "$WORK/router.toml"
    check "the database is where the file says" [ -f "$WORK/state/router.sqlite" ]
    check "and not in the project root" is_absent "$COPY/router.sqlite"
    check "it is stopped" succeeds stop
    rm -f "$WORK/state/router.sqlite"
    export SLOT_ROUTER_STATE_DIR="$WORK/state"
    check "a start with the environment succeeds" succeeds start
    unset SLOT_ROUTER_STATE_DIR
    check "the database is where the environment says" [ -f "$WORK/state/router.sqlite" ]
    check "it is stopped, too" succeeds stop
}

test_missing_tools() {
    rm "$COPY/target/release/session-slot-router"
    check "without cargo and a router, starting fails" fails start
    check "cargo is named" says 'cargo is missing'
    check "without Python, the set-up fails" fails without_cargo "$COPY/scripts/setup-llama.sh"
    check "Python is named" says 'python3 .* is missing'
}

begin_work
: >"$WORK/said"
make_copy
make_bare_path
start_helper fake "$TARGET/debug/fake-llama-server" --listen 127.0.0.1:0 --slots 4
UPSTREAM="$(url_of fake)"
PORT="$(free_port)"
PID=0
# Whatever fails on the way, no router is left running.
trap 'stop >/dev/null 2>&1 || true; end_work' EXIT
test_nothing_runs
test_first_start
test_second_start
test_stop
test_failing_start
test_foreign_pid
test_similar_command_line
test_state_dir_and_drain_of_a_file
test_missing_tools
[ "$FAILED" -eq 0 ] || die "$FAILED script checks failed"
printf 'the scripts pass their tests\n'
