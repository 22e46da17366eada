#!/usr/bin/env bash
# Installs the Pi extension, and prints the provider that sends Pi's requests to the router, or adds it to models.json.
#
# Usage: scripts/install-pi.sh [--write]        --write adds the provider to models.json (a backup is kept)
#        scripts/install-pi.sh --uninstall      takes the extension and the provider away again
#   --port PORT       the router's port (default: SESSION_SLOT_ROUTER_PORT, else 8081)
#   --model ID        the model's name (default: what the router's /v1/models says, else `local`)
#   --api API         openai-completions (default), openai-responses or anthropic-messages
#   --provider NAME   the provider's name in Pi (default: slot-router)
# Pi's folder is PI_CODING_AGENT_DIR, else ~/.pi/agent.
set -euo pipefail
. "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"

SOURCE="$ROOT/plugin-pi/pi-session.ts"

usage() {
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "${BASH_SOURCE[0]}"
}

# Pi understands a ~ in the variable, so it is understood here as well.
agent_dir() {
    case "${PI_CODING_AGENT_DIR:-}" in
        "") printf '%s\n' "$HOME/.pi/agent" ;;
        \~ | \~/*) printf '%s\n' "$HOME${PI_CODING_AGENT_DIR#\~}" ;;
        # Programs would take it for an option.
        -*) printf './%s\n' "$PI_CODING_AGENT_DIR" ;;
        *) printf '%s\n' "$PI_CODING_AGENT_DIR" ;;
    esac
}

copy_extension() {
    local folder part
    folder="$(dirname "$EXTENSION")"
    # Beside it and renamed, under a name that Pi does not load.
    part="$folder/.pi-session.$$"
    mkdir -p "$folder" || die "can't create $folder"
    # A link to this very file, as developers may have, is as good as a copy.
    if [ ! "$EXTENSION" -ef "$SOURCE" ]; then
        if ! { cp "$SOURCE" "$part" && mv -f "$part" "$EXTENSION"; }; then
            rm -f "$part"
            die "can't write $EXTENSION"
        fi
    fi
    printf 'the extension is in %s\n' "$EXTENSION"
}

install() {
    # It would be moved into the folder.
    [ ! -d "$EXTENSION" ] || die "$EXTENSION is a folder; nothing was changed"
    # models.json first: if it is refused, nothing has been changed.
    case "$WHAT" in
        write) models merge ;;
        *) ENTRY="$(models entry)" ;;
    esac
    copy_extension
    [ "$WHAT" = write ] || printf 'put this into %s, or run this again with --write:\n%s\n' "$MODELS" "$ENTRY"
    if [ "$PORT" != 8081 ] && [ "$PORT" != "${SESSION_SLOT_ROUTER_PORT:-}" ]; then
        note "set SESSION_SLOT_ROUTER_PORT=$PORT where Pi runs: the extension looks for port 8081 otherwise"
    fi
}

uninstall() {
    models remove
    if [ ! -e "$EXTENSION" ] && [ ! -L "$EXTENSION" ]; then
        printf 'there is no extension in %s\n' "$(dirname "$EXTENSION")"
        return
    fi
    rm -f "$EXTENSION" || die "can't remove $EXTENSION"
    printf 'the extension is gone from %s\n' "$(dirname "$EXTENSION")"
}

models() { node "$SCRIPTS/pi-models.mjs" "$1" "$MODELS" "$PROVIDER" "$PORT" "$API" "$MODEL"; }

WHAT=print PORT="${SESSION_SLOT_ROUTER_PORT:-8081}" MODEL="" API="" PROVIDER=slot-router
while [ "$#" -gt 0 ]; do
    case "$1" in
        --write) WHAT="write" ;;
        --uninstall) WHAT=uninstall ;;
        --port | --model | --api | --provider)
            [ -n "${2:-}" ] || die "$1 needs a value"
            case "$1" in
                --port) PORT="$2" ;;
                --model) MODEL="$2" ;;
                --api) API="$2" ;;
                --provider) PROVIDER="$2" ;;
            esac
            shift
            ;;
        -h | --help)
            usage
            exit 0
            ;;
        *) die "unknown argument $1; see scripts/install-pi.sh --help" ;;
    esac
    shift
done
[ -n "${HOME:-}" ] || die "HOME is not set"
have node || die "node is missing: Pi's models.json can't be read without it"
AGENT_DIR="$(agent_dir)"
EXTENSION="$AGENT_DIR/extensions/pi-session.ts"
MODELS="$AGENT_DIR/models.json"
case "$WHAT" in
    uninstall) uninstall ;;
    *) install ;;
esac
