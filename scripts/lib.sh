# What the scripts share: messages, the cache folder, finding tools, and processes that end with the script.
# Sourced, not run. bash 3.2 (macOS) must understand it.
# shellcheck shell=bash disable=SC2034

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
SCRIPTS="$ROOT/scripts"
# Where cargo puts its results; a relative CARGO_TARGET_DIR is relative to the workspace, since cargo is run there.
case "${CARGO_TARGET_DIR:-}" in
    "") TARGET="$ROOT/target" ;;
    /*) TARGET="$CARGO_TARGET_DIR" ;;
    *) TARGET="$ROOT/$CARGO_TARGET_DIR" ;;
esac

note() { printf '%s\n' "$*" >&2; }

die() {
    note "error: $*"
    exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

cache_dir() { printf '%s\n' "${ROUTER_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/session-slot-router}"; }

# find_python [LOWEST [BELOW]]: prints the first Python from version LOWEST (3.10) to below BELOW (any).
# A name may exist and still not run (pyenv's shims), so each is tried.
find_python() {
    local name
    for name in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do
        if "$name" -c 'import sys
lowest, below = (tuple(map(int, text.split("."))) for text in sys.argv[1:])
sys.exit(not lowest <= sys.version_info[:2] < below)' "${1:-3.10}" "${2:-99.0}" 2>/dev/null; then
            command -v "$name"
            return 0
        fi
    done
    return 1
}

need_cargo() {
    have cargo || die "cargo is missing: install Rust from https://rustup.rs"
}

# install_once WHAT FOLDER COMMAND...: has COMMAND put WHAT into FOLDER, which is new and empty then, unless it is there.
install_once() {
    local what="$1" folder="$2" log="$2.log" cache python
    shift 2
    [ ! -f "$folder/complete" ] || return 0
    cache="$(dirname "$folder")"
    python="$(find_python)" || die "python3 3.10 or newer is missing"
    mkdir -p "$cache" || die "can't create the cache folder $cache"
    # One installer at a time; the kernel drops the lock with this process, so that no stale one can remain.
    exec 9>"$cache/setup.lock"
    "$python" -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX)'
    if [ ! -f "$folder/complete" ]; then
        note "installing $what into $folder (once) ..."
        rm -rf "$folder"
        mkdir -p "$folder"
        if ! "$@" >"$log" 2>&1 </dev/null; then
            tail -n 15 "$log" >&2
            die "$what could not be installed; the whole log is in $log"
        fi
        # Written last: a folder without it is an interrupted install and is begun again.
        : >"$folder/complete"
    fi
    exec 9>&-
}

# build ARGS...: cargo build in the project root; cargo's output is shown only when it fails.
build() {
    local log
    log="$(mktemp "${TMPDIR:-/tmp}/slot-router-build.XXXXXX")"
    if ! (cd "$ROOT" && cargo build "$@") >"$log" 2>&1 </dev/null; then
        cat "$log" >&2
        rm -f "$log"
        die "the build failed"
    fi
    rm -f "$log"
}

# answers URL: says whether an HTTP server answers there, whatever the status. curl, else Python, else bash alone.
answers() {
    if have curl; then
        curl --silent --globoff --output /dev/null --noproxy '*' --max-time 2 "$1" 2>/dev/null
    elif have python3; then
        python3 -c 'import sys, urllib.error, urllib.request as u
try: u.build_opener(u.ProxyHandler({})).open(sys.argv[1], timeout=2)
except urllib.error.HTTPError: pass' "$1" >/dev/null 2>&1
    else
        answers_plain "$1"
    fi
}

# The same over bash's own /dev/tcp.
answers_plain() {
    local rest="${1#http://}" authority host line
    authority="${rest%%/*}"
    host="${authority%:*}"
    host="${host#[}"
    line="$( (
        exec 3<>"/dev/tcp/${host%]}/${authority##*:}" || exit 1
        printf 'GET /%s HTTP/1.0\r\nHost: %s\r\n\r\n' "${rest#*/}" "$authority" >&3
        IFS= read -r -t 2 line <&3 && printf '%s' "$line"
    ) 2>/dev/null)" || return 1
    case "$line" in
        HTTP/1.*) return 0 ;;
    esac
    return 1
}

