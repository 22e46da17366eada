#!/usr/bin/env bash
# Tests the plugin for Hermes and its installer. The tests with the real Hermes are tests/tests/real_hermes.
#
# Usage: scripts/test-hermes.sh
# Also reads edited configs with a YAML parser if the Python of ROUTER_TEST_AGENTS's Hermes, or python3, has one.
set -euo pipefail
. "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"

hermes="$(printf '%s\n' "${ROUTER_TEST_AGENTS:-}" | sed -n 's/^hermes=//p')"
if [ -n "$hermes" ]; then
    python="$hermes/bin/python"
else
    python="$(find_python)" || die "python3 3.10 or newer is missing"
fi
cd "$ROOT/plugin-hermes/tests"
exec "$python" -B -m unittest discover --quiet
