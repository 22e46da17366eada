#!/usr/bin/env bash
# Installs the plugin for Hermes in one profile and enables it there, or takes it away again.
#
# Usage: scripts/install-hermes.sh [--uninstall] PROFILE        PROFILE: `default`, or what follows `hermes -p`
# HERMES_HOME moves Hermes's folder (default: ~/.hermes), as for Hermes itself.
set -euo pipefail
. "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"

python="$(find_python)" || die "python3 3.10 or newer is missing"
exec "$python" -B "$ROOT/plugin-hermes/installer" "$@"