free_port() {
    local python
    python="$(find_python)" || die "python3 3.10 or newer is missing"
    "$python" -c 'import socket
s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

is_running() { kill -0 "$1" 2>/dev/null; }

# A PID is used again by the system sooner or later: only a router may be ended. Linux cuts the name to 15 characters,
# macOS gives the whole path.
is_router() {
    local name
    name="$(ps -ww -o comm= -p "$1" 2>/dev/null)" || return 1
    name="${name##*/}"
    [ "${name:0:15}" = session-slot-ro ]
}

# ended_within PID TENTHS: waits for a process to end, at most so many tenths of a second.
ended_within() {
    local left="$2"
    while is_running "$1"; do
        [ "$left" -gt 0 ] || return 1
        left=$((left - 1))
        sleep 0.1
    done
}

# --- helpers that end with the script -------------------------------------------------------------------------------

# Makes $WORK, a folder for this run, and sees to it that it and every helper are gone at the end, whatever ends it.
begin_work() {
    WORK="$(mktemp -d "${TMPDIR:-/tmp}/slot-router.XXXXXX")"
    HELPERS=""
    mkfifo "$WORK/alive"
    # Helpers end at the end of their standard input. This script holds the only writing end, so that they end with
    # it even when it is killed and no trap runs.
    exec 8<>"$WORK/alive"
    trap end_work EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
}

end_work() {
    local pid
    for pid in $HELPERS; do end_helper "$pid"; done
    exec 8>&-
    rm -rf "$WORK"
}

# start_helper NAME COMMAND...: starts it in the background, standard output and error in $WORK/NAME.{out,err}; sets HELPER.
start_helper() {
    local name="$1"
    shift
    # Emptied here, not only by the child's redirection: url_of could otherwise still read an earlier helper's line.
    : >"$WORK/$name.out"
    : >"$WORK/$name.err"
    "$@" >"$WORK/$name.out" 2>"$WORK/$name.err" <"$WORK/alive" 8>&- &
    HELPER=$!
    HELPERS="$HELPERS $HELPER"
}

# Takes a PID off the list of helpers.
forget() {
    local other rest=""
    for other in $HELPERS; do [ "$other" = "$1" ] || rest="$rest $other"; done
    HELPERS="$rest"
}

# Ends one helper by its PID.
end_helper() {
    local pid="$1"
    forget "$pid"
    kill "$pid" 2>/dev/null || true
    ended_within "$pid" 150 || kill -KILL "$pid" 2>/dev/null || true
    # Collected here, so that bash does not report the end of the job.
    wait "$pid" 2>/dev/null || true
}

# run_interruptibly COMMAND...: as the command alone, but a signal to this script ends it at once: bash runs no trap
# while it waits for a command in the foreground.
run_interruptibly() {
    local pid status=0
    "$@" 8>&- &
    pid=$!
    HELPERS="$HELPERS $pid"
    wait "$pid" || status=$?
    forget "$pid"
    return "$status"
}

# url_of NAME: waits for the line `listening on URL` of the helper started last, and prints the URL.
url_of() {
    local left=1200 url=""
    while [ "$left" -gt 0 ]; do
        # Gone when this script is being ended meanwhile.
        [ -d "$WORK" ] || return 1
        url="$(sed -n 's/^listening on //p' "$WORK/$1.out" | head -n 1)"
        [ -z "$url" ] || break
        is_running "$HELPER" || break
        left=$((left - 1))
        sleep 0.1
    done
    if [ -z "$url" ]; then
        tail -n 5 "$WORK/$1.err" >&2
        note "error: $1 did not start"
        return 1
    fi
    printf '%s\n' "$url"
}
