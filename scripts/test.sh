#!/usr/bin/env bash
# Runs every test there is: unit, end-to-end with a fake server and with a real llama-server and real agents, the
# scripts' and the plugins'.
#
# Usage: scripts/test.sh
set -euo pipefail
. "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"

need_cargo
setup="$("$SCRIPTS/setup-llama.sh")"
ROUTER_TEST_PYTHON="$(printf '%s\n' "$setup" | sed -n 's/^python=//p')"
ROUTER_TEST_MODEL="$(printf '%s\n' "$setup" | sed -n 's/^model=//p')"
ROUTER_TEST_LAUNCHER="$SCRIPTS/llama_server.py"
setup="$("$SCRIPTS/setup-valkey.sh")"
ROUTER_TEST_REDIS="${setup#redis=}"
# Lines NAME=FOLDER.
ROUTER_TEST_AGENTS="$("$SCRIPTS/setup-agents.sh")"
# More schedules than a run of `cargo test` alone goes through.
SIMULATION_SEEDS="${SIMULATION_SEEDS:-1-10000}"
export SIMULATION_SEEDS
export ROUTER_TEST_PYTHON ROUTER_TEST_MODEL ROUTER_TEST_LAUNCHER ROUTER_TEST_AGENTS ROUTER_TEST_REDIS

"$SCRIPTS/build-wasm.sh" --install-toolchain

cd "$ROOT"
# The end-to-end tests start these programs; a test run alone builds no other crate's binary.
build -p session-slot-router -p session-slot-tests
# The two crates left out have no tests in Rust, and with them cargo would build many dependencies once more.
crates="--workspace --exclude session-slot-wasm --exclude session-slot-bindgen"
# shellcheck disable=SC2086
if cargo nextest --version >/dev/null 2>&1; then
    cargo nextest run $crates --run-ignored all </dev/null
    # nextest runs no doc tests.
    cargo test $crates --doc </dev/null
else
    # This includes doc tests.
    cargo test $crates </dev/null -- --include-ignored
fi
"$SCRIPTS/test-wasm.sh"
"$SCRIPTS/test-scripts.sh"
"$SCRIPTS/test-pi.sh"
"$SCRIPTS/test-hermes.sh"
