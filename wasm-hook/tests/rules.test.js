// The shared rules through the WASM module: every case that the other languages run.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { clientType, routingId, targetsRouter } from "../js/index.js";

const vectors = JSON.parse(readFileSync(new URL("../../tests/identity-vectors.json", import.meta.url), "utf8"));

/** The cases of one rule; at least `least`, so that an emptied list is noticed. */
function cases(rule, least) {
  assert.ok(vectors[rule].length >= least, `only ${vectors[rule].length} cases of ${rule}`);
  return vectors[rule];
}

test("the shared vectors of routing ids hold", () => {
  for (const one of cases("routing_id", 40)) assert.equal(routingId(one.in), one.out, JSON.stringify(one));
});

test("the shared vectors of client types hold", () => {
  for (const one of cases("client_type", 15)) {
    assert.equal(clientType(one.platform, one.session_id), one.out, JSON.stringify(one));
  }
});

test("the shared vectors of the router's address hold", () => {
  for (const one of cases("targets_router", 40)) {
    assert.equal(targetsRouter(one.base_url, one.port), one.out, JSON.stringify(one));
  }
});

test("there are no vectors that this file does not know", () => {
  assert.deepEqual(Object.keys(vectors).sort(), ["client_type", "routing_id", "targets_router"]);
});

test("the port may be a number, and the address a URL", () => {
  assert.equal(targetsRouter(new URL("http://gpu.lan:9000/v1"), 9000), true);
  assert.equal(targetsRouter("http://gpu.lan:9000/v1", 9001), false);
});

test("the port is the environment's where none is given, and 8081 where that has none", () => {
  const { SESSION_SLOT_ROUTER_PORT: before } = process.env;
  try {
    process.env.SESSION_SLOT_ROUTER_PORT = "9000";
    assert.equal(targetsRouter("http://127.0.0.1:9000/v1"), true);
    assert.equal(targetsRouter("http://127.0.0.1:8081/v1"), false);
    assert.equal(targetsRouter("http://127.0.0.1:8081/v1", 8081), true);
    delete process.env.SESSION_SLOT_ROUTER_PORT;
    assert.equal(targetsRouter("http://127.0.0.1:8081/v1"), true);
  } finally {
    if (before !== undefined) process.env.SESSION_SLOT_ROUTER_PORT = before;
  }
});
