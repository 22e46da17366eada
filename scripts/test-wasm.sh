#!/usr/bin/env bash
# Tests wasm-hook's JavaScript: on the Node.js that is installed, and what does not need Node.js on a newer one, Deno
# and Bun as well. The SDKs are tested with the router, in tests/tests/real_sdks.
#
# Usage: scripts/test-wasm.sh
set -euo pipefail
. "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"

have node || die "node is missing: install Node.js 20 or newer"
sdks="$("$SCRIPTS/setup-agents.sh" sdks)"
WASM_TEST_SDKS="${sdks#*=}"
# A user's own setting would move the port that the tests expect.
unset SESSION_SLOT_ROUTER_PORT OPENCODE_CLIENT
export WASM_TEST_SDKS NO_COLOR=1
"$SCRIPTS/build-wasm.sh"

cd "$ROOT/wasm-hook"
portable="tests/attach.test.js tests/fetch.test.js tests/global.test.js tests/rules.test.js"
# quietly NAME COMMAND...: shows what the command printed only if it fails.
quietly() {
    local name="$1" said
    shift
    said="$("$@" 2>&1 </dev/null)" || die "the tests fail on $name"$'\n'"$said"
    note "the tests pass on $name"
}
tools="$WASM_TEST_SDKS/node_modules/.bin"
# shellcheck disable=SC2086
{
    quietly "Deno" "$tools/deno" test --allow-all --no-prompt $portable
    quietly "Bun" "$tools/bun" test $portable
    quietly "Node.js $("$tools/node" --version)" "$tools/node" --test $portable
}
node --test --test-reporter=spec tests/*.test.js </dev/null
