#!/usr/bin/env bash
# Checks that every dependency's licence is one the project accepts. Needs no network.
#
# Usage: scripts/check-licences.sh
# Security advisories can't be checked offline: they live in a database that changes daily (cargo audit, cargo deny).
set -euo pipefail
. "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"

need_cargo
python="$(find_python)" || die "python3 3.10 or newer is missing"
metadata="$(mktemp "${TMPDIR:-/tmp}/slot-router-metadata.XXXXXX")"
trap 'rm -f "$metadata"' EXIT
cd "$ROOT"
# Crates of other platforms may be in no local copy yet; then, and only then, they are fetched.
cargo metadata --locked --offline --format-version 1 >"$metadata" 2>/dev/null ||
    cargo metadata --locked --format-version 1 >"$metadata" ||
    die "cargo metadata failed (is Cargo.lock up to date?)"
"$python" - "$metadata" <<'PYTHON'
"""An expression is accepted when some way of reading it needs only accepted licences."""
import json, re, sys

ACCEPTED = {
    "MIT", "MIT-0", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Zlib",
    "Unicode-3.0", "Unlicense", "CC0-1.0", "0BSD", "BSL-1.0",
}


def accepted(tokens):
    """Reads `term (OR term)*`, each `factor (AND factor)*`, and uses the tokens up."""
    result = term(tokens)
    while tokens and tokens[0] == "OR":
        tokens.pop(0)
        # Both sides must be read, whatever the first one gave.
        result = term(tokens) or result
    return result


def term(tokens):
    result = factor(tokens)
    while tokens and tokens[0] == "AND":
        tokens.pop(0)
        result = factor(tokens) and result
    return result


def factor(tokens):
    name = tokens.pop(0)
    if name == "(":
        result = accepted(tokens)
        tokens.pop(0)
        return result
    if tokens and tokens[0] == "WITH":
        name = f"{name} WITH {tokens[1]}"
        del tokens[:2]
    return name in ACCEPTED


def refused(package):
    # Old crates write MIT/Apache-2.0 for OR.
    expression = (package["license"] or "").replace("/", " OR ")
    tokens = re.findall(r"[()]|[^\s()]+", expression)
    return not tokens or not accepted(tokens)


packages = json.load(open(sys.argv[1], encoding="utf-8"))["packages"]
bad = [p for p in packages if refused(p)]
for p in bad:
    print(f"{p['name']} {p['version']}: licence {p['license'] or 'unknown'} is not accepted", file=sys.stderr)
sys.exit(bool(bad))
PYTHON
