#!/usr/bin/env python3
"""Starts a small real llama-server from the PyPI package xllamacpp, with llama-server's own flags.

Prints one line, `listening on http://127.0.0.1:PORT`, when it is ready; llama.cpp's log goes to stderr.
Ends at the end of its standard input, so that it never outlives the program that started it, or on SIGTERM.
"""

import argparse
import os
import signal
import socket
import sys
import time
import urllib.request

# What llama-server does when --parallel is absent: four slots that share one KV memory.
AUTO_SLOTS = 4


def parse_args():
    """Reads the flags; names and defaults are llama-server's."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flag = parser.add_argument
    flag("-m", "--model", required=True, help="the model file (GGUF)")
    flag("--port", type=int, default=0, help="0 takes a free one")
    flag("-np", "--parallel", type=int, help=f"slots (absent: {AUTO_SLOTS}, with a unified KV)")
    flag("-c", "--ctx-size", type=int, default=0, help="tokens over all slots (0: the model's own)")
    flag("-kvu", "--kv-unified", action=argparse.BooleanOptionalAction, help="one KV memory for all slots")
    flag("--cache-idle-slots", action=argparse.BooleanOptionalAction, default=True,
         help="save and clear idle slots when a task starts")
    flag("--cache-ram", type=int, default=8192, help="MiB for saved prompts (0: off)")
    flag("--swa-full", action="store_true", help="keep the whole cache of sliding-window layers")
    flag("-ctxcp", "--ctx-checkpoints", type=int, help="checkpoints kept of a sliding window (absent: llama.cpp's choice)")
    flag("-ctk", "--cache-type-k", default="f16", help="type of the cache's keys, as f16 or q8_0")
    flag("-ctv", "--cache-type-v", default="f16", help="type of the cache's values")
    flag("--slot-save-path", default="", help="folder for saved slots; absent: slot actions are off")
    flag("--api-key", action="append", default=[], help="a key clients must send; may be repeated")
    flag("-t", "--threads", type=int, help="CPU threads (absent: llama.cpp's choice)")
    return parser.parse_args()


def port_is_taken(port):
    """Says whether someone listens there already; llama.cpp itself only reports it in its log."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return port != 0 and probe.connect_ex(("127.0.0.1", port)) == 0


def cache_type(name, xllamacpp):
    """Turns a name such as q8_0 into llama.cpp's number for it."""
    known = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{name.upper()}", None)
    if known is None:
        sys.exit(f"llama.cpp has no type {name}")
    return known


def params_from(flags, xllamacpp):
    """Turns the flags into llama.cpp's parameters."""
    params = xllamacpp.CommonParams()
    params.model.path = flags.model
    params.port = flags.port
    params.n_parallel = flags.parallel or AUTO_SLOTS
    params.n_ctx = flags.ctx_size
    # As in llama-server: unified unless a number of slots was asked for.
    params.kv_unified = flags.parallel is None if flags.kv_unified is None else flags.kv_unified
    params.cache_idle_slots = flags.cache_idle_slots
    params.cache_ram_mib = flags.cache_ram
    params.swa_full = flags.swa_full
    params.cache_type_k = cache_type(flags.cache_type_k, xllamacpp)
    params.cache_type_v = cache_type(flags.cache_type_v, xllamacpp)
    if flags.ctx_checkpoints is not None:
        params.n_ctx_checkpoints = flags.ctx_checkpoints
    params.api_keys = flags.api_key
    if flags.slot_save_path:
        os.makedirs(flags.slot_save_path, exist_ok=True)
        # Without the slash llama.cpp glues the file's name to the folder's.
        params.slot_save_path = os.path.join(flags.slot_save_path, "")
    if flags.threads:
        params.cpuparams.n_threads = flags.threads
        params.cpuparams_batch.n_threads = flags.threads
    params.endpoint_slots = params.endpoint_metrics = params.endpoint_props = True
    return params


def wait_until_healthy(url, seconds=120):
    """Waits for /health, which stays public with --api-key."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + seconds
    while True:
        try:
            with direct.open(url + "/health", timeout=5):
                return
        except OSError:
            if time.monotonic() > deadline:
                sys.exit(f"llama-server did not answer on {url} within {seconds} s")
            time.sleep(0.05)


def end(*_):
    """Ends at once: llama.cpp's threads have nothing to save, and joining them may wait for a running request."""
    os._exit(0)


def main():
    flags = parse_args()
    try:
        import xllamacpp
    except ImportError:
        sys.exit("the Python package xllamacpp is missing: scripts/setup-llama.sh installs it")
    if not os.path.isfile(flags.model):
        sys.exit(f"no model file at {flags.model}")
    if port_is_taken(flags.port):
        sys.exit(f"port {flags.port} is taken")
    # llama.cpp may write to descriptor 1; the one line a reader waits for keeps a descriptor of its own.
    ready_line = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    server = xllamacpp.Server(params_from(flags, xllamacpp))
    wait_until_healthy(server.listening_address)
    print(f"listening on {server.listening_address}", file=ready_line, flush=True)
    while sys.stdin.buffer.read(4096):
        pass
    end()


if __name__ == "__main__":
    main()
