#!/usr/bin/env bash
# Builds wasm-hook/generated/module.js: the identity rules as WASM, inlined in one JavaScript file.
#
# Usage: scripts/build-wasm.sh [--install-toolchain]
# What is needed besides cargo is Rust's standard library for WASM: rustup's target, or Debian's Rust with its sources.
# --install-toolchain installs what is missing: with rustup, or as root with apt where rustup can't.
# ROUTER_WASM_TOOLCHAIN=debian takes Debian's even where the other is there.
set -euo pipefail
. "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"

WASM=wasm32-unknown-unknown
DEBIAN_PACKAGES="rustc-web rust-web-src lld-19"
HOOK="$ROOT/wasm-hook"

has_target() {
    [ "${ROUTER_WASM_TOOLCHAIN:-}" != debian ] &&
        [ -d "$(cd "$ROOT" && rustc --print target-libdir --target "$WASM" 2>/dev/null)" ]
}

has_debian() {
    # shellcheck disable=SC2086
    have dpkg-query && [ "$(dpkg-query -W -f '.${db:Status-Status}' $DEBIAN_PACKAGES 2>/dev/null)" = \
        .installed.installed.installed ]
}

install_with_rustup() {
    [ "${ROUTER_WASM_TOOLCHAIN:-}" != debian ] && have rustup && (cd "$ROOT" && rustup target add "$WASM") && has_target
}

install_with_apt() {
    have apt-get && [ "$(id -u)" -eq 0 ] || return 1
    # shellcheck disable=SC2086
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $DEBIAN_PACKAGES
}

install_toolchain() {
    note "installing Rust's standard library for WASM (once) ..."
    install_with_rustup >&2 </dev/null || install_with_apt >&2 </dev/null ||
        note "it could be installed neither with rustup nor with apt"
}

# compile: the module, not yet with its JavaScript.
compile() {
    if has_target; then
        build --locked --profile wasm --target "$WASM" -p session-slot-wasm
    elif has_debian; then
        # Debian has no compiled standard library for WASM, only the sources of one; building those is an unstable feature.
        export RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=wasm-ld-19
        build --locked --profile wasm --target "$WASM" -p session-slot-wasm -Zbuild-std=std,panic_abort
    else
        die "Rust's standard library for WASM is missing: run 'rustup target add $WASM'," \
            "or on Debian, as root, 'apt install $DEBIAN_PACKAGES'"
    fi
}

# inline FOLDER: prints one JavaScript file made of the two that wasm-bindgen has put there.
inline() {
    printf '// Made by scripts/build-wasm.sh. The module is in the file, and ready as soon as that is loaded.\n'
    cat "$1/module.js"
    printf 'const bytes = Uint8Array.from(atob("%s"), (letter) => letter.charCodeAt(0));\n' \
        "$(base64 <"$1/module_bg.wasm" | tr -d '\n')"
    printf 'initSync({ module: bytes });\n'
}

need_cargo
[ -f "$HOOK/generated/module.js" ] || note "building the hook (the first time takes a few minutes) ..."
case "${1:-}" in
    "") ;;
    --install-toolchain) has_target || has_debian || install_toolchain ;;
    *) die "unknown argument $1; usage: scripts/build-wasm.sh [--install-toolchain]" ;;
esac
# A folder of its own: a build for another machine neither waits for one of the workspace nor disturbs it.
(
    export CARGO_TARGET_DIR="$TARGET/wasm-hook"
    compile
)
build --locked -p session-slot-bindgen
"$TARGET/debug/session-slot-bindgen" "$TARGET/wasm-hook/$WASM/wasm/session_slot_wasm.wasm" "$TARGET/wasm-hook/js"
mkdir -p "$HOOK/generated"
inline "$TARGET/wasm-hook/js" >"$HOOK/generated/module.js.part"
mv "$HOOK/generated/module.js.part" "$HOOK/generated/module.js"
cp "$ROOT"/LICENSE* "$HOOK/"
