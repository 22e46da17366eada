#!/usr/bin/env bash
# Tests the Pi extension and its installer: rules and handlers as each version of Pi loads them, types against theirs.
#
# Usage: scripts/test-pi.sh      real Pi with the extension is run by the test binary real_pi: scripts/test.sh
set -euo pipefail
. "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"

# write_tsconfig FOLDER PACKAGE: what lets `pi` stand for that package's types.
write_tsconfig() {
    cat <<TSCONFIG
{
  "extends": "$ROOT/plugin-pi/tsconfig.json",
  "compilerOptions": {
    "typeRoots": ["$1/node_modules/@types"],
    "paths": { "pi": ["$1/node_modules/$2"] }
  },
  "files": ["$ROOT/plugin-pi/types-check.ts"]
}
TSCONFIG
}

# run_tests NODE FILE: node's test runner; what it says is shown only when a test fails.
run_tests() {
    if ! "$1" --test "$ROOT/plugin-pi/$2" >"$WORK/said" 2>&1; then
        cat "$WORK/said" >&2
        die "plugin-pi/$2 fails"
    fi
}

# test_with NAME PACKAGE: with the Node.js that tests/agents/NAME pins.
test_with() {
    local folder node
    folder="$("$SCRIPTS/setup-agents.sh" "$1" | sed -n "s/^$1=//p")"
    node="$folder/node_modules/.bin/node"
    printf 'plugin-pi with %s\n' "$1"
    write_tsconfig "$folder" "$2" >"$WORK/$1.json"
    "$node" "$folder/node_modules/typescript/bin/tsc" --project "$WORK/$1.json"
    PI_FOLDER="$folder" run_tests "$node" pi-session.test.mjs
}

have node || die "node is missing: install Node.js 20 or newer"
begin_work
run_tests node install.test.mjs
test_with pi-0.73 @mariozechner/pi-coding-agent
test_with pi-1.6 @earendil-works/pi-coding-agent
printf 'plugin-pi passes its tests\n'
