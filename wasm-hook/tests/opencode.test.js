// The opencode plugin's one hook. The plugin inside a running opencode is tested with the router.
import assert from "node:assert/strict";
import { test } from "node:test";

import { SessionSlotRouter } from "../opencode/session-slot.js";

const ROUTER = "http://127.0.0.1:8081/v1";

async function optionsFor(input, options = { reasoning: "low" }) {
  const plugin = await SessionSlotRouter();
  const output = { temperature: 1, options };
  await plugin["chat.params"]({ sessionID: "ses_1", agent: "build", ...input }, output);
  return output.options;
}

test("the session is among the options where the provider's address is the router's", async () => {
  const expected = { reasoning: "low", agent_name: "opencode", agent_session_id: "ses_1", client_type: "cli" };
  assert.deepEqual(await optionsFor({ provider: { options: { baseURL: ROUTER } } }), expected);
  assert.deepEqual(await optionsFor({ provider: { options: {} }, model: { api: { url: ROUTER } } }), expected);
});

test("the provider's address counts more than the model's", async () => {
  const input = { provider: { options: { baseURL: "https://api.example/v1" } }, model: { api: { url: ROUTER } } };
  assert.deepEqual(await optionsFor(input), { reasoning: "low" });
});

test("without an address, a session or options nothing happens", async () => {
  assert.deepEqual(await optionsFor({}), { reasoning: "low" });
  const provider = { options: { baseURL: ROUTER } };
  assert.deepEqual(await optionsFor({ provider, sessionID: undefined }), { reasoning: "low" });
  assert.equal(await optionsFor({ provider }, null), null);
});
