// installGlobal: it changes the global fetch, which every test here puts back.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { installGlobal, withSession } from "../js/index.js";
import { startEcho } from "./echo.js";

const original = globalThis.fetch;
let echo;
before(async () => {
  echo = await startEcho();
});
after(() => echo.close());

/** The session that arrives of a call of the global fetch. */
async function idNow(call = globalThis.fetch) {
  const answer = await call(echo.url, { method: "POST", body: "{}" });
  return JSON.parse((await answer.json()).body).agent_session_id;
}

test("the global fetch attaches the session until it is undone", async () => {
  const undo = installGlobal(echo.session);
  assert.equal(await idNow(), "s1");
  undo();
  assert.equal(globalThis.fetch, original);
  assert.equal(await idNow(), undefined);
});

test("installing twice is installing once, and undoing twice is too", async () => {
  const first = installGlobal(echo.session);
  const ours = globalThis.fetch;
  const second = installGlobal(echo.session);
  assert.equal(globalThis.fetch, ours);
  first();
  assert.equal(globalThis.fetch, original);
  second();
  assert.equal(globalThis.fetch, original);
});

test("the last session installed counts, and only its own undoing ends it", async () => {
  const first = installGlobal(echo.session);
  const second = installGlobal({ ...echo.session, sessionId: "s2" });
  first();
  assert.equal(await idNow(), "s2");
  second();
  assert.equal(globalThis.fetch, original);
});

test("undoing leaves a fetch that somebody has put around ours, with nothing attached", async () => {
  const undo = installGlobal(echo.session);
  const ours = globalThis.fetch;
  const theirs = (...call) => ours(...call);
  globalThis.fetch = theirs;
  try {
    assert.equal(await idNow(), "s1");
    undo();
    assert.equal(globalThis.fetch, theirs);
    assert.equal(await idNow(), undefined);
    const again = installGlobal({ ...echo.session, sessionId: "s3" });
    assert.equal(await idNow(), "s3");
    again();
    assert.equal(globalThis.fetch, theirs);
  } finally {
    globalThis.fetch = original;
  }
});

test("a client's own session counts more than the global one", async () => {
  const undo = installGlobal(echo.session);
  try {
    assert.equal(await idNow(withSession({ ...echo.session, sessionId: "own" })), "own");
  } finally {
    undo();
  }
});
